//! One keep-alive connection of HTTP/1.1, or one of HTTP/2 for gRPC: as little work as a client can
//! do, since it shares the machine with the measured process.

use std::net::Ipv4Addr;

use http::{Request, header};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use memchr::memmem;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::mcp;

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

/// A connection that sends one message by gRPC, again and again.
pub(crate) struct GrpcConnection {
    sender: SendRequest<Full<Bytes>>,
    request: Request<Full<Bytes>>,
    read: Vec<u8>,
}

impl GrpcConnection {
    /// Opens a connection for this body, a message in its frame.
    pub(crate) async fn open(port: u16, body: &[u8]) -> Self {
        let socket = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.unwrap();
        socket.set_nodelay(true).unwrap();
        let (sender, connection) = handshake(TokioExecutor::new(), TokioIo::new(socket)).await.unwrap();
        tokio::spawn(connection);
        let request = Request::post(format!("http://127.0.0.1:{port}{}", mcp::GRPC_SEND))
            .header(header::CONTENT_TYPE, "application/grpc")
            .header(header::TE, "trailers")
            .header(header::USER_AGENT, "bench/1.0")
            .header("a2a-version", "1.0")
            .body(Full::new(Bytes::copy_from_slice(body)));
        Self { sender, request: request.unwrap(), read: Vec::with_capacity(16 << 10) }
    }

    /// Sends the message, and returns the body of the response, and true if its status is OK.
    pub(crate) async fn exchange(&mut self) -> (&[u8], bool) {
        self.sender.ready().await.unwrap();
        let response = self.sender.send_request(self.request.clone()).await.unwrap();
        self.read.clear();
        let mut body = response.into_body();
        let mut is_ok = false;
        while let Some(frame) = body.frame().await {
            match frame.unwrap().into_data() {
                Ok(data) => self.read.extend_from_slice(&data),
                Err(other) => {
                    let trailers = other.into_trailers().unwrap_or_default();
                    is_ok = trailers.get("grpc-status").is_some_and(|status| status == "0");
                }
            }
        }
        (&self.read, is_ok)
    }
}

fn body(head: &[u8]) -> Body {
    let text = str::from_utf8(head).unwrap();
    let size = text.lines().filter_map(|line| line.split_once(':')).find_map(|(name, value)| {
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().unwrap())
    });
    size.map_or(Body::Chunked, Body::Sized)
}
