//! The upstream of requests: one origin, reached with one credential, and the connections opened
//! for it.
//!
//! An upstream owns its pool. So connections opened with one credential are never used for another,
//! and a new credential (a new upstream) never finds old connections. Credentials in headers are
//! added by the caller. An idle HTTP/1.1 connection is not polled; its state is checked when it is taken
//! and when the pool is swept. See `connect` for opening,
//! `request` for requests.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::uri::{Authority, Scheme};
use http::{HeaderValue, Uri};
use http_body_util::Full;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::runtime;
use tokio::sync::Semaphore;

use super::address_policy::AddressPolicy;
use super::error::TransportError;
use super::http1::Http1Connection;
use super::http2::{Http2Connection, StreamPermit};
use crate::config::{Host, ProxyChoice};
use crate::sync::lock;

/// The name of HTTP/2 in TLS.
pub(super) const HTTP2_ALPN: &[u8] = b"h2";

/// The body of every request by HTTP/2: whole, in memory.
pub(super) type OutboundBody = Full<Bytes>;

/// The time limits of an exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExchangeTimeouts {
    /// For a new connection: resolving, connecting and the TLS handshake together.
    pub connect: Duration,
    /// The time from the moment the request is handed to the connection to its response header.
    pub first_byte: Duration,
    /// The longest silence between two chunks of the body. Only bytes of the body end a silence.
    pub idle: Duration,
    /// The whole exchange, from the call to the last byte.
    pub total: Duration,
}

impl Default for ExchangeTimeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(5),
            first_byte: Duration::from_secs(30),
            idle: Duration::from_secs(60),
            total: Duration::from_secs(600),
        }
    }
}

/// The settings of an [`Upstream`].
#[derive(Debug, Clone)]
pub struct TargetSettings {
    /// The origin: scheme `http` or `https`, host, optional port. A path is ignored.
    pub uri: Uri,
    /// The addresses that the host may have.
    pub policy: AddressPolicy,
    /// Trust and identity; needed for `https`, ignored for `http`. See
    /// [`client_config`](super::client_config).
    pub tls: Option<Arc<ClientConfig>>,
    /// The name that the certificate must have, and that is sent as SNI; `None`: the host of the
    /// origin.
    pub server_name: Option<String>,
    /// The egress proxy of its connections. The pool belongs to the upstream, so a connection through
    /// one proxy never serves an upstream with another.
    pub proxy: ProxyChoice,
    /// True if the origin speaks HTTP/2 and nothing else, and sends trailers, as gRPC requires: by ALPN
    /// over TLS, by prior knowledge without TLS (RFC 9113 §3.3).
    pub http2_only: bool,
    /// Time limits of each exchange.
    pub timeouts: ExchangeTimeouts,
    /// The maximum number of idle connections.
    pub max_idle: usize,
    /// The maximum idle time of a connection. Shorter than the 5 s of uvicorn and Node: a request
    /// that is sent in the moment in which the agent closes may or may not have been received, and
    /// may not be sent again.
    pub idle_for: Duration,
}

impl TargetSettings {
    /// Creates settings for the origin of `uri`, with defaults for the rest. The party that named
    /// that origin decides the policy: the operator ([`AddressPolicy::Trusted`]) or any other
    /// party.
    #[must_use]
    pub fn new(uri: Uri, policy: AddressPolicy) -> Self {
        Self {
            uri,
            policy,
            tls: None,
            server_name: None,
            proxy: ProxyChoice::Common,
            http2_only: false,
            timeouts: ExchangeTimeouts::default(),
            max_idle: 64,
            idle_for: Duration::from_secs(4),
        }
    }
}

/// One origin reached with one credential. Clones share the connections.
#[derive(Clone)]
pub struct Upstream {
    pub(super) origin: Arc<UpstreamInner>,
    pub(super) timeouts: ExchangeTimeouts,
}

/// The state that all clones of an upstream share.
pub(super) struct UpstreamInner {
    pub(super) scheme: Scheme,
    pub(super) authority: Authority,
    pub(super) host_header: HeaderValue,
    pub(super) host: Host,
    pub(super) policy: AddressPolicy,
    pub(super) proxy: ProxyChoice,
    pub(super) port: u16,
    pub(super) tls: Option<UpstreamTls>,
    pub(super) http2_only: bool,
    pub(super) pool: ConnectionPool,
}

/// The TLS configuration of an upstream.
pub(super) struct UpstreamTls {
    pub(super) name: ServerName<'static>,
    /// Offers HTTP/1.1 only.
    pub(super) http1: Arc<ClientConfig>,
    /// Offers HTTP/2, and HTTP/1.1 where the upstream may speak it.
    pub(super) either: Arc<ClientConfig>,
}

