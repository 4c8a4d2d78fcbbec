//! Running calls of legacy sessions, so that `notifications/cancelled` finds them, and the calls that
//! were cancelled. Their tasks continue for `calls.cancel_grace`.
//!
//! Hosts with short limits cancel calls but still want the results. If the session calls the same
//! tool again, that result names the tasks, and they stay. Otherwise they are cancelled at their
//! agents. Local to one instance. See also `bridge::tool_result` for the texts.

use std::collections::{BTreeMap, HashMap, VecDeque, hash_map};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::source::FollowedTask;
use crate::agents::Agent;
use crate::auth::Caller;
use crate::follow::TaskFollower;
use crate::http_edge::DrainState;
use crate::jsonrpc::Id;
use crate::sessions::{SessionKey, SessionOwner};
use crate::sync::{Latch, lock};

/// Most cancelled calls of one session and of one caller: beyond that, the oldest of these is
/// cancelled at once.
const MAX_OF_SESSION: usize = 8;
const MAX_OF_CALLER: usize = 256;
/// Most cancelled calls of all callers: beyond that, the new one is cancelled at once.
const MAX_CALLS: usize = 1024;
/// Longest wait for an agent to cancel a task while the process ends.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(10);
/// Lower bound for the inferred limit of a client. Users may cancel sooner, and their next call
/// must not suffer.
const MIN_INFERRED_LIMIT: Duration = Duration::from_secs(2);

/// Call that its client cancelled.
pub(crate) struct CancelledCall {
    pub(crate) session: SessionKey,
    /// Name of the tool in the client's call.
    pub(crate) tool: String,
    /// Task that the call started.
    pub(crate) task: Box<FollowedTask>,
    /// Time that the client waited for the result.
    pub(crate) waited: Duration,
}

/// Call in the table, with the time at which its task is cancelled.
struct Waiting {
    call: CancelledCall,
    due: Instant,
}

/// Cancelled calls of one gateway, ordered by the time at which they are due.
pub(crate) struct CancelledCalls {
    followers: Arc<TaskFollower>,
    /// In milliseconds.
    grace: AtomicU64,
    waiting: Mutex<VecDeque<Waiting>>,
    added: Notify,
    /// Number of tasks that are being cancelled.
    cancelling: AtomicUsize,
}

impl CancelledCalls {
    /// Creates an empty table. With a zero `grace` the table stays empty.
    pub(crate) fn new(followers: &Arc<TaskFollower>, grace: Duration) -> Arc<Self> {
        let (waiting, added, cancelling) = (Mutex::default(), Notify::new(), AtomicUsize::new(0));
        let calls =
            Self { followers: followers.clone(), grace: AtomicU64::new(0), waiting, added, cancelling };
        calls.set_grace(grace);
        Arc::new(calls)
    }

