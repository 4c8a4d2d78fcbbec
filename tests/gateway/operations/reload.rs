//! Another configuration for the running gateway: by signal, by request and by a changed file.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::certs::Authority;
use crate::support::payload::v1;
use crate::support::{Card, LegacySession, Ports, Reply, ScriptedAgent, Signal, TestGateway, in_time};

/// The token of the admin listener.
const ADMIN_TOKEN: &str = "a-token-of-the-operators-0123456789";

/// Returns a configuration with the admin token, these agents, and more keys.
fn config(ports: &Ports, agents: &[(&str, &ScriptedAgent)], more: &str) -> String {
    let agents: String =
        agents.iter().map(|(name, agent)| format!("  {name}:\n    card: {}\n", agent.card_url())).collect();
    let (listeners, agents) = (ports.listeners(), if agents.is_empty() { "  {}\n" } else { &agents });
    format!("{listeners}  token: {ADMIN_TOKEN}\n{more}\nagents:\n{agents}")
}

/// A gateway with a configuration file that a test changes.
struct Reloaded {
    gateway: TestGateway,
}

impl Reloaded {
    async fn start(agents: &[(&str, &ScriptedAgent)], more: &str) -> Self {
        Self { gateway: TestGateway::start(|ports| config(ports, agents, more)).await }
    }

    fn write(&self, agents: &[(&str, &ScriptedAgent)], more: &str) {
        self.write_text(&config(self.gateway.ports(), agents, more));
    }

    /// Replaces the file as a whole, as editors do.
    fn write_text(&self, text: &str) {
        let directory = &self.gateway.ports().directory;
        std::fs::write(directory.join("next.yaml"), text).unwrap();
        std::fs::rename(directory.join("next.yaml"), directory.join("gateway.yaml")).unwrap();
    }

    /// Asks the admin listener to reload; returns the status and the report.
    async fn reload(&self) -> (u16, Value) {
        let admin = self.gateway.admin().at("/reload").bearer(ADMIN_TOKEN);
        let answer = admin.send("POST", &[], Vec::new()).await;
        (answer.status, answer.json().await)
    }

    /// Writes the file and has it applied.
    async fn apply(&self, agents: &[(&str, &ScriptedAgent)], more: &str) -> Value {
        self.write(agents, more);
        let (status, report) = self.reload().await;
        assert_eq!((status, &report["outcome"]), (200, &json!("applied")), "{report}");
        report
    }

    async fn metrics(&self) -> String {
        self.gateway.admin().at("/metrics").bearer(ADMIN_TOKEN).get(&[]).await.text().await
    }

    /// Returns the names of the tools that a client sees.
    async fn tools(&self) -> Vec<String> {
        let listed = self.gateway.client().modern("tools/list", json!({})).await.result().await;
        let tools = listed["tools"].as_array().unwrap();
        tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
    }
}

/// Waits until the metrics have this line.
async fn shows(reloaded: &Reloaded, line: &str) {
    in_time(line, async { while !reloaded.metrics().await.lines().any(|shown| shown == line) {} }).await;
}

async fn agent(skill: &str) -> ScriptedAgent {
    let agent = ScriptedAgent::start(Card::v1().skill(skill)).await;
    agent.on_send(|_| Reply::result(v1::message("la")));
    agent
}

async fn call(reloaded: &Reloaded, tool: &str) -> Value {
    let call = json!({ "name": tool, "arguments": { "text": "go" } });
    reloaded.gateway.client().modern("tools/call", call).await.json().await
}

fn is_la(answer: &Value) -> bool {
    answer["result"]["content"][0]["text"] == "la" && answer["result"]["isError"] != true
}

