//! The memory bank: JSON values that a caller stores under a namespace and a key.
//!
//! Each owner of a quota has a bank of its own, which no other owner reads. Values expire, are
//! listed in pages and searched; number and size are bounded per caller and in all, before memory
//! is spent. With a data directory the bank survives a restart: rows are written through the
//! journal of tasks, in its groups. The methods of [`MemoryBank`] take and return owned values and
//! may wait, so that an engine which several gateways share can take the place of this one.
//!
//! On disk there is one row for each value, and one for its reads, so that a read does not write the
//! value again. `namespace` holds the rows and their index. Time is an argument, in milliseconds since 1970.

mod namespace;

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use namespace::{NamespaceRows, row_bytes};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::sync::watch;
use tracing::info;

use crate::quota::QuotaOwner;
use crate::sync::lock;
use crate::tasks::TaskJournal;
use crate::tasks::store::StoreProblem;

pub use namespace::{KeyPage, MemoryRow, NamespaceStats, SearchPage, SearchQuery};
#[cfg(feature = "testing")]
pub use namespace::{MAX_COUNTED_KEYS, MAX_RANKED_ROWS, MAX_SCANNED_KEYS, MemoryEntry, SearchHit};

/// Longest key, in bytes. The key of a finished task holds the handle of the task.
pub const MAX_KEY_BYTES: usize = 1024;
/// Longest name of a namespace, in bytes.
pub const MAX_NAMESPACE_BYTES: usize = 1024;
/// Longest pattern of a search, in bytes.
pub const MAX_PATTERN_BYTES: usize = 512;

/// Bounds of all banks. Bytes count keys, values, and what the gateway needs to find them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryLimits {
    /// Most bytes of one value.
    pub value_bytes: usize,
    /// Most keys of one caller.
    pub caller_keys: usize,
    /// Most bytes of one caller.
    pub caller_bytes: usize,
    /// Most keys of all callers.
    pub keys: usize,
    /// Most bytes of all callers.
    pub bytes: usize,
    /// Longest time for which a value is kept after it was stored, in seconds; `None`: without an
    /// end.
    pub max_ttl_seconds: Option<u64>,
}

/// Reason for which the bank refuses an operation. Each names the bound.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MemoryRefusal {
    /// The key is empty or too long.
    #[error("a key has 1 to {MAX_KEY_BYTES} bytes, and no control characters")]
    BadKey,
    /// The name of the namespace is empty or too long.
    #[error("a namespace has 1 to {MAX_NAMESPACE_BYTES} bytes, and no control characters")]
    BadNamespace,
    /// The pattern is empty or too long.
    #[error("a pattern has 1 to {MAX_PATTERN_BYTES} bytes")]
    PatternTooLong,
    /// The glob cannot be read.
    #[error("the pattern is no glob: {0}")]
    BadPattern(String),
    /// The value is too large.
    #[error("the value has {bytes} bytes: resources.memory.value_bytes allows {limit}")]
    ValueTooLarge {
        /// Bytes of the value.
        bytes: usize,
        /// The bound.
        limit: usize,
    },
    /// The caller stores too many keys.
    #[error("you store as many keys as resources.memory.caller_keys allows ({0}): delete some first")]
    CallerKeys(usize),
    /// The caller stores too many bytes.
    #[error("you store as many bytes as resources.memory.caller_bytes allows ({0}): delete some first")]
    CallerBytes(usize),
    /// All callers together store too many keys.
    #[error("all callers store as many keys as resources.memory.max_keys allows ({0})")]
    Keys(usize),
    /// All callers together store too many bytes.
    #[error("all callers store as many bytes as resources.memory.max_bytes allows ({0})")]
    Bytes(usize),
    /// The change could not be written to the data directory.
    #[error("the gateway could not write the change to its disk, and it may be lost with a restart")]
    NotDurable,
}

/// A value to be stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewValue {
    /// The value, as JSON text.
    pub json: String,
    /// Time for which the value is kept, in seconds; `None`: as long as the bank allows.
    pub ttl_seconds: Option<u64>,
}

/// The place of a value: owner, namespace and key.
#[derive(Debug, Clone, Copy)]
pub struct MemoryAddress<'a> {
    /// The owner of the bank.
    pub owner: &'a QuotaOwner,
    /// The namespace in the bank of this owner.
    pub namespace: &'a str,
    /// The key in the namespace.
    pub key: &'a str,
}

/// The banks of all owners.
pub struct MemoryBank {
    limits: MemoryLimits,
    owners: Mutex<HashMap<QuotaOwner, Arc<OwnerBank>>>,
    used: MemoryUsage,
    journal: Arc<TaskJournal>,
}

/// Origin of a persisted row.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RowOrigin {
    /// The store of this process, which has it already.
    OwnStore,
    /// A process that works with the same rows until it ends.
    Predecessor,
    /// Another replica, which shares the row.
    Replica,
}

