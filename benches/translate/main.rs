//! The cost of the translation of one call, without any network: nanoseconds, and bytes of input
//! per second.
//!
//! `cargo bench --bench translate -- [--json] [--rounds N] [PART OF A NAME]`; `--times N` runs
//! one case so often and measures nothing, for a profiler (see `benches/instructions`); `--list`
//! prints the names. Without the gateway:
//! `cargo bench --no-default-features --bench translate`, which then measures with the system's
//! allocator. See also `benches/gateway` for the cost of a call in the whole gateway.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a measurement that fails loudly"
)]

mod bodies;
mod cases;
mod stopwatch;

use std::env;
use std::hint::black_box;

use cases::Desk;
use stopwatch::{Case, Measured, measure};

/// As in the binary.
#[cfg(feature = "gateway")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    let mut wanted = Wanted { json: false, list: false, rounds: 31, times: None, part: String::new() };
    let mut words = env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            // Cargo adds this one.
            "--bench" => {}
            "--json" => wanted.json = true,
            "--list" => wanted.list = true,
            "--rounds" => {
                wanted.rounds = words.next().and_then(|n| n.parse().ok()).expect("a number of rounds")
            }
            "--times" => wanted.times = words.next().and_then(|n| n.parse().ok()),
            part => part.clone_into(&mut wanted.part),
        }
    }
    let desk = Desk::new();
    let mut cases: Vec<Case<'_>> = cases::all(&desk);
    cases.retain(|case| case.name.contains(&wanted.part));
    if wanted.list {
        return cases.iter().for_each(|case| println!("{}", case.name));
    }
    if let Some(times) = wanted.times {
        // One name can be a part of another: the profile is of the case that is called so.
        let exact = cases.iter_mut().find(|case| case.name == wanted.part).expect("the name of a case");
        return (0..times).for_each(|_| {
            black_box((exact.once)());
        });
    }
    let measured = measure(&mut cases, wanted.rounds);
    if wanted.json { print_json(&measured) } else { print_table(&measured) }
}

struct Wanted {
    json: bool,
    list: bool,
    rounds: usize,
    /// How often a case is done for a profiler.
    times: Option<usize>,
    part: String,
}

fn print_table(all: &[Measured]) {
    println!("{:<42} {:>10} {:>8} {:>10} {:>10}", "", "bytes in", "ns", "10–90 %", "MB/s");
    for one in all {
        println!(
            "{:<42} {:>10} {:>8.0} {:>10} {:>10.0}",
            one.name,
            one.bytes,
            one.median,
            format!("±{:.0} %", one.spread * 100.0),
            one.bytes_per_second() / 1e6,
        );
    }
}

fn print_json(all: &[Measured]) {
    let lines: Vec<String> = all
        .iter()
        .map(|one| {
            format!(
                r#"{{"name":"{}","bytes":{},"ns":{:.1},"spread":{:.4},"bytesPerSecond":{:.0}}}"#,
                one.name,
                one.bytes,
                one.median,
                one.spread,
                one.bytes_per_second(),
            )
        })
        .collect();
    println!("[{}]", lines.join(",\n "));
}
