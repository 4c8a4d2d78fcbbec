//! The question of an agent: its identity, the form in which the agent wants it asked, and the form
//! in which it accepts the answer.
//!
//! A question is its text, its parts and the state of its task, never its time or the id of its
//! message: agents make both anew each time they ask. A question without a message is the last
//! artifact of its task. Its form is in the metadata of the status message (`mcp.inputKey`,
//! `mcp.requestedSchema`, `mcp.inputRequests`) or in a data part of it; it is read leniently:
//! malformed members read as absent.
//!
//! Two frameworks have a form of their own, and reject text. Google ADK asks by function calls in
//! data parts, for a confirmation or for the result of a long-running tool, and accepts function
//! responses, marked as such in the metadata of the part. Strands lists its interrupts in a data
//! part and accepts one data part for each. Elicitations are in `bridge::elicitation`, accepted
//! answers in `tasks`.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde::ser::{Serialize, Serializer};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::lenient::RawObject;
use super::model::{Artifact, Message, Part, PartBody, Task, TaskState, TaskStatus};

/// Maximum number of inputs in one question.
pub(super) const MAX_INPUTS: usize = 16;
/// Maximum length of a question's key, in bytes.
const LONGEST_KEY: usize = 128;
/// Maximum length of an agent's schema, in bytes.
const LONGEST_SCHEMA: usize = 64 * 1024;
/// Bytes of an artifact that count for the identity of a question.
const LONGEST_ARTIFACT: usize = 64 * 1024;
/// Prefix of the metadata members that give the form of a question.
const PREFIX: &str = "mcp.";

/// The identity of an open question: the same for the same question of the same task, on every
/// replica.
///
/// An agent may ask the same question again once it was answered. The round distinguishes these: it
/// is the number of earlier answers to the same content, as far as that is known, modulo 256.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint([u8; 16]);

impl Fingerprint {
    /// Returns the fingerprint as bytes.
    pub fn to_bytes(self) -> [u8; 16] {
        self.0
    }

    /// Reads the fingerprint from its bytes.
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// Returns the fingerprint in 32 hexadecimal digits. The first two are the round.
    pub fn hex(self) -> String {
        let digits = self.0.iter().flat_map(|byte| [byte >> 4, byte & 0xF]);
        digits.filter_map(|digit| char::from_digit(digit.into(), 16)).collect()
    }

    /// Returns the round of the question.
    pub fn round(self) -> u8 {
        let [round, ..] = self.0;
        round
    }

    /// Returns the same question in another round.
    #[must_use]
    pub(crate) fn in_round(self, round: u8) -> Self {
        let Self(mut bytes) = self;
        if let Some(first) = bytes.first_mut() {
            *first = round;
        }
        Self(bytes)
    }

    /// Returns true if both have the same content, in the same round or not.
    pub(crate) fn asks_same(self, other: Self) -> bool {
        self.in_round(0) == other.in_round(0)
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({})", self.hex())
    }
}

/// The content of a question, independent of its task: small, so that it can be stored with the
/// question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Content([u8; 16]);

impl Content {
    /// Reads the content from a message in this state, or from the last artifact if there is none.
    /// Returns `None` unless the task is interrupted.
    pub fn of(state: TaskState, message: Option<&Message>, artifact: Option<&Artifact>) -> Option<Self> {
        if !state.is_interrupted() {
            return None;
        }
        let mut pieces = Pieces::default();
        pieces.add(state.as_str());
        match (message, artifact) {
            (Some(message), _) => pieces.add_message(message),
            (None, Some(artifact)) => pieces.add_artifact(artifact),
            (None, None) => {}
        }
        Some(Self(pieces.digest()))
    }

    /// Returns the fingerprint of the question in this task, in the first round.
    pub(crate) fn fingerprint(self, task_id: &str) -> Fingerprint {
        let mut pieces = Pieces::default();
        pieces.add(task_id);
        pieces.0.update(self.0);
        Fingerprint(pieces.digest()).in_round(0)
    }
}

