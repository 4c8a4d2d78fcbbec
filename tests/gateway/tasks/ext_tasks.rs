//! Tasks of the extension of 2026-07-28: the gateway decides that a call becomes one; its client
//! gets, updates and cancels it.

use serde_json::{Value, json};

use crate::kit::scene::{RAW_CONTEXT, RAW_TASK, Scene, TOOL, words};
use crate::support::client::MODERN;
use crate::support::payload::v1;
use crate::support::tasks::EXTENSION;
use crate::support::{Answer, Card, McpClient, Reply, ScriptedAgent, Signal, TestGateway, in_order};

const RAW: (&str, &str) = (RAW_TASK, RAW_CONTEXT);
const QUICK: &str = "calls: { task_after: 0s }";

fn said(state: &str, text: &str) -> Value {
    v1::status_update(RAW_TASK, RAW_CONTEXT, state, Some(text))
}

/// Calls until the gateway makes a task of it; the task.
async fn begin(client: &McpClient) -> Value {
    let params = json!({ "name": TOOL, "arguments": { "text": "x" } });
    let task = client.modern("tools/call", params).await.result().await;
    assert_eq!(task["resultType"], "task", "{task}");
    task
}

fn id_of(task: &Value) -> &str {
    task["taskId"].as_str().unwrap_or_else(|| panic!("no task: {task}"))
}

/// Acknowledged, and nothing more.
async fn acknowledged(answer: Answer) {
    let result = answer.result().await;
    assert_eq!(result["resultType"], "complete");
    for absent in ["taskId", "status", "result", "error", "inputRequests"] {
        assert_eq!(result.get(absent), None, "{result}");
    }
}

#[tokio::test]
async fn task_has_shape_of_extension() {
    let scene = Scene::tuned(&format!("{QUICK}\ntasks: {{ ttl: 30m, poll_interval: 1500ms }}")).await;
    let go = scene.agent.works(RAW, [said("working", "second verse"), said("completed", "done")]);
    let client = scene.gateway.client().with_tasks();
    let found = client.modern("server/discover", json!({})).await.result().await;
    assert_eq!(found["capabilities"]["extensions"][EXTENSION], json!({}));
    assert_eq!(found["capabilities"].get("tasks"), None);
    let created = begin(&client).await;
    let task = id_of(&created);
    assert!(
        task.len() <= 512 && task.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
    );
    // It is there before its client hears of it.
    let seen = client.task("tasks/get", task).await.result().await;
    assert_eq!((&seen["resultType"], &seen["taskId"]), (&json!("complete"), &json!(task)));
    for shape in [&created, &seen] {
        assert_eq!(shape["status"], "working", "{shape}");
        assert_eq!((&shape["ttlMs"], &shape["pollIntervalMs"]), (&json!(1_800_000), &json!(1500)));
        for time in ["createdAt", "lastUpdatedAt"] {
            let text = shape[time].as_str().unwrap();
            assert!(text.len() == 24 && text.contains('T') && text.ends_with('Z'), "{text}");
        }
        for absent in
            ["task", "ttl", "pollInterval", "requestState", "result", "error", "inputRequests", "content"]
        {
            assert_eq!(shape.get(absent), None, "{shape}");
        }
        assert!(!shape.to_string().contains("raw-"), "{shape}");
    }
    assert_eq!(seen["createdAt"], created["createdAt"]);
    go.fire();
    let done = client.task_until(task, "completed").await;
    assert_eq!((&done["resultType"], &done["statusMessage"]), (&json!("complete"), &json!("done")));
    assert_eq!((words(&done["result"]), &done["result"]["isError"]), ("done", &json!(false)));
    assert_eq!((done["result"].get("_meta"), &done["result"]["resultType"]), (None, &json!("complete")));
    assert_eq!(done.get("error"), None);
    // It stays.
    assert_eq!(client.task("tasks/get", task).await.result().await["result"], done["result"]);
    assert_eq!(scene.agent.calls("SendStreamingMessage").len(), 1);
}

