//! The canonical A2A model, shaped like A2A 1.0 and told apart by presence.
//!
//! Not here: any wire form (see the codecs `v0_1`, `v0_3` and `v1`), the Agent Card (see `card`).

use serde_json::value::RawValue;

use super::error::AgentError;
use super::history::TaskHistory;

/// Who wrote a message (A2A 1.0 `Role`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The side that asks: here, the gateway on behalf of a client.
    User,
    /// The side that answers.
    Agent,
}

/// Where a task stands (A2A 1.0 `TaskState`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskState {
    /// Received, not begun.
    Submitted,
    /// Being worked on.
    Working,
    /// The agent waits for an answer to the question in the status message.
    InputRequired,
    /// The agent waits for an authorization that is given elsewhere.
    AuthRequired,
    /// Done, well.
    Completed,
    /// Done, badly.
    Failed,
    /// Stopped on request.
    Canceled,
    /// Refused by the agent.
    Rejected,
    /// Unspecified, `unknown`, or a word that no version knows.
    Unknown,
}

impl TaskState {
    /// Whether the task will never change again.
    pub fn is_terminal(self) -> bool {
        match self {
            Self::Completed | Self::Failed | Self::Canceled | Self::Rejected => true,
            Self::Submitted | Self::Working | Self::InputRequired | Self::AuthRequired | Self::Unknown => {
                false
            }
        }
    }

    /// Reads a state as any version writes it: in any case, with `_` or `-`, with or without `TASK_STATE_`.
    pub fn from_wire(word: &str) -> Self {
        const PREFIX: &str = "TASK_STATE_";
        let word = match word.split_at_checked(PREFIX.len()) {
            Some((prefix, rest)) if prefix.eq_ignore_ascii_case(PREFIX) => rest,
            _ => word,
        };
        let is = |known: &str| word.eq_ignore_ascii_case(known);
        match word {
            _ if is("completed") => Self::Completed,
            _ if is("working") => Self::Working,
            _ if is("submitted") => Self::Submitted,
            _ if is("input_required") || is("input-required") => Self::InputRequired,
            _ if is("auth_required") || is("auth-required") => Self::AuthRequired,
            _ if is("failed") => Self::Failed,
            _ if is("canceled") || is("cancelled") => Self::Canceled,
            _ if is("rejected") => Self::Rejected,
            _ => Self::Unknown,
        }
    }

    /// Whether the agent waits for somebody: a question or an authorization is open.
    pub fn is_interrupted(self) -> bool {
        matches!(self, Self::InputRequired | Self::AuthRequired)
    }

    /// The word for people and models: lower case with hyphens, as in A2A 0.3.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Submitted => "submitted",
            Self::Working => "working",
            Self::InputRequired => "input-required",
            Self::AuthRequired => "auth-required",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Canceled => "canceled",
            Self::Rejected => "rejected",
            Self::Unknown => "unknown",
        }
    }
}

/// What a part carries.
#[derive(Debug, Clone)]
pub enum PartBody {
    /// Text.
    Text(String),
    /// Bytes, still base64 as they came (any alphabet, padded or not).
    Raw(String),
    /// A link; the gateway never follows it.
    Url(String),
    /// Any JSON value, `null` included, byte for byte.
    Data(Box<RawValue>),
    /// A part of a kind that no version knows, as it came.
    Unknown(Box<RawValue>),
}

/// One piece of content of a message or an artifact (A2A 1.0 `Part`).
#[derive(Debug, Clone)]
pub struct Part {
    /// The content itself.
    pub body: PartBody,
    /// Name of the file, where it has one.
    pub filename: Option<String>,
    /// Media type, where it is given.
    pub media_type: Option<String>,
    /// Metadata as a JSON object, byte for byte.
    pub metadata: Option<Box<RawValue>>,
}

impl Part {
    /// A part that carries `body` and nothing else.
    pub fn new(body: PartBody) -> Self {
        Self { body, filename: None, media_type: None, metadata: None }
    }

    /// Returns true for reasoning of the agent's model, which is progress and not output: `thought`,
    /// and `adk_thought` of Google's ADK, in the metadata of the part.
    pub fn is_thought(&self) -> bool {
        let marked = |json: &RawValue| {
            let marks: ThoughtMarks = serde_json::from_str(json.get()).unwrap_or_default();
            marks.adk_thought == Some(true) || marks.thought == Some(true)
        };
        self.metadata.as_deref().is_some_and(|json| json.get().contains("thought") && marked(json))
    }
}

impl Part {
    /// Returns how many bytes its content and its metadata have.
    pub fn bytes(&self) -> usize {
        let beside = self.metadata.as_ref().map_or(0, |json| json.get().len());
        beside
            + match &self.body {
                PartBody::Text(text) | PartBody::Raw(text) | PartBody::Url(text) => text.len(),
                PartBody::Data(json) | PartBody::Unknown(json) => json.get().len(),
            }
    }

    /// Appends a part to `parts`. Plain text that follows plain text continues it, on a line of its
    /// own where both are complete: agents send one text in many messages.
    pub fn append_to(self, parts: &mut Vec<Self>) {
        if let PartBody::Text(more) = &self.body
            && self.metadata.is_none()
            && let Some(Self { body: PartBody::Text(text), metadata: None, .. }) = parts.last_mut()
        {
            if !continues(text, more) {
                text.push('\n');
            }
            text.push_str(more);
        } else {
            parts.push(self);
        }
    }
}

/// Returns true if `more` is a piece of the same text, and not a text of its own. Models stream
/// pieces of words; a text of its own begins with a capital after a full stop, without a space.
fn continues(text: &str, more: &str) -> bool {
    let (Some(last), Some(first)) = (text.chars().last(), more.chars().next()) else { return true };
    !(matches!(last, '.' | '!' | '?' | '…' | ':' | '。') && first.is_uppercase())
}

