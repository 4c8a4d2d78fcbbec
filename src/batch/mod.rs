//! Batches: lists of calls that are fanned over agents, with priorities and bounded concurrency.
//!
//! [`BatchService::call`] serves the tool `batch_start`. Each call is a call of the engine with a
//! client of its own, so that the failure of one leaves the others alone; the batch goes on when its
//! client stops waiting. Everything belongs to one owner of a quota: queue, settings, measurements
//! and results. Kept in memory, and bounded: batches end with the process.
//!
//! A batch runs at one replica. Others know it by rows, if they share state.
//!
//! `start` has the tools and runs one call; `report` has settings, measurements and the resources
//! `batchtools://…`; `sharing` has the rows for other replicas.

mod report;
mod sharing;
mod start;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::sync::watch;

use crate::bridge::provider_tools::{BatchPriority, BatchStartCall, BatchStrategy, BatchedCall};
use crate::calls::{CallEngine, ClientContext};
use crate::quota::QuotaOwner;
use crate::resources::owner_of;
use crate::shared_state::SharedState;
use crate::sync::lock;
use crate::tasks::Timestamp;
use report::{BatchMeasurement, BatchMetrics, BatchSettings, CpuMeter, whole};
use sharing::{BatchSharing, ForeignBatch, OwnerRows};
use start::{BatchClient, CallRun};

pub(crate) use report::BatchResources;

/// Most callers of which batches, settings or measurements are kept.
const MAX_OWNERS: usize = 10_000;
/// Time after which the settings and measurements of a caller without batches are forgotten.
const IDLE_OWNER_TIMEOUT: Duration = Duration::from_secs(24 * 3600);
/// Bytes that a call needs besides its arguments and its result.
const CALL_BYTES: usize = 512;

/// Bounds of batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BatchLimits {
    /// Most calls of one caller at once.
    pub(crate) max_concurrency: usize,
    /// Most calls of one batch.
    pub(crate) max_calls: usize,
    /// Most calls of one caller that wait.
    pub(crate) queue_size: usize,
    /// Most batches of one caller, with the finished ones.
    pub(crate) caller_batches: usize,
    /// Most bytes of arguments and results of one caller.
    pub(crate) caller_bytes: usize,
    /// Most bytes of arguments and results of all callers.
    pub(crate) max_bytes: usize,
    /// Longest time for one call; then its result names the task.
    pub(crate) call_timeout: Duration,
    /// Time for which a finished batch is kept.
    pub(crate) keep: Duration,
    /// Bytes of requests and responses that the process may hold: `limits.bytes`.
    pub(crate) process_bytes: usize,
}

/// Reason for which a batch is not accepted. Each names the bound.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BatchRefusal {
    #[error("batches are switched off in your settings (batch_configure)")]
    Disabled,
    #[error("the batch has {calls} calls: resources.batchtools.max_calls allows {limit}")]
    TooManyCalls { calls: usize, limit: usize },
    #[error("with this batch {calls} calls of yours would wait: thresholds.queueSize allows {limit}")]
    QueueFull { calls: usize, limit: usize },
    #[error("you have {0} unfinished batches, as many as resources.batchtools.caller_batches allows")]
    TooManyBatches(usize),
    #[error("your batches hold as many bytes as resources.batchtools.caller_bytes allows ({0})")]
    CallerBytes(usize),
    #[error("all batches hold as many bytes as resources.batchtools.max_bytes allows ({0})")]
    Bytes(usize),
    #[error("{0} callers have batches, as many as the gateway keeps")]
    TooManyOwners(usize),
    #[error("the gateway is about to end")]
    Ending,
}

/// Status of one call of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum CallStatus {
    /// The call waits.
    Queued,
    /// The call runs.
    Running,
    /// The agent has completed it.
    Completed,
    /// The agent asks a question; the result names the task.
    InputRequired,
    /// The agent still works; the result names the task.
    Continues,
    /// It failed.
    Failed,
    /// It was cancelled.
    Cancelled,
}

