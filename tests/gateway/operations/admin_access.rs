//! The admin listener and the health listener: the proof of operators, the sessions of the page, calls
//! from the page, probes, and requests that look for a way around.

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::kit::command::RunningCommand;
use crate::support::certs::{client_config, server_config};
use crate::support::payload::v1;
use crate::support::{
    Answer, Authority, Card, McpClient, Reply, ScriptedAgent, TestGateway, free_port, in_time,
};

const TOKEN: &str = "token-of-the-operators";
const KEY: &str = "key-of-ann";

fn hash(text: &str) -> String {
    let digits: String = Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{digits}")
}

/// A gateway before a singing agent, with these lines under `admin` and these beside it.
async fn gateway_with(admin: &str, more: &str) -> (TestGateway, ScriptedAgent) {
    let agent = ScriptedAgent::start(Card::v1().skill("sing")).await;
    let gateway = TestGateway::start(|ports| {
        format!("{}{admin}{more}agents:\n  bard:\n    card: {}\n", ports.listeners(), agent.card_url())
    })
    .await;
    (gateway, agent)
}

async fn status(client: &McpClient, method: &str, headers: &[(&str, &str)]) -> u16 {
    client.send(method, headers, Vec::new()).await.status
}

async fn sign_in(gateway: &TestGateway, token: &str, headers: &[(&str, &str)]) -> Answer {
    let body = json!({ "token": token }).to_string().into_bytes();
    gateway.admin().at("/api/session").send("POST", headers, body).await
}

#[tokio::test]
async fn admin_token_opens_its_routes() {
    // The second one is known by its hash alone.
    let tokens = format!("  token: [{TOKEN}, \"{}\"]\n", hash("another-token-of-them"));
    let (gateway, _agent) = gateway_with(&tokens, "").await;
    let admin = gateway.admin();
    let right = admin.bearer(TOKEN);
    let hashed = admin.bearer("another-token-of-them");
    let wrong = admin.bearer("token-of-the-operator");
    let its_hash = admin.bearer(&hash(TOKEN));
    for path in ["/metrics", "/agents", "/api/overview", "/api/agents", "/api/activity", "/api/audit"] {
        assert_eq!(status(&right.at(path), "GET", &[]).await, 200, "{path}");
        assert_eq!(status(&hashed.at(path), "GET", &[]).await, 200, "{path}");
        assert_eq!(status(&admin.at(path), "GET", &[]).await, 401, "{path}");
    }
    for refused in [&wrong, &its_hash] {
        assert_eq!(status(&refused.at("/metrics"), "GET", &[]).await, 401);
    }
    for path in ["/healthz", "/livez", "/readyz", "/startupz", "/"] {
        assert_eq!(status(&admin.at(path), "GET", &[]).await, 200, "{path}");
    }
    assert_eq!(status(&admin.at("/api/overview"), "GET", &[]).await, 401);
    let challenged = admin.at("/api/overview").send("GET", &[], Vec::new()).await;
    assert!(challenged.header("www-authenticate").unwrap().starts_with("Bearer"));
    let state = right.at("/api/agents/bard").get(&[]).await.json().await;
    assert_eq!((&state["name"], &state["ready"]), (&json!("bard"), &json!(true)));
    assert_eq!(state["skills"][0]["tool"], json!("bard_sing"));
    assert_eq!(status(&right.at("/api/agents/none"), "GET", &[]).await, 404);
    assert!(!gateway.output().contains(TOKEN));
}

#[tokio::test]
async fn admin_without_token_is_closed() {
    let (gateway, _agent) = gateway_with("", "").await;
    let admin = gateway.admin();
    for path in ["/metrics", "/agents", "/readyz"] {
        assert_eq!(status(&admin.at(path), "GET", &[]).await, 200, "{path}");
    }
    for (method, path) in [("GET", "/api/overview"), ("POST", "/api/mcp"), ("POST", "/api/session")] {
        let refused = admin.bearer(TOKEN).at(path).send(method, &[], b"{}".to_vec()).await;
        assert_eq!(refused.status, 403, "{path}");
        let text = refused.text().await;
        assert!(text.contains("admin.token"), "{text}");
    }
}

