//! What of the tasks is kept on disk, if anything: every task that a client holds a handle of, and which questions were answered.
//!
//! Without a data directory nothing is kept and nothing costs anything. Not here: the disk (see `store`), the form (see `record`).

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use tracing::{debug, info, warn};

use super::entry::TaskEntry;
use super::record::{key_of, record_key};
use super::store::{Store, StoreProblem, StoreTable};
use super::{EntryKey, Tasks, Timestamp};

/// Keeps tasks.
pub struct TaskJournal {
    /// Empty where nothing is kept, and while another process still has the file.
    store: ArcSwapOption<Store>,
    /// Artifacts of more bytes stay at the agent.
    most: usize,
}

impl TaskJournal {
    /// Keeps nothing yet; when it does, then without artifacts of more than `most` bytes.
    pub fn new(most: usize) -> Self {
        Self { store: ArcSwapOption::empty(), most }
    }

    /// Keeps tasks in this store from now on, and in no other. Returns whether all that was handed to the store before is safe there,
    /// if there was one; that one is closed then. Waits for its disk.
    pub fn attach_store(&self, store: Option<Arc<Store>>) -> Option<bool> {
        let before = self.store.swap(store)?;
        let closed = before.close();
        if let Err(problem) = &closed {
            warn!(%problem, "not everything was kept on disk");
        }
        Some(closed.is_ok())
    }

    /// Whether anything is kept.
    pub fn is_enabled(&self) -> bool {
        self.store.load().is_some()
    }

    /// Whether the disk does not take what is to be kept.
    pub fn is_failing(&self) -> bool {
        self.store.load().as_ref().is_some_and(|store| store.is_failing())
    }

    /// How many transactions failed.
    pub fn failures(&self) -> u64 {
        self.store.load().as_ref().map_or(0, |store| store.failures())
    }

    /// Waits until all that was handed over is safe; says whether it is, or nothing is kept at all.
    pub async fn is_safe(&self) -> bool {
        match self.store.load_full() {
            Some(store) => store.flush().await.is_ok(),
            None => true,
        }
    }

    /// Keeps what clients came to hold while there was no store, or another one. Waits where too much is to be written at once.
    pub async fn catch_up_slowly(&self, tasks: &Tasks, now: Timestamp) {
        let mut entries = Vec::new();
        tasks.for_each(now.instant, |entry| entries.push(entry.clone()));
        for entry in entries.iter().filter(|entry| entry.is_acknowledged()) {
            if self.write(entry) == Err(StoreProblem::Full) && self.is_safe().await {
                self.persist(entry);
            }
        }
    }

    /// Keeps what clients came to hold while there was no store.
    pub fn flush(&self, tasks: &Tasks, now: Timestamp) {
        tasks.for_each(now.instant, |entry| self.persist(entry));
    }

    /// Keeps a task that a client is about to hold a handle of, or to be told of, before it is. Returns whether the
    /// disk has it, if tasks are kept at all.
    pub async fn acknowledge(&self, entry: &TaskEntry) -> bool {
        entry.acknowledge();
        let put = self.write(entry);
        let Some(store) = self.store.load_full() else { return true };
        let kept = match put {
            Err(StoreProblem::Closed) => put,
            _ => store.flush().await,
        };
        if let Err(problem) = &kept {
            // The client is served all the same: the agent has the task. The store warns of its disk.
            debug!(%problem, agent = %entry.agent(), "a task could not be kept on disk");
        }
        kept.is_ok()
    }

    /// Notes what is new of a task that is kept; it is on disk a moment later.
    pub fn persist(&self, entry: &TaskEntry) {
        if entry.is_acknowledged() {
            // Told by `put`.
            self.write(entry).unwrap_or_default();
        }
    }

    fn write(&self, entry: &TaskEntry) -> Result<(), StoreProblem> {
        let done = self.hand(|store| {
            let Some((key, value)) = entry.to_record(self.most) else { return Ok(()) };
            store.put(StoreTable::Tasks, key, value)?;
            if entry.is_named() {
                store.remove(StoreTable::Tasks, record_key(entry.agent(), None, entry.local()))?;
            }
            Ok(())
        });
        match &done {
            // The store warns of its disk, not of each task.
            Err(problem) if self.is_failing() => {
                debug!(%problem, agent = %entry.agent(), "a task is not kept on disk");
            }
            Err(problem) => warn!(%problem, agent = %entry.agent(), "a task is not kept on disk"),
            Ok(()) => {}
        }
        done
    }

    /// Hands something to the store, if there is one; once more, if another store took its place meanwhile.
    fn hand(&self, change: impl Fn(&Store) -> Result<(), StoreProblem>) -> Result<(), StoreProblem> {
        let Some(store) = self.store.load_full() else { return Ok(()) };
        match (change(&store), self.store.load_full()) {
            (Err(StoreProblem::Closed), Some(now)) if !Arc::ptr_eq(&store, &now) => change(&now),
            (done, _) => done,
        }
    }

