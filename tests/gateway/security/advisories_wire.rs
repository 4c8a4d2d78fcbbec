//! Advisories about bytes on a client's connection: requests that are smuggled behind another, and
//! requests that break off.
//!
//! Out of scope: HTTP/2 (see `advisories_http2`), and odd but honest clients (see `client_wire`).

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::kit::scene::{Scene, TOOL};
use crate::support::payload::v1;
use crate::support::{Reply, TestGateway, in_time};

/// Connections end soon after their last answer, so that a test can read all that comes.
const BRIEF: &str = "limits: { keep_alive: 1s, header_read: 1s, body_read: 1s }\n";
/// A request that is to stay a part of another one, and what an answer to it would hold.
const SMUGGLED: &str = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";
const ANSWERED: &str = "activeSse";

/// All that the gateway says to these bytes until it closes.
async fn said(gateway: &TestGateway, bytes: &str) -> String {
    said_late(gateway, bytes, "").await
}

/// The same, with more bytes once an answer has begun.
async fn said_late(gateway: &TestGateway, bytes: &str, late: &str) -> String {
    let mut socket = TcpStream::connect(gateway.address()).await.unwrap();
    // The gateway may have refused and closed already: only its answer counts.
    drop(socket.write_all(bytes.as_bytes()).await);
    let mut seen = Vec::new();
    if !late.is_empty() {
        drop(in_time("an answer", socket.read_buf(&mut seen)).await);
        drop(socket.write_all(late.as_bytes()).await);
    }
    // A reset is an end too.
    drop(in_time("the gateway to close", socket.read_to_end(&mut seen)).await);
    String::from_utf8_lossy(&seen).into_owned()
}

/// The body of a call of the tool, in one line.
fn call() -> String {
    let params = json!({ "name": TOOL, "arguments": { "text": "x" } });
    json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params }).to_string()
}

/// How many requests were answered.
fn answers(said: &str) -> usize {
    said.matches("HTTP/1.1 ").count() + said.matches("HTTP/1.0 ").count()
}

/// Pingora CVE-2025-4366 (RUSTSEC-2025-0037): an answer that was given without reading the
/// request's body left it there, and it was taken for the next request. Here: each answer that
/// needs no body, to a request with a body that looks like a request.
#[tokio::test]
async fn unread_body_is_never_next_request() {
    let scene = Scene::new().await;
    let card = scene.agent.card_url();
    let gateway = TestGateway::start(|ports| {
        let keys = crate::auth::callers::keys("");
        format!("{}{BRIEF}{keys}agents:\n  bard:\n    card: {card}\n", ports.listeners())
    })
    .await;
    assert!(said(&gateway, SMUGGLED).await.contains(ANSWERED), "alone it is answered");
    let json = "Content-Type: application/json\r\n";
    for (status, begin) in [
        ("401", format!("POST /mcp HTTP/1.1\r\n{json}")),
        ("401", "DELETE /mcp HTTP/1.1\r\n".to_owned()),
        ("403", format!("POST /mcp HTTP/1.1\r\n{json}Origin: http://evil.example\r\n")),
        ("204", "OPTIONS /mcp HTTP/1.1\r\nOrigin: http://localhost:1\r\n".to_owned()),
        ("404", format!("POST /elsewhere HTTP/1.1\r\n{json}")),
        ("200", "GET /healthz HTTP/1.1\r\n".to_owned()),
    ] {
        let length = SMUGGLED.len();
        let chunk = format!("{length:x}\r\n{SMUGGLED}\r\n0\r\n\r\n");
        for (framing, body) in [
            (format!("Content-Length: {length}\r\n"), SMUGGLED),
            ("Content-Length: 99999999\r\n".to_owned(), SMUGGLED),
            ("Transfer-Encoding: chunked\r\n".to_owned(), &chunk),
        ] {
            let head = format!("{begin}Host: localhost\r\n{framing}\r\n");
            // At once, with more than the buffer of a header holds, and when the answer is on its way already.
            let at_once = said(&gateway, &format!("{head}{body}")).await;
            let many = said(&gateway, &format!("{head}{body}{}", SMUGGLED.repeat(200))).await;
            for said in [at_once, many, said_late(&gateway, &head, body).await] {
                assert_eq!(said.get(9..12), Some(status), "{head}{body}: {said}");
                let own = usize::from(status == "200");
                assert_eq!(
                    (answers(&said), said.matches(ANSWERED).count()),
                    (1, own),
                    "{head}{body}: {said}"
                );
            }
        }
    }
}

