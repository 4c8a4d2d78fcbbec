//! The environment variables of the reference implementation: used where the file says nothing, and
//! judged like it.

use std::time::Duration;

use super::desk::{BASE, Desk};

/// Each variable with a value.
const ALL: [(&str, &str); 7] = [
    ("TASK_TTL_MS", "61000"),
    ("TASK_CLEANUP_INTERVAL_MS", "62000"),
    ("DATA_DIR", "kept"),
    ("SSE_IDLE_TIMEOUT_MS", "63000"),
    ("SSE_RETRY_BASE_MS", "1500"),
    ("SSE_RETRY_MAX_MS", "64000"),
    ("SSE_MAX_ATTEMPTS", "65"),
];

fn desk(variables: &[(&str, &str)]) -> Desk {
    variables.iter().fold(Desk::new(), |desk, (name, value)| desk.variable(name, value))
}

#[test]
fn variable_replaces_missing_key() {
    let desk = desk(&ALL);
    let kept = desk.path("kept");
    let settings = desk.settings(BASE);
    let (tasks, streams) = (&settings.tasks, settings.streams);
    assert_eq!([tasks.ttl, tasks.sweep_interval], [61, 62].map(Duration::from_secs));
    assert_eq!(tasks.data_dir, Some(kept));
    let waits = [streams.idle_timeout, streams.retry_base, streams.retry_max];
    assert_eq!(waits, [63_000, 1500, 64_000].map(Duration::from_millis));
    assert_eq!(streams.max_attempts, 65);
}

#[test]
fn file_wins_over_variable() {
    let text = format!(
        "{BASE}tasks: {{ ttl: 2h, sweep_interval: 3m, data_dir: here }}\n\
         streams: {{ idle_timeout: 4s, retry_base: 5s, retry_max: 6s, max_attempts: 7 }}\n"
    );
    let alone = Desk::new().settings(&text);
    // A variable beside a key is not even looked at.
    for variables in [ALL, ALL.map(|(name, _)| (name, "nonsense"))] {
        let both = desk(&variables).settings(&text);
        assert_eq!(both.streams, alone.streams);
        assert_eq!(
            (both.tasks.ttl, both.tasks.sweep_interval),
            (alone.tasks.ttl, alone.tasks.sweep_interval)
        );
        assert!(both.tasks.data_dir.unwrap().ends_with("here"));
    }
}

#[test]
fn empty_variable_is_none() {
    let settings = desk(&ALL.map(|(name, _)| (name, ""))).settings(BASE);
    assert_eq!(format!("{settings:?}"), format!("{:?}", Desk::new().settings(BASE)));
}

#[test]
fn bad_value_is_problem_naming_variable() {
    for (name, value, expected) in [
        (
            "TASK_TTL_MS",
            "1h",
            "tasks.ttl: environment variable TASK_TTL_MS: is not a whole number of milliseconds",
        ),
        (
            "TASK_TTL_MS",
            "10",
            "tasks.ttl: environment variable TASK_TTL_MS: 10ms is out of bounds (from 1s to 366d)",
        ),
        (
            "TASK_CLEANUP_INTERVAL_MS",
            "-1",
            "tasks.sweep_interval: environment variable TASK_CLEANUP_INTERVAL_MS: is not a whole number of milliseconds",
        ),
        (
            "SSE_IDLE_TIMEOUT_MS",
            "0",
            "streams.idle_timeout: environment variable SSE_IDLE_TIMEOUT_MS: 0ms is out of bounds (from 10ms to 1d)",
        ),
        (
            "SSE_RETRY_BASE_MS",
            "60000",
            "streams.retry_base: environment variable SSE_RETRY_BASE_MS: retry_base (1m) is longer than retry_max (30s)",
        ),
        (
            "SSE_RETRY_MAX_MS",
            "1.5",
            "streams.retry_max: environment variable SSE_RETRY_MAX_MS: is not a whole number of milliseconds",
        ),
        (
            "SSE_MAX_ATTEMPTS",
            "Infinity",
            "streams.max_attempts: environment variable SSE_MAX_ATTEMPTS: is not a whole number of attempts",
        ),
        (
            "SSE_MAX_ATTEMPTS",
            "99999999",
            "streams.max_attempts: environment variable SSE_MAX_ATTEMPTS: 99999999 is out of bounds (from 0 to 1000000)",
        ),
        (
            "DATA_DIR",
            "gateway.yaml",
            "tasks.data_dir: environment variable DATA_DIR: gateway.yaml is not a folder",
        ),
    ] {
        let report = desk(&[(name, value)]).report(BASE);
        assert_eq!(report, format!("gateway.yaml: {expected}"), "{name}={value}");
    }
}
