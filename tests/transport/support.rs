//! A peer that writes exactly the bytes of the test.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use mcp_a2a_gateway::transport::{
    AddressPolicy, ClientLimits, ExchangeTimeouts, HttpClient, Response, TargetSettings, TransportError,
    Upstream,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

pub(crate) const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

/// The connections and requests that the server has seen.
#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) accepts: AtomicUsize,
    pub(crate) requests: Mutex<Vec<String>>,
}

impl Seen {
    pub(crate) fn accepts(&self) -> usize {
        self.accepts.load(Ordering::SeqCst)
    }

    pub(crate) fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

/// One connection, as the server sees it.
pub(crate) struct Peer {
    pub(crate) number: usize,
    stream: TcpStream,
    seen: Arc<Seen>,
}

impl Peer {
    /// Reads one request, its body included.
    pub(crate) async fn hear(&mut self) -> Option<String> {
        let mut text = Vec::new();
        loop {
            if let Some(end) = text.windows(4).position(|four| four == b"\r\n\r\n") {
                let head = String::from_utf8_lossy(&text[..end]).to_lowercase();
                let length = head
                    .lines()
                    .find_map(|line| line.strip_prefix("content-length: "))
                    .map_or(0, |length| length.parse().unwrap());
                if text.len() >= end + 4 + length {
                    break;
                }
            }
            if self.stream.read_buf(&mut text).await.ok()? == 0 {
                return None;
            }
        }
        let text = String::from_utf8(text).unwrap();
        self.seen.requests.lock().unwrap().push(text.clone());
        Some(text)
    }

    /// Reads the head of one request, and perhaps a part of its body.
    pub(crate) async fn hear_head(&mut self) {
        let mut text = Vec::new();
        while !text.windows(4).any(|four| four == b"\r\n\r\n") {
            assert!(self.stream.read_buf(&mut text).await.unwrap() > 0);
        }
    }

    /// Keeps the connection open, and reads nothing.
    pub(crate) async fn stall(&mut self) {
        std::future::pending::<()>().await;
    }

    pub(crate) async fn say(&mut self, text: impl AsRef<[u8]>) -> bool {
        self.stream.write_all(text.as_ref()).await.is_ok()
    }

    /// Keeps the connection open until the client closes it.
    pub(crate) async fn wait(&mut self) {
        let mut buffer = [0; 1024];
        while self.stream.read(&mut buffer).await.is_ok_and(|read| read > 0) {}
    }
}

/// Starts a server that treats each connection by the script.
pub(crate) async fn serve<F, Fut>(script: F) -> (SocketAddr, Arc<Seen>)
where
    F: Fn(Peer) -> Fut + Send + 'static,
    Fut: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let seen = Arc::new(Seen::default());
    let shared = Arc::clone(&seen);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let number = shared.accepts.fetch_add(1, Ordering::SeqCst);
            tokio::spawn(script(Peer { number, stream, seen: Arc::clone(&shared) }));
        }
    });
    (address, seen)
}

/// A server that answers every request on every connection with the same bytes.
pub(crate) async fn always(answer: impl Into<Vec<u8>>) -> (SocketAddr, Arc<Seen>) {
    let answer = answer.into();
    serve(move |mut peer| {
        let answer = answer.clone();
        async move { while peer.hear().await.is_some() && peer.say(&answer).await {} }
    })
    .await
}

/// A server that answers the first request of each connection, then closes it.
pub(crate) async fn once(answer: impl Into<Vec<u8>>) -> (SocketAddr, Arc<Seen>) {
    let answer = answer.into();
    serve(move |mut peer| {
        let answer = answer.clone();
        async move {
            peer.hear().await;
            peer.say(&answer).await;
        }
    })
    .await
}

pub(crate) fn client() -> HttpClient {
    HttpClient::new(ClientLimits::default())
}

pub(crate) fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// Long enough for a loaded machine; tests of a deadline shorten the one that they are about.
pub(crate) const PATIENT: ExchangeTimeouts = ExchangeTimeouts {
    connect: Duration::from_secs(10),
    first_byte: Duration::from_secs(10),
    idle: Duration::from_secs(10),
    total: Duration::from_secs(20),
};

pub(crate) fn settings(address: SocketAddr) -> TargetSettings {
    TargetSettings {
        timeouts: PATIENT,
        ..TargetSettings::new(format!("http://{address}").parse().unwrap(), AddressPolicy::Trusted)
    }
}

pub(crate) fn target(address: SocketAddr) -> Upstream {
    Upstream::new(settings(address)).unwrap()
}

pub(crate) fn post(body: &str) -> Request<Bytes> {
    Request::post("/rpc").body(Bytes::copy_from_slice(body.as_bytes())).unwrap()
}

pub(crate) async fn call(
    client: &HttpClient,
    target: &Upstream,
    body: &str,
) -> Result<Bytes, TransportError> {
    client.send(target, post(body)).await?.collect(1 << 20).await
}

/// Reads the body until it ends or fails.
pub(crate) async fn drain(reply: &mut Response) -> (Vec<u8>, Option<TransportError>) {
    let mut read = Vec::new();
    loop {
        match reply.chunk().await {
            Ok(Some(data)) => read.extend_from_slice(&data),
            Ok(None) => return (read, None),
            Err(error) => return (read, Some(error)),
        }
    }
}
