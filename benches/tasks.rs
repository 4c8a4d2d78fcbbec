//! The task map with 1,000 to 1,000,000 finished tasks in one run: memory of a task, and the time to
//! add one, to find one, and to add one when the map is full.
//!
//! `cargo bench --bench tasks -- [--most N] [--plot FILE] [--text prose|base64] [--whole]`. Each task has
//! four events and a text of 1 KiB, as an agent sends them, and one owner: prose of the book, or base64 of
//! random bytes, which is the worst case. Tasks are compressed as they are once they were not used for a
//! while, unless `--whole` is given. Memory is the growth of the resident set, with the allocator of the
//! binary. `--most` ends at fewer tasks; a million take about 1.5 GB. With `--plot` the times are also drawn
//! as an SVG.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a measurement that fails loudly")]

use std::fs;
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mcp_a2a_gateway::a2a::Dialect;
use mcp_a2a_gateway::bridge::output::AgentOutput;
use mcp_a2a_gateway::tasks::{EntryKey, TaskEntry, TaskLimits, Tasks, Timestamp};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

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
const IDLE: Duration = Duration::from_secs(60);

/// Figures of the map at one size.
struct MapFigures {
    size: usize,
    resident_bytes: usize,
    counted_bytes: usize,
    adding: Duration,
    finding: Duration,
    reading: Duration,
    replacing: Duration,
}

fn main() {
    let argument = |name: &str| std::env::args().skip_while(|argument| argument != name).nth(1);
    let most = argument("--most").map_or(usize::MAX, |most| most.parse().unwrap());
    println!(
        "{:>10} {:>14} {:>13} {:>10} {:>10} {:>10} {:>14}",
        "tasks", "bytes resident", "bytes counted", "µs to add", "µs to find", "µs to read", "µs to replace"
    );
    let has = |name: &str| std::env::args().any(|argument| argument == name);
    let texts = texts(argument("--text").as_deref().unwrap_or("prose"));
    let mut figures = Vec::new();
    for size in SIZES.into_iter().filter(|size| *size <= most) {
        let of_size = measure(size, &texts, !has("--whole"));
        let micros = |took: Duration| took.as_secs_f64() * 1e6;
        println!(
            "{:>10} {:>14} {:>13} {:>10.2} {:>10.2} {:>10.2} {:>14.2}",
            of_size.size,
            of_size.resident_bytes,
            of_size.counted_bytes,
            micros(of_size.adding),
            micros(of_size.finding),
            micros(of_size.reading),
            micros(of_size.replacing)
        );
        figures.push(of_size);
    }
    if let Some(file) = argument("--plot") {
        draw(&file, &figures);
    }
}

/// Returns the figures of a map with so many tasks, per task.
fn measure(size: usize, texts: &[String], is_compressed: bool) -> MapFigures {
    let agent: Arc<str> = "weather".into();
    let limits = TaskLimits {
        most: size,
        bytes: usize::MAX / 2,
        ttl: Duration::from_secs(3600),
        artifact_bytes: ARTIFACT_LIMIT,
        compress_after: IDLE,
    };
    let (before, began) = (resident(), Instant::now());
    let tasks = Tasks::new(limits);
    for number in 0..size {
        add(&tasks, &agent, number, texts);
        // As many as come in a while at a high rate.
        if is_compressed && number % 10_000 == 9_999 {
            compress(&tasks);
        }
    }
    let adding = began.elapsed() / u32::try_from(size).unwrap();
    assert_eq!(tasks.len(), size);
    if is_compressed {
        compress(&tasks);
        assert_eq!(tasks.compressed(), size);
    }
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
    for key in &keys {
        black_box(tasks.find(key, began).unwrap().visible_state(|state| state.is_followed()));
    }
    let reading = began.elapsed() / u32::try_from(SAMPLES).unwrap();

    let began = Instant::now();
    (size..size + SAMPLES).for_each(|number| add(&tasks, &agent, number, texts));
    let replacing = began.elapsed() / u32::try_from(SAMPLES).unwrap();
    assert_eq!((tasks.len(), tasks.take_evicted()), (size, u64::try_from(SAMPLES).unwrap()));
    MapFigures { size, resident_bytes, counted_bytes, adding, finding, reading, replacing }
}

