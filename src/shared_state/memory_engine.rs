//! The engine as a model in memory, with a clock of its own, for tests: the same operations without a
//! server. Several replicas of one test share it, each through a link that can be cut.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::engine::{
    EngineError, LeaseOutcome, LeaseRequest, LoggedRow, NewEvents, SharedRate, SharedTask, StateEngine,
    StateKey, TaskRow, Wake,
};
use crate::sync::lock;
use crate::tasks::EventPosition;

/// Events of one task that are kept, as in the engine.
const MOST_EVENTS: usize = 512;

#[derive(Default)]
struct TaskState {
    epoch: u64,
    last: EventPosition,
    version: u64,
    row: Option<TaskRow>,
    events: BTreeMap<EventPosition, Vec<u8>>,
    lease: Option<(String, u64, Instant)>,
}

#[derive(Default)]
struct Data {
    values: HashMap<StateKey, (Vec<u8>, Instant)>,
    rates: HashMap<StateKey, Instant>,
    tasks: HashMap<Box<str>, TaskState>,
    indexes: HashMap<StateKey, BTreeMap<String, u64>>,
    log: Vec<Vec<u8>>,
    links: Vec<(mpsc::Sender<Wake>, Arc<Mutex<HashSet<Box<str>>>>)>,
}

/// The data of the engine, which replicas share.
#[derive(Clone, Default)]
pub(super) struct MemoryEngine(Arc<Mutex<Data>>);

/// The engine as one replica reaches it.
pub(super) struct EngineLink {
    engine: MemoryEngine,
    is_cut: Arc<AtomicBool>,
    failures: AtomicU64,
    watched: Arc<Mutex<HashSet<Box<str>>>>,
}

impl MemoryEngine {
    /// Returns a link to the engine, the receiver of its wake-ups, and the switch that cuts it.
    pub(super) fn link(&self) -> (Arc<EngineLink>, mpsc::Receiver<Wake>, Arc<AtomicBool>) {
        let (wakes, woken) = mpsc::channel(1024);
        let (is_cut, watched) = (Arc::new(AtomicBool::new(false)), Arc::default());
        lock(&self.0).links.push((wakes, Arc::clone(&watched)));
        let link = EngineLink { engine: self.clone(), is_cut: is_cut.clone(), failures: AtomicU64::new(0), watched };
        (Arc::new(link), woken, is_cut)
    }

    /// Loses all data, as a server that restarts empty.
    pub(super) fn forget(&self) {
        let mut data = lock(&self.0);
        *data = Data { links: std::mem::take(&mut data.links), ..Data::default() };
    }
}

impl Data {
    fn wake(&self, task: &StateKey) {
        for (wakes, watched) in &self.links {
            if lock(watched).contains(&task.hash) {
                drop(wakes.try_send(Wake::Task(task.hash.clone())));
            }
        }
    }

    fn task(&mut self, task: &StateKey) -> &mut TaskState {
        self.tasks.entry(task.hash.clone()).or_default()
    }

    fn value(&mut self, key: &StateKey) -> Option<Vec<u8>> {
        self.values.get(key).filter(|(_, expires)| *expires > Instant::now()).map(|(value, _)| value.clone())
    }

    fn set(&mut self, key: &StateKey, value: &[u8], ttl: Duration) {
        self.values.insert(key.clone(), (value.to_vec(), Instant::now() + ttl));
    }
}

impl TaskState {
    fn holder(&self) -> Option<&(String, u64, Instant)> {
        self.lease.as_ref().filter(|(_, _, expires)| *expires > Instant::now())
    }
}

impl EngineLink {
    fn data(&self) -> Result<std::sync::MutexGuard<'_, Data>, EngineError> {
        if self.is_cut.load(Ordering::Acquire) {
            self.failures.fetch_add(1, Ordering::Relaxed);
            return Err(EngineError::Disconnected);
        }
        Ok(lock(&self.engine.0))
    }
}

#[async_trait]
impl StateEngine for EngineLink {
    fn is_available(&self) -> bool {
        !self.is_cut.load(Ordering::Acquire)
    }

    fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    async fn set_if_absent(
        &self,
        key: &StateKey,
        value: &[u8],
        ttl: Duration,
    ) -> Result<Option<Vec<u8>>, EngineError> {
        let mut data = self.data()?;
        let present = data.value(key);
        if present.is_none() {
            data.set(key, value, ttl);
        }
        Ok(present)
    }

    async fn compare_and_set(
        &self,
        key: &StateKey,
        expected: &[u8],
        value: Option<&[u8]>,
        ttl: Duration,
    ) -> Result<bool, EngineError> {
        let mut data = self.data()?;
        if data.value(key).as_deref() != Some(expected) {
            return Ok(false);
        }
        match value {
            Some(value) => data.set(key, value, ttl),
            None => drop(data.values.remove(key)),
        }
        Ok(true)
    }

    async fn get(&self, key: &StateKey) -> Result<Option<Vec<u8>>, EngineError> {
        Ok(self.data()?.value(key))
    }

    async fn set(&self, key: &StateKey, value: &[u8], ttl: Duration) -> Result<(), EngineError> {
        self.data()?.set(key, value, ttl);
        Ok(())
    }

    async fn take(&self, key: &StateKey, rate: SharedRate) -> Result<Option<Duration>, EngineError> {
        let mut data = self.data()?;
        let now = Instant::now();
        let due = data.rates.get(key).copied().unwrap_or(now).max(now) + rate.interval;
        let latest = now + rate.interval * rate.burst;
        if due > latest {
            return Ok(Some(due - latest));
        }
        data.rates.insert(key.clone(), due);
        Ok(None)
    }

