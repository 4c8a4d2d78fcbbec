//! The output of a task: everything that its agent sent, merged.
//!
//! Applies events and returns the changes. Bounded, also what it keeps of messages while the agent
//! works and of metadata for A2A extensions: invisible data must not take room from the agent's
//! output. Converts to a task for persistence, and back; `tasks` decides where it is kept and when
//! artifacts are evicted. Out of scope: selecting the events of a task (the reader of the agent's
//! stream does that), presentation to a client (see `task_status`, `tool_result`, `extension`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

use crate::a2a::{
    Artifact, ArtifactLimitExceeded, Artifacts, Content, Fingerprint, Message, Part, PartBody, Role,
    StreamResponse, Task, TaskHistory, TaskState, TaskStatus, TextChange, clean, is_wording, stamp_of,
};
use crate::jsonrpc::JsonText;

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
    pub status: Option<Box<Message>>,
    /// The response of an agent that made no task.
    pub reply: Option<Box<Message>>,
    /// Time of the last status, as the agent wrote it.
    pub timestamp: Option<String>,
    /// The agent's metadata of the task, and that of later status events, within the limit of a
    /// result.
    pub metadata: CollectedMetadata,
    /// The phases of a workflow that the task went through, in their order; at most
    /// `MAX_PHASES`.
    pub phases: Vec<VisitedPhase>,
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

/// A phase of a workflow that a task went through.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VisitedPhase {
    /// The name of the phase.
    pub name: String,
    /// Time of the status that named it first, as the agent wrote it.
    pub timestamp: Option<String>,
    /// Number of artifacts that the task had when the phase began.
    pub artifacts_before: usize,
}

/// Metadata member that names the phase of a task.
pub(crate) const PHASE: &str = "sparcPhase";
/// Metadata member that names the type of the agent of a task.
pub(crate) const AGENT_TYPE: &str = "agentType";
/// Metadata member that tells if the agent worked in batches.
pub(crate) const BATCH: &str = "batchtoolsOptimized";
/// Most phases of one task that are recorded.
const MAX_PHASES: usize = 16;
/// Longest name of a phase, in bytes.
const MAX_PHASE_BYTES: usize = 64;

/// A change to notify a client of.
#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProgressUpdate {
    /// The change in words.
    pub text: Option<JsonText>,
    /// The progress that the agent reports.
    pub progress: Option<f64>,
    /// The total that the agent reports.
    pub total: Option<f64>,
}

