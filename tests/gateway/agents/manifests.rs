//! Agents from ARDF manifests: called with all that the manifest says, and read back without its
//! secrets.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::kit::scene::words;
use crate::support::certs::server_config;
use crate::support::payload::v1;
use crate::support::{Authority, Card, Reply, Request, ScriptedAgent, TestGateway};

const BINARY: &str = env!("CARGO_BIN_EXE_mcp-a2a-gateway");

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples")
}

/// The content that `resources/read` gives for an agent.
async fn described(gateway: &TestGateway, uri: &str) -> String {
    let result = gateway.client().modern("resources/read", json!({ "uri": uri })).await.result().await;
    let content = &result["contents"][0];
    assert_eq!(
        (content["uri"].as_str(), content["mimeType"].as_str()),
        (Some(uri), Some("application/json"))
    );
    content["text"].as_str().unwrap().to_owned()
}

async fn call(gateway: &TestGateway, tool: &str) -> String {
    let params = json!({ "name": tool, "arguments": { "text": "x" } });
    words(&gateway.client().modern("tools/call", params).await.result().await).to_owned()
}

#[tokio::test]
async fn key_and_certificate_reach_agent() {
    let authority = Authority::new("ours");
    // Without the certificate there is no connection, without the header no answer.
    let tls = server_config(&authority.server(), Some(&authority));
    let agent = ScriptedAgent::start_tls(Card::v1().skill("sing"), tls).await;
    agent.on_send(|request| match request.header("x-api-key") {
        Some("from-the-environment") => Reply::events([v1::message("la")]),
        _ => Reply::status(401, "who are you?"),
    });
    let client = authority.client("gateway");
    let manifest = json!({
        "type": "subagent", "id": "bard", "name": "Bard",
        "a2a": { "agentCardUri": "${BARD_CARD_URI}", "skills": { "sing": "sing_a_song" } },
        "security": {
            "auth": { "type": "apiKey", "in": "header", "name": "X-Api-Key", "value": "${env:BARD_KEY}" },
            "mtls": { "enabled": true, "clientCert": "gw.crt", "clientKey": "${BARD_TLS_KEY}", "ca": "ca.pem" },
        },
        "capabilities": { "message": { "stream": { "sse": true, "headers": { "X-Tenant": "acme" } } } },
    });
    let text = serde_json::to_string_pretty(&manifest).unwrap();
    let (card, key) = (agent.card_url(), client.key_pem());
    let environment =
        [("BARD_CARD_URI", card.as_str()), ("BARD_KEY", "from-the-environment"), ("BARD_TLS_KEY", &key)];
    let gateway = TestGateway::start_with(&environment, |ports| {
        for (name, content) in [("bard.json", &text), ("gw.crt", &client.pem()), ("ca.pem", &authority.pem())]
        {
            std::fs::write(ports.directory.join(name), content).unwrap();
        }
        format!("{}agents:\n  bard:\n    manifest: bard.json\n", ports.listeners())
    })
    .await;
    assert_eq!(call(&gateway, "sing_a_song").await, "la");
    let sent = &agent.calls("SendStreamingMessage")[0];
    assert_eq!(sent.header("x-tenant"), Some("acme"));
    // Byte for byte what the operator wrote: references, no secrets.
    for uri in ["a2a-agent://bard", "a2a-agent:///bard"] {
        assert_eq!(described(&gateway, uri).await, text);
    }
}

#[tokio::test]
async fn methods_are_called_where_manifest_says() {
    let agent = ScriptedAgent::start(Card::v1().skill("sing")).await;
    let stranger = ScriptedAgent::start(Card::v1().skill("sing")).await;
    let (task, context) = ("raw-task-7", "raw-context-7");
    agent.on_send(move |_| Reply::result(v1::task(task, context, "working")));
    agent.on_get(move |_| Reply::result(v1::bare_completed(task, context, "la")));
    let manifest = |id: &str, url: String| {
        let endpoint = |path: &str| json!({ "endpoint": format!("{url}{path}") });
        let capabilities = json!({
            "message": { "send": endpoint("send"), "stream": { "sse": false } }, "tasks": { "get": endpoint("get") },
        });
        let a2a = json!({ "agentCardUri": agent.card_url() });
        json!({ "type": "subagent", "id": id, "name": id, "a2a": a2a, "capabilities": capabilities })
            .to_string()
    };
    let written = [("bard", manifest("bard", agent.url())), ("thief", manifest("thief", stranger.url()))];
    let gateway = TestGateway::start(|ports| {
        for (name, text) in &written {
            std::fs::write(ports.directory.join(format!("{name}.json")), text).unwrap();
        }
        let agents = "agents:\n  bard: { manifest: bard.json }\n  thief: { manifest: thief.json }\n";
        format!("{}{agents}", ports.listeners())
    })
    .await;
    assert_eq!(call(&gateway, "bard_sing").await, "la");
    for (method, path) in [("SendMessage", "/send"), ("GetTask", "/get")] {
        let calls = agent.calls(method);
        let paths: Vec<&str> = calls.iter().map(|sent| sent.path.as_str()).collect();
        assert!(!paths.is_empty() && paths.iter().all(|called| *called == path), "{method}: {paths:?}");
    }
    // Another host than the card's gets nothing without the operator's leave.
    let list = gateway.client().modern("tools/list", json!({})).await.result().await;
    assert!(!list.to_string().contains("thief_sing") && stranger.requests().is_empty(), "{list}");
}

