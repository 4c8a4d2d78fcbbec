//! One shard of the map: its index of keys, and its residents in the order in which they may go.
//!
//! Every resident stands in at most one queue, ordered by time, so that nothing is ever searched. Not here: which shard is asked
//! first (see `map`).

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::entry::{Entry, Stand};
use super::{Bounds, Key};

/// Sums over all shards.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) count: AtomicUsize,
    pub(super) bytes: AtomicUsize,
    /// Residents that are finished.
    pub(super) ended: AtomicUsize,
    /// Live residents that nobody watches or follows, or that are only expected to be.
    pub(super) idle: AtomicUsize,
    /// Live residents that are followed and not watched.
    pub(super) followed: AtomicUsize,
}

/// Who may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    /// Finished: goes first.
    Ended,
    /// Live; nobody watches or follows.
    Idle,
    /// Live, followed and not watched: goes when it has expired.
    Followed,
}

/// Where a resident stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
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

/// An entry in its home.
#[derive(Debug)]
pub(super) struct Resident {
    pub(super) entry: Arc<Entry>,
    pub(super) keys: Vec<Key>,
    active: Instant,
    place: Place,
    bytes: usize,
}

/// One shard.
#[derive(Debug)]
pub(super) struct Shard {
    ttl: Duration,
    index: HashMap<Key, Arc<Entry>>,
    residents: HashMap<u64, Resident>,
    ended: BTreeSet<(Instant, u64)>,
    idle: BTreeSet<(Instant, u64)>,
    followed: BTreeSet<(Instant, u64)>,
    expected: BTreeSet<(Instant, u64)>,
}

