//! Calls that clients of legacy sessions cancelled, and whose tasks live on for `calls.cancel_grace`.
//!
//! Hosts with short limits cancel calls whose results they want all the same. The next call of the same tool in the session names
//! the tasks in its result; then they stay. Otherwise they are cancelled at their agents. Instance-local. Not here: the words (see
//! `bridge::earlier`).

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::closing::DrainState;
use super::source::FollowedTask;
use crate::follow::TaskFollower;

/// Most cancelled calls of one session, and of all: beyond that a task is cancelled at once.
const MAX_OF_SESSION: usize = 8;
const MAX_CALLS: usize = 1024;
/// Longest wait for an agent that is told to cancel a task, while the process ends.
const CANCELLED_WITHIN: Duration = Duration::from_secs(10);
/// Shortest limit that a client is taken to have. Users cancel sooner, and their next call must not suffer.
const SHORTEST_LIMIT: Duration = Duration::from_secs(2);

/// The key of a session.
type SessionKey = [u8; 16];

/// A call that its client cancelled.
pub(super) struct CancelledCall {
    pub(super) session: SessionKey,
    /// The tool, as the client called it.
    pub(super) tool: String,
    /// The task that it began.
    pub(super) task: Box<FollowedTask>,
    /// How long the client waited for the result.
    pub(super) waited: Duration,
}

/// A call in the table, with the moment at which its task is cancelled.
struct Waiting {
    call: CancelledCall,
    due: Instant,
}

/// The cancelled calls of one gateway, in the order in which they are due.
pub(super) struct CancelledCalls {
    followers: Arc<TaskFollower>,
    grace: Duration,
    waiting: Mutex<VecDeque<Waiting>>,
    added: Notify,
    /// How many tasks are being cancelled.
    cancelling: AtomicUsize,
}

impl CancelledCalls {
    /// Holds nothing yet. Without `grace` it never does.
    pub(super) fn new(followers: &Arc<TaskFollower>, grace: Duration) -> Arc<Self> {
        let (waiting, added, cancelling) = (Mutex::default(), Notify::new(), AtomicUsize::new(0));
        Arc::new(Self { followers: followers.clone(), grace, waiting, added, cancelling })
    }

    /// Whether tasks of cancelled calls live on.
    pub(super) fn is_on(&self) -> bool {
        !self.grace.is_zero()
    }

    /// How many tasks live on, or are being cancelled.
    pub(super) fn count(&self) -> usize {
        self.waiting().len() + self.cancelling.load(Ordering::Acquire)
    }

    fn waiting(&self) -> MutexGuard<'_, VecDeque<Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets the task of a call live on for the grace. Where there is no room, the oldest of the session is cancelled at once;
    /// where there is none at all, the new one is.
    pub(super) fn insert(&self, call: CancelledCall) {
        let surplus = {
            let mut waiting = self.waiting();
            let of_session = |one: &Waiting| one.call.session == call.session;
            let oldest = waiting.iter().position(of_session);
            let is_full = waiting.iter().filter(|one| of_session(one)).count() >= MAX_OF_SESSION;
            let oldest = oldest.filter(|_| is_full).and_then(|at| waiting.remove(at));
            if waiting.len() < MAX_CALLS {
                waiting.push_back(Waiting { call, due: Instant::now() + self.grace });
                oldest.map(|oldest| oldest.call)
            } else {
                Some(call)
            }
        };
        self.added.notify_one();
        if let Some(CancelledCall { task, .. }) = surplus {
            self.followers.cancel(&task.entry, &task.known);
        }
    }

    /// Takes the cancelled calls of a tool in a session.
    pub(super) fn take(self: &Arc<Self>, session: SessionKey, tool: &str) -> Option<EarlierCalls> {
        let is_taken = |one: &Waiting| one.call.session == session && one.call.tool == tool;
        let calls = remove(&mut self.waiting(), is_taken);
        let is_told = AtomicBool::new(false);
        (!calls.is_empty()).then(|| EarlierCalls { table: self.clone(), calls, is_told, warning: None })
    }

