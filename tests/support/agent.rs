//! An A2A agent that does what the test wrote, and remembers everything that it was asked.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::Notify;
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

use super::card::Card;
use super::player::Player;
use super::reply::Reply;
use super::signal::Signal;
use super::wire::{Request, read_request};
use super::{PATIENCE, in_time};

const SEND: [&str; 3] = ["SendMessage", "message/send", "tasks/send"];
const STREAM: [&str; 3] = ["SendStreamingMessage", "message/stream", "tasks/sendSubscribe"];

/// Runs until dropped.
pub struct ScriptedAgent {
    address: SocketAddr,
    scheme: &'static str,
    shared: Arc<Shared>,
    server: JoinHandle<()>,
}

/// The events at the agent so far.
#[derive(Clone, Debug, Default)]
pub struct Log {
    pub requests: Vec<Request>,
    /// Connections accepted.
    pub connections: usize,
    /// Connections that have ended, from either side.
    pub closed: usize,
    /// Numbers of the requests that their client left before the answer ended.
    pub left: Vec<usize>,
    /// Numbers of the requests that were answered to the end.
    pub answered: Vec<usize>,
}

impl Log {
    /// The JSON-RPC requests with this method.
    pub fn calls(&self, method: &str) -> Vec<&Request> {
        self.requests.iter().filter(|request| request.rpc_method() == method).collect()
    }

    /// The requests for this path.
    pub fn hits(&self, path: &str) -> Vec<&Request> {
        self.requests.iter().filter(|request| request.path == path).collect()
    }
}

type Handler = Arc<dyn Fn(&Request) -> Reply + Send + Sync>;

struct Shared {
    card: Mutex<Card>,
    url: String,
    methods: Mutex<HashMap<String, Handler>>,
    paths: Mutex<HashMap<String, Handler>>,
    log: Mutex<Log>,
    changed: Notify,
    stop: Signal,
}

impl ScriptedAgent {
    /// Listens on a free port of the loopback.
    pub async fn start(card: Card) -> Self {
        Self::listen(([127, 0, 0, 1], 0).into(), card, None).await
    }

    /// Listens where another agent was stopped.
    pub async fn start_at(address: SocketAddr, card: Card) -> Self {
        Self::listen(address, card, None).await
    }

    /// The same behind TLS (see [`super::certs::server_config`]).
    pub async fn start_tls(card: Card, tls: Arc<rustls::ServerConfig>) -> Self {
        Self::listen(([127, 0, 0, 1], 0).into(), card, Some(tls)).await
    }

