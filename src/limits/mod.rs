//! Quotas of callers and agents: request rate, concurrent calls, streams and tasks.
//!
//! Anonymous callers are distinguished by address. A request beyond a quota is rejected at once,
//! but calls of a busy agent may wait in its queue, first come, first served, for a limited time.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, BuildHasherDefault, Hash, Hasher};
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};
use std::time::{Duration, Instant};

use governor::clock::{Clock, DefaultClock};
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::auth::Caller;
use crate::config;
use crate::fault::{Abort, Fault};
use crate::quota::{AnswerRoom, BytePermit, ByteQuota, QuotaOwner};
use crate::shared_state::{CallerQuota, FreedUnits, SharedState, SharedUse, UseCounter};
use crate::sync::lock;
use crate::tasks::TaskEntry;
use crate::telemetry::metrics::{Metrics, QueueMetrics};

/// Live tasks by caller, then by local task number.
type CallerTasks = HashMap<Arc<str>, HashMap<[u8; 16], CallerTask>>;

/// Task of a caller.
enum CallerTask {
    /// Reserved, not begun.
    Promised,
    /// Begun.
    Begun(Weak<TaskEntry>),
}

/// Permits of one running call, or of one open stream.
pub(crate) struct UsePermit {
    _caller: Option<QuotaPermit>,
    _all: CountPermit,
}

/// Number of units that all callers use.
#[derive(Clone, Default)]
struct UseCount(Arc<AtomicUsize>);

impl UseCount {
    /// Acquires a permit if fewer than `limit` are in use.
    fn acquire(&self, limit: usize) -> Option<CountPermit> {
        let more = |used: usize| Some(used + 1).filter(|used| *used <= limit);
        self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).ok()?;
        Some(CountPermit(self.clone()))
    }
}

/// Permit for one unit, until it is dropped.
struct CountPermit(UseCount);

impl Drop for CountPermit {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// All quotas. The limits are those of one configuration; the use is counted across them.
pub(crate) struct Limits {
    /// Most concurrent calls and open streams of all callers.
    most_calls: usize,
    most_streams: usize,
    /// Concurrent calls of all callers.
    all_calls: UseCount,
    /// Open streams of all callers.
    all_streams: UseCount,
    rate: CallerRate,
    calls: usize,
    streams: usize,
    tasks: usize,
    bytes: Arc<ByteQuota>,
    /// Most bytes of one response of an agent.
    answer: usize,
    agents: HashMap<String, Arc<AgentLimits>>,
    in_use: Arc<UsageCounters>,
    /// Tasks of each caller; anonymous callers share one entry. Ended tasks are removed when they
    /// are counted.
    held: Arc<Mutex<CallerTasks>>,
    /// Counts rates among all replicas.
    shared: Option<Arc<SharedState>>,
}

/// Limits of one agent.
struct AgentLimits {
    settings: AgentQuota,
    rate: Option<governor::DefaultDirectRateLimiter>,
    calls: Option<Arc<AgentQueue>>,
}

/// Settings of the limits of one agent.
#[derive(Clone, Copy, PartialEq, Eq)]
struct AgentQuota {
    rate: usize,
    calls: usize,
    queue: config::Queue,
}

/// Most concurrent pushes to one caller, so that a slow webhook does not use the room of others.
const MOST_PUSHES: usize = 32;

/// Reserved task slot, until the task is tracked or this is dropped.
pub(crate) struct TaskReservation {
    caller: Arc<str>,
    number: [u8; 16],
    held: Arc<Mutex<CallerTasks>>,
}

/// Returns the quota owner of a request: the caller, or the network of an anonymous one.
pub(crate) fn quota_owner(caller: &Caller, network: Option<IpAddr>) -> QuotaOwner {
    match network {
        Some(network) if caller.is_anonymous() => QuotaOwner::Address(network),
        _ => QuotaOwner::Caller(caller.name().into()),
    }
}

impl Limits {
    /// Creates the quotas from these limits. No caller may use up a global limit alone.
    pub(crate) fn new(limits: &config::Limits, agents: &[config::Agent], metrics: &Arc<Metrics>) -> Self {
        Self::with(limits, agents, metrics, None)
    }

