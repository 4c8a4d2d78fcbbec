//! The gateway: composes the services, and passes requests to them.
//!
//! [`Gateway`] answers requests from within a proxy's `request_filter`; [`BackgroundService`] runs
//! the work between requests. Both drain on shutdown. Out of scope: listeners and certificates (see
//! `server`), the services themselves.

mod background;
mod dispatch;
mod report;
mod succession;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use pingora::proxy::Session;

use crate::a2a_server::{A2aDependencies, A2aServer};
use crate::access::{Authorizer, OAuthMetadata, RequestAuthenticator};
use crate::agents::{CallLimits, CardFetchError, Directory};
use crate::auth::{AuthProblem, Authenticator, Caller, FailureLimiter, Rules};
use crate::batch::{BatchLimits, BatchResources, BatchService};
use crate::calls::{
    CallEngine, CallSettings, CancelledCalls, InFlightCalls, LiveCalls, ServerIdentity, TaskLookup,
    TaskSettings,
};
use crate::config::{Admin, FamilyPolicy, Require, Sessions, Settings};
use crate::discovery::{Discovery, LiveCatalogue};
use crate::fault::{ClientGone, Fault};
use crate::follow::{FollowLimits, TaskFollower};
use crate::http_edge::{
    AccessRecord, BodyReader, DrainState, LocalConnection, ResponseSink, check_certificate, give_up,
    has_unambiguous_length, header_fits, parse,
};
use crate::limits::Limits;
use crate::mcp_server::{McpServer, McpSettings};
use crate::memory::{MemoryBank, MemoryLimits};
use crate::push_receiver::{PushReceiver, register_pushes};
use crate::resources::{
    A2aResources, AgentTypes, HttpResources, MemoryResources, ProviderRegistration, ResourceRegistry,
    SparcResources, StaticResources, TaskResultRecorder, builtin_tools,
};
use crate::seal::Sealer;
use crate::sessions::{ClientLimitTable, Predecessor, SessionStore};
use crate::tasks::store::{Store, StoreProblem};
use crate::tasks::{TaskJournal, TaskLimits, Tasks, Timestamp};
use crate::telemetry::label;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::recent::MetricsHistory;
use crate::transport::{ClientLimits, FileDescriptorBudget, HttpClient};

use dispatch::{Dispatcher, EdgeSettings, RequestGuard};
use succession::{Succession, SuccessionSettings};

pub use crate::discovery::tools_of;
pub use background::BackgroundService;
pub(crate) use report::{AgentSummary, AwaitedAgent, OverviewReport, ReadyReport, WaitedAgent};

/// Outcome of a request that was passed to the gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Handled {
    /// The gateway has answered the request, or its client has disconnected.
    Served,
    /// The request is not for the gateway; no byte has been read or written.
    NotHandled,
}

