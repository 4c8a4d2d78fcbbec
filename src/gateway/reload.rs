//! Reload: another configuration for the running process, as a new generation of services.
//!
//! A generation is built completely before it is used, and used from one request to the next as a
//! whole: a request, a call or a stream keeps the generation in which it began. Tasks, sessions,
//! memory, connections, quotas in use and agents with the same settings outlive it. Keys that are
//! bound to the process (addresses, folders, threads) keep their values and are named.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use data_encoding::HEXLOWER;
use serde::{Deserialize, Serialize};
use tokio::runtime::Handle;
use tokio::sync::{Mutex, Notify, Semaphore};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};
use tracing::{error, info, warn};

use super::dispatch::Dispatcher;
use super::generation::{GenerationBase, LastingParts};
use super::sources::{AgentEditError, EditedAgents, PreparedEdit};
use super::{Gateway, GatewayError, GatewayState};
use crate::agents::{Agent, AgentUpkeep, Directory};
use crate::auth::Authenticator;
use crate::config::{
    self, AgentEdit, FoundAgent, Listener, ListenerTls, LoadedSettings, MemoryFamily, Problem, RequireRule,
    Settings,
};
use crate::tasks::Timestamp;
use crate::telemetry::label::ConfigReload;
use crate::telemetry::log;

/// Longest wait for the card of an agent after its location has changed: calls of it would fail meanwhile.
const CARD_TIMEOUT: Duration = Duration::from_secs(2);

/// Shortest time between two reloads.
const RELOAD_INTERVAL: Duration = Duration::from_millis(100);
/// Most reloads that wait for their turn.
const MAX_WAITING_RELOADS: usize = 16;

/// Outcome of a reload that was accepted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReloadReport {
    /// Number of the configuration in use.
    pub generation: u64,
    /// Sections that have changed, such as `limits`, without those of `restart`.
    pub changed: Vec<String>,
    /// Agents that are new.
    pub agents_added: Vec<String>,
    /// Agents with other settings.
    pub agents_changed: Vec<String>,
    /// Agents that are not there any more.
    pub agents_removed: Vec<String>,
    /// Keys with another value that needs a restart, such as `listeners[0].address`. They keep
    /// their present value; everything else is applied.
    pub restart: Vec<String>,
}

impl ReloadReport {
    /// Returns true if something has changed.
    #[must_use]
    pub fn is_applied(&self) -> bool {
        !self.changed.is_empty()
    }
}

/// The keys of the configuration that was loaded last, with digests of their values.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ConfigDigests {
    /// The number of the configuration in use.
    pub(crate) generation: u64,
    /// The key of the digests, in hexadecimal: another one in each process.
    pub(crate) key: String,
    /// Digests by the paths of keys, and by the names of files.
    pub(crate) digests: BTreeMap<String, String>,
    /// Keys that have changed since the start and need a restart.
    pub(crate) awaits_restart: Vec<String>,
}

/// Origin of a reload, for the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReloadCause {
    /// SIGHUP.
    Signal,
    /// A file has changed.
    File,
    /// A request to the admin listener.
    Request,
    /// A source of agents has changed.
    Source,
}

impl ReloadCause {
    fn label(self) -> &'static str {
        match self {
            Self::Signal => "signal",
            Self::File => "file",
            Self::Request => "request",
            Self::Source => "source",
        }
    }
}

/// The reason for which a reload has changed nothing.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReloadError {
    /// The configuration has these problems.
    #[error("the configuration has {} problems", .0.len())]
    Rejected(Vec<Problem>),
    /// Too many reloads wait for their turn.
    #[error("too many reloads wait for their turn")]
    Busy,
}

impl From<GatewayError> for ReloadError {
    fn from(error: GatewayError) -> Self {
        Self::Rejected(vec![Problem {
            file: None,
            line: None,
            at: String::new(),
            problem: error.to_string(),
        }])
    }
}

