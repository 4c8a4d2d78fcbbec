//! An agent's card at the A2A face: it leads to the gateway and to nowhere else.

use serde_json::{Value, json};

use crate::a2a_scene::{Stage, call};
use crate::rules::auth;
use crate::support::{Card, McpClient, Reply};

const PATHS: [&str; 2] = ["/a2a/bard/.well-known/agent-card.json", "/a2a/bard/.well-known/agent.json"];

fn signed() -> Card {
    let mut card = Card::v1()
        .skill_with(json!({ "id": "sing", "name": "sing", "securityRequirements": [{ "schemes": { "own": {} } }], "x": 1.0 }))
        .set("signatures", json!([{ "protected": "e30", "signature": "e30" }]))
        .set("securitySchemes", json!({ "own": { "httpAuthSecurityScheme": { "scheme": "Basic" } } }))
        .set("securityRequirements", json!([{ "schemes": { "own": {} } }]))
        .set("url", "{url}old")
        .set("additionalInterfaces", json!([{ "url": "{url}grpc", "transport": "GRPC" }]))
        .set("x-unknown", json!({ "kept": [1.0, "2"] }));
    card.json["supportedInterfaces"][0]["tenant"] = "acme".into();
    card.json["capabilities"]["extensions"] = json!([{ "uri": "urn:x", "required": false }]);
    card.json["capabilities"]["extendedAgentCard"] = true.into();
    card
}

async fn card(client: &McpClient, path: &str) -> Value {
    client.at(path).get(&[]).await.json().await
}

#[tokio::test]
async fn every_way_to_the_agent_leads_to_the_gateway() {
    let stage = Stage::with(signed(), "", "").await;
    let url = stage.gateway.url("/a2a/bard");
    for path in PATHS {
        let card = card(&stage.client(), path).await;
        let interface =
            |binding: &str| json!({ "url": url, "protocolBinding": binding, "protocolVersion": "1.0" });
        assert_eq!(card["supportedInterfaces"], json!([interface("JSONRPC"), interface("HTTP+JSON")]));
        let text = card.to_string();
        for gone in [&stage.agent.url(), "acme", "signatures", "Basic", "security", "additionalInterfaces"] {
            assert!(!text.contains(gone), "{gone}: {text}");
        }
        assert_eq!(card["x-unknown"], json!({ "kept": [1.0, "2"] }));
        assert_eq!(card["capabilities"]["extensions"][0]["uri"], "urn:x");
        assert_eq!((&card["skills"][0]["id"], &card["name"]), (&json!("sing"), &json!("Scripted Agent")));
    }
}

#[tokio::test]
async fn a_card_of_0_3_keeps_its_shape() {
    let card_of_0_3 = Card::v0_3().skill("sing").set("security", json!([{ "own": [] }]));
    let stage = Stage::with(card_of_0_3, &auth(&["ann"]), "").await;
    let card = card(&stage.by("ann"), PATHS[0]).await;
    assert_eq!(card["url"], json!(stage.gateway.url("/a2a/bard")));
    assert_eq!((&card["preferredTransport"], &card["protocolVersion"]), (&json!("JSONRPC"), &json!("0.3.0")));
    assert_eq!(
        card["securitySchemes"],
        json!({ "api_key": { "type": "apiKey", "in": "header", "name": "x-api-key" } })
    );
    assert_eq!(card["security"], json!([{ "api_key": [] }]));
    assert!(card.get("supportedInterfaces").is_none());
}

#[tokio::test]
async fn the_public_name_of_the_gateway_is_what_cards_lead_to() {
    let stage = Stage::with(signed(), "public_url: https://gw.example.com/base/\n", "").await;
    let card = card(&stage.client(), PATHS[0]).await;
    assert_eq!(card["supportedInterfaces"][0]["url"], "https://gw.example.com/base/a2a/bard");
}

#[tokio::test]
async fn who_has_the_card_is_told_so() {
    let stage = Stage::with(signed(), &auth(&["ann"]), "").await;
    let client = stage.by("ann").at(PATHS[0]);
    let first = client.get(&[]).await;
    assert_eq!(first.header("cache-control"), Some("private, max-age=60"));
    let varies: Vec<_> =
        first.headers.get_all("vary").iter().map(|value| value.to_str().unwrap().to_owned()).collect();
    assert!(
        varies.join(", ").contains("authorization") && varies.join(", ").contains("x-api-key"),
        "{varies:?}"
    );
    let etag = first.header("etag").unwrap().to_owned();
    let again = client.get(&[("If-None-Match", &etag)]).await;
    assert_eq!((again.status, again.header("etag")), (304, Some(etag.as_str())));
    assert!(again.bytes().await.is_empty());
    assert_eq!(client.get(&[("If-None-Match", "\"other\"")]).await.status, 200);
    assert_eq!(client.send("POST", &[], Vec::new()).await.status, 405);
}

#[tokio::test]
async fn the_extended_card_is_rewritten_alike_wherever_it_is_asked_for() {
    let stage = Stage::with(signed(), &auth(&["ann"]), "").await;
    let mut extended = signed().skill("secret-song").json;
    extended["url"] = json!(stage.agent.url());
    stage.agent.on("GetExtendedAgentCard", move |_| Reply::result(extended.clone()));
    let by_rpc = call(&stage.by("ann"), "GetExtendedAgentCard", json!({})).await.result().await;
    let by_rest = card(&stage.by("ann"), "/a2a/bard/extendedAgentCard").await;
    assert_eq!(by_rpc, by_rest);
    assert_eq!(by_rpc["skills"][1]["id"], "secret-song");
    assert_eq!(by_rpc["supportedInterfaces"][0]["url"], json!(stage.gateway.url("/a2a/bard")));
    assert!(!by_rpc.to_string().contains(&stage.agent.url()));
    assert!(by_rpc["securitySchemes"]["api_key"].is_object());
    assert_eq!(stage.agent.wait_for_call("GetExtendedAgentCard").await.params(), json!({ "tenant": "acme" }));
}
