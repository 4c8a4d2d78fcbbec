//! One keep-alive connection of a client, by HTTP/1.1 or HTTP/2, with or without TLS: as little work as a client can
//! do, since it shares the machine with the measured process.

use std::net::Ipv4Addr;

use http::Request;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use memchr::memmem;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// A connection of any kind.
pub(crate) enum ClientConnection {
    Plain(Connection),
    Tls(Box<Connection<TlsStream<TcpStream>>>),
    Http2(Box<Http2Connection>),
}

/// The way from a client to a port.
#[derive(Clone, Default)]
pub(crate) struct ClientTransport {
    pub(crate) tls: Option<TlsConnector>,
    pub(crate) is_http2: bool,
}

impl ClientConnection {
    /// Opens a connection for one request, in the form of HTTP/1.1.
    pub(crate) async fn open(port: u16, transport: &ClientTransport, request: &[u8]) -> Self {
        let socket = connect(port).await;
        let Some(tls) = &transport.tls else {
            return match transport.is_http2 {
                true => Self::Http2(Box::new(Http2Connection::over(socket, request).await)),
                false => Self::Plain(Connection::over(socket)),
            };
        };
        let stream = tls.connect("localhost".try_into().unwrap(), socket).await.unwrap();
        match transport.is_http2 {
            true => Self::Http2(Box::new(Http2Connection::over(stream, request).await)),
            false => Self::Tls(Box::new(Connection::over(stream))),
        }
    }

    /// Sends the request, and returns the response, and true if its status is a good one.
    pub(crate) async fn exchange(&mut self, request: &[u8]) -> (&[u8], bool) {
        let response = match self {
            Self::Plain(connection) => connection.exchange(request).await,
            Self::Tls(connection) => connection.exchange(request).await,
            Self::Http2(connection) => return connection.exchange().await,
        };
        (response, response.starts_with(b"HTTP/1.1 200"))
    }
}

async fn connect(port: u16) -> TcpStream {
    let socket = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.unwrap();
    socket.set_nodelay(true).unwrap();
    socket
}

/// A connection of HTTP/1.1.
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
        Self::over(connect(port).await)
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
        self.begin(request).await;
        let mut head = None;
        loop {
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
            self.read_more().await;
        }
    }

    /// Sends a request and returns as soon as the response has these bytes.
    pub(crate) async fn exchange_until(&mut self, request: &[u8], marker: &[u8]) {
        self.begin(request).await;
        while memmem::find(&self.read, marker).is_none() {
            self.read_more().await;
        }
    }

    /// Sends a request, and shows the response so far after each read, until it has ended.
    pub(crate) async fn watch(&mut self, request: &[u8], mut show: impl FnMut(&[u8])) {
        self.begin(request).await;
        loop {
            show(&self.read);
            if self.read.ends_with(b"\r\n0\r\n\r\n") {
                return;
            }
            self.read_more().await;
        }
    }

    async fn begin(&mut self, request: &[u8]) {
        self.socket.write_all(request).await.unwrap();
        self.read.clear();
        self.read_more().await;
    }

    async fn read_more(&mut self) {
        let more = self.socket.read_buf(&mut self.read).await.unwrap();
        assert!(more > 0, "the connection ended within: {}", String::from_utf8_lossy(&self.read));
    }
}

/// A connection of HTTP/2 that sends one request, again and again.
pub(crate) struct Http2Connection {
    sender: SendRequest<Full<Bytes>>,
    request: Request<Full<Bytes>>,
    read: Vec<u8>,
}

impl Http2Connection {
    async fn over<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(stream: S, request: &[u8]) -> Self {
        let (sender, connection) = handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        Self { sender, request: http2_request(request), read: Vec::with_capacity(16 << 10) }
    }

    /// Sends the request, and returns the body of the response, and true if its status is OK: that of
    /// HTTP, and that of gRPC where there is one.
    async fn exchange(&mut self) -> (&[u8], bool) {
        self.sender.ready().await.unwrap();
        let response = self.sender.send_request(self.request.clone()).await.unwrap();
        self.read.clear();
        let mut is_ok = response.status() == 200;
        let mut body = response.into_body();
        while let Some(frame) = body.frame().await {
            match frame.unwrap().into_data() {
                Ok(data) => self.read.extend_from_slice(&data),
                Err(other) => {
                    let trailers = other.into_trailers().unwrap_or_default();
                    is_ok &= trailers.get("grpc-status").is_none_or(|status| status == "0");
                }
            }
        }
        (&self.read, is_ok)
    }
}

/// Turns a request of HTTP/1.1 into one of HTTP/2.
pub(crate) fn http2_request(request: &[u8]) -> Request<Full<Bytes>> {
    let end = memmem::find(request, b"\r\n\r\n").unwrap();
    let head = str::from_utf8(&request[..end]).unwrap();
    let mut lines = head.lines();
    let path = lines.next().unwrap().split(' ').nth(1).unwrap();
    let headers = lines.filter_map(|line| line.split_once(": "));
    let mut built = Request::post(format!("http://localhost{path}"));
    for (name, value) in headers.filter(|(name, _)| !["host", "content-length"].contains(name)) {
        built = built.header(name, value);
    }
    built.body(Full::new(Bytes::copy_from_slice(&request[end + 4..]))).unwrap()
}

fn body(head: &[u8]) -> Body {
    let text = str::from_utf8(head).unwrap();
    let size = text.lines().filter_map(|line| line.split_once(':')).find_map(|(name, value)| {
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().unwrap())
    });
    size.map_or(Body::Chunked, Body::Sized)
}
