//! HTTPS on both sides: the listener's certificates and protocols, and agents behind a CA of their
//! own.

use std::sync::Arc;

use rustls::version::{TLS12, TLS13};
use serde_json::json;

use crate::kit::scene::{TOOL, words};
use crate::kit::tls_scene::Connection;
use crate::support::certs::{client_config, server_config};
use crate::support::payload::v1;
use crate::support::{Authority, Card, McpClient, Ports, Reply, ScriptedAgent, TestGateway, in_time};

/// A gateway with a TLS listener on its other port, and a client's view of it.
async fn secure(authority: &Authority, agent: &ScriptedAgent) -> (TestGateway, McpClient) {
    secure_with(authority, agent, "").await
}

/// The same, with more lines of settings.
async fn secure_with(authority: &Authority, agent: &ScriptedAgent, more: &str) -> (TestGateway, McpClient) {
    let identity = authority.server();
    let card = agent.card_url();
    let gateway = TestGateway::start(|ports: &Ports| {
        identity.write(&ports.directory, "server");
        let Ports { main, other, admin, .. } = ports;
        format!(
            "listeners:\n  - address: 127.0.0.1:{main}\n  - address: 127.0.0.1:{other}\n    tls: {{ certificate: server.crt, \
             key: server.key }}\nadmin: {{ address: 127.0.0.1:{admin} }}\n{more}agents:\n  bard:\n    card: {card}\n"
        )
    })
    .await;
    let client = McpClient::new(&format!("https://localhost:{}/mcp", gateway.ports().other));
    (gateway, client)
}

async fn singer() -> ScriptedAgent {
    let agent = ScriptedAgent::start(Card::v1().skill("sing")).await;
    agent.on_send(|request| {
        Reply::events([v1::task("t", "c", "working"), v1::completed("t", "c", &request.text())])
    });
    agent
}

async fn sing(client: &McpClient, text: &str) -> String {
    let params = json!({ "name": TOOL, "arguments": { "text": text }, "_meta": { "progressToken": 1 } });
    words(&client.modern("tools/call", params).await.result().await).to_owned()
}

#[tokio::test]
async fn alpn_chooses_http2_or_http1() {
    let (authority, agent) = (Authority::new("ours"), singer().await);
    let (_gateway, client) = secure(&authority, &agent).await;
    for alpn in [&["h2"][..], &["http/1.1"], &["h2", "http/1.1"], &[]] {
        let client = client.tls(client_config(&authority, None, alpn));
        assert_eq!(sing(&client, "la").await, "la", "{alpn:?}");
        let session = client.legacy().await;
        let large = "é".repeat(200_000);
        let result = session.call_tool(TOOL, json!({ "text": large })).await.result().await;
        assert!(words(&result) == large, "{alpn:?}: a large body changed");
    }
}

/// It has a place of `limits.connections`.
#[tokio::test]
async fn silent_client_of_http2_is_not_awaited() {
    use tokio::io::AsyncReadExt as _;
    let (authority, agent) = (Authority::new("ours"), singer().await);
    let limits = "limits: { header_read: 1s, keep_alive: 1h }\n";
    let (gateway, _) = secure_with(&authority, &agent, limits).await;
    for alpn in ["h2", "http/1.1"] {
        let client = Arc::new(client_config(&authority, None, &[alpn]));
        let mut stream = Connection::open(&gateway, &client).await.into_stream();
        let mut read = Vec::new();
        // A connection that is closed without an alert is closed, too.
        drop(in_time("the gateway to close", stream.read_to_end(&mut read)).await);
    }
}

#[tokio::test]
async fn tls_1_2_and_1_3_are_spoken() {
    let (authority, agent) = (Authority::new("ours"), singer().await);
    let (_gateway, client) = secure(&authority, &agent).await;
    for version in [&TLS12, &TLS13] {
        let mut config = client_config(&authority, None, &["http/1.1"]);
        let provider = rustls::crypto::ring::default_provider();
        let roots = {
            let mut roots = rustls::RootCertStore::empty();
            let pem = authority.pem();
            use rustls::pki_types::pem::PemObject as _;
            roots.add(rustls::pki_types::CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()).unwrap();
            roots
        };
        config.clone_from(
            &rustls::ClientConfig::builder_with_provider(provider.into())
                .with_protocol_versions(&[version])
                .unwrap()
                .with_root_certificates(roots)
                .with_no_client_auth(),
        );
        assert_eq!(sing(&client.tls(config), "la").await, "la", "{version:?}");
    }
}

#[tokio::test]
async fn listener_shows_configured_certificate() {
    let (authority, agent) = (Authority::new("ours"), singer().await);
    let (gateway, client) = secure(&authority, &agent).await;
    let stranger = client_config(&Authority::new("theirs"), None, &["h2"]);
    assert!(client.tls(stranger).try_send("GET", &[], Vec::new()).await.is_err());
    // A plain client of the TLS port gets nothing, and all others go on.
    let plain = McpClient::new(&format!("http://127.0.0.1:{}/mcp", gateway.ports().other));
    assert!(plain.try_send("GET", &[], Vec::new()).await.is_err());
    assert_eq!(sing(&gateway.client(), "la").await, "la");
}

#[tokio::test]
async fn leaving_http2_client_is_noticed() {
    let (authority, agent) = (Authority::new("ours"), singer().await);
    agent.on_send(|_| Reply::stream().event(v1::task("raw-t", "c", "working")).stall());
    agent.on_cancel(|_| Reply::result(v1::bare_task("raw-t", "c", "canceled")));
    let (_gateway, client) = secure(&authority, &agent).await;
    let client = client.tls(client_config(&authority, None, &["h2"]));
    let params = json!({ "name": TOOL, "arguments": { "text": "x" }, "_meta": { "progressToken": 1 } });
    let mut answer = client.modern("tools/call", params).await;
    answer.next_message().await;
    drop(answer);
    assert_eq!(agent.wait_for_call("CancelTask").await.params()["id"], "raw-t");
}

