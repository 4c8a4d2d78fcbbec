//! The user of `call`: progress and questions at the terminal, answers that were given ahead,
//! signals, and files that are read and saved.
//!
//! Reads docs/spec/mcp.md §2.10: a form is a flat object of primitives. Everything for people goes
//! to standard error; standard output has only the result. Out of scope: the course of a call (see
//! `call`).

use std::fmt::Write as _;
use std::io::{BufRead as _, ErrorKind, IsTerminal as _, Read as _, Write as _};
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

use crate::telemetry::log::takes_colour;
use crate::telemetry::log::{EscapeStyle, visible};

/// The maximum length of a line of input, in bytes.
const MAX_LINE_BYTES: u64 = 64 * 1024;
/// The maximum size of a file that is read for an argument, in bytes.
const MAX_FILE_BYTES: u64 = 64 * 1024 * 1024;
/// Lines of input that are read ahead.
const MAX_LINES_AHEAD: usize = 16;
/// Declines a question.
const DECLINE: &str = "/decline";
/// Dismisses a question without an answer.
const CANCEL: &str = "/cancel";

/// The terminal of the user, or the files in place of it.
pub(super) struct UserConsole {
    is_json: bool,
    is_interactive: bool,
    has_colour: bool,
    /// Lines of standard input, once one was asked for.
    lines: Option<mpsc::Receiver<String>>,
}

impl UserConsole {
    /// Creates the console. In JSON there is no dialogue.
    pub(super) fn new(is_json: bool) -> Self {
        let (input, output) = (std::io::stdin(), std::io::stderr());
        let is_interactive = !is_json && input.is_terminal() && output.is_terminal();
        Self { is_json, is_interactive, has_colour: !is_json && takes_colour(&output), lines: None }
    }

    /// Returns true if a user can be asked.
    pub(super) fn is_interactive(&self) -> bool {
        self.is_interactive
    }

    /// Returns true if the output is JSON.
    pub(super) fn is_json(&self) -> bool {
        self.is_json
    }

    /// Prints an event of the call: `fields` in JSON, `text` for people.
    pub(super) fn report(&self, text: &str, fields: &Value) {
        if self.is_json {
            return write_error(&visible(&fields.to_string(), EscapeStyle::Json), "\n");
        }
        let text = visible(text, EscapeStyle::Text);
        match self.has_colour {
            true => write_error(&format!("\x1b[2m{text}\x1b[0m"), "\n"),
            false => write_error(&text, "\n"),
        }
    }

    /// Prints a line for people; in JSON nothing.
    pub(super) fn note(&self, text: &str) {
        if !self.is_json {
            write_error(&visible(text, EscapeStyle::Text), "\n");
        }
    }

    /// Prompts and returns the next line without its end; `None` if there is no more input.
    /// Cancel-safe.
    pub(super) async fn ask(&mut self, prompt: &str) -> Option<String> {
        write_error(&visible(prompt, EscapeStyle::Text), "");
        let lines = self.lines.get_or_insert_with(read_input);
        lines.recv().await.map(|line| line.trim_end_matches(['\r', '\n']).to_owned())
    }

    /// Asks the user for the answer to a question.
    pub(super) async fn answer(&mut self, question: &Value) -> Value {
        self.note(&format!("\n{}", described(question)));
        if question["mode"] == "url" {
            let prompt = format!("Press Enter when that is done ({DECLINE} declines): ");
            return match self.ask(&prompt).await.as_deref().map(str::trim) {
                Some(DECLINE) => action("decline"),
                None | Some(CANCEL) => action("cancel"),
                Some(_) => action("accept"),
            };
        }
        self.note(&format!("({DECLINE} declines the question, {CANCEL} dismisses it)"));
        loop {
            let mut content = Map::new();
            for field in fields(question) {
                match self.field(&field).await {
                    FieldInput::Given(value) => drop(content.insert(field.name, value)),
                    FieldInput::Omitted => {}
                    FieldInput::Ended(word) => return action(word),
                }
            }
            let content = Value::Object(content);
            match check_content(question, &content) {
                Ok(()) => return json!({ "action": "accept", "content": content }),
                Err(problem) => self.note(&format!("{problem}; once more:")),
            }
        }
    }