#[tokio::test]
async fn guessed_tokens_are_limited() {
    let (gateway, _agent) = gateway_with(&format!("  token: {TOKEN}\n"), "").await;
    let wrong = gateway.admin().at("/metrics").bearer("token-of-somebody-else");
    let mut limited = None;
    for _ in 0..40 {
        let answer = wrong.get(&[]).await;
        if answer.status == 429 {
            limited = Some(answer);
            break;
        }
        assert_eq!(answer.status, 401);
    }
    let limited = limited.expect("a refusal");
    assert!(limited.header("retry-after").unwrap().parse::<u64>().unwrap() >= 1);
    assert_eq!(sign_in(&gateway, TOKEN, &[]).await.status, 429, "the page is no way around");
    let right = gateway.admin().at("/metrics").bearer(TOKEN);
    in_time("the end of the pause", async { while right.get(&[]).await.status == 429 {} }).await;
}

#[tokio::test]
async fn session_of_page_begins_and_ends() {
    let (gateway, _agent) = gateway_with(&format!("  token: {TOKEN}\n"), "").await;
    let own = gateway.admin_url("");
    let own = own.trim_end_matches('/');
    assert_eq!(sign_in(&gateway, "token-of-somebody", &[]).await.status, 401);
    for foreign in ["http://evil.example", "null", "https://127.0.0.1"] {
        assert_eq!(sign_in(&gateway, TOKEN, &[("Origin", foreign)]).await.status, 403, "{foreign}");
    }
    let signed_in = sign_in(&gateway, TOKEN, &[("Origin", own)]).await;
    assert_eq!(signed_in.status, 200);
    let set = signed_in.header("set-cookie").unwrap().to_owned();
    for attribute in ["HttpOnly", "SameSite=Strict", "Path=/", "Max-Age=28800"] {
        assert!(set.contains(attribute), "{set}");
    }
    let cookie = set.split(';').next().unwrap();
    let overview = gateway.admin().at("/api/overview").header("Cookie", cookie);
    assert_eq!(status(&overview, "GET", &[]).await, 200);
    let session = gateway.admin().at("/api/session").header("Cookie", cookie);
    assert_eq!(session.get(&[]).await.json().await["signed_in"], json!(true));
    // Another page that makes this browser send a change is refused.
    let call = gateway.admin().at("/api/mcp").header("Cookie", cookie);
    for headers in [&[][..], &[("Origin", "http://evil.example")], &[("Sec-Fetch-Site", "cross-site")]] {
        assert_eq!(status(&call, "POST", headers).await, 403, "{headers:?}");
    }
    assert_eq!(status(&session, "DELETE", &[("Origin", own)]).await, 200);
    assert_eq!(status(&overview, "GET", &[]).await, 401);
    assert_eq!(session.get(&[]).await.json().await["signed_in"], json!(false));
}

#[tokio::test]
async fn sessions_of_page_are_bounded() {
    let (gateway, _agent) = gateway_with(&format!("  token: {TOKEN}\n"), "").await;
    let mut cookies = Vec::new();
    for _ in 0..65 {
        let signed_in = sign_in(&gateway, TOKEN, &[]).await;
        cookies.push(signed_in.header("set-cookie").unwrap().split(';').next().unwrap().to_owned());
    }
    let mut open = 0;
    for cookie in &cookies {
        let overview = gateway.admin().at("/api/overview").header("Cookie", cookie);
        open += usize::from(status(&overview, "GET", &[]).await == 200);
    }
    assert_eq!(open, 64);
}

