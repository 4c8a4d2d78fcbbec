//! How a task stands for whoever waits for it.
//!
//! Not the agent's state alone: a question that has been answered here is open no more, even while the agent repeats it; a task
//! whose agent says that it is lost, or breaks the protocol over it, has failed. Not here: what a client calls it (see
//! `bridge::status`).

use super::inside::Inside;
use crate::a2a::State;
use crate::bridge::work::Standing;
use crate::fault::Trouble;

/// How a task stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Phase {
    /// The agent works, or is believed to.
    Running,
    /// A question is open: which, and of which kind.
    Asking([u8; 16], State),
    /// The agent has said its last word.
    Finished,
    /// There will be no last word.
    Failed(Trouble),
}

/// What a user said instead of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// No.
    Declined,
    /// Nothing: the question was put aside.
    Dismissed,
}

impl Inside {
    /// How the task stands.
    pub fn phase(&self) -> Phase {
        match (&self.over, self.work.standing()) {
            (_, Standing::Finished) => Phase::Finished,
            (Some(Err(trouble)), _) if is_final(trouble) || self.work.task_id.is_none() => {
                Phase::Failed(trouble.clone())
            }
            (_, Standing::Running) => Phase::Running,
            (_, Standing::Asking) => match (self.open_turn(), self.work.state) {
                (Some(turn), Some(state)) => Phase::Asking(turn, state),
                _ => Phase::Running,
            },
        }
    }

    /// The question that is open, unless it has been answered here.
    pub fn open_turn(&self) -> Option<[u8; 16]> {
        let turn = self.work.question_turn()?.to_bytes();
        (!self.is_taken(turn)).then_some(turn)
    }
}

impl Inside {
    /// Whether a question has been answered here.
    pub fn is_taken(&self, turn: [u8; 16]) -> bool {
        self.turns.is_taken(turn)
    }

    /// The question that was answered last.
    pub fn last_answered(&self) -> Option<[u8; 16]> {
        self.turns.last()
    }

    /// What the user said to a question instead of an answer.
    pub fn refusal(&self, turn: [u8; 16]) -> Option<Refusal> {
        self.turns.refusal(turn)
    }

    /// Why the answer to a question could not be given.
    pub fn failure(&self, turn: [u8; 16]) -> Option<&Trouble> {
        self.turns.failure(turn)
    }

    /// The keys of a question that have been answered while others are open.
    pub fn answered_keys(&self, turn: [u8; 16]) -> Vec<String> {
        self.turns.parts(turn).map(str::to_owned).collect()
    }
}

/// Whether a failure is the end of a task, and not of a connection.
pub(super) fn is_final(trouble: &Trouble) -> bool {
    match trouble {
        Trouble::Refused(_)
        | Trouble::WrongVersion(_)
        | Trouble::TaskLost
        | Trouble::Misbehaved(_)
        | Trouble::TooMuch(..) => true,
        Trouble::Unreachable(_)
        | Trouble::NotSeen(_)
        | Trouble::Slow(_)
        | Trouble::Broken(_)
        | Trouble::NotAuthorized(_)
        | Trouble::Status(_)
        | Trouble::Gateway(_) => false,
    }
}
