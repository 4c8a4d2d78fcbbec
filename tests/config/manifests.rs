//! ARDF manifests and the settings that they become. Out of scope: mistakes in a manifest
//! (`manifest_problems`).

use mcp_a2a_gateway::config::{
    AgentBinding, Authorization, CardSource, ClientAuthMethod, Settings, manifest_schema,
};
use serde_json::{Value, json};

use super::desk::Desk;
use super::secrets::identity;

pub(crate) const ONE: &str =
    "listeners: [{address: 127.0.0.1:8080}]\nagents:\n  ventas:\n    manifest: ventas.json\n";

/// The smallest manifest.
fn least() -> Value {
    json!({ "type": "subagent", "id": "ventas", "name": "Ventas", "a2a": { "agentCardUri": "https://ventas.example/" } })
}

/// The smallest manifest with a member at this JSON pointer; missing parents are made.
pub(crate) fn with(pointer: &str, value: Value) -> Value {
    let mut manifest = least();
    put(&mut manifest, pointer, value);
    manifest
}

pub(crate) fn put(manifest: &mut Value, pointer: &str, value: Value) {
    let mut at = manifest;
    for segment in pointer.split('/').skip(1) {
        at = &mut at[segment];
    }
    *at = value;
}

pub(crate) fn desk() -> Desk {
    let (certificate, key) = identity();
    Desk::new()
        .file("gw.crt", certificate)
        .file("gw.key", &key)
        .file("token", "from-a-file\n")
        .variable("TOKEN", "from-the-environment")
        .variable("KEY", &key)
        .variable("CARD", "https://ventas.example/card.json")
}

fn settings_of(manifest: &Value) -> Settings {
    desk().file("ventas.json", manifest.to_string()).settings(ONE)
}

/// The headers of the only agent, as one can read them.
fn headers(settings: &Settings) -> Vec<String> {
    settings.agents[0].headers.iter().map(|(name, value)| format!("{name}: {}", value.expose())).collect()
}

#[test]
fn schema_is_valid_and_fits_least_manifest() {
    let schema: Value = serde_json::from_str(manifest_schema()).unwrap();
    assert!(jsonschema::meta::is_valid(&schema));
    assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
    assert!(jsonschema::validator_for(&schema).unwrap().is_valid(&least()));
    let agent = &settings_of(&least()).agents[0];
    assert_eq!((agent.name.as_str(), agent.streaming), ("ventas", true));
    assert_eq!(agent.card, CardSource::Url("https://ventas.example/".into()));
}

#[test]
fn manifest_describes_its_whole_agent() {
    let manifest = json!({
        "$schema": "subagent.v0.1.json", "schemaVersion": "0.1", "type": "subagent", "id": "urn:acme:ventas", "name": "Ventas",
        "description": "Sells.",
        "a2a": { "agentCardUri": "${CARD}", "preferredTransport": "JSONRPC", "skills": { "quote": "get_quote" } },
        "security": {
            "auth": { "type": "oauth2", "token": "${env:TOKEN}", "scopes": ["a"] },
            "mtls": { "enabled": true, "clientCert": "gw.crt", "clientKey": "${KEY}", "ca": "gw.crt" },
        },
        "mcpBridge": { "tools": [{ "name": "subagent_start" }, { "name": "get_quote" }], "taskResourceTemplate": "a2a://task/{taskId}" },
        "capabilities": {
            "message": { "send": { "headers": { "X-Tenant": "acme" }, "mtls": true }, "stream": { "sse": false, "headers": { "x-tenant": "acme" } } },
            "tasks": { "get": { "sse": false }, "cancel": {} },
        },
        "x-owner": { "anything": 1 }, "metadata": { "anything": 1 },
    });
    let settings = settings_of(&manifest);
    let agent = &settings.agents[0];
    assert_eq!(agent.card, CardSource::Url("https://ventas.example/card.json".into()));
    assert_eq!(headers(&settings), ["authorization: Bearer from-the-environment"]);
    let methods = &agent.methods;
    let own = methods.all().map(|method| method.headers.first().map(|(_, value)| value.expose()));
    assert_eq!(own, [Some("acme"), Some("acme"), None, None]);
    assert_eq!((methods.send.mtls, methods.get.mtls), (Some(true), None));
    assert!(agent.tls.ca.is_some() && agent.tls.certificate.is_some());
    assert!(agent.tls.key.as_ref().unwrap().expose().starts_with("-----BEGIN PRIVATE KEY"));
    assert_eq!(agent.description.as_deref(), Some("Sells."));
    assert_eq!(agent.skills["quote"].tool_name.as_deref(), Some("get_quote"));
    assert!(!agent.streaming);
    assert_eq!(agent.binding, AgentBinding::JsonRpc);
    let kept = agent.manifest.as_ref().unwrap();
    assert_eq!((kept.id.as_str(), kept.text.as_str()), ("urn:acme:ventas", manifest.to_string().as_str()));
    assert!(kept.path.ends_with("ventas.json"));
}

