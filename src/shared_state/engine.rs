//! The operations that replicas need of an engine for shared state; each is atomic there.
//!
//! Keys are [`StateKey`]s: hashes, so that a backup of the engine names no caller and no task. Values
//! are sealed by the caller of these operations. Everything has a time to live. See also
//! `redis_engine` for several processes, and `local_engine` for one.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use data_encoding::HEXLOWER;
use sha2::{Digest as _, Sha256};
use tracing::{info, warn};

use crate::tasks::EventPosition;

/// Version of the keys and values: another release with other ones leaves these alone.
pub(super) const SCHEMA: u32 = 1;
/// Events of one task that are kept for watchers at other replicas. The row follows them closely.
pub(super) const MOST_EVENTS: usize = 256;
/// Rows of the log that are kept.
pub(super) const MOST_LOGGED: usize = 100_000;
/// Time for which the log outlives its last row.
pub(super) const LOG_TTL: Duration = Duration::from_secs(31 * 24 * 3600);
/// Members of one index.
pub(super) const MOST_INDEXED: usize = 10_000;
/// Pause between two heartbeats, and the time for which one says that the replica lives.
pub(super) const BEAT_INTERVAL: Duration = Duration::from_secs(1);
pub(super) const BEAT_TTL: Duration = Duration::from_secs(9);

/// Bytes of the hash in a key.
const HASH_BYTES: usize = 16;

/// The kind of a value, which is part of its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum StateKind {
    /// Row and events of a task.
    Task,
    /// The tasks that a caller holds.
    Owner,
    /// A claim: of an answer, a cancellation, a message.
    Claim,
    /// The request rate of a caller or an agent.
    Rate,
    /// A row of a table that every replica holds in memory.
    Row,
    /// A replica that is alive.
    Replica,
    /// The endpoint that holds a task or a conversation.
    Affinity,
    /// The units of a quota that each replica holds.
    Units,
}

impl StateKind {
    /// The letter in the key; never reuse one.
    pub(crate) fn letter(self) -> char {
        match self {
            Self::Task => 't',
            Self::Owner => 'o',
            Self::Claim => 'c',
            Self::Rate => 'q',
            Self::Row => 'v',
            Self::Replica => 'n',
            Self::Affinity => 'a',
            Self::Units => 'u',
        }
    }
}

/// Key of a value: its kind and the hash of its name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct StateKey {
    pub(crate) kind: StateKind,
    pub(crate) hash: Box<str>,
}

impl StateKey {
    /// Returns the key of the value with this name.
    pub(crate) fn new(kind: StateKind, name: &[u8]) -> Self {
        let digest = Sha256::digest(name);
        let hash = HEXLOWER.encode(digest.get(..HASH_BYTES).unwrap_or_default());
        Self { kind, hash: hash.into() }
    }

    /// Returns the key with this hash, as it came from an index.
    pub(crate) fn of_hash(kind: StateKind, hash: &str) -> Self {
        Self { kind, hash: hash.into() }
    }
}

/// Result of a try to get a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LeaseOutcome {
    /// The lease, with its fencing token; its first event follows `last`.
    Granted {
        /// Fencing token: larger than that of every earlier lease of the task.
        epoch: u64,
        /// Number of the last event of the task.
        last: u64,
    },
    /// Another replica holds the lease for so long, unless it renews it.
    Held(Duration),
}

/// Request for a lease.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LeaseRequest<'a> {
    /// The replica.
    pub(crate) holder: &'a str,
    /// Time after which the lease is free, unless it is renewed.
    pub(crate) lifetime: Duration,
    /// True if a lease of another replica is taken over: that replica finds its own lost.
    pub(crate) takes_over: bool,
    /// The last fencing token that this replica knows, which an engine that has lost its data does not.
    pub(crate) above: u64,
    /// Time to live of the task from now on.
    pub(crate) ttl: Duration,
}

/// Events that the holder of a lease adds.
#[derive(Debug)]
pub(crate) struct NewEvents<'a> {
    /// Position of the first of them.
    pub(crate) first: EventPosition,
    /// The events, sealed.
    pub(crate) events: &'a [Vec<u8>],
    /// Time to live of the task from now on.
    pub(crate) ttl: Duration,
}

