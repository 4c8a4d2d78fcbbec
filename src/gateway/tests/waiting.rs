//! Times of a call: budgets, the begin of a stream, keep-alive comments, the drain; and clients that
//! cancel a call, or disconnect: what happens to the work.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    Exchange, RAW_TASK, RequestGuard, TOOL, TestGateway, TestRequest, TestSession, asking, assert_at,
    completed, forms, in_state, message, pass, seconds, settle, tasks, words, working,
};
use crate::agents::ScriptedExchange;
use crate::config::{KnownClient, StreamTimeout};
use crate::fault::{AgentFailure, TaskDelay};
use crate::telemetry::label::Outcome;

/// Returns a call of a modern client without capabilities.
fn sing() -> TestRequest {
    TestRequest::sing(&json!({}))
}

/// Returns a call of a client that accepts progress.
fn sing_with_progress() -> TestRequest {
    let params = json!({ "name": TOOL, "arguments": { "text": "sing" }, "_meta": { "progressToken": "p" } });
    TestRequest::modern(&json!({}), "tools/call", params)
}

/// Returns the handle of a task that goes on, and its exchange.
async fn begun_task(gateway: &TestGateway) -> (String, ScriptedExchange) {
    let (call, agent) = gateway.call(sing().at("/mcp?budget=1s"));
    agent.send(&working());
    (call.response().await.handle(), agent)
}

#[tokio::test(start_paused = true)]
async fn finished_work_is_answered_at_once() {
    let gateway = TestGateway::new().await;
    let (call, agent) = gateway.call(sing());
    pass(seconds(3)).await;
    agent.send(&completed("la"));
    let response = call.response().await;
    assert_at(response.ended, seconds(3));
    assert!(!response.is_stream() && response.words().starts_with("la"), "{response:?}");
}

#[tokio::test(start_paused = true)]
async fn used_up_budget_gives_handle() {
    let gateway = TestGateway::new().await;
    let (call, agent) = gateway.call(sing());
    agent.send(&working());
    let response = call.response().await;
    assert_at(response.ended, seconds(45));
    assert!(response.words().contains("still working"), "{response:?}");
    agent.send(&completed("la"));
    let result = gateway.respond(TestRequest::tool(TOOL, json!({ "taskId": response.handle() }))).await;
    assert!(result.words().starts_with("la"), "{result:?}");
    assert!(result.ended < seconds(1), "{result:?}");
}

#[tokio::test(start_paused = true)]
async fn budget_of_url_only_shortens() {
    let gateway = TestGateway::new().await;
    for (query, budget) in [("budget=4s", 4), ("budget=1h", 45)] {
        let (call, agent) = gateway.call(sing().at(&format!("/mcp?{query}")));
        agent.send(&working());
        assert_at(call.response().await.ended, seconds(budget));
    }
    for query in ["budget=soon", "budget=2h", "rounds=maybe"] {
        let refused = gateway.respond(sing().at(&format!("/mcp?{query}"))).await;
        assert_eq!(refused.refusal(), (200, -32602), "{query}");
    }
    assert_eq!(gateway.agent.all("Say").len(), 2, "no refused call reaches the agent");
}

