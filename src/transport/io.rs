//! The byte stream under an HTTP connection: TCP, or TLS over TCP.
//!
//! Delegates, but for small writes, and counts bytes that are read while no response reaches a
//! caller. See `connect` for opening.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

/// The maximum size of slices that are joined for one write, in bytes: one plain write of a usual
/// request costs the system less than separate writes of header and body. To copy much more would
/// cost more than it saves.
const COALESCE_LIMIT: usize = 2048;

/// A connected byte stream.
pub(super) struct MaybeTlsStream {
    stream: InnerStream,
    budget: Arc<ReadBudget>,
}

/// The stream itself.
enum InnerStream {
    /// Plain TCP.
    Plain(TcpStream),
    /// TLS over TCP; boxed, because its state is large and connections are moved.
    Tls(Box<TlsStream<TcpStream>>),
}

/// The bytes that an agent may still send before a response reaches a caller.
///
/// hyper skips informational responses (1xx) without end and without a bound of its own.
#[derive(Debug)]
pub(super) struct ReadBudget(AtomicUsize);

/// The error of an agent that has spent its budget without a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the peer sent too much without an answer")]
pub(super) struct BudgetSpentError;

impl ReadBudget {
    /// Permits this many bytes from now on.
    pub(super) fn set(&self, bytes: usize) {
        self.0.store(bytes, Ordering::Relaxed);
    }

    /// Permits any number of bytes: the reader of the response has limits.
    pub(super) fn lift(&self) {
        self.set(usize::MAX);
    }

    fn spend(&self, bytes: usize) -> Result<(), BudgetSpentError> {
        let left = self.0.load(Ordering::Relaxed);
        if left == usize::MAX {
            return Ok(());
        }
        // A refill between the two accesses is lost at most once; the next response refills again.
        self.0.store(left.checked_sub(bytes).ok_or(BudgetSpentError)?, Ordering::Relaxed);
        Ok(())
    }
}

impl MaybeTlsStream {
    /// Wraps a plain connection. Reading is not limited until the budget is set.
    pub(super) fn plain(stream: TcpStream) -> Self {
        Self::of(InnerStream::Plain(stream))
    }

    /// Wraps a connection over TLS.
    pub(super) fn tls(stream: TlsStream<TcpStream>) -> Self {
        Self::of(InnerStream::Tls(Box::new(stream)))
    }

    fn of(stream: InnerStream) -> Self {
        Self { stream, budget: Arc::new(ReadBudget(AtomicUsize::new(usize::MAX))) }
    }

    /// Returns the budget of this connection.
    pub(super) fn budget(&self) -> Arc<ReadBudget> {
        self.budget.clone()
    }
}

/// Returns the slices in one piece, if they are small; `None` if they are not.
fn coalesce<'a>(slices: &[IoSlice<'_>], room: &'a mut [u8; COALESCE_LIMIT]) -> Option<&'a [u8]> {
    if slices.iter().map(|slice| slice.len()).sum::<usize>() > COALESCE_LIMIT {
        return None;
    }
    let mut taken = 0;
    for slice in slices {
        room.get_mut(taken..taken + slice.len())?.copy_from_slice(slice);
        taken += slice.len();
    }
    room.get(..taken)
}

impl AsyncRead for MaybeTlsStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        ready!(match &mut this.stream {
            InnerStream::Plain(stream) => Pin::new(stream).poll_read(cx, buffer),
            InnerStream::Tls(stream) => Pin::new(stream.as_mut()).poll_read(cx, buffer),
        })?;
        let read = buffer.filled().len().saturating_sub(before);
        let spent = this.budget.spend(read);
        Poll::Ready(spent.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error)))
    }
}

impl AsyncWrite for MaybeTlsStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().stream {
            InnerStream::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            InnerStream::Tls(stream) => Pin::new(stream.as_mut()).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().stream {
            InnerStream::Plain(stream) => Pin::new(stream).poll_flush(cx),
            InnerStream::Tls(stream) => Pin::new(stream.as_mut()).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().stream {
            InnerStream::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            InnerStream::Tls(stream) => Pin::new(stream.as_mut()).poll_shutdown(cx),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match &self.stream {
            InnerStream::Plain(stream) => stream.is_write_vectored(),
            InnerStream::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().stream {
            InnerStream::Plain(stream) => match coalesce(slices, &mut [0; COALESCE_LIMIT]) {
                Some(bytes) => Pin::new(stream).poll_write(cx, bytes),
                None => Pin::new(stream).poll_write_vectored(cx, slices),
            },
            InnerStream::Tls(stream) => Pin::new(stream.as_mut()).poll_write_vectored(cx, slices),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_slices_are_gathered_in_their_order_and_large_ones_are_not() {
        let large = vec![b'x'; COALESCE_LIMIT];
        for (slices, whole) in [
            (vec![], Some(Vec::new())),
            (vec![&b"head"[..], b"", b"body"], Some(b"headbody".to_vec())),
            (vec![&large[..]], Some(large.clone())),
            (vec![&large[..], b"y"], None),
            (vec![&b"a"[..], &large[..]], None),
        ] {
            let slices: Vec<IoSlice<'_>> = slices.into_iter().map(IoSlice::new).collect();
            assert_eq!(coalesce(&slices, &mut [0; COALESCE_LIMIT]).map(<[u8]>::to_vec), whole);
        }
    }

    #[test]
    fn a_budget_ends_where_it_was_set() {
        let budget = ReadBudget(AtomicUsize::new(usize::MAX));
        assert_eq!(budget.spend(usize::MAX - 1), Ok(()), "none is set");
        budget.set(10);
        assert_eq!((budget.spend(7), budget.spend(3)), (Ok(()), Ok(())));
        assert_eq!(budget.spend(1), Err(BudgetSpentError));
        budget.set(1);
        assert_eq!(budget.spend(1), Ok(()));
        budget.lift();
        assert_eq!(budget.spend(1 << 40), Ok(()));
    }
}
