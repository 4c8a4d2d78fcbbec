//! The binding HTTP+JSON of A2A 1.0 at the A2A endpoint, before an agent that speaks JSON-RPC.

use serde_json::{Value, json};

use crate::auth::rules::auth;
use crate::kit::a2a_scene::{Stage, call, saying};
use crate::support::payload::v1;
use crate::support::{Answer, Card, McpClient, Reply};

async fn post(client: &McpClient, path: &str, body: &Value) -> Answer {
    let headers = [("Content-Type", "application/a2a+json"), ("A2A-Version", "1.0")];
    client.at(&format!("/a2a/bard{path}")).send("POST", &headers, body.to_string().into_bytes()).await
}

async fn get(client: &McpClient, path: &str) -> Answer {
    client.at(&format!("/a2a/bard{path}")).get(&[("A2A-Version", "1.0")]).await
}

#[tokio::test]
async fn path_request_becomes_method_of_agent() {
    let mut card = Card::v1().skill("sing");
    card.json["supportedInterfaces"][0]["tenant"] = "acme".into();
    let stage = Stage::with(card, "", "").await;
    let client = stage.client();
    stage.agent.on("SendMessage", |_| Reply::result(v1::task("t", "c", "working")));
    let sent = post(&client, "/message:send", &saying("x")).await;
    assert_eq!((sent.status, sent.header("content-type")), (200, Some("application/a2a+json")));
    assert_eq!(sent.json().await, v1::task("t", "c", "working"));
    let asked = stage.agent.wait_for_call("SendMessage").await;
    assert_eq!(
        (&asked.params()["message"], &asked.params()["tenant"]),
        (&saying("x")["message"], &json!("acme"))
    );
    stage.agent.on_get(|_| Reply::result(v1::bare_task("t/1", "c", "working")));
    assert_eq!(get(&client, "/tasks/t%2F1?historyLength=3").await.json().await["id"], "t/1");
    let asked = stage.agent.wait_for_call("GetTask").await.params();
    assert_eq!(asked, json!({ "id": "t/1", "historyLength": 3, "tenant": "acme" }));
    stage.agent.on_cancel(|_| Reply::result(v1::bare_task("t", "c", "canceled")));
    let cancelled = client.at("/a2a/bard/tasks/t:cancel").send("POST", &[], Vec::new()).await.json().await;
    assert_eq!(cancelled["status"]["state"], "TASK_STATE_CANCELED");
    stage.agent.on("DeleteTaskPushNotificationConfig", |_| Reply::result(Value::Null));
    let path = "/a2a/bard/tasks/t/pushNotificationConfigs/c";
    assert_eq!(client.at(path).send("DELETE", &[], Vec::new()).await.json().await, json!({}));
    let asked = stage.agent.wait_for_call("DeleteTaskPushNotificationConfig").await.params();
    assert_eq!(asked, json!({ "taskId": "t", "id": "c", "tenant": "acme" }));
}

#[tokio::test]
async fn stream_has_caller_ids_no_envelopes() {
    let stage = Stage::with(Card::v1().skill("sing"), &auth(&["ann"]), "").await;
    let events = || [v1::task("t", "c", "working"), v1::status_update("t", "c", "completed", None)];
    stage.agent.on_stream(move |_| Reply::events(events()));
    stage.agent.on_subscribe(move |_| Reply::events(events()).error_event(-32603, "broke"));
    let ann = stage.by("ann");
    let mut answer = post(&ann, "/message:stream", &saying("x")).await;
    assert!(answer.is_stream());
    let task = answer.next_message().await["task"]["id"].clone();
    assert_eq!(answer.next_message().await["statusUpdate"]["taskId"], task);
    assert!(answer.next_event().await.is_none() && task != "t");
    let mut again = get(&ann, &format!("/tasks/{}:subscribe", task.as_str().unwrap())).await;
    assert_eq!(again.next_message().await["task"]["id"], task);
    again.next_message().await;
    let last = again.next_event().await.unwrap();
    assert_eq!((last.name.as_str(), &last.json()["error"]["code"]), ("error", &json!(500)));
    assert_eq!(stage.agent.wait_for_call("SubscribeToTask").await.params()["id"], "t");
}

