//! How much of its share each caller uses now.
//!
//! Not here: how much it may use (see `shares`).

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, BuildHasherDefault, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::shares::Whose;

/// What is used of a share while it lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Use {
    /// A call of a tool.
    Call,
    /// A request with a body that is waited for.
    Body,
    /// An open stream.
    Stream,
    /// A push of an agent's on its way to it.
    Push,
}

const SHARDS: usize = 16;

/// How much is in use. What is at zero is not there.
#[derive(Default)]
pub(super) struct InUse {
    shards: [Mutex<Shard>; SHARDS],
    hasher: RandomState,
}

type Shard = HashMap<Key, usize, BuildHasherDefault<Hashed>>;

/// What is used, and the hash of that: it is needed four times a call, and reckoned once.
#[derive(Clone, PartialEq, Eq)]
struct Key {
    hash: u64,
    of: (Whose, Use),
}

/// Takes the hash that a [`Key`] has for its hash.
#[derive(Default)]
struct Hashed(u64);

/// A part of a share, until it is dropped.
pub(super) struct Part {
    key: Key,
    in_use: Arc<InUse>,
}

impl InUse {
    /// Takes a part, if fewer than `most` are taken.
    pub(super) fn take(self: &Arc<Self>, of: (Whose, Use), most: usize) -> Option<Part> {
        let key = Key { hash: self.hasher.hash_one(&of), of };
        {
            let mut shard = self.shard(&key)?;
            let used = shard.entry(key.clone()).or_insert(0);
            if *used >= most {
                return None;
            }
            *used += 1;
        }
        Some(Part { key, in_use: self.clone() })
    }

    /// Whether nothing is in use.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.shards.iter().all(|shard| shard.lock().unwrap().is_empty())
    }

    fn shard(&self, key: &Key) -> Option<MutexGuard<'_, Shard>> {
        // Not the lowest bits nor the highest: the maps go by those.
        let at = usize::try_from((key.hash >> 32) % SHARDS as u64).ok()?;
        Some(self.shards.get(at)?.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

impl Hasher for Hashed {
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

impl Drop for Part {
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