    /// Asks for one field until the input fits.
    async fn field(&mut self, field: &FormField) -> FieldInput {
        field.choices().iter().enumerate().for_each(|(place, choice)| {
            self.note(&format!("  {}. {}", place + 1, choice.label()));
        });
        loop {
            let Some(line) = self.ask(&field.prompt()).await else { return FieldInput::Ended("cancel") };
            match line.trim() {
                DECLINE => return FieldInput::Ended("decline"),
                CANCEL => return FieldInput::Ended("cancel"),
                "" => match &field.default {
                    Some(value) => return FieldInput::Given(value.clone()),
                    None if field.is_required => self.note("an answer is required"),
                    None => return FieldInput::Omitted,
                },
                text => match field.kind.value(text) {
                    Ok(value) => return FieldInput::Given(value),
                    Err(problem) => self.note(&problem),
                },
            }
        }
    }
}

/// Input for one field.
enum FieldInput {
    Given(Value),
    Omitted,
    /// The whole question ends with this action.
    Ended(&'static str),
}

fn write_error(text: &str, end: &str) {
    let mut stderr = std::io::stderr();
    if write!(stderr, "{text}{end}").and_then(|()| stderr.flush()).is_err() {
        tracing::trace!("stderr closed");
    }
}

/// Starts the thread that reads standard input. It ends with the process or with the input.
fn read_input() -> mpsc::Receiver<String> {
    let (sender, lines) = mpsc::channel(MAX_LINES_AHEAD);
    std::thread::spawn(move || {
        loop {
            let mut line = String::new();
            match std::io::stdin().lock().take(MAX_LINE_BYTES).read_line(&mut line) {
                Ok(1..) if sender.blocking_send(line).is_ok() => {}
                _ => return,
            }
        }
    });
    lines
}

fn action(word: &str) -> Value {
    json!({ "action": word })
}

/// Returns a question with its URL or its fields, for people.
pub(super) fn described(question: &Value) -> String {
    let mut text = format!("The agent asks: {}", question["message"].as_str().unwrap_or_default());
    if question["mode"] == "url" {
        write!(text, "\nOpen {}", question["url"].as_str().unwrap_or_default()).unwrap_or_default();
    }
    text
}

/// Returns the fields of a question, a line for each.
pub(super) fn described_fields(question: &Value) -> Vec<String> {
    let described = |field: FormField| {
        let choices: Vec<String> = field.choices().iter().map(|choice| choice.value.to_string()).collect();
        let choices = if choices.is_empty() { String::new() } else { format!(": {}", choices.join(", ")) };
        let required = if field.is_required { ", required" } else { "" };
        format!("{} ({}{required}){choices}", field.name, field.kind.name())
    };
    fields(question).into_iter().map(described).collect()
}

/// A field of a form.
struct FormField {
    name: String,
    title: String,
    kind: FieldKind,
    is_required: bool,
    default: Option<Value>,
}

/// The kind of a field.
enum FieldKind {
    Text,
    Number,
    Integer,
    Boolean,
    OneOf(Vec<FormChoice>),
    SeveralOf(Vec<FormChoice>),
}

/// A value that can be chosen.
struct FormChoice {
    value: Value,
    title: Option<String>,
}

impl FormChoice {
    fn label(&self) -> String {
        let value = self.value.as_str().map_or_else(|| self.value.to_string(), str::to_owned);
        match &self.title {
            Some(title) if *title != value => format!("{value} ({title})"),
            _ => value,
        }
    }

    fn is_named(&self, text: &str) -> bool {
        self.value.as_str() == Some(text) || self.title.as_deref() == Some(text)
    }
}

impl FormField {
    fn choices(&self) -> &[FormChoice] {
        match &self.kind {
            FieldKind::OneOf(choices) | FieldKind::SeveralOf(choices) => choices,
            FieldKind::Text | FieldKind::Number | FieldKind::Integer | FieldKind::Boolean => &[],
        }
    }

    fn prompt(&self) -> String {
        let hint = match &self.kind {
            FieldKind::Text => String::new(),
            kind => format!(" ({})", kind.name()),
        };
        let default = match &self.default {
            Some(value) => format!(" [{value}]"),
            None if self.is_required => String::new(),
            None => " [none]".to_owned(),
        };
        format!("{}{hint}{default}: ", self.title)
    }
}

impl FieldKind {
    fn of(schema: &Value) -> Self {
        let several = &schema["items"];
        match schema["type"].as_str() {
            Some("boolean") => Self::Boolean,
            Some("integer") => Self::Integer,
            Some("number") => Self::Number,
            Some("array") => Self::SeveralOf(choices(several)),
            _ => match choices(schema) {
                none if none.is_empty() => Self::Text,
                choices => Self::OneOf(choices),
            },
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Number => "number",
            Self::Integer => "whole number",
            Self::Boolean => "yes or no",
            Self::OneOf(_) => "one of them",
            Self::SeveralOf(_) => "several of them, with commas",
        }
    }

