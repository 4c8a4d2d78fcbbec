//! Cancelling, in both directions: the cancellations that reach the agent, their time, and those
//! that never do.

use serde_json::{Value, json};

use crate::kit::scene::{RAW_CONTEXT, RAW_TASK, Scene, TOOL, words};
use crate::support::payload::{v0_3, v1};
use crate::support::{Answer, Card, LegacySession, Log, Reply, Signal, TestGateway, in_time};

const RAW: (&str, &str) = (RAW_TASK, RAW_CONTEXT);
const SEND: &str = "SendStreamingMessage";
/// No grace for the tasks of cancelled calls (see `cancel_grace`).
const AT_ONCE: &str = "calls: { cancel_grace: 0s }";

fn canceled() -> Reply {
    Reply::result(v1::bare_task(RAW_TASK, RAW_CONTEXT, "canceled"))
}

/// An agent that names its task only at the first signal, and completes it at the second.
fn names_late(scene: &Scene) -> (Signal, Signal) {
    let (name, go) = (Signal::new(), Signal::new());
    let named = Reply::stream().wait(&name).event(v1::task(RAW_TASK, RAW_CONTEXT, "working")).wait(&go);
    let whole = named.event(v1::completed(RAW_TASK, RAW_CONTEXT, "the song"));
    scene.agent.on_send(move |_| whole.clone());
    scene.agent.on_get(|_| Reply::result(v1::bare_task(RAW_TASK, RAW_CONTEXT, "working")));
    scene.agent.on_cancel(|_| canceled());
    (name, go)
}

/// A call under this id with an open stream.
async fn calling(session: &LegacySession, id: &str) -> Answer {
    calling_with(session, id, json!({ "text": "x" })).await
}

async fn calling_with(session: &LegacySession, id: &str, arguments: Value) -> Answer {
    let params = json!({ "name": TOOL, "arguments": arguments });
    let body = json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params });
    let answer = session.post(&body).await;
    assert!(answer.is_stream());
    answer
}

async fn cancel(session: &LegacySession, id: &str) {
    session.notify("notifications/cancelled", json!({ "requestId": id, "reason": "enough" })).await;
}

/// The stream ends, and there is no answer on it.
async fn ends_without_an_answer(mut answer: Answer) {
    while let Some(event) = answer.next_event().await {
        assert!(event.json().get("id").is_none(), "an answer to a cancelled request: {event:?}");
    }
}

/// The agent's stream of this call was listened to until it ended.
fn is_heard_out(log: &Log) -> bool {
    log.calls(SEND).iter().all(|call| log.answered.contains(&call.number))
}

/// Waits until nothing is done in the background any more.
async fn quiet(gateway: &TestGateway) {
    let is_busy = async || !gateway.metrics().await.contains("mcp_a2a_gateway_background_exchanges 0");
    in_time("the end of all background work", async { while is_busy().await {} }).await;
}

#[tokio::test]
async fn every_agent_version_is_stopped() {
    let cases = [
        (Card::v1(), "CancelTask", v1::task(RAW_TASK, RAW_CONTEXT, "working")),
        (Card::v0_3(), "tasks/cancel", v0_3::task(RAW_TASK, RAW_CONTEXT, "working")),
    ];
    for (card, method, begun) in cases {
        let scene = Scene::of(card.skill("sing"), "", AT_ONCE).await;
        scene.agent.on_send(move |_| Reply::stream().event(begun.clone()).stall());
        let session = scene.session().await;
        let params = json!({ "name": TOOL, "arguments": { "text": "x" }, "_meta": { "progressToken": 1 } });
        let body = json!({ "jsonrpc": "2.0", "id": "c", "method": "tools/call", "params": params });
        let mut answer = session.post(&body).await;
        answer.next_message().await;
        let sent = scene.agent.requests().into_iter().find(|request| request.text() == "x").unwrap();
        cancel(&session, "c").await;
        let asked = scene.agent.wait_for_call(method).await;
        assert_eq!(asked.params()["id"], RAW_TASK, "{method}");
        ends_without_an_answer(answer).await;
        scene.agent.wait_for("the gateway to stop listening", |log| log.left.contains(&sent.number)).await;
    }
}

#[tokio::test]
async fn early_cancel_stops_named_call() {
    let scene = Scene::tuned("calls: { stream_after: 0s, cancel_grace: 0s }").await;
    let (name, _go) = names_late(&scene);
    let session = scene.session().await;
    let answer = calling(&session, "c").await;
    scene.agent.wait_for_call(SEND).await;
    cancel(&session, "c").await;
    ends_without_an_answer(answer).await;
    assert!(scene.agent.calls("CancelTask").is_empty(), "there is nothing to name yet");
    name.fire();
    assert_eq!(scene.agent.wait_for_call("CancelTask").await.params()["id"], RAW_TASK);
    quiet(&scene.gateway).await;
    assert_eq!(scene.agent.calls("CancelTask").len(), 1, "once");
}

