//! The number of allocations of one call in the translation core, of one response and of one stream event. The cases are those of
//! `benches/translate`. A count does not depend on the machine, so that each has a bound without slack: lower it with each gain.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "the cases fail loudly")]

#[path = "../benches/translate/bodies.rs"]
mod bodies;
#[path = "../benches/translate/cases.rs"]
mod cases;
#[path = "../benches/translate/stopwatch.rs"]
#[expect(dead_code, reason = "only the type of a case is of use here")]
mod stopwatch;

use std::alloc::System;
use std::hint::black_box;

use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Each case is counted over so many runs: those of a stream differ a little.
const RUNS: usize = 64;

/// Most allocations of one run, with reallocations.
const BOUNDS: [(&str, usize); 12] = [
    ("call: small", 9),
    ("call: small, to A2A 0.3", 9),
    ("call: small, modern client", 9),
    ("call: 64 KiB text", 9),
    ("call: 64 KiB nested data", 11),
    ("reply: small", 15),
    ("reply: small, from A2A 0.3", 15),
    ("reply: small, modern client", 15),
    ("reply: 64 KiB text", 15),
    ("reply: 64 KiB nested data", 19),
    ("stream event: status → progress", 9),
    ("stream event: chunk → progress", 9),
];

// The only test of this file: others would allocate at the same time.
#[test]
fn allocations_stay_within_their_bounds() {
    let desk = cases::Desk::new();
    let mut counted: Vec<(&str, usize)> = Vec::new();
    for mut case in cases::all(&desk) {
        // A value that is made once, such as a table, is not counted.
        black_box((case.once)());
        let region = Region::new(ALLOCATOR);
        for _ in 0..RUNS {
            black_box((case.once)());
        }
        let change = region.change();
        counted.push((case.name, (change.allocations + change.reallocations).div_ceil(RUNS)));
    }
    let is_within =
        |(name, count): &(&str, usize)| BOUNDS.iter().any(|(of, most)| of == name && count <= most);
    assert!(counted.iter().all(is_within) && counted.len() == BOUNDS.len(), "{counted:#?}");
}
