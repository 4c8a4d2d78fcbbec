//! The memory of what has no traffic: connections after a request, and open streams, with TLS at both sides.
//!
//! Each figure is the growth of the gateway's resident set, divided by the number of connections or streams, in a
//! gateway of its own that has served a few before. See also `crowd` for the memory of tasks.

use std::io::Write as _;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use http::Request;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use memchr::memmem;
use tempfile::{NamedTempFile, TempDir};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::connection::{Connection, http2_request};
use super::keys::Keys;
use super::mcp;
use super::options::{Listener, Options};
use super::plot::{Axes, Line, lines};
use super::process::{Process, free_port};
use super::way::{calls, gateway_tls, with_alpn, write_config};

/// The small number beside which the large one is measured.
const FEW: usize = 1000;
/// Opened, and closed again, before anything is counted.
const WARM_UP: usize = 50;
/// Streams on one connection of HTTP/2.
const STREAMS: usize = 100;
/// Connections that are opened at the same time: each handshake costs the gateway a signature.
const LANES: usize = 16;
/// In the first event of a stream.
const PROGRESS: &[u8] = b"notifications/progress";
const HEALTH: &[u8] = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n";
/// The gateway frees what a closed connection held a moment after it.
const SETTLING: Duration = Duration::from_secs(2);

/// A thing that stays open.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Case {
    Connection,
    Stream,
    Http2Stream,
}

impl Case {
    const ALL: [Self; 3] = [Self::Connection, Self::Stream, Self::Http2Stream];

    fn name(self) -> &'static str {
        match self {
            Self::Connection => "TLS connection",
            Self::Stream => "stream over HTTP/1.1",
            Self::Http2Stream => "stream over HTTP/2",
        }
    }
}

type TlsConnection = Connection<TlsStream<TcpStream>>;

/// Open connections, and streams on them.
#[derive(Default)]
struct Held {
    connections: Vec<TlsConnection>,
    streams: Vec<(SendRequest<Full<Bytes>>, Vec<Incoming>)>,
}

/// Measures each case with few and with many, and prints a table.
pub(crate) async fn run(most: usize, options: &Options) {
    let sizes = if most > FEW { vec![FEW, most] } else { vec![most] };
    println!("{:<20} {:>8} {:>12} {:>14}", "open, with TLS", "number", "KiB of each", "RSS MiB in all");
    let mut plotted = Vec::new();
    for case in Case::ALL.into_iter().filter(|case| options.wants(case.name())) {
        let scene = Scene::set_up(case, most, options).await;
        drop(scene.open(WARM_UP).await);
        tokio::time::sleep(SETTLING).await;
        let before = scene.gateway.resident();
        let mut held = Vec::new();
        let mut points = Vec::new();
        let mut open = 0;
        for size in &sizes {
            held.push(scene.open(size - open).await);
            open = *size;
            let resident = scene.gateway.resident();
            let each = (resident - before) * 1024.0 / calls(*size);
            println!("{:<20} {size:>8} {each:>12.1} {resident:>14.0}", case.name());
            points.push((calls(*size), each));
        }
        plotted.push(Line { name: case.name().to_owned(), points });
    }
    if let Some(file) = &options.plot {
        let axes = Axes {
            title: "Memory of a connection and of a stream without traffic",
            x: "open at once",
            y: "KiB of each",
            is_y_logarithmic: false,
        };
        lines(file, &axes, &plotted);
    }
}

/// A gateway and its agent, with TLS.
struct Scene {
    case: Case,
    front: u16,
    request: Vec<u8>,
    tls: TlsConnector,
    gateway: Process,
    _agent: Process,
    _config: NamedTempFile,
    _folder: TempDir,
}

impl Scene {
    async fn set_up(case: Case, most: usize, options: &Options) -> Self {
        let is_http2 = case == Case::Http2Stream;
        let options = Options { is_http2, listener: Listener::Tls, ..options.clone() };
        let folder = tempfile::tempdir().unwrap();
        let keys = Keys::write(folder.path());
        let agent = Process::tls_agent(&options, folder.path());
        let [port, front] = [(); 2].map(|()| free_port());
        let place = folder.path().display().to_string();
        let listeners = [(port, String::new()), (front, gateway_tls(Listener::Tls, &place))];
        let room = (most + WARM_UP) * 2;
        let more = format!(
            "limits: {{ connections: {room}, address_connections: 0, streams: {room}, caller_streams: {room}, calls: {room}, \
             caller_calls: {room}, caller_tasks: {room}, keep_alive: 1h }}\ncalls: {{ budget: 30m }}\n"
        );
        let mut config = write_config(&listeners, agent.port, &options, (&more, &[]));
        let card = format!("https://localhost:{}/waiting/.well-known/agent-card.json", agent.port);
        let settings = "timeouts: { first_byte: 1h, idle: 1h, total: 2h }";
        writeln!(config, "  waiting: {{ card: \"{card}\", tls: {{ ca: \"{place}/ca.pem\" }}, {settings} }}")
            .unwrap();
        let gateway = Process::gateway(config.path(), port);
        let request = mcp::call_in_session(port, "waiting_say", "x", true).await;
        let tls = TlsConnector::from(Arc::new(with_alpn(keys.client(false), is_http2)));
        Self { case, front, request, tls, gateway, _agent: agent, _config: config, _folder: folder }
    }

    /// Opens so many, and returns them when the first bytes of all of them are here.
    async fn open(&self, count: usize) -> Held {
        let mut held = Held::default();
        if self.case == Case::Http2Stream {
            for from in (0..count).step_by(STREAMS) {
                held.streams.push(self.open_streams(STREAMS.min(count - from)).await);
            }
            return held;
        }
        let mut opening = JoinSet::new();
        while held.connections.len() < count {
            while opening.len() < LANES.min(count - held.connections.len()) {
                let (tls, front) = (self.tls.clone(), self.front);
                let request =
                    if self.case == Case::Connection { HEALTH.to_vec() } else { self.request.clone() };
                opening.spawn(open_connection(tls, front, request));
            }
            held.connections.push(opening.join_next().await.unwrap().unwrap());
        }
        held
    }

    /// Opens streams on one connection of HTTP/2.
    async fn open_streams(&self, count: usize) -> (SendRequest<Full<Bytes>>, Vec<Incoming>) {
        let stream = connect(&self.tls, self.front).await;
        let (mut sender, connection) = handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        let request: Request<Full<Bytes>> = http2_request(&self.request);
        let mut open = Vec::with_capacity(count);
        for _ in 0..count {
            sender.ready().await.unwrap();
            let response = sender.send_request(request.clone()).await.unwrap();
            assert_eq!(response.status(), 200);
            let mut body = response.into_body();
            let mut read = Vec::new();
            while memmem::find(&read, PROGRESS).is_none() {
                read.extend_from_slice(&body.frame().await.unwrap().unwrap().into_data().unwrap());
            }
            open.push(body);
        }
        (sender, open)
    }
}

async fn connect(tls: &TlsConnector, port: u16) -> TlsStream<TcpStream> {
    let socket = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.unwrap();
    socket.set_nodelay(true).unwrap();
    tls.connect("localhost".try_into().unwrap(), socket).await.unwrap()
}

async fn open_connection(tls: TlsConnector, port: u16, request: Vec<u8>) -> TlsConnection {
    let mut connection = Connection::over(connect(&tls, port).await);
    if request == HEALTH {
        connection.exchange(&request).await;
    } else {
        connection.exchange_until(&request, PROGRESS).await;
    }
    connection
}
