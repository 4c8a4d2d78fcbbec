//! The arguments of a tool call: input schemas and validation.
//!
//! A tool has either the flat default input (`text`, `data`, `files`, `contextId`, `taskId`) or a
//! schema of its own from the configuration. Arguments are validated against the schema; the flat
//! ones are read typed first, which accepts nothing that the schema would reject (except `null` for
//! an absent member, which clients do send), so that the hot path needs no tree. Handles are opened
//! in `agent_action`.

use std::borrow::Cow;
use std::fmt::Display;
use std::sync::LazyLock;

use jsonschema::{PatternOptions, Validator};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::jsonrpc::object::UniqueObject;
use crate::jsonrpc::{JsonText, Object, Text, read_json};

/// The default input of a tool as JSON Schema, as clients get it.
///
/// That `text` or `taskId` is required is said in words: a top-level `anyOf` makes model APIs
/// reject the whole list of tools.
pub const FLAT_SCHEMA: &str = include_str!("flat_input.json");

static FLAT: LazyLock<Option<Validator>> = LazyLock::new(|| {
    serde_json::from_str(FLAT_SCHEMA).ok().and_then(|schema| strict_validator(&schema).ok())
});

/// The input of a tool.
#[derive(Debug)]
pub enum ToolInput {
    /// The default input.
    Flat,
    /// A schema of its own; the arguments travel as one data part.
    Own(CustomSchema),
}

/// A compiled schema from the configuration.
#[derive(Debug)]
pub struct CustomSchema {
    schema: Box<RawValue>,
    validator: Validator,
    claims_task_id: bool,
    claims_context_id: bool,
}

impl CustomSchema {
    /// Compiles a schema.
    ///
    /// # Errors
    ///
    /// The problem of the schema.
    pub fn new(schema: &Value) -> Result<Self, String> {
        let claims_task_id = schema.pointer("/properties/taskId").is_some();
        let claims_context_id = schema.pointer("/properties/contextId").is_some();
        let validator = validator(schema)?;
        let schema = serde_json::value::to_raw_value(schema).map_err(|error| error.to_string())?;
        Ok(Self { schema, validator, claims_task_id, claims_context_id })
    }
}

impl ToolInput {
    /// Returns the schema as JSON text; `None` for the default input.
    pub fn schema(&self) -> Option<&RawValue> {
        match self {
            Self::Flat => None,
            Self::Own(own) => Some(&own.schema),
        }
    }
}

/// Compiles a schema: draft 2020-12 unless it names another, patterns in linear time, no fetching
/// of references.
///
/// # Errors
///
/// The problem of the schema.
pub fn validator(schema: &Value) -> Result<Validator, String> {
    jsonschema::options()
        .with_pattern_options(PatternOptions::regex())
        .build(schema)
        .map_err(|error| error.to_string())
}

/// Compiles a schema of the gateway's own so that it rejects members that it does not name.
///
/// The listed schema does not say so: the converter of google-genai fails on `additionalProperties:
/// false`.
///
/// # Errors
///
/// As [`validator`].
pub(super) fn strict_validator(schema: &Value) -> Result<Validator, String> {
    validator(&strict(schema))
}

fn strict(schema: &Value) -> Value {
    let mut schema = schema.clone();
    if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        properties.values_mut().for_each(|property| *property = strict(property));
        if let Some(members) = schema.as_object_mut() {
            members.insert("additionalProperties".to_owned(), Value::Bool(false));
        }
    }
    if let Some(items) = schema.get_mut("items") {
        *items = strict(items);
    }
    schema
}

/// A file in the arguments.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct FileArgument {
    /// URL of the file, which the agent fetches.
    #[serde(default)]
    pub url: Option<String>,
    /// The bytes in base64.
    #[serde(default)]
    pub bytes: Option<String>,
    /// Media type.
    #[serde(default)]
    pub media_type: Option<String>,
    /// File name.
    #[serde(default)]
    pub name: Option<String>,
}

impl FileArgument {
    fn drop_blanks(&mut self) {
        for member in [&mut self.url, &mut self.bytes, &mut self.media_type, &mut self.name] {
            member.take_if(|text| text.is_empty());
        }
    }
}

/// Returns true if data stands for none: `{}` and `""` of clients in strict mode.
fn is_blank(json: &RawValue) -> bool {
    let dense: String = json.get().chars().filter(|c| !c.is_ascii_whitespace()).take(3).collect();
    dense == "{}" || dense == "\"\""
}

