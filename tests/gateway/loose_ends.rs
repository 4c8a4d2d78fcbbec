//! What several things at once must not break: answers, looks, cancellations and waits that meet in one task.
//!
//! Not here: each of them by itself (see the journeys of their names).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::quiz::{
    KEY, Quiz, answers, asked_on_stream, authorization, begun, gateway_before, reply, scene, two_at_once,
    until_asked,
};
use crate::scene::{RAW_CONTEXT, RAW_TASK, Scene, TOOL, task_of, words};
use crate::support::payload::v1;
use crate::support::{McpClient, Reply, Signal, in_time};

const RAW: (&str, &str) = (RAW_TASK, RAW_CONTEXT);
const WORKS: &str = "calls: { task_after: 0s }";

/// The task resource as it is now.
async fn seen(client: &McpClient, task: &str) -> Value {
    let params = json!({ "uri": format!("a2a://task/{task}") });
    let result = client.modern("resources/read", params).await.result().await;
    serde_json::from_str(result["contents"][0]["text"].as_str().unwrap()).unwrap()
}

#[tokio::test]
async fn what_the_agent_refused_piece_by_piece_is_asked_again() {
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
async fn an_answer_that_came_late_is_not_lost_to_whoever_says_more() {
    let scene = Scene::tuned("calls: { budget: 1s, legs: 0, stream_after: 100ms }").await;
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
