//! Tasks that continue without their client: their streams, polls and pushes.
//!
//! One agent stream per task, for any number of watchers: a client that waits for a task watches
//! its entry in the task map and opens nothing. Bounded: above the limit tasks are polled in turn.
//! [`TaskFollower`] is the only place where the futures of followed tasks are polled.
//!
//! Jobs come in through a bounded queue and run on the runtime of the gateway's background service,
//! so that nothing is spawned elsewhere. See also `event_ingest` for the jobs that read events, and
//! `refresh` for tasks without a stream.
//!
//! One follower listens to an agent for all watchers of a task, with the credentials of the caller
//! that started it. A watcher that joins later leaves its own credentials here. When the token of
//! the first caller is refused, the follower takes them and continues, so that no watcher waits for
//! an event that never arrives.
//!
//! Large artifacts of finished tasks are left to the agent, and fetched again on demand. An artifact
//! stays here if the agent does not have it any more.
//!
//! Out of scope: the owner of a task (part of the handle), responses to clients.

mod event_ingest;
mod refresh;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::task::JoinSet;
use tracing::{debug, info, warn};

use crate::a2a::{Fingerprint, Message, StreamResponse, Task, TaskState};
use crate::agents::{
    AgentOperation, CallLimits, DetachableCall, DriveEvent, FollowUpMessage, KnownQuestions, ResolvedAgent,
    start,
};
use crate::bridge::output::AgentOutput;
use crate::fault::{AgentFailure, TaskDelay};
use crate::quota::AnswerRoom;
use crate::shared_state::SharedState;
use crate::sync::lock;
use crate::tasks::{
    CancelGuard, EntryKey, EntryState, FollowGuard, TaskEntry, TaskJournal, TaskMapFull, TaskPhase, Tasks,
    Timestamp,
};
use crate::telemetry::metrics::Metrics;
use crate::transport::HttpClient;

use event_ingest::{EventIngest, FollowedEntry, SharedAnswer, TaskExchange, can_be_stopped};
use refresh::{PollScheduler, PushRegistrations, RefreshGuard};

pub use refresh::PushAddressFn;

/// Longest wait for an agent that is asked for the state of a task: clients wait for the response.
const LOOKED_WITHIN: Duration = Duration::from_secs(10);
/// Jobs that can wait to be begun, beyond the permits: messages, refreshes and cancellations.
const EXTRA: usize = 1024;
/// Fewest messages that may be in flight to agents besides the streams.
const LEAST_BESIDE: usize = 64;
/// Number of successors above which those of entries without a follower are removed.
const PRUNE_ABOVE: usize = 64;
/// Most tasks of one round: each costs a request to its agent.
const MAX_TASKS_PER_ROUND: usize = 64;
/// Longest wait for the artifacts of an agent: clients wait for them, and so do other tasks.
const FETCHED_WITHIN: Duration = Duration::from_secs(20);

/// Limits on following.
#[derive(Debug, Clone, Copy)]
pub struct FollowLimits {
    /// Concurrent streams, and as many messages again in tasks that are followed.
    pub most: usize,
    /// Time for which a stream without watchers is kept open; then the task is polled in turn.
    pub lifetime: Duration,
    /// Limits of each call to an agent.
    pub call: CallLimits,
}

/// A message in a live task.
pub struct TaskMessage {
    /// The agent's id of the task.
    pub task: String,
    /// The message.
    pub message: Message,
    /// The question that it answers, if it answers one.
    pub turn: Option<Fingerprint>,
}

/// A job with its permit.
struct QueuedJob {
    task: BackgroundJob,
    place: Option<OwnedSemaphorePermit>,
}

/// The followed tasks of one gateway.
pub struct TaskFollower {
    tasks: Tasks,
    ledger: Arc<TaskJournal>,
    jobs: mpsc::Sender<QueuedJob>,
    incoming: Mutex<Option<mpsc::Receiver<QueuedJob>>>,
    places: Arc<Semaphore>,
    /// For messages in tasks that another exchange follows: callers come and go, and may send many.
    beside: Arc<Semaphore>,
    rota: PollScheduler,
    pushes: PushRegistrations,
    successors: FollowerCredentials,
    /// Concurrent streams, and as many messages again in tasks that are followed.
    most: usize,
    settings: ArcSwap<FollowSettings>,
    client: HttpClient,
    metrics: Arc<Metrics>,
    /// Decides among replicas which of them reads a stream, answers and cancels.
    shared: Option<Arc<SharedState>>,
}

