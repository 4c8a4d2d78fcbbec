//! What an agent asks: which question it is, and how the agent wants it put.
//!
//! The fingerprint tells the same question from the next one, whichever way it was read. How to ask stands in the metadata of
//! the status message (`mcp.inputKey`, `mcp.requestedSchema`, `mcp.inputRequests`) or in a data part of it; it is read leniently:
//! what is malformed reads as absent. Not here: how a client is asked (see `bridge::question`).

use std::collections::BTreeMap;
use std::fmt;

use serde::ser::{Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use super::answer::{AnswerForm, framework_inputs};
use super::model::{Message, Part, PartBody, State, Status};
use super::older::members;

/// Most questions that an agent may ask at once.
pub(super) const MAX_INPUTS: usize = 16;
/// Longest key of a question, in bytes.
const LONGEST_KEY: usize = 128;
/// Longest schema that is taken from an agent, in bytes.
const LONGEST_SCHEMA: usize = 64 * 1024;

/// Which question is open: the same for the same question of the same task, on every replica.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint([u8; 16]);

impl Fingerprint {
    /// The fingerprint as bytes.
    pub fn to_bytes(self) -> [u8; 16] {
        self.0
    }

    /// The fingerprint from its bytes.
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The fingerprint in 32 hexadecimal digits.
    pub fn hex(self) -> String {
        let digits = self.0.iter().flat_map(|byte| [byte >> 4, byte & 0xF]);
        digits.filter_map(|digit| char::from_digit(digit.into(), 16)).collect()
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({})", self.hex())
    }
}

/// Which question of the task is open; `None` unless the task is interrupted.
pub fn fingerprint(task_id: &str, status: &Status) -> Option<Fingerprint> {
    fingerprint_of(task_id, status.state, status.message.as_ref(), status.timestamp.as_deref())
}

/// How the open question of the task looks once its words have gone into the history. A server of the official Python SDK puts them
/// there the moment an answer comes in, and leaves state and time as they are until the agent says more. `None` for a question
/// that has no words or no time: without them it would look like the next one.
pub fn wordless(task_id: &str, status: &Status) -> Option<Fingerprint> {
    wordless_of(task_id, status.state, status.message.as_ref(), status.timestamp.as_deref())
}

/// The same for a status that is kept in pieces.
pub(crate) fn wordless_of(
    task_id: &str,
    state: State,
    message: Option<&Message>,
    timestamp: Option<&str>,
) -> Option<Fingerprint> {
    fingerprint_of(task_id, state, message.map(|_| None)?, Some(timestamp?))
}

/// The same as [`fingerprint`] for a status that is kept in pieces.
pub(crate) fn fingerprint_of(
    task_id: &str,
    state: State,
    message: Option<&Message>,
    timestamp: Option<&str>,
) -> Option<Fingerprint> {
    if !state.is_interrupted() {
        return None;
    }
    let mut hash = Sha256::new();
    // Each piece with its length: no two lists of pieces are the same bytes.
    let mut add = |piece: &str| {
        hash.update((piece.len() as u64).to_be_bytes());
        hash.update(piece);
    };
    add(task_id);
    add(state.word());
    match message.and_then(|message| message.message_id.as_deref()) {
        Some(id) => {
            add("id");
            add(id);
        }
        None => {
            add("said");
            add(timestamp.unwrap_or_default());
            for part in message.iter().flat_map(|message| &message.parts) {
                let (kind, content) = content(part);
                add(kind);
                add(&content);
            }
        }
    }
    let digest = hash.finalize();
    digest.first_chunk().copied().map(Fingerprint)
}

fn content(part: &Part) -> (&'static str, String) {
    match &part.body {
        PartBody::Text(text) => ("text", text.clone()),
        PartBody::Raw(base64) => ("raw", base64.clone()),
        PartBody::Url(url) => ("url", url.clone()),
        PartBody::Data(json) => ("data", canonical(json)),
        PartBody::Unknown(json) => ("unknown", canonical(json)),
    }
}

/// The same JSON for the same value: without white space, members sorted by name. What cannot be read stays as it is.
pub(crate) fn canonical(json: &RawValue) -> String {
    let value: Option<Value> = serde_json::from_str(json.get()).ok();
    let sorted = value.and_then(|value| serde_json::to_string(&Sorted(&value)).ok());
    sorted.unwrap_or_else(|| json.get().to_owned())
}

/// Sorts members itself: whether a tree keeps them sorted depends on what else is built into the program.
struct Sorted<'a>(&'a Value);

