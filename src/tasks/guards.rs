//! RAII guards of a task entry: watchers, the follower, a cancellation.
//!
//! A guard acts when it is dropped.

use std::sync::Arc;
use std::time::Instant;

use super::entry::TaskEntry;

/// Held by a watcher: while it lives, the entry stays as long as its task is live.
#[derive(Debug)]
pub struct WatchGuard {
    entry: Arc<TaskEntry>,
    ended: Option<Instant>,
}

impl WatchGuard {
    pub(super) fn new(entry: Arc<TaskEntry>) -> Self {
        Self { entry, ended: None }
    }

    /// Returns the watched entry.
    pub fn entry(&self) -> &Arc<TaskEntry> {
        &self.entry
    }

    /// Ends watching at `now`. A guard that is dropped instead reads the clock.
    pub fn end(mut self, now: Instant) {
        self.ended = Some(now);
    }
}

impl Drop for WatchGuard {
    fn drop(&mut self) {
        self.entry.unwatch(self.ended.unwrap_or_else(Instant::now));
    }
}

/// Held while a cancellation waits for the agent; a second `begin_stopping` returns `None`.
#[derive(Debug)]
pub struct CancelGuard {
    entry: Arc<TaskEntry>,
}

impl CancelGuard {
    pub(super) fn new(entry: Arc<TaskEntry>) -> Self {
        Self { entry }
    }

    /// Returns the entry that is being cancelled.
    pub fn entry(&self) -> &Arc<TaskEntry> {
        &self.entry
    }
}

impl Drop for CancelGuard {
    fn drop(&mut self) {
        self.entry.end_stopping();
    }
}

/// Held by the task's only follower; a second `begin_following` returns `None`.
#[derive(Debug)]
pub struct FollowGuard {
    entry: Arc<TaskEntry>,
}

impl FollowGuard {
    pub(super) fn new(entry: Arc<TaskEntry>) -> Self {
        Self { entry }
    }

    /// Returns the followed entry.
    pub fn entry(&self) -> &Arc<TaskEntry> {
        &self.entry
    }
}

impl Drop for FollowGuard {
    /// Frees the task; if no reason was recorded, following counts as broken off.
    fn drop(&mut self) {
        self.entry.unfollow();
    }
}
