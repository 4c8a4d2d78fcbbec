//! Every way in which agents of real frameworks give their output reaches the model.

use serde_json::{Value, json};

use crate::kit::scene::{RAW_CONTEXT, RAW_TASK, Scene, TOOL, words};
use crate::support::payload::{v0_1, v0_3, v1};
use crate::support::{Card, Reply};

fn working(text: &str) -> Value {
    let mut update = v1::status_update(RAW_TASK, RAW_CONTEXT, "working", Some(text));
    // Each is a message of its own.
    update["statusUpdate"]["status"]["message"]["messageId"] = text.into();
    update
}

fn ended(state: &str) -> Value {
    v1::status_update(RAW_TASK, RAW_CONTEXT, state, None)
}

fn begun() -> Value {
    v1::task(RAW_TASK, RAW_CONTEXT, "submitted")
}

async fn called(scene: &Scene) -> Value {
    let call = json!({ "name": TOOL, "arguments": { "text": "x" } });
    scene.gateway.client().modern("tools/call", call).await.result().await
}

/// Clients that fail at links get none; those that want them get all.
#[tokio::test]
async fn links_follow_configuration() {
    for (links, of_file, of_start) in
        [("none", false, false), ("subagent_start", false, true), ("all", true, true)]
    {
        let scene = Scene::tuned(&format!("mcp: {{ resource_links: {links} }}")).await;
        scene.agent.on_send(|_| {
            let parts = json!([{ "url": "https://x.example/y", "filename": "y" }]);
            Reply::events([json!({ "message": { "messageId": "m", "role": "ROLE_AGENT", "parts": parts } })])
        });
        let has_link = |result: &Value| {
            result["content"].as_array().unwrap().iter().any(|block| block["type"] == "resource_link")
        };
        let result = called(&scene).await;
        assert_eq!((words(&result), has_link(&result)), ("y: https://x.example/y", of_file), "{links}");
        scene.agent.on_send(|_| Reply::events([begun(), working("on it")]));
        let call = json!({ "name": "subagent_start", "arguments": { "subagentUri": "a2a-agent://bard", "text": "x" } });
        let started = scene.gateway.client().modern("tools/call", call).await.result().await;
        assert_eq!(has_link(&started), of_start, "{links}: {started}");
        let uri = started["structuredContent"]["taskUri"].as_str().unwrap();
        assert!(words(&started).contains(uri), "{started}");
    }
}

/// Tools that convert schemas fail at a property without a type.
#[tokio::test]
async fn every_property_of_every_tool_has_type() {
    let scene = Scene::new().await;
    let listed = scene.gateway.client().modern("tools/list", json!({})).await.result().await;
    let tools = listed["tools"].as_array().unwrap();
    assert!(tools.len() > 5, "{listed}");
    for tool in tools {
        for schema in ["inputSchema", "outputSchema"] {
            untyped(&tool[schema], &format!("{}/{schema}", tool["name"]));
        }
        assert_eq!(tool["inputSchema"].get("anyOf"), None, "{tool}");
    }
}

fn untyped(schema: &Value, place: &str) {
    let Some(members) = schema.as_object() else { return };
    if let Some(properties) = members.get("properties").and_then(Value::as_object) {
        for (name, property) in properties {
            let is_typed = property["type"].is_string() || property["anyOf"].is_array();
            assert!(is_typed, "{place}/{name} has no type: {property}");
            untyped(property, &format!("{place}/{name}"));
        }
    }
    untyped(&schema["items"], &format!("{place}/items"));
    for branch in schema["anyOf"].as_array().into_iter().flatten() {
        assert!(branch["type"].is_string(), "{place}: {branch}");
    }
}

/// The result of a call to an agent that streams these events.
async fn streamed(card: Card, events: Vec<Value>) -> Value {
    let scene = Scene::of(card, "", "").await;
    scene.agent.on_stream(move |_| Reply::events(events.clone()));
    called(&scene).await
}

