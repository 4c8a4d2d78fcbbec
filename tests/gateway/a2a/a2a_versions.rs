//! A client and an agent of two versions of A2A, at the A2A endpoint: each is spoken to in its own
//! words, and both mean the same tasks.

use serde_json::{Value, json};

use crate::auth::rules::auth;
use crate::kit::a2a_scene::Stage;
use crate::support::payload::{rest_0_3, v0_1, v0_3, v1};
use crate::support::{Answer, Card, McpClient, Reply, Request};

const TASK: &str = "agent-task-1";
const CONTEXT: &str = "agent-context-1";

/// A version, as a client speaks it.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Speaks {
    V0_1,
    V0_3,
    V1,
}

use Speaks::{V0_1, V0_3, V1};

const ALL: [Speaks; 3] = [V0_1, V0_3, V1];

impl Speaks {
    fn card(self) -> Card {
        match self {
            // Of 0.1 for sure.
            V0_1 => Card::v0_1().set("authentication", json!({ "schemes": ["Bearer"] })),
            V0_3 => Card::v0_3(),
            V1 => Card::v1(),
        }
        .skill("sing")
    }

    /// Its names of the methods that send, stream, get and cancel.
    fn methods(self) -> [&'static str; 4] {
        match self {
            V0_1 => ["tasks/send", "tasks/sendSubscribe", "tasks/get", "tasks/cancel"],
            V0_3 => ["message/send", "message/stream", "tasks/get", "tasks/cancel"],
            V1 => ["SendMessage", "SendStreamingMessage", "GetTask", "CancelTask"],
        }
    }

    async fn call(self, client: &McpClient, method: &str, params: Value) -> Answer {
        let request = json!({ "jsonrpc": "2.0", "id": "call-1", "method": method, "params": params });
        let version: &[(&str, &str)] = if self == V1 { &[("A2A-Version", "1.0")] } else { &[] };
        client.post(&request, version).await
    }

    /// A message, in a task where one is named.
    fn saying(self, text: &str, task: Option<&Value>) -> Value {
        match self {
            V0_1 => json!({
                "id": task.unwrap_or(&json!("mine")), "sessionId": "my-session",
                "message": { "role": "user", "parts": [{ "type": "text", "text": text }] },
            }),
            V0_3 | V1 => {
                let part = if self == V1 {
                    json!({ "text": text })
                } else {
                    json!({ "kind": "text", "text": text })
                };
                let role = if self == V1 { "ROLE_USER" } else { "user" };
                let mut message = json!({ "messageId": "m-1", "role": role, "parts": [part] });
                if let Some(task) = task {
                    message["taskId"] = task.clone();
                }
                json!({ "message": message })
            }
        }
    }

    /// The task in the result of a send.
    fn task(self, result: &Value) -> Value {
        if self == V1 { result["task"].clone() } else { result.clone() }
    }

    /// A task that has been done, and its words, as this version has them.
    fn assert_done(self, task: &Value, text: &str) {
        let (state, part, context) = match self {
            V0_1 => ("completed", json!({ "type": "text", "text": text }), "sessionId"),
            V0_3 => ("completed", json!({ "kind": "text", "text": text }), "contextId"),
            V1 => ("TASK_STATE_COMPLETED", json!({ "text": text }), "contextId"),
        };
        assert_eq!(task["status"]["state"], state, "{self:?}: {task}");
        assert_eq!(task["artifacts"][0]["parts"], json!([part]), "{self:?}: {task}");
        assert!(task[context].is_string(), "{self:?}: {task}");
        assert_eq!(task["kind"] == "task", self == V0_3, "{task}");
    }
}

/// The agent's task, by the id that it has: in 0.1 the client has named it.
fn named(request: &Request) -> String {
    request.params()["id"].as_str().unwrap_or(TASK).to_owned()
}

fn bare_done(speaks: Speaks, request: &Request) -> Value {
    match speaks {
        V0_1 => v0_1::completed(&named(request), "la"),
        V0_3 => v0_3::completed(TASK, CONTEXT, "la"),
        V1 => v1::bare_completed(TASK, CONTEXT, "la"),
    }
}

