//! State that several replicas share through an engine (Valkey or Redis; for one process a file): tasks, claims, sessions,
//! values of the memory bank, batches, rates, and the leases of followers.
//!
//! Without `state` in the configuration there is none, and nothing here runs. Each replica keeps
//! working on its own maps; rows go to the engine behind the work, and are read from it when they are
//! missing here. The engine decides what only one replica may do: answer a question, cancel a task,
//! read an agent's stream. When it does not answer, each replica decides alone. No replica sends
//! requests to another one.
//!
//! See also `lease` for followers, and `redis_engine` for the keys.

mod engine;
mod lease;
mod local_engine;
mod local_store;
mod quotas;
mod redis_engine;
mod rows;
#[cfg(test)]
pub(crate) mod tests;

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use futures_util::future::join_all;
use sha2::{Digest as _, Sha256};
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::Instant;
use tracing::{debug, info};

use crate::config::{State, StateContent, StateLocation};
use crate::quota::QuotaOwner;
use crate::seal::Sealer;
use crate::sync::lock;
use crate::tasks::store::StoreTable;
use crate::tasks::{SharedTaskRow, Timestamp};

use engine::{SharedRate, StateEngine, StateKey, StateKind, Wake};
use local_engine::LocalEngine;
use quotas::QuotaLedger;
use redis_engine::RedisEngine;
use rows::RowQueue;

pub(crate) use lease::{LeaseGrant, TaskLease, TaskNews};
pub(crate) use quotas::{CallerQuota, FreedUnits, SharedUse, UseCounter};
pub(crate) use rows::SharedRow;

/// Wake-ups that wait to be handled; beyond, everything is looked at.
const MOST_WAKES: usize = 4096;
/// Longest pause after which the log is read without a wake-up.
const LOG_INTERVAL: Duration = Duration::from_secs(2);
/// Rows of the log that are read at once: each may have 4 MiB.
const LOG_PAGE: usize = 32;
/// Time for which an answer that was sent is remembered: longer than a client repeats it.
const SENT_TTL: Duration = Duration::from_secs(24 * 3600);
/// Time for which a push that was sent is remembered: longer than an agent repeats one, and short, since
/// an equal push may be news after another one.
const PUSH_TTL: Duration = Duration::from_secs(120);
/// Time for which an answer that is being sent is remembered: longer than an exchange that fails.
const SENDING_TTL: Duration = Duration::from_secs(120);
/// Time for which a cancellation that another replica has begun is not begun again.
const CANCEL_TTL: Duration = Duration::from_secs(10);
/// Interval of the reports of open breakers, and the time after which one expires.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);
const REPORT_TTL: Duration = Duration::from_secs(5);
/// Time for which the index of replicas outlives the last of them.
const INDEX_TTL: Duration = Duration::from_secs(60);
/// Replicas of which the reports are read, and entries of one report.
const MOST_REPLICAS: usize = 64;
const MOST_REPORTED: usize = 10_000;
/// Bytes of the digest that names an endpoint.
const ENDPOINT_NAME_BYTES: usize = 16;
/// Bytes of the name of a replica.
pub(crate) const REPLICA_BYTES: usize = 16;

/// Result of claiming an answer among all replicas.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SharedClaim {
    /// This replica must send it.
    Ours,
    /// It was given at another replica.
    Taken {
        /// The digest of that answer.
        digest: [u8; 16],
        /// Progress of that answer.
        progress: ClaimProgress,
    },
    /// The engine does not answer: this replica decides alone.
    Unknown,
}

/// Progress of an answer that another replica has claimed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ClaimProgress {
    /// The agent has it.
    Sent,
    /// The replica is sending it.
    Sending,
    /// The replica that was sending it has ended: the agent may have it or not. The claim, for
    /// [`SharedState::take_over_claim`].
    Abandoned(Vec<u8>),
}

/// Function that learns a row of another replica; without a value the row was removed. Returns the
/// row of a task as it is here then.
pub(crate) type LearnRow =
    Box<dyn Fn(StoreTable, &[u8], Option<&[u8]>) -> Option<SharedTaskRow> + Send + Sync>;

/// Function that enqueues all rows that this replica holds.
pub(crate) type WriteAll = Box<dyn Fn() + Send + Sync>;

/// Name of an endpoint: a digest.
type EndpointName = [u8; ENDPOINT_NAME_BYTES];

