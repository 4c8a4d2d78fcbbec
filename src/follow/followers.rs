//! All calls that are followed, and the one place where they are polled.
//!
//! Calls come in through a bounded queue and run on the runtime of the bridge's own service, so that nothing is spawned
//! elsewhere. Not here: reading streams (see `agents`), what is kept of them (see `kept`).

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinSet;
use tracing::{debug, warn};

use super::followed::Followed;
use super::kept::Kept;
use crate::agents::{Caps, Drive, Errand, Known, Turn, start};
use crate::bridge::work::Work;
use crate::fault::Trouble;
use crate::telemetry::metrics::Metrics;
use crate::transport::Client;

/// How a followed call is found again.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Key {
    /// By agent and the agent's task id.
    Task(String, String),
    /// By the number that it got while the agent had not named a task.
    Local([u8; 16]),
}

/// Why a call is handed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// The client holds a handle and will ask for the result.
    Keep,
    /// Nobody can ask for it, but the agent must not lose its listener.
    Drain,
    /// The work is to be stopped as soon as the agent has named it.
    Stop,
}

/// A call that is handed over.
pub struct Job {
    /// The call itself.
    pub drive: Drive,
    /// What is known so far.
    pub work: Work,
    /// The agent's name.
    pub agent: String,
    /// How the agent is called.
    pub known: Arc<Known>,
    /// The number that the client may hold.
    pub local: [u8; 16],
    /// Why it is handed over.
    pub purpose: Purpose,
}

/// How much is followed and kept.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Calls at once.
    pub most: usize,
    /// How long one is followed.
    pub lifetime: Duration,
    /// How long its result is kept.
    pub keep: Duration,
    /// How many bytes of results are kept.
    pub keep_bytes: usize,
}

/// How long an unnamed task is waited for when it is to be stopped.
const NAMED_WITHIN: Duration = Duration::from_secs(30);

/// A job with what it was given: its place and its record.
struct Handed {
    job: Job,
    followed: Arc<Followed>,
    place: OwnedSemaphorePermit,
}

/// The followed calls of one bridge.
pub struct Followers {
    kept: Kept,
    jobs: mpsc::Sender<Handed>,
    incoming: Mutex<Option<mpsc::Receiver<Handed>>>,
    places: Arc<Semaphore>,
    bounds: Bounds,
    client: Client,
    caps: Caps,
    metrics: Arc<Metrics>,
}

impl Followers {
    /// Follows nothing yet.
    pub fn new(bounds: Bounds, client: Client, caps: Caps, metrics: Arc<Metrics>) -> Self {
        let most = bounds.most.clamp(1, Semaphore::MAX_PERMITS);
        let (jobs, incoming) = mpsc::channel(most);
        Self {
            kept: Kept::new(bounds.keep, bounds.keep_bytes),
            jobs,
            incoming: Mutex::new(Some(incoming)),
            places: Arc::new(Semaphore::new(most)),
            bounds,
            client,
            caps,
            metrics,
        }
    }

    /// How many calls are followed now.
    pub fn running(&self) -> usize {
        self.bounds.most.clamp(1, Semaphore::MAX_PERMITS).saturating_sub(self.places.available_permits())
    }

    /// The followed call of this key.
    pub fn find(&self, key: &Key) -> Option<Arc<Followed>> {
        self.kept.find(key)
    }

    /// Takes over a call. Says whether there was room; without, the call is dropped: the agent is not listened to any more, and
    /// only a task that it has named can still be asked for.
    pub fn take(&self, mut job: Job) -> bool {
        let Ok(place) = self.places.clone().try_acquire_owned() else {
            warn!(agent = job.agent, "no room to follow another call; it is not listened to any more");
            return false;
        };
        let followed = Arc::new(Followed::new(std::mem::replace(&mut job.work, Work::new(0))));
        let keys = keys(&job, &followed);
        // Fails only when nobody follows any more: at the end of the process.
        let taken = self.jobs.try_send(Handed { job, followed: followed.clone(), place }).is_ok();
        if taken {
            keys.into_iter().for_each(|key| self.kept.insert(key, &followed));
        }
        taken
    }

