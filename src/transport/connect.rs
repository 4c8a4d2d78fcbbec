//! Opens a connection: resolve, check, connect, directly or through an egress proxy, TLS.
//!
//! No proxy settings are read from the environment. The caller adds the connect timeout. The byte
//! stream under a connection delegates, but for small writes, and counts bytes that are read while
//! no response reaches a caller. Clients and agents leave some file descriptors of the process to
//! the admin listener: nothing is counted for that, as a new descriptor gets the lowest free number
//! (POSIX), which shows how many are in use.
//!
//! A proxy opens tunnels by `CONNECT` (RFC 9110 §9.3.6). Names are resolved and judged here, and the
//! proxy is told the address: it cannot be led elsewhere by another resolution of the name. TLS is
//! spoken through the tunnel, with the name of the origin. With `resolve: proxy` it is told the name.
//! See `address_policy` for the rules on addresses.

use std::future::Future;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::{AsRawFd as _, RawFd};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::Uri;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use rustls::ClientConfig;
use rustls::client::UnbufferedClientConnection;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::ClientLimits;
use super::address_policy::AddressPolicy;
use super::error::{ProxyFailure, TransportError};
use super::http1::Http1Connection;
use super::http2::{Http2Connection, Http2KeepAlive};
use super::upstream::{HTTP2_ALPN, UpstreamInner};
use crate::config::{EgressProxy, Host, ProxyChoice, ProxyResolve, ProxyServer};
use crate::tls_stream::{TlsSession as _, TlsStream};

/// The head start of each address before the next is tried as well.
const STAGGER: Duration = Duration::from_millis(250);
/// The maximum number of addresses of a name that are tried.
const ADDRESSES: usize = 8;

/// A new connection, by the negotiated protocol.
pub(super) enum NewConnection {
    /// HTTP/1.1, for one request at a time.
    Http1(Box<Http1Connection>),
    /// HTTP/2, to be shared.
    Http2(Http2Connection),
}

/// Opens an HTTP/1.1 connection on the current runtime.
pub(super) async fn http1(
    origin: &UpstreamInner,
    limits: ClientLimits,
    proxy: &EgressProxy,
) -> Result<Box<Http1Connection>, TransportError> {
    let tcp = connect(origin, limits.descriptors, proxy).await?;
    let stream = match &origin.tls {
        None => MaybeTlsStream::plain(tcp),
        Some(tls) => MaybeTlsStream::tls(handshake(tls.http1.clone(), tls.name.clone(), tcp).await?),
    };
    Ok(Http1Connection::start(stream, limits))
}

/// Opens a connection by the protocol that the agent prefers, or by HTTP/2 if it speaks nothing else.
/// Must run on the runtime of `background`, because a shared connection is driven there.
pub(super) async fn either(
    origin: &UpstreamInner,
    limits: ClientLimits,
    proxy: &EgressProxy,
    background: &Handle,
) -> Result<NewConnection, TransportError> {
    let tcp = connect(origin, limits.descriptors, proxy).await?;
    let Some(tls) = &origin.tls else {
        let stream = MaybeTlsStream::plain(tcp);
        return match origin.http2_only {
            true => start_unnegotiated(stream, origin, limits, background).await,
            false => Ok(NewConnection::Http1(Http1Connection::start(stream, limits))),
        };
    };
    let stream = handshake(tls.either.clone(), tls.name.clone(), tcp).await?;
    let http2 = stream.session().common().alpn_protocol() == Some(HTTP2_ALPN);
    if origin.http2_only && !http2 {
        let other = rustls::Error::NoApplicationProtocol;
        return Err(TransportError::Tls(io::Error::new(io::ErrorKind::InvalidData, other)));
    }
    let stream = MaybeTlsStream::tls(stream);
    match http2 {
        true => start_http2(stream, origin, limits, background).await,
        false => Ok(NewConnection::Http1(Http1Connection::start(stream, limits))),
    }
}

/// A TLS connection to a server.
type ServerStream = TlsStream<TcpStream, UnbufferedClientConnection>;

/// Performs a handshake with a server of this name.
async fn handshake(
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
    tcp: TcpStream,
) -> Result<ServerStream, TransportError> {
    let session = UnbufferedClientConnection::new(config, name);
    let session = session.map_err(|error| TransportError::Tls(io::Error::other(error)))?;
    TlsStream::handshake(tcp, session, &[]).await.map_err(TransportError::Tls)
}

