//! A result: a task, a message or an update, by itself or in a wrapper that names it; and the
//! messages, the status and the artifacts in it.
//!
//! See also `part`, which reads the parts.

use std::fmt;
use std::mem::take;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::super::error::AgentError;
use super::super::lenient::{
    FromWord, InPlaceSeed, LenientBool, LenientInteger, LenientObject, LenientWord, ReadInPlace, ReadItem,
    ReadMembers, absent, add_item, read_into_fields, read_object_item,
};
use super::super::model::{
    Artifact, Message, Part, Role, StreamResponse, Task, TaskHistory, TaskState, TaskStatus,
};
use super::ErrorIn;
use crate::jsonrpc::read_json_seed;

/// All members of a task, a message or an event in any version, each read where it is.
#[derive(Default)]
pub(crate) struct DecodedBody {
    /// The kind that the wrapper names.
    wrapped: Option<DecodedKind>,
    /// True if any member was read.
    has_members: bool,
    kind: LenientWord<DecodedKind>,
    id: Option<String>,
    task_id: Option<String>,
    context_id: Option<String>,
    /// Name of the conversation in 0.1.
    session_id: Option<String>,
    status: Option<TaskStatus>,
    artifacts: Vec<Artifact>,
    history: TaskHistory,
    artifact: Option<ArtifactIn>,
    append: LenientBool,
    last_chunk: LenientBool,
    last: LenientBool,
    message_id: Option<String>,
    role: LenientWord<Role>,
    parts: Option<Vec<Part>>,
    reference_task_ids: Vec<String>,
    extensions: Vec<String>,
    metadata: Option<Box<RawValue>>,
    /// The error of HTTP+JSON, in place of a result.
    error: LenientObject<Box<ErrorIn>>,
}

/// The kind of a body.
#[derive(Clone, Copy)]
enum DecodedKind {
    Task,
    Message,
    Status,
    Artifact,
    Unknown,
}

impl FromWord for DecodedKind {
    fn from_word(word: &str) -> Option<Self> {
        match word {
            "" => None,
            "task" => Some(Self::Task),
            "message" => Some(Self::Message),
            "status-update" => Some(Self::Status),
            "artifact-update" => Some(Self::Artifact),
            _ => Some(Self::Unknown),
        }
    }
}

impl DecodedBody {
    /// Takes the event out. A body has some 500 bytes, so it is not moved.
    pub(crate) fn take_event(&mut self) -> Result<StreamResponse, AgentError> {
        let kind = self.wrapped.unwrap_or_else(|| self.classify());
        self.take_kind(kind)
    }

