//! Limits that hold even for an agent without an end: patience, followed calls, batches, foreign
//! tasks.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::kit::scene::{RAW_CONTEXT, RAW_TASK, Scene, TOOL, complaint, words};
use crate::support::payload::v1;
use crate::support::{Card, Reply};

const SHORT: &str = "calls: { budget: 1s, max_rounds: 0, stream_after: 1s }";

/// So many updates that an agent has always something to say while a call lasts.
fn flood() -> Reply {
    let begin = Reply::stream().event(v1::task(RAW_TASK, RAW_CONTEXT, "working"));
    let told = (0..20_000).fold(begin, |reply, number| {
        reply.event(v1::status_update(RAW_TASK, RAW_CONTEXT, "working", Some(&format!("step {number}"))))
    });
    told.stall()
}

#[tokio::test]
async fn endless_agent_does_not_outlast_budget() {
    let scene = Scene::tuned(SHORT).await;
    scene.agent.on_stream(|_| flood());
    let begun = Instant::now();
    let result = scene.said("go").await;
    assert!(words(&result).contains("still working"), "{result}");
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn other_task_is_never_mistaken() {
    let scene = Scene::tuned(SHORT).await;
    scene.agent.on_stream(|_| Reply::events([v1::task(RAW_TASK, RAW_CONTEXT, "working")]));
    scene.agent.on_get(|_| Reply::result(v1::bare_completed("somebody-elses", "x", "secret")));
    let result = scene.said("go").await;
    assert!(complaint(&result).contains("another task"), "{result}");
    assert!(!result.to_string().contains("secret"));
}

#[tokio::test]
async fn no_handle_leads_nowhere() {
    let scene = Scene::tuned(&format!("{SHORT}\nbackground: {{ max: 1 }}")).await;
    // It never names a task.
    scene.agent.on_stream(|_| Reply::stream().stall());
    assert!(words(&scene.said("one").await).contains("still working"));
    let second = scene.said("two").await;
    assert!(complaint(&second).contains("too many calls are followed"), "{second}");
}

#[tokio::test]
async fn unwatched_stream_turns_to_polling() {
    let scene = Scene::tuned(&format!("{SHORT}\nbackground: {{ lifetime: 1s }}")).await;
    scene.agent.on_stream(|_| Reply::stream().event(v1::task(RAW_TASK, RAW_CONTEXT, "working")).stall());
    let given = scene.said("go").await;
    assert!(given["structuredContent"]["taskId"].is_string(), "{given}");
    let polled = async {
        while scene.agent.calls("GetTask").is_empty() {
            tokio::task::yield_now().await;
        }
    };
    crate::support::in_time("the task to be polled", polled).await;
}

/// Messages in tasks that are followed already take no place among the followers; they have places
/// of their own.
#[tokio::test]
async fn messages_beyond_limit_are_not_sent() {
    const ROOM: usize = 64;
    let scene = Scene::tuned(&format!("{SHORT}\nbackground: {{ max: 1 }}")).await;
    scene.agent.on_send(|_| Reply::stream().event(v1::task(RAW_TASK, RAW_CONTEXT, "working")).stall());
    let task = scene.said("go").await["structuredContent"]["taskId"].clone();
    scene.agent.on_send(|_| Reply::stream().stall());
    scene.agent.on_get(|_| Reply::result(v1::bare_task(RAW_TASK, RAW_CONTEXT, "working")));
    let client = scene.gateway.client();
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..ROOM + 3 {
        let params = json!({ "name": TOOL, "arguments": { "text": "and this", "taskId": task } });
        let client = client.clone();
        calls.spawn(async move { client.modern("tools/call", params).await.result().await.to_string() });
    }
    let answers = calls.join_all().await;
    let refused = answers.iter().filter(|answer| answer.contains("too much waits to be said")).count();
    assert_eq!((refused, scene.agent.calls("SendMessage").len()), (3, ROOM), "{:?}", answers.first());
}

#[tokio::test]
async fn non_base64_becomes_readable_text() {
    let scene = Scene::new().await;
    let part = json!({ "raw": "!!!!", "mediaType": "image/png", "filename": "photo.png" });
    scene.agent.on_stream(move |_| {
        let mut task = v1::completed(RAW_TASK, RAW_CONTEXT, "x");
        task["task"]["artifacts"][0]["parts"] = json!([part]);
        Reply::events([task])
    });
    assert!(words(&scene.said("draw").await).contains("photo.png"));
}

#[tokio::test]
async fn own_schema_validates_arguments() {
    let skill = "skills: { sing: { input_schema: { type: object, properties: { n: { maximum: 10 } } } } }";
    let scene = Scene::of(Card::v1().skill("sing"), skill, "").await;
    scene.agent.on_stream(|_| Reply::events([v1::message("la")]));
    let call = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"{TOOL}","arguments":{{"n":99,"n":1}}}}}}"#
    );
    let headers = [("Content-Type", "application/json")];
    let answer = scene.gateway.client().send("POST", &headers, call.into_bytes()).await.json().await;
    assert!(complaint(&answer["result"]).contains("twice"), "{answer}");
    assert!(scene.agent.calls("SendStreamingMessage").is_empty());
}

/// Followed tasks of clients that went away make room for others, and are found again at their
/// agent.
#[tokio::test]
async fn unwatched_tasks_make_room_in_full_map() {
    let scene = Scene::tuned(&format!("{SHORT}\ntasks: {{ max: 2 }}")).await;
    scene.agent.on_send(|request| {
        let id = format!("raw-{}", request.text());
        Reply::stream().event(v1::task(&id, RAW_CONTEXT, "working")).stall()
    });
    scene.agent.on_get(|request| {
        Reply::result(v1::bare_task(request.params()["id"].as_str().unwrap(), RAW_CONTEXT, "working"))
    });
    scene.agent.on_subscribe(|_| Reply::error(-32004, "not now"));
    let first = crate::kit::scene::task_of(&scene.said("one").await);
    crate::kit::scene::task_of(&scene.said("two").await);
    let session = scene.session().await;
    session.begin_task(TOOL, json!({ "text": "three" })).await;
    let params = json!({ "name": "subagent_get", "arguments": { "taskId": first } });
    let looked = scene.gateway.client().modern("tools/call", params).await.result().await;
    assert_eq!(looked["structuredContent"]["state"], "working", "{looked}");
}
