//! Ingestion of the agent's events: each goes into the task's entry, with or without watchers.
//!
//! See also [`TaskFollower`] for the choice of the tasks to follow.

use std::sync::Arc;
use std::time::Duration;

use tracing::debug;

use super::{DetachedCall, SendCompletion, TaskFollower, awaiting};
use crate::a2a::translate::{event_json, read_event};
use crate::a2a::{StreamResponse, fingerprint};
use crate::agents::{AgentOperation, Bearing, DetachableCall, DriveEvent, ResolvedAgent};
use crate::fault::AgentFailure;
use crate::shared_state::{ClaimProgress, LeaseGrant, SharedClaim, SharedState, TaskLease, TaskNews};
use crate::tasks::{
    AnswerClaim, CancelGuard, EntryKey, EventOrigin, EventPosition, FollowGuard, TaskEntry, TaskPhase,
    Timestamp,
};

/// Longest wait for the name of a task that is to be cancelled.
const NAMED_WITHIN: Duration = Duration::from_secs(30);
/// Time for which a stream is read after the task's final state, until its own end.
const TRAILING_EVENTS_TIMEOUT: Duration = Duration::from_millis(100);
/// Interval at which a follower checks if its task is still needed.
const REFRESH_INTERVAL: Duration = Duration::from_secs(30);
/// Reason for which an answer is not sent again.
const PERHAPS_SENT: &str = "the replica that was sending this answer has ended, and the agent does not tell if it arrived; it was perhaps sent";
/// Result of an answer to a question that got another one.
const ANSWERED_ELSEWHERE: AgentFailure =
    AgentFailure::Internal("the question was answered at another replica, in another way; nothing was sent");

/// The events of one agent call, on their way into an entry.
pub(super) struct EventIngest<'a> {
    pub(super) entry: &'a Arc<TaskEntry>,
    pub(super) followers: &'a TaskFollower,
    /// Notifies the sender of the message, if there is one.
    pub(super) said: Option<SendCompletion>,
    /// The lease of the task, if it is shared with other replicas and this one follows it.
    lease: Option<Arc<TaskLease>>,
}

/// A task with the right to follow it in this process.
pub(super) struct FollowedEntry<'a> {
    pub(super) entry: &'a Arc<TaskEntry>,
    pub(super) following: FollowGuard,
}

/// Result of applying news of a task that another replica follows.
struct AppliedNews {
    /// True if no replica follows the task, as far as is known.
    is_free: bool,
    /// True if there are events after the row that was applied.
    has_more: bool,
}

/// The claim of an answer among replicas.
pub(super) struct SharedAnswer {
    shared: Arc<SharedState>,
    row_key: Vec<u8>,
    turn: [u8; 16],
    digest: [u8; 16],
}

impl SharedAnswer {
    /// Records the end of sending the answer. If its delivery is unknown, the claim stays for a while.
    pub(super) fn settle(self, result: &Result<(), AgentFailure>) {
        if matches!(result, Err(AgentFailure::Timeout(_) | AgentFailure::ConnectionLost(_))) {
            return;
        }
        let is_sent = result.is_ok();
        let settled = async move {
            let Self { shared, row_key, turn, digest } = self;
            shared.settle_answer(&row_key, turn, digest, is_sent).await;
        };
        // Outside of a runtime the process ends.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            drop(runtime.spawn(settled));
        }
    }
}

/// An exchange with an agent about a task, with the agent's address and credentials.
pub(super) struct TaskExchange {
    pub(super) drive: DetachableCall,
    pub(super) known: Arc<ResolvedAgent>,
}

impl<'a> EventIngest<'a> {
    pub(super) fn new(
        entry: &'a Arc<TaskEntry>,
        followers: &'a TaskFollower,
        said: Option<SendCompletion>,
    ) -> Self {
        Self { entry, followers, said, lease: None }
    }

    /// Applies all events, to the end.
    pub(super) async fn listen(&mut self, mut drive: DetachableCall) -> Result<(), AgentFailure> {
        self.listen_on(&mut drive).await
    }

