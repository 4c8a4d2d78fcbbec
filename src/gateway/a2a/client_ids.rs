//! Ids that clients of A2A 0.1 make for tasks and conversations of newer agents, which make their
//! own.
//!
//! Only in this process, bounded, and for a limited time: for a forgotten id the response is that
//! the task is unknown. See also `ids` for clients of newer versions.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use super::shown_tasks::ShownTasksLimits;
use crate::a2a::translate::IdKind;
use crate::sync::lock;

/// Names of a caller and an agent.
type OwnerKey = (Arc<str>, Arc<str>);

/// Table entries of one task: its own id and that of its conversation, in both directions.
const WORDS: usize = 4;

/// Longest id that a client may make, in bytes.
pub(super) const MAX_CLIENT_ID_BYTES: usize = 512;

/// Party that made an id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Side {
    /// The client.
    Client,
    /// The agent.
    Agent,
}

/// Client ids and agent ids of all callers.
pub(in crate::gateway) struct ClientIdMap {
    all: Mutex<ClientIdTables>,
    bounds: ShownTasksLimits,
}

/// Ids of one caller at one agent.
type IdTable = HashMap<(IdKind, Side, Box<str>), Counterpart>;

#[derive(Default)]
struct ClientIdTables {
    of: HashMap<OwnerKey, IdTable>,
    count: usize,
}

/// Id of the other party for the same object.
struct Counterpart {
    word: Box<str>,
    until: Instant,
}

impl ClientIdMap {
    /// Creates an empty map.
    pub(in crate::gateway) fn new(bounds: ShownTasksLimits) -> Self {
        Self { all: Mutex::default(), bounds }
    }

    /// Returns true if there is room for one more task.
    pub(super) fn has_room(&self, pair: (&str, &str)) -> bool {
        let ShownTasksLimits { most, of_one, .. } = self.bounds;
        let all = self.all();
        let own = all.of.get(&key(pair)).map_or(0, HashMap::len);
        let room = |most: usize, used: usize| used.saturating_add(WORDS) <= most.saturating_mul(WORDS);
        room(most, all.count) && (of_one == 0 || room(of_one, own))
    }

    /// Returns the other party's id for an id of this party.
    pub(super) fn find(
        &self,
        pair: (&str, &str),
        (kind, of, word): (IdKind, Side, &str),
        now: Instant,
    ) -> Option<String> {
        let until = now + self.bounds.ttl;
        let mut all = self.all();
        let own = all.of.get_mut(&key(pair))?;
        let other = own.get_mut(&(kind, of, word.into())).filter(|other| other.until > now)?;
        other.until = until;
        let found = other.word.to_string();
        // Both directions get the same expiry.
        let back = match of {
            Side::Client => Side::Agent,
            Side::Agent => Side::Client,
        };
        if let Some(other) = own.get_mut(&(kind, back, found.as_str().into())) {
            other.until = until;
        }
        Some(found)
    }

    /// Records the client's id and the agent's id of an object. Beyond a limit nothing is recorded;
    /// a new task is checked by [`ClientIdMap::has_room`] before.
    pub(super) fn put(&self, pair: (&str, &str), kind: IdKind, (client, agent): (&str, &str), now: Instant) {
        if client.len() > MAX_CLIENT_ID_BYTES || agent.len() > MAX_CLIENT_ID_BYTES {
            return;
        }
        let ShownTasksLimits { most, of_one, ttl } = self.bounds;
        let until = now + ttl;
        let mut all = self.all();
        let ClientIdTables { of, count } = &mut *all;
        let held = of.get(&key(pair));
        let is_known = held.is_some_and(|own| own.contains_key(&(kind, Side::Client, client.into())));
        let is_full = |most: usize, held: usize| held >= most.saturating_mul(WORDS);
        let has_no_room =
            is_full(most, *count) || (of_one > 0 && is_full(of_one, held.map_or(0, HashMap::len)));
        if !is_known && has_no_room {
            return;
        }
        let own = of.entry(key(pair)).or_default();
        for (whose, word, other) in [(Side::Client, client, agent), (Side::Agent, agent, client)] {
            let is_new =
                own.insert((kind, whose, word.into()), Counterpart { word: other.into(), until }).is_none();
            *count += usize::from(is_new);
        }
    }

    /// Removes ids that have not been used for too long.
    pub(in crate::gateway) fn sweep(&self, now: Instant) {
        let mut all = self.all();
        all.of.retain(|_, own| {
            own.retain(|_, other| other.until > now);
            !own.is_empty()
        });
        all.count = all.of.values().map(HashMap::len).sum();
    }

    fn all(&self) -> MutexGuard<'_, ClientIdTables> {
        lock(&self.all)
    }
}

fn key((caller, agent): (&str, &str)) -> OwnerKey {
    (caller.into(), agent.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const ANN: (&str, &str) = ("key:ann", "bard");
    const BEN: (&str, &str) = ("key:ben", "bard");

    fn names(most: usize, of_one: usize) -> ClientIdMap {
        ClientIdMap::new(ShownTasksLimits { most, of_one, ttl: Duration::from_secs(9) })
    }

    #[test]
    fn a_name_leads_to_the_id_of_its_caller_s_task_and_back_for_a_time() {
        let (names, now) = (names(9, 0), Instant::now());
        names.put(ANN, IdKind::Task, ("mine", "t-1"), now);
        let find = |pair, kind, whose, word: &str, now| names.find(pair, (kind, whose, word), now);
        assert_eq!(find(ANN, IdKind::Task, Side::Client, "mine", now).as_deref(), Some("t-1"));
        assert_eq!(find(ANN, IdKind::Task, Side::Agent, "t-1", now).as_deref(), Some("mine"));
        assert_eq!(find(BEN, IdKind::Task, Side::Client, "mine", now), None);
        assert_eq!(find(("key:ann", "bank"), IdKind::Task, Side::Client, "mine", now), None);
        assert_eq!(find(ANN, IdKind::Context, Side::Client, "mine", now), None);
        let later = now + Duration::from_secs(8);
        assert!(find(ANN, IdKind::Task, Side::Client, "mine", later).is_some(), "its use keeps it");
        names.sweep(now + Duration::from_secs(10));
        assert!(find(ANN, IdKind::Task, Side::Client, "mine", now + Duration::from_secs(16)).is_some());
        let back = find(ANN, IdKind::Task, Side::Agent, "t-1", now + Duration::from_secs(16));
        assert_eq!(back.as_deref(), Some("mine"), "one goes with the other");
        names.sweep(now + Duration::from_secs(60));
        assert_eq!(names.all().count, 0);
    }

    #[test]
    fn nobody_names_more_than_there_is_room_for() {
        let (names, now) = (names(3, 2), Instant::now());
        for task in ["1", "2"] {
            assert!(names.has_room(ANN));
            names.put(ANN, IdKind::Task, (task, &format!("t-{task}")), now);
            names.put(ANN, IdKind::Context, (task, &format!("c-{task}")), now);
        }
        assert!(!names.has_room(ANN) && names.has_room(BEN));
        names.put(BEN, IdKind::Task, (&"x".repeat(MAX_CLIENT_ID_BYTES + 1), "t"), now);
        assert!(!names.all().of.contains_key(&key(BEN)));
        names.put(BEN, IdKind::Task, ("1", "t-9"), now);
        names.put(BEN, IdKind::Context, ("1", "c-9"), now);
        assert!(!names.has_room(BEN), "there is room for three in all");
    }
}
