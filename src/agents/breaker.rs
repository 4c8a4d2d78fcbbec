//! The circuit breaker of one endpoint of an agent.
//!
//! After a number of failures in a row the breaker opens for a time that doubles from one failed
//! probe to the next; when the time is over, one request probes the endpoint and decides, and all
//! others wait for that one or go elsewhere. So an endpoint that returns does not get all waiting
//! requests at once, and one that stays away costs one request at a time: of calls, followed tasks
//! and checks together. Time is an argument. See `endpoints` for the choice of an endpoint and for
//! failures.

use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::config;
use crate::timing::{Backoff, with_jitter};

/// No failures.
const CLOSED: u8 = 0;
/// Recent failures, still closed.
const SHAKEN: u8 = 1;
/// Open: no requests but probes.
const OPEN: u8 = 2;
/// The time after which a probe without a response no longer blocks the next one: some agents
/// respond only when their work is done.
const PROBE: Duration = Duration::from_secs(5);
/// The maximum relative error of a pause, down and up: endpoints that failed together must not be
/// probed together.
const JITTER: f64 = 0.2;

/// The breaker of one endpoint.
pub(super) struct Breaker {
    settings: config::Breaker,
    /// The state in one word, for the fast path.
    level: AtomicU8,
    state: watch::Sender<BreakerState>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct BreakerState {
    /// Failures in a row.
    failures: u32,
    /// The number of openings in a row.
    rounds: u32,
    /// The end of the open time.
    until: Option<Instant>,
    is_probed: bool,
}

/// The role of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BreakerPermit {
    /// One of many.
    Plain,
    /// The probe, which decides.
    Probe,
}

/// The change by a failure or a response, for the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Transition {
    /// No change to report.
    None,
    /// The breaker is open from now on, for this time.
    Ejected(Duration),
    /// The endpoint is back.
    Returned,
}

impl Breaker {
    pub(super) fn new(settings: config::Breaker) -> Self {
        Self { settings, level: AtomicU8::new(CLOSED), state: watch::Sender::default() }
    }

    /// Returns true if requests are sent without restriction.
    pub(super) fn is_closed(&self) -> bool {
        self.level.load(Ordering::Acquire) != OPEN
    }

    /// Acquires a permit to send a request.
    ///
    /// # Errors
    ///
    /// The time to wait before the next attempt.
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

    /// Returns the time for which the breaker remains open, if it is open.
    pub(super) fn open_for(&self, now: Instant) -> Option<Duration> {
        if self.is_closed() {
            return None;
        }
        self.state.borrow().until.map(|until| until.saturating_duration_since(now))
    }

    /// Waits until [`Breaker::acquire`] may succeed again.
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

    /// Records a response.
    pub(super) fn answered(&self, pass: BreakerPermit) -> Transition {
        if self.level.load(Ordering::Acquire) == CLOSED {
            return Transition::None;
        }
        let mut change = Transition::None;
        self.update(|state| {
            match (state.until, pass) {
                // It was sent before: only the probe decides.
                (Some(_), BreakerPermit::Plain) => return false,
                (Some(_), BreakerPermit::Probe) => change = Transition::Returned,
                (None, _) => {}
            }
            *state = BreakerState::default();
            true
        });
        change
    }

    /// Records a successful check. That does not prove that the endpoint can work: the next failure
    /// counts as if no time had passed.
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

    /// Records a failure. `chance` is between 0 and 1, for the pause.
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

    /// Records that the probe was dropped without an outcome: the next one decides.
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
        with_jitter(Backoff { base, max }.pause(rounds), JITTER, chance).min(max)
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
mod tests {
    //! Transitions of a breaker under a manual clock.

    use proptest::prelude::*;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn breaker(failures: u32) -> Breaker {
        Breaker::new(config::Breaker { failures, base: SECOND, max: 30 * SECOND })
    }

