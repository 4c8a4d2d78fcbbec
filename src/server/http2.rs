//! The requests of one HTTP/2 connection, each on a stream and in a task of its own.
//!
//! Pingora has this too, with a timer that starts a thread of Pingora's, which wakes 100 times a second, and with one more
//! wake-up of the connection after each request.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use pingora::apps::HttpServerApp;
use pingora::protocols::http::ServerSession;
use pingora::protocols::http::v2::server::{H2Accept, HttpSession, handshake};
use pingora::protocols::{Digest, Stream};
use pingora::server::ShutdownWatch;
use tokio::time::Instant;

use crate::timing::{ReusableTimer, after};

/// Number of malformed requests that a connection may have. The next one ends it.
const MAX_REJECTED_STREAMS: usize = 32;

/// Serves a connection until its client closes it, it was idle for too long, or it has served its last request after the
/// signal for connections to end.
pub(crate) async fn serve_http2<A: HttpServerApp + Send + Sync + 'static>(
    app: &Arc<A>,
    stream: Stream,
    shutdown: &ShutdownWatch,
) {
    let digest = Arc::new(Digest {
        ssl_digest: stream.get_ssl_digest(),
        timing_digest: stream.get_timing_digest(),
        proxy_digest: stream.get_proxy_digest(),
        socket_digest: stream.get_socket_digest(),
    });
    let mut connection = match handshake(stream, app.h2_options()).await {
        Ok(connection) => connection,
        Err(error) => return tracing::debug!(%error, "HTTP/2 connection did not begin"),
    };
    let active = Arc::new(ActiveStreams::new());
    let mut idle = IdleTimeout::new(app.server_options().and_then(|options| options.h2_idle_timeout));
    let mut requests = RequestStreams { app, shutdown, active: &active, rejected: 0 };
    let (mut ends, mut is_ending) = (pin!(ends(shutdown.clone())), false);
    loop {
        let event = {
            // Polls the whole connection, its writes too. Cancel-safe.
            let mut accept = pin!(HttpSession::from_h2_conn(&mut connection, Arc::clone(&digest)));
            poll_fn(|cx| {
                if let Poll::Ready(accepted) = accept.as_mut().poll(cx) {
                    return Poll::Ready(ConnectionEvent::Accepted(accepted));
                }
                if !is_ending && ends.as_mut().poll(cx).is_ready() {
                    return Poll::Ready(ConnectionEvent::Shutdown);
                }
                idle.poll(cx, &active).map(|()| ConnectionEvent::Idle)
            })
            .await
        };
        match event {
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

/// Next event of a connection.
#[expect(
    clippy::large_enum_variant,
    reason = "it lives for a moment, and a box would be an allocation for each request"
)]
enum ConnectionEvent {
    /// A stream came, or the connection has ended.
    Accepted(pingora::Result<Option<H2Accept>>),
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
    active: &'a Arc<ActiveStreams>,
    /// Number of malformed requests so far.
    rejected: usize,
}

impl<A: HttpServerApp + Send + Sync + 'static> RequestStreams<'_, A> {
    /// Serves the request of a stream, if there is one. Returns false if the connection must end.
    fn begin(&mut self, accepted: pingora::Result<Option<H2Accept>>) -> bool {
        match accepted {
            Ok(Some(H2Accept::Session(session))) => {
                let (app, shutdown, active) =
                    (Arc::clone(self.app), self.shutdown.clone(), self.active.begin());
                tokio::spawn(async move {
                    app.process_new_http(ServerSession::new_http2(session), &shutdown).await;
                    drop(active);
                });
                true
            }
            // It has its response already, which cost something.
            Ok(Some(H2Accept::Rejected)) => {
                self.rejected += 1;
                self.rejected <= MAX_REJECTED_STREAMS
            }
            Ok(None) => false,
            Err(error) => {
                tracing::debug!(%error, "HTTP/2 connection failed");
                false
            }
        }
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
    fn new(limit: Option<Duration>) -> Self {
        let limit = limit.unwrap_or(Duration::MAX);
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
