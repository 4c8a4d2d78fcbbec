//! Agents of A2A 0.1: the same tools, tasks, questions and cancellations as for every other agent.
//!
//! The difference there: the gateway makes the ids, so a task can be read and cancelled before the
//! agent's first event.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicUsize};

use serde_json::{Value, json};

use crate::kit::quiz::{again, asked_by_form, called, first, keyed, reply};
use crate::kit::scene::{Scene, TOOL, complaint, task_of, words};
use crate::support::payload::{v0_1, v0_3};
use crate::support::{Card, Reply, Request, ScriptedAgent, Signal, TestGateway};

const SEND: &str = "tasks/send";
const STREAM: &str = "tasks/sendSubscribe";
const GET: &str = "tasks/get";
const CANCEL: &str = "tasks/cancel";

/// A card that only an agent of 0.1 has.
fn card() -> Card {
    Card::v0_1().set("authentication", json!({ "schemes": ["Bearer"] })).skill("sing")
}

/// An agent that streams.
async fn scene(settings: &str) -> Scene {
    Scene::of(card(), "", settings).await
}

/// An agent that does not.
async fn plain(settings: &str) -> Scene {
    Scene::of(card().streaming(false), "", settings).await
}

/// The task that a request is about.
fn id(request: &Request) -> String {
    request.params()["id"].as_str().unwrap_or_else(|| panic!("no id: {}", request.params())).to_owned()
}

/// The progress that a client got.
fn told(notifications: &[Value]) -> Vec<&str> {
    notifications.iter().filter_map(|told| told["params"]["message"].as_str()).collect()
}

fn is_uuid(value: &Value) -> bool {
    let groups: Vec<usize> = value.as_str().unwrap_or_default().split('-').map(str::len).collect();
    groups == [8, 4, 4, 4, 12]
}

#[tokio::test]
async fn call_streams_and_asks_in_0_1() {
    let scene = scene("").await;
    scene.agent.on(STREAM, |request| {
        let id = id(request);
        Reply::events([
            v0_1::status_saying(&id, "working", "on it", false),
            v0_1::artifact_update(&id, "la ", false, false),
            v0_1::artifact_update(&id, "la", true, true),
            v0_1::status_update(&id, "completed", true),
        ])
    });
    let all = scene.followed("a song").await;
    assert_eq!(words(&all.response["result"]), "la la");
    assert_eq!(told(&all.notifications)[..3], ["on it", "la ", "la"]);
    let sent = scene.agent.wait_for_call(STREAM).await;
    let params = sent.params();
    assert!(is_uuid(&params["id"]) && is_uuid(&params["sessionId"]), "{params}");
    let message = json!({ "role": "user", "parts": [{ "type": "text", "text": "a song" }] });
    assert_eq!(
        (&params["message"]["role"], &params["message"]["parts"]),
        (&message["role"], &message["parts"])
    );
    assert_eq!(params["message"].get("messageId").or(params["message"].get("kind")), None);
    assert_eq!((&params["acceptedOutputModes"], &params["historyLength"]), (&json!(["text"]), &json!(10)));
    assert_eq!(params.get("configuration"), None);
    assert_eq!((sent.header("a2a-version"), sent.header("a2a-extensions")), (None, None));
}

#[tokio::test]
async fn plain_answer_has_untyped_parts() {
    let scene = plain("").await;
    scene.agent.on(SEND, |request| {
        Reply::result(json!({ "id": id(request), "status": { "state": "completed" }, "history": [],
            "artifacts": [{ "name": "a", "parts": [{ "text": "one" }] }, { "name": "b", "parts": [{ "text": "two" }] }] }))
    });
    let result = scene.said("x").await;
    let texts: Vec<_> =
        result["content"].as_array().unwrap().iter().filter_map(|part| part["text"].as_str()).collect();
    assert!(texts.contains(&"one") && texts.contains(&"two"), "{result}");
}