/// An agent of one version: done at once, or by a stream, and all of it there to be looked at.
async fn stage(agent: Speaks, settings: &str) -> Stage {
    let stage = Stage::with(agent.card(), settings, "").await;
    let [send, stream, get, cancel] = agent.methods();
    stage.agent.on(send, move |request| {
        let done = bare_done(agent, request);
        Reply::result(if agent == V1 { json!({ "task": done }) } else { done })
    });
    stage.agent.on(stream, move |request| {
        let id = named(request);
        Reply::events(match agent {
            V0_1 => vec![
                v0_1::status_update(&id, "working", false),
                v0_1::artifact_update(&id, "la ", false, false),
                v0_1::artifact_update(&id, "la", true, true),
                v0_1::status_update(&id, "completed", true),
            ],
            V0_3 => vec![
                v0_3::task(TASK, CONTEXT, "working"),
                v0_3::artifact_update(TASK, CONTEXT, "la ", false, false),
                v0_3::artifact_update(TASK, CONTEXT, "la", true, true),
                v0_3::status_update(TASK, CONTEXT, "completed", None, true),
            ],
            V1 => vec![
                v1::task(TASK, CONTEXT, "working"),
                v1::artifact_update(TASK, CONTEXT, "la ", false, false),
                v1::artifact_update(TASK, CONTEXT, "la", true, true),
                v1::status_update(TASK, CONTEXT, "completed", None),
            ],
        })
    });
    stage.agent.on(get, move |request| Reply::result(bare_done(agent, request)));
    stage.agent.on(cancel, |_| Reply::error(-32002, "Task cannot be canceled"));
    stage
}

/// Every pair of two versions, where ids are the agent's own and where they are the caller's.
async fn in_every_pair(check: impl AsyncFn(Speaks, Speaks, &Stage, &McpClient)) {
    for agent in ALL {
        for settings in [String::new(), auth(&["ann", "ben"])] {
            let stage = stage(agent, &settings).await;
            let client = if settings.is_empty() { stage.client() } else { stage.by("ann") };
            for speaks in ALL.into_iter().filter(|speaks| *speaks != agent) {
                check(speaks, agent, &stage, &client).await;
            }
        }
    }
}

#[tokio::test]
async fn task_is_translated_to_its_end() {
    in_every_pair(async |speaks, agent, stage, client| {
        let [send, _, get, cancel] = speaks.methods();
        let [agents_send, _, agents_get, _] = agent.methods();
        let result = speaks.call(client, send, speaks.saying("sing", None)).await.result().await;
        let task = speaks.task(&result);
        speaks.assert_done(&task, "la");
        let id = task["id"].clone();
        if speaks == V0_1 {
            assert_eq!((&id, &task["sessionId"]), (&json!("mine"), &json!("my-session")));
        }
        let asked = stage.agent.calls(agents_send).pop().unwrap();
        assert_eq!(asked.header("a2a-version").is_some(), agent == V1);
        let part = match agent {
            V0_1 => json!({ "type": "text", "text": "sing" }),
            V0_3 => json!({ "kind": "text", "text": "sing" }),
            V1 => json!({ "text": "sing" }),
        };
        assert_eq!(asked.message()["parts"], json!([part]), "{speaks:?} -> {agent:?}");
        let got = speaks.call(client, get, json!({ "id": id })).await.result().await;
        speaks.assert_done(&got, "la");
        assert_eq!(
            (&got["id"], got.get("sessionId")),
            (&id, task.get("sessionId")),
            "{speaks:?} -> {agent:?}"
        );
        let agents_id = stage.agent.calls(agents_get).pop().unwrap().params()["id"].clone();
        if agent != V0_1 {
            assert_eq!(agents_id, TASK);
        }
        let again = speaks.call(client, send, speaks.saying("more", Some(&id))).await.result().await;
        assert_eq!(speaks.task(&again)["id"], id);
        let said = stage.agent.calls(agents_send).pop().unwrap();
        let continued =
            if agent == V0_1 { said.params()["id"].clone() } else { said.message()["taskId"].clone() };
        assert_eq!(continued, agents_id, "{speaks:?} -> {agent:?}");
        assert_eq!(speaks.call(client, cancel, json!({ "id": id })).await.error_code().await, -32002);
    })
    .await;
}

