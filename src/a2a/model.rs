//! The canonical A2A model, shaped like A2A 1.0, with variants distinguished by the members
//! present; and the ids that clients generate.
//!
//! A history can be most of a response and is hardly ever needed, so it is kept exactly as the
//! agent wrote it and parsed only on demand. The wire formats are in `encode` and `decode`, the
//! Agent Card in `card`.

use serde_json::value::RawValue;

use super::error::AgentError;
use crate::hex::HexText;
use crate::jsonrpc::JsonText;

/// The author of a message (A2A 1.0 `Role`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Role {
    /// The client side: here, the gateway on behalf of a client.
    User,
    /// The agent; also the author of an agent's message that names none.
    #[default]
    Agent,
}

/// The state of a task (A2A 1.0 `TaskState`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum TaskState {
    /// Received, not started.
    Submitted,
    /// Work in progress.
    Working,
    /// The agent waits for an answer to the question in the status message.
    InputRequired,
    /// The agent waits for an authorization outside of the protocol.
    AuthRequired,
    /// Completed.
    Completed,
    /// Failed.
    Failed,
    /// Cancelled on request.
    Canceled,
    /// Rejected by the agent.
    Rejected,
    /// Unspecified, `unknown`, or an unknown word.
    #[default]
    Unknown,
}

impl TaskState {
    /// Returns true if the task never changes again.
    pub(crate) fn is_terminal(self) -> bool {
        match self {
            Self::Completed | Self::Failed | Self::Canceled | Self::Rejected => true,
            Self::Submitted | Self::Working | Self::InputRequired | Self::AuthRequired | Self::Unknown => {
                false
            }
        }
    }

    /// Reads a state in the form of any version: in any case, with `_` or `-`, with or without
    /// `TASK_STATE_`.
    pub(crate) fn from_wire(word: &str) -> Self {
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

    /// Returns true if the agent waits for a user: a question or an authorization is open.
    pub(crate) fn is_interrupted(self) -> bool {
        matches!(self, Self::InputRequired | Self::AuthRequired)
    }

    /// Returns the word for people and models: lower case with hyphens, as in A2A 0.3.
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

/// The content of a part.
#[derive(Debug, Clone)]
pub enum PartBody {
    /// Text.
    Text(JsonText),
    /// Bytes, still in the base64 of the agent (any alphabet, padded or not).
    Raw(String),
    /// A link; the gateway never fetches it.
    Url(String),
    /// Any JSON value, `null` included, byte for byte.
    Data(Box<RawValue>),
    /// A part of an unknown kind, unchanged.
    Unknown(Box<RawValue>),
}

impl PartBody {
    /// Returns the size of the content in bytes: of texts without escapes, of data as JSON.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Text(text) => text.bytes(),
            Self::Raw(text) | Self::Url(text) => text.len(),
            Self::Data(json) | Self::Unknown(json) => json.get().len(),
        }
    }

    /// Returns the text; `None` for other content.
    pub(crate) fn text(&self) -> Option<&JsonText> {
        match self {
            Self::Text(text) => Some(text),
            Self::Raw(_) | Self::Url(_) | Self::Data(_) | Self::Unknown(_) => None,
        }
    }
}

/// One piece of content of a message or an artifact (A2A 1.0 `Part`).
#[derive(Debug, Clone)]
pub struct Part {
    /// The content itself.
    pub body: PartBody,
    /// Name of the file, if given.
    pub filename: Option<String>,
    /// Media type, if given.
    pub media_type: Option<String>,
    /// Metadata as a JSON object, byte for byte.
    pub metadata: Option<Box<RawValue>>,
}

impl Part {
    /// Creates a part that has only `body`.
    pub fn new(body: PartBody) -> Self {
        Self { body, filename: None, media_type: None, metadata: None }
    }

    /// Returns true for reasoning of the agent's model, which is progress and not output:
    /// `thought`, and `adk_thought` of Google's ADK, in the metadata of the part.
    pub(crate) fn is_thought(&self) -> bool {
        let marked = |json: &RawValue| {
            let marks: ThoughtMarks = serde_json::from_str(json.get()).unwrap_or_default();
            marks.adk_thought == Some(true) || marks.thought == Some(true)
        };
        self.metadata.as_deref().is_some_and(|json| json.get().contains("thought") && marked(json))
    }
}

