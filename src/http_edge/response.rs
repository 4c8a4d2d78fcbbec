//! Response writing: JSON first, an event stream when there are messages before the response.
//!
//! Writes are sequential and are never dropped half-way.

use std::time::Duration;

use bytes::Bytes;
use data_encoding::HEXLOWER;
use http::header::{
    ALLOW, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, ETAG, HeaderName, IF_NONE_MATCH, RETRY_AFTER,
    TRANSFER_ENCODING, WWW_AUTHENTICATE,
};
use http::{HeaderValue, Method, StatusCode, Version};
use sha2::{Digest as _, Sha256};

use super::access_record::AccessRecord;
use super::body::drain_before_close;
use super::connection::{ClientConnection, ResponseHead, ResponseSink};
use super::host_policy::cors;
use crate::fault::{ClientGone, Fault};
use crate::jsonrpc::{Id, write_error};
use crate::mcp::Era;
use crate::mcp::classify::SESSION_ID;
use crate::sse;
use crate::telemetry::label::{Outcome, Refusal};
use crate::telemetry::metrics::Metrics;

/// Response forms that a client accepts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Accepts {
    /// One JSON value.
    pub(crate) json: bool,
    /// An event stream.
    pub(crate) stream: bool,
}

/// Longest wait for the end of the connection to a client that disconnected or stopped reading.
const CLOSED_WITHIN: Duration = Duration::from_secs(1);

const JSON: HeaderValue = HeaderValue::from_static("application/json");

pub(crate) type Headers = Vec<(HeaderName, HeaderValue)>;

/// Sends a response without a body.
pub(crate) async fn empty(
    http: &mut impl ResponseSink,
    status: StatusCode,
    headers: Headers,
) -> Result<(), ClientGone> {
    let mut response = ResponseHead::new(status);
    if !matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED) {
        response.insert(CONTENT_LENGTH, 0_usize);
    }
    for (name, value) in headers.into_iter().chain(cors(http.head())) {
        response.headers.append(name, value);
    }
    http.write_head(response, true).await
}

/// Sends a response with one JSON value.
pub(crate) async fn json(
    http: &mut impl ResponseSink,
    status: StatusCode,
    body: Vec<u8>,
    session: Option<&str>,
) -> Result<(), ClientGone> {
    let mut response = ResponseHead::new(status);
    response.insert(CONTENT_TYPE, JSON);
    response.insert(CONTENT_LENGTH, body.len());
    if let Some(session) = session.and_then(|id| HeaderValue::from_str(id).ok()) {
        response.insert(SESSION_ID, session);
    }
    for (name, value) in cors(http.head()) {
        response.insert(name, value);
    }
    http.write_response(response, Bytes::from(body), true).await
}

/// Sends a response with this head and body.
pub(crate) async fn whole(
    http: &mut impl ResponseSink,
    status: StatusCode,
    headers: Headers,
    body: Bytes,
) -> Result<(), ClientGone> {
    if body.is_empty() {
        return begin(http, status, headers, Some(0)).await;
    }
    let response = head_of(http, status, headers, Some(body.len()));
    http.write_response(response, body, true).await
}

/// Begins a response with this head; the body follows. Without a length the body is chunked, if the
/// client's HTTP version knows chunks.
pub(crate) async fn begin(
    http: &mut impl ResponseSink,
    status: StatusCode,
    headers: Headers,
    length: Option<usize>,
) -> Result<(), ClientGone> {
    let response = head_of(http, status, headers, length);
    http.write_head(response, length == Some(0)).await
}

fn head_of(
    http: &mut impl ResponseSink,
    status: StatusCode,
    headers: Headers,
    length: Option<usize>,
) -> ResponseHead {
    let mut response = ResponseHead::new(status);
    for (name, value) in headers.into_iter().chain(cors(http.head())) {
        response.headers.append(name, value);
    }
    match length {
        Some(length) => response.insert(CONTENT_LENGTH, length),
        None => use_chunked_encoding(http, &mut response),
    }
    response
}

/// Aborts a response that has begun, so that its client sees that it is incomplete.
pub(crate) async fn abort(http: &mut impl ResponseSink) -> ClientGone {
    http.close_after_response();
    http.shut_down().await;
    ClientGone
}

/// Ends the connection, or the HTTP/2 stream, of a client that has disconnected or does not read:
/// unsent data is not waited for.
pub(crate) async fn give_up(http: &mut impl ResponseSink) {
    http.close_after_response();
    let closed = tokio::time::timeout(CLOSED_WITHIN, http.shut_down()).await;
    if closed.is_err() {
        tracing::debug!("timed out closing connection of client that does not read");
    }
}

