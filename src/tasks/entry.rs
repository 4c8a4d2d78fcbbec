//! One task as it is known here, and as its watchers see it.
//!
//! Knows which map it is in, so that the map hears of every change of size and standing. Locks live for one statement; a map's
//! lock may be held while an entry's is taken, never the other way round.
//! Not here: being found and dropped (see `map`), what an event does (see `bridge::work`), asking the agent.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use tokio::sync::watch;

use super::answer_log::{AnswerClaim, AnswersTooLarge, PartialAnswers};
use super::change::VisibleState;
use super::entry_state::{ClientOverride, EntryState, EvictionInfo};
use super::guards::{CancelGuard, FollowGuard, WatchGuard};
use super::map::ShardSlot;
use super::phase::{AnswerRefusal, TaskPhase};
use super::{Timestamp, lock};
use crate::a2a::{Fingerprint, StreamResponse, Task, TaskState, fingerprint, stamp_of};
use crate::bridge::output::{AgentOutput, OutputState};
use crate::fault::{AgentFailure, TaskDelay};

/// One task.
#[derive(Debug)]
pub struct TaskEntry {
    agent: Arc<str>,
    local: [u8; 16],
    pub(super) inside: Mutex<EntryState>,
    changes: watch::Sender<u64>,
    home: OnceLock<ShardSlot>,
    is_gone: AtomicBool,
    is_pushed: AtomicBool,
    is_stopping: AtomicBool,
    stops: AtomicU64,
}

impl TaskEntry {
    /// A task of this agent. `local` is the number by which it is found while the agent has not named it.
    pub fn new(agent: Arc<str>, local: [u8; 16], work: AgentOutput, now: Timestamp) -> Self {
        Self {
            agent,
            local,
            inside: Mutex::new(EntryState::new(work, now)),
            changes: watch::Sender::new(0),
            home: OnceLock::new(),
            is_gone: AtomicBool::new(false),
            is_pushed: AtomicBool::new(false),
            is_stopping: AtomicBool::new(false),
            stops: AtomicU64::new(0),
        }
    }

    /// The configured name of the agent.
    pub fn agent(&self) -> &Arc<str> {
        &self.agent
    }

    /// The number by which it is found while the agent has not named it.
    pub fn local(&self) -> [u8; 16] {
        self.local
    }

    /// Looks inside. What looks must be quick, and must not come back to the entry.
    pub fn visible_state<R>(&self, look: impl FnOnce(&EntryState) -> R) -> R {
        look(&lock(&self.inside))
    }

    /// Shows the work as it stands for a client that waits: an answered question is work, although the agent shows it still. As
    /// [`Entry::look`].
    pub fn show_work<R>(&self, show: impl FnOnce(&AgentOutput) -> R) -> R {
        let mut inside = lock(&self.inside);
        if inside.phase() != TaskPhase::Running || inside.work.state() != OutputState::Asking {
            return show(&inside.work);
        }
        let kept = (inside.work.state.replace(TaskState::Working), inside.work.status.take());
        let shown = show(&inside.work);
        (inside.work.state, inside.work.status) = kept;
        shown
    }

    /// Hears of every change.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Takes in what the agent said. What is finished never changes again; watchers hear of it only if something changed.
    ///
    /// # Errors
    ///
    /// [`Trouble::TooMuch`] when the artifacts pass their limit.
    pub fn apply(&self, event: StreamResponse, now: Timestamp) -> Result<(), AgentFailure> {
        let deep = matches!(event, StreamResponse::Task(_));
        let is_told = deep || matches!(event, StreamResponse::Status { .. });
        let (taken, changed) = {
            let mut inside = lock(&self.inside);
            if inside.is_finished() {
                return Ok(());
            }
            // The agent speaks.
            inside.delay.take_if(|delay| *delay == TaskDelay::Unreached);
            let before = VisibleState::at(&inside.work, deep);
            // Where its words have gone into the history an answer has come in.
            let has_arrived = inside.work.has_taken_words_in(&event);
            let stamp = inside.work.stamp();
            let taken = inside.work.apply(event);
            let is_news = matches!(taken, Ok(Some(_)));
            let taken = taken.map(|note| inside.last = note.or(inside.last.take()));
            let is_open_again = is_told && {
                let shown = inside.work.question_turn().map(Fingerprint::to_bytes);
                let is_open_again = inside.turns.resolve(shown.filter(|_| !has_arrived));
                inside.turns.leave_others(shown, stamp, deep);
                is_open_again
            };
            inside.count_rounds();
            let changed = is_news || is_open_again || before != VisibleState::at(&inside.work, deep);
            if changed {
                inside.delay = None;
                inside.changed = now;
            }
            (taken, changed)
        };
        self.settle(Some(now.instant));
        if changed {
            self.wake();
        }
        taken.map_err(|too_much| AgentFailure::LimitExceeded(too_much.max_bytes, "its artifacts"))
    }

