//! The JSON-RPC envelope of a response, and the SSE event around it.

use bytes::Bytes;
use http::HeaderValue;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::a2a::translate::Operation;
use crate::a2a::{Binding, Dialect};
use crate::gateway::json_object::wrap;
use crate::jsonrpc::Id;
use crate::sse::encoder;

/// Returns true if a client expects events even for errors when it requests a stream: SDKs of A2A
/// 0.3 and older.
pub(super) fn wants_events(client: Dialect, operation: Option<Operation>) -> bool {
    client != Dialect::V1 && operation.is_some_and(Operation::is_stream)
}

/// Returns true if the data of an event holds a message: JSON of A2A is always an object. Some
/// servers write `[DONE]`, or an empty text.
pub(super) fn is_message(data: &str) -> bool {
    data.trim_start().starts_with('{')
}

/// Returns true if a JSON-RPC response belongs to another request. A response without an id, or an
/// error with the id `null`, counts as matching.
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
        // Agents may write the same number differently.
        (Some(Value::Number(theirs)), Some(Value::Number(ours))) => theirs.as_f64() != ours.as_f64(),
        (theirs, ours) => theirs != ours,
    }
}

/// Returns a result in the form of a binding.
pub(super) fn unwrap_envelope(binding: Binding, id: &Id, result: &str) -> String {
    match binding {
        Binding::HttpJson if result == "null" => "{}".to_owned(),
        Binding::HttpJson => result.to_owned(),
        Binding::JsonRpc => format!("{{\"jsonrpc\":\"2.0\",\"id\":{},\"result\":{result}}}", id.as_json()),
    }
}

/// Returns a stream with this single event.
pub(super) fn one_event(json: &[u8]) -> (HeaderValue, Bytes) {
    let mut event = Vec::new();
    encoder::event(&mut event, json);
    (HeaderValue::from_static("text/event-stream"), event.into())
}

/// Returns a text with one value replaced.
pub(super) fn with(text: &str, value: &RawValue, new: &str) -> Option<String> {
    wrap(text, value).map(|(before, after)| format!("{before}{new}{after}"))
}

/// Returns true if a body is a JSON-RPC error.
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
