//! Tasks in the operator's metrics: their number, questions and answers, and lost ones.
//!
//! Out of scope: requests, streams, the log (see `seen`).

use serde_json::json;

use crate::kit::quiz::{
    Quiz, again, asked_by_form, asked_on_stream, begun, called, first, keyed, question, reply, until_asked,
};
use crate::kit::scene::{RAW_CONTEXT, RAW_TASK, Scene, TOOL, task_of, words};
use crate::operations::seen::shows;
use crate::support::payload::v1;
use crate::support::{Reply, TestGateway};

const SHORT: &str = "calls: { budget: 1s, stream_after: 1s, max_rounds: 0 }";

async fn shows_all(gateway: &TestGateway, lines: &[&str]) {
    for line in lines {
        shows(gateway, &format!("mcp_a2a_gateway_{line}")).await;
    }
}

#[tokio::test]
async fn questions_are_counted_by_form() {
    let scene = Scene::new().await;
    let gateway = &scene.gateway;
    Quiz::of(&scene.agent, [question("Which colour?")]);
    let client = asked_by_form(gateway);
    let asked = called(&client, &first("paint")).await;
    // Its client never heard that it was taken.
    let answered = again(&first("paint"), &asked, keyed(&asked, reply("blue")));
    for _ in 0..2 {
        assert_eq!(words(&called(&client, &answered).await), "thank you");
    }
    shows_all(gateway, &[r#"questions_total{form="mrtr"} 1"#, "answers_total 1"]).await;
}

#[tokio::test]
async fn stream_and_text_count_apart() {
    let scene = Scene::new().await;
    let gateway = &scene.gateway;
    Quiz::of(&scene.agent, [question("Which colour?"), question("How large?")]);
    let session = asked_on_stream(gateway, "2025-11-25").await;
    let (mut call, asked) = until_asked(&session).await;
    session.respond(&asked["id"], reply("blue")).await;
    call.next_message().await;
    shows_all(
        gateway,
        &[
            r#"questions_total{form="elicitation"} 2"#,
            r#"questions_total{form="mrtr"} 0"#,
            r#"questions_total{form="handle"} 0"#,
            "answers_total 1",
        ],
    )
    .await;
    // A client that cannot be asked gets words, and answers with another call.
    let task = task_of(&scene.said("paint").await);
    shows_all(gateway, &[r#"questions_total{form="handle"} 1"#]).await;
    let answer = json!({ "taskId": task, "text": "two metres" });
    assert_eq!(words(&scene.call(answer).await.result().await), "thank you");
    shows_all(gateway, &["answers_total 2"]).await;
}

#[tokio::test]
async fn tasks_and_evictions_are_counted() {
    let scene = Scene::tuned("tasks: { max: 1 }").await;
    let go = scene.agent.works_for((RAW_TASK, RAW_CONTEXT), "the song");
    let session = scene.session().await;
    let task = session.begin_task(TOOL, json!({ "text": "x" })).await;
    shows_all(&scene.gateway, &["tasks 1", "tasks_evicted_total 0", "polled_tasks 0"]).await;
    let page = scene.gateway.metrics().await;
    assert!(!page.contains("mcp_a2a_gateway_task_bytes 0"), "{page}");
    let params = json!({ "name": TOOL, "arguments": { "text": "y" }, "task": {} });
    assert_eq!(session.call("tools/call", params).await.error_code().await, -32603);
    shows_all(&scene.gateway, &[r#"refused_total{reason="tasks_full"} 1"#]).await;
    go.fire();
    session.task_until(task["taskId"].as_str().unwrap(), "completed").await;
    scene.agent.works_for(("another-task", RAW_CONTEXT), "the song");
    session.begin_task(TOOL, json!({ "text": "z" })).await;
    shows_all(&scene.gateway, &["tasks 1", "tasks_evicted_total 1"]).await;
}

#[tokio::test]
async fn broken_stream_is_counted_as_resumed() {
    let scene = Scene::new().await;
    scene.agent.on_send(|_| Reply::stream().event(begun()).cut());
    scene.agent.on_get(|_| Reply::result(v1::bare_completed(RAW_TASK, RAW_CONTEXT, "the song")));
    assert_eq!(words(&scene.said("sing").await), "the song");
    shows_all(&scene.gateway, &[r#"reattachments_total{agent="bard"} 1"#]).await;
}

#[tokio::test]
async fn polled_tasks_are_counted() {
    let scene = Scene::tuned(&format!("{SHORT}\nbackground: {{ max: 1 }}")).await;
    for task in [RAW_TASK, "another-task"] {
        let working = move || v1::bare_task(task, RAW_CONTEXT, "working");
        scene.agent.on_send(move |_| Reply::stream().event(v1::task(task, RAW_CONTEXT, "working")).stall());
        scene.agent.on_get(move |_| Reply::result(working()));
        task_of(&scene.said("sing").await);
    }
    shows_all(&scene.gateway, &["tasks 2", "polled_tasks 1"]).await;
}
