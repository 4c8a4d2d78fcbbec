//! The components of a task: messages, its status, artifacts.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::super::lenient::{LenientBool, LenientInteger, LenientList, LenientObject, LenientString, object};
use super::super::model::{Artifact, Message, Role, TaskStatus};
use super::part::{PartIn, StateIn, parts};

/// A message within another object.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(in super::super) struct MessageIn {
    message_id: LenientString,
    role: LenientString,
    parts: LenientList<PartIn>,
    task_id: LenientString,
    context_id: LenientString,
    reference_task_ids: LenientList<LenientString>,
    extensions: LenientList<LenientString>,
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
        let role = self.role.0.as_deref().unwrap_or_default();
        let known =
            ["user", "agent", "ROLE_USER", "ROLE_AGENT"].iter().any(|word| role.eq_ignore_ascii_case(word));
        match () {
            () if !known => Some("message.role is missing"),
            () if !self.parts.is_filled() => Some("message.parts is missing"),
            () if needs_id && !self.message_id.is_filled() => Some("message.messageId is missing"),
            () => None,
        }
    }
}

/// Returns the role; a message of an agent has the agent's role unless it declares another.
pub(super) fn role(role: &LenientString) -> Role {
    let user = |word: &str| word.eq_ignore_ascii_case("user") || word.eq_ignore_ascii_case("ROLE_USER");
    if role.0.as_deref().is_some_and(user) { Role::User } else { Role::Agent }
}

/// A status.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct StatusIn {
    state: StateIn,
    message: LenientObject<MessageIn>,
    timestamp: LenientString,
}

/// Returns the status, if there is one.
pub(super) fn status(status: LenientObject<StatusIn>) -> Option<TaskStatus> {
    status.0.map(|status| TaskStatus {
        state: status.state.0,
        message: status.message.0.map(Message::from),
        timestamp: status.timestamp.filled(),
    })
}

/// An artifact, or a piece of one.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
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
