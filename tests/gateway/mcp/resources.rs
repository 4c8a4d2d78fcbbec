//! Families of resources: list, templates, read, subscribe, completion, both spellings of a URI,
//! and the refusals. See also `tasks_seen` (the content of tasks).

use mcp_a2a_gateway::tasks::Timestamp;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::auth::callers::{EVE, NEW, keys};
use crate::kit::quiz::KEY;
use crate::kit::scene::{RAW_CONTEXT, RAW_TASK, TOOL, task_of};
use crate::support::payload::v1;
use crate::support::{Answer, Card, McpClient, Reply, ScriptedAgent, Signal, TestGateway};
use crate::tasks::tasks_seen::{begin, done, json_of, works};

const PHASES: [&str; 5] = ["specification", "pseudocode", "architecture", "refinement", "completion"];
const UPDATED: &str = "notifications/resources/updated";

/// An agent that completes a task for each message, in the phase that the message names, and a
/// gateway of two callers that keeps its tasks.
struct Workshop {
    agent: ScriptedAgent,
    folder: TempDir,
}

impl Workshop {
    async fn new() -> Self {
        let agent = ScriptedAgent::start(Card::v1().skill("sing")).await;
        agent.on_send(|request| {
            let body = String::from_utf8_lossy(&request.body).into_owned();
            let phase = PHASES.iter().find(|phase| body.contains(**phase));
            let id = format!("raw-task-{}", phase.unwrap_or(&"other"));
            let mut task = v1::bare_completed(&id, RAW_CONTEXT, &format!("made in {phase:?}"));
            if let Some(phase) = phase {
                task["metadata"] = json!({ "sparcPhase": phase, "agentType": "coder" });
            }
            Reply::stream().event(json!({ "task": task }))
        });
        let folder = TempDir::new().unwrap();
        let template = json!({ "template": { "goals": ["say what is wanted"] }, "guidelines": "be brief" });
        std::fs::write(folder.path().join("specification.json"), template.to_string()).unwrap();
        Self { agent, folder }
    }

    async fn gateway(&self, resources: &str, rules: &str) -> TestGateway {
        let folder = self.folder.path().display();
        let card = self.agent.card_url();
        let sparc = format!(
            "resources:\n{resources}  agent_types: {{ bard: coder }}\n  sparc:\n    policy: {{ redact: [/metadata/startTime] }}\n    \
             templates: {{ specification: {folder}/specification.json }}\n"
        );
        let settings = format!(
            "{}{KEY}\n{sparc}cards: {{ min_refresh: 1s, max_refresh: 1s, retry: 100ms }}\n\
             tasks: {{ data_dir: {folder}/data }}\n{rules}",
            keys("")
        );
        TestGateway::start(|ports| {
            format!("{}{settings}agents:\n  bard:\n    card: {card}\n", ports.listeners())
        })
        .await
    }
}

fn by(gateway: &TestGateway, key: &str) -> McpClient {
    gateway.client().header("X-Api-Key", key)
}

async fn call(client: &McpClient, arguments: Value) -> Value {
    client.modern("tools/call", json!({ "name": TOOL, "arguments": arguments })).await.result().await
}

/// The handle of the conversation, which the text of a result names.
fn context_of(result: &Value) -> String {
    let texts = result["content"].as_array().unwrap().iter().filter_map(|block| block["text"].as_str());
    let all = texts.collect::<Vec<_>>().join("\n");
    let (_, rest) = all.split_once("pass contextId \"").unwrap_or_else(|| panic!("no context in {result}"));
    rest.split('"').next().unwrap().to_owned()
}

/// The one content of a resource, with its `_meta`.
async fn content(client: &McpClient, uri: &str) -> Value {
    let result = client.modern("resources/read", json!({ "uri": uri })).await.result().await;
    assert!(!result.to_string().contains("raw-"), "{result}");
    result["contents"][0].clone()
}

async fn shape(client: &McpClient, uri: &str) -> Value {
    let content = content(client, uri).await;
    serde_json::from_str(content["text"].as_str().unwrap()).unwrap()
}

