//! Agents that die, stall, lie or flood: a clear `isError` result, never a hang, never another
//! call's data.

use std::time::Instant;

use serde_json::{Value, json};

use crate::kit::scene::{RAW_CONTEXT, RAW_TASK, Scene, complaint, words};
use crate::support::payload::v1;
use crate::support::{Card, Reply, in_order};

fn begun() -> Value {
    v1::task(RAW_TASK, RAW_CONTEXT, "working")
}

fn said(text: &str) -> Value {
    v1::status_update(RAW_TASK, RAW_CONTEXT, "working", Some(text))
}

/// The text for the model, after the words that every trouble begins with.
async fn trouble(scene: &Scene) -> String {
    let result = scene.said("x").await;
    let told = complaint(&result);
    let told = told.strip_prefix("Agent \"bard\" did not complete the call: ");
    told.unwrap_or_else(|| panic!("other words: {result}")).to_owned()
}

/// Where the agent is, as no client may learn it.
fn no_address(scene: &Scene, told: &str) {
    let port = scene.agent.address().port().to_string();
    assert!(!told.contains(&port) && !told.contains("127.0.0.1"), "{told}");
}

#[tokio::test]
async fn invalid_answers_are_told_apart() {
    let scene = Scene::new().await;
    let challenge = "Bearer realm=\"inside\", resource_metadata=\"https://inside.example\"";
    for (reply, named) in [
        (Reply::status(502, "<html>Bad Gateway</html>"), "HTTP 502"),
        (Reply::status(500, ""), "HTTP 500"),
        (Reply::status(404, "<html>no such page</html>"), "HTTP 404"),
        (Reply::status(401, "who are you").header("WWW-Authenticate", challenge), "credentials"),
        (Reply::status(403, "go away"), "credentials"),
        (Reply::status(302, "").header("Location", "http://127.0.0.1:1/elsewhere"), "HTTP 302"),
        (Reply::status(307, "").header("Location", "/elsewhere"), "HTTP 307"),
        (Reply::status(200, "<html>hello</html>"), "neither JSON nor an event stream"),
        (Reply::bytes_of("application/json", b"<html>"), "broke the A2A protocol"),
        (Reply::bytes_of("application/json", b""), "broke the A2A protocol"),
        (Reply::bytes_of("application/json", b"[]"), "broke the A2A protocol"),
        (Reply::bytes_of("application/json", b"{\"jsonrpc\":\"2.0\",\"id\":1}"), "broke the A2A protocol"),
        (Reply::result(json!({ "neither": "task nor message" })), "broke the A2A protocol"),
        (Reply::result(json!(null)), "broke the A2A protocol"),
        (Reply::result(v1::message("x")).header("Content-Encoding", "gzip"), "encoding"),
        (Reply::hang_up(), "connection to it broke"),
        (
            Reply::raw(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 90\r\n\r\n{"),
            "broke",
        ),
        (Reply::raw(b"SSH-2.0-OpenSSH_9\r\n\r\n"), "broke"),
    ] {
        let shown = format!("{reply:?}");
        scene.agent.on_send(move |_| reply.clone());
        let told = trouble(&scene).await;
        assert!(told.contains(named), "{named}: {told}: {shown}");
        no_address(&scene, &told);
        assert!(!told.contains("html") && !told.contains("inside"), "{told}");
    }
    scene.agent.on_send(|_| Reply::events([v1::message("fine again")]));
    assert_eq!(words(&scene.said("x").await), "fine again");
}

#[tokio::test]
async fn challenge_never_reaches_client() {
    let scene = Scene::new().await;
    scene
        .agent
        .on_send(|_| Reply::status(401, "").header("WWW-Authenticate", "Bearer").header("Set-Cookie", "a=b"));
    let answer = scene.call(json!({ "text": "x" })).await;
    assert_eq!(answer.status, 200);
    for name in ["www-authenticate", "set-cookie"] {
        assert_eq!(answer.header(name), None);
    }
}

#[tokio::test]
async fn redirect_is_not_followed() {
    let scene = Scene::new().await;
    let other = crate::support::ScriptedAgent::start(Card::v1()).await;
    let elsewhere = other.url();
    scene.agent.on_send(move |_| Reply::status(307, "").header("Location", &elsewhere));
    trouble(&scene).await;
    assert!(other.requests().is_empty(), "credentials went elsewhere");
    assert_eq!(scene.agent.calls("SendStreamingMessage").len(), 1);
}

#[tokio::test]
async fn dead_stream_is_settled_by_get_task() {
    for end in [Reply::cut as fn(Reply) -> Reply, |stream| stream] {
        let scene = Scene::new().await;
        scene.agent.on_send(move |_| end(Reply::stream().event(begun()).event(said("tuning"))));
        scene.agent.on_get(in_order([
            Reply::result(v1::bare_task(RAW_TASK, RAW_CONTEXT, "working")),
            Reply::result(v1::bare_completed(RAW_TASK, RAW_CONTEXT, "done all the same")),
        ]));
        assert_eq!(words(&scene.said("x").await), "done all the same");
        assert_eq!(scene.agent.calls("SendStreamingMessage").len(), 1, "a message is never sent twice");
        assert!(!scene.agent.calls("SubscribeToTask").is_empty(), "a live task is listened to");
    }
}

#[tokio::test]
async fn broken_stream_is_resumed_if_possible() {
    let scene = Scene::new().await;
    scene.agent.on_send(|_| {
        Reply::stream()
            .event(begun())
            .event(v1::artifact_update(RAW_TASK, RAW_CONTEXT, "la ", false, false))
            .cut()
    });
    scene.agent.on_get(|_| Reply::result(v1::bare_task(RAW_TASK, RAW_CONTEXT, "working")));
    scene.agent.on_subscribe(|_| {
        let mut now = begun();
        now["task"]["artifacts"] =
            json!([{ "artifactId": "report", "parts": [{ "text": "la " }, { "text": "la " }] }]);
        let more = v1::artifact_update(RAW_TASK, RAW_CONTEXT, "la", true, true);
        Reply::events([now, more, v1::status_update(RAW_TASK, RAW_CONTEXT, "completed", None)])
    });
    assert_eq!(words(&scene.said("x").await), "la la la");
}

#[tokio::test]
async fn taskless_dead_stream_has_unknown_outcome() {
    let scene = Scene::new().await;
    for reply in [
        Reply::stream(),
        Reply::stream().comment("ping").cut(),
        Reply::stream().bytes(b"data: {\"jsonrpc\"").cut(),
    ] {
        scene.agent.on_send(move |_| reply.clone());
        let told = trouble(&scene).await;
        assert!(told.contains("connection to it broke") && told.contains("not known"), "{told}");
    }
    assert!(scene.agent.calls("GetTask").is_empty());
}

#[tokio::test]
async fn task_lost_with_stream_is_reported() {
    let scene = Scene::new().await;
    scene.agent.on_send(|_| Reply::stream().event(begun()).cut());
    scene.agent.on_get(|_| Reply::error(-32001, "Task not found"));
    assert!(trouble(&scene).await.contains("does not know this task"));
}

#[tokio::test]
async fn stalling_agent_is_given_up() {
    let own = "timeouts: { first_byte: 1s, idle: 1s }";
    let scene = Scene::of(Card::v1().skill("sing"), own, "").await;
    scene.agent.on_send(|_| Reply::silence());
    let begin = Instant::now();
    let told = trouble(&scene).await;
    assert!(told.contains("did not answer in time") && begin.elapsed().as_secs() < 10, "{told}");
    scene.agent.on_send(|_| Reply::stream().stall());
    assert!(trouble(&scene).await.contains("did not answer in time"));
    // With a name, the task itself is asked.
    scene.agent.on_send(|_| Reply::stream().event(begun()).stall());
    scene.agent.on_get(|_| Reply::result(v1::bare_completed(RAW_TASK, RAW_CONTEXT, "done meanwhile")));
    assert_eq!(words(&scene.said("x").await), "done meanwhile");
}

#[tokio::test]
async fn garbage_in_stream_ends_call() {
    let scene = Scene::tuned("calls: { budget: 5s, max_rounds: 0, stream_after: 5s }").await;
    let deep = |open: &str, close: &str| {
        let (open, close) = (open.repeat(5000), close.repeat(5000));
        format!("data: {{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{open}{close}}}\n\n").into_bytes()
    };
    for garbage in [
        b"data: not json\n\n".to_vec(),
        b"data: [1, 2]\n\n".to_vec(),
        b"data: \xFF\xFE\n\n".to_vec(),
        deep("[", "]"),
    ] {
        let shown = String::from_utf8_lossy(&garbage[..garbage.len().min(60)]).into_owned();
        scene.agent.on_send(move |_| Reply::stream().event(begun()).bytes(&garbage).stall());
        let result = scene.said("x").await;
        assert_eq!(result["isError"], true, "{shown}: {result}");
        assert!(words(&result).contains("broke the A2A protocol"), "{shown}: {result}");
    }
}

#[tokio::test]
async fn event_of_100_mib_is_cut_at_limit() {
    let scene = Scene::new().await;
    let piece = vec![b'x'; 1 << 20];
    scene.agent.on_send(move |_| {
        let start = Reply::stream().event(begun()).bytes(b"data: \"");
        (0..100).fold(start, |stream, _| stream.bytes(&piece)).stall()
    });
    let told = trouble(&scene).await;
    assert!(told.contains("more than 4194304 bytes in one event"), "{told}");
    let number = scene.agent.calls("SendStreamingMessage")[0].number;
    scene.agent.wait_for("the gateway to close the connection", |log| log.left.contains(&number)).await;
}

#[tokio::test]
async fn answers_and_artifacts_have_limits() {
    let limits = "limits: { response: 64KiB, event: 64KiB, artifacts: 128KiB }";
    let scene = Scene::tuned(limits).await;
    let long = "x".repeat(70_000);
    scene.agent.on_send(move |_| Reply::result(v1::message(&long)));
    assert!(trouble(&scene).await.contains("more than 65536 bytes"));
    let chunk = "x".repeat(50_000);
    scene.agent.on_send(move |_| {
        let more = v1::artifact_update(RAW_TASK, RAW_CONTEXT, &chunk, true, false);
        Reply::events([begun(), more.clone(), more.clone(), more]).stall()
    });
    assert!(trouble(&scene).await.contains("131072 bytes"));
}

#[tokio::test]
async fn foreign_task_is_ignored() {
    let scene = Scene::new().await;
    scene.agent.on_send(|_| {
        Reply::events([
            begun(),
            v1::artifact_update("somebody-else", RAW_CONTEXT, "their secret", false, true),
            v1::status_update("somebody-else", RAW_CONTEXT, "failed", Some("their failure")),
            v1::completed("somebody-else", RAW_CONTEXT, "their result"),
            v1::artifact_update(RAW_TASK, RAW_CONTEXT, "mine", false, true),
            v1::status_update(RAW_TASK, RAW_CONTEXT, "completed", None),
        ])
    });
    let finished = scene.followed("x").await;
    assert_eq!(words(&finished.response["result"]), "mine");
    assert!(!format!("{finished:?}").contains("their"), "{finished:?}");
}

#[tokio::test]
async fn error_in_mid_stream_is_reported() {
    let scene = Scene::new().await;
    scene.agent.on_send(|_| Reply::stream().error_event(-32603, "the strings broke"));
    assert!(trouble(&scene).await.contains("the strings broke"));
    scene.agent.on_send(|_| Reply::stream().event(begun()).error_event(-32603, "the strings broke"));
    scene.agent.on_get(|_| Reply::error(-32001, "Task not found"));
    assert!(trouble(&scene).await.contains("the strings broke"));
}

#[tokio::test]
async fn events_after_end_are_ignored() {
    let scene = Scene::new().await;
    scene.agent.on_send(|_| {
        let more = v1::artifact_update(RAW_TASK, RAW_CONTEXT, "too late", false, true);
        Reply::events([v1::completed(RAW_TASK, RAW_CONTEXT, "in time"), more, begun()])
    });
    let result = scene.said("x").await;
    assert_eq!(words(&result), "in time");
    assert!(!result.to_string().contains("too late"));
}

#[tokio::test]
async fn open_stream_is_left_after_end() {
    let scene = Scene::new().await;
    scene.agent.on_send(|_| Reply::stream().event(v1::completed(RAW_TASK, RAW_CONTEXT, "done")).stall());
    assert_eq!(words(&scene.said("x").await), "done");
    // Nor after a question.
    scene.agent.on_send(|_| Reply::stream().event(v1::asking(RAW_TASK, RAW_CONTEXT, "Which?")).stall());
    assert_eq!(scene.said("x").await["structuredContent"]["state"], "input-required");
}

/// The gateway's own signs of life toward the client are none of the agent's.
#[tokio::test]
async fn keep_alives_do_not_prolong_silence() {
    let own = "timeouts: { first_byte: 3s, idle: 3s }";
    let scene = Scene::of(Card::v1().skill("sing"), own, "calls: { stream_after: 0s, keep_alive: 1s }").await;
    for reply in [Reply::silence(), Reply::stream().stall()] {
        scene.agent.on_send(move |_| reply.clone());
        let begin = Instant::now();
        let mut answer = scene.call(json!({ "text": "x" })).await;
        assert!(answer.next_piece().await.unwrap().comment.is_some());
        let result = answer.result().await;
        assert!(complaint(&result).contains("did not answer in time"), "{result}");
        assert!(begin.elapsed().as_secs() < 10, "{:?}", begin.elapsed());
    }
}

#[tokio::test]
async fn endless_agent_is_finally_given_up() {
    let scene = Scene::of(Card::v1().skill("sing"), "timeouts: { first_byte: 2s, total: 2s }", "").await;
    scene.agent.on_send(|_| Reply::stream().comment("ping").stall());
    let told = trouble(&scene).await;
    assert!(told.contains("did not answer in time"), "{told}");
}
