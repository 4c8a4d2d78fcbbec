//! The store: bytes under keys that survive `kill -9`, written in groups by one thread of its own.
//!
//! Writers only enqueue; callers that need durability wait in [`Store::flush`], and all waiters
//! share one transaction. The file has one owner at a time. A process that has been replaced by
//! another one sends its rows to that one instead, over a socket, and each batch is acknowledged; a
//! peer that does not answer in time gets no more (see `server::upgrade` for the takeover).
//!
//! Out of scope: the meaning of the rows.

mod disk;

#[cfg(test)]
mod tests;

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use disk::{PendingChanges, StoreFile, WriteQueue};
pub(crate) use disk::{database_builder, guard_database};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::sync::watch;
use tracing::{info, warn};

use crate::sync::lock;

/// Bytes that may wait to be written, or be in flight to the disk.
pub const MOST_WAITING: usize = 64 * 1024 * 1024;
const WRITE_PACING: WritePacing =
    WritePacing { linger: Duration::from_millis(100), retry: Duration::from_secs(5) };

/// Delays of the writer.
#[derive(Clone, Copy)]
struct WritePacing {
    /// After a change without a waiter, so that others are written with it.
    linger: Duration,
    /// After a failure of the disk.
    retry: Duration,
}

/// Table of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StoreTable {
    /// Tasks, by agent and the agent's task id.
    Tasks,
    /// Questions that were answered.
    Turns,
    /// Sessions: ended ones, and the subscriptions of live ones.
    Sessions,
    /// Values of the memory bank.
    Memory,
    /// Batches and their settings, which replicas share; not on disk.
    Batches,
}

impl StoreTable {
    /// The tables of the file.
    const ON_DISK: [Self; 4] = [Self::Tasks, Self::Turns, Self::Sessions, Self::Memory];

    /// Returns the number of the table in rows that are sent.
    pub(crate) fn number(self) -> u8 {
        match self {
            Self::Tasks => 0,
            Self::Turns => 1,
            Self::Sessions => 2,
            Self::Memory => 3,
            Self::Batches => 4,
        }
    }

    /// Returns the table with this number.
    pub(crate) fn numbered(number: u8) -> Option<Self> {
        Self::ON_DISK.into_iter().chain([Self::Batches]).find(|table| table.number() == number)
    }
}

/// Reason for which a row could not be persisted or found.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreProblem {
    /// Another process works with the file.
    #[error(
        "{file} belongs to another process that still runs: stop that one first, or give each gateway one of its own"
    )]
    Owned {
        /// The file.
        file: PathBuf,
    },
    /// The file is not as it was written.
    #[error(
        "{file} is damaged ({what}): put back a copy of it, or move it away to start without what is in it"
    )]
    Damaged {
        /// The file.
        file: PathBuf,
        /// The defect.
        what: String,
    },
    /// The disk reported an error.
    #[error("cannot read or write {file}: {what}")]
    Disk {
        /// The file.
        file: PathBuf,
        /// The error of the system.
        what: String,
    },
    /// The write queue is full. After a [`Store::flush`] there is room again.
    #[error("too much waits to be written to disk")]
    Full,
    /// The row would not fit even into an empty queue.
    #[error("a row of {0} bytes is too large for the store")]
    TooLarge(usize),
    /// The store was closed, or the process that keeps the rows does not answer.
    #[error("the store is closed")]
    Closed,
    /// The process that has taken over could not persist it.
    #[error("the process that has taken over cannot write it to its disk")]
    NotKept,
}

/// Destination of the rows.
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

    /// Calls `row` with each row that this process can read.
    fn each(&mut self, table: StoreTable, row: impl FnMut(&[u8], &[u8])) -> Result<(), StoreProblem> {
        match self {
            Self::Disk(disk) => disk.each(table, row),
            Self::Peer(_) => Ok(()),
        }
    }
}

/// A store with its writer thread.
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