#[tokio::test]
async fn page_has_a_strict_policy() {
    let (gateway, _agent) = gateway_with("", "").await;
    for (path, media_type) in
        [("/", "text/html"), ("/page/style.css", "text/css"), ("/page/app.js", "text/javascript")]
    {
        let page = gateway.admin().at(path).get(&[]).await;
        assert_eq!(page.status, 200, "{path}");
        assert!(page.header("content-type").unwrap().starts_with(media_type), "{path}");
        let policy = page.header("content-security-policy").unwrap();
        assert!(policy.starts_with("default-src 'none'; script-src 'self';"), "{policy}");
        assert!(!policy.contains("unsafe"), "{policy}");
        assert_eq!(page.header("x-content-type-options"), Some("nosniff"));
        let text = page.text().await;
        assert!(!text.contains("https://") && !text.contains("innerHTML"), "{path}");
    }
    let head = gateway.admin().at("/").send("HEAD", &[], Vec::new()).await;
    assert_eq!((head.status, head.text().await.as_str()), (200, ""));
}

#[tokio::test]
async fn admin_bodies_and_methods_are_checked() {
    let (gateway, _agent) = gateway_with(&format!("  token: {TOKEN}\n"), "limits: { body_read: 1s }\n").await;
    let large = gateway.admin().at("/api/session").send("POST", &[], vec![b' '; 2 << 20]).await;
    assert_eq!(large.status, 413);
    let wrong = gateway.admin().at("/metrics").send("POST", &[], Vec::new()).await;
    assert_eq!((wrong.status, wrong.header("allow")), (405, Some("GET")));
    assert_eq!(gateway.admin().at("/api/session").send("POST", &[], b"{\"x\":1}".to_vec()).await.status, 400);
    let mut slow = TcpStream::connect(("127.0.0.1", gateway.ports().admin)).await.unwrap();
    slow.write_all(b"POST /api/session HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{")
        .await
        .unwrap();
    let mut answer = String::new();
    in_time("a refusal", slow.read_to_string(&mut answer)).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
}

/// Returns the status of a request that is written as it is.
async fn raw(port: u16, target: &str, host: &str) -> String {
    let mut connection = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let request = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    connection.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    in_time("an answer", connection.read_to_string(&mut answer)).await.unwrap();
    answer
}

#[tokio::test]
async fn admin_is_not_behind_other_ports() {
    let agent = ScriptedAgent::start(Card::v1().skill("sing")).await;
    let gateway = TestGateway::start(|ports| {
        let health = format!("health: {{ address: 127.0.0.1:{} }}\n", ports.other);
        let admin = format!("  token: {TOKEN}\n");
        format!("{}{admin}{health}agents:\n  bard:\n    card: {}\n", ports.listeners(), agent.card_url())
    })
    .await;
    let admin = gateway.ports().admin;
    for port in [gateway.ports().main, gateway.ports().other] {
        for path in ["/metrics", "/agents", "/api/overview", "/"] {
            for target in [
                path.to_owned(),
                format!("/{path}"),
                format!("/mcp/..{path}"),
                format!("/livez/..{path}"),
                format!("/%2e{path}"),
                format!("http://127.0.0.1:{admin}{path}"),
            ] {
                for host in ["localhost".to_owned(), format!("127.0.0.1:{admin}")] {
                    let answer = raw(port, &target, &host).await;
                    assert!(!answer.starts_with("HTTP/1.1 200"), "{port} {target} {host}: {answer}");
                }
            }
        }
    }
    for target in ["//metrics", "/metrics/", "/livez/../metrics", "/%6detrics"] {
        let answer = raw(admin, target, "localhost").await;
        assert!(answer.starts_with("HTTP/1.1 404"), "{target}: {answer}");
    }
}

