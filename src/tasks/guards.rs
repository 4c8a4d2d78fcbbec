//! What somebody holds who watches a task or follows it; dropping it lets go.
//!
//! Not here: what watching protects from (see `shard`), what a follower does.

use std::sync::Arc;
use std::time::Instant;

use super::entry::TaskEntry;

/// Somebody watches: while this lives, the entry stays as long as its task is live.
#[derive(Debug)]
pub struct WatchGuard {
    entry: Arc<TaskEntry>,
    ended: Option<Instant>,
}

impl WatchGuard {
    pub(super) fn new(entry: Arc<TaskEntry>) -> Self {
        Self { entry, ended: None }
    }

    /// What is watched.
    pub fn entry(&self) -> &Arc<TaskEntry> {
        &self.entry
    }

    /// Watches no more since `now`. A watcher that is dropped ends by the clock.
    pub fn end(mut self, now: Instant) {
        self.ended = Some(now);
    }
}

impl Drop for WatchGuard {
    fn drop(&mut self) {
        self.entry.unwatch(self.ended.unwrap_or_else(Instant::now));
    }
}

/// Somebody tells the agent to stop this task; nobody else need meanwhile.
#[derive(Debug)]
pub struct CancelGuard {
    entry: Arc<TaskEntry>,
}

impl CancelGuard {
    pub(super) fn new(entry: Arc<TaskEntry>) -> Self {
        Self { entry }
    }

    /// What is stopped.
    pub fn entry(&self) -> &Arc<TaskEntry> {
        &self.entry
    }
}

impl Drop for CancelGuard {
    fn drop(&mut self) {
        self.entry.end_stopping();
    }
}

/// Somebody listens to the agent for this task; nobody else may meanwhile.
#[derive(Debug)]
pub struct FollowGuard {
    entry: Arc<TaskEntry>,
}

impl FollowGuard {
    pub(super) fn new(entry: Arc<TaskEntry>) -> Self {
        Self { entry }
    }

    /// What is followed.
    pub fn entry(&self) -> &Arc<TaskEntry> {
        &self.entry
    }
}

impl Drop for FollowGuard {
    /// Frees the task; without a word on why following ended, it broke off.
    fn drop(&mut self) {
        self.entry.unfollow();
    }
}
