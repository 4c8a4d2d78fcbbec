//! The stream of a call under way: progress in flight, log messages, keep-alives, and JSON where it
//! is enough.

use serde_json::{Value, json};

use crate::kit::scene::{RAW_CONTEXT, RAW_TASK, Scene, TOOL, words};
use crate::support::payload::v1;
use crate::support::{Answer, Card, Reply, Signal};

fn working(text: &str) -> Value {
    v1::status_update(RAW_TASK, RAW_CONTEXT, "working", Some(text))
}

fn chunk(text: &str, append: bool) -> Value {
    v1::artifact_update(RAW_TASK, RAW_CONTEXT, text, append, false)
}

fn completed() -> Value {
    v1::status_update(RAW_TASK, RAW_CONTEXT, "completed", None)
}

fn begun() -> Value {
    v1::task(RAW_TASK, RAW_CONTEXT, "working")
}

fn log_level(level: &str) -> Value {
    json!({ "io.modelcontextprotocol/logLevel": level })
}

/// The next notification, which must be of this method.
async fn told(answer: &mut Answer, method: &str) -> Value {
    let message = answer.next_message().await;
    assert_eq!(message["method"], method, "{message}");
    message["params"].clone()
}

#[tokio::test]
async fn progress_arrives_while_agent_works() {
    let scene = Scene::new().await;
    let (first, second) = (Signal::new(), Signal::new());
    let (one, two) = (first.clone(), second.clone());
    scene.agent.on_send(move |_| {
        let stream = Reply::stream().event(begun()).event(working("tuning")).wait(&one);
        stream.event(chunk("la ", false)).wait(&two).event(chunk("la", true)).event(completed())
    });
    let mut answer = scene.call_with(json!({ "text": "x" }), json!({ "progressToken": 0 })).await;
    assert!(answer.is_stream());
    assert!(answer.header("cache-control").is_some_and(|value| value.contains("no-cache")));
    assert_eq!(answer.header("x-accel-buffering"), Some("no"));
    let mut last = 0.0;
    let mut heard = Vec::new();
    // Each is waited for before the agent is let go on: nothing is held back.
    for wanted in ["tuning", "la "] {
        loop {
            let params = told(&mut answer, "notifications/progress").await;
            assert_eq!(params["progressToken"], json!(0), "the token keeps its type");
            let progress = params["progress"].as_f64().unwrap();
            assert!(progress > last, "{progress} after {last}");
            last = progress;
            heard.push(params["message"].clone());
            if params["message"] == wanted {
                break;
            }
        }
        assert!(scene.agent.log().answered.len() < 2, "the agent is still at it");
        if wanted == "tuning" { first.fire() } else { second.fire() }
    }
    let finished = answer.finish().await;
    assert_eq!(words(&finished.response["result"]), "la la");
    assert_eq!(finished.response["result"]["isError"], false);
}

#[tokio::test]
async fn legacy_progress_comes_on_call() {
    for version in ["2025-03-26", "2025-06-18", "2025-11-25"] {
        let scene = Scene::new().await;
        scene.agent.on_send(|_| Reply::events([begun(), working("tuning"), chunk("la", false), completed()]));
        let session = scene.gateway.client().legacy_version(version).await;
        let params =
            json!({ "name": TOOL, "arguments": { "text": "x" }, "_meta": { "progressToken": "a/1" } });
        let finished = session.call("tools/call", params).await.finish().await;
        let messages: Vec<_> =
            finished.notifications.iter().map(|note| note["params"]["message"].as_str().unwrap()).collect();
        assert!(messages.contains(&"tuning") && messages.contains(&"la"), "{version}: {messages:?}");
        assert!(finished.notifications.iter().all(|note| note["params"]["progressToken"] == "a/1"));
        assert_eq!(words(&finished.response["result"]), "la");
    }
}

#[tokio::test]
async fn agent_progress_numbers_are_kept() {
    let scene = Scene::new().await;
    scene.agent.on_send(|_| {
        let mut half = working("half");
        half["statusUpdate"]["metadata"] = json!({ "progress": 50.0, "total": 100.0 });
        Reply::events([begun(), half, completed()])
    });
    let notes = scene.followed("x").await.notifications;
    let half = notes.iter().find(|note| note["params"]["message"] == "half").unwrap();
    assert_eq!((&half["params"]["progress"], &half["params"]["total"]), (&json!(50), &json!(100)));
}

