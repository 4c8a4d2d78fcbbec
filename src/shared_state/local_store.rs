//! The rows of the engine within this process: in a file of redb, or in memory.
//!
//! Writes that wait together are one transaction. A file belongs to one process: leases and units of the
//! process that had it before end when the next one opens it. A row is found by the letter of its kind,
//! the hash of its name and a suffix, and begins with the time of its expiry. The rows of a task live as
//! long as its head.
//!
//! See `local_engine` for the operations.

use std::collections::HashSet;
use std::fs::{self, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use redb::backends::InMemoryBackend;
use redb::{
    Database, Durability, ReadOnlyTable, ReadableDatabase as _, ReadableTable, Table, TableDefinition,
};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::engine::{EngineError, MOST_INDEXED, MOST_LOGGED, SCHEMA, StateKey, StateKind, Wake};
use crate::sync::lock;
use crate::tasks::store::{StoreProblem, database_builder, guard_database};
use crate::tasks::{EventPosition, Timestamp, data_dir};

/// Most bytes of all keys and values. Beyond, what needs room is refused.
const MOST_BYTES_IN_FILE: usize = 1 << 30;
const MOST_BYTES_IN_MEMORY: usize = 128 << 20;
/// Most operations that wait for one transaction.
const MOST_WAITING: usize = 4096;
/// Most expired rows that one search finds.
pub(super) const MOST_SWEPT: usize = 65_536;
/// Longest time to live: a year.
pub(super) const MOST_TTL: Duration = Duration::from_secs(366 * 24 * 3600);
/// Bytes of a key without its suffix: letter and hash.
pub(super) const NAME_BYTES: usize = 33;
/// Suffixes of keys: the row of a task, an event, a member of an index or a holder of units.
pub(super) const ROW: u8 = b'r';
pub(super) const EVENT: u8 = b'e';
pub(super) const MEMBER: u8 = b'm';
/// Begins the keys of the log: no letter of another kind.
pub(super) const LOG: &[u8] = b"l";
/// Begins the keys of tasks.
const TASK: u8 = b't';

pub(super) type Bytes = &'static [u8];

/// The suffix of a key, and the value.
pub(super) type SuffixedValue = (Vec<u8>, Vec<u8>);

/// The end of an operation, called once the transaction is durable.
pub(super) type OperationReply = Box<dyn FnOnce() + Send>;

/// The changes of an operation within a transaction.
pub(super) type OperationWork =
    Box<dyn FnOnce(&mut WritableRows<'_>) -> Result<OperationReply, redb::Error> + Send>;

/// Time at which an operation outlives the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RowDurability {
    /// Before it ends.
    AtOnce,
    /// With the next one that is durable at once: a rate, a heartbeat or a renewal may be lost.
    Later,
}

/// An operation that waits for a transaction.
pub(super) struct PendingOperation {
    pub(super) durability: RowDurability,
    pub(super) work: OperationWork,
}

/// Head of a task: its lease, and the position of its last event.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct TaskHead {
    pub(super) epoch: u64,
    /// Epoch and number of the last event.
    pub(super) last: (u64, u64),
    pub(super) version: u64,
    pub(super) lease: Option<HeldLease>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct HeldLease {
    pub(super) holder: String,
    pub(super) epoch: u64,
    /// Milliseconds since 1970.
    pub(super) expires: u64,
}

impl TaskHead {
    pub(super) fn held(&self, now: UnixMicros) -> Option<&HeldLease> {
        self.lease.as_ref().filter(|lease| lease.expires > now.millis())
    }

    pub(super) fn is_held_by(&self, holder: &str, epoch: u64, now: UnixMicros) -> bool {
        self.held(now).is_some_and(|lease| lease.holder == holder && lease.epoch == epoch)
    }
}

/// Time of an operation: microseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct UnixMicros(pub(super) u64);

impl UnixMicros {
    pub(super) fn millis(self) -> u64 {
        self.0 / 1000
    }

    /// Returns the time after so long, in milliseconds.
    pub(super) fn after(self, time: Duration) -> u64 {
        let millis = u64::try_from(time.min(MOST_TTL).as_millis()).unwrap_or(u64::MAX);
        self.millis().saturating_add(millis.max(1))
    }
}

/// The rows that one read sees.
pub(super) struct RowView<'t, T: ReadableTable<Bytes, Bytes>> {
    table: &'t T,
    pub(super) now: UnixMicros,
}

