//! The client goes before its answer comes: a legacy one's work lives, a modern one's is stopped.

use serde_json::{Value, json};

use crate::kit::scene::{RAW_CONTEXT, RAW_TASK, Scene, TOOL, task_of, words};
use crate::support::payload::v1;
use crate::support::{Reply, Signal};

fn begun() -> Value {
    v1::task(RAW_TASK, RAW_CONTEXT, "working")
}

/// The agent works until the signal, then is done; a cancel is confirmed.
fn busy(scene: &Scene) -> Signal {
    let go = Signal::new();
    let wait = go.clone();
    scene.agent.on_send(move |_| {
        let stream = Reply::stream().event(begun()).wait(&wait);
        stream
            .event(v1::artifact_update(RAW_TASK, RAW_CONTEXT, "the song", false, true))
            .event(v1::status_update(RAW_TASK, RAW_CONTEXT, "completed", None))
    });
    scene.agent.on_cancel(|_| Reply::result(v1::bare_task(RAW_TASK, RAW_CONTEXT, "canceled")));
    go
}

/// The number of the first send in the agent's log.
fn first_send(scene: &Scene) -> usize {
    scene.agent.calls("SendStreamingMessage")[0].number
}

fn call(token: Value) -> Value {
    json!({ "name": TOOL, "arguments": { "text": "x" }, "_meta": { "progressToken": token } })
}

#[tokio::test]
async fn legacy_work_is_followed_to_its_end() {
    let scene = Scene::new().await;
    let go = busy(&scene);
    let mut answer = scene.session().await.call("tools/call", call(json!(1))).await;
    answer.next_message().await;
    drop(answer);
    let number = first_send(&scene);
    // Only after the client is known to have gone.
    let gone = async || scene.gateway.metrics().await.contains("mcp_a2a_gateway_background_exchanges 1");
    crate::support::in_time("the exchange to go on without its client", async { while !gone().await {} })
        .await;
    go.fire();
    let log = scene.agent.wait_for("the end of its stream", |log| log.answered.contains(&number)).await;
    assert!(!log.left.contains(&number), "the gateway left");
    assert!(log.calls("CancelTask").is_empty());
}

#[tokio::test]
async fn legacy_result_can_be_fetched_later() {
    let scene = Scene::tuned("calls: { budget: 1s, max_rounds: 0, stream_after: 1s }").await;
    let go = busy(&scene);
    let session = scene.session().await;
    let task = task_of(&session.call_tool(TOOL, json!({ "text": "x" })).await.result().await);
    // It waits, and leaves while it waits.
    let waiting = json!({ "name": TOOL, "arguments": { "taskId": task }, "_meta": { "progressToken": 1 } });
    let pending = tokio::spawn({
        let session = session.clone();
        async move { session.call("tools/call", waiting).await }
    });
    pending.abort();
    go.fire();
    let late = session.call_tool(TOOL, json!({ "taskId": task })).await.result().await;
    assert_eq!(words(&late), "the song");
    assert!(scene.agent.calls("CancelTask").is_empty());
}

#[tokio::test]
async fn modern_work_is_stopped() {
    let scene = Scene::new().await;
    let _go = busy(&scene);
    let mut answer = scene.call_with(json!({ "text": "x" }), json!({ "progressToken": 1 })).await;
    answer.next_message().await;
    drop(answer);
    let cancel = scene.agent.wait_for_call("CancelTask").await;
    assert_eq!(cancel.params()["id"], RAW_TASK);
    assert_eq!(cancel.header("a2a-version"), Some("1.0"));
    let number = first_send(&scene);
    scene.agent.wait_for("the gateway to stop listening", |log| log.left.contains(&number)).await;
}

#[tokio::test]
async fn late_or_unknown_cancel_is_harmless() {
    let scene = Scene::new().await;
    scene.agent.on_send(|_| Reply::events([v1::message("la")]));
    let session = scene.session().await;
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call(json!(1)) });
    session.post(&body).await.result().await;
    for params in
        [json!({ "requestId": 1 }), json!({ "requestId": "never" }), json!({}), json!({ "requestId": {} })]
    {
        let answer = session
            .post(&json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": params }))
            .await;
        assert!(matches!(answer.status, 202 | 400), "{params}: {}", answer.status);
        assert_eq!(answer.text().await, "", "an answer to a notification");
    }
    assert_eq!(words(&session.call_tool(TOOL, json!({ "text": "x" })).await.result().await), "la");
    assert!(scene.agent.calls("CancelTask").is_empty());
}

/// Nothing has been sent to it yet: the gateway has to look for itself whether it is still there.
#[tokio::test]
async fn early_leaving_client_is_noticed() {
    for is_modern in [true, false] {
        let scene = Scene::new().await;
        let go = busy(&scene);
        let client = scene.gateway.client();
        let body = client.request("tools/call", &json!({ "name": TOOL, "arguments": { "text": "x" } }));
        let call = tokio::spawn(async move {
            let params = json!({ "name": TOOL, "arguments": { "text": "x" } });
            if is_modern { client.modern("tools/call", params).await } else { client.post(&body, &[]).await }
        });
        scene.agent.wait_for_call("SendStreamingMessage").await;
        let number = first_send(&scene);
        call.abort();
        assert!(call.await.is_err(), "there was nothing to answer yet");
        if is_modern {
            scene.agent.wait_for_call("CancelTask").await;
        } else {
            let gone =
                async || scene.gateway.metrics().await.contains("mcp_a2a_gateway_background_exchanges 1");
            crate::support::in_time("the exchange to go on", async { while !gone().await {} }).await;
            go.fire();
            scene.agent.wait_for("its end", |log| log.answered.contains(&number)).await;
            assert!(scene.agent.calls("CancelTask").is_empty());
        }
    }
}
