//! The endpoints of one agent: the choice of one for each request, the permit to send it, and the
//! record of its outcome.
//!
//! A request about a task or a conversation goes to the endpoint that holds it; any other to the
//! endpoint with the fewest requests under way, round robin among equals. Besides the endpoints
//! there are the addresses of single methods, which have no substitute.
//!
//! Failures are: no connection, no response in time, cut off before one, HTTP 502, 503 and 504; a
//! rejection is a response. See `breaker` for the consequences, and `resolved` for addresses.
//!
//! The affinity map says which endpoint holds a task or a conversation. It is bounded, and forgets an
//! entry some time after its last use; a task that is not in it is located (see `locate`). Where replicas share
//! state, an entry that is missing here is looked for there, one that is used is passed on again before it
//! expires there, and an endpoint with an open breaker at another replica is chosen last.

use std::collections::HashMap;
use std::fmt::Display;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use http::StatusCode;
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;
use tracing::{info, warn};

use super::breaker::{Breaker, BreakerPermit, Transition};
use super::rpc::AgentRequest;
use crate::a2a::StreamResponse;
use crate::config::{self, AgentMethod, PerMethod};
use crate::fault::AgentFailure;
use crate::sync::lock;
use crate::telemetry::metrics::{AgentMetrics, EndpointMetrics};
use crate::transport::TransportError;

/// The metric names of the addresses of single methods, in the order of [`PerMethod::all`].
const METHODS: [&str; 4] = ["send", "stream", "get", "cancel"];

/// The endpoints of one agent, as its configuration or one interface of its card names them. Their
/// state belongs to their addresses: another address has another value of this type.
pub(super) struct Endpoints {
    /// The endpoints, then the addresses of single methods.
    sites: Box<[EndpointTracker]>,
    count: usize,
    methods: PerMethod<Option<usize>>,
    /// The start of the next search for the least busy one.
    next: AtomicUsize,
    /// True if health checks find out which are back, so that calls need not.
    is_checked: bool,
    /// The affinity of tasks; `None` if there is only one endpoint for them.
    homes: Option<AffinityMap>,
    shared: Arc<EndpointsShared>,
}

/// Affinities and open breakers that replicas share. An endpoint has the name by which metrics name it.
#[async_trait]
pub(crate) trait EndpointSharing: Send + Sync {
    /// Returns the endpoint that holds a task or a conversation, if a replica has recorded it.
    async fn find(&self, kept: AffinityId) -> Option<String>;

    /// Records the endpoint that holds a task or a conversation. Does not wait.
    fn remember(&self, kept: AffinityId, endpoint: &str);

    /// Returns the time after which a record that is still used is to be made again.
    fn affinity_age(&self) -> Duration;

    /// Records that the breaker of an endpoint is open for so long, or closed again. Does not wait.
    fn note_breaker(&self, agent: &str, endpoint: &str, open: Option<Duration>);

    /// Returns true if another replica has the breaker of an endpoint open.
    fn is_open_elsewhere(&self, agent: &str, endpoint: &str) -> bool;
}

/// Affinities and breakers of other replicas, once they are set.
pub(super) type SharedEndpoints = Arc<OnceLock<Arc<dyn EndpointSharing>>>;

/// The endpoints to which a request was sent.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct TriedEndpoints(u64);

/// The health of one endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct EndpointStatus {
    /// Requests under way; not counted if there is only one endpoint.
    pub(super) busy: usize,
    /// The time for which its breaker remains open; `None`: requests are sent.
    pub(super) rests: Option<Duration>,
}

impl Endpoints {
    /// Creates the endpoints; `first` is the number of the first one, by which metrics name it.
    pub(super) fn new(
        agent: &config::Agent,
        first: usize,
        metrics: &AgentMetrics,
        sharing: SharedEndpoints,
    ) -> Self {
        let count = agent.endpoints.len().max(1);
        let mut names: Vec<String> = (first..first + count).map(|number| number.to_string()).collect();
        let mut methods = PerMethod::default();
        for ((at, settings), name) in methods.all_mut().into_iter().zip(agent.methods.all()).zip(METHODS) {
            if settings.endpoint.is_some() {
                *at = Some(names.len());
                names.push(name.to_owned());
            }
        }
        let shared = Arc::new(EndpointsShared { sharing, ..EndpointsShared::default() });
        let site = |name: String| EndpointTracker {
            agent: agent.name.clone(),
            metrics: metrics.endpoint(&name),
            name,
            breaker: Breaker::new(agent.breaker),
            busy: AtomicUsize::new(0),
            shared: shared.clone(),
        };
        Self {
            sites: names.into_iter().map(site).collect(),
            count,
            methods,
            next: AtomicUsize::new(0),
            is_checked: agent.health.is_some(),
            homes: (count > 1).then(|| AffinityMap::new(&agent.name, Instant::now())),
            shared,
        }
    }

