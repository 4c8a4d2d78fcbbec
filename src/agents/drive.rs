//! A call to an agent that is under way: one owned value.
//!
//! It borrows nothing from the client's request, so that it can go on without it. Whoever holds it polls it; nothing is
//! spawned. Not here: what is said to the agent (see `call`).

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use crate::a2a::{Fingerprint, StreamResponse};
use crate::fault::{AgentFailure, TaskDelay};
use crate::quota::BytePermit;

/// Events that may wait for a slow reader; then the agent's stream is not read on.
const WAITING: usize = 64;
/// Bytes of events that may wait, beyond those of the last one.
const WAITING_BYTES: usize = 32 * 1024;

/// What comes next in a call.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "made and taken apart at once, never stored")]
pub enum DriveEvent {
    /// The agent said something.
    Said(StreamResponse),
    /// The task does not go on at present, or goes on again. The call goes on.
    Delayed(Option<TaskDelay>),
    /// Nothing more will come.
    Over(Result<(), AgentFailure>),
}

/// Where a call puts what the agent says.
///
/// Exchange and reader are polled by the same task, one after the other, so that neither ever has to wake the other.
#[derive(Clone, Default)]
pub(super) struct EventSender(Arc<CallShared>);

#[derive(Default)]
struct CallShared {
    waiting: Mutex<EventQueue>,
    may_rest: AtomicBool,
    is_detached: AtomicBool,
    /// The id that the gateway gave the task.
    name: Mutex<UnconfirmedId>,
    delay: Mutex<Option<TaskDelay>>,
    /// Whether the reader has yet to hear of another delay.
    is_delay_news: AtomicBool,
}

impl CallShared {
    fn delay(&self) -> MutexGuard<'_, Option<TaskDelay>> {
        self.delay.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Events that are not read yet.
#[derive(Default)]
struct EventQueue {
    events: VecDeque<QueuedEvent>,
    bytes: usize,
}

/// An event, and how many bytes it came in.
struct QueuedEvent {
    event: StreamResponse,
    size: EventSize,
    bearing: Bearing,
}

/// How an event bears on what was said before.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Bearing {
    /// What it asks anew in response to: the question in it is another one than before, even in the same words.
    pub response: Option<ResponseTo>,
    /// Whether it is the task as the agent gave it when it was asked for it: that may lag behind the stream.
    pub is_look: bool,
}

/// What an event asks anew in response to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResponseTo {
    /// The question that was answered; `None`: what was said answered none.
    pub turn: Option<Fingerprint>,
}

/// The bytes of an event as it came.
#[derive(Debug, Default)]
pub(super) struct EventSize {
    /// How many; 0 if that is not known.
    pub(super) bytes: usize,
    /// Those that are counted.
    pub(super) permit: Option<BytePermit>,
}

impl EventSize {
    fn bytes(&self) -> usize {
        self.bytes.max(self.permit.as_ref().map_or(0, BytePermit::counted))
    }
}

impl EventQueue {
    fn push(&mut self, waiting: QueuedEvent) {
        self.bytes += waiting.size.bytes();
        self.events.push_back(waiting);
    }

    fn pop(&mut self) -> Option<QueuedEvent> {
        let waiting = self.events.pop_front()?;
        self.bytes -= waiting.size.bytes();
        Some(waiting)
    }

    fn is_full(&self) -> bool {
        self.events.len() >= WAITING || self.bytes > WAITING_BYTES
    }
}

/// An id that the agent has not confirmed.
#[derive(Default)]
enum UnconfirmedId {
    #[default]
    None,
    Given(String),
    /// Somebody goes by it.
    Used(String),
}

impl EventSender {
    fn waiting(&self) -> MutexGuard<'_, EventQueue> {
        self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether nobody minds if the task is not asked for again and again.
    pub(super) fn is_idle(&self) -> bool {
        self.0.may_rest.load(Ordering::Acquire)
    }

    fn name(&self) -> MutexGuard<'_, UnconfirmedId> {
        self.0.name.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes the id that the gateway gives the task of this call.
    pub(super) fn set_unconfirmed_id(&self, task: &str) {
        *self.name() = UnconfirmedId::Given(task.to_owned());
    }

    /// Takes back the id that was given; says whether nobody goes by it.
    pub(super) fn clear_unconfirmed_id(&self) -> bool {
        let mut name = self.name();
        let is_free = !matches!(*name, UnconfirmedId::Used(_));
        if is_free {
            *name = UnconfirmedId::None;
        }
        is_free
    }

    /// Notes why the task does not go on at present, if it does not. Returns true if that is new.
    pub(super) fn set_delay(&self, delay: Option<TaskDelay>) -> bool {
        let is_news = std::mem::replace(&mut *self.0.delay(), delay) != delay;
        if is_news {
            self.0.is_delay_news.store(true, Ordering::Release);
        }
        is_news
    }

    /// The agent has answered: whatever else is known of the task stays.
    pub(super) fn reached(&self) {
        if *self.0.delay() == Some(TaskDelay::Unreached) {
            self.set_delay(None);
        }
    }