/// Settings that apply to work that begins from now on.
struct FollowSettings {
    /// See [`FollowLimits::lifetime`].
    lifetime: Duration,
    /// Limits of each call to an agent.
    call: CallLimits,
    /// For responses that no client waits for: they belong to no caller.
    room: AnswerRoom,
}

impl TaskFollower {
    /// Returns a follower without tasks.
    pub fn new(
        bounds: FollowLimits,
        tasks: Tasks,
        ledger: Arc<TaskJournal>,
        client: HttpClient,
        room: AnswerRoom,
        metrics: Arc<Metrics>,
    ) -> Self {
        let FollowLimits { most, lifetime, call } = bounds;
        let most = most.clamp(1, Semaphore::MAX_PERMITS);
        let (jobs, incoming) = mpsc::channel(most.saturating_add(EXTRA));
        Self {
            tasks,
            ledger,
            jobs,
            incoming: Mutex::new(Some(incoming)),
            places: Arc::new(Semaphore::new(most)),
            beside: Arc::new(Semaphore::new(most.max(LEAST_BESIDE))),
            rota: PollScheduler::new(call.retry_max),
            pushes: PushRegistrations::new(),
            successors: FollowerCredentials::default(),
            most,
            settings: ArcSwap::from_pointee(FollowSettings { lifetime, call, room }),
            client,
            metrics,
            shared: None,
        }
    }

    /// Shares the tasks with other replicas.
    #[must_use]
    pub(crate) fn shared_by(self, shared: Option<Arc<SharedState>>) -> Self {
        Self { shared, ..self }
    }

    /// Replaces the settings of work that begins from now on, except for the number of streams.
    pub(crate) fn renew(&self, bounds: FollowLimits, room: AnswerRoom, pushes: Option<PushAddressFn>) {
        let FollowLimits { lifetime, call, .. } = bounds;
        self.rota.set_calm(call.retry_max);
        self.pushes.set_address(pushes);
        self.settings.store(Arc::new(FollowSettings { lifetime, call, room }));
    }

    /// Returns the time for which a stream without watchers is kept open.
    fn lifetime(&self) -> Duration {
        self.settings.load().lifetime
    }

    /// Returns the number of streams that are followed now.
    pub fn running(&self) -> usize {
        self.most.saturating_sub(self.places.available_permits())
    }

    /// Returns the number of tasks that are polled in turn now.
    pub fn polled(&self) -> usize {
        self.rota.waiting()
    }

    /// Takes over a call for a client that will hold a handle of it.
    ///
    /// # Errors
    ///
    /// [`TaskMapFull`] when neither the map nor the agent would lead back to it; the call is
    /// drained then.
    pub fn adopt(&self, job: DetachedCall) -> Result<Arc<TaskEntry>, TaskMapFull> {
        self.keep_or_leave(job, DetachMode::Drain)
    }

