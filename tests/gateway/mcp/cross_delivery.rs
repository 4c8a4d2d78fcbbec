//! Many clients at once, all with the same ids: each gets its own answer, and nothing of the
//! others'.

use serde_json::json;
use tokio::task::JoinSet;

use crate::kit::scene::{Scene, TOOL, words};
use crate::support::client::MODERN;
use crate::support::payload::v1;
use crate::support::{Reply, Request};

const CLIENTS: usize = 50;

/// Echoes over a task of its own, in several events.
fn echo(request: &Request) -> Reply {
    let text = request.text();
    let (task, context) = (format!("raw-{text}"), format!("raw-context-{text}"));
    let said = |what: &str| v1::status_update(&task, &context, "working", Some(what));
    Reply::events([
        v1::task(&task, &context, "working"),
        said(&format!("{text} begins")),
        v1::artifact_update(&task, &context, &text, false, false),
        v1::artifact_update(&task, &context, &format!(" and {text}"), true, true),
        v1::status_update(&task, &context, "completed", None),
    ])
}

/// TypeScript SDK CVE-2026-25536: equal ids of two clients swapped their answers. Here all use the
/// id 1.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_client_gets_its_own_answer() {
    let scene = Scene::new().await;
    scene.agent.on_send(echo);
    let mut calls = JoinSet::new();
    for number in 0..CLIENTS {
        let client = scene.gateway.client();
        calls.spawn(async move {
            let own = format!("client-{number}-");
            let session = if number % 2 == 0 { Some(client.legacy().await) } else { None };
            for round in 0..3 {
                let text = format!("{own}{round}");
                let params =
                    json!({ "name": TOOL, "arguments": { "text": text }, "_meta": { "progressToken": 1 } });
                let mut body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
                let answer = if let Some(session) = &session {
                    session.post(&body).await
                } else {
                    body["params"] = client.with_meta(params);
                    let headers =
                        [("MCP-Protocol-Version", MODERN), ("Mcp-Method", "tools/call"), ("Mcp-Name", TOOL)];
                    client.post(&body, &headers).await
                };
                let finished = answer.finish().await;
                assert_eq!(finished.response["id"], 1);
                assert_eq!(words(&finished.response["result"]), format!("{text} and {text}"));
                for note in &finished.notifications {
                    let message = note["params"]["message"].as_str().unwrap();
                    assert!(!message.contains("client-") || message.contains(&text), "{message} at {text}");
                }
            }
        });
    }
    while let Some(done) = calls.join_next().await {
        done.unwrap();
    }
    assert_eq!(scene.agent.calls("SendStreamingMessage").len(), CLIENTS * 3, "each message once");
}
