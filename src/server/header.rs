//! A limit and a timeout for the header of each HTTP/1.1 request while it is read.
//!
//! Pingora reads up to 1 MiB. A stream wrapper counts the bytes of an unfinished header. Beyond the
//! limit the client gets 431, the rest of its request is discarded, and the connection ends.
//! Complete headers are checked in `http_edge::body`; the codec of HTTP/2 has a limit of its own.
//!
//! Pingora has a timeout per read, so that a client that sends a byte now and then would hold its
//! connection without end. The timer here also ends an idle connection: one timer for all requests
//! of a connection costs less than one of Pingora's for each. See `http_edge::body` for
//! timeouts of bodies.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use async_trait::async_trait;
use memchr::memmem;
use pingora::apps::{HttpServerApp, HttpServerOptions, ReusedHttpStream};
use pingora::protocols::http::ServerSession;
use pingora::protocols::http::v2::server::H2Options;
use pingora::protocols::{Shutdown, Stream};
use pingora::server::ShutdownWatch;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::time::Instant;

use super::forward_stream_traits;
use super::shutdown::ListenerShutdown;
use crate::fault::Fault;
use crate::http_edge::JoinedWrites;
use crate::jsonrpc::write_error;
use crate::mcp::Era;
use crate::sync::{lock, recover};
use crate::telemetry::label::Refusal;
use crate::telemetry::metrics::Metrics;
use crate::timing::{ReusableTimer, after};

/// Bytes of a header on the wire that `limits.header` does not count: method, version, line ends.
const UNCOUNTED_BYTES: usize = 64;
/// The maximum number of bytes that are discarded of a rejected client, so that it can read the
/// rejection.
const MAX_DRAINED_BYTES: usize = 16 * 1024 * 1024;
/// The maximum time for that.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

/// The limit of one listener.
pub(super) struct HeaderLimit {
    max_bytes: usize,
    refusal: Vec<u8>,
    metrics: Arc<Metrics>,
}

impl HeaderLimit {
    /// Creates a limit of `limits.header` bytes.
    pub(super) fn new(bytes: usize, metrics: Arc<Metrics>) -> Self {
        let fault = Fault::HeaderTooLarge(bytes);
        let wire = fault.on_wire(Era::Legacy);
        let body = write_error(None, wire.code, &fault.to_string(), None);
        let head = format!(
            "HTTP/1.1 {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            wire.status,
            body.len()
        );
        let refusal = [head.into_bytes(), body].concat();
        Self { max_bytes: bytes.saturating_add(UNCOUNTED_BYTES), refusal, metrics }
    }
}

/// A connection of HTTP/1.1 with headers that are counted.
struct HeaderLimitedStream {
    stream: Stream,
    writes: JoinedWrites,
    mark: ConnectionMarker,
    limit: Arc<HeaderLimit>,
    state: HeaderState,
    /// The begin of a body that came with its header, until it is read with the rest.
    body_start: Vec<u8>,
    /// Never locked, only reached through `&mut`: a timer alone cannot be shared.
    alarm: Mutex<ReusableTimer>,
}

/// The state of a connection.
enum HeaderState {
    /// It is served.
    Open,
    /// The rejection is written up to here.
    Refusing(usize),
    /// This many bytes have been discarded.
    Draining(usize, Instant),
    /// It was shut down while its client did not read: nothing more is written.
    GivenUp,
}

impl HeaderLimitedStream {
    pub(super) fn new(stream: Stream, mark: ConnectionMarker, limit: Arc<HeaderLimit>) -> Self {
        let (writes, alarm) = (JoinedWrites::default(), Mutex::default());
        Self { stream, writes, mark, limit, state: HeaderState::Open, body_start: Vec::new(), alarm }
    }

    /// # Errors
    ///
    /// [`io::ErrorKind::BrokenPipe`] if the client was given up.
    fn check(&self) -> io::Result<()> {
        match self.state {
            HeaderState::GivenUp => Err(io::ErrorKind::BrokenPipe.into()),
            HeaderState::Open | HeaderState::Refusing(_) | HeaderState::Draining(..) => Ok(()),
        }
    }

    /// Returns true if the next read would be one of a header that is too long.
    fn is_too_long(&self) -> bool {
        !self.mark.is_read() && self.mark.header_bytes() > self.limit.max_bytes
    }

    /// Keeps the begin of a body that was read with its header, if both fill the buffer of a header: there is more of it.
    ///
    /// Pingora would return the begin on its own, and to put a large body together costs as much as to read it.
    fn keep_body_start(&mut self, buffer: &mut ReadBuf<'_>, before: usize) {
        if buffer.remaining() > 0 || self.mark.is_read() {
            return;
        }
        let read = buffer.filled().get(before..).unwrap_or_default();
        if let Some(end) = read.strip_prefix(b"POST ").and_then(|_| memmem::find(read, b"\r\n\r\n")) {
            let (header, rest) = read.split_at(end + 4);
            let length = before + header.len();
            self.body_start = rest.to_vec();
            buffer.set_filled(length);
        }
    }