/// The gateway before an HTTPS agent, with these lines for its TLS.
async fn before_tls(agent: &ScriptedAgent, files: &[(&str, String)], tls: &str) -> TestGateway {
    let card = agent.card_url();
    TestGateway::start(|ports| {
        for (name, content) in files {
            std::fs::write(ports.directory.join(name), content).unwrap();
        }
        format!("{}agents:\n  bard:\n    card: {card}\n{tls}", ports.listeners())
    })
    .await
}

#[tokio::test]
async fn listed_ca_of_agent_is_trusted() {
    let (authority, stranger) = (Authority::new("ours"), Authority::new("theirs"));
    let agent =
        ScriptedAgent::start_tls(Card::v1().skill("sing"), server_config(&authority.server(), None)).await;
    agent.on_send(|_| Reply::events([v1::message("la")]));
    let files = [("ours.pem", authority.pem()), ("theirs.pem", stranger.pem())];
    let gateway = before_tls(&agent, &files, "    tls: { ca: ours.pem }\n").await;
    assert_eq!(sing(&gateway.client(), "x").await, "la");
    for tls in ["", "    tls: { ca: theirs.pem }\n"] {
        let gateway = before_tls(&agent, &files, tls).await;
        let params = json!({ "name": TOOL, "arguments": { "text": "x" } });
        let code = gateway.client().modern("tools/call", params).await.error_code().await;
        assert_eq!(code, -32602, "an agent that was never trusted has no tools");
    }
    assert_eq!(agent.calls("SendStreamingMessage").len(), 1);
}

#[tokio::test]
async fn agent_gets_client_certificate() {
    let authority = Authority::new("ours");
    let tls = server_config(&authority.server(), Some(&authority));
    let agent = ScriptedAgent::start_tls(Card::v1().skill("sing"), tls).await;
    agent.on_send(|_| Reply::events([v1::message("la")]));
    let gateway = authority.client("gateway");
    let files = [("ca.pem", authority.pem()), ("gw.crt", gateway.pem()), ("gw.key", gateway.key_pem())];
    let tls = "    tls: { ca: ca.pem, certificate: gw.crt, key: gw.key }\n";
    let served = before_tls(&agent, &files, tls).await;
    assert_eq!(sing(&served.client(), "x").await, "la");
    let page = served.metrics().await;
    let expiry = page
        .lines()
        .find(|line| line.starts_with("mcp_a2a_gateway_agent_certificate_expiry_timestamp_seconds"));
    let seconds: f64 =
        expiry.unwrap_or_else(|| panic!("{page}")).rsplit(' ').next().unwrap().parse().unwrap();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64();
    assert!(seconds > now, "{seconds} is over");
    let refused = before_tls(&agent, &files, "    tls: { ca: ca.pem }\n").await;
    let params = json!({ "name": TOOL, "arguments": { "text": "x" } });
    assert_eq!(refused.client().modern("tools/call", params).await.error_code().await, -32602);
}

/// An agent that speaks HTTP/2 only: its card, and one answer for every message.
async fn over_http2(authority: &Authority) -> std::net::SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut config = (*server_config(&authority.server(), None)).clone();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let tls = tokio_rustls::TlsAcceptor::from(std::sync::Arc::new(config));
    let card = Card::v1().skill("sing").body(&format!("https://{address}/"));
    let answer = Fixed { card, answer: v1::completed("t", "c", "over HTTP/2") };
    let answer = std::sync::Arc::new(answer);
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let (tls, answer) = (tls.clone(), answer.clone());
            tokio::spawn(async move {
                let Ok(socket) = tls.accept(socket).await else { return };
                let service = hyper::service::service_fn(move |request| {
                    let body = answer.to(&request);
                    async move { Ok::<_, std::convert::Infallible>(body) }
                });
                let executor = hyper_util::rt::TokioExecutor::new();
                let socket = hyper_util::rt::TokioIo::new(socket);
                let served =
                    hyper::server::conn::http2::Builder::new(executor).serve_connection(socket, service);
                // It ends when the gateway does.
                drop(served.await);
            });
        }
    });
    address
}

struct Fixed {
    card: Vec<u8>,
    answer: serde_json::Value,
}

impl Fixed {
    fn to(
        &self,
        request: &hyper::Request<hyper::body::Incoming>,
    ) -> hyper::Response<http_body_util::Full<bytes::Bytes>> {
        let is_card = request.method() == hyper::Method::GET;
        let answer = || json!({ "jsonrpc": "2.0", "id": 1, "result": self.answer }).to_string().into_bytes();
        let body = if is_card { self.card.clone() } else { answer() };
        let response = hyper::Response::builder().header("content-type", "application/json");
        response.body(http_body_util::Full::new(body.into())).unwrap()
    }
}

#[tokio::test]
async fn agent_is_called_by_offered_http2() {
    let authority = Authority::new("ours");
    let address = over_http2(&authority).await;
    let gateway = TestGateway::start(|ports| {
        std::fs::write(ports.directory.join("ca.pem"), authority.pem()).unwrap();
        let card = format!("https://{address}/.well-known/agent-card.json");
        format!("{}agents:\n  bard:\n    card: {card}\n    tls: {{ ca: ca.pem }}\n", ports.listeners())
    })
    .await;
    let texts = ["a", "b", "c"].map(|text| async {
        let client = gateway.client();
        sing(&client, text).await
    });
    for text in texts {
        assert_eq!(text.await, "over HTTP/2");
    }
}
