//! The engine within this process, for one process: it does all that `redis_engine` does for several, with
//! nothing to install. Its rows are in a file or in memory: see `local_store`.
//!
//! While another process has the file, the engine counts as absent, as one that cannot be reached.

use std::cmp::Reverse;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use redb::ReadOnlyTable;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};
use tracing::{debug, warn};

use super::engine::{
    Availability, BEAT_INTERVAL, BEAT_TTL, EngineError, LOG_TTL, LeaseOutcome, LeaseRequest, LoggedRow,
    MOST_EVENTS, NewEvents, SharedRate, SharedTask, StateEngine, StateKey, StateKind, TaskRow, UnitRequest,
    UnitsHeld, Wake,
};
use super::local_store::{
    Bytes, EVENT, HeldLease, LOG, LocalStore, MEMBER, MOST_SWEPT, MOST_TTL, NAME_BYTES, OperationWork,
    PendingOperation, ROW, RowDurability, RowView, WakeLink, WritableRows, event_suffix, is_task_part,
    name_of, number_of, position_of, with_suffix,
};
use crate::config::{State, StateLocation};
use crate::tasks::EventPosition;
use crate::tasks::store::StoreProblem;
use crate::timing::Backoff;

/// Interval of searches for expired rows, shortest pause between two, and rows that one transaction removes.
const SWEEP_INTERVAL: Duration = Duration::from_secs(60);
const SWEEP_PAUSE: Duration = Duration::from_secs(5);
const SWEPT_AT_ONCE: usize = 512;
/// Heartbeats of which one makes durable all that waits for that.
const BEATS_OF_DURABLE: u32 = 5;
/// Room that a heartbeat needs, though it takes less: an engine without room for the largest row is full.
const LEAST_ROOM: usize = 5 * 1024 * 1024;
/// Pauses after files that could not be opened: each try reads the file.
const REOPEN: Backoff = Backoff { base: Duration::from_secs(1), max: Duration::from_secs(30) };

/// The engine as one replica reaches it.
pub(crate) struct LocalEngine {
    store: Arc<LocalStore>,
    link: Arc<WakeLink>,
    /// Key of the heartbeat.
    replica: StateKey,
    timeout: Duration,
    pub(super) availability: Arc<Availability>,
    /// True while the file is opened for the first time.
    is_opening: AtomicBool,
    /// True once a heartbeat was written.
    has_beaten: AtomicBool,
    /// Notified when there is no room.
    full: Notify,
}

impl LocalEngine {
    /// Creates the engine of these settings, and the receiver of its wake-ups. Nothing is opened: see
    /// [`StateEngine::keep_connected`].
    pub(super) fn new(
        state: &State,
        replica: StateKey,
        most_wakes: usize,
    ) -> (Arc<Self>, mpsc::Receiver<Wake>) {
        let file = match &state.location {
            StateLocation::File(file) => Some(file.clone()),
            StateLocation::Memory | StateLocation::Servers(_) => None,
        };
        Self::with(LocalStore::new(file, &state.prefix), replica, most_wakes, state.timeout)
    }

    /// Creates the engine of a replica with these rows.
    pub(super) fn with(
        store: Arc<LocalStore>,
        replica: StateKey,
        most_wakes: usize,
        timeout: Duration,
    ) -> (Arc<Self>, mpsc::Receiver<Wake>) {
        let (link, woken) = store.link(most_wakes);
        let engine = Self {
            store,
            link,
            replica,
            timeout,
            availability: Arc::default(),
            is_opening: AtomicBool::new(false),
            has_beaten: AtomicBool::new(false),
            full: Notify::new(),
        };
        (Arc::new(engine), woken)
    }

    /// Does `work` in a transaction, if there is room for so many bytes more.
    async fn write<T: Send + 'static>(
        &self,
        durability: RowDurability,
        bytes: usize,
        work: impl FnOnce(&mut WritableRows<'_>) -> Result<T, redb::Error> + Send + 'static,
    ) -> Result<T, EngineError> {
        self.availability.check()?;
        let written = self.try_write(durability, bytes, work).await;
        self.checked(written)
    }

