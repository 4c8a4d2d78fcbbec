//! All tasks that are followed, and the one place where they are polled.
//!
//! Work comes in through a bounded queue and runs on the runtime of the bridge's own service, so that nothing is spawned
//! elsewhere. Not here: reading streams (see `agents`), what an event does to a task (see `tasks`), who follows when there is no
//! room for another stream (see `rota`).

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::task::JoinSet;
use tracing::{debug, warn};

use super::job::{Job, Leaving, Said, Task};
use super::listener::{Listener, can_be_stopped};
use super::push::Pushes;
use super::rota::Rota;
use super::successors::Successors;
use crate::a2a::{Fingerprint, Message, State};
use crate::agents::{Asked, Continue, Errand, Known, Terms, is_away, start};
use crate::bridge::work::Work;
use crate::fault::{Delay, Trouble};
use crate::quota::AnswerRoom;
use crate::tasks::{Entry, Full, Inside, Key, Ledger, Phase, Tasks, Times};
use crate::telemetry::metrics::Metrics;
use crate::transport::Client;

/// How much is followed.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Streams at once, and as many messages again in tasks that are listened to.
    pub most: usize,
    /// How long a stream that nobody watches is listened to; then the task is polled in turn.
    pub lifetime: Duration,
}

/// A piece of work with its place.
pub(super) struct Handed {
    task: Task,
    place: Option<OwnedSemaphorePermit>,
}

/// The followed tasks of one bridge.
pub struct Followers {
    pub(super) tasks: Tasks,
    ledger: Arc<Ledger>,
    jobs: mpsc::Sender<Handed>,
    incoming: Mutex<Option<mpsc::Receiver<Handed>>>,
    places: Arc<Semaphore>,
    /// Of messages in tasks that somebody else listens to: callers come and go, and may say much.
    beside: Arc<Semaphore>,
    rota: Rota,
    pub(super) pushes: Pushes,
    pub(super) successors: Successors,
    pub(super) bounds: Bounds,
    client: Client,
    terms: Terms,
    /// For answers that no client waits for: they are of no caller.
    room: AnswerRoom,
    pub(super) metrics: Arc<Metrics>,
}

/// Longest wait for an agent that is asked how a task stands: clients wait for the answer.
const LOOKED_WITHIN: Duration = Duration::from_secs(10);
/// What can wait to be begun, beyond the places: words, looks and cancellations.
const EXTRA: usize = 1024;
/// Fewest messages that may be on their way to agents beside those who listen.
const LEAST_BESIDE: usize = 64;

impl Followers {
    /// Follows nothing yet.
    pub fn new(
        bounds: Bounds,
        (tasks, ledger): (Tasks, Arc<Ledger>),
        client: Client,
        (terms, room): (Terms, AnswerRoom),
        metrics: Arc<Metrics>,
    ) -> Self {
        let bounds = Bounds { most: bounds.most.clamp(1, Semaphore::MAX_PERMITS), ..bounds };
        let (jobs, incoming) = mpsc::channel(bounds.most.saturating_add(EXTRA));
        Self {
            tasks,
            ledger,
            jobs,
            incoming: Mutex::new(Some(incoming)),
            places: Arc::new(Semaphore::new(bounds.most)),
            beside: Arc::new(Semaphore::new(bounds.most.max(LEAST_BESIDE))),
            rota: Rota::new(terms.retry_max),
            pushes: Pushes::new(None),
            successors: Successors::default(),
            bounds,
            client,
            terms,
            room,
            metrics,
        }
    }

    /// How many streams are followed now.
    pub fn running(&self) -> usize {
        self.bounds.most.saturating_sub(self.places.available_permits())
    }

    /// How many tasks are polled in turn now.
    pub fn polled(&self) -> usize {
        self.rota.waiting()
    }

    /// Takes over a call for somebody who will hold a handle of it.
    ///
    /// # Errors
    ///
    /// [`Full`] when neither the map nor the agent would lead back to it; the call is drained then.
    pub fn keep(&self, job: Job) -> Result<Arc<Entry>, Full> {
        self.keep_or_leave(job, Leaving::Drain)
    }

