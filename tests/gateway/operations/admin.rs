//! The admin listener: the hosts that it answers for, its timeouts, and answers when everything
//! else is full.

use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::kit::quiz::begun;
use crate::kit::scene::{Scene, TOOL};
use crate::operations::seen::shows;
use crate::support::payload::v1;
use crate::support::{Card, Reply, ScriptedAgent, TestGateway, in_time};

/// The status of a request to the admin listener with this `Host`, or none at all.
async fn asked(gateway: &TestGateway, path: &str, host: Option<&str>) -> u16 {
    let mut connection = TcpStream::connect(("127.0.0.1", gateway.ports().admin)).await.unwrap();
    let (version, line) = host.map_or(("1.0", String::new()), |host| ("1.1", format!("Host: {host}\r\n")));
    let request = format!("GET {path} HTTP/{version}\r\n{line}\r\n");
    connection.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    in_time("an answer", connection.read_to_string(&mut answer)).await.unwrap();
    answer
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok())
        .unwrap_or_else(|| panic!("{host:?} {path}: {answer}"))
}

/// A web page that has its name resolved to loopback reads nothing (DNS rebinding).
#[tokio::test]
async fn foreign_host_is_refused() {
    let agent = ScriptedAgent::start(Card::v1().skill("sing")).await;
    let gateway = TestGateway::start(|ports| {
        let names = "  allowed_hosts: [gateway.monitoring, 'other.monitoring:9090']\n";
        format!("{}{names}agents:\n  bard:\n    card: {}\n", ports.listeners(), agent.card_url())
    })
    .await;
    for (host, status) in [
        (Some("127.0.0.1:9090"), 200),
        (Some("localhost"), 200),
        (Some("[::1]:9090"), 200),
        (Some("10.1.2.3:9090"), 200),
        (Some("gateway.monitoring:8000"), 200),
        (Some("GATEWAY.monitoring"), 200),
        (Some("other.monitoring:9090"), 200),
        (Some("other.monitoring"), 403),
        (Some("evil.example:9090"), 403),
        (Some("localhost.evil.example"), 403),
        (Some(""), 403),
        (None, 403),
    ] {
        for path in ["/metrics", "/agents", "/readyz", "/none"] {
            let expected = if path == "/none" && status == 200 { 404 } else { status };
            assert_eq!(asked(&gateway, path, host).await, expected, "{path} of {host:?}");
        }
        // Balancers use any name for this one, as on the other listeners.
        assert_eq!(asked(&gateway, "/healthz", host.or(Some("x"))).await, 200, "{host:?}");
    }
    shows(&gateway, "mcp_a2a_gateway_refused_total{reason=\"host\"} 20").await;
}

#[tokio::test]
async fn slow_header_is_cut() {
    let scene = Scene::tuned("limits: { header_read: 1s }").await;
    let mut connection = TcpStream::connect(("127.0.0.1", scene.gateway.ports().admin)).await.unwrap();
    // A byte now and then renews the deadline of a read, not that of the header.
    let dripped = async {
        loop {
            if connection.write_all(b"G").await.is_err() {
                return;
            }
            let read = tokio::time::timeout(Duration::from_millis(200), connection.read_u8()).await;
            if matches!(read, Ok(Err(_))) {
                return;
            }
        }
    };
    in_time("the connection to be closed", dripped).await;
    assert_eq!(asked(&scene.gateway, "/healthz", Some("localhost")).await, 200);
}

/// Asks the admin listener again and again: its files are reserved for it, not won by chance.
async fn assert_answers(gateway: &TestGateway) {
    for path in ["/healthz", "/metrics", "/agents"].iter().cycle().take(12) {
        assert_eq!(asked(gateway, path, Some("localhost")).await, 200, "{path}");
    }
}

/// Returns the answer to a call; `None`, if its connection is closed.
fn called(gateway: &TestGateway) -> impl Future<Output = Option<String>> + Send + 'static {
    let client = gateway.client();
    async move {
        let call = client.request("tools/call", &json!({ "name": TOOL, "arguments": { "text": "x" } }));
        let headers =
            [("Content-Type", "application/json"), ("Accept", "application/json, text/event-stream")];
        let sent = client.try_send("POST", &headers, call.to_string().into_bytes()).await;
        Some(sent.ok()?.text().await)
    }
}

