//! One task as the gateway knows it, and as its watchers see it; with the RAII guards of its
//! watchers, of its follower and of a cancellation.
//!
//! An entry knows its map, so that the map is notified of every change of size and eviction class.
//! Watchers are woken only by an event that changes something: a polled agent repeats the same state
//! again and again. Locks live for one statement; a map's lock may be held while an entry's is
//! taken, never the other way round.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::answer_log::{AnswerClaim, AnswerRefusal, AnswersTooLarge, PartialAnswers};
use super::compression::{StateCompressor, StoredState};
use super::entry_state::{COMPRESSED_OVERHEAD, ClientOverride, EntryState, EvictionInfo, TaskPhase};
use super::map::ShardSlot;
use super::{EventOrigin, EventPosition, Timestamp};
use crate::a2a::{Fingerprint, Part, PartBody, StreamResponse, Task, TaskState, fingerprint, stamp_of};
use crate::bridge::output::{AgentOutput, OutputState};
use crate::bridge::resource_view::ClientSoftware;
use crate::fault::{AgentFailure, TaskDelay};
use crate::sync::{lock, recover};

/// One task.
#[derive(Debug)]
pub struct TaskEntry {
    agent: Arc<str>,
    local: [u8; 16],
    stored: Mutex<StoredState>,
    /// Number of changes so far. Not a `watch` channel: its memory would be a tenth of a finished
    /// task that is kept.
    changes: AtomicU64,
    changed: Notify,
    home: OnceLock<ShardSlot>,
    is_gone: AtomicBool,
    is_pushed: AtomicBool,
    is_stopping: AtomicBool,
    stops: AtomicU64,
}

impl TaskEntry {
    /// Creates the entry of a task at `agent`. `local` identifies it while the agent has not named
    /// the task.
    pub fn new(agent: Arc<str>, local: [u8; 16], work: AgentOutput, now: Timestamp) -> Self {
        Self {
            agent,
            local,
            stored: Mutex::new(StoredState::new(EntryState::new(work, now))),
            changes: AtomicU64::new(0),
            changed: Notify::new(),
            home: OnceLock::new(),
            is_gone: AtomicBool::new(false),
            is_pushed: AtomicBool::new(false),
            is_stopping: AtomicBool::new(false),
            stops: AtomicU64::new(0),
        }
    }

    /// Returns the entry of a task that began this long before the entry was made.
    #[must_use]
    pub fn created_before(self, age: Duration) -> Self {
        self.begin_earlier(age);
        self
    }

    fn begin_earlier(&self, age: Duration) {
        let age = u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
        self.with_state(|inside| inside.created_ms = inside.created_ms.saturating_sub(age));
    }

    /// Records the software of the client that began the task: the client that gets the first
    /// handle.
    pub(crate) fn record_client(&self, software: Option<&Arc<ClientSoftware>>) {
        self.change(|inside| {
            if !inside.is_acknowledged {
                inside.client = software.cloned();
            }
        });
    }

    /// Returns the configured name of the agent.
    pub fn agent(&self) -> &Arc<str> {
        &self.agent
    }

    /// Returns the number that identifies the task while the agent has not named it.
    pub fn local(&self) -> [u8; 16] {
        self.local
    }

    /// Calls `look` with the state, under its lock. `look` must be quick, and must not call the
    /// entry.
    pub fn visible_state<R>(&self, look: impl FnOnce(&EntryState) -> R) -> R {
        self.with_state(|inside| look(inside))
    }

    /// Like [`TaskEntry::visible_state`], for passes over all tasks: a compressed state stays so.
    pub(super) fn peek<R>(&self, look: impl FnOnce(&EntryState) -> R) -> R {
        lock(&self.stored).peek(look)
    }

    /// Calls `act` with the state, under its lock; a compressed one is expanded before.
    pub(super) fn with_state<R>(&self, act: impl FnOnce(&mut EntryState) -> R) -> R {
        let (result, was_compressed) = {
            let mut stored = lock(&self.stored);
            let (state, was_compressed) = stored.expand();
            (act(state), was_compressed)
        };
        if was_compressed && let Some(home) = self.home.get() {
            home.expanded();
        }
        result
    }

    /// Compresses the state of a finished task that nothing uses. Returns true if it did.
    pub(super) fn compress(&self, compressor: &mut StateCompressor, now: Instant) -> bool {
        lock(&self.stored).compress(self, compressor, now)
    }

