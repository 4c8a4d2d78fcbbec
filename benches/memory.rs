//! The cost of a page of the memory bank, with 1,000, 10,000 and 100,000 keys in one run.
//!
//! `cargo bench --bench memory`. Each line is one kind of page; the three figures are the median
//! time of a page at each number of keys. Memory is the growth of the resident set beside the bytes
//! that the bank counts. With `-- --plot FILE` the figures of the pages are also drawn as an SVG.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a measurement that fails loudly")]

use std::fmt::Write as _;
use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mcp_a2a_gateway::memory::{
    MAX_KEY_BYTES, MemoryAddress, MemoryBank, MemoryLimits, NewValue, SearchQuery,
};
use mcp_a2a_gateway::quota::QuotaOwner;
use mcp_a2a_gateway::tasks::TaskJournal;

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
        let pages: Vec<_> = lines.into_iter().filter(|(name, _)| is_page(name)).collect();
        fs::write(&file, plot(&pages)).unwrap();
        println!("the plot is in {file}");
    }
}

/// Draws the median time of each kind of page against the number of keys, both on logarithmic axes.
fn plot(pages: &[(String, Vec<Duration>)]) -> String {
    const COLOURS: [&str; 8] =
        ["#4477aa", "#66ccee", "#228833", "#ccbb44", "#ee6677", "#aa3377", "#8c564b", "#ee8866"];
    let [left, right, top, bottom] = [70.0, 470.0, 30.0, 330.0];
    let [least, most] = [0.1_f64, 1000.0];
    let x = |keys: usize| {
        let part = (keys as f64 / SIZES[0] as f64).log10() / (SIZES[2] as f64 / SIZES[0] as f64).log10();
        left + part * (right - left)
    };
    let y = |micros: f64| {
        let part = (micros.clamp(least, most) / least).log10() / (most / least).log10();
        bottom - part * (bottom - top)
    };
    let mut svg = String::from(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 720 380\" role=\"img\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <title>Median time of a page of 20 against the number of keys</title>\n\
         <style>text { fill: #444 } path { fill: none; stroke-width: 2 } .grid { stroke: #8886; stroke-width: 1 }\n\
         @media (prefers-color-scheme: dark) { text { fill: #ccc } }</style>\n",
    );
    for micros in [0.1, 1.0, 10.0, 100.0, 1000.0] {
        let at = y(micros);
        writeln!(svg, "<path class=\"grid\" d=\"M{left} {at:.1}H{right}\"/>").unwrap();
        writeln!(svg, "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{micros}</text>", left - 8.0, at + 4.0)
            .unwrap();
    }
    for keys in SIZES {
        let at = x(keys);
        writeln!(svg, "<path class=\"grid\" d=\"M{at:.1} {top}V{bottom}\"/>").unwrap();
        let (below, thousands) = (bottom + 18.0, keys / 1000);
        writeln!(svg, "<text x=\"{at:.1}\" y=\"{below}\" text-anchor=\"middle\">{thousands},000</text>")
            .unwrap();
    }
    writeln!(svg, "<text x=\"270\" y=\"368\" text-anchor=\"middle\">kept keys</text>").unwrap();
    writeln!(svg, "<text x=\"16\" y=\"18\">microseconds for a page of 20 (median)</text>").unwrap();
    for (index, ((name, figures), colour)) in pages.iter().zip(COLOURS).enumerate() {
        let points = SIZES.iter().zip(figures).map(|(keys, took)| (x(*keys), y(took.as_secs_f64() * 1e6)));
        let path: Vec<String> = points.clone().map(|(x, y)| format!("{x:.1} {y:.1}")).collect();
        writeln!(svg, "<path stroke=\"{colour}\" d=\"M{}\"/>", path.join("L")).unwrap();
        for (x, y) in points {
            writeln!(svg, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{colour}\"/>").unwrap();
        }
        let row = top + 12.0 + 22.0 * index as f64;
        writeln!(svg, "<rect x=\"490\" y=\"{:.1}\" width=\"14\" height=\"4\" fill=\"{colour}\"/>", row - 6.0)
            .unwrap();
        writeln!(svg, "<text x=\"510\" y=\"{row:.1}\">{name}</text>").unwrap();
    }
    svg.push_str("</svg>\n");
    svg
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
