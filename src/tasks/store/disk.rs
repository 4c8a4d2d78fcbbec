//! The file of the store: opened by one process at a time, verified, written in transactions; and the
//! write queue: the newest change of each key, bounded in bytes.
//!
//! The writer takes batches from the queue (see `Store::flush` for waiters).

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::OpenOptionsExt as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

use redb::{Builder, Database, DatabaseError, ReadableDatabase as _, ReadableTable as _, TableDefinition};
use tracing::info;

use super::{StoreProblem, StoreTable};
use crate::sync::{lock, recover};
use crate::tasks::data_dir::{self, STORE_FILE, STORE_LOCK};

/// Name of a new file until it is complete, so that `tasks.redb` is never half made.
const DRAFT: &str = "tasks.redb.new";
/// The default of redb is a GiB. Rows are read once, at the start; only the upper pages are written
/// again and again.
const CACHE: usize = 16 * 1024 * 1024;

/// A larger file, in bytes, is compacted when it is opened: while it is written it only grows.
const ROOMY: u64 = 64 * 1024 * 1024;

type FileOpener = Box<dyn Fn(&Path) -> Result<Database, DatabaseError> + Send>;

/// The open file.
pub(super) struct StoreFile {
    file: PathBuf,
    open: FileOpener,
    /// `None` after a failure: a database that failed is not reliable, so it is opened again.
    database: Option<Database>,
    /// Held; the system releases it however the process ends.
    _owner: File,
}

impl StoreFile {
    /// Opens the file in this directory; creates both if they do not exist.
    pub(super) fn open(dir: &Path) -> Result<Self, StoreProblem> {
        Self::open_with(dir, Box::new(|file| database_builder().open(file)))
    }

    pub(super) fn open_with(dir: &Path, open: FileOpener) -> Result<Self, StoreProblem> {
        let mut disk = Self::found(dir, open)?;
        disk.shrink(ROOMY)?;
        Ok(disk)
    }

    fn found(dir: &Path, open: FileOpener) -> Result<Self, StoreProblem> {
        let file = dir.join(STORE_FILE);
        let owner = own(dir, &file)?;
        if !file.try_exists().map_err(|error| io_error(&file, error))? {
            make(dir, &file)?;
        }
        let mut disk = Self { file, open, database: None, _owner: owner };
        // Files of an earlier version have no memory.
        disk.work(|database| {
            if database.begin_read()?.open_table(definition(StoreTable::Memory)).is_ok() {
                return Ok(());
            }
            let all = database.begin_write()?;
            all.open_table(definition(StoreTable::Memory))?;
            Ok(all.commit()?)
        })?;
        // The other tables are there from the start: a missing one was lost.
        for table in StoreTable::ON_DISK {
            disk.work(|database| {
                database.begin_read()?.open_table(definition(table))?;
                Ok(())
            })?;
        }
        Ok(disk)
    }

    /// Returns unused room to the system, if the file has more bytes than `roomy`. Crash-safe, like
    /// every write.
    pub(super) fn shrink(&mut self, roomy: u64) -> Result<(), StoreProblem> {
        let before = self.size()?;
        if before <= roomy {
            return Ok(());
        }
        let Some(mut database) = self.database.take() else { return Ok(()) };
        self.database = Some(guard_database(&self.file, move || {
            database.compact()?;
            Ok(database)
        })?);
        let after = self.size()?;
        info!(file = %self.file.display(), before, after, "store compacted");
        Ok(())
    }

    fn size(&self) -> Result<u64, StoreProblem> {
        Ok(fs::metadata(&self.file).map_err(|error| io_error(&self.file, error))?.len())
    }

    pub(super) fn file(&self) -> &Path {
        &self.file
    }

    /// Makes all changes in one durable transaction, or none.
    pub(super) fn write(&mut self, changes: &PendingChanges) -> Result<(), StoreProblem> {
        self.work(|database| commit(database, changes))
    }

    /// Calls `row` with each row of a table.
    pub(super) fn each(
        &mut self,
        table: StoreTable,
        mut row: impl FnMut(&[u8], &[u8]),
    ) -> Result<(), StoreProblem> {
        self.work(|database| {
            for entry in database.begin_read()?.open_table(definition(table))?.iter()? {
                let (key, value) = entry?;
                row(key.value(), value.value());
            }
            Ok(())
        })
    }