#[tokio::test]
async fn undeclared_extension_is_reported() {
    let scene = Scene::tuned(QUICK).await;
    let _go = scene.agent.works_for(RAW, "the song");
    let knowing = scene.gateway.client().with_tasks();
    let created = begin(&knowing).await;
    let client =
        scene.gateway.client().capabilities(json!({ "elicitation": {}, "extensions": { "x/y": {} } }));
    for task in [id_of(&created), "gate-test", ""] {
        for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
            let params = json!({ "taskId": task, "inputResponses": {} });
            let refused = client.modern(method, params).await;
            assert_eq!(refused.status, 400, "{method} {task}");
            let error = refused.json().await["error"].clone();
            assert_eq!(error["code"], -32021, "{method} {task}: {error}");
            assert_eq!(error["data"]["requiredCapabilities"]["extensions"], json!({ EXTENSION: {} }));
        }
    }
    assert!(scene.agent.calls("CancelTask").is_empty());
    // A capability that one request declares counts for that request.
    let params = json!({ "taskId": id_of(&created), "_meta": {
        "io.modelcontextprotocol/clientCapabilities": { "extensions": { EXTENSION: {} } },
    }});
    assert_eq!(client.modern("tasks/get", params).await.result().await["status"], "working");
}

#[tokio::test]
async fn agent_failure_is_completed_result() {
    for (last, what) in [
        (said("failed", "no lute"), "no lute"),
        (v1::status_update(RAW_TASK, RAW_CONTEXT, "failed", None), "failed"),
        (said("rejected", "not for me"), "not for me"),
    ] {
        let scene = Scene::tuned(QUICK).await;
        let go = scene.agent.works(RAW, [last]);
        let client = scene.gateway.client().with_tasks();
        let created = begin(&client).await;
        go.fire();
        let done = client.task_until(id_of(&created), "completed").await;
        assert_eq!(done["result"]["isError"], true, "{done}");
        assert!(words(&done["result"]).contains(what), "{done}");
        assert_eq!(done.get("error"), None);
    }
}

#[tokio::test]
async fn protocol_failure_is_failed_with_error() {
    let scene = Scene::tuned(QUICK).await;
    let go = Signal::new();
    let stream = Reply::stream().event(v1::task(RAW_TASK, RAW_CONTEXT, "working")).wait(&go);
    let stream = stream.error_event(-32603, "Internal error");
    scene.agent.on_send(move |_| stream.clone());
    scene.agent.on_get(|_| Reply::error(-32603, "Internal error"));
    let client = scene.gateway.client().with_tasks();
    let created = begin(&client).await;
    go.fire();
    let failed = client.task_until(id_of(&created), "failed").await;
    assert_eq!(failed["error"]["code"], -32603, "{failed}");
    assert!(failed["error"]["message"].as_str().is_some_and(|text| !text.is_empty()), "{failed}");
    assert_eq!(failed.get("result"), None);
    assert_eq!(failed["resultType"], "complete");
    assert!(!failed.to_string().contains("raw-"), "{failed}");
}

#[tokio::test]
async fn task_lost_by_agent_has_failed() {
    let scene = Scene::tuned(QUICK).await;
    let go = Signal::new();
    let stream = Reply::stream().event(v1::task(RAW_TASK, RAW_CONTEXT, "working")).wait(&go).cut();
    scene.agent.on_send(move |_| stream.clone());
    scene.agent.on_get(|_| Reply::error(-32001, "Task not found"));
    let client = scene.gateway.client().with_tasks();
    let created = begin(&client).await;
    go.fire();
    let failed = client.task_until(id_of(&created), "failed").await;
    assert!(failed["error"]["code"].is_i64() && failed.get("result").is_none(), "{failed}");
}

#[tokio::test]
async fn cancel_is_left_to_agent() {
    let scene = Scene::tuned(QUICK).await;
    let go = scene.agent.works_for(RAW, "the song");
    let client = scene.gateway.client().with_tasks();
    let canceled = v1::bare_task(RAW_TASK, RAW_CONTEXT, "canceled");
    let refusal = Reply::error(-32002, "Task cannot be canceled");
    scene.agent.on_cancel(in_order([refusal, Reply::result(canceled)]));
    let created = begin(&client).await;
    let task = id_of(&created);
    acknowledged(client.task("tasks/cancel", task).await).await;
    // The agent's answer to that has been read: it is asked for the state of the task.
    scene.agent.wait_for_call("GetTask").await;
    assert_eq!(client.task("tasks/get", task).await.result().await["status"], "working", "it was refused");
    acknowledged(client.task("tasks/cancel", task).await).await;
    let seen = client.task_until(task, "cancelled").await;
    for absent in ["result", "error", "inputRequests"] {
        assert_eq!(seen.get(absent), None, "{seen}");
    }
    let asked = scene.agent.calls("CancelTask");
    assert_eq!((asked.len(), &asked[1].params()["id"]), (2, &json!(RAW_TASK)));
    for _ in 0..2 {
        acknowledged(client.task("tasks/cancel", task).await).await;
    }
    assert_eq!(client.task("tasks/get", task).await.result().await["status"], "cancelled");
    go.open();
    assert_eq!(scene.agent.calls("CancelTask").len(), 2, "what is over is not cancelled");
}