/// Progress of the writer.
struct WriteProgress {
    /// The number of the last change that is durable.
    upto: u64,
    /// The failure of the changes after it, if they were tried.
    problem: Option<StoreProblem>,
}

impl Store {
    /// Opens the store in this directory; creates both if they do not exist. Reads the whole file
    /// to verify it, and starts a thread: call it at the start, after any fork, and not on an async
    /// thread.
    ///
    /// # Errors
    ///
    /// [`StoreProblem`] if another process owns the file, or it is damaged or cannot be used.
    pub fn open(dir: &Path) -> Result<Self, StoreProblem> {
        Self::start(StoreFile::open(dir)?, MOST_WAITING, WRITE_PACING)
    }

    /// Sends the rows to the process at the other end of this socket, which persists them. `told`
    /// gets the messages of that process, on a thread of its own. Starts threads.
    ///
    /// # Errors
    ///
    /// [`StoreProblem`] if the system refuses the threads.
    pub fn over(
        stream: UnixStream,
        told: impl Fn(SuccessorMessage) + Send + 'static,
    ) -> Result<Self, StoreProblem> {
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

    /// Enqueues a row. It replaces the value of the key, also if that still waits to be written.
    /// Never waits for the disk.
    ///
    /// # Errors
    ///
    /// [`StoreProblem::Full`] if the queue is full, [`StoreProblem::TooLarge`],
    /// [`StoreProblem::Closed`]; then nothing was enqueued.
    pub fn put(&self, table: StoreTable, key: Vec<u8>, value: Vec<u8>) -> Result<(), StoreProblem> {
        self.shared.queue.add(table, key, Some(value))
    }

    /// Enqueues the removal of a row. As [`Store::put`].
    ///
    /// # Errors
    ///
    /// As [`Store::put`].
    pub fn remove(&self, table: StoreTable, key: Vec<u8>) -> Result<(), StoreProblem> {
        self.shared.queue.add(table, key, None)
    }

    /// Waits until every change that was enqueued before is durable.
    ///
    /// # Errors
    ///
    /// [`StoreProblem`] if it is not, as far as is known. The changes are kept and tried again, so
    /// they may become durable.
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

    /// Calls `row` with each durable row of a table, in the order of keys. Blocks the writer
    /// meanwhile: for the start.
    ///
    /// # Errors
    ///
    /// [`StoreProblem`] if the file cannot be read; some rows may have been passed by then.
    pub fn load(&self, table: StoreTable, row: impl FnMut(&[u8], &[u8])) -> Result<(), StoreProblem> {
        lock(&self.shared.medium).as_mut().ok_or(StoreProblem::Closed)?.each(table, row)
    }

    /// Runs `work` while nothing is written.
    pub fn while_held<R>(&self, work: impl FnOnce() -> R) -> R {
        let _held = lock(&self.shared.medium);
        work()
    }

    /// Writes the pending changes, and closes the file. Waits for the disk. Dropping the store does
    /// the same, without a result.
    ///
    /// # Errors
    ///
    /// [`StoreProblem`] if a change could not be written.
    pub fn close(&self) -> Result<(), StoreProblem> {
        self.shared.queue.close();
        let writer = lock(&self.writer).take();
        if writer.is_some_and(|writer| writer.join().is_err()) {
            warn!("store thread panicked");
        }
        let upto = self.shared.queue.request_flush();
        let written = self.shared.written.borrow();
        match &written.problem {
            Some(problem) if written.upto < upto => Err(problem.clone()),
            _ => Ok(()),
        }
    }

    /// Returns the number of transactions that were written.
    #[cfg(any(test, feature = "testing"))]
    pub fn commits(&self) -> u64 {
        self.shared.commits.load(Ordering::Relaxed)
    }

    /// Returns the number of transactions that failed.
    pub fn failures(&self) -> u64 {
        self.shared.failures.load(Ordering::Relaxed)
    }

    /// Returns true if the last transaction failed: changes since then are not on disk.
    pub fn is_failing(&self) -> bool {
        self.shared.written.borrow().problem.is_some()
    }

    /// Returns the number of bytes that wait, or are in flight to the disk.
    #[cfg(any(test, feature = "testing"))]
    pub fn waiting(&self) -> usize {
        self.shared.queue.bytes()
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        if let Err(problem) = self.close() {
            warn!(error = %problem, "failed to persist last changes");
        }
    }
}

/// Runs the writer until the store is closed and nothing waits, or the disk fails after that.
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
                    info!("store is writable again");
                }
                shared.commits.fetch_add(1, Ordering::Relaxed);
                let upto = shared.queue.done(&batch);
                shared.written.send_replace(WriteProgress { upto, problem: None });
            }
            Err(problem) => {
                // No retry: the other process has gone.
                let is_over = problem == StoreProblem::Closed;
                // Once until it succeeds, not for each try.
                if is_over {
                    warn!("process that has taken over does not answer; changes of this process are lost");
                } else if not_before.is_none() {
                    warn!(error = %problem, "failed to write store, retrying");
                }
                shared.failures.fetch_add(1, Ordering::Relaxed);
                not_before = Some(Instant::now() + retry);
                let closing = shared.queue.requeue(batch);
                if is_over {
                    // Before the failure is announced: a row that is added after it must be
                    // refused, not lost.
                    shared.queue.close();
                }
                shared.written.send_modify(|written| written.problem = Some(problem));
                if closing || is_over {
                    return;
                }
            }
        }
    }
}