/// Open breakers at other replicas. Each replica reports its own each second; a report that is not
/// renewed expires.
#[derive(Default)]
struct BreakerReports {
    /// Those of the others.
    others: Mutex<HashSet<EndpointName>>,
    /// Endpoints with an open breaker at this replica, and when another request is sent to them.
    own: Mutex<HashMap<EndpointName, Instant>>,
}

impl BreakerReports {
    fn note(&self, agent: &str, endpoint: &str, open: Option<Duration>) {
        let mut own = lock(&self.own);
        let name = endpoint_name(agent, endpoint);
        match open {
            Some(open) => drop(own.insert(name, Instant::now() + open)),
            None => drop(own.remove(&name)),
        }
    }

    fn is_open_elsewhere(&self, agent: &str, endpoint: &str) -> bool {
        let others = lock(&self.others);
        !others.is_empty() && others.contains(&endpoint_name(agent, endpoint))
    }

    /// Returns the report of this replica: the names of its endpoints with an open breaker.
    fn report(&self) -> Vec<u8> {
        let mut own = lock(&self.own);
        let now = Instant::now();
        own.retain(|_, until| *until > now);
        own.keys().take(MOST_REPORTED).flatten().copied().collect()
    }
}

/// Shared state of this replica.
pub(crate) struct SharedState {
    engine: Arc<dyn StateEngine>,
    sealer: Sealer,
    /// The random name of this replica.
    replica: [u8; REPLICA_BYTES],
    /// `tasks.ttl`.
    task_ttl: Duration,
    /// `state.timeout`: no request waits longer.
    timeout: Duration,
    /// `state.content`.
    content: StateContent,
    rows: RowQueue,
    leases: lease::LeaseTable,
    /// Watched tasks, by the hash of their keys.
    watched: Mutex<HashMap<Box<str>, watch::Sender<u64>>>,
    breakers: BreakerReports,
    quotas: QuotaLedger,
    /// True once the log was read, or could not be.
    has_read_log: AtomicBool,
    /// Notified when the log is to be read from its beginning.
    log_again: Notify,
    learn: OnceLock<LearnRow>,
    write_all: OnceLock<WriteAll>,
    wakes: Mutex<Option<mpsc::Receiver<Wake>>>,
}

impl SharedState {
    /// Creates the shared state of these settings. Nothing is connected: see [`SharedState::run`].
    ///
    /// # Errors
    ///
    /// A text that names what is not usable.
    pub(crate) fn new(state: &State, sealer: Sealer, task_ttl: Duration) -> Result<Arc<Self>, String> {
        let replica: [u8; REPLICA_BYTES] = rand::random();
        let key = replica_key(&replica);
        let (engine, wakes): (Arc<dyn StateEngine>, _) = match &state.location {
            StateLocation::Servers(nodes) => {
                let (engine, wakes) = RedisEngine::new(state, nodes, key, MOST_WAKES)?;
                (engine, wakes)
            }
            StateLocation::File(_) | StateLocation::Memory => {
                let (engine, wakes) = LocalEngine::new(state, key, MOST_WAKES);
                (engine, wakes)
            }
        };
        let mut shared = Self::with(engine, wakes, replica, sealer, task_ttl);
        (shared.timeout, shared.content) = (state.timeout, state.content);
        Ok(Arc::new(shared))
    }

    fn with(
        engine: Arc<dyn StateEngine>,
        wakes: mpsc::Receiver<Wake>,
        replica: [u8; REPLICA_BYTES],
        sealer: Sealer,
        task_ttl: Duration,
    ) -> Self {
        Self {
            leases: lease::LeaseTable::default(),
            rows: RowQueue::default(),
            engine,
            sealer,
            replica,
            task_ttl,
            timeout: Duration::from_millis(500),
            content: StateContent::All,
            watched: Mutex::default(),
            breakers: BreakerReports::default(),
            quotas: QuotaLedger::default(),
            has_read_log: AtomicBool::new(false),
            log_again: Notify::new(),
            learn: OnceLock::new(),
            write_all: OnceLock::new(),
            wakes: Mutex::new(Some(wakes)),
        }
    }

    /// Sets the function that learns rows of other replicas, once.
    pub(crate) fn set_learner(&self, learn: LearnRow) {
        if self.learn.set(learn).is_err() {
            debug!("rows of other replicas have a learner already");
        }
    }

    /// Sets the function that writes all rows again, once.
    pub(crate) fn set_writer(&self, write_all: WriteAll) {
        if self.write_all.set(write_all).is_err() {
            debug!("rows of this replica have a writer already");
        }
    }

