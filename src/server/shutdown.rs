//! When the process ends: not before the calls under way are answered, and not later than it was told.
//!
//! Pingora's own wait is a fixed time, whether anything runs or not. Not here: handing sockets over, which is Pingora's.

use std::time::Duration;

use async_trait::async_trait;
use pingora::server::{ShutdownSignal, ShutdownSignalWatch};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::Instant;
use tracing::info;

use crate::gateway::Bridge;

/// How often it is looked whether all calls are answered.
const LOOK: Duration = Duration::from_millis(50);

/// Waits for signals on behalf of a bridge.
pub(super) struct Patient {
    /// Whose calls are waited for.
    pub(super) bridge: Bridge,
    /// The least time between being told and ending: load balancers have to notice.
    pub(super) grace: Duration,
    /// The longest.
    pub(super) drain: Duration,
}

#[async_trait]
impl ShutdownSignalWatch for Patient {
    async fn recv(&self) -> ShutdownSignal {
        let signals = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::quit()].map(signal);
        let [Ok(mut terminate), Ok(mut interrupt), Ok(mut quit)] = signals else {
            // Without signals the process can only be killed.
            return std::future::pending().await;
        };
        tokio::select! {
            _ = interrupt.recv() => ShutdownSignal::FastShutdown,
            _ = quit.recv() => {
                self.bridge.close();
                ShutdownSignal::GracefulUpgrade
            }
            _ = terminate.recv() => {
                self.drained(&mut terminate, &mut interrupt).await;
                ShutdownSignal::FastShutdown
            }
        }
    }
}

impl Patient {
    /// Waits until nothing runs any more; a second signal ends the wait.
    async fn drained(&self, terminate: &mut Signal, interrupt: &mut Signal) {
        info!(running = self.bridge.running(), "told to end; calls under way are finished first");
        self.bridge.close();
        let begun = Instant::now();
        loop {
            let (waited, running) = (begun.elapsed(), self.bridge.running());
            if (running == 0 && waited >= self.grace) || waited >= self.drain.max(self.grace) {
                info!(running, "ending");
                return;
            }
            tokio::select! {
                _ = terminate.recv() => return,
                _ = interrupt.recv() => return,
                () = tokio::time::sleep(LOOK) => {}
            }
        }
    }
}
