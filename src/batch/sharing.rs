//! Batches among replicas that share state: the rows by which each knows the batches and settings that
//! others have.
//!
//! A replica announces begin and end of a batch in the log; the state in between and the results are
//! rows that others read when a client asks. A foreign batch is a [`BatchSnapshot`], never run here: a
//! wish to cancel it is a row for its replica, and it is lost when that replica gives no sign of life.
//! Only batches of named callers are shared, like their tasks.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use data_encoding::HEXLOWER;
use futures_util::future::join_all;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::time::sleep_until;

use super::report::{BATCHES, BatchSettings, estimate, milliseconds, rounded};
use super::start::{BatchReport, CallReport};
use super::{
    Batch, BatchLimits, BatchService, BatchTicket, ByteBounds, CALL_BYTES, CallStatus, IDLE_OWNER_TIMEOUT,
    OwnerBatches, OwnerState,
};
use crate::auth::ANONYMOUS;
use crate::bridge::provider_tools::{BatchConfigureCall, BatchPriority, BatchStrategy};
use crate::calls::ClientContext;
use crate::fault::Fault;
use crate::mcp::tasks::iso8601;
use crate::quota::QuotaOwner;
use crate::resources::owner_of;
use crate::shared_state::{REPLICA_BYTES, SharedRow, SharedState};
use crate::sync::lock;
use crate::tasks::store::StoreTable;
use crate::tasks::{SharedRows as _, Timestamp};

/// Interval in which the progress of a batch is passed to other replicas, and read by them.
const SHARE_INTERVAL: Duration = Duration::from_secs(1);
/// Time without news after which a batch of another replica is read again.
const NEWS_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest time for which the rows of an unfinished batch are kept without progress.
const MAX_RUN: Duration = Duration::from_secs(48 * 3600);
/// Time for which rows of a batch are kept beyond the batch: clocks differ.
const ROW_SLACK: Duration = Duration::from_secs(600);
/// Time to live of a wish to cancel.
const CANCELLATION_TTL: Duration = Duration::from_secs(600);
/// Bytes of a replica's name in the ids of its batches.
const ID_REPLICA_BYTES: usize = 4;
/// Time to live of the removal of a row: all replicas have read it by then.
const REMOVAL_TTL: Duration = Duration::from_secs(60);
/// Results that are read from the engine at once.
const RESULTS_PAGE: usize = 32;
/// Error of the calls of a batch that no replica runs any more.
const LOST: &str = "the replica that ran it has ended";
/// Error of a call with a result that this replica cannot read.
const NOT_SHARED: &str = "the result is not at the engine of shared state: it is too large, or has expired, or the engine does not answer";

/// The rows of one owner, which all replicas share.
#[derive(Clone)]
pub(super) struct OwnerRows {
    owner: Arc<str>,
    pub(super) shared: Arc<SharedState>,
}

/// Kind of a shared row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RowKind {
    /// The settings of an owner.
    Settings,
    /// The state of a batch.
    State,
    /// A wish to cancel a batch, for the replica that runs it.
    Cancellation,
    /// The result of a call; it is not logged.
    Result(u32),
}

impl OwnerRows {
    /// Returns the key of a row; `id` is that of the batch, and empty for settings.
    fn key(&self, kind: RowKind, id: &str) -> Vec<u8> {
        let (letter, call) = match kind {
            RowKind::Settings => (b's', None),
            RowKind::State => (b'b', None),
            RowKind::Cancellation => (b'c', None),
            RowKind::Result(call) => (b'r', Some(call.to_be_bytes())),
        };
        let call = call.as_ref().map_or(&[][..], |call| &call[..]);
        // No id has this byte.
        [&[letter][..], call, id.as_bytes(), &[0], self.owner.as_bytes()].concat()
    }

    /// Returns the kind, the id of the batch and the owner of a key that was logged.
    fn parse(key: &[u8]) -> Option<(RowKind, &str, &str)> {
        let (letter, rest) = key.split_first()?;
        let kind = match letter {
            b's' => RowKind::Settings,
            b'b' => RowKind::State,
            b'c' => RowKind::Cancellation,
            _ => return None,
        };
        let (id, owner) = std::str::from_utf8(rest).ok()?.split_once('\0')?;
        Some((kind, id, owner))
    }

    /// Enqueues a row, and announces it to all replicas.
    fn announce(&self, key: &[u8], value: Option<Vec<u8>>, ttl: Duration) {
        self.shared.put_table_row(StoreTable::Batches, key, value, ttl);
    }

    /// Enqueues a row that other replicas read when they need it.
    fn put(&self, key: &[u8], value: Option<Vec<u8>>, ttl: Duration) {
        self.shared.put_unlogged_row(StoreTable::Batches, key, value, ttl);
    }

    /// Returns a row as the engine has it.
    pub(super) async fn read(&self, kind: RowKind, id: &str) -> SharedRow {
        self.shared.read_row(StoreTable::Batches, &self.key(kind, id)).await
    }

    /// Removes the rows of a batch that has made room for others.
    pub(super) fn remove(&self, id: &str, batch: &Batch) {
        self.announce(&self.key(RowKind::State, id), None, REMOVAL_TTL);
        for (call, _) in (0..).zip(&batch.calls) {
            self.put(&self.key(RowKind::Result(call), id), None, REMOVAL_TTL);
        }
    }
}

