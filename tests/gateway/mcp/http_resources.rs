//! JSON endpoints of existing systems under URIs of resources: variables, credentials, bounds, rules.

use serde_json::{Value, json};

use crate::agents::files::url_at;
use crate::auth::rules::{auth, key_of};
use crate::kit::scene::Scene;
use crate::support::{Card, McpClient, Reply, ScriptedAgent, in_time};

const URI: &str = "memory://data/{namespace}/{key}";

/// A bank of another system, which any HTTP server can be.
async fn bank() -> ScriptedAgent {
    ScriptedAgent::start(Card::v1().skill("bank")).await
}

fn settings(bank: &ScriptedAgent) -> String {
    let url = url_at(bank, "/{caller}/{namespace}?key={key}");
    let fixed = url_at(bank, "/queue");
    format!(
        "resources:\n  http:\n    - uri: {URI}\n      url: \"{url}\"\n      name: bank value\n      max_bytes: 1KiB\n      \
         headers: {{ X-Bank-Key: bank-secret }}\n    - uri: batchtools://queue/status\n      url: \"{fixed}\"\n  http_policy: \
         {{ redact: [/password] }}\n"
    )
}

async fn read(client: &McpClient, uri: &str) -> Value {
    client.modern("resources/read", json!({ "uri": uri })).await.json().await
}

#[tokio::test]
async fn endpoint_is_read_under_its_uri() {
    let bank = bank().await;
    let shown = json!({ "value": [1, 2], "password": "secret" });
    bank.on_path("/key%3Aann/team%20a?key=task%3A1", move |_| {
        Reply::json(&shown).header("Last-Modified", "Tue, 24 Nov 2026 00:00:00 GMT")
    });
    bank.on_path("/queue", |_| Reply::json(&json!({ "queueSize": 7 })));
    let scene = Scene::tuned(&format!("{}{}", settings(&bank), auth(&["ann"]))).await;
    let ann = scene.gateway.client().header("X-Api-Key", &key_of("ann"));
    let answer = read(&ann, "memory://data/team%20a/task%3A1").await;
    let content = &answer["result"]["contents"][0];
    let value: Value = serde_json::from_str(content["text"].as_str().unwrap()).unwrap();
    assert_eq!(value, json!({ "value": [1, 2], "password": "***" }));
    let meta = &content["_meta"];
    assert_eq!((&meta["type"], &meta["cachePolicy"]), (&json!("memory"), &json!("dynamic")));
    assert_eq!(meta["lastModified"], "2026-11-24T00:00:00.000Z");
    let asked = bank.requests().into_iter().find(|request| request.path.contains("team")).unwrap();
    assert_eq!(asked.path, "/key%3Aann/team%20a?key=task%3A1");
    assert_eq!(asked.header("x-bank-key"), Some("bank-secret"));
    assert!(asked.header("x-api-key").is_none(), "the key of the caller stays here");
    let templates = ann.modern("resources/templates/list", json!({})).await.result().await;
    assert!(templates.to_string().contains(URI), "{templates}");
    let listed = ann.modern("resources/list", json!({})).await.result().await;
    assert!(listed.to_string().contains("batchtools://queue/status"), "{listed}");
    let aliased = read(&ann, "mcp://mcp-a2a-gateway/batchtools/queue/status").await;
    assert!(aliased.to_string().contains("queueSize"), "{aliased}");
}

#[tokio::test]
async fn endpoint_faults_are_clear() {
    let bank = bank().await;
    bank.on_path("/anonymous/large?key=k", |_| Reply::json(&json!("x".repeat(2000))));
    bank.on_path("/anonymous/broken?key=k", |_| Reply::bytes_of("application/json", b"{"));
    bank.on_path("/anonymous/page?key=k", |_| Reply::bytes_of("text/html", b"{}"));
    bank.on_path("/anonymous/moved?key=k", |_| {
        Reply::status(302, "").header("Location", "http://127.0.0.1/")
    });
    bank.on_path("/anonymous/gone?key=k", |_| Reply::status(404, ""));
    let scene = Scene::tuned(&settings(&bank)).await;
    let client = scene.gateway.client();
    for (namespace, reason) in [
        ("large", "more than 1024 bytes (max_bytes)"),
        ("broken", "does not respond with JSON"),
        ("page", "does not respond with JSON"),
        ("moved", "HTTP 302"),
        ("gone", "no such resource"),
        ("%2E%2E", "no such resource"),
        ("a%2F..%2Fb", "no such resource"),
    ] {
        let answer = read(&client, &format!("memory://data/{namespace}/k")).await;
        let told = answer["error"]["message"].as_str().unwrap_or_default();
        assert!(told.contains(reason), "{namespace}: {answer}");
    }
    assert!(bank.requests().iter().all(|request| !request.path.contains("..")), "no step upwards is sent");
}

#[tokio::test]
async fn policy_of_endpoints_limits_and_expires() {
    let bank = bank().await;
    let shown = |modified: &'static str| {
        move |_: &_| Reply::json(&json!({ "value": 1 })).header("Last-Modified", modified)
    };
    bank.on_path("/anonymous/fresh?key=k", shown("Tue, 01 Jan 2999 00:00:00 GMT"));
    bank.on_path("/anonymous/old?key=k", shown("Sun, 01 Jan 2023 00:00:00 GMT"));
    bank.on_path("/anonymous/undated?key=k", |_| Reply::json(&json!({ "value": 1 })));
    let policy = "http_policy: { rate: 5, max_age: 365d, redact: [/password] }";
    let settings = settings(&bank).replace("http_policy: { redact: [/password] }", policy);
    assert!(settings.contains(policy), "{settings}");
    let scene = Scene::tuned(&settings).await;
    let client = scene.gateway.client();
    for (namespace, is_known) in [("fresh", true), ("old", false), ("undated", true)] {
        let answer = read(&client, &format!("memory://data/{namespace}/k")).await;
        assert_eq!(answer["result"].is_object(), is_known, "{namespace}: {answer}");
        let told = answer["error"]["message"].as_str();
        assert!(is_known || told.is_some_and(|told| told.contains("no such resource")), "{answer}");
    }
    let limited = async {
        loop {
            let params = json!({ "uri": "memory://data/undated/k" });
            if client.modern("resources/read", params).await.status == 429 {
                break;
            }
        }
    };
    in_time("the rate of the family", limited).await;
}

#[tokio::test]
async fn rules_deny_an_endpoint() {
    let bank = bank().await;
    bank.on_path("/queue", |_| Reply::json(&json!({ "queueSize": 7 })));
    let rules = "rules:\n  - deny: true\n    callers: [\"key:ben\"]\n    resources: \"batchtools://*\"\n  - callers: [\"key:*\"]\n";
    let scene = Scene::tuned(&format!("{}{}{rules}", settings(&bank), auth(&["ann", "ben"]))).await;
    let by = |name| scene.gateway.client().header("X-Api-Key", &key_of(name));
    let uri = "batchtools://queue/status";
    assert!(read(&by("ann"), uri).await["result"].is_object());
    let refused = read(&by("ben"), uri).await;
    assert!(refused["error"]["message"].as_str().unwrap().contains("no such resource"), "{refused}");
    let listed = by("ben").modern("resources/list", json!({})).await.result().await;
    assert!(!listed.to_string().contains(uri), "{listed}");
    assert_eq!(bank.requests().iter().filter(|request| request.path == "/queue").count(), 1);
}
