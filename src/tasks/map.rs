//! Tasks by key: lookup, insertion within limits, eviction in order; and the index of tasks by owner.
//!
//! An entry lives in the shard of the key that it came with; further keys in other shards lead to
//! it. One shard is locked at a time, for a few steps. See also `shard` for the order within a
//! shard.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};
use std::time::Instant;

use tokio::sync::{mpsc, watch};

use super::compression::StateCompressor;
use super::entry::TaskEntry;
use super::entry_state::EntryState;
use super::shard::{DigestSecret, EvictionClass, KEY_BYTES, KeyDigest, TaskShard, TaskSlot, Usage};
use super::{EntryKey, TaskLimits, TaskMapFull};
use crate::sync::lock;

const SHARDS: usize = 64;
/// Tasks that are looked up for compression under one lock of their shard.
const COMPRESSED_AT_ONCE: usize = 64;
/// The least size of a task, in bytes.
pub(super) const MIN_TASK_BYTES: usize = 1536;

/// The task map. Clones are the same map.
#[derive(Debug, Clone)]
pub struct Tasks {
    map: Arc<TaskMapInner>,
}

#[derive(Debug)]
struct TaskMapInner {
    shards: Box<[Mutex<TaskShard>]>,
    /// The shard with the highest number.
    last: Mutex<TaskShard>,
    bounds: TaskLimits,
    tally: Usage,
    owners: OwnerIndex,
    secret: DigestSecret,
    next_id: AtomicU64,
    next_sweep: AtomicUsize,
    next_compression: AtomicUsize,
    /// Receives each owned task when it finishes, if there is a recorder.
    finished: OnceLock<mpsc::Sender<Weak<TaskEntry>>>,
}

/// The position of an entry in the map.
#[derive(Debug, Clone)]
pub(super) struct ShardSlot {
    map: Weak<TaskMapInner>,
    shard: usize,
    id: u64,
}

impl ShardSlot {
    /// Updates the map after a change of the entry; `active` is the time, if the change was
    /// activity.
    pub(super) fn rebalance(&self, active: Option<Instant>) {
        if let Some(map) = self.map.upgrade() {
            map.rebalance(self.shard, self.id, active);
        }
    }

    /// Records that a caller holds the entry from now on; `no_more` is a caller that does not any
    /// more.
    pub(super) fn own(&self, entry: &Arc<TaskEntry>, caller: &str, no_more: Option<&str>) {
        let Some(map) = self.map.upgrade() else { return };
        map.owners.add(caller, self.id, entry);
        if let Some(left) = no_more {
            map.owners.remove(left, self.id);
        }
        // The entry may have been dropped, or got other owners, a moment ago.
        if entry.is_gone() || !entry.owners().iter().any(|owner| **owner == *caller) {
            map.owners.remove(caller, self.id);
        }
    }

    /// Notifies these owners: the streaming flag or the state of the entry changed.
    pub(super) fn tell(&self, callers: &[Box<str>]) {
        if let Some(map) = self.map.upgrade() {
            map.owners.notify(callers);
        }
    }

    /// Updates the map after the state of the entry was expanded.
    pub(super) fn expanded(&self) {
        if let Some(map) = self.map.upgrade() {
            map.rebalance(self.shard, self.id, None);
        }
    }

    /// Passes the entry to the recorder of finished tasks, if there is one.
    pub(super) fn tell_finished(&self) {
        let Some(map) = self.map.upgrade() else { return };
        let Some(recorder) = map.finished.get() else { return };
        let entry = map.shard(self.shard).entry(self.id);
        if let Some(Err(error)) = entry.map(|entry| recorder.try_send(Arc::downgrade(&entry))) {
            tracing::info!(%error, "failed to record finished task");
        }
    }
}

impl Tasks {
    /// Returns an empty map.
    pub fn new(bounds: TaskLimits) -> Self {
        Self::with(bounds, SHARDS, rand::random())
    }

