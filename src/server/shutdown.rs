//! The end of the process: not before the calls under way have their responses, and not later than
//! configured.
//!
//! Pingora's own wait is a fixed time, even if nothing runs. The listeners end first: no more
//! connections are accepted, and connections are ended only when each of them has had its first
//! request. A new connection is on its way to that: its handshake waits for its turn, its header is
//! being sent. Without this the connections that a listener accepted last would be closed without a
//! response. See `upgrade` for the process that takes the sockets over.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use nix::libc::SIGXFSZ;
use pingora::apps::ServerApp;
use pingora::server::{ListenFds, ShutdownSignal, ShutdownSignalWatch, ShutdownWatch};
use pingora::services::listening::Service;
use tokio::runtime::Builder;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tracing::{error, info, warn};

use super::end_process;
use super::upgrade::{Serves, UpgradeCoordinator};
use crate::config::Shutdown;
use crate::gateway::Gateway;
use crate::sync::lock;

/// The interval of checks for calls under way.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// The time for which Pingora may still take connections while it hands the sockets over.
const HANDOVER: Duration = Duration::from_secs(6);

/// Makes a write beyond the limit of file sizes fail, as on a full disk: without this it ends the
/// process.
pub(crate) fn survive_file_size_limit() {
    let runtime = Builder::new_current_thread().enable_io().build();
    let handled = runtime.and_then(|runtime| {
        // The handler stays when this runtime and the receiver are gone.
        let _entered = runtime.enter();
        signal(SignalKind::from_raw(SIGXFSZ)).map(drop)
    });
    if let Err(error) = handled {
        warn!(%error, "failed to handle SIGXFSZ, the limit of file sizes ends the process");
    }
}

/// Waits for signals on behalf of a gateway.
pub(super) struct DrainSignal {
    /// The gateway that is drained.
    pub(super) gateway: Gateway,
    /// The minimum time between signal and end, because load balancers have to notice, and the
    /// maximum.
    pub(super) shutdown: Shutdown,
    /// The handover of the sockets to another process.
    pub(super) upgrade: UpgradeCoordinator,
    /// The end of the listeners.
    pub(super) listeners: ListenerShutdown,
    /// The signals, until the wait begins.
    pub(super) signals: Mutex<Option<EndSignals>>,
}

/// The signals that end the process.
pub(crate) struct EndSignals {
    terminate: Signal,
    interrupt: Signal,
    /// Ends the process after its sockets were handed over.
    quit: Signal,
}

#[async_trait]
impl ShutdownSignalWatch for DrainSignal {
    async fn recv(&self) -> ShutdownSignal {
        let Some(mut ending) = lock(&self.signals).take() else {
            // Without signals the process can only be killed.
            return std::future::pending().await;
        };
        loop {
            let offer = async {
                ending.quit.recv().await;
                self.upgrade.accept_successor(&self.gateway).await
            };
            tokio::select! {
                _ = ending.interrupt.recv() => {
                    self.gateway.flush_records().await;
                    return ShutdownSignal::FastShutdown;
                }
                _ = ending.terminate.recv() => return self.end(ending).await,
                offered = offer => match offered {
                    Ok(serves) => {
                        info!(running = self.gateway.running(), "handing over sockets, draining calls");
                        let until = Instant::now() + HANDOVER + self.whole();
                        tokio::spawn(retire(self.gateway.clone(), self.listeners.clone(), serves));
                        self.finish(ending, HANDOVER, until);
                        return ShutdownSignal::GracefulUpgrade;
                    }
                    Err(problem) => error!(error = %problem, "failed to hand over sockets, this process stays"),
                },
            }
        }
    }
}

impl DrainSignal {
    /// Starts the wait for the end of the process (see [`finish`]).
    fn finish(&self, ending: EndSignals, first: Duration, until: Instant) {
        tokio::spawn(finish(self.gateway.clone(), self.listeners.clone(), ending, first, until));
    }