    /// Writes whether or not the engine counts as absent, and records no failure.
    async fn try_write<T: Send + 'static>(
        &self,
        durability: RowDurability,
        bytes: usize,
        work: impl FnOnce(&mut WritableRows<'_>) -> Result<T, redb::Error> + Send + 'static,
    ) -> Result<T, EngineError> {
        let (done, mut answer) = oneshot::channel();
        let most = self.store.most_bytes();
        let work: OperationWork = Box::new(move |rows| {
            let result = match bytes > 0 && rows.bytes.saturating_add(bytes) > most {
                true => Err(EngineError::Busy(format!("it is full: {} bytes", rows.bytes))),
                false => Ok(work(rows)?),
            };
            Ok(Box::new(move || drop(done.send(result))))
        });
        let is_first = self.store.enqueue(PendingOperation { durability, work })?;
        if self.store.is_in_memory() {
            self.store.write_waiting().map_err(disconnected)?;
            return answer.try_recv().unwrap_or(Err(EngineError::Disconnected));
        }
        // Others wait for the transaction that is made already.
        if is_first {
            let store = self.store.clone();
            drop(spawn_blocking(move || store.write_waiting().map_err(disconnected)));
        }
        let answered = timeout(self.timeout, answer).await.map_err(|_| EngineError::Timeout)?;
        answered.unwrap_or(Err(EngineError::Disconnected))
    }

    async fn read_rows<T: Send + 'static>(
        &self,
        work: impl FnOnce(&RowView<'_, ReadOnlyTable<Bytes, Bytes>>) -> Result<T, redb::Error> + Send + 'static,
    ) -> Result<T, EngineError> {
        self.availability.check()?;
        let read = if self.store.is_in_memory() {
            self.store.read(work).map_err(disconnected)
        } else {
            let store = self.store.clone();
            let read = spawn_blocking(move || store.read(work).map_err(disconnected));
            match timeout(self.timeout, read).await {
                Ok(read) => read.unwrap_or(Err(EngineError::Disconnected)),
                Err(_) => Err(EngineError::Timeout),
            }
        };
        self.checked(read.and_then(|read| read.ok_or(EngineError::Disconnected)))
    }

    fn checked<T>(&self, result: Result<T, EngineError>) -> Result<T, EngineError> {
        result.inspect_err(|error| match error {
            EngineError::Refused(_) | EngineError::Busy(_) => self.availability.count_failure(),
            EngineError::Timeout | EngineError::Disconnected => _ = self.mark_absent(error),
        })
    }

    fn mark_absent(&self, error: &EngineError) -> bool {
        let was_available = self.availability.mark_absent(error);
        if was_available {
            self.link.wake(&Wake::All);
        }
        was_available
    }

    async fn open(&self) -> Result<(), StoreProblem> {
        let (store, file) = (self.store.clone(), self.store.path().to_owned());
        let opened = spawn_blocking(move || store.open()).await;
        opened.unwrap_or_else(|error| Err(StoreProblem::Disk { file, what: error.to_string() }))
    }

    /// Writes that this replica lives. Returns true if it has not lost the heartbeat before.
    async fn beat(&self, durability: RowDurability) -> Result<bool, EngineError> {
        let key = name_of(&self.replica);
        let beaten = self.try_write(durability, LEAST_ROOM, move |rows| {
            let has_before = rows.has(&key)?;
            rows.put(&key, b"1", BEAT_TTL)?;
            Ok(has_before)
        });
        let has_before = beaten.await?;
        let is_first = !self.has_beaten.swap(true, Ordering::AcqRel);
        Ok(has_before || is_first)
    }

    /// Opens the file if it is not open, and writes a heartbeat, each second.
    async fn keep_beating(&self) {
        let (mut beats, mut attempts): (u32, u32) = (0, 0);
        let (mut told, mut is_to_tell_loss) = (String::new(), false);
        self.is_opening.store(true, Ordering::Release);
        loop {
            let mut pause = BEAT_INTERVAL;
            let opened = self.open().await;
            self.is_opening.store(false, Ordering::Release);
            let is_durable = beats.is_multiple_of(BEATS_OF_DURABLE);
            let beaten = match opened {
                Ok(()) => {
                    attempts = 0;
                    self.beat(if is_durable { RowDurability::AtOnce } else { RowDurability::Later }).await
                }
                Err(problem) => {
                    if !matches!(problem, StoreProblem::Owned { .. }) {
                        pause = REOPEN.pause(attempts);
                        attempts = attempts.saturating_add(1);
                    }
                    Err(EngineError::Refused(problem.to_string()))
                }
            };
            match beaten {
                Ok(has_before) => {
                    told.clear();
                    is_to_tell_loss |= !has_before;
                    is_to_tell_loss = is_to_tell_loss && !self.link.wake(&Wake::Forgotten);
                    let is_back = self.availability.mark_present();
                    if self.link.take_lost() || is_back {
                        self.link.wake(&Wake::All);
                    }
                }
                Err(error) => {
                    if matches!(error, EngineError::Busy(_)) {
                        self.full.notify_one();
                    }
                    let (is_logged, text) = (self.mark_absent(&error), error.to_string());
                    if !is_logged && told != text {
                        warn!(%error, "cannot use the engine of shared state; this replica works alone, retrying");
                    }
                    told = text;
                }
            }
            beats = beats.wrapping_add(1);
            sleep(pause).await;
        }
    }

