//! The effect of abusive callers on good ones: the time of good calls without and with each kind of
//! abuse, in turns, in one run.
//!
//! Good callers make one call each so many times in a second, whether or not others abuse the
//! gateway; abusers send as much as they can. See also `tests/gateway/security/advisories_http2`
//! for floods of HTTP/2.

use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;
use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::connection::Connection;
use super::mcp::{FACE, post, request};
use super::options::Options;
use super::process::{Process, free_port};
use super::way::write_config;

/// Good callers, and the time that each waits between two calls.
const GOOD: usize = 8;
const PACE: Duration = Duration::from_millis(20);
/// Connections of abusers.
const BAD: usize = 8;
const SLOW: usize = 200;

/// Kind of abuse.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Abuse {
    Nothing,
    BadKeys,
    TooOften,
    NoJson,
    SlowBodies,
}

impl Abuse {
    const ALL: [Self; 5] = [Self::Nothing, Self::BadKeys, Self::TooOften, Self::NoJson, Self::SlowBodies];

    fn name(self) -> &'static str {
        match self {
            Self::Nothing => "nobody",
            Self::BadKeys => "bad keys",
            Self::TooOften => "more than its rate",
            Self::NoJson => "bodies that are no JSON",
            Self::SlowBodies => "slow bodies",
        }
    }

    /// Returns the request that is sent again and again, each time on a new connection if the last
    /// one was closed.
    fn request(self) -> Vec<u8> {
        let call = json!({"name": "plain_say", "arguments": {"text": "x"}});
        let call = |key: &str| shown(&post(FACE, None, &request("tools/call", &call)), key);
        match self {
            Self::Nothing => Vec::new(),
            Self::BadKeys => call("nobody"),
            Self::TooOften => call("greedy"),
            // A text that nothing closes.
            Self::NoJson => {
                let mut request = shown(&post(FACE, None, &json!("[".repeat(32 << 10))), "greedy");
                request.pop();
                request.push(b'[');
                request
            }
            Self::SlowBodies => {
                format!("POST {FACE} HTTP/1.1\r\nhost: 127.0.0.1\r\nx-api-key: {}\r\ncontent-type: application/json\r\ncontent-length: 99999\r\n\r\n", key("greedy")).into()
            }
        }
    }
}

/// Measures, and prints a table.
pub(crate) async fn run(options: &Options) {
    let agent = Process::agent(options);
    let port = free_port();
    let mut more = "limits: { caller_rate: 200 }\nauth:\n  api_keys:\n    keys:\n".to_owned();
    let names = (0..GOOD).map(|number| format!("good-{number}")).chain(["greedy".to_owned()]);
    for name in names {
        let hash = Sha256::digest(key(&name)).iter().fold(String::new(), |mut text, byte| {
            write!(text, "{byte:02x}").unwrap();
            text
        });
        writeln!(more, "      {name}: \"sha256:{hash}\"").unwrap();
    }
    let config = write_config(&[(port, String::new())], agent.port, options, (&more, &["plain"]));
    let gateway = Process::gateway(config.path(), port);
    until_ready(port).await;
    let mut times = Abuse::ALL.map(|abuse| (abuse, Vec::new()));
    for _ in 0..options.rounds {
        for (abuse, times) in &mut times {
            times.extend(sample(*abuse, port, options.period).await);
        }
    }
    println!("{:<26} {:>8} {:>10} {:>10} {:>10}", "beside", "calls", "p50 µs", "p99 µs", "p99 over");
    let mut alone = None;
    for (abuse, times) in &mut times {
        times.sort_unstable();
        let (p50, p99) = (times[times.len() / 2], times[times.len() * 99 / 100]);
        let over = p99.div_duration_f64(*alone.get_or_insert(p99));
        let (name, calls) = (abuse.name(), times.len());
        println!("{name:<26} {calls:>8} {:>10} {:>10} {over:>9.2}x", p50.as_micros(), p99.as_micros());
    }
    println!("memory of the gateway after it: {:.0} MiB", gateway.resident());
}

/// Returns the key of a caller.
fn key(name: &str) -> String {
    format!("key-of-{name}-{}", "0123456789abcdef".repeat(2))
}

/// Returns a request with the key of this caller.
fn shown(request: &[u8], name: &str) -> Vec<u8> {
    let text = str::from_utf8(request).unwrap();
    text.replacen("\r\n", &format!("\r\nx-api-key: {}\r\n", key(name)), 1).into_bytes()
}

async fn until_ready(port: u16) {
    let list = shown(&post(FACE, None, &request("tools/list", &json!({}))), "good-0");
    let mut connection = Connection::open(port).await;
    while !String::from_utf8_lossy(connection.exchange(&list).await).contains("\"plain_say\"") {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Measures good calls during this abuse.
async fn sample(abuse: Abuse, port: u16, period: Duration) -> Vec<Duration> {
    let mut bad = JoinSet::new();
    let request: Arc<[u8]> = abuse.request().into();
    let count = match abuse {
        Abuse::Nothing => 0,
        Abuse::SlowBodies => SLOW,
        Abuse::BadKeys | Abuse::TooOften | Abuse::NoJson => BAD,
    };
    for _ in 0..count {
        bad.spawn(misbehave(port, request.clone(), abuse == Abuse::SlowBodies));
    }
    let mut good = JoinSet::new();
    for number in 0..GOOD {
        good.spawn(call(port, number, Instant::now() + period));
    }
    good.join_all().await.into_iter().flatten().collect()
}

async fn call(port: u16, number: usize, until: Instant) -> Vec<Duration> {
    let call = json!({"name": "plain_say", "arguments": {"text": "x"}});
    let call = shown(&post(FACE, None, &request("tools/call", &call)), &format!("good-{number}"));
    let mut connection = Connection::open(port).await;
    let mut pace = tokio::time::interval(PACE);
    let mut times = Vec::new();
    while Instant::now() < until {
        pace.tick().await;
        let begun = Instant::now();
        let answer = connection.exchange(&call).await;
        times.push(begun.elapsed());
        assert!(
            memchr::memmem::find(answer, b"\"isError\":false").is_some(),
            "{}",
            String::from_utf8_lossy(answer)
        );
    }
    times
}

/// Abuses the gateway until it is dropped. Results do not matter.
async fn misbehave(port: u16, request: Arc<[u8]>, slowly: bool) {
    let mut answer = vec![0; 16 << 10];
    loop {
        let Ok(mut socket) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await else { continue };
        while socket.write_all(&request).await.is_ok() {
            while slowly && socket.write_all(b" ").await.is_ok() {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            if !matches!(socket.read(&mut answer).await, Ok(count) if count > 0) {
                break;
            }
        }
    }
}
