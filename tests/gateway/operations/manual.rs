//! The configurations on the page about callers are run as they stand there, but for addresses.

use serde_json::json;

use crate::kit::issuer::{Issuer, Key};
use crate::kit::scene::words;
use crate::support::payload::v1;
use crate::support::{Card, McpClient, Reply, ScriptedAgent, TestGateway};

/// The first configuration below a heading of the page.
fn configuration(heading: &str) -> String {
    super::documents::configuration("docs/how-to/authorize-callers.md", heading)
}

/// The same before this agent, at a port of its own.
fn placed(heading: &str, main: u16, card: &str) -> String {
    let written = configuration(heading).replace("127.0.0.1:8080", &format!("127.0.0.1:{main}"));
    written.replace("http://127.0.0.1:9999/.well-known/agent-card.json", card)
}

#[tokio::test]
async fn caller_page_lets_build_in() {
    let agent = ScriptedAgent::start(Card::v1().skill("forecast")).await;
    agent.on_stream(|_| Reply::events([v1::message("sunny")]));
    let gateway = TestGateway::start(|ports| {
        let admin = format!("admin:\n  address: 127.0.0.1:{}\n", ports.admin);
        admin + &placed("Authenticate", ports.main, &agent.card_url())
    })
    .await;
    let key = "the-key-of-the-manual-0123456789abcdef";
    let call = json!({ "name": "weather_forecast", "arguments": { "text": "x" } });
    let build = gateway.client().header("X-Api-Key", key);
    assert_eq!(words(&build.modern("tools/call", call.clone()).await.result().await), "sunny");
    assert_eq!(gateway.client().modern("tools/call", call).await.status, 401);
}

#[tokio::test]
async fn caller_page_accepts_tokens() {
    let (key, other) = (Key::es256("k1"), Key::es256("k1"));
    let issuer = Issuer::new(&[&key]).await;
    let agent = ScriptedAgent::start(Card::v1().skill("forecast")).await;
    agent.on_stream(|_| Reply::events([v1::message("sunny")]));
    let gateway = TestGateway::start(|ports| {
        let written = placed("Authenticate", ports.main, &agent.card_url());
        let written = written.replace("https://login.example.com", &issuer.name());
        format!("admin: {{ address: 127.0.0.1:{} }}\n{written}", ports.admin)
    })
    .await;
    let call = json!({ "name": "weather_forecast", "arguments": { "text": "x" } });
    let called = async |token: String| {
        let answer = gateway.client().bearer(&token).modern("tools/call", call.clone()).await;
        let challenge = answer.header("www-authenticate").unwrap_or_default().to_owned();
        (answer.status, challenge, answer.json().await)
    };
    let claims = |audience: &str, scope: &str, groups: &[&str]| {
        issuer.claims(audience, |claims| {
            claims["scope"] = json!(scope);
            claims["groups"] = json!(groups);
        })
    };
    let ours = "https://gateway.example.com/mcp";
    let good = claims(ours, "weather.read", &["forecasters"]);
    let (status, _, answer) = called(key.sign(&good)).await;
    assert_eq!((status, words(&answer["result"])), (200, "sunny"));
    for (why, bad) in [
        ("another's key", other.sign(&good)),
        (
            "another audience",
            key.sign(&claims("https://elsewhere.example", "weather.read", &["forecasters"])),
        ),
    ] {
        let (status, challenge, _) = called(bad).await;
        assert!(status == 401 && challenge.contains("error=\"invalid_token\""), "{why}: {challenge}");
    }
    let (status, challenge, _) = called(key.sign(&claims(ours, "", &["forecasters"]))).await;
    assert!(status == 403 && challenge.contains("scope=\"weather.read\""), "{challenge}");
    assert_eq!(
        called(key.sign(&claims(ours, "weather.read", &["others"]))).await.0,
        403,
        "no rule allows it"
    );
    let nobody = gateway.client().modern("tools/call", call.clone()).await;
    let metadata = "https://gateway.example.com/.well-known/oauth-protected-resource/mcp";
    let challenge = nobody.header("www-authenticate").unwrap_or_default();
    assert!(nobody.status == 401 && challenge.contains(metadata), "{challenge}");
    for request in agent.requests() {
        assert!(request.header("authorization").is_none(), "a token never goes to an agent");
    }
}

