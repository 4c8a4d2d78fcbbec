//! The slot of one token: its value, its lifetime, and the backoff of its endpoint after a failure.
//!
//! Time is an argument. See `tokens` for fetching.

use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use http::HeaderValue;

use super::token_endpoint::TokenResponse;
use super::tokens::TokenUnavailable;
use crate::sync::lock;

/// A token is renewed when this fraction of its lifetime is left, but not earlier than [`EARLY`]
/// before its end.
const LEFT: u32 = 4;
const EARLY: Duration = Duration::from_secs(60);
/// The first pause after a failure; it doubles from there.
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// The time within which a token that replaced a rejected one is not replaced again: another would
/// be no better.
const NO_BETTER: Duration = Duration::from_secs(10);

/// A token for a request to an agent.
#[derive(Clone)]
pub struct AccessToken {
    value: HeaderValue,
    number: u64,
}

impl AccessToken {
    /// Returns the value of `Authorization`. Marked as sensitive.
    pub fn value(&self) -> &HeaderValue {
        &self.value
    }
}

/// The slot of one token.
#[derive(Default)]
pub(super) struct TokenSlot {
    inside: Mutex<SlotState>,
    /// Held by the caller that fetches; the others wait for it, and then find the token.
    pub(super) flight: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct SlotState {
    held: Option<CachedToken>,
    count: u64,
    was_refused: bool,
    pauses: Backoff,
    used: Option<Instant>,
}

struct CachedToken {
    pass: AccessToken,
    since: Instant,
    due: Instant,
    until: Instant,
    /// True if it has been used.
    is_used: bool,
    /// True if it replaced a token that the agent rejected.
    is_second: bool,
}

/// The backoff after a failure.
#[derive(Default)]
pub(super) struct Backoff {
    failures: u32,
    over: Option<(Instant, TokenUnavailable)>,
}

impl Backoff {
    /// Returns the last error if no attempt may be made at `now`.
    pub(super) fn retry_after(&self, now: Instant) -> Option<TokenUnavailable> {
        self.over.filter(|(until, _)| now < *until).map(|(_, why)| why)
    }

    /// Records a failure; returns true if it is the first in a row. `spread` (0 to 1) keeps
    /// replicas apart.
    pub(super) fn failed(&mut self, now: Instant, why: TokenUnavailable, spread: f64) -> bool {
        let pause = PAUSE.saturating_mul(1 << self.failures.min(10)).min(LONGEST_PAUSE);
        self.failures = self.failures.saturating_add(1);
        self.over = Some((now + pause.mul_f64(0.8 + spread * 0.4), why));
        self.failures == 1
    }

    /// Records a success; returns true if there were failures before.
    pub(super) fn worked(&mut self) -> bool {
        self.over = None;
        std::mem::take(&mut self.failures) > 0
    }
}

impl TokenSlot {
    fn inside(&self) -> MutexGuard<'_, SlotState> {
        lock(&self.inside)
    }

    /// Returns the token, if there is one that is valid at `now`.
    pub(super) fn take(&self, now: Instant) -> Option<AccessToken> {
        let mut inside = self.inside();
        inside.used = Some(now);
        let held = inside.held.as_mut().filter(|held| now < held.until)?;
        held.is_used = true;
        Some(held.pass.clone())
    }

    /// Returns true if a token that is in use must be renewed at `now`. An unused token is left to
    /// expire.
    pub(super) fn needs_renewal(&self, now: Instant) -> bool {
        let inside = self.inside();
        inside.held.as_ref().is_some_and(|held| held.is_used && now >= held.due)
            && inside.pauses.retry_after(now).is_none()
    }

    /// Returns the last error if nothing may be fetched at `now`.
    pub(super) fn retry_after(&self, now: Instant) -> Option<TokenUnavailable> {
        self.inside().pauses.retry_after(now)
    }

    pub(super) fn failed(&self, now: Instant, why: TokenUnavailable, spread: f64) -> bool {
        self.inside().pauses.failed(now, why, spread)
    }

