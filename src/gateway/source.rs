//! Where the events of a call come from: its own exchange with the agent, or one that is followed already.
//!
//! Not here: what a client is told (see `pump`).

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;

use crate::a2a::Event;
use crate::agents::{Drive, Known, Turn};
use crate::bridge::outcome::{Audience, result};
use crate::bridge::work::{Note, Standing, Work};
use crate::fault::Trouble;
use crate::follow::{Followed, Followers, Job};
use crate::mcp::tools::CallResult;

/// A call of ours.
pub(super) struct Own {
    pub(super) drive: Drive,
    pub(super) work: Work,
    pub(super) known: Arc<Known>,
    pub(super) local: [u8; 16],
    /// The client holds a handle of the task already: its leaving is no wish to stop the work.
    pub(super) held: bool,
    /// Somebody waits for the task: an authorization that is open is no answer.
    pub(super) patient: bool,
    agent_time: Duration,
    /// Events that the agent sent.
    heard: u64,
}

impl Own {
    pub(super) fn new(drive: Drive, work: Work, known: Arc<Known>, local: [u8; 16]) -> Self {
        Self { drive, work, known, local, held: false, patient: false, agent_time: Duration::ZERO, heard: 0 }
    }
}

/// Where events come from.
pub(super) enum Source {
    /// An exchange of this call's own.
    Own(Box<Own>),
    /// An exchange that is followed in the background.
    Watched {
        /// What is known of it.
        followed: Arc<Followed>,
        /// Hears of its changes.
        changes: watch::Receiver<u64>,
        /// The number that the client may hold.
        local: [u8; 16],
        /// Whether this call only waits.
        patient: bool,
    },
}

/// What comes next.
#[derive(Debug)]
pub(super) enum Step {
    /// Something new, if it can be told.
    News(Option<Note>),
    /// There is something to answer.
    Settled,
    /// It went wrong.
    Failed(Trouble),
}

impl Source {
    /// What comes next. May be dropped and called again.
    pub(super) async fn next(&mut self) -> Step {
        match self {
            Self::Own(own) => own.next().await,
            Self::Watched { followed, changes, patient, .. } => {
                if let Some(step) = settled(followed, *patient) {
                    return step;
                }
                if changes.changed().await.is_err() {
                    return Step::Failed(Trouble::Gateway("it was forgotten"));
                }
                settled(followed, *patient).unwrap_or_else(|| Step::News(followed.last_note()))
            }
        }
    }

    /// The result as far as is known now.
    pub(super) fn result(&self, audience: &Audience<'_>) -> CallResult {
        match self {
            Self::Own(own) => result(&own.work, audience, own.local),
            Self::Watched { followed, local, .. } => followed.look(|work| result(work, audience, *local)),
        }
    }

    /// How it stands.
    pub(super) fn standing(&self) -> Standing {
        match self {
            Self::Own(own) => own.work.standing(),
            Self::Watched { followed, .. } => followed.look(Work::standing),
        }
    }

    /// Whether the agent has named a task, so that a handle leads somewhere even after a failure.
    pub(super) fn is_named(&self) -> bool {
        match self {
            Self::Own(own) => own.work.task_id.is_some(),
            Self::Watched { followed, .. } => followed.look(|work| work.task_id.is_some()),
        }
    }

    /// Whether [`Source::next`] has something without waiting.
    pub(super) fn has_more(&self) -> bool {
        match self {
            Self::Own(own) => own.drive.has_more(),
            Self::Watched { .. } => false,
        }
    }

    /// Events that the agent sent for this call.
    pub(super) fn heard(&self) -> u64 {
        match self {
            Self::Own(own) => own.heard,
            Self::Watched { .. } => 0,
        }
    }

    /// Time spent waiting for the agent.
    pub(super) fn agent_took(&self) -> Option<Duration> {
        match self {
            Self::Own(own) => Some(own.agent_time),
            Self::Watched { .. } => None,
        }
    }

    /// Lets a finished exchange come to its end, so that its connection can be used again.
    pub(super) async fn wind_down(self) {
        const SHORTLY: Duration = Duration::from_millis(100);
        let Self::Own(mut own) = self else { return };
        let end = async { while let Turn::Said(_) = own.drive.next().await {} };
        if tokio::time::timeout(SHORTLY, end).await.is_err() {
            tracing::trace!("agent goes on after its last word");
        }
    }

    /// Lets the work go on without this call; or stops it, if `stop` and nobody holds a handle of it.
    pub(super) fn leave(self, followers: &Followers, agent: &str, stop: bool) {
        let Self::Own(own) = self else { return };
        let Own { drive, work, known, local, held, .. } = *own;
        let cancel = stop && !held;
        followers.take(Job { drive, work, agent: agent.to_owned(), known, local, cancel });
    }
}

impl Own {
    async fn next(&mut self) -> Step {
        let since = Instant::now();
        let turn = self.drive.next().await;
        self.agent_time += since.elapsed();
        match turn {
            Turn::Said(event) => {
                self.heard += 1;
                self.take(event)
            }
            Turn::Over(Ok(())) => self.ended(),
            Turn::Over(Err(trouble)) => Step::Failed(trouble),
        }
    }

    fn take(&mut self, event: Event) -> Step {
        match self.work.apply(event) {
            Ok(_) if self.is_settled() => Step::Settled,
            Ok(note) => Step::News(note),
            Err(too_much) => Step::Failed(Trouble::TooMuch(too_much.max_bytes, "its artifacts")),
        }
    }

    fn is_settled(&self) -> bool {
        match self.work.standing() {
            Standing::Finished => true,
            Standing::Asking => !self.patient || self.work.state == Some(crate::a2a::State::InputRequired),
            Standing::Running => false,
        }
    }

    fn ended(&self) -> Step {
        if self.work.task_id.is_none() && self.work.reply.is_none() {
            return Step::Failed(Trouble::Misbehaved(
                "it ended its answer without a task or a message".into(),
            ));
        }
        Step::Settled
    }
}

fn settled(followed: &Followed, patient: bool) -> Option<Step> {
    match followed.over() {
        Some(Ok(())) => Some(Step::Settled),
        Some(Err(trouble)) => Some(Step::Failed(trouble)),
        None => match followed.look(|work| (work.standing(), work.state)) {
            (Standing::Finished, _) => Some(Step::Settled),
            (Standing::Asking, state) => {
                (!patient || state == Some(crate::a2a::State::InputRequired)).then_some(Step::Settled)
            }
            (Standing::Running, _) => None,
        },
    }
}