/// Keys and bytes in use.
#[derive(Debug, Default)]
struct MemoryUsage {
    keys: AtomicUsize,
    bytes: AtomicUsize,
}

/// The bank of one owner.
struct OwnerBank {
    owner: QuotaOwner,
    state: Mutex<OwnerState>,
    /// Number of changes.
    changes: watch::Sender<u64>,
}

#[derive(Default)]
struct OwnerState {
    namespaces: HashMap<Arc<str>, NamespaceRows>,
    /// Rows that expire: the time, namespace and key.
    expiring: BTreeSet<ExpiringRow>,
    keys: usize,
    bytes: usize,
    /// Number of changes.
    version: u64,
}

/// Namespace and key of a row.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct RowKey {
    namespace: Arc<str>,
    key: Arc<str>,
}

/// A row that expires.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct ExpiringRow {
    at_ms: u64,
    row: RowKey,
}

impl MemoryBank {
    /// Creates empty banks. They are persisted while the journal has a store.
    #[must_use]
    pub fn new(limits: MemoryLimits, journal: Arc<TaskJournal>) -> Self {
        Self { limits, owners: Mutex::default(), used: MemoryUsage::default(), journal }
    }

    /// Returns the bounds.
    pub fn limits(&self) -> &MemoryLimits {
        &self.limits
    }

    /// Returns the keys and the bytes that all owners store.
    #[cfg(any(test, feature = "testing"))]
    pub fn used(&self) -> [usize; 2] {
        [&self.used.keys, &self.used.bytes].map(|counter| counter.load(Ordering::Relaxed))
    }

    /// Stores a value in place of the one with its key, and returns its row. Waits until it is
    /// durable, if there is a data directory.
    ///
    /// # Errors
    ///
    /// [`MemoryRefusal`] names the bound; nothing has changed then. With
    /// [`MemoryRefusal::NotDurable`] the value may be stored.
    pub async fn store(
        &self,
        at: MemoryAddress<'_>,
        value: NewValue,
        now_ms: u64,
    ) -> Result<MemoryRow, MemoryRefusal> {
        let row = self.store_soon(at, value, now_ms).await?;
        match self.journal.is_safe().await {
            true => Ok(row),
            false => Err(MemoryRefusal::NotDurable),
        }
    }

    /// Stores a value like [`MemoryBank::store`], without waiting until it is durable.
    ///
    /// # Errors
    ///
    /// [`MemoryRefusal`] names the bound; nothing has changed then.
    pub async fn store_soon(
        &self,
        at: MemoryAddress<'_>,
        value: NewValue,
        now_ms: u64,
    ) -> Result<MemoryRow, MemoryRefusal> {
        check_name(at.namespace, MAX_NAMESPACE_BYTES).ok_or(MemoryRefusal::BadNamespace)?;
        check_name(at.key, MAX_KEY_BYTES).ok_or(MemoryRefusal::BadKey)?;
        let (bytes, limit) = (value.json.len(), self.limits.value_bytes);
        if bytes > limit {
            return Err(MemoryRefusal::ValueTooLarge { bytes, limit });
        }
        let bank = self.bank(at.owner);
        match self.insert(&bank, at, &value, now_ms) {
            // The queue of the disk was full: once more, when it is written.
            Err(MemoryRefusal::NotDurable) if self.journal.is_safe().await => {
                self.insert(&bank, at, &value, now_ms)
            }
            done => done,
        }
    }

    fn insert(
        &self,
        bank: &OwnerBank,
        at: MemoryAddress<'_>,
        value: &NewValue,
        now_ms: u64,
    ) -> Result<MemoryRow, MemoryRefusal> {
        let ttl_seconds = match (value.ttl_seconds, self.limits.max_ttl_seconds) {
            (Some(ttl), Some(most)) => Some(ttl.min(most)),
            (ttl, most) => ttl.or(most),
        };
        let mut state = lock(&bank.state);
        self.expire(bank, &mut state, now_ms);
        let before = state.row(at.namespace, at.key);
        let row = MemoryRow {
            value: value.json.as_str().into(),
            created_ms: before.map_or(now_ms, |row| row.created_ms),
            modified_ms: now_ms,
            accessed_ms: now_ms,
            access_count: before.map_or(0, |row| row.access_count),
            ttl_seconds,
            version: 0,
        };
        let freed = before.map(|row| row_bytes(at.key, &row.value));
        let needed = row_bytes(at.key, &row.value);
        self.reserve(&state, freed, needed)?;
        if self.persist(at, Some(&row)).is_err() {
            self.release(usize::from(freed.is_none()), needed.saturating_sub(freed.unwrap_or(0)));
            return Err(MemoryRefusal::NotDurable);
        }
        // Bytes that are no longer needed are released once the new row is in its place.
        self.release(0, freed.unwrap_or(0).saturating_sub(needed));
        let row = state.put(at, row);
        drop(state);
        bank.notify();
        Ok(row)
    }