/// The settings of a caller for other replicas.
#[derive(Deserialize)]
struct SettingsRow {
    /// Time of the change, in milliseconds since 1970.
    changed: u64,
    settings: BatchConfigureCall,
}

impl OwnerState {
    /// Returns the id of a batch as clients see it. Replicas that share batches count each for itself,
    /// so that an id names the replica too.
    pub(super) fn id(&self, number: u64) -> String {
        let replica = self.rows.as_ref().and_then(|rows| rows.shared.replica().get(..ID_REPLICA_BYTES));
        let replica = replica.map(|replica| format!("_{}", HEXLOWER.encode(replica)));
        format!("batch_{number:03}{}", replica.unwrap_or_default())
    }

    /// Returns the number of the batch with this id, if this replica has it.
    pub(super) fn number(&self, id: &str) -> Option<u64> {
        let number = id.strip_prefix("batch_")?.split('_').next()?.parse().ok()?;
        (self.batches.contains_key(&number) && self.id(number) == id).then_some(number)
    }

    /// Passes the settings to other replicas, if the caller has changed them.
    pub(super) fn share_settings(&mut self) {
        let Some(rows) = self.rows.as_ref().filter(|_| self.settings_ms > 0) else { return };
        self.settings_shared = Instant::now();
        let row = json!({ "changed": self.settings_ms, "settings": self.settings.json() });
        rows.announce(
            &rows.key(RowKind::Settings, ""),
            Some(row.to_string().into_bytes()),
            IDLE_OWNER_TIMEOUT,
        );
    }

    /// Changes the settings to those of another replica, if they are newer; of two changes in one
    /// millisecond the same counts everywhere. Returns false if the row is not readable.
    pub(super) fn learn_settings(&mut self, row: &[u8], bounds: &BatchSettings) -> bool {
        let Ok(SettingsRow { changed, mut settings }) = serde_json::from_slice(row) else { return false };
        // The operator of this replica may allow less.
        let most = |wanted: Option<usize>, bound: usize| wanted.map(|wanted| wanted.min(bound));
        settings.max_concurrency = most(settings.max_concurrency, bounds.max_concurrency);
        if let Some(thresholds) = &mut settings.thresholds {
            thresholds.queue_size = most(thresholds.queue_size, bounds.queue_size);
        }
        let Ok(settings) = bounds.changed(settings, bounds) else { return false };
        let order = |at: u64, settings: &BatchSettings| (at, settings.json().to_string());
        let (theirs, ours) = (order(changed, &settings), order(self.settings_ms, &self.settings));
        if theirs > ours {
            (self.settings, self.settings_ms) = (settings, changed);
            self.settings_version += 1;
        } else if theirs.0 < ours.0 {
            // Written again, so that all replicas end with the newer ones.
            self.share_settings();
        }
        true
    }
}

/// Batches of other replicas.
impl OwnerState {
    /// Adopts the state of a batch of another replica, if there is room. Returns false if there is
    /// none, or the row is not readable.
    pub(super) fn learn_batch(
        &mut self,
        id: &str,
        row: &[u8],
        bounds: ByteBounds<'_>,
        now: Timestamp,
    ) -> bool {
        let Ok(snapshot) = serde_json::from_slice(row) else { return false };
        let mut batch = ForeignBatch::new(snapshot, now.instant);
        if batch.is_expired(bounds.limits.keep, now) {
            return true;
        }
        let version = batch.snapshot.version;
        match self.foreign.get(id).map(|known| (known.snapshot.version, known.lost)) {
            Some((known, _)) if known > version => return true,
            Some((known, lost)) if known == version => batch.lost = lost,
            Some(_) => {}
            None if !self.reserve_foreign(batch.bytes(), bounds) => return false,
            None => {}
        }
        self.used = now.instant;
        self.foreign.insert(id.into(), batch);
        true
    }

    /// Reserves bytes for a batch of another replica; others of those that are over are evicted for it.
    fn reserve_foreign(&mut self, bytes: usize, bounds: ByteBounds<'_>) -> bool {
        let BatchLimits { caller_batches, caller_bytes, .. } = *bounds.limits;
        while self.foreign.len() >= caller_batches
            || self.bytes + bytes > caller_bytes
            || !self.take_bytes(bytes, bounds)
        {
            if !self.evict_foreign(bounds) {
                return false;
            }
        }
        true
    }

    /// Removes the oldest batch of another replica that does not run; returns false if there is none.
    pub(super) fn evict_foreign(&mut self, bounds: ByteBounds<'_>) -> bool {
        let over = self.foreign.iter().filter(|(_, batch)| !batch.is_running());
        let oldest = over.min_by_key(|(_, batch)| batch.snapshot.accepted_ms).map(|(id, _)| id.clone());
        let Some(oldest) = oldest else { return false };
        self.remove_foreign(&oldest, bounds);
        true
    }

    fn remove_foreign(&mut self, id: &str, bounds: ByteBounds<'_>) {
        if let Some(batch) = self.foreign.remove(id) {
            self.release(batch.bytes(), bounds);
        }
    }