    /// Counts rates, calls, streams and tasks among all replicas, too.
    #[must_use]
    pub(crate) fn shared_by(self, shared: Option<Arc<SharedState>>) -> Self {
        if let Some(shared) = &shared {
            let (in_use, held) = (self.in_use.clone(), self.held.clone());
            let freed = shared.set_use_counter(Box::new(CallerUse { in_use, held }));
            drop(self.in_use.freed.set(freed));
        }
        Self { shared, ..self }
    }

    /// Creates the quotas of changed limits. Everything that is in use now counts against them, except
    /// calls at an agent with another `max_calls` or `queue`; a rate that has not changed continues.
    pub(crate) fn renewed(
        &self,
        limits: &config::Limits,
        agents: &[config::Agent],
        metrics: &Arc<Metrics>,
    ) -> Self {
        Self::with(limits, agents, metrics, Some(self))
    }

    fn with(
        limits: &config::Limits,
        agents: &[config::Agent],
        metrics: &Arc<Metrics>,
        before: Option<&Self>,
    ) -> Self {
        let agents = agents.iter().map(|agent| {
            let settings = AgentQuota { rate: agent.rate, calls: agent.max_calls, queue: agent.queue };
            let known = before.and_then(|before| before.agents.get(&agent.name));
            let limits = match known {
                Some(known) if known.settings == settings => known.clone(),
                known => {
                    Arc::new(AgentLimits::new(settings, &agent.name, metrics, known.map(|known| &**known)))
                }
            };
            (agent.name.clone(), limits)
        });
        let (most_bytes, caller_bytes) = (limits.bytes, part_of(limits.caller_bytes, limits.bytes));
        let bytes = match before {
            Some(before) => before.bytes.renewed(most_bytes, caller_bytes),
            None => ByteQuota::new(most_bytes, caller_bytes, metrics.clone()),
        };
        let rate = CallerRate::new(limits.caller_rate, limits.caller_burst);
        Self {
            most_calls: limits.calls,
            most_streams: limits.streams,
            all_calls: before.map(|before| before.all_calls.clone()).unwrap_or_default(),
            all_streams: before.map(|before| before.all_streams.clone()).unwrap_or_default(),
            rate: before.map_or_else(|| rate.clone(), |before| before.rate.unless_changed(&rate)),
            calls: limits.caller_calls,
            streams: part_of(limits.caller_streams, limits.streams),
            tasks: limits.caller_tasks,
            bytes: Arc::new(bytes),
            answer: limits.response,
            agents: agents.collect(),
            in_use: before.map(|before| before.in_use.clone()).unwrap_or_default(),
            held: before.map(|before| before.held.clone()).unwrap_or_default(),
            shared: before.and_then(|before| before.shared.clone()),
        }
    }

    /// Counts a request against the rate: of this replica, which is quick, then of all of them.
    ///
    /// # Errors
    ///
    /// [`Fault::RateLimited`], with the wait.
    pub(crate) async fn check_request_rate(&self, owner: &QuotaOwner) -> Result<(), Fault> {
        self.rate.check(owner)?;
        let Some((shared, quota)) = self.shared.as_ref().zip(self.rate.quota) else { return Ok(()) };
        // Boxed: a rare case must not make every request larger.
        match Box::pin(take_shared(shared, owner, quota)).await {
            Some(wait) => Err(Fault::RateLimited(seconds(wait))),
            None => Ok(()),
        }
    }

    /// Acquires a permit of a caller's quota.
    ///
    /// # Errors
    ///
    /// [`Fault::QuotaExceeded`] if the quota is used up.
    pub(crate) fn acquire(&self, owner: &QuotaOwner, kind: QuotaKind) -> Result<QuotaPermit, Fault> {
        let (limit, text) = self.quota(kind);
        self.in_use.acquire(owner.clone(), kind, limit).ok_or(Fault::QuotaExceeded(text))
    }

    /// Returns the limit of one caller, and the reason for which it gets no more.
    fn quota(&self, kind: QuotaKind) -> (usize, &'static str) {
        match kind {
            QuotaKind::Call => (self.calls, "too many calls of yours are under way"),
            QuotaKind::Body => (self.calls, "too many requests of yours are being read"),
            QuotaKind::Stream => (self.streams, "too many streams of yours are open"),
            QuotaKind::Push => (MOST_PUSHES, "too many pushes are on their way to you"),
        }
    }

