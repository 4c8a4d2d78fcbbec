//! Agents and streams that break while a task is under way: it is taken up again, asked about
//! gently, and never begun twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::kit::quiz::{begun, called, first, gateway_before, with_tasks};
use crate::kit::scene::{RAW_CONTEXT, RAW_TASK, Scene, TOOL, complaint, task_of, words};
use crate::support::payload::{v0_3, v1};
use crate::support::{
    Card, McpClient, Reply, Request, ScriptedAgent, Signal, TestGateway, free_port, in_time,
};

/// A short budget, and agents that are asked often.
const HASTY: &str =
    "calls: { budget: 1s, stream_after: 1s, max_rounds: 0 }\nstreams: { retry_base: 50ms, retry_max: 100ms }";

fn completed() -> Value {
    v1::bare_completed(RAW_TASK, RAW_CONTEXT, "the song")
}

fn working() -> Value {
    v1::bare_task(RAW_TASK, RAW_CONTEXT, "working")
}

/// An agent that can die and come back: at a port that no outgoing connection takes meanwhile.
async fn mortal(card: Card, settings: &str) -> Scene {
    let agent = ScriptedAgent::start_at(([127, 0, 0, 1], free_port()).into(), card.skill("sing")).await;
    let gateway = gateway_before(&agent, settings).await;
    Scene { agent, gateway }
}

/// The result of waiting for a task.
async fn awaited(gateway: &TestGateway, task: &str) -> Value {
    let params = json!({ "name": TOOL, "arguments": { "taskId": task } });
    gateway.client().modern("tools/call", params).await.result().await
}

/// Waits for a task again and again until it has ended.
async fn finished(gateway: &TestGateway, task: &str) -> Value {
    in_time("the end of the task", async {
        loop {
            let result = awaited(gateway, task).await;
            if result["structuredContent"].is_null() {
                return result;
            }
        }
    })
    .await
}

fn sends(agent: &ScriptedAgent) -> usize {
    ["SendStreamingMessage", "SendMessage", "message/stream", "message/send"]
        .iter()
        .map(|method| agent.calls(method).len())
        .sum()
}

#[tokio::test]
async fn task_resumes_when_agent_is_back() {
    let Scene { agent, gateway } = mortal(Card::v1(), HASTY).await;
    agent.on_send(|_| Reply::stream().event(begun()).stall());
    let call = json!({ "name": TOOL, "arguments": { "text": "sing" } });
    let task = task_of(&gateway.client().modern("tools/call", call).await.result().await);
    let agent = ScriptedAgent::start_at(agent.stop().await, Card::v1().skill("sing")).await;
    let done = v1::status_update(RAW_TASK, RAW_CONTEXT, "completed", Some("the song"));
    agent.on_get(|_| Reply::result(working()));
    agent.on_subscribe(move |_| Reply::stream().event(begun()).event(done.clone()));
    assert_eq!(words(&finished(&gateway, &task).await), "the song");
    let log = agent.log();
    assert_eq!((log.calls("GetTask").len(), log.calls("SubscribeToTask").len()), (1, 1));
    assert_eq!(sends(&agent), 0, "nothing is sent again");
}

#[tokio::test]
async fn older_task_is_polled() {
    let Scene { agent, gateway } = mortal(Card::v0_3(), HASTY).await;
    agent.on_send(|_| Reply::stream().event(v0_3::task(RAW_TASK, RAW_CONTEXT, "working")).stall());
    let call = json!({ "name": TOOL, "arguments": { "text": "sing" } });
    let task = task_of(&gateway.client().modern("tools/call", call).await.result().await);
    let agent = ScriptedAgent::start_at(agent.stop().await, Card::v0_3().skill("sing")).await;
    let looks = AtomicUsize::new(0);
    agent.on_get(move |_| match looks.fetch_add(1, Ordering::Relaxed) {
        0..3 => Reply::result(v0_3::task(RAW_TASK, RAW_CONTEXT, "working")),
        _ => Reply::result(v0_3::completed(RAW_TASK, RAW_CONTEXT, "the song")),
    });
    assert_eq!(words(&finished(&gateway, &task).await), "the song");
    assert_eq!((sends(&agent), agent.calls("tasks/resubscribe").len()), (0, 0));
}

