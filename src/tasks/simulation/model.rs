//! The naive model of one task: the rules, in the most obvious way.

use std::sync::Arc;

use super::TTL;
use crate::tasks::{EntryKey, TaskEntry};

/// A task as the model sees it.
pub(super) struct Row {
    pub(super) entry: Arc<TaskEntry>,
    pub(super) keys: Vec<EntryKey>,
    pub(super) finished: bool,
    pub(super) named: bool,
    pub(super) over: bool,
    pub(super) watchers: usize,
    pub(super) expected: u64,
    pub(super) followed: bool,
    pub(super) active: u64,
    pub(super) dropped: bool,
}

impl Row {
    pub(super) fn new(entry: Arc<TaskEntry>, key: EntryKey, named: bool, active: u64) -> Self {
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
    pub(super) fn touch(&mut self, now: u64) {
        if !self.is_expired(now) {
            self.active = self.active.max(now);
        }
    }

    pub(super) fn is_finished(&self) -> bool {
        self.finished || self.over && !self.named
    }

    pub(super) fn is_watched(&self, now: u64) -> bool {
        self.watchers > 0 || self.expected > now
    }

    /// Returns the time of the last activity: an expected watcher that did not come counts until
    /// its time.
    pub(super) fn active(&self, now: u64) -> u64 {
        if !self.is_finished() && self.expected <= now { self.active.max(self.expected) } else { self.active }
    }

    pub(super) fn is_expired(&self, now: u64) -> bool {
        let is_held = !self.is_finished() && self.is_watched(now);
        !is_held && now >= self.active(now) + TTL
    }

    /// Returns the position in the order of eviction; `None` if the task may not be evicted.
    pub(super) fn rank(&self, now: u64) -> Option<u8> {
        match self {
            _ if self.dropped => None,
            _ if self.is_finished() => Some(0),
            _ if self.is_watched(now) => None,
            _ if !self.followed => Some(1),
            _ => (self.named || self.is_expired(now)).then_some(2),
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.entry.bytes() + self.keys.iter().map(crate::tasks::shard::weight).sum::<usize>()
    }
}
