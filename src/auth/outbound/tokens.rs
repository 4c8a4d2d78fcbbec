//! The tokens of one agent: fetched once for all that wait, renewed before they end, replaced once
//! when the agent rejects one.
//!
//! With [`Grant::TokenExchange`] there is one for each token of a caller (RFC 8693), in a bounded
//! cache; otherwise one for all. Nothing is spawned: the first request that needs a token fetches
//! it, and if that one is dropped, the next one does. In a slot
//! time is an argument. See `token_endpoint` for the request.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use http::HeaderValue;
use sha2::{Digest, Sha256};

use super::token_endpoint::{TokenEndpoint, TokenRequestError, TokenResponse};
use crate::config::{AgentTls, Grant, OAuth2, Secret};
use crate::sync::lock;
use crate::telemetry::label::Token;
use crate::telemetry::metrics::AgentMetrics;
use crate::timing::{Backoff, with_jitter};
use crate::transport::HttpClient;

/// The longest time that a request waits for a token.
const WITHIN: Duration = Duration::from_secs(15);
/// The maximum number of callers with cached tokens.
const CALLERS: usize = 1000;

/// The reason for which there is no token, as text for clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TokenUnavailable {
    /// There may be one later.
    Now(&'static str),
    /// There is none for the caller's token: only with another token of its own may there be one.
    OfCaller(&'static str),
}

impl TokenUnavailable {
    /// Returns the text.
    pub(crate) fn why(self) -> &'static str {
        match self {
            Self::Now(why) | Self::OfCaller(why) => why,
        }
    }
}

/// The token that a caller presented to the gateway, for its exchange. Never sent to an agent.
pub struct SubjectToken {
    token: Secret,
    digest: [u8; 32],
}

impl SubjectToken {
    /// Wraps a caller's token, without the word `Bearer`. The gateway has validated it.
    pub fn new(token: Secret) -> Self {
        let digest = Sha256::digest(token.expose().as_bytes()).into();
        Self { token, digest }
    }
}

impl fmt::Debug for SubjectToken {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("***")
    }
}

/// The source of the tokens for one agent.
pub(crate) struct AgentTokens {
    agent: String,
    client: HttpClient,
    settings: ArcSwap<(OAuth2, TokenEndpoint)>,
    own: TokenSlot,
    /// Slots by the digest of the caller's token: another token of the same caller gets another.
    callers: Mutex<HashMap<[u8; 32], Arc<TokenSlot>>>,
    /// The backoff of the endpoint as a whole; a failure that one caller's token may have caused is
    /// recorded in its slot.
    pauses: Mutex<TokenBackoff>,
    metrics: Arc<AgentMetrics>,
}

impl AgentTokens {
    pub(super) fn new(
        agent: &str,
        oauth2: &OAuth2,
        tls: &AgentTls,
        client: HttpClient,
        metrics: Arc<AgentMetrics>,
    ) -> Result<Self, String> {
        let endpoint = TokenEndpoint::new(oauth2, tls)?;
        Ok(Self {
            agent: agent.to_owned(),
            client,
            settings: ArcSwap::from_pointee((oauth2.clone(), endpoint)),
            own: TokenSlot::default(),
            callers: Mutex::default(),
            pauses: Mutex::default(),
            metrics,
        })
    }

    /// Applies other settings from now on; valid tokens stay.
    pub(super) fn change(&self, oauth2: &OAuth2, tls: &AgentTls) -> Result<(), String> {
        let endpoint = TokenEndpoint::new(oauth2, tls)?;
        self.settings.store(Arc::new((oauth2.clone(), endpoint)));
        Ok(())
    }

    /// Returns true if each caller's token is exchanged for one of its own.
    pub(crate) fn is_on_behalf(&self) -> bool {
        self.settings.load().0.grant == Grant::TokenExchange
    }

    /// Returns a valid token; fetches it if necessary.
    ///
    /// # Errors
    ///
    /// [`TokenUnavailable`], also during the backoff after a failure.
    pub(crate) async fn pass(&self, subject: Option<&SubjectToken>) -> Result<AccessToken, TokenUnavailable> {
        let of_caller;
        let slot = match (self.is_on_behalf(), subject) {
            (false, _) => &self.own,
            (true, None) => {
                return Err(TokenUnavailable::OfCaller(
                    "the call comes with no token that could be exchanged",
                ));
            }
            (true, Some(subject)) => {
                of_caller = self.slot_of(subject);
                &*of_caller
            }
        };
        if let Some(pass) = slot.take(Instant::now()) {
            return Ok(pass);
        }
        // Boxed: a call that finds a token must not grow by it.
        let fetching = Box::pin(self.fetched(slot, subject));
        let waited = tokio::time::timeout(WITHIN, fetching).await;
        waited.unwrap_or(Err(TokenUnavailable::Now("its token endpoint does not answer in time")))
    }

