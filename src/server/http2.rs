//! The requests of one HTTP/2 connection, each on a stream and in a task of its own.
//!
//! Pingora has this too, with a timer that starts a thread of Pingora's, which wakes 100 times a second, and with one more wake-up
//! of the connection after each request. See `http_edge::http2` for a stream.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use h2::RecvStream;
use h2::server::{Builder, SendResponse};
use http::Request;
use pingora::protocols::{Digest, Stream};
use pingora::server::ShutdownWatch;
use tokio::time::{Instant, timeout};

use super::app::HttpApp;
use crate::http_edge::{Http2ClientStream, HttpConnection};
use crate::timing::{ReusableTimer, after};

/// Number of malformed requests that a connection may have. The next one ends it.
const MAX_REFUSED_STREAMS: usize = 32;

/// Serves a connection until its client closes it, it was idle for too long, or it has served its last request after the
/// signal for connections to end.
pub(crate) async fn serve_http2<A: HttpApp>(app: &Arc<A>, stream: Stream, shutdown: &ShutdownWatch) {
    let digest = Arc::new(Digest {
        ssl_digest: stream.get_ssl_digest(),
        timing_digest: stream.get_timing_digest(),
        proxy_digest: stream.get_proxy_digest(),
        socket_digest: stream.get_socket_digest(),
    });
    let limits = app.limits();
    let head_bytes = u32::try_from(limits.head_bytes).unwrap_or(u32::MAX);
    let mut options = Builder::new();
    options.max_concurrent_streams(limits.streams).max_header_list_size(head_bytes);
    let mut ends = pin!(ends(shutdown.clone()));
    let begun = tokio::select! {
        begun = timeout(limits.head_read, options.handshake(stream)) => begun,
        () = &mut ends => return,
    };
    let mut connection = match begun {
        Ok(Ok(connection)) => connection,
        Ok(Err(error)) => return tracing::debug!(%error, "HTTP/2 connection did not begin"),
        Err(_) => return tracing::debug!("HTTP/2 connection did not begin in time"),
    };
    let active = Arc::new(ActiveStreams::new());
    let mut idle = IdleTimeout::new(limits.keep_alive);
    let mut requests = RequestStreams { app, shutdown, digest, active: &active, refused: 0 };
    let mut is_ending = false;
    loop {
        let event = poll_fn(|cx| {
            // Polls the whole connection, its writes too.
            if let Poll::Ready(accepted) = connection.poll_accept(cx) {
                return Poll::Ready(ConnectionEvent::Accepted(accepted));
            }
            if !is_ending && ends.as_mut().poll(cx).is_ready() {
                return Poll::Ready(ConnectionEvent::Shutdown);
            }
            idle.poll(cx, &active).map(|()| ConnectionEvent::Idle)
        });
        match event.await {
            ConnectionEvent::Accepted(accepted) => {
                if !requests.begin(accepted) {
                    return;
                }
            }
            ConnectionEvent::Shutdown => {
                connection.graceful_shutdown();
                is_ending = true;
            }
            ConnectionEvent::Idle => return,
        }
    }
}

/// A request on a stream of its own; `None` at the end of the connection.
type AcceptedStream = Option<Result<(Request<RecvStream>, SendResponse<Bytes>), h2::Error>>;

/// Next event of a connection.
#[expect(
    clippy::large_enum_variant,
    reason = "it lives for a moment, and a box would be an allocation for each request"
)]
enum ConnectionEvent {
    /// A stream came, or the connection has ended.
    Accepted(AcceptedStream),
    /// Connections must end.
    Shutdown,
    /// The connection was idle for too long.
    Idle,
}

/// Waits for the signal for connections to end.
pub(super) async fn ends(mut shutdown: ShutdownWatch) {
    if shutdown.wait_for(|ends| *ends).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Begins the requests of a connection.
struct RequestStreams<'a, A> {
    app: &'a Arc<A>,
    shutdown: &'a ShutdownWatch,
    digest: Arc<Digest>,
    active: &'a Arc<ActiveStreams>,
    /// Number of malformed requests so far.
    refused: usize,
}

impl<A: HttpApp> RequestStreams<'_, A> {
    /// Serves the request of a stream, if there is one. Returns false if the connection must end.
    fn begin(&mut self, accepted: AcceptedStream) -> bool {
        let (request, response) = match accepted {
            Some(Ok(accepted)) => accepted,
            Some(Err(error)) => {
                tracing::debug!(%error, "HTTP/2 connection failed");
                return false;
            }
            None => return false,
        };
        let Some(mut http) = Http2ClientStream::begin(request, response, Arc::clone(&self.digest)) else {
            // It has its response already, which cost something.
            self.refused += 1;
            return self.refused <= MAX_REFUSED_STREAMS;
        };
        let (app, shutdown, active) = (Arc::clone(self.app), self.shutdown.clone(), self.active.begin());
        tokio::spawn(async move {
            let mut request = HttpConnection::Http2 { http: &mut http, shutdown: &shutdown };
            app.serve(&mut request).await;
            http.finish();
            drop(active);
        });
        true
    }
}

/// Timeout of a connection without requests.
struct IdleTimeout {
    limit: Duration,
    timer: ReusableTimer,
    /// Time of the next look.
    due: Instant,
}

impl IdleTimeout {
    fn new(limit: Duration) -> Self {
        Self { limit, timer: ReusableTimer::default(), due: after(Instant::now(), limit) }
    }

    /// Returns ready once no request was served for the limit.
    fn poll(&mut self, cx: &mut Context<'_>, active: &ActiveStreams) -> Poll<()> {
        while self.timer.poll(cx, self.due).is_ready() {
            let now = Instant::now();
            self.due = after(active.idle_since().unwrap_or(now), self.limit);
            if self.due <= now {
                return Poll::Ready(());
            }
        }
        Poll::Pending
    }
}

/// Counts the streams of a connection with a request that is served.
struct ActiveStreams {
    begun: Instant,
    count: AtomicUsize,
    /// Milliseconds from `begun` to the end of the last request.
    last_end: AtomicU64,
}

impl ActiveStreams {
    fn new() -> Self {
        Self { begun: Instant::now(), count: AtomicUsize::new(0), last_end: AtomicU64::new(0) }
    }

    /// Counts a stream until the guard is dropped.
    fn begin(self: &Arc<Self>) -> ActiveStream {
        self.count.fetch_add(1, Ordering::Relaxed);
        ActiveStream(Arc::clone(self))
    }

    /// Returns the time since which no request is served; `None` while there is one.
    fn idle_since(&self) -> Option<Instant> {
        let last_end = || after(self.begun, Duration::from_millis(self.last_end.load(Ordering::Relaxed)));
        (self.count.load(Ordering::Acquire) == 0).then(last_end)
    }
}

/// Guard of a stream with a request that is served.
struct ActiveStream(Arc<ActiveStreams>);

impl Drop for ActiveStream {
    fn drop(&mut self) {
        let passed = u64::try_from(self.0.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.0.last_end.store(passed, Ordering::Relaxed);
        self.0.count.fetch_sub(1, Ordering::Release);
    }
}
