//! The requests of one HTTP/1.1 connection, one after the other.
//!
//! Pingora has this too, in one future with the connection of HTTP/2, which needs five times as much memory. That future
//! lives as long as the connection.

use std::sync::Arc;

use pingora::apps::{HttpServerApp, ReusedHttpStream};
use pingora::protocols::Stream;
use pingora::protocols::http::ServerSession;
use pingora::server::ShutdownWatch;

use super::header::ServedBy;

/// Seconds that Pingora keeps a connection without a request: without end, as `HeaderTimeout` has the limit. A
/// timer of Pingora's would start its thread, which wakes 100 times a second.
const UNLIMITED_KEEP_ALIVE_SECONDS: u64 = 0;

/// Begins to serve the first request of a connection.
pub(crate) fn begin_http1<'a, A: HttpServerApp + Send + Sync + 'static>(
    app: &'a Arc<A>,
    stream: Stream,
    shutdown: &'a ShutdownWatch,
) -> ServedBy<'a> {
    let mut session = ServerSession::new_http1(stream);
    // A process that ends takes no further request.
    session.set_keepalive((!*shutdown.borrow()).then_some(UNLIMITED_KEEP_ALIVE_SECONDS));
    session.set_keepalive_reuses_remaining(
        app.server_options().and_then(|options| options.keepalive_request_limit),
    );
    app.process_new_http(session, shutdown)
}

/// Serves a connection of which the first request was begun, to its end.
pub(crate) async fn serve_http1<A: HttpServerApp + Send + Sync + 'static>(
    app: &Arc<A>,
    first: ServedBy<'_>,
    shutdown: &ShutdownWatch,
) {
    let mut served = first.await;
    while let Some(reused) = served {
        served = next_request(app, reused, shutdown).await;
    }
}

/// Begins to serve another request. Not part of the loop, because its future would have room for the session.
fn next_request<'a, A: HttpServerApp + Send + Sync + 'static>(
    app: &'a Arc<A>,
    reused: ReusedHttpStream,
    shutdown: &'a ShutdownWatch,
) -> ServedBy<'a> {
    let (stream, settings) = reused.consume();
    let mut session = ServerSession::new_http1(stream);
    if let Some(settings) = settings {
        settings.apply_to_session(&mut session);
    }
    app.process_new_http(session, shutdown)
}
