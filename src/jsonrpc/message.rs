//! Parses a body into JSON-RPC messages, and encodes responses, requests and notifications.
//!
//! Generic over the params, so that a layer above can parse them typed in the same pass.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::Id;
use super::json_reader::{ReadError, read_json, read_json_seed};
use super::json_writer::write_json;
use super::{Object, Text};

/// The reason why a text is not one JSON-RPC 2.0 message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// The text is not JSON.
    #[error("{0}")]
    NotJson(String),
    /// The text is JSON, but not a message: the problem, with the name of the member.
    #[error("{0}")]
    NotMessage(String),
    /// A message with `params` of another shape than expected.
    #[error("{0}")]
    BadParams(String),
}

/// The kind of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessageKind {
    /// A request, which needs a response.
    Request,
    /// A notification, which has no response.
    Notification,
    /// A response.
    Response,
}

/// One JSON-RPC message with its params as `P`.
#[derive(Debug)]
pub struct Message<'a, P> {
    /// The kind of the message.
    pub kind: MessageKind,
    /// Id of a request, unless that is `null` (see `parse_raw`); of a response too, where it has
    /// one.
    pub id: Option<Id>,
    /// Method; empty for a response.
    pub method: Text<'a>,
    /// Params; `None` when absent or `null`.
    pub params: Option<P>,
    /// Result of a response, unparsed.
    pub result: Option<&'a RawValue>,
    /// Error of a response, unparsed.
    pub error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(bound(deserialize = "P: Deserialize<'de>"))]
struct WireMessage<'a, P> {
    #[serde(borrow, default)]
    jsonrpc: Option<Text<'a>>,
    #[serde(default, deserialize_with = "present")]
    id: Option<Option<Id>>,
    #[serde(borrow, default)]
    method: Option<Text<'a>>,
    params: Option<Object<P>>,
    #[serde(borrow, default)]
    result: Option<&'a RawValue>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
}

#[derive(Default)]
struct RawWire<'a> {
    jsonrpc: Option<Text<'a>>,
    id: Option<Option<Id>>,
    method: Option<Text<'a>>,
    params: Option<&'a RawValue>,
    result: Option<&'a RawValue>,
    error: Option<&'a RawValue>,
}

/// Reads a message, and reports the names of members that JSON-RPC does not define.
struct RawReader<F>(F);

impl<'de, F: FnMut(&str)> DeserializeSeed<'de> for RawReader<F> {
    type Value = RawWire<'de>;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de, F: FnMut(&str)> Visitor<'de> for RawReader<F> {
    type Value = RawWire<'de>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut wire = RawWire::default();
        let mut seen = 0_u8;
        while let Some(Text(name)) = map.next_key::<Text<'de>>()? {
            let Some((place, known)) = MEMBERS.iter().enumerate().find(|(_, known)| **known == name) else {
                (self.0)(&name);
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            if seen & (1 << place) != 0 {
                return Err(A::Error::duplicate_field(known));
            }
            seen |= 1 << place;
            match *known {
                "jsonrpc" => wire.jsonrpc = map.next_value()?,
                "id" => wire.id = Some(map.next_value()?),
                "method" => wire.method = map.next_value()?,
                "params" => wire.params = map.next_value()?,
                "result" => wire.result = map.next_value()?,
                _ => wire.error = map.next_value()?,
            }
        }
        Ok(wire)
    }
}

/// The members of a message.
const MEMBERS: [&str; 6] = ["jsonrpc", "id", "method", "params", "result", "error"];

/// Distinguishes `"id": null` from an absent id.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<Id>>, D::Error> {
    Option::<Id>::deserialize(deserializer).map(Some)
}

/// Returns true if the body is an array.
pub fn is_batch(text: &str) -> bool {
    text.trim_start().starts_with('[')
}

/// Returns the elements of a body that is an array, at most `most` of them.
///
/// # Errors
///
/// [`ParseError`] if the body is not JSON, empty, or longer than `most`.
pub fn elements(text: &str, most: usize) -> Result<Vec<&RawValue>, ParseError> {
    let all: Vec<&RawValue> = read_json(text).map_err(|error| ParseError::NotJson(error.to_string()))?;
    match all.len() {
        0 => Err(ParseError::NotMessage("the batch is empty".into())),
        count if count > most => {
            Err(ParseError::NotMessage(format!("the batch has {count} messages; at most {most} are taken")))
        }
        _ => Ok(all),
    }
}