    /// Leaves the gauges to the endpoints that the newest card names.
    pub(super) fn retire(&self) {
        self.shared.is_retired.store(true, Ordering::Release);
    }

    /// Takes the gauges over.
    pub(super) fn take_office(&self) {
        self.shared.is_retired.store(false, Ordering::Release);
        self.sites.iter().for_each(|site| site.show_up(site.breaker.is_closed()));
    }

    /// Returns true while the breakers of all are open.
    pub(super) fn all_rest(&self) -> bool {
        let is_resting = |site: &EndpointTracker| {
            !site.breaker.is_closed()
                && site.breaker.open_for(Instant::now()).is_some_and(|rests| !rests.is_zero())
        };
        self.sites.iter().take(self.count).all(is_resting)
    }

    /// Returns true unless the breaker of the endpoint is open.
    pub(super) fn is_up(&self, at: usize) -> bool {
        self.sites.get(at).is_some_and(|site| site.breaker.is_closed())
    }

    /// Returns the number of endpoints.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Returns true if there are several, so that affinity matters.
    pub(super) fn are_several(&self) -> bool {
        self.homes.is_some()
    }

    /// Returns the address of this method alone, if it has one.
    pub(super) fn of(&self, method: AgentMethod) -> Option<usize> {
        self.methods.of(method).copied().flatten()
    }

