//! Defaults where the file is silent, and the same defaults in the manual.

use std::time::Duration;

use mcp_a2a_gateway::config::{
    Agent, Background, Calls, Cards, Limits, Log, Mcp, OnDecline, Push, Services, Sessions, Settings,
    Shutdown, StreamTimeout, Streams, TaskMode, Tasks, schema,
};
use serde_json::{Map, Value, json};

use super::desk::{BASE, settings};

#[test]
fn smallest_file_has_every_default() {
    let settings = settings(BASE);
    assert_eq!(settings.public_url, None);
    assert_eq!(settings.listeners.len(), 1);
    assert_eq!(settings.listeners[0].address.to_string(), "127.0.0.1:8080");
    assert_eq!(
        settings.listeners[0].serve,
        Services { mcp: true, a2a: false, grpc: true, health: true, push: false }
    );
    assert!(settings.listeners[0].tls.is_none() && settings.admin.is_none() && settings.seal_keys.is_empty());
    let expected = Settings {
        listeners: settings.listeners.clone(),
        ..Settings::new(vec![Agent::new("a", "http://a/")])
    };
    assert_eq!(format!("{settings:?}"), format!("{expected:?}"));
}

#[test]
fn defaults_are_these() {
    let seconds = Duration::from_secs;
    let cards = Cards { min_refresh: seconds(30), max_refresh: seconds(3600), retry: seconds(1) };
    assert_eq!(Cards::default(), cards);
    assert_eq!(Sessions::default(), Sessions { ttl: seconds(30 * 86_400), max_cached: 10_000 });
    assert_eq!(Shutdown::default(), Shutdown { grace: seconds(5), drain: seconds(20) });
    assert_eq!((Mcp::default().page_size, Mcp::default().list_ttl), (100, seconds(60)));
    assert!(Mcp::default().subagent_tools && Mcp::default().find_agent);
    assert_eq!(Log::default().level, "info");
    let limits = Limits::default();
    assert_eq!(
        [limits.body, limits.response, limits.event, limits.artifacts],
        [4, 16, 4, 16].map(|mib| mib << 20)
    );
    assert_eq!([limits.depth, limits.batch, limits.streams], [64, 32, 1024]);
    let waits = [limits.header_read, limits.body_read, limits.write_stall, limits.keep_alive];
    assert_eq!(waits, [10, 30, 30, 75].map(seconds));
    let agent = Agent::new("a", "http://a/");
    assert_eq!((agent.streaming, agent.push, agent.task_of("any")), (true, true, TaskMode::Optional));
    let timeouts = agent.timeouts;
    let waits = [timeouts.connect, timeouts.first_byte, timeouts.idle, timeouts.total];
    assert_eq!(waits, [5, 120, 120, 3600].map(seconds));
}

#[test]
fn task_defaults_are_these() {
    let seconds = Duration::from_secs;
    let calls = Calls::default();
    let waits = [
        calls.budget,
        calls.stream_after,
        calls.keep_alive,
        calls.task_after,
        calls.round_timeout,
        calls.round_grace,
    ];
    assert_eq!(waits, [45, 10, 15, 2, 40, 60].map(seconds));
    assert_eq!(
        (calls.max_rounds, calls.stream_timeout, calls.on_decline),
        (7, StreamTimeout::Budget, OnDecline::Keep)
    );
    assert_eq!(calls.cancel_grace.as_secs(), 10);
    let clients = calls.clients.iter().map(|client| (client.name.as_str(), client.budget.unwrap().as_secs()));
    let known = [("agno", 8), ("haystack", 25), ("llama-index", 25), ("openai-agents", 4)];
    assert_eq!(clients.collect::<Vec<_>>(), known);
    assert!(calls.clients.iter().all(|client| client.rounds == Some(false)));
    let tasks = Tasks::default();
    assert_eq!([tasks.ttl, tasks.sweep_interval, tasks.poll_interval], [86_400, 300, 2].map(seconds));
    assert_eq!([tasks.max, tasks.max_bytes, tasks.keep_artifacts], [100_000, 256 << 20, 1 << 20]);
    assert_eq!(tasks.data_dir, None);
    let streams = Streams::default();
    assert_eq!([streams.idle_timeout, streams.retry_base, streams.retry_max], [30, 1, 30].map(seconds));
    assert_eq!(streams.max_attempts, 0);
    assert_eq!(Background::default(), Background { max: 1000, lifetime: seconds(3600) });
    assert_eq!(Push::default(), Push { enabled: false });
}

#[test]
fn admin_without_address_is_on_loopback() {
    for text in ["admin:\n", "admin: {}\n", "admin: { address: '127.0.0.1:9090' }\n"] {
        let settings = settings(&format!("{BASE}{text}"));
        assert_eq!(settings.admin.unwrap().address.to_string(), "127.0.0.1:9090", "{text}");
    }
}

#[test]
fn empty_sections_have_defaults() {
    let text = format!("{BASE}mcp:\ncalls:\ncards: {{}}\nlimits:\nlog:\n");
    assert_eq!(format!("{:?}", settings(&text)), format!("{:?}", settings(BASE)));
}

#[test]
fn defaults_in_manual_are_real() {
    let schema: Value = serde_json::from_str(&schema()).unwrap();
    let mut written = defaults(&schema, &schema);
    let sections = schema["properties"].as_object().unwrap();
    for (key, section) in sections {
        let below = defaults(&schema, resolve(&schema, section));
        if !below.is_empty()
            && !["admin", "health", "tracing", "state", "agent_defaults"].contains(&key.as_str())
        {
            written.insert(key.clone(), Value::Object(below));
        }
    }
    let agent = &schema["$defs"]["Agent"];
    let mut one = defaults(&schema, agent);
    one.insert("card".into(), json!("http://a/"));
    one.insert("timeouts".into(), Value::Object(defaults(&schema, &schema["$defs"]["AgentTimeouts"])));
    written.insert("agents".into(), json!({ "a": one }));
    let mut listener = defaults(&schema, &schema["$defs"]["Listener"]);
    listener.insert("address".into(), json!("127.0.0.1:8080"));
    written.insert("listeners".into(), json!([listener]));
    assert!(written.len() >= 10, "{written:?}");
    let text = serde_json::to_string_pretty(&written).unwrap();
    assert_eq!(format!("{:?}", settings(&text)), format!("{:?}", settings(BASE)));
}

fn resolve<'a>(schema: &'a Value, at: &'a Value) -> &'a Value {
    let name = at["$ref"].as_str().and_then(|reference| reference.strip_prefix("#/$defs/"));
    name.map_or(at, |name| &schema["$defs"][name])
}

/// The keys of a section with the defaults that its documentation names.
fn defaults(schema: &Value, section: &Value) -> Map<String, Value> {
    let keys = resolve(schema, section)["properties"].as_object().cloned().unwrap_or_default();
    keys.into_iter().filter_map(|(key, value)| Some((key, value.get("default")?.clone()))).collect()
}