    /// Removes expired rows each minute, and when there is no room.
    async fn keep_swept(&self) {
        loop {
            tokio::select! {
                () = sleep(SWEEP_INTERVAL) => {}
                () = self.full.notified() => {}
            }
            if let Err(error) = self.sweep().await {
                debug!(%error, "failed to remove expired rows of shared state");
            }
            sleep(SWEEP_PAUSE).await;
        }
    }

    /// Removes expired rows, and those beyond a bound.
    async fn sweep(&self) -> Result<(), EngineError> {
        loop {
            let store = self.store.clone();
            let found = spawn_blocking(move || store.find_expired()).await;
            let found = found.map_err(|_| EngineError::Disconnected)?.map_err(disconnected)?;
            for keys in found.expired.chunks(SWEPT_AT_ONCE).map(<[Vec<u8>]>::to_vec) {
                let removed = self.try_write(RowDurability::Later, 0, move |rows| {
                    for key in &keys {
                        let head = key.get(..NAME_BYTES).filter(|_| is_task_part(key));
                        for needed in [head, Some(key.as_slice())].into_iter().flatten() {
                            if rows.view().value(needed)?.is_none() {
                                rows.remove(key)?;
                            }
                        }
                    }
                    Ok(())
                });
                removed.await?;
            }
            for keys in found.beyond.chunks(SWEPT_AT_ONCE).map(<[(Vec<u8>, u64)]>::to_vec) {
                let removed = self.try_write(RowDurability::Later, 0, move |rows| {
                    keys.iter().try_for_each(|(key, expires)| rows.remove_unchanged(key, *expires))
                });
                removed.await?;
            }
            if found.expired.len() < MOST_SWEPT {
                return Ok(());
            }
        }
    }
}

/// Returns the time at which a value of this kind must be durable: those of replicas end with the process.
fn durability_of(key: &StateKey) -> RowDurability {
    if key.kind == StateKind::Replica { RowDurability::Later } else { RowDurability::AtOnce }
}

/// Logs the failure of the store, which is opened again at the next heartbeat.
fn disconnected(problem: StoreProblem) -> EngineError {
    debug!(%problem, "engine of shared state has failed");
    EngineError::Disconnected
}

#[async_trait]
impl StateEngine for LocalEngine {
    async fn keep_connected(&self) {
        tokio::join!(self.keep_beating(), self.keep_swept());
    }

    fn is_opening(&self) -> bool {
        self.is_opening.load(Ordering::Acquire)
    }

    fn is_available(&self) -> bool {
        self.availability.is_available()
    }

    fn failures(&self) -> u64 {
        self.availability.failures()
    }

    async fn set_if_absent(
        &self,
        key: &StateKey,
        value: &[u8],
        ttl: Duration,
    ) -> Result<Option<Vec<u8>>, EngineError> {
        let (key, value) = (name_of(key), value.to_vec());
        let set = self.write(RowDurability::AtOnce, key.len() + value.len(), move |rows| {
            let present = rows.view().value(&key)?;
            if present.is_none() {
                rows.put(&key, &value, ttl)?;
            }
            Ok(present)
        });
        set.await
    }

    async fn compare_and_set(
        &self,
        key: &StateKey,
        expected: &[u8],
        value: Option<&[u8]>,
        ttl: Duration,
    ) -> Result<bool, EngineError> {
        let (key, expected, value) = (name_of(key), expected.to_vec(), value.map(<[u8]>::to_vec));
        let set = self.write(RowDurability::AtOnce, value.as_ref().map_or(0, Vec::len), move |rows| {
            if rows.view().value(&key)?.as_ref() != Some(&expected) {
                return Ok(false);
            }
            match value {
                Some(value) => rows.put(&key, &value, ttl)?,
                None => rows.remove(&key)?,
            }
            Ok(true)
        });
        set.await
    }

    async fn get(&self, key: &StateKey) -> Result<Option<Vec<u8>>, EngineError> {
        let key = name_of(key);
        self.read_rows(move |view| view.value(&key)).await
    }

    async fn set(&self, key: &StateKey, value: &[u8], ttl: Duration) -> Result<(), EngineError> {
        let (durability, key, value) = (durability_of(key), name_of(key), value.to_vec());
        self.write(durability, key.len() + value.len(), move |rows| rows.put(&key, &value, ttl)).await
    }

