//! Settings that agents share, and configurations of several files, in the running gateway.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{Card, ScriptedAgent, TestGateway, in_time};

/// Returns the names of the tools that a client sees.
async fn tools(gateway: &TestGateway) -> Vec<String> {
    let listed = gateway.client().modern("tools/list", json!({})).await.result().await;
    let tools = listed["tools"].as_array().unwrap();
    tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

/// Runs `check --json` with the configuration of a gateway, and returns its report.
async fn checked(gateway: &TestGateway) -> Value {
    let file = gateway.ports().directory.join("gateway.yaml");
    let output = TestGateway::run_command(&["check", "--json", "--config", file.to_str().unwrap()]).await;
    serde_json::from_slice(&output.stdout).unwrap()
}

/// A reference may be a part of any value; one to a file is read again by a reload.
#[tokio::test]
async fn reference_in_card_url_is_followed() {
    let [bard, news] = [
        ScriptedAgent::start(Card::v1().skill("sing")).await,
        ScriptedAgent::start(Card::v1().skill("read")).await,
    ];
    let place = |agent: &ScriptedAgent| agent.card_url().split_once("://").unwrap().1.to_owned();
    let gateway = TestGateway::start(|ports| {
        std::fs::write(ports.directory.join("place"), format!("{}\n", place(&bard))).unwrap();
        let agent = "agents: { one: { card: 'http://${file:place}' } }\n";
        format!("{}  token: {ADMIN_TOKEN}\n{QUIET}{agent}", ports.listeners())
    })
    .await;
    assert_eq!(tools(&gateway).await, ["one_sing"]);
    std::fs::write(gateway.ports().directory.join("place"), place(&news)).unwrap();
    let report = reload(&gateway).await;
    assert_eq!(report["agentsChanged"], json!(["one"]), "{report}");
    assert_eq!(tools(&gateway).await, ["one_read"]);
}

/// The token of the admin listener.
const ADMIN_TOKEN: &str = "a-token-of-the-operators-0123456789";

/// Asks the admin listener to reload, and returns the report.
async fn reload(gateway: &TestGateway) -> Value {
    let admin = gateway.admin().at("/reload").bearer(ADMIN_TOKEN);
    admin.send("POST", &[], Vec::new()).await.json().await
}

const QUIET: &str = "mcp: { subagent_tools: false, find_agent: false }\n";

/// Agents take the defaults over unless they state the key; `check` shows which do.
#[tokio::test]
async fn agent_defaults_apply() {
    let bard = ScriptedAgent::start(Card::v1().skill("sing").skill("dance")).await;
    let card = bard.card_url();
    let gateway = TestGateway::start(|ports| {
        format!(
            "{}{QUIET}agent_defaults: {{ tools: per_agent }}\nagents:\n  one: {{ card: '{card}' }}\n  \
             two: {{ card: '{card}', tools: per_skill }}\n",
            ports.listeners()
        )
    })
    .await;
    assert_eq!(tools(&gateway).await, ["one", "two_dance", "two_sing"]);
    let report = checked(&gateway).await;
    assert_eq!(report["agentDefaults"], json!({ "agent_defaults.tools": ["one"] }), "{report}");
}

/// Included files are a part of the configuration: one that is added to the folder is applied with
/// `reload.watch`, and one with a problem changes nothing and is named by the log and the report.
#[tokio::test]
async fn included_files_are_watched() {
    let bard = ScriptedAgent::start(Card::v1().skill("sing")).await;
    let card = bard.card_url();
    let gateway = TestGateway::start(|ports| {
        let folder = ports.directory.join("agents.d");
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join("one.yaml"), format!("agents:\n  one: {{ card: '{card}' }}\n")).unwrap();
        let head = "include: ['agents.d/*.yaml']\nreload: { watch: true }\n";
        format!("{}  token: {ADMIN_TOKEN}\n{QUIET}{head}", ports.listeners())
    })
    .await;
    assert_eq!(tools(&gateway).await, ["one_sing"]);
    let folder = gateway.ports().directory.join("agents.d");
    std::fs::write(folder.join("two.yaml"), format!("agents:\n  two: {{ card: '{card}' }}\n")).unwrap();
    in_time("the added agent", async {
        while tools(&gateway).await != ["one_sing", "two_sing"] {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    std::fs::write(folder.join("three.yaml"), format!("agents:\n  one: {{ card: '{card}' }}\n")).unwrap();
    let report = reload(&gateway).await;
    assert_eq!(report["outcome"], "rejected", "{report}");
    let problem = &report["problems"][0];
    assert_eq!((&problem["at"], &problem["line"]), (&json!("agents.one"), &json!(2)), "{report}");
    assert!(problem["file"].as_str().unwrap().ends_with("agents.d/three.yaml"), "{report}");
    gateway.wait_for_output("agents.d/three.yaml").await;
    assert_eq!(tools(&gateway).await, ["one_sing", "two_sing"]);
    let report = checked(&gateway).await;
    assert!(report["problems"][0]["problem"].as_str().unwrap().contains("agents.d/one.yaml"), "{report}");
}
