//! The output of a task: everything that its agent sent, merged.
//!
//! Applies events and returns the changes. Bounded. Out of scope: selecting the events of a task
//! (the reader of the agent's stream does that), presentation to a client (see `progress`,
//! `tool_result`).

mod asking;
mod closing;
mod metadata;
mod persist;

use std::sync::Arc;

use serde::Deserialize;

use closing::ClosingMessages;
pub use metadata::{CollectedMetadata, MOST_BYTES};

use crate::a2a::{
    Artifact, ArtifactLimitExceeded, Artifacts, Content, Message, Part, PartBody, Role, StreamResponse, Task,
    TaskHistory, TaskState, TaskStatus, TextChange, stamp_of,
};

/// The output of a call so far.
#[derive(Debug)]
pub struct AgentOutput {
    /// The agent's id of the task, once it is known.
    pub task_id: Option<String>,
    /// The agent's id of the conversation, once it is known.
    pub context_id: Option<String>,
    /// The id of the skill of the tool that started the task; `None` if no skill was named, or none
    /// is known.
    pub skill: Option<Arc<str>>,
    /// The state of the task; `None` until the agent reports one.
    pub state: Option<TaskState>,
    /// The message of the last status.
    pub status: Option<Message>,
    /// The response of an agent that made no task.
    pub reply: Option<Message>,
    /// Time of the last status, as the agent wrote it.
    pub timestamp: Option<String>,
    /// The agent's metadata of the task, and that of later status events, within the limit of a
    /// result.
    pub metadata: CollectedMetadata,
    /// True if artifacts were evicted here that the agent may still have.
    pub artifacts_shed: bool,
    /// The history of the task: the last one with a message of the agent, if there is one.
    history: TaskHistory,
    artifacts: Artifacts,
    /// The agent's messages in this turn while it worked, until it makes an artifact.
    closing: ClosingMessages,
    /// The content of the question when the agent last reported its state: later artifacts are not
    /// part of it.
    question: Option<Content>,
    /// Number of earlier answers to the same question.
    round: u8,
    /// The stamp that distinguishes the status of the question from any other.
    stamp: Option<[u8; 16]>,
    /// True if the agent has accepted an answer to the open question.
    is_answered: bool,
}

/// A change to notify a client of.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct ProgressUpdate {
    /// The change in words.
    pub text: Option<String>,
    /// The progress that the agent reports.
    pub progress: Option<f64>,
    /// The total that the agent reports.
    pub total: Option<f64>,
}

/// The state of the output for waiters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputState {
    /// The agent works, or has not responded yet.
    Running,
    /// The agent waits for an answer or an authorization.
    Asking,
    /// The task has ended.
    Finished,
}

impl AgentOutput {
    /// Creates an empty output. All artifacts together may have `most` bytes.
    pub fn new(most: usize) -> Self {
        Self {
            task_id: None,
            context_id: None,
            skill: None,
            state: None,
            status: None,
            reply: None,
            timestamp: None,
            metadata: CollectedMetadata::default(),
            artifacts_shed: false,
            history: TaskHistory::default(),
            artifacts: Artifacts::new(most),
            closing: ClosingMessages::default(),
            question: None,
            round: 0,
            stamp: None,
            is_answered: false,
        }
    }

    /// Returns the state of the output.
    pub fn state(&self) -> OutputState {
        match self.state {
            _ if self.reply.is_some() => OutputState::Finished,
            Some(state) if state.is_terminal() => OutputState::Finished,
            Some(state) if state.is_interrupted() => OutputState::Asking,
            Some(_) | None => OutputState::Running,
        }
    }

    /// Returns all artifacts.
    pub fn artifacts(&self) -> impl Iterator<Item = &Artifact> {
        self.artifacts.iter()
    }

    /// Returns the artifacts since the last answered question.
    pub fn artifacts_of_turn(&self) -> impl Iterator<Item = &Artifact> {
        self.artifacts.of_turn()
    }

    /// Returns the messages of the agent since the last one of the user, in the history of the
    /// task, as one; the agent's last message if there is none since. For agents that put their
    /// output there. Parsed on each call.
    pub fn closing_message(&self) -> Option<Message> {
        let messages = self.history.messages();
        let mut closing = ClosingMessages::default();
        let begins = messages.iter().rposition(|message| message.role != Role::Agent).map_or(0, |at| at + 1);
        messages.iter().skip(begins).for_each(|message| closing.add(message));
        closing.message().or_else(|| messages.into_iter().rfind(|message| message.role == Role::Agent))
    }

