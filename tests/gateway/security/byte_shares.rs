//! Bytes that requests and answers hold: a share of each caller, one of all, and what is told
//! beyond them.
//!
//! The memory of the process is measured in `memory`; the number of calls is in `shares`.

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};

use crate::auth::callers::{EVE, NEW, keys};
use crate::kit::a2a_scene::{self, saying};
use crate::kit::scene::{RAW_CONTEXT, RAW_TASK, TOOL, complaint, words};
use crate::support::payload::v1;
use crate::support::{Answer, Card, McpClient, Reply, ScriptedAgent, Signal, TestGateway, in_time};

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;

/// The agent `bard` behind the MCP and the A2A endpoint, and callers with keys.
struct Bytes {
    agent: ScriptedAgent,
    gateway: TestGateway,
}

impl Bytes {
    async fn new(limits: &str) -> Self {
        Self::of(Card::v1().skill("sing"), limits).await
    }

    async fn of(card: Card, limits: &str) -> Self {
        let agent = ScriptedAgent::start(card).await;
        agent.on_send(|_| Reply::events([v1::message("la")]));
        agent.on("SendMessage", |_| Reply::result(v1::message("la")));
        let gateway = TestGateway::start(|ports| {
            let listeners = ports.listeners().replacen("admin:", "    serve: [mcp, a2a]\nadmin:", 1);
            let settings = keys(&format!("limits: {{ {limits} }}\n"));
            format!("{listeners}{settings}agents:\n  bard:\n    card: {}\n", agent.card_url())
        })
        .await;
        Self { agent, gateway }
    }

    fn by(&self, key: &str) -> McpClient {
        self.gateway.client().header("X-Api-Key", key)
    }

    /// Calls the tool with so much text.
    async fn call(&self, key: &str, bytes: usize) -> Answer {
        let params = json!({ "name": TOOL, "arguments": { "text": "x".repeat(bytes) } });
        self.by(key).modern("tools/call", params).await
    }

    async fn result(&self, key: &str) -> Value {
        self.call(key, 1).await.result().await
    }

    /// Begins a POST, and sends so much of its body.
    async fn begin(&self, key: &str, framing: &str, body: &[u8]) -> TcpStream {
        let mut socket = TcpStream::connect(self.gateway.address()).await.unwrap();
        let head = format!(
            "POST /mcp HTTP/1.1\r\nHost: localhost\r\nX-Api-Key: {key}\r\nContent-Type: application/json\r\n{framing}\r\n\r\n"
        );
        socket.write_all(head.as_bytes()).await.unwrap();
        socket.write_all(body).await.unwrap();
        socket
    }

    async fn figure(&self, name: &str) -> usize {
        let metrics = self.gateway.metrics().await;
        let line = metrics.lines().find_map(|line| line.strip_prefix("mcp_a2a_gateway_")?.strip_prefix(name));
        line.unwrap_or_else(|| panic!("no {name}: {metrics}")).trim().parse().unwrap()
    }

    /// Waits until as many bytes are counted.
    async fn holds(&self, is_so: impl Fn(usize) -> bool) {
        in_time("the bytes to be counted", async { while !is_so(self.figure("held_bytes ").await) {} }).await;
    }
}

async fn is_refused(answer: Answer, status: u16) {
    assert_eq!(answer.status, status);
    let wait: u64 = answer.header("retry-after").expect("when to come back").parse().unwrap();
    assert!((1..=60).contains(&wait));
}