    /// Replaces a token that the agent rejected; `None` if another would be no better.
    ///
    /// # Errors
    ///
    /// As [`AgentTokens::pass`].
    pub(crate) async fn replace_rejected(
        &self,
        refused: &AccessToken,
        subject: Option<&SubjectToken>,
    ) -> Result<Option<AccessToken>, TokenUnavailable> {
        let of_caller = subject.filter(|_| self.is_on_behalf()).map(|subject| self.slot_of(subject));
        let slot = of_caller.as_deref().unwrap_or(&self.own);
        self.metrics.token(Token::Refused);
        if !slot.refuse(refused, Instant::now()) {
            return Ok(None);
        }
        self.pass(subject).await.map(Some)
    }

    /// Renews the token if it is in use and ends soon. A failure is not returned: the token is
    /// still valid.
    pub(crate) async fn renew(&self) {
        if !self.own.needs_renewal(Instant::now()) {
            return;
        }
        let Ok(_flight) = self.own.flight.try_lock() else { return };
        if self.own.needs_renewal(Instant::now()) && self.rests(&self.own).is_none() {
            drop(self.fetch(&self.own, None).await);
        }
    }

    async fn fetched(
        &self,
        slot: &TokenSlot,
        subject: Option<&SubjectToken>,
    ) -> Result<AccessToken, TokenUnavailable> {
        let _flight = slot.flight.lock().await;
        if let Some(pass) = slot.take(Instant::now()) {
            return Ok(pass);
        }
        if let Some(no_token) = self.rests(slot) {
            return Err(no_token);
        }
        let pass = self.fetch(slot, subject).await?;
        // In use from now on.
        Ok(slot.take(Instant::now()).unwrap_or(pass))
    }

    fn rests(&self, slot: &TokenSlot) -> Option<TokenUnavailable> {
        let now = Instant::now();
        let all = lock(&self.pauses).retry_after(now);
        all.or_else(|| slot.retry_after(now))
    }

    /// Returns the error for a rejected request: it concerns the caller's token, if such tokens are
    /// exchanged.
    fn refused(&self, subject: Option<&SubjectToken>, why: &'static str) -> TokenUnavailable {
        if subject.is_some() && self.is_on_behalf() {
            TokenUnavailable::OfCaller(why)
        } else {
            TokenUnavailable::Now(why)
        }
    }

    /// Fetches a token; the caller holds the flight.
    async fn fetch(
        &self,
        slot: &TokenSlot,
        subject: Option<&SubjectToken>,
    ) -> Result<AccessToken, TokenUnavailable> {
        let settings = self.settings.load_full();
        let (oauth2, endpoint) = &*settings;
        let token = subject.filter(|_| oauth2.grant == Grant::TokenExchange).map(|subject| &subject.token);
        match endpoint.request(&self.client, oauth2, token).await {
            Ok(fetched) => Ok(self.keep(slot, &fetched)),
            Err(failed) => Err(self.failed(slot, subject, failed)),
        }
    }

    fn keep(&self, slot: &TokenSlot, fetched: &TokenResponse) -> AccessToken {
        self.metrics.token(Token::Fetched);
        let was_dead = lock(&self.pauses).worked();
        let (pass, had_failed) = slot.keep(fetched, Instant::now());
        if was_dead || had_failed {
            tracing::info!(agent = self.agent, "fetched token for agent after failures");
        }
        pass
    }

    fn failed(
        &self,
        slot: &TokenSlot,
        subject: Option<&SubjectToken>,
        failed: TokenRequestError,
    ) -> TokenUnavailable {
        self.metrics.token(Token::Failed);
        let (now, spread) = (Instant::now(), rand::random());
        let no_token = match failed {
            TokenRequestError::Unreachable(why) | TokenRequestError::Unfulfilled(why) => {
                TokenUnavailable::Now(why)
            }
            TokenRequestError::Refused(why) => self.refused(subject, why),
        };
        let is_first = match failed {
            TokenRequestError::Unreachable(_) => {
                let mut pauses = lock(&self.pauses);
                pauses.failed(now, no_token, spread)
            }
            TokenRequestError::Unfulfilled(_) | TokenRequestError::Refused(_) => {
                slot.failed(now, no_token, spread)
            }
        };
        // A caller's own token can be refused at will.
        if is_first && matches!(no_token, TokenUnavailable::OfCaller(_)) {
            tracing::info!(agent = self.agent, error = no_token.why(), "failed to exchange token of caller");
        } else if is_first {
            tracing::warn!(agent = self.agent, error = no_token.why(), "failed to fetch token for agent");
        }
        no_token
    }

