//! Counters of the quota that each caller uses at present. Part of `limits`.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, BuildHasherDefault, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard};

use crate::quota::QuotaOwner;
use crate::sync::lock;

/// Kind of use that a quota counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum QuotaKind {
    /// Call of a tool.
    Call,
    /// Request that waits for its body.
    Body,
    /// Open stream.
    Stream,
    /// Push of an agent on its way to a client.
    Push,
}

const SHARDS: usize = 16;

/// Counters by owner and kind. An entry at zero is removed.
#[derive(Default)]
pub(crate) struct UsageCounters {
    shards: [Mutex<UsageShard>; SHARDS],
    hasher: RandomState,
}

type UsageShard = HashMap<UsageKey, usize, BuildHasherDefault<PrecomputedHasher>>;

/// Owner and kind with their hash, which is computed once and needed four times a call.
#[derive(Clone, PartialEq, Eq)]
struct UsageKey {
    hash: u64,
    of: (QuotaOwner, QuotaKind),
}

/// Hasher that returns the hash in a [`UsageKey`].
#[derive(Default)]
struct PrecomputedHasher(u64);

/// Permit for one unit of a quota, until it is dropped.
pub(crate) struct QuotaPermit {
    key: UsageKey,
    in_use: Arc<UsageCounters>,
}

impl UsageCounters {
    /// Acquires a permit if fewer than `limit` are in use.
    pub(crate) fn acquire(
        self: &Arc<Self>,
        owner: QuotaOwner,
        kind: QuotaKind,
        limit: usize,
    ) -> Option<QuotaPermit> {
        let of = (owner, kind);
        let key = UsageKey { hash: self.hasher.hash_one(&of), of };
        {
            let mut shard = self.shard(&key)?;
            let used = shard.entry(key.clone()).or_insert(0);
            if *used >= limit {
                return None;
            }
            *used += 1;
        }
        Some(QuotaPermit { key, in_use: self.clone() })
    }

    /// Returns true if no permit is in use.
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.shards.iter().all(|shard| shard.lock().unwrap().is_empty())
    }

    fn shard(&self, key: &UsageKey) -> Option<MutexGuard<'_, UsageShard>> {
        // Neither the lowest nor the highest bits: the maps use those.
        let at = usize::try_from((key.hash >> 32) % SHARDS as u64).ok()?;
        Some(lock(self.shards.get(at)?))
    }
}

impl Hash for UsageKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

impl Hasher for PrecomputedHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.0 = self.0.rotate_left(8) ^ u64::from(*byte));
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

impl Drop for QuotaPermit {
    fn drop(&mut self) {
        let Some(mut shard) = self.in_use.shard(&self.key) else { return };
        if let Some(used) = shard.get_mut(&self.key) {
            *used = used.saturating_sub(1);
            if *used == 0 {
                shard.remove(&self.key);
            }
        }
    }
}