#[tokio::test]
async fn repeated_artifact_replaces_first() {
    let scene = scene("").await;
    scene.agent.on(STREAM, |request| {
        let whole = |text: &str| {
            let artifact = json!({ "name": "report", "parts": [{ "text": text }] });
            json!({ "id": id(request), "artifact": artifact })
        };
        let end = v0_1::status_update(&id(request), "completed", true);
        Reply::events([whole("la "), whole("la la "), whole("la la la"), end])
    });
    let all = scene.followed("x").await;
    assert_eq!(words(&all.response["result"]), "la la la");
    assert_eq!(told(&all.notifications)[..3], ["la ", "la ", "la"], "only what is new");
}

#[tokio::test]
async fn question_is_answered_in_task() {
    let scene = scene("").await;
    scene.agent.on_send(|request| {
        let id = id(request);
        match (request.text() == "blue", request.wants_stream()) {
            (true, true) => {
                let end = v0_1::status_update(&id, "completed", true);
                Reply::events([v0_1::artifact_update(&id, "a blue one", false, true), end])
            }
            // While the stream of the question is still read, the answer goes beside it.
            (true, false) => Reply::result(v0_1::completed(&id, "a blue one")),
            (false, _) => Reply::events([v0_1::status_saying(&id, "input-required", "Which colour?", true)]),
        }
    });
    scene.agent.on_get(|request| Reply::result(v0_1::asking(&id(request), "Which colour?")));
    let client = asked_by_form(&scene.gateway);
    let call = first("paint");
    let asked = called(&client, &call).await;
    let done = called(&client, &again(&call, &asked, keyed(&asked, reply("blue")))).await;
    assert_eq!(words(&done), "a blue one");
    let calls = [scene.agent.calls(STREAM), scene.agent.calls("tasks/send")].concat();
    let [begun, answered] = calls.as_slice() else { panic!("{calls:#?}") };
    assert_eq!(begun.params()["id"], answered.params()["id"]);
    // The agent's answer to a question is its own; here it names another session than it was given.
    assert_eq!(answered.params()["sessionId"], "session-1");
}

#[tokio::test]
async fn conversation_continues_in_new_task() {
    let scene = scene("").await;
    scene.agent.on(STREAM, |request| {
        let id = id(request);
        let end = v0_1::status_update(&id, "completed", true);
        Reply::events([v0_1::artifact_update(&id, "la", false, true), end])
    });
    let result = scene.said("one").await;
    let hint = result["content"][1]["text"].as_str().unwrap_or_else(|| panic!("{result}"));
    let context = hint.split('"').nth(1).unwrap_or_else(|| panic!("{result}"));
    scene.call(json!({ "text": "two", "contextId": context })).await.result().await;
    let calls = scene.agent.calls(STREAM);
    let [one, two] = [calls[0].params(), calls[1].params()];
    assert_eq!(one["sessionId"], two["sessionId"]);
    assert_ne!(one["id"], two["id"]);
    assert!(!context.contains(one["sessionId"].as_str().unwrap()), "an id of the agent's got out");
}

#[tokio::test]
async fn cancel_before_first_event_stops_task() {
    for streams in [true, false] {
        let settings = "calls: { stream_after: 0s, cancel_grace: 0s }";
        let scene = Scene::of(card().streaming(streams), "", settings).await;
        scene.agent.on_send(|_| Reply::silence());
        // It takes the message in a moment after the cancellation.
        let is_known = AtomicBool::new(false);
        scene.agent.on_cancel(move |request| match is_known.swap(true, SeqCst) {
            true => Reply::result(v0_1::task(&id(request), "canceled")),
            false => Reply::error(-32001, "Task not found"),
        });
        let session = scene.session().await;
        let params = json!({ "name": TOOL, "arguments": { "text": "x" } });
        let body = json!({ "jsonrpc": "2.0", "id": "c", "method": "tools/call", "params": params });
        let answer = session.post(&body).await;
        let sent = scene.agent.wait_for_call(if streams { STREAM } else { SEND }).await;
        session.notify("notifications/cancelled", json!({ "requestId": "c" })).await;
        let log = scene.agent.wait_for("a second try", |log| log.calls(CANCEL).len() == 2).await;
        for cancel in log.calls(CANCEL) {
            assert_eq!(cancel.params()["id"], sent.params()["id"]);
        }
        drop(answer);
    }
}

