//! Ids that would lead elsewhere in a path never reach an agent that is called by paths
//! (HTTP+JSON).
//!
//! Percent-encoding does not help: a proxy before the agent may decode the path before it routes.

use serde_json::{Value, json};

use crate::auth::rules::{auth, key_of};
use crate::kit::a2a_push_scene;
use crate::kit::a2a_scene::{Stage, call, saying};
use crate::kit::scene::{RAW_CONTEXT, Scene, TOOL, complaint};
use crate::support::payload::v1;
use crate::support::{Card, Reply, ScriptedAgent};
use crate::tasks::push;

/// Ids that a server or a proxy before it can take for another path.
const ATTACKS: [&str; 14] = [
    "TASK/pushNotificationConfigs/cfg1",
    "../../../admin/users",
    "..\\..\\admin",
    "..",
    ".",
    "..;",
    "..;x=1",
    "a?b=c",
    "a#b",
    "%2e%2e%2fadmin",
    "a%00b",
    "t:cancel",
    "a\r\nHost: x",
    "a\u{85}b",
];
/// The agent's id of its own task.
const OWN: &str = "../../../admin/users";

fn card() -> Card {
    Card::http_json("", "").skill("sing")
}

fn percent_encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

/// The request lines that reached an agent, without those for its card.
fn asked(agent: &ScriptedAgent) -> Vec<String> {
    let of_card = |path: &str| path.starts_with("/.well-known/");
    let others = agent.requests().into_iter().filter(|request| !of_card(&request.path));
    others.map(|request| format!("{} {}", request.method, request.path)).collect()
}

