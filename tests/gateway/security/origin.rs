//! Allowed hosts, and allowed origins of browsers: on by default.

use serde_json::json;

use crate::auth::rules::{auth, key_of};
use crate::kit::scene::{RAW_CONTEXT, RAW_TASK, Scene};
use crate::support::Answer;
use crate::support::payload::v1;
use crate::support::{Card, McpClient, Reply, ScriptedAgent, TestGateway};

/// The status of a request with just these header lines before the body's.
async fn raw_status(scene: &Scene, lines: &str) -> u16 {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let body = McpClient::new("http://x/").request("ping", &json!({})).to_string();
    let length = body.len();
    let request = format!(
        "POST /mcp HTTP/1.1\r\n{lines}Content-Type: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    );
    let mut socket = tokio::net::TcpStream::connect(scene.gateway.address()).await.unwrap();
    socket.write_all(request.as_bytes()).await.unwrap();
    let mut seen = Vec::new();
    crate::support::in_time("an answer", socket.read_to_end(&mut seen)).await.unwrap();
    let head = String::from_utf8_lossy(&seen);
    head.get(9..12).and_then(|status| status.parse().ok()).unwrap_or_else(|| panic!("no status: {head}"))
}

#[tokio::test]
async fn request_names_its_host_once() {
    let scene = Scene::new().await;
    let good = "Host: localhost\r\n";
    assert_eq!(raw_status(&scene, good).await, 200);
    for lines in ["", "Host: localhost\r\nHost: evil.example\r\n"] {
        let refused = raw_status(&scene, lines).await;
        assert!((400..500).contains(&refused), "{lines:?}: {refused}");
    }
}

#[tokio::test]
async fn refused_origin_is_told_why_at_once() {
    let scene = Scene::new().await;
    let client = scene.gateway.client().header("Origin", "http://evil.example.com");
    let params = json!({ "name": "bard_sing", "arguments": { "text": "x" } });
    let answer = client.modern("tools/call", params).await;
    assert_eq!((answer.status, answer.header("access-control-allow-origin")), (403, None));
    let error = answer.json().await;
    assert!(error["error"]["message"].as_str().unwrap().contains("allowed_origins"), "{error}");
    assert!(scene.agent.calls("SendStreamingMessage").is_empty());
    for method in ["GET", "DELETE", "OPTIONS"] {
        assert_eq!(client.send(method, &[], Vec::new()).await.status, 403, "{method}");
    }
}

#[tokio::test]
async fn preflight_is_answered() {
    let scene = Scene::tuned("mcp: { allowed_origins: [\"https://app.example.com\"] }").await;
    let origin = ("Origin", "https://app.example.com");
    let asked = [
        origin,
        ("Access-Control-Request-Method", "POST"),
        ("Access-Control-Request-Headers", "content-type, mcp-protocol-version, mcp-name"),
    ];
    let answer = scene.gateway.client().send("OPTIONS", &asked, Vec::new()).await;
    assert!(matches!(answer.status, 200 | 204), "{}", answer.status);
    assert_eq!(answer.header("access-control-allow-origin"), Some("https://app.example.com"));
    let allowed = answer.header("access-control-allow-headers").unwrap().to_lowercase();
    for name in ["content-type", "mcp-protocol-version", "mcp-name"] {
        assert!(allowed.contains(name), "{name} is not in {allowed}");
    }
    let methods = answer.header("access-control-allow-methods").unwrap();
    assert!(["POST", "GET", "DELETE"].iter().all(|method| methods.contains(method)), "{methods}");
    let called = scene.gateway.client().header(origin.0, origin.1).initialize("2025-11-25").await;
    assert_eq!(called.header("access-control-allow-origin"), Some("https://app.example.com"));
    let exposed = called.header("access-control-expose-headers").unwrap().to_lowercase();
    assert!(exposed.contains("mcp-session-id"), "{exposed}");
    assert!(called.header("vary").unwrap().to_lowercase().contains("origin"));
}

/// The CORS response headers of an answer, by how often each stands there.
fn cors_headers(answer: &Answer) -> Vec<(String, usize)> {
    let names = answer.headers.keys().filter(|name| name.as_str().starts_with("access-control-"));
    names.map(|name| (name.to_string(), answer.headers.get_all(name).iter().count())).collect()
}

/// A browser refuses an answer with a CORS header twice.
#[tokio::test]
async fn cors_headers_stand_once_in_each_answer() {
    let agent = ScriptedAgent::start(Card::v1().skill("sing")).await;
    agent.on_send(|_| {
        Reply::events([
            v1::task(RAW_TASK, RAW_CONTEXT, "working"),
            v1::status_update(RAW_TASK, RAW_CONTEXT, "completed", Some("la")),
        ])
    });
    let gateway = TestGateway::start(|ports| {
        format!(
            "{}mcp: {{ allowed_origins: [\"https://app.example.com\"] }}\n\
             limits: {{ caller_rate: 1, caller_burst: 20 }}\n{}\
             agents:\n  bard:\n    card: {}\n",
            ports.listeners().replace("\nadmin:", "\n    serve: [mcp, a2a]\nadmin:"),
            auth(&["ann"]),
            agent.card_url()
        )
    })
    .await;
    let open = gateway.client().header("Origin", "https://app.example.com");
    let ann = open.header("X-Api-Key", &key_of("ann"));
    let asked = [("Access-Control-Request-Method", "POST"), ("Access-Control-Request-Headers", "x-api-key")];
    let call = json!({ "name": "bard_sing", "arguments": { "text": "x" }, "_meta": { "progressToken": 1 } });
    let mut answers = vec![
        ("preflight", 204, open.send("OPTIONS", &asked, Vec::new()).await),
        ("unauthenticated", 401, open.modern("tools/list", json!({})).await),
        ("unknown path", 404, open.at("/nowhere").get(&[]).await),
        ("unknown agent", 404, ann.at("/mcp/none").modern("tools/list", json!({})).await),
        ("result", 200, ann.modern("tools/list", json!({})).await),
        ("stream", 200, ann.modern("tools/call", call).await),
        ("agents", 200, ann.at("/a2a").get(&[]).await),
        ("card", 200, ann.at("/a2a/bard/.well-known/agent-card.json").get(&[]).await),
    ];
    while answers.last().is_none_or(|(_, _, answer)| answer.status != 429) {
        answers.push(("burst", 0, ann.modern("tools/list", json!({})).await));
    }
    for (name, status, answer) in answers {
        assert!(status == 0 || answer.status == status, "{name}: {}", answer.status);
        let allowed = answer.header("access-control-allow-origin");
        assert_eq!(allowed, Some("https://app.example.com"), "{name}");
        let twice: Vec<_> = cors_headers(&answer).into_iter().filter(|(_, count)| *count != 1).collect();
        assert!(twice.is_empty(), "{name}: {twice:?}");
    }
}

/// Each unknown path is answered with a JSON-RPC error, never with an empty body.
#[tokio::test]
async fn unknown_path_has_body() {
    let scene = Scene::new().await;
    for path in ["/", "/nowhere", "/mcp/none", "/mcp/bard/more", "/a2a", "/a2a/none", "/push/x"] {
        let answer = scene.gateway.client().at(path).get(&[]).await;
        assert_eq!(answer.status, 404, "{path}");
        let error = answer.json().await;
        assert!(error["error"]["message"].as_str().is_some_and(|text| !text.is_empty()), "{path}: {error}");
    }
}
