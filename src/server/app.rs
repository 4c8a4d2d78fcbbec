//! An application behind listeners: it serves requests, whichever version of HTTP their connections have.
//!
//! See `http1` and `http2` for the connections.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use super::shutdown::{FreshConnection, ListenerShutdown};
use crate::fault::Fault;
use crate::http_edge::HttpConnection;
use crate::jsonrpc::write_error;
use crate::mcp::Era;
use crate::telemetry::metrics::Metrics;

/// An application that serves requests over HTTP.
pub(crate) trait HttpApp: Send + Sync + 'static {
    /// Returns the limits of its connections.
    fn limits(&self) -> &HttpLimits;

    /// Serves one request, of which the head was read.
    fn serve<'a>(&'a self, request: &'a mut HttpConnection<'_>) -> ServedRequest<'a>;
}

/// A request that is served. Boxed, so that an idle connection is not larger by it, and without its type, through which the compiler
/// would look for each connection.
pub(crate) type ServedRequest<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// The limits of the connections of an application.
pub(crate) struct HttpLimits {
    /// The longest head of a request, in bytes.
    pub(super) head_bytes: usize,
    /// The longest time for the first bytes of HTTP/2, and for the head of a first request, from the moment of the connection or of the
    /// end of its TLS handshake.
    pub(super) head_read: Duration,
    /// The longest time of a connection without requests.
    pub(super) keep_alive: Duration,
    /// The maximum number of concurrent requests on a connection of HTTP/2.
    pub(super) streams: u32,
    /// True if the end of the process waits until each connection has had its first request.
    awaits_first: bool,
    /// The error for a head that is too long, as JSON.
    pub(super) too_large: Vec<u8>,
    pub(super) metrics: Arc<Metrics>,
}

impl HttpLimits {
    /// Creates limits for clients of agents: `limits.header`, `limits.header_read` and `limits.keep_alive`.
    pub(crate) fn new(limits: &crate::config::Limits, streams: u32, metrics: Arc<Metrics>) -> Self {
        let fault = Fault::HeaderTooLarge(limits.header);
        let too_large = write_error(None, fault.on_wire(Era::Legacy).code, &fault.to_string(), None);
        Self {
            head_bytes: limits.header,
            head_read: limits.header_read,
            keep_alive: limits.keep_alive,
            streams,
            awaits_first: true,
            too_large,
            metrics,
        }
    }

    /// Returns these limits for operators: the process ends without their requests, and after so short a time their connections.
    pub(crate) fn for_operators(self, keep_alive: Duration) -> Self {
        Self { awaits_first: false, keep_alive, ..self }
    }

    /// Counts a connection until its first request has come, if the process waits for that.
    pub(crate) fn fresh(&self, listeners: &ListenerShutdown) -> Option<FreshConnection> {
        self.awaits_first.then(|| listeners.fresh())
    }

    /// Ends the connections after their listener. One that has not sent a head by then is dropped, also one that was accepted this
    /// moment.
    pub(crate) async fn end_connections(&self, listeners: &ListenerShutdown) {
        if self.awaits_first {
            listeners.end_connections(self.head_read).await;
        }
    }
}