/// Microsoft agent-framework sends one status message, Agent Stack many pieces of one text.
#[tokio::test]
async fn working_messages_are_last_resort_output() {
    for (events, expected) in [
        (vec![working("It is 21 °C.")], "It is 21 °C."),
        (vec![working("It"), working(" is 21"), working(" °C.")], "It is 21 °C."),
        (vec![working("Looking…"), working("It is 21 °C.")], "Looking…\nIt is 21 °C."),
        (vec![working("Looking…"), v1::artifact_update(RAW_TASK, RAW_CONTEXT, "21", false, true)], "21"),
    ] {
        let all = [vec![begun()], events, vec![ended("completed")]].concat();
        let result = streamed(Card::v1().skill("sing"), all).await;
        assert_eq!(words(&result), expected, "{result}");
    }
}

/// The same for an agent that is polled: its status messages move into the history.
#[tokio::test]
async fn history_messages_are_output_when_polled() {
    let scene = Scene::of(Card::v1().skill("sing").streaming(false), "", "").await;
    scene.agent.on_send(|_| Reply::result(v1::task(RAW_TASK, RAW_CONTEXT, "working")));
    scene.agent.on_get(|_| {
        let said =
            |text: &str| json!({ "role": "ROLE_AGENT", "messageId": text, "parts": [{ "text": text }] });
        let mut task = v1::bare_task(RAW_TASK, RAW_CONTEXT, "completed");
        task["history"] = json!([
            said("of an earlier turn"),
            { "role": "ROLE_USER", "messageId": "u", "parts": [{ "text": "x" }] },
            said("It is"),
            said(" 21 °C."),
        ]);
        Reply::result(task)
    });
    assert_eq!(words(&called(&scene).await), "It is 21 °C.");
}

/// agno: each chunk is a message event of one stream.
#[tokio::test]
async fn message_events_are_joined() {
    let message = |text: &str| v1::message(text);
    for (events, expected) in [
        (vec![message("It is"), message(" 21 °C.")], "It is 21 °C."),
        (vec![message("It is"), message(" 21 °C."), ended("completed")], "It is 21 °C."),
        (
            vec![message("It is"), message(" 21"), v1::completed(RAW_TASK, RAW_CONTEXT, "It is 21 °C.")],
            "It is 21 °C.",
        ),
        (vec![message("la")], "la"),
    ] {
        let result = streamed(Card::v1().skill("sing"), events).await;
        assert_eq!(words(&result), expected, "{result}");
    }
}

/// LangGraph behind a2a-sdk 0.3: the stream ends with an error, and the task says `working` for
/// ever.
#[tokio::test]
async fn error_event_ends_task() {
    let scene = Scene::of(Card::v0_3().skill("sing"), "", "").await;
    scene.agent.on_stream(|_| {
        let error =
            json!({ "jsonrpc": "2.0", "id": 1, "error": { "code": -32603, "message": "the graph broke" } });
        Reply::stream()
            .event(v0_3::task(RAW_TASK, RAW_CONTEXT, "working"))
            .bytes(format!("data: {error}\n\n").as_bytes())
    });
    scene.agent.on_get(|_| Reply::result(v0_3::task(RAW_TASK, RAW_CONTEXT, "working")));
    let result = called(&scene).await;
    assert_eq!(result["isError"], true, "{result}");
    assert!(result.to_string().contains("the graph broke"), "{result}");
    // The agent's own answer counts more.
    scene.agent.on_get(|_| Reply::result(v0_3::completed(RAW_TASK, RAW_CONTEXT, "la")));
    assert_eq!(words(&called(&scene).await), "la");
}

/// python-a2a: the user's message is a member of the task.
#[tokio::test]
async fn task_with_message_member_is_task() {
    let scene = Scene::of(Card::v0_1().skill("sing").streaming(false), "protocol: \"0.1\"", "").await;
    scene.agent.on_send(|request| {
        let id = request.params()["id"].as_str().unwrap_or_default().to_owned();
        let mut task = v0_1::completed(&id, "It is 21 °C.");
        task["message"] = json!({ "role": "user", "parts": [{ "type": "text", "text": "x" }] });
        Reply::result(task)
    });
    let result = called(&scene).await;
    assert_eq!(words(&result), "It is 21 °C.", "{result}");
}

