//! Tasks of 2025-11-25: the client asks for one, looks how it stands, waits for its result, cancels
//! it.

use serde_json::{Value, json};

use crate::kit::scene::{RAW_CONTEXT, RAW_TASK, Scene, TOOL, words};
use crate::support::payload::v1;
use crate::support::{Card, LegacySession, Reply, ScriptedAgent, Signal, TestGateway};

const RAW: (&str, &str) = (RAW_TASK, RAW_CONTEXT);
const RELATED: &str = "io.modelcontextprotocol/related-task";
/// As an agent says that it does not cancel.
const NOT_CANCELABLE: i32 = -32002;

fn said(state: &str, text: &str) -> Value {
    v1::status_update(RAW_TASK, RAW_CONTEXT, state, Some(text))
}

/// Begins a task; its handle.
async fn begin(session: &LegacySession) -> String {
    let task = session.begin_task(TOOL, json!({ "text": "x" })).await;
    task["taskId"].as_str().unwrap().to_owned()
}

async fn error_of(session: &LegacySession, method: &str, task: &str) -> i64 {
    let answer = session.task(method, task).await;
    assert_eq!(answer.status, 200, "{method}: legacy clients lose the error of anything else");
    answer.error_code().await
}

#[tokio::test]
async fn task_is_created_and_read() {
    let scene = Scene::tuned("tasks: { ttl: 30m, poll_interval: 1500ms }").await;
    let go = scene.agent.works(RAW, [said("working", "second verse"), said("completed", "done")]);
    let session = scene.session().await;
    assert_eq!(
        session.initialized["capabilities"]["tasks"],
        json!({ "cancel": {}, "requests": { "tools": { "call": {} } } })
    );
    let params = json!({ "name": TOOL, "arguments": { "text": "x" }, "task": { "ttl": 60_000 } });
    let created = session.call("tools/call", params).await.result().await;
    for absent in ["resultType", "content", "isError", "taskId", "structuredContent"] {
        assert_eq!(created.get(absent), None, "{created}");
    }
    let told = &created["_meta"]["io.modelcontextprotocol/model-immediate-response"];
    let task = &created["task"];
    let handle = task["taskId"].as_str().unwrap();
    assert!(told.as_str().is_some_and(|told| told.contains(handle)), "{created}");
    assert!(!created.to_string().contains("raw-"), "{created}");
    assert_eq!((&task["status"], &task["pollInterval"]), (&json!("working"), &json!(1500)));
    assert_eq!(task["ttl"], 1_800_000, "what is, not what was asked for");
    for time in ["createdAt", "lastUpdatedAt"] {
        let text = task[time].as_str().unwrap();
        assert!(text.len() == 24 && text.contains('T') && text.ends_with('Z'), "{text}");
    }
    let seen = session.task("tasks/get", handle).await.result().await;
    assert_eq!((&seen["taskId"], &seen["status"]), (&json!(handle), &json!("working")));
    assert_eq!(seen["createdAt"], task["createdAt"]);
    for absent in ["task", "_meta", "result", "resultType", "ttlMs", "pollIntervalMs"] {
        assert_eq!(seen.get(absent), None, "{seen}");
    }
    go.fire();
    let done = session.task_until(handle, "completed").await;
    assert_eq!((&done["ttl"], &done["statusMessage"]), (&json!(1_800_000), &json!("done")));
    assert!(done["lastUpdatedAt"].as_str() >= done["createdAt"].as_str(), "{done}");
    assert_eq!(scene.agent.calls("SendStreamingMessage").len(), 1);
}

#[tokio::test]
async fn result_is_awaited_and_kept() {
    let scene = Scene::tuned("calls: { budget: 1s, stream_after: 100ms, keep_alive: 1s }").await;
    let go = scene.agent.works_for(RAW, "the song");
    let session = scene.session().await;
    let task = begin(&session).await;
    let mut early = session.task("tasks/result", &task).await;
    let other = session.task("tasks/result", &task).await;
    assert!(early.is_stream() && other.is_stream());
    // Longer than the budget of a call.
    for _ in 0..3 {
        let sign = early.next_piece().await.expect("a sign of life");
        assert!(sign.comment.is_some(), "{sign:?}");
    }
    // One who leaves takes nothing with it.
    drop(session.task("tasks/result", &task).await);
    go.fire();
    let result = early.result().await;
    assert_eq!((words(&result), &result["isError"]), ("the song", &json!(false)));
    assert_eq!(result["_meta"][RELATED], json!({ "taskId": task }));
    assert_eq!(result.get("resultType"), None);
    assert_eq!(other.result().await, result, "everybody gets the same");
    for _ in 0..2 {
        assert_eq!(session.task("tasks/result", &task).await.result().await, result, "and again");
    }
    let log = scene.agent.log();
    assert!(log.calls("CancelTask").is_empty());
    assert_eq!(log.calls("SendStreamingMessage").len() + log.calls("SubscribeToTask").len(), 1, "one stream");
}

