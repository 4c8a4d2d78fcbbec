//! Response forwarding to an A2A client, chunk by chunk and without a change.
//!
//! An event stream is forwarded up to the end of the last complete event. So everything that the
//! gateway adds (a keep-alive comment, a final error) stands between two events, and no byte of the
//! agent changes. See also `response` for responses with a rewritten body.

use std::future::poll_fn;
use std::ops::ControlFlow;
use std::pin::{Pin, pin};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName};
use http::{HeaderMap, HeaderValue, StatusCode};
use memchr::memmem::rfind;
use tokio::time::Instant;

use super::error::A2aError;
use super::response::{FOREIGN, is_foreign};
use super::{EXTENSIONS, VERSION};
use crate::agents::ForwardedResponse;
use crate::fault::{Abort, AgentFailure, ClientGone, Fault};
use crate::http_edge::{DrainState, Headers, ResponseSink, abort, begin};
use crate::jsonrpc::Id;
use crate::quota::AnswerRoom;
use crate::sse;
use crate::telemetry::metrics::AgentMetrics;
use crate::timing::{PooledTimer, after};
use crate::transport::BodyPieces;

/// Limits on the agent's response, and the state of the gateway on which it depends.
#[derive(Clone, Copy)]
pub(super) struct ForwardContext<'a> {
    /// Most bytes of one response.
    pub(super) response_bytes: usize,
    /// Most bytes of one event.
    pub(super) event_bytes: usize,
    /// Interval of keep-alive comments on a stream.
    pub(super) keep_alive: Duration,
    /// Drain state, which ends streams between two events.
    pub(super) drain: &'a DrainState,
    /// Metrics of the agent, which count its open streams.
    pub(super) metrics: &'a AgentMetrics,
}

/// Rewriter for the events of a stream.
pub(super) trait BodyRewriter {
    /// Returns the headers of the agent's response that the client gets.
    fn headers(&self, of: &HeaderMap) -> Headers;

    /// Returns the events that come before those of the agent; none on the second call.
    fn first(&mut self) -> Vec<u8>;

    /// Rewrites complete events. Returns an [`AgentFailure`] if the following events violate A2A.
    fn events(&mut self, events: Bytes) -> (Bytes, Result<(), AgentFailure>);

    /// Returns true if the client has received the last event, so that later events are dropped.
    fn is_over(&self) -> bool;

    /// Returns the events for a failure, after which the stream ends.
    fn failure(&self, failure: &AgentFailure) -> Vec<u8>;

    /// Rewrites the beginning of an event that was never completed.
    fn finish(&self, rest: Bytes) -> Bytes;
}

/// Waits for a future of the agent while the client is connected. The caller pins the future:
/// otherwise every call would hold it twice.
pub(super) async fn unless_client_gone<T>(
    http: &mut impl ResponseSink,
    waited_for: Pin<&mut impl Future<Output = T>>,
) -> Result<T, ClientGone> {
    tokio::select! {
        biased;
        found = waited_for => Ok(found),
        () = http.disconnected() => Err(ClientGone),
    }
}

