//! All calls that are followed, and the one place where they are polled.
//!
//! Calls come in through a bounded queue and run on the runtime of the bridge's own service, so that nothing is spawned
//! elsewhere. Not here: reading streams (see `agents`).

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tracing::{debug, warn};

use super::followed::Followed;
use crate::agents::{Caps, Drive, Errand, Known, Turn, start};
use crate::bridge::work::Work;
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
    /// Stop the work as soon as the agent has named it, instead of following it.
    pub cancel: bool,
}

/// How long an unnamed task is waited for when it is to be stopped.
const NAMED_WITHIN: Duration = Duration::from_secs(30);

type Handed = (Job, Arc<Followed>);
type Kept = HashMap<Key, Arc<Followed>>;

/// The followed calls of one bridge.
pub struct Followers {
    kept: Mutex<Kept>,
    jobs: mpsc::Sender<Handed>,
    incoming: Mutex<Option<mpsc::Receiver<Handed>>>,
    running: AtomicUsize,
    most: usize,
    keep: Duration,
    client: Client,
    caps: Caps,
    metrics: Arc<Metrics>,
}

impl Followers {
    /// At most `most` calls at once; results are kept for `keep`.
    pub fn new(most: usize, keep: Duration, client: Client, caps: Caps, metrics: Arc<Metrics>) -> Self {
        let (jobs, incoming) = mpsc::channel(most.max(1));
        Self {
            kept: Mutex::default(),
            jobs,
            incoming: Mutex::new(Some(incoming)),
            running: AtomicUsize::new(0),
            most,
            keep,
            client,
            caps,
            metrics,
        }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many calls are followed now.
    pub fn running(&self) -> usize {
        self.running.load(Ordering::Relaxed)
    }

    /// The followed call of this key.
    pub fn find(&self, key: &Key) -> Option<Arc<Followed>> {
        self.kept().get(key).cloned()
    }

    /// Takes over a call. Says whether there was room; without, the call is dropped and the agent is not listened to any more
    /// (its task can still be asked for).
    pub fn take(&self, job: Job) -> bool {
        if self.running() >= self.most {
            warn!(agent = job.agent, "no room to follow another call; it is not listened to any more");
            return false;
        }
        self.queue(job)
    }

    fn queue(&self, mut job: Job) -> bool {
        let work = std::mem::replace(&mut job.work, Work::new(0));
        let local = Key::Local(job.local);
        let named = work.task_id.clone().map(|task| Key::Task(job.agent.clone(), task));
        let cancel = job.cancel;
        let followed = Arc::new(Followed::new(work));
        if self.jobs.try_send((job, followed.clone())).is_err() {
            warn!("the queue of followed calls is full; one is not listened to any more");
            return false;
        }
        self.running.fetch_add(1, Ordering::Relaxed);
        if !cancel {
            let mut kept = self.kept();
            kept.insert(local, followed.clone());
            if let Some(named) = named {
                kept.insert(named, followed);
            }
        }
        true
    }

    /// Polls all calls until the end of the process. Runs once; on the runtime that is to own the work.
    pub async fn run(self: Arc<Self>) {
        let incoming = self.incoming.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(mut incoming) = incoming else { return };
        let mut calls = JoinSet::new();
        let mut sweep = tokio::time::interval(Duration::from_secs(5));
        loop {
            tokio::select! {
                job = incoming.recv() => match job {
                    Some((job, followed)) => { calls.spawn(self.clone().follow(job, followed)); }
                    None => return,
                },
                Some(ended) = calls.join_next() => {
                    if let Err(error) = ended {
                        self.running.fetch_sub(1, Ordering::Relaxed);
                        self.metrics.panicked();
                        warn!(%error, "a followed call broke");
                    }
                }
                _ = sweep.tick() => self.sweep(Instant::now()),
            }
        }
    }

    fn sweep(&self, now: Instant) {
        let Some(then) = now.checked_sub(self.keep) else { return };
        self.kept().retain(|_, followed| !followed.ended_before(then));
    }

    async fn follow(self: Arc<Self>, job: Job, followed: Arc<Followed>) {
        let _counted = self.metrics.in_background();
        match job.cancel {
            true => self.stop(job, &followed).await,
            false => self.drain(job, &followed).await,
        }
        self.running.fetch_sub(1, Ordering::Relaxed);
    }

    /// Listens to the end, so that an agent that stops when nobody listens does not stop.
    async fn drain(&self, mut job: Job, followed: &Arc<Followed>) {
        let result = loop {
            match job.drive.next().await {
                Turn::Over(result) => break result,
                Turn::Said(event) => {
                    let was_named = followed.look(|work| work.task_id.is_some());
                    if let Err(trouble) = followed.apply(event) {
                        break Err(trouble);
                    }
                    if !was_named {
                        self.name(&job.agent, followed);
                    }
                }
            }
        };
        debug!(agent = job.agent, ok = result.is_ok(), "followed call ended");
        followed.end(result, Instant::now());
    }

    fn name(&self, agent: &str, followed: &Arc<Followed>) {
        if let Some(task) = followed.look(|work| work.task_id.clone()) {
            self.kept().insert(Key::Task(agent.to_owned(), task), followed.clone());
        }
    }

    /// Stops the work at the agent: its client has gone, and nobody holds a handle.
    async fn stop(&self, mut job: Job, followed: &Followed) {
        let named = async {
            loop {
                if let Some(task) = followed.look(|work| work.task_id.clone()) {
                    return Some(task);
                }
                match job.drive.next().await {
                    Turn::Said(event) => {
                        if followed.apply(event).is_err() {
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
