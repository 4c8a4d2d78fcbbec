//! Persistence of tasks, if it is on: every task that a client holds a handle of, and the questions
//! that were answered.
//!
//! Without a data directory nothing is kept and nothing costs anything. See also `store` (the disk)
//! and `record` (the format).

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use tracing::{debug, info, warn};

use super::entry::TaskEntry;
use super::record::{RestorePolicy, key_of, record_key};
use super::store::{Store, StoreProblem, StoreTable};
use super::{EntryKey, Tasks, Timestamp};

/// Persists tasks.
pub struct TaskJournal {
    /// Empty if nothing is kept, and while another process still has the file.
    store: ArcSwapOption<Store>,
    /// Artifacts of more bytes stay at the agent.
    most: usize,
}

impl TaskJournal {
    /// Returns a journal without a store; artifacts of more than `most` bytes will not be kept.
    pub fn new(most: usize) -> Self {
        Self { store: ArcSwapOption::empty(), most }
    }

    /// Replaces the store, and closes the one before. Returns true if everything that was handed to
    /// that one is durable, `None` if there was none. Waits for its disk.
    pub fn attach_store(&self, store: Option<Arc<Store>>) -> Option<bool> {
        let before = self.store.swap(store)?;
        let closed = before.close();
        if let Err(problem) = &closed {
            warn!(error = %problem, "failed to persist all tasks");
        }
        Some(closed.is_ok())
    }

    /// Returns true if tasks are persisted.
    pub fn is_enabled(&self) -> bool {
        self.store.load().is_some()
    }

    /// Returns true if the last transaction failed.
    pub fn is_failing(&self) -> bool {
        self.store.load().as_ref().is_some_and(|store| store.is_failing())
    }

    /// Returns the number of transactions that failed.
    pub fn failures(&self) -> u64 {
        self.store.load().as_ref().map_or(0, |store| store.failures())
    }

    /// Waits until everything that was handed over is durable; returns true if it is, or if nothing
    /// is kept at all.
    pub async fn is_safe(&self) -> bool {
        match self.store.load_full() {
            Some(store) => store.flush().await.is_ok(),
            None => true,
        }
    }

    /// Persists the tasks of which clients got handles while there was no store, or another one.
    /// Waits while the write queue is full.
    pub async fn catch_up_slowly(&self, tasks: &Tasks, now: Timestamp) {
        let mut entries = Vec::new();
        tasks.for_each(now.instant, |entry| entries.push(entry.clone()));
        for entry in entries.iter().filter(|entry| entry.is_acknowledged()) {
            if self.write(entry) == Err(StoreProblem::Full) && self.is_safe().await {
                self.persist(entry);
            }
        }
    }

    /// Persists the tasks of which clients got handles while there was no store.
    pub fn flush(&self, tasks: &Tasks, now: Timestamp) {
        tasks.for_each(now.instant, |entry| self.persist(entry));
    }

    /// Persists a task before a client gets a handle of it or is notified of it. Returns true if
    /// the task is on disk, or if tasks are not kept at all.
    pub async fn acknowledge(&self, entry: &TaskEntry) -> bool {
        entry.acknowledge();
        let put = self.write(entry);
        let Some(store) = self.store.load_full() else { return true };
        let kept = match put {
            Err(StoreProblem::Closed) => put,
            _ => store.flush().await,
        };
        if let Err(problem) = &kept {
            // The client is served all the same: the agent has the task. The store warns of its
            // disk.
            debug!(error = %problem, agent = %entry.agent(), "failed to flush task");
        }
        kept.is_ok()
    }

