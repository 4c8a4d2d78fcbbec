//! Reading an agent's answers, whichever dialect they are in: typed, in one pass, told apart by their content.
//!
//! The dialects differ so little on the way in (a wrapper or a `kind`, the spelling of states) that one reader takes them
//! all, and agents that mix them. Not here: writing (see `v0_3`, `v1`), the Agent Card (see `card`).

mod part;
mod wrapped;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use self::part::{PartIn, StateIn, parts};
use super::depth::{MAX_DEPTH, depth_within};
use super::dialect::Dialect;
use super::error::AgentError;
use super::loose::{Flag, List, Object, Text, Whole, object};
use super::model::{Artifact, Event, Message, Role, Status, Task};

/// Reads a JSON-RPC response object and returns its result, if there is one.
///
/// # Errors
///
/// [`AgentError`], if it holds an error or is no such object.
pub(crate) fn result(json: &[u8], dialect: Dialect) -> Result<Option<Box<Outer>>, AgentError> {
    if !depth_within(json, MAX_DEPTH) {
        return Err(AgentError::not_a2a("nested too deeply"));
    }
    // Checked once, so that the parser need not check every string.
    let text = str::from_utf8(json).map_err(|_| AgentError::not_a2a("not UTF-8"))?;
    let Object(answer) = serde_json::from_str::<Object<Answer>>(text)
        .map_err(|error| AgentError::not_a2a(&format!("not JSON: {error}")))?;
    let answer = answer.ok_or_else(|| AgentError::not_a2a("not a JSON object"))?;
    match answer.error {
        None if answer.jsonrpc.0.is_none() && answer.result.0.is_none() => {
            Err(AgentError::not_a2a("not a JSON-RPC answer"))
        }
        None => Ok(answer.result.0),
        Some(Object(error)) => {
            let ErrorIn { code, message } = error.unwrap_or_default();
            let code = code.0.ok_or_else(|| AgentError::not_a2a("an error without a code"))?;
            Err(AgentError::refused(code, &message.0.unwrap_or_default(), dialect))
        }
    }
}

#[derive(Deserialize)]
struct Answer {
    #[serde(default)]
    jsonrpc: Text,
    #[serde(default)]
    result: Object<Box<Outer>>,
    error: Option<Object<ErrorIn>>,
}

#[derive(Default, Deserialize)]
struct ErrorIn {
    #[serde(default)]
    code: Whole,
    #[serde(default)]
    message: Text,
}

/// A result: a thing itself, or a wrapper that names what it holds.
pub(crate) type Outer = Body<Object<Box<Inner>>>;
/// What a wrapper holds; a wrapper in it is not looked into.
type Inner = Body<IgnoredAny>;

/// Every member that a task, a message or an event has in any version. `W` is what a wrapper's member reads as.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Body<W> {
    task: W,
    message: W,
    status_update: W,
    artifact_update: W,
    kind: Text,
    id: Text,
    task_id: Text,
    context_id: Text,
    status: Object<StatusIn>,
    artifacts: List<Object<ArtifactIn>>,
    history: List<Object<MessageIn>>,
    artifact: Object<ArtifactIn>,
    append: Flag,
    last_chunk: Flag,
    r#final: Flag,
    message_id: Text,
    role: Text,
    parts: List<PartIn>,
    reference_task_ids: List<Text>,
    extensions: List<Text>,
    metadata: Option<Box<RawValue>>,
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

impl Outer {
    /// The event that this is.
    pub(crate) fn event(mut self: Box<Self>) -> Result<Event, AgentError> {
        if let Some(task) = self.task.0.take() {
            return task.read_as(Kind::Task);
        }
        if let Some(message) = self.message.0.take() {
            return message.read_as(Kind::Message);
        }
        if let Some(update) = self.status_update.0.take() {
            return update.read_as(Kind::Status);
        }
        if let Some(update) = self.artifact_update.0.take() {
            return update.read_as(Kind::Artifact);
        }
        let kind = self.recognise();
        self.read_as(kind)
    }
}

