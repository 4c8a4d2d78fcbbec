//! gRPC towards clients: the frame of a message, the deadline of a request, and the status in trailers.
//!
//! Reads the protocol of gRPC over HTTP/2. A request has one message; a compressed one is refused. The
//! status of every response is in its trailers: Pingora cannot end a response of HTTP/2 with its head
//! alone. See `a2a_server` for methods and messages.

use std::fmt::Write as _;
use std::time::Duration;

use bytes::{Buf as _, Bytes, BytesMut};
use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Version};
use pingora::proxy::Session;

use super::connection::ClientConnection;
use crate::fault::ClientGone;

/// Media type of requests and responses.
pub(crate) const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");
/// Header with the coding of messages.
const ENCODING: HeaderName = HeaderName::from_static("grpc-encoding");
/// Header with the codings that the gateway takes.
pub(crate) const ACCEPT_ENCODING: HeaderName = HeaderName::from_static("grpc-accept-encoding");
const TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");
const STATUS: HeaderName = HeaderName::from_static("grpc-status");
const MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const DETAILS: HeaderName = HeaderName::from_static("grpc-status-details-bin");
/// Bytes before a message: a flag and the length.
const PREFIX_BYTES: usize = 5;
/// Most bytes of the text of a status: clients bound the trailers that they read.
const MAX_MESSAGE_BYTES: usize = 1024;

/// Connection with trailers: HTTP/2.
pub(crate) trait TrailerSink: ClientConnection {
    /// Ends the response with these trailers.
    ///
    /// # Errors
    ///
    /// [`ClientGone`] if the client disconnected.
    fn write_trailers(&mut self, trailers: HeaderMap) -> impl Future<Output = Result<(), ClientGone>> + Send;
}

impl TrailerSink for Session {
    async fn write_trailers(&mut self, trailers: HeaderMap) -> Result<(), ClientGone> {
        let written = self.downstream_session.write_response_trailers(trailers).await;
        written.map_err(|error| {
            tracing::debug!(%error, "client disconnected");
            ClientGone
        })
    }
}

/// Returns true for a request of gRPC, with messages in protobuf.
pub(crate) fn is_grpc(request: &Parts) -> bool {
    let media_type = request.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let rest = media_type.and_then(|value| {
        let name = value.split(';').next().unwrap_or_default().trim_end();
        name.strip_prefix("application/grpc")
    });
    request.version == Version::HTTP_2
        && request.method == Method::POST
        && rest.is_some_and(|rest| matches!(rest, "" | "+proto"))
}

/// Returns the coding of messages, unless they are sent as they are.
pub(crate) fn message_encoding(headers: &HeaderMap) -> Option<&HeaderValue> {
    headers.get(&ENCODING).filter(|coding| coding.as_bytes() != b"identity")
}

/// The error for a `grpc-timeout` that is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TimeoutError;

/// Returns the time after which the client takes no response; `None` if it waits.
///
/// # Errors
///
/// [`TimeoutError`] if the header is not readable.
pub(crate) fn request_timeout(headers: &HeaderMap) -> Result<Option<Duration>, TimeoutError> {
    let Some(value) = headers.get(&TIMEOUT) else { return Ok(None) };
    let value = value.to_str().map_err(|_| TimeoutError)?;
    let (digits, unit) = value.split_at_checked(value.len().saturating_sub(1)).ok_or(TimeoutError)?;
    if !(1..=8).contains(&digits.len()) || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return Err(TimeoutError);
    }
    let count: u64 = digits.parse().map_err(|_| TimeoutError)?;
    Ok(Some(match unit {
        "H" => Duration::from_secs(count * 3600),
        "M" => Duration::from_secs(count * 60),
        "S" => Duration::from_secs(count),
        "m" => Duration::from_millis(count),
        "u" => Duration::from_micros(count),
        "n" => Duration::from_nanos(count),
        _ => return Err(TimeoutError),
    }))
}