    /// Removes the batches of other replicas that are older than the operator keeps them.
    pub(super) fn expire_foreign(&mut self, bounds: ByteBounds<'_>, now: Timestamp) {
        let expired = self.foreign.iter().filter(|(_, batch)| batch.is_expired(bounds.limits.keep, now));
        for id in expired.map(|(id, _)| id.clone()).collect::<Vec<_>>() {
            self.remove_foreign(&id, bounds);
        }
    }

    /// Adopts the row of a batch as it was read. Returns true if the resource has changed.
    fn learn_read(&mut self, id: &str, row: SharedRow, is_alive: bool, bounds: ByteBounds<'_>) -> bool {
        let now = Timestamp::now();
        let before = self.foreign.get(id).map(ForeignBatch::mark);
        match row {
            SharedRow::Present(row) => {
                // An unreadable one is as old as before.
                self.learn_batch(id, &row, bounds, now);
            }
            // A removal is announced; an engine that has lost its data gets the row again.
            SharedRow::Absent => {
                if self.foreign.get(id).is_some_and(|batch| batch.learnt.elapsed() > ROW_SLACK) {
                    self.remove_foreign(id, bounds);
                }
            }
            SharedRow::Unknown => return false,
        }
        if let Some(batch) = self.foreign.get_mut(id) {
            batch.set_alive(is_alive, now.instant);
        }
        self.foreign.get(id).map(ForeignBatch::mark) != before
    }
}

/// State of a batch for other replicas. The results are rows of their own.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct BatchSnapshot {
    /// The replica that runs the batch.
    pub(super) replica: [u8; REPLICA_BYTES],
    /// Number that rises with the progress.
    pub(super) version: u64,
    pub(super) strategy: BatchStrategy,
    pub(super) priority: BatchPriority,
    pub(super) concurrency: usize,
    pub(super) running: usize,
    pub(super) peak: usize,
    pub(super) accepted_ms: u64,
    pub(super) started_ms: Option<u64>,
    pub(super) ended_ms: Option<u64>,
    pub(super) is_cancelled: bool,
    pub(super) duration_ms: Option<u64>,
    pub(super) serial_ms: u64,
    pub(super) speedup: Option<f64>,
    pub(super) success_rate: Option<f64>,
    /// Bytes of arguments and results at that replica.
    pub(super) bytes: usize,
    pub(super) calls: Vec<CallSnapshot>,
}

/// State of one call of a batch for other replicas.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct CallSnapshot {
    pub(super) tool: Box<str>,
    pub(super) priority: BatchPriority,
    pub(super) status: CallStatus,
    pub(super) duration_ms: Option<u64>,
}

impl BatchSnapshot {
    pub(super) fn new(batch: &Batch, replica: [u8; REPLICA_BYTES]) -> Self {
        let calls = batch.calls.iter().map(|call| CallSnapshot {
            tool: (*call.tool).into(),
            priority: call.priority,
            status: call.status,
            duration_ms: call.outcome.as_ref().map(|outcome| milliseconds(outcome.took)),
        });
        Self {
            replica,
            version: batch.version(),
            strategy: batch.strategy,
            priority: batch.priority(),
            concurrency: batch.concurrency,
            running: batch.running,
            peak: batch.peak,
            accepted_ms: batch.accepted_ms,
            started_ms: batch.started.map(|started| started.unix_ms),
            ended_ms: batch.ended.map(|ended| ended.unix_ms),
            is_cancelled: batch.is_cancelled(),
            duration_ms: batch.took().map(milliseconds),
            serial_ms: milliseconds(batch.serial()),
            speedup: batch.speedup().map(rounded),
            success_rate: batch.success_rate(),
            bytes: batch.bytes,
            calls: calls.collect(),
        }
    }

    pub(super) fn count(&self, status: CallStatus) -> usize {
        self.calls.iter().filter(|call| call.status == status).count()
    }
}

/// A batch that another replica runs, as far as this one knows.
#[derive(Debug)]
pub(super) struct ForeignBatch {
    pub(super) snapshot: Arc<BatchSnapshot>,
    /// Time of the last news.
    pub(super) learnt: Instant,
    /// Time since which the replica gives no sign of life; `None` while it does, and when the batch
    /// has ended.
    pub(super) lost: Option<Instant>,
}

impl ForeignBatch {
    pub(super) fn new(snapshot: BatchSnapshot, now: Instant) -> Self {
        Self { snapshot: Arc::new(snapshot), learnt: now, lost: None }
    }

    /// Returns the bytes that this replica counts for the batch.
    pub(super) fn bytes(&self) -> usize {
        self.snapshot.calls.iter().map(|call| CALL_BYTES + call.tool.len()).sum()
    }

    pub(super) fn ended_ms(&self) -> Option<u64> {
        self.snapshot.ended_ms
    }

    /// Returns true while the batch runs, as far as this replica knows.
    pub(super) fn is_running(&self) -> bool {
        self.snapshot.ended_ms.is_none() && self.lost.is_none()
    }

    /// Returns true if the batch ended, or was lost, more than `keep` ago.
    pub(super) fn is_expired(&self, keep: Duration, now: Timestamp) -> bool {
        let ended =
            self.snapshot.ended_ms.map(|ended| Duration::from_millis(now.unix_ms.saturating_sub(ended)));
        let lost = self.lost.map(|lost| now.instant.saturating_duration_since(lost));
        ended.or(lost).is_some_and(|over| over > keep)
    }

