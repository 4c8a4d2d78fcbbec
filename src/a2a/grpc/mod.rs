//! The gRPC binding of A2A (1.0 §10, 0.3 §3.2.2): its methods, messages and statuses.
//!
//! A message in protobuf has the same content as ProtoJSON of the same version: in 1.0 that is the `params` and the
//! `result` of JSON-RPC, in 0.3 the body of HTTP+JSON (see `proto_json`) with resource names such as `tasks/7` in place
//! of paths. So gRPC is only another encoding of what the other bindings write and read. The schemas are the official
//! protobuf files in `schemas/`. Around each message of a body is a frame ([`FrameReader`]), and the status is in header
//! fields ([`GrpcStatus`]). Requests and responses are in `agents::grpc` and `a2a_server::grpc`.

mod from_json;
mod schema;
mod to_json;

use std::sync::LazyLock;

use base64::Engine as _;
use bytes::{Buf as _, Bytes, BytesMut};
use percent_encoding::{AsciiSet, CONTROLS, percent_decode, utf8_percent_encode};
use serde::Deserialize;
use serde_json::value::RawValue;

use self::schema::{RpcMethod, Schema};
use self::to_json::{WireFields, WireValue};
use super::dialect::Dialect;
use super::error::RestError;
use super::operation::Operation;
use super::sanitize::clean;
use crate::jsonrpc::Text;
use crate::protobuf::{bytes_field, delimited, varint_field};

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

/// The flag and the length before each message.
const PREFIX_BYTES: usize = 5;

/// The reason why the bytes of a body are no messages.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// The message is compressed, and no coding was agreed on.
    #[error("the message is compressed, and grpc-encoding names no coding")]
    Compressed,
    /// The message is longer than the limit, in bytes.
    #[error("the message is longer than {0} bytes")]
    TooLong(usize),
    /// There are more bytes than those of the one message.
    #[error("the method takes one message")]
    Trailing,
    /// The body ends before the message does.
    #[error("the message is cut off")]
    Incomplete,
}

impl FrameError {
    /// Returns the name of the code for a request with this error, as gRPC assigns them.
    pub fn code_name(&self) -> &'static str {
        match self {
            Self::Compressed | Self::Incomplete => "INTERNAL",
            Self::TooLong(_) => "RESOURCE_EXHAUSTED",
            Self::Trailing => "UNIMPLEMENTED",
        }
    }
}

/// Reader of the messages of a body. The length of each is checked before memory is taken for it.
#[derive(Debug, Default)]
pub struct FrameReader {
    held: BytesMut,
}

impl FrameReader {
    /// Adds bytes.
    ///
    /// # Errors
    ///
    /// As [`FrameReader::next`], which the caller calls until nothing is left.
    pub fn push(&mut self, bytes: &[u8], limit: usize) -> Result<(), FrameError> {
        self.held.extend_from_slice(bytes);
        self.check(limit).map(drop)
    }

    /// Returns the next complete message.
    ///
    /// # Errors
    ///
    /// [`FrameError`] if it is compressed, or larger than `limit` bytes.
    pub fn next(&mut self, limit: usize) -> Result<Option<Bytes>, FrameError> {
        let Some(length) = self.check(limit)? else { return Ok(None) };
        if self.held.len() < PREFIX_BYTES + length {
            return Ok(None);
        }
        let mut frame = self.held.split_to(PREFIX_BYTES + length).freeze();
        Ok(Some(frame.split_off(PREFIX_BYTES)))
    }

    /// Returns the number of bytes that are held for messages that were not returned.
    pub fn held(&self) -> usize {
        self.held.len()
    }

    /// Returns the number of bytes of the first message and all that follows, as far as known.
    pub fn expected(&self) -> usize {
        let announced = self.check(usize::MAX).ok().flatten().unwrap_or_default();
        self.held.len().max(announced)
    }

    /// Returns the length of the first message, once it is known.
    fn check(&self, limit: usize) -> Result<Option<usize>, FrameError> {
        let Some((prefix, _)) = self.held.split_first_chunk::<PREFIX_BYTES>() else { return Ok(None) };
        message_length(*prefix, limit).map(Some)
    }
}

/// Reader of a body that is one message. It returns the bytes of the message as they come, and keeps none.
#[derive(Debug)]
pub struct UnaryReader {
    limit: usize,
    prefix: BytesMut,
    /// Bytes of the message that are still to come; `None` before its length is known.
    rest: Option<usize>,
}

