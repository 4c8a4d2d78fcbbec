//! How long a task lives here, how many there is room for, and that its handle outlives both.

use serde_json::{Value, json};

use crate::kit::scene::{RAW_CONTEXT, RAW_TASK, Scene, TOOL, complaint, words};
use crate::support::payload::{v0_3, v1};
use crate::support::{Card, Log, McpClient, Reply, ScriptedAgent, Signal, TestGateway, in_time};

const RAW: (&str, &str) = (RAW_TASK, RAW_CONTEXT);
const KEY: &str = "seal_key: 0123456789abcdef0123456789abcdef";

fn call() -> Value {
    json!({ "name": TOOL, "arguments": { "text": "x" } })
}

/// Calls until the gateway makes a task of it; its handle.
async fn begin(client: &McpClient) -> String {
    let task = client.modern("tools/call", call()).await.result().await;
    task["taskId"].as_str().unwrap_or_else(|| panic!("not a task: {task}")).to_owned()
}

/// Another gateway with the same key before the same agent.
async fn replica(agent: &ScriptedAgent) -> TestGateway {
    let card = agent.card_url();
    let config = move |listeners: String| format!("{listeners}{KEY}\nagents:\n  bard:\n    card: {card}\n");
    TestGateway::start(|ports| config(ports.listeners())).await
}

/// An agent that begins another task for every message; all of them go on until the signal.
fn busy(scene: &Scene) -> Signal {
    let go = Signal::new();
    let wait = go.clone();
    scene.agent.on_send(move |request| {
        let task = format!("raw-{}", request.number);
        let begun = Reply::stream().event(v1::task(&task, RAW_CONTEXT, "working")).wait(&wait);
        begun.event(v1::completed(&task, RAW_CONTEXT, "the song"))
    });
    scene.agent.on_get(|request| {
        let task = request.params()["id"].as_str().unwrap().to_owned();
        Reply::result(v1::bare_task(&task, RAW_CONTEXT, "working"))
    });
    go
}

#[tokio::test]
async fn forgotten_task_is_polled() {
    let settings = "calls: { task_after: 0s }\ntasks: { ttl: 1s, sweep_interval: 100ms }";
    let scene = Scene::tuned(settings).await;
    let go = scene.agent.works_for(RAW, "the song");
    let client = scene.gateway.client().with_tasks();
    let task = begin(&client).await;
    go.fire();
    let done = client.task_until(&task, "completed").await;
    assert_eq!(done["ttlMs"], 1000);
    let is_known = async || {
        let health = scene.gateway.client().at("/healthz").get(&[]).await.json().await;
        health["tasks"] != 0
    };
    let forgotten = async || in_time("the task to be forgotten", async { while is_known().await {} }).await;
    forgotten().await;
    scene.agent.on_get(|_| Reply::result(v1::bare_completed(RAW_TASK, RAW_CONTEXT, "kept by the agent")));
    let again = client.task("tasks/get", &task).await.result().await;
    assert_eq!((&again["taskId"], words(&again["result"])), (&json!(task), "kept by the agent"));
    forgotten().await;
    scene.agent.on_get(|_| Reply::error(-32001, "Task not found"));
    let session = scene.session().await;
    for method in ["tasks/get", "tasks/cancel"] {
        assert_eq!(client.task(method, &task).await.error_code().await, -32602, "{method}");
        assert_eq!(session.task(method, &task).await.error_code().await, -32602, "{method}");
    }
    assert_eq!(session.task("tasks/result", &task).await.error_code().await, -32602);
    assert!(scene.agent.calls("CancelTask").is_empty());
}