    async fn listen_on(&mut self, drive: &mut DetachableCall) -> Result<(), AgentFailure> {
        loop {
            match drive.next().await {
                DriveEvent::Over(result) => return result,
                DriveEvent::Delayed(delay) => self.entry.set_delay(delay),
                DriveEvent::Said(event) => self.apply_shared(*event, drive.bearing()).await?,
            }
        }
    }

    /// Applies an event, and passes it to other replicas if this one holds the lease of the task.
    async fn apply_shared(&mut self, event: StreamResponse, bearing: Bearing) -> Result<(), AgentFailure> {
        let Some(lease) = self.lease.clone() else { return self.apply(event, bearing, None) };
        let Some(shared) = event_json(event.clone()) else { return self.apply(event, bearing, None) };
        let at = lease.next();
        self.apply(event, bearing, Some(at))?;
        lease.push(at, &shared).await;
        if lease.needs_row(at) {
            self.followers.record_outcome(self.entry);
        }
        Ok(())
    }

    /// Applies a `GetTask` response. While the task has a follower, only a final state counts, and
    /// whether an answer arrived: the rest comes by the stream, and an older response would remove
    /// or repeat content of the stream.
    pub(super) async fn refresh(&mut self, mut drive: DetachableCall) -> Result<(), AgentFailure> {
        loop {
            match drive.next().await {
                DriveEvent::Over(result) => return result,
                DriveEvent::Delayed(_) => {}
                DriveEvent::Said(event) => match *event {
                    StreamResponse::Task(task)
                        if !task.status.state.is_terminal()
                            && self.entry.visible_state(|inside| inside.is_followed()) =>
                    {
                        self.entry.resolve_unconfirmed(fingerprint(&task));
                    }
                    event => self.apply(event, drive.bearing(), None)?,
                },
            }
        }
    }

    /// Applies an event, which is at this position among those that replicas share.
    fn apply(
        &mut self,
        event: StreamResponse,
        bearing: Bearing,
        at: Option<EventPosition>,
    ) -> Result<(), AgentFailure> {
        // The record contains the answers that were certainly sent, and their questions.
        let is_record_old = bearing.response.is_some() || self.said.is_some();
        self.notify_watchers(Ok(()));
        if let Some(response) = bearing.response {
            self.entry.leave_question(response.turn);
        }
        if let StreamResponse::Task(task) = &event
            && bearing.is_look
        {
            self.entry.look_back(task);
        }
        let before = self.entry.visible_state(|inside| (inside.work.task_id.is_some(), inside.work.state));
        self.entry.apply(event, Timestamp::now())?;
        if let Some(at) = at {
            // Before the row is written: it holds the event.
            self.entry.set_position(at);
        }
        let now = self.entry.visible_state(|inside| (inside.work.task_id.is_some(), inside.work.state));
        if !before.0 && now.0 {
            self.name();
        }
        // Chunks of artifacts are the agent's to keep while it works.
        if before != now || is_record_old {
            self.followers.record_outcome(self.entry);
        }
        Ok(())
    }

    /// Returns true if another replica follows the task now.
    fn has_lost_lease(&self) -> bool {
        self.lease.as_ref().is_some_and(|lease| lease.is_lost()) && self.said.is_none()
    }

    /// Notifies the sender of the result of its message. A question is open again if its answer was
    /// certainly not received.
    pub(super) fn notify_watchers(&mut self, result: Result<(), AgentFailure>) {
        if let Some(said) = self.said.take() {
            said.complete(self.entry, result);
        }
    }

    /// Adds the agent's id of the task as a key of the entry.
    fn name(&self) {
        let Some(id) = self.entry.task_id() else { return };
        let key = EntryKey::Task { agent: self.entry.agent().clone(), id: id.as_str().into() };
        let owner = self.followers.tasks.add_alias(key, self.entry, std::time::Instant::now());
        if !Arc::ptr_eq(&owner, self.entry) {
            debug!(agent = %self.entry.agent(), "agent gave two calls the same task");
        }
    }
}

