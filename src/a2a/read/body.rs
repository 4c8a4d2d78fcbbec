//! A result: a task, a message or an update, by itself or in a wrapper that names it.
//!
//! Not here: the JSON-RPC answer around it, parts (see `part`).

use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::super::error::AgentError;
use super::super::history::History;
use super::super::loose::{Flag, List, Object, Text, absent, object};
use super::super::model::{Artifact, Event, Message, Task};
use super::part::{PartIn, parts};
use super::pieces::{ArtifactIn, StatusIn, role, status};
use super::refused::ErrorIn;

/// Every member that a task, a message or an event has in any version.
#[derive(Default)]
pub(crate) struct Body {
    /// What the wrapper said that it is.
    wrapped: Option<Kind>,
    kind: Text,
    id: Text,
    task_id: Text,
    context_id: Text,
    /// What the conversation is called in 0.1.
    session_id: Text,
    status: Object<StatusIn>,
    artifacts: List<Object<ArtifactIn>>,
    history: Option<Box<RawValue>>,
    artifact: Object<ArtifactIn>,
    append: Flag,
    last_chunk: Flag,
    last: Flag,
    message_id: Text,
    role: Text,
    parts: List<PartIn>,
    reference_task_ids: List<Text>,
    extensions: List<Text>,
    metadata: Option<Box<RawValue>>,
    /// What HTTP+JSON has in its place.
    error: Object<ErrorIn>,
}

/// What a body is.
#[derive(Clone, Copy)]
enum Kind {
    Task,
    Message,
    Status,
    Artifact,
    Unknown,
}

impl Body {
    /// The event that this is.
    pub(crate) fn event(self) -> Result<Event, AgentError> {
        let kind = self.wrapped.unwrap_or_else(|| self.recognise());
        self.read_as(kind)
    }

    /// Reads JSON into this; yields whether it was an object.
    pub(super) fn fill(&mut self) -> Fill<'_> {
        Fill { body: self, wrapped: None }
    }

    /// The error that this is. What A2A has a name for, or what says of which kind or task it is, is that, whatever members it has
    /// besides. An id alone says nothing: errors of JSON-RPC have one.
    pub(super) fn refusal(&mut self) -> Option<ErrorIn> {
        let is_named = self.kind.is_filled() || self.task_id.is_filled();
        let is_known = self.wrapped.is_some() || !matches!(self.recognise(), Kind::Unknown);
        self.error.0.take().filter(|_| !is_named && !is_known)
    }

    /// Returns true for a task without a wrapper: it has an id and a status.
    fn is_bare_task(&self) -> bool {
        self.wrapped.is_none() && self.id.is_filled() && self.status.0.is_some()
    }

    fn recognise(&self) -> Kind {
        match self.kind.0.as_deref() {
            Some("task") => return Kind::Task,
            Some("message") => return Kind::Message,
            Some("status-update") => return Kind::Status,
            Some("artifact-update") => return Kind::Artifact,
            Some("") | None => {}
            Some(_) => return Kind::Unknown,
        }
        if self.artifact.0.is_some() {
            Kind::Artifact
        } else if self.parts.0.is_some() && self.role.is_filled() {
            Kind::Message
        } else if self.status.0.is_some() && self.last.0.is_some() {
            // Without `kind`, as in 0.1: only an update says whether it is the last.
            Kind::Status
        } else if self.status.0.is_some() && self.id.is_filled() {
            Kind::Task
        } else if self.status.0.is_some() && self.task_id.is_filled() {
            Kind::Status
        } else {
            Kind::Unknown
        }
    }

    fn read_as(self, kind: Kind) -> Result<Event, AgentError> {
        match kind {
            Kind::Task => self.into_task().map(Event::Task),
            Kind::Message => Ok(Event::Message(self.into_message())),
            Kind::Status => Ok(Event::Status {
                task_id: self.task_id.filled().or(self.id.filled()),
                context_id: self.context_id.filled().or(self.session_id.filled()),
                status: status(self.status)
                    .ok_or_else(|| AgentError::not_a2a("a status update without status"))?,
                last: self.last.is_set(),
                metadata: object(self.metadata),
            }),
            Kind::Artifact => Ok(Event::Artifact {
                append: self.append.is_set() || self.artifact.0.as_ref().is_some_and(ArtifactIn::is_appended),
                last_chunk: self.last_chunk.is_set()
                    || self.artifact.0.as_ref().is_some_and(ArtifactIn::is_last),
                task_id: self.task_id.filled().or(self.id.filled()),
                context_id: self.context_id.filled().or(self.session_id.filled()),
                artifact: self
                    .artifact
                    .0
                    .map(Artifact::from)
                    .ok_or_else(|| AgentError::not_a2a("an artifact update without artifact"))?,
                metadata: object(self.metadata),
            }),
            Kind::Unknown => Ok(Event::Unknown),
        }
    }

    fn into_task(self) -> Result<Task, AgentError> {
        Ok(Task {
            id: self.id.filled().ok_or_else(|| AgentError::not_a2a("a task without id"))?,
            context_id: self.context_id.filled().or(self.session_id.filled()),
            status: status(self.status).ok_or_else(|| AgentError::not_a2a("a task without status"))?,
            artifacts: self.artifacts.items().filter_map(|artifact| artifact.0).map(Artifact::from).collect(),
            history: History::new(self.history),
            metadata: object(self.metadata),
        })
    }

    fn into_message(self) -> Message {
        Message {
            message_id: self.message_id.filled(),
            role: role(&self.role),
            parts: parts(self.parts),
            task_id: self.task_id.filled(),
            context_id: self.context_id.filled(),
            reference_task_ids: self.reference_task_ids.items().filter_map(Text::filled).collect(),
            extensions: self.extensions.items().filter_map(Text::filled).collect(),
            metadata: object(self.metadata),
        }
    }
}

