//! Addresses from which too many bad credentials come: for a while nothing that they show is looked into.
//!
//! Keys are too long to be guessed; this is for the work that guesses cause, here and at issuers that are asked about each token. Not
//! here: what a caller that proved itself may have (see `shares`).

use std::collections::HashMap;
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use governor::clock::{Clock, DefaultClock};
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};

use crate::fault::Fault;

/// So many times as often as in a second may go wrong at once.
const BURST: u32 = 10;
/// Most addresses that are left alone at a time.
const MOST: usize = 65_536;
/// How long an address is left alone at least.
const LEAST: Duration = Duration::from_secs(1);

/// What went wrong, by address.
pub(super) struct Guesses {
    rate: Option<DefaultKeyedRateLimiter<IpAddr>>,
    until: Mutex<HashMap<IpAddr, Instant>>,
    clock: DefaultClock,
}

impl Guesses {
    /// So many failures of an address in a second; 0: any number.
    pub(super) fn new(failures: usize) -> Self {
        let failures = NonZeroU32::new(u32::try_from(failures).unwrap_or(u32::MAX));
        let quota = |rate: NonZeroU32| {
            Quota::per_second(rate)
                .allow_burst(rate.saturating_mul(NonZeroU32::MIN.saturating_add(BURST - 1)))
        };
        Self {
            rate: failures.map(|rate| RateLimiter::keyed(quota(rate))),
            until: Mutex::default(),
            clock: DefaultClock::default(),
        }
    }

    /// Lets an address cost something, or not.
    ///
    /// # Errors
    ///
    /// [`Fault::TooOften`], with the wait.
    pub(super) fn check(&self, address: Option<IpAddr>, now: Instant) -> Result<(), Fault> {
        let Some(address) = address.filter(|_| self.rate.is_some()) else { return Ok(()) };
        let mut until = self.until();
        match until.get(&address) {
            Some(until) if now < *until => Err(Fault::TooOften((*until - now).as_secs() + 1)),
            Some(_) => {
                until.remove(&address);
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Notes that credentials from an address were not good.
    pub(super) fn failed(&self, address: Option<IpAddr>, now: Instant) {
        let (Some(address), Some(rate)) = (address, &self.rate) else { return };
        if let Err(wait) = rate.check_key(&address) {
            let wait = wait.wait_time_from(self.clock.now()).max(LEAST);
            let mut until = self.until();
            // Who has stopped is forgotten by the sweep, every few seconds.
            if until.len() < MOST {
                until.insert(address, now + wait);
            }
        }
    }

    /// Forgets those who have stopped.
    pub(super) fn sweep(&self, now: Instant) {
        if let Some(rate) = &self.rate {
            rate.retain_recent();
            rate.shrink_to_fit();
        }
        self.until().retain(|_, until| now < *until);
    }

    fn until(&self) -> MutexGuard<'_, HashMap<IpAddr, Instant>> {
        self.until.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_guesses_is_left_alone_for_a_while_and_others_are_not() {
        let (guesses, now) = (Guesses::new(1), Instant::now());
        let (one, other) = ("192.0.2.1".parse().ok(), "192.0.2.2".parse().ok());
        for _ in 0..BURST {
            guesses.failed(one, now);
            assert!(guesses.check(one, now).is_ok());
        }
        guesses.failed(one, now);
        assert!(matches!(guesses.check(one, now), Err(Fault::TooOften(1 | 2))));
        assert!(guesses.check(other, now).is_ok() && guesses.check(None, now).is_ok());
        let later = now + Duration::from_secs(3);
        assert!(guesses.check(one, later).is_ok());
        guesses.sweep(later);
        assert!(guesses.until().is_empty());
    }

    #[test]
    fn without_a_limit_nobody_is_left_alone() {
        let (guesses, now) = (Guesses::new(0), Instant::now());
        let one = "192.0.2.1".parse().ok();
        (0..1000).for_each(|_| guesses.failed(one, now));
        assert!(guesses.check(one, now).is_ok());
    }
}
