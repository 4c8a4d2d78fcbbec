//! The operator's view: metrics, the access log, readiness; and secrets, which no output shows.

use serde_json::{Value, json};

use crate::kit::scene::{RAW_CONTEXT, RAW_TASK, Scene, TOOL};
use crate::support::payload::v1;
use crate::support::{Card, Reply, ScriptedAgent, TestGateway, in_time};

const JSON_LOG: &str = "log: { format: json, level: debug }";

/// The access lines so far, as JSON.
pub(crate) fn access(gateway: &TestGateway) -> Vec<Value> {
    let output = gateway.output();
    let lines = output.lines().filter_map(|line| line.split_once(": ")).map(|(_, line)| line);
    lines
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|line| line["target"] == "access")
        .collect()
}

/// The access line of this RPC method, once it is written.
pub(crate) async fn line_of(gateway: &TestGateway, rpc: &str) -> Value {
    in_time(&format!("an access line of {rpc}"), async {
        loop {
            if let Some(line) = access(gateway).into_iter().find(|line| line["rpc"] == rpc) {
                break line;
            }
            tokio::task::yield_now().await;
        }
    })
    .await
}

/// Waits until the metrics page has this line.
pub(crate) async fn shows(gateway: &TestGateway, line: &str) {
    let mut page = String::new();
    let seen = async {
        while !page.lines().any(|shown| shown == line) {
            page = gateway.metrics().await;
        }
    };
    let seen = tokio::time::timeout(crate::support::PATIENCE, seen).await;
    assert!(seen.is_ok(), "{line} is not in\n{page}");
}

#[tokio::test]
async fn requests_are_counted_by_outcome() {
    let scene = Scene::new().await;
    let session = scene.session().await;
    scene.agent.on_send(|_| {
        Reply::events([
            v1::task(RAW_TASK, RAW_CONTEXT, "working"),
            v1::completed(RAW_TASK, RAW_CONTEXT, "la"),
        ])
    });
    scene.said("x").await;
    scene.said("y").await;
    scene.agent.on_send(|_| Reply::status(500, ""));
    scene.said("z").await;
    session.call("ping", json!({})).await.result().await;
    session.call("made/up\nby a \"peer\"", json!({})).await.json().await;
    for line in [
        r#"mcp_a2a_gateway_requests_total{agent="bard",method="tools/call",outcome="ok"} 2"#,
        r#"mcp_a2a_gateway_requests_total{agent="bard",method="tools/call",outcome="agent_fault"} 1"#,
        r#"mcp_a2a_gateway_requests_total{agent="",method="initialize",outcome="ok"} 1"#,
        r#"mcp_a2a_gateway_requests_total{agent="",method="ping",outcome="ok"} 1"#,
        r#"mcp_a2a_gateway_requests_total{agent="",method="other",outcome="client_fault"} 1"#,
        r#"mcp_a2a_gateway_events_translated_total{agent="bard"} 4"#,
        r#"mcp_a2a_gateway_request_duration_seconds_count{agent="bard",part="gateway"} 3"#,
        r#"mcp_a2a_gateway_request_duration_seconds_count{agent="bard",part="agent"} 3"#,
        "mcp_a2a_gateway_panics_total 0",
    ] {
        shows(&scene.gateway, line).await;
    }
    let page = scene.gateway.admin().at("/metrics").get(&[]).await;
    assert!(page.header("content-type").unwrap().starts_with("text/plain"));
    assert!(!page.text().await.contains("made/up"), "no peer makes series");
}

