//! Secrets in manifests: literal ones are refused in every place, references are shown to the agent
//! alone.

use serde_json::{Value, json};

use crate::support::payload::v1;
use crate::support::{Card, Reply, ScriptedAgent, TestGateway};

const JWT: &str = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJDQU5BUlkifQ.c2lnbmF0dXJlLWNhbmFyeQ";

/// The smallest manifest, with a member at this JSON pointer.
fn with(pointer: &str, value: Value) -> Value {
    let mut manifest = json!({
        "type": "subagent", "id": "bard", "name": "Bard", "a2a": { "agentCardUri": "https://bard.example/" },
    });
    let mut at = &mut manifest;
    for segment in pointer.split('/').skip(1) {
        at = &mut at[segment];
    }
    *at = value;
    manifest
}

/// Runs a command on a configuration with this manifest; its exit code and all that it prints.
async fn judged(command: &str, manifest: &Value) -> (Option<i32>, String) {
    let folder = tempfile::TempDir::new().unwrap();
    let path = folder.path().join("bard.json");
    std::fs::write(&path, manifest.to_string()).unwrap();
    let agents = format!("agents:\n  bard:\n    manifest: {}\n", path.display());
    let config = format!("listeners: [{{ address: 127.0.0.1:8080 }}]\n{agents}");
    let output = TestGateway::run_with_config(command, &config).await;
    let printed = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(printed).unwrap())
}

/// By the name of its member, by its value, in headers and in URLs: each is one problem at its
/// place, and not repeated.
#[tokio::test]
async fn literal_secret_is_refused() {
    let headers = "/capabilities/message/send/headers";
    let jwk = json!({ "keys": [{ "kty": "EC", "crv": "P-256", "x": "a", "y": "b", "d": "CANARY" }] });
    let random = "CANARY9f86d081884c7d659a2feaa0c55ad015";
    for (pointer, value, below) in [
        // Names.
        ("/metadata/clientSecret", json!("CANARY"), ""),
        ("/metadata/apiKey", json!("CANARY"), ""),
        ("/metadata/password", json!("CANARY"), ""),
        ("/metadata/password", json!(12345678), ""),
        ("/metadata/db", json!({ "private_key": "CANARY" }), "/private_key"),
        ("/metadata/list", json!([{ "DB_PASSWORD_2": "CANARY" }]), "/0/DB_PASSWORD_2"),
        ("/metadata/accessTokens", json!(["${env:A}", "CANARY"]), "/1"),
        ("/metadata/credentials", json!({ "user": "${env:A}", "pass": "CANARY" }), "/pass"),
        ("/metadata/connection-passphrase", json!("CANARY"), ""),
        ("/x-internal", json!({ "signingKey": "CANARY-1 ${env:A}" }), "/signingKey"),
        ("/x-auth-token", json!("CANARY"), ""),
        ("/metadata/headers", json!({ "authorization": "Bearer CANARY" }), "/authorization"),
        ("/metadata/headers", json!([{ "name": "X-Api-Key", "value": "CANARY" }]), "/0/value"),
        ("/metadata/env", json!([{ "key": "API_TOKEN", "value": "CANARY" }]), "/0/value"),
        // Values.
        ("/description", json!("Call it with sk-CANARY9f86d081884c7d65."), ""),
        ("/metadata/note", json!("ghp_CANARYcanaryCANARYcanaryCANARY0123456"), ""),
        ("/metadata/note", json!("AKIACANARYCANARY1234"), ""),
        ("/metadata/note", json!(format!("use {JWT}")), ""),
        ("/metadata/note", json!("xoxb-123456789012-CANARY"), ""),
        ("/metadata/note", json!("glpat-CANARY1234567890abcd"), ""),
        ("/metadata/note", json!("Bearer CANARY12345678"), ""),
        ("/metadata/note", json!("Basic Q0FOQVJZOmNhbmFyeQ=="), ""),
        ("/metadata/jwks", jwk, "/keys/0/d"),
        ("/name", json!("github_pat_CANARY0123456789abcdefghijkl"), ""),
        ("/version", json!(JWT), ""),
        ("/a2a/skills", json!({ "sing": "ghp_CANARYcanaryCANARYcanaryCANARY0123456" }), "/sing"),
        ("/security/auth", json!({ "type": "oauth2", "token": "${A}", "audience": JWT }), "/audience"),
        // Headers.
        (headers, json!({ "X-Upstream": "Bearer CANARY" }), "/X-Upstream"),
        (headers, json!({ "X-Upstream": "basic CANARY" }), "/X-Upstream"),
        (headers, json!({ "X-Upstream": random }), "/X-Upstream"),
        (headers, json!({ "X-Sig": "CANARY", "X-Pass": "CANARY" }), "/X-Pass"),
        (headers, json!({ "X-Auth": "CANARY" }), "/X-Auth"),
        // URLs.
        ("/a2a/agentCardUri", json!("https://a/card?sig=CANARY"), ""),
        ("/a2a/agentCardUri", json!("https://a/card?v=1;access%5Ftoken=CANARY"), ""),
        ("/a2a/agentCardUri", json!("card.json?token=CANARY"), ""),
        ("/capabilities/message/send/endpoint", json!("https://a/rpc?api_key=CANARY"), ""),
        ("/capabilities/message/send/endpoint", json!(format!("https://a/rpc?c={random}")), ""),
        ("/metadata/docs", json!("https://user:CANARY@docs.example/"), ""),
        ("/metadata/docs", json!("see https://CANARY@docs.example/ for more"), ""),
        ("/metadata/docs", json!("https://docs.example/#id_token=CANARY"), ""),
        ("/description", json!("Docs: https://docs.example/?a=b&password=CANARY."), ""),
    ] {
        let manifest = with(pointer, value);
        let (code, printed) = judged("check", &manifest).await;
        let place = format!(": {pointer}{below}: is a secret that is written out");
        assert!(code == Some(1) && printed.contains(&place), "{manifest}: {printed}");
        assert_eq!(printed.lines().filter(|line| line.contains(&place)).count(), 1, "{printed}");
        assert!(!printed.contains("CANARY") && !printed.contains(JWT), "{printed}");
    }
}

