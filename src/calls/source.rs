//! Origin of the events of a call: a direct call of the agent, or a task that is followed in the
//! background.
//!
//! See also `responder` and `follow`.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::a2a::{StreamResponse, TaskState};
use crate::agents::{DetachableCall, DriveEvent, ResolvedAgent};
use crate::bridge::output::{AgentOutput, OutputState, ProgressUpdate};
use crate::fault::{AgentFailure, TaskDelay};
use crate::follow::{DetachMode, DetachedCall, TaskFollower};
use crate::quota::{BytePermit, FREE_BYTES};
use crate::tasks::{ClientOverride, EntryState, TaskChanges, TaskEntry, TaskPhase, WatchGuard};

/// Call that this request makes to the agent itself.
pub(crate) struct DirectCall {
    pub(crate) drive: DetachableCall,
    pub(crate) work: AgentOutput,
    pub(crate) known: Arc<ResolvedAgent>,
    pub(crate) local: [u8; 16],
    /// Permit for the bytes of the output.
    permit: BytePermit,
    /// Bytes of events since the bytes of the output were counted.
    uncounted: usize,
    agent_time: Duration,
    /// Start of the present wait for an event.
    waiting_since: Option<Instant>,
    /// End of the last wait for an event, until it is taken.
    waited_until: Option<Instant>,
    /// Number of events that the agent sent.
    heard: u64,
}

impl DirectCall {
    /// Creates a call from this exchange, which collects the output and counts its bytes with
    /// `permit`.
    pub(crate) fn new(
        drive: DetachableCall,
        permit: BytePermit,
        work: AgentOutput,
        known: Arc<ResolvedAgent>,
    ) -> Self {
        let (local, agent_time) = (rand::random(), Duration::ZERO);
        Self {
            drive,
            work,
            known,
            local,
            permit,
            uncounted: 0,
            agent_time,
            waiting_since: None,
            waited_until: None,
            heard: 0,
        }
    }
}

/// Task in the map.
pub(crate) struct FollowedTask {
    pub(crate) entry: Arc<TaskEntry>,
    pub(crate) known: Arc<ResolvedAgent>,
    /// True if an open authorization is waited for: the client is not asked.
    pub(crate) patient: bool,
    /// True if a cancellation by the client ends the wait, even if the agent continues.
    pub(crate) heeds_verdict: bool,
    /// Question that this call asked or answered: the wait is for its outcome.
    pub(crate) asked: Option<[u8; 16]>,
    /// Number of its parts that had been answered when it was asked.
    pub(crate) parts: usize,
    /// Number of failed deliveries when it was asked: earlier failures are not this call's.
    pub(crate) failures: usize,
    /// Resolves when the agent has accepted the message of this call.
    pub(crate) delivery: Option<oneshot::Receiver<Result<(), AgentFailure>>>,
    changes: TaskChanges,
    /// Number of progress updates that were there before, or have been reported: not each change is one.
    updates: u64,
    since: Instant,
    _watcher: WatchGuard,
}

impl FollowedTask {
    /// Creates a watcher of a task that has a follower.
    pub(crate) fn new(entry: Arc<TaskEntry>, known: Arc<ResolvedAgent>, patient: bool) -> Self {
        let (changes, watcher) = (entry.changes(), entry.watch());
        let heeds_verdict = false;
        let (asked, parts, failures, delivery) = (None, 0, 0, None);
        let updates = entry.visible_state(|inside| inside.updates);
        Self {
            entry,
            known,
            patient,
            heeds_verdict,
            asked,
            parts,
            failures,
            delivery,
            changes,
            updates,
            since: Instant::now(),
            _watcher: watcher,
        }
    }
}

/// Origin of events.
pub(crate) enum EventSource {
    /// A direct call of this request.
    Own(Box<DirectCall>),
    /// A task that is followed in the background.
    Watched(Box<FollowedTask>),
}

/// Next event of a call.
#[derive(Debug)]
pub(crate) enum CallEvent {
    /// The output changed; with a progress update, if there is one to send.
    News(Option<ProgressUpdate>),
    /// The output has reached a state to respond with.
    Settled,
    /// The task does not change any more, although it has not ended.
    Stalled,
    /// The agent failed.
    Failed(AgentFailure),
}