/// Marks the end of the writer: waiters are released, and the file is free.
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

/// Time that the other process has to read, and to persist a batch.
const ACK_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes of a frame before its key and its value.
const FRAME_HEADER_BYTES: usize = 10;
/// Not a table: ends a batch.
const BATCH_END: u8 = 0xff;

/// Message types of the process that took over.
const KEPT: u8 = b'k';
const NOT_KEPT: u8 = b'n';
const SERVES: u8 = b's';
const ENDED: u8 = b'e';

/// Message of the process that took over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SuccessorMessage {
    /// A batch is on disk, or is not.
    Kept(bool),
    /// Its listeners accept connections.
    Serves,
    /// A client ended this session there; it would have expired then (Unix seconds).
    Ended([u8; 16], u64),
}

impl SuccessorMessage {
    /// Encodes the message.
    pub fn to_bytes(self) -> Vec<u8> {
        match self {
            Self::Kept(true) => vec![KEPT],
            Self::Kept(false) => vec![NOT_KEPT],
            Self::Serves => vec![SERVES],
            Self::Ended(session, expires) => [&[ENDED][..], &session, &expires.to_be_bytes()].concat(),
        }
    }

    fn read(from: &mut UnixStream) -> io::Result<Self> {
        let mut word = [0; 1];
        from.read_exact(&mut word)?;
        match word {
            [KEPT] => Ok(Self::Kept(true)),
            [NOT_KEPT] => Ok(Self::Kept(false)),
            [SERVES] => Ok(Self::Serves),
            [ENDED] => {
                let (mut session, mut expires) = ([0; 16], [0; 8]);
                from.read_exact(&mut session)?;
                from.read_exact(&mut expires)?;
                Ok(Self::Ended(session, u64::from_be_bytes(expires)))
            }
            _ => Err(ErrorKind::InvalidData.into()),
        }
    }
}

/// One row on the socket, or the end of a batch.
#[derive(Debug, PartialEq, Eq)]
pub enum RowFrame {
    /// Table, key and value; no value: the row is removed.
    Row(StoreTable, Vec<u8>, Option<Vec<u8>>),
    /// The batch is complete: it must be acknowledged.
    End,
}