impl Upstream {
    /// Creates an upstream with an empty pool. Opens nothing.
    ///
    /// # Errors
    ///
    /// [`TransportError::BadUri`] if the origin cannot be used: other schemes, no host, user
    /// information in the URI (it would be a credential outside of the configuration), an odd
    /// spelling of an address, or `https` without TLS settings.
    pub fn new(settings: TargetSettings) -> Result<Self, TransportError> {
        let parts = settings.uri.into_parts();
        let scheme = parts.scheme.ok_or(TransportError::BadUri("no scheme"))?;
        let authority = parts.authority.ok_or(TransportError::BadUri("no host"))?;
        if authority.as_str().contains('@') {
            return Err(TransportError::BadUri("user information in the URI"));
        }
        let secure = scheme == Scheme::HTTPS;
        if !secure && scheme != Scheme::HTTP {
            return Err(TransportError::BadUri("scheme is neither http nor https"));
        }
        if authority.host().is_empty() {
            return Err(TransportError::BadUri("no host"));
        }
        let host =
            Host::read(authority.host()).map_err(|_| TransportError::BadUri("no name or plain address"))?;
        let pinned = settings.server_name.as_deref();
        let tls = match secure {
            true => {
                let mut tls = UpstreamTls::new(&host, pinned, settings.tls.as_deref())?;
                if settings.http2_only {
                    Arc::make_mut(&mut tls.either).alpn_protocols = vec![HTTP2_ALPN.to_vec()];
                }
                Some(tls)
            }
            false => None,
        };
        let origin = UpstreamInner {
            host,
            policy: settings.policy,
            proxy: settings.proxy,
            port: effective_port(&scheme, &authority),
            host_header: HeaderValue::from_str(authority.as_str())
                .map_err(|_| TransportError::BadUri("host is not a header value"))?,
            tls,
            http2_only: settings.http2_only,
            pool: ConnectionPool::new(settings.max_idle, settings.idle_for),
            scheme,
            authority,
        };
        Ok(Self { origin: Arc::new(origin), timeouts: settings.timeouts })
    }

    /// Returns the same upstream (connections included) with other time limits.
    #[must_use]
    pub fn with_timeouts(&self, timeouts: ExchangeTimeouts) -> Self {
        Self { origin: Arc::clone(&self.origin), timeouts }
    }

    /// Returns host and port of the origin.
    pub(crate) fn server(&self) -> (&Authority, u16) {
        (&self.origin.authority, self.origin.port)
    }

    /// Returns the time limits of exchanges through this handle.
    #[must_use]
    pub fn timeouts(&self) -> ExchangeTimeouts {
        self.timeouts
    }
}

impl fmt::Debug for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Target({}://{})", self.origin.scheme, self.origin.authority)
    }
}

impl UpstreamTls {
    fn new(
        host: &Host,
        pinned: Option<&str>,
        settings: Option<&ClientConfig>,
    ) -> Result<Self, TransportError> {
        let settings = settings.ok_or(TransportError::BadUri("https without TLS settings"))?;
        let odd = |_| TransportError::BadUri("host is not a name that a certificate can have");
        let name = match (pinned, host) {
            (Some(name), _) => ServerName::try_from(name.to_owned()).map_err(odd)?,
            (None, Host::Address(address)) => ServerName::IpAddress((*address).into()),
            (None, Host::Name(name)) => ServerName::try_from(name.clone()).map_err(odd)?,
        };
        // Both share the session store and the identity of the settings.
        let offering = |protocols: &[&[u8]]| {
            let mut config = settings.clone();
            config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
            Arc::new(config)
        };
        Ok(Self { name, http1: offering(&[b"http/1.1"]), either: offering(&[HTTP2_ALPN, b"http/1.1"]) })
    }
}

/// Returns the port of a URL.
pub(super) fn effective_port(scheme: &Scheme, authority: &Authority) -> u16 {
    authority.port_u16().unwrap_or(if *scheme == Scheme::HTTPS { 443 } else { 80 })
}

/// The maximum number of HTTP/2 connections that one upstream shares, for 12,800 streams; those above
/// it serve one request, which takes more memory than a stream of a shared one.
const MAX_SHARED: usize = 64;

/// The connections of one upstream.
pub(super) struct ConnectionPool {
    inside: Mutex<PoolState>,
    max_idle: usize,
    idle_for: Duration,
    /// One opening at a time while HTTP/2 is possible, or a burst would open a connection per
    /// request.
    pub(super) opening: Semaphore,
    http1_only: AtomicBool,
    /// True if the client has registered this pool and sweeps it.
    pub(super) known: AtomicBool,
}