#[tokio::test]
async fn health_listener_serves_probes_alone() {
    for (metrics, expected) in [("false", 404), ("true", 200)] {
        let agent = ScriptedAgent::start(Card::v1().skill("sing")).await;
        let gateway = TestGateway::start(|ports| {
            let health = format!("health: {{ address: 127.0.0.1:{}, metrics: {metrics} }}\n", ports.other);
            format!("{}{health}agents:\n  bard:\n    card: {}\n", ports.listeners(), agent.card_url())
        })
        .await;
        let health = McpClient::new(&format!("http://127.0.0.1:{}/", gateway.ports().other));
        for path in ["/livez", "/readyz", "/startupz"] {
            assert_eq!(status(&health.at(path), "GET", &[]).await, 200, "{path}");
            assert_eq!(status(&health.at(path), "HEAD", &[]).await, 200, "{path}");
            // Load balancers use any name.
            let answer = raw(gateway.ports().other, path, "balancer.example").await;
            assert!(answer.starts_with("HTTP/1.1 200"), "{path}: {answer}");
        }
        assert_eq!(status(&health.at("/metrics"), "GET", &[]).await, expected);
        let foreign = raw(gateway.ports().other, "/metrics", "evil.example").await;
        assert!(
            foreign.starts_with(if metrics == "true" { "HTTP/1.1 403" } else { "HTTP/1.1 40" }),
            "{foreign}"
        );
        for path in ["/healthz", "/agents", "/", "/api/session", "/api/overview", "/page/app.js"] {
            assert_eq!(status(&health.at(path), "GET", &[]).await, 404, "{path}");
        }
        assert_eq!(status(&health.at("/api/session"), "POST", &[]).await, 404);
    }
}

/// An agent that accepts connections and never answers.
async fn silent_agent() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    (listener, url)
}

#[tokio::test]
async fn readyz_names_the_silent_agent() {
    let (_listener, url) = silent_agent().await;
    let folder = tempfile::tempdir().unwrap();
    let (main, health) = (free_port(), free_port());
    let config = format!(
        "listeners: [{{ address: 127.0.0.1:{main} }}]\nhealth: {{ address: 127.0.0.1:{health} }}\n\
         ready: {{ timeout: 1h }}\nagents:\n  mute: {{ card: '{url}?key=secret' }}\n"
    );
    let file = folder.path().join("gateway.yaml");
    std::fs::write(&file, config).unwrap();
    let _running = RunningCommand::start(&["serve", "--config", file.to_str().unwrap()]);
    let client = McpClient::new(&format!("http://127.0.0.1:{health}/readyz"));
    let answer = in_time("an answer", async {
        loop {
            if let Ok(answer) = client.try_send("GET", &[], Vec::new()).await {
                return answer;
            }
        }
    })
    .await;
    assert_eq!(answer.status, 503);
    let body = answer.json().await;
    assert_eq!((&body["ready"], &body["reason"]), (&json!(false), &json!("agents")));
    assert_eq!(
        (&body["waiting"][0]["agent"], &body["waiting"][0]["why"]),
        (&json!("mute"), &json!("no answer yet"))
    );
    let shown = body["waiting"][0]["url"].as_str().unwrap();
    assert!(shown.starts_with(&url) && !shown.contains("secret"), "{shown}");
    assert_eq!(status(&client.at("/livez"), "GET", &[]).await, 200);
    assert_eq!(status(&client.at("/startupz"), "GET", &[]).await, 503);
    let foreign = raw(health, "/readyz", "balancer.example").await;
    assert!(foreign.starts_with("HTTP/1.1 503") && !foreign.contains("mute"), "{foreign}");
    // The command for health checks says the same.
    let checked = RunningCommand::start(&["health", "--config", file.to_str().unwrap()]).ended().await;
    assert_eq!(checked.code, Some(1));
    assert!(checked.out.contains("no answer yet"), "{checked:?}");
    // A file that a reload rejects does not make the process unhealthy.
    let broken = std::fs::read_to_string(&file).unwrap() + "zebra: 1\n";
    std::fs::write(&file, broken).unwrap();
    let live = RunningCommand::start(&["health", "--probe", "live", "--config", file.to_str().unwrap()]);
    let live = live.ended().await;
    assert_eq!(live.code, Some(0), "{live:?}");
    let live = RunningCommand::start(&["health", "--url", &format!("http://127.0.0.1:{health}/livez")])
        .ended()
        .await;
    assert_eq!(live.code, Some(0), "{live:?}");
    let gone = RunningCommand::start(&["health", "--url", "http://127.0.0.1:1/readyz"]).ended().await;
    assert_eq!(gone.code, Some(1), "{gone:?}");
}

