//! The era of a request, and the agreement of its headers with its body.
//!
//! Implements the table of `docs/spec/mcp.md` §1.5, body first. Returns plain errors: `fault`
//! depends on this folder and not the other way round. A legacy request is only classified as
//! legacy; its session is resolved elsewhere.

use super::headers::{McpHeaderValue, McpHeaders, decode_base64_name};
use super::lifecycle::ClientCapabilities;
use super::params::{ClientParams, RequestMeta};
use super::version::Method;
use super::version::{Era, Version};
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
}
