//! What is around an answer: the envelope of JSON-RPC, and the event of a stream.
//!
//! Not here: what is in it (see `answers`).

use bytes::Bytes;
use http::HeaderValue;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::a2a::Dialect;
use crate::a2a::translate::Operation;
use crate::gateway::json_object::wrap;
use crate::jsonrpc::Id;
use crate::sse::encoder;

/// How a client speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ClientBinding {
    /// JSON-RPC.
    Rpc,
    /// HTTP+JSON.
    Rest,
}

/// Whether a client reads nothing but events where it asks for a stream, errors included: SDKs of A2A 0.3 and older.
pub(super) fn wants_events(client: Dialect, operation: Option<Operation>) -> bool {
    client != Dialect::V1 && operation.is_some_and(Operation::is_stream)
}

/// Whether the data of an event says anything: JSON of A2A is always an object. Some servers write `[DONE]`, or nothing.
pub(super) fn is_message(data: &str) -> bool {
    data.trim_start().starts_with('{')
}

/// Returns true if a response of JSON-RPC is one to another request. An error may be one to none, and so may what has no id.
pub(super) fn is_foreign(response: &[u8], id: &Id) -> bool {
    #[derive(Deserialize)]
    struct ClientResponse<'a> {
        #[serde(borrow)]
        id: Option<&'a RawValue>,
    }
    let Ok(ClientResponse { id: Some(theirs) }) = serde_json::from_slice(response) else { return false };
    let read = |json: &str| serde_json::from_str::<Value>(json).ok();
    match (read(theirs.get()), read(id.as_json())) {
        (Some(Value::Null), _) => false,
        // Agents write the same number in other ways.
        (Some(Value::Number(theirs)), Some(Value::Number(ours))) => theirs.as_f64() != ours.as_f64(),
        (theirs, ours) => theirs != ours,
    }
}

/// A result as a binding has it.
pub(super) fn unwrap_envelope(binding: ClientBinding, id: &Id, result: &str) -> String {
    match binding {
        ClientBinding::Rest if result == "null" => "{}".to_owned(),
        ClientBinding::Rest => result.to_owned(),
        ClientBinding::Rpc => format!("{{\"jsonrpc\":\"2.0\",\"id\":{},\"result\":{result}}}", id.as_json()),
    }
}

/// A stream of nothing but this.
pub(super) fn one_event(json: &[u8]) -> (HeaderValue, Bytes) {
    let mut event = Vec::new();
    encoder::event(&mut event, json);
    (HeaderValue::from_static("text/event-stream"), event.into())
}

/// A text with something else in the place of a value in it.
pub(super) fn with(text: &str, value: &RawValue, new: &str) -> Option<String> {
    wrap(text, value).map(|(before, after)| format!("{before}{new}{after}"))
}

/// Whether a body is an error of JSON-RPC.
pub(super) fn is_rpc_error(body: &str) -> bool {
    #[derive(Deserialize)]
    struct Answer {
        error: Option<ErrorCode>,
    }
    #[derive(Deserialize)]
    struct ErrorCode {
        #[serde(rename = "code")]
        _code: i64,
        #[serde(default, rename = "message")]
        _message: Option<IgnoredAny>,
    }
    serde_json::from_str::<Answer>(body).is_ok_and(|answer| answer.error.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_error_of_json_rpc_is_one() {
        for (body, is_one) in [
            (r#"{"id":1,"error":{"code":-32600,"message":"no"}}"#, true),
            (r#"{"error":"unauthorized"}"#, false),
            (r#"{"error":{"status":"x"}}"#, false),
            (r#"{"detail":"no"}"#, false),
            ("<html>", false),
        ] {
            assert_eq!(is_rpc_error(body), is_one, "{body}");
        }
    }
}
