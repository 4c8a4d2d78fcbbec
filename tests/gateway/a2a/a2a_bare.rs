//! Agents that are called by the routes of HTTP+JSON only, behind the A2A endpoint: clients of
//! either binding and of any version reach them.

use serde_json::{Value, json};

use crate::auth::rules::auth;
use crate::kit::a2a_scene::{Stage, call, saying};
use crate::support::payload::v1;
use crate::support::{Answer, Card, Log, Reply, Request};

const TASK: &str = "agent-task-1";
const CONTEXT: &str = "agent-context-1";
const TYPE: &str = "application/a2a+json";

async fn stage(settings: &str) -> Stage {
    let stage = Stage::with(Card::http_json("", "").skill("sing"), settings, "").await;
    let done = v1::bare_completed(TASK, CONTEXT, "la");
    let sent = json!({ "task": done });
    stage.agent.on_path("/message:send", move |_| Reply::json(&sent).content_type(TYPE));
    for query in ["", "?historyLength=3"] {
        let done = done.clone();
        stage.agent.on_path(&format!("/tasks/{TASK}{query}"), move |_| Reply::json(&done));
    }
    stage.agent.on_path(&format!("/tasks/{TASK}:cancel"), |_| refusal(400, "TASK_NOT_CANCELABLE"));
    stage.agent.on_path("/message:stream", |_| {
        Reply::stream()
            .bare_event(&v1::task(TASK, CONTEXT, "working"))
            .bare_event(&v1::artifact_update(TASK, CONTEXT, "la", false, true))
            .bare_event(&v1::status_update(TASK, CONTEXT, "completed", None))
    });
    stage
}

fn refusal(status: u16, reason: &str) -> Reply {
    let info = json!({
        "@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": reason, "domain": "a2a-protocol.org",
    });
    let error = json!({ "code": status, "status": "X", "message": "no", "details": [info] });
    Reply::json(&json!({ "error": error })).with_status(status)
}

/// A request of HTTP+JSON, to a path below the agent's.
async fn rest(stage: &Stage, verb: &str, path: &str, body: Option<&Value>) -> Answer {
    let headers = [("Content-Type", TYPE), ("A2A-Version", "1.0")];
    let body = body.map(|body| body.to_string().into_bytes()).unwrap_or_default();
    stage.client().at(&format!("/a2a/bard{path}")).send(verb, &headers, body).await
}

/// The requests that came at this path.
fn asked(log: &Log, path: &str) -> Request {
    (*log.hits(path).last().unwrap_or_else(|| panic!("nothing was asked at {path}"))).clone()
}

#[tokio::test]
async fn json_rpc_client_reaches_it() {
    let stage = stage("").await;
    let client = stage.client();
    let sent = call(&client, "SendMessage", saying("sing")).await.json().await;
    assert_eq!((&sent["id"], &sent["result"]["task"]["id"]), (&json!("call-1"), &json!(TASK)));
    assert_eq!(asked(&stage.agent.log(), "/message:send").json(), saying("sing"), "the body is the params");
    let got = call(&client, "GetTask", json!({ "id": TASK, "historyLength": 3 })).await.result().await;
    assert_eq!(got["artifacts"][0]["parts"][0]["text"], "la");
    let refused = call(&client, "CancelTask", json!({ "id": TASK })).await.json().await;
    assert_eq!(
        (&refused["error"]["code"], &refused["error"]["data"][0]["reason"]),
        (&json!(-32002), &json!("TASK_NOT_CANCELABLE"))
    );
    let mut stream = call(&client, "SendStreamingMessage", saying("sing")).await;
    let first = stream.next_message().await;
    assert_eq!((&first["id"], &first["result"]["task"]["id"]), (&json!("call-1"), &json!(TASK)));
    assert_eq!(stream.next_message().await["result"]["artifactUpdate"]["taskId"], TASK);
    let extension = call(&client, "acme/tune", json!({})).await.json().await;
    assert_eq!(extension["error"]["code"], -32004, "{extension}");
    let missing = call(&client, "GetTask", json!({ "id": "nobodys" })).await.json().await;
    assert_eq!(missing["error"]["code"], -32603, "a page that is not the agent's word: {missing}");
}

#[tokio::test]
async fn same_binding_client_reads_its_bytes() {
    let stage = stage("").await;
    let body = r#"{ "task" : {"id":"t", "x":1e2 }}"#;
    stage.agent.on_path("/message:send", move |_| Reply::bytes_of(TYPE, body.as_bytes()));
    let sent = rest(&stage, "POST", "/message:send", Some(&saying("x"))).await;
    assert_eq!((sent.status, sent.header("content-type")), (200, Some(TYPE)));
    assert_eq!(sent.text().await, body);
    let refused = rest(&stage, "POST", &format!("/tasks/{TASK}:cancel"), None).await;
    assert_eq!(refused.status, 400);
    assert_eq!(refused.json().await["error"]["details"][0]["reason"], "TASK_NOT_CANCELABLE");
    let events = rest(&stage, "POST", "/message:stream", Some(&saying("x"))).await.text().await;
    assert!(events.starts_with(&format!("data: {}\n\n", v1::task(TASK, CONTEXT, "working"))), "{events}");
}