#[tokio::test]
async fn open_streams_and_agent_health_are_shown() {
    let scene = Scene::tuned("cards: { min_refresh: 1s, max_refresh: 1s, retry: 100ms }").await;
    shows(&scene.gateway, r#"mcp_a2a_gateway_agent_up{agent="bard"} 1"#).await;
    scene.agent.on_send(|_| Reply::stream().event(v1::task(RAW_TASK, RAW_CONTEXT, "working")).stall());
    let mut answer = scene.call_with(json!({ "text": "x" }), json!({ "progressToken": 1 })).await;
    answer.next_message().await;
    shows(&scene.gateway, r#"mcp_a2a_gateway_open_streams{agent="bard"} 1"#).await;
    let health = scene.gateway.client().at("/healthz").get(&[]).await.json().await;
    assert_eq!(health["activeSse"], 1, "{health}");
    drop(answer);
    shows(&scene.gateway, r#"mcp_a2a_gateway_open_streams{agent="bard"} 0"#).await;
    let Scene { agent, gateway } = scene;
    agent.stop().await;
    shows(&gateway, r#"mcp_a2a_gateway_agent_up{agent="bard"} 0"#).await;
}

#[tokio::test]
async fn each_request_writes_one_line() {
    let scene = Scene::tuned(JSON_LOG).await;
    scene.agent.on_send(|_| Reply::events([v1::message("la")]));
    let session = scene.session().await;
    session.call_tool(TOOL, json!({ "text": "x" })).await.result().await;
    let line = line_of(&scene.gateway, "tools/call").await;
    for (member, expected) in [
        ("method", json!("POST")),
        ("path", json!("/mcp")),
        ("status", json!(200)),
        ("tool", json!(TOOL)),
        ("agent", json!("bard")),
        ("era", json!("legacy")),
        ("outcome", json!("ok")),
    ] {
        assert_eq!(line[member], expected, "{line}");
    }
    assert!(line["ms"].as_f64().unwrap() >= line["agent_ms"].as_f64().unwrap(), "{line}");
    assert!(line["bytes_in"].as_u64().unwrap() > 50 && line["bytes_out"].as_u64().unwrap() > 50, "{line}");
    assert!(line["listener"].as_str().unwrap().contains(&scene.gateway.ports().main.to_string()), "{line}");
    session.call("tools/call", json!({ "name": "nothing" })).await.json().await;
    let refused = in_time("the refused call's line", async {
        loop {
            let lines = access(&scene.gateway);
            match lines.into_iter().find(|line| line["rpc"] == "tools/call" && line["outcome"] != "ok") {
                Some(line) => break line,
                None => tokio::task::yield_now().await,
            }
        }
    });
    let refused = refused.await;
    assert_eq!((&refused["outcome"], &refused["fault"]), (&json!("client_fault"), &json!("no_such_tool")));
    let calls = access(&scene.gateway).iter().filter(|line| line["rpc"] == "tools/call").count();
    assert_eq!(calls, 2, "one line each");
}

#[tokio::test]
async fn peer_text_cannot_forge_log() {
    let scene = Scene::new().await;
    let name = "x\nout: forged access line\u{1b}[2J\u{202e}";
    let params = json!({ "name": name, "arguments": {} });
    scene.gateway.client().modern("tools/call", params).await.json().await;
    scene.gateway.wait_for_output("no_such_tool").await;
    let output = scene.gateway.output();
    assert!(!output.contains('\u{1b}') && !output.contains('\u{202e}'), "{output}");
    assert!(
        !output.lines().any(|line| line.contains("forged") && !line.contains("no_such_tool")),
        "{output}"
    );
}

#[tokio::test]
async fn secrets_are_nowhere() {
    let agent = ScriptedAgent::start(Card::v1().skill("sing")).await;
    let (card, key) = (agent.card_url(), "CANARY-seal-0123456789abcdef0123456789");
    let environment = [("AGENT_TOKEN", "CANARY-agent"), ("SEAL", key)];
    let gateway = TestGateway::start_with(&environment, |ports| {
        let agent = format!(
            "  bard:\n    card: {card}\n    headers: {{ Authorization: \"Bearer ${{env:AGENT_TOKEN}}\" }}\n"
        );
        format!(
            "{}log: {{ format: json, level: trace }}\nseal_key: ${{env:SEAL}}\nagents:\n{agent}",
            ports.listeners()
        )
    })
    .await;
    let params = || json!({ "name": TOOL, "arguments": { "text": "CANARY-text" } });
    let client = gateway.client().bearer("CANARY-client").header("Cookie", "CANARY-cookie");
    let mut seen = String::new();
    let replies = [
        Reply::events([v1::message("la")]),
        Reply::status(401, "CANARY-page").header("WWW-Authenticate", "Bearer CANARY-challenge"),
        Reply::status(502, "CANARY-page"),
        Reply::bytes_of("application/json", b"CANARY-garbage"),
        Reply::hang_up(),
    ];
    for reply in replies {
        agent.on_send(move |_| reply.clone());
        seen.push_str(&client.modern("tools/call", params()).await.text().await);
    }
    let session = client.legacy().await;
    seen.push_str(&client.at("/mcp?token=CANARY-query").modern("tools/list", json!({})).await.text().await);
    for path in ["/healthz", "/readyz", "/metrics", "/agents"] {
        seen.push_str(&gateway.admin().at(path).get(&[]).await.text().await);
    }
    line_of(&gateway, "tools/list").await;
    seen.push_str(&gateway.output());
    let place = seen.lines().find(|line| line.contains("CANARY"));
    assert_eq!(place, None, "a secret was shown");
    assert!(!gateway.output().contains(session.id.as_deref().unwrap()), "a session id is a secret");
    let sent = agent.calls("SendStreamingMessage").remove(0);
    assert_eq!(sent.header("authorization"), Some("Bearer CANARY-agent"), "and yet it is used");
}

#[tokio::test]
async fn readiness_waits_for_first_look() {
    // The kit waits for /readyz: a gateway with one agent, which is down, becomes ready all the
    // same.
    let agent = ScriptedAgent::start(Card::v1()).await;
    let url = agent.card_url();
    agent.stop().await;
    let gateway =
        TestGateway::start(|ports| format!("{}agents:\n  bard:\n    card: {url}\n", ports.listeners())).await;
    assert_eq!(gateway.admin().at("/readyz").get(&[]).await.status, 200);
    let agents = gateway.admin().at("/agents").get(&[]).await.text().await;
    assert!(agents.contains("bard"), "{agents}");
}

#[tokio::test]
async fn refusals_are_counted_by_reason() {
    let scene = Scene::tuned("limits: { body: 1KiB }").await;
    let client = scene.gateway.client();
    let ping = |client: crate::support::McpClient, size: usize| async move {
        client.post(&client.request("ping", &json!({ "x": "x".repeat(size) })), &[]).await.status
    };
    assert_eq!(ping(client.clone(), 2000).await, 413);
    assert_eq!(ping(client.header("Origin", "http://evil.example"), 1).await, 403);
    for line in [
        r#"mcp_a2a_gateway_refused_total{reason="too_large"} 1"#,
        r#"mcp_a2a_gateway_refused_total{reason="origin"} 1"#,
        r#"mcp_a2a_gateway_refused_total{reason="host"} 0"#,
    ] {
        shows(&scene.gateway, line).await;
    }
}