    fn opened(now: Instant) -> Breaker {
        let breaker = breaker(1);
        assert_eq!(breaker.failed(BreakerPermit::Plain, now, 0.5), Transition::Ejected(SECOND));
        breaker
    }

    #[test]
    fn failures_in_a_row_open_it_and_an_answer_between_them_does_not() {
        let (breaker, now) = (breaker(3), Instant::now());
        for _ in 0..2 {
            for _ in 0..2 {
                assert_eq!(breaker.failed(BreakerPermit::Plain, now, 0.5), Transition::None);
            }
            assert_eq!(breaker.answered(BreakerPermit::Plain), Transition::None);
        }
        // The last one is late.
        for expected in [Transition::None, Transition::None, Transition::Ejected(SECOND), Transition::None] {
            assert_eq!(breaker.failed(BreakerPermit::Plain, now, 0.5), expected);
        }
        assert_eq!(breaker.acquire(|| now), Err(SECOND));
    }

    #[test]
    fn one_probe_at_a_time_decides_and_the_pause_doubles() {
        let mut now = Instant::now();
        let breaker = opened(now);
        for seconds in [1, 2, 4, 8, 16, 30, 30] {
            assert_eq!(breaker.acquire(|| now), Err(seconds * SECOND));
            now += seconds * SECOND;
            assert_eq!(breaker.acquire(|| now), Ok(BreakerPermit::Probe));
            assert_eq!(breaker.acquire(|| now), Err(Duration::ZERO), "it is being probed");
            // A request from before the opening says nothing.
            assert_eq!(breaker.answered(BreakerPermit::Plain), Transition::None);
            assert_eq!(breaker.failed(BreakerPermit::Probe, now, 0.5), Transition::None);
        }
        now += 30 * SECOND;
        assert_eq!(breaker.acquire(|| now), Ok(BreakerPermit::Probe));
        assert_eq!(breaker.answered(BreakerPermit::Probe), Transition::Returned);
        assert_eq!(breaker.acquire(|| now), Ok(BreakerPermit::Plain));
        assert_eq!(
            breaker.failed(BreakerPermit::Plain, now, 0.5),
            Transition::Ejected(SECOND),
            "all is forgotten"
        );
    }

    #[test]
    fn a_probe_that_is_given_up_or_slow_makes_room_for_the_next() {
        let mut now = Instant::now();
        let breaker = opened(now);
        now += SECOND;
        assert_eq!(breaker.acquire(|| now), Ok(BreakerPermit::Probe));
        breaker.given_up(BreakerPermit::Probe, now);
        assert_eq!(breaker.acquire(|| now), Ok(BreakerPermit::Probe));
        assert_eq!(breaker.acquire(|| now + PROBE), Ok(BreakerPermit::Probe));
    }

    #[test]
    fn a_check_lets_it_back_on_probation() {
        let (breaker, mut now) = (breaker(3), Instant::now());
        for _ in 0..3 {
            breaker.failed(BreakerPermit::Plain, now, 0.5);
        }
        now += SECOND;
        assert_eq!(breaker.acquire(|| now), Ok(BreakerPermit::Probe));
        assert_eq!(breaker.checked(BreakerPermit::Probe), Transition::Returned);
        assert_eq!(
            breaker.failed(BreakerPermit::Plain, now, 0.5),
            Transition::Ejected(2 * SECOND),
            "one is enough"
        );
        now += 2 * SECOND;
        assert_eq!(breaker.acquire(|| now), Ok(BreakerPermit::Probe));
        assert_eq!(breaker.checked(BreakerPermit::Probe), Transition::Returned);
        assert_eq!(breaker.answered(BreakerPermit::Plain), Transition::None);
        assert_eq!(breaker.failed(BreakerPermit::Plain, now, 0.5), Transition::None, "an answer proves more");
    }

