//! Encodes tasks, messages, artifacts and parts in each version, straight from the canonical model.
//!
//! A value that a version lacks is left out or replaced by the nearest one: 0.1 has neither
//! `rejected` nor `auth-required`, and its messages and artifacts have no ids. Two features of 1.0
//! have no member before it and travel in a part's metadata: `data` that is not an object is wrapped
//! as `{"value":…}` and marked `data_part_compat`, as the official SDK does; the name and media type
//! of text and data. `decode` restores both. A task in 1.0 can be decoded again without loss, so the
//! same form persists it. Requests are in `request`, those of HTTP+JSON of 0.3 in `proto_json`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};
use serde_json::value::RawValue;

use super::dialect::Dialect;
use super::lenient::RawObject;
use super::model::{Artifact, Message, Part, PartBody, Role, Task, TaskState, TaskStatus};
use crate::jsonrpc::{JsonText, write_json};

/// Returns the word for a state.
fn state_word(state: TaskState, dialect: Dialect) -> &'static str {
    match (dialect, state) {
        (Dialect::V0_1, TaskState::Rejected) => TaskState::Failed.as_str(),
        (Dialect::V0_1, TaskState::AuthRequired) => TaskState::InputRequired.as_str(),
        (Dialect::V0_1 | Dialect::V0_3, state) => state.as_str(),
        (Dialect::V1, TaskState::Submitted) => "TASK_STATE_SUBMITTED",
        (Dialect::V1, TaskState::Working) => "TASK_STATE_WORKING",
        (Dialect::V1, TaskState::InputRequired) => "TASK_STATE_INPUT_REQUIRED",
        (Dialect::V1, TaskState::AuthRequired) => "TASK_STATE_AUTH_REQUIRED",
        (Dialect::V1, TaskState::Completed) => "TASK_STATE_COMPLETED",
        (Dialect::V1, TaskState::Failed) => "TASK_STATE_FAILED",
        (Dialect::V1, TaskState::Canceled) => "TASK_STATE_CANCELED",
        (Dialect::V1, TaskState::Rejected) => "TASK_STATE_REJECTED",
        (Dialect::V1, TaskState::Unknown) => "TASK_STATE_UNSPECIFIED",
    }
}

/// Returns `kind`, which only 0.2 and 0.3 have.
pub(super) fn kind(dialect: Dialect, kind: &'static str) -> Option<&'static str> {
    (dialect == Dialect::V0_3).then_some(kind)
}

/// A task.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TaskOut<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<&'static str>,
    id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    context_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    session_id: Option<&'a str>,
    status: StatusOut<'a>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    artifacts: Vec<ArtifactOut<'a>>,
    #[serde(skip_serializing_if = "HistoryOut::is_absent")]
    history: HistoryOut<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<&'a RawValue>,
}

impl<'a> TaskOut<'a> {
    pub(super) fn new(task: &'a Task, history: HistoryOut<'a>, dialect: Dialect) -> Self {
        // Readers of 0.3 require one.
        let known = task.context_id.as_deref().or((dialect == Dialect::V0_3).then_some(""));
        let (context_id, session_id) = context(known, dialect);
        let artifact = |(index, artifact)| ArtifactOut::new(artifact, index, dialect);
        Self {
            kind: kind(dialect, "task"),
            id: &task.id,
            context_id,
            session_id,
            status: StatusOut::new(&task.status, dialect),
            artifacts: task.artifacts.iter().enumerate().map(artifact).collect(),
            history,
            metadata: task.metadata.as_deref(),
        }
    }
}

/// Returns the id of the conversation under the name in this version: `contextId`, or `sessionId`.
pub(super) fn context(id: Option<&str>, dialect: Dialect) -> (Option<&str>, Option<&str>) {
    match dialect {
        Dialect::V0_1 => (None, id),
        Dialect::V0_3 | Dialect::V1 => (id, None),
    }
}

/// The messages of a task so far.
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum HistoryOut<'a> {
    /// The original text, if there is any.
    Raw(Option<&'a RawValue>),
    /// Encoded again.
    Messages(Vec<MessageOut<'a>>),
}

impl<'a> HistoryOut<'a> {
    pub(super) fn new(messages: &'a [Message], dialect: Dialect) -> Self {
        Self::Messages(messages.iter().map(|message| MessageOut::new(message, dialect)).collect())
    }

    fn is_absent(&self) -> bool {
        match self {
            Self::Raw(raw) => raw.is_none(),
            Self::Messages(messages) => messages.is_empty(),
        }
    }
}

/// A status.
#[derive(Serialize)]
pub(super) struct StatusOut<'a> {
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<MessageOut<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timestamp: Option<&'a str>,
}

