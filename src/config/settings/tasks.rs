//! The settings of tasks: what is remembered, how streams are kept up, what goes on without a client.

use std::path::PathBuf;
use std::time::Duration;

/// What the gateway remembers of tasks. Sizes are in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tasks {
    /// How long a task is remembered after it was last heard of or asked for. Default: 24 h.
    pub ttl: Duration,
    /// The time between two looks for tasks whose time is over. Default: 5 min.
    pub sweep_interval: Duration,
    /// How many tasks are remembered. Default: 100000.
    pub max: usize,
    /// What all remembered tasks may hold together. Default: 256 MiB.
    pub max_bytes: usize,
    /// What the artifacts of a finished task may hold; above it they are read again from the agent. Default: 1 MiB.
    pub keep_artifacts: usize,
    /// How often clients are told to ask for a task. Default: 2 s.
    pub poll_interval: Duration,
    /// The folder that keeps tasks, turns and ended sessions, and the seal key if none is set; `None`: nothing outlives
    /// the process.
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

/// How agents' streams are kept up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Streams {
    /// How long a followed stream may be silent before the agent is asked how the task is. Default: 30 s.
    pub idle_timeout: Duration,
    /// The wait before the first new attempt; it doubles up to `retry_max`. Default: 1 s.
    pub retry_base: Duration,
    /// The longest wait between two attempts. Default: 30 s.
    pub retry_max: Duration,
    /// How many attempts there are; 0: as many as fit into the task's time. Default: 0.
    pub max_attempts: usize,
    /// How long a task may stay as it is after the agent has ended its stream, before its client is told. Default: 15 s.
    pub stalled_after: Duration,
}

impl Default for Streams {
    fn default() -> Self {
        let [idle_timeout, retry_base, retry_max, stalled_after] = [30, 1, 30, 15].map(Duration::from_secs);
        Self { idle_timeout, retry_base, retry_max, max_attempts: 0, stalled_after }
    }
}

/// Work that goes on after its client has left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Followers {
    /// Exchanges with agents in the background. Default: 1000.
    pub max: usize,
    /// How long a call is followed without its client. Default: 1 h.
    pub lifetime: Duration,
}

impl Default for Followers {
    fn default() -> Self {
        Self { max: 1000, lifetime: Duration::from_secs(3600) }
    }
}

/// Push notifications of agents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Push {
    /// Whether the gateway asks agents for them. Needs `public_url`. Default: no.
    pub enabled: bool,
}
