//! A call that a client of a session cancels: its task lives on for `calls.cancel_grace`, and the
//! next call names it.
//!
//! Out of scope: cancelling at once, and what is not cancelled at all (see `cancelling` and
//! `client_leaves`).

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::kit::scene::{RAW_CONTEXT, Scene, TOOL, task_of, words};
use crate::support::payload::v1;
use crate::support::{Card, LegacySession, Log, Reply, Signal};

const CANCEL: &str = "CancelTask";

/// An agent with two skills. A text that begins with `long` is worked on until the signal, as the
/// task `raw-TEXT`; `data` gets data, and anything else a reply at once.
async fn scene_of(settings: &str) -> (Scene, Signal) {
    let scene = Scene::of(Card::v1().skill("sing").skill("dance"), "", settings).await;
    let go = Signal::new();
    let wait = go.clone();
    scene.agent.on_send(move |request| {
        let (id, text) = (format!("raw-{}", request.text()), request.text().to_owned());
        match text.as_str() {
            "data" => Reply::events([json!({ "message": {
                "messageId": "m", "role": "ROLE_AGENT", "parts": [{ "data": { "sung": true } }],
            } })]),
            long if long.starts_with("long") => {
                let begun = Reply::stream().event(v1::task(&id, RAW_CONTEXT, "working"));
                begun.wait(&wait).event(v1::completed(&id, RAW_CONTEXT, &format!("end of {long}")))
            }
            _ => Reply::events([v1::message("la")]),
        }
    });
    scene.agent.on_get(|request| {
        let id = request.params()["id"].as_str().unwrap().to_owned();
        Reply::result(v1::bare_task(&id, RAW_CONTEXT, "working"))
    });
    scene.agent.on_cancel(|request| {
        let id = request.params()["id"].as_str().unwrap().to_owned();
        Reply::result(v1::bare_task(&id, RAW_CONTEXT, "canceled"))
    });
    (scene, go)
}

/// A call that the agent works on, and that its client then cancels.
async fn cancelled(session: &LegacySession, tool: &str, text: &str) {
    let params = json!({ "name": tool, "arguments": { "text": text }, "_meta": { "progressToken": 1 } });
    let body = json!({ "jsonrpc": "2.0", "id": text, "method": "tools/call", "params": params });
    let mut answer = session.post(&body).await;
    answer.next_message().await;
    session.notify("notifications/cancelled", json!({ "requestId": text })).await;
    while let Some(event) = answer.next_event().await {
        assert!(event.json().get("id").is_none(), "an answer to a cancelled request: {event:?}");
    }
}

async fn called(session: &LegacySession, text: &str) -> Value {
    session.call_tool(TOOL, json!({ "text": text })).await.result().await
}

fn texts(result: &Value) -> Vec<&str> {
    result["content"].as_array().unwrap().iter().filter_map(|block| block["text"].as_str()).collect()
}

/// The sentences about earlier calls in a result.
fn told(result: &Value) -> Vec<&str> {
    texts(result).into_iter().filter(|text| text.contains("earlier call")).collect()
}

/// The handle that a sentence names.
fn handle_in(said: &str) -> String {
    let (_, rest) = said.split_once("as task \"").unwrap_or_else(|| panic!("no handle: {said}"));
    rest.split('"').next().unwrap().to_owned()
}

