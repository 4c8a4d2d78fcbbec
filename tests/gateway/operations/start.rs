//! The command line: the demo and its `curl` line, and the commands that check, show and explain.

use std::io::{BufRead as _, BufReader, ErrorKind};
use std::process::{Child, Command, Output, Stdio};

use serde_json::{Value, json};

use crate::kit::scene::words;
use crate::support::{Card, McpClient, ScriptedAgent, TestGateway, free_port, in_time};

const BINARY: &str = env!("CARGO_BIN_EXE_mcp-a2a-gateway");

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn complaints(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// A running demo; ends with the test.
struct Demo {
    child: Child,
    /// Its output, to the last line.
    printed: String,
}

impl Drop for Demo {
    fn drop(&mut self) {
        // Both fail only if it has ended already.
        self.child.kill().unwrap_or_default();
        self.child.wait().map(drop).unwrap_or_default();
    }
}

async fn demo() -> Demo {
    demo_with(&["--port", &free_port().to_string()]).await
}

async fn demo_with(arguments: &[&str]) -> Demo {
    let mut child = Command::new(BINARY)
        .arg("demo")
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut demo = Demo { child, printed: String::new() };
    let read = tokio::task::spawn_blocking(move || {
        let mut printed = String::new();
        for line in lines.map_while(Result::ok) {
            printed.push_str(&line);
            printed.push('\n');
            if line.contains("Ctrl-C") {
                break;
            }
        }
        printed
    });
    demo.printed = in_time("the demo to say how to use it", read).await.unwrap();
    demo
}

impl Demo {
    fn url(&self) -> String {
        let mut words = self.printed.split_whitespace();
        words.find(|word| word.ends_with("/mcp")).expect("an MCP URL").to_owned()
    }

    /// The words that the shell makes of each `curl` line; `None` where there is no `curl`.
    async fn pasted(&self) -> Option<Vec<String>> {
        match Command::new("curl").arg("--version").output() {
            Err(error) if error.kind() == ErrorKind::NotFound => return None,
            found => drop(found.unwrap()),
        }
        let mut answers = Vec::new();
        for line in self.printed.lines().filter(|line| line.starts_with("curl ")) {
            let mut shell = Command::new("sh");
            shell.args(["-c", line]);
            let run = tokio::task::spawn_blocking(move || shell.output());
            let output = in_time("curl to end", run).await.unwrap().expect("a shell");
            assert!(output.status.success(), "{line}: {output:?}");
            answers.push(out(&output));
        }
        Some(answers)
    }
}

#[tokio::test]
async fn demo_prints_working_lines() {
    let demo = demo().await;
    let Some(answers) = demo.pasted().await else {
        return eprintln!("there is no curl here: the lines were not tried");
    };
    assert_eq!(answers.len(), 2, "{}", demo.printed);
    let echoed: Value = serde_json::from_str(&answers[0]).unwrap_or_else(|_| panic!("{}", answers[0]));
    assert_eq!(words(&echoed["result"]), "Hello, agent");
    let watched = &answers[1];
    assert!(watched.matches("notifications/progress").count() >= 3, "{watched}");
    assert!(watched.contains("liftoff"), "{watched}");
}

/// The shipped example in front of the demo agent.
#[tokio::test]
async fn weather_example_reaches_demo_agent() {
    let agent_port = free_port().to_string();
    let agent = demo_with(&["--agent-only", "--agent-port", &agent_port]).await;
    assert!(agent.printed.contains(" init http://127.0.0.1:"), "{}", agent.printed);
    let example = include_str!("../../../examples/weather.yaml");
    let gateway = TestGateway::start(|ports| {
        let (main, admin) = (ports.main.to_string(), ports.admin.to_string());
        let replaced = [(":8080", &main), (":9090", &admin), (":9999", &agent_port)];
        replaced.iter().fold(example.to_owned(), |text, (usual, port)| {
            assert!(text.contains(usual), "{usual}");
            text.replace(usual, &format!(":{port}"))
        })
    })
    .await;
    let call = json!({ "name": "weather_echo", "arguments": { "text": "Hello" } });
    assert_eq!(words(&gateway.client().modern("tools/call", call).await.result().await), "Hello");
    let other = Command::new(BINARY).args(["demo", "--agent-only", "--agent-port", &agent_port]).output();
    assert!(complaints(&other.unwrap()).contains("choose another --agent-port"));
}

#[tokio::test]
async fn demo_agent_asks_and_is_answered() {
    let demo = demo().await;
    let client = McpClient::new(&demo.url());
    let call = async |arguments: Value| {
        let params = json!({ "name": "demo_ask", "arguments": arguments });
        client.modern("tools/call", params).await.result().await
    };
    let asked = call(json!({ "text": "tea" })).await;
    let task = crate::kit::scene::task_of(&asked);
    let answered = call(json!({ "taskId": task, "text": "green" })).await;
    assert_eq!(words(&answered), "You said: green");
    let again = call(json!({ "taskId": task })).await;
    assert_eq!(words(&again), "You said: green", "the result can be had again");
}

#[tokio::test]
async fn demo_says_what_to_try_next() {
    let demo = demo().await;
    let lines: Vec<&str> =
        demo.printed.lines().filter(|line| line.contains("mcp-a2a-gateway call ")).collect();
    assert_eq!(lines.len(), 2, "{}", demo.printed);
    for (line, more, result) in [(lines[0], "", "liftoff"), (lines[1], "--answer green", "You said: green")] {
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("{line} {more}")]).stdin(Stdio::null());
        let run = tokio::task::spawn_blocking(move || shell.output());
        let output = in_time("the call to end", run).await.unwrap().unwrap();
        assert!(output.status.success() && out(&output).contains(result), "{line}: {output:?}");
    }
}

