//! One request to an agent, and the meaning of its failures.
//!
//! See also `stream` and `call`.

use bytes::Bytes;
use http::StatusCode;
use http::header::CONTENT_TYPE;

use super::request::AgentRequest;
use super::resolved::ResolvedAgent;
use crate::a2a::{AgentError, Binding, ErrorKind, PathSegmentError, Task};
use crate::config::AgentMethod as Call;
use crate::fault::AgentFailure;
use crate::quota::AnswerRoom;
use crate::transport::{HttpClient, Response};

/// The form of a response body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BodyKind {
    /// One JSON value.
    Json,
    /// A stream of events.
    Stream,
}

/// The maximum size of an error response, in bytes.
const LONGEST_REFUSAL: usize = 64 * 1024;

/// Sends one request and reads the head of the response. The response decides its form, not the
/// request.
pub(super) async fn post(
    client: &HttpClient,
    known: &ResolvedAgent,
    ask: &AgentRequest,
) -> Result<(BodyKind, Response), AgentFailure> {
    let reply = sent(client, known, ask).await?;
    if known.interface.binding == Binding::HttpJson && !reply.status().is_success() {
        return Err(refused(reply, known, ask).await);
    }
    body_kind(form(&reply), reply)
}

/// Sends one request for a caller that reads the body of a failure itself.
pub(super) async fn post_for_all(
    client: &HttpClient,
    known: &ResolvedAgent,
    ask: &AgentRequest,
) -> Result<(BodyKind, Response), AgentFailure> {
    let reply = sent(client, known, ask).await?;
    match form(&reply) {
        Some(BodyKind::Json) if !reply.status().is_success() => Ok((BodyKind::Json, reply)),
        // A success without content.
        None if reply.status() == StatusCode::NO_CONTENT => Ok((BodyKind::Json, reply)),
        form => body_kind(form, reply),
    }
}

async fn sent(
    client: &HttpClient,
    known: &ResolvedAgent,
    ask: &AgentRequest,
) -> Result<Response, AgentFailure> {
    let reply = known.send(client, ask).await?;
    match reply.status() {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            Err(AgentFailure::Unauthorized(reply.status().as_u16()))
        }
        _ => Ok(reply),
    }
}

fn body_kind(form: Option<BodyKind>, reply: Response) -> Result<(BodyKind, Response), AgentFailure> {
    let status = reply.status();
    match form {
        Some(form) if status.is_success() => Ok((form, reply)),
        // Some agents answer errors of JSON-RPC with 4xx.
        Some(BodyKind::Json) if status.is_client_error() => Ok((BodyKind::Json, reply)),
        None if status.is_success() => {
            Err(AgentFailure::ProtocolViolation("its answer is neither JSON nor an event stream".into()))
        }
        Some(_) | None => Err(AgentFailure::HttpStatus(status.as_u16())),
    }
}

/// Returns the failure that an HTTP+JSON response means.
async fn refused(mut reply: Response, known: &ResolvedAgent, ask: &AgentRequest) -> AgentFailure {
    let status = reply.status().as_u16();
    let said = match form(&reply) {
        Some(BodyKind::Json) => reply.collect(LONGEST_REFUSAL).await.ok(),
        Some(BodyKind::Stream) | None => None,
    };
    match said.and_then(|said| known.interface.refusal(status, &said)) {
        None => AgentFailure::HttpStatus(status),
        Some(error) if matches!(ask.method, Call::Send | Call::Stream) => first_refusal(error),
        Some(error) => refusal(error),
    }
}

fn form(reply: &Response) -> Option<BodyKind> {
    let value = reply.headers().get(CONTENT_TYPE)?.to_str().ok()?;
    // As nearly every agent writes it.
    if value == "application/json" {
        return Some(BodyKind::Json);
    }
    let name = value.split(';').next().unwrap_or_default().trim();
    let is = |known: &str| name.eq_ignore_ascii_case(known);
    if is("text/event-stream") {
        Some(BodyKind::Stream)
    } else {
        (is("application/json") || is("application/a2a+json")).then_some(BodyKind::Json)
    }
}

