//! The causes of an agent without a usable card, as the operator reads them: each names the URL, the
//! cause and the remedy.

use crate::support::certs::{Authority, server_config};
use crate::support::{Card, Reply, ScriptedAgent, TestGateway};

/// The text of the command `agents` about one agent with this card and these further keys.
async fn cause(card: &str, keys: &str) -> String {
    let config = format!(
        "agents:\n  bard:\n    card: {card}\n    timeouts: {{ connect: 300ms, first_byte: 300ms }}\n{keys}"
    );
    let output = TestGateway::run_with_config("agents", &config).await;
    String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap()
}

fn has_all(told: &str, words: &[&str]) {
    for word in words {
        assert!(told.contains(word), "{word:?} is not in: {told}");
    }
}

/// The keys of trust in `authority`, and a client certificate by `client`, in files of `directory`.
fn tls(directory: &std::path::Path, authority: &Authority, client: Option<&Authority>) -> String {
    let ca = directory.join("ca.pem");
    std::fs::write(&ca, authority.pem()).unwrap();
    let own = client.map(|client| {
        let (certificate, key) = client.client("gateway").write(directory, "gw");
        format!(", certificate: {}, key: {}", certificate.display(), key.display())
    });
    format!("    tls: {{ ca: {}{} }}\n", ca.display(), own.unwrap_or_default())
}

#[tokio::test]
async fn agent_down_is_named_with_its_url() {
    let agent = ScriptedAgent::start(Card::v1()).await;
    let url = format!("http://{}/.well-known/agent-card.json", agent.address());
    agent.stop().await;
    has_all(&cause(&format!("{url}?key=geheim"), "").await, &[&url, "connection refused"]);
    assert!(!cause(&format!("{url}?key=geheim"), "").await.contains("geheim"));
}

#[tokio::test]
async fn failures_of_connections_are_distinct() {
    has_all(
        &cause("http://agent.invalid/a/card.json", "").await,
        &["http://agent.invalid/a/card.json", "host name does not resolve"],
    );
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/card.json", silent.local_addr().unwrap());
    has_all(&cause(&url, "").await, &[&url, "no response in time"]);
    let plain = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}/card.json", plain.local_addr().unwrap());
    std::thread::spawn(move || {
        let (mut stream, _) = plain.accept().unwrap();
        std::io::Write::write_all(&mut stream, b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
    });
    has_all(&cause(&url, "").await, &[&url, "does not answer by TLS", "write http://"]);
}

#[tokio::test]
async fn rejected_client_certificate_is_explained() {
    let directory = tempfile::tempdir().unwrap();
    let authority = Authority::new("agents");
    let stranger = Authority::new("strangers");
    let agent =
        ScriptedAgent::start_tls(Card::v1(), server_config(&authority.server(), Some(&authority))).await;
    let url = agent.card_url();
    let told = cause(&url, &tls(directory.path(), &authority, None)).await;
    has_all(&told, &[&url, "certificate required", "set tls.certificate and tls.key (agents.bard)"]);
    let told = cause(&url, &tls(directory.path(), &authority, Some(&stranger))).await;
    has_all(&told, &[&url, "unknown CA", "set tls.certificate to one of an authority that it trusts"]);
    let (certificate, key) = authority.expired_client("gateway").write(directory.path(), "old");
    let ca = directory.path().join("ca.pem");
    let old = format!(
        "    tls: {{ ca: {}, certificate: {}, key: {} }}\n",
        ca.display(),
        certificate.display(),
        key.display()
    );
    has_all(&cause(&url, &old).await, &[&url, "certificate has expired", "renew tls.certificate"]);
}