/// The ids of tasks that the agent was told to cancel.
fn stopped(log: &Log) -> Vec<String> {
    log.calls(CANCEL).iter().map(|call| call.params()["id"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn cancelled_call_ends_task_after_grace() {
    let (scene, _go) = scene_of("calls: { cancel_grace: 1s }").await;
    let session = scene.session().await;
    let since = Instant::now();
    cancelled(&session, TOOL, "long").await;
    assert_eq!(scene.agent.wait_for_call(CANCEL).await.params()["id"], "raw-long");
    assert!(since.elapsed() >= Duration::from_secs(1), "{:?}", since.elapsed());
    let number = scene.agent.calls("SendStreamingMessage")[0].number;
    scene.agent.wait_for("the gateway to stop listening", |log| log.left.contains(&number)).await;
    assert!(told(&called(&session, "x").await).is_empty(), "it is over");
}

/// That its grace is over is seen by the task of a later call in another session, which is
/// cancelled.
#[tokio::test]
async fn next_call_names_task_and_keeps_it() {
    let (scene, go) = scene_of("calls: { cancel_grace: 3s }").await;
    let (session, other) = (scene.session().await, scene.session().await);
    cancelled(&session, TOOL, "long").await;
    assert!(told(&called(&other, "x").await).is_empty(), "another session");
    let dance = session.call_tool("bard_dance", json!({ "text": "x" })).await.result().await;
    assert!(told(&dance).is_empty(), "another tool: {dance}");
    let next = called(&session, "x").await;
    assert_eq!(words(&next), "la");
    let [said] = told(&next)[..] else { panic!("{next}") };
    assert!(said.contains("still running") && said.contains("subagent_wait"), "{said}");
    assert!(told(&called(&session, "x").await).is_empty(), "once");
    cancelled(&other, TOOL, "long-later").await;
    scene.agent.wait_for_call(CANCEL).await;
    assert_eq!(stopped(&scene.agent.log()), ["raw-long-later"]);
    go.open();
    let wait = json!({ "taskId": handle_in(said) });
    let result = session.call_tool("subagent_wait", wait).await.result().await;
    assert!(words(&result).contains("end of long"), "{result}");
}

/// Some clients show their model `structuredContent` alone.
#[tokio::test]
async fn structured_content_names_task_too() {
    let (scene, _go) = scene_of("calls: { budget: 1s, stream_after: 1s }").await;
    let session = scene.session().await;
    cancelled(&session, TOOL, "long").await;
    let handle = called(&session, "long-again").await;
    let [said] = told(&handle)[..] else { panic!("{handle}") };
    let text = handle["structuredContent"]["text"].as_str().unwrap();
    assert!(text.contains(said) && text.contains("still working"), "{handle}");
    assert_ne!(task_of(&handle), handle_in(said));
    cancelled(&session, TOOL, "long").await;
    let data = called(&session, "data").await;
    let [said] = told(&data)[..] else { panic!("{data}") };
    assert_eq!(data["structuredContent"], json!({ "text": said, "data": [{ "sung": true }], "files": [] }));
}

/// A task that ended within the grace is not lost.
#[tokio::test]
async fn ended_task_is_named_as_ended() {
    let (scene, go) = scene_of("calls: { cancel_grace: 1h }").await;
    let session = scene.session().await;
    cancelled(&session, TOOL, "long").await;
    let counted = async |exchanges: u8| {
        let gauge = format!("mcp_a2a_gateway_background_exchanges {exchanges}");
        let all = async { while !scene.gateway.metrics().await.contains(&gauge) {} };
        crate::support::in_time("the exchange to begin or end", all).await;
    };
    // The exchange goes to the background before it can end there.
    counted(1).await;
    go.open();
    counted(0).await;
    let next = called(&session, "x").await;
    let [said] = told(&next)[..] else { panic!("{next}") };
    assert!(said.contains("has ended"), "{said}");
    let result =
        session.call_tool("subagent_wait", json!({ "taskId": handle_in(said) })).await.result().await;
    assert!(words(&result).contains("end of long"), "{result}");
}

#[tokio::test]
async fn subagent_start_lives_on_too() {
    let (scene, _go) = scene_of("calls: { stream_after: 0s, cancel_grace: 1h }").await;
    let name = Signal::new();
    let wait = name.clone();
    scene
        .agent
        .on_send(move |_| Reply::stream().wait(&wait).event(v1::task("raw", RAW_CONTEXT, "working")).stall());
    let session = scene.session().await;
    let start = json!({ "subagentUri": "a2a-agent://bard", "text": "x" });
    let params = json!({ "name": "subagent_start", "arguments": start });
    let body = json!({ "jsonrpc": "2.0", "id": "s", "method": "tools/call", "params": params });
    let mut answer = session.post(&body).await;
    scene.agent.wait_for_call("SendStreamingMessage").await;
    session.notify("notifications/cancelled", json!({ "requestId": "s" })).await;
    while answer.next_event().await.is_some() {}
    name.open();
    let next = session.call_tool("subagent_start", start).await.result().await;
    assert_eq!(told(&next).len(), 1, "{next}");
    assert!(scene.agent.calls(CANCEL).is_empty());
}

/// A session that cancels without end does not keep its agents busy.
#[tokio::test]
async fn oldest_task_of_session_gives_way() {
    let (scene, _go) = scene_of("calls: { cancel_grace: 1h }").await;
    let session = scene.session().await;
    for number in 1..=8 {
        // The name of another tool: each next call of the same tool would take the earlier ones
        // along.
        let tool = if number == 1 { "bard_dance" } else { TOOL };
        cancelled(&session, tool, &format!("long-{number}")).await;
    }
    assert!(scene.agent.calls(CANCEL).is_empty());
    cancelled(&session, TOOL, "long-9").await;
    scene.agent.wait_for_call(CANCEL).await;
    assert_eq!(stopped(&scene.agent.log()), ["raw-long-1"]);
}

#[tokio::test]
async fn end_of_process_ends_grace() {
    let (mut scene, _go) = scene_of("shutdown: { grace: 1s, drain: 3s }\ncalls: { cancel_grace: 1h }").await;
    let session = scene.session().await;
    cancelled(&session, TOOL, "long").await;
    assert!(scene.agent.calls(CANCEL).is_empty());
    let since = Instant::now();
    assert_eq!(scene.gateway.terminate().await, Some(0));
    assert_eq!(stopped(&scene.agent.log()), ["raw-long"]);
    assert!(since.elapsed() < Duration::from_secs(10), "{:?}", since.elapsed());
}