impl<T: ReadableTable<Bytes, Bytes>> RowView<'_, T> {
    /// Returns a value that has not expired.
    pub(super) fn value(&self, key: &[u8]) -> Result<Option<Vec<u8>>, redb::Error> {
        let found = self.table.get(key)?;
        Ok(found.and_then(|row| live(row.value(), self.now).map(<[u8]>::to_vec)))
    }

    /// Returns the head of a task, unless it has expired.
    pub(super) fn head(&self, name: &[u8]) -> Result<Option<TaskHead>, redb::Error> {
        let found = self.value(name)?;
        Ok(found.and_then(|head| serde_json::from_slice(&head).ok()))
    }

    /// Returns suffixes and values of a range of keys with this prefix, at most `most`; expired ones
    /// are left out.
    pub(super) fn after(
        &self,
        prefix: &[u8],
        after: &[u8],
        most: usize,
    ) -> Result<Vec<SuffixedValue>, redb::Error> {
        let mut found = Vec::new();
        let end = end_of(prefix);
        for entry in self.table.range::<&[u8]>([prefix, after].concat().as_slice()..end.as_slice())? {
            let (key, value) = entry?;
            let Some(suffix) = key.value().strip_prefix(prefix).filter(|suffix| *suffix != after) else {
                continue;
            };
            if let Some(value) = live(value.value(), self.now) {
                found.push((suffix.to_vec(), value.to_vec()));
            }
            if found.len() >= most {
                break;
            }
        }
        Ok(found)
    }
}

/// The rows within a transaction that writes.
pub(super) struct WritableRows<'a> {
    pub(super) table: Table<'a, Bytes, Bytes>,
    pub(super) now: UnixMicros,
    /// Bytes of all keys and values.
    pub(super) bytes: usize,
    /// Wake-ups to send once it is durable.
    pub(super) wakes: Vec<Wake>,
}