    /// Whether the call goes on without a client that waits for it.
    pub(super) fn is_detached(&self) -> bool {
        self.0.is_detached.load(Ordering::Relaxed)
    }

    /// Puts an event; waits while too much is not read yet.
    pub(super) async fn send(&self, event: StreamResponse, size: EventSize, bearing: Bearing) {
        self.waiting().push(QueuedEvent { event, size, bearing });
        // The reader polls again once it has read all.
        std::future::poll_fn(|_| match self.waiting().is_full() {
            true => Poll::Pending,
            false => Poll::Ready(()),
        })
        .await;
    }
}

/// A call that is under way.
pub struct DetachableCall {
    exchange: Pin<Box<dyn Future<Output = Result<(), AgentFailure>> + Send>>,
    said: EventSender,
    over: Option<Result<(), AgentFailure>>,
    /// That of the last event that was read.
    size: EventSize,
    bearing: Bearing,
}

impl DetachableCall {
    /// A call that runs as `exchange` does and puts events into the outlet it is given.
    pub(super) fn new<F>(exchange: impl FnOnce(EventSender) -> F) -> Self
    where
        F: Future<Output = Result<(), AgentFailure>> + Send + 'static,
    {
        let said = EventSender::default();
        let exchange = Box::pin(exchange(said.clone()));
        Self { exchange, said, over: None, size: EventSize::default(), bearing: Bearing::default() }
    }

    /// What comes next. May be dropped and called again: nothing is lost.
    pub async fn next(&mut self) -> DriveEvent {
        std::future::poll_fn(|context| self.poll_next(context)).await
    }

    /// The bytes of the last event as it came, and the permit of those that are counted. Without this call the permit is dropped
    /// with the next event.
    pub fn take_size(&mut self) -> (usize, Option<BytePermit>) {
        let EventSize { bytes, permit } = std::mem::take(&mut self.size);
        (bytes, permit)
    }

    /// How the last event bears on what was said before.
    pub fn bearing(&self) -> Bearing {
        self.bearing
    }

    /// Marks a call that goes on without a waiting client: an event that there is no room for is asked for again.
    pub fn detach(&self) {
        self.said.0.is_detached.store(true, Ordering::Relaxed);
    }

    /// Why the task does not go on at present, if it does not.
    pub fn delay(&self) -> Option<TaskDelay> {
        *self.said.0.delay()
    }

    /// Whether [`Drive::next`] has an event without waiting.
    pub fn has_more(&self) -> bool {
        !self.said.waiting().events.is_empty()
    }

    /// From now on the call may end while its task goes on, once there is no stream to listen to: somebody else will hear of news.
    pub fn wait_idle(&self) {
        self.said.0.may_rest.store(true, Ordering::Release);
    }

    /// The id that the gateway gave the task before the agent has said a word, in versions where it does. Whoever asks goes by it: the
    /// call keeps to it from now on.
    pub fn given_name(&self) -> Option<String> {
        let mut name = self.said.name();
        let (UnconfirmedId::Given(task) | UnconfirmedId::Used(task)) = std::mem::take(&mut *name) else {
            return None;
        };
        *name = UnconfirmedId::Used(task.clone());
        Some(task)
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<DriveEvent> {
        self.size = EventSize::default();
        if let Some(event) = self.pop() {
            return Poll::Ready(DriveEvent::Said(event));
        }
        if self.over.is_none()
            && let Poll::Ready(result) = self.exchange.as_mut().poll(context)
        {
            self.over = Some(result);
        }
        // What was said during that poll comes before the end.
        match (self.pop(), &self.over) {
            (Some(event), _) => Poll::Ready(DriveEvent::Said(event)),
            (None, Some(result)) => Poll::Ready(DriveEvent::Over(result.clone())),
            (None, None) if self.said.0.is_delay_news.swap(false, Ordering::AcqRel) => {
                Poll::Ready(DriveEvent::Delayed(self.delay()))
            }
            (None, None) => Poll::Pending,
        }
    }

    fn pop(&mut self) -> Option<StreamResponse> {
        let QueuedEvent { event, size, bearing } = self.said.waiting().pop()?;
        (self.size, self.bearing) = (size, bearing);
        Some(event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn everything_said_comes_before_the_end_however_often_it_is_interrupted() {
        let mut drive = DetachableCall::new(|outlet| async move {
            for number in 0..3 * WAITING {
                if number % 7 == 0 {
                    tokio::task::yield_now().await;
                }
                outlet.send(StreamResponse::Unknown, EventSize::default(), Bearing::default()).await;
            }
            Ok(())
        });
        let mut said = 0;
        loop {
            tokio::select! {
                biased;
                () = std::future::ready(()), if said % 2 == 1 => { said += 1; continue }
                turn = drive.next() => match turn {
                    DriveEvent::Said(_) => said += 2,
                    DriveEvent::Delayed(_) => {}
                    DriveEvent::Over(result) => { assert_eq!(result, Ok(())); break }
                }
            }
        }
        assert_eq!(said, 6 * WAITING);
    }
}
