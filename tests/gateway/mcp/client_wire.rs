//! HTTP clients on one connection: they reuse it, chunk, expect, dawdle, and stop reading.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::kit::scene::{RAW_CONTEXT, RAW_TASK, Scene, TOOL, words};
use crate::support::payload::v1;
use crate::support::{McpClient, Reply, Signal, in_time};

/// A connection on which every byte is the test's.
struct Wire {
    socket: TcpStream,
    buffer: Vec<u8>,
}

impl Wire {
    async fn to(scene: &Scene) -> Self {
        let socket = TcpStream::connect(scene.gateway.address()).await.unwrap();
        Self { socket, buffer: Vec::new() }
    }

    async fn write(&mut self, text: &str) {
        self.socket.write_all(text.as_bytes()).await.unwrap();
    }

    /// A POST of this body, with more header lines.
    async fn post(&mut self, lines: &str, body: &str) {
        let length = body.len();
        self.write(&format!(
            "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n{lines}\r\n{body}"
        ))
        .await;
    }

    /// Reads up to and with this text; empties the buffer to it.
    async fn until(&mut self, end: &str) -> String {
        let read = async {
            loop {
                let found = self.buffer.windows(end.len()).position(|window| window == end.as_bytes());
                if let Some(at) = found {
                    let taken: Vec<u8> = self.buffer.drain(..at + end.len()).collect();
                    return String::from_utf8(taken).unwrap();
                }
                let count = self.socket.read_buf(&mut self.buffer).await.unwrap();
                assert_ne!(count, 0, "closed before {end:?}: {}", String::from_utf8_lossy(&self.buffer));
            }
        };
        in_time(&format!("{end:?}"), read).await
    }

    /// The head and body of the next response, which must have a length.
    async fn response(&mut self) -> (String, String) {
        let head = self.until("\r\n\r\n").await.to_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let length: usize = length.unwrap_or_else(|| panic!("no length: {head}")).trim().parse().unwrap();
        while self.buffer.len() < length {
            assert_ne!(
                in_time("the body", self.socket.read_buf(&mut self.buffer)).await.unwrap(),
                0,
                "cut: {head}"
            );
        }
        let body: Vec<u8> = self.buffer.drain(..length).collect();
        (head, String::from_utf8(body).unwrap())
    }

    /// The bytes that come until the gateway closes.
    async fn rest(mut self) -> String {
        let mut rest = std::mem::take(&mut self.buffer);
        // A reset is an end too.
        drop(in_time("the gateway to close", self.socket.read_to_end(&mut rest)).await);
        String::from_utf8_lossy(&rest).into_owned()
    }
}

fn ping(id: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":"{id}","method":"ping"}}"#)
}

