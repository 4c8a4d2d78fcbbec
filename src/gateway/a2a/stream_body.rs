//! An agent's answer on its way to an A2A client: piece by piece, and no byte of it changed.
//!
//! Not here: asking the agent (see `agents`), answers with ids to be sealed (see `ids`).

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

/// What an agent may send, and how often its client is told that it is still there.
#[derive(Clone, Copy)]
pub(super) struct ForwardLimits<'a> {
    /// Bytes of one answer.
    pub(super) response: usize,
    /// Bytes of one event.
    pub(super) event: usize,
    /// Between two signs of life on a stream.
    pub(super) keep_alive: Duration,
    /// The end of the process, which ends streams between two events.
    pub(super) closing: &'a DrainState,
}

/// What happens to the events of a stream on their way.
pub(super) trait BodyRewriter {
    /// The headers of the agent's answer that go on.
    fn headers(&self, of: &HeaderMap) -> Headers;

    /// The events that come before those of the agent; none the second time.
    fn first(&mut self) -> Vec<u8>;

    /// What becomes of whole events, and [`Trouble`], if those that follow are not what an agent may say.
    fn events(&mut self, events: Bytes) -> (Bytes, Result<(), AgentFailure>);

    /// Whether the client has been told all, so that nothing that follows is for it.
    fn is_over(&self) -> bool;

    /// The events that tell of a failure, after which nothing comes.
    fn failure(&self, trouble: &AgentFailure) -> Vec<u8>;

    /// What becomes of the beginning of an event that never became whole.
    fn finish(&self, rest: Bytes) -> Bytes;
}

/// Waits for something of an agent's for as long as the client is there. Pinned by who waits: every call carries what is waited for,
/// and would carry it twice.
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

/// The headers of an agent's answer that its client gets: nothing but these.
pub(super) fn headers(of: &HeaderMap) -> Headers {
    // Among the few that there are: looking each of ours up costs more.
    let passed = of.iter().filter(|(name, _)| **name == VERSION || EXTENSIONS.contains(name));
    passed.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// Passes one JSON value on as it comes, a response of JSON-RPC to the request of this `id`. Says what broke it off, where the client
/// has got a part of it.
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
    // One that comes in pieces is passed on unread.
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

/// Returns the first bytes of an answer, unless the process ends before they come.
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

/// Checks a whole response of JSON-RPC: it is there, and answers the request of this `id`.
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
        // Its client has all whole events, and subscribes again to read on.
        write_chunk(http, Bytes::new(), true).await?;
        return Ok(None);
    }
    let trouble = AgentFailure::Internal("it ends before the agent has answered; the agent may go on");
    write_chunk(http, through.failure(&trouble).into(), true).await?;
    Ok(Some(trouble))
}

/// The trouble of an answer that comes in too many small pieces.
fn crumbs() -> AgentFailure {
    AgentFailure::ProtocolViolation("its answer comes in too many small pieces".into())
}

/// Begins a stream, with what comes before the events of the agent.
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

/// Tells the client of whole events. Breaks where the stream ends with them, with what broke it off.
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

/// Passes a stream on. Says what broke it off, of which the client has been told.
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
    // A client is told something between one beat and two after the last event: no clock is read for an event.
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
            // Counted until the client has read what is passed on.
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
