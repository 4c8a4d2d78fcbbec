//! The state of a task at one moment, and its phase as waiters see it.
//!
//! The phase is more than the agent's state: a question that has been answered here is not open any
//! more, even while the agent repeats it; a task that the agent reports lost, or over which the
//! agent breaks the protocol, has failed. The lock of the state and its watchers are in `entry`. See
//! also `bridge::task_status` for the status that clients see.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};
use std::sync::Arc;
use std::time::Instant;

use super::answer_log::{AnswerLog, AnswerRefusal};
use super::{EventOrigin, EventPosition, Timestamp};
use crate::a2a::{Fingerprint, TaskState};
use crate::bridge::output::{AgentOutput, OutputState, ProgressUpdate};
use crate::bridge::resource_view::{ClientSoftware, EventLog};
use crate::fault::{AgentFailure, TaskDelay};

/// Callers that are remembered as holders of a handle; the oldest is dropped first.
const MAX_OWNERS: usize = 16;
/// Bytes of an entry, its keys and its place in the indexes that are not counted one by one.
/// `benches/tasks` compares the counted size with the memory.
const OVERHEAD: usize = 1024;
/// The same of an entry with a compressed state.
pub(super) const COMPRESSED_OVERHEAD: usize = 512;

/// Status that the client got although the agent reports another.
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
    /// Number of times that there was new progress.
    pub(crate) updates: u64,
    /// Result of following, if it ended and no follower has begun anew.
    pub over: Option<Result<(), AgentFailure>>,
    /// Status that the client got although the agent reports another.
    pub verdict: Option<ClientOverride>,
    /// Reason for which the task makes no progress at present, if known.
    pub delay: Option<TaskDelay>,
    /// True if the client wants the task cancelled; the agent may not have named it yet.
    pub cancel_wanted: bool,
    /// Time at which the entry was created, in milliseconds since 1970.
    pub created_ms: u64,
    /// Time of the last change.
    pub changed: Timestamp,
    /// Position of the last event that is part of the output, among those that replicas share.
    pub(super) position: EventPosition,
    /// Progress of a task that is followed among replicas.
    pub(super) shared: Option<Box<SharedProgress>>,
    pub(super) turns: AnswerLog,
    pub(super) owners: Vec<Box<str>>,
    /// Streaming flag, state and number of phases of which the owners were notified last.
    flow: (bool, Option<TaskState>, u8),
    /// The last events of the agent.
    pub(crate) events: EventLog,
    /// Software of the client that began the task, if that client told it.
    pub client: Option<Arc<ClientSoftware>>,
    /// Number of times that the gateway began to follow the agent's stream of this task.
    pub(super) connections: u32,
    pub(super) watchers: usize,
    pub(super) expected: Option<Instant>,
    pub(super) is_followed: bool,
    /// True if the task is persisted, where tasks are.
    pub(super) is_acknowledged: bool,
    /// True if a client got a handle before the agent had named the task.
    pub(super) has_local_handle: bool,
    /// True if the agent has lost the artifacts, so that they must stay here.
    pub(super) keeps_artifacts: bool,
}