    /// Returns a reader of JSON into this body; it yields true if the JSON was an object.
    pub(super) fn fill(&mut self) -> BodyVisitor<'_> {
        BodyVisitor { body: self, wrapped: None }
    }

    /// Returns the error, if the body is one. A body of a known kind, or with a kind or a task id,
    /// is that, regardless of its other members. An id alone is no evidence: JSON-RPC errors have
    /// one.
    pub(super) fn refusal(&mut self) -> Option<Box<ErrorIn>> {
        let is_named = self.kind.0.is_some() || self.task_id.is_some();
        let is_known = self.wrapped.is_some() || !matches!(self.classify(), DecodedKind::Unknown);
        self.error.0.take().filter(|_| !is_named && !is_known)
    }

    /// Returns true for a task without a wrapper: it has an id and a status.
    fn is_bare_task(&self) -> bool {
        self.wrapped.is_none() && self.id.is_some() && self.status.is_some()
    }

    fn classify(&self) -> DecodedKind {
        if let Some(kind) = self.kind.0 {
            kind
        } else if self.artifact.is_some() {
            DecodedKind::Artifact
        } else if self.parts.is_some() && self.role.0.is_some() {
            DecodedKind::Message
        } else if self.status.is_some() && self.last.0.is_some() {
            // Without `kind`, as in 0.1: only an update can be marked as the last.
            DecodedKind::Status
        } else if self.status.is_some() && self.id.is_some() {
            DecodedKind::Task
        } else if self.status.is_some() && self.task_id.is_some() {
            DecodedKind::Status
        } else {
            DecodedKind::Unknown
        }
    }

    fn take_kind(&mut self, kind: DecodedKind) -> Result<StreamResponse, AgentError> {
        match kind {
            DecodedKind::Task => self.take_task().map(StreamResponse::Task),
            DecodedKind::Message => Ok(StreamResponse::Message(self.take_message())),
            DecodedKind::Status => Ok(StreamResponse::Status {
                task_id: self.take_task_id(),
                context_id: self.take_context_id(),
                status: self
                    .status
                    .take()
                    .ok_or_else(|| AgentError::invalid_response("a status update without status"))?,
                last: self.last.is_set(),
                metadata: self.metadata.take(),
            }),
            DecodedKind::Artifact => {
                let piece = self
                    .artifact
                    .take()
                    .ok_or_else(|| AgentError::invalid_response("an artifact update without artifact"))?;
                Ok(StreamResponse::Artifact {
                    append: self.append.is_set() || piece.append.is_set(),
                    last_chunk: self.last_chunk.is_set() || piece.last_chunk.is_set(),
                    task_id: self.take_task_id(),
                    context_id: self.take_context_id(),
                    artifact: piece.into(),
                    metadata: self.metadata.take(),
                })
            }
            DecodedKind::Unknown => Ok(StreamResponse::Unknown),
        }
    }

    fn take_task_id(&mut self) -> Option<String> {
        self.task_id.take().or_else(|| self.id.take())
    }

    fn take_context_id(&mut self) -> Option<String> {
        self.context_id.take().or_else(|| self.session_id.take())
    }

    fn take_task(&mut self) -> Result<Task, AgentError> {
        Ok(Task {
            id: self.id.take().ok_or_else(|| AgentError::invalid_response("a task without id"))?,
            context_id: self.take_context_id(),
            status: self
                .status
                .take()
                .ok_or_else(|| AgentError::invalid_response("a task without status"))?,
            artifacts: take(&mut self.artifacts),
            history: take(&mut self.history),
            metadata: self.metadata.take(),
        })
    }

    fn take_message(&mut self) -> Message {
        Message {
            message_id: self.message_id.take(),
            role: self.role.0.unwrap_or_default(),
            parts: self.parts.take().unwrap_or_default(),
            task_id: self.task_id.take(),
            context_id: self.context_id.take(),
            reference_task_ids: take(&mut self.reference_task_ids),
            extensions: take(&mut self.extensions),
            metadata: self.metadata.take(),
        }
    }
}

/// Visitor that reads members into a body, through a wrapper if there is one.
pub(super) struct BodyVisitor<'a> {
    body: &'a mut DecodedBody,
    /// The kind that the wrapper names, inside of one.
    wrapped: Option<DecodedKind>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(field_identifier, rename_all = "camelCase")]
enum BodyMember {
    Task,
    Message,
    StatusUpdate,
    ArtifactUpdate,
    Kind,
    Id,
    TaskId,
    ContextId,
    SessionId,
    Status,
    Artifacts,
    History,
    Artifact,
    Append,
    LastChunk,
    Final,
    MessageId,
    Role,
    Parts,
    Content,
    ReferenceTaskIds,
    Extensions,
    Metadata,
    Error,
    #[serde(other)]
    Other,
}

impl BodyMember {
    /// Returns the kind of content in a wrapper with this name.
    fn wraps(self) -> Option<DecodedKind> {
        match self {
            Self::Task => Some(DecodedKind::Task),
            Self::Message => Some(DecodedKind::Message),
            Self::StatusUpdate => Some(DecodedKind::Status),
            Self::ArtifactUpdate => Some(DecodedKind::Artifact),
            _ => None,
        }
    }
}

impl<'de> DeserializeSeed<'de> for BodyVisitor<'_> {
    type Value = bool;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for BodyVisitor<'_> {
    type Value = bool;

    absent!(bool, text, number, list);

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<bool, A::Error> {
        if self.wrapped.is_some() {
            if self.body.has_members {
                *self.body = DecodedBody::default();
            }
            self.body.wrapped = self.wrapped;
        }
        // Some agents of 0.1 put the user's message into a task as the member `message`.
        let mut message: Option<Box<DecodedBody>> = None;
        while let Some(name) = object.next_key::<BodyMember>()? {
            match name.wraps() {
                Some(DecodedKind::Message) if self.body.wrapped.is_none() && message.is_none() => {
                    let mut inner = Box::<DecodedBody>::default();
                    object.next_value_seed(BodyVisitor {
                        body: &mut inner,
                        wrapped: Some(DecodedKind::Message),
                    })?;
                    message = inner.wrapped.is_some().then_some(inner);
                }
                Some(kind) if self.body.wrapped.is_none() && message.is_none() => {
                    object.next_value_seed(BodyVisitor { body: self.body, wrapped: Some(kind) })?;
                }
                // Only the content of a wrapper counts, not members beside it or a second wrapper
                // in it.
                None if self.wrapped.is_some() || self.body.wrapped.is_none() => {
                    self.body.put(name, &mut object)?
                }
                _ => object.next_value::<IgnoredAny>().map(drop)?,
            }
        }
        if let Some(message) = message.filter(|_| !self.body.is_bare_task()) {
            *self.body = *message;
        }
        Ok(true)
    }
}