    /// Records whether the replica of the batch gives a sign of life.
    pub(super) fn set_alive(&mut self, is_alive: bool, now: Instant) {
        let lost = (!is_alive && self.snapshot.ended_ms.is_none()).then_some(now);
        self.lost = lost.map(|now| self.lost.unwrap_or(now));
    }

    /// Returns a number that changes with the content of the resource.
    pub(super) fn mark(&self) -> u64 {
        self.snapshot.version * 2 + u64::from(self.lost.is_some())
    }

    /// Returns the entry of the queue.
    pub(super) fn queue_json(&self, id: &str, latency: Option<Duration>) -> Value {
        let BatchSnapshot { calls, concurrency, running, .. } = &*self.snapshot;
        let waiting = self.snapshot.count(CallStatus::Queued);
        let left = waiting + self.snapshot.count(CallStatus::Running);
        json!({
            "id": id,
            "type": self.snapshot.strategy,
            "priority": self.snapshot.priority,
            "estimatedDuration": latency.map(|latency| estimate(latency, left, *concurrency)),
            "startTime": self.snapshot.started_ms.map(iso8601),
            "acceptedTime": iso8601(self.snapshot.accepted_ms),
            "calls": calls.len(),
            "ended": calls.len() - left,
            "running": running,
        })
    }
}

/// The result of a call for other replicas.
#[derive(Serialize, Deserialize)]
struct ResultRow<'a> {
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    result: Option<&'a RawValue>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    error: Option<Cow<'a, str>>,
}

impl BatchSnapshot {
    /// Returns the resource of the batch. `rows` are the results of its calls, by index.
    pub(super) fn report(&self, id: &str, is_lost: bool, rows: &HashMap<u32, Vec<u8>>) -> Option<String> {
        let open = self.count(CallStatus::Queued) + self.count(CallStatus::Running);
        let lost = if is_lost { open } else { 0 };
        let result_of = |(index, call): (u32, &CallSnapshot)| match rows.get(&index) {
            _ if is_open(call.status) => ResultRow { result: None, error: is_lost.then_some(LOST.into()) },
            row => row
                .and_then(|row| serde_json::from_slice(row).ok())
                .unwrap_or_else(|| ResultRow { result: None, error: Some(NOT_SHARED.into()) }),
        };
        let results: Vec<ResultRow<'_>> = (0..).zip(&self.calls).map(result_of).collect();
        let calls = self.calls.iter().zip(&results).enumerate().map(|(index, (call, row))| CallReport {
            index,
            tool: &call.tool,
            priority: call.priority,
            status: if is_lost && is_open(call.status) { CallStatus::Failed } else { call.status }.name(),
            duration_ms: call.duration_ms,
            result: row.result,
            error: row.error.as_deref(),
        });
        let report = BatchReport {
            resource: format!("{BATCHES}{id}"),
            batch_id: id.to_owned(),
            status: match self.ended_ms {
                None if is_lost => "failed",
                None => "running",
                Some(_) if self.is_cancelled => "cancelled",
                Some(_) => "completed",
            },
            r#type: self.strategy,
            priority: self.priority,
            max_concurrency: self.concurrency,
            peak_concurrency: self.peak,
            total: self.calls.len(),
            completed: self.count(CallStatus::Completed),
            failed: self.count(CallStatus::Failed) + lost,
            cancelled: self.count(CallStatus::Cancelled),
            pending: open - lost,
            duration_ms: self.duration_ms,
            serial_duration_ms: self.serial_ms,
            speedup: self.speedup,
            success_rate: self.success_rate,
            results: calls.collect(),
        };
        serde_json::to_string(&report).ok()
    }
}

fn is_open(status: CallStatus) -> bool {
    matches!(status, CallStatus::Queued | CallStatus::Running)
}

/// Passes one batch to other replicas until its end.
pub(super) struct BatchSharing {
    rows: OwnerRows,
    ticket: BatchTicket,
    keep: Duration,
    call_timeout: Duration,
    /// Calls of which the results were passed on.
    passed: HashSet<u32>,
    /// Version and running calls that were passed on last.
    last: Option<(u64, usize)>,
    _open: OpenBatch,
}

/// Counts a batch of which other replicas do not know the end yet, for as long as this lives.
struct OpenBatch(Arc<AtomicUsize>);

impl OpenBatch {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::AcqRel);
        Self(count.clone())
    }
}

impl Drop for OpenBatch {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl BatchSharing {
    /// Returns `None` if the batches of this owner are not shared.
    /// `open` counts the batches of which other replicas do not know the end yet.
    pub(super) fn new(ticket: &BatchTicket, limits: &BatchLimits, open: &Arc<AtomicUsize>) -> Option<Self> {
        let rows = lock(&ticket.owner.state).rows.clone()?;
        let BatchLimits { keep, call_timeout, .. } = *limits;
        let (ticket, passed, open) = (ticket.clone(), HashSet::new(), OpenBatch::new(open));
        Some(Self { rows, ticket, keep, call_timeout, passed, last: None, _open: open })
    }