/// Sets how the end of a body of unknown length is marked.
fn use_chunked_encoding(http: &mut impl ResponseSink, response: &mut ResponseHead) {
    match http.head().version {
        Version::HTTP_11 => {
            response.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        }
        // Without chunks only the end of the connection ends a stream.
        Version::HTTP_10 => http.close_after_response(),
        _ => {}
    }
}

/// Sends a cacheable document with an `ETag`: whole, or 304 if the client has this version, or the
/// head alone.
pub(crate) async fn cacheable_json(
    http: &mut impl ResponseSink,
    media_type: HeaderValue,
    body: Vec<u8>,
    headers: Headers,
) -> Result<(), ClientGone> {
    let digest = Sha256::digest(&body);
    let tag = format!("\"{}\"", HEXLOWER.encode(digest.get(..16).unwrap_or_default()));
    let request = http.head();
    let is_kept = request.headers.get_all(IF_NONE_MATCH).iter().any(|value| names(value, &tag));
    let is_head = is_kept || request.method == Method::HEAD;
    let status = if is_kept { StatusCode::NOT_MODIFIED } else { StatusCode::OK };
    let mut response = ResponseHead::new(status);
    if !is_kept {
        response.insert(CONTENT_TYPE, media_type);
        response.insert(CONTENT_LENGTH, body.len());
    }
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        response.insert(ETAG, tag);
    }
    response.insert(CACHE_CONTROL, HeaderValue::from_static("private, max-age=60"));
    for (name, value) in cors(request).into_iter().chain(headers) {
        response.headers.append(name, value);
    }
    if is_head {
        return http.write_head(response, true).await;
    }
    http.write_response(response, Bytes::from(body), true).await
}

/// Returns true if a list of tags has this one. Weak tags match too (RFC 9110 §13.1.2).
fn names(tags: &HeaderValue, tag: &str) -> bool {
    let tags = tags.to_str().unwrap_or_default().split(',').map(str::trim);
    tags.map(|known| known.strip_prefix("W/").unwrap_or(known)).any(|known| known == "*" || known == tag)
}

/// Sends plain text with headers that keep browsers from guessing another type.
pub(crate) async fn text(http: &mut impl ResponseSink, text: String) -> Result<(), ClientGone> {
    let mut response = ResponseHead::new(StatusCode::OK);
    response.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response.insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    response.insert(CONTENT_LENGTH, text.len());
    http.write_response(response, Bytes::from(text), true).await
}

/// Sends one JSON value, as an event stream if the client accepts only that.
pub(crate) async fn reply(
    http: &mut impl ResponseSink,
    takes: Accepts,
    body: Vec<u8>,
    session: Option<&str>,
) -> Result<(), ClientGone> {
    if takes.json {
        return json(http, StatusCode::OK, body, session).await;
    }
    let mut encoded = Vec::new();
    sse::write_event(&mut encoded, &body);
    SseWriter::begin_with(http, session, encoded, true).await.map(drop)
}

/// Sends a fault.
pub(crate) async fn fault(
    http: &mut impl ResponseSink,
    fault: &Fault,
    era: Era,
    id: Option<&Id>,
) -> Result<(), ClientGone> {
    let data = fault.data();
    let body = write_error(id, fault.on_wire(era).code, &fault.to_string(), data.as_deref());
    refused(http, fault, era, body).await
}

/// Sends the status and the headers of a fault with an encoded body.
pub(crate) async fn refused(
    http: &mut impl ResponseSink,
    fault: &Fault,
    era: Era,
    body: Vec<u8>,
) -> Result<(), ClientGone> {
    let wire = fault.on_wire(era);
    let mut response = ResponseHead::new(wire.status);
    response.insert(CONTENT_TYPE, JSON);
    response.insert(CONTENT_LENGTH, body.len());
    for (name, value) in fault_headers(fault, wire.status) {
        response.insert(name, value);
    }
    // A page from a refused origin may not read the refusal either.
    if !matches!(fault, Fault::OriginRefused(_) | Fault::HostRefused(_)) {
        for (name, value) in cors(http.head()) {
            response.insert(name, value);
        }
    }
    http.write_response(response, Bytes::from(body), true).await
}