    /// Returns true while the engine answers.
    pub(crate) fn is_available(&self) -> bool {
        self.engine.is_available()
    }

    /// Returns the number of operations without a result.
    pub(crate) fn failures(&self) -> u64 {
        self.engine.failures()
    }

    /// Returns the number of rows that wait for the engine, and of leases that this replica holds.
    pub(crate) fn counts(&self) -> [usize; 2] {
        [self.rows.len(), self.leases.len()]
    }

    /// Keeps the connection, writes rows, renews leases and learns what other replicas write. Runs
    /// until it is dropped. Called once.
    pub(crate) async fn run(self: Arc<Self>) {
        tokio::join!(self.engine.keep_connected(), self.work());
    }

    /// Does all of [`SharedState::run`] but keep the connection.
    async fn work(&self) {
        let Some(wakes) = lock(&self.wakes).take() else { return };
        let rows = async { tokio::join!(self.write_rows(), self.renew_leases(), self.keep_units()) };
        tokio::join!(self.hear(wakes), rows, self.share_breakers());
    }

    /// Handles wake-ups.
    async fn hear(&self, mut wakes: mpsc::Receiver<Wake>) {
        let mut position = None;
        loop {
            let wake = tokio::select! {
                wake = tokio::time::timeout(LOG_INTERVAL, wakes.recv()) => wake,
                () = self.log_again.notified() => {
                    position = None;
                    Ok(Some(Wake::Log))
                }
            };
            match wake {
                Ok(Some(Wake::Task(hash))) => self.wake_watchers(Some(&hash)),
                Ok(Some(Wake::Log)) => self.learn_log(&mut position).await,
                Err(_) => {
                    self.learn_log(&mut position).await;
                    // Without an engine the replica serves alone.
                    if !self.engine.is_opening() {
                        self.has_read_log.store(true, Ordering::Release);
                    }
                }
                Ok(Some(Wake::Forgotten)) => {
                    info!(
                        "engine of shared state has lost its data; this replica writes again what it holds"
                    );
                    // The log of an empty engine begins anew.
                    position = None;
                    self.quotas.forget_answers();
                    if let Some(write_all) = self.write_all.get() {
                        write_all();
                    }
                }
                Ok(Some(Wake::All)) => {
                    self.wake_watchers(None);
                    self.rows.wake();
                    self.learn_log(&mut position).await;
                }
                Ok(None) => return,
            }
        }
    }

    /// Learns all rows of the log again, for a part of this replica that was not there before.
    pub(crate) fn read_log_again(&self) {
        self.log_again.notify_one();
    }

    /// Wakes the watchers of a task, or all of them.
    fn wake_watchers(&self, hash: Option<&str>) {
        let watched = lock(&self.watched);
        let woken = watched.iter().filter(|(watched, _)| hash.is_none_or(|hash| ***watched == *hash));
        woken.for_each(|(_, watcher)| watcher.send_modify(|count| *count += 1));
    }

    /// Learns the rows of the log after a position, and moves the position on.
    async fn learn_log(&self, position: &mut Option<Box<str>>) {
        while self.is_available() {
            let logged = match self.engine.logged(position.as_deref(), LOG_PAGE).await {
                Ok(logged) => logged,
                Err(error) => return debug!(%error, "failed to read log of other replicas"),
            };
            let (is_last, end) = (logged.len() < LOG_PAGE, logged.last().map(|row| row.position.clone()));
            // Entries of another key of the seal are left out; of one row the present value counts.
            let mut rows: Vec<_> = logged.iter().filter_map(|row| self.open_logged(&row.row)).collect();
            rows.retain(|(from, ..)| *from != self.replica);
            let mut seen = HashSet::new();
            rows.retain(|(_, table, key)| seen.insert((table.number(), key.clone())));
            let values = join_all(rows.iter().map(|(_, table, key)| self.table_row(*table, key))).await;
            for ((_, table, key), value) in rows.iter().zip(values) {
                match value {
                    // Expired at the engine, and perhaps alive here.
                    Ok(None) => {}
                    // An empty row is a removed one.
                    Ok(Some(value)) => {
                        drop(self.learn(
                            *table,
                            key,
                            Some(value.as_slice()).filter(|value| !value.is_empty()),
                        ));
                    }
                    // The page once more, with the next wake-up.
                    Err(error) => return debug!(%error, "failed to read row of another replica"),
                }
            }
            if end.is_some() {
                *position = end;
            }
            if is_last {
                return self.has_read_log.store(true, Ordering::Release);
            }
        }
    }

