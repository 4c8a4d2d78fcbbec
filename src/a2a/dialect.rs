//! The dialects of A2A: the versions that the gateway tells apart, the headers of each, and the
//! detection with a card that shows no version, without starting a task.
//!
//! Cards that show a version are handled in `card`. The probes are sends without a message, which
//! every known server rejects before it does anything; the form of the error reveals the dialect.
//! Requests are in `request`, responses in `decode`.

use http::{HeaderName, HeaderValue};
use serde::Deserialize;

use super::lenient::{LenientInteger, LenientObject, MAX_DEPTH, depth_within};

const VERSION: HeaderName = HeaderName::from_static("a2a-version");
const EXTENSIONS: HeaderName = HeaderName::from_static("a2a-extensions");
const OLD_EXTENSIONS: HeaderName = HeaderName::from_static("x-a2a-extensions");

/// Maximum length of an extension URI in a request to an agent, in bytes.
const MAX_EXTENSION: usize = 512;
/// Maximum number of extensions named in one request.
const MAX_EXTENSIONS: usize = 32;

/// A group of A2A versions with one wire format: the versions within one differ too little to
/// matter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// A2A 0.1: `tasks/send`.
    V0_1,
    /// A2A 0.2 and 0.3: `message/send`.
    V0_3,
    /// A2A 1.0: `SendMessage`.
    V1,
}

/// Returns the bindings of the gateway for clients of these dialects. HTTP+JSON of 0.3 is a
/// different one, which the gateway does not have.
pub(crate) fn bindings_of(clients: &[Dialect]) -> &'static [&'static str] {
    if clients.contains(&Dialect::V1) { &["JSONRPC", "HTTP+JSON"] } else { &["JSONRPC"] }
}

impl Dialect {
    /// Returns the version for people, and for `A2A-Version`.
    pub fn version(self) -> &'static str {
        match self {
            Self::V0_1 => "0.1",
            Self::V0_3 => "0.3",
            Self::V1 => "1.0",
        }
    }

    /// Returns true if the client, not the agent, generates the ids of a new task and of its
    /// conversation. They must be unguessable: a message with the id of a task continues it.
    pub(crate) fn client_generates_task_ids(self) -> bool {
        match self {
            Self::V0_1 => true,
            Self::V0_3 | Self::V1 => false,
        }
    }

    /// Returns the dialects of the clients that an agent of this dialect serves, its own first: all
    /// of them if the gateway translates, else its own alone.
    pub(crate) fn served_with(self, translate: bool) -> Vec<Self> {
        let others = [Self::V1, Self::V0_3, Self::V0_1].into_iter().filter(|other| *other != self);
        std::iter::once(self).chain(others.filter(|_| translate)).collect()
    }

    /// Returns the header that names extensions; 0.1 has none, and its servers know that of 0.3.
    pub(crate) fn extensions_header(self) -> HeaderName {
        match self {
            Self::V0_1 | Self::V0_3 => OLD_EXTENSIONS,
            Self::V1 => EXTENSIONS,
        }
    }

    /// Returns the headers of every request, with these extensions. Text that is no URI of an
    /// extension is skipped.
    pub fn headers(self, extensions: &[String]) -> Vec<(HeaderName, HeaderValue)> {
        let extensions = extension_list(extensions);
        let mut headers = Vec::with_capacity(2);
        match self {
            Self::V0_1 => return headers,
            // No version: 0.3 servers ignore it, and some that support both route by it.
            Self::V0_3 => headers.extend(extensions.clone().map(|list| (OLD_EXTENSIONS, list))),
            Self::V1 => headers.push((VERSION, HeaderValue::from_static("1.0"))),
        }
        headers.extend(extensions.map(|list| (EXTENSIONS, list)));
        headers
    }
}

fn extension_list(extensions: &[String]) -> Option<HeaderValue> {
    let nameable = |uri: &&String| {
        (1..=MAX_EXTENSION).contains(&uri.len())
            && uri.bytes().all(|b| b.is_ascii_graphic() && b != b',' && b != b'"')
    };
    let named: Vec<&str> =
        extensions.iter().filter(nameable).map(String::as_str).take(MAX_EXTENSIONS).collect();
    if named.is_empty() {
        return None;
    }
    HeaderValue::from_str(&named.join(", ")).ok()
}

/// One probe, sent by POST of [`ProbeRequest::body`] to the card's URL, without `A2A-Version`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProbeRequest {
    /// A2A 0.2 and 0.3: `message/send`. Send this one first.
    MessageSend,
    /// A2A 0.1: `tasks/send`. Send only after [`ProbeOutcome::AskTasksSend`].
    TasksSend,
}

/// The result of a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProbeOutcome {
    /// A2A 0.2 or 0.3.
    Slash,
    /// A2A 1.0.
    V1,
    /// A2A 0.1.
    V0_1,
    /// Not decided yet: send [`ProbeRequest::TasksSend`].
    AskTasksSend,
    /// The response shows nothing; do not store this outcome.
    Undecided,
}

