//! The task map: what is known here of work at agents, for as long as it is worth knowing.
//!
//! In memory, sharded and bounded: a cache of truth that lives at the agents, so that dropping an entry loses nothing that
//! cannot be asked for again. Time is handed in. What an event does to a task is pure and lives in `bridge::work`, which is all
//! that is imported from `bridge`.
//! What survives a restart, where the operator wants that, is in the ledger.
//! Not here: asking agents (see `follow`), whose task it is (the handle says so).

mod answer_log;
mod change;
pub mod data_dir;
mod entry;
mod entry_state;
mod guards;
mod journal;
mod map;
mod owner_index;
mod phase;
mod record;
pub mod seal_key_file;
mod shard;
#[cfg(test)]
mod simulation;
pub mod store;
#[cfg(test)]
mod tests;
mod usage;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

pub use answer_log::{AnswerClaim, AnswersTooLarge, PartialAnswers};
pub use entry::TaskEntry;
pub use entry_state::{ClientOverride, EntryState};
pub use guards::{CancelGuard, FollowGuard, WatchGuard};
pub use journal::TaskJournal;
pub use map::Tasks;
pub use phase::{AnswerRefusal, TaskPhase};

use crate::seal::AgentTaskId;

/// How an entry is found.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum EntryKey {
    /// By agent and the agent's id of the task.
    Task {
        /// The configured name of the agent.
        agent: Arc<str>,
        /// The agent's id of the task.
        id: AgentTaskId,
    },
    /// By the number that it got while the agent had not named a task.
    Local([u8; 16]),
}

/// How much is kept, and for how long.
#[derive(Debug, Clone, Copy)]
pub struct TaskLimits {
    /// Entries at once.
    pub most: usize,
    /// About how many bytes they may take together.
    pub bytes: usize,
    /// How long an entry is kept after the last activity.
    pub ttl: Duration,
    /// Artifacts of a finished task above this many bytes are read again from the agent instead of being kept.
    pub artifact_bytes: usize,
}

/// A moment, on both clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timestamp {
    /// For measuring.
    pub instant: Instant,
    /// For telling: milliseconds since 1970.
    pub unix_ms: u64,
}

impl Timestamp {
    /// This moment.
    pub fn now() -> Self {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        Self { instant: Instant::now(), unix_ms: u64::try_from(since.as_millis()).unwrap_or(u64::MAX) }
    }
}

/// The map is full of live tasks that somebody watches or follows. The client can try again later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the gateway keeps as many live tasks as it may")]
pub struct TaskMapFull;

/// Locks, even if somebody else broke while holding the lock.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
