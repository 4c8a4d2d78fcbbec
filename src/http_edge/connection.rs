//! The connection to the client of one request, as the engine sees it: over HTTP, or to the
//! program that started this process or the page of operators.
//!
//! Only this folder and the servers name Pingora. The engine writes to a [`ResponseSink`], so that
//! tests run it in process on a paused clock, and another transport can carry its responses.
//!
//! On a local connection one message is one request, and the messages of its response are lines of
//! one output, which all requests of a program share. Status and headers have no place on a line, so
//! that only the JSON of a body and the data of each event are written; the rest is kept for the
//! access record. See `stdio` for the messages.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use pingora::http::ResponseHeader;
use pingora::protocols::Digest;
use pingora::protocols::l4::socket::SocketAddr;
use pingora::protocols::raw_connect::ProxyDigest;
use pingora::proxy::Session;
use pingora::server::ShutdownWatch;
use tokio::io::{AsyncWrite, AsyncWriteExt as _};
use tokio::sync::{Mutex, Semaphore, watch};

use super::access_record::ExchangeFacts;
use super::body::has_unambiguous_length;
use super::client_address::X_REQUEST_ID;
use super::http1::Http1ClientConnection;
use super::http2::Http2ClientStream;
use crate::auth::{ClientTlsInfo, network};
use crate::fault::{ClientGone, Fault};
use crate::jsonrpc::Id;
use crate::mcp::Era;
use crate::mcp::classify::SESSION_ID;
use crate::sse::Decoder;
use crate::telemetry::trace::RequestScope;

/// Status and headers of a response.
#[derive(Debug)]
pub(crate) struct ResponseHead {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
}

impl ResponseHead {
    /// Creates a head with room for six headers. For eight it would be twice as large.
    pub(crate) fn new(status: StatusCode) -> Self {
        Self { status, headers: HeaderMap::with_capacity(6) }
    }

    /// Adds a header, in place of earlier ones with its name.
    pub(crate) fn insert(&mut self, name: impl http::header::IntoHeaderName, value: impl Into<HeaderValue>) {
        self.headers.insert(name, value.into());
    }
}

/// The response to one request.
///
/// The head is written once and before the body. No write is dropped half-way by the callers. See
/// `grpc` for trailers.
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

    /// Writes status and headers with a piece of the body, in one packet where that is possible; `end` for the only
    /// piece.
    ///
    /// # Errors
    ///
    /// [`ClientGone`] if the client disconnected, or does not read.
    fn write_response(
        &mut self,
        head: ResponseHead,
        bytes: Bytes,
        end: bool,
    ) -> impl Future<Output = Result<(), ClientGone>> + Send {
        async move {
            self.write_head(head, false).await?;
            self.write_body(bytes, end).await
        }
    }

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

/// A request of a client over HTTP. One type for all ways, so that nothing is compiled twice.
pub(crate) enum HttpConnection<'a> {
    /// At a listener of this process, over HTTP/1.1.
    Http1 {
        /// The connection.
        http: &'a mut Http1ClientConnection,
        /// The signal for connections to end.
        shutdown: &'a ShutdownWatch,
    },
    /// At a listener of this process, over HTTP/2.
    Http2 {
        /// The stream of the request.
        http: &'a mut Http2ClientStream,
        /// The signal for connections to end.
        shutdown: &'a ShutdownWatch,
    },
    /// Through the proxy of another program, with modules that filter what is written.
    Proxy(&'a mut Session),
}

/// The response to a request so far.
#[derive(Debug, Default)]
pub(crate) struct ExchangeProgress {
    /// Status of the response; 0 without one.
    pub(crate) status: u16,
    /// Bytes of the request body.
    pub(crate) bytes_in: u64,
    /// Bytes of the response body.
    pub(crate) bytes_out: u64,
}

