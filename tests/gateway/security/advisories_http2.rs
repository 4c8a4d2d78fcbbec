//! Advisories about HTTP/2: a client that makes work and reads none of it, over the TLS listener,
//! byte by byte.
//!
//! Out of scope: ordinary use of HTTP/2 (see `https`).

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_rustls::client::TlsStream;

use crate::kit::tls_scene::{Connection, health, listen, start};
use crate::support::certs::client_config;
use crate::support::{Authority, TestGateway, in_time};

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const PRIORITY: u8 = 2;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const ENHANCE_YOUR_CALM: u32 = 11;
/// How much more memory the process may hold after an attack, in KiB.
const ROOM: u64 = 20 << 10;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut frame = vec![length[1], length[2], length[3], kind, flags];
    frame.extend_from_slice(&stream.to_be_bytes());
    frame.extend_from_slice(payload);
    frame
}

/// One line of a header block that no table keeps; each part shorter than 127 bytes.
fn line(name: &str, value: &str) -> Vec<u8> {
    let mut line = vec![0];
    for text in [name, value] {
        line.push(u8::try_from(text.len()).unwrap());
        line.extend_from_slice(text.as_bytes());
    }
    line
}

/// The header block of a request for `/healthz`, or of a call.
fn request(method: &str) -> Vec<u8> {
    let path = if method == "GET" { "/healthz" } else { "/mcp" };
    let lines = [
        (":method", method),
        (":scheme", "https"),
        (":path", path),
        (":authority", "localhost"),
        ("content-type", "application/json"),
    ];
    lines.iter().flat_map(|(name, value)| line(name, value)).collect()
}

/// The id of the n-th stream of a client.
fn stream(number: u32) -> u32 {
    number * 2 + 1
}

/// A connection of HTTP/2 with every frame written by the test.
struct Raw {
    stream: TlsStream<tokio::net::TcpStream>,
}

impl Raw {
    async fn to(gateway: &TestGateway, authority: &Authority) -> Self {
        let config = Arc::new(client_config(authority, None, &["h2"]));
        let mut stream = Connection::open(gateway, &config).await.into_stream();
        stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
        stream.write_all(&frame(SETTINGS, 0, 0, &[])).await.unwrap();
        Self { stream }
    }

    /// Sends these, and reads what comes meanwhile; the reason of the farewell if there was one, or
    /// `None` if it has only hung up. Fails if the gateway takes all of it and stays.
    async fn until_cut(self, what: &str, frames: impl Iterator<Item = Vec<u8>>) -> Option<u32> {
        let (mut from, mut into) = tokio::io::split(self.stream);
        let send = async {
            for frame in frames {
                if into.write_all(&frame).await.is_err() {
                    return;
                }
            }
            drop(into.flush().await);
        };
        let read = async {
            let mut seen = Vec::new();
            while from.read_buf(&mut seen).await.is_ok_and(|count| count > 0) {}
            seen
        };
        let cut = async {
            let mut read = std::pin::pin!(read);
            tokio::select! {
                seen = &mut read => seen,
                () = send => read.await,
            }
        };
        farewell(&in_time(&format!("{what}: the gateway to cut it off"), cut).await)
    }

    /// Sends these and reads nothing, until the gateway takes no more because it has hung up.
    async fn until_refused(mut self, frames: impl Iterator<Item = Vec<u8>>) {
        let send = async {
            for frame in frames {
                if self.stream.write_all(&frame).await.is_err() {
                    return;
                }
            }
        };
        in_time("the gateway to hang up", send).await;
    }
}

/// The code of the last `GOAWAY` among these bytes.
fn farewell(mut bytes: &[u8]) -> Option<u32> {
    let mut code = None;
    while bytes.len() >= 9 {
        let length = usize::from(bytes[0]) << 16 | usize::from(bytes[1]) << 8 | usize::from(bytes[2]);
        let Some(payload) = bytes.get(9..9 + length) else { break };
        if bytes[3] == GOAWAY {
            code = payload.get(4..8).map(|code| u32::from_be_bytes(code.try_into().unwrap()));
        }
        bytes = &bytes[9 + length..];
    }
    code
}

fn resident(gateway: &TestGateway) -> u64 {
    gateway.resident_kib()
}

/// The frames of one attack, without end or nearly.
type Attack = fn() -> Box<dyn Iterator<Item = Vec<u8>> + Send>;

const MOST: u32 = 200_000;

