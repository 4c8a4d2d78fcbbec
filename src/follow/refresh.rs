//! Refreshes of tasks that have no stream: by a poll in turn, and when the agent pushes.
//!
//! Live tasks without room for a stream, or without a stream, are polled in turn. Each task is queued
//! once; one that is finished or dropped leaves. A task moves back to a stream as soon as there is a
//! permit. Two queues: a task with an accepted push registration is polled only every
//! `streams.retry_max`, in case a push got lost, because a push triggers a refresh at once; every
//! other one each second. Before the first poll of a task its webhook is registered, and that poll
//! finds what happened before the agent accepted.
//!
//! A push is a hint and nothing more: `GetTask` returns the truth, so that a push which is replayed,
//! late or forged changes nothing. Several pushes are merged into one refresh, and the next refresh
//! is a while later.

use std::collections::hash_map::Entry as Slot;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinSet;
use tracing::{debug, info, warn};

use super::{BackgroundJob, TaskFollower};
use crate::agents::{AgentOperation, DriveEvent, ResolvedAgent, WebhookTarget};
use crate::fault::AgentFailure;
use crate::sync::lock;
use crate::tasks::{TaskEntry, TaskPhase};

/// Concurrent polls.
const MAX_CONCURRENT_POLLS: usize = 8;
/// Longest wait for the registration of a webhook.
const ANNOUNCED_WITHIN: Duration = Duration::from_secs(10);
/// The shortest time between two polls of one task.
const ROUND: Duration = Duration::from_secs(1);
/// Time for which an agent that refused is not asked again.
const REFUSED_FOR: Duration = Duration::from_secs(600);
/// The shortest time between two refreshes of one task.
const BETWEEN: Duration = Duration::from_millis(500);
/// Concurrent refreshes, over all tasks.
const LOOKS: usize = 64;

/// Tasks that wait for their poll.
pub(super) struct PollScheduler {
    inside: Mutex<Queues>,
    added: Notify,
    /// The time between two polls of a task with push notifications.
    calm: Mutex<Duration>,
}

#[derive(Default)]
struct Queues {
    /// In each queue all wait for the same time, so that the first is the next.
    polled: VecDeque<QueueEntry>,
    pushed: VecDeque<QueueEntry>,
    present: HashSet<usize>,
}

struct QueueEntry {
    entry: Weak<TaskEntry>,
    known: Arc<ResolvedAgent>,
    number: usize,
    not_before: Instant,
}

impl Queues {
    /// Returns the time at which the next entry is due.
    fn initial_delay(&self) -> Option<Instant> {
        let due = |queue: &VecDeque<QueueEntry>| queue.front().map(|place| place.not_before);
        due(&self.polled).into_iter().chain(due(&self.pushed)).min()
    }

    /// Removes an entry that is due.
    fn take(&mut self, now: Instant) -> Option<QueueEntry> {
        let is_due =
            |queue: &VecDeque<QueueEntry>| queue.front().is_some_and(|place| place.not_before <= now);
        // Rare polls first, so that frequent ones do not delay them.
        let queue = if is_due(&self.pushed) { &mut self.pushed } else { &mut self.polled };
        let place = if is_due(queue) { queue.pop_front() } else { None }?;
        self.present.remove(&place.number);
        Some(place)
    }
}

impl PollScheduler {
    /// Returns empty queues. Tasks with push notifications are polled once in `calm`.
    pub(super) fn new(calm: Duration) -> Self {
        Self { inside: Mutex::default(), added: Notify::new(), calm: Mutex::new(calm.max(ROUND)) }
    }

    /// Sets the time between two polls of a task with push notifications.
    pub(super) fn set_calm(&self, calm: Duration) {
        *lock(&self.calm) = calm.max(ROUND);
    }

