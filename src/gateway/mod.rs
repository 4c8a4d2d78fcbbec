//! The gateway: the only code that sees Pingora sessions.
//!
//! [`Bridge`] answers requests from within a proxy's `request_filter`; [`BridgeService`] does what goes on between requests.
//! Both drain on shutdown. Not here: listeners and certificates (see `server`), the protocols themselves.

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
use std::sync::{Arc, Mutex, PoisonError};
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
use crate::tasks::store::{Store, StoreProblem};
use crate::tasks::{TaskEntry, TaskJournal, Tasks, Timestamp};
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

/// What became of a request that was shown to the bridge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Handled {
    /// The bridge has answered it, or its client has gone.
    Served,
    /// It is not for the bridge; nothing has been read or written.
    NotHandled,
}

/// Why a bridge cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum GatewayError {
    /// Something in the settings of an agent cannot be used.
    #[error("{0}")]
    Agent(#[from] CardFetchError),
    /// Something about the proofs of callers cannot be used.
    #[error("{0}")]
    Auth(#[from] AuthProblem),
    /// The metrics cannot be set up.
    #[error("metrics: {0}")]
    Metrics(#[from] prometheus::Error),
    /// The seal has no key.
    #[error("seal_key: {0}")]
    Seal(#[from] crate::seal::NoKey),
    /// The key in the data directory cannot be used.
    #[error("tasks.data_dir: {0}")]
    Key(#[from] crate::tasks::seal_key_file::KeyFileError),
    /// What is in the data directory cannot be used.
    #[error("tasks.data_dir: {0}")]
    Store(#[from] StoreProblem),
}

/// The bridge between MCP clients and A2A agents, for any Pingora proxy. Clones share everything.
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
    /// What is required where nothing is said: any of what is configured.
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
    /// The tasks that were kept when the last process ended, until somebody sees to them.
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

/// Who asks, and what is known of how it wants to be answered.
struct ClientContext {
    caller: Caller,
    version: Version,
    capabilities: ClientCapabilities,
    session: Option<sessions::Session>,
    level: Option<LoggingLevel>,
    takes: Accepts,
    along: Option<Arc<ForwardedContext>>,
    limits: endpoint_limits::EndpointLimits,
    /// The owner of the share that answers of agents take.
    whose: Option<limits::QuotaOwner>,
}

impl Gateway {
    /// Makes a bridge and the service that belongs to it. Nothing is started: the host adds the service to its server (see
    /// [`BridgeService`]) and shows requests to [`Bridge::handle`].
    ///
    /// # Errors
    ///
    /// [`BridgeProblem`] says what in the settings cannot be used.
    pub fn new(settings: Settings) -> Result<(Self, BackgroundService), GatewayError> {
        let store = settings.tasks.data_dir.as_deref().map(Store::open).transpose()?;
        Self::with(settings, store)
    }

    /// The same for a process that takes over from one that still runs: what that keeps on disk is taken over when it ends.
    ///
    /// # Errors
    ///
    /// As [`Bridge::new`].
    pub fn with_store_handover(settings: Settings) -> Result<(Self, BackgroundService), GatewayError> {
        Self::with(settings, None)
    }

    fn with(settings: Settings, store: Option<Store>) -> Result<(Self, BackgroundService), GatewayError> {
        let metrics = Metrics::new()?;
        let descriptors = FileDescriptorBudget::of_process().for_agents();
        let client = HttpClient::new(ClientLimits { descriptors, ..ClientLimits::default() });
        let sealer = key::sealer(&settings)?;
        let directory = Directory::new(&settings, client.clone(), &metrics)?;
        let tasks = Tasks::new(task_map_limits(&settings));
        let ledger = Arc::new(TaskJournal::new(settings.tasks.keep_artifacts));
        let shares = limits::QuotaRegistry::new(&settings.limits, &settings.agents, &metrics);
        let followers = TaskFollower::new(
            followed(&settings),
            (tasks.clone(), ledger.clone()),
            client.clone(),
            (call_limits(&settings), shares.answer_room(None)),
            metrics.clone(),
        );
        let followers = Arc::new(push_receiver::parse_token(followers, &settings, &sealer));
        let sessions = sessions::Sessions::new(settings.sessions.ttl.as_secs(), settings.sessions.remembered);
        let inner = Inner {
            begun: Timestamp::now(),
            sealer,
            gate: host_policy::HostPolicy::new(&settings),
            authenticator: Authenticator::new(
                &settings.auth,
                settings.public_url.as_deref(),
                (client.clone(), &Arc::new(settings.outbound.allow.clone())),
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
            sessions,
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
            failures: FailureLimiter::new(settings.limits.failures),
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
        let bridge = Self { inner: Arc::new(inner) };
        let service = BackgroundService::new(bridge.inner.clone());
        Ok((bridge, service))
    }

    /// Answers a request, if it is the bridge's. To be called from a proxy's `request_filter`, before anything has read
    /// the body.
    ///
    /// Wants any proof of the caller that the settings know of; see [`Bridge::handle_with`].
    pub async fn handle(&self, http: &mut Session) -> Handled {
        self.handle_with(http, &self.inner.require).await
    }

    /// The same, wanting other proofs of the caller.
    pub async fn handle_with(&self, http: &mut Session, require: &Require) -> Handled {
        let path = http.req_header().uri.path().to_owned();
        let Some(door) = parse(&path) else { return Handled::NotHandled };
        let inner = &self.inner;
        let mut exchange = AccessRecord::new(Caller::anonymous());
        let _under_way = RequestGuard::enter(&inner.open);
        // A keep-alive that nobody limits is for ever.
        let rest = inner.settings.limits.keep_alive.as_secs().max(1);
        let stays = body::has_unambiguous_length(http) && !inner.closing.has_begun();
        http.set_keepalive(stays.then_some(rest));
        http.set_write_timeout(Some(inner.settings.limits.write_stall));
        let longest = inner.settings.limits.header;
        let checked = certificate::check(http).and_then(|()| body::header_fits(http, longest));
        let served = match checked {
            Ok(()) => inner.handle_request(http, &mut exchange, (door, require)).await,
            // Boxed, as in `doors`: what is rare must not make every request larger.
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

    /// Answers a request that is nobody's, for a host that serves nothing but the bridge.
    pub async fn not_found(&self, http: &mut Session) {
        let mut exchange = AccessRecord::new(Caller::anonymous());
        if let Err(ClientGone) =
            self.inner.reject_without_reading_body(http, &mut exchange, Fault::NoSuchPath).await
        {
            exchange.outcome = label::Outcome::ClientGone;
        }
        exchange.finish(http, &self.inner.nobody);
    }

    /// What is counted, with the tasks as they are now.
    pub fn metrics(&self) -> &Arc<Metrics> {
        self.inner.count_tasks();
        self.inner.metrics.holds(self.inner.shares.bytes().used());
        &self.inner.metrics
    }

    /// Whether every agent has been looked for at least once, so that the list of tools is as good as it gets; not while the
    /// process ends.
    pub fn is_ready(&self) -> bool {
        let directory = &self.inner.directory;
        let looked = directory.agents().iter().all(|agent| agent.is_initialized());
        // A request that came before another process took over is answered as that one would.
        let open = !self.inner.closing.has_begun() || self.inner.closing.hands_over();
        open && looked && self.inner.built.load(Ordering::Acquire) == directory.versions()
    }

    /// Returns the configuration keys of what does not work now, although requests are answered.
    #[must_use]
    pub fn degraded(&self) -> Vec<&'static str> {
        if self.inner.ledger.is_failing() { vec!["tasks.data_dir"] } else { Vec::new() }
    }

    /// How many requests and followed calls are under way, and how many tasks are still to be cancelled.
    pub fn running(&self) -> usize {
        self.inner.running()
    }

    /// How many requests are under way: those that have no answer yet.
    pub fn requests(&self) -> usize {
        self.inner.open.load(Ordering::Acquire)
    }

    /// Writes to `tasks.data_dir` all that is not there yet, and nothing afterwards. To be called before the process
    /// ends.
    pub fn keep_all(&self) {
        self.inner.ledger.close();
    }

    /// Says that the process will end: streams that would never end by themselves
    /// are ended, connections are not kept, and every call gets an answer before `shutdown.grace` and `shutdown.drain` are over.
    pub fn close(&self) {
        self.close_after(Duration::ZERO);
    }

    /// The same for a process that goes on for so much longer than `shutdown` says.
    pub fn close_after(&self, more: Duration) {
        self.inner.closing.begin(more);
    }

    /// How it goes, as JSON: what `/healthz` answers.
    pub fn health(&self) -> String {
        self.inner.health()
    }

    /// What is known of each agent, as JSON, for operators.
    pub fn agents(&self) -> String {
        self.inner.agents()
    }
}

/// A request under way; counted while it lasts.
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
    /// Takes back what a store keeps, and keeps things there from now on. Waits for the disk.
    fn return_store(&self, store: Store) {
        self.ledger.attach_store(Some(Arc::new(store)));
        let limit = (self.settings.limits.artifacts, self.predecessor.lives());
        let kept = self.ledger.load(&self.tasks, limit, Timestamp::now());
        self.ledger.sessions(|key, value| self.sessions.learn(key, Some(value), now()));
        for (key, value) in self.sessions.rows() {
            self.ledger.note_session(key, value);
        }
        self.ledger.flush(&self.tasks, Timestamp::now());
        self.directory.own_cards(true);
        kept.into_iter().for_each(|entry| self.keep_for_later(entry));
    }

    /// Sees to a task of another process when that has ended.
    fn keep_for_later(&self, entry: Arc<TaskEntry>) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if !kept.iter().any(|known| Arc::ptr_eq(known, &entry)) {
            kept.push(entry);
        }
    }

    /// How many requests and followed calls are under way, and how many tasks are still to be cancelled.
    fn running(&self) -> usize {
        let background = self.followers.running() + self.cancelled_calls.count();
        self.open.load(Ordering::Acquire) + background
    }

    fn call_limits(&self) -> CallLimits {
        call_limits(&self.settings)
    }
}

/// What is wanted of a caller where nothing is said: any of what is configured.
fn strictest_requirement(settings: &Settings) -> Require {
    let of = settings.auth.mechanisms();
    Require { rule: if of.is_empty() { RequireRule::None } else { RequireRule::Any }, of }
}

/// How much is remembered of what A2A clients were shown.
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

/// How much is followed.
fn followed(settings: &Settings) -> FollowLimits {
    let config::Followers { max, lifetime } = settings.followers;
    FollowLimits { most: max, lifetime }
}

/// Seconds since 1970.
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
