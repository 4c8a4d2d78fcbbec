//! `init`: from the cards of agents to a configuration that serves them.

use serde_json::json;

use crate::kit::command::{Ended, RunningCommand};
use crate::kit::scene::words;
use crate::support::payload::{v0_3, v1};
use crate::support::{Card, Reply, ScriptedAgent, TestGateway};

/// Runs a command in this folder.
async fn run(folder: &tempfile::TempDir, arguments: &[&str]) -> Ended {
    RunningCommand::start_in(folder.path(), arguments, &[]).ended().await
}

fn written(folder: &tempfile::TempDir) -> String {
    std::fs::read_to_string(folder.path().join("gateway.yaml")).unwrap()
}

/// The agents that the journeys know, of every version and binding.
#[tokio::test]
async fn written_file_is_checked_and_served() {
    let new = ScriptedAgent::start(Card::v1().name("Bard!").skill("sing")).await;
    let old = ScriptedAgent::start(Card::v0_3().name("bard").skill("rhyme")).await;
    let oldest = ScriptedAgent::start(Card::v0_1().name("Élan vital").skill("hum")).await;
    let middle = Card::v0_3().set("protocolVersion", "0.2.6").name("middle").skill("tap");
    let middle = ScriptedAgent::start(middle).await;
    let rest = ScriptedAgent::start(Card::http_json("rest", "").skill("hop")).await;
    new.on_stream(|_| Reply::events([v1::message("la")]));
    old.on_stream(|_| Reply::events([v0_3::message("lo")]));
    let folder = tempfile::tempdir().unwrap();
    let urls = [new.card_url(), old.url(), oldest.card_url(), rest.url(), middle.url()];
    let urls: Vec<&str> = urls.iter().map(String::as_str).collect();
    let ended = run(&folder, &[&["init"], &urls[..]].concat()).await;
    assert!(ended.code == Some(0) && ended.err.contains("5 agents"), "{ended:?}");
    let ended = run(&folder, &["check"]).await;
    assert!(ended.code == Some(0) && ended.out.contains("no problems, 5 agents"), "{ended:?}");
    let text = written(&folder);
    for line in ["  bard:", "  bard-2:", "sing -> bard_sing: Does sing", "# A2A 0.3, JSONRPC, streaming"] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    for (agent, version) in [("bard", "1.0"), ("bard-2", "0.3"), ("middle", "0.2")] {
        let (before, _) = text.split_once(&format!("\n  {agent}:\n")).unwrap();
        let line = before.lines().last().unwrap();
        assert!(line.starts_with(&format!("  # A2A {version}, ")), "{agent}: {line}");
    }
    let gateway = TestGateway::start(|ports| {
        let replaced = [(":8080", ports.main), (":9090", ports.admin)];
        replaced.iter().fold(text.clone(), |text, (usual, port)| text.replace(usual, &format!(":{port}")))
    })
    .await;
    for (tool, said) in [("bard_sing", "la"), ("bard-2_rhyme", "lo")] {
        let call = json!({ "name": tool, "arguments": { "text": "x" } });
        assert_eq!(words(&gateway.client().modern("tools/call", call).await.result().await), said);
    }
}

#[tokio::test]
async fn init_overwrites_only_by_force() {
    let agent = ScriptedAgent::start(Card::v1().skill("sing")).await;
    let (folder, url) = (tempfile::tempdir().unwrap(), agent.url());
    std::fs::write(folder.path().join("gateway.yaml"), "mine").unwrap();
    let ended = run(&folder, &["init", &url]).await;
    assert!(ended.code == Some(1) && ended.err.contains("--force"), "{ended:?}");
    assert_eq!(written(&folder), "mine");
    let ended = run(&folder, &["init", &url, "--output", "-"]).await;
    assert!(ended.code == Some(0) && ended.out.contains("scripted-agent:"), "{ended:?}");
    assert_eq!(run(&folder, &["init", &url, "--force"]).await.code, Some(0));
    assert_eq!(written(&folder), ended.out);
}

#[tokio::test]
async fn unreachable_card_ends_init() {
    let agent = ScriptedAgent::start(Card::v1().skill("sing")).await;
    let gone = ScriptedAgent::start(Card::v1()).await.stop().await;
    let (folder, good, bad) = (tempfile::tempdir().unwrap(), agent.url(), format!("http://{gone}/"));
    let ended = run(&folder, &["init", &good, &bad]).await;
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.err.contains(&format!("{bad}: cannot be reached")), "{ended:?}");
    assert!(!folder.path().join("gateway.yaml").exists());
    let ended = run(&folder, &["init", &good, &bad, "--keep-going"]).await;
    assert!(ended.code == Some(0) && ended.err.contains(&bad), "{ended:?}");
    assert!(!written(&folder).contains(&bad));
    assert_eq!(run(&folder, &["init", "weather", "--force"]).await.code, Some(1), "a name is no URL");
}

/// The lines are keys of the configuration once the comment sign is gone.
#[tokio::test]
async fn demanded_credentials_are_comments() {
    let schemes = json!({
        "main": { "apiKeySecurityScheme": { "location": "header", "name": "X-Key" } },
        "user": { "httpAuthSecurityScheme": { "scheme": "basic" } },
        "token": { "httpAuthSecurityScheme": { "scheme": "bearer" } },
        "login": { "oauth2SecurityScheme": { "flows": {} } },
    });
    let need = |name: &str| json!({ "schemes": { name: { "list": [] } } });
    let needs = ["main", "user", "token", "login"].map(need);
    let card =
        Card::v1().skill("sing").set("securitySchemes", schemes).set("securityRequirements", json!(needs));
    let agent = ScriptedAgent::start(card).await;
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(run(&folder, &["init", &agent.url()]).await.code, Some(0));
    assert_eq!(run(&folder, &["check"]).await.code, Some(0));
    let text = written(&folder);
    let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("    # auth: ")).collect();
    assert_eq!(lines.len(), 4, "{text}");
    for line in lines {
        let used = text.replace(line, &line.replacen("# ", "", 1));
        std::fs::write(folder.path().join("used.yaml"), used).unwrap();
        let names =
            ["KEY", "PASSWORD", "TOKEN", "CLIENT_SECRET"].map(|name| format!("SCRIPTED_AGENT_{name}"));
        let environment: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "x")).collect();
        let check = ["check", "--config", "used.yaml"];
        let ended = RunningCommand::start_in(folder.path(), &check, &environment).ended().await;
        assert_eq!(ended.code, Some(0), "{line}: {ended:?}");
    }
}

#[tokio::test]
async fn card_adds_no_key_to_file() {
    let text = "x\nlimits: { body: 1 }\r\u{85}\u{2028}y: ${env:HOME}";
    let skill = json!({ "id": text, "name": text, "description": text, "tags": [text] });
    let card = Card::v1().name(text).set("description", text).set("version", text).skill_with(skill);
    let agent = ScriptedAgent::start(card).await;
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(run(&folder, &["init", &agent.url()]).await.code, Some(0));
    let text = written(&folder);
    let keys = text.lines().filter(|line| !line.trim_start().starts_with('#')).collect::<Vec<_>>();
    assert_eq!(keys.len(), 8, "{text}");
    assert_eq!(run(&folder, &["check"]).await.code, Some(0));
}
