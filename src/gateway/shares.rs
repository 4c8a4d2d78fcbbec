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

use super::answer::Gone;
use super::in_use::InUse;
pub(super) use super::in_use::{Part, Use};
use super::queue::{Place, Queue};
use crate::auth::{Caller, network};
use crate::config::{Agent, Limits};
use crate::fault::Fault;
pub(super) use crate::quota::Whose;
use crate::quota::{AnswerRoom, BytePermit, ByteQuota};
use crate::tasks::Entry;
use crate::telemetry::metrics::Metrics;

/// Live tasks by caller, and by their number here.
type Held = HashMap<Arc<str>, HashMap<[u8; 16], Task>>;

/// A task of a caller.
enum Task {
    /// It is about to begin.
    Promised,
    /// It has begun.
    Begun(Weak<Entry>),
}

/// All shares.
pub(super) struct Shares {
    rate: Option<DefaultKeyedRateLimiter<Whose>>,
    calls: usize,
    streams: usize,
    tasks: usize,
    bytes: Arc<ByteQuota>,
    /// Most bytes of one answer of an agent.
    answer: usize,
    agents: HashMap<String, OfAgent>,
    in_use: Arc<InUse>,
    /// The tasks that callers hold, those without a name together. Ended ones are forgotten when they are counted.
    held: Arc<Mutex<Held>>,
    clock: DefaultClock,
}

/// The share of one agent.
struct OfAgent {
    rate: Option<governor::DefaultDirectRateLimiter>,
    calls: Option<Queue>,
}

/// Most pushes that are on their way to one caller at once: a webhook that is slow does not take the room of others.
const MOST_PUSHES: usize = 32;

/// A place for a task that is promised until the task is held or this is dropped.
pub(super) struct Promise {
    caller: Arc<str>,
    number: [u8; 16],
    held: Arc<Mutex<Held>>,
}

/// Whose share a request is of.
pub(super) fn whose(caller: &Caller, http: &Session) -> Whose {
    if !caller.is_anonymous() {
        return Whose::Caller(caller.name().into());
    }
    address(http).map_or_else(|| Whose::Caller(caller.name().into()), Whose::Address)
}

/// Where a request comes from. Of IPv6 the network: who has one address there has all of them.
pub(super) fn address(http: &Session) -> Option<IpAddr> {
    http.client_addr().and_then(|address| address.as_inet()).map(|address| network(address.ip()))
}

