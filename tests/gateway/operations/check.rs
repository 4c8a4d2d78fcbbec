//! `check` reads all that a configuration names: the data directory and the dates of certificates
//! too.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{Authority, Card, Identity, ScriptedAgent, TestGateway};

const DAY: u64 = 86_400;
const KEY: &str = "seal_key: 0123456789abcdef0123456789abcdef\n";

struct Checked {
    code: Option<i32>,
    out: String,
    complaints: String,
}

/// Runs the command on a file in this folder.
async fn check(folder: &Path, settings: &str, more: &[&str]) -> Checked {
    let file = folder.join("gateway.yaml");
    let card = "agents:\n  bard:\n    card: https://127.0.0.1:9/card.json\n";
    fs::write(&file, format!("listeners: [{{ address: 127.0.0.1:8080 }}]\n{card}{settings}")).unwrap();
    let arguments: Vec<&str> =
        ["check", "--config", file.to_str().unwrap()].iter().chain(more).copied().collect();
    let output = TestGateway::run_command(&arguments).await;
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Checked { code: output.status.code(), out: text(output.stdout), complaints: text(output.stderr) }
}

#[tokio::test]
async fn unusable_data_directory_is_a_problem() {
    let folder = TempDir::new().unwrap();
    let folder = folder.path();
    fs::write(folder.join("file"), "").unwrap();
    fs::create_dir(folder.join("open")).unwrap();
    fs::write(folder.join("open/seal.key"), "0123456789abcdef0123456789abcdef").unwrap();
    fs::set_permissions(folder.join("open/seal.key"), Permissions::from_mode(0o644)).unwrap();
    fs::create_dir_all(folder.join("odd/tasks.redb")).unwrap();
    for (dir, told) in [
        ("file/below", "file is not a folder"),
        // Not even for root.
        ("/proc/gateway", "/proc cannot be written"),
        ("open", "open to every user"),
        ("odd", "tasks.redb"),
    ] {
        let checked = check(folder, &format!("tasks: {{ data_dir: {dir} }}\n"), &[]).await;
        assert_eq!(checked.code, Some(1), "{dir}: {}", checked.out);
        let complaints = &checked.complaints;
        assert!(complaints.contains("tasks.data_dir: ") && complaints.contains(told), "{dir}: {complaints}");
    }
    // The key in the file is the one that counts.
    let checked = check(folder, &format!("{KEY}tasks: {{ data_dir: open }}\n"), &[]).await;
    assert_eq!(checked.code, Some(0), "{}", checked.complaints);
}

#[tokio::test]
async fn unusable_file_of_shared_state_is_a_problem() {
    let folder = TempDir::new().unwrap();
    let folder = folder.path();
    fs::write(folder.join("file"), "").unwrap();
    fs::create_dir(folder.join("odd")).unwrap();
    for (url, told) in [
        ("file:file/below", "file is not a folder"),
        ("file:/proc/gateway", "/proc cannot be written"),
        ("file:odd", "odd cannot be read and written"),
    ] {
        let checked = check(folder, &format!("{KEY}state: {{ url: '{url}' }}\n"), &[]).await;
        assert_eq!(checked.code, Some(1), "{url}: {}", checked.out);
        let complaints = &checked.complaints;
        assert!(complaints.contains("state.url: ") && complaints.contains(told), "{url}: {complaints}");
    }
    let checked = check(folder, &format!("{KEY}state: {{ url: 'file:new/state' }}\n"), &[]).await;
    assert_eq!((checked.code, folder.join("new").exists()), (Some(0), false), "{}", checked.complaints);
}

#[tokio::test]
async fn data_directory_is_left_as_it_is() {
    let folder = TempDir::new().unwrap();
    let checked = check(folder.path(), "tasks: { data_dir: new/data }\n", &[]).await;
    assert_eq!(checked.code, Some(0), "{}", checked.complaints);
    let names: Vec<_> =
        fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["gateway.yaml"]);
    // Nor does it matter that a gateway works with it.
    let agent = ScriptedAgent::start(Card::v1().skill("sing")).await;
    let gateway = TestGateway::start(|ports| {
        let card = agent.card_url();
        format!(
            "{}tasks: {{ data_dir: data }}\nagents: {{ bard: {{ card: '{card}' }} }}\n",
            ports.listeners()
        )
    })
    .await;
    let data = gateway.ports().directory.join("data");
    let settings = format!("tasks: {{ data_dir: '{}' }}\n", data.display());
    let checked = check(folder.path(), &settings, &[]).await;
    assert_eq!(checked.code, Some(0), "{}", checked.complaints);
}

fn shown(folder: &Path, identity: &Identity) -> &'static str {
    identity.write(folder, "client");
    "    tls: { certificate: client.crt, key: client.key }\n"
}