/// Returns the headers of an agent's response that its client gets, and no others.
pub(super) fn headers(of: &HeaderMap) -> Headers {
    // A scan of the few headers is cheaper than a lookup of each name.
    let response = of.iter().filter(|(name, _)| **name == VERSION || EXTENSIONS.contains(name));
    response.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// Forwards one JSON value as it arrives, a JSON-RPC response to the request of this `id`. Returns
/// the failure that interrupted it after the client had received a part.
pub(super) async fn value(
    http: &mut impl ResponseSink,
    response: &mut ForwardedResponse,
    id: Option<&Id>,
    media_type: HeaderValue,
    context: ForwardContext<'_>,
) -> Result<Option<AgentFailure>, Abort<A2aError>> {
    let limit = context.response_bytes;
    let too_much = || AgentFailure::LimitExceeded(limit, "one answer");
    let length = response.length();
    if length.is_some_and(|length| length > limit) {
        return Err(too_much().into());
    }
    let mut next = first_chunk(http, response, context.drain).await?;
    let (mut sent, mut pieces) = (0, BodyPieces::default());
    let mut headers = headers(response.headers());
    headers.push((CONTENT_TYPE, media_type));
    let whole = next.as_ref().map_or(0, Bytes::len);
    if whole > limit {
        return Err(too_much().into());
    }
    // A value that comes in several chunks is forwarded unread.
    if let Some(id) = id.filter(|_| response.is_over()) {
        check_whole(next.as_deref().unwrap_or_default(), id)?;
    }
    let length = if response.is_over() { Some(whole) } else { length };
    begin(http, StatusCode::OK, headers, length).await?;
    while let Some(bytes) = next {
        sent += bytes.len();
        let fits = pieces.add(bytes.len());
        if sent > limit || !fits {
            abort(http).await;
            return Ok(Some(if fits { too_much() } else { too_many_pieces() }));
        }
        http.write_body(bytes, response.is_over()).await?;
        if response.is_over() {
            return Ok(None);
        }
        next = match unless_client_gone(http, pin!(response.chunk())).await? {
            Ok(next) => next,
            Err(failure) => {
                abort(http).await;
                return Ok(Some(failure));
            }
        };
    }
    if length != Some(0) {
        http.write_body(Bytes::new(), true).await?;
    }
    Ok(None)
}

/// Returns the first bytes of a response, unless the process ends before they come.
async fn first_chunk(
    http: &mut impl ResponseSink,
    response: &mut ForwardedResponse,
    drain: &DrainState,
) -> Result<Option<Bytes>, Abort<A2aError>> {
    let first = pin!(response.chunk());
    tokio::select! {
        biased;
        next = unless_client_gone(http, first) => Ok(next??),
        () = drain.answers_due() => Err(Fault::Ending.into()),
    }
}

/// Checks a complete JSON-RPC response: it is not empty, and answers the request of this `id`.
fn check_whole(response: &[u8], id: &Id) -> Result<(), AgentFailure> {
    match response {
        [] => Err(AgentFailure::ProtocolViolation("its answer is empty".into())),
        _ if is_foreign(response, id) => Err(AgentFailure::ProtocolViolation(FOREIGN.into())),
        _ => Ok(()),
    }
}

/// Ends a stream because the process ends.
async fn end_early(
    http: &mut impl ResponseSink,
    rewriter: &mut impl BodyRewriter,
    has_events: bool,
) -> Result<Option<AgentFailure>, ClientGone> {
    if has_events {
        // The client has all complete events, and subscribes again for the rest.
        http.write_body(Bytes::new(), true).await?;
        return Ok(None);
    }
    let failure = AgentFailure::Internal("it ends before the agent has answered; the agent may go on");
    http.write_body(rewriter.failure(&failure).into(), true).await?;
    Ok(Some(failure))
}

/// Returns the failure of a response that comes in too many small pieces.
fn too_many_pieces() -> AgentFailure {
    AgentFailure::ProtocolViolation("its answer comes in too many small pieces".into())
}

/// Begins a stream, with the events that come before those of the agent.
async fn begin_stream(
    http: &mut impl ResponseSink,
    response: &ForwardedResponse,
    rewriter: &mut impl BodyRewriter,
) -> Result<(), ClientGone> {
    let mut headers = rewriter.headers(response.headers());
    headers.push((CONTENT_TYPE, HeaderValue::from_static("text/event-stream")));
    headers.push((CACHE_CONTROL, HeaderValue::from_static("no-cache, no-transform")));
    headers.push((HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no")));
    begin(http, StatusCode::OK, headers, None).await?;
    let first = rewriter.first();
    if first.is_empty() { Ok(()) } else { http.write_body(first.into(), false).await }
}

/// Sends complete events to the client. Breaks if the stream ends with them, with the failure that
/// ended it.
async fn write_events(
    http: &mut impl ResponseSink,
    rewriter: &mut impl BodyRewriter,
    whole: Bytes,
) -> Result<ControlFlow<Option<AgentFailure>>, ClientGone> {
    let (events, done) = rewriter.events(whole);
    if let Err(failure) = done {
        let events = [events.as_ref(), &rewriter.failure(&failure)].concat();
        http.write_body(events.into(), true).await?;
        return Ok(ControlFlow::Break(Some(failure)));
    }
    let is_over = rewriter.is_over();
    if is_over || !events.is_empty() {
        http.write_body(events, is_over).await?;
    }
    Ok(if is_over { ControlFlow::Break(None) } else { ControlFlow::Continue(()) })
}

/// Forwards a stream. Returns the failure that ended it, after it was sent to the client.
pub(super) async fn stream<S: ResponseSink>(
    http: &mut S,
    response: &mut ForwardedResponse,
    rewriter: &mut impl BodyRewriter,
    room: &mut AnswerRoom,
    context: ForwardContext<'_>,
) -> Result<Option<AgentFailure>, ClientGone> {
    begin_stream(http, response, rewriter).await?;
    let _open = context.metrics.stream();
    let mut splitter = EventSplitter::new(context.event_bytes);
    response.limit_events(context.event_bytes);
    // The client gets a comment between one interval and two after the last event: no clock is read
    // for each event.
    let interval = context.keep_alive / 2;
    let (mut is_quiet, mut has_events) = (false, false);
    let (mut timer, mut due) = (PooledTimer::default(), after(Instant::now(), interval));
    let mut answers_due = pin!(context.drain.answers_due());
    loop {
        let chunk = tokio::select! {
            biased;
            chunk = response.chunk() => chunk,
            () = poll_fn(|cx| timer.poll(cx, due)) => {
                if is_quiet {
                    let mut comment = Vec::new();
                    sse::write_comment(&mut comment, "");
                    http.write_body(comment.into(), false).await?;
                }
                is_quiet = !is_quiet;
                due = after(Instant::now(), interval);
                continue;
            }
            () = http.disconnected() => return Err(ClientGone),
            () = answers_due.as_mut() => return end_early(http, rewriter, has_events).await,
        };
        let events = chunk.and_then(|chunk| {
            let Some(bytes) = chunk else { return Ok(None) };
            // Counted until the client has read the forwarded bytes.
            room.permit.set(splitter.held() + response.held() + bytes.len())?;
            if bytes.is_empty() {
                return Ok(Some(bytes));
            }
            let whole = splitter.push(bytes).map_err(|error| match error {
                BoundaryError::TooLong => AgentFailure::LimitExceeded(context.event_bytes, "one event"),
                BoundaryError::TooManyPieces => too_many_pieces(),
            })?;
            Ok(Some(whole))
        });
        match events {
            Ok(Some(whole)) if whole.is_empty() => {}
            Ok(Some(whole)) => {
                if let ControlFlow::Break(failure) = write_events(http, rewriter, whole).await? {
                    return Ok(failure);
                }
                (is_quiet, has_events) = (false, true);
                room.permit.shrink_to(splitter.held() + response.held());
            }
            Ok(None) => {
                http.write_body(rewriter.finish(splitter.take_remainder()), true).await?;
                return Ok(None);
            }
            Err(failure) => {
                http.write_body(rewriter.failure(&failure).into(), true).await?;
                return Ok(Some(failure));
            }
        }
    }
}

/// Reason for which an event is not forwarded.
#[derive(Debug, PartialEq, Eq)]
enum BoundaryError {
    /// It is longer than the limit.
    TooLong,
    /// It comes in too many small pieces.
    TooManyPieces,
}

/// Buffer for an incomplete event.
#[derive(Debug)]
struct EventSplitter {
    held: BytesMut,
    /// Counter for the pieces in the buffer.
    pieces: BodyPieces,
    longest: usize,
}

impl EventSplitter {
    /// Creates a splitter for events of at most `longest` bytes.
    pub(super) fn new(longest: usize) -> Self {
        Self { held: BytesMut::new(), pieces: BodyPieces::default(), longest }
    }

    /// Adds bytes and returns all events that they complete; empty if there is none.
    ///
    /// # Errors
    ///
    /// [`BoundaryError`], once an unfinished event is too long or comes in too many pieces.
    pub(super) fn push(&mut self, piece: Bytes) -> Result<Bytes, BoundaryError> {
        // Agents nearly always write complete events.
        if self.held.is_empty() && ends_event(&piece) {
            return Ok(piece);
        }
        // The buffered bytes have been searched, except for the beginning of a pattern.
        let from = self.held.len().saturating_sub(LONGEST_BLANK - 1);
        self.held.extend_from_slice(&piece);
        let end = end_of_last(self.held.get(from..).unwrap_or_default());
        let whole = self.held.split_to(if end == 0 { 0 } else { from + end }).freeze();
        if !whole.is_empty() {
            self.pieces = BodyPieces::default();
        }
        match self.pieces.add(piece.len()) {
            _ if self.held.len() > self.longest => Err(BoundaryError::TooLong),
            true => Ok(whole),
            false => Err(BoundaryError::TooManyPieces),
        }
    }

    /// Returns the number of buffered bytes.
    pub(super) fn held(&self) -> usize {
        self.held.len()
    }

    /// Returns the bytes of an event that was never completed.
    fn take_remainder(self) -> Bytes {
        self.held.freeze()
    }
}

/// Two line ends of any kind end an event: LF, CRLF and CR may be mixed. CR and LF are one line
/// end, so that no pattern is in the middle of one. If a second CRLF is split between two pieces,
/// the event ends with its CR, and the LF comes before the next event.
const BLANK: [&[u8]; 5] = [b"\n\n", b"\n\r", b"\r\r", b"\n\r\n", b"\r\r\n"];
const LONGEST_BLANK: usize = 3;

fn ends_event(bytes: &[u8]) -> bool {
    BLANK.iter().any(|blank| bytes.ends_with(blank))
}

fn end_of_last(bytes: &[u8]) -> usize {
    BLANK.iter().filter_map(|blank| rfind(bytes, blank).map(|at| at + blank.len())).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_whole_events_pass() {
        let mut boundary = EventSplitter::new(64);
        let mut pushed = |text: &'static str| boundary.push(Bytes::from_static(text.as_bytes())).unwrap();
        assert_eq!(pushed("data: 1\n\n"), "data: 1\n\n");
        assert_eq!(pushed("data: 2\r\n"), "");
        assert_eq!(pushed("\r\n: ping\r\n\r\ndata"), "data: 2\r\n\r\n: ping\r\n\r\n");
        assert_eq!(pushed(": 3\n"), "");
        assert_eq!(pushed("\n"), "data: 3\n\n");
        assert!(boundary.take_remainder().is_empty());
    }

    #[test]
    fn an_unfinished_event_has_a_limit() {
        let mut boundary = EventSplitter::new(8);
        assert!(boundary.push(Bytes::from_static(b"data: 12")).is_ok());
        assert_eq!(boundary.push(Bytes::from_static(b"3")), Err(BoundaryError::TooLong));
    }

    /// Each piece is searched once: the bytes before it cost nothing.
    #[test]
    fn an_event_in_crumbs_is_refused_before_it_costs_much() {
        let mut boundary = EventSplitter::new(4 << 20);
        let pushed = (0..1_000_000).map(|_| boundary.push(Bytes::from_static(b"x")));
        assert_eq!(pushed.filter_map(Result::err).next(), Some(BoundaryError::TooManyPieces));
    }

    /// Returns the end of the last complete event, by reading line after line.
    fn last_end(text: &[u8]) -> usize {
        let (mut end, mut at, mut after_end) = (0, 0, false);
        while let Some(byte) = text.get(at) {
            let length = if text[at..].starts_with(b"\r\n") { 2 } else { 1 };
            at += length;
            let is_end = matches!(byte, b'\r' | b'\n');
            if is_end && after_end {
                end = at;
            }
            after_end = is_end;
        }
        end
    }

    #[test]
    fn every_pair_of_line_ends_counts() {
        for first in ["\n", "\r\n", "\r"] {
            for second in ["\n", "\r\n", "\r"].into_iter().filter(|second| (first, *second) != ("\r", "\n")) {
                let (event, half) = (format!("data: 1{first}{second}"), format!("data: 2{first}"));
                let mut boundary = EventSplitter::new(64);
                assert_eq!(boundary.push(Bytes::from(event.clone() + &half)).unwrap(), event, "{event:?}");
                assert_eq!(boundary.push(Bytes::from("data: 3")).unwrap(), "", "one end is none: {half:?}");
            }
        }
    }

    proptest! {
        #[test]
        fn complete_events_are_never_held_back(text in "(data: [a-z]{0,3}|:|\n|\r\n|\r){0,40}", cuts in prop::collection::vec(0usize..9, 0..60)) {
            let mut boundary = EventSplitter::new(1024);
            let (text, mut came, mut passed) = (text.as_bytes(), 0, 0);
            for cut in cuts {
                let from = came;
                came = text.len().min(came + cut);
                let piece = Bytes::copy_from_slice(&text[from..came]);
                passed += boundary.push(piece).unwrap().len();
                let end = last_end(&text[..came]);
                prop_assert!(passed <= end, "{passed} of {end}");
                // Blank lines after an event, or the LF after a CR that has ended it, carry no
                // data.
                let held = &text[passed..end];
                prop_assert!(held.iter().all(|byte| matches!(byte, b'\r' | b'\n')), "{held:?}");
            }
        }

        #[test]
        fn no_byte_is_lost_or_changed(text in "(data: [a-z]{0,9}|:|\n|\r\n|\r){0,40}", cuts in prop::collection::vec(0usize..9, 0..60)) {
            let mut boundary = EventSplitter::new(1024);
            let (mut rest, mut passed) = (Bytes::from(text.clone()), Vec::new());
            for cut in cuts {
                let piece = rest.split_to(cut.min(rest.len()));
                let whole = boundary.push(piece).unwrap();
                prop_assert!(whole.is_empty() || ends_event(&whole), "{whole:?}");
                passed.extend_from_slice(&whole);
            }
            passed.extend_from_slice(&boundary.push(rest).unwrap());
            passed.extend_from_slice(&boundary.take_remainder());
            prop_assert_eq!(passed, text.into_bytes());
        }
    }
}
