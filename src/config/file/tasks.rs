//! `tasks`, `streams`, `background` and `push` as in the file, and the seven environment variables
//! that override defaults of some of their keys.
//!
//! The names are those of the reference implementation, so that a deployment of it moves over
//! unchanged. The file wins.

use std::path::PathBuf;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;

use crate::config::env_override::EnvOverride;
use crate::config::resolve::ResolveContext;
use crate::config::spanned::Spanned;
use crate::config::units::{ByteSize, HumanDuration};
use crate::config::{Background, Push, Streams, Tasks};

const KIB: usize = 1 << 10;
const GIB: usize = 1 << 30;
const MOMENT: Duration = Duration::from_millis(10);
const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(86_400);

const TTL: EnvOverride = EnvOverride { key: "tasks.ttl", variable: "TASK_TTL_MS" };
const SWEEP: EnvOverride = EnvOverride { key: "tasks.sweep_interval", variable: "TASK_CLEANUP_INTERVAL_MS" };
const DATA_DIR: EnvOverride = EnvOverride { key: "tasks.data_dir", variable: "DATA_DIR" };
const IDLE_TIMEOUT: EnvOverride =
    EnvOverride { key: "streams.idle_timeout", variable: "SSE_IDLE_TIMEOUT_MS" };
const RETRY_BASE: EnvOverride = EnvOverride { key: "streams.retry_base", variable: "SSE_RETRY_BASE_MS" };
const RETRY_MAX: EnvOverride = EnvOverride { key: "streams.retry_max", variable: "SSE_RETRY_MAX_MS" };
const MAX_ATTEMPTS: EnvOverride = EnvOverride { key: "streams.max_attempts", variable: "SSE_MAX_ATTEMPTS" };

/// Tasks that the gateway keeps.
#[derive(Deserialize, JsonSchema, Default)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "Tasks")]
pub(super) struct TasksFile {
    /// How long a task is remembered after it was last heard of or asked for. Without it: the environment variable
    /// TASK_TTL_MS.
    #[schemars(extend("default" = "24h"))]
    ttl: Spanned<HumanDuration>,
    /// The time between two looks for tasks whose time is over. Without it: the environment variable
    /// TASK_CLEANUP_INTERVAL_MS.
    #[schemars(extend("default" = "5m"))]
    sweep_interval: Spanned<HumanDuration>,
    /// How many tasks are remembered.
    #[schemars(range(min = 1, max = 10_000_000), extend("default" = 100_000))]
    max: Spanned<u64>,
    /// Bytes of all kept tasks together.
    #[schemars(extend("default" = "256MiB"))]
    max_bytes: Spanned<ByteSize>,
    /// Bytes of the artifacts of a finished task; above it they are read again from the agent.
    #[schemars(extend("default" = "1MiB"))]
    keep_artifacts: Spanned<ByteSize>,
    /// How often clients are told to ask for a task.
    #[schemars(extend("default" = "2s"))]
    poll_interval: Spanned<HumanDuration>,
    /// The folder that keeps tasks, turns and ended sessions through a restart, and the seal key if `seal_key` is not set.
    /// One gateway uses it at a time. Without it: the environment variable DATA_DIR; without that nothing is kept.
    #[schemars(length(min = 1))]
    data_dir: Spanned<String>,
}

impl TasksFile {
    pub(super) fn resolve(self, reading: &mut ResolveContext<'_>) -> Tasks {
        let default = Tasks::default();
        Tasks {
            ttl: reading.wait_or(self.ttl, TTL, SECOND..=366 * DAY, default.ttl),
            sweep_interval: reading.wait_or(self.sweep_interval, SWEEP, MOMENT..=DAY, default.sweep_interval),
            max: reading.count(self.max, 1..=10_000_000, default.max),
            max_bytes: reading.size(self.max_bytes, KIB..=1024 * GIB, default.max_bytes),
            keep_artifacts: reading.size(self.keep_artifacts, 0..=GIB, default.keep_artifacts),
            poll_interval: reading.wait(self.poll_interval, MOMENT..=HOUR, default.poll_interval),
            data_dir: data_dir(self.data_dir, reading),
        }
    }
}

/// Checks the folder. It need not exist yet, but no other kind of file may be at its path.
fn data_dir(written: Spanned<String>, reading: &mut ResolveContext<'_>) -> Option<PathBuf> {
    let place = written.place().cloned();
    let text = match &place {
        Some(_) => written.value()?,
        None => reading.stand_in(DATA_DIR)?,
    };
    let path = reading.path(&text);
    if text.is_empty() {
        reading.report_override(
            place,
            DATA_DIR,
            "is no path (write the path of a folder, or remove the key)",
        );
    } else if path.metadata().is_ok_and(|found| !found.is_dir()) {
        reading.report_override(place, DATA_DIR, &format!("{} is not a folder", path.display()));
    }
    Some(path)
}

