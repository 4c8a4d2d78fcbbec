//! The map against a naive model, over many seeds, with a virtual clock.
//!
//! The model is a plain list that implements the rules in the most obvious way. With one shard both must agree in everything;
//! with several the order of dropping may differ, and the rules themselves are checked. A failure names its seed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::map::MIN_TASK_BYTES;
use super::shard::KEY_BYTES;
use super::tests::{chunk, status};
use super::*;
use crate::a2a::TaskState;
use crate::bridge::output::AgentOutput;
use crate::fault::AgentFailure;

const TTL: u64 = 1000;
const MAX_SIMULATED_TASKS: usize = 8;
const BYTES: usize = 40_000;
const KEYS: u8 = 24;

struct World {
    seed: u64,
    exact: bool,
    random: StdRng,
    start: Instant,
    now: u64,
    tasks: Tasks,
    rows: Vec<Row>,
    watchers: Vec<(usize, WatchGuard)>,
    followers: Vec<(usize, FollowGuard)>,
    seen: Seen,
}

/// Counters of events, so that a simulation without events fails.
#[derive(Debug, Default)]
struct Seen {
    found: usize,
    refused: usize,
    evicted: usize,
    grown_over: usize,
    expired: usize,
    aliased: usize,
    compressed: usize,
}

impl World {
    fn new(seed: u64, shards: usize) -> Self {
        let bounds = TaskLimits {
            most: MAX_SIMULATED_TASKS,
            bytes: BYTES,
            ttl: Duration::from_millis(TTL),
            artifact_bytes: 100,
            compress_after: Duration::from_millis(10),
        };
        Self {
            seed,
            exact: shards == 1,
            random: StdRng::seed_from_u64(seed),
            start: Instant::now(),
            now: 0,
            tasks: Tasks::with(bounds, shards, [seed, 0]),
            rows: Vec::new(),
            watchers: Vec::new(),
            followers: Vec::new(),
            seen: Seen::default(),
        }
    }

    fn at(&self, ms: u64) -> Instant {
        self.start + Duration::from_millis(ms)
    }

    fn instant(&self) -> Instant {
        self.at(self.now)
    }

    fn times(&self) -> Timestamp {
        Timestamp { instant: self.instant(), unix_ms: self.now }
    }

    fn key(&mut self) -> EntryKey {
        let number = self.random.gen_range(0..KEYS);
        key(number)
    }

    fn holder(&self, key: &EntryKey) -> Option<usize> {
        self.rows.iter().position(|row| !row.dropped && row.keys.contains(key))
    }

    fn alive(&self, key: &EntryKey) -> Option<usize> {
        self.holder(key).filter(|at| !self.rows[*at].is_expired(self.now))
    }

    /// Returns any task that is in the map; now and then one that is not any more.
    fn any_row(&mut self) -> Option<usize> {
        let with_dropped = self.random.gen_bool(0.02);
        let rows: Vec<usize> =
            (0..self.rows.len()).filter(|at| with_dropped || !self.rows[*at].dropped).collect();
        (!rows.is_empty()).then(|| rows[self.random.gen_range(0..rows.len())])
    }

    fn bytes(&self) -> usize {
        self.rows.iter().filter(|row| !row.dropped).map(Row::bytes).sum()
    }

    fn count(&self) -> usize {
        self.rows.iter().filter(|row| !row.dropped).count()
    }

    /// Drops by the rules, in the model, until `fits`. Returns true if it fits then.
    fn make_room(&mut self, spare: Option<usize>, fits: impl Fn(&Self) -> bool) -> bool {
        while !fits(self) {
            let others = (0..self.rows.len()).filter(|at| Some(*at) != spare);
            let ranked = others.filter_map(|at| Some((self.rows[at].rank(self.now)?, at)));
            let first = ranked.min_by_key(|(rank, at)| (*rank, self.rows[*at].active(self.now), *at));
            let Some((_, first)) = first else { return false };
            if self.exact {
                self.rows[first].dropped = true;
                self.seen.evicted += 1;
            } else if !self.follow_the_map(spare) {
                return false;
            }
        }
        true
    }

