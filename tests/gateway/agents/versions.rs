//! Which A2A version and interface an agent is called by, as far as its card tells; and how long a
//! card is good.

use serde_json::{Value, json};

use crate::kit::scene::{Scene, TOOL, words};
use crate::support::payload::{v0_3, v1};
use crate::support::{Card, Reply, Request, ScriptedAgent, TestGateway};

fn interface(binding: &str, version: Option<&str>) -> Value {
    let mut interface = json!({ "url": "{url}", "protocolBinding": binding });
    if let Some(version) = version {
        interface["protocolVersion"] = version.into();
    }
    interface
}

fn answer(request: &Request) -> Reply {
    let is_new = request.rpc_method().ends_with("Message");
    Reply::events([if is_new { v1::message("new") } else { v0_3::message("old") }])
}

/// The words and the method that an agent with this card was called by.
async fn called(card: Card) -> (String, String) {
    let scene = Scene::of(card.skill("sing"), "", "").await;
    scene.agent.on_send(answer);
    let said = words(&scene.said("x").await).to_owned();
    let log = scene.agent.log();
    let call = log.requests.iter().find(|request| request.text() == "x").expect("a call");
    (said, call.rpc_method())
}

#[tokio::test]
async fn newest_common_version_is_used() {
    let both = json!([interface("JSONRPC", Some("0.3")), interface("JSONRPC", Some("1.0"))]);
    let compat = Card::v0_3().set("supportedInterfaces", json!([interface("JSONRPC", Some("1.0"))]));
    let unsaid = Card::v1().set("supportedInterfaces", json!([interface("JSONRPC", None)]));
    let minor = Card::v1().set("supportedInterfaces", json!([interface("JSONRPC", Some("1.2"))]));
    let bindings = json!([
        interface("GRPC", Some("1.0")),
        interface("HTTP+JSON", Some("0.3")),
        interface("jsonrpc", Some("1.0"))
    ]);
    let old = Card::v1().set("supportedInterfaces", json!([interface("JSONRPC", Some("0.3"))]));
    for (card, method) in [
        (Card::v1().set("supportedInterfaces", both), "SendStreamingMessage"),
        (compat, "SendStreamingMessage"),
        (unsaid, "SendStreamingMessage"),
        (minor, "SendStreamingMessage"),
        (Card::v1().set("supportedInterfaces", bindings), "SendStreamingMessage"),
        (old, "message/stream"),
        (Card::v0_3().set("protocolVersion", "0.2.6"), "message/stream"),
        (Card::v0_3().set("protocolVersion", "0.3"), "message/stream"),
    ] {
        let shown = card.json.to_string();
        assert_eq!(called(card).await.1, method, "{shown}");
    }
}

#[tokio::test]
async fn unclear_agent_is_probed_without_work() {
    let scene = Scene::of(Card::v0_3().remove("protocolVersion").skill("sing"), "", "").await;
    // The kit answers what it has no handler for with -32601, as an agent does that knows no such
    // method.
    assert!(
        scene.agent.calls("message/send").iter().all(|probe| probe.text().is_empty()),
        "work was given to it"
    );
    let own = ScriptedAgent::start(Card::v0_3().remove("protocolVersion").skill("sing")).await;
    own.on("message/send", |_| Reply::error(-32602, "Invalid params"));
    own.on_stream(|_| Reply::events([v0_3::message("old")]));
    let gateway = TestGateway::before(&[("bard", &own)]).await;
    let params = json!({ "name": TOOL, "arguments": { "text": "x" } });
    assert_eq!(words(&gateway.client().modern("tools/call", params).await.result().await), "old");
}

#[tokio::test]
async fn unknown_binding_is_a_problem() {
    let own = Card::v1().set("supportedInterfaces", json!([interface("urn:own", Some("1.0"))]));
    let future = Card::v1().set("supportedInterfaces", json!([interface("JSONRPC", Some("2.0"))]));
    for card in [own, future] {
        let scene = Scene::of(card.skill("sing"), "", "").await;
        let list = scene.gateway.client().modern("tools/list", json!({})).await.result().await;
        assert!(!list.to_string().contains("bard_"), "{list}");
        let agents = scene.gateway.admin().at("/agents").get(&[]).await.json().await;
        assert!(agents[0]["problem"].is_string(), "{agents}");
    }
}

#[tokio::test]
async fn cards_are_requested_as_1_0() {
    let scene = Scene::of(Card::v1().skill("sing"), "headers: { X-Key: secret }", "").await;
    let card = scene.agent.log().hits("/.well-known/agent-card.json")[0].clone();
    assert_eq!((card.header("a2a-version"), card.header("x-key")), (Some("1.0"), Some("secret")));
}

#[tokio::test]
async fn every_task_request_names_tenant() {
    let mut card = Card::v1().skill("sing");
    card.json["supportedInterfaces"][0]["tenant"] = "acme".into();
    let scene = Scene::of(card, "", "").await;
    scene.agent.on_send(|_| Reply::stream().event(v1::task("t", "c", "working")).cut());
    scene.agent.on_get(crate::support::in_order([
        Reply::result(v1::bare_task("t", "c", "working")),
        Reply::result(v1::bare_completed("t", "c", "done")),
    ]));
    assert_eq!(words(&scene.said("x").await), "done");
    for method in ["SendStreamingMessage", "GetTask", "SubscribeToTask"] {
        let call = scene.agent.wait_for_call(method).await;
        assert_eq!(call.params()["tenant"], "acme", "{method}");
        assert_eq!(call.header("a2a-version"), Some("1.0"), "{method}");
    }
}

#[tokio::test]
async fn old_agent_task_is_polled() {
    let scene = Scene::of(Card::v0_3().skill("sing"), "", "").await;
    scene.agent.on_send(|_| Reply::stream().event(v0_3::task("t", "c", "working")).cut());
    scene.agent.on_get(crate::support::in_order([
        Reply::result(v0_3::task("t", "c", "working")),
        Reply::result(v0_3::task("t", "c", "working")),
        Reply::result(v0_3::completed("t", "c", "done")),
    ]));
    assert_eq!(words(&scene.said("x").await), "done");
    assert_eq!(scene.agent.calls("tasks/get").len(), 3);
    assert!(scene.agent.calls("tasks/resubscribe").is_empty(), "that would corrupt the task");
}

#[tokio::test]
async fn card_freshness_is_bounded() {
    for (settings, cache_control) in [
        ("cards: { min_refresh: 1s, max_refresh: 1h, retry: 1s }", "max-age=1"),
        ("cards: { min_refresh: 1s, max_refresh: 1h, retry: 1s }", "no-cache"),
        ("cards: { min_refresh: 1s, max_refresh: 2s, retry: 1s }", "public, max-age=86400"),
    ] {
        let scene = Scene::of(Card::v1().skill("sing").cache_control(cache_control), "", settings).await;
        let path = "/.well-known/agent-card.json";
        scene.agent.wait_for("the card to be looked at again", |log| log.hits(path).len() >= 2).await;
    }
    // Long good by its own word: it is left alone meanwhile.
    let calm = Scene::of(
        Card::v1().skill("sing").cache_control("max-age=600"),
        "",
        "cards: { min_refresh: 1s, retry: 1s }",
    )
    .await;
    let busy =
        Scene::of(Card::v1().skill("sing"), "", "cards: { min_refresh: 1s, max_refresh: 1s, retry: 1s }")
            .await;
    busy.agent.wait_for("three looks", |log| log.requests.len() >= 3).await;
    assert_eq!(calm.agent.requests().len(), 1);
}
