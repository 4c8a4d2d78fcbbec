//! The file of the store: opened by one process at a time, verified, written in transactions.
//!
//! See also `queue` for the changes that wait to be written.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::OpenOptionsExt as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use redb::{Builder, Database, DatabaseError, ReadableDatabase as _, ReadableTable as _, TableDefinition};

use tracing::info;

use super::queue::PendingChanges;
use super::{StoreProblem, StoreTable};
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
        Self::open_with(dir, Box::new(|file| checked().open(file)))
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
        for table in StoreTable::ALL {
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
        self.database = Some(guarded(&self.file, move || {
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
            None => guarded(&self.file, || (self.open)(&self.file).map_err(redb::Error::from))?,
        };
        let kept = guarded(&self.file, move || work(&database).map(|()| database))?;
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
    })
}

/// Returns a builder that reads the whole file when it opens it: an altered file is detected then.
fn checked() -> Builder {
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
    guarded(&draft, || {
        let database = checked().create(&draft)?;
        let all = database.begin_write()?;
        for table in StoreTable::ALL {
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
fn guarded<T>(file: &Path, work: impl FnOnce() -> Result<T, redb::Error>) -> Result<T, StoreProblem> {
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
}