/// Starts HTTP/2 by prior knowledge, and waits for the first frame of the server: a request to a server
/// of another protocol would be lost, and it would be unknown if it had been executed.
async fn start_unnegotiated(
    stream: MaybeTlsStream,
    origin: &UpstreamInner,
    limits: ClientLimits,
    background: &Handle,
) -> Result<NewConnection, TransportError> {
    let (stream, greeting) = stream.for_http2();
    let started = start_http2(stream, origin, limits, background).await?;
    match greeting.await {
        Ok(true) => Ok(started),
        Ok(false) | Err(_) => Err(TransportError::without_http2()),
    }
}

async fn start_http2(
    stream: MaybeTlsStream,
    origin: &UpstreamInner,
    limits: ClientLimits,
    background: &Handle,
) -> Result<NewConnection, TransportError> {
    let keep_alive = if origin.http2_only { Http2KeepAlive::GRPC } else { Http2KeepAlive::COMMON };
    let started = Http2Connection::start(stream, limits, keep_alive, background).await;
    started.map(NewConnection::Http2).map_err(TransportError::before_sending)
}

async fn connect(
    origin: &UpstreamInner,
    descriptors: RawFd,
    proxy: &EgressProxy,
) -> Result<TcpStream, TransportError> {
    let stream = open(origin, proxy).await?;
    if stream.as_raw_fd() >= descriptors {
        return Err(TransportError::OpenFiles);
    }
    // Requests are written whole; waiting for more to send would only delay them.
    stream.set_nodelay(true).map_err(TransportError::Connect)?;
    Ok(stream)
}

fn not_connected(error: io::Error) -> TransportError {
    /// `EMFILE` and `ENFILE`, on every Unix.
    const FULL: [i32; 2] = [24, 23];
    match error.raw_os_error() {
        Some(code) if FULL.contains(&code) => TransportError::OpenFiles,
        _ => TransportError::Connect(error),
    }
}

/// Checks that a URL of another party may be called under a policy, by all addresses that its name
/// resolves to now. Connects to nothing.
///
/// # Errors
///
/// [`TransportError::Refused`] if it may not, [`TransportError::BadUri`] or
/// [`TransportError::Resolve`] if that is unknown.
pub(crate) async fn filter_addresses(uri: &Uri, policy: &AddressPolicy) -> Result<(), TransportError> {
    let (host, port) = host_of(uri)?;
    let found = addresses(&host, port, policy).await?;
    if found.is_empty() { Err(TransportError::BadUri("the name has no address")) } else { Ok(()) }
}

/// Returns the host and the port of a URL of another party, without resolving the name.
///
/// # Errors
///
/// [`TransportError::BadUri`] if it is none that would be called.
pub(crate) fn host_of(uri: &Uri) -> Result<(Host, u16), TransportError> {
    let port = match uri.scheme_str() {
        Some("https") => 443,
        Some("http") => 80,
        Some(_) | None => return Err(TransportError::BadUri("scheme is neither http nor https")),
    };
    let authority = uri.authority().ok_or(TransportError::BadUri("no host"))?;
    if authority.as_str().contains('@') {
        return Err(TransportError::BadUri("user information in the URI"));
    }
    let host =
        Host::read(authority.host()).map_err(|_| TransportError::BadUri("no name or plain address"))?;
    Ok((host, authority.port_u16().unwrap_or(port)))
}

/// Returns the addresses of a host that may be connected to, as its name resolves now.
async fn addresses(
    host: &Host,
    port: u16,
    policy: &AddressPolicy,
) -> Result<Vec<SocketAddr>, TransportError> {
    let addresses = match host {
        Host::Address(address) => vec![SocketAddr::new(*address, port)],
        Host::Name(name) => tokio::net::lookup_host((name.as_str(), port))
            .await
            .map_err(TransportError::Resolve)?
            .take(ADDRESSES)
            .collect(),
    };
    policy.check(host, addresses)
}

/// Returns the first connection to any of the addresses; each has a head start before the next.
async fn race(addresses: Vec<SocketAddr>) -> io::Result<TcpStream> {
    let mut waiting = addresses.into_iter();
    let mut attempts = Vec::new();
    let mut last = None;
    loop {
        if let Some(address) = waiting.next() {
            attempts.push(Box::pin(TcpStream::connect(address)));
        } else if attempts.is_empty() {
            return Err(
                last.unwrap_or_else(|| io::Error::new(io::ErrorKind::NotFound, "the name has no address"))
            );
        }
        let outcome = if waiting.len() == 0 {
            Some(first(&mut attempts).await)
        } else {
            tokio::time::timeout(STAGGER, first(&mut attempts)).await.ok()
        };
        match outcome {
            Some(Ok(stream)) => return Ok(stream),
            Some(Err(error)) => last = Some(error),
            None => {}
        }
    }
}