    /// Reserves the room for a row that takes the place of one with `freed` bytes.
    fn reserve(&self, state: &OwnerState, freed: Option<usize>, needed: usize) -> Result<(), MemoryRefusal> {
        let limits = &self.limits;
        let new_keys = usize::from(freed.is_none());
        let more = needed.saturating_sub(freed.unwrap_or(0));
        if state.keys + new_keys > limits.caller_keys {
            return Err(MemoryRefusal::CallerKeys(limits.caller_keys));
        }
        if more > 0 && state.bytes + more > limits.caller_bytes {
            return Err(MemoryRefusal::CallerBytes(limits.caller_bytes));
        }
        if !add(&self.used.keys, new_keys, limits.keys) {
            return Err(MemoryRefusal::Keys(limits.keys));
        }
        if !add(&self.used.bytes, more, limits.bytes) {
            self.release(new_keys, 0);
            return Err(MemoryRefusal::Bytes(limits.bytes));
        }
        Ok(())
    }

    fn release(&self, keys: usize, bytes: usize) {
        self.used.keys.fetch_sub(keys, Ordering::Relaxed);
        self.used.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Removes a value; returns true if it was there. Waits until the removal is durable.
    ///
    /// # Errors
    ///
    /// [`MemoryRefusal::NotDurable`] if the removal could not be written.
    pub async fn delete(&self, at: MemoryAddress<'_>, now_ms: u64) -> Result<bool, MemoryRefusal> {
        let Some(bank) = self.find(at.owner) else { return Ok(false) };
        let is_removed = {
            let mut state = lock(&bank.state);
            self.expire(&bank, &mut state, now_ms);
            // A removal by its caller is one at all replicas.
            self.remove(&mut state, at).then(|| self.persist(at, None).unwrap_or_default()).is_some()
        };
        if is_removed {
            bank.notify();
        }
        match !is_removed || self.journal.is_safe().await {
            true => Ok(is_removed),
            false => Err(MemoryRefusal::NotDurable),
        }
    }

    /// Removes a row of this process: each replica removes expired ones by itself.
    fn remove(&self, state: &mut OwnerState, at: MemoryAddress<'_>) -> bool {
        let Some(bytes) = state.take(at) else { return false };
        self.release(1, bytes);
        if self.journal.is_enabled() {
            // The journal logs the failure; the row expires or is removed again after a restart.
            self.journal.note_memory_here(access_key(at), None).unwrap_or_default();
            self.journal.note_memory_here(value_key(at), None).unwrap_or_default();
        }
        true
    }

    /// Returns a value, and counts the read; `None` if the owner has no such key.
    pub async fn get(&self, at: MemoryAddress<'_>, now_ms: u64) -> Option<MemoryRow> {
        let bank = self.find(at.owner)?;
        let mut state = lock(&bank.state);
        self.expire(&bank, &mut state, now_ms);
        let row = state.namespaces.get_mut(at.namespace)?.touch(at.key, now_ms)?;
        let (key, value) = (access_key(at), access_value(&row));
        self.journal.note_memory_here(key, Some(value)).unwrap_or_default();
        Some(row)
    }

    /// Returns the keys of a namespace after `after`, at most `limit`; a namespace without keys is
    /// empty.
    pub async fn list(
        &self,
        owner: &QuotaOwner,
        namespace: &str,
        after: Option<&str>,
        limit: usize,
        now_ms: u64,
    ) -> KeyPage {
        let found = self.with_rows(owner, namespace, now_ms, |rows| rows.list(after, limit));
        found.unwrap_or(KeyPage { entries: Vec::new(), next: None, stats: NamespaceStats::default() })
    }

    /// Searches a namespace.
    ///
    /// # Errors
    ///
    /// [`MemoryRefusal::PatternTooLong`] and [`MemoryRefusal::BadPattern`].
    pub async fn search(
        &self,
        owner: &QuotaOwner,
        namespace: &str,
        query: &SearchQuery,
        now_ms: u64,
    ) -> Result<SearchPage, MemoryRefusal> {
        if query.pattern.is_empty() || query.pattern.len() > MAX_PATTERN_BYTES {
            return Err(MemoryRefusal::PatternTooLong);
        }
        let found = self.with_rows(owner, namespace, now_ms, |rows| rows.search(query));
        found.unwrap_or_else(|| NamespaceRows::default().search(query))
    }

    /// Returns the names of the owner's namespaces, in their order.
    pub fn namespaces(&self, owner: &QuotaOwner, now_ms: u64) -> Vec<Arc<str>> {
        let Some(bank) = self.find(owner) else { return Vec::new() };
        let mut state = lock(&bank.state);
        self.expire(&bank, &mut state, now_ms);
        let mut names: Vec<Arc<str>> = state.namespaces.keys().cloned().collect();
        names.sort();
        names
    }

    fn with_rows<R>(
        &self,
        owner: &QuotaOwner,
        namespace: &str,
        now_ms: u64,
        read: impl FnOnce(&NamespaceRows) -> R,
    ) -> Option<R> {
        let bank = self.find(owner)?;
        let mut state = lock(&bank.state);
        self.expire(&bank, &mut state, now_ms);
        state.namespaces.get(namespace).map(read)
    }

    /// Returns a receiver that changes with the bank of an owner.
    pub fn changes_of(&self, owner: &QuotaOwner) -> watch::Receiver<u64> {
        self.bank(owner).changes.subscribe()
    }

    /// Returns a number that changes when a value of the namespace does: the time of the last store
    /// of a key, or without a key the number of keys and their times together.
    pub fn version_of(&self, owner: &QuotaOwner, namespace: &str, key: Option<&str>, now_ms: u64) -> u64 {
        let version = self.with_rows(owner, namespace, now_ms, |rows| rows.version(key));
        version.unwrap_or(0)
    }

    /// Removes the expired rows of all owners, and owners without rows.
    pub fn sweep(&self, now_ms: u64) {
        let banks: Vec<Arc<OwnerBank>> = lock(&self.owners).values().cloned().collect();
        for bank in banks {
            self.expire(&bank, &mut lock(&bank.state), now_ms);
        }
        lock(&self.owners).retain(|_, bank| {
            let is_used = Arc::strong_count(bank) > 1 || bank.changes.receiver_count() > 0;
            is_used || lock(&bank.state).keys > 0
        });
    }

    /// Removes the expired rows of one owner.
    fn expire(&self, bank: &OwnerBank, state: &mut OwnerState, now_ms: u64) {
        let mut is_changed = false;
        while let Some(RowKey { namespace, key }) = state.expired(now_ms) {
            let at = MemoryAddress { owner: &bank.owner, namespace: &namespace, key: &key };
            is_changed |= self.remove(state, at);
        }
        if is_changed {
            bank.notify();
        }
    }

    fn persist(&self, at: MemoryAddress<'_>, row: Option<&MemoryRow>) -> Result<(), StoreProblem> {
        if !self.journal.keeps_rows() {
            return Ok(());
        }
        if row.is_none() {
            self.journal.note_memory(access_key(at), None)?;
        }
        self.journal.note_memory(value_key(at), row.map(value_of))
    }

    /// Loads the persisted rows. Waits for the disk.
    pub fn load(&self, now_ms: u64) {
        let (mut loaded, mut refused) = (0_usize, 0_usize);
        self.journal.memory_rows(|key, value| {
            match self.apply(key, Some(value), RowOrigin::OwnStore, now_ms) {
                true => loaded += 1,
                false => refused += 1,
            }
        });
        if loaded + refused > 0 {
            info!(rows = loaded, refused, "restored persisted memory");
        }
    }

    /// Persists all rows, for a journal that has got another store. Waits while the write queue is
    /// full.
    pub async fn catch_up(&self) {
        let banks: Vec<Arc<OwnerBank>> = lock(&self.owners).values().cloned().collect();
        for bank in banks {
            for RowKey { namespace, key } in bank.keys() {
                let at = MemoryAddress { owner: &bank.owner, namespace: &namespace, key: &key };
                if self.persist_present(&bank, at) == Err(StoreProblem::Full) && self.journal.is_safe().await
                {
                    // The journal logs a failure.
                    self.persist_present(&bank, at).unwrap_or_default();
                }
            }
        }
    }

    fn persist_present(&self, bank: &OwnerBank, at: MemoryAddress<'_>) -> Result<(), StoreProblem> {
        let state = lock(&bank.state);
        let Some(row) = state.row(at.namespace, at.key) else { return Ok(()) };
        self.persist(at, Some(row))?;
        self.journal.note_memory(access_key(at), Some(access_value(row)))
    }

    /// Applies the change of another process that works with the same rows, and persists it.
    /// Returns false if the row is unreadable or exceeds a bound.
    pub fn learn(&self, key: &[u8], value: Option<&[u8]>, now_ms: u64) -> bool {
        self.apply(key, value, RowOrigin::Predecessor, now_ms)
    }

    /// Applies the change of another replica. Returns false if the row is unreadable or exceeds a
    /// bound.
    pub(crate) fn learn_shared(&self, key: &[u8], value: Option<&[u8]>, now_ms: u64) -> bool {
        self.apply(key, value, RowOrigin::Replica, now_ms)
    }

    fn apply(&self, key: &[u8], value: Option<&[u8]>, origin: RowOrigin, now_ms: u64) -> bool {
        let Some(place) = MemoryRecordKey::parse(key) else { return false };
        let bank = self.bank(&place.owner);
        let at = place.address();
        let mut state = lock(&bank.state);
        let is_known = match (place.is_access, value) {
            (true, Some(value)) => {
                let rows = state.namespaces.get_mut(at.namespace);
                let is_known = rows.is_some_and(|rows| apply_access(rows, at.key, value));
                if is_known && origin == RowOrigin::Predecessor {
                    self.journal.note_memory_here(key.to_vec(), Some(value.to_vec())).unwrap_or_default();
                }
                return is_known;
            }
            (true, None) => return true,
            (false, None) => {
                self.remove(&mut state, at);
                true
            }
            (false, Some(value)) => match read_row(value) {
                None => false,
                Some(row) if row.is_expired(now_ms) => {
                    self.journal.note_memory_here(value_key(at), None).unwrap_or_default();
                    true
                }
                Some(row) => self.adopt(&mut state, at, row, origin),
            },
        };
        drop(state);
        bank.notify();
        is_known
    }

    fn adopt(
        &self,
        state: &mut OwnerState,
        at: MemoryAddress<'_>,
        row: MemoryRow,
        origin: RowOrigin,
    ) -> bool {
        let before = state.row(at.namespace, at.key);
        if let Some(before) = before.filter(|before| before.modified_ms > row.modified_ms) {
            if origin == RowOrigin::Replica {
                // Written again, so that all replicas end with the newer one.
                self.persist(at, Some(before)).unwrap_or_default();
            }
            return true;
        }
        let freed = before.map(|row| row_bytes(at.key, &row.value));
        let needed = row_bytes(at.key, &row.value);
        if self.reserve(state, freed, needed).is_err() {
            return false;
        }
        // The journal logs a failure.
        match origin {
            RowOrigin::OwnStore => {}
            RowOrigin::Predecessor => self.persist(at, Some(&row)).unwrap_or_default(),
            RowOrigin::Replica => {
                self.journal.note_memory_here(value_key(at), Some(value_of(&row))).unwrap_or_default();
            }
        }
        self.release(0, freed.unwrap_or(0).saturating_sub(needed));
        state.put(at, row);
        true
    }

    fn find(&self, owner: &QuotaOwner) -> Option<Arc<OwnerBank>> {
        lock(&self.owners).get(owner).cloned()
    }

    fn bank(&self, owner: &QuotaOwner) -> Arc<OwnerBank> {
        let new = || {
            let (state, changes) = (Mutex::default(), watch::Sender::new(0));
            Arc::new(OwnerBank { owner: owner.clone(), state, changes })
        };
        lock(&self.owners).entry(owner.clone()).or_insert_with(new).clone()
    }
}

impl OwnerBank {
    /// Returns the keys of all rows.
    fn keys(&self) -> Vec<RowKey> {
        let state = lock(&self.state);
        let names = state.namespaces.iter();
        names
            .flat_map(|(name, rows)| {
                rows.iter().map(|(key, _)| RowKey { namespace: name.clone(), key: key.clone() })
            })
            .collect()
    }

