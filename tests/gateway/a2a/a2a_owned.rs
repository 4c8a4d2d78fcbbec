//! The A2A endpoint with authentication: each caller has its own tasks and sees none of the
//! others'.

use serde_json::{Value, json};

use crate::auth::rules::auth;
use crate::kit::a2a_scene::{Stage, call, saying, saying_in};
use crate::support::payload::{v0_1, v1};
use crate::support::{Card, Reply};

const TASK: &str = "agent-task-1";
const CONTEXT: &str = "agent-context-1";

async fn stage() -> Stage {
    let card =
        Card::v1().skill("sing").set("capabilities", json!({ "streaming": true, "pushNotifications": true }));
    let stage = Stage::with(card, &auth(&["ann", "ben"]), "").await;
    stage.agent.on("SendMessage", |_| Reply::result(v1::task(TASK, CONTEXT, "working")));
    stage.agent.on_get(|request| {
        Reply::result(v1::bare_task(request.params()["id"].as_str().unwrap(), CONTEXT, "working"))
    });
    stage
}

/// The ids of a task that a caller begins.
async fn begun(stage: &Stage, name: &str) -> (Value, Value) {
    let task = call(&stage.by(name), "SendMessage", saying("x")).await.result().await["task"].clone();
    (task["id"].clone(), task["contextId"].clone())
}

#[tokio::test]
async fn handles_lead_to_agent_ids() {
    let stage = stage().await;
    let (task, context) = begun(&stage, "ann").await;
    assert!(task != TASK && context != CONTEXT);
    assert_eq!(begun(&stage, "ann").await.0, task, "the same task is always the same handle");
    assert_ne!(begun(&stage, "ben").await.0, task);
    let got =
        call(&stage.by("ann"), "GetTask", json!({ "id": task, "historyLength": 2 })).await.result().await;
    assert_eq!((&got["id"], &got["contextId"]), (&task, &context));
    assert_eq!(
        stage.agent.wait_for_call("GetTask").await.params(),
        json!({ "id": TASK, "historyLength": 2 })
    );
    call(&stage.by("ann"), "SendMessage", saying_in(&task, &context, "more")).await.result().await;
    let said = stage.agent.calls("SendMessage").pop().unwrap().message();
    assert_eq!((&said["taskId"], &said["contextId"]), (&json!(TASK), &json!(CONTEXT)));
}

#[tokio::test]
async fn stream_names_only_caller_handles() {
    let stage = stage().await;
    stage.agent.on_stream(|_| {
        Reply::stream()
            .crlf()
            .event(v1::task(TASK, CONTEXT, "working"))
            .comment("ping")
            .event(v1::artifact_update(TASK, CONTEXT, "la", false, true))
            .in_pieces(7)
            .event(v1::status_update(TASK, CONTEXT, "completed", Some("done")))
    });
    let (task, context) = begun(&stage, "ann").await;
    let answer = call(&stage.by("ann"), "SendStreamingMessage", saying("x")).await;
    let text = answer.text().await;
    assert!(!text.contains(TASK) && !text.contains(CONTEXT) && text.contains(": ping"), "{text}");
    assert_eq!(text.matches(task.as_str().unwrap()).count(), 3);
    assert_eq!(text.matches(context.as_str().unwrap()).count(), 3);
}

#[tokio::test]
async fn foreign_task_reads_as_unknown() {
    let stage = stage().await;
    let (task, context) = begun(&stage, "ann").await;
    stage.agent.on("GetTask", |_| Reply::error(-32001, "Task not found"));
    let methods = ["GetTask", "CancelTask", "SubscribeToTask"];
    let mut tampered = task.as_str().unwrap().to_owned();
    tampered.replace_range(10..11, if tampered.as_bytes()[10] == b'A' { "B" } else { "A" });
    for handle in [task.clone(), json!(TASK), json!(tampered), json!("no-such"), context.clone()] {
        for method in methods {
            let refused = call(&stage.by("ben"), method, json!({ "id": handle })).await.json().await;
            assert_eq!(refused["error"]["code"], -32001, "{method} {handle}");
            assert_eq!(refused["error"]["message"], "Task not found");
            assert_eq!(refused["error"]["data"][0]["reason"], "TASK_NOT_FOUND");
        }
        let refused = call(&stage.by("ben"), "SendMessage", saying_in(&handle, &json!(""), "x")).await;
        assert_eq!(refused.error_code().await, -32001, "{handle}");
        let refused = call(&stage.by("ben"), "SendMessage", saying_in(&json!(""), &handle, "x")).await;
        assert_eq!(refused.error_code().await, -32001, "{handle}");
    }
    assert_eq!(stage.agent.requests().iter().filter(|request| request.method == "POST").count(), 1);
}

