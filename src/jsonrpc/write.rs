//! Encodes responses, notifications and requests.

use serde::Serialize;
use serde_json::value::RawValue;

use super::id::Id;

#[derive(Serialize)]
struct SuccessEnvelope<'a, R> {
    jsonrpc: &'static str,
    id: &'a Id,
    result: &'a R,
}

#[derive(Serialize)]
struct ErrorEnvelope<'a> {
    jsonrpc: &'static str,
    id: Option<&'a Id>,
    error: ErrorObject<'a>,
}

#[derive(Serialize)]
struct ErrorObject<'a> {
    code: i32,
    message: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<&'a RawValue>,
}

#[derive(Serialize)]
struct NotificationEnvelope<'a, P> {
    jsonrpc: &'static str,
    method: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    params: Option<&'a P>,
}

#[derive(Serialize)]
struct RequestEnvelope<'a, P> {
    jsonrpc: &'static str,
    id: &'a str,
    method: &'a str,
    params: &'a P,
}

/// Response of last resort, for a response that cannot be encoded; no cause for that is known.
const LAST_RESORT: &[u8] =
    br#"{"jsonrpc":"2.0","id":null,"error":{"code":-32603,"message":"the answer could not be written"}}"#;

/// Encodes a response with `result`, as compact JSON without line breaks.
pub fn write_result<R: Serialize>(id: &Id, result: &R) -> Vec<u8> {
    write(&SuccessEnvelope { jsonrpc: "2.0", id, result })
}

/// Encodes a response with an error; `id` is `None` only if that of the request could not be read.
pub fn write_error(id: Option<&Id>, code: i32, message: &str, data: Option<&RawValue>) -> Vec<u8> {
    write(&ErrorEnvelope { jsonrpc: "2.0", id, error: ErrorObject { code, message, data } })
}

/// Encodes a notification.
pub fn write_notification<P: Serialize>(method: &str, params: Option<&P>) -> Vec<u8> {
    write(&NotificationEnvelope { jsonrpc: "2.0", method, params })
}

/// Encodes a request of the gateway; its id is a string.
pub fn write_request<P: Serialize>(id: &str, method: &str, params: &P) -> Vec<u8> {
    write(&RequestEnvelope { jsonrpc: "2.0", id, method, params })
}

fn write<T: Serialize>(value: &T) -> Vec<u8> {
    let mut out = Vec::with_capacity(512);
    match serde_json::to_writer(&mut out, value) {
        Ok(()) => out,
        Err(_) => LAST_RESORT.to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_carries_its_id_as_a_string() {
        let request = write_request("a\"1", "ping", &serde_json::json!({ "x": 1 }));
        assert_eq!(
            String::from_utf8(request).unwrap(),
            r#"{"jsonrpc":"2.0","id":"a\"1","method":"ping","params":{"x":1}}"#
        );
    }
}