    fn work(&mut self, work: impl FnOnce(&Database) -> Result<(), redb::Error>) -> Result<(), StoreProblem> {
        let database = match self.database.take() {
            Some(database) => database,
            None => guard_database(&self.file, || (self.open)(&self.file).map_err(redb::Error::from))?,
        };
        let kept = guard_database(&self.file, move || work(&database).map(|()| database))?;
        self.database = Some(kept);
        Ok(())
    }
}

/// Returns the definition of a table under its name in the file.
fn definition(table: StoreTable) -> TableDefinition<'static, &'static [u8], &'static [u8]> {
    TableDefinition::new(match table {
        StoreTable::Tasks => "tasks",
        StoreTable::Turns => "turns",
        StoreTable::Sessions => "revocations",
        StoreTable::Memory => "memory",
        StoreTable::Batches => "batches",
    })
}

/// Returns a builder that reads the whole file when it opens it: an altered file is detected then.
pub(crate) fn database_builder() -> Builder {
    let mut builder = Builder::new();
    builder.set_cache_size(CACHE).set_check_integrity_on_open(true);
    builder
}

fn own(dir: &Path, file: &Path) -> Result<File, StoreProblem> {
    let cannot = |error| io_error(&dir.join(STORE_LOCK), error);
    data_dir::make(dir).map_err(|error| io_error(dir, error))?;
    let owner =
        OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(dir.join(STORE_LOCK));
    let owner = owner.map_err(cannot)?;
    match owner.try_lock() {
        Ok(()) => Ok(owner),
        Err(TryLockError::WouldBlock) => Err(StoreProblem::Owned { file: file.to_owned() }),
        Err(TryLockError::Error(error)) => Err(cannot(error)),
    }
}

/// Creates an empty file with all tables.
fn make(dir: &Path, file: &Path) -> Result<(), StoreProblem> {
    let draft = dir.join(DRAFT);
    let begin = || {
        match fs::remove_file(&draft) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)
    };
    begin().map_err(|error| io_error(&draft, error))?;
    guard_database(&draft, || {
        let database = database_builder().create(&draft)?;
        let all = database.begin_write()?;
        for table in StoreTable::ON_DISK {
            all.open_table(definition(table))?;
        }
        Ok(all.commit()?)
    })?;
    fs::rename(&draft, file).and_then(|()| data_dir::sync(dir)).map_err(|error| io_error(file, error))
}

fn commit(database: &Database, changes: &PendingChanges) -> Result<(), redb::Error> {
    let all = database.begin_write()?;
    // In the order of tables, so that each is opened once.
    let mut rest = changes.iter().peekable();
    while let Some(((table, _), _)) = rest.peek() {
        let table = *table;
        let mut rows = all.open_table(definition(table))?;
        while let Some(((_, key), value)) = rest.next_if(|((other, _), _)| *other == table) {
            match value {
                Some(value) => drop(rows.insert(key.as_slice(), value.as_slice())?),
                None => drop(rows.remove(key.as_slice())?),
            }
        }
    }
    Ok(all.commit()?)
}

/// Runs `work`, which may panic on a damaged file, and returns the defect of the file.
pub(crate) fn guard_database<T>(
    file: &Path,
    work: impl FnOnce() -> Result<T, redb::Error>,
) -> Result<T, StoreProblem> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(outcome) => outcome.map_err(|error| classify_error(file, error)),
        Err(_) => Err(damaged(file, "reading it broke off")),
    }
}

fn classify_error(file: &Path, error: redb::Error) -> StoreProblem {
    match error {
        redb::Error::DatabaseAlreadyOpen => StoreProblem::Owned { file: file.to_owned() },
        redb::Error::Io(error) => io_error(file, error),
        redb::Error::Corrupted(what) => damaged(file, what),
        redb::Error::UpgradeRequired(version) => damaged(file, format!("its format {version} is another")),
        error @ (redb::Error::TableDoesNotExist(_)
        | redb::Error::TableTypeMismatch { .. }
        | redb::Error::TableIsMultimap(_)
        | redb::Error::TypeDefinitionChanged { .. }) => damaged(file, error.to_string()),
        error => StoreProblem::Disk { file: file.to_owned(), what: error.to_string() },
    }
}

fn io_error(file: &Path, error: io::Error) -> StoreProblem {
    let what = error.to_string();
    match error.kind() {
        // The errors of a file that is truncated or is no database.
        ErrorKind::InvalidData | ErrorKind::UnexpectedEof => damaged(file, what),
        _ => StoreProblem::Disk { file: file.to_owned(), what },
    }
}

fn damaged(file: &Path, what: impl Into<String>) -> StoreProblem {
    StoreProblem::Damaged { file: file.to_owned(), what: what.into() }
}