    /// Passes on the begin, the progress, at most once in an interval, and the end, at once.
    pub(super) async fn run(mut self) {
        let mut changes = self.ticket.owner.changes.subscribe();
        while self.share() {
            let next = tokio::time::Instant::now() + SHARE_INTERVAL;
            let mut is_changed = false;
            loop {
                tokio::select! {
                    changed = changes.changed() => {
                        is_changed = true;
                        if changed.is_err() || self.has_ended() {
                            break;
                        }
                    }
                    () = sleep_until(next), if is_changed => break,
                }
            }
        }
    }

    fn has_ended(&self) -> bool {
        let state = lock(&self.ticket.owner.state);
        state.batches.get(&self.ticket.number).is_none_or(|batch| batch.ended.is_some())
    }

    /// Enqueues the rows of the batch that have changed; returns false if it has ended. Only begin and
    /// end are announced: the log is for all rows of all replicas, and progress is read on demand.
    fn share(&mut self) -> bool {
        let Self { rows, keep, call_timeout, passed, .. } = self;
        let state = lock(&self.ticket.owner.state);
        let Some(batch) = state.batches.get(&self.ticket.number) else { return false };
        let (now, has_ended) = (Some((batch.version(), batch.running)), batch.ended.is_some());
        if now == self.last {
            return !has_ended;
        }
        let is_announced = has_ended || self.last.is_none();
        self.last = now;
        let id = state.id(self.ticket.number);
        let snapshot = BatchSnapshot::new(batch, *rows.shared.replica());
        let ended = (0..).zip(&batch.calls).filter_map(|(index, call)| {
            let outcome = call.outcome.as_ref().filter(|_| passed.insert(index))?;
            let error = outcome.error.as_deref().map(Cow::Borrowed);
            let row = serde_json::to_vec(&ResultRow { result: outcome.result.as_deref(), error });
            Some((index, row.unwrap_or_default()))
        });
        let results: Vec<(u32, Vec<u8>)> = ended.collect();
        drop(state);
        let open = snapshot.calls.iter().filter(|call| is_open(call.status)).count();
        let rounds = u32::try_from(open.div_ceil(snapshot.concurrency.max(1))).unwrap_or(u32::MAX);
        let rest = call_timeout.saturating_mul(rounds).min(MAX_RUN);
        for (index, row) in results {
            rows.put(&rows.key(RowKind::Result(index), &id), Some(row), *keep + rest + ROW_SLACK);
        }
        let (key, ttl) = (rows.key(RowKind::State, &id), *keep + ROW_SLACK);
        let row = serde_json::to_vec(&snapshot).unwrap_or_default();
        match is_announced {
            true => rows.announce(&key, Some(row), if has_ended { ttl } else { ttl + MAX_RUN }),
            false => rows.put(&key, Some(row), ttl + MAX_RUN),
        }
        !has_ended
    }
}

impl BatchService {
    /// Returns the shared rows of an owner. Those of anonymous callers are not shared, like their tasks.
    pub(super) fn rows_of(&self, owner: &QuotaOwner) -> Option<OwnerRows> {
        let shared = self.engine.lookup.shared.clone()?;
        match owner {
            QuotaOwner::Caller(owner) if **owner != *ANONYMOUS => {
                Some(OwnerRows { owner: owner.clone(), shared })
            }
            QuotaOwner::Caller(_) | QuotaOwner::Address(_) | QuotaOwner::Agent(_) => None,
        }
    }

    /// Applies a row of another replica. Returns false if it is not readable, or exceeds a bound.
    pub(crate) fn learn_shared(&self, key: &[u8], value: Option<&[u8]>, now: Timestamp) -> bool {
        let Some((kind, id, name)) = OwnerRows::parse(key) else { return false };
        let name = QuotaOwner::Caller(name.into());
        let is_of_use = matches!((kind, value), (RowKind::Settings | RowKind::State, Some(_)));
        let owner = if is_of_use { self.owner(&name).ok() } else { self.find(&name) };
        let Some(owner) = owner else { return !is_of_use };
        let is_learnt = {
            let mut state = lock(&owner.state);
            match (kind, value) {
                (RowKind::Settings, Some(row)) => {
                    state.used = now.instant;
                    state.learn_settings(row, &self.bounds())
                }
                (RowKind::State, Some(row)) => state.learn_batch(id, row, self.byte_bounds(), now),
                (RowKind::State, None) => {
                    state.remove_foreign(id, self.byte_bounds());
                    true
                }
                (RowKind::Cancellation, Some(_)) => {
                    // Other replicas learn of it, too, and have no such batch.
                    if let Some(number) = state.number(id) {
                        state.cancel(number, now);
                    }
                    true
                }
                (RowKind::Settings | RowKind::Cancellation, None) | (RowKind::Result(_), _) => true,
            }
        };
        owner.notify();
        is_learnt
    }

