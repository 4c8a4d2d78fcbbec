//! Locks a mutex and recovers it if it is poisoned; and an event that happens once.
//!
//! A lock is held for one statement or a few, and no statement under a lock leaves its state half
//! changed: a panic elsewhere in the thread must not make every later request fail.

use std::future::{Future as _, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{LockResult, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use tokio::sync::Notify;

/// Locks the mutex, poisoned or not.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    recover(mutex.lock())
}

/// Returns the value of a lock, poisoned or not.
pub(crate) fn recover<T>(locked: LockResult<T>) -> T {
    locked.unwrap_or_else(PoisonError::into_inner)
}

/// An event that happens once, and that tasks wait for.
///
/// A wait that is polled again by the same task costs one look at a flag: a call waits for its cancellation beside every event of
/// its agent.
#[derive(Default)]
pub(crate) struct Latch {
    is_set: AtomicBool,
    waiting: Notify,
}

impl Latch {
    /// Records the event, and wakes all tasks that wait for it.
    pub(crate) fn set(&self) {
        self.is_set.store(true, Ordering::SeqCst);
        self.waiting.notify_waiters();
    }

    /// Returns true if the event has happened.
    pub(crate) fn is_set(&self) -> bool {
        self.is_set.load(Ordering::SeqCst)
    }

    /// Waits for the event.
    pub(crate) async fn wait(&self) {
        let mut notified = pin!(self.waiting.notified());
        let mut task: Option<Waker> = None;
        poll_fn(|cx| {
            if self.is_set() {
                return Poll::Ready(());
            }
            if task.as_ref().is_some_and(|task| task.will_wake(cx.waker())) {
                return Poll::Pending;
            }
            task = Some(cx.waker().clone());
            // The event may have happened before the task was registered.
            if notified.as_mut().poll(cx).is_ready() || self.is_set() {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[tokio::test]
    async fn latch_wakes_all_that_wait_and_none_waits_later() {
        let latch = Arc::new(Latch::default());
        let (begun, mut begins) = tokio::sync::mpsc::channel(2);
        let waiting: Vec<_> = (0..2)
            .map(|_| {
                let (latch, begun) = (latch.clone(), begun.clone());
                tokio::spawn(async move {
                    let mut wait = pin!(latch.wait());
                    // Polled several times by one task.
                    for _ in 0..3 {
                        assert!(poll_fn(|cx| Poll::Ready(wait.as_mut().poll(cx))).await.is_pending());
                    }
                    begun.send(()).await.unwrap();
                    wait.await;
                })
            })
            .collect();
        for _ in 0..2 {
            begins.recv().await.unwrap();
        }
        assert!(!latch.is_set());
        latch.set();
        for task in waiting {
            task.await.unwrap();
        }
        latch.wait().await;
    }

    #[tokio::test]
    async fn latch_wakes_the_task_that_polled_last() {
        let latch = Latch::default();
        let mut wait = Box::pin(latch.wait());
        assert!(wait.as_mut().poll(&mut std::task::Context::from_waker(Waker::noop())).is_pending());
        let set = async {
            tokio::task::yield_now().await;
            latch.set();
        };
        tokio::join!(wait, set);
    }

    #[test]
    fn poisoned_lock_is_recovered() {
        let mutex = Mutex::new(1);
        std::thread::scope(|scope| {
            let panicked = scope.spawn(|| {
                let _guard = lock(&mutex);
                panic!("poisons the lock");
            });
            assert!(panicked.join().is_err());
        });
        assert!(mutex.is_poisoned());
        *lock(&mutex) += 1;
        assert_eq!(*lock(&mutex), 2);
    }
}