    #[test]
    fn pauses_differ_a_little_and_never_pass_the_longest() {
        let breaker = breaker(1);
        assert_eq!(breaker.pause(0, 0.0), SECOND.mul_f64(0.8));
        assert_eq!(breaker.pause(0, 1.0), SECOND.mul_f64(1.2));
        assert_eq!(breaker.pause(u32::MAX, 1.0), 30 * SECOND);
    }

    #[tokio::test]
    async fn waiters_learn_of_a_recovery_at_once() {
        let now = Instant::now();
        let breaker = Breaker::new(config::Breaker { failures: 1, base: 600 * SECOND, max: 600 * SECOND });
        breaker.wait().await;
        breaker.failed(BreakerPermit::Plain, now, 0.5);
        let probing = breaker.acquire(|| now + 600 * SECOND).unwrap();
        let answered = async { breaker.answered(probing) };
        let ((), change) = tokio::join!(breaker.wait(), answered);
        assert_eq!(change, Transition::Returned);
    }

    /// The requests of many callers to an endpoint that is available only at times, with a manual
    /// clock.
    #[derive(Debug, Clone, Copy)]
    enum Step {
        Wait(u16),
        Ask { is_there: bool },
        Late { is_there: bool },
        Leave,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (0_u16..4000).prop_map(Step::Wait),
            any::<bool>().prop_map(|is_there| Step::Ask { is_there }),
            any::<bool>().prop_map(|is_there| Step::Late { is_there }),
            Just(Step::Leave),
        ]
    }

    proptest! {
        #[test]
        fn one_probe_passes_an_open_breaker(
            steps in proptest::collection::vec((step(), 0.0..1.0_f64), 1..200),
            threshold in 1_u32..6,
        ) {
            let (breaker, mut now) = (breaker(threshold), Instant::now());
            // The model: failures in a row, and the time at which a probe is due.
            let (mut in_row, mut due, mut rounds): (u32, Option<Instant>, i32) = (0, None, 0);
            for (step, chance) in steps {
                match step {
                    Step::Wait(millis) => now += Duration::from_millis(millis.into()),
                    Step::Late { is_there } if due.is_some() => {
                        // An old response while it is open changes nothing.
                        let change = if is_there { breaker.answered(BreakerPermit::Plain) } else { breaker.failed(BreakerPermit::Plain, now, chance) };
                        prop_assert_eq!(change, Transition::None);
                    }
                    Step::Late { .. } => {}
                    Step::Leave => if let Ok(pass) = breaker.acquire(|| now) {
                        breaker.given_up(pass, now);
                        prop_assert_eq!(breaker.acquire(|| now), Ok(pass), "the next one has the same right");
                        breaker.given_up(pass, now);
                    },
                    Step::Ask { is_there } => {
                        let pass = breaker.acquire(|| now);
                        match due {
                            None => prop_assert_eq!(pass, Ok(BreakerPermit::Plain)),
                            Some(due) if now < due => prop_assert!(pass.is_err()),
                            Some(_) => {
                                prop_assert_eq!(pass, Ok(BreakerPermit::Probe));
                                prop_assert_eq!(breaker.acquire(|| now), Err(Duration::ZERO), "there is one");
                            }
                        }
                        let Ok(pass) = pass else { continue };
                        if is_there {
                            let change = breaker.answered(pass);
                            prop_assert_eq!(change == Transition::Returned, due.is_some());
                            (in_row, due, rounds) = (0, None, 0);
                            continue;
                        }
                        let change = breaker.failed(pass, now, chance);
                        in_row += 1;
                        prop_assert_eq!(matches!(change, Transition::Ejected(_)), due.is_none() && in_row == threshold);
                        if due.is_some() || in_row >= threshold {
                            let rests = breaker.open_for(now).unwrap();
                            let middle = (f64::from(2_u32).powi(rounds)).min(30.0);
                            prop_assert!(rests.as_secs_f64() >= 0.79 * middle && rests <= 30 * SECOND);
                            (due, rounds) = (Some(now + rests), rounds + 1);
                        }
                    }
                }
            }
        }
    }
}
