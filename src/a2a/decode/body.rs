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
    FromWord, LenientBool, LenientInteger, LenientList, LenientObject, LenientString, LenientWord, absent,
    object, read_into_fields,
};
use super::super::model::{
    Artifact, Message, Role, StreamResponse, Task, TaskHistory, TaskState, TaskStatus,
};
use super::ErrorIn;
use super::part::{PartIn, parts};

/// All members of a task, a message or an event in any version. The largest are boxed: the body is filled with defaults, and a member is
/// moved into it.
#[derive(Default)]
pub(crate) struct DecodedBody {
    /// The kind that the wrapper names.
    wrapped: Option<DecodedKind>,
    kind: LenientWord<DecodedKind>,
    id: LenientString,
    task_id: LenientString,
    context_id: LenientString,
    /// Name of the conversation in 0.1.
    session_id: LenientString,
    status: LenientObject<StatusIn>,
    artifacts: LenientList<ArtifactItem>,
    history: Option<Box<RawValue>>,
    artifact: LenientObject<Box<ArtifactIn>>,
    append: LenientBool,
    last_chunk: LenientBool,
    last: LenientBool,
    message_id: LenientString,
    role: LenientWord<RoleWord>,
    parts: LenientList<PartIn>,
    reference_task_ids: LenientList<LenientString>,
    extensions: LenientList<LenientString>,
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
    /// Takes the event out. A body has some 800 bytes, so it is not moved.
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
        let is_named = self.kind.0.is_some() || self.task_id.is_filled();
        let is_known = self.wrapped.is_some() || !matches!(self.classify(), DecodedKind::Unknown);
        self.error.0.take().filter(|_| !is_named && !is_known)
    }

    /// Returns true for a task without a wrapper: it has an id and a status.
    fn is_bare_task(&self) -> bool {
        self.wrapped.is_none() && self.id.is_filled() && self.status.0.is_some()
    }

    fn classify(&self) -> DecodedKind {
        if let Some(kind) = self.kind.0 {
            kind
        } else if self.artifact.0.is_some() {
            DecodedKind::Artifact
        } else if self.parts.0.is_some() && self.role.0.is_some() {
            DecodedKind::Message
        } else if self.status.0.is_some() && self.last.0.is_some() {
            // Without `kind`, as in 0.1: only an update can be marked as the last.
            DecodedKind::Status
        } else if self.status.0.is_some() && self.id.is_filled() {
            DecodedKind::Task
        } else if self.status.0.is_some() && self.task_id.is_filled() {
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
                task_id: take(&mut self.task_id).filled().or_else(|| take(&mut self.id).filled()),
                context_id: take(&mut self.context_id)
                    .filled()
                    .or_else(|| take(&mut self.session_id).filled()),
                status: status(take(&mut self.status))
                    .ok_or_else(|| AgentError::invalid_response("a status update without status"))?,
                last: self.last.is_set(),
                metadata: object(self.metadata.take()),
            }),
            DecodedKind::Artifact => Ok(StreamResponse::Artifact {
                append: self.append.is_set()
                    || self.artifact.0.as_ref().is_some_and(|piece| piece.is_appended()),
                last_chunk: self.last_chunk.is_set()
                    || self.artifact.0.as_ref().is_some_and(|piece| piece.is_last()),
                task_id: take(&mut self.task_id).filled().or_else(|| take(&mut self.id).filled()),
                context_id: take(&mut self.context_id)
                    .filled()
                    .or_else(|| take(&mut self.session_id).filled()),
                artifact: self
                    .artifact
                    .0
                    .take()
                    .map(|piece| Artifact::from(*piece))
                    .ok_or_else(|| AgentError::invalid_response("an artifact update without artifact"))?,
                metadata: object(self.metadata.take()),
            }),
            DecodedKind::Unknown => Ok(StreamResponse::Unknown),
        }
    }

    fn take_task(&mut self) -> Result<Task, AgentError> {
        Ok(Task {
            id: take(&mut self.id)
                .filled()
                .ok_or_else(|| AgentError::invalid_response("a task without id"))?,
            context_id: take(&mut self.context_id).filled().or_else(|| take(&mut self.session_id).filled()),
            status: status(take(&mut self.status))
                .ok_or_else(|| AgentError::invalid_response("a task without status"))?,
            artifacts: take(&mut self.artifacts)
                .items()
                .filter_map(|ArtifactItem(artifact)| artifact)
                .collect(),
            history: TaskHistory::new(self.history.take()),
            metadata: object(self.metadata.take()),
        })
    }

    fn take_message(&mut self) -> Message {
        Message {
            message_id: take(&mut self.message_id).filled(),
            role: role(self.role),
            parts: parts(take(&mut self.parts)),
            task_id: take(&mut self.task_id).filled(),
            context_id: take(&mut self.context_id).filled(),
            reference_task_ids: take(&mut self.reference_task_ids)
                .items()
                .filter_map(LenientString::filled)
                .collect(),
            extensions: take(&mut self.extensions).items().filter_map(LenientString::filled).collect(),
            metadata: object(self.metadata.take()),
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
            *self.body = DecodedBody { wrapped: self.wrapped, ..DecodedBody::default() };
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
        match name {
            BodyMember::Kind => self.kind = object.next_value()?,
            BodyMember::Id => self.id = object.next_value()?,
            BodyMember::TaskId => self.task_id = object.next_value()?,
            BodyMember::ContextId => self.context_id = object.next_value()?,
            BodyMember::SessionId => self.session_id = object.next_value()?,
            BodyMember::Status => self.status = object.next_value()?,
            BodyMember::Artifacts => self.artifacts = object.next_value()?,
            BodyMember::History => self.history = object.next_value()?,
            BodyMember::Artifact => self.artifact = object.next_value()?,
            BodyMember::Append => self.append = object.next_value()?,
            BodyMember::LastChunk => self.last_chunk = object.next_value()?,
            BodyMember::Final => self.last = object.next_value()?,
            BodyMember::MessageId => self.message_id = object.next_value()?,
            BodyMember::Role => self.role = object.next_value()?,
            BodyMember::Parts => self.parts = object.next_value()?,
            // The parts of a message in HTTP+JSON of 0.3.
            BodyMember::Content if self.parts.0.is_none() => self.parts = object.next_value()?,
            BodyMember::ReferenceTaskIds => self.reference_task_ids = object.next_value()?,
            BodyMember::Extensions => self.extensions = object.next_value()?,
            BodyMember::Metadata => self.metadata = object.next_value()?,
            BodyMember::Error => self.error = object.next_value()?,
            BodyMember::Task
            | BodyMember::Message
            | BodyMember::StatusUpdate
            | BodyMember::ArtifactUpdate
            | BodyMember::Content
            | BodyMember::Other => {
                object.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }
}

/// A message within another object.
#[derive(Default)]
pub(in super::super) struct MessageIn {
    message_id: LenientString,
    role: LenientWord<RoleWord>,
    parts: LenientList<PartIn>,
    /// The parts in HTTP+JSON of 0.3.
    content: LenientList<PartIn>,
    task_id: LenientString,
    context_id: LenientString,
    reference_task_ids: LenientList<LenientString>,
    extensions: LenientList<LenientString>,
    metadata: Option<Box<RawValue>>,
}

read_into_fields!(MessageIn {
    message_id = "messageId",
    role = "role",
    parts = "parts",
    content = "content",
    task_id = "taskId",
    context_id = "contextId",
    reference_task_ids = "referenceTaskIds",
    extensions = "extensions",
    metadata = "metadata",
});

impl From<MessageIn> for Message {
    fn from(message: MessageIn) -> Self {
        Self {
            message_id: message.message_id.filled(),
            role: role(message.role),
            parts: parts(if message.parts.0.is_some() { message.parts } else { message.content }),
            task_id: message.task_id.filled(),
            context_id: message.context_id.filled(),
            reference_task_ids: message
                .reference_task_ids
                .items()
                .filter_map(LenientString::filled)
                .collect(),
            extensions: message.extensions.items().filter_map(LenientString::filled).collect(),
            metadata: object(message.metadata),
        }
    }
}

impl MessageIn {
    /// Returns the missing member of a client's message: messages of agents are read leniently,
    /// clients get an error.
    pub(in super::super) fn missing_member(&self, needs_id: bool) -> Option<&'static str> {
        let known = matches!(self.role.0, Some(RoleWord::User | RoleWord::Agent));
        match () {
            () if !known => Some("message.role is missing"),
            () if !self.parts.is_filled() => Some("message.parts is missing"),
            () if needs_id && !self.message_id.is_filled() => Some("message.messageId is missing"),
            () => None,
        }
    }
}

/// A role in the form of any version.
#[derive(Clone, Copy)]
enum RoleWord {
    User,
    Agent,
    Unknown,
}

impl FromWord for RoleWord {
    fn from_word(word: &str) -> Option<Self> {
        let is = |old: &str, new: &str| word.eq_ignore_ascii_case(old) || word.eq_ignore_ascii_case(new);
        match word {
            "" => None,
            _ if is("agent", "ROLE_AGENT") => Some(Self::Agent),
            _ if is("user", "ROLE_USER") => Some(Self::User),
            _ => Some(Self::Unknown),
        }
    }
}

/// Returns the role; a message of an agent has the agent's role unless it declares another.
fn role(word: LenientWord<RoleWord>) -> Role {
    match word.0 {
        Some(RoleWord::User) => Role::User,
        Some(RoleWord::Agent | RoleWord::Unknown) | None => Role::Agent,
    }
}

/// A status.
#[derive(Default)]
pub(super) struct StatusIn {
    state: LenientWord<TaskState>,
    message: LenientObject<Box<MessageIn>>,
    timestamp: LenientString,
}

read_into_fields!(StatusIn { state = "state", message = "message", timestamp = "timestamp" });

impl FromWord for TaskState {
    fn from_word(word: &str) -> Option<Self> {
        Some(Self::from_wire(word))
    }
}

/// Returns the status, if there is one.
pub(super) fn status(status: LenientObject<StatusIn>) -> Option<TaskStatus> {
    status.0.map(|status| TaskStatus {
        state: status.state.0.unwrap_or(TaskState::Unknown),
        message: status.message.0.map(|message| Message::from(*message)),
        timestamp: status.timestamp.filled(),
    })
}

/// An artifact, or a piece of one.
#[derive(Default)]
pub(super) struct ArtifactIn {
    artifact_id: LenientString,
    name: LenientString,
    description: LenientString,
    parts: LenientList<PartIn>,
    extensions: LenientList<LenientString>,
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

/// An artifact of a task, or nothing if it is not an object.
struct ArtifactItem(Option<Artifact>);

impl<'de> Deserialize<'de> for ArtifactItem {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let LenientObject(found) = LenientObject::<ArtifactIn>::deserialize(deserializer)?;
        Ok(Self(found.map(Artifact::from)))
    }
}

impl ArtifactIn {
    pub(super) fn is_appended(&self) -> bool {
        self.append.is_set()
    }

    pub(super) fn is_last(&self) -> bool {
        self.last_chunk.is_set()
    }
}

impl From<ArtifactIn> for Artifact {
    fn from(artifact: ArtifactIn) -> Self {
        let name = artifact.name.filled();
        Self {
            // 0.1 has no ids: there the index is the key, or else the name; the index is 0 by
            // default.
            artifact_id: artifact
                .artifact_id
                .filled()
                .or_else(|| artifact.index.0.map(|index| index.to_string()))
                .or_else(|| name.clone())
                .unwrap_or_else(|| "0".to_owned()),
            name,
            description: artifact.description.filled(),
            parts: parts(artifact.parts),
            extensions: artifact.extensions.items().filter_map(LenientString::filled).collect(),
            metadata: object(artifact.metadata),
        }
    }
}

impl TaskHistory {
    /// Returns the messages, oldest first. Parses all of them on each call.
    pub fn messages(&self) -> Vec<Message> {
        let list = self.raw().and_then(|raw| serde_json::from_str(raw.get()).ok());
        let list: LenientList<LenientObject<MessageIn>> = list.unwrap_or_default();
        list.items().filter_map(|message| message.0).map(Message::from).collect()
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