#[tokio::test]
async fn log_messages_come_on_request() {
    let scene = Scene::new().await;
    scene.agent.on_send(|_| Reply::events([begun(), working("tuning"), completed()]));
    let finished = scene.call_with(json!({ "text": "x" }), log_level("info")).await.finish().await;
    let notes = finished.notifications;
    assert!(
        !notes.is_empty() && notes.iter().all(|note| note["method"] == "notifications/message"),
        "{notes:?}"
    );
    let tuning = notes.iter().find(|note| note["params"]["data"] == "tuning").unwrap();
    assert_eq!((&tuning["params"]["level"], &tuning["params"]["logger"]), (&json!("info"), &json!("bard")));
    let quiet = scene.call_with(json!({ "text": "x" }), log_level("error")).await;
    assert!(quiet.finish().await.notifications.is_empty());
}

#[tokio::test]
async fn session_log_level_is_kept() {
    let scene = Scene::new().await;
    scene.agent.on_send(|_| Reply::events([begun(), working("tuning"), completed()]));
    let session = scene.session().await;
    let heard = async || {
        let finished = session.call_tool(TOOL, json!({ "text": "x" })).await.finish().await;
        finished.notifications.iter().filter(|note| note["method"] == "notifications/message").count()
    };
    for (level, hears) in [("debug", true), ("critical", false), ("info", true)] {
        session.call("logging/setLevel", json!({ "level": level })).await.result().await;
        assert_eq!(heard().await > 0, hears, "{level}");
    }
}

#[tokio::test]
async fn immediate_answer_is_json() {
    let scene = Scene::new().await;
    scene.agent.on_send(|_| Reply::events([begun(), working("tuning"), completed()]));
    // The client did not ask for notifications.
    let answer = scene.call(json!({ "text": "x" })).await;
    assert_eq!((answer.is_stream(), answer.header("content-type")), (false, Some("application/json")));
    assert!(answer.header("content-length").is_some());
    let body = answer.text().await;
    assert!(!body.contains('\n'), "one line");
    // There is nothing to be told.
    scene.agent.on_send(|_| Reply::events([v1::message("at once")]));
    let answer = scene.call_with(json!({ "text": "x" }), json!({ "progressToken": 1 })).await;
    assert_eq!(words(&answer.result().await), "at once");
}

#[tokio::test]
async fn silent_agent_becomes_kept_alive_stream() {
    let scene = Scene::tuned("calls: { stream_after: 100ms, keep_alive: 1s }").await;
    let go = Signal::new();
    let wait = go.clone();
    scene.agent.on_send(move |_| Reply::stream().wait(&wait).event(v1::message("at last")));
    let mut answer = scene.call(json!({ "text": "x" })).await;
    assert!(answer.is_stream(), "the client asked for nothing, but waits long");
    for _ in 0..2 {
        let piece = answer.next_piece().await.unwrap();
        assert!(piece.comment.is_some(), "{piece:?}");
    }
    go.fire();
    assert_eq!(words(&answer.result().await), "at last");
}

#[tokio::test]
async fn events_have_no_id_and_one_line() {
    let scene = Scene::new().await;
    scene.agent.on_send(|_| Reply::events([begun(), working("two\nlines\r\nand \u{2028}"), completed()]));
    let mut answer = scene.call_with(json!({ "text": "x" }), json!({ "progressToken": "p" })).await;
    let mut count = 0;
    while let Some(event) = answer.next_event().await {
        let data = event.data.clone().unwrap();
        assert!(event.id.is_none() && !data.contains('\n'), "{event:?}");
        assert_eq!(event.json()["jsonrpc"], "2.0");
        count += 1;
    }
    assert!(count >= 2, "{count} events");
}

#[tokio::test]
async fn repeated_event_is_told_once() {
    let scene = Scene::new().await;
    scene.agent.on_send(|_| {
        Reply::events([begun(), working("tuning"), working("tuning"), completed(), completed()])
    });
    let notes = scene.followed("x").await.notifications;
    assert_eq!(notes.iter().filter(|note| note["params"]["message"] == "tuning").count(), 1, "{notes:?}");
}

