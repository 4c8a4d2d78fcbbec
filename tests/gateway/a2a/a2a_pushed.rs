//! Pushes of an agent for an A2A client: proven, under the client's ids, in its version, at its
//! webhook and nowhere else.

use std::time::Duration;

use serde_json::{Value, json};

use crate::kit::a2a_push_scene::{CONTEXT, Hook, LOCAL, PushStage, RAW, SECRET, Spoken, TOKEN, gateway};
use crate::support::payload::{v0_1, v0_3, v1};
use crate::support::{McpClient, PATIENCE, Reply, Signal, TestGateway};

const JWT: &str = "Bearer eyJhbGciOiJSUzI1NiJ9.eyJpYXQiOjF9.c2ln";

async fn counted(gateway: &TestGateway, outcome: &str, count: usize) {
    let line = format!("mcp_a2a_gateway_pushes_total{{outcome=\"{outcome}\"}} {count}");
    let mut page = String::new();
    let seen = async {
        while !page.lines().any(|shown| shown == line) {
            page = gateway.metrics().await;
        }
    };
    assert!(tokio::time::timeout(PATIENCE, seen).await.is_ok(), "{line} is not in\n{page}");
}

#[tokio::test]
async fn push_has_proofs_and_ids_of_client() {
    for spoken in Spoken::ALL {
        let stage = PushStage::new(spoken).await;
        let (task, _, told) = stage.registered().await;
        let (hook, raw) = (Hook::of(&told), stage.raw(&told));
        let token =
            [("X-A2A-Notification-Token", hook.token.as_str()), ("Content-Type", "application/a2a+json")];
        assert_eq!(hook.send(&stage.gateway, &token, &spoken.pushed(&raw)).await.status, 204);
        let bearer = format!("Bearer {}", hook.token);
        let bearer = [("Authorization", bearer.as_str()), ("Content-Type", "application/json")];
        assert_eq!(hook.send(&stage.gateway, &bearer, &spoken.pushed(&raw)).await.status, 204);
        let pushes = stage.pushes();
        for (push, media_type) in pushes.iter().zip(["application/a2a+json", "application/json"]) {
            assert_eq!((push.method.as_str(), push.path.as_str()), ("POST", "/hook?of=client"));
            assert_eq!(push.header("x-a2a-notification-token"), Some(TOKEN));
            assert_eq!(push.header("authorization"), Some(format!("Bearer {SECRET}").as_str()));
            assert_eq!(push.header("content-type"), Some(media_type));
            let (body, text) = (push.json(), String::from_utf8(push.body.clone()).unwrap());
            let named = if spoken == Spoken::New { &body["statusUpdate"]["taskId"] } else { &body["id"] };
            assert_eq!(named, &task, "{spoken:?}: {body}");
            assert!(!text.contains(&raw) && !text.contains(CONTEXT) && text.contains("the song"), "{text}");
        }
        counted(&stage.gateway, "forwarded", 2).await;
        let (method, held) =
            if spoken == Spoken::New { ("GetTask", RAW) } else { ("tasks/get", raw.as_str()) };
        stage.agent.on_get(|_| Reply::error(-32001, "Task not found"));
        stage.call("ann", method, json!({ "id": task })).await.json().await;
        assert_eq!(stage.agent.wait_for_call(method).await.params()["id"], held, "the id leads back");
    }
}

#[tokio::test]
async fn unproven_or_foreign_push_is_dropped() {
    let stage = PushStage::new(Spoken::New).await;
    let (_, _, told) = stage.registered().await;
    let hook = Hook::of(&told);
    let body = v1::status_update(RAW, CONTEXT, "completed", None);
    for headers in [
        vec![],
        vec![("X-A2A-Notification-Token", TOKEN)],
        vec![("X-A2A-Notification-Token", "x"), ("Authorization", JWT)],
        vec![("Authorization", JWT)],
        vec![("Authorization", "Bearer x")],
    ] {
        assert_eq!(hook.send(&stage.gateway, &headers, &body).await.status, 401, "{headers:?}");
    }
    counted(&stage.gateway, "unauthenticated", 5).await;
    let foreign = Hook { url: hook.url.replace("/push/", "/push/A"), ..hook.clone() };
    assert_eq!(foreign.push(&stage.gateway, &body).await, 404);
    for body in [
        v1::status_update("others-task", CONTEXT, "completed", None),
        json!({ "anything": { "taskId": RAW } }),
        json!([body]),
        json!({ "task": { "id": RAW }, "statusUpdate": { "taskId": "others-task" } }),
    ] {
        assert_eq!(hook.push(&stage.gateway, &body).await, 204, "{body}");
    }
    counted(&stage.gateway, "other_task", 4).await;
    assert!(stage.pushes().is_empty());
    let at = format!("/push/{}", hook.url.split_once("/push/").unwrap().1);
    let receiver = McpClient::new(&format!("http://127.0.0.1:{}{at}", stage.gateway.ports().other));
    let asked = receiver.at(&format!("{at}?validationToken=a-b.c")).get(&[]).await;
    assert_eq!((asked.status, asked.text().await.as_str()), (200, "a-b.c"));
}

