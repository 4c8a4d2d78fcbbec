//! Agents that take an answer in before they work on it: the words of the question have gone into the history, the rest still stands.
//!
//! As a server of the official Python SDK shows its task between an answer and its own next word. Not here: agents that repeat
//! the whole question (see `answers_once`), answers that get lost (see `answers_lost`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use crate::quiz::{
    Quiz, answers, asked_on_stream, called, first, keyed, question, reply, scene, until_asked, with_tasks,
};
use crate::scene::{RAW_CONTEXT, RAW_TASK, Scene, words};
use crate::support::payload::v1;
use crate::support::{Answer, LegacySession, Reply, Signal, in_time};

/// A question that was put at this time.
fn put(text: &str, time: &str) -> Value {
    let mut question = question(text);
    question["status"]["timestamp"] = time.into();
    question
}

/// A task whose question has lost its words.
fn taken(mut task: Value) -> Value {
    task["status"].as_object_mut().unwrap().remove("message").expect("a question");
    task
}

/// A legacy call, and what its agent has asked on its stream.
async fn asked() -> (Scene, Quiz, LegacySession, Answer, Value) {
    let (scene, quiz) = scene("", [put("Which?", "2026-11-22T10:00:00Z")]).await;
    let session = asked_on_stream(&scene.gateway, "2025-11-25").await;
    let (call, asked) = until_asked(&session).await;
    (scene, quiz, session, call, asked)
}

#[tokio::test]
async fn the_stream_of_the_answer_may_begin_with_what_is_left_of_its_question() {
    let (scene, quiz, session, call, asked) = asked().await;
    let left = json!({ "task": taken(quiz.task()) });
    scene.agent.on_send(move |_| {
        quiz.go_on();
        Reply::events([left.clone(), v1::completed(RAW_TASK, RAW_CONTEXT, "thank you")])
    });
    session.respond(&asked["id"], reply("blue")).await;
    let done = in_time("the result", call.finish()).await;
    assert_eq!(words(&done.response["result"]), "thank you");
    assert!(done.notifications.is_empty(), "{:?}", done.notifications);
    assert_eq!(answers(&scene.agent).len(), 1);
}

#[tokio::test]
async fn who_waits_for_somebody_else_s_answer_is_not_asked_for_what_is_left_of_the_question() {
    for looked in [true, false] {
        let (scene, quiz) = scene("", [put("Which?", "2026-11-22T10:00:00Z")]).await;
        let (whole, left) = (quiz.task(), taken(quiz.task()));
        let shown = if looked { left.clone() } else { whole };
        scene.agent.on_get(move |_| Reply::result(shown.clone()));
        let done = Signal::new();
        let end = done.clone();
        scene.agent.on_subscribe(move |_| {
            let stream = Reply::stream().event(json!({ "task": left }));
            stream.wait(&end).event(v1::completed(RAW_TASK, RAW_CONTEXT, "thank you"))
        });
        let session = asked_on_stream(&scene.gateway, "2025-11-25").await;
        let (call, asked) = until_asked(&session).await;
        scene.agent.wait_for_call("SubscribeToTask").await;
        done.fire();
        let done = in_time("the result", call.finish()).await;
        assert_eq!(words(&done.response["result"]), "thank you", "{looked}");
        let told = &done.notifications;
        assert_eq!((told.len(), &told[0]["params"]["requestId"]), (1, &asked["id"]), "{looked}: {told:?}");
        assert!(answers(&scene.agent).is_empty());
    }
}

#[tokio::test]
async fn an_answer_in_doubt_has_arrived_if_its_question_has_lost_its_words() {
    let scene = Scene::tuned("calls: { task_after: 0s }").await;
    let go = Signal::new();
    let quiz = Quiz::working(&scene.agent, Some(go.clone()), [put("Which?", "2026-11-22T10:00:00Z")]);
    let client = with_tasks(&scene.gateway);
    let task = called(&client, &first("paint")).await["taskId"].as_str().unwrap().to_owned();
    go.fire();
    let asked = client.task_until(&task, "input_required").await;
    let (whole, left) = (quiz.task(), taken(quiz.task()));
    let got = quiz.clone();
    scene.agent.on_send(move |_| {
        got.go_on();
        Reply::hang_up()
    });
    // It has taken the answer in, and begins to work on it when the test says so.
    let begins = Arc::new(AtomicBool::new(false));
    let begun = begins.clone();
    scene.agent.on_get(move |_| match quiz.task() {
        open if open == whole => Reply::result(open),
        done => Reply::result(if begun.load(Ordering::Relaxed) { done } else { left.clone() }),
    });
    let blue = json!({ "taskId": task, "inputResponses": keyed(&asked, reply("blue")) });
    client.modern("tasks/update", blue).await.result().await;
    scene
        .agent
        .wait_for("the lost answer", |log| {
            log.calls("SendMessage").len() + log.calls("SendStreamingMessage").len() == 2
        })
        .await;
    let looked = scene.agent.calls("GetTask").len();
    scene.agent.wait_for("two looks", |log| log.calls("GetTask").len() == looked + 2).await;
    let stands = client.task("tasks/get", &task).await.result().await;
    assert_eq!(stands["status"], "working", "{stands}");
    begins.store(true, Ordering::Relaxed);
    client.task_until(&task, "completed").await;
    assert_eq!(answers(&scene.agent).len(), 1);
}