impl<'a> StatusOut<'a> {
    pub(super) fn new(status: &'a TaskStatus, dialect: Dialect) -> Self {
        Self {
            state: state_word(status.state, dialect),
            message: status.message.as_ref().map(|message| MessageOut::new(message, dialect)),
            timestamp: status.timestamp.as_deref(),
        }
    }
}

/// A message.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct MessageOut<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message_id: Option<&'a str>,
    role: &'static str,
    parts: PartsOut<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    task_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    context_id: Option<&'a str>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    reference_task_ids: &'a [String],
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    extensions: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<&'a RawValue>,
}

impl<'a> MessageOut<'a> {
    pub(super) fn new(message: &'a Message, dialect: Dialect) -> Self {
        let bare = Self {
            kind: kind(dialect, "message"),
            message_id: None,
            role: match (dialect, message.role) {
                (Dialect::V0_1 | Dialect::V0_3, Role::User) => "user",
                (Dialect::V0_1 | Dialect::V0_3, Role::Agent) => "agent",
                (Dialect::V1, Role::User) => "ROLE_USER",
                (Dialect::V1, Role::Agent) => "ROLE_AGENT",
            },
            parts: PartsOut { parts: &message.parts, dialect },
            task_id: None,
            context_id: None,
            reference_task_ids: &[],
            extensions: &[],
            metadata: message.metadata.as_deref(),
        };
        let message_id = match dialect {
            // 0.1 has no other members.
            Dialect::V0_1 => return bare,
            // Readers require it.
            Dialect::V0_3 => Some(message.message_id.as_deref().unwrap_or_default()),
            Dialect::V1 => message.message_id.as_deref(),
        };
        Self {
            message_id,
            task_id: message.task_id.as_deref(),
            context_id: message.context_id.as_deref(),
            reference_task_ids: &message.reference_task_ids,
            extensions: &message.extensions,
            ..bare
        }
    }

    /// Encodes a message for a send: in versions with message ids it always has one.
    pub(super) fn for_sending(message: &'a Message, dialect: Dialect) -> Self {
        let given = Self::new(message, dialect);
        match dialect {
            Dialect::V0_1 => given,
            Dialect::V0_3 | Dialect::V1 => Self { message_id: given.message_id.or(Some("")), ..given },
        }
    }
}

/// An artifact.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ArtifactOut<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    artifact_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<&'a str>,
    parts: PartsOut<'a>,
    /// Used in 0.1 only, as the next two.
    #[serde(skip_serializing_if = "Option::is_none")]
    index: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    append: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_chunk: Option<bool>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    extensions: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<&'a RawValue>,
}

impl<'a> ArtifactOut<'a> {
    /// Encodes an artifact; `index` is its key in 0.1.
    pub(super) fn new(artifact: &'a Artifact, index: usize, dialect: Dialect) -> Self {
        let oldest = dialect == Dialect::V0_1;
        Self {
            artifact_id: (!oldest).then_some(&artifact.artifact_id),
            name: artifact.name.as_deref(),
            description: artifact.description.as_deref(),
            parts: PartsOut { parts: &artifact.parts, dialect },
            index: oldest.then_some(index),
            append: None,
            last_chunk: None,
            extensions: if oldest { &[] } else { &artifact.extensions },
            metadata: artifact.metadata.as_deref(),
        }
    }

    /// Encodes a piece of an artifact as 0.1 streams it.
    pub(super) fn part(artifact: &'a Artifact, index: usize, append: bool, last_chunk: bool) -> Self {
        let whole = Self::new(artifact, index, Dialect::V0_1);
        Self { append: Some(append), last_chunk: Some(last_chunk), ..whole }
    }
}

/// The parts of a message or an artifact.
#[derive(Clone, Copy)]
struct PartsOut<'a> {
    parts: &'a [Part],
    dialect: Dialect,
}