    /// With several shards, drops from the model what the map has dropped, if the rules allow that.
    /// Returns true if there was any.
    fn follow_the_map(&mut self, spare: Option<usize>) -> bool {
        let gone = |row: &Row| !row.dropped && row.entry.is_gone();
        let mut gone: Vec<usize> = (0..self.rows.len()).filter(|at| gone(&self.rows[*at])).collect();
        gone.sort_by_key(|at| self.rows[*at].rank(self.now));
        for at in &gone {
            let row = &self.rows[*at];
            let rank = row.rank(self.now);
            assert!(rank.is_some() && Some(*at) != spare, "seed {}: {at} may not go", self.seed);
            let others = (0..self.rows.len()).filter(|other| Some(*other) != spare);
            let best = others.filter_map(|other| self.rows[other].rank(self.now)).min();
            assert_eq!(rank, best, "seed {}: somebody had to go before {at}", self.seed);
            self.rows[*at].dropped = true;
            self.seen.evicted += 1;
        }
        !gone.is_empty()
    }

    fn find(&mut self) {
        let key = self.key();
        let expected = self.alive(&key);
        let found = self.tasks.find(&key, self.instant());
        assert_eq!(found.is_some(), expected.is_some(), "seed {}: {key:?}", self.seed);
        if let (Some(found), Some(at)) = (found, expected) {
            assert!(Arc::ptr_eq(&found, &self.rows[at].entry), "seed {}: another one", self.seed);
            self.rows[at].touch(self.now);
            self.seen.found += 1;
        }
    }

    fn admit(&mut self) {
        let key = self.key();
        let named = self.random.gen_bool(0.7);
        let mut work = AgentOutput::new(BYTES);
        work.task_id = named.then(|| "t".into());
        let entry = TaskEntry::new("agent".into(), [0; 16], work, self.times());
        if self.random.gen_bool(0.8) {
            entry.acknowledge();
        }
        let admitted = self.tasks.admit(key.clone(), || entry, self.instant());
        if let Some(at) = self.holder(&key).filter(|at| self.rows[*at].is_expired(self.now)) {
            self.rows[at].dropped = true;
        }
        if let Some(at) = self.alive(&key) {
            let (found, new) = admitted.unwrap();
            assert!(!new && Arc::ptr_eq(&found, &self.rows[at].entry), "seed {}: not the same", self.seed);
            self.rows[at].touch(self.now);
            return;
        }
        let bytes = MIN_TASK_BYTES + if named { 1 } else { 0 } + KEY_BYTES;
        let fits = |world: &Self| world.count() < MAX_SIMULATED_TASKS && world.bytes() + bytes <= BYTES;
        if !self.make_room(None, fits) {
            assert_eq!(admitted.err(), Some(TaskMapFull), "seed {}: no task may be evicted", self.seed);
            self.seen.refused += 1;
            return;
        }
        let (entry, new) = admitted.unwrap_or_else(|_| panic!("seed {}: refused, with room", self.seed));
        assert!(new && entry.bytes() + KEY_BYTES == bytes, "seed {}", self.seed);
        self.rows.push(Row::new(entry, key, named, self.now));
    }

    fn alias(&mut self, at: usize) {
        let key = self.key();
        let owner = self.tasks.add_alias(key.clone(), &self.rows[at].entry, self.instant());
        let holder = self.holder(&key);
        if let Some(expired) = holder.filter(|holder| self.rows[*holder].is_expired(self.now)) {
            self.rows[expired].dropped = true;
        }
        let expected = self.alive(&key).unwrap_or(at);
        assert!(Arc::ptr_eq(&owner, &self.rows[expected].entry), "seed {}: wrong owner", self.seed);
        if expected == at && !self.rows[at].dropped && holder != Some(at) {
            self.rows[at].keys.push(key);
            self.seen.aliased += 1;
        }
    }

    fn apply(&mut self, at: usize) {
        let state = match self.random.gen_range(0..10) {
            0 => TaskState::Completed,
            1 => TaskState::InputRequired,
            _ => TaskState::Working,
        };
        let grows = self.random.gen_bool(0.5);
        let event = if grows {
            chunk(&"x".repeat(self.random.gen_range(0..6000)), self.random.gen_bool(0.5))
        } else {
            status(state)
        };
        let before = self.rows[at].bytes();
        let result = self.rows[at].entry.apply(event, self.times());
        let after = self.rows[at].bytes();
        let row = &mut self.rows[at];
        if !row.is_finished() {
            row.touch(self.now);
            row.named |= !grows;
            row.finished = !grows && state == TaskState::Completed;
        }
        assert!(result.is_ok() || after <= BYTES + 4096, "seed {}", self.seed);
        if row.dropped {
            return;
        }
        if after > before && !self.make_room(Some(at), |world| world.bytes() <= BYTES) {
            self.seen.grown_over += 1;
        }
    }