    /// Acquires the permit to send a request, to the endpoint where it belongs.
    ///
    /// # Errors
    ///
    /// [`AgentFailure::BreakerOpen`] if the breaker of that one is open, or those of all.
    pub(super) fn acquire(
        self: &Arc<Self>,
        ask: &AgentRequest,
        tried: TriedEndpoints,
    ) -> Result<EndpointPermit<'_>, AgentFailure> {
        let turn = match self.endpoint_of(ask) {
            Some(at) => self.acquire_at(at),
            None => self.least_busy(tried),
        };
        turn.map_err(|wait| AgentFailure::BreakerOpen(wait.as_secs().saturating_add(1)))
    }

    /// Returns the endpoint to which a request must go, if it is bound to one.
    fn endpoint_of(&self, ask: &AgentRequest) -> Option<usize> {
        if let Some(at) = self.of(ask.method) {
            return Some(at);
        }
        let Some(homes) = &self.homes else { return Some(0) };
        let now = Instant::now();
        let task = || homes.find(AffinityKey::Task(ask.task.as_deref()?), now);
        let context = || homes.find(AffinityKey::Context(ask.context.as_deref()?), now);
        ask.place().or_else(task).or_else(context)
    }

    /// Returns true if a request that was not sent may go to another endpoint than those it was
    /// tried at.
    pub(super) fn can_fail_over(&self, ask: &AgentRequest) -> bool {
        self.endpoint_of(ask).is_none()
    }

    /// Acquires the permit for this endpoint.
    fn acquire_at(self: &Arc<Self>, at: usize) -> Result<EndpointPermit<'_>, Duration> {
        let site = self.sites.get(at).ok_or(Duration::ZERO)?;
        let pass = site.breaker.acquire(Instant::now)?;
        Ok(self.in_flight(at, site, pass))
    }

    fn in_flight<'a>(
        self: &'a Arc<Self>,
        at: usize,
        site: &'a EndpointTracker,
        pass: BreakerPermit,
    ) -> EndpointPermit<'a> {
        EndpointPermit::new(at, site, pass, self.are_several().then_some(self))
    }

    /// Returns an endpoint or address by its number.
    fn site(&self, at: usize) -> Option<&EndpointTracker> {
        self.sites.get(at)
    }

    fn least_busy(self: &Arc<Self>, tried: TriedEndpoints) -> Result<EndpointPermit<'_>, Duration> {
        let mut best: Option<((bool, usize), usize)> = None;
        let mut resting = Vec::new();
        for (at, site) in self.round_robin(1).filter(|(at, _)| !tried.has(*at)) {
            let busy = (site.is_open_elsewhere(), site.busy.load(Ordering::Relaxed));
            match site.breaker.is_closed() {
                true if best.is_none_or(|(least, _)| busy < least) => best = Some((busy, at)),
                true => {}
                false => resting.push((at, site)),
            }
        }
        let mut wait = Duration::MAX;
        if best.is_none() || !self.is_checked {
            // A request must find out if one is back; a connection that cannot be made costs the
            // request nothing.
            for (at, site) in resting {
                match site.breaker.acquire(Instant::now) {
                    Ok(pass) => return Ok(self.in_flight(at, site, pass)),
                    Err(rests) => wait = wait.min(rests),
                }
            }
        }
        match best {
            Some((_, at)) => self.acquire_at(at),
            None => Err(wait),
        }
    }

    /// Iterates over every endpoint once; the next iteration begins `step` further on.
    fn round_robin(&self, step: usize) -> impl Iterator<Item = (usize, &EndpointTracker)> {
        let start = self.next.fetch_add(step, Ordering::Relaxed) % self.count;
        let sites = move || self.sites.iter().enumerate().take(self.count);
        sites().skip(start).chain(sites().take(start))
    }

    /// Iterates over the numbers of all endpoints; the next iteration begins `step` further on.
    pub(super) fn numbers(&self, step: usize) -> impl Iterator<Item = usize> {
        self.round_robin(step).map(|(at, _)| at)
    }

    /// Returns the endpoint that holds a task, if it is known.
    pub(super) fn home(&self, task: &str) -> Option<usize> {
        match &self.homes {
            Some(homes) => homes.find(AffinityKey::Task(task), Instant::now()),
            None => Some(0),
        }
    }

    /// Returns true if an endpoint must be asked for a task while the endpoint that holds it is not
    /// available: it has not answered that it does not know the task, or some endpoint failed or
    /// returned since.
    pub(super) fn is_to_be_asked(&self, task: &str, at: usize) -> bool {
        let round = self.round();
        self.homes
            .as_ref()
            .is_none_or(|homes| !homes.was_asked(AffinityKey::Task(task), at, round, Instant::now()))
    }

    /// Records that an endpoint does not know a task.
    pub(super) fn note_asked(&self, task: &str, at: usize) {
        if let Some(homes) = &self.homes {
            homes.note_asked(AffinityKey::Task(task), at, self.round(), Instant::now());
        }
    }

    /// Returns the current round, from 1: a task that was not located yet has 0.
    fn round(&self) -> u32 {
        self.shared.rounds.load(Ordering::Relaxed).saturating_add(1)
    }

    /// Returns the breakers of the endpoints that may know a task.
    pub(super) fn breakers_of(&self, task: &str) -> impl Iterator<Item = &Breaker> {
        let own = self.of(AgentMethod::Get);
        let home = self.home(task);
        let may_know = move |at: usize| match own {
            Some(own) => at == own,
            None => at < self.count && (home.is_none_or(|home| home == at) || self.is_to_be_asked(task, at)),
        };
        self.sites.iter().enumerate().filter(move |(at, _)| may_know(*at)).map(|(_, site)| &site.breaker)
    }

    /// Records the endpoint that holds a task and a conversation.
    pub(super) fn remember(&self, at: usize, task: Option<&str>, context: Option<&str>) {
        let Some(homes) = self.homes.as_ref().filter(|_| at < self.count) else { return };
        let now = Instant::now();
        let sharing = self.shared.sharing.get().zip(self.sites.get(at));
        let age = sharing.map(|(sharing, _)| sharing.affinity_age());
        for kept in affinity_keys(task, context) {
            if let Some(id) = homes.remember(kept, at, age, now)
                && let Some((sharing, site)) = sharing
            {
                sharing.remember(id, &site.name);
            }
        }
    }

    /// Returns the endpoints of all tasks and conversations that are known here, by name.
    pub(super) fn affinities(&self) -> Vec<(AffinityId, String)> {
        let Some(homes) = &self.homes else { return Vec::new() };
        let named = |(id, at): (AffinityId, usize)| Some((id, self.sites.get(at)?.name.clone()));
        homes.all().into_iter().filter_map(named).collect()
    }

    /// Returns true if the endpoint of a task or a conversation is not known here, and other replicas may know it.
    pub(super) fn may_learn(&self, task: Option<&str>, context: Option<&str>) -> bool {
        let Some(homes) = self.homes.as_ref().filter(|_| self.shared.sharing.get().is_some()) else {
            return false;
        };
        let now = Instant::now();
        let mut keys = affinity_keys(task, context).peekable();
        keys.peek().is_some() && keys.all(|kept| homes.find(kept, now).is_none())
    }

    /// Learns the endpoint of a task or a conversation from other replicas. Waits for at most `state.timeout`.
    pub(super) async fn learn(&self, task: Option<&str>, context: Option<&str>) {
        let (Some(homes), Some(sharing)) = (&self.homes, self.shared.sharing.get()) else { return };
        for kept in affinity_keys(task, context) {
            let found = sharing.find(homes.id(kept)).await;
            let at =
                found.and_then(|name| self.sites.iter().take(self.count).position(|site| site.name == name));
            if let Some(at) = at {
                homes.remember(kept, at, Some(sharing.affinity_age()), Instant::now());
                return;
            }
        }
    }

    /// Records the endpoint that holds the task and conversation of an event.
    pub(super) fn hear(&self, at: usize, event: &StreamResponse) {
        let (task, context) = match event {
            StreamResponse::Task(task) => (Some(&task.id), task.context_id.as_ref()),
            StreamResponse::Message(message) => (message.task_id.as_ref(), message.context_id.as_ref()),
            StreamResponse::Status { task_id, context_id, .. }
            | StreamResponse::Artifact { task_id, context_id, .. } => (task_id.as_ref(), context_id.as_ref()),
            StreamResponse::Unknown => (None, None),
        };
        self.remember(at, task.map(String::as_str), context.map(String::as_str));
    }

    /// Acquires the permit to check an endpoint; `None` while its breaker is open.
    pub(super) fn check(self: &Arc<Self>, at: usize) -> Option<EndpointPermit<'_>> {
        self.acquire_at(at).ok()
    }

    /// Returns the health of the endpoints.
    pub(super) fn standing(&self) -> Vec<EndpointStatus> {
        let now = Instant::now();
        let standing = |site: &EndpointTracker| EndpointStatus {
            busy: site.busy.load(Ordering::Relaxed),
            rests: site.breaker.open_for(now),
        };
        self.sites.iter().take(self.count).map(standing).collect()
    }
}

