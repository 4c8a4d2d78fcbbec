//! The store: bytes under keys that survive `kill -9`, written in groups by one thread of its own.
//!
//! Who writes only hands over; who needs to know waits in [`Store::flush`], and all who wait share one transaction. The file
//! has one owner at a time. A process that another one has taken over from hands its rows to that one instead. Not here: what the
//! rows mean, the queue (`queue`), the file (`disk`), the other process (`peer`).

mod disk;
mod peer;
mod queue;

#[cfg(test)]
mod tests;

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tracing::{info, warn};

pub(super) use disk::FILES;
use disk::StoreFile;
use peer::Peer;
pub use peer::{Frame, Told};
use queue::{PendingChanges, WriteQueue};

/// How many bytes may wait to be written, or be under way to the disk.
pub const MOST_WAITING: usize = 64 * 1024 * 1024;
const WRITE_PACING: WritePacing =
    WritePacing { linger: Duration::from_millis(100), retry: Duration::from_secs(5) };

/// How long the writer waits.
#[derive(Clone, Copy)]
struct WritePacing {
    /// With a change that nobody waits for, so that others go with it.
    linger: Duration,
    /// After the disk failed.
    retry: Duration,
}

/// Where a row belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StoreTable {
    /// Tasks, by agent and the agent's task id.
    Tasks,
    /// Turns that were answered.
    Turns,
    /// Sessions: that one was ended, or what a live one wants to be told of.
    Sessions,
}

impl StoreTable {
    fn number(self) -> u8 {
        match self {
            Self::Tasks => 0,
            Self::Turns => 1,
            Self::Sessions => 2,
        }
    }

    fn numbered(number: u8) -> Option<Self> {
        [Self::Tasks, Self::Turns, Self::Sessions].into_iter().find(|table| table.number() == number)
    }
}

/// Why something could not be kept or found.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreProblem {
    /// Another process works with the file.
    #[error(
        "{file} belongs to another process that still runs: stop that one first, or give each gateway a data directory \
         of its own"
    )]
    Owned {
        /// Which file.
        file: PathBuf,
    },
    /// The file is not what was written.
    #[error(
        "{file} is damaged ({what}): put back a copy of it, or move it away to start without what is in it"
    )]
    Damaged {
        /// Which file.
        file: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// The disk does not do what it should.
    #[error("cannot read or write {file}: {what}")]
    Disk {
        /// Which file.
        file: PathBuf,
        /// What the system says.
        what: String,
    },
    /// Too much waits to be written. After a [`Store::flush`] there is room again.
    #[error("too much waits to be written to disk")]
    Full,
    /// The row would not fit even if nothing else waited.
    #[error("a row of {0} bytes is too large for the store")]
    TooLarge(usize),
    /// The store was closed, or the process that keeps the rows does not answer.
    #[error("the store is closed")]
    Closed,
    /// The process that has taken over could not keep it.
    #[error("the process that has taken over cannot write it to its disk")]
    NotKept,
}

/// The place of the rows.
enum Medium {
    Disk(StoreFile),
    Peer(Peer),
}

impl Medium {
    fn write(&mut self, changes: &PendingChanges) -> Result<(), StoreProblem> {
        match self {
            Self::Disk(disk) => disk.write(changes),
            Self::Peer(peer) => peer.write(changes),
        }
    }

    /// Shows each row that this process can read.
    fn each(&mut self, table: StoreTable, row: impl FnMut(&[u8], &[u8])) -> Result<(), StoreProblem> {
        match self {
            Self::Disk(disk) => disk.each(table, row),
            Self::Peer(_) => Ok(()),
        }
    }
}

/// A store with the thread that writes it.
pub struct Store {
    shared: Arc<StoreShared>,
    writer: Mutex<Option<JoinHandle<()>>>,
}