/// Reads members into a body, through a wrapper if there is one.
pub(super) struct Fill<'a> {
    body: &'a mut Body,
    /// What the wrapper says, inside of one.
    wrapped: Option<Kind>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(field_identifier, rename_all = "camelCase")]
enum Name {
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
    ReferenceTaskIds,
    Extensions,
    Metadata,
    Error,
    #[serde(other)]
    Other,
}

impl Name {
    /// What a wrapper of this name holds.
    fn wraps(self) -> Option<Kind> {
        match self {
            Self::Task => Some(Kind::Task),
            Self::Message => Some(Kind::Message),
            Self::StatusUpdate => Some(Kind::Status),
            Self::ArtifactUpdate => Some(Kind::Artifact),
            _ => None,
        }
    }
}

impl<'de> DeserializeSeed<'de> for Fill<'_> {
    type Value = bool;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Fill<'_> {
    type Value = bool;

    absent!(bool, text, number, list);

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<bool, A::Error> {
        if self.wrapped.is_some() {
            *self.body = Body { wrapped: self.wrapped, ..Body::default() };
        }
        // Some agents of 0.1 put the user's message into a task as the member `message`.
        let mut message: Option<Box<Body>> = None;
        while let Some(name) = object.next_key::<Name>()? {
            match name.wraps() {
                Some(Kind::Message) if self.body.wrapped.is_none() && message.is_none() => {
                    let mut inner = Box::<Body>::default();
                    object.next_value_seed(Fill { body: &mut inner, wrapped: Some(Kind::Message) })?;
                    message = inner.wrapped.is_some().then_some(inner);
                }
                Some(kind) if self.body.wrapped.is_none() && message.is_none() => {
                    object.next_value_seed(Fill { body: self.body, wrapped: Some(kind) })?;
                }
                // A wrapper tells all: what lies beside it, or in it as another, does not count.
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

impl Body {
    fn put<'de, A: MapAccess<'de>>(&mut self, name: Name, object: &mut A) -> Result<(), A::Error> {
        match name {
            Name::Kind => self.kind = object.next_value()?,
            Name::Id => self.id = object.next_value()?,
            Name::TaskId => self.task_id = object.next_value()?,
            Name::ContextId => self.context_id = object.next_value()?,
            Name::SessionId => self.session_id = object.next_value()?,
            Name::Status => self.status = object.next_value()?,
            Name::Artifacts => self.artifacts = object.next_value()?,
            Name::History => self.history = object.next_value()?,
            Name::Artifact => self.artifact = object.next_value()?,
            Name::Append => self.append = object.next_value()?,
            Name::LastChunk => self.last_chunk = object.next_value()?,
            Name::Final => self.last = object.next_value()?,
            Name::MessageId => self.message_id = object.next_value()?,
            Name::Role => self.role = object.next_value()?,
            Name::Parts => self.parts = object.next_value()?,
            Name::ReferenceTaskIds => self.reference_task_ids = object.next_value()?,
            Name::Extensions => self.extensions = object.next_value()?,
            Name::Metadata => self.metadata = object.next_value()?,
            Name::Error => self.error = object.next_value()?,
            Name::Task | Name::Message | Name::StatusUpdate | Name::ArtifactUpdate | Name::Other => {
                object.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::a2a::{Dialect, Message};

    fn read(result: &str) -> Event {
        let answer = format!(r#"{{"jsonrpc":"2.0","id":1,"result":{result}}}"#);
        Dialect::V0_1.event(answer.as_bytes()).unwrap()
    }

    /// python-a2a puts the user's message into a task.
    #[test]
    fn task_with_message_member_is_a_task() {
        let message = r#""message":{"role":"user","parts":[{"type":"text","text":"x"}]}"#;
        let task = r#""id":"t","sessionId":"s","status":{"state":"completed"}"#;
        let sorted = r#"{"artifacts":[{"index":0,"name":"answer","parts":[{"text":"21","type":"text"}]}],"id":"t","message":{"parts":[{"text":"x","type":"text"}],"role":"user"},"sessionId":"s","status":{"state":"completed"}}"#;
        for json in [format!("{{{task},{message}}}"), format!("{{{message},{task}}}"), sorted.to_owned()] {
            assert!(matches!(read(&json), Event::Task(task) if task.id == "t"), "{json}");
        }
        for json in [format!("{{{message}}}"), format!(r#"{{{message},"id":"t"}}"#)] {
            assert!(
                matches!(read(&json), Event::Message(Message { parts, .. }) if parts.len() == 1),
                "{json}"
            );
        }
    }
}