    async fn take(&self, key: &StateKey, rate: SharedRate) -> Result<Option<Duration>, EngineError> {
        let key = name_of(key);
        let interval = u64::try_from(rate.interval.as_micros()).unwrap_or(u64::MAX).max(1);
        let burst = interval.saturating_mul(rate.burst.max(1).into());
        let taken = self.write(RowDurability::Later, key.len() + 8, move |rows| {
            let present = rows.view().value(&key)?.and_then(|due| number_of(&due)).unwrap_or_default();
            let latest = rows.now.0.saturating_add(burst);
            // After the clock was set back the wait is not longer than that.
            let due = present.clamp(rows.now.0, latest).saturating_add(interval);
            if due > latest {
                return Ok(Some(Duration::from_micros(due - latest)));
            }
            let ttl = Duration::from_micros(due - rows.now.0) + Duration::from_millis(1);
            rows.put(&key, &due.to_be_bytes(), ttl)?;
            Ok(None)
        });
        taken.await
    }

    async fn hold_units(&self, key: &StateKey, request: UnitRequest<'_>) -> Result<UnitsHeld, EngineError> {
        let name = with_suffix(&name_of(key), MEMBER, &[]);
        let own = [&name, request.holder.as_bytes()].concat();
        let UnitRequest { needed, wanted, limit, lifetime, .. } = request;
        let held = self.write(RowDurability::Later, own.len() + 8, move |rows| {
            let mut others: usize = 0;
            for (holder, units) in rows.view().after(&name, &[], usize::MAX)? {
                if [&name, holder.as_slice()].concat() != own {
                    let units = number_of(&units).and_then(|units| usize::try_from(units).ok());
                    others = others.saturating_add(units.unwrap_or_default());
                }
            }
            let units = needed.max(wanted.min(limit.saturating_sub(others)));
            match u64::try_from(units).unwrap_or(u64::MAX) {
                0 => rows.remove(&own)?,
                held => rows.put(&own, &held.to_be_bytes(), lifetime)?,
            }
            Ok(UnitsHeld { own: units, others })
        });
        held.await
    }

    async fn acquire(&self, task: &StateKey, request: LeaseRequest<'_>) -> Result<LeaseOutcome, EngineError> {
        let (name, holder) = (name_of(task), request.holder.to_owned());
        let LeaseRequest { lifetime, takes_over, above, ttl, .. } = request;
        let acquired = self.write(RowDurability::AtOnce, name.len() + holder.len(), move |rows| {
            let (mut head, now) = (rows.head(&name)?, rows.now);
            let other = head.held(now).filter(|held| held.holder != holder);
            if let Some(held) = other.filter(|_| !takes_over) {
                return Ok(LeaseOutcome::Held(Duration::from_millis(held.expires - now.millis())));
            }
            if other.is_some() {
                rows.wake(&name);
            }
            let epoch = head.epoch.max(above).saturating_add(1);
            head.epoch = epoch;
            head.lease = Some(HeldLease { holder, epoch, expires: now.after(lifetime) });
            rows.put_head(&name, &head, ttl)?;
            Ok(LeaseOutcome::Granted { epoch, last: head.last.1 })
        });
        acquired.await
    }

    async fn renew(
        &self,
        task: &StateKey,
        holder: &str,
        epoch: u64,
        [lifetime, ttl]: [Duration; 2],
    ) -> Result<bool, EngineError> {
        let (name, holder) = (name_of(task), holder.to_owned());
        let renewed = self.write(RowDurability::Later, name.len() + holder.len(), move |rows| {
            let (mut head, now) = (rows.head(&name)?, rows.now);
            // Rows that were lost get the lease back, if there is no later one.
            let is_later = head.held(now).is_some() || head.epoch > epoch;
            if is_later && !head.is_held_by(&holder, epoch, now) {
                return Ok(false);
            }
            head.epoch = epoch;
            head.lease = Some(HeldLease { holder, epoch, expires: now.after(lifetime) });
            rows.put_head(&name, &head, ttl)?;
            Ok(true)
        });
        renewed.await
    }

    async fn release(&self, task: &StateKey, holder: &str, epoch: u64) -> Result<(), EngineError> {
        let (name, holder) = (name_of(task), holder.to_owned());
        let released = self.write(RowDurability::AtOnce, 0, move |rows| {
            let Some(mut head) = rows.view().head(&name)? else { return Ok(()) };
            if head.is_held_by(&holder, epoch, rows.now) {
                head.lease = None;
                let ttl = rows.time_left(&name)?;
                rows.put_head(&name, &head, ttl)?;
                rows.wake(&name);
            }
            Ok(())
        });
        released.await
    }

