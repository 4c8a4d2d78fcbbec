//! Index of the tasks by owner, for lists, and notification of owners when a stream begins or ends.
//!
//! A caller without entries and without subscribers is not in the index. No other lock is taken
//! while one of these is held.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use tokio::sync::watch;

use super::entry::TaskEntry;
use crate::sync::lock;

const SHARDS: usize = 16;

/// Entries by caller.
#[derive(Debug, Default)]
pub(super) struct OwnerIndex {
    shards: [Mutex<HashMap<Box<str>, OwnedTasks>>; SHARDS],
    /// Keyed at random, so that no caller can choose its shard.
    hasher: RandomState,
}

/// Entries of one caller, by the id of their slot.
#[derive(Debug, Default)]
struct OwnedTasks {
    entries: HashMap<u64, Weak<TaskEntry>>,
    changes: watch::Sender<u64>,
}

impl OwnedTasks {
    fn notify(&self) {
        self.changes.send_modify(|count| *count += 1);
    }

    fn is_idle(&self) -> bool {
        self.entries.is_empty() && self.changes.receiver_count() == 0
    }
}

impl OwnerIndex {
    /// Records that a caller holds this entry.
    pub(super) fn add(&self, caller: &str, id: u64, entry: &Arc<TaskEntry>) {
        let Some(mut shard) = self.shard(caller) else { return };
        let holding = shard.entry(caller.into()).or_default();
        holding.entries.insert(id, Arc::downgrade(entry));
        holding.notify();
    }

    /// Records that a caller does not hold the entry any more.
    pub(super) fn remove(&self, caller: &str, id: u64) {
        let Some(mut shard) = self.shard(caller) else { return };
        let Some(holding) = shard.get_mut(caller) else { return };
        holding.entries.remove(&id);
        holding.notify();
        if holding.is_idle() {
            shard.remove(caller);
        }
    }

    /// Notifies these callers: a task of theirs changed its streaming flag or state.
    pub(super) fn notify(&self, callers: &[Box<str>]) {
        for caller in callers {
            if let Some(holding) = self.shard(caller).as_ref().and_then(|shard| shard.get(caller)) {
                holding.notify();
            }
        }
    }

    /// Returns all entries that a caller holds.
    pub(super) fn of(&self, caller: &str) -> Vec<Arc<TaskEntry>> {
        let shard = self.shard(caller);
        let holding = shard.as_ref().and_then(|shard| shard.get(caller));
        holding.map_or_else(Vec::new, |holding| holding.entries.values().filter_map(Weak::upgrade).collect())
    }

    /// Subscribes to changes of the entries that a caller holds.
    pub(super) fn changes(&self, caller: &str) -> watch::Receiver<u64> {
        match self.shard(caller) {
            Some(mut shard) => shard.entry(caller.into()).or_default().changes.subscribe(),
            None => watch::Sender::new(0).subscribe(),
        }
    }

    /// Drops callers that only subscribed, and have left.
    pub(super) fn sweep(&self, at: usize) {
        if let Some(shard) = self.shards.get(at % SHARDS) {
            lock(shard).retain(|_, holding| !holding.is_idle());
        }
    }

    /// Returns the number of callers.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).len()).sum()
    }

    fn shard(&self, caller: &str) -> Option<MutexGuard<'_, HashMap<Box<str>, OwnedTasks>>> {
        let at = usize::try_from(self.hasher.hash_one(caller) % SHARDS as u64).ok()?;
        self.shards.get(at).map(lock)
    }
}

impl TaskEntry {
    /// Records that the caller holds a handle.
    pub fn own(self: &Arc<Self>, caller: &str) {
        let own = self.change(|inside| inside.own(caller));
        if let (Some(no_more), Some(home)) = (own, self.home()) {
            home.own(self, caller, no_more.as_deref());
        }
    }

    /// Returns the callers that hold a handle.
    pub(super) fn owners(&self) -> Vec<Box<str>> {
        self.visible_state(|inside| inside.owners.clone())
    }

    /// Returns true if the caller holds a handle.
    pub fn is_owner(&self, caller: &str) -> bool {
        self.visible_state(|inside| inside.owners().any(|owner| owner == caller))
    }

    /// Notifies the owners if the streaming flag or the state changed.
    pub(super) fn tell_owners(&self) {
        let Some(home) = self.home() else { return };
        let owners = {
            let mut inside = lock(&self.inside);
            inside.streaming_changed().then(|| inside.owners.clone())
        };
        if let Some(owners) = owners {
            home.tell(&owners);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::bridge::output::AgentOutput;
    use crate::tasks::{EntryKey, TaskLimits, Tasks, Timestamp};

    const BOUNDS: TaskLimits =
        TaskLimits { most: 100, bytes: 1 << 20, ttl: Duration::from_secs(60), artifact_bytes: 1 << 10 };

    fn entry() -> TaskEntry {
        TaskEntry::new("bard".into(), [0; 16], AgentOutput::new(1 << 10), Timestamp::now())
    }

    fn key(number: u8) -> EntryKey {
        EntryKey::Local([number; 16])
    }

    #[test]
    fn what_a_caller_holds_is_listed_while_it_is_in_the_map() {
        let (tasks, now) = (Tasks::new(BOUNDS), Instant::now());
        let (one, _) = tasks.admit(key(1), entry, now).unwrap();
        let (other, _) = tasks.admit(key(2), entry, now).unwrap();
        let held = |caller: &str, now| tasks.owned_by(caller, now).len();
        one.own("ann");
        one.own("ann");
        other.own("ann");
        other.own("ben");
        assert_eq!((held("ann", now), held("ben", now), held("eve", now)), (2, 1, 0));
        // The entry gets seventeen owners: the first of them is forgotten.
        (0..16).for_each(|number| other.own(&number.to_string()));
        assert_eq!((held("ann", now), held("ben", now), held("15", now)), (1, 0, 1));
        assert_eq!(held("ann", now + BOUNDS.ttl), 0, "it has expired");
        tasks.forget(&other);
        one.own("ben");
        assert_eq!((held("ann", now), held("ben", now), held("15", now)), (1, 1, 0));
        tasks.forget(&one);
        one.own("late");
        assert_eq!(tasks.owners(), 0, "nothing is left of those who hold nothing");
    }

    #[test]
    fn who_listens_hears_when_what_it_holds_begins_and_ceases_to_flow() {
        let (tasks, now) = (Tasks::new(BOUNDS), Instant::now());
        let mut changes = tasks.changes_of("ann");
        let mut heard = || {
            changes.has_changed().unwrap() && {
                changes.mark_unchanged();
                true
            }
        };
        let (entry, _) = tasks.admit(key(1), entry, now).unwrap();
        let following = entry.begin_following();
        assert!(!heard(), "it is nobody's yet");
        entry.own("ann");
        assert!(heard());
        entry.own("ann");
        entry.set_push_expected(now);
        assert!(!heard(), "nothing new");
        drop(following);
        assert!(heard(), "nobody listens to its agent any more");
        tasks.forget(&entry);
        assert!(heard());
        drop(changes);
        (0..tasks.shards()).for_each(|_| drop(tasks.sweep(now)));
        assert_eq!(tasks.owners(), 0);
    }
}
