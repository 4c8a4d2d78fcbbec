//! The cost of a call where there is more of something: agents, rules, open streams, workers.
//!
//! Gateways that differ in one number take turns in every round, and each ratio to the smallest of them is made within a
//! round. The CPU that open streams use without calls is no part of a call and has a column of its own: it is measured before, for
//! as long as each of them takes to send comments that keep it alive and to ask the agent for the state of its silent task.
//! The calls per second are those beside this work.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use nix::sys::resource::{Resource, getrlimit};
use tempfile::NamedTempFile;

use super::beside::spread;
use super::connection::Connection;
use super::load::Load;
use super::mcp;
use super::options::Options;
use super::plot::{Axes, Line, lines};
use super::process::{Process, free_port};
use super::way::{Way, calls, question, write_config};

/// A number that grows, and its sizes.
#[derive(Clone, Copy)]
enum Growth {
    Agents,
    Rules,
    Streams,
    Workers,
}

impl Growth {
    const ALL: [Self; 4] = [Self::Agents, Self::Rules, Self::Streams, Self::Workers];

    fn name(self) -> &'static str {
        match self {
            Self::Agents => "agents",
            Self::Rules => "rules",
            Self::Streams => "streams",
            Self::Workers => "workers",
        }
    }

    fn sizes(self) -> Vec<usize> {
        match self {
            Self::Agents | Self::Rules => vec![1, 10, 100, 1000],
            Self::Streams => vec![100, 1000, most_streams().min(9000)],
            Self::Workers => vec![1, 2, 4],
        }
    }
}

/// Returns the number of streams for which there are open files: the gateway has two for each, and takes no more clients
/// once three quarters are used.
fn most_streams() -> usize {
    // Files of the gateway besides, and connections of the load.
    const OTHER_FILES: u64 = 500;
    let open_files = getrlimit(Resource::RLIMIT_NOFILE).map_or(u64::MAX, |(_, hard)| hard);
    usize::try_from((open_files / 4 * 3).saturating_sub(OTHER_FILES) / 2).unwrap_or(usize::MAX)
}

/// The time in which a stream does its own work once: two comments and a look at its task, by the defaults.
const STREAM_CYCLE: Duration = Duration::from_secs(30);

/// A gateway of one size.
struct Side {
    size: usize,
    threads: usize,
    /// The part of a CPU that its streams use.
    own_work: f64,
    gateway: Process,
    _streams: Vec<Connection>,
    _config: NamedTempFile,
}

/// Measures each kind of growth, and prints a table.
pub(crate) async fn run(options: &Options) {
    let agent = Process::agent(options);
    println!(
        "{:<8} {:>6} {:>12} {:>36} {:>24} {:>24}",
        "", "number", "CPU µs/call", "over the smallest", "calls/s per worker", "% of a CPU without calls"
    );
    let mut plotted = Vec::new();
    for growth in Growth::ALL.into_iter().filter(|growth| options.wants(growth.name())) {
        let mut sides = Vec::new();
        for size in growth.sizes() {
            sides.push(Side::set_up(growth, size, &agent, options).await);
        }
        if matches!(growth, Growth::Streams) {
            let before: Vec<f64> = sides.iter().map(|side| side.gateway.cpu()).collect();
            tokio::time::sleep(STREAM_CYCLE).await;
            for (side, before) in sides.iter_mut().zip(before) {
                side.own_work = (side.gateway.cpu() - before) / STREAM_CYCLE.as_secs_f64();
            }
        }
        let (mut cpu, mut rate) = (vec![Vec::new(); sides.len()], vec![Vec::new(); sides.len()]);
        for round in 0..options.rounds {
            for place in 0..sides.len() {
                let place = if round.is_multiple_of(2) { place } else { sides.len() - 1 - place };
                let [cost, per_second] = sides[place].sample(round, options).await;
                cpu[place].push(cost);
                rate[place].push(per_second);
            }
        }
        let mut points = Vec::new();
        for (place, side) in sides.iter().enumerate() {
            let over = |figures: &[Vec<f64>]| {
                let mut ratios: Vec<f64> =
                    figures[place].iter().zip(&figures[0]).map(|(one, first)| one / first).collect();
                spread(&mut ratios)
            };
            let [least, median, most] = over(&cpu);
            let [_, calls_per_second, _] = over(&rate);
            let (cost, own_work) = (spread(&mut cpu[place].clone())[1], side.own_work * 100.0);
            println!(
                "{:<8} {:>6} {cost:>12.1} {:>36} {:>24} {own_work:>24.2}",
                growth.name(),
                side.size,
                format!("{median:.3}× ({least:.3}–{most:.3})"),
                format!("{calls_per_second:.3}×"),
            );
            points.push((calls(side.size), median));
        }
        plotted.push(Line { name: growth.name().to_owned(), points });
    }
    if let Some(file) = &options.plot {
        let axes = Axes {
            title: "CPU of a call over the smallest number of agents, rules, streams and workers",
            x: "number of them",
            y: "CPU of a call over that with the smallest number",
            is_y_logarithmic: false,
        };
        lines(file, &axes, &plotted);
    }
}

/// Returns a configuration of so many rules, of which the last one allows the calls.
pub(crate) fn rules(number: usize) -> String {
    let mut text = String::from("rules:\n");
    for number in 1..number {
        writeln!(text, "  - {{ name: r{number}, callers: [\"key:other-{number}\"], tools: [a{number}] }}")
            .unwrap();
    }
    text + "  - { name: last, callers: [anonymous] }\n"
}

impl Side {
    async fn set_up(growth: Growth, size: usize, agent: &Process, options: &Options) -> Self {
        let mut options = options.clone();
        let mut more = String::from(
            "limits: { connections: 20000, address_connections: 0, streams: 20000, caller_streams: 15000, calls: 20000, \
             caller_calls: 20000, caller_tasks: 20000 }\ncalls: { budget: 30m }\ntasks: { max: 1000000 }\n",
        );
        let mut names = vec!["plain".to_owned(), "waiting".to_owned()];
        match growth {
            // Behind the others in the list of tools, which has pages.
            Growth::Agents => names.extend((1..size).map(|number| format!("x/{number}"))),
            Growth::Rules => more.push_str(&rules(size)),
            Growth::Streams => {}
            Growth::Workers => options.threads = size,
        }
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let port = free_port();
        let config = write_config(&[(port, String::new())], agent.port, &options, (&more, &names));
        let gateway = Process::quiet_gateway(config.path(), port);
        let mut streams = Vec::new();
        if matches!(growth, Growth::Streams) {
            let call = mcp::call_in_session(port, "waiting_say", "x", true).await;
            for _ in 0..size {
                let mut connection = Connection::open(port).await;
                connection.exchange_until(&call, b"notifications/progress").await;
                streams.push(connection);
            }
        }
        Self { size, threads: options.threads, own_work: 0.0, gateway, _streams: streams, _config: config }
    }

    /// Returns the CPU of a call in microseconds, and the calls per second of each worker.
    async fn sample(&self, round: usize, options: &Options) -> [f64; 2] {
        let asked = question(Way::Gateway, self.gateway.port, options).await;
        let mut load = Load::open(&asked, options.connections_of(round)).await;
        let (before, begun) = (self.gateway.cpu(), Instant::now());
        let count = calls(load.run(options.period).await.len());
        let (used, took) = (self.gateway.cpu() - before, begun.elapsed().as_secs_f64());
        [(used - self.own_work * took) * 1e6 / count, count / took / self.threads as f64]
    }
}
