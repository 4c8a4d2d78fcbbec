//! Forwarding of rows to another process that has taken the file over: they go over a socket, and
//! each batch is acknowledged.
//!
//! A peer that does not answer in time gets no more: rows that it did not get are lost, and nothing
//! else. See also `server::upgrade` for the takeover.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _};

use super::disk::PendingChanges;
use super::{MOST_WAITING, StoreProblem, StoreTable};

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
pub(super) struct Peer {
    stream: UnixStream,
    kept: Receiver<bool>,
}

impl Peer {
    /// Connects over this socket; `told` gets every message of the other process except answers to
    /// batches.
    pub(super) fn new(
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
    pub(super) fn write(&mut self, changes: &PendingChanges) -> Result<(), StoreProblem> {
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
