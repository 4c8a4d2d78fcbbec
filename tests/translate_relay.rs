//! Translation between clients and agents of different A2A versions: golden pairs, and promises
//! that hold for any input.
//!
//! Each file under `tests/golden/relay/request/` is a request of a client and its form in every
//! other version; each file under `answer/` holds the answers of an agent, a line each, and their
//! form for clients of the other versions. `UPDATE=1` rewrites expectations.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs};

use mcp_a2a_gateway::a2a::Dialect::{self, V0_1, V0_3, V1};
use mcp_a2a_gateway::a2a::translate::{
    AgentResponse, ClientRequest, IdKind, Operation, ResponseTranslator, RpcError,
};
use proptest::prelude::*;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

const DIVIDER: &str = "\n----\n";
const ALL: [Dialect; 3] = [V0_1, V0_3, V1];

#[test]
fn golden_pairs_hold() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/relay");
    let (mut seen, mut wrong) = (0, Vec::new());
    for (folder, translate) in [("request", request as fn(&str) -> String), ("answer", answer)] {
        let mut cases: Vec<_> =
            fs::read_dir(root.join(folder)).unwrap().map(|case| case.unwrap().path()).collect();
        cases.sort();
        for case in cases {
            seen += 1;
            let text = fs::read_to_string(&case).unwrap();
            let (given, expected) = text.split_once(DIVIDER).unwrap_or((text.trim_end(), ""));
            let found = translate(given);
            if found.trim_end() == expected.trim_end() {
                continue;
            }
            if env::var_os("UPDATE").is_some() {
                fs::write(&case, format!("{given}{DIVIDER}{}\n", found.trim_end())).unwrap();
            } else {
                wrong.push(format!("{}\nexpected:\n{expected}\nfound:\n{found}", case.display()));
            }
        }
    }
    assert!(seen > 25, "only {seen} golden pairs found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The version and the method of the first line, and what follows.
fn headed(given: &str) -> (Dialect, Operation, &str) {
    let (head, rest) = given.split_once('\n').unwrap();
    let (version, method) = head.split_once(' ').unwrap();
    let (_, operation) = Operation::of(method, Some(version)).unwrap().unwrap();
    (ALL.into_iter().find(|dialect| dialect.version() == version).unwrap(), operation, rest)
}

fn request(given: &str) -> String {
    let (from, operation, json) = headed(given);
    let params: Box<RawValue> = serde_json::from_str(json).unwrap();
    let mut out = String::new();
    for to in ALL.into_iter().filter(|to| *to != from) {
        let Some(name) = operation.name(to) else {
            writeln!(out, "{} has no such thing", to.version()).unwrap();
            continue;
        };
        match ClientRequest::read(from, operation, Some(&params)) {
            Err(error) => writeln!(out, "{error}").unwrap(),
            Ok(mut request) => {
                let mut made = 0;
                request.generate_missing_ids(to, || {
                    made += 1;
                    format!("made-{made}")
                });
                let shown = |kind: IdKind, id: &mut String| {
                    id.push_str(match kind {
                        IdKind::Task => "-T",
                        IdKind::Reference => "-R",
                        IdKind::Context => "-C",
                    });
                    Ok::<_, ()>(())
                };
                request.ids_mut(shown).unwrap();
                let written = String::from_utf8(request.write(to, Some("acme"))).unwrap();
                writeln!(out, "{} {name}\n{written}", to.version()).unwrap();
            }
        }
    }
    out
}

/// The least that a client says to hear an answer.
fn asked(dialect: Dialect, operation: Operation) -> ClientRequest {
    let message = json!({"messageId": "m", "role": "user", "parts": [{"text": "x"}]});
    let params = match (dialect, operation) {
        (V0_1, Operation::Send | Operation::Stream) => {
            json!({"id": "mine", "sessionId": "ours", "message": message})
        }
        (_, Operation::Send | Operation::Stream) => json!({ "message": message }),
        _ => json!({"id": "mine", "taskId": "mine", "pushNotificationConfig": {"url": "u"}, "url": "u"}),
    };
    ClientRequest::read(dialect, operation, Some(&to_raw_value(&params).unwrap())).unwrap()
}

fn answer(given: &str) -> String {
    let (from, operation, lines) = headed(given);
    let mut out = String::new();
    for to in ALL.into_iter().filter(|to| *to != from && operation.name(*to).is_some()) {
        writeln!(out, "{}", to.version()).unwrap();
        let request = asked(to, operation);
        let mut telling = ResponseTranslator::new(to, &request);
        if from == V0_1 {
            telling.names(IdKind::Context, "c".to_owned());
        }
        for line in lines.lines() {
            out.push_str(&heard(
                AgentResponse::read(from, operation, line.as_bytes()),
                &mut telling,
                to,
                operation,
            ));
        }
    }
    out
}

fn heard(
    answer: Result<AgentResponse, mcp_a2a_gateway::a2a::AgentError>,
    telling: &mut ResponseTranslator,
    to: Dialect,
    operation: Operation,
) -> String {
    let said = answer.and_then(|answer| {
        let ends = if operation.is_stream() && answer.is_final() { "end\n" } else { "" };
        let told = if operation.is_stream() { telling.events(answer) } else { vec![telling.result(answer)?] };
        let lines = told.into_iter().map(|json| String::from_utf8(json).unwrap() + "\n");
        Ok(lines.collect::<String>() + ends)
    });
    said.unwrap_or_else(|error| {
        let RpcError { code, message, data } = RpcError::of(&error, to);
        format!("{code} {message} {}\n", data.map_or(String::new(), |data| data.get().to_owned()))
    })
}

#[test]
fn continued_task_keeps_conversation() {
    let params =
        json!({"message": {"messageId": "m", "role": "user", "parts": [{"text": "x"}], "taskId": "t"}});
    let mut request =
        ClientRequest::read(V1, Operation::Send, Some(&to_raw_value(&params).unwrap())).unwrap();
    request.generate_missing_ids(V0_1, || "made".to_owned());
    assert_eq!((request.task_id(), request.context_id()), (Some("t"), None));
    request.drop_client_ids(true, false);
    assert_eq!(request.task_id(), None);
}

/// A part of 1.0 that 0.3 can tell.
fn part() -> impl Strategy<Value = Value> {
    let content = prop_oneof![
        any::<String>().prop_map(|text| json!({"text": text})),
        Just(json!({"raw": "AAAA"})),
        Just(json!({"url": "https://a.test/"})),
        Just(json!({"data": null})),
        any::<i64>().prop_map(|number| json!({"data": [number, {"value": 1}]})),
        Just(json!({"data": {"value": {"b": 1, "a": 2}}})),
    ];
    let described = prop_oneof![
        Just(json!({})),
        Just(json!({"filename": "f\"é"})),
        Just(json!({"filename": "f", "mediaType": "a/b"})),
        Just(json!({"mediaType": "a/b", "metadata": {"k": [1, null], "name": "filename"}})),
        Just(json!({"metadata": {"k": 1e2}})),
    ];
    (content, described).prop_map(|(content, described)| {
        let mut part = content.as_object().unwrap().clone();
        part.extend(described.as_object().unwrap().clone());
        Value::from(part)
    })
}

fn message() -> impl Strategy<Value = Value> {
    (prop::collection::vec(part(), 0..4), "[a-z]{1,3}", prop::sample::select(vec!["ROLE_USER", "ROLE_AGENT"]))
        .prop_map(|(parts, id, role)| {
            json!({"messageId": id, "role": role, "parts": parts, "taskId": "t", "contextId": "c",
                   "referenceTaskIds": ["r"], "extensions": ["urn:x"], "metadata": {"k": [1]}})
        })
}

fn status() -> impl Strategy<Value = Value> {
    let states = [
        "SUBMITTED",
        "WORKING",
        "COMPLETED",
        "FAILED",
        "CANCELED",
        "INPUT_REQUIRED",
        "REJECTED",
        "AUTH_REQUIRED",
    ];
    (prop::sample::select(states.to_vec()), message()).prop_map(|(state, message)| {
        json!({"state": format!("TASK_STATE_{state}"), "message": message, "timestamp": "2026-01-01T00:00:00Z"})
    })
}

fn artifact() -> impl Strategy<Value = Value> {
    (prop::collection::vec(part(), 0..4), "[ab]{1,2}").prop_map(|(parts, id)| {
        json!({"artifactId": id, "name": "n", "description": "d", "parts": parts, "extensions": ["urn:y"], "metadata": {"x": 1}})
    })
}

/// An event of 1.0 with all that 0.3 can tell.
fn event() -> impl Strategy<Value = Value> {
    let history = prop::collection::vec(message(), 1..3);
    let task = (status(), prop::collection::vec(artifact(), 1..3), history).prop_map(|(status, artifacts, history)| {
        json!({"task": {"id": "t", "contextId": "c", "status": status, "artifacts": artifacts, "history": history, "metadata": {"m": 1}}})
    });
    prop_oneof![
        task,
        message().prop_map(|message| json!({"message": message})),
        status().prop_map(|status| {
            json!({"statusUpdate": {"taskId": "t", "contextId": "c", "status": status, "metadata": {"m": 1}}})
        }),
        artifact().prop_map(|artifact| {
            json!({"artifactUpdate": {"taskId": "t", "contextId": "c", "artifact": artifact, "append": true, "lastChunk": true, "metadata": {"m": 1}}})
        }),
    ]
}

/// One event, as a client of `to` gets it.
fn relayed(from: Dialect, to: Dialect, event: &Value) -> Value {
    let json = json!({"jsonrpc": "2.0", "id": 1, "result": event}).to_string();
    let mut telling = ResponseTranslator::new(to, &asked(to, Operation::Subscribe));
    let told = telling.events(AgentResponse::read(from, Operation::Subscribe, json.as_bytes()).unwrap());
    serde_json::from_slice(told.first().unwrap()).unwrap()
}

/// Any JSON with members that mean something.
fn any_json() -> impl Strategy<Value = Value> {
    const KNOWN: &[&str] = &[
        "jsonrpc",
        "result",
        "error",
        "code",
        "message",
        "task",
        "statusUpdate",
        "artifactUpdate",
        "kind",
        "id",
        "taskId",
        "contextId",
        "sessionId",
        "status",
        "state",
        "timestamp",
        "artifacts",
        "history",
        "artifact",
        "append",
        "final",
        "index",
        "messageId",
        "role",
        "parts",
        "text",
        "data",
        "file",
        "metadata",
        "configs",
        "configuration",
        "pushNotificationConfig",
        "authentication",
        "schemes",
        "scheme",
        "url",
        "historyLength",
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        prop::sample::select(vec!["user", "working", "completed", "2026-01-01T", "x"]).prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 48, 6, |inner| {
        let member = prop::sample::select(KNOWN).prop_map(str::to_owned);
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((member, inner), 0..7).prop_map(|members| members.into_iter().collect()),
        ]
    })
}