    /// Returns the agent's reason for an end without success, in its own words: from its status,
    /// else from the history, else from the artifacts.
    pub fn reason(&self) -> Option<String> {
        let said = |message: &Message| Some(words(message)).filter(|text| !text.is_empty());
        let made = || {
            let parts = self.artifacts().flat_map(|artifact| &artifact.parts);
            let texts: Vec<&str> = parts.filter(|part| !part.is_thought()).filter_map(text).collect();
            Some(texts.join("\n")).filter(|text| !text.is_empty())
        };
        let status = self.status.as_ref().and_then(said);
        status.or_else(|| self.closing_message().as_ref().and_then(said)).or_else(made)
    }

    /// Returns the messages of the task so far, as far as the agent sent them. Parsed on each call.
    pub fn messages(&self) -> Vec<Message> {
        self.history.messages()
    }

    /// Returns the approximate size in bytes.
    pub fn bytes(&self) -> usize {
        const OVERHEAD: usize = 1024;
        let messages = self.status.iter().chain(&self.reply);
        let parts = messages.flat_map(|message| &message.parts).map(|part| match &part.body {
            PartBody::Text(text) | PartBody::Raw(text) | PartBody::Url(text) => text.len(),
            PartBody::Data(json) | PartBody::Unknown(json) => json.get().len(),
        });
        let messages = self.status.iter().chain(&self.reply);
        let beside = messages.flat_map(|message| {
            let metadata = message.parts.iter().map(|part| &part.metadata).chain([&message.metadata]);
            metadata.flatten().map(|json| json.get().len())
        });
        OVERHEAD
            + self.metadata.bytes()
            + self.history.bytes()
            + self.artifacts.bytes()
            + self.closing.bytes()
            + parts.sum::<usize>()
            + beside.sum::<usize>()
    }

    /// Returns the size of the artifacts in bytes, which [`Self::evict_artifacts`] frees.
    pub fn artifact_bytes(&self) -> usize {
        self.artifacts.bytes()
    }

    /// Applies an event and returns the change, if there is one.
    ///
    /// A finished task never changes again.
    ///
    /// # Errors
    ///
    /// [`ArtifactLimitExceeded`] if the artifacts exceed their limit.
    pub fn apply(&mut self, event: StreamResponse) -> Result<Option<ProgressUpdate>, ArtifactLimitExceeded> {
        if self.state() == OutputState::Finished {
            return Ok(None);
        }
        match event {
            StreamResponse::Task(task) => self.task(task),
            StreamResponse::Message(message) => {
                self.name(message.task_id.clone(), message.context_id.clone());
                self.reply = Some(message);
                Ok(None)
            }
            StreamResponse::Status { task_id, context_id, status, metadata, .. } => {
                self.name(task_id, context_id);
                let reported = metadata.as_ref().and_then(|raw| serde_json::from_str(raw.get()).ok());
                metadata.iter().for_each(|json| self.metadata.add(json));
                Ok(self.status(status, reported.unwrap_or_default()))
            }
            StreamResponse::Artifact { task_id, context_id, artifact, append, .. } => {
                self.name(task_id, context_id);
                let name = artifact.name.clone();
                let change = self.artifacts.apply(artifact, append)?;
                // The output is in an artifact: the messages were progress.
                self.closing.clear();
                Ok(made(change, name))
            }
            StreamResponse::Unknown => Ok(None),
        }
    }

    fn task(&mut self, task: Task) -> Result<Option<ProgressUpdate>, ArtifactLimitExceeded> {
        self.name(Some(task.id), task.context_id);
        if !task.artifacts.is_empty() {
            self.artifacts.replace_all(task.artifacts)?;
        }
        self.remember(task.history);
        // A task with metadata includes that of its earlier events.
        task.metadata.iter().for_each(|json| self.metadata.replace(json));
        Ok(self.status(task.status, ReportedProgress::default()))
    }

