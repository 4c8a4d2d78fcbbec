//! Races of several requests in one task: answers, looks, cancellations and waits.
//!
//! Out of scope: each of them by itself (see the journeys of their names).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::kit::quiz::{
    KEY, Quiz, answers, asked_on_stream, authorization, begun, gateway_before, question, reply, scene,
    two_at_once, until_asked,
};
use crate::kit::scene::{RAW_CONTEXT, RAW_TASK, Scene, TOOL, task_of, words};
use crate::support::payload::v1;
use crate::support::{McpClient, Reply, Signal, in_order, in_time};

const RAW: (&str, &str) = (RAW_TASK, RAW_CONTEXT);
const WORKS: &str = "calls: { task_after: 0s }";

/// The task resource as it is now.
async fn seen(client: &McpClient, task: &str) -> Value {
    let params = json!({ "uri": format!("a2a://task/{task}") });
    let result = client.modern("resources/read", params).await.result().await;
    serde_json::from_str(result["contents"][0]["text"].as_str().unwrap()).unwrap()
}

#[tokio::test]
async fn refused_partial_answer_is_asked_again() {
    let (scene, quiz) = scene("", [two_at_once()]).await;
    let session = asked_on_stream(&scene.gateway, "2025-11-25").await;
    let (mut call, asked) = until_asked(&session).await;
    session.respond(&asked["id"], reply("Ulm")).await;
    let next = call.next_message().await;
    scene.agent.on_send(|_| Reply::error(-32602, "not now"));
    session.respond(&next["id"], reply("Rom")).await;
    let refused = call.result().await;
    assert!(refused.to_string().contains("not now"), "{refused}");
    scene.agent.on_send(move |request| quiz.take(request));
    let task = refused["structuredContent"]["taskId"].clone();
    let mut again = session.call_tool(TOOL, json!({ "taskId": task })).await;
    for (question, answer) in [("From where?", "Ulm"), ("To where?", "Rom")] {
        let asked = in_time(question, again.next_message()).await;
        assert_eq!(asked["params"]["message"], question, "{asked}");
        session.respond(&asked["id"], reply(answer)).await;
    }
    assert_eq!(words(&again.result().await), "thank you");
}

#[tokio::test]
async fn late_answer_survives_further_text() {
    let scene = Scene::tuned("calls: { budget: 1s, max_rounds: 0, stream_after: 100ms }").await;
    let go = Signal::new();
    let wait = go.clone();
    scene.agent.on_send(move |request| match request.text().as_str() {
        "sing" => Reply::stream().wait(&wait).event(v1::message("at last")),
        _ => Reply::stream().event(v1::message("more")),
    });
    let task = task_of(&scene.said("sing").await);
    go.fire();
    let late = async || scene.call(json!({ "taskId": task })).await.result().await;
    assert_eq!(words(&late().await), "at last");
    let more = scene.call(json!({ "taskId": task, "text": "on" })).await.result().await;
    assert_eq!(words(&more), "more", "{more}");
    assert_eq!(words(&late().await), "at last", "what was said once stays said");
}

#[tokio::test]
async fn silent_agent_holds_no_look_up() {
    let scene = Scene::tuned(&format!("{KEY}\n{WORKS}")).await;
    let _go = scene.agent.works_for(RAW, "the song");
    let call = json!({ "name": TOOL, "arguments": { "text": "x" } });
    let task = scene.gateway.client().with_tasks().modern("tools/call", call).await.result().await;
    let task = task["taskId"].as_str().unwrap().to_owned();
    scene.agent.on_get(|_| Reply::silence());
    let other = gateway_before(&scene.agent, KEY).await;
    // A failure that says so, and soon; not the silence of the agent.
    let answer = other.client().with_tasks().task("tasks/get", &task).await.json().await;
    assert!(answer["error"]["code"].is_number(), "{answer}");
}

#[tokio::test]
async fn task_asking_once_named_is_still_stopped() {
    let scene = Scene::tuned("calls: { budget: 1s, max_rounds: 0, stream_after: 100ms }").await;
    let name = Signal::new();
    let asks = Reply::stream().wait(&name).event(v1::asking(RAW_TASK, RAW_CONTEXT, "Which?"));
    scene.agent.on_send(move |_| asks.clone());
    scene.agent.on_get(|_| Reply::result(v1::bare_task(RAW_TASK, RAW_CONTEXT, "input-required")));
    scene.agent.on_cancel(|_| Reply::result(v1::bare_task(RAW_TASK, RAW_CONTEXT, "canceled")));
    let task = task_of(&scene.said("sing").await);
    let params = json!({ "name": "subagent_cancel", "arguments": { "taskId": task } });
    let told = scene.gateway.client().modern("tools/call", params).await.result().await;
    assert_eq!(told["structuredContent"]["canceled"], true, "{told}");
    name.fire();
    assert_eq!(scene.agent.wait_for_call("CancelTask").await.params()["id"], RAW_TASK);
}

#[tokio::test]
async fn result_waiter_hears_of_cancel() {
    let scene = Scene::tuned("calls: { task_after: 0s, stream_after: 0s }").await;
    let _go = scene.agent.works_for(RAW, "the song");
    scene.agent.on_cancel(|_| Reply::error(-32002, "Task cannot be canceled"));
    let session = scene.session().await;
    let task = session.begin_task(TOOL, json!({ "text": "x" })).await;
    let handle = task["taskId"].as_str().unwrap();
    let waiting = session.task("tasks/result", handle).await;
    assert!(waiting.is_stream());
    assert_eq!(session.task("tasks/cancel", handle).await.result().await["status"], "cancelled");
    let result = in_time("the end of the wait", waiting.result()).await;
    assert_eq!(result["isError"], true, "{result}");
    assert_eq!(words(&result), "The task was cancelled.");
}

