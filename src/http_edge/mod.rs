//! The HTTP edge: one request of a client and the response to it.
//!
//! Connections and streams of clients, routes, the policy for `Host` and `Origin`, the request body, the response, the access
//! record, and the drain of the process. Only here a Pingora session is seen, that of a proxy around the gateway.

mod access_record;
mod body;
mod client_address;
mod connection;
mod grpc;
mod host_policy;
mod http1;
mod http2;
mod response;
mod route;
#[cfg(test)]
mod test_connection;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::config::Shutdown;
use crate::sync::Latch;

pub(crate) use access_record::{AccessRecord, ListenerEdge, outcome_of};
pub(crate) use body::{BodyReader, header_fits};
pub(crate) use connection::{
    ClientConnection, HttpConnection, LocalConnection, LocalPeer, LocalRequest, MessageOutput, ResponseHead,
    ResponseSink, attach_client_tls, scope,
};
pub(crate) use grpc::{
    ACCEPT_ENCODING as GRPC_ACCEPT_ENCODING, GRPC, TrailerSink, is_grpc, message_encoding, request_timeout,
    trailers,
};
pub(crate) use host_policy::{HostPolicy, PublicUrl, authority, check_certificate, check_host, preflight};
pub(crate) use http1::{HeadError, Http1ClientConnection};
pub(crate) use http2::Http2ClientStream;
pub(crate) use response::{
    Accepts, Headers, SseWriter, abort, begin, cacheable_json, empty, events, fault, fault_headers, give_up,
    json, refused, reject_unproven_push, reply, text, whole,
};
pub(crate) use route::{API_CATALOG, METADATA, PUSH, Route, is_served, parse};
#[cfg(test)]
pub(crate) use test_connection::{BodyStep, TestClient, TestConnection, WrittenResponse};

/// Longest time between the moment at which responses are due and the end of the process.
const MAX_MARGIN: Duration = Duration::from_secs(5);

/// Drain state. The drain begins once.
pub(crate) struct DrainState {
    /// Time from the begin of the drain to the moment at which responses are due.
    within: Duration,
    /// Moment at which responses are due; not set before the drain.
    due: OnceLock<Instant>,
    begun: Latch,
    hands_over: AtomicBool,
}

impl DrainState {
    /// Creates the state. Responses are due a quarter of the whole time, and at most
    /// [`MAX_MARGIN`], before the process ends: they still have to be written, persisted and read.
    pub(crate) fn new(shutdown: Shutdown) -> Self {
        let whole = shutdown.grace.saturating_add(shutdown.drain);
        Self {
            within: whole.saturating_sub(MAX_MARGIN.min(whole / 4)),
            due: OnceLock::new(),
            begun: Latch::default(),
            hands_over: AtomicBool::new(false),
        }
    }

    /// Begins the drain. The process lives `more` longer than its own time.
    pub(crate) fn begin(&self, more: Duration) {
        self.due.get_or_init(|| Instant::now() + self.within.saturating_add(more));
        self.begun.set();
    }

    /// Records that another process takes over: it receives all changes until the very end.
    pub(crate) fn hand_over(&self) {
        self.hands_over.store(true, Ordering::Release);
    }

    /// Returns true if another process takes over.
    pub(crate) fn hands_over(&self) -> bool {
        self.hands_over.load(Ordering::Acquire)
    }

    pub(crate) fn has_begun(&self) -> bool {
        self.due.get().is_some()
    }

    /// Returns true if calls can no longer wait for their agents.
    pub(crate) fn is_due(&self) -> bool {
        self.due.get().is_some_and(|due| Instant::now() >= *due)
    }

    /// Waits until the drain begins.
    pub(crate) async fn begun(&self) {
        self.begun.wait().await;
    }

    /// Waits until the last responses are due.
    pub(crate) async fn answers_due(&self) {
        self.begun().await;
        if let Some(due) = self.due.get() {
            sleep_until(*due).await;
        }
    }
}
