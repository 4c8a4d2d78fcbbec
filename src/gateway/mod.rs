//! The gateway: composes the services, and passes requests to them.
//!
//! [`Gateway`] answers requests from within a proxy's `request_filter`; [`BackgroundService`] runs
//! the work between requests. Both drain on shutdown. Out of scope: listeners and certificates (see
//! `server`), the services themselves.

mod background;
mod dispatch;
mod generation;
mod reload;
mod report;
mod sources;
mod succession;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use arc_swap::ArcSwap;
use pingora::proxy::Session;
use tokio::time::Instant;
use tracing::warn;

use crate::agents::{CardFetchError, Directory};
use crate::auth::{AuthProblem, Caller};
use crate::config::{Require, RequireRule, Settings};
use crate::discovery::Discovery;
use crate::fault::{ClientGone, Fault};
use crate::http_edge::{
    AccessRecord, ClientConnection, HttpConnection, ListenerEdge, LocalConnection, ResponseSink, Route,
    check_certificate, give_up, header_fits, is_grpc as is_grpc_request, is_served, parse,
};
use crate::limits::Limits;
use crate::mcp_server::MovedStream;
use crate::tasks::store::{Store, StoreProblem};
use crate::tasks::{SharedRows as _, Timestamp};
use crate::telemetry::metrics::Metrics;
use crate::telemetry::trace::{RequestScope, new_request_id};
use crate::transport::{ClientLimits, FileDescriptorBudget, HttpClient};

use dispatch::{Dispatcher, RequestGuard, ResumedRequest};
use generation::{GenerationBase, LastingParts, shared_state};
use reload::GenerationLoops;
use succession::Succession;