/// Parses one message with its params.
///
/// # Errors
///
/// [`ParseError`]; its text names the member that is missing or wrong.
pub fn parse<'a, P: Deserialize<'a>>(text: &'a str) -> Result<Message<'a, P>, ParseError> {
    match read_json::<Object<WireMessage<'a, P>>>(text) {
        Ok(Object(wire)) => classify(wire, NullIdPolicy::Refused),
        Err(error) => Err(locate_error(text, &error)),
    }
}

/// Parses one message without its params.
///
/// # Errors
///
/// As [`parse`].
pub fn parse_envelope(text: &str) -> Result<Message<'_, RawParams<'_>>, ParseError> {
    parse::<RawParams<'_>>(text)
}

/// Parses one message with its params as raw JSON, and calls `other` with the names of members that
/// JSON-RPC does not define. A request may have the id `null` here: JSON-RPC only discourages it,
/// and the response has the same.
///
/// # Errors
///
/// As [`parse`].
pub(crate) fn parse_raw(text: &str, other: impl FnMut(&str)) -> Result<Message<'_, &RawValue>, ParseError> {
    let wire = read_json_seed(text, RawReader(other)).map_err(|error| locate_error(text, &error))?;
    if wire.params.is_some_and(|params| !params.get().starts_with('{')) {
        return Err(ParseError::BadParams("params must be an object".into()));
    }
    let RawWire { jsonrpc, id, method, params, result, error } = wire;
    classify(
        WireMessage { jsonrpc, id, method, params: params.map(Object), result, error },
        NullIdPolicy::Taken,
    )
}

/// Params that are parsed later, or never.
#[derive(Debug, Default, Deserialize)]
pub struct RawParams<'a> {
    /// The `_meta` member, unparsed.
    #[serde(borrow, default, rename = "_meta")]
    pub meta: Option<&'a RawValue>,
}

/// Returns the id of a message of which only the first and the last bytes are left, if it is the id
/// of the message itself: clients write it before or after all else.
pub(crate) fn recover_id_of_cut(first: &[u8], last: &[u8]) -> Option<Id> {
    let mut found = None;
    let mut reader = serde_json::Deserializer::from_slice(first);
    // The text ends too soon, after the id or before it.
    if reader.deserialize_map(IdReader(&mut found)).is_err() && found.is_some() {
        return found;
    }
    let last = String::from_utf8_lossy(last);
    let (_, id) = last.trim_end().strip_suffix('}')?.rsplit_once("\"id\":")?;
    serde_json::from_str(id.trim()).ok()
}

/// Reads the members of an object up to the id.
struct IdReader<'f>(&'f mut Option<Id>);

impl<'de> Visitor<'de> for IdReader<'_> {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(name) = map.next_key::<Text<'de>>()? {
            if name.as_str() == "id" {
                *self.0 = Some(map.next_value()?);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }
}

/// Returns the id of a body that is not a valid message, so that the client can match the error to
/// its request.
pub fn recover_id(text: &str) -> Option<Id> {
    #[derive(Deserialize)]
    struct OnlyId {
        id: Option<Id>,
    }
    serde_json::from_str::<Object<OnlyId>>(text).ok()?.0.id
}

/// Locates the error: syntax, the envelope, or only the params.
fn locate_error(text: &str, error: &ReadError) -> ParseError {
    if serde_json::from_str::<&RawValue>(text).is_err() {
        return ParseError::NotJson(error.to_string());
    }
    match serde_json::from_str::<Object<WireMessage<'_, IgnoredAny>>>(text) {
        Ok(Object(wire)) => match classify(wire, NullIdPolicy::Refused) {
            Ok(_) => ParseError::BadParams(error.to_string()),
            Err(grammar) => grammar,
        },
        Err(error) if error.to_string().starts_with("invalid type") && has_odd_params(text) => {
            ParseError::BadParams("params must be an object".into())
        }
        Err(error) => ParseError::NotMessage(error.to_string()),
    }
}

/// Returns true if only the type of `params` is wrong.
fn has_odd_params(text: &str) -> bool {
    #[derive(Deserialize)]
    struct Rest<'a> {
        #[serde(borrow)]
        params: Option<&'a RawValue>,
    }
    serde_json::from_str::<Rest<'_>>(text)
        .is_ok_and(|rest| rest.params.is_some_and(|params| !params.get().starts_with('{')))
}

/// The treatment of a request with the id `null`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum NullIdPolicy {
    Refused,
    Taken,
}