    /// Returns the value of an input.
    ///
    /// # Errors
    ///
    /// The expected form of the input.
    fn value(&self, text: &str) -> Result<Value, String> {
        let expected = || format!("{text:?} is not it; write {}", self.name());
        match self {
            Self::Text => Ok(text.into()),
            Self::Integer => text.parse::<i64>().map(Value::from).map_err(|_| expected()),
            Self::Number => text.parse::<f64>().map(Value::from).map_err(|_| expected()),
            Self::Boolean => match text.to_ascii_lowercase().as_str() {
                "y" | "yes" | "true" => Ok(true.into()),
                "n" | "no" | "false" => Ok(false.into()),
                _ => Err(expected()),
            },
            Self::OneOf(choices) => chosen(choices, text).ok_or_else(expected),
            Self::SeveralOf(choices) => {
                let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
                let values = parts.map(|part| chosen(choices, part)).collect::<Option<Vec<_>>>();
                values.map(Value::from).ok_or_else(expected)
            }
        }
    }
}

/// Returns the choice that an input names by its value, its title or its number.
fn chosen(choices: &[FormChoice], text: &str) -> Option<Value> {
    let by_number = || choices.get(text.parse::<usize>().ok()?.checked_sub(1)?);
    let named = choices.iter().find(|choice| choice.is_named(text)).or_else(by_number)?;
    Some(named.value.clone())
}

/// Returns the choices of a schema: `enum`, with or without `enumNames`, `oneOf` or `anyOf`.
fn choices(schema: &Value) -> Vec<FormChoice> {
    let titled = schema["oneOf"].as_array().or(schema["anyOf"].as_array());
    if let Some(titled) = titled {
        let choice = |one: &Value| FormChoice {
            value: one["const"].clone(),
            title: one["title"].as_str().map(str::to_owned),
        };
        return titled.iter().map(choice).collect();
    }
    let names = schema["enumNames"].as_array();
    let title = |place: usize| Some(names?.get(place)?.as_str()?.to_owned());
    let values = schema["enum"].as_array().into_iter().flatten().enumerate();
    values.map(|(place, value)| FormChoice { value: value.clone(), title: title(place) }).collect()
}

fn fields(question: &Value) -> Vec<FormField> {
    let schema = &question["requestedSchema"];
    let required: Vec<&str> =
        schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let properties = schema["properties"].as_object().into_iter().flatten();
    let field = |(name, schema): (&String, &Value)| FormField {
        name: name.clone(),
        title: schema["title"].as_str().unwrap_or(name).to_owned(),
        kind: FieldKind::of(schema),
        is_required: required.contains(&name.as_str()),
        default: schema.get("default").cloned(),
    };
    properties.map(field).collect()
}

/// Checks the content of a form.
///
/// # Errors
///
/// The first problem. A schema that cannot be read is left to the gateway.
fn check_content(question: &Value, content: &Value) -> Result<(), String> {
    let Ok(validator) = jsonschema::validator_for(&question["requestedSchema"]) else { return Ok(()) };
    match validator.iter_errors(content).next() {
        Some(error) => Err(error.to_string()),
        None => Ok(()),
    }
}

/// Returns the answer that was given ahead, as a response to this question.
///
/// `given` is JSON or text. An object with `action` is the response itself, another object the content
/// of the form; a plain value answers a form of one field, and a field for text takes it as written.
///
/// # Errors
///
/// The reason for which it does not fit.
pub(super) fn given_answer(question: &Value, given: &str) -> Result<Value, String> {
    let json = serde_json::from_str::<Value>(given).ok();
    if let Some(answer) = json.as_ref().filter(|answer| answer["action"].is_string()) {
        return Ok(answer.clone());
    }
    if question["mode"] == "url" {
        return Err("the question has a URL; the answer is {\"action\":\"accept\"}".to_owned());
    }
    let content = match json {
        Some(fields @ Value::Object(_)) => fields,
        plain => {
            let mut fields = fields(question).into_iter();
            let (Some(field), None) = (fields.next(), fields.next()) else {
                return Err("the question has several fields; the answer is an object".to_owned());
            };
            let value = match (plain, &field.kind) {
                (Some(Value::String(text)), kind) => kind.value(&text)?,
                // A text can look like a number: its digits are kept as they are written.
                (None, kind) | (Some(_), kind @ FieldKind::Text) => kind.value(given)?,
                (Some(value), _) => value,
            };
            json!({ field.name: value })
        }
    };
    check_content(question, &content)?;
    Ok(json!({ "action": "accept", "content": content }))
}

/// The signals that interrupt a call.
pub(super) struct InterruptSignals {
    interrupt: Signal,
    terminate: Signal,
    /// The terminal is gone.
    hangup: Signal,
}

impl InterruptSignals {
    pub(super) fn new() -> std::io::Result<Self> {
        let [interrupt, terminate, hangup] =
            [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()].map(signal);
        Ok(Self { interrupt: interrupt?, terminate: terminate?, hangup: hangup? })
    }

