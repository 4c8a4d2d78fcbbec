//! Agents of `sources`: folders of cards, API catalogs and other gateways.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::payload::v1;
use crate::support::{Card, Ports, Reply, Request, ScriptedAgent, Signal, TestGateway, in_time};

const QUIET: &str = "mcp: { subagent_tools: false, find_agent: false }\n";

/// Returns the names of the tools that a client sees.
async fn tools(gateway: &TestGateway) -> Vec<String> {
    let listed = gateway.client().modern("tools/list", json!({})).await.result().await;
    let tools = listed["tools"].as_array().unwrap();
    tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

/// Waits until a client sees these tools.
async fn sees(gateway: &TestGateway, expected: &[&str]) {
    in_time(&format!("{expected:?}"), async {
        while tools(gateway).await != expected {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}

async fn shows(gateway: &TestGateway, line: &str) {
    in_time(line, async {
        while !gateway.metrics().await.lines().any(|shown| shown == line) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}

async fn ready(gateway: &TestGateway) -> Value {
    gateway.admin().at("/readyz").header("Accept", "application/json").get(&[]).await.json().await
}

async fn agent(skill: &str) -> ScriptedAgent {
    let agent = ScriptedAgent::start(Card::v1().skill(skill)).await;
    agent.on_send(|_| Reply::result(v1::message("la")));
    agent
}

fn is_authorized(request: &Request) -> bool {
    request.header("authorization").is_some()
}

/// Writes the card of an agent to a file.
fn write_card(path: &Path, agent: &ScriptedAgent, skill: &str) {
    std::fs::write(path, Card::v1().skill(skill).body(&agent.url())).unwrap();
}

/// A card that is added to the folder becomes an agent, and one that is removed goes. One at a host
/// that the source does not list is not called, and a name of the configuration is never replaced.
#[tokio::test]
async fn folder_of_cards_is_watched() {
    let (bard, news, other) = (agent("sing").await, agent("read").await, agent("spy").await);
    let (bard_url, news_place) = (bard.card_url(), news.address());
    let gateway = TestGateway::start(|ports| {
        let folder = ports.directory.join("cards");
        std::fs::create_dir(&folder).unwrap();
        write_card(&folder.join("News Desk.json"), &news, "read");
        write_card(&folder.join("bard.json"), &other, "spy");
        write_card(&folder.join("stranger.json"), &other, "spy");
        format!(
            "{}{QUIET}agents: {{ bard: {{ card: '{bard_url}' }} }}\nsources:\n  desk:\n    folder: cards\n    interval: 1s\n    \
             hosts: ['{news_place}']\n",
            ports.listeners()
        )
    })
    .await;
    sees(&gateway, &["bard_sing", "news-desk_read"]).await;
    let call = json!({ "name": "news-desk_read", "arguments": { "text": "go" } });
    assert_eq!(gateway.client().modern("tools/call", call).await.result().await["content"][0]["text"], "la");
    let report = gateway.admin().at("/agents").get(&[]).await.text().await;
    assert!(report.contains("sources.desk.hosts"), "{report}");
    let states: Vec<Value> = serde_json::from_str(&report).unwrap();
    let source_of = |name: &str| states.iter().find(|state| state["name"] == name).unwrap().get("source");
    assert_eq!((source_of("news-desk"), source_of("bard")), (Some(&json!("desk")), None), "{report}");
    let cards = gateway.ports().directory.join("cards");
    write_card(&cards.join("weather.json"), &news, "forecast");
    sees(&gateway, &["bard_sing", "news-desk_read", "weather_forecast"]).await;
    std::fs::remove_file(cards.join("News Desk.json")).unwrap();
    sees(&gateway, &["bard_sing", "weather_forecast"]).await;
    assert!(other.requests().is_empty(), "{:?}", other.requests());
    shows(&gateway, "mcp_a2a_gateway_source_agents{source=\"desk\"} 3").await;
}

/// A source that a reload adds is read at once, without sources and beside one that is not due for long; and its agents go with it.
#[tokio::test]
async fn reload_adds_and_removes_source() {
    let (bard, news) = (agent("sing").await, agent("read").await);
    let (bard_url, news_place) = (bard.card_url(), news.address());
    let config = |ports: &Ports, more: &str| {
        let agents = format!("agents: {{ bard: {{ card: '{bard_url}' }} }}");
        format!("{}  token: {TOKEN}\n{QUIET}{agents}\n{more}", ports.listeners())
    };
    let gateway = TestGateway::start(|ports| {
        for name in ["news", "wire"] {
            let folder = ports.directory.join(name);
            std::fs::create_dir(&folder).unwrap();
            write_card(&folder.join(format!("{name}.json")), &news, "read");
        }
        config(ports, "")
    })
    .await;
    let reload = async |more: &str| {
        let ports = gateway.ports();
        std::fs::write(ports.directory.join("gateway.yaml"), config(ports, more)).unwrap();
        let admin = gateway.admin().at("/reload").bearer(TOKEN);
        let answer = admin.send("POST", &[], Vec::new()).await;
        let status = answer.status;
        assert_eq!(status, 200, "{}", answer.text().await);
    };
    sees(&gateway, &["bard_sing"]).await;
    let source =
        |folder: &str| format!("  {folder}: {{ folder: {folder}, interval: 1h, hosts: ['{news_place}'] }}\n");
    reload(&format!("sources:\n{}", source("news"))).await;
    sees(&gateway, &["bard_sing", "news_read"]).await;
    reload(&format!("sources:\n{}{}", source("news"), source("wire"))).await;
    sees(&gateway, &["bard_sing", "news_read", "wire_read"]).await;
    reload("").await;
    sees(&gateway, &["bard_sing"]).await;
}

/// Returns a catalog (RFC 9727) of the cards of agents.
fn catalog(agents: &[&ScriptedAgent]) -> Value {
    let contexts = agents.iter().map(|agent| {
        json!({ "anchor": agent.url(), "service-desc": [{ "href": agent.card_url(), "type": "application/json" }] })
    });
    json!({ "linkset": contexts.collect::<Vec<_>>() })
}

/// Credentials of a source go to itself and to the hosts that it lists, and to no other agent. A
/// source that fails keeps its agents and is named until it is back.
#[tokio::test]
async fn catalog_names_agents() {
    let partner = ScriptedAgent::start(Card::v1()).await;
    let (listed, open, shut) = (agent("sing").await, agent("read").await, agent("spy").await);
    let shown = catalog(&[&listed, &open]);
    partner.on_path("/catalog", move |_| Reply::json(&shown));
    // Loopback has more addresses than one: this one is neither listed nor allowed.
    let away = catalog(&[&listed, &open, &shut]).to_string();
    let away = away
        .replace(shut.url().trim_end_matches('/'), &format!("http://127.0.0.9:{}", shut.address().port()));
    let away: Value = serde_json::from_str(&away).unwrap();
    let (host, other, url) = (listed.address(), open.address(), partner.url());
    let gateway = TestGateway::start(|ports| {
        format!(
            "{}{QUIET}outbound: {{ allow: ['{other}'] }}\nsources:\n  partners:\n    url: {}/catalog\n    interval: 1s\n    \
             hosts: ['{host}']\n    headers: {{ Authorization: Bearer CANARY }}\n",
            ports.listeners(),
            url.trim_end_matches('/'),
        )
    })
    .await;
    in_time("two agents", async { while tools(&gateway).await.len() != 2 {} }).await;
    for tool in tools(&gateway).await {
        let call = json!({ "name": tool, "arguments": { "text": "go" } });
        let result = gateway.client().modern("tools/call", call).await.result().await;
        assert_eq!(result["content"][0]["text"], "la", "{result}");
    }
    assert!(partner.log().hits("/catalog").into_iter().all(is_authorized));
    assert!(listed.requests().iter().all(is_authorized) && !listed.requests().is_empty());
    assert!(!open.requests().iter().any(is_authorized) && !open.requests().is_empty());
    partner.on_path("/catalog", move |_| Reply::json(&away));
    shows(&gateway, "mcp_a2a_gateway_source_agents{source=\"partners\"} 3").await;
    let report = gateway.admin().at("/agents").get(&[]).await.text().await;
    assert!(report.contains("sources.partners.hosts"), "{report}");
    assert!(shut.requests().is_empty());
    partner.on_path("/catalog", |_| Reply::status(500, "broken"));
    gateway.wait_for_output("failed to read source of agents").await;
    in_time("the failing source", async {
        while !ready(&gateway).await["degraded"]
            .as_array()
            .is_some_and(|all| all.contains(&json!("sources.partners")))
        {}
    })
    .await;
    assert_eq!((ready(&gateway).await["ready"].clone(), tools(&gateway).await.len()), (json!(true), 2));
    let shown = catalog(&[&listed]);
    partner.on_path("/catalog", move |_| Reply::json(&shown));
    gateway.wait_for_output("source of agents is read again").await;
    in_time("one agent", async { while tools(&gateway).await.len() != 1 {} }).await;
    let failures = gateway.output().matches("failed to read source of agents").count();
    assert_eq!(failures, 1, "{}", gateway.output());
    assert!(!gateway.output().contains("CANARY"));
}

/// The agents of another gateway are those of its list, over all of its pages; a call that runs while
/// the list changes ends with its result.
#[tokio::test]
async fn other_gateway_is_a_source() {
    let (bard, news) = (agent("sing").await, agent("read").await);
    let (bard_url, news_url) = (bard.card_url(), news.card_url());
    let upstream = TestGateway::start(|ports| {
        let listeners = ports.listeners().replacen("admin:", "    serve: [mcp, a2a]\nadmin:", 1);
        format!("{listeners}mcp: {{ page_size: 1 }}\nagents: {{ bard: {{ card: '{bard_url}' }}, news: {{ card: '{news_url}' }} }}\n")
    })
    .await;
    let list = upstream.url("/a2a");
    let config = |ports: &crate::support::Ports, own: &str| {
        format!(
            "{}  token: {TOKEN}\n{QUIET}{own}sources: {{ east: {{ url: '{list}', interval: 1s }} }}\n",
            ports.listeners()
        )
    };
    let gateway = TestGateway::start(|ports| config(ports, "")).await;
    sees(&gateway, &["bard_sing", "news_read"]).await;
    let answer = Signal::new();
    let held = answer.clone();
    bard.on_stream(move |_| Reply::events([v1::message("la")]).after(&held));
    let held = answer.clone();
    bard.on_send(move |_| Reply::result(v1::message("la")).after(&held));
    let client = gateway.client();
    let called = client.modern("tools/call", json!({ "name": "bard_sing", "arguments": { "text": "go" } }));
    let change = async {
        bard.wait_for("the call", |log| {
            !log.calls("SendMessage").is_empty() || !log.calls("SendStreamingMessage").is_empty()
        })
        .await;
        // The own agent takes the name, and the source gives it up.
        let own = format!("agents: {{ bard: {{ card: '{news_url}' }} }}\n");
        std::fs::write(gateway.ports().directory.join("gateway.yaml"), config(gateway.ports(), &own))
            .unwrap();
        let admin = gateway.admin().at("/reload").bearer(TOKEN);
        let report = admin.send("POST", &[], Vec::new()).await.json().await;
        assert_eq!(report["agentsChanged"], json!(["bard"]), "{report}");
        answer.open();
    };
    let (called, ()) = tokio::join!(called, change);
    assert_eq!(called.result().await["content"][0]["text"], "la");
    sees(&gateway, &["bard_read", "news_read"]).await;
}

/// The agents of another gateway are called over gRPC where that is pinned, and its listener has it.
#[tokio::test]
async fn other_gateway_is_called_over_grpc() {
    let bard = agent("sing").await;
    let card = bard.card_url();
    for has_grpc in [true, false] {
        let upstream = TestGateway::start(|ports| {
            let listener = format!("    serve: [mcp, a2a]\n    grpc: {has_grpc}\nadmin:");
            let listeners = ports.listeners().replacen("admin:", &listener, 1);
            format!("{listeners}agents: {{ bard: {{ card: '{card}' }} }}\n")
        })
        .await;
        let list = upstream.url("/a2a");
        let gateway = TestGateway::start(|ports| {
            format!(
                "{}{QUIET}agent_defaults: {{ binding: grpc }}\nsources: {{ east: {{ url: '{list}', interval: 1s }} }}\n",
                ports.listeners()
            )
        })
        .await;
        if has_grpc {
            sees(&gateway, &["bard_sing"]).await;
            let call = json!({ "name": "bard_sing", "arguments": { "text": "go" } });
            let result = gateway.client().modern("tools/call", call).await.result().await;
            assert_eq!(result["content"][0]["text"], "la", "{result}");
        }
        let says = if has_grpc { r#""binding":"GRPC""# } else { "problem" };
        in_time(says, async {
            while !gateway.admin().at("/agents").get(&[]).await.text().await.contains(says) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await;
    }
}

const TOKEN: &str = "a-token-of-the-operators-0123456789";

/// A source that sends too much, too many agents, something else or nothing fails, and changes
/// nothing.
#[tokio::test]
async fn source_is_bounded() {
    let bard = agent("sing").await;
    let partner = ScriptedAgent::start(Card::v1()).await;
    let many: Vec<_> =
        (0..4).map(|number| json!({ "name": format!("a{number}"), "card": bard.card_url() })).collect();
    let long = json!({ "agents": [], "more": "x".repeat(5000) });
    partner.on_path("/many", move |_| Reply::json(&json!({ "agents": many })));
    partner.on_path("/long", move |_| Reply::json(&long));
    partner.on_path("/else", |_| Reply::json(&json!({ "openapi": "3.1.0" })));
    partner.on_path("/html", |_| Reply::bytes_of("text/html", b"<html>CANARY"));
    partner.on_path("/moved", |_| Reply::status(302, "").header("Location", "http://127.0.0.9:9/"));
    partner.on_path("/silent", |_| Reply::silence());
    let endless = json!({ "agents": [], "nextCursor": "again" });
    partner.on_path("/endless", move |_| Reply::json(&endless));
    let url = partner.url();
    let names = ["many", "long", "else", "html", "moved", "silent", "endless"];
    let gateway = TestGateway::start(|ports| {
        let source = |name: &&str| {
            let bounds = "interval: 1m, timeout: 300ms, max_agents: 3, max_bytes: 4KiB";
            format!("  {name}: {{ url: '{}/{name}', {bounds} }}\n", url.trim_end_matches('/'))
        };
        let sources: String = names.iter().map(source).collect();
        let card = bard.card_url();
        format!("{}{QUIET}agents: {{ bard: {{ card: '{card}' }} }}\nsources:\n{sources}", ports.listeners())
    })
    .await;
    in_time("all failures", async {
        while ready(&gateway).await["degraded"].as_array().is_none_or(|all| all.len() < names.len()) {}
    })
    .await;
    assert_eq!(tools(&gateway).await, ["bard_sing"]);
    let output = gateway.output();
    for told in [
        "names more than 3 agents (max_agents)",
        "is neither an API catalog",
        "is not JSON of a source",
        "answered with HTTP 302",
        "did not respond in time",
        "has an empty page that is not the last",
    ] {
        assert!(output.contains(told), "{told}: {output}");
    }
    assert!(!output.contains("CANARY") && bard.calls("SendMessage").is_empty());
}
