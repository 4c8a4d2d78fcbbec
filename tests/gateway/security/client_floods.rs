//! Clients that send a body in crumbs: refused at each way in, before it costs much.
//!
//! Agents that do the same are in `agent_floods`, floods of HTTP/2 in `advisories_http2`.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::kit::a2a_scene::Stage;
use crate::support::in_time;

/// One-byte chunks, then a request that is good.
fn in_crumbs(path: &str) -> Vec<u8> {
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    );
    let mut raw = head.into_bytes();
    for _ in 0..1_000_000 {
        raw.extend_from_slice(b"1\r\n \r\n");
    }
    let body = br#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    raw.extend_from_slice(format!("{:x}\r\n", body.len()).as_bytes());
    raw.extend_from_slice(body);
    raw.extend_from_slice(b"\r\n0\r\n\r\n");
    raw
}

#[tokio::test]
async fn body_in_crumbs_is_refused() {
    let stage = Stage::new().await;
    for path in ["/mcp", "/mcp/bard", "/a2a/bard", "/a2a/bard/message:send", "/a2a/bard/tasks/t:cancel"] {
        let (mut from, mut into) = TcpStream::connect(stage.gateway.address()).await.unwrap().into_split();
        let raw = in_crumbs(path);
        // It fails where the gateway has hung up already.
        let send = tokio::spawn(async move { into.write_all(&raw).await });
        let mut told = Vec::new();
        drop(in_time("a refusal", from.read_to_end(&mut told)).await);
        let told = String::from_utf8_lossy(&told).into_owned();
        assert!(told.starts_with("HTTP/1.1 400 "), "{path}: {told}");
        assert!(told.contains("too many small pieces"), "{path}: {told}");
        send.abort();
    }
    let metrics = stage.gateway.metrics().await;
    assert!(metrics.contains("refused_total{reason=\"malformed\"}"), "{metrics}");
}