/// Opens a stream and takes it back.
fn rapid_reset() -> Box<dyn Iterator<Item = Vec<u8>> + Send> {
    Box::new((0..MOST).map(|number| {
        let mut both = frame(HEADERS, END_HEADERS, stream(number), &request("POST"));
        both.extend(frame(RST_STREAM, 0, stream(number), &8_u32.to_be_bytes()));
        both
    }))
}

/// Opens a stream and makes the server take it back.
fn made_you_reset() -> Box<dyn Iterator<Item = Vec<u8>> + Send> {
    Box::new((0..MOST).map(|number| {
        let mut both = frame(HEADERS, END_HEADERS, stream(number), &request("POST"));
        // More than a window can hold.
        both.extend(frame(WINDOW_UPDATE, 0, stream(number), &(u32::MAX >> 1).to_be_bytes()));
        both
    }))
}

/// A header block that goes on and on.
fn continuations() -> Box<dyn Iterator<Item = Vec<u8>> + Send> {
    let more: Vec<u8> = (0..100).flat_map(|_| line("x-more", &"x".repeat(100))).collect();
    let begin = frame(HEADERS, 0, 1, &request("GET"));
    Box::new(std::iter::once(begin).chain((0..MOST).map(move |_| frame(CONTINUATION, 0, 1, &more))))
}

/// The same with nothing in it.
fn empty_continuations() -> Box<dyn Iterator<Item = Vec<u8>> + Send> {
    let begin = frame(HEADERS, 0, 1, &request("GET"));
    Box::new(std::iter::once(begin).chain((0..MOST).map(|_| frame(CONTINUATION, 0, 1, &[]))))
}

/// A body of nothing.
fn empty_data() -> Box<dyn Iterator<Item = Vec<u8>> + Send> {
    let begin = frame(HEADERS, END_HEADERS, 1, &request("POST"));
    Box::new(std::iter::once(begin).chain((0..MOST).map(|_| frame(DATA, 0, 1, &[]))))
}

/// CVE-2025-8671 MadeYouReset (RUSTSEC-2025-0070), CVE-2023-44487 rapid reset, RUSTSEC-2024-0332
/// (`CONTINUATION` without end), RUSTSEC-2026-0258 (empty `DATA`), and Pingora 0.8.1, which bounded
/// what its HTTP/2 takes: work without a limit. Here such a client is cut off, and the others do
/// not notice.
#[tokio::test]
async fn http2_flood_is_cut_and_unnoticed() {
    let authority = Authority::new("everybody");
    let gateway = start(&authority, &[], "profile: intermediate").await;
    let others = || health(&gateway, client_config(&authority, None, &["h2"]));
    assert_eq!(others().await, 200);
    for (what, attack) in [
        ("rapid reset", rapid_reset as Attack),
        ("made-you-reset", made_you_reset),
        ("continuations", continuations),
        ("empty continuations", empty_continuations),
        ("empty data", empty_data),
    ] {
        let before = resident(&gateway);
        let raw = Raw::to(&gateway, &authority).await;
        let cut = tokio::spawn(raw.until_cut(what, attack()));
        for _ in 0..5 {
            assert_eq!(in_time("another client's answer", others()).await, 200, "{what}");
        }
        let code = cut.await.unwrap();
        assert!(code.is_none_or(|code| code == ENHANCE_YOUR_CALM), "{what}: {code:?}");
        let more = resident(&gateway).saturating_sub(before);
        assert!(more < ROOM, "{what}: {more} KiB more");
        assert_eq!(others().await, 200, "{what}");
    }
    assert!(!gateway.output().contains("panicked"), "{}", gateway.output());
}

/// So many of these in one piece, without end.
fn endless(frame: Vec<u8>) -> Box<dyn Iterator<Item = Vec<u8>> + Send> {
    Box::new(std::iter::repeat(frame.repeat(256)))
}

