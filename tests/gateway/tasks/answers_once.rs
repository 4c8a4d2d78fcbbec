//! Answers that come twice, late or to a question of another caller: the agent gets one message,
//! and the right one.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;

use serde_json::json;

use crate::kit::quiz::{
    KEY, again, answers, asked_by_form, asked_on_stream, begun, called, first, gateway_before, key_of, keyed,
    question, reply, scene, until_asked, with_tasks,
};
use crate::kit::scene::{RAW_CONTEXT, RAW_TASK, Scene, complaint, words};
use crate::support::payload::v1;
use crate::support::{Reply, ScriptedAgent, Signal, in_time};

/// Streams open at once, so that a test sees that a call has arrived.
const OPEN: &str = "calls: { stream_after: 0s }";

/// An agent that takes its time with an answer: until the signal its question is open, for every
/// request.
fn slow_to_take(agent: &ScriptedAgent) -> Signal {
    let go = Signal::new();
    let wait = go.clone();
    agent.on_send(move |request| {
        let is_answer = request.message()["taskId"].is_string();
        let asking = v1::asking(RAW_TASK, RAW_CONTEXT, "Which colour?");
        match is_answer {
            true => Reply::stream().wait(&wait).event(v1::completed(RAW_TASK, RAW_CONTEXT, "thank you")),
            false => Reply::events([begun(), asking]),
        }
    });
    agent.on_get(|_| Reply::result(v1::asking(RAW_TASK, RAW_CONTEXT, "Which colour?")["task"].clone()));
    go
}

/// Waits until the agent has been told something in its task.
async fn told(scene: &Scene) {
    let is_told = |log: &crate::support::Log| log.requests.iter().any(|r| r.message()["taskId"] == RAW_TASK);
    scene.agent.wait_for("an answer", is_told).await;
}

#[tokio::test]
async fn same_call_twice_sends_answer_once() {
    let scene = Scene::tuned(OPEN).await;
    let go = slow_to_take(&scene.agent);
    let client = asked_by_form(&scene.gateway);
    let call = first("paint");
    let asked = called(&client, &call).await;
    let params = again(&call, &asked, keyed(&asked, reply("blue")));
    let (one, two) = tokio::join!(
        client.modern("tools/call", params.clone()),
        client.modern("tools/call", params.clone())
    );
    told(&scene).await;
    go.open();
    for answer in [one, two] {
        assert_eq!(words(&answer.result().await), "thank you");
    }
    // And once more, after its end.
    assert_eq!(words(&called(&client, &params).await), "thank you");
    assert_eq!(answers(&scene.agent).len(), 1);
}

#[tokio::test]
async fn repeated_response_is_one_answer() {
    let (scene, _) = scene("", [question("Which colour?"), question("Which shade?")]).await;
    let session = asked_on_stream(&scene.gateway, "2025-11-25").await;
    let (mut call, asked) = until_asked(&session).await;
    tokio::join!(session.respond(&asked["id"], reply("blue")), session.respond(&asked["id"], reply("blue")));
    let next = call.next_message().await;
    assert_eq!(next["params"]["message"], "Which shade?");
    // Late, and another one: neither is an answer to the question that is open now.
    session.respond(&asked["id"], reply("blue")).await;
    session.respond(&asked["id"], reply("red")).await;
    session.respond(&next["id"], reply("navy")).await;
    assert_eq!(words(&call.result().await), "thank you");
    let told: Vec<_> = answers(&scene.agent).iter().map(|told| told["parts"][0]["text"].clone()).collect();
    assert_eq!(told, ["blue", "navy"]);
}

#[tokio::test]
async fn repeated_update_is_one_answer() {
    let scene = Scene::tuned("calls: { task_after: 0s }").await;
    let go = slow_to_take(&scene.agent);
    let asks = Signal::new();
    let wait = asks.clone();
    scene.agent.on_stream(move |request| match request.message()["taskId"].is_string() {
        true => Reply::stream().wait(&go).event(v1::completed(RAW_TASK, RAW_CONTEXT, "thank you")),
        false => {
            let question = v1::asking(RAW_TASK, RAW_CONTEXT, "Which colour?");
            Reply::stream().event(begun()).wait(&wait).event(question)
        }
    });
    let client = with_tasks(&scene.gateway);
    let task = called(&client, &first("paint")).await["taskId"].clone();
    asks.fire();
    let get = async || client.modern("tasks/get", json!({ "taskId": task })).await.result().await;
    let asked = in_time("the question", async {
        loop {
            let found = get().await;
            if found["status"] == "input_required" {
                return found;
            }
        }
    });
    let asked = asked.await;
    let update = async |text: &str| {
        let params = json!({ "taskId": task, "inputResponses": keyed(&asked, reply(text)) });
        client.modern("tasks/update", params).await.json().await
    };
    let (one, two) = tokio::join!(update("blue"), update("blue"));
    let three = update("blue").await;
    for taken in [&one, &two, &three] {
        assert_eq!(taken["result"]["resultType"], "complete", "{taken}");
    }
    told(&scene).await;
    assert_eq!(get().await["status"], "working", "a question that is answered is not asked");
    assert_eq!(update("red").await["error"]["code"], -32602);
    assert_eq!(answers(&scene.agent).len(), 1);
}

