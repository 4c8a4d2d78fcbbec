//! A timeout for the header of each request, which Pingora lacks: it has one per read, so that a
//! client that sends a byte now and then would hold its connection without end. The same timer ends
//! an idle connection: one timer for all requests of a connection costs less than one of Pingora's
//! for each.
//!
//! See `gateway::body` for timeouts of bodies.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use pingora::apps::{HttpServerApp, HttpServerOptions, ReusedHttpStream};
use pingora::protocols::http::ServerSession;
use pingora::protocols::http::v2::server::H2Options;
use pingora::server::ShutdownWatch;
use tokio::time::Instant;

use super::ending::ListenerShutdown;
use super::header::{HeaderLimit, HeaderLimitedStream};
use crate::alarm::{ReusableTimer, after};
use crate::sync::lock;

/// The state of an HTTP/1.1 connection that moves from request to request: to its proxy, once the
/// header of a request has been read, and back.
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
    pub(super) fn add_header_bytes(&self, bytes: usize) {
        if !self.is_read() {
            // Read and written by the task of the connection alone.
            self.0.bytes.store(self.header_bytes().saturating_add(bytes), Ordering::Relaxed);
        }
    }

    /// Expects the header of another request, unless it has been read already.
    fn expect(&self, is_read: bool) {
        self.0.is_read.store(is_read, Ordering::Relaxed);
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
type ServedBy<'a> = Pin<Box<dyn Future<Output = Option<ReusedHttpStream>> + Send + 'a>>;

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
        // A reused connection carries the mark.
        let carried =
            session.take_connection_user_context().and_then(|mark| mark.downcast::<ConnectionMarker>().ok());
        let within = if carried.is_some() { self.rest } else { self.within };
        let is_first = carried.is_none();
        let carried = carried.unwrap_or_default();
        let mark = ConnectionMarker::clone(&carried);
        // HTTP/2 has read the header before.
        mark.expect(session.is_http2());
        if is_first {
            session = self.counted(session, &mark);
        }
        let mut fresh = (is_first && !mark.is_read()).then(|| self.listeners.fresh());
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
        self.app.server_options()
    }

    async fn http_cleanup(&self) {
        // Pingora drops each connection that has not sent a header by now, also one that was
        // accepted this moment.
        self.listeners.end_connections(self.within).await;
        self.app.http_cleanup().await;
    }
}