#[tokio::test]
async fn client_certificate_dates_are_judged() {
    let folder = TempDir::new().unwrap();
    let folder = folder.path();
    let authority = Authority::new("agents");
    let at = "agents.bard.tls.certificate: certificate 1 ";
    for (identity, told) in [
        (authority.expired_client("gateway"), "expired"),
        (authority.future_client("gateway"), "is valid only in"),
    ] {
        let checked = check(folder, shown(folder, &identity), &[]).await;
        assert_eq!(checked.code, Some(1), "{told}: {}", checked.out);
        assert!(checked.complaints.contains(&format!("{at}{told}")), "{}", checked.complaints);
        let checked = check(folder, shown(folder, &identity), &["--json"]).await;
        let found: Value = serde_json::from_str(&checked.out).unwrap();
        assert_eq!((checked.code, &found["ok"]), (Some(1), &json!(false)), "{found}");
        assert_eq!(found["problems"][0]["at"], "agents.bard.tls.certificate");
    }
    let soon = authority.client_for("gateway", 10 * DAY + 60);
    let checked = check(folder, shown(folder, &soon), &[]).await;
    assert_eq!(checked.code, Some(0), "{}", checked.complaints);
    assert!(checked.complaints.contains("warning: agents.bard.tls.certificate: expires in 10 days"));
    assert!(checked.out.contains("no problems"), "{}", checked.out);
    let checked = check(folder, shown(folder, &soon), &["--json"]).await;
    let found: Value = serde_json::from_str(&checked.out).unwrap();
    assert_eq!((&found["ok"], &found["problems"]), (&json!(true), &json!([])), "{found}");
    assert_eq!(found["warnings"][0]["at"], "agents.bard.tls.certificate", "{found}");
    let later = authority.client_for("gateway", 60 * DAY);
    let checked = check(folder, shown(folder, &later), &[]).await;
    assert_eq!((checked.code, checked.complaints.as_str()), (Some(0), ""));
}

/// `serve` starts all the same, since other agents can be called, and says so.
#[tokio::test]
async fn serve_warns_of_client_certificate() {
    let authority = Authority::new("agents");
    let agent = ScriptedAgent::start(Card::v1().skill("sing")).await;
    let gateway = TestGateway::start(|ports| {
        let own = shown(&ports.directory, &authority.expired_client("gateway"));
        let card = agent.card_url();
        format!("{}agents:\n  bard:\n    card: '{card}'\n{own}", ports.listeners())
    })
    .await;
    gateway.wait_for_output("agents.bard.tls.certificate").await;
}

#[tokio::test]
async fn listener_certificate_end_is_warned() {
    let folder = TempDir::new().unwrap();
    let authority = Authority::new("servers");
    authority.server_for(&["localhost"], 5 * DAY + 60).write(folder.path(), "server");
    let file = folder.path().join("gateway.yaml");
    let tls = "tls: { certificate: server.crt, key: server.key }";
    let text = format!(
        "listeners: [{{ address: 127.0.0.1:8443, {tls} }}]\nagents: {{ bard: {{ card: http://127.0.0.1:9/ }} }}\n"
    );
    fs::write(&file, text).unwrap();
    let output = TestGateway::run_command(&["check", "--config", file.to_str().unwrap()]).await;
    let complaints = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{complaints}");
    let told = "warning: listeners[0].tls.certificate: expires in 5 days";
    assert!(complaints.contains(told), "{complaints}");
}

/// `$TOKEN` is the text itself, which no agent accepts; neither it nor a text that is meant so is quoted.
#[tokio::test]
async fn reference_without_braces_is_warned() {
    let folder = TempDir::new().unwrap();
    for (auth, is_warned) in [
        ("bearer: $AGENT_TOKEN", true),
        ("api_key: { value: $AGENT_TOKEN, in: header, name: X-Key }", true),
        ("basic: { user: u, password: $AGENT_TOKEN }", true),
        ("bearer: plain$AGENT_TOKEN", false),
    ] {
        let checked = check(folder.path(), &format!("    auth: {{ {auth} }}\n"), &[]).await;
        assert_eq!(checked.code, Some(0), "{}", checked.complaints);
        let told = "gateway.yaml:5: warning: agents.bard.auth.";
        let is_told = checked.complaints.contains(told) && checked.complaints.contains("${env:NAME}");
        assert_eq!(is_told, is_warned, "{auth}: {}", checked.complaints);
        assert!(!checked.complaints.contains("AGENT_TOKEN"), "{}", checked.complaints);
    }
    let json =
        check(folder.path(), "    headers: { Authorization: Bearer $AGENT_TOKEN }\n", &["--json"]).await;
    let report: Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!(report["warnings"][0]["at"], "agents.bard.headers.Authorization", "{report}");
    assert_eq!((&report["ok"], &report["warnings"][0]["line"]), (&json!(true), &json!(5)));
    let agent = ScriptedAgent::start(Card::v1().skill("sing")).await;
    let gateway = TestGateway::start(|ports| {
        let card = agent.card_url();
        let bard = format!("agents:\n  bard:\n    card: '{card}'\n    auth: {{ bearer: $AGENT_TOKEN }}\n");
        format!("{}{bard}", ports.listeners())
    })
    .await;
    gateway.wait_for_output("configuration has a doubtful value").await;
    assert!(!gateway.output().contains("AGENT_TOKEN"));
}

