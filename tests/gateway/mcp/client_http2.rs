//! HTTP/2 with prior knowledge on a listener without TLS, beside HTTP/1.1.
//!
//! Out of scope: HTTP/2 over TLS (see `https`), and floods (see `advisories_http2`).

use std::time::{Duration, Instant};

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::kit::scene::{Scene, TOOL};
use crate::support::payload::v1;
use crate::support::{Reply, Signal, TestGateway, in_time};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// A frame `SETTINGS` without a setting.
const SETTINGS: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];

async fn connect(gateway: &TestGateway, bytes: &[u8]) -> TcpStream {
    let mut socket = TcpStream::connect(gateway.address()).await.unwrap();
    socket.write_all(bytes).await.unwrap();
    socket
}

/// All that comes until the gateway closes.
async fn rest(mut socket: TcpStream) -> Vec<u8> {
    let mut rest = Vec::new();
    // A reset is an end too.
    drop(in_time("the gateway to close", socket.read_to_end(&mut rest)).await);
    rest
}

#[tokio::test]
async fn both_versions_share_a_listener() {
    let scene = Scene::new().await;
    scene.agent.on_send(|_| Reply::result(v1::message("sung")));
    let client = scene.gateway.client();
    let params = json!({ "name": TOOL, "arguments": { "text": "x" } });
    for client in [client.http2(), client.clone(), client.http2()] {
        let result = client.modern("tools/call", params.clone()).await.result().await;
        assert!(result.to_string().contains("sung"), "{result}");
    }
    // Shorter than the preface of HTTP/2, and complete.
    let answer = rest(connect(&scene.gateway, b"GET / HTTP/1.0\r\n\r\n").await).await;
    assert!(answer.starts_with(b"HTTP/1.1 4"), "{}", String::from_utf8_lossy(&answer));
}

/// A frame `HEADERS` with a whole request for this path, of which no line is kept in a table.
fn request(host: &str, path: &str) -> Vec<u8> {
    headers(1, &[(":method", "GET"), (":scheme", "http"), (":path", path), (":authority", host)])
}

/// A frame `HEADERS` with these lines, and no body after them.
fn headers(stream: u8, lines: &[(&str, &str)]) -> Vec<u8> {
    let text = |text: &str| [&[u8::try_from(text.len()).unwrap()], text.as_bytes()].concat();
    let lines: Vec<u8> =
        lines.iter().flat_map(|(name, value)| [vec![0], text(name), text(value)].concat()).collect();
    // With END_STREAM and END_HEADERS.
    [&[0, 0, u8::try_from(lines.len()).unwrap(), 1, 5, 0, 0, 0, stream], lines.as_slice()].concat()
}

/// As no two are the same, the table of a connection would be searched for each (RFC 7541 §6.2.3).
#[tokio::test]
async fn id_of_request_is_never_indexed() {
    /// `x-request-id` in Huffman code, with its length.
    const NAME: [u8; 10] = [0x89, 0xf2, 0xb5, 0x85, 0xed, 0x69, 0x50, 0x95, 0x8d, 0x27];
    const LITERAL_NEVER_INDEXED: u8 = 0x10;
    let scene = Scene::new().await;
    let bytes = [PREFACE, SETTINGS, &request(&scene.gateway.address().to_string(), "/mcp")].concat();
    let mut socket = connect(&scene.gateway, &bytes).await;
    let mut seen = Vec::new();
    let form = in_time("the id of the request", async {
        loop {
            if let Some(at) = seen.windows(NAME.len()).position(|part| part == NAME) {
                break seen[at - 1];
            }
            assert!(socket.read_buf(&mut seen).await.unwrap() > 0, "closed after {seen:?}");
        }
    })
    .await;
    assert_eq!(form, LITERAL_NEVER_INDEXED, "{seen:?}");
}

#[tokio::test]
async fn http2_streams_run_side_by_side() {
    let scene = Scene::new().await;
    let socket = TcpStream::connect(scene.gateway.address()).await.unwrap();
    let (sender, connection) = hyper::client::conn::http2::handshake(
        hyper_util::rt::TokioExecutor::new(),
        hyper_util::rt::TokioIo::new(socket),
    )
    .await
    .unwrap();
    let connection = tokio::spawn(connection);
    let health = |_| {
        let mut sender = sender.clone();
        let url = scene.gateway.url("/healthz");
        async move {
            let request = hyper::Request::get(url).body(http_body_util::Empty::<bytes::Bytes>::new());
            sender.send_request(request.unwrap()).await.unwrap().status().as_u16()
        }
    };
    let mut all: Vec<_> = (0..20).map(health).map(tokio::spawn).collect();
    for answer in all.drain(..) {
        assert_eq!(in_time("an answer", answer).await.unwrap(), 200);
    }
    connection.abort();
}

#[tokio::test]
async fn long_header_over_http2_is_refused() {
    let scene = Scene::tuned("limits: { header: 8KiB }").await;
    let client = scene.gateway.client().http2();
    let long = "x".repeat(12_000);
    assert_eq!(client.at("/healthz").get(&[("X-Long", &long)]).await.status, 431);
    assert_eq!(client.at("/healthz").get(&[]).await.status, 200);
}