    fn sweep(&mut self) {
        let now = self.instant();
        let dropped: Vec<Arc<TaskEntry>> =
            (0..self.tasks.shards()).flat_map(|_| self.tasks.sweep(now)).collect();
        let mut count = 0;
        for row in self.rows.iter_mut().filter(|row| !row.dropped && row.is_expired(self.now)) {
            let is_told = dropped.iter().any(|entry| Arc::ptr_eq(entry, &row.entry));
            assert!(is_told && row.entry.is_gone(), "seed {}: an expired one was left", self.seed);
            row.dropped = true;
            count += 1;
        }
        assert_eq!(dropped.len(), count, "seed {}: more than the expired were dropped", self.seed);
        self.seen.expired += count;
    }

    /// Compresses idle tasks: only the sizes change.
    fn compress(&mut self) {
        let now = self.instant();
        (0..self.tasks.shards()).for_each(|_| self.tasks.compress_idle(now).unwrap());
        self.seen.compressed += self.tasks.compressed();
        for row in self.rows.iter().filter(|row| row.entry.is_compressed()) {
            assert!(row.finished && row.watchers == 0 && !row.followed, "seed {}: in use", self.seed);
        }
    }

    fn guards(&mut self, at: usize) {
        let before = self.rows[at].bytes();
        self.change_guards(at);
        let after = self.rows[at].bytes();
        // A compressed one is expanded.
        if !self.rows[at].dropped
            && after > before
            && !self.make_room(Some(at), |world| world.bytes() <= BYTES)
        {
            self.seen.grown_over += 1;
        }
    }

    fn change_guards(&mut self, at: usize) {
        match self.random.gen_range(0..7) {
            0 | 1 => {
                self.watchers.push((at, self.rows[at].entry.watch()));
                self.rows[at].watchers += 1;
            }
            2 | 3 if !self.watchers.is_empty() => {
                let which = self.random.gen_range(0..self.watchers.len());
                let (at, watcher) = self.watchers.swap_remove(which);
                watcher.end(self.instant());
                self.rows[at].touch(self.now);
                self.rows[at].watchers -= 1;
            }
            4 => {
                let until = self.now + self.random.gen_range(0..600);
                self.rows[at].entry.set_push_expected(self.at(until));
                let row = &mut self.rows[at];
                row.expected = row.expected.max(until);
            }
            5 => {
                let following = self.rows[at].entry.begin_following();
                let row = &mut self.rows[at];
                assert_eq!(following.is_some(), !row.followed, "seed {}: two followers", self.seed);
                if let Some(following) = following {
                    (row.followed, row.over) = (true, false);
                    self.followers.push((at, following));
                }
            }
            _ if !self.followers.is_empty() => {
                let which = self.random.gen_range(0..self.followers.len());
                let (at, following) = self.followers.swap_remove(which);
                if self.random.gen_bool(0.5) {
                    following.entry().end(Err(AgentFailure::ConnectionLost("test")), self.times());
                }
                drop(following);
                (self.rows[at].followed, self.rows[at].over) = (false, true);
            }
            _ => {}
        }
    }

    fn step(&mut self) {
        match self.random.gen_range(0..100) {
            0..15 => self.find(),
            15..35 => self.admit(),
            35..38 => self.sweep(),
            38..43 => self.compress(),
            43..50 => self.now += self.random.gen_range(0..150),
            50 => self.now += TTL + 1,
            choice => {
                let Some(at) = self.any_row() else { return };
                match choice {
                    51..55 => self.alias(at),
                    55..75 => self.apply(at),
                    _ => self.guards(at),
                }
            }
        }
        self.check();
    }

