//! Leases of followers: one replica reads the agent's stream of a task, and writes its events for the
//! watchers at the others.
//!
//! A lease lasts 9 s and is renewed every 3 s. Its fencing token is part of the position of every
//! event, and the engine refuses events of an earlier lease: a replica that was paused and wakes finds
//! its lease lost, and writes nothing. Events wait in a bounded buffer while the engine is slow, and
//! are dropped while it is absent: watchers see the gap, and read the row instead.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use tokio::sync::{Notify, watch};
use tracing::debug;

use super::engine::{EngineError, LeaseOutcome, LeaseRequest, NewEvents, StateKey};
use super::{SharedState, task_key};
use crate::config::StateContent;
use crate::sync::lock;
use crate::tasks::EventPosition;

/// Time for which a lease lasts, unless it is renewed.
const LEASE_LIFETIME: Duration = Duration::from_secs(9);
/// Pause between two renewals.
const RENEW_INTERVAL: Duration = Duration::from_secs(3);
/// Longest wait of a watcher for a wake-up before it looks.
const LOOK_INTERVAL: Duration = Duration::from_secs(3);
/// Events of one task that wait for the engine; the reader of the agent's stream waits then.
const MOST_WAITING: usize = 1024;
const MOST_WAITING_BYTES: usize = 1024 * 1024;
/// Events, and bytes of them, that are written at once: a write must end within `state.timeout`.
const MOST_WRITE: u64 = 64;
const MOST_WRITE_BYTES: usize = 512 * 1024;
/// Time for which the end of a stream is awaited before its lease is released.
const STOP_TIMEOUT: Duration = Duration::from_millis(500);
/// Time for which other replicas can take over the tasks of one that ends.
const OTHERS_FIRST: Duration = Duration::from_secs(2);
/// Events after which the row of the task is written anew: fewer than the engine keeps.
const EVENTS_PER_ROW: u64 = 64;
/// Largest event that is passed on; the row tells of a larger one.
const MOST_EVENT_BYTES: usize = 64 * 1024;

/// Result of a request for the lease of a task.
pub(crate) enum LeaseGrant {
    /// This replica follows the task.
    Granted(TaskLease),
    /// Another replica does.
    Held,
    /// This replica decides alone: the engine does not answer, or keeps ids only.
    Unknown,
}

/// Leases of this replica, by the hashes of their tasks.
#[derive(Default)]
pub(super) struct LeaseTable {
    held: Mutex<HashMap<Box<str>, Weak<LeaseState>>>,
    /// Notified when events wait.
    dirty: Notify,
    /// Time at which all leases were released.
    released: Mutex<Option<Instant>>,
}

impl LeaseTable {
    pub(super) fn len(&self) -> usize {
        self.all().len()
    }

    fn all(&self) -> Vec<Arc<LeaseState>> {
        let mut held = lock(&self.held);
        held.retain(|_, lease| lease.strong_count() > 0);
        held.values().filter_map(Weak::upgrade).filter(|lease| !*lease.is_lost.borrow()).collect()
    }
}

struct LeaseState {
    task: StateKey,
    epoch: u64,
    /// Number of the last event that was added.
    last: AtomicU64,
    waiting: Mutex<WaitingEvents>,
    /// Notified when there is room for events.
    room: Notify,
    is_lost: watch::Sender<bool>,
    /// True if events were dropped: the row must tell what they told.
    needs_row: AtomicBool,
    /// Notified when the lease is not used any more.
    stopped: Notify,
}

/// Events that wait for the engine, with their numbers.
type WaitingEvents = VecDeque<(u64, Vec<u8>)>;

/// The lease of a task, which ends when it is dropped.
pub(crate) struct TaskLease {
    shared: Arc<SharedState>,
    state: Arc<LeaseState>,
}

