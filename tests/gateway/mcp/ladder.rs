//! Calls that take longer than their client waits: each client gets the best form that it
//! understands.

use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::kit::scene::{RAW_CONTEXT, RAW_TASK, Scene, TOOL, words};
use crate::support::client::mirror;
use crate::support::payload::v1;
use crate::support::{Answer, Card, Reply, TestGateway};

const RAW: (&str, &str) = (RAW_TASK, RAW_CONTEXT);

/// The form that a call ended in.
fn form(response: &Value) -> String {
    if let Some(code) = response["error"]["code"].as_i64() {
        return code.to_string();
    }
    let result = &response["result"];
    let form = match result["resultType"].as_str() {
        Some("task") => "task",
        Some("input_required") => "round",
        _ if result["task"]["taskId"].is_string() => "core task",
        _ if result["content"].to_string().contains("taskId=") => "handle",
        _ => "result",
    };
    form.to_owned()
}

/// The answer to a call of a client that makes rounds.
async fn called(scene: &Scene, arguments: Value) -> Answer {
    let params = json!({ "name": TOOL, "arguments": arguments });
    scene.gateway.client().with_rounds().modern("tools/call", params).await
}

/// The call once more, with the state of its last round.
async fn round(scene: &Scene, arguments: &Value, state: &Value) -> Value {
    let params = json!({ "name": TOOL, "arguments": arguments, "requestState": state });
    scene.gateway.client().with_rounds().modern("tools/call", params).await.json().await
}

/// The state of a round, which has nothing else to say.
fn state_of(result: &Value) -> Value {
    assert_eq!(result["resultType"], "input_required", "{result}");
    assert!(result["requestState"].as_str().is_some_and(|state| !state.is_empty()), "{result}");
    for absent in ["inputRequests", "content", "taskId", "ttlMs", "structuredContent"] {
        assert_eq!(result.get(absent), None, "{result}");
    }
    assert!(!result.to_string().contains("raw-"), "{result}");
    result["requestState"].clone()
}

#[tokio::test]
async fn extension_client_gets_task_if_slow() {
    let scene = Scene::tuned("calls: { task_after: 100ms }").await;
    let go = scene.agent.works_for(RAW, "the song");
    let client = scene.gateway.client().with_tasks();
    // The capability of 2025-11-25 has no meaning here.
    let params = json!({ "name": TOOL, "arguments": { "text": "x" }, "task": { "ttl": 1 } });
    let task = client.modern("tools/call", params).await.result().await;
    assert_eq!((&task["resultType"], &task["status"]), (&json!("task"), &json!("working")), "{task}");
    for absent in ["task", "result", "error", "inputRequests", "requestState", "content"] {
        assert_eq!(task.get(absent), None, "{task}");
    }
    let handle = task["taskId"].as_str().unwrap();
    go.fire();
    let done = client.task_until(handle, "completed").await;
    assert_eq!(words(&done["result"]), "the song");
    assert_eq!(scene.agent.calls("SendStreamingMessage").len(), 1);
    assert!(scene.agent.calls("SubscribeToTask").is_empty(), "one stream per task");
}

#[tokio::test]
async fn rounds_last_until_result() {
    let scene = Scene::tuned("calls: { round_timeout: 1s, max_rounds: 9 }").await;
    let go = scene.agent.works_for(RAW, "the song");
    let arguments = json!({ "text": "sing" });
    let first = state_of(&called(&scene, arguments.clone()).await.result().await);
    let second = state_of(&round(&scene, &arguments, &first).await["result"]);
    assert_ne!(first, second, "each round has a state of its own");
    go.fire();
    let mut last = round(&scene, &arguments, &second).await;
    while form(&last) == "round" {
        last = round(&scene, &arguments, &state_of(&last["result"])).await;
    }
    assert_eq!(words(&last["result"]), "the song");
    assert_eq!(last["result"]["resultType"], "complete");
    // An answer that was lost on its way can be had again.
    assert_eq!(words(&round(&scene, &arguments, &first).await["result"]), "the song");
    let log = scene.agent.log();
    assert_eq!(log.calls("SendStreamingMessage").len() + log.calls("SubscribeToTask").len(), 1, "one stream");
}