/// Facts by which the map chooses the entries to evict.
pub(super) struct EvictionInfo {
    pub(super) is_finished: bool,
    pub(super) is_watched: bool,
    pub(super) expected: Option<Instant>,
    pub(super) is_followed: bool,
    pub(super) is_compressed: bool,
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
            updates: 0,
            over: None,
            verdict: None,
            delay: None,
            cancel_wanted: false,
            created_ms: now.unix_ms,
            changed: now,
            position: EventPosition::default(),
            shared: None,
            turns: AnswerLog::default(),
            owners: Vec::new(),
            flow: (false, None, 0),
            events: EventLog::default(),
            client: None,
            connections: 0,
            watchers: 0,
            expected: None,
            is_followed: false,
            is_acknowledged: false,
            has_local_handle: false,
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
        // Most entries have one owner.
        self.owners.reserve_exact(1);
        self.owners.push(caller.into());
        Some(forgotten)
    }

    /// Sets the origin of the events from now on.
    pub(super) fn set_origin(&mut self, origin: EventOrigin) {
        let shared = self.shared.get_or_insert_default();
        shared.reads_agent = origin == EventOrigin::Agent;
        shared.is_catching_up = origin == EventOrigin::Replica && !shared.reported.is_empty();
    }

    /// Reports progress to watchers, unless they have it from this replica's own reading.
    pub(super) fn report(&mut self, note: ProgressUpdate) {
        if self.shared.as_mut().is_none_or(|shared| shared.is_new(&note)) {
            self.last = Some(note);
            self.updates += 1;
        }
    }

    /// Merges the state that another process has of the same task. A final state always wins; of
    /// live output the one with later events wins, else the newer one, unless this process follows
    /// the task itself.
    pub(super) fn learn(&mut self, other: Self) {
        for (turn, digest, is_sent) in other.turns.all() {
            self.turns.merge(turn, digest, is_sent);
        }
        self.turns.restore_left(&other.turns.left().collect::<Vec<_>>());
        self.verdict = self.verdict.or(other.verdict);
        self.client = self.client.take().or_else(|| other.client.clone());
        if self.work.state() == OutputState::Finished {
            return;
        }
        let is_newer = match other.position.cmp(&self.position) {
            Ordering::Less => false,
            Ordering::Equal => !self.is_followed && other.changed.unix_ms >= self.changed.unix_ms,
            // The events that this replica reads continue its own output.
            Ordering::Greater => self.shared.as_ref().is_none_or(|shared| !shared.reads_agent),
        };
        if is_newer || other.is_finished() {
            self.position = self.position.max(other.position);
            self.work = other.work;
            self.over = other.over;
            self.changed = other.changed;
        }
        self.count_rounds();
    }

    /// Returns the number of times that the gateway began to follow the agent's stream.
    pub fn connections(&self) -> u32 {
        self.connections
    }

    /// Returns true if the streaming flag, the task state or the phase changed since the last call.
    pub(super) fn streaming_changed(&mut self) -> bool {
        let phases = u8::try_from(self.work.phases.len()).unwrap_or(u8::MAX);
        let flow = (self.is_followed && !self.is_finished(), self.work.state, phases);
        std::mem::replace(&mut self.flow, flow) != flow
    }

    pub(super) fn bytes(&self) -> usize {
        let owners: usize = self.owners().map(str::len).sum();
        let ids = [&self.work.task_id, &self.work.context_id].into_iter().flatten().map(String::len);
        let note = self.last.as_ref().map_or(0, ProgressUpdate::bytes);
        OVERHEAD
            + owners
            + ids.sum::<usize>()
            + note
            + self.client.as_ref().map_or(0, |client| client.bytes())
            + self.turns.bytes()
            + self.work.bytes()
            + self.events.bytes()
            + self.shared.as_ref().map_or(0, |shared| shared.reported.len() * size_of::<u64>())
    }

    pub(super) fn eviction_info(&self) -> EvictionInfo {
        EvictionInfo {
            is_finished: self.is_finished(),
            is_watched: self.watchers > 0,
            expected: self.expected,
            is_followed: self.is_followed,
            is_compressed: false,
            bytes: self.bytes(),
        }
    }
}

/// Progress updates that are remembered of a task: more than there are events after its row at the
/// engine.
const MAX_REPORTED: usize = 128;

/// Progress of a task that is followed among replicas. While a replica is cut off from the engine it
/// reads the agent itself; the events of another replica repeat some of that afterwards.
#[derive(Debug, Default)]
pub(super) struct SharedProgress {
    /// True while this replica reads the agent's stream.
    reads_agent: bool,
    /// True while the events of another replica may repeat what was reported.
    is_catching_up: bool,
    /// Digests of the last updates that were reported.
    reported: VecDeque<u64>,
}