#[tokio::test]
async fn agent_of_0_1_may_sign_instead() {
    let stage = PushStage::new(Spoken::Oldest).await;
    let (_, _, told) = stage.registered().await;
    let body = Spoken::Oldest.pushed(&stage.raw(&told));
    let sent = Hook::of(&told).send(&stage.gateway, &[("Authorization", JWT)], &body).await;
    assert_eq!((sent.status, stage.pushes().len()), (204, 1));
}

#[tokio::test]
async fn agent_learns_that_push_failed() {
    let stage = PushStage::new(Spoken::New).await;
    let (_, _, told) = stage.registered().await;
    let (hook, body) = (Hook::of(&told), v1::status_update(RAW, CONTEXT, "completed", None));
    for (status, location) in [(500, ""), (404, ""), (302, "/elsewhere")] {
        stage
            .hook
            .on_path("/hook?of=client", move |_| Reply::status(status, "no").header("Location", location));
        assert_eq!(hook.push(&stage.gateway, &body).await, 502, "{status}");
    }
    counted(&stage.gateway, "client_refused", 3).await;
    assert!(stage.pushes().iter().all(|push| push.path == "/hook?of=client"), "no redirect is followed");
    stage.hook.on_path("/hook?of=client", |_| Reply::hang_up());
    assert_eq!(hook.push(&stage.gateway, &body).await, 502);
    counted(&stage.gateway, "client_unreachable", 1).await;
    stage.hook.on_path("/hook?of=client", |_| Reply::status(202, ""));
    assert_eq!(hook.push(&stage.gateway, &body).await, 204);
}

#[tokio::test]
async fn webhook_is_judged_at_each_push() {
    let stage = PushStage::new(Spoken::New).await;
    let (_, _, told) = stage.registered().await;
    let (hook, body) = (Hook::of(&told), v1::status_update(RAW, CONTEXT, "completed", None));
    // The same key, as after a restart: nothing is remembered of the registration.
    let stricter = gateway(&stage.agent, "").await;
    assert_eq!(hook.push(&stricter, &body).await, 502);
    counted(&stricter, "client_unreachable", 1).await;
    assert!(stage.pushes().is_empty());
    let listed = format!("outbound: {{ webhooks: {{ allow: ['{}'], http: true }} }}\n", stage.hook.address());
    let restarted = gateway(&stage.agent, &listed).await;
    assert_eq!(hook.push(&restarted, &body).await, 204);
    assert_eq!(stage.pushes().len(), 1);
    let client = |gateway: &TestGateway| gateway.client().at("/a2a/bard");
    let params = json!({ "message": { "messageId": "m", "role": "ROLE_USER", "parts": [{ "text": "x" }] },
        "configuration": { "taskPushNotificationConfig": { "url": stage.url() } } });
    let key = crate::auth::rules::key_of("ann");
    let refused =
        crate::kit::a2a_scene::call(&client(&stricter).header("X-Api-Key", &key), "SendMessage", params)
            .await;
    assert_eq!(refused.error_code().await, -32602);
}

#[tokio::test]
async fn slow_client_uses_its_own_share() {
    let stage = PushStage::new(Spoken::New).await;
    let (_, _, told) = stage.registered().await;
    let (hook, body) = (Hook::of(&told), v1::status_update(RAW, CONTEXT, "working", None));
    let go = Signal::new();
    let wait = go.clone();
    stage.hook.on_path("/hook?of=client", move |_| Reply::status(200, "").after(&wait));
    let mut under_way = tokio::task::JoinSet::new();
    let url = format!("http://127.0.0.1:{}", stage.gateway.ports().other);
    let at = format!("{url}/push/{}", hook.url.split_once("/push/").unwrap().1);
    for _ in 0..32 {
        let (receiver, token, body) =
            (McpClient::new(&at), hook.token.clone(), body.to_string().into_bytes());
        under_way.spawn(async move {
            receiver.send("POST", &[("X-A2A-Notification-Token", &token)], body).await.status
        });
    }
    stage.hook.wait_for("all that may be under way", |log| log.requests.len() == 32).await;
    assert_eq!(hook.push(&stage.gateway, &body).await, 503);
    counted(&stage.gateway, "overloaded", 1).await;
    go.open();
    under_way.join_all().await;
    assert_eq!(hook.push(&stage.gateway, &body).await, 204, "there is room again");
}

#[tokio::test]
async fn silent_client_times_out() {
    let stage = PushStage::new(Spoken::New).await;
    let (_, _, told) = stage.registered().await;
    stage.hook.on_path("/hook?of=client", |_| Reply::silence());
    let body = v1::status_update(RAW, CONTEXT, "working", None);
    let pushed =
        tokio::time::timeout(Duration::from_secs(15), Hook::of(&told).push(&stage.gateway, &body)).await;
    assert_eq!(pushed, Ok(502));
}