impl TaskFollower {
    /// Follows a task until its last event, or until no watcher needs it any more. When the token
    /// of the caller is refused, that of the newest watcher is tried.
    async fn follow(
        &self,
        task: FollowedEntry<'_>,
        exchange: TaskExchange,
        said: Option<SendCompletion>,
        lease: Option<Arc<TaskLease>>,
    ) {
        let FollowedEntry { entry, following } = task;
        let TaskExchange { mut drive, mut known } = exchange;
        if self.shared.is_some() {
            entry.set_event_origin(EventOrigin::Agent);
        }
        let mut listener = EventIngest { lease, ..EventIngest::new(entry, self, said) };
        let ended = loop {
            let ended = self.run_until_idle(&mut listener, &mut drive, &known).await;
            match self.succeed(&listener, ended.as_ref()) {
                Some(next) => TaskExchange { drive, known } = next,
                None => break ended,
            }
        };
        if listener.has_lost_lease() {
            // Before anything else: another replica reads the stream now.
            drop((drive, listener));
            return Box::pin(self.follow_another_replica(FollowedEntry { entry, following }, known)).await;
        }
        match ended {
            // The message failed, not the task.
            Some(Err(trouble)) if listener.said.is_some() => {
                entry.end(Ok(()), Timestamp::now());
                drop(following);
                listener.notify_watchers(Err(trouble));
                self.ensure_followed(entry, &known);
            }
            Some(result) => {
                let is_ok = result.is_ok();
                let can_succeed = matches!(result, Ok(()) | Err(AgentFailure::TokenExchangeFailed(_)));
                debug!(agent = %entry.agent(), ok = is_ok, "stopped following task");
                entry.end(result, Timestamp::now());
                drop(following);
                self.record_outcome(entry);
                // The first event may have been the last one for now: a question.
                self.cancel_if_requested(entry, &known);
                if let Some(successor) = self.successors.take(entry).filter(|_| can_succeed) {
                    self.ensure_followed(entry, &successor);
                } else if is_ok && entry.visible_state(|inside| inside.phase()) == TaskPhase::Running {
                    // The agent pushes from now on.
                    self.poll(entry, known);
                }
            }
            None => {
                entry.end(Ok(()), Timestamp::now());
                drop(following);
                let successor = self.successors.take(entry);
                if !entry.is_gone() {
                    self.poll(entry, successor.unwrap_or(known));
                }
            }
        }
    }

    /// Starts the next exchange of a task after one that failed for its credentials, if a watcher
    /// left others. Any other failure would be the same with them.
    fn succeed(
        &self,
        listener: &EventIngest<'_>,
        ended: Option<&Result<(), AgentFailure>>,
    ) -> Option<TaskExchange> {
        let Some(Err(trouble @ AgentFailure::TokenExchangeFailed(_))) = ended else { return None };
        if listener.said.is_some() {
            return None;
        }
        let errand = awaiting(listener.entry)?;
        let known = self.successors.take(listener.entry)?;
        debug!(agent = %listener.entry.agent(), error = %trouble, "follower continues with credentials of another watcher");
        Some(TaskExchange { drive: self.start(&known, errand), known })
    }

    /// Reads the events until the final state; returns `None` if they are not needed any more. Once
    /// the agent has accepted a push registration, an exchange without a stream need not poll any
    /// longer.
    async fn run_until_idle(
        &self,
        listener: &mut EventIngest<'_>,
        drive: &mut DetachableCall,
        known: &Arc<ResolvedAgent>,
    ) -> Option<Result<(), AgentFailure>> {
        let entry = listener.entry;
        let begun = std::time::Instant::now();
        let mut changes = entry.changes();
        // Earlier changes count too: a cancellation may have been requested already.
        changes.mark_changed();
        let mut announcing = std::pin::pin!(self.register_webhook(entry, known));
        let mut is_announced = false;
        loop {
            // Besides the stream, which continues while the agent is slow to respond.
            self.cancel_if_requested(entry, known);
            self.lease_named(listener).await;
            let lease = listener.lease.clone().filter(|_| listener.said.is_none());
            tokio::select! {
                result = listener.listen_on(drive) => return Some(result),
                () = lost(lease) => return None,
                is_pushed = &mut announcing, if !is_announced => {
                    is_announced = true;
                    if is_pushed {
                        drive.wait_idle();
                    }
                }
                () = changes.changed() => {
                    if entry.is_gone() {
                        return None;
                    }
                    if entry.is_finished() {
                        // The final state may have come by another exchange: some agents never end
                        // the stream of a cancelled task.
                        let end = tokio::time::timeout(TRAILING_EVENTS_TIMEOUT, listener.listen_on(drive));
                        return Some(end.await.unwrap_or(Ok(())));
                    }
                }
                () = tokio::time::sleep(REFRESH_INTERVAL.min(self.lifetime())) => {
                    let is_old = begun.elapsed() >= self.lifetime();
                    if entry.is_gone() || (is_old && !entry.is_watched(std::time::Instant::now())) {
                        return None;
                    }
                }
            }
        }
    }