    fn notify(&self) {
        self.changes.send_modify(|changes| *changes = changes.wrapping_add(1));
    }
}

impl OwnerState {
    fn row(&self, namespace: &str, key: &str) -> Option<&MemoryRow> {
        self.namespaces.get(namespace)?.get(key)
    }

    /// Inserts a row for which room is reserved, in place of the one with its key.
    fn put(&mut self, at: MemoryAddress<'_>, row: MemoryRow) -> MemoryRow {
        self.take(at);
        self.version += 1;
        let row = MemoryRow { version: self.version, ..row };
        let (namespace, key): (Arc<str>, Arc<str>) = match self.namespaces.get_key_value(at.namespace) {
            Some((name, _)) => (name.clone(), at.key.into()),
            None => (at.namespace.into(), at.key.into()),
        };
        self.keys += 1;
        self.bytes += row_bytes(at.key, &row.value);
        if let Some(at_ms) = row.expires_ms() {
            self.expiring.insert(ExpiringRow {
                at_ms,
                row: RowKey { namespace: namespace.clone(), key: key.clone() },
            });
        }
        self.namespaces.entry(namespace).or_default().insert(&key, row.clone());
        row
    }

    /// Removes a row, and returns its bytes.
    fn take(&mut self, at: MemoryAddress<'_>) -> Option<usize> {
        let rows = self.namespaces.get_mut(at.namespace)?;
        let row = rows.remove(at.key)?;
        self.version += 1;
        rows.set_version(self.version);
        if let Some(at_ms) = row.expires_ms() {
            let (namespace, key) = (at.namespace.into(), at.key.into());
            self.expiring.remove(&ExpiringRow { at_ms, row: RowKey { namespace, key } });
        }
        if rows.is_empty() {
            self.namespaces.remove(at.namespace);
        }
        let bytes = row_bytes(at.key, &row.value);
        self.keys -= 1;
        self.bytes -= bytes;
        Some(bytes)
    }

