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

/// Each signal arrives while the services begin; the default action would end the process without the
/// responses to the calls under way.
#[tokio::test]
async fn signals_at_start_are_obeyed() {
    use std::io::{BufRead as _, BufReader, Read as _};
    use std::process::{Command, Stdio};

    let directory = tempfile::tempdir().unwrap();
    for signal in ["-TERM", "-INT"] {
        let (port, file) = (crate::support::free_port(), directory.path().join("gateway.yaml"));
        let agents = "agents: { a: { card: http://127.0.0.1:1/ } }\nshutdown: { grace: 0s }";
        std::fs::write(&file, format!("listeners: [{{ address: 127.0.0.1:{port} }}]\n{agents}\n")).unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_mcp-a2a-gateway"))
            .args(["serve", "--config"])
            .arg(&file)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut first = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
        assert!(Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap().success());
        let mut log = child.stderr.take().unwrap();
        let ended = tokio::task::spawn_blocking(move || {
            let mut text = String::new();
            log.read_to_string(&mut text).unwrap();
            (child.wait().unwrap(), text)
        });
        let (status, log) = crate::support::in_time("the end", ended).await.unwrap();
        assert_eq!(status.code(), Some(0), "{signal}: {log}");
    }
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
