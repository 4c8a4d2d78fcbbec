//! Decodes an agent's responses in any dialect: typed, in one pass, with the kind detected from the
//! content.
//!
//! The dialects differ so little in responses (a wrapper or a `kind` or neither, the spelling of
//! states, names of ids) that one reader accepts all of them, and mixtures of them. Out of scope:
//! encoding (see `v0_1`, `v0_3`, `v1`, `binding`), the Agent Card (see `card`).

mod body;
mod part;
mod pieces;
mod refused;
mod wrapped;

use std::fmt;

use serde::de::{Deserialize, DeserializeSeed as _, Deserializer, IgnoredAny, MapAccess, Visitor};

pub(crate) use self::body::DecodedBody;
pub(super) use self::pieces::MessageIn;
use self::refused::ErrorIn;
pub(super) use self::wrapped::take_descriptions;
use super::depth::{MAX_DEPTH, depth_within};
use super::dialect::Dialect;
use super::error::AgentError;
use super::lenient::LenientObject;

/// Decodes a JSON-RPC response object and returns its result, if there is one.
///
/// # Errors
///
/// [`AgentError`] if it contains an error or is not such an object.
pub(crate) fn result(json: &[u8], dialect: Dialect) -> Result<Option<DecodedBody>, AgentError> {
    let LenientObject(answer) =
        serde_json::from_str::<LenientObject<RpcResponse>>(well_formed_result(json)?).map_err(not_json)?;
    let answer = answer.ok_or_else(|| AgentError::invalid_response("not a JSON object"))?;
    match answer.error {
        None if !answer.named && !answer.found => Err(AgentError::invalid_response("not a JSON-RPC answer")),
        None => Ok(answer.found.then_some(answer.result)),
        Some(LenientObject(error)) => Err(error.unwrap_or_default().refused(dialect)),
    }
}

/// Decodes a result without an envelope, as in HTTP+JSON.
///
/// # Errors
///
/// [`AgentError`] if it is an error or not an object.
pub(crate) fn plain(json: &[u8], dialect: Dialect) -> Result<DecodedBody, AgentError> {
    let mut body = DecodedBody::default();
    let mut reader = serde_json::Deserializer::from_str(well_formed_result(json)?);
    let found = body.fill().deserialize(&mut reader).map_err(not_json)?;
    reader.end().map_err(not_json)?;
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
    let LenientObject(said) =
        serde_json::from_str::<LenientObject<RpcRefusal>>(well_formed_result(json).ok()?).ok()?;
    said?.error.0?.refused_with(status)
}

#[derive(serde::Deserialize)]
struct RpcRefusal {
    #[serde(default)]
    error: LenientObject<ErrorIn>,
}

/// Returns text that is safe to parse.
fn well_formed_result(json: &[u8]) -> Result<&str, AgentError> {
    if !depth_within(json, MAX_DEPTH) {
        return Err(AgentError::invalid_response("nested too deeply"));
    }
    // Checked once, so that the parser does not have to check every string.
    str::from_utf8(json).map_err(|_| AgentError::invalid_response("not UTF-8"))
}

fn not_json(error: serde_json::Error) -> AgentError {
    AgentError::invalid_response(&format!("not JSON: {error}"))
}

/// A JSON-RPC response object. Its members are stored in place as they are read: nothing is moved
/// twice.
#[derive(Default)]
struct RpcResponse {
    /// True if it has a `jsonrpc` member.
    named: bool,
    /// True if it has a result that is an object.
    found: bool,
    result: DecodedBody,
    error: Option<LenientObject<ErrorIn>>,
}

impl<'de> Deserialize<'de> for RpcResponse {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = RpcResponse;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON-RPC answer")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<RpcResponse, A::Error> {
                let mut answer = RpcResponse::default();
                while let Some(name) = object.next_key::<ResponseMember>()? {
                    match name {
                        ResponseMember::Jsonrpc => {
                            answer.named = object.next_value::<IgnoredAny>().map(|_| true)?
                        }
                        ResponseMember::Result => {
                            answer.found = object.next_value_seed(answer.result.fill())?
                        }
                        ResponseMember::Error => answer.error = object.next_value()?,
                        ResponseMember::Other => object.next_value::<IgnoredAny>().map(drop)?,
                    }
                }
                Ok(answer)
            }
        }
        deserializer.deserialize_map(Reader)
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
