//! `state` within one process: in a file, which outlives a kill and belongs to one process; and in memory.

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::kit::quiz::{KEY, begun, called, first, gateway_before};
use crate::kit::scene::{RAW_CONTEXT, RAW_TASK, TOOL, task_of, words};
use crate::operations::seen::shows;
use crate::support::payload::v1;
use crate::support::{Card, Reply, ScriptedAgent, Signal, TestGateway};

const PRESENT: &str = "mcp_a2a_gateway_state_available 1";

fn settings(url: &str) -> String {
    format!(
        "calls: {{ budget: 1s, stream_after: 1s, max_rounds: 0 }}\nresources: {{ memory: {{}} }}\n{KEY}\nstate: {{ url: '{url}' }}"
    )
}

/// Stores a value in the memory bank.
async fn store(gateway: &TestGateway, value: &str) {
    let arguments = json!({ "namespace": "n", "key": "k", "value": value });
    let params = json!({ "name": "memory_store", "arguments": arguments });
    let stored = gateway.client().modern("tools/call", params).await.result().await;
    assert_eq!(stored["isError"], false, "{stored}");
}

/// The response with the value in the memory bank.
async fn stored(gateway: &TestGateway) -> Value {
    let params = json!({ "uri": "memory://data/n/k" });
    gateway.client().modern("resources/read", params).await.json().await
}

/// A finished task, an ended session and a stored value are there after a kill; the agent knows nothing of the task.
#[tokio::test]
async fn state_in_a_file_survives_a_kill() {
    let folder = TempDir::new().unwrap();
    let agent = ScriptedAgent::start(Card::v1().skill("sing")).await;
    let settings = settings(&format!("file:{}", folder.path().join("new/state.redb").display()));
    let gateway = gateway_before(&agent, &settings).await;
    shows(&gateway, PRESENT).await;
    let go = Signal::new();
    let wait = go.clone();
    agent.on_send(move |_| {
        let done = v1::status_update(RAW_TASK, RAW_CONTEXT, "completed", Some("the song"));
        Reply::stream().event(begun()).wait(&wait).event(done)
    });
    let task = task_of(&called(&gateway.client(), &first("sing")).await);
    let waiting = json!({ "name": TOOL, "arguments": { "taskId": task } });
    go.fire();
    assert_eq!(words(&called(&gateway.client(), &waiting).await), "the song");
    let (live, ended) = (gateway.client().legacy().await, gateway.client().legacy().await);
    assert_eq!(ended.delete().await.status, 204);
    store(&gateway, "kept").await;
    shows(&gateway, "mcp_a2a_gateway_state_waiting_rows 0").await;
    drop(gateway);

    agent.on_get(|_| Reply::error(-32001, "Task not found"));
    let gateway = gateway_before(&agent, &settings).await;
    shows(&gateway, PRESENT).await;
    assert_eq!(words(&called(&gateway.client(), &waiting).await), "the song");
    let found = stored(&gateway).await.to_string();
    assert!(found.contains("kept"), "{found}");
    let statuses = [
        live.stolen_by(&gateway.client()).call("ping", json!({})).await.status,
        ended.stolen_by(&gateway.client()).call("ping", json!({})).await.status,
    ];
    assert_eq!(statuses, [200, 404]);
    let file = std::fs::read(folder.path().join("new/state.redb")).unwrap();
    for secret in [b"the song".as_slice(), b"kept"] {
        assert!(!file.windows(secret.len()).any(|part| part == secret), "the file has it unsealed");
    }
}

/// A second process works alone while the first one has the file, and has it when that one has ended.
#[tokio::test]
async fn file_of_another_process_is_awaited() {
    let folder = TempDir::new().unwrap();
    let agent = ScriptedAgent::start(Card::v1().skill("sing")).await;
    let settings = settings(&format!("file:{}", folder.path().join("state.redb").display()));
    let first_process = gateway_before(&agent, &settings).await;
    shows(&first_process, PRESENT).await;
    let second_process = gateway_before(&agent, &settings).await;
    second_process.wait_for_output("belongs to another process that still runs").await;
    let ready = second_process.admin().at("/readyz").get(&[]).await;
    assert_eq!((ready.status, ready.json().await), (200, json!({ "ready": true, "degraded": ["state"] })));
    agent.on_send(|_| Reply::events([v1::completed(RAW_TASK, RAW_CONTEXT, "la")]));
    assert_eq!(words(&called(&second_process.client(), &first("sing")).await), "la");
    drop(first_process);
    shows(&second_process, PRESENT).await;
    second_process.wait_for_output("engine of shared state answers").await;
}

#[tokio::test]
async fn state_in_memory_ends_with_the_process() {
    let agent = ScriptedAgent::start(Card::v1().skill("sing")).await;
    let gateway = gateway_before(&agent, &settings("memory:")).await;
    shows(&gateway, PRESENT).await;
    agent.on_send(|_| Reply::stream().event(begun()).stall());
    let task = task_of(&called(&gateway.client(), &first("sing")).await);
    store(&gateway, "lost").await;
    shows(&gateway, "mcp_a2a_gateway_state_waiting_rows 0").await;
    drop(gateway);
    let gateway = gateway_before(&agent, &settings("memory:")).await;
    agent.on_get(|_| Reply::result(v1::bare_completed(RAW_TASK, RAW_CONTEXT, "la")));
    let waiting = json!({ "name": TOOL, "arguments": { "taskId": task } });
    assert_eq!(words(&called(&gateway.client(), &waiting).await), "la", "the agent knows the task");
    let found = stored(&gateway).await;
    assert!(found["error"].is_object(), "{found}");
}
