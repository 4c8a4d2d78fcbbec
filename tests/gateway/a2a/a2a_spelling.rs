//! Requests that a careless server would read otherwise than the gateway does: members in other
//! letters, or twice.

use serde_json::{Value, json};

use crate::auth::rules::auth;
use crate::kit::a2a_scene::{Stage, call};
use crate::support::payload::v1;
use crate::support::{Card, Reply};

const THEIRS: &str = "the-task-of-somebody-else";

async fn asked(stage: &Stage, body: &str) -> Value {
    let headers =
        [("Content-Type", "application/json"), ("A2A-Version", "1.0"), ("Accept", "application/json")];
    stage.by("ann").send("POST", &headers, body.as_bytes().to_vec()).await.json().await
}

#[tokio::test]
async fn id_in_other_letters_never_passes() {
    let stage = Stage::with(Card::v1().skill("sing"), &auth(&["ann"]), "").await;
    for method in ["GetTask", "CancelTask", "SendMessage"] {
        stage.agent.on(method, |_| Reply::result(v1::bare_task(THEIRS, "c", "working")));
    }
    for (method, params) in [
        ("GetTask", json!({ "ID": THEIRS })),
        ("GetTask", json!({ "id": "", "Id": THEIRS })),
        ("GetTask", json!({ "İd": THEIRS, "iD": THEIRS })),
        (
            "SendMessage",
            json!({ "message": { "messageId": "m", "taſkId": THEIRS, "parts": [{ "text": "x" }] } }),
        ),
        (
            "SendMessage",
            json!({ "Message": { "messageId": "m", "taskId": THEIRS, "parts": [{ "text": "x" }] } }),
        ),
        ("GetTask", json!({ "id": "", "Tenant": "other" })),
    ] {
        let answer = call(&stage.by("ann"), method, params.clone()).await.json().await;
        assert_eq!(answer["error"]["code"], -32602, "{params}: {answer}");
    }
    let twice = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{{"id":""}},"METHOD":"CancelTask","PARAMS":{{"id":"{THEIRS}"}}}}"#
    );
    assert_eq!(asked(&stage, &twice).await["error"]["code"], -32600);
    assert!(stage.agent.requests().iter().all(|request| request.method == "GET"), "the agent heard nothing");
}

#[tokio::test]
async fn duplicate_push_url_is_refused() {
    let stage = Stage::new().await;
    stage.agent.on("SendMessage", |_| Reply::result(v1::message("la")));
    stage.agent.on("CreateTaskPushNotificationConfig", |request| Reply::result(request.params()));
    let message = r#""message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"x"}]}"#;
    let inside = r#""configuration":{"taskPushNotificationConfig":{"url":"http://169.254.169.254/"}}"#;
    for (method, params) in [
        ("SendMessage", format!(r#"{{{message},"z":1,"z":2,{inside}}}"#)),
        ("SendMessage", format!(r#"{{{message},"Configuration":{{}},{inside}}}"#)),
        (
            "CreateTaskPushNotificationConfig",
            r#"{"taskId":"t","url":"https://93.184.216.34/","url":"http://169.254.169.254/"}"#.to_owned(),
        ),
        ("CreateTaskPushNotificationConfig", r#"{"taskId":"t","URL":"http://169.254.169.254/"}"#.to_owned()),
    ] {
        let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#);
        let answer = asked(&stage, &body).await;
        assert!(answer["error"]["code"].is_number(), "{body}: {answer}");
    }
    assert!(stage.agent.requests().iter().all(|request| request.method == "GET"), "the agent heard nothing");
}
