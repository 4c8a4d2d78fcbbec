//! Measures closures: medians of many short rounds, each round through all of them in turn.
//!
//! In turn, so that a machine that gets busy or slow for a second affects every case alike. Not
//! criterion: its build takes longer than all the measurements here, and its plots and history help
//! no ratio.

use std::hint::black_box;
use std::time::{Duration, Instant};

const ROUND: Duration = Duration::from_millis(4);
const WARM_UP: Duration = Duration::from_millis(80);

/// A case to measure.
pub(crate) struct Case<'a> {
    pub(crate) name: &'static str,
    /// Bytes that it reads each time.
    pub(crate) bytes: usize,
    /// Runs it once, and returns a value that depends on all of it.
    pub(crate) once: Box<dyn FnMut() -> usize + 'a>,
}

/// Result of a case.
pub(crate) struct Measured {
    pub(crate) name: &'static str,
    pub(crate) bytes: usize,
    /// Nanoseconds of one run.
    pub(crate) median: f64,
    /// Half the distance between the 10th and the 90th percentile, as a part of the median.
    pub(crate) spread: f64,
}

impl Measured {
    pub(crate) fn bytes_per_second(&self) -> f64 {
        count(self.bytes) * 1e9 / self.median
    }
}

/// Measures all cases.
pub(crate) fn measure(cases: &mut [Case<'_>], rounds: usize) -> Vec<Measured> {
    let times: Vec<usize> = cases.iter_mut().map(|case| times_per_round(case)).collect();
    let mut samples = vec![Vec::with_capacity(rounds); cases.len()];
    for _ in 0..rounds {
        for ((case, times), samples) in cases.iter_mut().zip(&times).zip(&mut samples) {
            samples.push(round(case, *times).as_secs_f64() * 1e9 / count(*times));
        }
    }
    cases.iter().zip(samples).map(|(case, samples)| judged(case, samples)).collect()
}

/// Warms up, and returns the number of runs of a round.
fn times_per_round(case: &mut Case<'_>) -> usize {
    let mut times = 1;
    let began = Instant::now();
    loop {
        let taken = round(case, times);
        if began.elapsed() >= WARM_UP && taken * 2 >= ROUND {
            return times;
        }
        if taken < ROUND {
            times = times.saturating_mul(2);
        }
    }
}

fn round(case: &mut Case<'_>, times: usize) -> Duration {
    let began = Instant::now();
    for _ in 0..times {
        black_box((case.once)());
    }
    began.elapsed()
}

fn judged(case: &Case<'_>, mut samples: Vec<f64>) -> Measured {
    samples.sort_by(f64::total_cmp);
    let at = |part: usize| samples[(samples.len() - 1) * part / 10];
    let median = at(5);
    Measured { name: case.name, bytes: case.bytes, median, spread: (at(9) - at(1)) / 2.0 / median }
}

#[expect(clippy::cast_precision_loss, reason = "far below the exact integers of f64")]
fn count(number: usize) -> f64 {
    number as f64
}
