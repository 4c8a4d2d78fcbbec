//! Agents that send without end what is no answer, or an answer in crumbs: each call ends, and the
//! gateway goes on.
//!
//! Answers that are too large are in `agent_misbehaves`, clients that do the same in
//! `client_floods`.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::Full;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::kit::a2a_scene::{Stage, call, saying};
use crate::kit::scene::{Scene, TOOL, complaint, words};
use crate::support::certs::server_config;
use crate::support::payload::v1;
use crate::support::{Authority, Card, McpClient, Reply, TestGateway, in_time};

/// Long before any deadline of the agent: a bound on bytes ends it.
const SOON: Duration = Duration::from_secs(15);
/// One-byte pieces of a body.
const CRUMBS: usize = 1_000_000;

async fn asked(client: &McpClient) -> serde_json::Value {
    let params = json!({ "name": TOOL, "arguments": { "text": "x" } });
    client.modern("tools/call", params).await.result().await
}

#[tokio::test]
async fn endless_1xx_responses_are_cut() {
    let scene = Scene::new().await;
    for hints in ["HTTP/1.1 103 Early Hints\r\n\r\n", "HTTP/1.1 100 Continue\r\nx: yyyyyyyyyyyyyyyy\r\n\r\n"]
    {
        scene.agent.on_send(move |_| Reply::flood(hints.repeat(2048).as_bytes()));
        let begun = Instant::now();
        let result = scene.said("x").await;
        assert!(complaint(&result).contains("informational responses without end"), "{result}");
        assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
        let number = scene.agent.calls("SendStreamingMessage").last().unwrap().number;
        scene.agent.wait_for("the gateway to close the connection", |log| log.left.contains(&number)).await;
    }
    scene.agent.on_send(|request| {
        let answer = json!({ "jsonrpc": "2.0", "id": request.id(), "result": v1::message("la") }).to_string();
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            answer.len()
        );
        Reply::raw(["HTTP/1.1 103 Early Hints\r\n\r\n".repeat(50), head, answer].concat().as_bytes())
    });
    assert_eq!(words(&scene.said("x").await), "la", "a few are skipped");
}

/// The client reads as fast as the agent writes, so that there is always something to read.
#[tokio::test]
async fn endless_stream_ends_at_deadline() {
    let stage =
        Stage::with(Card::v1().skill("sing"), "", "    timeouts: { first_byte: 2s, idle: 2s, total: 2s }\n")
            .await;
    let event = format!(
        "data: {}\n\n",
        json!({ "jsonrpc": "2.0", "id": "call-1", "result": v1::task("t", "c", "working") })
    );
    stage.agent.on_stream(move |_| Reply::stream().flooding(event.repeat(500).as_bytes()));
    let begun = Instant::now();
    let answer = call(&stage.client(), "SendStreamingMessage", saying("x")).await;
    in_time("the end of the stream", answer.until_cut()).await;
    assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
    stage.agent.wait_for("the gateway to leave", |log| !log.left.is_empty()).await;
}

/// A body of crumbs around one answer that is good.
fn in_crumbs(media_type: &str, before: u8, answer: &str) -> Reply {
    let head = format!("HTTP/1.1 200 OK\r\nContent-Type: {media_type}\r\nTransfer-Encoding: chunked\r\n\r\n");
    let mut raw = head.into_bytes();
    for _ in 0..CRUMBS {
        raw.extend_from_slice(b"1\r\n");
        raw.extend_from_slice(&[before]);
        raw.extend_from_slice(b"\r\n");
    }
    raw.extend_from_slice(format!("{:x}\r\n{answer}\r\n0\r\n\r\n", answer.len()).as_bytes());
    Reply::raw(&raw)
}

#[tokio::test]
async fn answer_in_crumbs_is_refused() {
    let answer = json!({ "jsonrpc": "2.0", "id": 1, "result": v1::message("la") }).to_string();
    let scene = Scene::new().await;
    let whole = answer.clone();
    scene.agent.on_send(move |_| in_crumbs("application/json", b' ', &whole));
    let result = scene.said("x").await;
    assert!(complaint(&result).contains("too many small pieces"), "{result}");
    // The same as the beginning of an event.
    let event = format!("\ndata: {answer}\n\n");
    scene.agent.on_send(move |_| in_crumbs("text/event-stream", b':', &event));
    let result = scene.said("x").await;
    assert!(complaint(&result).contains("too many small pieces"), "{result}");
    scene.agent.on_send(|_| Reply::events([v1::message("la")]));
    assert_eq!(words(&scene.said("x").await), "la");
}

#[tokio::test]
async fn answer_in_crumbs_is_not_passed_on() {
    let answer =
        json!({ "jsonrpc": "2.0", "id": "call-1", "result": v1::completed("t", "c", "la") }).to_string();
    let stage = Stage::new().await;
    let whole = answer.clone();
    stage.agent.on("SendMessage", move |_| in_crumbs("application/json", b' ', &whole));
    let answered = call(&stage.client(), "SendMessage", saying("x")).await;
    // It has begun before it is known to be crumbs, and breaks off.
    in_time("the end of the answer", answered.until_cut()).await;
    let event = format!("\ndata: {answer}\n\n");
    stage.agent.on_stream(move |_| in_crumbs("text/event-stream", b':', &event));
    let told = call(&stage.client(), "SendStreamingMessage", saying("x")).await.json().await;
    assert!(told["error"]["message"].as_str().unwrap().contains("too many small pieces"), "{told}");
    let log = stage.agent.wait_for("both to be left", |log| log.left.len() == 2).await;
    assert_eq!(log.answered.len(), log.requests.len() - 2, "neither was read to its end");
}