impl TriedEndpoints {
    pub(super) fn add(&mut self, at: usize) {
        self.0 |= 1 << (at % 64);
    }

    fn has(self, at: usize) -> bool {
        self.0 & (1 << (at % 64)) != 0
    }
}

/// One endpoint, or the address of a single method.
pub(super) struct EndpointTracker {
    pub(super) agent: String,
    pub(super) name: String,
    pub(super) breaker: Breaker,
    pub(super) busy: AtomicUsize,
    pub(super) metrics: EndpointMetrics,
    shared: Arc<EndpointsShared>,
}

/// State that all endpoints of one set share.
#[derive(Default)]
pub(super) struct EndpointsShared {
    /// The number of times that any of them failed or returned.
    pub(super) rounds: AtomicU32,
    /// Set once the newest card does not name them any more: others have their metrics then.
    is_retired: AtomicBool,
    sharing: SharedEndpoints,
}

/// The permit to send one request to one endpoint. Released when it is dropped.
pub(super) struct EndpointPermit<'a> {
    at: usize,
    site: &'a EndpointTracker,
    pass: BreakerPermit,
    busy: Option<InFlightGuard>,
}

/// A request that is under way at an endpoint, while this lives.
pub(super) struct InFlightGuard {
    endpoints: Arc<Endpoints>,
    at: usize,
}

