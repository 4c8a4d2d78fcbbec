//! Push notifications: agents are asked for them, and one that comes makes the gateway look.
//!
//! A push is a hint and nothing more: `GetTask` says what is true, so that one which is replayed, late or made up changes
//! nothing. Many of them are one look, and the next look is a while later. Not here: receiving them (see `gateway`), what is
//! polled instead where there are none (see `rota`).

use std::collections::HashMap;
use std::collections::hash_map::Entry as Slot;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;
use tracing::{debug, info, warn};

use super::job::BackgroundJob;
use super::task_follower::TaskFollower;
use crate::agents::{AgentOperation, DriveEvent, ResolvedAgent, WebhookTarget};
use crate::fault::AgentFailure;
use crate::tasks::{TaskEntry, TaskPhase};

/// Where this agent is to push what is new of this task; `None`: nowhere.
pub type PushAddressFn = Box<dyn Fn(&str, &str) -> Option<WebhookTarget> + Send + Sync>;

/// How long an agent that refused is not asked again.
const REFUSED_FOR: Duration = Duration::from_secs(600);
/// The shortest time between two looks at one task.
const BETWEEN: Duration = Duration::from_millis(500);
/// Looks at once, over all tasks.
const LOOKS: usize = 64;

/// What is known of pushes.
pub(super) struct PushRegistrations {
    address: Option<PushAddressFn>,
    /// Agents that did not take the address, and when. As many as there are agents.
    refused: Mutex<HashMap<Arc<str>, Instant>>,
    looks: Semaphore,
    bells: Arc<RefreshGuards>,
}

/// The tasks that are looked at because of a push, and whether there was another push meanwhile.
#[derive(Default)]
struct RefreshGuards(Mutex<HashMap<usize, bool>>);

/// The right to look at a task; nobody else does because of a push meanwhile.
pub(super) struct RefreshGuard {
    bells: Arc<RefreshGuards>,
    /// The address of the entry, which whoever holds this keeps alive.
    number: usize,
    is_over: bool,
}

impl PushRegistrations {
    pub(super) fn new(address: Option<PushAddressFn>) -> Self {
        Self { address, refused: Mutex::default(), looks: Semaphore::new(LOOKS), bells: Arc::default() }
    }

    fn refused(&self) -> MutexGuard<'_, HashMap<Arc<str>, Instant>> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_refused(&self, agent: &str, now: Instant) -> bool {
        self.refused().get(agent).is_some_and(|at| now.saturating_duration_since(*at) < REFUSED_FOR)
    }

    /// Notes that an agent refused at `now`. Says whether that is new.
    fn refuse(&self, agent: &Arc<str>, now: Instant) -> bool {
        let was_refused = self.is_refused(agent, now);
        self.refused().insert(agent.clone(), now);
        !was_refused
    }
}

impl RefreshGuards {
    fn inside(&self) -> MutexGuard<'_, HashMap<usize, bool>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `None`, and remembered, if the task is looked at already.
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
    /// Whether there was a push since the last time that this was asked; if not, the right is given up.
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
    /// Asks agents for pushes from now on.
    #[must_use]
    pub fn with_pushes(mut self, address: PushAddressFn) -> Self {
        self.pushes = PushRegistrations::new(Some(address));
        self
    }

    /// Takes the hint that there is something new of a task. Says whether that leads to a look of its own: one look is under way at
    /// a time, and all hints that come meanwhile are one more.
    pub fn on_push(&self, entry: &Arc<TaskEntry>, known: &Arc<ResolvedAgent>) -> bool {
        let Some(bell) = self.pushes.bells.try_start_refresh(Arc::as_ptr(entry).addr()) else { return false };
        self.enqueue(BackgroundJob::Look(entry.clone(), known.clone(), bell), None);
        true
    }

    /// Looks at a task as often as there are hints.
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
                    debug!(agent = %entry.agent(), %trouble, "agent pushed and does not say how the task stands");
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

    /// Asks the agent to push what is new of a task, once it has a name. Says whether it will.
    pub(super) async fn register_webhook(&self, entry: &Arc<TaskEntry>, known: &Arc<ResolvedAgent>) -> bool {
        let mut changes = entry.changes();
        while !entry.is_named() {
            if changes.changed().await.is_err() {
                return false;
            }
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
            // That says nothing about the next one.
            Err(AgentFailure::TaskNotFound) => {}
            Err(trouble) if self.pushes.refuse(entry.agent(), Instant::now()) => {
                warn!(agent = %entry.agent(), %trouble, "agent cannot be asked for push notifications; its tasks are polled");
            }
            Err(trouble) => {
                info!(agent = %entry.agent(), %trouble, "agent still cannot be asked for push notifications")
            }
        }
        entry.is_pushed()
    }

    fn webhook(&self, entry: &TaskEntry, known: &ResolvedAgent) -> Option<AgentOperation> {
        let address = self.pushes.address.as_ref()?;
        if !known.card.push_notifications || self.pushes.is_refused(entry.agent(), Instant::now()) {
            return None;
        }
        let live = entry.visible_state(|inside| (!inside.is_finished()).then(|| inside.work.task_id.clone()));
        let task = live.flatten()?;
        let hook = address(entry.agent(), &task)?;
        Some(AgentOperation::Webhook(task, hook))
    }
}

/// Waits until nobody listens to the agent for the task: a stream brings the news itself, and a look beside it would mix what is
/// said twice. Says whether there is anything left to look at.
async fn debounce(entry: &TaskEntry) -> bool {
    let mut changes = entry.changes();
    loop {
        if entry.is_gone() || entry.visible_state(|inside| inside.is_finished()) {
            return false;
        }
        if !entry.visible_state(|inside| inside.is_followed()) {
            return true;
        }
        if changes.changed().await.is_err() {
            return false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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
                    // A look that begins now sees it.
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
            let (pushes, agent) = (PushRegistrations::new(None), Arc::<str>::from("weather"));
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
