//! Calls that outlive their client: kept, drained to their end, and found again by handle.
//!
//! One agent stream per task, whatever the number of watchers: who waits for a task that is followed here watches it and opens
//! nothing. Bounded. Not here: whose task it is (the handle says so), how it is told.

mod followed;
mod followers;
mod kept;

pub use followed::Followed;
pub use followers::{Bounds, Followers, Job, Key, Purpose};
