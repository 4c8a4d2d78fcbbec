//! One request to an agent: its operation and limits, the parts of the client's request that are
//! forwarded, and the meaning of its failures.
//!
//! Only headers that the configuration names are forwarded, and the caller's token where it is
//! exchanged for another; neither is ever logged.
//!
//! See also `stream` and `call`.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, Method, StatusCode};

use super::grpc::AgentResponse;
use super::resolved::ResolvedAgent;
use crate::a2a::{
    AgentError, BoundRequest, ErrorKind, Fingerprint, Message, PathSegmentError, Task, TaskState,
};
use crate::auth::SubjectToken;
use crate::config::{AgentMethod, AgentMethod as Call};
use crate::fault::AgentFailure;
use crate::jsonrpc::SharedBody;
use crate::quota::AnswerRoom;
use crate::telemetry::trace::RequestScope;
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
) -> Result<(BodyKind, AgentResponse), AgentFailure> {
    let reply = sent(client, known, ask).await?;
    if known.interface.binding.is_bare() && !reply.status().is_success() {
        return Err(refused(reply, known, ask).await);
    }
    body_kind(reply.form(), reply)
}

/// Sends one request for a caller that reads the body of a failure itself.
pub(super) async fn post_for_all(
    client: &HttpClient,
    known: &ResolvedAgent,
    ask: &AgentRequest,
) -> Result<(BodyKind, AgentResponse), AgentFailure> {
    let reply = sent(client, known, ask).await?;
    match reply.form() {
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
) -> Result<AgentResponse, AgentFailure> {
    let reply = known.send(client, ask).await?;
    match reply.status() {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            Err(AgentFailure::Unauthorized(reply.status().as_u16()))
        }
        _ => Ok(reply),
    }
}

