//! A deadline for the header of each request, which Pingora lacks: it has one per read, so that a client that sends a byte now
//! and then holds its connection for ever. It is what ends a connection that rests, too: one timer for all requests of a connection
//! costs less than one of Pingora's for each.
//!
//! Not here: deadlines for bodies (see `gateway::intake`) and for writes.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use pingora::apps::{HttpServerApp, HttpServerOptions, ReusedHttpStream};
use pingora::protocols::http::ServerSession;
use pingora::protocols::http::v2::server::H2Options;
use pingora::server::ShutdownWatch;
use tokio::time::Instant;

use super::ending::ListenersEnd;
use super::header::{HeaderLimit, HeaderLimitedStream};
use crate::alarm::{ReusableTimer, after};

/// What goes with an HTTP/1.1 connection from request to request: to its proxy, once the header of a request has been read, and back.
#[derive(Clone, Default)]
pub(super) struct ConnectionMarker(Arc<HeaderProgress>);

/// The header of the request that is served now.
#[derive(Default)]
struct HeaderProgress {
    is_read: AtomicBool,
    /// Bytes that were read while it was not whole.
    bytes: AtomicUsize,
    alarm: Mutex<ReusableTimer>,
}

impl ConnectionMarker {
    /// Notes that the header has been read.
    pub(super) fn header_read(&self) {
        self.0.is_read.store(true, Ordering::Relaxed);
    }

    /// Whether the header has been read.
    pub(super) fn is_read(&self) -> bool {
        self.0.is_read.load(Ordering::Relaxed)
    }

    /// Bytes that were read of a header that is not whole yet.
    pub(super) fn header_bytes(&self) -> usize {
        self.0.bytes.load(Ordering::Relaxed)
    }

    /// Notes that so many bytes more were read, if the header is not whole yet.
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

    /// Whether the header should have been read before now.
    fn timed_out(&self, context: &mut Context<'_>, deadline: Instant) -> bool {
        self.0.alarm.lock().unwrap_or_else(PoisonError::into_inner).poll(context, deadline).is_ready()
    }
}

/// An application whose requests must send their header in time.
pub(super) struct HeaderTimeout<A> {
    /// The application.
    pub(super) app: Arc<A>,
    /// For the header of a first request, from the moment of the connection.
    pub(super) within: Duration,
    /// For the header of another one, from the end of the one before: how long a connection may rest.
    pub(super) rest: Duration,
    /// How long a header may be.
    pub(super) limit: Arc<HeaderLimit>,
    /// The end of the listeners, which waits for first requests.
    pub(super) listeners: ListenersEnd,
}

impl<A> HeaderTimeout<A> {
    /// The first request of a connection, with headers that are counted from now on.
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

/// What a request is served by, as the traits of Pingora have it.
type ServedBy<'a> = Pin<Box<dyn Future<Output = Option<ReusedHttpStream>> + Send + 'a>>;

#[async_trait]
impl<A: HttpServerApp + Send + Sync + 'static> HttpServerApp for HeaderTimeout<A> {
    // Drops a request, and its connection with it, if its header takes too long. Not an `async fn`: that would keep room for the
    // session beside the one within, and be a large thing to step through each time that the request goes on.
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
        // A connection that is used again carries the mark.
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
            // The mark lies elsewhere, and is not looked at for each event of a long answer.
            waits = waits && served.is_pending() && !mark.is_read();
            if !waits {
                drop(fresh.take());
            }
            if waits && mark.timed_out(context, deadline) {
                tracing::debug!("no header of a request has come in time");
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