impl ProbeRequest {
    /// Returns the JSON-RPC request.
    pub fn body(self) -> &'static [u8] {
        match self {
            Self::MessageSend => br#"{"jsonrpc":"2.0","id":1,"method":"message/send","params":{}}"#,
            Self::TasksSend => br#"{"jsonrpc":"2.0","id":1,"method":"tasks/send","params":{}}"#,
        }
    }

    /// Evaluates the response to this probe: its HTTP status and body.
    pub fn verdict(self, status: u16, body: &[u8]) -> ProbeOutcome {
        // Any other status comes from a component before the agent: authentication, limits, a
        // broken backend.
        if !matches!(status, 200..=299 | 400 | 404 | 422) {
            return ProbeOutcome::Undecided;
        }
        match (self, error_code(body), status) {
            (Self::MessageSend, Some(-32602 | -32603), _) => ProbeOutcome::Slash,
            // The Python reference server of 0.1 rejects every unknown method in this way, with
            // this status.
            (Self::MessageSend, Some(-32600), 400) => ProbeOutcome::V0_1,
            (Self::MessageSend, Some(-32600), _) => ProbeOutcome::Slash,
            (Self::MessageSend, Some(-32009), _) => ProbeOutcome::V1,
            (Self::MessageSend, Some(-32601), _) => ProbeOutcome::AskTasksSend,
            (Self::TasksSend, Some(-32602 | -32600), _) => ProbeOutcome::V0_1,
            (Self::TasksSend, Some(_), _) => ProbeOutcome::V1,
            (Self::MessageSend, Some(_), _) | (_, None, _) => ProbeOutcome::Undecided,
        }
    }
}

#[derive(Deserialize)]
struct ProbeResponse {
    #[serde(default)]
    error: LenientObject<ErrorIn>,
}

#[derive(Deserialize)]
struct ErrorIn {
    #[serde(default)]
    code: LenientInteger,
}

/// Returns the code of a JSON-RPC error, if the body is one.
fn error_code(body: &[u8]) -> Option<i64> {
    if !depth_within(body, MAX_DEPTH) {
        return None;
    }
    let LenientObject(answer) = serde_json::from_slice::<LenientObject<ProbeResponse>>(body).ok()?;
    answer?.error.0?.code.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_known_server_is_told_by_how_it_refuses() {
        use ProbeRequest::{MessageSend, TasksSend};
        for (peer, question, status, code, verdict) in [
            ("0.1 Python", MessageSend, 400, -32600, ProbeOutcome::V0_1),
            ("0.1 JavaScript", MessageSend, 200, -32601, ProbeOutcome::AskTasksSend),
            ("0.1 JavaScript", TasksSend, 200, -32602, ProbeOutcome::V0_1),
            ("Python 0.2.16", MessageSend, 200, -32600, ProbeOutcome::Slash),
            ("Python 0.3.26", MessageSend, 200, -32602, ProbeOutcome::Slash),
            ("JavaScript 0.3.14", MessageSend, 200, -32603, ProbeOutcome::Slash),
            ("Python 1.3", MessageSend, 200, -32601, ProbeOutcome::AskTasksSend),
            ("Python 1.3", TasksSend, 200, -32601, ProbeOutcome::V1),
            ("Python 1.3 compat", MessageSend, 200, -32600, ProbeOutcome::Slash),
            ("JavaScript 1.3", MessageSend, 200, -32009, ProbeOutcome::V1),
            ("JavaScript 1.3", TasksSend, 200, -32009, ProbeOutcome::V1),
            ("JavaScript 1.3 compat", MessageSend, 200, -32602, ProbeOutcome::Slash),
            ("a guard", MessageSend, 401, -32602, ProbeOutcome::Undecided),
            ("a broken backend", TasksSend, 503, -32602, ProbeOutcome::Undecided),
            ("something else", MessageSend, 200, -1, ProbeOutcome::Undecided),
        ] {
            let body = format!(r#"{{"jsonrpc":"2.0","id":1,"error":{{"code":{code},"message":"no"}}}}"#);
            assert_eq!(question.verdict(status, body.as_bytes()), verdict, "{peer} {question:?}");
        }
    }

    #[test]
    fn an_answer_that_is_no_refusal_decides_nothing() {
        for body in [
            "",
            "<html>",
            "[]",
            "{}",
            r#"{"error":"unauthorized"}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":{}}"#,
        ] {
            for question in [ProbeRequest::MessageSend, ProbeRequest::TasksSend] {
                assert_eq!(question.verdict(200, body.as_bytes()), ProbeOutcome::Undecided, "{body}");
            }
        }
    }

    #[test]
    fn text_that_is_no_extension_never_reaches_a_header() {
        let bad = ["", "a b", "a,b", "a\r\nx: y", "é", "\"a\"", &"x".repeat(513)].map(str::to_owned);
        assert_eq!(Dialect::V0_1.headers(&["urn:a".to_owned()]), [], "it knows no extensions");
        assert_eq!(Dialect::V0_3.headers(&bad), []);
        assert_eq!(Dialect::V1.headers(&bad), [(VERSION, HeaderValue::from_static("1.0"))]);
        let many = vec!["urn:a".to_owned(); 100];
        let headers = Dialect::V1.headers(&many);
        assert_eq!(headers[1].1.to_str().unwrap().matches("urn:a").count(), MAX_EXTENSIONS);
    }
}