    /// Returns the maximum time between the signal and the end of the process.
    fn whole(&self) -> Duration {
        self.shutdown.grace.saturating_add(self.shutdown.drain)
    }

    /// Accepts connections during the grace. Then Pingora closes the listeners, and the process
    /// ends as soon as nothing runs any more, when its time is over, or on a second signal.
    async fn end(&self, mut ending: EndSignals) -> ShutdownSignal {
        info!(running = self.gateway.running(), "received end signal, draining calls");
        let until = Instant::now() + self.whole();
        self.gateway.close();
        tokio::select! {
            () = ending.received() => return ShutdownSignal::FastShutdown,
            () = tokio::time::sleep(self.shutdown.grace) => {}
        }
        self.finish(ending, Duration::ZERO, until);
        ShutdownSignal::GracefulTerminate
    }
}

impl EndSignals {
    /// Receives the signals from now on. Until then each of them ends the process at once, without
    /// a response to the calls under way. `None`: they cannot be received.
    pub(crate) fn register() -> Option<Self> {
        let runtime = Builder::new_current_thread().enable_io().build();
        let signals = runtime.and_then(|runtime| {
            // The receivers outlive this runtime: any other of the process delivers to them.
            let _entered = runtime.enter();
            let [terminate, interrupt, quit] =
                [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::quit()].map(signal);
            Ok(Self { terminate: terminate?, interrupt: interrupt?, quit: quit? })
        });
        if let Err(error) = &signals {
            warn!(%error, "failed to receive SIGTERM, SIGINT and SIGQUIT, each ends the process at once");
        }
        signals.ok()
    }

    /// Waits for SIGTERM or SIGINT.
    pub(crate) async fn received(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// Accepts no more connections once the successor does: so one of the two accepts at each time, and
/// none is refused. Streams that never end by themselves are ended then, and reconnect to the
/// successor.
async fn retire(gateway: Gateway, listeners: ListenerShutdown, serves: Option<Serves>) {
    let begun = Instant::now();
    if let Some(mut serves) = serves {
        match tokio::time::timeout(HANDOVER, serves.wait_for(|serves| *serves)).await {
            Ok(Ok(_)) => {
                listeners.close();
                info!("successor accepts connections");
            }
            Ok(Err(_)) | Err(_) => warn!("successor did not report that it accepts connections"),
        }
    }
    gateway.close_after(HANDOVER.saturating_sub(begun.elapsed()));
}

/// Ends the process after `first` as soon as nothing runs any more, at `until`, or on a signal.
async fn finish(
    gateway: Gateway,
    listeners: ListenerShutdown,
    mut ending: EndSignals,
    first: Duration,
    until: Instant,
) {
    let done = async {
        tokio::time::sleep(first).await;
        // Twice: a connection may be in transfer between two components. And connections that just
        // got their last response are given the time to read it.
        let mut quiet = 0;
        while quiet < 2 && Instant::now() < until {
            tokio::time::sleep(POLL_INTERVAL).await;
            quiet = if gateway.running() == 0 && !listeners.has_fresh() { quiet + 1 } else { 0 };
        }
    };
    tokio::select! {
        () = ending.received() => {}
        () = done => {}
    }
    info!(running = gateway.running(), requests = gateway.requests(), "ending");
    gateway.flush_shared().await;
    gateway.flush_records().await;
    gateway.keep_all();
    end_process(0)
}

/// The interval of checks for connections that wait for their first request.
const FIRST_REQUEST_POLL_INTERVAL: Duration = Duration::from_millis(20);
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
    fn has_fresh(&self) -> bool {
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
                sleep(FIRST_REQUEST_POLL_INTERVAL).await;
            }
        };
        if timeout(within, answered).await.is_err() {
            tracing::debug!("ending connections without a request");
        }
        self.quiet.send_replace(true);
    }

    /// Holds the mark of a connection of HTTP/2 a little longer: its first request comes on a
    /// stream of its own.
    pub(crate) async fn linger(fresh: Option<FreshConnection>) {
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
