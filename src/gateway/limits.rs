//! What one caller, and one agent, may have of the gateway: requests in a second, calls, streams and tasks at once.
//!
//! Callers that are nobody are told apart by their address. A share that is used up is refused at once, but for an agent's: its calls may wait in line (see
//! `queue`). Not here: limits of the whole (see `listen`, `tasks`), of connections (see `server`).

use std::collections::HashMap;
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use governor::clock::{Clock, DefaultClock};
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};
use pingora::proxy::Session;

use super::queue::{AgentQueue, CallPermit};
use super::response::ClientGone;
use super::usage::UsageCounters;
pub(super) use super::usage::{QuotaKind, QuotaPermit};
use crate::auth::{Caller, network};
use crate::config::{Agent, Limits};
use crate::fault::Fault;
pub(super) use crate::quota::QuotaOwner;
use crate::quota::{AnswerRoom, BytePermit, ByteQuota};
use crate::tasks::TaskEntry;
use crate::telemetry::metrics::Metrics;

/// Live tasks by caller, and by their number here.
type CallerTasks = HashMap<Arc<str>, HashMap<[u8; 16], CallerTask>>;

/// A task of a caller.
enum CallerTask {
    /// It is about to begin.
    Promised,
    /// It has begun.
    Begun(Weak<TaskEntry>),
}

/// All shares.
pub(super) struct QuotaRegistry {
    rate: Option<DefaultKeyedRateLimiter<QuotaOwner>>,
    calls: usize,
    streams: usize,
    tasks: usize,
    bytes: Arc<ByteQuota>,
    /// Most bytes of one answer of an agent.
    answer: usize,
    agents: HashMap<String, AgentLimits>,
    in_use: Arc<UsageCounters>,
    /// The tasks that callers hold, those without a name together. Ended ones are forgotten when they are counted.
    held: Arc<Mutex<CallerTasks>>,
    clock: DefaultClock,
}

/// The share of one agent.
struct AgentLimits {
    rate: Option<governor::DefaultDirectRateLimiter>,
    calls: Option<AgentQueue>,
}

/// Most pushes that are on their way to one caller at once: a webhook that is slow does not take the room of others.
const MOST_PUSHES: usize = 32;

/// A place for a task that is promised until the task is held or this is dropped.
pub(super) struct TaskReservation {
    caller: Arc<str>,
    number: [u8; 16],
    held: Arc<Mutex<CallerTasks>>,
}

/// Whose share a request is of.
pub(super) fn quota_key(caller: &Caller, http: &Session) -> QuotaOwner {
    if !caller.is_anonymous() {
        return QuotaOwner::Caller(caller.name().into());
    }
    address(http).map_or_else(|| QuotaOwner::Caller(caller.name().into()), QuotaOwner::Address)
}

/// Where a request comes from. Of IPv6 the network: who has one address there has all of them.
pub(super) fn address(http: &Session) -> Option<IpAddr> {
    http.client_addr().and_then(|address| address.as_inet()).map(|address| network(address.ip()))
}

impl QuotaRegistry {
    /// Shares by these limits. Those of the whole are never one caller's alone.
    pub(super) fn new(limits: &Limits, agents: &[Agent], metrics: &Arc<Metrics>) -> Self {
        let agents = agents.iter().map(|agent| {
            let rate = quota(agent.rate, agent.rate).map(RateLimiter::direct);
            let queue = || AgentQueue::new(agent.max_calls, agent.queue, metrics.agent(&agent.name).queue());
            (agent.name.clone(), AgentLimits { rate, calls: (agent.max_calls > 0).then(queue) })
        });
        Self {
            rate: quota(limits.caller_rate, limits.caller_burst).map(RateLimiter::keyed),
            calls: limits.caller_calls,
            streams: part_of(limits.caller_streams, limits.streams),
            tasks: limits.caller_tasks,
            bytes: Arc::new(ByteQuota::new(
                limits.bytes,
                part_of(limits.caller_bytes, limits.bytes),
                metrics.clone(),
            )),
            answer: limits.response,
            agents: agents.collect(),
            in_use: Arc::default(),
            held: Arc::default(),
            clock: DefaultClock::default(),
        }
    }

    /// Counts a request.
    ///
    /// # Errors
    ///
    /// [`Fault::TooOften`], with the wait.
    pub(super) fn check_request_rate(&self, whose: &QuotaOwner) -> Result<(), Fault> {
        let Some(rate) = &self.rate else { return Ok(()) };
        rate.check_key(whose)
            .map_err(|until| Fault::RateLimited(seconds(until.wait_time_from(self.clock.now()))))
    }

