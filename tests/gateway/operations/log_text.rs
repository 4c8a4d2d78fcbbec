//! Text of peers in the log: nothing in it is unseen, or changes how the text around it is seen.

use serde_json::{Value, json};

use crate::auth::rules::{auth, key_of};
use crate::kit::scene::{Scene, TOOL};
use crate::support::payload::v1;
use crate::support::{Card, Reply, ScriptedAgent, TestGateway};

/// Bidirectional controls, zero-width characters, tags, C1 controls, fillers and other formats.
const HIDDEN: [char; 24] = [
    '\u{202a}',
    '\u{202e}',
    '\u{2066}',
    '\u{2069}',
    '\u{200b}',
    '\u{200f}',
    '\u{feff}',
    '\u{ad}',
    '\u{2028}',
    '\u{2029}',
    '\u{e0001}',
    '\u{e007f}',
    '\u{e0100}',
    '\u{85}',
    '\u{9b}',
    '\u{61c}',
    '\u{180e}',
    '\u{2060}',
    '\u{34f}',
    '\u{3164}',
    '\u{fff9}',
    '\u{110bd}',
    '\u{1d173}',
    '\u{600}',
];

fn all_hidden() -> String {
    HIDDEN.iter().collect()
}

fn assert_visible(gateway: &TestGateway, what: &str) {
    let output = gateway.output();
    let line = output.lines().find(|line| line.contains(HIDDEN));
    assert_eq!(line, None, "{what}");
}

/// Each field that a client fills: path, method, tool, resource, arguments; in the access log and
/// in the audit log.
#[tokio::test]
async fn log_of_hidden_characters_is_escaped() {
    for format in ["text", "json"] {
        let rules = "rules: [{ callers: \"*\", agents: \"*\" }]\n";
        let log = format!("log: {{ format: {format}, level: debug, audit_arguments: true }}\n");
        let scene = Scene::tuned(&format!("{log}{}{rules}", auth(&["ann"]))).await;
        scene.agent.on_send(|_| Reply::events([v1::message("la")]));
        let client = scene.gateway.client().header("X-Api-Key", &key_of("ann"));
        let odd = format!("odd{}", all_hidden());
        let params = json!({ "name": TOOL, "arguments": { "text": odd } });
        client.modern("tools/call", params).await.result().await;
        let params = json!({ "name": odd, "arguments": { "text": "x" } });
        client.modern("tools/call", params).await.json().await;
        client.modern("resources/read", json!({ "uri": format!("a2a://{odd}") })).await.json().await;
        let method = client.request(&format!("made/{odd}"), &json!({}));
        client.at("/a2a/bard").post(&method, &[]).await.json().await;
        client.post(&method, &[]).await.json().await;
        scene.gateway.wait_for_output("no_such_tool").await;
        scene.gateway.wait_for_output("odd").await;
        assert_visible(&scene.gateway, format);
        if format == "json" {
            let output = scene.gateway.output();
            let lines = output.lines().filter_map(|line| line.strip_prefix("err: "));
            let arguments = lines.filter_map(|line| serde_json::from_str::<Value>(line).ok());
            let arguments = arguments.filter_map(|line| line["arguments"].as_str().map(str::to_owned));
            assert!(arguments.into_iter().any(|text| text.contains(&odd)), "the value is kept: {output}");
        }
    }
}

/// The gateway quotes an agent in its own words: there the text is part of an error.
#[tokio::test]
async fn log_of_agent_text_is_one_line() {
    for format in ["text", "json"] {
        let text = format!("odd{}\nERROR forged", all_hidden());
        let card = Card::v1().skill("sing").set("name", json!([text]));
        let url = format!("http://127.0.0.1:1/{}", all_hidden());
        let card = card.set(
            "supportedInterfaces",
            json!([{ "url": url, "protocolBinding": text, "protocolVersion": text }]),
        );
        let scene = Scene::of(card, "", &format!("log: {{ format: {format}, level: debug }}")).await;
        scene.gateway.wait_for_output("failed to fetch agent card").await;
        scene.agent.set_card(Card::v1().skill("sing"));
        assert_visible(&scene.gateway, format);
        let output = scene.gateway.output();
        assert!(!output.lines().any(|line| line.starts_with("err: ERROR forged")), "{output}");
    }
}

/// A terminal shows the problems that `agents` and `check` report as they are written.
#[tokio::test]
async fn problem_of_hidden_characters_is_escaped() {
    let text = format!("odd{}", all_hidden());
    let binding =
        json!([{ "url": "http://127.0.0.1:1/", "protocolBinding": text, "protocolVersion": "1.0" }]);
    let agent = ScriptedAgent::start(Card::v1().skill("sing").set("supportedInterfaces", binding)).await;
    let agents = format!("agents: {{bard: {{card: '{}'}}}}", agent.card_url());
    let config = format!("listeners: [{{address: 127.0.0.1:1}}]\n{agents}\n");
    let shown = TestGateway::run_with_config("agents", &config).await;
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.contains("\\u{110bd}") && !shown.contains(HIDDEN), "{shown}");
    // YAML takes such characters as escapes alone.
    let key = r#""odd\u202e\u200b": 1"#;
    let shown = TestGateway::run_with_config("check", &format!("{config}{key}\n")).await;
    let shown = String::from_utf8(shown.stderr).unwrap();
    assert!(shown.contains("odd\\u{202e}") && !shown.contains(HIDDEN), "{shown}");
}
