//! Usage of all shards together, by eviction class.
//!
//! Atomic sums, so that a reservation needs no lock and nothing is counted anew.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use super::TaskLimits;

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
    pub(super) fn enter(&self, place: SlotUsage) {
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
    pub(super) fn resize(&self, before: usize, after: usize) -> bool {
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
