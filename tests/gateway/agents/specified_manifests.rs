//! The manifests of the specification `subagent@v0.1` as they stand, but for their hosts: `check`
//! accepts them, and a whole conversation goes through the three task tools.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::kit::scene::{RAW_CONTEXT, RAW_TASK, complaint, task_of};
use crate::support::certs::server_config;
use crate::support::payload::v1;
use crate::support::{Authority, Card, Identity, McpClient, Reply, ScriptedAgent, Signal, TestGateway};

const BINARY: &str = env!("CARGO_BIN_EXE_mcp-a2a-gateway");

const FINANZAS: &str = r#"{"type":"subagent","id":"finanzas-core","name":"Finanzas Core",
 "a2a":{"agentCardUri":"https://finanzas.example.com/.well-known/agent-card.json"},
 "security":{"auth":{"type":"apiKey","in":"header","name":"X-API-Key","value":"${FINANZAS_API_KEY}"},
             "mtls":{"enabled":true,"clientCert":"${CLIENT_CERT_PEM}","clientKey":"${CLIENT_KEY_PEM}"}},
 "mcpBridge":{"tools":[{"name":"subagent_start"},{"name":"subagent_send"},{"name":"subagent_cancel"}]},
 "taskResourceTemplate":"a2a://task/{taskId}",
 "capabilities":{
  "message":{"send":{"endpoint":"https://finanzas.example.com/json-rpc/message/send","headers":{"X-API-Key":"${FINANZAS_API_KEY}"},"mtls":true}},
  "tasks":{"get":{"endpoint":"https://finanzas.example.com/json-rpc/tasks/get","headers":{"X-API-Key":"${FINANZAS_API_KEY}"},"mtls":true},
           "cancel":{"endpoint":"https://finanzas.example.com/json-rpc/tasks/cancel","headers":{"X-API-Key":"${FINANZAS_API_KEY}"},"mtls":true}}}}
"#;
const VENTAS: &str = r#"{"type":"subagent","id":"ventas-core","name":"Ventas Core",
 "a2a":{"agentCardUri":"https://ventas.example.com/.well-known/agent-card.json"},
 "security":{"auth":{"type":"oauth2","token":"${VENTAS_TOKEN}","scopes":["message:send","tasks:read","tasks:cancel"]}},
 "mcpBridge":{"tools":[{"name":"subagent_start"},{"name":"subagent_send"},{"name":"subagent_cancel"}]},
 "taskResourceTemplate":"a2a://task/{taskId}",
 "capabilities":{
  "message":{"send":{"endpoint":"https://ventas.example.com/json-rpc/message/send","headers":{"Authorization":"Bearer ${VENTAS_TOKEN}"}},
             "stream":{"endpoint":"https://ventas.example.com/events/message/stream","sse":true,"headers":{"Authorization":"Bearer ${VENTAS_TOKEN}"}}},
  "tasks":{"get":{"endpoint":"https://ventas.example.com/json-rpc/tasks/get","headers":{"Authorization":"Bearer ${VENTAS_TOKEN}"}},
           "cancel":{"endpoint":"https://ventas.example.com/json-rpc/tasks/cancel","headers":{"Authorization":"Bearer ${VENTAS_TOKEN}"}}}}}
"#;

/// A client without a session that names its revision with each request.
struct Sessionless(McpClient);

impl Sessionless {
    async fn request(&self, method: &str, params: Value) -> Value {
        let request = self.0.request(method, &params);
        self.0.post(&request, &[("MCP-Protocol-Version", "2025-06-18")]).await.result().await
    }

    async fn call(&self, tool: &str, arguments: Value) -> Value {
        self.request("tools/call", json!({ "name": tool, "arguments": arguments })).await
    }