#[tokio::test]
async fn waiting_client_gets_progress() {
    let scene = Scene::tuned("calls: { stream_after: 100ms }").await;
    let (go, then) = (Signal::new(), Signal::new());
    let begun = Reply::stream().event(v1::task(RAW_TASK, RAW_CONTEXT, "working")).wait(&go);
    let whole = begun.event(said("working", "second verse")).wait(&then).event(said("completed", "done"));
    scene.agent.on_send(move |_| whole.clone());
    let session = scene.session().await;
    let task = begin(&session).await;
    let params = json!({ "taskId": task, "_meta": { "progressToken": "p" } });
    let mut answer = session.call("tasks/result", params).await;
    // Its stream is open, so it listens.
    go.fire();
    let note = answer.next_message().await;
    assert_eq!(
        (&note["method"], &note["params"]["progressToken"]),
        (&json!("notifications/progress"), &json!("p"))
    );
    assert_eq!(note["params"]["message"], "second verse");
    then.fire();
    assert_eq!(words(&answer.finish().await.response["result"]), "done");
}

#[tokio::test]
async fn failed_task_says_why() {
    let broken = |text: &str| v1::status_update(RAW_TASK, RAW_CONTEXT, "failed", Some(text));
    for (last, status, why) in [
        (broken("no lute"), "failed", "no lute"),
        (v1::status_update(RAW_TASK, RAW_CONTEXT, "failed", None), "failed", "failed"),
        (said("rejected", "not for me"), "failed", "rejected: not for me"),
        (said("canceled", "the hall is closed"), "cancelled", "the hall is closed"),
    ] {
        let scene = Scene::new().await;
        let go = scene.agent.works(RAW, [last]);
        let session = scene.session().await;
        let task = begin(&session).await;
        go.fire();
        let failed = session.task_until(&task, status).await;
        let message = failed["statusMessage"].as_str().unwrap_or_else(|| panic!("{failed}"));
        assert!(message.contains(why), "{message}");
        let result = session.task("tasks/result", &task).await.result().await;
        assert_eq!(result["isError"], true, "{result}");
        assert_eq!(result["_meta"][RELATED]["taskId"], task);
    }
}

#[tokio::test]
async fn agent_without_task_gets_one_here() {
    let scene = Scene::new().await;
    let session = scene.session().await;
    for (reply, status, what) in [
        (Reply::events([v1::message("la")]), "completed", "la"),
        (Reply::result(v1::message("lo")), "completed", "lo"),
        (Reply::error(-32603, "no voice"), "failed", "no voice"),
    ] {
        scene.agent.on_send(move |_| reply.clone());
        let task = begin(&session).await;
        let seen = session.task_until(&task, status).await;
        let result = session.task("tasks/result", &task).await.result().await;
        assert_eq!(result["isError"], status == "failed", "{result}");
        let told = if status == "failed" { seen["statusMessage"].as_str().unwrap() } else { words(&result) };
        assert!(told.contains(what), "{told}");
    }
}

#[tokio::test]
async fn cancelled_task_is_stopped_at_agent() {
    let scene = Scene::new().await;
    let _go = scene.agent.works_for(RAW, "the song");
    scene.agent.on_cancel(|_| Reply::result(v1::bare_task(RAW_TASK, RAW_CONTEXT, "canceled")));
    let session = scene.session().await;
    let task = begin(&session).await;
    let waiting = session.clone();
    let (named, wait) = (task.clone(), scene.agent.wait_for_call("SendStreamingMessage"));
    wait.await;
    let result = tokio::spawn(async move { waiting.task("tasks/result", &named).await.result().await });
    let cancelled = session.task("tasks/cancel", &task).await.result().await;
    assert_eq!((&cancelled["taskId"], &cancelled["status"]), (&json!(task), &json!("cancelled")));
    assert!(cancelled["createdAt"].is_string() && cancelled.get("task").is_none(), "{cancelled}");
    assert_eq!(result.await.unwrap()["isError"], true, "who waited is told");
    assert_eq!(error_of(&session, "tasks/cancel", &task).await, -32602);
    assert_eq!(session.task("tasks/get", &task).await.result().await["status"], "cancelled");
    let asked = scene.agent.calls("CancelTask");
    assert_eq!((asked.len(), &asked[0].params()["id"]), (1, &json!(RAW_TASK)));
}

