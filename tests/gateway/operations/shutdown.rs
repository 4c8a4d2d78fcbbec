//! The end: calls under way are finished, streams are ended, and the process goes in time.

use serde_json::json;

use crate::kit::scene::{RAW_CONTEXT, RAW_TASK, Scene, words};
use crate::support::payload::v1;
use crate::support::{Reply, Signal};

#[tokio::test]
async fn running_call_finishes_first() {
    let mut scene = Scene::tuned("shutdown: { grace: 0s, drain: 10s }").await;
    let go = Signal::new();
    let wait = go.clone();
    scene.agent.on_send(move |_| {
        let stream = Reply::stream().event(v1::task(RAW_TASK, RAW_CONTEXT, "working")).wait(&wait);
        stream.event(v1::completed(RAW_TASK, RAW_CONTEXT, "finished all the same"))
    });
    let mut answer = scene.call_with(json!({ "text": "x" }), json!({ "progressToken": 1 })).await;
    answer.next_message().await;
    scene.gateway.signal("TERM");
    // Load balancers are told, and the call lives.
    let ready = async || {
        let answer = scene.gateway.admin().at("/readyz").try_send("GET", &[], Vec::new()).await;
        answer.is_ok_and(|answer| answer.status == 200)
    };
    let told = async { while ready().await {} };
    crate::support::in_time("/readyz to say that the end is near", told).await;
    go.fire();
    assert_eq!(words(&answer.result().await), "finished all the same");
    assert_eq!(scene.gateway.terminate().await, Some(0));
}

#[tokio::test]
async fn idle_gateway_ends_at_once() {
    let mut scene = Scene::tuned("shutdown: { grace: 0s, drain: 10s }").await;
    let session = scene.session().await;
    let listening = session.listen(None).await;
    assert!(listening.is_stream());
    let begin = std::time::Instant::now();
    assert_eq!(scene.gateway.terminate().await, Some(0));
    assert!(begin.elapsed().as_secs() < 8, "it waited for a stream that never ends: {:?}", begin.elapsed());
    listening.until_end().await;
}

#[tokio::test]
async fn second_signal_ends_at_once() {
    let mut scene = Scene::tuned("shutdown: { grace: 60s, drain: 60s }").await;
    scene.agent.on_send(|_| Reply::stream().event(v1::task(RAW_TASK, RAW_CONTEXT, "working")).stall());
    let mut answer = scene.call_with(json!({ "text": "x" }), json!({ "progressToken": 1 })).await;
    answer.next_message().await;
    scene.gateway.signal("TERM");
    scene.gateway.wait_for_output("received end signal").await;
    // Fails if it takes longer than the kit's patience.
    scene.gateway.terminate().await;
}

#[tokio::test]
async fn calls_longer_than_drain_are_cut() {
    let mut scene = Scene::tuned("shutdown: { grace: 0s, drain: 1s }").await;
    scene.agent.on_send(|_| Reply::stream().event(v1::task(RAW_TASK, RAW_CONTEXT, "working")).stall());
    let mut answer = scene.call_with(json!({ "text": "x" }), json!({ "progressToken": 1 })).await;
    answer.next_message().await;
    scene.gateway.terminate().await;
}

#[tokio::test]
async fn calls_begun_within_grace_are_served() {
    let mut scene = Scene::tuned("shutdown: { grace: 3s, drain: 10s }").await;
    scene.agent.on_send(|_| Reply::events([v1::message("still here")]));
    scene.gateway.signal("TERM");
    scene.gateway.wait_for_output("received end signal").await;
    assert_eq!(words(&scene.said("x").await), "still here");
    scene.gateway.terminate().await;
}