impl<'a> EndpointPermit<'a> {
    /// Creates a permit from that of the breaker. If there are `several` endpoints, the request is
    /// counted while it is under way.
    pub(super) fn new(
        at: usize,
        site: &'a EndpointTracker,
        pass: BreakerPermit,
        several: Option<&Arc<Endpoints>>,
    ) -> Self {
        site.metrics.requests.inc();
        if pass == BreakerPermit::Probe {
            site.metrics.probes.inc();
        }
        let busy = several.map(|endpoints| {
            site.busy.fetch_add(1, Ordering::Relaxed);
            InFlightGuard { endpoints: Arc::clone(endpoints), at }
        });
        Self { at, site, pass, busy }
    }
}

impl EndpointPermit<'_> {
    /// Returns the number of the endpoint.
    pub(super) fn at(&self) -> usize {
        self.at
    }

    /// Records that a response has begun. The request is under way until the returned guard is
    /// dropped.
    pub(super) fn record_success(mut self, status: StatusCode) -> Option<InFlightGuard> {
        match status.as_u16() {
            502..=504 => self.fail(&status),
            _ => self.site.note(self.site.breaker.answered(self.pass), &status),
        }
        self.pass = BreakerPermit::Plain;
        self.busy.take()
    }

    /// Records a successful check.
    pub(super) fn record_check(mut self) {
        self.site.note(self.site.breaker.checked(self.pass), &"");
        self.pass = BreakerPermit::Plain;
    }

    /// Records that there was no response.
    pub(super) fn failed(mut self, error: &TransportError) {
        match error {
            TransportError::Resolve(_)
            | TransportError::Refused { .. }
            | TransportError::Connect(_)
            | TransportError::ConnectTimeout
            | TransportError::Proxy(_)
            | TransportError::Tls(_)
            | TransportError::FirstByteTimeout
            | TransportError::IdleTimeout
            | TransportError::TotalTimeout
            | TransportError::Unsent(_)
            | TransportError::Broken(_)
            | TransportError::Truncated => self.fail(error),
            // The endpoint is available, even if its response is unusable.
            TransportError::Unasked(_)
            | TransportError::Encoded
            | TransportError::HeaderTooLarge
            | TransportError::TooLarge { .. }
            | TransportError::TooManyPieces
            | TransportError::NoRoom(_) => self.site.note(self.site.breaker.answered(self.pass), error),
            // No request was sent.
            TransportError::BadUri(_) | TransportError::OpenFiles => return,
        }
        self.pass = BreakerPermit::Plain;
    }

    /// Records a check without a good response in time.
    pub(super) fn record_unreachable(mut self) {
        self.fail(&"no good answer to a health check");
        self.pass = BreakerPermit::Plain;
    }

    fn fail(&self, error: &dyn Display) {
        self.site.metrics.failures.inc();
        self.site.note(self.site.breaker.failed(self.pass, Instant::now(), rand::random()), error);
    }
}

impl Drop for EndpointPermit<'_> {
    fn drop(&mut self) {
        if self.pass == BreakerPermit::Probe {
            self.site.breaker.given_up(self.pass, Instant::now());
        }
    }
}

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        if let Some(site) = self.endpoints.site(self.at) {
            site.busy.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl EndpointTracker {
    /// Sets the gauge of this endpoint, unless it belongs to another one by now.
    fn show_up(&self, is_up: bool) {
        if !self.shared.is_retired.load(Ordering::Acquire) {
            self.metrics.up.set(is_up.into());
        }
    }

    /// Returns true if another replica has its breaker open. This one has not failed here: it is a hint.
    fn is_open_elsewhere(&self) -> bool {
        let sharing = self.shared.sharing.get();
        sharing.is_some_and(|sharing| sharing.is_open_elsewhere(&self.agent, &self.name))
    }

    fn share_breaker(&self, open: Option<Duration>) {
        if let Some(sharing) = self.shared.sharing.get() {
            sharing.note_breaker(&self.agent, &self.name, open);
        }
    }

    /// Logs and counts a transition, once. `error` is the last failure.
    fn note(&self, change: Transition, error: &dyn Display) {
        match change {
            Transition::None => {}
            Transition::Ejected(pause) => {
                self.shared.rounds.fetch_add(1, Ordering::Relaxed);
                self.metrics.ejections.inc();
                self.show_up(false);
                self.share_breaker(Some(pause));
                warn!(agent = self.agent, endpoint = self.name, %error, ?pause, "endpoint ejected");
            }
            Transition::Returned => {
                self.shared.rounds.fetch_add(1, Ordering::Relaxed);
                self.show_up(true);
                self.share_breaker(None);
                info!(agent = self.agent, endpoint = self.name, "endpoint is back");
            }
        }
    }
}

/// The maximum number of ids of one generation; there are two generations.
const MAX_GENERATION_IDS: usize = 65_536;
/// The time for which entries are added to a generation.
const AGE: Duration = Duration::from_secs(24 * 3600);

/// The key of an affinity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum AffinityKey<'a> {
    /// A task, by its id.
    Task(&'a str),
    /// A conversation, by its id.
    Context(&'a str),
}

fn affinity_keys<'a>(
    task: Option<&'a str>,
    context: Option<&'a str>,
) -> impl Iterator<Item = AffinityKey<'a>> {
    [task.map(AffinityKey::Task), context.map(AffinityKey::Context)].into_iter().flatten()
}

