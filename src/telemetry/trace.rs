//! Correlation of one request: its id, its client, and the trace that it belongs to.
//!
//! A trace context (W3C Trace Context) comes with a request, and goes to agents. Without an
//! exporter it is passed on as it came. With one, each request and each exchange with an agent is a
//! span of OpenTelemetry; a request that is not sampled costs four random numbers.
//!
//! Spans contain no secrets: no header values, no credentials, no handles, no bodies, no query. Out
//! of scope: the protocol of the exporter (see `otlp`).

use std::borrow::Cow;
use std::cell::RefCell;
use std::fmt;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, OnceLock};
use std::time::{Duration, SystemTime};

use http::{HeaderMap, HeaderName, HeaderValue};
use prometheus::IntCounter;
use rand::rngs::SmallRng;
use rand::{RngCore as _, SeedableRng as _};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::Instant;

use super::label::Outcome;
use super::request_facts::{CompletedRequest, KeptRequest, RequestFacts, RequestTexts};
use super::span::{EndedSpan, ExchangeEnd, ExchangeFacts, ParentSpan, RequestWork, SpanEvents, SpanWork};
use crate::hex::HexText;
use crate::sync::lock;

/// The header with the trace and the span of the sender.
pub(crate) const TRACEPARENT: &str = "traceparent";
/// The header with the data of tracing systems.
pub(crate) const TRACESTATE: &str = "tracestate";
/// The same for headers, checked once.
pub(crate) static PARENT_NAME: HeaderName = HeaderName::from_static(TRACEPARENT);
pub(crate) static STATE_NAME: HeaderName = HeaderName::from_static(TRACESTATE);

/// The maximum size of a `traceparent`: one of a later version may be longer than 55 characters.
const MAX_PARENT_BYTES: usize = 256;
/// The maximum size of a `tracestate` that is passed on (W3C Trace Context §3.3.1.5).
const MAX_STATE_BYTES: usize = 512;
/// The maximum number of members of a `tracestate` (W3C Trace Context §3.3.1.1).
const MAX_STATE_MEMBERS: usize = 32;

/// The trace that a message belongs to, and the span that sent it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TraceContext {
    /// The id of the trace.
    pub(super) trace: [u8; 16],
    /// The id of the span.
    pub(super) span: [u8; 8],
    /// True if its sender records the trace.
    pub(super) is_sampled: bool,
    state: Option<Arc<str>>,
}

impl TraceContext {
    /// Parses the two members by the rules of W3C Trace Context §3.2 and §3.3. `None` for an
    /// invalid parent; an invalid state is left out.
    pub(crate) fn parse(parent: &str, state: Option<&str>) -> Option<Self> {
        let parent = parent.trim_matches([' ', '\t']).as_bytes();
        let (head, rest) = parent.split_first_chunk::<55>().filter(|_| parent.len() <= MAX_PARENT_BYTES)?;
        let [v0, v1, b'-', ..] = head else { return None };
        let [version] = hex([*v0, *v1])?;
        // Version 255 is forbidden; a later version may have more members.
        let is_whole =
            if version == 0 { rest.is_empty() } else { rest.first().is_none_or(|next| *next == b'-') };
        let is_separated = head.get(35) == Some(&b'-') && head.get(52) == Some(&b'-');
        if version == 255 || !is_whole || !is_separated {
            return None;
        }
        let trace: [u8; 16] = hex_at(head, 3)?;
        let span: [u8; 8] = hex_at(head, 36)?;
        let [flags] = hex_at(head, 53)?;
        let is_valid = trace != [0; 16] && span != [0; 8];
        let state = state.filter(|state| is_state(state)).map(Arc::from);
        is_valid.then_some(Self { trace, span, is_sampled: flags & 1 == 1, state })
    }