impl DecodedBody {
    fn put<'de, A: MapAccess<'de>>(&mut self, name: BodyMember, object: &mut A) -> Result<(), A::Error> {
        self.has_members = true;
        match name {
            BodyMember::Kind => object.next_value_seed(InPlaceSeed(&mut self.kind)),
            BodyMember::Id => object.next_value_seed(InPlaceSeed(&mut self.id)),
            BodyMember::TaskId => object.next_value_seed(InPlaceSeed(&mut self.task_id)),
            BodyMember::ContextId => object.next_value_seed(InPlaceSeed(&mut self.context_id)),
            BodyMember::SessionId => object.next_value_seed(InPlaceSeed(&mut self.session_id)),
            BodyMember::Status => object.next_value_seed(InPlaceSeed(&mut self.status)),
            BodyMember::Artifacts => object.next_value_seed(InPlaceSeed(&mut self.artifacts)),
            BodyMember::History => object.next_value_seed(InPlaceSeed(&mut self.history)),
            BodyMember::Artifact => object.next_value_seed(InPlaceSeed(&mut self.artifact)),
            BodyMember::Append => object.next_value_seed(InPlaceSeed(&mut self.append)),
            BodyMember::LastChunk => object.next_value_seed(InPlaceSeed(&mut self.last_chunk)),
            BodyMember::Final => object.next_value_seed(InPlaceSeed(&mut self.last)),
            BodyMember::MessageId => object.next_value_seed(InPlaceSeed(&mut self.message_id)),
            BodyMember::Role => object.next_value_seed(InPlaceSeed(&mut self.role)),
            BodyMember::Parts => object.next_value_seed(InPlaceSeed(&mut self.parts)),
            // The parts of a message in HTTP+JSON of 0.3.
            BodyMember::Content if self.parts.is_none() => {
                object.next_value_seed(InPlaceSeed(&mut self.parts))
            }
            BodyMember::ReferenceTaskIds => object.next_value_seed(InPlaceSeed(&mut self.reference_task_ids)),
            BodyMember::Extensions => object.next_value_seed(InPlaceSeed(&mut self.extensions)),
            BodyMember::Metadata => object.next_value_seed(InPlaceSeed(&mut self.metadata)),
            BodyMember::Error => object.next_value().map(|error| self.error = error),
            BodyMember::Task
            | BodyMember::Message
            | BodyMember::StatusUpdate
            | BodyMember::ArtifactUpdate
            | BodyMember::Content
            | BodyMember::Other => object.next_value::<IgnoredAny>().map(drop),
        }
    }
}

read_into_fields!(Message {
    message_id = "messageId",
    role = "role",
    parts = "parts",
    task_id = "taskId",
    context_id = "contextId",
    reference_task_ids = "referenceTaskIds",
    extensions = "extensions",
    metadata = "metadata";
    // The parts in HTTP+JSON of 0.3.
    parts or content = "content"
});

impl<'de> ReadItem<'de> for Message {
    fn read_item<D: Deserializer<'de>>(deserializer: D, items: &mut Vec<Self>) -> Result<(), D::Error> {
        read_object_item(deserializer, items)
    }
}

impl FromWord for Role {
    fn from_word(word: &str) -> Option<Self> {
        // A word of any other kind is that of an agent.
        if word.is_empty() { None } else { Some(known_role(word).unwrap_or_default()) }
    }
}

/// Returns the role that a word of any version names.
fn known_role(word: &str) -> Option<Role> {
    let is = |old: &str, new: &str| word.eq_ignore_ascii_case(old) || word.eq_ignore_ascii_case(new);
    match word {
        _ if is("agent", "ROLE_AGENT") => Some(Role::Agent),
        _ if is("user", "ROLE_USER") => Some(Role::User),
        _ => None,
    }
}

impl<'de> ReadInPlace<'de> for Role {
    fn read_in_place<D: Deserializer<'de>>(&mut self, deserializer: D) -> Result<(), D::Error> {
        *self = LenientWord::deserialize(deserializer)?.0.unwrap_or_default();
        Ok(())
    }
}

/// The members that messages of clients must have, and those of agents need not.
#[derive(Default)]
struct RequiredMembers {
    role: Option<String>,
    /// One for each.
    parts: Vec<()>,
}