    /// Reads the begin of a body that was kept, and the bytes that have come after it.
    fn read_body_start(&mut self, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) {
        let start = std::mem::take(&mut self.body_start);
        if !self.mark.is_read() {
            // It is no body, and would be taken for the next request: to the application the client has disconnected.
            return;
        }
        let (now, later) = start.split_at(start.len().min(buffer.remaining()));
        buffer.put_slice(now);
        self.body_start = later.to_vec();
        if buffer.remaining() > 0 {
            // After an error the next read finds the end of the stream; the bytes before it may be the whole body.
            _ = Pin::new(&mut self.stream).poll_read(context, buffer);
        }
    }

    /// Sends the rejection of a header that is too long, and reads on until the client has read
    /// that.
    fn poll_refuse(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            match &mut self.state {
                HeaderState::Open => {
                    self.limit.metrics.refused(Refusal::TooLarge);
                    tracing::debug!("rejected request with oversized header");
                    self.state = HeaderState::Refusing(0);
                }
                HeaderState::Refusing(written) => match self.limit.refusal.get(*written..) {
                    Some(rest) if !rest.is_empty() => {
                        *written += ready!(Pin::new(&mut self.stream).poll_write(context, rest))?;
                    }
                    _ => {
                        ready!(Pin::new(&mut self.stream).poll_flush(context))?;
                        self.state = HeaderState::Draining(0, Instant::now() + DRAIN_TIMEOUT);
                    }
                },
                HeaderState::Draining(drained, until) => {
                    let mut room = [0; 4096];
                    let mut thrown = ReadBuf::new(&mut room);
                    match Pin::new(&mut self.stream).poll_read(context, &mut thrown) {
                        Poll::Ready(read) => {
                            read?;
                            *drained += thrown.filled().len();
                            if thrown.filled().is_empty() || *drained > MAX_DRAINED_BYTES {
                                return Poll::Ready(Ok(()));
                            }
                        }
                        Poll::Pending => {
                            let alarm = recover(self.alarm.get_mut());
                            return alarm.poll(context, *until).map(Ok);
                        }
                    }
                }
                HeaderState::GivenUp => return Poll::Ready(Ok(())),
            }
        }
    }
}