#[tokio::test]
async fn client_of_0_3_reaches_it() {
    let stage = stage("").await;
    let part = json!({ "kind": "text", "text": "sing" });
    let params =
        json!({ "message": { "kind": "message", "messageId": "m", "role": "user", "parts": [part] } });
    let request = |method: &str| json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params });
    let task = stage.client().post(&request("message/send"), &[]).await.result().await;
    assert_eq!((&task["kind"], &task["status"]["state"]), (&json!("task"), &json!("completed")));
    assert_eq!(
        asked(&stage.agent.log(), "/message:send").json()["message"]["parts"],
        json!([{ "text": "sing" }])
    );
    let mut stream = stage.client().post(&request("message/stream"), &[]).await;
    let kinds = [stream.next_message().await, stream.next_message().await, stream.next_message().await];
    let kinds = kinds.map(|event| event["result"]["kind"].clone());
    assert_eq!(kinds, ["task", "artifact-update", "status-update"]);
}

#[tokio::test]
async fn ids_are_handles_of_caller() {
    let stage = stage(&auth(&["ann", "ben"])).await;
    let sent = call(&stage.by("ann"), "SendMessage", saying("sing")).await.result().await;
    let handle = sent["task"]["id"].clone();
    assert_ne!(handle, TASK);
    let got = call(&stage.by("ann"), "GetTask", json!({ "id": handle })).await.result().await;
    assert_eq!(got["id"], handle);
    assert_eq!(call(&stage.by("ben"), "GetTask", json!({ "id": handle })).await.error_code().await, -32001);
    let events = call(&stage.by("ann"), "SendStreamingMessage", saying("x")).await.text().await;
    assert!(!events.contains(TASK) && events.contains(handle.as_str().unwrap()), "{events}");
}

#[tokio::test]
async fn empty_answer_is_an_answer() {
    let stage = stage("").await;
    let path = format!("/tasks/{TASK}/pushNotificationConfigs/p");
    stage.agent.on_path(&path, |_| Reply::status(204, ""));
    let params = json!({ "taskId": TASK, "id": "p" });
    let deleted = call(&stage.client(), "DeleteTaskPushNotificationConfig", params).await.json().await;
    assert_eq!(deleted.get("error"), None, "{deleted}");
    assert_eq!(asked(&stage.agent.log(), &path).method, "DELETE");
    let deleted = rest(&stage, "DELETE", &path, None).await;
    assert_eq!((deleted.status, deleted.text().await.as_str()), (200, "{}"));
}

#[tokio::test]
async fn subscription_uses_verb_of_agent() {
    let stage = stage("").await;
    stage.agent.on_path(&format!("/tasks/{TASK}:subscribe"), |request| match request.method.as_str() {
        "GET" => Reply::stream().bare_event(&v1::task(TASK, CONTEXT, "working")),
        _ => Reply::status(405, "no"),
    });
    let mut stream = call(&stage.client(), "SubscribeToTask", json!({ "id": TASK })).await;
    assert_eq!(stream.next_message().await["result"]["task"]["id"], TASK);
}

#[tokio::test]
async fn extended_card_of_0_2_has_own_path() {
    let card = Card::v0_3()
        .skill("sing")
        .set("protocolVersion", "0.2.5")
        .set("supportsAuthenticatedExtendedCard", true);
    let extended = json!({ "name": "Bard", "url": "http://inside/", "version": "1", "skills": [{ "id": "secret", "name": "s" }] });
    let stage = Stage::with(card, "", "").await;
    stage.agent.on_path("/agent/authenticatedExtendedCard", move |_| Reply::json(&extended));
    let request = json!({ "jsonrpc": "2.0", "id": 3, "method": "agent/getAuthenticatedExtendedCard" });
    let card = stage.client().post(&request, &[]).await.result().await;
    assert_eq!(card["skills"][0]["id"], "secret");
    assert!(card["url"].as_str().unwrap().ends_with("/a2a/bard"), "{card}");
    assert_eq!(asked(&stage.agent.log(), "/agent/authenticatedExtendedCard").method, "GET");
    let rest = rest(&stage, "GET", "/agent/authenticatedExtendedCard", None).await.json().await;
    assert_eq!(rest["skills"][0]["id"], "secret");
}
