//! `agents.NAME.skills.ID` as in the file.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde_json::Value;

use super::agent::tool_name;
use crate::config::resolve::ResolveContext;
use crate::config::spanned::{Location, Spanned};
use crate::config::{SkillOverride, TaskMode};

/// Largest file of a schema, in bytes.
const SCHEMA_FILE: usize = 1 << 20;
/// Most memory that one pattern of a schema may take when compiled, in bytes.
const PATTERN: usize = 1 << 20;

/// Settings that differ for one skill.
#[derive(Deserialize, JsonSchema, Default)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "Skill")]
pub(super) struct SkillFile {
    /// The whole name of its tool, without the agent's before it: letters, digits, `-` and `_`, at most 64.
    #[schemars(regex(pattern = "^[A-Za-z0-9_-]{1,64}$"))]
    tool_name: Spanned<String>,
    /// Stands in for the description in the card.
    description: Spanned<String>,
    /// The JSON Schema (2020-12) of its tool's arguments, which go to the agent as data.
    input_schema: Spanned<InputSchema>,
    /// Whether no tool is made of it, and A2A clients do not find it on the card.
    #[schemars(extend("default" = false))]
    hidden: Spanned<bool>,
    /// Whether a call of its tool becomes a task for a client that knows tasks: `optional`, `required` or `never`. Without
    /// it: what the agent's `task` says.
    task: Spanned<TaskFile>,
}

/// Whether a call becomes a task for a client that knows tasks.
#[derive(Deserialize, JsonSchema, Clone, Copy)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "TaskUse")]
pub(super) enum TaskFile {
    Optional,
    Required,
    Never,
}

impl From<TaskFile> for TaskMode {
    fn from(written: TaskFile) -> Self {
        match written {
            TaskFile::Optional => Self::Optional,
            TaskFile::Required => Self::Required,
            TaskFile::Never => Self::Never,
        }
    }
}

/// A JSON Schema, or where it is.
#[derive(Deserialize)]
#[serde(transparent)]
struct InputSchema(Value);

impl JsonSchema for InputSchema {
    fn schema_name() -> Cow<'static, str> {
        "InputSchema".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A JSON Schema that says `type: object`, or the path of a JSON file that holds one.",
            "anyOf": [
                { "type": "string" },
                { "type": "object", "properties": { "type": { "const": "object" } }, "required": ["type"] },
            ],
        })
    }
}

impl SkillFile {
    pub(super) fn resolve(self, reading: &mut ResolveContext<'_>) -> SkillOverride {
        SkillOverride {
            tool_name: tool_name(self.tool_name, reading),
            description: self.description.value(),
            input_schema: self
                .input_schema
                .take()
                .and_then(|(place, schema)| schema.resolve(&place, reading)),
            hidden: self.hidden.value().unwrap_or_default(),
            task: self.task.value().map(TaskMode::from),
        }
    }
}

impl InputSchema {
    fn resolve(self, place: &Location, reading: &mut ResolveContext<'_>) -> Option<Value> {
        let schema = match self.0 {
            Value::String(path) => match from_file(&path, reading) {
                Ok(schema) => schema,
                Err(problem) => return reading.report_conflict(place, problem),
            },
            inline => inline,
        };
        match compile(&schema) {
            Ok(()) => Some(schema),
            Err(problem) => reading.report_conflict(place, problem),
        }
    }
}

fn from_file(written: &str, reading: &ResolveContext<'_>) -> Result<Value, String> {
    let reference = written.strip_prefix("${file:").and_then(|rest| rest.strip_suffix('}'));
    let path = reading.path(reference.unwrap_or(written));
    let text = reading.file(&path, SCHEMA_FILE)?;
    serde_json::from_str(&text).map_err(|error| format!("{} is not JSON: {error}", path.display()))
}

/// Checks that this is a schema for arguments: an object, with references and patterns that cost
/// the gateway little.
fn compile(schema: &Value) -> Result<(), String> {
    let object =
        schema.as_object().ok_or("is not a JSON Schema (write an object that says `type: object`)")?;
    if object.get("type").and_then(Value::as_str) != Some("object") {
        return Err("a tool's arguments are an object (write `type: object` in the schema)".to_owned());
    }
    // This engine runs in linear time; the default one can be made to run without an end.
    let patterns = jsonschema::PatternOptions::regex().size_limit(PATTERN);
    match jsonschema::options().with_pattern_options(patterns).build(schema) {
        Ok(_) => Ok(()),
        Err(error) => {
            let inside = error.instance_path().to_string();
            let inside = if inside.is_empty() { String::new() } else { format!(" at {inside}") };
            Err(format!("is not a valid JSON Schema{inside}: {error}"))
        }
    }
}
