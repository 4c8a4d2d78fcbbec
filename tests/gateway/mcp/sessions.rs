//! Legacy sessions: sealed ids that need no memory, their end, their GET stream, and batches.

use serde_json::{Value, json};

use crate::auth::rules::{auth, key_of};
use crate::kit::scene::{Scene, words};
use crate::support::payload::v1;
use crate::support::{Card, LegacySession, McpClient, Reply, ScriptedAgent, Signal, TestGateway, in_time};

const KEY: &str = "seal_key: 0123456789abcdef0123456789abcdef";

/// Status and code of a ping in this session.
async fn ping(session: &LegacySession) -> (u16, i64) {
    let answer = session.call("ping", json!({})).await;
    let status = answer.status;
    (status, answer.json().await["error"]["code"].as_i64().unwrap_or_default())
}

#[tokio::test]
async fn session_survives_restart() {
    let one = Scene::tuned(KEY).await;
    let session = one.gateway.client().legacy_version("2025-06-18").await;
    let card = one.agent.card_url();
    let two = TestGateway::start(|ports| {
        format!("{}{KEY}\nagents:\n  bard:\n    card: {card}\n", ports.listeners())
    })
    .await;
    let moved = session.stolen_by(&two.client());
    assert_eq!(ping(&moved).await, (200, 0));
    let list = moved.call("tools/list", json!({})).await.result().await;
    assert!(list["tools"][0]["title"].is_string(), "the revision is kept in the id: {list}");
    let other = TestGateway::start(|ports| {
        let key = KEY.replace('0', "1");
        format!("{}{key}\nagents:\n  bard:\n    card: {card}\n", ports.listeners())
    })
    .await;
    assert_eq!(ping(&session.stolen_by(&other.client())).await, (404, -32001), "another key");
}

#[tokio::test]
async fn old_key_opens_what_it_sealed() {
    let one = Scene::tuned(KEY).await;
    let session = one.session().await;
    let card = one.agent.card_url();
    let rotated = TestGateway::start(|ports| {
        let keys = "seal_key: [abcdef0123456789abcdef0123456789, 0123456789abcdef0123456789abcdef]";
        format!("{}{keys}\nagents:\n  bard:\n    card: {card}\n", ports.listeners())
    })
    .await;
    assert_eq!(ping(&session.stolen_by(&rotated.client())).await, (200, 0));
}

#[tokio::test]
async fn batch_is_answered_as_batch() {
    let scene = Scene::new().await;
    scene.agent.on_send(|request| Reply::events([v1::message(&request.text())]));
    let session = scene.gateway.client().legacy_version("2025-03-26").await;
    let call = |id: Value, text: &str| {
        let params = json!({ "name": "bard_sing", "arguments": { "text": text } });
        json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params })
    };
    let batch = json!([
        call(json!(0), "one"),
        { "jsonrpc": "2.0", "method": "notifications/made/up" },
        { "jsonrpc": "2.0", "id": "", "method": "ping" },
        call(json!("0"), "two"),
        { "jsonrpc": "2.0", "id": 9, "method": "unknown" },
    ]);
    for answer in [session.post(&batch).await, scene.gateway.client().post(&batch, &[]).await] {
        assert_eq!(answer.status, 200);
        let answers = answer.json().await;
        let answers = answers.as_array().expect("an array");
        assert_eq!(answers.len(), 4, "{answers:?}");
        let of = |id: Value| answers.iter().find(|answer| answer["id"] == id).unwrap();
        assert_eq!(words(&of(json!(0))["result"]), "one");
        assert_eq!(words(&of(json!("0"))["result"]), "two");
        assert_eq!(of(json!(""))["result"], json!({}));
        assert_eq!(of(json!(9))["error"]["code"], -32601);
    }
}

/// The gateway before `bard`, for callers with keys, with little room for what it remembers of
/// sessions.
async fn cramped(agent: &ScriptedAgent) -> TestGateway {
    TestGateway::start(|ports| {
        let (listeners, keys, card) = (ports.listeners(), auth(&["ann", "ben"]), agent.card_url());
        format!("{listeners}{KEY}\n{keys}sessions: {{ max_cached: 8 }}\nagents:\n  bard:\n    card: {card}\n")
    })
    .await
}