/// Name of a task or a conversation of an agent: a digest, since an agent chooses the length of its ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct AffinityId(pub(crate) [u8; 16]);

impl AffinityId {
    fn new(agent: &str, kept: AffinityKey<'_>) -> Self {
        let (kind, id) = match kept {
            AffinityKey::Task(id) => ("task", id),
            AffinityKey::Context(id) => ("context", id),
        };
        let name = Sha256::new().chain_update(agent).chain_update([0]).chain_update(kind);
        let digest = name.chain_update([0]).chain_update(id).finalize();
        Self(digest.first_chunk().copied().unwrap_or_default())
    }
}

/// The endpoint that holds a task or conversation, and the other endpoints that do not know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Affinity {
    at: usize,
    /// The round in which the others were asked.
    round: u32,
    /// The endpoints that answered in that round that they do not know it, one bit for each.
    asked: u64,
    /// Time at which it was passed to other replicas.
    shared: Instant,
}

/// The affinities of the tasks and conversations of one agent.
pub(super) struct AffinityMap {
    agent: Box<str>,
    inside: Mutex<AffinityState>,
}

struct AffinityState {
    young: HashMap<AffinityId, Affinity>,
    old: HashMap<AffinityId, Affinity>,
    since: Instant,
    most: usize,
}

impl AffinityMap {
    pub(super) fn new(agent: &str, now: Instant) -> Self {
        Self::of(agent, MAX_GENERATION_IDS, now)
    }

    fn of(agent: &str, most: usize, now: Instant) -> Self {
        let inside = AffinityState { young: HashMap::new(), old: HashMap::new(), since: now, most };
        Self { agent: agent.into(), inside: Mutex::new(inside) }
    }

    /// Returns the endpoint of this key, if it is known.
    pub(super) fn find(&self, kept: AffinityKey<'_>, now: Instant) -> Option<usize> {
        let key = self.id(kept);
        self.inside().touch(key, now).map(|home| home.at)
    }

    /// Records the endpoint of this key. Returns its id if other replicas are to be told: it was not
    /// recorded yet, or so long ago as `age`.
    pub(super) fn remember(
        &self,
        kept: AffinityKey<'_>,
        at: usize,
        age: Option<Duration>,
        now: Instant,
    ) -> Option<AffinityId> {
        let key = self.id(kept);
        let mut inside = self.inside();
        let home = inside.touch(key, now).filter(|home| home.at == at);
        let is_due = match home {
            None => true,
            Some(home) => age.is_some_and(|age| now.saturating_duration_since(home.shared) >= age),
        };
        let shared = if is_due { now } else { home.map_or(now, |home| home.shared) };
        let home = home.unwrap_or(Affinity { at, round: 0, asked: 0, shared });
        inside.put(key, Affinity { shared, ..home }, now);
        is_due.then_some(key)
    }

    /// Returns all affinities.
    fn all(&self) -> Vec<(AffinityId, usize)> {
        let inside = self.inside();
        inside.old.iter().chain(&inside.young).map(|(id, home)| (*id, home.at)).collect()
    }

    /// Returns true if this endpoint answered in this round that it does not know the key. A round
    /// ends when any endpoint fails or returns.
    pub(super) fn was_asked(&self, kept: AffinityKey<'_>, at: usize, round: u32, now: Instant) -> bool {
        let key = self.id(kept);
        let home = self.inside().touch(key, now);
        home.is_some_and(|home| home.round == round && home.asked & bit(at) != 0)
    }

