//! The gateway: the only code that sees Pingora sessions.
//!
//! [`Gateway`] answers requests from within a proxy's `request_filter`; [`BackgroundService`] runs
//! the work between requests. Both drain on shutdown. Out of scope: listeners and certificates (see
//! `server`), the protocols themselves.

mod a2a;
mod abort;
mod access_record;
mod authenticate;
mod authorize;
mod background;
mod batch;
mod body;
mod cancelled_calls;
pub mod certificate;
mod change_notifications;
mod change_set;
mod client_table;
mod closing;
mod completion;
mod dispatch;
mod documents;
mod endpoint_limits;
mod health;
mod host_policy;
mod in_flight_calls;
mod input_responses;
mod json_object;
mod key;
mod limits;
mod lookup;
mod methods;
mod oauth_metadata;
mod post;
mod push_receiver;
mod questions;
mod queue;
mod resources;
mod responder;
mod response;
mod route;
mod run;
mod search;
mod sessions;
mod skills;
mod source;
mod start;
mod subscriptions;
mod succession;
mod task_tools;
mod tasks;
mod usage;

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwap;
use pingora::proxy::Session;
use tokio::sync::{Semaphore, watch};

use crate::agents::{CallLimits, CardFetchError, Directory, ForwardedContext};
use crate::auth::{AuthProblem, Authenticator, Caller, FailureLimiter, Rules};
use crate::bridge::catalogue::Catalogue;
use crate::config::{self, Require, RequireRule, Settings};
use crate::fault::Fault;
use crate::follow::{FollowLimits, TaskFollower};
use crate::mcp::notifications::LoggingLevel;
use crate::mcp::{ClientCapabilities, Version};
use crate::seal::Sealer;
use crate::sync::lock;
use crate::tasks::store::{Store, StoreProblem};
use crate::tasks::{RestorePolicy, TaskEntry, TaskJournal, Tasks, Timestamp};
use crate::telemetry::label;
use crate::telemetry::metrics::{AgentMetrics, Metrics};
use crate::transport::{ClientLimits, FileDescriptorBudget, HttpClient};

use access_record::AccessRecord;
use cancelled_calls::CancelledCalls;
use closing::DrainState;
use response::{Accepts, ClientGone, give_up};
use route::parse;

pub(crate) use host_policy::check_host;
pub(crate) use route::is_served;