#[tokio::test]
async fn stream_is_translated_by_event() {
    in_every_pair(async |speaks, agent, _, client| {
        let [_, stream, ..] = speaks.methods();
        let mut answer = speaks.call(client, stream, speaks.saying("sing", None)).await;
        assert!(answer.is_stream(), "{speaks:?} -> {agent:?}");
        let mut told = Vec::new();
        while let Some(event) = answer.next_event().await {
            let event: Value = serde_json::from_str(event.data.as_deref().unwrap()).unwrap();
            assert_eq!(event["id"], "call-1");
            told.push(event["result"].clone());
        }
        let words: String = told
            .iter()
            .filter_map(|event| {
                let update = if speaks == V1 { &event["artifactUpdate"] } else { event };
                update["artifact"]["parts"][0]["text"].as_str()
            })
            .collect();
        assert_eq!(words, "la la", "{speaks:?} -> {agent:?}: {told:?}");
        let last = told.last().unwrap();
        match speaks {
            V1 => {
                assert!(told[0]["task"].is_object(), "{told:?}");
                assert_eq!(last["statusUpdate"]["status"]["state"], "TASK_STATE_COMPLETED");
            }
            V0_3 => assert_eq!((&last["kind"], &last["final"]), (&json!("status-update"), &json!(true))),
            V0_1 => assert_eq!((&last["id"], &last["final"]), (&json!("mine"), &json!(true))),
        }
    })
    .await;
}

#[tokio::test]
async fn missing_task_is_missing_in_any_version() {
    in_every_pair(async |speaks, _, stage, client| {
        let [_, _, get, _] = speaks.methods();
        for method in ["tasks/get", "GetTask"] {
            stage.agent.on(method, |_| Reply::error(-32001, "Task not found"));
        }
        let error = speaks.call(client, get, json!({ "id": "nobodys" })).await.json().await["error"].clone();
        assert_eq!(error["code"], -32001, "{error}");
        assert_eq!(error.get("data").is_some(), speaks == V1, "{error}");
    })
    .await;
}

#[tokio::test]
async fn untranslatable_method_is_refused() {
    for (agent, method, params, code) in [
        (V0_3, "ListTasks", json!({}), -32004),
        (V0_1, "ListTasks", json!({}), -32004),
        (V0_1, "ListTaskPushNotificationConfigs", json!({ "taskId": "t" }), -32004),
        (V0_1, "GetExtendedAgentCard", json!({}), -32007),
        (V0_3, "GetTask", json!({}), -32602),
        (V0_3, "SendMessage", json!({}), -32602),
    ] {
        let stage = stage(agent, "").await;
        let error = V1.call(&stage.client(), method, params).await.json().await["error"].clone();
        assert_eq!(error["code"], code, "{method} -> {agent:?}: {error}");
        assert_eq!(error.get("data").is_some(), code != -32602, "{error}");
        assert!(
            stage.agent.requests().iter().all(|request| request.method == "GET"),
            "the agent heard nothing"
        );
    }
}

#[tokio::test]
async fn error_is_event_for_older_client() {
    for agent in [V0_1, V1] {
        let stage = stage(agent, "").await;
        let [_, stream, ..] = agent.methods();
        for method in [stream, "tasks/resubscribe", "SubscribeToTask"] {
            stage.agent.on(method, |_| Reply::error(-32601, "no such thing"));
        }
        let params = V0_3.saying("x", None);
        for (method, params) in [("message/stream", params), ("tasks/resubscribe", json!({ "id": "made-t" }))]
        {
            let mut answer = V0_3.call(&stage.client(), method, params).await;
            assert!(answer.is_stream(), "{method} -> {agent:?}");
            assert_eq!(answer.next_message().await["error"]["code"], -32601);
        }
    }
    let stage = stage(V0_3, &auth(&["ann"])).await;
    let mut answer = V0_3.call(&stage.by("ann"), "tasks/resubscribe", json!({ "id": "nobodys" })).await;
    assert_eq!(answer.next_message().await["error"]["code"], -32001);
    let answer = V1.call(&stage.by("ann"), "SubscribeToTask", json!({ "id": "nobodys" })).await;
    assert_eq!((answer.is_stream(), answer.error_code().await), (false, -32001));
}

