//! Every secret of a configuration, looked for in everything that the gateway says: it is used, and
//! shown nowhere.

use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;

use crate::support::certs::server_config;
use crate::support::payload::v1;
use crate::support::{Authority, Card, Reply, ScriptedAgent, TestGateway, in_time};

/// A text that every secret here contains.
const MARK: &str = "CANARY";
/// A text that every answer of a peer contains and no output may repeat.
const WORD: &str = "PARROT";

const CONFIG: &str = r#"
log: { level: trace }
agents:
  fetches:
    card: {plain}fetches.json
    headers: { X-Static: "${env:STATIC}" }
    auth:
      api_key: [{ value: "${env:QUERY}", in: query, name: key }, { value: "${env:COOKIE}", in: cookie, name: k }]
      oauth2: { token_url: "{plain}token", client_id: gateway, client_secret: "${file:secret}", auth_method: client_secret_post }
  signs:
    card: {plain}signs.json
    auth: { oauth2: { token_url: "{plain}token", client_id: gateway, private_key: client.key } }
  fails:
    card: {plain}fails.json
    auth: { oauth2: { token_url: "{plain}denied", client_id: gateway, client_secret: "${env:BASIC_SECRET}" } }
  basic:
    card: {secure}basic.json
    tls: { ca: ca.pem, certificate: gw.crt, key: gw.key }
    auth:
      basic: { user: gateway, password: "${env:PASSWORD}" }
      api_key: { value: "${env:QUERY}", in: query, name: key }
  bearer:
    card: {secure}bearer.json?card={query}
    tls: { ca: ca.pem, certificate: gw.crt, key: gw.key }
    auth: { bearer: "${file:token}" }
    forward_headers: [Cookie]
"#;
const AGENTS: [&str; 5] = ["fetches", "signs", "fails", "basic", "bearer"];

/// Serves the cards of these agents, and answers calls in every way that there is.
fn play(agent: &ScriptedAgent, names: &[&str]) {
    for name in names {
        let card = Card::v1().skill("sing").body(&format!("{}{name}", agent.url()));
        for query in ["", "?key=CANARY-query", "?card=CANARY-card"] {
            let card = card.clone();
            agent.on_path(&format!("/{name}.json{query}"), move |_| {
                Reply::bytes_of("application/json", &card)
            });
        }
    }
    let count = AtomicUsize::new(0);
    agent.on_send(move |_| match count.fetch_add(1, Ordering::SeqCst) % 6 {
        0 => Reply::events([v1::message("la")]),
        1 => Reply::status(401, WORD).header("WWW-Authenticate", WORD),
        2 => Reply::status(502, WORD),
        3 => Reply::bytes_of("application/json", WORD.as_bytes()),
        4 => Reply::status(302, WORD).header("Location", "/PARROT?CANARY"),
        _ => Reply::hang_up(),
    });
}