/// Reads the configuration of the process again, with everything that it names, and a change of the agents of the admin API.
pub(crate) type LoadSettings =
    dyn Fn(Option<&AgentEdit>) -> Result<LoadedSettings, Vec<Problem>> + Send + Sync;

/// Reloads the configuration of a process: one reload at a time, and at a bounded rate.
///
/// The agents of the process are those of its configuration, and those of other sources (see [`Reloader::set_agents`]).
pub(crate) struct Reloader {
    gateway: Gateway,
    load: Arc<LoadSettings>,
    turn: Mutex<ReloadTurn>,
    waiting: Semaphore,
    /// Notified when a configuration was applied; for one waiter.
    pub(super) applied: Notify,
}

/// The state between two reloads.
struct ReloadTurn {
    /// The configuration as it was loaded last.
    configured: Settings,
    /// The agents that the sources have named, by the name of the source.
    found: BTreeMap<String, Vec<FoundAgent>>,
    not_before: Instant,
}

impl ReloadTurn {
    /// Returns the configuration with the agents of all sources. A name belongs to the
    /// configuration, or else to the first source that has it.
    fn settings(&self) -> Settings {
        let mut settings = self.configured.clone();
        let mut names: BTreeSet<String> = settings.agents.iter().map(|agent| agent.name.clone()).collect();
        for source in &self.configured.sources {
            for found in self.found.get(&source.name).into_iter().flatten() {
                if names.insert(found.name.clone()) {
                    let agent = source.agent(found, &self.configured.agent_defaults.template);
                    settings.agents.push(agent);
                }
            }
        }
        settings.agents.sort_by(|one, other| one.name.cmp(&other.name));
        settings
    }
}

impl Reloader {
    /// Creates the reloader of a gateway that was created with the settings `configured`. `load` reads them again.
    pub(crate) fn new(gateway: Gateway, configured: Settings, load: Arc<LoadSettings>) -> Arc<Self> {
        let turn = ReloadTurn { configured, found: BTreeMap::new(), not_before: Instant::now() };
        let waiting = Semaphore::new(MAX_WAITING_RELOADS);
        Arc::new(Self { gateway, load, turn: Mutex::new(turn), waiting, applied: Notify::new() })
    }

    /// Returns the configuration as it was loaded last.
    pub(crate) async fn configured(&self) -> Settings {
        self.turn.lock().await.configured.clone()
    }

    /// Returns the files that the configuration named as it was loaded last; `None` if they are not
    /// watched.
    pub(crate) async fn watched_files(&self) -> Option<Vec<PathBuf>> {
        let turn = self.turn.lock().await;
        turn.configured.reload.watch.then(|| turn.configured.files.clone())
    }

    /// Returns the sources of agents of the configuration as it was loaded last.
    pub(super) async fn sources(&self) -> Vec<config::Source> {
        self.turn.lock().await.configured.sources.clone()
    }

    /// Returns the parts of the gateway that outlive a configuration.
    pub(super) fn lasting(&self) -> &LastingParts {
        &self.gateway.state.lasting
    }

    /// Returns the keys of the configuration as it was loaded last, with digests under this key.
    pub(crate) async fn digests(&self, key: &[u8]) -> ConfigDigests {
        let mut configured = self.configured().await;
        let digests = configured.document.digests(key);
        let used = self.gateway.current();
        ConfigDigests {
            generation: used.generation,
            key: HEXLOWER.encode(key),
            digests,
            awaits_restart: keep_bound(&used.configuration, &mut configured),
        }
    }

    /// Reads the configuration again and applies it.
    ///
    /// # Errors
    ///
    /// [`ReloadError`]; nothing has changed then.
    pub(crate) async fn reload(self: &Arc<Self>, cause: ReloadCause) -> Result<ReloadReport, ReloadError> {
        let reloader = self.clone();
        self.detached(async move {
            let mut turn = reloader.turn().await?;
            let load = reloader.load.clone();
            let loaded = tokio::task::spawn_blocking(move || load(None)).await;
            let result = match loaded.unwrap_or_else(unread) {
                Ok(loaded) => reloader.apply(&mut turn, loaded.settings).await,
                Err(problems) => Err(ReloadError::Rejected(problems)),
            };
            reloader.conclude(&mut turn, cause, result)
        })
        .await
    }