    async fn append(&self, task: &StateKey, new: NewEvents<'_>) -> Result<bool, EngineError> {
        let (name, events) = (name_of(task), new.events.to_vec());
        let NewEvents { first, ttl, .. } = new;
        let bytes = events.iter().map(Vec::len).sum::<usize>().saturating_add(name.len());
        let added = self.write(RowDurability::AtOnce, bytes, move |rows| {
            let mut head = rows.head(&name)?;
            if head.epoch > first.epoch {
                return Ok(false);
            }
            // An event that is there already is left out: the caller tries again when it got no answer.
            let mut last = if head.epoch == first.epoch { head.last.1 } else { 0 };
            for (number, event) in (first.number..).zip(&events) {
                if number > last {
                    let at = EventPosition { epoch: first.epoch, number };
                    rows.put(&with_suffix(&name, EVENT, &event_suffix(at)), event, ttl)?;
                    last = number;
                }
            }
            rows.keep_last(&with_suffix(&name, EVENT, &[]), MOST_EVENTS)?;
            (head.epoch, head.last) = (first.epoch, (first.epoch, last));
            rows.put_head(&name, &head, ttl)?;
            rows.wake(&name);
            Ok(true)
        });
        added.await
    }

    async fn read(&self, task: &StateKey, after: EventPosition) -> Result<SharedTask, EngineError> {
        let name = name_of(task);
        let read = self.read_rows(move |view| {
            let Some(head) = view.head(&name)? else { return Ok(SharedTask::default()) };
            let prefix = with_suffix(&name, EVENT, &[]);
            let events = view.after(&prefix, &event_suffix(after), MOST_EVENTS)?;
            let (epoch, number) = head.last;
            let left = |lease: &HeldLease| Duration::from_millis(lease.expires - view.now.millis());
            Ok(SharedTask {
                events: events
                    .into_iter()
                    .filter_map(|(suffix, event)| Some((position_of(&suffix)?, event)))
                    .collect(),
                last: EventPosition { epoch, number },
                version: head.version,
                lease: head.held(view.now).map(left),
            })
        });
        read.await
    }

    async fn put_row(
        &self,
        task: &StateKey,
        row: &TaskRow,
        ttl: Duration,
    ) -> Result<Option<TaskRow>, EngineError> {
        let (name, row) = (name_of(task), row.clone());
        let put = self.write(RowDurability::AtOnce, name.len() + row.row.len(), move |rows| {
            let mut head = rows.head(&name)?;
            let key = with_suffix(&name, ROW, &[]);
            let present = rows.view().value(&key)?.as_deref().and_then(row_of);
            if let Some(later) = present.filter(|present| present.at > row.at) {
                return Ok(Some(later));
            }
            rows.put(&key, &[event_suffix(row.at), row.row].concat(), MOST_TTL)?;
            head.version += 1;
            rows.put_head(&name, &head, ttl)?;
            rows.wake(&name);
            Ok(None)
        });
        put.await
    }

    async fn row(&self, task: &StateKey) -> Result<Option<TaskRow>, EngineError> {
        let name = name_of(task);
        let read = self.read_rows(move |view| {
            let is_live = view.head(&name)?.is_some();
            let row = view.value(&with_suffix(&name, ROW, &[]))?.filter(|_| is_live);
            Ok(row.as_deref().and_then(row_of))
        });
        read.await
    }

    async fn index(
        &self,
        key: &StateKey,
        member: &str,
        score: u64,
        ttl: Duration,
    ) -> Result<(), EngineError> {
        let (durability, key) = (durability_of(key), with_suffix(&name_of(key), MEMBER, member.as_bytes()));
        self.write(durability, key.len() + 8, move |rows| rows.put(&key, &score.to_be_bytes(), ttl)).await
    }

    async fn indexed(&self, key: &StateKey, most: usize) -> Result<Vec<String>, EngineError> {
        let prefix = with_suffix(&name_of(key), MEMBER, &[]);
        let mut members = self.read_rows(move |view| view.after(&prefix, &[], usize::MAX)).await?;
        members.sort_by_key(|(_, score)| Reverse(number_of(score)));
        Ok(members.into_iter().take(most).filter_map(|(member, _)| String::from_utf8(member).ok()).collect())
    }

    async fn log(&self, row: &[u8]) -> Result<(), EngineError> {
        let row = row.to_vec();
        let logged = self.write(RowDurability::AtOnce, row.len(), move |rows| {
            let last = rows.last_suffix(LOG)?.and_then(|number| number_of(&number)).unwrap_or_default();
            // The time, so that positions grow after all rows have expired.
            let number = rows.now.0.max(last.saturating_add(1));
            rows.put(&[LOG, &number.to_be_bytes()].concat(), &row, LOG_TTL)?;
            rows.wakes.push(Wake::Log);
            Ok(())
        });
        logged.await
    }

