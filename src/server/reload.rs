//! Triggers of a reload: SIGHUP, and changed files.
//!
//! See `gateway::reload` for the reload itself, and `tls` for certificates, which follow SIGHUP and
//! their files on their own.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use pingora::server::ShutdownWatch;
use pingora::services::background::BackgroundService;
use tokio::signal::unix::Signal;
use tokio::sync::Mutex;
use tracing::{debug, warn};

use crate::config::Settings;
use crate::file_watcher::FileWatcher;
use crate::gateway::{LoadSettings, ReloadCause, ReloadError, Reloader};

/// Interval of the checks of files (`reload.watch`). A change is applied after the second check that
/// finds it, when all files that belong together have been written.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The configuration file of a process, to be read again.
pub(crate) struct ReloadSource {
    /// The file.
    pub(crate) file: PathBuf,
    /// Reads it, with everything that it names.
    pub(crate) load: Arc<LoadSettings>,
}

/// Reloads the configuration on SIGHUP, and when its files change if that is on.
pub(super) struct ConfigWatcher {
    reloader: Arc<Reloader>,
    /// Taken when the service starts. `None`: SIGHUP cannot be received.
    hangups: Mutex<Option<Signal>>,
    /// The configuration file, which is watched whatever else is.
    file: PathBuf,
    /// The files as they were at the start, if they are watched. Taken when the service starts.
    watcher: Mutex<Option<FileWatcher>>,
}

impl ConfigWatcher {
    /// Creates the service for the file of these settings, which has been read a moment ago.
    pub(super) fn new(
        reloader: Arc<Reloader>,
        hangups: Option<Signal>,
        file: PathBuf,
        settings: &Settings,
    ) -> Self {
        let files = std::iter::once(&file).chain(&settings.files).map(PathBuf::as_path);
        let watcher = settings.reload.watch.then(|| FileWatcher::of(files));
        Self { reloader, hangups: Mutex::new(hangups), file, watcher: Mutex::new(watcher) }
    }
}

#[async_trait]
impl BackgroundService for ConfigWatcher {
    async fn start(&self, mut shutdown: ShutdownWatch) {
        let mut hangups = self.hangups.lock().await.take();
        let mut watcher = self.watcher.lock().await.take();
        // Files of a configuration that was rejected: their repair is a change, too.
        let mut rejected = Vec::new();
        let mut is_due = false;
        loop {
            let is_told = tokio::select! {
                _ = shutdown.wait_for(|ends| *ends) => return,
                () = received(&mut hangups) => true,
                () = tokio::time::sleep(CHECK_INTERVAL) => false,
            };
            // Whether they are watched may have changed by a request meanwhile.
            let has_changed = match self.files(&rejected).await {
                Some(files) => look(&mut watcher, files, is_told).await,
                None => {
                    watcher = None;
                    false
                }
            };
            let cause = match (is_told, has_changed || is_due) {
                (true, _) => ReloadCause::Signal,
                (false, true) => ReloadCause::File,
                (false, false) => continue,
            };
            let reloaded = self.reloader.reload(cause).await;
            is_due = matches!(reloaded, Err(ReloadError::Busy));
            match reloaded {
                Ok(_) => rejected.clear(),
                Err(ReloadError::Rejected(problems)) => {
                    rejected = problems.into_iter().filter_map(|problem| problem.file).collect();
                    rejected.dedup();
                }
                Err(ReloadError::Busy) => {
                    warn!("failed to reload configuration: too many reloads wait for their turn");
                }
            }
        }
    }
}

impl ConfigWatcher {
    /// Returns the files of the configuration; `None` if they are not watched.
    async fn files(&self, rejected: &[PathBuf]) -> Option<Vec<PathBuf>> {
        let files = self.reloader.watched_files().await?;
        Some(std::iter::once(self.file.clone()).chain(files).chain(rejected.iter().cloned()).collect())
    }
}

/// Waits for a signal, without end if none can be received.
async fn received(hangups: &mut Option<Signal>) {
    let is_received = match hangups {
        Some(hangups) => hangups.recv().await.is_some(),
        None => false,
    };
    if !is_received {
        std::future::pending::<()>().await;
    }
}

/// Checks files, which are read now if `are_read`. Returns true if they have changed and the change
/// is complete.
async fn look(watcher: &mut Option<FileWatcher>, files: Vec<PathBuf>, are_read: bool) -> bool {
    let mut known = watcher.take();
    let looked = tokio::task::spawn_blocking(move || {
        let paths = || files.iter().map(PathBuf::as_path);
        let has_settled = match &mut known {
            Some(known) => {
                let has_settled = known.has_settled(paths());
                if are_read {
                    known.accept();
                }
                has_settled
            }
            None => {
                known = Some(FileWatcher::of(paths()));
                false
            }
        };
        (known, has_settled)
    });
    match looked.await {
        Ok((known, has_settled)) => {
            *watcher = known;
            has_settled
        }
        Err(error) => {
            debug!(%error, "failed to check files of configuration");
            false
        }
    }
}
