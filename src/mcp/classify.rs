//! The HTTP headers of MCP, the era of a request, and the agreement of its headers with its body.
//!
//! Headers are read leniently in form and strictly in meaning (`docs/spec/mcp.md` §1.4). The
//! classification implements the table of §1.5, body first. It returns plain errors: `fault` depends
//! on this folder and not the other way round. A legacy request is only classified as legacy; its
//! session is resolved elsewhere.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::header::{ACCEPT, HeaderMap, HeaderName, HeaderValue};

use super::lifecycle::ClientCapabilities;
use super::params::{ClientParams, RequestMeta};
use super::version::{Era, Method, Version};
use crate::jsonrpc::{Message, MessageKind};

/// The reason why a message cannot be classified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClassifyError {
    /// A modern request with an incomplete `_meta`.
    Envelope(String),
    /// A header that is missing or contradicts the body.
    Mismatch(String),
    /// A revision that the gateway does not support.
    Unsupported(String),
}

/// The era of a message, with the data that the message itself carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessageEra {
    /// Modern: the message carries its revision and the client's capabilities.
    Modern(Version, ClientCapabilities),
    /// Legacy: both are in the session, if there is one.
    Legacy,
}

impl MessageEra {
    /// Returns the era alone.
    pub fn era(self) -> Era {
        match self {
            Self::Modern(..) => Era::Modern,
            Self::Legacy => Era::Legacy,
        }
    }
}

/// Returns the era in which a rejection is written when only the headers can be trusted.
pub(crate) fn era_of_headers(headers: &McpHeaders<'_>) -> Era {
    match headers.version {
        McpHeaderValue::Is(text) if is_modern(text) => Era::Modern,
        McpHeaderValue::Is(_) | McpHeaderValue::Absent | McpHeaderValue::Unusable => Era::Legacy,
    }
}

/// Classifies a message.
///
/// # Errors
///
/// [`ClassifyError`], for requests and never for notifications: a notification has no response.
pub fn classify(
    message: &Message<'_, ClientParams<'_>>,
    headers: &McpHeaders<'_>,
) -> Result<MessageEra, ClassifyError> {
    let none = RequestMeta::default();
    let meta = message.params.as_ref().map_or(&none, ClientParams::meta);
    let Some(claim) = &meta.version else { return without_claim(message, headers) };
    if message.kind != MessageKind::Request {
        return Ok(MessageEra::Modern(Version::V2026_07_28, meta.capabilities.unwrap_or_default()));
    }
    let Some(capabilities) = meta.capabilities else {
        return Err(ClassifyError::Envelope(
            "io.modelcontextprotocol/clientCapabilities is missing; send {} if there are none".into(),
        ));
    };
    agree("MCP-Protocol-Version", headers.version, claim.as_str())?;
    let version = Version::MODERN
        .into_iter()
        .find(|version| version.as_str() == claim.as_str())
        .ok_or_else(|| ClassifyError::Unsupported(capped(claim.as_str())))?;
    agree("Mcp-Method", headers.method, message.method.as_str())?;
    name_agrees(message, headers)?;
    Ok(MessageEra::Modern(version, capabilities))
}

fn without_claim(
    message: &Message<'_, ClientParams<'_>>,
    headers: &McpHeaders<'_>,
) -> Result<MessageEra, ClassifyError> {
    let modern_header = era_of_headers(headers) == Era::Modern;
    match message.kind {
        MessageKind::Request if modern_header => Err(ClassifyError::Envelope(
            "params._meta must carry io.modelcontextprotocol/protocolVersion and \
             io.modelcontextprotocol/clientCapabilities"
                .into(),
        )),
        MessageKind::Notification if modern_header => {
            Ok(MessageEra::Modern(Version::V2026_07_28, ClientCapabilities::default()))
        }
        MessageKind::Request | MessageKind::Notification | MessageKind::Response => Ok(MessageEra::Legacy),
    }
}

/// Returns true if `text` names a supported modern revision.
fn is_modern(text: &str) -> bool {
    Version::named(text).is_some_and(|version| version.era() == Era::Modern)
}

/// Returns the revision in which a legacy request without a session is served: that of its header,
/// if the gateway supports it. Without a header, and for an unknown older revision, it is the
/// stateless one; an unknown newer one is rejected.
///
/// # Errors
///
/// [`ClassifyError::Unsupported`] for a revision newer than all known ones.
pub fn stateless_version(headers: &McpHeaders<'_>) -> Result<Version, ClassifyError> {
    let McpHeaderValue::Is(text) = headers.version else { return Ok(Version::STATELESS) };
    match Version::named(text) {
        Some(version) => Ok(version),
        None if text > Version::V2025_11_25.as_str() => Err(ClassifyError::Unsupported(capped(text))),
        None => Ok(Version::STATELESS),
    }
}