/// Events that a client waits for.
pub(crate) trait CallEvents: Send {
    /// Waits for the next event. Cancel-safe.
    fn next(&mut self) -> impl Future<Output = CallEvent> + Send;

    /// Returns true if the agent has named a task, so that a handle works even after a failure.
    fn is_named(&self) -> bool;

    /// Returns true if [`CallEvents::next`] has an event without waiting.
    fn has_more(&self) -> bool;

    /// Returns the time at which the wait for the last event ended, if it is known. `None` if it was returned before, as for an
    /// event that was ready at once.
    fn take_end_of_wait(&mut self) -> Option<Instant>;
}

impl CallEvents for EventSource {
    async fn next(&mut self) -> CallEvent {
        match self {
            Self::Own(own) => own.next().await,
            Self::Watched(watched) => watched.next().await,
        }
    }

    fn is_named(&self) -> bool {
        match self {
            Self::Own(own) => own.work.task_id.is_some(),
            Self::Watched(watched) => watched.entry.is_named(),
        }
    }

    fn has_more(&self) -> bool {
        match self {
            Self::Own(own) => own.drive.has_more(),
            Self::Watched(_) => false,
        }
    }

    fn take_end_of_wait(&mut self) -> Option<Instant> {
        match self {
            Self::Own(own) => own.waited_until.take(),
            Self::Watched(_) => None,
        }
    }
}

impl EventSource {
    /// Returns the local number of a call of this request; `None` if its task has one already.
    pub(crate) fn own_number(&self) -> Option<[u8; 16]> {
        match self {
            Self::Own(own) => Some(own.local),
            Self::Watched(_) => None,
        }
    }

    /// Passes the present output to `tell`, with the number that identifies the call while the
    /// agent has named no task.
    pub(crate) fn with_work<R>(&self, tell: impl FnOnce(&AgentOutput, [u8; 16]) -> R) -> R {
        match self {
            Self::Own(own) => tell(&own.work, own.local),
            Self::Watched(watched) => {
                let local = watched.entry.local();
                watched.entry.show_work(|work| tell(work, local))
            }
        }
    }

    /// Returns the state of the output.
    pub(crate) fn state(&self) -> OutputState {
        match self {
            Self::Own(own) => own.work.state(),
            Self::Watched(watched) => match watched.entry.visible_state(|inside| inside.phase()) {
                TaskPhase::Finished | TaskPhase::Failed(_) => OutputState::Finished,
                TaskPhase::Asking(..) => OutputState::Asking,
                TaskPhase::Running => OutputState::Running,
            },
        }
    }

    /// Returns true if the client has cancelled the task, and the wait ends with that.
    pub(crate) fn is_cancelled(&self) -> bool {
        match self {
            Self::Own(_) => false,
            Self::Watched(watched) => watched.entry.visible_state(|inside| watched.is_cancelled_by(inside)),
        }
    }

    /// Returns the reason for which the task makes no progress at present, if it is known.
    pub(crate) fn delay(&self) -> Option<TaskDelay> {
        match self {
            Self::Own(own) => own.drive.delay(),
            Self::Watched(watched) => watched.entry.visible_state(|inside| inside.delay),
        }
    }

    /// Returns the task in the map, if it is there.
    pub(crate) fn entry(&self) -> Option<Arc<TaskEntry>> {
        match self {
            Self::Own(_) => None,
            Self::Watched(watched) => Some(watched.entry.clone()),
        }
    }

    /// Returns the number of events that the agent sent for this call since the last count.
    pub(crate) fn take_new_events(&mut self) -> u64 {
        match self {
            Self::Own(own) => std::mem::take(&mut own.heard),
            Self::Watched(_) => 0,
        }
    }

    /// Returns the time spent waiting for the agent.
    pub(crate) fn agent_took(&self) -> Option<Duration> {
        match self {
            Self::Own(own) => {
                // A wait that the client gave up, or the end of its budget, is one for the agent too.
                Some(own.agent_time + own.waiting_since.map_or(Duration::ZERO, |since| since.elapsed()))
            }
            Self::Watched(_) => None,
        }
    }