#[tokio::test]
async fn unseen_authorization_is_waited_out() {
    let scene =
        Scene::tuned(&format!("{KEY}\ncalls: {{ budget: 1s, max_rounds: 0, stream_after: 100ms }}")).await;
    let quiz = Quiz::of(&scene.agent, [authorization("Sign in.")]);
    let task = task_of(&scene.said("pay").await);
    let other = gateway_before(&scene.agent, &format!("{KEY}\ncalls: {{ stream_after: 0s }}")).await;
    let waiting =
        other.client().modern("tools/call", json!({ "name": TOOL, "arguments": { "taskId": task } })).await;
    assert!(waiting.is_stream());
    quiz.go_on();
    assert_eq!(words(&in_time("the end", waiting.result()).await), "thank you");
}

/// A look that began before the stream and ends after its first events.
#[tokio::test]
async fn old_look_takes_nothing_from_stream() {
    let scene = Scene::tuned(&format!("{KEY}\n{WORKS}")).await;
    scene.agent.on_send(|_| Reply::stream().event(begun()).stall());
    let call = json!({ "name": TOOL, "arguments": { "text": "x" } });
    let task = scene.gateway.client().with_tasks().modern("tools/call", call).await.result().await;
    let task = task["taskId"].as_str().unwrap();
    let (hold, go) = (Signal::new(), Signal::new());
    let mut snapshot = v1::bare_task(RAW_TASK, RAW_CONTEXT, "working");
    let first = v1::artifact_update(RAW_TASK, RAW_CONTEXT, "a", false, false);
    snapshot["artifacts"] = json!([first["artifactUpdate"]["artifact"]]);
    let chunk = |text: &str| v1::artifact_update(RAW_TASK, RAW_CONTEXT, text, true, false);
    let stream =
        Reply::stream().event(json!({ "task": snapshot })).event(chunk("b")).wait(&go).event(chunk("c"));
    let stream = stream.event(v1::status_update(RAW_TASK, RAW_CONTEXT, "completed", None));
    scene.agent.on_subscribe(move |_| stream.clone());
    let asked = Arc::new(AtomicUsize::new(0));
    let (held, count) = (hold.clone(), asked.clone());
    scene.agent.on_get(move |_| {
        let found = Reply::result(snapshot.clone());
        // The first one fills the entry, the second is the one that is late.
        if count.fetch_add(1, Ordering::SeqCst) == 1 { found.after(&held) } else { found }
    });
    let other = gateway_before(&scene.agent, KEY).await;
    let client = other.client().with_tasks();
    let late = async { client.task("tasks/get", task).await.result().await };
    let meanwhile = async {
        scene.agent.wait_for("two looks", |log| log.calls("GetTask").len() >= 2).await;
        let is_there = async || seen(&client, task).await["artifacts"].to_string().contains("\"b\"");
        in_time("the first events", async { while !is_there().await {} }).await;
        hold.fire();
    };
    tokio::join!(late, meanwhile);
    go.fire();
    let done = client.task_until(task, "completed").await;
    assert_eq!(words(&done["result"]), "abc", "{done}");
    assert!(answers(&scene.agent).is_empty());
}

#[tokio::test]
async fn one_agent_error_does_not_end_task() {
    let scene = Scene::tuned(WORKS).await;
    scene.agent.on_send(|_| Reply::stream().event(begun()).cut());
    let done = Reply::result(v1::bare_completed(RAW_TASK, RAW_CONTEXT, "the song"));
    scene.agent.on_get(in_order([Reply::error(-32603, "Internal error"), done]));
    scene.agent.on_subscribe(|_| Reply::error(-32603, "Internal error"));
    let call = json!({ "name": TOOL, "arguments": { "text": "x" } });
    let client = scene.gateway.client().with_tasks();
    let task = client.modern("tools/call", call).await.result().await;
    let done = client.task_until(task["taskId"].as_str().unwrap(), "completed").await;
    assert_eq!(words(&done["result"]), "the song");
}

#[tokio::test]
async fn task_is_stopped_once_for_many_requests() {
    let scene = Scene::tuned(WORKS).await;
    let go = scene.agent.works_for(RAW, "the song");
    let answer = Signal::new();
    let held = Reply::error(-32002, "Task cannot be canceled").after(&answer);
    scene.agent.on_cancel(move |_| held.clone());
    let client = scene.gateway.client().with_tasks();
    let call = json!({ "name": TOOL, "arguments": { "text": "x" } });
    let task = client.modern("tools/call", call).await.result().await;
    let task = task["taskId"].as_str().unwrap();
    for _ in 0..20 {
        client.task("tasks/cancel", task).await.result().await;
    }
    scene.agent.wait_for_call("CancelTask").await;
    answer.fire();
    go.fire();
    client.task_until(task, "completed").await;
    assert_eq!(scene.agent.calls("CancelTask").len(), 1);
}

#[tokio::test]
async fn answer_elsewhere_is_noticed() {
    let (scene, quiz) = scene(KEY, [question("Which?")]).await;
    let asked = json!({ "task": quiz.task() });
    scene.agent.on_stream(move |_| Reply::stream().event(asked.clone()).stall());
    let session = asked_on_stream(&scene.gateway, "2025-11-25").await;
    let (call, _) = until_asked(&session).await;
    quiz.go_on();
    assert_eq!(words(&call.result().await), "thank you");
}