    /// Takes over a call like [`Self::adopt`]; if the map is full, the call is detached in this
    /// mode.
    ///
    /// # Errors
    ///
    /// As [`Self::adopt`].
    pub fn keep_or_leave(
        &self,
        job: DetachedCall,
        leaving: DetachMode,
    ) -> Result<Arc<TaskEntry>, TaskMapFull> {
        let now = Timestamp::now();
        let DetachedCall { drive, mut work, agent, known, local } = job;
        drive.detach();
        work.task_id = work.task_id.or_else(|| drive.given_name());
        let named = work.task_id.as_deref().map(|id| EntryKey::Task { agent: agent.clone(), id: id.into() });
        let mut work = Some(work);
        let make =
            || TaskEntry::new(agent.clone(), local, work.take().unwrap_or_else(|| AgentOutput::new(0)), now);
        let admitted = self.tasks.admit(named.clone().unwrap_or(EntryKey::Local(local)), make, now.instant);
        let Ok((entry, is_new)) = admitted else {
            let work = work.take().unwrap_or_else(|| AgentOutput::new(0));
            self.detach(DetachedCall { drive, work, agent, known, local }, leaving);
            return Err(TaskMapFull);
        };
        let entry = if named.is_some() {
            self.tasks.add_alias(EntryKey::Local(local), &entry, now.instant)
        } else {
            entry
        };
        if !is_new && let Some(work) = work.take() {
            entry.adopt_call(work, now);
        }
        if let Some(delay) = drive.delay() {
            entry.set_delay(Some(delay));
        }
        let Ok(place) = self.places.clone().try_acquire_owned() else {
            if !entry.is_named() {
                info!(%agent, "follower limit reached, call dropped");
                self.tasks.forget(&entry);
                return Err(TaskMapFull);
            }
            info!(%agent, "follower limit reached, task is polled");
            self.poll(&entry, known);
            return Ok(entry);
        };
        let Some(following) = entry.begin_following() else {
            // Another call of the same task is followed: this one only must not break off.
            drop(place);
            self.detach(
                DetachedCall { drive, work: AgentOutput::new(0), agent, known, local },
                DetachMode::Drain,
            );
            return Ok(entry);
        };
        let task = BackgroundJob::Follow { entry: entry.clone(), drive, known, following, said: None };
        self.enqueue(task, Some(place));
        Ok(entry)
    }

    /// Lets a call run on that no client will ask for.
    pub fn detach(&self, job: DetachedCall, leaving: DetachMode) {
        job.drive.detach();
        match self.places.clone().try_acquire_owned() {
            Ok(place) => self.enqueue(BackgroundJob::Leave(Box::new(job), leaving), Some(place)),
            Err(_) => {
                info!(agent = %job.agent, "follower limit reached, call dropped")
            }
        }
    }

    /// Starts to follow a live task, past an open question. If the task has a follower, `known` is
    /// what that follower continues with when its own credentials are refused.
    pub fn ensure_followed(&self, entry: &Arc<TaskEntry>, known: &Arc<ResolvedAgent>) {
        let Some(errand) = awaiting(entry) else { return };
        // There is no stream to read, and changes are pushed.
        let is_polled = entry.is_pushed() && !known.can_subscribe();
        let place = if is_polled { None } else { self.places.clone().try_acquire_owned().ok() };
        let following = match &place {
            Some(_) => entry.begin_following(),
            None if entry.visible_state(|inside| inside.is_followed()) => None,
            None => return self.poll(entry, known.clone()),
        };
        let Some(following) = following else {
            drop(place);
            self.successors.insert(entry, known);
            // The follower may have ended before the insertion: then it did not take the successor.
            if !entry.visible_state(|inside| inside.is_followed())
                && let Some(known) = self.successors.take(entry)
            {
                self.poll(entry, known);
            }
            return;
        };
        let drive = self.start(known, errand);
        let (entry, known) = (entry.clone(), known.clone());
        self.enqueue(BackgroundJob::Follow { entry, drive, known, following, said: None }, place);
    }

    /// Sends a message in a live task, as the answer to a question or not. The returned receiver
    /// yields the result when the agent has accepted the message; dropping the receiver does not
    /// abort the message. Nothing is sent if too many messages are in flight already.
    pub fn send_message(
        &self,
        entry: &Arc<TaskEntry>,
        known: &Arc<ResolvedAgent>,
        message: TaskMessage,
    ) -> oneshot::Receiver<Result<(), AgentFailure>> {
        let TaskMessage { task, message, turn } = message;
        let (tell, heard) = oneshot::channel();
        let place = self.places.clone().try_acquire_owned().ok();
        let following = place.as_ref().and_then(|_| entry.begin_following());
        let beside = following.is_none();
        let place = if beside { self.beside.clone().try_acquire_owned().ok() } else { place };
        let asking = entry.visible_state(|inside| inside.work.asking());
        let worded = asking.filter(|(_, has_words)| *has_words).map(|(state, _)| state);
        let drive = self
            .start(known, AgentOperation::Continue(FollowUpMessage { task, message, turn, worded, beside }));
        let (entry, known) = (entry.clone(), known.clone());
        let said = SendCompletion { tell, turn: turn.map(Fingerprint::to_bytes), shared: None };
        let task = match following {
            Some(following) => BackgroundJob::Follow { entry, drive, known, following, said: Some(said) },
            None => BackgroundJob::Beside { entry, drive, known, said },
        };
        match place {
            Some(place) => self.enqueue(task, Some(place)),
            None => {
                info!("message limit reached, message not sent");
                task.give_up();
            }
        }
        heard
    }

