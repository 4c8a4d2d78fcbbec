//! Listening to an agent for a task: every event goes into the task's entry, whoever watches.
//!
//! Not here: which tasks are listened to (see `followers`), reading the agent's stream (see `agents`).

use std::sync::Arc;
use std::time::Duration;

use tracing::debug;

use super::followers::{Followers, awaiting};
use super::job::{Job, Said};
use crate::a2a::{Event, fingerprint};
use crate::agents::{Bearing, Drive, Errand, Known, Turn};
use crate::fault::Trouble;
use crate::tasks::{Entry, Following, Key, Phase, Stopping, Times};

/// How long an unnamed task is waited for when it is to be stopped.
const NAMED_WITHIN: Duration = Duration::from_secs(30);
/// How long a stream is listened to after the task's last word, for its own end.
const SHORTLY: Duration = Duration::from_millis(100);
/// How often it is looked whether anybody still wants a task to be listened to.
const LOOK: Duration = Duration::from_secs(30);

/// What one drive says, on its way into an entry.
pub(super) struct Listener<'a> {
    pub(super) entry: &'a Arc<Entry>,
    pub(super) followers: &'a Followers,
    /// Who waits for the agent's first word.
    pub(super) said: Option<Said>,
}

impl Listener<'_> {
    /// Takes in all that is said, to the end.
    pub(super) async fn listen(&mut self, mut drive: Drive) -> Result<(), Trouble> {
        self.listen_on(&mut drive).await
    }

    async fn listen_on(&mut self, drive: &mut Drive) -> Result<(), Trouble> {
        loop {
            match drive.next().await {
                Turn::Over(result) => return result,
                Turn::Delayed(delay) => self.entry.set_delay(delay),
                Turn::Said(event) => self.take(event, drive.bearing())?,
            }
        }
    }

    /// Takes in how a task stands. While somebody listens to the agent, only the end counts, and whether an answer arrived: the rest
    /// comes by the stream, and a look that is older would take away or double what that has brought.
    pub(super) async fn look(&mut self, mut drive: Drive) -> Result<(), Trouble> {
        loop {
            match drive.next().await {
                Turn::Over(result) => return result,
                Turn::Delayed(_) => {}
                Turn::Said(Event::Task(task))
                    if !task.status.state.is_terminal() && self.entry.look(|inside| inside.is_followed()) =>
                {
                    self.entry.settle_doubt(fingerprint(&task));
                }
                Turn::Said(event) => self.take(event, drive.bearing())?,
            }
        }
    }

    fn take(&mut self, event: Event, bearing: Bearing) -> Result<(), Trouble> {
        // The record says which answers surely went out, and to which questions.
        let is_record_old = bearing.response.is_some() || self.said.is_some();
        self.tell(Ok(()));
        if let Some(response) = bearing.response {
            self.entry.leave_question(response.turn);
        }
        if let Event::Task(task) = &event
            && bearing.is_look
        {
            self.entry.look_back(task);
        }
        let before = self.entry.look(|inside| (inside.work.task_id.is_some(), inside.work.state));
        self.entry.apply(event, Times::now())?;
        let now = self.entry.look(|inside| (inside.work.task_id.is_some(), inside.work.state));
        if !before.0 && now.0 {
            self.name();
        }
        // Chunks of artifacts are the agent's to keep while it works.
        if before != now || is_record_old {
            self.followers.note(self.entry);
        }
        Ok(())
    }

    /// Tells whoever waits how the first word came out. A question whose answer surely was not taken is open again.
    pub(super) fn tell(&mut self, result: Result<(), Trouble>) {
        if let Some(said) = self.said.take() {
            said.came_out(self.entry, result);
        }
    }

    /// The agent has named its task: from now on it is found by that name.
    fn name(&self) {
        let Some(id) = self.entry.task_id() else { return };
        let key = Key::Task { agent: self.entry.agent().clone(), id: id.as_str().into() };
        let owner = self.followers.tasks.alias(key, self.entry, std::time::Instant::now());
        if !Arc::ptr_eq(&owner, self.entry) {
            debug!(agent = %self.entry.agent(), "agent gave two calls one task");
        }
    }
}

