//! Response forwarding to an A2A client, chunk by chunk and without a change.
//!
//! See also `response` for responses with a rewritten body.

use std::ops::ControlFlow;
use std::pin::{Pin, pin};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName};
use http::{HeaderMap, HeaderValue, StatusCode};
use pingora::proxy::Session;
use pingora::time::fast_timeout::fast_sleep;

use super::boundary::{BoundaryError, EventSplitter};
use super::envelope::is_foreign;
use super::error::Stop;
use super::response::FOREIGN;
use super::{EXTENSIONS, VERSION};
use crate::agents::ForwardedResponse;
use crate::fault::{AgentFailure, Fault};
use crate::gateway::closing::DrainState;
use crate::gateway::response::{ClientGone, Headers, abort, begin, wait_for_disconnect, write_chunk};
use crate::jsonrpc::Id;
use crate::quota::AnswerRoom;
use crate::sse::encoder;
use crate::telemetry::metrics::AgentMetrics;
use crate::transport::BodyPieces;

/// Limits on the agent's response, and the interval of keep-alive comments.
#[derive(Clone, Copy)]
pub(super) struct ForwardLimits<'a> {
    /// Bytes of one response.
    pub(super) response: usize,
    /// Bytes of one event.
    pub(super) event: usize,
    /// Interval of keep-alive comments on a stream.
    pub(super) keep_alive: Duration,
    /// Drain state, which ends streams between two events.
    pub(super) closing: &'a DrainState,
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
    fn failure(&self, trouble: &AgentFailure) -> Vec<u8>;

    /// Rewrites the beginning of an event that was never completed.
    fn finish(&self, rest: Bytes) -> Bytes;
}

/// Waits for a future of the agent while the client is connected. The caller pins the future:
/// otherwise every call would hold it twice.
pub(super) async fn unless_client_gone<T>(
    http: &mut Session,
    waited_for: Pin<&mut impl Future<Output = T>>,
) -> Result<T, ClientGone> {
    tokio::select! {
        biased;
        found = waited_for => Ok(found),
        () = wait_for_disconnect(http) => Err(ClientGone),
    }
}