    /// Returns true if the state is compressed.
    pub(super) fn is_compressed(&self) -> bool {
        lock(&self.stored).compressed().is_some()
    }

    /// Returns the state that the agent reported last, and the time of the last change in milliseconds
    /// since 1970.
    pub(crate) fn state_and_change(&self) -> (Option<TaskState>, u64) {
        let stored = lock(&self.stored);
        match stored.compressed() {
            Some(compressed) => (Some(compressed.state), compressed.changed.unix_ms),
            None => stored.peek(|inside| (inside.work.state, inside.changed.unix_ms)),
        }
    }

    /// Calls `look` with the callers that hold a handle. Rules as in [`TaskEntry::visible_state`].
    pub(super) fn with_owners<R>(&self, look: impl FnOnce(&[Box<str>]) -> R) -> R {
        let stored = lock(&self.stored);
        match stored.compressed() {
            Some(compressed) => look(&compressed.owners),
            None => stored.peek(|inside| look(&inside.owners)),
        }
    }

    /// Returns true if no more events will come: see [`EntryState::is_finished`].
    pub fn is_finished(&self) -> bool {
        let stored = lock(&self.stored);
        stored.compressed().is_some() || stored.peek(EntryState::is_finished)
    }

    /// Calls `show` with the output as a waiting client must see it: an answered question counts as
    /// work in progress, although the agent still shows the question. Rules as in
    /// [`TaskEntry::visible_state`].
    pub fn show_work<R>(&self, show: impl FnOnce(&AgentOutput) -> R) -> R {
        self.with_state(|inside| {
            if inside.phase() != TaskPhase::Running || inside.work.state() != OutputState::Asking {
                return show(&inside.work);
            }
            let kept = (inside.work.state.replace(TaskState::Working), inside.work.status.take());
            let shown = show(&inside.work);
            (inside.work.state, inside.work.status) = kept;
            shown
        })
    }

    /// Subscribes to every change from now on.
    pub fn changes(self: &Arc<Self>) -> TaskChanges {
        TaskChanges { entry: self.clone(), seen: self.changes.load(Ordering::Acquire) }
    }

    /// Applies an event of the agent. A finished task never changes again; watchers are woken only
    /// if the event changed anything.
    ///
    /// # Errors
    ///
    /// [`AgentFailure::LimitExceeded`] when the artifacts pass their limit.
    pub fn apply(&self, event: StreamResponse, now: Timestamp) -> Result<(), AgentFailure> {
        let deep = matches!(event, StreamResponse::Task(_));
        let is_told = deep || matches!(event, StreamResponse::Status { .. });
        let applied = self.with_state(|inside| {
            if inside.is_finished() {
                return None;
            }
            // The event shows that the agent can be reached.
            inside.delay.take_if(|delay| *delay == TaskDelay::Unreached);
            let before = VisibleState::at(&inside.work, deep);
            // If the agent moved its question into the history, an answer has arrived.
            let has_arrived = inside.work.has_taken_words_in(&event);
            let stamp = inside.work.stamp();
            let phases = inside.work.phases.len();
            inside.events.record(&event, now.unix_ms);
            let taken = inside.work.apply(event);
            let is_news = matches!(taken, Ok(Some(_)));
            let taken = taken.map(|note| note.into_iter().for_each(|note| inside.report(note)));
            let is_open_again = is_told && {
                let shown = inside.work.question_turn().map(Fingerprint::to_bytes);
                let is_open_again = inside.turns.resolve(shown.filter(|_| !has_arrived));
                inside.turns.leave_others(shown, stamp, deep);
                is_open_again
            };
            inside.count_rounds();
            let is_next_phase = inside.work.phases.len() > phases;
            let changed =
                is_news || is_open_again || is_next_phase || before != VisibleState::at(&inside.work, deep);
            if changed {
                inside.delay = None;
                inside.changed = now;
            }
            Some((taken, changed))
        });
        let Some((taken, changed)) = applied else { return Ok(()) };
        self.settle(Some(now.instant));
        if changed {
            self.wake();
        }
        taken.map_err(|too_much| AgentFailure::LimitExceeded(too_much.max_bytes, "its artifacts"))
    }

    /// Records the question that a `GetTask` response shows, before it is applied: the response may
    /// lag behind the stream.
    pub fn look_back(&self, task: &Task) {
        if let Some(shown) = fingerprint(task)
            && let Some(stamp) = stamp_of(&task.status)
        {
            self.change(|inside| inside.turns.look(shown.to_bytes(), stamp));
        }
    }