impl UnaryReader {
    /// Creates a reader for a message of at most `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self { limit, prefix: BytesMut::with_capacity(PREFIX_BYTES), rest: None }
    }

    /// Returns the bytes of the message in these bytes of a body.
    ///
    /// # Errors
    ///
    /// [`FrameError`]; for a message that is too long, before it is read.
    pub fn push(&mut self, mut bytes: Bytes) -> Result<Bytes, FrameError> {
        let rest = match self.rest {
            Some(rest) => rest,
            None => {
                let missing = PREFIX_BYTES.saturating_sub(self.prefix.len()).min(bytes.len());
                self.prefix.extend_from_slice(&bytes.split_to(missing));
                let Some((prefix, _)) = self.prefix.split_first_chunk::<PREFIX_BYTES>() else {
                    return Ok(Bytes::new());
                };
                message_length(*prefix, self.limit)?
            }
        };
        self.rest = Some(rest.checked_sub(bytes.len()).ok_or(FrameError::Trailing)?);
        Ok(bytes)
    }

    /// Checks that the message is complete, at the end of the body.
    ///
    /// # Errors
    ///
    /// [`FrameError::Incomplete`].
    pub fn finish(&self) -> Result<(), FrameError> {
        if self.rest == Some(0) { Ok(()) } else { Err(FrameError::Incomplete) }
    }
}

/// Returns the length of the message after this prefix.
fn message_length(prefix: [u8; PREFIX_BYTES], limit: usize) -> Result<usize, FrameError> {
    let mut prefix = prefix.as_slice();
    if prefix.get_u8() != 0 {
        return Err(FrameError::Compressed);
    }
    let length = usize::try_from(prefix.get_u32()).ok().filter(|length| *length <= limit);
    length.ok_or(FrameError::TooLong(limit))
}