/// Returns the fingerprint of the task's open question, in the first round; `None` unless the task
/// is interrupted.
pub(crate) fn fingerprint(task: &Task) -> Option<Fingerprint> {
    let status = &task.status;
    let content = Content::of(status.state, status.message.as_deref(), task.artifacts.last());
    content.map(|content| content.fingerprint(&task.id))
}

/// Returns a digest that distinguishes this status of an agent from any other: the id of its
/// message and its time, if it has either. It is not part of the question's identity.
pub(crate) fn stamp_of(status: &TaskStatus) -> Option<[u8; 16]> {
    let id = status.message.as_ref().and_then(|message| message.message_id.as_deref());
    let time = status.timestamp.as_deref();
    id.or(time)?;
    let mut pieces = Pieces::default();
    for piece in [id, time] {
        pieces.add(if piece.is_some() { "some" } else { "none" });
        pieces.add(piece.unwrap_or_default());
    }
    Some(pieces.digest())
}

/// Pieces of text, each with its length: no two lists of pieces have the same bytes.
#[derive(Default)]
struct Pieces(Sha256);

impl Pieces {
    fn add(&mut self, piece: &str) {
        self.0.update((piece.len() as u64).to_be_bytes());
        self.0.update(piece);
    }

    /// Adds the parts of a message, and the members of its metadata that give the form. Other
    /// members may contain a time.
    fn add_message(&mut self, message: &Message) {
        self.add("message");
        for part in &message.parts {
            let (kind, content) = content(part);
            self.add(kind);
            self.add(&content);
        }
        let metadata = message.metadata.as_deref().map(RawObject::read).unwrap_or_default();
        for (name, value) in metadata.iter().filter(|(name, _)| name.starts_with(PREFIX)) {
            self.add(name);
            self.add(&canonical(value));
        }
    }

    /// Adds the content of an artifact, but not its id, which some agents make anew each time. The
    /// beginning of a large one is enough. Text is joined: a stream splits it anywhere.
    fn add_artifact(&mut self, artifact: &Artifact) {
        self.add("artifact");
        let (mut text, mut room) = (String::new(), LONGEST_ARTIFACT);
        for part in &artifact.parts {
            if let PartBody::Text(more) = &part.body {
                if room == 0 {
                    continue;
                }
                let more = more.to_str();
                let end = more.floor_char_boundary(room);
                text.push_str(more.get(..end).unwrap_or_default());
                room -= end;
                continue;
            }
            if !text.is_empty() {
                self.add("text");
                self.add(&std::mem::take(&mut text));
            }
            room = room.saturating_sub(part.bytes());
            if room == 0 {
                break;
            }
            let (kind, content) = content(part);
            self.add(kind);
            self.add(&content);
        }
        if !text.is_empty() {
            self.add("text");
            self.add(&text);
        }
    }

    fn digest(self) -> [u8; 16] {
        self.0.finalize().first_chunk().copied().unwrap_or_default()
    }
}

fn content(part: &Part) -> (&'static str, String) {
    match &part.body {
        PartBody::Text(text) => ("text", text.to_str().into_owned()),
        PartBody::Raw(base64) => ("raw", base64.clone()),
        PartBody::Url(url) => ("url", url.clone()),
        PartBody::Data(json) => ("data", canonical(json)),
        PartBody::Unknown(json) => ("unknown", canonical(json)),
    }
}

/// Returns the same JSON for the same value: without white space, members sorted by name. Invalid
/// JSON stays unchanged.
pub(crate) fn canonical(json: &RawValue) -> String {
    let value: Option<Value> = serde_json::from_str(json.get()).ok();
    let sorted = value.and_then(|value| serde_json::to_string(&CanonicalJson(&value)).ok());
    sorted.unwrap_or_else(|| json.get().to_owned())
}

/// A serializer that sorts members itself: the order of a tree depends on the features of other
/// dependencies.
struct CanonicalJson<'a>(&'a Value);

impl Serialize for CanonicalJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::Object(members) => {
                let sorted: BTreeMap<&String, CanonicalJson<'_>> =
                    members.iter().map(|(name, value)| (name, CanonicalJson(value))).collect();
                serializer.collect_map(sorted)
            }
            Value::Array(items) => serializer.collect_seq(items.iter().map(CanonicalJson)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
                self.0.serialize(serializer)
            }
        }
    }
}

