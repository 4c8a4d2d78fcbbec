//! A deadline for the header of each request, which Pingora lacks: it has one per read, so that a client that sends a byte now
//! and then holds its connection for ever.
//!
//! Not here: deadlines for bodies (see `gateway::intake`) and for writes.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use async_trait::async_trait;
use pingora::apps::{HttpServerApp, HttpServerOptions, ReusedHttpStream};
use pingora::protocols::http::ServerSession;
use pingora::protocols::http::v2::server::H2Options;
use pingora::server::ShutdownWatch;
use tokio::time::Instant;

use crate::alarm::{Alarm, after};

tokio::task_local! {
    static HEADER: Header;
}

/// The header of the request that a task serves.
struct Header {
    is_read: Cell<bool>,
    /// Goes from request to request with the connection.
    alarm: RefCell<Alarm>,
}

/// Notes that the header of this request has been read. To be called from the first filter.
pub(super) fn header_read() {
    if HEADER.try_with(|header| header.is_read.set(true)).is_err() {
        tracing::trace!("request outside of a deadline");
    }
}

/// What a connection that has served a request carries to the next one.
pub(super) fn mark() -> Box<dyn Any + Send + Sync> {
    Box::new(Used { alarm: HEADER.try_with(|header| header.alarm.take()).unwrap_or_default() })
}

struct Used {
    alarm: Alarm,
}

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
        // A connection that is used again carries the mark.
        let mark = session.take_connection_user_context().and_then(|mark| mark.downcast::<Used>().ok());
        let within = if mark.is_some() { self.rest.saturating_add(self.within) } else { self.within };
        let alarm = RefCell::new(mark.map(|mark| mark.alarm).unwrap_or_default());
        // HTTP/2 has read the header before.
        let header = Header { is_read: Cell::new(session.is_http2()), alarm };
        HEADER.scope(header, bounded(self.app.process_new_http(session, shutdown), within)).await
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
    let deadline = after(Instant::now(), within);
    std::future::poll_fn(|context| {
        if let Poll::Ready(done) = request.as_mut().poll(context) {
            return Poll::Ready(done);
        }
        let is_too_late = HEADER.try_with(|header| {
            !header.is_read.get() && header.alarm.borrow_mut().poll(context, deadline).is_ready()
        });
        if is_too_late.unwrap_or(false) {
            tracing::debug!("the header of a request took too long");
            return Poll::Ready(None);
        }
        Poll::Pending
    })
    .await
}