impl AsyncRead for HeaderLimitedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if !matches!(this.state, HeaderState::Open) || this.is_too_long() {
            // The application sees a client disconnect.
            return this.poll_refuse(context);
        }
        if !this.body_start.is_empty() {
            this.read_body_start(context, buffer);
            return Poll::Ready(Ok(()));
        }
        let before = buffer.filled().len();
        ready!(Pin::new(&mut this.stream).poll_read(context, buffer))?;
        this.mark.add_header_bytes(buffer.filled().len().saturating_sub(before));
        this.keep_body_start(buffer, before);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for HeaderLimitedStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.check()?;
        let Self { stream, writes, .. } = &mut *self;
        writes.poll_write(stream, context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check()?;
        let Self { stream, writes, .. } = &mut *self;
        writes.poll_flush(stream, context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // A client that does not read is not waited for: Pingora would wait at the end of a
        // response, without a bound.
        let Self { stream, writes, .. } = &mut *self;
        let is_shut = match writes.poll_kept(stream, context)? {
            Poll::Ready(()) => Pin::new(stream).poll_shutdown(context)?.is_ready(),
            Poll::Pending => false,
        };
        if !is_shut {
            self.state = HeaderState::GivenUp;
        }
        Poll::Ready(Ok(()))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.check()?;
        let Self { stream, writes, .. } = &mut *self;
        writes.poll_write_vectored(stream, context, buffers)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[async_trait]
impl Shutdown for HeaderLimitedStream {
    async fn shutdown(&mut self) {
        if let Err(error) = AsyncWriteExt::shutdown(self).await {
            tracing::debug!(%error, "failed to shut down connection");
        }
    }
}

forward_stream_traits!(HeaderLimitedStream, stream);

/// The state of an HTTP/1.1 connection that moves from request to request: to its application, which
/// records when it has read the header of a request, and back.
#[derive(Clone, Default)]
pub(super) struct ConnectionMarker(Arc<HeaderProgress>);

/// The header of the request that is served now.
#[derive(Default)]
struct HeaderProgress {
    is_read: AtomicBool,
    /// Bytes that were read while it was not complete.
    bytes: AtomicUsize,
    alarm: Mutex<ReusableTimer>,
}

impl ConnectionMarker {
    /// Records that the header has been read.
    pub(super) fn header_read(&self) {
        self.0.is_read.store(true, Ordering::Relaxed);
    }

    /// Returns true if the header has been read.
    pub(super) fn is_read(&self) -> bool {
        self.0.is_read.load(Ordering::Relaxed)
    }

    /// Returns the bytes that were read of an incomplete header.
    pub(super) fn header_bytes(&self) -> usize {
        self.0.bytes.load(Ordering::Relaxed)
    }

    /// Records that this many bytes more were read, if the header is not complete yet.
    fn add_header_bytes(&self, bytes: usize) {
        if !self.is_read() {
            // Read and written by the task of the connection alone.
            self.0.bytes.store(self.header_bytes().saturating_add(bytes), Ordering::Relaxed);
        }
    }

    /// Expects the header of another request.
    fn expect_header(&self) {
        self.0.is_read.store(false, Ordering::Relaxed);
        self.0.bytes.store(0, Ordering::Relaxed);
    }

    /// Returns true once the deadline of the header has passed.
    fn timed_out(&self, context: &mut Context<'_>, deadline: Instant) -> bool {
        lock(&self.0.alarm).poll(context, deadline).is_ready()
    }
}

/// An application with a timeout for the headers of its requests.
pub(super) struct HeaderTimeout<A> {
    /// The application.
    pub(super) app: Arc<A>,
    /// For the header of a first request, from the moment of the connection.
    pub(super) within: Duration,
    /// For the header of another one, from the end of the one before: the idle timeout of a
    /// connection.
    pub(super) rest: Duration,
    /// The maximum size of a header.
    pub(super) limit: Arc<HeaderLimit>,
    /// The end of the listeners, which waits for first requests.
    pub(super) listeners: ListenerShutdown,
    /// The options of connections.
    pub(super) options: HttpServerOptions,
}

impl<A> HeaderTimeout<A> {
    /// Returns the first request of a connection, with headers that are counted from now on.
    fn counted(&self, session: ServerSession, mark: &ConnectionMarker) -> ServerSession {
        let keepalive = session.get_keepalive();
        match session {
            ServerSession::H1(session) => {
                let stream = HeaderLimitedStream::new(session.into_inner(), mark.clone(), self.limit.clone());
                let mut session = ServerSession::new_http1(Box::new(stream));
                session.set_keepalive(keepalive);
                session
            }
            other => other,
        }
    }
}

/// The future that serves a request, as the traits of Pingora define it.
pub(super) type ServedBy<'a> = Pin<Box<dyn Future<Output = Option<ReusedHttpStream>> + Send + 'a>>;

#[async_trait]
impl<A: HttpServerApp + Send + Sync + 'static> HttpServerApp for HeaderTimeout<A> {
    // Drops a request, and its connection with it, if its header takes too long. Not an `async fn`:
    // that would keep room for the session beside the one within, and be a large future to poll
    // through each time that the request makes progress.
    fn process_new_http<'life0, 'life1, 'async_trait>(
        self: &'life0 Arc<Self>,
        mut session: ServerSession,
        shutdown: &'life1 ShutdownWatch,
    ) -> ServedBy<'async_trait>
    where
        'life0: 'async_trait,
        'life1: 'async_trait,
        Self: 'async_trait,
    {
        if session.is_http2() {
            // Its header was read before.
            return self.app.process_new_http(session, shutdown);
        }
        // A reused connection carries the mark.
        let carried =
            session.take_connection_user_context().and_then(|mark| mark.downcast::<ConnectionMarker>().ok());
        let within = if carried.is_some() { self.rest } else { self.within };
        let is_first = carried.is_none();
        let carried = carried.unwrap_or_default();
        let mark = ConnectionMarker::clone(&carried);
        mark.expect_header();
        if is_first {
            session = self.counted(session, &mark);
        }
        let mut fresh = is_first.then(|| self.listeners.fresh());
        session.set_connection_user_context(Some(carried));
        let deadline = after(Instant::now(), within);
        let mut request = self.app.process_new_http(session, shutdown);
        let mut waits = true;
        Box::pin(std::future::poll_fn(move |context| {
            let served = request.as_mut().poll(context);
            // The mark is elsewhere in memory, and is not read for each event of a long response.
            waits = waits && served.is_pending() && !mark.is_read();
            if !waits {
                drop(fresh.take());
            }
            if waits && mark.timed_out(context, deadline) {
                tracing::debug!("request header timed out");
                return Poll::Ready(None);
            }
            served
        }))
    }

    fn h2_options(&self) -> Option<H2Options> {
        self.app.h2_options()
    }

    fn server_options(&self) -> Option<&HttpServerOptions> {
        Some(&self.options)
    }

    async fn http_cleanup(&self) {
        // A connection that has not sent a header by then is dropped, also one that was accepted
        // this moment.
        self.listeners.end_connections(self.within).await;
        self.app.http_cleanup().await;
    }
}
