//! What somebody holds who watches a task or follows it; dropping it lets go.
//!
//! Not here: what watching protects from (see `shard`), what a follower does.

use std::sync::Arc;
use std::time::Instant;

use super::entry::Entry;

/// Somebody watches: while this lives, the entry stays as long as its task is live.
#[derive(Debug)]
pub struct Watcher {
    entry: Arc<Entry>,
    ended: Option<Instant>,
}

impl Watcher {
    pub(super) fn new(entry: Arc<Entry>) -> Self {
        Self { entry, ended: None }
    }

    /// What is watched.
    pub fn entry(&self) -> &Arc<Entry> {
        &self.entry
    }

    /// Watches no more since `now`. A watcher that is dropped ends by the clock.
    pub fn end(mut self, now: Instant) {
        self.ended = Some(now);
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.entry.unwatch(self.ended.unwrap_or_else(Instant::now));
    }
}

/// Somebody tells the agent to stop this task; nobody else need meanwhile.
#[derive(Debug)]
pub struct Stopping {
    entry: Arc<Entry>,
}

impl Stopping {
    pub(super) fn new(entry: Arc<Entry>) -> Self {
        Self { entry }
    }

    /// What is stopped.
    pub fn entry(&self) -> &Arc<Entry> {
        &self.entry
    }
}

impl Drop for Stopping {
    fn drop(&mut self) {
        self.entry.end_stopping();
    }
}

/// Somebody listens to the agent for this task; nobody else may meanwhile.
#[derive(Debug)]
pub struct Following {
    entry: Arc<Entry>,
}

impl Following {
    pub(super) fn new(entry: Arc<Entry>) -> Self {
        Self { entry }
    }

    /// What is followed.
    pub fn entry(&self) -> &Arc<Entry> {
        &self.entry
    }
}

impl Drop for Following {
    /// Frees the task; without a word on why following ended, it broke off.
    fn drop(&mut self) {
        self.entry.unfollow();
    }
}