    /// Cancels a task at its agent as soon as that is possible: at once, or when the agent has
    /// named it.
    pub fn cancel(&self, entry: &Arc<TaskEntry>, known: &Arc<ResolvedAgent>) {
        if can_be_stopped(entry)
            && let Some(stopping) = entry.begin_stopping()
        {
            self.enqueue(BackgroundJob::Cancel(stopping, known.clone()), None);
        }
    }

    /// Asks the agent for the state of a task and applies the response.
    ///
    /// # Errors
    ///
    /// [`AgentFailure`], if the agent does not report the state, or takes too long.
    pub async fn refresh(
        &self,
        entry: &Arc<TaskEntry>,
        known: &Arc<ResolvedAgent>,
    ) -> Result<(), AgentFailure> {
        let Some(task) = entry.visible_state(|inside| inside.work.task_id.clone()) else { return Ok(()) };
        let drive = self.start(known, AgentOperation::Look(task));
        let mut listener = EventIngest::new(entry, self, None);
        let looked = tokio::time::timeout(LOOKED_WITHIN, listener.refresh(drive)).await;
        let looked = looked.unwrap_or(Err(AgentFailure::Timeout("no answer")));
        match &looked {
            Err(trouble) if trouble.is_unavailable() => entry.set_delay(Some(TaskDelay::Unreached)),
            Err(_) => {}
            Ok(()) => entry.reached(),
        }
        looked
    }

    fn start(&self, known: &Arc<ResolvedAgent>, errand: AgentOperation) -> crate::agents::DetachableCall {
        let settings = self.settings.load();
        let drive = start(self.client.clone(), known.clone(), settings.call, settings.room.clone(), errand);
        drive.detach();
        drive
    }

    /// Persists the changes of a task, if tasks are persisted.
    fn record_outcome(&self, entry: &TaskEntry) {
        self.ledger.persist(entry);
    }

    /// Records that an agent cannot report the state of a task, if that ends the task.
    pub fn mark_failed(&self, entry: &Arc<TaskEntry>, trouble: AgentFailure) {
        if let Some(following) = entry.begin_following() {
            entry.end(Err(trouble), Timestamp::now());
            drop(following);
        }
    }

    /// Polls a task in turn, unless it has a follower.
    fn poll(&self, entry: &Arc<TaskEntry>, known: Arc<ResolvedAgent>) {
        if !entry.visible_state(|inside| inside.is_followed()) {
            self.rota.add(entry, known);
        }
    }

    fn enqueue(&self, task: BackgroundJob, place: Option<OwnedSemaphorePermit>) {
        // Fails at the end of the process, or when the queue is full.
        if let Err(TrySendError::Full(handed) | TrySendError::Closed(handed)) =
            self.jobs.try_send(QueuedJob { task, place })
        {
            info!("background queue full, job dropped");
            handed.task.give_up();
        }
    }