/// Rejects a push without a valid credential; its body has at most `limit` bytes.
pub(crate) async fn reject_unproven_push(
    http: &mut impl ClientConnection,
    record: &mut AccessRecord,
    metrics: &Metrics,
    limit: usize,
) -> Result<(), ClientGone> {
    const BEARER: (HeaderName, HeaderValue) = (WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    (record.outcome, record.fault) = (Outcome::Refused, Some("push_unproven"));
    metrics.refused(Refusal::Unauthenticated);
    http.close_after_response();
    empty(http, StatusCode::UNAUTHORIZED, vec![BEARER]).await?;
    drain_before_close(http, limit).await;
    Ok(())
}

/// Returns the headers that a fault adds to its response.
pub(crate) fn fault_headers(fault: &Fault, status: StatusCode) -> Headers {
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

/// Sends a complete event stream in one piece.
pub(crate) async fn events(http: &mut impl ResponseSink, stream: Vec<u8>) -> Result<(), ClientGone> {
    let mut response = stream_header(http, None);
    response.insert(CONTENT_LENGTH, stream.len());
    http.write_response(response, Bytes::from(stream), true).await
}

fn stream_header(http: &impl ResponseSink, session: Option<&str>) -> ResponseHead {
    let mut response = ResponseHead::new(StatusCode::OK);
    response.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    response.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, no-transform"));
    response.insert("x-accel-buffering", HeaderValue::from_static("no"));
    if let Some(session) = session.and_then(|id| HeaderValue::from_str(id).ok()) {
        response.insert(SESSION_ID, session);
    }
    for (name, value) in cors(http.head()) {
        response.insert(name, value);
    }
    response
}

/// Event stream to a client.
pub(crate) struct SseWriter<'s, S> {
    http: &'s mut S,
}

impl<'s, S: ResponseSink> SseWriter<'s, S> {
    /// Begins a stream.
    pub(crate) async fn begin(http: &'s mut S, session: Option<&str>) -> Result<Self, ClientGone> {
        let mut response = stream_header(http, session);
        use_chunked_encoding(http, &mut response);
        http.write_head(response, false).await?;
        Ok(Self { http })
    }

    /// Begins a stream with these encoded events; `end` if it ends with them.
    pub(crate) async fn begin_with(
        http: &'s mut S,
        session: Option<&str>,
        encoded: Vec<u8>,
        end: bool,
    ) -> Result<Self, ClientGone> {
        let mut response = stream_header(http, session);
        use_chunked_encoding(http, &mut response);
        http.write_response(response, Bytes::from(encoded), end).await?;
        Ok(Self { http })
    }

    /// Continues a stream that was begun on this connection.
    pub(crate) fn resume(http: &'s mut S) -> Self {
        Self { http }
    }

    /// Writes encoded events.
    pub(crate) async fn write(&mut self, encoded: Vec<u8>, end: bool) -> Result<(), ClientGone> {
        self.http.write_body(Bytes::from(encoded), end).await
    }

    /// Sends one message.
    pub(crate) async fn send(&mut self, json: &[u8]) -> Result<(), ClientGone> {
        let mut encoded = Vec::new();
        sse::write_event(&mut encoded, json);
        self.write(encoded, false).await
    }

    /// Sends the last message and ends the stream.
    pub(crate) async fn end(mut self, json: Option<&[u8]>) -> Result<(), ClientGone> {
        let mut encoded = Vec::new();
        if let Some(json) = json {
            sse::write_event(&mut encoded, json);
        }
        self.write(encoded, true).await
    }

    /// Sends a comment that keeps the stream alive.
    pub(crate) async fn keep_alive(&mut self) -> Result<(), ClientGone> {
        let mut encoded = Vec::new();
        sse::write_comment(&mut encoded, "");
        self.write(encoded, false).await
    }

    /// Sends the time after which the client should reconnect, and ends the stream.
    pub(crate) async fn end_with_retry(mut self, after: Duration) -> Result<(), ClientGone> {
        let mut encoded = Vec::new();
        sse::write_retry(&mut encoded, u64::try_from(after.as_millis()).unwrap_or(u64::MAX));
        self.write(encoded, true).await
    }

    /// Waits until the client disconnects.
    pub(crate) async fn wait_for_disconnect(&mut self) {
        self.http.disconnected().await;
    }

    /// Returns true if the process is about to end.
    pub(crate) fn is_shutting_down(&self) -> bool {
        self.http.is_shutting_down()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_validator_is_known_in_every_way_of_writing_it() {
        let tag = "\"0123\"";
        for (value, known) in [
            (tag.to_owned(), true),
            (format!("W/{tag}"), true),
            (format!("\"x\", {tag}"), true),
            ("*".to_owned(), true),
            ("\"x\"".to_owned(), false),
        ] {
            assert_eq!(names(&value.parse().unwrap(), tag), known, "{value}");
        }
    }
}