#[tokio::test]
async fn early_cancel_stops_named_task() {
    for is_modern in [false, true] {
        let scene = Scene::tuned("calls: { budget: 1s, stream_after: 1s, task_after: 100ms }").await;
        let (name, _go) = names_late(&scene);
        let (session, client) = (scene.session().await, scene.gateway.client().with_tasks());
        let params = json!({ "name": TOOL, "arguments": { "text": "x" }, "task": {} });
        let task = if is_modern {
            client.modern("tools/call", params).await.result().await
        } else {
            session.call("tools/call", params).await.result().await["task"].clone()
        };
        let handle = task["taskId"].as_str().unwrap_or_else(|| panic!("{task}"));
        if is_modern {
            client.task("tasks/cancel", handle).await.result().await;
        } else {
            let answered = session.task("tasks/cancel", handle).await.result().await;
            assert_eq!(answered["status"], "cancelled", "{answered}");
        }
        assert!(scene.agent.calls("CancelTask").is_empty(), "there is nothing to name yet");
        name.fire();
        assert_eq!(scene.agent.wait_for_call("CancelTask").await.params()["id"], RAW_TASK);
        client.task_until(handle, "cancelled").await;
        session.task_until(handle, "cancelled").await;
        quiet(&scene.gateway).await;
        assert_eq!(scene.agent.calls("CancelTask").len(), 1, "once");
    }
}

#[tokio::test]
async fn unnamed_ended_work_is_not_cancelled() {
    let scene = Scene::tuned("calls: { stream_after: 0s, task_after: 100ms, cancel_grace: 0s }").await;
    let go = Signal::new();
    let whole = Reply::stream().wait(&go).event(v1::completed(RAW_TASK, RAW_CONTEXT, "the song"));
    scene.agent.on_send(move |_| whole.clone());
    let session = scene.session().await;
    // A call and a task.
    let answer = calling(&session, "c").await;
    scene.agent.wait_for_call(SEND).await;
    cancel(&session, "c").await;
    ends_without_an_answer(answer).await;
    let task = session.begin_task(TOOL, json!({ "text": "x" })).await;
    let handle = task["taskId"].as_str().unwrap();
    session.task("tasks/cancel", handle).await.result().await;
    go.open();
    scene.agent.wait_for("the end of both", |log| log.calls(SEND).len() == 2 && is_heard_out(log)).await;
    scene.gateway.client().with_tasks().task_until(handle, "completed").await;
    quiet(&scene.gateway).await;
    assert!(scene.agent.calls("CancelTask").is_empty(), "some agents rewrite what is over");
}

#[tokio::test]
async fn end_seen_elsewhere_is_not_cancelled() {
    let key = "seal_key: 0123456789abcdef0123456789abcdef";
    let scene = Scene::tuned(&format!("{key}\ncalls: {{ task_after: 0s }}")).await;
    let _go = scene.agent.works_for(RAW, "the song");
    let params = json!({ "name": TOOL, "arguments": { "text": "x" } });
    let task = scene.gateway.client().with_tasks().modern("tools/call", params).await.result().await;
    let handle = task["taskId"].as_str().unwrap();
    scene.agent.on_get(|_| Reply::result(v1::bare_completed(RAW_TASK, RAW_CONTEXT, "the song")));
    let other = TestGateway::start(|ports| {
        let (listeners, card) = (ports.listeners(), scene.agent.card_url());
        format!("{listeners}{key}\nagents:\n  bard:\n    card: {card}\n")
    })
    .await;
    let client = other.client().with_tasks();
    assert_eq!(client.task("tasks/cancel", handle).await.result().await["resultType"], "complete");
    let refused = other.client().legacy().await.task("tasks/cancel", handle).await;
    assert_eq!(refused.error_code().await, -32602);
    quiet(&other).await;
    assert!(scene.agent.calls("CancelTask").is_empty());
    assert_eq!(words(&client.task_until(handle, "completed").await["result"]), "the song");
}

#[tokio::test]
async fn task_survives_client_leaving_after_round() {
    let scene = Scene::tuned("calls: { stream_after: 100ms, round_timeout: 1s }").await;
    let go = scene.agent.works_for(RAW, "the song");
    let arguments = json!({ "text": "sing" });
    let client = scene.gateway.client().with_rounds();
    let call = json!({ "name": TOOL, "arguments": arguments });
    let first = client.modern("tools/call", call).await.result().await;
    let again = json!({ "name": TOOL, "arguments": arguments, "requestState": first["requestState"] });
    let round = client.modern("tools/call", again.clone()).await;
    assert!(round.is_stream(), "it waits");
    drop(round);
    // The gateway has noticed once no stream is open.
    let is_open = async || {
        let health = scene.gateway.client().at("/healthz").get(&[]).await.json().await;
        health["activeSse"] != 0
    };
    in_time("the client to be missed", async { while is_open().await {} }).await;
    go.fire();
    let log = scene.agent.wait_for("the end of its work", is_heard_out).await;
    assert!(log.calls("CancelTask").is_empty() && log.left.is_empty());
    let result = scene.gateway.client().modern("tools/call", again).await.result().await;
    assert_eq!(words(&result), "the song");
    assert_eq!(scene.agent.calls(SEND).len(), 1);
}

