//! The gRPC binding of A2A (1.0 §10, 0.3 §3.2.2): its methods, messages and statuses.
//!
//! A message in protobuf has the same content as ProtoJSON of the same version: in 1.0 that is the `params` and the
//! `result` of JSON-RPC, in 0.3 the body of HTTP+JSON (see `proto_json`) with resource names such as `tasks/7` in place
//! of paths. So gRPC is only another encoding of what the other bindings write and read. The schemas are the official
//! protobuf files in `schemas/`. Frames and trailers are in `agents::grpc`.

mod from_json;
mod schema;
mod to_json;

use std::sync::LazyLock;

use base64::Engine as _;
use serde::Deserialize;
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::value::RawValue;

use self::from_json::{bytes_field, delimited, varint_field};
use self::schema::{RpcMethod, Schema};
use self::to_json::{WireFields, WireValue};
use super::dialect::Dialect;
use super::encode::to_json as encode;
use super::operation::Operation;
use crate::jsonrpc::Text;

/// Maximum nesting of messages, as in the official readers of protobuf.
const MAX_MESSAGE_DEPTH: usize = 100;

static V0_3: LazyLock<Schema> =
    LazyLock::new(|| Schema::read(include_str!("../../../schemas/a2a.v0_3.proto")).unwrap_or_default());
static V1: LazyLock<Schema> =
    LazyLock::new(|| Schema::read(include_str!("../../../schemas/a2a.v1.proto")).unwrap_or_default());

/// The reason why a message cannot be converted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProtobufError {
    /// The version has no such method in this binding.
    #[error("this A2A version has no such method over gRPC")]
    NoMethod,
    /// The message ends within a field.
    #[error("the message ends within a field")]
    Truncated,
    /// A number has more than ten bytes.
    #[error("a number is too long")]
    Varint,
    /// The number or the type of a field is invalid.
    #[error("a field has an invalid tag")]
    Tag,
    /// The type on the wire is not that of the field.
    #[error("field {0} has another type")]
    WireType(u32),
    /// Text is not UTF-8.
    #[error("text is not UTF-8")]
    Text,
    /// A time is outside the years 1 to 9999.
    #[error("a time is out of range")]
    Timestamp,
    /// Messages are nested too deeply.
    #[error("nested too deeply")]
    Depth,
    /// The message is longer than 4 GiB.
    #[error("the message is too long")]
    TooLong,
    /// The JSON is not that of the message.
    #[error("{0}")]
    Json(String),
}

/// Converts the JSON of a request to protobuf.
///
/// # Errors
///
/// [`ProtobufError`] if the version has no such method, or the JSON is not that of its request.
pub fn request_to_protobuf(
    operation: Operation,
    dialect: Dialect,
    json: &[u8],
) -> Result<Vec<u8>, ProtobufError> {
    to_protobuf(operation, dialect, 0, json)
}

/// Converts the JSON of a response, or of an event of a stream, to protobuf.
///
/// # Errors
///
/// As [`request_to_protobuf`].
pub fn response_to_protobuf(
    operation: Operation,
    dialect: Dialect,
    json: &[u8],
) -> Result<Vec<u8>, ProtobufError> {
    to_protobuf(operation, dialect, 1, json)
}

/// Converts a request in protobuf to JSON.
///
/// # Errors
///
/// [`ProtobufError`] if the version has no such method, or the bytes are no message of its request.
pub fn request_to_json(
    operation: Operation,
    dialect: Dialect,
    protobuf: &[u8],
) -> Result<Vec<u8>, ProtobufError> {
    to_json(operation, dialect, 0, protobuf)
}

/// Converts a response, or an event of a stream, from protobuf to JSON.
///
/// # Errors
///
/// As [`request_to_json`].
pub fn response_to_json(
    operation: Operation,
    dialect: Dialect,
    protobuf: &[u8],
) -> Result<Vec<u8>, ProtobufError> {
    to_json(operation, dialect, 1, protobuf)
}

fn to_protobuf(
    operation: Operation,
    dialect: Dialect,
    side: usize,
    json: &[u8],
) -> Result<Vec<u8>, ProtobufError> {
    let (schema, message) = message_type(operation, dialect, side)?;
    let mut protobuf = Vec::with_capacity(json.len());
    from_json::write_message(schema, message, json, &mut protobuf)?;
    Ok(protobuf)
}