    /// The same; where the map is full, the call is left like this.
    ///
    /// # Errors
    ///
    /// As [`Self::keep`].
    pub fn keep_or_leave(&self, job: Job, leaving: Leaving) -> Result<Arc<Entry>, Full> {
        let now = Times::now();
        let Job { drive, mut work, agent, known, local } = job;
        drive.detach();
        work.task_id = work.task_id.or_else(|| drive.given_name());
        let named = work.task_id.as_deref().map(|id| Key::Task { agent: agent.clone(), id: id.into() });
        let mut work = Some(work);
        let make = || Entry::new(agent.clone(), local, work.take().unwrap_or_else(|| Work::new(0)), now);
        let admitted = self.tasks.admit(named.clone().unwrap_or(Key::Local(local)), make, now.instant);
        let Ok((entry, is_new)) = admitted else {
            let work = work.take().unwrap_or_else(|| Work::new(0));
            self.leave(Job { drive, work, agent, known, local }, leaving);
            return Err(Full);
        };
        let entry =
            if named.is_some() { self.tasks.alias(Key::Local(local), &entry, now.instant) } else { entry };
        if !is_new && let Some(work) = work.take() {
            entry.take_over(work, now);
        }
        if let Some(delay) = drive.delay() {
            entry.set_delay(Some(delay));
        }
        let Ok(place) = self.places.clone().try_acquire_owned() else {
            if !entry.is_named() {
                warn!(%agent, "no room to follow another call; it is not listened to any more");
                self.tasks.forget(&entry);
                return Err(Full);
            }
            warn!(%agent, "no room to follow another stream; the task is polled in turn");
            self.poll(&entry, known);
            return Ok(entry);
        };
        let Some(following) = entry.begin_following() else {
            // Another call of the same task is followed: this one only must not break off.
            drop(place);
            self.leave(Job { drive, work: Work::new(0), agent, known, local }, Leaving::Drain);
            return Ok(entry);
        };
        let task = Task::Follow { entry: entry.clone(), drive, known, following, said: None };
        self.hand(task, Some(place));
        Ok(entry)
    }

    /// Lets a call go on that nobody will ask for.
    pub fn leave(&self, job: Job, leaving: Leaving) {
        job.drive.detach();
        match self.places.clone().try_acquire_owned() {
            Ok(place) => self.hand(Task::Leave(Box::new(job), leaving), Some(place)),
            Err(_) => {
                warn!(agent = %job.agent, "no room to follow another call; it is not listened to any more")
            }
        }
    }

    /// Starts to follow a live task, past an open question. If the task has a follower, `known` is
    /// what that follower continues with when its own credentials are refused.
    pub fn attend(&self, entry: &Arc<Entry>, known: &Arc<Known>) {
        let Some(errand) = awaiting(entry) else { return };
        // There is nothing to listen to, and news are pushed.
        let is_polled = entry.is_pushed() && !known.can_subscribe();
        let place = if is_polled { None } else { self.places.clone().try_acquire_owned().ok() };
        let following = match &place {
            Some(_) => entry.begin_following(),
            None if entry.look(|inside| inside.is_followed()) => None,
            None => return self.poll(entry, known.clone()),
        };
        let Some(following) = following else {
            drop(place);
            self.successors.insert(entry, known);
            // The follower may have ended before the insertion: then it did not take the successor.
            if !entry.look(|inside| inside.is_followed())
                && let Some(known) = self.successors.take(entry)
            {
                self.poll(entry, known);
            }
            return;
        };
        let drive = self.start(known, errand);
        let (entry, known) = (entry.clone(), known.clone());
        self.hand(Task::Follow { entry, drive, known, following, said: None }, place);
    }

    /// Says something in a live task, as the answer to a question or just so. What is returned tells when the agent has taken
    /// it; whoever stops waiting does not take it back. It is not said if too much is on its way already.
    pub fn say(
        &self,
        entry: &Arc<Entry>,
        known: &Arc<Known>,
        (task, message, turn): (String, Message, Option<Fingerprint>),
    ) -> oneshot::Receiver<Result<(), Trouble>> {
        let (tell, heard) = oneshot::channel();
        let place = self.places.clone().try_acquire_owned().ok();
        let following = place.as_ref().and_then(|_| entry.begin_following());
        let beside = following.is_none();
        let place = if beside { self.beside.clone().try_acquire_owned().ok() } else { place };
        let asking = entry.look(|inside| inside.work.asking());
        let worded = asking.filter(|(_, has_words)| *has_words).map(|(state, _)| state);
        let drive = self.start(known, Errand::Continue(Continue { task, message, turn, worded, beside }));
        let (entry, known) = (entry.clone(), known.clone());
        let said = Said { tell, turn: turn.map(Fingerprint::to_bytes) };
        let task = match following {
            Some(following) => Task::Follow { entry, drive, known, following, said: Some(said) },
            None => Task::Beside { entry, drive, known, said },
        };
        match place {
            Some(place) => self.hand(task, Some(place)),
            None => {
                warn!("no room to say more to agents: nothing was sent");
                task.give_up();
            }
        }
        heard
    }

    /// Stops a task at its agent as soon as that is possible: at once, or when the agent has named it.
    pub fn cancel(&self, entry: &Arc<Entry>, known: &Arc<Known>) {
        if can_be_stopped(entry)
            && let Some(stopping) = entry.begin_stopping()
        {
            self.hand(Task::Cancel(stopping, known.clone()), None);
        }
    }