/// The message of the error with which a read is refused.
async fn refusal(client: &McpClient, uri: &str) -> String {
    let answer = client.modern("resources/read", json!({ "uri": uri })).await.json().await;
    answer["error"]["message"].as_str().unwrap_or_else(|| panic!("{uri} is readable: {answer}")).to_owned()
}

async fn listen(client: &McpClient, uris: &[&str]) -> Answer {
    let wanted = json!({ "resourceSubscriptions": uris });
    let mut stream = client.modern("subscriptions/listen", json!({ "notifications": wanted })).await;
    assert_eq!(stream.next_message().await["params"]["notifications"], wanted);
    stream
}

async fn updated(stream: &mut Answer) -> String {
    loop {
        let message = stream.next_message().await;
        if message["method"] == UPDATED {
            return message["params"]["uri"].as_str().unwrap().to_owned();
        }
    }
}

#[tokio::test]
async fn workflow_is_updated_once_a_phase() {
    let shop = Workshop::new().await;
    let gateway = shop.gateway("", "").await;
    let client = by(&gateway, NEW);
    let begun = call(&client, json!({ "text": "hello" })).await;
    let context = context_of(&begun);
    let uri = format!("sparc://workflow/{context}");
    assert!(refusal(&client, &uri).await.contains("no such resource"), "no phase has begun");
    let mut stream = listen(&client, &[&uri, "a2a://agents/registry"]).await;
    for (at, phase) in PHASES.iter().enumerate() {
        call(&client, json!({ "text": phase, "contextId": context })).await;
        assert_eq!(updated(&mut stream).await, uri, "{phase}");
        let workflow = shape(&client, &uri).await;
        assert_eq!((&workflow["currentPhase"], &workflow["contextId"]), (&json!(phase), &json!(context)));
        assert_eq!(workflow["phases"][phase]["status"], "completed");
        let begun = PHASES.iter().filter(|name| workflow["phases"][name] != json!({}));
        assert_eq!(begun.count(), at + 1, "{workflow}");
    }
    let before = content(&client, &uri).await;
    let workflow: Value = serde_json::from_str(before["text"].as_str().unwrap()).unwrap();
    assert_eq!(workflow["progress"], 1.0);
    assert_eq!(
        workflow["metadata"],
        json!({ "startTime": "***", "agentType": "coder", "batchtoolsEnabled": false, "agent": "bard" })
    );
    let artifacts = workflow["artifacts"].as_array().unwrap();
    assert_eq!(artifacts.len(), PHASES.len());
    for (artifact, phase) in artifacts.iter().zip(PHASES) {
        assert_eq!(artifact["phase"], phase);
        let made = content(&client, artifact["uri"].as_str().unwrap()).await;
        assert_eq!(made["text"], format!("made in Some({phase:?})"));
    }
    let stranger = by(&gateway, EVE);
    assert!(refusal(&stranger, &uri).await.contains("no such resource"), "of another caller");

    drop(gateway);
    let gateway = shop.gateway("", "").await;
    let after = content(&by(&gateway, NEW), &uri).await;
    assert_eq!(after, before, "the same picture after a restart");
}

/// One task goes through two phases; the artifact of the first is not one of the second.
#[tokio::test]
async fn artifact_has_the_phase_it_was_made_in() {
    let shop = Workshop::new().await;
    shop.agent.on_send(|_| {
        let phase = |name: &str| {
            let mut update = v1::status_update(RAW_TASK, RAW_CONTEXT, "working", Some(name));
            update["statusUpdate"]["metadata"] = json!({ "sparcPhase": name });
            update
        };
        let made = |name: &str| {
            let mut update = v1::artifact_update(RAW_TASK, RAW_CONTEXT, name, false, true);
            update["artifactUpdate"]["artifact"]["artifactId"] = json!(format!("of-{name}"));
            update
        };
        let [first, second] = [PHASES[0], PHASES[1]];
        let begun = Reply::stream().event(v1::task(RAW_TASK, RAW_CONTEXT, "working"));
        let moved = begun.event(phase(first)).event(made(first)).event(phase(second)).event(made(second));
        moved.event(made(&format!("more-{second}"))).event(done())
    });
    let gateway = shop.gateway("", "").await;
    let ended = call(&by(&gateway, NEW), json!({ "text": "x" })).await;
    let uri = format!("sparc://workflow/{}", context_of(&ended));
    let before = shape(&by(&gateway, NEW), &uri).await;
    let artifacts = before["artifacts"].as_array().unwrap().iter();
    let told: Vec<_> = artifacts
        .map(|made| [made["artifactId"].as_str().unwrap(), made["phase"].as_str().unwrap()])
        .collect();
    assert_eq!(
        told,
        [
            ["of-specification", "specification"],
            ["of-pseudocode", "pseudocode"],
            ["of-more-pseudocode", "pseudocode"]
        ]
    );
    let inside = PHASES.map(|phase| before["phases"][phase]["artifacts"].as_array().map_or(0, Vec::len));
    assert_eq!(inside, [1, 2, 0, 0, 0]);
    drop(gateway);
    let gateway = shop.gateway("", "").await;
    assert_eq!(shape(&by(&gateway, NEW), &uri).await, before, "the same after a restart");
}