/// Waits for one of the attempts and removes it.
async fn first<A, T>(attempts: &mut Vec<Pin<Box<A>>>) -> T
where
    A: Future<Output = T>,
{
    std::future::poll_fn(|cx| {
        for at in 0..attempts.len() {
            let Some(attempt) = attempts.get_mut(at) else { break };
            if let Poll::Ready(outcome) = attempt.as_mut().poll(cx) {
                drop(attempts.swap_remove(at));
                return Poll::Ready(outcome);
            }
        }
        Poll::Pending
    })
    .await
}

/// The maximum number of descriptors that only the admin listener, files and name resolution may
/// take.
const KEPT: u64 = 64;

/// The limit of open files of the process, and its shares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileDescriptorBudget {
    /// The limit; a descriptor's number is below it.
    pub(crate) limit: u64,
}

impl FileDescriptorBudget {
    /// Returns the limit of the process (`RLIMIT_NOFILE`) as it is now.
    #[must_use]
    pub(crate) fn of_process() -> Self {
        Self { limit: getrlimit(Resource::RLIMIT_NOFILE).map_or(u64::MAX, |(soft, _)| soft) }
    }

    /// Returns the same, after the limit was raised as far as the process itself may.
    #[must_use]
    pub(crate) fn raised() -> Self {
        let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap_or((u64::MAX, u64::MAX));
        if soft < hard
            && let Err(error) = setrlimit(Resource::RLIMIT_NOFILE, hard, hard)
        {
            tracing::debug!(%error, "failed to raise limit of open files");
        }
        Self::of_process()
    }

    /// Returns the number at which connections to agents end.
    #[must_use]
    pub(crate) fn for_agents(self) -> RawFd {
        number(self.limit - (self.limit / 4).min(KEPT))
    }

    /// Returns the number at which connections of clients end: a quarter is left for what their
    /// calls need.
    #[must_use]
    pub(crate) fn for_clients(self) -> RawFd {
        number(self.limit - (self.limit / 4).min(KEPT) - self.limit / 4)
    }
}

/// Converts a number of descriptors to a descriptor, at least one.
fn number(count: u64) -> RawFd {
    RawFd::try_from(count).unwrap_or(RawFd::MAX).max(1)
}

/// The maximum size of slices that are joined for one write, in bytes: one plain write of a usual
/// request costs the system less than separate writes of header and body. To copy much more would
/// cost more than it saves.
const COALESCE_LIMIT: usize = 2048;

/// A connected byte stream.
pub(super) struct MaybeTlsStream {
    stream: InnerStream,
    budget: Arc<ReadBudget>,
    /// Told if the first byte is one of HTTP/2; `None` if it was read, or matters to no reader.
    greeting: Option<oneshot::Sender<bool>>,
}

/// The stream itself.
enum InnerStream {
    /// Plain TCP.
    Plain(TcpStream),
    /// TLS over TCP; boxed, because its state is large and connections are moved.
    Tls(Box<ServerStream>),
}

