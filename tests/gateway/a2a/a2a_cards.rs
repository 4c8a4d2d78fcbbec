//! An agent's card at the A2A endpoint: it leads to the gateway and to nowhere else.

use serde_json::{Value, json};

use crate::auth::rules::auth;
use crate::kit::a2a_scene::{Stage, call};
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

/// Interfaces at a URL, in this order; over gRPC at its authority.
fn interfaces<const N: usize>(url: &str, of: [&str; N]) -> Value {
    let authority = url.split('/').nth(2).unwrap();
    let interface = |of: &str| {
        let (binding, version) = of.split_once(' ').unwrap();
        match (binding, version) {
            ("GRPC", "1.0") => {
                return json!({ "url": authority, "protocolBinding": binding, "protocolVersion": version, "tenant": "bard" });
            }
            ("GRPC", _) => {
                return json!({ "url": authority, "protocolBinding": binding, "protocolVersion": version });
            }
            _ => {}
        }
        json!({ "url": url, "protocolBinding": binding, "protocolVersion": version })
    };
    of.map(interface).to_vec().into()
}

async fn card(client: &McpClient, path: &str) -> Value {
    client.at(path).get(&[]).await.json().await
}

#[tokio::test]
async fn every_url_leads_to_gateway() {
    let stage = Stage::with(signed(), "", "").await;
    let url = stage.gateway.url("/a2a/bard");
    for path in PATHS {
        let card = card(&stage.client(), path).await;
        assert_eq!(
            card["supportedInterfaces"],
            interfaces(&url, ["JSONRPC 1.0", "HTTP+JSON 1.0", "GRPC 1.0", "JSONRPC 0.3", "GRPC 0.3"])
        );
        let text = card.to_string();
        for gone in [&stage.agent.url(), "acme", "signatures", "Basic", "security"] {
            assert!(!text.contains(gone), "{gone}: {text}");
        }
        assert_eq!(card["x-unknown"], json!({ "kept": [1.0, "2"] }));
        assert_eq!(card["capabilities"]["extensions"][0]["uri"], "urn:x");
        assert_eq!((&card["skills"][0]["id"], &card["name"]), (&json!("sing"), &json!("Scripted Agent")));
    }
}

const OWN_VERSION: &str = "    a2a: { translate: false }\n";

#[tokio::test]
async fn card_keeps_shape_for_one_version() {
    let card_of_0_3 = Card::v0_3().skill("sing").set("security", json!([{ "own": [] }]));
    let stage = Stage::with(card_of_0_3, &auth(&["ann"]), OWN_VERSION).await;
    let old = card(&stage.by("ann"), PATHS[0]).await;
    assert_eq!(old["url"], json!(stage.gateway.url("/a2a/bard")));
    assert_eq!((&old["preferredTransport"], &old["protocolVersion"]), (&json!("JSONRPC"), &json!("0.3.0")));
    assert_eq!(
        old["securitySchemes"],
        json!({ "api_key": { "type": "apiKey", "in": "header", "name": "x-api-key" } })
    );
    assert_eq!(old["security"], json!([{ "api_key": [] }]));
    assert!(old.get("supportedInterfaces").is_none() && old.get("authentication").is_none());

    let stage = Stage::with(Card::v1().skill("sing"), &auth(&["ann"]), OWN_VERSION).await;
    let new = card(&stage.by("ann"), PATHS[0]).await;
    let url = stage.gateway.url("/a2a/bard");
    assert_eq!(new["supportedInterfaces"], interfaces(&url, ["JSONRPC 1.0", "HTTP+JSON 1.0", "GRPC 1.0"]));
    for of_others in ["url", "protocolVersion", "preferredTransport", "security", "authentication"] {
        assert!(new.get(of_others).is_none(), "{of_others}: {new}");
    }
}

#[tokio::test]
async fn any_version_reads_any_card() {
    let new = ["JSONRPC 1.0", "HTTP+JSON 1.0", "GRPC 1.0", "JSONRPC 0.3", "GRPC 0.3"];
    let old = ["JSONRPC 0.3", "GRPC 0.3", "JSONRPC 1.0", "HTTP+JSON 1.0", "GRPC 1.0"];
    for (agent, order) in [(Card::v1(), new), (Card::v0_3(), old), (Card::v0_1(), new)] {
        let stage =
            Stage::with(agent.skill_with(json!({ "id": "sing", "name": "sing" })), &auth(&["ann"]), "").await;
        let url = stage.gateway.url("/a2a/bard");
        let card = card(&stage.by("ann"), PATHS[1]).await;
        assert_eq!((&card["supportedInterfaces"], &card["url"]), (&interfaces(&url, order), &json!(url)));
        assert_eq!(
            (&card["preferredTransport"], &card["protocolVersion"]),
            (&json!("JSONRPC"), &json!("0.3.0"))
        );
        assert_eq!(card["securityRequirements"], json!([{ "schemes": { "api_key": { "list": [] } } }]));
        assert_eq!(card["security"], json!([{ "api_key": [] }]));
        assert_eq!(card["authentication"], json!({ "schemes": ["apiKey"] }));
        let scheme = &card["securitySchemes"]["api_key"];
        assert_eq!(
            (&scheme["type"], &scheme["apiKeySecurityScheme"]["name"]),
            (&json!("apiKey"), &json!("x-api-key"))
        );
        assert_eq!((&card["skills"][0]["description"], &card["skills"][0]["tags"]), (&json!(""), &json!([])));
        assert!(card["defaultInputModes"].is_array() && card["description"].is_string(), "{card}");
    }
}

#[tokio::test]
async fn card_is_same_for_every_version() {
    let stage = Stage::with(signed(), "", "").await;
    let client = stage.client().at(PATHS[0]);
    let plain = client.get(&[]).await;
    for version in ["0.3", "1.0", "7.0"] {
        let other = client.get(&[("A2A-Version", version)]).await;
        assert_eq!((other.status, other.header("etag")), (200, plain.header("etag")), "{version}");
    }
}

#[tokio::test]
async fn hidden_skill_is_not_on_card() {
    let agent = Card::v1().skill("sing").skill("whisper");
    let stage = Stage::with(agent, "", "    skills: { whisper: { hidden: true } }\n").await;
    let card = card(&stage.client(), PATHS[0]).await;
    assert_eq!(card["skills"].as_array().unwrap().len(), 1, "{card}");
    assert_eq!(card["skills"][0]["id"], "sing");
}

#[tokio::test]
async fn card_leads_to_public_name_of_gateway() {
    let stage = Stage::with(signed(), "public_url: https://gw.example.com/base/\n", "").await;
    let card = card(&stage.client(), PATHS[0]).await;
    assert_eq!(card["supportedInterfaces"][0]["url"], "https://gw.example.com/base/a2a/bard");
}

#[tokio::test]
async fn unchanged_card_is_not_sent_again() {
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
    assert!(!varies.join(", ").contains("a2a-version"), "one card for clients of every version: {varies:?}");
    let etag = first.header("etag").unwrap().to_owned();
    let again = client.get(&[("If-None-Match", &etag)]).await;
    assert_eq!((again.status, again.header("etag")), (304, Some(etag.as_str())));
    assert!(again.bytes().await.is_empty());
    assert_eq!(client.get(&[("If-None-Match", "\"other\"")]).await.status, 200);
    assert_eq!(client.send("POST", &[], Vec::new()).await.status, 405);
}

#[tokio::test]
async fn extended_card_is_rewritten() {
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
