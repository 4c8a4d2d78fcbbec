//! A cap on the connections of a listener: those beyond it are closed at once, before a handshake costs anything.
//!
//! Not here: what one caller may have (see `gateway::shares`).

use std::pin::Pin;
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
    // Not an `async fn`, as in `deadline`: each connection would step through a larger thing.
    fn process_new<'life0, 'life1, 'async_trait>(
        self: &'life0 Arc<Self>,
        stream: Stream,
        shutdown: &'life1 ShutdownWatch,
    ) -> Pin<Box<dyn Future<Output = Option<Stream>> + Send + 'async_trait>>
    where
        'life0: 'async_trait,
        'life1: 'async_trait,
        Self: 'async_trait,
    {
        let Ok(place) = self.room.try_acquire() else {
            self.metrics.refused(Refusal::Overloaded);
            if !self.was_full.swap(true, Ordering::Relaxed) {
                tracing::warn!(
                    "a listener has as many connections as limits.connections allows; more are closed"
                );
            }
            return Box::pin(std::future::ready(None));
        };
        self.was_full.store(false, Ordering::Relaxed);
        let served = self.app.process_new(stream, shutdown);
        Box::pin(async move {
            let left = served.await;
            drop(place);
            left
        })
    }

    async fn cleanup(&self) {
        self.app.cleanup().await;
    }
}
