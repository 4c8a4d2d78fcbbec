//! Rules: things that a caller may not use do not exist for it.

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::kit::issuer::{Issuer, Key};
use crate::support::payload::v1;
use crate::support::{Card, McpClient, Reply, ScriptedAgent, TestGateway, in_time};

/// Two agents: `bard` with two skills, and `bank`.
struct Town {
    bard: ScriptedAgent,
    bank: ScriptedAgent,
    gateway: TestGateway,
}

pub(crate) fn key_of(name: &str) -> String {
    format!("key-of-{name}-0123456789abcdef0123456789")
}

pub(crate) fn auth(names: &[&str]) -> String {
    let mut text = "auth:\n  api_keys:\n    keys:\n".to_owned();
    for name in names {
        let hex: String =
            Sha256::digest(key_of(name).as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
        text.push_str(&format!("      {name}: sha256:{hex}\n"));
    }
    text
}

impl Town {
    async fn new(settings: &str) -> Self {
        let bard = ScriptedAgent::start(Card::v1().name("Bard").skill("sing").skill("whisper")).await;
        let bank = ScriptedAgent::start(Card::v1().name("Bank").skill("pay")).await;
        for agent in [&bard, &bank] {
            agent.on_stream(|_| Reply::events([v1::message("done")]));
        }
        let gateway = TestGateway::start(|ports| {
            let (bard, bank) = (bard.card_url(), bank.card_url());
            let agents = format!("agents:\n  bard:\n    card: {bard}\n  bank:\n    card: {bank}\n");
            format!("{}{settings}{agents}", ports.listeners())
        })
        .await;
        Self { bard, bank, gateway }
    }

    fn by(&self, name: &str) -> McpClient {
        self.gateway.client().header("X-Api-Key", &key_of(name))
    }
}

async fn tools(client: &McpClient) -> Vec<String> {
    let list = client.modern("tools/list", json!({})).await.result().await;
    let names =
        list["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap().to_owned());
    names.filter(|name| !name.starts_with("subagent_") && name != "find_agent").collect()
}

async fn called(client: &McpClient, tool: &str) -> Value {
    let params = json!({ "name": tool, "arguments": { "text": "x" } });
    client.modern("tools/call", params).await.json().await
}

const RULES: &str = "\
rules:
  - name: nobody whispers
    deny: true
    tools: whisper
  - name: singers
    callers: [\"key:ann\"]
    agents: bard
  - name: tellers
    callers: [\"key:ben\"]
    agents: [ba*]
    tools: [pay, bard_sing]
";

async fn town() -> Town {
    Town::new(&format!("{}{RULES}", auth(&["ann", "ben", "eve"]))).await
}

#[tokio::test]
async fn caller_sees_only_callable_tools() {
    let town = town().await;
    assert_eq!(tools(&town.by("ann")).await, ["bard_sing"]);
    assert_eq!(tools(&town.by("ben")).await, ["bank_pay", "bard_sing"]);
    assert_eq!(town.by("eve").modern("tools/list", json!({})).await.status, 403, "no rule speaks of it");
    assert_eq!(tools(&town.by("ann").at("/mcp/bard")).await, ["sing"]);
}

#[tokio::test]
async fn denied_tool_reads_as_unknown() {
    let town = town().await;
    let ann = town.by("ann");
    assert_eq!(called(&ann, "bard_sing").await["result"]["content"][0]["text"], "done");
    for hidden in ["bank_pay", "bard_whisper"] {
        let refused = called(&ann, hidden).await["error"].to_string();
        let unknown = called(&ann, "no_such_tool").await["error"].to_string();
        assert_eq!(refused.replace(hidden, "no_such_tool"), unknown);
    }
    assert!(town.bank.requests().iter().all(|request| request.method == "GET"), "it heard nothing");
    // The endpoint of an agent that the caller may not see does not exist for it.
    let hidden = ann.at("/mcp/bank").modern("tools/list", json!({})).await;
    let unknown = ann.at("/mcp/nobody").modern("tools/list", json!({})).await;
    assert_eq!((hidden.status, hidden.text().await), (unknown.status, unknown.text().await));
}

#[tokio::test]
async fn denied_agents_are_nowhere_to_be_found() {
    let town = town().await;
    let ann = town.by("ann");
    let text = async |method: &str, params: Value| ann.modern(method, params).await.text().await;
    let registry = text("resources/read", json!({ "uri": "a2a://agents/registry" })).await;
    assert!(
        registry.contains("Bard") && !registry.contains("Bank") && !registry.contains("bank"),
        "{registry}"
    );
    let listed = text("resources/list", json!({})).await;
    assert!(listed.contains("a2a-agent://bard") && !listed.contains("bank"), "{listed}");
    let unknown = json!({ "uri": "a2a-agent://bank" });
    assert_eq!(ann.modern("resources/read", unknown).await.error_code().await, -32602);
    let template = json!({ "type": "ref/resource", "uri": "a2a-agent://{agent}" });
    let complete = json!({ "ref": template, "argument": { "name": "agent", "value": "ba" } });
    let completed = ann.modern("completion/complete", complete).await.result().await;
    assert_eq!(completed["completion"]["values"], json!(["bard"]));
    let start =
        json!({ "name": "subagent_start", "arguments": { "subagentUri": "a2a-agent://bank", "text": "x" } });
    let told = text("tools/call", start).await;
    assert!(told.contains("there is no agent") && !told.contains("a2a-agent://bank"), "{told}");
    assert!(town.bank.calls("SendStreamingMessage").is_empty() && town.bank.calls("SendMessage").is_empty());
    assert!(!town.bard.requests().is_empty());
}

/// A caller that may use some skills of an agent only does not get around that by the tool for any
/// text.
#[tokio::test]
async fn subagent_tools_are_tools_like_others() {
    let town = town().await;
    let start = json!({ "subagentUri": "a2a-agent://bard", "text": "x" });
    let params = json!({ "name": "subagent_start", "arguments": start });
    let refused = town.by("ben").modern("tools/call", params.clone()).await.json().await;
    assert_eq!(refused["error"]["code"], -32602, "{refused}");
    let list = town.by("ben").modern("tools/list", json!({})).await.text().await;
    assert!(!list.contains("subagent_"), "{list}");
    // The tool is there for other agents perhaps; this one has a skill that is denied.
    let refused = town.by("ann").modern("tools/call", params).await.json().await;
    let told = refused["result"]["content"][0]["text"].as_str().unwrap_or_default();
    assert!(told.contains("without naming a skill"), "{refused}");
    assert!(town.bard.calls("SendStreamingMessage").is_empty());
}

/// Which agent a task is of is known only when its handle is opened: the rules are asked again
/// then.
#[tokio::test]
async fn task_is_judged_on_every_path() {
    let rules = "\
rules:
  - { deny: true, agents: bank, methods: [tasks/cancel, resources/read] }
  - { deny: true, agents: bank, tools: [subagent_cancel] }
  - { callers: \"key:ann\" }
";
    let town = Town::new(&format!("{}{rules}", auth(&["ann"]))).await;
    let ann = town.by("ann").with_tasks();
    for (agent, tool, allowed) in [(&town.bard, "bard_sing", true), (&town.bank, "bank_pay", false)] {
        agent.on_send(|_| Reply::stream().event(v1::task("raw-t", "raw-c", "working")).stall());
        agent.on_get(|_| Reply::result(v1::bare_task("raw-t", "raw-c", "working")));
        agent.on_cancel(|_| Reply::result(v1::bare_task("raw-t", "raw-c", "canceled")));
        let params = json!({ "name": tool, "arguments": { "text": "x" } });
        let made = in_time("a task", ann.modern("tools/call", params)).await.result().await;
        let task = made["taskId"].as_str().unwrap_or_else(|| panic!("{made}")).to_owned();
        assert!(ann.task("tasks/get", &task).await.json().await["result"].is_object(), "{tool}");
        let read = json!({ "uri": format!("a2a://task/{task}") });
        assert_eq!(
            ann.modern("resources/read", read).await.json().await["result"].is_object(),
            allowed,
            "{tool}"
        );
        let cancel = json!({ "name": "subagent_cancel", "arguments": { "taskId": task } });
        let canceled = ann.modern("tools/call", cancel).await.result().await;
        assert_eq!(canceled["isError"] != true, allowed, "{canceled}");
        assert_eq!(
            ann.task("tasks/cancel", &task).await.json().await["result"].is_object(),
            allowed,
            "{tool}"
        );
        assert_eq!(agent.calls("CancelTask").is_empty(), !allowed, "{tool}");
    }
}

#[tokio::test]
async fn subscription_needs_readable_uris() {
    let town = town().await;
    let filter = json!({ "resourceSubscriptions": ["a2a-agent://bard", "a2a-agent://bank"] });
    let mut stream = town.by("ann").modern("subscriptions/listen", json!({ "notifications": filter })).await;
    let promised = in_time("the promise", stream.next_message()).await.to_string();
    assert!(promised.contains("a2a-agent://bard") && !promised.contains("a2a-agent://bank"), "{promised}");
}

#[tokio::test]
async fn decision_is_one_line_with_rule() {
    let town = town().await;
    called(&town.by("ann"), "bard_sing").await;
    called(&town.by("ann"), "bard_whisper").await;
    called(&town.by("ann"), "bank_pay").await;
    town.gateway.client().modern("tools/list", json!({})).await;
    town.gateway.wait_for_output("decision=\"not_admitted\"").await;
    let output = town.gateway.output();
    let line = |tool: &str| {
        let wanted = format!("tool={tool}");
        output.lines().find(|line| line.contains("audit") && line.contains(&wanted)).unwrap_or("").to_owned()
    };
    for (tool, decision, rule) in [
        ("bard_sing", "allowed", " rule=singers"),
        ("bard_whisper", "refused", " rule=nobody whispers"),
        ("bank_pay", "refused", ""),
    ] {
        let line = line(tool);
        assert!(
            line.contains(&format!("decision=\"{decision}\" caller=key:ann method=\"tools/call\"")),
            "{line}"
        );
        assert!(line.contains(rule) && (rule.is_empty() != line.contains("rule=")), "{line}");
    }
    assert!(!output.contains(&key_of("ann")));
}

#[tokio::test]
async fn logged_arguments_are_redacted() {
    let rules = "rules: [{ callers: \"key:ann\" }]\n";
    let call = json!({ "name": "bard_sing", "arguments": { "text": "CANARY_said", "data": [{ "pin": "CANARY_pin" }] } });
    for (log, told) in [("", false), ("log: { audit_arguments: true, redact: [/data/0/pin] }\n", true)] {
        let town = Town::new(&format!("{}{rules}{log}", auth(&["ann"]))).await;
        town.by("ann").modern("tools/call", call.clone()).await.json().await;
        town.gateway.wait_for_output("tool=bard_sing").await;
        let output = town.gateway.output();
        let line = output.lines().find(|line| line.contains("audit") && line.contains("tool=bard_sing"));
        let line = line.unwrap_or_else(|| panic!("{output}"));
        assert_eq!(line.contains("CANARY_said"), told, "{line}");
        assert_eq!(line.contains("\"pin\":\"***\""), told, "{line}");
        assert!(!output.contains("CANARY_pin"), "{output}");
    }
}

/// A missing scope is reported in HTTP: only so do clients get another token (step-up).
#[tokio::test]
async fn token_lacking_scope_is_told_so() {
    let key = Key::es256("k1");
    let issuer = Issuer::new(&[&key]).await;
    let rules = "rules:\n  - { agents: bank, scopes: [money], groups: [tellers] }\n  - { agents: bard }\n";
    let tokens = format!("auth:\n  tokens:\n    - issuer: {}\n      audience: me\n", issuer.name());
    let town = Town::new(&format!("public_url: https://gw.example\n{tokens}{rules}")).await;
    let by = |scope: &str, groups: Value| {
        let claims = issuer.claims("me", |claims| {
            claims["scope"] = json!(scope);
            claims["groups"] = groups;
        });
        town.gateway.client().bearer(&key.sign(&claims))
    };
    let pay = json!({ "name": "bank_pay", "arguments": { "text": "x" } });
    let poor = by("other", json!(["tellers"]));
    assert_eq!(tools(&poor).await, ["bard_sing", "bard_whisper"]);
    let answer = poor.modern("tools/call", pay.clone()).await;
    let challenge = answer.header("www-authenticate").unwrap_or_default();
    assert!(challenge.contains("error=\"insufficient_scope\"") && challenge.contains("scope=\"money\""));
    assert!(
        challenge.contains("resource_metadata=\"https://gw.example/.well-known/oauth-protected-resource")
    );
    assert_eq!(answer.status, 403);
    let rich = by("money", json!(["tellers"]));
    assert_eq!(tools(&rich).await, ["bank_pay", "bard_sing", "bard_whisper"]);
    assert_eq!(rich.modern("tools/call", pay.clone()).await.status, 200);
    // No scope helps who is in no group: then the tool is not there.
    assert_eq!(by("money", json!([])).modern("tools/call", pay).await.error_code().await, -32602);
}

/// A batch of which nothing is served is refused as one request is. Of any other each answer speaks
/// for itself.
#[tokio::test]
async fn batch_lacking_scopes_fails_in_http() {
    let key = Key::es256("k1");
    let issuer = Issuer::new(&[&key]).await;
    let rules = "rules:\n  - { agents: bank, scopes: [money] }\n  - { agents: bard }\n";
    let tokens = format!("auth:\n  tokens:\n    - issuer: {}\n      audience: me\n", issuer.name());
    let town = Town::new(&format!("public_url: https://gw.example\n{tokens}{rules}")).await;
    let client = town.gateway.client().bearer(&key.sign(&issuer.claims("me", |_| {})));
    let asked = async |tools: &[&str]| {
        let call = |tool: &&str| {
            client.request("tools/call", &json!({ "name": tool, "arguments": { "text": "x" } }))
        };
        let batch = Value::from_iter(tools.iter().map(call));
        let answer = client.post(&batch, &[("MCP-Protocol-Version", "2025-03-26")]).await;
        let challenge = answer.header("www-authenticate").unwrap_or_default().to_owned();
        (answer.status, challenge, answer.json().await)
    };
    let (status, challenge, answers) = asked(&["bank_pay", "bank_pay"]).await;
    assert_eq!((status, answers.as_array().map(Vec::len)), (403, Some(2)), "{answers}");
    assert!(challenge.contains("error=\"insufficient_scope\"") && challenge.contains("scope=\"money\""));
    assert!(answers[1]["error"]["message"].as_str().unwrap().contains("lacks a scope"), "{answers}");
    let (status, challenge, answers) = asked(&["bank_pay", "bard_sing"]).await;
    assert_eq!((status, challenge.as_str()), (200, ""));
    assert!(answers[0]["error"].is_object() && answers[1]["result"].is_object(), "{answers}");
}
