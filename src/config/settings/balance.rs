//! The settings of how calls are spread over an agent's endpoints, and held back.

use std::time::Duration;

/// When an endpoint that fails is left alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Breaker {
    /// Failures in a row that it takes; at least 1. Default: 5.
    pub failures: u32,
    /// How long it is left alone the first time; doubles with each probe that fails. Default: 1 s.
    pub base: Duration,
    /// The longest that it is left alone. Default: 30 s.
    pub max: Duration,
}

/// How endpoints are asked whether they are there, besides calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Health {
    /// What is fetched from each endpoint's host. Default: where a card is.
    pub path: String,
    /// How often. Default: 10 s.
    pub interval: Duration,
    /// How long an endpoint may take. Default: 2 s.
    pub timeout: Duration,
}

/// Where calls wait that are more than an agent may have at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Queue {
    /// How many wait; 0: none. Default: 0.
    pub size: usize,
    /// The longest wait. Default: 5 s.
    pub wait: Duration,
}

impl Default for Breaker {
    fn default() -> Self {
        Self { failures: 5, base: Duration::from_secs(1), max: Duration::from_secs(30) }
    }
}

impl Default for Health {
    fn default() -> Self {
        let path = "/.well-known/agent-card.json".to_owned();
        Self { path, interval: Duration::from_secs(10), timeout: Duration::from_secs(2) }
    }
}

impl Default for Queue {
    fn default() -> Self {
        Self { size: 0, wait: Duration::from_secs(5) }
    }
}