    pub(super) fn with(bounds: TaskLimits, shards: usize, secret: [u64; 2]) -> Self {
        let shard = || Mutex::new(TaskShard::new(bounds.ttl));
        let map = TaskMapInner {
            shards: (1..shards).map(|_| shard()).collect(),
            last: shard(),
            bounds,
            tally: Usage::default(),
            owners: OwnerIndex::default(),
            secret: DigestSecret(secret),
            next_id: AtomicU64::new(0),
            next_sweep: AtomicUsize::new(0),
            next_compression: AtomicUsize::new(0),
            finished: OnceLock::new(),
        };
        Self { map: Arc::new(map) }
    }

    /// Returns the tasks with an owner from now on as they finish, and finished tasks when they get
    /// an owner. At most `capacity` wait; more are dropped with a warning. `None` if another
    /// receiver exists.
    pub fn finished(&self, capacity: usize) -> Option<mpsc::Receiver<Weak<TaskEntry>>> {
        let (sender, receiver) = mpsc::channel(capacity);
        self.map.finished.set(sender).ok().map(|()| receiver)
    }

    /// Returns the entry of this key, unless it has expired at `now`. Counts as activity.
    pub fn find(&self, key: &EntryKey, now: Instant) -> Option<Arc<TaskEntry>> {
        self.find_digest(self.map.secret.digest(key), now)
    }

    fn find_digest(&self, key: KeyDigest, now: Instant) -> Option<Arc<TaskEntry>> {
        let entry = self.map.shard(self.map.shard_of(key)).holder(key)?;
        let home = entry.home()?;
        let mut shard = self.map.shard(home.shard);
        let is_alive = shard.touch(home.id, now);
        shard.settle(home.id, &self.map.tally);
        is_alive.then(|| entry.clone())
    }

    /// Returns the entry of this key, unless it has expired at `now`. Does not count as activity.
    pub fn get_untouched(&self, key: &EntryKey, now: Instant) -> Option<Arc<TaskEntry>> {
        let key = self.map.secret.digest(key);
        let entry = self.map.shard(self.map.shard_of(key)).holder(key)?;
        self.map.is_alive(&entry, now).then_some(entry)
    }

    /// Returns the entry of this key, or a new one, and true if it is new.
    ///
    /// # Errors
    ///
    /// [`TaskMapFull`], if there is no room for a new one and none can be made.
    pub fn admit(
        &self,
        key: EntryKey,
        make: impl FnOnce() -> TaskEntry,
        now: Instant,
    ) -> Result<(Arc<TaskEntry>, bool), TaskMapFull> {
        let map = &self.map;
        let key = map.secret.digest(&key);
        let shard = map.shard_of(key);
        map.drop_expired(key, now);
        if let Some(known) = self.find_digest(key, now) {
            return Ok((known, false));
        }
        let entry = Arc::new(make());
        let bytes = entry.bytes().saturating_add(KEY_BYTES);
        map.make_room(bytes, shard, now)?;
        let id = map.next_id.fetch_add(1, Ordering::Relaxed);
        entry.move_in(ShardSlot { map: Arc::downgrade(map), shard, id });
        loop {
            let claimed = map.shard(shard).insert(id, key, &entry, bytes, now, &map.tally);
            if claimed {
                // The owners of a restored entry.
                for caller in entry.owners() {
                    map.owners.add(&caller, id, &entry);
                }
                return Ok((entry, true));
            }
            // Another thread was quicker.
            if let Some(known) = self.find_digest(key, now) {
                map.tally.give_back(bytes);
                return Ok((known, false));
            }
            map.drop_expired(key, now);
        }
    }

