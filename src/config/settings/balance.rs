//! The settings of load balancing over an agent's endpoints, and of its queue.

use std::time::Duration;

/// Circuit breaker: the failures after which an endpoint gets no requests for a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Breaker {
    /// Number of failures in a row; at least 1. Default: 5.
    pub failures: u32,
    /// The first open time; doubles with each probe that fails. Default: 1 s.
    pub base: Duration,
    /// The longest open time. Default: 30 s.
    pub max: Duration,
}

/// Health checks of endpoints, besides calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Health {
    /// The path that is fetched from each endpoint's host. Default: the path of a card.
    pub path: String,
    /// Interval of the checks. Default: 10 s.
    pub interval: Duration,
    /// Timeout of a check. Default: 2 s.
    pub timeout: Duration,
}

/// Queue of the calls beyond the concurrency limit of an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Queue {
    /// Number of waiting calls; 0: none. Default: 0.
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
