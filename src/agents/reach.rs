//! Whether an agent can be reached, as everybody who waits for it sees it.
//!
//! While it cannot, one question at a time probes it, and all others wait for that one: an agent that comes back is not met by a
//! crowd, and one that stays away costs one connection. Not here: how long to wait between two questions (see `judge`).

use tokio::sync::{Semaphore, SemaphorePermit, watch};

/// What is known of one agent's reach.
pub(super) struct Reach {
    is_down: watch::Sender<bool>,
    probe: Semaphore,
}

/// The right to ask; while the agent is down, held by one at a time.
pub(super) struct Turn<'a> {
    _probe: Option<SemaphorePermit<'a>>,
}

impl Default for Reach {
    fn default() -> Self {
        Self { is_down: watch::Sender::new(false), probe: Semaphore::new(1) }
    }
}

impl Reach {
    /// Notes that the agent answered.
    pub(super) fn is_up(&self) {
        self.is_down.send_if_modified(std::mem::take);
    }

    /// Notes that the agent could not be reached.
    pub(super) fn is_down(&self) {
        self.is_down.send_if_modified(|down| !std::mem::replace(down, true));
    }

    /// The right to ask now; `None` while the agent is down and somebody else probes it.
    pub(super) fn try_turn(&self) -> Option<Turn<'_>> {
        if !*self.is_down.borrow() {
            return Some(Turn { _probe: None });
        }
        self.probe.try_acquire().ok().map(|probe| Turn { _probe: Some(probe) })
    }

    /// Waits until it is one's turn to ask: at once while the agent can be reached.
    pub(super) async fn turn(&self) -> Turn<'_> {
        let mut state = self.is_down.subscribe();
        let up = async {
            // The sender lives as long as `self`.
            if state.wait_for(|down| !down).await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            biased;
            () = up => Turn { _probe: None },
            permit = self.probe.acquire() => Turn { _probe: permit.ok() },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    fn polled<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn everybody_may_ask_while_the_agent_is_up() {
        let reach = Reach::default();
        let first = pin!(reach.turn());
        let second = pin!(reach.turn());
        let first = polled(first);
        assert!(first.is_ready() && polled(second).is_ready());
    }

    #[test]
    fn one_probes_and_the_others_wait_until_it_is_up() {
        let reach = Reach::default();
        reach.is_down();
        let probing = polled(pin!(reach.turn()));
        assert!(probing.is_ready());
        let mut waiting = pin!(reach.turn());
        assert!(polled(waiting.as_mut()).is_pending());
        reach.is_up();
        assert!(polled(waiting).is_ready());
    }

    #[test]
    fn who_does_not_wait_asks_only_if_nobody_probes() {
        let reach = Reach::default();
        assert!(reach.try_turn().is_some() && reach.try_turn().is_some());
        reach.is_down();
        let probing = reach.try_turn();
        assert!(probing.is_some() && reach.try_turn().is_none());
        reach.is_up();
        assert!(reach.try_turn().is_some());
    }

    #[test]
    fn a_probe_that_is_given_up_makes_room_for_the_next() {
        let reach = Reach::default();
        reach.is_down();
        let Poll::Ready(probing) = polled(pin!(reach.turn())) else { panic!("the first one probes") };
        let mut waiting = pin!(reach.turn());
        assert!(polled(waiting.as_mut()).is_pending());
        drop(probing);
        assert!(polled(waiting).is_ready());
    }
}