pub use background::{BackgroundService, tools_of};

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
    /// The metrics cannot be set up.
    #[error("metrics: {0}")]
    Metrics(#[from] prometheus::Error),
    /// The sealer has no key.
    #[error("seal_key: {0}")]
    Seal(#[from] crate::seal::NoKey),
    /// The key in the data directory is not usable.
    #[error("tasks.data_dir: {0}")]
    Key(#[from] crate::tasks::seal_key_file::KeyFileError),
    /// The content of the data directory is not usable.
    #[error("tasks.data_dir: {0}")]
    Store(#[from] StoreProblem),
}

/// Gateway between MCP clients and A2A agents, for any Pingora proxy. Clones share all state.
#[derive(Clone)]
pub struct Gateway {
    inner: Arc<Inner>,
}

struct Inner {
    settings: Settings,
    begun: Timestamp,
    sealer: Sealer,
    gate: host_policy::HostPolicy,
    authenticator: Authenticator,
    rules: Rules,
    /// Authentication that applies by default: any configured mechanism.
    require: Require,
    client: HttpClient,
    directory: Directory,
    catalogue: ArcSwap<Catalogue>,
    built: AtomicU64,
    changes: watch::Sender<u64>,
    closing: DrainState,
    open: AtomicUsize,
    sessions: sessions::Sessions,
    clients: client_table::ClientTable,
    tasks: Tasks,
    ledger: Arc<TaskJournal>,
    predecessor: succession::Predecessor,
    /// Tasks that were live when the last process ended, until they have followers.
    kept: Mutex<Vec<Arc<TaskEntry>>>,
    running: in_flight_calls::InFlightCalls,
    cancelled_calls: Arc<CancelledCalls>,
    followers: Arc<TaskFollower>,
    streams: Arc<Semaphore>,
    calls: Arc<Semaphore>,
    shares: limits::QuotaRegistry,
    failures: FailureLimiter,
    handed: a2a::ShownTasks,
    names: a2a::ClientIdMap,
    forwarding: a2a::WebhookForwarder,
    metrics: Arc<Metrics>,
    nobody: Arc<AgentMetrics>,
}

/// Client context: the caller, and the protocol facts of its request.
struct ClientContext {
    caller: Caller,
    version: Version,
    capabilities: ClientCapabilities,
    session: Option<sessions::Session>,
    level: Option<LoggingLevel>,
    takes: Accepts,
    along: Option<Arc<ForwardedContext>>,
    limits: endpoint_limits::EndpointLimits,
    /// Owner of the byte quota that responses of agents use.
    whose: Option<limits::QuotaOwner>,
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
        Self::with(settings, store)
    }

    /// Creates the gateway of a process that takes over from one that still runs. The data
    /// directory is taken over when the other process ends.
    ///
    /// # Errors
    ///
    /// As [`Gateway::new`].
    pub fn with_store_handover(settings: Settings) -> Result<(Self, BackgroundService), GatewayError> {
        Self::with(settings, None)
    }

    fn with(settings: Settings, store: Option<Store>) -> Result<(Self, BackgroundService), GatewayError> {
        let metrics = Metrics::new()?;
        let client = http_client();
        let sealer = key::sealer(&settings)?;
        let directory = Directory::new(&settings, client.clone(), &metrics)?;
        let tasks = Tasks::new(task_map_limits(&settings));
        let ledger = Arc::new(TaskJournal::new(settings.tasks.keep_artifacts));
        let shares = limits::QuotaRegistry::new(&settings.limits, &settings.agents, &metrics);
        let followers = TaskFollower::new(
            followed(&settings),
            tasks.clone(),
            ledger.clone(),
            client.clone(),
            shares.answer_room(None),
            metrics.clone(),
        );
        let followers = Arc::new(push_receiver::register_pushes(followers, &settings, &sealer));
        let inner = Inner {
            begun: Timestamp::now(),
            sealer,
            gate: host_policy::HostPolicy::new(&settings),
            authenticator: Authenticator::new(
                &settings.auth,
                settings.public_url.as_deref(),
                client.clone(),
                &Arc::new(settings.outbound.allow.clone()),
            )?,
            rules: Rules::new(settings.rules.clone()),
            require: strictest_requirement(&settings),
            client,
            catalogue: ArcSwap::from_pointee(background::all_tools(&directory, &settings.mcp)),
            directory,
            built: AtomicU64::new(0),
            changes: watch::Sender::new(0),
            closing: DrainState::new(settings.shutdown),
            open: AtomicUsize::new(0),
            sessions: sessions::Sessions::new(settings.sessions.ttl.as_secs(), settings.sessions.max_cached),
            clients: client_table::ClientTable::new(&settings.calls.clients),
            tasks,
            ledger,
            predecessor: succession::Predecessor::none(),
            kept: Mutex::default(),
            running: in_flight_calls::InFlightCalls::default(),
            cancelled_calls: CancelledCalls::new(&followers, settings.calls.cancel_grace),
            followers,
            streams: Arc::new(Semaphore::new(settings.limits.streams)),
            calls: Arc::new(Semaphore::new(settings.limits.calls)),
            shares,
            failures: FailureLimiter::new(settings.limits.auth_failures),
            handed: a2a::ShownTasks::new(task_list_limits(&settings)),
            names: a2a::ClientIdMap::new(task_list_limits(&settings)),
            forwarding: a2a::WebhookForwarder::new(),
            nobody: metrics.no_agent(),
            metrics,
            settings,
        };
        if let Some(store) = store {
            inner.return_store(store);
        }
        let inner = Arc::new(inner);
        Ok((Self { inner: inner.clone() }, BackgroundService::new(inner)))
    }

    /// Answers a request, if its path belongs to the gateway. Call it from a proxy's
    /// `request_filter`, before the body is read.
    ///
    /// Accepts any mechanism of authentication in the settings; see [`Gateway::handle_with`].
    pub async fn handle(&self, http: &mut Session) -> Handled {
        self.handle_with(http, &self.inner.require).await
    }

    /// Answers a request like [`Gateway::handle`], with other requirements for authentication.
    pub async fn handle_with(&self, http: &mut Session, require: &Require) -> Handled {
        let path = http.req_header().uri.path().to_owned();
        let Some(door) = parse(&path) else { return Handled::NotHandled };
        let inner = &self.inner;
        let mut exchange = AccessRecord::new(Caller::anonymous());
        let _under_way = RequestGuard::enter(&inner.open);
        // A keep-alive without a limit would never end.
        let rest = inner.settings.limits.keep_alive.as_secs().max(1);
        let stays = body::has_unambiguous_length(http) && !inner.closing.has_begun();
        http.set_keepalive(stays.then_some(rest));
        http.set_write_timeout(Some(inner.settings.limits.write_stall));
        let longest = inner.settings.limits.header;
        let checked = certificate::check(http).and_then(|()| body::header_fits(http, longest));
        let served = match checked {
            Ok(()) => inner.handle_request(http, &mut exchange, (door, require)).await,
            // Boxed, as in `dispatch`: rare cases must not make every request larger.
            Err(fault) => Box::pin(inner.reject_without_reading_body(http, &mut exchange, fault)).await,
        };
        if let Err(ClientGone) = served {
            if exchange.fault.is_none() {
                exchange.outcome = label::Outcome::ClientGone;
            }
            give_up(http).await;
        }
        exchange.finish(http, &inner.nobody);
        Handled::Served
    }

    /// Answers a request that has no route, for a host that serves only the gateway.
    pub async fn not_found(&self, http: &mut Session) {
        let mut exchange = AccessRecord::new(Caller::anonymous());
        if let Err(ClientGone) =
            self.inner.reject_without_reading_body(http, &mut exchange, Fault::NoSuchPath).await
        {
            exchange.outcome = label::Outcome::ClientGone;
        }
        exchange.finish(http, &self.inner.nobody);
    }

    /// Returns the metrics, with the present number of tasks.
    pub fn metrics(&self) -> &Arc<Metrics> {
        self.inner.count_tasks();
        self.inner.metrics.holds(self.inner.shares.bytes().used());
        &self.inner.metrics
    }

    /// Returns true if every agent's card has been fetched or tried once, so that the list of tools
    /// is as complete as possible; false while the process ends.
    pub fn is_ready(&self) -> bool {
        let directory = &self.inner.directory;
        let looked = directory.agents().iter().all(|agent| agent.is_initialized());
        // A request that came before another process took over is answered as by that process.
        let open = !self.inner.closing.has_begun() || self.inner.closing.hands_over();
        open && looked && self.inner.built.load(Ordering::Acquire) == directory.versions()
    }

    /// Returns the configuration keys of functions that fail at present, although requests are
    /// answered.
    #[must_use]
    pub fn degraded(&self) -> Vec<&'static str> {
        if self.inner.ledger.is_failing() { vec!["tasks.data_dir"] } else { Vec::new() }
    }

    /// Returns the number of running requests and followed calls, and of tasks that are still to be
    /// cancelled.
    pub fn running(&self) -> usize {
        self.inner.running()
    }

    /// Returns the number of requests without a response yet.
    pub fn requests(&self) -> usize {
        self.inner.open.load(Ordering::Acquire)
    }

    /// Writes all pending changes to `tasks.data_dir`, and accepts none afterwards. Call it before
    /// the process ends.
    pub fn keep_all(&self) {
        self.inner.ledger.close();
    }

    /// Begins the shutdown: endless streams end, connections are not kept, and every call gets a
    /// response before `shutdown.grace` and `shutdown.drain` are over.
    pub fn close(&self) {
        self.close_after(Duration::ZERO);
    }

    /// Begins the shutdown like [`Gateway::close`], for a process that lives this much longer than
    /// `shutdown` says.
    pub fn close_after(&self, more: Duration) {
        self.inner.closing.begin(more);
    }

    /// Returns the health as JSON, as in the response of `/healthz`.
    pub fn health(&self) -> String {
        self.inner.health()
    }

    /// Returns the state of each agent as JSON, for operators.
    pub fn agents(&self) -> String {
        self.inner.agents()
    }
}

/// Guard that counts a running request.
struct RequestGuard<'a>(&'a AtomicUsize);

