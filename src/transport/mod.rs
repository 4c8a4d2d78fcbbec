//! The one HTTP client, for every call that the gateway makes.
//!
//! Small on purpose: a pool per [`Upstream`], so that credentials never mix, connections of HTTP/1.1 that are
//! polled by the request that uses them (see `http1`), and hyper's of HTTP/2. A message is never sent twice:
//! another connection is tried only when nothing was written, or when the agent says by HTTP/2 that it has
//! processed nothing of it. No redirects, no decompression, and a proxy only where it is configured (see
//! `connect`). Each upstream has an [`AddressPolicy`]: its creator states the party that named the URL,
//! and so the addresses it may lead to. Out of scope: the messages (`agents`, `auth`), retries,
//! breakers.

mod address_policy;
mod connect;

mod error;
mod http1;
mod http2;
mod read_buffer;
mod request;
mod response;
mod tls_config;
mod upstream;

use std::os::fd::RawFd;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::time::Instant;

pub use address_policy::{AddressClass, AddressPolicy};
pub(crate) use connect::{FileDescriptorBudget, filter_addresses, host_of};
pub(crate) use error::{ConnectFailure, TlsFailure};
pub use error::{DeliveryState, ExchangeError, TransportError};
pub(crate) use http1::{BodyDecoder, head_length};
pub(crate) use read_buffer::{READ_BYTES, held_bytes, poll_read};
pub(crate) use request::RequestHead;
pub use response::Response;
pub(crate) use response::{BodyPieces, is_sparse, without_room};
#[cfg(test)]
pub(crate) use tls_config::ChainTooLarge;
pub(crate) use tls_config::forward_signature_methods;
pub(crate) use tls_config::verify_bounded;
pub use tls_config::{TlsConfigError, client_config};
pub use upstream::{ExchangeTimeouts, TargetSettings, Upstream};

use connect::NewConnection;
use error::is_refused_unread;
use http1::{Http1Connection, UnansweredRequest};
use http2::StreamPermit;
use request::OutboundRequest;
use response::ConnectionHandle;
use upstream::{ConnectionPool, IdleConnection, UpstreamInner};

use crate::config::EgressProxy;
use crate::sync::lock;
use crate::telemetry::metrics::OutboundMetrics;
use crate::telemetry::trace::TraceHeaders;
use crate::timing::after;

/// The idle time after which a connection may have been closed without this runtime having noticed.
const STALE_AFTER: Duration = Duration::from_millis(5);

/// The limits on reading, for every connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientLimits {
    /// Bytes of a response header.
    pub header_bytes: usize,
    /// Lines of a response header; at most 100.
    pub header_lines: usize,
    /// Bytes that are read from an HTTP/1.1 connection at once; at most 64 KiB.
    pub read_buffer: usize,
    /// The number of a descriptor at which connections end: those from here on are reserved.
    pub descriptors: RawFd,
}

impl Default for ClientLimits {
    fn default() -> Self {
        Self { header_bytes: 64 * 1024, header_lines: 100, read_buffer: 64 * 1024, descriptors: RawFd::MAX }
    }
}

/// The HTTP client. Clones share everything.
#[derive(Clone)]
pub struct HttpClient {
    shared: Arc<ClientShared>,
}

struct ClientShared {
    limits: ClientLimits,
    background: OnceLock<Handle>,
    origins: Mutex<Vec<Weak<UpstreamInner>>>,
    refusals: OnceLock<OutboundMetrics>,
    proxy: Arc<EgressProxy>,
}

/// The connection of a request.
struct ReadyConnection {
    handle: ConnectionHandle,
    /// The time from which on it was available.
    since: Instant,
    /// True if no request was sent on it before.
    is_new: bool,
}

/// A request that failed on one connection, with the permission to use another.
enum ExchangeFailure {
    /// Nothing was written, or the agent says that it processed nothing.
    Unsent(ExchangeError),
    /// It may have been written.
    Final(TransportError),
}

