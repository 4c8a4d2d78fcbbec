//! Bytes that requests and responses hold in memory: a quota of the whole process, and one of each
//! caller.
//!
//! A [`BytePermit`] counts the bytes of one buffer and gives them back when it is dropped. Up to
//! [`FREE_BYTES`] of a buffer are not counted: connections and calls have limits of their own, and an
//! ordinary call touches no counter. The number of requests and calls is bounded in `gateway`.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::BuildHasher;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use crate::fault::{AgentFailure, Fault};
use crate::sync::lock;
use crate::telemetry::label::Refusal;
use crate::telemetry::metrics::Metrics;

/// Bytes of one buffer that are not counted.
pub const FREE_BYTES: usize = 16 * 1024;
/// Beyond, bytes are counted in steps of this size.
const STEP_BYTES: usize = 16 * 1024;
const SHARDS: usize = 16;

/// The owner of a quota.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum QuotaOwner {
    /// A caller, by its name.
    Caller(Arc<str>),
    /// Anonymous callers from this address.
    Address(IpAddr),
    /// An agent that pushes, by its name.
    Agent(Arc<str>),
}

/// There is no room for more bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoRoomError {
    /// The caller holds as many as it may.
    #[error("the caller holds as many bytes as limits.caller_bytes allows")]
    OfCaller,
    /// All together hold as many as they may.
    #[error("requests and answers hold as many bytes as limits.bytes allows")]
    OfAll,
}

impl From<NoRoomError> for Fault {
    fn from(error: NoRoomError) -> Self {
        match error {
            NoRoomError::OfCaller => Self::CallerBytes,
            NoRoomError::OfAll => Self::Bytes,
        }
    }
}

impl From<NoRoomError> for AgentFailure {
    fn from(error: NoRoomError) -> Self {
        match error {
            NoRoomError::OfCaller => Self::CallerBytes,
            NoRoomError::OfAll => Self::Bytes,
        }
    }
}

/// The byte quota of the process.
pub struct ByteQuota {
    max_bytes: usize,
    max_caller_bytes: usize,
    usage: Arc<ByteUsage>,
    metrics: Arc<Metrics>,
}

/// The bytes in use.
#[derive(Default)]
struct ByteUsage {
    used: AtomicUsize,
    /// Owners that hold bytes now.
    accounts: [Mutex<HashMap<QuotaOwner, Arc<ByteAccount>>>; SHARDS],
    hasher: RandomState,
}

/// The bytes of one caller.
#[derive(Debug, Default)]
struct ByteAccount(AtomicUsize);

impl ByteQuota {
    /// Returns a quota of `max_bytes`, of which no caller gets more than `max_caller_bytes`.
    #[must_use]
    pub fn new(max_bytes: usize, max_caller_bytes: usize, metrics: Arc<Metrics>) -> Self {
        Self { max_bytes, max_caller_bytes, usage: Arc::default(), metrics }
    }

    /// Returns a quota with other limits that counts the same bytes.
    #[must_use]
    pub(crate) fn renewed(&self, max_bytes: usize, max_caller_bytes: usize) -> Self {
        let (usage, metrics) = (self.usage.clone(), self.metrics.clone());
        Self { max_bytes, max_caller_bytes, usage, metrics }
    }

    /// Returns the number of bytes that are counted now.
    #[must_use]
    pub fn used(&self) -> usize {
        self.usage.used.load(Ordering::Relaxed)
    }

    /// Returns a permit for a buffer of this caller, or of none. It counts nothing yet.
    #[must_use]
    pub fn permit(self: &Arc<Self>, owner: Option<&QuotaOwner>) -> BytePermit {
        BytePermit { quota: self.clone(), owner: owner.cloned(), account: None, counted: 0 }
    }

    fn acquire(&self, account: Option<&ByteAccount>, bytes: usize) -> Result<(), NoRoomError> {
        if account.is_some_and(|account| !add(&account.0, bytes, self.max_caller_bytes)) {
            return Err(self.refused(NoRoomError::OfCaller));
        }
        if !add(&self.usage.used, bytes, self.max_bytes) {
            if let Some(account) = account {
                account.0.fetch_sub(bytes, Ordering::Relaxed);
            }
            return Err(self.refused(NoRoomError::OfAll));
        }
        Ok(())
    }

