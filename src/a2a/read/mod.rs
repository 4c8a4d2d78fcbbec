//! Reading an agent's answers, whichever dialect they are in: typed, in one pass, told apart by their content.
//!
//! The dialects differ so little on the way in (a wrapper or a `kind` or neither, the spelling of states, names of ids) that one reader takes them
//! all, and agents that mix them. Not here: writing (see `v0_1`, `v0_3`, `v1`), the Agent Card (see `card`).

mod body;
mod part;
mod pieces;
mod wrapped;

use std::fmt;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};

pub(crate) use self::body::Body;
pub(super) use self::pieces::MessageIn;
pub(super) use self::wrapped::take_descriptions;
use super::depth::{MAX_DEPTH, depth_within};
use super::dialect::Dialect;
use super::error::AgentError;
use super::loose::{Object, Text, Whole};

/// Reads a JSON-RPC response object and returns its result, if there is one.
///
/// # Errors
///
/// [`AgentError`], if it holds an error or is no such object.
pub(crate) fn result(json: &[u8], dialect: Dialect) -> Result<Option<Body>, AgentError> {
    if !depth_within(json, MAX_DEPTH) {
        return Err(AgentError::not_a2a("nested too deeply"));
    }
    // Checked once, so that the parser need not check every string.
    let text = str::from_utf8(json).map_err(|_| AgentError::not_a2a("not UTF-8"))?;
    let Object(answer) = serde_json::from_str::<Object<Answer>>(text)
        .map_err(|error| AgentError::not_a2a(&format!("not JSON: {error}")))?;
    let answer = answer.ok_or_else(|| AgentError::not_a2a("not a JSON object"))?;
    match answer.error {
        None if !answer.named && !answer.found => Err(AgentError::not_a2a("not a JSON-RPC answer")),
        None => Ok(answer.found.then_some(answer.result)),
        Some(Object(error)) => {
            let ErrorIn { code, message } = error.unwrap_or_default();
            let code = code.0.ok_or_else(|| AgentError::not_a2a("an error without a code"))?;
            Err(AgentError::refused(code, &message.0.unwrap_or_default(), dialect))
        }
    }
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

#[derive(Default, serde::Deserialize)]
struct ErrorIn {
    #[serde(default)]
    code: Whole,
    #[serde(default)]
    message: Text,
}
