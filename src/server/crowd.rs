//! A cap on the connections of a listener: those beyond it are closed at once, before a handshake costs anything.
//!
//! Not here: what one caller may have (see `gateway::shares`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use pingora::apps::ServerApp;
use pingora::protocols::Stream;
use pingora::server::ShutdownWatch;
use tokio::sync::Semaphore;

use crate::telemetry::label::Refusal;
use crate::telemetry::metrics::Metrics;

/// An application with room for so many connections.
pub(super) struct Crowd<A> {
    app: Arc<A>,
    room: Semaphore,
    metrics: Arc<Metrics>,
    /// Whether it was full at the last connection: said once each time.
    was_full: AtomicBool,
}

impl<A> Crowd<A> {
    /// Room for `most` connections.
    pub(super) fn new(app: A, most: usize, metrics: Arc<Metrics>) -> Self {
        let room = Semaphore::new(most.clamp(1, Semaphore::MAX_PERMITS));
        Self { app: Arc::new(app), room, metrics, was_full: AtomicBool::new(false) }
    }
}

#[async_trait]
impl<A: ServerApp + Send + Sync + 'static> ServerApp for Crowd<A> {
    async fn process_new(self: &Arc<Self>, stream: Stream, shutdown: &ShutdownWatch) -> Option<Stream> {
        let Ok(_place) = self.room.try_acquire() else {
            self.metrics.refused(Refusal::Overloaded);
            if !self.was_full.swap(true, Ordering::Relaxed) {
                tracing::warn!(
                    "a listener has as many connections as limits.connections allows; more are closed"
                );
            }
            return None;
        };
        self.was_full.store(false, Ordering::Relaxed);
        self.app.process_new(stream, shutdown).await
    }

    async fn cleanup(&self) {
        self.app.cleanup().await;
    }
}