#[tokio::test]
async fn handle_works_at_both_endpoints() {
    let stage = stage().await;
    stage.agent.on("SendStreamingMessage", |_| Reply::events([v1::task(TASK, CONTEXT, "input-required")]));
    let (task, _) = begun(&stage, "ann").await;
    let uri = format!("a2a://task/{}", task.as_str().unwrap());
    let mcp = stage.by("ann").at("/mcp");
    let read = mcp.modern("resources/read", json!({ "uri": uri })).await.result().await;
    assert!(read["contents"][0]["text"].as_str().unwrap().contains("working"), "{read}");
}

#[tokio::test]
async fn list_holds_only_tasks_of_caller() {
    let stage = stage().await;
    let (task, _) = begun(&stage, "ann").await;
    stage.agent.on("ListTasks", |_| {
        let tasks = [v1::bare_task("others-1", "c", "working"), v1::bare_task(TASK, CONTEXT, "working")];
        Reply::result(json!({ "tasks": tasks, "nextPageToken": "page-2", "pageSize": 50, "totalSize": 2 }))
    });
    let listed = call(&stage.by("ann"), "ListTasks", json!({})).await.result().await;
    assert_eq!(listed["tasks"].as_array().unwrap().len(), 1, "{listed}");
    assert_eq!((&listed["tasks"][0]["id"], &listed["totalSize"]), (&task, &json!(1)));
    let text = listed.to_string();
    assert!(!text.contains("others") && !text.contains("page-2"), "{text}");
    let others = call(&stage.by("ben"), "ListTasks", json!({})).await.result().await;
    assert_eq!((&others["tasks"], &others["totalSize"]), (&json!([]), &json!(0)));
}

#[tokio::test]
async fn unauthenticated_caller_is_challenged() {
    let stage = stage().await;
    let refused = call(&stage.client(), "GetTask", json!({ "id": "t" })).await;
    assert_eq!(
        (refused.status, refused.header("www-authenticate")),
        (401, Some("ApiKey header=\"x-api-key\""))
    );
    let refused = call(&stage.client().header("X-Api-Key", "wrong"), "GetTask", json!({ "id": "t" })).await;
    assert_eq!(refused.status, 401);
    assert_eq!(stage.client().at("/a2a/bard/.well-known/agent-card.json").get(&[]).await.status, 401);
}

#[tokio::test]
async fn pushes_cannot_reach_sealed_caller() {
    let stage = stage().await;
    let (task, _) = begun(&stage, "ann").await;
    let config = json!({ "taskId": task, "url": "https://93.184.216.34/hook" });
    let refused =
        call(&stage.by("ann"), "CreateTaskPushNotificationConfig", config.clone()).await.json().await;
    assert_eq!(refused["error"]["code"], -32003, "{refused}");
    let mut send = saying("x");
    send["configuration"] = json!({ "taskPushNotificationConfig": config });
    assert_eq!(call(&stage.by("ann"), "SendMessage", send).await.error_code().await, -32003);
    let card = stage.by("ann").at("/a2a/bard/.well-known/agent-card.json").get(&[]).await.json().await;
    assert_eq!(card["capabilities"]["pushNotifications"], false);
}

