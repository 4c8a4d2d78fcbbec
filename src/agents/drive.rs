//! A call to an agent that is under way: one owned value.
//!
//! It borrows nothing from the client's request, so that it can go on without it. Whoever holds it polls it; nothing is
//! spawned. Not here: what is said to the agent (see `call`).

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::sync::mpsc;

use crate::a2a::Event;
use crate::fault::Trouble;

/// Events that may wait for a slow reader; then the agent's stream is not read on.
const WAITING: usize = 8;

/// What comes next in a call.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "made and taken apart at once, never stored")]
pub enum Turn {
    /// The agent said something.
    Said(Event),
    /// Nothing more will come.
    Over(Result<(), Trouble>),
}

/// Where a call puts what the agent says.
pub(super) type Outlet = mpsc::Sender<Event>;

/// A call that is under way.
pub struct Drive {
    exchange: Pin<Box<dyn Future<Output = Result<(), Trouble>> + Send>>,
    said: mpsc::Receiver<Event>,
    over: Option<Result<(), Trouble>>,
}

impl Drive {
    /// A call that runs as `exchange` does and puts events into the outlet it is given.
    pub(super) fn new<F>(exchange: impl FnOnce(Outlet) -> F) -> Self
    where
        F: Future<Output = Result<(), Trouble>> + Send + 'static,
    {
        let (outlet, said) = mpsc::channel(WAITING);
        Self { exchange: Box::pin(exchange(outlet)), said, over: None }
    }

    /// What comes next. May be dropped and called again: nothing is lost.
    pub async fn next(&mut self) -> Turn {
        std::future::poll_fn(|context| self.poll_next(context)).await
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Turn> {
        if let Poll::Ready(Some(event)) = self.said.poll_recv(context) {
            return Poll::Ready(Turn::Said(event));
        }
        if self.over.is_none()
            && let Poll::Ready(result) = self.exchange.as_mut().poll(context)
        {
            self.over = Some(result);
        }
        // What was said during that poll comes before the end.
        match self.said.poll_recv(context) {
            Poll::Ready(Some(event)) => Poll::Ready(Turn::Said(event)),
            Poll::Ready(None) | Poll::Pending => match &self.over {
                Some(result) => Poll::Ready(Turn::Over(result.clone())),
                None => Poll::Pending,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn everything_said_comes_before_the_end_however_often_it_is_interrupted() {
        let mut drive = Drive::new(|outlet| async move {
            for _ in 0..20 {
                tokio::task::yield_now().await;
                outlet.send(Event::Unknown).await.map_err(|_| Trouble::Gateway("closed"))?;
            }
            Ok(())
        });
        let mut said = 0;
        loop {
            tokio::select! {
                biased;
                () = std::future::ready(()), if said % 2 == 1 => { said += 1; continue }
                turn = drive.next() => match turn {
                    Turn::Said(_) => said += 2,
                    Turn::Over(result) => { assert_eq!(result, Ok(())); break }
                }
            }
        }
        assert_eq!(said, 40);
    }
}
