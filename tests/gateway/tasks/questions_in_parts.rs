//! Agents that ask for several things at once: answered parts are not asked again, and the agent
//! gets one message when all are there.

use serde_json::{Value, json};

use crate::kit::quiz::{
    Quiz, accept, again, answers, asked_by_form, asked_on_stream, called, first, key_of, keyed, question,
    reply, scene, two_at_once, until_asked, with_tasks,
};
use crate::kit::scene::{Scene, words};
use crate::support::{McpClient, Signal, in_time};

/// Asks for a task until its status is this.
async fn until_status(client: &McpClient, task: &Value, status: &str) -> Value {
    in_time(status, async {
        loop {
            let found = client.modern("tasks/get", json!({ "taskId": task })).await.result().await;
            if found["status"] == status {
                return found;
            }
        }
    })
    .await
}

#[tokio::test]
async fn only_open_questions_are_asked_again() {
    let (scene, _) = scene("", [two_at_once()]).await;
    let client = asked_by_form(&scene.gateway);
    let call = first("travel");
    let asked = called(&client, &call).await;
    assert_eq!(asked["inputRequests"]["from"]["params"]["message"], "From where?", "{asked}");
    assert_eq!(asked["inputRequests"]["to"]["params"]["message"], "To where?", "{asked}");
    let half = called(&client, &again(&call, &asked, json!({ "to": reply("Rom") }))).await;
    assert_eq!(key_of(&half), "from");
    assert!(answers(&scene.agent).is_empty(), "the agent hears of it when all is there");
    assert_eq!(
        words(&called(&client, &again(&call, &half, json!({ "from": reply("Ulm") }))).await),
        "thank you"
    );
    let told = json!({ "from": { "reply": "Ulm" }, "to": { "reply": "Rom" } });
    assert_eq!(answers(&scene.agent)[0]["parts"][0]["data"], told);
    assert_eq!(answers(&scene.agent).len(), 1);
}

#[tokio::test]
async fn questions_come_on_stream_one_by_one() {
    let (scene, _) = scene("", [two_at_once()]).await;
    let session = asked_on_stream(&scene.gateway, "2025-06-18").await;
    let (mut call, asked) = until_asked(&session).await;
    assert_eq!(asked["params"]["message"], "From where?");
    session.respond(&asked["id"], reply("Ulm")).await;
    let next = call.next_message().await;
    assert_eq!(next["params"]["message"], "To where?", "{next}");
    session.respond(&next["id"], reply("Rom")).await;
    assert_eq!(words(&call.result().await), "thank you");
    let told = json!({ "from": { "reply": "Ulm" }, "to": { "reply": "Rom" } });
    assert_eq!(answers(&scene.agent)[0]["parts"][0]["data"], told);
}

#[tokio::test]
async fn extension_task_is_answered_in_parts() {
    let scene = Scene::tuned("calls: { task_after: 0s }").await;
    let works = Signal::new();
    Quiz::working(&scene.agent, Some(works.clone()), [two_at_once(), question("When?")]);
    let client = with_tasks(&scene.gateway);
    let task = called(&client, &first("travel")).await;
    assert_eq!(task["resultType"], "task", "{task}");
    let id = &task["taskId"];
    works.fire();
    let asked = until_status(&client, id, "input_required").await;
    assert_eq!(asked["inputRequests"]["from"]["params"]["message"], "From where?", "{asked}");
    assert_eq!(asked["inputRequests"].as_object().unwrap().len(), 2);
    let answer = async |answers: Value| {
        let params = json!({ "taskId": id, "inputResponses": answers });
        client.modern("tasks/update", params).await.json().await
    };
    let taken = answer(json!({ "to": reply("Rom"), "nobody-asked": reply("x") })).await;
    assert_eq!(taken["result"]["resultType"], "complete", "{taken}");
    assert_eq!(key_of(&until_status(&client, id, "input_required").await), "from");
    assert!(answers(&scene.agent).is_empty());
    assert_eq!(answer(json!({ "from": accept(json!({ "reply": 7 })) })).await["error"]["code"], -32602);
    answer(json!({ "from": reply("Ulm") })).await;
    let next = in_time("the next question", async {
        loop {
            let found = until_status(&client, id, "input_required").await;
            if found["inputRequests"].get("from").is_none() {
                return found;
            }
        }
    });
    let next = next.await;
    assert_eq!(next["inputRequests"][key_of(&next)]["params"]["message"], "When?");
    answer(keyed(&next, reply("now"))).await;
    let done = until_status(&client, id, "completed").await;
    assert_eq!(words(&done["result"]), "thank you");
    assert_eq!(answers(&scene.agent).len(), 2);
}