    /// Records that this endpoint does not know the key.
    pub(super) fn note_asked(&self, kept: AffinityKey<'_>, at: usize, round: u32, now: Instant) {
        let key = self.id(kept);
        let mut inside = self.inside();
        let Some(home) = inside.touch(key, now) else { return };
        let asked = if home.round == round { home.asked } else { 0 };
        inside.put(key, Affinity { round, asked: asked | bit(at), ..home }, now);
    }

    fn id(&self, kept: AffinityKey<'_>) -> AffinityId {
        AffinityId::new(&self.agent, kept)
    }

    fn inside(&self) -> MutexGuard<'_, AffinityState> {
        lock(&self.inside)
    }
}

fn bit(at: usize) -> u64 {
    1 << (at % 64)
}

impl AffinityState {
    /// Returns an entry; entries that are used stay.
    fn touch(&mut self, key: AffinityId, now: Instant) -> Option<Affinity> {
        self.turn(now);
        if let Some(home) = self.young.get(&key) {
            return Some(*home);
        }
        let home = self.old.remove(&key)?;
        self.put(key, home, now);
        Some(home)
    }

    fn put(&mut self, key: AffinityId, home: Affinity, now: Instant) {
        if self.young.len() >= self.most && !self.young.contains_key(&key) {
            self.old = std::mem::take(&mut self.young);
            self.since = now;
        }
        self.young.insert(key, home);
    }