#[tokio::test]
async fn short_stream_resumes_without_loss() {
    let scene = Scene::tuned(HASTY).await;
    let (cut, done) = (Signal::new(), Signal::new());
    let wait = cut.clone();
    scene.agent.on_send(move |_| Reply::stream().event(begun()).wait(&wait).cut());
    scene.agent.on_get(|_| Reply::result(working()));
    let wait = done.clone();
    scene.agent.on_subscribe(move |_| {
        let chunk = |text, append| v1::artifact_update(RAW_TASK, RAW_CONTEXT, text, append, append);
        let stream = Reply::stream().event(begun()).event(chunk("the ", false)).event(chunk("song", true));
        stream.wait(&wait).event(v1::status_update(RAW_TASK, RAW_CONTEXT, "completed", None))
    });
    let task = task_of(&scene.said("sing").await);
    cut.fire();
    scene.agent.wait_for_call("SubscribeToTask").await;
    done.fire();
    assert_eq!(words(&finished(&scene.gateway, &task).await), "the song");
    assert_eq!((sends(&scene.agent), scene.agent.calls("SubscribeToTask").len()), (1, 1));
}

#[tokio::test]
async fn silent_stream_is_checked_and_kept() {
    let settings = "calls: { budget: 1s, stream_after: 1s, max_rounds: 0 }\nstreams: { idle_timeout: 200ms }";
    let scene = Scene::tuned(settings).await;
    let go = Signal::new();
    let wait = go.clone();
    scene.agent.on_send(move |_| {
        let done = v1::status_update(RAW_TASK, RAW_CONTEXT, "completed", Some("the song"));
        Reply::stream().event(begun()).wait(&wait).event(done)
    });
    scene.agent.on_get(|_| Reply::result(working()));
    let task = task_of(&scene.said("sing").await);
    let log = scene.agent.wait_for("two questions", |log| log.calls("GetTask").len() > 1).await;
    let stream = log.calls("SendStreamingMessage")[0].number;
    assert!(!log.left.contains(&stream), "the stream stays open");
    assert!(log.calls("SubscribeToTask").is_empty(), "and no other one is opened");
    go.fire();
    assert_eq!(words(&finished(&scene.gateway, &task).await), "the song");
}

#[tokio::test]
async fn silent_stream_is_filled_by_get_task() {
    let scene = Scene::tuned("streams: { idle_timeout: 200ms }").await;
    scene.agent.on_send(|_| Reply::stream().event(begun()).stall());
    scene.agent.on_get(|_| Reply::result(completed()));
    assert_eq!(words(&scene.said("sing").await), "the song");
}

/// A call that each agent task is named after.
fn named(request: &Request) -> String {
    format!("raw-{}", request.text())
}

/// Begins as many tasks as that; returns their handles.
async fn begin(gateway: &TestGateway, count: usize) -> Vec<String> {
    let mut calls = JoinSet::new();
    for number in 0..count {
        let client = gateway.client();
        let call = json!({ "name": TOOL, "arguments": { "text": format!("song-{number}") } });
        calls.spawn(async move { task_of(&client.modern("tools/call", call).await.result().await) });
    }
    in_time("all handles", calls.join_all()).await
}

/// Answers for any task that it is done.
fn any_completed(request: &Request) -> Reply {
    let task = request.params()["id"].as_str().unwrap_or_default().to_owned();
    Reply::result(v1::bare_completed(&task, RAW_CONTEXT, &format!("{task} is done")))
}