fn name_agrees(
    message: &Message<'_, ClientParams<'_>>,
    headers: &McpHeaders<'_>,
) -> Result<(), ClassifyError> {
    let params = message.params.as_ref();
    let named = match Method::named(message.method.as_str(), Era::Modern) {
        Some(Method::ToolsCall | Method::PromptsGet) => params.and_then(|params| params.name.as_ref()),
        Some(Method::ResourcesRead) => params.and_then(|params| params.uri.as_ref()),
        Some(Method::TasksGet | Method::TasksCancel | Method::TasksUpdate) => {
            params.and_then(|params| params.task_id.as_ref())
        }
        _ => return Ok(()),
    };
    // A member that is missing in the body is reported as bad params, which is more precise.
    let Some(named) = named else { return Ok(()) };
    let header = headers.name.value().map(|value| {
        decode_base64_name(value)
            .ok_or_else(|| ClassifyError::Mismatch("Mcp-Name is not valid base64 in =?base64?…?=".into()))
    });
    match header.transpose()? {
        Some(value) if value == named.as_str() => Ok(()),
        Some(value) => Err(mismatch("Mcp-Name", &value, named.as_str())),
        None => Err(missing_header("Mcp-Name", headers.name)),
    }
}

fn agree(name: &str, header: McpHeaderValue<'_>, body: &str) -> Result<(), ClassifyError> {
    match header {
        McpHeaderValue::Is(value) if value == body => Ok(()),
        McpHeaderValue::Is(value) => Err(mismatch(name, value, body)),
        McpHeaderValue::Absent | McpHeaderValue::Unusable => Err(missing_header(name, header)),
    }
}

fn mismatch(name: &str, header: &str, body: &str) -> ClassifyError {
    ClassifyError::Mismatch(format!("{name} says {:?}, the body {:?}", capped(header), capped(body)))
}

fn missing_header(name: &str, header: McpHeaderValue<'_>) -> ClassifyError {
    ClassifyError::Mismatch(match header {
        McpHeaderValue::Unusable => format!("{name} is there more than once or is not visible ASCII"),
        McpHeaderValue::Absent | McpHeaderValue::Is(_) => format!("{name} is missing"),
    })
}

fn capped(text: &str) -> String {
    text.chars().take(100).collect()
}

/// `MCP-Protocol-Version`.
pub(crate) const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
/// `Mcp-Session-Id`.
pub(crate) const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
/// `Mcp-Method`.
pub const METHOD: HeaderName = HeaderName::from_static("mcp-method");
/// `Mcp-Name`.
pub const NAME: HeaderName = HeaderName::from_static("mcp-name");

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
    /// Adds a value of the header.
    fn add(&mut self, value: &'a HeaderValue) {
        *self = match self {
            Self::Absent => value.to_str().map_or(Self::Unusable, |text| Self::Is(text.trim())),
            Self::Is(_) | Self::Unusable => Self::Unusable,
        };
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
        let mut found = Self::default();
        // One pass over all headers costs as much as two look-ups.
        for (name, value) in headers {
            let place = match name.as_str() {
                "mcp-protocol-version" => &mut found.version,
                "mcp-session-id" => &mut found.session,
                "mcp-method" => &mut found.method,
                "mcp-name" => &mut found.name,
                "user-agent" => &mut found.user_agent,
                _ => continue,
            };
            place.add(value);
        }
        (found.takes_json, found.takes_stream) = accepted(headers);
        found
    }
}