    fn inside(&self) -> MutexGuard<'_, Queues> {
        lock(&self.inside)
    }

    /// Returns the number of tasks that wait for their poll.
    pub(super) fn waiting(&self) -> usize {
        self.inside().present.len()
    }

    /// Adds a task to its queue, if it is in none.
    pub(super) fn add(&self, entry: &Arc<TaskEntry>, known: Arc<ResolvedAgent>) {
        let number = Arc::as_ptr(entry).addr();
        let is_pushed = entry.is_pushed();
        let pause = if is_pushed { *lock(&self.calm) } else { ROUND };
        let mut inside = self.inside();
        if inside.present.insert(number) {
            let not_before = Instant::now() + pause;
            let queue = if is_pushed { &mut inside.pushed } else { &mut inside.polled };
            queue.push_back(QueueEntry { entry: Arc::downgrade(entry), known, number, not_before });
            self.added.notify_one();
        }
    }

    /// Removes the next task from its queue once it is due.
    async fn next(&self) -> QueueEntry {
        loop {
            let due = {
                let mut inside = self.inside();
                if let Some(place) = inside.take(Instant::now()) {
                    return place;
                }
                inside.initial_delay()
            };
            let added = self.added.notified();
            match due {
                // A new entry may be due earlier.
                Some(due) => drop(tokio::time::timeout_at(due.into(), added).await),
                None => added.await,
            }
        }
    }

    /// Polls to the end of the process.
    pub(super) async fn run(&self, followers: &Arc<TaskFollower>) {
        let mut asked = JoinSet::new();
        loop {
            tokio::select! {
                place = self.next(), if asked.len() < MAX_CONCURRENT_POLLS => {
                    let followers = followers.clone();
                    asked.spawn(async move { followers.poll_one(place).await });
                }
                Some(ended) = asked.join_next() => {
                    if ended.is_err_and(|error| error.is_panic()) {
                        followers.metrics.panicked();
                    }
                }
            }
        }
    }
}

impl TaskFollower {
    async fn poll_one(&self, place: QueueEntry) {
        let Some(entry) = place.entry.upgrade() else { return };
        if entry.is_gone() || entry.is_finished() {
            return;
        }
        if entry.is_named() {
            // An agent that does not answer must not delay the polls of others.
            let announcing =
                tokio::time::timeout(ANNOUNCED_WITHIN, self.register_webhook(&entry, &place.known));
            if announcing.await.is_err() {
                debug!(agent = %entry.agent(), "webhook registration timed out");
            }
        }
        if let Err(trouble) = self.refresh(&entry, &place.known).await {
            debug!(agent = %entry.agent(), error = %trouble, "failed to poll task");
            if trouble == crate::fault::AgentFailure::TaskNotFound {
                return entry.end(Err(trouble), crate::tasks::Timestamp::now());
            }
        }
        let is_live = entry.visible_state(|inside| inside.phase() == TaskPhase::Running);
        // An open question changes only for clients that wait for it.
        if is_live || entry.is_watched(Instant::now()) {
            self.ensure_followed(&entry, &place.known);
        }
    }
}

/// Returns the webhook for a task of an agent; `None` if there is none.
pub type PushAddressFn = Box<dyn Fn(&str, &str) -> Option<WebhookTarget> + Send + Sync>;

/// State of push registrations and refreshes.
pub(super) struct PushRegistrations {
    address: ArcSwapOption<PushAddressFn>,
    /// Agents that refused the webhook, and the time. As many as there are agents.
    refused: Mutex<HashMap<Arc<str>, Instant>>,
    looks: Semaphore,
    bells: Arc<RefreshGuards>,
}

/// The tasks with a refresh in progress, and true if another push arrived meanwhile.
#[derive(Default)]
struct RefreshGuards(Mutex<HashMap<usize, bool>>);

/// Held by the only refresh of a task because of a push.
pub(super) struct RefreshGuard {
    bells: Arc<RefreshGuards>,
    /// The address of the entry, which the holder of this guard keeps alive.
    number: usize,
    is_over: bool,
}

impl PushRegistrations {
    pub(super) fn new() -> Self {
        let address = ArcSwapOption::empty();
        Self { address, refused: Mutex::default(), looks: Semaphore::new(LOOKS), bells: Arc::default() }
    }

