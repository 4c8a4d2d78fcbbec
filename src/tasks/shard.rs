//! One shard of the map: its index of keys, and its entries in the order of eviction; and the usage
//! of all shards together.
//!
//! Every entry stands in at most one queue, ordered by time, so that eviction needs no search. The
//! usage is in atomic sums, so that a reservation needs no lock and nothing is counted anew.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::hash::Hash as _;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use siphasher::sip128::{Hasher128 as _, SipHasher13};

use super::entry::TaskEntry;
use super::entry_state::EvictionInfo;
use super::{EntryKey, TaskLimits};

/// Digest of a key under a secret of the map: no peer can find two keys with one digest. It takes 16 bytes,
/// and names and ids of agents a hundred and more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct KeyDigest([u64; 2]);

/// Size of a key in bytes: in the index and in the slot.
pub(super) const KEY_BYTES: usize = 2 * size_of::<KeyDigest>();

/// Secret of a map for the digests of keys.
#[derive(Clone, Copy)]
pub(super) struct DigestSecret(pub(super) [u64; 2]);

impl DigestSecret {
    /// Returns the digest of a key.
    pub(super) fn digest(self, key: &EntryKey) -> KeyDigest {
        let Self([first, second]) = self;
        let mut hasher = SipHasher13::new_with_keys(first, second);
        key.hash(&mut hasher);
        let digest = hasher.finish128();
        KeyDigest([digest.h1, digest.h2])
    }
}

impl fmt::Debug for DigestSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DigestSecret")
    }
}

impl KeyDigest {
    /// Returns the number of the shard that has the key.
    pub(super) fn shard(self, shards: usize) -> usize {
        let Self([first, _]) = self;
        usize::try_from(first % shards.max(1) as u64).unwrap_or_default()
    }
}

/// An entry in its shard.
#[derive(Debug)]
pub(super) struct TaskSlot {
    pub(super) entry: Arc<TaskEntry>,
    pub(super) keys: Vec<KeyDigest>,
    active: Instant,
    /// Time until which a watcher was expected in vain.
    late: Option<Instant>,
    place: SlotUsage,
    bytes: usize,
    is_compressed: bool,
}

/// Entries by time.
type EvictionQueue = BTreeSet<(Instant, u64)>;

/// One shard.
#[derive(Debug)]
pub(super) struct TaskShard {
    ttl: Duration,
    index: HashMap<KeyDigest, Arc<TaskEntry>>,
    /// Boxed: up to half of the places of a large map are empty.
    residents: HashMap<u64, Box<TaskSlot>>,
    ended: EvictionQueue,
    idle: EvictionQueue,
    followed: EvictionQueue,
    expected: EvictionQueue,
    /// Place in `ended` up to which states were compressed, if they could be.
    compressed_to: Option<(Instant, u64)>,
}

impl TaskSlot {
    fn is_expired(&self, now: Instant, ttl: Duration) -> bool {
        let since = match self.place {
            SlotUsage::Ended(at) | SlotUsage::Idle(at) | SlotUsage::Followed(at) => at,
            SlotUsage::Expected(until) => until.max(self.active),
            SlotUsage::Watched => return false,
        };
        now.saturating_duration_since(since) >= ttl
    }

    fn place(&self, stand: &EvictionInfo) -> SlotUsage {
        // An expected watcher counts as active until that time.
        let active = stand.expected.map_or(self.active, |until| until.max(self.active));
        match stand {
            EvictionInfo { is_finished: true, .. } => SlotUsage::Ended(self.active),
            EvictionInfo { is_watched: true, .. } => SlotUsage::Watched,
            EvictionInfo { expected: Some(until), .. } if Some(*until) > self.late => {
                SlotUsage::Expected(*until)
            }
            EvictionInfo { is_followed: true, .. } => SlotUsage::Followed(active),
            EvictionInfo { .. } => SlotUsage::Idle(active),
        }
    }
}

impl TaskShard {
    pub(super) fn new(ttl: Duration) -> Self {
        Self {
            ttl,
            index: HashMap::new(),
            residents: HashMap::new(),
            ended: BTreeSet::new(),
            idle: BTreeSet::new(),
            followed: BTreeSet::new(),
            expected: BTreeSet::new(),
            compressed_to: None,
        }
    }

    /// Returns the entry that has the key, also if it was dropped or has expired.
    pub(super) fn holder(&self, key: KeyDigest) -> Option<Arc<TaskEntry>> {
        self.index.get(&key).cloned()
    }

    #[cfg(test)]
    pub(super) fn keys(&self) -> usize {
        self.index.len()
    }

