//! The cache of verified tokens: a signature is not verified, and an issuer not asked, for every
//! request.
//!
//! Tokens are known by their SHA-256. Bounded: a full shard is emptied, which costs each token one
//! more check.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};

use super::claims::VerifiedToken;
use crate::sync::lock;

/// Tokens per shard.
const ENTRIES_PER_SHARD: usize = 512;
const SHARDS: usize = 16;
/// The longest time for which a token is accepted without another verification of its signature;
/// introspected tokens have a limit of their own.
pub(super) const MAX_TTL: Duration = Duration::from_secs(60);

type TokenCacheShard = HashMap<[u8; 32], (Arc<VerifiedToken>, Instant)>;

/// Recently verified tokens.
#[derive(Default)]
pub(super) struct TokenCache {
    shards: [Mutex<TokenCacheShard>; SHARDS],
    /// Counts how often it was emptied, so that no result of an earlier verification is stored.
    emptied: AtomicU64,
}

/// The key of a token in the cache.
#[derive(Clone, Copy)]
pub(super) struct TokenDigest([u8; 32]);

impl TokenDigest {
    pub(super) fn of(token: &str) -> Self {
        Self(Sha256::digest(token.as_bytes()).into())
    }
}

impl TokenCache {
    /// Returns the facts of a token, if it was verified shortly before `now`.
    pub(super) fn get(&self, token: TokenDigest, now: Instant) -> Option<Arc<VerifiedToken>> {
        let shard = self.shard(token)?;
        shard.get(&token.0).filter(|(_, until)| now < *until).map(|(proven, _)| Arc::clone(proven))
    }

    /// Returns the state before a verification, for [`insert`](Self::insert) after it.
    pub(super) fn state(&self) -> u64 {
        self.emptied.load(Ordering::Acquire)
    }

    /// Stores the facts of a token until then, unless the cache was cleared since `state`.
    pub(super) fn insert(&self, token: TokenDigest, proven: Arc<VerifiedToken>, until: Instant, state: u64) {
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
    pub(super) fn forget(&self) {
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
    fn what_was_proven_is_known_for_a_while_and_forgotten_with_the_keys() {
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