impl Serialize for PartsOut<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { parts, dialect } = *self;
        match dialect {
            Dialect::V0_1 => LegacyParts { parts, form: LegacyForm::Type }.serialize(serializer),
            Dialect::V0_3 => LegacyParts { parts, form: LegacyForm::Kind }.serialize(serializer),
            Dialect::V1 => EncodedParts::with_metadata(parts).serialize(serializer),
        }
    }
}

/// Encodes a task as A2A 1.0 JSON.
pub fn task_json(task: &Task) -> Vec<u8> {
    to_json(&TaskOut::new(task, HistoryOut::Raw(task.history.raw()), Dialect::V1), 128)
}

/// Encodes a value as JSON of about `capacity` bytes.
pub(super) fn to_json<T: Serialize>(value: &T, capacity: usize) -> Vec<u8> {
    let mut json = Vec::with_capacity(capacity);
    // Writing to memory does not fail, and neither does text or JSON that was read before.
    match write_json(&mut json, value) {
        Ok(()) => json,
        Err(_) => Vec::new(),
    }
}

/// The parts of a message or an artifact, encoded as A2A 1.0.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EncodedParts<'a> {
    parts: &'a [Part],
    bare: bool,
}

impl<'a> EncodedParts<'a> {
    /// Encodes the content alone, for display: agents put ids of their own into metadata.
    pub(crate) fn without_metadata(parts: &'a [Part]) -> Self {
        Self { parts, bare: true }
    }

    /// Encodes the content and all other members.
    pub(super) fn with_metadata(parts: &'a [Part]) -> Self {
        Self { parts, bare: false }
    }
}

impl Serialize for EncodedParts<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.parts.iter().map(|part| PartOut { part, bare: self.bare }))
    }
}

struct PartOut<'a> {
    part: &'a Part,
    bare: bool,
}

#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct EncodedMembers<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a JsonText>,
    #[serde(skip_serializing_if = "Option::is_none")]
    raw: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    url: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    filename: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    media_type: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<&'a RawValue>,
}

impl Serialize for PartOut<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { part, bare } = self;
        let mut members = EncodedMembers {
            filename: part.filename.as_deref(),
            media_type: part.media_type.as_deref(),
            metadata: part.metadata.as_deref().filter(|_| !bare),
            ..EncodedMembers::default()
        };
        match &part.body {
            PartBody::Text(text) => members.text = Some(text),
            PartBody::Raw(base64) => members.raw = Some(base64),
            PartBody::Url(url) => members.url = Some(url),
            PartBody::Data(json) => members.data = Some(json),
            PartBody::Unknown(part) => return part.serialize(serializer),
        }
        members.serialize(serializer)
    }
}

/// Mark of a data part with a wrapped value.
pub(crate) const WRAPPED: &str = "data_part_compat";

/// The form of parts before 1.0.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum LegacyForm {
    /// 0.1: the member `type` has the kind.
    Type,
    /// 0.2 and 0.3 by JSON-RPC: the member `kind` has it.
    Kind,
    /// 0.3 by HTTP+JSON: the kind is the name of the member, as in ProtoJSON.
    Proto,
}

impl LegacyForm {
    /// Writes the kind of a part, in the forms that have a member for it.
    fn tag<M: SerializeMap>(self, map: &mut M, kind: &str) -> Result<(), M::Error> {
        match self {
            Self::Type => map.serialize_entry("type", kind),
            Self::Kind => map.serialize_entry("kind", kind),
            Self::Proto => Ok(()),
        }
    }
}

/// The parts of a message.
pub(super) struct LegacyParts<'a> {
    pub(super) parts: &'a [Part],
    pub(super) form: LegacyForm,
}

impl Serialize for LegacyParts<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.parts.iter().map(|part| LegacyPart { part, form: self.form }))
    }
}

struct LegacyPart<'a> {
    part: &'a Part,
    form: LegacyForm,
}

