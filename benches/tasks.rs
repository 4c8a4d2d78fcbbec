//! The task map with 1,000 to 1,000,000 finished tasks in one run: memory of a task, and the time to
//! add one, to find one, and to add one when the map is full.
//!
//! `cargo bench --bench tasks -- [--most N] [--plot FILE]`. Each task has four events and a text of
//! 1 KiB, as an agent sends them, and one owner. Memory is the growth of the resident set, with the
//! allocator of the binary. `--most` ends at fewer tasks; a million take about 3 GB. With `--plot`
//! the times are also drawn as an SVG.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a measurement that fails loudly")]

use std::fs;
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mcp_a2a_gateway::a2a::Dialect;
use mcp_a2a_gateway::bridge::output::AgentOutput;
use mcp_a2a_gateway::tasks::{EntryKey, TaskEntry, TaskLimits, Tasks, Timestamp};

#[path = "gateway/plot.rs"]
mod plot;

use plot::{Axes, Line};

/// As in the binary.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const SIZES: [usize; 4] = [1_000, 10_000, 100_000, 1_000_000];
/// Tasks that are looked up, or added to the full map, for one figure.
const SAMPLES: usize = 20_000;
const RESULT_BYTES: usize = 1024;
const ARTIFACT_LIMIT: usize = 1 << 20;
const CALLERS: usize = 100;

/// Figures of the map at one size.
struct MapFigures {
    size: usize,
    resident_bytes: usize,
    counted_bytes: usize,
    adding: Duration,
    finding: Duration,
    replacing: Duration,
}

fn main() {
    let argument = |name: &str| std::env::args().skip_while(|argument| argument != name).nth(1);
    let most = argument("--most").map_or(usize::MAX, |most| most.parse().unwrap());
    println!(
        "{:>10} {:>14} {:>13} {:>10} {:>10} {:>14}",
        "tasks", "bytes resident", "bytes counted", "µs to add", "µs to find", "µs to replace"
    );
    let mut figures = Vec::new();
    for size in SIZES.into_iter().filter(|size| *size <= most) {
        let of_size = measure(size);
        let micros = |took: Duration| took.as_secs_f64() * 1e6;
        println!(
            "{:>10} {:>14} {:>13} {:>10.2} {:>10.2} {:>14.2}",
            of_size.size,
            of_size.resident_bytes,
            of_size.counted_bytes,
            micros(of_size.adding),
            micros(of_size.finding),
            micros(of_size.replacing)
        );
        figures.push(of_size);
    }
    if let Some(file) = argument("--plot") {
        draw(&file, &figures);
    }
}

/// Returns the figures of a map with so many tasks, per task.
fn measure(size: usize) -> MapFigures {
    let agent: Arc<str> = "weather".into();
    let limits = TaskLimits {
        most: size,
        bytes: usize::MAX / 2,
        ttl: Duration::from_secs(3600),
        artifact_bytes: ARTIFACT_LIMIT,
    };
    let (before, began) = (resident(), Instant::now());
    let tasks = Tasks::new(limits);
    (0..size).for_each(|number| add(&tasks, &agent, number));
    let adding = began.elapsed() / u32::try_from(size).unwrap();
    assert_eq!(tasks.len(), size);
    let resident_bytes = resident().saturating_sub(before) / size;
    let counted_bytes = tasks.bytes() / size;

    // A step that has no factor in common with the sizes visits the tasks in no order.
    let keys: Vec<EntryKey> = (0..SAMPLES).map(|sample| key(&agent, sample * 7_919 % size)).collect();
    let now = Instant::now();
    for key in &keys {
        black_box(tasks.find(key, now)).unwrap();
    }
    let finding = now.elapsed() / u32::try_from(SAMPLES).unwrap();

    let began = Instant::now();
    (size..size + SAMPLES).for_each(|number| add(&tasks, &agent, number));
    let replacing = began.elapsed() / u32::try_from(SAMPLES).unwrap();
    assert_eq!((tasks.len(), tasks.take_evicted()), (size, u64::try_from(SAMPLES).unwrap()));
    MapFigures { size, resident_bytes, counted_bytes, adding, finding, replacing }
}

/// Adds a task as a call does: admitted, with a handle at its caller, and followed to its end.
fn add(tasks: &Tasks, agent: &Arc<str>, number: usize) {
    let now = Timestamp::now();
    let local = u128::try_from(number).unwrap().to_be_bytes();
    let make = || TaskEntry::new(agent.clone(), local, AgentOutput::new(ARTIFACT_LIMIT), now);
    let (entry, is_new) = tasks.admit(EntryKey::Local(local), make, now.instant).unwrap();
    assert!(is_new);
    entry.own(&format!("caller-{}", number % CALLERS));
    let changes = entry.changes();
    for event in events(number) {
        entry.apply(Dialect::V1.event(event.as_bytes()).unwrap(), now).unwrap();
    }
    tasks.add_alias(key(agent, number), &entry, now.instant);
    drop(changes);
}

fn key(agent: &Arc<str>, number: usize) -> EntryKey {
    EntryKey::Task { agent: agent.clone(), id: id(number).into() }
}

/// Returns an id of the length of those of the official SDKs.
fn id(number: usize) -> String {
    format!("{number:08}-5b1f-4c0e-9d5a-3f0f6a1c2b7d")
}

fn events(number: usize) -> [String; 4] {
    let (task, text) = (id(number), "x".repeat(RESULT_BYTES));
    let context = format!("c{task}");
    let status = |kind: &str, state: &str, message: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":1,"result":{{"{kind}":{{"{}":"{task}","contextId":"{context}","status":{{"state":"{state}"{message},"timestamp":"2026-01-01T00:00:00.000Z"}}}}}}}}"#,
            if kind == "task" { "id" } else { "taskId" },
        )
    };
    let message = format!(
        r#","message":{{"messageId":"m{task}","role":"ROLE_AGENT","taskId":"{task}","contextId":"{context}","parts":[{{"text":"looking it up"}}]}}"#
    );
    [
        status("task", "TASK_STATE_SUBMITTED", ""),
        status("statusUpdate", "TASK_STATE_WORKING", &message),
        format!(
            r#"{{"jsonrpc":"2.0","id":1,"result":{{"artifactUpdate":{{"taskId":"{task}","contextId":"{context}","artifact":{{"artifactId":"a{task}","name":"result","parts":[{{"text":"{text}"}}]}},"lastChunk":true}}}}}}"#
        ),
        status("statusUpdate", "TASK_STATE_COMPLETED", ""),
    ]
}

fn draw(file: &str, figures: &[MapFigures]) {
    let line = |name: &str, took: fn(&MapFigures) -> Duration| Line {
        name: name.to_owned(),
        points: figures.iter().map(|one| (one.size as f64, took(one).as_secs_f64() * 1e6)).collect(),
    };
    let axes = Axes {
        title: "Time for a task against the number of tasks in the map",
        x: "tasks",
        y: "microseconds (mean)",
        is_y_logarithmic: true,
    };
    let lines = [
        line("add", |one| one.adding),
        line("find", |one| one.finding),
        line("replace", |one| one.replacing),
    ];
    plot::lines(file.as_ref(), &axes, &lines);
}

/// Returns the resident set of this process, in bytes; zero without `/proc`.
fn resident() -> usize {
    let pages = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: usize = pages.split_whitespace().nth(1).and_then(|count| count.parse().ok()).unwrap_or(0);
    pages * 4096
}
