//! Form of the response to a call, by the era and the capabilities of its client.

use serde_json::{Value, json};

use super::{
    TOOL, TestGateway, TestRequest, assert_at, completed, forms, in_state, message, seconds, settle, tasks,
    words, working,
};
use crate::config::TaskMode;

/// Returns the next round of a call with this state.
fn next_round(arguments: &Value, state: &Value) -> TestRequest {
    let params = json!({ "name": TOOL, "arguments": arguments, "requestState": state });
    TestRequest::modern(&forms(), "tools/call", params)
}

#[tokio::test(start_paused = true)]
async fn quick_result_has_form_of_era() {
    let gateway = TestGateway::new().await;
    for capabilities in [json!({}), forms(), tasks()] {
        let (call, agent) = gateway.call(TestRequest::sing(&capabilities));
        agent.send(&message("la"));
        let result = call.response().await.result();
        assert_eq!((words(&result).as_str(), &result["resultType"]), ("la", &json!("complete")));
        assert!(result.get("taskId").is_none() && result.get("requestState").is_none(), "{result}");
    }
    for version in ["2025-03-26", "2025-06-18", "2025-11-25"] {
        let session = gateway.session(version, json!({})).await;
        let (call, agent) = gateway.call(session.call("c", TOOL, json!({ "text": "sing" })));
        agent.send(&message("la"));
        let result = call.response().await.result();
        assert_eq!((words(&result).as_str(), result.get("resultType")), ("la", None), "{version}");
    }
}

#[tokio::test(start_paused = true)]
async fn slow_call_has_form_of_client() {
    let gateway = TestGateway::new().await;
    for (capabilities, uri, form, expected) in [
        (json!({}), "/mcp", "handle", 45),
        (forms(), "/mcp", "input_required", 40),
        (forms(), "/mcp?rounds=off", "handle", 45),
        (json!({}), "/mcp?rounds=on", "input_required", 40),
        (forms(), "/mcp?budget=5s", "input_required", 5),
        (tasks(), "/mcp", "task", 2),
        (tasks(), "/mcp?budget=1s", "task", 1),
    ] {
        let (call, agent) = gateway.call(TestRequest::sing(&capabilities).at(uri));
        agent.send(&working());
        let response = call.response().await;
        let result = response.result();
        let found = match result["resultType"].as_str() {
            Some("complete") if result["structuredContent"]["taskId"].is_string() => "handle",
            Some(other) => other,
            None => "none",
        };
        assert_eq!(found, form, "{capabilities} {uri}: {result}");
        assert_at(response.ended, seconds(expected));
        assert!(!result.to_string().contains("raw-"), "an id of the agent: {result}");
        agent.send(&completed("la"));
    }
}