impl Serialize for LegacyPart<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { part, form } = *self;
        let mut metadata = LegacyMetadata {
            given: part.metadata.as_deref(),
            wrapped: false,
            filename: None,
            media_type: None,
        };
        let mut map = serializer.serialize_map(None)?;
        match &part.body {
            PartBody::Unknown(json) => return unknown(map, json),
            PartBody::Raw(_) | PartBody::Url(_) => {
                form.tag(&mut map, "file")?;
                map.serialize_entry("file", &LegacyFile::new(part, form))?;
            }
            PartBody::Text(text) => {
                form.tag(&mut map, "text")?;
                map.serialize_entry("text", text)?;
                metadata.describe(part);
            }
            PartBody::Data(json) => {
                form.tag(&mut map, "data")?;
                metadata.wrapped = !json.get().starts_with('{');
                let data = if metadata.wrapped {
                    LegacyData::Value { value: json }
                } else {
                    LegacyData::Object(json)
                };
                match form {
                    LegacyForm::Type | LegacyForm::Kind => map.serialize_entry("data", &data)?,
                    LegacyForm::Proto => map.serialize_entry("data", &ProtoData { data })?,
                }
                metadata.describe(part);
            }
        }
        if !metadata.is_empty() {
            map.serialize_entry("metadata", &metadata)?;
        }
        map.end()
    }
}

/// Data: an object, or a value that is wrapped to be one.
#[derive(serde::Serialize)]
#[serde(untagged)]
enum LegacyData<'a> {
    Object(&'a RawValue),
    Value { value: &'a RawValue },
}

/// `DataPart` of the protobuf file.
#[derive(serde::Serialize)]
struct ProtoData<'a> {
    data: LegacyData<'a>,
}

#[derive(Default, serde::Serialize)]
#[serde(rename_all = "camelCase")]
struct LegacyFile<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mime_type: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    uri: Option<&'a str>,
    /// As the official SDKs for Python, Java and Go take it: the bytes are those of the base64 text, and so are
    /// encoded twice.
    #[serde(skip_serializing_if = "Option::is_none")]
    file_with_bytes: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    file_with_uri: Option<&'a str>,
}

impl<'a> LegacyFile<'a> {
    fn new(part: &'a Part, form: LegacyForm) -> Self {
        let file =
            Self { name: part.filename.as_deref(), mime_type: part.media_type.as_deref(), ..Self::default() };
        match (&part.body, form) {
            (PartBody::Raw(base64), LegacyForm::Proto) => {
                Self { file_with_bytes: Some(STANDARD.encode(base64)), ..file }
            }
            (PartBody::Url(uri), LegacyForm::Proto) => Self { file_with_uri: Some(uri), ..file },
            (PartBody::Raw(base64), LegacyForm::Type | LegacyForm::Kind) => {
                Self { bytes: Some(base64), ..file }
            }
            (PartBody::Url(uri), LegacyForm::Type | LegacyForm::Kind) => Self { uri: Some(uri), ..file },
            (PartBody::Text(_) | PartBody::Data(_) | PartBody::Unknown(_), _) => file,
        }
    }
}

/// Encodes the members of a part of an unknown kind.
fn unknown<M: SerializeMap>(mut map: M, json: &RawValue) -> Result<M::Ok, M::Error> {
    for (name, value) in RawObject::read(json).iter() {
        map.serialize_entry(name, value)?;
    }
    map.end()
}

/// The metadata of a part: the given one, and the members without a place of their own.
struct LegacyMetadata<'a> {
    given: Option<&'a RawValue>,
    wrapped: bool,
    filename: Option<&'a str>,
    media_type: Option<&'a str>,
}

impl<'a> LegacyMetadata<'a> {
    fn describe(&mut self, part: &'a Part) {
        self.filename = part.filename.as_deref();
        self.media_type = part.media_type.as_deref();
    }

    fn has_extra(&self) -> bool {
        self.wrapped || self.filename.is_some() || self.media_type.is_some()
    }

    fn is_empty(&self) -> bool {
        self.given.is_none() && !self.has_extra()
    }

    fn overwrites(&self, name: &str) -> bool {
        match name {
            WRAPPED => self.wrapped,
            "filename" => self.filename.is_some(),
            "mediaType" => self.media_type.is_some(),
            _ => false,
        }
    }
}

