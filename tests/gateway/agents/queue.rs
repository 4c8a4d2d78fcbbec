//! Calls over an agent's cap wait in line: in their order, so many, so long; a client that leaves
//! gives up its position.

use std::sync::{Arc, Mutex};

use serde_json::json;
use tokio::task::JoinHandle;

use crate::kit::scene::{Scene, TOOL};
use crate::support::payload::v1;
use crate::support::{Answer, Card, Reply, Signal, in_time};

/// An agent that takes one call at a time, and the texts in the order in which it heard them. It
/// answers at each signal.
async fn scene(queue: &str) -> (Scene, Arc<Mutex<Vec<String>>>, Signal) {
    let scene = Scene::of(Card::v1().skill("sing"), &format!("max_calls: 1\nqueue: {queue}"), "").await;
    let (heard, go) = (Arc::<Mutex<Vec<String>>>::default(), Signal::new());
    let (said, wait) = (heard.clone(), go.clone());
    scene.agent.on_send(move |request| {
        said.lock().unwrap().push(request.text());
        Reply::events([v1::message("la")]).after(&wait)
    });
    (scene, heard, go)
}

fn called(scene: &Scene, text: &str) -> JoinHandle<u16> {
    let (client, text) = (scene.gateway.client(), text.to_owned());
    tokio::spawn(async move {
        client.modern("tools/call", json!({ "name": TOOL, "arguments": { "text": text } })).await.status
    })
}

async fn answered(scene: &Scene, text: &str) -> Answer {
    scene.gateway.client().modern("tools/call", json!({ "name": TOOL, "arguments": { "text": text } })).await
}

/// Waits until so many calls wait.
async fn until_waiting(scene: &Scene, count: usize) {
    let line = format!("mcp_a2a_gateway_queued_calls{{agent=\"bard\"}} {count}\n");
    in_time(&line, async { while !scene.gateway.metrics().await.contains(&line) {} }).await;
}

async fn until_heard(scene: &Scene, count: usize) {
    scene.agent.wait_for("messages", |log| log.calls("SendStreamingMessage").len() == count).await;
}

#[tokio::test]
async fn calls_wait_in_order() {
    let (scene, heard, go) = scene("{ size: 3, wait: 1m }").await;
    let mut calls = vec![called(&scene, "0")];
    until_heard(&scene, 1).await;
    for number in 1..=3 {
        calls.push(called(&scene, &number.to_string()));
        until_waiting(&scene, number).await;
    }
    let refused = answered(&scene, "4").await;
    assert_eq!(refused.status, 503);
    assert!(refused.header("retry-after").is_some());
    for (number, call) in calls.into_iter().enumerate() {
        until_heard(&scene, number + 1).await;
        go.fire();
        assert_eq!(in_time("an answer", call).await.unwrap(), 200);
    }
    assert_eq!(*heard.lock().unwrap(), ["0", "1", "2", "3"]);
    until_waiting(&scene, 0).await;
    assert!(scene.gateway.metrics().await.contains("queue_wait_seconds_count{agent=\"bard\"} 3\n"));
}

#[tokio::test]
async fn leaving_client_gives_up_its_position() {
    let (scene, heard, go) = scene("{ size: 1, wait: 1m }").await;
    let first = called(&scene, "0");
    until_heard(&scene, 1).await;
    let leaving = called(&scene, "1");
    until_waiting(&scene, 1).await;
    assert_eq!(answered(&scene, "2").await.status, 503, "the line is full");
    leaving.abort();
    until_waiting(&scene, 0).await;
    let third = called(&scene, "3");
    until_waiting(&scene, 1).await;
    go.open();
    for call in [first, third] {
        assert_eq!(in_time("an answer", call).await.unwrap(), 200);
    }
    assert_eq!(*heard.lock().unwrap(), ["0", "3"]);
}
