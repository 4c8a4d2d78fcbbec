//! When the process ends: not before the calls under way are answered, and not later than it was told.
//!
//! Pingora's own wait is a fixed time, whether anything runs or not. The process that takes the
//! sockets over is found in `upgrade`.

use std::time::Duration;

use async_trait::async_trait;
use pingora::server::{ShutdownSignal, ShutdownSignalWatch};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::{error, info};

use super::upgrade::Upgrade;
use crate::gateway::Bridge;

/// How often it is looked whether all calls are answered.
const LOOK: Duration = Duration::from_millis(50);

/// Waits for signals on behalf of a bridge.
pub(super) struct Patient {
    /// Whose calls are waited for.
    pub(super) bridge: Bridge,
    /// The least time between being told and ending: load balancers have to notice.
    pub(super) grace: Duration,
    /// How another process takes the sockets over.
    pub(super) upgrade: Upgrade,
}

#[async_trait]
impl ShutdownSignalWatch for Patient {
    async fn recv(&self) -> ShutdownSignal {
        let signals = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::quit()].map(signal);
        let [Ok(mut terminate), Ok(mut interrupt), Ok(mut quit)] = signals else {
            // Without signals the process can only be killed.
            return std::future::pending().await;
        };
        loop {
            let offer = async {
                quit.recv().await;
                self.upgrade.accept_successor().await
            };
            tokio::select! {
                _ = interrupt.recv() => return ShutdownSignal::FastShutdown,
                _ = terminate.recv() => return self.end(terminate, interrupt).await,
                offered = offer => match offered {
                    Ok(()) => {
                        info!(running = self.bridge.running(), "hands sockets over; calls under way are finished first");
                        self.bridge.close();
                        return ShutdownSignal::GracefulUpgrade;
                    }
                    Err(problem) => error!(%problem, "sockets are not handed over; this process goes on"),
                },
            }
        }
    }
}

impl Patient {
    /// Goes on taking connections for the grace, then leaves the rest to Pingora (which closes the listeners and waits out the
    /// drain), and ends the process as soon as nothing runs any more, or on a second signal.
    async fn end(&self, mut terminate: Signal, mut interrupt: Signal) -> ShutdownSignal {
        info!(running = self.bridge.running(), "told to end; calls under way are finished first");
        self.bridge.close();
        tokio::select! {
            _ = terminate.recv() => return ShutdownSignal::FastShutdown,
            _ = interrupt.recv() => return ShutdownSignal::FastShutdown,
            () = tokio::time::sleep(self.grace) => {}
        }
        let bridge = self.bridge.clone();
        tokio::spawn(async move {
            while bridge.running() > 0 {
                tokio::select! {
                    _ = terminate.recv() => break,
                    _ = interrupt.recv() => break,
                    () = tokio::time::sleep(LOOK) => {}
                }
            }
            // Connections that just got their last answer are given the time to read it.
            tokio::time::sleep(LOOK).await;
            info!(running = bridge.running(), "ending");
            std::process::exit(0)
        });
        ShutdownSignal::GracefulTerminate
    }
}
