//! Correlation of a request: its id, its client behind proxies, its caller, and digests of the ids
//! that it uses; and the level of the log, which changes while the process runs.

use std::sync::Arc;
use std::time::Instant;

use rustls::pki_types::ServerName;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::seen::{access, line_of, shows};
use crate::auth::rules::{auth, key_of};
use crate::kit::a2a_scene::{Stage, call, saying};
use crate::kit::scene::{RAW_CONTEXT, RAW_TASK, Scene, TOOL};
use crate::support::certs::client_config;
use crate::support::payload::v1;
use crate::support::{Authority, Card, Reply, ScriptedAgent, TestGateway, in_time};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const JSON_LOG: &str = "log: { format: json }\n";

/// A gateway before one agent, with these keys at its listener and these lines at the top.
async fn behind(listener: &str, settings: &str) -> (ScriptedAgent, TestGateway) {
    let agent = ScriptedAgent::start(Card::v1().skill("sing")).await;
    let gateway = TestGateway::start(|ports| {
        let (main, admin) = (ports.main, ports.admin);
        let listeners = format!("listeners: [{{ address: \"127.0.0.1:{main}\", {listener} }}]\n");
        let card = agent.card_url();
        // Readiness is asked of the admin listener.
        format!("{listeners}admin: {{ address: \"127.0.0.1:{admin}\" }}\n{JSON_LOG}{settings}agents: {{ bard: {{ card: \"{card}\" }} }}\n")
    })
    .await;
    (agent, gateway)
}

/// The access line with this path, once it is written.
async fn line_at(gateway: &TestGateway, path: &str) -> Value {
    in_time(&format!("an access line of {path}"), async {
        loop {
            if let Some(line) = access(gateway).into_iter().find(|line| line["path"] == path) {
                break line;
            }
            tokio::task::yield_now().await;
        }
    })
    .await
}

/// Sends a request after these bytes, and returns the response; empty if there is none.
async fn raw(mut stream: impl AsyncRead + AsyncWrite + Unpin, first: &[u8], path: &str) -> String {
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    let sent = [first, request.as_bytes()].concat();
    let mut response = Vec::new();
    // A refused connection may be reset before all is sent or read.
    if stream.write_all(&sent).await.is_ok() {
        in_time("a response or its absence", stream.read_to_end(&mut response)).await.unwrap_or_default();
    }
    String::from_utf8(response).unwrap()
}

/// Requests this path, and waits until the gateway closed the connection: only then is the request
/// logged, a moment after its response.
async fn ended(gateway: &TestGateway, path: &str) {
    assert!(raw(connect(gateway).await, b"", path).await.starts_with("HTTP/1.1 404"));
}