/// Serves HTTP/2 connections, each as `script` does.
async fn over_http2<F, Fut>(authority: &Authority, script: F) -> SocketAddr
where
    F: Fn(usize, SocketAddr, TlsStream<TcpStream>) -> Fut + Send + 'static,
    Fut: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut config = (*server_config(&authority.server(), None)).clone();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let tls = TlsAcceptor::from(Arc::new(config));
    tokio::spawn(async move {
        for number in 0.. {
            let Ok((socket, _)) = listener.accept().await else { return };
            let Ok(socket) = tls.accept(socket).await else { continue };
            tokio::spawn(script(number, address, socket));
        }
    });
    address
}

async fn before_http2(authority: &Authority, agent: SocketAddr, own: &str) -> TestGateway {
    let card = format!("https://{agent}/.well-known/agent-card.json");
    TestGateway::start(|ports| {
        std::fs::write(ports.directory.join("ca.pem"), authority.pem()).unwrap();
        format!("{}agents:\n  bard:\n    card: {card}\n    tls: {{ ca: ca.pem }}\n{own}", ports.listeners())
    })
    .await
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut frame = vec![length[1], length[2], length[3], kind, flags];
    frame.extend_from_slice(&stream.to_be_bytes());
    frame.extend_from_slice(payload);
    frame
}

/// Answers a GET with the card, and a POST with informational responses until the gateway hangs up.
async fn hints_only(address: SocketAddr, mut socket: TlsStream<TcpStream>) {
    const HEADERS: u8 = 1;
    const END_HEADERS: u8 = 4;
    // `:method: POST` in the static table of HPACK.
    const POST: u8 = 0x83;
    let card = Card::v1().skill("sing").body(&format!("https://{address}/"));
    let mut seen = vec![0; 24];
    socket.read_exact(&mut seen).await.unwrap();
    socket.write_all(&frame(4, 0, 0, &[])).await.unwrap();
    loop {
        let mut head = [0; 9];
        if socket.read_exact(&mut head).await.is_err() {
            return;
        }
        let length = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
        let mut payload = vec![0; length];
        socket.read_exact(&mut payload).await.unwrap();
        let stream = u32::from_be_bytes(head[5..9].try_into().unwrap());
        match (head[3], head[4]) {
            (HEADERS, _) if payload.first() == Some(&POST) => {
                // `:status: 103`, literally.
                let hint = frame(HEADERS, END_HEADERS, stream, b"\x08\x03103");
                let hints = hint.repeat(4096);
                while socket.write_all(&hints).await.is_ok() {}
                return;
            }
            (HEADERS, _) => {
                let mut block = vec![0x88, 0x0f, 0x10, 16];
                block.extend_from_slice(b"application/json");
                let mut answer = frame(HEADERS, END_HEADERS, stream, &block);
                answer.extend(frame(0, 1, stream, &card));
                socket.write_all(&answer).await.unwrap();
            }
            (4, 0) => socket.write_all(&frame(4, 1, 0, &[])).await.unwrap(),
            _ => {}
        }
    }
}

#[tokio::test]
async fn endless_http2_1xx_responses_are_cut() {
    let authority = Authority::new("ours");
    let closed = Arc::new(AtomicUsize::new(0));
    let counter = closed.clone();
    let agent = over_http2(&authority, move |_, address, socket| {
        let counter = counter.clone();
        async move {
            hints_only(address, socket).await;
            counter.fetch_add(1, Ordering::SeqCst);
        }
    })
    .await;
    let gateway = before_http2(&authority, agent, "").await;
    let begun = Instant::now();
    let result = asked(&gateway.client()).await;
    assert!(complaint(&result).contains("bard"), "{result}");
    assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
    in_time("the gateway to hang up", async {
        while closed.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn timed_out_http2_connection_rests() {
    let authority = Authority::new("ours");
    let heard = Arc::new(Mutex::new(Vec::new()));
    let noted = heard.clone();
    let agent = over_http2(&authority, move |number, address, socket| {
        let noted = noted.clone();
        let card =
            Bytes::from(Card::v1().skill("sing").streaming(false).body(&format!("https://{address}/")));
        let service = hyper::service::service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
            let (noted, card) = (noted.clone(), card.clone());
            async move {
                let json = |body: Bytes| {
                    let response = hyper::Response::builder().header("content-type", "application/json");
                    Ok::<_, Infallible>(response.body(Full::new(body)).unwrap())
                };
                if request.method() == hyper::Method::GET {
                    return json(card);
                }
                let count = {
                    let mut posts = noted.lock().unwrap();
                    posts.push(number);
                    posts.len()
                };
                if count == 1 {
                    std::future::pending::<()>().await;
                }
                let answer = json!({ "jsonrpc": "2.0", "id": 1, "result": v1::message("la") });
                json(answer.to_string().into())
            }
        });
        async move {
            let executor = hyper_util::rt::TokioExecutor::new();
            let serving = hyper::server::conn::http2::Builder::new(executor);
            drop(serving.serve_connection(hyper_util::rt::TokioIo::new(socket), service).await);
        }
    })
    .await;
    let gateway = before_http2(&authority, agent, "    timeouts: { first_byte: 1s }\n").await;
    assert!(complaint(&asked(&gateway.client()).await).contains("did not answer in time"));
    for _ in 0..2 {
        assert_eq!(words(&asked(&gateway.client()).await), "la");
    }
    let posts = heard.lock().unwrap().clone();
    assert!(posts[1] > posts[0], "another connection: {posts:?}");
    assert_eq!(posts[2], posts[1], "which is kept: {posts:?}");
}