#[derive(Default)]
struct PoolState {
    /// Oldest first.
    idle: Vec<IdleEntry>,
    shared: Vec<SharedConnection>,
}

struct IdleEntry {
    connection: Box<Http1Connection>,
    since: Instant,
}

struct SharedConnection {
    connection: Http2Connection,
    unused_since: Option<Instant>,
}

/// A connection that was idle, and its idle time.
pub(super) struct IdleConnection {
    pub(super) connection: Box<Http1Connection>,
    pub(super) rested: Duration,
}

impl ConnectionPool {
    pub(super) fn new(max_idle: usize, idle_for: Duration) -> Self {
        Self {
            inside: Mutex::default(),
            max_idle,
            idle_for,
            opening: Semaphore::new(1),
            http1_only: AtomicBool::new(false),
            known: AtomicBool::new(false),
        }
    }

    /// Takes the most recently used connection of this runtime, alive or not. It was idle until
    /// `now`.
    pub(super) fn take_idle(&self, home: runtime::Id, now: Instant) -> Option<IdleConnection> {
        let resting = {
            let mut inside = lock(&self.inside);
            let at = inside.idle.iter().rposition(|resting| resting.connection.home() == home)?;
            inside.idle.remove(at)
        };
        Some(IdleConnection {
            connection: resting.connection,
            rested: now.saturating_duration_since(resting.since),
        })
    }

    /// Returns the maximum idle time of a connection.
    pub(super) fn idle_for(&self) -> Duration {
        self.idle_for
    }

    /// Adds an idle connection; the oldest is evicted if the pool is full.
    pub(super) fn put_idle(&self, connection: Box<Http1Connection>) {
        let resting = IdleEntry { connection, since: Instant::now() };
        // Dropping closes a socket: not under the lock.
        let surplus = {
            let mut inside = lock(&self.inside);
            inside.idle.push(resting);
            (inside.idle.len() > self.max_idle).then(|| inside.idle.remove(0))
        };
        drop(surplus);
    }

    /// Acquires a permit for a stream on a shared connection that has one.
    pub(super) fn join(&self) -> Option<StreamPermit> {
        let mut inside = lock(&self.inside);
        inside.shared.iter_mut().find_map(|shared| {
            let stream = shared.connection.join()?;
            shared.unused_since = None;
            Some(stream)
        })
    }

    /// Shares a new connection, unless there are too many.
    pub(super) fn share(&self, connection: Http2Connection) {
        let surplus = {
            let mut inside = lock(&self.inside);
            if inside.shared.len() < MAX_SHARED {
                inside.shared.push(SharedConnection { connection, unused_since: None });
                None
            } else {
                Some(connection)
            }
        };
        drop(surplus);
    }

    /// Removes this connection from the pool.
    pub(super) fn forget(&self, connection: &Http2Connection) {
        let forgotten: Vec<SharedConnection> =
            lock(&self.inside).shared.extract_if(.., |shared| shared.connection.is(connection)).collect();
        drop(forgotten);
    }

    /// Returns true if the agent has chosen HTTP/1.1 although HTTP/2 was offered.
    pub(super) fn is_http1_only(&self) -> bool {
        self.http1_only.load(Ordering::Acquire)
    }

    /// Records that the agent has chosen HTTP/1.1.
    pub(super) fn set_http1_only(&self) {
        self.http1_only.store(true, Ordering::Release);
    }

    /// Closes connections that have been idle too long at `now`, and those that the agent has
    /// closed.
    pub(super) fn sweep(&self, now: Instant) {
        let idle_for = self.idle_for;
        let (lines, shared): (Vec<IdleEntry>, Vec<SharedConnection>) = {
            let mut inside = lock(&self.inside);
            let lines = inside
                .idle
                .extract_if(.., |resting| {
                    now.saturating_duration_since(resting.since) >= idle_for || !resting.connection.is_alive()
                })
                .collect();
            (lines, inside.shared.extract_if(.., |shared| shared.is_over(now, idle_for)).collect())
        };
        drop((lines, shared));
    }

    /// Returns the number of connections that are open and not in use.
    pub(super) fn idle(&self) -> usize {
        let inside = lock(&self.inside);
        inside.idle.len() + inside.shared.iter().filter(|shared| shared.connection.streams() == 0).count()
    }
}

impl SharedConnection {
    fn is_over(&mut self, now: Instant, idle_for: Duration) -> bool {
        if self.connection.streams() > 0 {
            self.unused_since = None;
            return !self.connection.is_alive();
        }
        let since = *self.unused_since.get_or_insert(now);
        !self.connection.is_alive() || now.saturating_duration_since(since) >= idle_for
    }
}