#[tokio::test]
async fn other_answer_is_refused() {
    let scene = Scene::tuned(OPEN).await;
    let go = slow_to_take(&scene.agent);
    let client = asked_by_form(&scene.gateway);
    let call = first("paint");
    let asked = called(&client, &call).await;
    let blue = client.modern("tools/call", again(&call, &asked, keyed(&asked, reply("blue")))).await;
    told(&scene).await;
    for other in [reply("red"), json!({ "action": "decline" })] {
        let params = again(&call, &asked, keyed(&asked, other));
        assert_eq!(client.modern("tools/call", params).await.error_code().await, -32602);
    }
    go.open();
    assert_eq!(words(&blue.result().await), "thank you");
    assert_eq!(answers(&scene.agent).len(), 1);
}

#[tokio::test]
async fn answer_to_old_question_is_dropped() {
    let (scene, quiz) = scene("", [question("Which colour?"), question("Which shade?")]).await;
    let client = asked_by_form(&scene.gateway);
    let call = first("paint");
    let asked = called(&client, &call).await;
    // The question is answered at the agent itself.
    quiz.go_on();
    let next = called(&client, &again(&call, &asked, keyed(&asked, reply("blue")))).await;
    assert_eq!(next["inputRequests"][key_of(&next)]["params"]["message"], "Which shade?", "{next}");
    assert!(answers(&scene.agent).is_empty());
    assert_eq!(words(&called(&client, &again(&call, &next, keyed(&next, reply("navy")))).await), "thank you");
    assert_eq!(answers(&scene.agent)[0]["parts"], json!([{ "text": "navy" }]));
}

#[tokio::test]
async fn unrecorded_answer_asks_agent_first() {
    for is_open in [true, false] {
        let (scene, quiz) = scene(KEY, [question("Which colour?")]).await;
        let client = asked_by_form(&scene.gateway);
        let call = first("paint");
        let asked = called(&client, &call).await;
        let params = again(&call, &asked, keyed(&asked, reply("blue")));
        if !is_open {
            quiz.go_on();
        }
        let before = scene.agent.log().requests.len();
        let other = gateway_before(&scene.agent, KEY).await;
        assert_eq!(words(&called(&asked_by_form(&other), &params).await), "thank you");
        let methods: Vec<String> =
            scene.agent.requests().iter().skip(before).map(|r| r.rpc_method()).collect();
        let first = methods.iter().find(|method| !method.is_empty());
        assert_eq!(first.map(String::as_str), Some("GetTask"), "{methods:?}");
        assert_eq!(answers(&scene.agent).len(), usize::from(is_open), "{methods:?}");
    }
}

#[tokio::test]
async fn same_answer_has_same_message_id() {
    let scene = Scene::tuned(&format!("{KEY}\n{OPEN}")).await;
    let go = slow_to_take(&scene.agent);
    let other = gateway_before(&scene.agent, KEY).await;
    let call = first("paint");
    let asked = called(&asked_by_form(&scene.gateway), &call).await;
    let answer = |text: &str| again(&call, &asked, keyed(&asked, reply(text)));
    // Two replicas at once, each without a record of the other's: the agent sees the remaining
    // duplicates as one answer.
    let one = asked_by_form(&scene.gateway).modern("tools/call", answer("blue")).await;
    told(&scene).await;
    let two = tokio::spawn({
        let (client, params) = (asked_by_form(&other), answer("blue"));
        async move { called(&client, &params).await }
    });
    scene
        .agent
        .wait_for("both", |log| {
            log.requests.iter().filter(|r| r.message()["taskId"].is_string()).count() == 2
        })
        .await;
    go.open();
    assert_eq!(words(&one.result().await), "thank you");
    assert_eq!(words(&in_time("the second", two).await.unwrap()), "thank you");
    let told = answers(&scene.agent);
    assert_eq!(told[0]["messageId"], told[1]["messageId"]);
    assert!(told[0]["messageId"].as_str().is_some_and(|id| id.len() == 36), "{}", told[0]);
}

