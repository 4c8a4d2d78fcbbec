//! How an answer goes out: JSON first, an event stream when there is something to say on the way.
//!
//! Writes happen one after the other and are never dropped half-way. Not here: what is said.

use std::time::Duration;

use bytes::Bytes;
use http::header::{
    ALLOW, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, ETAG, HeaderName, IF_NONE_MATCH, RETRY_AFTER,
    TRANSFER_ENCODING, WWW_AUTHENTICATE,
};
use http::{HeaderValue, Method, StatusCode, Version};
use pingora::http::ResponseHeader;
use pingora::proxy::Session;
use sha2::{Digest as _, Sha256};

use super::host_policy::cors;
use crate::fault::Fault;
use crate::jsonrpc::{Id, write_error};
use crate::mcp::{Era, headers::SESSION_ID};
use crate::sse::encoder;

/// What a client that cannot be reached any more is told: nothing.
#[derive(Debug)]
pub(super) struct ClientGone;

impl From<Box<pingora::Error>> for ClientGone {
    fn from(error: Box<pingora::Error>) -> Self {
        tracing::debug!(%error, "client went away");
        Self
    }
}

/// Which forms of an answer a client takes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Accepts {
    /// One JSON value.
    pub(super) json: bool,
    /// An event stream.
    pub(super) stream: bool,
}

/// Longest wait for the end of the connection of a client that is given up.
const CLOSED_WITHIN: Duration = Duration::from_secs(1);

const JSON: HeaderValue = HeaderValue::from_static("application/json");

pub(super) type Headers = Vec<(HeaderName, HeaderValue)>;

/// Answers without a body.
pub(super) async fn empty(
    http: &mut Session,
    status: StatusCode,
    headers: Headers,
) -> Result<(), ClientGone> {
    let mut response = ResponseHeader::build_no_case(status, Some(8))?;
    if !matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED) {
        response.insert_header(CONTENT_LENGTH, "0")?;
    }
    for (name, value) in headers.into_iter().chain(cors(http.req_header())) {
        response.append_header(name, value)?;
    }
    http.write_response_header(Box::new(response), true).await?;
    Ok(())
}

/// Answers with one JSON value.
pub(super) async fn json(
    http: &mut Session,
    status: StatusCode,
    body: Vec<u8>,
    session: Option<&str>,
) -> Result<(), ClientGone> {
    let mut response = ResponseHeader::build_no_case(status, Some(8))?;
    response.insert_header(CONTENT_TYPE, JSON)?;
    response.insert_header(CONTENT_LENGTH, body.len())?;
    if let Some(session) = session {
        response.insert_header(SESSION_ID, session)?;
    }
    for (name, value) in cors(http.req_header()) {
        response.insert_header(name, value)?;
    }
    http.write_response_header(Box::new(response), false).await?;
    http.write_response_body(Some(Bytes::from(body)), true).await?;
    Ok(())
}

/// Begins an answer whose head is known: its body follows. Without a length it goes in chunks, if the client knows them.
pub(super) async fn begin(
    http: &mut Session,
    status: StatusCode,
    headers: Headers,
    length: Option<usize>,
) -> Result<(), ClientGone> {
    let mut response = ResponseHeader::build_no_case(status, Some(8))?;
    for (name, value) in headers.into_iter().chain(cors(http.req_header())) {
        response.append_header(name, value)?;
    }
    match length {
        Some(length) => response.insert_header(CONTENT_LENGTH, length)?,
        None => use_chunked_encoding(http, &mut response)?,
    }
    http.write_response_header(Box::new(response), length == Some(0)).await?;
    Ok(())
}

/// Sends a piece of the body of an answer that has begun.
pub(super) async fn write_chunk(http: &mut Session, bytes: Bytes, end: bool) -> Result<(), ClientGone> {
    http.write_response_body(Some(bytes), end).await?;
    Ok(())
}

/// Breaks an answer off that has begun, so that its client sees that it is not whole.
pub(super) async fn abort(http: &mut Session) -> ClientGone {
    http.set_keepalive(None);
    http.downstream_session.shutdown().await;
    ClientGone
}

/// Ends the connection, or the stream of HTTP/2, of a client that has left or does not read: nothing that is still
/// unsent is waited for.
pub(super) async fn give_up(http: &mut Session) {
    http.set_keepalive(None);
    let closed = tokio::time::timeout(CLOSED_WITHIN, http.downstream_session.shutdown()).await;
    if closed.is_err() {
        tracing::debug!("connection of a client that does not read is not closed in time");
    }
}

