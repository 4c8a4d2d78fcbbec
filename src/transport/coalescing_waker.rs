//! Wakes the task that polls a connection, but not during its poll: then the connection is only
//! polled once more.
//!
//! A connection and the body that is read from it wake each other whenever one of them moves.
//! Polled by one task, each such wake-up would run the whole task once more for nothing: twice for
//! every event of a stream. See `http1` for the connection.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use crate::sync::lock;

/// No poll is running: a wake-up goes to the last task that polled.
const ATTENDED: u8 = 0;
/// A poll is running.
const DRIVEN: u8 = 1;
/// A poll is running, and a wake-up came since.
const RUNG: u8 = 2;

/// The maximum number of polls in a row before other tasks get their turn.
const MAX_REPOLLS: usize = 4;

struct WakerState {
    state: AtomicU8,
    driver: Mutex<Waker>,
}

/// The waker of one connection.
pub(super) struct CoalescingWaker {
    inside: Arc<WakerState>,
    waker: Waker,
}

impl CoalescingWaker {
    pub(super) fn new() -> Self {
        let inside = Arc::new(WakerState {
            state: AtomicU8::new(ATTENDED),
            driver: Mutex::new(Waker::noop().clone()),
        });
        Self { waker: Waker::from(Arc::clone(&inside)), inside }
    }

    /// Polls with a waker that wakes the task of `cx` only after this has returned. Polls again if
    /// a wake-up came meanwhile.
    pub(super) fn poll_with<T>(
        &self,
        cx: &mut Context<'_>,
        mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        self.inside.woken_by(cx.waker());
        for _ in 0..MAX_REPOLLS {
            self.inside.state.store(DRIVEN, Ordering::SeqCst);
            let polled = poll(&mut Context::from_waker(&self.waker));
            let has_rung = self.inside.state.swap(ATTENDED, Ordering::SeqCst) == RUNG;
            if polled.is_ready() || !has_rung {
                return polled;
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

impl WakerState {
    fn woken_by(&self, task: &Waker) {
        let mut driver = lock(&self.driver);
        driver.clone_from(task);
    }
}

impl Wake for WakerState {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let rung = self.state.compare_exchange(DRIVEN, RUNG, Ordering::SeqCst, Ordering::SeqCst);
        if rung == Err(ATTENDED) {
            lock(&self.driver).wake_by_ref();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[derive(Default)]
    struct Task(AtomicUsize);

    impl Wake for Task {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Wakes as often as given, each time it is polled, and keeps the waker.
    fn poll(bell: &CoalescingWaker, task: &Arc<Task>, rings: usize) -> (Poll<()>, usize, Waker) {
        let (mut polls, mut kept) = (0, None);
        let polled = bell.poll_with(&mut Context::from_waker(&Waker::from(task.clone())), |cx| {
            polls += 1;
            if polls <= rings {
                cx.waker().wake_by_ref();
            }
            kept = Some(cx.waker().clone());
            Poll::Pending
        });
        (polled, polls, kept.unwrap())
    }

    #[test]
    fn what_rings_while_it_is_driven_is_looked_at_and_wakes_nobody() {
        let (bell, task) = (CoalescingWaker::new(), Arc::new(Task::default()));
        for rings in 0..MAX_REPOLLS {
            let (polled, polls, _) = poll(&bell, &task, rings);
            assert_eq!((polled, polls), (Poll::Pending, rings + 1));
        }
        assert_eq!(task.0.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn what_rings_on_and_on_lets_others_have_their_turn() {
        let (bell, task) = (CoalescingWaker::new(), Arc::new(Task::default()));
        let (polled, polls, _) = poll(&bell, &task, usize::MAX);
        assert_eq!((polled, polls, task.0.load(Ordering::SeqCst)), (Poll::Pending, MAX_REPOLLS, 1));
    }

    #[test]
    fn what_rings_later_wakes_whoever_drove_last() {
        let (bell, first, second) =
            (CoalescingWaker::new(), Arc::new(Task::default()), Arc::new(Task::default()));
        let (.., kept) = poll(&bell, &first, 0);
        kept.wake_by_ref();
        let (.., same) = poll(&bell, &second, 0);
        kept.wake();
        same.wake();
        assert_eq!((first.0.load(Ordering::SeqCst), second.0.load(Ordering::SeqCst)), (1, 2));
    }
}
