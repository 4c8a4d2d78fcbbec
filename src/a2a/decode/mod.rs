//! Decodes an agent's responses in any dialect: typed, in one pass, with the kind detected from the
//! content.
//!
//! The dialects differ so little in responses (a wrapper or a `kind` or neither, the spelling of
//! states, names of ids) that one reader accepts all of them, and mixtures of them. One request per
//! HTTP exchange, so the id of a response is ignored. Out of scope:
//! encoding (see `encode`, `request`), the Agent Card (see `card`).

mod body;
mod part;

use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::dialect::Dialect;
use super::error::{AgentError, ErrorKind};
use super::lenient::{LenientInteger, LenientList, LenientObject, LenientString, absent};
use super::model::{StreamResponse, Task};
use super::push::PushIn;
use crate::jsonrpc::{ReadError, read_json, read_json_seed, utf8};

pub(crate) use self::body::DecodedBody;
pub(super) use body::client_message;
pub(super) use part::{take_descriptions, unwrap_proto_data};

impl Dialect {
    /// Decodes one JSON-RPC response object: the data of a stream's event, or the response to a
    /// send.
    ///
    /// A response without a result, or with one of an unknown kind, is [`StreamResponse::Unknown`].
    ///
    /// # Errors
    ///
    /// [`AgentError`] if the agent rejected the request or the bytes are not such an object.
    pub fn event(self, json: &[u8]) -> Result<StreamResponse, AgentError> {
        let mut answer = RpcResponse::default();
        match answer.read(json, self)? {
            true => answer.result.take_event(),
            false => Ok(StreamResponse::Unknown),
        }
    }

    /// Decodes the response to [`Dialect::set_push`]: the agent's id of the webhook, if it returns
    /// one.
    ///
    /// # Errors
    ///
    /// [`AgentError`] if the agent rejected the registration or did not respond.
    pub(crate) fn webhook_id(self, json: &[u8]) -> Result<Option<String>, AgentError> {
        result(json, self)?;
        let LenientObject(answer) =
            serde_json::from_slice::<LenientObject<PushResponse>>(json).map_err(not_json)?;
        Ok(answer.and_then(|answer| answer.result.0).and_then(|result| result.webhook_id(self)))
    }

    /// Decodes the response to a request for a task, or to its cancellation.
    ///
    /// # Errors
    ///
    /// [`AgentError`] if the agent rejected the request or the response contains no task.
    pub fn task(self, json: &[u8]) -> Result<Task, AgentError> {
        self.event(json).and_then(StreamResponse::into_task)
    }
}

/// The response to the registration of a webhook, or to a request for one.
#[derive(Deserialize)]
pub(super) struct PushResponse {
    #[serde(default)]
    pub(super) result: LenientObject<PushIn>,
}

/// Decodes the output of [`task_json`](super::task_json), or any task of an agent.
///
/// # Errors
///
/// [`AgentError`] if it is no task.
pub fn read_task(json: &[u8]) -> Result<Task, AgentError> {
    // In the envelope that agents use, so that there is one reader.
    let mut answer = Vec::with_capacity(json.len() + 16);
    answer.extend_from_slice(br#"{"result":"#);
    answer.extend_from_slice(json);
    answer.push(b'}');
    Dialect::V1.task(&answer)
}

/// Decodes a JSON-RPC response object and returns its result, if there is one.
///
/// # Errors
///
/// [`AgentError`] if it contains an error or is not such an object.
pub(crate) fn result(json: &[u8], dialect: Dialect) -> Result<Option<DecodedBody>, AgentError> {
    let mut answer = RpcResponse::default();
    Ok(answer.read(json, dialect)?.then_some(answer.result))
}

/// Decodes a result without an envelope, as in HTTP+JSON.
///
/// # Errors
///
/// [`AgentError`] if it is an error or not an object.
pub(crate) fn plain(json: &[u8], dialect: Dialect) -> Result<DecodedBody, AgentError> {
    let mut body = DecodedBody::default();
    let found = read_json_seed(utf8_result(json)?, body.fill()).map_err(unreadable)?;
    if !found {
        return Err(AgentError::invalid_response("not a JSON object"));
    }
    match body.refusal() {
        Some(error) => Err(error.refused(dialect)),
        None => Ok(body),
    }
}

/// Decodes an error of HTTP+JSON with this status.
pub(crate) fn refusal(json: &[u8], status: u16) -> Option<AgentError> {
    let LenientObject(said) = read_json::<LenientObject<RpcRefusal>>(utf8_result(json).ok()?).ok()?;
    said?.error.0?.refused_with(status)
}

#[derive(serde::Deserialize)]
struct RpcRefusal {
    #[serde(default)]
    error: LenientObject<ErrorIn>,
}

/// Returns the text of a response: checked once, so that the parser does not have to check every string.
fn utf8_result(json: &[u8]) -> Result<&str, AgentError> {
    utf8(json).map_err(|_| AgentError::invalid_response("not UTF-8"))
}

fn unreadable(error: ReadError) -> AgentError {
    if error.is_too_deep() { AgentError::invalid_response("nested too deeply") } else { not_json(error) }
}

fn not_json(error: impl fmt::Display) -> AgentError {
    AgentError::invalid_response(&format!("not JSON: {error}"))
}

/// A JSON-RPC response object. Its members are stored in place as they are read: nothing is moved.
#[derive(Default)]
struct RpcResponse {
    /// True if it has a `jsonrpc` member.
    named: bool,
    /// True if it has a result that is an object.
    found: bool,
    result: DecodedBody,
    error: Option<LenientObject<ErrorIn>>,
}

impl RpcResponse {
    /// Decodes JSON into an empty response. Returns true if there is a result.
    fn read(&mut self, json: &[u8], dialect: Dialect) -> Result<bool, AgentError> {
        // The reader bounds the nesting, of raw values too.
        let found = read_json_seed(utf8_result(json)?, ResponseVisitor(self)).map_err(unreadable)?;
        if !found {
            return Err(AgentError::invalid_response("not a JSON object"));
        }
        match self.error.take() {
            None if !self.named && !self.found => Err(AgentError::invalid_response("not a JSON-RPC answer")),
            None => Ok(self.found),
            Some(LenientObject(error)) => Err(error.unwrap_or_default().refused(dialect)),
        }
    }
}

/// A reader of JSON into a response; it yields true if the JSON was an object.
struct ResponseVisitor<'a>(&'a mut RpcResponse);

