//! The rows of one namespace: ordered by key, with an inverted index over their words.
//!
//! A page of keys or of a search costs as much as it returns, up to [`MAX_SCANNED_KEYS`] keys that
//! are looked at in between. A glob reads the range of its literal prefix, and within it the keys
//! that contain its rarest word. A search for words looks at the rows of the rarest word first.
//! Pure: time is an argument.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ops::Bound;
use std::sync::Arc;

use globset::{Glob, GlobMatcher};

use super::MemoryRefusal;

/// Keys that one search looks at to fill its page. Beyond, the page ends early, with a cursor.
pub const MAX_SCANNED_KEYS: usize = 20_000;
/// Keys that a glob looks at after its page is full, to count the matches.
pub const MAX_COUNTED_KEYS: usize = 1_000;
/// Rows that a search for words ranks.
pub const MAX_RANKED_ROWS: usize = 1_000;
/// Words of a key that are in the index.
const MAX_KEY_WORDS: usize = 64;
/// Words of a value that are in the index, in addition to those of its key.
const MAX_VALUE_WORDS: usize = 32;
/// Bytes at the start of a value in which these words are looked for.
const MAX_INDEXED_BYTES: usize = 4 * 1024;
/// Bytes of a word in the index; a longer word is cut.
const MAX_WORD_BYTES: usize = 48;
/// Words of a query that count.
const MAX_QUERY_WORDS: usize = 8;
/// Indexed words that one word of a query stands for, as their beginning.
const MAX_EXPANSIONS: usize = 8;
/// Characters of a value in a search result.
const PREVIEW_CHARS: usize = 200;
/// Bytes that a row needs besides its key and its value, measured by `benches/memory`.
const ROW_BYTES: usize = 704;
/// Bytes that one entry of the index needs.
const POSTING_BYTES: usize = 40;

/// One stored value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryRow {
    /// The value, as JSON text.
    pub value: Arc<str>,
    /// Time of the first store, in milliseconds since 1970.
    pub created_ms: u64,
    /// Time of the last store, in milliseconds since 1970.
    pub modified_ms: u64,
    /// Time of the last store or read, in milliseconds since 1970.
    pub accessed_ms: u64,
    /// Number of reads.
    pub access_count: u64,
    /// Time for which the value is kept after a store, in seconds; `None`: without an end.
    pub ttl_seconds: Option<u64>,
    /// Number of the change that stored it, among those of its owner in this process.
    pub version: u64,
}

impl MemoryRow {
    /// Returns the time at which the row expires, in milliseconds since 1970.
    pub fn expires_ms(&self) -> Option<u64> {
        self.ttl_seconds.map(|ttl| self.modified_ms.saturating_add(ttl.saturating_mul(1000)))
    }

    /// Returns true if the row has expired at this time.
    pub fn is_expired(&self, now_ms: u64) -> bool {
        self.expires_ms().is_some_and(|expires| expires <= now_ms)
    }

    /// Returns the start of the value as text.
    pub fn preview(&self) -> String {
        self.value.chars().take(PREVIEW_CHARS).collect()
    }
}

/// A key with its row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryEntry {
    /// The key.
    pub key: Arc<str>,
    /// The row of the key.
    pub row: MemoryRow,
}

/// One page of keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyPage {
    /// The entries, ordered by key.
    pub entries: Vec<MemoryEntry>,
    /// The last key of the page, if more keys follow.
    pub next: Option<Arc<str>>,
    /// The namespace as a whole.
    pub stats: NamespaceStats,
}

/// Facts about a namespace as a whole.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NamespaceStats {
    /// Number of keys.
    pub total: usize,
    /// Bytes of all values.
    pub size: usize,
    /// Time at which the oldest key was created, in milliseconds since 1970.
    pub oldest_ms: Option<u64>,
}

/// A search: a glob over keys if the pattern has one of `*?[{`, words of keys and values otherwise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchQuery {
    /// The pattern.
    pub pattern: String,
    /// Number of the page, from 1.
    pub page: usize,
    /// Entries on one page.
    pub limit: usize,
    /// Key after which the page of a glob begins. Pages before it are not looked at.
    pub after: Option<String>,
}