    /// Takes the permit for the bytes of the output, when nothing more is made of it.
    pub(crate) fn take_permit(&mut self) -> Option<BytePermit> {
        match self {
            Self::Own(own) => own.permit.split(),
            Self::Watched(_) => None,
        }
    }

    /// Reads a finished exchange to its end, so that its connection can be used again. The output
    /// is dropped at once.
    pub(crate) async fn finish_stream(self) {
        const TRAILING_EVENTS_TIMEOUT: Duration = Duration::from_millis(100);
        let Self::Own(own) = self else { return };
        let DirectCall { mut drive, .. } = *own;
        let mut end = pin!(async { while !matches!(drive.next().await, DriveEvent::Over(_)) {} });
        // Nearly always it has ended: a timer would cost more than the look.
        if std::future::poll_fn(|cx| Poll::Ready(end.as_mut().poll(cx))).await.is_ready() {
            return;
        }
        if tokio::time::timeout(TRAILING_EVENTS_TIMEOUT, end).await.is_err() {
            tracing::trace!("agent kept stream open after final event");
        }
    }

    /// Moves the call to the task map, for a client that will return with a handle; fails if there
    /// is no room.
    pub(crate) fn hand_to_background(
        self,
        followers: &TaskFollower,
        agent: &str,
    ) -> Result<Box<FollowedTask>, AgentFailure> {
        match self {
            Self::Watched(watched) => Ok(watched),
            Self::Own(own) => {
                let known = own.known.clone();
                let entry = followers.adopt(own.job(agent));
                entry.map(|entry| Box::new(FollowedTask::new(entry, known, false))).map_err(|_| {
                    AgentFailure::Internal("too many calls are followed already; its answer is lost")
                })
            }
        }
    }

    /// Moves the call to the task map after its client cancelled it. `None` if there is no room:
    /// then the task is cancelled.
    pub(crate) fn keep_cancelled(self, followers: &TaskFollower, agent: &str) -> Option<Box<FollowedTask>> {
        match self {
            Self::Watched(watched) => Some(watched),
            Self::Own(own) => {
                let known = own.known.clone();
                let entry = followers.keep_or_leave(own.job(agent), DetachMode::Stop).ok()?;
                Some(Box::new(FollowedTask::new(entry, known, false)))
            }
        }
    }

    /// Detaches the work from this call when no client holds a handle. A task in the map is left as
    /// it is.
    pub(crate) fn detach(self, followers: &TaskFollower, agent: &str, leaving: DetachMode) {
        if let Self::Own(own) = self {
            followers.detach(own.job(agent), leaving);
        }
    }
}

impl DirectCall {
    fn job(self, agent: &str) -> DetachedCall {
        let Self { drive, work, known, local, .. } = self;
        DetachedCall { drive, work, agent: agent.into(), known, local }
    }

    async fn next(&mut self) -> CallEvent {
        // The clock is read for events that do not come at once: of a fast stream most do.
        let Self { drive, waiting_since, .. } = self;
        let turn = {
            let mut next = pin!(drive.next());
            poll_fn(|cx| {
                let polled = next.as_mut().poll(cx);
                if polled.is_pending() {
                    waiting_since.get_or_insert_with(Instant::now);
                }
                polled
            })
            .await
        };
        if let Some(since) = self.waiting_since.take() {
            let now = Instant::now();
            self.agent_time += now.saturating_duration_since(since);
            self.waited_until = Some(now);
        }
        match turn {
            DriveEvent::Said(event) => {
                self.heard += 1;
                self.take(event)
            }
            DriveEvent::Delayed(Some(TaskDelay::Stalled(_))) => CallEvent::Stalled,
            DriveEvent::Delayed(Some(TaskDelay::Unreached) | None) => CallEvent::News(None),
            DriveEvent::Over(Ok(())) => self.ended(),
            DriveEvent::Over(Err(trouble)) => CallEvent::Failed(trouble),
        }
    }