#[tokio::test]
async fn unstopping_agent_is_asked_once() {
    for refusal in [
        Reply::error(-32002, "Task cannot be canceled"),
        Reply::error(-32601, "Method not found"),
        Reply::status(500, ""),
    ] {
        let scene = Scene::tuned("calls: { stream_after: 0s, cancel_grace: 0s }").await;
        let _go = scene.agent.works_for(RAW, "the song");
        scene.agent.on_cancel(move |_| refusal.clone());
        let session = scene.session().await;
        let params = json!({ "name": TOOL, "arguments": { "text": "x" }, "_meta": { "progressToken": 1 } });
        let body = json!({ "jsonrpc": "2.0", "id": "c", "method": "tools/call", "params": params });
        let mut answer = session.post(&body).await;
        answer.next_message().await;
        cancel(&session, "c").await;
        ends_without_an_answer(answer).await;
        scene.agent.wait_for_call("CancelTask").await;
        quiet(&scene.gateway).await;
        assert_eq!(scene.agent.calls("CancelTask").len(), 1);
        assert_eq!(scene.agent.calls(SEND).len(), 1);
        // It goes on serving others.
        scene.agent.on_send(|_| Reply::events([v1::message("la")]));
        assert_eq!(words(&session.call_tool(TOOL, json!({ "text": "x" })).await.result().await), "la");
    }
}

#[tokio::test]
async fn unanswered_cancel_blocks_no_request() {
    let scene = Scene::tuned("calls: { task_after: 0s }").await;
    let go = scene.agent.works_for(RAW, "the song");
    scene.agent.on_cancel(|_| Reply::silence());
    let (session, client) = (scene.session().await, scene.gateway.client().with_tasks());
    let task = session.begin_task(TOOL, json!({ "text": "x" })).await;
    let handle = task["taskId"].as_str().unwrap();
    assert_eq!(client.task("tasks/cancel", handle).await.result().await["resultType"], "complete");
    assert_eq!(client.task("tasks/get", handle).await.result().await["status"], "working");
    assert_eq!(session.task("tasks/cancel", handle).await.result().await["status"], "cancelled");
    go.fire();
    assert_eq!(words(&client.task_until(handle, "completed").await["result"]), "the song");
    session.task_until(handle, "cancelled").await;
}

/// Some agents never end the stream of a task that was cancelled.
#[tokio::test]
async fn stream_of_cancelled_task_is_not_awaited() {
    let scene = Scene::tuned("calls: { task_after: 0s }").await;
    let _go = scene.agent.works_for(RAW, "the song");
    scene.agent.on_cancel(|_| canceled());
    let session = scene.session().await;
    let task = session.begin_task(TOOL, json!({ "text": "x" })).await;
    let handle = task["taskId"].as_str().unwrap();
    let cancelled = session.task("tasks/cancel", handle).await.result().await;
    assert_eq!(cancelled["status"], "cancelled");
    let number = scene.agent.calls(SEND)[0].number;
    scene.agent.wait_for("the gateway to let it go", |log| log.left.contains(&number)).await;
    quiet(&scene.gateway).await;
}

#[tokio::test]
async fn agent_that_stops_later_is_believed() {
    let scene = Scene::tuned("calls: { task_after: 0s }").await;
    let canceled = v1::status_update(RAW_TASK, RAW_CONTEXT, "canceled", Some("the lute is put away"));
    let go = scene.agent.works(RAW, [canceled]);
    scene.agent.on_cancel(|_| Reply::result(v1::bare_task(RAW_TASK, RAW_CONTEXT, "working")));
    let client = scene.gateway.client().with_tasks();
    let params = json!({ "name": TOOL, "arguments": { "text": "x" } });
    let task = client.modern("tools/call", params).await.result().await;
    let handle = task["taskId"].as_str().unwrap();
    client.task("tasks/cancel", handle).await.result().await;
    scene.agent.wait_for_call("CancelTask").await;
    assert_eq!(client.task("tasks/get", handle).await.result().await["status"], "working");
    go.fire();
    let seen = client.task_until(handle, "cancelled").await;
    assert!(seen["statusMessage"].as_str().is_some_and(|text| text.contains("put away")), "{seen}");
}
