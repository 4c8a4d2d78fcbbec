//! Agents that ask modern clients: the user is asked, the call comes again, and the agent gets one
//! answer in its task.

use serde_json::json;

use crate::kit::quiz::{
    accept, again, answers, asked_by_form, called, first, key_of, keyed, question, reply, scene, seat,
};
use crate::kit::scene::{RAW_CONTEXT, RAW_TASK, Scene, task_of, words};
use crate::support::payload::v0_3;
use crate::support::{Card, Reply, Request};

#[tokio::test]
async fn modern_call_repeats_with_answer() {
    let (scene, _) = scene("", [question("Which colour?")]).await;
    let client = asked_by_form(&scene.gateway);
    let call = first("paint");
    let asked = called(&client, &call).await;
    let request = &asked["inputRequests"][key_of(&asked)];
    assert_eq!(request["method"], "elicitation/create");
    assert_eq!(
        (&request["params"]["mode"], &request["params"]["message"]),
        (&json!("form"), &json!("Which colour?"))
    );
    let schema = &request["params"]["requestedSchema"];
    assert_eq!(
        (&schema["properties"]["reply"]["type"], &schema["required"]),
        (&json!("string"), &json!(["reply"]))
    );
    assert!(!asked.to_string().contains("raw-"), "{asked}");
    let done = called(&client, &again(&call, &asked, keyed(&asked, reply("blue")))).await;
    assert_eq!((words(&done), &done["resultType"]), ("thank you", &json!("complete")));
    let told = answers(&scene.agent);
    assert_eq!(told.len(), 1);
    assert_eq!((&told[0]["taskId"], &told[0]["contextId"]), (&json!(RAW_TASK), &json!(RAW_CONTEXT)));
    assert_eq!((&told[0]["parts"], &told[0]["role"]), (&json!([{ "text": "blue" }]), &json!("ROLE_USER")));
}

#[tokio::test]
async fn questions_may_follow_one_another() {
    let (scene, _) = scene("", ["From?", "To?", "When?"].map(question)).await;
    let client = asked_by_form(&scene.gateway);
    let call = first("travel");
    let mut asked = called(&client, &call).await;
    let mut keys = Vec::new();
    for (text, answer) in [("From?", "Ulm"), ("To?", "Rom"), ("When?", "now")] {
        let key = key_of(&asked);
        assert_eq!(asked["inputRequests"][&key]["params"]["message"], text);
        assert!(!keys.contains(&key), "each question has a key of its own");
        keys.push(key);
        asked = called(&client, &again(&call, &asked, keyed(&asked, reply(answer)))).await;
    }
    assert_eq!(words(&asked), "thank you");
    let told: Vec<_> = answers(&scene.agent).iter().map(|told| told["parts"][0]["text"].clone()).collect();
    assert_eq!(told, ["Ulm", "Rom", "now"]);
}

#[tokio::test]
async fn own_form_of_agent_returns_as_data() {
    let (scene, _) = scene("", [seat()]).await;
    let client = asked_by_form(&scene.gateway);
    let call = first("fly");
    let asked = called(&client, &call).await;
    let form = &asked["inputRequests"]["seat"]["params"]["requestedSchema"];
    assert_eq!(
        (&form["properties"]["row"]["type"], &form["required"]),
        (&json!("integer"), &json!(["row"])),
        "{asked}"
    );
    let answer = json!({ "seat": accept(json!({ "row": 12, "window": true })) });
    assert_eq!(words(&called(&client, &again(&call, &asked, answer)).await), "thank you");
    assert_eq!(answers(&scene.agent)[0]["parts"][0]["data"], json!({ "row": 12, "window": true }));
}

