//! A timer that is reused from one wait to the next, and exponential backoff: pauses that double
//! from one failure to the next, and their jitter.
//!
//! Registering a timer and removing it costs more than most waits, which end long before their
//! deadline. So the timer of an earlier wait stays; if it fires before the deadline of the current
//! wait, it is registered anew. Of the backoff nothing waits, and randomness is an argument.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::runtime::{Handle, Id};
use tokio::task::coop::unconstrained;
use tokio::time::{Instant, Sleep, sleep_until, timeout};

/// A timer for one wait after another.
#[derive(Default)]
pub(crate) struct ReusableTimer {
    set: Option<RegisteredTimer>,
}

struct RegisteredTimer {
    /// The runtime that the timer belongs to: it must not be polled on another, that may outlive its own. A task
    /// has one runtime, so that the same task need not compare it.
    home: Id,
    sleep: Pin<Box<Sleep>>,
    /// The task that the timer will wake; `None` after it may have fired.
    task: Option<Waker>,
}

impl RegisteredTimer {
    /// Returns true if the task will be woken by `deadline` without another poll: a stream of events would poll its timers with
    /// each event, and most of the cost of that is to register what is registered.
    fn will_wake(&self, cx: &Context<'_>, deadline: Instant) -> bool {
        self.task.as_ref().is_some_and(|task| task.will_wake(cx.waker()))
            && !self.sleep.is_elapsed()
            && self.sleep.deadline() <= deadline
    }
}

impl ReusableTimer {
    /// Returns ready once `deadline` has passed. Until then the task is woken at that time at the
    /// latest, perhaps earlier without effect.
    ///
    /// Outside of the task's budget of tokio (`task::coop`): a peer that always has more to read
    /// spends that in every poll, and a timer that is polled without any is never ready.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>, deadline: Instant) -> Poll<()> {
        if self.set.as_ref().is_some_and(|set| set.will_wake(cx, deadline)) {
            return Poll::Pending;
        }
        let home = Handle::current().id();
        let kept = self.set.take().filter(|set| set.home == home);
        let new = || RegisteredTimer { home, sleep: Box::pin(sleep_until(deadline)), task: None };
        let RegisteredTimer { sleep, task, .. } = self.set.insert(kept.unwrap_or_else(new));
        *task = None;
        if sleep.deadline() > deadline {
            sleep.as_mut().reset(deadline);
        }
        while Pin::new(&mut unconstrained(sleep.as_mut())).poll(cx).is_ready() {
            if sleep.deadline() >= deadline {
                return Poll::Ready(());
            }
            sleep.as_mut().reset(deadline);
        }
        *task = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Removes the task that waited last: the timer neither wakes it nor keeps its memory. Returns false outside of the runtime of
    /// the timer, which may have ended.
    fn forget_task(&mut self) -> bool {
        let Some(RegisteredTimer { home, sleep, task }) = &mut self.set else { return true };
        if !Handle::try_current().is_ok_and(|here| here.id() == *home) {
            return false;
        }
        *task = None;
        let cx = &mut Context::from_waker(Waker::noop());
        // The next wait looks at the deadline.
        _ = Pin::new(&mut unconstrained(sleep.as_mut())).poll(cx);
        true
    }

    /// Returns the result of `poll`, or `None` once `deadline` has passed without one.
    pub(crate) fn limit<T>(
        &mut self,
        cx: &mut Context<'_>,
        deadline: Instant,
        polled: Poll<T>,
    ) -> Poll<Option<T>> {
        match polled {
            Poll::Ready(found) => Poll::Ready(Some(found)),
            Poll::Pending => self.poll(cx, deadline).map(|()| None),
        }
    }
}

/// The maximum number of timers that a thread keeps.
const MAX_KEPT_TIMERS: usize = 256;

thread_local! {
    /// Timers of waits that have ended on this thread.
    static KEPT_TIMERS: RefCell<Vec<ReusableTimer>> = const { RefCell::new(Vec::new()) };
}

/// A timer for a short wait, as each call has one: that of an earlier wait on the same thread, still registered.
#[derive(Default)]
pub(crate) struct PooledTimer {
    /// `None` until the wait begins.
    timer: Option<ReusableTimer>,
}

impl PooledTimer {
    /// Returns ready once `deadline` has passed, as [`ReusableTimer::poll`] does.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>, deadline: Instant) -> Poll<()> {
        let take = || KEPT_TIMERS.try_with(|kept| kept.borrow_mut().pop()).ok().flatten();
        self.timer.get_or_insert_with(|| take().unwrap_or_default()).poll(cx, deadline)
    }
}