    /// Takes a part of a caller's share.
    ///
    /// # Errors
    ///
    /// [`Fault::TooMuch`] if it is used up.
    pub(super) fn acquire(&self, whose: &QuotaOwner, what: QuotaKind) -> Result<QuotaPermit, Fault> {
        let (most, words) = match what {
            QuotaKind::Call => (self.calls, "too many calls of yours are under way"),
            QuotaKind::Body => (self.calls, "too many requests of yours are being read"),
            QuotaKind::Stream => (self.streams, "too many streams of yours are open"),
            QuotaKind::Push => (MOST_PUSHES, "too many pushes are on their way to you"),
        };
        self.in_use.take((whose.clone(), what), most).ok_or(Fault::QuotaExceeded(words))
    }

    /// A permit for the bytes of a buffer. It counts nothing yet.
    pub(super) fn permit(&self, whose: Option<&QuotaOwner>) -> BytePermit {
        self.bytes.permit(whose)
    }

    /// The room for an answer of an agent to this caller.
    pub(super) fn answer_room(&self, whose: Option<&QuotaOwner>) -> AnswerRoom {
        AnswerRoom { limit: self.answer, permit: self.permit(whose) }
    }

    /// The bytes of all requests and answers.
    pub(super) fn bytes(&self) -> &Arc<ByteQuota> {
        &self.bytes
    }

    /// Takes a call of an agent's share, perhaps after a wait; `None`: it has no limits.
    ///
    /// # Errors
    ///
    /// [`Fault::Busy`] if it is used up; [`Gone`] if the client `leaves` before it is its turn.
    pub(super) async fn acquire_agent_call(
        &self,
        agent: &str,
        leaves: impl Future<Output = ()>,
    ) -> Result<Option<CallPermit>, Result<Fault, ClientGone>> {
        let Some(of) = self.agents.get(agent) else { return Ok(None) };
        if of.rate.as_ref().is_some_and(|rate| rate.check().is_err()) {
            return Err(Ok(Fault::Busy("this agent is called too often")));
        }
        match &of.calls {
            Some(queue) => queue.acquire(leaves).await.map(Some),
            None => Ok(None),
        }
    }

    /// Notes that a caller holds a task. Callers without a name are one caller.
    pub(super) fn track_task(&self, caller: &Caller, entry: &Arc<TaskEntry>) {
        let mut held = lock(&self.held);
        let tasks = held.entry(caller.name().into()).or_default();
        // More than that need not be counted: it is too many already.
        if tasks.contains_key(&entry.local()) || has_room(tasks, self.tasks) {
            tasks.insert(entry.local(), CallerTask::Begun(Arc::downgrade(entry)));
        }
    }

    /// Reserves a place for a task that a caller is about to begin under this number. Callers without a name share their places.
    ///
    /// # Errors
    ///
    /// [`Fault::TooMuch`] if as many of its tasks are live, or about to be, as may be.
    pub(super) fn reserve_task(&self, caller: &Caller, number: [u8; 16]) -> Result<TaskReservation, Fault> {
        let caller: Arc<str> = caller.name().into();
        let mut held = lock(&self.held);
        let tasks = held.entry(caller.clone()).or_default();
        if !has_room(tasks, self.tasks) {
            return Err(Fault::QuotaExceeded("too many tasks of yours are live"));
        }
        tasks.insert(number, CallerTask::Promised);
        Ok(TaskReservation { caller, number, held: self.held.clone() })
    }

    /// Forgets who has not asked for a while.
    pub(super) fn sweep(&self) {
        lock(&self.held).retain(|_, tasks| {
            tasks.retain(|_, task| is_live(task));
            !tasks.is_empty()
        });
        if let Some(rate) = &self.rate {
            rate.retain_recent();
            rate.shrink_to_fit();
        }
    }
}

impl Drop for TaskReservation {
    fn drop(&mut self) {
        let mut held = lock(&self.held);
        let Some(tasks) = held.get_mut(&self.caller) else { return };
        if matches!(tasks.get(&self.number), Some(CallerTask::Promised)) {
            tasks.remove(&self.number);
        }
    }
}

fn lock(held: &Mutex<CallerTasks>) -> MutexGuard<'_, CallerTasks> {
    held.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether there are fewer than `most`. What has ended is forgotten only where it would be too many.
fn has_room(tasks: &mut HashMap<[u8; 16], CallerTask>, most: usize) -> bool {
    if tasks.len() >= most {
        tasks.retain(|_, task| is_live(task));
    }
    tasks.len() < most
}

/// The share of one caller of what all have: three quarters of it at most, so that no caller takes all. Of fewer than four nothing
/// can be left.
fn part_of(of_one: usize, of_all: usize) -> usize {
    let left = of_all / 4;
    if left == 0 { of_one } else { of_one.min(of_all - left) }
}

