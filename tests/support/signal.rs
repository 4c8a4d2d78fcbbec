//! A test's hand on the clock: a script waits for a signal instead of sleeping.

use std::sync::Arc;

use tokio::sync::Semaphore;

/// Each `fire` lets one wait go on, whether it waits already or not. Clones are the same signal.
#[derive(Clone, Debug)]
pub struct Signal(Arc<Semaphore>);

impl Signal {
    pub fn new() -> Self {
        Self(Arc::new(Semaphore::new(0)))
    }

    /// Lets one wait go on.
    pub fn fire(&self) {
        self.0.add_permits(1);
    }

    /// Lets every wait go on, now and later.
    pub fn open(&self) {
        self.0.add_permits(1 << 20);
    }

    pub async fn wait(&self) {
        self.0.acquire().await.expect("a signal is never closed").forget();
    }
}