/// The newest change of each key: a value, or a removal.
pub(super) type PendingChanges = BTreeMap<(StoreTable, Vec<u8>), Option<Vec<u8>>>;

/// Bytes of a change besides its content: its slot in the map.
const PLACE: usize = 96;

/// Changes of one transaction.
pub(super) struct WriteBatch {
    changes: PendingChanges,
    /// The number of the last change in it.
    upto: u64,
}

impl WriteBatch {
    pub(super) fn changes(&self) -> &PendingChanges {
        &self.changes
    }
}

pub(super) struct WriteQueue {
    waiting: Mutex<QueuedWrites>,
    wake: Condvar,
    most: usize,
    linger: Duration,
}

#[derive(Default)]
struct QueuedWrites {
    changes: PendingChanges,
    /// The cost of `changes`.
    bytes: usize,
    /// The cost of the batch that is being written.
    under_way: usize,
    /// The number of changes so far.
    number: u64,
    /// The time of the first of `changes`.
    since: Option<Instant>,
    /// True if a caller waits for `changes`.
    hurry: bool,
    closed: bool,
}

impl WriteQueue {
    pub(super) fn new(most: usize, linger: Duration) -> Self {
        Self { waiting: Mutex::default(), wake: Condvar::new(), most, linger }
    }

    /// Adds a change, if there is room.
    pub(super) fn add(
        &self,
        table: StoreTable,
        key: Vec<u8>,
        value: Option<Vec<u8>>,
    ) -> Result<(), StoreProblem> {
        let cost = cost(&key, value.as_ref());
        if cost > self.most {
            return Err(StoreProblem::TooLarge(cost));
        }
        let mut waiting = lock(&self.waiting);
        if waiting.closed {
            return Err(StoreProblem::Closed);
        }
        let key = (table, key);
        let replaced = waiting.changes.get(&key).map_or(0, |old| self::cost(&key.1, old.as_ref()));
        let bytes = waiting.bytes.saturating_sub(replaced).saturating_add(cost);
        if bytes.saturating_add(waiting.under_way) > self.most {
            waiting.hurry = true;
            self.wake.notify_one();
            return Err(StoreProblem::Full);
        }
        waiting.changes.insert(key, value);
        waiting.bytes = bytes;
        waiting.number = waiting.number.saturating_add(1);
        if waiting.since.is_none() {
            waiting.since = Some(Instant::now());
            self.wake.notify_one();
        }
        Ok(())
    }

    /// Records that a caller waits; returns the number of the last change to wait for.
    pub(super) fn request_flush(&self) -> u64 {
        let mut waiting = lock(&self.waiting);
        if !waiting.changes.is_empty() && !waiting.hurry {
            waiting.hurry = true;
            self.wake.notify_one();
        }
        waiting.number
    }

    /// Waits for the next batch, but returns none before that time unless the queue was closed.
    /// `None`: no more will come.
    pub(super) fn next(&self, not_before: Option<Instant>) -> Option<WriteBatch> {
        let mut waiting = lock(&self.waiting);
        loop {
            let now = Instant::now();
            let due = waiting.due(self.linger).max(not_before.filter(|_| !waiting.changes.is_empty()));
            waiting = match due {
                _ if waiting.closed => return (!waiting.changes.is_empty()).then(|| waiting.take()),
                Some(at) if at <= now => return Some(waiting.take()),
                Some(at) => {
                    let rest = at.saturating_duration_since(now);
                    recover(self.wake.wait_timeout(waiting, rest)).0
                }
                None => recover(self.wake.wait(waiting)),
            };
        }
    }

    /// Removes a batch that is durable; returns the number of its last change.
    pub(super) fn done(&self, batch: &WriteBatch) -> u64 {
        lock(&self.waiting).under_way = 0;
        batch.upto
    }

    /// Enqueues a batch again that could not be written, behind newer changes. Returns true if the
    /// queue is closed.
    pub(super) fn requeue(&self, batch: WriteBatch) -> bool {
        let mut waiting = lock(&self.waiting);
        waiting.under_way = 0;
        for (key, value) in batch.changes {
            let cost = cost(&key.1, value.as_ref());
            if let Entry::Vacant(free) = waiting.changes.entry(key) {
                free.insert(value);
                waiting.bytes = waiting.bytes.saturating_add(cost);
            }
        }
        waiting.since.get_or_insert_with(Instant::now);
        waiting.closed
    }