/// The bytes that an agent may still send by HTTP/2 before a response reaches a caller.
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
    pub(super) fn tls(stream: ServerStream) -> Self {
        Self::of(InnerStream::Tls(Box::new(stream)))
    }

    fn of(stream: InnerStream) -> Self {
        Self { stream, budget: Arc::new(ReadBudget(AtomicUsize::new(usize::MAX))), greeting: None }
    }

    /// Returns true if it is not of TLS.
    pub(super) fn is_plain(&self) -> bool {
        matches!(self.stream, InnerStream::Plain(_))
    }

    /// Returns the stream for HTTP/2 without negotiation, and the receiver of the server's greeting: true
    /// if its first byte is that of a frame, which has a length below 2^16 (RFC 9113 §3.4, §4.2). It
    /// ends without a value if the connection ends before.
    fn for_http2(self) -> (Self, oneshot::Receiver<bool>) {
        let (sender, greeting) = oneshot::channel();
        (Self { greeting: Some(sender), ..self }, greeting)
    }

    /// Records bytes that were read.
    fn greet(&mut self, read: &[u8]) {
        if let Some(first) = read.first()
            && let Some(greeting) = self.greeting.take()
        {
            // The receiver may have given up.
            greeting.send(*first == 0).unwrap_or_default();
        }
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
        this.greet(buffer.filled().get(before..).unwrap_or_default());
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

/// The maximum size of the head of a response to `CONNECT`, in bytes.
const MAX_PROXY_HEAD_BYTES: usize = 8 * 1024;
/// The maximum number of addresses of one name that the proxy is asked for.
const MAX_PROXY_ATTEMPTS: usize = 3;

/// Opens a connection to an upstream: through its proxy, or directly if it has none.
pub(super) async fn open(origin: &UpstreamInner, common: &EgressProxy) -> Result<TcpStream, TransportError> {
    let server = match &origin.proxy {
        ProxyChoice::Direct => None,
        ProxyChoice::Server(server) => Some(server),
        ProxyChoice::Common => common.url.as_ref().filter(|_| !is_exempt(origin, common)),
    };
    if let (Some(server), Host::Name(name), ProxyResolve::Proxy) = (server, &origin.host, common.resolve) {
        return tunnel(server, &format!("{name}:{}", origin.port)).await;
    }
    // These and no others: another resolution of the name could lead elsewhere.
    let found = addresses(&origin.host, origin.port, &origin.policy).await?;
    let Some(server) = server else { return race(found).await.map_err(not_connected) };
    let exempt = exempt_addresses(origin, common, &found);
    match exempt.is_empty() {
        true => tunnel_to_any(server, &found).await,
        false => race(exempt).await.map_err(not_connected),
    }
}

/// Returns true if the host is exempt from the proxy by its name.
fn is_exempt(origin: &UpstreamInner, common: &EgressProxy) -> bool {
    let Host::Name(name) = &origin.host else { return false };
    common.no_proxy.has_host(name, &format!("{name}:{}", origin.port).to_ascii_lowercase())
}

/// Returns the addresses that are exempt from the proxy. The others of the same name are not.
fn exempt_addresses(origin: &UpstreamInner, common: &EgressProxy, found: &[SocketAddr]) -> Vec<SocketAddr> {
    let is_exempt = |address: &&SocketAddr| {
        origin.proxy == ProxyChoice::Common && common.no_proxy.network_of(address.ip()).is_some()
    };
    found.iter().filter(is_exempt).copied().collect()
}

async fn tunnel_to_any(server: &ProxyServer, found: &[SocketAddr]) -> Result<TcpStream, TransportError> {
    let mut failed = TransportError::BadUri("the name has no address");
    for address in found.iter().take(MAX_PROXY_ATTEMPTS) {
        match tunnel(server, &address.to_string()).await {
            // Another address may be available.
            Err(error @ TransportError::Proxy(ProxyFailure::Destination(_))) => failed = error,
            other => return other,
        }
    }
    Err(failed)
}

/// Opens a tunnel to `authority`, an address or a name with its port.
async fn tunnel(server: &ProxyServer, authority: &str) -> Result<TcpStream, TransportError> {
    // The operator wrote it.
    let found = addresses(&server.host, server.port, &AddressPolicy::Trusted).await?;
    let mut stream = match race(found).await.map_err(not_connected) {
        Ok(stream) => stream,
        Err(TransportError::Connect(error)) => return Err(ProxyFailure::Unreachable(error).into()),
        Err(error) => return Err(error),
    };
    // RFC 9112 §3.2.3: the target in authority form, and the same as Host.
    let mut head = format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n");
    if let Some(credentials) = &server.credentials {
        head += &format!("Proxy-Authorization: {}\r\n", credentials.expose());
    }
    head += "\r\n";
    stream.write_all(head.as_bytes()).await.map_err(ProxyFailure::Unreachable)?;
    match proxy_status(&mut stream).await? {
        200..=299 => Ok(stream),
        // Some proxies answer wrong credentials with 401.
        status @ (401 | 407) => Err(ProxyFailure::Credentials(status).into()),
        403 => Err(ProxyFailure::Forbidden.into()),
        status @ 500..=599 => Err(ProxyFailure::Destination(status).into()),
        status => Err(ProxyFailure::Status(status).into()),
    }
}

/// Reads the head of the response, and nothing after it. The other side of the tunnel says nothing
/// before it is spoken to, so bytes after a successful head are not its own.
async fn proxy_status(stream: &mut TcpStream) -> Result<u16, ProxyFailure> {
    let mut head = Vec::with_capacity(512);
    let end = loop {
        if let Some(end) = head.windows(4).position(|end| end == b"\r\n\r\n") {
            break end + 4;
        }
        if head.len() >= MAX_PROXY_HEAD_BYTES {
            return Err(ProxyFailure::Response("its header is too large"));
        }
        if stream.read_buf(&mut head).await.map_err(ProxyFailure::Unreachable)? == 0 {
            return Err(ProxyFailure::Response("it closed the connection"));
        }
    };
    let status = status_of(&head).ok_or(ProxyFailure::Response("no HTTP response"))?;
    if (200..300).contains(&status) && head.len() > end {
        return Err(ProxyFailure::Response("it sent bytes that were not asked for"));
    }
    Ok(status)
}

/// Returns the status of a response head.
fn status_of(head: &[u8]) -> Option<u16> {
    let line = head.split(|byte| *byte == b'\r').next()?;
    let rest = line.strip_prefix(b"HTTP/1.").and_then(|rest| rest.get(2..))?;
    let (digits, reason) = (rest.get(..3)?, rest.get(3));
    let is_status = digits.iter().all(u8::is_ascii_digit) && matches!(reason, None | Some(b' '));
    std::str::from_utf8(digits).ok()?.parse().ok().filter(|_| is_status)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_dead_address_does_not_hide_a_live_one() {
        let dead = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let live = listener.local_addr().unwrap();
        let stream = race(vec![dead, live]).await.unwrap();
        assert_eq!(stream.peer_addr().unwrap(), live);
    }

    #[tokio::test]
    async fn a_silent_address_only_delays_the_next() {
        // A full backlog: the kernel completes no more handshakes.
        let silent = tokio::net::TcpSocket::new_v4().unwrap();
        silent.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let silent = silent.listen(1).unwrap();
        let full = silent.local_addr().unwrap();
        let mut held = Vec::new();
        while let Ok(Ok(stream)) =
            tokio::time::timeout(Duration::from_millis(50), TcpStream::connect(full)).await
        {
            held.push(stream);
        }
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let live = listener.local_addr().unwrap();
        let stream = race(vec![full, live]).await.unwrap();
        assert_eq!(stream.peer_addr().unwrap(), live);
    }

    #[tokio::test]
    async fn a_place_is_judged_without_a_connection() {
        let guarded = AddressPolicy::Guarded(std::sync::Arc::default());
        for (uri, fits) in [
            ("https://203.0.114.9/x", true),
            ("http://93.184.216.34:8080/", true),
            ("http://127.0.0.1/", false),
            ("https://localhost/", false),
            ("http://169.254.169.254/", false),
            ("http://user@93.184.216.34/", false),
            ("ftp://93.184.216.34/", false),
            ("/x", false),
        ] {
            assert_eq!(filter_addresses(&uri.parse().unwrap(), &guarded).await.is_ok(), fits, "{uri}");
        }
    }

    #[tokio::test]
    async fn no_address_is_an_error() {
        assert_eq!(race(Vec::new()).await.unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn descriptors_are_left_to_others() {
        for (limit, clients, agents) in
            [(200, 100, 150), (1024, 704, 960), (1 << 20, 786_368, 1_048_512), (0, 1, 1), (3, 3, 3)]
        {
            let descriptors = FileDescriptorBudget { limit };
            assert_eq!((descriptors.for_clients(), descriptors.for_agents()), (clients, agents), "{limit}");
        }
        assert_eq!(FileDescriptorBudget { limit: u64::MAX }.for_clients(), RawFd::MAX);
    }

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
    }

    #[test]
    fn status_line_is_read_strictly() {
        for (head, status) in [
            (&b"HTTP/1.1 200 Connection established\r\n\r\n"[..], Some(200)),
            (b"HTTP/1.0 407 \r\n\r\n", Some(407)),
            (b"HTTP/1.1 200\r\n\r\n", Some(200)),
            (b"HTTP/1.1 2000\r\n\r\n", None),
            (b"HTTP/2 200 OK\r\n\r\n", None),
            (b"SSH-2.0-x\r\n\r\n", None),
            (b"HTTP/1.1 +20 OK\r\n\r\n", None),
            (b"", None),
        ] {
            assert_eq!(status_of(head), status, "{head:?}");
        }
    }
}
