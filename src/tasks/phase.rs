//! How a task stands for whoever waits for it.
//!
//! Not the agent's state alone: a question that has been answered here is open no more, even while the agent repeats it; a task
//! whose agent says that it is lost, or breaks the protocol over it, has failed. Not here: what a client calls it (see
//! `bridge::status`).

use super::inside::Inside;
use crate::a2a::{Fingerprint, State};
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
            (Some(Err(trouble)), _) if ends_task(trouble) || self.work.task_id.is_none() => {
                Phase::Failed(trouble.clone())
            }
            (_, Standing::Running) => Phase::Running,
            (_, Standing::Asking) => match (self.open_turn(), self.work.state) {
                (Some(turn), Some(state)) => Phase::Asking(turn, state),
                _ => Phase::Running,
            },
        }
    }

    /// Whether nothing is known of it but its name.
    pub fn is_blank(&self) -> bool {
        self.work.task_id.is_some() && self.work.state.is_none() && self.work.reply.is_none()
    }

    /// Whether nobody follows it because only its caller can: with a fresh token of its own.
    pub fn waits_for_caller(&self) -> bool {
        matches!(self.over, Some(Err(Trouble::CallerToken(_)))) && !self.is_followed()
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

    /// Whether the question that the agent still shows has been answered here by this.
    pub fn is_answered_by(&self, digest: [u8; 16]) -> bool {
        let shown = self.work.question_turn().map(Fingerprint::to_bytes).or_else(|| self.turns.last());
        shown.is_some_and(|turn| self.turns.is_answered_by(turn, digest))
    }

    /// Whether nobody knows of some answer whether it arrived.
    pub fn is_in_doubt(&self) -> bool {
        self.turns.is_in_doubt()
    }

    /// The question whose answer is on its way to the agent, if one is.
    pub fn answer_under_way(&self) -> Option<[u8; 16]> {
        self.turns.under_way()
    }

    /// The question that was answered, as long as the agent has shown nothing else.
    pub fn answered(&self) -> Option<[u8; 16]> {
        self.turns.answered()
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

    /// How many answers could not be given so far.
    pub fn failures(&self) -> usize {
        self.turns.failures()
    }

    /// The keys of a question that have been answered while others are open.
    pub fn answered_keys(&self, turn: [u8; 16]) -> Vec<String> {
        self.turns.parts(turn).map(str::to_owned).collect()
    }
}

/// Returns true if a failure ends the task, and not only one connection or credential.
pub(super) fn ends_task(trouble: &Trouble) -> bool {
    match trouble {
        Trouble::Refused(_)
        | Trouble::WrongVersion(_)
        | Trouble::TaskLost
        | Trouble::UnsafeId
        | Trouble::Misbehaved(_)
        | Trouble::TooMuch(..) => true,
        Trouble::Unreachable(_)
        | Trouble::Resting(_)
        | Trouble::NotSeen(_)
        | Trouble::Unusable(_)
        | Trouble::Slow(_)
        | Trouble::Broken(_)
        | Trouble::NotAuthorized(_)
        | Trouble::NoToken(_)
        | Trouble::CallerToken(_)
        | Trouble::Status(_)
        | Trouble::CallerBytes
        | Trouble::Bytes
        | Trouble::Gateway(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::a2a::{Event, Status};
    use crate::bridge::work::Work;
    use crate::tasks::{Entry, Times, Turn};

    fn entry(state: State) -> Entry {
        let mut work = Work::new(1 << 20);
        let status = Status { state, message: None, timestamp: Some("then".into()) };
        let event = Event::Status {
            task_id: Some("t".into()),
            context_id: None,
            status,
            last: false,
            metadata: None,
        };
        work.apply(event).unwrap();
        Entry::new("bard".into(), [0; 16], work, Times::now())
    }

    fn phase(entry: &Entry) -> Phase {
        entry.look(|inside| inside.phase())
    }

    #[test]
    fn a_question_is_open_until_it_is_answered_and_again_if_the_answer_is_given_back() {
        let entry = entry(State::InputRequired);
        let Phase::Asking(turn, State::InputRequired) = phase(&entry) else { panic!("{:?}", phase(&entry)) };
        assert_eq!(entry.take_turn(turn, [1; 16]), Turn::Ours);
        assert_eq!(phase(&entry), Phase::Running);
        entry.give_back_turn(turn, Trouble::Unreachable("down"));
        assert_eq!(phase(&entry), Phase::Asking(turn, State::InputRequired));
        entry.refuse_turn(turn, Refusal::Declined);
        assert_eq!(entry.look(|inside| inside.refusal(turn)), Some(Refusal::Declined));
        assert_eq!(entry.look(|inside| inside.refusal([9; 16])), None);
    }

    #[test]
    fn a_task_fails_by_what_its_agent_says_and_not_by_a_connection() {
        for (trouble, failed) in [
            (Trouble::TaskLost, true),
            (Trouble::Refused("no".into()), true),
            (Trouble::Misbehaved("odd".into()), true),
            (Trouble::Unreachable("down"), false),
            (Trouble::Broken("cut"), false),
            (Trouble::NotAuthorized(401), false),
            (Trouble::CallerToken("over"), false),
        ] {
            let entry = entry(State::Working);
            entry.end(Err(trouble.clone()), Times::now());
            let wanted = if failed { Phase::Failed(trouble) } else { Phase::Running };
            assert_eq!(phase(&entry), wanted);
            assert_eq!(entry.look(Inside::is_finished), failed);
        }
    }

    #[test]
    fn the_agents_last_word_counts_more_than_how_following_ended() {
        let entry = entry(State::Completed);
        entry.end(Err(Trouble::TaskLost), Times::now());
        assert_eq!(phase(&entry), Phase::Finished);
    }
}