    fn status(&mut self, status: TaskStatus, reported: ReportedProgress) -> Option<ProgressUpdate> {
        let is_taken_in = self.is_without_words(&status);
        let stamp = if is_taken_in { self.stamp } else { stamp_of(&status) };
        let message = if is_taken_in { self.status.take() } else { status.message };
        let shown = Content::of(status.state, message.as_ref(), self.artifacts.iter().last());
        let again = self.state == Some(status.state)
            && match shown {
                Some(_) => is_taken_in || self.question == shown,
                None => same(self.status.as_ref(), message.as_ref()),
            };
        self.state = Some(status.state);
        let text = message.as_ref().map(all_words).filter(|text| !text.is_empty());
        self.status = message;
        self.timestamp = status.timestamp;
        self.question = shown;
        self.stamp = stamp.filter(|_| shown.is_some());
        if !again {
            self.is_answered = false;
            self.artifacts.begin_turn();
            self.close(status.state);
        }
        if status.state.is_interrupted() && !self.is_answered {
            self.artifacts.pause_turn();
        }
        if again && reported.progress.is_none() {
            return None;
        }
        let text = text.or_else(|| Some(status.state.as_str().to_owned()));
        Some(ProgressUpdate { text, progress: reported.progress, total: reported.total })
    }

    /// Keeps the message of a status for the end, or gives a task that ends without any output the
    /// earlier messages.
    fn close(&mut self, state: TaskState) {
        match state {
            TaskState::Submitted | TaskState::Working | TaskState::Unknown => {
                if let Some(message) = self.status.as_ref().filter(|_| self.artifacts.iter().next().is_none())
                {
                    self.closing.add(message);
                }
            }
            TaskState::Completed => {
                let is_silent = self.status.as_ref().is_none_or(|message| message.parts.is_empty());
                if is_silent && self.artifacts.iter().next().is_none() {
                    self.status = self.closing.message();
                }
                self.closing.clear();
            }
            TaskState::InputRequired
            | TaskState::AuthRequired
            | TaskState::Failed
            | TaskState::Canceled
            | TaskState::Rejected => self.closing.clear(),
        }
    }

    fn name(&mut self, task_id: Option<String>, context_id: Option<String>) {
        self.task_id = self.task_id.take().or(task_id);
        self.context_id = context_id.or(self.context_id.take());
    }
}

/// The progress that an agent reports in the metadata of a status.
#[derive(Debug, Default, Deserialize)]
struct ReportedProgress {
    #[serde(default)]
    progress: Option<f64>,
    #[serde(default)]
    total: Option<f64>,
}

/// Returns true if two messages are the same; agents repeat messages after a resubscription.
fn same(one: Option<&Message>, other: Option<&Message>) -> bool {
    match (one, other) {
        (None, None) => true,
        (Some(one), Some(other)) => match (&one.message_id, &other.message_id) {
            (Some(one), Some(other)) => one == other,
            _ => words(one) == words(other),
        },
        _ => false,
    }
}

/// Returns the text of a message, without thoughts.
pub fn words(message: &Message) -> String {
    let texts: Vec<&str> = message.parts.iter().filter(|part| !part.is_thought()).filter_map(text).collect();
    texts.join("\n")
}

/// Returns the text of a message with its thoughts, for progress.
fn all_words(message: &Message) -> String {
    let texts: Vec<&str> = message.parts.iter().filter_map(text).collect();
    texts.join("\n")
}

fn text(part: &Part) -> Option<&str> {
    match &part.body {
        PartBody::Text(text) => Some(text),
        PartBody::Raw(_) | PartBody::Url(_) | PartBody::Data(_) | PartBody::Unknown(_) => None,
    }
}

