//! Where the events of a call come from: its own exchange with the agent, or a task that is followed in the background.
//!
//! Not here: what a client is told (see `pump`), following (see `follow`).

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{oneshot, watch};

use crate::a2a::{Event, State};
use crate::agents::{Drive, Known, Turn};
use crate::bridge::work::{Note, Standing, Work};
use crate::fault::{Delay, Trouble};
use crate::follow::{Followers, Job, Leaving};
use crate::quota::{BytePermit, FREE_BYTES};
use crate::tasks::{Entry, Inside, Phase, Verdict, Watcher};

/// A call of ours.
pub(super) struct Own {
    pub(super) drive: Drive,
    pub(super) work: Work,
    pub(super) known: Arc<Known>,
    pub(super) local: [u8; 16],
    /// The bytes of the work.
    permit: BytePermit,
    /// Bytes of events since those of the work were counted.
    uncounted: usize,
    agent_time: Duration,
    /// Events that the agent sent.
    heard: u64,
}

impl Own {
    /// A call of this exchange, which puts together what it brings, and counts that with `permit`.
    pub(super) fn new((drive, permit): (Drive, BytePermit), work: Work, known: Arc<Known>) -> Self {
        let (local, agent_time) = (rand::random(), Duration::ZERO);
        Self { drive, work, known, local, permit, uncounted: 0, agent_time, heard: 0 }
    }
}

/// A task in the map.
pub(super) struct Watched {
    pub(super) entry: Arc<Entry>,
    pub(super) known: Arc<Known>,
    /// Whether an authorization that is open is waited out: nothing is asked of the client.
    pub(super) patient: bool,
    /// Whether the client's verdict ends the wait, whatever the agent does.
    pub(super) heeds_verdict: bool,
    /// The question that this call has put, or answered: what becomes of it is waited for.
    pub(super) asked: Option<[u8; 16]>,
    /// How many parts of it had been answered when it was put.
    pub(super) parts: usize,
    /// How many answers could not be given when it was put: what failed before is not this call's.
    pub(super) failures: usize,
    /// Tells when the agent has taken what this call says.
    pub(super) said: Option<oneshot::Receiver<Result<(), Trouble>>>,
    changes: watch::Receiver<u64>,
    since: tokio::time::Instant,
    _watcher: Watcher,
}

impl Watched {
    /// Watches a task that somebody sees to.
    pub(super) fn new(entry: Arc<Entry>, known: Arc<Known>, patient: bool) -> Self {
        let (changes, watcher) = (entry.changes(), entry.watch());
        let heeds_verdict = false;
        let (asked, parts, failures, said) = (None, 0, 0, None);
        Self {
            entry,
            known,
            patient,
            heeds_verdict,
            asked,
            parts,
            failures,
            said,
            changes,
            since: tokio::time::Instant::now(),
            _watcher: watcher,
        }
    }
}

/// Where events come from.
pub(super) enum Source {
    /// An exchange of this call's own.
    Own(Box<Own>),
    /// An exchange that is followed in the background.
    Watched(Box<Watched>),
}

/// What comes next.
#[derive(Debug)]
pub(super) enum Step {
    /// Something new, if it can be told.
    News(Option<Note>),
    /// There is something to answer.
    Settled,
    /// The task does not change any more, although it has not ended.
    Stalled,
    /// It went wrong.
    Failed(Trouble),
}

impl Source {
    /// What comes next. May be dropped and called again.
    pub(super) async fn next(&mut self) -> Step {
        match self {
            Self::Own(own) => own.next().await,
            Self::Watched(watched) => watched.next().await,
        }
    }

    /// Tells of the work as it is known now, with the number that names it while the agent does not.
    pub(super) fn tell<R>(&self, tell: impl FnOnce(&Work, [u8; 16]) -> R) -> R {
        match self {
            Self::Own(own) => tell(&own.work, own.local),
            Self::Watched(watched) => {
                let local = watched.entry.local();
                watched.entry.show_work(|work| tell(work, local))
            }
        }
    }

    /// How it stands.
    pub(super) fn standing(&self) -> Standing {
        match self {
            Self::Own(own) => own.work.standing(),
            Self::Watched(watched) => match watched.entry.look(|inside| inside.phase()) {
                Phase::Finished | Phase::Failed(_) => Standing::Finished,
                Phase::Asking(..) => Standing::Asking,
                Phase::Running => Standing::Running,
            },
        }
    }