    /// Changes the stored output without changing the task: drops artifacts, or restores them from
    /// the agent. Does not wake watchers.
    pub fn update<R>(&self, change: impl FnOnce(&mut AgentOutput) -> R) -> R {
        self.change(|inside| change(&mut inside.work))
    }

    /// Adds a watcher. While the watcher lives, the map keeps the entry as long as the task is
    /// live.
    pub fn watch(self: &Arc<Self>) -> WatchGuard {
        self.change(|inside| inside.watchers += 1);
        WatchGuard::new(self.clone())
    }

    fn unwatch(&self, now: Instant) {
        self.with_state(|inside| inside.watchers -= 1);
        self.settle(Some(now));
    }

    /// Counts the entry as watched until then: a client may come back.
    pub fn set_push_expected(&self, until: Instant) {
        self.change(|inside| inside.expected = inside.expected.max(Some(until)));
    }

    /// Returns true if a watcher exists, or one is expected to come back.
    pub fn is_watched(&self, now: Instant) -> bool {
        let is_watched =
            |inside: &EntryState| inside.watchers > 0 || inside.expected.is_some_and(|until| until > now);
        let stored = lock(&self.stored);
        stored.compressed().is_none() && stored.peek(is_watched)
    }

    /// Makes the caller the follower; `None` if there is one already.
    pub fn begin_following(self: &Arc<Self>) -> Option<FollowGuard> {
        let begun = self.change(|inside| {
            let is_free = !inside.is_followed;
            if is_free {
                inside.is_followed = true;
                inside.connections = inside.connections.saturating_add(1);
                inside.over = None;
            }
            is_free
        });
        self.tell_owners();
        begun.then(|| FollowGuard::new(self.clone()))
    }

    /// Records the reason for which following ended.
    pub fn end(&self, result: Result<(), AgentFailure>, now: Timestamp) {
        self.change(|inside| {
            inside.over = Some(result);
            inside.changed = now;
        });
        self.wake();
    }

    fn unfollow(&self) {
        self.change(|inside| {
            inside.is_followed = false;
            inside.shared = None;
            inside.over.get_or_insert(Err(AgentFailure::Internal("following it broke off")));
        });
        self.wake();
    }

    /// Records that the client wants the task cancelled; kept until the agent has named the task.
    pub fn request_cancel(&self) {
        self.change(|inside| inside.cancel_wanted = true);
        self.wake();
    }

    /// Returns true if a cancel request is pending, and clears it: the caller must act upon it.
    pub fn take_cancel_request(&self) -> bool {
        self.change(|inside| std::mem::take(&mut inside.cancel_wanted))
    }

    /// Begins to cancel the task at the agent; `None` if a cancellation is in progress already.
    pub fn begin_stopping(self: &Arc<Self>) -> Option<CancelGuard> {
        (!self.is_stopping.swap(true, Ordering::AcqRel)).then(|| CancelGuard::new(self.clone()))
    }

    /// Returns the number of completed attempts to cancel the task at the agent.
    pub fn cancel_attempts(&self) -> u64 {
        self.stops.load(Ordering::Acquire)
    }