impl ProgressUpdate {
    /// Returns the size of the text in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.text.as_ref().map_or(0, JsonText::bytes)
    }
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
            phases: Vec::new(),
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
    pub(crate) fn artifacts_of_turn(&self) -> impl Iterator<Item = &Artifact> {
        self.artifacts.of_turn()
    }

    /// Returns the messages of the agent since the last one of the user, in the history of the
    /// task, as one; the agent's last message if there is none since. For agents that put their
    /// output there. Parsed on each call.
    pub(crate) fn closing_message(&self) -> Option<Message> {
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
            Some(lines(parts.filter(|part| !part.is_thought()))).filter(|text| !text.is_empty())
        };
        let status = self.status.as_deref().and_then(said);
        status.or_else(|| self.closing_message().as_ref().and_then(said)).or_else(made)
    }

    /// Returns the messages of the task so far, as far as the agent sent them. Parsed on each call.
    pub fn messages(&self) -> Vec<Message> {
        self.history.messages()
    }

    /// Returns the approximate size in bytes.
    pub fn bytes(&self) -> usize {
        const OVERHEAD: usize = 512;
        let phases = self.phases.iter().map(|phase| {
            phase.name.len() + phase.timestamp.as_ref().map_or(0, String::len) + size_of::<VisitedPhase>()
        });
        OVERHEAD
            + self.metadata.bytes()
            + phases.sum::<usize>()
            + self.history.bytes()
            + self.artifacts.bytes()
            + self.closing.memory()
            + self.status.iter().chain(&self.reply).map(|message| message.memory()).sum::<usize>()
            + self.timestamp.as_ref().map_or(0, String::len)
    }

    /// Returns the size of the content that clients see, in bytes. Ids and times, of which some
    /// agents send others with the same content, do not count.
    pub(crate) fn content_bytes(&self) -> usize {
        let messages = self.status.iter().chain(&self.reply);
        let messages = messages.map(|message| {
            let metadata = message.metadata.as_ref().map_or(0, |json| json.get().len());
            metadata + message.parts.iter().map(Part::bytes).sum::<usize>()
        });
        self.metadata.bytes()
            + self.phases.iter().map(|phase| phase.name.len()).sum::<usize>()
            + self.history.bytes()
            + self.artifacts.bytes()
            + self.closing.bytes
            + messages.sum::<usize>()
    }

    /// Returns the limit of the size of all artifacts, in bytes.
    pub(crate) fn max_artifact_bytes(&self) -> usize {
        self.artifacts.max_bytes()
    }

    /// Returns the size of the artifacts in bytes, which [`Self::evict_artifacts`] frees.
    pub(crate) fn artifact_bytes(&self) -> usize {
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
                self.reply = Some(Box::new(message));
                Ok(None)
            }
            StreamResponse::Status { task_id, context_id, status, metadata, .. } => {
                self.name(task_id, context_id);
                let reported = metadata.as_ref().and_then(|raw| serde_json::from_str(raw.get()).ok());
                metadata.iter().for_each(|json| self.metadata.add(json));
                if metadata.is_some() {
                    self.visit_phase(status.timestamp.as_deref(), self.artifacts().count());
                }
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
        let artifacts_before = self.artifacts().count();
        if !task.artifacts.is_empty() {
            self.artifacts.replace_all(task.artifacts)?;
        }
        self.remember(task.history);
        // A task with metadata includes that of its earlier events.
        task.metadata.iter().for_each(|json| self.metadata.replace(json));
        if task.metadata.is_some() {
            self.visit_phase(task.status.timestamp.as_deref(), artifacts_before);
        }
        Ok(self.status(task.status, ReportedProgress::default()))
    }

    /// Records the phase that the metadata names, if it is not the one before.
    fn visit_phase(&mut self, timestamp: Option<&str>, artifacts_before: usize) {
        let Some(name) = self.metadata.text(PHASE) else { return };
        let is_known = self.phases.last().is_some_and(|last| last.name == name);
        if !is_known && name.len() <= MAX_PHASE_BYTES && self.phases.len() < MAX_PHASES {
            let timestamp = timestamp.map(str::to_owned);
            self.phases.push(VisitedPhase { name, timestamp, artifacts_before });
        }
    }

    fn status(&mut self, status: TaskStatus, reported: ReportedProgress) -> Option<ProgressUpdate> {
        let is_taken_in = self.is_without_words(&status);
        let stamp = match is_taken_in {
            true => self.stamp,
            // Only a question has a stamp, and its digest costs as much as the rest of a status.
            false if status.state.is_interrupted() => stamp_of(&status),
            false => None,
        };
        let message = if is_taken_in { self.status.take() } else { status.message };
        let shown = Content::of(status.state, message.as_deref(), self.artifacts.iter().last());
        let again = self.state == Some(status.state)
            && match shown {
                Some(_) => is_taken_in || self.question == shown,
                None => same(self.status.as_deref(), message.as_deref()),
            };
        self.state = Some(status.state);
        let text = message.as_deref().map(all_words).filter(|text| !text.is_empty());
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
        let text = text.or_else(|| Some(JsonText::fixed(status.state.as_str())));
        Some(ProgressUpdate { text, progress: reported.progress, total: reported.total })
    }

    /// Keeps the message of a status for the end, or gives a task that ends without any output the
    /// earlier messages.
    fn close(&mut self, state: TaskState) {
        match state {
            TaskState::Submitted | TaskState::Working | TaskState::Unknown => {
                if let Some(message) =
                    self.status.as_deref().filter(|_| self.artifacts.iter().next().is_none())
                {
                    self.closing.add(message);
                }
            }
            TaskState::Completed => {
                let is_silent = self.status.as_ref().is_none_or(|message| message.parts.is_empty());
                if is_silent && self.artifacts.iter().next().is_none() {
                    self.status = self.closing.message().map(Box::new);
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
    lines(message.parts.iter().filter(|part| !part.is_thought()))
}

/// Returns the text of a message with its thoughts, for progress.
fn all_words(message: &Message) -> JsonText {
    match message.parts.as_slice() {
        // Nearly always: its JSON is passed on.
        [Part { body: PartBody::Text(only), .. }] => only.clone(),
        parts => lines(parts).into(),
    }
}

/// Returns the texts of parts, one below the other.
fn lines<'a>(parts: impl IntoIterator<Item = &'a Part>) -> String {
    let mut texts = parts.into_iter().filter_map(|part| part.body.text());
    let mut all = texts.next().map(|first| first.to_str().into_owned()).unwrap_or_default();
    for text in texts {
        all.push('\n');
        all.push_str(&text.to_str());
    }
    all
}

fn made(change: TextChange, name: Option<String>) -> Option<ProgressUpdate> {
    let text = match change {
        TextChange::Added(text) if !text.is_empty() => text,
        TextChange::Replaced(text) if !text.is_empty() => text,
        TextChange::Added(_) | TextChange::Replaced(_) => {
            format!("artifact {}", name.unwrap_or_default()).trim_end().into()
        }
        TextChange::Nothing => return None,
    };
    Some(ProgressUpdate { text: Some(text), ..ProgressUpdate::default() })
}

/// Maximum length of a question for a client, in bytes.
const MAX_QUESTION_BYTES: usize = 8 * 1024;

impl AgentOutput {
    /// Returns the fingerprint of the open question, if there is one.
    pub fn question_turn(&self) -> Option<Fingerprint> {
        Some(self.question?.fingerprint(self.task_id.as_deref()?).in_round(self.round))
    }

    /// Returns the stamp that distinguishes the status of the question from any other (see
    /// `a2a::stamp_of`).
    pub fn stamp(&self) -> Option<[u8; 16]> {
        self.stamp
    }

    /// Sets how often the open question was answered before.
    pub(crate) fn set_round(&mut self, round: u8) {
        self.round = round;
    }

    /// Returns the state in which the agent asks, and true if it asks with a message.
    pub fn asking(&self) -> Option<(TaskState, bool)> {
        self.state.filter(|state| state.is_interrupted()).map(|state| (state, self.status.is_some()))
    }

    /// Records that the agent has accepted an answer to the open question: later output belongs to
    /// the next turn.
    pub(crate) fn question_answered(&mut self) {
        if self.question.is_some() {
            self.is_answered = true;
            self.artifacts.begin_turn();
        }
    }

    /// Clears the question because the agent is about to ask again, in the same words or not.
    pub(crate) fn leave_question(&mut self) {
        if self.question.take().is_some() {
            (self.state, self.status, self.is_answered) = (Some(TaskState::Working), None, false);
            self.artifacts.begin_turn();
        }
    }

    /// Returns true if an event shows the rest of the question after its message has moved into the
    /// history. A server of the official Python SDK moves it the moment an answer arrives, and
    /// leaves the state as it is until the agent sends more.
    pub(crate) fn has_taken_words_in(&self, event: &StreamResponse) -> bool {
        match event {
            StreamResponse::Task(task) => self.is_without_words(&task.status),
            StreamResponse::Status { status, .. } => self.is_without_words(status),
            StreamResponse::Message(_) | StreamResponse::Artifact { .. } | StreamResponse::Unknown => false,
        }
    }

    /// Returns true if a status equals that of the question except for its message.
    fn is_without_words(&self, status: &TaskStatus) -> bool {
        let is_same = status.state.is_interrupted() && self.state == Some(status.state);
        is_same && status.message.is_none() && self.status.is_some()
    }

    /// Returns the message of the status as readable text: its text, and data as indented JSON.
    pub(crate) fn status_text(&self) -> String {
        let parts = self.status.iter().flat_map(|message| &message.parts);
        readable(parts)
    }

    /// Returns the output of this turn as readable text.
    pub(crate) fn made_text(&self) -> String {
        readable(self.artifacts_of_turn().flat_map(|artifact| &artifact.parts))
    }
}

/// Returns parts as text for a person: one line per part, cut to the limit for a client.
fn readable<'a>(parts: impl Iterator<Item = &'a Part>) -> String {
    let mut text = String::new();
    for part in parts.filter(|part| !part.is_thought()) {
        let line = match &part.body {
            PartBody::Text(text) => text.to_str(),
            PartBody::Data(json) if is_wording(json) => continue,
            PartBody::Data(json) => indented(json).into(),
            PartBody::Url(url) => url.into(),
            PartBody::Raw(_) | PartBody::Unknown(_) => continue,
        };
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(&line);
        if text.len() > MAX_QUESTION_BYTES {
            break;
        }
    }
    clean(&text, MAX_QUESTION_BYTES)
}

fn indented(json: &RawValue) -> String {
    let value: Option<Value> = serde_json::from_str(json.get()).ok();
    let pretty = value.and_then(|value| serde_json::to_string_pretty(&value).ok());
    pretty.unwrap_or_else(|| json.get().to_owned())
}

impl AgentOutput {
    /// Reads a task of the agent, or a persisted one. All artifacts together may have `most` bytes.
    ///
    /// # Errors
    ///
    /// [`ArtifactLimitExceeded`] if they have more.
    pub fn from_task(task: Task, most: usize) -> Result<Self, ArtifactLimitExceeded> {
        let mut work = Self::new(most);
        work.task(task)?;
        Ok(work)
    }

    /// Returns the output as a task for persistence; `None` while the agent has not named it.
    pub fn to_task(&self) -> Option<Task> {
        let status = TaskStatus {
            state: self.state.unwrap_or(TaskState::Submitted),
            message: self.status.clone(),
            timestamp: self.timestamp.clone(),
        };
        Some(Task {
            id: self.task_id.clone()?,
            context_id: self.context_id.clone(),
            status,
            artifacts: self.artifacts.iter().cloned().collect(),
            history: self.history.clone(),
            metadata: self.metadata.written(),
        })
    }

    /// Returns true if the task has ended and [`Self::to_task`] loses nothing but phases, omitted names and
    /// the skill.
    pub(crate) fn is_whole_in_task(&self) -> bool {
        self.state.is_some_and(TaskState::is_terminal)
            && self.task_id.is_some()
            && self.reply.is_none()
            && self.closing.is_empty()
            && self.artifacts.is_one_turn()
            && (self.question.is_none() && self.stamp.is_none() && self.round == 0 && !self.is_answered)
    }

    /// Evicts the artifacts of a finished task: the agent still has them.
    pub(crate) fn evict_artifacts(&mut self) {
        let has_some = self.artifacts.iter().next().is_some();
        if self.state() == OutputState::Finished && has_some {
            self.artifacts_shed = self.artifacts.replace_all(Vec::new()).is_ok();
        }
    }

    /// Restores evicted artifacts from the agent's task, and its last message if that is missing. The
    /// state of the task does not change.
    ///
    /// # Errors
    ///
    /// [`ArtifactLimitExceeded`] if the artifacts exceed their limit; then nothing changed.
    pub(crate) fn restore_artifacts(&mut self, task: Task) -> Result<(), ArtifactLimitExceeded> {
        if self.task_id.as_ref() != Some(&task.id) {
            return Ok(());
        }
        if self.artifacts_shed {
            self.artifacts.replace_all(task.artifacts)?;
            self.artifacts_shed = false;
            self.status = self.status.take().or(task.status.message);
        }
        self.remember(task.history);
        Ok(())
    }

    /// Keeps the newest history, unless that would lose the agent's last message. It is parsed only
    /// if there was one before, or status messages.
    fn remember(&mut self, history: TaskHistory) {
        let says = |history: &TaskHistory| history.last_agent_message().is_some();
        if self.history.bytes() == 0 || says(&history) || !says(&self.history) {
            // The new history contains the messages that came as status messages before.
            if !self.closing.is_empty() && says(&history) {
                self.closing.clear();
            }
            self.history = history;
        }
    }
}

/// Maximum size of the text that is kept of status messages. The newest stay.
const MAX_BYTES: usize = 1 << 20;
/// Maximum number of parts that are kept of status messages. The newest stay.
const MAX_PARTS: usize = 1_000;

/// The messages of one turn, merged and bounded.
#[derive(Debug, Default, Clone)]
struct ClosingMessages {
    parts: Vec<Part>,
    bytes: usize,
}

impl ClosingMessages {
    /// Adds a message. Text after text continues it, on a line of its own where both are complete.
    fn add(&mut self, message: &Message) {
        for part in message.parts.iter().filter(|part| !part.is_thought()) {
            self.bytes = self.bytes.saturating_add(part.bytes());
            part.clone().append_to(&mut self.parts);
        }
        self.shrink();
    }

    /// Returns true if there is no message.
    fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Removes everything: a new turn began, or the output is elsewhere.
    fn clear(&mut self) {
        *self = Self::default();
    }

    /// Returns everything as one message of the agent, or `None` if there is nothing.
    fn message(&self) -> Option<Message> {
        (!self.parts.is_empty()).then(|| Message {
            message_id: None,
            role: Role::Agent,
            parts: self.parts.clone(),
            task_id: None,
            context_id: None,
            reference_task_ids: Vec::new(),
            extensions: Vec::new(),
            metadata: None,
        })
    }

    /// Returns the memory that the messages take, in bytes.
    fn memory(&self) -> usize {
        self.bytes + self.parts.len() * size_of::<Part>()
    }

    fn shrink(&mut self) {
        if self.bytes <= MAX_BYTES && self.parts.len() <= MAX_PARTS {
            return;
        }
        let mut room = MAX_BYTES;
        let newest = self.parts.iter().rev().take(MAX_PARTS / 2).take_while(|part| {
            let fits = part.bytes() <= room;
            room = room.saturating_sub(part.bytes());
            fits
        });
        let kept = newest.count();
        let first = self.parts.len().saturating_sub(kept.max(1));
        self.parts.drain(..first);
        if let [Part { body: PartBody::Text(text), .. }] = self.parts.as_mut_slice()
            && text.bytes() > MAX_BYTES
        {
            // Half, so that not every further piece moves a megabyte.
            text.edit(|text| {
                drop(text.drain(..text.ceil_char_boundary(text.len().saturating_sub(MAX_BYTES / 2))))
            });
        } else if self.parts.iter().map(Part::bytes).sum::<usize>() > MAX_BYTES {
            self.parts.clear();
        }
        self.bytes = self.parts.iter().map(Part::bytes).sum();
    }
}

/// Maximum size of names and values that are kept, in bytes; the same for the names of omitted
/// members.
pub(crate) const MOST_BYTES: usize = 64 * 1024;

/// Members of metadata by their names, within `MOST_BYTES`.
#[derive(Debug, Default, Clone)]
pub struct CollectedMetadata {
    members: BTreeMap<String, Box<RawValue>>,
    bytes: usize,
    omitted: BTreeSet<String>,
    omitted_bytes: usize,
}

impl CollectedMetadata {
    /// Returns the members that are kept.
    pub fn members(&self) -> impl Iterator<Item = (&str, &RawValue)> {
        self.members.iter().map(|(name, value)| (name.as_str(), &**value))
    }

    /// Returns a member that is a text.
    pub(crate) fn text(&self, name: &str) -> Option<String> {
        serde_json::from_str(self.members.get(name)?.get()).ok()
    }

    /// Returns the names of omitted members. Names that did not fit either are missing.
    pub(crate) fn omitted(&self) -> impl Iterator<Item = &str> {
        self.omitted.iter().map(String::as_str)
    }

    /// Returns the size of names and values in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes.saturating_add(self.omitted_bytes)
    }

    /// Replaces the content with the metadata of a task.
    fn replace(&mut self, json: &RawValue) {
        *self = Self::default();
        self.add(json);
    }

    /// Adds the metadata of an event: its members replace older ones with the same names.
    fn add(&mut self, json: &RawValue) {
        let members = serde_json::from_str::<BTreeMap<String, &RawValue>>(json.get()).unwrap_or_default();
        let is_kept = |name: &str| name.contains(':') || [PHASE, AGENT_TYPE, BATCH].contains(&name);
        for (name, value) in members.into_iter().filter(|(name, _)| is_kept(name)) {
            if let Some(old) = self.members.remove(&name) {
                self.bytes = self.bytes.saturating_sub(size(&name, &old));
            }
            let bytes = self.bytes.saturating_add(size(&name, value));
            if bytes <= MOST_BYTES {
                self.bytes = bytes;
                if self.omitted.remove(&name) {
                    self.omitted_bytes = self.omitted_bytes.saturating_sub(name.len());
                }
                self.members.insert(name, value.to_owned());
            } else {
                self.omit(name);
            }
        }
    }

    /// Records the name of a member that is not kept.
    pub(crate) fn omit(&mut self, name: String) {
        let bytes = self.omitted_bytes.saturating_add(name.len());
        if bytes <= MOST_BYTES && !self.omitted.contains(&name) {
            self.omitted_bytes = bytes;
            self.omitted.insert(name);
        }
    }

    /// Returns the kept members as a JSON object; `None` if there are none.
    fn written(&self) -> Option<Box<RawValue>> {
        if self.members.is_empty() { None } else { to_raw_value(&self.members).ok() }
    }
}