fn body_kind(
    form: Option<BodyKind>,
    reply: AgentResponse,
) -> Result<(BodyKind, AgentResponse), AgentFailure> {
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

/// Returns the failure that a response of HTTP+JSON or gRPC means.
async fn refused(mut reply: AgentResponse, known: &ResolvedAgent, ask: &AgentRequest) -> AgentFailure {
    let status = reply.status().as_u16();
    let said = match reply.form() {
        Some(BodyKind::Json) => reply.collect(LONGEST_REFUSAL).await.ok(),
        Some(BodyKind::Stream) | None => None,
    };
    match said.and_then(|said| known.interface.refusal(status, &said)) {
        None => AgentFailure::HttpStatus(status),
        Some(error) if matches!(ask.method, Call::Send | Call::Stream) => first_refusal(error),
        Some(error) => refusal(error),
    }
}

/// Returns the form of the body of a response by HTTP; `None` if it is no form of A2A.
pub(super) fn form(reply: &Response) -> Option<BodyKind> {
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
    reply: &mut AgentResponse,
    known: &ResolvedAgent,
    room: &mut AnswerRoom,
) -> Result<Bytes, AgentFailure> {
    let body = reply.collect_in(room).await.map_err(|error| known.reply_failure(error))?;
    let status = reply.status();
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
) -> Option<Result<(BodyKind, AgentResponse), AgentFailure>> {
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
pub(super) fn is_no_route(answer: &Result<(BodyKind, AgentResponse), AgentFailure>) -> bool {
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
    SharedBody::new(&answer)
        .read(|| known.interface.task(&answer))
        .map_err(|error| by_status(refusal(error), status))
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
    let body = whole(&mut reply, known, room).await?;
    Ok((reply.status(), body))
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

/// No endpoint in particular.
const ANYWHERE: usize = usize::MAX;

/// An operation at an agent.
#[derive(Debug)]
pub enum AgentOperation {
    /// Send this message.
    Say(Message),
    /// Send this message in a task.
    Continue(FollowUpMessage),
    /// Wait for the task to end or to ask a new question.
    Await(String, KnownQuestions),
    /// Get the state of the task.
    Look(String),
    /// Cancel the task.
    Cancel(String),
    /// Ask the agent to push changes of the task.
    Webhook(String, WebhookTarget),
}

/// The URL to which an agent pushes changes of a task. The gateway has one registration per task: a
/// second request changes nothing.
pub struct WebhookTarget {
    /// The address.
    pub url: String,
    /// The token that authenticates the agent's pushes.
    pub token: String,
}

impl fmt::Debug for WebhookTarget {
    /// Hides both members, which are secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hook").finish_non_exhaustive()
    }
}

/// The questions of a task that are known already.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct KnownQuestions {
    /// The open question: an event that repeats it is not new.
    pub open: Option<Fingerprint>,
    /// The answered question: while the agent repeats it, it has not begun to work on the answer.
    pub answered: Option<Fingerprint>,
    /// The state in which the agent asks the question.
    pub state: Option<TaskState>,
    /// True if the agent asks with a message. Once that message is in the history, an answer has
    /// arrived, and the same question without it remains until the agent has processed the answer.
    pub has_words: bool,
}

/// A message to a live task.
#[derive(Debug)]
pub struct FollowUpMessage {
    /// The task.
    pub task: String,
    /// The message.
    pub message: Message,
    /// The question that it answers: nothing is sent if that question is not open any more. `None`:
    /// sent in any case.
    pub turn: Option<Fingerprint>,
    /// The state in which it was asked, if it had a message. Without one the question is as open as
    /// before, if the agent received an answer and rejected it.
    pub worded: Option<TaskState>,
    /// True if the stream of the task is read elsewhere already: then no second stream is opened.
    pub beside: bool,
}

/// Limits in bytes of an agent's output, and in time.
#[derive(Debug, Clone, Copy)]
pub struct CallLimits {
    /// Bytes of one event of a stream.
    pub event: usize,
    /// The time without bytes after which the agent of a stream is asked for the state of the task.
    pub silence: Duration,
    /// The pause before the first repetition of a query; it doubles from there.
    pub retry_base: Duration,
    /// The longest such pause.
    pub retry_max: Duration,
    /// The time that a task may remain unchanged after the agent ended its stream, before its
    /// client is notified.
    pub stalled: Duration,
    /// The number of failed attempts in a row after which an agent is given up; 0: as long as a
    /// client waits.
    pub max_attempts: u32,
}

/// One request to an agent.
pub(super) struct AgentRequest {
    /// The method, for the settings that differ by method.
    pub(super) method: AgentMethod,
    /// The task that the request is about, if the agent knows it already.
    pub(super) task: Option<String>,
    /// The conversation that the request continues, where that matters.
    pub(super) context: Option<String>,
    /// The task that the request begins, by the gateway's own name for it: the endpoint that the
    /// request is sent to holds that task, with or without a response.
    pub(super) begins: Option<String>,
    pub(super) verb: Method,
    /// The part after the path of the endpoint.
    route: String,
    pub(super) body: Bytes,
    /// The endpoint that the request must go to, or was sent to.
    place: AtomicUsize,
}

impl AgentRequest {
    /// Creates a request about a task of the agent, or about none yet.
    pub(super) fn new(method: AgentMethod, task: Option<&str>, written: impl Into<BoundRequest>) -> Self {
        let BoundRequest { verb, route, body } = written.into();
        let (task, place) = (task.map(str::to_owned), AtomicUsize::new(ANYWHERE));
        Self { method, task, context: None, begins: None, verb, route, body, place }
    }

    /// Binds the request to this endpoint.
    pub(super) fn to(self, at: usize) -> Self {
        Self { place: AtomicUsize::new(at), ..self }
    }

    /// Returns the endpoint that the request must go to, or was sent to.
    pub(super) fn place(&self) -> Option<usize> {
        Some(self.place.load(Ordering::Relaxed)).filter(|at| *at != ANYWHERE)
    }

    /// Records the endpoint that the request was sent to.
    pub(super) fn set_place(&self, at: usize) {
        self.place.store(at, Ordering::Relaxed);
    }

    /// Returns the part of the path after that of the endpoint.
    pub(super) fn route(&self) -> &str {
        &self.route
    }

    /// Returns the request path at this base path.
    pub(super) fn path(&self, place: &PathAndQuery) -> Result<PathAndQuery, AgentFailure> {
        if self.route.is_empty() {
            return Ok(place.clone());
        }
        let base = place.path().trim_end_matches('/');
        let query = place.query().map(|query| format!("?{query}")).unwrap_or_default();
        let whole = format!("{base}{}{query}", self.route);
        whole.parse().map_err(|_| AgentFailure::Internal("its path cannot be called"))
    }
}

/// The forwarded parts. Each agent selects those that its own settings name.
pub struct ForwardedContext {
    headers: HeaderMap,
    subject: Option<SubjectToken>,
    scope: Arc<RequestScope>,
}

impl ForwardedContext {
    /// Copies the headers of these names from a request.
    pub(super) fn new(
        names: &[HeaderName],
        request: &HeaderMap,
        subject: Option<SubjectToken>,
        scope: Arc<RequestScope>,
    ) -> Self {
        Self { headers: select(names, request), subject, scope }
    }

    /// Returns id, client address and trace of the request.
    pub(crate) fn scope(&self) -> &RequestScope {
        &self.scope
    }

    /// Returns the same, for work that outlives the request.
    pub(crate) fn shared_scope(&self) -> Arc<RequestScope> {
        Arc::clone(&self.scope)
    }

    /// Inserts the headers of these names into others.
    pub(super) fn insert(&self, names: &[HeaderName], into: &mut HeaderMap) {
        into.extend(select(names, &self.headers));
    }

    /// Returns the token of the caller, for its exchange.
    pub(super) fn subject(&self) -> Option<&SubjectToken> {
        self.subject.as_ref()
    }
}

fn select(names: &[HeaderName], from: &HeaderMap) -> HeaderMap {
    let mut chosen = HeaderMap::new();
    for name in names {
        for value in from.get_all(name) {
            let mut value = value.clone();
            value.set_sensitive(true);
            chosen.append(name.clone(), value);
        }
    }
    chosen
}