#[tokio::test]
async fn key_goes_where_manifest_says() {
    for (place, fits) in [
        ("query", (|sent: &Request| sent.path.ends_with("?k=a%26b")) as fn(&Request) -> bool),
        ("cookie", |sent| sent.header("cookie") == Some("k=a&b")),
    ] {
        let agent = ScriptedAgent::start(Card::v1().skill("sing")).await;
        agent.on_send(move |sent| match fits(sent) {
            true => Reply::events([v1::message("la")]),
            false => Reply::status(401, "who are you?"),
        });
        let auth = json!({ "type": "apiKey", "in": place, "name": "k", "value": "${env:BARD_KEY}" });
        let a2a = json!({ "agentCardUri": agent.card_url() });
        let manifest = json!({ "type": "subagent", "id": "bard", "name": "b", "a2a": a2a, "security": { "auth": auth } });
        let gateway = TestGateway::start_with(&[("BARD_KEY", "a&b")], |ports| {
            std::fs::write(ports.directory.join("bard.json"), manifest.to_string()).unwrap();
            format!("{}agents:\n  bard:\n    manifest: bard.json\n", ports.listeners())
        })
        .await;
        assert_eq!(call(&gateway, "bard_sing").await, "la", "{place}");
        assert!(agent.requests().iter().all(fits), "{place}: with every request, the card's too");
    }
}

#[tokio::test]
async fn agent_without_manifest_has_its_card() {
    let [plain, told] = [Card::v1().skill("sing"), Card::v1().skill("sing")];
    let (plain, told) = (ScriptedAgent::start(plain).await, ScriptedAgent::start(told).await);
    let manifest = json!({
        "type": "subagent", "id": "Told Agent", "name": "Told", "a2a": { "agentCardUri": told.card_url() },
    });
    let gateway = TestGateway::start(|ports| {
        std::fs::create_dir_all(ports.directory.join("agents.d")).unwrap();
        std::fs::write(ports.directory.join("agents.d/told.json"), manifest.to_string()).unwrap();
        let card = plain.card_url();
        format!("{}agents:\n  plain:\n    card: {card}\nmanifests: agents.d\n", ports.listeners())
    })
    .await;
    let card: Value = serde_json::from_str(&described(&gateway, "a2a-agent://plain").await).unwrap();
    assert_eq!(card["name"], "Scripted Agent");
    assert_eq!(described(&gateway, "a2a-agent://told-agent").await, manifest.to_string());
}

#[tokio::test]
async fn examples_run() {
    let [ventas, finanzas] = [(); 2].map(|()| ScriptedAgent::start(Card::v1().skill("ask")));
    let (ventas, finanzas) = (ventas.await, finanzas.await);
    ventas.on_send(|_| Reply::events([v1::message("sold")]));
    finanzas.on_send(|_| Reply::events([v1::message("paid")]));
    let identity = Authority::new("ours").client("gateway");
    let (certificate, key) = (identity.pem(), identity.key_pem());
    let environment = [
        ("VENTAS_CARD_URI", ventas.card_url()),
        ("VENTAS_TOKEN", "ventas-token".to_owned()),
        ("FINANZAS_CARD_URI", finanzas.card_url()),
        ("FINANZAS_API_KEY", "finanzas-key".to_owned()),
        ("FINANZAS_TLS_CERTIFICATE", certificate),
        ("FINANZAS_TLS_KEY", key),
    ];
    let checked = Command::new(BINARY)
        .args(["check", "--config"])
        .arg(examples().join("subagents.yaml"))
        .envs(environment.iter().map(|(name, value)| (name, value)))
        .output()
        .unwrap();
    assert!(checked.status.success(), "{checked:?}");
    let environment = environment.each_ref().map(|(name, value)| (*name, value.as_str()));
    let yaml = std::fs::read_to_string(examples().join("subagents.yaml")).unwrap();
    let (_, agents) = yaml.split_once("\nagents:\n").unwrap();
    // The example as it is, but for its port.
    let agents = agents.replace("manifest: ", &format!("manifest: {}/", examples().display()));
    let gateway =
        TestGateway::start_with(&environment, |ports| format!("{}agents:\n{agents}", ports.listeners()))
            .await;
    assert_eq!(call(&gateway, "ventas_consulta").await, "sold");
    assert_eq!(call(&gateway, "finanzas_consulta").await, "paid");
    let sent = &ventas.calls("SendStreamingMessage")[0];
    assert_eq!(sent.header("authorization"), Some("Bearer ventas-token"));
    let sent = &finanzas.calls("SendStreamingMessage")[0];
    assert_eq!((sent.header("x-api-key"), sent.header("x-tenant")), (Some("finanzas-key"), Some("acme")));
    let text = described(&gateway, "a2a-agent://ventas").await;
    assert_eq!(text, std::fs::read_to_string(examples().join("ventas-subagent.json")).unwrap());
    assert!(!text.contains("ventas-token"));
}

#[test]
fn schema_of_manifests_is_printed() {
    let output = Command::new(BINARY).args(["schema", "--manifest"]).output().unwrap();
    let kept = examples().join("../schemas/subagent.v0.1.json");
    assert!(output.status.success());
    assert_eq!(String::from_utf8(output.stdout).unwrap(), std::fs::read_to_string(kept).unwrap());
}