    /// Stores a token that came at `now`; returns true if there were failures before.
    pub(super) fn keep(&self, fetched: &TokenResponse, now: Instant) -> (AccessToken, bool) {
        let mut inside = self.inside();
        inside.count += 1;
        let pass = AccessToken { value: fetched.authorization.clone(), number: inside.count };
        let early = (fetched.lives / LEFT).min(EARLY);
        let until = now + fetched.lives;
        let is_second = std::mem::take(&mut inside.was_refused);
        let held = CachedToken {
            pass: pass.clone(),
            since: now,
            due: until - early,
            until,
            is_used: false,
            is_second,
        };
        inside.held = Some(held);
        let recovered = inside.pauses.worked();
        (pass, recovered)
    }

    /// Removes a token that the agent rejected; returns true if another may be better.
    pub(super) fn refuse(&self, refused: &AccessToken, now: Instant) -> bool {
        let mut inside = self.inside();
        let Some(held) = inside.held.as_ref().filter(|held| held.pass.number == refused.number) else {
            // Another caller has replaced it already.
            return true;
        };
        if held.is_second && now.saturating_duration_since(held.since) < NO_BETTER {
            return false;
        }
        (inside.held, inside.was_refused) = (None, true);
        true
    }

    /// Returns the time of the last use, and true if it holds a valid token at `now`.
    pub(super) fn last_used(&self, now: Instant) -> (Option<Instant>, bool) {
        let inside = self.inside();
        (inside.used, inside.held.as_ref().is_some_and(|held| now < held.until))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(lives: u64) -> TokenResponse {
        TokenResponse {
            authorization: HeaderValue::from_static("Bearer t"),
            lives: Duration::from_secs(lives),
        }
    }

    #[test]
    fn a_token_in_use_is_due_before_it_ends() {
        let (slot, now) = (TokenSlot::default(), Instant::now());
        let at = |seconds| now + Duration::from_secs(seconds);
        assert!(slot.take(now).is_none());
        slot.keep(&token(100), now);
        assert!(!slot.needs_renewal(at(90)), "an unused token is not renewed");
        assert!(slot.take(at(1)).is_some() && !slot.needs_renewal(at(74)) && slot.needs_renewal(at(75)));
        assert!(slot.take(at(99)).is_some() && slot.take(at(100)).is_none());
        slot.keep(&token(3600), now);
        assert!(slot.take(now).is_some() && !slot.needs_renewal(at(3539)) && slot.needs_renewal(at(3540)));
    }

    #[test]
    fn a_refused_token_is_replaced_once() {
        let (slot, now) = (TokenSlot::default(), Instant::now());
        let (first, _) = slot.keep(&token(100), now);
        assert!(slot.refuse(&first, now) && slot.take(now).is_none());
        let (second, _) = slot.keep(&token(100), now);
        assert!(slot.refuse(&first, now) && slot.take(now).is_some(), "another has seen to the first");
        assert!(!slot.refuse(&second, now) && slot.take(now).is_some(), "a third would be no better");
        assert!(slot.refuse(&second, now + NO_BETTER), "later it may be");
    }

    #[test]
    fn what_fails_is_left_alone_for_longer_and_longer() {
        let (slot, now, dead) = (TokenSlot::default(), Instant::now(), TokenUnavailable::Now("dead"));
        assert!(slot.failed(now, dead, 0.5));
        assert_eq!(slot.retry_after(now + Duration::from_millis(999)), Some(dead));
        assert_eq!(slot.retry_after(now + Duration::from_millis(1001)), None);
        assert!(!slot.failed(now, dead, 0.5));
        assert!(slot.retry_after(now + Duration::from_millis(1999)).is_some());
        for _ in 0..99 {
            slot.failed(now, dead, 1.0);
        }
        assert!(slot.retry_after(now + LONGEST_PAUSE.mul_f64(1.2)).is_none());
        let (_, recovered) = slot.keep(&token(1), now);
        assert!(recovered && slot.retry_after(now).is_none());
    }
}