    /// Applies a configuration with the agents of all sources.
    async fn apply(&self, turn: &mut ReloadTurn, settings: Settings) -> Result<ReloadReport, ReloadError> {
        let before = std::mem::replace(&mut turn.configured, settings);
        let applied = self.gateway.reload(turn.settings()).await;
        match applied {
            Ok(_) => self.applied.notify_one(),
            Err(_) => turn.configured = before,
        }
        let ReloadTurn { configured, found, .. } = turn;
        found.retain(|name, _| configured.sources.iter().any(|source| source.name == *name));
        applied.map_err(ReloadError::from)
    }

    /// Changes the agents of the admin API: reads the configuration again with the change, applies it,
    /// and writes the file.
    ///
    /// # Errors
    ///
    /// [`AgentEditError`]; nothing has changed then, unless the file cannot be replaced although it
    /// could be written.
    pub(crate) async fn edit_agents(
        self: &Arc<Self>,
        edit: AgentEdit,
    ) -> Result<EditedAgents, AgentEditError> {
        let reloader = self.clone();
        self.detached(async move {
            let mut turn = reloader.turn().await?;
            let file = turn.configured.admin.as_ref().and_then(|admin| admin.agents_file.clone());
            let file = file.ok_or(AgentEditError::Off)?;
            let is_configured = turn.configured.agents.iter().any(|agent| agent.name == edit.name());
            let load = reloader.load.clone();
            let prepared = tokio::task::spawn_blocking(move || {
                let kept = config::agents_in(&file).map_err(ReloadError::Rejected)?;
                let is_new = !kept.contains(edit.name());
                if is_new && is_configured {
                    return Err(AgentEditError::Configured);
                }
                if is_new && matches!(edit, AgentEdit::Remove { .. }) {
                    return Err(AgentEditError::Unknown);
                }
                let LoadedSettings { settings, agents } = load(Some(&edit)).map_err(ReloadError::Rejected)?;
                let draft = agents.ok_or(AgentEditError::Off)?.write_draft()?;
                Ok(PreparedEdit { is_new, settings, draft })
            });
            let prepared = prepared.await.unwrap_or_else(|error| {
                Err(ReloadError::from(GatewayError::Reload(error.to_string())).into())
            });
            let PreparedEdit { is_new, settings, draft } = prepared?;
            let applied = reloader.apply(&mut turn, settings).await;
            let report = reloader.conclude(&mut turn, ReloadCause::Request, applied)?;
            let committed = tokio::task::spawn_blocking(move || draft.commit()).await;
            committed.unwrap_or_else(|error| Err(std::io::Error::other(error)))?;
            Ok(EditedAgents { is_new, report })
        })
        .await
    }

    /// Replaces the agents of one source beside the configuration. Their names never replace those
    /// of the configuration. An empty list removes the source.
    ///
    /// # Errors
    ///
    /// [`ReloadError`]; nothing has changed then.
    pub(crate) async fn set_agents(
        self: &Arc<Self>,
        source: &str,
        agents: Vec<FoundAgent>,
    ) -> Result<ReloadReport, ReloadError> {
        let (reloader, source) = (self.clone(), source.to_owned());
        self.detached(async move {
            let mut turn = reloader.turn().await?;
            let before = match agents.is_empty() {
                true => turn.found.remove(&source),
                false => turn.found.insert(source.clone(), agents),
            };
            let applied = reloader.gateway.reload(turn.settings()).await;
            if applied.is_err() {
                match before {
                    Some(before) => drop(turn.found.insert(source, before)),
                    None => drop(turn.found.remove(&source)),
                }
            }
            reloader.conclude(&mut turn, ReloadCause::Source, applied.map_err(ReloadError::from))
        })
        .await
    }

