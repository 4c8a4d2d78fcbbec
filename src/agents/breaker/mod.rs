//! Whether one place of an agent may be asked, by how it answered before.
//!
//! A place that fails so often in a row is left alone for a time that doubles from one failed probe to the next; when it is over,
//! one request probes the place and decides, and everybody else waits for that one or goes elsewhere. So a place that comes back is
//! not met by a crowd, and one that stays away costs one request at a time: of calls, followed tasks and checks together. Time is
//! handed in. Not here: which place is asked (see `endpoints`), what counts as a failure (see `turn`).

use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::config;

/// All is well.
const CLOSED: u8 = 0;
/// It has failed lately, and is asked all the same.
const SHAKEN: u8 = 1;
/// It is left alone.
const OPEN: u8 = 2;
/// A probe that is not answered by then no longer keeps the next one away: some agents answer when their work is done.
const PROBE: Duration = Duration::from_secs(5);
/// How far a pause may be off, down and up: places that failed together must not be probed together.
const JITTER: f64 = 0.2;

/// What is known of one place.
pub(super) struct Breaker {
    settings: config::Breaker,
    /// The state in one word, for who only wants to pass.
    level: AtomicU8,
    state: watch::Sender<BreakerState>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct BreakerState {
    /// Failures in a row.
    failures: u32,
    /// How often in a row it was left alone.
    rounds: u32,
    /// Until when it is left alone.
    until: Option<Instant>,
    is_probed: bool,
}

/// Whether the holder is the one that decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BreakerPermit {
    /// One of many.
    Plain,
    /// The probe.
    Probe,
}

/// What a failure or an answer changed, for the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Transition {
    /// Nothing that anybody must hear of.
    None,
    /// It is left alone from now on, for so long.
    Ejected(Duration),
    /// It is back.
    Returned,
}

impl Breaker {
    pub(super) fn new(settings: config::Breaker) -> Self {
        Self { settings, level: AtomicU8::new(CLOSED), state: watch::Sender::default() }
    }

    /// Whether it is asked as if nothing had happened.
    pub(super) fn is_closed(&self) -> bool {
        self.level.load(Ordering::Acquire) != OPEN
    }

    /// The right to ask it.
    ///
    /// # Errors
    ///
    /// How long to wait before asking for it again.
    pub(super) fn acquire(&self, now: impl FnOnce() -> Instant) -> Result<BreakerPermit, Duration> {
        if self.is_closed() {
            return Ok(BreakerPermit::Plain);
        }
        let now = now();
        let mut passed = Ok(BreakerPermit::Plain);
        self.state.send_if_modified(|state| {
            let Some(until) = state.until else { return false };
            if now < until {
                passed = Err(if state.is_probed { Duration::ZERO } else { until - now });
                return false;
            }
            passed = Ok(BreakerPermit::Probe);
            (state.until, state.is_probed) = (Some(now + PROBE), true);
            true
        });
        passed
    }

    /// How long it is still left alone, if it is.
    pub(super) fn open_for(&self, now: Instant) -> Option<Duration> {
        if self.is_closed() {
            return None;
        }
        self.state.borrow().until.map(|until| until.saturating_duration_since(now))
    }

    /// Waits until it may be worth while to ask for a [`Breaker::pass`] again.
    pub(super) async fn wait(&self) {
        let mut state = self.state.subscribe();
        loop {
            let Some(until) = state.borrow_and_update().until else { return };
            if until <= Instant::now() {
                return;
            }
            // Ends at the wake-up; the sender lives as long as `self`.
            drop(tokio::time::timeout_at(until, state.changed()).await);
        }
    }

    /// Notes an answer.
    pub(super) fn answered(&self, pass: BreakerPermit) -> Transition {
        if self.level.load(Ordering::Acquire) == CLOSED {
            return Transition::None;
        }
        let mut change = Transition::None;
        self.update(|state| {
            match (state.until, pass) {
                // It was asked before: only the probe decides.
                (Some(_), BreakerPermit::Plain) => return false,
                (Some(_), BreakerPermit::Probe) => change = Transition::Returned,
                (None, _) => {}
            }
            *state = BreakerState::default();
            true
        });
        change
    }

    /// Notes that it was there for a check. That does not prove that it can work: the next failure counts as if no time had passed.
    pub(super) fn checked(&self, pass: BreakerPermit) -> Transition {
        let mut change = Transition::None;
        if pass == BreakerPermit::Probe {
            self.update(|state| {
                if state.until.take().is_none() {
                    return false;
                }
                change = Transition::Returned;
                (state.failures, state.is_probed) = (self.settings.failures.saturating_sub(1), false);
                true
            });
        }
        change
    }

    /// Notes a failure. `chance` is between 0 and 1, for the pause.
    pub(super) fn failed(&self, pass: BreakerPermit, now: Instant, chance: f64) -> Transition {
        let mut change = Transition::None;
        self.update(|state| {
            match (state.until, pass) {
                (Some(_), BreakerPermit::Plain) => return false,
                (Some(_), BreakerPermit::Probe) => {}
                (None, _) => {
                    state.failures = state.failures.saturating_add(1);
                    if state.failures < self.settings.failures {
                        return true;
                    }
                }
            }
            let pause = self.pause(state.rounds, chance);
            if state.until.is_none() {
                change = Transition::Ejected(pause);
            }
            state.rounds = state.rounds.saturating_add(1);
            (state.until, state.is_probed) = (Some(now + pause), false);
            true
        });
        change
    }

    /// Notes that nobody waits any more for what was to decide: the next one decides.
    pub(super) fn given_up(&self, pass: BreakerPermit, now: Instant) {
        if pass == BreakerPermit::Probe {
            self.update(|state| {
                let is_open = state.until.is_some() && state.is_probed;
                if is_open {
                    (state.until, state.is_probed) = (Some(now), false);
                }
                is_open
            });
        }
    }

    fn pause(&self, rounds: u32, chance: f64) -> Duration {
        let config::Breaker { base, max, .. } = self.settings;
        let pause = base.saturating_mul(1 << rounds.min(20)).min(max);
        pause.mul_f64(1.0 - JITTER + 2.0 * JITTER * chance.clamp(0.0, 1.0)).min(max)
    }

    fn update(&self, change: impl FnOnce(&mut BreakerState) -> bool) {
        self.state.send_if_modified(|state| {
            let is_changed = change(state);
            let level = match state {
                BreakerState { until: Some(_), .. } => OPEN,
                BreakerState { failures: 1.., .. } | BreakerState { rounds: 1.., .. } => SHAKEN,
                BreakerState { .. } => CLOSED,
            };
            self.level.store(level, Ordering::Release);
            is_changed
        });
    }
}

#[cfg(test)]
mod tests;
