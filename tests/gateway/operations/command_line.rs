//! Parts that all commands share: the search for the configuration, completions, the manual,
//! colours, and the line at the end of the start.

use serde_json::Value;

use crate::kit::command::{Ended, RunningCommand};
use crate::support::{Card, Reply, ScriptedAgent, Signal, TestGateway, free_port};

const GOOD: &str = "listeners: [{address: 127.0.0.1:8080}]\nagents: {bard: {card: 'http://127.0.0.1:1/'}}\n";

async fn run(folder: &tempfile::TempDir, arguments: &[&str], environment: &[(&str, &str)]) -> Ended {
    RunningCommand::start_in(folder.path(), arguments, environment).ended().await
}

#[tokio::test]
async fn configuration_is_searched_in_order() {
    let folder = tempfile::tempdir().unwrap();
    for command in ["check", "serve", "agents"] {
        let ended = run(&folder, &[command], &[]).await;
        assert_eq!(ended.code, Some(1), "{ended:?}");
        for place in
            ["MCP_A2A_GATEWAY_CONFIG", "./gateway.yaml", "/etc/mcp-a2a-gateway/gateway.yaml", "init URL"]
        {
            assert!(ended.err.contains(place), "{command} {place}: {ended:?}");
        }
    }
    std::fs::write(folder.path().join("gateway.yaml"), GOOD).unwrap();
    std::fs::write(folder.path().join("other.yaml"), GOOD.replace("bard", "poet")).unwrap();
    let other = ("MCP_A2A_GATEWAY_CONFIG", "other.yaml");
    for (arguments, environment, file, is_told) in [
        (&["check"][..], &[][..], "./gateway.yaml", true),
        (&["check"], &[("MCP_A2A_GATEWAY_CONFIG", "")], "./gateway.yaml", true),
        (&["check"], &[other], "other.yaml", true),
        (&["check", "--config", "gateway.yaml"], &[other], "gateway.yaml", false),
    ] {
        let ended = run(&folder, arguments, environment).await;
        assert_eq!(ended.out, format!("{file}: no problems, 1 agent\n"), "{ended:?}");
        assert_eq!(ended.err.contains(&format!("configuration: {file}")), is_told, "{ended:?}");
    }
    let missing = run(&folder, &["check"], &[("MCP_A2A_GATEWAY_CONFIG", "gone.yaml")]).await;
    assert!(missing.code == Some(1) && missing.err.contains("gone.yaml"), "{missing:?}");
}

#[tokio::test]
async fn completions_and_manual_name_commands() {
    let folder = tempfile::tempdir().unwrap();
    let help = run(&folder, &["help"], &[]).await.out;
    let (_, commands) = help.split_once("Commands:\n").unwrap();
    let commands = commands.lines().take_while(|line| !line.is_empty());
    let commands: Vec<&str> = commands.filter_map(|line| line.split_whitespace().next()).collect();
    assert!(commands.contains(&"serve") && commands.contains(&"completions"), "{commands:?}");
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let ended = run(&folder, &["completions", shell], &[]).await;
        let script = &ended.out;
        assert!(ended.code == Some(0) && script.contains("mcp-a2a-gateway"), "{shell}: {ended:?}");
        assert!(script.contains("agent-url"), "{shell}: {script}");
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '-';
        let words: std::collections::BTreeSet<&str> = script.split(|c| !is_word(c)).collect();
        for command in &commands {
            assert!(words.contains(command), "{shell} completes no {command}: {script}");
        }
    }
    let unknown = run(&folder, &["completions", "dos"], &[]).await;
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        assert!(unknown.err.contains(shell), "the message names {shell}: {unknown:?}");
    }
    assert_eq!(run(&folder, &["completions", "dos"], &[]).await.code, Some(2));
    let manual = run(&folder, &["man"], &[]).await.out;
    assert!(manual.starts_with(".ie"), "{manual}");
    for words in [".TH mcp-a2a-gateway", "Run the gateway", "\\-\\-agent\\-url"] {
        assert!(manual.contains(words), "{words}\n{manual}");
    }
    assert_eq!(run(&folder, &["man", "--output", "pages"], &[]).await.code, Some(0));
    for page in ["mcp-a2a-gateway.1", "mcp-a2a-gateway-call.1", "mcp-a2a-gateway-serve.1"] {
        assert!(folder.path().join("pages").join(page).exists(), "{page}");
    }
}

#[tokio::test]
async fn start_ends_with_one_line() {
    let agent = ScriptedAgent::start(Card::v1().skill("sing").skill("hum")).await;
    let gone = ScriptedAgent::start(Card::v1()).await.stop().await;
    for format in ["text", "json"] {
        let gateway = TestGateway::start(|ports| {
            let agents = format!(
                "bard: {{ card: '{}' }}, poet: {{ card: 'http://me:pw@{gone}/?key=1' }}",
                agent.card_url()
            );
            let agents = agents.replace("me:pw@", "");
            format!("{}agents: {{ {agents} }}\nlog: {{ format: {format} }}\n", ports.listeners())
        })
        .await;
        gateway.wait_for_output("gateway started").await;
        let output = gateway.output();
        let lines: Vec<&str> = output.lines().filter(|line| line.contains("gateway started")).collect();
        assert_eq!(lines.len(), 1, "{output}");
        let line = lines[0];
        let awaited = format!("poet http://{gone}/");
        let endpoints = format!("{} {}", gateway.url("/mcp"), gateway.admin_url(""));
        for part in [awaited.as_str(), &endpoints] {
            assert!(line.contains(part), "{part}\n{line}");
        }
        assert!(!line.contains("key=1"), "{line}");
        if format == "json" {
            let line: Value = serde_json::from_str(line.strip_prefix("err: ").unwrap()).unwrap();
            assert_eq!((&line["agents_ready"], &line["tools"]), (&1.into(), &2.into()), "{line}");
        }
    }
}

