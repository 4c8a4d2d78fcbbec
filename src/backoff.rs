//! Exponential backoff: pauses that double from one failure to the next, and their jitter.
//!
//! Randomness is an argument, and nothing here waits.

use std::time::Duration;

/// Pauses that double, from the first one up to the longest.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Backoff {
    pub(crate) base: Duration,
    pub(crate) max: Duration,
}

impl Backoff {
    /// Returns the pause after so many doublings.
    pub(crate) fn pause(self, doublings: u32) -> Duration {
        self.base.saturating_mul(1 << doublings.min(31)).min(self.max)
    }
}

/// Varies a pause by up to this fraction of it, down and up: those that wait for the same event must
/// not wake together. `chance` is between 0 and 1.
pub(crate) fn with_jitter(pause: Duration, fraction: f64, chance: f64) -> Duration {
    pause.mul_f64(1.0 - fraction + 2.0 * fraction * chance.clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn pause_doubles_up_to_the_longest() {
        let backoff = Backoff { base: SECOND, max: 30 * SECOND };
        for (doublings, seconds) in [(0, 1), (1, 2), (2, 4), (4, 16), (5, 30), (u32::MAX, 30)] {
            assert_eq!(backoff.pause(doublings), seconds * SECOND, "{doublings}");
        }
        assert_eq!(Backoff { base: 9 * SECOND, max: SECOND }.pause(0), SECOND);
    }

    #[test]
    fn jitter_is_within_its_fraction() {
        for (chance, millis) in [(-1.0, 800), (0.0, 800), (0.5, 1000), (1.0, 1200), (2.0, 1200)] {
            assert_eq!(with_jitter(SECOND, 0.2, chance), Duration::from_millis(millis), "{chance}");
        }
    }
}