#[tokio::test]
async fn silent_agent_delays_readyz_briefly() {
    let (_listener, url) = silent_agent().await;
    let begun = std::time::Instant::now();
    let gateway = TestGateway::start(|ports| {
        format!("{}ready: {{ timeout: 1s }}\nagents:\n  mute: {{ card: '{url}' }}\n", ports.listeners())
    })
    .await;
    assert!(begun.elapsed() < std::time::Duration::from_secs(20), "{:?}", begun.elapsed());
    let body = gateway.admin().at("/readyz").get(&[]).await.json().await;
    assert_eq!((&body["ready"], &body["waiting"][0]["agent"]), (&json!(true), &json!("mute")));
    assert_eq!(status(&gateway.admin().at("/startupz"), "GET", &[]).await, 200);
}

#[tokio::test]
async fn readyz_names_agents_that_are_down() {
    let gateway = TestGateway::start(|ports| {
        format!("{}agents:\n  down: {{ card: 'http://127.0.0.1:1/' }}\n", ports.listeners())
    })
    .await;
    let body = gateway.admin().at("/readyz").get(&[]).await.json().await;
    assert_eq!(body, json!({ "ready": true, "degraded": ["agents.down"] }));
}

#[tokio::test]
async fn readyz_tells_of_the_drain() {
    let (gateway, _agent) = gateway_with("", "shutdown: { grace: 1m }\n").await;
    gateway.signal("TERM");
    let ready = gateway.admin().at("/readyz");
    let body = in_time("the drain", async {
        loop {
            let answer = ready.get(&[]).await;
            if answer.status == 503 {
                return answer.json().await;
            }
        }
    })
    .await;
    assert_eq!(body, json!({ "ready": false, "reason": "draining" }));
    assert_eq!(status(&ready.at("/livez"), "GET", &[]).await, 200);
}

#[tokio::test]
async fn admin_certificate_is_an_operator() {
    let (authority, others) = (Authority::new("operators"), Authority::new("others"));
    let folder = tempfile::tempdir().unwrap();
    let (main, admin, health) = (free_port(), free_port(), free_port());
    authority.server().write(folder.path(), "server");
    std::fs::write(folder.path().join("ca.pem"), authority.pem()).unwrap();
    let config = format!(
        "listeners: [{{ address: 127.0.0.1:{main} }}]\nhealth: {{ address: 127.0.0.1:{health} }}\nadmin:\n  address: \
         127.0.0.1:{admin}\n  tls:\n    certificate: server.crt\n    key: server.key\n    client_auth: {{ mode: \
         optional, ca: ca.pem }}\nagents:\n  down: {{ card: 'http://127.0.0.1:1/' }}\n"
    );
    let file = folder.path().join("gateway.yaml");
    std::fs::write(&file, config).unwrap();
    let _running = RunningCommand::start(&["serve", "--config", file.to_str().unwrap()]);
    let ready = McpClient::new(&format!("http://127.0.0.1:{health}/readyz"));
    in_time("the start", async {
        while !matches!(ready.try_send("GET", &[], Vec::new()).await, Ok(answer) if answer.status == 200) {}
    })
    .await;
    let client = |identity, alpn: &[&str]| {
        McpClient::new(&format!("https://localhost:{admin}/api/overview"))
            .tls(client_config(&authority, identity, alpn))
    };
    let (ann, eve) = (authority.client("ann"), others.client("eve"));
    for alpn in [&["http/1.1"][..], &["h2"]] {
        assert_eq!(status(&client(Some(&ann), alpn), "GET", &[]).await, 200, "{alpn:?}");
        assert_eq!(status(&client(None, alpn), "GET", &[]).await, 401, "{alpn:?}");
        assert_eq!(status(&client(None, alpn).at("/readyz"), "GET", &[]).await, 200, "{alpn:?}");
        let refused = client(Some(&eve), alpn).try_send("GET", &[], Vec::new()).await;
        assert!(refused.is_err(), "{alpn:?}");
    }
    // A browser presents a certificate for any page.
    let call = client(Some(&ann), &["http/1.1"]).at("/api/mcp");
    assert_eq!(status(&call, "POST", &[("Origin", "https://evil.example")]).await, 403);
}

