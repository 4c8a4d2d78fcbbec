//! Agents that take an answer in before they work on it: the words of the question have gone into
//! the history, the rest still stands.
//!
//! As a server of the official Python SDK shows its task between an answer and its own next word.
//! Out of scope: agents that repeat the whole question (see `answers_once`), answers that get lost
//! (see `answers_lost`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use crate::kit::quiz::{
    Quiz, again, answers, asked_by_form, asked_on_stream, called, first, keyed, question, reply, scene,
    until_asked,
};
use crate::kit::scene::{RAW_CONTEXT, RAW_TASK, Scene, words};
use crate::support::payload::v1;
use crate::support::{Answer, LegacySession, Reply, Signal, in_time};

/// A question that was put at this time.
fn put(text: &str, time: &str) -> Value {
    let mut question = question(text);
    question["status"]["timestamp"] = time.into();
    question
}

/// A task with a question that has lost its words.
fn taken(mut task: Value) -> Value {
    task["status"].as_object_mut().unwrap().remove("message").expect("a question");
    task
}

/// A flag that one side sets and another one reads.
fn shared() -> (Arc<AtomicBool>, Arc<AtomicBool>) {
    let one = Arc::new(AtomicBool::new(false));
    (one.clone(), one)
}

/// A legacy call, and what its agent has asked on its stream.
async fn asked() -> (Scene, Quiz, LegacySession, Answer, Value) {
    let (scene, quiz) = scene("", [put("Which?", "2026-11-22T10:00:00Z")]).await;
    let session = asked_on_stream(&scene.gateway, "2025-11-25").await;
    let (call, asked) = until_asked(&session).await;
    (scene, quiz, session, call, asked)
}

/// The user answers, is asked nothing more, and the agent hears it once.
async fn answered_once(scene: &Scene, session: &LegacySession, call: Answer, asked: &Value) {
    session.respond(&asked["id"], reply("blue")).await;
    let done = in_time("the result", call.finish()).await;
    assert_eq!(words(&done.response["result"]), "thank you");
    assert!(done.notifications.is_empty(), "{:?}", done.notifications);
    assert_eq!(answers(&scene.agent).len(), 1);
}

#[tokio::test]
async fn answer_stream_may_begin_with_open_rest() {
    let (scene, quiz, session, call, asked) = asked().await;
    let left = json!({ "task": taken(quiz.task()) });
    scene.agent.on_send(move |_| {
        quiz.go_on();
        Reply::events([left.clone(), v1::completed(RAW_TASK, RAW_CONTEXT, "thank you")])
    });
    answered_once(&scene, &session, call, &asked).await;
}

#[tokio::test]
async fn other_waiter_is_not_asked_for_rest() {
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

/// Its words are gone, but it has no answer yet: it is answered as it was asked.
#[tokio::test]
async fn agent_that_never_repeats_gets_answer() {
    let (scene, quiz, session, call, asked) = asked().await;
    let (whole, left) = (quiz.task(), taken(quiz.task()));
    scene.agent.on_get(move |_| {
        let task = quiz.task();
        Reply::result(if task == whole { left.clone() } else { task })
    });
    answered_once(&scene, &session, call, &asked).await;
}

/// The agent has taken the answer in and refused it: the rest of its question is open.
#[tokio::test]
async fn late_refused_answer_is_repeatable() {
    let (scene, quiz) = scene("", [put("Which?", "2026-11-22T10:00:00Z")]).await;
    let client = asked_by_form(&scene.gateway);
    let call = first("paint");
    let asked = called(&client, &call).await;
    let (left, done) = (taken(quiz.task()), quiz.clone());
    let (refused, is_refused) = shared();
    scene.agent.on_send(move |_| {
        refused.store(true, Ordering::Relaxed);
        Reply::error(-32603, "not now")
    });
    scene.agent.on_get(move |_| {
        let task = done.task();
        let is_left = is_refused.load(Ordering::Relaxed) && task["artifacts"].is_null();
        Reply::result(if is_left { left.clone() } else { task })
    });
    let params = again(&call, &asked, keyed(&asked, reply("blue")));
    assert_eq!(called(&client, &params).await["isError"], true);
    scene.agent.on_send(move |request| quiz.take(request));
    assert_eq!(words(&in_time("the result", called(&client, &params)).await), "thank you");
    assert_eq!(answers(&scene.agent).len(), 2);
}

/// The agent has processed the answer and still waits: the client that answered is asked once more.
#[tokio::test]
async fn rest_is_asked_after_processing() {
    for whole_answer in [true, false] {
        let (scene, quiz, session, mut call, asked) = asked().await;
        let (left, shown) = (taken(quiz.task()), taken(quiz.task()));
        let (said, was_said) = shared();
        let (done, first) = (quiz.clone(), quiz.task());
        scene.agent.on_get(move |_| match done.task() {
            task if task == first && was_said.load(Ordering::Relaxed) => Reply::result(shown.clone()),
            task => Reply::result(task),
        });
        scene.agent.on_send(move |request| {
            if said.swap(true, Ordering::Relaxed) {
                return quiz.take(request);
            }
            let task = json!({ "task": left });
            if whole_answer { Reply::result(task) } else { Reply::events([task]) }
        });
        session.respond(&asked["id"], reply("blue")).await;
        let again = in_time("another question", call.next_message()).await;
        assert_eq!(again["params"]["message"], "The agent asks for input.", "{again}");
        session.respond(&again["id"], reply("red")).await;
        assert_eq!(words(&in_time("the result", call.result()).await), "thank you");
        assert_eq!(answers(&scene.agent).len(), 2, "{whole_answer}");
    }
}
