//! Memory of the process while clients and agents send what is never finished, or never read.
//!
//! Measured as the system counts it. The shares themselves are in `byte_shares`.

use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;

use crate::auth::callers::{EVE, NEW, keys};
use crate::kit::scene::{RAW_CONTEXT, RAW_TASK, Scene, TOOL, complaint, words};
use crate::support::payload::v1;
use crate::support::{Reply, TestGateway, in_time};

const MIB: u64 = 1024;

/// Another caller is served meanwhile.
async fn is_served(gateway: &TestGateway) {
    let answer = gateway.client().header("X-Api-Key", EVE).modern("tools/list", json!({})).await;
    assert_eq!(answer.status, 200);
}

/// Nearly what Pingora reads of a header.
fn unfinished_header() -> Vec<u8> {
    let mut header = b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nX-Long: ".to_vec();
    header.resize(1_000_000, b'x');
    header
}

/// 1,500 headers of 1 MB took 1.34 GB.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unfinished_headers_are_cut_at_limit() {
    const CONNECTIONS: usize = 1500;
    let scene = Scene::tuned("limits: { header_read: 60s, address_connections: 0 }").await;
    is_served(&scene.gateway).await;
    let before = scene.gateway.peak_kib();
    let mut clients = JoinSet::new();
    for _ in 0..CONNECTIONS {
        let address = scene.gateway.address();
        clients.spawn(async move {
            let mut socket = TcpStream::connect(address).await.unwrap();
            // It fails where the gateway has hung up already.
            drop(socket.write_all(&unfinished_header()).await);
            let mut answer = Vec::new();
            drop(in_time("the gateway to hang up", socket.read_to_end(&mut answer)).await);
            answer
        });
        if clients.len() % 100 == 0 {
            is_served(&scene.gateway).await;
        }
    }
    let answers = clients.join_all().await;
    let took = scene.gateway.peak_kib() - before;
    println!("{CONNECTIONS} unfinished headers took {} MiB at most", took / MIB);
    // Up to 170 KiB each where all are open at once.
    assert!(took < 350 * MIB, "{} MiB", took / MIB);
    let told = answers.iter().filter(|answer| answer.starts_with(b"HTTP/1.1 431 ")).count();
    assert!(told > CONNECTIONS / 2, "{told} were told why");
    assert!(
        String::from_utf8_lossy(answers.iter().find(|answer| !answer.is_empty()).unwrap())
            .contains("longer than 32768 bytes")
    );
    let metrics = scene.gateway.metrics().await;
    assert!(metrics.contains(&format!("refused_total{{reason=\"too_large\"}} {CONNECTIONS}")), "{metrics}");
    is_served(&scene.gateway).await;
}

/// 250 bodies of 4 MiB took 1.2 GB.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_of_caller_take_bounded_memory() {
    const BODIES: usize = 250;
    const BODY: usize = 4 << 20;
    let scene = Scene::tuned(&keys("")).await;
    let eve = scene.gateway.client().header("X-Api-Key", EVE);
    scene.agent.on_send(|_| Reply::events([v1::message("la")]));
    let large = json!({ "name": TOOL, "arguments": { "text": "x".repeat(BODY - 4096) } });
    assert_eq!(words(&eve.modern("tools/call", large.clone()).await.result().await), "la");
    let before = scene.gateway.peak_kib();
    let mut bodies = JoinSet::new();
    for _ in 0..BODIES {
        let address = scene.gateway.address();
        bodies.spawn(async move {
            let mut socket = TcpStream::connect(address).await.unwrap();
            let head = format!(
                "POST /mcp HTTP/1.1\r\nHost: localhost\r\nX-Api-Key: {NEW}\r\nContent-Type: application/json\r\nContent-Length: {BODY}\r\n\r\n"
            );
            socket.write_all(head.as_bytes()).await.unwrap();
            // All but the last byte. It fails where the gateway has hung up already.
            drop(socket.write_all(&vec![b' '; BODY - 1]).await);
            let mut told = vec![0; 12];
            let read = tokio::time::timeout(Duration::from_secs(5), socket.read_exact(&mut told)).await;
            (read.is_ok().then_some(told), socket)
        });
        if bodies.len() % 50 == 0 {
            assert_eq!(words(&eve.modern("tools/call", large.clone()).await.result().await), "la");
        }
    }
    let bodies = bodies.join_all().await;
    let waiting = bodies.iter().filter(|(told, _)| told.is_none()).count();
    let refused = bodies.iter().filter(|(told, _)| told.as_deref() == Some(b"HTTP/1.1 429")).count();
    let took = scene.gateway.peak_kib() - before;
    println!(
        "{waiting} bodies wait, {refused} of {BODIES} are refused; they took {} MiB at most",
        took / MIB
    );
    assert_eq!(waiting, 8, "32 MiB");
    assert!(refused > BODIES / 2, "{refused}");
    assert!(took < 150 * MIB, "{} MiB", took / MIB);
    assert_eq!(words(&eve.modern("tools/call", large).await.result().await), "la");
}