/// Returns the body of a response as one JSON value.
pub(super) async fn whole(
    reply: &mut Response,
    known: &ResolvedAgent,
    room: &mut AnswerRoom,
) -> Result<Bytes, AgentFailure> {
    let status = reply.status();
    let body = reply.collect_in(room).await.map_err(|error| known.to_failure(&error))?;
    if body.is_empty() && !status.is_success() {
        Err(AgentFailure::HttpStatus(status.as_u16()))
    } else {
        Ok(body)
    }
}

/// Subscribes to a task again; `None` if that is not safe.
pub(super) async fn subscribe(
    client: &HttpClient,
    known: &ResolvedAgent,
    task: &str,
) -> Option<Result<(BodyKind, Response), AgentFailure>> {
    let requests = match known.interface.subscribe(task) {
        Ok(requests) => requests,
        Err(error) => return Some(Err(error.into())),
    };
    let mut answer = None;
    for written in requests {
        let found =
            answer.insert(post(client, known, &AgentRequest::new(Call::Other, Some(task), written)).await);
        if !is_no_route(found) {
            break;
        }
    }
    answer
}

impl From<PathSegmentError> for AgentFailure {
    fn from(_: PathSegmentError) -> Self {
        Self::UnsafeId
    }
}

/// Returns true if the agent has no such route for this verb.
pub(super) fn is_no_route(answer: &Result<(BodyKind, Response), AgentFailure>) -> bool {
    match answer {
        Ok((_, reply)) => reply.status() == StatusCode::METHOD_NOT_ALLOWED,
        Err(trouble) => *trouble == AgentFailure::HttpStatus(StatusCode::METHOD_NOT_ALLOWED.as_u16()),
    }
}

pub(super) async fn task_of(
    client: &HttpClient,
    known: &ResolvedAgent,
    ask: &AgentRequest,
    room: &mut AnswerRoom,
) -> Result<Task, AgentFailure> {
    let (status, answer) = plain(client, known, ask, room).await?;
    known.interface.task(&answer).map_err(|error| by_status(refusal(error), status))
}

/// Returns the status and the body of a response that must not be a stream.
pub(super) async fn plain(
    client: &HttpClient,
    known: &ResolvedAgent,
    ask: &AgentRequest,
    room: &mut AnswerRoom,
) -> Result<(StatusCode, Bytes), AgentFailure> {
    let (form, mut reply) = post(client, known, ask).await?;
    if form == BodyKind::Stream {
        return Err(AgentFailure::ProtocolViolation("it answered a plain question with a stream".into()));
    }
    Ok((reply.status(), whole(&mut reply, known, room).await?))
}

/// Replaces the failure of a response that is neither a success nor A2A by its status: it may be
/// from a proxy before the agent.
pub(super) fn by_status(trouble: AgentFailure, status: StatusCode) -> AgentFailure {
    match trouble {
        AgentFailure::ProtocolViolation(_) if !status.is_success() => {
            AgentFailure::HttpStatus(status.as_u16())
        }
        trouble => trouble,
    }
}

/// Returns the failure that an agent's own error means.
pub(super) fn refusal(error: AgentError) -> AgentFailure {
    match error {
        AgentError::Refused { kind: ErrorKind::TaskNotFound, .. } => AgentFailure::TaskNotFound,
        AgentError::Refused { kind: ErrorKind::NotAuthorized, .. } => AgentFailure::Unauthorized(401),
        AgentError::Refused { message, code, .. } if message.is_empty() => {
            AgentFailure::Rejected(format!("error {code}"))
        }
        AgentError::Refused { message, .. } => AgentFailure::Rejected(message),
        AgentError::NotA2a(what) => AgentFailure::ProtocolViolation(what),
    }
}

/// Returns the same for the very first response to a message: two errors prove that nothing has
/// begun.
pub(super) fn first_refusal(error: AgentError) -> AgentFailure {
    let nothing_begun = error.proves_not_executed();
    match refusal(error) {
        AgentFailure::Rejected(text) if nothing_begun => AgentFailure::VersionNotSupported(text),
        other => other,
    }
}