/// An agent's wishes for the form of its question. Everything is optional.
#[derive(Debug, Clone, Default)]
pub(crate) struct InputHints {
    /// The key of the answer.
    pub key: Option<String>,
    /// JSON Schema of the answer: an object, not validated yet.
    pub schema: Option<Box<RawValue>>,
    /// Several inputs in one question.
    pub inputs: Vec<InputItem>,
}

/// One input of a question.
#[derive(Debug, Clone)]
pub(crate) struct InputItem {
    /// The key of its answer; empty if the agent names none.
    pub key: String,
    /// The question in words.
    pub message: Option<String>,
    /// JSON Schema of the answer: an object, not validated yet.
    pub schema: Option<Box<RawValue>>,
    /// The form in which the agent accepts the answer.
    pub form: AnswerForm,
}

/// Reads the form of a question from a status message. The metadata has priority over data parts,
/// and earlier parts over later ones.
pub(crate) fn wording(message: &Message) -> InputHints {
    let mut wording = InputHints::default();
    if let Some(metadata) = &message.metadata {
        wording.merge(&RawObject::read(metadata), false);
    }
    for part in &message.parts {
        if let PartBody::Data(data) = &part.body {
            let members = RawObject::read(data);
            wording.merge(&members, true);
            if wording.schema.is_none() && is_schema(&members) {
                wording.schema = schema(data);
            }
        }
    }
    if wording.inputs.is_empty() && wording.schema.is_none() {
        wording.inputs = framework_inputs(message);
    }
    wording
}

/// Returns true if data gives the form of a question, and is not content of the question.
pub(crate) fn is_wording(data: &RawValue) -> bool {
    let members = RawObject::read(data);
    let mut wording = InputHints::default();
    wording.merge(&members, true);
    is_schema(&members) || wording.schema.is_some() || wording.key.is_some() || !wording.inputs.is_empty()
}

impl InputHints {
    /// Adds members that are still unset from an object; if `bare`, they need no prefix.
    fn merge(&mut self, object: &RawObject<'_>, bare: bool) {
        let member = |name: &str| {
            let prefixed = object.iter().find(|(known, _)| known.strip_prefix(PREFIX) == Some(name));
            let bare = || object.get(name).filter(|_| bare);
            prefixed.map(|(_, value)| value).or_else(bare)
        };
        self.key = self.key.take().or_else(|| member("inputKey").and_then(text).filter(|key| is_key(key)));
        self.schema = self.schema.take().or_else(|| member("requestedSchema").and_then(schema));
        if self.inputs.is_empty() {
            self.inputs = member("inputRequests").map(inputs).unwrap_or_default();
        }
    }
}

fn inputs(json: &RawValue) -> Vec<InputItem> {
    let mut all: Vec<InputItem> = Vec::new();
    for (key, value) in RawObject::read(json).iter() {
        let new = is_key(key) && all.iter().all(|known| known.key != key);
        if !new || !value.get().starts_with('{') || all.len() >= MAX_INPUTS {
            continue;
        }
        let inside = RawObject::read(value);
        let message = inside.get("message").and_then(text).filter(|text| !text.is_empty());
        all.push(InputItem {
            key: key.to_owned(),
            message,
            schema: inside.get("requestedSchema").and_then(schema),
            form: AnswerForm::Plain,
        });
    }
    all
}

fn is_key(key: &str) -> bool {
    (1..=LONGEST_KEY).contains(&key.len()) && !key.chars().any(char::is_control)
}

fn text(json: &RawValue) -> Option<String> {
    serde_json::from_str(json.get()).ok()
}

fn schema(json: &RawValue) -> Option<Box<RawValue>> {
    let fits = json.get().starts_with('{') && json.get().len() <= LONGEST_SCHEMA;
    fits.then(|| json.to_owned())
}

