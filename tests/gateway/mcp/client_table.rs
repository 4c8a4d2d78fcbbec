//! Limits of clients that are known by name: `calls.clients`, and what the gateway ships.

use serde_json::{Value, json};

use crate::kit::scene::{RAW_CONTEXT, RAW_TASK, Scene, TOOL, task_of, words};
use crate::support::payload::v1;
use crate::support::session::LEGACY;
use crate::support::{LegacySession, McpClient, Reply, Signal};

/// An agent that works until the signal.
fn works(scene: &Scene) -> Signal {
    let go = Signal::new();
    let wait = go.clone();
    scene.agent.on_send(move |_| {
        let stream = Reply::stream().event(v1::task(RAW_TASK, RAW_CONTEXT, "working")).wait(&wait);
        stream.event(v1::completed(RAW_TASK, RAW_CONTEXT, "la"))
    });
    go
}

/// The result of a modern call by a client of this name.
async fn called_as(client: &McpClient, name: &str) -> Value {
    let info = json!({ "io.modelcontextprotocol/clientInfo": { "name": name, "version": "1" } });
    let call = json!({ "name": TOOL, "arguments": { "text": "sing" }, "_meta": info });
    client.modern("tools/call", call).await.result().await
}

/// A session of a client of this name.
async fn session_of(client: &McpClient, name: &str) -> LegacySession {
    client.named(name).legacy().await
}

/// The stream opens after the limit of the table, so that of the URL is in force.
#[tokio::test]
async fn url_beats_table_beats_default() {
    let scene =
        Scene::tuned("calls: { stream_after: 300ms, clients: { quick: { budget: 100ms, rounds: on } } }")
            .await;
    let go = works(&scene);
    // Rounds of the table, without a capability; those of the URL go before.
    let client = scene.gateway.client();
    let result = called_as(&client, "quick").await;
    assert_eq!(result["resultType"], "input_required", "{result}");
    let result = called_as(&client.at("/mcp?rounds=off"), "quick").await;
    task_of(&result);
    let session = session_of(&client.at("/mcp?budget=1h"), "quick").await;
    let waiting = session.call_tool(TOOL, json!({ "text": "sing" })).await;
    assert!(waiting.is_stream(), "100 ms were over before there was a stream");
    go.open();
    assert_eq!(words(&waiting.result().await), "la");
}

/// Rounds break openai-agents, even if its host declares elicitation.
#[tokio::test]
async fn measured_hosts_are_known_by_default() {
    let scene = Scene::tuned(
        "calls: { round_timeout: 1s, stream_after: 1s, clients: { agno: { rounds: on, budget: 1s } } }",
    )
    .await;
    let _go = works(&scene);
    let client = scene.gateway.client().capabilities(json!({ "elicitation": {} }));
    let began = std::time::Instant::now();
    task_of(&called_as(&client, "openai-agents-python").await);
    assert!(began.elapsed().as_secs() < 5, "it gives a call up after 5 s: {:?}", began.elapsed());
    // Replaced, with the names of the shipped entry.
    let result = called_as(&client, "agno-mcp").await;
    assert_eq!(result["resultType"], "input_required", "{result}");
}

/// An entry that gives no limit takes the shipped one out.
#[tokio::test]
async fn shipped_entry_can_be_removed() {
    let scene =
        Scene::tuned("calls: { round_timeout: 1s, stream_after: 1s, clients: { openai-agents: {} } }").await;
    let _go = works(&scene);
    let client = scene.gateway.client().capabilities(json!({ "elicitation": {} }));
    let result = called_as(&client, "openai-agents").await;
    assert_eq!(result["resultType"], "input_required", "{result}");
}

/// Names are for comfort: a strange one never costs a request.
#[tokio::test]
async fn strange_names_are_ignored() {
    let scene = Scene::new().await;
    scene.agent.on_send(|_| Reply::events([v1::message("la")]));
    let client = scene.gateway.client();
    let strange =
        [json!(7), json!([]), json!({ "name": 7 }), json!({ "name": "é".repeat(5000) }), Value::Null];
    for info in strange {
        let meta = json!({ "io.modelcontextprotocol/clientInfo": info });
        let call = json!({ "name": TOOL, "arguments": { "text": "x" }, "_meta": meta });
        let result = client.modern("tools/call", call).await.result().await;
        assert_eq!(words(&result), "la", "{info}");
        let params = json!({ "protocolVersion": LEGACY, "capabilities": {}, "clientInfo": info });
        let answer = client.post(&client.request("initialize", &params), &[]).await;
        assert_eq!(answer.result().await["protocolVersion"], LEGACY, "{info}");
    }
}