    /// Acquires a permit of a caller's quota, which counts all replicas that share state.
    async fn acquire_shared(
        &self,
        owner: Option<&QuotaOwner>,
        kind: QuotaKind,
    ) -> Result<Option<QuotaPermit>, Fault> {
        let (Some(owner), Some(shared)) = (owner, &self.shared) else {
            return owner.map(|owner| self.acquire(owner, kind)).transpose();
        };
        let (limit, text) = self.quota(kind);
        let quota = UseQuota { in_use: &self.in_use, owner, kind, limit };
        // Boxed: a rare case must not make every request larger.
        let permit = Box::pin(shared.acquire_unit(&quota)).await;
        permit.map(Some).ok_or(Fault::QuotaExceeded(text))
    }

    /// Acquires the permits for one more call.
    ///
    /// # Errors
    ///
    /// [`Fault::QuotaExceeded`] if the caller's quota is used up, [`Fault::Busy`] if that of all is.
    pub(crate) async fn acquire_call(&self, owner: Option<&QuotaOwner>) -> Result<UsePermit, Fault> {
        let caller = self.acquire_shared(owner, QuotaKind::Call).await?;
        let all = self.all_calls.acquire(self.most_calls);
        let all = all.ok_or(Fault::Busy("too many calls are under way"))?;
        Ok(UsePermit { _caller: caller, _all: all })
    }

    /// Acquires the permits for one more stream without an end.
    ///
    /// # Errors
    ///
    /// As [`Limits::acquire_call`].
    pub(crate) async fn acquire_stream(&self, owner: Option<&QuotaOwner>) -> Result<UsePermit, Fault> {
        let caller = self.acquire_shared(owner, QuotaKind::Stream).await?;
        let all = self.all_streams.acquire(self.most_streams);
        let all = all.ok_or(Fault::Busy("too many open streams"))?;
        Ok(UsePermit { _caller: caller, _all: all })
    }

    /// Returns a permit for the bytes of a buffer. It counts no bytes yet.
    pub(crate) fn permit(&self, owner: Option<&QuotaOwner>) -> BytePermit {
        self.bytes.permit(owner)
    }

    /// Returns the limit and the permit for an agent's response to this caller.
    pub(crate) fn answer_room(&self, owner: Option<&QuotaOwner>) -> AnswerRoom {
        AnswerRoom { limit: self.answer, permit: self.permit(owner) }
    }

    /// Returns the byte quota of all requests and responses.
    pub(crate) fn bytes(&self) -> &Arc<ByteQuota> {
        &self.bytes
    }

    /// Acquires a call permit of an agent, possibly after a wait; `None` if the agent has no
    /// limits.
    ///
    /// # Errors
    ///
    /// [`Fault::Busy`] if the agent's limits are reached; [`Abort::ClientGone`] if the client
    /// `leaves` before it gets a permit.
    pub(crate) async fn acquire_agent_call(
        &self,
        agent: &str,
        leaves: impl Future<Output = ()>,
    ) -> Result<Option<CallPermit>, Abort> {
        let name = agent;
        let Some(agent) = self.agents.get(agent) else { return Ok(None) };
        if agent.rate.as_ref().is_some_and(|rate| rate.check().is_err()) {
            return Err(Fault::Busy("this agent is called too often").into());
        }
        if let (Some(shared), Some(rate)) = (&self.shared, quota(agent.settings.rate, agent.settings.rate)) {
            let owner = QuotaOwner::Agent(name.into());
            if Box::pin(take_shared(shared, &owner, rate)).await.is_some() {
                return Err(Fault::Busy("this agent is called too often").into());
            }
        }
        match &agent.calls {
            Some(queue) => queue.acquire(leaves).await.map(Some),
            None => Ok(None),
        }
    }

    /// Records that a caller holds a task. All anonymous callers count as one.
    pub(crate) fn track_task(&self, caller: &Caller, entry: &Arc<TaskEntry>) {
        let mut held = lock(&self.held);
        let tasks = held.entry(caller.name().into()).or_default();
        // Tasks beyond the limit need not be counted.
        if tasks.contains_key(&entry.local()) || has_room(tasks, self.tasks) {
            tasks.insert(entry.local(), CallerTask::Begun(Arc::downgrade(entry)));
        }
    }