impl CallStatus {
    fn name(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Completed => "completed",
            Self::InputRequired => "input_required",
            Self::Continues => "continues",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }
}

/// The end of one call.
#[derive(Debug)]
struct CallOutcome {
    status: CallStatus,
    took: Duration,
    /// The result of the tool, an object.
    result: Option<Box<RawValue>>,
    /// The reason for which there is no result.
    error: Option<String>,
}

impl CallOutcome {
    fn without_result(status: CallStatus, took: Duration, error: impl Into<String>) -> Self {
        Self { status, took, result: None, error: Some(error.into()) }
    }

    fn bytes(&self) -> usize {
        let result = self.result.as_ref().map_or(0, |result| result.get().len());
        result + self.error.as_ref().map_or(0, String::len)
    }
}

/// One call of a batch.
struct QueuedCall {
    tool: Arc<str>,
    arguments: Option<Arc<RawValue>>,
    priority: BatchPriority,
    status: CallStatus,
    outcome: Option<CallOutcome>,
}

/// One batch.
struct Batch {
    strategy: BatchStrategy,
    client: Arc<BatchClient>,
    calls: Vec<QueuedCall>,
    /// Most calls at once.
    concurrency: usize,
    running: usize,
    /// Calls that have ended.
    ended_calls: usize,
    /// Most calls that ran at once.
    peak: usize,
    accepted_ms: u64,
    started: Option<Timestamp>,
    ended: Option<Timestamp>,
    was_held: bool,
    /// Turns true when the batch is cancelled.
    cancelled: watch::Sender<bool>,
    /// Bytes of arguments and results.
    bytes: usize,
}

/// A call that waits, in the order of starting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct WaitingCall {
    priority: BatchPriority,
    batch: u64,
    call: usize,
}

/// The batches of one owner.
struct OwnerBatches {
    state: Mutex<OwnerState>,
    /// Number of changes.
    changes: watch::Sender<u64>,
}

struct OwnerState {
    settings: BatchSettings,
    /// The rows of this owner for other replicas; `None` if they are not shared.
    rows: Option<OwnerRows>,
    batches: BTreeMap<u64, Batch>,
    /// Batches of other replicas, by their ids.
    foreign: BTreeMap<Box<str>, ForeignBatch>,
    waiting: BTreeSet<WaitingCall>,
    running: usize,
    metrics: BatchMetrics,
    /// Number of the last batch.
    last: u64,
    bytes: usize,
    used: Instant,
    /// Time of the last change, in milliseconds since 1970.
    changed_ms: u64,
    /// Number of changes of the settings.
    settings_version: u64,
    /// Time of the last change of the settings at any replica, in milliseconds since 1970; 0: never.
    settings_ms: u64,
    /// Time at which the settings were last passed on.
    settings_shared: Instant,
}

/// The bounds of bytes, and the bytes that all batches hold.
#[derive(Clone, Copy)]
struct ByteBounds<'a> {
    limits: &'a BatchLimits,
    used: &'a AtomicUsize,
}

/// An accepted batch.
#[derive(Clone)]
struct BatchTicket {
    owner: Arc<OwnerBatches>,
    number: u64,
}

/// Runs the batches of all callers, with the engine and the bounds of one configuration.
pub(crate) struct BatchService {
    engine: Arc<CallEngine>,
    limits: BatchLimits,
    all: Arc<AllBatches>,
}

/// The batches of all callers, whatever the configuration.
struct AllBatches {
    owners: Mutex<HashMap<QuotaOwner, Arc<OwnerBatches>>>,
    bytes: AtomicUsize,
    cpu: CpuMeter,
    /// The service of the present configuration, which runs the calls that wait.
    current: Mutex<Weak<BatchService>>,
    /// True while the state of foreign batches is read.
    is_refreshing: AtomicBool,
    /// Batches of which other replicas do not know the end yet.
    open_shared: Arc<AtomicUsize>,
}