/// A matching entry.
#[derive(Debug, Clone, PartialEq)]
pub struct SearchHit {
    /// The entry.
    pub entry: MemoryEntry,
    /// 1 for a match of a glob; for words the part of the query that matches, weighted by how rare
    /// each word is.
    pub score: f64,
}

/// One page of a search.
#[derive(Debug, Clone, PartialEq)]
pub struct SearchPage {
    /// The entries: of a glob ordered by key, of words the best first.
    pub hits: Vec<SearchHit>,
    /// Number of matches that were found.
    pub total: usize,
    /// True if `total` counts all matches; otherwise there may be more.
    pub is_total_exact: bool,
    /// Key after which the next page of a glob begins.
    pub next: Option<Arc<str>>,
}

/// The rows of one namespace.
#[derive(Debug, Default)]
pub(super) struct NamespaceRows {
    rows: BTreeMap<Arc<str>, MemoryRow>,
    by_creation: BTreeSet<(u64, Arc<str>)>,
    /// The keys of the rows that contain each word.
    words: BTreeMap<Box<str>, BTreeSet<Arc<str>>>,
    /// Number of keys of which not all words are in the index.
    partly_indexed: usize,
    value_bytes: usize,
    /// Number of the last change.
    version: u64,
}

impl NamespaceRows {
    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub(super) fn get(&self, key: &str) -> Option<&MemoryRow> {
        self.rows.get(key)
    }

    /// Records a read at this time, and returns the row after it.
    pub(super) fn touch(&mut self, key: &str, now_ms: u64) -> Option<MemoryRow> {
        let row = self.rows.get_mut(key)?;
        row.accessed_ms = now_ms;
        row.access_count = row.access_count.saturating_add(1);
        Some(row.clone())
    }

    /// Inserts a row in place of the one with its key.
    pub(super) fn insert(&mut self, key: &Arc<str>, row: MemoryRow) {
        self.remove(key);
        self.version = row.version;
        self.by_creation.insert((row.created_ms, key.clone()));
        let indexed = IndexedWords::of(key, &row.value);
        self.partly_indexed += usize::from(indexed.is_cut);
        for word in indexed.words {
            self.words.entry(word).or_default().insert(key.clone());
        }
        self.value_bytes += row.value.len();
        self.rows.insert(key.clone(), row);
    }

    /// Removes a row, and returns it.
    pub(super) fn remove(&mut self, key: &str) -> Option<MemoryRow> {
        let (key, row) = self.rows.remove_entry(key)?;
        self.by_creation.remove(&(row.created_ms, key.clone()));
        let indexed = IndexedWords::of(&key, &row.value);
        self.partly_indexed -= usize::from(indexed.is_cut);
        for word in &indexed.words {
            if let Some(keys) = self.words.get_mut(word) {
                keys.remove(&key);
                if keys.is_empty() {
                    self.words.remove(word);
                }
            }
        }
        self.value_bytes -= row.value.len();
        Some(row)
    }