/// Reads from the `Accept` header if the client accepts JSON, and if SSE. A header that allows
/// neither is read as allowing both: real clients send odd ones, and a rejection would not help
/// them.
fn accepted(headers: &HeaderMap) -> (bool, bool) {
    // As nearly every client writes it.
    if headers.get(ACCEPT).is_some_and(|value| value == "application/json, text/event-stream") {
        return (true, true);
    }
    let mut json = false;
    let mut stream = false;
    let ranges = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
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
    use crate::jsonrpc::parse;

    const META: &str = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;

    fn placed(
        body: &str,
        version: Option<&str>,
        method: Option<&str>,
        name: Option<&str>,
    ) -> Result<MessageEra, ClassifyError> {
        let is = |value: Option<&'static str>| value.map_or(McpHeaderValue::Absent, McpHeaderValue::Is);
        let leak = |value: Option<&str>| value.map(|text| &*Box::leak(text.to_owned().into_boxed_str()));
        let headers = McpHeaders {
            version: is(leak(version)),
            method: is(leak(method)),
            name: is(leak(name)),
            ..McpHeaders::default()
        };
        classify(&parse(body).unwrap(), &headers)
    }

    fn request(method: &str, params: &str) -> String {
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{{params}}}}}"#)
    }

    #[test]
    fn each_header_has_one_value_at_most() {
        let names = [PROTOCOL_VERSION, SESSION_ID, METHOD, NAME, http::header::USER_AGENT];
        let read = |headers: &HeaderMap| {
            let McpHeaders { version, session, method, name, user_agent, .. } = McpHeaders::read(headers);
            [version, session, method, name, user_agent].map(|value| match value {
                McpHeaderValue::Absent => None,
                McpHeaderValue::Is(text) => Some(Ok(text.to_owned())),
                McpHeaderValue::Unusable => Some(Err(())),
            })
        };
        for at in 0..names.len() {
            let mut headers = HeaderMap::new();
            let found = |headers: &HeaderMap| {
                let mut all = read(headers);
                let value = all[at].take();
                assert_eq!(all, [const { None }; 5], "only one header is there");
                value
            };
            assert_eq!(found(&headers), None);
            headers.insert(&names[at], HeaderValue::from_static(" a "));
            assert_eq!(found(&headers), Some(Ok("a".to_owned())));
            headers.append(&names[at], HeaderValue::from_static("a"));
            assert_eq!(found(&headers), Some(Err(())));
            headers.insert(&names[at], HeaderValue::from_bytes(&[0xff]).unwrap());
            assert_eq!(found(&headers), Some(Err(())));
        }
    }

    #[test]
    fn a_claim_makes_a_request_modern_if_the_headers_agree() {
        let body = request("tools/list", META);
        let modern = Some("2026-07-28");
        assert!(matches!(placed(&body, modern, Some("tools/list"), None), Ok(MessageEra::Modern(..))));
        for (version, method) in [
            (None, Some("tools/list")),
            (Some("2025-11-25"), Some("tools/list")),
            (modern, None),
            (modern, Some("TOOLS/LIST")),
        ] {
            assert!(
                matches!(placed(&body, version, method, None), Err(ClassifyError::Mismatch(_))),
                "{version:?}"
            );
        }
    }

    #[test]
    fn the_header_is_compared_before_the_revision_is_judged() {
        let body = request("server/discover", &META.replace("2026-07-28", "v999.0.0"));
        assert!(matches!(placed(&body, Some("2026-07-28"), None, None), Err(ClassifyError::Mismatch(_))));
        let unsupported = placed(&body, Some("v999.0.0"), Some("server/discover"), None);
        assert_eq!(unsupported, Err(ClassifyError::Unsupported("v999.0.0".into())));
    }

    #[test]
    fn a_modern_header_without_a_claim_is_a_broken_envelope() {
        let body = request("server/discover", "");
        assert!(matches!(placed(&body, Some("2026-07-28"), None, None), Err(ClassifyError::Envelope(_))));
    }

    #[test]
    fn a_name_must_be_mirrored() {
        let body = request("tools/call", &format!(r#""name":"é",{META}"#));
        let with = |name| placed(&body, Some("2026-07-28"), Some("tools/call"), name);
        assert!(with(Some("=?base64?w6k=?=")).is_ok());
        for name in [None, Some("e"), Some("=?base64?*?=")] {
            assert!(matches!(with(name), Err(ClassifyError::Mismatch(_))), "{name:?}");
        }
    }

    #[test]
    fn a_task_is_mirrored_as_a_name_is() {
        for method in ["tasks/get", "tasks/cancel", "tasks/update"] {
            let body = request(method, &format!(r#""taskId":"t-1",{META}"#));
            let with = |name| placed(&body, Some("2026-07-28"), Some(method), name);
            assert!(with(Some("t-1")).is_ok() && with(Some("=?base64?dC0x?=")).is_ok(), "{method}");
            for name in [None, Some("t-2")] {
                assert!(matches!(with(name), Err(ClassifyError::Mismatch(_))), "{method} {name:?}");
            }
            let nameless = placed(&request(method, META), Some("2026-07-28"), Some(method), None);
            assert!(nameless.is_ok(), "{method}: told as bad params, which say more");
        }
    }

    #[test]
    fn everything_else_is_legacy_and_a_sticky_header_does_no_harm() {
        for version in [None, Some("2025-06-18"), Some("2024-01-01"), Some("nonsense")] {
            assert_eq!(
                placed(&request("tools/list", ""), version, None, None),
                Ok(MessageEra::Legacy),
                "{version:?}"
            );
        }
    }

    #[test]
    fn without_a_session_only_the_future_is_refused() {
        for (version, served) in [("2024-01-01", true), ("2025-06-18", true), ("2031-01-01", false)] {
            let headers = McpHeaders { version: McpHeaderValue::Is(version), ..McpHeaders::default() };
            assert_eq!(stateless_version(&headers).is_ok(), served, "{version}");
        }
    }

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
