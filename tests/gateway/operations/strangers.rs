//! The log under clients that send anything: no line of level error or warn (see "The log" in
//! `CONTRIBUTING.md`).

use std::io::ErrorKind;
use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::support::certs::Authority;
use crate::support::payload::v1;
use crate::support::{Card, Reply, ScriptedAgent, TestGateway, in_time};

/// The most connections that one address may have here.
const ADDRESS_CONNECTIONS: usize = 24;

/// The interval at which connections are looked at.
const POLL: Duration = Duration::from_millis(5);

fn is_open(stream: &TcpStream) -> bool {
    stream.try_read(&mut [0]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
}

/// Waits until the gateway has noticed the end of all connections to its first listener.
async fn wait_until_none_is_open(gateway: &TestGateway) {
    let none_open = format!("connections{{listener=\"{}\"}} 0", gateway.address());
    let noticed = async {
        while !gateway.metrics().await.contains(&none_open) {
            tokio::time::sleep(POLL).await;
        }
    };
    in_time("the gateway to notice that all are closed", noticed).await;
}

/// Sends bytes to a port, reads the answer to its end, and leaves.
async fn throw(port: u16, bytes: &[u8]) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    // Either may fail: the gateway may have closed.
    drop(stream.write_all(bytes).await);
    drop(stream.shutdown().await);
    let mut answer = Vec::new();
    drop(in_time("the gateway to close", stream.read_to_end(&mut answer)).await);
}

#[tokio::test]
async fn strangers_cause_no_warning() {
    let agent = ScriptedAgent::start(Card::v1().skill("sing")).await;
    agent.on_send(|_| Reply::events([v1::message("la")]));
    let card = agent.card_url();
    let authority = Authority::new("clients");
    let gateway = TestGateway::start(|ports| {
        let (certificate, key) = authority.server().write(&ports.directory, "server");
        let ca = ports.directory.join("ca.pem");
        std::fs::write(&ca, authority.pem()).unwrap();
        format!(
            "{}  # second\nlimits: {{ header_read: 1s, body_read: 1s, address_connections: {ADDRESS_CONNECTIONS} }}\nseal_key: {}\nagents: {{ bard: {{ card: \"{card}\" }} }}\n",
            ports.listeners().replacen(
                "admin:",
                &format!(
                    "  - address: 127.0.0.1:{}\n    serve: [mcp, a2a]\n    tls: {{ certificate: {}, key: {}, client_auth: {{ ca: {}, mode: required }} }}\nadmin:",
                    ports.other,
                    certificate.display(),
                    key.display(),
                    ca.display()
                ),
                1
            ),
            "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
        )
    })
    .await;
    let before = gateway.output().len();
    for port in [gateway.ports().main, gateway.ports().other, gateway.ports().admin] {
        for bytes in &malformed_requests() {
            throw(port, bytes).await;
        }
    }
    // More connections than one address may have, and connections that vanish in the middle of a call.
    wait_until_none_is_open(&gateway).await;
    let many: Vec<TcpStream> = futures_of((0..40).map(|_| TcpStream::connect(gateway.address()))).await;
    // All are accepted or closed before they vanish, and the calls after them find room.
    let accepted = async {
        while many.iter().filter(|stream| is_open(stream)).count() > ADDRESS_CONNECTIONS {
            tokio::time::sleep(POLL).await;
        }
    };
    in_time("those beyond to be closed", accepted).await;
    drop(many);
    wait_until_none_is_open(&gateway).await;
    agent.on_send(|_| Reply::stream().stall());
    let client = gateway.client();
    for name in ["bard_sing", "no_such_tool"] {
        let params = json!({ "name": name, "arguments": { "text": "x" }, "_meta": { "progressToken": 1 } });
        let call = client.modern("tools/call", params);
        drop(tokio::time::timeout(Duration::from_millis(300), call).await);
    }
    let state = json!({ "name": "bard_sing", "arguments": { "text": "x" }, "requestState": "junk", "inputResponses": {} });
    drop(client.modern("tools/call", state).await.finish().await);
    // A request after all that is served, and its line is the last one.
    gateway.client().at("/nowhere").get(&[]).await.text().await;
    gateway.wait_for_output("no_such_path").await;
    let output = gateway.output();
    let written = output.get(before..).unwrap_or_default();
    let loud: Vec<&str> =
        written.lines().filter(|line| line.contains(" WARN ") || line.contains(" ERROR ")).collect();
    assert!(loud.is_empty(), "{loud:#?}");
    assert!(written.contains("INFO"), "the log is written: {output}");
}

async fn futures_of<F: Future<Output = std::io::Result<TcpStream>>>(
    all: impl Iterator<Item = F>,
) -> Vec<TcpStream> {
    let mut streams = Vec::new();
    for one in all {
        streams.extend(one.await);
    }
    streams
}

/// Bytes that are no request: junk, halves of handshakes, and requests that HTTP forbids.
fn malformed_requests() -> Vec<Vec<u8>> {
    let preface: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    let junk: Vec<u8> = (0..4096_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    // A TLS record that announces a ClientHello, and ends within it.
    let hello: &[u8] = &[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3, 1, 2, 3];
    let settings: &[u8] = &[0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 5, 0xff, 0xff, 0xff, 0xff];
    let reset: &[u8] = &[0, 0, 4, 3, 0, 0, 0, 0, 9, 0, 0, 0, 8];
    let mut requests: Vec<Vec<u8>> = vec![
        Vec::new(),
        junk.clone(),
        hello.to_vec(),
        preface.to_vec(),
        [preface, &junk].concat(),
        [preface, settings].concat(),
        [preface, &[0, 0, 0, 4, 0, 0, 0, 0, 0], reset].concat(),
        b"GET / HTTP/9.9\r\n\r\n".to_vec(),
        b"\0\0\0\0\r\n\r\n".to_vec(),
        b"GET /../../etc/passwd HTTP/1.1\r\nHost: evil\r\n\r\n".to_vec(),
        b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: -1\r\n\r\n".to_vec(),
        b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 10\r\n\r\nhalf".to_vec(),
        b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n".to_vec(),
        b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{]".to_vec(),
        b"CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n".to_vec(),
    ];
    requests.push([b"GET /mcp HTTP/1.1\r\nX: ".to_vec(), vec![b'x'; 200_000]].concat());
    requests
}