    fn refused(&self, error: NoRoomError) -> NoRoomError {
        self.metrics.refused(match error {
            NoRoomError::OfCaller => Refusal::CallerBytes,
            NoRoomError::OfAll => Refusal::Bytes,
        });
        error
    }

    fn account(&self, owner: &QuotaOwner) -> Option<Arc<ByteAccount>> {
        Some(self.shard(owner)?.entry(owner.clone()).or_default().clone())
    }

    /// Releases the account of a caller; the last permit removes it.
    fn close(&self, owner: &QuotaOwner, account: Arc<ByteAccount>) {
        let Some(mut shard) = self.shard(owner) else { return };
        // Under the lock: of two concurrent releases one is the last.
        drop(account);
        if shard.get(owner).is_some_and(|account| Arc::strong_count(account) == 1) {
            shard.remove(owner);
        }
    }

    fn shard(&self, owner: &QuotaOwner) -> Option<MutexGuard<'_, HashMap<QuotaOwner, Arc<ByteAccount>>>> {
        let usage = &self.usage;
        let at = usize::try_from(usage.hasher.hash_one(owner) % SHARDS as u64).ok()?;
        Some(lock(usage.accounts.get(at)?))
    }
}

/// Adds to a counter, unless it would pass `max`.
fn add(counter: &AtomicUsize, bytes: usize, max: usize) -> bool {
    let more = |used: usize| used.checked_add(bytes).filter(|used| *used <= max);
    counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
}

/// The bytes of one buffer, until this is dropped.
pub struct BytePermit {
    quota: Arc<ByteQuota>,
    owner: Option<QuotaOwner>,
    /// Looked up once something is counted.
    account: Option<Arc<ByteAccount>>,
    counted: usize,
}

impl BytePermit {
    /// Counts this many bytes from now on, instead of those before.
    ///
    /// # Errors
    ///
    /// [`NoRoomError`] if there is no room for more; nothing has changed then.
    pub fn set(&mut self, bytes: usize) -> Result<(), NoRoomError> {
        let wanted = if bytes <= FREE_BYTES { 0 } else { bytes.next_multiple_of(STEP_BYTES) };
        if wanted > self.counted {
            if self.account.is_none() {
                self.account = self.owner.as_ref().and_then(|owner| self.quota.account(owner));
            }
            self.quota.acquire(self.account.as_deref(), wanted - self.counted)?;
            self.counted = wanted;
        } else {
            self.give_back(self.counted - wanted);
        }
        Ok(())
    }

    /// Counts no more than this many bytes from now on.
    pub fn shrink_to(&mut self, bytes: usize) {
        let wanted = if bytes <= FREE_BYTES { 0 } else { bytes.next_multiple_of(STEP_BYTES) };
        self.give_back(self.counted.saturating_sub(wanted));
    }

    /// Takes over the bytes that another permit of the same caller counts.
    pub fn absorb(&mut self, mut other: Self) {
        self.counted += std::mem::take(&mut other.counted);
        self.account = self.account.take().or(other.account.take());
    }

    /// Takes over all bytes that another permit of the same caller counts now; that one continues
    /// from zero.
    pub fn absorb_all(&mut self, other: &mut Self) {
        if let Some(other) = other.split() {
            self.absorb(other);
        }
    }

    /// Returns a permit with all bytes that this one counts; `None` if there are none.
    pub fn split(&mut self) -> Option<Self> {
        let counted = std::mem::take(&mut self.counted);
        (counted > 0).then(|| {
            let (quota, owner, account) = (self.quota.clone(), self.owner.clone(), self.account.clone());
            Self { quota, owner, account, counted }
        })
    }

    /// Returns the number of bytes that are counted.
    #[must_use]
    pub fn counted(&self) -> usize {
        self.counted
    }

    fn give_back(&mut self, bytes: usize) {
        if bytes == 0 {
            return;
        }
        self.counted -= bytes;
        self.quota.usage.used.fetch_sub(bytes, Ordering::Relaxed);
        if let Some(account) = &self.account {
            account.0.fetch_sub(bytes, Ordering::Relaxed);
        }
    }
}

