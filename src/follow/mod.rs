//! Tasks that go on without their client: their streams, polls and pushes.
//!
//! One agent stream per task, whatever the number of watchers: who waits for a task watches its entry in the task map and opens
//! nothing. Bounded: above the bound tasks are polled in turn. Not here: whose task it is (the handle says so), how it is told.

mod artifact_eviction;
mod event_ingest;
mod job;
mod poll_scheduler;
mod push_trigger;
mod successors;
mod task_follower;

pub use job::{DetachMode, DetachedCall};
pub use push_trigger::PushAddressFn;
pub use task_follower::{FollowLimits, TaskFollower};