#[tokio::test]
async fn cancel_of_ended_task_goes_nowhere() {
    let scene = Scene::tuned(QUICK).await;
    let go = scene.agent.works_for(RAW, "the song");
    let client = scene.gateway.client().with_tasks();
    let created = begin(&client).await;
    go.fire();
    client.task_until(id_of(&created), "completed").await;
    for _ in 0..2 {
        acknowledged(client.task("tasks/cancel", id_of(&created)).await).await;
    }
    assert_eq!(words(&client.task_until(id_of(&created), "completed").await["result"]), "the song");
    assert!(scene.agent.calls("CancelTask").is_empty(), "some agents rewrite what is over");
}

#[tokio::test]
async fn question_is_answered_with_update() {
    let scene = Scene::tuned(QUICK).await;
    let go = scene.agent.works(RAW, [v1::asking(RAW_TASK, RAW_CONTEXT, "Which colour?")]);
    let client = scene.gateway.client();
    let able = json!({ "elicitation": {}, "extensions": { EXTENSION: {} } });
    let client = client.capabilities(able);
    let created = begin(&client).await;
    let task = id_of(&created);
    // No question is open yet: these answers have none.
    let update = async |responses: Value| {
        client.modern("tasks/update", json!({ "taskId": task, "inputResponses": responses })).await
    };
    acknowledged(update(json!({ "early": { "action": "accept", "content": {} } })).await).await;
    let asking = v1::asking(RAW_TASK, RAW_CONTEXT, "Which colour?")["task"].clone();
    scene.agent.on_get(move |_| Reply::result(asking.clone()));
    go.fire();
    let asked = client.task_until(task, "input_required").await;
    let requests = asked["inputRequests"].as_object().unwrap_or_else(|| panic!("{asked}"));
    let (key, request) = requests.iter().next().expect("a question");
    assert_eq!((requests.len(), &request["method"]), (1, &json!("elicitation/create")));
    assert_eq!(request["params"]["message"], "Which colour?");
    assert_eq!((asked.get("result"), asked.get("requestState")), (None, None));
    let again = client.task("tasks/get", task).await.result().await;
    assert_eq!(again["inputRequests"], asked["inputRequests"], "the same question is the same question");
    acknowledged(update(json!({ "unknown-key": { "ignored": true } })).await).await;
    assert_eq!(client.task("tasks/get", task).await.result().await["status"], "input_required");
    scene.agent.on_send(|_| Reply::events([v1::completed(RAW_TASK, RAW_CONTEXT, "blue it is")]));
    let answer = json!({ key.clone(): { "action": "accept", "content": { "reply": "blue" } } });
    acknowledged(update(answer.clone()).await).await;
    assert_eq!(words(&client.task_until(task, "completed").await["result"]), "blue it is");
    acknowledged(update(answer).await).await;
    // While the stream of the question is still read, the answer goes beside it.
    let sent = [scene.agent.calls("SendStreamingMessage"), scene.agent.calls("SendMessage")].concat();
    assert_eq!((sent.len(), &sent[1].message()["taskId"]), (2, &json!(RAW_TASK)));
    let missing = client.modern("tasks/update", json!({ "taskId": task })).await;
    assert_eq!(missing.error_code().await, -32602, "inputResponses is missing");
}

