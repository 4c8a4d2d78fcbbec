//! The time that each event of a stream takes from the agent to the client, at some thousand events per second.
//!
//! The agent writes the time into each event; agent and client have the same clock. A few connections ask for one stream after the
//! other, through each way in turn, so that nothing is saturated: what a way adds is the difference to the agent itself, of the same
//! quantile in the same round.

use std::time::{Duration, Instant};

use memchr::memmem;
use tokio::task::JoinSet;

use super::agent::{STAMP_DIGITS, STAMP_MARK, now};
use super::connection::Connection;
use super::options::Options;
use super::process::{Process, free_port};
use super::report::median;
use super::way::write_config;
use super::{keys, mcp};

/// Number of connections: each has some 385 events per second, as the agent's timer has a resolution of a millisecond.
const CONNECTIONS: usize = 13;
/// The path of the agent, and its name at the gateway.
const PATH: &str = "/stamped";
const TOOL: &str = "stamped_say";
/// The quantiles of the table.
const QUANTILES: [(&str, usize); 3] = [("p50", 500), ("p99", 990), ("p99.9", 999)];

/// One way: its name, and the request at a port.
struct DelayWay {
    name: &'static str,
    port: u16,
    request: Vec<u8>,
}

/// Measures each way in each round, and prints the medians.
pub(crate) async fn run(options: &Options) {
    let folder = tempfile::tempdir().unwrap();
    drop(keys::Keys::write(folder.path()));
    let agent = Process::agent(options);
    let (to, threads) = (agent.port.to_string(), options.threads.to_string());
    let pass =
        Process::role("pass", &[&*to, &*threads, "plain", "h1", &*folder.path().display().to_string()]);
    let port = free_port();
    let config = write_config(&[(port, String::new())], agent.port, options, ("", &["stamped"]));
    let gateway = Process::gateway(config.path(), port);
    let text = mcp::text(options.text_bytes);
    let ways = [
        DelayWay { name: "direct", port: agent.port, request: mcp::message(PATH, &text, true) },
        DelayWay { name: "pass-stream", port: pass.port, request: mcp::message(PATH, &text, true) },
        DelayWay {
            name: "face-stream",
            port: gateway.port,
            request: mcp::message_past(port, PATH, TOOL, (&text, true)).await,
        },
        DelayWay {
            name: "gateway-stream",
            port: gateway.port,
            request: mcp::call_in_session(port, TOOL, &text, true).await,
        },
    ];
    let mut rounds = Vec::with_capacity(options.rounds);
    for _ in 0..options.rounds {
        let mut round = Vec::with_capacity(ways.len());
        for way in &ways {
            round.push(delays(way, options.period).await);
        }
        rounds.push(round);
    }
    print(&ways, &rounds, options.period);
}

/// Returns the delays of all events of a period, in microseconds and sorted.
async fn delays(way: &DelayWay, period: Duration) -> Vec<f64> {
    let until = Instant::now() + period;
    let mut all = JoinSet::new();
    for _ in 0..CONNECTIONS {
        let (mut connection, request) = (Connection::open(way.port).await, way.request.clone());
        all.spawn(async move {
            let mut delays = Vec::with_capacity(4096);
            while Instant::now() < until {
                let mut scanned = 0;
                connection.watch(&request, |read| scanned = scan(read, scanned, &mut delays)).await;
            }
            delays
        });
    }
    let mut delays: Vec<f64> = all.join_all().await.concat();
    assert!(!delays.is_empty(), "{}: no event has a time", way.name);
    delays.sort_by(f64::total_cmp);
    delays
}

/// Adds the delays of the events that came since, and returns the place after the last one.
fn scan(read: &[u8], mut scanned: usize, delays: &mut Vec<f64>) -> usize {
    let now = now();
    while let Some(at) = memmem::find(&read[scanned..], STAMP_MARK.as_bytes()) {
        let begin = scanned + at + STAMP_MARK.len();
        let Some(digits) = read.get(begin..begin + STAMP_DIGITS) else { break };
        let sent: u64 = str::from_utf8(digits).unwrap().parse().unwrap();
        delays.push(Duration::from_nanos(now.saturating_sub(sent)).as_secs_f64() * 1e6);
        scanned = begin + STAMP_DIGITS;
    }
    scanned
}

fn quantile(sorted: &[f64], thousandths: usize) -> f64 {
    sorted[(sorted.len() * thousandths / 1000).min(sorted.len() - 1)]
}

/// Prints the medians of each quantile, and of what it is above that of the first way in the same round.
fn print(ways: &[DelayWay], rounds: &[Vec<Vec<f64>>], period: Duration) {
    println!("{} rounds of {period:?}, {CONNECTIONS} connections; medians", rounds.len());
    println!("{:<16}{:>10}   delay and delay added to the agent's own, µs", "", "events/s");
    for (place, way) in ways.iter().enumerate() {
        let count: usize = rounds.iter().map(|round| round[place].len()).sum();
        let all = period.as_secs_f64() * super::way::calls(rounds.len());
        print!("{:<16}{:>10.0}", way.name, super::way::calls(count) / all);
        for (name, thousandths) in QUANTILES {
            let of = |round: &Vec<Vec<f64>>, place: usize| quantile(&round[place], thousandths);
            let delay = median(rounds.iter().map(|round| of(round, place)).collect()).unwrap();
            let added: Vec<f64> = rounds.iter().map(|round| of(round, place) - of(round, 0)).collect();
            let most = added.iter().copied().fold(f64::MIN, f64::max);
            print!("   {name} {delay:.0} +{:.0} (most +{most:.0})", median(added).unwrap());
        }
        println!();
    }
}