    /// Returns all rows.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &MemoryRow)> {
        self.rows.iter()
    }

    /// Returns the number of the last change: of a key, or of the namespace.
    pub(super) fn version(&self, key: Option<&str>) -> u64 {
        match key {
            Some(key) => self.rows.get(key).map_or(0, |row| row.version),
            None => self.version,
        }
    }

    /// Records the number of a change that removed a row.
    pub(super) fn set_version(&mut self, version: u64) {
        self.version = version;
    }

    /// Applies the reads that were counted for a row before a restart.
    pub(super) fn restore_access(&mut self, key: &str, accessed_ms: u64, access_count: u64) -> bool {
        let Some(row) = self.rows.get_mut(key) else { return false };
        row.accessed_ms = row.accessed_ms.max(accessed_ms);
        row.access_count = row.access_count.max(access_count);
        true
    }

    /// Returns the keys after `after`, at most `limit`.
    pub(super) fn list(&self, after: Option<&str>, limit: usize) -> KeyPage {
        let mut rest = self.rows.range::<str, _>((from(after), Bound::Unbounded));
        let entries: Vec<MemoryEntry> = rest.by_ref().take(limit).map(entry).collect();
        let last = entries.last().map(|entry| entry.key.clone());
        KeyPage { next: last.filter(|_| rest.next().is_some()), entries, stats: self.stats() }
    }

    fn stats(&self) -> NamespaceStats {
        let oldest_ms = self.by_creation.first().map(|(created, _)| *created);
        NamespaceStats { total: self.rows.len(), size: self.value_bytes, oldest_ms }
    }

    /// Searches the rows.
    ///
    /// # Errors
    ///
    /// [`MemoryRefusal::BadPattern`] for a glob that cannot be read.
    pub(super) fn search(&self, query: &SearchQuery) -> Result<SearchPage, MemoryRefusal> {
        if query.pattern.contains(['*', '?', '[', '{']) {
            let glob = KeyGlob::parse(&query.pattern)?;
            return Ok(self.match_glob(&glob, query));
        }
        Ok(self.rank(query))
    }

    fn match_glob(&self, glob: &KeyGlob, query: &SearchQuery) -> SearchPage {
        // With a cursor the pages before it need not be skipped.
        let skipped = if query.after.is_some() { 0 } else { (query.page - 1).saturating_mul(query.limit) };
        let mut page = SearchPage { hits: Vec::new(), total: 0, is_total_exact: true, next: None };
        let (mut last, mut scanned, mut counted) = (None, 0, 0);
        for key in self.candidates(glob, query.after.as_deref()) {
            let is_full = page.hits.len() >= query.limit;
            scanned += 1;
            counted += usize::from(is_full);
            if scanned > MAX_SCANNED_KEYS || counted > MAX_COUNTED_KEYS {
                page.is_total_exact = false;
                page.next = page.next.or(last);
                break;
            }
            if glob.matcher.is_match(&**key) {
                page.total += 1;
                if is_full {
                    page.next = page.next.or_else(|| page.hits.last().map(|hit| hit.entry.key.clone()));
                } else if let Some(row) = self.rows.get(key).filter(|_| page.total > skipped) {
                    let entry = MemoryEntry { key: key.clone(), row: row.clone() };
                    page.hits.push(SearchHit { entry, score: 1.0 });
                }
            }
            if !is_full {
                last = Some(key.clone());
            }
        }
        page.is_total_exact &= query.after.is_none();
        page
    }

    /// Returns the keys that a glob can match, in their order: those with its literal prefix that
    /// contain its rarest word.
    fn candidates<'s>(
        &'s self,
        glob: &'s KeyGlob,
        after: Option<&str>,
    ) -> Box<dyn Iterator<Item = &'s Arc<str>> + 's> {
        let prefix = glob.prefix.as_str();
        let start: Bound<&str> = match after {
            Some(after) if after >= prefix => Bound::Excluded(after),
            _ => Bound::Included(prefix),
        };
        let in_range = move |key: &&Arc<str>| key.starts_with(prefix);
        let sets = glob.words.iter().filter(|_| self.partly_indexed == 0).map(|word| self.words.get(&**word));
        match sets.min_by_key(|set| set.map_or(0, BTreeSet::len)) {
            None => {
                let rows = self.rows.range::<str, _>((start, Bound::Unbounded));
                Box::new(rows.map(|(key, _)| key).take_while(in_range))
            }
            Some(None) => Box::new(std::iter::empty()),
            Some(Some(keys)) => {
                Box::new(keys.range::<str, _>((start, Bound::Unbounded)).take_while(in_range))
            }
        }
    }

    fn rank(&self, query: &SearchQuery) -> SearchPage {
        let wanted: Vec<QueryWord<'_>> = words(&query.pattern)
            .take(MAX_QUERY_WORDS)
            .filter_map(|word| QueryWord::find(word, &self.words, self.rows.len()))
            .collect();
        let unknown = words(&query.pattern).take(MAX_QUERY_WORDS).count() - wanted.len();
        // A word that no row contains is the rarest.
        let missing = weight(0, self.rows.len()) * approximate(unknown);
        let all = wanted.iter().map(|word| word.weight).sum::<f64>() + missing;
        let mut sets: Vec<&BTreeSet<Arc<str>>> = wanted.iter().flat_map(|word| word.sets.clone()).collect();
        sets.sort_by_key(|set| set.len());
        let (mut found, mut is_total_exact) = (HashSet::new(), true);
        for key in sets.into_iter().flatten() {
            if found.len() >= MAX_RANKED_ROWS && !found.contains(key) {
                is_total_exact = false;
                break;
            }
            found.insert(key);
        }
        let total = found.len();
        let mut ranked: Vec<(f64, &Arc<str>)> = found
            .into_iter()
            .map(|key| (wanted.iter().map(|word| word.score(key)).sum::<f64>() / all, key))
            .collect();
        let order = |one: &(f64, &Arc<str>), other: &(f64, &Arc<str>)| {
            other.0.partial_cmp(&one.0).unwrap_or(Ordering::Equal).then_with(|| one.1.cmp(other.1))
        };
        ranked.sort_unstable_by(order);
        let skipped = (query.page - 1).saturating_mul(query.limit);
        let page = ranked.into_iter().skip(skipped).take(query.limit);
        let hits = page.filter_map(|(score, key)| {
            let entry = MemoryEntry { key: key.clone(), row: self.rows.get(key)?.clone() };
            Some(SearchHit { entry, score })
        });
        SearchPage { hits: hits.collect(), total, is_total_exact, next: None }
    }
}

