//! Limits of one caller, one agent and one listener; excess is refused at once, with the reason.

use std::time::Duration;

use serde_json::json;

use crate::auth::callers::keys;
use crate::kit::scene::{RAW_CONTEXT, RAW_TASK, Scene, TOOL};
use crate::support::payload::v1;
use crate::support::{Answer, Card, McpClient, Reply, Signal, in_time};

const NEW: &str = "CANARY_key-new-0123456789abcdef0123";
const EVE: &str = "CANARY_key-eve-0123456789abcdef0123";

fn by(scene: &Scene, key: &str) -> McpClient {
    scene.gateway.client().header("X-Api-Key", key)
}

async fn called(client: &McpClient) -> Answer {
    client.modern("tools/call", json!({ "name": TOOL, "arguments": { "text": "x" } })).await
}

async fn is_refused(answer: Answer, status: u16) {
    assert_eq!(answer.status, status);
    let wait: u64 = answer.header("retry-after").expect("when to come back").parse().unwrap();
    assert!((1..=60).contains(&wait));
    assert_eq!(answer.json().await["error"]["code"], -32603);
}

/// An agent that answers once `go` is given.
fn hold(scene: &Scene) -> Signal {
    let go = Signal::new();
    let wait = go.clone();
    scene.agent.on_stream(move |_| {
        Reply::stream()
            .event(v1::task(RAW_TASK, RAW_CONTEXT, "working"))
            .wait(&wait)
            .event(v1::status_update(RAW_TASK, RAW_CONTEXT, "completed", Some("la")))
    });
    go
}

#[tokio::test]
async fn frequent_caller_gets_retry_after() {
    let settings = keys("limits: { caller_rate: 1, caller_burst: 3 }\n");
    let scene = Scene::tuned(&settings).await;
    let mut last = None;
    for _ in 0..5 {
        last = Some(by(&scene, NEW).modern("tools/list", json!({})).await);
    }
    is_refused(last.unwrap(), 429).await;
    assert_eq!(by(&scene, EVE).modern("tools/list", json!({})).await.status, 200);
    let metrics = scene.gateway.metrics().await;
    assert!(metrics.contains("mcp_a2a_gateway_refused_total{reason=\"rate_limited\"}"), "{metrics}");
}

#[tokio::test]
async fn calls_to_agent_are_bounded() {
    let scene = Scene::of(Card::v1().skill("sing"), "max_calls: 1", "").await;
    let go = hold(&scene);
    let client = scene.gateway.client();
    let first = tokio::spawn(async move { called(&client).await.status });
    scene.agent.wait_for_call("SendStreamingMessage").await;
    is_refused(called(&scene.gateway.client()).await, 503).await;
    go.open();
    assert_eq!(in_time("the first answer", first).await.unwrap(), 200);
    // The answer is there a moment before the share is given back.
    let again = async {
        while called(&scene.gateway.client()).await.status != 200 {
            tokio::task::yield_now().await;
        }
    };
    in_time("the agent to be called again", again).await;
}

#[tokio::test]
async fn started_subagent_takes_slot_of_agent() {
    let scene = Scene::of(Card::v1().skill("sing"), "max_calls: 1", "").await;
    let go = Signal::new();
    let wait = go.clone();
    // It is under way until its task has a name.
    scene
        .agent
        .on_stream(move |_| Reply::stream().wait(&wait).event(v1::task(RAW_TASK, RAW_CONTEXT, "completed")));
    let start =
        json!({ "name": "subagent_start", "arguments": { "subagentUri": "a2a-agent://bard", "text": "x" } });
    let (client, params) = (scene.gateway.client(), start.clone());
    let first = tokio::spawn(async move { client.modern("tools/call", params).await.status });
    scene.agent.wait_for_call("SendStreamingMessage").await;
    is_refused(scene.gateway.client().modern("tools/call", start).await, 503).await;
    go.open();
    assert_eq!(in_time("the first answer", first).await.unwrap(), 200);
}

#[tokio::test]
async fn call_rate_of_agent_is_bounded() {
    let scene = Scene::of(Card::v1().skill("sing"), "rate: 1", "").await;
    scene.agent.on_stream(|_| Reply::events([v1::message("la")]));
    assert_eq!(called(&scene.gateway.client()).await.status, 200);
    is_refused(called(&scene.gateway.client()).await, 503).await;
}