/// Reason for which a body is not one message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FrameError {
    /// The message is compressed, and the client does not name a coding.
    #[error("the message is compressed, and grpc-encoding names no coding")]
    Compressed,
    /// The message is longer than the limit, in bytes.
    #[error("the message is longer than {0} bytes")]
    TooLong(usize),
    /// There are more bytes than those of the message.
    #[error("the method takes one message")]
    Trailing,
    /// The body ends before the message does.
    #[error("the message is cut off")]
    Incomplete,
}

impl FrameError {
    /// Returns the code of the status, as gRPC assigns them.
    pub(crate) fn code(&self) -> &'static str {
        match self {
            Self::Compressed | Self::Incomplete => "INTERNAL",
            Self::TooLong(_) => "RESOURCE_EXHAUSTED",
            Self::Trailing => "UNIMPLEMENTED",
        }
    }
}

/// Reader of the one message of a request.
#[derive(Debug)]
pub(crate) struct MessageReader {
    limit: usize,
    prefix: BytesMut,
    /// Bytes of the message that are still to come; `None` before its length is known.
    rest: Option<usize>,
}

impl MessageReader {
    /// Creates a reader for a message of at most `limit` bytes.
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, prefix: BytesMut::with_capacity(PREFIX_BYTES), rest: None }
    }

    /// Returns the bytes of the message in these bytes of a body.
    ///
    /// # Errors
    ///
    /// [`FrameError`]; for a message that is too long, before it is read.
    pub(crate) fn push(&mut self, mut bytes: Bytes) -> Result<Bytes, FrameError> {
        let rest = match self.rest {
            Some(rest) => rest,
            None => {
                let missing = PREFIX_BYTES.saturating_sub(self.prefix.len()).min(bytes.len());
                self.prefix.extend_from_slice(&bytes.split_to(missing));
                if self.prefix.len() < PREFIX_BYTES {
                    return Ok(Bytes::new());
                }
                if self.prefix.get_u8() != 0 {
                    return Err(FrameError::Compressed);
                }
                usize::try_from(self.prefix.get_u32()).unwrap_or(usize::MAX)
            }
        };
        if rest > self.limit {
            return Err(FrameError::TooLong(self.limit));
        }
        self.rest = Some(rest.checked_sub(bytes.len()).ok_or(FrameError::Trailing)?);
        Ok(bytes)
    }

    /// Checks that the message is complete, at the end of the body.
    ///
    /// # Errors
    ///
    /// [`FrameError::Incomplete`].
    pub(crate) fn finish(&self) -> Result<(), FrameError> {
        if self.rest == Some(0) { Ok(()) } else { Err(FrameError::Incomplete) }
    }
}

/// Appends the frame of a message. Returns false if its length has no form.
#[must_use]
pub(crate) fn write_frame(out: &mut Vec<u8>, message: &[u8]) -> bool {
    let Ok(length) = u32::try_from(message.len()) else { return false };
    out.reserve(PREFIX_BYTES + message.len());
    out.push(0);
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(message);
    true
}

/// Returns the beginning of the text of a status that clients read.
pub(crate) fn capped_message(message: &str) -> &str {
    let mut end = message.len().min(MAX_MESSAGE_BYTES);
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    message.get(..end).unwrap_or_default()
}

/// Returns the trailers of a status: its code, and those of an error with text and details.
pub(crate) fn trailers(code: i32, message: &str, details: Option<&str>) -> HeaderMap {
    let mut trailers = HeaderMap::with_capacity(3);
    trailers.insert(STATUS, HeaderValue::from(code));
    if code == 0 {
        return trailers;
    }
    if let Ok(encoded) = HeaderValue::from_str(&percent_encoded(capped_message(message))) {
        trailers.insert(MESSAGE, encoded);
    }
    if let Some(details) = details.and_then(|details| HeaderValue::from_str(details).ok()) {
        trailers.insert(DETAILS, details);
    }
    trailers
}