    /// Runs a reload to its end, although its caller may stop waiting.
    async fn detached<T: Send + 'static, E: From<ReloadError> + Send + 'static>(
        &self,
        reload: impl Future<Output = Result<T, E>> + Send + 'static,
    ) -> Result<T, E> {
        let _waiting = self.waiting.try_acquire().map_err(|_| ReloadError::Busy)?;
        let ended = tokio::spawn(reload).await;
        ended.unwrap_or_else(|error| Err(ReloadError::from(GatewayError::Reload(error.to_string())).into()))
    }

    /// Waits for the turn of a reload.
    async fn turn(&self) -> Result<tokio::sync::MutexGuard<'_, ReloadTurn>, ReloadError> {
        let turn = self.turn.lock().await;
        sleep_until(turn.not_before).await;
        Ok(turn)
    }

    /// Counts and logs the outcome of a reload.
    fn conclude(
        &self,
        turn: &mut ReloadTurn,
        cause: ReloadCause,
        result: Result<ReloadReport, ReloadError>,
    ) -> Result<ReloadReport, ReloadError> {
        turn.not_before = Instant::now() + RELOAD_INTERVAL;
        let (metrics, cause) = (&self.gateway.state.lasting.metrics.config, cause.label());
        match &result {
            Ok(report) => {
                let is_applied = report.is_applied();
                let outcome = if is_applied { ConfigReload::Applied } else { ConfigReload::Unchanged };
                metrics.record_reload(outcome);
                metrics.set_last_success(Timestamp::now().unix_ms);
                if report.changed.iter().any(|section| section == "log") {
                    set_log_level(&turn.configured.log.level);
                }
                let generation = report.generation;
                let [changed, added, changed_agents, removed, restart] = [
                    &report.changed,
                    &report.agents_added,
                    &report.agents_changed,
                    &report.agents_removed,
                    &report.restart,
                ]
                .map(|names| names.join(" "));
                match is_applied {
                    true => info!(
                        cause,
                        generation,
                        changed,
                        agents_added = added,
                        agents_changed = changed_agents,
                        agents_removed = removed,
                        restart,
                        "configuration reloaded"
                    ),
                    false => info!(cause, generation, restart, "configuration is unchanged"),
                }
                if !report.restart.is_empty() {
                    warn!(
                        cause,
                        restart, "configuration has changes that need a restart: all others are applied"
                    );
                }
            }
            Err(ReloadError::Rejected(problems)) => {
                metrics.record_reload(ConfigReload::Rejected);
                for problem in problems {
                    let Problem { file, line, at, problem } = problem;
                    let file = file.as_deref().map(|file| tracing::field::display(file.display()));
                    error!(cause, file, line, at, error = problem, "problem of configuration");
                }
                error!(cause, problems = problems.len(), "configuration rejected, nothing has changed");
            }
            Err(ReloadError::Busy) => {}
        }
        result
    }
}

/// Returns the problem of a reading that did not end.
fn unread(error: tokio::task::JoinError) -> Result<LoadedSettings, Vec<Problem>> {
    let problem = format!("cannot read the configuration: {error}");
    Err(vec![Problem { file: None, line: None, at: String::new(), problem }])
}

fn set_log_level(level: &str) {
    if let Err(error) = log::set_filter(Some(level)) {
        warn!(%error, "failed to set level of log");
    }
}

impl Gateway {
    /// Applies other settings to the running gateway. Requests that have begun end with the settings
    /// before; none is interrupted. Reloads run one after the other. Call it on a Tokio runtime, also
    /// without the [`BackgroundService`](super::BackgroundService).
    ///
    /// Keys that need a restart keep their value: the report names them.
    ///
    /// # Errors
    ///
    /// [`GatewayError`] names the setting that is not usable; nothing has changed then.
    pub async fn reload(&self, settings: Settings) -> Result<ReloadReport, GatewayError> {
        let state = self.state.clone();
        // A task of its own: a caller that stops waiting must not leave half of it.
        let applied = tokio::spawn(async move { state.reload(settings).await });
        applied.await.unwrap_or_else(|error| Err(GatewayError::Reload(error.to_string())))
    }