impl HttpClient {
    /// Creates a client. Spawns nothing and needs no runtime.
    #[must_use]
    pub fn new(limits: ClientLimits) -> Self {
        Self::through(limits, EgressProxy::default())
    }

    /// Creates a client that opens its connections through a proxy, if `proxy` has one. Spawns
    /// nothing and needs no runtime.
    #[must_use]
    pub fn through(limits: ClientLimits, proxy: EgressProxy) -> Self {
        let shared = ClientShared {
            limits,
            background: OnceLock::new(),
            origins: Mutex::default(),
            refusals: OnceLock::new(),
            proxy: Arc::new(proxy),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Counts the addresses that are not called (see [`AddressPolicy`]) there. Only the first call
    /// counts.
    pub(crate) fn count_refusals(&self, refusals: OutboundMetrics) {
        self.shared.refusals.get_or_init(|| refusals);
    }

    /// Sets the runtime that drives shared (HTTP/2) connections. Until then only HTTP/1.1 is
    /// offered, and an upstream that speaks HTTP/2 only is driven by the runtime of its request.
    ///
    /// It must outlive every runtime that sends. Only the first call counts.
    pub fn attach(&self, background: Handle) {
        self.shared.background.get_or_init(|| background);
    }

    /// Sends a request and waits for the response header.
    ///
    /// The request's URI needs only path and query; host, framing and connection headers are the
    /// upstream's. An upstream is used with one client. Dropping the future closes the connection,
    /// or resets the stream.
    ///
    /// # Errors
    ///
    /// [`TransportError`]; [`TransportError::sent`] tells if the agent may have received the
    /// request.
    pub async fn send(&self, target: &Upstream, request: Request<Bytes>) -> Result<Response, TransportError> {
        let (parts, body) = request.into_parts();
        self.send_body(target, &target.head(parts)?, None, body).await
    }

    /// Sends a request with this head, trace context and body, as [`Self::send`] does.
    ///
    /// # Errors
    ///
    /// As [`Self::send`].
    pub(crate) async fn send_body(
        &self,
        target: &Upstream,
        head: &RequestHead,
        trace: Option<TraceHeaders<'_>>,
        body: Bytes,
    ) -> Result<Response, TransportError> {
        let begun = Instant::now();
        let give_up = after(begun, target.timeouts.total);
        self.know(&target.origin);
        let request = OutboundRequest { head, trace, body };
        let (mut fresh, mut now) = (false, begun);
        loop {
            let connection = self.connection(target, fresh, now, give_up).await;
            let connection = connection.inspect_err(|error| self.count(error))?;
            match self.exchange(target, connection, &request, give_up).await {
                Ok(reply) => return Ok(reply),
                Err(ExchangeFailure::Final(error)) => return Err(error),
                Err(ExchangeFailure::Unsent(error)) if fresh => {
                    return Err(TransportError::before_sending(error));
                }
                Err(ExchangeFailure::Unsent(_)) => {}
            }
            // Twice at most: on an idle connection, then on a new one.
            (fresh, now) = (true, Instant::now());
        }
    }

    fn count(&self, error: &TransportError) {
        if let (TransportError::Refused { class, .. }, Some(refusals)) = (error, self.shared.refusals.get()) {
            refusals.refused(class.label());
        }
    }

    /// Closes connections that have been idle too long at `now` or that the agent has closed. To be
    /// called every few seconds.
    pub fn sweep(&self, now: std::time::Instant) {
        let mut origins = Vec::new();
        self.upstreams().retain(|origin| origin.upgrade().map(|origin| origins.push(origin)).is_some());
        for origin in origins {
            origin.pool.sweep(now);
        }
    }

    /// Returns the number of connections that are open and serve no request.
    #[must_use]
    pub fn idle_connections(&self) -> usize {
        let origins: Vec<Arc<UpstreamInner>> = self.upstreams().iter().filter_map(Weak::upgrade).collect();
        origins.iter().map(|origin| origin.pool.idle()).sum()
    }

    async fn exchange(
        &self,
        target: &Upstream,
        connection: ReadyConnection,
        request: &OutboundRequest<'_>,
        give_up: Instant,
    ) -> Result<Response, ExchangeFailure> {
        let ReadyConnection { handle, since, is_new } = connection;
        let first_byte = after(since, target.timeouts.first_byte);
        let deadline = first_byte.min(give_up);
        let late = || match deadline == give_up {
            true => TransportError::TotalTimeout,
            false => TransportError::FirstByteTimeout,
        };
        let answered = match handle {
            ConnectionHandle::Http1(mut connection) => {
                match connection.exchange(request, &target.origin, deadline).await {
                    Some(Ok(head)) => Ok((head, None, ConnectionHandle::Http1(connection))),
                    Some(Err(UnansweredRequest { error, is_unsent: true })) => {
                        Err(ExchangeFailure::Unsent(error.into()))
                    }
                    Some(Err(UnansweredRequest { error, .. })) => {
                        Err(ExchangeFailure::Final(TransportError::after_sending(error, is_new)))
                    }
                    None => Err(ExchangeFailure::Final(late())),
                }
            }
            ConnectionHandle::Http2(mut stream) => {
                let outgoing = request.to_http2(&target.origin).map_err(ExchangeFailure::Final)?;
                let answered = stream.exchange(outgoing, deadline).await;
                if !matches!(answered, Some(Ok(_))) {
                    target.origin.pool.forget(stream.connection());
                }
                match answered {
                    Some(Ok(response)) => {
                        let (head, body) = response.into_parts();
                        let head = http::Response::from_parts(head, ());
                        Ok((head, Some(body), ConnectionHandle::Http2(stream)))
                    }
                    Some(Err(mut failed)) => {
                        // hyper returns a request that was not written, and not one that the agent has refused.
                        let is_unwritten = failed.take_message().is_some();
                        let error = failed.into_error();
                        Err(match is_unwritten || is_refused_unread(&error) {
                            true => ExchangeFailure::Unsent(error.into()),
                            false => ExchangeFailure::Final(TransportError::after_sending(error, is_new)),
                        })
                    }
                    None => Err(ExchangeFailure::Final(late())),
                }
            }
            ConnectionHandle::Ended | ConnectionHandle::Failed => {
                Err(ExchangeFailure::Final(TransportError::Truncated))
            }
        };
        let (head, body, handle) = answered?;
        let header_lines = self.shared.limits.header_lines;
        Response::new(head, body, handle, target.clone(), give_up, header_lines)
            .map_err(ExchangeFailure::Final)
    }

    /// Opens a connection to an upstream without TLS, through its egress proxy if it has one, for
    /// another protocol.
    ///
    /// # Errors
    ///
    /// [`TransportError`], as for a request.
    pub(crate) async fn open_stream(&self, target: &Upstream) -> Result<TcpStream, TransportError> {
        let stream = connect::open(&target.origin, &self.shared.proxy).await?;
        stream.set_nodelay(true).map_err(TransportError::Connect)?;
        Ok(stream)
    }

    /// Finds or opens the connection for the next request.
    async fn connection(
        &self,
        target: &Upstream,
        fresh: bool,
        now: Instant,
        give_up: Instant,
    ) -> Result<ReadyConnection, TransportError> {
        let origin = &target.origin;
        // The clock is read again only after a wait.
        if let Some(stream) = origin.pool.join() {
            return Ok(ReadyConnection {
                handle: ConnectionHandle::Http2(stream),
                since: now,
                is_new: false,
            });
        }
        if !fresh && let Some(connection) = idle_connection(&origin.pool, now).await {
            return Ok(ReadyConnection {
                handle: ConnectionHandle::Http1(connection),
                since: now,
                is_new: false,
            });
        }
        let deadline = after(Instant::now(), target.timeouts.connect).min(give_up);
        // Boxed: opening is rare, and every request would carry its size.
        let opening = Box::pin(tokio::time::timeout_at(deadline, self.open(origin)));
        opening.await.map_err(|_| TransportError::ConnectTimeout)?
    }

    async fn open(&self, origin: &Arc<UpstreamInner>) -> Result<ReadyConnection, TransportError> {
        let opened = |handle| ReadyConnection { handle, since: Instant::now(), is_new: true };
        let Some(background) = self.runtime_for(origin) else {
            return self.open_http1(origin).await.map(opened);
        };
        let turn = origin.pool.opening.acquire().await;
        if let Some(stream) = origin.pool.join() {
            return Ok(ReadyConnection { is_new: false, ..opened(ConnectionHandle::Http2(stream)) });
        }
        if origin.pool.is_http1_only() {
            drop(turn);
            return self.open_http1(origin).await.map(opened);
        }
        let handle = self.open_shared(origin, &background).await;
        drop(turn);
        handle.map(opened)
    }

    /// Returns the runtime that drives a shared connection; `None` if HTTP/2 is not spoken there.
    fn runtime_for(&self, origin: &UpstreamInner) -> Option<Handle> {
        let attached = self.shared.background.get();
        if origin.http2_only {
            return Some(attached.cloned().unwrap_or_else(Handle::current));
        }
        attached.filter(|_| origin.tls.is_some() && !origin.pool.is_http1_only()).cloned()
    }

    async fn open_http1(&self, origin: &Arc<UpstreamInner>) -> Result<ConnectionHandle, TransportError> {
        connect::http1(origin, self.shared.limits, &self.shared.proxy).await.map(ConnectionHandle::Http1)
    }

    /// Opens a connection on the background runtime, which drives it if it is shared.
    async fn open_shared(
        &self,
        origin: &Arc<UpstreamInner>,
        background: &Handle,
    ) -> Result<ConnectionHandle, TransportError> {
        let (there, limits, handle) = (Arc::clone(origin), self.shared.limits, background.clone());
        let proxy = self.shared.proxy.clone();
        let mut task = AbortOnDrop(
            background.spawn(async move { connect::either(&there, limits, &proxy, &handle).await }),
        );
        let opened =
            (&mut task.0).await.map_err(|error| TransportError::Connect(std::io::Error::other(error)))??;
        match opened {
            NewConnection::Http1(connection) => {
                origin.pool.set_http1_only();
                Ok(ConnectionHandle::Http1(connection))
            }
            NewConnection::Http2(connection) => {
                let stream: Option<StreamPermit> = connection.join();
                origin.pool.share(connection);
                stream.map(ConnectionHandle::Http2).ok_or_else(|| {
                    TransportError::Connect(std::io::Error::other("the agent closed the new connection"))
                })
            }
        }
    }

    /// Registers a pool for sweeping.
    fn know(&self, origin: &Arc<UpstreamInner>) {
        if !origin.pool.known.swap(true, std::sync::atomic::Ordering::Relaxed) {
            self.upstreams().push(Arc::downgrade(origin));
        }
    }

    fn upstreams(&self) -> MutexGuard<'_, Vec<Weak<UpstreamInner>>> {
        lock(&self.shared.origins)
    }
}

/// A task that is aborted once its result is not awaited any more.
struct AbortOnDrop<T>(tokio::task::JoinHandle<T>);

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Returns the most recently used idle connection of this runtime that is still alive.
async fn idle_connection(pool: &ConnectionPool, now: Instant) -> Option<Box<Http1Connection>> {
    let home = Handle::current().id();
    while let Some(IdleConnection { mut connection, rested }) = pool.take_idle(home, now.into_std()) {
        if rested >= pool.idle_for() {
            continue;
        }
        let is_alive = if rested < STALE_AFTER {
            // The exchange polls first too, and returns the request if nothing of it was written.
            connection.is_ready()
        } else {
            // Lets the runtime poll its sockets: it may not have noticed yet that the agent closed
            // this one.
            tokio::task::yield_now().await;
            connection.is_alive()
        };
        if is_alive {
            return Some(connection);
        }
    }
    None
}