/// ContextForge #5013, #6080: lists of what is to be hidden were kept by hand, and missed some of
/// it.
#[tokio::test]
async fn secrets_are_shown_to_agents_alone() {
    let authority = Authority::new("ours");
    let plain = ScriptedAgent::start(Card::v1()).await;
    let tls = server_config(&authority.server(), Some(&authority));
    let secure = ScriptedAgent::start_tls(Card::v1(), tls).await;
    play(&plain, &AGENTS[..3]);
    play(&secure, &AGENTS[3..]);
    let count = AtomicUsize::new(0);
    plain.on_path("/token", move |_| {
        let token = format!("CANARY-token-{}", count.fetch_add(1, Ordering::SeqCst));
        Reply::json(&json!({ "access_token": token, "token_type": "Bearer", "expires_in": 2, "refresh_token": "CANARY-refresh" }))
    });
    let denied = json!({ "error": "invalid_client", "error_description": "PARROT CANARY-secret is wrong" });
    plain.on_path("/denied", move |_| Reply::json(&denied).with_status(401));
    let [client, key] = [authority.client("gateway"), authority.client("signer")];
    let environment = ["STATIC", "QUERY", "COOKIE", "PASSWORD", "BASIC_SECRET"];
    let values = environment.map(|name| format!("CANARY-{}", name.to_lowercase()));
    let environment: Vec<(&str, &str)> =
        environment.into_iter().zip(values.iter().map(String::as_str)).collect();
    let gateway = TestGateway::start_with(&environment, |ports| {
        client.write(&ports.directory, "gw");
        for (name, content) in [
            ("ca.pem", authority.pem()),
            ("client.key", key.key_pem()),
            ("secret", "CANARY-secret".into()),
            ("token", "CANARY-bearer".into()),
        ] {
            std::fs::write(ports.directory.join(name), content).unwrap();
        }
        let config = CONFIG.replace("{plain}", &plain.url()).replace("{secure}", &secure.url());
        format!("{}{}", ports.listeners(), config.replace("{query}", "CANARY-card"))
    })
    .await;
    let mut seen = String::new();
    let caller = gateway.client().bearer("CANARY-client").header("Cookie", "c=CANARY-cookie");
    for _ in 0..8 {
        for name in AGENTS {
            let params = json!({ "name": format!("{name}_sing"), "arguments": { "text": "x" } });
            seen.push_str(&caller.modern("tools/call", params).await.text().await);
        }
    }
    break_files(&gateway).await;
    for path in ["/healthz", "/readyz", "/metrics", "/agents"] {
        seen.push_str(&gateway.admin().at(path).get(&[]).await.text().await);
    }
    seen.push_str(&gateway.output());
    assert!(
        seen.contains("DEBUG") && seen.contains("exchange with an agent failed"),
        "the log is at its finest: {seen}"
    );
    let keys = [client.key_pem(), key.key_pem()];
    let lines_of_keys = keys.iter().flat_map(|pem| pem.lines().filter(|line| !line.starts_with("---")));
    let basic = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, "gateway:CANARY-password");
    let secrets: Vec<&str> =
        [MARK, WORD, "canary", basic.as_str()].into_iter().chain(lines_of_keys).collect();
    let shown: Vec<&str> =
        seen.lines().filter(|line| secrets.iter().any(|secret| line.contains(secret))).collect();
    assert_eq!(shown, Vec::<&str>::new(), "a secret was shown");
    assert_used(&plain, &secure, &basic);
}

/// Breaks every file of credentials, and waits until that has been seen.
async fn break_files(gateway: &TestGateway) {
    let folder = gateway.ports().directory.clone();
    std::fs::write(folder.join("token"), "CANARY-bearer\nCANARY-bearer").unwrap();
    std::fs::write(folder.join("secret"), "").unwrap();
    std::fs::write(folder.join("gw.key"), "-----BEGIN PRIVATE KEY-----\nCANARY\n-----END PRIVATE KEY-----\n")
        .unwrap();
    std::fs::write(folder.join("client.key"), "CANARY").unwrap();
    for agent in ["fetches", "signs", "basic", "bearer"] {
        let line = format!("credential_reloads_total{{agent=\"{agent}\",outcome=\"refused\"}}");
        in_time(&line, async { while !gateway.metrics().await.contains(&line) {} }).await;
    }
}

/// Each secret got to its agent, and nothing of the client's did that is not named.
fn assert_used(plain: &ScriptedAgent, secure: &ScriptedAgent, basic: &str) {
    let used = format!("{:?}{:?}", plain.requests(), secure.requests());
    for secret in [
        "CANARY-static",
        "?key=CANARY-query",
        "k=CANARY-cookie",
        "Bearer CANARY-token-",
        "Bearer CANARY-bearer",
        basic,
        "c=CANARY-cookie",
    ] {
        assert!(used.contains(secret), "{secret} is used all the same");
    }
    assert!(!used.contains("CANARY-client"));
}