    /// Lets the entry be found under a further key. Returns the entry that has the key from now on:
    /// another one may have been there first, and then nothing changes.
    pub fn add_alias(&self, key: EntryKey, entry: &Arc<TaskEntry>, now: Instant) -> Arc<TaskEntry> {
        let map = &self.map;
        let Some(home) = entry.home() else { return entry.clone() };
        let key = map.secret.digest(&key);
        map.drop_expired(key, now);
        if let Err(other) = map.shard(map.shard_of(key)).claim_key(key, entry) {
            return other;
        }
        let lives = map.shard(home.shard).add_key(home.id, key, &map.tally);
        if !lives {
            map.shard(map.shard_of(key)).unclaim(key, entry);
        }
        entry.clone()
    }

    /// Returns true if a new task would fit.
    pub fn has_room(&self, now: Instant) -> bool {
        let map = &self.map;
        map.tally.has_room(MIN_TASK_BYTES, &map.bounds)
            || EvictionClass::ALL.into_iter().any(|class| map.tally.has(class))
                && (0..self.shards()).any(|at| map.shard(at).has_evictable(now, &map.tally))
    }

    /// Drops the expired entries of one shard, the next one at each call, and returns them. Entries
    /// that were evicted for room are not among them.
    pub fn sweep(&self, now: Instant) -> Vec<Arc<TaskEntry>> {
        let map = &self.map;
        let at = map.next_sweep.fetch_add(1, Ordering::Relaxed) % self.shards();
        map.owners.sweep(at);
        let dropped = map.shard(at).expired(now, &map.tally);
        dropped.into_iter().map(|resident| map.remove_evicted(resident)).collect()
    }

    /// Compresses finished tasks of one shard, the next one at each call, that were not used for a while.
    /// Takes some 50 µs for each: not for an async thread.
    ///
    /// # Errors
    ///
    /// An error if the compressor has no memory.
    pub fn compress_idle(&self, now: Instant) -> std::io::Result<()> {
        let map = &self.map;
        let at = map.next_compression.fetch_add(1, Ordering::Relaxed) % self.shards();
        let Some(until) = now.checked_sub(map.bounds.compress_after) else { return Ok(()) };
        let mut compressor = None;
        loop {
            let idle = map.shard(at).next_idle(until, COMPRESSED_AT_ONCE);
            if idle.is_empty() {
                return Ok(());
            }
            let compressor = match &mut compressor {
                Some(compressor) => compressor,
                none => none.insert(StateCompressor::new()?),
            };
            for (id, entry) in idle {
                if entry.compress(compressor, now) {
                    map.shard(at).settle(id, &map.tally);
                }
            }
        }
    }

    /// Returns the number of compressed tasks.
    pub fn compressed(&self) -> usize {
        self.map.tally.compressed.load(Ordering::Relaxed)
    }

    /// Drops an entry before its expiry.
    pub fn forget(&self, entry: &Arc<TaskEntry>) {
        let Some(home) = entry.home() else { return };
        let dropped = self.map.shard(home.shard).remove(home.id, &self.map.tally);
        if let Some(resident) = dropped {
            self.map.remove_evicted(resident);
        }
    }

    /// Returns true if the artifacts of a finished task are larger than the limit for keeping them,
    /// and no watcher waits to read them.
    pub fn should_shed(&self, entry: &TaskEntry, now: Instant) -> bool {
        let is_large = |inside: &EntryState| {
            inside.can_evict_artifacts() && inside.work.artifact_bytes() > self.map.bounds.artifact_bytes
        };
        !entry.is_compressed() && entry.visible_state(is_large) && !entry.is_watched(now)
    }

    /// Returns the number of shards: so many sweeps visit each once.
    pub fn shards(&self) -> usize {
        self.map.shards.len() + 1
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.map.tally.count.load(Ordering::Relaxed)
    }

    /// Returns true if there are no entries.
    #[cfg(any(test, feature = "testing"))]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the approximate size in bytes.
    pub fn bytes(&self) -> usize {
        self.map.tally.bytes.load(Ordering::Relaxed)
    }

