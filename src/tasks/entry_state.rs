//! What is known of a task at one moment.
//!
//! Not here: locks, who is woken (see `entry`), what an event does (see `bridge::work`).

use std::time::Instant;

use super::Timestamp;
use super::answer_log::AnswerLog;
use super::phase::ends_task;
use crate::a2a::TaskState;
use crate::bridge::output::{AgentOutput, OutputState, ProgressUpdate};
use crate::fault::{AgentFailure, TaskDelay};

/// Callers that are remembered as holders of a handle; the oldest goes first.
const MAX_OWNERS: usize = 16;
/// What an entry takes beyond what is counted, in bytes.
const OVERHEAD: usize = 1024;

/// What the client was told in spite of the agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientOverride {
    /// Cancelled, although the agent did not stop.
    Cancelled,
}

/// What is known of a task at one moment.
#[derive(Debug)]
pub struct EntryState {
    /// The work so far.
    pub work: AgentOutput,
    /// The last thing that was new.
    pub last: Option<ProgressUpdate>,
    /// Why following ended, if it has and nobody follows anew.
    pub over: Option<Result<(), AgentFailure>>,
    /// What the client was told in spite of the agent.
    pub verdict: Option<ClientOverride>,
    /// Why it does not go on at present, if that is known.
    pub delay: Option<TaskDelay>,
    /// The client wants the work stopped; the agent may not have named it yet.
    pub cancel_wanted: bool,
    /// When it was first known here.
    pub created: Timestamp,
    /// When it last changed.
    pub changed: Timestamp,
    pub(super) turns: AnswerLog,
    pub(super) owners: Vec<Box<str>>,
    /// How it flowed when its holders were told last.
    flow: (bool, Option<TaskState>),
    pub(super) watchers: usize,
    pub(super) expected: Option<Instant>,
    pub(super) is_followed: bool,
    /// Whether it is kept where tasks are kept.
    pub(super) is_acknowledged: bool,
    /// Whether the agent has lost its artifacts, so that they must stay here.
    pub(super) keeps_artifacts: bool,
}

/// What the map decides by.
pub(super) struct EvictionInfo {
    pub(super) is_finished: bool,
    pub(super) is_watched: bool,
    pub(super) expected: Option<Instant>,
    pub(super) is_followed: bool,
    pub(super) bytes: usize,
}

impl EntryState {
    /// Nothing more will come: the agent has said its last word, or there will be none.
    pub fn is_finished(&self) -> bool {
        match &self.over {
            _ if self.work.state() == OutputState::Finished => true,
            Some(Err(trouble)) => ends_task(trouble) || self.work.task_id.is_none(),
            Some(Ok(())) | None => false,
        }
    }

    /// Finds out how often the question that is shown was answered before.
    pub(super) fn count_rounds(&mut self) {
        if let Some(shown) = self.work.question_turn() {
            self.work.set_round(self.turns.round_of(shown.to_bytes()));
        }
    }

    pub(super) fn can_evict_artifacts(&self) -> bool {
        self.is_finished() && !self.keeps_artifacts && !self.work.artifacts_shed
    }

    /// Whether somebody listens to the agent for this task.
    pub fn is_followed(&self) -> bool {
        self.is_followed
    }

    /// Who watches now.
    pub fn watchers(&self) -> usize {
        self.watchers
    }

    /// Callers that hold a handle.
    pub fn owners(&self) -> impl Iterator<Item = &str> {
        self.owners.iter().map(AsRef::as_ref)
    }

    pub(super) fn new(work: AgentOutput, now: Timestamp) -> Self {
        Self {
            work,
            last: None,
            over: None,
            verdict: None,
            delay: None,
            cancel_wanted: false,
            created: now,
            changed: now,
            turns: AnswerLog::default(),
            owners: Vec::new(),
            flow: (false, None),
            watchers: 0,
            expected: None,
            is_followed: false,
            is_acknowledged: false,
            keeps_artifacts: false,
        }
    }

    /// A caller holds a handle. `None` if that is known; else who is forgotten for it, if somebody is.
    pub(super) fn own(&mut self, caller: &str) -> Option<Option<Box<str>>> {
        if self.owners().any(|owner| owner == caller) {
            return None;
        }
        let forgotten = (self.owners.len() >= MAX_OWNERS).then(|| self.owners.remove(0));
        self.owners.push(caller.into());
        Some(forgotten)
    }

    /// Takes in what another process knows of the same task. A last word is taken in any case; of live work the newer counts, unless
    /// this process listens to the agent itself.
    pub(super) fn learn(&mut self, other: Self) {
        other.turns.all().for_each(|turn| self.turns.merge(turn));
        self.verdict = self.verdict.or(other.verdict);
        if self.work.state() == OutputState::Finished {
            return;
        }
        let is_newer = !self.is_followed && other.changed.unix_ms >= self.changed.unix_ms;
        if is_newer || other.is_finished() {
            self.work = other.work;
            self.over = other.over;
            self.changed = other.changed;
        }
    }

    /// Whether it flows otherwise than when this was asked last: somebody listens to its agent, or not; in which state it is.
    pub(super) fn streaming_changed(&mut self) -> bool {
        let flow = (self.is_followed && !self.is_finished(), self.work.state);
        std::mem::replace(&mut self.flow, flow) != flow
    }

    pub(super) fn bytes(&self) -> usize {
        let owners: usize = self.owners().map(str::len).sum();
        let ids = [&self.work.task_id, &self.work.context_id].into_iter().flatten().map(String::len);
        let note = self.last.as_ref().and_then(|note| note.text.as_ref()).map_or(0, String::len);
        OVERHEAD + owners + ids.sum::<usize>() + note + self.turns.bytes() + self.work.bytes()
    }

    pub(super) fn eviction_info(&self) -> EvictionInfo {
        EvictionInfo {
            is_finished: self.is_finished(),
            is_watched: self.watchers > 0,
            expected: self.expected,
            is_followed: self.is_followed,
            bytes: self.bytes(),
        }
    }
}