#[tokio::test]
async fn unknown_methods_need_rule_naming_them() {
    let stage = stage().await;
    stage.agent.on("acme/tune", |_| Reply::result(json!({ "tuned": true })));
    assert_eq!(call(&stage.by("ann"), "acme/tune", json!({})).await.error_code().await, -32601);
    let rules = "rules:\n  - { callers: \"key:ann\", methods: [\"acme/*\", \"tasks/*\"] }\n  - { callers: \"key:ben\" }\n";
    let ruled = Stage::with(Card::v1().skill("sing"), &format!("{}{rules}", auth(&["ann", "ben"])), "").await;
    for method in ["acme/tune", "tasks/list"] {
        ruled.agent.on(method, |_| Reply::result(json!({ "tuned": true })));
    }
    assert_eq!(call(&ruled.by("ann"), "acme/tune", json!({})).await.result().await["tuned"], true);
    assert_eq!(call(&ruled.by("ann"), "GetTask", json!({ "id": "t" })).await.status, 403);
    // A rule for another caller does not count; one for a method of MCP is not for an agent's own
    // of that name.
    assert_eq!(call(&ruled.by("ben"), "acme/tune", json!({})).await.error_code().await, -32601);
    assert_eq!(call(&ruled.by("ann"), "tasks/list", json!({})).await.error_code().await, -32601);
}

#[tokio::test]
async fn partly_allowed_caller_sends_nothing() {
    let rules =
        "rules:\n  - { callers: \"key:ann\", tools: sing }\n  - { callers: \"key:ben\", agents: bard }\n";
    let card = Card::v1().skill("sing").skill("whisper");
    let stage = Stage::with(card, &format!("{}{rules}", auth(&["ann", "ben", "eve"])), "").await;
    stage.agent.on("SendMessage", |_| Reply::result(v1::message("la")));
    assert_eq!(call(&stage.by("ann"), "SendMessage", saying("x")).await.status, 403);
    call(&stage.by("ben"), "SendMessage", saying("x")).await.result().await;
    assert_eq!(
        call(&stage.by("eve"), "SendMessage", saying("x")).await.status,
        404,
        "it does not see the agent"
    );
    let shown = async |name: &str| {
        let card = stage.by(name).at("/a2a/bard/.well-known/agent-card.json").get(&[]).await.json().await;
        let skills = card["skills"].as_array().unwrap().clone();
        skills.iter().map(|skill| skill["id"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(shown("ann").await, ["sing"]);
    assert_eq!(shown("ben").await, ["sing", "whisper"]);
}

#[tokio::test]
async fn unreadable_answer_stays_with_gateway() {
    let stage = stage().await;
    let (task, _) = begun(&stage, "ann").await;
    stage
        .agent
        .on_get(|_| Reply::bytes_of("application/json", br#"{"result":{"id":"agent-task-1"},"result":{}}"#));
    let refused = call(&stage.by("ann"), "GetTask", json!({ "id": task })).await.text().await;
    assert!(refused.contains("-32603") && !refused.contains(TASK), "{refused}");
    stage.agent.on_stream(|_| Reply::stream().event(json!({})).bytes(b"data: {agent-task-1\n\n"));
    let text = call(&stage.by("ann"), "SendStreamingMessage", saying("x")).await.text().await;
    assert!(text.contains("-32603") && !text.contains(TASK), "{text}");
}

#[tokio::test]
async fn same_0_1_id_of_two_callers_is_two_tasks() {
    let stage =
        Stage::with(Card::v0_1().skill("sing"), &auth(&["ann", "ben"]), "    protocol: \"0.1\"\n").await;
    let finished = |request: &crate::support::Request| {
        Reply::result(v0_1::completed(request.params()["id"].as_str().unwrap(), "la"))
    };
    stage.agent.on("tasks/send", finished).on("tasks/get", finished);
    let said = async |name: &str, method: &str| {
        let message = json!({ "role": "user", "parts": [{ "type": "text", "text": "x" }] });
        let params = json!({ "id": "mine", "message": message });
        let request = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        stage.by(name).post(&request, &[]).await.result().await["id"].clone()
    };
    for name in ["ann", "ben"] {
        assert_eq!(said(name, "tasks/send").await, "mine");
        assert_eq!(said(name, "tasks/get").await, "mine");
    }
    let asked = |method: &str| -> Vec<Value> {
        stage.agent.calls(method).iter().map(|request| request.params()["id"].clone()).collect()
    };
    let begun = asked("tasks/send");
    assert!(begun[0] != begun[1] && begun[0] != "mine", "{begun:?}");
    assert_eq!(asked("tasks/get"), begun);
}