/// Encodes a text as gRPC does: every byte but those of printable ASCII.
fn percent_encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b' '..=b'~' if byte != b'%' => encoded.push(char::from(byte)),
            // Writing to a string does not fail.
            _ => drop(write!(encoded, "%{byte:02X}")),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_protobuf_over_http2_is_grpc() {
        for (version, media_type, expected) in [
            (Version::HTTP_2, "application/grpc", true),
            (Version::HTTP_2, "application/grpc+proto", true),
            (Version::HTTP_2, "application/grpc; x=1", true),
            (Version::HTTP_2, "application/grpc+json", false),
            (Version::HTTP_2, "application/grpc-web", false),
            (Version::HTTP_2, "application/json", false),
            (Version::HTTP_11, "application/grpc", false),
        ] {
            let request = http::Request::post("/x").version(version).header(CONTENT_TYPE, media_type);
            let (head, ()) = request.body(()).unwrap().into_parts();
            assert_eq!(is_grpc(&head), expected, "{version:?} {media_type}");
        }
    }

    #[test]
    fn timeout_has_a_unit() {
        for (value, expected) in [
            ("1H", Ok(3600.0)),
            ("2M", Ok(120.0)),
            ("3S", Ok(3.0)),
            ("1500m", Ok(1.5)),
            ("2000000u", Ok(2.0)),
            ("99999999n", Ok(0.099_999_999)),
            ("", Err(TimeoutError)),
            ("S", Err(TimeoutError)),
            ("1", Err(TimeoutError)),
            ("-1S", Err(TimeoutError)),
            ("123456789S", Err(TimeoutError)),
            ("1x", Err(TimeoutError)),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(TIMEOUT, value.parse().unwrap());
            let found = request_timeout(&headers).map(|found| found.unwrap().as_secs_f64());
            assert_eq!(found, expected, "{value}");
        }
        assert_eq!(request_timeout(&HeaderMap::new()), Ok(None));
    }

    /// The result does not depend on how the body was split.
    #[test]
    fn message_is_taken_out_of_its_frame() {
        let mut frame = Vec::new();
        assert!(write_frame(&mut frame, b"hello"));
        for size in 1..=frame.len() {
            let mut reader = MessageReader::new(5);
            let mut message = Vec::new();
            for piece in frame.chunks(size) {
                message.extend_from_slice(&reader.push(Bytes::copy_from_slice(piece)).unwrap());
            }
            assert_eq!((message.as_slice(), reader.finish()), (&b"hello"[..], Ok(())), "{size}");
        }
    }

    #[test]
    fn broken_frame_is_refused() {
        let read = |bytes: &'static [u8]| {
            let mut reader = MessageReader::new(5);
            reader.push(Bytes::from_static(bytes)).and_then(|_| reader.finish())
        };
        for (bytes, error) in [
            (&b""[..], FrameError::Incomplete),
            (b"\0\0\0", FrameError::Incomplete),
            (b"\0\0\0\0\x02x", FrameError::Incomplete),
            (b"\x01\0\0\0\x01x", FrameError::Compressed),
            (b"\0\0\0\0\x06", FrameError::TooLong(5)),
            (b"\0\xff\xff\xff\xff", FrameError::TooLong(5)),
            (b"\0\0\0\0\x01xy", FrameError::Trailing),
        ] {
            assert_eq!(read(bytes), Err(error), "{bytes:?}");
        }
    }

    #[test]
    fn status_is_in_trailers() {
        let ok = trailers(0, "", None);
        assert_eq!((ok.len(), ok[STATUS].as_bytes()), (1, &b"0"[..]));
        let failed = trailers(5, "50 % f\u{fc}r\n", Some("CAU"));
        assert_eq!(failed[MESSAGE].as_bytes(), b"50 %25 f%C3%BCr%0A");
        assert_eq!((failed[STATUS].as_bytes(), failed[DETAILS].as_bytes()), (&b"5"[..], &b"CAU"[..]));
        let cut = trailers(13, &"\u{e4}".repeat(MAX_MESSAGE_BYTES), None);
        assert_eq!(cut[MESSAGE].len(), 3 * MAX_MESSAGE_BYTES);
        assert!(cut.get(DETAILS).is_none());
    }
}