    /// Reserves a task slot for `caller` before the task starts. Anonymous callers share their
    /// slots.
    ///
    /// # Errors
    ///
    /// [`Fault::QuotaExceeded`] if the caller's live and reserved tasks are at the limit.
    pub(crate) async fn reserve_task(
        &self,
        caller: &Caller,
        number: [u8; 16],
    ) -> Result<TaskReservation, Fault> {
        let owner = QuotaOwner::Caller(caller.name().into());
        let quota = TaskQuota { held: &self.held, owner: &owner, number, limit: self.tasks };
        let reservation = match &self.shared {
            None => quota.acquire(self.tasks),
            Some(shared) => Box::pin(shared.acquire_unit(&quota)).await,
        };
        reservation.ok_or(Fault::QuotaExceeded("too many tasks of yours are live"))
    }

    /// Removes idle entries.
    pub(crate) fn sweep(&self) {
        lock(&self.held).retain(|_, tasks| {
            tasks.retain(|_, task| is_live(task));
            !tasks.is_empty()
        });
        self.rate.sweep();
    }
}

/// Request rate of each caller for one kind of request. Clones count together.
#[derive(Clone)]
pub(crate) struct CallerRate {
    rate: Option<Arc<DefaultKeyedRateLimiter<QuotaOwner>>>,
    quota: Option<Quota>,
    clock: DefaultClock,
}

impl CallerRate {
    /// Creates a rate of so many requests per second, and `burst` at once. A rate of 0 is no limit.
    pub(crate) fn new(per_second: usize, burst: usize) -> Self {
        let quota = quota(per_second, burst);
        let rate = quota.map(RateLimiter::keyed).map(Arc::new);
        Self { rate, quota, clock: DefaultClock::default() }
    }

    /// Returns this rate with its state, or the `new` one if that differs.
    fn unless_changed(&self, new: &Self) -> Self {
        if self.quota == new.quota { self.clone() } else { new.clone() }
    }

    /// Counts a request of this caller.
    ///
    /// # Errors
    ///
    /// [`Fault::RateLimited`], with the wait.
    pub(crate) fn check(&self, owner: &QuotaOwner) -> Result<(), Fault> {
        let Some(rate) = &self.rate else { return Ok(()) };
        rate.check_key(owner)
            .map_err(|until| Fault::RateLimited(seconds(until.wait_time_from(self.clock.now()))))
    }

    /// Removes idle entries.
    pub(crate) fn sweep(&self) {
        if let Some(rate) = &self.rate {
            rate.retain_recent();
            rate.shrink_to_fit();
        }
    }
}

impl Drop for TaskReservation {
    fn drop(&mut self) {
        let mut held = lock(&self.held);
        let Some(tasks) = held.get_mut(&self.caller) else { return };
        if matches!(tasks.get(&self.number), Some(CallerTask::Promised)) {
            tasks.remove(&self.number);
        }
    }
}

/// Returns true if there are fewer than `most` live tasks. Ended tasks are removed only when the
/// limit is reached.
fn has_room(tasks: &mut HashMap<[u8; 16], CallerTask>, most: usize) -> bool {
    if tasks.len() >= most {
        tasks.retain(|_, task| is_live(task));
    }
    tasks.len() < most
}

/// Calls or streams of one caller.
struct UseQuota<'a> {
    in_use: &'a Arc<UsageCounters>,
    owner: &'a QuotaOwner,
    kind: QuotaKind,
    limit: usize,
}

impl CallerQuota for UseQuota<'_> {
    type Permit = QuotaPermit;

    fn name(&self) -> (&QuotaOwner, SharedUse) {
        let of = if self.kind == QuotaKind::Stream { SharedUse::Streams } else { SharedUse::Calls };
        (self.owner, of)
    }

    fn limit(&self) -> usize {
        self.limit
    }

    fn acquire(&self, most: usize) -> Option<QuotaPermit> {
        self.in_use.acquire(self.owner.clone(), self.kind, most)
    }
}

/// Live tasks of one caller; `number` is that of the next.
struct TaskQuota<'a> {
    held: &'a Arc<Mutex<CallerTasks>>,
    owner: &'a QuotaOwner,
    number: [u8; 16],
    limit: usize,
}