    /// Asks the agent how a task stands and takes the answer in.
    ///
    /// # Errors
    ///
    /// [`Trouble`], if the agent does not say, or takes too long.
    pub async fn look(&self, entry: &Arc<Entry>, known: &Arc<Known>) -> Result<(), Trouble> {
        let Some(task) = entry.look(|inside| inside.work.task_id.clone()) else { return Ok(()) };
        let drive = self.start(known, Errand::Look(task));
        let mut listener = Listener { entry, followers: self, said: None };
        let looked = tokio::time::timeout(LOOKED_WITHIN, listener.look(drive)).await;
        let looked = looked.unwrap_or(Err(Trouble::Slow("no answer")));
        match &looked {
            Err(trouble) if is_away(trouble) => entry.set_delay(Some(Delay::Unreached)),
            Err(_) => {}
            Ok(()) => entry.reached(),
        }
        looked
    }

    pub(super) fn start(&self, known: &Arc<Known>, errand: Errand) -> crate::agents::Drive {
        let drive = start(self.client.clone(), known.clone(), (self.terms, self.room.clone()), errand);
        drive.detach();
        drive
    }

    /// Notes what is new of a task where tasks are kept.
    pub(super) fn note(&self, entry: &Entry) {
        self.ledger.note(entry);
    }

    /// Notes that an agent cannot say how a task stands, if that is the end of it.
    pub fn note_end(&self, entry: &Arc<Entry>, trouble: Trouble) {
        if let Some(following) = entry.begin_following() {
            entry.end(Err(trouble), Times::now());
            drop(following);
        }
    }

    /// Polls a task in turn, unless somebody listens to its agent.
    pub(super) fn poll(&self, entry: &Arc<Entry>, known: Arc<Known>) {
        if !entry.look(|inside| inside.is_followed()) {
            self.rota.add(entry, known);
        }
    }

    pub(super) fn hand(&self, task: Task, place: Option<OwnedSemaphorePermit>) {
        // Fails at the end of the process, or when more waits than anybody can begin.
        if let Err(TrySendError::Full(handed) | TrySendError::Closed(handed)) =
            self.jobs.try_send(Handed { task, place })
        {
            warn!("background work is dropped: too much of it waits");
            handed.task.give_up();
        }
    }

    /// Polls everything until the end of the process. Runs once; on the runtime that is to own the work.
    pub async fn run(self: Arc<Self>) {
        let incoming = self.incoming.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(mut incoming) = incoming else { return };
        let mut work = JoinSet::new();
        let rota = self.clone();
        work.spawn(async move { rota.rota.run(&rota).await });
        loop {
            tokio::select! {
                handed = incoming.recv() => match handed {
                    Some(handed) => { work.spawn(self.clone().perform(handed)); }
                    None => return,
                },
                Some(ended) = work.join_next() => {
                    if ended.is_err_and(|error| error.is_panic()) {
                        self.metrics.panicked();
                        warn!("a followed call broke");
                    }
                }
            }
        }
    }

    async fn perform(self: Arc<Self>, handed: Handed) {
        let Handed { task, place } = handed;
        // What only waits for a stream to end is no exchange.
        let _counted = (!matches!(task, Task::Look(..))).then(|| self.metrics.in_background());
        match task {
            Task::Follow { entry, drive, known, following, said } => {
                self.follow(&entry, (drive, known), following, said).await;
            }
            Task::Beside { entry, drive, known, said } => {
                let mut listener = Listener { entry: &entry, followers: &self, said: Some(said) };
                let result = listener.listen(drive).await;
                listener.tell(result);
                // Who listens waits past the question that is known, and would not see that it is open still.
                if entry.look(Inside::is_in_doubt)
                    && let Err(trouble) = self.look(&entry, &known).await
                {
                    debug!(agent = %entry.agent(), %trouble, "agent does not say whether an answer arrived");
                }
                // Where there was no room to listen nobody may do so yet.
                self.attend(&entry, &known);
            }
            Task::Leave(job, Leaving::Drain) => super::listener::drain(*job, self.bounds.lifetime).await,
            Task::Leave(job, Leaving::Stop) => super::listener::stop(*job, &self).await,
            Task::Cancel(stopping, known) => self.stop(stopping, &known).await,
            Task::Look(entry, known, bell) => self.look_at(&entry, &known, bell).await,
        }
        drop(place);
    }
}

/// Returns the exchange that waits for the next event of a task, or `None` if its last event is
/// known.
pub(super) fn awaiting(entry: &Entry) -> Option<Errand> {
    let (task, asked) = entry.look(|inside| {
        let open = match inside.phase() {
            Phase::Finished | Phase::Failed(_) => return None,
            Phase::Asking(turn, _) => Some(turn),
            // The exchange that brings the answer reports what the agent said to it. An
            // authorization is given elsewhere and has no such exchange.
            Phase::Running if inside.work.state == Some(State::InputRequired) => inside.answer_under_way(),
            Phase::Running => None,
        };
        let answered = if open.is_none() { inside.answered() } else { None };
        let asking = inside.work.asking();
        let asked = Asked {
            open: open.map(Fingerprint::from_bytes),
            answered: answered.map(Fingerprint::from_bytes),
            state: asking.map(|(state, _)| state),
            has_words: asking.is_some_and(|(_, has_words)| has_words),
        };
        Some((inside.work.task_id.clone()?, asked))
    })?;
    Some(Errand::Await(task, asked))
}
