//! One keep-alive connection of HTTP/1.1: as little work as a client can do, since it shares the
//! machine with the measured process.

use std::net::Ipv4Addr;

use memchr::memmem;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// A connection.
pub(crate) struct Connection<S = TcpStream> {
    socket: S,
    read: Vec<u8>,
}

/// Framing of a body.
enum Body {
    Sized(usize),
    Chunked,
}

impl Connection {
    pub(crate) async fn open(port: u16) -> Self {
        let socket = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.unwrap();
        socket.set_nodelay(true).unwrap();
        Self::over(socket)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// Wraps an open stream.
    pub(crate) fn over(socket: S) -> Self {
        Self { socket, read: Vec::with_capacity(16 << 10) }
    }

    pub(crate) fn socket(&self) -> &S {
        &self.socket
    }

    /// Sends a request as it is and returns the whole response, head and body as they came.
    pub(crate) async fn exchange(&mut self, request: &[u8]) -> &[u8] {
        self.socket.write_all(request).await.unwrap();
        self.read.clear();
        let mut head = None;
        loop {
            let more = self.socket.read_buf(&mut self.read).await.unwrap();
            assert!(more > 0, "the connection ended within: {}", String::from_utf8_lossy(&self.read));
            if head.is_none() {
                let end = memmem::find(&self.read, b"\r\n\r\n").map(|at| at + 4);
                head = end.map(|end| (end, body(&self.read[..end])));
            }
            let done = head.as_ref().is_some_and(|(end, body)| match body {
                Body::Sized(size) => self.read.len() >= end + size,
                Body::Chunked => self.read.ends_with(b"\r\n0\r\n\r\n"),
            });
            if done {
                return &self.read;
            }
        }
    }
}

fn body(head: &[u8]) -> Body {
    let text = str::from_utf8(head).unwrap();
    let size = text.lines().filter_map(|line| line.split_once(':')).find_map(|(name, value)| {
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().unwrap())
    });
    size.map_or(Body::Chunked, Body::Sized)
}