impl CallerQuota for TaskQuota<'_> {
    type Permit = TaskReservation;

    fn name(&self) -> (&QuotaOwner, SharedUse) {
        (self.owner, SharedUse::Tasks)
    }

    fn limit(&self) -> usize {
        self.limit
    }

    fn acquire(&self, most: usize) -> Option<TaskReservation> {
        let QuotaOwner::Caller(caller) = self.owner else { return None };
        let mut held = lock(self.held);
        let tasks = held.entry(caller.clone()).or_default();
        if !has_room(tasks, most) {
            return None;
        }
        tasks.insert(self.number, CallerTask::Promised);
        Some(TaskReservation { caller: caller.clone(), number: self.number, held: self.held.clone() })
    }
}

/// The use of all callers, for other replicas.
struct CallerUse {
    in_use: Arc<UsageCounters>,
    held: Arc<Mutex<CallerTasks>>,
}

impl UseCounter for CallerUse {
    fn used(&self, owner: &QuotaOwner, of: SharedUse) -> usize {
        match (of, owner) {
            (SharedUse::Calls, owner) => self.in_use.count(owner, QuotaKind::Call),
            (SharedUse::Streams, owner) => self.in_use.count(owner, QuotaKind::Stream),
            (SharedUse::Tasks, QuotaOwner::Caller(caller)) => {
                lock(&self.held).get_mut(caller).map_or(0, count_live)
            }
            (SharedUse::Tasks, QuotaOwner::Address(_) | QuotaOwner::Agent(_)) => 0,
        }
    }

    fn all_used(&self) -> Vec<(QuotaOwner, SharedUse, usize)> {
        let mut used = self.in_use.report();
        // One caller at a time: calls wait for this lock.
        let callers: Vec<Arc<str>> = lock(&self.held).keys().cloned().collect();
        for owner in callers.into_iter().map(QuotaOwner::Caller) {
            let live = self.used(&owner, SharedUse::Tasks);
            if live > 0 {
                used.push((owner, SharedUse::Tasks, live));
            }
        }
        used
    }
}

/// Removes the tasks that have ended, and returns the number of the others.
fn count_live(tasks: &mut HashMap<[u8; 16], CallerTask>) -> usize {
    tasks.retain(|_, task| is_live(task));
    tasks.len()
}

/// Returns the limit of one caller within a global limit: at most three quarters of it, so that no
/// caller uses all. A global limit below four cannot be divided.
fn part_of(of_one: usize, of_all: usize) -> usize {
    let left = of_all / 4;
    if left == 0 { of_one } else { of_one.min(of_all - left) }
}

fn is_live(task: &CallerTask) -> bool {
    match task {
        CallerTask::Promised => true,
        CallerTask::Begun(task) => task.upgrade().is_some_and(|entry| !entry.is_finished()),
    }
}

fn quota(rate: usize, burst: usize) -> Option<Quota> {
    let number = |number: usize| NonZeroU32::new(u32::try_from(number).unwrap_or(u32::MAX));
    let rate = number(rate)?;
    Some(Quota::per_second(rate).allow_burst(number(burst).unwrap_or(rate)))
}

/// Counts one against a rate of all replicas; returns the wait if there are too many.
async fn take_shared(shared: &SharedState, owner: &QuotaOwner, rate: Quota) -> Option<Duration> {
    let interval = rate.replenish_interval();
    shared.take_rate(owner, interval, rate.burst_size().get()).await
}

/// Rounds up to whole seconds: a client that retries too early is rejected again.
fn seconds(wait: std::time::Duration) -> u64 {
    wait.as_secs() + u64::from(wait.subsec_nanos() > 0)
}

impl AgentLimits {
    /// Creates the limits. The queue of those `before` is kept if its settings are the same.
    fn new(settings: AgentQuota, agent: &str, metrics: &Arc<Metrics>, before: Option<&Self>) -> Self {
        let rate = quota(settings.rate, settings.rate).map(RateLimiter::direct);
        let is_same = |before: &&Self| {
            (before.settings.calls, before.settings.queue) == (settings.calls, settings.queue)
        };
        let queue =
            || Arc::new(AgentQueue::new(settings.calls, settings.queue, metrics.agent(agent).queue()));
        let calls = match before.filter(is_same) {
            Some(before) => before.calls.clone(),
            None => (settings.calls > 0).then(queue),
        };
        Self { settings, rate, calls }
    }
}