    /// Gives the key to the entry, unless another one has it.
    pub(super) fn claim_key(&mut self, key: KeyDigest, entry: &Arc<TaskEntry>) -> Result<(), Arc<TaskEntry>> {
        match self.index.get(&key) {
            Some(other) if !other.is_gone() && !Arc::ptr_eq(other, entry) => Err(other.clone()),
            _ => {
                self.index.insert(key, entry.clone());
                Ok(())
            }
        }
    }

    /// Removes the key of the entry, if it has it.
    pub(super) fn unclaim(&mut self, key: KeyDigest, entry: &Arc<TaskEntry>) {
        if self.index.get(&key).is_some_and(|holder| Arc::ptr_eq(holder, entry)) {
            self.index.remove(&key);
        }
    }

    /// Inserts an entry that is counted already, unless another one has the key. Returns true if it
    /// did.
    pub(super) fn insert(
        &mut self,
        id: u64,
        key: KeyDigest,
        entry: &Arc<TaskEntry>,
        bytes: usize,
        now: Instant,
        tally: &Usage,
    ) -> bool {
        let is_free = self.claim_key(key, entry).is_ok();
        if is_free {
            let (entry, keys, place) = (entry.clone(), vec![key], SlotUsage::Watched);
            let slot = TaskSlot { entry, keys, active: now, late: None, place, bytes, is_compressed: false };
            self.residents.insert(id, Box::new(slot));
            self.settle(id, tally);
        }
        is_free
    }

    /// Records a further key of an entry. Returns true if the entry still lives here.
    pub(super) fn add_key(&mut self, id: u64, key: KeyDigest, tally: &Usage) -> bool {
        let Some(resident) = self.residents.get_mut(&id) else { return false };
        if !resident.keys.contains(&key) {
            // Few entries ever have a third key.
            resident.keys.reserve_exact(1);
            resident.keys.push(key);
            self.settle(id, tally);
        }
        true
    }

    /// Returns the entry of this number, if it lives here.
    pub(super) fn entry(&self, id: u64) -> Option<Arc<TaskEntry>> {
        self.residents.get(&id).map(|resident| resident.entry.clone())
    }

    /// Returns true if the entry lives here and has not expired.
    pub(super) fn has(&self, id: u64, now: Instant) -> bool {
        self.residents.get(&id).is_some_and(|resident| !resident.is_expired(now, self.ttl))
    }

    /// Records activity, unless the entry has expired or is gone. Returns true if it did.
    pub(super) fn touch(&mut self, id: u64, now: Instant) -> bool {
        let is_alive = self.has(id, now);
        if let Some(resident) = self.residents.get_mut(&id).filter(|_| is_alive) {
            resident.active = resident.active.max(now);
        }
        is_alive
    }

    /// Moves an entry to its current queue, and counts its size. Returns true if it grew.
    pub(super) fn settle(&mut self, id: u64, tally: &Usage) -> bool {
        let Some(resident) = self.residents.get_mut(&id) else { return false };
        let stand = resident.entry.stand();
        let bytes = stand.bytes + resident.keys.len() * KEY_BYTES;
        let grew = tally.resize(resident.bytes, bytes);
        resident.bytes = bytes;
        tally.count_compressed(resident.is_compressed, stand.is_compressed);
        resident.is_compressed = stand.is_compressed;
        let (before, after) = (resident.place, resident.place(&stand));
        resident.place = after;
        // It was in use when its turn came, or was expanded since: it is looked at once more.
        if let SlotUsage::Ended(at) = after
            && !stand.is_compressed
            && self.compressed_to >= Some((at, id))
        {
            self.compressed_to = id.checked_sub(1).map(|before| (at, before));
        }
        if before != after {
            self.leave(id, before, tally);
            tally.enter(after);
            if let Some((queue, at)) = self.queue(after) {
                queue.insert((at, id));
            }
        }
        grew
    }

    fn leave(&mut self, id: u64, place: SlotUsage, tally: &Usage) {
        tally.leave(place);
        if let Some((queue, at)) = self.queue(place) {
            queue.remove(&(at, id));
        }
    }

    fn queue(&mut self, place: SlotUsage) -> Option<(&mut EvictionQueue, Instant)> {
        match place {
            SlotUsage::Ended(at) => Some((&mut self.ended, at)),
            SlotUsage::Idle(at) => Some((&mut self.idle, at)),
            SlotUsage::Followed(at) => Some((&mut self.followed, at)),
            SlotUsage::Expected(until) => Some((&mut self.expected, until)),
            SlotUsage::Watched => None,
        }
    }