    /// Polls all calls until the end of the process. Runs once; on the runtime that is to own the work.
    pub async fn run(self: Arc<Self>) {
        let incoming = self.incoming.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(mut incoming) = incoming else { return };
        let mut calls = JoinSet::new();
        let mut sweep = tokio::time::interval(Duration::from_secs(1));
        loop {
            tokio::select! {
                handed = incoming.recv() => match handed {
                    Some(handed) => { calls.spawn(self.clone().follow(handed)); }
                    None => return,
                },
                Some(ended) = calls.join_next() => {
                    if ended.is_err_and(|error| error.is_panic()) {
                        self.metrics.panicked();
                        warn!("a followed call broke");
                    }
                }
                _ = sweep.tick() => self.kept.sweep(Instant::now()),
            }
        }
    }

    async fn follow(self: Arc<Self>, handed: Handed) {
        let Handed { job, followed, place } = handed;
        let _counted = self.metrics.in_background();
        match job.purpose {
            Purpose::Stop => self.stop(job, &followed).await,
            Purpose::Drain | Purpose::Keep => self.drain(job, followed).await,
        }
        drop(place);
    }

    /// Listens to the end, so that an agent that stops when nobody listens does not stop.
    async fn drain(&self, mut job: Job, followed: Arc<Followed>) {
        let _guard = EndsAnyway(&followed);
        let listened = tokio::time::timeout(self.bounds.lifetime, self.listen(&mut job, &followed)).await;
        let result = listened.unwrap_or(Err(Trouble::Gateway("it took longer than calls are followed")));
        debug!(agent = job.agent, ok = result.is_ok(), "followed call ended");
        let bytes = followed.end(result);
        if job.purpose == Purpose::Keep {
            self.kept.ended(followed.clone(), keys(&job, &followed), bytes, Instant::now());
        }
    }

    async fn listen(&self, job: &mut Job, followed: &Arc<Followed>) -> Result<(), Trouble> {
        loop {
            match job.drive.next().await {
                Turn::Over(result) => return result,
                Turn::Said(event) => {
                    let was_named = followed.look(|work| work.task_id.is_some());
                    followed.apply(event)?;
                    if !was_named {
                        keys(job, followed).into_iter().for_each(|key| self.kept.insert(key, followed));
                    }
                }
            }
        }
    }

    /// Stops the work at the agent: its client has gone, and nobody holds a handle.
    async fn stop(&self, mut job: Job, followed: &Followed) {
        let named = async {
            loop {
                let task = followed.look(|work| work.task_id.clone());
                if task.is_some() {
                    return task;
                }
                match job.drive.next().await {
                    Turn::Said(event) => {
                        if let Err(trouble) = followed.apply(event) {
                            debug!(%trouble, "agent sends too much to a call that is to be stopped");
                            return followed.look(|work| work.task_id.clone());
                        }
                    }
                    Turn::Over(_) => return followed.look(|work| work.task_id.clone()),
                }
            }
        };
        let Ok(Some(task)) = tokio::time::timeout(NAMED_WITHIN, named).await else { return };
        if followed.look(|work| work.state.is_some_and(crate::a2a::State::is_terminal)) {
            return;
        }
        let mut cancelling = start(self.client.clone(), job.known.clone(), self.caps, Errand::Cancel(task));
        while let Turn::Said(_) = cancelling.next().await {}
        debug!(agent = job.agent, "work stopped: its client left");
    }
}

/// Ends a followed call even if following it breaks, so that nobody waits for it.
struct EndsAnyway<'a>(&'a Followed);

impl Drop for EndsAnyway<'_> {
    fn drop(&mut self) {
        if self.0.over().is_none() {
            self.0.end(Err(Trouble::Gateway("following it broke off")));
        }
    }
}

/// The keys under which a followed call is found: none if nobody holds one.
fn keys(job: &Job, followed: &Followed) -> Vec<Key> {
    if job.purpose != Purpose::Keep {
        return Vec::new();
    }
    let named = followed.look(|work| work.task_id.clone());
    let named = named.map(|task| Key::Task(job.agent.clone(), task));
    named.into_iter().chain([Key::Local(job.local)]).collect()
}