/// Says how the end of a body of unknown length is told.
fn use_chunked_encoding(http: &mut Session, response: &mut ResponseHeader) -> Result<(), ClientGone> {
    match http.req_header().version {
        Version::HTTP_11 => {
            response.insert_header(TRANSFER_ENCODING, HeaderValue::from_static("chunked"))?;
        }
        // Without chunks only the end of the connection ends a stream.
        Version::HTTP_10 => http.set_keepalive(None),
        _ => {}
    }
    Ok(())
}

/// Answers with a document that a client may keep for a while, under a tag that says which it has: whole, or that it is the one that
/// the client has, or its head alone.
pub(super) async fn cacheable_json(
    http: &mut Session,
    media_type: HeaderValue,
    body: Vec<u8>,
    headers: Headers,
) -> Result<(), ClientGone> {
    let digest: String = Sha256::digest(&body).iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    let tag = format!("\"{digest}\"");
    let request = http.req_header();
    let is_kept = request.headers.get_all(IF_NONE_MATCH).iter().any(|value| names(value, &tag));
    let is_head = is_kept || request.method == Method::HEAD;
    let status = if is_kept { StatusCode::NOT_MODIFIED } else { StatusCode::OK };
    let mut response = ResponseHeader::build_no_case(status, Some(10))?;
    if !is_kept {
        response.insert_header(CONTENT_TYPE, media_type)?;
        response.insert_header(CONTENT_LENGTH, body.len())?;
    }
    response.insert_header(ETAG, tag)?;
    response.insert_header(CACHE_CONTROL, HeaderValue::from_static("private, max-age=60"))?;
    for (name, value) in cors(request).into_iter().chain(headers) {
        response.append_header(name, value)?;
    }
    http.write_response_header(Box::new(response), is_head).await?;
    if !is_head {
        http.write_response_body(Some(Bytes::from(body)), true).await?;
    }
    Ok(())
}

/// Whether a list of tags has this one. Weak ones are as good here (RFC 9110 §13.1.2).
fn names(tags: &HeaderValue, tag: &str) -> bool {
    let tags = tags.to_str().unwrap_or_default().split(',').map(str::trim);
    tags.map(|known| known.strip_prefix("W/").unwrap_or(known)).any(|known| known == "*" || known == tag)
}