#[tokio::test(start_paused = true)]
async fn slow_legacy_call_gives_handle() {
    let gateway = TestGateway::new().await;
    for version in ["2025-03-26", "2025-06-18", "2025-11-25"] {
        let session = gateway.session(version, json!({ "elicitation": {} })).await;
        let (call, agent) = gateway.call(session.call("c", TOOL, json!({ "text": "sing" })));
        agent.send(&working());
        let response = call.response().await;
        assert_at(response.ended, seconds(45));
        assert!(response.words().contains("taskId"), "{version}: {response:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn round_resumes_until_result() {
    let gateway = TestGateway::new().await;
    let (call, agent) = gateway.call(TestRequest::sing(&forms()));
    agent.send(&working());
    let first = call.response().await.result()["requestState"].clone();
    let arguments = json!({ "text": "sing" });
    let second = gateway.respond(next_round(&arguments, &first)).await;
    assert_at(second.ended, seconds(40));
    let state = second.result()["requestState"].clone();
    assert!(state.is_string() && state != first, "each round has a state of its own");
    let third = gateway.send(next_round(&arguments, &state));
    settle().await;
    agent.send(&completed("la"));
    assert!(third.response().await.words().starts_with("la"));
    let lost = gateway.respond(next_round(&arguments, &first)).await;
    assert!(lost.words().starts_with("la"), "a lost response can be fetched again");
    assert_eq!(gateway.agent.all("Say").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn last_round_gives_handle() {
    let gateway = TestGateway::with(|settings| settings.calls.max_rounds = 1).await;
    let (call, agent) = gateway.call(TestRequest::sing(&forms()));
    agent.send(&working());
    let state = call.response().await.result()["requestState"].clone();
    let last = gateway.respond(next_round(&json!({ "text": "sing" }), &state)).await;
    assert_at(last.ended, seconds(45));
    assert!(!last.handle().is_empty());
}

#[tokio::test(start_paused = true)]
async fn round_belongs_to_its_call() {
    let gateway = TestGateway::new().await;
    gateway.set_skills(&["sing", "dance"]);
    settle().await;
    let (call, agent) = gateway.call(TestRequest::sing(&forms()));
    agent.send(&working());
    let state = call.response().await.result()["requestState"].clone();
    let text = state.as_str().unwrap();
    let cut = text.get(..text.len() / 2).unwrap();
    for (tool, arguments, state) in [
        (TOOL, json!({ "text": "Sing" }), state.clone()),
        (TOOL, json!({ "text": "sing", "data": 1 }), state.clone()),
        (TOOL, json!({}), state.clone()),
        ("bard_dance", json!({ "text": "sing" }), state.clone()),
        (TOOL, json!({ "text": "sing" }), json!(cut)),
        (TOOL, json!({ "text": "sing" }), json!(format!("{text}A"))),
        (TOOL, json!({ "text": "sing" }), json!("")),
        (TOOL, json!({ "text": "sing" }), json!("round-1")),
    ] {
        let params = json!({ "name": tool, "arguments": arguments, "requestState": state });
        let refused = gateway.respond(TestRequest::modern(&forms(), "tools/call", params)).await;
        assert_eq!(refused.refusal(), (200, -32602), "{tool} {arguments}");
    }
}

#[tokio::test(start_paused = true)]
async fn core_task_comes_with_its_name() {
    let gateway = TestGateway::new().await;
    let session = gateway.session("2025-11-25", json!({})).await;
    let params = json!({ "name": TOOL, "arguments": { "text": "sing" }, "task": {} });
    let (call, agent) = gateway.call(session.request("tools/call", params.clone()));
    agent.send(&working());
    let response = call.response().await;
    assert!(response.ended < seconds(1), "{response:?}");
    let task = response.result()["task"].clone();
    assert_eq!(task["status"], "working", "{task}");
    let of_task = json!({ "taskId": task["taskId"] });
    let get = || session.request("tasks/get", of_task.clone());
    assert_eq!(gateway.respond(get()).await.result()["status"], "working");
    agent.send(&completed("la"));
    settle().await;
    assert_eq!(gateway.respond(get()).await.result()["status"], "completed");
    let (call, agent) = gateway.call(session.request("tools/call", params));
    agent.send(&completed("la"));
    let quick = call.response().await.result();
    assert!(quick["task"]["taskId"].is_string(), "even if the work is done: {quick}");
}

#[tokio::test(start_paused = true)]
async fn revision_without_tasks_ignores_task() {
    let gateway = TestGateway::new().await;
    let session = gateway.session("2025-06-18", json!({})).await;
    let params = json!({ "name": TOOL, "arguments": { "text": "sing" }, "task": {} });
    let (call, agent) = gateway.call(session.request("tools/call", params));
    agent.send(&message("la"));
    assert_eq!(call.response().await.words(), "la");
    let refused = gateway.respond(session.request("tasks/get", json!({ "taskId": "x" }))).await;
    assert_eq!(refused.refusal(), (200, -32601));
}

#[tokio::test(start_paused = true)]
async fn task_mode_of_tool_is_kept() {
    let gateway = TestGateway::with(|settings| {
        settings.agents[0].task = TaskMode::Required;
    })
    .await;
    assert_eq!(gateway.respond(TestRequest::sing(&json!({}))).await.refusal(), (400, -32021));
    let session = gateway.session("2025-11-25", json!({})).await;
    let call = session.call("c", TOOL, json!({ "text": "sing" }));
    assert_eq!(gateway.respond(call).await.refusal(), (200, -32601));
    assert!(gateway.agent.performed().is_empty(), "nothing is said to the agent");
}

#[tokio::test(start_paused = true)]
async fn extension_task_shows_its_result() {
    let gateway = TestGateway::new().await;
    let (call, agent) = gateway.call(TestRequest::sing(&tasks()));
    agent.send(&in_state("WORKING", "tuning"));
    let task = call.response().await.result()["taskId"].clone();
    let get = || TestRequest::modern(&tasks(), "tasks/get", json!({ "taskId": task }));
    let shown = gateway.respond(get()).await.result();
    assert_eq!((&shown["status"], &shown["statusMessage"]), (&json!("working"), &json!("tuning")));
    agent.send(&completed("la"));
    settle().await;
    let shown = gateway.respond(get()).await.result();
    assert_eq!(shown["status"], "completed", "{shown}");
    assert!(words(&shown["result"]).starts_with("la"), "{shown}");
    let plain = TestRequest::modern(&json!({}), "tasks/get", json!({ "taskId": task }));
    assert_eq!(gateway.respond(plain).await.refusal(), (400, -32021), "not declared");
}

#[tokio::test(start_paused = true)]
async fn full_task_map_refuses_core_task() {
    let gateway = TestGateway::with(|settings| settings.limits.caller_tasks = 1).await;
    let session = gateway.session("2025-11-25", json!({})).await;
    let params = json!({ "name": TOOL, "arguments": { "text": "sing" }, "task": {} });
    let (call, agent) = gateway.call(session.request("tools/call", params.clone()));
    agent.send(&working());
    assert!(call.response().await.result()["task"].is_object());
    let refused = gateway.respond(session.request("tools/call", params.clone())).await;
    assert_eq!(refused.refusal(), (429, -32603), "{refused:?}");
    assert_eq!(gateway.agent.all("Say").len(), 1);
    agent.send(&completed("la"));
    settle().await;
    let (call, agent) = gateway.call(session.request("tools/call", params));
    agent.send(&working());
    assert!(call.response().await.result()["task"].is_object(), "an ended task makes room");
}
