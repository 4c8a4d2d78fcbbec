//! The ways to the agent that are compared, and one round through all of them.

use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tempfile::{NamedTempFile, TempDir};
use tokio_rustls::TlsConnector;

use super::agent::EVENTS;
use super::connection::ClientTransport;
use super::keys::Keys;
use super::load::{Load, Question};
use super::options::{Listener, Options};
use super::process::{Process, free_port};
use super::{mcp, peers};

/// A way to the agent. Its cost is compared with the ways `beside` it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// No proxy.
    Direct,
    /// Through bare Pingora.
    Pass,
    /// Through nginx.
    Nginx,
    /// Through HAProxy.
    Haproxy,
    /// A `ping` of MCP, which the gateway answers alone.
    Ping,
    /// Through the gateway's A2A server: an A2A call is forwarded as it is.
    Face,
    /// Through the gateway: an MCP call becomes an A2A call.
    Gateway,
    /// The same, from a client of MCP 2026-07-28.
    GatewayModern,
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
    const ALL: [Self; 14] = [
        Self::Direct,
        Self::Pass,
        Self::Nginx,
        Self::Haproxy,
        Self::Ping,
        Self::Face,
        Self::Gateway,
        Self::GatewayModern,
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
            Self::Nginx => "nginx",
            Self::Haproxy => "haproxy",
            Self::Ping => "ping",
            Self::Face => "face",
            Self::Gateway => "gateway",
            Self::GatewayModern => "gateway-modern",
            Self::PassStream => "pass-stream",
            Self::GatewayStream => "gateway-stream",
            Self::FaceStream => "face-stream",
            Self::PassGrpc => "pass-grpc",
            Self::FaceGrpc => "face-grpc",
            Self::GatewayGrpc => "gateway-grpc",
        }
    }

    /// Returns the ways for comparison.
    pub(crate) fn beside(self) -> &'static [Self] {
        match self {
            Self::Gateway | Self::GatewayModern | Self::Face => &[Self::Pass, Self::Nginx, Self::Haproxy],
            Self::Nginx | Self::Haproxy | Self::Ping => &[Self::Pass],
            Self::GatewayStream | Self::FaceStream => &[Self::PassStream],
            Self::FaceGrpc | Self::GatewayGrpc => &[Self::PassGrpc],
            Self::Direct | Self::Pass | Self::PassStream | Self::PassGrpc => &[],
        }
    }

    /// Returns the number of events of one call.
    pub(crate) fn events(self) -> Option<u32> {
        matches!(self, Self::PassStream | Self::GatewayStream | Self::FaceStream).then_some(EVENTS)
    }

    fn is_grpc(self) -> bool {
        matches!(self, Self::PassGrpc | Self::FaceGrpc)
    }
}

/// Cost of one way in one round.
pub(crate) struct Sample {
    pub(crate) way: Way,
    pub(crate) calls: usize,
    pub(crate) wall: Duration,
    /// CPU of the process on the way, in microseconds per call: in user space, and in the system; `None` without a
    /// process.
    pub(crate) cpu: Option<[f64; 2]>,
    /// Memory of that process after the round, in MiB.
    pub(crate) resident: Option<f64>,
    pub(crate) p50: Duration,
    pub(crate) p99: Duration,
    pub(crate) p999: Duration,
}

/// All processes and loads of the measurement.
pub(crate) struct Field {
    ways: Vec<(Way, Question)>,
    pass: Process,
    pass_grpc: Process,
    nginx: Option<Process>,
    haproxy: Option<Process>,
    gateway: Process,
    /// Ends last.
    agent: Process,
    _config: NamedTempFile,
    _folder: TempDir,
}

impl Field {
    pub(crate) async fn set_up(options: &Options) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let keys = Keys::write(folder.path());
        let agent = Process::agent(options);
        let place = folder.path().display().to_string();
        let version = if options.is_http2 { "h2" } else { "h1" };
        let (to, threads) = (agent.port.to_string(), options.threads.to_string());
        let words = [&*to, &*threads, options.listener.name(), version, &*place];
        let pass = Process::role("pass", &words);
        let words = [&*to, &*threads, Listener::Plain.name(), version, &*place];
        let pass_grpc = Process::role("pass-grpc", &words);
        // Sessions are opened at a plain listener.
        let port = free_port();
        let mut listeners = vec![(port, String::new())];
        if options.listener != Listener::Plain {
            listeners.push((free_port(), gateway_tls(options.listener, &place)));
        }
        let front = listeners.last().map_or(port, |(port, _)| *port);
        let config = write_config(&listeners, agent.port, options, ("", &["plain", "flowing", "remote"]));
        let gateway = Process::gateway(config.path(), port);
        let [nginx, haproxy] =
            [peers::nginx, peers::haproxy].map(|start| start(folder.path(), agent.port, options));
        let transport = ClientTransport {
            tls: (options.listener != Listener::Plain)
                .then(|| keys.client(options.listener == Listener::Mutual))
                .map(|config| TlsConnector::from(Arc::new(with_alpn(config, options.is_http2)))),
            is_http2: options.is_http2,
        };
        let mut field = Self {
            ways: Vec::new(),
            pass,
            pass_grpc,
            nginx,
            haproxy,
            gateway,
            agent,
            _config: config,
            _folder: folder,
        };
        for way in Way::ALL.into_iter().filter(|way| options.wants(way.name())) {
            let proxy = match (way, field.process(way)) {
                (Way::Direct, _) => field.agent.port,
                (_, Some(process)) => process.port,
                (_, None) => {
                    eprintln!("{} is not installed", way.name());
                    continue;
                }
            };
            let mut question = question(way, proxy, options).await;
            if way != Way::Direct && !way.is_grpc() {
                question.transport = transport.clone();
                if question.port == port {
                    question.port = front;
                }
            }
            field.ways.push((way, question));
        }
        field
    }

    fn process(&self, way: Way) -> Option<&Process> {
        match way {
            Way::Direct => None,
            Way::Pass | Way::PassStream => Some(&self.pass),
            Way::PassGrpc => Some(&self.pass_grpc),
            Way::Nginx => self.nginx.as_ref(),
            Way::Haproxy => self.haproxy.as_ref(),
            Way::Ping
            | Way::Gateway
            | Way::GatewayModern
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
        let before = process.map(Process::user_and_system_cpu);
        let begun = Instant::now();
        let mut times = load.run(options.period).await;
        let wall = begun.elapsed();
        let after = process.map(Process::user_and_system_cpu);
        let count = calls(times.len());
        times.sort_unstable();
        Sample {
            way,
            calls: times.len(),
            wall,
            cpu: after
                .zip(before)
                .map(|(after, before)| [0, 1].map(|at| (after[at] - before[at]) * 1e6 / count)),
            resident: process.map(Process::resident),
            p50: times[times.len() / 2],
            p99: times[times.len() * 99 / 100],
            p999: times[times.len() * 999 / 1000],
        }
    }
}