    /// Learns the row of a task that another replica has written.
    pub(crate) fn learn_task(&self, row: &[u8]) {
        drop(self.learn(StoreTable::Tasks, &[], Some(row)));
    }

    fn learn(&self, table: StoreTable, key: &[u8], value: Option<&[u8]>) -> Option<SharedTaskRow> {
        self.learn.get().and_then(|learn| learn(table, key, value))
    }

    /// Counts a request against a rate of all replicas; returns the wait if there are too many.
    /// `None` too if the engine does not answer: then the rate of this replica alone counts.
    pub(crate) async fn take_rate(
        &self,
        owner: &QuotaOwner,
        interval: Duration,
        burst: u32,
    ) -> Option<Duration> {
        let name = owner_name(owner);
        let key = StateKey::new(StateKind::Rate, name.as_bytes());
        self.engine.take(&key, SharedRate { interval, burst }).await.unwrap_or_default()
    }

    /// Reports the open breakers of this replica, and learns those of others. Runs until it is dropped.
    async fn share_breakers(&self) {
        let holder = self.holder();
        let (replicas, own) = (StateKey::new(StateKind::Replica, b"all"), report_key(&holder));
        let mut was_empty = true;
        loop {
            tokio::time::sleep(REPORT_INTERVAL).await;
            let (report, now) = (self.breakers.report(), Timestamp::now().unix_ms);
            let is_empty = report.is_empty();
            let write = async {
                if !(is_empty && was_empty) {
                    let sealed = self.sealer.seal_bytes(&own.hash, &report);
                    self.engine.set(&own, &sealed, REPORT_TTL).await?;
                }
                self.engine.index(&replicas, &holder, now, INDEX_TTL).await?;
                self.engine.indexed(&replicas, MOST_REPLICAS).await
            };
            let mut others = HashSet::new();
            if let Ok(replicas) = write.await {
                was_empty = is_empty;
                let keys: Vec<_> =
                    replicas.iter().filter(|name| **name != holder).map(|name| report_key(name)).collect();
                let reports = join_all(keys.iter().map(|key| self.engine.get(key))).await;
                for (key, report) in keys.iter().zip(reports) {
                    let sealed = report.ok().flatten();
                    let report = sealed.and_then(|sealed| self.sealer.open_bytes(&key.hash, &sealed));
                    let report = report.unwrap_or_default();
                    others.extend(report.as_chunks::<ENDPOINT_NAME_BYTES>().0.iter().take(MOST_REPORTED));
                }
            }
            *lock(&self.breakers.others) = others;
        }
    }

    /// Returns true once the rows of other replicas are here, or the engine has not given them.
    pub(crate) fn has_started(&self) -> bool {
        self.has_read_log.load(Ordering::Acquire)
    }

    /// Claims a push for a client: it is sent once among all replicas. `push` is its digest.
    pub(crate) async fn claim_push(&self, push: &[u8]) -> bool {
        let key = push_key(push);
        let claimed = self.engine.set_if_absent(&key, &self.replica, PUSH_TTL).await;
        !matches!(claimed, Ok(Some(_)))
    }

    /// Frees the claim of a push that the client has not accepted.
    pub(crate) async fn release_push(&self, push: &[u8]) {
        let released = self.engine.compare_and_set(&push_key(push), &self.replica, None, PUSH_TTL).await;
        debug!(is_released = released.unwrap_or_default(), "push may be sent again");
    }

    /// Claims the answer to a question of a task: it is sent once among all replicas.
    pub(crate) async fn claim_answer(&self, task: &[u8], turn: [u8; 16], digest: [u8; 16]) -> SharedClaim {
        let (key, value) = self.claim(task, turn, digest, SENDING);
        match self.engine.set_if_absent(&key, &value, SENDING_TTL).await {
            Ok(None) => SharedClaim::Ours,
            Ok(Some(present)) => self.taken(&key, present).await,
            Err(error) => {
                debug!(%error, "failed to claim answer among replicas");
                SharedClaim::Unknown
            }
        }
    }

    async fn taken(&self, key: &StateKey, present: Vec<u8>) -> SharedClaim {
        let Some((digest, state, replica)) = self.open_claim(key, &present) else {
            return SharedClaim::Unknown;
        };
        let progress = match state {
            // This replica knows of no such answer any more: it failed, or another process had the name.
            SENDING if replica == self.replica => ClaimProgress::Abandoned(present),
            SENDING if self.is_alive(&replica).await => ClaimProgress::Sending,
            SENDING => ClaimProgress::Abandoned(present),
            _ => ClaimProgress::Sent,
        };
        SharedClaim::Taken { digest, progress }
    }

