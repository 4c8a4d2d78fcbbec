//! The task map: the tasks at agents that the gateway knows, within limits of number, size and
//! time.
//!
//! In memory, sharded and bounded: a cache of the truth that the agents hold, so that dropping an
//! entry loses nothing that cannot be fetched again. Time is an argument. The effect of an event on
//! a task is pure and lives in `bridge::output`, the only import from `bridge`. The journal keeps
//! tasks across a restart, if the operator wants that.
//!
//! Out of scope: requests to agents (see `follow`), the owner of a task (part of the handle).

mod answer_log;
mod compression;
pub mod data_dir;
mod entry;
mod entry_state;
mod journal;
mod map;
mod shard;
#[cfg(test)]
mod simulation;
pub mod store;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

#[cfg(test)]
use answer_log::AnswersTooLarge;
pub use answer_log::{AnswerClaim, AnswerRefusal, PartialAnswers};
pub use entry::{CancelGuard, FollowGuard, TaskChanges, TaskEntry, WatchGuard};
pub use entry_state::{ClientOverride, EntryState, TaskPhase};
pub use journal::RestorePolicy;
pub use journal::TaskJournal;
pub(crate) use journal::{RowContent, SharedRows, SharedTaskRow, row_key};
pub use map::Tasks;

use crate::seal::AgentTaskId;

/// Key of an entry.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum EntryKey {
    /// Agent and the agent's id of the task.
    Task {
        /// The configured name of the agent.
        agent: Arc<str>,
        /// The agent's id of the task.
        id: AgentTaskId,
    },
    /// Number of a call while the agent has not named a task.
    Local([u8; 16]),
}

/// Limits of the task map.
#[derive(Debug, Clone, Copy)]
pub struct TaskLimits {
    /// Number of entries.
    pub most: usize,
    /// Approximate size of all entries, in bytes.
    pub bytes: usize,
    /// Time for which an entry is kept after the last activity.
    pub ttl: Duration,
    /// Artifacts of a finished task above this many bytes are fetched again from the agent instead
    /// of being kept.
    pub artifact_bytes: usize,
    /// Time after the last use of a finished task from which its state may be compressed.
    pub compress_after: Duration,
}

/// Position of an event among those of its task that replicas share: the lease under which it was
/// written, then its number.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct EventPosition {
    /// Fencing token of the lease.
    pub epoch: u64,
    /// Number of the event since the task's first one.
    pub number: u64,
}

/// Origin of the events of a task that is followed among replicas.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EventOrigin {
    /// This replica reads the agent's stream.
    Agent,
    /// Another replica does.
    Replica,
}

/// A moment, on both clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timestamp {
    /// For measuring.
    pub instant: Instant,
    /// For messages: milliseconds since 1970.
    pub unix_ms: u64,
}

impl Timestamp {
    /// Returns the current time.
    pub fn now() -> Self {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        Self { instant: Instant::now(), unix_ms: u64::try_from(since.as_millis()).unwrap_or(u64::MAX) }
    }
}

/// The map is full of live tasks that are watched or followed. The client can try again later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the gateway keeps as many live tasks as it may")]
pub struct TaskMapFull;