/// Returns the headers of an agent's response that its client gets, and no others.
pub(super) fn headers(of: &HeaderMap) -> Headers {
    // A scan of the few headers is cheaper than a lookup of each name.
    let passed = of.iter().filter(|(name, _)| **name == VERSION || EXTENSIONS.contains(name));
    passed.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// Forwards one JSON value as it arrives, a JSON-RPC response to the request of this `id`. Returns
/// the failure that interrupted it after the client had received a part.
pub(super) async fn value(
    http: &mut Session,
    passed: &mut ForwardedResponse,
    (bounds, id): (ForwardLimits<'_>, Option<&Id>),
    media_type: HeaderValue,
) -> Result<Option<AgentFailure>, Stop> {
    let too_much = || AgentFailure::LimitExceeded(bounds.response, "one answer");
    let length = passed.length();
    if length.is_some_and(|length| length > bounds.response) {
        return Err(too_much().into());
    }
    let mut next = first_chunk(http, passed, bounds.closing).await?;
    let (mut sent, mut pieces) = (0, BodyPieces::default());
    let mut headers = headers(passed.headers());
    headers.push((CONTENT_TYPE, media_type));
    let whole = next.as_ref().map_or(0, Bytes::len);
    if whole > bounds.response {
        return Err(too_much().into());
    }
    // A value that comes in several chunks is forwarded unread.
    if let Some(id) = id.filter(|_| passed.is_over()) {
        check_whole(next.as_deref().unwrap_or_default(), id)?;
    }
    let length = if passed.is_over() { Some(whole) } else { length };
    begin(http, StatusCode::OK, headers, length).await?;
    while let Some(bytes) = next {
        sent += bytes.len();
        let fits = pieces.add(bytes.len());
        if sent > bounds.response || !fits {
            abort(http).await;
            return Ok(Some(if fits { too_much() } else { crumbs() }));
        }
        write_chunk(http, bytes, passed.is_over()).await?;
        if passed.is_over() {
            return Ok(None);
        }
        next = match unless_client_gone(http, pin!(passed.chunk())).await? {
            Ok(next) => next,
            Err(trouble) => {
                abort(http).await;
                return Ok(Some(trouble));
            }
        };
    }
    if length != Some(0) {
        write_chunk(http, Bytes::new(), true).await?;
    }
    Ok(None)
}

/// Returns the first bytes of a response, unless the process ends before they come.
async fn first_chunk(
    http: &mut Session,
    passed: &mut ForwardedResponse,
    closing: &DrainState,
) -> Result<Option<Bytes>, Stop> {
    let first = pin!(passed.chunk());
    tokio::select! {
        biased;
        next = unless_client_gone(http, first) => Ok(next??),
        () = closing.answers_due() => Err(Fault::Ending.into()),
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
    http: &mut Session,
    through: &mut impl BodyRewriter,
    is_told: bool,
) -> Result<Option<AgentFailure>, ClientGone> {
    if is_told {
        // The client has all complete events, and subscribes again for the rest.
        write_chunk(http, Bytes::new(), true).await?;
        return Ok(None);
    }
    let trouble = AgentFailure::Internal("it ends before the agent has answered; the agent may go on");
    write_chunk(http, through.failure(&trouble).into(), true).await?;
    Ok(Some(trouble))
}

/// Returns the failure of a response that comes in too many small pieces.
fn crumbs() -> AgentFailure {
    AgentFailure::ProtocolViolation("its answer comes in too many small pieces".into())
}

/// Begins a stream, with the events that come before those of the agent.
async fn begin_stream(
    http: &mut Session,
    passed: &ForwardedResponse,
    through: &mut impl BodyRewriter,
) -> Result<(), ClientGone> {
    let mut headers = through.headers(passed.headers());
    headers.push((CONTENT_TYPE, HeaderValue::from_static("text/event-stream")));
    headers.push((CACHE_CONTROL, HeaderValue::from_static("no-cache, no-transform")));
    headers.push((HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no")));
    begin(http, StatusCode::OK, headers, None).await?;
    let first = through.first();
    if first.is_empty() { Ok(()) } else { write_chunk(http, first.into(), false).await }
}

/// Sends complete events to the client. Breaks if the stream ends with them, with the failure that
/// ended it.
async fn write_events(
    http: &mut Session,
    through: &mut impl BodyRewriter,
    whole: Bytes,
) -> Result<ControlFlow<Option<AgentFailure>>, ClientGone> {
    let (told, done) = through.events(whole);
    if let Err(trouble) = done {
        let told = [told.as_ref(), &through.failure(&trouble)].concat();
        write_chunk(http, told.into(), true).await?;
        return Ok(ControlFlow::Break(Some(trouble)));
    }
    let is_over = through.is_over();
    if is_over || !told.is_empty() {
        write_chunk(http, told, is_over).await?;
    }
    Ok(if is_over { ControlFlow::Break(None) } else { ControlFlow::Continue(()) })
}

/// Forwards a stream. Returns the failure that ended it, after it was sent to the client.
pub(super) async fn stream(
    http: &mut Session,
    passed: &mut ForwardedResponse,
    (bounds, room): (ForwardLimits<'_>, &mut AnswerRoom),
    through: &mut impl BodyRewriter,
    metrics: &AgentMetrics,
) -> Result<Option<AgentFailure>, ClientGone> {
    begin_stream(http, passed, through).await?;
    let _open = metrics.stream();
    let mut boundary = EventSplitter::new(bounds.event);
    // The client gets a comment between one interval and two after the last event: no clock is read
    // for each event.
    let beat = bounds.keep_alive / 2;
    let (mut is_quiet, mut is_told) = (false, false);
    let mut wake = pin!(fast_sleep(beat));
    let mut answers_due = pin!(bounds.closing.answers_due());
    loop {
        let came = tokio::select! {
            biased;
            came = passed.chunk() => came,
            () = wake.as_mut() => {
                if is_quiet {
                    let mut comment = Vec::new();
                    encoder::comment(&mut comment, "");
                    write_chunk(http, comment.into(), false).await?;
                }
                is_quiet = !is_quiet;
                wake.set(fast_sleep(beat));
                continue;
            }
            () = wait_for_disconnect(http) => return Err(ClientGone),
            () = answers_due.as_mut() => return end_early(http, through, is_told).await,
        };
        let came = came.and_then(|came| {
            let Some(bytes) = came else { return Ok(None) };
            // Counted until the client has read the forwarded bytes.
            room.permit.set(boundary.held() + bytes.len())?;
            let whole = boundary.push(bytes).map_err(|error| match error {
                BoundaryError::TooLong => AgentFailure::LimitExceeded(bounds.event, "one event"),
                BoundaryError::TooManyPieces => crumbs(),
            })?;
            Ok(Some(whole))
        });
        match came {
            Ok(Some(whole)) if whole.is_empty() => {}
            Ok(Some(whole)) => {
                if let ControlFlow::Break(how) = write_events(http, through, whole).await? {
                    return Ok(how);
                }
                (is_quiet, is_told) = (false, true);
                room.permit.shrink_to(boundary.held());
            }
            Ok(None) => {
                write_chunk(http, through.finish(boundary.take_remainder()), true).await?;
                return Ok(None);
            }
            Err(trouble) => {
                write_chunk(http, through.failure(&trouble).into(), true).await?;
                return Ok(Some(trouble));
            }
        }
    }
}
