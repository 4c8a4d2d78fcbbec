//! The connection to the client of one request, as the engine sees it.
//!
//! Only this module and the servers name Pingora. The engine writes to a [`ResponseSink`], so that
//! tests run it in process on a paused clock, and another transport can carry its responses.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, StatusCode};
use pingora::http::ResponseHeader;
use pingora::proxy::Session;
use pingora::time::fast_timeout::fast_sleep;

use super::client_address::X_REQUEST_ID;
use crate::auth::{ClientTlsInfo, network};
use crate::fault::{ClientGone, Fault};
use crate::telemetry::trace::RequestScope;

/// Status and headers of a response.
#[derive(Debug)]
pub(crate) struct ResponseHead {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
}

impl ResponseHead {
    /// Creates a head with room for a few headers.
    pub(crate) fn new(status: StatusCode) -> Self {
        Self { status, headers: HeaderMap::with_capacity(8) }
    }

    /// Adds a header, in place of earlier ones with its name.
    pub(crate) fn insert(&mut self, name: impl http::header::IntoHeaderName, value: impl Into<HeaderValue>) {
        self.headers.insert(name, value.into());
    }
}

/// The response to one request.
///
/// The head is written once and before the body. No write is dropped half-way by the callers. A
/// gRPC transport adds trailers with the last piece of the body.
pub(crate) trait ResponseSink: Send {
    /// Returns the head of the request.
    fn head(&self) -> &Parts;

    /// Writes status and headers; `end` for a response without a body.
    ///
    /// # Errors
    ///
    /// [`ClientGone`] if the client disconnected.
    fn write_head(
        &mut self,
        head: ResponseHead,
        end: bool,
    ) -> impl Future<Output = Result<(), ClientGone>> + Send;

    /// Writes a piece of the body; `end` for the last one.
    ///
    /// # Errors
    ///
    /// [`ClientGone`] if the client disconnected, or does not read.
    fn write_body(&mut self, bytes: Bytes, end: bool) -> impl Future<Output = Result<(), ClientGone>> + Send;

    /// Closes the connection after this response.
    fn close_after_response(&mut self);

    /// Ends the connection, or the HTTP/2 stream, now.
    fn shut_down(&mut self) -> impl Future<Output = ()> + Send;

    /// Waits until the client disconnects. Cancel-safe.
    fn disconnected(&mut self) -> impl Future<Output = ()> + Send;

    /// Returns true if the process is about to end.
    fn is_shutting_down(&self) -> bool;

    /// Waits, on the coarse timers of this transport.
    fn sleep(wait: Duration) -> impl Future<Output = ()> + Send;
}

/// A request with its body, and the response to it.
pub(crate) trait ClientConnection: ResponseSink {
    /// Returns the client's address; for IPv6 its network, as one client can use every address of
    /// a network.
    fn client_network(&self) -> Option<IpAddr>;

    /// Returns the facts of the TLS handshake; `None` without TLS.
    fn tls(&self) -> Option<&ClientTlsInfo>;

    /// Returns true if the connection uses TLS.
    fn is_tls(&self) -> bool;

    /// Tells a client that waits for it to send the body.
    ///
    /// # Errors
    ///
    /// [`Fault::BodyIncomplete`] if the client disconnected.
    fn continue_body(&mut self) -> impl Future<Output = Result<(), Fault>> + Send;

    /// Reads the next piece of the body; `None` at its end.
    ///
    /// # Errors
    ///
    /// [`Fault::BodyIncomplete`] if the body ends too soon.
    fn read_body(&mut self) -> impl Future<Output = Result<Option<Bytes>, Fault>> + Send;

    /// Replaces the longest time for one piece of the body, and returns the one before.
    fn set_read_timeout(&mut self, timeout: Option<Duration>) -> Option<Duration>;
}

impl ResponseSink for Session {
    fn head(&self) -> &Parts {
        self.req_header()
    }

    async fn write_head(&mut self, head: ResponseHead, end: bool) -> Result<(), ClientGone> {
        let (mut parts, ()) = http::Response::new(()).into_parts();
        (parts.status, parts.headers) = (head.status, head.headers);
        if let Some(scope) = scope(self.req_header())
            && let Ok(id) = HeaderValue::from_str(scope.id())
        {
            parts.headers.insert(X_REQUEST_ID, id);
        }
        let written = self.write_response_header(Box::new(ResponseHeader::from(parts)), end).await;
        written.map_err(|error| client_gone(&error))
    }

    async fn write_body(&mut self, bytes: Bytes, end: bool) -> Result<(), ClientGone> {
        self.write_response_body(Some(bytes), end).await.map_err(|error| client_gone(&error))
    }

    fn close_after_response(&mut self) {
        self.set_keepalive(None);
    }

    async fn shut_down(&mut self) {
        self.downstream_session.shutdown().await;
    }

    async fn disconnected(&mut self) {
        // Any byte after the client's body counts as a disconnect: Pingora cannot answer it in order.
        if let Err(error) = self.downstream_session.read_body_or_idle(true).await {
            tracing::trace!(%error, "client disconnected");
        }
    }

    fn is_shutting_down(&self) -> bool {
        self.is_process_shutting_down()
    }

    /// At least a millisecond: a shorter wait within the first millisecond of Pingora's timers
    /// underflows in them, which ends the call in a build with overflow checks (pingora-timeout
    /// 0.9.1, `timer::round_to`).
    fn sleep(wait: Duration) -> impl Future<Output = ()> + Send {
        fast_sleep(wait.max(Duration::from_millis(1)))
    }
}

impl ClientConnection for Session {
    fn client_network(&self) -> Option<IpAddr> {
        match scope(self.req_header()) {
            Some(scope) => scope.client().map(network),
            None => peer(self).map(network),
        }
    }

    fn tls(&self) -> Option<&ClientTlsInfo> {
        self.digest()?.ssl_digest.as_ref()?.extension.get()
    }

    fn is_tls(&self) -> bool {
        self.digest().is_some_and(|digest| digest.ssl_digest.is_some())
    }

    async fn continue_body(&mut self) -> Result<(), Fault> {
        self.write_continue_response().await.map_err(|_| Fault::BodyIncomplete)
    }

    async fn read_body(&mut self) -> Result<Option<Bytes>, Fault> {
        self.downstream_session.read_request_body().await.map_err(|_| Fault::BodyIncomplete)
    }

    fn set_read_timeout(&mut self, timeout: Option<Duration>) -> Option<Duration> {
        let before = self.downstream_session.get_read_timeout();
        self.downstream_session.set_read_timeout(timeout);
        before
    }
}

/// Returns the scope of a request that the gateway handles.
pub(crate) fn scope(head: &Parts) -> Option<&Arc<RequestScope>> {
    head.extensions.get::<Arc<RequestScope>>()
}

/// Returns the address that a connection comes from: of a proxy, if there is one.
pub(crate) fn peer(http: &Session) -> Option<IpAddr> {
    http.client_addr().and_then(|address| address.as_inet()).map(|address| address.ip())
}

fn client_gone(error: &pingora::Error) -> ClientGone {
    tracing::debug!(%error, "client disconnected");
    ClientGone
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Only the first timers of a process could fail: this is the only unit test that uses them.
    #[tokio::test]
    async fn wait_of_no_time_ends() {
        <Session as ResponseSink>::sleep(Duration::ZERO).await;
    }
}
