//! Encodes tasks, messages and artifacts in each version, straight from the canonical model.
//!
//! A value that a version lacks is left out or replaced by the nearest one: 0.1 has neither
//! `rejected` nor `auth-required`, and its messages and artifacts have no ids. Parts of older
//! versions are in `legacy_parts`.

use serde::Serialize;
use serde::ser::Serializer;
use serde_json::value::RawValue;

use super::dialect::Dialect;
use super::legacy_parts;
use super::model::{Artifact, Message, Part, Role, Task, TaskState, TaskStatus};
use super::write;

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
            Dialect::V0_1 => legacy_parts::LegacyParts { parts, tag: "type" }.serialize(serializer),
            Dialect::V0_3 => legacy_parts::LegacyParts { parts, tag: "kind" }.serialize(serializer),
            Dialect::V1 => write::EncodedParts::with_metadata(parts).serialize(serializer),
        }
    }
}