/// Answers with plain text, and nothing that a browser could take for more.
pub(super) async fn text(http: &mut Session, text: String) -> Result<(), ClientGone> {
    let mut response = ResponseHeader::build_no_case(StatusCode::OK, Some(8))?;
    response.insert_header(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"))?;
    response.insert_header("x-content-type-options", HeaderValue::from_static("nosniff"))?;
    response.insert_header(CONTENT_LENGTH, text.len())?;
    http.write_response_header(Box::new(response), false).await?;
    http.write_response_body(Some(Bytes::from(text)), true).await?;
    Ok(())
}

/// Answers with one JSON value, as an event stream where the client takes nothing else.
pub(super) async fn reply(
    http: &mut Session,
    takes: Accepts,
    body: Vec<u8>,
    session: Option<&str>,
) -> Result<(), ClientGone> {
    if takes.json {
        return json(http, StatusCode::OK, body, session).await;
    }
    SseWriter::begin(http, session).await?.end(Some(&body)).await
}

/// Answers with a fault.
pub(super) async fn fault(
    http: &mut Session,
    fault: &Fault,
    era: Era,
    id: Option<&Id>,
) -> Result<(), ClientGone> {
    let data = fault.data();
    let body = write_error(id, fault.on_wire(era).code, &fault.to_string(), data.as_deref());
    refused(http, fault, era, body).await
}

/// Answers with the status and the headers of a fault, and what is written of it already.
pub(super) async fn refused(
    http: &mut Session,
    fault: &Fault,
    era: Era,
    body: Vec<u8>,
) -> Result<(), ClientGone> {
    let wire = fault.on_wire(era);
    let mut response = ResponseHeader::build_no_case(wire.status, Some(8))?;
    response.insert_header(CONTENT_TYPE, JSON)?;
    response.insert_header(CONTENT_LENGTH, body.len())?;
    for (name, value) in fault_headers(fault, wire.status) {
        response.insert_header(name, value)?;
    }
    // A page that may not use the gateway may not read the refusal either.
    if !matches!(fault, Fault::OriginRefused(_) | Fault::HostRefused(_)) {
        for (name, value) in cors(http.req_header()) {
            response.insert_header(name, value)?;
        }
    }
    http.write_response_header(Box::new(response), false).await?;
    http.write_response_body(Some(Bytes::from(body)), true).await?;
    Ok(())
}

/// What the headers of an answer say of a fault.
pub(super) fn fault_headers(fault: &Fault, status: StatusCode) -> Headers {
    let mut headers = Vec::new();
    if let Fault::MethodNotAllowed(methods) = fault {
        headers.push((ALLOW, HeaderValue::from_static(methods)));
    }
    if let Fault::Unauthenticated(challenge) | Fault::InsufficientScope(challenge) = fault
        && !challenge.is_empty()
        && let Ok(challenge) = HeaderValue::from_str(challenge)
    {
        headers.push((WWW_AUTHENTICATE, challenge));
    }
    match fault {
        Fault::RateLimited(seconds) => headers.push((RETRY_AFTER, HeaderValue::from(*seconds))),
        _ if matches!(status, StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS) => {
            headers.push((RETRY_AFTER, HeaderValue::from_static("1")));
        }
        _ => {}
    }
    headers
}

/// Waits until the client goes away. May be dropped and called again.
pub(super) async fn wait_for_disconnect(http: &mut Session) {
    // Anything that a client sends after its body counts as going away: Pingora cannot answer it in order.
    if let Err(error) = http.downstream_session.read_body_or_idle(true).await {
        tracing::trace!(%error, "client left");
    }
}

/// Answers with a whole event stream that is known already, in one piece.
pub(super) async fn events(http: &mut Session, stream: Vec<u8>) -> Result<(), ClientGone> {
    let mut response = stream_header(http, None)?;
    response.insert_header(CONTENT_LENGTH, stream.len())?;
    http.write_response_header(Box::new(response), false).await?;
    http.write_response_body(Some(Bytes::from(stream)), true).await?;
    Ok(())
}

fn stream_header(http: &Session, session: Option<&str>) -> Result<ResponseHeader, ClientGone> {
    let mut response = ResponseHeader::build_no_case(StatusCode::OK, Some(8))?;
    response.insert_header(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"))?;
    response.insert_header(CACHE_CONTROL, HeaderValue::from_static("no-cache, no-transform"))?;
    response.insert_header("x-accel-buffering", HeaderValue::from_static("no"))?;
    if let Some(session) = session {
        response.insert_header(SESSION_ID, session)?;
    }
    for (name, value) in cors(http.req_header()) {
        response.insert_header(name, value)?;
    }
    Ok(response)
}

/// An event stream to a client.
pub(super) struct SseWriter<'s> {
    http: &'s mut Session,
}

impl<'s> SseWriter<'s> {
    /// Begins a stream.
    pub(super) async fn begin(http: &'s mut Session, session: Option<&str>) -> Result<Self, ClientGone> {
        let mut response = stream_header(http, session)?;
        use_chunked_encoding(http, &mut response)?;
        http.write_response_header(Box::new(response), false).await?;
        Ok(Self { http })
    }

    /// Sends what is encoded already.
    pub(super) async fn write(&mut self, encoded: Vec<u8>, end: bool) -> Result<(), ClientGone> {
        self.http.write_response_body(Some(Bytes::from(encoded)), end).await?;
        Ok(())
    }

    /// Sends one message.
    pub(super) async fn send(&mut self, json: &[u8]) -> Result<(), ClientGone> {
        let mut encoded = Vec::with_capacity(json.len() + 16);
        encoder::event(&mut encoded, json);
        self.write(encoded, false).await
    }

    /// Sends the last message and ends the stream.
    pub(super) async fn end(mut self, json: Option<&[u8]>) -> Result<(), ClientGone> {
        let mut encoded = Vec::new();
        if let Some(json) = json {
            encoder::event(&mut encoded, json);
        }
        self.write(encoded, true).await
    }

    /// Tells a client that the stream is alive.
    pub(super) async fn keep_alive(&mut self) -> Result<(), ClientGone> {
        let mut encoded = Vec::new();
        encoder::comment(&mut encoded, "");
        self.write(encoded, false).await
    }

    /// Asks a client to come back after a while, and ends the stream.
    pub(super) async fn end_with_retry(mut self, after: Duration) -> Result<(), ClientGone> {
        let mut encoded = Vec::new();
        encoder::retry(&mut encoded, u64::try_from(after.as_millis()).unwrap_or(u64::MAX));
        self.write(encoded, true).await
    }

    /// Waits until the client goes away.
    pub(super) async fn wait_for_disconnect(&mut self) {
        wait_for_disconnect(self.http).await;
    }

    /// Whether the process is about to end.
    pub(super) fn is_shutting_down(&self) -> bool {
        self.http.is_process_shutting_down()
    }
}
