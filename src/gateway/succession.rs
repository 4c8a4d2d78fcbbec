//! Takeover between two processes: which one persists, and the messages between them.
//!
//! The process that ends gives its store up and sends each row to the successor instead, which
//! applies and persists it. The successor reports the sessions that were ended at it. See also
//! `server::upgrade` for the connection between the two and for the sockets of clients.

use std::io;
use std::os::unix::net::UnixStream as BlockingStream;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::io::{AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::OwnedReadHalf;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use tracing::{debug, info, warn};

use super::Gateway;
use crate::agents::{Directory, EndpointSharing as _};
use crate::batch::BatchService;
use crate::config::Settings;
use crate::follow::TaskFollower;
use crate::http_edge::DrainState;
use crate::memory::MemoryBank;
use crate::sessions::{Predecessor, SessionStore};
use crate::shared_state::SharedState;
use crate::sync::lock;
use crate::tasks::store::{RowFrame, Store, StoreProblem, StoreTable, SuccessorMessage};
use crate::tasks::{RestorePolicy, SharedRows as _, SharedTaskRow, TaskEntry, TaskJournal, Tasks, Timestamp};
use crate::telemetry::metrics::{Metrics, TaskCounts};

/// Longest wait of a row for the store to be opened; then the predecessor is notified that it is
/// not persisted.
const STORE_OPEN_TIMEOUT: Duration = Duration::from_secs(8);
/// Pause between two checks whether the store is open.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Affinities that are passed to other replicas at once.
const MOST_AFFINITIES: usize = 1000;
/// Interval of the attempts to open a store that another process owns.
const STORE_RETRY_INTERVAL: Duration = Duration::from_millis(50);

/// Settings of the store.
pub(super) struct SuccessionSettings {
    data_dir: Option<PathBuf>,
    /// Most bytes of the artifacts of one task.
    artifact_bytes: usize,
}

impl SuccessionSettings {
    pub(super) fn new(settings: &Settings) -> Self {
        Self { data_dir: settings.tasks.data_dir.clone(), artifact_bytes: settings.limits.artifacts }
    }
}

/// The tasks and sessions of this process on disk, and their way from one process to the next.
pub(super) struct Succession {
    pub(super) tasks: Tasks,
    pub(super) journal: Arc<TaskJournal>,
    pub(super) followers: Arc<TaskFollower>,
    /// The agents of the present configuration.
    pub(super) directory: ArcSwap<Directory>,
    pub(super) sessions: Arc<SessionStore>,
    pub(super) memory: Option<Arc<MemoryBank>>,
    /// The batches of the present configuration.
    pub(super) batches: Mutex<Weak<BatchService>>,
    pub(super) predecessor: Arc<Predecessor>,
    pub(super) drain: Arc<DrainState>,
    pub(super) settings: SuccessionSettings,
    /// Tasks that were live when the last process ended, until they have followers.
    pub(super) unfollowed: Mutex<Vec<Arc<TaskEntry>>>,
}

impl Succession {
    /// Passes rows to other replicas, and learns theirs.
    pub(super) fn share(self: &Arc<Self>, shared: &Arc<SharedState>) {
        self.journal.share(shared.clone());
        let succession = Arc::downgrade(self);
        let learn = move |table: StoreTable, key: &[u8], value: Option<&[u8]>| {
            succession.upgrade().and_then(|succession| succession.learn_shared(table, key, value))
        };
        shared.set_learner(Box::new(learn));
        let (succession, to) = (Arc::downgrade(self), Arc::downgrade(shared));
        shared.set_writer(Box::new(move || {
            let Some((succession, shared)) = succession.upgrade().zip(to.upgrade()) else { return };
            succession.sessions.note_all();
            succession.journal.flush(&succession.tasks, Timestamp::now());
            if let Some(memory) = succession.memory.clone() {
                drop(tokio::spawn(async move { memory.catch_up().await }));
            }
            if let Some(batches) = succession.batches() {
                batches.share_all();
            }
            drop(tokio::spawn(share_affinities(succession.directory.load_full(), shared)));
        }));
    }

    /// Returns the batches of the present configuration.
    pub(super) fn batches(&self) -> Option<Arc<BatchService>> {
        lock(&self.batches).upgrade()
    }

    /// Sets the batches of the present configuration. Those that other replicas have are learned if there
    /// were none before.
    pub(super) fn set_batches(&self, batches: Option<&Arc<BatchService>>) {
        let before =
            std::mem::replace(&mut *lock(&self.batches), batches.map(Arc::downgrade).unwrap_or_default());
        if before.upgrade().is_none()
            && let Some(shared) = batches.and_then(|batches| batches.shared())
        {
            shared.read_log_again();
        }
    }

    /// Applies a row of another replica. Returns the row of a task as it is here then.
    fn learn_shared(&self, table: StoreTable, key: &[u8], value: Option<&[u8]>) -> Option<SharedTaskRow> {
        let now = Timestamp::now();
        match (table, value) {
            (StoreTable::Tasks, Some(value)) => {
                let entry = self.journal.learn(&self.tasks, value, self.settings.artifact_bytes, now)?;
                return self.journal.shared_row(&entry).map(|(_, row)| row);
            }
            (StoreTable::Sessions, value) => self.sessions.learn(key, value),
            (StoreTable::Memory, value) => {
                if self.memory.as_ref().is_some_and(|memory| !memory.learn_shared(key, value, now.unix_ms)) {
                    debug!("failed to learn memory of another replica: no room, or not readable");
                }
            }
            (StoreTable::Batches, value) => {
                if self.batches().is_some_and(|batches| !batches.learn_shared(key, value, now)) {
                    debug!("failed to learn batch of another replica: no room, or not readable");
                }
            }
            (StoreTable::Tasks | StoreTable::Turns, _) => {}
        }
        None
    }

    /// Returns true if writes to the store fail at present.
    pub(super) fn is_store_failing(&self) -> bool {
        self.journal.is_failing()
    }

    /// Writes all pending changes, and accepts none afterwards.
    pub(super) fn close_store(&self) {
        self.journal.close();
    }

    /// Removes what the store no longer needs. Waits for the disk.
    pub(super) fn prune_store(&self) {
        self.journal.prune(&self.tasks, Timestamp::now());
        self.sessions.prune();
    }

    /// Updates the metrics of the task map.
    pub(super) fn count_tasks(&self, metrics: &Metrics) {
        let Self { tasks, followers, journal, .. } = self;
        metrics.tasks.set(TaskCounts {
            tasks: tasks.len(),
            bytes: tasks.bytes(),
            compressed: tasks.compressed(),
            polled: followers.polled(),
            followed: followers.running(),
            evicted: tasks.take_evicted(),
            store_failures: journal.failures(),
            is_store_failing: journal.is_failing(),
        });
    }

    /// Loads the content of a store, and persists to it from now on. Waits for the disk.
    pub(super) fn adopt_store(&self, store: Store) {
        let Self { tasks, journal, .. } = self;
        journal.attach_store(Some(Arc::new(store)));
        let policy = RestorePolicy {
            artifact_bytes: self.settings.artifact_bytes,
            may_be_named: self.predecessor.lives(),
        };
        let loaded = journal.load(tasks, policy, Timestamp::now());
        self.sessions.load();
        journal.flush(tasks, Timestamp::now());
        if let Some(memory) = &self.memory {
            memory.load(Timestamp::now().unix_ms);
        }
        self.directory.load().own_cards(true);
        loaded.into_iter().for_each(|entry| self.follow_later(entry));
    }

    /// Queues a task of another process to be followed when that process has ended.
    fn follow_later(&self, entry: Arc<TaskEntry>) {
        let mut unfollowed = lock(&self.unfollowed);
        if !unfollowed.iter().any(|known| Arc::ptr_eq(known, &entry)) {
            unfollowed.push(entry);
        }
    }

    /// Waits for the store of the predecessor.
    async fn take_over_store(self: &Arc<Self>) {
        let is_stored = self.journal.is_enabled();
        let Some(dir) = self.settings.data_dir.clone().filter(|_| !is_stored) else { return };
        loop {
            let dir = dir.clone();
            let opened = tokio::task::spawn_blocking(move || Store::open(&dir)).await;
            match opened {
                Ok(Ok(store)) => return self.adopt_store_aside(store).await,
                Ok(Err(StoreProblem::Owned { .. })) => sleep(STORE_RETRY_INTERVAL).await,
                Ok(Err(problem)) => {
                    return warn!(error = %problem, "failed to open store, tasks are not persisted");
                }
                Err(error) => return warn!(%error, "failed to open store, tasks are not persisted"),
            }
        }
    }

    async fn adopt_store_aside(self: &Arc<Self>, store: Store) {
        let succession = self.clone();
        if let Err(error) = tokio::task::spawn_blocking(move || succession.adopt_store(store)).await {
            warn!(%error, "failed to load all tasks from store");
        }
    }

    /// Starts the followers of the tasks that were live when the last process ended, once their
    /// agents are known.
    pub(super) async fn start_followers(self: Arc<Self>) {
        self.take_over_store().await;
        // Until then the predecessor follows the tasks and sends their changes.
        self.predecessor.ended().await;
        let Self { directory, followers, journal, .. } = &*self;
        let mut fetched = directory.load().changes();
        let mut unfollowed = std::mem::take(&mut *lock(&self.unfollowed));
        for entry in &unfollowed {
            entry.end_unnamed(Timestamp::now());
            journal.persist(entry);
        }
        unfollowed.retain(|entry| !entry.is_finished());
        while !unfollowed.is_empty() {
            let present = directory.load_full();
            unfollowed.retain(|entry| match present.find(entry.agent()).map(|agent| agent.known()) {
                Some(Some(known)) => {
                    followers.ensure_followed(entry, &known);
                    false
                }
                Some(None) => true,
                None => false,
            });
            if fetched.changed().await.is_err() {
                return;
            }
        }
    }

    /// Sends all state of this process, for a successor that cannot read it from disk.
    async fn send_all(self: Arc<Self>) {
        self.sessions.note_all();
        self.journal.catch_up_slowly(&self.tasks, Timestamp::now()).await;
        if let Some(memory) = &self.memory {
            memory.catch_up().await;
        }
    }

    async fn receive_all(&self, from: OwnedReadHalf) {
        let mut from = BufReader::new(from);
        loop {
            match RowFrame::read(&mut from).await {
                Ok(Some(RowFrame::Row(table, key, value))) => self.learn(table, &key, value.as_deref()),
                Ok(Some(RowFrame::End)) => {
                    let kept = SuccessorMessage::Kept(self.has_kept().await);
                    if !self.predecessor.send(kept).await {
                        return;
                    }
                }
                Ok(None) => return,
                Err(error) => return warn!(%error, "failed to read from predecessor"),
            }
        }
    }

    fn learn(&self, table: StoreTable, key: &[u8], value: Option<&[u8]>) {
        match (table, value) {
            (StoreTable::Tasks, Some(value)) => {
                let limit = self.settings.artifact_bytes;
                match self.journal.learn(&self.tasks, value, limit, Timestamp::now()) {
                    Some(entry) => self.follow_later(entry),
                    None => warn!("failed to take over task of predecessor: no room, or not readable"),
                }
            }
            (StoreTable::Sessions, value) => self.sessions.learn(key, value),
            (StoreTable::Memory, value) => {
                let now = Timestamp::now().unix_ms;
                if self.memory.as_ref().is_some_and(|memory| !memory.learn(key, value, now)) {
                    warn!("failed to take over memory of predecessor: no room, or not readable");
                }
            }
            // A removed row: of a task that got an id, or one that this process removes in its own
            // time. Batches come from the engine of shared state, if at all.
            (StoreTable::Tasks | StoreTable::Turns | StoreTable::Batches, _) => {}
        }
    }

    /// Returns true if all received rows are safe on disk, or if there is no data directory.
    async fn has_kept(&self) -> bool {
        let deadline = Instant::now() + STORE_OPEN_TIMEOUT;
        while self.settings.data_dir.is_some() && !self.journal.is_enabled() {
            if Instant::now() >= deadline {
                return false;
            }
            sleep(POLL_INTERVAL).await;
        }
        self.journal.is_safe().await
    }
}

/// Passes the endpoints of all tasks and conversations to other replicas again.
async fn share_affinities(directory: Arc<Directory>, shared: Arc<SharedState>) {
    for agent in directory.agents() {
        for some in agent.affinities().chunks(MOST_AFFINITIES) {
            some.iter().for_each(|(kept, endpoint)| shared.remember(*kept, endpoint));
            // So many at once: the rows that wait for the engine are bounded.
            if !shared.flush_rows().await {
                return;
            }
        }
    }
}

impl Gateway {
    /// Records that another process works with the same tasks until [`Gateway::follow_predecessor`] has
    /// returned.
    pub(crate) fn expect_predecessor(&self) {
        self.succession().predecessor.set_lives(true);
    }

    /// Applies the changes that the process at the other end sends, until that process ends.
    pub(crate) async fn follow_predecessor(&self, stream: UnixStream) {
        let (from, mut to) = stream.into_split();
        let succession = self.succession();
        let predecessor = &succession.predecessor;
        let Some(mut messages) = predecessor.take_messages() else {
            return warn!("rejected second predecessor");
        };
        let send = async {
            while let Some(message) = messages.recv().await {
                if to.write_all(&message.to_bytes()).await.is_err() {
                    break;
                }
            }
            // Continues until the other half ends.
            std::future::pending::<()>().await
        };
        tokio::select! {
            () = succession.receive_all(from) => {}
            () = send => {}
        }
        info!("predecessor has ended");
        predecessor.set_lives(false);
    }

    /// Returns true if changes can be persisted, or if there is no data directory.
    pub(crate) fn has_store(&self) -> bool {
        let succession = self.succession();
        succession.settings.data_dir.is_none() || succession.journal.is_enabled()
    }

    /// Notifies the predecessor that the listeners of this process accept connections.
    pub(crate) fn notify_serving(&self) {
        self.succession().predecessor.notify(SuccessorMessage::Serves);
    }

    /// Sends all persisted state to the process at the other end, from now on. The data directory
    /// is free for that process when `greet` is called, and nothing is sent on the stream before.
    /// Returns a receiver that turns true when that process serves. Waits for the disk.
    ///
    /// # Errors
    ///
    /// The I/O error; the caller must then call [`Gateway::resume_store`].
    pub(crate) fn hand_over_store(
        &self,
        stream: BlockingStream,
        greet: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<watch::Receiver<bool>> {
        let (serves, heard) = watch::channel(false);
        let succession = Arc::downgrade(self.succession());
        let link = Store::over(stream, move |message| match message {
            SuccessorMessage::Serves => drop(serves.send_replace(true)),
            SuccessorMessage::Ended(session, expires) => end_session(&succession, session, expires),
            SuccessorMessage::Kept(_) => {}
        });
        let link = Arc::new(link.map_err(io::Error::other)?);
        let mut is_on_disk = false;
        let Succession { journal, directory, drain, .. } = &**self.succession();
        link.while_held(|| {
            is_on_disk = journal.attach_store(Some(link.clone())) == Some(true);
            directory.load().own_cards(false);
            greet()
        })?;
        drain.hand_over();
        if !is_on_disk {
            tokio::spawn(self.succession().clone().send_all());
        }
        Ok(heard)
    }

    /// Persists changes in this process again: no process has taken over.
    pub(crate) async fn resume_store(&self) {
        let journal = self.succession().journal.clone();
        let closed = tokio::task::spawn_blocking(move || journal.attach_store(None)).await;
        debug!(?closed, "no process has taken over, this process persists again");
        let succession = self.succession().clone();
        tokio::spawn(async move { succession.take_over_store().await });
    }
}

fn end_session(succession: &Weak<Succession>, session: [u8; 16], expires: u64) {
    if let Some(succession) = succession.upgrade() {
        succession.sessions.revoke(session, expires);
    }
}
