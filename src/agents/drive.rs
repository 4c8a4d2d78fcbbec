//! A call to an agent that is under way: one owned value.
//!
//! The call borrows nothing from the client's request, so that it can continue without it. Its
//! holder polls it; nothing is spawned. See `call` for the messages to the agent.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};

use crate::a2a::{Fingerprint, StreamResponse};
use crate::fault::{AgentFailure, TaskDelay};
use crate::quota::BytePermit;
use crate::sync::lock;

/// The maximum number of events that wait for a slow reader; then the agent's stream is not read
/// on.
const WAITING: usize = 64;
/// The maximum number of bytes of events that wait, beyond those of the last one.
const WAITING_BYTES: usize = 32 * 1024;

/// The next event of a call.
#[derive(Debug)]
pub enum DriveEvent {
    /// The agent sent an event. Boxed, because it is passed on several times.
    Said(Box<StreamResponse>),
    /// The task makes no progress at present, or makes progress again. The call continues.
    Delayed(Option<TaskDelay>),
    /// No more events follow.
    Over(Result<(), AgentFailure>),
}

/// The sender of the events of a call.
///
/// Exchange and reader are polled by the same task, one after the other, so that neither ever has
/// to wake the other.
#[derive(Clone, Default)]
pub(super) struct EventSender(Arc<CallShared>);

#[derive(Default)]
struct CallShared {
    waiting: Mutex<EventQueue>,
    /// The number of events in it. Most looks find none, and a lock for each would cost as much as the rest of the look.
    waiting_count: AtomicUsize,
    may_rest: AtomicBool,
    is_detached: AtomicBool,
    /// The id that the gateway gave the task.
    name: Mutex<UnconfirmedId>,
    delay: Mutex<Option<TaskDelay>>,
    /// True if the reader has not seen the latest delay yet.
    is_delay_news: AtomicBool,
}

impl CallShared {
    /// Returns true if no event waits.
    fn has_none(&self) -> bool {
        self.waiting_count.load(Ordering::Acquire) == 0
    }

    fn push(&self, waiting: QueuedEvent) {
        let mut queue = lock(&self.waiting);
        queue.push(waiting);
        self.waiting_count.store(queue.events.len(), Ordering::Release);
    }

    fn pop(&self) -> Option<QueuedEvent> {
        if self.has_none() {
            return None;
        }
        let mut queue = lock(&self.waiting);
        let waiting = queue.pop();
        self.waiting_count.store(queue.events.len(), Ordering::Release);
        waiting
    }

    fn delay(&self) -> MutexGuard<'_, Option<TaskDelay>> {
        lock(&self.delay)
    }
}

/// Events that are not read yet.
#[derive(Default)]
struct EventQueue {
    events: VecDeque<QueuedEvent>,
    bytes: usize,
}

/// An event and the number of bytes that it was received in.
struct QueuedEvent {
    event: Box<StreamResponse>,
    size: EventSize,
    bearing: Bearing,
}

/// The relation of an event to the events before it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Bearing {
    /// The response in which the agent asks anew: the question in the event is another one than
    /// before, even in the same words.
    pub response: Option<ResponseTo>,
    /// True if the event is the result of `GetTask`: it may lag behind the stream.
    pub is_look: bool,
}

/// The message to which an event responds with a new question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResponseTo {
    /// The question that was answered; `None`: the message answered none.
    pub turn: Option<Fingerprint>,
}

/// The size of an event as received.
#[derive(Debug, Default)]
pub(super) struct EventSize {
    /// The number of bytes; 0 if it is not known.
    pub(super) bytes: usize,
    /// The permit of those that are counted.
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
        // Most streams never have two that wait.
        self.events.reserve_exact(usize::from(self.events.is_empty()));
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
    /// The id is in use by a reader.
    Used(String),
}

impl EventSender {
    /// Returns true if the task need not be polled.
    pub(super) fn is_idle(&self) -> bool {
        self.0.may_rest.load(Ordering::Acquire)
    }