impl Serialize for LegacyMetadata<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if let (Some(given), false) = (self.given, self.has_extra()) {
            return given.serialize(serializer);
        }
        let mut map = serializer.serialize_map(None)?;
        for (name, value) in self.given.map(RawObject::read).unwrap_or_default().iter() {
            if !self.overwrites(name) {
                map.serialize_entry(name, value)?;
            }
        }
        if self.wrapped {
            map.serialize_entry(WRAPPED, &true)?;
        }
        for (name, value) in [("filename", self.filename), ("mediaType", self.media_type)] {
            if let Some(value) = value {
                map.serialize_entry(name, value)?;
            }
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::a2a::read_task;

    /// Generates parts in any dialect, odd ones included.
    fn part() -> impl Strategy<Value = Value> {
        let data = prop_oneof![
            Just(json!(null)),
            Just(json!({"b": [1, {"c": "d"}], "a": 1.5})),
            any::<i64>().prop_map(Value::from)
        ];
        prop_oneof![
            any::<String>().prop_map(|text| json!({"text": text})),
            any::<String>().prop_map(|text| json!({"kind": "text", "text": text, "metadata": {"m": 1}})),
            Just(json!({"kind": "file", "file": {"name": "n", "mimeType": "a/b", "bytes": "AAAA"}})),
            Just(json!({"url": "https://a.test/", "filename": "f", "mediaType": "a/b"})),
            data.clone().prop_map(|data| json!({"data": data})),
            data.prop_map(
                |data| json!({"kind": "data", "data": {"value": data}, "metadata": {"data_part_compat": true}})
            ),
            Just(json!({"kind": "hologram", "light": [1, 2], "metadata": {"m": 1}})),
            Just(json!({})),
            Just(json!(7)),
        ]
    }

    fn message() -> impl Strategy<Value = Value> {
        let id = prop::option::of("[a-z]{0,3}");
        (prop::collection::vec(part(), 0..4), id, prop::sample::select(vec!["user", "ROLE_AGENT"])).prop_map(
            |(parts, id, role)| {
                json!({"messageId": id, "role": role, "parts": parts, "taskId": "t", "extensions": ["urn:x"],
                       "referenceTaskIds": ["r"], "metadata": {"k": [1]}})
            },
        )
    }

    fn task() -> impl Strategy<Value = Value> {
        let states =
            ["submitted", "TASK_STATE_WORKING", "input-required", "auth-required", "completed", "odd"];
        let artifact = (prop::collection::vec(part(), 0..4), "[ab]{0,2}").prop_map(|(parts, id)| {
            json!({"artifactId": id, "name": "n", "description": "d", "extensions": ["urn:x"], "parts": parts, "metadata": {"x": 1}})
        });
        (
            any::<String>().prop_filter("ids are not empty", |id| !id.is_empty()),
            prop::sample::select(states.to_vec()),
            prop::option::of(message()),
            prop::collection::vec(artifact, 0..3),
            prop::option::of(prop::collection::vec(message(), 0..3)),
        )
            .prop_map(|(id, state, message, artifacts, history)| {
                json!({"id": id, "contextId": "c", "artifacts": artifacts, "history": history, "metadata": {"a": 1},
                       "status": {"state": state, "message": message, "timestamp": "2026-01-01T00:00:00Z"}})
            })
    }

    proptest! {
        #[test]
        fn encoded_messages_read_back(given in task()) {
            let known = read_task(given.to_string().as_bytes()).unwrap();
            let written = task_json(&known);
            let again = read_task(&written).unwrap();
            prop_assert_eq!(format!("{known:?}"), format!("{again:?}"));
            prop_assert_eq!(task_json(&again), written);
        }
    }

    #[test]
    fn a_task_is_written_as_1_0() {
        let given = r#"{"kind":"task","id":"t","contextId":"c","status":{"state":"input-required","message":{"kind":"message","role":"agent","parts":[{"kind":"text","text":"a"}]}},"artifacts":[{"artifactId":"x","parts":[{"kind":"data","data":{"n":1e400}}]}],"history":[{"role":"user"}]}"#;
        let written = String::from_utf8(task_json(&read_task(given.as_bytes()).unwrap())).unwrap();
        assert_eq!(
            written,
            r#"{"id":"t","contextId":"c","status":{"state":"TASK_STATE_INPUT_REQUIRED","message":{"role":"ROLE_AGENT","parts":[{"text":"a"}]}},"artifacts":[{"artifactId":"x","parts":[{"data":{"n":1e400}}]}],"history":[{"role":"user"}]}"#
        );
    }

    #[test]
    fn non_tasks_are_refused() {
        for json in ["", "7", "null", r#"{"id":"t"}"#, r#"{"id":"t","status":{}},"x":{"#] {
            assert!(read_task(json.as_bytes()).is_err(), "{json}");
        }
    }
}