    /// Reads the headers of a request. Several parents are none.
    pub(crate) fn of_headers(headers: &HeaderMap) -> Option<Self> {
        let mut parents = headers.get_all(&PARENT_NAME).iter();
        let (Some(parent), None) = (parents.next(), parents.next()) else { return None };
        let mut states = headers.get_all(&STATE_NAME).iter().map(HeaderValue::to_str);
        let state: Cow<'_, str> = match (states.next(), states.next()) {
            (Some(Ok(only)), None) => only.into(),
            (None, _) => "".into(),
            // Several headers are one list (W3C Trace Context §3.3.1).
            (Some(_), _) => {
                let all = headers.get_all(&STATE_NAME).iter().map(|state| state.to_str().unwrap_or_default());
                all.collect::<Vec<_>>().join(",").into()
            }
        };
        Self::parse(parent.to_str().ok()?, Some(&*state).filter(|state| !state.is_empty()))
    }

    /// Returns the text of `traceparent`.
    pub(crate) fn parent(&self) -> ParentText {
        let mut text = *b"00-00000000000000000000000000000000-0000000000000000-00";
        let (HexText(trace), HexText(span)) = (HexText::<32>::new(self.trace), HexText::<16>::new(self.span));
        // Whole arrays, which are a few moves where a copy digit by digit takes a thousand instructions.
        let (_, rest) = text.split_at_mut(3);
        if let Some((place, rest)) = rest.split_first_chunk_mut()
            && let Some(([_, place_of_span @ .., _, _, last], [])) = rest.split_first_chunk_mut::<20>()
        {
            (*place, *place_of_span) = (trace, span);
            *last = if self.is_sampled { b'1' } else { b'0' };
        }
        ParentText(text)
    }

    /// Returns the text of `tracestate`, if there is one.
    pub(crate) fn state(&self) -> Option<&str> {
        self.state.as_deref()
    }

    /// Returns the context of a span in the same trace.
    fn with_span(&self, span: u64) -> Self {
        Self { span: span.to_ne_bytes(), state: self.state.clone(), ..*self }
    }
}

/// The text of a `traceparent` of version 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ParentText([u8; 55]);

impl ParentText {
    /// Returns the text.
    pub(crate) fn as_str(&self) -> &str {
        str::from_utf8(&self.0).unwrap_or_default()
    }

    /// Returns the digits of the trace.
    fn trace(&self) -> Option<HexText<32>> {
        self.0.get(3..)?.first_chunk().copied().map(HexText)
    }
}

/// Decodes lower-case hexadecimal digits.
fn hex<const N: usize, const M: usize>(digits: [u8; M]) -> Option<[u8; N]> {
    hex_at(&digits, 0)
}

fn hex_at<const N: usize>(text: &[u8], at: usize) -> Option<[u8; N]> {
    let value = |digit: u8| match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    };
    let mut decoded = [0; N];
    let digits = text.get(at..at.checked_add(N.checked_mul(2)?)?)?;
    for (byte, pair) in decoded.iter_mut().zip(digits.chunks_exact(2)) {
        let [high, low] = pair else { return None };
        *byte = value(*high)? << 4 | value(*low)?;
    }
    Some(decoded)
}

/// Returns true for a list of members as W3C Trace Context §3.3.1 defines it.
fn is_state(state: &str) -> bool {
    if state.len() > MAX_STATE_BYTES {
        return false;
    }
    let members = || state.split(',').map(|member| member.trim_matches([' ', '\t']));
    // An empty member is allowed and means nothing.
    let is_member = |member: &str| member.is_empty() || member.split_once('=').is_some_and(is_state_member);
    members().count() <= MAX_STATE_MEMBERS
        && members().all(is_member)
        && members().any(|member| !member.is_empty())
}

fn is_state_member((key, value): (&str, &str)) -> bool {
    let is_part = |part: &str, most: usize, begins: fn(u8) -> bool| {
        let is_inner = |byte: u8| {
            byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'_' | b'-' | b'*' | b'/')
        };
        part.len() <= most && part.bytes().next().is_some_and(begins) && part.bytes().all(is_inner)
    };
    let is_letter = |byte: u8| byte.is_ascii_lowercase();
    let is_key = match key.split_once('@') {
        None => is_part(key, 256, is_letter),
        Some((tenant, system)) => {
            is_part(tenant, 241, |byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
                && is_part(system, 14, is_letter)
        }
    };
    let is_value = |byte: u8| matches!(byte, b' '..=b'~') && !matches!(byte, b',' | b'=');
    is_key && !value.is_empty() && value.len() <= 256 && !value.ends_with(' ') && value.bytes().all(is_value)
}

/// The facts that correlate the log lines, the spans and the exchanges of one request.
pub struct RequestScope {
    id: Cow<'static, str>,
    client: Option<IpAddr>,
    begun: std::time::Instant,
    received: Option<TraceContext>,
    tracer: Option<Arc<Tracer>>,
    trace: OnceLock<Option<RequestTrace>>,
}