    /// Returns the random name of this replica.
    pub(crate) fn replica(&self) -> &[u8; REPLICA_BYTES] {
        &self.replica
    }

    /// Returns false if a replica gives no sign of life; true if the engine does not answer.
    pub(crate) async fn is_alive(&self, replica: &[u8; REPLICA_BYTES]) -> bool {
        !matches!(self.engine.get(&replica_key(replica)).await, Ok(None))
    }

    /// Takes over the claim of a replica that has ended. Returns true if this replica must send the
    /// answer now.
    pub(crate) async fn take_over_claim(
        &self,
        task: &[u8],
        turn: [u8; 16],
        digest: [u8; 16],
        abandoned: &[u8],
    ) -> bool {
        let (key, value) = self.claim(task, turn, digest, SENDING);
        let taken = self.engine.compare_and_set(&key, abandoned, Some(&value), SENDING_TTL).await;
        // Without an answer the agent has told already that the question is open.
        taken.unwrap_or(true)
    }

    /// Records the end of sending an answer: it was sent, or the claim is free again.
    pub(crate) async fn settle_answer(&self, task: &[u8], turn: [u8; 16], digest: [u8; 16], is_sent: bool) {
        let (key, sending) = self.claim(task, turn, digest, SENDING);
        let (_, sent) = self.claim(task, turn, digest, SENT);
        let value = is_sent.then_some(sent.as_slice());
        if let Err(error) = self.engine.compare_and_set(&key, &sending, value, SENT_TTL).await {
            debug!(%error, "failed to settle claim of answer");
        }
    }

    /// Returns true if this replica is to cancel the task at its agent: no other one has begun to.
    pub(crate) async fn claim_cancel(&self, task: &[u8]) -> bool {
        let key = StateKey::new(StateKind::Claim, &[b"cancel\0", task].concat());
        let claimed = self.engine.set_if_absent(&key, &self.replica, CANCEL_TTL).await;
        !matches!(claimed, Ok(Some(other)) if other != self.replica)
    }

    /// Returns key and value of the claim of an answer.
    fn claim(&self, task: &[u8], turn: [u8; 16], digest: [u8; 16], state: u8) -> (StateKey, Vec<u8>) {
        let key = StateKey::new(StateKind::Claim, &[b"answer\0", &turn[..], task].concat());
        let value = [&digest[..], &[state], &self.replica].concat();
        let sealed = self.sealer.seal_bytes(&key.hash, &value);
        (key, sealed)
    }

    fn open_claim(&self, key: &StateKey, sealed: &[u8]) -> Option<([u8; 16], u8, [u8; REPLICA_BYTES])> {
        let value = self.sealer.open_bytes(&key.hash, sealed)?;
        let (digest, rest) = value.split_first_chunk::<16>()?;
        let (state, replica) = rest.split_first()?;
        Some((*digest, *state, replica.try_into().ok()?))
    }
}

/// State of a claim: the answer is being sent, or was sent.
const SENDING: u8 = 0;
const SENT: u8 = 1;

fn push_key(push: &[u8]) -> StateKey {
    StateKey::new(StateKind::Claim, &[b"push\0", push].concat())
}

fn owner_name(owner: &QuotaOwner) -> String {
    match owner {
        QuotaOwner::Caller(name) => format!("caller\0{name}"),
        QuotaOwner::Address(address) => format!("address\0{address}"),
        QuotaOwner::Agent(name) => format!("agent\0{name}"),
    }
}

fn endpoint_name(agent: &str, endpoint: &str) -> EndpointName {
    let name = format!("breaker\0{agent}\0{endpoint}");
    Sha256::digest(name).first_chunk().copied().unwrap_or_default()
}

/// Returns the key of the report of a replica.
fn report_key(replica: &str) -> StateKey {
    StateKey::new(StateKind::Replica, format!("breakers\0{replica}").as_bytes())
}

fn replica_key(replica: &[u8; REPLICA_BYTES]) -> StateKey {
    StateKey::new(StateKind::Replica, replica)
}

/// The key of a task at the engine, by the key of its row.
fn task_key(row_key: &[u8]) -> StateKey {
    StateKey::new(StateKind::Task, row_key)
}