/// An agent can be called as soon as the reload has been answered and its card has come; one that is
/// removed is gone at once.
#[tokio::test]
async fn agents_are_added_and_removed() {
    let (bard, news) = (agent("sing").await, agent("read").await);
    let reloaded =
        Reloaded::start(&[("bard", &bard)], "mcp: { subagent_tools: false, find_agent: false }").await;
    assert_eq!(reloaded.tools().await, ["bard_sing"]);
    let more = "mcp: { subagent_tools: false, find_agent: false }";
    let report = reloaded.apply(&[("bard", &bard), ("news", &news)], more).await;
    assert_eq!((&report["agentsAdded"], &report["changed"]), (&json!(["news"]), &json!(["agents"])));
    shows(&reloaded, "mcp_a2a_gateway_agent_up{agent=\"news\"} 1").await;
    in_time("the new tool", async {
        while reloaded.tools().await != ["bard_sing", "news_read"] {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    assert!(is_la(&call(&reloaded, "news_read").await));
    reloaded.apply(&[("news", &news)], more).await;
    assert_eq!(reloaded.tools().await, ["news_read"]);
    assert_eq!(call(&reloaded, "bard_sing").await["error"]["code"], -32602);
    shows(&reloaded, "mcp_a2a_gateway_config_generation 3").await;
    assert!(!reloaded.metrics().await.contains("agent=\"bard\""));
}

/// A file with problems changes nothing; each problem is told, logged and the attempt is counted.
#[tokio::test]
async fn bad_file_changes_nothing() {
    let bard = agent("sing").await;
    let reloaded = Reloaded::start(&[("bard", &bard)], "").await;
    reloaded.write(&[], "limits: { body: none }\nzebra: 1\n");
    let (status, report) = reloaded.reload().await;
    assert_eq!((status, &report["outcome"]), (422, &json!("rejected")), "{report}");
    let at: Vec<&str> =
        report["problems"].as_array().unwrap().iter().map(|one| one["at"].as_str().unwrap()).collect();
    assert_eq!(at, ["limits.body", "zebra", "agents"], "{report}");
    assert!(report["problems"].as_array().unwrap().iter().all(|one| one["line"].is_u64()), "{report}");
    shows(&reloaded, "mcp_a2a_gateway_config_reloads_total{outcome=\"rejected\"} 1").await;
    for logged in ["limits.body", "zebra", "configuration rejected, nothing has changed"] {
        reloaded.gateway.wait_for_output(logged).await;
    }
    reloaded.gateway.signal("HUP");
    shows(&reloaded, "mcp_a2a_gateway_config_reloads_total{outcome=\"rejected\"} 2").await;
    assert!(is_la(&call(&reloaded, "bard_sing").await));
    shows(&reloaded, "mcp_a2a_gateway_config_generation 1").await;
}

#[tokio::test]
async fn reload_needs_the_admin_token() {
    let bard = agent("sing").await;
    let reloaded = Reloaded::start(&[("bard", &bard)], "").await;
    let admin = reloaded.gateway.admin().at("/reload");
    assert_eq!(admin.send("POST", &[], Vec::new()).await.status, 401);
    assert_eq!(
        admin.bearer("wrong-token-of-the-same-length-0123").send("POST", &[], Vec::new()).await.status,
        401
    );
    let (status, report) = reloaded.reload().await;
    assert_eq!((status, &report["outcome"]), (200, &json!("unchanged")), "{report}");
    shows(&reloaded, "mcp_a2a_gateway_config_reloads_total{outcome=\"unchanged\"} 1").await;
}

/// Revoked keys are refused with the next request, new keys are accepted, and rules apply.
#[tokio::test]
async fn keys_and_rules_change_at_once() {
    const ANN: (&str, &str) = ("ann-key", "sha256:");
    let hash = |key: &str| {
        use sha2::{Digest as _, Sha256};
        let digest = Sha256::digest(key.as_bytes());
        format!("{}{}", ANN.1, digest.iter().map(|byte| format!("{byte:02x}")).collect::<String>())
    };
    let keys =
        |name: &str, key: &str| format!("auth:\n  api_keys:\n    keys:\n      {name}: {}\n", hash(key));
    let bard = agent("sing").await;
    let reloaded = Reloaded::start(&[("bard", &bard)], &keys("ann", ANN.0)).await;
    let status = async |key: &str| {
        let client = reloaded.gateway.client().header("X-API-Key", key);
        client.modern("tools/list", json!({})).await.status
    };
    assert_eq!((status(ANN.0).await, status("ben-key").await), (200, 401));
    reloaded.apply(&[("bard", &bard)], &keys("ben", "ben-key")).await;
    assert_eq!((status(ANN.0).await, status("ben-key").await), (401, 200));
    let rules = format!("{}rules:\n  - methods: [tools/list]\n", keys("ben", "ben-key"));
    let called = async || {
        let client = reloaded.gateway.client().header("X-API-Key", "ben-key");
        let call = json!({ "name": "bard_sing", "arguments": { "text": "go" } });
        client.modern("tools/call", call).await.json().await
    };
    assert!(is_la(&called().await));
    reloaded.apply(&[("bard", &bard)], &rules).await;
    assert!(called().await["error"].is_object());
    assert_eq!(status("ben-key").await, 200);
}

/// A limit applies from the next request on.
#[tokio::test]
async fn changed_rate_takes_effect() {
    let bard = agent("sing").await;
    let reloaded = Reloaded::start(&[("bard", &bard)], "").await;
    for _ in 0..5 {
        assert!(is_la(&call(&reloaded, "bard_sing").await));
    }
    reloaded.apply(&[("bard", &bard)], "limits: { caller_rate: 1, caller_burst: 1 }").await;
    let client = reloaded.gateway.client();
    let mut statuses = Vec::new();
    for _ in 0..3 {
        statuses.push(client.modern("tools/list", json!({})).await.status);
    }
    assert!(statuses.contains(&429), "{statuses:?}");
    reloaded.apply(&[("bard", &bard)], "").await;
    assert!(is_la(&call(&reloaded, "bard_sing").await));
}

/// Keys that are bound to the process keep their value and are named; everything else is applied.
#[tokio::test]
async fn what_needs_restart_is_named() {
    let (bard, news) = (agent("sing").await, agent("read").await);
    let reloaded = Reloaded::start(&[("bard", &bard)], "").await;
    let more = "threads: 3\ntasks: { max: 77 }\n";
    let report = reloaded.apply(&[("bard", &bard), ("news", &news)], more).await;
    assert_eq!(report["restart"], json!(["threads", "tasks.max"]), "{report}");
    assert_eq!(report["agentsAdded"], json!(["news"]), "{report}");
    reloaded.gateway.wait_for_output("need a restart").await;
    reloaded.gateway.wait_for_output("threads tasks.max").await;
}

/// With `reload.watch` a changed file is applied without a request.
#[tokio::test]
async fn watched_file_is_applied() {
    let (bard, news) = (agent("sing").await, agent("read").await);
    let watch = "reload: { watch: true }";
    let reloaded = Reloaded::start(&[("bard", &bard)], watch).await;
    reloaded.write(&[("bard", &bard), ("news", &news)], watch);
    shows(&reloaded, "mcp_a2a_gateway_config_reloads_total{outcome=\"applied\"} 1").await;
    shows(&reloaded, "mcp_a2a_gateway_agent_up{agent=\"news\"} 1").await;
    reloaded.write(&[], watch);
    shows(&reloaded, "mcp_a2a_gateway_config_reloads_total{outcome=\"rejected\"} 1").await;
    reloaded.write(&[("news", &news)], watch);
    shows(&reloaded, "mcp_a2a_gateway_config_generation 3").await;
    assert_eq!(call(&reloaded, "bard_sing").await["error"]["code"], -32602);
}

/// The handle of a task works after a reload; once its agent is removed, the error says so.
#[tokio::test]
async fn task_handle_outlives_reload() {
    let (bard, news) = (agent("sing").await, agent("read").await);
    let go = bard.works_for(("raw-task", "raw-context"), "la");
    let reloaded = Reloaded::start(&[("bard", &bard)], "").await;
    let session = reloaded.gateway.client().legacy().await;
    let task = session.begin_task("bard_sing", json!({ "text": "go" })).await;
    let handle = task["taskId"].as_str().unwrap();
    reloaded.apply(&[("bard", &bard), ("news", &news)], "limits: { caller_calls: 7 }").await;
    go.open();
    session.task_until(handle, "completed").await;
    let result = session.task("tasks/result", handle).await.result().await;
    assert_eq!(result["content"][0]["text"], "la", "{result}");
    reloaded.apply(&[("news", &news)], "").await;
    let refused = session.task("tasks/get", handle).await.json().await;
    assert_eq!(refused["error"]["code"], -32602, "{refused}");
    assert!(refused["error"]["message"].as_str().unwrap().contains("agent was removed"), "{refused}");
}

/// A listener that is to get client certificates does not serve everybody until the restart that
/// brings them.
#[tokio::test]
async fn reload_keeps_listener_closed() {
    const HASH: &str = "sha256:0000000000000000000000000000000000000000000000000000000000000000";
    let bard = agent("sing").await;
    let keys = format!("auth: {{ api_keys: {{ keys: {{ ann: \"{HASH}\" }} }} }}\n");
    let reloaded = Reloaded::start(&[("bard", &bard)], &keys).await;
    let status = async || reloaded.gateway.client().modern("tools/list", json!({})).await.status;
    assert_eq!(status().await, 401);
    let ports = reloaded.gateway.ports();
    let authority = Authority::new("ours");
    authority.server().write(&ports.directory, "server");
    std::fs::write(ports.directory.join("ca.pem"), authority.pem()).unwrap();
    let tls = "    tls: { certificate: server.crt, key: server.key, client_auth: { mode: required, ca: ca.pem } }\n";
    let text = config(ports, &[("bard", &bard)], "").replacen("\nadmin:", &format!("\n{tls}admin:"), 1);
    reloaded.write_text(&text);
    let (_, report) = reloaded.reload().await;
    let restart: Vec<&str> =
        report["restart"].as_array().unwrap().iter().map(|key| key.as_str().unwrap()).collect();
    assert_eq!(restart, ["listeners[0].tls", "listeners[0].require"], "{report}");
    assert_eq!(status().await, 401);
}

/// No request fails and no call is lost while the configuration is replaced again and again.
#[tokio::test]
async fn load_survives_many_reloads() {
    const RELOADS: u64 = 24;
    let (bard, news) = (agent("sing").await, agent("read").await);
    bard.on_send(|_| Reply::result(v1::message("la")));
    let reloaded = Reloaded::start(&[("bard", &bard)], "").await;
    let is_over = std::sync::atomic::AtomicBool::new(false);
    let load = async {
        let one = async || {
            let mut calls = 0;
            while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                let answer = call(&reloaded, "bard_sing").await;
                assert!(is_la(&answer), "{answer}");
                calls += 1;
            }
            calls
        };
        let calls: (u32, u32, u32, u32) = tokio::join!(one(), one(), one(), one());
        assert!(calls.0 + calls.1 + calls.2 + calls.3 > 40, "{calls:?}");
    };
    let reloads = async {
        for round in 0..RELOADS {
            let agents: &[(&str, &ScriptedAgent)] =
                if round % 2 == 0 { &[("bard", &bard), ("news", &news)] } else { &[("bard", &bard)] };
            // The settings of the called agent change too.
            let limits = format!(
                "limits: {{ caller_calls: {} }}\noutbound: {{ allow: [\"10.0.{round}.0/24\"] }}",
                500 + round
            );
            reloaded.apply(agents, &limits).await;
        }
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
    };
    tokio::join!(load, reloads);
    shows(&reloaded, &format!("mcp_a2a_gateway_config_generation {}", RELOADS + 1)).await;
    shows(&reloaded, "mcp_a2a_gateway_config_generations_held 1").await;
}

/// A session and a call that began before end as if nothing had changed.
#[tokio::test]
async fn session_and_call_survive() {
    let bard = agent("sing").await;
    let reloaded = Reloaded::start(&[("bard", &bard)], "").await;
    let session: LegacySession = reloaded.gateway.client().legacy().await;
    let answer = Signal::new();
    let (held, streamed) = (answer.clone(), answer.clone());
    bard.on_send(move |_| Reply::result(v1::message("la")).after(&held));
    bard.on_stream(move |_| Reply::events([v1::message("la")]).after(&streamed));
    let under_way = session.call_tool("bard_sing", json!({ "text": "go" }));
    let change = async {
        let is_called = |log: &crate::support::Log| {
            ["SendMessage", "SendStreamingMessage"].iter().any(|method| !log.calls(method).is_empty())
        };
        bard.wait_for("the call", is_called).await;
        reloaded.write(&[("bard", &bard)], "limits: { caller_calls: 7 }");
        reloaded.gateway.signal("HUP");
        shows(&reloaded, "mcp_a2a_gateway_config_generation 2").await;
        reloaded.apply(&[("bard", &bard)], "limits: { caller_calls: 8 }").await;
        answer.open();
    };
    let (called, ()) = tokio::join!(under_way, change);
    let result = called.result().await;
    assert_eq!(result["content"][0]["text"], "la", "{result}");
    assert_eq!(session.call("tools/list", json!({})).await.status, 200);
    shows(&reloaded, "mcp_a2a_gateway_config_generations_held 1").await;
}

/// The streams of a session and of a modern client go on, learn of changed lists, and hold no
/// configuration of before. The stream of a caller whose key is revoked ends.
#[tokio::test]
async fn streams_survive_and_learn_of_changes() {
    let (bard, news) = (agent("sing").await, agent("read").await);
    let reloaded = Reloaded::start(&[("bard", &bard)], "").await;
    let session = reloaded.gateway.client().legacy().await;
    let mut stream = session.listen(None).await;
    let wanted = json!({ "notifications": { "toolsListChanged": true } });
    let mut listening = reloaded.gateway.client().modern("subscriptions/listen", wanted).await;
    assert_eq!(listening.next_message().await["method"], "notifications/subscriptions/acknowledged");
    for agents in [&[("bard", &bard), ("news", &news)][..], &[("bard", &bard)]] {
        reloaded.apply(agents, "").await;
        for messages in [&mut stream, &mut listening] {
            let told = in_time("a notification", messages.next_message()).await;
            assert_eq!(told["method"], "notifications/tools/list_changed", "{told}");
        }
        // A session is told of all lists; the new card is one more change.
        while tokio::time::timeout(Duration::from_millis(500), stream.next_message()).await.is_ok() {}
        while tokio::time::timeout(Duration::from_millis(500), listening.next_message()).await.is_ok() {}
    }
    shows(&reloaded, "mcp_a2a_gateway_config_generations_held 1").await;
    let hash = format!("sha256:{}", "0".repeat(64));
    let keys = format!("auth:\n  api_keys:\n    keys:\n      ann: {hash}\n");
    reloaded.apply(&[("bard", &bard)], &keys).await;
    in_time("the end of the stream", stream.until_end()).await;
}

/// Runs `check --diff` on this file; returns the exit code and both outputs.
async fn diff(reloaded: &Reloaded, file: &str, more: &[&str]) -> (Option<i32>, String, String) {
    let path = reloaded.gateway.ports().directory.join(file);
    let admin = reloaded.gateway.admin_url("");
    let arguments = ["check", "--config", path.to_str().unwrap(), "--diff", &admin];
    let output = TestGateway::run_command(&[&arguments[..], more].concat()).await;
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

/// Keys are named without their values, secrets and files too.
#[tokio::test]
async fn diff_names_changed_keys() {
    let bard = agent("sing").await;
    let before = "limits: { body: 1MiB }\ncalls: { budget: 40s }\ntasks: { max: 100 }";
    let reloaded = Reloaded::start(&[("bard", &bard)], before).await;
    let directory = &reloaded.gateway.ports().directory;
    let token = ["--token", ADMIN_TOKEN];
    let (code, out, err) = diff(&reloaded, "gateway.yaml", &token).await;
    assert_eq!(code, Some(0), "{out}{err}");
    assert!(out.contains("0 differences to generation 1"), "{out}");

    let after = "limits: { body: 2MiB }\ntasks: { max: 101 }\nlog: { level: warn }";
    let text = config(reloaded.gateway.ports(), &[("bard", &bard)], after);
    let text = format!("{text}    auth: {{ bearer: '${{file:agent.token}}' }}\n");
    std::fs::write(directory.join("next.yaml"), text).unwrap();
    std::fs::write(directory.join("agent.token"), "a-secret-of-the-agent").unwrap();
    let (code, out, err) = diff(&reloaded, "next.yaml", &token).await;
    assert_eq!(code, Some(3), "{out}{err}");
    let (_, listed) = out.split_once("differences").unwrap();
    let listed: Vec<&str> = listed.lines().skip(1).collect();
    assert_eq!(
        listed,
        [
            "  + agents.bard.auth.bearer",
            "  - calls.budget",
            "  + file agent.token",
            "  ~ limits.body",
            "  + log.level",
            "  ~ tasks.max (needs a restart)"
        ]
    );
    let (code, json, _) = diff(&reloaded, "next.yaml", &[&token[..], &["--json"]].concat()).await;
    let report: Value = serde_json::from_str(&json).unwrap();
    let changes = &report["diff"];
    assert_eq!((code, &report["ok"]), (Some(3), &json!(true)), "{report}");
    assert_eq!(changes["changed"], json!(["limits.body", "tasks.max"]));
    assert_eq!((&changes["removed"], &changes["restart"]), (&json!(["calls.budget"]), &json!(["tasks.max"])));

    // The prediction holds; the key that waits is named from then on, and a secret's change is seen.
    std::fs::copy(directory.join("next.yaml"), directory.join("gateway.yaml")).unwrap();
    let (_, report) = reloaded.reload().await;
    assert_eq!(report["restart"], json!(["tasks.max"]), "{report}");
    std::fs::write(directory.join("agent.token"), "another-secret").unwrap();
    let (code, out, _) = diff(&reloaded, "gateway.yaml", &token).await;
    assert_eq!(code, Some(3), "{out}");
    assert!(out.contains("1 difference to generation 2") && out.contains("  ~ file agent.token\n"), "{out}");
    assert!(out.contains("! tasks.max waits for a restart"), "{out}");
}

/// Only an operator gets digests, which are too short to find a secret by.
#[tokio::test]
async fn digests_need_operator_and_hold_no_value() {
    let bard = agent("sing").await;
    let reloaded = Reloaded::start(&[("bard", &bard)], "seal_key: 0123456789abcdef0123456789abcdef").await;
    let admin = reloaded.gateway.admin().at("/config");
    assert_eq!(admin.get(&[]).await.status, 401);
    let answer = admin.bearer(ADMIN_TOKEN).get(&[]).await.json().await;
    let digests = answer["digests"].as_object().unwrap();
    assert!(digests.contains_key("seal_key") && digests.contains_key("agents.bard.card"), "{answer}");
    assert!(digests.values().all(|digest| digest.as_str().unwrap().len() == 4), "{answer}");
    assert!(!answer.to_string().contains("0123456789abcdef") && !answer.to_string().contains(ADMIN_TOKEN));
    let (code, _, err) = diff(&reloaded, "gateway.yaml", &[]).await;
    assert!(code == Some(1) && err.contains("--token"), "{err}");
    let (code, _, err) = diff(&reloaded, "gateway.yaml", &["--token", "a-wrong-one"]).await;
    assert!(code == Some(1) && err.contains("--token") && !err.contains("a-wrong-one"), "{err}");
    let path = reloaded.gateway.ports().directory.join("gateway.yaml");
    let main = reloaded.gateway.url("");
    let arguments = ["check", "--config", path.to_str().unwrap(), "--diff", &main];
    let output = TestGateway::run_command(&arguments).await;
    let err = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(1) && err.contains("/config: "), "{err}");
}