#[tokio::test]
async fn rules_of_manual_hide_refused_tools() {
    let card = ["search", "create", "close", "delete"].into_iter().fold(Card::v1(), Card::skill);
    let agent = ScriptedAgent::start(card).await;
    agent.on_stream(|_| Reply::events([v1::message("done")]));
    let gateway = TestGateway::start(|ports| {
        let written = placed("Authorize", ports.main, &agent.card_url());
        format!("admin: {{ address: 127.0.0.1:{} }}\n{written}", ports.admin)
    })
    .await;
    let by = |key: &str| gateway.client().header("X-Api-Key", key);
    let operations = by("the-key-of-operations-0123456789abcdef");
    let desk = by("the-key-of-the-desk-0123456789abcdef01");
    let tools = async |client: &McpClient| {
        let list = client.modern("tools/list", json!({})).await.result().await;
        let names = list["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap());
        names.filter(|name| name.starts_with("tickets_")).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(tools(&operations).await, ["tickets_close", "tickets_create", "tickets_search"]);
    assert_eq!(tools(&desk).await, ["tickets_create", "tickets_search"]);
    let called = async |client: &McpClient, tool: &str| {
        client.modern("tools/call", json!({ "name": tool, "arguments": { "text": "x" } })).await.json().await
    };
    assert_eq!(words(&called(&desk, "tickets_create").await["result"]), "done");
    let heard = agent.calls("SendStreamingMessage").len();
    for (client, tool) in
        [(&operations, "tickets_delete"), (&desk, "tickets_delete"), (&desk, "tickets_close")]
    {
        assert_eq!(called(client, tool).await["error"]["code"], -32602, "{tool}");
    }
    assert_eq!(agent.calls("SendStreamingMessage").len(), heard, "the agent heard nothing of it");
    assert_eq!(by("another").modern("tools/list", json!({})).await.status, 401);
}

#[tokio::test]
async fn check_tells_permissions_of_caller() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("gateway.yaml");
    std::fs::write(&file, configuration("Authenticate")).unwrap();
    let file = file.to_str().unwrap();
    let asked = async |more: &[&str]| {
        let arguments: Vec<&str> = ["check", "--config", file].iter().chain(more).copied().collect();
        let output = TestGateway::run_command(&arguments).await;
        let told =
            String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        (output.status.code(), told.trim().to_owned())
    };
    let forecast = ["--may", "tools/call", "--agent", "weather", "--tool", "forecast"];
    let of = |caller: &'static str, more: &[&'static str]| {
        ["--as", caller].iter().chain(&forecast).chain(more).copied().collect::<Vec<_>>()
    };
    for (caller, more, code, told) in [
        ("key:ci", &[][..], 0, "key:ci: allowed by rule the build"),
        ("key:eve", &[], 1, "key:eve: refused: no rule allows it"),
        (
            "token:i#s",
            &["--group", "forecasters"],
            1,
            "token:i#s: refused: rule forecasters would allow it with the scopes weather.read",
        ),
        (
            "token:i#s",
            &["--group", "forecasters", "--scope", "weather.read"],
            0,
            "token:i#s: allowed by rule forecasters",
        ),
    ] {
        assert_eq!(asked(&of(caller, more)).await, (Some(code), told.to_owned()));
    }
    assert_eq!(asked(&["--as", "key:ci"]).await, (Some(0), "key:ci sees weather".to_owned()));
    assert_eq!(asked(&["--as", "key:eve"]).await, (Some(0), "key:eve sees no agent".to_owned()));
    let (code, told) = asked(&of("key:ci", &["--json"])).await;
    assert_eq!(
        (code, told.as_str()),
        (Some(0), r#"{"allowed":true,"rule":"the build","scopesNeeded":null}"#)
    );
    let (code, told) = asked(&["--as", "key:ci", "--may", "tools/call", "--agent", "wether"]).await;
    assert!(code == Some(1) && told.contains("there is no agent \"wether\""), "{told}");
    let (code, told) = asked(&["--as", "uri:spiffe://corp/a/../b"]).await;
    assert!(code == Some(1) && told.contains("is not a SPIFFE id: its path"), "{told}");
}

#[tokio::test]
async fn generated_key_lets_its_holder_in() {
    let output = TestGateway::run_command(&["key", "--json"]).await;
    let made: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let agent = ScriptedAgent::start(Card::v1().skill("sing")).await;
    let gateway = TestGateway::start(|ports| {
        let keys = format!("auth: {{ api_keys: {{ keys: {{ me: {} }} }} }}\n", made["hash"]);
        format!("{}{keys}agents: {{ bard: {{ card: '{}' }} }}\n", ports.listeners(), agent.card_url())
    })
    .await;
    let client = gateway.client().header("X-Api-Key", made["key"].as_str().unwrap());
    assert_eq!(client.modern("tools/list", json!({})).await.status, 200);
}

#[tokio::test]
async fn serve_warns_of_open_listener() {
    let agent = ScriptedAgent::start(Card::v1().skill("sing")).await;
    let warned = async |address: &'static str, require: &'static str| {
        let gateway = TestGateway::start(|ports| {
            let listeners = ports.listeners().replace(
                "\nadmin:",
                &format!("\n  - address: {address}:{}\n    require: {require}\nadmin:", ports.other),
            );
            let keys = crate::auth::callers::keys("");
            format!("{listeners}{keys}agents: {{ bard: {{ card: '{}' }} }}\n", agent.card_url())
        })
        .await;
        // Written after the warning, to the same stream.
        gateway.wait_for_output("agent card read").await;
        gateway.output().contains("listener serves every agent without authentication")
    };
    assert!(warned("0.0.0.0", "none").await);
    assert!(!warned("0.0.0.0", "any").await && !warned("127.0.0.1", "none").await);
}