impl RequestScope {
    /// Creates the scope of a request with this id, from this address, with the trace context of
    /// its headers.
    pub(crate) fn new(
        id: Cow<'static, str>,
        client: Option<IpAddr>,
        received: Option<TraceContext>,
        tracer: Option<&Arc<Tracer>>,
    ) -> Self {
        let begun = std::time::Instant::now();
        Self { id, client, begun, received, tracer: tracer.cloned(), trace: OnceLock::new() }
    }

    /// Creates the scope of a request with a new id, and nothing else.
    pub fn bare() -> Self {
        Self::new(new_request_id().into(), None, None, None)
    }

    /// Returns the id of the request.
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// Returns the time at which the request began.
    pub(crate) fn begun(&self) -> std::time::Instant {
        self.begun
    }

    /// Returns the address of the client.
    pub(crate) fn client(&self) -> Option<IpAddr> {
        self.client
    }

    /// Begins the trace of the request, unless it has begun. The parent in the message itself, if
    /// there is one, wins over the one in the HTTP headers, which becomes a link.
    pub(crate) fn begin_trace(&self, message: Option<TraceContext>) {
        self.trace.get_or_init(|| match &self.tracer {
            None => message.or_else(|| self.received.clone()).map(RequestTrace::passing),
            Some(tracer) => {
                let link = message.as_ref().and(self.received.as_ref());
                let link = link.filter(|link| message.as_ref().is_some_and(|message| message != *link));
                let parent = message.as_ref().or(self.received.as_ref());
                Some(tracer.begin(parent, link, self.begun))
            }
        });
    }

    /// Returns the trace, once it has begun.
    pub(crate) fn trace(&self) -> Option<&RequestTrace> {
        self.trace.get()?.as_ref()
    }

    /// Returns the id of the trace that the request belongs to.
    pub(crate) fn trace_id(&self) -> Option<HexText<32>> {
        match self.trace.get() {
            Some(trace) => trace.as_ref().and_then(|trace| trace.parent.trace()),
            None => self.received.as_ref().map(|received| HexText::new(received.trace)),
        }
    }

    /// Returns true if the span of the request will be exported.
    pub(crate) fn is_recorded(&self) -> bool {
        self.trace().is_some_and(|trace| trace.recorded.is_some())
    }

    /// Records an event of the request, if it is recorded.
    pub(crate) fn event(&self, event: SpanEvent) {
        if let Some(trace) = self.trace() {
            trace.event(event);
        }
    }

    /// Ends the span of the request, if it is recorded.
    pub(crate) fn end(&self, request: &CompletedRequest<'_>) {
        if let Some(trace) = self.trace() {
            trace.end(request);
        }
    }
}

impl Drop for RequestScope {
    /// Ends the span of a request that was not completed: it panicked, or the host of the gateway dropped it.
    fn drop(&mut self) {
        if self.is_recorded() {
            let outcome = if std::thread::panicking() { Outcome::GatewayFault } else { Outcome::ClientGone };
            let texts = RequestTexts { request: &self.id, ..RequestTexts::default() };
            let facts =
                RequestFacts { client: self.client, is_anonymous: true, outcome, ..RequestFacts::default() };
            self.end(&CompletedRequest { texts, facts });
        }
    }
}

/// Returns an id for a request: random bits of the process, then the number of the request.
pub(crate) fn new_request_id() -> String {
    static PROCESS: LazyLock<u64> = LazyLock::new(rand::random);
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let mut text = String::with_capacity(28);
    text.push_str(HexText::<16>::new(PROCESS.to_be_bytes()).as_str());
    let [_, _, _, number @ ..] = NEXT.fetch_add(1, Ordering::Relaxed).to_be_bytes();
    text.push_str(HexText::<10>::new(number).as_str());
    text
}

/// Something that happened within a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SpanEvent {
    /// The request is sent to another endpoint of the agent, because none of it was sent before.
    Retry(&'static str),
    /// The agent rejected the version of its card, and another one is tried.
    VersionChange,
    /// The stream of the agent stopped, and the task is asked for.
    Recovery,
    /// The call goes on without its client.
    Handover,
    /// The client cancelled the request.
    Cancelled,
    /// The client disconnected.
    ClientGone,
}

impl SpanEvent {
    /// Returns the name of the event.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Retry(_) => "retry",
            Self::VersionChange => "version_change",
            Self::Recovery => "recovery",
            Self::Handover => "handover",
            Self::Cancelled => "cancelled",
            Self::ClientGone => "client_gone",
        }
    }
}