impl Drop for PooledTimer {
    fn drop(&mut self) {
        let Some(mut timer) = self.timer.take() else { return };
        if !timer.forget_task() {
            return;
        }
        let keep = |kept: &RefCell<Vec<_>>| {
            let mut kept = kept.borrow_mut();
            if kept.len() < MAX_KEPT_TIMERS {
                kept.push(timer);
            }
        };
        // Fails while the thread ends: then the timer is dropped.
        _ = KEPT_TIMERS.try_with(keep);
    }
}

/// Returns the output of `work`, or `None` if that takes longer than `limit`. Work that never waits costs no timer. Pinned
/// by the caller: a future that is moved into another one has its room in both.
pub(crate) async fn within<F: Future>(limit: Duration, mut work: Pin<&mut F>) -> Option<F::Output> {
    let at_once = poll_fn(|cx| Poll::Ready(work.as_mut().poll(cx))).await;
    match at_once {
        Poll::Ready(output) => Some(output),
        // Boxed: most work never waits, and needs no room for a timer.
        Poll::Pending => Box::pin(timeout(limit, work)).await.ok(),
    }
}

/// Returns `start + wait`, or the far future.
pub(crate) fn after(start: Instant, wait: Duration) -> Instant {
    const FAR: Duration = Duration::from_secs(30 * 365 * 24 * 3600);
    start.checked_add(wait.min(FAR)).unwrap_or(start)
}

/// Pauses that double, from the first one up to the longest.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Backoff {
    pub(crate) base: Duration,
    pub(crate) max: Duration,
}

impl Backoff {
    /// Returns the pause after so many doublings.
    pub(crate) fn pause(self, doublings: u32) -> Duration {
        self.base.saturating_mul(1 << doublings.min(31)).min(self.max)
    }
}