/// Returns a connection on which one request has been answered.
async fn connected(gateway: &TestGateway) -> TcpStream {
    let mut connection = TcpStream::connect(gateway.address()).await.unwrap();
    connection.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    let answered = connection.read_u8();
    assert_eq!(in_time("an answer", answered).await.unwrap(), b'H');
    connection
}

#[tokio::test]
async fn admin_survives_files_used_by_clients() {
    let agent = ScriptedAgent::start(Card::v1().skill("sing")).await;
    agent.on_send(|_| Reply::events([v1::message("la")]));
    let gateway = TestGateway::start_with_open_files("-n 200", |ports| {
        let limits = "limits: { connections: 1000, address_connections: 0, header_read: 60s }\n";
        format!("{}{limits}agents:\n  bard:\n    card: {}\n", ports.listeners(), agent.card_url())
    })
    .await;
    let warning = gateway.output();
    assert!(warning.contains("limit of open files") && warning.contains("limits.connections"), "{warning}");
    let mut held = Vec::new();
    for _ in 0..400 {
        held.push(TcpStream::connect(gateway.address()).await.unwrap());
    }
    shows(&gateway, "mcp_a2a_gateway_refused_total{reason=\"address_connections\"} 0").await;
    assert_answers(&gateway).await;
    gateway.wait_for_output("limit of open files is almost reached").await;
    let page = gateway.metrics().await;
    let refused = page.lines().find(|line| line.contains("refused_total{reason=\"overloaded\"}")).unwrap();
    assert!(!refused.ends_with(" 0"), "{refused}");
    // The rest is served on.
    drop(held);
    let served = async { while called(&gateway).await.is_none() {} };
    in_time("clients to be served again", served).await;
}

#[tokio::test]
async fn admin_survives_files_used_by_agents() {
    let agent = ScriptedAgent::start(Card::v1().skill("sing")).await;
    agent.on_send(|_| Reply::stream().event(begun()).stall());
    let gateway = TestGateway::start_with_open_files("-n 400", |ports| {
        format!("{}agents:\n  bard:\n    card: {}\n", ports.listeners(), agent.card_url())
    })
    .await;
    // All clients are there before any call needs a connection to the agent: otherwise clients are
    // refused first.
    let mut clients = Vec::new();
    for _ in 0..170 {
        clients.push(connected(&gateway).await);
    }
    let call = gateway
        .client()
        .request("tools/call", &json!({ "name": TOOL, "arguments": { "text": "x" } }))
        .to_string();
    let request = format!(
        "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
         Accept: application/json, text/event-stream\r\nContent-Length: {}\r\n\r\n{call}",
        call.len()
    );
    for client in &mut clients {
        client.write_all(request.as_bytes()).await.unwrap();
    }
    let failed = "transport_errors_total{agent=\"bard\",kind=\"open_files\"}";
    in_time("files to run out", async { while !gateway.metrics().await.contains(failed) {} }).await;
    assert!(agent.log().connections > 60, "{}", agent.log().connections);
    assert_answers(&gateway).await;
    let page = gateway.metrics().await;
    assert!(
        page.contains("endpoint_up{agent=\"bard\",endpoint=\"0\"} 1"),
        "the agent is not at fault: {page}"
    );
}

#[tokio::test]
async fn enough_open_files_give_no_warning() {
    let agent = ScriptedAgent::start(Card::v1().skill("sing")).await;
    // A limit that the process may raise is raised.
    let gateway = TestGateway::start_with_open_files("-S -n 200", |ports| {
        let limits = "limits: { connections: 1000 }\n";
        format!("{}{limits}agents:\n  bard:\n    card: {}\n", ports.listeners(), agent.card_url())
    })
    .await;
    assert!(!gateway.output().contains("open files"), "{}", gateway.output());
}