fn made(change: TextChange, name: Option<String>) -> Option<ProgressUpdate> {
    let text = match change {
        TextChange::Added(text) if !text.is_empty() => text,
        TextChange::Replaced(text) if !text.is_empty() => text,
        TextChange::Added(_) | TextChange::Replaced(_) => {
            format!("artifact {}", name.unwrap_or_default()).trim_end().to_owned()
        }
        TextChange::Nothing => return None,
    };
    Some(ProgressUpdate { text: Some(text), ..ProgressUpdate::default() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::a2a::Dialect;

    fn message(id: &str, text: &str) -> Message {
        Message {
            message_id: Some(id.into()),
            role: Role::Agent,
            parts: vec![Part::new(PartBody::Text(text.into()))],
            task_id: None,
            context_id: None,
            reference_task_ids: vec![],
            extensions: vec![],
            metadata: None,
        }
    }

    fn status(state: TaskState, said: Option<Message>) -> StreamResponse {
        StreamResponse::Status {
            task_id: Some("t".into()),
            context_id: Some("c".into()),
            status: TaskStatus { state, message: said, timestamp: None },
            last: false,
            metadata: None,
        }
    }

    fn chunk(text: &str, append: bool) -> StreamResponse {
        let parts = vec![Part::new(PartBody::Text(text.into()))];
        let artifact = Artifact {
            artifact_id: "a".into(),
            name: None,
            description: None,
            parts,
            extensions: Vec::new(),
            metadata: None,
        };
        StreamResponse::Artifact {
            task_id: None,
            context_id: None,
            artifact,
            append,
            last_chunk: false,
            metadata: None,
        }
    }

    #[test]
    fn events_are_put_together_and_each_says_what_is_new() {
        let mut work = AgentOutput::new(1000);
        assert_eq!(work.state(), OutputState::Running);
        let note = |note: Option<ProgressUpdate>| note.and_then(|note| note.text);
        assert_eq!(
            note(work.apply(status(TaskState::Submitted, None)).unwrap()).as_deref(),
            Some("submitted")
        );
        assert_eq!(
            note(work.apply(status(TaskState::Working, Some(message("1", "on it")))).unwrap()).as_deref(),
            Some("on it")
        );
        assert_eq!(note(work.apply(status(TaskState::Working, Some(message("1", "on it")))).unwrap()), None);
        assert_eq!(note(work.apply(chunk("one ", false)).unwrap()).as_deref(), Some("one "));
        assert_eq!(note(work.apply(chunk("two", true)).unwrap()).as_deref(), Some("two"));
        assert_eq!((work.task_id.as_deref(), work.context_id.as_deref()), (Some("t"), Some("c")));
        work.apply(status(TaskState::Completed, None)).unwrap();
        assert_eq!(work.state(), OutputState::Finished);
    }

    #[test]
    fn a_finished_task_never_changes_again() {
        let mut work = AgentOutput::new(1000);
        work.apply(status(TaskState::Completed, None)).unwrap();
        work.apply(status(TaskState::Failed, None)).unwrap();
        assert_eq!(work.state, Some(TaskState::Completed));
    }

    #[test]
    fn the_last_word_of_the_agent_is_found_whenever_its_history_came() {
        let task = |state: &str, history: &str| {
            let result =
                format!(r#"{{"kind":"task","id":"t","status":{{"state":"{state}"}},"history":{history}}}"#);
            let answer = format!(r#"{{"jsonrpc":"2.0","id":1,"result":{result}}}"#);
            Dialect::V0_3.event(answer.as_bytes()).unwrap()
        };
        let early = r#"[{"role":"agent","parts":[{"kind":"text","text":"early"}]}]"#;
        let late = r#"[{"role":"agent","parts":[{"kind":"text","text":"late"}]},{"role":"user","parts":[]}]"#;
        for (end, expected) in [(late, "late"), ("[]", "early"), (r#"[{"role":"user"}]"#, "early")] {
            let mut work = AgentOutput::new(1000);
            work.apply(task("working", early)).unwrap();
            assert_eq!(work.closing_message().map(|message| words(&message)).as_deref(), Some("early"));
            work.apply(task("completed", end)).unwrap();
            assert_eq!(
                work.closing_message().map(|message| words(&message)).as_deref(),
                Some(expected),
                "{end}"
            );
        }
    }

    #[test]
    fn metadata_takes_room_too() {
        let raw = |text: String| serde_json::value::RawValue::from_string(text).ok();
        let bytes = |size: usize| {
            let mut said = message("1", "x");
            said.metadata = raw(format!("{:?}", "m".repeat(size)));
            said.parts[0].metadata = raw(format!("{:?}", "p".repeat(size)));
            let mut work = AgentOutput::new(10);
            work.apply(status(TaskState::InputRequired, Some(said))).unwrap();
            work.bytes()
        };
        assert_eq!(bytes(5000) - bytes(0), 10_000);
    }

    #[test]
    fn artifacts_have_a_limit() {
        let mut work = AgentOutput::new(20);
        assert!(work.apply(chunk(&"x".repeat(100), false)).is_err());
    }
}