#[tokio::test]
async fn cancelled_task_stays_cancelled() {
    let working = || Reply::result(v1::bare_task(RAW_TASK, RAW_CONTEXT, "working"));
    for refusal in [
        Reply::error(NOT_CANCELABLE, "Task cannot be canceled"),
        Reply::error(-32601, "Method not found"),
        Reply::status(500, "broken"),
        working(),
    ] {
        let scene = Scene::new().await;
        let go = scene.agent.works_for(RAW, "the song");
        scene.agent.on_cancel(move |_| refusal.clone());
        let session = scene.session().await;
        let task = begin(&session).await;
        let cancelled = session.task("tasks/cancel", &task).await.result().await;
        assert_eq!(cancelled["status"], "cancelled");
        assert!(!scene.agent.calls("CancelTask").is_empty());
        go.open();
        let number = scene.agent.calls("SendStreamingMessage")[0].number;
        scene.agent.wait_for("the end of its work", |log| log.answered.contains(&number)).await;
        scene.agent.on_get(|_| Reply::result(v1::bare_completed(RAW_TASK, RAW_CONTEXT, "the song")));
        // The extension believes the agent: so it is seen that the gateway has heard of the end.
        let modern = scene.gateway.client().with_tasks();
        assert_eq!(words(&modern.task_until(&task, "completed").await["result"]), "the song");
        let seen = session.task("tasks/get", &task).await.result().await;
        assert_eq!(seen["status"], "cancelled", "{seen}");
        let result = session.task("tasks/result", &task).await.result().await;
        assert_eq!(result["isError"], true, "{result}");
        assert!(!result.to_string().contains("the song"), "{result}");
        assert_eq!(error_of(&session, "tasks/cancel", &task).await, -32602);
    }
}

#[tokio::test]
async fn ended_task_cannot_be_cancelled() {
    for state in ["completed", "failed", "rejected", "canceled"] {
        let scene = Scene::new().await;
        scene
            .agent
            .on_send(move |_| Reply::events([v1::task(RAW_TASK, RAW_CONTEXT, "working"), said(state, "so")]));
        let session = scene.session().await;
        let task = begin(&session).await;
        session.task("tasks/result", &task).await.result().await;
        assert_eq!(error_of(&session, "tasks/cancel", &task).await, -32602, "{state}");
        assert!(scene.agent.calls("CancelTask").is_empty(), "some agents rewrite what is over");
    }
}

#[tokio::test]
async fn anonymous_tasks_are_not_listed() {
    let scene = Scene::new().await;
    let _go = scene.agent.works_for(RAW, "the song");
    let session = scene.session().await;
    begin(&session).await;
    let answer = session.call("tasks/list", json!({})).await;
    assert_eq!((answer.status, answer.error_code().await), (200, -32601));
    assert_eq!(session.initialized["capabilities"]["tasks"].get("list"), None);
}

#[tokio::test]
async fn foreign_tasks_are_unknown() {
    let (bard, poet) = (
        ScriptedAgent::start(Card::v1().skill("sing")).await,
        ScriptedAgent::start(Card::v1().skill("sing")).await,
    );
    let gateway = TestGateway::before(&[("bard", &bard), ("poet", &poet)]).await;
    let stranger = TestGateway::before(&[("bard", &bard)]).await;
    let _go = bard.works_for(RAW, "the song");
    let session = gateway.client().legacy().await;
    let task = begin(&session).await;
    let (head, last) = task.split_at(task.len() - 1);
    let flipped = format!("{head}{}", if last == "A" { "Q" } else { "A" });
    let behind_another_door = gateway.client_of("poet").legacy().await;
    let elsewhere = stranger.client().legacy().await;
    let mut texts = Vec::new();
    for method in ["tasks/get", "tasks/result", "tasks/cancel"] {
        for (session, task) in [
            (&session, RAW_TASK),
            (&session, "made-up"),
            (&session, ""),
            (&session, head),
            (&session, &flipped),
            (&behind_another_door, &task),
            (&elsewhere, &task),
        ] {
            let answer = session.task(method, task).await;
            assert_eq!(answer.status, 200);
            let error = answer.json().await["error"].clone();
            assert_eq!(error["code"], -32602, "{method} {task}: {error}");
            texts.push(error["message"].clone());
        }
        let missing = session.call(method, json!({})).await;
        assert_eq!(missing.error_code().await, -32602, "{method} without taskId");
    }
    texts.dedup();
    assert_eq!(texts.len(), 1, "all read the same: {texts:?}");
    assert!(bard.calls("CancelTask").is_empty() && poet.calls("GetTask").is_empty());
    // Another session of the same caller is no other.
    let again = gateway.client_of("bard").legacy().await;
    assert_eq!(again.task("tasks/get", &task).await.result().await["status"], "working");
}

#[tokio::test]
async fn older_revisions_have_no_tasks() {
    let scene = Scene::new().await;
    let _go = scene.agent.works_for(RAW, "the song");
    let task = begin(&scene.session().await).await;
    for version in ["2024-11-05", "2025-03-26", "2025-06-18"] {
        let session = scene.gateway.client().legacy_version(version).await;
        assert_eq!(session.initialized["capabilities"].get("tasks"), None, "{version}");
        for method in ["tasks/get", "tasks/result", "tasks/cancel", "tasks/list", "tasks/update"] {
            assert_eq!(error_of(&session, method, &task).await, -32601, "{version} {method}");
        }
    }
    assert_eq!(error_of(&scene.session().await, "tasks/update", &task).await, -32601);
    for client in [scene.gateway.client(), scene.gateway.client().with_tasks()] {
        for method in ["tasks/result", "tasks/list"] {
            let answer = client.modern(method, json!({ "taskId": task })).await;
            assert_eq!((answer.status, answer.error_code().await), (404, -32601), "{method}");
        }
    }
}
