//! Answers that got lost on their way: their delivery is unknown until the agent tells the state of
//! the task.
//!
//! Out of scope: answers that come twice (see `answers_once`), that the agent refuses (see
//! `loose_ends`).

use serde_json::json;

use crate::kit::quiz::{
    Quiz, again, answers, asked_by_form, asked_on_stream, called, first, keyed, question, reply, scene,
    until_asked, with_tasks,
};
use crate::kit::scene::{Scene, TOOL, words};
use crate::support::{McpClient, Reply, Signal, in_time};

/// A task that asks these, and the client that began it.
async fn asking_task(questions: &[&str]) -> (Scene, Quiz, McpClient, String) {
    let scene = Scene::tuned("calls: { task_after: 0s }").await;
    let go = Signal::new();
    let quiz = Quiz::working(&scene.agent, Some(go.clone()), questions.iter().map(|text| question(text)));
    let client = with_tasks(&scene.gateway);
    let task = called(&client, &first("paint")).await["taskId"].as_str().unwrap().to_owned();
    go.fire();
    (scene, quiz, client, task)
}

#[tokio::test]
async fn lost_answer_can_be_repeated() {
    let (scene, quiz) = scene("calls: { budget: 2s, stream_after: 1s }", [question("Which?")]).await;
    let client = asked_by_form(&scene.gateway);
    let call = first("paint");
    let asked = called(&client, &call).await;
    scene.agent.on_send(|_| Reply::hang_up());
    let params = again(&call, &asked, keyed(&asked, reply("blue")));
    called(&client, &params).await;
    scene.agent.on_send(move |request| quiz.take(request));
    assert_eq!(words(&in_time("the answer", called(&client, &params)).await), "thank you");
    let told = answers(&scene.agent);
    assert_eq!(told.len(), 2, "the first one never arrived");
    assert_eq!(told[0]["messageId"], told[1]["messageId"], "an agent that has both can tell");
    let another = again(&call, &asked, keyed(&asked, reply("red")));
    assert_eq!(client.modern("tools/call", another).await.error_code().await, -32602);
    assert_eq!(answers(&scene.agent).len(), 2);
}

/// The agent repeats the same question, so it never got an answer: the user may say something else.
#[tokio::test]
async fn question_of_lost_answer_reopens() {
    let (scene, quiz, client, task) = asking_task(&["Which?"]).await;
    let asked = client.task_until(&task, "input_required").await;
    scene.agent.on_send(|_| Reply::hang_up());
    let update = async |text: &str| {
        let params = json!({ "taskId": task, "inputResponses": keyed(&asked, reply(text)) });
        client.modern("tasks/update", params).await.result().await
    };
    update("blue").await;
    scene
        .agent
        .wait_for("the lost answer", |log| {
            log.calls("SendMessage").len() + log.calls("SendStreamingMessage").len() == 2
        })
        .await;
    assert_eq!(keyed(&client.task_until(&task, "input_required").await, json!(0)), keyed(&asked, json!(0)));
    scene.agent.on_send(move |request| quiz.take(request));
    update("red").await;
    client.task_until(&task, "completed").await;
    let told: Vec<_> = answers(&scene.agent).iter().map(|told| told["parts"][0]["text"].clone()).collect();
    assert_eq!(told, ["blue", "red"]);
}

/// The connection broke, but the agent has gone on: the user is not asked again.
#[tokio::test]
async fn arrived_answer_is_not_asked_again() {
    let (scene, quiz, client, task) = asking_task(&["Which?", "How many?"]).await;
    let asked = client.task_until(&task, "input_required").await;
    scene.agent.on_send(move |_| {
        quiz.go_on();
        Reply::hang_up()
    });
    let blue = json!({ "taskId": task, "inputResponses": keyed(&asked, reply("blue")) });
    client.modern("tasks/update", blue).await.result().await;
    let next = client.task_until(&task, "input_required").await;
    assert!(next["inputRequests"].to_string().contains("How many?"), "{next}");
    assert_eq!(answers(&scene.agent).len(), 1);
}

#[tokio::test]
async fn loss_asks_waiting_stream_anew() {
    let (scene, quiz) = scene("", [question("Which?")]).await;
    let session = asked_on_stream(&scene.gateway, "2025-11-25").await;
    let (call, asked) = until_asked(&session).await;
    scene.agent.on_send(|_| Reply::hang_up());
    session.respond(&asked["id"], reply("blue")).await;
    let lost = in_time("word of the loss", call.result()).await;
    assert_eq!(lost["isError"], true, "{lost}");
    scene.agent.on_send(move |request| quiz.take(request));
    let task = lost["structuredContent"]["taskId"].clone();
    let mut again = session.call_tool(TOOL, json!({ "taskId": task })).await;
    let asked = in_time("the question", again.next_message()).await;
    assert_eq!(asked["params"]["message"], "Which?", "{asked}");
    session.respond(&asked["id"], reply("red")).await;
    assert_eq!(words(&again.result().await), "thank you");
    assert_eq!(answers(&scene.agent).len(), 2);
}
