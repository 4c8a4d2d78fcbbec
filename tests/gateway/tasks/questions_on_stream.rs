//! Agents that ask legacy clients: `elicitation/create` on the stream of the call, or of the result
//! of its task.

use serde_json::{Value, json};

use crate::kit::quiz::{accept, answers, asked_on_stream, first, question, reply, scene, seat, until_asked};
use crate::kit::scene::{task_of, words};
use crate::support::Reply;
use crate::support::client::Finished;

#[tokio::test]
async fn call_asks_on_its_stream() {
    for (version, mode) in [("2025-06-18", None), ("2025-11-25", Some("form"))] {
        let (scene, _) = scene("", [question("Which colour?"), seat()]).await;
        let session = asked_on_stream(&scene.gateway, version).await;
        let (mut call, asked) = until_asked(&session).await;
        assert_eq!(asked["params"].get("mode").and_then(Value::as_str), mode, "{version}");
        assert_eq!(asked["params"]["message"], "Which colour?");
        assert!(!asked.to_string().contains("raw-"), "{asked}");
        session.respond(&asked["id"], reply("blue")).await;
        let next = call.next_message().await;
        assert_eq!(next["params"]["requestedSchema"]["required"], json!(["row"]), "{next}");
        assert_ne!(next["id"], asked["id"]);
        session.respond(&next["id"], accept(json!({ "row": 4 }))).await;
        let done = call.finish().await;
        assert_eq!(words(&done.response["result"]), "thank you", "{version}");
        assert!(done.notifications.is_empty(), "{:?}", done.notifications);
        let told: Vec<_> = answers(&scene.agent).iter().map(|told| told["parts"][0].clone()).collect();
        assert_eq!(told, [json!({ "text": "blue" }), json!({ "data": { "row": 4 } })]);
    }
}

#[tokio::test]
async fn unaskable_core_task_is_completed() {
    let (scene, _) = scene("", [question("Which colour?")]).await;
    let session = scene.session().await;
    let mut params = first("paint");
    params["task"] = json!({});
    let made = session.call("tools/call", params).await.result().await;
    let of_task = json!({ "taskId": made["task"]["taskId"] });
    assert_eq!(session.call("tasks/get", of_task.clone()).await.result().await["status"], "completed");
    let result = session.call("tasks/result", of_task).await.result().await;
    assert!(words(&result).contains("Which colour?"), "{result}");
    assert_eq!(task_of(&result), made["task"]["taskId"]);
}

#[tokio::test]
async fn answer_elsewhere_withdraws_question() {
    // Some agents close their stream at once when they ask, others never do.
    for closes in [true, false] {
        let (scene, quiz) = scene("", [question("Which colour?")]).await;
        let asks = json!({ "task": quiz.task() });
        scene.agent.on_stream(move |_| match closes {
            true => Reply::events([asks.clone()]),
            false => Reply::stream().event(asks.clone()).stall(),
        });
        let session = asked_on_stream(&scene.gateway, "2025-11-25").await;
        let (call, asked) = until_asked(&session).await;
        quiz.go_on();
        let Finished { notifications, response } = call.finish().await;
        assert_eq!(words(&response["result"]), "thank you");
        assert_eq!(notifications[0]["params"]["requestId"], asked["id"], "{notifications:?}");
        assert!(answers(&scene.agent).is_empty());
    }
}