/// Returns a permit of the same caller that counts nothing yet.
impl Clone for BytePermit {
    fn clone(&self) -> Self {
        self.quota.permit(self.owner.as_ref())
    }
}

impl Drop for BytePermit {
    fn drop(&mut self) {
        self.give_back(self.counted);
        if let (Some(owner), Some(account)) = (&self.owner, self.account.take()) {
            self.quota.close(owner, account);
        }
    }
}

impl fmt::Debug for BytePermit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BytePermit").field("counted", &self.counted).finish_non_exhaustive()
    }
}

/// The room for one response of an agent.
#[derive(Debug, Clone)]
pub struct AnswerRoom {
    /// Most bytes of one response.
    pub limit: usize,
    /// The permit for its bytes.
    pub permit: BytePermit,
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    fn quota() -> Arc<ByteQuota> {
        Arc::new(ByteQuota::new(4 * MIB, 2 * MIB, Metrics::new().unwrap()))
    }

    fn owner(name: &str) -> QuotaOwner {
        QuotaOwner::Caller(name.into())
    }

    fn held(quota: &ByteQuota) -> usize {
        quota.usage.accounts.iter().map(|shard| shard.lock().unwrap().len()).sum()
    }

    #[test]
    fn bytes_are_of_the_caller_and_of_all() {
        let quota = quota();
        let mut permits: Vec<_> =
            ["ann", "ben", "cid"].map(|name| quota.permit(Some(&owner(name)))).into_iter().collect();
        assert_eq!(permits[0].set(2 * MIB), Ok(()));
        let mut more = quota.permit(Some(&owner("ann")));
        assert_eq!(more.set(FREE_BYTES + 1), Err(NoRoomError::OfCaller));
        assert_eq!((more.set(FREE_BYTES), more.counted()), (Ok(()), 0), "a small buffer is not counted");
        assert_eq!(permits[1].set(3 * MIB), Err(NoRoomError::OfCaller));
        assert_eq!(permits[1].set(2 * MIB), Ok(()));
        assert_eq!(permits[2].set(MIB), Err(NoRoomError::OfAll));
        assert_eq!(permits[0].set(MIB), Ok(()));
        assert_eq!(permits[2].set(MIB), Ok(()), "what is given back is there for others");
        permits.clear();
        drop(more);
        assert_eq!((quota.used(), held(&quota)), (0, 0), "nothing is left");
    }

    #[test]
    fn moved_bytes_are_counted_once() {
        let quota = quota();
        let mut first = quota.permit(Some(&owner("ann")));
        first.set(MIB).unwrap();
        let moved = first.split().unwrap();
        assert!(first.split().is_none());
        assert_eq!((first.counted(), moved.counted(), quota.used()), (0, MIB, MIB));
        let mut last = first.clone();
        last.absorb(moved);
        drop(first);
        assert_eq!((last.counted(), quota.used()), (MIB, MIB));
        last.set(2 * MIB).unwrap();
        drop(last);
        assert_eq!((quota.used(), held(&quota)), (0, 0));
    }

    #[test]
    fn ownerless_bytes_count_for_all() {
        let quota = quota();
        let mut permit = quota.permit(None);
        assert_eq!((permit.set(4 * MIB), permit.set(5 * MIB)), (Ok(()), Err(NoRoomError::OfAll)));
        assert_eq!((quota.used(), held(&quota)), (4 * MIB, 0));
    }

    #[test]
    fn threads_never_take_more_than_there_is() {
        let quota = quota();
        std::thread::scope(|scope| {
            for name in ["ann", "ben", "cid", "dot"] {
                let quota = &quota;
                scope.spawn(move || {
                    for round in 0..2000 {
                        let mut permit = quota.permit(Some(&owner(name)));
                        let counted = permit.set((round % 7) * MIB / 2);
                        assert!(counted.is_err() || quota.used() <= 4 * MIB);
                    }
                });
            }
        });
        assert_eq!((quota.used(), held(&quota)), (0, 0));
    }
}
