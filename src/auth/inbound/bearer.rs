//! Bearer tokens: the issuer of a token, its validity, its audience, and its caller.
//!
//! A JWT of an issuer with keys is verified by its signature (RFC 7519, 8725, 9068); every other
//! token is sent to the issuers with introspection. See also `issuer` and `claims`.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use jsonwebtoken::Algorithm;
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::claims::{ClaimsError, ClaimsMapper, Jwt, VerifiedToken};
use super::issuer::{Introspection, IntrospectionSettings, IssuerClient, IssuerKeys, KeyRefreshOutcome};
use super::{AuthProblem, Denied, Endpoint, PresentedCredentials};
use crate::auth::{Caller, SignedMessage};
use crate::config::{AllowList, Auth, TokenIssuer, TokenVerification};
use crate::sync::lock;
use crate::transport::HttpClient;

/// The maximum length of a token, in bytes.
const LONGEST_TOKEN: usize = 16 * 1024;

/// All issuers.
pub(super) struct TokenIssuers {
    issuers: Vec<IssuerVerifier>,
    public_url: Option<String>,
    cache: TokenCache,
}

struct IssuerVerifier {
    name: String,
    audience: Vec<String>,
    check: VerificationMethod,
}

enum VerificationMethod {
    Signature { keys: IssuerKeys, algorithms: Vec<Algorithm>, refresh: Duration, reader: ClaimsMapper },
    Introspection(Introspection),
}

impl TokenIssuers {
    pub(super) fn new(
        auth: &Auth,
        public_url: Option<&str>,
        client: HttpClient,
        outbound: &Arc<AllowList>,
    ) -> Result<Self, AuthProblem> {
        let through = |issuer| IssuerClient::new(issuer, client.clone(), outbound);
        let issuers = auth.tokens.iter().map(|issuer| IssuerVerifier::new(issuer, auth, through(issuer)?));
        Ok(Self {
            issuers: issuers.collect::<Result<_, _>>()?,
            public_url: public_url.map(str::to_owned),
            cache: TokenCache::default(),
        })
    }

    /// Returns the caller that a token names. An uncached token is verified only if that may cost
    /// something.
    pub(super) async fn caller(
        &self,
        token: &str,
        shown: &PresentedCredentials<'_>,
    ) -> Result<Caller, Denied> {
        if token.is_empty() || token.len() > LONGEST_TOKEN {
            return Err(Denied::Bad);
        }
        let known = TokenDigest::of(token);
        let proven = match self.cache.get(known, Instant::now()) {
            Some(proven) => proven,
            None if !shown.may_cost => return Err(Denied::Bad),
            // Boxed: few tokens are new, and every request would carry its size.
            None => Box::pin(self.verify(token, known)).await?,
        };
        let issuer = self.issuers.iter().find(|issuer| issuer.name == proven.issuer).ok_or(Denied::Bad)?;
        // Both differ from one request with the token to another.
        let thumbprint = shown.certificate.map(|certificate| certificate.thumbprint);
        let is_for = proven.is_for(|audience| self.matches_audience(issuer, audience, shown.endpoint));
        if is_for && proven.is_usable_with(thumbprint) { Ok(proven.caller.clone()) } else { Err(Denied::Bad) }
    }

    async fn verify(&self, token: &str, known: TokenDigest) -> Result<Arc<VerifiedToken>, Denied> {
        let state = self.cache.state();
        let jwt = Jwt::read(token);
        let signed = jwt.as_ref().and_then(|jwt| Some((jwt, self.signer(jwt)?)));
        let (proven, longest) = match signed {
            Some((jwt, issuer)) => (self.check_signature(issuer, jwt).await?, MAX_TTL),
            None => self.introspect(token).await?,
        };
        let proven = Arc::new(proven);
        let now = unix_now();
        let left = proven.expires.map_or(longest, |at| Duration::from_secs(at.saturating_sub(now)));
        let until = Instant::now() + left.min(longest);
        self.cache.insert(known, proven.clone(), until, state);
        Ok(proven)
    }

    /// Returns the issuer with keys that a token claims to be from.
    fn signer(&self, jwt: &Jwt<'_>) -> Option<&IssuerVerifier> {
        let iss = jwt.claims.get("iss").and_then(Value::as_str)?;
        let has_keys =
            |issuer: &&IssuerVerifier| matches!(issuer.check, VerificationMethod::Signature { .. });
        self.issuers.iter().filter(has_keys).find(|issuer| issuer.name == iss)
    }

