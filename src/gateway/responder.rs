//! Call responder: writes progress, keep-alive comments and the response to the client while the
//! agent sends events.
//!
//! JSON first; an event stream once there is a message to send, or when the agent is slow and the
//! client accepts a stream. The agent is read no faster than the client reads.

use std::pin::pin;
use std::time::{Duration, Instant};

use pingora::proxy::Session;
use pingora::time::fast_timeout::fast_sleep;

use super::closing::DrainState;
use super::in_flight_calls::InFlightCall;
use super::response::{Accepts, ClientGone, SseWriter, events, reply, wait_for_disconnect};
use super::source::{CallEvent, EventSource};
use crate::bridge::output::ProgressUpdate;
use crate::bridge::progress::ProgressNotifier;
use crate::fault::AgentFailure;
use crate::sse::encoder;
use crate::telemetry::metrics::{AgentMetrics, GaugeGuard};

/// Number of events in a row after which the client's connection is checked.
const YIELD_EVERY_EVENTS: u32 = 32;
/// Bytes of notifications that are sent even if more events are ready.
const FLUSH_THRESHOLD_BYTES: usize = 16 * 1024;
/// Bytes of an event beyond its data.
const EVENT_ROOM: usize = 16;

/// Times that a client waits.
#[derive(Clone, Copy)]
pub(super) struct WaitBudget<'s> {
    /// Time until the response is due; `None` for a wait without a limit.
    pub(super) budget: Option<Duration>,
    /// Time until the first byte is due.
    pub(super) stream_after: Duration,
    /// Interval of keep-alive comments.
    pub(super) keep_alive: Duration,
    /// Drain state, which ends every wait.
    pub(super) closing: &'s DrainState,
}

/// Outcome of a wait.
#[derive(Debug)]
pub(super) enum WaitOutcome {
    /// The output has reached a state to respond with.
    Settled,
    /// The agent is not done, and the budget is used up.
    OutOfPatience,
    /// The agent is not done, and its task does not change any more.
    Stalled,
    /// The agent failed.
    Failed(AgentFailure),
    /// The client cancelled the request.
    Cancelled,
    /// The client disconnected.
    Gone,
}

/// Event that a call waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WaitFor {
    /// A state to respond with.
    Answer,
    /// The agent's id of the task.
    Name,
}

/// Target of a response.
pub(super) enum ResponseTarget<'s> {
    /// The client.
    Client(&'s mut Session),
    /// The response to a batch of this client.
    Batch(&'s mut Session),
}

impl ResponseTarget<'_> {
    /// Waits until the client disconnects.
    pub(super) async fn client_disconnected(&mut self) {
        match self {
            Self::Client(http) | Self::Batch(http) => wait_for_disconnect(http).await,
        }
    }
}

