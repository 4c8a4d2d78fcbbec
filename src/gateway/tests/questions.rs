//! Form of the response to a call, by the era and the capabilities of its client: questions of
//! agents with the form in which each client is asked, and the way of its answer.

use serde_json::{Value, json};

use super::{
    TOOL, TestGateway, TestRequest, TestSession, asking, assert_at, completed, forms, in_state, message,
    of_task, seconds, settle, tasks, words, working,
};
use crate::config::{OnDecline, TaskMode};

const QUESTION: &str = "Which colour?";

/// Returns the answers of a modern client to the question in a result.
fn answers(result: &Value, answer: &Value) -> Value {
    let (key, _) = result["inputRequests"].as_object().unwrap().iter().next().unwrap();
    json!({ key: answer })
}

fn accepted(text: &str) -> Value {
    json!({ "action": "accept", "content": { "answer": text } })
}

/// Returns the answer to a form, with the text under its first property.
fn filled(request: &Value, text: &str) -> Value {
    let properties = request["requestedSchema"]["properties"].as_object();
    let key = properties.and_then(|all| all.keys().next()).map_or("answer", String::as_str);
    json!({ "action": "accept", "content": { key: text } })
}

/// Returns the request that resumes a call with these answers.
fn resumed(result: &Value, answers: &Value) -> TestRequest {
    let params = json!({
        "name": TOOL, "arguments": { "text": "sing" },
        "requestState": result["requestState"], "inputResponses": answers,
    });
    TestRequest::modern(&forms(), "tools/call", params)
}

/// Returns the response of a legacy client to a request of the gateway.
fn reply(session: &TestSession, id: &Value, result: Value) -> TestRequest {
    session.post(&json!({ "jsonrpc": "2.0", "id": id, "result": result }))
}

async fn session(gateway: &TestGateway) -> TestSession {
    gateway.session("2025-11-25", json!({ "elicitation": {} })).await
}

#[tokio::test(start_paused = true)]
async fn modern_client_is_asked_by_result() {
    let gateway = TestGateway::new().await;
    let (call, agent) = gateway.call(TestRequest::sing(&forms()));
    agent.send(&asking(QUESTION));
    let response = call.response().await;
    let result = response.result();
    assert_eq!(result["resultType"], "input_required", "{result}");
    assert!(result["inputRequests"].to_string().contains(QUESTION), "{result}");
    assert!(response.ended < seconds(1) && result["requestState"].is_string());
}