    /// Runs the jobs until the end of the process. Called once; on the runtime that is to own the
    /// jobs.
    pub async fn run(self: Arc<Self>) {
        let incoming = lock(&self.incoming).take();
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
                        warn!("background job panicked");
                    }
                }
            }
        }
    }

    async fn perform(self: Arc<Self>, handed: QueuedJob) {
        let QueuedJob { task, place } = handed;
        // A job that only waits for a stream to end is no exchange.
        let _counted = (!matches!(task, BackgroundJob::Look(..))).then(|| self.metrics.in_background());
        match task {
            BackgroundJob::Follow { entry, drive, known, following, said } => {
                let task = FollowedEntry { entry: &entry, following };
                self.follow_among_replicas(task, TaskExchange { drive, known }, said).await;
            }
            BackgroundJob::Beside { entry, drive, known, said } => {
                if let Some(said) = self.claim_among_replicas(&entry, &known, said).await {
                    let mut listener = EventIngest::new(&entry, &self, Some(said));
                    let result = listener.listen(drive).await;
                    listener.notify_watchers(result);
                }
                // The follower waits past the question that is known, and would not see that it is
                // still open.
                if entry.visible_state(EntryState::has_unconfirmed_answer)
                    && let Err(trouble) = self.refresh(&entry, &known).await
                {
                    debug!(agent = %entry.agent(), error = %trouble, "failed to confirm answer");
                }
                // The task may have no follower yet, if there was no room.
                self.ensure_followed(&entry, &known);
            }
            BackgroundJob::Leave(job, DetachMode::Drain) => event_ingest::drain(*job, self.lifetime()).await,
            BackgroundJob::Leave(job, DetachMode::Stop) => event_ingest::stop(*job, &self).await,
            BackgroundJob::Cancel(stopping, known) => self.stop(stopping, &known).await,
            BackgroundJob::Look(entry, known, bell) => self.refresh_on_hints(&entry, &known, bell).await,
        }
        drop(place);
    }
}

/// Returns the exchange that waits for the next event of a task, or `None` if its last event is
/// known.
fn awaiting(entry: &TaskEntry) -> Option<AgentOperation> {
    let (task, asked) = entry.visible_state(|inside| {
        let open = match inside.phase() {
            TaskPhase::Finished | TaskPhase::Failed(_) => return None,
            TaskPhase::Asking(turn, _) => Some(turn),
            // The exchange that brings the answer reports the agent's response to it. An
            // authorization is given elsewhere and has no such exchange.
            TaskPhase::Running if inside.work.state == Some(TaskState::InputRequired) => {
                inside.answer_in_flight()
            }
            TaskPhase::Running => None,
        };
        let answered = if open.is_none() { inside.answered() } else { None };
        let asking = inside.work.asking();
        let asked = KnownQuestions {
            open: open.map(Fingerprint::from_bytes),
            answered: answered.map(Fingerprint::from_bytes),
            state: asking.map(|(state, _)| state),
            has_words: asking.is_some_and(|(_, has_words)| has_words),
        };
        Some((inside.work.task_id.clone()?, asked))
    })?;
    Some(AgentOperation::Await(task, asked))
}

/// A call that its client leaves.
pub struct DetachedCall {
    /// The call itself.
    pub drive: DetachableCall,
    /// The output so far.
    pub work: AgentOutput,
    /// The agent's name.
    pub agent: Arc<str>,
    /// Address and credentials of the agent.
    pub known: Arc<ResolvedAgent>,
    /// The number that the client may hold.
    pub local: [u8; 16],
}

/// Treatment of a call that no client holds a handle of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DetachMode {
    /// No client can ask for it, but the agent must not lose its listener.
    Drain,
    /// The task is cancelled as soon as the agent has named it.
    Stop,
}

/// Job of the background.
enum BackgroundJob {
    /// Follows the task to its end, and notifies the sender when the agent has accepted its
    /// message.
    Follow {
        /// The task.
        entry: Arc<TaskEntry>,
        /// The exchange with the agent.
        drive: DetachableCall,
        /// Address and credentials of the agent.
        known: Arc<ResolvedAgent>,
        /// The right to follow it.
        following: FollowGuard,
        /// Notifies the sender of the message, if there is one.
        said: Option<SendCompletion>,
    },
    /// Sends a message in a task that another exchange follows.
    Beside {
        /// The task.
        entry: Arc<TaskEntry>,
        /// The exchange with the agent.
        drive: DetachableCall,
        /// Address and credentials of the agent.
        known: Arc<ResolvedAgent>,
        /// Notifies the sender of the message.
        said: SendCompletion,
    },
    /// Reads the stream of a call that no client asks for, to its end.
    Leave(Box<DetachedCall>, DetachMode),
    /// Cancels a task.
    Cancel(CancelGuard, Arc<ResolvedAgent>),
    /// Refreshes a task, because its agent has pushed.
    Look(Arc<TaskEntry>, Arc<ResolvedAgent>, RefreshGuard),
}