    /// The session is over: its tasks are cancelled now.
    pub(super) fn end_session(&self, session: SessionKey) {
        for call in remove(&mut self.waiting(), |one| one.call.session == session) {
            self.followers.cancel(&call.task.entry, &call.task.known);
        }
    }

    /// Cancels tasks whose time is over; all of them once the last answers of the process are due. Runs until it is dropped.
    pub(super) async fn run(self: Arc<Self>, closing: &DrainState) {
        let mut cancelling = JoinSet::new();
        loop {
            tokio::select! {
                () = self.due(closing) => {
                    for call in self.take_due(closing) {
                        cancelling.spawn(self.clone().cancel(call));
                    }
                }
                Some(_) = cancelling.join_next() => {}
            }
        }
    }

    /// Waits until the time of a task is over.
    async fn due(&self, closing: &DrainState) {
        loop {
            let next = self.waiting().front().map(|first| first.due);
            let Some(due) = next else {
                self.added.notified().await;
                continue;
            };
            tokio::select! {
                () = sleep_until(due) => return,
                () = closing.answers_due() => return,
                () = self.added.notified() => {}
            }
        }
    }

    /// Takes the calls whose time is over. They are counted until they are cancelled.
    fn take_due(&self, closing: &DrainState) -> Vec<CancelledCall> {
        let now = Instant::now();
        let mut waiting = self.waiting();
        let due = remove(&mut waiting, |one| one.due <= now || closing.is_due());
        self.cancelling.fetch_add(due.len(), Ordering::AcqRel);
        due
    }

    async fn cancel(self: Arc<Self>, call: CancelledCall) {
        let _cancelling = Cancelling(&self.cancelling);
        let FollowedTask { entry, known, .. } = call.task.as_ref();
        let cancelled = self.followers.cancel_and_wait(entry, known);
        if tokio::time::timeout(CANCELLED_WITHIN, cancelled).await.is_err() {
            tracing::debug!(agent = %entry.agent(), "agent takes long to cancel the task of a cancelled call");
        }
    }
}

/// Takes out what fits; the rest keeps its order.
fn remove(waiting: &mut VecDeque<Waiting>, fits: impl Fn(&Waiting) -> bool) -> Vec<CancelledCall> {
    if !waiting.iter().any(&fits) {
        return Vec::new();
    }
    let (taken, kept): (VecDeque<_>, VecDeque<_>) = std::mem::take(waiting).into_iter().partition(fits);
    *waiting = kept;
    taken.into_iter().map(|one| one.call).collect()
}

/// A task that is being cancelled; counted while it lasts.
struct Cancelling<'a>(&'a AtomicUsize);

impl Drop for Cancelling<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Cancelled calls that the result of the next one names. If there is no result, they go back for another grace.
pub(super) struct EarlierCalls {
    table: Arc<CancelledCalls>,
    calls: Vec<CancelledCall>,
    is_told: AtomicBool,
    /// What the client is to know of its tasks besides.
    pub(super) warning: Option<&'static str>,
}

impl EarlierCalls {
    /// The tasks.
    pub(super) fn tasks(&self) -> impl Iterator<Item = &FollowedTask> {
        self.calls.iter().map(|call| call.task.as_ref())
    }

    /// How long the client waits this time, as far as its cancellations tell: less than it did then.
    pub(super) fn budget(&self) -> Duration {
        let shortest = self.calls.iter().map(|call| call.waited / 5 * 4).min().unwrap_or(Duration::MAX);
        shortest.max(SHORTEST_LIMIT)
    }

    /// The client is told of the tasks: they stay.
    pub(super) fn set_told(&self) {
        self.is_told.store(true, Ordering::Release);
    }
}

impl Drop for EarlierCalls {
    fn drop(&mut self) {
        if !self.is_told.load(Ordering::Acquire) {
            self.calls.drain(..).for_each(|call| self.table.insert(call));
        }
    }
}
