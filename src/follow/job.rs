//! What is handed over to be followed.
//!
//! Not here: following it (see `followers`).

use std::sync::Arc;

use tokio::sync::oneshot;

use super::push::Bell;
use crate::agents::{Drive, Known};
use crate::bridge::work::Work;
use crate::fault::Trouble;
use crate::tasks::{Entry, Following};

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
        /// Who waits for the agent's first word.
        said: Said,
    },
    /// Listen to the end of a call that nobody asks for.
    Leave(Box<Job>, Leaving),
    /// Stop a task.
    Cancel(Arc<Entry>, Arc<Known>),
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