#[test]
fn manifest_names_any_binding() {
    let agent = |transport: &str, own: &str| {
        let manifest = with("/a2a/preferredTransport", json!(transport));
        let config = format!("agent_defaults: {{ binding: http_json }}\n{ONE}{own}");
        desk().file("ventas.json", manifest.to_string()).settings(&config).agents[0].binding
    };
    for (transport, binding) in [
        ("JSONRPC", AgentBinding::JsonRpc),
        ("HTTP+JSON", AgentBinding::HttpJson),
        ("GRPC", AgentBinding::Grpc),
    ] {
        assert_eq!(agent(transport, ""), binding, "{transport}");
        assert_eq!(agent(transport, "    binding: auto\n"), AgentBinding::Auto, "the configuration wins");
    }
    assert_eq!(settings_of(&least()).agents[0].binding, AgentBinding::Auto);
}

#[test]
fn credentials_become_headers() {
    for (auth, expected) in [
        (json!({ "type": "oauth2", "token": "${TOKEN}" }), "authorization: Bearer from-the-environment"),
        (json!({ "type": "oauth2", "value": "${file:token}" }), "authorization: Bearer from-a-file"),
        (
            json!({ "type": "oauth2", "token": "bearer ${TOKEN}" }),
            "authorization: bearer from-the-environment",
        ),
        (
            json!({ "type": "oauth2", "token": "${TOKEN}", "in": "header", "name": "X-Token" }),
            "x-token: Bearer from-the-environment",
        ),
        (
            json!({ "type": "apiKey", "value": "${TOKEN}", "name": "X-Api-Key" }),
            "x-api-key: from-the-environment",
        ),
        (
            json!({ "type": "apiKey", "token": "Token ${TOKEN}", "name": "Authorization" }),
            "authorization: Token from-the-environment",
        ),
    ] {
        assert_eq!(headers(&settings_of(&with("/security/auth", auth))), [expected]);
    }
    let disabled = json!({ "enabled": false, "clientCert": "none.crt", "clientKey": "none.key" });
    assert!(settings_of(&with("/security/mtls", disabled)).agents[0].tls.certificate.is_none());
}

#[test]
fn tokens_are_fetched_where_manifest_says() {
    let auth = json!({
        "type": "oauth2", "tokenUrl": "https://idp.example/token", "clientId": "gateway", "clientSecret": "${file:token}",
        "scopes": ["a", "b"], "audience": "ventas", "resource": "https://ventas.example/",
    });
    let oauth2 = |settings: &Settings| match &settings.agents[0].auth.authorization {
        Some(Authorization::OAuth2(oauth2)) => (**oauth2).clone(),
        other => panic!("{other:?}"),
    };
    let fetched = oauth2(&settings_of(&with("/security/auth", auth.clone())));
    assert_eq!((fetched.client_id.as_str(), fetched.audience.as_deref()), ("gateway", Some("ventas")));
    assert_eq!(
        (fetched.scopes, fetched.resources),
        (vec!["a".into(), "b".into()], vec!["https://ventas.example/".into()])
    );
    assert!(
        matches!(&fetched.proof, ClientAuthMethod::SecretBasic(secret) if secret.expose() == "from-a-file")
    );
    let mut manifest = with("/security/auth", auth);
    manifest["security"]["auth"].as_object_mut().unwrap().remove("clientSecret");
    put(
        &mut manifest,
        "/security/mtls",
        json!({ "enabled": true, "clientCert": "gw.crt", "clientKey": "gw.key" }),
    );
    assert!(matches!(oauth2(&settings_of(&manifest)).proof, ClientAuthMethod::TlsClientAuth));
}

