//! `calls`: the duration of calls, and clients with known limits; `tasks`, `streams`, `background`
//! and `push`: the tasks behind them.
//!
//! The environment variables that replace defaults are those of the reference implementation, so
//! that a deployment of it moves over unchanged. The file wins. See also
//! `sessions::client_limits`, which selects the entry of a client.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use super::forms::{ByteSize, HumanDuration, choice};
use super::resolve::ResolveContext;
use super::section::{KeysOf, SectionKeys, section};
use super::yaml::{OneOrMany, Spanned};

/// Most entries of an operator, and most patterns of one entry: each request is compared with them.
const MAX_CLIENTS: usize = 100;
const MAX_PATTERNS: usize = 16;
/// Longest name of an entry, and longest pattern.
const MAX_NAME_BYTES: usize = 64;
const MAX_PATTERN_BYTES: usize = 128;

section! {
    /// Duration of calls.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Calls {
        /// Longest wait of a call before the client receives a handle instead of the result. Many
        /// clients give up after 60 s.
        budget: Duration = 45s in 1s..=1h,
        /// Time after which a response without any content becomes an event stream; at most
        /// `budget`.
        stream_after: Duration = 10s in 0s..=1h,
        /// Longest silence on an event stream; many proxies give up after 60 s.
        keep_alive: Duration = 15s in 1s..=1m,
        /// Time after which a client that supports tasks receives one instead of the result; never
        /// later than `budget`.
        task_after: Duration = 2s in 0s..=1h,
        /// Duration of one round of a call: a client that calls again by itself with `requestState`
        /// waits this long in each round. Many clients give up after 60 s.
        round_timeout: Duration = 40s in 100ms..=1h,
        /// Most rounds of a call; then the client receives a handle. Many clients make at most 10
        /// rounds; 0: a handle at once.
        max_rounds: usize = 7 in 0..=9,
        /// Time for which a client between two rounds still counts as a watcher of its task.
        round_grace: Duration = 60s in 100ms..=1h,
        /// Time for which the open stream of a client that receives progress is kept: for the
        /// `budget`, or `forever`, until the result is available.
        stream_timeout: StreamTimeout = budget,
        /// Treatment of a task after the user declined its question: `keep` (the question can still
        /// be answered) or `cancel`.
        on_decline: OnDecline = keep,
        /// Time for which a task continues at its agent after a client of a session cancelled the
        /// call that started it. The next call of the same tool in that session names the task,
        /// which then stays. `0s`: the task is cancelled at once.
        cancel_grace: Duration = 10s in 0s..=1h,
    }
    keys {
        /// Clients with known limits, by the name of the entry. These entries take precedence over
        /// the built-in ones (agno, haystack, llama-index, openai-agents); an entry under such a
        /// name replaces it, and an empty one, `agno: {}`, removes it.
        clients: BTreeMap<String, Spanned<KnownClientKeys>>,
    }
    fields {
        /// Clients with known limits, in the order in which they are compared. Default:
        /// [`KnownClient::shipped`].
        clients: Vec<KnownClient> = KnownClient::shipped(),
    }
    check check_calls
}

fn check_calls(calls: Calls, keys: KeysOf<Calls>, context: &mut ResolveContext<'_>) -> Calls {
    let late = keys.stream_after.place().or(keys.budget.place());
    if let Some(place) = late.filter(|_| calls.stream_after > calls.budget) {
        let [after, budget] = [calls.stream_after, calls.budget].map(HumanDuration);
        context.problem(place, format!("stream_after ({after}) is longer than budget ({budget})"));
    }
    Calls { clients: known_clients(keys.clients, calls.budget, context), ..calls }
}

/// Time for which the open stream of a client that receives progress is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamTimeout {
    /// For the budget; then it gets a handle.
    Budget,
    /// Until the result is available.
    Forever,
}

choice! {
    /// Time for which the open stream of a client that receives progress is kept.
    StreamTimeout as "StreamTimeout" { "budget" => Self::Budget, "forever" => Self::Forever, }
}

/// Treatment of a task after the user declined its question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnDecline {
    /// It stays, and its question can still be answered.
    Keep,
    /// It is cancelled at the agent.
    Cancel,
}

choice! {
    /// Treatment of a task after the user declined its question.
    OnDecline as "OnDecline" { "keep" => Self::Keep, "cancel" => Self::Cancel, }
}

/// A client that is recognized by its name, and its limits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownClient {
    /// The name of the entry.
    pub name: String,
    /// Patterns of `clientInfo.name`, in which `*` is any text.
    pub client_names: Vec<String>,
    /// Patterns of `User-Agent`, in which `*` is any text.
    pub user_agents: Vec<String>,
    /// Longest time that the client waits for a response.
    pub budget: Option<Duration>,
    /// True if the client makes further rounds of a call by itself. Default: true if it declares
    /// elicitation.
    pub rounds: Option<bool>,
}

impl KnownClient {
    /// Returns the clients that the gateway knows by itself: those with a measured limit. They wait
    /// for their limit less a margin.
    pub fn shipped() -> Vec<Self> {
        let seconds = [("agno", 8), ("haystack", 25), ("llama-index", 25), ("openai-agents", 4)];
        let known = seconds.into_iter().map(|(name, seconds)| {
            let begins_so = vec![format!("{name}*")];
            Self {
                name: name.to_owned(),
                client_names: begins_so.clone(),
                user_agents: begins_so,
                budget: Some(Duration::from_secs(seconds)),
                rounds: Some(false),
            }
        });
        known.collect()
    }
}