    fn take(&mut self, event: Box<StreamResponse>) -> CallEvent {
        let (bytes, permit) = self.drive.take_size();
        let applied = self.work.apply(*event);
        self.uncounted += bytes;
        let is_counted = permit.is_some();
        if let Some(permit) = permit {
            self.permit.absorb(permit);
        }
        // Not for every event: the events of an ordinary call are never counted.
        if is_counted || self.uncounted > FREE_BYTES {
            self.uncounted = 0;
            if let Err(no_room) = self.permit.set(self.work.bytes()) {
                self.permit.shrink_to(0);
                return CallEvent::Failed(no_room.into());
            }
        }
        match applied {
            Ok(_) if self.work.state() != OutputState::Running => CallEvent::Settled,
            Ok(note) => CallEvent::News(note),
            Err(too_much) => {
                CallEvent::Failed(AgentFailure::LimitExceeded(too_much.max_bytes, "its artifacts"))
            }
        }
    }

    fn ended(&self) -> CallEvent {
        if self.work.task_id.is_none() && self.work.reply.is_none() {
            return CallEvent::Failed(AgentFailure::ProtocolViolation(
                "it ended its answer without a task or a message".into(),
            ));
        }
        CallEvent::Settled
    }
}

impl FollowedTask {
    async fn next(&mut self) -> CallEvent {
        if let Some(delivery) = &mut self.delivery {
            let taken = delivery.await;
            self.delivery = None;
            if let Ok(Err(trouble)) = taken {
                return CallEvent::Failed(trouble);
            }
        }
        if let Some(step) = self.settled() {
            return step;
        }
        match self.stalled_at() {
            // A client that waits for a stalled task waits as long as if its stream had ended now.
            Some(at) => {
                if tokio::time::timeout_at(at, self.changes.changed()).await.is_err() {
                    return CallEvent::Stalled;
                }
            }
            None => self.changes.changed().await,
        }
        if let Some(step) = self.settled() {
            return step;
        }
        if self.stalled_at().is_some() {
            return CallEvent::News(None);
        }
        let (updates, last) = self.entry.visible_state(|inside| {
            (inside.updates, inside.last.clone().filter(|_| inside.updates > self.updates))
        });
        self.updates = updates;
        CallEvent::News(last)
    }

    /// Returns the time at which a stalled task is reported. A client that waits for the end of its
    /// task gets no such report.
    fn stalled_at(&self) -> Option<Instant> {
        let delay =
            self.entry.visible_state(|inside| inside.delay.filter(|_| inside.phase() == TaskPhase::Running));
        match delay.filter(|_| !self.heeds_verdict) {
            Some(TaskDelay::Stalled(after)) => Some(self.since + after),
            Some(TaskDelay::Unreached) | None => None,
        }
    }

    fn is_cancelled_by(&self, inside: &EntryState) -> bool {
        self.heeds_verdict && inside.verdict == Some(ClientOverride::Cancelled)
    }

    fn settled(&self) -> Option<CallEvent> {
        self.entry.visible_state(|inside| {
            if self.is_cancelled_by(inside) {
                return Some(CallEvent::Settled);
            }
            if let Some(trouble) =
                self.asked.filter(|_| inside.failures() > self.failures).and_then(|turn| inside.failure(turn))
            {
                return Some(CallEvent::Failed(trouble.clone()));
            }
            let is_refused = || self.asked.is_some_and(|turn| inside.refusal(turn).is_some());
            match inside.phase() {
                TaskPhase::Finished => Some(CallEvent::Settled),
                TaskPhase::Failed(trouble) => Some(CallEvent::Failed(trouble)),
                TaskPhase::Asking(turn, _) if self.asked == Some(turn) => {
                    let is_part = inside.answered_keys(turn).len() > self.parts;
                    (is_part || is_refused()).then_some(CallEvent::Settled)
                }
                TaskPhase::Asking(_, TaskState::AuthRequired) if self.patient => None,
                TaskPhase::Asking(..) => Some(CallEvent::Settled),
                // The task is not over, but its follower has given up.
                TaskPhase::Running => match &inside.over {
                    Some(Err(trouble)) if !inside.is_followed() => Some(CallEvent::Failed(trouble.clone())),
                    _ => None,
                },
            }
        })
    }
}