/// CVE-2019-9512 and -9515 (floods of `PING` and `SETTINGS`), -9511 and -9513 (windows and
/// priorities): none of these frames is counted by h2 or Pingora. Their cost stays within bounds
/// all the same, whether their client reads the answers or not: memory, delay for others, and
/// duration.
#[tokio::test]
async fn uncounted_flood_costs_no_memory() {
    let authority = Authority::new("everybody");
    let settings = "limits: { keep_alive: 3s }\n";
    let gateway = TestGateway::start(|ports| listen(&authority, &[], "", ports) + settings).await;
    let others = || health(&gateway, client_config(&authority, None, &["h2"]));
    assert_eq!(others().await, 200);
    for (what, flood) in [
        ("ping", frame(PING, 0, 0, &[7; 8])),
        ("settings", frame(SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 100])),
        ("priority", frame(PRIORITY, 0, 1, &[0, 0, 0, 0, 9])),
        ("unknown", frame(0x42, 0, 0, &[7; 8])),
    ] {
        for reads in [true, false] {
            let before = resident(&gateway);
            let raw = Raw::to(&gateway, &authority).await;
            let frames = endless(flood.clone());
            let cut = tokio::spawn(async move {
                if reads {
                    raw.until_cut(what, frames).await;
                } else {
                    raw.until_refused(frames).await;
                }
            });
            let (mut answers, mut slowest) = (0, Duration::ZERO);
            while !cut.is_finished() {
                let asked = Instant::now();
                assert_eq!(in_time("another client's answer", others()).await, 200, "{what}");
                (answers, slowest) = (answers + 1, slowest.max(asked.elapsed()));
                let more = resident(&gateway).saturating_sub(before);
                assert!(more < ROOM, "{what}, reads {reads}: {more} KiB more");
            }
            in_time("the end of the flood", cut).await.unwrap();
            println!("{what}, reads {reads}: {answers} answers to others, the slowest after {slowest:?}");
            assert!(answers > 3, "{what}, reads {reads}: others were answered {answers} times");
        }
    }
    assert!(!gateway.output().contains("panicked"), "{}", gateway.output());
}

/// The same frames from a client that behaves are answered: the client above is cut off for its
/// behaviour.
#[tokio::test]
async fn few_of_these_frames_are_answered() {
    let authority = Authority::new("everybody");
    let gateway = start(&authority, &[], "profile: intermediate").await;
    let mut raw = Raw::to(&gateway, &authority).await;
    let asked = request("GET");
    let (head, tail) = asked.split_at(10);
    for bytes in [
        frame(PING, 0, 0, &[7; 8]),
        frame(HEADERS, END_HEADERS, 1, &request("POST")),
        frame(RST_STREAM, 0, 1, &8_u32.to_be_bytes()),
        frame(HEADERS, END_STREAM, 3, head),
        frame(CONTINUATION, 0, 3, &[]),
        frame(CONTINUATION, END_HEADERS, 3, tail),
    ] {
        raw.stream.write_all(&bytes).await.unwrap();
    }
    let mut seen = Vec::new();
    in_time("an answer", async {
        while !String::from_utf8_lossy(&seen).contains("activeSse") {
            assert_ne!(raw.stream.read_buf(&mut seen).await.unwrap(), 0, "closed");
        }
    })
    .await;
    assert_eq!(farewell(&seen), None);
}

/// RUSTSEC-2024-0332 and Pingora 0.8.1: headers without a bound. A list that is too long is
/// refused, and its connection goes on.
#[tokio::test]
async fn too_many_headers_are_refused() {
    let authority = Authority::new("everybody");
    let gateway = start(&authority, &[], "profile: intermediate").await;
    let before = resident(&gateway);
    for _ in 0..20 {
        let mut raw = Raw::to(&gateway, &authority).await;
        let more: Vec<u8> = (0..100).flat_map(|_| line("x-more", &"x".repeat(100))).collect();
        let mut bytes = frame(HEADERS, END_STREAM, 1, &request("GET"));
        for _ in 0..4 {
            bytes.extend(frame(CONTINUATION, 0, 1, &more));
        }
        bytes.extend(frame(CONTINUATION, END_HEADERS, 1, &[]));
        raw.stream.write_all(&bytes).await.unwrap();
        raw.stream.write_all(&frame(PING, 0, 0, &[7; 8])).await.unwrap();
        let mut seen = Vec::new();
        in_time("a refusal", async {
            while !seen.windows(8).any(|window| window == [7; 8]) && farewell(&seen).is_none() {
                if raw.stream.read_buf(&mut seen).await.is_ok_and(|count| count > 0) {
                    continue;
                }
                break;
            }
        })
        .await;
        assert!(!String::from_utf8_lossy(&seen).contains("activeSse"), "it is not served");
    }
    assert!(resident(&gateway).saturating_sub(before) < ROOM);
    assert_eq!(health(&gateway, client_config(&authority, None, &["h2"])).await, 200);
}
