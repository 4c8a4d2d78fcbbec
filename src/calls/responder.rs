//! Call responder: writes progress, keep-alive comments and the response to the client while the
//! agent sends events.
//!
//! JSON first; an event stream once there is a message to send, or when the agent is slow and the
//! client accepts a stream. The agent is read no faster than the client reads.

use std::future::poll_fn;
use std::pin::pin;
use std::time::Duration;

use tokio::time::Instant;

use super::ClientContext;
use super::cancelled_calls::InFlightCall;
use super::source::{CallEvent, CallEvents};
use crate::bridge::output::ProgressUpdate;
use crate::bridge::task_status::ProgressNotifier;
use crate::fault::{Abort, AgentFailure, ClientGone, Fault};
use crate::http_edge::{Accepts, AccessRecord, DrainState, ResponseSink, SseWriter, events, reply};
use crate::limits::Limits;
use crate::sse;
use crate::telemetry::metrics::{AgentMetrics, GaugeGuard};
use crate::timing::PooledTimer;

/// Number of events in a row after which the client's connection is checked.
const YIELD_EVERY_EVENTS: u32 = 32;
/// Bytes of notifications that are sent even if more events are ready.
const FLUSH_THRESHOLD_BYTES: usize = 16 * 1024;

/// Times that a client waits.
#[derive(Clone, Copy)]
pub(crate) struct WaitBudget<'s> {
    /// Time at which the client began to wait.
    pub(crate) since: Instant,
    /// Time from then until the response is due; `None` for a wait without a limit.
    pub(crate) budget: Option<Duration>,
    /// Time from then until the first byte is due.
    pub(crate) stream_after: Duration,
    /// Interval of keep-alive comments.
    pub(crate) keep_alive: Duration,
    /// Drain state, which ends every wait.
    pub(crate) drain: &'s DrainState,
}