    /// Returns true if a cancellation waits for the agent's response.
    pub fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Acquire)
    }

    /// Counts a completed attempt to cancel the task at the agent.
    pub fn cancel_attempted(&self) {
        self.stops.fetch_add(1, Ordering::AcqRel);
        self.wake();
    }

    fn end_stopping(&self) {
        self.is_stopping.store(false, Ordering::Release);
        self.wake();
    }

    /// Returns the agent's id of the task, once it has named one.
    pub fn task_id(&self) -> Option<String> {
        self.visible_state(|inside| inside.work.task_id.clone())
    }

    /// Returns true if the agent has named the task.
    pub fn is_named(&self) -> bool {
        let stored = lock(&self.stored);
        stored.compressed().is_some() || stored.peek(|inside| inside.work.task_id.is_some())
    }

    /// Returns the position of the last event that is part of the output, among those that replicas
    /// share.
    pub(crate) fn position(&self) -> EventPosition {
        self.visible_state(|inside| inside.position)
    }

    /// Sets the origin of the events from now on, of a task that is followed among replicas.
    pub(crate) fn set_event_origin(&self, origin: EventOrigin) {
        self.change(|inside| inside.set_origin(origin));
    }

    /// Records that the event at this position is part of the output.
    pub(crate) fn set_position(&self, position: EventPosition) {
        self.change(|inside| inside.position = inside.position.max(position));
    }

    /// Records that a client holds a handle of the task: from now on it is persisted, if tasks are.
    pub fn acknowledge(&self) {
        self.change(|inside| {
            inside.is_acknowledged = true;
            inside.has_local_handle |= inside.work.task_id.is_none();
        });
    }

    /// Keeps the artifacts as long as the entry lives: the agent has lost them.
    pub fn keep_artifacts(&self) {
        self.change(|inside| inside.keeps_artifacts = true);
    }

    /// Returns true if a client holds a handle of the task.
    pub fn is_acknowledged(&self) -> bool {
        let stored = lock(&self.stored);
        stored.compressed().is_some() || stored.peek(|inside| inside.is_acknowledged)
    }

    /// Fills in the persisted state, before the entry is visible to others.
    pub(super) fn restore(&self, fill: impl FnOnce(&mut EntryState)) {
        self.with_state(fill);
    }

    /// Returns the state itself.
    pub(super) fn into_state(self) -> EntryState {
        recover(self.stored.into_inner()).into_whole()
    }

    /// Merges the state that another process has of the same task.
    pub(super) fn learn(self: &Arc<Self>, other: Self, now: Timestamp) {
        let other = other.into_state();
        other.owners().for_each(|owner| self.own(owner));
        self.change(|inside| inside.learn(other));
        self.settle(Some(now.instant));
        self.wake();
    }

    /// Begins a new message exchange in the task: the agent's last reply is not its final result
    /// any more. Without a task nothing can continue, and the reply stays.
    pub fn begin_turn(&self) {
        self.change(|inside| inside.work.reply.take_if(|_| inside.work.task_id.is_some()));
    }

    /// Takes over the output of another call of this task, if nothing of the task is known yet.
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

    /// Records why the task makes no progress at present, if it does not. Wakes watchers if it is
    /// stalled.
    pub fn set_delay(&self, delay: Option<TaskDelay>) {
        let before = self.change(|inside| std::mem::replace(&mut inside.delay, delay));
        if before != delay && matches!(delay, Some(TaskDelay::Stalled(_))) {
            self.wake();
        }
    }

    /// Clears [`TaskDelay::Unreached`]: the agent has reported the state of the task.
    pub fn reached(&self) {
        self.change(|inside| inside.delay.take_if(|delay| *delay == TaskDelay::Unreached));
    }

    /// Sets the status that clients see from now on, without regard to the agent.
    pub fn set_verdict(&self, verdict: ClientOverride) {
        self.change(|inside| inside.verdict = Some(verdict));
        self.wake();
    }

    /// Claims the answer to question `turn`; `digest` identifies the answer.
    pub fn claim_answer(&self, turn: [u8; 16], digest: [u8; 16]) -> AnswerClaim {
        let claim = self.change(|inside| inside.turns.claim(turn, digest));
        self.wake();
        claim
    }

    /// Returns true if `response` is the digest of the response that brought the answer to `turn`,
    /// or if none was recorded; then it is recorded.
    pub fn is_same_response(&self, turn: [u8; 16], response: [u8; 16]) -> bool {
        self.change(|inside| inside.turns.is_same_response(turn, response))
    }

    /// Releases the claim: nothing was sent.
    pub fn release_answer(&self, turn: [u8; 16], trouble: AgentFailure) {
        self.change(|inside| inside.turns.release(turn, trouble));
        self.wake();
    }

    /// Returns the digest of the answer that was claimed for a question.
    pub(crate) fn answer_digest(&self, turn: [u8; 16]) -> Option<[u8; 16]> {
        self.visible_state(|inside| inside.turns.digest(turn))
    }

    /// Replaces the claim of a question by that of another replica, which has sent its answer, or is
    /// sending it.
    pub(crate) fn replace_answer(&self, turn: [u8; 16], digest: [u8; 16], is_sent: bool) {
        self.change(|inside| inside.turns.replace(turn, digest, is_sent));
        self.wake();
    }

    /// Records that the answer may have been sent. The same one may be given again; any other one
    /// only after the agent is seen to show the question still.
    pub fn mark_answer_unconfirmed(&self, turn: [u8; 16], trouble: &AgentFailure) {
        self.change(|inside| inside.turns.mark_unconfirmed(turn, trouble));
        self.wake();
    }

    /// Resolves unconfirmed answers: the question that the agent shows now, if any, tells whether
    /// the previous answer arrived.
    pub fn resolve_unconfirmed(&self, shown: Option<Fingerprint>) {
        if self.change(|inside| inside.turns.resolve(shown.map(Fingerprint::to_bytes))) {
            self.wake();
        }
    }

    /// Records that the answer was sent.
    pub fn mark_answer_sent(&self, turn: [u8; 16]) {
        self.change(|inside| {
            inside.turns.sent(turn);
            if inside.work.question_turn().map(Fingerprint::to_bytes) == Some(turn) {
                inside.work.question_answered();
            }
        });
    }

    /// Records that the agent is about to ask anew, in response to the answer to this question
    /// (`None`: in response to a message that answered none). If the agent still shows that
    /// question, the next one is another question, even in the same words, and wakes watchers.
    pub fn leave_question(&self, answered: Option<Fingerprint>) {
        self.change(|inside| {
            let Some(shown) = inside.work.question_turn() else { return };
            if answered.is_none_or(|answered| answered == shown) && inside.is_taken(shown.to_bytes()) {
                inside.turns.leave(shown.to_bytes());
                inside.work.leave_question();
            }
        });
    }

    /// Takes over the round of a question that another gateway has sent to a client, if that
    /// question is open here.
    pub fn adopt_round(&self, turn: Fingerprint) {
        self.change(|inside| {
            let is_shown = inside.work.question_turn().is_some_and(|shown| shown.asks_same(turn));
            if is_shown && inside.turns.adopt(turn.to_bytes()) {
                inside.count_rounds();
            }
        });
    }

    /// Records that the user refused to answer. The question stays open.
    pub fn record_refusal(&self, turn: [u8; 16], refusal: AnswerRefusal) {
        self.change(|inside| inside.turns.refuse(turn, refusal));
        self.wake();
    }

    /// Stores partial answers to the open question and claims the answer once `digest` returns that
    /// it is complete. Returns all parts so far, and the claim if it was tried.
    ///
    /// Both are one change: a watcher that saw the last part without the claim would ask once more.
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

    /// Returns the approximate size in bytes.
    pub fn bytes(&self) -> usize {
        self.stand().bytes
    }

    /// Returns true if the map has dropped the entry. Its follower should stop: no key leads to it
    /// any more.
    pub fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::Acquire)
    }

    /// Returns true if the agent has accepted a push registration for the task.
    pub fn is_pushed(&self) -> bool {
        self.is_pushed.load(Ordering::Acquire)
    }

    /// Records that the agent has accepted a push registration. Not persisted: a restart registers
    /// again.
    pub fn set_pushed(&self) {
        self.is_pushed.store(true, Ordering::Release);
    }

    pub(super) fn stand(&self) -> EvictionInfo {
        let stored = lock(&self.stored);
        match stored.compressed() {
            Some(compressed) => EvictionInfo {
                is_finished: true,
                is_watched: false,
                expected: None,
                is_followed: false,
                is_compressed: true,
                bytes: COMPRESSED_OVERHEAD + compressed.bytes(),
            },
            None => stored.peek(EntryState::eviction_info),
        }
    }

    pub(super) fn home(&self) -> Option<&ShardSlot> {
        self.home.get()
    }

    /// Sets the slot in the map, once.
    pub(super) fn move_in(&self, home: ShardSlot) -> bool {
        self.home.set(home).is_ok()
    }

    /// Marks the entry as dropped. Called with the lock of its shard.
    pub(super) fn mark_gone(&self) {
        self.is_gone.store(true, Ordering::Release);
    }

    pub(super) fn change<R>(&self, change: impl FnOnce(&mut EntryState) -> R) -> R {
        let result = self.with_state(change);
        self.settle(None);
        result
    }

    fn settle(&self, active: Option<Instant>) {
        if let Some(home) = self.home.get() {
            home.rebalance(active);
        }
    }

    pub(super) fn wake(&self) {
        self.changes.fetch_add(1, Ordering::Release);
        self.changed.notify_waiters();
        self.tell_owners();
    }
}