/// Permits of one agent, and the queue for them.
pub(crate) struct AgentQueue {
    places: Arc<Semaphore>,
    size: usize,
    wait: Duration,
    waiting: AtomicUsize,
    metrics: QueueMetrics,
}

/// Right to make one call to an agent, until it is dropped.
pub(crate) type CallPermit = OwnedSemaphorePermit;

/// Position of a waiting call, while it lives.
struct Waiter<'a> {
    queue: &'a AgentQueue,
    since: Instant,
}

impl AgentQueue {
    /// Creates the permits for `most` concurrent calls, and the queue for them.
    pub(crate) fn new(most: usize, settings: config::Queue, metrics: QueueMetrics) -> Self {
        let config::Queue { size, wait } = settings;
        let places = Arc::new(Semaphore::new(most.min(Semaphore::MAX_PERMITS)));
        Self { places, size, wait, waiting: AtomicUsize::new(0), metrics }
    }

    /// Acquires a permit, at once or after a wait.
    ///
    /// # Errors
    ///
    /// [`Fault::Busy`] if there is no permit and the queue is full or too slow; [`Abort::ClientGone`]
    /// once the client `leaves`.
    pub(crate) async fn acquire(&self, leaves: impl Future<Output = ()>) -> Result<CallPermit, Abort> {
        const FULL: &str = "too many calls of this agent are under way";
        // Later calls never overtake waiting ones: a free permit goes to the first waiter.
        if let Ok(place) = self.places.clone().try_acquire_owned() {
            return Ok(place);
        }
        let _waiting = self.join().ok_or(Fault::Busy(FULL))?;
        let turn = pin!(tokio::time::timeout(self.wait, self.places.clone().acquire_owned()));
        tokio::select! {
            biased;
            turn = turn => match turn {
                Ok(Ok(place)) => Ok(place),
                Ok(Err(_)) => Err(Fault::Busy(FULL).into()),
                Err(_) => Err(Fault::Busy("no call of this agent ended in time").into()),
            },
            () = leaves => Err(Abort::ClientGone),
        }
    }

    fn join(&self) -> Option<Waiter<'_>> {
        let more = |waiting: usize| Some(waiting + 1).filter(|waiting| *waiting <= self.size);
        self.waiting.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).ok()?;
        self.metrics.enter();
        Some(Waiter { queue: self, since: Instant::now() })
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.queue.waiting.fetch_sub(1, Ordering::AcqRel);
        self.queue.metrics.leave(self.since.elapsed());
    }
}

/// Kind of use that a quota counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum QuotaKind {
    /// Call of a tool.
    Call,
    /// Request that waits for its body.
    Body,
    /// Open stream.
    Stream,
    /// Push of an agent on its way to a client.
    Push,
}

const SHARDS: usize = 16;

/// Counters by owner and kind. An entry at zero is removed.
#[derive(Default)]
pub(crate) struct UsageCounters {
    shards: [Mutex<UsageShard>; SHARDS],
    hasher: RandomState,
    /// Told of units that are free again, if replicas share state.
    freed: OnceLock<Arc<FreedUnits>>,
}

type UsageShard = HashMap<UsageKey, usize, BuildHasherDefault<PrecomputedHasher>>;

/// Owner and kind with their hash, which is computed once and needed four times a call.
#[derive(Clone, PartialEq, Eq)]
struct UsageKey {
    hash: u64,
    of: (QuotaOwner, QuotaKind),
}

/// Hasher that returns the hash in a [`UsageKey`].
#[derive(Default)]
struct PrecomputedHasher(u64);

/// Permit for one unit of a quota, until it is dropped.
pub(crate) struct QuotaPermit {
    key: UsageKey,
    in_use: Arc<UsageCounters>,
}

impl UsageCounters {
    /// Acquires a permit if fewer than `limit` are in use.
    pub(crate) fn acquire(
        self: &Arc<Self>,
        owner: QuotaOwner,
        kind: QuotaKind,
        limit: usize,
    ) -> Option<QuotaPermit> {
        if limit == 0 {
            // No entry without a permit.
            return None;
        }
        let key = self.key(owner, kind);
        {
            let mut shard = self.shard(&key)?;
            let used = shard.entry(key.clone()).or_insert(0);
            if *used >= limit {
                return None;
            }
            *used += 1;
        }
        Some(QuotaPermit { key, in_use: self.clone() })
    }

