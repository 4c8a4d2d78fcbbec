//! Listening to an agent for a task: every event goes into the task's entry, whoever watches.
//!
//! Not here: which tasks are listened to (see `followers`), reading the agent's stream (see `agents`).

use std::sync::Arc;
use std::time::Duration;

use tracing::debug;

use super::job::{DetachedCall, SendCompletion};
use super::task_follower::{TaskFollower, awaiting};
use crate::a2a::{StreamResponse, fingerprint};
use crate::agents::{AgentOperation, Bearing, DetachableCall, DriveEvent, ResolvedAgent};
use crate::fault::AgentFailure;
use crate::tasks::{CancelGuard, EntryKey, FollowGuard, TaskEntry, TaskPhase, Timestamp};

/// How long an unnamed task is waited for when it is to be stopped.
const NAMED_WITHIN: Duration = Duration::from_secs(30);
/// How long a stream is listened to after the task's last word, for its own end.
const TRAILING_EVENTS_TIMEOUT: Duration = Duration::from_millis(100);
/// How often it is looked whether anybody still wants a task to be listened to.
const REFRESH_INTERVAL: Duration = Duration::from_secs(30);

/// What one drive says, on its way into an entry.
pub(super) struct EventIngest<'a> {
    pub(super) entry: &'a Arc<TaskEntry>,
    pub(super) followers: &'a TaskFollower,
    /// Who waits for the agent's first word.
    pub(super) said: Option<SendCompletion>,
}

impl EventIngest<'_> {
    /// Takes in all that is said, to the end.
    pub(super) async fn listen(&mut self, mut drive: DetachableCall) -> Result<(), AgentFailure> {
        self.listen_on(&mut drive).await
    }

    async fn listen_on(&mut self, drive: &mut DetachableCall) -> Result<(), AgentFailure> {
        loop {
            match drive.next().await {
                DriveEvent::Over(result) => return result,
                DriveEvent::Delayed(delay) => self.entry.set_delay(delay),
                DriveEvent::Said(event) => self.apply(event, drive.bearing())?,
            }
        }
    }

    /// Takes in how a task stands. While somebody listens to the agent, only the end counts, and whether an answer arrived: the rest
    /// comes by the stream, and a look that is older would take away or double what that has brought.
    pub(super) async fn refresh(&mut self, mut drive: DetachableCall) -> Result<(), AgentFailure> {
        loop {
            match drive.next().await {
                DriveEvent::Over(result) => return result,
                DriveEvent::Delayed(_) => {}
                DriveEvent::Said(StreamResponse::Task(task))
                    if !task.status.state.is_terminal()
                        && self.entry.visible_state(|inside| inside.is_followed()) =>
                {
                    self.entry.resolve_unconfirmed(fingerprint(&task));
                }
                DriveEvent::Said(event) => self.apply(event, drive.bearing())?,
            }
        }
    }

    fn apply(&mut self, event: StreamResponse, bearing: Bearing) -> Result<(), AgentFailure> {
        // The record says which answers surely went out, and to which questions.
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

    /// Tells whoever waits how the first word came out. A question whose answer surely was not taken is open again.
    pub(super) fn notify_watchers(&mut self, result: Result<(), AgentFailure>) {
        if let Some(said) = self.said.take() {
            said.complete(self.entry, result);
        }
    }

    /// The agent has named its task: from now on it is found by that name.
    fn name(&self) {
        let Some(id) = self.entry.task_id() else { return };
        let key = EntryKey::Task { agent: self.entry.agent().clone(), id: id.as_str().into() };
        let owner = self.followers.tasks.add_alias(key, self.entry, std::time::Instant::now());
        if !Arc::ptr_eq(&owner, self.entry) {
            debug!(agent = %self.entry.agent(), "agent gave two calls one task");
        }
    }
}