#[tokio::test]
async fn good_configuration_is_approved() {
    let good = "listeners: [{address: 127.0.0.1:8080}]\nagents: {bard: {card: http://127.0.0.1:1/}}\n";
    let checked = TestGateway::run_with_config("check", good).await;
    assert!(checked.status.success(), "{checked:?}");
    assert!(out(&checked).contains("no problems"), "{checked:?}");
}

#[tokio::test]
async fn every_problem_has_place_and_hint() {
    let bad = "listeners:\n  - address: 127.0.0.1:8080\nagents:\n  bard:\n    crad: http://127.0.0.1:1/\n    headers: {A: \
               \"${env:SURELY_NOT_SET}\"}\n  poet:\n    card: ftp://x/\ncalls:\n  budget: 5 parsecs\n";
    for command in ["check", "serve", "agents"] {
        let refused = TestGateway::run_with_config(command, bad).await;
        assert_eq!(refused.status.code(), Some(1), "{command}");
        let told = complaints(&refused);
        for (line, place) in
            [(5, "crad"), (6, "SURELY_NOT_SET"), (8, "agents.poet.card"), (10, "calls.budget")]
        {
            let found = told
                .lines()
                .any(|told| told.contains(&format!("gateway.yaml:{line}:")) && told.contains(place));
            assert!(found, "{command}: no problem of {place} at line {line} in\n{told}");
        }
        assert!(told.contains("card"), "a hint for the misspelt key: {told}");
        assert!(out(&refused).is_empty(), "problems belong to stderr");
    }
}

#[tokio::test]
async fn missing_file_is_one_problem() {
    for command in ["check", "serve", "agents"] {
        let refused = TestGateway::run_command(&[command, "--config", "no-such-file.yaml"]).await;
        assert_eq!(refused.status.code(), Some(1), "{command}");
        assert!(complaints(&refused).contains("no-such-file.yaml"), "{refused:?}");
    }
}

#[tokio::test]
async fn agents_are_shown_with_problems() {
    let (old, new) = (
        ScriptedAgent::start(Card::v0_3().skill("rhyme")).await,
        ScriptedAgent::start(Card::v1().skill("sing")).await,
    );
    let agents = |lines: &str| format!("listeners: [{{address: 127.0.0.1:8080}}]\nagents:\n{lines}");
    let good = agents(&format!(
        "  bard: {{card: \"{}\"}}\n  poet: {{card: \"{}\"}}\n",
        new.card_url(),
        old.card_url()
    ));
    let shown = TestGateway::run_with_config("agents", &good).await;
    assert!(shown.status.success(), "{shown:?}");
    let text = out(&shown);
    for (agent, version, tool) in [("bard", "1.0", "bard_sing"), ("poet", "0.3", "poet_rhyme")] {
        let row = text
            .lines()
            .find(|line| line.starts_with(agent))
            .unwrap_or_else(|| panic!("no {agent}:\n{text}"));
        for cell in [version, tool, "JSONRPC", "yes"] {
            assert!(row.contains(cell), "{cell} is not in {row}");
        }
    }
    let address = new.stop().await;
    let bad = agents(&format!(
        "  bard: {{card: \"http://{address}/\"}}\n  poet: {{card: \"{}\"}}\n",
        old.card_url()
    ));
    let shown = TestGateway::run_with_config("agents", &bad).await;
    assert_eq!(shown.status.code(), Some(1), "one is not there");
    assert!(out(&shown).contains("poet_rhyme"), "the others are shown: {shown:?}");
}