#[tokio::test]
async fn anonymous_tasks_count_together() {
    let scene = Scene::tuned("limits: { caller_tasks: 2 }").await;
    let begin = async || {
        let params = json!({ "name": TOOL, "arguments": { "text": "x" }, "task": {} });
        // Another session each time: they share the name of all callers without one.
        scene.session().await.call("tools/call", params).await
    };
    let start =
        json!({ "name": "subagent_start", "arguments": { "subagentUri": "a2a-agent://bard", "text": "x" } });
    let go = Signal::new();
    for number in 0..2 {
        let (raw, wait) = (format!("{RAW_TASK}-{number}"), go.clone());
        scene.agent.on_stream(move |_| {
            let end = v1::status_update(&raw, RAW_CONTEXT, "completed", Some("la"));
            Reply::stream().event(v1::task(&raw, RAW_CONTEXT, "working")).wait(&wait).event(end)
        });
        assert!(begin().await.result().await["task"]["taskId"].is_string());
    }
    let asked = scene.agent.calls("SendStreamingMessage").len();
    is_refused(begin().await, 429).await;
    is_refused(scene.gateway.client().modern("tools/call", start).await, 429).await;
    assert_eq!(scene.agent.calls("SendStreamingMessage").len(), asked, "nothing was said to the agent");
    go.open();
    let again = async { while begin().await.status == 429 {} };
    in_time("room again", again).await;
}

#[tokio::test]
async fn live_tasks_of_caller_are_bounded() {
    let scene = Scene::tuned(&keys("limits: { caller_tasks: 2 }\n")).await;
    let go = hold(&scene);
    let (mine, other) = (by(&scene, NEW).legacy().await, by(&scene, EVE).legacy().await);
    let begin = async |session: &crate::support::LegacySession| {
        let params = json!({ "name": TOOL, "arguments": { "text": "x" }, "task": {} });
        session.call("tools/call", params).await
    };
    let mut tasks = Vec::new();
    for number in 0..2 {
        let raw = format!("{RAW_TASK}-{number}");
        let wait = go.clone();
        scene.agent.on_stream(move |_| {
            let end = v1::status_update(&raw, RAW_CONTEXT, "completed", Some("la"));
            Reply::stream().event(v1::task(&raw, RAW_CONTEXT, "working")).wait(&wait).event(end)
        });
        tasks.push(begin(&mine).await.result().await["task"]["taskId"].as_str().unwrap().to_owned());
    }
    let asked = scene.agent.calls("SendStreamingMessage").len();
    is_refused(begin(&mine).await, 429).await;
    assert_eq!(scene.agent.calls("SendStreamingMessage").len(), asked, "nothing was said to the agent");
    hold(&scene);
    assert_eq!(begin(&other).await.status, 200);
    go.open();
    for task in &tasks {
        mine.task_until(task, "completed").await;
    }
    assert_eq!(begin(&mine).await.status, 200, "there is room again");
}

/// Of the first one nothing is in the map yet when the second one comes.
#[tokio::test]
async fn last_slot_goes_to_one_call() {
    let scene = Scene::tuned(&keys("limits: { caller_tasks: 1 }\n")).await;
    let named = Signal::new();
    let wait = named.clone();
    scene.agent.on_stream(move |_| {
        Reply::stream().wait(&wait).event(v1::task(RAW_TASK, RAW_CONTEXT, "working")).stall()
    });
    let mine = by(&scene, NEW).legacy().await;
    let params = json!({ "name": TOOL, "arguments": { "text": "x" }, "task": {} });
    let first = mine.call("tools/call", params.clone());
    let second = async {
        scene.agent.wait_for_call("SendStreamingMessage").await;
        is_refused(mine.call("tools/call", params.clone()).await, 429).await;
        let start = json!({ "name": "subagent_start", "arguments": { "subagentUri": "a2a-agent://bard", "text": "x" } });
        is_refused(by(&scene, NEW).modern("tools/call", start).await, 429).await;
        named.open();
    };
    let (first, ()) = tokio::join!(first, second);
    assert!(first.result().await["task"]["taskId"].is_string());
    assert_eq!(scene.agent.calls("SendStreamingMessage").len(), 1, "nothing more was said to the agent");
}

#[tokio::test]
async fn too_long_header_is_refused() {
    let scene = Scene::tuned("limits: { header: 8KiB }").await;
    let with = |length: usize| scene.gateway.client().header("X-Long", &"x".repeat(length));
    assert_eq!(with(6000).modern("tools/list", json!({})).await.status, 200);
    let refused = with(9000).modern("tools/list", json!({})).await;
    assert_eq!(refused.status, 431);
    assert!(refused.text().await.contains("longer than 8192 bytes"));
    let many = (0..60)
        .fold(scene.gateway.client(), |client, at| client.header(&format!("X-{at}"), &"x".repeat(150)));
    assert_eq!(many.modern("tools/list", json!({})).await.status, 431);
}