#[tokio::test]
async fn full_store_refuses_tasks_not_calls() {
    let settings = "calls: { task_after: 0s, budget: 1s, stream_after: 1s }\ntasks: { max: 1 }";
    let scene = Scene::tuned(settings).await;
    let go = busy(&scene);
    let (client, session) = (scene.gateway.client().with_tasks(), scene.session().await);
    let first = begin(&client).await;
    let sent = scene.agent.calls("SendStreamingMessage").len();
    let mut params = call();
    params["task"] = json!({});
    let refused = session.call("tools/call", params).await;
    assert_eq!((refused.status, refused.error_code().await), (200, -32603));
    assert_eq!(scene.agent.calls("SendStreamingMessage").len(), sent, "before anything is said to the agent");
    // A call that takes long leads to its task, which the agent knows.
    let late = session.call("tools/call", call()).await.result().await;
    let second = late["structuredContent"]["taskId"].as_str().unwrap_or_else(|| panic!("{late}")).to_owned();
    assert_eq!(session.task("tasks/get", &second).await.result().await["status"], "working");
    assert_eq!(client.task("tasks/get", &first).await.result().await["status"], "working");
    go.open();
    client.task_until(&first, "completed").await;
    // An ended task makes room.
    let _others = busy(&scene);
    let third = begin(&client).await;
    assert_eq!(client.task("tasks/get", &third).await.result().await["status"], "working");
}

#[tokio::test]
async fn replica_continues_leg_and_task() {
    let scene = Scene::tuned(&format!("{KEY}\ncalls: {{ round_timeout: 300ms, task_after: 0s }}")).await;
    let _go = scene.agent.works_for(RAW, "the song");
    let round = scene.gateway.client().with_rounds().modern("tools/call", call()).await.result().await;
    let mut again = call();
    again["requestState"] = round["requestState"].clone();
    let task = begin(&scene.gateway.client().with_tasks()).await;
    scene.agent.on_get(|_| Reply::result(v1::bare_completed(RAW_TASK, RAW_CONTEXT, "kept by the agent")));
    let other = replica(&scene.agent).await;
    let result = other.client().modern("tools/call", again.clone()).await.result().await;
    assert_eq!((words(&result), &result["resultType"]), ("kept by the agent", &json!("complete")));
    let client = other.client().with_tasks();
    assert_eq!(words(&client.task_until(&task, "completed").await["result"]), "kept by the agent");
    let lost = replica(&scene.agent).await;
    scene.agent.on_get(|_| Reply::error(-32001, "Task not found"));
    assert_eq!(lost.client().modern("tools/call", again).await.error_code().await, -32602);
    assert_eq!(scene.agent.calls("SendStreamingMessage").len(), 2, "nothing is sent again");
}

#[tokio::test]
async fn task_has_same_handle_in_every_form() {
    let scene = Scene::tuned("calls: { task_after: 0s, budget: 1s, stream_after: 1s }").await;
    let go = scene.agent.works_for(RAW, "the song");
    let client = scene.gateway.client().with_tasks();
    let task = begin(&client).await;
    // To wait for it is one more call that can be a task.
    let params = json!({ "name": TOOL, "arguments": { "taskId": task } });
    let waiting = client.modern("tools/call", params.clone()).await.result().await;
    assert_eq!((&waiting["resultType"], &waiting["taskId"]), (&json!("task"), &json!(task)));
    let session = scene.session().await;
    let handle = session.call("tools/call", params.clone()).await.result().await;
    assert_eq!(handle["structuredContent"]["taskId"], task);
    let core = session.begin_task(TOOL, json!({ "taskId": task })).await;
    assert_eq!((&core["taskId"], &core["status"]), (&json!(task), &json!("working")));
    go.fire();
    let done = client.task_until(&task, "completed").await;
    assert_eq!(done["taskId"], task);
    assert_eq!(words(&session.task("tasks/result", &task).await.result().await), "the song");
    assert_eq!(words(&client.modern("tools/call", params).await.result().await), "the song");
    assert_eq!(scene.agent.calls("SendStreamingMessage").len(), 1);
}

#[tokio::test]
async fn failure_between_legs_is_told_on_next() {
    let scene = Scene::tuned("calls: { round_timeout: 300ms, max_rounds: 9 }").await;
    let go = scene.agent.works(RAW, [v1::status_update(RAW_TASK, RAW_CONTEXT, "failed", Some("no lute"))]);
    let mut result = scene.gateway.client().with_rounds().modern("tools/call", call()).await.result().await;
    go.fire();
    while result["resultType"] == "input_required" {
        let mut again = call();
        again["requestState"] = result["requestState"].clone();
        result = scene.gateway.client().with_rounds().modern("tools/call", again).await.result().await;
    }
    assert!(complaint(&result).contains("no lute"), "{result}");
}