/// Varies a pause by up to this fraction of it, down and up: those that wait for the same event must
/// not wake together. `chance` is between 0 and 1.
pub(crate) fn with_jitter(pause: Duration, fraction: f64, chance: f64) -> Duration {
    pause.mul_f64(1.0 - fraction + 2.0 * fraction * chance.clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use tokio::task::coop::consume_budget;

    use super::*;

    async fn wait(alarm: &mut ReusableTimer, seconds: u64) -> Duration {
        let begun = Instant::now();
        let deadline = begun + Duration::from_secs(seconds);
        poll_fn(|cx| alarm.poll(cx, deadline)).await;
        begun.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn every_wait_lasts_to_its_own_deadline() {
        let mut alarm = ReusableTimer::default();
        for seconds in [30, 60, 5, 60, 1, 0] {
            let waited = wait(&mut alarm, seconds).await;
            assert_eq!(waited.as_secs(), seconds, "{waited:?}");
        }
    }

    #[test]
    fn a_wait_goes_on_elsewhere_when_its_runtime_has_ended() {
        let runtime = || tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let (mut alarm, first) = (ReusableTimer::default(), runtime());
        let begun = first.block_on(async {
            let far = Instant::now() + Duration::from_secs(600);
            assert!(poll_fn(|cx| Poll::Ready(alarm.poll(cx, far))).await.is_pending());
            Instant::now()
        });
        drop(first);
        let deadline = begun + Duration::from_millis(20);
        runtime().block_on(poll_fn(|cx| alarm.poll(cx, deadline)));
        assert!(begun.elapsed() >= Duration::from_millis(20));
    }

    /// A task that waits, and notes that it was woken.
    #[derive(Default)]
    struct WaitingTask(std::sync::atomic::AtomicBool);

    impl std::task::Wake for WaitingTask {
        fn wake(self: std::sync::Arc<Self>) {
            self.0.store(true, std::sync::atomic::Ordering::SeqCst);
        }
    }

    impl WaitingTask {
        fn is_woken(&self) -> bool {
            self.0.load(std::sync::atomic::Ordering::SeqCst)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn timer_wakes_the_task_that_polled_it_last() {
        let tasks: [std::sync::Arc<WaitingTask>; 2] = Default::default();
        let wakers = tasks.clone().map(Waker::from);
        let (mut alarm, begun) = (ReusableTimer::default(), Instant::now());
        for (waker, seconds) in [(&wakers[0], 9), (&wakers[0], 5), (&wakers[0], 7), (&wakers[1], 5)] {
            let deadline = begun + Duration::from_secs(seconds);
            assert!(alarm.poll(&mut Context::from_waker(waker), deadline).is_pending());
        }
        tokio::time::sleep(Duration::from_secs(6)).await;
        assert_eq!(tasks.each_ref().map(|task| task.is_woken()), [false, true]);
        // Woken, it finds another deadline, and is woken again.
        let deadline = begun + Duration::from_secs(8);
        assert!(alarm.poll(&mut Context::from_waker(&wakers[0]), deadline).is_pending());
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert!(tasks[0].is_woken());
        assert!(alarm.poll(&mut Context::from_waker(&wakers[0]), deadline).is_ready());
    }

    #[tokio::test(start_paused = true)]
    async fn pooled_timer_waits_to_its_own_deadline() {
        for seconds in [30, 60, 5, 60, 1, 0] {
            let (mut timer, begun) = (PooledTimer::default(), Instant::now());
            let deadline = begun + Duration::from_secs(seconds);
            // A wait that is given up leaves its timer to the next.
            let given_up = poll_fn(|cx| Poll::Ready(timer.poll(cx, deadline + Duration::from_secs(1)))).await;
            assert!(given_up.is_pending());
            drop(timer);
            assert_eq!(KEPT_TIMERS.with_borrow(Vec::len), 1);
            let mut timer = PooledTimer::default();
            poll_fn(|cx| timer.poll(cx, deadline)).await;
            assert_eq!((begun.elapsed().as_secs(), KEPT_TIMERS.with_borrow(Vec::len)), (seconds, 0));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn kept_timers_are_few_and_keep_no_task() {
        let task = std::sync::Arc::<WaitingTask>::default();
        let waker = task.clone().into();
        let deadline = Instant::now() + Duration::from_secs(60);
        let mut timers: Vec<_> = (0..MAX_KEPT_TIMERS + 10).map(|_| PooledTimer::default()).collect();
        for timer in &mut timers {
            assert!(timer.poll(&mut Context::from_waker(&waker), deadline).is_pending());
        }
        drop((timers, waker));
        assert_eq!(KEPT_TIMERS.with_borrow(Vec::len), MAX_KEPT_TIMERS);
        assert_eq!(std::sync::Arc::strong_count(&task), 1, "no timer has the task");
    }

    #[tokio::test(start_paused = true)]
    async fn work_is_limited_from_its_first_wait() {
        let limit = Duration::from_secs(5);
        assert_eq!(within(limit, pin!(async { 1 })).await, Some(1));
        let slow = |seconds| tokio::time::sleep(Duration::from_secs(seconds));
        let begun = Instant::now();
        assert_eq!(within(limit, pin!(slow(4))).await, Some(()));
        assert_eq!((within(limit, pin!(slow(60))).await, begun.elapsed().as_secs()), (None, 9));
    }

    #[test]
    fn pooled_timer_may_outlive_its_runtime() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let mut timer = PooledTimer::default();
        runtime.block_on(async {
            let far = Instant::now() + Duration::from_secs(600);
            assert!(poll_fn(|cx| Poll::Ready(timer.poll(cx, far))).await.is_pending());
        });
        drop(runtime);
        drop(timer);
        assert_eq!(KEPT_TIMERS.with_borrow(Vec::len), 0);
    }

    #[tokio::test]
    async fn a_deadline_acts_in_a_task_without_budget() {
        let (mut alarm, deadline) = (ReusableTimer::default(), Instant::now() + Duration::from_millis(20));
        poll_fn(|cx| {
            let spent = (0..10_000).any(|_| pin!(consume_budget()).poll(cx).is_pending());
            assert!(spent && deadline.elapsed() < Duration::from_secs(10));
            alarm.poll(cx, deadline)
        })
        .await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_that_was_given_up_neither_ends_nor_prolongs_the_next() {
        for (given_up, seconds) in [(30, 60), (60, 30), (30, 30)] {
            let mut alarm = ReusableTimer::default();
            let short = Duration::from_secs(10);
            assert!(tokio::time::timeout(short, wait(&mut alarm, given_up)).await.is_err());
            assert_eq!(wait(&mut alarm, seconds).await.as_secs(), seconds, "after {given_up}");
        }
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn pause_doubles_up_to_the_longest() {
        let backoff = Backoff { base: SECOND, max: 30 * SECOND };
        for (doublings, seconds) in [(0, 1), (1, 2), (2, 4), (4, 16), (5, 30), (u32::MAX, 30)] {
            assert_eq!(backoff.pause(doublings), seconds * SECOND, "{doublings}");
        }
        assert_eq!(Backoff { base: 9 * SECOND, max: SECOND }.pause(0), SECOND);
    }

    #[test]
    fn jitter_is_within_its_fraction() {
        for (chance, millis) in [(-1.0, 800), (0.0, 800), (0.5, 1000), (1.0, 1200), (2.0, 1200)] {
            assert_eq!(with_jitter(SECOND, 0.2, chance), Duration::from_millis(millis), "{chance}");
        }
    }
}