    /// Follows a task, unless another replica does.
    pub(super) async fn follow_among_replicas(
        &self,
        task: FollowedEntry<'_>,
        exchange: TaskExchange,
        said: Option<SendCompletion>,
    ) {
        if self.shared.is_none() {
            return self.follow(task, exchange, said, None).await;
        }
        let entry = task.entry;
        let said = match said {
            None => None,
            Some(said) => match self.claim_among_replicas(entry, &exchange.known, said).await {
                Some(said) => Some(said),
                None => {
                    let FollowedEntry { entry, following } = task;
                    let TaskExchange { drive, known } = exchange;
                    drop(drive);
                    entry.end(Ok(()), Timestamp::now());
                    drop(following);
                    return self.ensure_followed(entry, &known);
                }
            },
        };
        // The answer to a message comes by the exchange that sends it.
        match self.lease(entry, said.is_some()).await {
            LeaseGrant::Granted(lease) => self.follow(task, exchange, said, Some(lease.into())).await,
            LeaseGrant::Unknown => self.follow(task, exchange, said, None).await,
            LeaseGrant::Held => {
                let TaskExchange { drive, known } = exchange;
                drop(drive);
                self.follow_another_replica(task, known).await;
            }
        }
    }

    /// Requests the lease of a task that the agent has named.
    async fn lease(&self, entry: &Arc<TaskEntry>, takes_over: bool) -> LeaseGrant {
        let Some(shared) = self.shared.as_ref().filter(|_| entry.is_named()) else {
            return LeaseGrant::Unknown;
        };
        let grant = shared.lease(&entry.row_key(), entry.position(), takes_over).await;
        if let LeaseGrant::Granted(lease) = &grant {
            entry.set_position(lease.last());
            // The row has the state so far; the events begin after it.
            self.record_outcome(entry);
        }
        grant
    }

    /// Requests the lease of a task that got its name a moment ago.
    async fn lease_named(&self, listener: &mut EventIngest<'_>) {
        let is_due = listener.lease.is_none() && self.shared.is_some() && listener.entry.is_named();
        if is_due && let LeaseGrant::Granted(lease) = self.lease(listener.entry, true).await {
            listener.lease = Some(lease.into());
        }
    }

    /// Claims an answer among replicas. Returns the completion if this replica is to send it; else it
    /// is completed.
    pub(super) async fn claim_among_replicas(
        &self,
        entry: &Arc<TaskEntry>,
        known: &Arc<ResolvedAgent>,
        mut said: SendCompletion,
    ) -> Option<SendCompletion> {
        let (Some(shared), Some(turn)) = (&self.shared, said.turn) else { return Some(said) };
        // A claim that is gone was released meanwhile: the message is sent as any other.
        let Some(digest) = entry.answer_digest(turn) else { return Some(said) };
        let row_key = entry.row_key();
        let claim = match shared.claim_answer(&row_key, turn, digest).await {
            SharedClaim::Taken { progress: ClaimProgress::Abandoned(abandoned), .. } => {
                // The agent is asked first.
                let ended = AgentFailure::Internal(PERHAPS_SENT);
                entry.mark_answer_unconfirmed(turn, &ended);
                let asked = self.refresh(entry, known).await;
                let is_open = !entry.visible_state(|inside| inside.is_taken(turn));
                if is_open && entry.claim_answer(turn, digest) == AnswerClaim::Ours {
                    match shared.take_over_claim(&row_key, turn, digest, &abandoned).await {
                        true => SharedClaim::Ours,
                        false => SharedClaim::Taken { digest, progress: ClaimProgress::Sending },
                    }
                } else if asked.is_ok() {
                    SharedClaim::Taken { digest, progress: ClaimProgress::Sent }
                } else {
                    said.complete(entry, Err(ended));
                    return None;
                }
            }
            claim => claim,
        };
        match claim {
            SharedClaim::Ours => {
                said.shared = Some(SharedAnswer { shared: shared.clone(), row_key, turn, digest });
                Some(said)
            }
            SharedClaim::Unknown => Some(said),
            SharedClaim::Taken { digest: other, progress } => {
                debug!(agent = %entry.agent(), "question was answered at another replica");
                // Not by `complete`, which would record the end of an answer of this replica.
                said.tell(if other == digest { Ok(()) } else { Err(ANSWERED_ELSEWHERE) });
                entry.replace_answer(turn, other, progress == ClaimProgress::Sent);
                None
            }
        }
    }