impl WritableRows<'_> {
    pub(super) fn view(&self) -> RowView<'_, Table<'_, Bytes, Bytes>> {
        RowView { table: &self.table, now: self.now }
    }

    pub(super) fn put(&mut self, key: &[u8], value: &[u8], ttl: Duration) -> Result<(), redb::Error> {
        let row = [&self.now.after(ttl).to_be_bytes()[..], value].concat();
        let before = self.table.insert(key, row.as_slice())?;
        let freed = before.map_or(0, |before| key.len() + before.value().len());
        self.bytes = (self.bytes + key.len() + row.len()).saturating_sub(freed);
        Ok(())
    }

    pub(super) fn remove(&mut self, key: &[u8]) -> Result<(), redb::Error> {
        let before = self.table.remove(key)?;
        let freed = before.map_or(0, |before| key.len() + before.value().len());
        self.bytes = self.bytes.saturating_sub(freed);
        Ok(())
    }

    pub(super) fn has(&self, key: &[u8]) -> Result<bool, redb::Error> {
        Ok(self.table.get(key)?.is_some())
    }

    /// Removes a row with this time of expiry: one that was written again has another, and stays.
    pub(super) fn remove_unchanged(&mut self, key: &[u8], expires: u64) -> Result<(), redb::Error> {
        let found = self.table.get(key)?.and_then(|row| number_of(row.value()));
        if found == Some(expires) { self.remove(key) } else { Ok(()) }
    }

    /// Removes the first rows with this prefix, beyond the last `most`; expired ones count.
    pub(super) fn keep_last(&mut self, prefix: &[u8], most: usize) -> Result<(), redb::Error> {
        let mut keys = Vec::new();
        for entry in self.table.range::<&[u8]>(prefix..end_of(prefix).as_slice())?.rev().skip(most) {
            keys.push(entry?.0.value().to_vec());
        }
        keys.iter().try_for_each(|key| self.remove(key))
    }

    /// Removes all that belongs to processes that had the file before: they have ended.
    fn remove_earlier_processes(&mut self) -> Result<(), redb::Error> {
        for kind in [StateKind::Replica, StateKind::Units] {
            self.remove_all(kind.letter().to_string().as_bytes())?;
        }
        let mut held = Vec::new();
        for entry in self.table.range::<&[u8]>([TASK].as_slice()..&[TASK + 1])? {
            let (key, row) = entry?;
            let head = row.value().get(8..).filter(|_| key.value().len() == NAME_BYTES);
            let head: Option<TaskHead> = head.and_then(|head| serde_json::from_slice(head).ok());
            if let Some(head) = head.filter(|head| head.lease.is_some()) {
                held.push((key.value().to_vec(), TaskHead { lease: None, ..head }));
            }
        }
        for (name, head) in held {
            let ttl = self.time_left(&name)?;
            self.put_head(&name, &head, ttl)?;
        }
        Ok(())
    }

    fn remove_all(&mut self, prefix: &[u8]) -> Result<(), redb::Error> {
        let end = end_of(prefix);
        let mut keys = Vec::new();
        for entry in self.table.range::<&[u8]>(prefix..end.as_slice())? {
            keys.push(entry?.0.value().to_vec());
        }
        keys.iter().try_for_each(|key| self.remove(key))
    }

    /// Returns the head of a task, to be changed; without one, or if it has expired, a new one.
    pub(super) fn head(&mut self, name: &[u8]) -> Result<TaskHead, redb::Error> {
        if let Some(head) = self.view().head(name)? {
            return Ok(head);
        }
        self.remove_all(name)?;
        Ok(TaskHead::default())
    }

    pub(super) fn put_head(
        &mut self,
        name: &[u8],
        head: &TaskHead,
        ttl: Duration,
    ) -> Result<(), redb::Error> {
        let head = serde_json::to_vec(head).unwrap_or_default();
        self.put(name, &head, ttl)
    }

    /// Returns the suffix of the last key with this prefix, expired or not.
    pub(super) fn last_suffix(&self, prefix: &[u8]) -> Result<Option<Vec<u8>>, redb::Error> {
        let last = self.table.range::<&[u8]>(prefix..end_of(prefix).as_slice())?.next_back().transpose()?;
        Ok(last.and_then(|(key, _)| key.value().strip_prefix(prefix).map(<[u8]>::to_vec)))
    }

    /// Returns the time until a row expires.
    pub(super) fn time_left(&self, key: &[u8]) -> Result<Duration, redb::Error> {
        let found = self.table.get(key)?;
        let expires = found.and_then(|row| number_of(row.value())).unwrap_or_default();
        Ok(Duration::from_millis(expires.saturating_sub(self.now.millis())))
    }

    pub(super) fn wake(&mut self, name: &[u8]) {
        let hash = name.get(1..).and_then(|hash| std::str::from_utf8(hash).ok());
        self.wakes.extend(hash.map(|hash| Wake::Task(hash.into())));
    }
}

/// Returns the value of a row that has not expired.
fn live(row: &[u8], now: UnixMicros) -> Option<&[u8]> {
    let (expires, value) = row.split_first_chunk()?;
    (u64::from_be_bytes(*expires) > now.millis()).then_some(value)
}

/// Returns the end of the range of keys with this prefix, which does not end with the byte 255.
fn end_of(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    if let Some(last) = end.last_mut() {
        *last = last.saturating_add(1);
    }
    end
}

pub(super) fn name_of(key: &StateKey) -> Vec<u8> {
    format!("{}{}", key.kind.letter(), key.hash).into_bytes()
}

pub(super) fn with_suffix(name: &[u8], suffix: u8, rest: &[u8]) -> Vec<u8> {
    [name, &[suffix], rest].concat()
}

pub(super) fn event_suffix(at: EventPosition) -> Vec<u8> {
    [at.epoch.to_be_bytes(), at.number.to_be_bytes()].concat()
}

pub(super) fn number_of(bytes: &[u8]) -> Option<u64> {
    bytes.first_chunk().map(|number| u64::from_be_bytes(*number))
}

pub(super) fn position_of(bytes: &[u8]) -> Option<EventPosition> {
    Some(EventPosition { epoch: number_of(bytes)?, number: number_of(bytes.get(8..)?)? })
}

/// A replica that is woken: of one process there may be several in tests.
pub(super) struct WakeLink {
    wakes: mpsc::Sender<Wake>,
    /// Hashes of the tasks that it watches.
    watched: Mutex<HashSet<Box<str>>>,
    /// True if a wake-up found the channel full.
    has_lost: AtomicBool,
}

impl WakeLink {
    /// Wakes the replica for a task from now on, or does not any more.
    pub(super) fn watch(&self, hash: &str, is_watched: bool) {
        let mut watched = lock(&self.watched);
        match is_watched {
            true => drop(watched.insert(hash.into())),
            false => drop(watched.remove(hash)),
        }
    }