    /// Starts the loops of the agents and of the services on the present runtime.
    pub(super) async fn start_loops(&self) {
        let mut loops = self.state.loops.lock().await;
        loops.runtime = Some(Handle::current());
        let dispatcher = self.current();
        loops.start_agents(&dispatcher.discovery.directory);
        loops.start_services(&dispatcher);
    }

    /// Ends the loops.
    pub(super) async fn end_loops(&self) {
        *self.state.loops.lock().await = GenerationLoops::default();
    }
}

impl GatewayState {
    async fn reload(&self, mut settings: Settings) -> Result<ReloadReport, GatewayError> {
        let mut loops = self.loops.lock().await;
        let before = self.current.load_full();
        let restart = keep_bound(&before.configuration, &mut settings);
        let metrics = &self.lasting.metrics;
        let changed = changed_sections(&before.configuration, &settings);
        if changed.is_empty() {
            let report = ReloadReport { generation: before.generation, restart, ..ReloadReport::default() };
            return Ok(report);
        }
        let old = before.discovery.directory.clone();
        let made = self.generation(&settings, &before);
        let (base, dispatcher) = made.inspect_err(|_| {
            // Their metrics exist since the attempt.
            let unknown = settings.agents.iter().filter(|agent| old.find(&agent.name).is_none());
            unknown.for_each(|agent| metrics.forget_agent(&agent.name));
            old.agents().iter().for_each(|agent| agent.show_endpoints());
        })?;
        // Nothing fails from here on.
        let change = AgentChange::between(&old, &base.directory);
        self.pass_agents(&mut loops, &change, &base.directory).await;
        dispatcher.discovery.catalogue.rebuild();
        let report = ReloadReport {
            generation: dispatcher.generation,
            changed,
            agents_added: change.added,
            agents_changed: change.replaced.iter().map(|(_, new)| new.settings.name.clone()).collect(),
            agents_removed: change.removed.iter().map(|agent| agent.settings.name.clone()).collect(),
            restart,
        };
        self.lasting.renew(&settings, &base);
        let dispatcher = Arc::new(dispatcher);
        self.current.store(dispatcher.clone());
        // Streams of the generation before move on when they see this.
        self.lasting.present.store(dispatcher.generation, Ordering::Release);
        if let Some(batches) = &dispatcher.mcp_server.batches {
            batches.take_over();
        }
        self.lasting.succession.set_batches(dispatcher.mcp_server.batches.as_ref());
        change.removed.iter().for_each(|agent| base.directory.upkeep().retire(agent));
        loops.start_services(&dispatcher);
        dispatcher.discovery.catalogue.notify_changed();
        metrics.config.set_generation(dispatcher.generation);
        Ok(report)
    }

    /// Creates the services for other settings. Changes nothing that is in use.
    fn generation(
        &self,
        settings: &Settings,
        before: &Dispatcher,
    ) -> Result<(GenerationBase, Dispatcher), GatewayError> {
        let (discovery, metrics) = (&before.discovery, &self.lasting.metrics);
        let base = GenerationBase {
            directory: Arc::new(discovery.directory.renewed(settings, metrics)?),
            limits: Arc::new(discovery.limits.renewed(&settings.limits, &settings.agents, metrics)),
        };
        let dispatcher = Dispatcher::of_generation(settings, &self.lasting, &base, Some(before))?;
        Ok((base, dispatcher))
    }