    async fn logged(&self, after: Option<&str>, most: usize) -> Result<Vec<LoggedRow>, EngineError> {
        let after = after.and_then(|after| after.parse().ok()).unwrap_or(0_u64).to_be_bytes();
        let rows = self.read_rows(move |view| view.after(LOG, &after, most)).await?;
        let row = |(position, row): (Vec<u8>, Vec<u8>)| {
            Some(LoggedRow { position: number_of(&position)?.to_string().into(), row })
        };
        Ok(rows.into_iter().filter_map(row).collect())
    }

    async fn watch(&self, task: &StateKey) -> Result<(), EngineError> {
        self.link.watch(&task.hash, true);
        self.availability.check()
    }

    async fn unwatch(&self, task: &StateKey) -> Result<(), EngineError> {
        self.link.watch(&task.hash, false);
        self.availability.check()
    }
}

/// Returns the row of a task in this value: position, row.
fn row_of(value: &[u8]) -> Option<TaskRow> {
    Some(TaskRow { at: position_of(value)?, row: value.get(16..)?.to_vec() })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use futures_util::future::join_all;
    use tokio::time::advance;

    use super::super::engine::{MOST_INDEXED, StateKind};
    use super::super::tests::{engine_of, rows_in_memory};
    use super::*;

    const TTL: Duration = Duration::from_secs(100);

    fn key(kind: StateKind) -> StateKey {
        StateKey::new(kind, b"name")
    }

    fn at(epoch: u64, number: u64) -> EventPosition {
        EventPosition { epoch, number }
    }

    fn request(holder: &str) -> LeaseRequest<'_> {
        LeaseRequest { holder, lifetime: BEAT_TTL, takes_over: false, above: 0, ttl: TTL }
    }

    /// A file as another process finds it later.
    #[tokio::test]
    async fn rows_outlive_the_process() {
        let folder = tempfile::tempdir().unwrap();
        let open = || {
            let store = LocalStore::new(Some(folder.path().join("new/state.redb")), "gateway");
            store.open().unwrap();
            (engine_of(&store, b"replica").0, store)
        };
        let (task, claim, index) = (key(StateKind::Task), key(StateKind::Claim), key(StateKind::Owner));
        let row = TaskRow { at: at(1, 2), row: b"row".to_vec() };
        let rate = SharedRate { interval: TTL, burst: 1 };
        let units = UnitRequest { holder: "one", needed: 1, wanted: 3, limit: 4, lifetime: TTL };
        {
            let (engine, store) = open();
            let granted = engine.acquire(&task, request("one")).await;
            assert_eq!(granted, Ok(LeaseOutcome::Granted { epoch: 1, last: 0 }));
            let new = NewEvents { first: at(1, 1), events: &[b"a".to_vec(), b"b".to_vec()], ttl: TTL };
            assert_eq!(engine.append(&task, new).await, Ok(true));
            assert_eq!(engine.put_row(&task, &row, TTL).await, Ok(None));
            assert_eq!(engine.set_if_absent(&claim, b"mine", TTL).await, Ok(None));
            engine.index(&index, "older", 1, TTL).await.unwrap();
            engine.index(&index, "newer", 2, TTL).await.unwrap();
            engine.log(b"logged").await.unwrap();
            assert_eq!(engine.take(&key(StateKind::Rate), rate).await, Ok(None));
            let held = engine.hold_units(&key(StateKind::Units), units).await;
            assert_eq!(held, Ok(UnitsHeld { own: 3, others: 0 }));
            drop(engine);
            // The thread of the last transaction may still have it.
            while Arc::strong_count(&store) > 1 {
                tokio::task::yield_now().await;
            }
        }
        let (engine, store) = open();
        let read = engine.read(&task, at(1, 1)).await.unwrap();
        assert_eq!((read.events, read.last, read.version), (vec![(at(1, 2), b"b".to_vec())], at(1, 2), 1));
        // The file has no other process: leases and units of the one before are free.
        assert_eq!(read.lease, None);
        let granted = engine.acquire(&task, request("two")).await;
        assert_eq!(granted, Ok(LeaseOutcome::Granted { epoch: 2, last: 2 }));
        assert_eq!(engine.row(&task).await, Ok(Some(row)));
        assert_eq!(engine.set_if_absent(&claim, b"other", TTL).await, Ok(Some(b"mine".to_vec())));
        assert_eq!(engine.indexed(&index, 1).await, Ok(vec!["newer".to_owned()]));
        let logged = engine.logged(None, 9).await.unwrap();
        assert_eq!(logged.iter().map(|row| row.row.as_slice()).collect::<Vec<_>>(), [b"logged"]);
        assert_eq!(engine.logged(Some(&logged[0].position), 9).await, Ok(vec![]));
        assert!(engine.take(&key(StateKind::Rate), rate).await.unwrap().is_some());
        let units = UnitRequest { holder: "two", wanted: 2, ..units };
        let held = engine.hold_units(&key(StateKind::Units), units).await;
        assert_eq!(held, Ok(UnitsHeld { own: 2, others: 0 }));
        let (counted, real) = store.bytes();
        assert_eq!(counted, real);
    }

    /// While another process has the file the engine counts as absent, and is opened afterwards.
    #[tokio::test]
    async fn a_file_belongs_to_one_process() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("state.redb");
        let first = LocalStore::new(Some(file.clone()), "gateway");
        first.open().unwrap();
        let second = LocalStore::new(Some(file.clone()), "gateway");
        let (engine, _wakes) = LocalEngine::with(second, key(StateKind::Replica), 8, TTL);
        let error = engine.open().await.unwrap_err().to_string();
        assert!(error.contains("state.redb belongs to another process that still runs"), "{error}");
        assert_eq!(engine.get(&key(StateKind::Claim)).await, Err(EngineError::Disconnected));
        drop(first);
        engine.open().await.unwrap();
        let mode = std::fs::metadata(&file).unwrap().permissions().mode();
        assert_eq!((mode & 0o777, folder.path().read_dir().unwrap().count()), (0o600, 1), "no draft is left");
        std::fs::write(folder.path().join("other"), b"no database at all, but a text of some length")
            .unwrap();
        let damaged = LocalStore::new(Some(folder.path().join("other")), "gateway").open().unwrap_err();
        assert!(damaged.to_string().contains("other is damaged"), "{damaged}");
    }

    #[tokio::test]
    async fn waiting_operations_are_decided_one_after_the_other() {
        let folder = tempfile::tempdir().unwrap();
        let store = LocalStore::new(Some(folder.path().join("state.redb")), "gateway");
        store.open().unwrap();
        let (engine, _wakes) = engine_of(&store, b"replica");
        let claim = key(StateKind::Claim);
        let names: Vec<_> = (0..200).map(|number: u32| number.to_be_bytes()).collect();
        let claims = join_all(names.iter().map(|name| engine.set_if_absent(&claim, name, TTL))).await;
        assert_eq!(claims.iter().filter(|claim| **claim == Ok(None)).count(), 1);
        let winner = engine.get(&claim).await.unwrap();
        assert!(claims.iter().all(|claim| claim == &Ok(None) || claim == &Ok(winner.clone())));
    }

    #[tokio::test(start_paused = true)]
    async fn expired_rows_are_gone_and_removed() {
        let store = rows_in_memory();
        let (engine, _wakes) = engine_of(&store, b"replica");
        let (task, claim) = (key(StateKind::Task), key(StateKind::Claim));
        let long = TTL * 10;
        engine.acquire(&task, request("one")).await.unwrap();
        let new = NewEvents { first: at(1, 1), events: &[b"a".to_vec()], ttl: TTL };
        engine.append(&task, new).await.unwrap();
        let row = TaskRow { at: at(1, 1), row: b"row".to_vec() };
        engine.put_row(&task, &row, TTL).await.unwrap();
        engine.set(&claim, b"short", TTL).await.unwrap();
        engine.set(&key(StateKind::Row), b"long", long).await.unwrap();
        advance(TTL).await;
        assert_eq!((engine.get(&claim).await, engine.row(&task).await), (Ok(None), Ok(None)));
        assert_eq!(engine.read(&task, at(0, 0)).await, Ok(SharedTask::default()));
        assert_eq!(store.len(), 5);
        // One that is written again before it is removed begins anew.
        let later = LeaseRequest { ttl: long, ..request("one") };
        engine.acquire(&task, later).await.unwrap();
        assert_eq!(engine.row(&task).await, Ok(None));
        engine.sweep().await.unwrap();
        assert_eq!(store.len(), 2);
        advance(long).await;
        engine.sweep().await.unwrap();
        assert_eq!((store.len(), store.bytes().0), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn members_beyond_the_bound_of_an_index_are_removed() {
        let store = rows_in_memory();
        let (engine, _wakes) = engine_of(&store, b"replica");
        let (index, other) = (key(StateKind::Owner), StateKey::new(StateKind::Owner, b"other"));
        engine.index(&other, "member", 0, TTL).await.unwrap();
        let name = name_of(&index);
        let many = u64::try_from(MOST_INDEXED).unwrap() + 3;
        let added = engine.write(RowDurability::AtOnce, 1, move |rows| {
            (0..many).try_for_each(|score| {
                let member = with_suffix(&name, MEMBER, score.to_string().as_bytes());
                rows.put(&member, &score.to_be_bytes(), TTL)
            })
        });
        added.await.unwrap();
        engine.sweep().await.unwrap();
        let kept = engine.indexed(&index, usize::MAX).await.unwrap();
        assert_eq!((kept.len(), kept.last().map(String::as_str)), (MOST_INDEXED, Some("3")));
        assert_eq!(engine.indexed(&other, 9).await.unwrap().len(), 1);
    }

    /// Events expire before the task that is followed for longer.
    #[tokio::test(start_paused = true)]
    async fn old_events_of_a_live_task_are_removed() {
        let store = rows_in_memory();
        let (engine, _wakes) = engine_of(&store, b"replica");
        let task = key(StateKind::Task);
        engine.acquire(&task, request("one")).await.unwrap();
        let new = NewEvents { first: at(1, 1), events: &[b"a".to_vec()], ttl: TTL };
        engine.append(&task, new).await.unwrap();
        advance(TTL / 2).await;
        assert_eq!(engine.renew(&task, "one", 1, [BEAT_TTL, TTL]).await, Ok(true));
        advance(TTL / 2).await;
        engine.sweep().await.unwrap();
        assert_eq!(store.len(), 1);
        // The newest are kept.
        let events = vec![b"b".to_vec(); MOST_EVENTS + 44];
        engine.append(&task, NewEvents { first: at(1, 2), events: &events, ttl: TTL }).await.unwrap();
        let read = engine.read(&task, at(1, 1)).await.unwrap();
        assert_eq!((read.events.len(), read.events[0].0, read.last), (MOST_EVENTS, at(1, 46), at(1, 301)));
    }

    /// A full engine counts as absent, as it can take no large row, until rows expire.
    #[tokio::test(start_paused = true)]
    async fn a_full_engine_is_absent_until_rows_expire() {
        let store = LocalStore::with_room(None, "gateway", LEAST_ROOM + 1024);
        let (engine, _wakes) = engine_of(&store, b"replica");
        let worker = engine.clone();
        let kept = tokio::spawn(async move { worker.keep_connected().await });
        sleep(BEAT_INTERVAL / 2).await;
        let (claim, large) = (key(StateKind::Claim), vec![7; 4096]);
        engine.set(&claim, &large, TTL).await.unwrap();
        let too_large = vec![7; LEAST_ROOM];
        assert!(matches!(engine.set(&claim, &too_large, TTL).await, Err(EngineError::Busy(_))));
        assert_eq!((engine.failures(), engine.is_available()), (1, true));
        assert_eq!(engine.compare_and_set(&claim, &large, Some(b"less"), TTL).await, Ok(true));
        assert_eq!(engine.compare_and_set(&claim, b"less", Some(&large), TTL).await, Ok(true));
        sleep(BEAT_INTERVAL).await;
        assert!(!engine.is_available());
        assert_eq!(engine.get(&claim).await, Err(EngineError::Disconnected));
        sleep(TTL + SWEEP_PAUSE * 2).await;
        assert!(engine.is_available());
        assert_eq!(engine.get(&claim).await, Ok(None));
        kept.abort();
    }

    /// An engine that has lost its rows says so, once.
    #[tokio::test(start_paused = true)]
    async fn lost_rows_are_told() {
        let store = LocalStore::new(None, "gateway");
        let (engine, mut wakes) = LocalEngine::with(store.clone(), key(StateKind::Replica), 8, TTL);
        let worker = engine.clone();
        let kept = tokio::spawn(async move { worker.keep_connected().await });
        sleep(BEAT_INTERVAL * 3).await;
        assert_eq!((wakes.try_recv(), wakes.try_recv().ok()), (Ok(Wake::All), None));
        store.fail();
        assert_eq!(engine.get(&key(StateKind::Claim)).await, Err(EngineError::Disconnected));
        sleep(BEAT_INTERVAL * 3).await;
        let told: Vec<_> = std::iter::from_fn(|| wakes.try_recv().ok()).collect();
        assert_eq!(told, [Wake::All, Wake::Forgotten, Wake::All]);
        assert_eq!(engine.get(&key(StateKind::Claim)).await, Ok(None));
        kept.abort();
    }
}