impl<'a> RequestGuard<'a> {
    fn enter(open: &'a AtomicUsize) -> Self {
        open.fetch_add(1, Ordering::AcqRel);
        Self(open)
    }
}

impl Drop for RequestGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Inner {
    /// Loads the content of a store, and persists to it from now on. Waits for the disk.
    fn return_store(&self, store: Store) {
        self.ledger.attach_store(Some(Arc::new(store)));
        let policy = RestorePolicy {
            artifact_bytes: self.settings.limits.artifacts,
            may_be_named: self.predecessor.lives(),
        };
        let kept = self.ledger.load(&self.tasks, policy, Timestamp::now());
        self.ledger.sessions(|key, value| self.sessions.learn(key, Some(value), now()));
        for (key, value) in self.sessions.rows() {
            self.ledger.note_session(key, value);
        }
        self.ledger.flush(&self.tasks, Timestamp::now());
        self.directory.own_cards(true);
        kept.into_iter().for_each(|entry| self.keep_for_later(entry));
    }

    /// Queues a task of another process to be followed when that process has ended.
    fn keep_for_later(&self, entry: Arc<TaskEntry>) {
        let mut kept = lock(&self.kept);
        if !kept.iter().any(|known| Arc::ptr_eq(known, &entry)) {
            kept.push(entry);
        }
    }