#[tokio::test]
async fn agent_that_is_down_gets_one_request() {
    const TASKS: usize = 20;
    let agent = ScriptedAgent::start_at(([127, 0, 0, 1], free_port()).into(), Card::v1().skill("sing")).await;
    let gateway = TestGateway::start(|ports| {
        let (listeners, card) = (ports.listeners(), agent.card_url());
        let breaker = "breaker: { failures: 5, base: 50ms, max: 100ms }";
        format!("{listeners}{HASTY}\nagents:\n  bard:\n    card: {card}\n    {breaker}\n")
    })
    .await;
    agent.on_send(|request| Reply::stream().event(v1::task(&named(request), RAW_CONTEXT, "working")).stall());
    let handles = begin(&gateway, TASKS).await;
    let agent = ScriptedAgent::start_at(agent.stop().await, Card::v1().skill("sing")).await;
    // It is there again, but not well. Earlier requests have their answer by then.
    agent.on_get(|_| Reply::status(503, ""));
    agent.wait_for("many questions", |log| log.calls("GetTask").len() > TASKS).await;
    let (asked, let_go) = (Arc::new(AtomicUsize::new(0)), Signal::new());
    let (count, wait) = (asked.clone(), let_go.clone());
    agent.on_get(move |_| {
        count.fetch_add(1, Ordering::SeqCst);
        Reply::status(503, "").after(&wait)
    });
    for round in 1..=5 {
        agent.wait_for("a question", |_| asked.load(Ordering::SeqCst) >= round).await;
        assert_eq!(asked.load(Ordering::SeqCst), round, "one probe, and nobody beside it");
        let_go.fire();
    }
    agent.on_get(any_completed);
    agent.on_subscribe(|_| Reply::error(-32004, "it is over"));
    let_go.open();
    for handle in &handles {
        assert!(words(&finished(&gateway, handle).await).contains("is done"));
    }
    assert_eq!(sends(&agent), 0);
}

#[tokio::test]
async fn live_task_lost_by_agent_has_failed() {
    let scene = Scene::tuned(&format!("{HASTY}\n").replace("budget: 1s", "budget: 1s, task_after: 0s")).await;
    let cut = Signal::new();
    let wait = cut.clone();
    scene.agent.on_send(move |_| Reply::stream().event(begun()).wait(&wait).cut());
    scene.agent.on_get(|_| Reply::error(-32001, "Task not found"));
    let client = with_tasks(&scene.gateway);
    let task = called(&client, &first("sing")).await["taskId"].as_str().unwrap().to_owned();
    cut.open();
    let failed = in_time("the end", async {
        loop {
            let found = client.modern("tasks/get", json!({ "taskId": task })).await.result().await;
            if found["status"] != "working" {
                return found;
            }
        }
    });
    let failed = failed.await;
    assert_eq!((&failed["status"], &failed["error"]["code"]), (&json!("failed"), &json!(-32603)), "{failed}");
    let result = awaited(&scene.gateway, &task).await;
    assert!(complaint(&result).contains("does not know this task"), "{result}");
    assert_eq!(sends(&scene.agent), 1);
}

#[tokio::test]
async fn tasks_beyond_stream_limit_are_polled() {
    let scene = Scene::tuned(&format!("{HASTY}\nbackground: {{ max: 1 }}")).await;
    let go = Signal::new();
    let wait = go.clone();
    scene.agent.on_send(move |request| {
        let task = named(request);
        let done = v1::status_update(&task, RAW_CONTEXT, "completed", Some("sung to its end"));
        Reply::stream().event(v1::task(&task, RAW_CONTEXT, "working")).wait(&wait).event(done)
    });
    let looks = Arc::new(AtomicUsize::new(0));
    let count = looks.clone();
    scene.agent.on_get(move |request| {
        let task = request.params()["id"].as_str().unwrap_or_default().to_owned();
        // Each is asked for twice at least.
        match count.fetch_add(1, Ordering::Relaxed) {
            0..4 => Reply::result(v1::bare_task(&task, RAW_CONTEXT, "working")),
            _ => any_completed(request),
        }
    });
    let handles = begin(&scene.gateway, 4).await;
    let mut results = JoinSet::new();
    for handle in handles {
        let client = scene.gateway.client();
        results.spawn(async move { until_done(&client, &handle).await });
    }
    // Three were polled to their end; the one that is listened to ends when its agent says so.
    for _ in 0..3 {
        let result = in_time("a polled task", results.join_next()).await.unwrap().unwrap();
        assert!(words(&result).ends_with("is done"), "{result}");
    }
    go.open();
    let last = in_time("the followed task", results.join_next()).await.unwrap().unwrap();
    assert_eq!(words(&last), "sung to its end");
    assert_eq!((sends(&scene.agent), scene.agent.calls("SubscribeToTask").len()), (4, 0));
}

