//! What of the tasks is kept on disk, if anything: every task that a client holds a handle of, and which questions were answered.
//!
//! Without a data directory nothing is kept and nothing costs anything. Not here: the disk (see `store`), the form (see `record`).

use std::sync::{Arc, OnceLock};

use tracing::{debug, info, warn};

use super::entry::Entry;
use super::record::{key_of, record_key};
use super::store::{Store, Table};
use super::{Tasks, Times};

/// Keeps tasks.
pub struct Ledger {
    /// Empty where nothing is kept, and while another process still has the file.
    store: OnceLock<Store>,
    /// Artifacts of more bytes stay at the agent.
    most: usize,
}

impl Ledger {
    /// Keeps nothing yet; when it does, then without artifacts of more than `most` bytes.
    pub fn new(most: usize) -> Self {
        Self { store: OnceLock::new(), most }
    }

    /// Keeps tasks in this store from now on. The first store stays.
    pub fn keep_in(&self, store: Store) {
        if self.store.set(store).is_err() {
            warn!("tasks are kept on disk already");
        }
    }

    /// Whether anything is kept.
    pub fn keeps(&self) -> bool {
        self.store.get().is_some()
    }

    /// Whether the disk does not take what is to be kept.
    pub fn is_failing(&self) -> bool {
        self.store.get().is_some_and(Store::is_failing)
    }

    /// How many transactions failed.
    pub fn failures(&self) -> u64 {
        self.store.get().map_or(0, Store::failures)
    }

    /// Keeps what clients came to hold while there was no store.
    pub fn catch_up(&self, tasks: &Tasks, now: Times) {
        tasks.for_each(now.instant, |entry| self.note(entry));
    }

    /// Keeps a task that a client is about to hold a handle of, or to be told of, before it is. Returns whether the
    /// disk has it, if tasks are kept at all.
    pub async fn acknowledge(&self, entry: &Entry) -> bool {
        entry.acknowledge();
        let Some(store) = self.store.get() else { return true };
        self.put(store, entry);
        let kept = store.flush().await;
        if let Err(problem) = &kept {
            // The client is served all the same: the agent has the task. The store warns of its disk.
            debug!(%problem, agent = %entry.agent(), "a task could not be kept on disk");
        }
        kept.is_ok()
    }

    /// Notes what is new of a task that is kept; it is on disk a moment later.
    pub fn note(&self, entry: &Entry) {
        if let Some(store) = self.store.get().filter(|_| entry.is_acknowledged()) {
            self.put(store, entry);
        }
    }

    fn put(&self, store: &Store, entry: &Entry) {
        let Some((key, value)) = entry.to_record(self.most) else { return };
        let put = store.put(Table::Tasks, key, value);
        let unnamed = record_key(entry.agent(), None, entry.local());
        let removed = if entry.is_named() { store.remove(Table::Tasks, unnamed) } else { Ok(()) };
        match put.and(removed) {
            // The store warns of its disk, not of each task.
            Err(problem) if store.is_failing() => {
                debug!(%problem, agent = %entry.agent(), "a task is not kept on disk");
            }
            Err(problem) => warn!(%problem, agent = %entry.agent(), "a task is not kept on disk"),
            Ok(()) => {}
        }
    }

    /// Drops a task that nobody can ask for any more.
    pub fn forget(&self, entry: &Entry) {
        let Some(store) = self.store.get().filter(|_| entry.is_acknowledged()) else { return };
        let key = record_key(entry.agent(), entry.task_id().as_deref(), entry.local());
        if let Err(problem) = store.remove(Table::Tasks, key) {
            warn!(%problem, agent = %entry.agent(), "a forgotten task stays on disk");
        }
    }

    /// Drops from the disk what the map does not know any more: what had to go for room is not told one by one. Reads the whole
    /// table: not for an async thread.
    pub fn prune(&self, tasks: &Tasks, now: Times) {
        let Some(store) = self.store.get() else { return };
        let mut gone = Vec::new();
        let read = store.load(Table::Tasks, |key, _| {
            let is_known = key_of(key).is_some_and(|key| tasks.peek(&key, now.instant).is_some());
            if !is_known {
                gone.push(key.to_vec());
            }
        });
        if let Err(problem) = read {
            warn!(%problem, "kept tasks cannot be read");
        }
        for key in gone {
            if let Err(problem) = store.remove(Table::Tasks, key) {
                return warn!(%problem, "forgotten tasks stay on disk");
            }
        }
    }

    /// Takes all kept tasks back into the map; returns those that are there now. Artifacts may have `limit` bytes each task.
    pub fn load(&self, tasks: &Tasks, limit: usize, now: Times) -> Vec<Arc<Entry>> {
        let Some(store) = self.store.get() else { return Vec::new() };
        let (mut taken, mut unreadable, mut full) = (Vec::new(), 0_usize, 0_usize);
        let read = store.load(Table::Tasks, |_, value| {
            let Some((keys, entry)) = Entry::from_record(value, limit, now) else {
                unreadable += 1;
                return;
            };
            let mut keys = keys.into_iter();
            let Some(first) = keys.next() else { return };
            match tasks.admit(first, || entry, now.instant) {
                Ok((entry, _)) => {
                    keys.for_each(|key| drop(tasks.alias(key, &entry, now.instant)));
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

    /// Keeps the end of a session.
    pub async fn revoke(&self, session: [u8; 16], expires: u64) {
        let Some(store) = self.store.get() else { return };
        let put = store.put(Table::Revocations, session.to_vec(), expires.to_be_bytes().to_vec());
        let kept = match put {
            Ok(()) => store.flush().await,
            Err(problem) => Err(problem),
        };
        match kept {
            Err(problem) if store.is_failing() => {
                debug!(%problem, "the end of a session could not be kept on disk");
            }
            Err(problem) => warn!(%problem, "the end of a session could not be kept on disk"),
            Ok(()) => {}
        }
    }

    /// The sessions that were ended and would not have expired at `now` (Unix seconds); the others are dropped.
    pub fn revoked(&self, now: u64) -> Vec<([u8; 16], u64)> {
        let Some(store) = self.store.get() else { return Vec::new() };
        let (mut live, mut over) = (Vec::new(), Vec::new());
        let read = store.load(Table::Revocations, |key, value| {
            let session: Option<[u8; 16]> = key.try_into().ok();
            let expires: Option<[u8; 8]> = value.try_into().ok();
            match (session, expires.map(u64::from_be_bytes)) {
                (Some(session), Some(expires)) if expires > now => live.push((session, expires)),
                _ => over.push(key.to_vec()),
            }
        });
        if let Err(problem) = read {
            warn!(%problem, "ended sessions cannot be read");
        }
        for key in over {
            if let Err(problem) = store.remove(Table::Revocations, key) {
                warn!(%problem, "an old session stays on disk");
            }
        }
        live
    }

    /// Writes what waits, and lets go of the file.
    pub fn close(&self) {
        if let Some(Err(problem)) = self.store.get().map(Store::close) {
            warn!(%problem, "not everything was kept on disk");
        }
    }
}