/// Runs a command to its end; returns the exit code and all that it printed.
async fn command(arguments: &[&str]) -> (Option<i32>, String) {
    let ended = RunningCommand::start(arguments).ended().await;
    (ended.code, format!("{}{}", ended.out, ended.err))
}

/// A running gateway with certificates of a private authority, which its agent has too.
struct PrivateGateway {
    folder: tempfile::TempDir,
    agent: ScriptedAgent,
    main: u16,
    admin: u16,
    _running: RunningCommand,
}

impl PrivateGateway {
    async fn start() -> Self {
        let authority = Authority::new("operators");
        let folder = tempfile::tempdir().unwrap();
        let (main, admin, health) = (free_port(), free_port(), free_port());
        authority.server().write(folder.path(), "server");
        authority.client("ann").write(folder.path(), "ann");
        std::fs::write(folder.path().join("ca.pem"), authority.pem()).unwrap();
        let tls = server_config(&authority.server(), Some(&authority));
        let agent = ScriptedAgent::start_tls(Card::v1().skill("sing"), tls).await;
        agent.on_stream(|_| Reply::events([v1::completed("t", "c", "la")]));
        let tls = "certificate: server.crt, key: server.key";
        let config = format!(
            "listeners: [{{ address: 127.0.0.1:{main}, tls: {{ {tls} }} }}]\nhealth: {{ address: 127.0.0.1:{health} }}\n\
             admin:\n  address: 127.0.0.1:{admin}\n  tls: {{ {tls}, client_auth: {{ mode: optional, ca: ca.pem }} }}\n\
             agents:\n  bard:\n    card: {}\n    tls: {{ ca: ca.pem, certificate: ann.crt, key: ann.key }}\n",
            agent.card_url()
        );
        std::fs::write(folder.path().join("gateway.yaml"), config).unwrap();
        let file = folder.path().join("gateway.yaml");
        let running = RunningCommand::start(&["serve", "--config", file.to_str().unwrap()]);
        let ready = McpClient::new(&format!("http://127.0.0.1:{health}/readyz"));
        in_time("the start", async {
            while !matches!(ready.try_send("GET", &[], Vec::new()).await, Ok(answer) if answer.status == 200)
            {
            }
        })
        .await;
        Self { folder, agent, main, admin, _running: running }
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }

    /// Runs a command with the options of both lists.
    async fn run(&self, arguments: &[&str], more: &[&str]) -> (Option<i32>, String) {
        command(&[arguments, more].concat()).await
    }
}