impl<'de> DeserializeSeed<'de> for ResponseVisitor<'_> {
    type Value = bool;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ResponseVisitor<'_> {
    type Value = bool;

    absent!(bool, text, number, list);

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<bool, A::Error> {
        let Self(answer) = self;
        while let Some(name) = object.next_key::<ResponseMember>()? {
            match name {
                ResponseMember::Jsonrpc => answer.named = object.next_value::<IgnoredAny>().map(|_| true)?,
                ResponseMember::Result => answer.found = object.next_value_seed(answer.result.fill())?,
                ResponseMember::Error => answer.error = object.next_value()?,
                ResponseMember::Other => object.next_value::<IgnoredAny>().map(drop)?,
            }
        }
        Ok(true)
    }
}

#[derive(serde::Deserialize)]
#[serde(field_identifier, rename_all = "lowercase")]
enum ResponseMember {
    Jsonrpc,
    Result,
    Error,
    #[serde(other)]
    Other,
}

/// The domain of known reasons.
const DOMAIN: &str = "a2a-protocol.org";

/// An error.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct ErrorIn {
    code: LenientInteger,
    message: LenientString,
    /// Details in JSON-RPC.
    data: LenientList<LenientObject<ErrorDetail>>,
    /// The code of JSON-RPC that means the same as a status of gRPC (see `agents::grpc`).
    #[serde(rename = "rpcCode")]
    rpc_code: LenientInteger,
    /// Details in HTTP+JSON.
    details: LenientList<LenientObject<ErrorDetail>>,
}

/// `google.rpc.ErrorInfo`, or another detail.
#[derive(Default, Deserialize)]
#[serde(default)]
struct ErrorDetail {
    reason: LenientString,
    domain: LenientString,
}

impl ErrorIn {
    /// Returns the error of an agent in this dialect.
    pub(super) fn refused(self, dialect: Dialect) -> AgentError {
        let Some(code) = self.rpc_code.0.or(self.code.0) else {
            return AgentError::invalid_response("an error without a code");
        };
        let kind = self.reason().unwrap_or_else(|| ErrorKind::of(code, dialect));
        AgentError::from_code(kind, code, &self.message.0.unwrap_or_default())
    }

    /// Returns the error with this HTTP status, if it says more than the status.
    pub(super) fn refused_with(self, status: u16) -> Option<AgentError> {
        let of_rpc = self.rpc_code.0.filter(|code| *code < 0);
        let kind = self.reason().or(of_rpc.map(|code| ErrorKind::of(code, Dialect::V1)));
        let kind = kind.or((status == 400).then_some(ErrorKind::InvalidParams))?;
        let code = of_rpc.unwrap_or(status.into());
        Some(AgentError::from_code(kind, code, &self.message.0.unwrap_or_default()))
    }

    fn reason(&self) -> Option<ErrorKind> {
        let all = self.data.0.iter().chain(&self.details.0).flatten().filter_map(|detail| detail.0.as_ref());
        let ours = all.filter(|detail| detail.domain.0.as_deref() == Some(DOMAIN));
        ours.filter_map(|detail| detail.reason.0.as_deref()).find_map(ErrorKind::of_reason)
    }
}