    /// Returns true if wake-ups were lost since it was last asked.
    pub(super) fn take_lost(&self) -> bool {
        self.has_lost.swap(false, Ordering::AcqRel)
    }

    /// Returns false if the replica could not be woken; then [`WakeLink::take_lost`] is true.
    pub(super) fn wake(&self, wake: &Wake) -> bool {
        let is_wanted = match wake {
            Wake::Task(hash) => lock(&self.watched).contains(hash),
            Wake::Log | Wake::All | Wake::Forgotten => true,
        };
        let is_lost = is_wanted && self.wakes.try_send(wake.clone()).is_err();
        if is_lost {
            self.has_lost.store(true, Ordering::Release);
        }
        !is_lost
    }
}

/// The rows, and the replicas that use them.
pub(super) struct LocalStore {
    /// `None`: in memory.
    file: Option<PathBuf>,
    most_bytes: usize,
    /// Name of the table.
    table: String,
    /// `None` until it is open, and after a failure: then it is opened again.
    database: ArcSwapOption<Database>,
    /// True once this process has opened it.
    was_open: AtomicBool,
    waiting: Mutex<Vec<PendingOperation>>,
    /// Bytes of all keys and values. Held by the one transaction that writes.
    bytes: Mutex<usize>,
    links: Mutex<Vec<Arc<WakeLink>>>,
    /// The clock: an instant, and its microseconds since 1970.
    began: (Instant, u64),
}

impl LocalStore {
    /// Creates the store of a file, or one in memory. Nothing is opened.
    pub(super) fn new(file: Option<PathBuf>, prefix: &str) -> Arc<Self> {
        let most_bytes = if file.is_none() { MOST_BYTES_IN_MEMORY } else { MOST_BYTES_IN_FILE };
        Self::with_room(file, prefix, most_bytes)
    }

    /// Creates a store with room for so many bytes of keys and values.
    pub(super) fn with_room(file: Option<PathBuf>, prefix: &str, most_bytes: usize) -> Arc<Self> {
        Arc::new(Self {
            file,
            most_bytes,
            table: format!("{prefix}:{SCHEMA}"),
            database: ArcSwapOption::empty(),
            was_open: AtomicBool::new(false),
            waiting: Mutex::default(),
            bytes: Mutex::default(),
            links: Mutex::default(),
            began: (Instant::now(), Timestamp::now().unix_ms.saturating_mul(1000)),
        })
    }

    /// Adds a replica with so many wake-ups that wait at most, and returns their receiver.
    pub(super) fn link(&self, most_wakes: usize) -> (Arc<WakeLink>, mpsc::Receiver<Wake>) {
        let (wakes, woken) = mpsc::channel(most_wakes);
        let link = Arc::new(WakeLink { wakes, watched: Mutex::default(), has_lost: AtomicBool::new(false) });
        lock(&self.links).push(link.clone());
        (link, woken)
    }

    pub(super) fn is_in_memory(&self) -> bool {
        self.file.is_none()
    }

    /// Returns the most bytes of all keys and values.
    pub(super) fn most_bytes(&self) -> usize {
        self.most_bytes
    }

    /// Adds an operation to the next transaction. Returns true if the caller must make that:
    /// [`LocalStore::write_waiting`].
    pub(super) fn enqueue(&self, operation: PendingOperation) -> Result<bool, EngineError> {
        let mut waiting = lock(&self.waiting);
        if waiting.len() >= MOST_WAITING {
            return Err(EngineError::Busy("too many operations wait".to_owned()));
        }
        waiting.push(operation);
        Ok(waiting.len() == 1)
    }

    fn now(&self) -> UnixMicros {
        let (instant, unix) = self.began;
        UnixMicros(unix.saturating_add(u64::try_from(instant.elapsed().as_micros()).unwrap_or_default()))
    }