fn by(gateway: &TestGateway, name: &str) -> McpClient {
    gateway.client().header("X-Api-Key", &key_of(name))
}

#[tokio::test]
async fn foreign_subscription_is_not_evicted() {
    let agent = ScriptedAgent::start(Card::v1().skill("sing")).await;
    let gateway = cramped(&agent).await;
    let (ann, ben) = (by(&gateway, "ann"), by(&gateway, "ben"));
    let (first, second) = (Signal::new(), Signal::new());
    let verse = |text: &str| v1::status_update("raw-t", "raw-c", "working", Some(text));
    let song = Reply::stream().event(v1::task("raw-t", "raw-c", "working"));
    let song = song.wait(&first).event(verse("one")).wait(&second).event(verse("two")).stall();
    agent.on_send(move |_| song.clone());
    agent.on_get(|_| Reply::result(v1::bare_task("raw-t", "raw-c", "working")));
    let task = ben.legacy().await.begin_task("bard_sing", json!({ "text": "x" })).await;
    let of_ben = format!("a2a://task/{}", task["taskId"].as_str().unwrap());
    let subscribe = async |session: &LegacySession, uri: &str| {
        let answer = session.call("resources/subscribe", json!({ "uri": uri })).await;
        answer.json().await["result"].is_object()
    };
    // The session that was there first, and one that comes when there is no room left.
    let early = ben.legacy().await;
    assert!(subscribe(&early, &of_ben).await);
    for _ in 0..20 {
        let own = ann.legacy().await;
        assert!(subscribe(&own, "a2a://streams").await, "of one's own sessions the oldest gives way");
    }
    let late = ben.legacy().await;
    assert!(subscribe(&late, &of_ben).await);
    for _ in 0..20 {
        let own = ann.legacy().await;
        assert!(subscribe(&own, "a2a://streams").await);
        assert_eq!(own.call("logging/setLevel", json!({ "level": "debug" })).await.status, 200);
    }
    for (session, go) in [(&early, first), (&late, second)] {
        let mut stream = session.listen(None).await;
        go.fire();
        let is_told = async { while stream.next_message().await["params"]["uri"] != of_ben.as_str() {} };
        in_time("what was subscribed to", is_told).await;
    }
}

#[tokio::test]
async fn change_before_stream_is_told() {
    let agent = ScriptedAgent::start(Card::v1().skill("sing")).await;
    let gateway = cramped(&agent).await;
    let ben = by(&gateway, "ben");
    let go = Signal::new();
    let verse = v1::status_update("raw-t", "raw-c", "working", Some("one"));
    let song = Reply::stream().event(v1::task("raw-t", "raw-c", "working")).wait(&go).event(verse).stall();
    agent.on_send(move |_| song.clone());
    let task = ben.legacy().await.begin_task("bard_sing", json!({ "text": "x" })).await;
    let uri = format!("a2a://task/{}", task["taskId"].as_str().unwrap());
    let session = ben.legacy().await;
    let subscribed = session.call("resources/subscribe", json!({ "uri": uri })).await;
    assert!(subscribed.json().await["result"].is_object());
    go.fire();
    let read = async || session.call("resources/read", json!({ "uri": uri })).await.json().await.to_string();
    in_time("the verse", async { while !read().await.contains("one") {} }).await;
    let mut stream = session.listen(None).await;
    let is_told = async { while stream.next_message().await["params"]["uri"] != uri.as_str() {} };
    in_time("the change since the subscription", is_told).await;
}

#[tokio::test]
async fn deleted_session_never_comes_back() {
    let agent = ScriptedAgent::start(Card::v1().skill("sing")).await;
    let gateway = cramped(&agent).await;
    let (ann, ben) = (by(&gateway, "ann"), by(&gateway, "ben"));
    let live = ben.legacy().await;
    let mut ended = Vec::new();
    for client in [&ann, &ben] {
        let first = client.legacy().await;
        assert_eq!(first.delete().await.status, 204);
        ended.push(first);
    }
    for _ in 0..30 {
        let next = ann.legacy().await;
        next.call("logging/setLevel", json!({ "level": "debug" })).await;
        assert_eq!(next.delete().await.status, 204);
        ended.push(next);
    }
    for session in &ended {
        assert_eq!(ping(session).await, (404, -32001));
    }
    assert_eq!(ping(&live).await, (200, 0));
}
