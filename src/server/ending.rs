//! The end of the listeners: first no more connections are accepted, and connections are ended only
//! when each of them has had its first request.
//!
//! A new connection is on its way to that: its handshake waits for its turn, its header is being
//! sent. Without this the connections that a listener accepted last would be closed without a
//! response. See `shutdown` for the end of the process.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use pingora::apps::ServerApp;
use pingora::server::{ListenFds, ShutdownWatch};
use pingora::services::listening::Service;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

/// The interval of checks for connections that wait for their first request.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// The time in which connections may still send a request after the listeners have closed.
const LAST_REQUEST_WINDOW: Duration = Duration::from_secs(1);

/// The end of all listeners of one process. Clones are the same.
#[derive(Clone)]
pub(crate) struct ListenerShutdown {
    /// True if the listeners must accept no more.
    closed: watch::Sender<bool>,
    /// True if connections must end.
    quiet: watch::Sender<bool>,
    fresh: Arc<AtomicUsize>,
}

/// A connection that has not had its first request yet.
pub(crate) struct FreshConnection(Arc<AtomicUsize>);

impl Drop for FreshConnection {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl ListenerShutdown {
    /// Creates the state in which no listener has closed.
    pub(crate) fn new() -> Self {
        Self { closed: watch::Sender::new(false), quiet: watch::Sender::new(false), fresh: Arc::default() }
    }

    /// Counts a new connection, for as long as this lives.
    pub(crate) fn fresh(&self) -> FreshConnection {
        self.fresh.fetch_add(1, Ordering::AcqRel);
        FreshConnection(self.fresh.clone())
    }

    /// Returns true if a connection still waits for its first request.
    pub(crate) fn has_fresh(&self) -> bool {
        self.fresh.load(Ordering::Acquire) > 0
    }

    /// Makes the listeners accept no more; others that share their sockets do.
    pub(crate) fn close(&self) {
        self.closed.send_replace(true);
    }

    /// Returns the signal for connections to end.
    pub(crate) fn quiet(&self) -> ShutdownWatch {
        self.quiet.subscribe()
    }

    /// Signals connections to end once each has had its first request, and at the latest when the
    /// last one was given this time for it.
    pub(crate) async fn end_connections(&self, within: Duration) {
        sleep(LAST_REQUEST_WINDOW).await;
        let answered = async {
            while self.has_fresh() {
                sleep(POLL_INTERVAL).await;
            }
        };
        if timeout(within, answered).await.is_err() {
            tracing::debug!("ending connections without a request");
        }
        self.quiet.send_replace(true);
    }

    /// Holds the mark of a connection of HTTP/2 a little longer: its first request comes on a
    /// stream of its own.
    pub(crate) async fn linger(fresh: FreshConnection) {
        sleep(LAST_REQUEST_WINDOW).await;
        drop(fresh);
    }
}

/// The service of a listener, which accepts until the process ends or another one has the socket.
pub(super) struct YieldingService<A> {
    pub(super) service: Service<A>,
    pub(super) ending: ListenerShutdown,
}

#[async_trait]
impl<A: ServerApp + Send + Sync + 'static> pingora::services::Service for YieldingService<A> {
    async fn start_service(
        &mut self,
        fds: Option<ListenFds>,
        mut shutdown: ShutdownWatch,
        listeners_per_fd: usize,
    ) {
        let (stop, stopped) = watch::channel(false);
        let mut closed = self.ending.closed.subscribe();
        tokio::spawn(async move {
            tokio::select! {
                Ok(_) = shutdown.wait_for(|ends| *ends) => {}
                Ok(_) = closed.wait_for(|closed| *closed) => {}
                else => {}
            }
            stop.send_replace(true);
            stop.closed().await;
        });
        self.service.start_service(fds, stopped, listeners_per_fd).await;
    }

    fn name(&self) -> &str {
        self.service.name()
    }

    fn threads(&self) -> Option<usize> {
        self.service.threads()
    }

    fn listen_addresses(&self) -> Option<Vec<String>> {
        self.service.listen_addresses()
    }
}