impl SharedProgress {
    /// Returns true if an update was not reported before.
    fn is_new(&mut self, note: &ProgressUpdate) -> bool {
        let numbers = [note.progress, note.total].map(|number| number.map(f64::to_bits));
        let digest = BuildHasherDefault::<DefaultHasher>::default().hash_one((&note.text, numbers));
        if self.is_catching_up && self.reported.contains(&digest) {
            return false;
        }
        self.is_catching_up = false;
        if self.reported.len() >= MAX_REPORTED {
            self.reported.pop_front();
        }
        self.reported.push_back(digest);
        true
    }
}

/// Phase of a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TaskPhase {
    /// The agent works, or is believed to.
    Running,
    /// A question is open: its fingerprint and the state of the task.
    Asking([u8; 16], TaskState),
    /// The agent has reported a final state.
    Finished,
    /// The agent will report no final state.
    Failed(AgentFailure),
}

impl EntryState {
    /// Returns the phase.
    pub fn phase(&self) -> TaskPhase {
        match (&self.over, self.work.state()) {
            (_, OutputState::Finished) => TaskPhase::Finished,
            (Some(Err(trouble)), _) if ends_task(trouble) || self.work.task_id.is_none() => {
                TaskPhase::Failed(trouble.clone())
            }
            (_, OutputState::Running) => TaskPhase::Running,
            (_, OutputState::Asking) => match (self.open_turn(), self.work.state) {
                (Some(turn), Some(state)) => TaskPhase::Asking(turn, state),
                _ => TaskPhase::Running,
            },
        }
    }

    /// Returns true if nothing of the task is known but its id.
    pub fn is_unstarted(&self) -> bool {
        self.work.task_id.is_some() && self.work.state.is_none() && self.work.reply.is_none()
    }

    /// Returns true if the task has no follower because only its caller can follow it, with a fresh
    /// token.
    pub fn awaits_caller_token(&self) -> bool {
        matches!(self.over, Some(Err(AgentFailure::TokenExchangeFailed(_)))) && !self.is_followed()
    }

    /// Returns the open question, unless it has been answered here.
    pub fn open_turn(&self) -> Option<[u8; 16]> {
        let turn = self.work.question_turn()?.to_bytes();
        (!self.is_taken(turn)).then_some(turn)
    }

    /// Returns true if a question has been answered here.
    pub fn is_taken(&self, turn: [u8; 16]) -> bool {
        self.turns.is_taken(turn)
    }

    /// Returns true if `digest` is the answer that was given here to the question that the agent
    /// still shows.
    pub fn is_answered_by(&self, digest: [u8; 16]) -> bool {
        let shown = self.work.question_turn().map(Fingerprint::to_bytes).or_else(|| self.turns.last());
        shown.is_some_and(|turn| self.turns.is_answered_by(turn, digest))
    }

    /// Returns true if the delivery of at least one answer is unconfirmed.
    pub fn has_unconfirmed_answer(&self) -> bool {
        self.turns.is_in_doubt()
    }

    /// Returns the question with an answer in flight to the agent, if any.
    pub fn answer_in_flight(&self) -> Option<[u8; 16]> {
        self.turns.under_way()
    }

    /// Returns the question that was answered, as long as the agent has shown nothing else.
    pub fn answered(&self) -> Option<[u8; 16]> {
        self.turns.answered()
    }

    /// Returns the question that was answered last.
    pub fn last_answered(&self) -> Option<[u8; 16]> {
        self.turns.last()
    }

    /// Returns the refusal of a user to answer a question.
    pub fn refusal(&self, turn: [u8; 16]) -> Option<AnswerRefusal> {
        self.turns.refusal(turn)
    }

    /// Returns the failure to send the answer to a question.
    pub fn failure(&self, turn: [u8; 16]) -> Option<&AgentFailure> {
        self.turns.failure(turn)
    }

    /// Returns how many answers could not be sent so far.
    pub fn failures(&self) -> usize {
        self.turns.failures()
    }

    /// Returns the keys of a question that have been answered while others are open.
    pub fn answered_keys(&self, turn: [u8; 16]) -> Vec<String> {
        self.turns.parts(turn).map(str::to_owned).collect()
    }
}

