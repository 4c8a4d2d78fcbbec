//! The options of the command line, and the role of this process.

use std::env;
use std::path::PathBuf;
use std::time::Duration;

/// Role of this process.
pub(crate) enum Role {
    /// The agent.
    Agent(AgentRole),
    /// The pass-through.
    Pass(PassRole),
    /// The load, which starts the others.
    Load(Options),
}

/// Settings of the agent.
pub(crate) struct AgentRole {
    pub(crate) port: u16,
    pub(crate) text_bytes: usize,
    /// Pause before each event of a stream, so that no proxy gets two of them at once.
    pub(crate) apart: Duration,
    /// Where the certificates are; then every connection begins with TLS.
    pub(crate) keys: Option<PathBuf>,
    /// HTTP/2 over TLS.
    pub(crate) is_http2: bool,
}

/// Settings of the pass-through.
pub(crate) struct PassRole {
    pub(crate) port: u16,
    pub(crate) agent: u16,
    pub(crate) threads: usize,
    /// HTTP/2 to the agent.
    pub(crate) is_grpc: bool,
    pub(crate) listener: Listener,
    /// HTTP/2 from clients.
    pub(crate) is_http2: bool,
    /// Where the certificates are.
    pub(crate) keys: PathBuf,
}

/// Kind of listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Listener {
    Plain,
    Tls,
    /// With a certificate of the client, and a revocation list.
    Mutual,
}

impl Listener {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Tls => "tls",
            Self::Mutual => "mtls",
        }
    }

    fn read(word: &str) -> Self {
        let all = [Self::Plain, Self::Tls, Self::Mutual];
        all.into_iter().find(|one| one.name() == word).unwrap_or_else(|| panic!("{word}: plain, tls or mtls"))
    }
}

/// The measurement.
#[derive(Debug, Clone)]
pub(crate) enum Measurement {
    /// Calls on each way to the agent.
    Ways,
    /// Queries for one task among so many.
    Tasks(usize),
    /// The cost of TLS.
    Tls,
    /// The effect of abuse on good callers.
    Abuse,
    /// The cost of telemetry.
    Telemetry,
    /// Calls in this binary of the gateway too.
    Beside(String),
    /// The number of instructions of a call.
    Instructions,
    /// The memory of connections and streams without traffic, so many at most.
    Idle(usize),
    /// A call with few and with many agents, rules, streams and workers.
    Flat,
    /// The time until the gateway is ready, and its memory then.
    Start,
    /// The time that events take.
    Delay,
}

/// Options of the measurement.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    pub(crate) measurement: Measurement,
    pub(crate) json: bool,
    /// File for a plot of the figures, as SVG.
    pub(crate) plot: Option<PathBuf>,
    pub(crate) rounds: usize,
    /// Time for which each way is loaded in each round.
    pub(crate) period: Duration,
    /// In the first round (see [`Self::connections_of`]).
    pub(crate) connections: usize,
    /// Worker threads of each proxy.
    pub(crate) threads: usize,
    /// The log level of the gateway; the other proxies log nothing.
    pub(crate) log: String,
    /// Only these ways, between commas; empty: all.
    pub(crate) only: String,
    /// Bytes of the text in a message, and in the agent's response.
    pub(crate) text_bytes: usize,
    /// The listener of each proxy, for calls.
    pub(crate) listener: Listener,
    /// Clients speak HTTP/2 to each proxy.
    pub(crate) is_http2: bool,
}

impl Role {
    pub(crate) fn of_this_process() -> Self {
        let words: Vec<String> = env::args().skip(1).collect();
        let number = |place: usize| words[place].parse::<usize>().expect("a number");
        let port = |place: usize| u16::try_from(number(place)).expect("a port");
        match words.first().map(String::as_str) {
            Some("agent") => Self::Agent(AgentRole {
                port: port(1),
                text_bytes: number(2),
                apart: Duration::from_millis(number(3) as u64),
                is_http2: words.get(4).is_some_and(|version| version == "h2"),
                keys: words.get(5).map(PathBuf::from),
            }),
            Some(role @ ("pass" | "pass-grpc")) => Self::Pass(PassRole {
                port: port(1),
                agent: port(2),
                threads: number(3),
                is_grpc: role == "pass-grpc",
                listener: Listener::read(&words[4]),
                is_http2: words[5] == "h2",
                keys: PathBuf::from(&words[6]),
            }),
            _ => Self::Load(Options::read(&words)),
        }
    }
}

/// About a short question and its answer: 470 bytes of request and 755 of response.
const TEXT_BYTES: usize = 180;

impl Options {
    /// Returns the pause of the agent before each event, in milliseconds. A gateway under callgrind is some 50 times slower: with
    /// a pause of 1 ms, the speed of the machine decides how many events it reads at once, and so how many instructions it takes.
    pub(crate) fn event_pause(&self) -> u64 {
        if matches!(self.measurement, Measurement::Instructions) { 5 } else { 1 }
    }

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
            measurement: Measurement::Ways,
            json: false,
            plot: None,
            rounds: if in_earnest { 7 } else { 1 },
            period: Duration::from_millis(if in_earnest { 2000 } else { 200 }),
            connections: 32,
            threads: 1,
            log: "warn".to_owned(),
            only: String::new(),
            text_bytes: TEXT_BYTES,
            listener: Listener::Plain,
            is_http2: false,
        };
        let mut words = words.iter().map(String::as_str);
        while let Some(word) = words.next() {
            let mut value = || words.next().unwrap_or_else(|| panic!("{word} needs a value"));
            match word {
                "--bench" => {}
                "--tls" => options.measurement = Measurement::Tls,
                "--instructions" => options.measurement = Measurement::Instructions,
                "--abuse" => options.measurement = Measurement::Abuse,
                "--telemetry" => options.measurement = Measurement::Telemetry,
                "--beside" => options.measurement = Measurement::Beside(value().to_owned()),
                "--tasks" => options.measurement = Measurement::Tasks(number(value())),
                "--idle" => options.measurement = Measurement::Idle(number(value())),
                "--flat" => options.measurement = Measurement::Flat,
                "--start" => options.measurement = Measurement::Start,
                "--delay" => options.measurement = Measurement::Delay,
                "--json" => options.json = true,
                "--plot" => options.plot = Some(value().into()),
                "--rounds" => options.rounds = number(value()),
                "--seconds" => options.period = Duration::from_secs_f64(value().parse().expect("seconds")),
                "--connections" => options.connections = number(value()),
                "--threads" => options.threads = number(value()),
                "--log" => value().clone_into(&mut options.log),
                "--only" => value().clone_into(&mut options.only),
                "--text" => options.text_bytes = number(value()),
                "--listener" => options.listener = Listener::read(value()),
                "--http2" => options.is_http2 = true,
                other => panic!("{other}: no such option"),
            }
        }
        options
    }
}

fn number(word: &str) -> usize {
    word.parse().expect("a number")
}