/// A push in 1.0 as a client of 0.3 gets it, from servers that speak both.
async fn told_in_0_3(stage: &PushStage, hook: &Hook, body: &Value) -> Value {
    let before = stage.pushes().len();
    assert_eq!(hook.push(&stage.gateway, body).await, 204, "{body}");
    stage.pushes()[before].json()
}

#[tokio::test]
async fn client_reads_push_in_its_version() {
    let stage = PushStage::new(Spoken::Old).await;
    let (task, _, told) = stage.registered().await;
    let hook = Hook::of(&told);
    let whole = told_in_0_3(&stage, &hook, &v1::completed(RAW, CONTEXT, "the song")).await;
    assert_eq!(
        (&whole["kind"], &whole["id"], &whole["status"]["state"]),
        (&json!("task"), &task, &json!("completed"))
    );
    assert_eq!(whole["artifacts"][0]["parts"][0], json!({ "kind": "text", "text": "the song" }));
    assert!(stage.agent.calls("tasks/get").is_empty(), "all is said");
    // An update is no task: the agent is asked for that.
    stage.agent.on_get(|_| Reply::result(v0_3::completed(RAW, CONTEXT, "the whole song")));
    let whole = told_in_0_3(&stage, &hook, &v1::status_update(RAW, CONTEXT, "completed", None)).await;
    assert_eq!((&whole["kind"], &whole["id"]), (&json!("task"), &task));
    assert_eq!(whole["artifacts"][0]["parts"][0]["text"], "the whole song");
    assert!(!whole.to_string().contains(RAW) && !whole.to_string().contains(CONTEXT), "{whole}");
    stage.agent.on_get(|_| Reply::error(-32603, "not now"));
    let update = v1::artifact_update(RAW, CONTEXT, "la", false, true);
    assert_eq!(hook.push(&stage.gateway, &update).await, 502);
    counted(&stage.gateway, "state_unavailable", 1).await;
    let wrapped = json!({ "jsonrpc": "2.0", "id": "1", "result": v0_3::completed(RAW, CONTEXT, "x") });
    assert_eq!(told_in_0_3(&stage, &hook, &wrapped).await["id"], task, "without what is around it");
}

#[tokio::test]
async fn client_of_0_1_gets_its_own_task_id() {
    let stage = PushStage::new(Spoken::Oldest).await;
    let (task, _, told) = stage.registered().await;
    assert_eq!(task, "my-task");
    let raw = stage.raw(&told);
    let asked = raw.clone();
    stage.agent.on_get(move |_| Reply::result(v0_1::completed(&asked, "the song")));
    let update = v1::status_update(&raw, CONTEXT, "completed", None);
    assert_eq!(Hook::of(&told).push(&stage.gateway, &update).await, 204);
    let pushed = stage.pushes()[0].json();
    assert_eq!((&pushed["id"], &pushed["status"]["state"]), (&task, &json!("completed")));
    assert_eq!(pushed["artifacts"][0]["parts"][0]["text"], "the song");
}

#[tokio::test]
async fn webhooks_work_across_versions() {
    for (client, agent) in Spoken::ALL.iter().flat_map(|client| Spoken::ALL.map(|agent| (*client, agent))) {
        if client == agent {
            continue;
        }
        let stage = PushStage::between(client, agent, LOCAL).await;
        let (task, shown, told) = stage.registered().await;
        let mut config = client.config(&stage.url());
        if agent == Spoken::Oldest {
            config.as_object_mut().unwrap().remove("id"); // webhooks of 0.1 have no names
        }
        assert_eq!(shown, client.registration(&task, config), "{client:?} -> {agent:?}");
        assert!(!told.to_string().contains(TOKEN), "{told}");
        let raw = stage.raw(&told);
        stage.agent.on_get(move |request| {
            let id = request.params()["id"].as_str().unwrap().to_owned();
            Reply::result(match agent {
                Spoken::New => v1::bare_completed(&id, CONTEXT, "the song"),
                _ => agent.pushed(&id),
            })
        });
        let hook = Hook::of(&told);
        assert_eq!(hook.push(&stage.gateway, &agent.pushed(&raw)).await, 204, "{client:?} -> {agent:?}");
        let pushed = stage.pushes()[0].json();
        let (found, state) = match client {
            Spoken::New => (&pushed["task"]["id"], &pushed["task"]["status"]["state"]),
            _ => (&pushed["id"], &pushed["status"]["state"]),
        };
        assert_eq!(found, &task, "{client:?} -> {agent:?}: {pushed}");
        assert!(state.as_str().unwrap().to_lowercase().ends_with("completed"), "{pushed}");
        let params = client.saying(Some(client.config(&stage.url())));
        stage.call("ann", client.send(), params).await.result().await;
        let said = stage.agent.calls(agent.send()).pop().unwrap().params();
        assert!(Hook::of(&said).url.contains("/push/"), "{client:?} -> {agent:?}: {said}");
        assert!(!said.to_string().contains(SECRET), "{said}");
    }
}