/// The methods of A2A 1.0 that put an id into a path, with this id.
fn methods(id: &str) -> [(&'static str, Value); 10] {
    let hook = "https://hook.invalid/x";
    [
        ("GetTask", json!({ "id": id })),
        ("CancelTask", json!({ "id": id })),
        ("SubscribeToTask", json!({ "id": id })),
        ("CreateTaskPushNotificationConfig", json!({ "taskId": id, "url": hook })),
        ("CreateTaskPushNotificationConfig", json!({ "taskId": "t", "id": id, "url": hook })),
        ("ListTaskPushNotificationConfigs", json!({ "taskId": id })),
        ("GetTaskPushNotificationConfig", json!({ "taskId": id, "id": "c" })),
        ("GetTaskPushNotificationConfig", json!({ "taskId": "t", "id": id })),
        ("DeleteTaskPushNotificationConfig", json!({ "taskId": id, "id": "c" })),
        ("DeleteTaskPushNotificationConfig", json!({ "taskId": "t", "id": id })),
    ]
}

#[tokio::test]
async fn json_rpc_with_path_as_id_is_refused() {
    let stage = Stage::with(card(), "outbound: { allow: [hook.invalid] }\n", "").await;
    let client = stage.client();
    for id in ATTACKS {
        for (method, params) in methods(id) {
            let answer = call(&client, method, params).await.json().await;
            assert_eq!(answer["error"]["code"], -32602, "{method} {id:?}: {answer}");
            assert!(!answer["error"]["message"].to_string().contains("admin"), "{answer}");
        }
    }
    // Clients of another version, so that params are rewritten.
    for id in ATTACKS {
        for (method, params) in [
            ("tasks/get", json!({ "id": id })),
            ("tasks/cancel", json!({ "id": id })),
            ("tasks/resubscribe", json!({ "id": id })),
            ("tasks/pushNotificationConfig/get", json!({ "id": "t", "pushNotificationConfigId": id })),
            ("tasks/pushNotificationConfig/delete", json!({ "id": id, "pushNotificationConfigId": "c" })),
            ("tasks/pushNotificationConfig/delete", json!({ "id": "t", "pushNotificationConfigId": id })),
        ] {
            let request = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
            let mut answer = client.post(&request, &[("A2A-Version", "0.3")]).await;
            let answer = match answer.is_stream() {
                true => answer.next_message().await,
                false => answer.json().await,
            };
            assert_eq!(answer["error"]["code"], -32602, "{method} {id:?}: {answer}");
        }
    }
    assert_eq!(asked(&stage.agent), [""; 0]);
}

#[tokio::test]
async fn http_json_with_path_as_id_is_refused() {
    let stage = Stage::with(card(), "", "").await;
    for id in ATTACKS {
        let id = percent_encoded(id);
        for (verb, path) in [
            ("GET", format!("/tasks/{id}")),
            ("POST", format!("/tasks/{id}:cancel")),
            ("GET", format!("/tasks/{id}:subscribe")),
            ("GET", format!("/tasks/{id}/pushNotificationConfigs")),
            ("GET", format!("/tasks/t/pushNotificationConfigs/{id}")),
            ("DELETE", format!("/tasks/t/pushNotificationConfigs/{id}")),
        ] {
            let client = stage.client().at(&format!("/a2a/bard{path}"));
            let answer = client.send(verb, &[("A2A-Version", "1.0")], Vec::new()).await;
            let status = answer.status;
            let error = answer.json().await;
            assert_eq!((status, &error["error"]["status"]), (400, &json!("INVALID_ARGUMENT")), "{path}");
        }
    }
    assert_eq!(asked(&stage.agent), [""; 0]);
}

/// An agent with `auth` before it: a task's id is a sealed handle, that of a push configuration is
/// the client's.
#[tokio::test]
async fn sealed_ids_do_not_open_to_path() {
    let agent = ScriptedAgent::start(push::pushing(card())).await;
    agent.on_path("/message:send", |_| Reply::json(&v1::task(OWN, RAW_CONTEXT, "working")));
    let gateway = a2a_push_scene::gateway(&agent, "").await;
    let ann = gateway.client().at("/a2a/bard").header("X-Api-Key", &key_of("ann"));
    let begun = call(&ann, "SendMessage", saying("x")).await.result().await;
    let task = begun["task"]["id"].as_str().unwrap().to_owned();
    for (method, mut params) in methods(&task) {
        if params["taskId"] == "t" {
            params["taskId"] = task.clone().into();
        }
        let answer = call(&ann, method, params).await.json().await;
        assert_eq!(answer["error"]["code"], -32602, "{method}: {answer}");
    }
    agent.on_path("/message:send", |_| Reply::json(&v1::task("t-2", RAW_CONTEXT, "working")));
    let good = call(&ann, "SendMessage", saying("x")).await.result().await["task"]["id"].clone();
    for id in ATTACKS {
        for method in ["GetTaskPushNotificationConfig", "DeleteTaskPushNotificationConfig"] {
            let answer = call(&ann, method, json!({ "taskId": good, "id": id })).await.json().await;
            assert_eq!(answer["error"]["code"], -32602, "{method} {id:?}: {answer}");
        }
    }
    assert_eq!(asked(&agent), ["POST /message:send"; 2]);
}

/// An agent that names its task so is never asked for it again, by any tool or method.
#[tokio::test]
async fn mcp_never_requests_path_as_task() {
    let scene = Scene::of(card(), "", "calls: { task_after: 100ms, stream_after: 100ms }").await;
    let stream = || Reply::stream().bare_event(&v1::task(OWN, RAW_CONTEXT, "working"));
    scene.agent.on_path("/message:stream", move |_| stream().stall());
    let client = scene.gateway.client().with_tasks();
    let params = json!({ "name": TOOL, "arguments": { "text": "x" } });
    let made = client.modern("tools/call", params.clone()).await.result().await;
    let task = made["taskId"].as_str().unwrap_or_else(|| panic!("{made}")).to_owned();
    for (tool, arguments) in [
        ("subagent_get", json!({ "taskId": task })),
        ("subagent_send", json!({ "taskId": task, "text": "x" })),
        ("subagent_cancel", json!({ "taskId": task })),
    ] {
        client.modern("tools/call", json!({ "name": tool, "arguments": arguments })).await.result().await;
    }
    client.task("tasks/cancel", &task).await.result().await;
    for uri in [format!("a2a://task/{task}"), format!("a2a://streams/{task}")] {
        client.modern("resources/read", json!({ "uri": uri })).await.json().await;
    }
    // Another gateway, or this one after a restart, knows nothing of the task but its handle.
    let expected = ["POST /message:stream"];
    assert_eq!(asked(&scene.agent), expected);
    scene.agent.on_path("/message:stream", move |_| stream().cut());
    let told = client.modern("tools/call", params).await.result().await;
    assert!(complaint(&told).contains("HTTP+JSON"), "{told}");
    assert_eq!(asked(&scene.agent), [expected, expected].concat());
}

#[tokio::test]
async fn handle_that_opens_to_path_is_refused() {
    let key = "seal_key: 0123456789abcdef0123456789abcdef\n";
    let settings = || format!("{key}{}", auth(&["ann"]));
    let first = Stage::with(card(), &settings(), "").await;
    first.agent.on_path("/message:send", |_| Reply::json(&v1::task(OWN, RAW_CONTEXT, "working")));
    let begun = call(&first.by("ann"), "SendMessage", saying("x")).await.result().await;
    let task = begun["task"]["id"].as_str().unwrap().to_owned();
    // A gateway that has never heard of the task.
    let second = Stage::with(card(), &settings(), "").await;
    let ann = second.gateway.client().header("X-Api-Key", &key_of("ann")).with_tasks();
    for method in ["tasks/get", "tasks/cancel"] {
        assert_eq!(ann.task(method, &task).await.error_code().await, -32602, "{method}");
    }
    let read = json!({ "uri": format!("a2a://task/{task}") });
    assert_eq!(ann.modern("resources/read", read).await.error_code().await, -32602);
    for (tool, arguments) in [
        (TOOL, json!({ "taskId": task })),
        (TOOL, json!({ "taskId": task, "text": "x" })),
        ("subagent_wait", json!({ "taskId": task })),
        ("subagent_send", json!({ "taskId": task, "text": "x" })),
    ] {
        let called = ann.modern("tools/call", json!({ "name": tool, "arguments": arguments })).await;
        let told = called.result().await;
        assert!(complaint(&told).contains("HTTP+JSON"), "{told}");
        assert!(!told.to_string().contains("admin"), "{told}");
    }
    assert_eq!(asked(&second.agent), [""; 0]);
}

#[tokio::test]
async fn no_webhook_is_set_below_path_as_task() {
    let agent = ScriptedAgent::start(push::pushing(Card::http_json("", ""))).await;
    agent.on_path("/message:stream", |_| {
        Reply::stream().bare_event(&v1::task(OWN, RAW_CONTEXT, "working")).stall()
    });
    let gateway = push::gateway(&agent, push::ON).await;
    push::begin(&gateway.client().legacy().await, "x").await;
    gateway.wait_for_output("failed to register webhook").await;
    assert_eq!(asked(&agent), ["POST /message:stream"]);
}

#[tokio::test]
async fn tenant_that_is_path_is_no_tenant() {
    for tenant in ["../admin", "a/b", "..", "a%2fb"] {
        let scene = Scene::of(Card::http_json("", tenant).skill("sing"), "", "").await;
        let agents: Value = scene.gateway.admin().at("/agents").get(&[]).await.json().await;
        let problem = agents[0]["problem"].as_str().unwrap_or_default().to_owned();
        assert!(problem.contains("tenant"), "{agents}");
        assert_eq!(asked(&scene.agent), [""; 0]);
    }
}

/// Where an id stays in a body it leads nowhere.
#[tokio::test]
async fn json_rpc_agent_gets_any_id() {
    let stage = Stage::with(Card::v1().skill("sing"), "", "").await;
    stage.agent.on_get(|request| {
        let id = request.params()["id"].as_str().unwrap().to_owned();
        Reply::result(v1::bare_task(&id, "c", "working"))
    });
    for id in ATTACKS {
        let task = call(&stage.client(), "GetTask", json!({ "id": id })).await.result().await;
        assert_eq!(task["id"], id);
    }
    // A path is decoded once: an id may still have an escape in it.
    let path = format!("/a2a/bard/tasks/{}", percent_encoded("%2e%2e"));
    let task = stage.client().at(&path).get(&[("A2A-Version", "1.0")]).await.json().await;
    assert_eq!(task["id"], "%2e%2e");
}