impl BatchService {
    /// Creates the service, with the batches of the service `before`.
    pub(crate) fn new(engine: Arc<CallEngine>, limits: BatchLimits, before: Option<&Self>) -> Self {
        let none = || {
            let (owners, bytes, cpu) = (Mutex::default(), AtomicUsize::new(0), CpuMeter::new());
            let (current, is_refreshing, open_shared) = Default::default();
            Arc::new(AllBatches { owners, bytes, cpu, current, is_refreshing, open_shared })
        };
        Self { engine, limits, all: before.map_or_else(none, |before| before.all.clone()) }
    }

    /// Runs the calls that wait from now on, whichever service has accepted them.
    pub(crate) fn take_over(self: &Arc<Self>) {
        *lock(&self.all.current) = Arc::downgrade(self);
    }

    /// Returns the state that replicas share, if they do.
    pub(crate) fn shared(&self) -> Option<&Arc<SharedState>> {
        self.engine.lookup.shared.as_ref()
    }

    /// Returns the number of batches of which other replicas do not know the end yet.
    pub(crate) fn open_shared(&self) -> usize {
        self.all.open_shared.load(Ordering::Acquire)
    }

    /// Returns the service of the present configuration.
    fn current(self: &Arc<Self>) -> Arc<Self> {
        lock(&self.all.current).upgrade().unwrap_or_else(|| self.clone())
    }

    fn bounds(&self) -> BatchSettings {
        BatchSettings::new(self.limits.max_concurrency, self.limits.queue_size)
    }

    fn find(&self, owner: &QuotaOwner) -> Option<Arc<OwnerBatches>> {
        lock(&self.all.owners).get(owner).cloned()
    }

    fn owner(&self, owner: &QuotaOwner) -> Result<Arc<OwnerBatches>, BatchRefusal> {
        let mut owners = lock(&self.all.owners);
        if let Some(known) = owners.get(owner) {
            return Ok(known.clone());
        }
        if owners.len() >= MAX_OWNERS {
            return Err(BatchRefusal::TooManyOwners(MAX_OWNERS));
        }
        let mut state = OwnerState::new(self.bounds());
        state.rows = self.rows_of(owner);
        let new = Arc::new(OwnerBatches { state: Mutex::new(state), changes: watch::Sender::new(0) });
        owners.insert(owner.clone(), new.clone());
        Ok(new)
    }

    /// Accepts a batch and starts its first calls.
    fn accept(
        self: &Arc<Self>,
        client: &ClientContext<'_>,
        batch: BatchStartCall,
    ) -> Result<BatchTicket, BatchRefusal> {
        let (calls, limit) = (batch.calls.len(), self.limits.max_calls);
        if calls > limit {
            return Err(BatchRefusal::TooManyCalls { calls, limit });
        }
        if self.engine.drain.has_begun() {
            return Err(BatchRefusal::Ending);
        }
        let owner = self.owner(&owner_of(client))?;
        let bytes = bytes_of(&batch);
        let number = loop {
            let mut state = lock(&owner.state);
            self.check(&mut state, &batch)?;
            let Err(refusal) = self.reserve(&mut state, bytes, None) else {
                break state.insert(client, batch, bytes);
            };
            let held = state.bytes.saturating_add(bytes);
            drop(state);
            if !matches!(refusal, BatchRefusal::Bytes(_)) || !self.evict_elsewhere(&owner, held) {
                return Err(refusal);
            }
        };
        owner.notify();
        let ticket = BatchTicket { owner, number };
        if let Some(sharing) = BatchSharing::new(&ticket, &self.limits, &self.all.open_shared) {
            tokio::spawn(sharing.run());
        }
        self.dispatch(&ticket.owner);
        Ok(ticket)
    }