impl Part {
    /// Returns the size of content, names and metadata in bytes.
    pub fn bytes(&self) -> usize {
        let text = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        let metadata = self.metadata.as_ref().map_or(0, |json| json.get().len());
        text(&self.filename) + text(&self.media_type) + metadata + self.body.bytes()
    }

    /// Appends a part to `parts`. Plain text that follows plain text continues it, on a line of its
    /// own where both are complete: agents send one text in many messages.
    pub(crate) fn append_to(self, parts: &mut Vec<Self>) {
        if let PartBody::Text(more) = &self.body
            && self.metadata.is_none()
            && let Some(Self { body: PartBody::Text(text), metadata: None, .. }) = parts.last_mut()
        {
            let more = more.to_str();
            text.edit(|text| {
                if !continues(text, &more) {
                    text.push('\n');
                }
                text.push_str(&more);
            });
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

/// One message of a conversation (A2A 1.0 `Message`).
#[derive(Debug, Clone, Default)]
pub struct Message {
    /// Id that the author gave the message; absent in A2A 0.1.
    pub message_id: Option<String>,
    /// The author.
    pub role: Role,
    /// The content.
    pub parts: Vec<Part>,
    /// Id of the task that the message belongs to or continues.
    pub task_id: Option<String>,
    /// Id of the conversation.
    pub context_id: Option<String>,
    /// Ids of finished tasks to which the message refers.
    pub reference_task_ids: Vec<String>,
    /// URIs of the extensions that contributed to the message.
    pub extensions: Vec<String>,
    /// Metadata as a JSON object, byte for byte.
    pub metadata: Option<Box<RawValue>>,
}

impl Message {
    /// Returns the memory that the message takes, in bytes.
    pub(crate) fn memory(&self) -> usize {
        let ids = [&self.message_id, &self.task_id, &self.context_id];
        let lists = self.reference_task_ids.iter().chain(&self.extensions);
        size_of::<Self>()
            + ids.into_iter().flatten().map(String::len).sum::<usize>()
            + lists.map(|item| item.len() + size_of::<String>()).sum::<usize>()
            + self.metadata.as_ref().map_or(0, |json| json.get().len())
            + self.parts.iter().map(|part| part.bytes() + size_of::<Part>()).sum::<usize>()
    }
}

/// The state of a task with its message (A2A 1.0 `TaskStatus`).
#[derive(Debug, Clone, Default)]
pub struct TaskStatus {
    /// The state.
    pub state: TaskState,
    /// The agent's message; the open question if the task is interrupted. Boxed: an event is moved from reader to reader.
    pub message: Option<Box<Message>>,
    /// The time, as the agent wrote it.
    pub timestamp: Option<String>,
}

/// An output of a task (A2A 1.0 `Artifact`).
#[derive(Debug, Clone)]
pub struct Artifact {
    /// Key within the task.
    pub artifact_id: String,
    /// Name.
    pub name: Option<String>,
    /// Description.
    pub description: Option<String>,
    /// The content.
    pub parts: Vec<Part>,
    /// URIs of the extensions that contributed to the artifact.
    pub extensions: Vec<String>,
    /// Metadata as a JSON object, byte for byte.
    pub metadata: Option<Box<RawValue>>,
}

/// A task at an agent (A2A 1.0 `Task`).
#[derive(Debug, Clone)]
pub struct Task {
    /// The agent's id of the task. Never shown to a client.
    pub id: String,
    /// Id of the conversation.
    pub context_id: Option<String>,
    /// The status.
    pub status: TaskStatus,
    /// Artifacts so far.
    pub artifacts: Vec<Artifact>,
    /// Messages so far, as far as the agent sends them.
    pub history: TaskHistory,
    /// Metadata as a JSON object, byte for byte.
    pub metadata: Option<Box<RawValue>>,
}

/// An event of a stream, or the whole response of a plain call.
#[derive(Debug, Clone)]
pub enum StreamResponse {
    /// The current task; replaces all earlier data.
    Task(Task),
    /// The response of an agent that made no task; ends the exchange.
    Message(Message),
    /// A change of the status.
    Status {
        /// Id of the task.
        task_id: Option<String>,
        /// Id of the conversation.
        context_id: Option<String>,
        /// The current status.
        status: TaskStatus,
        /// True if the agent marks this as the last event (A2A 0.x `final`).
        last: bool,
        /// Metadata as a JSON object, byte for byte.
        metadata: Option<Box<RawValue>>,
    },
    /// An artifact, or a piece of one.
    Artifact {
        /// Id of the task.
        task_id: Option<String>,
        /// Id of the conversation.
        context_id: Option<String>,
        /// The artifact, or the piece of it.
        artifact: Artifact,
        /// True if the parts are added to the existing ones, false if they replace them.
        append: bool,
        /// True if the agent marks the artifact as complete. A hint only.
        last_chunk: bool,
        /// Metadata as a JSON object, byte for byte.
        metadata: Option<Box<RawValue>>,
    },
    /// An event of an unknown kind; ignored, never an error.
    Unknown,
}

impl StreamResponse {
    /// Returns the task in this response.
    pub(super) fn into_task(self) -> Result<Task, AgentError> {
        match self {
            Self::Task(task) => Ok(task),
            Self::Message(_) | Self::Status { .. } | Self::Artifact { .. } | Self::Unknown => {
                Err(AgentError::invalid_response("the answer holds no task"))
            }
        }
    }
}

/// The messages of a task so far, as far as the agent sends them. `decode` reads them.
#[derive(Debug, Clone, Default)]
pub struct TaskHistory(Option<Box<RawValue>>);

impl TaskHistory {
    /// Keeps the agent's value; anything but a list is read as an empty one.
    pub(super) fn new(raw: Option<Box<RawValue>>) -> Self {
        Self(raw.filter(|raw| raw.get().starts_with('[')))
    }

    /// Returns the messages as the agent wrote them, to be encoded again.
    pub(super) fn raw(&self) -> Option<&RawValue> {
        self.0.as_deref()
    }

    /// Returns the length in bytes.
    pub fn bytes(&self) -> usize {
        self.0.as_ref().map_or(0, |raw| raw.get().len())
    }
}

/// Returns a version 4 UUID from random bytes.
pub fn uuid(random: [u8; 16]) -> String {
    let bits = (u128::from_be_bytes(random) & !(0xF000_u128 << 64) & !(0xC000_u128 << 48))
        | (0x4000_u128 << 64)
        | (0x8000_u128 << 48);
    let HexText(digits) = HexText::<32>::new(bits.to_be_bytes());
    let mut text = [b'-'; 36];
    for (four, place) in digits.as_chunks::<4>().0.iter().zip([0, 4, 9, 14, 19, 24, 28, 32]) {
        if let Some(room) = text.get_mut(place..).and_then(<[u8]>::first_chunk_mut) {
            *room = *four;
        }
    }
    str::from_utf8(&text).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

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

    fn history(json: &str) -> TaskHistory {
        TaskHistory::new(Some(RawValue::from_string(json.to_owned()).unwrap()))
    }

    #[test]
    fn only_what_the_agent_said_last_counts() {
        let mut said = history(
            r#"[{"role":"agent","messageId":"1"},{"role":"ROLE_AGENT","messageId":"2"},7,{"role":"user"}]"#,
        );
        assert_eq!(said.messages().len(), 3);
        assert_eq!(said.last_agent_message().and_then(|message| message.message_id).as_deref(), Some("2"));
        said = history(r#"[{"role":"user","messageId":"1"}]"#);
        assert!(said.last_agent_message().is_none());
    }

    #[test]
    fn anything_but_a_list_is_no_message() {
        for json in ["null", "{}", "7", r#""text""#, "[]", r#"[null]"#, r#"[{"messageId":"\ud800"}]"#] {
            assert_eq!(history(json).messages().len(), 0, "{json}");
        }
        assert_eq!(TaskHistory::default().messages().len(), 0);
    }

    #[test]
    fn an_id_is_a_version_4_uuid_of_all_its_bytes() {
        for (random, expected) in [
            (std::array::from_fn(|at| at as u8), "00010203-0405-4607-8809-0a0b0c0d0e0f"),
            ([0xFF; 16], "ffffffff-ffff-4fff-bfff-ffffffffffff"),
            ([0; 16], "00000000-0000-4000-8000-000000000000"),
        ] {
            assert_eq!(uuid(random), expected);
        }
    }
}