#[tokio::test]
async fn round_belongs_to_its_call_alone() {
    let settings = "calls: { round_timeout: 300ms }\nseal_key: 0123456789abcdef0123456789abcdef";
    let scene = Scene::of(Card::v1().skill("sing").skill("dance"), "", settings).await;
    let go = scene.agent.works_for(RAW, "the song");
    let arguments = json!({ "text": "sing" });
    let state = state_of(&called(&scene, arguments.clone()).await.result().await);
    let text = state.as_str().unwrap().to_owned();
    let (head, tail) = text.split_at(text.len() / 2);
    let (letter, rest) = tail.split_at(1);
    let flipped = if letter == "A" { "B" } else { "A" };
    let handle = scene.gateway.client().with_tasks();
    let task =
        handle.modern("tools/call", json!({ "name": "bard_dance", "arguments": { "text": "x" } })).await;
    let task = task.result().await["taskId"].clone();
    for (what, name, arguments, state) in [
        ("other arguments", TOOL, json!({ "text": "Sing" }), state.clone()),
        ("more arguments", TOOL, json!({ "text": "sing", "data": 1 }), state.clone()),
        ("no arguments", TOOL, json!({}), state.clone()),
        ("another tool", "bard_dance", arguments.clone(), state.clone()),
        ("an appendix", TOOL, arguments.clone(), json!(format!("{text}-TAMPERED"))),
        ("a cut", TOOL, arguments.clone(), json!(head)),
        ("a flipped letter", TOOL, arguments.clone(), json!(format!("{head}{flipped}{rest}"))),
        ("nothing", TOOL, arguments.clone(), json!("")),
        ("made up", TOOL, arguments.clone(), json!("x".repeat(5000))),
        ("a handle", TOOL, arguments.clone(), task),
    ] {
        let params = json!({ "name": name, "arguments": arguments, "requestState": state });
        let refused = scene.gateway.client().with_rounds().modern("tools/call", params).await;
        assert_eq!((refused.status, refused.error_code().await), (200, -32602), "{what}");
    }
    let card = scene.agent.card_url();
    let other = TestGateway::start(|ports| {
        let listeners = ports.listeners();
        format!(
            "{listeners}agents:\n  bard:\n    card: {card}\nseal_key: another-key-another-key-another-key\n"
        )
    })
    .await;
    let params = json!({ "name": TOOL, "arguments": arguments, "requestState": state });
    assert_eq!(other.client().modern("tools/call", params).await.error_code().await, -32602, "another key");
    assert_eq!(scene.agent.calls("SendStreamingMessage").len(), 2, "nothing was sent for any of them");
    go.open();
    let mut last = round(&scene, &arguments, &state).await;
    while form(&last) == "round" {
        last = round(&scene, &arguments, &state_of(&last["result"])).await;
    }
    assert_eq!(words(&last["result"]), "the song", "and its own call goes on");
}

