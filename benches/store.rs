//! The cost of keeping tasks on disk: rows per second, transactions, and processor time for one
//! row.
//!
//! `cargo bench --bench store`. Writes into the directory for temporary files: set `TMPDIR` to
//! measure another disk. Rows are of 1 KiB, as those of small tasks. See also `benches/gateway` for
//! the cost of a call.

#![allow(clippy::unwrap_used, reason = "a measurement that fails loudly")]

use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mcp_a2a_gateway::tasks::store::{Store, StoreTable};
use tokio::task::JoinSet;

const LASTS: Duration = Duration::from_secs(2);
const KEYS: u64 = 10_000;
/// Resolution of the clock that Linux counts processor time with, everywhere.
const TICK: Duration = Duration::from_millis(10);

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    println!("{:<34} {:>9} {:>9} {:>12} {:>12}", "", "rows/s", "commits/s", "ms waited", "cpu µs/row");
    for lanes in [1, 8, 64, 512] {
        runtime.block_on(waited_for(lanes));
    }
    handed_over();
    opened();
}

/// Measures lanes that each put a row, wait until it is durable, and put the next.
async fn waited_for(lanes: u64) {
    let home = tempfile::tempdir().unwrap();
    let store = Arc::new(Store::open(home.path()).unwrap());
    let (began, worked) = (Instant::now(), processor());
    let mut all = JoinSet::new();
    for lane in 0..lanes {
        let store = store.clone();
        all.spawn(async move {
            let mut rows = 0_u64;
            while began.elapsed() < LASTS {
                store.put(StoreTable::Tasks, key(rows * lanes + lane), vec![7; 1024]).unwrap();
                store.flush().await.unwrap();
                rows += 1;
            }
            rows
        });
    }
    let rows: u64 = all.join_all().await.into_iter().sum();
    let waited = began.elapsed().as_secs_f64() * 1e3 * count(lanes) / count(rows);
    report(&format!("put and flush, {lanes} at once"), &store, rows, (began, worked), waited);
}

/// Measures a writer that never waits; when the queue is full, the row is dropped.
fn handed_over() {
    let home = tempfile::tempdir().unwrap();
    let store = Store::open(home.path()).unwrap();
    let (began, worked) = (Instant::now(), processor());
    let mut rows = 0;
    while began.elapsed() < LASTS {
        rows += u64::from(store.put(StoreTable::Tasks, key(rows), vec![7; 1024]).is_ok());
    }
    report("put without waiting", &store, rows, (began, worked), 0.0);
}

/// Measures the start with 100,000 rows.
fn opened() {
    let home = tempfile::tempdir().unwrap();
    let store = Store::open(home.path()).unwrap();
    for number in 0..100_000_u64 {
        let row = || store.put(StoreTable::Tasks, number.to_be_bytes().to_vec(), vec![7; 1024]);
        while row().is_err() {
            std::thread::yield_now();
        }
    }
    store.close().unwrap();
    let began = Instant::now();
    let store = Store::open(home.path()).unwrap();
    let open = began.elapsed();
    let mut bytes = 0;
    store.load(StoreTable::Tasks, |_, value| bytes += value.len()).unwrap();
    assert_eq!(bytes, 100_000 * 1024);
    println!("open 100,000 rows: {open:.0?} to check, {:.0?} to load", began.elapsed().saturating_sub(open));
}

fn report(name: &str, store: &Store, rows: u64, (began, worked): (Instant, Duration), waited: f64) {
    let cpu = processor().saturating_sub(worked).as_secs_f64() * 1e6 / count(rows);
    let seconds = began.elapsed().as_secs_f64();
    let (rows, commits) = (count(rows) / seconds, count(store.commits()) / seconds);
    println!("{name:<34} {rows:>9.0} {commits:>9.0} {waited:>12.2} {cpu:>12.1}");
}

fn key(number: u64) -> Vec<u8> {
    (number % KEYS).to_be_bytes().to_vec()
}

/// Returns the processor time of this process so far; zero without `/proc`.
fn processor() -> Duration {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let ticks: u32 =
        after_name.split_whitespace().skip(11).take(2).filter_map(|n| n.parse::<u32>().ok()).sum();
    TICK * ticks
}

#[expect(clippy::cast_precision_loss, reason = "far below the exact integers of f64")]
fn count(number: u64) -> f64 {
    number as f64
}