    /// Sees a task as the agent gives it when it is asked, before that is taken in: it may lag behind its stream.
    pub fn look_back(&self, task: &Task) {
        if let Some((shown, stamp)) = fingerprint(task).zip(stamp_of(&task.status)) {
            self.change(|inside| inside.turns.look(shown.to_bytes(), stamp));
        }
    }

    /// Changes what is kept of the work, not where it stands: to drop artifacts, or to take them back from the agent. No news to
    /// watchers.
    pub fn update<R>(&self, change: impl FnOnce(&mut AgentOutput) -> R) -> R {
        self.change(|inside| change(&mut inside.work))
    }

    /// Watches. While the watcher lives, the map keeps the entry as long as the task is live.
    pub fn watch(self: &Arc<Self>) -> WatchGuard {
        self.change(|inside| inside.watchers += 1);
        WatchGuard::new(self.clone())
    }

    pub(super) fn unwatch(&self, now: Instant) {
        lock(&self.inside).watchers -= 1;
        self.settle(Some(now));
    }

    /// Counts as watched until then: somebody may come back.
    pub fn set_push_expected(&self, until: Instant) {
        self.change(|inside| inside.expected = inside.expected.max(Some(until)));
    }

    /// Whether somebody watches, or is expected to come back.
    pub fn is_watched(&self, now: Instant) -> bool {
        self.visible_state(|inside| inside.watchers > 0 || inside.expected.is_some_and(|until| until > now))
    }

    /// Begins to follow; `None` if somebody does already.
    pub fn begin_following(self: &Arc<Self>) -> Option<FollowGuard> {
        let begun = self.change(|inside| {
            let is_free = !inside.is_followed;
            if is_free {
                inside.is_followed = true;
                inside.over = None;
            }
            is_free
        });
        self.tell_owners();
        begun.then(|| FollowGuard::new(self.clone()))
    }

    /// Says why following ended.
    pub fn end(&self, result: Result<(), AgentFailure>, now: Timestamp) {
        self.change(|inside| {
            inside.over = Some(result);
            inside.changed = now;
        });
        self.wake();
    }

    pub(super) fn unfollow(&self) {
        self.change(|inside| {
            inside.is_followed = false;
            inside.over.get_or_insert(Err(AgentFailure::Internal("following it broke off")));
        });
        self.wake();
    }

    /// The client wants the work stopped; remembered until the agent has named the task.
    pub fn request_cancel(&self) {
        self.change(|inside| inside.cancel_wanted = true);
        self.wake();
    }

    /// Whether a wish to stop the work is there that nobody has acted upon; whoever gets it does.
    pub fn take_cancel_request(&self) -> bool {
        self.change(|inside| std::mem::take(&mut inside.cancel_wanted))
    }

    /// Begins to stop it at the agent; `None` if somebody waits for the agent's word on that already.
    pub fn begin_stopping(self: &Arc<Self>) -> Option<CancelGuard> {
        (!self.is_stopping.swap(true, Ordering::AcqRel)).then(|| CancelGuard::new(self.clone()))
    }

    /// How often it has been tried to stop it at the agent, to the end.
    pub fn cancel_in_progress(&self) -> u64 {
        self.stops.load(Ordering::Acquire)
    }