impl HttpConnection<'_> {
    fn digest(&self) -> Option<&Digest> {
        match self {
            Self::Http1 { http, .. } => Some(http.digest()),
            Self::Http2 { http, .. } => Some(http.digest()),
            Self::Proxy(session) => session.downstream_session.digest(),
        }
    }

    /// Attaches id, client address and trace of the request.
    pub(crate) fn set_scope(&mut self, scope: Arc<RequestScope>) {
        let extensions = match self {
            Self::Http1 { http, .. } => &mut http.head_mut().extensions,
            Self::Http2 { http, .. } => &mut http.head_mut().extensions,
            Self::Proxy(session) => session.downstream_session.req_header_mut().extensions_mut(),
        };
        extensions.insert(scope);
    }

    /// Returns the address that a connection comes from: of a proxy, if there is one.
    pub(crate) fn peer(&self) -> Option<IpAddr> {
        let address = self.digest()?.socket_digest.as_ref()?.peer_addr()?.as_inet()?;
        Some(address.ip())
    }

    /// Returns the address that a connection was made to.
    pub(crate) fn server_address(&self) -> Option<&SocketAddr> {
        self.digest()?.socket_digest.as_ref()?.local_addr()
    }

    /// Returns the status of the response, 0 without one, and the bytes of the bodies of request and response.
    pub(crate) fn progress(&self) -> ExchangeProgress {
        let (status, bytes_in, bytes_out) = match self {
            Self::Http1 { http, .. } => (http.status(), http.received(), http.sent()),
            Self::Http2 { http, .. } => (http.status(), http.received(), http.sent()),
            Self::Proxy(session) => {
                let http = &session.downstream_session;
                let status = http.response_written().map_or(0, |response| response.status.as_u16());
                (status, http.body_bytes_read() as u64, http.body_bytes_sent() as u64)
            }
        };
        ExchangeProgress { status, bytes_in, bytes_out }
    }

    /// Sets the end of a connection without requests, and whether another may follow at all.
    pub(crate) fn set_keep_alive(&mut self, is_reused: bool, keep_alive: Duration) {
        match self {
            Self::Http1 { http, .. } if !is_reused => http.close_after_response(),
            // The loop of the connection has its timeout, and that of HTTP/2 too.
            Self::Http1 { .. } | Self::Http2 { .. } => {}
            Self::Proxy(session) => {
                let http = &mut session.downstream_session;
                let is_reused = is_reused && has_unambiguous_length(http);
                http.set_keepalive(is_reused.then_some(keep_alive.as_secs()));
            }
        }
    }

    /// Ends the response with these trailers, over HTTP/2.
    pub(super) async fn write_trailers(&mut self, trailers: HeaderMap) -> Result<(), ClientGone> {
        match self {
            Self::Http1 { .. } => Err(ClientGone),
            Self::Http2 { http, .. } => http.write_trailers(trailers),
            Self::Proxy(session) => {
                let written = session.downstream_session.write_response_trailers(trailers).await;
                written.map_err(|error| client_gone(&error))
            }
        }
    }

    /// Sets the longest time for one piece of the body.
    pub(crate) fn set_write_stall(&mut self, limit: Duration) {
        match self {
            Self::Http1 { http, .. } => http.set_write_stall(limit),
            Self::Http2 { http, .. } => http.set_write_stall(limit),
            Self::Proxy(session) => session.downstream_session.set_write_timeout(Some(limit)),
        }
    }
}

impl ResponseSink for HttpConnection<'_> {
    fn head(&self) -> &Parts {
        match self {
            Self::Http1 { http, .. } => http.head(),
            Self::Http2 { http, .. } => http.head(),
            Self::Proxy(session) => session.downstream_session.req_header(),
        }
    }

    async fn write_head(&mut self, head: ResponseHead, end: bool) -> Result<(), ClientGone> {
        self.write_response(head, Bytes::new(), end).await
    }

    async fn write_response(
        &mut self,
        head: ResponseHead,
        bytes: Bytes,
        end: bool,
    ) -> Result<(), ClientGone> {
        match self {
            Self::Http1 { http, .. } => http.write_response(head, bytes, end).await,
            Self::Http2 { http, .. } => {
                http.send_head(head, end && bytes.is_empty())?;
                http.write_body(bytes, end).await
            }
            // Boxed: few gateways are within a proxy.
            Self::Proxy(session) => Box::pin(write_by_proxy(session, head, bytes, end)).await,
        }
    }

    async fn write_body(&mut self, bytes: Bytes, end: bool) -> Result<(), ClientGone> {
        match self {
            Self::Http1 { http, .. } => http.write_body(bytes, end).await,
            Self::Http2 { http, .. } => http.write_body(bytes, end).await,
            Self::Proxy(session) => {
                let written = session.write_response_body(Some(bytes), end).await;
                written.map_err(|error| client_gone(&error))
            }
        }
    }

    fn close_after_response(&mut self) {
        match self {
            Self::Http1 { http, .. } => http.close_after_response(),
            // Its connection is for others, too.
            Self::Http2 { .. } => {}
            Self::Proxy(session) => session.downstream_session.set_keepalive(None),
        }
    }

    async fn shut_down(&mut self) {
        match self {
            Self::Http1 { http, .. } => http.shut_down(),
            Self::Http2 { http, .. } => http.shut_down(),
            Self::Proxy(session) => session.downstream_session.shutdown().await,
        }
    }

    async fn disconnected(&mut self) {
        match self {
            Self::Http1 { http, .. } => http.disconnected().await,
            Self::Http2 { http, .. } => http.disconnected().await,
            // Any byte after the client's body counts as a disconnect: Pingora cannot answer it in order.
            Self::Proxy(session) => {
                if let Err(error) = session.downstream_session.read_body_or_idle(true).await {
                    tracing::trace!(%error, "client disconnected");
                }
            }
        }
    }

    fn is_shutting_down(&self) -> bool {
        match self {
            Self::Http1 { shutdown, .. } | Self::Http2 { shutdown, .. } => *shutdown.borrow(),
            Self::Proxy(session) => session.is_process_shutting_down(),
        }
    }
}