    fn name(&self) -> MutexGuard<'_, UnconfirmedId> {
        lock(&self.0.name)
    }

    /// Records the id that the gateway gives the task of this call.
    pub(super) fn set_unconfirmed_id(&self, task: &str) {
        *self.name() = UnconfirmedId::Given(task.to_owned());
    }

    /// Withdraws the id that was given; returns true if no reader uses it.
    pub(super) fn clear_unconfirmed_id(&self) -> bool {
        let mut name = self.name();
        let is_free = !matches!(*name, UnconfirmedId::Used(_));
        if is_free {
            *name = UnconfirmedId::None;
        }
        is_free
    }

    /// Records the reason for which the task makes no progress at present, if it makes none.
    /// Returns true if that is new.
    pub(super) fn set_delay(&self, delay: Option<TaskDelay>) -> bool {
        let is_news = std::mem::replace(&mut *self.0.delay(), delay) != delay;
        if is_news {
            self.0.is_delay_news.store(true, Ordering::Release);
        }
        is_news
    }

    /// Records that the agent has responded: other delays of the task remain.
    pub(super) fn reached(&self) {
        if *self.0.delay() == Some(TaskDelay::Unreached) {
            self.set_delay(None);
        }
    }

    /// Returns true if the call continues without a waiting client.
    pub(super) fn is_detached(&self) -> bool {
        self.0.is_detached.load(Ordering::Relaxed)
    }

    /// Sends an event. Few may follow before [`EventSender::has_room`]: an event is no part of the future
    /// that waits, which lives as long as a stream.
    pub(super) fn push(&self, event: Box<StreamResponse>, size: EventSize, bearing: Bearing) {
        self.0.push(QueuedEvent { event, size, bearing });
    }

    /// Waits while too many events are unread.
    pub(super) async fn has_room(&self) {
        self.wait_while(|shared| !shared.has_none() && lock(&shared.waiting).is_full()).await;
    }

    /// Waits until all events are read.
    pub(super) async fn all_read(&self) {
        self.wait_while(|shared| !shared.has_none()).await;
    }

    async fn wait_while(&self, condition: impl Fn(&CallShared) -> bool) {
        // The reader polls again once it has read all.
        std::future::poll_fn(|_| match condition(&self.0) {
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
    /// The size of the last event that was read.
    size: EventSize,
    bearing: Bearing,
}

impl DetachableCall {
    /// Creates a call that runs `exchange`, with the sender for its events.
    pub(super) fn new<F>(exchange: impl FnOnce(EventSender) -> F) -> Self
    where
        F: Future<Output = Result<(), AgentFailure>> + Send + 'static,
    {
        let said = EventSender::default();
        let exchange = Box::pin(exchange(said.clone()));
        Self { exchange, said, over: None, size: EventSize::default(), bearing: Bearing::default() }
    }

    /// Returns the next event. Cancel-safe: no event is lost.
    pub async fn next(&mut self) -> DriveEvent {
        std::future::poll_fn(|context| self.poll_next(context)).await
    }

    /// Returns the bytes of the last event as received, and the permit of those that are counted.
    /// Without this call the permit is dropped with the next event.
    pub fn take_size(&mut self) -> (usize, Option<BytePermit>) {
        let EventSize { bytes, permit } = std::mem::take(&mut self.size);
        (bytes, permit)
    }

    /// Returns the relation of the last event to the events before it.
    pub fn bearing(&self) -> Bearing {
        self.bearing
    }

    /// Marks the call as continuing without a waiting client: an event that exceeds the room is
    /// fetched again later.
    pub fn detach(&self) {
        self.said.0.is_detached.store(true, Ordering::Relaxed);
    }

    /// Returns the reason for which the task makes no progress at present, if it makes none.
    pub fn delay(&self) -> Option<TaskDelay> {
        *self.said.0.delay()
    }

    /// Returns true if [`DetachableCall::next`] has an event without waiting.
    pub fn has_more(&self) -> bool {
        !self.said.0.has_none()
    }

    /// Permits the call to end while its task continues, once it has no stream to read: changes are
    /// observed elsewhere.
    pub fn wait_idle(&self) {
        self.said.0.may_rest.store(true, Ordering::Release);
    }

    /// Returns the id that the gateway gave the task before the agent's first event, in versions
    /// where the gateway does. The caller uses this id, and the call keeps it from now on.
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
        // Events of that poll come before the end.
        match (self.pop(), &self.over) {
            (Some(event), _) => Poll::Ready(DriveEvent::Said(event)),
            (None, Some(result)) => Poll::Ready(DriveEvent::Over(result.clone())),
            (None, None) if self.said.0.is_delay_news.swap(false, Ordering::AcqRel) => {
                Poll::Ready(DriveEvent::Delayed(self.delay()))
            }
            (None, None) => Poll::Pending,
        }
    }

    fn pop(&mut self) -> Option<Box<StreamResponse>> {
        let QueuedEvent { event, size, bearing } = self.said.0.pop()?;
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
                outlet.push(Box::new(StreamResponse::Unknown), EventSize::default(), Bearing::default());
                outlet.has_room().await;
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