#[tokio::test]
async fn task_is_visible_before_first_event() {
    let scene = plain("calls: { budget: 1s, stream_after: 1s, task_after: 100ms }").await;
    scene.agent.on(SEND, |_| Reply::silence());
    scene.agent.on_cancel(|request| Reply::result(v0_1::task(&id(request), "canceled")));
    let client = scene.gateway.client().with_tasks();
    let task = client
        .modern("tools/call", json!({ "name": TOOL, "arguments": { "text": "x" } }))
        .await
        .result()
        .await;
    let handle = task["taskId"].as_str().unwrap_or_else(|| panic!("{task}")).to_owned();
    client.task("tasks/cancel", &handle).await.result().await;
    let cancel = scene.agent.wait_for_call(CANCEL).await;
    assert_eq!(cancel.params()["id"], scene.agent.calls(SEND)[0].params()["id"]);
    client.task_until(&handle, "cancelled").await;
}

#[tokio::test]
async fn lost_answer_is_not_repeated() {
    for streams in [true, false] {
        let scene = Scene::of(card().streaming(streams), "", "").await;
        scene.agent.on_send(|_| Reply::hang_up());
        scene.agent.on_get(in_order_by_id([v0_1::task("", "working"), v0_1::completed("", "the song")]));
        assert_eq!(words(&scene.said("x").await), "the song");
        let log = scene.agent.log();
        let sent = [log.calls(SEND), log.calls(STREAM)].concat();
        assert_eq!(sent.len(), 1, "said once");
        assert!(log.calls(GET).iter().all(|get| get.params()["id"] == sent[0].params()["id"]));
    }
}

/// These tasks in order, each under the id that is asked for.
fn in_order_by_id<const N: usize>(tasks: [Value; N]) -> impl Fn(&Request) -> Reply + Send + Sync {
    let next = AtomicUsize::new(0);
    move |request| {
        let at = next.fetch_add(1, SeqCst).min(N - 1);
        let mut task = tasks[at].clone();
        task["id"] = id(request).into();
        Reply::result(task)
    }
}

#[tokio::test]
async fn lost_message_is_not_repeated() {
    let scene = plain("").await;
    scene.agent.on(SEND, |_| Reply::hang_up());
    scene.agent.on_get(|_| Reply::error(-32001, "Task not found"));
    assert!(complaint(&scene.said("x").await).contains("not known"));
    assert_eq!(scene.agent.calls(SEND).len(), 1);
}

#[tokio::test]
async fn broken_stream_is_polled() {
    let scene = scene("").await;
    scene.agent.on(STREAM, |request| {
        Reply::stream().event(v0_1::status_update(&id(request), "working", false)).cut()
    });
    scene.agent.on_get(in_order_by_id([
        v0_1::task("", "working"),
        v0_1::task("", "working"),
        v0_1::completed("", "the song"),
    ]));
    assert_eq!(words(&scene.said("x").await), "the song");
    assert_eq!(scene.agent.calls(GET).len(), 3);
    assert_eq!(scene.agent.calls(GET)[0].params()["historyLength"], 10);
    assert!(scene.agent.calls("tasks/resubscribe").is_empty());
}