    /// Replaces the webhooks of registrations from now on.
    pub(super) fn set_address(&self, address: Option<PushAddressFn>) {
        self.address.store(address.map(Arc::new));
    }

    fn refused(&self) -> MutexGuard<'_, HashMap<Arc<str>, Instant>> {
        lock(&self.refused)
    }

    fn is_refused(&self, agent: &str, now: Instant) -> bool {
        self.refused().get(agent).is_some_and(|at| now.saturating_duration_since(*at) < REFUSED_FOR)
    }

    /// Records that an agent refused at `now`. Returns true if that is new.
    fn refuse(&self, agent: &Arc<str>, now: Instant) -> bool {
        let was_refused = self.is_refused(agent, now);
        self.refused().insert(agent.clone(), now);
        !was_refused
    }
}

impl RefreshGuards {
    fn inside(&self) -> MutexGuard<'_, HashMap<usize, bool>> {
        lock(&self.0)
    }

    /// Returns a guard, or `None` if the task has a refresh in progress; the trigger is recorded
    /// then.
    fn try_start_refresh(self: &Arc<Self>, number: usize) -> Option<RefreshGuard> {
        match self.inside().entry(number) {
            Slot::Occupied(mut again) => {
                again.insert(true);
                None
            }
            Slot::Vacant(free) => {
                free.insert(false);
                Some(RefreshGuard { bells: self.clone(), number, is_over: false })
            }
        }
    }
}

impl RefreshGuard {
    /// Returns true if a push arrived since the last call; if not, the guard is given up.
    fn was_retriggered(&mut self) -> bool {
        let mut inside = self.bells.inside();
        let again = inside.get_mut(&self.number).is_some_and(std::mem::take);
        if !again {
            inside.remove(&self.number);
            self.is_over = true;
        }
        again
    }
}

impl Drop for RefreshGuard {
    fn drop(&mut self) {
        if !self.is_over {
            self.bells.inside().remove(&self.number);
        }
    }
}

impl TaskFollower {
    /// Triggers a refresh of a task after a push. Returns true if that starts a refresh of its own:
    /// one refresh is in progress at a time, and all pushes meanwhile cause one more.
    pub fn on_push(&self, entry: &Arc<TaskEntry>, known: &Arc<ResolvedAgent>) -> bool {
        let Some(bell) = self.pushes.bells.try_start_refresh(Arc::as_ptr(entry).addr()) else { return false };
        self.enqueue(BackgroundJob::Look(entry.clone(), known.clone(), bell), None);
        true
    }

    /// Refreshes a task as often as there are pushes.
    pub(super) async fn refresh_on_hints(
        &self,
        entry: &Arc<TaskEntry>,
        known: &Arc<ResolvedAgent>,
        mut bell: RefreshGuard,
    ) {
        loop {
            if !debounce(entry).await {
                return;
            }
            // Fails only when the semaphore is closed, which it never is.
            let turn = self.pushes.looks.acquire().await;
            let looked = self.refresh(entry, known).await;
            drop(turn);
            match looked {
                Ok(()) if entry.visible_state(|inside| inside.phase()) == TaskPhase::Running => {
                    self.ensure_followed(entry, known)
                }
                Ok(()) => {}
                Err(trouble) => {
                    debug!(agent = %entry.agent(), error = %trouble, "failed to refresh task after push");
                    if trouble == AgentFailure::TaskNotFound {
                        return self.mark_failed(entry, trouble);
                    }
                }
            }
            tokio::time::sleep(BETWEEN).await;
            if !bell.was_retriggered() {
                return;
            }
        }
    }

