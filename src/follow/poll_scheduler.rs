//! The poll scheduler: live tasks without room for a stream, or without a stream, are polled in
//! turn.
//!
//! Each task is queued once; one that is finished or dropped leaves. A task moves back to a stream
//! as soon as there is a permit. Two queues: a task with an accepted push registration is polled
//! only every `streams.retry_max`, in case a push got lost, because a push triggers a refresh at
//! once (see `push_trigger`); every other one each second. Before the first poll of a task its
//! webhook is registered, and that poll finds what happened before the agent accepted.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::task::JoinSet;
use tracing::debug;

use super::task_follower::TaskFollower;
use crate::agents::ResolvedAgent;
use crate::sync::lock;
use crate::tasks::{TaskEntry, TaskPhase};

/// Concurrent polls.
const MAX_CONCURRENT_POLLS: usize = 8;
/// Longest wait for the registration of a webhook.
const ANNOUNCED_WITHIN: Duration = Duration::from_secs(10);
/// The shortest time between two polls of one task.
const ROUND: Duration = Duration::from_secs(1);

/// Tasks that wait for their poll.
pub(super) struct PollScheduler {
    inside: Mutex<Queues>,
    added: Notify,
    /// The time between two polls of a task with push notifications.
    calm: Duration,
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
        Self { inside: Mutex::default(), added: Notify::new(), calm: calm.max(ROUND) }
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
        let mut inside = self.inside();
        if inside.present.insert(number) {
            let not_before = Instant::now() + if is_pushed { self.calm } else { ROUND };
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
        if entry.is_gone() || entry.visible_state(|inside| inside.is_finished()) {
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