/// State of a task at the engine.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct SharedTask {
    /// Events after the position that was asked for, with their positions.
    pub(crate) events: Vec<(EventPosition, Vec<u8>)>,
    /// Position of the newest event.
    pub(crate) last: EventPosition,
    /// Number of changes of the row.
    pub(crate) version: u64,
    /// Time until the lease is free; `None`: it is free.
    pub(crate) lease: Option<Duration>,
}

/// The row of a task, sealed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TaskRow {
    /// Position of the last event that is part of it.
    pub(crate) at: EventPosition,
    /// The row.
    pub(crate) row: Vec<u8>,
}

/// A rate: one in each interval, and `burst` at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SharedRate {
    pub(crate) interval: Duration,
    pub(crate) burst: u32,
}

/// Request for units of a quota.
#[derive(Debug, Clone, Copy)]
pub(crate) struct UnitRequest<'a> {
    /// The replica.
    pub(crate) holder: &'a str,
    /// Units that are in use: the replica gets no fewer, even beyond the limit.
    pub(crate) needed: usize,
    /// Units that the replica holds afterwards, if the others leave so many of the limit.
    pub(crate) wanted: usize,
    /// Most units of all replicas together.
    pub(crate) limit: usize,
    /// Time after which the units are free, unless they are renewed.
    pub(crate) lifetime: Duration,
}

/// Units of a quota that replicas hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct UnitsHeld {
    /// Those of the replica that has asked.
    pub(crate) own: usize,
    /// Those of all others.
    pub(crate) others: usize,
}

/// Entry of the log of rows that every replica holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LoggedRow {
    /// Position in the log.
    pub(crate) position: Box<str>,
    /// The row, sealed.
    pub(crate) row: Vec<u8>,
}

/// Reason for which an operation has no result. It may have been done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum EngineError {
    /// No answer within `state.timeout`.
    #[error("no answer in time")]
    Timeout,
    /// There is no connection.
    #[error("no connection")]
    Disconnected,
    /// The engine accepts none of the kind now, as it is full or changes its master; its own words.
    #[error("{0}")]
    Busy(String),
    /// The engine has refused it; its own words.
    #[error("{0}")]
    Refused(String),
}

/// Record of whether an engine answers. It counts as absent until it does.
#[derive(Debug, Default)]
pub(super) struct Availability {
    is_available: AtomicBool,
    failures: AtomicU64,
}

impl Availability {
    pub(super) fn is_available(&self) -> bool {
        self.is_available.load(Ordering::Acquire)
    }

    /// Returns an error while operations fail at once.
    pub(super) fn check(&self) -> Result<(), EngineError> {
        if self.is_available() { Ok(()) } else { Err(EngineError::Disconnected) }
    }

    /// Returns the number of operations that failed.
    pub(super) fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    pub(super) fn count_failure(&self) {
        self.failures.fetch_add(1, Ordering::Relaxed);
    }

    /// Records that an operation had no answer; returns true, and logs it, if those before had.
    pub(super) fn mark_absent(&self, error: &EngineError) -> bool {
        self.count_failure();
        let was_available = self.is_available.swap(false, Ordering::AcqRel);
        if was_available {
            warn!(%error, "engine of shared state does not answer; this replica works alone until it does");
        }
        was_available
    }

    /// Records an answer; returns true, and logs it, if there was none before.
    pub(super) fn mark_present(&self) -> bool {
        let was_absent = !self.is_available.swap(true, Ordering::AcqRel);
        if was_absent {
            info!("engine of shared state answers");
        }
        was_absent
    }

    /// Records the end of a connection.
    pub(super) fn disconnect(&self) {
        self.is_available.store(false, Ordering::Release);
    }
}