/// The trace of one request.
pub(crate) struct RequestTrace {
    /// The span of the request; without an exporter the one that sent the request.
    context: TraceContext,
    /// Its text.
    parent: ParentText,
    /// Its span, if it is exported. Boxed, because most requests have none: it is larger than all else here.
    recorded: Option<Box<RecordedSpan>>,
}

/// The span of a request that will be exported.
struct RecordedSpan {
    tracer: Arc<Tracer>,
    begun: SystemTime,
    parent: Option<ParentSpan>,
    link: Option<TraceContext>,
    /// `None` once the span has ended.
    events: Mutex<Option<SpanEvents>>,
}

impl RequestTrace {
    fn passing(context: TraceContext) -> Self {
        Self { parent: context.parent(), context, recorded: None }
    }

    /// Returns the text of `traceparent` for messages that the request causes.
    pub(crate) fn parent(&self) -> &str {
        self.parent.as_str()
    }

    /// Returns the context for messages that the request causes.
    pub(crate) fn context(&self) -> &TraceContext {
        &self.context
    }

    fn event(&self, event: SpanEvent) {
        if let Some(recorded) = &self.recorded
            && let Some(events) = &mut *lock(&recorded.events)
        {
            events.add(event);
        }
    }

    fn end(&self, request: &CompletedRequest<'_>) {
        if let Some(recorded) = &self.recorded
            && let Some(events) = lock(&recorded.events).take()
        {
            let link = recorded.link.clone();
            recorded.tracer.end(EndedSpan {
                context: self.context.clone(),
                parent: recorded.parent,
                begun: recorded.begun,
                ended: SystemTime::now(),
                work: SpanWork::Request(Box::new(RequestWork {
                    request: KeptRequest::new(request),
                    link,
                    events,
                })),
            });
        }
    }

    /// Begins the span of an exchange with an agent; `None` if the request is not recorded.
    pub(crate) fn exchange(&self, describe: impl FnOnce() -> ExchangeFacts) -> Option<Box<ExchangeTrace>> {
        let recorded = self.recorded.as_ref()?;
        let [span] = insecure_random();
        let context = self.context.with_span(span);
        Some(Box::new(ExchangeTrace {
            tracer: Arc::clone(&recorded.tracer),
            parent: ParentSpan { id: self.context.span, is_remote: false },
            text: context.parent(),
            context,
            begun: SystemTime::now(),
            facts: Some(describe()),
            end: None,
        }))
    }

    /// Returns the headers of a request to an agent that has no span of its own.
    pub(crate) fn headers(&self) -> TraceHeaders<'_> {
        TraceHeaders { parent: &self.parent, state: self.context.state() }
    }
}

/// The span of an exchange with an agent, and its trace context. The span ends when this is dropped.
pub(crate) struct ExchangeTrace {
    tracer: Arc<Tracer>,
    context: TraceContext,
    /// The text of the context.
    text: ParentText,
    parent: ParentSpan,
    begun: SystemTime,
    /// `None` once the span has ended.
    facts: Option<ExchangeFacts>,
    end: Option<ExchangeEnd>,
}

impl ExchangeTrace {
    /// Returns the headers of the request.
    pub(crate) fn headers(&self) -> TraceHeaders<'_> {
        TraceHeaders { parent: &self.text, state: self.context.state() }
    }

    /// Records the status of the response.
    pub(crate) fn record_status(&mut self, status: u16) {
        self.end = Some(ExchangeEnd::Status(status));
    }

    /// Records the failure of the exchange.
    pub(crate) fn record_failure(&mut self, reason: &'static str) {
        self.end = Some(ExchangeEnd::Failure(reason));
    }
}

impl Drop for ExchangeTrace {
    fn drop(&mut self) {
        let Some(facts) = self.facts.take() else { return };
        self.tracer.end(EndedSpan {
            context: self.context.clone(),
            parent: Some(self.parent),
            begun: self.begun,
            ended: SystemTime::now(),
            work: SpanWork::Exchange(facts, self.end),
        });
    }
}

/// The headers of a request with its trace context, in place of others with their names. Their values are visible ASCII,
/// spaces and tabs, as those of headers have to be (RFC 9110 §5.5): digits, and a state that was parsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TraceHeaders<'a> {
    parent: &'a ParentText,
    state: Option<&'a str>,
}

