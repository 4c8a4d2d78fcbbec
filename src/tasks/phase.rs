//! The phase of a task: its state as waiters see it.
//!
//! More than the agent's state: a question that has been answered here is not open any more, even
//! while the agent repeats it; a task that the agent reports lost, or over which the agent breaks
//! the protocol, has failed. See also `bridge::task_status` for the status that clients see.

use super::entry_state::EntryState;
use crate::a2a::{Fingerprint, TaskState};
use crate::bridge::output::OutputState;
use crate::fault::AgentFailure;

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

/// Refusal of a user to answer a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerRefusal {
    /// The user declined.
    Declined,
    /// The user dismissed the question without an answer.
    Dismissed,
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
}

impl EntryState {
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
pub(super) fn ends_task(trouble: &AgentFailure) -> bool {
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
            assert_eq!(entry.visible_state(EntryState::is_finished), failed);
        }
    }

    #[test]
    fn the_agents_last_word_counts_more_than_how_following_ended() {
        let entry = entry(TaskState::Completed);
        entry.end(Err(AgentFailure::TaskNotFound), Timestamp::now());
        assert_eq!(phase(&entry), TaskPhase::Finished);
    }
}