    fn key(&self, owner: QuotaOwner, kind: QuotaKind) -> UsageKey {
        let of = (owner, kind);
        UsageKey { hash: self.hasher.hash_one(&of), of }
    }

    /// Returns the units of a caller that are in use.
    fn count(&self, owner: &QuotaOwner, kind: QuotaKind) -> usize {
        let key = self.key(owner.clone(), kind);
        self.shard(&key).and_then(|shard| shard.get(&key).copied()).unwrap_or_default()
    }

    /// Returns the calls and streams of callers, for other replicas.
    fn report(&self) -> Vec<(QuotaOwner, SharedUse, usize)> {
        let mut used = Vec::new();
        for shard in &self.shards {
            for (UsageKey { of: (owner, kind), .. }, count) in lock(shard).iter() {
                match kind {
                    QuotaKind::Call => used.push((owner.clone(), SharedUse::Calls, *count)),
                    QuotaKind::Stream => used.push((owner.clone(), SharedUse::Streams, *count)),
                    QuotaKind::Body | QuotaKind::Push => {}
                }
            }
        }
        used
    }

    /// Returns true if no permit is in use.
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.shards.iter().all(|shard| shard.lock().unwrap().is_empty())
    }

    fn shard(&self, key: &UsageKey) -> Option<MutexGuard<'_, UsageShard>> {
        // Neither the lowest nor the highest bits: the maps use those.
        let at = usize::try_from((key.hash >> 32) % SHARDS as u64).ok()?;
        Some(lock(self.shards.get(at)?))
    }
}

impl Hash for UsageKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

impl Hasher for PrecomputedHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.0 = self.0.rotate_left(8) ^ u64::from(*byte));
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

