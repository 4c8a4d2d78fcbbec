//! Many tasks in the map: the cost of a query for one task among few and among many, in one run.
//!
//! Every task is created as a client creates it: a `tools/call` with `task`, at an agent that gives
//! each its own id. See also `way` for plain calls.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::NamedTempFile;
use tokio::task::JoinSet;

use super::connection::Connection;
use super::mcp::{self, request};
use super::options::Options;
use super::process::{Process, free_port};
use super::way::{calls, write_config};

/// The small number of tasks for comparison.
const FEW: usize = 1000;

/// Cost of queries at one number of tasks.
struct Sample {
    tasks: usize,
    cpu: f64,
    resident: f64,
    p50: Duration,
    p99: Duration,
}

/// A gateway with an agent that gives each call a task of its own.
struct Crowd {
    gateway: Process,
    _agent: Process,
    _config: NamedTempFile,
    session: Arc<str>,
    handles: Vec<String>,
}

/// Measures, and prints a table.
pub(crate) async fn run(most: usize, options: &Options) {
    let mut crowd = Crowd::set_up(options).await;
    println!("{:>10} {:>14} {:>10} {:>10} {:>12}", "tasks", "cpu µs/get", "p50 µs", "p99 µs", "memory MiB");
    let mut samples = Vec::new();
    for size in [FEW.min(most), most] {
        crowd.grow(size, options).await;
        // Twice, and the first result is dropped: the new tasks have to settle.
        crowd.sample(options).await;
        let sample = crowd.sample(options).await;
        let Sample { tasks, cpu, resident, p50, p99 } = &sample;
        println!("{tasks:>10} {cpu:>14.1} {:>10} {:>10} {resident:>12.0}", p50.as_micros(), p99.as_micros());
        samples.push(sample);
    }
    if let [few, many] = samples.as_slice() {
        let p99 = many.p99.div_duration_f64(few.p99);
        println!("many over few: cpu {:.2}x, p99 {p99:.2}x", many.cpu / few.cpu);
    }
}

impl Crowd {
    async fn set_up(options: &Options) -> Self {
        let agent = Process::agent(options);
        let port = free_port();
        let room = "tasks: { max: 10000000, max_bytes: 16GiB }\nlimits: { caller_tasks: 1000000 }\n";
        let config = write_config(&[(port, String::new())], agent.port, options, (room, &["many"]));
        let gateway = Process::gateway(config.path(), port);
        let session = mcp::session_with(port, "many_say").await.into();
        Self { gateway, _agent: agent, _config: config, session, handles: Vec::new() }
    }

    /// Creates tasks until there are so many.
    async fn grow(&mut self, size: usize, options: &Options) {
        let (port, lanes) = (self.gateway.port, options.connections.max(1));
        let wanted = size.saturating_sub(self.handles.len());
        let mut all = JoinSet::new();
        for lane in 0..lanes {
            let session = self.session.clone();
            let count = wanted / lanes + usize::from(lane < wanted % lanes);
            all.spawn(async move {
                let mut connection = Connection::open(port).await;
                let call = json!({"name": "many_say", "arguments": {"text": "x"}, "task": {}});
                let call = mcp::post(mcp::FACE, Some(&session), &request("tools/call", &call));
                let mut handles = Vec::with_capacity(count);
                for _ in 0..count {
                    let answer = body(connection.exchange(&call).await);
                    let handle = answer["result"]["task"]["taskId"].as_str();
                    handles.push(handle.unwrap_or_else(|| panic!("no task in {answer}")).to_owned());
                }
                handles
            });
        }
        self.handles.extend(all.join_all().await.into_iter().flatten());
        self.handles.sort_unstable();
        self.handles.dedup();
        assert_eq!(self.handles.len(), size, "every call has a task of its own");
    }

    /// Queries one task after the other, all over the map.
    async fn sample(&self, options: &Options) -> Sample {
        let (before, until) = (self.gateway.cpu(), Instant::now() + options.period);
        let handles: Arc<[String]> = self.handles.clone().into();
        let mut all = JoinSet::new();
        for lane in 0..options.connections {
            let (port, session, handles) = (self.gateway.port, self.session.clone(), handles.clone());
            all.spawn(async move {
                let mut connection = Connection::open(port).await;
                let (mut times, mut place) = (Vec::new(), lane * 7919);
                while Instant::now() < until {
                    // A prime step: each is far from the one before.
                    place = (place + 104_729) % handles.len();
                    let ask = request("tasks/get", &json!({"taskId": handles[place]}));
                    let ask = mcp::post(mcp::FACE, Some(&session), &ask);
                    let begun = Instant::now();
                    let answer = body(connection.exchange(&ask).await);
                    times.push(begun.elapsed());
                    assert_eq!(answer["result"]["status"], "completed", "{answer}");
                }
                times
            });
        }
        let mut times: Vec<Duration> = all.join_all().await.into_iter().flatten().collect();
        times.sort_unstable();
        Sample {
            tasks: self.handles.len(),
            cpu: (self.gateway.cpu() - before) * 1e6 / calls(times.len()),
            resident: self.gateway.resident(),
            p50: times[times.len() / 2],
            p99: times[times.len() * 99 / 100],
        }
    }
}

fn body(answer: &[u8]) -> Value {
    let text = str::from_utf8(answer).unwrap();
    let (_, body) = text.split_once("\r\n\r\n").unwrap();
    serde_json::from_str(body).unwrap_or_else(|_| panic!("not JSON: {text}"))
}