/// Receiver of the changes of an entry.
#[derive(Debug)]
pub struct TaskChanges {
    entry: Arc<TaskEntry>,
    seen: u64,
}

impl TaskChanges {
    /// Waits until the entry changes again, and marks the change as seen. Cancel-safe.
    pub async fn changed(&mut self) {
        loop {
            // Waits from here on: a change between the look at the count and the wait is not missed.
            let mut next = std::pin::pin!(self.entry.changed.notified());
            next.as_mut().enable();
            let count = self.entry.changes.load(Ordering::Acquire);
            if std::mem::replace(&mut self.seen, count) != count {
                return;
            }
            next.await;
        }
    }

    /// Returns true if there was a change that is not marked as seen.
    #[cfg(test)]
    pub fn has_changed(&self) -> bool {
        self.entry.changes.load(Ordering::Acquire) != self.seen
    }

    /// Marks all changes so far as seen.
    pub(crate) fn mark_unchanged(&mut self) {
        self.seen = self.entry.changes.load(Ordering::Acquire);
    }

    /// Marks one change as not seen, so that the next wait ends at once.
    pub(crate) fn mark_changed(&mut self) {
        self.seen = self.seen.wrapping_sub(1);
    }
}

/// Held by a watcher: while it lives, the entry stays as long as its task is live.
#[derive(Debug)]
pub struct WatchGuard {
    entry: Arc<TaskEntry>,
    ended: Option<Instant>,
}