    /// Puts the changes of a persisted task into the write queue.
    pub fn persist(&self, entry: &TaskEntry) {
        if entry.is_acknowledged() {
            // `write` logs the failure.
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
                debug!(error = %problem, agent = %entry.agent(), "failed to persist task");
            }
            Err(problem) => warn!(error = %problem, agent = %entry.agent(), "failed to persist task"),
            Ok(()) => {}
        }
        done
    }

    /// Applies a change to the store, if there is one; once more, if another store took its place
    /// meanwhile.
    fn hand(&self, change: impl Fn(&Store) -> Result<(), StoreProblem>) -> Result<(), StoreProblem> {
        let Some(store) = self.store.load_full() else { return Ok(()) };
        match (change(&store), self.store.load_full()) {
            (Err(StoreProblem::Closed), Some(now)) if !Arc::ptr_eq(&store, &now) => change(&now),
            (done, _) => done,
        }
    }

    /// Removes a task that no client can ask for any more.
    pub fn forget(&self, entry: &TaskEntry) {
        if !entry.is_acknowledged() {
            return;
        }
        let key = record_key(entry.agent(), entry.task_id().as_deref(), entry.local());
        if let Err(problem) = self.hand(|store| store.remove(StoreTable::Tasks, key.clone())) {
            warn!(error = %problem, agent = %entry.agent(), "failed to remove task from store");
        }
    }

    /// Removes rows that the map does not know any more: evictions for room are not reported one by
    /// one. Reads the whole table: not for an async thread.
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
            warn!(error = %problem, "failed to read persisted tasks");
        }
        for key in gone {
            if let Err(problem) = store.remove(StoreTable::Tasks, key) {
                return warn!(error = %problem, "failed to remove tasks from store");
            }
        }
    }

    /// Adds a row of another process that works with the same tasks. Returns the task. Artifacts
    /// may have `limit` bytes.
    pub fn learn(&self, tasks: &Tasks, value: &[u8], limit: usize, now: Timestamp) -> Option<Arc<TaskEntry>> {
        let policy = RestorePolicy { artifact_bytes: limit, may_be_named: true };
        let (keys, other) = TaskEntry::from_record(value, policy, now)?;
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

    /// Loads all persisted tasks into the map; returns those that are there now. Calls that no
    /// agent has named are over, unless another process still waits for the name.
    pub fn load(&self, tasks: &Tasks, policy: RestorePolicy, now: Timestamp) -> Vec<Arc<TaskEntry>> {
        let Some(store) = self.store.load_full() else { return Vec::new() };
        let (mut taken, mut unreadable, mut full) = (Vec::new(), 0_usize, 0_usize);
        let read = store.load(StoreTable::Tasks, |_, value| {
            let Some((keys, entry)) = TaskEntry::from_record(value, policy, now) else {
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
            warn!(error = %problem, "failed to read persisted tasks");
        }
        info!(tasks = taken.len(), unreadable, full, "restored persisted tasks");
        taken
    }

    /// Persists the state of a session, and waits until it is durable; without a value its row is
    /// removed.
    pub async fn keep_session(&self, key: Vec<u8>, value: Option<Vec<u8>>) {
        self.note_session(key, value);
        if !self.is_safe().await {
            debug!("failed to flush session");
        }
    }

    /// Like `keep_session`, without waiting.
    pub fn note_session(&self, key: Vec<u8>, value: Option<Vec<u8>>) {
        let done = self.hand(|store| match &value {
            Some(value) => store.put(StoreTable::Sessions, key.clone(), value.clone()),
            None => store.remove(StoreTable::Sessions, key.clone()),
        });
        match done {
            Err(problem) if self.is_failing() => debug!(error = %problem, "failed to persist session"),
            Err(problem) => warn!(error = %problem, "failed to persist session"),
            Ok(()) => {}
        }
    }

    /// Calls `is_of_use` with the row of each session, and removes those for which it returns
    /// false. Reads the whole table: not for an async thread.
    pub fn sessions(&self, mut is_of_use: impl FnMut(&[u8], &[u8]) -> bool) {
        let Some(store) = self.store.load_full() else { return };
        let mut over = Vec::new();
        let read = store.load(StoreTable::Sessions, |key, value| {
            if !is_of_use(key, value) {
                over.push(key.to_vec());
            }
        });
        if let Err(problem) = read {
            warn!(error = %problem, "failed to read persisted sessions");
        }
        over.into_iter().for_each(|key| self.note_session(key, None));
    }

    /// Writes the pending changes, and closes the file.
    pub fn close(&self) {
        if let Some(Err(problem)) = self.store.load_full().map(|store| store.close()) {
            warn!(error = %problem, "failed to persist all tasks");
        }
    }
}