#[tokio::test]
async fn slow_first_bytes_are_not_awaited() {
    let scene = Scene::tuned("limits: { header_read: 1s, keep_alive: 1s }").await;
    let whole = [PREFACE, SETTINGS].concat();
    for first in [&PREFACE[..0], &PREFACE[..1], &PREFACE[..20], &PREFACE[..23], &whole] {
        let since = Instant::now();
        let answer = rest(connect(&scene.gateway, first).await).await;
        assert!(!answer.starts_with(b"HTTP/1.1 2"), "{first:?}: {answer:?}");
        let took = since.elapsed();
        assert!(took < Duration::from_secs(10), "{first:?}: closed after {took:?}");
    }
}

#[tokio::test]
async fn idle_http2_connection_is_closed_and_busy_one_is_not() {
    const IDLE: Duration = Duration::from_secs(1);
    let scene = Scene::tuned("limits: { keep_alive: 1s }").await;
    let answered = Signal::new();
    let answers = answered.clone();
    scene.agent.on_send(move |_| Reply::result(v1::message("sung")).after(&answers));
    let socket = TcpStream::connect(scene.gateway.address()).await.unwrap();
    let (mut sender, connection) = hyper::client::conn::http2::handshake(
        hyper_util::rt::TokioExecutor::new(),
        hyper_util::rt::TokioIo::new(socket),
    )
    .await
    .unwrap();
    let connection = tokio::spawn(connection);
    let call = json!({
        "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": { "name": TOOL, "arguments": { "text": "x" } },
    });
    let request = hyper::Request::post(scene.gateway.url("/mcp"))
        .header("Content-Type", "application/json")
        .header("Accept", "application/json, text/event-stream")
        .body(http_body_util::Full::new(bytes::Bytes::from(call.to_string())))
        .unwrap();
    let mut response = std::pin::pin!(sender.send_request(request));
    let early = tokio::time::timeout(IDLE * 2, response.as_mut()).await;
    assert!(early.is_err(), "the agent has not answered, and yet there is {early:?}");
    answered.fire();
    let response = in_time("a response", response).await.unwrap();
    assert_eq!(response.status(), 200);
    let body = http_body_util::BodyExt::collect(response.into_body()).await.unwrap().to_bytes();
    assert!(String::from_utf8_lossy(&body).contains("sung"), "{body:?}");
    let since = Instant::now();
    drop(in_time("the gateway to close", connection).await);
    let took = since.elapsed();
    assert!((IDLE / 2..IDLE * 8).contains(&took), "closed {took:?} after the last response");
}

/// Each is answered, and they cost something.
#[tokio::test]
async fn connection_with_many_malformed_requests_is_closed() {
    const REQUESTS: u8 = 100;
    const MAX_ANSWERED: usize = 33;
    let scene = Scene::new().await;
    let host = scene.gateway.address().to_string();
    let mut bytes = [PREFACE, SETTINGS].concat();
    for number in 0..REQUESTS {
        // Two hosts (RFC 9113 §8.3.1).
        let lines = [
            (":method", "GET"),
            (":scheme", "http"),
            (":path", "/healthz"),
            (":authority", &*host),
            ("host", "elsewhere.example"),
        ];
        bytes.extend(headers(number * 2 + 1, &lines));
    }
    let answer = rest(connect(&scene.gateway, &bytes).await).await;
    let (mut answered, mut frames) = (0, answer.as_slice());
    while let [high, middle, low, kind, _, _, _, _, _, after @ ..] = frames {
        let length = u32::from_be_bytes([0, *high, *middle, *low]);
        answered += usize::from(*kind == 1);
        frames = after.get(usize::try_from(length).unwrap()..).unwrap_or_default();
    }
    assert!(answered <= MAX_ANSWERED, "{answered} were answered");
    // Others are served.
    assert_eq!(scene.gateway.client().http2().at("/healthz").get(&[]).await.status, 200);
}

#[tokio::test]
async fn http2_follows_proxy_header() {
    let scene = Scene::new().await;
    let card = scene.agent.card_url();
    let gateway = TestGateway::start(|ports| {
        let listeners = ports.listeners().replacen(
            "admin:",
            "    trusted_proxies: [127.0.0.1]\n    proxy_protocol: true\nadmin:",
            1,
        );
        format!("{listeners}agents:\n  bard:\n    card: {card}\n")
    })
    .await;
    let socket = connect(&gateway, b"PROXY TCP4 192.0.2.1 10.0.0.1 4711 80\r\n").await;
    let (mut sender, connection) = hyper::client::conn::http2::handshake(
        hyper_util::rt::TokioExecutor::new(),
        hyper_util::rt::TokioIo::new(socket),
    )
    .await
    .unwrap();
    let connection = tokio::spawn(connection);
    let request =
        hyper::Request::get(gateway.url("/healthz")).body(http_body_util::Empty::<bytes::Bytes>::new());
    let answer = in_time("an answer", sender.send_request(request.unwrap())).await.unwrap();
    assert_eq!(answer.status(), 200);
    connection.abort();
}
