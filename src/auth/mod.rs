//! Authentication and authorization of callers, and credentials for agents.
//!
//! Inbound: certificates, bearer tokens and API keys become a [`Caller`], and [`Rules`] authorize
//! it; after too many failed attempts an address is refused for a while. Outbound: credentials that
//! agents get. Out of scope: HTTP (see `gateway`), TLS (see `tls`, `transport`).

mod certificate;
mod inbound;
mod jwks;
mod outbound;
mod rules;

use std::collections::HashMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::net::{IpAddr, Ipv6Addr};
use std::num::NonZeroU32;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use governor::clock::{Clock, DefaultClock};
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, PercentEncode, utf8_percent_encode};

use crate::sync::lock;
use jwks::SignedMessage;

pub(crate) use crate::config::matches_pattern as fits_pattern;
pub use certificate::ClientCertificate;
pub(crate) use certificate::{ChainVerifier, ClientTlsInfo, TrustAnchors, TrustHandle};
pub use inbound::AuthProblem;
pub(crate) use inbound::{
    Authenticator, CertificateFacts, Denied, Endpoint, PresentedCredentials, ServedProtocol,
};
pub(crate) use jwks::{ALGORITHMS, KeySet, SignatureError};
pub use outbound::SubjectToken;
pub(crate) use outbound::{
    AccessToken, AgentTokens, CardKey, Credentials, ReloadOutcome, RequestCredentials, TlsIdentity,
    TokenUnavailable,
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

/// A client, by a name that stays the same when its keys change: all that the client owns is bound
/// to this name.
///
/// Two callers are the same if their names are. Clones share everything.
#[derive(Clone)]
pub(crate) struct Caller(Arc<Identity>);

/// The authenticated facts about a client.
#[derive(Debug, Clone, Default)]
struct Identity {
    name: String,
    /// Each name by itself, if the client authenticated with several.
    parts: Vec<String>,
    /// All names in its certificate.
    certificate: Vec<String>,
    /// The scopes of its token, with those that they include.
    scopes: Vec<String>,
    groups: Vec<String>,
    /// The claims of its token that could not be read completely.
    unclear: UnreadableClaims,
    /// True if it presented a token, so that it could get one with more scopes.
    has_token: bool,
}

/// The claims of a token that could not be read: no rule allows anything by them, and each rule
/// that denies by them denies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct UnreadableClaims {
    scopes: bool,
    groups: bool,
}

pub(crate) const ANONYMOUS: &str = "anonymous";
const LOCAL: &str = "local";
/// Separates the names of a client that authenticated with several.
const AND: &str = " & ";

impl Caller {
    /// Returns the caller of all clients without credentials. They share one name, so that their
    /// handles are bearer secrets.
    pub(crate) fn anonymous() -> Self {
        static NOBODY: LazyLock<Caller> =
            LazyLock::new(|| Caller::from(Identity { name: ANONYMOUS.to_owned(), ..Identity::default() }));
        NOBODY.clone()
    }

    /// Returns the caller of the program that started this process and speaks to it over standard
    /// input and output. The operating system keeps other programs from doing so.
    pub(crate) fn local() -> Self {
        Self::from(Identity { name: LOCAL.to_owned(), ..Identity::default() })
    }

    /// Creates a caller of this name, with these scopes and groups: to explain its permissions.
    pub(crate) fn hypothetical(name: &str, scopes: Vec<String>, groups: Vec<String>) -> Self {
        let parts: Vec<String> = name.split(AND).map(|part| part.replace("&&", "&")).collect();
        let kind =
            |part: &String| part.split_once(':').map(|(kind, name)| (kind.to_owned(), name.to_owned()));
        let kinds = parts.iter().filter_map(kind);
        let sans = kinds.filter(|(kind, _)| matches!(kind.as_str(), "uri" | "dns"));
        let certificate = sans.map(|(_, san)| san).collect();
        let is_of_token = |part: &String| part.starts_with("token:") || part.starts_with("client:");
        let has_token = parts.iter().any(is_of_token);
        let parts = if parts.len() > 1 { parts } else { Vec::new() };
        let unclear = UnreadableClaims::default();
        Self::from(Identity { name: name.to_owned(), parts, certificate, scopes, groups, unclear, has_token })
    }

