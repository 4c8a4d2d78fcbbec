//! The settings of tasks: memory, reconnection of streams, work without a client.

use std::path::PathBuf;
use std::time::Duration;

/// The memory of tasks. Sizes are in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tasks {
    /// Time for which a task is kept after its last event or lookup. Default: 24 h.
    pub ttl: Duration,
    /// The time between two sweeps for expired tasks. Default: 5 min.
    pub sweep_interval: Duration,
    /// Most tasks that are kept. Default: 100000.
    pub max: usize,
    /// Total size of all tasks. Default: 256 MiB.
    pub max_bytes: usize,
    /// Size above which the artifacts of a finished task are fetched again from the agent instead
    /// of being kept. Default: 1 MiB.
    pub keep_artifacts: usize,
    /// Poll interval that clients are told. Default: 2 s.
    pub poll_interval: Duration,
    /// The folder that keeps tasks, answered questions and ended sessions, and the seal key if none
    /// is set; `None`: nothing outlives the process.
    pub data_dir: Option<PathBuf>,
}

impl Default for Tasks {
    fn default() -> Self {
        Self {
            ttl: Duration::from_secs(86_400),
            sweep_interval: Duration::from_secs(300),
            max: 100_000,
            max_bytes: 256 << 20,
            keep_artifacts: 1 << 20,
            poll_interval: Duration::from_secs(2),
            data_dir: None,
        }
    }
}

/// Reconnection of agents' streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Streams {
    /// Silence of a followed stream after which the agent is asked for the state of the task.
    /// Default: 30 s.
    pub idle_timeout: Duration,
    /// The wait before the first new attempt; it doubles up to `retry_max`. Default: 1 s.
    pub retry_base: Duration,
    /// The longest wait between two attempts. Default: 30 s.
    pub retry_max: Duration,
    /// Most attempts; 0: as many as fit into the task's time. Default: 0.
    pub max_attempts: usize,
    /// Time for which a task may stay unchanged after the agent has ended its stream, before its
    /// client is notified. Default: 15 s.
    pub stalled_after: Duration,
}

impl Default for Streams {
    fn default() -> Self {
        let [idle_timeout, retry_base, retry_max, stalled_after] = [30, 1, 30, 15].map(Duration::from_secs);
        Self { idle_timeout, retry_base, retry_max, max_attempts: 0, stalled_after }
    }
}

/// Work that continues after its client has left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Background {
    /// Exchanges with agents in the background. Default: 1000.
    pub max: usize,
    /// Time for which a call is followed without its client. Default: 1 h.
    pub lifetime: Duration,
}

impl Default for Background {
    fn default() -> Self {
        Self { max: 1000, lifetime: Duration::from_secs(3600) }
    }
}

/// Push notifications of agents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Push {
    /// True if the gateway asks agents for them. Needs `public_url`. Default: false.
    pub enabled: bool,
}