impl SharedState {
    /// Requests the lease of a task. `takes_over`: also from another replica, which stops then.
    /// `last` is the last position that is known here.
    pub(crate) async fn lease(
        self: &Arc<Self>,
        row_key: &[u8],
        last: EventPosition,
        takes_over: bool,
    ) -> LeaseGrant {
        if self.content == StateContent::Ids {
            // Events are content: each replica reads the agent for its own clients.
            return LeaseGrant::Unknown;
        }
        let task = task_key(row_key);
        let holder = self.holder();
        let request = LeaseRequest {
            holder: &holder,
            lifetime: LEASE_LIFETIME,
            takes_over,
            above: last.epoch,
            ttl: self.task_ttl,
        };
        match self.engine.acquire(&task, request).await {
            Ok(LeaseOutcome::Granted { epoch, last: written }) => {
                let state = Arc::new(LeaseState {
                    epoch,
                    last: AtomicU64::new(written.max(last.number)),
                    waiting: Mutex::default(),
                    room: Notify::new(),
                    is_lost: watch::Sender::new(false),
                    needs_row: AtomicBool::new(false),
                    stopped: Notify::new(),
                    task,
                });
                let before = lock(&self.leases.held).insert(state.task.hash.clone(), Arc::downgrade(&state));
                if let Some(before) = before.and_then(|before| before.upgrade()) {
                    // Two calls with one task: the later one is followed.
                    before.lose();
                }
                LeaseGrant::Granted(TaskLease { shared: self.clone(), state })
            }
            Ok(LeaseOutcome::Held(_)) => LeaseGrant::Held,
            Err(error) => {
                debug!(%error, "failed to request lease of task");
                LeaseGrant::Unknown
            }
        }
    }

    pub(super) fn holder(&self) -> String {
        data_encoding::HEXLOWER.encode(&self.replica)
    }

    /// Renews leases and writes events. Runs until it is dropped.
    pub(super) async fn renew_leases(&self) {
        tokio::join!(self.renew_each(), self.write_events());
    }

    async fn renew_each(&self) {
        loop {
            tokio::time::sleep(RENEW_INTERVAL).await;
            let (leases, holder) = (self.leases.all(), self.holder());
            join_all(leases.iter().map(|lease| self.renew(lease, &holder))).await;
        }
    }

    async fn renew(&self, lease: &LeaseState, holder: &str) {
        let times = [LEASE_LIFETIME, self.task_ttl];
        match self.engine.renew(&lease.task, holder, lease.epoch, times).await {
            Ok(true) => {}
            Ok(false) => lease.lose(),
            // Another replica that reaches the engine takes the task over; this one finds out later.
            Err(error) => debug!(%error, "failed to renew lease"),
        }
    }

    /// Writes the events that wait, task by task.
    async fn write_events(&self) {
        loop {
            let waiting: Vec<_> = self.leases.all().into_iter().filter(|lease| lease.has_events()).collect();
            if waiting.is_empty() {
                self.leases.dirty.notified().await;
                continue;
            }
            let written = join_all(waiting.iter().map(|lease| self.write_events_of(lease))).await;
            if written.contains(&false) {
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        }
    }

    /// Writes the events of a task. Returns false if the engine does not answer.
    async fn write_events_of(&self, lease: &LeaseState) -> bool {
        let Some((first, events)) = lease.next_events() else { return true };
        let first = EventPosition { epoch: lease.epoch, number: first };
        let new = NewEvents { first, events: &events, ttl: self.task_ttl };
        match self.engine.append(&lease.task, new).await {
            Ok(true) => lease.forget(first.number, events.len()),
            Ok(false) => lease.lose(),
            Err(EngineError::Refused(reason)) => {
                debug!(reason, "engine refused events of task");
                lease.forget(first.number, events.len());
                lease.needs_row.store(true, Ordering::Release);
            }
            Err(_) => return false,
        }
        true
    }

    /// Returns true if this replica may follow tasks that no other one follows. While it ends, others
    /// come first.
    pub(crate) fn may_follow(&self) -> bool {
        lock(&self.leases.released).is_none_or(|released| released.elapsed() > OTHERS_FIRST)
    }

    /// Ends all leases, so that other replicas can follow the tasks at once.
    pub(crate) async fn release_leases(&self) {
        *lock(&self.leases.released) = Some(Instant::now());
        let (leases, holder) = (self.leases.all(), self.holder());
        leases.iter().for_each(|lease| lease.lose());
        join_all(leases.iter().map(async |lease| {
            // The stream of this replica ends before another one begins.
            let stopped = tokio::time::timeout(STOP_TIMEOUT, lease.stopped.notified()).await;
            debug!(has_stopped = stopped.is_ok(), "released lease");
            self.engine.release(&lease.task, &holder, lease.epoch).await.unwrap_or_default();
        }))
        .await;
    }

    /// Watches a task that another replica follows.
    pub(crate) async fn watch_events(self: &Arc<Self>, row_key: &[u8]) -> TaskEvents {
        let task = task_key(row_key);
        let wakes = {
            let mut watched = lock(&self.watched);
            watched.entry(task.hash.clone()).or_insert_with(|| watch::Sender::new(0)).subscribe()
        };
        if let Err(error) = self.engine.watch(&task).await {
            debug!(%error, "failed to watch task, it is looked at in turn");
        }
        TaskEvents { shared: self.clone(), task, wakes, version: 0 }
    }
}

impl LeaseState {
    fn has_events(&self) -> bool {
        !lock(&self.waiting).is_empty()
    }

