//! Questions of frameworks: they are shown whole, and answered in the form that the framework
//! takes.

use serde_json::{Value, json};

use crate::kit::quiz::{Quiz, accept, again, answers, asked_by_form, begun, called, first, key_of, keyed};
use crate::kit::scene::{RAW_CONTEXT, RAW_TASK, Scene, TOOL, complaint, task_of, words};
use crate::support::payload::v1;
use crate::support::{Card, Reply, in_order};

/// A question of these parts.
fn asks(parts: Value) -> Value {
    let message = json!({ "messageId": format!("asked-{parts}"), "role": "ROLE_AGENT", "parts": parts });
    json!({ "status": { "state": "TASK_STATE_INPUT_REQUIRED", "message": message } })
}

/// Google ADK: one data part and no text. The tool wants a confirmation.
fn confirmation() -> Value {
    let call = json!({ "name": "pay", "args": { "sum": 5 } });
    let args = json!({ "originalFunctionCall": call, "toolConfirmation": { "hint": "Pay 5 EUR?" } });
    let data = json!({ "id": "call-1", "name": "adk_request_confirmation", "args": args });
    asks(json!([{ "data": data, "metadata": { "adk_type": "function_call", "adk_is_long_running": true } }]))
}

/// Strands: text, and the interrupts as data.
fn interrupts(ids: &[&str]) -> Value {
    let all: Vec<Value> =
        ids.iter().map(|id| json!({ "interruptId": id, "name": "pay", "reason": id })).collect();
    asks(json!([{ "text": "Agent requires input:" }, { "data": { "interrupts": all } }]))
}

async fn scene(question: Value) -> Scene {
    let scene = Scene::new().await;
    Quiz::of(&scene.agent, [question]);
    scene
}

/// The result of one of the gateway's own tools.
async fn own(scene: &Scene, name: &str, arguments: Value) -> Value {
    let call = json!({ "name": name, "arguments": arguments });
    scene.gateway.client().modern("tools/call", call).await.result().await
}

fn confirmed(confirmed: bool) -> Value {
    let response = json!({ "confirmed": confirmed });
    let data = json!({ "id": "call-1", "name": "adk_request_confirmation", "response": response });
    json!([{ "data": data, "metadata": { "adk_type": "function_response" } }])
}

#[tokio::test]
async fn confirmation_is_taken_as_data() {
    for tool in ["subagent_send", TOOL] {
        let scene = scene(confirmation()).await;
        let asked = scene.said("pay").await;
        for part in ["Pay 5 EUR?", "\"sum\": 5", "data: {\"confirmed\": true}"] {
            assert!(words(&asked).contains(part), "{part}: {asked}");
            let structured = asked["structuredContent"]["text"].as_str().unwrap();
            assert!(structured.contains(part), "{part}: {asked}");
        }
        let task = task_of(&asked);
        let refused = own(&scene, tool, json!({ "taskId": task, "text": "yes" })).await;
        assert!(complaint(&refused).contains("data: {\"confirmed\": true}"), "{refused}");
        let both = json!({ "taskId": task, "text": "but hurry", "data": { "confirmed": true } });
        assert!(complaint(&own(&scene, tool, both).await).contains("nothing beside it"));
        assert!(answers(&scene.agent).is_empty(), "nothing was sent");
        own(&scene, tool, json!({ "taskId": task, "data": { "confirmed": true } })).await;
        let result = own(&scene, "subagent_wait", json!({ "taskId": task })).await;
        assert_eq!(words(&result), "thank you");
        assert_eq!(answers(&scene.agent)[0]["parts"], confirmed(true), "{tool}");
    }
}

#[tokio::test]
async fn confirmation_is_elicited_by_form() {
    let scene = scene(confirmation()).await;
    let client = asked_by_form(&scene.gateway);
    let call = first("pay");
    let asked = called(&client, &call).await;
    let params = &asked["inputRequests"][key_of(&asked)]["params"];
    assert!(params["message"].as_str().unwrap().contains("Pay 5 EUR?"), "{asked}");
    assert_eq!(params["requestedSchema"]["properties"]["confirmed"]["type"], "boolean");
    let answer = keyed(&asked, accept(json!({ "confirmed": false })));
    assert_eq!(words(&called(&client, &again(&call, &asked, answer)).await), "thank you");
    assert_eq!(answers(&scene.agent)[0]["parts"], confirmed(false));
}

#[tokio::test]
async fn interrupt_takes_text_as_response() {
    let scene = scene(interrupts(&["i1"])).await;
    let asked = scene.said("pay").await;
    assert!(words(&asked).contains("Give the answer as text"), "{asked}");
    own(&scene, "subagent_send", json!({ "taskId": task_of(&asked), "text": "y" })).await;
    let response = json!({ "interruptId": "i1", "response": "y" });
    assert_eq!(answers(&scene.agent)[0]["parts"], json!([{ "data": { "interruptResponse": response } }]));
}

