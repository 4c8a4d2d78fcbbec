//! HTTP/2 with prior knowledge on a listener without TLS, beside HTTP/1.1.
//!
//! Out of scope: HTTP/2 over TLS (see `https`), and floods (see `advisories_http2`).

use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

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

/// A connection of a client, and the task that runs it.
type Http2Connection = (SendRequest<Full<Bytes>>, JoinHandle<hyper::Result<()>>);

async fn http2(socket: TcpStream) -> Http2Connection {
    let handshake = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(socket));
    let (sender, connection) = handshake.await.unwrap();
    (sender, tokio::spawn(connection))
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
    let (sender, connection) = http2(connect(&scene.gateway, b"").await).await;
    let health = |_| {
        let mut sender = sender.clone();
        let url = scene.gateway.url("/healthz");
        async move {
            let request = hyper::Request::get(url).body(Full::default());
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
    let (mut sender, connection) = http2(connect(&scene.gateway, b"").await).await;
    let call = json!({
        "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": { "name": TOOL, "arguments": { "text": "x" } },
    });
    let request = hyper::Request::post(scene.gateway.url("/mcp"))
        .header("Content-Type", "application/json")
        .header("Accept", "application/json, text/event-stream")
        .body(Full::new(Bytes::from(call.to_string())))
        .unwrap();
    let mut response = std::pin::pin!(sender.send_request(request));
    let early = tokio::time::timeout(IDLE * 2, response.as_mut()).await;
    assert!(early.is_err(), "the agent has not answered, and yet there is {early:?}");
    answered.fire();
    let response = in_time("a response", response).await.unwrap();
    assert_eq!(response.status(), 200);
    let body = response.into_body().collect().await.unwrap().to_bytes();
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
    let answered = frames(&answer).iter().filter(|(kind, ..)| *kind == HEADERS).count();
    assert!(answered <= MAX_ANSWERED, "{answered} were answered");
    // Others are served.
    assert_eq!(scene.gateway.client().http2().at("/healthz").get(&[]).await.status, 200);
}

/// Returns kind, flags and bytes of each frame.
fn frames(mut bytes: &[u8]) -> Vec<(u8, u8, &[u8])> {
    let mut frames = Vec::new();
    while let [high, middle, low, kind, flags, _, _, _, _, after @ ..] = bytes {
        let length = u32::from_be_bytes([0, *high, *middle, *low]).try_into().unwrap();
        let (payload, rest) = after.split_at(after.len().min(length));
        frames.push((*kind, *flags, payload));
        bytes = rest;
    }
    frames
}

const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const END_STREAM: u8 = 1;

/// The first frame of the response to a request with these lines.
async fn first_of_response(gateway: &TestGateway, lines: &[(&str, &str)]) -> (u8, u8, Vec<u8>) {
    let mut socket = connect(gateway, &[PREFACE, SETTINGS, &headers(1, lines)].concat()).await;
    let mut seen = Vec::new();
    in_time("a response", async {
        loop {
            let found = frames(&seen).into_iter().find(|(kind, ..)| matches!(*kind, HEADERS | RST_STREAM));
            if let Some((kind, flags, payload)) = found {
                break (kind, flags, payload.to_vec());
            }
            assert!(socket.read_buf(&mut seen).await.unwrap() > 0, "closed after {seen:?}");
        }
    })
    .await
}

/// RFC 9113 §8.3.1: a proxy before the gateway may have taken another host for that of the request.
#[tokio::test]
async fn request_without_one_host_is_refused() {
    /// Indexes of `:status: 400` in the static table, and of `:status`.
    const BAD_REQUEST: u8 = 0x80 | 12;
    const OTHER_STATUS: u8 = 8;
    let scene = Scene::new().await;
    let own = scene.gateway.address().to_string();
    let get = |path| [(":method", "GET"), (":scheme", "http"), (":path", path)];
    let with = |path, more: &[(&'static str, String)]| {
        let mut lines: Vec<_> = get(path).map(|(name, value)| (name, value.to_owned())).to_vec();
        lines.extend_from_slice(more);
        lines
    };
    let (authority, host) = ((":authority", own.clone()), ("host", own.clone()));
    let elsewhere = ("host", "elsewhere.example".to_owned());
    let connects = vec![(":method", "CONNECT".to_owned()), authority.clone()];
    for (lines, expected, status) in [
        (with("/healthz", std::slice::from_ref(&host)), HEADERS, 0x80 | 8),
        (with("/healthz", &[]), HEADERS, BAD_REQUEST),
        (with("/healthz", &[authority.clone(), elsewhere]), HEADERS, BAD_REQUEST),
        (with("/healthz", &[host.clone(), host]), HEADERS, BAD_REQUEST),
        (with("/healthz", &[(":authority", format!("user@{own}"))]), HEADERS, BAD_REQUEST),
        (with("http://elsewhere.example/healthz", std::slice::from_ref(&authority)), RST_STREAM, 0),
        (connects, HEADERS, OTHER_STATUS),
        (with("/health z", std::slice::from_ref(&authority)), RST_STREAM, 0),
        (with("/healthz", &[authority, ("transfer-encoding", "chunked".to_owned())]), RST_STREAM, 0),
    ] {
        let lines: Vec<_> = lines.iter().map(|(name, value)| (*name, &**value)).collect();
        let (kind, _, payload) = first_of_response(&scene.gateway, &lines).await;
        assert_eq!(kind, expected, "{lines:?}: {payload:?}");
        // An update of the table's size may come first.
        let first = payload.iter().find(|byte| **byte & 0xe0 != 0x20);
        let is_status = |byte: &u8| *byte == status || (*byte & 0x0f == status && *byte < 0x80);
        assert!(kind == RST_STREAM || first.is_some_and(is_status), "{lines:?}: {payload:?}");
    }
}

/// Its client need not wait for another frame.
#[tokio::test]
async fn response_without_body_ends_with_its_head() {
    let scene = Scene::new().await;
    let host = scene.gateway.address().to_string();
    for (method, path) in [("HEAD", "/healthz"), ("OPTIONS", "/mcp")] {
        let lines = [(":method", method), (":scheme", "http"), (":path", path), (":authority", &*host)];
        let (kind, flags, payload) = first_of_response(&scene.gateway, &lines).await;
        assert_eq!((kind, flags & END_STREAM), (HEADERS, END_STREAM), "{method} {path}: {payload:?}");
    }
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
    let (mut sender, connection) = http2(socket).await;
    let request = hyper::Request::get(gateway.url("/healthz")).body(Full::default());
    let answer = in_time("an answer", sender.send_request(request.unwrap())).await.unwrap();
    assert_eq!(answer.status(), 200);
    connection.abort();
}