impl RowFrame {
    /// Reads the next frame; `None` at the end of the stream.
    ///
    /// # Errors
    ///
    /// If the frame is malformed, larger than a row can be, or broken off.
    pub async fn read(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<Self>> {
        let first = match from.read_u8().await {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(None),
            first => first?,
        };
        if first == BATCH_END {
            return Ok(Some(Self::End));
        }
        let table = StoreTable::numbered(first).ok_or(ErrorKind::InvalidData)?;
        let has_value = from.read_u8().await? == 1;
        let (key, value) = (from.read_u32().await?, from.read_u32().await?);
        let key = bytes(from, key).await?;
        let value = bytes(from, value).await?;
        Ok(Some(Self::Row(table, key, has_value.then_some(value))))
    }
}

/// Reads so many bytes; allocates only for those that have arrived.
async fn bytes(from: &mut (impl AsyncRead + Unpin), length: u32) -> io::Result<Vec<u8>> {
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    if length > MOST_WAITING {
        return Err(ErrorKind::InvalidData.into());
    }
    let mut bytes = Vec::new();
    from.take(length as u64).read_to_end(&mut bytes).await?;
    if bytes.len() == length { Ok(bytes) } else { Err(ErrorKind::UnexpectedEof.into()) }
}

/// The process that keeps the rows.
struct Peer {
    stream: UnixStream,
    kept: Receiver<bool>,
}

impl Peer {
    /// Connects over this socket; `told` gets every message of the other process except answers to
    /// batches.
    fn new(
        stream: UnixStream,
        told: impl Fn(SuccessorMessage) + Send + 'static,
    ) -> Result<Self, StoreProblem> {
        let (answers, kept) = sync_channel(1);
        let hear = || {
            stream.set_nonblocking(false)?;
            stream.set_write_timeout(Some(ACK_TIMEOUT))?;
            let reader = stream.try_clone()?;
            thread::Builder::new().name("successor".to_owned()).spawn(move || listen(reader, &answers, told))
        };
        hear().map_err(|_| StoreProblem::Closed)?;
        Ok(Self { stream, kept })
    }

    /// Forwards a batch and waits until it is persisted.
    fn write(&mut self, changes: &PendingChanges) -> Result<(), StoreProblem> {
        self.send(changes).map_err(|_| StoreProblem::Closed)?;
        match self.kept.recv_timeout(ACK_TIMEOUT) {
            Ok(true) => Ok(()),
            Ok(false) => Err(StoreProblem::NotKept),
            Err(_) => Err(StoreProblem::Closed),
        }
    }

    fn send(&mut self, changes: &PendingChanges) -> io::Result<()> {
        let mut out = io::BufWriter::new(&mut self.stream);
        for ((table, key), value) in changes {
            let size = |bytes: &[u8]| u32::try_from(bytes.len()).map_err(|_| ErrorKind::InvalidInput);
            let (key_size, value_size) = (size(key)?, size(value.as_deref().unwrap_or_default())?);
            let mut head = Vec::with_capacity(FRAME_HEADER_BYTES);
            head.extend([table.number(), u8::from(value.is_some())]);
            head.extend(key_size.to_be_bytes());
            head.extend(value_size.to_be_bytes());
            out.write_all(&head)?;
            out.write_all(key)?;
            out.write_all(value.as_deref().unwrap_or_default())?;
        }
        out.write_all(&[BATCH_END])?;
        out.flush()
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // Ends the reading thread, too. Fails only if the other process has gone.
        self.stream.shutdown(Shutdown::Both).unwrap_or_default();
    }
}

/// Reads the messages of the other process to the end. The receiver of answers then knows that none
/// will come.
fn listen(mut from: UnixStream, answers: &SyncSender<bool>, told: impl Fn(SuccessorMessage)) {
    while let Ok(word) = SuccessorMessage::read(&mut from) {
        match word {
            SuccessorMessage::Kept(kept) => {
                // One answer to each batch; a further one answers nothing.
                if answers.try_send(kept).is_err() {
                    return;
                }
            }
            word => told(word),
        }
    }
}
