//! What the gateway keeps on disk about tasks: the store and the key that handles are sealed with.
//!
//! Optional: without a data directory nothing here runs. Not here: what a row means, what happens to a task.

mod data_dir;
pub mod keyfile;
pub mod store;