/// A call that its client awaits begins when the agent gets it, not when its task is kept at the end.
#[tokio::test]
async fn awaited_phase_has_start_of_its_call() {
    let shop = Workshop::new().await;
    let go = Signal::new();
    let gate = go.clone();
    shop.agent.on_send(move |_| {
        let mut task = v1::bare_completed(RAW_TASK, RAW_CONTEXT, "made");
        task["metadata"] = json!({ "sparcPhase": PHASES[0] });
        // An agent's own time would count.
        task["status"].as_object_mut().unwrap().remove("timestamp");
        Reply::stream().wait(&gate).event(json!({ "task": task }))
    });
    let gateway = shop.gateway("", "").await;
    let client = by(&gateway, NEW);
    let caller = client.clone();
    let before = Timestamp::now().unix_ms;
    let awaited = tokio::spawn(async move { call(&caller, json!({ "text": "x" })).await });
    shop.agent.wait_for_call("SendStreamingMessage").await;
    let arrived = Timestamp::now().unix_ms;
    // Far more than the rounding of the two clocks.
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    go.open();
    let ended = awaited.await.unwrap();
    let workflow = shape(&client, &format!("sparc://workflow/{}", context_of(&ended))).await;
    let started = workflow["phases"][PHASES[0]]["startTime"].as_str().unwrap();
    let age = (arrived % DAY_MS + 10 + DAY_MS - day_ms(started)) % DAY_MS;
    assert!(age <= arrived - before + 20, "{started} is {age} ms before the agent had the call");
}

const DAY_MS: u64 = 24 * 60 * 60 * 1000;

/// The milliseconds since midnight of a time such as `2026-11-24T12:34:56.789Z`.
fn day_ms(time: &str) -> u64 {
    let (_, clock) = time.trim_end_matches('Z').split_once('T').unwrap();
    let parts: Vec<u64> = clock.split([':', '.']).map(|part| part.parse().unwrap()).collect();
    ((parts[0] * 60 + parts[1]) * 60 + parts[2]) * 1000 + parts[3]
}

#[tokio::test]
async fn workflow_update_is_not_repeated() {
    let shop = Workshop::new().await;
    let gateway = shop.gateway("", "").await;
    let client = by(&gateway, NEW);
    let begun = call(&client, json!({ "text": PHASES[0] })).await;
    let uri = format!("sparc://workflow/{}", context_of(&begun));
    let mut stream = listen(&client, &[&uri, "a2a://agents/registry"]).await;
    call(&client, json!({ "text": "hello", "contextId": uri.rsplit('/').next() })).await;
    let Workshop { agent, .. } = shop;
    agent.stop().await;
    assert_eq!(updated(&mut stream).await, "a2a://agents/registry", "no phase has moved");
}