    /// Reads the unfinished batches of other replicas again, or one of them, and asks whether their
    /// replicas are alive.
    pub(super) async fn refresh(&self, owner: &OwnerBatches, only: Option<&str>) {
        let (rows, stale) = {
            let state = lock(&owner.state);
            let Some(rows) = state.rows.clone() else { return };
            let is_stale = |id: &str, batch: &ForeignBatch| {
                let is_wanted = batch.ended_ms().is_none() && only.is_none_or(|only| only == id);
                is_wanted && batch.learnt.elapsed() >= SHARE_INTERVAL
            };
            let stale = state.foreign.iter().filter(|(id, batch)| is_stale(id, batch));
            let stale: Vec<_> = stale.map(|(id, batch)| (id.clone(), batch.snapshot.replica)).collect();
            (rows, stale)
        };
        for (id, replica) in stale {
            let row = rows.read(RowKind::State, &id).await;
            let is_alive = rows.shared.is_alive(&replica).await;
            if lock(&owner.state).learn_read(&id, row, is_alive, self.byte_bounds()) {
                owner.notify();
            }
        }
    }

    /// Reads the unfinished batches of other replicas again that are watched here, or of which there was
    /// no news for long.
    pub(super) fn refresh_stale(self: &Arc<Self>, owners: Vec<Arc<OwnerBatches>>) {
        let is_stale = |owner: &Arc<OwnerBatches>| {
            let is_watched = owner.changes.receiver_count() > 0;
            let is_old = |batch: &ForeignBatch| is_watched || batch.learnt.elapsed() >= NEWS_TIMEOUT;
            lock(&owner.state).foreign.values().any(|batch| batch.ended_ms().is_none() && is_old(batch))
        };
        let stale: Vec<_> = owners.into_iter().filter(is_stale).collect();
        if stale.is_empty() || self.all.is_refreshing.swap(true, Ordering::AcqRel) {
            return;
        }
        let service = self.clone();
        tokio::spawn(async move {
            for owner in &stale {
                service.refresh(owner, None).await;
            }
            service.all.is_refreshing.store(false, Ordering::Release);
        });
    }

    /// Passes all batches and settings to other replicas again, for an engine that has lost its data.
    pub(crate) fn share_all(&self) {
        let owners: Vec<Arc<OwnerBatches>> = lock(&self.all.owners).values().cloned().collect();
        let (limits, open) = (self.limits, self.all.open_shared.clone());
        tokio::spawn(async move {
            for owner in owners {
                let (rows, numbers) = {
                    let mut state = lock(&owner.state);
                    state.share_settings();
                    (state.rows.clone(), state.batches.keys().copied().collect::<Vec<_>>())
                };
                let Some(rows) = rows else { continue };
                for number in numbers {
                    let ticket = BatchTicket { owner: owner.clone(), number };
                    if let Some(mut sharing) = BatchSharing::new(&ticket, &limits, &open) {
                        sharing.share();
                    }
                    // One batch at a time: the rows that wait for the engine are bounded.
                    if !rows.shared.flush_rows().await {
                        return;
                    }
                }
            }
        });
    }

    /// Returns the resource of a batch that another replica runs; `None` if the client has none with
    /// this id.
    pub(super) async fn foreign_report(
        &self,
        client: &ClientContext<'_>,
        id: &str,
    ) -> Result<Option<String>, Fault> {
        let Some(owner) = self.find(&owner_of(client)) else { return Ok(None) };
        self.refresh(&owner, Some(id)).await;
        let found = {
            let state = lock(&owner.state);
            let found = state.foreign.get(id).zip(state.rows.clone());
            found.map(|(batch, rows)| (batch.snapshot.clone(), batch.lost.is_some(), rows))
        };
        let Some((snapshot, is_lost, rows)) = found else { return Ok(None) };
        let mut permit = self.engine.limits.permit(client.quota_owner.as_ref());
        permit.set(snapshot.bytes.saturating_mul(2)).map_err(Fault::from)?;
        let ended = (0..).zip(&snapshot.calls).filter(|(_, call)| !is_open(call.status));
        let ended: Vec<u32> = ended.map(|(index, _)| index).collect();
        let mut results = HashMap::new();
        for page in ended.chunks(RESULTS_PAGE) {
            let read = join_all(page.iter().map(|call| rows.read(RowKind::Result(*call), id))).await;
            results.extend(page.iter().zip(read).filter_map(|(call, row)| match row {
                SharedRow::Present(row) => Some((*call, row)),
                SharedRow::Absent | SharedRow::Unknown => None,
            }));
        }
        Ok(snapshot.report(id, is_lost, &results))
    }

    /// Returns true if this replica or another one has the batch of this id for the client.
    pub(super) fn has_batch(&self, client: &ClientContext<'_>, id: &str) -> bool {
        let Some(owner) = self.find(&owner_of(client)) else { return false };
        let state = lock(&owner.state);
        state.number(id).is_some() || state.foreign.contains_key(id)
    }

