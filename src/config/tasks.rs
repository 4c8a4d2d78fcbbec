//! `tasks`, `streams`, `background` and `push`.
//!
//! The environment variables that replace defaults are those of the reference implementation, so
//! that a deployment of it moves over unchanged. The file wins.

use std::path::PathBuf;
use std::time::Duration;

use super::resolve::ResolveContext;
use super::section::{KeysOf, SectionKeys, section};
use super::units::{ByteSize, HumanDuration};

section! {
    /// The memory of tasks. Sizes are in bytes.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Tasks {
        /// Time for which a task is kept after its last event or lookup.
        ttl: Duration = 24h in 1s..=366d [or("TASK_TTL_MS", "milliseconds")],
        /// Time between two sweeps for expired tasks.
        sweep_interval: Duration = 5m in 10ms..=1d [or("TASK_CLEANUP_INTERVAL_MS", "milliseconds")],
        /// Most tasks that are kept.
        max: usize = 100000 in 1..=10000000,
        /// Total size of all tasks.
        max_bytes: usize as ByteSize = 256MiB in 1KiB..=1024GiB,
        /// Size above which the artifacts of a finished task are fetched again from the agent
        /// instead of being kept.
        keep_artifacts: usize as ByteSize = 1MiB in 0..=1GiB,
        /// Poll interval that clients are told.
        poll_interval: Duration = 2s in 10ms..=1h,
        /// Folder that keeps tasks, answered questions and ended sessions through a restart, and
        /// the seal key if `seal_key` is not set. One gateway uses it at a time. Without it nothing
        /// outlives the process.
        data_dir: Option<PathBuf>
            [or("DATA_DIR", "bytes") example "/var/lib/gateway" schema { "minLength": 1 }],
    }
    check check_tasks
}

/// Checks the folder. It need not exist yet, but no other kind of file may be at its path.
fn check_tasks(tasks: Tasks, mut keys: KeysOf<Tasks>, context: &mut ResolveContext<'_>) -> Tasks {
    let Some(folder) = &tasks.data_dir else { return tasks };
    let problem = if folder.as_os_str() == context.path("").as_os_str() {
        "is no path (write the path of a folder, or remove the key)".to_owned()
    } else if folder.metadata().is_ok_and(|found| !found.is_dir()) {
        format!("{} is not a folder", folder.display())
    } else {
        return tasks;
    };
    let place = keys.data_dir.place().cloned();
    keys.report("data_dir", place, &problem, context);
    tasks
}

section! {
    /// Reconnection of agents' streams.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Streams {
        /// Silence of a followed stream after which the agent is asked for the state of the task.
        idle_timeout: Duration = 30s in 10ms..=1d [or("SSE_IDLE_TIMEOUT_MS", "milliseconds")],
        /// Wait before the first new attempt; it doubles up to `retry_max`.
        retry_base: Duration = 1s in 10ms..=1h [or("SSE_RETRY_BASE_MS", "milliseconds")],
        /// Longest wait between two attempts.
        retry_max: Duration = 30s in 10ms..=1d [or("SSE_RETRY_MAX_MS", "milliseconds")],
        /// Most attempts; 0: as many as fit into the task's `ttl`.
        max_attempts: usize = 0 in 0..=1000000 [or("SSE_MAX_ATTEMPTS", "attempts")],
        /// Time for which a task may stay unchanged after the agent has ended its stream and not
        /// the task; then its client receives a handle, and a notice.
        stalled_after: Duration = 15s in 1s..=1d,
    }
    check check_streams
}

fn check_streams(streams: Streams, mut keys: KeysOf<Streams>, context: &mut ResolveContext<'_>) -> Streams {
    if streams.retry_base > streams.retry_max {
        let [first, most] = [streams.retry_base, streams.retry_max].map(HumanDuration);
        let place = keys.retry_base.place().or(keys.retry_max.place()).cloned();
        let problem = format!("retry_base ({first}) is longer than retry_max ({most})");
        keys.report("retry_base", place, &problem, context);
    }
    streams
}

section! {
    /// Work that continues after its client has left.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Background {
        /// Exchanges with agents in the background; as many messages again (at least 64) may be in
        /// delivery to tasks that are followed.
        max: usize = 1000 in 1..=1000000,
        /// Time for which a call is followed without its client. Its task can be queried as long as
        /// the agent knows it.
        lifetime: Duration = 1h in 1s..=30d,
    }
}

section! {
    /// Push notifications of agents.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Push {
        /// True if the gateway asks agents for push notifications, and forwards those that are
        /// meant for webhooks of A2A clients. Needs `public_url`, and a listener that serves
        /// `push`.
        enabled: bool = false,
    }
}