impl TaskFollower {
    /// Follows a task until its last event, or until no watcher needs it any more. When the token of
    /// the caller is refused, that of the newest watcher is tried.
    pub(super) async fn follow(
        &self,
        entry: &Arc<TaskEntry>,
        (mut drive, mut known): (DetachableCall, Arc<ResolvedAgent>),
        following: FollowGuard,
        said: Option<SendCompletion>,
    ) {
        let mut listener = EventIngest { entry, followers: self, said };
        let ended = loop {
            let ended = self.run_until_idle(&mut listener, &mut drive, &known).await;
            match self.succeed(&listener, ended.as_ref()) {
                Some((next, credentials)) => (drive, known) = (next, credentials),
                None => break ended,
            }
        };
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
                debug!(agent = %entry.agent(), ok = is_ok, "followed task has nothing more to say");
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

    /// Starts the next exchange of a task after one that failed for its credentials, if a watcher left
    /// others. Any other failure would be the same with them.
    fn succeed(
        &self,
        listener: &EventIngest<'_>,
        ended: Option<&Result<(), AgentFailure>>,
    ) -> Option<(DetachableCall, Arc<ResolvedAgent>)> {
        let Some(Err(trouble @ AgentFailure::TokenExchangeFailed(_))) = ended else { return None };
        if listener.said.is_some() {
            return None;
        }
        let errand = awaiting(listener.entry)?;
        let known = self.successors.take(listener.entry)?;
        debug!(agent = %listener.entry.agent(), %trouble, "follower continues with credentials of another watcher");
        Some((self.start(&known, errand), known))
    }

    /// Listens to the agent's last word; `None` if that is not wanted any more. Once the agent has promised to push, an exchange
    /// that has no stream need not go on asking.
    async fn run_until_idle(
        &self,
        listener: &mut EventIngest<'_>,
        drive: &mut DetachableCall,
        known: &Arc<ResolvedAgent>,
    ) -> Option<Result<(), AgentFailure>> {
        let entry = listener.entry;
        let begun = std::time::Instant::now();
        let mut changes = entry.changes();
        // What happened before is looked at too: it may have been stopped already.
        changes.mark_changed();
        let mut announcing = std::pin::pin!(self.register_webhook(entry, known));
        let mut is_announced = false;
        loop {
            // Beside the stream, which goes on while the agent is slow to answer.
            self.cancel_if_requested(entry, known);
            tokio::select! {
                result = listener.listen_on(drive) => return Some(result),
                is_pushed = &mut announcing, if !is_announced => {
                    is_announced = true;
                    if is_pushed {
                        drive.wait_idle();
                    }
                }
                changed = changes.changed() => {
                    if changed.is_err() || entry.is_gone() {
                        return None;
                    }
                    if entry.visible_state(|inside| inside.is_finished()) {
                        // It may have been said elsewhere: some agents never end the stream of what was cancelled.
                        let end = tokio::time::timeout(TRAILING_EVENTS_TIMEOUT, listener.listen_on(drive));
                        return Some(end.await.unwrap_or(Ok(())));
                    }
                }
                () = tokio::time::sleep(REFRESH_INTERVAL.min(self.bounds.lifetime)) => {
                    let is_old = begun.elapsed() >= self.bounds.lifetime;
                    if entry.is_gone() || (is_old && !entry.is_watched(std::time::Instant::now())) {
                        return None;
                    }
                }
            }
        }
    }

    /// Acts on a wish to stop a task that came before its name.
    fn cancel_if_requested(&self, entry: &Arc<TaskEntry>, known: &Arc<ResolvedAgent>) {
        if entry.is_named() && entry.take_cancel_request() {
            self.cancel(entry, known);
        }
    }

    /// Stops a task at its agent. One that is known to be over is left alone: some agents would rewrite it.
    pub(super) async fn stop(&self, stopping: CancelGuard, known: &Arc<ResolvedAgent>) {
        let entry = stopping.entry().clone();
        let task = entry
            .visible_state(|inside| (!inside.is_finished()).then(|| inside.work.task_id.clone()).flatten());
        if let Some(task) = task {
            let mut cancelling = EventIngest { entry: &entry, followers: self, said: None };
            let answered = cancelling.listen(self.start(known, AgentOperation::Cancel(task))).await;
            // From here on another wish is another question.
            drop(stopping);
            match answered {
                Ok(()) => debug!(agent = %entry.agent(), "task is to be stopped"),
                // It may have ended meanwhile, or it cannot be stopped: the agent says.
                Err(trouble) => {
                    debug!(agent = %entry.agent(), %trouble, "agent does not stop the task");
                    if let Err(trouble) = self.refresh(&entry, known).await {
                        debug!(agent = %entry.agent(), %trouble, "nor does it say how it stands");
                    }
                }
            }
            // An agent that goes on working may be stopping still.
            self.ensure_followed(&entry, known);
        }
        entry.cancel_attempted();
    }

    /// Stops a task at its agent and waits until that has said something; whoever stops waiting does not stop the stopping. One that
    /// the agent has not named yet is stopped when it has.
    pub async fn cancel_and_wait(&self, entry: &Arc<TaskEntry>, known: &Arc<ResolvedAgent>) {
        let (mut changes, before) = (entry.changes(), entry.cancel_in_progress());
        self.cancel(entry, known);
        while entry.is_named() && (entry.cancel_in_progress() == before || entry.is_stopping()) {
            if changes.changed().await.is_err() {
                return;
            }
        }
    }
}

/// Whether the agent can be told now to stop a task; if not, the wish is remembered until it has named it.
pub(super) fn can_be_stopped(entry: &TaskEntry) -> bool {
    entry.is_named() || {
        entry.request_cancel();
        entry.is_named() && entry.take_cancel_request()
    }
}

/// Listens to the end of a call that nobody will ask for, so that an agent that stops when nobody listens does not stop.
pub(super) async fn drain(mut job: DetachedCall, lifetime: Duration) {
    let end = async { while !matches!(job.drive.next().await, DriveEvent::Over(_)) {} };
    if tokio::time::timeout(lifetime, end).await.is_err() {
        debug!(agent = %job.agent, "a call that nobody asks for goes on for too long");
    }
}

/// Stops the work at the agent: its client has gone, and nobody holds a handle.
pub(super) async fn stop(mut job: DetachedCall, followers: &TaskFollower) {
    job.work.task_id = job.work.task_id.or_else(|| job.drive.given_name());
    let named = async {
        while job.work.task_id.is_none() {
            let DriveEvent::Said(event) = job.drive.next().await else { return };
            if let Err(too_much) = job.work.apply(event) {
                debug!(%too_much, "agent sends too much to a call that is to be stopped");
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
    debug!(agent = %job.agent, "work stopped: its client left");
}