fn to_json(
    operation: Operation,
    dialect: Dialect,
    side: usize,
    protobuf: &[u8],
) -> Result<Vec<u8>, ProtobufError> {
    let (schema, message) = message_type(operation, dialect, side)?;
    let mut json = Vec::with_capacity(protobuf.len() + protobuf.len() / 2 + 64);
    to_json::write_message(schema, message, protobuf, &mut json)?;
    Ok(json)
}

fn message_type(
    operation: Operation,
    dialect: Dialect,
    side: usize,
) -> Result<(&'static Schema, usize), ProtobufError> {
    let method = method(operation, dialect).ok_or(ProtobufError::NoMethod)?;
    let message = method.messages.get(side).ok_or(ProtobufError::NoMethod)?;
    Ok((schema(dialect), *message))
}

fn schema(dialect: Dialect) -> &'static Schema {
    match dialect {
        Dialect::V0_1 | Dialect::V0_3 => &V0_3,
        Dialect::V1 => &V1,
    }
}

fn method(operation: Operation, dialect: Dialect) -> Option<&'static RpcMethod> {
    let name = operation.rpc_name(dialect)?;
    schema(dialect).methods().iter().find(|method| method.name() == name)
}

impl Operation {
    /// Returns the path of the operation's method: `/lf.a2a.v1.A2AService/GetTask`; nothing if the version does not
    /// have it.
    pub fn grpc_path(self, dialect: Dialect) -> Option<&'static str> {
        method(self, dialect).map(|method| method.path.as_str())
    }

    /// Returns version and operation of the path of a method.
    pub fn of_grpc_path(path: &str) -> Option<(Dialect, Self)> {
        let dialects = [Dialect::V1, Dialect::V0_3];
        let mut all =
            dialects.into_iter().flat_map(|dialect| Self::ALL.map(|operation| (dialect, operation)));
        all.find(|(dialect, operation)| operation.grpc_path(*dialect) == Some(path))
    }

    fn rpc_name(self, dialect: Dialect) -> Option<&'static str> {
        Some(match (dialect, self) {
            (Dialect::V1, operation) => operation.as_str(),
            (_, Self::List) => return None,
            (_, Self::Subscribe) => "TaskSubscription",
            (_, Self::ListPush) => "ListTaskPushNotificationConfig",
            (_, Self::ExtendedCard) => "GetAgentCard",
            (_, operation) => operation.as_str(),
        })
    }
}

/// The codes of gRPC in the order of their numbers, each with the HTTP status that says the same.
const CODES: [(&str, u16); 17] = [
    ("OK", 200),
    ("CANCELLED", 499),
    ("UNKNOWN", 500),
    ("INVALID_ARGUMENT", 400),
    ("DEADLINE_EXCEEDED", 504),
    ("NOT_FOUND", 404),
    ("ALREADY_EXISTS", 409),
    ("PERMISSION_DENIED", 403),
    ("RESOURCE_EXHAUSTED", 429),
    ("FAILED_PRECONDITION", 400),
    ("ABORTED", 409),
    ("OUT_OF_RANGE", 400),
    ("UNIMPLEMENTED", 501),
    ("INTERNAL", 500),
    ("UNAVAILABLE", 503),
    ("DATA_LOSS", 500),
    ("UNAUTHENTICATED", 401),
];

const UNKNOWN: i32 = 2;
/// Errors of A2A 1.0 are told apart by a detail of this type (A2A 1.0 §10.6).
const ERROR_INFO: &str = "type.googleapis.com/google.rpc.ErrorInfo";

/// The status at the end of a call: code, text, and the details that tell the errors of A2A apart.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GrpcStatus {
    /// The code: `grpc-status`.
    pub code: i32,
    /// The text, decoded: `grpc-message`.
    pub message: String,
    /// The first `google.rpc.ErrorInfo`, which is all that is kept of the details.
    pub info: Option<ErrorInfo>,
}

/// `google.rpc.ErrorInfo`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ErrorInfo {
    /// The reason: `TASK_NOT_FOUND`.
    pub reason: String,
    /// The party that defines the reason: `a2a-protocol.org`.
    pub domain: String,
}