read_into_fields!(RequiredMembers { role = "role", parts = "parts" });

/// Reads a client's message. Messages of agents are read leniently, clients get an error.
///
/// # Errors
///
/// The member that is missing: the message itself, its role, its parts, or its id if that is needed.
pub(in super::super) fn client_message(
    json: Option<&RawValue>,
    needs_id: bool,
) -> Result<Message, &'static str> {
    let (mut message, mut sent): (Option<Message>, Option<RequiredMembers>) = (None, None);
    if let Some(json) = json {
        let read = read_json_seed(json.get(), InPlaceSeed(&mut message));
        read.and_then(|()| read_json_seed(json.get(), InPlaceSeed(&mut sent)))
            .map_err(|_| "not as expected")?;
    }
    let message = message.ok_or("message is missing")?;
    let RequiredMembers { role, parts } = sent.unwrap_or_default();
    match () {
        () if role.as_deref().and_then(known_role).is_none() => Err("message.role is missing"),
        () if parts.is_empty() || message.parts.is_empty() => Err("message.parts is missing"),
        () if needs_id && message.message_id.is_none() => Err("message.messageId is missing"),
        () => Ok(message),
    }
}

read_into_fields!(TaskStatus { state = "state", message = "message", timestamp = "timestamp" });

impl FromWord for TaskState {
    fn from_word(word: &str) -> Option<Self> {
        Some(Self::from_wire(word))
    }
}

impl<'de> ReadInPlace<'de> for TaskState {
    fn read_in_place<D: Deserializer<'de>>(&mut self, deserializer: D) -> Result<(), D::Error> {
        *self = LenientWord::deserialize(deserializer)?.0.unwrap_or_default();
        Ok(())
    }
}

/// An artifact, or a piece of one.
#[derive(Default)]
struct ArtifactIn {
    artifact_id: Option<String>,
    name: Option<String>,
    description: Option<String>,
    parts: Vec<Part>,
    extensions: Vec<String>,
    /// 0.1 has this member and those below here.
    index: LenientInteger,
    append: LenientBool,
    last_chunk: LenientBool,
    metadata: Option<Box<RawValue>>,
}

read_into_fields!(ArtifactIn {
    artifact_id = "artifactId",
    name = "name",
    description = "description",
    parts = "parts",
    extensions = "extensions",
    index = "index",
    append = "append",
    last_chunk = "lastChunk",
    metadata = "metadata",
});

impl<'de> ReadItem<'de> for Artifact {
    fn read_item<D: Deserializer<'de>>(deserializer: D, items: &mut Vec<Self>) -> Result<(), D::Error> {
        let mut item: Option<ArtifactIn> = None;
        item.read_in_place(deserializer)?;
        if let Some(item) = item {
            add_item(items, item.into());
        }
        Ok(())
    }
}

impl From<ArtifactIn> for Artifact {
    fn from(artifact: ArtifactIn) -> Self {
        let ArtifactIn { artifact_id, name, description, parts, extensions, index, metadata, .. } = artifact;
        Self {
            // 0.1 has no ids: there the index is the key, or else the name; the index is 0 by
            // default.
            artifact_id: artifact_id
                .or_else(|| index.0.map(|index| index.to_string()))
                .or_else(|| name.clone())
                .unwrap_or_else(|| "0".to_owned()),
            name,
            description,
            parts,
            extensions,
            metadata,
        }
    }
}

impl<'de> ReadInPlace<'de> for TaskHistory {
    fn read_in_place<D: Deserializer<'de>>(&mut self, deserializer: D) -> Result<(), D::Error> {
        *self = Self::new(Deserialize::deserialize(deserializer)?);
        Ok(())
    }
}

impl TaskHistory {
    /// Returns the messages, oldest first. Parses all of them on each call.
    pub fn messages(&self) -> Vec<Message> {
        let mut messages = Vec::new();
        let read = self.raw().map(|raw| read_json_seed(raw.get(), InPlaceSeed(&mut messages)));
        if let Some(Err(_)) = read { Vec::new() } else { messages }
    }