#[tokio::test]
async fn credentials_without_tls_are_warned() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("gateway.yaml");
    let bearer = "auth: { bearer: secret-1 }";
    let key = "headers: { X-Api-Key: secret-1 }";
    for (agent, at) in [
        (format!("card: http://agents.test/?k=secret-1, {bearer}"), Some("card")),
        (format!("card: http://agents.test/, {key}"), Some("card")),
        (
            format!("card: https://agents.test/, endpoints: ['http://a.test/'], {bearer}"),
            Some("endpoints[0]"),
        ),
        (format!("card: https://agents.test/, {bearer}"), None),
        (format!("card: http://127.0.0.1:9/, {bearer}"), None),
        (format!("card: http://localhost:9/, {key}"), None),
        ("card: http://agents.test/, headers: { X-Tenant: a }".to_owned(), None),
    ] {
        let text = format!("listeners: [{{ address: 127.0.0.1:8080 }}]\nagents: {{ bard: {{ {agent} }} }}\n");
        fs::write(&file, text).unwrap();
        let output = TestGateway::run_command(&["check", "--config", file.to_str().unwrap()]).await;
        let complaints = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success() && !complaints.contains("secret-1"), "{complaints}");
        let told = at.map(|at| format!("warning: agents.bard.{at}: sends credentials to "));
        let is_told = told.as_ref().is_some_and(|told| complaints.contains(told));
        assert_eq!((is_told, complaints.is_empty()), (at.is_some(), at.is_none()), "{agent}: {complaints}");
    }
}

/// A setting that fits nothing is told once the card is known: by `check --online`, by `agents` and at the
/// start.
#[tokio::test]
async fn settings_that_fit_nothing_are_warned() {
    let agent = ScriptedAgent::start(Card::v1().skill("sing").skill("hum")).await;
    let idle = "    skills: { dance: { hidden: true }, sing: { hidden: true } }\n\
                rules:\n  - { deny: true, tools: [dance, \"h*\", bard_hum, memory_store] }\n  - {}\n\
                resources: { sparc: { phases: { refinement: [polish, hum] } } }\n";
    let bard = format!("agents:\n  bard:\n    card: '{}'\n{idle}", agent.card_url());
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("gateway.yaml");
    fs::write(&file, format!("listeners: [{{ address: 127.0.0.1:8080 }}]\n{bard}")).unwrap();
    let file = file.to_str().unwrap();
    let run = async |arguments: &[&str]| {
        let output = TestGateway::run_command(&[arguments, &["--config", file]].concat()).await;
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        assert!(output.status.success(), "{output:?}");
        (text(output.stdout), text(output.stderr))
    };
    let told = [
        "agents.bard.skills.dance: hides nothing: the card has no skill of this id (its skills: sing, hum)",
        "rules[0].tools: \"dance\" fits no skill and no tool of these agents: it denies nothing",
        "resources.sparc.phases.refinement: \"polish\" fits no skill",
    ];
    let (_, complaints) = run(&["check"]).await;
    assert_eq!(complaints, "", "no agent is asked");
    let (_, complaints) = run(&["check", "--online"]).await;
    assert_eq!(complaints.lines().count(), told.len(), "{complaints}");
    let (_, of_rules) = run(&["agents"]).await;
    let (rows, _) = run(&["agents", "--json"]).await;
    let rows: Value = serde_json::from_str(&rows).unwrap();
    let of_agents = rows[0]["warnings"][0].as_str().unwrap();
    assert!(of_agents.contains(told[0]), "{of_agents}");
    let gateway = TestGateway::start(|ports| format!("{}{bard}", ports.listeners())).await;
    for told in told {
        assert!(complaints.contains(&format!("warning: {told}")), "{told}: {complaints}");
        assert!(told.starts_with("agents.") || of_rules.contains(told), "{told}: {of_rules}");
        gateway.wait_for_output(told.split(": ").next().unwrap()).await;
    }
    assert_eq!(gateway.output().matches("setting fits nothing").count(), told.len());
}

/// An agent without a card is named, and its settings are not judged.
#[tokio::test]
async fn online_check_names_agent_without_card() {
    let gone = ScriptedAgent::start(Card::v1()).await.stop().await;
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("gateway.yaml");
    let text = format!(
        "listeners: [{{ address: 127.0.0.1:8080 }}]\nagents:\n  bard:\n    card: 'http://{gone}/'\n    skills: {{ dance: {{ \
         hidden: true }} }}\nrules: [{{ tools: [dance] }}]\n"
    );
    fs::write(&file, text).unwrap();
    let arguments = ["check", "--online", "--config", file.to_str().unwrap()];
    let output = TestGateway::run_command(&arguments).await;
    let complaints = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{complaints}");
    assert_eq!(complaints.lines().count(), 1, "{complaints}");
    assert!(complaints.contains("warning: agents.bard: cannot be reached at http://"), "{complaints}");
}
