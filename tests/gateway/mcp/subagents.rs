//! The gateway's own tools through the wire: a task begun, spoken to, looked at, waited for and
//! stopped by its handle.
//!
//! Each structured result is judged by the `outputSchema` that the tool itself lists. Out of scope:
//! when the tools are listed (see `answer_here`), other ways to a task (see `handles`, `ladder`).

use std::collections::HashMap;

use serde_json::{Value, json};

use crate::kit::quiz::gateway_before;
use crate::kit::scene::{RAW_CONTEXT, RAW_TASK, Scene, complaint, task_of, words};
use crate::support::payload::v1;
use crate::support::{Card, McpClient, Reply, ScriptedAgent, Signal};

const RAW: (&str, &str) = (RAW_TASK, RAW_CONTEXT);
const SHORT: &str = "calls: { budget: 1s, max_rounds: 0, stream_after: 1s }";

/// A client that knows what each tool promises.
struct Caller {
    client: McpClient,
    promises: HashMap<String, Value>,
}

impl Caller {
    async fn new(client: McpClient) -> Self {
        let list = client.modern("tools/list", json!({})).await.result().await;
        let tools = list["tools"].as_array().unwrap().iter();
        let promises = tools
            .filter(|tool| tool["outputSchema"].is_object())
            .map(|tool| (tool["name"].as_str().unwrap().to_owned(), tool["outputSchema"].clone()))
            .collect();
        Self { client, promises }
    }

    async fn told(&self, tool: &str, arguments: Value) -> Value {
        let params = json!({ "name": tool, "arguments": arguments });
        self.client.modern("tools/call", params).await.result().await
    }

    /// A result that is no error and keeps what its tool promises.
    async fn call(&self, tool: &str, arguments: Value) -> Value {
        let told = self.told(tool, arguments).await;
        assert_eq!(told["isError"], false, "{tool}: {told}");
        let schema = jsonschema::validator_for(&self.promises[tool]).unwrap();
        let broken: Vec<String> =
            schema.iter_errors(&told["structuredContent"]).map(|error| error.to_string()).collect();
        assert!(broken.is_empty(), "{tool}: {broken:?} in {told}");
        assert!(!told.to_string().contains("raw-"), "{told}");
        told
    }

    async fn begin(&self, uri: &str) -> Value {
        self.call("subagent_start", json!({ "subagentUri": uri, "text": "sing" })).await
    }

    /// The task that a result names.
    async fn linked(&self, told: &Value) -> Value {
        let uri = &told["structuredContent"]["taskUri"];
        let read = self.client.modern("resources/read", json!({ "uri": uri })).await.result().await;
        assert_eq!(&read["contents"][0]["uri"], uri);
        serde_json::from_str(read["contents"][0]["text"].as_str().unwrap()).unwrap()
    }
}

/// An agent that asks for a colour, and paints from the answer until the signal.
fn painter(agent: &ScriptedAgent) -> Signal {
    let go = Signal::new();
    let wait = go.clone();
    agent.on_send(move |request| match request.message()["taskId"].as_str() {
        None => Reply::events([v1::asking(RAW_TASK, RAW_CONTEXT, "Which colour?")]),
        Some(_) => {
            let busy = v1::status_update(RAW_TASK, RAW_CONTEXT, "working", Some("painting"));
            let made = v1::artifact_update(RAW_TASK, RAW_CONTEXT, "a boat", false, true);
            let done = v1::status_update(RAW_TASK, RAW_CONTEXT, "completed", None);
            Reply::stream().event(busy).wait(&wait).event(made).event(done)
        }
    });
    agent.on_get(|_| Reply::result(v1::asking(RAW_TASK, RAW_CONTEXT, "Which colour?")["task"].clone()));
    go
}