/// Pingora reports its normal course at level `info`.
#[tokio::test]
async fn pingora_reports_are_debug_lines() {
    for (level, are_shown) in [("info", false), ("debug", true)] {
        let gateway = TestGateway::start(|ports| {
            let agents = "agents: { bard: { card: 'http://127.0.0.1:1/' } }\n";
            format!("{}{agents}log: {{ format: text, level: {level} }}\n", ports.listeners())
        })
        .await;
        gateway.wait_for_output("gateway started").await;
        let output = gateway.output();
        assert_eq!(output.contains("Server starting"), are_shown, "{level}: {output}");
    }
}

#[tokio::test]
async fn colours_need_terminal_and_no_veto() {
    let port = free_port();
    let config = GOOD.replace("127.0.0.1:1/", &format!("127.0.0.1:{port}/"));
    let file = tempfile::Builder::new().suffix(".yaml").tempfile().unwrap();
    std::fs::write(file.path(), config).unwrap();
    let arguments = ["agents", "--config", file.path().to_str().unwrap()];
    let shown = RunningCommand::at_terminal(&arguments, &[]).ended().await;
    assert!(shown.out.contains("\u{1b}[31m"), "{shown:?}");
    let plain = RunningCommand::at_terminal(&arguments, &[("NO_COLOR", "1")]).ended().await;
    assert!(plain.out.contains("cannot be reached") && !plain.out.contains('\u{1b}'), "{plain:?}");
    let piped = RunningCommand::start(&arguments).ended().await;
    assert!(piped.out.contains("cannot be reached") && !piped.out.contains('\u{1b}'), "{piped:?}");
    // The log as well: a port below that is taken ends the start after its first lines.
    let serve = ["serve", "--config", file.path().to_str().unwrap()];
    for (environment, is_coloured) in [(&[][..], true), (&[("NO_COLOR", "1")], false)] {
        let mut serve = RunningCommand::at_terminal(&serve, environment);
        serve.prints("no seal_key").await;
        assert_eq!(serve.out().contains('\u{1b}'), is_coloured, "{}", serve.out());
    }
}

/// The agent that answers first is printed first, and its problems before everything else about it.
/// The summary and the JSON begin with the agents that have some.
#[tokio::test]
async fn agents_are_printed_as_they_answer() {
    let (slow, quick) = (
        ScriptedAgent::start(Card::v1().skill("sing")).await,
        ScriptedAgent::start(Card::v1().skill("rhyme")).await,
    );
    let gone = ScriptedAgent::start(Card::v1()).await.stop().await;
    let go = Signal::new();
    let body = Card::v1().skill("sing").body(&slow.url());
    let card = Reply::bytes_of("application/json", &body).after(&go);
    slow.on_path("/.well-known/agent-card.json", move |_| card.clone());
    let folder = tempfile::tempdir().unwrap();
    let config = format!(
        "listeners: [{{address: 127.0.0.1:8080}}]\nagents:\n  bard: {{card: '{}'}}\n  poet: {{card: '{}'}}\n  monk: \
         {{card: 'http://{gone}/?key=secret'}}\n",
        slow.card_url(),
        quick.card_url()
    );
    std::fs::write(folder.path().join("gateway.yaml"), config).unwrap();
    let mut shown = RunningCommand::start_in(folder.path(), &["agents"], &[]);
    shown.prints("poet_rhyme").await;
    shown.prints("problem: cannot be reached").await;
    assert!(shown.out().contains(&quick.card_url()) && !shown.out().contains("bard_sing"), "{}", shown.out());
    go.open();
    let ended = shown.ended().await;
    let at = |text: &str| ended.out.find(text).unwrap_or_else(|| panic!("no {text}: {}", ended.out));
    assert!(at("poet_rhyme") < at("bard_sing") && at("cannot be reached") < at("bard_sing"), "{}", ended.out);
    let summary = format!("with problems: monk (http://{gone}/)\n2 of 3 agents without problems, 2 tools\n");
    assert!(ended.out.ends_with(&summary), "{}", ended.out);
    assert!(ended.code == Some(1) && !ended.out.contains("secret"), "{ended:?}");
    let json = run(&folder, &["agents", "--json"], &[]).await;
    let rows: Vec<Value> = serde_json::from_str(&json.out).unwrap();
    let named: Vec<&str> = rows.iter().map(|row| row["agent"].as_str().unwrap()).collect();
    assert_eq!(named, ["monk", "bard", "poet"], "problems first, then by name");
    assert_eq!(rows[0]["card"], format!("http://{gone}/"));
    assert!(json.code == Some(1) && !json.out.contains("secret"), "{json:?}");
}
