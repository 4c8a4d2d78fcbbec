//! The questions of a task that were answered here, and the partial answers to the open one.
//!
//! A retried answer must never become a second message: each answer is claimed once. Bounded. A
//! question is identified by its fingerprint, here called `turn`.

use std::collections::{BTreeMap, VecDeque};

use serde_json::value::RawValue;

use crate::a2a::Fingerprint;
use crate::fault::AgentFailure;

/// Questions that are remembered; the oldest is dropped first.
const MAX_TURNS: usize = 32;
/// Partial answers that are kept.
const MAX_PARTS: usize = 64;
/// Their total size, in bytes.
const MAX_PART_BYTES: usize = 256 * 1024;

/// Refusal of a user to answer a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerRefusal {
    /// The user declined.
    Declined,
    /// The user dismissed the question without an answer.
    Dismissed,
}

/// Partial answers to one question, by the key of the input that each answers.
pub type PartialAnswers = BTreeMap<String, Box<RawValue>>;

/// Distinguishes one status of an agent from another: a digest of the id of its message, and of the
/// time.
pub(super) type Stamp = [u8; 16];

/// Result of claiming an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerClaim {
    /// Unanswered so far: the caller must send, and must release the claim if it sent nothing.
    Ours,
    /// The same answer was given already.
    Same,
    /// Another answer was given already.
    Other,
}

/// The partial answers to one question pass the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("answers of one turn exceed {MAX_PART_BYTES} bytes or {MAX_PARTS} in number")]
pub struct AnswersTooLarge;

/// The answered questions of one task.
#[derive(Debug, Default)]
pub(super) struct AnswerLog {
    taken: VecDeque<AnsweredQuestion>,
    open: Option<Box<OpenQuestion>>,
    refused: Option<([u8; 16], AnswerRefusal)>,
    failed: Option<Box<([u8; 16], AgentFailure)>>,
    /// The number of answers that could not be sent.
    failures: usize,
}

#[derive(Debug)]
struct AnsweredQuestion {
    turn: [u8; 16],
    digest: [u8; 16],
    is_sent: bool,
    /// True if the agent has shown something else since: the same words are another question then.
    is_left: bool,
    /// Stamp by which a `GetTask` response that lags behind the stream still shows the question, if
    /// only a stream has left it.
    stale: Option<Stamp>,
    /// Digest of the response that brought the answer, to compare another one when the question is
    /// gone.
    response: Option<[u8; 16]>,
    /// Reason for which the answer is unconfirmed, if it is.
    doubt: Option<AgentFailure>,
}

#[derive(Debug)]
struct OpenQuestion {
    turn: [u8; 16],
    parts: PartialAnswers,
    bytes: usize,
}

impl AnsweredQuestion {
    fn new(turn: [u8; 16], digest: [u8; 16], is_sent: bool) -> Self {
        Self { turn, digest, is_sent, is_left: false, stale: None, response: None, doubt: None }
    }

    fn asks_same(&self, shown: [u8; 16]) -> bool {
        Fingerprint::from_bytes(self.turn).asks_same(Fingerprint::from_bytes(shown))
    }
}

impl AnswerLog {
    pub(super) fn claim(&mut self, turn: [u8; 16], digest: [u8; 16]) -> AnswerClaim {
        match self.taken.iter_mut().find(|taken| taken.turn == turn) {
            Some(taken) if taken.digest == digest => match taken.doubt.take() {
                Some(_) => AnswerClaim::Ours,
                None => AnswerClaim::Same,
            },
            Some(_) => AnswerClaim::Other,
            None => {
                self.failed = None;
                if self.taken.len() >= MAX_TURNS {
                    self.taken.pop_front();
                }
                self.taken.push_back(AnsweredQuestion::new(turn, digest, false));
                AnswerClaim::Ours
            }
        }
    }

    /// Returns all questions with the digests of their answers, and true for answers that were
    /// certainly sent; oldest first.
    pub(super) fn all(&self) -> impl Iterator<Item = ([u8; 16], [u8; 16], bool)> {
        self.taken.iter().map(|taken| (taken.turn, taken.digest, taken.is_sent))
    }

    /// Returns the questions that the agent has left (it has shown something else since), each with
    /// the stamp of a lagging `GetTask` response.
    pub(super) fn left(&self) -> impl Iterator<Item = ([u8; 16], Option<Stamp>)> {
        self.taken.iter().filter(|taken| taken.is_left).map(|taken| (taken.turn, taken.stale))
    }

    /// Restores the mark of these questions as left.
    pub(super) fn restore_left(&mut self, left: &[([u8; 16], Option<Stamp>)]) {
        for taken in &mut self.taken {
            if let Some((_, stale)) = left.iter().find(|(turn, _)| *turn == taken.turn) {
                (taken.is_left, taken.stale) = (true, *stale);
            }
        }
    }

