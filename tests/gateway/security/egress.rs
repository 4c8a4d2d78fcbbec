//! The egress proxy: every connection is a tunnel to an address that was judged here, and a failure
//! of the proxy has a cause of its own.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::kit::scene::{TOOL, complaint, words};
use crate::support::certs::{Authority, server_config};
use crate::support::payload::v1;
use crate::support::{Card, Reply, ScriptedAgent, TestGateway};

/// A proxy that knows `CONNECT` alone.
struct TestProxy {
    address: SocketAddr,
    heads: Arc<Mutex<Vec<String>>>,
}

impl TestProxy {
    /// Tunnels to the named address; a name is one of this machine.
    async fn start() -> Self {
        Self::answering(None).await
    }

    /// Sends this in place of a tunnel, and closes.
    async fn answering(answer: Option<&'static [u8]>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, heads) = (listener.local_addr().unwrap(), Arc::<Mutex<Vec<String>>>::default());
        let seen = heads.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, seen.clone(), answer));
            }
        });
        Self { address, heads }
    }

    fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap().clone()
    }

    /// The targets, each once.
    fn targets(&self) -> Vec<String> {
        let target = |head: &String| head.split(' ').nth(1).unwrap().to_owned();
        let targets: std::collections::BTreeSet<String> = self.heads().iter().map(target).collect();
        targets.into_iter().collect()
    }
}

async fn serve(mut stream: TcpStream, heads: Arc<Mutex<Vec<String>>>, answer: Option<&'static [u8]>) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let Ok(byte) = stream.read_u8().await else { return };
        head.push(byte);
    }
    let head = String::from_utf8(head).unwrap();
    heads.lock().unwrap().push(head.clone());
    if let Some(answer) = answer {
        drop(stream.write_all(answer).await);
        return;
    }
    let target = head.strip_prefix("CONNECT ").unwrap().split(' ').next().unwrap();
    let port = target.rsplit_once(':').unwrap().1.parse::<u16>().unwrap();
    let mut there = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    stream.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await.unwrap();
    drop(tokio::io::copy_bidirectional(&mut stream, &mut there).await);
}

async fn singer() -> ScriptedAgent {
    let agent = ScriptedAgent::start(Card::v1().skill("sing")).await;
    agent.on_send(|_| Reply::events([v1::message("la")]));
    agent
}

/// A gateway with these lines under `outbound.proxy`, and these of the agent.
async fn gateway(proxy: &str, agent: &str) -> TestGateway {
    TestGateway::start(|ports| {
        format!("{}outbound:\n  proxy: {proxy}\nagents:\n  bard: {agent}\n", ports.listeners())
    })
    .await
}

async fn said(gateway: &TestGateway) -> Value {
    let params = json!({ "name": TOOL, "arguments": { "text": "x" } });
    gateway.client().modern("tools/call", params).await.result().await
}

#[tokio::test]
async fn tunnel_leads_to_judged_address() {
    let authority = Authority::new("agents");
    let identity = authority.server_named(&["localhost"]);
    let agent = ScriptedAgent::start_tls(Card::v1(), server_config(&identity, None)).await;
    agent.on_send(|_| Reply::events([v1::message("la")]));
    let (port, proxy) = (agent.address().port(), TestProxy::start().await);
    let interface = json!([{ "url": format!("https://localhost:{port}/"), "protocolBinding": "JSONRPC", "protocolVersion": "1.0" }]);
    agent.set_card(Card::v1().skill("sing").set("supportedInterfaces", interface));
    let ca = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(ca.path(), authority.pem()).unwrap();
    let gateway = TestGateway::start_with(&[("PROXY_PASSWORD", "ge%3Aheim")], |ports| {
        format!(
            "{}outbound:\n  proxy: {{ url: \"http://ann:${{env:PROXY_PASSWORD}}@{}\" }}\nagents:\n  bard: {{ card: \"https://localhost:{port}/.well-known/agent-card.json\", tls: {{ ca: {} }} }}\n",
            ports.listeners(),
            proxy.address,
            ca.path().display()
        )
    })
    .await;
    assert_eq!(words(&said(&gateway).await), "la");
    // The certificate is for the name alone, which TLS was spoken with.
    let target = format!("127.0.0.1:{port}");
    for head in proxy.heads() {
        let wanted = format!(
            "CONNECT {target} HTTP/1.1\r\nHost: {target}\r\nProxy-Authorization: Basic YW5uOmdlOmhlaW0=\r\n\r\n"
        );
        assert_eq!(head, wanted);
    }
    assert!(!proxy.heads().is_empty());
    for request in agent.requests() {
        assert_eq!(request.header("proxy-authorization"), None);
        assert_eq!(request.header("host"), Some(format!("localhost:{port}").as_str()));
    }
    assert!(!gateway.output().contains("heim"), "{}", gateway.output());
}

#[tokio::test]
async fn plain_requests_and_tokens_are_tunnelled() {
    let (agent, issuer, proxy) =
        (singer().await, ScriptedAgent::start(Card::v1()).await, TestProxy::start().await);
    issuer.on_path("/token", |_| {
        Reply::json(&json!({ "access_token": "t", "token_type": "Bearer", "expires_in": 3600 }))
    });
    let oauth2 = format!(
        "token_url: \"{}/token\", client_id: gw, client_secret: s",
        issuer.url().trim_end_matches('/')
    );
    let bard = format!("{{ card: \"{}\", auth: {{ oauth2: {{ {oauth2} }} }} }}", agent.card_url());
    let gateway = gateway(&format!("{{ url: \"http://{}\" }}", proxy.address), &bard).await;
    assert_eq!(words(&said(&gateway).await), "la");
    let mut wanted = [agent.address().to_string(), issuer.address().to_string()];
    wanted.sort();
    assert_eq!(proxy.targets(), wanted);
}

