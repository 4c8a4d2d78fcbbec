//! What all shards hold together, and in which classes.
//!
//! Atomic sums, so that taking a place needs no lock and nothing is counted anew. Not here: the residents (see `shard`).

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use super::TaskLimits;

/// Sums over all shards.
#[derive(Debug, Default)]
pub(super) struct Usage {
    pub(super) count: AtomicUsize,
    pub(super) bytes: AtomicUsize,
    /// Residents that are finished.
    ended: AtomicUsize,
    /// Live residents that nobody watches or follows, or may not by now.
    idle: AtomicUsize,
    /// Live residents that are followed and not watched.
    followed: AtomicUsize,
    /// Entries dropped for others, and not told yet.
    pub(super) evicted: AtomicU64,
}

/// Who may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EvictionClass {
    /// Finished: goes first.
    Ended,
    /// Live; nobody watches or follows.
    Idle,
    /// Live, followed and not watched: goes last.
    Followed,
}

/// Where a resident stands.
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
    /// Takes a place and so many bytes, if there is room.
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

    /// Gives up a place and so many bytes.
    pub(super) fn give_back(&self, bytes: usize) {
        self.count.fetch_sub(1, Ordering::Relaxed);
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Whether a new entry of so many bytes would fit as it is.
    pub(super) fn has_room(&self, bytes: usize, bounds: &TaskLimits) -> bool {
        let held = self.bytes.load(Ordering::Relaxed).saturating_add(bytes);
        self.count.load(Ordering::Relaxed) < bounds.most && held <= bounds.bytes
    }

    /// Whether there is one of the class somewhere, or may be by now.
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

    /// One more stands at the place.
    pub(super) fn enter(&self, place: SlotUsage) {
        if let Some(class) = place.class() {
            self.of_class(class).fetch_add(1, Ordering::Relaxed);
        }
    }

    /// One less stands at the place.
    pub(super) fn leave(&self, place: SlotUsage) {
        if let Some(class) = place.class() {
            self.of_class(class).fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// What a resident takes has changed. Says whether it grew.
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
    /// In the order in which they go.
    pub(super) const ALL: [Self; 3] = [Self::Ended, Self::Idle, Self::Followed];
}

impl SlotUsage {
    fn class(self) -> Option<EvictionClass> {
        match self {
            Self::Ended(_) => Some(EvictionClass::Ended),
            // Whoever is expected may be late by now.
            Self::Idle(_) | Self::Expected(_) => Some(EvictionClass::Idle),
            Self::Followed(_) => Some(EvictionClass::Followed),
            Self::Watched => None,
        }
    }
}