#[tokio::test]
async fn rows_of_family_are_listed_and_read() {
    let shop = Workshop::new().await;
    let gateway = shop.gateway("", "").await;
    let client = by(&gateway, NEW);
    let begun = call(&client, json!({ "text": PHASES[0] })).await;
    let context = context_of(&begun);
    let listed = client.modern("resources/list", json!({})).await.result().await;
    let rows = [
        ("a2a://agents/registry", "a2a", "dynamic"),
        ("sparc://phase/specification/template", "sparc", "static"),
        ("sparc://agent/coder/capabilities", "sparc", "dynamic"),
        (&format!("sparc://workflow/{context}"), "sparc", "realtime"),
    ];
    for (uri, family, policy) in rows {
        let row = listed["resources"].as_array().unwrap().iter().find(|row| row["uri"] == uri);
        let meta = row.unwrap_or_else(|| panic!("{uri} is not in {listed}"))["_meta"].clone();
        assert_eq!(
            (&meta["resourceId"], &meta["type"], &meta["cachePolicy"]),
            (&json!(uri), &json!(family), &json!(policy))
        );
        assert!(meta["lastModified"].as_str().unwrap().ends_with('Z'), "{meta}");
        assert_eq!(meta["permissions"][0], "read");
        let result = client.modern("resources/read", json!({ "uri": uri })).await.result().await;
        let ttl = if policy == "static" { 30_000 } else { 0 };
        assert_eq!(
            (&result["ttlMs"], &result["contents"][0]["_meta"]["type"]),
            (&json!(ttl), &json!(family))
        );
        let schema = content(&client, meta["schema"].as_str().unwrap()).await;
        let name = meta["schema"].as_str().unwrap().rsplit('/').next().unwrap().to_owned();
        let schemas: Value = serde_json::from_str(schema["text"].as_str().unwrap()).unwrap();
        let content: Value = serde_json::from_str(result["contents"][0]["text"].as_str().unwrap()).unwrap();
        let mut schema = schemas["$defs"][&name].clone();
        schema["$defs"] = schemas["$defs"].clone();
        assert!(jsonschema::is_valid(&schema, &content), "{uri}: {content} against {schema}");
        let alias = uri.replacen("://", "/", 1);
        let other = shape(&client, &format!("mcp://mcp-a2a-gateway/{alias}")).await;
        assert_eq!(other, content, "{uri}");
        assert!(refusal(&client, &format!("mcp://another/{alias}")).await.contains("no such resource"));
    }
    gateway
        .wait_for_output("access=\"read\" caller=key:ci family=\"sparc\" resource=sparc://workflow/***")
        .await;
}

#[tokio::test]
async fn family_has_templates_and_completions() {
    let shop = Workshop::new().await;
    let gateway = shop.gateway("", "").await;
    let client = by(&gateway, NEW);
    let begun = call(&client, json!({ "text": PHASES[0] })).await;
    let listed = client.modern("resources/templates/list", json!({})).await.result().await;
    let templates = listed["resourceTemplates"].as_array().unwrap();
    let context = context_of(&begun);
    for (template, variable, values) in [
        ("sparc://workflow/{contextId}", "contextId", json!([context])),
        ("sparc://phase/{phase}/template", "phase", json!(["specification"])),
        ("sparc://agent/{agentType}/capabilities", "agentType", json!(["coder"])),
    ] {
        assert!(templates.iter().any(|known| known["uriTemplate"] == template), "{template}");
        let params = json!({
            "ref": { "type": "ref/resource", "uri": template }, "argument": { "name": variable, "value": "" },
        });
        let found = client.modern("completion/complete", params).await.result().await;
        assert_eq!(found["completion"]["values"], values, "{template}");
    }
}

#[tokio::test]
async fn template_and_capabilities_have_their_shape() {
    let shop = Workshop::new().await;
    let gateway = shop.gateway("", "").await;
    let client = by(&gateway, NEW);
    assert_eq!(
        shape(&client, "sparc://phase/specification/template").await,
        json!({ "phase": "specification",
            "template": { "requirements": [], "goals": ["say what is wanted"], "constraints": [], "methodology": [] },
            "guidelines": "be brief", "examples": [], "validation": {} })
    );
    let session = client.legacy().await;
    for (uri, is_known) in
        [("sparc://phase/specification/template", true), ("sparc://phase/refinement/template", false)]
    {
        let answer = session.call("resources/subscribe", json!({ "uri": uri })).await.json().await;
        assert_eq!(answer["result"].is_object(), is_known, "{answer}");
    }
    let able = shape(&client, "sparc://agent/coder/capabilities").await;
    assert_eq!((&able["agentType"], &able["skills"][0]["id"]), (&json!("coder"), &json!("sing")));
    for uri in
        ["sparc://phase/refinement/template", "sparc://phase/x/template", "sparc://agent/x/capabilities"]
    {
        assert!(refusal(&client, uri).await.contains("no such resource"), "{uri}");
    }
}