/// No command runs with such a manifest.
#[tokio::test]
async fn literal_secret_ends_commands() {
    let literal = with("/metadata/token", json!("CANARY"));
    for command in ["serve", "agents"] {
        let (code, printed) = judged(command, &literal).await;
        assert!(
            code == Some(1) && printed.contains("/metadata/token") && !printed.contains("CANARY"),
            "{printed}"
        );
    }
}

/// The last of two members counts, and clients would read the first one too.
#[tokio::test]
async fn hidden_duplicate_is_refused() {
    let folder = tempfile::TempDir::new().unwrap();
    let path = folder.path().join("bard.json");
    // The reader that finds members that are written twice does not take this character.
    let metadata = "{ \"token\": \"CANARY\", \"token\": \"${env:HOME}\", \"note\": \"\u{9b}\" }";
    let manifest = with("/metadata", json!(0))
        .to_string()
        .replace("\"metadata\":0", &format!("\"metadata\":{metadata}"));
    std::fs::write(&path, manifest).unwrap();
    let config = format!(
        "listeners: [{{ address: 127.0.0.1:8080 }}]\nagents:\n  bard:\n    manifest: {}\n",
        path.display()
    );
    let output = TestGateway::run_with_config("check", &config).await;
    let printed = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert!(output.status.code() == Some(1) && !printed.contains("CANARY"), "{printed}");
}

/// References, and members that only sound like secrets, are fine.
#[tokio::test]
async fn references_are_accepted() {
    let headers = "/capabilities/message/send/headers";
    for (pointer, value) in [
        ("/metadata/apiKey", json!("${env:PATH}")),
        ("/metadata/authorization", json!("Bearer ${PATH}")),
        ("/metadata/credentials", json!({ "user": "${env:PATH}" })),
        ("/metadata/password", json!("")),
        ("/metadata/maxTokens", json!(4096)),
        ("/metadata/keywords", json!(["songs", "poems"])),
        ("/metadata/tokenUrl", json!("https://idp.example/token")),
        ("/metadata/tokenType", json!("Bearer")),
        ("/metadata/publicKey", json!("MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE")),
        ("/metadata/passwordPolicy", json!("strong")),
        ("/metadata/secretName", json!("bard-credentials")),
        ("/metadata/labels", json!([{ "key": "region", "value": "eu" }])),
        ("/metadata/commit", json!("9f86d081884c7d659a2feaa0c55ad0159f86d081")),
        ("/metadata/docs", json!("https://docs.example/@user?page=2#token-endpoint")),
        ("/metadata/repository", json!("ssh://git@code.example/bard.git")),
        ("/metadata/docs", json!("https://${env:USER}:${env:PASSWORD}@docs.example/")),
        ("/description", json!("Bearer tokens are needed; the skill sk-translate-long-documents is free.")),
        ("/a2a/skills", json!({ "reset_password": "reset_password", "token": "count_tokens" })),
        (headers, json!({ "X-Tenant": "5f0c1c1e-7f4b-4d5a-9d5e-1f2a3b4c5d6e" })),
        (headers, json!({ "X-Route": "team-payments-eu-west-1-production" })),
    ] {
        let manifest = with(pointer, value);
        let (code, printed) = judged("check", &manifest).await;
        assert_eq!(code, Some(0), "{manifest}: {printed}");
    }
}