#[tokio::test]
async fn unnamed_task_keeps_its_handle() {
    let scene = Scene::tuned("calls: { task_after: 100ms }").await;
    let name = Signal::new();
    let named = Reply::stream().wait(&name).event(v1::task(RAW_TASK, RAW_CONTEXT, "working")).stall();
    scene.agent.on_send(move |_| named.clone());
    scene.agent.on_get(|_| Reply::result(v1::bare_task(RAW_TASK, RAW_CONTEXT, "working")));
    let session = scene.session().await;
    let task = session.begin_task(TOOL, json!({ "text": "x" })).await;
    let handle = task["taskId"].as_str().unwrap();
    name.fire();
    let second = scene.gateway.client_of("bard").with_tasks();
    let seen = second.task_until(handle, "working").await;
    assert_eq!(seen["taskId"], handle, "whatever the agent calls it");
}

#[tokio::test]
async fn handles_fit_header_for_any_task_name() {
    for id in ["é✓ ü".to_owned(), "x".repeat(2000), "a\"b\\c\r\nd".to_owned()] {
        let scene = Scene::of(Card::v1().skill("sing"), "", "calls: { task_after: 0s }").await;
        let go = scene.agent.works_for((&id, RAW_CONTEXT), "the song");
        let client = scene.gateway.client().with_tasks();
        let task = begin(&client).await;
        let is_safe = task.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
        assert!(task.len() <= 512 && is_safe, "{task}");
        go.fire();
        assert_eq!(words(&client.task_until(&task, "completed").await["result"]), "the song");
    }
}

#[tokio::test]
async fn older_and_plain_agents_work_as_tasks() {
    let (new, old) =
        (v1::task(RAW_TASK, RAW_CONTEXT, "working"), v0_3::task(RAW_TASK, RAW_CONTEXT, "working"));
    let (bare, done) = (v1::bare_task(RAW_TASK, RAW_CONTEXT, "working"), v1::bare_completed);
    let old_done = v0_3::completed(RAW_TASK, RAW_CONTEXT, "the song");
    for (card, begun, working, completed, does_stream) in [
        (Card::v1().streaming(false), new, bare, done(RAW_TASK, RAW_CONTEXT, "the song"), false),
        (Card::v0_3().streaming(false), old.clone(), old.clone(), old_done.clone(), false),
        (Card::v0_3(), old.clone(), old, old_done, true),
    ] {
        let scene = Scene::of(card.skill("sing"), "", "calls: { task_after: 0s }").await;
        let go = Signal::new();
        let reply = match does_stream {
            true => Reply::stream().event(begun).wait(&go).event(completed.clone()),
            false => Reply::result(begun),
        };
        scene.agent.on_send(move |_| reply.clone());
        let still = Reply::result(working);
        scene.agent.on_get({
            let still = still.clone();
            move |_| still.clone()
        });
        // It does not stop.
        scene.agent.on_cancel(move |_| still.clone());
        let client = scene.gateway.client().with_tasks();
        let task = begin(&client).await;
        client.task("tasks/cancel", &task).await.result().await;
        let asked = ["CancelTask", "tasks/cancel"];
        let is_told = |log: &Log| asked.iter().any(|method| !log.calls(method).is_empty());
        scene.agent.wait_for("the wish to stop", is_told).await;
        assert_eq!(client.task("tasks/get", &task).await.result().await["status"], "working");
        let completed = Reply::result(completed);
        scene.agent.on_get(move |_| completed.clone());
        go.fire();
        assert_eq!(words(&client.task_until(&task, "completed").await["result"]), "the song");
        let log = scene.agent.log();
        let sent = ["SendMessage", "message/send", "SendStreamingMessage", "message/stream"];
        assert_eq!(sent.iter().map(|method| log.calls(method).len()).sum::<usize>(), 1, "once");
        assert!(log.calls("tasks/resubscribe").is_empty(), "it corrupts the tasks of real agents");
    }
}