    /// Forgets the old generation once the young one has become old.
    fn turn(&mut self, now: Instant) {
        if now.saturating_duration_since(self.since) >= AGE {
            self.old = std::mem::take(&mut self.young);
            self.since = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::telemetry::metrics::Metrics;

    /// Shares among the endpoints of a test.
    #[derive(Default)]
    struct MemorySharing {
        kept: Mutex<HashMap<AffinityId, String>>,
        open: Mutex<HashSet<String>>,
    }

    #[async_trait]
    impl EndpointSharing for MemorySharing {
        async fn find(&self, kept: AffinityId) -> Option<String> {
            lock(&self.kept).get(&kept).cloned()
        }

        fn remember(&self, kept: AffinityId, endpoint: &str) {
            lock(&self.kept).insert(kept, endpoint.to_owned());
        }

        fn affinity_age(&self) -> Duration {
            Duration::from_secs(60)
        }

        fn note_breaker(&self, _: &str, endpoint: &str, open: Option<Duration>) {
            let mut all = lock(&self.open);
            let _changed =
                if open.is_some() { all.insert(endpoint.to_owned()) } else { all.remove(endpoint) };
        }

        fn is_open_elsewhere(&self, _: &str, endpoint: &str) -> bool {
            lock(&self.open).contains(endpoint)
        }
    }

    fn three_endpoints(sharing: &Arc<MemorySharing>) -> Arc<Endpoints> {
        let mut settings = config::Agent::new("agent", "");
        settings.endpoints = ["a", "b", "c"].map(|host| format!("http://{host}.example/")).into();
        let shared = SharedEndpoints::default();
        assert!(shared.set(sharing.clone()).is_ok());
        Arc::new(Endpoints::new(&settings, 0, &Metrics::new().unwrap().agent("agent"), shared))
    }

    #[tokio::test]
    async fn affinities_of_other_replicas_are_learned() {
        let sharing = Arc::<MemorySharing>::default();
        let (one, two) = (three_endpoints(&sharing), three_endpoints(&sharing));
        one.remember(2, Some("task"), Some("context"));
        assert!(!one.may_learn(Some("task"), None), "it is known here");
        assert!(two.may_learn(Some("task"), None) && !two.may_learn(None, None));
        two.learn(Some("task"), None).await;
        assert_eq!(two.home("task"), Some(2));
        assert!(two.may_learn(None, Some("context")));
        two.learn(None, Some("context")).await;
        assert!(!two.may_learn(None, Some("context")));
        two.learn(Some("unknown"), None).await;
        assert_eq!(two.home("unknown"), None);
    }

    #[tokio::test(start_paused = true)]
    async fn used_affinities_are_passed_on_again() {
        let sharing = Arc::<MemorySharing>::default();
        let one = three_endpoints(&sharing);
        one.remember(2, Some("task"), Some("context"));
        lock(&sharing.kept).clear();
        one.remember(2, Some("task"), None);
        assert!(lock(&sharing.kept).is_empty(), "it is known there");
        tokio::time::advance(sharing.affinity_age()).await;
        one.remember(2, Some("task"), None);
        one.remember(2, Some("task"), None);
        assert_eq!(lock(&sharing.kept).drain().count(), 1);
        // All of them, for an engine that has lost its data.
        one.affinities().into_iter().for_each(|(id, endpoint)| sharing.remember(id, &endpoint));
        let two = three_endpoints(&sharing);
        two.learn(Some("task"), None).await;
        two.learn(None, Some("context")).await;
        assert!(!two.may_learn(Some("task"), None) && !two.may_learn(None, Some("context")));
    }

    #[test]
    fn breaker_of_another_replica_is_a_hint() {
        let sharing = Arc::<MemorySharing>::default();
        let endpoints = three_endpoints(&sharing);
        let chosen = |tried| endpoints.least_busy(tried).map(|permit| permit.at());
        sharing.note_breaker("agent", "0", Some(Duration::from_secs(1)));
        for _ in 0..6 {
            assert!(chosen(TriedEndpoints::default()).is_ok_and(|at| at != 0));
        }
        let mut tried = TriedEndpoints::default();
        [1, 2].into_iter().for_each(|at| tried.add(at));
        assert_eq!(chosen(tried), Ok(0), "it is not refused");
    }

    #[test]
    fn a_task_and_a_conversation_of_the_same_name_are_two() {
        let now = Instant::now();
        let homes = AffinityMap::new("agent", now);
        assert_ne!(homes.id(AffinityKey::Task("x")), AffinityId::new("other", AffinityKey::Task("x")));
        homes.remember(AffinityKey::Task("x"), 1, None, now);
        homes.remember(AffinityKey::Context("x"), 2, None, now);
        assert_eq!(
            (homes.find(AffinityKey::Task("x"), now), homes.find(AffinityKey::Context("x"), now)),
            (Some(1), Some(2))
        );
        homes.remember(AffinityKey::Task("x"), 3, None, now);
        assert_eq!(homes.find(AffinityKey::Task("x"), now), Some(3));
    }

    #[test]
    fn used_affinities_stay() {
        let mut now = Instant::now();
        let homes = AffinityMap::of("agent", 3, now);
        homes.remember(AffinityKey::Task("used"), 1, None, now);
        homes.remember(AffinityKey::Task("unused"), 1, None, now);
        for number in 0..20 {
            homes.remember(AffinityKey::Task(&number.to_string()), 2, None, now);
            assert_eq!(homes.find(AffinityKey::Task("used"), now), Some(1), "{number}");
        }
        assert_eq!(homes.find(AffinityKey::Task("unused"), now), None);
        let held = {
            let inside = homes.inside();
            inside.young.len() + inside.old.len()
        };
        assert!(held <= 6, "{held}");
        now += AGE;
        assert_eq!(homes.find(AffinityKey::Task("used"), now), Some(1));
        now += AGE;
        homes.find(AffinityKey::Task("other"), now);
        now += AGE;
        assert_eq!(homes.find(AffinityKey::Task("used"), now), None);
    }

    #[test]
    fn a_place_is_asked_once_in_each_round() {
        let now = Instant::now();
        let homes = AffinityMap::new("agent", now);
        let task = AffinityKey::Task("x");
        homes.note_asked(task, 2, 1, now);
        assert!(!homes.was_asked(task, 2, 1, now), "it has no home");
        homes.remember(task, 1, None, now);
        for round in [1, 2] {
            assert!(!homes.was_asked(task, 2, round, now));
            homes.note_asked(task, 2, round, now);
            homes.note_asked(task, 3, round, now);
            homes.remember(task, 1, None, now);
            let asked = [2, 3, 4].map(|at| homes.was_asked(task, at, round, now));
            assert_eq!(asked, [true, true, false], "it has not moved");
        }
        homes.remember(task, 3, None, now);
        assert!(!homes.was_asked(task, 2, 2, now), "it has moved");
    }
}