/// Client side of a call.
enum ClientStream<'s> {
    /// No byte has been sent.
    Quiet(&'s mut Session),
    /// An event stream is open.
    Open(SseWriter<'s>),
    /// One call of a batch: this responder sends nothing, but watches for a disconnect.
    Watched(&'s mut Session),
    /// There is no client.
    Nobody,
}

/// Responder of one call.
pub(super) struct CallResponder<'s> {
    line: ClientStream<'s>,
    takes: Accepts,
    teller: ProgressNotifier,
    patience: WaitBudget<'s>,
    until: Option<Instant>,
    next_sign: Instant,
    streams: &'s AgentMetrics,
    open: Option<GaugeGuard>,
    /// Encoded and unsent events: events that are ready together are sent together.
    unsent: Vec<u8>,
}

impl<'s> CallResponder<'s> {
    /// Creates a responder for a client, or for a batch.
    pub(super) fn new(
        to: ResponseTarget<'s>,
        takes: Accepts,
        teller: ProgressNotifier,
        patience: WaitBudget<'s>,
        streams: &'s AgentMetrics,
    ) -> Self {
        let line = match to {
            ResponseTarget::Client(http) => ClientStream::Quiet(http),
            ResponseTarget::Batch(http) => ClientStream::Watched(http),
        };
        let now = Instant::now();
        let until = patience.budget.map(|budget| now + budget);
        let next_sign = now + patience.stream_after;
        Self { line, takes, teller, patience, until, next_sign, streams, open: None, unsent: Vec::new() }
    }

    /// Returns true if the client can be asked a question: it accepts a stream, and the call is not
    /// part of a batch.
    pub(super) fn can_ask(&self) -> bool {
        self.takes.stream && matches!(self.line, ClientStream::Quiet(_) | ClientStream::Open(_))
    }

    /// Sends a message of the gateway on the stream to the client.
    pub(super) async fn send(&mut self, message: &[u8]) -> Result<(), ClientGone> {
        encoder::event(&mut self.unsent, message);
        self.flush().await
    }

    /// Sets a new end of the budget.
    pub(super) fn wait_until(&mut self, until: Instant) {
        self.until = Some(until);
    }

    /// Forwards events as progress, until there is a response, the client disconnects, or
    /// `wait_for` is reached.
    pub(super) async fn run(
        &mut self,
        source: &mut EventSource,
        running: Option<&InFlightCall>,
        wait_for: WaitFor,
    ) -> WaitOutcome {
        let mut heard = 0_u32;
        // One timer serves both deadlines. It is polled before the agent, which may always have an
        // event ready. It is reset only to an earlier deadline: a later one is checked when the
        // timer fires.
        let mut due = self.next_deadline();
        let mut wake = pin!(sleep_until(due));
        let closing = self.patience.closing;
        let mut answers_due = pin!(closing.answers_due());
        loop {
            if wait_for == WaitFor::Name && source.is_named() {
                return WaitOutcome::OutOfPatience;
            }
            if self.next_deadline() < due {
                due = self.next_deadline();
                wake.set(sleep_until(due));
            }
            let step = tokio::select! {
                biased;
                () = cancelled(running) => return WaitOutcome::Cancelled,
                () = wake.as_mut() => {
                    let now = Instant::now();
                    if self.until.is_some_and(|until| now >= until) {
                        return WaitOutcome::OutOfPatience;
                    }
                    // Coarse timers may be early.
                    if now >= self.next_sign {
                        self.next_sign = now + self.patience.keep_alive;
                        if self.send_keep_alive().await.is_err() {
                            return WaitOutcome::Gone;
                        }
                    }
                    due = self.next_deadline();
                    wake.set(sleep_until(due));
                    continue;
                }
                step = source.next() => step,
                () = self.client_disconnected() => return WaitOutcome::Gone,
                () = answers_due.as_mut() => return WaitOutcome::OutOfPatience,
            };
            heard += 1;
            // The loop never waits for an agent that always has an event ready.
            if heard.is_multiple_of(YIELD_EVERY_EVENTS)
                && let Some(ending) = self.look_up(&step).await
            {
                return ending;
            }
            match step {
                CallEvent::Settled => return WaitOutcome::Settled,
                CallEvent::Stalled => return WaitOutcome::Stalled,
                CallEvent::Failed(trouble) => return WaitOutcome::Failed(trouble),
                CallEvent::News(note) => self.encode(note.as_ref()),
            }
            // Flushes when no further event is ready, and never delays for time.
            let is_due = !source.has_more() || self.unsent.len() > FLUSH_THRESHOLD_BYTES;
            if is_due && !self.unsent.is_empty() && self.flush().await.is_err() {
                return WaitOutcome::Gone;
            }
        }
    }

    /// Checks if the client has disconnected, or the process is about to end.
    async fn look_up(&mut self, step: &CallEvent) -> Option<WaitOutcome> {
        if self.has_left().await {
            return Some(WaitOutcome::Gone);
        }
        let is_news = matches!(step, CallEvent::News(_));
        (is_news && self.patience.closing.is_due()).then_some(WaitOutcome::OutOfPatience)
    }

    fn next_deadline(&self) -> Instant {
        self.until.map_or(self.next_sign, |until| until.min(self.next_sign))
    }

    /// Sends the response, or ends without one.
    pub(super) async fn finish(mut self, mut body: Option<Vec<u8>>) -> Result<Option<Vec<u8>>, ClientGone> {
        if matches!(self.line, ClientStream::Nobody | ClientStream::Watched(_)) {
            return Ok(body);
        }
        let in_stream = !self.unsent.is_empty() || matches!(self.line, ClientStream::Open(_));
        // Taken, so that the body is in memory once while the client reads it.
        if let Some(body) = body.take_if(|_| in_stream) {
            self.unsent.reserve(body.len() + EVENT_ROOM);
            encoder::event(&mut self.unsent, &body);
        }
        match (self.line, body) {
            (ClientStream::Nobody | ClientStream::Watched(_), _) => {}
            (ClientStream::Open(mut stream), _) => stream.write(self.unsent, true).await?,
            (ClientStream::Quiet(http), Some(body)) if !in_stream => {
                reply(http, self.takes, body, None).await?
            }
            // A cancelled request gets no response: the stream ends empty.
            (ClientStream::Quiet(http), _) => events(http, self.unsent).await?,
        }
        Ok(None)
    }

    fn encode(&mut self, note: Option<&ProgressUpdate>) {
        let Some(note) = note.filter(|_| self.takes.stream && self.teller.listens()) else { return };
        if matches!(self.line, ClientStream::Nobody | ClientStream::Watched(_)) {
            return;
        }
        for message in self.teller.notifications(note) {
            encoder::event(&mut self.unsent, &message);
        }
    }

    async fn send_keep_alive(&mut self) -> Result<(), ClientGone> {
        if !self.takes.stream || matches!(self.line, ClientStream::Nobody | ClientStream::Watched(_)) {
            return Ok(());
        }
        encoder::comment(&mut self.unsent, "");
        self.flush().await
    }

    /// Sends the unsent events; opens the stream if necessary.
    async fn flush(&mut self) -> Result<(), ClientGone> {
        let encoded = std::mem::take(&mut self.unsent);
        self.next_sign = Instant::now() + self.patience.keep_alive;
        if let ClientStream::Quiet(_) = self.line {
            let ClientStream::Quiet(http) = std::mem::replace(&mut self.line, ClientStream::Nobody) else {
                return Ok(());
            };
            self.line = ClientStream::Open(SseWriter::begin(http, None).await?);
            self.open = Some(self.streams.stream());
        }
        match &mut self.line {
            ClientStream::Open(stream) => stream.write(encoded, false).await,
            ClientStream::Quiet(_) | ClientStream::Watched(_) | ClientStream::Nobody => Ok(()),
        }
    }

    /// Returns true if the client has disconnected.
    async fn has_left(&mut self) -> bool {
        tokio::select! {
            biased;
            () = self.client_disconnected() => true,
            () = ready() => false,
        }
    }

    /// Waits until the client disconnects.
    async fn client_disconnected(&mut self) {
        match &mut self.line {
            ClientStream::Quiet(http) | ClientStream::Watched(http) => wait_for_disconnect(http).await,
            ClientStream::Open(events) => events.wait_for_disconnect().await,
            ClientStream::Nobody => std::future::pending().await,
        }
    }
}

/// Completes at once.
async fn ready() {}

async fn cancelled(running: Option<&InFlightCall>) {
    match running {
        Some(entry) => entry.cancelled().await,
        None => std::future::pending().await,
    }
}

/// Waits until `due`, on Pingora's coarse timers.
///
/// At least a millisecond: a shorter wait within the first millisecond of those timers underflows
/// in them, which ends the call in a build with overflow checks (pingora-timeout 0.9.1,
/// `timer::round_to`).
fn sleep_until(due: Instant) -> impl Future<Output = ()> {
    fast_sleep(due.saturating_duration_since(Instant::now()).max(Duration::from_millis(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Only the first timers of a process could fail: this is the only unit test that uses them.
    #[tokio::test]
    async fn a_moment_that_is_over_is_no_wait() {
        sleep_until(Instant::now()).await;
    }
}