#[tokio::test]
async fn agent_pings_are_not_passed_on() {
    let scene = Scene::new().await;
    scene.agent.on_send(|_| {
        let stream = Reply::stream().comment("ping").event(begun()).comment("ping");
        stream.bytes(b"event: noise\nid: 7\nretry: 1\n\n").event(working("tuning")).event(completed())
    });
    let mut answer = scene.call_with(json!({ "text": "x" }), json!({ "progressToken": "p" })).await;
    while let Some(piece) = answer.next_piece().await {
        assert!(piece.comment.is_none() && piece.id.is_none(), "{piece:?}");
    }
}

/// The client reads nothing while the agent has 16 MB to say, more than all buffers together hold.
#[tokio::test]
async fn slow_reader_holds_agent_back() {
    let scene = Scene::new().await;
    let text = "x".repeat(8_000);
    scene.agent.on_send(move |_| {
        let all = (0..2_000).map(|place| chunk(&format!("{place}{text}"), false));
        Reply::events(std::iter::once(begun()).chain(all).chain([completed()]))
    });
    let unread = scene.call_with(json!({ "text": "x" }), json!({ "progressToken": "p" })).await;
    let read = scene.call_with(json!({ "text": "x" }), json!({ "progressToken": "p" })).await;
    assert!(unread.is_stream() && read.is_stream());
    // One that began later and is read has come to its end: the other must not have.
    assert_eq!(read.finish().await.response["result"]["isError"], false);
    let first = scene.agent.calls("SendStreamingMessage")[0].number;
    let log = scene.agent.log();
    assert!(!log.answered.contains(&first), "all was taken from the agent for a client that reads nothing");
    let finished = unread.finish().await;
    assert_eq!(finished.response["result"]["isError"], false, "nothing is lost");
    assert!(words(&finished.response["result"]).starts_with("1999"));
}

/// The client reads nothing for longer than the agent may be silent. The agent has sent more, and is not asked for its task.
#[tokio::test]
async fn slow_reader_is_no_silence_of_agent() {
    let scene = Scene::tuned("streams: { idle_timeout: 1s }").await;
    let text = "x".repeat(8_000);
    scene.agent.on_send(move |request| match request.text().as_str() {
        "silent" => Reply::stream().event(v1::task("raw-silent", RAW_CONTEXT, "working")).stall(),
        _ => {
            let all = (0..2_000).map(|place| chunk(&format!("{place}{text}"), false));
            Reply::events(std::iter::once(begun()).chain(all).chain([completed()]))
        }
    });
    scene.agent.on_get(|request| {
        let task = request.params()["id"].as_str().unwrap_or_default().to_owned();
        Reply::result(v1::bare_completed(&task, RAW_CONTEXT, "asked for"))
    });
    let unread = scene.call_with(json!({ "text": "long" }), json!({ "progressToken": "p" })).await;
    assert!(unread.is_stream());
    // Each of these waits for the whole time for which a stream may be silent.
    for _ in 0..3 {
        assert_eq!(words(&scene.said("silent").await), "asked for");
    }
    let first = scene.agent.calls("SendStreamingMessage")[0].number;
    assert!(!scene.agent.log().answered.contains(&first), "the agent waits for the client");
    let finished = unread.finish().await;
    assert!(words(&finished.response["result"]).starts_with("1999"));
    let asked: Vec<Value> =
        scene.agent.calls("GetTask").iter().map(|request| request.params()["id"].clone()).collect();
    assert_eq!(asked, ["raw-silent"; 3], "the task of the slow client is not asked for");
}

#[tokio::test]
async fn old_and_new_agents_stream_alike() {
    use crate::support::payload::v0_3;
    let scene = Scene::of(Card::v0_3().skill("sing"), "", "").await;
    scene.agent.on_send(|_| {
        Reply::events([
            v0_3::task(RAW_TASK, RAW_CONTEXT, "submitted"),
            v0_3::status_update(RAW_TASK, RAW_CONTEXT, "working", Some("tuning"), false),
            v0_3::artifact_update(RAW_TASK, RAW_CONTEXT, "la ", false, false),
            v0_3::artifact_update(RAW_TASK, RAW_CONTEXT, "la", true, true),
            v0_3::status_update(RAW_TASK, RAW_CONTEXT, "completed", None, true),
        ])
    });
    let finished = scene.followed("x").await;
    assert!(finished.notifications.iter().any(|note| note["params"]["message"] == "tuning"));
    assert_eq!(words(&finished.response["result"]), "la la");
}
