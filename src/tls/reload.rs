//! Certificate reload: changed files are read again, and the operator is warned of expiries in
//! time.
//!
//! See `listener` for the use of the files.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use pingora::server::ShutdownWatch;
use pingora::services::background::BackgroundService;
use tokio::runtime::Builder;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::{info, warn};

use super::listener::TlsListener;
use crate::config::Pem;
use crate::file_watcher::FileWatcher;
use crate::sync::lock;

/// The interval of the checks of files. A changed file is read when it has stayed the same for one
/// interval: a key and its certificate are two files.
const CHECK_INTERVAL: Duration = Duration::from_secs(2);
/// The interval of repeated warnings.
const REMIND: Duration = Duration::from_secs(24 * 3600);
/// The time before an expiry at which warnings begin, in seconds.
pub(crate) const EXPIRY_WARNING_SECONDS: i64 = 30 * 86_400;

/// The service that watches the files of all listeners. Needed even without TLS: without it SIGHUP
/// ends the process.
pub(crate) struct CertificateReloader {
    endpoints: Vec<Arc<TlsListener>>,
    /// Taken when the service starts.
    hangups: Mutex<Option<Signal>>,
}

impl CertificateReloader {
    /// Watches these listeners, and obeys `hangups`: those too that came before the service
    /// started.
    pub(crate) fn new(endpoints: Vec<Arc<TlsListener>>, hangups: Option<Signal>) -> Self {
        Self { endpoints, hangups: Mutex::new(hangups) }
    }
}

/// Returns a receiver of SIGHUP, which ends the process until there is one. `None`: it cannot be
/// received.
pub(crate) fn hangups() -> Option<Signal> {
    let runtime = Builder::new_current_thread().enable_io().build();
    let hangups = runtime.and_then(|runtime| {
        // The receiver outlives this runtime: any other of the process delivers to it.
        let _entered = runtime.enter();
        signal(SignalKind::hangup())
    });
    if let Err(error) = &hangups {
        warn!(%error, "failed to receive SIGHUP, certificate reload by signal is off");
    }
    hangups.ok()
}

#[async_trait]
impl BackgroundService for CertificateReloader {
    async fn start(&self, mut shutdown: ShutdownWatch) {
        let hangups = lock(&self.hangups).take();
        let Some(mut hangups) = hangups else { return };
        let mut watched: Vec<_> =
            self.endpoints.iter().map(|endpoint| WatchedListener::new(endpoint)).collect();
        let mut reminded = Instant::now();
        watched.iter().for_each(WatchedListener::warn_expiring);
        loop {
            let told = tokio::select! {
                // Until then SIGHUP is obeyed, while connections are drained too.
                _ = shutdown.wait_for(|ends| *ends) => return,
                _ = hangups.recv() => true,
                () = tokio::time::sleep(CHECK_INTERVAL) => false,
            };
            if told {
                info!(listeners = watched.len(), "received SIGHUP, reloading certificates");
            }
            watched.iter_mut().for_each(|one| one.look(told, SystemTime::now()));
            self.endpoints.iter().for_each(|endpoint| endpoint.failures.sweep(Instant::now()));
            if reminded.elapsed() >= REMIND {
                reminded = Instant::now();
                watched.iter().for_each(WatchedListener::warn_expiring);
            }
        }
    }
}

/// A listener and the last state of its files.
struct WatchedListener<'a> {
    endpoint: &'a TlsListener,
    watcher: FileWatcher,
    looked: SystemTime,
}

impl<'a> WatchedListener<'a> {
    fn new(endpoint: &'a TlsListener) -> Self {
        Self { endpoint, watcher: FileWatcher::of(files(endpoint)), looked: SystemTime::now() }
    }

    fn look(&mut self, told: bool, now: SystemTime) {
        self.endpoint.keep_sessions_of(self.looked, now);
        self.looked = now;
        let has_settled = self.watcher.has_settled(files(self.endpoint));
        if told {
            self.watcher.accept();
        }
        if told || has_settled {
            self.reload(now);
        }
    }

    fn reload(&self, now: SystemTime) {
        let listener = self.endpoint.address();
        match self.endpoint.reload(now) {
            Ok(()) => {
                info!(%listener, "certificates reloaded");
                self.warn_expiring();
            }
            Err(problem) => {
                warn!(%listener, error = %problem, "failed to reload certificates");
            }
        }
    }

    /// Warns of expiries soon to come.
    fn warn_expiring(&self) {
        let listener = self.endpoint.address();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
        let now = i64::try_from(now).unwrap_or(i64::MAX);
        for (kind, name, end) in self.endpoint.current().ends() {
            let days = (end - now).div_euclid(86_400);
            // Revocation lists are short-lived by nature: a warning is due only if none has
            // replaced an expired one.
            match end - now {
                ..=0 => warn!(%listener, kind, name, "has expired"),
                left if left < EXPIRY_WARNING_SECONDS && kind != "crl" => {
                    let within = if days < 7 { "expires within 7 days" } else { "expires within 30 days" };
                    warn!(%listener, kind, name, days, "{within}");
                }
                _ => {}
            }
        }
    }
}

/// Returns the files of a listener.
fn files(endpoint: &TlsListener) -> impl Iterator<Item = &Path> {
    let written = endpoint.written();
    let pairs = written.certificates.iter().flat_map(|pair| [&pair.certificate, &pair.key]);
    let clients = written.client_auth.iter().flat_map(|clients| clients.ca.iter().chain(&clients.crl));
    pairs.chain(clients).filter_map(Pem::path)
}