/// Reason for which a gateway cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum GatewayError {
    /// A setting of an agent is not usable.
    #[error("{0}")]
    Agent(#[from] CardFetchError),
    /// A setting of the authentication is not usable.
    #[error("{0}")]
    Auth(#[from] AuthProblem),
    /// A setting of an endpoint of resources is not usable.
    #[error("{0}")]
    Resource(String),
    /// The metrics cannot be set up.
    #[error("metrics: {0}")]
    Metrics(#[from] prometheus::Error),
    /// The sealer has no key.
    #[error("seal_key: {0}")]
    Seal(#[from] crate::seal::NoKey),
    /// The key in the data directory is not usable.
    #[error("tasks.data_dir: {0}")]
    Key(#[from] crate::tasks::data_dir::KeyFileError),
    /// The content of the data directory is not usable.
    #[error("tasks.data_dir: {0}")]
    Store(#[from] StoreProblem),
}

/// Gateway between MCP clients and A2A agents, for any Pingora proxy. Clones share all state.
#[derive(Clone)]
pub struct Gateway {
    dispatcher: Arc<Dispatcher>,
    succession: Arc<Succession>,
}

/// The parts that several services share.
struct SharedParts {
    directory: Arc<Directory>,
    catalogue: Arc<LiveCatalogue>,
    metadata: Arc<OAuthMetadata>,
    authorizer: Arc<Authorizer>,
    limits: Arc<Limits>,
    body: Arc<BodyReader>,
    drain: Arc<DrainState>,
    sealer: Sealer,
    http_client: HttpClient,
    metrics: Arc<Metrics>,
}

impl SharedParts {
    fn new(settings: &Settings) -> Result<Self, GatewayError> {
        let metrics = Metrics::new()?;
        let descriptors = FileDescriptorBudget::of_process().for_agents();
        let http_client = HttpClient::new(ClientLimits { descriptors, ..ClientLimits::default() });
        let sealer = sealer(settings)?;
        let directory = Arc::new(Directory::new(settings, http_client.clone(), &metrics)?);
        let rules = Rules::new(settings.rules.clone());
        let metadata = Arc::new(OAuthMetadata::new(settings, &rules));
        let limits = Arc::new(Limits::new(&settings.limits, &settings.agents, &metrics));
        let authorizer = Authorizer::new(rules, directory.clone(), metadata.clone(), &settings.log);
        let body = BodyReader::new(settings.limits.body, settings.limits.body_read, limits.clone());
        Ok(Self {
            catalogue: Arc::new(LiveCatalogue::new(
                directory.clone(),
                &settings.mcp,
                builtin_tools(&settings.resources),
            )),
            authorizer: Arc::new(authorizer),
            body: Arc::new(body),
            drain: Arc::new(DrainState::new(settings.shutdown)),
            directory,
            metadata,
            limits,
            sealer,
            http_client,
            metrics,
        })
    }

    fn authenticator(&self, settings: &Settings) -> Result<RequestAuthenticator, GatewayError> {
        let authenticator = Authenticator::new(
            &settings.auth,
            settings.public_url.as_deref(),
            self.http_client.clone(),
            &Arc::new(settings.outbound.allow.clone()),
        )?;
        let failures = FailureLimiter::new(settings.limits.auth_failures);
        Ok(RequestAuthenticator::new(authenticator, failures, self.metadata.clone()))
    }

    fn task_lookup(&self, settings: &Settings) -> TaskLookup {
        let tasks = Tasks::new(TaskLimits {
            most: settings.tasks.max,
            bytes: settings.tasks.max_bytes,
            ttl: settings.tasks.ttl,
            artifact_bytes: settings.tasks.keep_artifacts,
        });
        let journal = Arc::new(TaskJournal::new(settings.tasks.keep_artifacts));
        let followers = TaskFollower::new(
            FollowLimits {
                most: settings.background.max,
                lifetime: settings.background.lifetime,
                call: call_limits(settings),
            },
            tasks.clone(),
            journal.clone(),
            self.http_client.clone(),
            self.limits.answer_room(None),
            self.metrics.clone(),
        );
        let followers = register_pushes(followers, settings, &self.sealer);
        TaskLookup {
            directory: self.directory.clone(),
            authorizer: self.authorizer.clone(),
            limits: self.limits.clone(),
            tasks,
            followers: Arc::new(followers),
            journal,
            sealer: self.sealer.clone(),
            settings: TaskSettings {
                artifact_bytes: settings.limits.artifacts,
                ttl: settings.tasks.ttl,
                poll_interval: settings.tasks.poll_interval,
                subagent_tools: settings.mcp.subagent_tools,
                resource_links: settings.mcp.resource_links,
                phases: settings.resources.sparc.as_ref().map(|sparc| sparc.phases.clone()),
                records_results: settings.resources.memory.as_ref().is_some_and(|memory| memory.task_results),
            },
        }
    }

    fn call_engine(
        &self,
        settings: &Settings,
        lookup: Arc<TaskLookup>,
        sessions: Arc<SessionStore>,
        identity: Arc<ServerIdentity>,
    ) -> CallEngine {
        CallEngine {
            authorizer: self.authorizer.clone(),
            catalogue: self.catalogue.clone(),
            limits: self.limits.clone(),
            sessions,
            http_client: self.http_client.clone(),
            sealer: self.sealer.clone(),
            cancelled_calls: CancelledCalls::new(&lookup.followers, settings.calls.cancel_grace),
            running: InFlightCalls::default(),
            live: LiveCalls::new(has_page(settings)),
            drain: self.drain.clone(),
            metrics: self.metrics.clone(),
            settings: CallSettings {
                calls: settings.calls.clone(),
                exchange: call_limits(settings),
                artifact_bytes: settings.limits.artifacts,
                identity,
            },
            lookup,
        }
    }

    fn discovery(&self, settings: &Settings, authenticator: &RequestAuthenticator) -> Discovery {
        Discovery {
            directory: self.directory.clone(),
            catalogue: self.catalogue.clone(),
            authorizer: self.authorizer.clone(),
            limits: self.limits.clone(),
            metadata: self.metadata.clone(),
            sealer: self.sealer.clone(),
            key_header: authenticator.key_header().cloned(),
            page_size: settings.mcp.page_size,
        }
    }

    fn sessions(
        &self,
        settings: &Settings,
        journal: &Arc<TaskJournal>,
        predecessor: &Arc<Predecessor>,
    ) -> SessionStore {
        let (sealer, journal, predecessor) = (self.sealer.clone(), journal.clone(), predecessor.clone());
        let Sessions { ttl, max_cached } = settings.sessions;
        SessionStore::new(ttl.as_secs(), max_cached, sealer, journal, predecessor)
    }

    fn resources(
        &self,
        settings: &Settings,
        lookup: &Arc<TaskLookup>,
        discovery: &Arc<Discovery>,
        memory: Option<&Arc<MemoryBank>>,
        batches: Option<&Arc<BatchService>>,
    ) -> Result<ResourceRegistry, GatewayError> {
        let a2a = A2aResources {
            lookup: lookup.clone(),
            discovery: discovery.clone(),
            started: Timestamp::now(),
            agent_types: AgentTypes::new(&settings.resources),
            files: settings.resources.files.clone(),
            http_client: self.http_client.clone(),
        };
        let mut families = vec![ProviderRegistration::new(Arc::new(a2a), &settings.resources.a2a)];
        if let Some(sparc) = &settings.resources.sparc {
            let provider = SparcResources::new(lookup.clone(), discovery.clone(), &settings.resources);
            families.push(ProviderRegistration::new(Arc::new(provider), &sparc.policy));
        }
        if let (Some(family), Some(bank)) = (&settings.resources.memory, memory) {
            let (sealer, authorizer) = (self.sealer.clone(), self.authorizer.clone());
            let memory = MemoryResources { bank: bank.clone(), sealer, authorizer };
            families.push(ProviderRegistration::new(Arc::new(memory), &family.policy));
        }
        if let (Some(family), Some(service)) = (&settings.resources.batchtools, batches) {
            let (service, authorizer) = (service.clone(), self.authorizer.clone());
            let batches = BatchResources { service, authorizer, started: Timestamp::now() };
            families.push(ProviderRegistration::new(Arc::new(batches), &family.policy));
        }
        let endpoints = HttpResources::by_family(
            &settings.resources.http,
            &self.http_client,
            &self.limits,
            &self.authorizer,
        )
        .map_err(GatewayError::Resource)?;
        for provider in endpoints {
            let provider = Arc::new(provider);
            families.push(ProviderRegistration::new(provider, &settings.resources.http_policy));
        }
        // The last: another family wins over a template of the operator.
        let own = StaticResources::new(settings.resources.r#static.clone(), self.authorizer.clone());
        families.push(ProviderRegistration::new(Arc::new(own), &FamilyPolicy::default()));
        Ok(ResourceRegistry::new(families, self.authorizer.clone(), &settings.mcp.server_name))
    }

    fn a2a_server(&self, settings: &Settings, discovery: Arc<Discovery>) -> A2aServer {
        let parts = A2aDependencies {
            authorizer: self.authorizer.clone(),
            limits: self.limits.clone(),
            directory: self.directory.clone(),
            discovery,
            http_client: self.http_client.clone(),
            sealer: self.sealer.clone(),
            body: self.body.clone(),
            drain: self.drain.clone(),
            metrics: self.metrics.clone(),
        };
        A2aServer::new(settings, parts)
    }

    fn push_receiver(&self, settings: &Settings, lookup: &TaskLookup) -> PushReceiver {
        PushReceiver {
            sealer: self.sealer.clone(),
            directory: self.directory.clone(),
            tasks: lookup.tasks.clone(),
            followers: lookup.followers.clone(),
            metrics: self.metrics.clone(),
            body: self.body.clone(),
            is_enabled: settings.push.enabled,
        }
    }
}

/// Returns true if operators have a page, for which the recent past is kept.
fn has_page(settings: &Settings) -> bool {
    settings.admin.as_ref().is_some_and(Admin::has_authentication)
}

/// Creates the memory bank, if it is configured.
fn memory_bank(settings: &Settings, journal: &Arc<TaskJournal>) -> Option<Arc<MemoryBank>> {
    let family = settings.resources.memory.as_ref()?;
    let limits = MemoryLimits {
        value_bytes: family.value_bytes,
        caller_keys: family.caller_keys,
        caller_bytes: family.caller_bytes,
        keys: family.max_keys,
        bytes: family.max_bytes,
        max_ttl_seconds: family.ttl.map(|ttl| ttl.as_secs()),
    };
    Some(Arc::new(MemoryBank::new(limits, journal.clone())))
}

/// Creates the recorder of finished tasks, if it is configured.
fn task_recorder(
    settings: &Settings,
    lookup: &Arc<TaskLookup>,
    memory: Option<&Arc<MemoryBank>>,
) -> Option<TaskResultRecorder> {
    settings.resources.memory.as_ref().filter(|memory| memory.task_results)?;
    let (lookup, bank) = (lookup.clone(), memory?.clone());
    let (agent_types, redact) = (AgentTypes::new(&settings.resources), settings.resources.a2a.redact.clone());
    Some(TaskResultRecorder { lookup, bank, agent_types, redact })
}

/// Creates the service of batches, if it is configured.
fn batch_service(settings: &Settings, engine: &Arc<CallEngine>) -> Option<Arc<BatchService>> {
    let family = settings.resources.batchtools.as_ref()?;
    let limits = BatchLimits {
        max_concurrency: family.max_concurrency,
        max_calls: family.max_calls,
        queue_size: family.queue_size,
        caller_batches: family.caller_batches,
        caller_bytes: family.caller_bytes,
        max_bytes: family.max_bytes,
        call_timeout: family.call_timeout,
        keep: family.keep,
        process_bytes: settings.limits.bytes,
    };
    Some(Arc::new(BatchService::new(engine.clone(), limits)))
}

impl Gateway {
    /// Creates a gateway and its background service. Nothing is started: the host adds the service
    /// to its server (see [`BackgroundService`]) and passes requests to [`Gateway::handle`].
    ///
    /// # Errors
    ///
    /// [`GatewayError`] names the setting that is not usable.
    pub fn new(settings: Settings) -> Result<(Self, BackgroundService), GatewayError> {
        let store = settings.tasks.data_dir.as_deref().map(Store::open).transpose()?;
        Self::with(&settings, store)
    }

    /// Creates the gateway of a process that takes over from one that still runs. The data
    /// directory is taken over when the other process ends.
    ///
    /// # Errors
    ///
    /// As [`Gateway::new`].
    pub fn with_store_handover(settings: Settings) -> Result<(Self, BackgroundService), GatewayError> {
        Self::with(&settings, None)
    }

    fn with(settings: &Settings, store: Option<Store>) -> Result<(Self, BackgroundService), GatewayError> {
        let parts = SharedParts::new(settings)?;
        let authenticator = Arc::new(parts.authenticator(settings)?);
        let discovery = Arc::new(parts.discovery(settings, &authenticator));
        let lookup = Arc::new(parts.task_lookup(settings));
        let identity = Arc::new(ServerIdentity::new(settings));
        let predecessor = Arc::new(Predecessor::none());
        let sessions = Arc::new(parts.sessions(settings, &lookup.journal, &predecessor));
        let engine =
            Arc::new(parts.call_engine(settings, lookup.clone(), sessions.clone(), identity.clone()));
        let memory = memory_bank(settings, &lookup.journal);
        let batches = batch_service(settings, &engine);
        let resources = parts.resources(settings, &lookup, &discovery, memory.as_ref(), batches.as_ref())?;
        let recorder = task_recorder(settings, &lookup, memory.as_ref());
        let mcp_server = McpServer {
            engine: engine.clone(),
            resources: Arc::new(resources),
            batches,
            discovery: discovery.clone(),
            limits: parts.limits.clone(),
            sessions: sessions.clone(),
            clients: ClientLimitTable::new(&settings.calls.clients),
            body: parts.body.clone(),
            drain: parts.drain.clone(),
            metrics: parts.metrics.clone(),
            no_agent: parts.metrics.no_agent(),
            settings: McpSettings::new(settings, identity),
        };
        let succession = Arc::new(Succession::new(
            lookup.clone(),
            sessions,
            memory,
            predecessor,
            parts.drain.clone(),
            SuccessionSettings::new(settings),
        ));
        if let Some(store) = store {
            succession.adopt_store(store);
        }
        let dispatcher = Arc::new(Dispatcher {
            settings: EdgeSettings::new(settings),
            authenticator,
            body: parts.body.clone(),
            a2a_server: parts.a2a_server(settings, discovery.clone()),
            push_receiver: parts.push_receiver(settings, &lookup),
            discovery,
            mcp_server,
            drain: parts.drain.clone(),
            metrics: parts.metrics.clone(),
            no_agent: parts.metrics.no_agent(),
            open_requests: AtomicUsize::new(0),
            has_been_ready: AtomicBool::new(false),
            history: has_page(settings).then(MetricsHistory::default),
        });
        let gateway = Self { dispatcher, succession };
        let background = BackgroundService::new(
            gateway.clone(),
            parts.http_client,
            recorder,
            settings.tasks.sweep_interval,
        );
        Ok((gateway, background))
    }

    /// Answers a request, if its path belongs to the gateway. Call it from a proxy's
    /// `request_filter`, before the body is read.
    ///
    /// Accepts any mechanism of authentication in the settings; see [`Gateway::handle_with`].
    pub async fn handle(&self, http: &mut Session) -> Handled {
        self.handle_with(http, &self.dispatcher.settings.require).await
    }

    /// Answers a request like [`Gateway::handle`], with other requirements for authentication.
    pub async fn handle_with(&self, http: &mut Session, require: &Require) -> Handled {
        let path = http.req_header().uri.path().to_owned();
        let Some(route) = parse(&path) else { return Handled::NotHandled };
        let dispatcher = &*self.dispatcher;
        let edge = &dispatcher.settings;
        let mut record = AccessRecord::new(Caller::anonymous());
        let _counted = RequestGuard::enter(&dispatcher.open_requests);
        let is_reused = has_unambiguous_length(http) && !dispatcher.drain.has_begun();
        http.set_keepalive(is_reused.then_some(edge.keep_alive.as_secs()));
        http.set_write_timeout(Some(edge.write_stall));
        let checked = check_certificate(http).and_then(|()| header_fits(http, edge.header_bytes));
        let served = match checked {
            Ok(()) => dispatcher.handle(http, &mut record, route, require).await,
            // Boxed, as in `dispatch`: rare cases must not make every request larger.
            Err(fault) => Box::pin(dispatcher.reject_without_reading_body(http, &mut record, fault)).await,
        };
        if let Err(ClientGone) = served {
            if record.fault.is_none() {
                record.outcome = label::Outcome::ClientGone;
            }
            give_up(http).await;
        }
        record.finish(http, &dispatcher.no_agent);
        Handled::Served
    }

    /// Answers a message of the program that started this process. Its caller is `local`, which
    /// presents no credentials.
    pub(crate) async fn handle_local(&self, http: &mut LocalConnection) {
        self.handle_in_process(http, AccessRecord::new(Caller::local()), None).await;
    }

    /// Answers a message of the page of operators, whose caller presents credentials of its own.
    pub(crate) async fn handle_relayed(&self, http: &mut LocalConnection, require: &Require) {
        let record = AccessRecord::new(Caller::anonymous());
        self.handle_in_process(http, record, Some(require)).await;
    }

    async fn handle_in_process(
        &self,
        http: &mut LocalConnection,
        mut record: AccessRecord,
        require: Option<&Require>,
    ) {
        let dispatcher = &*self.dispatcher;
        let _counted = RequestGuard::enter(&dispatcher.open_requests);
        if let Err(ClientGone) = dispatcher.handle_local(http, &mut record, require).await
            && record.fault.is_none()
        {
            record.outcome = label::Outcome::ClientGone;
        }
        record.finish_with(http.head(), &dispatcher.no_agent, || http.facts());
    }

    /// Records the rejection of a message before it became a request.
    pub(crate) fn record_rejection(&self, rejection: &Fault) {
        let mut record = AccessRecord::new(Caller::local());
        record.record_rejection(rejection, &self.dispatcher.metrics);
    }

    /// Answers a request that has no route, for a host that serves only the gateway.
    pub async fn not_found(&self, http: &mut Session) {
        let mut record = AccessRecord::new(Caller::anonymous());
        let rejected =
            self.dispatcher.reject_without_reading_body(http, &mut record, Fault::NoSuchPath).await;
        if let Err(ClientGone) = rejected {
            record.outcome = label::Outcome::ClientGone;
        }
        record.finish(http, &self.dispatcher.no_agent);
    }

    /// Returns the metrics in the text format of Prometheus, version 0.0.4.
    pub fn render_metrics(&self) -> Vec<u8> {
        self.metrics().render()
    }

    /// Returns the metrics, with the present number of tasks.
    pub(crate) fn metrics(&self) -> &Arc<Metrics> {
        let metrics = &self.dispatcher.metrics;
        self.succession.count_tasks(metrics);
        metrics.holds(self.dispatcher.discovery.limits.bytes().used());
        metrics
    }

    /// Returns true if every agent's card has been fetched or tried once, or `ready.timeout` is over,
    /// so that the list of tools is as complete as possible; false while the process ends.
    pub fn is_ready(&self) -> bool {
        self.unready_reason().is_none()
    }

    /// Returns the reason for which the gateway is not ready, if it is not. Once ready it stays so
    /// until the drain.
    fn unready_reason(&self) -> Option<&'static str> {
        let Discovery { directory, catalogue, .. } = &*self.dispatcher.discovery;
        // A request that came before another process took over is answered as by that process.
        let drain = &self.dispatcher.drain;
        if drain.has_begun() && !drain.hands_over() {
            return Some("draining");
        }
        let edge = &self.dispatcher.settings;
        if self.has_been_ready() || edge.started.instant.elapsed() >= edge.ready_timeout {
            self.dispatcher.has_been_ready.store(true, Ordering::Release);
            return None;
        }
        if !directory.agents().iter().all(|agent| agent.is_initialized()) {
            return Some("agents");
        }
        if !catalogue.is_current() {
            return Some("tools");
        }
        self.dispatcher.has_been_ready.store(true, Ordering::Release);
        None
    }

    /// Returns true if the gateway was ready at least once.
    pub(crate) fn has_been_ready(&self) -> bool {
        self.dispatcher.has_been_ready.load(Ordering::Acquire)
    }

    /// Returns the configuration keys of functions that fail at present, although requests are
    /// answered.
    #[must_use]
    pub fn degraded(&self) -> Vec<&'static str> {
        if self.succession.is_store_failing() { vec!["tasks.data_dir"] } else { Vec::new() }
    }

    /// Returns the number of running requests and followed calls, and of tasks that are still to be
    /// cancelled.
    pub fn running(&self) -> usize {
        let engine = &self.dispatcher.mcp_server.engine;
        let background = engine.lookup.followers.running() + engine.cancelled_calls.count();
        self.requests() + background
    }

    /// Returns the number of requests without a response yet.
    pub fn requests(&self) -> usize {
        self.dispatcher.open_requests.load(Ordering::Acquire)
    }

    /// Writes all pending changes to `tasks.data_dir`, and accepts none afterwards. Call it before
    /// the process ends.
    pub fn keep_all(&self) {
        self.succession.close_store();
    }

    /// Begins the shutdown: endless streams end, connections are not kept, and every call gets a
    /// response before `shutdown.grace` and `shutdown.drain` are over.
    pub fn close(&self) {
        self.close_after(Duration::ZERO);
    }

    /// Begins the shutdown like [`Gateway::close`], for a process that lives this much longer than
    /// `shutdown` says.
    pub fn close_after(&self, more: Duration) {
        self.dispatcher.drain.begin(more);
    }

    /// Returns the health as JSON, as in the response of `/healthz`.
    pub fn health(&self) -> String {
        self.dispatcher.health()
    }

    /// Returns the state of each agent as JSON, for operators.
    pub fn agents(&self) -> String {
        self.dispatcher.discovery.agent_states()
    }
}

/// Returns the sealer with the key of the configuration, else of the data directory, else a random
/// one.
fn sealer(settings: &Settings) -> Result<Sealer, GatewayError> {
    if !settings.seal_keys.is_empty() {
        return Ok(Sealer::new(settings.seal_keys.iter().map(|key| key.expose().as_bytes()))?);
    }
    if let Some(dir) = &settings.tasks.data_dir {
        let key = crate::tasks::data_dir::seal_key(dir)?;
        return Ok(Sealer::new([key.expose().as_bytes()])?);
    }
    tracing::warn!(
        "no seal_key: sessions and task handles end with this process and work on no other replica; set seal_key, or \
         tasks.data_dir, where one is kept"
    );
    let random: [u8; 32] = rand::random();
    Ok(Sealer::new([random.as_slice()])?)
}

fn call_limits(settings: &Settings) -> CallLimits {
    let streams = &settings.streams;
    CallLimits {
        event: settings.limits.event,
        silence: streams.idle_timeout,
        retry_base: streams.retry_base,
        stalled: streams.stalled_after,
        retry_max: streams.retry_max,
        max_attempts: u32::try_from(streams.max_attempts).unwrap_or(u32::MAX),
    }
}