impl WatchGuard {
    pub(super) fn new(entry: Arc<TaskEntry>) -> Self {
        Self { entry, ended: None }
    }

    /// Returns the watched entry.
    pub fn entry(&self) -> &Arc<TaskEntry> {
        &self.entry
    }

    /// Ends watching at `now`. A guard that is dropped instead reads the clock.
    #[cfg(test)]
    pub fn end(mut self, now: Instant) {
        self.ended = Some(now);
    }
}

impl Drop for WatchGuard {
    fn drop(&mut self) {
        self.entry.unwatch(self.ended.unwrap_or_else(Instant::now));
    }
}

/// Held while a cancellation waits for the agent; a second `begin_stopping` returns `None`.
#[derive(Debug)]
pub struct CancelGuard {
    entry: Arc<TaskEntry>,
}

impl CancelGuard {
    pub(super) fn new(entry: Arc<TaskEntry>) -> Self {
        Self { entry }
    }

    /// Returns the entry that is being cancelled.
    pub fn entry(&self) -> &Arc<TaskEntry> {
        &self.entry
    }
}

impl Drop for CancelGuard {
    fn drop(&mut self) {
        self.entry.end_stopping();
    }
}

/// Held by the task's only follower; a second `begin_following` returns `None`.
#[derive(Debug)]
pub struct FollowGuard {
    entry: Arc<TaskEntry>,
}

impl FollowGuard {
    pub(super) fn new(entry: Arc<TaskEntry>) -> Self {
        Self { entry }
    }

    /// Returns the followed entry.
    #[cfg(test)]
    pub fn entry(&self) -> &Arc<TaskEntry> {
        &self.entry
    }
}

impl Drop for FollowGuard {
    /// Frees the task; if no reason was recorded, following counts as broken off.
    fn drop(&mut self) {
        self.entry.unfollow();
    }
}

/// Digest of the output that a watcher can see.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct VisibleState(u64);

impl VisibleState {
    /// Computes the digest. `deep` includes the content of artifacts: for events that replace them
    /// all.
    pub(super) fn at(work: &AgentOutput, deep: bool) -> Self {
        let mut hasher = DefaultHasher::new();
        work.state.map(crate::a2a::TaskState::as_str).hash(&mut hasher);
        (&work.task_id, &work.context_id, work.reply.is_some(), work.content_bytes()).hash(&mut hasher);
        if let Some(status) = &work.status {
            // Some agents make another id each time that they show a question.
            status.message_id.as_ref().filter(|_| work.asking().is_none()).hash(&mut hasher);
            status.parts.iter().for_each(|part| hash_part(part, &mut hasher));
        }
        for artifact in work.artifacts().filter(|_| deep) {
            (&artifact.artifact_id, &artifact.name).hash(&mut hasher);
            artifact.parts.iter().for_each(|part| hash_part(part, &mut hasher));
        }
        Self(hasher.finish())
    }
}

fn hash_part(part: &Part, hasher: &mut impl Hasher) {
    std::mem::discriminant(&part.body).hash(hasher);
    match &part.body {
        PartBody::Text(text) => text.hash(hasher),
        PartBody::Raw(text) | PartBody::Url(text) => text.hash(hasher),
        PartBody::Data(json) | PartBody::Unknown(json) => json.get().hash(hasher),
    }
}