#[tokio::test]
async fn bodies_of_one_caller_are_bounded() {
    let scene = Bytes::new("caller_bytes: 1MiB").await;
    let length = format!("Content-Length: {}", 900 * KIB);
    let unfinished = scene.begin(NEW, &length, b"{").await;
    scene.holds(|bytes| bytes >= 900 * KIB).await;
    let answer = scene.call(NEW, 900 * KIB).await;
    assert_eq!(answer.header("connection"), Some("close"), "its body is not read");
    is_refused(answer, 429).await;
    let batch = json!([scene.by(NEW).request("ping", &json!({ "x": "x".repeat(900 * KIB) }))]);
    is_refused(scene.by(NEW).post(&batch, &[]).await, 429).await;
    let endpoint = scene.by(NEW).at("/a2a/bard");
    is_refused(a2a_scene::call(&endpoint, "SendMessage", saying(&"x".repeat(900 * KIB))).await, 429).await;
    let rest = scene.by(NEW).at("/a2a/bard/message:send");
    is_refused(rest.post(&saying(&"x".repeat(900 * KIB)), &[]).await, 429).await;
    assert_eq!(scene.figure("refused_total{reason=\"caller_bytes\"} ").await, 4);
    // A small body is not counted, and others have shares of their own.
    assert_eq!(words(&scene.result(NEW).await), "la");
    assert_eq!(words(&scene.call(EVE, 900 * KIB).await.result().await), "la");
    drop(unfinished);
    let again = async { while scene.call(NEW, 900 * KIB).await.status != 200 {} };
    in_time("the share to come back", again).await;
    scene.holds(|bytes| bytes == 0).await;
}

#[tokio::test]
async fn chunked_body_takes_share_as_it_grows() {
    let scene = Bytes::new("caller_bytes: 1MiB").await;
    let chunk = |bytes: usize| format!("{bytes:x}\r\n{}\r\n", " ".repeat(bytes)).into_bytes();
    let mut first = scene.begin(NEW, "Transfer-Encoding: chunked", &chunk(600 * KIB)).await;
    scene.holds(|bytes| bytes >= 600 * KIB).await;
    let mut second = scene.begin(NEW, "Transfer-Encoding: chunked", &chunk(300 * KIB)).await;
    scene.holds(|bytes| bytes >= 900 * KIB).await;
    second.write_all(&chunk(300 * KIB)).await.unwrap();
    let mut told = Vec::new();
    in_time("a refusal", second.read_to_end(&mut told)).await.unwrap();
    let told = String::from_utf8(told).unwrap();
    assert!(told.starts_with("HTTP/1.1 429 ") && told.contains("hold as many bytes"), "{told}");
    // The first one is read on.
    let rest = br#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    let rest = [format!("{:x}\r\n", rest.len()).as_bytes(), rest, b"\r\n0\r\n\r\n"].concat();
    first.write_all(&rest).await.unwrap();
    let mut told = vec![0; 12];
    in_time("an answer", first.read_exact(&mut told)).await.unwrap();
    assert_eq!(told, b"HTTP/1.1 200");
}

#[tokio::test]
async fn bodies_of_all_callers_are_bounded() {
    let scene = Bytes::new("bytes: 1MiB, caller_bytes: 1MiB").await;
    // One caller never has all of it.
    is_refused(scene.call(NEW, 900 * KIB).await, 429).await;
    let length = format!("Content-Length: {}", 700 * KIB);
    let _unfinished = scene.begin(NEW, &length, b"{").await;
    scene.holds(|bytes| bytes >= 700 * KIB).await;
    is_refused(scene.call(EVE, 700 * KIB).await, 503).await;
    assert_eq!(scene.figure("refused_total{reason=\"bytes\"} ").await, 1);
    assert_eq!(words(&scene.result(EVE).await), "la", "small requests go on");
}

/// The count of those that wait; their bytes are few.
#[tokio::test]
async fn waiting_bodies_are_as_many_as_calls() {
    let scene = Bytes::new("caller_calls: 3").await;
    let mut waiting = Vec::new();
    let refused = async {
        loop {
            let mut socket = scene.begin(NEW, "Content-Length: 100", b"{").await;
            let mut told = vec![0; 12];
            let answer =
                tokio::time::timeout(std::time::Duration::from_millis(300), socket.read_exact(&mut told));
            if answer.await.is_ok() {
                assert_eq!(told, b"HTTP/1.1 429");
                return;
            }
            waiting.push(socket);
        }
    };
    in_time("a refusal", refused).await;
    assert_eq!(waiting.len(), 3);
    assert_eq!(words(&scene.result(EVE).await), "la");
}