    fn definition(&self) -> TableDefinition<'_, Bytes, Bytes> {
        TableDefinition::new(&self.table)
    }

    pub(super) fn path(&self) -> &Path {
        self.file.as_deref().unwrap_or(Path::new("memory"))
    }

    /// Opens the file if it is not open, and creates it if there is none.
    pub(super) fn open(&self) -> Result<(), StoreProblem> {
        let mut bytes = lock(&self.bytes);
        if self.database.load().is_some() {
            return Ok(());
        }
        let opened = guard_database(self.path(), || {
            let database = match &self.file {
                Some(file) => open_file(file)?,
                None => database_builder().create_with_backend(InMemoryBackend::new())?,
            };
            let all = database.begin_write()?;
            let found = {
                let table = all.open_table(self.definition())?;
                let mut rows = WritableRows { table, now: self.now(), bytes: 0, wakes: Vec::new() };
                for entry in rows.table.iter()? {
                    let (key, value) = entry?;
                    rows.bytes = rows.bytes.saturating_add(key.value().len() + value.value().len());
                }
                if !self.was_open.load(Ordering::Acquire) {
                    rows.remove_earlier_processes()?;
                }
                rows.bytes
            };
            all.commit()?;
            Ok((database, found))
        })?;
        *bytes = opened.1;
        self.was_open.store(true, Ordering::Release);
        self.database.store(Some(Arc::new(opened.0)));
        Ok(())
    }

    /// Closes a database that has failed, unless another one is open already.
    fn close(&self, failed: &Arc<Database>) {
        if self.database.load().as_ref().is_some_and(|open| Arc::ptr_eq(open, failed)) {
            self.database.store(None);
        }
    }

    /// Does all that waits in one transaction, durable if one of the operations is.
    pub(super) fn write_waiting(&self) -> Result<(), StoreProblem> {
        let mut bytes = lock(&self.bytes);
        let operations = std::mem::take(&mut *lock(&self.waiting));
        // Dropped without a reply: another transaction has failed.
        let Some(database) = self.database.load_full().filter(|_| !operations.is_empty()) else {
            return Ok(());
        };
        let done = guard_database(self.path(), || {
            let mut all = database.begin_write()?;
            if operations.iter().all(|operation| operation.durability == RowDurability::Later) {
                all.set_durability(Durability::None)?;
            }
            let done = {
                let table = all.open_table(self.definition())?;
                let mut rows = WritableRows { table, now: self.now(), bytes: *bytes, wakes: Vec::new() };
                let replies = operations.into_iter().map(|operation| (operation.work)(&mut rows));
                let replies = replies.collect::<Result<Vec<_>, _>>()?;
                (replies, rows.bytes, std::mem::take(&mut rows.wakes))
            };
            all.commit()?;
            Ok(done)
        });
        let (replies, after, wakes) = done.inspect_err(|_| self.close(&database))?;
        *bytes = after;
        replies.into_iter().for_each(|reply| reply());
        let links = lock(&self.links).clone();
        for wake in &wakes {
            links.iter().for_each(|link| _ = link.wake(wake));
        }
        Ok(())
    }

    /// Reads rows as they are after the last transaction.
    pub(super) fn read<R>(
        &self,
        work: impl FnOnce(&RowView<'_, ReadOnlyTable<Bytes, Bytes>>) -> Result<R, redb::Error>,
    ) -> Result<Option<R>, StoreProblem> {
        let Some(database) = self.database.load_full() else { return Ok(None) };
        let read = guard_database(self.path(), || {
            let table = database.begin_read()?.open_table(self.definition())?;
            work(&RowView { table: &table, now: self.now() })
        });
        read.inspect_err(|_| self.close(&database)).map(Some)
    }

    /// Returns rows that have expired, and those beyond the bounds of their index or of the log.
    pub(super) fn find_expired(&self) -> Result<SweptKeys, StoreProblem> {
        let found = self.read(|view| {
            let (mut swept, mut index, mut logged) =
                (SweptKeys::default(), IndexScores::default(), Vec::new());
            let mut live_task = Vec::new();
            for entry in view.table.iter()? {
                let (key, row) = entry?;
                let (key, row) = (key.value(), row.value());
                let is_live = live(row, view.now).is_some();
                let (name, suffix) = key.split_at_checked(NAME_BYTES).unwrap_or((key, &[]));
                if is_live && suffix.is_empty() && name.first() == Some(&TASK) {
                    live_task = name.to_vec();
                }
                let is_kept = is_live && (!is_task_part(key) || live_task == name);
                if !is_kept {
                    swept.expired.push(key.to_vec());
                } else if key.starts_with(LOG) {
                    logged.push((key.to_vec(), number_of(row).unwrap_or_default()));
                } else if suffix.first() == Some(&MEMBER) {
                    swept.beyond.extend(index.add(name, suffix, row));
                }
                if swept.expired.len() >= MOST_SWEPT {
                    break;
                }
            }
            swept.beyond.extend(index.beyond());
            let beyond = logged.len().saturating_sub(MOST_LOGGED);
            swept.beyond.extend(logged.into_iter().take(beyond));
            Ok(swept)
        });
        Ok(found?.unwrap_or_default())
    }
}

