//! The head of a request: checked for its upstream, and in the form of each version of HTTP.
//!
//! The framing belongs to the gateway: headers about it are replaced, wherever they come from. Requests that differ in their
//! bodies only can share a head, which HTTP/1.1 encodes once.

use std::sync::OnceLock;

use bytes::Bytes;
use http::header::{ACCEPT_ENCODING, CONTENT_LENGTH, TE};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri, Version};
use http_body_util::Full;

use super::error::TransportError;
use super::upstream::{OutboundBody, Upstream, UpstreamInner, effective_port};
use crate::config::is_framing;

/// A header field that is added to the head of a request: it replaces those of its name.
///
/// The value is visible ASCII, spaces and tabs (RFC 9110 §5.5); the field of another one, and of an empty one, is
/// only removed. Not for fields of the framing.
pub(crate) type AddedField<'a> = (&'static HeaderName, &'a [u8]);

/// The head of requests to one upstream.
pub(crate) struct RequestHead {
    method: Method,
    path: PathAndQuery,
    headers: HeaderMap,
    /// The lines of HTTP/1.1, without those of added fields and of the body. They contain secrets.
    http1: OnceLock<Box<[u8]>>,
}

/// One request to an upstream.
pub(super) struct OutboundRequest<'a> {
    pub(super) head: &'a RequestHead,
    /// Fields in place of those of the head.
    pub(super) fields: &'a [AddedField<'a>],
    pub(super) body: Bytes,
}

impl Upstream {
    /// Returns the head of requests to this upstream. The URI needs only path and query; headers of the framing are
    /// left out.
    ///
    /// # Errors
    ///
    /// [`TransportError::BadUri`] for a URI of another origin, and for one without a path.
    pub(crate) fn head(&self, request: Parts) -> Result<RequestHead, TransportError> {
        let Parts { method, uri, mut headers, .. } = request;
        if !self.origin.is_home_of(&uri) {
            return Err(TransportError::BadUri("the request names another origin than its target"));
        }
        let path = uri.into_parts().path_and_query.filter(|path| path.as_str().starts_with('/'));
        let path = path.filter(|_| method != Method::CONNECT);
        let path = path.ok_or(TransportError::BadUri("not a plain request"))?;
        // Searched among the headers that exist: removing each possible one would look them all up.
        while let Some(framing) = headers.keys().find(|name| is_framing(name)).cloned() {
            headers.remove(framing);
        }
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        if self.origin.http2_only {
            headers.insert(TE, HeaderValue::from_static("trailers"));
        }
        Ok(RequestHead { method, path, headers, http1: OnceLock::new() })
    }
}

impl UpstreamInner {
    fn is_home_of(&self, uri: &Uri) -> bool {
        match (uri.scheme(), uri.authority()) {
            (None, None) => true,
            (Some(scheme), Some(authority)) => {
                *scheme == self.scheme
                    && authority.host().eq_ignore_ascii_case(self.authority.host())
                    && effective_port(scheme, authority) == self.port
                    && !authority.as_str().contains('@')
            }
            _ => false,
        }
    }
}

impl RequestHead {
    /// Returns the first line, that of the host, and those of the headers of which `has` the name (RFC 9112 §3, §5).
    fn http1_lines(&self, upstream: &UpstreamInner, has: impl Fn(&HeaderName) -> bool) -> Vec<u8> {
        let mut lines = Vec::with_capacity(512);
        let mut add = |pieces: &[&[u8]]| pieces.iter().for_each(|piece| lines.extend_from_slice(piece));
        add(&[self.method.as_str().as_bytes(), b" ", self.path.as_str().as_bytes(), b" HTTP/1.1\r\n"]);
        add(&[b"host: ", upstream.host_header.as_bytes(), b"\r\n"]);
        for (name, value) in self.headers.iter().filter(|(name, _)| has(name)) {
            push_field(&mut lines, name, value.as_bytes());
        }
        lines
    }
}