/// Outcome of a wait.
#[derive(Debug)]
pub(crate) enum WaitOutcome {
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
pub(crate) enum WaitFor {
    /// A state to respond with.
    Answer,
    /// The agent's id of the task.
    Name,
}

/// Target of a response.
pub(crate) enum ResponseTarget<'s, S> {
    /// The client.
    Client(&'s mut S),
    /// The response to a batch of this client.
    Batch(&'s mut S),
}

impl<S: ResponseSink> ResponseTarget<'_, S> {
    /// Responds with this body, or returns the body for the batch. Its bytes are counted while the
    /// client reads them.
    ///
    /// # Errors
    ///
    /// [`Abort`] if the quota of bytes is used up, or the client disconnected.
    pub(crate) async fn respond(
        self,
        client: &ClientContext<'_>,
        record: &mut AccessRecord,
        limits: &Limits,
        body: Vec<u8>,
    ) -> Result<Option<Vec<u8>>, Abort> {
        record.hold(limits, None, body.len()).map_err(Fault::from)?;
        let ResponseTarget::Client(http) = self else { return Ok(Some(body)) };
        reply(http, client.accepts, body, None).await?;
        Ok(None)
    }

    /// Waits until the client disconnects.
    pub(crate) async fn client_disconnected(&mut self) {
        match self {
            Self::Client(http) | Self::Batch(http) => http.disconnected().await,
        }
    }
}

/// Client side of a call.
enum ClientStream<'s, S> {
    /// No byte has been sent.
    Quiet(&'s mut S),
    /// An event stream is open.
    Open(SseWriter<'s, S>),
    /// One call of a batch: this responder sends nothing, but watches for a disconnect.
    Watched(&'s mut S),
    /// The stream is being opened, or could not be.
    Detached,
}

/// Responder of one call.
pub(crate) struct CallResponder<'s, S> {
    stream: ClientStream<'s, S>,
    accepts: Accepts,
    progress: ProgressNotifier,
    until: Option<Instant>,
    keep_alive: Duration,
    drain: &'s DrainState,
    next_keep_alive: Instant,
    streams: &'s AgentMetrics,
    open: Option<GaugeGuard>,
    /// Encoded and unsent events: events that are ready together are sent together.
    unsent: Vec<u8>,
}

impl<'s, S: ResponseSink> CallResponder<'s, S> {
    /// Creates a responder for a client, or for a batch.
    pub(crate) fn new(
        to: ResponseTarget<'s, S>,
        accepts: Accepts,
        progress: ProgressNotifier,
        budget: WaitBudget<'s>,
        streams: &'s AgentMetrics,
    ) -> Self {
        let stream = match to {
            ResponseTarget::Client(http) => ClientStream::Quiet(http),
            ResponseTarget::Batch(http) => ClientStream::Watched(http),
        };
        let until = budget.budget.map(|wait| budget.since + wait);
        let next_keep_alive = budget.since + budget.stream_after;
        Self {
            stream,
            accepts,
            progress,
            until,
            keep_alive: budget.keep_alive,
            drain: budget.drain,
            next_keep_alive,
            streams,
            open: None,
            unsent: Vec::new(),
        }
    }

    /// Returns true if the client can be asked a question: it accepts a stream, and the call is not
    /// part of a batch.
    pub(crate) fn can_ask(&self) -> bool {
        self.accepts.stream && matches!(self.stream, ClientStream::Quiet(_) | ClientStream::Open(_))
    }

    /// Sends a message of the gateway on the stream to the client.
    pub(crate) async fn send(&mut self, message: &[u8]) -> Result<(), ClientGone> {
        sse::write_event(&mut self.unsent, message);
        self.flush(None).await
    }

    /// Sets a new end of the budget.
    pub(crate) fn wait_until(&mut self, until: Instant) {
        self.until = Some(until);
    }

    /// Forwards events as progress, until there is a response, the client disconnects, or
    /// `wait_for` is reached.
    pub(crate) async fn run(
        &mut self,
        source: &mut impl CallEvents,
        running: Option<&InFlightCall>,
        wait_for: WaitFor,
    ) -> WaitOutcome {
        let mut heard = 0_u32;
        // One timer serves both deadlines. It is polled before the agent, which may always have an
        // event ready. It is reset only to an earlier deadline: a later one is checked when the
        // timer fires.
        let mut due = self.next_deadline();
        let mut timer = PooledTimer::default();
        let drain = self.drain;
        let (mut answers_due, mut cancellation) = (pin!(drain.answers_due()), pin!(cancelled(running)));
        loop {
            if wait_for == WaitFor::Name && source.is_named() {
                return WaitOutcome::OutOfPatience;
            }
            if self.next_deadline() < due {
                due = self.next_deadline();
            }
            let step = tokio::select! {
                biased;
                () = cancellation.as_mut() => return WaitOutcome::Cancelled,
                () = poll_fn(|cx| timer.poll(cx, due)) => {
                    let now = Instant::now();
                    if self.until.is_some_and(|until| now >= until) {
                        return WaitOutcome::OutOfPatience;
                    }
                    // An event may have moved it since.
                    if now >= self.next_keep_alive {
                        self.next_keep_alive = now + self.keep_alive;
                        // Boxed: it is rare, and most of what a waiting call would hold.
                        if Box::pin(self.send_keep_alive()).await.is_err() {
                            return WaitOutcome::Gone;
                        }
                    }
                    due = self.next_deadline();
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
            if is_due && !self.unsent.is_empty() && self.flush(source.take_end_of_wait()).await.is_err() {
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
        (is_news && self.drain.is_due()).then_some(WaitOutcome::OutOfPatience)
    }

    fn next_deadline(&self) -> Instant {
        self.until.map_or(self.next_keep_alive, |until| until.min(self.next_keep_alive))
    }

    /// Sends the response, or ends without one.
    pub(crate) async fn finish(mut self, mut body: Option<Vec<u8>>) -> Result<Option<Vec<u8>>, ClientGone> {
        if matches!(self.stream, ClientStream::Detached | ClientStream::Watched(_)) {
            return Ok(body);
        }
        let in_stream = !self.unsent.is_empty() || matches!(self.stream, ClientStream::Open(_));
        // Taken, so that the body is in memory once while the client reads it.
        if let Some(body) = body.take_if(|_| in_stream) {
            sse::write_event(&mut self.unsent, &body);
        }
        match (self.stream, body) {
            (ClientStream::Detached | ClientStream::Watched(_), _) => {}
            (ClientStream::Open(mut stream), _) => stream.write(self.unsent, true).await?,
            (ClientStream::Quiet(http), Some(body)) if !in_stream => {
                reply(http, self.accepts, body, None).await?
            }
            // A cancelled request gets no response: the stream ends empty.
            (ClientStream::Quiet(http), _) => events(http, self.unsent).await?,
        }
        Ok(None)
    }

    fn encode(&mut self, note: Option<&ProgressUpdate>) {
        let Some(note) = note.filter(|_| self.accepts.stream && self.progress.listens()) else { return };
        if matches!(self.stream, ClientStream::Detached | ClientStream::Watched(_)) {
            return;
        }
        self.progress.write_events(note, &mut self.unsent);
    }

    async fn send_keep_alive(&mut self) -> Result<(), ClientGone> {
        if !self.accepts.stream || matches!(self.stream, ClientStream::Detached | ClientStream::Watched(_)) {
            return Ok(());
        }
        sse::write_comment(&mut self.unsent, "");
        self.flush(None).await
    }

    /// Sends the unsent events; opens the stream if necessary. `now` is the time, if it is known.
    async fn flush(&mut self, now: Option<Instant>) -> Result<(), ClientGone> {
        let encoded = std::mem::take(&mut self.unsent);
        self.next_keep_alive = now.unwrap_or_else(Instant::now) + self.keep_alive;
        if let ClientStream::Quiet(_) = self.stream {
            let ClientStream::Quiet(http) = std::mem::replace(&mut self.stream, ClientStream::Detached)
            else {
                return Ok(());
            };
            // Boxed: it happens once, and a waiting call must not grow by it.
            let begun = Box::pin(SseWriter::begin_with(http, None, encoded, false)).await?;
            self.stream = ClientStream::Open(begun);
            self.open = Some(self.streams.stream());
            return Ok(());
        }
        match &mut self.stream {
            ClientStream::Open(stream) => stream.write(encoded, false).await,
            ClientStream::Quiet(_) | ClientStream::Watched(_) | ClientStream::Detached => Ok(()),
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
        match &mut self.stream {
            ClientStream::Quiet(http) | ClientStream::Watched(http) => http.disconnected().await,
            ClientStream::Open(events) => events.wait_for_disconnect().await,
            ClientStream::Detached => std::future::pending().await,
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