/// Returns true if an object is a JSON Schema of objects, and not only data.
fn is_schema(object: &RawObject<'_>) -> bool {
    let has = |name: &str, fits: fn(&str) -> bool| {
        object.iter().any(|(known, json)| known == name && fits(json.get()))
    };
    has("type", |json| json == r#""object""#) && has("properties", |json| json.starts_with('{'))
}

/// The name of ADK's function for the confirmation of tools.
const CONFIRMATION: &str = "adk_request_confirmation";
/// JSON Schema of the answer to a confirmation.
const CONFIRMED: &str = r#"{"type":"object","properties":{"confirmed":{"type":"boolean","title":"Confirmed"}},"required":["confirmed"]}"#;

/// The form of an answer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum AnswerForm {
    /// Text, or any data.
    #[default]
    Plain,
    /// A function response of ADK.
    FunctionResponse {
        /// The id of the function call.
        id: String,
        /// The name of the function.
        name: String,
    },
    /// An interrupt response of Strands.
    InterruptResponse {
        /// The id of the interrupt.
        id: String,
    },
}

impl AnswerForm {
    /// Returns true if the answer must be a confirmation or a refusal.
    pub(crate) fn is_confirmation(&self) -> bool {
        matches!(self, Self::FunctionResponse { name, .. } if name == CONFIRMATION)
    }

    /// Returns the part with an answer for the agent; `answer` is the answer itself, any JSON.
    pub fn part(&self, answer: &RawValue) -> Option<Part> {
        let (data, metadata) = match self {
            Self::Plain => (answer.to_owned(), None),
            Self::FunctionResponse { id, name } => {
                let is_object = answer.get().starts_with('{');
                let response = if is_object { json!(answer) } else { json!({ "result": answer }) };
                let data = json!({ "id": id, "name": name, "response": response });
                (to_raw_value(&data).ok()?, Some(json!({ "adk_type": "function_response" })))
            }
            Self::InterruptResponse { id } => {
                let data = json!({ "interruptResponse": { "interruptId": id, "response": answer } });
                (to_raw_value(&data).ok()?, None)
            }
        };
        let metadata = metadata.and_then(|metadata| to_raw_value(&metadata).ok());
        Some(Part { metadata, ..Part::new(PartBody::Data(data)) })
    }
}

/// Returns the inputs that a status message requests in the form of its framework.
pub(super) fn framework_inputs(message: &Message) -> Vec<InputItem> {
    let mut wanted = Vec::new();
    for part in &message.parts {
        let PartBody::Data(data) = &part.body else { continue };
        if let Some(call) = FunctionCall::read(part, data) {
            wanted.push(call.wanted(data));
        }
        let listed: StrandsInterrupts = serde_json::from_str(data.get()).unwrap_or_default();
        wanted.extend(listed.interrupts.into_iter().map(StrandsInterrupt::wanted));
    }
    wanted.truncate(MAX_INPUTS);
    wanted
}

/// A function call of ADK.
#[derive(Deserialize)]
struct FunctionCall {
    id: String,
    name: String,
    #[serde(default)]
    args: Value,
}

#[derive(Default, Deserialize)]
struct PartMarks {
    #[serde(default)]
    adk_type: Option<String>,
}

impl FunctionCall {
    fn read(part: &Part, data: &RawValue) -> Option<Self> {
        let marks = part.metadata.as_deref().and_then(|json| serde_json::from_str(json.get()).ok());
        let marks: PartMarks = marks.unwrap_or_default();
        let call: Self = serde_json::from_str(data.get()).ok()?;
        (marks.adk_type.as_deref() == Some("function_call") || call.name == CONFIRMATION).then_some(call)
    }

    fn wanted(self, data: &RawValue) -> InputItem {
        let is_confirmation = self.name == CONFIRMATION;
        let shown = serde_json::from_str::<Value>(data.get()).unwrap_or_default();
        let shown = serde_json::to_string_pretty(&shown).unwrap_or_default();
        let hint = self.args.pointer("/toolConfirmation/hint").and_then(Value::as_str).unwrap_or_default();
        let message = format!("{hint}\n{shown}").trim_start().to_owned();
        InputItem {
            key: String::new(),
            message: Some(message),
            schema: RawValue::from_string(CONFIRMED.to_owned()).ok().filter(|_| is_confirmation),
            form: AnswerForm::FunctionResponse { id: self.id, name: self.name },
        }
    }
}