/// Returns the bytes that a row needs in memory, with its part of the index.
pub(super) fn row_bytes(key: &str, value: &str) -> usize {
    ROW_BYTES + key.len() + value.len() + POSTING_BYTES * IndexedWords::of(key, value).words.len()
}

fn from(after: Option<&str>) -> Bound<&str> {
    after.map_or(Bound::Unbounded, Bound::Excluded)
}

fn entry(row: (&Arc<str>, &MemoryRow)) -> MemoryEntry {
    MemoryEntry { key: row.0.clone(), row: row.1.clone() }
}

/// The words of a row that are in the index, each once.
struct IndexedWords {
    words: HashSet<Box<str>>,
    /// True if the key has more.
    is_cut: bool,
}

impl IndexedWords {
    fn of(key: &str, value: &str) -> Self {
        let mut found: HashSet<Box<str>> =
            words(key).take(MAX_KEY_WORDS).map(String::into_boxed_str).collect();
        let is_cut = words(key).nth(MAX_KEY_WORDS).is_some();
        let most = found.len() + MAX_VALUE_WORDS;
        let head = value.get(..value.floor_char_boundary(MAX_INDEXED_BYTES)).unwrap_or_default();
        for word in words(head).filter(|word| word.len() > 1) {
            if found.len() >= most {
                break;
            }
            found.insert(word.into_boxed_str());
        }
        Self { words: found, is_cut }
    }
}

/// Returns the words of a text in lower case.
fn words(text: &str) -> impl Iterator<Item = String> {
    text.split(|letter: char| !letter.is_alphanumeric()).filter(|word| !word.is_empty()).map(|word| {
        let word = word.to_lowercase();
        word.get(..word.floor_char_boundary(MAX_WORD_BYTES)).unwrap_or_default().to_owned()
    })
}

/// Returns the weight of a word that `count` of `all` rows contain: the rarer, the more.
fn weight(count: usize, all: usize) -> f64 {
    (1.0 + approximate(all) / (1.0 + approximate(count))).ln()
}

#[expect(clippy::cast_precision_loss, reason = "a count of rows is far below the exact integers of f64")]
fn approximate(count: usize) -> f64 {
    count as f64
}

/// A word of a query, with the rows that contain it.
struct QueryWord<'s> {
    word: String,
    weight: f64,
    /// Rows with the word, then rows with words that begin with it.
    sets: Vec<&'s BTreeSet<Arc<str>>>,
    is_exact: bool,
}

