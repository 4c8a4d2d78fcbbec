//! A deadline for the header of each request, which Pingora lacks: it has one per read, so that a client that sends a byte now
//! and then holds its connection for ever. It is what ends a connection that rests, too: one timer for all requests of a connection
//! costs less than one of Pingora's for each.
//!
//! Not here: deadlines for bodies (see `gateway::intake`) and for writes.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use pingora::apps::{HttpServerApp, HttpServerOptions, ReusedHttpStream};
use pingora::protocols::http::ServerSession;
use pingora::protocols::http::v2::server::H2Options;
use pingora::server::ShutdownWatch;
use tokio::time::Instant;

use crate::alarm::{Alarm, after};

/// What goes with an HTTP/1.1 connection from request to request: to its proxy, once the header of a request has been read, and back.
#[derive(Clone, Default)]
pub(super) struct Mark(Arc<Header>);

/// The header of the request that is served now.
#[derive(Default)]
struct Header {
    is_read: AtomicBool,
    alarm: Mutex<Alarm>,
}

impl Mark {
    /// Notes that the header has been read.
    pub(super) fn header_read(&self) {
        self.0.is_read.store(true, Ordering::Relaxed);
    }

    /// Whether the header has been read.
    fn is_read(&self) -> bool {
        self.0.is_read.load(Ordering::Relaxed)
    }

    /// Whether the header should have been read before now.
    fn is_too_late(&self, context: &mut Context<'_>, deadline: Instant) -> bool {
        self.0.alarm.lock().unwrap_or_else(PoisonError::into_inner).poll(context, deadline).is_ready()
    }
}

/// An application whose requests must send their header in time.
pub(super) struct Timely<A> {
    /// The application.
    pub(super) app: Arc<A>,
    /// For the header of a first request, from the moment of the connection.
    pub(super) within: Duration,
    /// For the header of another one, from the end of the one before: how long a connection may rest.
    pub(super) rest: Duration,
}

/// What a request is served by, as the traits of Pingora have it.
type Served<'a> = Pin<Box<dyn Future<Output = Option<ReusedHttpStream>> + Send + 'a>>;

#[async_trait]
impl<A: HttpServerApp + Send + Sync + 'static> HttpServerApp for Timely<A> {
    // Drops a request, and its connection with it, if its header takes too long. Not an `async fn`: that would keep room for the
    // session beside the one within, and be a large thing to step through each time that the request goes on.
    fn process_new_http<'life0, 'life1, 'async_trait>(
        self: &'life0 Arc<Self>,
        mut session: ServerSession,
        shutdown: &'life1 ShutdownWatch,
    ) -> Served<'async_trait>
    where
        'life0: 'async_trait,
        'life1: 'async_trait,
        Self: 'async_trait,
    {
        // A connection that is used again carries the mark.
        let carried = session.take_connection_user_context().and_then(|mark| mark.downcast::<Mark>().ok());
        let within = if carried.is_some() { self.rest } else { self.within };
        let carried = carried.unwrap_or_default();
        let mark = Mark::clone(&carried);
        // HTTP/2 has read the header before.
        mark.0.is_read.store(session.is_http2(), Ordering::Relaxed);
        session.set_connection_user_context(Some(carried));
        let deadline = after(Instant::now(), within);
        let mut request = self.app.process_new_http(session, shutdown);
        let mut waits = true;
        Box::pin(std::future::poll_fn(move |context| {
            let served = request.as_mut().poll(context);
            // The mark lies elsewhere, and is not looked at for each event of a long answer.
            waits = waits && served.is_pending() && !mark.is_read();
            if waits && mark.is_too_late(context, deadline) {
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
        self.app.http_cleanup().await;
    }
}
