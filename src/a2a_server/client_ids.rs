//! Ids that the gateway remembers for A2A clients: those that clients of A2A 0.1 make for tasks and
//! conversations of newer agents, which make their own; and the tasks of each agent that each client
//! has seen, as a list of tasks holds no others.
//!
//! Only in this process, bounded, and for a limited time: for a forgotten client id the response is
//! that the task is unknown. A task that a client names is checked by its handle. See also `ids` for
//! clients of newer versions.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use crate::a2a::translate::IdKind;
use crate::sync::lock;

/// Names of a caller and an agent.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct OwnerKey {
    caller: Arc<str>,
    agent: Arc<str>,
}

impl OwnerKey {
    pub(super) fn new(caller: &str, agent: &str) -> Self {
        Self { caller: caller.into(), agent: agent.into() }
    }
}

/// An id of a client or of an agent.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct IdKey {
    pub(super) kind: IdKind,
    /// The party that made the id.
    pub(super) side: Side,
    pub(super) id: Box<str>,
}

/// The ids of one object, one of each party.
#[derive(Debug, Clone, Copy)]
pub(super) struct AssignedIds<'a> {
    pub(super) kind: IdKind,
    pub(super) client: &'a str,
    pub(super) agent: &'a str,
}

/// Table entries of one task: its own id and that of its conversation, in both directions.
const ENTRIES_PER_TASK: usize = 4;

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
pub(super) struct ClientIdMap {
    all: Mutex<ClientIdTables>,
    limits: ShownTasksLimits,
}

/// Ids of one caller at one agent.
type IdTable = HashMap<IdKey, Counterpart>;

#[derive(Default)]
struct ClientIdTables {
    of: HashMap<OwnerKey, IdTable>,
    count: usize,
}

/// Id of the other party for the same object.
struct Counterpart {
    id: Box<str>,
    until: Instant,
}

impl Side {
    fn other(self) -> Self {
        match self {
            Self::Client => Self::Agent,
            Self::Agent => Self::Client,
        }
    }
}

impl ClientIdMap {
    /// Creates an empty map.
    pub(super) fn new(limits: ShownTasksLimits) -> Self {
        Self { all: Mutex::default(), limits }
    }

    /// Returns true if there is room for one more task.
    pub(super) fn has_room(&self, owner: &OwnerKey) -> bool {
        let ShownTasksLimits { max, max_of_caller, .. } = self.limits;
        let all = self.all();
        let own = all.of.get(owner).map_or(0, HashMap::len);
        let room = |max: usize, used: usize| {
            used.saturating_add(ENTRIES_PER_TASK) <= max.saturating_mul(ENTRIES_PER_TASK)
        };
        room(max, all.count) && (max_of_caller == 0 || room(max_of_caller, own))
    }

    /// Returns the other party's id for an id of this party.
    pub(super) fn find(&self, owner: &OwnerKey, key: IdKey, now: Instant) -> Option<String> {
        let until = now + self.limits.ttl;
        let mut all = self.all();
        let own = all.of.get_mut(owner)?;
        let other = own.get_mut(&key).filter(|other| other.until > now)?;
        other.until = until;
        let found = other.id.to_string();
        // Both directions get the same expiry.
        let back = IdKey { kind: key.kind, side: key.side.other(), id: found.as_str().into() };
        if let Some(other) = own.get_mut(&back) {
            other.until = until;
        }
        Some(found)
    }

    /// Records the client's id and the agent's id of an object. Beyond a limit nothing is recorded;
    /// a new task is checked by [`ClientIdMap::has_room`] before.
    pub(super) fn put(&self, owner: &OwnerKey, ids: AssignedIds<'_>, now: Instant) {
        let AssignedIds { kind, client, agent } = ids;
        if client.len() > MAX_CLIENT_ID_BYTES || agent.len() > MAX_CLIENT_ID_BYTES {
            return;
        }
        let ShownTasksLimits { max, max_of_caller, ttl } = self.limits;
        let until = now + ttl;
        let mut all = self.all();
        let ClientIdTables { of, count } = &mut *all;
        let held = of.get(owner);
        let key = |side, id: &str| IdKey { kind, side, id: id.into() };
        let is_known = held.is_some_and(|own| own.contains_key(&key(Side::Client, client)));
        let is_full = |max: usize, held: usize| held >= max.saturating_mul(ENTRIES_PER_TASK);
        let has_no_room = is_full(max, *count)
            || (max_of_caller > 0 && is_full(max_of_caller, held.map_or(0, HashMap::len)));
        if !is_known && has_no_room {
            return;
        }
        let own = of.entry(owner.clone()).or_default();
        for (side, id, other) in [(Side::Client, client, agent), (Side::Agent, agent, client)] {
            let is_new = own.insert(key(side, id), Counterpart { id: other.into(), until }).is_none();
            *count += usize::from(is_new);
        }
    }

