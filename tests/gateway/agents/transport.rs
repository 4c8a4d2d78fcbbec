//! The connections to agents: kept, never shared between credentials, and no message sent twice
//! over a dead one.

use serde_json::json;

use crate::kit::scene::{Scene, TOOL, complaint, words};
use crate::support::payload::v1;
use crate::support::{Card, Reply, ScriptedAgent, TestGateway};

#[tokio::test]
async fn connections_are_kept_for_next_call() {
    let scene = Scene::new().await;
    scene.agent.on_send(|_| Reply::events([v1::message("la")]));
    for _ in 0..5 {
        assert_eq!(words(&scene.said("x").await), "la");
    }
    // A client may come back before the end of the last stream has been read; then there are two,
    // and never one per call.
    let calls = scene.agent.calls("SendStreamingMessage");
    let connections: std::collections::HashSet<_> = calls.iter().map(|call| call.connection).collect();
    assert!(connections.len() < calls.len(), "a new connection per call");
}

#[tokio::test]
async fn closed_connection_loses_no_message() {
    let scene = Scene::new().await;
    // It closes without saying so.
    scene.agent.on_send(|request| {
        let text = json!({ "jsonrpc": "2.0", "id": request.id(), "result": v1::message(&request.text()) })
            .to_string();
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            text.len()
        );
        Reply::raw(format!("{head}{text}").as_bytes())
    });
    for number in 0..10 {
        let text = format!("verse {number}");
        assert_eq!(words(&scene.said(&text).await), text);
        let seen = number + 1;
        scene.agent.wait_for("the connection to close", |log| log.closed >= seen).await;
    }
    let texts: Vec<String> =
        scene.agent.calls("SendStreamingMessage").iter().map(|call| call.text()).collect();
    let wanted: Vec<String> = (0..10).map(|number| format!("verse {number}")).collect();
    assert_eq!(texts, wanted, "each message once, in order");
}

#[tokio::test]
async fn unsure_message_is_not_repeated() {
    let scene = Scene::new().await;
    scene.agent.on_send(|_| Reply::events([v1::message("la")]));
    scene.said("first").await;
    scene.agent.on_send(|_| Reply::hang_up());
    let result = scene.said("second").await;
    assert!(complaint(&result).contains("not known"), "{result}");
    let texts: Vec<String> =
        scene.agent.calls("SendStreamingMessage").iter().map(|call| call.text()).collect();
    assert_eq!(texts, ["first", "second"]);
}

#[tokio::test]
async fn absent_agent_is_unreachable() {
    let Scene { agent, gateway } = Scene::new().await;
    let address = agent.stop().await;
    let call = async || {
        let params = json!({ "name": TOOL, "arguments": { "text": "x" } });
        gateway.client().modern("tools/call", params).await.result().await
    };
    let result = call().await;
    assert!(complaint(&result).contains("nothing was sent"), "{result}");
    let agent = ScriptedAgent::start_at(address, Card::v1().skill("sing")).await;
    agent.on_send(|_| Reply::events([v1::message("back")]));
    assert_eq!(words(&call().await), "back");
}

#[tokio::test]
async fn credentials_share_no_connection() {
    let agent = ScriptedAgent::start(Card::v1().skill("sing")).await;
    agent.on_send(|request| Reply::events([v1::message(request.header("authorization").unwrap())]));
    let card = agent.card_url();
    let gateway = TestGateway::start(|ports| {
        let of = |name: &str| {
            format!("  {name}:\n    card: {card}\n    headers: {{ Authorization: Bearer {name} }}\n")
        };
        format!("{}agents:\n{}{}", ports.listeners(), of("alice"), of("bob"))
    })
    .await;
    for round in 0..10 {
        for name in ["alice", "bob"] {
            let params = json!({ "name": format!("{name}_sing"), "arguments": { "text": "x" } });
            let result = gateway.client().modern("tools/call", params).await.result().await;
            assert_eq!(words(&result), format!("Bearer {name}"), "round {round}");
        }
    }
    let log = agent.log();
    for one in &log.requests {
        for other in log.requests.iter().filter(|other| other.connection == one.connection) {
            assert_eq!(one.header("authorization"), other.header("authorization"), "one connection");
        }
    }
}

#[tokio::test]
async fn environment_proxy_is_not_used() {
    let (agent, proxy) =
        (ScriptedAgent::start(Card::v1().skill("sing")).await, ScriptedAgent::start(Card::v1()).await);
    agent.on_send(|_| Reply::events([v1::message("la")]));
    let (url, card) = (proxy.url(), agent.card_url());
    let environment = ["http_proxy", "HTTP_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"]
        .map(|name| (name, url.as_str()));
    let gateway = TestGateway::start_with(&environment, |ports| {
        format!("{}agents:\n  bard:\n    card: {card}\n", ports.listeners())
    })
    .await;
    let params = json!({ "name": TOOL, "arguments": { "text": "x" } });
    assert_eq!(words(&gateway.client().modern("tools/call", params).await.result().await), "la");
    assert_eq!(proxy.log().connections, 0);
}

#[tokio::test]
async fn client_headers_stay_with_gateway() {
    let scene = Scene::new().await;
    scene.agent.on_send(|_| Reply::events([v1::message("la")]));
    let client = scene
        .gateway
        .client()
        .bearer("CANARY")
        .header("Cookie", "CANARY")
        .header("X-Forwarded-For", "CANARY");
    let params = json!({ "name": TOOL, "arguments": { "text": "x" } });
    client.modern("tools/call", params).await.result().await;
    let request = scene.agent.calls("SendStreamingMessage").remove(0);
    assert!(!format!("{:?}", request.headers).contains("CANARY"), "{:?}", request.headers);
    let names: Vec<String> = request.headers.iter().map(|(name, _)| name.to_lowercase()).collect();
    assert!(names.iter().all(|name| !name.starts_with("mcp-")), "{names:?}");
}