    async fn check_signature(&self, issuer: &IssuerVerifier, jwt: &Jwt<'_>) -> Result<VerifiedToken, Denied> {
        let VerificationMethod::Signature { keys, algorithms, reader, .. } = &issuer.check else {
            return Err(Denied::Bad);
        };
        let header = jwt.header().filter(|header| algorithms.contains(&header.algorithm));
        let (header, signature) = header.zip(jwt.signature()).ok_or(Denied::Bad)?;
        let id = header.key_id.as_deref();
        let signed = SignedMessage { message: jwt.message.as_bytes(), signature: &signature };
        let mut is_signed = keys.have_signed(id, header.algorithm, signed);
        if is_signed.is_none() {
            let look = keys.refresh().await;
            if look == KeyRefreshOutcome::Changed {
                self.cache.forget();
            }
            is_signed = keys.have_signed(id, header.algorithm, signed);
            // Its key may be among those that could not be fetched.
            if is_signed.is_none() && look == KeyRefreshOutcome::Failed {
                return Err(Denied::Unavailable);
            }
        }
        if is_signed != Some(true) {
            return Err(Denied::Bad);
        }
        reader.read(&jwt.claims, unix_now()).map_err(|ClaimsError| Denied::Bad)
    }

    /// Asks the issuers with introspection, one after the other.
    async fn introspect(&self, token: &str) -> Result<(VerifiedToken, Duration), Denied> {
        let mut denied = Denied::Bad;
        for issuer in &self.issuers {
            let VerificationMethod::Introspection(introspection) = &issuer.check else { continue };
            match introspection.ask(token).await {
                Ok(proven) => return Ok((proven, introspection.cache)),
                Err(Denied::Unavailable) => denied = Denied::Unavailable,
                Err(_) => {}
            }
        }
        Err(denied)
    }

    /// Returns true if a token with this audience is for this endpoint: the gateway as a whole, all
    /// agents of the protocol, or the one agent.
    fn matches_audience(&self, issuer: &IssuerVerifier, audience: &str, endpoint: Endpoint<'_>) -> bool {
        if !issuer.audience.is_empty() {
            return issuer.audience.iter().any(|ours| ours == audience);
        }
        let base = self.public_url.as_deref();
        let Some(rest) = base.and_then(|base| audience.strip_prefix(base)) else { return false };
        if matches!(rest, "" | "/") {
            return true;
        }
        rest.strip_prefix(endpoint.service.path()).is_some_and(|rest| {
            rest.is_empty() || rest.strip_prefix('/').is_some_and(|agent| endpoint.agent == Some(agent))
        })
    }

    /// Refreshes the keys of all issuers at intervals, for as long as it is polled. One after the
    /// other: there are few.
    pub(super) async fn keep_fresh(&self) {
        let now = tokio::time::Instant::now();
        let mut due: Vec<_> = self.issuers.iter().map(|issuer| (issuer, now)).collect();
        loop {
            for (issuer, at) in due.iter_mut().filter(|(_, at)| *at <= tokio::time::Instant::now()) {
                let VerificationMethod::Signature { keys, refresh, .. } = &issuer.check else {
                    *at += Duration::from_secs(86_400);
                    continue;
                };
                if keys.refresh_now().await == KeyRefreshOutcome::Changed {
                    self.cache.forget();
                }
                *at = tokio::time::Instant::now() + *refresh;
            }
            match due.iter().map(|(_, at)| *at).min() {
                Some(next) => tokio::time::sleep_until(next).await,
                None => std::future::pending().await,
            }
        }
    }
}

impl IssuerVerifier {
    fn new(settings: &TokenIssuer, auth: &Auth, web: IssuerClient) -> Result<Self, AuthProblem> {
        let reader = ClaimsMapper::new(settings, &auth.scope_hierarchy);
        let name = settings.issuer.clone();
        let check = match &settings.check {
            TokenVerification::Signature { keys, algorithms, refresh } => VerificationMethod::Signature {
                keys: IssuerKeys::new(&name, keys.clone(), web),
                algorithms: algorithms
                    .iter()
                    .filter_map(|name| name.parse().ok())
                    .filter(is_asymmetric)
                    .collect(),
                refresh: *refresh,
                reader,
            },
            TokenVerification::Introspection { url, client_id, client_secret, cache } => {
                let page = web
                    .page(url)
                    .map_err(|problem| AuthProblem::Address(name.clone(), problem.to_string()))?;
                let settings =
                    IntrospectionSettings { issuer: name.clone(), client_id, client_secret, cache: *cache };
                VerificationMethod::Introspection(Introspection::new(settings, web, page, reader))
            }
        };
        Ok(Self { name, audience: settings.audience.clone(), check })
    }
}