    /// Returns the number of running requests and followed calls, and of tasks that are still to be
    /// cancelled.
    fn running(&self) -> usize {
        let background = self.followers.running() + self.cancelled_calls.count();
        self.open.load(Ordering::Acquire) + background
    }

    fn call_limits(&self) -> CallLimits {
        call_limits(&self.settings)
    }
}

/// Returns the default requirement: any configured mechanism.
fn strictest_requirement(settings: &Settings) -> Require {
    let of = settings.auth.mechanisms();
    Require { rule: if of.is_empty() { RequireRule::None } else { RequireRule::Any }, of }
}

/// Returns the limits for the records of tasks that A2A clients have seen.
fn task_list_limits(settings: &Settings) -> a2a::ShownTasksLimits {
    let (tasks, of_one) = (&settings.tasks, settings.limits.caller_tasks);
    a2a::ShownTasksLimits { most: tasks.max, of_one, ttl: tasks.ttl }
}

fn task_map_limits(settings: &Settings) -> crate::tasks::TaskLimits {
    crate::tasks::TaskLimits {
        most: settings.tasks.max,
        bytes: settings.tasks.max_bytes,
        ttl: settings.tasks.ttl,
        artifact_bytes: settings.tasks.keep_artifacts,
    }
}

/// Returns the client for agents, with their share of the file descriptors.
fn http_client() -> HttpClient {
    let descriptors = FileDescriptorBudget::of_process().for_agents();
    HttpClient::new(ClientLimits { descriptors, ..ClientLimits::default() })
}

/// Returns the limits of the followers.
fn followed(settings: &Settings) -> FollowLimits {
    let config::Background { max, lifetime } = settings.background;
    FollowLimits { most: max, lifetime, call: call_limits(settings) }
}

/// Returns the seconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
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
