//! The threads on which TLS handshakes run.
//!
//! Any client can cause a handshake, and the CPU time of its signatures, before it is
//! authenticated. On threads of their own, handshakes do not delay the requests that the threads of
//! a listener serve, and no more of them compute at a time than there are threads; the others wait
//! for their turn, within `limits.header_read`.

use std::io;

use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;

/// Runs handshakes. One for all listeners.
pub struct HandshakeThreads {
    /// Always there until this is dropped.
    runtime: Option<Runtime>,
}

impl HandshakeThreads {
    /// Starts this many threads.
    ///
    /// # Errors
    ///
    /// The error of the operating system.
    pub fn start(threads: usize) -> io::Result<Self> {
        // Sockets stay with the driver of the threads that accepted them, and timers with
        // Pingora's.
        let mut builder = Builder::new_multi_thread();
        let runtime = builder.worker_threads(threads.max(1)).thread_name("handshakes").build()?;
        Ok(Self { runtime: Some(runtime) })
    }

    /// Runs one handshake to its end, or until the returned future is dropped. `None`: it panicked.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        handshake: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        let mut running = JoinSet::new();
        running.spawn_on(handshake, self.runtime.as_ref()?.handle());
        running.join_next().await.and_then(Result::ok)
    }
}

impl Drop for HandshakeThreads {
    fn drop(&mut self) {
        // Dropping a runtime waits for its threads, which panics on a thread of another one.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