/// `call`, `health` and `check --diff` reach listeners with certificates of a private authority.
#[tokio::test]
async fn commands_trust_private_authority() {
    let gateway = PrivateGateway::start().await;
    let (ca, file) = (gateway.path("ca.pem"), gateway.path("gateway.yaml"));
    let (certificate, key) = (gateway.path("ann.crt"), gateway.path("ann.key"));
    let trust = ["--ca", ca.as_str()];
    let both = [&trust[..], &["--certificate", &certificate, "--key", &key]].concat();
    let probe = format!("https://localhost:{}/readyz", gateway.admin);
    let asked = ["health", "--url", &probe];
    let (code, told) = gateway.run(&asked, &[]).await;
    assert!(code == Some(1) && told.contains("certificate"), "{told}");
    let (code, told) = gateway.run(&asked, &trust).await;
    assert_eq!(code, Some(0), "{told}");
    let page = format!("https://localhost:{}", gateway.admin);
    let asked = ["check", "--config", &file, "--diff", &page];
    let (code, told) = gateway.run(&asked, &trust).await;
    assert_eq!(code, Some(1), "{told}");
    let (code, told) = gateway.run(&asked, &both).await;
    assert!(code == Some(0) && told.contains("0 differences"), "{told}");
    let mcp = format!("https://localhost:{}/mcp", gateway.main);
    let called = ["call", "sing", "--text", "x", "--url", &mcp];
    let (code, told) = gateway.run(&called, &[]).await;
    assert!(code == Some(1) && told.contains("certificate"), "{told}");
    let (code, told) = gateway.run(&called, &trust).await;
    assert_eq!((code, told.lines().next()), (Some(0), Some("la")), "{told}");
    let url = gateway.agent.url();
    let (code, told) = gateway.run(&["call", "sing", "--text", "x", "--agent-url", &url], &both).await;
    assert_eq!((code, told.lines().next()), (Some(0), Some("la")), "{told}");
}

/// An option without its use, and a file without certificates, are named.
#[tokio::test]
async fn wrong_options_of_trust_are_named() {
    let gateway = PrivateGateway::start().await;
    let (ca, file, key) = (gateway.path("ca.pem"), gateway.path("gateway.yaml"), gateway.path("ann.key"));
    let probe = format!("https://localhost:{}/readyz", gateway.admin);
    for (arguments, expected, words) in [
        (vec!["call", "sing", "--config", &file, "--ca", &ca], 2, vec!["--ca and --certificate need --url"]),
        (vec!["check", "--config", &file, "--ca", &ca], 1, vec!["need --diff"]),
        (vec!["health", "--url", &probe, "--ca", &key], 1, vec!["ca"]),
        (vec!["health", "--url", &probe, "--ca", "missing.pem"], 1, vec!["--ca: ", "missing.pem"]),
    ] {
        let (code, told) = gateway.run(&arguments, &[]).await;
        assert!(
            code == Some(expected) && words.iter().all(|word| told.contains(word)),
            "{arguments:?}: {told}"
        );
    }
}

/// Returns the headers and the body of a request of the page.
fn page_request(method: &'static str) -> (Vec<(&'static str, &'static str)>, String) {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": { "name": "page", "version": "1" },
        "progressToken": 1,
    });
    let mut params = json!({ "_meta": meta });
    let mut headers = vec![("MCP-Protocol-Version", "2026-07-28"), ("Mcp-Method", method)];
    if method == "tools/call" {
        params["name"] = json!("bard_sing");
        params["arguments"] = json!({ "text": "la" });
        headers.push(("Mcp-Name", "bard_sing"));
    }
    (headers, json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string())
}