/// The marks of [`Part::is_thought`].
#[derive(Default, serde::Deserialize)]
struct ThoughtMarks {
    #[serde(default, deserialize_with = "flag")]
    adk_thought: Option<bool>,
    #[serde(default, deserialize_with = "flag")]
    thought: Option<bool>,
}

/// Reads a flag that may be of any type; only `true` counts.
fn flag<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<bool>, D::Error> {
    let raw: &RawValue = serde::Deserialize::deserialize(deserializer)?;
    Ok(Some(raw.get() == "true"))
}

/// One turn of a conversation (A2A 1.0 `Message`).
#[derive(Debug, Clone)]
pub struct Message {
    /// Id that the writer gave the message; absent in A2A 0.1.
    pub message_id: Option<String>,
    /// Who wrote it.
    pub role: Role,
    /// Its content.
    pub parts: Vec<Part>,
    /// Task that it belongs to or continues.
    pub task_id: Option<String>,
    /// Conversation that it belongs to.
    pub context_id: Option<String>,
    /// Finished tasks that it refers to.
    pub reference_task_ids: Vec<String>,
    /// URIs of extensions that contributed to it.
    pub extensions: Vec<String>,
    /// Metadata as a JSON object, byte for byte.
    pub metadata: Option<Box<RawValue>>,
}

/// The state of a task with the words that go with it (A2A 1.0 `TaskStatus`).
#[derive(Debug, Clone)]
pub struct TaskStatus {
    /// Where the task stands.
    pub state: TaskState,
    /// What the agent says about it; the open question, when the task is interrupted.
    pub message: Option<Message>,
    /// When, as the agent wrote it.
    pub timestamp: Option<String>,
}

/// Something that a task made (A2A 1.0 `Artifact`).
#[derive(Debug, Clone)]
pub struct Artifact {
    /// Its key within the task.
    pub artifact_id: String,
    /// Its name.
    pub name: Option<String>,
    /// What it is.
    pub description: Option<String>,
    /// Its content.
    pub parts: Vec<Part>,
    /// URIs of extensions that contributed to it.
    pub extensions: Vec<String>,
    /// Metadata as a JSON object, byte for byte.
    pub metadata: Option<Box<RawValue>>,
}

/// A piece of work at an agent (A2A 1.0 `Task`).
#[derive(Debug, Clone)]
pub struct Task {
    /// The agent's id of it. Never shown to a client.
    pub id: String,
    /// The conversation that it belongs to.
    pub context_id: Option<String>,
    /// Where it stands.
    pub status: TaskStatus,
    /// What it made so far.
    pub artifacts: Vec<Artifact>,
    /// Messages so far, as far as the agent gives them.
    pub history: TaskHistory,
    /// Metadata as a JSON object, byte for byte.
    pub metadata: Option<Box<RawValue>>,
}

/// One thing that an agent says: an event of a stream, or the whole answer of a plain call.
#[derive(Debug, Clone)]
pub enum StreamResponse {
    /// The task as it stands; replaces what was known.
    Task(Task),
    /// The answer of an agent that made no task; ends the exchange.
    Message(Message),
    /// The task moved on.
    Status {
        /// Which task.
        task_id: Option<String>,
        /// Its conversation.
        context_id: Option<String>,
        /// Where it stands now.
        status: TaskStatus,
        /// Whether the agent says that this is the last event (A2A 0.x `final`).
        last: bool,
        /// Metadata as a JSON object, byte for byte.
        metadata: Option<Box<RawValue>>,
    },
    /// The task made something, or more of it.
    Artifact {
        /// Which task.
        task_id: Option<String>,
        /// Its conversation.
        context_id: Option<String>,
        /// The artifact, or the piece of it.
        artifact: Artifact,
        /// Whether the parts are added to what is there (else they replace it).
        append: bool,
        /// Whether the agent says that the artifact is whole now. A hint only.
        last_chunk: bool,
        /// Metadata as a JSON object, byte for byte.
        metadata: Option<Box<RawValue>>,
    },
    /// An event of a kind that no version knows; passed over, never an error.
    Unknown,
}

impl StreamResponse {
    /// The task that this is.
    pub(super) fn into_task(self) -> Result<Task, AgentError> {
        match self {
            Self::Task(task) => Ok(task),
            Self::Message(_) | Self::Status { .. } | Self::Artifact { .. } | Self::Unknown => {
                Err(AgentError::invalid_response("the answer holds no task"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::TaskState;

    #[test]
    fn a_state_is_read_however_it_is_written() {
        for (words, state) in [
            (&["submitted", "TASK_STATE_SUBMITTED"][..], TaskState::Submitted),
            (&["working", "Working", "task_state_working"], TaskState::Working),
            (&["input-required", "input_required", "TASK_STATE_INPUT_REQUIRED"], TaskState::InputRequired),
            (&["auth-required", "TASK_STATE_AUTH_REQUIRED"], TaskState::AuthRequired),
            (&["completed", "TASK_STATE_COMPLETED"], TaskState::Completed),
            (&["failed", "TASK_STATE_FAILED"], TaskState::Failed),
            (&["canceled", "cancelled", "TASK_STATE_CANCELED", "TASK_STATE_CANCELLED"], TaskState::Canceled),
            (&["rejected", "TASK_STATE_REJECTED"], TaskState::Rejected),
            (
                &["", "unknown", "TASK_STATE_UNSPECIFIED", "TASK_STATE_", "tâches", "pondering"],
                TaskState::Unknown,
            ),
        ] {
            for word in words {
                assert_eq!(TaskState::from_wire(word), state, "{word}");
            }
            assert_eq!(TaskState::from_wire(state.as_str()), state);
        }
    }
}
