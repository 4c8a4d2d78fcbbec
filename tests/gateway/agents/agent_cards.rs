//! How agents come, change and go: cards from everywhere, refreshed, trusted with care, named
//! without clashes.

use serde_json::{Value, json};

use crate::kit::scene::{Scene, TOOL, words};
use crate::support::payload::v1;
use crate::support::{Card, LegacySession, Reply, ScriptedAgent, TestGateway, in_time};

/// The gateway's own tools.
const OWN: [&str; 6] =
    ["find_agent", "subagent_cancel", "subagent_get", "subagent_send", "subagent_start", "subagent_wait"];
const QUICK: &str = "cards: { min_refresh: 1s, max_refresh: 1s, retry: 100ms }";

/// The names of the agents' tools: those of the gateway itself are left out.
async fn tools(gateway: &TestGateway, path: &str) -> Vec<String> {
    let list = gateway.client().at(path).modern("tools/list", json!({})).await.result().await;
    let names =
        list["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap().to_owned());
    names.filter(|name| !OWN.contains(&name.as_str())).collect()
}

async fn tools_become(gateway: &TestGateway, path: &str, wanted: &[&str]) {
    in_time(&format!("the tools {wanted:?}"), async { while tools(gateway, path).await != wanted {} }).await;
}

async fn described(gateway: &TestGateway, tool: &str) -> Value {
    let list = gateway.client().modern("tools/list", json!({})).await.result().await;
    let found = list["tools"].as_array().unwrap().iter().find(|listed| listed["name"] == tool);
    found.unwrap_or_else(|| panic!("no {tool}: {list}")).clone()
}

/// The next message on a session's own stream.
async fn heard(session: &LegacySession) -> Value {
    session.listen(None).await.next_message().await
}

#[tokio::test]
async fn agent_down_at_start_appears_later() {
    let down = ScriptedAgent::start(Card::v1().skill("sing")).await;
    let url = down.card_url();
    let address = down.stop().await;
    let up = ScriptedAgent::start(Card::v1().skill("count")).await;
    let gateway = TestGateway::start(|ports| {
        let (listeners, other) = (ports.listeners(), up.card_url());
        format!("{listeners}{QUICK}\nagents:\n  bard:\n    card: {url}\n  clerk:\n    card: {other}\n")
    })
    .await;
    assert_eq!(tools(&gateway, "/mcp").await, ["clerk_count"], "the others work");
    let _agent = ScriptedAgent::start_at(address, Card::v1().skill("sing")).await;
    tools_become(&gateway, "/mcp", &["bard_sing", "clerk_count"]).await;
}

#[tokio::test]
async fn last_good_card_keeps_working() {
    let scene = Scene::of(Card::v1().skill("sing"), "", QUICK).await;
    scene.agent.on_send(|_| Reply::events([v1::message("la")]));
    let path = "/.well-known/agent-card.json";
    let before = scene.agent.log().hits(path).len();
    for reply in [Reply::status(500, ""), Reply::bytes_of("application/json", b"{}"), Reply::status(404, "")]
    {
        scene.agent.on_path(path, move |_| reply.clone());
        let seen = scene.agent.log().hits(path).len().max(before);
        scene.agent.wait_for("two more looks at the card", |log| log.hits(path).len() >= seen + 2).await;
        assert_eq!(tools(&scene.gateway, "/mcp").await, [TOOL]);
        assert_eq!(words(&scene.said("x").await), "la");
    }
    let agents = scene.gateway.admin().at("/agents").get(&[]).await.text().await;
    assert!(agents.contains("bard") && agents.contains("404"), "the operator sees why: {agents}");
}

#[tokio::test]
async fn card_is_requested_with_its_etag() {
    let scene = Scene::of(Card::v1().skill("sing").etag("one"), "", QUICK).await;
    let seen = |log: &crate::support::Log, etag: &str| {
        log.requests.iter().filter(|request| request.header("if-none-match") == Some(etag)).count()
    };
    scene.agent.wait_for("If-None-Match", |log| seen(log, "\"one\"") >= 2).await;
    assert_eq!(tools(&scene.gateway, "/mcp").await, [TOOL]);
    scene.agent.set_card(Card::v1().skill("dance").etag("two"));
    tools_become(&scene.gateway, "/mcp", &["bard_dance"]).await;
    scene.agent.wait_for("the new ETag", |log| seen(log, "\"two\"") >= 1).await;
}

#[tokio::test]
async fn changed_card_changes_tools() {
    let scene = Scene::of(Card::v1().skill("sing"), "", QUICK).await;
    let session = scene.session().await;
    let mut listening = session.listen(None).await;
    assert!(listening.is_stream());
    scene.agent.set_card(Card::v1().skill("sing").skill("dance"));
    let told = json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed" });
    in_time("list_changed", async { while listening.next_message().await != told {} }).await;
    assert_eq!(tools(&scene.gateway, "/mcp").await, ["bard_dance", "bard_sing"]);
}

#[tokio::test]
async fn card_subscriber_is_told_of_change() {
    let scene = Scene::of(Card::v1().skill("sing"), "", QUICK).await;
    let session = scene.session().await;
    let uri = json!({ "uri": "a2a-agent://bard" });
    assert_eq!(session.call("resources/subscribe", uri.clone()).await.result().await, json!({}));
    let mut listening = session.listen(None).await;
    scene.agent.set_card(Card::v1().skill("sing").name("Another"));
    let updated = in_time("the update", async {
        loop {
            let message = listening.next_message().await;
            if message["method"] == "notifications/resources/updated" {
                break message;
            }
        }
    });
    assert_eq!(updated.await["params"]["uri"], "a2a-agent://bard");
    assert_eq!(session.call("resources/unsubscribe", uri).await.result().await, json!({}));
}

#[tokio::test]
async fn sessions_are_told_of_late_agent() {
    let down = ScriptedAgent::start(Card::v1().skill("sing")).await;
    let url = down.card_url();
    let address = down.stop().await;
    let gateway = TestGateway::start(|ports| {
        format!("{}{QUICK}\nagents:\n  bard:\n    card: {url}\n", ports.listeners())
    })
    .await;
    let session = gateway.client().legacy().await;
    let (message, _agent) =
        tokio::join!(heard(&session), ScriptedAgent::start_at(address, Card::v1().skill("sing")));
    assert!(message["method"].as_str().unwrap().ends_with("/list_changed"), "{message}");
}

#[tokio::test]
async fn both_well_known_paths_are_tried() {
    for card in
        [Card::v1().skill("sing"), Card { path: "/.well-known/agent.json", ..Card::v0_3().skill("sing") }]
    {
        let agent = ScriptedAgent::start(card).await;
        let gateway = TestGateway::start(|ports| {
            format!("{}agents:\n  bard:\n    card: {}\n", ports.listeners(), agent.url())
        })
        .await;
        assert_eq!(tools(&gateway, "/mcp").await, [TOOL]);
    }
}

#[tokio::test]
async fn card_can_be_a_file() {
    let agent = ScriptedAgent::start(Card::v1()).await;
    agent.on_send(|_| Reply::events([v1::message("la")]));
    let card = Card::v1().skill("sing").body(&agent.url());
    let gateway = TestGateway::start(|ports| {
        std::fs::write(ports.directory.join("bard.json"), &card).unwrap();
        format!("{}agents:\n  bard:\n    card: bard.json\n", ports.listeners())
    })
    .await;
    let params = json!({ "name": TOOL, "arguments": { "text": "x" } });
    assert_eq!(words(&gateway.client().modern("tools/call", params).await.result().await), "la");
    assert!(agent.requests().iter().all(|request| request.method == "POST"), "the card was fetched");
}

#[tokio::test]
async fn other_host_needs_permission() {
    let (agent, other) = (ScriptedAgent::start(Card::v1()).await, ScriptedAgent::start(Card::v1()).await);
    other.on_send(|_| Reply::events([v1::message("from elsewhere")]));
    let interface = json!([{ "url": other.url(), "protocolBinding": "JSONRPC", "protocolVersion": "1.0" }]);
    agent.set_card(Card::v1().skill("sing").set("supportedInterfaces", interface));
    let config = |allowed: &str| {
        let (card, allowed) = (agent.card_url(), allowed.to_owned());
        move |ports: &crate::support::Ports| {
            let secret = "headers: { Authorization: Bearer CANARY }";
            format!("{}agents:\n  bard:\n    card: {card}\n    {secret}\n{allowed}", ports.listeners())
        }
    };
    let gateway = TestGateway::start(config("")).await;
    assert!(tools(&gateway, "/mcp").await.is_empty());
    let params = || json!({ "name": TOOL, "arguments": { "text": "x" } });
    assert_eq!(gateway.client().modern("tools/call", params()).await.error_code().await, -32602);
    assert!(other.requests().is_empty(), "the agent's credentials went to another host");
    let why = gateway.admin().at("/agents").get(&[]).await.text().await;
    assert!(why.contains("allow_hosts"), "{why}");
    let leave = format!("    allow_hosts: [\"{}\"]\n", other.address());
    let gateway = TestGateway::start(config(&leave)).await;
    assert_eq!(
        words(&gateway.client().modern("tools/call", params()).await.result().await),
        "from elsewhere"
    );
}

#[tokio::test]
async fn card_without_skills_gives_one_tool() {
    let scene = Scene::of(Card::v1(), "", "").await;
    scene.agent.on_send(|_| Reply::events([v1::message("la")]));
    assert_eq!(tools(&scene.gateway, "/mcp").await, ["bard"]);
    assert_eq!(tools(&scene.gateway, "/mcp/bard").await, ["bard"]);
    let params = json!({ "name": "bard", "arguments": { "text": "x" } });
    scene.gateway.client().modern("tools/call", params).await.result().await;
    assert_eq!(scene.agent.calls("SendStreamingMessage")[0].message().get("metadata"), None, "no skill");
}

#[tokio::test]
async fn operator_names_and_hides_tools() {
    let own = "description: The choir.\nskills:\n  sing:\n    tool_name: sing_it\n    description: Sings anything.\n  debug: { hidden: true }";
    let scene = Scene::of(Card::v1().skill("sing").skill("debug").skill("hum"), own, "").await;
    assert_eq!(tools(&scene.gateway, "/mcp").await, ["bard_hum", "sing_it"]);
    assert_eq!(tools(&scene.gateway, "/mcp/bard").await, ["hum", "sing_it"]);
    let shown = described(&scene.gateway, "sing_it").await;
    assert!(shown["description"].as_str().unwrap().contains("Sings anything."), "{shown}");
    let hidden = json!({ "name": "bard_debug", "arguments": { "text": "x" } });
    assert_eq!(scene.gateway.client().modern("tools/call", hidden).await.error_code().await, -32602);
    let whole =
        Scene::of(Card::v1().skill("sing").skill("hum"), "tools: per_agent\ntool_name: ask_bard", "").await;
    assert_eq!(tools(&whole.gateway, "/mcp").await, ["ask_bard"]);
}

#[tokio::test]
async fn no_card_captures_other_tool() {
    let (one, two) = (
        ScriptedAgent::start(Card::v1().skill("b_c")).await,
        ScriptedAgent::start(Card::v1().skill("c")).await,
    );
    for agent in [&one, &two] {
        let name = agent.url();
        agent.on_send(move |_| Reply::events([v1::message(&name)]));
    }
    let gateway = TestGateway::before(&[("a", &one), ("a_b", &two)]).await;
    let names = tools(&gateway, "/mcp").await;
    assert_eq!(names.len(), 2);
    for name in &names {
        let suffix = name.strip_prefix("a_b_c_").unwrap_or_else(|| panic!("{name}"));
        assert!(suffix.len() == 16 && suffix.bytes().all(|byte| byte.is_ascii_hexdigit()), "{name}");
    }
    let again = TestGateway::before(&[("a_b", &two), ("a", &one)]).await;
    assert_eq!(tools(&again, "/mcp").await, names, "the same names on every start");
    let params = json!({ "name": names[0], "arguments": { "text": "x" } });
    let first = gateway.client().modern("tools/call", params.clone()).await.result().await;
    let second = again.client().modern("tools/call", params).await.result().await;
    assert_eq!(words(&first), words(&second), "the same agent");
    assert_eq!(tools(&gateway, "/mcp/a_b").await, ["c"], "alone there is no clash");
}

#[tokio::test]
async fn unfit_names_are_made_fit() {
    let long = "x".repeat(90);
    let card = [long.as_str(), "with space", "é", "subagent_start", "a/b.c", "find_agent"];
    let scene = Scene::of(card.iter().fold(Card::v1(), |card, skill| card.skill(skill)), "", "").await;
    for path in ["/mcp", "/mcp/bard"] {
        let names = tools(&scene.gateway, path).await;
        assert_eq!(names.len(), 6);
        for name in names {
            let fits = name.len() <= 50
                && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte));
            assert!(fits && !name.starts_with("subagent_") && name != "find_agent", "{name}");
        }
    }
}

#[tokio::test]
async fn card_with_markup_is_refused() {
    let agent = ScriptedAgent::start(Card::v1().skill("sing")).await;
    agent.on_path("/.well-known/agent-card.json", |_| Reply::status(200, "<html>login</html>"));
    let gateway = TestGateway::before(&[("bard", &agent)]).await;
    assert!(tools(&gateway, "/mcp").await.is_empty());
    let params = json!({ "name": TOOL, "arguments": { "text": "x" } });
    assert_eq!(gateway.client().modern("tools/call", params).await.error_code().await, -32602);
}