    /// Accepts no more changes. Waiting ones are still written.
    pub(super) fn close(&self) {
        lock(&self.waiting).closed = true;
        self.wake.notify_one();
    }

    /// Returns the cost of waiting changes and of those being written.
    #[cfg(any(test, feature = "testing"))]
    pub(super) fn bytes(&self) -> usize {
        let waiting = lock(&self.waiting);
        waiting.bytes.saturating_add(waiting.under_way)
    }
}

impl QueuedWrites {
    /// Returns the time at which the changes are to be written.
    fn due(&self, linger: Duration) -> Option<Instant> {
        self.since.map(|since| match since.checked_add(linger) {
            Some(later) if !self.hurry => later,
            _ => since,
        })
    }

    fn take(&mut self) -> WriteBatch {
        self.under_way = std::mem::take(&mut self.bytes);
        self.since = None;
        self.hurry = false;
        WriteBatch { changes: std::mem::take(&mut self.changes), upto: self.number }
    }
}

fn cost(key: &[u8], value: Option<&Vec<u8>>) -> usize {
    key.len().saturating_add(value.map_or(0, Vec::len)).saturating_add(PLACE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_has_grown_is_as_small_as_its_rows_when_it_is_opened_again() {
        let home = tempfile::tempdir().unwrap();
        let key = |number: u32| (StoreTable::Tasks, number.to_be_bytes().to_vec());
        let mut disk = StoreFile::open(home.path()).unwrap();
        disk.write(&(0..4000).map(|number| (key(number), Some(vec![7; 4096]))).collect()).unwrap();
        disk.write(&(10..4000).map(|number| (key(number), None)).collect()).unwrap();
        let grown = disk.size().unwrap();
        disk.shrink(grown).unwrap();
        assert_eq!(disk.size().unwrap(), grown, "nothing to gain");
        disk.shrink(grown - 1).unwrap();
        let small = disk.size().unwrap();
        assert!(small < grown / 8, "{grown} bytes, then {small}");
        drop(disk);
        let mut rows = 0;
        StoreFile::open(home.path())
            .unwrap()
            .each(StoreTable::Tasks, |_, value| rows += value.len())
            .unwrap();
        assert_eq!(rows, 10 * 4096);
    }

    const ROW: usize = 100 + PLACE;

    fn add(queue: &WriteQueue, key: u8, value: u8) -> Result<(), StoreProblem> {
        queue.add(StoreTable::Tasks, vec![key], Some(vec![value; 99]))
    }

    fn values(batch: &WriteBatch) -> Vec<(u8, u8)> {
        batch.changes().iter().map(|((_, key), value)| (key[0], value.as_ref().unwrap()[0])).collect()
    }

    #[test]
    fn a_full_queue_takes_only_what_makes_it_no_larger() {
        let queue = WriteQueue::new(2 * ROW, Duration::from_secs(3600));
        add(&queue, 1, 1).unwrap();
        add(&queue, 2, 1).unwrap();
        assert_eq!(add(&queue, 3, 1), Err(StoreProblem::Full));
        add(&queue, 2, 2).unwrap();
        // The rejected writer has requested a flush.
        let batch = queue.next(None).unwrap();
        assert_eq!(values(&batch), [(1, 1), (2, 2)]);
        assert_eq!(add(&queue, 2, 3), Err(StoreProblem::Full), "what is under way still counts");
        assert_eq!((queue.done(&batch), queue.bytes()), (3, 0));
        add(&queue, 2, 3).unwrap();
        let large = queue.add(StoreTable::Tasks, vec![], Some(vec![0; 2 * ROW]));
        assert_eq!(large, Err(StoreProblem::TooLarge(2 * ROW + PLACE)));
    }

    #[test]
    fn failed_writes_wait_behind_newer_ones() {
        let queue = WriteQueue::new(9 * ROW, Duration::ZERO);
        add(&queue, 1, 1).unwrap();
        add(&queue, 2, 1).unwrap();
        let batch = queue.next(None).unwrap();
        add(&queue, 1, 2).unwrap();
        add(&queue, 3, 2).unwrap();
        assert!(!queue.requeue(batch));
        assert_eq!(queue.bytes(), 3 * ROW);
        queue.close();
        assert_eq!(add(&queue, 4, 4), Err(StoreProblem::Closed));
        let batch = queue.next(Some(Instant::now() + Duration::from_secs(3600))).unwrap();
        assert_eq!(values(&batch), [(1, 2), (2, 1), (3, 2)]);
        assert!(queue.next(None).is_none());
    }
}