    /// Whether somebody waits for the agent's word on being stopped.
    pub fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Acquire)
    }

    /// It has been tried to stop it at the agent.
    pub fn cancel_attempted(&self) {
        self.stops.fetch_add(1, Ordering::AcqRel);
        self.wake();
    }

    pub(super) fn end_stopping(&self) {
        self.is_stopping.store(false, Ordering::Release);
        self.wake();
    }

    /// The agent's id of the task, once it has named one.
    pub fn task_id(&self) -> Option<String> {
        self.visible_state(|inside| inside.work.task_id.clone())
    }

    /// Whether the agent has named the task.
    pub fn is_named(&self) -> bool {
        self.visible_state(|inside| inside.work.task_id.is_some())
    }

    /// A client holds a handle of it: from now on it is kept where tasks are kept.
    pub fn acknowledge(&self) {
        self.change(|inside| inside.is_acknowledged = true);
    }

    /// The agent has lost the artifacts: they stay here as long as the entry does.
    pub fn keep_artifacts(&self) {
        self.change(|inside| inside.keeps_artifacts = true);
    }

    /// Whether a client holds a handle of it.
    pub fn is_acknowledged(&self) -> bool {
        self.visible_state(|inside| inside.is_acknowledged)
    }

    /// Fills in what was kept, before anybody sees the entry.
    pub(super) fn restore(&self, fill: impl FnOnce(&mut EntryState)) {
        fill(&mut lock(&self.inside));
    }

    /// Takes in what another process knows of the same task.
    pub(super) fn learn(self: &Arc<Self>, other: Self, now: Timestamp) {
        let other = other.inside.into_inner().unwrap_or_else(PoisonError::into_inner);
        other.owners().for_each(|owner| self.own(owner));
        self.change(|inside| inside.learn(other));
        self.settle(Some(now.instant));
        self.wake();
    }

    /// A new turn begins in the task: what an agent replied to the last one is not its last word any more. Without a task there is
    /// nothing to go on with, and the reply stays.
    pub fn begin_turn(&self) {
        self.change(|inside| inside.work.reply.take_if(|_| inside.work.task_id.is_some()));
    }

    /// Takes over what another call has learnt of the task, if nothing is known of it here.
    pub fn adopt_call(&self, mut work: AgentOutput, now: Timestamp) {
        self.change(|inside| {
            if inside.is_unstarted() {
                work.skill = inside.work.skill.take().or(work.skill);
                inside.work = work;
                inside.count_rounds();
                inside.changed = now;
            }
        });
        self.wake();
    }

    /// Notes why the task does not go on at present, if it does not. Watchers hear of one that is stalled.
    pub fn set_delay(&self, delay: Option<TaskDelay>) {
        let before = self.change(|inside| std::mem::replace(&mut inside.delay, delay));
        if before != delay && matches!(delay, Some(TaskDelay::Stalled(_))) {
            self.wake();
        }
    }

    /// The agent has said how the task stands.
    pub fn reached(&self) {
        self.change(|inside| inside.delay.take_if(|delay| *delay == TaskDelay::Unreached));
    }

    /// What the client is told from now on, whatever the agent does.
    pub fn set_verdict(&self, verdict: ClientOverride) {
        self.change(|inside| inside.verdict = Some(verdict));
        self.wake();
    }

    /// Takes a turn for an answer of this digest.
    pub fn claim_answer(&self, turn: [u8; 16], digest: [u8; 16]) -> AnswerClaim {
        let whose = self.change(|inside| inside.turns.claim(turn, digest));
        self.wake();
        whose
    }

    /// Whether a response of this digest is the one that brought the answer to a turn, so far as that is known. The first one is
    /// remembered.
    pub fn is_same_response(&self, turn: [u8; 16], response: [u8; 16]) -> bool {
        self.change(|inside| inside.turns.is_same_response(turn, response))
    }

    /// Makes a turn free again: nothing was sent.
    pub fn release_answer(&self, turn: [u8; 16], trouble: AgentFailure) {
        self.change(|inside| inside.turns.release(turn, trouble));
        self.wake();
    }

    /// The answer may have gone out: nobody knows. The same one may be given again; once the agent is seen to ask still, any.
    pub fn mark_answer_unconfirmed(&self, turn: [u8; 16], trouble: &AgentFailure) {
        self.change(|inside| inside.turns.mark_unconfirmed(turn, trouble));
        self.wake();
    }

    /// The agent shows this question, or none: so whoever is in doubt whether an answer arrived knows.
    pub fn resolve_unconfirmed(&self, shown: Option<Fingerprint>) {
        if self.change(|inside| inside.turns.resolve(shown.map(Fingerprint::to_bytes))) {
            self.wake();
        }
    }

    /// The answer went out.
    pub fn mark_answer_sent(&self, turn: [u8; 16]) {
        self.change(|inside| {
            inside.turns.sent(turn);
            if inside.work.question_turn().map(Fingerprint::to_bytes) == Some(turn) {
                inside.work.question_answered();
            }
        });
    }

    /// The agent is about to ask anew, in response to the answer to this question; `None`: to words that answered none. If it is still
    /// the one that is shown, what comes next is another question, even in the same words. Watchers hear of that one.
    pub fn leave_question(&self, answered: Option<Fingerprint>) {
        self.change(|inside| {
            let Some(shown) = inside.work.question_turn() else { return };
            if answered.is_none_or(|answered| answered == shown) && inside.is_taken(shown.to_bytes()) {
                inside.turns.leave(shown.to_bytes());
                inside.work.leave_question();
            }
        });
    }

    /// Takes over the round of a question that another gateway has put to a client, if it is the one that is open here.
    pub fn adopt_round(&self, turn: Fingerprint) {
        self.change(|inside| {
            let is_shown = inside.work.question_turn().is_some_and(|shown| shown.asks_same(turn));
            if is_shown && inside.turns.adopt(turn.to_bytes()) {
                inside.count_rounds();
            }
        });
    }

    /// The user said this instead of an answer. The question stays open.
    pub fn record_refusal(&self, turn: [u8; 16], refusal: AnswerRefusal) {
        self.change(|inside| inside.turns.refuse(turn, refusal));
        self.wake();
    }

    /// Keeps parts of the answer of the open turn and takes the turn once `digest` says that all
    /// are there. Returns all parts so far, and the outcome if the turn was tried.
    ///
    /// It is one change: a watcher that saw the last part without the answer would ask once more.
    ///
    /// # Errors
    ///
    /// [`AnswersTooLarge`] if a part does not fit; the parts before it stay.
    pub fn answer_in_parts(
        &self,
        turn: [u8; 16],
        parts: PartialAnswers,
        digest: impl FnOnce(&PartialAnswers) -> Option<[u8; 16]>,
    ) -> Result<(PartialAnswers, Option<AnswerClaim>), AnswersTooLarge> {
        let answered = self.change(|inside| {
            let mut all = PartialAnswers::new();
            for (key, value) in parts {
                all = inside.turns.add(turn, key, value)?;
            }
            let taken = digest(&all).map(|digest| inside.turns.claim(turn, digest));
            Ok((all, taken))
        });
        self.wake();
        answered
    }

    /// About how many bytes it takes.
    pub fn bytes(&self) -> usize {
        self.visible_state(EntryState::bytes)
    }

    /// Whether the map has dropped it. Who follows it should stop: nobody finds it any more.
    pub fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::Acquire)
    }

    /// Whether the agent has promised to push what is new.
    pub fn is_pushed(&self) -> bool {
        self.is_pushed.load(Ordering::Acquire)
    }

    /// The agent has promised to push what is new. Not kept: it is asked anew after a restart.
    pub fn set_pushed(&self) {
        self.is_pushed.store(true, Ordering::Release);
    }

    pub(super) fn stand(&self) -> EvictionInfo {
        self.visible_state(EntryState::eviction_info)
    }

    pub(super) fn home(&self) -> Option<&ShardSlot> {
        self.home.get()
    }

    /// Moves in, once.
    pub(super) fn move_in(&self, home: ShardSlot) -> bool {
        self.home.set(home).is_ok()
    }

    /// Called with the lock of its shard.
    pub(super) fn mark_gone(&self) {
        self.is_gone.store(true, Ordering::Release);
    }

    pub(super) fn change<R>(&self, change: impl FnOnce(&mut EntryState) -> R) -> R {
        let result = change(&mut lock(&self.inside));
        self.settle(None);
        result
    }

    fn settle(&self, active: Option<Instant>) {
        if let Some(home) = self.home.get() {
            home.rebalance(active);
        }
    }

    pub(super) fn wake(&self) {
        self.changes.send_modify(|count| *count += 1);
        self.tell_owners();
    }
}