    /// Returns true if the client presented no credentials.
    pub(crate) fn is_anonymous(&self) -> bool {
        self.0.name == ANONYMOUS
    }

    /// Returns the stable name: `key:NAME`, `token:ISSUER#SUBJECT`, `client:ISSUER#CLIENT_ID`,
    /// `uri:…`, `dns:…`, `cn:…`, `local` or `anonymous`; several with ` & ` between them, so that a caller
    /// with several credentials shares nothing with one that has only one of them.
    pub(crate) fn name(&self) -> &str {
        &self.0.name
    }

    /// Returns the whole name and, if the client authenticated with several, each by itself.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.name()).chain(self.0.parts.iter().map(String::as_str))
    }

    /// Returns the scopes of its token, with those that they include.
    pub(crate) fn scopes(&self) -> &[String] {
        &self.0.scopes
    }

    /// Returns the groups that its token names.
    pub(crate) fn groups(&self) -> &[String] {
        &self.0.groups
    }

    /// Returns the claims of its token that could not be read.
    fn unclear(&self) -> UnreadableClaims {
        self.0.unclear
    }

    /// Returns the SANs of its certificate.
    pub(crate) fn certificate(&self) -> &[String] {
        &self.0.certificate
    }

    /// Returns true if it presented a token.
    pub(crate) fn has_token(&self) -> bool {
        self.0.has_token
    }

    /// Adds the facts of another credential of the same client.
    fn and(self, other: &Self) -> Self {
        let mut all = Arc::unwrap_or_clone(self.0);
        if all.parts.is_empty() {
            all.parts.push(std::mem::take(&mut all.name));
        }
        all.parts.push(other.name().to_owned());
        // Doubled within a name, it cannot be taken for a separator.
        all.name = all.parts.iter().map(|part| part.replace('&', "&&")).collect::<Vec<_>>().join(AND);
        all.certificate.extend_from_slice(&other.0.certificate);
        all.scopes.extend_from_slice(&other.0.scopes);
        all.groups.extend_from_slice(&other.0.groups);
        all.unclear.scopes |= other.0.unclear.scopes;
        all.unclear.groups |= other.0.unclear.groups;
        all.has_token |= other.0.has_token;
        Self::from(all)
    }
}

impl From<Identity> for Caller {
    fn from(identity: Identity) -> Self {
        Self(Arc::new(identity))
    }
}

impl PartialEq for Caller {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl Eq for Caller {}

impl Hash for Caller {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name().hash(state);
    }
}

impl fmt::Debug for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Caller").field(&self.name()).finish()
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

    fn who(name: &str) -> Caller {
        Caller::from(Identity { name: name.to_owned(), ..Identity::default() })
    }

    #[test]
    fn two_credentials_make_another_caller() {
        let both = who("cn:app").and(&who("token:i#ann"));
        assert_eq!(both.name(), "cn:app & token:i#ann");
        assert_eq!(both.names().collect::<Vec<_>>(), ["cn:app & token:i#ann", "cn:app", "token:i#ann"]);
        assert_eq!(both, Caller::hypothetical(both.name(), Vec::new(), Vec::new()));
        let has_token = |name| Caller::hypothetical(name, Vec::new(), Vec::new()).has_token();
        assert!(has_token("client:i#job") && has_token(both.name()) && !has_token("cn:client:i"));
        assert_eq!(both.clone().and(&who("key:k")).name(), "cn:app & token:i#ann & key:k");
        for one in ["cn:app", "token:i#ann", "cn:app & token:i#bob"] {
            assert_ne!(both, who(one));
        }
    }

    #[test]
    fn a_name_with_the_mark_in_it_is_not_two_names() {
        let odd = who("cn:app & token:i#ann");
        assert_ne!(who("cn:app").and(&who("token:i#ann")).and(&who("key:k")), odd.and(&who("key:k")));
        assert_ne!(who("cn:a &").and(&who("key:k")), who("cn:a").and(&who("& key:k")));
    }
}