    /// Whether the client has ended the task for itself, and waits for no more than that.
    pub(super) fn is_cancelled(&self) -> bool {
        match self {
            Self::Own(_) => false,
            Self::Watched(watched) => watched.entry.look(|inside| watched.is_cancelled_by(inside)),
        }
    }

    /// Why the task does not go on at present, if that is known.
    pub(super) fn delay(&self) -> Option<Delay> {
        match self {
            Self::Own(own) => own.drive.delay(),
            Self::Watched(watched) => watched.entry.look(|inside| inside.delay),
        }
    }

    /// The task in the map, if it is there.
    pub(super) fn entry(&self) -> Option<Arc<Entry>> {
        match self {
            Self::Own(_) => None,
            Self::Watched(watched) => Some(watched.entry.clone()),
        }
    }

    /// Whether the agent has named a task, so that a handle leads somewhere even after a failure.
    pub(super) fn is_named(&self) -> bool {
        match self {
            Self::Own(own) => own.work.task_id.is_some(),
            Self::Watched(watched) => watched.entry.is_named(),
        }
    }

    /// Whether [`Source::next`] has something without waiting.
    pub(super) fn has_more(&self) -> bool {
        match self {
            Self::Own(own) => own.drive.has_more(),
            Self::Watched(_) => false,
        }
    }

    /// Events that the agent sent for this call and that have not been counted.
    pub(super) fn take_heard(&mut self) -> u64 {
        match self {
            Self::Own(own) => std::mem::take(&mut own.heard),
            Self::Watched(_) => 0,
        }
    }

    /// Time spent waiting for the agent.
    pub(super) fn agent_took(&self) -> Option<Duration> {
        match self {
            Self::Own(own) => Some(own.agent_time),
            Self::Watched(_) => None,
        }
    }

    /// Takes the bytes that are counted for the work, when nothing more is made of it.
    pub(super) fn take_permit(&mut self) -> Option<BytePermit> {
        match self {
            Self::Own(own) => own.permit.split(),
            Self::Watched(_) => None,
        }
    }

    /// Lets a finished exchange come to its end, so that its connection can be used again. The work is dropped at once.
    pub(super) async fn wind_down(self) {
        const SHORTLY: Duration = Duration::from_millis(100);
        let Self::Own(own) = self else { return };
        let Own { mut drive, .. } = *own;
        let end = async { while !matches!(drive.next().await, Turn::Over(_)) {} };
        if tokio::time::timeout(SHORTLY, end).await.is_err() {
            tracing::trace!("agent goes on after its last word");
        }
    }

    /// The task in the map, for a client that will come back to it; `None` when there is no room for it.
    pub(super) fn keep(self, followers: &Followers, agent: &str) -> Result<Box<Watched>, Trouble> {
        match self {
            Self::Watched(watched) => Ok(watched),
            Self::Own(own) => {
                let known = own.known.clone();
                let entry = followers.keep(own.job(agent));
                entry
                    .map(|entry| Box::new(Watched::new(entry, known, false)))
                    .map_err(|_| Trouble::Gateway("too many calls are followed already; its answer is lost"))
            }
        }
    }

    /// The task in the map, for a call that its client cancelled; `None` when there is no room for it: then it is cancelled.
    pub(super) fn keep_cancelled(self, followers: &Followers, agent: &str) -> Option<Box<Watched>> {
        match self {
            Self::Watched(watched) => Some(watched),
            Self::Own(own) => {
                let known = own.known.clone();
                let entry = followers.keep_or_leave(own.job(agent), Leaving::Stop).ok()?;
                Some(Box::new(Watched::new(entry, known, false)))
            }
        }
    }

    /// Lets the work go on without this call and without anybody who holds a handle; a task in the map needs nobody.
    pub(super) fn leave(self, followers: &Followers, agent: &str, leaving: Leaving) {
        if let Self::Own(own) = self {
            followers.leave(own.job(agent), leaving);
        }
    }
}

impl Own {
    fn job(self, agent: &str) -> Job {
        let Self { drive, work, known, local, .. } = self;
        Job { drive, work, agent: agent.into(), known, local }
    }