    /// Returns the agent's last message, if there is one. Parses all messages on each call.
    pub(crate) fn last_agent_message(&self) -> Option<Message> {
        self.messages().into_iter().rfind(|message| message.role == Role::Agent)
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::{Dialect, Message};
    use super::*;

    fn read(result: &str) -> StreamResponse {
        let answer = format!(r#"{{"jsonrpc":"2.0","id":1,"result":{result}}}"#);
        Dialect::V0_1.event(answer.as_bytes()).unwrap()
    }

    /// HTTP+JSON of 0.3 has the parts as `content`.
    #[test]
    fn content_is_read_without_parts_only() {
        for (members, text) in [
            (r#""parts":[{"text":"p"}],"content":[{"text":"c"}]"#, Some("p")),
            (r#""content":[{"text":"c"}],"parts":[{"text":"p"}]"#, Some("p")),
            (r#""content":[{"text":"c"}]"#, Some("c")),
            (r#""parts":[],"content":[{"text":"c"}]"#, None),
            (r#""content":[{"text":"c"}],"parts":[]"#, None),
            (r#""parts":[7,{"text":"p"},null]"#, Some("p")),
        ] {
            let first = |message: &Message| Some(message.parts.first()?.body.text()?.to_str().into_owned());
            let message = format!(r#"{{"role":"agent",{members}}}"#);
            let StreamResponse::Message(bare) = read(&message) else { panic!("{message}") };
            let StreamResponse::Task(task) =
                read(&format!(r#"{{"id":"t","status":{{"state":"working","message":{message}}}}}"#))
            else {
                panic!("{message}")
            };
            let of_status = task.status.message.as_deref().and_then(first);
            assert_eq!((first(&bare).as_deref(), of_status.as_deref()), (text, text), "{message}");
        }
        for members in [r#""content":[],"content":[]"#, r#""parts":[],"parts":[]"#] {
            let task = format!(r#"{{"result":{{"id":"t","status":{{"message":{{{members}}}}}}}}}"#);
            assert!(Dialect::V1.event(task.as_bytes()).is_err(), "{members}");
        }
    }

    #[test]
    fn a_later_member_replaces_the_one_before() {
        let task = read(r#"{"id":"t","status":{"state":"working"},"contextId":"c","contextId":7}"#);
        assert!(matches!(task, StreamResponse::Task(task) if task.context_id.is_none()));
    }

    #[test]
    fn clients_must_send_role_and_parts() {
        for (message, missing) in [
            (r#"{"role":"user","messageId":"m","parts":[{"text":"x"}]}"#, None),
            (r#"{"role":"user","messageId":"m","content":[{"text":"x"}]}"#, Some("message.parts is missing")),
            (r#"{"role":"user","messageId":"m","parts":[1]}"#, Some("message.parts is missing")),
            (r#"{"role":"other","messageId":"m","parts":[{"text":"x"}]}"#, Some("message.role is missing")),
            (
                r#"{"role":"user","messageId":"","parts":[{"text":"x"}]}"#,
                Some("message.messageId is missing"),
            ),
            ("7", Some("message is missing")),
        ] {
            let raw = RawValue::from_string(message.to_owned()).unwrap();
            assert_eq!(client_message(Some(&raw), true).err(), missing, "{message}");
        }
        assert_eq!(client_message(None, true).err(), Some("message is missing"));
    }

    #[test]
    fn raw_values_are_read_up_to_the_nesting_of_a_response() {
        for (depth, is_read) in [(128, true), (129, false)] {
            // Two levels are those of the response and the task.
            let nested = format!("{}{}", "{\"a\":".repeat(depth - 3) + "{", "}".repeat(depth - 2));
            let result = format!(r#"{{"id":"t","status":{{"state":"working"}},"metadata":{nested}}}"#);
            let response = format!(r#"{{"jsonrpc":"2.0","id":1,"result":{result}}}"#);
            let read = Dialect::V1.task(response.as_bytes());
            assert_eq!(read.is_ok_and(|task| task.metadata.is_some()), is_read, "{depth}");
        }
    }

    /// python-a2a puts the user's message into a task.
    #[test]
    fn task_with_message_member_is_a_task() {
        let message = r#""message":{"role":"user","parts":[{"type":"text","text":"x"}]}"#;
        let task = r#""id":"t","sessionId":"s","status":{"state":"completed"}"#;
        let sorted = r#"{"artifacts":[{"index":0,"name":"answer","parts":[{"text":"21","type":"text"}]}],"id":"t","message":{"parts":[{"text":"x","type":"text"}],"role":"user"},"sessionId":"s","status":{"state":"completed"}}"#;
        for json in [format!("{{{task},{message}}}"), format!("{{{message},{task}}}"), sorted.to_owned()] {
            assert!(matches!(read(&json), StreamResponse::Task(task) if task.id == "t"), "{json}");
        }
        for json in [format!("{{{message}}}"), format!(r#"{{{message},"id":"t"}}"#)] {
            assert!(
                matches!(read(&json), StreamResponse::Message(Message { parts, .. }) if parts.len() == 1),
                "{json}"
            );
        }
    }
}