impl Tally {
    /// Takes a place and so many bytes, if there is room.
    pub(super) fn take(&self, bytes: usize, bounds: &Bounds) -> bool {
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

    pub(super) fn give_back(&self, bytes: usize) {
        self.count.fetch_sub(1, Ordering::Relaxed);
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Whether a new entry of so many bytes would fit as it is.
    pub(super) fn has_room(&self, bytes: usize, bounds: &Bounds) -> bool {
        let held = self.bytes.load(Ordering::Relaxed).saturating_add(bytes);
        self.count.load(Ordering::Relaxed) < bounds.most && held <= bounds.bytes
    }

    /// Whether there is one of the class somewhere, or may be by now.
    pub(super) fn has(&self, class: Class) -> bool {
        let counter = match class {
            Class::Ended => &self.ended,
            Class::Idle => &self.idle,
            Class::Followed => &self.followed,
        };
        counter.load(Ordering::Relaxed) > 0
    }

    /// How many may go, or may by now.
    pub(super) fn loose(&self) -> usize {
        [&self.ended, &self.idle, &self.followed].map(|counter| counter.load(Ordering::Relaxed)).iter().sum()
    }

    fn counter(&self, place: Place) -> Option<&AtomicUsize> {
        match place {
            Place::Ended(_) => Some(&self.ended),
            Place::Idle(_) | Place::Expected(_) => Some(&self.idle),
            Place::Followed(_) => Some(&self.followed),
            Place::Watched => None,
        }
    }
}

/// What a key takes, in bytes.
pub(super) fn weight(key: &Key) -> usize {
    let text = match key {
        Key::Task { id, .. } => id.as_str().len(),
        Key::Local(_) => 0,
    };
    // In the index and with the resident.
    2 * (text + size_of::<Key>())
}

impl Resident {
    fn is_expired(&self, now: Instant, ttl: Duration) -> bool {
        let since = match self.place {
            Place::Ended(at) | Place::Idle(at) | Place::Followed(at) => at,
            Place::Expected(until) => until.max(self.active),
            Place::Watched => return false,
        };
        now.saturating_duration_since(since) >= ttl
    }

    fn place(&self, stand: &Stand) -> Place {
        match stand {
            Stand { is_finished: true, .. } => Place::Ended(self.active),
            Stand { is_watched: true, .. } => Place::Watched,
            Stand { expected: Some(until), .. } => Place::Expected(*until),
            Stand { is_followed: true, .. } => Place::Followed(self.active),
            Stand { .. } => Place::Idle(self.active),
        }
    }
}

impl Shard {
    pub(super) fn new(ttl: Duration) -> Self {
        Self {
            ttl,
            index: HashMap::new(),
            residents: HashMap::new(),
            ended: BTreeSet::new(),
            idle: BTreeSet::new(),
            followed: BTreeSet::new(),
            expected: BTreeSet::new(),
        }
    }

    /// Who has the key, gone or expired or not.
    pub(super) fn holder(&self, key: &Key) -> Option<Arc<Entry>> {
        self.index.get(key).cloned()
    }

    /// Gives the key to the entry, unless another one has it.
    pub(super) fn claim(&mut self, key: &Key, entry: &Arc<Entry>) -> Result<(), Arc<Entry>> {
        match self.index.get(key) {
            Some(other) if !other.is_gone() && !Arc::ptr_eq(other, entry) => Err(other.clone()),
            _ => {
                self.index.insert(key.clone(), entry.clone());
                Ok(())
            }
        }
    }

    /// Takes the key from the entry, if it has it.
    pub(super) fn unclaim(&mut self, key: &Key, entry: &Arc<Entry>) {
        if self.index.get(key).is_some_and(|holder| Arc::ptr_eq(holder, entry)) {
            self.index.remove(key);
        }
    }

    /// Takes in an entry whose place and bytes are counted already, unless another one has the key. Says whether it did.
    pub(super) fn house(
        &mut self,
        id: u64,
        key: &Key,
        entry: &Arc<Entry>,
        bytes: usize,
        now: Instant,
        tally: &Tally,
    ) -> bool {
        let is_free = self.claim(key, entry).is_ok();
        if is_free {
            let (entry, keys) = (entry.clone(), vec![key.clone()]);
            self.residents.insert(id, Resident { entry, keys, active: now, place: Place::Watched, bytes });
            self.settle(id, tally);
        }
        is_free
    }

    /// Notes a further key of a resident. Says whether the entry still lives here.
    pub(super) fn add_key(&mut self, id: u64, key: &Key, tally: &Tally) -> bool {
        let Some(resident) = self.residents.get_mut(&id) else { return false };
        if !resident.keys.contains(key) {
            resident.keys.push(key.clone());
            self.settle(id, tally);
        }
        true
    }

    /// Whether the entry lives here and has not expired.
    pub(super) fn has(&self, id: u64, now: Instant) -> bool {
        self.residents.get(&id).is_some_and(|resident| !resident.is_expired(now, self.ttl))
    }

    /// Notes activity; what has expired is not brought back by it.
    pub(super) fn touch(&mut self, id: u64, now: Instant) {
        if let Some(resident) = self.residents.get_mut(&id)
            && !resident.is_expired(now, self.ttl)
        {
            resident.active = resident.active.max(now);
        }
    }

    /// Puts a resident where it belongs by now, and counts what it takes.
    pub(super) fn settle(&mut self, id: u64, tally: &Tally) {
        let Some(resident) = self.residents.get_mut(&id) else { return };
        let stand = resident.entry.stand();
        let bytes = stand.bytes + resident.keys.iter().map(weight).sum::<usize>();
        if bytes >= resident.bytes {
            tally.bytes.fetch_add(bytes - resident.bytes, Ordering::Relaxed);
        } else {
            tally.bytes.fetch_sub(resident.bytes - bytes, Ordering::Relaxed);
        }
        resident.bytes = bytes;
        let (before, after) = (resident.place, resident.place(&stand));
        resident.place = after;
        if before != after {
            self.leave(id, before, tally);
            self.enter(id, after, tally);
        }
    }

    fn enter(&mut self, id: u64, place: Place, tally: &Tally) {
        if let Some(counter) = tally.counter(place) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
        if let Some((queue, at)) = self.queue(place) {
            queue.insert((at, id));
        }
    }

    fn leave(&mut self, id: u64, place: Place, tally: &Tally) {
        if let Some(counter) = tally.counter(place) {
            counter.fetch_sub(1, Ordering::Relaxed);
        }
        if let Some((queue, at)) = self.queue(place) {
            queue.remove(&(at, id));
        }
    }

    fn queue(&mut self, place: Place) -> Option<(&mut BTreeSet<(Instant, u64)>, Instant)> {
        match place {
            Place::Ended(at) => Some((&mut self.ended, at)),
            Place::Idle(at) => Some((&mut self.idle, at)),
            Place::Followed(at) => Some((&mut self.followed, at)),
            Place::Expected(until) => Some((&mut self.expected, until)),
            Place::Watched => None,
        }
    }

    /// Whoever was expected until now, and did not come, is not expected any more.
    pub(super) fn release_due(&mut self, now: Instant, tally: &Tally) {
        while let Some((until, id)) = self.expected.first().copied().filter(|(until, _)| *until <= now) {
            let Some(resident) = self.residents.get_mut(&id) else { return };
            resident.entry.stop_expecting(now);
            resident.active = resident.active.max(until);
            self.settle(id, tally);
        }
    }

    /// Removes whoever of this class may go first. Who is followed goes only when expired; without a time nothing is.
    pub(super) fn victim(
        &mut self,
        class: Class,
        spare: Option<u64>,
        now: Option<Instant>,
        tally: &Tally,
    ) -> Option<Resident> {
        if let Some(now) = now {
            self.release_due(now, tally);
        }
        let id = self.first(class, spare, tally)?;
        let may_go = class != Class::Followed || now.is_some_and(|now| !self.has(id, now));
        if may_go { self.remove(id, tally) } else { None }
    }

    /// Removes all that have expired.
    pub(super) fn expired(&mut self, now: Instant, tally: &Tally) -> Vec<Resident> {
        self.release_due(now, tally);
        let mut dropped = Vec::new();
        for class in [Class::Ended, Class::Idle, Class::Followed] {
            while let Some(id) = self.first(class, None, tally)
                && let Some(resident) = self.remove_expired(id, now, tally)
            {
                dropped.push(resident);
            }
        }
        dropped
    }

    /// Removes a resident if it has expired.
    pub(super) fn remove_expired(&mut self, id: u64, now: Instant, tally: &Tally) -> Option<Resident> {
        if self.has(id, now) {
            return None;
        }
        self.remove(id, tally)
    }

    /// Whether somebody here may go.
    pub(super) fn has_loose(&mut self, now: Instant, tally: &Tally) -> bool {
        self.release_due(now, tally);
        let overdue = self.first(Class::Followed, None, tally).is_some_and(|id| !self.has(id, now));
        overdue || !self.ended.is_empty() || !self.idle.is_empty()
    }

    /// Who has not expired.
    pub(super) fn alive(&self, now: Instant) -> Vec<Arc<Entry>> {
        let alive = self.residents.values().filter(|resident| !resident.is_expired(now, self.ttl));
        alive.map(|resident| resident.entry.clone()).collect()
    }

    /// Who of this class was active least recently.
    fn first(&mut self, class: Class, spare: Option<u64>, tally: &Tally) -> Option<u64> {
        loop {
            let queue = match class {
                Class::Ended => &self.ended,
                Class::Idle => &self.idle,
                Class::Followed => &self.followed,
            };
            let at = *queue.iter().find(|(_, id)| Some(*id) != spare)?;
            // Somebody may have begun to watch a moment ago.
            self.settle(at.1, tally);
            let still = match class {
                Class::Ended => &self.ended,
                Class::Idle => &self.idle,
                Class::Followed => &self.followed,
            };
            if still.contains(&at) {
                return Some(at.1);
            }
        }
    }

    /// Removes a resident. Its keys are still to be taken from it.
    pub(super) fn remove(&mut self, id: u64, tally: &Tally) -> Option<Resident> {
        let resident = self.residents.remove(&id)?;
        resident.entry.mark_gone();
        self.leave(id, resident.place, tally);
        tally.give_back(resident.bytes);
        Some(resident)
    }
}