/// The reason of a failure stands in the status, the history (agno) or the artifacts.
#[tokio::test]
async fn failure_reason_is_found() {
    let scene = Scene::of(Card::v1().skill("sing").streaming(false), "", "").await;
    let said = |text: &str| json!({ "role": "ROLE_AGENT", "messageId": "m", "parts": [{ "text": text }] });
    let artifact = json!([{ "artifactId": "a", "parts": [{ "text": "in the artifact" }] }]);
    for (member, value, expected) in [
        (
            "status",
            json!({ "state": "TASK_STATE_FAILED", "message": said("in the status") }),
            "in the status",
        ),
        ("history", json!([said("in the history")]), "in the history"),
        ("artifacts", artifact, "in the artifact"),
    ] {
        scene.agent.on_send(move |_| {
            let mut task = v1::task(RAW_TASK, RAW_CONTEXT, "failed");
            task["task"]["artifacts"] = json!([]);
            task["task"][member] = value.clone();
            Reply::result(task)
        });
        let result = called(&scene).await;
        let text = result["content"][0]["text"].as_str().unwrap_or_default();
        assert!(result["isError"] == true && text.contains(expected), "{result}");
        assert!(!text.contains("did not say why"), "{result}");
    }
}

/// ADK marks the reasoning of its model: progress, not output.
#[tokio::test]
async fn thoughts_are_no_output() {
    for mark in ["adk_thought", "thought"] {
        let thought = json!({ "text": "Let me think.", "metadata": { mark: true } });
        let task = json!({ "task": {
            "id": RAW_TASK, "contextId": RAW_CONTEXT, "status": { "state": "TASK_STATE_COMPLETED" },
            "artifacts": [{ "artifactId": "a", "parts": [thought, { "text": "21" }] }],
        }});
        let result = streamed(Card::v1().skill("sing"), vec![task]).await;
        assert_eq!(words(&result), "21", "{result}");
        assert!(!result.to_string().contains("think"), "{result}");
    }
}

/// VoltAgent writes a record separator before each event.
#[tokio::test]
async fn record_separators_are_skipped() {
    let scene = Scene::of(Card::v1().skill("sing"), "", "").await;
    scene.agent.on_stream(|_| {
        let answer =
            json!({ "jsonrpc": "2.0", "id": 1, "result": v1::completed(RAW_TASK, RAW_CONTEXT, "la") });
        Reply::stream().bytes(format!("\u{1e}\ndata: \u{1e}{answer}\n\u{1e}\n\n").as_bytes())
    });
    assert_eq!(words(&called(&scene).await), "la");
}

/// LangGraph's skill ids are UUIDs.
#[tokio::test]
async fn generated_ids_give_way_to_names() {
    let skill = json!({ "id": "7f0c2c46-1d70-4c0e-9c53-7f7b0b0e2b11", "name": "Daily forecast", "description": "d", "tags": [] });
    let scene = Scene::of(Card::v1().skill_with(skill), "", "").await;
    let listed = scene.gateway.client().modern("tools/list", json!({})).await.result().await.to_string();
    assert!(listed.contains("\"bard_daily_forecast\"") && !listed.contains("bard_7f0c"), "{listed}");
}

/// A legacy request without a session is served in the revision of its header.
#[tokio::test]
async fn header_version_counts_without_session() {
    let scene = Scene::of(Card::v1().skill("sing"), "", "").await;
    scene.agent.on_stream(|_| {
        let parts = json!([{ "data": { "degrees": 21 } }]);
        let task = json!({ "id": RAW_TASK, "contextId": RAW_CONTEXT, "status": { "state": "TASK_STATE_COMPLETED" },
            "artifacts": [{ "artifactId": "a", "parts": parts }] });
        Reply::events([json!({ "task": task })])
    });
    let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": { "name": TOOL, "arguments": { "text": "x" } } });
    for (version, is_structured) in [("2025-03-26", false), ("2025-06-18", true), ("2025-11-25", true)] {
        let answer = scene.gateway.client().post(&call, &[("MCP-Protocol-Version", version)]).await;
        let result = answer.json().await["result"].clone();
        assert_eq!(result.get("structuredContent").is_some(), is_structured, "{version}: {result}");
    }
}
