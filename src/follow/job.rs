//! What is handed over to be followed.
//!
//! Not here: following it (see `followers`).

use std::sync::Arc;

use tokio::sync::oneshot;

use super::push_trigger::RefreshGuard;
use crate::agents::{DetachableCall, ResolvedAgent};
use crate::bridge::output::AgentOutput;
use crate::fault::AgentFailure;
use crate::tasks::{CancelGuard, FollowGuard, TaskEntry, Timestamp};

/// A call whose client leaves it.
pub struct DetachedCall {
    /// The call itself.
    pub drive: DetachableCall,
    /// What is known so far.
    pub work: AgentOutput,
    /// The agent's name.
    pub agent: Arc<str>,
    /// How the agent is called.
    pub known: Arc<ResolvedAgent>,
    /// The number that the client may hold.
    pub local: [u8; 16],
}

/// How a call is left that nobody holds a handle of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DetachMode {
    /// Nobody can ask for it, but the agent must not lose its listener.
    Drain,
    /// The work is to be stopped as soon as the agent has named it.
    Stop,
}

/// What the background does with a call.
pub(super) enum BackgroundJob {
    /// Follow the task to its end, and tell whoever asked when the agent has taken what was said.
    Follow {
        /// The task.
        entry: Arc<TaskEntry>,
        /// What is under way at the agent.
        drive: DetachableCall,
        /// How the agent is called.
        known: Arc<ResolvedAgent>,
        /// The right to follow it.
        following: FollowGuard,
        /// Who waits for the agent's first word.
        said: Option<SendCompletion>,
    },
    /// Say something in a task that is followed elsewhere.
    Beside {
        /// The task.
        entry: Arc<TaskEntry>,
        /// What is under way at the agent.
        drive: DetachableCall,
        /// How the agent is called.
        known: Arc<ResolvedAgent>,
        /// Who waits for the agent's first word.
        said: SendCompletion,
    },
    /// Listen to the end of a call that nobody asks for.
    Leave(Box<DetachedCall>, DetachMode),
    /// Stop a task.
    Cancel(CancelGuard, Arc<ResolvedAgent>),
    /// See how a task stands, because its agent says that there is something to see.
    Look(Arc<TaskEntry>, Arc<ResolvedAgent>, RefreshGuard),
}

/// What happens when the agent has taken what was said, or has not.
pub(super) struct SendCompletion {
    /// Who waits to hear of it.
    pub(super) tell: oneshot::Sender<Result<(), AgentFailure>>,
    /// The question that was answered by it.
    pub(super) turn: Option<[u8; 16]>,
}

impl SendCompletion {
    /// Tells whoever waits how it came out. A question whose answer surely was not taken is open again.
    pub(super) fn complete(self, entry: &TaskEntry, result: Result<(), AgentFailure>) {
        match (self.turn, &result) {
            (Some(turn), Ok(())) => entry.mark_answer_sent(turn),
            // Nobody knows whether the agent has it: no other answer is taken until it has said how the task stands.
            (Some(turn), Err(trouble @ (AgentFailure::Timeout(_) | AgentFailure::ConnectionLost(_)))) => {
                entry.mark_answer_unconfirmed(turn, trouble)
            }
            (Some(turn), Err(trouble)) => entry.release_answer(turn, trouble.clone()),
            (None, _) => {}
        }
        // Whoever asked may have left.
        drop(self.tell.send(result));
    }
}

impl BackgroundJob {
    /// There is no room to do it: what was to be said is not said.
    pub(super) fn give_up(self) {
        let trouble = AgentFailure::Internal("too much waits to be said; nothing was sent");
        match self {
            Self::Follow { entry, following, said: Some(said), .. } => {
                entry.end(Ok(()), Timestamp::now());
                drop(following);
                said.complete(&entry, Err(trouble));
            }
            Self::Beside { entry, said, .. } => said.complete(&entry, Err(trouble)),
            Self::Follow { said: None, .. } | Self::Leave(..) | Self::Cancel(..) | Self::Look(..) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tasks::AnswerClaim;

    #[test]
    fn an_answer_is_taken_again_only_if_it_surely_or_perhaps_did_not_arrive() {
        let (turn, digest, other) = ([1; 16], [2; 16], [3; 16]);
        for (result, same, another) in [
            (Ok(()), AnswerClaim::Same, AnswerClaim::Other),
            (Err(AgentFailure::Internal("full")), AnswerClaim::Ours, AnswerClaim::Ours),
            (Err(AgentFailure::Unreachable("refused")), AnswerClaim::Ours, AnswerClaim::Ours),
            (Err(AgentFailure::ConnectionLost("cut off")), AnswerClaim::Ours, AnswerClaim::Other),
            (Err(AgentFailure::Timeout("no answer")), AnswerClaim::Ours, AnswerClaim::Other),
        ] {
            let again = |digest| {
                let entry = TaskEntry::new("bard".into(), [7; 16], AgentOutput::new(100), Timestamp::now());
                assert_eq!(entry.claim_answer(turn, [2; 16]), AnswerClaim::Ours);
                assert_eq!(entry.claim_answer(turn, [2; 16]), AnswerClaim::Same, "while it is on its way");
                let (tell, mut heard) = oneshot::channel();
                SendCompletion { tell, turn: Some(turn) }.complete(&entry, result.clone());
                assert_eq!(heard.try_recv().unwrap(), result);
                let first = entry.claim_answer(turn, digest);
                (first, entry.claim_answer(turn, digest))
            };
            assert_eq!(again(digest), (same, AnswerClaim::Same), "{result:?}");
            let second = if another == AnswerClaim::Ours { AnswerClaim::Same } else { AnswerClaim::Other };
            assert_eq!(again(other), (another, second), "{result:?}");
        }
    }
}