    /// Starts a task, answers its question and cancels it; judges the results member by member.
    async fn converse(&self, uri: &str) {
        let begun = self.call("subagent_start", json!({ "subagentUri": uri, "text": "invoice" })).await;
        let task = task_of(&begun);
        let task_uri = format!("a2a://task/{task}");
        assert_eq!(begun["structuredContent"]["taskUri"], task_uri, "{begun}");
        let blocks = begun["content"].as_array().unwrap();
        let is_link = |block: &&Value| block["type"] == "resource_link" && block["uri"] == *task_uri;
        assert!(blocks.iter().any(|block| is_link(&block)), "{begun}");
        assert!(blocks[0]["text"].as_str().unwrap().contains(&task), "{begun}");
        let sent = self.call("subagent_send", json!({ "taskId": task, "text": "March" })).await;
        assert_eq!((&sent["structuredContent"]["ok"], &sent["isError"]), (&json!(true), &json!(false)));
        let read = self.request("resources/read", json!({ "uri": task_uri })).await;
        assert_eq!(read["contents"][0]["uri"], task_uri, "{read}");
        let stopped = self.call("subagent_cancel", json!({ "taskId": task })).await;
        assert_eq!(stopped["structuredContent"]["canceled"], true, "{stopped}");
    }

    /// The name of an agent's resource in the list, and its content.
    async fn agent(&self, uri: &str) -> (Value, String) {
        let list = self.request("resources/list", json!({})).await;
        let all = list["resources"].as_array().unwrap().clone();
        let name = all.into_iter().find(|one| one["uri"] == uri).unwrap()["name"].take();
        let read = self.request("resources/read", json!({ "uri": uri })).await;
        (name, read["contents"][0]["text"].as_str().unwrap().to_owned())
    }
}

/// Answers as an agent that asks, works on the answer and can be cancelled.
fn ask(agent: &ScriptedAgent) -> Signal {
    let (never, asked) = (Signal::new(), v1::asking(RAW_TASK, RAW_CONTEXT, "Which month?"));
    let (wait, question) = (never.clone(), asked.clone());
    agent.on_send(move |request| {
        let busy = v1::task(RAW_TASK, RAW_CONTEXT, "working");
        match (request.message()["taskId"].is_string(), request.wants_stream()) {
            (false, true) => Reply::events([question.clone()]),
            (false, false) => Reply::result(question.clone()),
            (true, true) => Reply::stream().event(busy).wait(&wait),
            (true, false) => Reply::result(busy),
        }
    });
    agent.on_get(move |_| Reply::result(asked["task"].clone()));
    agent.on_cancel(|_| Reply::result(v1::bare_task(RAW_TASK, RAW_CONTEXT, "canceled")));
    never
}

fn checked(directory: &Path, environment: &[(&str, &str)]) -> Output {
    let file = directory.join("checked.yaml");
    std::fs::write(&file, "listeners: [{ address: 127.0.0.1:8080 }]\nmanifests: agents.d\n").unwrap();
    let mut command = Command::new(BINARY);
    command.args(["check", "--config"]).arg(&file).envs(environment.iter().copied());
    command.output().unwrap()
}

fn paths(agent: &ScriptedAgent, method: &str) -> Vec<String> {
    agent.calls(method).into_iter().map(|sent| sent.path).collect()
}