    /// Passes the state of agents to their successors, and starts and ends their loops.
    async fn pass_agents(&self, loops: &mut GenerationLoops, change: &AgentChange, directory: &Directory) {
        let upkeep = directory.upkeep();
        let ending = change.removed.iter().chain(change.replaced.iter().map(|(old, _)| old));
        loops.end_agents(ending.map(|agent| agent.settings.name.as_str())).await;
        let mut awaited = Vec::new();
        for (old, new) in &change.replaced {
            if !upkeep.succeed(new, old) && old.known().is_some() {
                awaited.push(new);
            }
        }
        let mut fetched = directory.changes();
        loops.start_agents(directory);
        let all = async {
            while awaited.iter().any(|agent| !agent.is_initialized()) && fetched.changed().await.is_ok() {}
        };
        if loops.runtime.is_some() && timeout(CARD_TIMEOUT, all).await.is_err() {
            info!("timed out waiting for agent cards at their new location");
        }
    }
}

/// The difference between two sets of agents.
struct AgentChange {
    added: Vec<String>,
    removed: Vec<Arc<Agent>>,
    /// Agents with other settings: before, and after.
    replaced: Vec<(Arc<Agent>, Arc<Agent>)>,
}

impl AgentChange {
    fn between(before: &Directory, after: &Directory) -> Self {
        let mut change = Self { added: Vec::new(), removed: Vec::new(), replaced: Vec::new() };
        for new in after.agents() {
            match before.find(&new.settings.name) {
                None => change.added.push(new.settings.name.clone()),
                Some(old) if Arc::ptr_eq(old, new) => {}
                Some(old) => change.replaced.push((old.clone(), new.clone())),
            }
        }
        let gone = before.agents().iter().filter(|old| after.find(&old.settings.name).is_none());
        change.removed.extend(gone.cloned());
        change
    }
}

/// The loops of the present generation. Those of an agent continue while its settings stay the same.
#[derive(Default)]
pub(super) struct GenerationLoops {
    /// `None` until the background service runs.
    runtime: Option<Handle>,
    agents: HashMap<String, JoinSet<()>>,
    catalogue: JoinSet<()>,
    issuers: JoinSet<()>,
    /// The authenticator of which the issuers are asked.
    authenticator: Option<Authenticator>,
}

impl GenerationLoops {
    /// Starts the loops of the agents that have none.
    fn start_agents(&mut self, directory: &Directory) {
        let Some(runtime) = &self.runtime else { return };
        for agent in directory.agents() {
            let known = self.agents.entry(agent.settings.name.clone()).or_default();
            if known.is_empty() {
                start_agent(known, runtime, directory.upkeep(), agent);
            }
        }
    }

    /// Ends the loops of these agents, and waits until none of them runs.
    async fn end_agents(&mut self, names: impl Iterator<Item = &str>) {
        for name in names {
            if let Some(mut work) = self.agents.remove(name) {
                work.shutdown().await;
            }
        }
    }

    /// Starts the loops of the services of a generation in place of those before.
    fn start_services(&mut self, dispatcher: &Dispatcher) {
        let Some(runtime) = &self.runtime else { return };
        let catalogue = dispatcher.discovery.catalogue.clone();
        self.catalogue.abort_all();
        self.catalogue = JoinSet::new();
        self.catalogue.spawn_on(async move { catalogue.run().await }, runtime);
        let authenticator = dispatcher.authenticator.authenticator();
        if !self.authenticator.as_ref().is_some_and(|known| known.has_issuers_of(authenticator)) {
            self.issuers = JoinSet::new();
            self.issuers.spawn_on(authenticator.keep_fresh(), runtime);
            self.authenticator = Some(authenticator.clone());
        }
    }
}

/// Starts the loops of an agent: its card, its credentials and its health checks.
fn start_agent(work: &mut JoinSet<()>, runtime: &Handle, upkeep: &Arc<AgentUpkeep>, agent: &Arc<Agent>) {
    for at in 0..agent.endpoint_count() {
        let (upkeep, agent) = (upkeep.clone(), agent.clone());
        work.spawn_on(async move { upkeep.run_health_checks(&agent, at).await }, runtime);
    }
    let (refreshed, of) = (upkeep.clone(), agent.clone());
    work.spawn_on(async move { refreshed.run_refresh(&of).await }, runtime);
    let (kept, of) = (upkeep.clone(), agent.clone());
    work.spawn_on(async move { kept.keep_credentials(&of).await }, runtime);
}

