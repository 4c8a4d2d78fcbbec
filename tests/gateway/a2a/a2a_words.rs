//! The A2A endpoint where ids are sealed: the words of an agent's errors name no id of its own.

use serde_json::{Value, json};

use crate::auth::rules::auth;
use crate::kit::a2a_scene::{Stage, call, saying, saying_in};
use crate::support::payload::v1;
use crate::support::{Card, Reply};

const TASK: &str = "agent-task-1";
/// Named by an error also where the exchange has not named it.
const CONTEXT: &str = "c0ffee00-1111-4222-8333-444455556666";
/// One of a task that no client has heard of.
const UNHEARD: &str = "011534fb-ab96-4c5d-8e6f-0123456789ab";

/// A caller that has begun a task, and its handles.
async fn stage() -> (Stage, Value, Value) {
    let card = Card::v1().skill("sing").set("capabilities", json!({ "streaming": true }));
    let stage = Stage::with(card, &auth(&["ann"]), "").await;
    stage.agent.on("SendMessage", |_| Reply::result(v1::task(TASK, CONTEXT, "working")));
    let begun = call(&stage.by("ann"), "SendMessage", saying("x")).await.result().await["task"].clone();
    (stage, begun["id"].clone(), begun["contextId"].clone())
}

/// An error with a text full of ids.
fn error() -> Value {
    let info = json!({
        "@type": "type.googleapis.com/google.rpc.ErrorInfo",
        "reason": "UNSUPPORTED_OPERATION",
        "domain": "a2a-protocol.org",
        "metadata": { "taskId": TASK, "other": UNHEARD, (format!("task:{TASK}")): "1" },
    });
    let message = format!("Task {TASK} of '{CONTEXT}' is in terminal state, as is {UNHEARD}");
    json!({ "code": -32004, "message": message, "data": [info] })
}

fn is_clean(text: &str) -> bool {
    [TASK, CONTEXT, UNHEARD].iter().all(|id| !text.contains(id))
}

#[tokio::test]
async fn rpc_error_names_caller_handles() {
    let (stage, task, context) = stage().await;
    let answer = json!({ "jsonrpc": "2.0", "id": "call-1", "error": error() });
    stage.agent.on("SendMessage", move |_| Reply::json(&answer));
    let refused =
        call(&stage.by("ann"), "SendMessage", saying_in(&task, &context, "more")).await.json().await;
    assert!(is_clean(&refused.to_string()), "{refused}");
    let message = refused["error"]["message"].as_str().unwrap();
    let (task, context) = (task.as_str().unwrap(), context.as_str().unwrap());
    assert!(message.starts_with(&format!("Task {task} of '{context}' is in terminal state")), "{message}");
    let info = &refused["error"]["data"][0];
    assert_eq!(
        (&refused["error"]["code"], &info["reason"]),
        (&json!(-32004), &json!("UNSUPPORTED_OPERATION"))
    );
    assert_eq!(info["metadata"]["taskId"], task);
    assert_eq!(refused["id"], "call-1");
}

#[tokio::test]
async fn status_error_names_caller_handles() {
    let (stage, task, _) = stage().await;
    let answer = json!({ "jsonrpc": "2.0", "id": "call-1", "error": error() });
    stage.agent.on_get(move |_| Reply::json(&answer).with_status(400));
    let refused = call(&stage.by("ann"), "GetTask", json!({ "id": task })).await.text().await;
    assert!(refused.contains("-32004") && is_clean(&refused), "{refused}");
    stage.agent.on_stream(|_| {
        let begun = Reply::stream().event(v1::task("agent-task-2", CONTEXT, "working"));
        begun.error_event(-32603, "agent-task-2 broke")
    });
    let mut answer = call(&stage.by("ann"), "SendStreamingMessage", saying("x")).await;
    let begun = answer.next_message().await["result"]["task"]["id"].clone();
    let last = answer.next_message().await;
    assert_eq!(last["error"]["message"], format!("{} broke", begun.as_str().unwrap()));
}

#[tokio::test]
async fn http_json_error_names_caller_handles() {
    let (stage, task, _) = stage().await;
    let answer = json!({ "jsonrpc": "2.0", "id": 1, "error": error() });
    stage.agent.on_cancel(move |_| Reply::json(&answer));
    let path = format!("/a2a/bard/tasks/{}:cancel", task.as_str().unwrap());
    let refused = stage.by("ann").at(&path).send("POST", &[], Vec::new()).await;
    assert_eq!(refused.status, 400);
    let refused = refused.json().await;
    assert!(is_clean(&refused.to_string()), "{refused}");
    assert_eq!(refused["error"]["details"][0]["metadata"]["taskId"], task);
}

#[tokio::test]
async fn ambiguous_answer_stays_with_gateway() {
    let (stage, task, _) = stage().await;
    for status in [200, 400] {
        for answer in [
            json!({ "id": "call-1", "result": { "id": TASK }, "error": { "code": -32001, "message": "x" } }),
            json!({ "id": "call-1", "task": { "id": TASK } }),
        ] {
            stage.agent.on_get(move |_| Reply::json(&answer).with_status(status));
            let refused = call(&stage.by("ann"), "GetTask", json!({ "id": task })).await.json().await;
            assert_eq!(refused["error"]["code"], -32603, "{refused}");
            assert!(is_clean(&refused.to_string()), "{refused}");
        }
    }
}