/// Returns the seconds since 1970.
pub(super) fn unix_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

fn is_asymmetric(algorithm: &Algorithm) -> bool {
    !matches!(algorithm, Algorithm::HS256 | Algorithm::HS384 | Algorithm::HS512)
}

/// Tokens per shard.
const ENTRIES_PER_SHARD: usize = 512;
const SHARDS: usize = 16;
/// The longest time for which a token is accepted without another verification of its signature;
/// introspected tokens have a limit of their own.
const MAX_TTL: Duration = Duration::from_secs(60);

type TokenCacheShard = HashMap<[u8; 32], (Arc<VerifiedToken>, Instant)>;

/// Recently verified tokens.
#[derive(Default)]
struct TokenCache {
    shards: [Mutex<TokenCacheShard>; SHARDS],
    /// Counts how often it was emptied, so that no result of an earlier verification is stored.
    emptied: AtomicU64,
}

/// The key of a token in the cache.
#[derive(Clone, Copy)]
struct TokenDigest([u8; 32]);

impl TokenDigest {
    fn of(token: &str) -> Self {
        Self(Sha256::digest(token.as_bytes()).into())
    }
}

impl TokenCache {
    /// Returns the facts of a token, if it was verified shortly before `now`.
    fn get(&self, token: TokenDigest, now: Instant) -> Option<Arc<VerifiedToken>> {
        let shard = self.shard(token)?;
        shard.get(&token.0).filter(|(_, until)| now < *until).map(|(proven, _)| Arc::clone(proven))
    }

    /// Returns the state before a verification, for [`insert`](Self::insert) after it.
    fn state(&self) -> u64 {
        self.emptied.load(Ordering::Acquire)
    }

    /// Stores the facts of a token until then, unless the cache was cleared since `state`.
    fn insert(&self, token: TokenDigest, proven: Arc<VerifiedToken>, until: Instant, state: u64) {
        let Some(mut shard) = self.shard(token) else { return };
        if self.state() != state {
            return;
        }
        if shard.len() >= ENTRIES_PER_SHARD {
            let now = Instant::now();
            shard.retain(|_, (_, until)| now < *until);
        }
        if shard.len() >= ENTRIES_PER_SHARD {
            shard.clear();
        }
        shard.insert(token.0, (proven, until));
    }

    /// Clears the cache: keys have changed.
    fn forget(&self) {
        self.emptied.fetch_add(1, Ordering::AcqRel);
        for shard in &self.shards {
            lock(shard).clear();
        }
    }

    fn shard(&self, token: TokenDigest) -> Option<MutexGuard<'_, TokenCacheShard>> {
        let at = token.0.first().map_or(0, |byte| usize::from(*byte) % SHARDS);
        self.shards.get(at).map(lock)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verified_tokens_are_cached_until_keys_change() {
        let (cache, now) = (TokenCache::default(), Instant::now());
        let token = TokenDigest::of("t");
        let until = now + Duration::from_secs(10);
        cache.insert(token, Arc::default(), until, cache.state());
        assert!(cache.get(token, now).is_some() && cache.get(TokenDigest::of("u"), now).is_none());
        assert!(cache.get(token, until).is_none());
        let before = cache.state();
        cache.forget();
        assert!(cache.get(token, now).is_none());
        cache.insert(token, Arc::default(), until, before);
        assert!(cache.get(token, now).is_none(), "it was proven by keys that are gone");
    }

    #[test]
    fn it_never_grows_beyond_its_room() {
        let (cache, now) = (TokenCache::default(), Instant::now());
        for number in 0..SHARDS * ENTRIES_PER_SHARD * 2 {
            cache.insert(TokenDigest::of(&number.to_string()), Arc::default(), now + MAX_TTL, cache.state());
        }
        assert!(cache.shards.iter().all(|shard| lock(shard).len() <= ENTRIES_PER_SHARD));
    }
}