    /// Removes ids that have not been used for too long.
    pub(super) fn sweep(&self, now: Instant) {
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

/// Names of a caller and an agent.
#[derive(Debug, Clone, Copy)]
pub(super) struct CallerAgent<'a> {
    pub(super) caller: &'a str,
    pub(super) agent: &'a str,
}

impl From<CallerAgent<'_>> for OwnerKey {
    fn from(owner: CallerAgent<'_>) -> Self {
        Self::new(owner.caller, owner.agent)
    }
}

/// Record of shown tasks.
pub(super) struct ShownTasks {
    all: Mutex<Shards>,
    limits: ShownTasksLimits,
}

/// Limits of the record.
#[derive(Debug, Clone, Copy)]
pub(super) struct ShownTasksLimits {
    /// Tasks in total.
    pub(super) max: usize,
    /// Tasks of one caller at one agent; 0 for the total limit.
    pub(super) max_of_caller: usize,
    /// Lifetime after a task was last shown.
    pub(super) ttl: Duration,
}

/// Longest id that is recorded, in bytes. Those of agents are mostly UUIDs.
const MAX_ID_BYTES: usize = 512;

#[derive(Default)]
struct Shards {
    tasks: HashMap<OwnerKey, HashMap<Box<str>, Instant>>,
    count: usize,
}

impl ShownTasks {
    /// Creates an empty record.
    pub(super) fn new(limits: ShownTasksLimits) -> Self {
        Self { all: Mutex::default(), limits }
    }

    /// Records that a task is shown. Beyond a limit it is not recorded.
    pub(super) fn record(&self, owner: CallerAgent<'_>, task: &str, now: Instant) {
        let ShownTasksLimits { max, max_of_caller, ttl } = self.limits;
        let until = now + ttl;
        let owner = OwnerKey::from(owner);
        let mut all = self.all();
        let Shards { tasks, count } = &mut *all;
        if let Some(known) = tasks.get_mut(&owner).and_then(|own| own.get_mut(task)) {
            *known = until;
            return;
        }
        let own = tasks.get(&owner).map_or(0, HashMap::len);
        if task.len() <= MAX_ID_BYTES && *count < max && (max_of_caller == 0 || own < max_of_caller) {
            *count += 1;
            tasks.entry(owner).or_default().insert(task.into(), until);
        }
    }

    /// Returns the number of tasks that were shown.
    pub(super) fn count(&self, owner: CallerAgent<'_>) -> usize {
        self.all().tasks.get(&OwnerKey::from(owner)).map_or(0, HashMap::len)
    }

    /// Returns true if a task was shown.
    pub(super) fn was_shown(&self, owner: CallerAgent<'_>, task: &str, now: Instant) -> bool {
        let all = self.all();
        let own = all.tasks.get(&OwnerKey::from(owner));
        own.and_then(|own| own.get(task)).is_some_and(|until| *until > now)
    }

    /// Removes tasks that were shown too long ago.
    pub(super) fn sweep(&self, now: Instant) {
        let mut all = self.all();
        all.tasks.retain(|_, own| {
            own.retain(|_, until| *until > now);
            !own.is_empty()
        });
        all.count = all.tasks.values().map(HashMap::len).sum();
    }