#[tokio::test]
async fn untrusted_agent_certificate_is_explained() {
    let directory = tempfile::tempdir().unwrap();
    let (authority, others) = (Authority::new("agents"), Authority::new("others"));
    for (identity, trusted, words) in [
        (authority.server(), &others, ["of an unknown authority", "set tls.ca"]),
        (authority.expired_server(), &authority, ["its certificate has expired", "must renew it"]),
        (
            authority.server_named(&["elsewhere.example"]),
            &authority,
            ["certificate is for another name", "set tls.server_name"],
        ),
    ] {
        let agent = ScriptedAgent::start_tls(Card::v1(), server_config(&identity, None)).await;
        let told = cause(&agent.card_url(), &tls(directory.path(), trusted, None)).await;
        has_all(&told, &[&agent.card_url(), words[0], words[1]]);
    }
}

#[tokio::test]
async fn interface_without_tls_names_endpoints() {
    let directory = tempfile::tempdir().unwrap();
    let authority = Authority::new("agents");
    let agent = ScriptedAgent::start_tls(Card::v1(), server_config(&authority.server(), None)).await;
    let plain = agent.url().replacen("https://", "http://", 1);
    agent.set_card(Card::v1().set(
        "supportedInterfaces",
        serde_json::json!([{ "url": plain, "protocolBinding": "JSONRPC", "protocolVersion": "1.0" }]),
    ));
    let told = cause(&agent.card_url(), &tls(directory.path(), &authority, None)).await;
    has_all(&told, &[&plain, "write the URL to call under endpoints"]);
}

#[tokio::test]
async fn redirect_is_told_with_its_target() {
    let agent = ScriptedAgent::start(Card::v1()).await;
    for (location, target) in [
        ("/moved/card.json?key=geheim".to_owned(), format!("http://{}/moved/card.json", agent.address())),
        ("https://ann:geheim@new.example/card.json".to_owned(), "https://new.example/card.json".to_owned()),
    ] {
        agent.on_path("/.well-known/agent-card.json", move |_| {
            Reply::status(308, "moved").header("Location", &location)
        });
        let told = cause(&agent.card_url(), "").await;
        has_all(&told, &[&agent.card_url(), "HTTP 308", &target, "write this URL under card"]);
        assert!(!told.contains("geheim"), "{told}");
    }
}

#[tokio::test]
async fn mcp_server_is_recognised() {
    let server = ScriptedAgent::start(Card::v1()).await;
    let not_found = |_: &crate::support::Request| Reply::status(404, "no");
    server.on_path("/mcp/.well-known/agent-card.json", not_found);
    server.on_path("/mcp/.well-known/agent.json", not_found);
    let url = format!("http://{}/mcp", server.address());
    has_all(&cause(&url, "").await, &["HTTP 404", "check the URL"]);
    server.on_path("/mcp", |_| {
        let error = serde_json::json!({
            "jsonrpc": "2.0", "id": "server-error",
            "error": { "code": -32600, "message": "Not Acceptable: Client must accept text/event-stream" },
        });
        Reply::json(&error).with_status(406)
    });
    has_all(&cause(&url, "").await, &[&url, "answers as an MCP server does"]);
    // A stream that never ends is not awaited.
    server.on_path("/mcp", |_| Reply::stream().stall());
    has_all(&cause(&url, "").await, &[&url, "answers as an MCP server does"]);
    // The gateway's own MCP endpoint.
    let gateway = TestGateway::before(&[("bard", &ScriptedAgent::start(Card::v1()).await)]).await;
    has_all(&cause(&gateway.url("/mcp"), "").await, &["answers as an MCP server does"]);
}

#[tokio::test]
async fn call_says_why_agent_is_unreachable() {
    use crate::kit::scene::complaint;
    let agent = ScriptedAgent::start(Card::v1().skill("sing")).await;
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let card = agent.card_url();
    let gateway = TestGateway::start(|ports| {
        format!(
            "{}agents:\n  bard:\n    card: {card}\n    endpoints: [\"http://{gone}/\"]\n",
            ports.listeners()
        )
    })
    .await;
    let call = serde_json::json!({ "name": "bard_sing", "arguments": { "text": "x" } });
    let told = gateway.client().modern("tools/call", call).await.result().await;
    assert!(complaint(&told).contains("(connection refused)"), "{told}");
}