#[tokio::test]
async fn handle_leads_back_to_task() {
    let scene = plain("calls: { budget: 3s, stream_after: 1s }").await;
    scene.agent.on(SEND, |request| Reply::result(v0_1::task(&id(request), "working")));
    let is_done = Arc::new(AtomicBool::new(false));
    let done = is_done.clone();
    scene.agent.on_get(move |request| {
        let id = id(request);
        Reply::result(if done.load(SeqCst) {
            v0_1::completed(&id, "the song")
        } else {
            v0_1::task(&id, "working")
        })
    });
    let params = json!({ "name": TOOL, "arguments": { "text": "x" } });
    let handle = task_of(&scene.session().await.call("tools/call", params).await.result().await);
    is_done.store(true, SeqCst);
    let result = scene.call(json!({ "taskId": handle })).await.result().await;
    assert_eq!(words(&result), "the song");
    assert!(!result.to_string().contains(&id(&scene.agent.calls(SEND)[0])), "{result}");
}

#[tokio::test]
async fn careless_later_card_costs_no_call() {
    let bare = Card::v0_1().skill_with(json!({ "id": "sing", "name": "sing" }));
    let scene = Scene::of(bare, "", "").await;
    scene.agent.on(STREAM, |_| Reply::error(-32601, "Method not found"));
    scene.agent.on("message/stream", |_| Reply::events([v0_3::completed("t", "c", "in a later tongue")]));
    for _ in 0..2 {
        assert_eq!(words(&scene.said("x").await), "in a later tongue");
    }
    assert_eq!(scene.agent.calls(STREAM).len(), 1, "it is remembered");
    let later = scene.agent.calls("message/stream")[0].message();
    assert_eq!((later.get("taskId"), later.get("contextId")), (None, None), "the agent makes its own");
}

/// The second call begins while the stream of the first is still open.
#[tokio::test]
async fn rejected_version_is_remembered_at_once() {
    let bare = Card::v0_1().skill_with(json!({ "id": "sing", "name": "sing" }));
    let scene = Scene::of(bare, "", "").await;
    scene.agent.on(STREAM, |_| Reply::error(-32601, "Method not found"));
    let go = Signal::new();
    let wait = go.clone();
    scene.agent.on("message/stream", move |request| match request.message()["parts"][0]["text"].as_str() {
        Some("first") => {
            let stream = Reply::stream().event(v0_3::task("t", "c", "working"));
            stream.wait(&wait).event(v0_3::completed("t", "c", "one"))
        }
        _ => Reply::events([v0_3::completed("u", "c", "two")]),
    });
    let first = scene.said("first");
    let second = async {
        scene.agent.wait_for_call("message/stream").await;
        let second = scene.said("second").await;
        go.fire();
        second
    };
    let (first, second) = tokio::join!(first, second);
    assert_eq!((words(&first), words(&second)), ("one", "two"));
    assert_eq!(scene.agent.calls(STREAM).len(), 1);
}

#[tokio::test]
async fn version_can_be_pinned_and_is_probed() {
    let pinned = Scene::of(Card::v0_3().skill("sing"), "protocol: \"0.1\"", "").await;
    pinned.agent.on(STREAM, |request| Reply::events([v0_1::completed(&id(request), "pinned")]));
    assert_eq!(words(&pinned.said("x").await), "pinned");
    let agent = ScriptedAgent::start(Card::v0_1().skill("sing")).await;
    // It starts nothing without a message.
    agent.on(SEND, |_| Reply::error(-32602, "Invalid parameters"));
    agent.on(STREAM, |request| Reply::events([v0_1::completed(&id(request), "probed")]));
    let gateway = TestGateway::before(&[("bard", &agent)]).await;
    let params = json!({ "name": TOOL, "arguments": { "text": "x" } });
    assert_eq!(words(&gateway.client().modern("tools/call", params).await.result().await), "probed");
}

#[tokio::test]
async fn codes_mean_what_they_meant_in_0_1() {
    for (code, told) in
        [(-32007, "credentials"), (-32008, "credentials"), (-32009, "it refused"), (-32010, "it refused")]
    {
        let scene = plain("").await;
        scene.agent.on(SEND, move |_| Reply::error(code, "no"));
        let result = scene.said("x").await;
        assert!(complaint(&result).contains(told), "{code}: {result}");
        assert_eq!(
            scene.agent.requests().iter().filter(|request| request.method == "POST").count(),
            1,
            "{code}"
        );
    }
}