#[tokio::test]
async fn extended_card_fits_any_version() {
    let extended = json!({
        "name": "Bard", "description": "d", "version": "1", "capabilities": {}, "defaultInputModes": [], "defaultOutputModes": [],
        "skills": [{ "id": "secret", "name": "s", "description": "d", "tags": [] }],
        "supportedInterfaces": [{ "url": "http://inside/", "protocolBinding": "JSONRPC", "protocolVersion": "1.0" }],
    });
    let stage = Stage::with(V1.card(), "", "").await;
    stage.agent.on("GetExtendedAgentCard", move |_| Reply::result(extended.clone()));
    let card =
        V0_3.call(&stage.client(), "agent/getAuthenticatedExtendedCard", json!({})).await.result().await;
    assert!(card["url"].as_str().unwrap().ends_with("/a2a/bard"), "{card}");
    assert_eq!(
        (&card["preferredTransport"], &card["skills"][0]["id"]),
        (&json!("JSONRPC"), &json!("secret"))
    );
    assert!(!card.to_string().contains("inside"), "{card}");
}

#[tokio::test]
async fn other_versions_can_be_switched_off() {
    let stage = Stage::with(V1.card(), "", "    a2a: { translate: false }\n").await;
    let refused = V0_3.call(&stage.client(), "message/send", V0_3.saying("x", None)).await;
    assert_eq!(refused.error_code().await, -32601);
    let rest =
        stage.client().at("/a2a/bard/tasks/t").send("GET", &[("A2A-Version", "0.3")], Vec::new()).await;
    assert_eq!(rest.status, 400);
    let old = Stage::with(V0_3.card(), "", "    a2a: { translate: false }\n").await;
    assert_eq!(old.client().at("/a2a/bard/tasks/t").send("GET", &[], Vec::new()).await.status, 404);
}

#[tokio::test]
async fn foreign_task_is_hidden_everywhere() {
    for agent in [V0_3, V1] {
        let stage = stage(agent, &auth(&["ann", "ben"])).await;
        for speaks in [V0_1, if agent == V1 { V0_3 } else { V1 }] {
            let [send, _, get, _] = speaks.methods();
            let task = speaks
                .task(&speaks.call(&stage.by("ann"), send, speaks.saying("sing", None)).await.result().await);
            assert_ne!(task["id"], TASK);
            let asked = json!({ "id": task["id"] });
            assert_eq!(
                speaks.call(&stage.by("ann"), get, asked.clone()).await.result().await["id"],
                task["id"]
            );
            let other = speaks.call(&stage.by("ben"), get, asked).await.error_code().await;
            assert_eq!(other, -32001, "{speaks:?} -> {agent:?}");
        }
    }
}

#[tokio::test]
async fn http_json_client_reaches_older_agents() {
    for agent in [V0_1, V0_3] {
        let stage = stage(agent, "").await;
        let client = stage.client();
        let headers = [("Content-Type", "application/json"), ("A2A-Version", "1.0")];
        let body = V1.saying("sing", None).to_string().into_bytes();
        let sent = client.at("/a2a/bard/message:send").send("POST", &headers, body.clone()).await;
        assert_eq!((sent.status, sent.header("content-type")), (200, Some("application/a2a+json")));
        let task = sent.json().await["task"].clone();
        V1.assert_done(&task, "la");
        let id = task["id"].as_str().unwrap();
        let got = client.at(&format!("/a2a/bard/tasks/{id}")).send("GET", &[], Vec::new()).await.json().await;
        V1.assert_done(&got, "la");
        let refused = client.at(&format!("/a2a/bard/tasks/{id}:cancel")).send("POST", &[], Vec::new()).await;
        assert_eq!(refused.status, 400);
        assert_eq!(refused.json().await["error"]["details"][0]["reason"], "TASK_NOT_CANCELABLE");
        let mut stream = client.at("/a2a/bard/message:stream").send("POST", &headers, body).await;
        let first: Value = stream
            .next_event()
            .await
            .map(|event| serde_json::from_str(&event.data.unwrap()).unwrap())
            .unwrap();
        assert_eq!(first["task"]["status"]["state"], "TASK_STATE_WORKING", "{first}");
    }
}

/// The path of the agent's task by HTTP+JSON of 0.3.
const PATH: &str = "/v1/tasks/agent-task-1";