impl GrpcStatus {
    /// Returns the name of the code: `NOT_FOUND`; an unknown code is `UNKNOWN`.
    pub fn name(&self) -> &'static str {
        self.known().0
    }

    /// Returns the HTTP status that says the same.
    pub fn http_status(&self) -> u16 {
        self.known().1
    }

    fn known(&self) -> (&'static str, u16) {
        let known = usize::try_from(self.code).ok().and_then(|code| CODES.get(code));
        known.copied().unwrap_or(("UNKNOWN", 500))
    }

    /// Returns the code with this name.
    pub fn code_of(name: &str) -> Option<i32> {
        CODES.iter().position(|(known, _)| *known == name).and_then(|code| i32::try_from(code).ok())
    }

    /// Returns the code for a response that only has an HTTP status, as gRPC maps them.
    pub fn code_of_http(status: u16) -> i32 {
        let name = match status {
            400 => "INTERNAL",
            401 => "UNAUTHENTICATED",
            403 => "PERMISSION_DENIED",
            404 => "UNIMPLEMENTED",
            429 | 502 | 503 | 504 => "UNAVAILABLE",
            _ => "UNKNOWN",
        };
        Self::code_of(name).unwrap_or(UNKNOWN)
    }

    /// Reads the error body of HTTP+JSON (AIP-193); `None` if it is none.
    pub fn from_error_json(json: &[u8]) -> Option<Self> {
        let body = serde_json::from_slice::<ErrorBody<'_>>(json).ok()?;
        let error = serde_json::from_str::<ErrorContent<'_>>(body.error.get()).ok()?;
        let text = |text: Option<Text<'_>>| text.map(|text| text.as_str().to_owned()).unwrap_or_default();
        let details =
            error.details.and_then(|details| serde_json::from_str::<Vec<Detail<'_>>>(details.get()).ok());
        let info = details
            .into_iter()
            .flatten()
            .find(|detail| detail.kind.as_ref().is_some_and(|kind| kind.as_str() == ERROR_INFO));
        let info = info.map(|detail| ErrorInfo { reason: text(detail.reason), domain: text(detail.domain) });
        let code = error.status.and_then(|name| Self::code_of(name.as_str())).unwrap_or(UNKNOWN);
        Some(Self { code, message: text(error.message), info })
    }

    /// Returns the error body of HTTP+JSON that says the same.
    pub fn to_error_json(&self) -> Vec<u8> {
        encode(&ErrorOut(self), self.message.len() + 256)
    }

    /// Reads `grpc-status-details-bin`: base64 of `google.rpc.Status`. Code and text of the header fields count; the
    /// details here are taken from it, and dropped if they cannot be read.
    #[must_use]
    pub fn with_details(self, base64: &str) -> Self {
        let bytes = LENIENT_BASE64.decode(base64.trim()).ok();
        Self { info: bytes.and_then(|bytes| read_error_info(&bytes).ok().flatten()), ..self }
    }

    /// Returns the content of `grpc-status-details-bin`; nothing if there are no details.
    pub fn details(&self) -> Option<String> {
        let info = self.info.as_ref()?;
        let mut status = Vec::new();
        varint_field(1, self.code, &mut status);
        bytes_field(2, self.message.as_bytes(), &mut status);
        delimited(3, &mut status, |any| {
            bytes_field(1, ERROR_INFO.as_bytes(), any);
            delimited(2, any, |error_info| {
                bytes_field(1, info.reason.as_bytes(), error_info);
                bytes_field(2, info.domain.as_bytes(), error_info);
            });
        });
        Some(LENIENT_BASE64.encode(&status))
    }
}

/// Metadata of gRPC is base64 without padding, and readers take both.
const LENIENT_BASE64: base64::engine::GeneralPurpose = base64::engine::GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    base64::engine::GeneralPurposeConfig::new()
        .with_encode_padding(false)
        .with_decode_padding_mode(base64::engine::DecodePaddingMode::Indifferent),
);

/// Returns the first `ErrorInfo` of a `google.rpc.Status`.
fn read_error_info(status: &[u8]) -> Result<Option<ErrorInfo>, ProtobufError> {
    let mut fields = WireFields::of(status);
    while let Some(field) = fields.next()? {
        let (3, WireValue::Bytes(any)) = field else { continue };
        let [type_url, value] = two_fields(any)?;
        if type_url != ERROR_INFO.as_bytes() {
            continue;
        }
        let [reason, domain] = two_fields(value)?.map(|text| String::from_utf8_lossy(text).into_owned());
        return Ok(Some(ErrorInfo { reason, domain }));
    }
    Ok(None)
}

/// Returns the fields 1 and 2 of a message in which both are strings or bytes.
fn two_fields(message: &[u8]) -> Result<[&[u8]; 2], ProtobufError> {
    let [mut first, mut second]: [&[u8]; 2] = [b"", b""];
    let mut fields = WireFields::of(message);
    while let Some(field) = fields.next()? {
        match field {
            (1, WireValue::Bytes(bytes)) => first = bytes,
            (2, WireValue::Bytes(bytes)) => second = bytes,
            _ => {}
        }
    }
    Ok([first, second])
}

