//! Tasks that go on without their client: their streams, polls and pushes.
//!
//! One agent stream per task, whatever the number of watchers: who waits for a task watches its entry in the task map and opens
//! nothing. Bounded: above the bound tasks are polled in turn. Not here: whose task it is (the handle says so), how it is told.

mod followers;
mod job;
mod listener;
mod push;
mod rota;
mod shed;
mod successors;

pub use followers::{FollowLimits, TaskFollower};
pub use job::{DetachMode, DetachedCall};
pub use push::PushAddressFn;