/// Names the version of HTTP that a client wants over TLS.
pub(crate) fn with_alpn(mut config: rustls::ClientConfig, is_http2: bool) -> rustls::ClientConfig {
    config.alpn_protocols = vec![if is_http2 { b"h2".to_vec() } else { b"http/1.1".to_vec() }];
    config
}

/// Returns the TLS settings of a listener of the gateway, with the certificates in this folder.
pub(crate) fn gateway_tls(listener: Listener, folder: &str) -> String {
    let pair = format!("certificate: \"{folder}/server.crt\", key: \"{folder}/server.key\"");
    let clients =
        format!("client_auth: {{ mode: required, ca: \"{folder}/ca.pem\", crl: \"{folder}/crl.pem\" }}");
    match listener {
        Listener::Plain => String::new(),
        Listener::Tls => format!(", tls: {{ {pair} }}"),
        Listener::Mutual => format!(", tls: {{ {pair}, {clients} }}"),
    }
}

/// Returns the request of this way; `proxy` is the port of its process, and sessions are opened there if it is the gateway.
pub(crate) async fn question(way: Way, proxy: u16, options: &Options) -> Question {
    let text = mcp::text(options.text_bytes);
    let progress = way.events().is_some();
    let (tool, path) = if progress { ("flowing_say", "/flowing") } else { ("plain_say", "/plain") };
    let remote = "remote_say";
    let request = match way {
        Way::Direct | Way::Pass | Way::PassStream | Way::Nginx | Way::Haproxy => {
            mcp::message(path, &text, progress)
        }
        Way::Ping => mcp::ping(proxy, tool).await,
        Way::Gateway | Way::GatewayStream => mcp::call_in_session(proxy, tool, &text, progress).await,
        Way::GatewayModern => mcp::modern_call(proxy, tool, &text).await,
        Way::Face | Way::FaceStream => mcp::message_past(proxy, path, tool, (&text, progress)).await,
        Way::PassGrpc => mcp::grpc_message("remote", &text),
        Way::FaceGrpc => {
            mcp::session_with(proxy, remote).await;
            mcp::grpc_message("remote", &text)
        }
        Way::GatewayGrpc => mcp::call_in_session(proxy, remote, &text, false).await,
    };
    let marker = match way {
        Way::Direct | Way::Pass | Way::Nginx | Way::Haproxy | Way::Face => "TASK_STATE_COMPLETED",
        // The first event and not the last: a stream that was not one would be noticed.
        Way::PassStream | Way::FaceStream => "TASK_STATE_WORKING",
        Way::Ping => "\"result\":{",
        Way::Gateway | Way::GatewayModern | Way::GatewayGrpc => "\"isError\":false",
        // A word of the answer: states are numbers in protobuf.
        Way::PassGrpc | Way::FaceGrpc => "umbrella",
        Way::GatewayStream => "notifications/progress",
    };
    let transport = ClientTransport { tls: None, is_http2: options.is_http2 || way.is_grpc() };
    Question { port: proxy, transport, request: request.into(), marker }
}

/// Converts a count to a divisor.
pub(crate) fn calls(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap())
}

/// Writes the gateway's configuration, with these listeners (port, and more settings of each), with more lines of
/// settings and these agents.
pub(crate) fn write_config(
    listeners: &[(u16, String)],
    agent: u16,
    options: &Options,
    (more, names): (&str, &[&str]),
) -> NamedTempFile {
    let mut text = String::from("listeners:\n");
    for (port, settings) in listeners {
        writeln!(text, "  - {{ address: \"127.0.0.1:{port}\", serve: [mcp, a2a, health]{settings} }}")
            .unwrap();
    }
    writeln!(
        text,
        "seal_key: {}\nthreads: {}\nlog: {{ level: {} }}\n{more}agents:",
        "0123456789abcdef".repeat(4),
        options.threads,
        options.log,
    )
    .unwrap();
    for path in names {
        let card = format!("http://127.0.0.1:{agent}/{path}/.well-known/agent-card.json");
        writeln!(text, "  {}: {{ card: \"{card}\" }}", path.replace('/', "-")).unwrap();
    }
    let mut file = tempfile::Builder::new().suffix(".yaml").tempfile().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file
}