pub use crate::discovery::tools_of;
pub use background::BackgroundService;
pub use reload::ReloadReport;
pub(crate) use reload::{ConfigDigests, LoadSettings, ReloadCause, ReloadError, Reloader, needs_restart};
pub(crate) use report::{AgentSummary, AwaitedAgent, OverviewReport, ReadyReport, WaitedAgent};
pub(crate) use sources::{AgentEditError, EditedAgents, SourcePoller};

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
    /// The export of traces cannot be set up.
    #[error("tracing: {0}")]
    Tracing(String),
    /// The metrics cannot be set up.
    #[error("metrics: {0}")]
    Metrics(#[from] prometheus::Error),
    /// The sealer has no key.
    #[error("seal_key: {0}")]
    Seal(#[from] crate::seal::NoKey),
    /// The key in the data directory is not usable.
    #[error("tasks.data_dir: {0}")]
    Key(#[from] crate::tasks::data_dir::KeyFileError),
    /// The engine of shared state is not usable.
    #[error("state: {0}")]
    State(String),
    /// The content of the data directory is not usable.
    #[error("tasks.data_dir: {0}")]
    Store(#[from] StoreProblem),
    /// A reload has ended without a result.
    #[error("reload ended: {0}")]
    Reload(String),
}

/// Gateway between MCP clients and A2A agents, for any Pingora proxy. Clones share all state.
///
/// The services of one configuration are a *generation*: [`Gateway::reload`] replaces it as a whole,
/// and a request uses that in which it began to its end.
#[derive(Clone)]
pub struct Gateway {
    state: Arc<GatewayState>,
}

/// The present generation, and the parts that outlive it.
struct GatewayState {
    current: ArcSwap<Dispatcher>,
    lasting: LastingParts,
    /// Held by the one reload that runs.
    loops: tokio::sync::Mutex<GenerationLoops>,
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
        let metrics = Metrics::new()?;
        let http_client = http_client(settings);
        let shared = shared_state(settings)?;
        let limits = Limits::new(&settings.limits, &settings.agents, &metrics);
        let directory = Directory::new(settings, http_client.clone(), &metrics)?;
        if let Some(shared) = &shared {
            directory.share_endpoints(shared.clone());
        }
        let base = GenerationBase {
            directory: Arc::new(directory),
            limits: Arc::new(limits.shared_by(shared.clone())),
        };
        let lasting = LastingParts::new(settings, metrics, http_client, &base, shared)?;
        let dispatcher = Dispatcher::of_generation(settings, &lasting, &base, None)?;
        lasting.renew(settings, &base);
        lasting.succession.set_batches(dispatcher.mcp_server.batches.as_ref());
        if let Some(store) = store {
            lasting.succession.adopt_store(store);
        }
        let state =
            GatewayState { current: ArcSwap::from_pointee(dispatcher), lasting, loops: Default::default() };
        state.lasting.metrics.config.set_generation(1);
        state.lasting.metrics.config.set_last_success(Timestamp::now().unix_ms);
        let gateway = Self { state: Arc::new(state) };
        let background = BackgroundService::new(gateway.clone());
        Ok((gateway, background))
    }

    /// Returns the present generation.
    fn current(&self) -> Arc<Dispatcher> {
        self.state.current.load_full()
    }

    fn succession(&self) -> &Arc<Succession> {
        &self.state.lasting.succession
    }

    /// Answers a request, if its path belongs to the gateway. Call it from a proxy's
    /// `request_filter`, before the body is read.
    ///
    /// Accepts any mechanism of authentication in the settings; see [`Gateway::handle_with`].
    pub async fn handle(&self, http: &mut Session) -> Handled {
        self.serve(&mut HttpConnection::Proxy(http), Requirement::Default).await
    }

    /// Answers a request like [`Gateway::handle`], with other requirements for authentication.
    pub async fn handle_with(&self, http: &mut Session, require: &Require) -> Handled {
        self.serve(&mut HttpConnection::Proxy(http), Requirement::Given(require)).await
    }

    /// Answers a request at a listener of the settings, by its place among them. A request that
    /// the listener does not serve is not found.
    pub(crate) async fn handle_at(&self, http: &mut HttpConnection<'_>, listener: usize) {
        if self.serve(http, Requirement::Listener(listener)).await == Handled::NotHandled {
            let dispatcher = self.current();
            let edge = Requirement::Listener(listener).edge(&dispatcher);
            let _counted = RequestGuard::enter(&self.state.lasting.open_requests);
            // Boxed: a rare case must not make every request larger.
            Box::pin(reject_unknown(&dispatcher, http, &edge)).await;
        }
    }

    /// Answers a message of the program that started this process. Its caller is `local`, which
    /// presents no credentials.
    pub(crate) async fn handle_local(&self, http: &mut LocalConnection) {
        self.handle_in_process(http, Caller::local(), None).await;
    }

    /// Answers a message of the page of operators. Its caller presents credentials of its own.
    /// The requirements are those of a listener, by its place in the settings.
    pub(crate) async fn handle_relayed(&self, http: &mut LocalConnection, listener: usize) {
        self.handle_in_process(http, Caller::anonymous(), Some(listener)).await;
    }

    async fn handle_in_process(&self, http: &mut LocalConnection, caller: Caller, listener: Option<usize>) {
        let dispatcher = self.current();
        let (id, client) = (new_request_id().into(), http.client_network());
        let scope = Arc::new(RequestScope::new(id, client, None, dispatcher.tracer.as_ref()));
        http.set_scope(scope.clone());
        let mut record = AccessRecord::new(caller, scope);
        let require = listener.map(|listener| match dispatcher.listeners.get(listener) {
            Some(policy) if policy.serve.mcp => &policy.require,
            _ => &CLOSED,
        });
        let lasting = &self.state.lasting;
        let _counted = RequestGuard::enter(&lasting.open_requests);
        let mut moved = None;
        let mut served = dispatcher.handle_local(http, &mut record, require, &mut moved).await;
        // The generation of the request is not held any more.
        drop(dispatcher);
        if moved.is_some() {
            let requirement = listener.map_or(Requirement::Local, Requirement::Listener);
            served = Box::pin(self.go_on(http, &mut record, requirement, None, moved)).await;
        }
        if let Err(ClientGone) = served {
            record.record_client_gone();
        }
        record.finish_with(http.head(), &lasting.no_agent, || http.facts());
    }

    /// Records the rejection of a message before it became a request.
    pub(crate) fn record_rejection(&self, rejection: &Fault) {
        let mut record = AccessRecord::new(Caller::local(), Arc::new(RequestScope::bare()));
        record.record_rejection(rejection, &self.state.lasting.metrics);
    }

    /// Answers a request that has no route, for a host that serves only the gateway.
    pub async fn not_found(&self, http: &mut Session) {
        let dispatcher = self.current();
        let _counted = RequestGuard::enter(&self.state.lasting.open_requests);
        reject_unknown(&dispatcher, &mut HttpConnection::Proxy(http), &dispatcher.host_edge).await;
    }

    /// Waits until the spans of ended requests are exported, but no longer than a second. The access line and the
    /// span of a request are made a moment after its last byte is sent: for these it waits first, for up to 0.2 s.
    pub(crate) async fn flush_records(&self) {
        // Running requests look the same: while there are any, the wait lasts to its end.
        let until = Instant::now() + LAST_RECORDS_WAIT;
        while self.requests() > 0 && Instant::now() < until {
            tokio::time::sleep(LAST_RECORDS_POLL_INTERVAL).await;
        }
        if let Some(tracer) = &self.state.lasting.tracer {
            tracer.flush().await;
        }
    }

    /// Returns the metrics in the text format of Prometheus, version 0.0.4.
    pub fn render_metrics(&self) -> Vec<u8> {
        self.metrics().render()
    }

    /// Returns the metrics, with the present number of tasks.
    pub(crate) fn metrics(&self) -> &Arc<Metrics> {
        let LastingParts { metrics, succession, .. } = &self.state.lasting;
        succession.count_tasks(metrics);
        if let Some(shared) = &self.state.lasting.shared {
            metrics.state.set(shared.is_available(), shared.failures(), shared.counts());
        }
        metrics.holds(self.current().discovery.limits.bytes().used());
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
        let dispatcher = self.current();
        let Discovery { directory, catalogue, .. } = &*dispatcher.discovery;
        // A request that came before another process took over is answered as by that process.
        let drain = &dispatcher.drain;
        if drain.has_begun() && !drain.hands_over() {
            return Some("draining");
        }
        let edge = &dispatcher.settings;
        if self.has_been_ready() || edge.started.instant.elapsed() >= edge.ready_timeout {
            self.state.lasting.has_been_ready.store(true, Ordering::Release);
            return None;
        }
        if !self.state.lasting.sources.are_initialized(&dispatcher.configuration.sources) {
            return Some("sources");
        }
        if !directory.agents().iter().all(|agent| agent.is_initialized()) {
            return Some("agents");
        }
        if !catalogue.is_current() {
            return Some("tools");
        }
        if self.state.lasting.shared.as_ref().is_some_and(|shared| !shared.has_started()) {
            return Some("state");
        }
        self.state.lasting.has_been_ready.store(true, Ordering::Release);
        None
    }

    /// Returns true if the gateway was ready at least once.
    pub(crate) fn has_been_ready(&self) -> bool {
        self.state.lasting.has_been_ready.load(Ordering::Acquire)
    }

    /// Returns the configuration keys of functions that fail at present, although requests are
    /// answered.
    #[must_use]
    pub fn degraded(&self) -> Vec<&'static str> {
        let shared = self.state.lasting.shared.as_ref();
        let failing = [
            ("tasks.data_dir", self.succession().is_store_failing()),
            ("state", shared.is_some_and(|shared| !shared.is_available())),
        ];
        failing.into_iter().filter(|(_, is_failing)| *is_failing).map(|(key, _)| key).collect()
    }

    /// Returns the number of running requests and followed calls, of tasks that are still to be
    /// cancelled, and of batches of which other replicas do not know the end yet.
    pub fn running(&self) -> usize {
        let LastingParts { succession, cancelled_calls, .. } = &self.state.lasting;
        let batches = succession.batches().map_or(0, |batches| batches.open_shared());
        self.requests() + succession.followers.running() + cancelled_calls.count() + batches
    }

    /// Passes the last changes to other replicas, if there are any. Waits for at most `state.timeout`.
    pub(crate) async fn flush_shared(&self) {
        if let Some(shared) = &self.state.lasting.shared
            && !shared.flush_rows().await
        {
            warn!("failed to pass last changes to other replicas");
        }
    }

    /// Returns the number of requests without a response yet.
    pub fn requests(&self) -> usize {
        self.state.lasting.open_requests.load(Ordering::Acquire)
    }

    /// Writes all pending changes to `tasks.data_dir`, and accepts none afterwards. Call it before
    /// the process ends.
    pub fn keep_all(&self) {
        self.succession().close_store();
    }

    /// Begins the shutdown: endless streams end, connections are not kept, and every call gets a
    /// response before `shutdown.grace` and `shutdown.drain` are over.
    pub fn close(&self) {
        self.close_after(Duration::ZERO);
    }

    /// Begins the shutdown like [`Gateway::close`], for a process that lives this much longer than
    /// `shutdown` says.
    pub fn close_after(&self, more: Duration) {
        self.succession().drain.begin(more);
    }

    /// Returns the health as JSON, as in the response of `/healthz`.
    pub fn health(&self) -> String {
        self.current().health()
    }

    /// Returns the state of each agent as JSON, for operators.
    pub fn agents(&self) -> String {
        self.current().discovery.agent_states()
    }
}

/// The authentication that a request needs.
#[derive(Clone, Copy)]
enum Requirement<'a> {
    /// That of a listener of the settings, by its place among them.
    Listener(usize),
    /// That which the host of the gateway states.
    Given(&'a Require),
    /// Any mechanism of the settings.
    Default,
    /// None: the client has started this process.
    Local,
}

impl<'a> Requirement<'a> {
    /// Returns the requirement in a generation; `None` if the path is not served.
    fn of(self, dispatcher: &'a Dispatcher, path: &str) -> Option<&'a Require> {
        match self {
            Self::Listener(place) => {
                let policy = dispatcher.listeners.get(place)?;
                is_served(path, policy.serve).then_some(&policy.require)
            }
            Self::Given(require) => Some(require),
            Self::Default => Some(&dispatcher.settings.require),
            Self::Local => Some(&LOCAL),
        }
    }

    /// Returns the listener in a generation, as the HTTP edge sees it.
    fn edge(self, dispatcher: &Dispatcher) -> Arc<ListenerEdge> {
        let policy = match self {
            Self::Listener(place) => dispatcher.listeners.get(place),
            Self::Given(_) | Self::Default | Self::Local => None,
        };
        policy.map_or(&dispatcher.host_edge, |policy| &policy.edge).clone()
    }
}

/// The requirement for the client that has started this process.
static LOCAL: Require = Require { rule: RequireRule::None, of: Vec::new() };

impl Gateway {
    /// Answers a request of a client, if its path has a route and is served.
    async fn serve(&self, http: &mut HttpConnection<'_>, requirement: Requirement<'_>) -> Handled {
        let path = http.head().uri.path().to_owned();
        let Some(route) = parse(&path) else { return Handled::NotHandled };
        let is_grpc = route == Route::Grpc;
        if is_grpc && !is_grpc_request(http.head()) {
            return Handled::NotHandled;
        }
        let dispatcher = self.current();
        let Some(require) = requirement.of(&dispatcher, &path) else { return Handled::NotHandled };
        let edge = &dispatcher.settings;
        let lasting = &self.state.lasting;
        let listener = requirement.edge(&dispatcher);
        let scope = open_scope(&dispatcher, http, &listener);
        let mut record = AccessRecord::new(Caller::anonymous(), scope);
        record.has_grpc = listener.has_grpc;
        let _counted = RequestGuard::enter(&lasting.open_requests);
        http.set_keep_alive(!dispatcher.drain.has_begun(), edge.keep_alive);
        http.set_write_stall(edge.write_stall);
        let checked = check_certificate(http).and_then(|()| header_fits(http, edge.header_bytes));
        let mut moved = None;
        let mut served = match checked {
            // Boxed, as in `dispatch`: it must not make every request larger.
            checked if is_grpc => Box::pin(dispatcher.handle_grpc(http, &mut record, require, checked)).await,
            Ok(()) => dispatcher.handle(http, &mut record, route, require, &mut moved).await,
            Err(fault) => Box::pin(dispatcher.reject_without_reading_body(http, &mut record, fault)).await,
        };
        if moved.is_some() {
            // The generation of the request is not held any more.
            drop(dispatcher);
            served = Box::pin(self.go_on(http, &mut record, requirement, Some(&path), moved)).await;
        }
        if let Err(ClientGone) = served {
            record.record_client_gone();
            give_up(http).await;
        }
        record.finish(http, &listener, &lasting.no_agent);
        if self.current().drain.has_begun() {
            // The head of a stream may have been sent before: the next request goes to a process that stays.
            http.close_after_response();
        }
        Handled::Served
    }

    /// Continues a stream in one generation after the other, until it ends. `path` is that of the
    /// request; `None`: the message came without one.
    async fn go_on(
        &self,
        http: &mut impl ClientConnection,
        record: &mut AccessRecord,
        requirement: Requirement<'_>,
        path: Option<&str>,
        mut moved: Option<Box<MovedStream>>,
    ) -> Result<(), ClientGone> {
        let is_local = path.is_none();
        let path = path.unwrap_or(LOCAL_PATH);
        let Some(route) = parse(path) else { return Ok(()) };
        while let Some(stream) = moved.take() {
            let dispatcher = self.current();
            let at = ResumedRequest { route, require: requirement.of(&dispatcher, path), is_local };
            dispatcher.resume(http, record, at, *stream, &mut moved).await?;
        }
        Ok(())
    }
}

/// The maximum time for which the end of the process waits for the records of the last requests.
const LAST_RECORDS_WAIT: Duration = Duration::from_millis(200);
/// The interval of checks for these requests.
const LAST_RECORDS_POLL_INTERVAL: Duration = Duration::from_millis(2);

/// The path of messages without a connection of their own.
const LOCAL_PATH: &str = "/mcp";

/// The requirement that no caller satisfies.
static CLOSED: Require = Require { rule: RequireRule::Any, of: Vec::new() };

/// Answers a request that has no route.
async fn reject_unknown(dispatcher: &Dispatcher, http: &mut HttpConnection<'_>, listener: &ListenerEdge) {
    let mut record = AccessRecord::new(Caller::anonymous(), open_scope(dispatcher, http, listener));
    http.set_write_stall(dispatcher.settings.write_stall);
    let rejected = match is_grpc_request(http.head()) {
        true => {
            let unknown = Err(Fault::NoSuchPath);
            dispatcher.handle_grpc(http, &mut record, &CLOSED, unknown).await
        }
        false => dispatcher.reject_without_reading_body(http, &mut record, Fault::NoSuchPath).await,
    };
    if let Err(ClientGone) = rejected {
        record.record_client_gone();
        give_up(http).await;
    }
    record.finish(http, listener, &dispatcher.no_agent);
}

/// Creates the scope of a request, and attaches it to its head.
fn open_scope(
    dispatcher: &Dispatcher,
    http: &mut HttpConnection<'_>,
    listener: &ListenerEdge,
) -> Arc<RequestScope> {
    let scope = Arc::new(listener.scope(http.head(), http.peer(), dispatcher.tracer.as_ref()));
    http.set_scope(scope.clone());
    scope
}

/// Returns the client of all requests of the gateway. Warns if names are resolved by an egress
/// proxy, where no rule on addresses applies.
fn http_client(settings: &Settings) -> HttpClient {
    if settings.outbound.proxy.is_resolver() {
        tracing::warn!(
            "outbound.proxy.resolve: proxy leaves host names to the proxy: it must refuse internal addresses, as no rule on addresses \
             applies to names here"
        );
    }
    let descriptors = FileDescriptorBudget::of_process().for_agents();
    let limits = ClientLimits { descriptors, ..ClientLimits::default() };
    HttpClient::through(limits, settings.outbound.proxy.clone())
}