/// Puts the facts of a TLS handshake into the digest of a connection: as the data of a proxy, which connections of clients do
/// not have, because only crates of Pingora can set the extension of a TLS digest.
pub(crate) fn attach_client_tls(info: ClientTlsInfo) -> Arc<ProxyDigest> {
    // A response is part of it: elsewhere that of the proxy.
    let response = ResponseHeader::from(http::Response::new(()).into_parts().0);
    Arc::new(ProxyDigest::new(Box::new(response), Some(Box::new(info))))
}

/// Returns the facts of the TLS handshake in the digest of a connection; `None` without TLS.
fn attached_client_tls(connection: &Digest) -> Option<&ClientTlsInfo> {
    connection.proxy_digest.as_ref()?.user_data.as_ref()?.downcast_ref()
}

impl ClientConnection for HttpConnection<'_> {
    fn client_network(&self) -> Option<IpAddr> {
        match scope(self.head()) {
            Some(scope) => scope.client().map(network),
            None => self.peer().map(network),
        }
    }

    fn tls(&self) -> Option<&ClientTlsInfo> {
        attached_client_tls(self.digest()?)
    }

    fn is_tls(&self) -> bool {
        self.digest().is_some_and(|digest| digest.ssl_digest.is_some())
    }

    async fn continue_body(&mut self) -> Result<(), Fault> {
        match self {
            Self::Http1 { http, .. } => {
                http.continue_body().await.map_err(|ClientGone| Fault::BodyIncomplete)
            }
            // Its flow control lets clients send.
            Self::Http2 { .. } => Ok(()),
            Self::Proxy(session) => {
                let written = session.downstream_session.write_continue_response().await;
                written.map_err(|_| Fault::BodyIncomplete)
            }
        }
    }

    async fn read_body(&mut self) -> Result<Option<Bytes>, Fault> {
        match self {
            Self::Http1 { http, .. } => http.read_body().await,
            Self::Http2 { http, .. } => http.read_body().await,
            Self::Proxy(session) => {
                session.downstream_session.read_request_body().await.map_err(|_| Fault::BodyIncomplete)
            }
        }
    }

    fn set_read_timeout(&mut self, timeout: Option<Duration>) -> Option<Duration> {
        // Elsewhere a piece has no timeout: whole bodies have one.
        let Self::Proxy(session) = self else { return None };
        let before = session.downstream_session.get_read_timeout();
        session.downstream_session.set_read_timeout(timeout);
        before
    }
}

/// Writes a response by the session of a proxy.
async fn write_by_proxy(
    session: &mut Session,
    head: ResponseHead,
    bytes: Bytes,
    end: bool,
) -> Result<(), ClientGone> {
    let (mut parts, ()) = http::Response::new(()).into_parts();
    (parts.status, parts.headers) = (head.status, head.headers);
    if let Some(scope) = scope(session.downstream_session.req_header())
        && let Some(id) = unindexed_id(scope)
    {
        parts.headers.insert(X_REQUEST_ID, id);
    }
    let header = Box::new(ResponseHeader::from(parts));
    let written = async {
        session.write_response_header(header, end && bytes.is_empty()).await?;
        if bytes.is_empty() { Ok(()) } else { session.write_response_body(Some(bytes), end).await }
    };
    written.await.map_err(|error| client_gone(&error))
}

