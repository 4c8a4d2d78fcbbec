//! Who may call from a browser, and under which host: on by default.

use serde_json::json;

use crate::scene::Scene;
use crate::support::McpClient;

/// The status of a ping with this header; `Host` replaces the client's own.
async fn status(scene: &Scene, name: &str, value: &str) -> u16 {
    let client = scene.gateway.client();
    if name != "Host" {
        return client.header(name, value).initialize("2025-11-25").await.status;
    }
    raw_status(scene, &format!("Host: {value}\r\n")).await
}

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

/// rmcp CVE-2026-42559 (RUSTSEC-2026-0189), TypeScript SDK CVE-2025-66414, Python SDK CVE-2025-66416: no `Host` was checked unless somebody
/// asked for it.
#[tokio::test]
async fn only_the_gateways_own_hosts_are_served() {
    let scene = Scene::tuned(
        "public_url: https://gateway.example.com\nmcp: { allowed_hosts: [\"inside.example:8443\"] }",
    )
    .await;
    for (host, expected) in [
        ("localhost", 200),
        ("LOCALHOST:8080", 200),
        ("127.0.0.1:1", 200),
        ("[::1]:80", 200),
        ("192.168.1.7", 200),
        ("gateway.example.com", 200),
        ("Gateway.Example.com:443", 200),
        ("inside.example:8443", 200),
        ("inside.example:1", 403),
        ("evil.example.com", 403),
        ("gateway.example.com.evil.example", 403),
        ("localhost.evil.example", 403),
        ("127.0.0.1.evil.example", 403),
    ] {
        assert_eq!(status(&scene, "Host", host).await, expected, "{host}");
    }
}

#[tokio::test]
async fn a_request_says_for_which_host_it_is_once() {
    let scene = Scene::new().await;
    let good = "Host: localhost\r\n";
    assert_eq!(raw_status(&scene, good).await, 200);
    for lines in ["", "Host: localhost\r\nHost: evil.example\r\n"] {
        let refused = raw_status(&scene, lines).await;
        assert!((400..500).contains(&refused), "{lines:?}: {refused}");
    }
}

/// Go SDK CVE-2026-34742, Java SDK CVE-2026-35568, Python SDK CVE-2026-59950: the same for `Origin`.
#[tokio::test]
async fn only_known_origins_may_call() {
    let scene = Scene::tuned(
        "public_url: https://gateway.example.com\nmcp: { allowed_origins: [\"https://app.example.com\"] }",
    )
    .await;
    assert_eq!(raw_status(&scene, "Host: localhost\r\n").await, 200, "programs have no origin");
    for (origin, expected) in [
        ("http://localhost:3000", 200),
        ("http://127.0.0.1", 200),
        ("https://gateway.example.com", 200),
        ("https://app.example.com", 200),
        ("http://app.example.com", 403),
        ("https://app.example.com:444", 403),
        ("https://app.example.com.evil.example", 403),
        ("http://evil.example.com", 403),
        ("null", 403),
        ("", 403),
    ] {
        assert_eq!(status(&scene, "Origin", origin).await, expected, "{origin}");
    }
}

#[tokio::test]
async fn a_refused_origin_is_told_why_before_anything_is_done() {
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
async fn browsers_are_answered_before_they_ask() {
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
    for name in [
        "content-type",
        "authorization",
        "accept",
        "mcp-protocol-version",
        "mcp-session-id",
        "mcp-method",
        "mcp-name",
    ] {
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
