//! Resources of the configuration: texts, files and templates under URIs of the operator's choice.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::support::{Card, McpClient, ScriptedAgent, TestGateway};

const STATIC: &str = r#"resources:
  static:
    - { uri: "docs://terms", name: terms, title: Terms, description: The terms., file: terms.txt }
    - { uri: "docs://pixel", file: pixel.png }
    - { uri: "docs://blob", mime_type: application/pdf, blob: "JVBERg==" }
    - { uri: "docs://secret", text: "Only for some." }
    - { uri: "docs://pages/{page}/data", mime_type: application/json, text: '{"page":"{{page}}","again":"{{page}}"}' }
"#;

async fn gateway_with(more: &str) -> (TestGateway, ScriptedAgent) {
    let agent = ScriptedAgent::start(Card::v1().skill("sing")).await;
    let gateway = TestGateway::start(|ports| {
        std::fs::write(ports.directory.join("terms.txt"), "Payment is due.").unwrap();
        std::fs::write(ports.directory.join("pixel.png"), [0x89, b'P', b'N', b'G', 0xff]).unwrap();
        let card = agent.card_url();
        format!("{}agents: {{ bard: {{ card: '{card}' }} }}\n{STATIC}{more}", ports.listeners())
    })
    .await;
    (gateway, agent)
}

async fn content(client: &McpClient, uri: &str) -> Value {
    let read = client.modern("resources/read", json!({ "uri": uri })).await.json().await;
    let mut content = read["result"]["contents"][0].clone();
    if let Some(members) = content.as_object_mut() {
        members.remove("_meta");
    }
    content
}

async fn listed(client: &McpClient) -> Vec<String> {
    let list = client.modern("resources/list", json!({})).await.result().await;
    let uris = list["resources"].as_array().unwrap().iter().map(|one| one["uri"].as_str().unwrap());
    uris.filter(|uri| uri.starts_with("docs:")).map(str::to_owned).collect()
}

#[tokio::test]
async fn own_resources_are_listed_and_read() {
    let (gateway, _agent) = gateway_with("").await;
    let (client, session) = (gateway.client(), gateway.client().legacy().await);
    assert_eq!(listed(&client).await, ["docs://blob", "docs://pixel", "docs://secret", "docs://terms"]);
    let list = session.call("resources/list", json!({})).await.result().await;
    let rows = list["resources"].as_array().unwrap();
    let terms = rows.iter().find(|one| one["uri"] == "docs://terms").unwrap();
    let told = ["name", "title", "description", "mimeType"].map(|member| terms[member].as_str().unwrap());
    assert_eq!(told, ["terms", "Terms", "The terms.", "text/plain"]);
    assert_eq!(terms["_meta"]["type"], "static");
    assert_eq!(terms["_meta"]["cachePolicy"], "static");
    let templates = session.call("resources/templates/list", json!({})).await.result().await;
    let templates = templates["resourceTemplates"].as_array().unwrap();
    assert!(templates.iter().any(|one| one["uriTemplate"] == "docs://pages/{page}/data"), "{templates:?}");
    let pixel = STANDARD.encode([0x89, b'P', b'N', b'G', 0xff]);
    for (uri, media_type, member, value) in [
        ("docs://terms", "text/plain", "text", "Payment is due."),
        ("docs://pixel", "image/png", "blob", &pixel),
        ("docs://blob", "application/pdf", "blob", "JVBERg=="),
        ("docs://pages/7/data", "application/json", "text", r#"{"page":"7","again":"7"}"#),
        ("docs://pages/a%22b/data", "application/json", "text", r#"{"page":"a\"b","again":"a\"b"}"#),
    ] {
        let expected = json!({ "uri": uri, "mimeType": media_type, member: value });
        assert_eq!(content(&client, uri).await, expected, "{uri}");
        let read = session.call("resources/read", json!({ "uri": uri })).await.result().await;
        assert_eq!(read["contents"][0][member], value, "{uri}");
    }
    for uri in ["docs://none", "docs://pages//data", "docs://pages/1/2/data", "docs://pages/7/data?x"] {
        assert_eq!(content(&client, uri).await, Value::Null, "{uri}");
    }
    // They belong to no agent.
    let alone = gateway.client_of("bard");
    assert_eq!((listed(&alone).await, content(&alone, "docs://terms").await), (Vec::new(), Value::Null));
    // A client may subscribe, and never hears of a change.
    session.call("resources/subscribe", json!({ "uri": "docs://terms" })).await.result().await;
}

#[tokio::test]
async fn rules_hide_own_resources() {
    let rules = "rules:\n  - { deny: true, resources: 'docs://secret' }\n  - { deny: true, resources: 'docs://pages/*' }\n  - {}\n";
    let (gateway, _agent) = gateway_with(rules).await;
    let client = gateway.client();
    assert_eq!(listed(&client).await, ["docs://blob", "docs://pixel", "docs://terms"]);
    for uri in ["docs://secret", "docs://pages/7/data"] {
        assert_eq!(content(&client, uri).await, Value::Null, "{uri}");
    }
}