/// An engine. Every operation ends within `state.timeout`. A time to live is that of the row, or of all
/// rows of its key, whichever the engine has.
#[async_trait]
pub(crate) trait StateEngine: Send + Sync + 'static {
    /// Connects, and makes the connection anew when it is lost. Says each second that this replica
    /// lives. Runs until it is dropped.
    async fn keep_connected(&self);

    /// Returns true while the engine is not available yet, and will be without a change from outside: a
    /// replica is not ready until then.
    fn is_opening(&self) -> bool {
        false
    }

    /// Returns true while operations reach the engine; else they fail at once.
    fn is_available(&self) -> bool;

    /// Returns the number of operations that failed.
    fn failures(&self) -> u64;

    /// Sets a value if there is none; returns the value that there was.
    async fn set_if_absent(
        &self,
        key: &StateKey,
        value: &[u8],
        ttl: Duration,
    ) -> Result<Option<Vec<u8>>, EngineError>;

    /// Replaces a value that is `expected`, or removes it (`None`). Returns true if it was.
    async fn compare_and_set(
        &self,
        key: &StateKey,
        expected: &[u8],
        value: Option<&[u8]>,
        ttl: Duration,
    ) -> Result<bool, EngineError>;

    /// Returns a value.
    async fn get(&self, key: &StateKey) -> Result<Option<Vec<u8>>, EngineError>;

    /// Sets a value.
    async fn set(&self, key: &StateKey, value: &[u8], ttl: Duration) -> Result<(), EngineError>;

    /// Takes one of a rate; returns the wait if there is none.
    async fn take(&self, key: &StateKey, rate: SharedRate) -> Result<Option<Duration>, EngineError>;

    /// Sets the units of a quota that a replica holds.
    async fn hold_units(&self, key: &StateKey, request: UnitRequest<'_>) -> Result<UnitsHeld, EngineError>;

    /// Tries to get the lease of a task.
    async fn acquire(&self, task: &StateKey, request: LeaseRequest<'_>) -> Result<LeaseOutcome, EngineError>;

    /// Renews a lease for so long; the task lives for the second time. Returns false if it is lost.
    async fn renew(
        &self,
        task: &StateKey,
        holder: &str,
        epoch: u64,
        times: [Duration; 2],
    ) -> Result<bool, EngineError>;

    /// Gives a lease back, and wakes the watchers of the task.
    async fn release(&self, task: &StateKey, holder: &str, epoch: u64) -> Result<(), EngineError>;

    /// Adds events, and wakes the watchers of the task. Returns false, and adds nothing, if a later
    /// lease exists.
    async fn append(&self, task: &StateKey, new: NewEvents<'_>) -> Result<bool, EngineError>;

    /// Returns the state of a task, with the events after a position.
    async fn read(&self, task: &StateKey, after: EventPosition) -> Result<SharedTask, EngineError>;

    /// Sets the row of a task, unless the present one has a later position: that one is returned.
    /// Wakes the watchers of the task.
    async fn put_row(
        &self,
        task: &StateKey,
        row: &TaskRow,
        ttl: Duration,
    ) -> Result<Option<TaskRow>, EngineError>;

    /// Returns the row of a task.
    async fn row(&self, task: &StateKey) -> Result<Option<TaskRow>, EngineError>;

    /// Adds a member to an index, with a score.
    async fn index(&self, key: &StateKey, member: &str, score: u64, ttl: Duration)
    -> Result<(), EngineError>;

    /// Returns the members of an index with the highest scores, at most `most`.
    async fn indexed(&self, key: &StateKey, most: usize) -> Result<Vec<String>, EngineError>;

    /// Adds a row to the log, and wakes all replicas.
    async fn log(&self, row: &[u8]) -> Result<(), EngineError>;

    /// Returns rows of the log after a position (`None`: from its beginning), at most `most`.
    async fn logged(&self, after: Option<&str>, most: usize) -> Result<Vec<LoggedRow>, EngineError>;

    /// Wakes watchers of a task from now on, through the receiver of the engine.
    async fn watch(&self, task: &StateKey) -> Result<(), EngineError>;

    /// Does not wake watchers of a task any more.
    async fn unwatch(&self, task: &StateKey) -> Result<(), EngineError>;
}

/// A wake-up from the engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Wake {
    /// A task has changed: the hash of its key.
    Task(Box<str>),
    /// The log has a new row.
    Log,
    /// Wake-ups may have been lost: look at everything.
    All,
    /// The engine has lost its data, or may have: write again what this replica holds.
    Forgotten,
}