/// Appends a message in its frame. Returns false if its length has no form.
#[must_use]
pub fn write_frame(out: &mut Vec<u8>, message: &[u8]) -> bool {
    let Ok(length) = u32::try_from(message.len()) else { return false };
    out.reserve(PREFIX_BYTES + message.len());
    out.push(0);
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(message);
    true
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

/// Most bytes of the text of a status that is read.
const MAX_READ_TEXT_BYTES: usize = 2048;
/// Most bytes of the text of a status that is written: clients bound the trailers that they read.
const MAX_WRITTEN_TEXT_BYTES: usize = 1024;
/// The bytes of a text that are encoded: all but those of printable ASCII.
const ENCODED_IN_TEXT: &AsciiSet = &CONTROLS.add(b'%');

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
    /// Reads `grpc-status`, `grpc-message` and `grpc-status-details-bin`; `None` if the first is no number. Text that
    /// is not encoded as it should be is read as far as possible, and details that cannot be read are left out.
    pub fn read(code: &str, message: &[u8], details: Option<&str>) -> Option<Self> {
        let message = clean(&percent_decode(message).decode_utf8_lossy(), MAX_READ_TEXT_BYTES);
        let status = Self { code: code.parse().ok()?, message, info: None };
        Some(match details {
            Some(details) => status.with_details(details),
            None => status,
        })
    }

    /// Returns the content of `grpc-message`.
    pub fn encoded_message(&self) -> String {
        utf8_percent_encode(self.written_text(), ENCODED_IN_TEXT).to_string()
    }

    /// Returns the beginning of the text that is written.
    fn written_text(&self) -> &str {
        let mut end = self.message.len().min(MAX_WRITTEN_TEXT_BYTES);
        while !self.message.is_char_boundary(end) {
            end -= 1;
        }
        self.message.get(..end).unwrap_or_default()
    }

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

    /// Reads the error body of HTTP+JSON (AIP-193); `None` if it is none.
    pub fn from_error_json(json: &[u8]) -> Option<Self> {
        let error = RestError::read(serde_json::from_slice::<ErrorBody<'_>>(json).ok()?.error);
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
        varint_field(1, self.code.into(), &mut status);
        bytes_field(2, self.written_text().as_bytes(), &mut status);
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
struct Detail<'a> {
    #[serde(borrow, default, rename = "@type")]
    kind: Option<Text<'a>>,
    #[serde(borrow, default)]
    reason: Option<Text<'a>>,
    #[serde(borrow, default)]
    domain: Option<Text<'a>>,
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
        assert_eq!(status.clone().with_details("not base64 %").info, None);
        assert_eq!(GrpcStatus::from_error_json(br#"{"detail":"x"}"#), None);
        assert_eq!(GrpcStatus { code: 99, ..GrpcStatus::default() }.name(), "UNKNOWN");
    }

    #[test]
    fn text_of_status_is_encoded_and_bounded() {
        let status = |message: &str| GrpcStatus { code: 5, message: message.to_owned(), info: None };
        let written = status("50 % f\u{fc}r\n\u{7f}").encoded_message();
        assert_eq!(written, "50 %25 f%C3%BCr%0A%7F");
        assert_eq!(status(&"\u{e4}".repeat(2000)).encoded_message().len(), 3 * MAX_WRITTEN_TEXT_BYTES);
        let read = |message: &[u8]| GrpcStatus::read("5", message, None).unwrap().message;
        assert_eq!(read(b"caf%C3%A9%0A%zz %f"), clean("caf\u{e9}\n%zz %f", 2048));
        assert_eq!(read(b"%ff\xff"), "\u{fffd}\u{fffd}");
        assert!(read(&b"x".repeat(10_000)).len() <= MAX_READ_TEXT_BYTES);
        assert_eq!(GrpcStatus::read("five", b"", None), None);
    }

    fn frame(message: &[u8]) -> Vec<u8> {
        let mut frame = Vec::new();
        assert!(write_frame(&mut frame, message));
        frame
    }

    #[test]
    fn messages_do_not_depend_on_chunks() {
        let whole = [frame(b"one"), frame(b""), frame(b"ten bytes!")].concat();
        for size in 1..=whole.len() {
            let mut reader = FrameReader::default();
            let mut found = Vec::new();
            for chunk in whole.chunks(size) {
                reader.push(chunk, 10).unwrap();
                found.extend(std::iter::from_fn(|| reader.next(10).unwrap()));
            }
            assert_eq!(found, [&b"one"[..], b"", b"ten bytes!"], "{size}");
            assert_eq!(reader.held(), 0);
        }
    }

    #[test]
    fn length_is_checked_before_message_comes() {
        let read = |bytes: &[u8]| FrameReader::default().push(bytes, 10);
        assert_eq!(read(&[0, 0, 0, 0, 11]), Err(FrameError::TooLong(10)));
        assert_eq!(read(&[0, 0xff, 0xff, 0xff, 0xff]), Err(FrameError::TooLong(10)));
        assert_eq!(read(&[1, 0, 0, 0, 1]), Err(FrameError::Compressed));
        let mut reader = FrameReader::default();
        reader.push(&[0, 0, 0, 0, 9, 1], 10).unwrap();
        assert_eq!((reader.next(10), reader.held(), reader.expected()), (Ok(None), 6, 9));
    }

    /// The result does not depend on how the body was split.
    #[test]
    fn message_is_taken_out_of_its_frame() {
        let frame = frame(b"hello");
        for size in 1..=frame.len() {
            let mut reader = UnaryReader::new(5);
            let mut message = Vec::new();
            for piece in frame.chunks(size) {
                message.extend_from_slice(&reader.push(Bytes::copy_from_slice(piece)).unwrap());
            }
            assert_eq!((message.as_slice(), reader.finish()), (&b"hello"[..], Ok(())), "{size}");
        }
    }

    #[test]
    fn broken_frame_is_refused() {
        let read = |bytes: &'static [u8]| {
            let mut reader = UnaryReader::new(5);
            reader.push(Bytes::from_static(bytes)).and_then(|_| reader.finish())
        };
        for (bytes, error) in [
            (&b""[..], FrameError::Incomplete),
            (b"\0\0\0", FrameError::Incomplete),
            (b"\0\0\0\0\x02x", FrameError::Incomplete),
            (b"\x01\0\0\0\x01x", FrameError::Compressed),
            (b"\0\0\0\0\x06", FrameError::TooLong(5)),
            (b"\0\xff\xff\xff\xff", FrameError::TooLong(5)),
            (b"\0\0\0\0\x01xy", FrameError::Trailing),
        ] {
            assert_eq!(read(bytes), Err(error), "{bytes:?}");
        }
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
