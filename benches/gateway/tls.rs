//! The cost of TLS: handshakes, full and resumed, with and without client certificates, and
//! requests over kept connections.
//!
//! Compared with nginx with the same certificates and one worker, where it is installed; in the
//! same run, in turns. Every connection and every request fetches a few bytes that are there
//! already, so that little but TLS is measured. See also `way` for calls of tools.

use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::client::Resumption;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::connection::Connection;
use super::keys::Keys;
use super::options::{Listener, Options};
use super::process::{Process, free_port};
use super::way::calls;

/// Repeated action.
#[derive(Debug, Clone, Copy)]
enum Deed {
    /// A connection with a full handshake, and one request.
    Handshake,
    /// A connection that resumes a session, and one request.
    Resumption,
    /// One request on a connection that stays.
    Request,
}

const CASES: [(&str, Listener, Deed); 8] = [
    ("connection, plain", Listener::Plain, Deed::Handshake),
    ("connection, TLS", Listener::Tls, Deed::Handshake),
    ("connection, TLS resumed", Listener::Tls, Deed::Resumption),
    ("connection, mTLS", Listener::Mutual, Deed::Handshake),
    ("connection, mTLS resumed", Listener::Mutual, Deed::Resumption),
    ("request, plain", Listener::Plain, Deed::Request),
    ("request, TLS", Listener::Tls, Deed::Request),
    ("request, mTLS", Listener::Mutual, Deed::Request),
];
/// Connections at the same time while handshakes are measured.
const LANES: usize = 8;
const ASK: &[u8] = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n";

/// A server with three listeners.
struct Server {
    name: &'static str,
    process: Process,
    ports: [u16; 3],
}

/// Cost of one case on one server in one round.
struct Sample {
    cpu: f64,
    per_second: f64,
}

/// Measures, and prints a table.
pub(crate) async fn run(options: &Options) {
    let folder = tempfile::tempdir().unwrap();
    let client = Arc::new(Keys::write(folder.path()));
    let mut servers = vec![gateway(folder.path(), options)];
    servers.extend(nginx(folder.path()));
    // By case, then server, then round.
    let mut samples: Vec<Vec<Vec<Sample>>> = Vec::new();
    samples.resize_with(CASES.len(), || servers.iter().map(|_| Vec::new()).collect());
    for round in 0..options.rounds {
        for (case, of_case) in CASES.iter().zip(&mut samples) {
            for turn in 0..servers.len() {
                let at = if round.is_multiple_of(2) { turn } else { servers.len() - 1 - turn };
                of_case[at].push(sample(&servers[at], *case, &client, options).await);
            }
        }
    }
    print(&servers, &samples);
}

fn print(servers: &[Server], samples: &[Vec<Vec<Sample>>]) {
    let mut head = format!("{:<26}", "CPU µs each (per second)");
    for server in servers {
        write!(head, " {:>20}", server.name).unwrap();
    }
    println!("{head}   gateway over nginx, least and most of the rounds");
    for ((name, ..), of_case) in CASES.iter().zip(samples) {
        let mut line = format!("{name:<26}");
        for of_server in of_case {
            let cpu = median(of_server.iter().map(|sample| sample.cpu).collect());
            let per_second = median(of_server.iter().map(|sample| sample.per_second).collect());
            write!(line, " {:>20}", format!("{cpu:.1} ({per_second:.0})")).unwrap();
        }
        if let [gateway, nginx] = of_case.as_slice() {
            let ratios: Vec<f64> =
                gateway.iter().zip(nginx).map(|(one, other)| one.cpu / other.cpu).collect();
            let least = ratios.iter().copied().fold(f64::MAX, f64::min);
            let most = ratios.iter().copied().fold(0.0, f64::max);
            write!(line, "   {:.2}x ({least:.2} to {most:.2})", median(ratios)).unwrap();
        }
        println!("{line}");
    }
    if servers.len() == 1 {
        println!("nginx is not installed: nothing to compare with");
    }
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

async fn sample(
    server: &Server,
    (_, listener, deed): (&str, Listener, Deed),
    keys: &Arc<Keys>,
    options: &Options,
) -> Sample {
    let port = server.ports[listener as usize];
    let lanes = if matches!(deed, Deed::Request) { options.connections } else { LANES };
    let mut clients = Vec::new();
    for _ in 0..lanes {
        let client = Client::new(port, listener, deed, keys);
        // A session to resume, or a connection to keep.
        clients.push((client.connect().await, client));
    }
    let (before, begun) = (server.process.cpu(), Instant::now());
    let until = begun + options.period;
    let mut all = JoinSet::new();
    for (kept, client) in clients {
        all.spawn(async move { client.work(kept, deed, until).await });
    }
    let done: usize = all.join_all().await.into_iter().sum();
    let wall = begun.elapsed().as_secs_f64();
    // The connections that were closed last are still being cleared away.
    tokio::time::sleep(Duration::from_millis(20)).await;
    Sample { cpu: (server.process.cpu() - before) * 1e6 / calls(done), per_second: calls(done) / wall }
}

/// One lane of the load.
struct Client {
    port: u16,
    tls: Option<TlsConnector>,
}

enum Open {
    Plain(Connection<TcpStream>),
    Tls(Box<Connection<TlsStream<TcpStream>>>),
}

impl Client {
    fn new(port: u16, listener: Listener, deed: Deed, keys: &Keys) -> Self {
        let tls = (listener != Listener::Plain).then(|| {
            let mut config = keys.client(listener == Listener::Mutual);
            if matches!(deed, Deed::Handshake) {
                config.resumption = Resumption::disabled();
            }
            TlsConnector::from(Arc::new(config))
        });
        Self { port, tls }
    }

    /// Opens a connection on which one request has been answered.
    async fn connect(&self) -> Open {
        let socket = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).await.unwrap();
        socket.set_nodelay(true).unwrap();
        let mut open = match &self.tls {
            None => Open::Plain(Connection::over(socket)),
            Some(tls) => {
                let stream = tls.connect("localhost".try_into().unwrap(), socket).await.unwrap();
                Open::Tls(Box::new(Connection::over(stream)))
            }
        };
        open.ask().await;
        open
    }

    async fn work(self, mut kept: Open, deed: Deed, until: Instant) -> usize {
        let mut done = 0;
        while Instant::now() < until {
            match deed {
                Deed::Request => kept.ask().await,
                Deed::Handshake => drop(self.connect().await),
                Deed::Resumption => {
                    let open = self.connect().await;
                    assert!(open.is_resumed(), "port {} resumes no session", self.port);
                }
            }
            done += 1;
        }
        done
    }
}