/// An agent of 0.3 that is called by HTTP+JSON alone, which no client of the A2A endpoint speaks.
async fn over_rest(settings: &str) -> Stage {
    let mut card = Card::http_json_0_3().skill("sing").set("supportsAuthenticatedExtendedCard", true);
    card.json["capabilities"]["pushNotifications"] = true.into();
    let stage = Stage::with(card, settings, "").await;
    let agent = &stage.agent;
    agent.on_path("/v1/message:send", |_| {
        Reply::json(&rest_0_3::completed(TASK, CONTEXT, "la")).with_status(201)
    });
    let events = || {
        Reply::stream()
            .long_event(&rest_0_3::task(TASK, CONTEXT, "working"))
            .long_event(&rest_0_3::artifact_update(TASK, CONTEXT, "la ", false, false))
            .long_event(&rest_0_3::artifact_update(TASK, CONTEXT, "la", true, true))
            .long_event(&rest_0_3::status_update(TASK, CONTEXT, "completed", None, true))
    };
    agent.on_path("/v1/message:stream", move |_| events());
    // The official SDK for Python has the one method, the specification the other.
    agent.on_path(&format!("{PATH}:subscribe"), move |request| match request.method.as_str() {
        "GET" => events(),
        _ => Reply::json(&json!({ "detail": "Method Not Allowed" })).with_status(405),
    });
    // A client of 0.1 wants no history, which 0.3 cannot say.
    for path in [PATH.to_owned(), format!("{PATH}?historyLength=1")] {
        agent.on_path(&path, |_| Reply::json(&rest_0_3::bare_completed(TASK, CONTEXT, "la")));
    }
    agent.on_path(&format!("{PATH}:cancel"), |_| {
        Reply::json(&json!({ "message": "Task cannot be canceled" })).with_status(409)
    });
    stage
}

/// Each version of a client, the agent's own included, with the agent's ids and with those of a caller.
async fn in_every_version(check: impl AsyncFn(Speaks, &Stage, &McpClient)) {
    for settings in [String::new(), auth(&["ann", "ben"])] {
        let stage = over_rest(&settings).await;
        let client = if settings.is_empty() { stage.client() } else { stage.by("ann") };
        for speaks in ALL {
            check(speaks, &stage, &client).await;
        }
    }
}

fn last_body(stage: &Stage, path: &str) -> Value {
    stage.agent.log().hits(path).last().unwrap_or_else(|| panic!("nothing came to {path}")).json()
}

#[tokio::test]
async fn rest_of_0_3_serves_every_client() {
    in_every_version(async |speaks, stage, client| {
        let [send, _, get, cancel] = speaks.methods();
        let result = speaks.call(client, send, speaks.saying("sing", None)).await.result().await;
        let task = speaks.task(&result);
        speaks.assert_done(&task, "la");
        let id = task["id"].clone();
        let sent = last_body(stage, "/v1/message:send");
        assert_eq!(sent["message"]["content"], json!([{ "text": "sing" }]), "{speaks:?}");
        assert_eq!(
            (&sent["message"]["role"], &sent["configuration"]["blocking"]),
            (&json!("ROLE_USER"), &json!(true))
        );
        let got = speaks.call(client, get, json!({ "id": id })).await.result().await;
        speaks.assert_done(&got, "la");
        assert_eq!(got["id"], id, "{speaks:?}");
        let again = speaks.call(client, send, speaks.saying("more", Some(&id))).await.result().await;
        assert_eq!(speaks.task(&again)["id"], id);
        assert_eq!(last_body(stage, "/v1/message:send")["message"]["taskId"], TASK, "{speaks:?}");
        let refused = speaks.call(client, cancel, json!({ "id": id })).await.json().await["error"].clone();
        assert_eq!(
            (&refused["code"], &refused["message"]),
            (&json!(-32002), &json!("Task cannot be canceled"))
        );
    })
    .await;
}

#[tokio::test]
async fn rest_of_0_3_streams_to_every_client() {
    in_every_version(async |speaks, _, client| {
        let [_, stream, ..] = speaks.methods();
        let subscribe = if speaks == V1 { "SubscribeToTask" } else { "tasks/resubscribe" };
        let mut task = Value::Null;
        for method in [stream, subscribe] {
            let params =
                if method == stream { speaks.saying("sing", None) } else { json!({ "id": task.clone() }) };
            let mut answer = speaks.call(client, method, params).await;
            assert!(answer.is_stream(), "{speaks:?} {method}");
            let mut told = Vec::new();
            while let Some(event) = answer.next_event().await {
                let event: Value = serde_json::from_str(event.data.as_deref().unwrap()).unwrap();
                assert_eq!(event["id"], "call-1", "{event}");
                told.push(event["result"].clone());
            }
            let of =
                |event: &Value| if speaks == V1 { event["artifactUpdate"].clone() } else { event.clone() };
            let words: String = told
                .iter()
                .filter_map(|event| Some(of(event)["artifact"]["parts"][0]["text"].as_str()?.to_owned()))
                .collect();
            assert_eq!(words, "la la", "{speaks:?} {method}: {told:?}");
            let (first, last) = (&told[0], told.last().unwrap());
            task = match speaks {
                V0_1 | V0_3 => first["id"].clone(),
                V1 => first["task"]["id"].clone(),
            };
            match speaks {
                V1 => assert_eq!(last["statusUpdate"]["status"]["state"], "TASK_STATE_COMPLETED", "{last}"),
                V0_1 | V0_3 => {
                    assert_eq!(
                        (&last["status"]["state"], &last["final"]),
                        (&json!("completed"), &json!(true))
                    );
                }
            }
        }
    })
    .await;
}

