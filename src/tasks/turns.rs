//! Which questions of a task were answered here, and what has been answered of the open one.
//!
//! A retried answer must never become a second message: each turn is taken once. Bounded. Not here: what a turn is made of (a
//! fingerprint of the question), what an answer becomes.

use std::collections::{BTreeMap, VecDeque};

use serde_json::value::RawValue;

use super::phase::Refusal;
use crate::fault::Trouble;

/// Turns that are remembered; the oldest goes first.
const MAX_TURNS: usize = 32;
/// Partial answers that are kept.
const MAX_PARTS: usize = 64;
/// What they may take together, in bytes.
const MAX_PART_BYTES: usize = 256 * 1024;

/// Partial answers of one turn, by the key of the input that each answers.
pub type Parts = BTreeMap<String, Box<RawValue>>;

/// Whose turn it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// Nobody has answered: the caller must send, and must give the turn back if it sent nothing.
    Ours,
    /// The same answer was given already.
    Same,
    /// Another answer was given already.
    Other,
}

/// The partial answers of one turn pass the bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("answers of one turn exceed {MAX_PART_BYTES} bytes or {MAX_PARTS} in number")]
pub struct AnswersTooLarge;

/// The turns of one task.
#[derive(Debug, Default)]
pub(super) struct Turns {
    taken: VecDeque<Taken>,
    open: Option<Open>,
    refused: Option<([u8; 16], Refusal)>,
    failed: Option<([u8; 16], Trouble)>,
    /// How many answers could not be given.
    failures: usize,
}

#[derive(Debug)]
struct Taken {
    turn: [u8; 16],
    digest: [u8; 16],
    is_sent: bool,
    /// Of the response that brought the answer, for when the question is not there any more to judge another by.
    response: Option<[u8; 16]>,
    /// Why nobody knows whether it arrived, if that is so.
    doubt: Option<Trouble>,
}

#[derive(Debug)]
struct Open {
    turn: [u8; 16],
    parts: Parts,
    bytes: usize,
}

impl Taken {
    fn new(turn: [u8; 16], digest: [u8; 16], is_sent: bool) -> Self {
        Self { turn, digest, is_sent, response: None, doubt: None }
    }
}

impl Turns {
    pub(super) fn take(&mut self, turn: [u8; 16], digest: [u8; 16]) -> Turn {
        match self.taken.iter_mut().find(|taken| taken.turn == turn) {
            Some(taken) if taken.digest == digest => match taken.doubt.take() {
                Some(_) => Turn::Ours,
                None => Turn::Same,
            },
            Some(_) => Turn::Other,
            None => {
                self.failed = None;
                if self.taken.len() >= MAX_TURNS {
                    self.taken.pop_front();
                }
                self.taken.push_back(Taken::new(turn, digest, false));
                Turn::Ours
            }
        }
    }

    /// All turns with the digests of their answers, and whether the answer surely went out; oldest first.
    pub(super) fn all(&self) -> impl Iterator<Item = ([u8; 16], [u8; 16], bool)> {
        self.taken.iter().map(|taken| (taken.turn, taken.digest, taken.is_sent))
    }

    /// Takes back a turn that was kept. Whether an answer arrived that may not have gone out is not known: the agent is asked before
    /// the same one is given again, and no other one is taken before the agent has shown that its question is open still.
    pub(super) fn restore(&mut self, (turn, digest, is_sent): ([u8; 16], [u8; 16], bool)) {
        if self.taken.len() < MAX_TURNS {
            let doubt =
                (!is_sent).then_some(Trouble::Gateway("it was restarted while the answer was on its way"));
            self.taken.push_back(Taken { doubt, ..Taken::new(turn, digest, is_sent) });
        }
    }

    /// Takes in a turn as another process knows it, which works with the same task. An answer that surely went out is in no doubt any more.
    pub(super) fn merge(&mut self, (turn, digest, is_sent): ([u8; 16], [u8; 16], bool)) {
        match self.taken.iter_mut().find(|taken| taken.turn == turn) {
            Some(taken) if is_sent && taken.digest == digest => {
                taken.is_sent = true;
                taken.doubt = None;
            }
            Some(_) => {}
            None => self.restore((turn, digest, is_sent)),
        }
    }

    /// Whether a response of this digest is the one that brought the answer to a turn, so far as that is known. The first one is
    /// remembered.
    pub(super) fn is_same_response(&mut self, turn: [u8; 16], response: [u8; 16]) -> bool {
        let taken = self.taken.iter_mut().find(|taken| taken.turn == turn);
        taken.is_none_or(|taken| *taken.response.get_or_insert(response) == response)
    }

    /// Whether somebody has answered the turn.
    pub(super) fn is_taken(&self, turn: [u8; 16]) -> bool {
        self.taken.iter().any(|taken| taken.turn == turn)
    }