impl OutboundRequest<'_> {
    /// Returns the method.
    pub(super) fn method(&self) -> &Method {
        &self.head.method
    }

    /// Returns true if the request states the length of its body, also if that is empty: servers answer 411 to one
    /// with such a method that does not.
    fn states_length(&self) -> bool {
        let has_payload = [Method::POST, Method::PUT, Method::PATCH].contains(&self.head.method);
        !self.body.is_empty() || has_payload
    }

    /// Adds the head of the request by HTTP/1.1 to an empty buffer.
    pub(super) fn to_http1(&self, upstream: &UpstreamInner, head: &mut Vec<u8>) {
        let Self { head: RequestHead { headers, http1, .. }, fields, body } = self;
        let is_replaced = |name: &HeaderName| fields.iter().any(|(other, _)| *other == name);
        let lines = http1.get_or_init(|| self.head.http1_lines(upstream, |_| true).into());
        let added: usize = fields.iter().map(|(name, value)| field_bytes(name, value)).sum();
        // The length and the last line have 40 bytes at most.
        head.reserve(lines.len() + added + 40);
        if headers.keys().any(is_replaced) {
            head.append(&mut self.head.http1_lines(upstream, |name| !is_replaced(name)));
        } else {
            head.extend_from_slice(lines);
        }
        for (name, value) in *fields {
            if is_field_value(value) {
                push_field(head, name, value);
            }
        }
        if self.states_length() {
            push_field(head, &CONTENT_LENGTH, itoa::Buffer::new().format(body.len()).as_bytes());
        }
        head.extend_from_slice(b"\r\n");
    }

    /// Returns the request by HTTP/2.
    pub(super) fn to_http2(&self, upstream: &UpstreamInner) -> Result<Request<OutboundBody>, TransportError> {
        let Self { head: RequestHead { method, path, headers, .. }, fields, body } = self;
        let mut headers = headers.clone();
        for (name, value) in *fields {
            headers.remove(*name);
            if let Some(value) = Some(value).filter(|value| is_field_value(value))
                && let Ok(value) = HeaderValue::from_bytes(value)
            {
                headers.insert(*name, value);
            }
        }
        if body.is_empty() && self.states_length() {
            headers.insert(CONTENT_LENGTH, HeaderValue::from_static("0"));
        }
        let mut parts = http::uri::Parts::default();
        parts.scheme = Some(upstream.scheme.clone());
        parts.authority = Some(upstream.authority.clone());
        parts.path_and_query = Some(path.clone());
        let uri = Uri::from_parts(parts).map_err(|_| TransportError::BadUri("not a plain request"))?;
        let mut request = Request::new(Full::new(body.clone()));
        *request.method_mut() = method.clone();
        *request.uri_mut() = uri;
        *request.version_mut() = Version::HTTP_2;
        *request.headers_mut() = headers;
        Ok(request)
    }
}

/// Returns the size of the line of a field.
fn field_bytes(name: &HeaderName, value: &[u8]) -> usize {
    name.as_str().len() + value.len() + 4
}

/// Adds the line of a field, with room for it at once.
fn push_field(lines: &mut Vec<u8>, name: &HeaderName, value: &[u8]) {
    lines.reserve(field_bytes(name, value));
    for piece in [name.as_str().as_bytes(), b": ", value, b"\r\n"] {
        lines.extend_from_slice(piece);
    }
}