/// Completion of a message: the agent has accepted it, or has not.
struct SendCompletion {
    /// Notifies the sender.
    tell: oneshot::Sender<Result<(), AgentFailure>>,
    /// The question that the message answers.
    turn: Option<[u8; 16]>,
    /// The claim of the answer among replicas.
    shared: Option<SharedAnswer>,
}

impl SendCompletion {
    /// Notifies the sender of the result. A question is open again if its answer was certainly not
    /// received.
    fn complete(self, entry: &TaskEntry, result: Result<(), AgentFailure>) {
        match (self.turn, &result) {
            (Some(turn), Ok(())) => entry.mark_answer_sent(turn),
            // The delivery is unconfirmed: no other answer is accepted until the agent has reported
            // the state of the task.
            (Some(turn), Err(trouble @ (AgentFailure::Timeout(_) | AgentFailure::ConnectionLost(_)))) => {
                entry.mark_answer_unconfirmed(turn, trouble)
            }
            (Some(turn), Err(trouble)) => entry.release_answer(turn, trouble.clone()),
            (None, _) => {}
        }
        if let Some(claim) = self.shared {
            claim.settle(&result);
        }
        // The sender may have left.
        drop(self.tell.send(result));
    }

    /// Notifies the sender alone: another replica has the answer.
    fn tell(self, result: Result<(), AgentFailure>) {
        drop(self.tell.send(result));
    }
}

impl BackgroundJob {
    /// Reports that there is no room: the message is not sent.
    fn give_up(self) {
        let trouble = AgentFailure::Internal("too much waits to be said; nothing was sent");
        match self {
            Self::Follow { entry, following, said: Some(said), .. } => {
                entry.end(Ok(()), Timestamp::now());
                drop(following);
                said.complete(&entry, Err(trouble));
            }
            Self::Beside { entry, said, .. } => said.complete(&entry, Err(trouble)),
            Self::Follow { said: None, .. } | Self::Leave(..) | Self::Cancel(..) | Self::Look(..) => {}
        }
    }
}

/// The newest successor of each followed task.
///
/// Bounded by the number of followed tasks: the follower takes the successor when it ends.
#[derive(Default)]
struct FollowerCredentials(Mutex<HashMap<usize, FollowerCredential>>);

/// The weak reference keeps the address of the entry, which is the key, from being used again.
struct FollowerCredential {
    entry: Weak<TaskEntry>,
    known: Arc<ResolvedAgent>,
}

impl FollowerCredentials {
    /// Inserts the credentials that the follower of `entry` is to continue with. The newest win.
    fn insert(&self, entry: &Arc<TaskEntry>, known: &Arc<ResolvedAgent>) {
        let successor = FollowerCredential { entry: Arc::downgrade(entry), known: known.clone() };
        let mut successors = lock(&self.0);
        successors.insert(key(entry), successor);
        // Doubling keeps the cost of pruning constant for each insertion.
        if successors.len() > PRUNE_ABOVE && successors.len().is_power_of_two() {
            let is_followed = |entry: Arc<TaskEntry>| entry.visible_state(|inside| inside.is_followed());
            successors.retain(|_, successor| successor.entry.upgrade().is_some_and(is_followed));
        }
    }

    /// Removes and returns the credentials to continue with.
    fn take(&self, entry: &Arc<TaskEntry>) -> Option<Arc<ResolvedAgent>> {
        Some(lock(&self.0).remove(&key(entry))?.known)
    }
}

fn key(entry: &Arc<TaskEntry>) -> usize {
    Arc::as_ptr(entry).addr()
}

impl TaskFollower {
    /// Drops the large artifacts of finished tasks without watchers, if their agents still have
    /// them. `known` resolves an agent.
    pub async fn evict(&self, known: impl Fn(&str) -> Option<Arc<ResolvedAgent>>) {
        let now = Instant::now();
        let mut large = Vec::new();
        self.tasks.for_each(now, |entry| {
            if large.len() < MAX_TASKS_PER_ROUND && self.tasks.should_shed(entry, now) {
                large.push(entry.clone());
            }
        });
        let mut silent: Vec<Arc<str>> = Vec::new();
        for entry in large {
            let known = known(entry.agent()).filter(|_| !silent.contains(entry.agent()));
            let Some(known) = known else { continue };
            match self.fetch(&entry, &known).await {
                Ok(Some(task)) if task.status.state.is_terminal() && !task.artifacts.is_empty() => {
                    // A watcher may have come meanwhile.
                    if self.tasks.should_shed(&entry, Instant::now()) {
                        entry.update(AgentOutput::evict_artifacts);
                    }
                }
                // Content that only the gateway has stays here.
                Ok(_) | Err(AgentFailure::TaskNotFound) => entry.keep_artifacts(),
                Err(trouble) => {
                    debug!(agent = %entry.agent(), error = %trouble, "failed to check artifacts at agent");
                    silent.push(entry.agent().clone());
                }
            }
        }
    }

