//! The HTTP headers of MCP, read leniently in form and strictly in meaning.
//!
//! Follows `docs/spec/mcp.md` §1.4. `classify` compares them with the body.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::HeaderMap;
use std::borrow::Cow;

/// `MCP-Protocol-Version`.
pub(crate) const PROTOCOL_VERSION: &str = "mcp-protocol-version";
/// `Mcp-Session-Id`.
pub(crate) const SESSION_ID: &str = "mcp-session-id";
/// `Mcp-Method`.
pub const METHOD: &str = "mcp-method";
/// `Mcp-Name`.
pub const NAME: &str = "mcp-name";

/// The value of a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum McpHeaderValue<'a> {
    /// Absent.
    #[default]
    Absent,
    /// Present once, with this value, trimmed.
    Is(&'a str),
    /// Present twice, or not visible ASCII.
    Unusable,
}

impl<'a> McpHeaderValue<'a> {
    fn read(headers: &'a HeaderMap, name: &str) -> Self {
        let mut values = headers.get_all(name).iter();
        match (values.next(), values.next()) {
            (None, _) => Self::Absent,
            (Some(value), None) => value.to_str().map_or(Self::Unusable, |text| Self::Is(text.trim())),
            (Some(_), Some(_)) => Self::Unusable,
        }
    }

    /// Returns the value, if the header is present once.
    pub fn value(self) -> Option<&'a str> {
        match self {
            Self::Is(text) => Some(text),
            Self::Absent | Self::Unusable => None,
        }
    }
}

/// The headers of one request that have a meaning in MCP.
#[derive(Debug, Clone, Copy, Default)]
pub struct McpHeaders<'a> {
    /// `MCP-Protocol-Version`.
    pub version: McpHeaderValue<'a>,
    /// `Mcp-Session-Id`.
    pub session: McpHeaderValue<'a>,
    /// `Mcp-Method`.
    pub method: McpHeaderValue<'a>,
    /// `Mcp-Name`.
    pub name: McpHeaderValue<'a>,
    /// `User-Agent`.
    pub user_agent: McpHeaderValue<'a>,
    /// True if the client accepts an SSE response.
    pub takes_stream: bool,
    /// True if the client accepts a JSON response.
    pub takes_json: bool,
}

impl<'a> McpHeaders<'a> {
    /// Reads the MCP headers of a request.
    pub fn read(headers: &'a HeaderMap) -> Self {
        let (takes_json, takes_stream) = accepted(headers);
        Self {
            version: McpHeaderValue::read(headers, PROTOCOL_VERSION),
            session: McpHeaderValue::read(headers, SESSION_ID),
            method: McpHeaderValue::read(headers, METHOD),
            name: McpHeaderValue::read(headers, NAME),
            user_agent: McpHeaderValue::read(headers, "user-agent"),
            takes_stream,
            takes_json,
        }
    }
}

/// Reads from the `Accept` header if the client accepts JSON, and if SSE. A header that allows
/// neither is read as allowing both: real clients send odd ones, and a rejection would not help
/// them.
fn accepted(headers: &HeaderMap) -> (bool, bool) {
    let mut json = false;
    let mut stream = false;
    let ranges = headers.get_all(http::header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    for range in ranges.flat_map(|text| text.split(',')) {
        let name = range.split(';').next().unwrap_or_default().trim();
        let is_one_of = |names: &[&str]| names.iter().any(|known| name.eq_ignore_ascii_case(known));
        json |= is_one_of(&["application/json", "application/*", "*/*"]);
        stream |= is_one_of(&["text/event-stream", "text/*"]);
    }
    if json || stream { (json, stream) } else { (true, true) }
}

/// Encodes an `Mcp-Name` value in its base64 form: `=?base64?…?=`.
pub(crate) fn encode_base64_name(name: &str) -> String {
    format!("=?base64?{}?=", STANDARD.encode(name))
}

/// Decodes the base64 form of an `Mcp-Name` value: `=?base64?…?=`.
///
/// Returns `None` if the value looks like that form and is not valid.
pub(crate) fn decode_base64_name(value: &str) -> Option<Cow<'_, str>> {
    let Some(encoded) = value.strip_prefix("=?base64?").and_then(|rest| rest.strip_suffix("?=")) else {
        return Some(Cow::Borrowed(value));
    };
    let bytes = STANDARD.decode(encoded).ok()?;
    String::from_utf8(bytes).ok().map(Cow::Owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn with(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, HeaderValue::from_static(value));
        }
        headers
    }

    #[test]
    fn a_header_twice_is_unusable() {
        let headers = with(&[("mcp-method", "a"), ("mcp-method", "a"), ("mcp-name", " x ")]);
        let read = McpHeaders::read(&headers);
        assert_eq!(read.method, McpHeaderValue::Unusable);
        assert_eq!(read.name, McpHeaderValue::Is("x"));
        assert_eq!(read.version, McpHeaderValue::Absent);
    }

    #[test]
    fn accept_is_never_a_reason_to_refuse() {
        for (accept, json, stream) in [
            ("application/json, text/event-stream", true, true),
            ("Text/Event-Stream;q=0.5, application/JSON", true, true),
            ("application/json", true, false),
            ("text/event-stream", false, true),
            ("*/*", true, false),
            ("image/png", true, true),
        ] {
            assert_eq!(accepted(&with(&[("accept", accept)])), (json, stream), "{accept}");
        }
        assert_eq!(accepted(&HeaderMap::new()), (true, true));
    }

    #[test]
    fn names_in_base64_are_undone() {
        assert_eq!(decode_base64_name("plain").unwrap(), "plain");
        assert_eq!(decode_base64_name(&encode_base64_name("=?base64?é?=")).unwrap(), "=?base64?é?=");
        assert_eq!(decode_base64_name("=?base64?w6k=?=").unwrap(), "é");
        assert_eq!(decode_base64_name("=?base64?***?="), None);
    }
}
