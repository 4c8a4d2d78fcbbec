//! The end of the process, as requests see it: when it has begun, and when the last answers are due.
//!
//! Not here: signals, and when the process itself ends (see `server::shutdown`).

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::config::Shutdown;

/// Most time between the moment at which answers are due and the end of the process.
const MAX_MARGIN: Duration = Duration::from_secs(5);

/// The end of the process. Begins once.
pub(super) struct DrainState {
    /// From its begin to the moment at which answers are due.
    within: Duration,
    /// When answers are due; `None` while nothing ends.
    due: watch::Sender<Option<Instant>>,
    hands_over: AtomicBool,
}

impl DrainState {
    /// Answers are due a quarter of the whole time, and at most [`MAX_MARGIN`], before the process ends:
    /// they are still to be written, kept on disk and read.
    pub(super) fn new(shutdown: Shutdown) -> Self {
        let whole = shutdown.grace.saturating_add(shutdown.drain);
        Self {
            within: whole.saturating_sub(MAX_MARGIN.min(whole / 4)),
            due: watch::Sender::new(None),
            hands_over: AtomicBool::new(false),
        }
    }

    /// Begins. The process goes on for `more` than its own time.
    pub(super) fn begin(&self, more: Duration) {
        let due = Instant::now() + self.within.saturating_add(more);
        self.due.send_if_modified(|known| {
            let is_first = known.is_none();
            known.get_or_insert(due);
            is_first
        });
    }

    /// Notes that another process takes over: it is told of all that is learnt to the very end.
    pub(super) fn hand_over(&self) {
        self.hands_over.store(true, Ordering::Release);
    }

    /// Whether another process takes over.
    pub(super) fn hands_over(&self) -> bool {
        self.hands_over.load(Ordering::Acquire)
    }

    pub(super) fn has_begun(&self) -> bool {
        self.due.borrow().is_some()
    }

    /// Whether calls can no longer wait for their agents.
    pub(super) fn is_due(&self) -> bool {
        self.due.borrow().is_some_and(|due| Instant::now() >= due)
    }

    /// Waits until the end begins.
    pub(super) async fn begun(&self) {
        self.due_at().await;
    }

    /// Waits until the last answers are due.
    pub(super) async fn answers_due(&self) {
        sleep_until(self.due_at().await).await;
    }

    async fn due_at(&self) -> Instant {
        let mut changes = self.due.subscribe();
        let due = changes.wait_for(Option::is_some).await.ok().and_then(|due| *due);
        match due {
            Some(due) => due,
            None => std::future::pending().await,
        }
    }
}