#[tokio::test]
async fn rules_and_rates_limit_a_family() {
    let shop = Workshop::new().await;
    let rules = "rules:\n  - deny: true\n    callers: key:eve\n    resources: [sparc://*, a2a://agents/*]\n  - callers: key:*\n";
    let gateway = shop.gateway("  a2a: { rate: 1, redact: [/agents/*/agentCard] }\n", rules).await;
    let (friend, stranger) = (by(&gateway, NEW), by(&gateway, EVE));
    let uri = "sparc://agent/coder/capabilities";
    shape(&friend, uri).await;
    for spelling in [uri, "mcp://mcp-a2a-gateway/sparc/agent/coder/capabilities"] {
        assert!(refusal(&stranger, spelling).await.contains("no such resource"), "{spelling}");
    }
    let listed = stranger.modern("resources/list", json!({})).await.result().await;
    assert!(!listed.to_string().contains("sparc://"), "{listed}");
    let wanted = json!({ "resourceSubscriptions": [uri] });
    let mut stream = stranger.modern("subscriptions/listen", json!({ "notifications": wanted })).await;
    assert_eq!(stream.next_message().await["params"]["notifications"], json!({}), "not honoured");
    assert!(!listed.to_string().contains("a2a://agents/registry"), "{listed}");
    let registry = shape(&friend, "a2a://agents/registry").await;
    assert_eq!(registry["agents"][0]["agentCard"], "***");
    let again = friend.modern("resources/read", json!({ "uri": "a2a://agents/registry" })).await;
    assert_eq!(again.status, 429);
}

/// The stream of a session looks at the subscription later: that is no second request.
#[tokio::test]
async fn rate_counts_a_subscription_once() {
    let shop = Workshop::new().await;
    let gateway = shop.gateway("  a2a: { rate: 1 }\n", "").await;
    let session = by(&gateway, NEW).legacy().await;
    let uri = "a2a://agents/registry";
    session.call("resources/subscribe", json!({ "uri": uri })).await.result().await;
    let mut stream = session.listen(None).await;
    gateway.wait_for_output("access=\"subscribe\"").await;
    let Workshop { agent, .. } = shop;
    agent.stop().await;
    assert_eq!(updated(&mut stream).await, uri);
    assert_eq!(gateway.output().matches("access=\"subscribe\"").count(), 1, "one line of the audit log");
}

#[tokio::test]
async fn family_is_off_without_its_section() {
    let agent = ScriptedAgent::start(Card::v1().skill("sing")).await;
    let gateway = TestGateway::before(&[("bard", &agent)]).await;
    let client = gateway.client();
    let listed = client.modern("resources/templates/list", json!({})).await.result().await;
    assert!(!listed.to_string().contains("sparc://"), "{listed}");
    assert!(refusal(&client, "sparc://agent/bard/capabilities").await.contains("no such resource"));
}

/// `clientInfo` of a stream is the software that began the task, whichever client reads it.
#[tokio::test]
async fn stream_names_software_of_its_client() {
    let shop = Workshop::new().await;
    let go = Signal::new();
    works(&shop.agent, vec![(go.clone(), vec![done()])]);
    let gateway = shop.gateway("", "calls: { task_after: 100ms }\n").await;
    let reader = by(&gateway, NEW).named("reader");
    let keeping = json!({ "extensions": { "io.modelcontextprotocol/tasks": {} } });
    let begun = |told: Value| {
        let client = by(&gateway, NEW).capabilities(keeping.clone());
        let meta = json!({ "io.modelcontextprotocol/clientInfo": told });
        async move {
            let params = json!({ "name": TOOL, "arguments": { "text": "x" }, "_meta": meta });
            let created = client.modern("tools/call", params).await.result().await;
            created["taskId"].as_str().unwrap_or_else(|| panic!("not a task: {created}")).to_owned()
        }
    };
    let ide = json!({ "name": "ide", "version": "7.1" });
    let of = |task: &str| format!("a2a://streams/{task}");
    let told = begun(ide.clone()).await;
    let stream = shape(&reader, &of(&told)).await;
    assert_eq!(stream["metadata"]["clientInfo"], ide);
    go.open();
    drop(gateway);
    let gateway = shop.gateway("", "calls: { task_after: 100ms }\n").await;
    let after = shape(&by(&gateway, NEW).named("reader"), &of(&told)).await;
    assert_eq!(after["metadata"]["clientInfo"], ide, "the same after a restart");
}

