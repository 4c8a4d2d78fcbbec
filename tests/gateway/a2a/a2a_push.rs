//! Webhooks of A2A clients that prove who they are: the agent is told an address of the gateway's,
//! and the client sees its own.

use serde_json::{Value, json};

use crate::auth::rules::key_of;
use crate::kit::a2a_push_scene::{Hook, LOCAL, PushStage, RAW, SECRET, Spoken, TOKEN, gateway, gateway_with};
use crate::kit::a2a_scene::{Stage, call};
use crate::support::{Card, Reply, ScriptedAgent, TestGateway};

#[tokio::test]
async fn agent_and_client_see_own_webhook_urls() {
    for spoken in Spoken::ALL {
        let stage = PushStage::new(spoken).await;
        let (task, shown, told) = stage.registered().await;
        let hook = Hook::of(&told);
        let public = format!("http://127.0.0.1:{}/push/", stage.gateway.ports().other);
        assert!(hook.url.starts_with(&public) && hook.url.len() < 1000, "{}", hook.url);
        let text = told.to_string();
        for hidden in [TOKEN, SECRET, "hook?of=client", "key:ann", task.as_str().unwrap()] {
            assert!(!text.contains(hidden), "{hidden} is in {text}");
        }
        assert!(text.contains(&format!(r#""credentials":"{}""#, hook.token)), "{text}");
        assert_eq!(shown, spoken.registration(&task, spoken.config(&stage.url())), "{spoken:?}");
        stage.agent.on(spoken.get(), move |_| Reply::result(told.clone()));
        let got = stage.call("ann", spoken.get(), spoken.naming(&task, "mine")).await.result().await;
        assert_eq!(got, shown, "{spoken:?}");
        assert!(!stage.gateway.output().contains(&hook.token), "a secret is in the log");
    }
}

#[tokio::test]
async fn webhook_in_message_is_rewritten() {
    for spoken in Spoken::ALL {
        let stage = PushStage::new(spoken).await;
        let params = spoken.saying(Some(spoken.config(&stage.url())));
        let task = stage.call("ann", spoken.send(), params).await.result().await;
        let told = stage.agent.wait_for_call(spoken.send()).await.params();
        assert!(!told.to_string().contains(SECRET), "{told}");
        let raw = if spoken == Spoken::Oldest { told["id"].as_str().unwrap() } else { RAW };
        assert_eq!(Hook::of(&told).push(&stage.gateway, &spoken.pushed(raw)).await, 204);
        let pushed = String::from_utf8(stage.pushes()[0].body.clone()).unwrap();
        let id = task["task"]["id"].as_str().or(task["id"].as_str()).unwrap();
        assert!(pushed.contains(id) && !pushed.contains(raw), "{spoken:?}: {pushed}");
    }
}

#[tokio::test]
async fn foreign_registrations_are_invisible() {
    for spoken in [Spoken::Old, Spoken::New] {
        let stage = PushStage::new(spoken).await;
        let (task, shown, told) = stage.registered().await;
        let bens = stage.begun("ben").await;
        let foreign = json!("https://elsewhere.example/push/x");
        let mut others = told.clone();
        match spoken {
            Spoken::New => others["url"] = foreign,
            _ => others["pushNotificationConfig"]["url"] = foreign,
        }
        let (one, list) = (told.clone(), json!([others, told, 7]));
        stage.agent.on(spoken.get(), move |_| Reply::result(one.clone()));
        let method = match spoken {
            Spoken::New => "ListTaskPushNotificationConfigs",
            _ => "tasks/pushNotificationConfig/list",
        };
        stage.agent.on(method, move |_| match spoken {
            Spoken::New => Reply::result(json!({ "configs": list, "nextPageToken": "" })),
            _ => Reply::result(list.clone()),
        });
        let refused = stage.call("ben", spoken.get(), spoken.naming(&bens, "mine")).await;
        assert_eq!(refused.error_code().await, -32001, "{spoken:?}");
        let params = |task: &Value| match spoken {
            Spoken::New => json!({ "taskId": task }),
            _ => json!({ "id": task }),
        };
        let listed = |result: Value| if result.is_array() { result } else { result["configs"].clone() };
        let own = listed(stage.call("ann", method, params(&task)).await.result().await);
        assert_eq!(own, json!([shown]), "{spoken:?}");
        assert_eq!(listed(stage.call("ben", method, params(&bens)).await.result().await), json!([]));
    }
}

#[tokio::test]
async fn registrations_are_same_by_path() {
    let stage = PushStage::new(Spoken::New).await;
    let (task, shown, told) = stage.registered().await;
    stage.agent.on(Spoken::New.get(), move |_| Reply::result(told.clone()));
    let bens = stage.begun("ben").await;
    for (name, task, status) in [("ann", &task, 200), ("ben", &bens, 404)] {
        let path = format!("/a2a/bard/tasks/{}/pushNotificationConfigs/mine", task.as_str().unwrap());
        let client = stage.gateway.client().at(&path).header("X-Api-Key", &key_of(name));
        let got = client.get(&[("A2A-Version", "1.0")]).await;
        assert_eq!(got.status, status);
        let got = got.json().await;
        assert!(status != 200 || got == shown, "{got}");
        assert!(status == 200 || got["error"]["details"][0]["reason"] == "TASK_NOT_FOUND", "{got}");
    }
}

#[tokio::test]
async fn registration_named_as_task_is_renamed() {
    let stage = PushStage::new(Spoken::Old).await;
    let task = stage.begun("ann").await;
    // As official servers name what has no name.
    stage.agent.on(Spoken::Old.set(), |request| {
        let mut params = request.params();
        params["pushNotificationConfig"]["id"] = RAW.into();
        Reply::result(params)
    });
    let mut config = Spoken::Old.config(&stage.url());
    config.as_object_mut().unwrap().remove("id");
    let params = Spoken::Old.registration(&task, config);
    let shown = stage.call("ann", Spoken::Old.set(), params).await.result().await;
    assert_eq!(shown["pushNotificationConfig"]["id"], task);
    let delete = "tasks/pushNotificationConfig/delete";
    stage.agent.on(delete, |_| Reply::result(Value::Null));
    let params = Spoken::Old.naming(&task, task.as_str().unwrap());
    stage.call("ann", delete, params).await.json().await;
    let told = stage.agent.wait_for_call(delete).await.params();
    assert_eq!(told, json!({ "id": RAW, "pushNotificationConfigId": RAW }));
}

#[tokio::test]
async fn bad_webhook_never_reaches_agent() {
    let stage = PushStage::new(Spoken::New).await;
    let task = stage.begun("ann").await;
    let good = Spoken::New.config(&stage.url());
    let with = |member: &str, value: Value| {
        let mut config = good.clone();
        config[member] = value;
        config
    };
    for config in [
        with("url", format!("{}{}", stage.url(), "x".repeat(1024)).into()),
        with("url", "http://10.0.0.1/hook".into()),
        with("url", "http://169.254.169.254/".into()),
        with("url", "http://no-such-host.invalid/".into()),
        with("url", Value::Null),
        with("token", "x".repeat(4096).into()),
        with("token", "two\nlines".into()),
        with("token", 7.into()),
        with("authentication", json!({ "scheme": "Bearer x:", "credentials": "c" })),
        with("authentication", json!([])),
        with("pushNotificationConfig", json!("x")),
    ] {
        let shown = config.to_string().chars().take(200).collect::<String>();
        let params = Spoken::New.registration(&task, config.clone());
        let refused = stage.call("ann", Spoken::New.set(), params).await.error_code().await;
        assert_eq!(refused, -32602, "{shown}");
        let refused = stage.call("ann", "SendMessage", Spoken::New.saying(Some(config))).await;
        assert_eq!(refused.error_code().await, -32602, "{shown}");
    }
    let twice = json!({ "taskId": task, "url": stage.url(), "pushNotificationConfig": good });
    stage.call("ann", Spoken::New.set(), twice).await.json().await;
    let told = stage.agent.wait_for_call(Spoken::New.set()).await.params().to_string();
    assert!(!told.contains("hook?of=client"), "none of two passes: {told}");
    assert_eq!(stage.agent.calls(Spoken::New.set()).len(), 1);
    assert_eq!(stage.agent.calls("SendMessage").len(), 1);
}

#[tokio::test]
async fn pushes_are_offered_where_possible() {
    let stage = PushStage::new(Spoken::New).await;
    let card = async |gateway: &TestGateway| {
        let client = gateway.client().at("/a2a/bard/.well-known/agent-card.json");
        client.header("X-Api-Key", &key_of("ann")).get(&[]).await.json().await
    };
    assert_eq!(card(&stage.gateway).await["capabilities"]["pushNotifications"], true);
    let shy = gateway_with(&stage.agent, LOCAL, "    push: false\n").await;
    assert_eq!(card(&shy).await["capabilities"]["pushNotifications"], false);
    let client = shy.client().at("/a2a/bard").header("X-Api-Key", &key_of("ann"));
    let params = Spoken::New.saying(Some(Spoken::New.config(&stage.url())));
    assert_eq!(call(&client, "SendMessage", params).await.error_code().await, -32003);
    assert!(stage.agent.calls("SendMessage").is_empty());
    let unable = ScriptedAgent::start(Card::v1().skill("sing")).await;
    let unable = gateway(&unable, LOCAL).await;
    assert_eq!(card(&unable).await["capabilities"]["pushNotifications"], false, "the agent does not push");
}

#[tokio::test]
async fn listed_host_may_be_unresolvable() {
    let stage = Stage::with(
        Card::v1().skill("sing"),
        "outbound: { webhooks: { allow: [hook.invalid, 'other.invalid:8443'], http: true } }\n",
        "",
    );
    let stage = stage.await;
    stage.agent.on("CreateTaskPushNotificationConfig", |request| Reply::result(request.params()));
    for (url, fits) in [
        ("https://hook.invalid/x", true),
        ("http://hook.invalid:99/x", true),
        ("https://other.invalid:8443/x", true),
        ("https://other.invalid/x", false),
        ("https://unlisted.invalid/x", false),
        ("https://user@hook.invalid/x", false),
    ] {
        let params = json!({ "taskId": "t", "url": url });
        let answer = call(&stage.client(), "CreateTaskPushNotificationConfig", params).await.json().await;
        assert_eq!(answer["result"]["url"] == url, fits, "{answer}");
        assert!(fits || answer["error"]["code"] == -32602, "{answer}");
    }
}

#[tokio::test]
async fn deletion_is_answered_with_nothing() {
    for spoken in [Spoken::Old, Spoken::New] {
        let stage = PushStage::new(spoken).await;
        let task = stage.begun("ann").await;
        let method = match spoken {
            Spoken::New => "DeleteTaskPushNotificationConfig",
            _ => "tasks/pushNotificationConfig/delete",
        };
        // One SDK leaves out what is null.
        for nothing in [json!({ "result": null }), json!({})] {
            stage.agent.on(method, move |request| {
                let mut answer = nothing.clone();
                answer["jsonrpc"] = "2.0".into();
                answer["id"] = request.id();
                Reply::json(&answer)
            });
            let deleted = stage.call("ann", method, spoken.naming(&task, "mine")).await.json().await;
            assert_eq!(deleted.get("result"), Some(&Value::Null), "{spoken:?}: {deleted}");
        }
        let path = format!("/a2a/bard/tasks/{}/pushNotificationConfigs/mine", task.as_str().unwrap());
        let client = stage.gateway.client().at(&path).header("X-Api-Key", &key_of("ann"));
        let deleted = client.send("DELETE", &[("A2A-Version", "1.0")], Vec::new()).await;
        assert_eq!((deleted.status, deleted.text().await.as_str()), (200, "{}"), "{spoken:?}");
    }
}

#[tokio::test]
async fn push_secrets_are_hidden_from_client() {
    for spoken in [Spoken::Old, Spoken::New] {
        let stage = PushStage::new(spoken).await;
        let (task, _, told) = stage.registered().await;
        let hook = Hook::of(&told);
        let is_hidden = |text: &str| !text.contains("/push/") && !text.contains(&hook.token);
        let method = match spoken {
            Spoken::New => "ListTaskPushNotificationConfigs",
            _ => "tasks/pushNotificationConfig/list",
        };
        // An answer that says that there is no error, and one that holds a registration where a
        // list should be.
        let one = told.clone();
        stage.agent.on(spoken.get(), move |request| {
            Reply::json(&json!({ "jsonrpc": "2.0", "id": request.id(), "error": null, "result": one }))
        });
        let got = stage.call("ann", spoken.get(), spoken.naming(&task, "mine")).await.text().await;
        assert!(is_hidden(&got) && got.contains(TOKEN), "{spoken:?}: {got}");
        let one = told.clone();
        stage.agent.on(method, move |_| Reply::result(one.clone()));
        let listed = stage.call("ann", method, spoken.naming(&task, "mine")).await.text().await;
        assert!(is_hidden(&listed), "{spoken:?}: {listed}");
        // An error that repeats what it was asked, as that of some servers does.
        stage.agent.on(spoken.set(), |request| {
            let error = json!({ "code": -32602, "message": format!("bad: {}", request.params()), "data": [{ "input": request.params() }] });
            Reply::json(&json!({ "jsonrpc": "2.0", "id": request.id(), "error": error }))
        });
        let params = spoken.registration(&task, spoken.config(&stage.url()));
        let refused = stage.call("ann", spoken.set(), params).await.text().await;
        let made = Hook::of(&stage.agent.calls(spoken.set()).pop().unwrap().params());
        let secret = made.url.rsplit_once('/').unwrap().1;
        assert!(refused.contains("-32602"), "{refused}");
        assert!(!refused.contains(secret) && !refused.contains(&made.token), "{spoken:?}: {refused}");
        // A request that names no task is not even passed on.
        let mut nameless = spoken.registration(&task, spoken.config(&stage.url()));
        nameless.as_object_mut().unwrap().remove("taskId");
        let before = stage.agent.calls(spoken.set()).len();
        assert_eq!(stage.call("ann", spoken.set(), nameless).await.error_code().await, -32602, "{spoken:?}");
        assert_eq!(stage.agent.calls(spoken.set()).len(), before);
    }
}