impl<'a> TraceHeaders<'a> {
    /// Returns the value of `traceparent`.
    pub(crate) fn parent(self) -> &'a [u8; 55] {
        let ParentText(text) = self.parent;
        text
    }

    /// Returns the value of `tracestate`, if there is one.
    pub(crate) fn state(self) -> Option<&'a [u8]> {
        self.state.map(str::as_bytes)
    }
}

/// The settings of a tracer.
pub(crate) struct TracerSettings {
    /// The part of the traces that is sampled, from 0 to 1.
    pub(crate) ratio: f64,
    /// True if the decision of a client counts.
    pub(crate) trusts_clients: bool,
    /// The maximum number of spans that wait for the exporter.
    pub(crate) queue: usize,
    /// Counts spans that found no place in the queue.
    pub(crate) dropped: IntCounter,
}

/// Records the spans of sampled requests.
pub(crate) struct Tracer {
    /// A random number below this is sampled.
    threshold: u64,
    trusts_clients: bool,
    queue: SpanSender,
    dropped: IntCounter,
}

/// The maximum time for which the end of the process waits for the exporter.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

impl Tracer {
    /// Creates a tracer, and the queue of its spans for the exporter.
    pub(crate) fn new(settings: TracerSettings) -> (Arc<Self>, SpanReceiver) {
        let TracerSettings { ratio, trusts_clients, queue, dropped } = settings;
        let (queue, spans) = span_queue(queue.max(1));
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "saturates"
        )]
        let threshold = (ratio.clamp(0.0, 1.0) * u64::MAX as f64) as u64;
        (Arc::new(Self { threshold, trusts_clients, queue, dropped }), spans)
    }

    fn begin(
        self: &Arc<Self>,
        parent: Option<&TraceContext>,
        link: Option<&TraceContext>,
        begun: std::time::Instant,
    ) -> RequestTrace {
        let [sample, first, second, span] = insecure_random();
        // Not by the id of the trace, which a client can choose.
        let is_sampled = match parent.filter(|_| self.trusts_clients) {
            Some(parent) => parent.is_sampled,
            None => self.threshold == u64::MAX || sample < self.threshold,
        };
        let trace = (u128::from(first) << 64 | u128::from(second)).to_ne_bytes();
        let context = TraceContext {
            trace: parent.map_or(trace, |parent| parent.trace),
            span: span.to_ne_bytes(),
            is_sampled,
            state: parent.and_then(|parent| parent.state.clone()),
        };
        let mut trace = RequestTrace::passing(context);
        if is_sampled {
            // Only now, because two clocks for each request would cost more.
            let now = SystemTime::now();
            trace.recorded = Some(Box::new(RecordedSpan {
                tracer: Arc::clone(self),
                begun: now.checked_sub(begun.elapsed()).unwrap_or(now),
                parent: parent.map(|parent| ParentSpan { id: parent.span, is_remote: true }),
                link: link.cloned(),
                events: Mutex::new(Some(SpanEvents::default())),
            }));
        }
        trace
    }

    /// Passes a span to the exporter, or drops it if there is no room.
    fn end(&self, span: EndedSpan) {
        if self.queue.entries.try_send(QueuedSpan::Ended(Box::new(span))).is_err() {
            self.dropped.inc();
        }
        if self.queue.is_filling() {
            self.queue.wake.notify_one();
        }
    }

    /// Waits until the exporter has sent the spans that have ended, but no longer than a second.
    pub(crate) async fn flush(&self) {
        let (done, sent) = oneshot::channel();
        let flushed = async {
            // Fails only if the exporter has gone.
            if self.queue.entries.send(QueuedSpan::Flush(done)).await.is_ok() {
                self.queue.wake.notify_one();
                drop(sent.await);
            }
        };
        if tokio::time::timeout(FLUSH_TIMEOUT, flushed).await.is_err() {
            tracing::debug!("timed out flushing spans");
        }
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        self.queue.wake.notify_one();
    }
}

/// Returns random numbers for the ids of traces and for sampling, none of them zero. They are no secrets: a
/// generator for these takes ten times as long.
fn insecure_random<const N: usize>() -> [u64; N] {
    thread_local! {
        static GENERATOR: RefCell<SmallRng> = RefCell::new(SmallRng::from_entropy());
    }
    let mut numbers = [0; N];
    GENERATOR.with_borrow_mut(|generator| {
        numbers.iter_mut().for_each(|number| *number = generator.next_u64().max(1));
    });
    numbers
}