    /// Whether a turn was answered by this, and surely.
    pub(super) fn is_answered_by(&self, turn: [u8; 16], digest: [u8; 16]) -> bool {
        self.taken.iter().any(|taken| taken.turn == turn && taken.digest == digest && taken.doubt.is_none())
    }

    /// The turn whose answer is on its way, if one is.
    pub(super) fn under_way(&self) -> Option<[u8; 16]> {
        self.taken.back().filter(|taken| !taken.is_sent && taken.doubt.is_none()).map(|taken| taken.turn)
    }

    /// The turn that was answered last, unless the answer may be lost.
    pub(super) fn last(&self) -> Option<[u8; 16]> {
        self.taken.back().filter(|taken| taken.doubt.is_none()).map(|taken| taken.turn)
    }

    /// Notes that nobody knows whether the answer arrived, and why.
    pub(super) fn doubt(&mut self, turn: [u8; 16], trouble: &Trouble) {
        for taken in self.taken.iter_mut().filter(|taken| taken.turn == turn && !taken.is_sent) {
            taken.doubt = Some(trouble.clone());
        }
    }

    /// Whether nobody knows of some answer whether it arrived.
    pub(super) fn is_in_doubt(&self) -> bool {
        self.taken.iter().any(|taken| taken.doubt.is_some())
    }

    /// Ends all doubts by the question that the agent shows now: the answer to that one never arrived, and its turn is free again.
    /// Says whether there was one.
    pub(super) fn settle(&mut self, shown: Option<[u8; 16]>) -> bool {
        let mut lost = None;
        for taken in &mut self.taken {
            lost = taken.doubt.take().filter(|_| shown == Some(taken.turn)).or(lost);
        }
        let freed = shown.zip(lost);
        let is_freed = freed.is_some();
        if let Some((turn, trouble)) = freed {
            self.give_back(turn, trouble);
        }
        is_freed
    }

    /// Notes what the user said instead of an answer. The turn stays open: it may still be answered.
    pub(super) fn refuse(&mut self, turn: [u8; 16], refusal: Refusal) {
        self.refused = Some((turn, refusal));
    }

    /// What the user said instead of an answer.
    pub(super) fn refusal(&self, turn: [u8; 16]) -> Option<Refusal> {
        self.refused.filter(|(refused, _)| *refused == turn).map(|(_, refusal)| refusal)
    }

    /// What has been answered of a turn so far.
    pub(super) fn parts(&self, turn: [u8; 16]) -> impl Iterator<Item = &str> {
        let open = self.open.as_ref().filter(|open| open.turn == turn);
        open.into_iter().flat_map(|open| open.parts.keys()).map(String::as_str)
    }

    /// Makes a turn free again, unless its answer was sent. All parts of it are asked for again: the agent did not want them.
    pub(super) fn give_back(&mut self, turn: [u8; 16], trouble: Trouble) {
        self.taken.retain(|taken| taken.turn != turn || taken.is_sent);
        self.open.take_if(|open| open.turn == turn);
        self.failed = Some((turn, trouble));
        self.failures = self.failures.saturating_add(1);
    }

    /// How many answers could not be given so far.
    pub(super) fn failures(&self) -> usize {
        self.failures
    }

    /// Why the answer to a turn could not be given.
    pub(super) fn failure(&self, turn: [u8; 16]) -> Option<&Trouble> {
        self.failed.as_ref().filter(|(failed, _)| *failed == turn).map(|(_, trouble)| trouble)
    }

    /// Notes that the answer went out; what was partly answered is of no use any more.
    pub(super) fn sent(&mut self, turn: [u8; 16]) {
        for taken in self.taken.iter_mut().filter(|taken| taken.turn == turn) {
            (taken.is_sent, taken.doubt) = (true, None);
        }
        self.open.take_if(|open| open.turn == turn);
    }

    /// Keeps a part of an answer, and gives all parts so far. Parts of another turn are forgotten.
    pub(super) fn add(
        &mut self,
        turn: [u8; 16],
        key: String,
        value: Box<RawValue>,
    ) -> Result<Parts, AnswersTooLarge> {
        let fresh = || Open { turn, parts: Parts::new(), bytes: 0 };
        let mut open = self.open.take().filter(|open| open.turn == turn).unwrap_or_else(fresh);
        let freed = open.parts.get(&key).map_or(0, |old| key.len() + old.get().len());
        let bytes = (open.bytes - freed).saturating_add(key.len()).saturating_add(value.get().len());
        let is_one_more = !open.parts.contains_key(&key);
        let fits = bytes <= MAX_PART_BYTES && (open.parts.len() < MAX_PARTS || !is_one_more);
        if fits {
            open.parts.insert(key, value);
            open.bytes = bytes;
        }
        let parts = open.parts.clone();
        self.open = Some(open);
        if fits { Ok(parts) } else { Err(AnswersTooLarge) }
    }

    pub(super) fn bytes(&self) -> usize {
        self.taken.len() * size_of::<Taken>() + self.open.as_ref().map_or(0, |open| open.bytes)
    }
}