#[tokio::test]
async fn unaskable_client_gets_question() {
    let scene = Scene::tuned(QUICK).await;
    let go = scene.agent.works(RAW, [v1::asking(RAW_TASK, RAW_CONTEXT, "Which colour?")]);
    let client = scene.gateway.client().with_tasks();
    let created = begin(&client).await;
    let asking = v1::asking(RAW_TASK, RAW_CONTEXT, "Which colour?")["task"].clone();
    scene.agent.on_get(move |_| Reply::result(asking.clone()));
    go.fire();
    let done = client.task_until(id_of(&created), "completed").await;
    assert_eq!(done["result"]["structuredContent"]["state"], "input-required", "{done}");
    assert!(words(&done["result"]).contains("Which colour?"), "{done}");
}

#[tokio::test]
async fn contradicting_headers_are_refused() {
    let scene = Scene::tuned(QUICK).await;
    let _go = scene.agent.works_for(RAW, "the song");
    let client = scene.gateway.client().with_tasks();
    let created = begin(&client).await;
    let task = id_of(&created);
    for (method, in_header, name) in [
        ("tasks/get", "tasks/get", Some("another-task")),
        ("tasks/get", "tasks/get", None),
        ("tasks/get", "tasks/cancel", Some(task)),
        ("tasks/update", "tasks/update", Some("another-task")),
        ("tasks/cancel", "tasks/cancel", Some("another-task")),
        ("tools/call", "tasks/get", Some(TOOL)),
    ] {
        let params = json!({ "taskId": task, "name": TOOL, "arguments": {}, "inputResponses": {} });
        let mut headers = vec![("MCP-Protocol-Version", MODERN), ("Mcp-Method", in_header)];
        headers.extend(name.map(|name| ("Mcp-Name", name)));
        let refused = client.post(&client.request(method, &client.with_meta(params)), &headers).await;
        assert_eq!(
            (refused.status, refused.error_code().await),
            (400, -32020),
            "{method} {in_header} {name:?}"
        );
    }
    assert!(scene.agent.calls("CancelTask").is_empty());
    assert_eq!(client.task("tasks/get", task).await.result().await["status"], "working");
}

#[tokio::test]
async fn foreign_tasks_are_unknown() {
    let (bard, poet) = (
        ScriptedAgent::start(Card::v1().skill("sing")).await,
        ScriptedAgent::start(Card::v1().skill("sing")).await,
    );
    let gateway = TestGateway::start(|ports| {
        let (listeners, bard, poet) = (ports.listeners(), bard.card_url(), poet.card_url());
        format!("{listeners}{QUICK}\nagents:\n  bard:\n    card: {bard}\n  poet:\n    card: {poet}\n")
    })
    .await;
    let stranger = TestGateway::before(&[("bard", &bard)]).await;
    let _go = bard.works_for(RAW, "the song");
    let client = gateway.client().with_tasks();
    let created = begin(&client).await;
    let task = id_of(&created);
    let mut texts = Vec::new();
    for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
        for (client, task) in [
            (&client, RAW_TASK),
            (&client, "made-up"),
            (&client, task.split_at(1).1),
            (&gateway.client_of("poet").with_tasks(), task),
            (&stranger.client().with_tasks(), task),
        ] {
            let params = json!({ "taskId": task, "inputResponses": {} });
            let answer = client.modern(method, params).await;
            assert_eq!(answer.status, 200);
            let error = answer.json().await["error"].clone();
            assert_eq!(error["code"], -32602, "{method} {task}: {error}");
            texts.push(error["message"].clone());
        }
    }
    texts.dedup();
    assert_eq!(texts.len(), 1, "all read the same: {texts:?}");
    assert!(bard.calls("CancelTask").is_empty() && poet.calls("GetTask").is_empty());
    assert_eq!(client.task("tasks/get", task).await.result().await["status"], "working");
}

#[tokio::test]
async fn task_outlives_its_client() {
    let scene = Scene::tuned(QUICK).await;
    let go = scene.agent.works_for(RAW, "the song");
    let created = {
        let client = scene.gateway.client().with_tasks();
        let created = begin(&client).await;
        // It leaves while it asks.
        drop(client.task("tasks/get", id_of(&created)).await);
        created
    };
    let number = scene.agent.calls("SendStreamingMessage")[0].number;
    go.fire();
    let log = scene.agent.wait_for("the end of its stream", |log| log.answered.contains(&number)).await;
    assert!(!log.left.contains(&number) && log.calls("CancelTask").is_empty());
    let later = scene.gateway.client().with_tasks();
    assert_eq!(words(&later.task_until(id_of(&created), "completed").await["result"]), "the song");
}