/// The arguments of a call, with handles still unopened.
#[derive(Debug, Clone, Default)]
pub struct ToolArguments {
    /// Text for the agent.
    pub text: Option<JsonText>,
    /// Any JSON: `data`, or all arguments of a tool with its own schema.
    pub data: Option<Box<RawValue>>,
    /// Files.
    pub files: Vec<FileArgument>,
    /// Handle of the conversation to continue.
    pub context: Option<String>,
    /// Handle of the task to continue or to wait for.
    pub task: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DefaultArguments<'a> {
    #[serde(default)]
    text: Option<JsonText>,
    #[serde(borrow, default)]
    data: Option<&'a RawValue>,
    #[serde(default)]
    files: Option<Vec<FileArgument>>,
    #[serde(borrow, default, rename = "contextId")]
    context: Option<Text<'a>>,
    #[serde(borrow, default, rename = "taskId")]
    task: Option<Text<'a>>,
}

/// Maximum number of files in one call.
const MOST_FILES: usize = 32;

/// Reads the arguments of a call; absent and `null` ones are `{}`.
///
/// # Errors
///
/// The problem, in words that let a model correct itself.
pub fn read(input: &ToolInput, arguments: Option<&RawValue>) -> Result<ToolArguments, String> {
    let text = arguments.map(RawValue::get).filter(|text| *text != "null").unwrap_or("{}");
    match input {
        ToolInput::Flat => default_schema(text),
        ToolInput::Own(own) => read_custom(own, text),
    }
}

fn default_schema(text: &str) -> Result<ToolArguments, String> {
    let Ok(Object(flat)) = read_json::<Object<DefaultArguments<'_>>>(text) else {
        return Err(schema_error(FLAT.as_ref(), text));
    };
    let mut files = flat.files.unwrap_or_default();
    // Clients in strict mode write every member, and "" or {} for unused ones.
    files.iter_mut().for_each(FileArgument::drop_blanks);
    files.retain(|file| *file != FileArgument::default());
    if files.len() > MOST_FILES {
        return Err(format!("Invalid arguments: at most {MOST_FILES} files are taken."));
    }
    if let Some(place) = files.iter().position(|file| file.url.is_some() == file.bytes.is_some()) {
        return Err(format!("Invalid arguments: /files/{place} needs either url or bytes, and not both."));
    }
    let given = |text: Option<Text<'_>>| text.map(|text| text.0.into_owned()).filter(|text| !text.is_empty());
    let asked = ToolArguments {
        text: flat.text.filter(|text| !text.is_empty()),
        data: flat.data.filter(|json| !is_blank(json)).map(ToOwned::to_owned),
        files,
        context: given(flat.context),
        task: given(flat.task),
    };
    if asked.text.is_none() && asked.task.is_none() {
        return Err(
            "Invalid arguments: text is missing. Give text (what to tell the agent), or taskId alone \
                    to wait for a task that is under way."
                .into(),
        );
    }
    Ok(asked)
}

fn read_custom(own: &CustomSchema, text: &str) -> Result<ToolArguments, String> {
    let members: UniqueObject<'_> = serde_json::from_str(text).map_err(invalid)?;
    // The next step that results suggest to the model works for tools with their own schema too.
    if !own.claims_task_id && members.handle("taskId").is_some() {
        return default_schema(text);
    }
    let context = if own.claims_context_id { None } else { members.handle("contextId") };
    let text = match &context {
        Some(_) => Cow::Owned(members.without("contextId")),
        None => Cow::Borrowed(text),
    };
    let value: Value = serde_json::from_str(&text).map_err(invalid)?;
    if let Some(told) = schema_errors(&own.validator, &value) {
        return Err(invalid(told));
    }
    let data = RawValue::from_string(text.into_owned()).map_err(|error| error.to_string())?;
    Ok(ToolArguments { data: Some(data), context, ..ToolArguments::default() })
}

fn schema_error(validator: Option<&Validator>, text: &str) -> String {
    match serde_json::from_str::<Value>(text) {
        Ok(value) => validator
            .and_then(|validator| schema_errors(validator, &value))
            .map_or_else(|| invalid("a member is there twice"), invalid),
        Err(error) => invalid(error),
    }
}

fn invalid(what: impl Display) -> String {
    format!("Invalid arguments: {what}.")
}

/// Maximum number of errors in one message.
const MAX_ERRORS: usize = 5;
/// Maximum length of an error, in characters: it quotes the value.
const MAX_ERROR_CHARS: usize = 300;