#[tokio::test(start_paused = true)]
async fn budget_of_known_client_applies() {
    let known = KnownClient {
        name: "slow".to_owned(),
        client_names: vec!["test-*".to_owned()],
        user_agents: vec!["*Host/*".to_owned()],
        budget: Some(seconds(8)),
        rounds: None,
    };
    let gateway = TestGateway::with(|settings| settings.calls.clients = vec![known]).await;
    let session = gateway.session("2025-11-25", json!({})).await;
    let of_session = session.call("c", TOOL, json!({ "text": "sing" }));
    let arguments = json!({ "name": TOOL, "arguments": { "text": "sing" } });
    let by_agent = TestRequest::legacy("tools/call", arguments.clone()).header("user-agent", "My Host/1");
    let unknown = TestRequest::legacy("tools/call", arguments.clone()).header("user-agent", "other");
    let old = gateway.session("2025-03-26", json!({})).await;
    let batch = json!([{ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": arguments }]);
    for (request, budget) in [
        (sing(), 8),
        (sing().at("/mcp?budget=2s"), 2),
        (of_session, 8),
        (by_agent, 8),
        (unknown, 45),
        (old.post(&batch), 8),
        (old.post(&batch).at("/mcp?budget=2s"), 2),
    ] {
        let (call, agent) = gateway.call(request);
        agent.send(&working());
        assert_at(call.response().await.ended, seconds(budget));
    }
}

#[tokio::test(start_paused = true)]
async fn silent_call_streams_after_its_time() {
    let gateway = TestGateway::new().await;
    let (call, agent) = gateway.call(sing());
    agent.send(&working());
    pass(seconds(9)).await;
    assert!(call.client.written().status.is_none(), "no byte before");
    let response = call.response().await;
    assert!(response.is_stream());
    assert_at(response.began, seconds(10));
}

#[tokio::test(start_paused = true)]
async fn keep_alive_repeats_at_interval() {
    let gateway = TestGateway::new().await;
    let (call, agent) = gateway.call(sing());
    agent.send(&working());
    let response = call.response().await;
    for (comment, expected) in response.comments.iter().zip([10, 25, 40]) {
        assert_at(*comment, seconds(expected));
    }
    assert_eq!(response.comments.len(), 3, "{response:?}");
}

#[tokio::test(start_paused = true)]
async fn first_progress_begins_keep_alive_interval() {
    let gateway = TestGateway::with(|settings| settings.calls.stream_after = seconds(40)).await;
    let (call, agent) = gateway.call(sing_with_progress());
    pass(seconds(1)).await;
    agent.send(&in_state("WORKING", "verse 1"));
    let response = call.response().await;
    assert_at(response.began, seconds(1));
    assert_at(response.comments[0], seconds(16));
}

#[tokio::test(start_paused = true)]
async fn time_of_silent_agent_is_its_own() {
    let gateway = TestGateway::new().await;
    let (call, agent) = gateway.call(sing());
    pass(seconds(12)).await;
    agent.send(&completed("la"));
    let response = call.response().await;
    assert!(response.is_stream(), "a comment was sent in between");
    assert_at(response.agent_took.unwrap(), seconds(12));
}

#[tokio::test(start_paused = true)]
async fn progress_postpones_keep_alive() {
    let gateway = TestGateway::new().await;
    let (call, agent) = gateway.call(sing_with_progress());
    pass(seconds(3)).await;
    agent.send(&in_state("WORKING", "verse 1"));
    pass(seconds(16)).await;
    agent.send(&in_state("WORKING", "verse 2"));
    let response = call.response().await;
    assert_at(response.began, seconds(3));
    let progress: Vec<_> = response
        .messages
        .iter()
        .filter(|message| message.json["method"] == "notifications/progress")
        .collect();
    assert_eq!(progress.len(), 2, "{response:?}");
    assert_at(progress[0].at, seconds(3));
    assert_at(progress[1].at, seconds(19));
    assert_at(response.comments[0], seconds(18));
    assert_at(response.comments[1], seconds(34));
}

#[tokio::test(start_paused = true)]
async fn json_client_gets_no_stream() {
    let gateway = TestGateway::new().await;
    for accept in ["application/json", "*/*"] {
        let (call, agent) = gateway.call(sing_with_progress().header("accept", accept));
        agent.send(&working());
        let response = call.response().await;
        assert!(!response.is_stream(), "{accept}: {response:?}");
        assert_at(response.began, seconds(45));
    }
}

#[tokio::test(start_paused = true)]
async fn stream_client_gets_result_as_event() {
    let gateway = TestGateway::new().await;
    let (call, agent) = gateway.call(sing().header("accept", "text/event-stream"));
    agent.send(&message("la"));
    let response = call.response().await;
    assert!(response.is_stream() && response.words() == "la", "{response:?}");
}

#[tokio::test(start_paused = true)]
async fn operator_holds_clients_without_limit() {
    let gateway = TestGateway::with(|settings| settings.calls.stream_timeout = StreamTimeout::Forever).await;
    let session = gateway.session("2025-11-25", json!({})).await;
    for request in [sing(), TestRequest::sing(&forms()), session.call("c", TOOL, json!({ "text": "sing" }))] {
        let (call, agent) = gateway.call(request);
        agent.send(&working());
        pass(seconds(600)).await;
        agent.send(&completed("la"));
        let response = call.response().await;
        assert_at(response.ended, seconds(600));
        assert_eq!(response.comments.len(), 40, "one each 15 s, the first after 10 s");
    }
    let (call, agent) = gateway.call(TestRequest::sing(&tasks()));
    agent.send(&working());
    assert_at(call.response().await.ended, seconds(2));
}

#[tokio::test(start_paused = true)]
async fn wait_tool_waits_as_long_as_told() {
    let gateway = TestGateway::new().await;
    let (task, agent) = begun_task(&gateway).await;
    for (arguments, expected) in
        [(json!({ "taskId": task, "seconds": 3 }), 3), (json!({ "taskId": task, "seconds": 300 }), 45)]
    {
        let waited = gateway.respond(TestRequest::tool("subagent_wait", arguments)).await;
        assert_at(waited.ended, seconds(expected));
        assert_eq!(waited.result()["structuredContent"]["state"], "working", "{waited:?}");
    }
    let wait = gateway.send(TestRequest::tool("subagent_wait", json!({ "taskId": task })));
    pass(seconds(5)).await;
    agent.send(&completed("la"));
    let done = wait.response().await;
    assert_at(done.ended, seconds(5));
    assert_eq!(done.result()["structuredContent"]["state"], "completed");
}

#[tokio::test(start_paused = true)]
async fn get_tool_answers_at_once() {
    let gateway = TestGateway::new().await;
    let (task, _agent) = begun_task(&gateway).await;
    let shown = gateway.respond(TestRequest::tool("subagent_get", json!({ "taskId": task }))).await;
    assert!(shown.ended < seconds(1) && !shown.is_stream());
    assert_eq!(shown.result()["structuredContent"]["state"], "working");
}

#[tokio::test(start_paused = true)]
async fn start_tool_answers_when_task_is_named() {
    let gateway = TestGateway::new().await;
    let start = json!({ "subagentUri": "a2a-agent://bard", "text": "sing" });
    let (call, agent) = gateway.call(TestRequest::tool("subagent_start", start.clone()));
    pass(seconds(2)).await;
    agent.send(&working());
    assert_at(call.response().await.ended, seconds(2));
    let (call, _agent) = gateway.call(TestRequest::tool("subagent_start", start));
    let unnamed = call.response().await;
    assert_at(unnamed.ended, seconds(10));
    assert!(!unnamed.handle().is_empty());
}

#[tokio::test(start_paused = true)]
async fn stalled_task_gives_handle_at_once() {
    let gateway = TestGateway::new().await;
    let (call, agent) = gateway.call(TestRequest::sing(&forms()).at("/mcp?rounds=on"));
    agent.send(&working());
    pass(seconds(4)).await;
    agent.delay(TaskDelay::Stalled(seconds(15)));
    let response = call.response().await;
    assert_at(response.ended, seconds(4));
    assert!(response.words().contains("ended its stream without ending the task"), "{response:?}");
    let task = json!({ "taskId": response.handle() });
    let wait = gateway.respond(TestRequest::tool("subagent_wait", task)).await;
    assert_at(wait.ended, seconds(15));
}

#[tokio::test(start_paused = true)]
async fn unreached_agent_does_not_end_wait() {
    let gateway = TestGateway::new().await;
    let (call, agent) = gateway.call(sing());
    agent.send(&working());
    agent.delay(TaskDelay::Unreached);
    let response = call.response().await;
    assert_at(response.ended, seconds(45));
    assert!(response.words().contains("cannot be reached at present"), "{response:?}");
}

#[tokio::test(start_paused = true)]
async fn unnamed_task_is_waited_for_longer() {
    let gateway = TestGateway::new().await;
    let (call, agent) = gateway.call(TestRequest::sing(&tasks()));
    pass(seconds(5)).await;
    agent.send(&working());
    let named = call.response().await;
    assert_at(named.ended, seconds(5));
    assert_eq!(named.result()["resultType"], "task", "{named:?}");
    let (call, _agent) = gateway.call(TestRequest::sing(&tasks()));
    let unnamed = call.response().await;
    assert_at(unnamed.ended, seconds(12));
    assert_eq!(unnamed.result()["resultType"], "task", "{unnamed:?}");
}

#[tokio::test(start_paused = true)]
async fn failure_names_task_that_may_go_on() {
    let gateway = TestGateway::new().await;
    let (call, agent) = gateway.call(sing());
    agent.fail(AgentFailure::Timeout("no answer"));
    let unnamed = call.response().await;
    assert_eq!(unnamed.result()["isError"], true);
    assert!(unnamed.result()["structuredContent"]["taskId"].is_null(), "{unnamed:?}");
    let (call, agent) = gateway.call(sing());
    agent.send(&working());
    agent.fail(AgentFailure::ConnectionLost("reset"));
    let named = call.response().await;
    assert_eq!(named.result()["isError"], true);
    assert!(named.words().contains("may still be running") && !named.handle().is_empty(), "{named:?}");
}

/// By default the process ends 25 s after the drain began, and responses are due 5 s before.
#[tokio::test(start_paused = true)]
async fn drain_ends_waits_with_handle() {
    let gateway = TestGateway::new().await;
    let (call, agent) = gateway.call(sing());
    agent.send(&working());
    let (asked, other) = gateway.call(TestRequest::sing(&forms()));
    other.send(&asking("Which colour?"));
    asked.response().await;
    pass(seconds(10)).await;
    gateway.gateway.close();
    let response = call.response().await;
    assert_at(response.ended, seconds(30));
    assert!(!response.handle().is_empty());
}

#[tokio::test(start_paused = true)]
async fn drain_fails_call_without_task() {
    let gateway = TestGateway::new().await;
    let (call, _agent) = gateway.call(sing());
    settle().await;
    gateway.gateway.close();
    let response = call.response().await;
    assert_at(response.ended, seconds(20));
    assert!(response.words().contains("before the agent has named a task"), "{response:?}");
}

#[tokio::test(start_paused = true)]
async fn call_after_drain_is_refused() {
    let gateway = TestGateway::new().await;
    gateway.gateway.close();
    let (call, agent) = gateway.call(sing().at("/mcp?budget=2s"));
    agent.send(&working());
    assert!(!call.response().await.handle().is_empty(), "responses are not due yet");
    pass(seconds(20)).await;
    assert_eq!(gateway.respond(sing()).await.refusal(), (503, -32603));
    let legacy = json!({ "name": TOOL, "arguments": { "text": "sing" } });
    assert_eq!(gateway.respond(TestRequest::legacy("tools/call", legacy)).await.refusal(), (200, -32603));
    assert_eq!(gateway.agent.all("Say").len(), 1, "nothing is said to the agent");
}

#[tokio::test(start_paused = true)]
async fn drain_ends_wait_of_core_result() {
    let gateway = TestGateway::new().await;
    let session = gateway.session("2025-11-25", json!({})).await;
    let params = json!({ "name": TOOL, "arguments": { "text": "sing" }, "task": {} });
    let (call, agent) = gateway.call(session.request("tools/call", params));
    agent.send(&working());
    let task = call.response().await.result()["task"]["taskId"].clone();
    let wait = gateway.send(session.request("tasks/result", json!({ "taskId": task })));
    pass(seconds(300)).await;
    gateway.gateway.close();
    let refused = wait.response().await;
    assert_at(refused.ended, seconds(320));
    assert_eq!(refused.refusal(), (200, -32603), "{refused:?}");
}

#[tokio::test(start_paused = true)]
async fn core_result_waits_without_limit() {
    let gateway = TestGateway::new().await;
    let session = gateway.session("2025-11-25", json!({})).await;
    let params = json!({ "name": TOOL, "arguments": { "text": "sing" }, "task": {} });
    let (call, agent) = gateway.call(session.request("tools/call", params));
    agent.send(&working());
    let task = call.response().await.result()["task"]["taskId"].clone();
    let wait = gateway.send(session.request("tasks/result", json!({ "taskId": task })));
    pass(Duration::from_secs(1800)).await;
    agent.send(&completed("la"));
    let done = wait.response().await;
    assert_at(done.ended, seconds(1800));
    assert!(done.words().starts_with("la"), "{done:?}");
    assert_eq!(done.comments.len(), 120, "one each 15 s, the first after 10 s");
    let again = gateway.respond(session.request("tasks/result", json!({ "taskId": task }))).await;
    assert!(again.ended < seconds(1) && !again.is_stream(), "{again:?}");
}

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

/// A request of which the last byte has just been sent has its span and its access line before the process ends.
#[tokio::test(start_paused = true)]
async fn flush_waits_for_records_of_last_requests() {
    let gateway = TestGateway::new().await.gateway;
    let begun = Instant::now();
    gateway.flush_records().await;
    assert_eq!(begun.elapsed(), Duration::ZERO, "nothing runs");
    let running = RequestGuard::enter(&gateway.state.lasting.open_requests);
    let recorded = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        drop(running);
    };
    tokio::join!(recorded, gateway.flush_records());
    assert!((50..60).contains(&begun.elapsed().as_millis()), "{:?}", begun.elapsed());
    // A stream without end costs the whole wait, and no more.
    let _endless = RequestGuard::enter(&gateway.state.lasting.open_requests);
    let begun = Instant::now();
    gateway.flush_records().await;
    assert!((200..210).contains(&begun.elapsed().as_millis()), "{:?}", begun.elapsed());
}