/// Connects from one of the addresses of loopback.
async fn connected(scene: &Scene, from: [u8; 4]) -> tokio::net::TcpStream {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind((from, 0).into()).unwrap();
    in_time("a connection", socket.connect(scene.gateway.address())).await.unwrap()
}

/// Whether the gateway closes a connection on which nothing was sent.
async fn is_closed(mut connection: tokio::net::TcpStream) -> bool {
    use tokio::io::AsyncReadExt as _;
    let read = tokio::time::timeout(Duration::from_millis(500), connection.read_u8());
    matches!(read.await, Ok(Err(_)))
}

/// The status of a health check from an address.
async fn health_from(scene: &Scene, from: [u8; 4]) -> Option<u16> {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let mut connection = connected(scene, from).await;
    connection
        .write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        .await
        .ok()?;
    let mut answer = String::new();
    in_time("an answer", connection.read_to_string(&mut answer)).await.ok()?;
    answer.split(' ').nth(1)?.parse().ok()
}

/// One address takes its share of the connections, and the others have the rest.
#[tokio::test]
async fn address_connections_are_bounded() {
    const ONE: [u8; 4] = [127, 0, 0, 1];
    const OTHER: [u8; 4] = [127, 0, 0, 2];
    for (limits, share) in [
        ("connections: 40, address_connections: 4", 4),
        // A tenth, but not too few for a browser.
        ("connections: 200", 20),
        ("connections: 40", 16),
    ] {
        let scene = Scene::tuned(&format!("limits: {{ {limits}, header_read: 60s }}")).await;
        let mut held = Vec::new();
        for _ in 0..share + 5 {
            held.push(connected(&scene, OTHER).await);
        }
        // Which of them come first is not said.
        let is_open = |held: &tokio::net::TcpStream| {
            held.try_read(&mut [0]).is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
        };
        let full = async {
            while held.iter().filter(|held| is_open(held)).count() > share {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        in_time("those beyond to be closed", full).await;
        assert!(is_closed(connected(&scene, OTHER).await).await, "{limits}");
        assert_eq!(held.iter().filter(|held| is_open(held)).count(), share, "the others stay: {limits}");
        assert_eq!(health_from(&scene, ONE).await, Some(200), "{limits}");
        let page = scene.gateway.metrics().await;
        let refused = page.lines().find_map(|line| {
            line.strip_prefix("mcp_a2a_gateway_refused_total{reason=\"address_connections\"} ")
        });
        assert!(refused.is_some_and(|count| count != "0"), "{page}");
        scene.gateway.wait_for_output("limits.address_connections").await;
        drop(held);
        let room = async { while health_from(&scene, OTHER).await != Some(200) {} };
        in_time("room again", room).await;
    }
}

#[tokio::test]
async fn address_limit_can_be_switched_off() {
    let scene = Scene::tuned("limits: { connections: 40, address_connections: 0, header_read: 60s }").await;
    let mut held = Vec::new();
    for _ in 0..30 {
        held.push(connected(&scene, [127, 0, 0, 2]).await);
    }
    assert_eq!(health_from(&scene, [127, 0, 0, 2]).await, Some(200));
}

/// A connection beyond the limit is closed before it costs anything, and there is room again when
/// others leave.
#[tokio::test]
async fn connections_of_listener_are_bounded() {
    use tokio::io::AsyncReadExt as _;
    let scene = Scene::tuned("limits: { connections: 4, header_read: 60s }").await;
    let connect = || tokio::net::TcpStream::connect(scene.gateway.address());
    let mut held = Vec::new();
    for _ in 0..4 {
        held.push(connect().await.unwrap());
    }
    let refused = async {
        loop {
            let mut more = connect().await.unwrap();
            let mut byte = [0; 1];
            let read = more.read(&mut byte);
            if let Ok(Ok(0) | Err(_)) = tokio::time::timeout(Duration::from_millis(500), read).await {
                return;
            }
            // One of those before was closed in its place: which come first is not said.
            held.push(more);
        }
    };
    in_time("a connection to be closed", refused).await;
    drop(held);
    let served = async {
        let client = scene.gateway.client();
        while client.try_send("GET", &[], Vec::new()).await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    in_time("room again", served).await;
}