    fn check(&mut self) {
        let seed = self.seed;
        assert_eq!(self.tasks.len(), self.count(), "seed {seed}: entries");
        assert_eq!(self.tasks.bytes(), self.bytes(), "seed {seed}: bytes");
        let keys: usize = self.rows.iter().filter(|row| !row.dropped).map(|row| row.keys.len()).sum();
        assert_eq!(self.tasks.keys(), keys, "seed {seed}: keys");
        assert!(self.tasks.len() <= MAX_SIMULATED_TASKS, "seed {seed}: over-admitted");
        for row in &self.rows {
            assert_eq!(row.entry.is_gone(), row.dropped, "seed {seed}: dropped");
        }
        let fits = self.count() < MAX_SIMULATED_TASKS && self.bytes() + MIN_TASK_BYTES <= BYTES;
        let has_room = fits || self.rows.iter().any(|row| row.rank(self.now).is_some());
        // Not each time: the query orders the queues.
        if self.random.gen_bool(0.2) {
            assert_eq!(self.tasks.has_room(self.instant()), has_room, "seed {seed}: room");
        }
        let (mut shown, is_alive) = (0, |row: &&Row| !row.dropped && !row.is_expired(self.now));
        self.tasks.for_each(self.instant(), |_| shown += 1);
        assert_eq!(shown, self.rows.iter().filter(is_alive).count(), "seed {seed}: shown");
        for key in (0..KEYS).map(key) {
            let found = self.tasks.get_untouched(&key, self.instant());
            let expected = self.alive(&key).map(|at| &self.rows[at].entry);
            assert_eq!(found.as_ref().map(Arc::as_ptr), expected.map(Arc::as_ptr), "seed {seed}: {key:?}");
        }
    }
}

fn key(number: u8) -> EntryKey {
    match number % 2 {
        0 => EntryKey::Local([number; 16]),
        _ => EntryKey::Task { agent: "agent".into(), id: format!("task-{number}").into() },
    }
}

fn simulate(shards: usize, seeds: u64) {
    let mut seen = [0; 7];
    for seed in 0..seeds {
        let mut world = World::new(seed, shards);
        (0..400).for_each(|_| world.step());
        let Seen { found, refused, evicted, grown_over, expired, aliased, compressed } = world.seen;
        let counts = [found, refused, evicted, grown_over, expired, aliased, compressed];
        for (sum, one) in seen.iter_mut().zip(counts) {
            *sum += one;
        }
    }
    assert!(seen.iter().all(|sum| *sum > 10), "too little happens: {seen:?}");
}

#[test]
fn one_shard_does_what_the_model_does() {
    simulate(1, 100);
}

#[test]
fn several_shards_keep_to_the_rules() {
    simulate(4, 50);
    simulate(64, 40);
}

/// A task as the model sees it.
struct Row {
    entry: Arc<TaskEntry>,
    keys: Vec<EntryKey>,
    finished: bool,
    named: bool,
    over: bool,
    watchers: usize,
    expected: u64,
    followed: bool,
    active: u64,
    dropped: bool,
}

impl Row {
    fn new(entry: Arc<TaskEntry>, key: EntryKey, named: bool, active: u64) -> Self {
        Self {
            entry,
            keys: vec![key],
            finished: false,
            named,
            over: false,
            watchers: 0,
            expected: 0,
            followed: false,
            active,
            dropped: false,
        }
    }

    /// Records activity: a lookup or an event of the agent; too late if the task has expired.
    fn touch(&mut self, now: u64) {
        if !self.is_expired(now) {
            self.active = self.active.max(now);
        }
    }

    fn is_finished(&self) -> bool {
        self.finished || self.over && !self.named
    }

    fn is_watched(&self, now: u64) -> bool {
        self.watchers > 0 || self.expected > now
    }

    /// Returns the time of the last activity: an expected watcher that did not come counts until
    /// its time.
    fn active(&self, now: u64) -> u64 {
        if !self.is_finished() && self.expected <= now { self.active.max(self.expected) } else { self.active }
    }

    fn is_expired(&self, now: u64) -> bool {
        let is_held = !self.is_finished() && self.is_watched(now);
        !is_held && now >= self.active(now) + TTL
    }

    /// Returns the position in the order of eviction; `None` if the task may not be evicted.
    fn rank(&self, now: u64) -> Option<u8> {
        match self {
            _ if self.dropped => None,
            _ if self.is_finished() => Some(0),
            _ if self.is_watched(now) => None,
            _ if !self.followed => Some(1),
            _ => (self.named || self.is_expired(now)).then_some(2),
        }
    }

    fn bytes(&self) -> usize {
        self.entry.bytes() + self.keys.len() * KEY_BYTES
    }
}
