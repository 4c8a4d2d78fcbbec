//! Answers of agents that are no answers: a status of something before the agent, two lengths,
//! nothing, the id of another request.
//!
//! Out of scope: agents that break the protocol in what they say (see `agent_misbehaves`).

use serde_json::json;

use crate::kit::a2a_scene::{call, saying};
use crate::kit::scene::{Scene, complaint, words};
use crate::support::payload::v1;
use crate::support::{Card, Reply, ScriptedAgent, TestGateway};

#[tokio::test]
async fn status_beats_foreign_json() {
    let scene = Scene::of(Card::v1().skill("sing"), "breaker: { failures: 100 }", "").await;
    for status in [404, 409, 429, 500, 502] {
        scene.agent.on_send(move |_| Reply::json(&json!({ "detail": "x" })).with_status(status));
        let refused = scene.said("x").await;
        assert!(complaint(&refused).contains(&format!("HTTP {status}")), "{refused}");
    }
}

/// The bytes after a response with two lengths might be read as the next one.
#[tokio::test]
async fn two_lengths_end_connection() {
    let scene = Scene::of(Card::v1().skill("sing").streaming(false), "", "").await;
    for is_odd in [false, true] {
        scene.agent.on_send(move |_| {
            let reply = Reply::result(v1::message("la")).chunked();
            if is_odd { reply.header("Content-Length", "3") } else { reply }
        });
        for _ in 0..3 {
            assert_eq!(words(&scene.said("x").await), "la");
        }
    }
    let connections: Vec<usize> =
        scene.agent.calls("SendMessage").iter().map(|call| call.connection).collect();
    assert_eq!(connections[0], connections[2], "it is used again: {connections:?}");
    assert_ne!(connections[3], connections[4], "{connections:?}");
    assert_ne!(connections[4], connections[5], "{connections:?}");
}

#[tokio::test]
async fn missing_or_foreign_answer_is_error() {
    let agent = ScriptedAgent::start(Card::v1().skill("sing").streaming(false)).await;
    let gateway = TestGateway::start(|ports| {
        let listeners = ports.listeners().replacen("admin:", "    serve: [mcp, a2a]\nadmin:", 1);
        format!("{listeners}agents:\n  bard:\n    card: {}\n", agent.card_url())
    })
    .await;
    let client = gateway.client().at("/a2a/bard");
    agent.on_send(|_| Reply::result(v1::message("la")));
    let answer = call(&client, "SendMessage", saying("x")).await.json().await;
    assert!(answer["result"].is_object(), "{answer}");
    for reply in [
        Reply::bytes_of("application/json", b""),
        Reply::result(v1::message("la")).id("of another"),
        Reply::result(v1::message("la")).id(4711),
    ] {
        agent.on_send(move |_| reply.clone());
        let answer = call(&client, "SendMessage", saying("x")).await.json().await;
        assert!(answer["error"]["code"].is_number() && answer["result"].is_null(), "{answer}");
    }
}
