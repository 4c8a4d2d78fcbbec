//! Reading an agent's answers, whichever dialect they are in: typed, in one pass, told apart by their content.
//!
//! The dialects differ so little on the way in (a wrapper or a `kind` or neither, the spelling of states, names of ids) that one reader takes them
//! all, and agents that mix them. Not here: writing (see `v0_1`, `v0_3`, `v1`,
//! `binding`), the Agent Card (see `card`).

mod body;
mod part;
mod pieces;
mod refused;
mod wrapped;

use std::fmt;

use serde::de::{Deserialize, DeserializeSeed as _, Deserializer, IgnoredAny, MapAccess, Visitor};

pub(crate) use self::body::Body;
pub(super) use self::pieces::MessageIn;
use self::refused::ErrorIn;
pub(super) use self::wrapped::take_descriptions;
use super::depth::{MAX_DEPTH, depth_within};
use super::dialect::Dialect;
use super::error::AgentError;
use super::loose::Object;

/// Reads a JSON-RPC response object and returns its result, if there is one.
///
/// # Errors
///
/// [`AgentError`], if it holds an error or is no such object.
pub(crate) fn result(json: &[u8], dialect: Dialect) -> Result<Option<Body>, AgentError> {
    let Object(answer) = serde_json::from_str::<Object<Answer>>(sound(json)?).map_err(not_json)?;
    let answer = answer.ok_or_else(|| AgentError::not_a2a("not a JSON object"))?;
    match answer.error {
        None if !answer.named && !answer.found => Err(AgentError::not_a2a("not a JSON-RPC answer")),
        None => Ok(answer.found.then_some(answer.result)),
        Some(Object(error)) => Err(error.unwrap_or_default().refused(dialect)),
    }
}

/// Reads what is a result by itself, as HTTP+JSON gives it.
///
/// # Errors
///
/// [`AgentError`], if it is an error or no object.
pub(crate) fn plain(json: &[u8], dialect: Dialect) -> Result<Body, AgentError> {
    let mut body = Body::default();
    let mut reader = serde_json::Deserializer::from_str(sound(json)?);
    let found = body.fill().deserialize(&mut reader).map_err(not_json)?;
    reader.end().map_err(not_json)?;
    if !found {
        return Err(AgentError::not_a2a("not a JSON object"));
    }
    match body.refusal() {
        Some(error) => Err(error.refused(dialect)),
        None => Ok(body),
    }
}

/// Reads how an agent says no in HTTP+JSON, with this status.
pub(crate) fn refusal(json: &[u8], status: u16) -> Option<AgentError> {
    let Object(said) = serde_json::from_str::<Object<Refused>>(sound(json).ok()?).ok()?;
    said?.error.0?.refused_with(status)
}

#[derive(serde::Deserialize)]
struct Refused {
    #[serde(default)]
    error: Object<ErrorIn>,
}

/// Text that the parser may be let onto.
fn sound(json: &[u8]) -> Result<&str, AgentError> {
    if !depth_within(json, MAX_DEPTH) {
        return Err(AgentError::not_a2a("nested too deeply"));
    }
    // Checked once, so that the parser need not check every string.
    str::from_utf8(json).map_err(|_| AgentError::not_a2a("not UTF-8"))
}

fn not_json(error: serde_json::Error) -> AgentError {
    AgentError::not_a2a(&format!("not JSON: {error}"))
}

/// A JSON-RPC response object. Its members are put in place as they come: nothing is moved twice.
#[derive(Default)]
struct Answer {
    /// It has a `jsonrpc` member.
    named: bool,
    /// It has a result that is an object.
    found: bool,
    result: Body,
    error: Option<Object<ErrorIn>>,
}

impl<'de> Deserialize<'de> for Answer {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Answer;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON-RPC answer")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Answer, A::Error> {
                let mut answer = Answer::default();
                while let Some(name) = object.next_key::<Name>()? {
                    match name {
                        Name::Jsonrpc => answer.named = object.next_value::<IgnoredAny>().map(|_| true)?,
                        Name::Result => answer.found = object.next_value_seed(answer.result.fill())?,
                        Name::Error => answer.error = object.next_value()?,
                        Name::Other => object.next_value::<IgnoredAny>().map(drop)?,
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
enum Name {
    Jsonrpc,
    Result,
    Error,
    #[serde(other)]
    Other,
}
