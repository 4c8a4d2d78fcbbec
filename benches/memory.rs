//! The cost of a page of the memory bank, with 1,000, 10,000 and 100,000 keys in one run.
//!
//! `cargo bench --bench memory`. Each line is one kind of page; the three figures are the median
//! time of a page at each number of keys. Memory is the growth of the resident set beside the bytes
//! that the bank counts. With `-- --plot FILE` the figures of the pages are also drawn as an SVG.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a measurement that fails loudly")]

use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mcp_a2a_gateway::memory::{
    MAX_KEY_BYTES, MemoryAddress, MemoryBank, MemoryLimits, NewValue, SearchQuery,
};
use mcp_a2a_gateway::quota::QuotaOwner;
use mcp_a2a_gateway::tasks::TaskJournal;

#[path = "gateway/plot.rs"]
mod plot;

use plot::{Axes, Line};

const SIZES: [usize; 3] = [1_000, 10_000, 100_000];
const ROUNDS: usize = 500;
const PAGE: usize = 20;
const NOW: u64 = 1_000_000;

/// One kind of page.
struct PageCase {
    name: &'static str,
    pattern: &'static str,
    /// Keys that the page has.
    hits: usize,
}

const SEARCHES: &[PageCase] = &[
    PageCase { name: "search task:*:specification", pattern: "task:*:specification", hits: PAGE },
    PageCase { name: "search task:0000*", pattern: "task:0000*", hits: PAGE },
    PageCase { name: "search task:000500:*", pattern: "task:000500:*", hits: 1 },
    PageCase { name: "search * (no index helps)", pattern: "*", hits: PAGE },
    PageCase { name: "search for a frequent word", pattern: "specification", hits: PAGE },
    PageCase { name: "search for a rare word", pattern: "needle", hits: 1 },
];

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let mut lines: Vec<(String, Vec<Duration>)> = Vec::new();
    let mut add = |name: &str, took: Duration| match lines.iter_mut().find(|(known, _)| known == name) {
        Some((_, figures)) => figures.push(took),
        None => lines.push((name.to_owned(), vec![took])),
    };
    for size in SIZES {
        let before = resident();
        let began = Instant::now();
        let bank = runtime.block_on(filled(size));
        add("store one value (mean)", began.elapsed() / u32::try_from(size).unwrap());
        let grown = resident().saturating_sub(before);
        let [keys, bytes] = bank.used();
        println!("{keys} keys: {} KiB counted, {} KiB resident", bytes / 1024, grown / 1024);
        let owner = owner();
        add("list, first page", runtime.block_on(median(|| list(&bank, &owner, None))));
        let middle = key(size / 2);
        add("list, a page in the middle", runtime.block_on(median(|| list(&bank, &owner, Some(&middle)))));
        for case in SEARCHES {
            add(case.name, runtime.block_on(median(|| search(&bank, &owner, case))));
        }
        add("read one value", runtime.block_on(median(|| read(&bank, &owner, &middle))));
    }
    println!(
        "\n{:<34} {:>12} {:>12} {:>12}",
        "µs for a page of 20", "1,000 keys", "10,000 keys", "100,000 keys"
    );
    for (name, figures) in &lines {
        let figures: Vec<String> =
            figures.iter().map(|took| format!("{:>12.1}", took.as_secs_f64() * 1e6)).collect();
        println!("{name:<34} {}", figures.join(" "));
    }
    let file = std::env::args().skip_while(|argument| argument != "--plot").nth(1);
    if let Some(file) = file {
        let is_page = |name: &str| name.starts_with("list") || name.starts_with("search");
        let pages = lines.into_iter().filter(|(name, _)| is_page(name)).map(|(name, figures)| Line {
            name,
            points: SIZES
                .iter()
                .zip(figures)
                .map(|(size, took)| (*size as f64, took.as_secs_f64() * 1e6))
                .collect(),
        });
        let axes = Axes {
            title: "Median time of a page of 20 against the number of keys",
            x: "kept keys",
            y: "microseconds for a page of 20 (median)",
            is_y_logarithmic: true,
        };
        plot::lines(file.as_ref(), &axes, &pages.collect::<Vec<_>>());
    }
}

fn owner() -> QuotaOwner {
    QuotaOwner::Caller("bench".into())
}

fn key(number: usize) -> String {
    let phase = ["specification", "pseudocode", "completion"][number % 3];
    let key = format!("task:{number:06}:{phase}");
    assert!(key.len() < MAX_KEY_BYTES);
    key
}

async fn filled(size: usize) -> MemoryBank {
    let limits = MemoryLimits {
        value_bytes: 64 * 1024,
        caller_keys: size,
        caller_bytes: 1 << 30,
        keys: size,
        bytes: 1 << 30,
        max_ttl_seconds: None,
    };
    let bank = MemoryBank::new(limits, Arc::new(TaskJournal::new(0)));
    let owner = owner();
    for number in 0..size {
        let rare = if number == size / 3 { "needle" } else { "hay" };
        let json =
            format!(r#"{{"note":"result {number} of the specification phase","tag":"{rare}","n":{number}}}"#);
        let key = key(number);
        let at = MemoryAddress { owner: &owner, namespace: "bench", key: &key };
        bank.store(at, NewValue { json, ttl_seconds: None }, NOW).await.unwrap();
    }
    bank
}

async fn list(bank: &MemoryBank, owner: &QuotaOwner, after: Option<&str>) {
    let page = bank.list(owner, "bench", after, PAGE, NOW).await;
    assert_eq!(page.entries.len(), PAGE);
}

async fn search(bank: &MemoryBank, owner: &QuotaOwner, case: &PageCase) {
    let query = SearchQuery { pattern: case.pattern.to_owned(), page: 1, limit: PAGE, after: None };
    let page = bank.search(owner, "bench", &query, NOW).await.unwrap();
    assert_eq!(page.hits.len(), case.hits, "{}", case.name);
}

async fn read(bank: &MemoryBank, owner: &QuotaOwner, key: &str) {
    let at = MemoryAddress { owner, namespace: "bench", key };
    assert!(bank.get(at, NOW).await.is_some());
}

/// Returns the median time of one page.
async fn median<F: Future<Output = ()>>(page: impl Fn() -> F) -> Duration {
    let mut took = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        let began = Instant::now();
        page().await;
        took.push(began.elapsed());
    }
    took.sort_unstable();
    took[ROUNDS / 2]
}

/// Returns the resident set of this process, in bytes; zero without `/proc`.
fn resident() -> usize {
    let pages = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: usize = pages.split_whitespace().nth(1).and_then(|count| count.parse().ok()).unwrap_or(0);
    pages * 4096
}
