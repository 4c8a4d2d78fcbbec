//! The state of a task at one moment; its lock and its watchers are in `entry`.

use std::time::Instant;

use super::Timestamp;
use super::answer_log::AnswerLog;
use super::phase::ends_task;
use crate::a2a::TaskState;
use crate::bridge::output::{AgentOutput, OutputState, ProgressUpdate};
use crate::fault::{AgentFailure, TaskDelay};

/// Callers that are remembered as holders of a handle; the oldest is dropped first.
const MAX_OWNERS: usize = 16;
/// Bytes of an entry beyond those that are counted.
const OVERHEAD: usize = 1024;

/// Status that the client was told although the agent reports another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientOverride {
    /// Cancelled, although the agent did not stop.
    Cancelled,
}

/// State of a task at one moment.
#[derive(Debug)]
pub struct EntryState {
    /// The output so far.
    pub work: AgentOutput,
    /// The newest progress.
    pub last: Option<ProgressUpdate>,
    /// Result of following, if it ended and no follower has begun anew.
    pub over: Option<Result<(), AgentFailure>>,
    /// Status that the client was told although the agent reports another.
    pub verdict: Option<ClientOverride>,
    /// Reason for which the task makes no progress at present, if known.
    pub delay: Option<TaskDelay>,
    /// True if the client wants the task cancelled; the agent may not have named it yet.
    pub cancel_wanted: bool,
    /// Time at which the entry was created.
    pub created: Timestamp,
    /// Time of the last change.
    pub changed: Timestamp,
    pub(super) turns: AnswerLog,
    pub(super) owners: Vec<Box<str>>,
    /// Streaming flag and state of which the owners were notified last.
    flow: (bool, Option<TaskState>),
    pub(super) watchers: usize,
    pub(super) expected: Option<Instant>,
    pub(super) is_followed: bool,
    /// True if the task is persisted, where tasks are.
    pub(super) is_acknowledged: bool,
    /// True if the agent has lost the artifacts, so that they must stay here.
    pub(super) keeps_artifacts: bool,
}

/// Facts by which the map chooses the entries to evict.
pub(super) struct EvictionInfo {
    pub(super) is_finished: bool,
    pub(super) is_watched: bool,
    pub(super) expected: Option<Instant>,
    pub(super) is_followed: bool,
    pub(super) bytes: usize,
}

impl EntryState {
    /// Returns true if no more events will come: the agent has reported a final state, or will
    /// report none.
    pub fn is_finished(&self) -> bool {
        match &self.over {
            _ if self.work.state() == OutputState::Finished => true,
            Some(Err(trouble)) => ends_task(trouble) || self.work.task_id.is_none(),
            Some(Ok(())) | None => false,
        }
    }

    /// Sets the round of the open question: how often the same one was answered before.
    pub(super) fn count_rounds(&mut self) {
        if let Some(shown) = self.work.question_turn() {
            self.work.set_round(self.turns.round_of(shown.to_bytes()));
        }
    }

    pub(super) fn can_evict_artifacts(&self) -> bool {
        self.is_finished() && !self.keeps_artifacts && !self.work.artifacts_shed
    }

    /// Returns true if a follower reads the agent's stream of this task.
    pub fn is_followed(&self) -> bool {
        self.is_followed
    }

    /// Returns the number of watchers.
    pub fn watchers(&self) -> usize {
        self.watchers
    }

    /// Returns the callers that hold a handle.
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

    /// Adds a caller that holds a handle. Returns `None` if it is known; else the caller that is
    /// dropped for it, if any.
    pub(super) fn own(&mut self, caller: &str) -> Option<Option<Box<str>>> {
        if self.owners().any(|owner| owner == caller) {
            return None;
        }
        let forgotten = (self.owners.len() >= MAX_OWNERS).then(|| self.owners.remove(0));
        self.owners.push(caller.into());
        Some(forgotten)
    }

    /// Merges the state that another process has of the same task. A final state always wins; of
    /// live output the newer wins, unless this process follows the task itself.
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

    /// Returns true if the streaming flag or the task state changed since the last call.
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