/// Where a reference leads is sent to the agent, and is in no log, no report and no answer.
#[tokio::test]
async fn references_are_shown_to_agent_alone() {
    const MARK: &str = "CANARY";
    let agent = ScriptedAgent::start(Card::v1()).await;
    let card = Card::v1().skill("sing").body(&agent.url());
    agent.on_path("/card.json?sig=CANARY-card", move |_| Reply::bytes_of("application/json", &card));
    agent.on_send(|_| Reply::status(502, "no"));
    let manifest = json!({
        "type": "subagent", "id": "bard", "name": "Bard",
        "a2a": { "agentCardUri": format!("{}card.json?sig=${{env:CARD_SIG}}", agent.url()) },
        "security": { "auth": { "type": "oauth2", "token": "${env:TOKEN}" } },
        "capabilities": { "message": {
            "send": { "endpoint": format!("{}rpc?token=${{env:CALL}}", agent.url()), "headers": { "X-Pass": "${env:PASS}" } },
            "stream": { "sse": false },
        } },
        "metadata": { "apiKey": "${env:TOKEN}" },
    });
    let names = ["CARD_SIG", "TOKEN", "CALL", "PASS"];
    let values = ["CANARY-card", "CANARY-token", "CANARY-call", "CANARY-pass"];
    let environment: Vec<(&str, &str)> = names.into_iter().zip(values).collect();
    let config = "log: { level: trace }\nagents:\n  bard:\n    manifest: bard.json\n";
    let gateway = TestGateway::start_with(&environment, |ports| {
        std::fs::write(ports.directory.join("bard.json"), manifest.to_string()).unwrap();
        format!("{}{config}", ports.listeners())
    })
    .await;
    let mut seen = String::new();
    let client = gateway.client();
    for answer in
        [Reply::status(401, "no"), Reply::hang_up(), Reply::status(302, "").header("Location", "/else")]
    {
        agent.on_send(move |_| answer.clone());
        let params = json!({ "name": "bard_sing", "arguments": { "text": "x" } });
        seen.push_str(&client.modern("tools/call", params).await.text().await);
    }
    agent.on_send(|_| Reply::result(v1::message("la")));
    for uri in ["a2a-agent://bard", "a2a://agents/registry"] {
        seen.push_str(&client.modern("resources/read", json!({ "uri": uri })).await.text().await);
    }
    seen.push_str(&client.modern("tools/list", json!({})).await.text().await);
    let sent = agent.calls("SendMessage");
    assert!(sent.iter().all(|sent| sent.path == "/rpc?token=CANARY-call"), "and yet it is used");
    assert_eq!(sent[0].header("x-pass"), Some("CANARY-pass"));
    agent.stop().await;
    for path in ["/metrics", "/agents"] {
        seen.push_str(&gateway.admin().at(path).get(&[]).await.text().await);
    }
    seen.push_str(&gateway.output());
    for command in ["agents", "check"] {
        let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_mcp-a2a-gateway"));
        let file = gateway.ports().directory.join("gateway.yaml");
        let output =
            child.arg(command).arg("--config").arg(file).envs(environment.iter().copied()).output().unwrap();
        seen.push_str(&String::from_utf8([output.stdout, output.stderr].concat()).unwrap());
    }
    let line = seen.lines().find(|line| line.contains(MARK));
    assert_eq!(line, None, "a secret is shown");
}