impl<'s> QueryWord<'s> {
    fn find(word: String, index: &'s BTreeMap<Box<str>, BTreeSet<Arc<str>>>, rows: usize) -> Option<Self> {
        let from_word = index.range::<str, _>((Bound::Included(word.as_str()), Bound::Unbounded));
        let expansions = from_word.take_while(|(found, _)| found.starts_with(&word)).take(MAX_EXPANSIONS);
        let expansions: Vec<_> = expansions.collect();
        let is_exact = expansions.first().is_some_and(|(found, _)| ***found == *word);
        let sets: Vec<_> = expansions.into_iter().map(|(_, keys)| keys).collect();
        let count = sets.iter().map(|keys| keys.len()).max()?;
        Some(Self { weight: weight(count, rows), sets, is_exact, word })
    }

    /// Returns the score of the row of a key: whole for a word of the key, less for a word of the
    /// value, and less again for the beginning of a word.
    fn score(&self, key: &Arc<str>) -> f64 {
        const IN_VALUE: f64 = 0.8;
        const AS_BEGINNING: f64 = 0.4;
        let Some(at) = self.sets.iter().position(|keys| keys.contains(key)) else { return 0.0 };
        let is_beginning = at > 0 || !self.is_exact;
        let part = match is_beginning {
            true => AS_BEGINNING,
            false if words(key).take(MAX_KEY_WORDS).any(|word| word == self.word) => 1.0,
            false => IN_VALUE,
        };
        self.weight * part
    }
}

/// A glob over keys.
struct KeyGlob {
    matcher: GlobMatcher,
    /// The text before the first wildcard.
    prefix: String,
    /// Whole words that every match contains.
    words: Vec<String>,
}

impl KeyGlob {
    fn parse(pattern: &str) -> Result<Self, MemoryRefusal> {
        let glob = Glob::new(pattern).map_err(|error| MemoryRefusal::BadPattern(error.to_string()))?;
        let end = pattern.find(['*', '?', '[', '{', '\\']).unwrap_or(pattern.len());
        let prefix = pattern.get(..end).unwrap_or_default().to_owned();
        // Words beside a class, an alternative or an escape are not looked for.
        let is_plain = !pattern.contains(['[', '{', '\\']);
        let words = if is_plain { whole_words(pattern) } else { Vec::new() };
        Ok(Self { matcher: glob.compile_matcher(), prefix, words })
    }
}