    /// Cancels a batch, at the replica that runs it; returns false if it has ended already.
    pub(super) async fn cancel_by_id(&self, client: &ClientContext<'_>, id: &str) -> Result<bool, String> {
        if let Some(ticket) = self.ticket(client, id) {
            return Ok(self.cancel(&ticket));
        }
        let unknown = || format!("there is no batch {id:?}");
        let owner = self.find(&owner_of(client)).ok_or_else(unknown)?;
        self.refresh(&owner, Some(id)).await;
        let (rows, has_ended, is_running) = {
            let state = lock(&owner.state);
            let foreign = state.foreign.get(id).ok_or_else(unknown)?;
            (state.rows.clone().ok_or_else(unknown)?, foreign.ended_ms().is_some(), foreign.is_running())
        };
        if has_ended {
            return Ok(false);
        }
        if !is_running {
            return Err(format!("batch {id:?} is lost: {LOST}"));
        }
        rows.announce(&rows.key(RowKind::Cancellation, id), Some(b"cancel".to_vec()), CANCELLATION_TTL);
        match rows.shared.flush_rows().await {
            true => Ok(true),
            false => Err(format!(
                "another replica runs batch {id:?}, and the engine of shared state does not answer: try again later"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use tokio::sync::watch;
    use tokio::time::sleep;

    use super::*;
    use crate::auth::Caller;
    use crate::batch::CallOutcome;
    use crate::bridge::provider_tools::{BatchStartCall, BatchedCall};
    use crate::http_edge::Route;
    use crate::shared_state::tests::replicas;

    const LIMITS: BatchLimits = BatchLimits {
        max_concurrency: 1,
        max_calls: 10,
        queue_size: 10,
        caller_batches: 2,
        caller_bytes: 10_000,
        max_bytes: 20_000,
        call_timeout: Duration::from_secs(60),
        keep: Duration::from_secs(3600),
        process_bytes: 1_000_000,
    };

    fn rows(shared: &Arc<SharedState>) -> OwnerRows {
        OwnerRows { owner: "key:ann".into(), shared: shared.clone() }
    }

    fn owner_state() -> OwnerState {
        OwnerState::new(BatchSettings::new(LIMITS.max_concurrency, LIMITS.queue_size))
    }

    /// Begins a batch of three calls, which run one after the other.
    fn begin(rows: OwnerRows) -> BatchTicket {
        let call = BatchedCall { tool: "weather_now".to_owned(), arguments: None, priority: None };
        let calls = vec![call.clone(), call.clone(), call];
        let batch = BatchStartCall { calls, priority: None, max_concurrency: None, wait: None };
        let mut state = owner_state();
        state.rows = Some(rows);
        let client = ClientContext::detached(Caller::anonymous(), Route::AllAgents, None);
        let number = state.insert(&client, batch, 0);
        let owner = OwnerBatches { state: Mutex::new(state), changes: watch::Sender::new(0) };
        BatchTicket { owner: Arc::new(owner), number }
    }

    /// Runs the next call, and ends it with this result.
    fn end_call(ticket: &BatchTicket, result: &str) {
        let mut state = lock(&ticket.owner.state);
        let (place, _) = state.next_run(false).unwrap();
        let result = Some(RawValue::from_string(result.to_owned()).unwrap());
        let took = Duration::from_millis(5);
        let outcome = CallOutcome { status: CallStatus::Completed, took, result, error: None };
        state.complete(place, outcome, 0, Timestamp::now());
        drop(state);
        ticket.owner.notify();
    }

    async fn snapshot(rows: &OwnerRows, id: &str) -> BatchSnapshot {
        let SharedRow::Present(row) = rows.read(RowKind::State, id).await else { panic!("no row") };
        serde_json::from_slice(&row).unwrap()
    }

    /// Progress is passed on once a second, and the end at once; then another replica has the same
    /// report.
    #[tokio::test(start_paused = true)]
    async fn batch_is_shared_as_it_goes() {
        let replicas = replicas(2);
        let announced = Arc::new(Mutex::new(Vec::new()));
        let into = announced.clone();
        replicas[1].set_learner(Box::new(move |table, key, _| {
            lock(&into).push((table, OwnerRows::parse(key).map(|(kind, id, _)| (kind, id.to_owned()))));
            None
        }));
        let ticket = begin(rows(&replicas[0]));
        let id = lock(&ticket.owner.state).id(1);
        let open = Arc::new(AtomicUsize::new(0));
        tokio::spawn(BatchSharing::new(&ticket, &LIMITS, &open).unwrap().run());
        let theirs = rows(&replicas[1]);
        sleep(Duration::from_millis(10)).await;
        assert_eq!(snapshot(&theirs, &id).await.count(CallStatus::Queued), 3);
        end_call(&ticket, r#"{"n":1}"#);
        sleep(Duration::from_millis(500)).await;
        assert_eq!(snapshot(&theirs, &id).await.count(CallStatus::Completed), 0);
        sleep(Duration::from_millis(600)).await;
        assert_eq!(snapshot(&theirs, &id).await.count(CallStatus::Completed), 1);
        end_call(&ticket, r#"{"n":2}"#);
        assert_eq!(open.load(Ordering::Acquire), 1);
        end_call(&ticket, r#"{"n":3}"#);
        sleep(Duration::from_millis(10)).await;
        assert_eq!(open.load(Ordering::Acquire), 0);
        let ended = snapshot(&theirs, &id).await;
        let mut results = HashMap::new();
        for call in 0..3 {
            let SharedRow::Present(row) = theirs.read(RowKind::Result(call), &id).await else {
                panic!("no row")
            };
            results.insert(call, row);
        }
        assert_eq!(ended.report(&id, false, &results), ticket.report());
        sleep(Duration::from_secs(3)).await;
        let begin_and_end = vec![(StoreTable::Batches, Some((RowKind::State, id))); 2];
        let announced = lock(&announced).clone();
        assert!(announced == begin_and_end || announced == begin_and_end[..1], "{announced:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn lost_batch_has_failed_calls() {
        let replicas = replicas(1);
        let ticket = begin(rows(&replicas[0]));
        end_call(&ticket, "{}");
        let row = {
            let state = lock(&ticket.owner.state);
            serde_json::to_vec(&BatchSnapshot::new(&state.batches[&1], [7; REPLICA_BYTES])).unwrap()
        };
        let used = AtomicUsize::new(0);
        let (bounds, mut state) = (ByteBounds { limits: &LIMITS, used: &used }, owner_state());
        assert!(state.learn_batch("batch_001_07", &row, bounds, Timestamp::now()));
        assert_eq!(state.queue_json()["operations"][0]["ended"], 1);
        assert!(state.learn_read("batch_001_07", SharedRow::Absent, false, bounds));
        assert!(!state.learn_read("batch_001_07", SharedRow::Absent, false, bounds));
        let lost = &state.foreign["batch_001_07"];
        let rows = HashMap::from([(0, br#"{"result":{}}"#.to_vec())]);
        let report = lost.snapshot.report("batch_001_07", true, &rows).unwrap();
        let report: Value = serde_json::from_str(&report).unwrap();
        assert_eq!(
            (&report["status"], &report["failed"], &report["pending"]),
            (&json!("failed"), &json!(2), &json!(0))
        );
        assert_eq!(report["results"][0]["result"], json!({}));
        assert_eq!(
            (&report["results"][1]["status"], &report["results"][1]["error"]),
            (&json!("failed"), &json!(LOST))
        );
        assert_eq!(state.queue_json()["activeBatches"], 0);
        // It gives a sign of life again.
        assert!(state.learn_read("batch_001_07", SharedRow::Present(row), true, bounds));
        assert_eq!(state.queue_json()["activeBatches"], 1);
    }

    #[tokio::test(start_paused = true)]
    async fn foreign_batches_are_bounded() {
        let replicas = replicas(1);
        let ticket = begin(rows(&replicas[0]));
        let now = Timestamp::now();
        let mut snapshot = BatchSnapshot::new(&lock(&ticket.owner.state).batches[&1], [7; REPLICA_BYTES]);
        let used = AtomicUsize::new(0);
        let (bounds, mut state) = (ByteBounds { limits: &LIMITS, used: &used }, owner_state());
        let mut learn = |id: &str, snapshot: &BatchSnapshot| {
            state.learn_batch(id, &serde_json::to_vec(snapshot).unwrap(), bounds, now)
        };
        // Batches that run are not evicted, and an older state does not replace a newer one.
        assert!(learn("one", &snapshot) && learn("two", &snapshot) && !learn("three", &snapshot));
        (snapshot.ended_ms, snapshot.version) = (Some(now.unix_ms), 9);
        assert!(learn("one", &snapshot) && learn("three", &snapshot));
        (snapshot.ended_ms, snapshot.version) = (None, 8);
        assert!(
            learn("three", &snapshot)
                && !learn(
                    "four",
                    &BatchSnapshot { calls: vec![snapshot.calls[0].clone(); 20], ..snapshot.clone() }
                )
        );
        assert_eq!(state.foreign.keys().map(|id| &**id).collect::<Vec<_>>(), ["two"]);
        let later = Timestamp { unix_ms: now.unix_ms + 3_700_000, ..now };
        state.expire_foreign(bounds, later);
        // The one that runs stays.
        assert_eq!((state.foreign.len(), state.bytes), (1, used.load(Ordering::Relaxed)));
        state.remove_foreign("two", bounds);
        assert_eq!((state.bytes, used.load(Ordering::Relaxed)), (0, 0));
    }

    #[test]
    fn latest_settings_count() {
        let bounds = BatchSettings::new(4, 10);
        let mut state = OwnerState::new(bounds.clone());
        let row = |changed: u64, most: usize| {
            let settings = BatchSettings { max_concurrency: most, ..bounds.clone() };
            json!({ "changed": changed, "settings": settings.json() }).to_string().into_bytes()
        };
        // Of the same millisecond the larger one counts; the operator's bound holds.
        for (changed, most, wanted) in [(5, 2, 2), (4, 3, 2), (5, 1, 2), (5, 3, 3), (6, 1, 1), (7, 9, 4)] {
            assert!(state.learn_settings(&row(changed, most), &bounds));
            assert_eq!(state.settings.max_concurrency, wanted, "{changed} {most}");
        }
        assert!(!state.learn_settings(b"[]", &bounds));
    }

    #[tokio::test(start_paused = true)]
    async fn keys_name_kind_batch_and_owner() {
        let replicas = replicas(1);
        let rows = rows(&replicas[0]);
        for kind in [RowKind::Settings, RowKind::State, RowKind::Cancellation] {
            assert_eq!(
                OwnerRows::parse(&rows.key(kind, "batch_001_07")),
                Some((kind, "batch_001_07", "key:ann"))
            );
        }
        assert_eq!(OwnerRows::parse(&rows.key(RowKind::Result(1), "batch_001_07")), None);
    }
}