#[tokio::test]
async fn handle_starts_answers_and_awaits_task() {
    let scene = Scene::tuned(SHORT).await;
    let go = painter(&scene.agent);
    let caller = Caller::new(scene.gateway.client()).await;
    let begun = caller.begin("a2a-agent://bard").await;
    let task = task_of(&begun);
    let seen = caller.linked(&begun).await;
    assert_eq!((&seen["state"], &seen["statusMessage"]), (&json!("input-required"), &json!("Which colour?")));
    let asks = caller.call("subagent_wait", json!({ "taskId": task })).await;
    assert_eq!(asks["structuredContent"]["statusMessage"], "Which colour?");
    let of_task = scene.agent.calls("SendStreamingMessage")[0].message();
    assert_eq!(of_task["parts"], json!([{ "text": "sing" }]));

    let sent = caller.call("subagent_send", json!({ "taskId": task, "text": "blue" })).await;
    assert_eq!(sent["structuredContent"]["ok"], true, "{sent}");
    // By a method of its own while a stream of the task is open.
    let messages =
        || ["SendStreamingMessage", "SendMessage"].map(|method| scene.agent.calls(method)).concat();
    let said = messages()[1].message();
    assert_eq!((&said["taskId"], &said["contextId"]), (&json!(RAW_TASK), &json!(RAW_CONTEXT)));
    assert_eq!(said["parts"], json!([{ "text": "blue" }]));

    scene.agent.on_get(|_| Reply::result(v1::bare_task(RAW_TASK, RAW_CONTEXT, "working")));
    let busy = caller.call("subagent_wait", json!({ "taskId": task, "seconds": 0 })).await;
    assert_eq!((task_of(&busy), &busy["structuredContent"]["state"]), (task.clone(), &json!("working")));
    go.fire();
    let done = caller.call("subagent_wait", json!({ "taskId": format!("a2a://task/{task}") })).await;
    assert_eq!((words(&done), &done["structuredContent"]["state"]), ("a boat", &json!("completed")));
    assert_eq!(caller.linked(&done).await["artifacts"][0]["parts"], json!([{ "text": "a boat" }]));
    let looked = caller.call("subagent_get", json!({ "taskId": task })).await;
    assert_eq!(looked["structuredContent"]["state"], "completed");

    let late = caller.told("subagent_send", json!({ "taskId": task, "text": "red" })).await;
    assert!(complaint(&late).contains("has ended"), "{late}");
    assert_eq!(messages().len(), 2, "nothing more was said");
}

#[tokio::test]
async fn second_stop_is_no_error() {
    let scene = Scene::tuned(SHORT).await;
    let _go = scene.agent.works_for(RAW, "the song");
    scene.agent.on_cancel(|_| Reply::result(v1::bare_task(RAW_TASK, RAW_CONTEXT, "canceled")));
    let caller = Caller::new(scene.gateway.client()).await;
    let task = task_of(&caller.begin("a2a-agent://bard").await);
    for _ in 0..2 {
        let stopped = caller.call("subagent_cancel", json!({ "taskId": task })).await;
        assert_eq!(stopped["structuredContent"]["canceled"], true, "{stopped}");
        assert_eq!(caller.linked(&stopped).await["state"], "canceled");
    }
    assert_eq!(scene.agent.calls("CancelTask").len(), 1);
}

#[tokio::test]
async fn ended_task_is_reported_not_cancelled() {
    let scene = Scene::tuned(SHORT).await;
    let go = scene.agent.works_for(RAW, "the song");
    let caller = Caller::new(scene.gateway.client()).await;
    let task = task_of(&caller.begin("a2a-agent://bard").await);
    go.fire();
    assert_eq!(words(&caller.call("subagent_wait", json!({ "taskId": task })).await), "the song");
    let late = caller.call("subagent_cancel", json!({ "taskId": task })).await;
    assert_eq!(
        (&late["structuredContent"]["canceled"], &late["structuredContent"]["state"]),
        (&json!(false), &json!("completed"))
    );
    assert!(scene.agent.calls("CancelTask").is_empty(), "what is over is not cancelled at the agent");
}

#[tokio::test]
async fn agent_is_named_by_host_or_path_only() {
    let scene = Scene::tuned(SHORT).await;
    let _go = scene.agent.works_for(RAW, "the song");
    let caller = Caller::new(scene.gateway.client()).await;
    let tasks =
        [task_of(&caller.begin("a2a-agent://bard").await), task_of(&caller.begin("a2a-agent:///bard").await)];
    assert_eq!(tasks[0], tasks[1], "the agent gave the same task");
    for (uri, told) in [
        ("bard", "Write \"a2a-agent://bard\"."),
        ("https://bard/", "Write \"a2a-agent://NAME\"."),
        ("a2a-agent://", "is not the URI of an agent"),
        ("a2a-agent://nobody", "There are: a2a-agent://bard."),
        ("a2a-agent://bard/x", "There are: a2a-agent://bard."),
    ] {
        let refused = caller.told("subagent_start", json!({ "subagentUri": uri, "text": "sing" })).await;
        assert!(complaint(&refused).contains(told), "{uri}: {refused}");
    }
    assert_eq!(scene.agent.calls("SendStreamingMessage").len(), 2, "only the two were begun");
}