    /// Records that the agent shows this question, or none: it has left every other one. `is_look`
    /// is true for a whole task. Otherwise a `GetTask` response may lag behind, and show the status
    /// with the stamp `before`.
    pub(super) fn leave_others(&mut self, shown: Option<[u8; 16]>, before: Option<Stamp>, is_look: bool) {
        for taken in self.taken.iter_mut().filter(|taken| taken.doubt.is_none()) {
            if !shown.is_some_and(|shown| taken.asks_same(shown)) {
                let stale = if taken.is_left { taken.stale } else { before };
                (taken.is_left, taken.stale) = (true, stale.filter(|_| !is_look));
            }
        }
    }

    /// Records that the agent asks anew after this question.
    pub(super) fn leave(&mut self, turn: [u8; 16]) {
        for taken in self.taken.iter_mut().filter(|taken| taken.turn == turn) {
            (taken.is_left, taken.stale) = (true, None);
        }
    }

    /// Records that a `GetTask` response shows this question. If the response lags behind the
    /// stream, the question is still the answered one.
    pub(super) fn look(&mut self, shown: [u8; 16], stamp: Stamp) {
        let lagging = |taken: &&mut AnsweredQuestion| taken.stale == Some(stamp) && taken.asks_same(shown);
        if let Some(taken) = self.taken.back_mut().filter(lagging) {
            taken.is_left = false;
        }
    }

    /// Returns the round of a question that is shown now: one after that which was left, if it was
    /// answered before.
    pub(super) fn round_of(&mut self, shown: [u8; 16]) -> u8 {
        let Some(last) = self.taken.iter_mut().rev().find(|taken| taken.asks_same(shown)) else { return 0 };
        if last.is_left {
            // The question is open again: a response that shows it does not lag behind.
            last.stale = None;
        }
        Fingerprint::from_bytes(last.turn).round().wrapping_add(u8::from(last.is_left))
    }

    /// Takes over the round in which another gateway has sent a question that was never answered
    /// here: it was answered there in the round before. Returns true if anything changed.
    pub(super) fn adopt(&mut self, turn: [u8; 16]) -> bool {
        let asked = Fingerprint::from_bytes(turn);
        let is_known = asked.round() == 0 || self.taken.iter().any(|taken| taken.asks_same(turn));
        if !is_known {
            let before = asked.in_round(asked.round().wrapping_sub(1)).to_bytes();
            if self.taken.len() >= MAX_TURNS {
                self.taken.pop_front();
            }
            self.taken.push_front(AnsweredQuestion {
                is_left: true,
                ..AnsweredQuestion::new(before, [0; 16], true)
            });
        }
        !is_known
    }

    /// Restores a persisted claim. If the answer may not have been sent, its delivery is unknown:
    /// the agent is queried before the same one is given again, and no other one is accepted before
    /// the agent has shown that its question is still open.
    pub(super) fn restore(&mut self, turn: [u8; 16], digest: [u8; 16], is_sent: bool) {
        if self.taken.len() < MAX_TURNS {
            let doubt = (!is_sent)
                .then_some(AgentFailure::Internal("it was restarted while the answer was on its way"));
            self.taken.push_back(AnsweredQuestion { doubt, ..AnsweredQuestion::new(turn, digest, is_sent) });
        }
    }

    /// Merges a claim of another process that works with the same task. An answer that was
    /// certainly sent is not unconfirmed any more.
    pub(super) fn merge(&mut self, turn: [u8; 16], digest: [u8; 16], is_sent: bool) {
        match self.taken.iter_mut().find(|taken| taken.turn == turn) {
            Some(taken) if is_sent && taken.digest == digest => {
                taken.is_sent = true;
                taken.doubt = None;
            }
            Some(_) => {}
            None => self.restore(turn, digest, is_sent),
        }
    }

    /// Returns true if `response` is the digest of the response that brought the answer to `turn`,
    /// or if none was recorded; then it is recorded.
    pub(super) fn is_same_response(&mut self, turn: [u8; 16], response: [u8; 16]) -> bool {
        let taken = self.taken.iter_mut().find(|taken| taken.turn == turn);
        taken.is_none_or(|taken| *taken.response.get_or_insert(response) == response)
    }

    /// Returns the digest of the answer to a question.
    pub(super) fn digest(&self, turn: [u8; 16]) -> Option<[u8; 16]> {
        self.taken.iter().find(|taken| taken.turn == turn).map(|taken| taken.digest)
    }

    /// Replaces the claim of a question by that of another replica, which has sent its answer, or is
    /// sending it.
    pub(super) fn replace(&mut self, turn: [u8; 16], digest: [u8; 16], is_sent: bool) {
        for taken in self.taken.iter_mut().filter(|taken| taken.turn == turn) {
            // While it is being sent, its delivery is unknown here.
            let doubt = (!is_sent).then_some(AgentFailure::Internal("another replica is sending the answer"));
            (taken.digest, taken.is_sent, taken.doubt) = (digest, is_sent, doubt);
        }
        self.open.take_if(|open| open.turn == turn);
    }

    /// Returns true if the question has been answered.
    pub(super) fn is_taken(&self, turn: [u8; 16]) -> bool {
        self.taken.iter().any(|taken| taken.turn == turn)
    }

    /// Returns true if the question was answered by `digest`, and that is confirmed.
    pub(super) fn is_answered_by(&self, turn: [u8; 16], digest: [u8; 16]) -> bool {
        self.taken.iter().any(|taken| taken.turn == turn && taken.digest == digest && taken.doubt.is_none())
    }

