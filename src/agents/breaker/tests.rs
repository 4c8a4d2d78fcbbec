//! Transitions of a breaker under a manual clock.

use super::*;
use proptest::prelude::*;

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
async fn who_waits_hears_of_a_return_at_once() {
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
    fn nobody_but_one_probe_gets_through_while_it_is_left_alone(
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