#[tokio::test]
async fn tampered_or_foreign_handle_is_unknown() {
    let scene = Scene::tuned(SHORT).await;
    let _go = scene.agent.works_for(RAW, "the song");
    let caller = Caller::new(scene.gateway.client()).await;
    let task = task_of(&caller.begin("a2a-agent://bard").await);
    let other = gateway_before(&scene.agent, SHORT).await;
    let foreign = Caller::new(other.client()).await;
    let (tampered, foreign) = (tampered(&task), task_of(&foreign.begin("a2a-agent://bard").await));
    let asked = scene.agent.requests().iter().filter(|request| request.method == "POST").count();
    for (tool, more) in [
        ("subagent_get", json!({})),
        ("subagent_wait", json!({})),
        ("subagent_cancel", json!({})),
        ("subagent_send", json!({ "text": "go on" })),
    ] {
        let mut told = Vec::new();
        for handle in [tampered.as_str(), foreign.as_str(), "never-was", RAW_TASK] {
            let mut arguments = more.clone();
            arguments["taskId"] = handle.into();
            let refused = caller.told(tool, arguments).await;
            assert!(complaint(&refused).starts_with("Unknown taskId"), "{tool} {handle}: {refused}");
            told.push(refused);
        }
        assert!(told.iter().all(|refused| *refused == told[0]), "{tool}: {told:?}");
    }
    let since = scene.agent.requests().iter().filter(|request| request.method == "POST").count();
    assert_eq!(since, asked, "the agent hears nothing of it");
}

/// The same handle with one letter in its middle changed.
fn tampered(handle: &str) -> String {
    let at = handle.len() / 2;
    let other = |letter: char| if letter == 'A' { 'B' } else { 'A' };
    handle
        .chars()
        .enumerate()
        .map(|(place, letter)| if place == at { other(letter) } else { letter })
        .collect()
}

#[tokio::test]
async fn agent_endpoint_starts_by_agent_tool() {
    let agent = ScriptedAgent::start(Card::v1().skill("sing")).await;
    let other = ScriptedAgent::start(Card::v1().skill("count")).await;
    let gateway = crate::support::TestGateway::start(|ports| {
        let (listeners, bard, count) = (ports.listeners(), agent.card_url(), other.card_url());
        format!("{listeners}{SHORT}\nagents:\n  bard:\n    card: {bard}\n  counter:\n    card: {count}\n")
    })
    .await;
    let go = agent.works_for(RAW, "the song");
    let _counting = other.works_for(("raw-count", "raw-count-context"), "three");
    agent.on_cancel(|_| Reply::result(v1::bare_task(RAW_TASK, RAW_CONTEXT, "canceled")));
    let endpoint = Caller::new(gateway.client_of("bard")).await;
    let params =
        json!({ "name": "subagent_start", "arguments": { "subagentUri": "a2a-agent://bard", "text": "x" } });
    assert_eq!(endpoint.client.modern("tools/call", params).await.error_code().await, -32602);
    let task = task_of(&endpoint.told("sing", json!({ "text": "x" })).await);
    for tool in ["subagent_get", "subagent_wait", "subagent_send"] {
        let mut arguments = json!({ "taskId": task });
        if tool == "subagent_send" {
            arguments["text"] = "louder".into();
        }
        assert_eq!(task_of(&endpoint.call(tool, arguments).await), task, "{tool}");
    }
    let all = Caller::new(gateway.client()).await;
    let foreign = task_of(&all.begin("a2a-agent://counter").await);
    let refused = endpoint.told("subagent_get", json!({ "taskId": foreign })).await;
    assert!(complaint(&refused).starts_with("Unknown taskId"), "another agent's: {refused}");
    let stopped = endpoint.call("subagent_cancel", json!({ "taskId": task })).await;
    assert_eq!(stopped["structuredContent"]["canceled"], true, "{stopped}");
    go.fire();
}

#[tokio::test]
async fn handle_may_name_agent_tool() {
    let scene = Scene::tuned(&format!("{SHORT}\nmcp: {{ subagent_tools: false }}")).await;
    let go = scene.agent.works_for(RAW, "the song");
    let early = scene.said("sing").await;
    let told = words(&early);
    assert!(told.contains("Call this tool again with taskId=") && !told.contains("subagent_"), "{told}");
    go.fire();
    let done = scene.call(json!({ "taskId": task_of(&early) })).await.result().await;
    assert_eq!(words(&done), "the song");
}
