//! What is handed over to be followed.
//!
//! Not here: following it (see `followers`).

use std::sync::Arc;

use tokio::sync::oneshot;

use super::push::Bell;
use crate::agents::{Drive, Known};
use crate::bridge::work::Work;
use crate::fault::Trouble;
use crate::tasks::{Entry, Following, Stopping, Times};

/// A call whose client leaves it.
pub struct Job {
    /// The call itself.
    pub drive: Drive,
    /// What is known so far.
    pub work: Work,
    /// The agent's name.
    pub agent: Arc<str>,
    /// How the agent is called.
    pub known: Arc<Known>,
    /// The number that the client may hold.
    pub local: [u8; 16],
}

/// How a call is left that nobody holds a handle of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leaving {
    /// Nobody can ask for it, but the agent must not lose its listener.
    Drain,
    /// The work is to be stopped as soon as the agent has named it.
    Stop,
}

/// What the background does with a call.
pub(super) enum Task {
    /// Follow the task to its end, and tell whoever asked when the agent has taken what was said.
    Follow {
        /// The task.
        entry: Arc<Entry>,
        /// What is under way at the agent.
        drive: Drive,
        /// How the agent is called.
        known: Arc<Known>,
        /// The right to follow it.
        following: Following,
        /// Who waits for the agent's first word.
        said: Option<Said>,
    },
    /// Say something in a task that is followed elsewhere.
    Beside {
        /// The task.
        entry: Arc<Entry>,
        /// What is under way at the agent.
        drive: Drive,
        /// How the agent is called.
        known: Arc<Known>,
        /// Who waits for the agent's first word.
        said: Said,
    },
    /// Listen to the end of a call that nobody asks for.
    Leave(Box<Job>, Leaving),
    /// Stop a task.
    Cancel(Stopping, Arc<Known>),
    /// See how a task stands, because its agent says that there is something to see.
    Look(Arc<Entry>, Arc<Known>, Bell),
}

/// What happens when the agent has taken what was said, or has not.
pub(super) struct Said {
    /// Who waits to hear of it.
    pub(super) tell: oneshot::Sender<Result<(), Trouble>>,
    /// The question that was answered by it.
    pub(super) turn: Option<[u8; 16]>,
}

impl Said {
    /// Tells whoever waits how it came out. A question whose answer surely was not taken is open again.
    pub(super) fn came_out(self, entry: &Entry, result: Result<(), Trouble>) {
        match (self.turn, &result) {
            (Some(turn), Ok(())) => entry.turn_sent(turn),
            // Nobody knows whether the agent has it: no other answer is taken until it has said how the task stands.
            (Some(turn), Err(trouble @ (Trouble::Slow(_) | Trouble::Broken(_)))) => {
                entry.doubt_turn(turn, trouble)
            }
            (Some(turn), Err(trouble)) => entry.give_back_turn(turn, trouble.clone()),
            (None, _) => {}
        }
        // Whoever asked may have left.
        drop(self.tell.send(result));
    }
}

impl Task {
    /// There is no room to do it: what was to be said is not said.
    pub(super) fn give_up(self) {
        let trouble = Trouble::Gateway("too much waits to be said; nothing was sent");
        match self {
            Self::Follow { entry, following, said: Some(said), .. } => {
                entry.end(Ok(()), Times::now());
                drop(following);
                said.came_out(&entry, Err(trouble));
            }
            Self::Beside { entry, said, .. } => said.came_out(&entry, Err(trouble)),
            Self::Follow { said: None, .. } | Self::Leave(..) | Self::Cancel(..) | Self::Look(..) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tasks::Turn;

    #[test]
    fn an_answer_is_taken_again_only_if_it_surely_or_perhaps_did_not_arrive() {
        let (turn, digest, other) = ([1; 16], [2; 16], [3; 16]);
        for (result, same, another) in [
            (Ok(()), Turn::Same, Turn::Other),
            (Err(Trouble::Gateway("full")), Turn::Ours, Turn::Ours),
            (Err(Trouble::Unreachable("refused")), Turn::Ours, Turn::Ours),
            (Err(Trouble::Broken("cut off")), Turn::Ours, Turn::Other),
            (Err(Trouble::Slow("no answer")), Turn::Ours, Turn::Other),
        ] {
            let again = |digest| {
                let entry = Entry::new("bard".into(), [7; 16], Work::new(100), Times::now());
                assert_eq!(entry.take_turn(turn, [2; 16]), Turn::Ours);
                assert_eq!(entry.take_turn(turn, [2; 16]), Turn::Same, "while it is on its way");
                let (tell, mut heard) = oneshot::channel();
                Said { tell, turn: Some(turn) }.came_out(&entry, result.clone());
                assert_eq!(heard.try_recv().unwrap(), result);
                let first = entry.take_turn(turn, digest);
                (first, entry.take_turn(turn, digest))
            };
            assert_eq!(again(digest), (same, Turn::Same), "{result:?}");
            let second = if another == Turn::Ours { Turn::Same } else { Turn::Other };
            assert_eq!(again(other), (another, second), "{result:?}");
        }
    }
}