#[tokio::test]
async fn exempt_hosts_are_called_directly() {
    let (agent, common, own) = (singer().await, TestProxy::start().await, TestProxy::start().await);
    let card = format!("http://localhost:{}/card.json", agent.address().port());
    agent.on_path("/card.json", {
        let body = Card::v1().skill("sing").body(&format!("http://localhost:{}/", agent.address().port()));
        move |_| Reply::bytes_of("application/json", &body)
    });
    for (more, override_) in [
        (", no_proxy: [localhost]".to_owned(), String::new()),
        (", no_proxy: [127.0.0.0/8]".to_owned(), String::new()),
        (String::new(), ", proxy: none".to_owned()),
        (String::new(), format!(", proxy: \"http://{}/\"", own.address)),
    ] {
        let proxy = format!("{{ url: \"http://{}\"{more} }}", common.address);
        let gateway = gateway(&proxy, &format!("{{ card: \"{card}\"{override_} }}")).await;
        assert_eq!(words(&said(&gateway).await), "la", "{more}{override_}");
    }
    assert_eq!((common.heads().len(), own.heads().is_empty()), (0, false));
}

#[tokio::test]
async fn refused_address_is_no_target() {
    let (agent, other) = (singer().await, singer().await);
    let port = other.address().port();
    let interface = json!([{ "url": format!("http://localhost:{port}/"), "protocolBinding": "JSONRPC", "protocolVersion": "1.0" }]);
    agent.set_card(Card::v1().skill("sing").set("supportedInterfaces", interface));
    for (resolve, target) in [("gateway", false), ("proxy", true)] {
        let proxy = TestProxy::start().await;
        let gateway = TestGateway::start(|ports| {
            format!(
                "{}outbound:\n  allow: [10.0.0.0/8]\n  proxy: {{ url: \"http://{}\", resolve: {resolve} }}\nagents:\n  bard: {{ card: \"{}\" }}\n",
                ports.listeners(),
                proxy.address,
                agent.card_url()
            )
        })
        .await;
        let result = said(&gateway).await;
        assert_eq!(proxy.targets().contains(&format!("localhost:{port}")), target, "{resolve}");
        assert!(!proxy.targets().contains(&format!("127.0.0.1:{port}")), "{resolve}");
        match resolve {
            "gateway" => {
                assert!(complaint(&result).contains("an address that may not be called"), "{result}")
            }
            _ => assert_eq!(words(&result), "la"),
        }
        assert_eq!(
            gateway.output().contains("leaves host names to the proxy"),
            target,
            "{}",
            gateway.output()
        );
    }
}

#[tokio::test]
async fn failures_of_proxy_have_causes() {
    let agent = singer().await;
    let flood: &'static [u8] = vec![b'x'; 64 * 1024].leak();
    for (answer, cause) in [
        (
            &b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n"[..],
            "does not accept the gateway's credentials",
        ),
        (b"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno", "does not permit the destination"),
        (b"HTTP/1.1 502 Bad Gateway\r\n\r\n", "could not connect to the destination (HTTP 502)"),
        (b"HTTP/1.1 418 No\r\n\r\n", "HTTP 418"),
        (b"HTTP/1.1 200 OK\r\n\r\nHTTP/1.1 200 OK\r\n\r\n{}", "bytes that were not asked for"),
        (b"SSH-2.0-x\r\n\r\n", "no HTTP response"),
        (b"", "it closed the connection"),
        (flood, "its header is too large"),
    ] {
        let proxy = TestProxy::answering(Some(answer)).await;
        let told = agents(&proxy.address, &agent).await;
        assert!(told.contains("egress proxy") && told.contains(cause), "{cause}: {told}");
        assert_eq!(proxy.heads().len(), 1, "{cause}");
    }
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let told = agents(&gone, &agent).await;
    assert!(told.contains("egress proxy cannot be reached"), "{told}");
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let told = agents(&silent.local_addr().unwrap(), &agent).await;
    assert!(told.contains("no connection in time"), "{told}");
    assert!(agent.requests().is_empty());
}

/// The text of the command `agents` behind this proxy.
async fn agents(proxy: &SocketAddr, agent: &ScriptedAgent) -> String {
    let config = format!(
        "outbound: {{ proxy: {{ url: \"http://{proxy}\" }} }}\nagents:\n  bard:\n    card: {}\n    timeouts: {{ connect: 500ms }}\n",
        agent.card_url()
    );
    let output = TestGateway::run_with_config("agents", &config).await;
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test]
async fn url_of_proxy_is_checked() {
    for (proxy, problem) in [
        ("{ url: \"https://p:1\" }", "is not the URL of a proxy"),
        ("{ url: \"http://geheim@p:1\" }", "has a user without a password"),
        ("{ url: \"http://a:geheim%0d@p:1\" }", "not percent-encoded"),
        ("{ url: \"http://p\" }", "is not the URL of a proxy"),
        ("{ url: \"http://0x7f.1:80\" }", "odd spelling"),
        ("{ no_proxy: [a.example] }", "is of no use without a proxy"),
    ] {
        let config = format!(
            "outbound: {{ proxy: {proxy} }}\nagents: {{ bard: {{ card: \"http://a/card.json\" }} }}\n"
        );
        let output = TestGateway::run_with_config("check", &config).await;
        let told = String::from_utf8(output.stderr).unwrap() + &String::from_utf8(output.stdout).unwrap();
        assert!(told.contains(problem) && !told.contains("geheim"), "{proxy}: {told}");
    }
}
