//! The number of instructions of one call in the gateway, counted by callgrind.
//!
//! Unlike time, the count hardly depends on the machine or on what else runs there, so that it can be compared with a stored
//! figure (see `benches/instructions`). Calls go one after the other over one connection: a count under load would depend on
//! how many of them a thread finds at once. `gateway-http2` is the call of `gateway` by a client that speaks HTTP/2,
//! `gateway-telemetry` the call with an access log and with spans of one request of 100, `gateway-rules` the call with 1,000
//! rules of which the last one allows it.

use std::path::Path;
use std::process::Command;
use std::{fs, iter};

use tempfile::TempDir;
use tokio::net::TcpListener;

use super::flat::rules;
use super::load::Load;
use super::options::Options;
use super::process::{Process, free_port};
use super::telemetry::collect;
use super::way::{Way, question, write_config};

/// Number of calls that are counted at once.
const CALLS: usize = 200;
/// Number of streams that are counted at once: each has pauses (see [`Options::event_pause`]).
const STREAMS: usize = 100;
/// Number of counts for one figure, which is the least of them: work in the background, such as that for a new agent card, is no
/// part of a call.
const COUNTS: usize = 3;

const WAYS: [Way; 7] = [
    Way::Ping,
    Way::Gateway,
    Way::Face,
    Way::GatewayStream,
    Way::FaceStream,
    Way::GatewayGrpc,
    Way::FaceGrpc,
];

/// Ways by a client that speaks HTTP/2.
const HTTP2_WAYS: [(&str, Way); 2] =
    [("gateway-http2", Way::Gateway), ("gateway-stream-http2", Way::GatewayStream)];

/// Counts each way through the gateway and prints one JSON object: instructions per call, by the name of the way.
pub(crate) async fn run(options: &Options) {
    let agent = Process::agent(options);
    let collector = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let traces =
        format!("tracing: {{ endpoint: \"http://{}\", ratio: 0.01 }}\n", collector.local_addr().unwrap());
    tokio::spawn(collect(collector));
    let mut figures = Vec::new();
    let ways: Vec<Way> = WAYS.into_iter().filter(|way| options.wants(way.name())).collect();
    count(&agent, "", options, &ways, |way, count| figures.push(format!(r#""{}": {count}"#, way.name())))
        .await;
    for (name, way) in HTTP2_WAYS.into_iter().filter(|(name, _)| options.wants(name)) {
        let http2 = Options { is_http2: true, ..options.clone() };
        count(&agent, "", &http2, &[way], |_, count| figures.push(format!(r#""{name}": {count}"#))).await;
    }
    if options.wants("gateway-telemetry") {
        let logging = Options { log: "info".to_owned(), ..options.clone() };
        let mut note = |_, count| figures.push(format!(r#""gateway-telemetry": {count}"#));
        count(&agent, &traces, &logging, &[Way::Gateway], &mut note).await;
    }
    if options.wants("gateway-rules") {
        let mut note = |_, count| figures.push(format!(r#""gateway-rules": {count}"#));
        count(&agent, &rules(1000), options, &[Way::Gateway], &mut note).await;
    }
    println!("{{{}}}", figures.join(", "));
}

/// Counts these ways in a gateway with more settings.
async fn count(agent: &Process, more: &str, options: &Options, ways: &[Way], mut note: impl FnMut(Way, u64)) {
    let port = free_port();
    let config =
        write_config(&[(port, String::new())], agent.port, options, (more, &["plain", "flowing", "remote"]));
    let profiles = TempDir::new().unwrap();
    let gateway = Process::counted(config.path(), port, &profiles.path().join("profile"));
    for way in ways {
        let asked = question(*way, port, options).await;
        let mut load = Load::open(&asked, 1).await;
        let calls = if matches!(way, Way::GatewayStream | Way::FaceStream) { STREAMS } else { CALLS };
        // The profile so far is of the start and of the calls that warm up.
        write_profile(&gateway);
        let mut least = u64::MAX;
        for _ in 0..COUNTS {
            load.run_calls(calls).await;
            write_profile(&gateway);
            least = least.min(newest_total(profiles.path()) / calls as u64);
        }
        note(*way, least);
    }
}

/// Has callgrind write what it has counted since the last time.
fn write_profile(gateway: &Process) {
    let done =
        Command::new("callgrind_control").arg("--dump").arg(gateway.id().to_string()).output().unwrap();
    assert!(done.status.success(), "callgrind_control: {}", String::from_utf8_lossy(&done.stderr));
}

/// The instructions of the profile that was written last.
fn newest_total(folder: &Path) -> u64 {
    let newest = (1..)
        .map(|number| folder.join(format!("profile.{number}")))
        .take_while(|path| path.exists())
        .last()
        .expect("a profile");
    // With a file for each thread there would be several; without, one has the total of all.
    let text = fs::read_to_string(newest).unwrap();
    let total =
        text.lines().find_map(|line| line.strip_prefix("summary: ").or(line.strip_prefix("totals: ")));
    iter::once(total.expect("a total")).map(|total| total.trim().parse::<u64>().unwrap()).sum()
}
