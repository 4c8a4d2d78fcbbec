//! gRPC towards clients: the head of a request, its deadline, and the status in trailers.
//!
//! Reads the protocol of gRPC over HTTP/2. The status of every response is in its trailers. See `a2a::grpc` for frames and messages,
//! `a2a_server` for methods.

use std::time::Duration;

use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Version};

use super::connection::{ClientConnection, HttpConnection};
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

/// Connection with trailers: HTTP/2.
pub(crate) trait TrailerSink: ClientConnection {
    /// Ends the response with these trailers.
    ///
    /// # Errors
    ///
    /// [`ClientGone`] if the client disconnected.
    fn write_trailers(&mut self, trailers: HeaderMap) -> impl Future<Output = Result<(), ClientGone>> + Send;
}

impl TrailerSink for HttpConnection<'_> {
    async fn write_trailers(&mut self, trailers: HeaderMap) -> Result<(), ClientGone> {
        HttpConnection::write_trailers(self, trailers).await
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

/// Returns the trailers of a status: its code, and those of an error with its encoded text and
/// details.
pub(crate) fn trailers(code: i32, message: &str, details: Option<&str>) -> HeaderMap {
    let mut trailers = HeaderMap::with_capacity(3);
    trailers.insert(STATUS, HeaderValue::from(code));
    if code == 0 {
        return trailers;
    }
    for (name, value) in [(MESSAGE, Some(message)), (DETAILS, details)] {
        let value = value.and_then(|value| HeaderValue::from_str(value).ok());
        trailers.extend(value.map(|value| (name, value)));
    }
    trailers
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

    #[test]
    fn status_is_in_trailers() {
        let ok = trailers(0, "", None);
        assert_eq!((ok.len(), ok[STATUS].as_bytes()), (1, &b"0"[..]));
        let failed = trailers(5, "50 %25", Some("CAU"));
        assert_eq!((failed[MESSAGE].as_bytes(), failed[DETAILS].as_bytes()), (&b"50 %25"[..], &b"CAU"[..]));
        let plain = trailers(13, "", None);
        assert_eq!((plain[STATUS].as_bytes(), plain.get(DETAILS)), (&b"13"[..], None));
    }
}