struct StoreShared {
    queue: WriteQueue,
    /// Locked for the time of a transaction. Empty once the store is closed: the file is free then.
    medium: Mutex<Option<Medium>>,
    written: watch::Sender<WriteProgress>,
    commits: AtomicU64,
    failures: AtomicU64,
}

/// How far the writer has come.
struct WriteProgress {
    /// The number of the last change that is durable.
    upto: u64,
    /// Why those after it are not, if that has been tried.
    problem: Option<StoreProblem>,
}

impl Store {
    /// Opens the store in this directory; makes both if they are not there. Reads the whole file to see that it is sound, and
    /// starts a thread: call it at the start, after any fork, and not on an async thread.
    ///
    /// # Errors
    ///
    /// [`StoreProblem`] if another process owns the file, or it is damaged or cannot be used.
    pub fn open(dir: &Path) -> Result<Self, StoreProblem> {
        Self::start(StoreFile::open(dir)?, MOST_WAITING, WRITE_PACING)
    }

    /// Hands the rows to the process at the other end of this socket, which keeps them. Its own words are `told`, on a thread
    /// of its own. Starts threads.
    ///
    /// # Errors
    ///
    /// [`StoreProblem`] if the system refuses the threads.
    pub fn over(stream: UnixStream, told: impl Fn(Told) + Send + 'static) -> Result<Self, StoreProblem> {
        let peer = Peer::new(stream, told)?;
        Self::start_with(Medium::Peer(peer), PathBuf::from("the successor"), MOST_WAITING, WRITE_PACING)
    }

    fn start(disk: StoreFile, most: usize, pace: WritePacing) -> Result<Self, StoreProblem> {
        let file = disk.file().to_owned();
        Self::start_with(Medium::Disk(disk), file, most, pace)
    }

    fn start_with(
        medium: Medium,
        file: PathBuf,
        most: usize,
        pace: WritePacing,
    ) -> Result<Self, StoreProblem> {
        let shared = Arc::new(StoreShared {
            queue: WriteQueue::new(most, pace.linger),
            medium: Mutex::new(Some(medium)),
            written: watch::Sender::new(WriteProgress { upto: 0, problem: None }),
            commits: AtomicU64::new(0),
            failures: AtomicU64::new(0),
        });
        let mine = shared.clone();
        let writer = Builder::new()
            .name("task-store".to_owned())
            .spawn(move || write_all(&mine, pace.retry))
            .map_err(|error| StoreProblem::Disk { file, what: error.to_string() })?;
        Ok(Self { shared, writer: Mutex::new(Some(writer)) })
    }

    /// Hands over a row. It replaces what the key had, also if that still waits to be written. Never waits for the disk.
    ///
    /// # Errors
    ///
    /// [`StoreProblem::Full`] if too much waits, [`StoreProblem::TooLarge`], [`StoreProblem::Closed`]; then nothing was taken.
    pub fn put(&self, table: StoreTable, key: Vec<u8>, value: Vec<u8>) -> Result<(), StoreProblem> {
        self.shared.queue.add(table, key, Some(value))
    }

    /// Hands over that a row is to go. As [`Store::put`].
    ///
    /// # Errors
    ///
    /// As [`Store::put`].
    pub fn remove(&self, table: StoreTable, key: Vec<u8>) -> Result<(), StoreProblem> {
        self.shared.queue.add(table, key, None)
    }

    /// Waits until everything that was handed over before is durable.
    ///
    /// # Errors
    ///
    /// [`StoreProblem`] if it is not, as far as is known. It is kept and tried again, so it may become so.
    pub async fn flush(&self) -> Result<(), StoreProblem> {
        let upto = self.shared.queue.request_flush();
        let mut written = self.shared.written.subscribe();
        let over = |written: &WriteProgress| written.upto >= upto || written.problem.is_some();
        let written = written.wait_for(over).await.map_err(|_| StoreProblem::Closed)?;
        match &written.problem {
            Some(problem) if written.upto < upto => Err(problem.clone()),
            _ => Ok(()),
        }
    }