    fn all(&self) -> MutexGuard<'_, Shards> {
        lock(&self.all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ann() -> OwnerKey {
        OwnerKey::new("key:ann", "bard")
    }

    fn ben() -> OwnerKey {
        OwnerKey::new("key:ben", "bard")
    }

    fn put(map: &ClientIdMap, owner: &OwnerKey, kind: IdKind, [client, agent]: [&str; 2], now: Instant) {
        map.put(owner, AssignedIds { kind, client, agent }, now);
    }

    fn names(max: usize, max_of_caller: usize) -> ClientIdMap {
        ClientIdMap::new(ShownTasksLimits { max, max_of_caller, ttl: Duration::from_secs(9) })
    }

    #[test]
    fn a_name_leads_to_the_id_of_its_caller_s_task_and_back_for_a_time() {
        let (names, now) = (names(9, 0), Instant::now());
        put(&names, &ann(), IdKind::Task, ["mine", "t-1"], now);
        let find = |owner: &OwnerKey, kind, side, id: &str, now| {
            names.find(owner, IdKey { kind, side, id: id.into() }, now)
        };
        assert_eq!(find(&ann(), IdKind::Task, Side::Client, "mine", now).as_deref(), Some("t-1"));
        assert_eq!(find(&ann(), IdKind::Task, Side::Agent, "t-1", now).as_deref(), Some("mine"));
        assert_eq!(find(&ben(), IdKind::Task, Side::Client, "mine", now), None);
        assert_eq!(find(&OwnerKey::new("key:ann", "bank"), IdKind::Task, Side::Client, "mine", now), None);
        assert_eq!(find(&ann(), IdKind::Context, Side::Client, "mine", now), None);
        let later = now + Duration::from_secs(8);
        assert!(find(&ann(), IdKind::Task, Side::Client, "mine", later).is_some(), "its use keeps it");
        names.sweep(now + Duration::from_secs(10));
        assert!(find(&ann(), IdKind::Task, Side::Client, "mine", now + Duration::from_secs(16)).is_some());
        let back = find(&ann(), IdKind::Task, Side::Agent, "t-1", now + Duration::from_secs(16));
        assert_eq!(back.as_deref(), Some("mine"), "one goes with the other");
        names.sweep(now + Duration::from_secs(60));
        assert_eq!(names.all().count, 0);
    }

    #[test]
    fn nobody_names_more_than_there_is_room_for() {
        let (names, now) = (names(3, 2), Instant::now());
        for task in ["1", "2"] {
            assert!(names.has_room(&ann()));
            put(&names, &ann(), IdKind::Task, [task, &format!("t-{task}")], now);
            put(&names, &ann(), IdKind::Context, [task, &format!("c-{task}")], now);
        }
        assert!(!names.has_room(&ann()) && names.has_room(&ben()));
        put(&names, &ben(), IdKind::Task, [&"x".repeat(MAX_CLIENT_ID_BYTES + 1), "t"], now);
        assert!(!names.all().of.contains_key(&ben()));
        put(&names, &ben(), IdKind::Task, ["1", "t-9"], now);
        put(&names, &ben(), IdKind::Context, ["1", "c-9"], now);
        assert!(!names.has_room(&ben()), "there is room for three in all");
    }

    fn owner<'a>(caller: &'a str, agent: &'a str) -> CallerAgent<'a> {
        CallerAgent { caller, agent }
    }

    #[test]
    fn a_task_is_listed_to_whom_it_was_shown_and_for_a_time() {
        let limits = ShownTasksLimits { max: 2, max_of_caller: 0, ttl: Duration::from_secs(9) };
        let (shown, now) = (ShownTasks::new(limits), Instant::now());
        let (ann, ben) = (owner("key:ann", "bard"), owner("key:ben", "bard"));
        shown.record(ann, "1", now);
        shown.record(ann, "1", now);
        shown.record(ben, "2", now);
        shown.record(ben, "3", now);
        assert!(shown.was_shown(ann, "1", now) && !shown.was_shown(ben, "1", now));
        assert!(!shown.was_shown(owner("key:ann", "bank"), "1", now));
        assert!(shown.was_shown(ben, "2", now) && !shown.was_shown(ben, "3", now), "there is room for two");
        assert_eq!((shown.count(ann), shown.count(ben)), (1, 1));
        let later = now + Duration::from_secs(9);
        assert!(!shown.was_shown(ann, "1", later));
        shown.sweep(later);
        shown.record(ben, "3", later);
        assert!(shown.was_shown(ben, "3", later) && shown.count(ann) == 0);
    }

    #[test]
    fn nobody_fills_the_list_of_others_or_the_memory() {
        let shown =
            ShownTasks::new(ShownTasksLimits { max: 9, max_of_caller: 2, ttl: Duration::from_secs(9) });
        let (ann, ben, now) = (owner("key:ann", "bard"), owner("key:ben", "bard"), Instant::now());
        for task in ["1", "2", "3"] {
            shown.record(ann, task, now);
        }
        shown.record(ben, &"x".repeat(MAX_ID_BYTES + 1), now);
        assert_eq!((shown.count(ann), shown.count(ben)), (2, 0));
        shown.record(ben, "4", now);
        assert!(shown.was_shown(ben, "4", now) && !shown.was_shown(ann, "3", now));
    }
}