/// Opens a file, and creates it and its folder if there is none.
fn open_file(file: &Path) -> Result<Database, redb::Error> {
    if !file.try_exists()? {
        create_file(file)?;
    }
    Ok(database_builder().create(file)?)
}

/// Creates an empty file, complete from the first moment.
fn create_file(file: &Path) -> Result<(), redb::Error> {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    data_dir::make(folder)?;
    let draft = folder.join(format!(".state.{:016x}.new", rand::random::<u64>()));
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
    let created = database_builder().create(&draft).map(drop).map_err(redb::Error::from);
    // Another process may have created it meanwhile.
    let linked = created.and_then(|()| match fs::hard_link(&draft, file) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error.into()),
        Ok(()) | Err(_) => Ok(()),
    });
    fs::remove_file(&draft)?;
    linked?;
    Ok(data_dir::sync(folder)?)
}

/// Returns true for rows and events of a task, which live as long as its head.
pub(super) fn is_task_part(key: &[u8]) -> bool {
    key.len() > NAME_BYTES && key.first() == Some(&TASK)
}

/// Keys to remove.
#[derive(Default)]
pub(super) struct SweptKeys {
    /// Expired, unless they were written again.
    pub(super) expired: Vec<Vec<u8>>,
    /// Beyond the bounds, unless they were written again: the keys and times of expiry.
    pub(super) beyond: Vec<(Vec<u8>, u64)>,
}

/// Members of one index, with their scores.
#[derive(Default)]
struct IndexScores {
    name: Vec<u8>,
    /// Score, suffix and time of expiry.
    members: Vec<(u64, Vec<u8>, u64)>,
}

impl IndexScores {
    /// Adds a member; returns the keys of members of the index before it that are beyond the bound.
    fn add(&mut self, name: &[u8], suffix: &[u8], row: &[u8]) -> Vec<(Vec<u8>, u64)> {
        let before = if self.name == name { Vec::new() } else { self.beyond() };
        self.name = name.to_vec();
        let score = row.get(8..).and_then(number_of).unwrap_or_default();
        self.members.push((score, suffix.to_vec(), number_of(row).unwrap_or_default()));
        before
    }

    fn beyond(&mut self) -> Vec<(Vec<u8>, u64)> {
        let mut members = std::mem::take(&mut self.members);
        members.sort_unstable();
        let beyond = members.len().saturating_sub(MOST_INDEXED);
        let key = |suffix: Vec<u8>| [&self.name, suffix.as_slice()].concat();
        members.into_iter().take(beyond).map(|(_, suffix, expires)| (key(suffix), expires)).collect()
    }
}

#[cfg(test)]
impl LocalStore {
    /// Returns the bytes of all keys and values, as counted and as they are.
    pub(super) fn bytes(&self) -> (usize, usize) {
        let counted = self.read(|rows| {
            let mut bytes = 0;
            for entry in rows.table.iter()? {
                let (key, value) = entry?;
                bytes += key.value().len() + value.value().len();
            }
            Ok(bytes)
        });
        (*lock(&self.bytes), counted.unwrap().unwrap())
    }

    /// Closes the database, as after an error; in memory its rows are lost.
    pub(super) fn fail(&self) {
        self.database.store(None);
    }

    /// Returns the number of rows.
    pub(super) fn len(&self) -> usize {
        self.read(|rows| Ok(rows.table.iter()?.count())).unwrap().unwrap()
    }

    /// Loses all rows, as a server that restarts empty.
    pub(super) fn forget(&self) {
        let work: OperationWork = Box::new(|rows| {
            rows.table.retain(|_, _| false)?;
            rows.bytes = 0;
            rows.wakes.push(Wake::Forgotten);
            Ok(Box::new(|| {}))
        });
        lock(&self.waiting).push(PendingOperation { durability: RowDurability::AtOnce, work });
        self.write_waiting().unwrap();
    }
}
