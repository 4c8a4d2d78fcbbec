//! Finding agents over HTTP: the list at `/a2a`, and the API catalog of RFC 9727.

use serde_json::{Value, json};

use crate::auth::rules::key_of;
use crate::mcp::finding::{rules, town};
use crate::operations::seen::shows;
use crate::support::{Card, McpClient, ScriptedAgent, TestGateway};

const CATALOG: &str = "/.well-known/api-catalog";

async fn list(client: &McpClient, query: &str) -> Value {
    let answer = client.at(&format!("/a2a{query}")).get(&[]).await;
    assert_eq!(answer.status, 200, "{query}");
    assert_eq!(answer.header("content-type"), Some("application/json"));
    answer.json().await
}

fn names(list: &Value) -> Vec<&str> {
    list["agents"].as_array().unwrap().iter().map(|agent| agent["name"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn list_says_what_clients_need() {
    let gateway = town("").await;
    let told = list(&gateway.client(), "").await;
    assert_eq!((names(&told), &told["total"]), (vec!["bank", "bard"], &json!(2)));
    let (bank, bard) = (&told["agents"][0], &told["agents"][1]);
    let url = gateway.url("/a2a/bard");
    assert_eq!(bard["url"], url);
    assert_eq!(bard["card"], format!("{url}/.well-known/agent-card.json"));
    let versions = (&bard["protocolVersions"], &bank["protocolVersions"]);
    assert_eq!(versions, (&json!(["1.0", "0.3", "0.1"]), &json!(["0.3", "1.0", "0.1"])), "its own first");
    let bindings = json!(["JSONRPC", "HTTP+JSON", "GRPC"]);
    assert_eq!((&bard["bindings"], &bank["bindings"]), (&bindings, &bindings));
    assert_eq!((&bard["status"], &bard["title"]), (&json!("ready"), &json!("The Bard")));
    assert_eq!(bard["skills"][0], json!({ "id": "sing", "name": "Sing", "tags": ["Music"] }));
    assert_eq!(bard["capabilities"], json!({ "streaming": true, "pushNotifications": false }));
    shows(&gateway, r#"mcp_a2a_gateway_requests_total{agent="",method="agent_list",outcome="ok"} 1"#).await;
}

#[tokio::test]
async fn list_names_only_served_version() {
    let old = ScriptedAgent::start(Card::v0_3().skill("pay")).await;
    let new = ScriptedAgent::start(Card::v1().skill("sing")).await;
    let gateway = TestGateway::start(|ports| {
        let listeners = ports.listeners().replacen("admin:", "    serve: [mcp, a2a]\nadmin:", 1);
        let of =
            |agent: &ScriptedAgent| format!("{{ card: {}, a2a: {{ translate: false }} }}", agent.card_url());
        format!("{listeners}agents:\n  bank: {}\n  bard: {}\n", of(&old), of(&new))
    })
    .await;
    let told = list(&gateway.client(), "").await;
    let said =
        |at: usize| (told["agents"][at]["protocolVersions"].clone(), told["agents"][at]["bindings"].clone());
    assert_eq!(said(0), (json!(["0.3"]), json!(["JSONRPC"])), "gRPC of 0.3 cannot name one of two agents");
    assert_eq!(said(1), (json!(["1.0"]), json!(["JSONRPC", "HTTP+JSON", "GRPC"])));
}

#[tokio::test]
async fn list_is_searched_and_paged() {
    let gateway = town("").await;
    let client = gateway.client();
    for (query, found) in [
        ("?q=rain", vec!["bard"]),
        ("?q=RAIN+song", vec!["bard"]),
        ("?q=the%20bank", vec!["bank"]),
        ("?skill=pay", vec!["bank"]),
        ("?tag=music", vec!["bard"]),
        ("?tag=music&skill=pay", vec![]),
        ("?q=nothing", vec![]),
    ] {
        assert_eq!(names(&list(&client, query).await), found, "{query}");
    }
    let first = list(&client, "?limit=1").await;
    let cursor = first["nextCursor"].as_str().unwrap_or_else(|| panic!("{first}")).to_owned();
    let second = list(&client, &format!("?limit=1&cursor={cursor}")).await;
    assert_eq!((names(&first), names(&second)), (vec!["bank"], vec!["bard"]));
    assert_eq!((&second["total"], second.get("nextCursor")), (&json!(2), None));
    for query in ["?limit=0", "?cursor=made-up", "?q=%FF", "?q=1+2+3+4+5+6+7+8+9"] {
        let refused = client.at(&format!("/a2a{query}")).get(&[]).await;
        assert_eq!(refused.status, 400, "{query}");
        assert!(refused.json().await["error"]["message"].as_str().unwrap().starts_with("bad query"));
    }
}

#[tokio::test]
async fn catalog_is_linkset_of_agents() {
    let gateway = town("public_url: https://gw.example/base\n").await;
    let client = gateway.client().at(CATALOG);
    let answer = client.get(&[]).await;
    let profile = r#"application/linkset+json; profile="https://www.rfc-editor.org/info/rfc9727""#;
    assert_eq!(answer.header("content-type"), Some(profile));
    let link = "<https://gw.example/base/.well-known/api-catalog>; rel=\"api-catalog\"";
    assert_eq!(answer.header("link"), Some(link));
    let text = answer.text().await;
    let told: Value = serde_json::from_str(&text).unwrap();
    let linkset = told["linkset"].as_array().unwrap();
    assert_eq!(told.as_object().unwrap().len(), 1, "nothing beside the linkset (RFC 9264 §4.2.1)");
    for context in linkset {
        for (relation, targets) in context.as_object().unwrap() {
            match relation.as_str() {
                "anchor" => assert!(targets.as_str().unwrap().starts_with("https://gw.example/base/")),
                _ => {
                    let targets = targets.as_array().unwrap_or_else(|| panic!("{relation}: {targets}"));
                    assert!(!targets.is_empty() && targets.iter().all(|target| target["href"].is_string()));
                }
            }
        }
    }
    let items: Vec<&Value> =
        linkset[0]["item"].as_array().unwrap().iter().map(|item| &item["href"]).collect();
    assert_eq!(items, ["https://gw.example/base/a2a/bank", "https://gw.example/base/a2a/bard"]);
    let bard = &linkset[2];
    assert_eq!(bard["anchor"], "https://gw.example/base/a2a/bard");
    let card = "https://gw.example/base/a2a/bard/.well-known/agent-card.json";
    for relation in ["service-desc", "describedby"] {
        assert_eq!(
            bard[relation],
            json!([{ "href": card, "type": "application/json", "title": "The Bard" }])
        );
    }
    let head = client.send("HEAD", &[], Vec::new()).await;
    assert_eq!((head.status, head.header("link")), (200, Some(link)));
    assert_eq!(head.header("content-length"), Some(text.len().to_string().as_str()));
    assert_eq!(head.text().await, "");
    let refused = client.send("POST", &[], Vec::new()).await;
    assert_eq!((refused.status, refused.header("allow")), (405, Some("GET, HEAD, OPTIONS")));
}

#[tokio::test]
async fn documents_leak_no_denied_agents() {
    let gateway = town(&rules()).await;
    for path in ["/a2a", CATALOG] {
        let client = gateway.client().at(path);
        let stranger = client.get(&[]).await;
        assert_eq!(stranger.status, 401, "{path}");
        assert!(stranger.header("www-authenticate").is_some());
        assert!(!stranger.text().await.contains("bard"));
        let ann = client.get(&[("X-Api-Key", &key_of("ann"))]).await;
        assert!(ann.header("vary").is_some() && ann.header("cache-control") == Some("private, max-age=60"));
        let varies: Vec<_> = ann.headers.get_all("vary").iter().map(|name| name.to_str().unwrap()).collect();
        assert_eq!(varies, ["authorization", "x-api-key"], "{path}");
        let ann = ann.text().await;
        assert!(ann.contains("bard") && !ann.contains("ank") && !ann.contains("whisper"), "{path}: {ann}");
        let ben = client.get(&[("X-Api-Key", &key_of("ben"))]).await.text().await;
        assert!(ben.contains("bard") && ben.contains("bank") && !ben.contains("whisper"), "{path}: {ben}");
    }
    let ann = gateway.client().header("X-Api-Key", &key_of("ann"));
    for query in ["?q=pay", "?q=bank", "?q=whisper", "?skill=whisper"] {
        assert!(names(&list(&ann, query).await).is_empty(), "{query}");
    }
    let cursor = list(&gateway.client().header("X-Api-Key", &key_of("ben")), "?limit=1").await;
    let cursor = cursor["nextCursor"].as_str().unwrap().to_owned();
    let stolen = ann.at(&format!("/a2a?cursor={cursor}")).get(&[]).await;
    assert_eq!(stolen.status, 400, "another caller's cursor");
}

#[tokio::test]
async fn unchanged_document_is_not_sent_again() {
    let gateway = town("").await;
    for path in ["/a2a", CATALOG] {
        let client = gateway.client().at(path);
        let first = client.get(&[]).await;
        let tag = first.header("etag").unwrap_or_else(|| panic!("{path}")).to_owned();
        for known in [tag.clone(), format!("\"other\", W/{tag}"), "*".to_owned()] {
            let again = client.get(&[("If-None-Match", &known)]).await;
            assert_eq!((again.status, again.header("etag")), (304, Some(tag.as_str())), "{known}");
            assert_eq!(again.text().await, "");
        }
        assert_eq!(client.get(&[("If-None-Match", "\"other\"")]).await.status, 200);
    }
}

#[tokio::test]
async fn documents_are_guarded() {
    let gateway = town("").await;
    let foreign = gateway.client().at("/a2a").get(&[("Origin", "https://evil.example")]).await;
    assert_eq!(foreign.status, 403);
    let near = gateway.client().at("/a2a").get(&[("Origin", "http://localhost:3000")]).await;
    assert_eq!(near.header("access-control-allow-origin"), Some("http://localhost:3000"));
    let agent = ScriptedAgent::start(Card::v1().skill("sing")).await;
    let plain = TestGateway::before(&[("bard", &agent)]).await;
    for path in ["/a2a", CATALOG] {
        assert_eq!(plain.client().at(path).get(&[]).await.status, 404, "{path}");
    }
}

#[tokio::test]
async fn absent_agent_is_listed_as_absent() {
    let agent = ScriptedAgent::start(Card::v1().skill("sing")).await;
    let url = agent.card_url();
    agent.stop().await;
    let gateway = TestGateway::start(|ports| {
        let (main, admin) = (ports.main, ports.admin);
        let listeners = format!("listeners: [{{ address: 127.0.0.1:{main}, serve: [a2a] }}]\n");
        format!("{listeners}admin: {{ address: 127.0.0.1:{admin} }}\nagents:\n  bard:\n    card: {url}\n")
    })
    .await;
    let told = list(&gateway.client(), "?q=bard").await;
    let bard = &told["agents"][0];
    assert_eq!((&bard["name"], &bard["status"]), (&json!("bard"), &json!("unreachable")));
    assert_eq!((&bard["skills"], bard.get("capabilities")), (&json!([]), None));
    assert_eq!(gateway.client().modern("tools/list", json!({})).await.status, 404, "no MCP here");
}
