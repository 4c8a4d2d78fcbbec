//! Response writing: JSON first, an event stream when there are messages before the response.
//!
//! Writes are sequential and are never dropped half-way.

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

/// The client disconnected; no response can be written.
#[derive(Debug)]
pub(super) struct ClientGone;

impl From<Box<pingora::Error>> for ClientGone {
    fn from(error: Box<pingora::Error>) -> Self {
        tracing::debug!(%error, "client disconnected");
        Self
    }
}

/// Response forms that a client accepts.
#[derive(Debug, Clone, Copy)]
pub(super) struct Accepts {
    /// One JSON value.
    pub(super) json: bool,
    /// An event stream.
    pub(super) stream: bool,
}

/// Longest wait for the end of the connection to a client that disconnected or stopped reading.
const CLOSED_WITHIN: Duration = Duration::from_secs(1);

const JSON: HeaderValue = HeaderValue::from_static("application/json");

pub(super) type Headers = Vec<(HeaderName, HeaderValue)>;

/// Sends a response without a body.
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

/// Sends a response with one JSON value.
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

/// Begins a response with this head; the body follows. Without a length the body is chunked, if the
/// client's HTTP version knows chunks.
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

/// Sends a chunk of the body of a response that has begun.
pub(super) async fn write_chunk(http: &mut Session, bytes: Bytes, end: bool) -> Result<(), ClientGone> {
    http.write_response_body(Some(bytes), end).await?;
    Ok(())
}

/// Aborts a response that has begun, so that its client sees that it is incomplete.
pub(super) async fn abort(http: &mut Session) -> ClientGone {
    http.set_keepalive(None);
    http.downstream_session.shutdown().await;
    ClientGone
}

/// Ends the connection, or the HTTP/2 stream, of a client that has disconnected or does not read:
/// unsent data is not waited for.
pub(super) async fn give_up(http: &mut Session) {
    http.set_keepalive(None);
    let closed = tokio::time::timeout(CLOSED_WITHIN, http.downstream_session.shutdown()).await;
    if closed.is_err() {
        tracing::debug!("timed out closing connection of client that does not read");
    }
}

/// Sets how the end of a body of unknown length is marked.
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

/// Sends a cacheable document with an `ETag`: whole, or 304 if the client has this version, or the
/// head alone.
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

/// Returns true if a list of tags has this one. Weak tags match too (RFC 9110 §13.1.2).
fn names(tags: &HeaderValue, tag: &str) -> bool {
    let tags = tags.to_str().unwrap_or_default().split(',').map(str::trim);
    tags.map(|known| known.strip_prefix("W/").unwrap_or(known)).any(|known| known == "*" || known == tag)
}

/// Sends plain text with headers that keep browsers from guessing another type.
pub(super) async fn text(http: &mut Session, text: String) -> Result<(), ClientGone> {
    let mut response = ResponseHeader::build_no_case(StatusCode::OK, Some(8))?;
    response.insert_header(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"))?;
    response.insert_header("x-content-type-options", HeaderValue::from_static("nosniff"))?;
    response.insert_header(CONTENT_LENGTH, text.len())?;
    http.write_response_header(Box::new(response), false).await?;
    http.write_response_body(Some(Bytes::from(text)), true).await?;
    Ok(())
}

/// Sends one JSON value, as an event stream if the client accepts only that.
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

/// Sends a fault.
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

/// Sends the status and the headers of a fault with an encoded body.
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
    // A page from a refused origin may not read the refusal either.
    if !matches!(fault, Fault::OriginRefused(_) | Fault::HostRefused(_)) {
        for (name, value) in cors(http.req_header()) {
            response.insert_header(name, value)?;
        }
    }
    http.write_response_header(Box::new(response), false).await?;
    http.write_response_body(Some(Bytes::from(body)), true).await?;
    Ok(())
}

/// Returns the headers that a fault adds to its response.
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

/// Waits until the client disconnects. Cancel-safe.
pub(super) async fn wait_for_disconnect(http: &mut Session) {
    // Any byte after the client's body counts as a disconnect: Pingora cannot answer it in order.
    if let Err(error) = http.downstream_session.read_body_or_idle(true).await {
        tracing::trace!(%error, "client disconnected");
    }
}

/// Sends a complete event stream in one piece.
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

/// Event stream to a client.
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

    /// Writes encoded events.
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

    /// Sends a comment that keeps the stream alive.
    pub(super) async fn keep_alive(&mut self) -> Result<(), ClientGone> {
        let mut encoded = Vec::new();
        encoder::comment(&mut encoded, "");
        self.write(encoded, false).await
    }

    /// Sends the time after which the client should reconnect, and ends the stream.
    pub(super) async fn end_with_retry(mut self, after: Duration) -> Result<(), ClientGone> {
        let mut encoded = Vec::new();
        encoder::retry(&mut encoded, u64::try_from(after.as_millis()).unwrap_or(u64::MAX));
        self.write(encoded, true).await
    }

    /// Waits until the client disconnects.
    pub(super) async fn wait_for_disconnect(&mut self) {
        wait_for_disconnect(self.http).await;
    }

    /// Returns true if the process is about to end.
    pub(super) fn is_shutting_down(&self) -> bool {
        self.http.is_process_shutting_down()
    }
}