/// In a session `initialize` tells the software.
#[tokio::test]
async fn stream_names_software_of_its_session() {
    let shop = Workshop::new().await;
    works(&shop.agent, vec![(Signal::new(), vec![done()])]);
    let gateway = shop.gateway("", "calls: { budget: 1s, stream_after: 1s }\n").await;
    let client = by(&gateway, NEW);
    let session = client.named("host").legacy().await;
    let result = session.call_tool(TOOL, json!({ "text": "x" })).await.result().await;
    let stream = shape(&client, &format!("a2a://streams/{}", task_of(&result))).await;
    assert_eq!(stream["metadata"]["clientInfo"], json!({ "name": "host", "version": "1" }));
}

#[tokio::test]
async fn stream_of_unnamed_client_names_none() {
    let shop = Workshop::new().await;
    works(&shop.agent, vec![(Signal::new(), vec![done()])]);
    let gateway = shop.gateway("", "calls: { budget: 1s, stream_after: 1s }\n").await;
    let client = by(&gateway, NEW);
    let silent = json!({ "io.modelcontextprotocol/clientInfo": null });
    let params = json!({ "name": TOOL, "arguments": { "text": "y" }, "_meta": silent });
    let result = client.modern("tools/call", params).await.result().await;
    let stream = shape(&client, &format!("a2a://streams/{}", task_of(&result))).await;
    assert_eq!(stream["metadata"]["clientInfo"], json!({}));
}

#[tokio::test]
async fn task_and_stream_have_their_shape() {
    let agent = ScriptedAgent::start(Card::v1().skill("sing")).await;
    let gateway = crate::kit::quiz::gateway_before(&agent, "calls: { task_after: 100ms }").await;
    let go = Signal::new();
    let mut moved = v1::status_update(RAW_TASK, RAW_CONTEXT, "working", Some("next"));
    moved["statusUpdate"]["metadata"] = json!({ "sparcPhase": "refinement" });
    works(&agent, vec![(go.clone(), vec![moved, done()])]);
    let task = begin(&gateway).await;
    let stream = json_of(&gateway, &format!("a2a://streams/{task}")).await;
    assert_eq!((&stream["streamId"], &stream["status"]), (&json!(task), &json!("active")));
    assert_eq!(stream["connectionId"], "1");
    let mut listening = listen(&gateway.client(), &[&format!("a2a://tasks/{task}")]).await;
    go.open();
    let uri = format!("a2a://tasks/{task}");
    let shown = loop {
        assert_eq!(updated(&mut listening).await, uri);
        let shown = json_of(&gateway, &uri).await;
        if shown["status"]["state"] == "completed" {
            break shown;
        }
    };
    assert_eq!(shown["taskId"], task);
    assert_eq!(shown["status"]["message"]["parts"][0]["text"], "that was it");
    assert_eq!(
        shown["metadata"],
        json!({ "sparcPhase": "refinement", "batchtoolsOptimized": false, "agentType": "bard" })
    );
    let stream = json_of(&gateway, &format!("a2a://streams/{task}")).await;
    let events = stream["events"].as_array().unwrap();
    let last = events.last().unwrap();
    assert_eq!((&last["type"], &last["data"]["state"]), (&json!("status-update"), &json!("completed")));
    assert_eq!(stream["metadata"]["totalEvents"], events.len());
    assert_eq!(stream["status"], "closed");
}