#[tokio::test]
async fn answer_without_room_is_refused() {
    let scene = Bytes::new("caller_bytes: 1MiB").await;
    let large = "x".repeat(2 * MIB);
    let wants = |result: &Value| assert!(complaint(result).contains("no room for its answer"), "{result}");
    let answer = large.clone();
    scene.agent.on_send(move |_| Reply::result(v1::message(&answer)));
    wants(&scene.result(NEW).await);
    let answer = large.clone();
    scene.agent.on_send(move |_| Reply::result(v1::message(&answer)).chunked());
    wants(&scene.result(NEW).await);
    let answer = large.clone();
    scene.agent.on_send(move |_| Reply::events([v1::message(&answer)]));
    wants(&scene.result(NEW).await);
    // No event is large: their sum is.
    scene.agent.on_send(move |_| {
        let more = v1::artifact_update(RAW_TASK, RAW_CONTEXT, &"x".repeat(10_000), true, false);
        let begun = Reply::stream().event(v1::task(RAW_TASK, RAW_CONTEXT, "working"));
        (0..200).fold(begun, |stream, _| stream.event(more.clone())).stall()
    });
    wants(&scene.result(NEW).await);
    // In a batch, and for others.
    let session = scene.by(NEW).header("MCP-Protocol-Version", "2025-03-26");
    let answer = large.clone();
    scene.agent.on_send(move |_| Reply::events([v1::message(&answer)]));
    let call = |id: u32| json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": { "name": TOOL, "arguments": { "text": "x" } } });
    let told = session
        .post(&json!([call(1), { "jsonrpc": "2.0", "id": 2, "method": "ping" }]), &[])
        .await
        .json()
        .await;
    wants(&told[0]["result"]);
    assert_eq!(told[1]["result"], json!({}));
    scene.agent.on_send(|_| Reply::events([v1::message("la")]));
    assert_eq!(words(&scene.result(NEW).await), "la");
    scene.holds(|bytes| bytes == 0).await;
    assert!(scene.figure("refused_total{reason=\"caller_bytes\"} ").await >= 5);
}

/// Those of a batch count together.
#[tokio::test]
async fn answers_of_batch_count_together() {
    let scene = Bytes::new("caller_bytes: 1MiB").await;
    scene.agent.on_send(|_| Reply::events([v1::message(&"x".repeat(300 * KIB))]));
    let client = scene.by(NEW).header("MCP-Protocol-Version", "2025-03-26");
    let call = |id: u32| json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": { "name": TOOL, "arguments": { "text": "x" } } });
    let told = client.post(&Value::from_iter((1..=5).map(call)), &[]).await.json().await;
    let told = told.as_array().unwrap();
    let fits = told.iter().filter(|answer| answer["result"]["isError"] != true).count();
    assert!(told.len() == 5 && (1..=3).contains(&fits), "{fits} of {} fit", told.len());
    scene.holds(|bytes| bytes == 0).await;
}

