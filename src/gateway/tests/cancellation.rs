//! Clients that cancel a call, or disconnect: what happens to the work.

use std::time::Duration;

use serde_json::{Value, json};

use super::{
    Exchange, RAW_TASK, TOOL, TestGateway, TestRequest, TestSession, assert_at, completed, message, pass,
    seconds, settle, words, working,
};
use crate::agents::ScriptedExchange;
use crate::telemetry::label::Outcome;

/// Begins a call in a session, which the client cancels after this time.
async fn cancelled(gateway: &TestGateway, session: &TestSession, after: Duration) -> ScriptedExchange {
    let (call, agent) = gateway.call(session.call("c", TOOL, json!({ "text": "sing" })));
    agent.send(&working());
    pass(after).await;
    assert_eq!(gateway.respond(session.cancel("c")).await.status, 202);
    let response = call.response().await;
    assert!(response.messages.is_empty(), "a response to a cancelled request: {response:?}");
    assert_eq!(response.outcome, Outcome::Cancelled);
    agent
}

/// Returns the result of a call that the agent answers at once.
async fn called(gateway: &TestGateway, session: &TestSession, tool: &str) -> Value {
    let (call, agent) = gateway.call(session.call("next", tool, json!({ "text": "again" })));
    agent.send(&message("la"));
    call.response().await.result()
}

fn names_earlier_call(result: &Value) -> bool {
    words(result).contains("earlier call")
}

async fn session(gateway: &TestGateway) -> TestSession {
    gateway.session("2025-11-25", json!({})).await
}

/// Begins a call of a legacy client without a session.
fn legacy(gateway: &TestGateway) -> (Exchange, ScriptedExchange) {
    let params = json!({ "name": TOOL, "arguments": { "text": "sing" } });
    gateway.call(TestRequest::legacy("tools/call", params))
}

#[tokio::test(start_paused = true)]
async fn cancelled_task_ends_after_grace() {
    let gateway = TestGateway::new().await;
    let session = session(&gateway).await;
    let since = tokio::time::Instant::now();
    let _agent = cancelled(&gateway, &session, seconds(3)).await;
    pass(seconds(9)).await;
    assert!(gateway.agent.all("Cancel").is_empty(), "the task goes on");
    pass(seconds(5)).await;
    let stopped = gateway.agent.all("Cancel");
    assert_eq!(stopped.len(), 1);
    assert_eq!(stopped[0].text, RAW_TASK);
    assert_at(stopped[0].at - since, seconds(13));
    assert!(!names_earlier_call(&called(&gateway, &session, TOOL).await), "it is over");
}

#[tokio::test(start_paused = true)]
async fn next_call_names_cancelled_task() {
    let gateway = TestGateway::new().await;
    gateway.set_skills(&["sing", "dance"]);
    let (session, other) = (session(&gateway).await, session(&gateway).await);
    let agent = cancelled(&gateway, &session, seconds(1)).await;
    assert!(!names_earlier_call(&called(&gateway, &other, TOOL).await), "another session");
    assert!(!names_earlier_call(&called(&gateway, &session, "bard_dance").await), "another tool");
    let next = called(&gateway, &session, TOOL).await;
    assert!(names_earlier_call(&next) && words(&next).contains("still running"), "{next}");
    assert!(!names_earlier_call(&called(&gateway, &session, TOOL).await), "only once");
    pass(seconds(60)).await;
    assert!(gateway.agent.all("Cancel").is_empty(), "the named task stays");
    let text = words(&next);
    let (_, rest) = text.split_once("as task \"").unwrap_or_else(|| panic!("{next}"));
    let handle = rest.split('"').next().unwrap();
    agent.send(&completed("the song"));
    let wait = session.call("w", "subagent_wait", json!({ "taskId": handle }));
    assert!(gateway.respond(wait).await.words().contains("the song"));
}