    /// Returns the number of entries that were evicted for room since the last call.
    pub fn take_evicted(&self) -> u64 {
        self.map.tally.evicted.swap(0, Ordering::Relaxed)
    }

    /// Returns the number of keys that lead to an entry.
    #[cfg(test)]
    pub(super) fn keys(&self) -> usize {
        (0..self.shards()).map(|at| self.map.shard(at).keys()).sum()
    }

    /// Returns the entries that a caller holds and that have not expired at `now`. The cost grows
    /// with their number, not with the size of the map.
    pub fn owned_by(&self, caller: &str, now: Instant) -> Vec<Arc<TaskEntry>> {
        let mut owned = self.map.owners.of(caller);
        owned.retain(|entry| entry.is_owner(caller) && self.map.is_alive(entry, now));
        owned
    }

    /// Subscribes to changes of the entries that a caller holds: added, removed, or with another
    /// streaming flag or state.
    pub fn changes_of(&self, caller: &str) -> watch::Receiver<u64> {
        self.map.owners.changes(caller)
    }

    /// Returns the number of callers that hold entries.
    #[cfg(test)]
    pub(super) fn owners(&self) -> usize {
        self.map.owners.len()
    }

    /// Calls `show` with every entry that has not expired at `now`. No lock is held meanwhile.
    pub fn for_each(&self, now: Instant, mut show: impl FnMut(&Arc<TaskEntry>)) {
        for at in 0..self.shards() {
            let entries = self.map.shard(at).alive(now);
            entries.iter().for_each(&mut show);
        }
    }
}

impl TaskMapInner {
    fn shard_of(&self, key: KeyDigest) -> usize {
        key.shard(self.shards.len() + 1)
    }

    fn shard(&self, at: usize) -> MutexGuard<'_, TaskShard> {
        lock(self.shards.get(at).unwrap_or(&self.last))
    }

    fn is_alive(&self, entry: &TaskEntry, now: Instant) -> bool {
        entry.home().is_some_and(|home| self.shard(home.shard).has(home.id, now))
    }

    fn rebalance(&self, at: usize, id: u64, active: Option<Instant>) {
        let grew = {
            let mut shard = self.shard(at);
            if let Some(now) = active {
                shard.touch(id, now);
            }
            shard.settle(id, &self.tally)
        };
        // The entry that grew may stay; others are evicted for it.
        let is_over = || self.tally.bytes.load(Ordering::Relaxed) > self.bounds.bytes;
        while grew && is_over() && self.evict(at, Some(id), active) {}
    }

    fn make_room(&self, bytes: usize, shard: usize, now: Instant) -> Result<(), TaskMapFull> {
        if bytes > self.bounds.bytes {
            return Err(TaskMapFull);
        }
        while !self.tally.take(bytes, &self.bounds) {
            if !self.evict(shard, None, Some(now)) {
                return Err(TaskMapFull);
            }
        }
        Ok(())
    }

    /// Evicts one entry, from the shard at hand if possible. Returns true if there was one.
    fn evict(&self, first: usize, spare: Option<u64>, now: Option<Instant>) -> bool {
        let shards = self.shards.len() + 1;
        for class in EvictionClass::ALL {
            if !self.tally.has(class) {
                continue;
            }
            for at in (0..shards).map(|step| (first + step) % shards) {
                let victim = self.shard(at).victim(class, spare, now, &self.tally);
                if let Some(resident) = victim {
                    self.tally.evicted.fetch_add(1, Ordering::Relaxed);
                    self.remove_evicted(resident);
                    return true;
                }
            }
        }
        false
    }

    fn drop_expired(&self, key: KeyDigest, now: Instant) {
        let Some(home) = self.shard(self.shard_of(key)).holder(key).and_then(|entry| entry.home().cloned())
        else {
            return;
        };
        let dropped = self.shard(home.shard).remove_expired(home.id, now, &self.tally);
        if let Some(resident) = dropped {
            self.remove_evicted(resident);
        }
    }

    /// Removes the keys of a dropped entry.
    fn remove_evicted(&self, resident: TaskSlot) -> Arc<TaskEntry> {
        for key in &resident.keys {
            self.shard(self.shard_of(*key)).unclaim(*key, &resident.entry);
        }
        if let Some(home) = resident.entry.home() {
            resident.entry.owners().iter().for_each(|caller| self.owners.remove(caller, home.id));
        }
        resident.entry.wake();
        resident.entry
    }
}