    /// Returns the question with an answer in flight, if any.
    pub(super) fn under_way(&self) -> Option<[u8; 16]> {
        self.taken.back().filter(|taken| !taken.is_sent && taken.doubt.is_none()).map(|taken| taken.turn)
    }

    /// Returns the question with an answer that the agent has, or is to have, and that the agent
    /// has not left.
    pub(super) fn answered(&self) -> Option<[u8; 16]> {
        self.taken.back().filter(|taken| taken.doubt.is_none() && !taken.is_left).map(|taken| taken.turn)
    }

    /// Returns the question that was answered last, unless the answer may be lost.
    pub(super) fn last(&self) -> Option<[u8; 16]> {
        self.taken.back().filter(|taken| taken.doubt.is_none()).map(|taken| taken.turn)
    }

    /// Records that the delivery of the answer is unknown, and the reason.
    pub(super) fn mark_unconfirmed(&mut self, turn: [u8; 16], trouble: &AgentFailure) {
        for taken in self.taken.iter_mut().filter(|taken| taken.turn == turn && !taken.is_sent) {
            taken.doubt = Some(trouble.clone());
        }
    }

    /// Returns true if the delivery of at least one answer is unconfirmed.
    pub(super) fn is_in_doubt(&self) -> bool {
        self.taken.iter().any(|taken| taken.doubt.is_some())
    }

    /// Resolves all unconfirmed answers by the question that the agent shows now: the answer to
    /// that one never arrived, and its claim is free again. Every other one arrived. Returns true
    /// if a claim is free.
    pub(super) fn resolve(&mut self, shown: Option<[u8; 16]>) -> bool {
        let mut freed = None;
        for taken in &mut self.taken {
            let Some(trouble) = taken.doubt.take() else { continue };
            let is_open = !taken.is_left && shown.is_some_and(|shown| taken.asks_same(shown));
            taken.is_sent |= !is_open;
            freed = is_open.then_some((taken.turn, trouble)).or(freed);
        }
        let is_freed = freed.is_some();
        if let Some((turn, trouble)) = freed {
            self.release(turn, trouble);
        }
        is_freed
    }

    /// Records the refusal of the user. The question stays open: it may still be answered.
    pub(super) fn refuse(&mut self, turn: [u8; 16], refusal: AnswerRefusal) {
        self.refused = Some((turn, refusal));
    }

    /// Returns the refusal of the user.
    pub(super) fn refusal(&self, turn: [u8; 16]) -> Option<AnswerRefusal> {
        self.refused.filter(|(refused, _)| *refused == turn).map(|(_, refusal)| refusal)
    }

    /// Returns the keys of a question that have been answered so far.
    pub(super) fn parts(&self, turn: [u8; 16]) -> impl Iterator<Item = &str> {
        let open = self.open.as_ref().filter(|open| open.turn == turn);
        open.into_iter().flat_map(|open| open.parts.keys()).map(String::as_str)
    }

    /// Releases a claim, unless its answer was sent. All parts of it are asked for again: the agent
    /// rejected them.
    pub(super) fn release(&mut self, turn: [u8; 16], trouble: AgentFailure) {
        self.taken.retain(|taken| taken.turn != turn || taken.is_sent);
        self.open.take_if(|open| open.turn == turn);
        self.failed = Some(Box::new((turn, trouble)));
        self.failures = self.failures.saturating_add(1);
    }

    /// Returns how many answers could not be sent so far.
    pub(super) fn failures(&self) -> usize {
        self.failures
    }

    /// Returns the failure to send the answer to a question.
    pub(super) fn failure(&self, turn: [u8; 16]) -> Option<&AgentFailure> {
        self.failed.as_deref().filter(|(failed, _)| *failed == turn).map(|(_, trouble)| trouble)
    }

    /// Records that the answer was sent; the partial answers are of no use any more.
    pub(super) fn sent(&mut self, turn: [u8; 16]) {
        for taken in self.taken.iter_mut().filter(|taken| taken.turn == turn) {
            (taken.is_sent, taken.doubt) = (true, None);
        }
        self.open.take_if(|open| open.turn == turn);
    }

    /// Stores a partial answer, and returns all parts so far. Parts of another question are
    /// dropped.
    pub(super) fn add(
        &mut self,
        turn: [u8; 16],
        key: String,
        value: Box<RawValue>,
    ) -> Result<PartialAnswers, AnswersTooLarge> {
        let fresh = || Box::new(OpenQuestion { turn, parts: PartialAnswers::new(), bytes: 0 });
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

    /// Returns true if no question was ever asked.
    pub(super) fn is_unused(&self) -> bool {
        let Self { taken, open, refused, failed, failures } = self;
        taken.is_empty() && open.is_none() && refused.is_none() && failed.is_none() && *failures == 0
    }

    pub(super) fn bytes(&self) -> usize {
        self.taken.len() * size_of::<AnsweredQuestion>() + self.open.as_ref().map_or(0, |open| open.bytes)
    }
}