    fn expired(&self, now_ms: u64) -> Option<RowKey> {
        self.expiring.first().filter(|row| row.at_ms <= now_ms).map(|expiring| expiring.row.clone())
    }
}

/// Returns `Some` for a name of 1 to `most` bytes without control characters.
fn check_name(name: &str, most: usize) -> Option<()> {
    ((1..=most).contains(&name.len()) && !name.contains(char::is_control)).then_some(())
}

/// Adds to a counter, unless it would pass `most`.
fn add(counter: &AtomicUsize, more: usize, most: usize) -> bool {
    let sum = |used: usize| used.checked_add(more).filter(|used| more == 0 || *used <= most);
    counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, sum).is_ok()
}

const VALUE_KIND: u8 = b'1';
const ACCESS_KIND: u8 = b'2';
const CALLER_KIND: char = 'c';
const ADDRESS_KIND: char = 'a';
const AGENT_KIND: char = 'g';

/// The meaning of the key of a row.
pub(super) struct MemoryRecordKey {
    pub(super) owner: QuotaOwner,
    namespace: String,
    key: String,
    /// True for the reads of a value.
    pub(super) is_access: bool,
}

impl MemoryRecordKey {
    /// Returns the meaning of a key; `None` if it is malformed.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let (kind, rest) = bytes.split_first()?;
        let is_access = match *kind {
            VALUE_KIND => false,
            ACCESS_KIND => true,
            _ => return None,
        };
        let (owner, rest) = read_text(rest)?;
        let (namespace, key) = read_text(rest)?;
        let key = std::str::from_utf8(key).ok()?;
        check_name(namespace, MAX_NAMESPACE_BYTES)?;
        check_name(key, MAX_KEY_BYTES)?;
        let mut letters = owner.chars();
        let owner = match (letters.next()?, letters.as_str()) {
            (CALLER_KIND, name) => QuotaOwner::Caller(name.into()),
            (AGENT_KIND, name) => QuotaOwner::Agent(name.into()),
            (ADDRESS_KIND, address) => QuotaOwner::Address(address.parse().ok()?),
            _ => return None,
        };
        Some(Self { owner, namespace: namespace.to_owned(), key: key.to_owned(), is_access })
    }

    pub(super) fn address(&self) -> MemoryAddress<'_> {
        MemoryAddress { owner: &self.owner, namespace: &self.namespace, key: &self.key }
    }
}

