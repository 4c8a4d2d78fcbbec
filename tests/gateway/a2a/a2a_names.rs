//! Names that clients of A2A 0.1 make for tasks: the caller that owns them, and how many fit.

use serde_json::{Value, json};

use crate::auth::rules::{auth, key_of};
use crate::kit::a2a_scene::Stage;
use crate::support::payload::{v0_1, v1};
use crate::support::{Answer, Card, McpClient, Reply, ScriptedAgent, TestGateway};

async fn send(client: &McpClient, task: &str, session: &str) -> Answer {
    let message = json!({ "role": "user", "parts": [{ "type": "text", "text": "x" }] });
    let params = json!({ "id": task, "sessionId": session, "message": message });
    client.post(&json!({ "jsonrpc": "2.0", "id": 1, "method": "tasks/send", "params": params }), &[]).await
}

async fn get(client: &McpClient, task: &str) -> Answer {
    let params = json!({ "id": task });
    client.post(&json!({ "jsonrpc": "2.0", "id": 1, "method": "tasks/get", "params": params }), &[]).await
}

#[tokio::test]
async fn anonymous_task_name_is_unguessable() {
    for card in [Card::v1(), Card::v0_1().set("authentication", json!({ "schemes": ["Bearer"] }))] {
        let agent = ScriptedAgent::start(card.skill("sing")).await;
        agent.on("SendMessage", |_| Reply::result(v1::task("agent-task", "c", "working")));
        agent.on("tasks/send", |request| {
            Reply::result(v0_1::task(request.params()["id"].as_str().unwrap(), "working"))
        });
        let gateway = TestGateway::start(|ports| {
            let second = "\n    serve: [mcp, a2a]\n    require: none\nadmin:";
            let listeners = ports.listeners().replace("\nadmin:", second);
            format!("{listeners}{}agents:\n  bard:\n    card: {}\n", auth(&["ann"]), agent.card_url())
        })
        .await;
        let client = gateway.client().at("/a2a/bard");
        let uuid = "123e4567-e89b-42d3-a456-426614174000";
        for (task, session) in [("1", uuid), (uuid, "s")] {
            assert_eq!(send(&client, task, session).await.error_code().await, -32602, "{task} {session}");
        }
        assert!([-32001, -32602].contains(&get(&client, "1").await.error_code().await));
        assert_eq!(send(&client, uuid, uuid).await.result().await["id"], uuid);
        // An authenticated caller has names of its own.
        let ann = client.header("X-Api-Key", &key_of("ann"));
        assert_eq!(send(&ann, "1", "s").await.result().await["id"], "1");
    }
}

#[tokio::test]
async fn task_names_of_one_caller_are_bounded() {
    let settings = format!("tasks: {{ max: 5 }}\nlimits: {{ caller_tasks: 2 }}\n{}", auth(&["ann", "ben"]));
    let stage = Stage::with(Card::v1().skill("sing"), &settings, "").await;
    let numbers = std::sync::atomic::AtomicUsize::new(0);
    stage.agent.on("SendMessage", move |request| {
        let number = numbers.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        let task = request.message()["taskId"].as_str().unwrap_or("t").to_owned();
        Reply::result(v1::task(&task, &format!("c-{number}"), "working"))
    });
    let mut refused = 0;
    for number in 0..20 {
        let answer: Value = send(&stage.by("ann"), "same", &format!("session-{number}")).await.json().await;
        refused += usize::from(answer.get("error").is_some());
    }
    assert!(refused > 10, "{refused}");
    assert_eq!(send(&stage.by("ben"), "bens", "s").await.result().await["id"], "bens");
}

#[tokio::test]
async fn client_name_may_look_like_handle() {
    let card = Card::v0_1().set("authentication", json!({ "schemes": ["Bearer"] })).skill("sing");
    let stage = Stage::with(card, &auth(&["ann"]), "").await;
    stage
        .agent
        .on_get(|request| Reply::result(v0_1::completed(request.params()["id"].as_str().unwrap(), "la")));
    let task = get(&stage.by("ann"), "made-1").await.result().await;
    assert_eq!((&task["id"], task.get("kind")), (&json!("made-1"), None));
}
