//! The jobs of the background: detached calls, messages, cancellations and refreshes.
//!
//! See also `task_follower`, which runs them.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::push_trigger::RefreshGuard;
use crate::agents::{DetachableCall, ResolvedAgent};
use crate::bridge::output::AgentOutput;
use crate::fault::AgentFailure;
use crate::tasks::{CancelGuard, FollowGuard, TaskEntry, Timestamp};

/// A call that its client leaves.
pub struct DetachedCall {
    /// The call itself.
    pub drive: DetachableCall,
    /// The output so far.
    pub work: AgentOutput,
    /// The agent's name.
    pub agent: Arc<str>,
    /// Address and credentials of the agent.
    pub known: Arc<ResolvedAgent>,
    /// The number that the client may hold.
    pub local: [u8; 16],
}

/// Treatment of a call that no client holds a handle of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DetachMode {
    /// No client can ask for it, but the agent must not lose its listener.
    Drain,
    /// The task is cancelled as soon as the agent has named it.
    Stop,
}

/// Job of the background.
pub(super) enum BackgroundJob {
    /// Follows the task to its end, and notifies the sender when the agent has accepted its
    /// message.
    Follow {
        /// The task.
        entry: Arc<TaskEntry>,
        /// The exchange with the agent.
        drive: DetachableCall,
        /// Address and credentials of the agent.
        known: Arc<ResolvedAgent>,
        /// The right to follow it.
        following: FollowGuard,
        /// Notifies the sender of the message, if there is one.
        said: Option<SendCompletion>,
    },
    /// Sends a message in a task that another exchange follows.
    Beside {
        /// The task.
        entry: Arc<TaskEntry>,
        /// The exchange with the agent.
        drive: DetachableCall,
        /// Address and credentials of the agent.
        known: Arc<ResolvedAgent>,
        /// Notifies the sender of the message.
        said: SendCompletion,
    },
    /// Reads the stream of a call that no client asks for, to its end.
    Leave(Box<DetachedCall>, DetachMode),
    /// Cancels a task.
    Cancel(CancelGuard, Arc<ResolvedAgent>),
    /// Refreshes a task, because its agent has pushed.
    Look(Arc<TaskEntry>, Arc<ResolvedAgent>, RefreshGuard),
}

/// Completion of a message: the agent has accepted it, or has not.
pub(super) struct SendCompletion {
    /// Notifies the sender.
    pub(super) tell: oneshot::Sender<Result<(), AgentFailure>>,
    /// The question that the message answers.
    pub(super) turn: Option<[u8; 16]>,
}

impl SendCompletion {
    /// Notifies the sender of the result. A question is open again if its answer was certainly not
    /// received.
    pub(super) fn complete(self, entry: &TaskEntry, result: Result<(), AgentFailure>) {
        match (self.turn, &result) {
            (Some(turn), Ok(())) => entry.mark_answer_sent(turn),
            // The delivery is unconfirmed: no other answer is accepted until the agent has reported
            // the state of the task.
            (Some(turn), Err(trouble @ (AgentFailure::Timeout(_) | AgentFailure::ConnectionLost(_)))) => {
                entry.mark_answer_unconfirmed(turn, trouble)
            }
            (Some(turn), Err(trouble)) => entry.release_answer(turn, trouble.clone()),
            (None, _) => {}
        }
        // The sender may have left.
        drop(self.tell.send(result));
    }
}

impl BackgroundJob {
    /// Reports that there is no room: the message is not sent.
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