#[tokio::test]
async fn equivalent_arguments_are_same_call() {
    let scene = Scene::tuned("calls: { round_timeout: 300ms }").await;
    let _go = scene.agent.works_for(RAW, "the song");
    let state = called(&scene, json!({ "text": "sing", "data": { "a": 1, "b": "é" } })).await.result().await;
    let client = scene.gateway.client().with_rounds();
    let params = json!({ "name": TOOL, "arguments": 0, "requestState": state_of(&state) });
    let body = client.request("tools/call", &client.with_meta(params)).to_string();
    let written = r#""arguments": { "data" :{"b":"\u00e9", "a":1}, "text":"s\u0069ng" }"#;
    let body = body.replace(r#""arguments":0"#, written);
    assert!(body.contains(written));
    let name = mirror(TOOL);
    let headers = [
        ("Content-Type", "application/json"),
        ("Accept", "application/json, text/event-stream"),
        ("MCP-Protocol-Version", "2026-07-28"),
        ("Mcp-Method", "tools/call"),
        ("Mcp-Name", &name),
    ];
    state_of(&client.send("POST", &headers, body.into_bytes()).await.result().await);
    assert_eq!(scene.agent.calls("SendStreamingMessage").len(), 1);
}

#[tokio::test]
async fn task_support_decides_form() {
    let card = Card::v1().skill("must").skill("never").skill("sing");
    let own = "skills:\n  must: { task: required }\n  never: { task: never }";
    let settings = "calls: { budget: 1s, stream_after: 1s, task_after: 100ms, round_timeout: 100ms }";
    let scene = Scene::of(card, own, settings).await;
    scene.agent.on_send(|_| Reply::stream().event(v1::task(RAW_TASK, RAW_CONTEXT, "working")).stall());
    let client = scene.gateway.client().with_rounds();
    let mut calls = JoinSet::new();
    for (version, is_aware, forms) in [
        ("2026-07-28", true, ["task", "round", "task"]),
        ("2026-07-28", false, ["-32021", "round", "round"]),
        ("2025-11-25", true, ["core task", "-32601", "core task"]),
        ("2025-11-25", false, ["-32601", "handle", "handle"]),
        ("2025-06-18", true, ["handle", "handle", "handle"]),
        ("2025-06-18", false, ["handle", "handle", "handle"]),
    ] {
        for (tool, expected) in ["bard_must", "bard_never", "bard_sing"].into_iter().zip(forms) {
            let client = client.clone();
            calls.spawn(async move {
                let mut params = json!({ "name": tool, "arguments": { "text": "x" } });
                let answer = if version == "2026-07-28" {
                    let client = if is_aware { client.with_tasks() } else { client };
                    client.modern("tools/call", params).await
                } else {
                    if is_aware {
                        params["task"] = json!({ "ttl": 60_000 });
                    }
                    client.legacy_version(version).await.call("tools/call", params).await
                };
                let status = answer.status;
                let response = answer.json().await;
                assert_eq!(form(&response), expected, "{version} {is_aware} {tool}: {response}");
                if expected == "-32021" {
                    assert_eq!(status, 400);
                    let needed = &response["error"]["data"]["requiredCapabilities"]["extensions"];
                    assert_eq!(needed, &json!({ "io.modelcontextprotocol/tasks": {} }));
                } else {
                    assert_eq!(status, 200, "{version} {is_aware} {tool}");
                }
            });
        }
    }
    while let Some(done) = calls.join_next().await {
        done.unwrap();
    }
}

#[tokio::test]
async fn tools_tell_task_support_per_revision() {
    let card = Card::v1().skill("must").skill("never").skill("sing");
    let own = "task: never\nskills:\n  must: { task: required }\n  sing: { task: optional }";
    let scene = Scene::of(card, own, "").await;
    let ways = |list: &Value| -> Vec<Value> {
        let tools = list["tools"].as_array().unwrap().iter();
        let ours = tools.filter(|tool| tool["name"].as_str().unwrap().starts_with("bard_"));
        ours.map(|tool| tool["execution"].clone()).collect()
    };
    for version in ["2025-11-25", "2025-06-18"] {
        let session = scene.gateway.client().legacy_version(version).await;
        let list = session.call("tools/list", json!({})).await.result().await;
        let expected = match version {
            "2025-11-25" => {
                json!([{ "taskSupport": "required" }, null, { "taskSupport": "optional" }])
            }
            _ => json!([null, null, null]),
        };
        assert_eq!(Value::Array(ways(&list)), expected, "{version}");
    }
    let list = scene.gateway.client().with_tasks().modern("tools/list", json!({})).await.result().await;
    assert_eq!(Value::Array(ways(&list)), json!([null, null, null]));
}

#[tokio::test]
async fn batch_shares_one_budget() {
    let scene = Scene::tuned("calls: { budget: 1s, stream_after: 1s }").await;
    let go = scene.agent.works_for(RAW, "the song");
    let session = scene.gateway.client().legacy_version("2025-03-26").await;
    let call = |id: u64| {
        let params = json!({ "name": TOOL, "arguments": { "text": "x" }, "task": {} });
        json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params })
    };
    let answers = session.post(&json!([call(1), call(2)])).await.json().await;
    let answers = answers.as_array().expect("an array").clone();
    assert_eq!(answers.len(), 2);
    for answer in &answers {
        assert_eq!(form(answer), "handle", "{answer}");
        assert_eq!(answer["result"].get("structuredContent"), None, "not known to this revision");
    }
    let told = words(&answers[0]["result"]);
    let task = told.split_once("taskId=\"").and_then(|(_, rest)| rest.split('"').next()).expect("a handle");
    go.open();
    let result = session.call_tool(TOOL, json!({ "taskId": task })).await.result().await;
    assert_eq!(words(&result), "the song");
}