/// Adds a task as a call does: admitted, with a handle at its caller, and followed to its end.
fn add(tasks: &Tasks, agent: &Arc<str>, number: usize, texts: &[String]) {
    let now = Timestamp::now();
    let local = u128::try_from(number).unwrap().to_be_bytes();
    let make = || TaskEntry::new(agent.clone(), local, AgentOutput::new(ARTIFACT_LIMIT), now);
    let (entry, is_new) = tasks.admit(EntryKey::Local(local), make, now.instant).unwrap();
    assert!(is_new);
    entry.own(&format!("caller-{}", number % CALLERS));
    entry.acknowledge();
    let changes = entry.changes();
    for event in events(number, &texts[number % texts.len()]) {
        entry.apply(Dialect::V1.event(event.as_bytes()).unwrap(), now).unwrap();
    }
    tasks.add_alias(key(agent, number), &entry, now.instant);
    drop(changes);
}

/// Compresses all tasks, as if they were not used since.
fn compress(tasks: &Tasks) {
    let later = Instant::now() + IDLE + Duration::from_millis(1);
    (0..tasks.shards()).for_each(|_| tasks.compress_idle(later).unwrap());
}

/// Returns texts of 1 KiB, each of which is the result of some tasks.
fn texts(kind: &str) -> Vec<String> {
    match kind {
        "prose" => {
            let pages = [
                include_str!("../docs/explanation/security.md"),
                include_str!("../docs/explanation/architecture.md"),
            ];
            let lines = pages.iter().flat_map(|page| page.lines());
            let text: String =
                lines.filter(|line| line.len() > 60 && !line.contains(['|', '`', '"', '\\'])).collect();
            let text: Vec<char> = text.chars().filter(char::is_ascii).collect();
            (0..text.len() - RESULT_BYTES)
                .step_by(7)
                .map(|at| text[at..at + RESULT_BYTES].iter().collect())
                .collect()
        }
        _ => {
            assert_eq!(kind, "base64", "--text prose or base64");
            let mut random = StdRng::seed_from_u64(1);
            let digits = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
            let text = |_| (0..RESULT_BYTES).map(|_| char::from(digits[random.gen_range(0..64)])).collect();
            (0..1000).map(text).collect()
        }
    }
}

fn key(agent: &Arc<str>, number: usize) -> EntryKey {
    EntryKey::Task { agent: agent.clone(), id: id(number).into() }
}

/// Returns an id of the length of those of the official SDKs.
fn id(number: usize) -> String {
    let mut random = StdRng::seed_from_u64(u64::try_from(number).unwrap());
    let (high, low) = (random.r#gen::<u64>(), random.r#gen::<u64>());
    format!(
        "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
        high >> 32,
        high >> 16 & 0xffff,
        high & 0xfff,
        low >> 48,
        low & 0xffff_ffff_ffff
    )
}

fn events(number: usize, text: &str) -> [String; 4] {
    let task = id(number);
    // Agents choose each of them at random.
    let [context, message_id, artifact_id] = [1, 2, 3].map(|kind| id(number + (kind << 40)));
    let status = |kind: &str, state: &str, message: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":1,"result":{{"{kind}":{{"{}":"{task}","contextId":"{context}","status":{{"state":"{state}"{message},"timestamp":"2026-01-01T00:00:00.000Z"}}}}}}}}"#,
            if kind == "task" { "id" } else { "taskId" },
        )
    };
    let message = format!(
        r#","message":{{"messageId":"{message_id}","role":"ROLE_AGENT","taskId":"{task}","contextId":"{context}","parts":[{{"text":"looking it up"}}]}}"#
    );
    [
        status("task", "TASK_STATE_SUBMITTED", ""),
        status("statusUpdate", "TASK_STATE_WORKING", &message),
        format!(
            r#"{{"jsonrpc":"2.0","id":1,"result":{{"artifactUpdate":{{"taskId":"{task}","contextId":"{context}","artifact":{{"artifactId":"{artifact_id}","name":"result","parts":[{{"text":"{text}"}}]}},"lastChunk":true}}}}}}"#
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