section! {
    /// A client that is recognized by its name, and its limits.
    keys KnownClientKeys("KnownClient") {
        /// The client's `clientInfo.name`: a pattern, in which `*` is any text, or a list of them.
        /// Case does not matter. Without this and `user_agent`: the patterns of the built-in entry,
        /// or exactly the name of the entry.
        client_name: OneOrMany<Spanned<String>> [example "our-host*"],
        /// The client's `User-Agent`, in the same form. It counts if no entry matches the client's
        /// name.
        user_agent: OneOrMany<Spanned<String>> [example ["*OurHost/*"]],
        /// Longest time that the client waits for a response: its own limit, less a margin. At most
        /// `calls.budget`.
        budget: HumanDuration => Option<Duration> = none in 100ms..=1h [example 20s],
        /// True (`on`) if the client makes further rounds of a call by itself, with the
        /// `requestState` of a result; `off` if not. Without it: on if it declares elicitation.
        rounds: OnOff [example "off"],
    }
}

/// A boolean in the words `on` and `off`.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum OnOff {
    On,
    Off,
}

choice! {
    /// Further rounds of a call.
    OnOff as "ClientRounds" { "on" => Self::On, "off" => Self::Off, }
}

/// Returns the entries as written, then those of the gateway that they do not replace.
fn known_clients(
    written: Spanned<BTreeMap<String, Spanned<KnownClientKeys>>>,
    budget: Duration,
    context: &mut ResolveContext<'_>,
) -> Vec<KnownClient> {
    let shipped = KnownClient::shipped();
    let Some((place, written)) = written.take() else { return shipped };
    if written.len() > MAX_CLIENTS {
        context.problem(&place, format!("has more than {MAX_CLIENTS} entries (use patterns with *)"));
    }
    let (mut own, mut replaced) = (Vec::new(), Vec::new());
    for (name, keys) in written {
        let shipped = shipped.iter().find(|client| client.name == name);
        if let Some(keys) = keys.open() {
            let entry = ClientEntry { name: &name, shipped, budget };
            own.extend(entry.resolve(keys, context));
        }
        replaced.push(name);
    }
    own.extend(shipped.into_iter().filter(|client| !replaced.contains(&client.name)));
    own
}

/// An entry that is being read.
struct ClientEntry<'a> {
    name: &'a str,
    /// The entry of the gateway that it replaces.
    shipped: Option<&'a KnownClient>,
    /// `calls.budget`.
    budget: Duration,
}

impl ClientEntry<'_> {
    /// Returns the client, unless the entry only removes one that the gateway ships.
    fn resolve(&self, mut keys: KnownClientKeys, context: &mut ResolveContext<'_>) -> Option<KnownClient> {
        if self.name.is_empty() || self.name.len() > MAX_NAME_BYTES {
            context.problem(&keys.section, format!("is not a name (1 to {MAX_NAME_BYTES} bytes)"));
        }
        let has_limit = keys.budget.place().is_some() || keys.rounds.place().is_some();
        let has_pattern = keys.client_name.place().is_some() || keys.user_agent.place().is_some();
        if !has_limit {
            if self.shipped.is_none() || has_pattern {
                context.problem(&keys.section, "gives no limit (write budget: 4s, or rounds: off)");
            }
            return None;
        }
        let budget = keys.budget(context);
        if let Some((place, budget)) = keys.budget.place().zip(budget.filter(|budget| *budget > self.budget))
        {
            let [budget, most] = [budget, self.budget].map(HumanDuration);
            context.problem(place, format!("{budget} is longer than calls.budget ({most}); raise that"));
        }
        let (mut client_names, mut user_agents) =
            (patterns(keys.client_name, context), patterns(keys.user_agent, context));
        if !has_pattern {
            client_names =
                self.shipped.map_or_else(|| vec![self.name.to_owned()], |it| it.client_names.clone());
            user_agents = self.shipped.map_or_else(Vec::new, |it| it.user_agents.clone());
        }
        let rounds = keys.rounds.value().map(|rounds| rounds == OnOff::On);
        Some(KnownClient { name: self.name.to_owned(), client_names, user_agents, budget, rounds })
    }
}

fn patterns(written: Spanned<OneOrMany<Spanned<String>>>, context: &mut ResolveContext<'_>) -> Vec<String> {
    let Some((place, OneOrMany(written))) = written.take() else { return Vec::new() };
    if written.is_empty() || written.len() > MAX_PATTERNS {
        context.problem(&place, format!("needs 1 to {MAX_PATTERNS} patterns"));
    }
    let mut patterns = Vec::new();
    for (place, pattern) in written.into_iter().filter_map(Spanned::take) {
        if pattern.is_empty() || pattern.len() > MAX_PATTERN_BYTES {
            context.problem(&place, format!("is not a pattern (1 to {MAX_PATTERN_BYTES} bytes)"));
        } else if pattern.bytes().all(|byte| byte == b'*') {
            context.problem(&place, "fits every client (set calls.budget instead)");
        }
        patterns.push(pattern);
    }
    patterns
}

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
        /// Time after the last use of a finished task from which it is kept compressed, until it is
        /// used again. The sweep for expired tasks does it.
        compress_after: Duration = 1m in 10ms..=366d,
        /// Poll interval that clients get with a task.
        poll_interval: Duration = 2s in 10ms..=1h,
        /// Folder that keeps tasks, answered questions and ended sessions through a restart, and
        /// the seal key if `seal_key` is not set. One gateway uses it at a time. Without it nothing
        /// outlives the process.
        data_dir: Option<PathBuf>
            [or("DATA_DIR", "bytes") example "/var/lib/gateway" schema { "minLength": 1 }],
    }
    check check_tasks
}

/// Name of the file of tasks in the folder.
pub(crate) const TASKS_FILE: &str = "tasks.redb";

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