/// The connections that were refused for their header; the probes of readiness send none.
async fn refused(gateway: &TestGateway) -> u64 {
    let page = gateway.metrics().await;
    let value = page
        .lines()
        .find_map(|line| line.strip_prefix(r#"mcp_a2a_gateway_refused_total{reason="proxy_header"} "#));
    value.unwrap().parse().unwrap()
}

async fn refuses_more(gateway: &TestGateway, before: u64) {
    in_time("a refusal in the metrics", async { while refused(gateway).await <= before {} }).await;
}

async fn connect(gateway: &TestGateway) -> TcpStream {
    TcpStream::connect(gateway.address()).await.unwrap()
}

#[tokio::test]
async fn access_line_has_ids_and_no_handle() {
    let scene =
        Scene::tuned(&format!("{JSON_LOG}{}rules: [{{ callers: \"*\", agents: \"*\" }}]\n", auth(&["ann"])))
            .await;
    scene.agent.on_send(|_| Reply::events([v1::completed(RAW_TASK, RAW_CONTEXT, "la")]));
    let client = scene.gateway.client().header("X-Api-Key", &key_of("ann"));
    let client = client.header("traceparent", &format!("00-{TRACE}-00f067aa0ba902b7-01"));
    let session = client.header("X-Request-Id", "forged").legacy().await;
    let answer = session.call_tool(TOOL, json!({ "text": "x" })).await;
    let id = answer.header("x-request-id").unwrap().to_owned();
    answer.result().await;
    session.call_tool(TOOL, json!({ "text": "y" })).await.result().await;
    let line = line_of(&scene.gateway, "tools/call").await;
    for (member, expected) in [
        ("request", json!(id)),
        ("trace", json!(TRACE)),
        ("client", json!("127.0.0.1")),
        ("caller", json!("key:ann")),
        ("status", json!(200)),
        ("version", json!(session.version)),
    ] {
        assert_eq!(line[member], expected, "{member}: {line}");
    }
    assert_ne!(id, "forged");
    for member in ["session", "task", "context"] {
        assert_eq!(line[member].as_str().unwrap().len(), 16, "{member}: {line}");
    }
    let calls: Vec<Value> = in_time("two lines", async {
        loop {
            let calls: Vec<_> =
                access(&scene.gateway).into_iter().filter(|line| line["rpc"] == "tools/call").collect();
            if calls.len() == 2 {
                break calls;
            }
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(calls[0]["session"], calls[1]["session"]);
    assert_ne!(calls[0]["request"], calls[1]["request"]);
    let output = scene.gateway.output();
    for secret in [RAW_TASK, RAW_CONTEXT, session.id.as_deref().unwrap()] {
        assert!(!output.contains(secret), "{secret} is in\n{output}");
    }
    let audits =
        output.lines().filter_map(|line| serde_json::from_str::<Value>(line.strip_prefix("err: ")?).ok());
    let audit = audits.filter(|line| line["target"] == "audit").find(|line| line["tool"] == TOOL).unwrap();
    assert_eq!((&audit["request"], &audit["trace"]), (&json!(id), &json!(TRACE)), "{audit}");
    assert_eq!(audit["client"], "127.0.0.1", "{audit}");
}

/// A call and a stream through the A2A endpoint have the digests of one task.
#[tokio::test]
async fn a2a_access_line_has_digests() {
    let settings = format!("{JSON_LOG}{}rules: [{{ callers: \"*\", agents: \"*\" }}]\n", auth(&["ann"]));
    let stage = Stage::with(Card::v1().skill("sing"), &settings, "").await;
    stage.agent.on_send(|_| Reply::result(v1::task(RAW_TASK, RAW_CONTEXT, "completed")));
    stage.agent.on_stream(|_| Reply::events([v1::completed(RAW_TASK, RAW_CONTEXT, "la")]));
    for method in ["SendMessage", "SendStreamingMessage"] {
        call(&stage.by("ann"), method, saying("x")).await.text().await;
    }
    let called = line_of(&stage.gateway, "SendMessage").await;
    let streamed = line_of(&stage.gateway, "SendStreamingMessage").await;
    for member in ["task", "context"] {
        assert_eq!(called[member].as_str().unwrap().len(), 16, "{member}: {called}");
        assert_eq!(called[member], streamed[member]);
    }
    let output = stage.gateway.output();
    assert!(!output.contains(RAW_TASK) && !output.contains(RAW_CONTEXT), "{output}");
}

#[tokio::test]
async fn trusted_proxy_names_client_and_request() {
    let (_agent, gateway) = behind("trusted_proxies: [127.0.0.1]", "").await;
    let headers = [
        ("X-Forwarded-For", "1.1.1.1, 192.0.2.7"),
        ("Forwarded", "for=2.2.2.2"),
        ("X-Request-Id", "proxy-7"),
    ];
    let answer = gateway.client().at("/mcp/one").get(&headers).await;
    assert_eq!(answer.header("x-request-id"), Some("proxy-7"));
    let line = line_at(&gateway, "/mcp/one").await;
    assert_eq!((&line["client"], &line["request"]), (&json!("192.0.2.7"), &json!("proxy-7")), "{line}");
}

#[tokio::test]
async fn forwarded_header_counts_if_configured() {
    let (_agent, gateway) = behind("trusted_proxies: [127.0.0.1], client_address: forwarded", "").await;
    let headers = [("Forwarded", "for=1.1.1.1, for=\"[2001:db8::7]:99\""), ("X-Forwarded-For", "2.2.2.2")];
    gateway.client().at("/mcp/one").get(&headers).await;
    assert_eq!(line_at(&gateway, "/mcp/one").await["client"], "2001:db8::7");
}

#[tokio::test]
async fn address_header_of_stranger_is_ignored() {
    let (_agent, gateway) = behind("trusted_proxies: [10.0.0.0/8]", "").await;
    let headers = [("X-Forwarded-For", "192.0.2.7"), ("X-Request-Id", "forged")];
    let answer = gateway.client().at("/mcp/one").get(&headers).await;
    assert_ne!(answer.header("x-request-id"), Some("forged"));
    assert_eq!(line_at(&gateway, "/mcp/one").await["client"], "127.0.0.1");
}

/// Failures from one address behind a proxy do not lock out another one.
#[tokio::test]
async fn auth_failures_count_real_address() {
    let settings = format!("limits: {{ auth_failures: 1 }}\n{}", auth(&["ann"]));
    let (_agent, gateway) = behind("trusted_proxies: [127.0.0.1]", &settings).await;
    let client = gateway.client().header("X-Api-Key", "wrong");
    let from = async |address: &str| client.get(&[("X-Forwarded-For", address)]).await.status;
    let begun = Instant::now();
    while from("192.0.2.1").await != 429 {
        assert!(begun.elapsed() < crate::support::PATIENCE, "the address is never refused");
    }
    assert_eq!(from("192.0.2.2").await, 401);
}

#[tokio::test]
async fn proxy_protocol_gives_client_address() {
    let (_agent, gateway) = behind("trusted_proxies: [127.0.0.1], proxy_protocol: true", "").await;
    let first = b"PROXY TCP4 192.0.2.7 127.0.0.1 4711 80\r\n";
    let response = raw(connect(&gateway).await, first, "/mcp/one").await;
    assert!(response.starts_with("HTTP/1.1 "), "{response}");
    assert_eq!(line_at(&gateway, "/mcp/one").await["client"], "192.0.2.7");
    let mut second = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c".to_vec();
    second.extend([198, 51, 100, 9, 127, 0, 0, 1, 0, 99, 0, 80]);
    raw(connect(&gateway).await, &second, "/mcp/two").await;
    assert_eq!(line_at(&gateway, "/mcp/two").await["client"], "198.51.100.9");
    let before = refused(&gateway).await;
    assert_eq!(raw(connect(&gateway).await, b"", "/mcp/three").await, "", "no header, no response");
    refuses_more(&gateway, before).await;
}

#[tokio::test]
async fn proxy_protocol_of_stranger_is_refused() {
    let (_agent, gateway) = behind("trusted_proxies: [10.0.0.0/8], proxy_protocol: true", "").await;
    let first = b"PROXY TCP4 192.0.2.7 127.0.0.1 4711 80\r\n";
    let before = refused(&gateway).await;
    assert_eq!(raw(connect(&gateway).await, first, "/mcp/one").await, "");
    refuses_more(&gateway, before).await;
}

/// The header comes before TLS.
#[tokio::test]
async fn proxy_protocol_comes_before_tls() {
    let authority = Authority::new("authority");
    let gateway = TestGateway::start(|ports| {
        authority.server().write(&ports.directory, "server");
        let (main, other, admin) = (ports.main, ports.other, ports.admin);
        let tls = "tls: { certificate: server.crt, key: server.key }";
        let behind = "trusted_proxies: [127.0.0.1], proxy_protocol: true";
        format!(
            "listeners: [{{ address: \"127.0.0.1:{main}\" }}, {{ address: \"127.0.0.1:{other}\", {tls}, {behind} }}]\nadmin: {{ \
             address: \"127.0.0.1:{admin}\" }}\n{JSON_LOG}agents: {{ absent: {{ card: \"http://127.0.0.1:1/\" }} }}\n"
        )
    })
    .await;
    let config = client_config(&authority, None, &["http/1.1"]);
    let mut socket = TcpStream::connect(("127.0.0.1", gateway.ports().other)).await.unwrap();
    socket.write_all(b"PROXY TCP6 2001:db8::7 ::1 4711 443\r\n").await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let stream = TlsConnector::from(Arc::new(config)).connect(name, socket).await.unwrap();
    let response = raw(stream, b"", "/mcp/one").await;
    assert!(response.starts_with("HTTP/1.1 "), "{response}");
    assert_eq!(line_at(&gateway, "/mcp/one").await["client"], "2001:db8::7");
}

/// A connection that sends no header ends at the deadline of headers.
#[tokio::test]
async fn proxy_protocol_has_a_deadline() {
    let settings = "limits: { header_read: 1s }\n";
    let (_agent, gateway) = behind("trusted_proxies: [127.0.0.1], proxy_protocol: true", settings).await;
    let mut silent = connect(&gateway).await;
    silent.write_all(b"PROXY TCP4 1").await.unwrap();
    let ended = in_time("the end of the connection", silent.read(&mut [0; 8])).await;
    assert!(ended.is_err() || ended.is_ok_and(|read| read == 0));
}

/// The limit of connections counts the address that the proxy tells.
#[tokio::test]
async fn proxy_protocol_feeds_connection_limit() {
    let settings = "limits: { address_connections: 1 }\n";
    let (_agent, gateway) = behind("trusted_proxies: [127.0.0.1], proxy_protocol: true", settings).await;
    let header = |address: &str| format!("PROXY TCP4 {address} 127.0.0.1 4711 80\r\n").into_bytes();
    let mut open = connect(&gateway).await;
    let request = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";
    open.write_all(&[&header("192.0.2.1")[..], request].concat()).await.unwrap();
    assert!(in_time("a response", open.read(&mut [0; 64])).await.unwrap() > 0);
    assert_eq!(raw(connect(&gateway).await, &header("192.0.2.1"), "/healthz").await, "");
    assert!(raw(connect(&gateway).await, &header("192.0.2.2"), "/healthz").await.starts_with("HTTP/1.1 200"));
    let listener = gateway.address();
    shows(&gateway, &format!(r#"mcp_a2a_gateway_open_connections{{listener="{listener}"}} 1"#)).await;
}

#[tokio::test]
async fn log_level_changes_on_signal() {
    let scene = Scene::new().await;
    scene.gateway.signal("USR2");
    scene.gateway.wait_for_output("changed log level on a signal filter=\"warn\"").await;
    ended(&scene.gateway, "/mcp/quiet").await;
    scene.gateway.signal("USR1");
    scene.gateway.wait_for_output("changed log level on a signal filter=\"info\"").await;
    scene.gateway.client().at("/mcp/loud").get(&[]).await;
    scene.gateway.wait_for_output("/mcp/loud").await;
    assert!(!scene.gateway.output().contains("/mcp/quiet"), "{}", scene.gateway.output());
}

#[tokio::test]
async fn log_level_changes_on_request() {
    let agent = ScriptedAgent::start(Card::v1().skill("sing")).await;
    const TOKEN: &str = "0123456789abcdef0123";
    let gateway = TestGateway::start(|ports| {
        let listeners = ports.listeners();
        format!("{listeners}  token: {TOKEN}\nagents:\n  bard:\n    card: {}\n", agent.card_url())
    })
    .await;
    let put = async |level: &str, token: &str| {
        let admin = gateway.admin().at("/log").bearer(token);
        admin.send("PUT", &[], level.as_bytes().to_vec()).await
    };
    assert_eq!(put("debug", "wrong-wrong-wrong-wrong").await.status, 401);
    assert_eq!(put("info,access=loud", TOKEN).await.status, 400);
    let set = put("warn,access=off", TOKEN).await;
    assert_eq!((set.status, set.json().await), (200, json!({ "level": "warn,access=off" })));
    ended(&gateway, "/mcp/quiet").await;
    assert_eq!(put("", TOKEN).await.json().await, json!({ "level": "info" }));
    gateway.client().at("/mcp/loud").get(&[]).await;
    gateway.wait_for_output("/mcp/loud").await;
    assert!(!gateway.output().contains("/mcp/quiet"), "{}", gateway.output());
}

/// A scrape has few lines of an idle agent, and the metrics of the process.
#[tokio::test]
async fn scrape_shows_process_and_idle_agents() {
    const AGENTS: usize = 20;
    let agent = ScriptedAgent::start(Card::v1().skill("sing")).await;
    let gateway = TestGateway::start(|ports| {
        let agents: String = (0..AGENTS)
            .map(|number| format!("  agent-number-{number}:\n    card: {}\n", agent.card_url()))
            .collect();
        format!("{}agents:\n{agents}", ports.listeners())
    })
    .await;
    let page = in_time("the cards of all agents", async {
        loop {
            let page = gateway.metrics().await;
            if page.matches("mcp_a2a_gateway_agent_up{").count() == AGENTS {
                break page;
            }
        }
    })
    .await;
    let of_agents: usize = page.lines().filter(|line| line.contains("agent-number-")).map(str::len).sum();
    assert!(of_agents / AGENTS <= 500, "{} bytes for each agent:\n{page}", of_agents / AGENTS);
    for name in [
        "mcp_a2a_gateway_build_info{version=",
        "process_cpu_seconds_total ",
        "process_resident_memory_bytes ",
        "process_open_fds ",
        "process_max_fds ",
        "process_start_time_seconds ",
        "mcp_a2a_gateway_open_connections{",
    ] {
        let line = page.lines().find(|line| line.starts_with(name));
        let line = line.unwrap_or_else(|| panic!("{name} is not in\n{page}"));
        let value: f64 = line.rsplit(' ').next().unwrap().parse().unwrap();
        assert!(value > 0.0 || name.contains("connections"), "{line}");
    }
}