fn classify<P>(wire: WireMessage<'_, P>, null: NullIdPolicy) -> Result<Message<'_, P>, ParseError> {
    match wire.jsonrpc {
        Some(version) if version.as_str() == "2.0" => {}
        Some(version) => {
            let shown: String = version.as_str().chars().take(20).collect();
            return Err(ParseError::NotMessage(format!("member \"jsonrpc\" must be \"2.0\", not {shown:?}")));
        }
        None => {
            return Err(ParseError::NotMessage("member \"jsonrpc\" is missing; it must be \"2.0\"".into()));
        }
    }
    let kind = match (&wire.method, &wire.id, wire.result.is_some() || wire.error.is_some()) {
        (Some(_), Some(Some(_)), false) => MessageKind::Request,
        (Some(_), Some(None), false) if null == NullIdPolicy::Taken => MessageKind::Request,
        (Some(_), None, false) => MessageKind::Notification,
        (None, _, true) => MessageKind::Response,
        (Some(_), Some(None), false) => {
            return Err(ParseError::NotMessage(
                "member \"id\" must be a string or a number, not null".into(),
            ));
        }
        (Some(_), _, true) => {
            return Err(ParseError::NotMessage("a message has a method or a result, not both".into()));
        }
        (None, _, false) => return Err(ParseError::NotMessage("member \"method\" is missing".into())),
    };
    let WireMessage { id, method, params, result, error, .. } = wire;
    let params = params.map(|Object(params)| params);
    let method = method.unwrap_or(Text("".into()));
    Ok(Message { kind, id: id.flatten(), method, params, result, error })
}

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

/// Initial capacity of a message besides its content, in bytes.
const MESSAGE_BYTES: usize = 512;

/// Response of last resort, for a response that cannot be encoded; no cause for that is known.
const LAST_RESORT: &[u8] =
    br#"{"jsonrpc":"2.0","id":null,"error":{"code":-32603,"message":"the answer could not be written"}}"#;

/// Encodes a response with `result`, as compact JSON without line breaks.
pub fn write_result<R: Serialize>(id: &Id, result: &R) -> Vec<u8> {
    write_long_result(id, result, 0)
}

/// As [`write_result`], for a result of about `bytes` bytes.
pub(crate) fn write_long_result<R: Serialize>(id: &Id, result: &R, bytes: usize) -> Vec<u8> {
    write_long(&SuccessEnvelope { jsonrpc: "2.0", id, result }, bytes)
}

/// Encodes a response with an error; `id` is `None` only if that of the request could not be read.
pub fn write_error(id: Option<&Id>, code: i32, message: &str, data: Option<&RawValue>) -> Vec<u8> {
    write(&ErrorEnvelope { jsonrpc: "2.0", id, error: ErrorObject { code, message, data } })
}

/// Encodes a notification.
pub(crate) fn write_notification<P: Serialize>(method: &str, params: Option<&P>) -> Vec<u8> {
    write(&NotificationEnvelope { jsonrpc: "2.0", method, params })
}

/// Adds a notification to `out`.
pub(crate) fn add_notification<P: Serialize>(out: &mut Vec<u8>, method: &str, params: &P) {
    add(out, &NotificationEnvelope { jsonrpc: "2.0", method, params: Some(params) });
}

/// Encodes a request of the gateway; its id is a string.
pub(crate) fn write_request<P: Serialize>(id: &str, method: &str, params: &P) -> Vec<u8> {
    write(&RequestEnvelope { jsonrpc: "2.0", id, method, params })
}

fn write<T: Serialize>(value: &T) -> Vec<u8> {
    write_long(value, 0)
}

fn write_long<T: Serialize>(value: &T, bytes: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.saturating_add(MESSAGE_BYTES));
    add(&mut out, value);
    out
}