    /// Ends the expectation of watchers that did not come in time.
    fn release_due(&mut self, now: Instant, tally: &Usage) {
        while let Some((until, id)) = self.expected.first().copied().filter(|(until, _)| *until <= now) {
            let Some(resident) = self.residents.get_mut(&id) else { return };
            resident.late = Some(until);
            self.settle(id, tally);
        }
    }

    /// Removes the first entry of this class. A followed one may be evicted only if the agent has
    /// named the task, so that it can be found again, or if it has expired; without a time none has
    /// expired.
    pub(super) fn victim(
        &mut self,
        class: EvictionClass,
        spare: Option<u64>,
        now: Option<Instant>,
        tally: &Usage,
    ) -> Option<TaskSlot> {
        if let Some(now) = now {
            self.release_due(now, tally);
        }
        let id = match class {
            EvictionClass::Followed => self.first_followed(spare, now, tally),
            EvictionClass::Ended | EvictionClass::Idle => self.first(class, spare, tally),
        };
        self.remove(id?, tally)
    }

    /// Returns the evictable followed entry that was active least recently. Those that are not
    /// evictable are few: their agents have not named them yet.
    fn first_followed(&mut self, spare: Option<u64>, now: Option<Instant>, tally: &Usage) -> Option<u64> {
        loop {
            let may_go = |id: &u64| {
                let is_expired =
                    |resident: &TaskSlot| now.is_some_and(|now| resident.is_expired(now, self.ttl));
                self.residents
                    .get(id)
                    .is_some_and(|resident| resident.entry.is_named() || is_expired(resident))
            };
            let (at, id) = *self.followed.iter().find(|(_, id)| Some(*id) != spare && may_go(id))?;
            self.settle(id, tally);
            if self.followed.contains(&(at, id)) {
                return Some(id);
            }
        }
    }

    /// Removes all expired entries.
    pub(super) fn expired(&mut self, now: Instant, tally: &Usage) -> Vec<TaskSlot> {
        self.release_due(now, tally);
        let mut dropped = Vec::new();
        for class in EvictionClass::ALL {
            while let Some(id) = self.first(class, None, tally)
                && let Some(resident) = self.remove_expired(id, now, tally)
            {
                dropped.push(resident);
            }
        }
        dropped
    }

    /// Removes an entry if it has expired.
    pub(super) fn remove_expired(&mut self, id: u64, now: Instant, tally: &Usage) -> Option<TaskSlot> {
        if self.has(id, now) {
            return None;
        }
        self.remove(id, tally)
    }

    /// Returns true if an entry of this shard may be evicted.
    pub(super) fn has_evictable(&mut self, now: Instant, tally: &Usage) -> bool {
        self.release_due(now, tally);
        !self.ended.is_empty()
            || !self.idle.is_empty()
            || self.first_followed(None, Some(now), tally).is_some()
    }

    /// Returns at most so many finished entries that were active last before `until`, and have not changed
    /// since they were returned.
    pub(super) fn next_idle(&mut self, until: Instant, most: usize) -> Vec<(u64, Arc<TaskEntry>)> {
        let from = self.compressed_to.map_or(Bound::Unbounded, Bound::Excluded);
        let idle: Vec<_> =
            self.ended.range((from, Bound::Excluded((until, 0)))).take(most).copied().collect();
        self.compressed_to = idle.last().copied().or(self.compressed_to);
        idle.into_iter().filter_map(|(_, id)| Some((id, self.entry(id)?))).collect()
    }

    /// Returns the entries that have not expired.
    pub(super) fn alive(&self, now: Instant) -> Vec<Arc<TaskEntry>> {
        let alive = self.residents.values().filter(|resident| !resident.is_expired(now, self.ttl));
        alive.map(|resident| resident.entry.clone()).collect()
    }

    /// Returns the entry of this class that was active least recently.
    fn first(&mut self, class: EvictionClass, spare: Option<u64>, tally: &Usage) -> Option<u64> {
        loop {
            let (at, id) = *self.of_class(class).iter().find(|(_, id)| Some(*id) != spare)?;
            // A watcher may have come a moment ago.
            self.settle(id, tally);
            if self.of_class(class).contains(&(at, id)) {
                return Some(id);
            }
        }
    }

    fn of_class(&self, class: EvictionClass) -> &EvictionQueue {
        match class {
            EvictionClass::Ended => &self.ended,
            EvictionClass::Idle => &self.idle,
            EvictionClass::Followed => &self.followed,
        }
    }

