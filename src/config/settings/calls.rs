//! The settings of calls: how long a client waits, and for what.

use std::time::Duration;

/// How long calls may take, and in which form a client hears of one that takes longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Calls {
    /// How long a client waits at most before it gets a handle instead of the result. Default: 45 s.
    pub budget: Duration,
    /// When a response that has nothing to say yet becomes an event stream. Default: 10 s.
    pub stream_after: Duration,
    /// The longest silence on an event stream. Default: 15 s.
    pub keep_alive: Duration,
    /// When a client that knows tasks gets one instead of the result; never later than `budget`. Default: 2 s.
    pub task_after: Duration,
    /// How long one leg lasts for a client that comes back by itself. Default: 40 s.
    pub leg: Duration,
    /// How many legs a call has at most, from 0 to 9; then the client gets a handle. Default: 7.
    pub legs: usize,
    /// How long a leg that was not followed up still counts as a watcher. Default: 60 s.
    pub leg_grace: Duration,
    /// How long a client that hears progress is held. Default: for the budget.
    pub hold: Hold,
    /// What becomes of a task whose question the user declines. Default: it stays.
    pub on_decline: OnDecline,
}

impl Default for Calls {
    fn default() -> Self {
        let [budget, stream_after, keep_alive] = [45, 10, 15].map(Duration::from_secs);
        let [task_after, leg, leg_grace] = [2, 40, 60].map(Duration::from_secs);
        let (hold, on_decline) = (Hold::Budget, OnDecline::Keep);
        Self { budget, stream_after, keep_alive, task_after, leg, legs: 7, leg_grace, hold, on_decline }
    }
}

/// How long a client that hears progress on its open stream is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hold {
    /// For the budget; then it gets a handle.
    Budget,
    /// Until the result is there.
    Forever,
}

/// What becomes of a task whose question the user declines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnDecline {
    /// It stays, and its question can still be answered.
    Keep,
    /// It is cancelled at the agent.
    Cancel,
}