    /// Returns the first events without a gap, and the number of the first one.
    fn next_events(&self) -> Option<(u64, Vec<Vec<u8>>)> {
        let waiting = lock(&self.waiting);
        let first = waiting.front()?.0;
        let mut bytes = 0;
        let run = (first..).zip(waiting.iter()).take_while(|(number, (of, event))| {
            bytes += event.len();
            number == of && (*number == first || (bytes <= MOST_WRITE_BYTES && number - first < MOST_WRITE))
        });
        Some((first, run.map(|(_, (_, event))| event.clone()).collect()))
    }

    fn lose(&self) {
        self.is_lost.send_replace(true);
        lock(&self.waiting).clear();
        self.room.notify_waiters();
    }

    /// Removes events that were written.
    fn forget(&self, first: u64, count: usize) {
        lock(&self.waiting).retain(|(number, _)| *number >= first + count as u64);
        self.room.notify_waiters();
    }
}

impl TaskLease {
    /// Returns the position of the next event.
    pub(crate) fn next(&self) -> EventPosition {
        let number = self.state.last.fetch_add(1, Ordering::AcqRel) + 1;
        EventPosition { epoch: self.state.epoch, number }
    }

    /// Adds the event at a position. Waits while too many events wait for an engine that
    /// answers.
    pub(crate) async fn push(&self, at: EventPosition, event: &[u8]) {
        let state = &*self.state;
        let number = at.number;
        if event.len() > MOST_EVENT_BYTES {
            return state.needs_row.store(true, Ordering::Release);
        }
        let sealed = self.shared.sealer.seal_bytes(&state.task.hash, event);
        loop {
            let has_room = state.room.notified();
            {
                let mut waiting = lock(&state.waiting);
                let bytes: usize = waiting.iter().map(|(_, event)| event.len()).sum();
                let is_full = waiting.len() >= MOST_WAITING || bytes >= MOST_WAITING_BYTES;
                if is_full && !self.shared.is_available() {
                    // The row tells their outcome, once the engine answers.
                    waiting.clear();
                    state.needs_row.store(true, Ordering::Release);
                }
                if *state.is_lost.borrow() {
                    break;
                }
                if !is_full || waiting.is_empty() {
                    waiting.push_back((number, sealed));
                    break;
                }
            }
            tokio::select! {
                () = has_room => {}
                () = tokio::time::sleep(Duration::from_millis(100)) => {}
            }
        }
        self.shared.leases.dirty.notify_one();
    }

    /// Returns the position of the last event.
    pub(crate) fn last(&self) -> EventPosition {
        EventPosition { epoch: self.state.epoch, number: self.state.last.load(Ordering::Acquire) }
    }