async fn until_done(client: &McpClient, task: &str) -> Value {
    loop {
        let params = json!({ "name": TOOL, "arguments": { "taskId": task } });
        let result = client.modern("tools/call", params).await.result().await;
        if result["structuredContent"].is_null() {
            return result;
        }
    }
}

#[tokio::test]
async fn many_watch_task_over_one_stream() {
    const EACH: usize = 100;
    let scene = Scene::tuned("calls: { task_after: 0s, stream_after: 0s }").await;
    let go = Signal::new();
    let wait = go.clone();
    scene.agent.on_send(move |_| {
        let done = v1::status_update(RAW_TASK, RAW_CONTEXT, "completed", Some("the song"));
        Reply::stream().event(begun()).wait(&wait).event(done)
    });
    let client = with_tasks(&scene.gateway);
    let task = called(&client, &first("sing")).await["taskId"].clone();
    let mut waiting = Vec::new();
    for _ in 0..EACH {
        let params = json!({ "name": TOOL, "arguments": { "taskId": task } });
        let answer = scene.gateway.client().modern("tools/call", params).await;
        assert!(answer.is_stream(), "it waits");
        waiting.push(answer);
    }
    let mut polling = JoinSet::new();
    for _ in 0..EACH {
        let (client, task) = (client.clone(), task.clone());
        polling.spawn(async move {
            loop {
                let found = client.modern("tasks/get", json!({ "taskId": task })).await.result().await;
                if found["status"] == "completed" {
                    return found["result"].clone();
                }
            }
        });
    }
    go.open();
    for answer in waiting {
        assert_eq!(words(&answer.result().await), "the song");
    }
    for result in in_time("all who poll", polling.join_all()).await {
        assert_eq!(words(&result), "the song");
    }
    let log = scene.agent.log();
    let upstream =
        ["SendStreamingMessage", "SubscribeToTask", "GetTask"].map(|method| log.calls(method).len());
    assert_eq!(upstream, [1, 0, 0]);
}

#[tokio::test]
async fn absent_agent_is_given_up_until_asked() {
    let settings = HASTY.replace("retry_max: 100ms", "retry_max: 100ms, max_attempts: 3");
    let Scene { agent, gateway } = mortal(Card::v1(), &settings).await;
    agent.on_send(|_| Reply::stream().event(begun()).stall());
    let call = json!({ "name": TOOL, "arguments": { "text": "sing" } });
    let task = task_of(&gateway.client().modern("tools/call", call).await.result().await);
    let address = agent.stop().await;
    let lost = in_time("the end of its patience", async {
        loop {
            let result = awaited(&gateway, &task).await;
            if result["isError"] == true {
                return result;
            }
        }
    });
    let lost = lost.await;
    assert!(complaint(&lost).contains("cannot be reached"), "{lost}");
    assert_eq!(lost["structuredContent"]["taskId"], *task, "the handle is still good");
    let agent = ScriptedAgent::start_at(address, Card::v1().skill("sing")).await;
    agent.on_get(|_| Reply::result(completed()));
    assert_eq!(words(&finished(&gateway, &task).await), "the song");
    assert_eq!(sends(&agent), 0);
}