impl Drop for QuotaPermit {
    fn drop(&mut self) {
        let Some(mut shard) = self.in_use.shard(&self.key) else { return };
        if let Some(used) = shard.get_mut(&self.key) {
            *used = used.saturating_sub(1);
            if *used == 0 {
                shard.remove(&self.key);
            }
        }
        drop(shard);
        if let Some(freed) = self.in_use.freed.get() {
            freed.note();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tasks::Timestamp;

    fn limits(limits: config::Limits) -> Limits {
        let mut agent = config::Agent::new("bard", "http://bard.example/");
        agent.max_calls = 1;
        Limits::new(&limits, &[agent], &Metrics::new().unwrap())
    }

    #[test]
    fn a_share_is_the_caller_s_own_and_comes_back() {
        let limits = limits(config::Limits { caller_calls: 2, ..config::Limits::default() });
        let (ann, ben) = (QuotaOwner::Caller("key:ann".into()), QuotaOwner::Caller("key:ben".into()));
        let parts =
            [limits.acquire(&ann, QuotaKind::Call).unwrap(), limits.acquire(&ann, QuotaKind::Call).unwrap()];
        assert!(matches!(limits.acquire(&ann, QuotaKind::Call), Err(Fault::QuotaExceeded(_))));
        assert!(
            limits.acquire(&ann, QuotaKind::Stream).is_ok() && limits.acquire(&ben, QuotaKind::Call).is_ok()
        );
        drop(parts);
        assert!(limits.acquire(&ann, QuotaKind::Call).is_ok());
        assert!(limits.in_use.is_empty(), "nothing is left");
    }

    #[tokio::test]
    async fn requests_beyond_the_rate_are_told_when_to_come_back() {
        let limits = limits(config::Limits { caller_rate: 1, caller_burst: 2, ..config::Limits::default() });
        let ann = QuotaOwner::Address("192.0.2.1".parse().unwrap());
        assert!(
            limits.check_request_rate(&ann).await.is_ok() && limits.check_request_rate(&ann).await.is_ok()
        );
        assert_eq!(limits.check_request_rate(&ann).await, Err(Fault::RateLimited(1)));
        assert!(limits.check_request_rate(&QuotaOwner::Address("192.0.2.2".parse().unwrap())).await.is_ok());
    }

    #[test]
    fn no_caller_takes_what_is_for_all() {
        for (of_one, of_all, share) in
            [(256, 1024, 256), (256, 100, 75), (9, 4, 3), (9, 3, 9), (9, 1, 9), (1, 1024, 1)]
        {
            assert_eq!(part_of(of_one, of_all), share, "{of_one} of {of_all}");
        }
    }

    #[tokio::test]
    async fn the_last_place_for_a_task_is_given_once() {
        let limits = limits(config::Limits { caller_tasks: 1, ..config::Limits::default() });
        let ann = Caller::hypothetical("key:ann", Vec::new(), Vec::new());
        let place = limits.reserve_task(&ann, [1; 16]).await.unwrap();
        assert!(limits.reserve_task(&ann, [2; 16]).await.is_err(), "nothing of it is in the map yet");
        drop(place);
        let place = limits.reserve_task(&ann, [2; 16]).await.unwrap();
        let entry = Arc::new(TaskEntry::new(
            "bard".into(),
            [2; 16],
            crate::bridge::output::AgentOutput::new(9),
            Timestamp::now(),
        ));
        limits.track_task(&ann, &entry);
        drop(place);
        assert!(limits.reserve_task(&ann, [3; 16]).await.is_err(), "it is held now");
        drop(entry);
        assert!(limits.reserve_task(&ann, [3; 16]).await.is_ok());
        let place = limits.reserve_task(&Caller::anonymous(), [4; 16]).await;
        assert!(place.is_ok() && limits.reserve_task(&Caller::anonymous(), [5; 16]).await.is_err());
        drop(place);
        limits.sweep();
        assert!(lock(&limits.held).is_empty());
    }

    #[tokio::test]
    async fn an_agent_has_a_share_of_its_own() {
        let limits = limits(config::Limits::default());
        let call_of = |agent| limits.acquire_agent_call(agent, std::future::pending());
        let place = call_of("bard").await.unwrap();
        assert!(place.is_some() && matches!(call_of("bard").await, Err(Abort::Rejected(Fault::Busy(_)))));
        drop(place);
        assert!(call_of("bard").await.is_ok() && call_of("other").await.unwrap().is_none());
    }
}

#[cfg(test)]
mod queue_tests {
    use super::*;
    use crate::telemetry::metrics::Metrics;
    use std::future::{pending, ready};
    use std::task::{Context, Poll, Waker};

    fn queue(size: usize, wait: Duration) -> AgentQueue {
        AgentQueue::new(1, config::Queue { size, wait }, Metrics::new().unwrap().agent("bard").queue())
    }

    fn polled<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    #[tokio::test]
    async fn they_wait_in_their_order_and_no_more_than_fit() {
        let queue = queue(2, Duration::from_secs(600));
        let place = queue.acquire(pending()).await.unwrap();
        let mut first = Box::pin(queue.acquire(pending()));
        let mut second = Box::pin(queue.acquire(pending()));
        assert!(polled(first.as_mut()).is_pending() && polled(second.as_mut()).is_pending());
        assert!(
            matches!(queue.acquire(pending()).await, Err(Abort::Rejected(Fault::Busy(_)))),
            "the line is full"
        );
        drop(place);
        assert!(polled(second.as_mut()).is_pending(), "the first one comes first");
        let place = first.await.unwrap();
        assert!(polled(second.as_mut()).is_pending());
        drop(place);
        assert!(second.await.is_ok());
        assert_eq!(queue.waiting.load(Ordering::Acquire), 0);
    }

    #[tokio::test]
    async fn waiters_that_leave_free_their_place() {
        let queue = queue(1, Duration::from_millis(1));
        let place = queue.acquire(pending()).await.unwrap();
        assert!(matches!(queue.acquire(ready(())).await, Err(Abort::ClientGone)));
        assert!(matches!(queue.acquire(pending()).await, Err(Abort::Rejected(Fault::Busy(_)))));
        assert_eq!(queue.waiting.load(Ordering::Acquire), 0);
        drop(place);
        assert!(queue.acquire(pending()).await.is_ok());
    }

    #[tokio::test]
    async fn no_queue_means_no_waiting() {
        let queue = queue(0, Duration::from_secs(600));
        let _place = queue.acquire(pending()).await.unwrap();
        assert!(matches!(queue.acquire(pending()).await, Err(Abort::Rejected(Fault::Busy(_)))));
    }
}