#[derive(Serialize, Deserialize)]
struct ValueRecord<'a> {
    created: u64,
    modified: u64,
    ttl: Option<u64>,
    #[serde(borrow)]
    value: Cow<'a, RawValue>,
}

#[derive(Serialize, Deserialize)]
struct ReadRecord {
    accessed: u64,
    count: u64,
}

/// Returns the key of the row of a value.
fn value_key(at: MemoryAddress<'_>) -> Vec<u8> {
    encode_key(VALUE_KIND, at)
}

/// Returns the key of the row of the reads of a value.
fn access_key(at: MemoryAddress<'_>) -> Vec<u8> {
    encode_key(ACCESS_KIND, at)
}

/// Encodes a value.
fn value_of(row: &MemoryRow) -> Vec<u8> {
    let (created, modified, ttl) = (row.created_ms, row.modified_ms, row.ttl_seconds);
    let value = serde_json::from_str::<&RawValue>(&row.value).unwrap_or(RawValue::NULL);
    let record = ValueRecord { created, modified, ttl, value: Cow::Borrowed(value) };
    serde_json::to_vec(&record).unwrap_or_default()
}

/// Encodes the reads of a value.
fn access_value(row: &MemoryRow) -> Vec<u8> {
    let record = ReadRecord { accessed: row.accessed_ms, count: row.access_count };
    serde_json::to_vec(&record).unwrap_or_default()
}

/// Decodes a value; `None` if it is unreadable.
fn read_row(bytes: &[u8]) -> Option<MemoryRow> {
    let record: ValueRecord<'_> = serde_json::from_slice(bytes).ok()?;
    Some(MemoryRow {
        value: record.value.get().into(),
        created_ms: record.created,
        modified_ms: record.modified,
        accessed_ms: record.modified,
        access_count: 0,
        ttl_seconds: record.ttl,
        version: 0,
    })
}

/// Applies the reads of a value; returns false if there is no such value.
fn apply_access(rows: &mut NamespaceRows, key: &str, bytes: &[u8]) -> bool {
    let Ok(record) = serde_json::from_slice::<ReadRecord>(bytes) else { return false };
    rows.restore_access(key, record.accessed, record.count)
}

fn encode_key(kind: u8, at: MemoryAddress<'_>) -> Vec<u8> {
    let owner = match at.owner {
        QuotaOwner::Caller(name) => format!("{CALLER_KIND}{name}"),
        QuotaOwner::Agent(name) => format!("{AGENT_KIND}{name}"),
        QuotaOwner::Address(address) => format!("{ADDRESS_KIND}{address}"),
    };
    let mut key = vec![kind];
    for text in [owner.as_str(), at.namespace] {
        // Longer names do not occur: namespaces are checked, and those of callers are bounded.
        key.extend(u16::try_from(text.len()).unwrap_or(u16::MAX).to_be_bytes());
        key.extend_from_slice(text.as_bytes());
    }
    key.extend_from_slice(at.key.as_bytes());
    key
}