    /// Removes an entry. Its keys are still to be removed.
    pub(super) fn remove(&mut self, id: u64, tally: &Usage) -> Option<TaskSlot> {
        let resident = self.residents.remove(&id)?;
        resident.entry.mark_gone();
        self.leave(id, resident.place, tally);
        tally.count_compressed(resident.is_compressed, false);
        tally.give_back(resident.bytes);
        Some(*resident)
    }
}

/// Sums over all shards.
#[derive(Debug, Default)]
pub(super) struct Usage {
    pub(super) count: AtomicUsize,
    pub(super) bytes: AtomicUsize,
    /// Finished entries.
    ended: AtomicUsize,
    /// Live entries that are not watched or followed, or may not be by now.
    idle: AtomicUsize,
    /// Live entries that are followed and not watched.
    followed: AtomicUsize,
    /// Entries with a compressed state.
    pub(super) compressed: AtomicUsize,
    /// Entries evicted for others, and not reported yet.
    pub(super) evicted: AtomicU64,
}

/// Class of entries that may be evicted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EvictionClass {
    /// Finished: evicted first.
    Ended,
    /// Live, neither watched nor followed.
    Idle,
    /// Live, followed and not watched: evicted last.
    Followed,
}

/// Position of an entry in the order of eviction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SlotUsage {
    /// Finished; active last at that time.
    Ended(Instant),
    /// Live and neither watched nor followed; active last at that time.
    Idle(Instant),
    /// Live, followed, not watched; active last at that time.
    Followed(Instant),
    /// Live and expected to be watched until that time.
    Expected(Instant),
    /// Live and watched.
    Watched,
}

impl Usage {
    /// Reserves a slot and so many bytes, if there is room.
    pub(super) fn take(&self, bytes: usize, bounds: &TaskLimits) -> bool {
        let one_more = |count: usize| (count < bounds.most).then_some(count + 1);
        let more = |held: usize| held.checked_add(bytes).filter(|held| *held <= bounds.bytes);
        if self.count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).is_err() {
            return false;
        }
        let has_room = self.bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok();
        if !has_room {
            self.count.fetch_sub(1, Ordering::Relaxed);
        }
        has_room
    }

    /// Releases a slot and so many bytes.
    pub(super) fn give_back(&self, bytes: usize) {
        self.count.fetch_sub(1, Ordering::Relaxed);
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Counts a state that is compressed, or not any more.
    fn count_compressed(&self, before: bool, after: bool) {
        match (before, after) {
            (false, true) => _ = self.compressed.fetch_add(1, Ordering::Relaxed),
            (true, false) => _ = self.compressed.fetch_sub(1, Ordering::Relaxed),
            (false, false) | (true, true) => {}
        }
    }

    /// Returns true if a new entry of so many bytes would fit without eviction.
    pub(super) fn has_room(&self, bytes: usize, bounds: &TaskLimits) -> bool {
        let held = self.bytes.load(Ordering::Relaxed).saturating_add(bytes);
        self.count.load(Ordering::Relaxed) < bounds.most && held <= bounds.bytes
    }

    /// Returns true if a shard has an entry of the class, or may have one by now.
    pub(super) fn has(&self, class: EvictionClass) -> bool {
        self.of_class(class).load(Ordering::Relaxed) > 0
    }

    fn of_class(&self, class: EvictionClass) -> &AtomicUsize {
        match class {
            EvictionClass::Ended => &self.ended,
            EvictionClass::Idle => &self.idle,
            EvictionClass::Followed => &self.followed,
        }
    }

    /// Counts an entry in a position.
    fn enter(&self, place: SlotUsage) {
        if let Some(class) = place.class() {
            self.of_class(class).fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Removes an entry from the count of a position.
    pub(super) fn leave(&self, place: SlotUsage) {
        if let Some(class) = place.class() {
            self.of_class(class).fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Records a change of size. Returns true if the entry grew.
    fn resize(&self, before: usize, after: usize) -> bool {
        if after > before {
            self.bytes.fetch_add(after - before, Ordering::Relaxed);
        } else {
            self.bytes.fetch_sub(before - after, Ordering::Relaxed);
        }
        after > before
    }
}

impl EvictionClass {
    /// In the order of eviction.
    pub(super) const ALL: [Self; 3] = [Self::Ended, Self::Idle, Self::Followed];
}

impl SlotUsage {
    fn class(self) -> Option<EvictionClass> {
        match self {
            Self::Ended(_) => Some(EvictionClass::Ended),
            // An expected watcher may be late by now.
            Self::Idle(_) | Self::Expected(_) => Some(EvictionClass::Idle),
            Self::Followed(_) => Some(EvictionClass::Followed),
            Self::Watched => None,
        }
    }
}