/// The same behind a request without a body, of which the gateway keeps the bytes that came with its header.
#[tokio::test]
async fn bytes_after_an_empty_body_are_never_next_request() {
    let scene = Scene::tuned(BRIEF).await;
    for length in ["", "Content-Length: 0\r\n"] {
        for count in [1, 200] {
            let head = format!(
                "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{length}\r\n"
            );
            let said = said(&scene.gateway, &format!("{head}{}", SMUGGLED.repeat(count))).await;
            assert_eq!((said.get(9..12), answers(&said)), (Some("400"), 1), "{count}: {said}");
        }
    }
}

/// Pingora CVE-2026-2833 (RUSTSEC-2026-0033): bytes after an `Upgrade` went on before the agent had
/// agreed to it. Here nothing is ever upgraded, and no agent hears of the wish or of these bytes.
#[tokio::test]
async fn nothing_after_upgrade_is_forwarded() {
    let scene = Scene::tuned(BRIEF).await;
    scene.agent.on_send(|_| Reply::events([v1::message("la")]));
    let evil = "POST /evil HTTP/1.1\r\nHost: agent\r\nContent-Length: 0\r\n\r\n";
    let body = call();
    let length = body.len();
    for protocol in ["websocket", "h2c", "TLS/1.0", "anything"] {
        let wish = format!(
            "Host: localhost\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: {protocol}\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\nSec-WebSocket-Version: \
             13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
        );
        for request in [
            format!("GET /mcp HTTP/1.1\r\n{wish}\r\n{evil}"),
            format!("GET /healthz HTTP/1.1\r\n{wish}\r\n{evil}"),
            format!(
                "POST /mcp HTTP/1.1\r\n{wish}Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}{evil}"
            ),
        ] {
            let said = said(&scene.gateway, &request).await;
            assert!(said.starts_with("HTTP/1.1 ") && !said.contains(" 101 "), "{request}: {said}");
        }
    }
    let sent = scene.agent.requests();
    assert_eq!(sent.iter().filter(|request| request.method == "POST").count(), 4, "one for each call");
    for request in sent {
        assert!(!request.path.contains("evil"), "{request:?}");
        for name in ["upgrade", "http2-settings", "sec-websocket-key"] {
            assert_eq!(request.header(name), None, "{request:?}");
        }
    }
}