/// Returns the id of a request as the value of a header. No two are the same: HTTP/2 would keep each in the table of its connection,
/// and compare the next with all of them.
pub(super) fn unindexed_id(scope: &RequestScope) -> Option<HeaderValue> {
    let mut id = HeaderValue::from_str(scope.id()).ok()?;
    id.set_sensitive(true);
    Some(id)
}

/// Returns the scope of a request that the gateway handles.
pub(crate) fn scope(head: &Parts) -> Option<&Arc<RequestScope>> {
    head.extensions.get::<Arc<RequestScope>>()
}

fn client_gone(error: &pingora::Error) -> ClientGone {
    tracing::debug!(%error, "client disconnected");
    ClientGone
}

/// Name of the standard streams in the access log.
const STDIO: &str = "stdio";
/// Path of the requests: all agents.
const PATH: &str = "/mcp";
/// Most messages that wait for a client which does not read, before no more requests are accepted.
const MAX_WAITING_MESSAGES: usize = 64;

/// Output of all messages to the client, one on each line.
///
/// A message is written completely before the next, and its writer waits for that: a client that
/// does not read holds up the calls, and no queue grows.
pub(crate) struct MessageOutput {
    to: Mutex<Box<dyn AsyncWrite + Send + Unpin>>,
    waiting: Semaphore,
    is_closed: watch::Sender<bool>,
}

impl MessageOutput {
    /// Creates the output to a stream.
    pub(crate) fn new(to: impl AsyncWrite + Send + Unpin + 'static) -> Self {
        Self {
            to: Mutex::new(Box::new(to)),
            waiting: Semaphore::new(MAX_WAITING_MESSAGES),
            is_closed: watch::Sender::new(false),
        }
    }

    /// Writes a message as one line.
    ///
    /// # Errors
    ///
    /// [`ClientGone`] if the client has closed the stream.
    pub(crate) async fn write(&self, message: &[u8]) -> Result<(), ClientGone> {
        let _waiting = self.waiting.acquire().await.map_err(|_| ClientGone)?;
        let mut to = self.to.lock().await;
        if *self.is_closed.borrow() {
            return Err(ClientGone);
        }
        let line = line(message);
        let written = async {
            to.write_all(&line).await?;
            to.flush().await
        };
        written.await.map_err(|error| {
            tracing::debug!(%error, "client closed standard output");
            self.is_closed.send_replace(true);
            ClientGone
        })
    }

    /// Waits until few messages wait for the client to read.
    pub(crate) async fn has_room(&self) {
        // In the queue of the writers: it ends after those that wait now.
        drop(self.waiting.acquire().await);
    }

    /// Waits until the client has closed the stream. Cancel-safe.
    pub(crate) async fn closed(&self) {
        if self.is_closed.subscribe().wait_for(|is_closed| *is_closed).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// Returns a message as a line. In JSON a line end occurs only between tokens, so that a space
/// keeps the value the same: agents may have put line ends into raw members.
fn line(message: &[u8]) -> Vec<u8> {
    let mut line = Vec::with_capacity(message.len() + 1);
    line.extend(message.iter().map(|byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { *byte }));
    line.push(b'\n');
    line
}

/// A message as a request.
pub(crate) struct LocalRequest {
    /// `POST` for a message, `GET` for the stream of a session, `DELETE` for its end.
    pub(crate) method: Method,
    /// Headers that the MCP server expects for the message.
    pub(crate) headers: HeaderMap,
    /// The message.
    pub(crate) body: Bytes,
    /// Era and id of the message, for its rejection.
    pub(crate) era: Era,
    pub(crate) id: Option<Id>,
    /// True if the client expects messages in response; a notification has none.
    pub(crate) is_answered: bool,
    /// The other end of the connection.
    pub(crate) peer: LocalPeer,
}

/// The other end of a connection in process.
#[derive(Debug, Clone, Copy)]
pub(crate) enum LocalPeer {
    /// The program that started this process.
    Parent,
    /// The page of operators in a browser at this address.
    Page(Option<IpAddr>),
}

impl LocalPeer {
    /// Returns the name of the listener in the access log.
    fn listener(self) -> &'static str {
        match self {
            Self::Parent => STDIO,
            Self::Page(_) => "admin",
        }
    }

    fn address(&self) -> Option<&IpAddr> {
        match self {
            Self::Parent => None,
            Self::Page(address) => address.as_ref(),
        }
    }
}

/// Form of the response body.
enum ResponseForm {
    /// One JSON value, in pieces.
    Json(Vec<u8>),
    /// An event stream.
    Events(Decoder),
    /// A body that is no message.
    Other,
}

/// Connection of one request in process.
pub(crate) struct LocalConnection {
    head: Parts,
    body: Option<Bytes>,
    era: Era,
    id: Option<Id>,
    is_answered: bool,
    peer: LocalPeer,
    output: Arc<MessageOutput>,
    is_cancelled: watch::Sender<bool>,
    form: ResponseForm,
    session: Option<String>,
    status: u16,
    bytes_in: usize,
    bytes_out: usize,
}

impl LocalConnection {
    /// Creates the connection of a request.
    pub(crate) fn new(request: LocalRequest, output: Arc<MessageOutput>) -> Self {
        let LocalRequest { method, headers, body, era, id, is_answered, peer } = request;
        let (mut head, ()) = http::Request::new(()).into_parts();
        (head.method, head.uri, head.headers) = (method, Uri::from_static(PATH), headers);
        Self {
            head,
            bytes_in: body.len(),
            body: Some(body),
            era,
            id,
            is_answered,
            peer,
            output,
            is_cancelled: watch::Sender::new(false),
            form: ResponseForm::Other,
            session: None,
            status: 0,
            bytes_out: 0,
        }
    }