impl Shares {
    /// Shares by these limits. Those of the whole are never one caller's alone.
    pub(super) fn new(limits: &Limits, agents: &[Agent], metrics: &Arc<Metrics>) -> Self {
        let agents = agents.iter().map(|agent| {
            let rate = quota(agent.rate, agent.rate).map(RateLimiter::direct);
            let queue = || Queue::new(agent.max_calls, agent.queue, metrics.agent(&agent.name).queue());
            (agent.name.clone(), OfAgent { rate, calls: (agent.max_calls > 0).then(queue) })
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
    pub(super) fn request(&self, whose: &Whose) -> Result<(), Fault> {
        let Some(rate) = &self.rate else { return Ok(()) };
        rate.check_key(whose)
            .map_err(|until| Fault::TooOften(seconds(until.wait_time_from(self.clock.now()))))
    }

    /// Takes a part of a caller's share.
    ///
    /// # Errors
    ///
    /// [`Fault::TooMuch`] if it is used up.
    pub(super) fn take(&self, whose: &Whose, what: Use) -> Result<Part, Fault> {
        let (most, words) = match what {
            Use::Call => (self.calls, "too many calls of yours are under way"),
            Use::Body => (self.calls, "too many requests of yours are being read"),
            Use::Stream => (self.streams, "too many streams of yours are open"),
            Use::Push => (MOST_PUSHES, "too many pushes are on their way to you"),
        };
        self.in_use.take((whose.clone(), what), most).ok_or(Fault::TooMuch(words))
    }

    /// A permit for the bytes of a buffer. It counts nothing yet.
    pub(super) fn permit(&self, whose: Option<&Whose>) -> BytePermit {
        self.bytes.permit(whose)
    }

    /// The room for an answer of an agent to this caller.
    pub(super) fn answer_room(&self, whose: Option<&Whose>) -> AnswerRoom {
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
    pub(super) async fn call_of(
        &self,
        agent: &str,
        leaves: impl Future<Output = ()>,
    ) -> Result<Option<Place>, Result<Fault, Gone>> {
        let Some(of) = self.agents.get(agent) else { return Ok(None) };
        if of.rate.as_ref().is_some_and(|rate| rate.check().is_err()) {
            return Err(Ok(Fault::Busy("this agent is called too often")));
        }
        match &of.calls {
            Some(queue) => queue.place(leaves).await.map(Some),
            None => Ok(None),
        }
    }

    /// Notes that a caller holds a task. Callers without a name are one caller.
    pub(super) fn hold(&self, caller: &Caller, entry: &Arc<Entry>) {
        let mut held = lock(&self.held);
        let tasks = held.entry(caller.name().into()).or_default();
        // More than that need not be counted: it is too many already.
        if tasks.contains_key(&entry.local()) || has_room(tasks, self.tasks) {
            tasks.insert(entry.local(), Task::Begun(Arc::downgrade(entry)));
        }
    }

    /// Reserves a place for a task that a caller is about to begin under this number. Callers without a name share their places.
    ///
    /// # Errors
    ///
    /// [`Fault::TooMuch`] if as many of its tasks are live, or about to be, as may be.
    pub(super) fn promise(&self, caller: &Caller, number: [u8; 16]) -> Result<Promise, Fault> {
        let caller: Arc<str> = caller.name().into();
        let mut held = lock(&self.held);
        let tasks = held.entry(caller.clone()).or_default();
        if !has_room(tasks, self.tasks) {
            return Err(Fault::TooMuch("too many tasks of yours are live"));
        }
        tasks.insert(number, Task::Promised);
        Ok(Promise { caller, number, held: self.held.clone() })
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

impl Drop for Promise {
    fn drop(&mut self) {
        let mut held = lock(&self.held);
        let Some(tasks) = held.get_mut(&self.caller) else { return };
        if matches!(tasks.get(&self.number), Some(Task::Promised)) {
            tasks.remove(&self.number);
        }
    }
}

fn lock(held: &Mutex<Held>) -> MutexGuard<'_, Held> {
    held.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether there are fewer than `most`. What has ended is forgotten only where it would be too many.
fn has_room(tasks: &mut HashMap<[u8; 16], Task>, most: usize) -> bool {
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

fn is_live(task: &Task) -> bool {
    match task {
        Task::Promised => true,
        Task::Begun(task) => task.upgrade().is_some_and(|entry| !entry.look(|inside| inside.is_finished())),
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
    use crate::tasks::Times;

    fn shares(limits: Limits) -> Shares {
        let mut agent = Agent::new("bard", "http://bard.example/");
        agent.max_calls = 1;
        Shares::new(&limits, &[agent], &Metrics::new().unwrap())
    }

    #[test]
    fn a_share_is_the_caller_s_own_and_comes_back() {
        let shares = shares(Limits { caller_calls: 2, ..Limits::default() });
        let (ann, ben) = (Whose::Caller("key:ann".into()), Whose::Caller("key:ben".into()));
        let parts = [shares.take(&ann, Use::Call).unwrap(), shares.take(&ann, Use::Call).unwrap()];
        assert!(matches!(shares.take(&ann, Use::Call), Err(Fault::TooMuch(_))));
        assert!(shares.take(&ann, Use::Stream).is_ok() && shares.take(&ben, Use::Call).is_ok());
        drop(parts);
        assert!(shares.take(&ann, Use::Call).is_ok());
        assert!(shares.in_use.is_empty(), "nothing is left");
    }

    #[test]
    fn requests_beyond_the_rate_are_told_when_to_come_back() {
        let shares = shares(Limits { caller_rate: 1, caller_burst: 2, ..Limits::default() });
        let ann = Whose::Address("192.0.2.1".parse().unwrap());
        assert!(shares.request(&ann).is_ok() && shares.request(&ann).is_ok());
        assert_eq!(shares.request(&ann), Err(Fault::TooOften(1)));
        assert!(shares.request(&Whose::Address("192.0.2.2".parse().unwrap())).is_ok());
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
        let ann = Caller::supposed("key:ann", Vec::new(), Vec::new());
        let place = shares.promise(&ann, [1; 16]).unwrap();
        assert!(shares.promise(&ann, [2; 16]).is_err(), "nothing of it is in the map yet");
        drop(place);
        let place = shares.promise(&ann, [2; 16]).unwrap();
        let entry =
            Arc::new(Entry::new("bard".into(), [2; 16], crate::bridge::work::Work::new(9), Times::now()));
        shares.hold(&ann, &entry);
        drop(place);
        assert!(shares.promise(&ann, [3; 16]).is_err(), "it is held now");
        drop(entry);
        assert!(shares.promise(&ann, [3; 16]).is_ok());
        let place = shares.promise(&Caller::anonymous(), [4; 16]);
        assert!(place.is_ok() && shares.promise(&Caller::anonymous(), [5; 16]).is_err());
        drop(place);
        shares.sweep();
        assert!(lock(&shares.held).is_empty());
    }

    #[tokio::test]
    async fn an_agent_has_a_share_of_its_own() {
        let shares = shares(Limits::default());
        let call_of = |agent| shares.call_of(agent, std::future::pending());
        let place = call_of("bard").await.unwrap();
        assert!(place.is_some() && matches!(call_of("bard").await, Err(Ok(Fault::Busy(_)))));
        drop(place);
        assert!(call_of("bard").await.is_ok() && call_of("other").await.unwrap().is_none());
    }
}
