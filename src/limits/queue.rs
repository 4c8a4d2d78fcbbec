//! Concurrency limit of one agent, and the queue of calls that wait for a permit.
//!
//! First come, first served. The length of the queue and the time in it are limited; a call that
//! leaves gives up its position.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::config;
use crate::fault::{Abort, Fault};
use crate::telemetry::metrics::QueueMetrics;

/// Permits of one agent, and the queue for them.
pub(crate) struct AgentQueue {
    places: Arc<Semaphore>,
    size: usize,
    wait: Duration,
    waiting: AtomicUsize,
    metrics: QueueMetrics,
}

/// Right to make one call to an agent, until it is dropped.
pub(crate) type CallPermit = OwnedSemaphorePermit;

/// Position of a waiting call, while it lives.
struct Waiter<'a> {
    queue: &'a AgentQueue,
    since: Instant,
}

impl AgentQueue {
    /// Creates the permits for `most` concurrent calls, and the queue for them.
    pub(crate) fn new(most: usize, settings: config::Queue, metrics: QueueMetrics) -> Self {
        let config::Queue { size, wait } = settings;
        let places = Arc::new(Semaphore::new(most.min(Semaphore::MAX_PERMITS)));
        Self { places, size, wait, waiting: AtomicUsize::new(0), metrics }
    }

    /// Acquires a permit, at once or after a wait.
    ///
    /// # Errors
    ///
    /// [`Fault::Busy`] if there is no permit and the queue is full or too slow; [`Abort::ClientGone`]
    /// once the client `leaves`.
    pub(crate) async fn acquire(&self, leaves: impl Future<Output = ()>) -> Result<CallPermit, Abort> {
        const FULL: &str = "too many calls of this agent are under way";
        // Later calls never overtake waiting ones: a free permit goes to the first waiter.
        if let Ok(place) = self.places.clone().try_acquire_owned() {
            return Ok(place);
        }
        let _waiting = self.join().ok_or(Fault::Busy(FULL))?;
        let turn = pin!(tokio::time::timeout(self.wait, self.places.clone().acquire_owned()));
        tokio::select! {
            biased;
            turn = turn => match turn {
                Ok(Ok(place)) => Ok(place),
                Ok(Err(_)) => Err(Fault::Busy(FULL).into()),
                Err(_) => Err(Fault::Busy("no call of this agent ended in time").into()),
            },
            () = leaves => Err(Abort::ClientGone),
        }
    }

    fn join(&self) -> Option<Waiter<'_>> {
        let more = |waiting: usize| Some(waiting + 1).filter(|waiting| *waiting <= self.size);
        self.waiting.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).ok()?;
        self.metrics.enter();
        Some(Waiter { queue: self, since: Instant::now() })
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.queue.waiting.fetch_sub(1, Ordering::AcqRel);
        self.queue.metrics.leave(self.since.elapsed());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::metrics::Metrics;
    use std::future::{pending, ready};
    use std::task::{Context, Poll, Waker};

    fn queue(size: usize, wait: Duration) -> AgentQueue {
        AgentQueue::new(1, config::Queue { size, wait }, Metrics::new().unwrap().agent("bard").queue())
    }

    fn polled<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    #[tokio::test]
    async fn they_wait_in_their_order_and_no_more_than_fit() {
        let queue = queue(2, Duration::from_secs(600));
        let place = queue.acquire(pending()).await.unwrap();
        let mut first = Box::pin(queue.acquire(pending()));
        let mut second = Box::pin(queue.acquire(pending()));
        assert!(polled(first.as_mut()).is_pending() && polled(second.as_mut()).is_pending());
        assert!(
            matches!(queue.acquire(pending()).await, Err(Abort::Rejected(Fault::Busy(_)))),
            "the line is full"
        );
        drop(place);
        assert!(polled(second.as_mut()).is_pending(), "the first one comes first");
        let place = first.await.unwrap();
        assert!(polled(second.as_mut()).is_pending());
        drop(place);
        assert!(second.await.is_ok());
        assert_eq!(queue.waiting.load(Ordering::Acquire), 0);
    }

    #[tokio::test]
    async fn who_leaves_or_waits_too_long_gives_up_its_place() {
        let queue = queue(1, Duration::from_millis(1));
        let place = queue.acquire(pending()).await.unwrap();
        assert!(matches!(queue.acquire(ready(())).await, Err(Abort::ClientGone)));
        assert!(matches!(queue.acquire(pending()).await, Err(Abort::Rejected(Fault::Busy(_)))));
        assert_eq!(queue.waiting.load(Ordering::Acquire), 0);
        drop(place);
        assert!(queue.acquire(pending()).await.is_ok());
    }

    #[tokio::test]
    async fn nobody_waits_where_there_is_no_line() {
        let queue = queue(0, Duration::from_secs(600));
        let _place = queue.acquire(pending()).await.unwrap();
        assert!(matches!(queue.acquire(pending()).await, Err(Abort::Rejected(Fault::Busy(_)))));
    }
}