    /// Checks the settings and the bounds of an owner for another batch; finished batches are evicted
    /// for it.
    fn check(&self, state: &mut OwnerState, batch: &BatchStartCall) -> Result<(), BatchRefusal> {
        if !state.settings.enabled {
            return Err(BatchRefusal::Disabled);
        }
        let (waiting, most) = (state.waiting.len() + batch.calls.len(), state.settings.queue_size);
        if waiting > most {
            return Err(BatchRefusal::QueueFull { calls: waiting, limit: most });
        }
        while state.batches.len() >= self.limits.caller_batches {
            if !self.evict_own(state, None) {
                return Err(BatchRefusal::TooManyBatches(state.batches.len()));
            }
        }
        Ok(())
    }

    /// Reserves bytes; finished batches other than `keep` are evicted for them.
    fn reserve(&self, state: &mut OwnerState, bytes: usize, keep: Option<u64>) -> Result<(), BatchRefusal> {
        while state.bytes + bytes > self.limits.caller_bytes {
            if !self.evict_oldest(state, keep) {
                return Err(BatchRefusal::CallerBytes(self.limits.caller_bytes));
            }
        }
        while !state.take_bytes(bytes, self.byte_bounds()) {
            if !self.evict_oldest(state, keep) {
                return Err(BatchRefusal::Bytes(self.limits.max_bytes));
            }
        }
        Ok(())
    }

    /// Removes the oldest finished batch of another owner that holds more than `bytes`: of the one
    /// that holds the most. Returns false if there is none. No lock of an owner may be held.
    fn evict_elsewhere(&self, own: &Arc<OwnerBatches>, bytes: usize) -> bool {
        let mut others: Vec<(usize, Arc<OwnerBatches>)> = lock(&self.all.owners)
            .values()
            .filter(|other| !Arc::ptr_eq(other, own))
            .map(|other| (lock(&other.state).bytes, other.clone()))
            .filter(|(held, _)| *held > bytes)
            .collect();
        others.sort_by_key(|(held, _)| std::cmp::Reverse(*held));
        others.iter().any(|(_, other)| {
            let is_evicted = self.evict_oldest(&mut lock(&other.state), None);
            if is_evicted {
                other.notify();
            }
            is_evicted
        })
    }

