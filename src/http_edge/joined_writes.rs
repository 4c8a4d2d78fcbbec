//! Writes to a client that are sent together with the next one.
//!
//! Pingora sends the head of a stream, each piece of its body and the end of its body on their own, and every
//! packet costs more than most events. It offers no way to join them. So a part of a response that is
//! followed by another one at once is written within [`with_next_write`], and the connection keeps its bytes until then.

use std::cell::Cell;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::AsyncWrite;

/// The maximum size of the bytes that are kept for the next write. To copy more would cost more than a packet.
const MAX_KEPT_BYTES: usize = 16 * 1024;
/// The size of the buffer for them at first, in bytes: that of a head and an event.
const FIRST_BUFFER_BYTES: usize = 2 * 1024;

thread_local! {
    /// True while a write is polled that is to be sent with the next one.
    static IS_JOINED: Cell<bool> = const { Cell::new(false) };
}

/// Runs `write`, of which the bytes are sent with those of the next write. The caller begins that at once.
///
/// Borrowed, because a waiting call holds the room of each future that is moved here.
pub(super) fn with_next_write<F: Future>(mut write: Pin<&mut F>) -> impl Future<Output = F::Output> {
    /// Restores the flag, also after a panic.
    struct Restored(bool);
    impl Drop for Restored {
        fn drop(&mut self) {
            IS_JOINED.set(self.0);
        }
    }
    std::future::poll_fn(move |cx| {
        let _restored = Restored(IS_JOINED.replace(true));
        write.as_mut().poll(cx)
    })
}

/// The bytes of one connection that are sent with its next write.
#[derive(Default)]
pub(crate) struct JoinedWrites {
    kept: Vec<u8>,
}

impl JoinedWrites {
    /// Writes `bytes` to the stream behind those that are kept, or keeps them too.
    pub(crate) fn poll_write<W: AsyncWrite + Unpin + ?Sized>(
        &mut self,
        stream: &mut W,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(stream, cx, &[IoSlice::new(bytes)])
    }

    /// Does the same with the bytes of several buffers.
    pub(crate) fn poll_write_vectored<W: AsyncWrite + Unpin + ?Sized>(
        &mut self,
        stream: &mut W,
        cx: &mut Context<'_>,
        buffers: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let is_joined = IS_JOINED.get();
        if !is_joined && self.kept.is_empty() {
            return poll_write_all_of(stream, cx, buffers);
        }
        let count: usize = buffers.iter().map(|buffer| buffer.len()).sum();
        if self.kept.len().saturating_add(count) <= MAX_KEPT_BYTES {
            if self.kept.is_empty() {
                self.kept.reserve(FIRST_BUFFER_BYTES.max(count));
            }
            buffers.iter().for_each(|buffer| self.kept.extend_from_slice(buffer));
            // If the stream takes nothing now, the flush that follows waits for it.
            if !is_joined && let Poll::Ready(Err(error)) = self.poll_kept(stream, cx) {
                return Poll::Ready(Err(error));
            }
            return Poll::Ready(Ok(count));
        }
        while !self.kept.is_empty() {
            let kept = self.kept.len();
            let mut all = Vec::with_capacity(buffers.len() + 1);
            all.push(IoSlice::new(&self.kept));
            all.extend(buffers.iter().map(|buffer| IoSlice::new(buffer)));
            let written = ready!(poll_write_all_of(stream, cx, &all))?;
            self.remove(written)?;
            if written > kept {
                return Poll::Ready(Ok(written - kept));
            }
        }
        poll_write_all_of(stream, cx, buffers)
    }

    /// Sends all bytes, or none if they are to be sent with the next write.
    pub(crate) fn poll_flush<W: AsyncWrite + Unpin + ?Sized>(
        &mut self,
        stream: &mut W,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        if IS_JOINED.get() && !self.kept.is_empty() {
            return Poll::Ready(Ok(()));
        }
        ready!(self.poll_kept(stream, cx))?;
        Pin::new(stream).poll_flush(cx)
    }

    /// Writes the kept bytes to the stream.
    pub(crate) fn poll_kept<W: AsyncWrite + Unpin + ?Sized>(
        &mut self,
        stream: &mut W,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        while !self.kept.is_empty() {
            let written = ready!(Pin::new(&mut *stream).poll_write(cx, &self.kept))?;
            self.remove(written)?;
        }
        Poll::Ready(Ok(()))
    }