    /// Fetches artifacts again that were left to the agent.
    ///
    /// # Errors
    ///
    /// [`AgentFailure`], if the agent does not return them.
    pub async fn refetch(
        &self,
        entry: &Arc<TaskEntry>,
        known: &Arc<ResolvedAgent>,
    ) -> Result<(), AgentFailure> {
        if !entry.visible_state(|inside| inside.work.artifacts_shed) {
            return Ok(());
        }
        match self.fetch(entry, known).await? {
            Some(task) => entry
                .update(|work| work.restore_artifacts(task))
                .map_err(|too_much| AgentFailure::LimitExceeded(too_much.max_bytes, "its artifacts")),
            None => Ok(()),
        }
    }

    async fn fetch(
        &self,
        entry: &TaskEntry,
        known: &Arc<ResolvedAgent>,
    ) -> Result<Option<Task>, AgentFailure> {
        let fetched = tokio::time::timeout(FETCHED_WITHIN, self.fetch_all(entry, known)).await;
        fetched.unwrap_or(Err(AgentFailure::Timeout("no answer")))
    }

    async fn fetch_all(
        &self,
        entry: &TaskEntry,
        known: &Arc<ResolvedAgent>,
    ) -> Result<Option<Task>, AgentFailure> {
        let Some(id) = entry.task_id() else { return Ok(None) };
        let mut drive = self.start(known, AgentOperation::Look(id));
        let mut found = None;
        loop {
            match drive.next().await {
                DriveEvent::Said(event) => {
                    if let StreamResponse::Task(task) = *event {
                        found = Some(task);
                    }
                }
                DriveEvent::Delayed(_) => {}
                DriveEvent::Over(result) => return result.map(|()| found),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tasks::AnswerClaim;

    #[test]
    fn an_answer_is_taken_again_only_if_it_surely_or_perhaps_did_not_arrive() {
        let (turn, digest, other) = ([1; 16], [2; 16], [3; 16]);
        for (result, same, another) in [
            (Ok(()), AnswerClaim::Same, AnswerClaim::Other),
            (Err(AgentFailure::Internal("full")), AnswerClaim::Ours, AnswerClaim::Ours),
            (Err(AgentFailure::Unreachable("refused")), AnswerClaim::Ours, AnswerClaim::Ours),
            (Err(AgentFailure::ConnectionLost("cut off")), AnswerClaim::Ours, AnswerClaim::Other),
            (Err(AgentFailure::Timeout("no answer")), AnswerClaim::Ours, AnswerClaim::Other),
        ] {
            let again = |digest| {
                let entry = TaskEntry::new("bard".into(), [7; 16], AgentOutput::new(100), Timestamp::now());
                assert_eq!(entry.claim_answer(turn, [2; 16]), AnswerClaim::Ours);
                assert_eq!(entry.claim_answer(turn, [2; 16]), AnswerClaim::Same, "while it is on its way");
                let (tell, mut heard) = oneshot::channel();
                SendCompletion { tell, turn: Some(turn), shared: None }.complete(&entry, result.clone());
                assert_eq!(heard.try_recv().unwrap(), result);
                let first = entry.claim_answer(turn, digest);
                (first, entry.claim_answer(turn, digest))
            };
            assert_eq!(again(digest), (same, AnswerClaim::Same), "{result:?}");
            let second = if another == AnswerClaim::Ours { AnswerClaim::Same } else { AnswerClaim::Other };
            assert_eq!(again(other), (another, second), "{result:?}");
        }
    }
}