    fn byte_bounds(&self) -> ByteBounds<'_> {
        ByteBounds { limits: &self.limits, used: &self.all.bytes }
    }

    /// Removes the oldest finished batch other than `keep`, those of other replicas first; returns
    /// false if there is none.
    fn evict_oldest(&self, state: &mut OwnerState, keep: Option<u64>) -> bool {
        state.evict_foreign(self.byte_bounds()) || self.evict_own(state, keep)
    }

    fn evict_own(&self, state: &mut OwnerState, keep: Option<u64>) -> bool {
        let finished = |entry: &(&u64, &Batch)| entry.1.ended.is_some() && Some(*entry.0) != keep;
        let Some(number) = state.batches.iter().find(finished).map(|(number, _)| *number) else {
            return false;
        };
        let id = state.id(number);
        if let Some(batch) = state.batches.remove(&number) {
            state.release(batch.bytes, self.byte_bounds());
            if let Some(rows) = &state.rows {
                rows.remove(&id, &batch);
            }
        }
        true
    }

    /// Starts the waiting calls for which there is room.
    fn dispatch(self: &Arc<Self>, owner: &Arc<OwnerBatches>) {
        loop {
            let pressure = self.is_under_pressure(owner);
            let Some((place, run)) = lock(&owner.state).next_run(pressure) else { return };
            let (service, owner) = (self.current(), owner.clone());
            owner.notify();
            tokio::spawn(async move {
                let engine = service.engine.clone();
                let (began, timeout) = (Instant::now(), service.limits.call_timeout);
                // A task of its own: a panic ends one call, and its slot is free again.
                let ended = tokio::spawn(async move { run.run(&engine, timeout).await }).await;
                let outcome = ended.unwrap_or_else(|_| {
                    let took = began.elapsed();
                    CallOutcome::without_result(CallStatus::Failed, took, "the gateway ended this call")
                });
                service.complete(&owner, place, outcome);
                service.current().dispatch(&owner);
            });
        }
    }

    /// Returns true if memory or processor are above the thresholds of the caller.
    fn is_under_pressure(&self, owner: &OwnerBatches) -> bool {
        let state = lock(&owner.state);
        let settings = &state.settings;
        if !settings.resource_monitoring || !settings.uses(BatchStrategy::ResourceOptimization) {
            return false;
        }
        let [used, most] = [self.engine.limits.bytes().used(), self.limits.process_bytes];
        let memory = whole(used as u64) / whole(most.max(1) as u64);
        memory > settings.memory_usage || self.all.cpu.usage() > settings.cpu_usage
    }

    /// Records the end of a call.
    fn complete(&self, owner: &Arc<OwnerBatches>, place: WaitingCall, outcome: CallOutcome) {
        let (now, bytes) = (Timestamp::now(), outcome.bytes());
        let mut state = lock(&owner.state);
        let mut reserved = self.reserve(&mut state, bytes, Some(place.batch));
        while matches!(reserved, Err(BatchRefusal::Bytes(_))) {
            let held = state.bytes.saturating_add(bytes);
            drop(state);
            let is_evicted = self.evict_elsewhere(owner, held);
            state = lock(&owner.state);
            if !is_evicted {
                break;
            }
            reserved = self.reserve(&mut state, bytes, Some(place.batch));
        }
        match reserved {
            Ok(()) => state.complete(place, outcome, bytes, now),
            Err(refusal) => {
                // The text is small, and part of the bytes of each call.
                let error = format!("the result of {bytes} bytes is not kept: {refusal}");
                let outcome = CallOutcome::without_result(CallStatus::Failed, outcome.took, error);
                state.complete(place, outcome, 0, now);
            }
        }
        drop(state);
        owner.notify();
    }

    /// Cancels a batch; returns false if it has ended already.
    fn cancel(&self, ticket: &BatchTicket) -> bool {
        let is_cancelled = lock(&ticket.owner.state).cancel(ticket.number, Timestamp::now());
        ticket.owner.notify();
        is_cancelled
    }

    /// Removes finished batches that are older than the operator keeps them, and idle owners.
    pub(crate) fn sweep(self: &Arc<Self>) {
        let owners: Vec<Arc<OwnerBatches>> = lock(&self.all.owners).values().cloned().collect();
        let now = Timestamp::now();
        for owner in &owners {
            let mut state = lock(&owner.state);
            state.expire_foreign(self.byte_bounds(), now);
            let is_over =
                |batch: &Batch| batch.ended.is_some_and(|ended| ended.instant.elapsed() > self.limits.keep);
            let over: Vec<u64> =
                state.batches.iter().filter(|(_, batch)| is_over(batch)).map(|(number, _)| *number).collect();
            for number in over {
                if let Some(batch) = state.batches.remove(&number) {
                    state.release(batch.bytes, self.byte_bounds());
                }
            }
        }
        lock(&self.all.owners).retain(|_, owner| {
            let is_used = Arc::strong_count(owner) > 1 || owner.changes.receiver_count() > 0;
            let state = lock(&owner.state);
            let has_batches = !state.batches.is_empty() || !state.foreign.is_empty();
            is_used || has_batches || state.used.elapsed() < IDLE_OWNER_TIMEOUT
        });
        self.refresh_stale(owners);
    }
}

/// Returns the bytes of the calls of a batch before any has ended.
fn bytes_of(batch: &BatchStartCall) -> usize {
    let of_call = |call: &BatchedCall| {
        CALL_BYTES + call.tool.len() + call.arguments.as_ref().map_or(0, |given| given.get().len())
    };
    batch.calls.iter().map(of_call).sum()
}

/// Returns the strategy that makes a batch faster: calls of one tool, or of several.
fn strategy_of(batch: &BatchStartCall) -> BatchStrategy {
    let mut tools = batch.calls.iter().map(|call| &call.tool);
    let first = tools.next();
    match tools.all(|tool| Some(tool) == first) {
        true if batch.calls.len() > 1 => BatchStrategy::ParallelContentProcessing,
        _ => BatchStrategy::ConcurrentProcessing,
    }
}