/// Pingora CVE-2026-2835 (RUSTSEC-2026-0034): HTTP/1.0 with `Transfer-Encoding`, several of them,
/// or one beside a length: two readers saw two ends of the body. Here an ambiguous body is refused,
/// and the bytes after it are not read at all.
#[tokio::test]
async fn body_has_one_end_or_is_refused() {
    let scene = Scene::tuned(BRIEF).await;
    scene.agent.on_send(|_| Reply::events([v1::message("la")]));
    let body = call();
    let chunked = format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
    let (length, longer) = (body.len(), body.len() + SMUGGLED.len());
    let te = "Transfer-Encoding: chunked\r\n";
    let mut served = 0;
    for (expected, version, framing, body) in [
        // With a length of exactly its own it is served, and so is what follows.
        ("200", "1.1", format!("Content-Length: {length}\r\n"), &body),
        ("200", "1.1", te.to_owned(), &chunked),
        ("400", "1.0", te.to_owned(), &chunked),
        ("400", "1.0", format!("{te}Content-Length: 5\r\n"), &chunked),
        ("400", "1.0", "Transfer-Encoding: identity\r\n".to_owned(), &body),
        // The chunks count, and the connection ends (RFC 9112, sections 6.1 and 6.3).
        ("200", "1.1", format!("{te}Content-Length: 5\r\n"), &chunked),
        ("200", "1.1", format!("Content-Length: 5\r\n{te}"), &chunked),
        ("400", "1.1", format!("Content-Length: {length}\r\n{te}"), &body),
        ("200", "1.1", format!("{te}{te}"), &chunked),
        ("200", "1.1", "Transfer-Encoding: chunked, chunked\r\n".to_owned(), &chunked),
        ("400", "1.1", format!("{te}Transfer-Encoding: identity\r\n"), &chunked),
        ("400", "1.1", "Transfer-Encoding: chunked, identity\r\n".to_owned(), &chunked),
        ("400", "1.1", "Transfer-Encoding: identity\r\n".to_owned(), &body),
        ("400", "1.1", "Transfer-Encoding: xchunked\r\n".to_owned(), &chunked),
        ("400", "1.1", "Transfer-Encoding: \"chunked\"\r\n".to_owned(), &chunked),
        ("400", "1.1", "Transfer-Encoding : chunked\r\n".to_owned(), &chunked),
        ("400", "1.1", "Transfer-Encoding:\r\n chunked\r\n".to_owned(), &chunked),
        ("400", "1.1", format!("Content-Length: {length}\r\nContent-Length: {longer}\r\n"), &body),
        ("400", "1.1", format!("Content-Length: {length}, {longer}\r\n"), &body),
        ("400", "1.1", format!("Content-Length: +{length}\r\n"), &body),
        ("400", "1.1", "Content-Length: 0x10\r\n".to_owned(), &body),
        ("400", "1.1", format!("Content-Length : {length}\r\n"), &body),
    ] {
        let head = format!(
            "POST /mcp HTTP/{version}\r\nHost: localhost\r\nContent-Type: application/json\r\n{framing}\r\n"
        );
        let is_plain = served < 2;
        let at_once = said(&scene.gateway, &format!("{head}{body}{SMUGGLED}")).await;
        let many = said(&scene.gateway, &format!("{head}{body}{}", SMUGGLED.repeat(200))).await;
        let later = said_late(&scene.gateway, &format!("{head}{body}"), SMUGGLED).await;
        for said in [&at_once, &later] {
            assert_eq!(said.get(9..12), Some(expected), "{head}: {said}");
        }
        // Bytes that come while a call is served are taken for the end of the client.
        let is_left = expected == "200" && many.is_empty();
        assert!(is_left || many.get(9..12) == Some(expected), "{head}: {many}");
        assert!(!at_once.contains(ANSWERED) && !many.contains(ANSWERED), "{head}: {at_once}{many}");
        assert_eq!(later.contains(ANSWERED), is_plain, "{head}: {later}");
        served += usize::from(expected == "200");
    }
    let calls = scene.agent.calls("SendStreamingMessage").len();
    assert_eq!(calls, 3 * served, "each call that was served, and none that was smuggled");
}

/// Python SDK CVE-2025-53365 and CVE-2025-53366: a client that left, or a message that was none,
/// brought the server down. Here a request is broken off after each of its bytes, in the two ways
/// in which a connection can end.
#[tokio::test]
async fn broken_off_request_harms_no_other() {
    let scene = Scene::new().await;
    scene.agent.on_send(|_| Reply::events([v1::message("la")]));
    let body = call();
    let length = body.len();
    let request = format!(
        "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    for end in 0..=request.len() {
        for is_reset in [false, true] {
            let mut socket = TcpStream::connect(scene.gateway.address()).await.unwrap();
            socket.write_all(&request.as_bytes()[..end]).await.unwrap();
            if is_reset {
                socket.set_zero_linger().unwrap();
            }
        }
        if end % 50 == 0 {
            assert_eq!(scene.said("x").await["content"][0]["text"], "la", "after {end} bytes");
        }
    }
    // And a body that ends where it must not, to a client that is still there.
    for end in 0..length {
        let cut = body.get(..end).unwrap();
        let request = format!(
            "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {end}\r\nConnection: \
             close\r\n\r\n{cut}"
        );
        assert!(said(&scene.gateway, &request).await.starts_with("HTTP/1.1 400"), "{cut}");
    }
    assert_eq!(scene.said("x").await["content"][0]["text"], "la");
    assert!(!scene.gateway.output().contains("panicked"), "{}", scene.gateway.output());
}