/// An entry of the queue to the exporter.
pub(crate) enum QueuedSpan {
    /// A span that has ended.
    Ended(Box<EndedSpan>),
    /// Asks for a reply once all entries before are sent.
    Flush(oneshot::Sender<()>),
}

impl QueuedSpan {
    fn is_flush(&self) -> bool {
        matches!(self, Self::Flush(_))
    }
}

/// The maximum number of spans of one batch.
const MAX_BATCH_SPANS: usize = 512;

/// The sending end of the queue to the exporter.
#[derive(Debug)]
struct SpanSender {
    entries: mpsc::Sender<QueuedSpan>,
    /// Notified when the next batch must not wait for more spans.
    wake: Arc<Notify>,
}

/// The receiving end of the queue to the exporter.
#[derive(Debug)]
pub(crate) struct SpanReceiver {
    entries: mpsc::Receiver<QueuedSpan>,
    wake: Arc<Notify>,
}

fn span_queue(size: usize) -> (SpanSender, SpanReceiver) {
    let (sender, receiver) = mpsc::channel(size);
    let wake = Arc::new(Notify::new());
    (SpanSender { entries: sender, wake: Arc::clone(&wake) }, SpanReceiver { entries: receiver, wake })
}

impl SpanReceiver {
    /// Receives a batch: the first entries, and those of the next `delay`, unless the batch is full or a
    /// flush is asked for before. Empty once the tracer is dropped. Not cancel-safe.
    ///
    /// The entries of the delay are taken at its end: a span that arrives meanwhile wakes no thread.
    pub(crate) async fn batch(&mut self, delay: Duration) -> Vec<QueuedSpan> {
        let mut batch = Vec::new();
        if self.entries.recv_many(&mut batch, MAX_BATCH_SPANS).await == 0 {
            return batch;
        }
        let deadline = Instant::now() + delay;
        while batch.len() < MAX_BATCH_SPANS && !batch.iter().any(QueuedSpan::is_flush) {
            let is_over = tokio::time::timeout_at(deadline, self.wake.notified()).await.is_err();
            while batch.len() < MAX_BATCH_SPANS
                && let Ok(entry) = self.entries.try_recv()
            {
                batch.push(entry);
            }
            // A wake may be left of an earlier batch, which has taken its entries.
            if is_over || self.entries.is_closed() {
                break;
            }
        }
        batch
    }
}

impl SpanSender {
    /// Returns true if a batch is full, or half of the queue.
    fn is_filling(&self) -> bool {
        let most = self.entries.max_capacity();
        most.saturating_sub(self.entries.capacity()) >= MAX_BATCH_SPANS.min(most.div_ceil(2))
    }
}