#[derive(Default, Deserialize)]
struct StrandsInterrupts {
    #[serde(default)]
    interrupts: Vec<StrandsInterrupt>,
}

/// An interrupt of Strands.
#[derive(Deserialize)]
struct StrandsInterrupt {
    #[serde(rename = "interruptId")]
    id: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    reason: Value,
}

impl StrandsInterrupt {
    fn wanted(self) -> InputItem {
        let reason = match &self.reason {
            Value::Null => String::new(),
            Value::String(text) => text.clone(),
            Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
                serde_json::to_string_pretty(&self.reason).unwrap_or_default()
            }
        };
        let message = format!("{}: {reason}", self.name);
        let message = message.trim_matches([':', ' ']).to_owned();
        InputItem {
            key: String::new(),
            message: Some(message),
            schema: None,
            form: AnswerForm::InterruptResponse { id: self.id },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Dialect, StreamResponse, read_task};
    use super::*;

    fn task(json: &str) -> Task {
        Dialect::V1.task(format!(r#"{{"result":{{"task":{json}}}}}"#).as_bytes()).unwrap()
    }

    fn shown(rest: &str) -> Option<Fingerprint> {
        fingerprint(&task(&format!(r#"{{"id":"t",{rest}}}"#)))
    }

    fn asked(message: &str) -> InputHints {
        let status = format!(r#"{{"state":"TASK_STATE_INPUT_REQUIRED","message":{message}}}"#);
        wording(&task(&format!(r#"{{"id":"t","status":{status}}}"#)).status.message.unwrap())
    }

    #[test]
    fn only_an_interrupted_task_has_an_open_question() {
        for (state, open) in
            [("INPUT_REQUIRED", true), ("AUTH_REQUIRED", true), ("WORKING", false), ("COMPLETED", false)]
        {
            let status = format!(r#""status":{{"state":"TASK_STATE_{state}"}}"#);
            assert_eq!(shown(&status).is_some(), open, "{state}");
        }
    }

    #[test]
    fn question_is_the_same_however_it_was_read() {
        let said = r#"{"role":"agent","messageId":"1","parts":[{"kind":"text","text":"When?"},{"kind":"data","data":{"b":[1],"a":2}}]}"#;
        let again = r#"{"messageId":"2","parts":[{"text":"When?"},{"data":{"a": 2, "b": [1]}}],"role":"ROLE_AGENT","metadata":{"at":3}}"#;
        let event = format!(
            r#"{{"result":{{"kind":"status-update","taskId":"t","status":{{"state":"input-required","timestamp":"1","message":{said}}}}}}}"#
        );
        let StreamResponse::Status { status, .. } = Dialect::V0_3.event(event.as_bytes()).unwrap() else {
            panic!()
        };
        let streamed = Content::of(status.state, status.message.as_deref(), None);
        let got = shown(&format!(
            r#""status":{{"message":{again},"timestamp":"2","state":"TASK_STATE_INPUT_REQUIRED"}}"#
        ));
        assert_eq!(streamed.map(|content| content.fingerprint("t")), got);
    }

    #[test]
    fn another_question_is_another_one() {
        let made = |parts: &str| format!(r#"}},"artifacts":[{{"artifactId":"1","parts":[{parts}]}}"#);
        let all: Vec<Fingerprint> = [
            r#","message":{"parts":[{"text":"a"}]}}"#.to_owned(),
            r#","message":{"parts":[{"text":"b"}]}}"#.to_owned(),
            r#","message":{"parts":[{"url":"a"}]}}"#.to_owned(),
            r#","message":{"parts":[{"text":"a"},{"text":""}]}}"#.to_owned(),
            r#","message":{"parts":[{"text":"a"}],"metadata":{"mcp.inputKey":"k"}}}"#.to_owned(),
            "}".to_owned(),
            made(r#"{"text":"a"}"#) + "]",
            made(r#"{"data":{"value":"a"}}"#) + "]",
            made(r#"{"text":"a"}"#) + r#",{"artifactId":"2","parts":[{"text":"b"}]}]"#,
        ]
        .iter()
        .map(|rest| shown(&format!(r#""status":{{"state":"TASK_STATE_INPUT_REQUIRED"{rest}"#)).unwrap())
        .collect();
        let different: std::collections::BTreeSet<_> = all.iter().collect();
        assert_eq!(different.len(), all.len());
        let bare = r#""status":{"state":"TASK_STATE_INPUT_REQUIRED"}"#;
        assert_ne!(shown(bare), fingerprint(&task(&format!(r#"{{"id":"u",{bare}}}"#))));
        assert_ne!(shown(bare), shown(r#""status":{"state":"TASK_STATE_AUTH_REQUIRED"}"#));
    }

    #[test]
    fn artifact_that_asks_is_the_same_whatever_its_id_and_its_pieces() {
        let made = |artifact: &str| {
            shown(&format!(r#""status":{{"state":"TASK_STATE_INPUT_REQUIRED"}},"artifacts":[{artifact}]"#))
        };
        let whole = made(r#"{"artifactId":"1","parts":[{"text":"Go on?"},{"data":{"a":1,"b":2}}]}"#);
        let pieces =
            made(r#"{"artifactId":"2","parts":[{"text":"Go "},{"text":"on?"},{"data":{"b":2,"a":1}}]}"#);
        assert_eq!(whole, pieces);
        let large = |end: &str| {
            let text = "ä".repeat(LONGEST_ARTIFACT);
            made(&format!(r#"{{"artifactId":"1","parts":[{{"text":"x{text}{end}"}},{{"data":{{}}}}]}}"#))
        };
        assert_eq!(large("a"), large("b"));
    }

    #[test]
    fn rounds_tell_same_words_apart() {
        let first = shown(r#""status":{"state":"TASK_STATE_INPUT_REQUIRED"}"#).unwrap();
        let second = first.in_round(1);
        assert_eq!((first.round(), second.round(), second.in_round(0)), (0, 1, first));
        assert!(first != second && first.asks_same(second));
        let other = shown(r#""status":{"state":"TASK_STATE_AUTH_REQUIRED"}"#).unwrap();
        assert!(!other.asks_same(first));
    }

    #[test]
    fn a_fingerprint_survives_as_bytes_and_reads_as_hex() {
        let print = Fingerprint::from_bytes([0xAB; 16]);
        assert_eq!(Fingerprint::from_bytes(print.to_bytes()), print);
        assert_eq!(print.hex(), "ab".repeat(16));
    }

    #[test]
    fn an_agent_says_how_to_ask_in_metadata_or_in_data() {
        let form = r#"{"type":"object","properties":{"a":{"type":"string"}}}"#;
        for (message, key, schema, inputs) in [
            (
                format!(r#"{{"metadata":{{"mcp.inputKey":"k","mcp.requestedSchema":{form}}}}}"#),
                Some("k"),
                true,
                0,
            ),
            (
                format!(r#"{{"parts":[{{"data":{{"mcp.inputKey":"k","mcp.requestedSchema":{form}}}}}]}}"#),
                Some("k"),
                true,
                0,
            ),
            (
                format!(r#"{{"parts":[{{"data":{{"inputKey":"k","requestedSchema":{form}}}}}]}}"#),
                Some("k"),
                true,
                0,
            ),
            (format!(r#"{{"parts":[{{"text":"a"}},{{"data":{form}}}]}}"#), None, true, 0),
            (format!(r#"{{"metadata":{{"inputKey":"k","requestedSchema":{form}}}}}"#), None, false, 0),
            (
                r#"{"metadata":{"mcp.inputKey":7,"mcp.requestedSchema":[],"mcp.inputRequests":"x"}}"#.into(),
                None,
                false,
                0,
            ),
            (
                r#"{"metadata":{"mcp.inputKey":""},"parts":[{"data":[1]},{"data":{"type":"object"}}]}"#
                    .into(),
                None,
                false,
                0,
            ),
            (
                format!(
                    r#"{{"metadata":{{"mcp.inputRequests":{{"a":{{"message":"A?","requestedSchema":{form}}},"b":{{}},"c":7,"":{{}}}}}}}}"#
                ),
                None,
                false,
                2,
            ),
        ] {
            let wording = asked(&message);
            assert_eq!(wording.key.as_deref(), key, "{message}");
            assert_eq!(wording.schema.is_some(), schema, "{message}");
            assert_eq!(wording.inputs.len(), inputs, "{message}");
        }
    }

    #[test]
    fn input_requests_are_bounded() {
        let many: Vec<String> = (0..100).map(|n| format!(r#""k{n}":{{}}"#)).collect();
        let wording = asked(&format!(r#"{{"metadata":{{"mcp.inputRequests":{{{}}}}}}}"#, many.join(",")));
        assert_eq!(wording.inputs.len(), MAX_INPUTS);
        let long = "x".repeat(LONGEST_SCHEMA);
        let wording = asked(&format!(
            r#"{{"metadata":{{"mcp.inputKey":"{long}","mcp.requestedSchema":{{"title":"{long}"}}}}}}"#
        ));
        assert!(wording.key.is_none() && wording.schema.is_none());
    }

    fn wanted(parts: &str) -> Vec<InputItem> {
        let task =
            format!(r#"{{"id":"t","status":{{"state":"input-required","message":{{"parts":{parts}}}}}}}"#);
        framework_inputs(&read_task(task.as_bytes()).unwrap().status.message.unwrap())
    }

    fn answered(form: &AnswerForm, answer: &str) -> (Value, Option<Value>) {
        let part = form.part(&RawValue::from_string(answer.to_owned()).unwrap()).unwrap();
        let PartBody::Data(data) = &part.body else { panic!("{part:?}") };
        let read = |json: &RawValue| serde_json::from_str(json.get()).unwrap();
        (read(data), part.metadata.as_deref().map(read))
    }

    #[test]
    fn confirmation_takes_a_function_response() {
        let call =
            r#"{"id":"c1","name":"adk_request_confirmation","args":{"toolConfirmation":{"hint":"Pay 5?"}}}"#;
        let asked = wanted(&format!(r#"[{{"data":{call},"metadata":{{"adk_type":"function_call"}}}}]"#));
        let [one] = asked.as_slice() else { panic!("{asked:?}") };
        assert!(one.message.as_deref().unwrap().starts_with("Pay 5?\n{") && one.schema.is_some());
        assert!(one.form.is_confirmation());
        let (data, metadata) = answered(&one.form, r#"{"confirmed":true}"#);
        let response = json!({ "confirmed": true });
        assert_eq!(data, json!({ "id": "c1", "name": "adk_request_confirmation", "response": response }));
        assert_eq!(metadata, Some(json!({ "adk_type": "function_response" })));
    }

    #[test]
    fn text_to_a_function_is_its_result() {
        let call = r#"{"id":"c1","name":"ask_boss","args":{"sum":5}}"#;
        let asked = wanted(&format!(r#"[{{"data":{call},"metadata":{{"adk_type":"function_call"}}}}]"#));
        assert!(asked[0].schema.is_none() && !asked[0].form.is_confirmation());
        let (data, _) = answered(&asked[0].form, r#""fine""#);
        assert_eq!(data["response"], json!({ "result": "fine" }));
        assert!(wanted(&format!(r#"[{{"data":{call}}}]"#)).is_empty(), "data of the agent's own");
    }

    #[test]
    fn each_interrupt_takes_a_response() {
        let asked = wanted(
            r#"[{"text":"x"},{"data":{"interrupts":[{"interruptId":"i1","name":"pay","reason":"5 EUR"},{"interruptId":"i2","name":"go","reason":null}]}}]"#,
        );
        let messages: Vec<_> = asked.iter().map(|one| one.message.as_deref().unwrap()).collect();
        assert_eq!(messages, ["pay: 5 EUR", "go"]);
        let (data, metadata) = answered(&asked[1].form, r#""y""#);
        assert_eq!(data, json!({ "interruptResponse": { "interruptId": "i2", "response": "y" } }));
        assert_eq!(metadata, None);
    }
}