impl Followers {
    /// Follows a task until its last event, or until no watcher needs it any more. When the token of
    /// the caller is refused, that of the newest watcher is tried.
    pub(super) async fn follow(
        &self,
        entry: &Arc<Entry>,
        (mut drive, mut known): (Drive, Arc<Known>),
        following: Following,
        said: Option<Said>,
    ) {
        let mut listener = Listener { entry, followers: self, said };
        let ended = loop {
            let ended = self.listen_while_wanted(&mut listener, &mut drive, &known).await;
            match self.succeed(&listener, ended.as_ref()) {
                Some((next, credentials)) => (drive, known) = (next, credentials),
                None => break ended,
            }
        };
        match ended {
            // The message failed, not the task.
            Some(Err(trouble)) if listener.said.is_some() => {
                entry.end(Ok(()), Times::now());
                drop(following);
                listener.tell(Err(trouble));
                self.attend(entry, &known);
            }
            Some(result) => {
                let is_ok = result.is_ok();
                let can_succeed = matches!(result, Ok(()) | Err(Trouble::CallerToken(_)));
                debug!(agent = %entry.agent(), ok = is_ok, "followed task has nothing more to say");
                entry.end(result, Times::now());
                drop(following);
                self.note(entry);
                // The first event may have been the last one for now: a question.
                self.stop_if_wanted(entry, &known);
                if let Some(successor) = self.successors.take(entry).filter(|_| can_succeed) {
                    self.attend(entry, &successor);
                } else if is_ok && entry.look(|inside| inside.phase()) == Phase::Running {
                    // The agent pushes from now on.
                    self.poll(entry, known);
                }
            }
            None => {
                entry.end(Ok(()), Times::now());
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
        listener: &Listener<'_>,
        ended: Option<&Result<(), Trouble>>,
    ) -> Option<(Drive, Arc<Known>)> {
        let Some(Err(trouble @ Trouble::CallerToken(_))) = ended else { return None };
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
    async fn listen_while_wanted(
        &self,
        listener: &mut Listener<'_>,
        drive: &mut Drive,
        known: &Arc<Known>,
    ) -> Option<Result<(), Trouble>> {
        let entry = listener.entry;
        let begun = std::time::Instant::now();
        let mut changes = entry.changes();
        // What happened before is looked at too: it may have been stopped already.
        changes.mark_changed();
        let mut announcing = std::pin::pin!(self.announce(entry, known));
        let mut is_announced = false;
        loop {
            // Beside the stream, which goes on while the agent is slow to answer.
            self.stop_if_wanted(entry, known);
            tokio::select! {
                result = listener.listen_on(drive) => return Some(result),
                is_pushed = &mut announcing, if !is_announced => {
                    is_announced = true;
                    if is_pushed {
                        drive.rest();
                    }
                }
                changed = changes.changed() => {
                    if changed.is_err() || entry.is_gone() {
                        return None;
                    }
                    if entry.look(|inside| inside.is_finished()) {
                        // It may have been said elsewhere: some agents never end the stream of what was cancelled.
                        let end = tokio::time::timeout(SHORTLY, listener.listen_on(drive));
                        return Some(end.await.unwrap_or(Ok(())));
                    }
                }
                () = tokio::time::sleep(LOOK.min(self.bounds.lifetime)) => {
                    let is_old = begun.elapsed() >= self.bounds.lifetime;
                    if entry.is_gone() || (is_old && !entry.is_watched(std::time::Instant::now())) {
                        return None;
                    }
                }
            }
        }
    }

    /// Acts on a wish to stop a task that came before its name.
    fn stop_if_wanted(&self, entry: &Arc<Entry>, known: &Arc<Known>) {
        if entry.is_named() && entry.take_cancel() {
            self.cancel(entry, known);
        }
    }

    /// Stops a task at its agent. One that is known to be over is left alone: some agents would rewrite it.
    pub(super) async fn stop(&self, stopping: Stopping, known: &Arc<Known>) {
        let entry = stopping.entry().clone();
        let task =
            entry.look(|inside| (!inside.is_finished()).then(|| inside.work.task_id.clone()).flatten());
        if let Some(task) = task {
            let mut cancelling = Listener { entry: &entry, followers: self, said: None };
            let answered = cancelling.listen(self.start(known, Errand::Cancel(task))).await;
            // From here on another wish is another question.
            drop(stopping);
            match answered {
                Ok(()) => debug!(agent = %entry.agent(), "task is to be stopped"),
                // It may have ended meanwhile, or it cannot be stopped: the agent says.
                Err(trouble) => {
                    debug!(agent = %entry.agent(), %trouble, "agent does not stop the task");
                    if let Err(trouble) = self.look(&entry, known).await {
                        debug!(agent = %entry.agent(), %trouble, "nor does it say how it stands");
                    }
                }
            }
            // An agent that goes on working may be stopping still.
            self.attend(&entry, known);
        }
        entry.stop_tried();
    }

    /// Stops a task at its agent and waits until that has said something; whoever stops waiting does not stop the stopping. One that
    /// the agent has not named yet is stopped when it has.
    pub async fn stop_now(&self, entry: &Arc<Entry>, known: &Arc<Known>) {
        let (mut changes, before) = (entry.changes(), entry.stops());
        self.cancel(entry, known);
        while entry.is_named() && (entry.stops() == before || entry.is_stopping()) {
            if changes.changed().await.is_err() {
                return;
            }
        }
    }
}

/// Whether the agent can be told now to stop a task; if not, the wish is remembered until it has named it.
pub(super) fn can_be_stopped(entry: &Entry) -> bool {
    entry.is_named() || {
        entry.want_cancel();
        entry.is_named() && entry.take_cancel()
    }
}

/// Listens to the end of a call that nobody will ask for, so that an agent that stops when nobody listens does not stop.
pub(super) async fn drain(mut job: Job, lifetime: Duration) {
    let end = async { while !matches!(job.drive.next().await, Turn::Over(_)) {} };
    if tokio::time::timeout(lifetime, end).await.is_err() {
        debug!(agent = %job.agent, "a call that nobody asks for goes on for too long");
    }
}

/// Stops the work at the agent: its client has gone, and nobody holds a handle.
pub(super) async fn stop(mut job: Job, followers: &Followers) {
    job.work.task_id = job.work.task_id.or_else(|| job.drive.given_name());
    let named = async {
        while job.work.task_id.is_none() {
            let Turn::Said(event) = job.drive.next().await else { return };
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
    if job.work.state.is_some_and(crate::a2a::State::is_terminal) {
        return;
    }
    let mut cancelling = followers.start(&job.known, Errand::Cancel(task));
    while !matches!(cancelling.next().await, Turn::Over(_)) {}
    debug!(agent = %job.agent, "work stopped: its client left");
}
