//! Tasks of each agent that each A2A client has seen: a list of tasks holds no others.
//!
//! Only in this process, bounded, and for a limited time. A task that a client names is checked by
//! its handle instead.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use crate::sync::lock;

/// Names of a caller and an agent.
type CallerAgentPair = (Arc<str>, Arc<str>);

/// Record of shown tasks.
pub(in crate::gateway) struct ShownTasks {
    all: Mutex<Shards>,
    bounds: ShownTasksLimits,
}

/// Limits of the record.
#[derive(Debug, Clone, Copy)]
pub(in crate::gateway) struct ShownTasksLimits {
    /// Tasks in total.
    pub(in crate::gateway) most: usize,
    /// Tasks of one caller at one agent; 0 for the total limit.
    pub(in crate::gateway) of_one: usize,
    /// Lifetime after a task was last shown.
    pub(in crate::gateway) ttl: Duration,
}

/// Longest id that is recorded, in bytes. Those of agents are mostly UUIDs.
const MAX_ID_BYTES: usize = 512;

#[derive(Default)]
struct Shards {
    tasks: HashMap<CallerAgentPair, HashMap<Box<str>, Instant>>,
    count: usize,
}

impl ShownTasks {
    /// Creates an empty record.
    pub(in crate::gateway) fn new(bounds: ShownTasksLimits) -> Self {
        Self { all: Mutex::default(), bounds }
    }

    /// Records that a task is shown. Beyond a limit it is not recorded.
    pub(super) fn note(&self, (caller, agent): (&str, &str), task: &str, now: Instant) {
        let ShownTasksLimits { most, of_one, ttl } = self.bounds;
        let until = now + ttl;
        let pair = (caller.into(), agent.into());
        let mut all = self.all();
        let Shards { tasks, count } = &mut *all;
        if let Some(known) = tasks.get_mut(&pair).and_then(|own| own.get_mut(task)) {
            *known = until;
            return;
        }
        let own = tasks.get(&pair).map_or(0, HashMap::len);
        if task.len() <= MAX_ID_BYTES && *count < most && (of_one == 0 || own < of_one) {
            *count += 1;
            tasks.entry(pair).or_default().insert(task.into(), until);
        }
    }

    /// Returns the number of tasks that were shown.
    pub(super) fn count(&self, (caller, agent): (&str, &str)) -> usize {
        self.all().tasks.get(&(caller.into(), agent.into())).map_or(0, HashMap::len)
    }

    /// Returns true if a task was shown.
    pub(super) fn was_shown(&self, (caller, agent): (&str, &str), task: &str, now: Instant) -> bool {
        let all = self.all();
        let own = all.tasks.get(&(caller.into(), agent.into()));
        own.and_then(|own| own.get(task)).is_some_and(|until| *until > now)
    }

    /// Removes tasks that were shown too long ago.
    pub(in crate::gateway) fn sweep(&self, now: Instant) {
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

    #[test]
    fn a_task_is_listed_to_whom_it_was_shown_and_for_a_time() {
        let bounds = ShownTasksLimits { most: 2, of_one: 0, ttl: Duration::from_secs(9) };
        let (handed, now) = (ShownTasks::new(bounds), Instant::now());
        let (ann, ben) = (("key:ann", "bard"), ("key:ben", "bard"));
        handed.note(ann, "1", now);
        handed.note(ann, "1", now);
        handed.note(ben, "2", now);
        handed.note(ben, "3", now);
        assert!(handed.was_shown(ann, "1", now) && !handed.was_shown(ben, "1", now));
        assert!(!handed.was_shown(("key:ann", "bank"), "1", now));
        assert!(handed.was_shown(ben, "2", now) && !handed.was_shown(ben, "3", now), "there is room for two");
        assert_eq!((handed.count(ann), handed.count(ben)), (1, 1));
        let later = now + Duration::from_secs(9);
        assert!(!handed.was_shown(ann, "1", later));
        handed.sweep(later);
        handed.note(ben, "3", later);
        assert!(handed.was_shown(ben, "3", later) && handed.count(ann) == 0);
    }

    #[test]
    fn nobody_fills_the_list_of_others_or_the_memory() {
        let handed = ShownTasks::new(ShownTasksLimits { most: 9, of_one: 2, ttl: Duration::from_secs(9) });
        let (ann, ben, now) = (("key:ann", "bard"), ("key:ben", "bard"), Instant::now());
        for task in ["1", "2", "3"] {
            handed.note(ann, task, now);
        }
        handed.note(ben, &"x".repeat(MAX_ID_BYTES + 1), now);
        assert_eq!((handed.count(ann), handed.count(ben)), (2, 0));
        handed.note(ben, "4", now);
        assert!(handed.was_shown(ben, "4", now) && !handed.was_shown(ann, "3", now));
    }
}
