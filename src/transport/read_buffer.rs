//! The buffer of each thread into which connections of HTTP/1.1 read, those of clients and those to agents.
//!
//! Bytes are copied in the size in which they came, so that no connection keeps a buffer while nothing is read.

use std::cell::RefCell;
use std::io;
use std::pin::pin;
use std::task::{Context, Poll, ready};

use bytes::{BufMut as _, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _};

/// Size of the buffer, in bytes.
pub(crate) const READ_BYTES: usize = 64 * 1024;
/// Bytes that hold the whole buffer, rather than a copy: it is at most a third larger.
const DENSE_BYTES: usize = READ_BYTES / 4 * 3;

/// Reads at most so many bytes of what has come: none at the end of the stream. Bytes that fill most of the buffer are returned with
/// it, and the next read has a new one.
pub(crate) fn poll_read(
    stream: &mut (impl AsyncRead + Unpin),
    cx: &mut Context<'_>,
    most: usize,
) -> Poll<io::Result<Bytes>> {
    thread_local! {
        static BUFFER: RefCell<BytesMut> = RefCell::new(BytesMut::new());
    }
    BUFFER.with_borrow_mut(|buffer| {
        buffer.clear();
        buffer.reserve(READ_BYTES);
        ready!(pin!(stream.read_buf(&mut buffer.limit(most.clamp(1, READ_BYTES)))).poll(cx))?;
        Poll::Ready(Ok(match buffer.len() {
            DENSE_BYTES.. => std::mem::take(buffer).freeze(),
            _ => Bytes::copy_from_slice(buffer),
        }))
    })
}

/// Returns the size of the buffer that these bytes keep, which were read.
pub(crate) fn held_bytes(read: &Bytes) -> usize {
    if read.len() < DENSE_BYTES { read.len() } else { READ_BYTES }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8], most: usize) -> Bytes {
        let mut cx = Context::from_waker(std::task::Waker::noop());
        match poll_read(&mut &*bytes, &mut cx, most) {
            Poll::Ready(read) => read.unwrap(),
            Poll::Pending => panic!("it waits"),
        }
    }

    #[test]
    fn bytes_keep_little_more_than_themselves() {
        let bytes = vec![7; READ_BYTES * 2];
        for length in [0, 1, 1000, DENSE_BYTES - 1, DENSE_BYTES, READ_BYTES] {
            let whole = read(&bytes[..length], READ_BYTES);
            assert_eq!((whole.len(), &bytes[..length]), (length, &*whole));
            let held = held_bytes(&whole);
            assert!(held >= length && held * 3 <= length * 4, "{length}: {held}");
            // A later read changes nothing of it.
            drop(read(&[9; 64], READ_BYTES));
            assert!(whole.iter().all(|byte| *byte == 7));
        }
        assert_eq!((read(&bytes, 0).len(), read(&bytes, 5).len()), (1, 5));
        assert_eq!(read(&bytes, usize::MAX).len(), READ_BYTES);
    }
}