    /// Waits for the next signal. Returns true for one that leaves no time for a dialogue.
    pub(super) async fn next(&mut self) -> bool {
        tokio::select! {
            _ = self.interrupt.recv() => false,
            _ = self.terminate.recv() => true,
            _ = self.hangup.recv() => true,
        }
    }
}

/// Reads a file for an argument.
pub(super) fn read_file(path: &Path) -> Result<Vec<u8>, String> {
    let shown = path.display();
    let mut bytes = Vec::new();
    let read =
        std::fs::File::open(path).and_then(|file| file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes));
    match read {
        Ok(size) if size as u64 <= MAX_FILE_BYTES => Ok(bytes),
        Ok(_) => Err(format!("{shown} is larger than {MAX_FILE_BYTES} bytes")),
        Err(error) => Err(format!("cannot read {shown}: {error}")),
    }
}

/// Returns an element of `files`: the URL, or the content of the file.
pub(super) fn file_argument(file: &str) -> Result<Value, String> {
    let path = Path::new(file);
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let media_type = media_type(&name);
    if file.starts_with("https://") || file.starts_with("http://") {
        return Ok(json!({ "url": file, "name": name, "mediaType": media_type }));
    }
    let bytes = STANDARD.encode(read_file(path).map_err(|problem| format!("--file: {problem}"))?);
    Ok(json!({ "bytes": bytes, "name": name, "mediaType": media_type }))
}

/// Extensions of file names, each with its media type.
const MEDIA_TYPES: [(&str, &str); 20] = [
    ("txt", "text/plain"),
    ("md", "text/markdown"),
    ("csv", "text/csv"),
    ("html", "text/html"),
    ("xml", "application/xml"),
    ("json", "application/json"),
    ("yaml", "application/yaml"),
    ("yml", "application/yaml"),
    ("pdf", "application/pdf"),
    ("zip", "application/zip"),
    ("png", "image/png"),
    ("jpg", "image/jpeg"),
    ("jpeg", "image/jpeg"),
    ("gif", "image/gif"),
    ("webp", "image/webp"),
    ("svg", "image/svg+xml"),
    ("mp3", "audio/mpeg"),
    ("wav", "audio/wav"),
    ("ogg", "audio/ogg"),
    ("mp4", "video/mp4"),
];
/// The media type of a file that has no other.
const ANY_MEDIA_TYPE: &str = "application/octet-stream";

fn media_type(name: &str) -> &'static str {
    let extension = name.rsplit_once('.').map(|(_, extension)| extension.to_ascii_lowercase());
    let known = MEDIA_TYPES.iter().find(|(known, _)| extension.as_deref() == Some(known));
    known.map_or(ANY_MEDIA_TYPE, |(_, media_type)| media_type)
}

/// A file of a result.
pub(super) struct ResultFile {
    name: Option<String>,
    media_type: String,
    bytes: Vec<u8>,
}

impl ResultFile {
    /// Returns the file of a content block.
    pub(super) fn of(block: &Value) -> Option<Self> {
        let (data, at) = match block["type"].as_str()? {
            "image" | "audio" => (&block["data"], block),
            "resource" => (block.pointer("/resource/blob")?, &block["resource"]),
            _ => return None,
        };
        let bytes = STANDARD.decode(data.as_str()?).ok()?;
        let media_type = at["mimeType"].as_str().unwrap_or(ANY_MEDIA_TYPE).to_owned();
        let name = at["uri"].as_str().and_then(|uri| uri.rsplit('/').next()).and_then(file_name);
        Some(Self { name, media_type, bytes })
    }

