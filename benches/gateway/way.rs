//! The ways to the agent that are compared, and one round through all of them.

use std::fmt::Write as _;
use std::io::Write as _;
use std::time::{Duration, Instant};

use tempfile::NamedTempFile;

use super::agent::EVENTS;
use super::load::{Load, Question};
use super::mcp;
use super::options::Options;
use super::process::{Process, free_port};

/// A way to the agent. Its cost is compared with the way `beside` it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// No proxy.
    Direct,
    /// Through bare Pingora.
    Pass,
    /// Through the gateway: an MCP call becomes an A2A call.
    Gateway,
    /// Through the gateway's A2A server: an A2A call is forwarded as it is.
    Face,
    /// A stream through bare Pingora.
    PassStream,
    /// A stream through the gateway: events become progress notifications.
    GatewayStream,
    /// A stream through the A2A server: events are forwarded as they are.
    FaceStream,
    /// An A2A call by gRPC through bare Pingora.
    PassGrpc,
    /// Through the gateway's A2A server, by gRPC on both sides.
    FaceGrpc,
    /// Through the gateway: an MCP call becomes an A2A call by gRPC.
    GatewayGrpc,
}

impl Way {
    const ALL: [Self; 10] = [
        Self::Direct,
        Self::Pass,
        Self::Gateway,
        Self::Face,
        Self::PassStream,
        Self::GatewayStream,
        Self::FaceStream,
        Self::PassGrpc,
        Self::FaceGrpc,
        Self::GatewayGrpc,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Pass => "pass",
            Self::Gateway => "gateway",
            Self::Face => "face",
            Self::PassStream => "pass-stream",
            Self::GatewayStream => "gateway-stream",
            Self::FaceStream => "face-stream",
            Self::PassGrpc => "pass-grpc",
            Self::FaceGrpc => "face-grpc",
            Self::GatewayGrpc => "gateway-grpc",
        }
    }

    /// Returns the way for comparison.
    pub(crate) fn beside(self) -> Option<Self> {
        match self {
            Self::Gateway | Self::Face => Some(Self::Pass),
            Self::GatewayStream | Self::FaceStream => Some(Self::PassStream),
            Self::FaceGrpc | Self::GatewayGrpc => Some(Self::PassGrpc),
            Self::Direct | Self::Pass | Self::PassStream | Self::PassGrpc => None,
        }
    }

    /// Returns the number of events of one call.
    pub(crate) fn events(self) -> Option<u32> {
        match self {
            Self::PassStream | Self::GatewayStream | Self::FaceStream => Some(EVENTS),
            Self::Direct | Self::Pass | Self::Gateway | Self::Face => None,
            Self::PassGrpc | Self::FaceGrpc | Self::GatewayGrpc => None,
        }
    }
}

/// Cost of one way in one round.
pub(crate) struct Sample {
    pub(crate) way: Way,
    pub(crate) calls: usize,
    pub(crate) wall: Duration,
    /// CPU of the process on the way, in microseconds per call; `None` without a process.
    pub(crate) cpu: Option<f64>,
    /// Memory of that process after the round, in MiB.
    pub(crate) resident: Option<f64>,
    pub(crate) p50: Duration,
    pub(crate) p99: Duration,
}

/// All processes and loads of the measurement.
pub(crate) struct Field {
    ways: Vec<(Way, Question)>,
    pass: Process,
    pass_grpc: Process,
    gateway: Process,
    /// Ends last.
    agent: Process,
    _config: NamedTempFile,
}

impl Field {
    pub(crate) async fn set_up(options: &Options) -> Self {
        let agent = Process::role("agent", &[]);
        let words = [agent.port.to_string(), options.threads.to_string()];
        let [pass, pass_grpc] = ["pass", "pass-grpc"].map(|role| Process::role(role, &words));
        let port = free_port();
        let config = write_config(port, agent.port, options, ("", &["plain", "flowing", "remote"]));
        let gateway = Process::gateway(config.path(), port);
        let mut field = Self { ways: Vec::new(), pass, pass_grpc, gateway, agent, _config: config };
        for way in Way::ALL.into_iter().filter(|way| options.wants(way.name())) {
            let pass = if way == Way::PassGrpc { &field.pass_grpc } else { &field.pass };
            let ports = [&field.agent, pass, &field.gateway].map(|process| process.port);
            let question = question(way, ports).await;
            field.ways.push((way, question));
        }
        field
    }