#[tokio::test(start_paused = true)]
async fn answer_reaches_agent_once() {
    let gateway = TestGateway::new().await;
    let (call, agent) = gateway.call(TestRequest::sing(&forms()));
    agent.send(&asking(QUESTION));
    let asked = call.response().await.result();
    let (_, request) = asked["inputRequests"].as_object().unwrap().iter().next().unwrap();
    let given = answers(&asked, &filled(&request["params"], "blue"));
    let (next, beside) = gateway.call(resumed(&asked, &given));
    settle().await;
    let again = gateway.send(resumed(&asked, &given));
    settle().await;
    let told = gateway.agent.all("Continue");
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].text.contains("blue"), "{told:?}");
    let other = answers(&asked, &filled(&request["params"], "red"));
    let refused = gateway.respond(resumed(&asked, &other)).await;
    assert_eq!(refused.refusal(), (200, -32602), "another answer: {refused:?}");
    beside.send(&working());
    agent.send(&completed("la"));
    assert!(next.response().await.words().starts_with("la"));
    assert!(again.response().await.words().starts_with("la"), "the same answer again");
    assert_eq!(gateway.agent.all("Continue").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn unaskable_client_gets_text() {
    let gateway = TestGateway::new().await;
    let session = session(&gateway).await;
    let mute = gateway.session("2025-11-25", json!({})).await;
    let old = gateway.session("2025-03-26", json!({ "elicitation": {} })).await;
    let params = json!({ "name": TOOL, "arguments": { "text": "sing" } });
    for (name, request) in [
        ("modern without forms", TestRequest::sing(&json!({}))),
        ("legacy without a session", TestRequest::legacy("tools/call", params)),
        ("modern with URLs alone", TestRequest::sing(&json!({ "elicitation": { "url": {} } }))),
        ("older revision", old.call("c", TOOL, json!({ "text": "sing" }))),
        ("legacy without forms", mute.call("c", TOOL, json!({ "text": "sing" }))),
        ("legacy without streams", session.call("c", TOOL, json!({ "text": "sing" })).json_only()),
    ] {
        let (call, agent) = gateway.call(request);
        agent.send(&of_task(name, asking(QUESTION)));
        let response = call.response().await;
        assert!(response.words().contains(QUESTION), "{name}: {response:?}");
        assert!(response.words().contains("taskId"), "{name}: {response:?}");
        assert!(!response.is_stream() && response.ended < seconds(1), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn batch_gets_question_as_text() {
    let gateway = TestGateway::new().await;
    let session = gateway.session("2025-03-26", json!({ "elicitation": {} })).await;
    let params = json!({ "name": TOOL, "arguments": { "text": "sing" } });
    let batch = json!([{ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params }]);
    let (call, agent) = gateway.call(session.post(&batch));
    agent.send(&asking(QUESTION));
    let response = call.response().await;
    assert!(words(&response.json()[0]["result"]).contains(QUESTION), "{response:?}");
}

#[tokio::test(start_paused = true)]
async fn legacy_client_is_asked_on_stream() {
    let gateway = TestGateway::new().await;
    let session = session(&gateway).await;
    let (mut call, agent) = gateway.call(session.call("c", TOOL, json!({ "text": "sing" })));
    agent.send(&asking(QUESTION));
    let asked = call.next_message().await;
    assert_eq!(asked.json["method"], "elicitation/create", "{asked:?}");
    assert_eq!(asked.json["params"]["message"], QUESTION);
    let beside = gateway.agent.expect();
    let answer = filled(&asked.json["params"], "blue");
    assert_eq!(gateway.respond(reply(&session, &asked.json["id"], answer)).await.status, 202);
    settle().await;
    assert!(gateway.agent.all("Continue")[0].text.contains("blue"));
    beside.send(&working());
    agent.send(&completed("la"));
    let response = call.response().await;
    assert_eq!(response.messages.len(), 2, "question and result: {response:?}");
    assert!(response.words().starts_with("la"));
}

#[tokio::test(start_paused = true)]
async fn reply_of_other_session_is_ignored() {
    let gateway = TestGateway::new().await;
    let (session, other) = (session(&gateway).await, session(&gateway).await);
    let (mut call, agent) = gateway.call(session.call("c", TOOL, json!({ "text": "sing" })));
    agent.send(&asking(QUESTION));
    let asked = call.next_message().await;
    let answer = filled(&asked.json["params"], "blue");
    assert_eq!(gateway.respond(reply(&other, &asked.json["id"], answer)).await.status, 202);
    let forged = json!(format!("{}A", asked.json["id"].as_str().unwrap()));
    for id in [json!("made-up"), json!(4), forged] {
        assert_eq!(gateway.respond(reply(&session, &id, accepted("blue"))).await.status, 202);
    }
    settle().await;
    assert!(gateway.agent.all("Continue").is_empty());
}

#[tokio::test(start_paused = true)]
async fn budget_withdraws_open_question() {
    let gateway = TestGateway::new().await;
    let session = session(&gateway).await;
    let (mut call, agent) = gateway.call(session.call("c", TOOL, json!({ "text": "sing" })));
    agent.send(&asking(QUESTION));
    let asked = call.next_message().await;
    let response = call.response().await;
    assert_at(response.ended, seconds(45));
    let withdrawn = &response.messages[1].json;
    assert_eq!(withdrawn["method"], "notifications/cancelled", "{withdrawn}");
    assert_eq!(withdrawn["params"]["requestId"], asked.json["id"]);
    assert!(response.words().contains(QUESTION) && !response.handle().is_empty());
    let _beside = gateway.agent.expect();
    let answer = filled(&asked.json["params"], "blue");
    gateway.respond(reply(&session, &asked.json["id"], answer)).await;
    settle().await;
    assert_eq!(gateway.agent.all("Continue").len(), 1, "a late answer counts");
}

#[tokio::test(start_paused = true)]
async fn declined_question_gives_handle() {
    for (on_decline, cancels) in [(OnDecline::Keep, 0), (OnDecline::Cancel, 1)] {
        let gateway = TestGateway::with(|settings| settings.calls.on_decline = on_decline).await;
        let session = session(&gateway).await;
        let (mut call, agent) = gateway.call(session.call("c", TOOL, json!({ "text": "sing" })));
        agent.send(&asking(QUESTION));
        let asked = call.next_message().await;
        let declined = reply(&session, &asked.json["id"], json!({ "action": "decline" }));
        assert_eq!(gateway.respond(declined).await.status, 202);
        let response = call.response().await;
        assert!(response.words().contains("declined"), "{response:?}");
        settle().await;
        assert_eq!(gateway.agent.all("Cancel").len(), cancels);
        assert!(gateway.agent.all("Continue").is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn dismissed_question_stays_open() {
    let gateway = TestGateway::new().await;
    let session = session(&gateway).await;
    for is_error in [false, true] {
        let (mut call, agent) = gateway.call(session.call("c", TOOL, json!({ "text": "sing" })));
        agent.send(&of_task(&format!("raw-{is_error}"), asking(QUESTION)));
        let asked = call.next_message().await;
        let error = json!({ "code": -32603, "message": "no window" });
        let failed = json!({ "jsonrpc": "2.0", "id": asked.json["id"], "error": error });
        let dismissed = reply(&session, &asked.json["id"], json!({ "action": "cancel" }));
        let request = if is_error { session.post(&failed) } else { dismissed };
        assert_eq!(gateway.respond(request).await.status, 202);
        let response = call.response().await;
        assert!(response.words().contains(QUESTION) && !response.handle().is_empty(), "{response:?}");
        assert!(gateway.agent.all("Continue").is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn question_answered_elsewhere_is_closed() {
    let gateway = TestGateway::new().await;
    let session = session(&gateway).await;
    let (mut call, agent) = gateway.call(session.call("c", TOOL, json!({ "text": "sing" })));
    agent.send(&asking(QUESTION));
    call.next_message().await;
    agent.send(&completed("la"));
    let response = call.response().await;
    assert_eq!(response.messages[1].json["method"], "notifications/cancelled", "{response:?}");
    assert!(response.words().starts_with("la"));
}

#[tokio::test(start_paused = true)]
async fn text_answer_of_model_counts_once() {
    let gateway = TestGateway::new().await;
    let (call, agent) = gateway.call(TestRequest::sing(&json!({})));
    agent.send(&asking(QUESTION));
    let task = call.response().await.handle();
    let answer = json!({ "taskId": task, "text": "blue" });
    let (first, beside) = gateway.call(TestRequest::tool(TOOL, answer.clone()));
    settle().await;
    let again = gateway.send(TestRequest::tool(TOOL, answer));
    let other = gateway.send(TestRequest::tool(TOOL, json!({ "taskId": task, "text": "red" })));
    settle().await;
    assert_eq!(gateway.agent.all("Continue").len(), 1);
    assert!(other.response().await.words().contains("on its way already"));
    beside.send(&working());
    agent.send(&completed("la"));
    for call in [first, again] {
        assert!(call.response().await.words().starts_with("la"));
    }
}

#[tokio::test(start_paused = true)]
async fn extension_task_is_answered_by_update() {
    let gateway = TestGateway::new().await;
    let capabilities = json!({ "elicitation": { "form": {} }, "extensions": tasks()["extensions"].clone() });
    let (call, agent) = gateway.call(TestRequest::sing(&capabilities));
    agent.send(&working());
    let task = call.response().await.result()["taskId"].clone();
    agent.send(&asking(QUESTION));
    settle().await;
    let get = || TestRequest::modern(&capabilities, "tasks/get", json!({ "taskId": task }));
    let shown = gateway.respond(get()).await.result();
    assert_eq!(shown["status"], "input_required", "{shown}");
    let (_, request) = shown["inputRequests"].as_object().unwrap().iter().next().unwrap();
    let given = answers(&shown, &filled(&request["params"], "blue"));
    let update = json!({ "taskId": task, "inputResponses": given });
    let _beside = gateway.agent.expect();
    let updated = gateway.respond(TestRequest::modern(&capabilities, "tasks/update", update)).await;
    assert!(updated.result().is_object(), "{updated:?}");
    settle().await;
    assert!(gateway.agent.all("Continue")[0].text.contains("blue"));
    assert_eq!(gateway.respond(get()).await.result()["status"], "working", "the question is taken");
}

#[tokio::test(start_paused = true)]
async fn core_task_asks_on_result_stream() {
    let gateway = TestGateway::new().await;
    let session = session(&gateway).await;
    let params = json!({ "name": TOOL, "arguments": { "text": "sing" }, "task": {} });
    let (call, agent) = gateway.call(session.request("tools/call", params));
    agent.send(&working());
    let task = json!({ "taskId": call.response().await.result()["task"]["taskId"] });
    agent.send(&asking(QUESTION));
    settle().await;
    let shown = gateway.respond(session.request("tasks/get", task.clone())).await.result();
    assert_eq!((&shown["status"], &shown["statusMessage"]), (&json!("input_required"), &json!(QUESTION)));
    let mut wait = gateway.send(session.request("tasks/result", task.clone()));
    let asked = wait.next_message().await;
    assert_eq!(asked.json["method"], "elicitation/create", "{asked:?}");
    let related = &asked.json["params"]["_meta"]["io.modelcontextprotocol/related-task"];
    assert_eq!(related["taskId"], task["taskId"]);
    wait.disconnect().await;
    let mut wait = gateway.send(session.request("tasks/result", task));
    let asked = wait.next_message().await;
    let beside = gateway.agent.expect();
    gateway.respond(reply(&session, &asked.json["id"], filled(&asked.json["params"], "blue"))).await;
    settle().await;
    beside.send(&working());
    agent.send(&completed("la"));
    assert!(wait.response().await.words().starts_with("la"), "a lost stream is followed by another");
}

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
