//! The persisted form of rows: one row for each value, and one for the reads of it.
//!
//! The key of a row is its kind, its owner, its namespace and its key; owner and namespace with
//! their lengths. Reads have rows of their own, so that a read does not write the value again. Kinds
//! are ordered: values are loaded before their reads.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::namespace::{MemoryRow, NamespaceRows};
use super::{MAX_KEY_BYTES, MAX_NAMESPACE_BYTES, MemoryAddress, check_name};
use crate::quota::QuotaOwner;

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
pub(super) fn value_key(at: MemoryAddress<'_>) -> Vec<u8> {
    encode_key(VALUE_KIND, at)
}

/// Returns the key of the row of the reads of a value.
pub(super) fn access_key(at: MemoryAddress<'_>) -> Vec<u8> {
    encode_key(ACCESS_KIND, at)
}

/// Encodes a value.
pub(super) fn value_of(row: &MemoryRow) -> Vec<u8> {
    let (created, modified, ttl) = (row.created_ms, row.modified_ms, row.ttl_seconds);
    let value = serde_json::from_str::<&RawValue>(&row.value).unwrap_or(RawValue::NULL);
    let record = ValueRecord { created, modified, ttl, value: Cow::Borrowed(value) };
    serde_json::to_vec(&record).unwrap_or_default()
}

/// Encodes the reads of a value.
pub(super) fn access_value(row: &MemoryRow) -> Vec<u8> {
    let record = ReadRecord { accessed: row.accessed_ms, count: row.access_count };
    serde_json::to_vec(&record).unwrap_or_default()
}

/// Decodes a value; `None` if it is unreadable.
pub(super) fn read_row(bytes: &[u8]) -> Option<MemoryRow> {
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
pub(super) fn apply_access(rows: &mut NamespaceRows, key: &str, bytes: &[u8]) -> bool {
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