/// Returns the errors with their positions; `None` if the value is valid.
pub(super) fn schema_errors(judge: &Validator, value: &Value) -> Option<String> {
    let all: Vec<String> = judge
        .iter_errors(value)
        .take(MAX_ERRORS)
        .map(|error| {
            let what: String = error.to_string().chars().take(MAX_ERROR_CHARS).collect();
            match error.instance_path().as_str() {
                "" => what,
                place => format!("{place}: {what}"),
            }
        })
        .collect();
    (!all.is_empty()).then(|| all.join("; "))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn asked(text: &str) -> Result<ToolArguments, String> {
        let raw = RawValue::from_string(text.to_owned()).unwrap();
        read(&ToolInput::Flat, Some(&raw))
    }

    #[test]
    fn the_flat_input_is_read() {
        let asked = asked(
            r#"{"text":"hi","data":{"a":1.0},"files":[{"url":"https://x/y","mediaType":"text/plain"}],"contextId":"c","taskId":"t"}"#,
        )
        .unwrap();
        assert_eq!(asked.text, Some("hi".into()));
        assert_eq!(asked.data.unwrap().get(), r#"{"a":1.0}"#);
        assert_eq!(asked.files[0].url.as_deref(), Some("https://x/y"));
        assert_eq!((asked.context.as_deref(), asked.task.as_deref()), (Some("c"), Some("t")));
    }

    #[test]
    fn a_model_is_told_what_is_wrong() {
        for (given, told) in [
            ("{}", "text is missing"),
            (r#"{"text":7}"#, "/text: 7 is not of type"),
            (r#"{"txt":"a"}"#, "'txt' was unexpected"),
            (r#"[1]"#, "is not of type \"object\""),
            (r#"{"text":"a","files":[{"name":"n"}]}"#, "/files/0 needs either url or bytes"),
            (r#"{"text":"a","files":[{"path":"x"}]}"#, "'path' was unexpected"),
            (r#"{"text":"a","text":"b"}"#, "twice"),
        ] {
            let error = asked(given).unwrap_err();
            assert!(error.contains(told), "{given}: {error}");
        }
        assert!(read(&ToolInput::Flat, None).is_err());
    }

    #[test]
    fn schema_accepts_typed_arguments() {
        let validator = FLAT.as_ref().unwrap();
        for text in [r#"{"text":"a"}"#, r#"{"taskId":"a"}"#, r#"{"text":"a","data":{},"files":[]}"#] {
            assert!(asked(text).is_ok(), "{text}");
            assert!(validator.is_valid(&serde_json::from_str(text).unwrap()), "{text}");
        }
    }

    #[test]
    fn strict_mode_blanks_are_absent() {
        let blank = r#"{"url":"","bytes":"","mediaType":"","name":""}"#;
        for data in ["{}", "\"\"", "null", " { } "] {
            let json =
                format!(r#"{{"text":"a","data":{data},"files":[{blank}],"contextId":"","taskId":""}}"#);
            let asked = asked(&json).unwrap();
            assert!(asked.data.is_none() && asked.files.is_empty(), "{json}");
            assert!(asked.context.is_none() && asked.task.is_none(), "{json}");
        }
        let one = asked(r#"{"text":"a","files":[{"url":"https://x/y","bytes":"","name":null}]}"#).unwrap();
        assert_eq!((one.files.len(), one.files[0].bytes.as_deref()), (1, None));
        assert_eq!(asked(r#"{"taskId":"t","data":[1]}"#).unwrap().data.unwrap().get(), "[1]");
    }

    #[test]
    fn an_own_schema_judges_and_its_arguments_travel_whole() {
        let own = CustomSchema::new(
            &json!({"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}),
        );
        let input = ToolInput::Own(own.unwrap());
        let raw = RawValue::from_string(r#"{"n": 1 }"#.into()).unwrap();
        assert_eq!(read(&input, Some(&raw)).unwrap().data.unwrap().get(), r#"{"n": 1 }"#);
        assert!(read(&input, None).unwrap_err().contains("\"n\" is a required property"));
        let with_context = RawValue::from_string(r#"{"n":2,"contextId":"c"}"#.into()).unwrap();
        let asked = read(&input, Some(&with_context)).unwrap();
        assert_eq!((asked.data.unwrap().get(), asked.context.as_deref()), (r#"{"n":2}"#, Some("c")));
        for twice in [r#"{"n":1,"n":2}"#, r#"{"n":1,"o":{"a":1,"a":2}}"#, r#"{"n":1,"o":[{"a":1,"a":2}]}"#] {
            let raw = RawValue::from_string(twice.into()).unwrap();
            assert!(read(&input, Some(&raw)).unwrap_err().contains("twice"), "{twice}");
        }
        let task = RawValue::from_string(r#"{"taskId":"t"}"#.into()).unwrap();
        assert_eq!(read(&input, Some(&task)).unwrap().task.as_deref(), Some("t"));
    }

    #[test]
    fn a_bad_schema_is_refused_and_nothing_is_fetched() {
        assert!(CustomSchema::new(&json!({"type":"objekt"})).is_err());
        assert!(CustomSchema::new(&json!({"$ref":"https://example.com/s.json"})).is_err());
    }
}
