//! Connection of a client in memory: tests run requests in process, on a paused clock.
//!
//! [`TestConnection`] is the side of the gateway, [`TestClient`] that of the client.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, StatusCode};
use tokio::sync::watch;
use tokio::time::Instant;

use super::connection::{ClientConnection, ResponseHead, ResponseSink};
use crate::auth::ClientTlsInfo;
use crate::fault::{ClientGone, Fault};

/// Longest wait of a test, on its paused clock.
const TEST_TIMEOUT: Duration = Duration::from_secs(24 * 3600);

/// Part of the body of a request.
#[derive(Debug, Clone)]
pub(crate) enum BodyStep {
    /// These bytes arrive.
    Bytes(Bytes),
    /// No byte arrives for this time.
    Pause(Duration),
    /// The connection breaks.
    Lost,
}

/// Piece of the body of a response, with the time at which it was written.
#[derive(Debug, Clone)]
pub(crate) struct WrittenPiece {
    pub(crate) at: Instant,
    pub(crate) bytes: Bytes,
}

/// Response as far as it was written.
#[derive(Debug, Clone, Default)]
pub(crate) struct WrittenResponse {
    pub(crate) status: Option<StatusCode>,
    pub(crate) headers: HeaderMap,
    pub(crate) began: Option<Instant>,
    pub(crate) pieces: Vec<WrittenPiece>,
    pub(crate) ended: Option<Instant>,
    /// True if the connection closes after the response.
    pub(crate) closes: bool,
    /// True if the connection was ended before the end of the response.
    pub(crate) is_shut_down: bool,
    /// True if the client was told to send the body.
    pub(crate) was_continued: bool,
}

impl WrittenResponse {
    /// Returns the body so far as text.
    pub(crate) fn text(&self) -> String {
        self.pieces.iter().map(|piece| String::from_utf8_lossy(&piece.bytes)).collect()
    }
}

struct ConnectionState {
    written: Mutex<WrittenResponse>,
    changes: watch::Sender<u64>,
    is_gone: watch::Sender<bool>,
    fails_writes: AtomicBool,
    is_ending: AtomicBool,
}

/// Client side of a connection.
#[derive(Clone)]
pub(crate) struct TestClient(Arc<ConnectionState>);

impl TestClient {
    /// Returns the response as far as it was written.
    pub(crate) fn written(&self) -> WrittenResponse {
        self.0.written.lock().unwrap().clone()
    }

    /// Waits until the response fulfils a condition.
    pub(crate) async fn wait_for(&self, is_met: impl Fn(&WrittenResponse) -> bool) -> WrittenResponse {
        let mut changes = self.0.changes.subscribe();
        let met = async {
            loop {
                let written = self.written();
                if is_met(&written) {
                    return written;
                }
                changes.changed().await.unwrap();
            }
        };
        let waited = tokio::time::timeout(TEST_TIMEOUT, met).await;
        waited.unwrap_or_else(|_| panic!("not written: {:?}", self.written()))
    }

    /// Closes the connection.
    pub(crate) fn disconnect(&self) {
        self.0.is_gone.send_replace(true);
    }

    /// Lets every later write fail, while the connection seems open.
    pub(crate) fn fail_writes(&self) {
        self.0.fails_writes.store(true, Ordering::Release);
    }

    /// Lets the connection say that the process is about to end.
    pub(crate) fn end_process(&self) {
        self.0.is_ending.store(true, Ordering::Release);
    }
}

/// Gateway side of a connection, with one request.
pub(crate) struct TestConnection {
    head: Parts,
    body: VecDeque<BodyStep>,
    network: Option<IpAddr>,
    client: TestClient,
}

impl TestConnection {
    /// Creates the connection of a request, with its client side.
    pub(crate) fn new(head: Parts, body: Vec<BodyStep>, network: Option<IpAddr>) -> (Self, TestClient) {
        let client = TestClient(Arc::new(ConnectionState {
            written: Mutex::default(),
            changes: watch::Sender::new(0),
            is_gone: watch::Sender::new(false),
            fails_writes: AtomicBool::new(false),
            is_ending: AtomicBool::new(false),
        }));
        (Self { head, body: body.into(), network, client: client.clone() }, client)
    }

    fn write(&self, change: impl FnOnce(&mut WrittenResponse)) {
        change(&mut self.client.0.written.lock().unwrap());
        self.client.0.changes.send_modify(|count| *count += 1);
    }

    fn check_writable(&self) -> Result<(), ClientGone> {
        let state = &self.client.0;
        let fails = state.fails_writes.load(Ordering::Acquire) || *state.is_gone.borrow();
        if fails { Err(ClientGone) } else { Ok(()) }
    }
}

impl ResponseSink for TestConnection {
    fn head(&self) -> &Parts {
        &self.head
    }

    async fn write_head(&mut self, head: ResponseHead, end: bool) -> Result<(), ClientGone> {
        self.check_writable()?;
        self.write(|written| {
            assert!(written.status.is_none(), "a second head: {head:?}");
            let now = Instant::now();
            (written.status, written.headers, written.began) = (Some(head.status), head.headers, Some(now));
            written.ended = end.then_some(now);
        });
        Ok(())
    }

    async fn write_body(&mut self, bytes: Bytes, end: bool) -> Result<(), ClientGone> {
        self.check_writable()?;
        self.write(|written| {
            assert!(written.status.is_some() && written.ended.is_none(), "a piece outside of the body");
            let at = Instant::now();
            written.pieces.push(WrittenPiece { at, bytes });
            written.ended = end.then_some(at);
        });
        Ok(())
    }

    fn close_after_response(&mut self) {
        self.write(|written| written.closes = true);
    }

    async fn shut_down(&mut self) {
        self.write(|written| written.is_shut_down = true);
    }

    async fn disconnected(&mut self) {
        let mut gone = self.client.0.is_gone.subscribe();
        if gone.wait_for(|is_gone| *is_gone).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    fn is_shutting_down(&self) -> bool {
        self.client.0.is_ending.load(Ordering::Acquire)
    }
}

impl ClientConnection for TestConnection {
    fn client_network(&self) -> Option<IpAddr> {
        self.network
    }

    fn tls(&self) -> Option<&ClientTlsInfo> {
        None
    }

    fn is_tls(&self) -> bool {
        false
    }

    async fn continue_body(&mut self) -> Result<(), Fault> {
        self.write(|written| written.was_continued = true);
        Ok(())
    }

    async fn read_body(&mut self) -> Result<Option<Bytes>, Fault> {
        loop {
            match self.body.front() {
                None => return Ok(None),
                Some(BodyStep::Lost) => return Err(Fault::BodyIncomplete),
                Some(BodyStep::Pause(pause)) => tokio::time::sleep(*pause).await,
                Some(BodyStep::Bytes(_)) => {}
            }
            if let Some(BodyStep::Bytes(bytes)) = self.body.pop_front() {
                return Ok(Some(bytes));
            }
        }
    }

    fn set_read_timeout(&mut self, _timeout: Option<Duration>) -> Option<Duration> {
        None
    }
}