#[tokio::test]
async fn answer_reaches_call_via_replica() {
    let (scene, _) = scene(KEY, [question("Which colour?")]).await;
    let session = asked_on_stream(&scene.gateway, "2025-11-25").await;
    let (call, asked) = until_asked(&session).await;
    let other = gateway_before(&scene.agent, KEY).await;
    session.stolen_by(&other.client()).respond(&asked["id"], reply("blue")).await;
    assert_eq!(words(&call.result().await), "thank you");
    assert_eq!(answers(&scene.agent).len(), 1);
}

#[tokio::test]
async fn refused_answer_can_be_repeated() {
    let (scene, quiz) = scene("", [question("Which colour?")]).await;
    let client = asked_by_form(&scene.gateway);
    let call = first("paint");
    let asked = called(&client, &call).await;
    scene.agent.on_send(|_| Reply::error(-32602, "not now"));
    let params = again(&call, &asked, keyed(&asked, reply("blue")));
    assert!(complaint(&called(&client, &params).await).contains("not now"));
    scene.agent.on_send(move |request| quiz.take(request));
    assert_eq!(words(&called(&client, &params).await), "thank you");
}

/// An agent that asks at the signal, goes on with the answer, and says nothing that ends its task.
fn goes_on(agent: &ScriptedAgent) -> Signal {
    let (is_told, asks) = (Arc::new(AtomicBool::new(false)), Signal::new());
    let (is_answered, wait) = (is_told.clone(), asks.clone());
    let asking = || v1::asking(RAW_TASK, RAW_CONTEXT, "Which colour?");
    agent.on_get(move |_| match is_answered.load(SeqCst) {
        true => Reply::result(v1::bare_task(RAW_TASK, RAW_CONTEXT, "working")),
        false => Reply::result(asking()["task"].clone()),
    });
    agent.on_send(move |request| match request.message()["taskId"].is_string() {
        true => {
            is_told.store(true, SeqCst);
            Reply::stream().event(v1::status_update(RAW_TASK, RAW_CONTEXT, "working", None)).stall()
        }
        false => Reply::stream().event(begun()).wait(&wait).event(asking()),
    });
    asks
}

/// The agent does not show its question any more: another answer is no answer to anything.
#[tokio::test]
async fn later_different_update_is_refused() {
    let scene = Scene::tuned("calls: { task_after: 0s }").await;
    let asks = goes_on(&scene.agent);
    let client = with_tasks(&scene.gateway);
    let task = called(&client, &first("paint")).await["taskId"].as_str().unwrap().to_owned();
    asks.fire();
    let asked = client.task_until(&task, "input_required").await;
    let update = async |text: &str| {
        let params = json!({ "taskId": task, "inputResponses": keyed(&asked, reply(text)) });
        client.modern("tasks/update", params).await.json().await
    };
    assert_eq!(update("blue").await["result"]["resultType"], "complete");
    told(&scene).await;
    client.task_until(&task, "working").await;
    for _ in 0..2 {
        assert_eq!(update("blue").await["result"]["resultType"], "complete", "the same is no other answer");
        assert_eq!(update("red").await["error"]["code"], -32602);
    }
    assert_eq!(answers(&scene.agent).len(), 1);
}

#[tokio::test]
async fn other_words_mid_answer_are_refused() {
    let scene = Scene::tuned("calls: { budget: 1s, stream_after: 1s, max_rounds: 0 }").await;
    let go = slow_to_take(&scene.agent);
    let asked = called(&scene.gateway.client(), &first("paint")).await;
    let task = asked["structuredContent"]["taskId"].clone();
    let call = async |tool: &str, text: &str| {
        let params = json!({ "name": tool, "arguments": { "taskId": task, "text": text } });
        called(&scene.gateway.client(), &params).await
    };
    call("bard_sing", "blue").await;
    told(&scene).await;
    for tool in ["subagent_send", "bard_sing"] {
        let refused = call(tool, "red").await;
        assert!(complaint(&refused).contains("on its way"), "{tool}: {refused}");
    }
    for tool in ["bard_sing", "subagent_send"] {
        let again = call(tool, "blue").await;
        assert_eq!(again["isError"], false, "the same is no other answer");
        assert_eq!(again["structuredContent"]["state"], "working", "{again}");
        assert!(!again["content"].to_string().contains("To answer"), "it invites no other one: {again}");
    }
    go.open();
    assert_eq!(answers(&scene.agent).len(), 1);
}
