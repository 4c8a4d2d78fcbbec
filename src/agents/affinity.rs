//! The affinity map: the endpoint of an agent that holds each task and each conversation.
//!
//! Bounded, and forgotten some time after the last use; a task that is not in the map is located
//! (see `locate`). Keys are hashes, so that long ids of an agent take no room. Agents with one
//! endpoint need no map.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use tokio::time::Instant;

use crate::sync::lock;

/// The maximum number of ids of one generation; there are two generations.
const MAX_GENERATION_IDS: usize = 65_536;
/// The time for which entries are added to a generation.
const AGE: Duration = Duration::from_secs(24 * 3600);

/// The key of an affinity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum AffinityKey<'a> {
    /// A task, by its id.
    Task(&'a str),
    /// A conversation, by its id.
    Context(&'a str),
}

/// The endpoint that holds a task or conversation, and the other endpoints that do not know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Affinity {
    at: usize,
    /// The round in which the others were asked.
    round: u32,
    /// The endpoints that answered in that round that they do not know it, one bit for each.
    asked: u64,
}

/// The affinities of the tasks and conversations of one agent.
pub(super) struct AffinityMap {
    hashers: [RandomState; 2],
    inside: Mutex<AffinityState>,
}

struct AffinityState {
    young: HashMap<[u64; 2], Affinity>,
    old: HashMap<[u64; 2], Affinity>,
    since: Instant,
    most: usize,
}

impl AffinityMap {
    pub(super) fn new(now: Instant) -> Self {
        Self::of(MAX_GENERATION_IDS, now)
    }

    fn of(most: usize, now: Instant) -> Self {
        let inside = AffinityState { young: HashMap::new(), old: HashMap::new(), since: now, most };
        Self { hashers: [RandomState::new(), RandomState::new()], inside: Mutex::new(inside) }
    }

    /// Returns the endpoint of this key, if it is known.
    pub(super) fn find(&self, kept: AffinityKey<'_>, now: Instant) -> Option<usize> {
        let key = self.key(kept);
        self.inside().touch(key, now).map(|home| home.at)
    }

    /// Records the endpoint of this key.
    pub(super) fn remember(&self, kept: AffinityKey<'_>, at: usize, now: Instant) {
        let key = self.key(kept);
        let mut inside = self.inside();
        let home = inside.touch(key, now).filter(|home| home.at == at);
        inside.put(key, home.unwrap_or(Affinity { at, round: 0, asked: 0 }), now);
    }

    /// Returns true if this endpoint answered in this round that it does not know the key. A round
    /// ends when any endpoint fails or returns.
    pub(super) fn was_asked(&self, kept: AffinityKey<'_>, at: usize, round: u32, now: Instant) -> bool {
        let key = self.key(kept);
        let home = self.inside().touch(key, now);
        home.is_some_and(|home| home.round == round && home.asked & bit(at) != 0)
    }

    /// Records that this endpoint does not know the key.
    pub(super) fn note_asked(&self, kept: AffinityKey<'_>, at: usize, round: u32, now: Instant) {
        let key = self.key(kept);
        let mut inside = self.inside();
        let Some(home) = inside.touch(key, now) else { return };
        let asked = if home.round == round { home.asked } else { 0 };
        inside.put(key, Affinity { round, asked: asked | bit(at), ..home }, now);
    }

    fn key(&self, kept: AffinityKey<'_>) -> [u64; 2] {
        self.hashers.each_ref().map(|hasher| hasher.hash_one(kept))
    }

    fn inside(&self) -> MutexGuard<'_, AffinityState> {
        lock(&self.inside)
    }
}

fn bit(at: usize) -> u64 {
    1 << (at % 64)
}

impl AffinityState {
    /// Returns an entry; entries that are used stay.
    fn touch(&mut self, key: [u64; 2], now: Instant) -> Option<Affinity> {
        self.turn(now);
        if let Some(home) = self.young.get(&key) {
            return Some(*home);
        }
        let home = self.old.remove(&key)?;
        self.put(key, home, now);
        Some(home)
    }

    fn put(&mut self, key: [u64; 2], home: Affinity, now: Instant) {
        if self.young.len() >= self.most && !self.young.contains_key(&key) {
            self.old = std::mem::take(&mut self.young);
            self.since = now;
        }
        self.young.insert(key, home);
    }

    /// Forgets the old generation once the young one has become old.
    fn turn(&mut self, now: Instant) {
        if now.saturating_duration_since(self.since) >= AGE {
            self.old = std::mem::take(&mut self.young);
            self.since = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_and_a_conversation_of_the_same_name_are_two() {
        let now = Instant::now();
        let homes = AffinityMap::new(now);
        homes.remember(AffinityKey::Task("x"), 1, now);
        homes.remember(AffinityKey::Context("x"), 2, now);
        assert_eq!(
            (homes.find(AffinityKey::Task("x"), now), homes.find(AffinityKey::Context("x"), now)),
            (Some(1), Some(2))
        );
        homes.remember(AffinityKey::Task("x"), 3, now);
        assert_eq!(homes.find(AffinityKey::Task("x"), now), Some(3));
    }

    #[test]
    fn what_is_used_stays_and_the_rest_is_forgotten() {
        let mut now = Instant::now();
        let homes = AffinityMap::of(3, now);
        homes.remember(AffinityKey::Task("used"), 1, now);
        homes.remember(AffinityKey::Task("unused"), 1, now);
        for number in 0..20 {
            homes.remember(AffinityKey::Task(&number.to_string()), 2, now);
            assert_eq!(homes.find(AffinityKey::Task("used"), now), Some(1), "{number}");
        }
        assert_eq!(homes.find(AffinityKey::Task("unused"), now), None);
        let held = {
            let inside = homes.inside();
            inside.young.len() + inside.old.len()
        };
        assert!(held <= 6, "{held}");
        now += AGE;
        assert_eq!(homes.find(AffinityKey::Task("used"), now), Some(1));
        now += AGE;
        homes.find(AffinityKey::Task("other"), now);
        now += AGE;
        assert_eq!(homes.find(AffinityKey::Task("used"), now), None);
    }

    #[test]
    fn a_place_is_asked_once_in_each_round() {
        let now = Instant::now();
        let homes = AffinityMap::new(now);
        let task = AffinityKey::Task("x");
        homes.note_asked(task, 2, 1, now);
        assert!(!homes.was_asked(task, 2, 1, now), "it has no home");
        homes.remember(task, 1, now);
        for round in [1, 2] {
            assert!(!homes.was_asked(task, 2, round, now));
            homes.note_asked(task, 2, round, now);
            homes.note_asked(task, 3, round, now);
            homes.remember(task, 1, now);
            let asked = [2, 3, 4].map(|at| homes.was_asked(task, at, round, now));
            assert_eq!(asked, [true, true, false], "it has not moved");
        }
        homes.remember(task, 3, now);
        assert!(!homes.was_asked(task, 2, 2, now), "it has moved");
    }
}