impl<W> Body<W> {
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
                task_id: self.task_id.filled(),
                context_id: self.context_id.filled(),
                status: status(self.status)
                    .ok_or_else(|| AgentError::not_a2a("a status update without status"))?,
                last: self.r#final.is_set(),
                metadata: object(self.metadata),
            }),
            Kind::Artifact => Ok(Event::Artifact {
                task_id: self.task_id.filled(),
                context_id: self.context_id.filled(),
                artifact: self
                    .artifact
                    .0
                    .map(Artifact::from)
                    .ok_or_else(|| AgentError::not_a2a("an artifact update without artifact"))?,
                append: self.append.is_set(),
                last_chunk: self.last_chunk.is_set(),
                metadata: object(self.metadata),
            }),
            Kind::Unknown => Ok(Event::Unknown),
        }
    }

    fn into_task(self) -> Result<Task, AgentError> {
        Ok(Task {
            id: self.id.filled().ok_or_else(|| AgentError::not_a2a("a task without id"))?,
            context_id: self.context_id.filled(),
            status: status(self.status).ok_or_else(|| AgentError::not_a2a("a task without status"))?,
            artifacts: self.artifacts.items().filter_map(|artifact| artifact.0).map(Artifact::from).collect(),
            history: self.history.items().filter_map(|message| message.0).map(Message::from).collect(),
            metadata: object(self.metadata),
        })
    }

    fn into_message(self) -> Message {
        Message::from(MessageIn {
            message_id: self.message_id,
            role: self.role,
            parts: self.parts,
            task_id: self.task_id,
            context_id: self.context_id,
            reference_task_ids: self.reference_task_ids,
            extensions: self.extensions,
            metadata: self.metadata,
        })
    }
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct MessageIn {
    message_id: Text,
    role: Text,
    parts: List<PartIn>,
    task_id: Text,
    context_id: Text,
    reference_task_ids: List<Text>,
    extensions: List<Text>,
    metadata: Option<Box<RawValue>>,
}

impl From<MessageIn> for Message {
    fn from(message: MessageIn) -> Self {
        Self {
            message_id: message.message_id.filled(),
            role: role(&message.role),
            parts: parts(message.parts),
            task_id: message.task_id.filled(),
            context_id: message.context_id.filled(),
            reference_task_ids: message.reference_task_ids.items().filter_map(Text::filled).collect(),
            extensions: message.extensions.items().filter_map(Text::filled).collect(),
            metadata: object(message.metadata),
        }
    }
}

/// What an agent sends is the agent's, unless it says otherwise.
fn role(role: &Text) -> Role {
    let user = |word: &str| word.eq_ignore_ascii_case("user") || word.eq_ignore_ascii_case("ROLE_USER");
    if role.0.as_deref().is_some_and(user) { Role::User } else { Role::Agent }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct StatusIn {
    state: StateIn,
    message: Object<MessageIn>,
    timestamp: Text,
}

fn status(status: Object<StatusIn>) -> Option<Status> {
    status.0.map(|status| Status {
        state: status.state.0,
        message: status.message.0.map(Message::from),
        timestamp: status.timestamp.filled(),
    })
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ArtifactIn {
    artifact_id: Text,
    name: Text,
    description: Text,
    parts: List<PartIn>,
    metadata: Option<Box<RawValue>>,
}

impl From<ArtifactIn> for Artifact {
    fn from(artifact: ArtifactIn) -> Self {
        let name = artifact.name.filled();
        Self {
            // The id is required; without it the name is the best key that there is.
            artifact_id: artifact.artifact_id.filled().or_else(|| name.clone()).unwrap_or_default(),
            name,
            description: artifact.description.filled(),
            parts: parts(artifact.parts),
            metadata: object(artifact.metadata),
        }
    }
}