    async fn listen(address: SocketAddr, card: Card, tls: Option<Arc<rustls::ServerConfig>>) -> Self {
        let listener = TcpListener::bind(address).await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let scheme = if tls.is_some() { "https" } else { "http" };
        let shared = Arc::new(Shared {
            card: Mutex::new(card),
            url: format!("{scheme}://{address}/"),
            methods: Mutex::default(),
            paths: Mutex::default(),
            log: Mutex::default(),
            changed: Notify::new(),
            stop: Signal::new(),
        });
        let server = tokio::spawn(serve(listener, tls.map(TlsAcceptor::from), Arc::clone(&shared)));
        Self { address, scheme, shared, server }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends in `/`.
    pub fn url(&self) -> String {
        self.shared.url.clone()
    }

    pub fn card_url(&self) -> String {
        format!("{}://{}{}", self.scheme, self.address, self.shared.card.lock().unwrap().path)
    }

    /// Serves another card from now on.
    pub fn set_card(&self, card: Card) {
        *self.shared.card.lock().unwrap() = card;
    }

    /// Answers every send, streaming or not, of any A2A version.
    pub fn on_send(&self, handler: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> &Self {
        self.on_any(SEND.iter().chain(&STREAM), handler)
    }

    /// Answers only the sends that ask for a stream.
    pub fn on_stream(&self, handler: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> &Self {
        self.on_any(&STREAM, handler)
    }

    pub fn on_get(&self, handler: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> &Self {
        self.on_any(&["GetTask", "tasks/get"], handler)
    }

    pub fn on_cancel(&self, handler: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> &Self {
        self.on_any(&["CancelTask", "tasks/cancel"], handler)
    }

    pub fn on_subscribe(&self, handler: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> &Self {
        self.on_any(&["SubscribeToTask", "tasks/resubscribe"], handler)
    }

    /// Answers one JSON-RPC method; the newest handler counts.
    pub fn on(&self, method: &str, handler: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> &Self {
        self.on_any(&[method], handler)
    }

    /// Answers a path (with its query) for every method: token endpoints, other cards. Wins over
    /// everything.
    pub fn on_path(&self, path: &str, handler: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> &Self {
        self.shared.paths.lock().unwrap().insert(path.into(), Arc::new(handler));
        self
    }

    fn on_any<'a>(
        &self,
        methods: impl IntoIterator<Item = &'a &'a str>,
        handler: impl Fn(&Request) -> Reply + Send + Sync + 'static,
    ) -> &Self {
        let handler: Handler = Arc::new(handler);
        let mut known = self.shared.methods.lock().unwrap();
        known.extend(methods.into_iter().map(|method| ((*method).to_owned(), Arc::clone(&handler))));
        drop(known);
        self
    }

    pub fn log(&self) -> Log {
        self.shared.log.lock().unwrap().clone()
    }

    /// Every request so far, cards too.
    pub fn requests(&self) -> Vec<Request> {
        self.log().requests
    }

    /// The requests with this JSON-RPC method so far.
    pub fn calls(&self, method: &str) -> Vec<Request> {
        self.log().calls(method).into_iter().cloned().collect()
    }

    /// Waits until the log is as wanted, and returns it; fails after [`PATIENCE`] and shows the
    /// log.
    pub async fn wait_for(&self, what: &str, is_so: impl Fn(&Log) -> bool) -> Log {
        let wait = async {
            loop {
                let changed = self.shared.changed.notified();
                let log = self.log();
                if is_so(&log) {
                    return log;
                }
                changed.await;
            }
        };
        match tokio::time::timeout(PATIENCE, wait).await {
            Ok(log) => log,
            Err(_) => panic!("the agent did not see within {PATIENCE:?}: {what}\n{:#?}", self.log()),
        }
    }

    /// Waits for the first request with this method.
    pub async fn wait_for_call(&self, method: &str) -> Request {
        let log = self.wait_for(method, |log| !log.calls(method).is_empty()).await;
        log.calls(method)[0].clone()
    }

    /// Closes every connection and refuses new ones; returns where it listened.
    pub async fn stop(mut self) -> SocketAddr {
        self.shared.stop.fire();
        in_time("the agent to stop", &mut self.server).await.expect("the agent did not panic");
        reserve(self.address).await;
        self.address
    }
}

/// Keeps the port of a stopped agent from every other socket of the machine until the test program
/// ends: bound but not listening, so that connections are refused, and another agent can listen
/// there. Another test may start a process at this moment, which holds the listener between its fork
/// and its exec.
async fn reserve(address: SocketAddr) {
    let bind = || {
        let socket = TcpSocket::new_v4()?;
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        std::io::Result::Ok(socket)
    };
    let bound = async {
        loop {
            match bind() {
                Ok(socket) => break socket,
                Err(_) => tokio::task::yield_now().await,
            }
        }
    };
    std::mem::forget(in_time("the port of the stopped agent", bound).await);
}

impl Drop for ScriptedAgent {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl Shared {
    fn note(&self, change: impl FnOnce(&mut Log)) {
        change(&mut self.log.lock().unwrap());
        self.changed.notify_waiters();
    }

    fn reply_to(&self, request: &Request) -> Reply {
        if let Some(handler) = self.paths.lock().unwrap().get(&request.path).cloned() {
            return handler(request);
        }
        let card = self.card.lock().unwrap().clone();
        if request.method == "GET" && request.path.split('?').next() == Some(card.path) {
            return self.card_reply(&card, request);
        }
        let method = request.rpc_method();
        if request.method != "POST" || method.is_empty() {
            return Reply::status(404, "no such page");
        }
        match self.methods.lock().unwrap().get(&method).cloned() {
            Some(handler) => handler(request),
            None => Reply::error(-32601, "Method not found"),
        }
    }

    fn card_reply(&self, card: &Card, request: &Request) -> Reply {
        let is_known = card.etag.is_some() && request.header("if-none-match") == card.etag.as_deref();
        let mut reply = if is_known {
            Reply::status(304, "")
        } else {
            Reply::bytes_of("application/json", &card.body(&self.url))
        };
        for (name, value) in [("ETag", &card.etag), ("Cache-Control", &card.cache_control)] {
            if let Some(value) = value {
                reply = reply.header(name, value);
            }
        }
        reply
    }
}

async fn serve(listener: TcpListener, tls: Option<TlsAcceptor>, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = shared.stop.wait() => break,
        };
        let Ok((socket, _)) = accepted else { continue };
        socket.set_nodelay(true).expect("nodelay");
        let (shared, tls) = (Arc::clone(&shared), tls.clone());
        let number = shared.log.lock().unwrap().connections;
        shared.note(|log| log.connections += 1);
        connections.spawn(async move {
            match tls {
                None => talk(socket, (number, &[]), &shared).await,
                Some(tls) => match tls.accept(socket).await {
                    Ok(socket) => {
                        let shown = socket.get_ref().1.peer_certificates().and_then(|chain| chain.first());
                        let shown = shown.map(|certificate| certificate.to_vec()).unwrap_or_default();
                        talk(socket, (number, &shown), &shared).await
                    }
                    Err(error) => eprintln!("scripted agent: TLS handshake failed: {error}"),
                },
            }
            shared.note(|log| log.closed += 1);
        });
    }
    drop(listener);
    connections.shutdown().await;
}

async fn talk(
    mut socket: impl AsyncRead + AsyncWrite + Unpin,
    (connection, certificate): (usize, &[u8]),
    shared: &Shared,
) {
    let mut buffer = Vec::new();
    while let Ok(Some(mut request)) = read_request(&mut socket, &mut buffer).await {
        request.connection = connection;
        request.certificate = certificate.to_vec();
        request.number = shared.log.lock().unwrap().requests.len();
        shared.note(|log| log.requests.push(request.clone()));
        let reply = shared.reply_to(&request);
        let mut player = Player { socket: &mut socket, buffer: &mut buffer, request: &request };
        match player.play(&reply).await {
            Ok(goes_on) => {
                shared.note(|log| log.answered.push(request.number));
                if !goes_on {
                    break;
                }
            }
            Err(_) => {
                shared.note(|log| log.left.push(request.number));
                return;
            }
        }
    }
    if let Err(error) = socket.shutdown().await {
        eprintln!("scripted agent: the client was gone first: {error}");
    }
}