    async fn next(&mut self) -> Step {
        let since = Instant::now();
        let turn = self.drive.next().await;
        self.agent_time += since.elapsed();
        match turn {
            Turn::Said(event) => {
                self.heard += 1;
                let size = self.drive.take_size();
                self.take(event, size)
            }
            Turn::Delayed(Some(Delay::Stalled(_))) => Step::Stalled,
            Turn::Delayed(Some(Delay::Unreached) | None) => Step::News(None),
            Turn::Over(Ok(())) => self.ended(),
            Turn::Over(Err(trouble)) => Step::Failed(trouble),
        }
    }

    fn take(&mut self, event: Event, (bytes, permit): (usize, Option<BytePermit>)) -> Step {
        let applied = self.work.apply(event);
        self.uncounted += bytes;
        let is_counted = permit.is_some();
        if let Some(permit) = permit {
            self.permit.absorb(permit);
        }
        // Not for each event: those of an ordinary call are never counted.
        if is_counted || self.uncounted > FREE_BYTES {
            self.uncounted = 0;
            if let Err(no_room) = self.permit.set(self.work.bytes()) {
                self.permit.shrink_to(0);
                return Step::Failed(no_room.into());
            }
        }
        match applied {
            Ok(_) if self.work.standing() != Standing::Running => Step::Settled,
            Ok(note) => Step::News(note),
            Err(too_much) => Step::Failed(Trouble::TooMuch(too_much.max_bytes, "its artifacts")),
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

impl Watched {
    async fn next(&mut self) -> Step {
        if let Some(said) = &mut self.said {
            let taken = said.await;
            self.said = None;
            if let Ok(Err(trouble)) = taken {
                return Step::Failed(trouble);
            }
        }
        if let Some(step) = self.settled() {
            return step;
        }
        let changed = match self.stalled_at() {
            // Who asks for a stalled task waits for as long as if its stream had ended now.
            Some(at) => match tokio::time::timeout_at(at, self.changes.changed()).await {
                Ok(changed) => changed,
                Err(_) => return Step::Stalled,
            },
            None => self.changes.changed().await,
        };
        if changed.is_err() {
            return Step::Failed(Trouble::Gateway("it was forgotten"));
        }
        let news = || match self.stalled_at() {
            Some(_) => None,
            None => self.entry.look(|inside| inside.last.clone()),
        };
        self.settled().unwrap_or_else(|| Step::News(news()))
    }

    /// When a stalled task is told of. A client that wants the end of its task waits for that.
    fn stalled_at(&self) -> Option<tokio::time::Instant> {
        let delay = self.entry.look(|inside| inside.delay.filter(|_| inside.phase() == Phase::Running));
        match delay.filter(|_| !self.heeds_verdict) {
            Some(Delay::Stalled(after)) => Some(self.since + after),
            Some(Delay::Unreached) | None => None,
        }
    }

    fn is_cancelled_by(&self, inside: &Inside) -> bool {
        self.heeds_verdict && inside.verdict == Some(Verdict::Cancelled)
    }

    fn settled(&self) -> Option<Step> {
        self.entry.look(|inside| {
            if self.is_cancelled_by(inside) {
                return Some(Step::Settled);
            }
            if let Some(trouble) =
                self.asked.filter(|_| inside.failures() > self.failures).and_then(|turn| inside.failure(turn))
            {
                return Some(Step::Failed(trouble.clone()));
            }
            let is_refused = || self.asked.is_some_and(|turn| inside.refusal(turn).is_some());
            match inside.phase() {
                Phase::Finished => Some(Step::Settled),
                Phase::Failed(trouble) => Some(Step::Failed(trouble)),
                Phase::Asking(turn, _) if self.asked == Some(turn) => {
                    let is_part = inside.answered_keys(turn).len() > self.parts;
                    (is_part || is_refused()).then_some(Step::Settled)
                }
                Phase::Asking(_, State::AuthRequired) if self.patient => None,
                Phase::Asking(..) => Some(Step::Settled),
                // It is not over, but nobody listens to the agent any more: it was given up.
                Phase::Running => match &inside.over {
                    Some(Err(trouble)) if !inside.is_followed() => Some(Step::Failed(trouble.clone())),
                    _ => None,
                },
            }
        })
    }
}