impl QueuedCall {
    fn new(call: BatchedCall, default: BatchPriority) -> Self {
        Self {
            tool: call.tool.into(),
            arguments: call.arguments.map(Arc::from),
            priority: call.priority.unwrap_or(default),
            status: CallStatus::Queued,
            outcome: None,
        }
    }
}

impl OwnerBatches {
    fn notify(&self) {
        lock(&self.state).changed_ms = Timestamp::now().unix_ms;
        self.changes.send_modify(|changes| *changes = changes.wrapping_add(1));
    }
}

impl OwnerState {
    fn new(settings: BatchSettings) -> Self {
        let now = Timestamp::now();
        Self {
            settings,
            rows: None,
            batches: BTreeMap::new(),
            foreign: BTreeMap::new(),
            waiting: BTreeSet::new(),
            running: 0,
            metrics: BatchMetrics::default(),
            last: 0,
            bytes: 0,
            used: now.instant,
            changed_ms: now.unix_ms,
            settings_version: 0,
            settings_ms: 0,
            settings_shared: now.instant,
        }
    }

    /// Counts bytes, unless all batches would hold too many.
    fn take_bytes(&mut self, bytes: usize, bounds: ByteBounds<'_>) -> bool {
        let more = |used: usize| used.checked_add(bytes).filter(|used| *used <= bounds.limits.max_bytes);
        let is_taken = bounds.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok();
        self.bytes += if is_taken { bytes } else { 0 };
        is_taken
    }

    fn release(&mut self, bytes: usize, bounds: ByteBounds<'_>) {
        self.bytes -= bytes;
        bounds.used.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Inserts a batch for which `bytes` are reserved, and returns its number.
    fn insert(&mut self, client: &ClientContext<'_>, batch: BatchStartCall, bytes: usize) -> u64 {
        let strategy = strategy_of(&batch);
        let allowed = if self.settings.uses(strategy) { self.settings.max_concurrency } else { 1 };
        let concurrency = batch.max_concurrency.unwrap_or(allowed).clamp(1, allowed);
        let number = self.last + 1;
        self.last = number;
        let default = batch.priority.unwrap_or_default();
        let calls: Vec<QueuedCall> =
            batch.calls.into_iter().map(|call| QueuedCall::new(call, default)).collect();
        self.waiting.extend(calls.iter().enumerate().map(|(index, call)| WaitingCall {
            priority: call.priority,
            batch: number,
            call: index,
        }));
        let batch = Batch {
            strategy,
            client: Arc::new(BatchClient::new(client)),
            calls,
            concurrency,
            running: 0,
            ended_calls: 0,
            peak: 0,
            accepted_ms: Timestamp::now().unix_ms,
            started: None,
            ended: None,
            was_held: false,
            cancelled: watch::Sender::new(false),
            bytes,
        };
        self.batches.insert(number, batch);
        self.used = Instant::now();
        if self.settings_shared.elapsed() > IDLE_OWNER_TIMEOUT / 2 {
            // The row expires, and the caller still uses these settings.
            self.share_settings();
        }
        number
    }

    /// Takes the next call that may run, if there is one. Under pressure one call at a time runs.
    fn next_run(&mut self, is_under_pressure: bool) -> Option<(WaitingCall, CallRun)> {
        if self.running >= self.settings.max_concurrency {
            return None;
        }
        let has_room = |waiting: &&WaitingCall| {
            self.batches.get(&waiting.batch).is_some_and(|batch| batch.running < batch.concurrency)
        };
        let place = *self.waiting.iter().find(has_room)?;
        let batch = self.batches.get_mut(&place.batch)?;
        if is_under_pressure && self.running > 0 {
            batch.was_held = true;
            return None;
        }
        self.waiting.remove(&place);
        let call = batch.calls.get_mut(place.call)?;
        call.status = CallStatus::Running;
        batch.running += 1;
        batch.peak = batch.peak.max(batch.running);
        batch.started.get_or_insert_with(Timestamp::now);
        self.running += 1;
        let run = CallRun {
            client: batch.client.clone(),
            tool: call.tool.clone(),
            arguments: call.arguments.clone(),
            cancelled: batch.cancelled.subscribe(),
        };
        Some((place, run))
    }

    /// Records the end of a call. `bytes` are reserved for its result.
    fn complete(&mut self, place: WaitingCall, outcome: CallOutcome, bytes: usize, now: Timestamp) {
        self.running = self.running.saturating_sub(1);
        self.used = now.instant;
        if outcome.status != CallStatus::Cancelled {
            self.metrics.record_call(outcome.took, now.instant);
        }
        let Some(batch) = self.batches.get_mut(&place.batch) else { return };
        batch.running = batch.running.saturating_sub(1);
        batch.bytes += bytes;
        batch.end_call(place.call, outcome);
        self.end_if_over(place.batch, now);
    }

    /// Ends a batch when all its calls have ended.
    fn end_if_over(&mut self, number: u64, now: Timestamp) {
        let Some(batch) = self.batches.get_mut(&number) else { return };
        if batch.ended.is_none() && batch.ended_calls == batch.calls.len() {
            batch.ended = Some(now);
            self.metrics.record_batch(batch.measurement());
        }
    }

    fn cancel(&mut self, number: u64, now: Timestamp) -> bool {
        let Some(batch) = self.batches.get_mut(&number).filter(|batch| batch.ended.is_none()) else {
            return false;
        };
        batch.cancelled.send_replace(true);
        let waiting: Vec<WaitingCall> =
            self.waiting.iter().filter(|waiting| waiting.batch == number).copied().collect();
        for place in waiting {
            self.waiting.remove(&place);
            let error = "the batch was cancelled before this call began";
            let outcome = CallOutcome::without_result(CallStatus::Cancelled, Duration::ZERO, error);
            // The text is small, and part of the bytes of each call.
            batch.end_call(place.call, outcome);
        }
        self.end_if_over(number, now);
        true
    }
}

impl Batch {
    fn end_call(&mut self, call: usize, outcome: CallOutcome) {
        let Some(call) = self.calls.get_mut(call) else { return };
        call.status = outcome.status;
        call.outcome = Some(outcome);
        self.ended_calls += 1;
    }