impl fmt::Debug for QueuedSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueuedSpan").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::trace::v1::Span;
    use opentelemetry_proto::tonic::trace::v1::status::StatusCode;

    use super::*;
    use crate::telemetry::metrics::Metrics;
    use crate::telemetry::span::tests::{read, shown};

    const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn tracer(ratio: f64, trusts_clients: bool, queue: usize) -> (Arc<Tracer>, SpanReceiver, IntCounter) {
        let dropped = IntCounter::new("dropped", "dropped").unwrap();
        let settings = TracerSettings { ratio, trusts_clients, queue, dropped: dropped.clone() };
        let (tracer, spans) = Tracer::new(settings);
        (tracer, spans, dropped)
    }

    fn scope(headers: &[(&'static str, &str)], tracer: Option<&Arc<Tracer>>) -> RequestScope {
        let pairs = headers.iter().map(|(name, value)| ((*name).parse().unwrap(), value.parse().unwrap()));
        let received = TraceContext::of_headers(&pairs.collect());
        RequestScope::new("1".into(), None, received, tracer)
    }

    fn end(scope: &RequestScope) {
        scope.begin_trace(None);
        scope.end(&CompletedRequest::default());
    }

    fn ended(spans: &mut SpanReceiver) -> Vec<Span> {
        let mut all = Vec::new();
        while let Ok(QueuedSpan::Ended(span)) = spans.entries.try_recv() {
            all.push(read(&span));
        }
        all
    }

    /// Ends so many spans.
    fn end_spans(tracer: &Arc<Tracer>, count: usize) {
        for _ in 0..count {
            end(&scope(&[], Some(tracer)));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_batch_has_the_spans_of_its_delay() {
        const DELAY: Duration = Duration::from_secs(1);
        let (tracer, mut spans, _) = tracer(1.0, false, 2048);
        end_spans(&tracer, 1);
        let (batch, ()) = tokio::join!(spans.batch(DELAY), async {
            tokio::time::sleep(DELAY / 2).await;
            end_spans(&tracer, 2);
        });
        assert_eq!(batch.len(), 3);
        let begun = tokio::time::Instant::now();
        let (batch, ()) = tokio::join!(spans.batch(DELAY), async {
            end_spans(&tracer, 1);
            tokio::task::yield_now().await;
            end_spans(&tracer, MAX_BATCH_SPANS);
        });
        assert_eq!(
            (batch.len(), begun.elapsed()),
            (MAX_BATCH_SPANS, Duration::ZERO),
            "a full batch does not wait"
        );
        let flushed = async { while !spans.batch(DELAY).await.iter().any(QueuedSpan::is_flush) {} };
        tokio::join!(flushed, tracer.flush());
        assert_eq!(begun.elapsed(), Duration::ZERO, "a flush does not wait");
        drop(tracer);
        assert!(spans.batch(DELAY).await.is_empty());
    }

    #[test]
    fn trace_parent_follows_w3c() {
        for (text, is_valid) in [
            (PARENT, true),
            ("cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-what-the-future-brings", true),
            ("cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01.what", false),
            ("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-x", false),
            ("ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", false),
            ("00-00000000000000000000000000000000-00f067aa0ba902b7-01", false),
            ("00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01", false),
            ("00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01", false),
            ("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0", false),
            ("00-4bf92f3577b34da6a3ce929d0e0e4736_00f067aa0ba902b7-01", false),
            ("", false),
        ] {
            assert_eq!(TraceContext::parse(text, None).is_some(), is_valid, "{text}");
        }
        assert!(
            TraceContext::parse(&format!("{}-{}", PARENT.replacen("00", "cc", 1), "x".repeat(300)), None)
                .is_none()
        );
        assert_eq!(TraceContext::parse(PARENT, None).unwrap().parent().as_str(), PARENT);
    }

    #[test]
    fn trace_state_follows_w3c() {
        for (text, is_valid) in [
            ("rojo=00f067aa0ba902b7,congo=t61rcWkgMzE", true),
            ("a=1, ,b=2", true),
            ("1a@b=2", true),
            ("A=1", false),
            ("a=1=2", false),
            ("a", false),
            ("a=", false),
            ("a=1\u{e9}", false),
            ("a=1\r\nb: 2", false),
            ("a=1\n", false),
            (" , ", false),
        ] {
            assert_eq!(
                TraceContext::parse(PARENT, Some(text)).unwrap().state().is_some(),
                is_valid,
                "{text}"
            );
        }
        let many = vec!["a=1"; 33].join(",");
        assert!(!is_state(&many) && !is_state(&format!("a={}", "x".repeat(600))));
    }

    #[test]
    fn trace_of_two_parents_is_ignored() {
        assert!(scope(&[(TRACEPARENT, PARENT), (TRACEPARENT, PARENT)], None).received.is_none());
        let context = scope(&[(TRACEPARENT, PARENT), (TRACESTATE, "a=1"), (TRACESTATE, "b=2")], None);
        assert_eq!(context.received.as_ref().unwrap().state(), Some("a=1,b=2"));
    }

    #[test]
    fn trace_without_exporter_passes_through() {
        let scope = scope(&[(TRACEPARENT, PARENT)], None);
        scope.begin_trace(None);
        let trace = scope.trace().unwrap();
        assert!(trace.exchange(|| unreachable!()).is_none());
        assert_eq!((trace.headers().parent().as_slice(), trace.headers().state()), (PARENT.as_bytes(), None));
        end(&scope);
    }

    #[test]
    fn trace_has_one_span_each() {
        let (tracer, mut spans, _) = tracer(1.0, false, 16);
        let scope = scope(&[(TRACEPARENT, PARENT), (TRACESTATE, "a=1")], Some(&tracer));
        scope.begin_trace(None);
        let facts = || ExchangeFacts {
            verb: http::Method::POST,
            authority: http::uri::Authority::from_static("127.0.0.1:80"),
            port: 80,
            agent: Metrics::new().unwrap().agent("bard"),
            system: "jsonrpc",
            version: "1.0",
        };
        let mut exchange = scope.trace().unwrap().exchange(facts).unwrap();
        exchange.record_status(503);
        let headers = exchange.headers();
        let [parent, state] = [headers.parent().as_slice(), headers.state().unwrap()]
            .map(|value| str::from_utf8(value).unwrap());
        let sent = TraceContext::parse(parent, Some(state)).unwrap();
        drop(exchange);
        scope.event(SpanEvent::Handover);
        end(&scope);
        let [client, server] = ended(&mut spans).try_into().unwrap();
        let parent = TraceContext::parse(PARENT, None).unwrap();
        assert_eq!(server.parent_span_id, parent.span);
        assert_eq!((server.flags, client.flags), (0x301, 0x101), "the parent of one of them is remote");
        assert_eq!(client.parent_span_id, server.span_id);
        assert_eq!((&client.trace_id[..], &server.trace_id[..]), (&parent.trace[..], &parent.trace[..]));
        assert_eq!(client.span_id, sent.span);
        assert_eq!((sent.state(), &*client.trace_state, &*server.trace_state), (Some("a=1"), "a=1", "a=1"));
        assert_eq!(server.events.iter().map(|event| &*event.name).collect::<Vec<_>>(), ["handover"]);
        assert_eq!(
            (client.name.as_str(), client.status.as_ref().unwrap().code()),
            ("POST bard", StatusCode::Error)
        );
        for attribute in ["error.type=503", "server.address=127.0.0.1"] {
            let attributes = shown(&client.attributes);
            assert!(attributes.iter().any(|shown| shown == attribute), "{attributes:?}");
        }
        assert!(client.start_time_unix_nano >= server.start_time_unix_nano, "one is within the other");
        assert!(client.end_time_unix_nano <= server.end_time_unix_nano, "one is within the other");
    }

    #[test]
    fn span_of_request_that_was_not_completed_ends() {
        let (tracer, mut spans, _) = tracer(1.0, false, 16);
        let scope = scope(&[(TRACEPARENT, PARENT)], Some(&tracer));
        scope.begin_trace(None);
        drop(scope);
        let [span] = ended(&mut spans).try_into().unwrap();
        assert_eq!(span.name, "HTTP");
        let attributes = shown(&span.attributes);
        assert!(
            attributes.iter().any(|shown| shown == "mcp_a2a_gateway.outcome=client_gone"),
            "{attributes:?}"
        );
        end_spans(&tracer, 1);
        assert_eq!(ended(&mut spans).len(), 1, "a span ends once");
    }

    #[test]
    fn message_parent_wins_over_header() {
        let (tracer, mut spans, _) = tracer(1.0, false, 16);
        let scope = scope(&[(TRACEPARENT, PARENT)], Some(&tracer));
        scope.begin_trace(TraceContext::parse(&PARENT.replace("00f0", "11f0"), None));
        scope.begin_trace(None);
        end(&scope);
        let [server] = ended(&mut spans).try_into().unwrap();
        let received = TraceContext::parse(PARENT, None).unwrap();
        assert_eq!(server.parent_span_id, [0x11, 0xf0, 0x67, 0xaa, 0x0b, 0xa9, 0x02, 0xb7]);
        let [link] = server.links.try_into().unwrap();
        assert_eq!((link.span_id, link.flags), (received.span.to_vec(), 0x301));
    }

    #[test]
    fn sampling_of_client_counts_if_trusted() {
        for (ratio, trusts, recorded) in [(0.0, false, 0), (0.0, true, 1), (1.0, true, 1), (1.0, false, 1)] {
            let (tracer, mut spans, _) = tracer(ratio, trusts, 16);
            let scope = scope(&[(TRACEPARENT, PARENT)], Some(&tracer));
            end(&scope);
            assert_eq!(ended(&mut spans).len(), recorded, "{ratio} {trusts}");
            assert_eq!(scope.trace_id().unwrap().as_str(), "4bf92f3577b34da6a3ce929d0e0e4736");
            let context = scope.trace().unwrap().context();
            assert_eq!(context.is_sampled, recorded == 1);
            assert_ne!(context.parent().as_str(), PARENT, "the gateway is a hop of its own");
        }
    }

    #[test]
    fn spans_beyond_queue_are_counted() {
        let (tracer, mut spans, dropped) = tracer(1.0, false, 2);
        (0..5).for_each(|_| end(&scope(&[], Some(&tracer))));
        assert_eq!((ended(&mut spans).len(), dropped.get()), (2, 3));
    }

    #[test]
    fn request_ids_differ() {
        let ids = [new_request_id(), new_request_id()];
        assert_ne!(ids[0], ids[1]);
        assert_eq!(ids[0].len(), 26);
    }
}