    /// Returns the slot of a caller's token; if there are too many, empty slots are evicted, then
    /// the least recently used.
    fn slot_of(&self, subject: &SubjectToken) -> Arc<TokenSlot> {
        let mut callers = lock(&self.callers);
        if let Some(slot) = callers.get(&subject.digest) {
            return slot.clone();
        }
        if callers.len() >= CALLERS {
            let now = Instant::now();
            callers.retain(|_, slot| slot.last_used(now).1);
            let oldest = callers.iter().min_by_key(|(_, slot)| slot.last_used(now).0).map(|(key, _)| *key);
            if let Some(oldest) = oldest.filter(|_| callers.len() >= CALLERS) {
                callers.remove(&oldest);
            }
        }
        callers.entry(subject.digest).or_default().clone()
    }
}

/// A token is renewed when this fraction of its lifetime is left, but not earlier than [`EARLY`]
/// before its end.
const LEFT: u32 = 4;
const EARLY: Duration = Duration::from_secs(60);
/// The pauses after failures.
const RETRY: Backoff = Backoff { base: Duration::from_secs(1), max: Duration::from_secs(30) };
/// The maximum relative error of a pause, down and up.
const JITTER: f64 = 0.2;
/// The time within which a token that replaced a rejected one is not replaced again: another would
/// be no better.
const NO_BETTER: Duration = Duration::from_secs(10);

/// A token for a request to an agent.
#[derive(Clone)]
pub(crate) struct AccessToken {
    value: HeaderValue,
    number: u64,
}

impl AccessToken {
    /// Returns the value of `Authorization`. Marked as sensitive.
    pub(crate) fn value(&self) -> &HeaderValue {
        &self.value
    }
}

/// The slot of one token.
#[derive(Default)]
struct TokenSlot {
    inside: Mutex<SlotState>,
    /// Held by the caller that fetches; the others wait for it, and then find the token.
    flight: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct SlotState {
    held: Option<CachedToken>,
    count: u64,
    was_refused: bool,
    pauses: TokenBackoff,
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
struct TokenBackoff {
    failures: u32,
    over: Option<(Instant, TokenUnavailable)>,
}

impl TokenBackoff {
    /// Returns the last error if no attempt may be made at `now`.
    fn retry_after(&self, now: Instant) -> Option<TokenUnavailable> {
        self.over.filter(|(until, _)| now < *until).map(|(_, why)| why)
    }

    /// Records a failure; returns true if it is the first in a row. `spread` (0 to 1) keeps
    /// replicas apart.
    pub(super) fn failed(&mut self, now: Instant, why: TokenUnavailable, spread: f64) -> bool {
        let pause = RETRY.pause(self.failures);
        self.failures = self.failures.saturating_add(1);
        self.over = Some((now + with_jitter(pause, JITTER, spread), why));
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
    fn take(&self, now: Instant) -> Option<AccessToken> {
        let mut inside = self.inside();
        inside.used = Some(now);
        let held = inside.held.as_mut().filter(|held| now < held.until)?;
        held.is_used = true;
        Some(held.pass.clone())
    }

    /// Returns true if a token that is in use must be renewed at `now`. An unused token is left to
    /// expire.
    fn needs_renewal(&self, now: Instant) -> bool {
        let inside = self.inside();
        inside.held.as_ref().is_some_and(|held| held.is_used && now >= held.due)
            && inside.pauses.retry_after(now).is_none()
    }

    /// Returns the last error if nothing may be fetched at `now`.
    fn retry_after(&self, now: Instant) -> Option<TokenUnavailable> {
        self.inside().pauses.retry_after(now)
    }

    fn failed(&self, now: Instant, why: TokenUnavailable, spread: f64) -> bool {
        self.inside().pauses.failed(now, why, spread)
    }

    /// Stores a token that came at `now`; returns true if there were failures before.
    fn keep(&self, fetched: &TokenResponse, now: Instant) -> (AccessToken, bool) {
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
    fn refuse(&self, refused: &AccessToken, now: Instant) -> bool {
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
    fn last_used(&self, now: Instant) -> (Option<Instant>, bool) {
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
    fn failures_back_off() {
        let (slot, now, dead) = (TokenSlot::default(), Instant::now(), TokenUnavailable::Now("dead"));
        assert!(slot.failed(now, dead, 0.5));
        assert_eq!(slot.retry_after(now + Duration::from_millis(999)), Some(dead));
        assert_eq!(slot.retry_after(now + Duration::from_millis(1001)), None);
        assert!(!slot.failed(now, dead, 0.5));
        assert!(slot.retry_after(now + Duration::from_millis(1999)).is_some());
        for _ in 0..99 {
            slot.failed(now, dead, 1.0);
        }
        assert!(slot.retry_after(now + RETRY.max.mul_f64(1.2)).is_none());
        let (_, recovered) = slot.keep(&token(1), now);
        assert!(recovered && slot.retry_after(now).is_none());
    }
}
