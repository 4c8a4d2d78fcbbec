//! Authentication and authorization of callers, and credentials for agents.
//!
//! Inbound: certificates, bearer tokens and API keys become a [`Caller`], and [`Rules`] authorize
//! it; after too many failed attempts an address is refused for a while. Outbound: credentials that
//! agents get. Out of scope: HTTP (see `gateway`), TLS (see `tls`,
//! `transport`).

mod caller;
mod certificate;
mod inbound;
mod jwks;
mod outbound;
mod rules;

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use governor::clock::{Clock, DefaultClock};
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};
use jwks::SignedMessage;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, PercentEncode, utf8_percent_encode};

use crate::sync::lock;

pub(crate) use crate::config::matches_pattern as fits_pattern;
pub(crate) use caller::Caller;
pub use certificate::ClientCertificate;
pub(crate) use certificate::{ChainVerifier, ClientTlsInfo, TrustAnchors, TrustHandle};
pub use inbound::AuthProblem;
pub(crate) use inbound::{
    Authenticator, CertificateFacts, Denied, Endpoint, PresentedCredentials, ServedProtocol,
};
pub(crate) use jwks::{ALGORITHMS, KeySet, SignatureError};
pub use outbound::SubjectToken;
pub(crate) use outbound::{
    AccessToken, AgentTokens, CardKey, Credentials, ReloadOutcome, TlsIdentity, TokenUnavailable,
};
pub(crate) use rules::{Action, PolicyDecision, Rules};

/// The characters of a member of a query or a form that are encoded (RFC 3986 §2.3).
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Encodes text for a member of a query or a form.
fn percent_encoded(text: &str) -> PercentEncode<'_> {
    utf8_percent_encode(text, RESERVED)
}

/// The factor by which failures of one second may come at once.
const BURST: u32 = 10;
/// The maximum number of addresses that are refused at a time.
const MAX_REFUSED: usize = 65_536;
/// The shortest time for which an address is refused.
const MIN_PAUSE: Duration = Duration::from_secs(1);

/// Counts failed attempts by address.
pub(crate) struct FailureLimiter {
    failures: usize,
    rate: Option<DefaultKeyedRateLimiter<IpAddr>>,
    refused_until: Mutex<HashMap<IpAddr, Instant>>,
    clock: DefaultClock,
}

impl FailureLimiter {
    /// Allows each address this many failures in a second; 0 is any number.
    pub(crate) fn new(limit: usize) -> Self {
        let failures = NonZeroU32::new(u32::try_from(limit).unwrap_or(u32::MAX));
        let quota = |rate: NonZeroU32| {
            Quota::per_second(rate)
                .allow_burst(rate.saturating_mul(NonZeroU32::MIN.saturating_add(BURST - 1)))
        };
        Self {
            failures: limit,
            rate: failures.map(|rate| RateLimiter::keyed(quota(rate))),
            refused_until: Mutex::default(),
            clock: DefaultClock::default(),
        }
    }

    /// Returns this limiter if it allows as many failures, else a new one.
    pub(crate) fn renewed(self: &Arc<Self>, failures: usize) -> Arc<Self> {
        if self.failures == failures { self.clone() } else { Arc::new(Self::new(failures)) }
    }

    /// Checks that an attempt from an address may cost something.
    ///
    /// # Errors
    ///
    /// The time until it may.
    pub(crate) fn check(&self, address: Option<IpAddr>, now: Instant) -> Result<(), Duration> {
        let Some(address) = address.filter(|_| self.rate.is_some()) else { return Ok(()) };
        let mut refused_until = self.refused_until();
        match refused_until.get(&address) {
            Some(until) if now < *until => Err(*until - now),
            Some(_) => {
                refused_until.remove(&address);
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Counts a failed attempt from an address.
    pub(crate) fn record(&self, address: Option<IpAddr>, now: Instant) {
        let (Some(address), Some(rate)) = (address, &self.rate) else { return };
        if let Err(wait) = rate.check_key(&address) {
            let wait = wait.wait_time_from(self.clock.now()).max(MIN_PAUSE);
            let mut refused_until = self.refused_until();
            // The sweep removes addresses that have stopped, every few seconds.
            if refused_until.len() < MAX_REFUSED {
                refused_until.insert(address, now + wait);
            }
        }
    }

    /// Forgets the addresses that have stopped.
    pub(crate) fn sweep(&self, now: Instant) {
        if let Some(rate) = &self.rate {
            rate.retain_recent();
            rate.shrink_to_fit();
        }
        self.refused_until().retain(|_, until| now < *until);
    }

    fn refused_until(&self) -> MutexGuard<'_, HashMap<IpAddr, Instant>> {
        lock(&self.refused_until)
    }
}

/// Returns the address that stands for a client: of IPv6 its network of 64 bits, as a client with
/// one address there can use all of them.
pub(crate) fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_is_refused_after_many_failures() {
        let (limiter, now) = (FailureLimiter::new(1), Instant::now());
        let (one, other) = ("192.0.2.1".parse().ok(), "192.0.2.2".parse().ok());
        for _ in 0..BURST {
            limiter.record(one, now);
            assert!(limiter.check(one, now).is_ok());
        }
        limiter.record(one, now);
        let wait = limiter.check(one, now).unwrap_err();
        assert!(wait >= MIN_PAUSE && wait <= 2 * MIN_PAUSE, "{wait:?}");
        assert!(limiter.check(other, now).is_ok() && limiter.check(None, now).is_ok());
        let later = now + Duration::from_secs(3);
        assert!(limiter.check(one, later).is_ok());
        limiter.sweep(later);
        assert!(limiter.refused_until().is_empty());
    }

    #[test]
    fn without_a_limit_no_address_is_refused() {
        let (limiter, now) = (FailureLimiter::new(0), Instant::now());
        let one = "192.0.2.1".parse().ok();
        (0..1000).for_each(|_| limiter.record(one, now));
        assert!(limiter.check(one, now).is_ok());
    }

    #[test]
    fn addresses_of_one_network_are_one() {
        for (address, expected) in [
            ("192.0.2.1", "192.0.2.1"),
            ("::ffff:192.0.2.1", "192.0.2.1"),
            ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
        ] {
            assert_eq!(network(address.parse().unwrap()), expected.parse::<IpAddr>().unwrap(), "{address}");
        }
    }
}