    fn process(&self, way: Way) -> Option<&Process> {
        match way {
            Way::Direct => None,
            Way::Pass | Way::PassStream => Some(&self.pass),
            Way::PassGrpc => Some(&self.pass_grpc),
            Way::Gateway
            | Way::GatewayStream
            | Way::GatewayGrpc
            | Way::Face
            | Way::FaceStream
            | Way::FaceGrpc => Some(&self.gateway),
        }
    }

    /// Loads every way in turn; every other round backwards.
    pub(crate) async fn round(&mut self, number: usize, options: &Options) -> Vec<Sample> {
        let mut samples = Vec::with_capacity(self.ways.len());
        for place in 0..self.ways.len() {
            let place = if number.is_multiple_of(2) { place } else { self.ways.len() - 1 - place };
            let (way, question) = &self.ways[place];
            samples.push(self.sample(*way, question, (number, options)).await);
        }
        samples
    }

    async fn sample(&self, way: Way, question: &Question, (round, options): (usize, &Options)) -> Sample {
        let mut load = Load::open(question, options.connections_of(round)).await;
        let process = self.process(way);
        let before = process.map(Process::cpu);
        let begun = Instant::now();
        let mut times = load.run(options.period).await;
        let wall = begun.elapsed();
        let used = process.zip(before).map(|(process, before)| process.cpu() - before);
        times.sort_unstable();
        Sample {
            way,
            calls: times.len(),
            wall,
            cpu: used.map(|seconds| seconds * 1e6 / calls(times.len())),
            resident: process.map(Process::resident),
            p50: times[times.len() / 2],
            p99: times[times.len() * 99 / 100],
        }
    }
}

/// Returns the request of this way; `[agent, pass, gateway]` are the ports of the three processes.
pub(crate) async fn question(way: Way, [agent, pass, gateway]: [u16; 3]) -> Question {
    let progress = way.events().is_some();
    let (tool, path) = if progress { ("flowing_say", "/flowing") } else { ("plain_say", "/plain") };
    let remote = "remote_say";
    let (port, request) = match way {
        Way::Direct => (agent, mcp::message(path, progress)),
        Way::Pass | Way::PassStream => (pass, mcp::message(path, progress)),
        Way::Gateway | Way::GatewayStream => (gateway, mcp::call_in_session(gateway, tool, progress).await),
        Way::Face | Way::FaceStream => (gateway, mcp::message_past(gateway, path, tool, progress).await),
        Way::PassGrpc => (pass, mcp::grpc_message("remote")),
        Way::FaceGrpc => {
            mcp::session_with(gateway, remote).await;
            (gateway, mcp::grpc_message("remote"))
        }
        Way::GatewayGrpc => (gateway, mcp::call_in_session(gateway, remote, false).await),
    };
    let marker = match way {
        Way::Direct | Way::Pass | Way::Face => "TASK_STATE_COMPLETED",
        // The first event and not the last: a stream that was not one would be noticed.
        Way::PassStream | Way::FaceStream => "TASK_STATE_WORKING",
        Way::Gateway | Way::GatewayGrpc => "\"isError\":false",
        // A word of the answer: states are numbers in protobuf.
        Way::PassGrpc | Way::FaceGrpc => "umbrella",
        Way::GatewayStream => "notifications/progress",
    };
    Question { port, request: request.into(), marker, is_grpc: matches!(way, Way::PassGrpc | Way::FaceGrpc) }
}

/// Converts a count to a divisor.
pub(crate) fn calls(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap())
}

/// Writes the gateway's configuration, with more lines of settings and these agents.
pub(crate) fn write_config(
    port: u16,
    agent: u16,
    options: &Options,
    (more, names): (&str, &[&str]),
) -> NamedTempFile {
    let mut text = format!(
        "listeners: [{{ address: \"127.0.0.1:{port}\", serve: [mcp, a2a, health] }}]\nseal_key: {}\nthreads: {}\nlog: {{ level: {} }}\n{more}agents:\n",
        "0123456789abcdef".repeat(4),
        options.threads,
        options.log,
    );
    for name in names {
        let card = format!("http://127.0.0.1:{agent}/{name}/.well-known/agent-card.json");
        writeln!(text, "  {name}: {{ card: \"{card}\" }}").unwrap();
    }
    let mut file = tempfile::Builder::new().suffix(".yaml").tempfile().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file
}