/// A key that is bound to the process, by its path: takes the value of the settings in use, and
/// returns true if the other one differs.
struct BoundKey {
    path: &'static str,
    keep: fn(&Settings, &mut Settings) -> bool,
}

/// Declares keys that need a restart, by their path in the configuration and in the settings.
macro_rules! bound_keys {
    ($($path:literal: $($field:ident).+;)*) => {
        &[$(BoundKey { path: $path, keep: |used, new| keep(&used.$($field).+, &mut new.$($field).+) }),*]
    };
}

/// The keys that need a restart, besides those of listeners. The sockets are bound to the first
/// ones; the maps of tasks, sessions and memory are made with the others.
const BOUND_KEYS: &[BoundKey] = bound_keys! {
    "admin": admin;
    "health": health;
    "threads": threads;
    "shutdown": shutdown;
    "upgrade": upgrade;
    "seal_key": seal_keys;
    "state": state;
    "tracing": tracing;
    "log.format": log.format;
    "limits.connections": limits.connections;
    "limits.address_connections": limits.address_connections;
    "limits.header": limits.header;
    "limits.header_read": limits.header_read;
    "limits.keep_alive": limits.keep_alive;
    "limits.write_stall": limits.write_stall;
    "outbound.proxy": outbound.proxy;
    "tasks.data_dir": tasks.data_dir;
    "tasks.ttl": tasks.ttl;
    "tasks.max": tasks.max;
    "tasks.max_bytes": tasks.max_bytes;
    "tasks.keep_artifacts": tasks.keep_artifacts;
    "sessions": sessions;
    "background.max": background.max;
};

/// Returns true if a change of this key needs a restart, by its path as in the file. A change that has
/// no effect counts as well.
pub(crate) fn needs_restart(path: &str) -> bool {
    let is_below = |key: &str| {
        path.strip_prefix(key).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
    };
    let of_listener = path.strip_prefix("listeners[").and_then(|rest| rest.split_once("]."));
    let is_of_listener = of_listener.is_some_and(|(_, key)| {
        key.starts_with("address") || key.starts_with("tls") || key.starts_with("proxy_protocol")
    });
    let is_of_memory = is_below("resources.memory")
        && !is_below("resources.memory.policy")
        && !is_below("resources.memory.task_results");
    is_of_listener || is_of_memory || BOUND_KEYS.iter().any(|key| is_below(key.path))
}

fn keep<T: PartialEq + Clone>(used: &T, new: &mut T) -> bool {
    let is_other = used != new;
    if is_other {
        new.clone_from(used);
    }
    is_other
}

/// Gives the settings the present values of all keys that need a restart. Returns those of which
/// the value differs.
fn keep_bound(used: &Settings, new: &mut Settings) -> Vec<String> {
    let bound = BOUND_KEYS.iter().filter(|key| (key.keep)(used, new));
    let mut kept: Vec<String> = bound.map(|key| key.path.to_owned()).collect();
    kept.extend(keep_listeners(&used.listeners, &mut new.listeners));
    kept.extend(keep_memory(used.resources.memory.as_ref(), &mut new.resources.memory));
    kept
}