#[tokio::test]
async fn schema_is_that_of_repository() {
    let printed = TestGateway::run_command(&["schema"]).await;
    assert!(printed.status.success());
    let schema: Value = serde_json::from_str(&out(&printed)).unwrap();
    let kept =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/schemas/config.schema.json")).unwrap();
    assert_eq!(schema, serde_json::from_str::<Value>(&kept).unwrap());
}

#[tokio::test]
async fn help_names_commands_and_mistakes() {
    let help = TestGateway::run_command(&["--help"]).await;
    assert!(help.status.success());
    for command in ["demo", "init", "serve", "check", "agents", "call", "schema", "completions", "man"] {
        assert!(out(&help).contains(command), "{command}");
    }
    for arguments in [&[][..], &["serv"], &["init"], &["serve", "--confg", "x"]] {
        let refused = TestGateway::run_command(arguments).await;
        assert_eq!(refused.status.code(), Some(2), "{arguments:?}");
        assert!(!complaints(&refused).is_empty(), "{arguments:?}");
    }
}

#[tokio::test]
async fn taken_port_is_explained() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let config = format!(
        "listeners: [{{address: \"{}\"}}]\nagents: {{bard: {{card: http://127.0.0.1:1/}}}}\n",
        taken.local_addr().unwrap()
    );
    let refused = TestGateway::run_with_config("serve", &config).await;
    assert_eq!(refused.status.code(), Some(1));
    let told = complaints(&refused);
    assert!(told.contains(&taken.local_addr().unwrap().to_string()) && !told.contains("panicked"), "{told}");
}

#[tokio::test]
async fn smallest_file_of_readme_serves() {
    let agent = ScriptedAgent::start(Card::v1().skill("forecast")).await;
    let card = agent.card_url();
    let gateway = TestGateway::start(|ports| {
        format!("listeners:\n  - address: 127.0.0.1:{}\nadmin: {{ address: 127.0.0.1:{} }}\nagents:\n  weather:\n    card: {card}\n", ports.main, ports.admin)
    })
    .await;
    let list = gateway.client().modern("tools/list", json!({})).await.result().await;
    let names = list["tools"].as_array().unwrap().iter().map(|tool| &tool["name"]);
    assert!(names.into_iter().any(|name| name == "weather_forecast"), "{list}");
}

/// The processor time of a process so far, in seconds (`/proc/[pid]/stat`, in hundredths).
fn processor_seconds(process: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    (fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap()) / 100.0
}

/// The work of the start grows with the number of agents, not with its square, and so does the
/// memory: tools that no client lists take little.
#[tokio::test]
async fn hundreds_of_agents_start_cheaply() {
    const AGENTS: usize = 500;
    let skills = ["sing", "hum", "whistle", "play", "rest"];
    let agent = ScriptedAgent::start(skills.into_iter().fold(Card::v1(), Card::skill)).await;
    let gateway = TestGateway::start(|ports| {
        let agents: String = (0..AGENTS)
            .map(|number| format!("  agent-{number}:\n    card: {}\n", agent.card_url()))
            .collect();
        format!("{}agents:\n{agents}", ports.listeners())
    })
    .await;
    let ready = || async {
        let page = gateway.metrics().await;
        page.lines()
            .filter(|line| line.starts_with("mcp_a2a_gateway_agent_up{") && line.ends_with(" 1"))
            .count()
    };
    in_time("the cards of all agents", async { while ready().await < AGENTS {} }).await;
    let last = format!("agent-{}_rest", AGENTS - 1);
    in_time("the last tool", async {
        let call = json!({ "name": last, "arguments": { "text": "go" } });
        while gateway.client().modern("tools/call", call.clone()).await.json().await["error"].is_object() {}
    })
    .await;
    let (spent, kib) = (processor_seconds(gateway.process_id()), gateway.resident_kib());
    assert!(spent < 6.0, "{spent} s of processor time");
    assert!(kib < 150 * 1024, "{kib} KiB");
}