    /// Shows each row of a table that is durable, in the order of keys. Holds up the writer for so long: for the start.
    ///
    /// # Errors
    ///
    /// [`StoreProblem`] if the file cannot be read; some rows may have been shown by then.
    pub fn load(&self, table: StoreTable, row: impl FnMut(&[u8], &[u8])) -> Result<(), StoreProblem> {
        lock(&self.shared.medium).as_mut().ok_or(StoreProblem::Closed)?.each(table, row)
    }

    /// Does something while nothing is written.
    pub fn while_held<R>(&self, work: impl FnOnce() -> R) -> R {
        let _held = lock(&self.shared.medium);
        work()
    }

    /// Writes what waits, and gives up the file. Waits for the disk. Dropping the store does the same, and tells nobody.
    ///
    /// # Errors
    ///
    /// [`StoreProblem`] if something could not be written.
    pub fn close(&self) -> Result<(), StoreProblem> {
        self.shared.queue.close();
        let writer = lock(&self.writer).take();
        if writer.is_some_and(|writer| writer.join().is_err()) {
            warn!("the thread of the store broke");
        }
        let upto = self.shared.queue.request_flush();
        let written = self.shared.written.borrow();
        match &written.problem {
            Some(problem) if written.upto < upto => Err(problem.clone()),
            _ => Ok(()),
        }
    }

    /// How many transactions were written.
    pub fn commits(&self) -> u64 {
        self.shared.commits.load(Ordering::Relaxed)
    }

    /// How many transactions failed.
    pub fn failures(&self) -> u64 {
        self.shared.failures.load(Ordering::Relaxed)
    }

    /// Whether the last transaction failed: what was handed over since is not on disk.
    pub fn is_failing(&self) -> bool {
        self.shared.written.borrow().problem.is_some()
    }

    /// How many bytes wait, or are under way to the disk.
    pub fn waiting(&self) -> usize {
        self.shared.queue.bytes()
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        if let Err(problem) = self.close() {
            warn!(%problem, "the last changes of tasks were not kept");
        }
    }
}

/// The writer: until the store is closed and nothing waits, or the disk does not take it.
fn write_all(shared: &StoreShared, retry: Duration) {
    let _end = WriterEndGuard(shared);
    let mut not_before = None;
    while let Some(batch) = shared.queue.next(not_before) {
        let outcome = match lock(&shared.medium).as_mut() {
            Some(medium) => medium.write(batch.changes()),
            None => Err(StoreProblem::Closed),
        };
        match outcome {
            Ok(()) => {
                if not_before.take().is_some() {
                    info!("tasks can be kept on disk again");
                }
                shared.commits.fetch_add(1, Ordering::Relaxed);
                let upto = shared.queue.done(&batch);
                shared.written.send_replace(WriteProgress { upto, problem: None });
            }
            Err(problem) => {
                // Nothing can be tried again: the other process has gone.
                let is_over = problem == StoreProblem::Closed;
                // Once until it succeeds, not for each try.
                if is_over {
                    warn!(
                        "the process that has taken over does not answer: it is not told what is learnt here"
                    );
                } else if not_before.is_none() {
                    warn!(%problem, "tasks cannot be kept on disk; it is tried again");
                }
                shared.failures.fetch_add(1, Ordering::Relaxed);
                not_before = Some(Instant::now() + retry);
                let closing = shared.queue.requeue(batch);
                shared.written.send_modify(|written| written.problem = Some(problem));
                if closing || is_over {
                    return;
                }
            }
        }
    }
}

/// However the writer ends: nobody waits for it any more, and the file is free.
struct WriterEndGuard<'a>(&'a StoreShared);

impl Drop for WriterEndGuard<'_> {
    fn drop(&mut self) {
        self.0.queue.close();
        lock(&self.0.medium).take();
        self.0.written.send_modify(|written| {
            written.problem.get_or_insert(StoreProblem::Closed);
        });
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