    /// Applies the events of a task that another replica follows, until its last event, or until no
    /// watcher needs them any more. When no replica follows it, this one does.
    async fn follow_another_replica(&self, task: FollowedEntry<'_>, known: Arc<ResolvedAgent>) {
        let Some(shared) = &self.shared else { return };
        let FollowedEntry { entry, following } = task;
        let mut events = shared.watch_events(&entry.row_key()).await;
        // Events that this replica has read itself may come again.
        entry.set_event_origin(EventOrigin::Replica);
        let begun = std::time::Instant::now();
        let mut changes = entry.changes();
        loop {
            let news = events.read(entry.position()).await;
            let AppliedNews { is_free, has_more } = self.apply_news(entry, news);
            if has_more {
                continue;
            }
            self.cancel_if_requested(entry, &known);
            let is_old = begun.elapsed() >= self.lifetime();
            let is_unneeded = entry.is_gone() || (is_old && !entry.is_watched(std::time::Instant::now()));
            let Some(errand) = awaiting(entry).filter(|_| !is_unneeded) else {
                entry.end(Ok(()), Timestamp::now());
                drop(following);
                // A watcher may have come meanwhile.
                match self.successors.take(entry) {
                    Some(known) => self.ensure_followed(entry, &known),
                    None if !entry.is_gone() && awaiting(entry).is_some() => self.poll(entry, known),
                    None => {}
                }
                return;
            };
            if is_free && shared.may_follow() {
                let lease = match self.lease(entry, false).await {
                    LeaseGrant::Granted(lease) => Some(Arc::new(lease)),
                    LeaseGrant::Unknown => None,
                    LeaseGrant::Held => continue,
                };
                debug!(agent = %entry.agent(), "follows task after another replica");
                let exchange = TaskExchange { drive: self.start(&known, errand), known };
                return Box::pin(self.follow(FollowedEntry { entry, following }, exchange, None, lease))
                    .await;
            }
            tokio::select! {
                () = events.changed() => {}
                () = changes.changed() => {}
            }
        }
    }

    /// Applies what another replica knows of a task; `None` if the engine does not answer.
    fn apply_news(&self, entry: &Arc<TaskEntry>, news: Option<TaskNews>) -> AppliedNews {
        let Some(news) = news else { return AppliedNews { is_free: true, has_more: false } };
        let (before, is_free, has_gap) = (entry.position(), news.is_free, news.has_gap);
        for (at, event) in news.events {
            if at <= entry.position() {
                continue;
            }
            match read_event(&event) {
                Ok(event) => {
                    if let Err(trouble) = entry.apply(event, Timestamp::now()) {
                        debug!(agent = %entry.agent(), error = %trouble, "failed to apply event of another replica");
                    }
                    entry.set_position(at);
                }
                Err(error) => debug!(%error, "unreadable event of another replica"),
            }
        }
        // After the events: its position is theirs, or there was a gap.
        if let (Some(row), Some(shared)) = (news.row, &self.shared) {
            shared.learn_task(&row);
        }
        AppliedNews { is_free, has_more: has_gap && entry.position() > before }
    }

    /// Cancels the task if that was requested before the agent had named it.
    fn cancel_if_requested(&self, entry: &Arc<TaskEntry>, known: &Arc<ResolvedAgent>) {
        if entry.is_named() && entry.take_cancel_request() {
            self.cancel(entry, known);
        }
    }