    /// Drops a task that nobody can ask for any more.
    pub fn forget(&self, entry: &TaskEntry) {
        if !entry.is_acknowledged() {
            return;
        }
        let key = record_key(entry.agent(), entry.task_id().as_deref(), entry.local());
        if let Err(problem) = self.hand(|store| store.remove(StoreTable::Tasks, key.clone())) {
            warn!(%problem, agent = %entry.agent(), "a forgotten task stays on disk");
        }
    }

    /// Drops from the disk what the map does not know any more: what had to go for room is not told one by one. Reads the whole
    /// table: not for an async thread.
    pub fn prune(&self, tasks: &Tasks, now: Timestamp) {
        let Some(store) = self.store.load_full() else { return };
        let mut gone = Vec::new();
        let read = store.load(StoreTable::Tasks, |key, _| {
            let is_known = key_of(key).is_some_and(|key| tasks.get_untouched(&key, now.instant).is_some());
            if !is_known {
                gone.push(key.to_vec());
            }
        });
        if let Err(problem) = read {
            warn!(%problem, "kept tasks cannot be read");
        }
        for key in gone {
            if let Err(problem) = store.remove(StoreTable::Tasks, key) {
                return warn!(%problem, "forgotten tasks stay on disk");
            }
        }
    }

    /// Takes in a row that another process would keep, which works with the same tasks. Returns the task. Artifacts may have `limit`
    /// bytes.
    pub fn learn(&self, tasks: &Tasks, value: &[u8], limit: usize, now: Timestamp) -> Option<Arc<TaskEntry>> {
        let (keys, other) = TaskEntry::from_record(value, (limit, true), now)?;
        let known = keys.iter().find_map(|key| tasks.find(key, now.instant));
        let entry = match known {
            Some(entry) => {
                entry.learn(other, now);
                entry
            }
            None => tasks.admit(keys.first()?.clone(), || other, now.instant).ok()?.0,
        };
        keys.into_iter().for_each(|key: EntryKey| drop(tasks.add_alias(key, &entry, now.instant)));
        entry.acknowledge();
        self.persist(&entry);
        Some(entry)
    }

    /// Takes all kept tasks back into the map; returns those that are there now. Artifacts may have `limit` bytes each task. Calls
    /// that no agent has named are over, unless another process still waits for that.
    pub fn load(&self, tasks: &Tasks, limit: (usize, bool), now: Timestamp) -> Vec<Arc<TaskEntry>> {
        let Some(store) = self.store.load_full() else { return Vec::new() };
        let (mut taken, mut unreadable, mut full) = (Vec::new(), 0_usize, 0_usize);
        let read = store.load(StoreTable::Tasks, |_, value| {
            let Some((keys, entry)) = TaskEntry::from_record(value, limit, now) else {
                unreadable += 1;
                return;
            };
            let mut keys = keys.into_iter();
            let Some(first) = keys.next() else { return };
            match tasks.admit(first, || entry, now.instant) {
                Ok((entry, _)) => {
                    keys.for_each(|key| drop(tasks.add_alias(key, &entry, now.instant)));
                    entry.acknowledge();
                    taken.push(entry);
                }
                Err(_) => full += 1,
            }
        });
        if let Err(problem) = read {
            warn!(%problem, "kept tasks cannot be read");
        }
        info!(tasks = taken.len(), unreadable, full, "kept tasks are back");
        taken
    }

    /// Keeps what became of a session, and waits until that is safe; no value: nothing is to be kept of it any more.
    pub async fn keep_session(&self, key: Vec<u8>, value: Option<Vec<u8>>) {
        self.note_session(key, value);
        if !self.is_safe().await {
            debug!("what became of a session could not be kept on disk");
        }
    }

    /// The same, without waiting.
    pub fn note_session(&self, key: Vec<u8>, value: Option<Vec<u8>>) {
        let done = self.hand(|store| match &value {
            Some(value) => store.put(StoreTable::Sessions, key.clone(), value.clone()),
            None => store.remove(StoreTable::Sessions, key.clone()),
        });
        match done {
            Err(problem) if self.is_failing() => debug!(%problem, "a session is not kept on disk"),
            Err(problem) => warn!(%problem, "a session is not kept on disk"),
            Ok(()) => {}
        }
    }

    /// Shows what is kept of each session, and drops what `is_of_use` says no to. Reads the whole table: not for an async thread.
    pub fn sessions(&self, mut is_of_use: impl FnMut(&[u8], &[u8]) -> bool) {
        let Some(store) = self.store.load_full() else { return };
        let mut over = Vec::new();
        let read = store.load(StoreTable::Sessions, |key, value| {
            if !is_of_use(key, value) {
                over.push(key.to_vec());
            }
        });
        if let Err(problem) = read {
            warn!(%problem, "kept sessions cannot be read");
        }
        over.into_iter().for_each(|key| self.note_session(key, None));
    }

    /// Writes what waits, and lets go of the file.
    pub fn close(&self) {
        if let Some(Err(problem)) = self.store.load_full().map(|store| store.close()) {
            warn!(%problem, "not everything was kept on disk");
        }
    }
}
