//! Limits of clients that say nothing of them in the protocol stand in the URL of their endpoint.

use serde_json::{Value, json};

use crate::kit::scene::{RAW_CONTEXT, RAW_TASK, Scene, TOOL, task_of};
use crate::support::payload::v1;
use crate::support::{McpClient, Reply, Signal};

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

async fn called(client: &McpClient) -> Value {
    let call = json!({ "name": TOOL, "arguments": { "text": "sing" } });
    client.modern("tools/call", call).await.result().await
}

#[tokio::test]
async fn budget_in_url_gives_handle_in_time() {
    let scene = Scene::new().await;
    let _go = works(&scene);
    let client = scene.gateway.client().at("/mcp?budget=300ms");
    let task = task_of(&called(&client).await);
    let wait = json!({ "name": "subagent_wait", "arguments": { "taskId": task } });
    task_of(&client.modern("tools/call", wait).await.result().await);
    let session = client.legacy().await;
    task_of(&session.call_tool(TOOL, json!({ "text": "sing" })).await.result().await);
}
