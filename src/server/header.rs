//! A limit for the header of each HTTP/1.1 request while it is read: Pingora reads up to 1 MiB.
//!
//! A stream wrapper counts the bytes of an unfinished header. Beyond the limit the client gets 431,
//! the rest of its request is discarded, and the connection ends. Complete headers are checked in
//! `gateway::body`; the codec of HTTP/2 has a limit of its own.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use async_trait::async_trait;
use pingora::protocols::raw_connect::ProxyDigest;
use pingora::protocols::tls::{SslDigest, TlsRef};
use pingora::protocols::{
    ALPN, GetProxyDigest, GetSocketDigest, GetTimingDigest, Peek, Shutdown, SocketDigest, Ssl, Stream,
    TimingDigest, UniqueID, UniqueIDType,
};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::time::Instant;

use super::header_timeout::ConnectionMarker;
use crate::alarm::ReusableTimer;
use crate::fault::Fault;
use crate::jsonrpc::write_error;
use crate::mcp::Era;
use crate::sync::recover;
use crate::telemetry::label::Refusal;
use crate::telemetry::metrics::Metrics;

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
pub(super) struct HeaderLimitedStream {
    stream: Stream,
    mark: ConnectionMarker,
    limit: Arc<HeaderLimit>,
    state: HeaderState,
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
        Self { stream, mark, limit, state: HeaderState::Open, alarm: Mutex::default() }
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
            // The proxy sees a client disconnect.
            return this.poll_refuse(context);
        }
        let before = buffer.filled().len();
        ready!(Pin::new(&mut this.stream).poll_read(context, buffer))?;
        this.mark.add_header_bytes(buffer.filled().len().saturating_sub(before));
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
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check()?;
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // A client that does not read is not waited for: Pingora would wait at the end of a
        // response, without a bound.
        if Pin::new(&mut self.stream).poll_shutdown(context)?.is_pending() {
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
        Pin::new(&mut self.stream).poll_write_vectored(context, buffers)
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

impl UniqueID for HeaderLimitedStream {
    fn id(&self) -> UniqueIDType {
        self.stream.id()
    }
}

impl Ssl for HeaderLimitedStream {
    fn get_ssl(&self) -> Option<&TlsRef> {
        self.stream.get_ssl()
    }

    fn get_ssl_digest(&self) -> Option<Arc<SslDigest>> {
        self.stream.get_ssl_digest()
    }

    fn selected_alpn_proto(&self) -> Option<ALPN> {
        self.stream.selected_alpn_proto()
    }
}

impl GetTimingDigest for HeaderLimitedStream {
    fn get_timing_digest(&self) -> Vec<Option<TimingDigest>> {
        self.stream.get_timing_digest()
    }

    fn get_read_pending_time(&self) -> Duration {
        self.stream.get_read_pending_time()
    }

    fn get_write_pending_time(&self) -> Duration {
        self.stream.get_write_pending_time()
    }
}

impl GetProxyDigest for HeaderLimitedStream {
    fn get_proxy_digest(&self) -> Option<Arc<ProxyDigest>> {
        self.stream.get_proxy_digest()
    }
}

impl GetSocketDigest for HeaderLimitedStream {
    fn get_socket_digest(&self) -> Option<Arc<SocketDigest>> {
        self.stream.get_socket_digest()
    }

    fn set_socket_digest(&mut self, digest: SocketDigest) {
        self.stream.set_socket_digest(digest);
    }
}

impl Peek for HeaderLimitedStream {}

impl fmt::Debug for HeaderLimitedStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limited").finish_non_exhaustive()
    }
}