#[tokio::test]
async fn interrupts_are_answered_together() {
    let scene = scene(interrupts(&["i1", "i2"])).await;
    let asked = scene.said("pay").await;
    let task = task_of(&asked);
    let text = words(&asked).to_owned();
    let refused = own(&scene, "subagent_send", json!({ "taskId": task, "text": "y" })).await;
    assert!(complaint(&refused).contains("an object with"), "{refused}");
    let keys: Vec<&str> = text.split('"').filter(|piece| piece.starts_with("q-")).collect();
    let data = json!({ keys[0]: "y", keys[1]: "n" });
    own(&scene, "subagent_send", json!({ "taskId": task, "data": data })).await;
    let response = |id: &str, said: &str| json!({ "data": { "interruptResponse": { "interruptId": id, "response": said } } });
    assert_eq!(answers(&scene.agent)[0]["parts"], json!([response("i1", "y"), response("i2", "n")]));
}

/// LangGraph asks without a message: the question is an artifact.
#[tokio::test]
async fn paused_artifact_is_the_question() {
    let scene = Scene::new().await;
    let mut task = v1::bare_task(RAW_TASK, RAW_CONTEXT, "input-required");
    let value = json!({ "value": "Delete all 7 files?" });
    task["artifacts"] = json!([{ "artifactId": "i", "name": "Interrupt", "parts": [{ "data": value }] }]);
    let asked = task.clone();
    scene.agent.on_send(in_order([
        Reply::events([begun(), json!({ "task": asked })]),
        Reply::events([v1::completed(RAW_TASK, RAW_CONTEXT, "deleted")]),
    ]));
    scene.agent.on_get(move |_| Reply::result(task.clone()));
    let result = scene.said("clean up").await;
    assert!(words(&result).contains("Delete all 7 files?"), "{result}");
    assert!(
        result["structuredContent"]["text"].as_str().unwrap().contains("Delete all 7 files?"),
        "{result}"
    );
    let task = task_of(&result);
    let seen = own(&scene, "subagent_get", json!({ "taskId": task })).await;
    assert!(words(&seen).contains("Delete all 7 files?"), "{seen}");
    let client = asked_by_form(&scene.gateway);
    let asked = called(&client, &json!({ "name": TOOL, "arguments": { "taskId": task } })).await;
    let params = &asked["inputRequests"][key_of(&asked)]["params"];
    assert!(params["message"].as_str().unwrap().contains("Delete all 7 files?"), "{asked}");
    let done = scene.call(json!({ "taskId": task, "text": "yes" })).await.result().await;
    assert_eq!(words(&done), "deleted");
    assert_eq!(done.get("structuredContent"), None, "the data of the question is no output: {done}");
}

/// The artifacts of the turn stand beside a question that has words.
#[tokio::test]
async fn artifacts_beside_question_are_shown() {
    let scene = Scene::of(Card::v1().skill("sing"), "", "").await;
    scene.agent.on_send(|_| {
        let draft = v1::artifact_update(RAW_TASK, RAW_CONTEXT, "a draft", false, true);
        Reply::events([begun(), draft, v1::asking(RAW_TASK, RAW_CONTEXT, "Is it good?")])
    });
    let asked = scene.said("write").await;
    assert_eq!(asked["content"][1]["text"], "a draft", "{asked}");
    let text = asked["structuredContent"]["text"].as_str().unwrap();
    assert!(text.contains("Is it good?") && text.contains("a draft"), "{asked}");
}

#[tokio::test]
async fn refused_answer_may_take_another_form() {
    let scene = Scene::new().await;
    let question = || v1::asking(RAW_TASK, RAW_CONTEXT, "Which colour?");
    scene.agent.on_send(in_order([
        Reply::events([begun(), question()]),
        Reply::error(-32602, "only data is taken"),
        Reply::events([v1::completed(RAW_TASK, RAW_CONTEXT, "blue it is")]),
    ]));
    scene.agent.on_get(move |_| Reply::result(question()["task"].clone()));
    let task = task_of(&scene.said("paint").await);
    let refused = scene.call(json!({ "taskId": task, "text": "blue" })).await.result().await;
    let text = refused["content"].to_string();
    assert!(text.contains("only data is taken") && text.contains("refused this answer"), "{refused}");
    assert!(!text.contains("Give the answer as text"), "{refused}");
    let data = json!({ "colour": "blue" });
    let sent = own(&scene, "subagent_send", json!({ "taskId": task, "data": data })).await;
    assert_eq!(sent["isError"], false, "{sent}");
    let last = answers(&scene.agent).pop().unwrap();
    assert_eq!(last["parts"], json!([{ "data": { "colour": "blue" } }]));
}

#[tokio::test]
async fn files_are_sent_within_task() {
    let scene = scene(asks(json!([{ "text": "Which picture?" }]))).await;
    let task = task_of(&scene.said("paint").await);
    let file = json!({ "bytes": "QUJD", "mediaType": "image/png", "name": "a.png", "url": "" });
    own(&scene, "subagent_send", json!({ "taskId": task, "text": "", "data": {}, "files": [file] })).await;
    let part = json!({ "raw": "QUJD", "mediaType": "image/png", "filename": "a.png" });
    assert_eq!(answers(&scene.agent)[0]["parts"], json!([part]));
}