    fn is_cancelled(&self) -> bool {
        *self.cancelled.borrow()
    }

    fn count(&self, status: CallStatus) -> usize {
        self.calls.iter().filter(|call| call.status == status).count()
    }

    /// Returns a number that rises with the progress of the batch.
    fn version(&self) -> u64 {
        let states = self.ended_calls * 4 + self.running.min(1) + usize::from(self.ended.is_some()) * 2;
        states as u64
    }

    /// Returns the durations of the calls together.
    fn serial(&self) -> Duration {
        self.calls.iter().filter_map(|call| call.outcome.as_ref()).map(|outcome| outcome.took).sum()
    }

    /// Returns the time from the start of the first call to the end of the last.
    fn took(&self) -> Option<Duration> {
        Some(self.ended?.instant.saturating_duration_since(self.started?.instant))
    }

    /// Returns the durations of the calls together over the time of the batch. A batch that was
    /// cancelled is not measured.
    fn speedup(&self) -> Option<f64> {
        let took = self.took().filter(|took| !took.is_zero() && !self.is_cancelled())?;
        Some(self.serial().as_secs_f64() / took.as_secs_f64())
    }

    fn measurement(&self) -> BatchMeasurement {
        let was_started = |call: &&QueuedCall| {
            call.outcome
                .as_ref()
                .is_some_and(|outcome| outcome.status != CallStatus::Cancelled || !outcome.took.is_zero())
        };
        BatchMeasurement {
            strategy: self.strategy,
            speedup: self.speedup(),
            started: self.calls.iter().filter(was_started).count() as u64,
            succeeded: self.count(CallStatus::Completed) as u64,
            peak: self.peak,
            was_held: self.was_held,
        }
    }
}