/// A stream that breaks, and errors in and instead of it, come as errors of the client's version.
#[tokio::test]
async fn rest_of_0_3_faults_reach_the_client() {
    let task = || Reply::stream().bare_event(&rest_0_3::task(TASK, CONTEXT, "working"));
    for (reply, code) in [
        (task().bytes(b"event: error\ndata: {\"code\":-32004,\"message\":\"no more\"}\n\n"), -32004),
        (task().bytes(b"data: {\"statusUpdate\": \n\n"), -32603),
        (task().bytes(b"data: {\"statusUp").cut(), -32603),
    ] {
        let stage = over_rest("").await;
        stage.agent.on_path("/v1/message:stream", move |_| reply.clone());
        for speaks in ALL {
            let [_, stream, ..] = speaks.methods();
            let mut answer = speaks.call(&stage.client(), stream, speaks.saying("sing", None)).await;
            let mut told = Vec::new();
            while let Some(event) = answer.next_event().await {
                told.push(serde_json::from_str::<Value>(event.data.as_deref().unwrap()).unwrap());
            }
            assert_eq!((told.len(), &told[1]["error"]["code"]), (2, &json!(code)), "{speaks:?}: {told:?}");
        }
    }
    for (reply, code) in [
        (Reply::json(&json!({ "message": "Task not found" })).with_status(404), -32001),
        (Reply::json(&json!({ "message": "it broke" })).with_status(500), -32603),
        (Reply::status(502, "<html>"), -32603),
        (Reply::bytes_of("application/json", b"<html>"), -32603),
        (Reply::bytes_of("text/plain", b"{}"), -32603),
    ] {
        let stage = over_rest("").await;
        let again = reply.clone();
        stage.agent.on_path("/v1/message:send", move |_| reply.clone());
        stage.agent.on_path("/v1/message:stream", move |_| again.clone());
        for speaks in ALL {
            let [send, stream, ..] = speaks.methods();
            let answer = speaks.call(&stage.client(), send, speaks.saying("sing", None)).await;
            assert_eq!(answer.error_code().await, code, "{speaks:?}");
            let mut answer = speaks.call(&stage.client(), stream, speaks.saying("sing", None)).await;
            assert_eq!(answer.is_stream(), speaks != V1, "SDKs of old versions read nothing else");
            let error = if answer.is_stream() { answer.next_message().await } else { answer.json().await };
            assert_eq!(error["error"]["code"], code, "{speaks:?}");
        }
    }
}

