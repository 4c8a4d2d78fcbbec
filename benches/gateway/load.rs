//! The load: a number of connections, each of which sends the next request as soon as it has its
//! response.

use std::sync::Arc;
use std::time::{Duration, Instant};

use memchr::memmem;
use tokio::task::JoinSet;

use super::connection::{ClientConnection, ClientTransport};

/// A request, its port, and the text that every good response contains.
#[derive(Clone)]
pub(crate) struct Question {
    pub(crate) port: u16,
    pub(crate) transport: ClientTransport,
    /// The bytes of a request of HTTP/1.1, from which one of HTTP/2 is made where that is spoken.
    pub(crate) request: Arc<[u8]>,
    pub(crate) marker: &'static str,
}

/// Calls of each connection before anything is counted.
const WARM_UP: usize = 50;
/// Most calls of one period; an end for machines that are too fast.
const MOST: usize = 1_000_000;

/// Connections that are open and warm.
pub(crate) struct Load {
    connections: Vec<ClientConnection>,
    question: Question,
}

impl Load {
    /// Opens connections and warms them up.
    pub(crate) async fn open(question: &Question, connections: usize) -> Self {
        let mut load = Self { connections: Vec::new(), question: question.clone() };
        for _ in 0..connections {
            let opened = ClientConnection::open(question.port, &question.transport, &question.request).await;
            load.connections.push(opened);
        }
        load.ask(Stop { at: None, after: WARM_UP }).await;
        load
    }

    /// Sends requests for a while, and returns the time of each call.
    pub(crate) async fn run(&mut self, period: Duration) -> Vec<Duration> {
        let after = MOST / self.connections.len().max(1);
        self.ask(Stop { at: Some(Instant::now() + period), after }).await
    }

    /// Asks so many times on each connection.
    pub(crate) async fn run_calls(&mut self, calls: usize) {
        self.ask(Stop { at: None, after: calls }).await;
    }

    async fn ask(&mut self, stop: Stop) -> Vec<Duration> {
        let mut all = JoinSet::new();
        for connection in self.connections.drain(..) {
            all.spawn(one(connection, self.question.clone(), stop));
        }
        let mut taken = Vec::new();
        while let Some(done) = all.join_next().await {
            let (connection, mut times) = done.unwrap();
            self.connections.push(connection);
            taken.append(&mut times);
        }
        taken
    }
}

#[derive(Clone, Copy)]
struct Stop {
    at: Option<Instant>,
    after: usize,
}

async fn one(
    mut connection: ClientConnection,
    question: Question,
    stop: Stop,
) -> (ClientConnection, Vec<Duration>) {
    let mut times = Vec::with_capacity(4096);
    let marker = memmem::Finder::new(question.marker);
    let mut begun = Instant::now();
    while times.len() < stop.after && stop.at.is_none_or(|at| begun < at) {
        let (answer, is_ok) = connection.exchange(&question.request).await;
        let good = is_ok && marker.find(answer).is_some();
        assert!(good, "port {} answers: {}", question.port, String::from_utf8_lossy(answer));
        let done = Instant::now();
        times.push(done - begun);
        begun = done;
    }
    (connection, times)
}