#[tokio::test]
async fn connection_serves_many_requests() {
    let scene = Scene::new().await;
    let mut wire = Wire::to(&scene).await;
    for (body, expected) in [
        (ping("a"), r#""id":"a","result":{}"#),
        ("not json".to_owned(), "-32700"),
        (ping("b"), r#""id":"b","result":{}"#),
        (r#"{"jsonrpc":"2.0","id":7,"method":"unknown"}"#.to_owned(), "-32601"),
        (ping("c"), r#""id":"c","result":{}"#),
    ] {
        wire.post("", &body).await;
        let (head, answer) = wire.response().await;
        assert!(answer.contains(expected), "{head}{answer}");
        assert!(!head.contains("connection: close"), "{head}");
    }
}

#[tokio::test]
async fn chunked_body_is_read_whole() {
    let scene = Scene::new().await;
    let mut wire = Wire::to(&scene).await;
    wire.write("POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n").await;
    for piece in ping("chunks").as_bytes().chunks(7) {
        let piece = std::str::from_utf8(piece).unwrap();
        wire.write(&format!("{:x}\r\n{piece}\r\n", piece.len())).await;
    }
    wire.write("0\r\n\r\n").await;
    assert!(wire.response().await.1.contains(r#""id":"chunks","result":{}"#));
}

/// The begin of a large body comes with its header, and is read with the rest.
#[tokio::test]
async fn large_body_is_read_whole_however_it_comes() {
    let scene = Scene::new().await;
    scene.agent.on_send(|_| Reply::events([v1::message("la")]));
    let mut wire = Wire::to(&scene).await;
    let mut sent = Vec::new();
    for length in [3_000, 4_000, 6_000, 50_000, 200_000] {
        let text: String = ('a'..='z').cycle().take(length).collect();
        let params = json!({ "name": TOOL, "arguments": { "text": text } });
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params }).to_string();
        for cut in [0, 100, body.len() - 1, body.len()] {
            let (first, rest) = body.split_at(cut);
            wire.write(&format!(
                "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{first}",
                body.len()
            ))
            .await;
            wire.write(rest).await;
            let (head, answer) = wire.response().await;
            assert!(
                head.starts_with("http/1.1 200") && answer.contains("la"),
                "{length}, {cut}: {head}{answer}"
            );
            sent.push(text.clone());
        }
    }
    let heard: Vec<String> =
        scene.agent.calls("SendStreamingMessage").iter().map(|request| request.text()).collect();
    assert!(heard == sent, "{:?}", heard.iter().map(String::len).collect::<Vec<_>>());
}

/// `curl` asks so before it sends more than a megabyte.
#[tokio::test]
async fn expecting_client_is_told_to_continue() {
    let scene = Scene::new().await;
    let mut wire = Wire::to(&scene).await;
    let body =
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"ping","params":{{"x":"{}"}}}}"#, "x".repeat(2 << 20));
    let length = body.len();
    wire.write(&format!("POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {length}\r\nExpect: 100-continue\r\n\r\n")).await;
    let first = wire.until("\r\n\r\n").await;
    assert!(first.starts_with("HTTP/1.1 100"), "{first}");
    wire.write(&body).await;
    let (head, answer) = wire.response().await;
    assert!(answer.contains(r#""result":{}"#), "{head}{answer}");
}

#[tokio::test]
async fn long_body_is_refused_unsent() {
    let scene = Scene::new().await;
    let mut wire = Wire::to(&scene).await;
    wire.write("POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 99999999\r\n\r\n").await;
    let answer = wire.rest().await;
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
}

#[tokio::test]
async fn endless_body_is_refused_at_limit() {
    let scene = Scene::tuned("limits: { body: 64KiB }").await;
    let mut wire = Wire::to(&scene).await;
    wire.write("POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n").await;
    let chunk = format!("{:x}\r\n{}\r\n", 16_384, "x".repeat(16_384));
    for _ in 0..5 {
        // The gateway may have closed already; only its answer counts.
        if wire.socket.write_all(chunk.as_bytes()).await.is_err() {
            break;
        }
    }
    let head = wire.until("\r\n").await;
    assert!(head.starts_with("HTTP/1.1 413"), "{head}");
}

/// The header of a second request is counted from its own beginning.
#[tokio::test]
async fn endless_header_is_cut_at_limit() {
    let scene = Scene::tuned("limits: { header: 8KiB }").await;
    for earlier in [0, 3] {
        let mut wire = Wire::to(&scene).await;
        for _ in 0..earlier {
            wire.post(&format!("X-Long: {}\r\n", "x".repeat(7000)), &ping("a")).await;
            assert!(wire.response().await.0.contains("200"));
        }
        let line = format!("X-Long: {}\r\n", "x".repeat(1000));
        wire.write("POST /mcp HTTP/1.1\r\nHost: localhost\r\n").await;
        // The last of these are thrown away.
        for _ in 0..100 {
            wire.write(&line).await;
        }
        let (head, answer) = wire.response().await;
        assert!(head.starts_with("http/1.1 431 ") && head.contains("connection: close"), "{head}");
        assert!(answer.contains("longer than 8192 bytes"), "{answer}");
        assert_eq!(wire.rest().await, "");
    }
}

#[tokio::test]
async fn slow_header_is_not_awaited() {
    let scene = Scene::tuned("limits: { header_read: 1s }").await;
    let mut wire = Wire::to(&scene).await;
    wire.write("POST /mcp HTTP/1.1\r\nHost: local").await;
    let answer = wire.rest().await;
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{answer}");
    let silent = Wire::to(&scene).await;
    assert!(!silent.rest().await.contains("200"), "a connection that says nothing is closed too");
}

#[tokio::test]
async fn slow_later_header_is_not_awaited() {
    let scene = Scene::tuned("limits: { header_read: 1s, keep_alive: 1s }").await;
    let mut wire = Wire::to(&scene).await;
    for id in ["a", "b"] {
        wire.post("", &ping(id)).await;
        assert!(wire.response().await.0.contains("200"));
    }
    wire.write("POST /mcp HTTP/1.1\r\nHost: local").await;
    let answer = wire.rest().await;
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{answer}");
}

#[tokio::test]
async fn idle_connection_is_closed_in_time() {
    let scene = Scene::tuned("limits: { keep_alive: 1s, header_read: 60s }").await;
    let mut wire = Wire::to(&scene).await;
    for id in ["a", "b"] {
        wire.post("", &ping(id)).await;
        wire.response().await;
    }
    let rests = Instant::now();
    assert_eq!(wire.rest().await, "", "closed without a word");
    let rested = rests.elapsed();
    assert!(rested < Duration::from_secs(10), "it may rest for a second, and rested for {rested:?}");
    assert!(rested > Duration::from_millis(500), "it may rest for a second, and was closed after {rested:?}");
}

/// A packet costs the gateway as much as the translation of an event.
#[tokio::test]
async fn parts_that_follow_at_once_come_in_one_packet() {
    let scene = Scene::new().await;
    let begun = Signal::new();
    let rest = begun.clone();
    scene.agent.on_send(move |request| match request.text().as_str() {
        "stream" => Reply::stream()
            .event(v1::task(RAW_TASK, RAW_CONTEXT, "working"))
            .event(v1::artifact_update(RAW_TASK, RAW_CONTEXT, "la", false, true))
            .wait(&rest)
            .event(v1::status_update(RAW_TASK, RAW_CONTEXT, "completed", None)),
        "large" => Reply::events([v1::message(&"x".repeat(8_000))]),
        _ => Reply::events([v1::message("la")]),
    });
    let mut wire = Wire::to(&scene).await;
    let lines = format!(
        "Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: {TOOL}\r\n"
    );
    for (text, meta, end) in [
        ("stream", json!({ "progressToken": 1 }), "0\r\n\r\n"),
        ("large", json!({}), "}"),
        ("small", json!({}), "}"),
    ] {
        let params = json!({ "name": TOOL, "arguments": { "text": text }, "_meta": meta });
        let params = scene.gateway.client().with_meta(params);
        let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params }).to_string();
        wire.post(&lines, &call).await;
        let mut packets: Vec<String> = Vec::new();
        while !packets.last().is_some_and(|packet| packet.ends_with(end)) {
            let mut packet = Vec::with_capacity(64 * 1024);
            assert_ne!(in_time("a packet", wire.socket.read_buf(&mut packet)).await.unwrap(), 0);
            packets.push(String::from_utf8(packet).unwrap());
            begun.fire();
        }
        let (first, last) = (packets.first().unwrap(), packets.last().unwrap());
        let (head, body) = first.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200") && !body.is_empty(), "{packets:?}");
        assert!(last.contains("\"result\""), "{packets:?}");
        assert!(text == "stream" || packets.len() == 1, "{packets:?}");
    }
}

/// The client stops reading for longer than it may: the gateway lets it go, and stops the work as
/// for any that left.
#[tokio::test]
async fn client_that_stops_reading_is_dropped() {
    let scene = Scene::tuned("limits: { write_stall: 1s }").await;
    let text = "x".repeat(8_000);
    scene.agent.on_send(move |_| {
        let verse =
            |place| v1::artifact_update(RAW_TASK, RAW_CONTEXT, &format!("{place}{text}"), false, false);
        let all = (0..2_000).map(verse);
        Reply::events(std::iter::once(v1::task(RAW_TASK, RAW_CONTEXT, "working")).chain(all)).stall()
    });
    scene.agent.on_cancel(|_| Reply::result(v1::bare_task(RAW_TASK, RAW_CONTEXT, "canceled")));
    let unread = scene.call_with(json!({ "text": "x" }), json!({ "progressToken": 1 })).await;
    assert!(unread.is_stream());
    assert_eq!(scene.agent.wait_for_call("CancelTask").await.params()["id"], RAW_TASK);
    drop(unread);
}

/// Whether the system still has the gateway's end of a connection: its state is in /proc.
fn has_connection(gateway: SocketAddr, client: SocketAddr) -> bool {
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let [local, remote] = [gateway, client].map(|address| format!(":{:04X}", address.port()));
    table.lines().any(|line| {
        let mut columns = line.split_whitespace().skip(1);
        columns.next().is_some_and(|at| at.ends_with(&local))
            && columns.next().is_some_and(|at| at.ends_with(&remote))
    })
}

#[tokio::test]
async fn unread_stream_connection_ends_in_time() {
    let scene = Scene::tuned("limits: { write_stall: 1s }").await;
    let text = "x".repeat(8_000);
    scene.agent.on_send(move |_| {
        let verse =
            |place| v1::artifact_update(RAW_TASK, RAW_CONTEXT, &format!("{place}{text}"), false, false);
        let all = (0..2_000).map(verse);
        Reply::events(std::iter::once(v1::task(RAW_TASK, RAW_CONTEXT, "working")).chain(all)).stall()
    });
    scene.agent.on_cancel(|_| Reply::result(v1::bare_task(RAW_TASK, RAW_CONTEXT, "canceled")));
    let mut wire = Wire::to(&scene).await;
    let client = wire.socket.local_addr().unwrap();
    let params = scene
        .gateway
        .client()
        .with_meta(json!({ "name": TOOL, "arguments": { "text": "x" }, "_meta": { "progressToken": 1 } }));
    let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params }).to_string();
    let lines = format!(
        "Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: {TOOL}\r\n"
    );
    wire.post(&lines, &call).await;
    // The agent hears of it when the client has been given up.
    scene.agent.wait_for_call("CancelTask").await;
    let since = Instant::now();
    let gone = async {
        while has_connection(scene.gateway.address(), client) {
            tokio::task::yield_now().await;
        }
    };
    in_time("the end of the connection", gone).await;
    println!("connection gone {:?} after its client was given up", since.elapsed());
    assert!(wire.rest().await.ends_with(|_| true), "what had come is read, then the connection is over");
}