#[tokio::test]
async fn rest_of_0_3_holds_push_configs() {
    let stage = over_rest("outbound: { webhooks: { allow: [c.example] } }\n").await;
    let route = format!("{PATH}/pushNotificationConfigs");
    let config = |id: &str| {
        json!({ "name": format!("tasks/{TASK}/pushNotificationConfigs/{id}"),
            "pushNotificationConfig": { "id": id, "url": "https://c.example/x", "token": "s" } })
    };
    stage.agent.on_path(&route, move |request| match request.method.as_str() {
        "POST" => Reply::json(&request.json()["config"]).with_status(201),
        _ => Reply::json(&json!({ "configs": [config("p"), config("q")], "nextPageToken": "" })),
    });
    stage.agent.on_path(&format!("{route}/p"), move |request| match request.method.as_str() {
        "DELETE" => Reply::json(&json!({})).with_status(204),
        _ => Reply::json(&config("p")),
    });
    let client = stage.client();
    let own = json!({ "id": "p", "url": "https://c.example/x", "token": "s" });
    let set = json!({ "taskId": TASK, "pushNotificationConfig": own });
    let answer = V0_3.call(&client, "tasks/pushNotificationConfig/set", set.clone()).await.result().await;
    assert_eq!(answer, set);
    let by_id = json!({ "id": TASK, "pushNotificationConfigId": "p" });
    let answer = V0_3.call(&client, "tasks/pushNotificationConfig/get", by_id.clone()).await.result().await;
    assert_eq!(answer, set);
    let listed = V0_3.call(&client, "tasks/pushNotificationConfig/list", json!({ "id": TASK })).await;
    assert_eq!(listed.result().await.as_array().map(Vec::len), Some(2));
    let deleted = V0_3.call(&client, "tasks/pushNotificationConfig/delete", by_id).await.json().await;
    assert_eq!(deleted, json!({ "jsonrpc": "2.0", "id": "call-1", "result": null }));
    let flat = json!({ "taskId": TASK, "id": "p", "url": "https://c.example/x", "token": "s" });
    let answer = V1.call(&client, "CreateTaskPushNotificationConfig", flat.clone()).await.result().await;
    assert_eq!(answer, flat);
    let by_id = json!({ "taskId": TASK, "id": "p" });
    let answer = V1.call(&client, "GetTaskPushNotificationConfig", by_id.clone()).await.result().await;
    assert_eq!(answer, flat);
    let listed = V1.call(&client, "ListTaskPushNotificationConfigs", json!({ "taskId": TASK })).await;
    assert_eq!(listed.result().await["configs"].as_array().map(Vec::len), Some(2));
    let deleted = V1.call(&client, "DeleteTaskPushNotificationConfig", by_id).await.json().await;
    assert_eq!((deleted.get("error"), &deleted["id"]), (None, &json!("call-1")));
    assert_eq!(V1.call(&client, "ListTasks", json!({})).await.error_code().await, -32004);
}

#[tokio::test]
async fn rest_of_0_3_shows_extended_card() {
    let stage = over_rest("").await;
    let extended = json!({
        "protocolVersion": "0.3.0", "name": "Bard", "description": "d", "version": "1", "capabilities": {}, "url": "http://inside/",
        "preferredTransport": "HTTP+JSON", "defaultInputModes": [], "defaultOutputModes": [],
        "skills": [{ "id": "secret", "name": "s", "description": "d", "tags": [] }],
    });
    stage.agent.on_path("/v1/card", move |_| Reply::json(&extended));
    for (speaks, method) in [(V0_3, "agent/getAuthenticatedExtendedCard"), (V1, "GetExtendedAgentCard")] {
        let card = speaks.call(&stage.client(), method, json!({})).await.result().await;
        assert_eq!(card["skills"][0]["id"], "secret", "{card}");
        assert!(!card.to_string().contains("inside"), "{card}");
    }
    let card = stage.client().at("/a2a/bard/extendedAgentCard").get(&[]).await.json().await;
    assert_eq!(card["skills"][0]["id"], "secret", "{card}");
}

#[tokio::test]
async fn rest_of_0_3_serves_clients_of_1_0_rest() {
    let stage = over_rest("").await;
    let client = stage.client();
    let headers = [("Content-Type", "application/json"), ("A2A-Version", "1.0")];
    let body = V1.saying("sing", None).to_string().into_bytes();
    let sent = client.at("/a2a/bard/message:send").send("POST", &headers, body.clone()).await;
    assert_eq!((sent.status, sent.header("content-type")), (200, Some("application/a2a+json")));
    V1.assert_done(&sent.json().await["task"], "la");
    let got = client.at(&format!("/a2a/bard/tasks/{TASK}")).get(&[]).await.json().await;
    V1.assert_done(&got, "la");
    let refused = client.at(&format!("/a2a/bard/tasks/{TASK}:cancel")).send("POST", &[], Vec::new()).await;
    assert_eq!(refused.json().await["error"]["details"][0]["reason"], "TASK_NOT_CANCELABLE");
    let mut stream = client.at("/a2a/bard/message:stream").send("POST", &headers, body).await;
    let first: Value = serde_json::from_str(&stream.next_event().await.unwrap().data.unwrap()).unwrap();
    assert_eq!(first["task"]["status"]["state"], "TASK_STATE_WORKING", "{first}");
}