#[derive(Deserialize)]
struct ErrorBody<'a> {
    #[serde(borrow)]
    error: &'a RawValue,
}

#[derive(Deserialize)]
struct ErrorContent<'a> {
    #[serde(borrow, default)]
    status: Option<Text<'a>>,
    #[serde(borrow, default)]
    message: Option<Text<'a>>,
    #[serde(borrow, default)]
    details: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Detail<'a> {
    #[serde(borrow, default, rename = "@type")]
    kind: Option<Text<'a>>,
    #[serde(borrow, default)]
    reason: Option<Text<'a>>,
    #[serde(borrow, default)]
    domain: Option<Text<'a>>,
}

struct ErrorOut<'a>(&'a GrpcStatus);

impl Serialize for ErrorOut<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(serde::Serialize)]
        struct ErrorContent<'a> {
            code: u16,
            status: &'static str,
            message: &'a str,
            #[serde(skip_serializing_if = "Option::is_none")]
            details: Option<[Detail<'a>; 1]>,
        }
        #[derive(serde::Serialize)]
        struct Detail<'a> {
            #[serde(rename = "@type")]
            kind: &'static str,
            reason: &'a str,
            domain: &'a str,
        }
        let Self(status) = self;
        let details = status
            .info
            .as_ref()
            .map(|ErrorInfo { reason, domain }| [Detail { kind: ERROR_INFO, reason, domain }]);
        let error = ErrorContent {
            code: status.http_status(),
            status: status.name(),
            message: &status.message,
            details,
        };
        let mut map = serializer.serialize_map(Some(1))?;
        map.serialize_entry("error", &error)?;
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    /// One golden pair: made by the official library, see `tests/golden/protobuf/make.py`.
    #[derive(Deserialize)]
    struct GoldenPair {
        method: String,
        side: String,
        json: Value,
        protobuf: String,
    }

    impl GoldenPair {
        fn all() -> Vec<(Dialect, Self)> {
            let of_1_0 = include_str!("../../../tests/golden/protobuf/1.0.json");
            let of_0_3 = include_str!("../../../tests/golden/protobuf/0.3.json");
            let read = |(dialect, text)| {
                let pairs: Vec<Self> = serde_json::from_str(text).unwrap();
                pairs.into_iter().map(move |pair| (dialect, pair))
            };
            [(Dialect::V1, of_1_0), (Dialect::V0_3, of_0_3)].into_iter().flat_map(read).collect()
        }

        fn operation(&self, dialect: Dialect) -> Operation {
            let path = format!("/{}/{}", service(dialect), self.method);
            let (found, operation) = Operation::of_grpc_path(&path).unwrap();
            assert_eq!((found, operation.grpc_path(dialect)), (dialect, Some(path.as_str())));
            operation
        }

        fn side(&self) -> usize {
            usize::from(self.side == "response")
        }

        fn protobuf(&self) -> Vec<u8> {
            LENIENT_BASE64.decode(&self.protobuf).unwrap()
        }
    }

    fn service(dialect: Dialect) -> &'static str {
        if dialect == Dialect::V1 { "lf.a2a.v1.A2AService" } else { "a2a.v1.A2AService" }
    }

    fn value(json: &[u8]) -> Value {
        serde_json::from_slice(json).unwrap()
    }

    #[test]
    fn schemas_are_read_whole() {
        assert_eq!((V1.methods().len(), V0_3.methods().len()), (11, 10));
        for operation in Operation::ALL {
            assert!(operation.grpc_path(Dialect::V1).is_some(), "{operation:?}");
            let is_missing = operation.grpc_path(Dialect::V0_3).is_none();
            assert_eq!(is_missing, operation == Operation::List, "{operation:?}");
        }
        for path in ["", "/", "/a2a.v1.A2AService/ListTasks", "/lf.a2a.v1.A2AService/gettask", "GetTask"] {
            assert_eq!(Operation::of_grpc_path(path), None, "{path}");
        }
    }

    #[test]
    fn golden_pairs_hold_in_both_directions() {
        for (dialect, pair) in GoldenPair::all() {
            let (operation, side) = (pair.operation(dialect), pair.side());
            let json = to_json(operation, dialect, side, &pair.protobuf()).unwrap();
            assert_eq!(value(&json), pair.json, "{} {}", pair.method, pair.side);
            let protobuf = to_protobuf(operation, dialect, side, &json).unwrap();
            // The order of fields is free, their bytes are not.
            let sorted = |mut bytes: Vec<u8>| {
                bytes.sort_unstable();
                bytes
            };
            assert_eq!(sorted(protobuf.clone()), sorted(pair.protobuf()), "{} {}", pair.method, pair.json);
            assert_eq!(value(&to_json(operation, dialect, side, &protobuf).unwrap()), pair.json);
        }
    }

    #[test]
    fn json_is_read_leniently() {
        let given = json!({"id": 7, "context_id": null, "unknown": [{}], "history": null, "status": {
            "state": "TASK_STATE_NEW", "timestamp": "yesterday", "message": {"messageId": true, "parts": [
                {"raw": "_-8"}, {"data": -0.0}, {"data": 1e300}, {"data": 18_446_744_073_709_551_615_u64}]}}});
        let protobuf =
            response_to_protobuf(Operation::Get, Dialect::V1, given.to_string().as_bytes()).unwrap();
        let read = value(&response_to_json(Operation::Get, Dialect::V1, &protobuf).unwrap());
        let parts =
            json!([{"raw": "/+8="}, {"data": -0.0}, {"data": 1e300}, {"data": 1.844_674_407_370_955_2e19}]);
        assert_eq!(read, json!({"id": "7", "status": {"message": {"messageId": "true", "parts": parts}}}));
    }

    #[test]
    fn wrong_json_names_its_place() {
        for (json, words) in [
            ("[]", "an object"),
            (r#"{"status": 7}"#, "status is a number"),
            (r#"{"history": {}}"#, "history is no list"),
            (r#"{"history": ["x"]}"#, "history is a string"),
            (r#"{"artifacts": [{"parts": [{"raw": "%"}]}]}"#, "raw is no base64"),
            (r#"{"metadata": [1]}"#, "metadata is a list"),
            (r#"{"id": "x"} {}"#, "trailing"),
            (r#"{"id": "x""#, "EOF"),
        ] {
            let error = response_to_protobuf(Operation::Get, Dialect::V1, json.as_bytes()).unwrap_err();
            assert!(error.to_string().contains(words), "{json}: {error}");
        }
        let none = request_to_protobuf(Operation::List, Dialect::V0_3, b"{}");
        assert_eq!(none, Err(ProtobufError::NoMethod));
    }

    #[test]
    fn nesting_is_bounded() {
        let nested =
            |depth| format!(r#"{{"metadata": {{"a": {}{}}}}}"#, "[".repeat(depth), "]".repeat(depth));
        let convert = |depth| {
            response_to_protobuf(Operation::Get, Dialect::V1, nested(depth).as_bytes())
                .and_then(|protobuf| response_to_json(Operation::Get, Dialect::V1, &protobuf))
        };
        convert(90).unwrap();
        convert(101).unwrap_err();
        let mut bomb = Vec::new();
        for _ in 0..1000 {
            let inner = std::mem::take(&mut bomb);
            // A list of one value, in a value.
            delimited(6, &mut bomb, |list| bytes_field(1, &inner, list));
        }
        let mut task = Vec::new();
        delimited(6, &mut task, |object| delimited(1, object, |entry| bytes_field(2, &bomb, entry)));
        assert_eq!(response_to_json(Operation::Get, Dialect::V1, &task), Err(ProtobufError::Depth));
    }

    #[test]
    fn last_value_of_field_counts() {
        let mut part = Vec::new();
        bytes_field(1, b"first", &mut part);
        bytes_field(3, b"https://a.example", &mut part);
        bytes_field(1, b"last", &mut part);
        let mut task = Vec::new();
        bytes_field(1, b"old", &mut task);
        // One status in two parts, and an artifact between them.
        delimited(3, &mut task, |status| varint_field(1, 2, status));
        delimited(4, &mut task, |artifact| bytes_field(4, &part, artifact));
        delimited(3, &mut task, |status| {
            delimited(3, status, |timestamp| varint_field(1, 1, timestamp));
        });
        bytes_field(1, b"new", &mut task);
        let read = value(&response_to_json(Operation::Get, Dialect::V1, &task).unwrap());
        let status = json!({"state": "TASK_STATE_WORKING", "timestamp": "1970-01-01T00:00:01Z"});
        let artifacts = json!([{"parts": [{"text": "last"}]}]);
        assert_eq!(read, json!({"id": "new", "status": status, "artifacts": artifacts}));
    }

    #[test]
    fn bad_protobuf_is_told_apart() {
        let read = |bytes: &[u8]| response_to_json(Operation::Get, Dialect::V1, bytes);
        for (bytes, error) in [
            (&b"\x0a\x05ab"[..], ProtobufError::Truncated),
            (b"\x0a", ProtobufError::Truncated),
            (b"\x0a\x02\xff\xfe", ProtobufError::Text),
            (b"\x08\x01", ProtobufError::WireType(1)),
            (b"\x0b", ProtobufError::Tag),
            (b"\x02\x00", ProtobufError::Tag),
            (b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", ProtobufError::Varint),
            (b"\x1a\x0d\x1a\x0b\x08\xff\xff\xff\xff\xff\xff\xff\xff\x7f", ProtobufError::Truncated),
            (b"\x1a\x0c\x1a\x0a\x08\xff\xff\xff\xff\xff\xff\xff\xff\x7f", ProtobufError::Timestamp),
        ] {
            assert_eq!(read(bytes), Err(error), "{bytes:?}");
        }
        assert_eq!(value(&read(b"").unwrap()), json!({"id": ""}));
        // A field that the schema does not have.
        assert_eq!(value(&read(b"\xfa\x01\x01x\x0a\x01i").unwrap()), json!({"id": "i"}));
    }

    #[test]
    fn statuses_are_errors_of_http_json() {
        let body = br#"{"error":{"code":404,"status":"NOT_FOUND","message":"no task","details":[{"@type":"x"},{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"TASK_NOT_FOUND","domain":"a2a-protocol.org","metadata":{}}]}}"#;
        let status = GrpcStatus::from_error_json(body).unwrap();
        assert_eq!((status.code, status.name(), status.http_status()), (5, "NOT_FOUND", 404));
        let bare = GrpcStatus { info: None, ..status.clone() };
        assert_eq!(bare.details(), None);
        assert_eq!(bare.with_details(&status.details().unwrap()), status);
        let written = value(&status.to_error_json());
        assert_eq!(written["error"]["details"][0]["reason"], "TASK_NOT_FOUND");
        assert_eq!(GrpcStatus::from_error_json(&status.to_error_json()), Some(status.clone()));
        assert_eq!(status.clone().with_details("not base64 %").info, None);
        assert_eq!(GrpcStatus::from_error_json(br#"{"detail":"x"}"#), None);
        assert_eq!(GrpcStatus { code: 99, ..GrpcStatus::default() }.name(), "UNKNOWN");
        assert_eq!([401, 403, 404, 503, 418].map(GrpcStatus::code_of_http), [16, 7, 12, 14, 2]);
    }

    fn any_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i32>().prop_map(Value::from),
            (-1e9..1e9).prop_map(|number: f64| Value::from(number + 0.5)),
            ".*".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::hash_map(".*", inner, 0..4)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn any_value_survives_both_encodings(content in any_value(), text in ".*", raw in any::<Vec<u8>>()) {
            let raw = base64::prelude::BASE64_STANDARD.encode(raw);
            let task = json!({"id": text, "artifacts": [{"artifactId": "a", "parts": [
                {"data": content}, {"text": text}, {"raw": raw}]}], "metadata": {"any": content}});
            let json = task.to_string();
            let protobuf = response_to_protobuf(Operation::Get, Dialect::V1, json.as_bytes()).unwrap();
            let read = value(&response_to_json(Operation::Get, Dialect::V1, &protobuf).unwrap());
            // As doubles: integers that are written as floats are the same number.
            let same = |value: &Value| serde_json::to_string(value).unwrap().replace(".0,", ",");
            prop_assert_eq!(same(&read), same(&task));
        }

        #[test]
        fn any_bytes_convert_or_fail(mut bytes in any::<Vec<u8>>(), place in 0_usize..28, cut in 0_usize..400, bit in 0_usize..400) {
            let pairs = GoldenPair::all();
            let (dialect, pair) = &pairs[place % pairs.len()];
            let mut broken = pair.protobuf();
            broken.truncate(cut);
            if let Some(byte) = broken.get_mut(bit) {
                *byte ^= 1 << (bit % 8);
            }
            bytes.extend(&broken);
            for bytes in [broken, bytes] {
                let operation = pair.operation(*dialect);
                if let Ok(json) = to_json(operation, *dialect, pair.side(), &bytes) {
                    // The result is JSON of the message, which is read again.
                    to_protobuf(operation, *dialect, pair.side(), &json).unwrap();
                }
            }
        }
    }
}