fn read_text(bytes: &[u8]) -> Option<(&str, &[u8])> {
    let (length, rest) = bytes.split_first_chunk()?;
    let (text, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes(*length)))?;
    Some((std::str::from_utf8(text).ok()?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: MemoryLimits = MemoryLimits {
        value_bytes: 100,
        caller_keys: 3,
        caller_bytes: 4000,
        keys: 5,
        bytes: 6000,
        max_ttl_seconds: None,
    };

    fn bank(limits: MemoryLimits) -> MemoryBank {
        MemoryBank::new(limits, Arc::new(TaskJournal::new(0)))
    }

    fn caller(name: &str) -> QuotaOwner {
        QuotaOwner::Caller(name.into())
    }

    fn at<'a>(owner: &'a QuotaOwner, namespace: &'a str, key: &'a str) -> MemoryAddress<'a> {
        MemoryAddress { owner, namespace, key }
    }

    fn value(json: &str) -> NewValue {
        NewValue { json: json.into(), ttl_seconds: None }
    }

    #[tokio::test]
    async fn value_is_returned_with_its_reads() {
        let (bank, ann) = (bank(LIMITS), caller("ann"));
        bank.store(at(&ann, "n", "k"), value("1"), 10).await.unwrap();
        bank.store(at(&ann, "n", "k"), value("[2]"), 20).await.unwrap();
        bank.get(at(&ann, "n", "k"), 30).await.unwrap();
        let row = bank.get(at(&ann, "n", "k"), 40).await.unwrap();
        assert_eq!((&*row.value, row.created_ms, row.modified_ms), ("[2]", 10, 20));
        assert_eq!((row.accessed_ms, row.access_count), (40, 2));
        assert_eq!(bank.used()[0], 1, "stored again under the same key");
        assert!(bank.delete(at(&ann, "n", "k"), 50).await.unwrap());
        assert!(!bank.delete(at(&ann, "n", "k"), 50).await.unwrap());
        assert_eq!(bank.used(), [0, 0]);
    }

    #[tokio::test]
    async fn owners_share_nothing() {
        let (bank, ann, ben) = (bank(LIMITS), caller("ann"), caller("ben"));
        bank.store(at(&ann, "n", "k"), value("1"), 1).await.unwrap();
        assert_eq!(bank.get(at(&ben, "n", "k"), 1).await, None);
        assert_eq!(bank.get(at(&ann, "m", "k"), 1).await, None, "another namespace");
        assert!(bank.list(&ben, "n", None, 9, 1).await.entries.is_empty());
        assert!(bank.namespaces(&ben, 1).is_empty());
        let query = SearchQuery { pattern: "*".into(), page: 1, limit: 9, after: None };
        assert_eq!(bank.search(&ben, "n", &query, 1).await.unwrap().total, 0);
        assert!(!bank.delete(at(&ben, "n", "k"), 1).await.unwrap());
        assert_eq!(bank.search(&ann, "n", &query, 1).await.unwrap().total, 1);
    }

    #[tokio::test]
    async fn each_bound_is_named() {
        let (bank, ann, ben) = (bank(LIMITS), caller("ann"), caller("ben"));
        let long = format!("{:?}", "x".repeat(100));
        let store = |owner, key, json: &str| {
            let (json, bank) = (value(json), &bank);
            async move { bank.store(at(owner, "n", key), json, 1).await }
        };
        let too_large = MemoryRefusal::ValueTooLarge { bytes: 102, limit: 100 };
        assert_eq!(store(&ann, "k", &long).await, Err(too_large));
        assert_eq!(store(&ann, "", "1").await, Err(MemoryRefusal::BadKey));
        assert_eq!(store(&ann, "a\nb", "1").await, Err(MemoryRefusal::BadKey));
        for key in ["a", "b", "c"] {
            store(&ann, key, "1").await.unwrap();
        }
        assert_eq!(store(&ann, "d", "1").await, Err(MemoryRefusal::CallerKeys(3)));
        store(&ann, "c", "2").await.expect("a key that is there needs no further one");
        store(&ben, "a", "1").await.unwrap();
        store(&ben, "b", "1").await.unwrap();
        assert_eq!(store(&ben, "c", "1").await, Err(MemoryRefusal::Keys(5)));
        assert_eq!(bank.used()[0], 5, "what is refused takes no room");
    }

    #[tokio::test]
    async fn bytes_are_bounded_before_they_are_kept() {
        let (ann, ben) = (caller("ann"), caller("ben"));
        let one = row_bytes("a", "1");
        let bank = bank(MemoryLimits { caller_bytes: 2 * one, bytes: 3 * one, ..LIMITS });
        bank.store(at(&ann, "n", "a"), value("1"), 1).await.unwrap();
        bank.store(at(&ann, "n", "b"), value("1"), 1).await.unwrap();
        let refused = bank.store(at(&ann, "n", "c"), value("1"), 1).await;
        assert_eq!(refused, Err(MemoryRefusal::CallerBytes(2 * one)));
        bank.store(at(&ben, "n", "a"), value("1"), 1).await.unwrap();
        let refused = bank.store(at(&ben, "n", "b"), value("1"), 1).await;
        assert_eq!(refused, Err(MemoryRefusal::Bytes(3 * one)));
        assert_eq!(bank.used(), [3, 3 * one]);
        bank.store(at(&ann, "n", "a"), value("2"), 1).await.unwrap();
        assert!(bank.delete(at(&ann, "n", "a"), 1).await.unwrap());
        assert_eq!(bank.used(), [2, 2 * one]);
    }

    #[tokio::test]
    async fn values_expire() {
        let (bank, ann) = (bank(MemoryLimits { max_ttl_seconds: Some(9), ..LIMITS }), caller("ann"));
        let brief = NewValue { ttl_seconds: Some(1), ..value("1") };
        bank.store(at(&ann, "n", "brief"), brief, 1000).await.unwrap();
        let row = bank.store(at(&ann, "n", "long"), value("1"), 1000).await.unwrap();
        assert_eq!(row.ttl_seconds, Some(9), "the longest that is allowed");
        assert!(bank.get(at(&ann, "n", "brief"), 1999).await.is_some());
        let changes = bank.changes_of(&ann);
        assert_eq!(bank.get(at(&ann, "n", "brief"), 2000).await, None);
        assert!(changes.has_changed().unwrap());
        assert_eq!(bank.used()[0], 1);
        bank.sweep(10_000);
        assert_eq!(bank.used(), [0, 0]);
        drop(changes);
        bank.sweep(10_000);
        assert!(lock(&bank.owners).is_empty(), "nothing is left of the owner");
    }

    #[tokio::test]
    async fn versions_follow_changes() {
        let (bank, ann) = (bank(LIMITS), caller("ann"));
        let version = |key| bank.version_of(&ann, "n", key, 1);
        bank.store(at(&ann, "n", "a"), value("1"), 1).await.unwrap();
        let (all, a) = (version(None), version(Some("a")));
        bank.store(at(&ann, "n", "b"), value("1"), 1).await.unwrap();
        assert!(version(None) != all && version(Some("a")) == a);
        bank.store(at(&ann, "n", "a"), value("2"), 1).await.unwrap();
        assert!(version(Some("a")) != a);
        let all = version(None);
        bank.delete(at(&ann, "n", "b"), 1).await.unwrap();
        assert!(version(None) != all && version(Some("b")) == 0);
    }

    #[tokio::test]
    async fn bank_survives_a_restart() {
        use crate::tasks::store::Store;
        let home = tempfile::tempdir().unwrap();
        let ann = QuotaOwner::Address("192.0.2.1".parse().unwrap());
        let opened = || {
            let journal = Arc::new(TaskJournal::new(0));
            journal.attach_store(Some(Arc::new(Store::open(home.path()).unwrap())));
            let bank = MemoryBank::new(LIMITS, journal);
            bank.load(5000);
            bank
        };
        let bank = opened();
        bank.store(at(&ann, "n", "a"), value("{\"x\":1}"), 1000).await.unwrap();
        bank.store(at(&ann, "n", "gone"), value("1"), 1000).await.unwrap();
        let brief = NewValue { ttl_seconds: Some(1), ..value("1") };
        bank.store(at(&ann, "n", "brief"), brief, 1000).await.unwrap();
        bank.get(at(&ann, "n", "a"), 1500).await.unwrap();
        bank.delete(at(&ann, "n", "gone"), 1500).await.unwrap();
        let used = bank.used();
        bank.journal.close();
        let bank = opened();
        assert_eq!(bank.list(&ann, "n", None, 9, 5000).await.entries.len(), 1, "not the expired one");
        let row = bank.get(at(&ann, "n", "a"), 6000).await.unwrap();
        assert_eq!((&*row.value, row.created_ms, row.access_count), ("{\"x\":1}", 1000, 2));
        assert!(bank.used()[1] < used[1] && bank.used()[0] == 1);
    }

    #[tokio::test]
    async fn successor_learns_changes() {
        let (bank, ann) = (bank(LIMITS), caller("ann"));
        let at = at(&ann, "n", "a");
        let row = MemoryRow {
            value: "7".into(),
            created_ms: 1,
            modified_ms: 2,
            accessed_ms: 2,
            access_count: 0,
            ttl_seconds: None,
            version: 0,
        };
        let key = value_key(at);
        assert!(bank.learn(&key, Some(&value_of(&row)), 9));
        assert_eq!(&*bank.get(at, 9).await.unwrap().value, "7");
        assert!(bank.learn(&key, None, 9) && bank.used() == [0, 0]);
        assert!(!bank.learn(b"no key", None, 9) && !bank.learn(&key, Some(b"{"), 9));
    }
}