fn size(name: &str, value: &RawValue) -> usize {
    name.len().saturating_add(value.get().len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::a2a::{Dialect, read_task};

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
            status: TaskStatus { state, message: said.map(Box::new), timestamp: None },
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
        let note = |note: Option<ProgressUpdate>| Some(note?.text?.into_string());
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
    fn names_of_files_and_empty_parts_take_room_too() {
        let mut work = AgentOutput::new(10);
        for number in 0..20 {
            let mut said = message(&number.to_string(), "");
            let name = format!("{number}{}", "n".repeat(MAX_BYTES / 4));
            said.parts = vec![Part { filename: Some(name), ..Part::new(PartBody::Url("u".to_owned())) }];
            work.apply(status(TaskState::Working, Some(said))).unwrap();
            let held = work.closing.parts.iter().filter_map(|part| part.filename.as_ref()).map(String::len);
            assert!(held.sum::<usize>() <= MAX_BYTES, "{number}");
        }
        let mut said = message("empty", "");
        let null = || serde_json::value::RawValue::from_string("null".to_owned()).unwrap();
        said.parts = (0..1000).map(|_| Part::new(PartBody::Data(null()))).collect();
        work.apply(status(TaskState::InputRequired, Some(said))).unwrap();
        assert!(work.bytes() >= 1000 * size_of::<Part>(), "{}", work.bytes());
    }

    #[test]
    fn artifacts_have_a_limit() {
        let mut work = AgentOutput::new(20);
        assert!(work.apply(chunk(&"x".repeat(100), false)).is_err());
    }

    fn asked(status: &str) -> AgentOutput {
        let task = format!(r#"{{"id":"t","status":{{"state":"input-required",{status}}}}}"#);
        AgentOutput::from_task(read_task(task.as_bytes()).unwrap(), 1000).unwrap()
    }

    fn turn(status: &str) -> Option<Fingerprint> {
        asked(status).question_turn()
    }

    #[test]
    fn question_is_another_one_when_its_words_are() {
        let one = turn(r#""timestamp":"1","message":{"messageId":"1","parts":[{"text":"a"}]}"#);
        let again = turn(r#""timestamp":"2","message":{"messageId":"2","parts":[{"text":"a"}]}"#);
        let other = turn(r#""timestamp":"1","message":{"messageId":"1","parts":[{"text":"b"}]}"#);
        assert!(one.is_some() && one == again && one != other);
    }

    #[test]
    fn question_keeps_its_words_until_the_agent_says_more() {
        let mut work = asked(r#""timestamp":"1","message":{"messageId":"1","parts":[{"text":"a"}]}"#);
        let (turn, left) = (work.question_turn(), r#"{"id":"t","status":{"state":"input-required"}}"#);
        let left = StreamResponse::Task(read_task(left.as_bytes()).unwrap());
        assert!(work.has_taken_words_in(&left));
        assert_eq!(work.apply(left.clone()), Ok(None));
        assert_eq!((work.question_turn(), work.status_text().as_str()), (turn, "a"));
        work.leave_question();
        assert!(!work.has_taken_words_in(&left) && work.question_turn().is_none());
        assert!(work.apply(left).unwrap().is_some());
        assert!(work.question_turn().is_some() && work.question_turn() != turn);
    }

    fn task(state: &str, history: &str) -> Task {
        let json = format!(
            r#"{{"id":"t","contextId":"c","status":{{"state":"{state}","timestamp":"1","message":{{"parts":[{{"text":"said"}}]}}}},
            "artifacts":[{{"artifactId":"a","parts":[{{"text":"made"}}]}}],"history":{history}}}"#
        );
        read_task(json.as_bytes()).unwrap()
    }

    #[test]
    fn work_that_is_kept_as_a_task_comes_back() {
        assert!(AgentOutput::new(10).to_task().is_none());
        for state in ["submitted", "working", "input-required", "completed", "failed", "odd"] {
            let work = AgentOutput::from_task(task(state, r#"[{"role":"user"}]"#), 1000).unwrap();
            let again = AgentOutput::from_task(work.to_task().unwrap(), 1000).unwrap();
            assert_eq!(format!("{again:?}"), format!("{work:?}"));
            assert_eq!(again.question_turn(), work.question_turn());
        }
        let mut work = AgentOutput::from_task(task("working", "[]"), 1000).unwrap();
        let update = r#"{"jsonrpc":"2.0","id":1,"result":{"statusUpdate":{"taskId":"t","metadata":{"urn:a":1},"status":{"state":"completed"}}}}"#;
        work.apply(Dialect::V1.event(update.as_bytes()).unwrap()).unwrap();
        let again = AgentOutput::from_task(work.to_task().unwrap(), 1000).unwrap();
        assert_eq!(again.metadata.members().map(|(name, _)| name).collect::<Vec<_>>(), ["urn:a"]);
        assert!(AgentOutput::from_task(task("completed", "[]"), 20).is_err());
    }

    #[test]
    fn replaced_output_is_dropped() {
        let mut work = AgentOutput::from_task(task("completed", "[]"), 1000).unwrap();
        let before = work.bytes();
        work.evict_artifacts();
        assert!(work.artifacts_shed && work.artifacts().count() == 0 && work.bytes() < before);
        work.restore_artifacts(Task { id: "another".into(), ..task("completed", "[]") }).unwrap();
        assert!(work.artifacts_shed);
        work.restore_artifacts(task("failed", "[]")).unwrap();
        assert!(!work.artifacts_shed && work.artifacts().count() == 1 && work.bytes() == before);
        assert_eq!(work.state, Some(TaskState::Completed));
    }

    #[test]
    fn work_that_goes_on_drops_nothing() {
        let mut work = AgentOutput::from_task(task("working", "[]"), 1000).unwrap();
        work.evict_artifacts();
        assert!(!work.artifacts_shed && work.artifacts().count() == 1);
    }

    fn said(texts: &[&str]) -> ClosingMessages {
        let mut closing = ClosingMessages::default();
        for text in texts {
            let mut message = ClosingMessages::default();
            message.parts.push(Part::new(PartBody::Text((*text).into())));
            closing.add(&message.message().unwrap());
        }
        closing
    }

    fn text(closing: &ClosingMessages) -> String {
        closing.message().map(|message| words(&message)).unwrap_or_default()
    }

    #[test]
    fn pieces_become_one_text() {
        for (pieces, expected) in [
            (vec!["The answer"], "The answer"),
            (vec!["It", " is", " 21", "°", "C", "."], "It is 21°C."),
            (vec!["Hel", "lo, ", "Java", "Script"], "Hello, JavaScript"),
            (vec!["Looking it up…", "It is 21 °C."], "Looking it up…\nIt is 21 °C."),
            (vec![], ""),
        ] {
            assert_eq!(text(&said(&pieces)), expected);
        }
    }

    #[test]
    fn newest_bytes_stay_within_bound() {
        let piece = " word".repeat(10_000);
        let mut closing = ClosingMessages::default();
        for _ in 0..100 {
            let one = said(&[&piece]);
            closing.add(&one.message().unwrap());
            assert!(closing.bytes <= MAX_BYTES + piece.len(), "{}", closing.bytes);
        }
        let last = said(&[" the end"]);
        closing.add(&last.message().unwrap());
        assert!(text(&closing).ends_with("word the end") && text(&closing).len() >= MAX_BYTES / 4);
        closing.clear();
        assert_eq!((closing.bytes, closing.message().is_none()), (0, true));
    }

    fn raw(json: &str) -> Box<RawValue> {
        RawValue::from_string(json.to_owned()).unwrap()
    }

    fn kept(metadata: &CollectedMetadata) -> String {
        metadata.written().map_or_else(String::new, |json| json.get().to_owned())
    }

    #[test]
    fn the_newest_word_on_each_name_is_kept_and_a_task_begins_anew() {
        let mut metadata = CollectedMetadata::default();
        for (is_task, json, expected) in [
            (true, r#"{"urn:a":1,"urn:b":{"x": 1.0},"plain":"x"}"#, r#"{"urn:a":1,"urn:b":{"x": 1.0}}"#),
            (false, r#"{"urn:a":2,"progress":1}"#, r#"{"urn:a":2,"urn:b":{"x": 1.0}}"#),
            (false, "[1]", r#"{"urn:a":2,"urn:b":{"x": 1.0}}"#),
            (true, r#"{"urn:c":3}"#, r#"{"urn:c":3}"#),
            (true, r#"{"plain":3}"#, ""),
        ] {
            match is_task {
                true => metadata.replace(&raw(json)),
                false => metadata.add(&raw(json)),
            }
            assert_eq!(kept(&metadata), expected, "{json}");
            let mut again = CollectedMetadata::default();
            metadata.written().iter().for_each(|json| again.add(json));
            assert_eq!(metadata.bytes(), again.bytes(), "{json}");
        }
    }

    #[test]
    fn omitted_output_is_noted() {
        let large = format!(r#"{:?}"#, "x".repeat(MOST_BYTES));
        let mut metadata = CollectedMetadata::default();
        metadata.add(&raw(&format!(r#"{{"urn:a":1,"urn:b":{large},"plain":{large}}}"#)));
        assert_eq!(
            (kept(&metadata).as_str(), metadata.omitted().collect()),
            (r#"{"urn:a":1}"#, vec!["urn:b"])
        );
        assert!(metadata.bytes() < 20);
        metadata.add(&raw(&format!(r#"{{"urn:a":{large}}}"#)));
        assert_eq!(kept(&metadata), "", "the old word does not stand for the new one");
        metadata.add(&raw(r#"{"urn:a":2,"urn:b":3}"#));
        assert_eq!((kept(&metadata).as_str(), metadata.omitted().count()), (r#"{"urn:a":2,"urn:b":3}"#, 0));
        let many: Vec<String> = (0..3000).map(|at| format!(r#""urn:{at}{}":1"#, "y".repeat(100))).collect();
        metadata.add(&raw(&format!("{{{}}}", many.join(","))));
        assert!((MOST_BYTES..=2 * MOST_BYTES).contains(&metadata.bytes()), "{}", metadata.bytes());
    }
}
