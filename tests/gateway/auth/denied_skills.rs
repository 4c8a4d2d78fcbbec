//! A skill that a caller may not use is not reached by a tool that names no skill, and not told of.

use serde_json::{Value, json};

use crate::auth::rules::{auth, key_of};
use crate::kit::scene::{complaint, words};
use crate::support::payload::v1;
use crate::support::{Card, McpClient, Reply, Request, ScriptedAgent, TestGateway};

/// Opens the same handles at every gateway.
const KEY: &str =
    "seal_key: 0123456789abcdef0123456789abcdef\ncalls: { budget: 1s, max_rounds: 0, stream_after: 1s }\n";
/// Everything, for one caller.
const ALL: &str = "rules: [{ callers: \"key:ann\" }]\n";
/// One skill, and the tools for its tasks.
const ONE: &str = "\
rules:
  - { deny: true, agents: bard, tools: whisper }
  - { callers: \"key:ann\", tools: [sing, \"subagent_*\"] }
  - { callers: \"key:ann\", methods: [tasks/*] }
";
/// The same without a rule that denies.
const ONE_ALLOWED: &str = "rules: [{ callers: \"key:ann\", tools: [sing, \"subagent_*\"] }]\n";

/// An agent that takes what it is told, and asks; each first message begins a task named by its
/// skill.
async fn bard() -> ScriptedAgent {
    let agent = ScriptedAgent::start(Card::v1().name("Bard").skill("sing").skill("whisper")).await;
    let asks = |task: &str| v1::asking(task, "raw-c", "Which one?");
    agent.on_send(move |request| {
        let message = request.message();
        let skill = message["metadata"]["skillId"].as_str().unwrap_or("none").to_owned();
        match message["taskId"].as_str() {
            None => Reply::events([asks(&format!("raw-{skill}"))]),
            Some(task) => Reply::events([v1::status_update(task, "raw-c", "completed", Some("done"))]),
        }
    });
    agent.on_get(move |request| {
        let task = request.params()["id"].as_str().unwrap().to_owned();
        Reply::result(asks(&task)["task"].clone())
    });
    agent
}

async fn gateway(agent: &ScriptedAgent, rules: &str, own: &str) -> TestGateway {
    TestGateway::start(|ports| {
        let listeners = ports.listeners().replacen("admin:", "    serve: [mcp, a2a]\nadmin:", 1);
        let card = agent.card_url();
        format!("{listeners}{KEY}{}{rules}agents:\n  bard:\n    card: {card}\n{own}", auth(&["ann"]))
    })
    .await
}

fn ann(gateway: &TestGateway) -> McpClient {
    gateway.client().header("X-Api-Key", &key_of("ann"))
}

async fn told(client: &McpClient, tool: &str, arguments: Value) -> Value {
    client.modern("tools/call", json!({ "name": tool, "arguments": arguments })).await.json().await
}

/// The handle of a task that a call begins.
async fn begun(client: &McpClient, tool: &str, arguments: Value) -> String {
    let answer = told(client, tool, arguments).await;
    let task = answer["result"]["structuredContent"]["taskId"].as_str();
    task.unwrap_or_else(|| panic!("no task: {answer}")).to_owned()
}

async fn listed(client: &McpClient) -> Vec<String> {
    let list = client.modern("tools/list", json!({})).await.result().await;
    list["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

/// The messages that the agent got, from the first one on.
fn said(agent: &ScriptedAgent) -> Vec<String> {
    let is_said = |request: &Request| request.wants_stream() || request.rpc_method() == "SendMessage";
    agent.requests().iter().filter(|request| is_said(request)).map(Request::text).collect()
}

const START: &str = "subagent_start";

fn start() -> Value {
    json!({ "subagentUri": "a2a-agent://bard", "text": "whisper" })
}

#[tokio::test]
async fn start_is_message_to_whole_agent() {
    for (rules, is_allowed) in [
        (ALL, true),
        ("rules: [{ callers: \"key:ann\", tools: \"*\" }]\n", true),
        (ONE, false),
        (ONE_ALLOWED, false),
        ("rules: [{ deny: true, tools: whisper }, { callers: \"key:ann\" }]\n", false),
        ("rules: [{ callers: \"key:ann\", tools: [sing, whisper, subagent_start] }]\n", false),
        ("rules: [{ callers: \"key:ann\", agents: \"no*\" }]\n", false),
    ] {
        let agent = bard().await;
        let gateway = gateway(&agent, rules, "").await;
        let ann = ann(&gateway);
        let answer = told(&ann, START, start()).await;
        assert_eq!(answer["result"]["isError"] == false, is_allowed, "{rules}: {answer}");
        assert_eq!(said(&agent).len(), usize::from(is_allowed), "{rules}");
        assert_eq!(listed(&ann).await.contains(&START.to_owned()), is_allowed, "{rules}");
        assert!(is_allowed || !answer.to_string().contains("a2a-agent://bard\""), "{answer}");
    }
}

/// The gateway that gave the handles and the one that gets them differ in their rules, and in
/// nothing else.
#[tokio::test]
async fn send_is_judged_as_tool_of_its_task() {
    let agent = bard().await;
    let first = gateway(&agent, ALL, "").await;
    let before = ann(&first);
    let text = || json!({ "text": "x" });
    let sing = begun(&before, "bard_sing", text()).await;
    let whisper = begun(&before, "bard_whisper", text()).await;
    let none = begun(&before, START, start()).await;
    let count = said(&agent).len();
    let second = gateway(&agent, ONE, "").await;
    let after = ann(&second);
    let mut expected = count;
    for (task, is_allowed) in [(&whisper, false), (&none, false), (&sing, true)] {
        let answer = told(&after, "subagent_send", json!({ "taskId": task, "text": "y" })).await;
        assert_eq!(answer["result"]["isError"] == false, is_allowed, "{answer}");
        if !is_allowed {
            assert!(complaint(&answer["result"]).contains("Unknown taskId"), "{answer}");
        }
        expected += usize::from(is_allowed);
        assert_eq!(said(&agent).len(), expected);
    }
    // A caller that may use the whole agent may continue each of them.
    for task in [&none, &whisper] {
        let answer = told(&before, "subagent_send", json!({ "taskId": task, "text": "y" })).await;
        assert_eq!(answer["result"]["isError"], false, "{answer}");
    }
}

#[tokio::test]
async fn other_skill_continues_no_task() {
    let agent = bard().await;
    let first = gateway(&agent, ALL, "").await;
    let before = ann(&first);
    let sing = begun(&before, "bard_sing", json!({ "text": "x" })).await;
    let whisper = begun(&before, "bard_whisper", json!({ "text": "x" })).await;
    let second = gateway(&agent, ONE, "").await;
    let after = ann(&second);
    let count = said(&agent).len();
    for (client, tool) in [(after.clone(), "bard_sing"), (after.at("/mcp/bard"), "sing")] {
        let refused = told(&client, tool, json!({ "taskId": whisper, "text": "on" })).await;
        assert!(complaint(&refused["result"]).contains("Unknown taskId"), "{refused}");
    }
    assert_eq!(said(&agent).len(), count);
    let done = told(&after, "bard_sing", json!({ "taskId": sing, "text": "on" })).await;
    assert_eq!(words(&done["result"]), "done", "{done}");
    // Where the other skill is allowed too, its task goes on as before.
    let done = told(&before, "bard_sing", json!({ "taskId": whisper, "text": "on" })).await;
    assert_eq!(words(&done["result"]), "done", "{done}");
}

/// An answer to a question is said in the task as well.
#[tokio::test]
async fn answer_is_judged_as_tool_of_its_task() {
    let agent = bard().await;
    let first = gateway(&agent, ALL, "").await;
    let sing = begun(&ann(&first), "bard_sing", json!({ "text": "x" })).await;
    let whisper = begun(&ann(&first), "bard_whisper", json!({ "text": "x" })).await;
    let second = gateway(&agent, ONE, "").await;
    let client = ann(&second).capabilities(json!({
        "extensions": { "io.modelcontextprotocol/tasks": {} }, "elicitation": { "form": {} },
    }));
    let count = said(&agent).len();
    for (task, is_allowed) in [(&whisper, false), (&sing, true)] {
        let held = client.task("tasks/get", task).await.result().await;
        let key = held["inputRequests"].as_object().and_then(|all| all.keys().next());
        let key = key.unwrap_or_else(|| panic!("no question: {held}"));
        let given = json!({ key: { "action": "accept", "content": { "reply": "y" } } });
        let params = json!({ "taskId": task, "inputResponses": given });
        let answer = client.modern("tasks/update", params).await.json().await;
        assert_eq!(answer["result"].is_object(), is_allowed, "{answer}");
        if is_allowed {
            agent.wait_for("the answer", |log| log.calls("SendStreamingMessage").len() > count).await;
        } else {
            assert_eq!((&answer["error"]["code"], said(&agent).len()), (&json!(-32602), count));
        }
    }
}

/// The one tool of an agent names no skill either.
#[tokio::test]
async fn only_tool_is_denied_with_its_skill() {
    for (rules, is_allowed) in [
        (ALL, true),
        ("rules: [{ callers: \"key:ann\", tools: bard }]\n", true),
        ("rules: [{ deny: true, tools: shout }, { callers: \"key:ann\" }]\n", true),
        ("rules: [{ deny: true, tools: whisper }, { callers: \"key:ann\" }]\n", false),
        ("rules: [{ callers: \"key:ann\", tools: sing }]\n", false),
    ] {
        let agent = bard().await;
        let gateway = gateway(&agent, rules, "    tools: per_agent\n").await;
        let ann = ann(&gateway);
        let answer = told(&ann, "bard", json!({ "text": "whisper" })).await;
        assert_eq!(answer["result"].is_object(), is_allowed, "{rules}: {answer}");
        assert_eq!(said(&agent).len(), usize::from(is_allowed), "{rules}");
        assert_eq!(listed(&ann).await.contains(&"bard".to_owned()), is_allowed, "{rules}");
        let found = told(&ann, "find_agent", json!({ "query": "" })).await;
        assert_eq!(
            found.to_string().contains("Tools: bard"),
            is_allowed && !rules.contains("tools: bard"),
            "{rules}: {found}"
        );
    }
}

#[tokio::test]
async fn texts_name_only_allowed_tools() {
    const TOOLS: [&str; 5] = [START, "subagent_send", "subagent_wait", "subagent_get", "subagent_cancel"];
    for (rules, named) in [
        (ALL, &TOOLS[..]),
        (ONE, &TOOLS[1..]),
        ("rules: [{ callers: \"key:ann\", tools: [sing, subagent_wait] }]\n", &TOOLS[2..3]),
        ("rules: [{ callers: \"key:ann\", tools: [sing, subagent_send] }]\n", &TOOLS[1..2]),
        ("rules: [{ callers: \"key:ann\", tools: sing }]\n", &[]),
    ] {
        let agent = bard().await;
        let gateway = gateway(&agent, rules, "").await;
        let ann = ann(&gateway);
        let only_named = |text: &str| {
            for tool in TOOLS.into_iter().filter(|tool| !named.contains(tool)) {
                assert!(!text.contains(tool), "{rules}: {tool} in {text}");
            }
        };
        let is_named = |tool: &str| named.contains(&tool);
        let found = ann.modern("server/discover", json!({})).await.result().await;
        let instructions = found["instructions"].as_str().unwrap_or_default();
        only_named(instructions);
        for tool in &TOOLS[..3] {
            assert_eq!(instructions.contains(tool), is_named(tool), "{rules}: {instructions}");
        }
        only_named(&ann.modern("tools/list", json!({})).await.text().await);
        let asks = told(&ann, "bard_sing", json!({ "text": "x" })).await;
        only_named(&asks.to_string());
        assert_eq!(words(&asks["result"]).contains("subagent_send"), is_named("subagent_send"), "{asks}");
        let task = asks["result"]["structuredContent"]["taskId"].as_str().unwrap();
        for tool in TOOLS.into_iter().filter(|tool| is_named(tool) && *tool != START) {
            let arguments = match tool {
                "subagent_send" => json!({ "taskId": task, "text": "x" }),
                _ => json!({ "taskId": task }),
            };
            // Once while it asks, and once when it is over.
            for _ in 0..2 {
                only_named(&told(&ann, tool, arguments.clone()).await.to_string());
            }
        }
    }
}

/// The command answers as the gateway does.
#[tokio::test]
async fn check_knows_messages_to_whole_agent() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("gateway.yaml");
    let card = "http://127.0.0.1:9/.well-known/agent-card.json";
    let listeners = "listeners: [{ address: 127.0.0.1:8080 }]\n";
    let config = format!("{listeners}{}{ONE}agents: {{ bard: {{ card: '{card}' }} }}\n", auth(&["ann"]));
    std::fs::write(&file, config).unwrap();
    let check = ["check", "--config", file.to_str().unwrap(), "--as", "key:ann", "--agent", "bard", "--may"];
    for (asked, code) in [
        (&["tools/call", "--tool", "sing"][..], 0),
        (&["tools/call", "--tool", "whisper"], 1),
        (&["tools/call", "--tool", "subagent_wait"], 0),
        (&["tools/call", "--tool", START], 1),
        (&["SendMessage"], 1),
        (&["SendStreamingMessage"], 1),
        (&["SendMessage", "--tool", "sing"], 0),
        (&["tasks/get"], 0),
    ] {
        let arguments: Vec<&str> = check.iter().chain(asked).copied().collect();
        let output = TestGateway::run_command(&arguments).await;
        let told = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(output.status.code(), Some(code), "{asked:?}: {told}");
    }
}

/// Every place that tells of an agent, to a caller that has some of its skills.
#[tokio::test]
async fn denied_skills_are_unmentioned() {
    let card = Card::v1().name("Bard").skill("sing").skill("whisper").skill("plot");
    let agent = ScriptedAgent::start(card).await;
    let hidden = "    skills: { plot: { hidden: true } }\n";
    let tell_all = "rules: [{ callers: \"key:ann\" }]\n";
    for (rules, told, untold) in
        [(ONE, &["sing"][..], &["whisper", "plot"][..]), (tell_all, &["sing", "whisper"], &["plot"])]
    {
        let rules = rules.replace("methods: [tasks/*]", "methods: [tasks/*, resources/*, completion/*]");
        let gateway = gateway(&agent, &rules, hidden).await;
        let ann = ann(&gateway);
        let read = async |uri: &str| {
            let contents = ann.modern("resources/read", json!({ "uri": uri })).await.result().await;
            contents["contents"][0]["text"].as_str().unwrap().to_owned()
        };
        let complete = json!({
            "ref": { "type": "ref/resource", "uri": "a2a-agent://{agent}" }, "argument": { "name": "agent", "value": "" },
        });
        let card = "/a2a/bard/.well-known/agent-card.json";
        let texts = [
            ("agent", true, read("a2a-agent://bard").await),
            ("registry", true, read("a2a://agents/registry").await),
            ("tools", true, ann.modern("tools/list", json!({})).await.text().await),
            ("resources", false, ann.modern("resources/list", json!({})).await.text().await),
            ("completions", false, ann.modern("completion/complete", complete).await.text().await),
            ("found", !rules.contains("deny"), told_text(&ann, "find_agent", json!({ "query": "" })).await),
            ("card", true, ann.at(card).get(&[]).await.text().await),
            ("list", true, ann.at("/a2a").get(&[]).await.text().await),
            ("catalog", false, ann.at("/.well-known/api-catalog").get(&[]).await.text().await),
        ];
        for (place, has_skills, text) in &texts {
            for skill in untold {
                assert!(!text.contains(skill), "{place}: {skill} in {text}");
            }
            for skill in told.iter().filter(|_| *has_skills) {
                assert!(text.contains(skill), "{place}: no {skill} in {text}");
            }
        }
    }
}

async fn told_text(client: &McpClient, tool: &str, arguments: Value) -> String {
    told(client, tool, arguments).await.to_string()
}

#[tokio::test]
async fn manifest_omits_denied_skills() {
    let agent = ScriptedAgent::start(Card::v1().name("Bard").skill("sing").skill("whisper")).await;
    let manifest = json!({
        "type": "subagent", "id": "bard", "name": "Bard",
        "a2a": {
            "agentCardUri": agent.card_url(),
            "skills": { "sing": "la_la", "whisper": "psst" },
        },
        "mcpBridge": { "tools": [{ "name": "subagent_start" }, { "name": "psst" }, { "name": "la_la" }] },
    });
    let read = async |rules: &str| {
        let gateway = TestGateway::start(|ports| {
            std::fs::write(ports.directory.join("bard.json"), manifest.to_string()).unwrap();
            let agents = "agents:\n  bard:\n    manifest: bard.json\n";
            format!("{}{KEY}{}{rules}{agents}", ports.listeners(), auth(&["ann"]))
        })
        .await;
        let params = json!({ "uri": "a2a-agent://bard" });
        let contents = ann(&gateway).modern("resources/read", params).await.result().await;
        contents["contents"][0]["text"].as_str().unwrap().to_owned()
    };
    assert_eq!(read(ALL).await, manifest.to_string(), "byte for byte");
    let denied = "rules: [{ deny: true, tools: whisper }, { callers: \"key:ann\" }]\n";
    let mut expected = manifest.clone();
    expected["a2a"]["skills"].as_object_mut().unwrap().remove("whisper");
    expected["mcpBridge"]["tools"].as_array_mut().unwrap().remove(1);
    assert_eq!(serde_json::from_str::<Value>(&read(denied).await).unwrap(), expected);
}
