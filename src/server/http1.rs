//! The requests of one HTTP/1.1 connection, one after the other: with a limit and a timeout for each head.
//!
//! Heads that are too long get 431, others that are none get 400, and end their connection. A connection without requests ends
//! after a while. Clients of the admin listener have Pingora's session. See `http_edge::http1` for the protocol.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use http::{Method, StatusCode};
use pingora::apps::HttpServerApp;
use pingora::protocols::Stream;
use pingora::protocols::http::ServerSession;
use pingora::server::ShutdownWatch;
use tokio::time::Instant;

use super::ListenerApp;
use super::http2::ends;
use super::shutdown::FreshConnection;
use crate::fault::Fault;
use crate::http_edge::{HeadError, Http1ClientConnection, HttpConnection};
use crate::jsonrpc::write_error;
use crate::mcp::Era;
use crate::telemetry::label::Refusal;
use crate::telemetry::metrics::Metrics;
use crate::timing::after;

/// Bytes of a head on the wire that `limits.header` does not count: method, version, line ends.
const UNCOUNTED_BYTES: usize = 64;
/// Seconds that Pingora keeps a connection without a request: without end. A timer of Pingora's would start its thread, which
/// wakes 100 times a second.
const UNLIMITED_KEEP_ALIVE_SECONDS: u64 = 0;

/// An application that serves connections of HTTP/1.1.
pub(crate) trait Http1App: HttpServerApp + Send + Sync + 'static {
    /// Serves a connection to its end; `fresh` counts it until its first request has come.
    fn serve_http1(
        self: &Arc<Self>,
        stream: Stream,
        fresh: FreshConnection,
        shutdown: &ShutdownWatch,
    ) -> impl Future<Output = ()> + Send;
}

/// Serves one request of a connection by Pingora's session, and ends the connection.
pub(crate) async fn serve_one_request<A: HttpServerApp + Send + Sync + 'static>(
    app: &Arc<A>,
    stream: Stream,
    shutdown: &ShutdownWatch,
) {
    let mut session = ServerSession::new_http1(stream);
    session.set_keepalive((!*shutdown.borrow()).then_some(UNLIMITED_KEEP_ALIVE_SECONDS));
    app.process_new_http(session, shutdown).await;
}

/// The limits of the heads of one listener.
pub(super) struct HeadLimits {
    max_bytes: usize,
    /// For the head of a first request, from the moment of the connection.
    within: Duration,
    /// For the head of another one, from the end of the one before: the longest time of a connection without requests.
    rest: Duration,
    /// The error for a head that is too long, as JSON.
    too_large: Vec<u8>,
    metrics: Arc<Metrics>,
}

impl HeadLimits {
    /// Creates limits of `limits.header` bytes, `limits.header_read` and `limits.keep_alive`.
    pub(super) fn new(bytes: usize, within: Duration, rest: Duration, metrics: Arc<Metrics>) -> Self {
        let fault = Fault::HeaderTooLarge(bytes);
        let too_large = write_error(None, fault.on_wire(Era::Legacy).code, &fault.to_string(), None);
        Self { max_bytes: bytes.saturating_add(UNCOUNTED_BYTES), within, rest, too_large, metrics }
    }

    /// Returns the longest time for the head of a first request.
    pub(super) fn within(&self) -> Duration {
        self.within
    }
}

/// A future without its type, through which the compiler would look for each connection.
type Served<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

impl Http1App for ListenerApp {
    async fn serve_http1(self: &Arc<Self>, stream: Stream, fresh: FreshConnection, shutdown: &ShutdownWatch) {
        let (mut http, mut fresh) = (Http1ClientConnection::new(stream), Some(fresh));
        let mut ends = pin!(ends(shutdown.clone()));
        let mut deadline = after(Instant::now(), self.heads.within);
        loop {
            let head = http.read_head(self.heads.max_bytes, deadline, ends.as_mut()).await;
            if let Err(error) = head.and_then(|()| accepted(&http)) {
                // Boxed: each idle connection waits above.
                return Box::pin(self.refuse(&mut http, error)).await;
            }
            drop(fresh.take());
            if *shutdown.borrow() {
                http.close_after_response();
            }
            let mut request = HttpConnection::Http1 { http: &mut http, shutdown };
            // Boxed: an idle connection must not be larger by it.
            let served: Served<'_> = Box::pin(self.gateway.handle_at(&mut request, self.listener));
            served.await;
            if !Box::pin(http.finish()).await {
                return;
            }
            deadline = after(Instant::now(), self.heads.rest);
        }
    }
}

/// Refuses the method `CONNECT`: nothing is tunnelled.
fn accepted(http: &Http1ClientConnection) -> Result<(), HeadError> {
    if http.head().method == Method::CONNECT { Err(HeadError::Method) } else { Ok(()) }
}

impl ListenerApp {
    /// Ends a connection of which the next head is not served.
    async fn refuse(&self, http: &mut Http1ClientConnection, error: HeadError) {
        tracing::debug!(?error, "connection ends before another request");
        match error {
            HeadError::Ended => {}
            HeadError::TooLarge => {
                self.heads.metrics.refused(Refusal::TooLarge);
                http.refuse(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, &self.heads.too_large).await;
            }
            HeadError::Malformed(_) => http.refuse(StatusCode::BAD_REQUEST, b"").await,
            HeadError::Method => http.refuse(StatusCode::METHOD_NOT_ALLOWED, b"").await,
        }
    }
}