fn is_live(task: &CallerTask) -> bool {
    match task {
        CallerTask::Promised => true,
        CallerTask::Begun(task) => {
            task.upgrade().is_some_and(|entry| !entry.visible_state(|inside| inside.is_finished()))
        }
    }
}

fn quota(rate: usize, burst: usize) -> Option<Quota> {
    let number = |number: usize| NonZeroU32::new(u32::try_from(number).unwrap_or(u32::MAX));
    let rate = number(rate)?;
    Some(Quota::per_second(rate).allow_burst(number(burst).unwrap_or(rate)))
}

/// Whole seconds, at least one: a client that comes back too early is refused again.
fn seconds(wait: std::time::Duration) -> u64 {
    wait.as_secs() + u64::from(wait.subsec_nanos() > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tasks::Timestamp;

    fn shares(limits: Limits) -> QuotaRegistry {
        let mut agent = Agent::new("bard", "http://bard.example/");
        agent.max_calls = 1;
        QuotaRegistry::new(&limits, &[agent], &Metrics::new().unwrap())
    }

    #[test]
    fn a_share_is_the_caller_s_own_and_comes_back() {
        let shares = shares(Limits { caller_calls: 2, ..Limits::default() });
        let (ann, ben) = (QuotaOwner::Caller("key:ann".into()), QuotaOwner::Caller("key:ben".into()));
        let parts =
            [shares.acquire(&ann, QuotaKind::Call).unwrap(), shares.acquire(&ann, QuotaKind::Call).unwrap()];
        assert!(matches!(shares.acquire(&ann, QuotaKind::Call), Err(Fault::QuotaExceeded(_))));
        assert!(
            shares.acquire(&ann, QuotaKind::Stream).is_ok() && shares.acquire(&ben, QuotaKind::Call).is_ok()
        );
        drop(parts);
        assert!(shares.acquire(&ann, QuotaKind::Call).is_ok());
        assert!(shares.in_use.is_empty(), "nothing is left");
    }

    #[test]
    fn requests_beyond_the_rate_are_told_when_to_come_back() {
        let shares = shares(Limits { caller_rate: 1, caller_burst: 2, ..Limits::default() });
        let ann = QuotaOwner::Address("192.0.2.1".parse().unwrap());
        assert!(shares.check_request_rate(&ann).is_ok() && shares.check_request_rate(&ann).is_ok());
        assert_eq!(shares.check_request_rate(&ann), Err(Fault::RateLimited(1)));
        assert!(shares.check_request_rate(&QuotaOwner::Address("192.0.2.2".parse().unwrap())).is_ok());
    }

    #[test]
    fn no_caller_takes_what_is_for_all() {
        for (of_one, of_all, share) in
            [(256, 1024, 256), (256, 100, 75), (9, 4, 3), (9, 3, 9), (9, 1, 9), (1, 1024, 1)]
        {
            assert_eq!(part_of(of_one, of_all), share, "{of_one} of {of_all}");
        }
    }

    #[test]
    fn the_last_place_for_a_task_is_given_once() {
        let shares = shares(Limits { caller_tasks: 1, ..Limits::default() });
        let ann = Caller::hypothetical("key:ann", Vec::new(), Vec::new());
        let place = shares.reserve_task(&ann, [1; 16]).unwrap();
        assert!(shares.reserve_task(&ann, [2; 16]).is_err(), "nothing of it is in the map yet");
        drop(place);
        let place = shares.reserve_task(&ann, [2; 16]).unwrap();
        let entry = Arc::new(TaskEntry::new(
            "bard".into(),
            [2; 16],
            crate::bridge::output::AgentOutput::new(9),
            Timestamp::now(),
        ));
        shares.track_task(&ann, &entry);
        drop(place);
        assert!(shares.reserve_task(&ann, [3; 16]).is_err(), "it is held now");
        drop(entry);
        assert!(shares.reserve_task(&ann, [3; 16]).is_ok());
        let place = shares.reserve_task(&Caller::anonymous(), [4; 16]);
        assert!(place.is_ok() && shares.reserve_task(&Caller::anonymous(), [5; 16]).is_err());
        drop(place);
        shares.sweep();
        assert!(lock(&shares.held).is_empty());
    }

    #[tokio::test]
    async fn an_agent_has_a_share_of_its_own() {
        let shares = shares(Limits::default());
        let call_of = |agent| shares.acquire_agent_call(agent, std::future::pending());
        let place = call_of("bard").await.unwrap();
        assert!(place.is_some() && matches!(call_of("bard").await, Err(Ok(Fault::Busy(_)))));
        drop(place);
        assert!(call_of("bard").await.is_ok() && call_of("other").await.unwrap().is_none());
    }
}
