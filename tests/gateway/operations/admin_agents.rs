//! Agents that operators add, replace and remove by the admin API.

use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::payload::v1;
use crate::support::{Card, Ports, Reply, ScriptedAgent, TestGateway, in_time};

const TOKEN: &str = "a-token-of-the-operators-0123456789";
const QUIET: &str = "mcp: { subagent_tools: false, find_agent: false }\n";

fn config(ports: &Ports, more: &str) -> String {
    format!("{}  token: {TOKEN}\n{more}{QUIET}", ports.listeners())
}

async fn agent(skill: &str) -> ScriptedAgent {
    let agent = ScriptedAgent::start(Card::v1().skill(skill)).await;
    agent.on_send(|_| Reply::result(v1::message("la")));
    agent
}

/// Sends a request for an agent, and returns the status and the answer.
async fn ask(gateway: &TestGateway, method: &str, name: &str, body: &str) -> (u16, Value) {
    let admin = gateway.admin().at(&format!("/agents/{name}")).bearer(TOKEN);
    let answer = admin.send(method, &[], body.as_bytes().to_vec()).await;
    (answer.status, answer.json().await)
}

async fn sees(gateway: &TestGateway, expected: &[&str]) {
    in_time(&format!("{expected:?}"), async {
        loop {
            let listed = gateway.client().modern("tools/list", json!({})).await.result().await;
            let tools = listed["tools"].as_array().unwrap().clone();
            if tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect::<Vec<_>>() == expected {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}

/// An agent is added, replaced and removed; it is in the file at once, for this user alone, and is
/// there after a restart.
#[tokio::test]
async fn agent_is_written_and_kept() {
    let (bard, news) = (agent("sing").await, agent("read").await);
    let folder = tempfile::TempDir::new().unwrap();
    let file = folder.path().join("agents.json");
    let more = format!("  agents_file: '{}'\n", file.display());
    let mut gateway = TestGateway::start(|ports| config(ports, &more)).await;
    sees(&gateway, &[]).await;
    let (status, report) =
        ask(&gateway, "PUT", "bard", &format!("card: {}\nmax_calls: 3\n", bard.card_url())).await;
    assert_eq!((status, &report["agentsAdded"]), (201, &json!(["bard"])), "{report}");
    sees(&gateway, &["bard_sing"]).await;
    let kept: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    assert_eq!(kept, json!({ "agents": { "bard": { "card": bard.card_url(), "max_calls": 3 } } }));
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let body = json!({ "card": news.card_url() }).to_string();
    let (status, report) = ask(&gateway, "PUT", "bard", &body).await;
    assert_eq!((status, &report["agentsChanged"]), (200, &json!(["bard"])), "{report}");
    assert_eq!(ask(&gateway, "PUT", "news", &body).await.0, 201);
    sees(&gateway, &["bard_read", "news_read"]).await;
    let (status, report) = ask(&gateway, "DELETE", "bard", "").await;
    assert_eq!((status, &report["agentsRemoved"]), (200, &json!(["bard"])), "{report}");
    assert_eq!(ask(&gateway, "DELETE", "bard", "").await.0, 404);
    gateway.terminate().await;
    let gateway = TestGateway::start(|ports| config(ports, &more)).await;
    sees(&gateway, &["news_read"]).await;
    let files: Vec<_> =
        std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(files, [file]);
}

/// A body with problems changes nothing, and all of them are told with their lines. A name of the
/// configuration is never replaced.
#[tokio::test]
async fn bad_agent_changes_nothing() {
    let bard = agent("sing").await;
    let card = bard.card_url();
    let more = format!("  agents_file: agents.json\nagents: {{ bard: {{ card: '{card}' }} }}\n");
    let gateway = TestGateway::start(|ports| config(ports, &more)).await;
    sees(&gateway, &["bard_sing"]).await;
    let (status, report) = ask(&gateway, "PUT", "news", "card: nowhere.json\nrate: lots\nzebra: 1\n").await;
    assert_eq!((status, &report["outcome"]), (400, &json!("rejected")), "{report}");
    let problems = report["problems"].as_array().unwrap();
    let at: Vec<_> = problems
        .iter()
        .map(|one| {
            (one["file"].as_str().unwrap(), one["line"].as_u64().unwrap(), one["at"].as_str().unwrap())
        })
        .collect();
    let expected =
        [("body", 1, "agents.news.card"), ("body", 2, "agents.news.rate"), ("body", 3, "agents.news.zebra")];
    assert_eq!(at, expected, "{report}");
    assert_eq!(ask(&gateway, "PUT", "news", "card: [").await.0, 400);
    let good = format!("card: {card}\n");
    assert_eq!(ask(&gateway, "PUT", "News", &good).await.0, 400);
    assert_eq!(ask(&gateway, "PUT", "bard", &good).await.0, 409);
    assert_eq!(ask(&gateway, "DELETE", "bard", "").await.0, 409);
    assert!(!gateway.ports().directory.join("agents.json").exists());
    sees(&gateway, &["bard_sing"]).await;
    // A file that was changed by hand is checked as every other part of the configuration.
    std::fs::write(
        gateway.ports().directory.join("agents.json"),
        "{ \"agents\": { \"bard\": { \"card\": \"http://a/\" } } }",
    )
    .unwrap();
    let admin = gateway.admin().at("/reload").bearer(TOKEN);
    let report = admin.send("POST", &[], Vec::new()).await.json().await;
    assert!(report["problems"][0]["file"].as_str().unwrap().ends_with("agents.json"), "{report}");
}

/// Without the key the routes are closed, and with it they need an operator of the same origin.
#[tokio::test]
async fn agent_writes_are_guarded() {
    let bard = agent("sing").await;
    let card = bard.card_url();
    let agents = format!("agents: {{ bard: {{ card: '{card}' }} }}\n");
    let gateway = TestGateway::start(|ports| config(ports, &agents)).await;
    let body = format!("card: {card}\n");
    let (status, report) = ask(&gateway, "PUT", "news", &body).await;
    assert!(status == 403 && report["error"].as_str().unwrap().contains("admin.agents_file"), "{report}");
    let gateway =
        TestGateway::start(|ports| config(ports, &format!("  agents_file: agents.json\n{agents}"))).await;
    let admin = gateway.admin().at("/agents/news");
    assert_eq!(admin.send("PUT", &[], body.clone().into_bytes()).await.status, 401);
    let foreign = [("Origin", "http://evil.example")];
    assert_eq!(admin.bearer(TOKEN).send("PUT", &foreign, body.clone().into_bytes()).await.status, 403);
    assert_eq!(ask(&gateway, "PUT", "news", &body).await.0, 201);
}