    /// Removes bytes that the stream has taken.
    fn remove(&mut self, written: usize) -> io::Result<()> {
        match written {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            // The buffer is not kept while a stream waits for its next event.
            _ if written >= self.kept.len() => self.kept = Vec::new(),
            _ => drop(self.kept.drain(..written)),
        }
        Ok(())
    }
}

/// Writes buffers as one, if the stream can do that; else the first one.
fn poll_write_all_of<W: AsyncWrite + Unpin + ?Sized>(
    stream: &mut W,
    cx: &mut Context<'_>,
    buffers: &[IoSlice<'_>],
) -> Poll<io::Result<usize>> {
    match buffers {
        [only] => Pin::new(stream).poll_write(cx, only),
        _ => Pin::new(stream).poll_write_vectored(cx, buffers),
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use tokio::io::AsyncWriteExt as _;

    use super::*;

    /// A stream that takes up to `most` bytes at once, and waits before each second write.
    struct SlowStream {
        taken: Vec<Vec<u8>>,
        most: usize,
        waits: bool,
    }

    impl AsyncWrite for SlowStream {
        fn poll_write(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            self.waits = !self.waits && self.most < 1000;
            if self.waits {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            let count = bytes.len().min(self.most);
            self.taken.push(bytes.get(..count).unwrap().to_vec());
            Poll::Ready(Ok(count))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    struct Joined(JoinedWrites, SlowStream);

    impl AsyncWrite for Joined {
        fn poll_write(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            let Self(writes, stream) = &mut *self;
            writes.poll_write(stream, cx, bytes)
        }

        fn poll_write_vectored(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            buffers: &[IoSlice<'_>],
        ) -> Poll<io::Result<usize>> {
            let Self(writes, stream) = &mut *self;
            writes.poll_write_vectored(stream, cx, buffers)
        }

        fn is_write_vectored(&self) -> bool {
            true
        }

        fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            let Self(writes, stream) = &mut *self;
            writes.poll_flush(stream, cx)
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    fn stream(most: usize) -> Joined {
        Joined(JoinedWrites::default(), SlowStream { taken: Vec::new(), most, waits: true })
    }

    async fn send(to: &mut Joined, bytes: &[u8]) {
        to.write_all(bytes).await.unwrap();
        to.flush().await.unwrap();
    }

    #[tokio::test]
    async fn a_write_is_sent_with_the_next_one() {
        let mut to = stream(usize::MAX);
        with_next_write(pin!(send(&mut to, b"head"))).await;
        assert!(to.1.taken.is_empty());
        with_next_write(pin!(send(&mut to, b", event"))).await;
        send(&mut to, b", end").await;
        send(&mut to, b"next").await;
        assert_eq!(to.1.taken, [b"head, event, end".to_vec(), b"next".to_vec()]);
        assert_eq!(to.0.kept.capacity(), 0);
    }

    #[tokio::test]
    async fn all_bytes_arrive_in_their_order_however_few_are_taken_at_once() {
        for most in [1, 7, 1000, usize::MAX] {
            for (held, next) in
                [(10, 20), (10, MAX_KEPT_BYTES), (MAX_KEPT_BYTES + 1, 3), (3, 3 * MAX_KEPT_BYTES)]
            {
                let all: Vec<u8> = (0..held + next).map(|at| u8::try_from(at % 251).unwrap()).collect();
                let (first, second) = all.split_at(held);
                let mut to = stream(most);
                with_next_write(pin!(send(&mut to, first))).await;
                assert!(to.0.kept.len() <= MAX_KEPT_BYTES);
                let mut rest = bytes::Buf::chain(&second[..1], &second[1..]);
                to.write_all_buf(&mut rest).await.unwrap();
                to.flush().await.unwrap();
                assert_eq!(to.1.taken.concat(), all, "{most} {held} {next}");
            }
        }
    }

    #[tokio::test]
    async fn a_stream_that_takes_nothing_is_an_error() {
        let mut to = stream(0);
        with_next_write(pin!(send(&mut to, b"head"))).await;
        to.1.waits = true;
        let error = async {
            to.write_all(b"x").await?;
            to.flush().await
        };
        assert_eq!(error.await.unwrap_err().kind(), io::ErrorKind::WriteZero);
    }
}