/// Returns the words of a glob that no wildcard touches.
fn whole_words(pattern: &str) -> Vec<String> {
    let is_part = |letter: char| letter.is_alphanumeric() || matches!(letter, '*' | '?');
    let pieces = pattern.split(|letter: char| !is_part(letter));
    let whole = pieces.filter(|piece| !piece.contains(['*', '?']));
    whole.flat_map(words).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn row(value: &str, created_ms: u64) -> MemoryRow {
        MemoryRow {
            value: value.into(),
            created_ms,
            modified_ms: created_ms,
            accessed_ms: created_ms,
            access_count: 0,
            ttl_seconds: None,
            version: 1,
        }
    }

    fn filled(count: usize) -> NamespaceRows {
        let mut rows = NamespaceRows::default();
        for number in 0..count {
            let phase = ["specification", "pseudocode", "completion"][number % 3];
            let value = format!(r#"{{"note":"number {number} of {phase}"}}"#);
            rows.insert(&format!("task:{number:06}:{phase}").into(), row(&value, number as u64));
        }
        rows
    }

    fn query(pattern: &str) -> SearchQuery {
        SearchQuery { pattern: pattern.into(), page: 1, limit: 10, after: None }
    }

    fn keys(page: &SearchPage) -> Vec<&str> {
        page.hits.iter().map(|hit| &*hit.entry.key).collect()
    }

    #[test]
    fn pages_of_keys_cover_all_once() {
        let rows = filled(25);
        let (mut seen, mut after) = (Vec::new(), None::<Arc<str>>);
        loop {
            let page = rows.list(after.as_deref(), 10);
            assert_eq!(page.stats.total, 25);
            seen.extend(page.entries.into_iter().map(|entry| entry.key));
            match page.next {
                Some(next) => after = Some(next),
                None => break,
            }
        }
        assert!(seen.len() == 25 && seen.is_sorted(), "{seen:?}");
        assert_eq!(rows.list(None, 1).stats.oldest_ms, Some(0));
    }

    #[test]
    fn glob_with_word_reads_its_rows_only() {
        let rows = filled(30);
        let found = rows.search(&query("task:*:specification")).unwrap();
        assert!(found.total == 10 && found.is_total_exact && found.next.is_none(), "{found:?}");
        assert!(keys(&found).iter().all(|key| key.ends_with(":specification")));
        let glob = KeyGlob::parse("task:*:specification").unwrap();
        assert_eq!(rows.candidates(&glob, None).count(), 10, "not all 30 keys are looked at");
        let glob = KeyGlob::parse("task:00000?:*").unwrap();
        assert_eq!(rows.candidates(&glob, None).count(), 10, "the range of the prefix");
        assert!(keys(&rows.search(&query("*:none")).unwrap()).is_empty());
    }

    #[test]
    fn glob_pages_by_cursor_and_by_number() {
        let rows = filled(30);
        let first = rows.search(&SearchQuery { limit: 4, ..query("task:*:specification") }).unwrap();
        assert_eq!((first.hits.len(), first.total, first.is_total_exact), (4, 10, true));
        let after = first.next.as_deref().map(str::to_owned);
        let by_cursor =
            rows.search(&SearchQuery { limit: 4, page: 2, after, ..query("task:*:specification") }).unwrap();
        let by_number = SearchQuery { limit: 4, page: 2, ..query("task:*:specification") };
        assert_eq!(keys(&by_cursor), keys(&rows.search(&by_number).unwrap()));
        assert_eq!(keys(&by_cursor).first(), Some(&"task:000012:specification"));
    }

    #[test]
    fn search_ranks_keys_above_values() {
        let mut rows = filled(30);
        rows.insert(&"notes".into(), row(r#""the specification of pumps""#, 99));
        rows.insert(&"pumps".into(), row(r#""nothing else""#, 99));
        let found = rows.search(&query("Pumps")).unwrap();
        assert_eq!(keys(&found), ["pumps", "notes"]);
        assert!(found.hits[0].score > found.hits[1].score && found.hits[0].score <= 1.0);
        let found = rows.search(&query("pumps specification")).unwrap();
        assert_eq!(keys(&found)[0], "notes", "both words");
        assert_eq!(found.total, 12);
        assert!(rows.search(&query("absent")).unwrap().hits.is_empty());
        assert_eq!(keys(&rows.search(&query("pum")).unwrap()), ["notes", "pumps"], "a beginning");
    }

    #[test]
    fn removed_rows_leave_no_index() {
        let mut rows = filled(9);
        for entry in rows.list(None, 9).entries {
            assert!(rows.remove(&entry.key).is_some());
        }
        assert!(rows.is_empty() && rows.words.is_empty() && rows.by_creation.is_empty());
        assert_eq!(rows.stats(), NamespaceStats::default());
    }

    #[test]
    fn bad_globs_are_refused() {
        for pattern in ["[", "{a", "a[b-"] {
            let refused = filled(1).search(&query(pattern));
            assert!(matches!(refused, Err(MemoryRefusal::BadPattern(_))), "{pattern}");
        }
    }

    proptest! {
        /// A glob finds the same keys as the matcher on each key.
        #[test]
        fn index_changes_no_result(
            keys in proptest::collection::btree_set("[ab:]{1,6}", 0..40),
            pattern in "[ab:*?]{0,5}\\*",
        ) {
            let mut rows = NamespaceRows::default();
            keys.iter().for_each(|key| rows.insert(&key.as_str().into(), row("0", 0)));
            let matcher = Glob::new(&pattern).unwrap().compile_matcher();
            let expected: Vec<&str> =
                keys.iter().map(String::as_str).filter(|key| matcher.is_match(key)).collect();
            let found = rows.search(&SearchQuery { limit: 100, ..query(&pattern) }).unwrap();
            let found: Vec<&str> = found.hits.iter().map(|hit| &*hit.entry.key).collect();
            prop_assert_eq!(found, expected);
        }
    }
}
