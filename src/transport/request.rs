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
use crate::telemetry::trace::{PARENT_NAME, STATE_NAME, TraceHeaders};

/// The head of requests to one upstream.
pub(crate) struct RequestHead {
    method: Method,
    path: PathAndQuery,
    headers: HeaderMap,
    /// True if the headers have a trace context: that of a request replaces it.
    has_trace: bool,
    /// The lines of HTTP/1.1, without those of a request's trace context and body. They contain secrets.
    http1: OnceLock<Box<[u8]>>,
}

/// One request to an upstream.
pub(super) struct OutboundRequest<'a> {
    pub(super) head: &'a RequestHead,
    /// The trace context, in place of one of the head.
    pub(super) trace: Option<TraceHeaders<'a>>,
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
        let has_trace = headers.keys().any(is_of_trace);
        Ok(RequestHead { method, path, headers, has_trace, http1: OnceLock::new() })
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
        let Self { head: RequestHead { has_trace, http1, .. }, trace, body } = self;
        let lines = http1.get_or_init(|| self.head.http1_lines(upstream, |_| true).into());
        let state = trace.and_then(TraceHeaders::state);
        // The other lines have 130 bytes at most.
        head.reserve(lines.len() + state.map_or(0, <[u8]>::len) + 130);
        if *has_trace && trace.is_some() {
            head.append(&mut self.head.http1_lines(upstream, |name| !is_of_trace(name)));
        } else {
            head.extend_from_slice(lines);
        }
        if let Some(trace) = trace {
            // Arrays: the copy of a fixed size is a few moves.
            head.extend_from_slice(b"traceparent: ");
            head.extend_from_slice(trace.parent());
            head.extend_from_slice(b"\r\n");
        }
        if let Some(state) = state {
            push_field(head, &STATE_NAME, state);
        }
        if self.states_length() {
            head.extend_from_slice(b"content-length: ");
            head.extend_from_slice(itoa::Buffer::new().format(body.len()).as_bytes());
            head.extend_from_slice(b"\r\n");
        }
        head.extend_from_slice(b"\r\n");
    }

    /// Returns the request by HTTP/2.
    pub(super) fn to_http2(&self, upstream: &UpstreamInner) -> Result<Request<OutboundBody>, TransportError> {
        let Self { head: RequestHead { method, path, headers, .. }, trace, body } = self;
        let mut headers = headers.clone();
        if let Some(trace) = trace {
            let values = [Some(trace.parent().as_slice()), trace.state()];
            for (name, value) in [&PARENT_NAME, &STATE_NAME].into_iter().zip(values) {
                headers.remove(name);
                if let Some(mut value) = value.and_then(|value| HeaderValue::from_bytes(value).ok()) {
                    // No two are the same: they stay out of the table of the connection, which would be searched for them.
                    value.set_sensitive(true);
                    headers.insert(name, value);
                }
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

/// Returns true for the name of a header with a trace context.
fn is_of_trace(name: &HeaderName) -> bool {
    [&PARENT_NAME, &STATE_NAME].contains(&name)
}

/// Adds the line of a field.
fn push_field(lines: &mut Vec<u8>, name: &HeaderName, value: &[u8]) {
    for piece in [name.as_str().as_bytes(), b": ", value, b"\r\n"] {
        lines.extend_from_slice(piece);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::trace::{RequestScope, TraceContext};
    use crate::transport::{AddressPolicy, TargetSettings};

    fn upstream() -> Upstream {
        let uri = "http://agent/a".parse().unwrap();
        Upstream::new(TargetSettings::new(uri, AddressPolicy::Trusted)).unwrap()
    }

    fn head(upstream: &Upstream, names: [&'static str; 2]) -> RequestHead {
        let request = Request::post("/a").header(names[0], "1").header("x-b", "2").header(names[1], "3");
        upstream.head(request.body(()).unwrap().into_parts().0).unwrap()
    }

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn scope(state: Option<&str>) -> RequestScope {
        let scope = RequestScope::new("1".into(), None, TraceContext::parse(PARENT, state), None);
        scope.begin_trace(None);
        scope
    }

    #[test]
    fn trace_context_replaces_that_of_an_http1_request() {
        let upstream = upstream();
        // The lines are encoded once, and serve requests with other traces.
        let heads = [["x-a", "x-a"], ["traceparent", "tracestate"]].map(|names| head(&upstream, names));
        let (without, with_state) = (scope(None), scope(Some("a=1,\tb=2")));
        let traced = |state: &str| format!("accept-encoding: identity\r\ntraceparent: {PARENT}\r\n{state}");
        for (head, trace, lines) in [
            (0, None, "x-a: 1\r\nx-a: 3\r\nx-b: 2\r\naccept-encoding: identity\r\n".to_owned()),
            (0, Some(&without), format!("x-a: 1\r\nx-a: 3\r\nx-b: 2\r\n{}", traced(""))),
            (
                1,
                None,
                "traceparent: 1\r\nx-b: 2\r\ntracestate: 3\r\naccept-encoding: identity\r\n".to_owned(),
            ),
            (1, Some(&without), format!("x-b: 2\r\n{}", traced(""))),
            (1, Some(&with_state), format!("x-b: 2\r\n{}", traced("tracestate: a=1,\tb=2\r\n"))),
        ] {
            for length in [0, 2, 12_345] {
                let trace = trace.map(|scope| scope.trace().unwrap().headers());
                let body = vec![b'x'; length].into();
                let mut sent = Vec::new();
                OutboundRequest { head: &heads[head], trace, body }.to_http1(&upstream.origin, &mut sent);
                let expected =
                    format!("POST /a HTTP/1.1\r\nhost: agent\r\n{lines}content-length: {length}\r\n\r\n");
                assert_eq!(String::from_utf8(sent).unwrap(), expected);
            }
        }
    }

    #[test]
    fn trace_context_replaces_that_of_an_http2_request() {
        let upstream = upstream();
        let head = head(&upstream, ["traceparent", "tracestate"]);
        let scopes = [scope(None), scope(Some("a=1,\tb=2"))];
        for (scope, expected) in [
            (None, [vec!["1"], vec!["3"]]),
            (Some(&scopes[0]), [vec![PARENT], vec![]]),
            (Some(&scopes[1]), [vec![PARENT], vec!["a=1,\tb=2"]]),
        ] {
            let trace = scope.map(|scope| scope.trace().unwrap().headers());
            let sent = OutboundRequest { head: &head, trace, body: Bytes::new() };
            let sent = sent.to_http2(&upstream.origin).unwrap();
            let values = [&PARENT_NAME, &STATE_NAME]
                .map(|name| sent.headers().get_all(name).iter().collect::<Vec<_>>());
            assert_eq!(values, expected);
            assert!(values.into_iter().flatten().all(|value| value.is_sensitive() == scope.is_some()));
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
            let request = OutboundRequest { head: &head, trace: None, body: Bytes::new() };
            request.to_http1(&upstream.origin, &mut sent);
            let sent = String::from_utf8(sent).unwrap();
            assert_eq!(sent.contains("content-length: 0\r\n"), states, "{sent}");
            assert!(!sent.contains('7'), "{sent}");
        }
    }
}