#[test]
fn configuration_keys_win_over_manifest() {
    let mut manifest = with("/security/auth", json!({ "type": "oauth2", "token": "${TOKEN}" }));
    put(&mut manifest, "/a2a/skills", json!({ "quote": "get_quote", "order": "place_order" }));
    put(
        &mut manifest,
        "/capabilities/message/stream",
        json!({ "sse": false, "headers": { "X-Tenant": "acme" } }),
    );
    put(&mut manifest, "/description", json!("Sells."));
    let own = "    card: https://elsewhere.example/\n    headers: { authorization: 'Basic ${TOKEN}' }\n    streaming: true\n    \
               description: Buys.\n    skills: { quote: { tool_name: ours }, order: { hidden: true } }\n";
    let settings = desk().file("ventas.json", manifest.to_string()).settings(&format!("{ONE}{own}"));
    let agent = &settings.agents[0];
    assert_eq!(agent.card, CardSource::Url("https://elsewhere.example/".into()));
    assert_eq!(headers(&settings), ["authorization: Basic from-the-environment"]);
    assert_eq!((agent.streaming, agent.description.as_deref()), (true, Some("Buys.")));
    assert_eq!(agent.skills["quote"].tool_name.as_deref(), Some("ours"));
    assert!(
        agent.skills["order"].hidden && agent.skills["order"].tool_name.as_deref() == Some("place_order")
    );
}

#[test]
fn manifest_folder_is_agent_folder() {
    let named = |id: &str| {
        let mut manifest = least();
        manifest["id"] = id.into();
        manifest.to_string()
    };
    let desk = || {
        let desk = desk();
        std::fs::create_dir_all(desk.path("agents.d/below.json")).unwrap();
        desk.file("agents.d/b.json", named("Ventas Norte")).file("agents.d/notes.txt", "no manifest")
    };
    let text = "listeners: [{address: 127.0.0.1:8080}]\nmanifests: agents.d\n";
    let settings = desk().file("agents.d/a.json", named("zeta")).settings(text);
    let names: Vec<_> = settings.agents.iter().map(|agent| agent.name.as_str()).collect();
    assert_eq!(names, ["ventas-norte", "zeta"]);
    let beside = format!("{text}agents: {{ alfa: {{ card: http://a/ }} }}\n");
    assert_eq!(desk().settings(&beside).agents.len(), 2);
    for (more, file, text, expected) in [
        ("ventas norte", "c.json", text, "agents.d/c.json: /id: there is an agent ventas-norte already"),
        ("alfa", "c.json", &beside, "agents.d/c.json: /id: there is an agent alfa already"),
        (
            "…",
            "c.json",
            text,
            "agents.d/c.json: /id: is not a name for an agent (a lower-case letter or digit, then up to 31 lower-case letters, digits, - and _)",
        ),
    ] {
        let report = desk().file(&format!("agents.d/{file}"), named(more)).report(text);
        assert_eq!(report, format!("gateway.yaml:2: manifests: {expected}"));
    }
    let missing = "listeners: [{address: 127.0.0.1:8080}]\nmanifests: none.d\n";
    assert_eq!(
        Desk::new().report(missing),
        "gateway.yaml:2: manifests: cannot read none.d: No such file or directory (os error 2)"
    );
    let empty = Desk::new();
    std::fs::create_dir(empty.path("empty.d")).unwrap();
    assert_eq!(
        empty.report("listeners: [{address: 127.0.0.1:8080}]\nmanifests: empty.d\n"),
        "gateway.yaml:2: manifests: empty.d holds no manifest (a file *.json)"
    );
}

#[test]
fn manifest_path_begins_at_its_folder() {
    let desk = desk();
    std::fs::create_dir(desk.path("agents.d")).unwrap();
    let (certificate, key) = identity();
    let mut manifest = with("/security/auth", json!({ "type": "oauth2", "token": "${file:secret}" }));
    put(
        &mut manifest,
        "/security/mtls",
        json!({ "enabled": true, "clientCert": "own.crt", "clientKey": "own.key" }),
    );
    let desk = desk
        .file("agents.d/ventas.json", manifest.to_string())
        .file("agents.d/secret", "beside")
        .file("agents.d/own.crt", certificate)
        .file("agents.d/own.key", key);
    let settings = desk.settings("listeners: [{address: 127.0.0.1:8080}]\nmanifests: agents.d\n");
    assert_eq!(headers(&settings), ["authorization: Bearer beside"]);
    assert!(settings.agents[0].tls.certificate.is_some());
}