    async fn acquire(
        &self,
        task: &StateKey,
        request: LeaseRequest<'_>,
    ) -> Result<LeaseOutcome, EngineError> {
        let mut data = self.data()?;
        let state = data.task(task);
        let other = state.holder().filter(|(holder, ..)| holder != request.holder);
        let is_other = other.is_some();
        if let Some((_, _, expires)) = other.filter(|_| !request.takes_over) {
            return Ok(LeaseOutcome::Held(*expires - Instant::now()));
        }
        let epoch = state.epoch.max(request.above) + 1;
        state.epoch = epoch;
        state.lease = Some((request.holder.to_owned(), epoch, Instant::now() + request.lifetime));
        let last = state.last.number;
        if is_other {
            data.wake(task);
        }
        Ok(LeaseOutcome::Granted { epoch, last })
    }

    async fn renew(
        &self,
        task: &StateKey,
        holder: &str,
        epoch: u64,
        [lifetime, _]: [Duration; 2],
    ) -> Result<bool, EngineError> {
        let mut data = self.data()?;
        let state = data.task(task);
        let is_own = state.holder().is_some_and(|(of, at, _)| of == holder && *at == epoch);
        if !is_own && (state.holder().is_some() || state.epoch > epoch) {
            return Ok(false);
        }
        state.epoch = epoch;
        state.lease = Some((holder.to_owned(), epoch, Instant::now() + lifetime));
        Ok(true)
    }

    async fn release(&self, task: &StateKey, holder: &str, epoch: u64) -> Result<(), EngineError> {
        let mut data = self.data()?;
        let state = data.task(task);
        if state.holder().is_some_and(|(of, at, _)| of == holder && *at == epoch) {
            state.lease = None;
            data.wake(task);
        }
        Ok(())
    }

    async fn append(&self, task: &StateKey, new: NewEvents<'_>) -> Result<bool, EngineError> {
        let mut data = self.data()?;
        let state = data.task(task);
        if state.epoch > new.first.epoch {
            return Ok(false);
        }
        state.epoch = new.first.epoch;
        for (number, event) in (new.first.number..).zip(new.events) {
            let at = EventPosition { epoch: new.first.epoch, number };
            if at > state.last {
                state.events.insert(at, event.clone());
                state.last = at;
            }
        }
        while state.events.len() > MOST_EVENTS {
            state.events.pop_first();
        }
        data.wake(task);
        Ok(true)
    }

    async fn read(&self, task: &StateKey, after: EventPosition) -> Result<SharedTask, EngineError> {
        let mut data = self.data()?;
        let state = data.task(task);
        let events = state.events.iter().filter(|(at, _)| **at > after);
        Ok(SharedTask {
            events: events.map(|(at, event)| (*at, event.clone())).collect(),
            last: state.last,
            version: state.version,
            lease: state.holder().map(|(_, _, expires)| *expires - Instant::now()),
        })
    }

    async fn put_row(
        &self,
        task: &StateKey,
        row: &TaskRow,
        _ttl: Duration,
    ) -> Result<Option<TaskRow>, EngineError> {
        let mut data = self.data()?;
        let state = data.task(task);
        if let Some(later) = state.row.as_ref().filter(|present| present.at > row.at) {
            return Ok(Some(later.clone()));
        }
        state.row = Some(row.clone());
        state.version += 1;
        data.wake(task);
        Ok(None)
    }

    async fn row(&self, task: &StateKey) -> Result<Option<TaskRow>, EngineError> {
        Ok(self.data()?.task(task).row.clone())
    }

    async fn index(
        &self,
        key: &StateKey,
        member: &str,
        score: u64,
        _ttl: Duration,
    ) -> Result<(), EngineError> {
        self.data()?.indexes.entry(key.clone()).or_default().insert(member.to_owned(), score);
        Ok(())
    }

    async fn indexed(&self, key: &StateKey, most: usize) -> Result<Vec<String>, EngineError> {
        let data = self.data()?;
        let mut members: Vec<_> = data.indexes.get(key).into_iter().flatten().collect();
        members.sort_by_key(|(_, score)| std::cmp::Reverse(**score));
        Ok(members.into_iter().take(most).map(|(member, _)| member.clone()).collect())
    }

    async fn log(&self, row: &[u8]) -> Result<(), EngineError> {
        let mut data = self.data()?;
        data.log.push(row.to_vec());
        for (wakes, _) in &data.links {
            drop(wakes.try_send(Wake::Log));
        }
        Ok(())
    }

    async fn logged(&self, after: Option<&str>, most: usize) -> Result<Vec<LoggedRow>, EngineError> {
        let first: usize = after.map_or(0, |after| after.parse::<usize>().unwrap_or_default() + 1);
        let data = self.data()?;
        let rows = data.log.iter().enumerate().skip(first).take(most);
        Ok(rows.map(|(at, row)| LoggedRow { position: at.to_string().into(), row: row.clone() }).collect())
    }

    async fn watch(&self, task: &StateKey) -> Result<(), EngineError> {
        lock(&self.watched).insert(task.hash.clone());
        self.data().map(drop)
    }

    async fn unwatch(&self, task: &StateKey) -> Result<(), EngineError> {
        lock(&self.watched).remove(&task.hash);
        self.data().map(drop)
    }
}