    /// Saves the file in the folder, if there is one, and returns a line about it.
    pub(super) fn save(&self, folder: Option<&Path>, number: usize) -> Result<String, String> {
        let extension = MEDIA_TYPES.iter().find(|(_, media_type)| *media_type == self.media_type);
        let extension = extension.map_or("bin", |(extension, _)| extension);
        let name = self.name.clone().unwrap_or_else(|| format!("file-{}.{extension}", number + 1));
        let about = |name: &str| format!("{name} ({}, {} bytes)", self.media_type, self.bytes.len());
        let Some(folder) = folder else { return Ok(about(&name)) };
        std::fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        for attempt in 0..MAX_FILES_OF_NAME {
            let prefix = if attempt == 0 { String::new() } else { format!("{attempt}-") };
            let path = folder.join(format!("{prefix}{name}"));
            // An existing file is never overwritten, and no link is followed.
            match std::fs::OpenOptions::new().write(true).create_new(true).open(&path) {
                Ok(mut file) => {
                    let written = file.write_all(&self.bytes);
                    written.map_err(|error| format!("{}: {error}", path.display()))?;
                    return Ok(about(&path.display().to_string()));
                }
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(format!("{}: {error}", path.display())),
            }
        }
        Err(format!("{}: there are too many files of this name", folder.join(name).display()))
    }
}

/// The maximum number of files of one name in a folder.
const MAX_FILES_OF_NAME: usize = 1000;
/// The maximum length of the name of a saved file, in characters.
const MAX_FILE_NAME_CHARS: usize = 100;

/// Returns the last part of a URI as a harmless file name.
fn file_name(part: &str) -> Option<String> {
    let decoded = percent_encoding::percent_decode_str(part).decode_utf8().ok()?;
    let harmless = |c: char| if c.is_alphanumeric() || matches!(c, '.' | '-' | '_' | ' ') { c } else { '_' };
    let name: String = decoded.chars().take(MAX_FILE_NAME_CHARS).map(harmless).collect();
    let name = name.trim_matches([' ', '.']).to_owned();
    (!name.is_empty()).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form() -> Value {
        json!({ "message": "Which seat?", "requestedSchema": {
            "type": "object",
            "properties": {
                "row": { "type": "integer", "minimum": 1 },
                "side": { "type": "string", "oneOf": [{ "const": "w", "title": "Window" }, { "const": "a" }] },
                "extras": { "type": "array", "items": { "type": "string", "enum": ["meal", "bag"] } },
                "vegan": { "type": "boolean" },
            },
            "required": ["row"],
        } })
    }

    #[test]
    fn input_becomes_value_of_field() {
        let schema = &form()["requestedSchema"]["properties"];
        for (field, text, value) in [
            ("row", "7", json!(7)),
            ("side", "Window", json!("w")),
            ("side", "2", json!("a")),
            ("extras", "bag, 1", json!(["bag", "meal"])),
            ("vegan", "No", json!(false)),
        ] {
            assert_eq!(FieldKind::of(&schema[field]).value(text), Ok(value), "{field} {text}");
        }
        for (field, text) in [("row", "seven"), ("side", "middle"), ("extras", "bag, 3"), ("vegan", "maybe")]
        {
            assert!(FieldKind::of(&schema[field]).value(text).is_err(), "{field} {text}");
        }
    }

    #[test]
    fn answer_ahead_is_checked() {
        let accepted = |given: Value| given_answer(&form(), &given.to_string());
        let seat = json!({ "row": 3, "side": "w" });
        assert_eq!(accepted(seat.clone()), Ok(json!({ "action": "accept", "content": seat })));
        assert_eq!(accepted(json!({ "action": "decline" })), Ok(json!({ "action": "decline" })));
        for bad in [json!({ "row": 0 }), json!({}), json!("3"), json!({ "row": 1, "side": "x" })] {
            assert!(accepted(bad.clone()).is_err(), "{bad}");
        }
        let plain =
            json!({ "requestedSchema": { "type": "object", "properties": { "n": { "type": "integer" } } } });
        for written in ["4", "\"4\""] {
            assert_eq!(given_answer(&plain, written).unwrap()["content"], json!({ "n": 4 }));
        }
        assert!(given_answer(&plain, "four").is_err());
        let text =
            json!({ "requestedSchema": { "type": "object", "properties": { "t": { "type": "string" } } } });
        for (written, read) in [("1.50", "1.50"), ("true", "true"), ("four", "four"), ("\"4\"", "4")] {
            assert_eq!(given_answer(&text, written).unwrap()["content"], json!({ "t": read }));
        }
    }

    #[test]
    fn file_names_of_agents_are_harmless() {
        for (part, name) in [
            ("report.pdf", Some("report.pdf")),
            ("..%2f..%2fetc%2fpasswd", Some("_.._etc_passwd")),
            (".bashrc", Some("bashrc")),
            ("a%0Ab", Some("a_b")),
            ("..", None),
            ("", None),
        ] {
            assert_eq!(file_name(part).as_deref(), name, "{part}");
        }
    }
}