/// Returns true if a failure ends the task, and not only one connection or credential.
fn ends_task(trouble: &AgentFailure) -> bool {
    match trouble {
        AgentFailure::Rejected(_)
        | AgentFailure::VersionNotSupported(_)
        | AgentFailure::TaskNotFound
        | AgentFailure::UnsafeId
        | AgentFailure::ProtocolViolation(_)
        | AgentFailure::LimitExceeded(..) => true,
        AgentFailure::Unreachable(_)
        | AgentFailure::BreakerOpen(_)
        | AgentFailure::CardUnavailable(_)
        | AgentFailure::CardInvalid(_)
        | AgentFailure::Timeout(_)
        | AgentFailure::ConnectionLost(_)
        | AgentFailure::Unauthorized(_)
        | AgentFailure::TokenUnavailable(_)
        | AgentFailure::TokenExchangeFailed(_)
        | AgentFailure::HttpStatus(_)
        | AgentFailure::CallerBytes
        | AgentFailure::Bytes
        | AgentFailure::Internal(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::a2a::{StreamResponse, TaskStatus};
    use crate::bridge::output::AgentOutput;
    use crate::tasks::{AnswerClaim, TaskEntry, Timestamp};

    fn entry(state: TaskState) -> TaskEntry {
        let mut work = AgentOutput::new(1 << 20);
        let status = TaskStatus { state, message: None, timestamp: Some("then".into()) };
        let event = StreamResponse::Status {
            task_id: Some("t".into()),
            context_id: None,
            status,
            last: false,
            metadata: None,
        };
        work.apply(event).unwrap();
        TaskEntry::new("bard".into(), [0; 16], work, Timestamp::now())
    }

    fn phase(entry: &TaskEntry) -> TaskPhase {
        entry.visible_state(|inside| inside.phase())
    }

    #[test]
    fn a_question_is_open_until_it_is_answered_and_again_if_the_answer_is_given_back() {
        let entry = entry(TaskState::InputRequired);
        let TaskPhase::Asking(turn, TaskState::InputRequired) = phase(&entry) else {
            panic!("{:?}", phase(&entry))
        };
        assert_eq!(entry.claim_answer(turn, [1; 16]), AnswerClaim::Ours);
        assert_eq!(phase(&entry), TaskPhase::Running);
        entry.release_answer(turn, AgentFailure::Unreachable("down"));
        assert_eq!(phase(&entry), TaskPhase::Asking(turn, TaskState::InputRequired));
        entry.record_refusal(turn, AnswerRefusal::Declined);
        assert_eq!(entry.visible_state(|inside| inside.refusal(turn)), Some(AnswerRefusal::Declined));
        assert_eq!(entry.visible_state(|inside| inside.refusal([9; 16])), None);
    }

    #[test]
    fn a_task_fails_by_what_its_agent_says_and_not_by_a_connection() {
        for (trouble, failed) in [
            (AgentFailure::TaskNotFound, true),
            (AgentFailure::Rejected("no".into()), true),
            (AgentFailure::ProtocolViolation("odd".into()), true),
            (AgentFailure::Unreachable("down"), false),
            (AgentFailure::ConnectionLost("cut"), false),
            (AgentFailure::Unauthorized(401), false),
            (AgentFailure::TokenExchangeFailed("over"), false),
        ] {
            let entry = entry(TaskState::Working);
            entry.end(Err(trouble.clone()), Timestamp::now());
            let wanted = if failed { TaskPhase::Failed(trouble) } else { TaskPhase::Running };
            assert_eq!(phase(&entry), wanted);
            assert_eq!(entry.is_finished(), failed);
        }
    }

    #[test]
    fn the_agents_last_word_counts_more_than_how_following_ended() {
        let entry = entry(TaskState::Completed);
        entry.end(Err(AgentFailure::TaskNotFound), Timestamp::now());
        assert_eq!(phase(&entry), TaskPhase::Finished);
    }
}