    /// Sets the grace of the calls that are cancelled from now on.
    pub(crate) fn set_grace(&self, grace: Duration) {
        self.grace.store(u64::try_from(grace.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    fn grace(&self) -> Duration {
        Duration::from_millis(self.grace.load(Ordering::Relaxed))
    }

    /// Returns true if tasks of cancelled calls continue.
    pub(crate) fn is_on(&self) -> bool {
        !self.grace().is_zero()
    }

    /// Returns the number of tasks that continue or are being cancelled.
    pub(crate) fn count(&self) -> usize {
        self.waiting().len() + self.cancelling.load(Ordering::Acquire)
    }

    fn waiting(&self) -> MutexGuard<'_, VecDeque<Waiting>> {
        lock(&self.waiting)
    }

    /// Lets the task of a call continue for the grace. If the session or its caller is at the limit,
    /// the oldest task of that one is cancelled at once; if the table is full, the new task is.
    pub(crate) fn insert(&self, call: CancelledCall) {
        let surplus = {
            let mut waiting = self.waiting();
            let sessions: Vec<SessionKey> = waiting.iter().map(|one| one.call.session).collect();
            let oldest = surplus_at(&sessions, &call.session).and_then(|at| waiting.remove(at));
            if waiting.len() < MAX_CALLS {
                waiting.push_back(Waiting { call, due: Instant::now() + self.grace() });
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

    /// Removes and returns the cancelled calls of a tool in a session.
    pub(crate) fn take(self: &Arc<Self>, session: SessionKey, tool: &str) -> Option<EarlierCalls> {
        let is_taken = |one: &Waiting| one.call.session == session && one.call.tool == tool;
        let calls = remove(&mut self.waiting(), is_taken);
        let is_told = AtomicBool::new(false);
        (!calls.is_empty()).then(|| EarlierCalls { table: self.clone(), calls, is_told, warning: None })
    }

    /// Cancels the tasks of a session that has ended.
    pub(crate) fn end_session(&self, session: SessionKey) {
        for call in remove(&mut self.waiting(), |one| one.call.session == session) {
            self.followers.cancel(&call.task.entry, &call.task.known);
        }
    }

    /// Cancels tasks at the end of their grace, and all tasks once the last responses of the process
    /// are due. Runs until it is dropped.
    pub(crate) async fn run(self: Arc<Self>, drain: &DrainState) {
        let mut cancelling = JoinSet::new();
        loop {
            tokio::select! {
                () = self.due(drain) => {
                    for call in self.take_due(drain) {
                        cancelling.spawn(self.clone().cancel(call));
                    }
                }
                Some(_) = cancelling.join_next() => {}
            }
        }
    }

    /// Waits until the grace of a task has expired.
    async fn due(&self, drain: &DrainState) {
        loop {
            let next = self.waiting().front().map(|first| first.due);
            let Some(due) = next else {
                self.added.notified().await;
                continue;
            };
            tokio::select! {
                () = sleep_until(due) => return,
                () = drain.answers_due() => return,
                () = self.added.notified() => {}
            }
        }
    }

    /// Removes and returns the calls that are due. They are counted until they are cancelled.
    fn take_due(&self, drain: &DrainState) -> Vec<CancelledCall> {
        let now = Instant::now();
        let mut waiting = self.waiting();
        let due = remove(&mut waiting, |one| one.due <= now || drain.is_due());
        self.cancelling.fetch_add(due.len(), Ordering::AcqRel);
        due
    }

    async fn cancel(self: Arc<Self>, call: CancelledCall) {
        let _cancelling = Cancelling(&self.cancelling);
        let FollowedTask { entry, known, .. } = call.task.as_ref();
        let cancelled = self.followers.cancel_and_wait(entry, known);
        if tokio::time::timeout(CANCEL_TIMEOUT, cancelled).await.is_err() {
            tracing::debug!(agent = %entry.agent(), "timed out waiting for agent to cancel task of cancelled call");
        }
    }
}

/// Returns the position of the call that makes room for one more of this session, if the session or
/// its caller is at the limit. The sessions of the waiting calls are in order, the oldest first.
fn surplus_at(waiting: &[SessionKey], session: &SessionKey) -> Option<usize> {
    let owner = SessionOwner::of_key(session);
    let oldest_beyond = |most: usize, is_one: &dyn Fn(&SessionKey) -> bool| {
        let is_full = waiting.iter().filter(|key| is_one(key)).count() >= most;
        is_full.then(|| waiting.iter().position(is_one)).flatten()
    };
    oldest_beyond(MAX_OF_SESSION, &|key| key == session)
        .or_else(|| oldest_beyond(MAX_OF_CALLER, &|key| SessionOwner::of_key(key) == owner))
}

/// Removes and returns the calls that match; the rest keeps its order.
fn remove(waiting: &mut VecDeque<Waiting>, fits: impl Fn(&Waiting) -> bool) -> Vec<CancelledCall> {
    if !waiting.iter().any(&fits) {
        return Vec::new();
    }
    let (taken, kept): (VecDeque<_>, VecDeque<_>) = std::mem::take(waiting).into_iter().partition(fits);
    *waiting = kept;
    taken.into_iter().map(|one| one.call).collect()
}

/// Guard of a task that is being cancelled; decrements the count when it is dropped.
struct Cancelling<'a>(&'a AtomicUsize);

impl Drop for Cancelling<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Cancelled calls that the result of the next call names. Without a result they return to the
/// table for another grace.
pub(crate) struct EarlierCalls {
    table: Arc<CancelledCalls>,
    calls: Vec<CancelledCall>,
    is_told: AtomicBool,
    /// Warning for the client about these tasks.
    pub(crate) warning: Option<&'static str>,
}

impl EarlierCalls {
    /// Returns the tasks of these calls.
    pub(crate) fn tasks(&self) -> impl Iterator<Item = &FollowedTask> {
        self.calls.iter().map(|call| call.task.as_ref())
    }

    /// Returns the budget for this call: less than the shortest wait that the client cancelled.
    pub(crate) fn budget(&self) -> Duration {
        let shortest = self.calls.iter().map(|call| call.waited / 5 * 4).min().unwrap_or(Duration::MAX);
        shortest.max(MIN_INFERRED_LIMIT)
    }

    /// Records that the client received the handles: the tasks stay.
    pub(crate) fn set_told(&self) {
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

type CallKey = ([u8; 16], String);

/// Running calls of one gateway; each entry lasts no longer than its request. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct InFlightCalls {
    calls: Arc<Mutex<HashMap<CallKey, Arc<Latch>>>>,
}

/// Guard of a running call; removes the entry when it is dropped.
pub(crate) struct InFlightCall {
    calls: Arc<Mutex<HashMap<CallKey, Arc<Latch>>>>,
    key: CallKey,
    cancelled: Arc<Latch>,
}

impl InFlightCalls {
    /// Registers a call of a session.
    pub(crate) fn register(&self, session: [u8; 16], id: &Id) -> InFlightCall {
        let key = (session, id.as_json().to_owned());
        let cancelled = Arc::new(Latch::default());
        let mut calls = lock(&self.calls);
        calls.insert(key.clone(), cancelled.clone());
        InFlightCall { calls: self.calls.clone(), key, cancelled }
    }

    /// Cancels a call, if it is running.
    pub(crate) fn cancel(&self, session: [u8; 16], id: &Id) {
        let calls = lock(&self.calls);
        if let Some(call) = calls.get(&(session, id.as_json().to_owned())) {
            call.set();
        }
    }
}

impl InFlightCall {
    /// Waits until the call is cancelled.
    pub(crate) async fn cancelled(&self) {
        self.cancelled.wait().await;
    }
}

impl Drop for InFlightCall {
    fn drop(&mut self) {
        let mut calls = lock(&self.calls);
        if let hash_map::Entry::Occupied(there) = calls.entry(std::mem::take(&mut self.key))
            && Arc::ptr_eq(there.get(), &self.cancelled)
        {
            there.remove();
        }
    }
}

/// The calls that run now, for the page of operators. Empty while there is no page.
pub(crate) struct LiveCalls {
    is_kept: bool,
    calls: LiveCallTable,
    next: AtomicU64,
}

/// The calls by their numbers.
type LiveCallTable = Arc<Mutex<BTreeMap<u64, LiveCall>>>;

/// A call that runs now.
#[derive(Clone)]
pub(crate) struct LiveCall {
    /// The agent.
    pub(crate) agent: Arc<Agent>,
    /// The tool in the client's call.
    pub(crate) tool: Box<str>,
    /// The caller.
    pub(crate) caller: Caller,
    /// The time at which the client began to wait.
    pub(crate) since: Instant,
}

/// Guard of a live call; removes the entry when it is dropped.
pub(crate) struct LiveCallGuard {
    calls: LiveCallTable,
    key: u64,
}

impl LiveCalls {
    /// Keeps calls only if `is_kept`.
    pub(crate) fn new(is_kept: bool) -> Self {
        Self { is_kept, calls: Arc::default(), next: AtomicU64::new(0) }
    }

    /// Registers a call, if calls are kept.
    pub(super) fn register(&self, call: impl FnOnce() -> LiveCall) -> Option<LiveCallGuard> {
        if !self.is_kept {
            return None;
        }
        let key = self.next.fetch_add(1, Ordering::Relaxed);
        let call = call();
        lock(&self.calls).insert(key, call);
        Some(LiveCallGuard { calls: self.calls.clone(), key })
    }

    /// Returns the number of calls that run now.
    pub(crate) fn len(&self) -> usize {
        lock(&self.calls).len()
    }

    /// Returns the calls that run now, at most `most` of them, the oldest first.
    pub(crate) fn snapshot(&self, most: usize) -> Vec<LiveCall> {
        let mut calls: Vec<_> = lock(&self.calls).values().cloned().collect();
        calls.sort_by_key(|call| call.since);
        calls.truncate(most);
        calls
    }
}

impl Drop for LiveCallGuard {
    fn drop(&mut self) {
        lock(&self.calls).remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Key of this session of this caller.
    fn key(session: u8, caller: u8) -> SessionKey {
        [[session; 8], [caller; 8]].concat().try_into().unwrap()
    }

    #[test]
    fn session_and_caller_are_bounded() {
        let others = [key(1, 1), key(2, 2)];
        let mut waiting = others.to_vec();
        assert_eq!(surplus_at(&waiting, &key(3, 3)), None);
        waiting.extend([key(3, 3); MAX_OF_SESSION]);
        assert_eq!(surplus_at(&waiting, &key(3, 3)), Some(2), "the session's own oldest");
        assert_eq!(surplus_at(&waiting, &key(4, 3)), None, "another session of the caller has room");
        let sessions = (3..).flat_map(|session| [key(session, 3); MAX_OF_SESSION]);
        waiting = others.into_iter().chain(sessions.take(MAX_OF_CALLER)).collect();
        assert_eq!(surplus_at(&waiting, &key(99, 3)), Some(2), "the caller's own oldest");
        assert_eq!(surplus_at(&waiting, &key(1, 2)), None, "another caller has room");
    }
}

#[cfg(test)]
mod in_flight_calls_tests {
    use super::*;

    #[tokio::test]
    async fn a_call_is_cancelled_by_its_session_and_its_exact_id_only() {
        let running = InFlightCalls::default();
        let id: Id = serde_json::from_str("1").unwrap();
        let other: Id = serde_json::from_str("\"1\"").unwrap();
        let entry = running.register([1; 16], &id);
        running.cancel([2; 16], &id);
        running.cancel([1; 16], &other);
        let waited = tokio::time::timeout(std::time::Duration::from_millis(20), entry.cancelled()).await;
        assert!(waited.is_err());
        running.cancel([1; 16], &id);
        entry.cancelled().await;
        drop(entry);
        assert!(running.calls.lock().unwrap().is_empty());
    }
}