proptest! {
    #[test]
    fn content_of_0_3_survives_round_trip(event in event()) {
        let there = relayed(V1, V0_3, &event);
        prop_assert!(there.get("kind").is_some());
        prop_assert_eq!(relayed(V0_3, V1, &there), event);
    }

    #[test]
    fn message_of_1_0_arrives_whole(message in message()) {
        let given = json!({"message": message, "metadata": {"m": 1}, "configuration": {"acceptedOutputModes": ["a/b"],
            "historyLength": 3, "returnImmediately": true, "taskPushNotificationConfig": {"id": "i", "url": "u",
            "token": "t", "authentication": {"scheme": "Bearer", "credentials": "c"}}}});
        if message["parts"].as_array().unwrap().is_empty() {
            return Ok(());
        }
        let request = |from, json: &Value| ClientRequest::read(from, Operation::Send, Some(&to_raw_value(json).unwrap())).unwrap();
        let there: Value = serde_json::from_slice(&request(V1, &given).write(V0_3, None)).unwrap();
        let back: Value = serde_json::from_slice(&request(V0_3, &there).write(V1, None)).unwrap();
        prop_assert_eq!(back, given);
    }

    #[test]
    fn json_gives_json_without_panic(value in any_json(), wrap: bool) {
        let value = if wrap { json!({ "jsonrpc": "2.0", "result": value }) } else { value };
        let raw = to_raw_value(&value).unwrap();
        for (from, to) in ALL.into_iter().flat_map(|from| ALL.map(|to| (from, to))) {
            for operation in Operation::ALL {
                if let Ok(request) = ClientRequest::read(from, operation, Some(&raw)) {
                    prop_assert!(serde_json::from_slice::<Value>(&request.write(to, None)).is_ok());
                }
                if operation.name(to).is_none() {
                    continue;
                }
                for events in [false, true] {
                    let Ok(answer) = AgentResponse::read(from, operation, raw.get().as_bytes()) else { continue };
                    let mut telling = ResponseTranslator::new(to, &asked(to, operation));
                    let told = if events { telling.events(answer) } else { telling.result(answer).into_iter().collect() };
                    for json in told {
                        prop_assert!(serde_json::from_slice::<Value>(&json).is_ok());
                    }
                }
            }
        }
    }
}