impl Serialize for Sorted<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::Object(members) => {
                let sorted: BTreeMap<&String, Sorted<'_>> =
                    members.iter().map(|(name, value)| (name, Sorted(value))).collect();
                serializer.collect_map(sorted)
            }
            Value::Array(items) => serializer.collect_seq(items.iter().map(Sorted)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
                self.0.serialize(serializer)
            }
        }
    }
}

/// How an agent wants its question put. Everything is optional.
#[derive(Debug, Clone, Default)]
pub struct Wording {
    /// The key under which the answer is to come.
    pub key: Option<String>,
    /// JSON Schema of the answer: an object, not judged yet.
    pub schema: Option<Box<RawValue>>,
    /// Several questions at once.
    pub inputs: Vec<Wanted>,
}

/// One of several questions.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// The key under which its answer is to come; empty if the agent names none.
    pub key: String,
    /// The question in words.
    pub message: Option<String>,
    /// JSON Schema of the answer: an object, not judged yet.
    pub schema: Option<Box<RawValue>>,
    /// The form in which the agent takes the answer.
    pub form: AnswerForm,
}

/// What a status message says about how to ask. The metadata goes before data parts, and earlier ones before later ones.
pub fn wording(message: &Message) -> Wording {
    let mut wording = Wording::default();
    if let Some(metadata) = &message.metadata {
        wording.learn(&members(metadata), false);
    }
    for part in &message.parts {
        if let PartBody::Data(data) = &part.body {
            let members = members(data);
            wording.learn(&members, true);
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

/// Returns whether data says how to ask, and is no data of the question.
pub(crate) fn is_wording(data: &RawValue) -> bool {
    let members = members(data);
    let mut wording = Wording::default();
    wording.learn(&members, true);
    is_schema(&members) || wording.schema.is_some() || wording.key.is_some() || !wording.inputs.is_empty()
}

impl Wording {
    /// Takes what is not known yet from an object; `bare`: its members need no prefix.
    fn learn(&mut self, object: &[(String, &RawValue)], bare: bool) {
        let member = |name: &str| {
            let prefixed = object.iter().find(|(known, _)| known.strip_prefix("mcp.") == Some(name));
            let found = prefixed.or_else(|| object.iter().find(|(known, _)| bare && known == name));
            found.map(|(_, value)| *value)
        };
        self.key = self.key.take().or_else(|| member("inputKey").and_then(text).filter(|key| is_key(key)));
        self.schema = self.schema.take().or_else(|| member("requestedSchema").and_then(schema));
        if self.inputs.is_empty() {
            self.inputs = member("inputRequests").map(inputs).unwrap_or_default();
        }
    }
}

fn inputs(json: &RawValue) -> Vec<Wanted> {
    let mut all: Vec<Wanted> = Vec::new();
    for (key, value) in members(json) {
        let new = is_key(&key) && all.iter().all(|known| known.key != key);
        if !new || !value.get().starts_with('{') || all.len() >= MAX_INPUTS {
            continue;
        }
        let inside = members(value);
        let member = |name: &str| inside.iter().find(|(known, _)| known == name).map(|(_, value)| *value);
        let message = member("message").and_then(text).filter(|text| !text.is_empty());
        all.push(Wanted {
            key,
            message,
            schema: member("requestedSchema").and_then(schema),
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

/// Whether an object is a JSON Schema of objects, and not just data.
fn is_schema(object: &[(String, &RawValue)]) -> bool {
    let has = |name: &str, fits: fn(&str) -> bool| {
        object.iter().any(|(known, json)| known == name && fits(json.get()))
    };
    has("type", |json| json == r#""object""#) && has("properties", |json| json.starts_with('{'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::a2a::{Dialect, Event};

    fn status(json: &str) -> Status {
        let answer = format!(r#"{{"result":{{"task":{{"id":"t","status":{json}}}}}}}"#);
        Dialect::V1.task(answer.as_bytes()).unwrap().status
    }

    fn asked(message: &str) -> Wording {
        let status = status(&format!(r#"{{"state":"TASK_STATE_INPUT_REQUIRED","message":{message}}}"#));
        wording(&status.message.unwrap())
    }

    #[test]
    fn only_an_interrupted_task_has_an_open_question() {
        for (state, open) in
            [("INPUT_REQUIRED", true), ("AUTH_REQUIRED", true), ("WORKING", false), ("COMPLETED", false)]
        {
            let status = status(&format!(r#"{{"state":"TASK_STATE_{state}"}}"#));
            assert_eq!(fingerprint("t", &status).is_some(), open, "{state}");
        }
    }

    #[test]
    fn a_question_is_the_same_however_it_was_read() {
        let said = r#"{"role":"agent","parts":[{"kind":"text","text":"When?"},{"kind":"data","data":{"b":[1],"a":2}}]}"#;
        let again = r#"{"parts":[{"text":"When?"},{"data":{"a": 2, "b": [1]}}],"role":"ROLE_AGENT"}"#;
        let event = format!(
            r#"{{"result":{{"kind":"status-update","taskId":"t","status":{{"state":"input-required","timestamp":"1","message":{said}}}}}}}"#
        );
        let Event::Status { status: streamed, .. } = Dialect::V0_3.event(event.as_bytes()).unwrap() else {
            panic!()
        };
        let got =
            status(&format!(r#"{{"message":{again},"timestamp":"1","state":"TASK_STATE_INPUT_REQUIRED"}}"#));
        assert_eq!(fingerprint("t", &streamed), fingerprint("t", &got));
    }

    #[test]
    fn another_question_is_another_one() {
        let state = r#""state":"TASK_STATE_INPUT_REQUIRED""#;
        let all: Vec<Fingerprint> = [
            r#""timestamp":"1","message":{"parts":[{"text":"a"}]}"#,
            r#""timestamp":"2","message":{"parts":[{"text":"a"}]}"#,
            r#""timestamp":"1","message":{"parts":[{"text":"b"}]}"#,
            r#""timestamp":"1","message":{"parts":[{"url":"a"}]}"#,
            r#""timestamp":"1","message":{"parts":[{"text":"a"},{"text":""}]}"#,
            r#""timestamp":"1""#,
            r#""message":{"messageId":"1","parts":[{"text":"a"}]}"#,
            r#""message":{"messageId":"2","parts":[{"text":"a"}]}"#,
        ]
        .iter()
        .map(|rest| fingerprint("t", &status(&format!("{{{state},{rest}}}"))).unwrap())
        .collect();
        let different: std::collections::BTreeSet<_> = all.iter().collect();
        assert_eq!(different.len(), all.len());
        let question = status(&format!("{{{state}}}"));
        assert_ne!(fingerprint("t", &question), fingerprint("u", &question));
    }

    #[test]
    fn a_question_without_its_words_is_known_by_its_time() {
        let state = r#""state":"TASK_STATE_INPUT_REQUIRED""#;
        let words = r#""message":{"messageId":"1","parts":[{"text":"a"}]}"#;
        let looks = |rest: &str| wordless("t", &status(&format!("{{{state}{rest}}}")));
        let taken = status(&format!(r#"{{{state},"timestamp":"1"}}"#));
        assert_eq!(looks(&format!(r#","timestamp":"1",{words}"#)), fingerprint("t", &taken));
        assert_ne!(looks(&format!(r#","timestamp":"2",{words}"#)), fingerprint("t", &taken));
        assert_eq!((looks(&format!(",{words}")), looks(r#","timestamp":"1""#)), (None, None));
        let working = format!(r#"{{"state":"TASK_STATE_WORKING","timestamp":"1",{words}}}"#);
        assert_eq!(wordless("t", &status(&working)), None);
    }

    #[test]
    fn a_message_with_an_id_is_known_by_it_alone() {
        let one = r#"{"state":"TASK_STATE_INPUT_REQUIRED","timestamp":"1","message":{"messageId":"m","parts":[{"text":"a"}]}}"#;
        let other =
            r#"{"state":"TASK_STATE_INPUT_REQUIRED","message":{"messageId":"m","parts":[{"text":"a "}]}}"#;
        assert_eq!(fingerprint("t", &status(one)), fingerprint("t", &status(other)));
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
    fn what_an_agent_says_has_bounds() {
        let many: Vec<String> = (0..100).map(|n| format!(r#""k{n}":{{}}"#)).collect();
        let wording = asked(&format!(r#"{{"metadata":{{"mcp.inputRequests":{{{}}}}}}}"#, many.join(",")));
        assert_eq!(wording.inputs.len(), MAX_INPUTS);
        let long = "x".repeat(LONGEST_SCHEMA);
        let wording = asked(&format!(
            r#"{{"metadata":{{"mcp.inputKey":"{long}","mcp.requestedSchema":{{"title":"{long}"}}}}}}"#
        ));
        assert!(wording.key.is_none() && wording.schema.is_none());
    }
}