    /// Registers the webhook of a task at its agent, once the task has a name. Returns true if the
    /// agent will push.
    pub(super) async fn register_webhook(&self, entry: &Arc<TaskEntry>, known: &Arc<ResolvedAgent>) -> bool {
        let mut changes = entry.changes();
        while !entry.is_named() {
            changes.changed().await;
        }
        if entry.is_pushed() {
            return true;
        }
        let Some(errand) = self.webhook(entry, known) else { return false };
        let mut drive = self.start(known, errand);
        let result = loop {
            if let DriveEvent::Over(result) = drive.next().await {
                break result;
            }
        };
        match result {
            Ok(()) => entry.set_pushed(),
            // Predicts nothing for the next task.
            Err(AgentFailure::TaskNotFound) => {}
            Err(trouble) if self.pushes.refuse(entry.agent(), Instant::now()) => {
                warn!(agent = %entry.agent(), error = %trouble, "failed to register webhook, polling tasks of agent");
            }
            Err(trouble) => {
                info!(agent = %entry.agent(), error = %trouble, "failed to register webhook again")
            }
        }
        entry.is_pushed()
    }

    fn webhook(&self, entry: &TaskEntry, known: &ResolvedAgent) -> Option<AgentOperation> {
        let address = self.pushes.address.load_full()?;
        if !known.card.push_notifications || self.pushes.is_refused(entry.agent(), Instant::now()) {
            return None;
        }
        let live = entry.visible_state(|inside| (!inside.is_finished()).then(|| inside.work.task_id.clone()));
        let task = live.flatten()?;
        let hook = address(entry.agent(), &task)?;
        Some(AgentOperation::Webhook(task, hook))
    }
}

/// Waits until the task has no follower: a stream brings the changes itself, and a refresh besides
/// it would repeat content. Returns true if there is still something to refresh.
async fn debounce(entry: &Arc<TaskEntry>) -> bool {
    let mut changes = entry.changes();
    loop {
        if entry.is_gone() || entry.is_finished() {
            return false;
        }
        if !entry.visible_state(|inside| inside.is_followed()) {
            return true;
        }
        changes.changed().await;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn whatever_comes_during_a_look_is_one_more_look() {
        let bells = Arc::<RefreshGuards>::default();
        let mut bell = bells.try_start_refresh(1).unwrap();
        for _ in 0..100 {
            assert!(bells.try_start_refresh(1).is_none());
        }
        assert!(bells.try_start_refresh(2).is_some(), "another task has its own");
        assert!(bell.was_retriggered());
        assert!(!bell.was_retriggered());
        let _next = bells.try_start_refresh(1).unwrap();
        drop(bell);
        assert!(bells.try_start_refresh(1).is_none(), "the last one takes nothing from the next");
    }

    proptest! {
        #[test]
        fn no_push_is_lost_and_one_look_is_under_way(steps in proptest::collection::vec(any::<bool>(), 0..60)) {
            let bells = Arc::<RefreshGuards>::default();
            let (mut bell, mut unseen): (Option<RefreshGuard>, bool) = (None, false);
            for is_push in steps {
                if is_push {
                    let next = bells.try_start_refresh(1);
                    prop_assert_eq!(next.is_some(), bell.is_none());
                    // A refresh that begins now sees it.
                    unseen = bell.is_some();
                    bell = bell.or(next);
                } else if let Some(held) = &mut bell {
                    let again = held.was_retriggered();
                    prop_assert_eq!(again, unseen);
                    unseen = false;
                    if !again {
                        bell = None;
                    }
                }
            }
        }

        #[test]
        fn a_refusal_is_told_once_and_forgotten_in_time(pauses in proptest::collection::vec(0u64..1_000, 1..20)) {
            let (pushes, agent) = (PushRegistrations::new(), Arc::<str>::from("weather"));
            let mut now = Instant::now();
            let mut last: Option<Instant> = None;
            for pause in pauses {
                now += Duration::from_secs(pause);
                let is_known = last.is_some_and(|last| now - last < REFUSED_FOR);
                prop_assert_eq!(pushes.is_refused("weather", now), is_known);
                prop_assert_eq!(pushes.refuse(&agent, now), !is_known);
                last = Some(now);
            }
            prop_assert!(!pushes.is_refused("weather", now + REFUSED_FOR));
            prop_assert!(!pushes.is_refused("news", now));
        }
    }
}