/// A client that cancelled after 10 s would cancel the next call too: the handle comes before.
#[tokio::test(start_paused = true)]
async fn call_after_cancel_waits_less() {
    let gateway = TestGateway::with(|settings| settings.calls.cancel_grace = seconds(600)).await;
    let session = session(&gateway).await;
    for (waited, budget) in [(seconds(10), seconds(8)), (Duration::from_millis(100), seconds(2))] {
        let _agent = cancelled(&gateway, &session, waited).await;
        let (call, agent) = gateway.call(session.call("next", TOOL, json!({ "text": "again" })));
        agent.send(&working());
        let response = call.response().await;
        assert_at(response.ended, budget);
        assert!(names_earlier_call(&response.result()), "{response:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn failed_call_leaves_tasks_to_next() {
    let gateway = TestGateway::new().await;
    let session = session(&gateway).await;
    let _agent = cancelled(&gateway, &session, seconds(1)).await;
    let _other = cancelled(&gateway, &session, seconds(1)).await;
    let refused = gateway.respond(session.call("bad", TOOL, json!({ "text": 7 }))).await;
    assert_eq!(refused.result()["isError"], true);
    let next = words(&called(&gateway, &session, TOOL).await);
    assert_eq!(next.matches("earlier call").count(), 2, "{next}");
}

#[tokio::test(start_paused = true)]
async fn cancel_without_grace_stops_work() {
    let gateway = TestGateway::with(|settings| settings.calls.cancel_grace = Duration::ZERO).await;
    let session = session(&gateway).await;
    let agent = cancelled(&gateway, &session, seconds(1)).await;
    settle().await;
    assert_eq!(gateway.agent.all("Cancel").len(), 1);
    assert!(agent.is_dropped());
}

#[tokio::test(start_paused = true)]
async fn end_of_session_ends_grace() {
    let gateway = TestGateway::with(|settings| settings.calls.cancel_grace = seconds(600)).await;
    let (session, other) = (session(&gateway).await, session(&gateway).await);
    let _agent = cancelled(&gateway, &session, seconds(1)).await;
    let end = |session: &TestSession| session.own(TestRequest::new(http::Method::DELETE, "/mcp"));
    assert_eq!(gateway.respond(end(&other)).await.status, 204);
    settle().await;
    assert!(gateway.agent.all("Cancel").is_empty(), "the session of another");
    assert_eq!(gateway.respond(end(&session)).await.status, 204);
    settle().await;
    assert_eq!(gateway.agent.all("Cancel").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn drain_ends_grace() {
    let gateway = TestGateway::with(|settings| settings.calls.cancel_grace = seconds(600)).await;
    let session = session(&gateway).await;
    let _agent = cancelled(&gateway, &session, seconds(1)).await;
    gateway.gateway.close();
    pass(seconds(19)).await;
    assert!(gateway.agent.all("Cancel").is_empty());
    pass(seconds(2)).await;
    assert_eq!(gateway.agent.all("Cancel").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn cancel_of_other_request_is_ignored() {
    let gateway = TestGateway::new().await;
    let (session, other) = (session(&gateway).await, session(&gateway).await);
    let (call, agent) = gateway.call(session.call("c", TOOL, json!({ "text": "sing" })));
    agent.send(&working());
    settle().await;
    for request in [other.cancel("c"), session.cancel("d")] {
        assert_eq!(gateway.respond(request).await.status, 202);
    }
    agent.send(&completed("la"));
    assert!(call.response().await.words().starts_with("la"));
}

#[tokio::test(start_paused = true)]
async fn cancelled_wait_leaves_task_alone() {
    let gateway = TestGateway::new().await;
    let session = session(&gateway).await;
    let (call, agent) = gateway.call(session.call("c", TOOL, json!({ "text": "sing" })));
    agent.send(&working());
    let task = json!({ "taskId": call.response().await.handle() });
    let wait = gateway.send(session.call("w", "subagent_wait", task.clone()));
    pass(seconds(1)).await;
    gateway.respond(session.cancel("w")).await;
    assert!(wait.response().await.messages.is_empty());
    let params = json!({ "taskId": task["taskId"] });
    let body = json!({ "jsonrpc": "2.0", "id": "r", "method": "tasks/result", "params": params });
    let wait = gateway.send(session.post(&body));
    pass(seconds(1)).await;
    gateway.respond(session.cancel("r")).await;
    assert!(wait.response().await.messages.is_empty());
    pass(seconds(30)).await;
    assert!(gateway.agent.all("Cancel").is_empty() && !agent.is_dropped(), "a client holds its handle");
    agent.send(&completed("la"));
    settle().await;
    let result = gateway.respond(session.request("tasks/result", params)).await;
    assert!(result.words().starts_with("la"), "{result:?}");
}

#[tokio::test(start_paused = true)]
async fn gone_legacy_client_leaves_work_running() {
    let gateway = TestGateway::new().await;
    let (call, agent) = legacy(&gateway);
    agent.send(&working());
    pass(seconds(1)).await;
    call.disconnect().await;
    pass(seconds(60)).await;
    assert!(!agent.is_dropped(), "the exchange is read to its end");
    agent.send(&completed("la"));
    agent.end();
    settle().await;
    assert!(gateway.agent.all("Cancel").is_empty());
    assert_eq!(gateway.gateway.running(), 0);
}

#[tokio::test(start_paused = true)]
async fn gone_modern_client_stops_work() {
    let gateway = TestGateway::new().await;
    let (call, agent) = gateway.call(TestRequest::sing(&json!({})));
    agent.send(&working());
    pass(seconds(1)).await;
    assert_eq!(call.disconnect().await, Outcome::ClientGone);
    settle().await;
    assert!(agent.is_dropped());
    assert_eq!(gateway.agent.all("Cancel")[0].text, RAW_TASK);
}

#[tokio::test(start_paused = true)]
async fn gone_client_stops_work_once_named() {
    let gateway = TestGateway::new().await;
    let (call, agent) = gateway.call(TestRequest::sing(&json!({})));
    settle().await;
    call.disconnect().await;
    pass(seconds(3)).await;
    assert!(gateway.agent.all("Cancel").is_empty() && !agent.is_dropped());
    agent.send(&working());
    settle().await;
    assert_eq!(gateway.agent.all("Cancel").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn gone_client_with_handle_keeps_task() {
    let gateway = TestGateway::new().await;
    let (call, agent) = gateway.call(TestRequest::sing(&json!({})).at("/mcp?budget=1s"));
    agent.send(&working());
    let task = json!({ "taskId": call.response().await.handle() });
    let wait = gateway.send(TestRequest::tool(TOOL, task.clone()));
    pass(seconds(1)).await;
    wait.disconnect().await;
    settle().await;
    assert!(gateway.agent.all("Cancel").is_empty());
    agent.send(&completed("la"));
    assert!(gateway.respond(TestRequest::tool(TOOL, task)).await.words().starts_with("la"));
}

/// A client that does not read is noticed at the next write.
#[tokio::test(start_paused = true)]
async fn failed_write_counts_as_disconnect() {
    let gateway = TestGateway::new().await;
    let (call, agent) = gateway.call(TestRequest::sing(&json!({})));
    agent.send(&working());
    settle().await;
    call.client.fail_writes();
    let client = call.client.clone();
    let since = call.since;
    call.gone().await;
    assert_at(since.elapsed(), seconds(10));
    assert!(client.written().is_shut_down && client.written().closes);
    settle().await;
    assert_eq!(gateway.agent.all("Cancel").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn cancel_tool_waits_for_agent() {
    let gateway = TestGateway::new().await;
    let (call, agent) = gateway.call(TestRequest::sing(&json!({})).at("/mcp?budget=1s"));
    agent.send(&working());
    let task = json!({ "taskId": call.response().await.handle() });
    let stopped = gateway.respond(TestRequest::tool("subagent_cancel", task.clone())).await;
    assert!(stopped.words().contains("The task is canceled"), "{stopped:?}");
    let again = gateway.respond(TestRequest::tool("subagent_cancel", task)).await;
    assert_eq!(gateway.agent.all("Cancel").len(), 1, "{again:?}");
}