fn add<T: Serialize>(out: &mut Vec<u8>, value: &T) {
    let before = out.len();
    if write_json(out, value).is_err() {
        out.truncate(before);
        out.extend_from_slice(LAST_RESORT);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(text: &str) -> ParseError {
        parse_envelope(text).unwrap_err()
    }

    #[test]
    fn each_kind_is_told_apart() {
        for (text, kind) in [
            (r#"{"jsonrpc":"2.0","id":0,"method":"ping"}"#, MessageKind::Request),
            (r#"{"jsonrpc":"2.0","id":"","method":"ping","params":null}"#, MessageKind::Request),
            (r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#, MessageKind::Notification),
            (r#"{"jsonrpc":"2.0","id":4,"result":{}}"#, MessageKind::Response),
            (r#"{"jsonrpc":"2.0","id":null,"error":{"code":-1,"message":""}}"#, MessageKind::Response),
        ] {
            assert_eq!(parse_envelope(text).unwrap().kind, kind, "{text}");
        }
    }

    #[test]
    fn response_members_are_kept_verbatim() {
        let said = |text: &'static str| {
            let message = parse_envelope(text).unwrap();
            (message.result.map(RawValue::get), message.error.map(RawValue::get))
        };
        let accepted = r#"{"jsonrpc":"2.0","id":"t","result":{"action": "accept"}}"#;
        assert_eq!(said(accepted), (Some(r#"{"action": "accept"}"#), None));
        let failed = r#"{"jsonrpc":"2.0","id":"t","error":{"code":-1}}"#;
        assert_eq!(said(failed), (None, Some(r#"{"code":-1}"#)));
        assert_eq!(said(r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#), (None, None));
    }

    #[test]
    fn errors_name_the_member() {
        for (text, named) in [
            ("{", "EOF"),
            (r#"{"id":1,"method":"a"}"#, "\"jsonrpc\" is missing"),
            (r#"{"jsonrpc":"1.0","id":1,"method":"a"}"#, "must be \"2.0\""),
            (r#"{"jsonrpc":"2.0","id":1}"#, "\"method\" is missing"),
            (r#"{"jsonrpc":"2.0","id":null,"method":"a"}"#, "not null"),
            (r#"{"jsonrpc":"2.0","id":{},"method":"a"}"#, "string or a number"),
            (r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"a"}"#, "duplicate field `id`"),
            (r#"{"jsonrpc":"2.0","id":1,"method":"a","params":[]}"#, "params must be an object"),
            (r#"[]"#, "expected an object"),
            ("7", "expected an object"),
        ] {
            assert!(wrong(text).to_string().contains(named), "{text}: {}", wrong(text));
        }
    }

    #[test]
    fn raw_params_are_kept_as_they_came() {
        let text = r#"{"jsonrpc":"2.0","id":1,"method":"a","params": { "b" : 1.0 }}"#;
        assert_eq!(parse_raw(text, |_| {}).unwrap().params.unwrap().get(), r#"{ "b" : 1.0 }"#);
        let none = r#"{"jsonrpc":"2.0","id":1,"method":"a","params":null}"#;
        assert!(parse_raw(none, |_| {}).unwrap().params.is_none());
        for (text, kind) in [
            (r#"{"jsonrpc":"2.0","id":null,"method":"a"}"#, MessageKind::Request),
            (r#"{"jsonrpc":"2.0","method":"a"}"#, MessageKind::Notification),
        ] {
            let message = parse_raw(text, |_| {}).unwrap();
            assert_eq!((message.kind, message.id), (kind, None), "{text}");
        }
        for (text, wrong) in [
            (r#"{"jsonrpc":"2.0","id":1,"method":"a","params":[]}"#, "params must be an object"),
            (r#"{"jsonrpc":"2.0","id":1,"method":"a","params":{},"params":{}}"#, "duplicate field `params`"),
            (r#"{"jsonrpc":"2.0","id":1,"params":{}}"#, "\"method\" is missing"),
            ("{", "EOF"),
        ] {
            let error = parse_raw(text, |_| {}).unwrap_err().to_string();
            assert!(error.contains(wrong), "{text}: {error}");
        }
    }

    #[test]
    fn raw_members_of_other_names_are_told() {
        let mut others = Vec::new();
        let text = r#"{"jsonrpc":"2.0","id":1,"method":"a","METHOD":{"b":1},"m\u006fre":[]}"#;
        parse_raw(text, |name| others.push(name.to_owned())).unwrap();
        assert_eq!(others, ["METHOD", "more"]);
        for text in
            [r#"{"jsonrpc":"2.0","method":"a"} 7"#, "[]", r#"{"jsonrpc":"2.0","method":"a","method":"a"}"#]
        {
            assert!(parse_raw(text, |_| {}).is_err(), "{text}");
        }
    }

    #[test]
    fn names_are_exact_never_folded() {
        let message =
            parse_envelope(r#"{"jsonrpc":"2.0","id":1,"method":"a","METHOD":"b","Params":[]}"#).unwrap();
        assert_eq!(message.method.as_str(), "a");
    }

    #[test]
    fn a_request_carries_its_id_as_a_string() {
        let request = write_request("a\"1", "ping", &serde_json::json!({ "x": 1 }));
        assert_eq!(
            String::from_utf8(request).unwrap(),
            r#"{"jsonrpc":"2.0","id":"a\"1","method":"ping","params":{"x":1}}"#
        );
    }
}
