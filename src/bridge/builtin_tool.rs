//! A built-in tool: its listing for each revision, and the arguments of its calls.
//!
//! Follows `docs/spec/mcp.md` §2.3, §2.4. The tools themselves are in `task_tools` and `search`.

use jsonschema::Validator;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

use super::arguments::schema_errors;
use super::unique_object::UniqueObject;
use crate::mcp::Version;

/// The description of a tool.
pub(super) struct BuiltinToolSpec {
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    pub(super) description: &'static str,
    pub(super) input: Value,
    pub(super) output: Value,
    pub(super) annotations: Value,
}

impl BuiltinToolSpec {
    /// Returns the tool as a client of this revision sees it.
    pub(super) fn json(self, version: Version) -> Option<Box<RawValue>> {
        let mut annotations = self.annotations;
        let mut tool = json!({
            "name": self.name,
            "description": self.description,
            "inputSchema": self.input,
        });
        if version.has_structured_output() {
            insert(&mut tool, "title", json!(self.title));
            insert(&mut tool, "outputSchema", self.output);
        } else {
            insert(&mut annotations, "title", json!(self.title));
        }
        insert(&mut tool, "annotations", annotations);
        to_raw_value(&tool).ok()
    }
}

fn insert(object: &mut Value, name: &str, value: Value) {
    if let Value::Object(members) = object {
        members.insert(name.to_owned(), value);
    }
}

/// Returns the validated arguments of a call; absent and `null` ones are `{}`.
///
/// # Errors
///
/// The problem, in words that let a model correct itself.
pub(super) fn argument(judge: Option<&Validator>, arguments: Option<&RawValue>) -> Result<Value, String> {
    let json = arguments.map(RawValue::get).filter(|json| *json != "null").unwrap_or("{}");
    let wrong = |error: serde_json::Error| format!("Invalid arguments: {error}.");
    let mut value: Value = serde_json::from_str(json).map_err(wrong)?;
    if let Value::Object(members) = &mut value {
        // The validated content must be the used content: each name once. Clients write `null` for
        // absent members.
        serde_json::from_str::<UniqueObject<'_>>(json).map_err(wrong)?;
        members.retain(|_, value| !value.is_null());
    }
    let judge = judge.ok_or("The gateway cannot judge arguments of this tool.")?;
    match schema_errors(judge, &value) {
        Some(complaints) => Err(format!("Invalid arguments: {complaints}.")),
        None => Ok(value),
    }
}
