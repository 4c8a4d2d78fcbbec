//! The byte stream under an HTTP connection: TCP, or TLS over TCP.
//!
//! Only delegation, but for small writes; opening is in `open`.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

/// The most that is put together to be written in one piece, in bytes: a plain write of a usual request costs the system less than one
/// of header and body apart. To copy much more would cost what it saves.
const SMALL: usize = 2048;

/// A connected byte stream, in the form that hyper reads.
pub(super) enum Wire {
    /// Plain TCP.
    Plain(TokioIo<TcpStream>),
    /// TLS over TCP; boxed, because its state is large and connections are moved.
    Tls(Box<TokioIo<TlsStream<TcpStream>>>),
}

/// The slices in one piece, if they are small; `None` if they are not.
fn gathered<'a>(slices: &[IoSlice<'_>], room: &'a mut [u8; SMALL]) -> Option<&'a [u8]> {
    if slices.iter().map(|slice| slice.len()).sum::<usize>() > SMALL {
        return None;
    }
    let mut taken = 0;
    for slice in slices {
        room.get_mut(taken..taken + slice.len())?.copy_from_slice(slice);
        taken += slice.len();
    }
    room.get(..taken)
}

impl Read for Wire {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, buffer),
            Self::Tls(stream) => Pin::new(stream.as_mut()).poll_read(cx, buffer),
        }
    }
}

impl Write for Wire {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Tls(stream) => Pin::new(stream.as_mut()).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(stream) => Pin::new(stream.as_mut()).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream.as_mut()).poll_shutdown(cx),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(stream) => stream.is_write_vectored(),
            Self::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => match gathered(slices, &mut [0; SMALL]) {
                Some(bytes) => Pin::new(stream).poll_write(cx, bytes),
                None => Pin::new(stream).poll_write_vectored(cx, slices),
            },
            Self::Tls(stream) => Pin::new(stream.as_mut()).poll_write_vectored(cx, slices),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_slices_are_gathered_in_their_order_and_large_ones_are_not() {
        let large = vec![b'x'; SMALL];
        for (slices, whole) in [
            (vec![], Some(Vec::new())),
            (vec![&b"head"[..], b"", b"body"], Some(b"headbody".to_vec())),
            (vec![&large[..]], Some(large.clone())),
            (vec![&large[..], b"y"], None),
            (vec![&b"a"[..], &large[..]], None),
        ] {
            let slices: Vec<IoSlice<'_>> = slices.into_iter().map(IoSlice::new).collect();
            assert_eq!(gathered(&slices, &mut [0; SMALL]).map(<[u8]>::to_vec), whole);
        }
    }
}