/// Returns true for a value of a header field that is not empty: visible ASCII, spaces and tabs (RFC 9110 §5.5).
fn is_field_value(value: &[u8]) -> bool {
    // Without an early end, which would compare byte by byte.
    let is_forbidden = |byte: u8| u8::from(byte.wrapping_sub(b' ') > b'~' - b' ') & u8::from(byte != b'\t');
    !value.is_empty() && value.iter().fold(0, |forbidden, byte| forbidden | is_forbidden(*byte)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::{AddressPolicy, TargetSettings};

    static FIRST: HeaderName = HeaderName::from_static("x-a");
    static SECOND: HeaderName = HeaderName::from_static("x-c");

    fn upstream() -> Upstream {
        let uri = "http://agent/a".parse().unwrap();
        Upstream::new(TargetSettings::new(uri, AddressPolicy::Trusted)).unwrap()
    }

    fn head(upstream: &Upstream) -> RequestHead {
        let request = Request::post("/a").header("x-a", "1").header("x-b", "2").header("x-a", "3");
        upstream.head(request.body(()).unwrap().into_parts().0).unwrap()
    }

    #[test]
    fn added_fields_replace_those_of_an_http1_request() {
        let upstream = upstream();
        // The lines are encoded once, and serve requests with other fields.
        let head = head(&upstream);
        for (fields, lines) in [
            (vec![], "x-a: 1\r\nx-a: 3\r\nx-b: 2\r\naccept-encoding: identity\r\n"),
            (
                vec![(&FIRST, "4"), (&SECOND, "5,\t6")],
                "x-b: 2\r\naccept-encoding: identity\r\nx-a: 4\r\nx-c: 5,\t6\r\n",
            ),
            (vec![(&FIRST, ""), (&SECOND, "a\r\nx-d: 1")], "x-b: 2\r\naccept-encoding: identity\r\n"),
            (vec![(&SECOND, "é")], "x-a: 1\r\nx-a: 3\r\nx-b: 2\r\naccept-encoding: identity\r\n"),
        ] {
            for length in [0, 2, 12_345] {
                let added: Vec<_> = fields.iter().map(|(name, value)| (*name, value.as_bytes())).collect();
                let body = vec![b'x'; length].into();
                let mut sent = Vec::new();
                OutboundRequest { head: &head, fields: &added, body }.to_http1(&upstream.origin, &mut sent);
                let expected =
                    format!("POST /a HTTP/1.1\r\nhost: agent\r\n{lines}content-length: {length}\r\n\r\n");
                assert_eq!(String::from_utf8(sent).unwrap(), expected, "{fields:?}");
            }
        }
    }

    #[test]
    fn added_fields_replace_those_of_an_http2_request() {
        let upstream = upstream();
        let head = head(&upstream);
        for (fields, expected) in [
            (vec![], [vec!["1", "3"], vec![]]),
            (vec![(&FIRST, "4"), (&SECOND, "5,\t6")], [vec!["4"], vec!["5,\t6"]]),
            (vec![(&FIRST, ""), (&SECOND, "a\r\nx-d: 1")], [vec![], vec![]]),
        ] {
            let added: Vec<_> = fields.iter().map(|(name, value)| (*name, value.as_bytes())).collect();
            let sent = OutboundRequest { head: &head, fields: &added, body: Bytes::new() };
            let sent = sent.to_http2(&upstream.origin).unwrap();
            let values = ["x-a", "x-c"].map(|name| sent.headers().get_all(name).iter().collect::<Vec<_>>());
            assert_eq!(values, expected, "{fields:?}");
            assert_eq!(sent.headers()["x-b"], "2");
            assert_eq!(sent.headers()[CONTENT_LENGTH], "0");
            assert_eq!(sent.uri(), "http://agent/a");
        }
    }

    #[test]
    fn only_methods_with_a_payload_state_the_length_of_an_empty_body() {
        let upstream = upstream();
        for (method, states) in [(Method::GET, false), (Method::DELETE, false), (Method::PUT, true)] {
            let request = Request::builder().method(&method).uri("/a").header(CONTENT_LENGTH, "7");
            let head = upstream.head(request.body(()).unwrap().into_parts().0).unwrap();
            let mut sent = Vec::new();
            let request = OutboundRequest { head: &head, fields: &[], body: Bytes::new() };
            request.to_http1(&upstream.origin, &mut sent);
            let sent = String::from_utf8(sent).unwrap();
            assert_eq!(sent.contains("content-length: 0\r\n"), states, "{sent}");
            assert!(!sent.contains('7'), "{sent}");
        }
    }
}