#[tokio::test]
async fn errors_have_form_of_binding() {
    let stage = Stage::new().await;
    let client = stage.client();
    let data = json!([{ "@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "TASK_NOT_FOUND" }]);
    let (error, told) = (json!({ "code": -32001, "message": "Task not found", "data": data }), data.clone());
    let answer = json!({ "jsonrpc": "2.0", "id": 1, "error": error });
    stage.agent.on_get(move |_| Reply::json(&answer));
    let refused = get(&client, "/tasks/t").await;
    assert_eq!((refused.status, refused.header("content-type")), (404, Some("application/json")));
    let expected =
        json!({ "code": 404, "status": "NOT_FOUND", "message": "Task not found", "details": told });
    assert_eq!(refused.json().await["error"], expected);
    stage.agent.on_get(|_| Reply::status(401, "no"));
    let refused = get(&client, "/tasks/t").await;
    assert_eq!((refused.status, refused.header("www-authenticate")), (500, None));
    for (method, path, status) in [
        ("GET", "/message:send", 405),
        ("GET", "/nowhere", 404),
        ("GET", "/acme/tasks/t", 404),
        ("GET", "/tasks/t?historyLength=x{}", 400),
        ("POST", "/message:send", 415),
    ] {
        let refused = client.at(&format!("/a2a/bard{path}")).send(method, &[], b"x".to_vec()).await;
        assert_eq!(refused.status, status, "{method} {path}");
        assert_eq!(refused.json().await["error"]["code"], status, "{method} {path}");
    }
    assert_eq!(post(&client, "/message:send", &json!([1])).await.status, 400);
}

#[tokio::test]
async fn each_a2a_error_has_its_status() {
    let stage = Stage::new().await;
    for (code, status, word) in [
        (-32700, 400, "INVALID_ARGUMENT"),
        (-32600, 400, "INVALID_ARGUMENT"),
        (-32601, 404, "NOT_FOUND"),
        (-32602, 400, "INVALID_ARGUMENT"),
        (-32603, 500, "INTERNAL"),
        (-32001, 404, "NOT_FOUND"),
        (-32002, 400, "FAILED_PRECONDITION"),
        (-32003, 400, "FAILED_PRECONDITION"),
        (-32004, 400, "FAILED_PRECONDITION"),
        (-32005, 400, "INVALID_ARGUMENT"),
        (-32006, 500, "INTERNAL"),
        (-32007, 400, "FAILED_PRECONDITION"),
        (-32008, 400, "FAILED_PRECONDITION"),
        (-32009, 400, "FAILED_PRECONDITION"),
        (-32099, 500, "INTERNAL"),
    ] {
        stage.agent.on_get(move |_| Reply::error(code, "no"));
        let refused = get(&stage.client(), "/tasks/t").await;
        assert_eq!(refused.status, status, "{code}");
        assert_eq!(refused.json().await["error"]["status"], word, "{code}");
    }
    let other = stage.client().at("/a2a/bard/tasks/t").get(&[("A2A-Version", "9.9")]).await.json().await;
    assert_eq!(
        (&other["error"]["code"], &other["error"]["status"]),
        (&json!(400), &json!("FAILED_PRECONDITION"))
    );
    assert_eq!(get(&stage.client(), "/nowhere").await.json().await["error"]["status"], "NOT_FOUND");
}

#[tokio::test]
async fn both_bindings_share_handles() {
    let stage = Stage::with(Card::v1().skill("sing"), &auth(&["ann", "ben"]), "").await;
    stage.agent.on("SendMessage", |_| Reply::result(v1::task("raw-task", "raw-context", "working")));
    stage.agent.on_get(|_| Reply::result(v1::bare_task("raw-task", "raw-context", "working")));
    let by_rpc =
        call(&stage.by("ann"), "SendMessage", saying("x")).await.result().await["task"]["id"].clone();
    let path = format!("/tasks/{}", by_rpc.as_str().unwrap());
    assert_eq!(get(&stage.by("ann"), &path).await.json().await["id"], by_rpc);
    let refused = get(&stage.by("ben"), &path).await;
    assert_eq!((refused.status, refused.json().await["error"]["status"].clone()), (404, json!("NOT_FOUND")));
    assert_eq!(get(&stage.by("ann"), "/tasks/raw-task").await.status, 404);
}
