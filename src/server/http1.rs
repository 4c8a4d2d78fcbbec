//! The requests of one HTTP/1.1 connection, one after the other: with a limit and a timeout for each head.
//!
//! Heads that are too long get 431, others that are none get 400, and end their connection. A connection without requests ends
//! after a while. See `http_edge::http1` for the protocol.

use std::pin::pin;
use std::sync::Arc;

use http::{Method, StatusCode};
use pingora::protocols::Stream;
use pingora::server::ShutdownWatch;
use tokio::time::Instant;

use super::app::{HttpApp, HttpLimits};
use super::http2::ends;
use super::shutdown::FreshConnection;
use crate::http_edge::{HeadError, Http1ClientConnection, HttpConnection};
use crate::telemetry::label::Refusal;
use crate::timing::after;

/// Bytes of a head on the wire that `limits.header` does not count: method, version, line ends.
const UNCOUNTED_BYTES: usize = 64;

/// Serves a connection to its end, of which the time for the first head began at `since`; `fresh` counts it until its first request
/// has come.
pub(crate) async fn serve_http1<A: HttpApp>(
    app: &Arc<A>,
    stream: Stream,
    fresh: Option<FreshConnection>,
    since: Instant,
    shutdown: &ShutdownWatch,
) {
    let (mut http, mut fresh) = (Http1ClientConnection::new(stream), fresh);
    let (mut ends, limits) = (pin!(ends(shutdown.clone())), app.limits());
    let head_bytes = limits.head_bytes.saturating_add(UNCOUNTED_BYTES);
    let mut deadline = after(since, limits.head_read);
    loop {
        let head = http.read_head(head_bytes, deadline, ends.as_mut()).await;
        if let Err(error) = head.and_then(|()| accepted(&http)) {
            // Boxed: each idle connection waits above.
            return Box::pin(refuse(limits, &mut http, error)).await;
        }
        drop(fresh.take());
        if *shutdown.borrow() {
            http.close_after_response();
        }
        let mut request = HttpConnection::Http1 { http: &mut http, shutdown };
        app.serve(&mut request).await;
        if !Box::pin(http.finish()).await {
            return;
        }
        deadline = after(Instant::now(), limits.keep_alive);
    }
}

/// Refuses the method `CONNECT`: nothing is tunnelled.
fn accepted(http: &Http1ClientConnection) -> Result<(), HeadError> {
    if http.head().method == Method::CONNECT { Err(HeadError::Method) } else { Ok(()) }
}

/// Ends a connection of which the next head is not served.
async fn refuse(limits: &HttpLimits, http: &mut Http1ClientConnection, error: HeadError) {
    tracing::debug!(?error, "connection ends before another request");
    match error {
        HeadError::Ended => {}
        HeadError::TooLarge => {
            limits.metrics.refused(Refusal::TooLarge);
            http.refuse(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, &limits.too_large).await;
        }
        HeadError::Malformed(_) => http.refuse(StatusCode::BAD_REQUEST, b"").await,
        HeadError::Method => http.refuse(StatusCode::METHOD_NOT_ALLOWED, b"").await,
    }
}
