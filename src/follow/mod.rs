//! Tasks that continue without their client: their streams, polls and pushes.
//!
//! One agent stream per task, for any number of watchers: a client that waits for a task watches
//! its entry in the task map and opens nothing. Bounded: above the limit tasks are polled in turn.
//!
//! Out of scope: the owner of a task (part of the handle), responses to clients.

mod event_ingest;
mod refresh;
mod task_follower;

pub use refresh::PushAddressFn;
pub use task_follower::{DetachMode, DetachedCall, FollowLimits, TaskFollower, TaskMessage};
