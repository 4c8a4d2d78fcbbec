//! Tasks that continue without their client: their streams, polls and pushes.
//!
//! One agent stream per task, for any number of watchers: a client that waits for a task watches
//! its entry in the task map and opens nothing. Bounded: above the limit tasks are polled in turn.
//!
//! Out of scope: the owner of a task (part of the handle), responses to clients.

mod event_ingest;
mod poll_scheduler;
mod push_trigger;
mod task_follower;

pub use push_trigger::PushAddressFn;
pub use task_follower::{DetachMode, DetachedCall};
pub use task_follower::{FollowLimits, TaskFollower};