    /// Returns the signal with which the client cancels the request: nothing is written afterwards.
    pub(crate) fn cancellation(&self) -> watch::Sender<bool> {
        self.is_cancelled.clone()
    }

    /// Attaches id, client address and trace of the request.
    pub(crate) fn set_scope(&mut self, scope: Arc<RequestScope>) {
        self.head.extensions.insert(scope);
    }

    /// Returns the era of the message.
    pub(crate) fn era(&self) -> Era {
        self.era
    }

    /// Returns the id of the message.
    pub(crate) fn id(&self) -> Option<&Id> {
        self.id.as_ref()
    }

    /// Returns the id of the session that the request began.
    pub(crate) fn session(&self) -> Option<&str> {
        self.session.as_deref()
    }

    /// Returns the facts for the access log.
    pub(crate) fn facts(&self) -> ExchangeFacts<'_> {
        ExchangeFacts {
            listener: self.peer.listener().into(),
            status: self.status,
            bytes_in: self.bytes_in as u64,
            bytes_out: self.bytes_out as u64,
        }
    }

    fn check_open(&self) -> Result<(), ClientGone> {
        if *self.is_cancelled.borrow() { Err(ClientGone) } else { Ok(()) }
    }

    async fn write(&self, message: &[u8]) -> Result<(), ClientGone> {
        self.check_open()?;
        if self.is_answered { self.output.write(message).await } else { Ok(()) }
    }
}

impl ResponseSink for LocalConnection {
    fn head(&self) -> &Parts {
        &self.head
    }

    async fn write_head(&mut self, head: ResponseHead, _end: bool) -> Result<(), ClientGone> {
        self.check_open()?;
        self.status = head.status.as_u16();
        self.session = head.headers.get(SESSION_ID).and_then(|id| id.to_str().ok()).map(str::to_owned);
        let media_type = head.headers.get(CONTENT_TYPE).map(http::HeaderValue::as_bytes);
        self.form = match media_type {
            Some(b"application/json") => ResponseForm::Json(Vec::new()),
            // The events are those of the gateway, which are bounded where they are made.
            Some(b"text/event-stream") => ResponseForm::Events(Decoder::new(usize::MAX)),
            Some(_) | None => ResponseForm::Other,
        };
        Ok(())
    }

    async fn write_body(&mut self, bytes: Bytes, end: bool) -> Result<(), ClientGone> {
        self.check_open()?;
        self.bytes_out += bytes.len();
        match &mut self.form {
            ResponseForm::Json(pieces) if end && pieces.is_empty() => self.write(&bytes).await,
            ResponseForm::Json(pieces) => {
                pieces.extend_from_slice(&bytes);
                let message = std::mem::take(pieces);
                if end {
                    return self.write(&message).await;
                }
                self.form = ResponseForm::Json(message);
                Ok(())
            }
            ResponseForm::Events(events) => {
                for event in events.push(&bytes).map_err(|_| ClientGone)? {
                    self.write(&event.data).await?;
                }
                Ok(())
            }
            ResponseForm::Other => Ok(()),
        }
    }