#[tokio::test]
async fn listener_serves_only_its_endpoints() {
    let scene = Scene::new().await;
    let card = scene.agent.card_url();
    let gateway = crate::support::TestGateway::start(|ports| {
        let crate::support::Ports { main, other, admin, .. } = ports;
        format!(
            "listeners:\n  - {{ address: \"127.0.0.1:{main}\", serve: [mcp] }}\n  - {{ address: \"127.0.0.1:{other}\", serve: [health] }}\nadmin: {{ address: \"127.0.0.1:{admin}\" }}\nagents: {{ bard: {{ card: \"{card}\" }} }}\n"
        )
    })
    .await;
    let health = McpClient::new(&format!("http://127.0.0.1:{}/healthz", gateway.ports().other));
    assert_eq!(health.get(&[]).await.status, 200);
    assert_eq!(health.at("/mcp").modern("tools/list", json!({})).await.status, 404);
    assert_eq!(gateway.client().at("/healthz").get(&[]).await.status, 404);
    assert_eq!(gateway.client().modern("tools/list", json!({})).await.status, 200);
}

#[tokio::test]
async fn query_and_trailing_slash_keep_path() {
    let scene = Scene::new().await;
    scene.agent.on_send(|_| Reply::events([v1::message("la")]));
    for path in ["/mcp?a=b", "/mcp/bard?x"] {
        let name = if path.contains("bard") { "sing" } else { TOOL };
        let params = json!({ "name": name, "arguments": { "text": "x" } });
        let answer = scene.gateway.client().at(path).modern("tools/call", params).await;
        assert_eq!(words(&answer.result().await), "la", "{path}");
    }
    for path in ["/", "/mcpx", "/mcp/bard/x", "/mcp//bard", "/MCP", "/mcp/..%2f"] {
        assert_eq!(
            scene.gateway.client().at(path).modern("tools/list", json!({})).await.status,
            404,
            "{path}"
        );
    }
}