const OWNER_SHARDS: usize = 16;

/// Entries by caller.
#[derive(Debug, Default)]
pub(super) struct OwnerIndex {
    shards: [Mutex<HashMap<Box<str>, OwnedTasks>>; OWNER_SHARDS],
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
        if let Some(shard) = self.shards.get(at % OWNER_SHARDS) {
            lock(shard).retain(|_, holding| !holding.is_idle());
        }
    }

    /// Returns the number of callers.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).len()).sum()
    }

    fn shard(&self, caller: &str) -> Option<MutexGuard<'_, HashMap<Box<str>, OwnedTasks>>> {
        let at = usize::try_from(self.hasher.hash_one(caller) % OWNER_SHARDS as u64).ok()?;
        self.shards.get(at).map(lock)
    }
}

impl TaskEntry {
    /// Records that the caller holds a handle.
    pub fn own(self: &Arc<Self>, caller: &str) {
        let own = self.change(|inside| inside.own(caller));
        if let (Some(no_more), Some(home)) = (own, self.home()) {
            home.own(self, caller, no_more.as_deref());
            if self.is_finished() {
                home.tell_finished();
            }
        }
    }

    /// Returns the callers that hold a handle.
    pub(super) fn owners(&self) -> Vec<Box<str>> {
        self.with_owners(<[_]>::to_vec)
    }

    /// Returns true if the caller holds a handle.
    pub fn is_owner(&self, caller: &str) -> bool {
        self.with_owners(|owners| owners.iter().any(|owner| **owner == *caller))
    }

    /// Notifies the owners if the streaming flag or the state changed.
    pub(super) fn tell_owners(&self) {
        let Some(home) = self.home() else { return };
        let changed = {
            // The owners of a compressed task were notified before.
            if self.is_compressed() {
                return;
            }
            self.with_state(|inside| {
                inside.streaming_changed().then(|| (inside.owners.clone(), inside.is_finished()))
            })
        };
        let Some((owners, is_finished)) = changed else { return };
        home.tell(&owners);
        if is_finished && !owners.is_empty() {
            home.tell_finished();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::bridge::output::AgentOutput;
    use crate::tasks::{EntryKey, TaskLimits, Tasks, Timestamp};

    const BOUNDS: TaskLimits = TaskLimits {
        most: 100,
        bytes: 1 << 20,
        ttl: Duration::from_secs(60),
        artifact_bytes: 1 << 10,
        compress_after: Duration::from_secs(5),
    };

    fn entry() -> TaskEntry {
        TaskEntry::new("bard".into(), [0; 16], AgentOutput::new(1 << 10), Timestamp::now())
    }

    fn key(number: u8) -> EntryKey {
        EntryKey::Local([number; 16])
    }

    #[test]
    fn tasks_of_a_caller_are_listed() {
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
    fn caller_is_notified_of_open_and_closed_streams() {
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
        assert!(!heard(), "the task has no owner yet");
        entry.own("ann");
        assert!(heard());
        entry.own("ann");
        entry.set_push_expected(now);
        assert!(!heard(), "nothing new");
        drop(following);
        assert!(heard(), "the stream of its agent has ended");
        tasks.forget(&entry);
        assert!(heard());
        drop(changes);
        (0..tasks.shards()).for_each(|_| drop(tasks.sweep(now)));
        assert_eq!(tasks.owners(), 0);
    }
}