#[tokio::test]
async fn answer_to_a2a_client_takes_share() {
    let scene = Bytes::new("caller_bytes: 1MiB").await;
    let endpoint = scene.by(NEW).at("/a2a/bard");
    let large = "x".repeat(2 * MIB);
    let answer = large.clone();
    scene.agent.on("SendMessage", move |_| Reply::result(v1::completed("t", "c", &answer)));
    let answer = large.clone();
    scene.agent.on_stream(move |_| {
        Reply::stream().event(v1::task("t", "c", "working")).event(v1::completed("t", "c", &answer))
    });
    let answer = large.clone();
    scene.agent.on_get(move |_| Reply::result(v1::bare_completed("t", "c", &answer)));
    let wants = |told: &Value| {
        let message = told["error"]["message"].as_str().unwrap_or_else(|| panic!("{told}"));
        assert!(message.contains("no room for its answer"), "{message}");
    };
    wants(&a2a_scene::call(&endpoint, "SendMessage", saying("x")).await.json().await);
    let mut stream = a2a_scene::call(&endpoint, "SendStreamingMessage", saying("x")).await;
    let task = stream.next_message().await["result"]["task"]["id"].clone();
    wants(&stream.next_message().await);
    wants(&a2a_scene::call(&endpoint, "GetTask", json!({ "id": task })).await.json().await);
    let rest = scene.by(NEW).at("/a2a/bard/message:send");
    let told = rest.post(&saying("x"), &[]).await.json().await;
    assert!(told["error"]["message"].as_str().unwrap().contains("no room for its answer"), "{told}");
    scene.agent.on("SendMessage", |_| Reply::result(v1::completed("t", "c", "la")));
    assert_eq!(
        a2a_scene::call(&endpoint, "SendMessage", saying("x")).await.json().await["result"]["task"]["status"]
            ["state"],
        v1::bare_completed("t", "c", "la")["status"]["state"]
    );
    scene.holds(|bytes| bytes == 0).await;
}

/// An answer that its client does not read is held, and counts until the client goes away.
#[tokio::test]
async fn unread_result_takes_share() {
    let scene = Bytes::new("caller_bytes: 14MiB, write_stall: 10m").await;
    let large = "x".repeat(12 * MIB);
    scene.agent.on_send(move |_| Reply::result(v1::message(&large)));
    let socket = TcpSocket::new_v4().unwrap();
    // The kernel takes little of it.
    socket.set_recv_buffer_size(4096).unwrap();
    let mut unread = socket.connect(scene.gateway.address()).await.unwrap();
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": { "name": TOOL, "arguments": { "text": "x" } } }).to_string();
    let head = format!(
        "POST /mcp HTTP/1.1\r\nHost: localhost\r\nX-Api-Key: {NEW}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    unread.write_all((head + &body).as_bytes()).await.unwrap();
    let mut begun = [0; 12];
    in_time("the answer to begin", unread.read_exact(&mut begun)).await.unwrap();
    assert_eq!(&begun, b"HTTP/1.1 200");
    scene.holds(|bytes| (12 * MIB..14 * MIB).contains(&bytes)).await;
    let second = scene.result(NEW).await;
    assert!(complaint(&second).contains("no room for its answer"), "{second}");
    assert_eq!(words(&scene.result(EVE).await).len(), 12 * MIB, "another caller has a share of its own");
    drop(unread);
    scene.holds(|bytes| bytes == 0).await;
    assert_eq!(words(&scene.result(NEW).await).len(), 12 * MIB);
}

/// A call goes on without its client; its bytes are neither lost nor counted twice.
#[tokio::test]
async fn detached_call_returns_its_bytes() {
    let scene = Bytes::new("caller_bytes: 4MiB").await;
    let go = Signal::new();
    let (wait, large) = (go.clone(), "x".repeat(MIB));
    scene.agent.on_send(move |_| {
        let begun = Reply::stream().event(v1::task(RAW_TASK, RAW_CONTEXT, "working"));
        begun.wait(&wait).event(v1::completed(RAW_TASK, RAW_CONTEXT, &large))
    });
    let start =
        json!({ "name": "subagent_start", "arguments": { "subagentUri": "a2a-agent://bard", "text": "x" } });
    let begun = scene.by(NEW).modern("tools/call", start).await.result().await;
    let task = begun["structuredContent"]["taskId"].clone();
    go.open();
    let wait = json!({ "name": "subagent_wait", "arguments": { "taskId": task } });
    let done = scene.by(NEW).modern("tools/call", wait).await.result().await;
    // The text stands in the content and in the structured content.
    assert!(done.to_string().len() > 2 * MIB, "{} bytes", done.to_string().len());
    scene.holds(|bytes| bytes == 0).await;
}
