//! A deadline for the header of each request, which Pingora lacks: it has one per read, so that a client that sends a byte now
//! and then holds its connection for ever.
//!
//! Not here: deadlines for bodies (see `gateway::intake`) and for writes.

use std::any::Any;
use std::cell::Cell;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use async_trait::async_trait;
use pingora::apps::{HttpServerApp, HttpServerOptions, ReusedHttpStream};
use pingora::protocols::http::ServerSession;
use pingora::protocols::http::v2::server::H2Options;
use pingora::server::ShutdownWatch;
use pingora::time::fast_timeout::fast_sleep;

tokio::task_local! {
    static HEADER_READ: Cell<bool>;
}

/// Notes that the header of this request has been read. To be called from the first filter.
pub(super) fn header_read() {
    if HEADER_READ.try_with(|read| read.set(true)).is_err() {
        tracing::trace!("request outside of a deadline");
    }
}

/// What a connection that has served a request carries to the next one.
pub(super) fn mark() -> Box<dyn Any + Send + Sync> {
    Box::new(Used)
}

struct Used;

/// An application whose requests must send their header in time.
pub(super) struct Timely<A> {
    /// The application.
    pub(super) app: Arc<A>,
    /// For the header of a first request, from the moment of the connection.
    pub(super) within: Duration,
    /// How long a connection may rest before another one.
    pub(super) rest: Duration,
}

#[async_trait]
impl<A: HttpServerApp + Send + Sync + 'static> HttpServerApp for Timely<A> {
    async fn process_new_http(
        self: &Arc<Self>,
        mut session: ServerSession,
        shutdown: &ShutdownWatch,
    ) -> Option<ReusedHttpStream> {
        // A connection that is used again carries the mark, and goes on carrying it.
        let mark = session.take_connection_user_context();
        let within = if mark.is_some() { self.rest + self.within } else { self.within };
        session.set_connection_user_context(mark);
        // HTTP/2 has read the header before.
        let begun = Cell::new(session.is_http2());
        HEADER_READ.scope(begun, bounded(self.app.process_new_http(session, shutdown), within)).await
    }

    fn h2_options(&self) -> Option<H2Options> {
        self.app.h2_options()
    }

    fn server_options(&self) -> Option<&HttpServerOptions> {
        self.app.server_options()
    }

    async fn http_cleanup(&self) {
        self.app.http_cleanup().await;
    }
}

/// Runs a request; drops it, and its connection with it, if its header takes too long.
async fn bounded<T>(request: impl Future<Output = Option<T>>, within: Duration) -> Option<T> {
    let mut request = pin!(request);
    let mut deadline = pin!(fast_sleep(within));
    std::future::poll_fn(|context| {
        if let Poll::Ready(done) = request.as_mut().poll(context) {
            return Poll::Ready(done);
        }
        let read = HEADER_READ.try_with(Cell::get).unwrap_or(true);
        if !read && deadline.as_mut().poll(context).is_ready() {
            tracing::debug!("the header of a request took too long");
            return Poll::Ready(None);
        }
        Poll::Pending
    })
    .await
}