/// How agents' streams are kept up.
#[derive(Deserialize, JsonSchema, Default)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "Streams")]
pub(super) struct StreamsFile {
    /// How long a followed stream may be silent before the agent is asked how the task is. Without it: the environment
    /// variable SSE_IDLE_TIMEOUT_MS.
    #[schemars(extend("default" = "30s"))]
    idle_timeout: Spanned<HumanDuration>,
    /// The wait before the first new attempt; it doubles up to `retry_max`. Without it: the environment variable
    /// SSE_RETRY_BASE_MS.
    #[schemars(extend("default" = "1s"))]
    retry_base: Spanned<HumanDuration>,
    /// The longest wait between two attempts. Without it: the environment variable SSE_RETRY_MAX_MS.
    #[schemars(extend("default" = "30s"))]
    retry_max: Spanned<HumanDuration>,
    /// How many attempts there are; 0: as many as fit into the task's time. Without it: the environment variable
    /// SSE_MAX_ATTEMPTS.
    #[schemars(range(max = 1_000_000), extend("default" = 0))]
    max_attempts: Spanned<u64>,
    /// How long a task may stay as it is after the agent has ended its stream without ending the task; then its client gets a
    /// handle, and is told.
    #[schemars(extend("default" = "15s"))]
    stalled_after: Spanned<HumanDuration>,
}

impl StreamsFile {
    pub(super) fn resolve(self, reading: &mut ResolveContext<'_>) -> Streams {
        let default = Streams::default();
        let place = self.retry_base.place().or(self.retry_max.place()).cloned();
        let streams = Streams {
            idle_timeout: reading.wait_or(
                self.idle_timeout,
                IDLE_TIMEOUT,
                MOMENT..=DAY,
                default.idle_timeout,
            ),
            retry_base: reading.wait_or(self.retry_base, RETRY_BASE, MOMENT..=HOUR, default.retry_base),
            retry_max: reading.wait_or(self.retry_max, RETRY_MAX, MOMENT..=DAY, default.retry_max),
            max_attempts: reading.count_or(
                self.max_attempts,
                MAX_ATTEMPTS,
                0..=1_000_000,
                default.max_attempts,
            ),
            stalled_after: reading.wait(self.stalled_after, SECOND..=DAY, default.stalled_after),
        };
        if streams.retry_base > streams.retry_max {
            let [first, most] = [streams.retry_base, streams.retry_max].map(HumanDuration);
            let problem = format!("retry_base ({first}) is longer than retry_max ({most})");
            reading.report_override(place, RETRY_BASE, &problem);
        }
        streams
    }
}

/// Work that goes on after its client has left.
#[derive(Deserialize, JsonSchema, Default)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "Background")]
pub(super) struct BackgroundFile {
    /// Exchanges with agents in the background.
    #[schemars(range(min = 1, max = 1_000_000), extend("default" = 1000))]
    max: Spanned<u64>,
    /// How long a call is followed without its client. Its task can be asked for as long as the agent knows it.
    #[schemars(extend("default" = "1h"))]
    lifetime: Spanned<HumanDuration>,
}

impl BackgroundFile {
    pub(super) fn resolve(self, reading: &mut ResolveContext<'_>) -> Background {
        let default = Background::default();
        Background {
            max: reading.count(self.max, 1..=1_000_000, default.max),
            lifetime: reading.wait(self.lifetime, SECOND..=30 * DAY, default.lifetime),
        }
    }
}

/// Push notifications of agents.
#[derive(Deserialize, JsonSchema, Default)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "Push")]
pub(super) struct PushFile {
    /// Whether the gateway asks agents for push notifications, and passes on what is meant for webhooks of A2A clients. Needs
    /// `public_url`, and a listener with the service `push`.
    #[schemars(extend("default" = false))]
    enabled: Spanned<bool>,
}

impl PushFile {
    /// Checks the conditions for agents to reach the gateway, besides `enabled`: a URL, and a
    /// listener that serves `push`.
    pub(super) fn resolve(self, has_url: bool, has_door: bool, reading: &mut ResolveContext<'_>) -> Push {
        let Some((place, true)) = self.enabled.take() else { return Push::default() };
        if !has_url {
            reading.problem(&place, "agents could not reach the gateway (set public_url)");
        }
        if !has_door {
            reading.problem(&place, "no listener takes them in (add push to `serve` of a listener)");
        }
        Push { enabled: true }
    }
}