#[tokio::test]
async fn unfitting_answer_leaves_question_open() {
    let (scene, _) = scene("", [seat()]).await;
    let client = asked_by_form(&scene.gateway);
    let call = first("fly");
    let asked = called(&client, &call).await;
    for wrong in
        [accept(json!({ "row": "twelve" })), accept(json!({ "row": 0 })), accept(json!({})), json!(7)]
    {
        let params = again(&call, &asked, json!({ "seat": wrong }));
        assert_eq!(client.modern("tools/call", params).await.error_code().await, -32602, "{wrong}");
    }
    assert!(answers(&scene.agent).is_empty());
    let right = again(&call, &asked, json!({ "seat": accept(json!({ "row": 3 })) }));
    assert_eq!(words(&called(&client, &right).await), "thank you");
    assert_eq!(answers(&scene.agent).len(), 1);
}

#[tokio::test]
async fn unanswered_part_is_asked_again() {
    let (scene, _) = scene("", [question("Which colour?")]).await;
    let client = asked_by_form(&scene.gateway);
    let call = first("paint");
    let mut asked = called(&client, &call).await;
    let key = key_of(&asked);
    for nothing in [json!({}), json!({ "nobody-asked": reply("blue") }), json!(null)] {
        asked = called(&client, &again(&call, &asked, nothing)).await;
        assert_eq!(key_of(&asked), key, "the same question under the same key");
    }
    assert!(answers(&scene.agent).is_empty());
    assert_eq!(
        words(&called(&client, &again(&call, &asked, keyed(&asked, reply("red")))).await),
        "thank you"
    );
}

#[tokio::test]
async fn answer_given_with_call_is_used() {
    let (scene, _) = scene("", [seat(), question("And a meal?")]).await;
    let client = asked_by_form(&scene.gateway);
    let mut call = first("fly");
    call["inputResponses"] = json!({ "seat": accept(json!({ "row": 7 })) });
    let asked = called(&client, &call).await;
    assert_eq!(asked["inputRequests"][key_of(&asked)]["params"]["message"], "And a meal?");
    assert_eq!(answers(&scene.agent)[0]["parts"][0]["data"], json!({ "row": 7 }));
}

#[tokio::test]
async fn declined_question_leaves_task_open() {
    for (action, told) in [("decline", "declined"), ("cancel", "Which colour?")] {
        let (scene, _) = scene("", [question("Which colour?")]).await;
        let client = asked_by_form(&scene.gateway);
        let call = first("paint");
        let asked = called(&client, &call).await;
        let refused =
            called(&client, &again(&call, &asked, keyed(&asked, json!({ "action": action })))).await;
        assert_eq!(refused["structuredContent"]["state"], "input-required", "{action}");
        assert!(words(&refused).contains(told), "{refused}");
        let task = task_of(&refused);
        assert!(answers(&scene.agent).is_empty() && scene.agent.calls("CancelTask").is_empty(), "{action}");
        let later = scene.call(json!({ "taskId": task, "text": "blue" })).await.result().await;
        assert_eq!(words(&later), "thank you", "{action}: it can still be answered");
    }
}

#[tokio::test]
async fn older_agents_ask_in_same_way() {
    let scene = Scene::of(Card::v0_3().skill("sing"), "", "").await;
    let asks = |request: &Request| {
        let is_answer = request.message()["taskId"].is_string();
        let task = match is_answer {
            true => v0_3::completed(RAW_TASK, RAW_CONTEXT, "thank you"),
            false => v0_3::asking(RAW_TASK, RAW_CONTEXT, "Which colour?"),
        };
        if request.wants_stream() { Reply::events([task]) } else { Reply::result(task) }
    };
    scene.agent.on_send(asks);
    scene.agent.on_get(|_| Reply::result(v0_3::asking(RAW_TASK, RAW_CONTEXT, "Which colour?")));
    let client = asked_by_form(&scene.gateway);
    let call = first("paint");
    let asked = called(&client, &call).await;
    let done = called(&client, &again(&call, &asked, keyed(&asked, reply("blue")))).await;
    assert_eq!(words(&done), "thank you");
    assert_eq!(answers(&scene.agent)[0]["parts"], json!([{ "kind": "text", "text": "blue" }]));
}