    /// Cancels a task at its agent. A finished one is left alone: some agents would rewrite it.
    pub(super) async fn stop(&self, stopping: CancelGuard, known: &Arc<ResolvedAgent>) {
        let entry = stopping.entry().clone();
        let task = entry
            .visible_state(|inside| (!inside.is_finished()).then(|| inside.work.task_id.clone()).flatten());
        let is_ours = match &self.shared {
            Some(shared) if task.is_some() => shared.claim_cancel(&entry.row_key()).await,
            _ => true,
        };
        if let Some(task) = task.filter(|_| is_ours) {
            let mut cancelling = EventIngest::new(&entry, self, None);
            let answered = cancelling.listen(self.start(known, AgentOperation::Cancel(task))).await;
            // From here on a further cancel request starts a new attempt.
            drop(stopping);
            match answered {
                Ok(()) => debug!(agent = %entry.agent(), "requested cancellation"),
                // The task may have ended meanwhile, or cannot be cancelled: the agent tells.
                Err(trouble) => {
                    debug!(agent = %entry.agent(), error = %trouble, "failed to cancel task");
                    if let Err(trouble) = self.refresh(&entry, known).await {
                        debug!(agent = %entry.agent(), error = %trouble, "failed to get task after failed cancel");
                    }
                }
            }
            // An agent that continues to work may still be cancelling.
            self.ensure_followed(&entry, known);
        }
        if !is_ours {
            debug!(agent = %entry.agent(), "another replica cancels the task");
            self.ensure_followed(&entry, known);
        }
        entry.cancel_attempted();
    }

    /// Cancels a task at its agent and waits for the response. Cancel-safe: dropping this future
    /// does not abort the cancellation. A task that the agent has not named yet is cancelled when
    /// it has.
    pub async fn cancel_and_wait(&self, entry: &Arc<TaskEntry>, known: &Arc<ResolvedAgent>) {
        let (mut changes, before) = (entry.changes(), entry.cancel_attempts());
        self.cancel(entry, known);
        while entry.is_named() && (entry.cancel_attempts() == before || entry.is_stopping()) {
            changes.changed().await;
        }
    }
}

/// Waits until a lease is lost; for ever without one.
async fn lost(lease: Option<Arc<TaskLease>>) {
    match lease {
        Some(lease) => lease.lost().await,
        None => std::future::pending().await,
    }
}

/// Returns true if the agent can be asked now to cancel a task; if not, the request is kept until
/// the agent has named it.
pub(super) fn can_be_stopped(entry: &TaskEntry) -> bool {
    entry.is_named() || {
        entry.request_cancel();
        entry.is_named() && entry.take_cancel_request()
    }
}

/// Reads a call to its end that no client will ask for, so that an agent that stops without a
/// listener does not stop.
pub(super) async fn drain(mut job: DetachedCall, lifetime: Duration) {
    let end = async { while !matches!(job.drive.next().await, DriveEvent::Over(_)) {} };
    if tokio::time::timeout(lifetime, end).await.is_err() {
        debug!(agent = %job.agent, "abandoned call exceeded its lifetime");
    }
}

/// Cancels the task at the agent: its client has gone, and no client holds a handle.
pub(super) async fn stop(mut job: DetachedCall, followers: &TaskFollower) {
    job.work.task_id = job.work.task_id.or_else(|| job.drive.given_name());
    let named = async {
        while job.work.task_id.is_none() {
            let DriveEvent::Said(event) = job.drive.next().await else { return };
            if let Err(too_much) = job.work.apply(*event) {
                debug!(error = %too_much, "agent exceeded artifact limit in a call to be cancelled");
                return;
            }
        }
    };
    if tokio::time::timeout(NAMED_WITHIN, named).await.is_err() {
        return;
    }
    let Some(task) = job.work.task_id.clone() else { return };
    if job.work.state.is_some_and(crate::a2a::TaskState::is_terminal) {
        return;
    }
    let mut cancelling = followers.start(&job.known, AgentOperation::Cancel(task));
    while !matches!(cancelling.next().await, DriveEvent::Over(_)) {}
    debug!(agent = %job.agent, "cancelled task after its client left");
}
