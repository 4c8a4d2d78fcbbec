//! The options of the command line, and the role of this process.

use std::env;
use std::time::Duration;

/// Role of this process.
pub(crate) enum Role {
    /// The agent.
    Agent { port: u16 },
    /// The pass-through.
    Pass { port: u16, agent: u16, threads: usize, is_http2: bool },
    /// The load, which starts the others.
    Load(Options),
}

/// Options of the measurement.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    pub(crate) json: bool,
    pub(crate) rounds: usize,
    /// Time for which each way is loaded in each round.
    pub(crate) period: Duration,
    /// In the first round (see [`Self::connections_of`]).
    pub(crate) connections: usize,
    /// Worker threads of pass-through and gateway.
    pub(crate) threads: usize,
    /// The log level of the gateway; the pass-through logs nothing.
    pub(crate) log: String,
    /// Only these ways, between commas; empty: all.
    pub(crate) only: String,
    /// Instead of the ways: the number of tasks in the map.
    pub(crate) tasks: Option<usize>,
    /// Instead of the ways: the cost of TLS.
    pub(crate) tls: bool,
    /// Instead of the ways: the effect of abuse on good callers.
    pub(crate) abuse: bool,
    /// Instead of the ways: the cost of telemetry.
    pub(crate) telemetry: bool,
    /// Instead of the ways beside a pass-through: beside this binary of the gateway.
    pub(crate) beside: Option<String>,
    /// Instead of the ways: how many instructions a call takes.
    pub(crate) instructions: bool,
}

impl Role {
    pub(crate) fn of_this_process() -> Self {
        let words: Vec<String> = env::args().skip(1).collect();
        let number = |place: usize| words[place].parse::<u16>().expect("a number");
        match words.first().map(String::as_str) {
            Some("agent") => Self::Agent { port: number(1) },
            Some(role @ ("pass" | "pass-grpc")) => Self::Pass {
                port: number(1),
                agent: number(2),
                threads: number(3).into(),
                is_http2: role == "pass-grpc",
            },
            _ => Self::Load(Options::read(&words)),
        }
    }
}

impl Options {
    /// Returns true if this way is to be measured.
    pub(crate) fn wants(&self, way: &str) -> bool {
        self.only.is_empty() || self.only.split(',').any(|wanted| wanted == way)
    }

    /// Returns the connections of a round: eight numbers in turn. Their buffers fill pages of the
    /// allocator, and where they just fill them, a process that needs one buffer more for a call
    /// allocates and frees a page each time; so no single number shows the cost of a call.
    pub(crate) fn connections_of(&self, round: usize) -> usize {
        self.connections + round % 8
    }

    fn read(words: &[String]) -> Self {
        // `cargo test --all-targets` runs benches too, without this word: then a run only shows
        // that everything works.
        let in_earnest = words.iter().any(|word| word == "--bench");
        let mut options = Self {
            json: false,
            rounds: if in_earnest { 7 } else { 1 },
            period: Duration::from_millis(if in_earnest { 2000 } else { 200 }),
            connections: 32,
            threads: 1,
            log: "warn".to_owned(),
            only: String::new(),
            tasks: None,
            tls: false,
            abuse: false,
            telemetry: false,
            beside: None,
            instructions: false,
        };
        let mut words = words.iter().map(String::as_str);
        while let Some(word) = words.next() {
            let mut value = || words.next().unwrap_or_else(|| panic!("{word} needs a value"));
            match word {
                "--bench" => {}
                "--tls" => options.tls = true,
                "--instructions" => options.instructions = true,
                "--abuse" => options.abuse = true,
                "--telemetry" => options.telemetry = true,
                "--beside" => options.beside = Some(value().to_owned()),
                "--json" => options.json = true,
                "--rounds" => options.rounds = value().parse().expect("a number"),
                "--seconds" => options.period = Duration::from_secs_f64(value().parse().expect("seconds")),
                "--connections" => options.connections = value().parse().expect("a number"),
                "--threads" => options.threads = value().parse().expect("a number"),
                "--log" => value().clone_into(&mut options.log),
                "--tasks" => options.tasks = Some(value().parse().expect("a number")),
                "--only" => value().clone_into(&mut options.only),
                other => panic!("{other}: no such option"),
            }
        }
        options
    }
}