#[tokio::test]
async fn key_and_certificate_carry_conversation() {
    let authority = Authority::new("ours");
    let tls = server_config(&authority.server(), Some(&authority));
    let agent = ScriptedAgent::start_tls(Card::v1().skill("pay"), tls).await;
    let _never = ask(&agent);
    let identity = authority.client("gateway");
    let (certificate, key) = (identity.pem(), identity.key_pem());
    let environment = [
        ("FINANZAS_API_KEY", "finanzas-key"),
        ("CLIENT_CERT_PEM", certificate.as_str()),
        ("CLIENT_KEY_PEM", &key),
    ];
    let manifest = FINANZAS.replace("https://finanzas.example.com", agent.url().trim_end_matches('/'));
    let gateway = TestGateway::start_with(&environment, |ports| {
        std::fs::create_dir_all(ports.directory.join("agents.d")).unwrap();
        std::fs::write(ports.directory.join("agents.d/finanzas.json"), &manifest).unwrap();
        std::fs::write(ports.directory.join("ca.pem"), authority.pem()).unwrap();
        let own = "{ manifest: agents.d/finanzas.json, tls: { ca: ca.pem } }";
        format!("{}agents:\n  finanzas-core: {own}\n", ports.listeners())
    })
    .await;
    let client = Sessionless(gateway.client());
    client.converse("a2a-agent://finanzas-core").await;
    let (name, text) = client.agent("a2a-agent://finanzas-core").await;
    assert_eq!((name, text.as_str()), (json!("Finanzas Core"), manifest.as_str()));
    for (method, path) in [
        ("SendMessage", "/json-rpc/message/send"),
        ("GetTask", "/json-rpc/tasks/get"),
        ("CancelTask", "/json-rpc/tasks/cancel"),
    ] {
        let paths = paths(&agent, method);
        assert!(!paths.is_empty() && paths.iter().all(|called| called == path), "{method}: {paths:?}");
    }
    assert!(agent.requests().iter().all(|sent| sent.header("x-api-key") == Some("finanzas-key")));
    gateway.wait_for_output("read agent client certificate").await;

    let output = checked(&gateway.ports().directory, &environment);
    let told = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{told}{}", String::from_utf8_lossy(&output.stderr));
    for part in [
        "agents.finanzas-core.manifest: /security/mtls/clientCert: subject CN=gateway",
        "issuer CN=ours",
        "valid from ",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
    assert!(
        told.contains("key EC 256") && !told.contains("BEGIN") && !told.contains("finanzas-key"),
        "{told}"
    );
}

#[tokio::test]
async fn bearer_and_stream_carry_conversation() {
    let agent = ScriptedAgent::start(Card::v1().skill("sell")).await;
    let _never = ask(&agent);
    let environment = [("VENTAS_TOKEN", "ventas-token")];
    let manifest = VENTAS.replace("https://ventas.example.com", agent.url().trim_end_matches('/'));
    let gateway = TestGateway::start_with(&environment, |ports| {
        std::fs::create_dir_all(ports.directory.join("agents.d")).unwrap();
        std::fs::write(ports.directory.join("agents.d/ventas.json"), &manifest).unwrap();
        format!("{}manifests: agents.d\n", ports.listeners())
    })
    .await;
    let client = Sessionless(gateway.client());
    client.converse("a2a-agent://ventas-core").await;
    let (name, text) = client.agent("a2a-agent://ventas-core").await;
    assert_eq!((name, text.as_str()), (json!("Ventas Core"), manifest.as_str()));
    let streamed = paths(&agent, "SendStreamingMessage");
    assert!(
        !streamed.is_empty() && streamed.iter().all(|path| path == "/events/message/stream"),
        "{streamed:?}"
    );
    for (method, path) in [("GetTask", "/json-rpc/tasks/get"), ("CancelTask", "/json-rpc/tasks/cancel")] {
        let paths = paths(&agent, method);
        assert!(!paths.is_empty() && paths.iter().all(|called| called == path), "{method}: {paths:?}");
    }
    let sent = agent.requests();
    assert!(sent.iter().all(|sent| sent.header("authorization") == Some("Bearer ventas-token")));
    let output = checked(&gateway.ports().directory, &environment);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// The output of `command` for the manifest with mTLS and this client certificate.
async fn run_with(command: &str, certificate: &Identity, key: &Identity) -> Output {
    let folder = TempDir::new().unwrap();
    std::fs::create_dir(folder.path().join("agents.d")).unwrap();
    std::fs::write(folder.path().join("agents.d/finanzas.json"), FINANZAS).unwrap();
    let file = folder.path().join("gateway.yaml");
    std::fs::write(&file, "listeners: [{ address: 127.0.0.1:0 }]\nmanifests: agents.d\n").unwrap();
    let mut process = Command::new(BINARY);
    process.args([command, "--config"]).arg(&file).env("FINANZAS_API_KEY", "k");
    process.env("CLIENT_CERT_PEM", certificate.pem()).env("CLIENT_KEY_PEM", key.key_pem());
    tokio::task::spawn_blocking(move || process.output().unwrap()).await.unwrap()
}

#[tokio::test]
async fn unusable_client_certificate_stops_start() {
    let authority = Authority::new("ours");
    let (good, other) = (authority.client("gateway"), authority.client("gateway"));
    let expired = authority.expired_client("gateway");
    for command in ["check", "serve"] {
        for (certificate, key, told) in [
            (&good, &other, "/security/mtls/clientCert: does not belong to the key beside it"),
            (&expired, &expired, "/security/mtls/clientCert: certificate 1 expired"),
        ] {
            let output = run_with(command, certificate, key).await;
            let problems = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(1), "{command}: {problems}");
            assert!(problems.contains(told), "{command} {told}: {problems}");
        }
    }
    let missing = TempDir::new().unwrap();
    std::fs::create_dir(missing.path().join("agents.d")).unwrap();
    std::fs::write(missing.path().join("agents.d/finanzas.json"), FINANZAS).unwrap();
    let output = checked(missing.path(), &[("FINANZAS_API_KEY", "k")]);
    let problems = String::from_utf8(output.stderr).unwrap();
    assert!(problems.contains("CLIENT_CERT_PEM") && problems.contains("CLIENT_KEY_PEM"), "{problems}");
}

#[tokio::test]
async fn bridge_decides_which_tools_accept_agent() {
    let [plain, told] = [(); 2].map(|()| ScriptedAgent::start(Card::v1().skill("sell")));
    let (plain, told) = (plain.await, told.await);
    let _never = [ask(&plain), ask(&told)];
    let manifest = json!({
        "type": "subagent", "id": "told", "name": "Told", "a2a": { "agentCardUri": told.card_url() },
        "mcpBridge": { "tools": [{ "name": "subagent_start" }] },
    });
    let gateway = TestGateway::start(|ports| {
        std::fs::write(ports.directory.join("told.json"), manifest.to_string()).unwrap();
        let card = plain.card_url();
        let agents = format!("  plain: {{ card: '{card}' }}\n  told: {{ manifest: told.json }}\n");
        format!("{}agents:\n{agents}", ports.listeners())
    })
    .await;
    let client = Sessionless(gateway.client());
    let start = async |uri: &str| {
        let begun = client.call("subagent_start", json!({ "subagentUri": uri, "text": "x" })).await;
        task_of(&begun)
    };
    let (open, closed) = (start("a2a-agent://plain").await, start("a2a-agent://told").await);
    for (tool, more) in [("subagent_send", json!({ "text": "March" })), ("subagent_cancel", json!({}))] {
        let with = |task: &str| {
            let mut arguments = more.clone();
            arguments["taskId"] = task.into();
            arguments
        };
        assert_eq!(client.call(tool, with(&open)).await["isError"], false, "{tool}");
        let refused = client.call(tool, with(&closed)).await;
        assert!(complaint(&refused).contains("does not accept"), "{tool}: {refused}");
    }
    assert!(told.calls("CancelTask").is_empty());
    assert_eq!(client.call("subagent_get", json!({ "taskId": closed })).await["isError"], false);
    // Where no agent accepts a tool, it is not listed.
    for (client, has) in
        [(gateway.client(), true), (gateway.client_of("told"), false), (gateway.client_of("plain"), true)]
    {
        let list = Sessionless(client).request("tools/list", json!({})).await;
        let names: Vec<&str> =
            list["tools"].as_array().unwrap().iter().filter_map(|tool| tool["name"].as_str()).collect();
        assert!(names.contains(&"subagent_wait"), "{names:?}");
        for tool in ["subagent_send", "subagent_cancel"] {
            assert_eq!(names.contains(&tool), has, "{names:?}");
        }
    }
}

/// The media types of a skill win over those of its card.
#[tokio::test]
async fn own_modes_of_skill_win() {
    let drawn = json!({
        "id": "draw", "name": "draw", "description": "Draws", "tags": [],
        "inputModes": ["application/json"], "outputModes": ["image/png", "text/plain"],
    });
    let agent = ScriptedAgent::start(Card::v1().skill("sing").skill_with(drawn)).await;
    agent.on_send(|_| Reply::events([v1::message("la")]));
    let gateway = TestGateway::before(&[("bard", &agent)]).await;
    let client = Sessionless(gateway.client());
    for (tool, modes) in
        [("bard_draw", json!(["image/png", "text/plain"])), ("bard_sing", json!(["text/plain"]))]
    {
        client.call(tool, json!({ "text": "a boat" })).await;
        let sent = agent.calls("SendStreamingMessage").pop().unwrap();
        assert_eq!(sent.params()["configuration"]["acceptedOutputModes"], modes, "{tool}");
    }
    let list = client.request("tools/list", json!({})).await;
    let tools = list["tools"].as_array().unwrap();
    let about = |name: &str| {
        let tool = tools.iter().find(|tool| tool["name"] == name).unwrap();
        tool["description"].as_str().unwrap().to_owned()
    };
    assert!(about("bard_draw").ends_with("\nInput: application/json. Output: image/png, text/plain."));
    assert!(!about("bard_sing").contains("Output:"));
}