/// A call with an answer that is not read: the kernel takes little of it.
async fn unread(gateway: &TestGateway) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let mut socket = socket.connect(gateway.address()).await.unwrap();
    let params = json!({ "name": TOOL, "arguments": { "text": "x" } });
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params }).to_string();
    let head = format!(
        "POST /mcp HTTP/1.1\r\nHost: localhost\r\nX-Api-Key: {NEW}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    socket.write_all((head + &body).as_bytes()).await.unwrap();
    socket
}

/// Each took three times its size.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unread_result_is_held_once() {
    const RESULTS: u64 = 12;
    const SIZE: u64 = 8;
    let scene =
        Scene::tuned(&keys("limits: { bytes: 800MiB, caller_bytes: 400MiB, write_stall: 10m }\n")).await;
    let large = "x".repeat(usize::try_from(SIZE).unwrap() << 20);
    for streams in [false, true] {
        let answer = large.clone();
        scene.agent.on_send(move |_| match streams {
            // One event is not as large.
            true => {
                let more = |at: usize| {
                    v1::artifact_update(RAW_TASK, RAW_CONTEXT, &"x".repeat(answer.len() / 4), at > 0, false)
                };
                let begun = Reply::stream().event(v1::task(RAW_TASK, RAW_CONTEXT, "working"));
                let made = (0..4).fold(begun, |stream, at| stream.event(more(at)));
                // It stays open, so that the call has something to wait for.
                made.event(v1::status_update(RAW_TASK, RAW_CONTEXT, "completed", None)).stall()
            }
            false => Reply::result(v1::message(&answer)),
        });
        let before = scene.gateway.resident_kib();
        let mut held = Vec::new();
        for _ in 0..RESULTS {
            let mut socket = unread(&scene.gateway).await;
            let mut begun = [0; 12];
            in_time("the answer to begin", socket.read_exact(&mut begun)).await.unwrap();
            assert_eq!(&begun, b"HTTP/1.1 200");
            held.push(socket);
        }
        // The work is dropped a moment later.
        let most = RESULTS * SIZE * 16 / 10 * MIB;
        let settled = async {
            while scene.gateway.resident_kib().saturating_sub(before) > most {
                is_served(&scene.gateway).await;
            }
        };
        let settled = tokio::time::timeout(Duration::from_secs(10), settled).await;
        let took = scene.gateway.resident_kib().saturating_sub(before);
        println!("{RESULTS} unread results of {SIZE} MiB take {} MiB", took / MIB);
        assert!(settled.is_ok(), "{} MiB", took / MIB);
    }
}

/// 60 answers of 12 MB killed a gateway with 400 MB.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unfinished_answers_take_bounded_memory() {
    const ANSWERS: usize = 40;
    const ANSWER: usize = 12_000_000;
    let scene = Scene::tuned(&keys("")).await;
    let head =
        format!("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {ANSWER}\r\n\r\n");
    let raw = [head.into_bytes(), vec![b' '; ANSWER - 1]].concat();
    scene.agent.on_send(move |_| Reply::raw(&raw).stall());
    let before = scene.gateway.peak_kib();
    let mut calls = JoinSet::new();
    for _ in 0..ANSWERS {
        let client = scene.gateway.client().header("X-Api-Key", NEW);
        calls.spawn(async move {
            let params = json!({ "name": TOOL, "arguments": { "text": "x" } });
            client.modern("tools/call", params).await.result().await
        });
    }
    let mut refused = 0;
    while refused < ANSWERS - 2 {
        let result = in_time("a refusal", calls.join_next()).await.unwrap().unwrap();
        assert!(complaint(&result).contains("no room for its answer"), "{result}");
        refused += 1;
    }
    let took = scene.gateway.peak_kib() - before;
    println!("{ANSWERS} unfinished answers of 12 MB took {} MiB at most", took / MIB);
    assert!(took < 120 * MIB, "{} MiB", took / MIB);
    assert_eq!(calls.len(), 2, "32 MiB");
    scene.agent.on_send(|_| Reply::events([v1::message("la")]));
    let eve = scene.gateway.client().header("X-Api-Key", EVE);
    let params = json!({ "name": TOOL, "arguments": { "text": "x" } });
    assert_eq!(words(&eve.modern("tools/call", params).await.result().await), "la");
}