impl Open {
    async fn ask(&mut self) {
        let answer = match self {
            Self::Plain(connection) => connection.exchange(ASK).await,
            Self::Tls(connection) => connection.exchange(ASK).await,
        };
        assert!(answer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(answer));
    }

    fn is_resumed(&self) -> bool {
        let Self::Tls(connection) = self else { return false };
        connection.socket().get_ref().1.handshake_kind() == Some(rustls::HandshakeKind::Resumed)
    }
}

fn gateway(folder: &Path, options: &Options) -> Server {
    let ports = [(); 3].map(|()| free_port());
    let [plain, tls, mutual] = ports;
    let pair = "certificate: server.crt, key: server.key";
    let text = format!(
        "listeners:\n  - address: 127.0.0.1:{plain}\n  - {{ address: \"127.0.0.1:{tls}\", tls: {{ {pair} }} }}\n  - {{ address: \
         \"127.0.0.1:{mutual}\", tls: {{ {pair}, client_auth: {{ mode: required, ca: ca.pem, crl: crl.pem }} }} }}\nseal_key: \
         {}\nthreads: {}\nlog: {{ level: {} }}\nagents: {{ a: {{ card: \"http://127.0.0.1:1/\" }} }}\n",
        "0123456789abcdef".repeat(4),
        options.threads,
        options.log,
    );
    let file = folder.join("gateway.yaml");
    std::fs::write(&file, text).unwrap();
    Server { name: "gateway", process: Process::gateway(&file, mutual), ports }
}

/// Starts nginx with the same three listeners, if it is installed.
fn nginx(folder: &Path) -> Option<Server> {
    let ports = [(); 3].map(|()| free_port());
    let [plain, tls, mutual] = ports;
    let place = folder.display();
    let answer = "keepalive_requests 100000000; location / { return 200 '{\"ok\":true,\"activeSse\":0,\"tasks\":0}'; }";
    let pair = format!("ssl_certificate {place}/server.crt; ssl_certificate_key {place}/server.key;");
    let clients =
        format!("ssl_verify_client on; ssl_client_certificate {place}/ca.pem; ssl_crl {place}/crl.pem;");
    let text = format!(
        "daemon off; master_process off; pid {place}/nginx.pid; error_log stderr crit; events {{ worker_connections 1024; }}\n\
         http {{ access_log off; ssl_protocols TLSv1.2 TLSv1.3; ssl_session_tickets on;\n\
         client_body_temp_path {place}/a; proxy_temp_path {place}/b; fastcgi_temp_path {place}/c; uwsgi_temp_path {place}/d; \
         scgi_temp_path {place}/e;\n\
         server {{ listen 127.0.0.1:{plain}; {answer} }}\n\
         server {{ listen 127.0.0.1:{tls} ssl; {pair} {answer} }}\n\
         server {{ listen 127.0.0.1:{mutual} ssl; {pair} {clients} {answer} }} }}\n"
    );
    let file = folder.join("nginx.conf");
    std::fs::write(&file, text).unwrap();
    Some(Server { name: "nginx", process: Process::nginx(&file, mutual)?, ports })
}