    /// Returns true if the row of the task is to be written after the event at this position.
    pub(crate) fn needs_row(&self, at: EventPosition) -> bool {
        self.state.needs_row.swap(false, Ordering::AcqRel) || at.number.is_multiple_of(EVENTS_PER_ROW)
    }

    /// Waits until another replica has taken the task over, or leases were released.
    pub(crate) async fn lost(&self) {
        let mut is_lost = self.state.is_lost.subscribe();
        if is_lost.wait_for(|is_lost| *is_lost).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Returns true if the lease is lost.
    pub(crate) fn is_lost(&self) -> bool {
        *self.state.is_lost.borrow()
    }
}

impl Drop for TaskLease {
    fn drop(&mut self) {
        self.state.stopped.notify_one();
        if self.is_lost() {
            return;
        }
        let (shared, state) = (self.shared.clone(), self.state.clone());
        // Outside of a runtime the process ends, and the lease with it.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        drop(runtime.spawn(async move {
            if state.has_events() {
                shared.write_events_of(&state).await;
            }
            state.lose();
            if let Err(error) = shared.engine.release(&state.task, &shared.holder(), state.epoch).await {
                debug!(%error, "failed to release lease, it expires");
            }
        }));
    }
}

/// The events of a task that another replica follows.
pub(crate) struct TaskEvents {
    shared: Arc<SharedState>,
    task: StateKey,
    wakes: watch::Receiver<u64>,
    /// The version of the row that was read last.
    version: u64,
}

/// News of a task that another replica follows.
#[derive(Debug, Default)]
pub(crate) struct TaskNews {
    /// Row of the task, if it has changed: to be learnt after the events.
    pub(crate) row: Option<Vec<u8>>,
    /// Events after the position that was asked for, in order.
    pub(crate) events: Vec<(EventPosition, Vec<u8>)>,
    /// True if no replica follows the task.
    pub(crate) is_free: bool,
    /// True if there are events that do not follow those which were asked for: they follow the row.
    pub(crate) has_gap: bool,
}

impl TaskEvents {
    /// Returns the news after a position; `None` if the engine does not answer. Events that do not
    /// follow without a gap are left out: the row tells more then.
    pub(crate) async fn read(&mut self, after: EventPosition) -> Option<TaskNews> {
        let read = self.shared.engine.read(&self.task, after).await.ok()?;
        let mut news = TaskNews { is_free: read.lease.is_none(), ..TaskNews::default() };
        // Replicas count for themselves while they are cut off: a number tells nothing about that of
        // another lease, and each lease begins with a row.
        let is_new = after == EventPosition::default();
        for (next, (at, sealed)) in (after.number + 1..).zip(&read.events) {
            if at.number != next || (at.epoch != after.epoch && !is_new) {
                break;
            }
            let Some(event) = self.shared.sealer.open_bytes(&self.task.hash, sealed) else { break };
            news.events.push((*at, event));
        }
        news.has_gap = news.events.len() < read.events.len() || (read.events.is_empty() && read.last > after);
        if read.version != self.version || news.has_gap {
            news.row = self.shared.task_row_of(&self.task).await;
            self.version = read.version;
        }
        Some(news)
    }

    /// Waits for a change of the task, no longer than 3 s.
    pub(crate) async fn changed(&mut self) {
        if let Ok(Err(_)) = tokio::time::timeout(LOOK_INTERVAL, self.wakes.changed()).await {
            std::future::pending::<()>().await;
        }
    }
}

impl Drop for TaskEvents {
    fn drop(&mut self) {
        let mut watched = lock(&self.shared.watched);
        let is_last = watched.get(&self.task.hash).is_some_and(|watcher| watcher.receiver_count() <= 1);
        if !is_last {
            return;
        }
        watched.remove(&self.task.hash);
        drop(watched);
        let (shared, task) = (self.shared.clone(), self.task.clone());
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        drop(runtime.spawn(async move {
            if !lock(&shared.watched).contains_key(&task.hash) {
                shared.engine.unwatch(&task).await.unwrap_or_default();
            }
        }));
    }
}
