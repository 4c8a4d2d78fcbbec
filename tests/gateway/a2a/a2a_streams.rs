//! Streams at the A2A endpoint that are rewritten on their way: their ends, and the rest of odd
//! ones.

use serde_json::{Value, json};

use crate::auth::rules::auth;
use crate::kit::a2a_scene::{Stage, call, saying};
use crate::support::payload::{v0_1, v0_3, v1};
use crate::support::{Answer, Card, Reply};

const TASK: &str = "agent-task-1";
const CONTEXT: &str = "agent-context-1";

/// A stream for a client of 0.3.
async fn streamed_in_0_3(stage: &Stage) -> Answer {
    let part = json!({ "kind": "text", "text": "x" });
    let params =
        json!({ "message": { "kind": "message", "messageId": "m", "role": "user", "parts": [part] } });
    let request = json!({ "jsonrpc": "2.0", "id": "call-1", "method": "message/stream", "params": params });
    stage.client().post(&request, &[]).await
}

/// The rest of a stream, once it has ended.
async fn all(mut answer: Answer) -> Vec<Value> {
    let mut told = Vec::new();
    while let Some(event) = answer.next_event().await {
        if let Some(data) = event.data {
            told.push(serde_json::from_str(&data).unwrap());
        }
    }
    told
}

#[tokio::test]
async fn stream_ends_at_untranslatable_state() {
    let stage = Stage::with(Card::v0_3().skill("sing"), "", "").await;
    stage.agent.on("message/stream", |_| {
        Reply::stream()
            .event(v0_3::task(TASK, CONTEXT, "working"))
            .event(v0_3::status_update(TASK, CONTEXT, "input-required", Some("Which?"), true))
            .comment("the agent keeps it open")
            .stall()
    });
    let told = all(call(&stage.client(), "SendStreamingMessage", saying("x")).await).await;
    assert_eq!(
        told.last().unwrap()["result"]["statusUpdate"]["status"]["state"],
        "TASK_STATE_INPUT_REQUIRED"
    );
}

#[tokio::test]
async fn stream_with_authorization_ends_once() {
    let stage = Stage::with(Card::v1().skill("sing"), "", "").await;
    stage.agent.on_stream(|_| {
        Reply::stream()
            .event(v1::task(TASK, CONTEXT, "working"))
            .event(v1::status_update(TASK, CONTEXT, "auth-required", Some("Sign in")))
            .event(v1::status_update(TASK, CONTEXT, "working", None))
            .event(v1::status_update(TASK, CONTEXT, "completed", None))
    });
    let told = all(streamed_in_0_3(&stage).await).await;
    let ends: Vec<&Value> = told.iter().filter(|event| event["result"]["final"] == true).collect();
    assert_eq!(ends.len(), 1, "{told:?}");
    assert_eq!(ends[0]["result"]["status"]["state"], "completed");
}

#[tokio::test]
async fn good_events_precede_bad_one() {
    for (settings, dialect) in [(auth(&["ann"]), "sealed"), (String::new(), "translated")] {
        let stage = Stage::with(Card::v0_3().skill("sing"), &settings, "").await;
        stage.agent.on("message/stream", |_| {
            Reply::stream()
                .bytes(b"event: ping\ndata: \n\n")
                .event(v0_3::artifact_update(TASK, CONTEXT, "la", false, true))
                .bytes(b"data: [DONE]\n\n")
                .event(v0_3::status_update(TASK, CONTEXT, "completed", None, true))
                .bytes(b"data: {\"half\":\n\n")
        });
        let told = if dialect == "sealed" {
            let part = json!({ "kind": "text", "text": "x" });
            let message = json!({ "kind": "message", "messageId": "m", "role": "user", "parts": [part] });
            let request = json!({ "jsonrpc": "2.0", "id": 1, "method": "message/stream", "params": { "message": message } });
            all(stage.by("ann").post(&request, &[]).await).await
        } else {
            all(call(&stage.client(), "SendStreamingMessage", saying("x")).await).await
        };
        let text = serde_json::to_string(&told).unwrap();
        assert!(
            text.contains(r#""text":"la""#) && text.to_lowercase().contains("completed"),
            "{dialect}: {text}"
        );
        assert_eq!(
            text.contains("-32603"),
            dialect == "sealed",
            "only what is not read any more is no trouble: {text}"
        );
    }
}

#[tokio::test]
async fn http_json_stream_error_keeps_text() {
    let stage = Stage::with(Card::http_json("", "").skill("sing"), "", "").await;
    stage.agent.on_path("/message:stream", |_| {
        let error = json!({ "error": { "code": 500, "status": "INTERNAL", "message": "boom" } });
        Reply::stream().bytes(b"event: error\n").bare_event(&error)
    });
    let told = all(call(&stage.client(), "SendStreamingMessage", saying("x")).await).await;
    assert_eq!((&told[0]["error"]["code"], &told[0]["error"]["message"]), (&json!(-32603), &json!("boom")));
    let told = all(streamed_in_0_3(&stage).await).await;
    assert_eq!((&told[0]["error"]["code"], &told[0]["error"]["message"]), (&json!(-32603), &json!("boom")));
}

#[tokio::test]
async fn resubscribed_client_gets_state_first() {
    for settings in [String::new(), auth(&["ann"])] {
        let stage = Stage::with(Card::v0_3().skill("sing"), &settings, "").await;
        let client = if settings.is_empty() { stage.client() } else { stage.by("ann") };
        stage.agent.on("message/send", |_| Reply::result(v0_3::task(TASK, CONTEXT, "working")));
        stage.agent.on_get(|_| Reply::result(v0_3::completed(TASK, CONTEXT, "so far")));
        stage.agent.on("tasks/resubscribe", |_| {
            Reply::stream().event(v0_3::status_update(TASK, CONTEXT, "completed", None, true))
        });
        let sent = call(&client, "SendMessage", saying("x")).await.result().await;
        let id = &sent["task"]["id"];
        let told = all(call(&client, "SubscribeToTask", json!({ "id": id })).await).await;
        assert_eq!(told.len(), 2, "{told:?}");
        assert_eq!((&told[0]["id"], &told[0]["result"]["task"]["id"]), (&json!("call-1"), id));
        assert_eq!(told[0]["result"]["task"]["artifacts"][0]["parts"][0]["text"], "so far");
        assert_eq!(&told[1]["result"]["statusUpdate"]["taskId"], id);
        stage.agent.on("tasks/resubscribe", |_| Reply::error(-32001, "Task not found"));
        let refused = call(&client, "SubscribeToTask", json!({ "id": id })).await;
        assert_eq!(refused.error_code().await, -32001);
    }
}

#[tokio::test]
async fn task_without_context_is_readable() {
    let card = Card::v0_1().set("authentication", json!({ "schemes": ["Bearer"] })).skill("sing");
    let stage = Stage::with(card, "", "").await;
    stage.agent.on_get(|request| {
        let mut task = v0_1::completed(request.params()["id"].as_str().unwrap(), "la");
        task.as_object_mut().unwrap().remove("sessionId");
        Reply::result(task)
    });
    let request = json!({ "jsonrpc": "2.0", "id": 1, "method": "tasks/get", "params": { "id": "t" } });
    let task = stage.client().post(&request, &[("A2A-Version", "0.3")]).await.result().await;
    assert!(task["contextId"].is_string(), "{task}");
}