    fn close_after_response(&mut self) {}

    async fn shut_down(&mut self) {
        self.is_cancelled.send_replace(true);
    }

    async fn disconnected(&mut self) {
        let mut cancelled = self.is_cancelled.subscribe();
        tokio::select! {
            Ok(_) = cancelled.wait_for(|is_cancelled| *is_cancelled) => {}
            () = self.output.closed() => {}
        }
    }

    fn is_shutting_down(&self) -> bool {
        false
    }
}

impl ClientConnection for LocalConnection {
    fn client_network(&self) -> Option<IpAddr> {
        self.peer.address().copied()
    }

    fn tls(&self) -> Option<&ClientTlsInfo> {
        None
    }

    fn is_tls(&self) -> bool {
        false
    }

    async fn continue_body(&mut self) -> Result<(), Fault> {
        Ok(())
    }

    async fn read_body(&mut self) -> Result<Option<Bytes>, Fault> {
        Ok(self.body.take())
    }

    fn set_read_timeout(&mut self, _timeout: Option<Duration>) -> Option<Duration> {
        None
    }
}

#[cfg(test)]
mod tests {
    use http::StatusCode;
    use tokio::io::{AsyncReadExt as _, duplex};

    use super::*;

    fn connection(output: &Arc<MessageOutput>, is_answered: bool) -> LocalConnection {
        let request = LocalRequest {
            method: Method::POST,
            headers: HeaderMap::new(),
            body: Bytes::new(),
            era: Era::Legacy,
            id: None,
            is_answered,
            peer: LocalPeer::Parent,
        };
        LocalConnection::new(request, output.clone())
    }

    fn head(media_type: &'static str) -> ResponseHead {
        let mut head = ResponseHead::new(StatusCode::OK);
        head.insert(CONTENT_TYPE, http::HeaderValue::from_static(media_type));
        head
    }

    #[tokio::test]
    async fn messages_are_whole_lines() {
        let (to, mut from) = duplex(4096);
        let output = Arc::new(MessageOutput::new(to));
        let mut json = connection(&output, true);
        json.write_head(head("application/json"), false).await.unwrap();
        json.write_body(Bytes::from("{\"a\":\r\n"), false).await.unwrap();
        json.write_body(Bytes::from("1}"), true).await.unwrap();
        let mut events = connection(&output, true);
        events.write_head(head("text/event-stream"), false).await.unwrap();
        for piece in [": alive\n\nda", "ta: {\"b\":2}\n\nretry: 5\n\n", "data: {\"c\":3}\n\n"] {
            events.write_body(Bytes::from(piece), false).await.unwrap();
        }
        let mut notified = connection(&output, false);
        notified.write_head(head("application/json"), false).await.unwrap();
        notified.write_body(Bytes::from("{}"), true).await.unwrap();
        drop((json, events, notified, output));
        let mut written = String::new();
        from.read_to_string(&mut written).await.unwrap();
        assert_eq!(written, "{\"a\":  1}\n{\"b\":2}\n{\"c\":3}\n");
    }

    #[tokio::test]
    async fn nothing_follows_a_cancellation() {
        let (to, mut from) = duplex(4096);
        let output = Arc::new(MessageOutput::new(to));
        let mut cancelled = connection(&output, true);
        cancelled.write_head(head("application/json"), false).await.unwrap();
        cancelled.cancellation().send_replace(true);
        cancelled.disconnected().await;
        assert!(cancelled.write_body(Bytes::from("{}"), true).await.is_err());
        drop((cancelled, output));
        let mut written = String::new();
        from.read_to_string(&mut written).await.unwrap();
        assert_eq!(written, "");
    }

    #[tokio::test]
    async fn client_that_does_not_read_leaves_no_room() {
        let (to, from) = duplex(1);
        let output = Arc::new(MessageOutput::new(to));
        let mut writers = tokio::task::JoinSet::new();
        for _ in 0..MAX_WAITING_MESSAGES {
            let output = output.clone();
            writers.spawn(async move { output.write(b"{}").await });
        }
        while output.waiting.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        let room = tokio::time::timeout(Duration::from_millis(10), output.has_room());
        assert!(room.await.is_err());
        drop(from);
        output.closed().await;
        output.has_room().await;
        while let Some(written) = writers.join_next().await {
            assert!(written.unwrap().is_err());
        }
    }
}
