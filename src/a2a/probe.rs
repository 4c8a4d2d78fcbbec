//! Detects the dialect of an agent with a card that shows no version, without starting a task.
//!
//! The probes are sends without a message, which every known server rejects before it does
//! anything; the form of the error reveals the dialect. Cards that show a version are handled in
//! `card`.

use serde::Deserialize;

use super::depth::{MAX_DEPTH, depth_within};
use super::lenient::{LenientInteger, LenientObject};

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
        match (self, code(body), status) {
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
fn code(body: &[u8]) -> Option<i64> {
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
}