/// Returns the messages of a call of the page.
async fn relayed(gateway: &TestGateway, method: &'static str, credential: Option<&str>) -> Vec<Value> {
    let (mut headers, body) = page_request(method);
    headers.extend(credential.map(|credential| ("X-Caller-Credential", credential)));
    let client = gateway.admin().at("/api/mcp").bearer(TOKEN);
    let answer = client.send("POST", &headers, body.into_bytes()).await;
    assert_eq!(answer.status, 200);
    let text = answer.text().await;
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// A browser, or a script of an operator, would take the messages so far for all of them.
#[tokio::test]
async fn cut_call_of_page_does_not_look_whole() {
    let (gateway, agent) = gateway_with(&format!("  token: {TOKEN}\n"), "").await;
    agent.on_stream(|_| {
        let working = v1::status_update("t", "c", "working", Some("Looking it up"));
        Reply::stream().event(v1::task("t", "c", "working")).event(working).stall()
    });
    let (headers, body) = page_request("tools/call");
    let lines: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let address = format!("127.0.0.1:{}", gateway.ports().admin);
    let mut socket = TcpStream::connect(&address).await.unwrap();
    let head = format!(
        "POST /api/mcp HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {TOKEN}\r\n{lines}Content-Length: {}\r\n\r\n",
        body.len()
    );
    socket.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
    let mut read = Vec::new();
    while !String::from_utf8_lossy(&read).contains("Looking it up") {
        assert!(in_time("progress", socket.read_buf(&mut read)).await.unwrap() > 0, "{read:?}");
    }
    // A byte that belongs to no request.
    socket.write_all(b"x").await.unwrap();
    drop(in_time("the end", socket.read_to_end(&mut read)).await);
    let text = String::from_utf8_lossy(&read).into_owned();
    assert!(text.contains("transfer-encoding: chunked") && !text.ends_with("\r\n0\r\n\r\n"), "{text}");
}

#[tokio::test]
async fn page_calls_as_its_caller() {
    let auth = format!(
        "auth: {{ api_keys: {{ keys: {{ ann: '{}', ben: '{}' }} }} }}\nrules: [{{ callers: 'key:ann' }}]\n",
        hash(KEY),
        hash("key-of-ben")
    );
    let (gateway, agent) = gateway_with(&format!("  token: {TOKEN}\n"), &auth).await;
    agent.on_stream(|_| Reply::events([crate::support::payload::v1::message("la la")]));
    let with_key = format!("Key {KEY}");
    let listed = relayed(&gateway, "tools/list", Some(&with_key)).await;
    assert!(listed[0]["result"]["tools"].to_string().contains("bard_sing"), "{listed:?}");
    let called = relayed(&gateway, "tools/call", Some(&with_key)).await;
    assert!(called.last().unwrap()["result"]["content"].to_string().contains("la la"), "{called:?}");
    // The operator's token is no credential of a caller, and a caller without a right gets none.
    for credential in [None, Some("Key wrong"), Some("Bearer token-of-the-operators"), Some("Key key-of-ben")]
    {
        let refused = relayed(&gateway, "tools/call", credential).await;
        assert!(refused[0]["error"].is_object(), "{credential:?}: {refused:?}");
    }
    assert_eq!(agent.calls("SendStreamingMessage").len(), 1);
    let audit = gateway.admin().at("/api/audit").bearer(TOKEN).get(&[]).await.json().await;
    let allowed = audit["lines"].as_array().unwrap().iter().filter(|line| line["decision"] == "allowed");
    assert_eq!(allowed.filter(|line| line["tool"] == "bard_sing").count(), 1, "{audit}");
    let page = gateway.admin().at("/api/history").bearer(TOKEN).get(&[]).await.json().await;
    assert!(page["intervals"].is_array());
}

#[tokio::test]
async fn live_call_is_shown() {
    let (gateway, agent) = gateway_with(&format!("  token: {TOKEN}\n"), "").await;
    agent.on_stream(|_| Reply::stream().event(crate::kit::quiz::begun()).stall());
    let client = gateway.client();
    let call = client.request("tools/call", &json!({ "name": "bard_sing", "arguments": { "text": "x" } }));
    let headers = [("Content-Type", "application/json"), ("Accept", "application/json, text/event-stream")];
    let calling = client.try_send("POST", &headers, call.to_string().into_bytes());
    let activity = gateway.admin().at("/api/activity").bearer(TOKEN);
    let shown = async {
        loop {
            let now = activity.get(&[]).await.json().await;
            if now["calls"][0]["tool"] == "bard_sing" {
                return now;
            }
        }
    };
    let now = tokio::select! {
        now = in_time("the call", shown) => now,
        _ = calling => panic!("the call ended"),
    };
    assert_eq!(
        (&now["calls"][0]["agent"], &now["calls"][0]["caller"]),
        (&json!("bard"), &json!("anonymous"))
    );
}