/// Gives the settings the present listeners, with the services and the authentication that the new
/// ones at the same address have.
fn keep_listeners(used: &[Listener], new: &mut Vec<Listener>) -> Vec<String> {
    let mut named = Vec::new();
    let mut offered: Vec<Option<Listener>> = std::mem::take(new).into_iter().map(Some).collect();
    for listener in used {
        let at =
            offered.iter().position(|new| new.as_ref().is_some_and(|new| new.address == listener.address));
        let same = at.and_then(|at| Some((at, offered.get_mut(at)?.take()?)));
        let Some((at, same)) = same else {
            named.push(format!("listeners ({} is removed)", listener.address));
            new.push(listener.clone());
            continue;
        };
        let has_same_tls = has_same_tls(listener.tls.as_ref(), same.tls.as_ref());
        if !has_same_tls {
            named.push(format!("listeners[{at}].tls"));
        }
        // Without the TLS that it relies on, `none` would admit everybody until the restart.
        let keeps_require = !has_same_tls && same.require.rule == RequireRule::None;
        if keeps_require && listener.require != same.require {
            named.push(format!("listeners[{at}].require"));
        }
        let require = if keeps_require { listener.require.clone() } else { same.require.clone() };
        // The proxies of the PROXY protocol are those from which connections are accepted.
        let keeps_proxies = listener.proxies.proxy_protocol || same.proxies.proxy_protocol;
        if listener.proxies.proxy_protocol != same.proxies.proxy_protocol {
            named.push(format!("listeners[{at}].proxy_protocol"));
        } else if keeps_proxies && listener.proxies != same.proxies {
            named.push(format!("listeners[{at}].trusted_proxies"));
        }
        let proxies = if keeps_proxies { listener.proxies.clone() } else { same.proxies.clone() };
        new.push(Listener { tls: listener.tls.clone(), proxies, require, ..same });
    }
    let more = offered.iter().enumerate().filter(|(_, new)| new.is_some());
    named.extend(more.map(|(at, _)| format!("listeners[{at}].address")));
    named
}

/// Returns true if the settings of TLS are the same. Files with other content are read again by
/// themselves.
fn has_same_tls(used: Option<&ListenerTls>, new: Option<&ListenerTls>) -> bool {
    match (used, new) {
        (Some(used), Some(new)) => used.has_same_files(new),
        (None, None) => true,
        _ => false,
    }
}

/// Gives the settings the present bounds of the memory bank. Its filters and rates may change.
fn keep_memory(used: Option<&MemoryFamily>, new: &mut Option<MemoryFamily>) -> Option<String> {
    let kept = used.map(|used| {
        let (policy, task_results) = match new.as_ref() {
            Some(new) => (new.policy.clone(), new.task_results),
            None => (used.policy.clone(), used.task_results),
        };
        MemoryFamily { policy, task_results, ..used.clone() }
    });
    let is_other = kept != *new;
    *new = kept;
    is_other.then(|| "resources.memory".to_owned())
}

/// Returns the sections with other values.
fn changed_sections(used: &Settings, new: &Settings) -> Vec<String> {
    macro_rules! sections {
        ($($section:ident),*) => {{
            // A section that is added must be compared here.
            let Settings { $($section: _,)* files: _, warnings: _, document: _ } = used;
            [$((stringify!($section), used.$section != new.$section)),*]
        }};
    }
    let sections = sections!(
        public_url,
        listeners,
        admin,
        seal_keys,
        auth,
        rules,
        agents,
        agent_defaults,
        sources,
        outbound,
        mcp,
        resources,
        prompts,
        calls,
        cards,
        sessions,
        limits,
        tasks,
        streams,
        background,
        push,
        threads,
        state,
        log,
        tracing,
        shutdown,
        upgrade,
        reload,
        ready,
        health
    );
    sections.into_iter().filter(|(_, is_other)| *is_other).map(|(name, _)| name.to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bound_keys_need_restart() {
        for BoundKey { path, .. } in BOUND_KEYS {
            assert!(needs_restart(path) && needs_restart(&format!("{path}.x")), "{path}");
            assert!(!needs_restart(&format!("{path}x")), "{path}");
        }
        for (path, is_bound) in [
            ("listeners[0].address", true),
            ("listeners[12].tls.key", true),
            ("listeners[0].proxy_protocol", true),
            ("listeners[0].serve[1]", false),
            ("seal_key[0]", true),
            ("resources.memory.max_keys", true),
            ("resources.memory.policy.rate", false),
            ("resources.memory.task_results", false),
            ("agents.listeners[0].address", false),
            ("log.level", false),
        ] {
            assert_eq!(needs_restart(path), is_bound, "{path}");
        }
    }
}
