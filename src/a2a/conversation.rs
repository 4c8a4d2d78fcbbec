//! Reads the conversation of a client's message, in any version and binding.

use serde::Deserialize;

use super::depth::{MAX_DEPTH, depth_within};
use super::lenient::{LenientObject, LenientString};

/// A JSON-RPC request, or the body of an HTTP+JSON request.
#[derive(Default, Deserialize)]
#[serde(default)]
struct RequestOrParams {
    params: LenientObject<MessageParams>,
    message: LenientObject<MessageIds>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct MessageParams {
    message: LenientObject<MessageIds>,
    /// Used in 0.1.
    session_id: LenientString,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct MessageIds {
    context_id: LenientString,
}

/// Returns the id of the conversation of the message in a request. An unreadable request has none.
pub fn context_of(request: &[u8]) -> Option<String> {
    if !depth_within(request, MAX_DEPTH) {
        return None;
    }
    let RequestOrParams { params, message } =
        serde_json::from_slice::<LenientObject<RequestOrParams>>(request).ok()?.0?;
    let MessageParams { message: inside, session_id } = params.0.unwrap_or_default();
    let said = inside.0.or(message.0).and_then(|said| said.context_id.filled());
    said.or(session_id.filled())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_version_and_binding_has_its_place_for_the_conversation() {
        for (request, context) in [
            (r#"{"jsonrpc":"2.0","id":1,"method":"x","params":{"message":{"contextId":"c"}}}"#, Some("c")),
            (
                r#"{"method":"tasks/send","params":{"id":"t","sessionId":"s","message":{"parts":[]}}}"#,
                Some("s"),
            ),
            (r#"{"message":{"contextId":"c"},"configuration":{}}"#, Some("c")),
            (r#"{"params":{"message":{"contextId":""}}}"#, None),
            (r#"{"params":{"message":{"contextId":7}}}"#, None),
            (r#"{"params":[],"message":"c"}"#, None),
            ("[]", None),
            ("<html>", None),
        ] {
            assert_eq!(context_of(request.as_bytes()).as_deref(), context, "{request}");
        }
        let deep = format!("{{\"params\":{}{}}}", "[".repeat(999), "]".repeat(999));
        assert_eq!(context_of(deep.as_bytes()), None);
    }
}
