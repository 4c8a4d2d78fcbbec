//! One request to an agent, and what its failures mean.
//!
//! Not here: streams (see `stream`), what is asked (see `call`).

use bytes::Bytes;
use http::StatusCode;
use http::header::CONTENT_TYPE;

use super::call::Hook;
use super::known::{Ask, Known};
use super::seek::{find_home, seek};
use crate::a2a::{AgentError, Binding, ErrorKind, PathSegmentError, Task, Webhook};
use crate::config::AgentMethod as Call;
use crate::fault::Trouble;
use crate::quota::AnswerRoom;
use crate::transport::{Client, Reply, Sent, TransportError};

/// The name of the gateway's registration for pushes; one per task, so that asking again replaces it.
const WEBHOOK: &str = "mcp-a2a-gateway";

/// What the body of an answer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// One JSON value.
    Json,
    /// A stream of events.
    Stream,
}

/// Longest refusal that is read, in bytes.
const LONGEST_REFUSAL: usize = 64 * 1024;

/// Makes one request and looks at the head of the answer. The answer decides its form, not the question.
pub(super) async fn post(client: &Client, known: &Known, ask: &Ask) -> Result<(Form, Reply), Trouble> {
    let reply = sent(client, known, ask).await?;
    if known.interface.binding == Binding::HttpJson && !reply.status().is_success() {
        return Err(refused(reply, known, ask).await);
    }
    in_form(form(&reply), reply)
}

/// The same for whoever reads what a failure says.
pub(super) async fn post_for_all(
    client: &Client,
    known: &Known,
    ask: &Ask,
) -> Result<(Form, Reply), Trouble> {
    let reply = sent(client, known, ask).await?;
    match form(&reply) {
        Some(Form::Json) if !reply.status().is_success() => Ok((Form::Json, reply)),
        // What has been done and says nothing.
        None if reply.status() == StatusCode::NO_CONTENT => Ok((Form::Json, reply)),
        form => in_form(form, reply),
    }
}

async fn sent(client: &Client, known: &Known, ask: &Ask) -> Result<Reply, Trouble> {
    let reply = known.send(client, ask).await?;
    match reply.status() {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            Err(Trouble::NotAuthorized(reply.status().as_u16()))
        }
        _ => Ok(reply),
    }
}

fn in_form(form: Option<Form>, reply: Reply) -> Result<(Form, Reply), Trouble> {
    let status = reply.status();
    match form {
        Some(form) if status.is_success() => Ok((form, reply)),
        // Some agents answer errors of JSON-RPC with 4xx.
        Some(Form::Json) if status.is_client_error() => Ok((Form::Json, reply)),
        None if status.is_success() => {
            Err(Trouble::Misbehaved("its answer is neither JSON nor an event stream".into()))
        }
        Some(_) | None => Err(Trouble::Status(status.as_u16())),
    }
}

/// What a failure of HTTP+JSON means.
async fn refused(mut reply: Reply, known: &Known, ask: &Ask) -> Trouble {
    let status = reply.status().as_u16();
    let said = match form(&reply) {
        Some(Form::Json) => reply.collect(LONGEST_REFUSAL).await.ok(),
        Some(Form::Stream) | None => None,
    };
    match said.and_then(|said| known.interface.refusal(status, &said)) {
        None => Trouble::Status(status),
        Some(error) if matches!(ask.method, Call::Send | Call::Stream) => first_refusal(error),
        Some(error) => refusal(error),
    }
}

fn form(reply: &Reply) -> Option<Form> {
    let value = reply.headers().get(CONTENT_TYPE)?.to_str().ok()?;
    // As nearly every agent writes it.
    if value == "application/json" {
        return Some(Form::Json);
    }
    let name = value.split(';').next().unwrap_or_default().trim();
    let is = |known: &str| name.eq_ignore_ascii_case(known);
    if is("text/event-stream") {
        Some(Form::Stream)
    } else {
        (is("application/json") || is("application/a2a+json")).then_some(Form::Json)
    }
}

/// The body of an answer as one JSON value.
pub(super) async fn whole(reply: &mut Reply, known: &Known, room: &mut AnswerRoom) -> Result<Bytes, Trouble> {
    let status = reply.status();
    let body = reply.collect_in(room).await.map_err(|error| trouble(&error, known))?;
    if body.is_empty() && !status.is_success() { Err(Trouble::Status(status.as_u16())) } else { Ok(body) }
}

/// Asks an agent for a task as it stands, by the agent's own id of it.
///
/// # Errors
///
/// [`Trouble`], if it does not say, says it of another task, or in more bytes than there is room for.
pub async fn get_task(
    client: &Client,
    known: &Known,
    task: &str,
    room: &mut AnswerRoom,
) -> Result<Task, Trouble> {
    if known.endpoints.are_several() && known.endpoints.of(Call::Get).is_none() {
        return Box::pin(seek(client, known, task, room)).await;
    }
    let written = known.interface.get_task(task)?;
    task_of(client, known, &Ask::new(Call::Get, Some(task), written), room)
        .await
        .and_then(|found| the_one_asked_for(found, task))
}

/// Asks for a task to be stopped.
pub(super) async fn cancel_task(
    client: &Client,
    known: &Known,
    task: &str,
    room: &mut AnswerRoom,
) -> Result<Task, Trouble> {
    Box::pin(find_home(client, known, task, room)).await?;
    let written = known.interface.cancel_task(task)?;
    task_of(client, known, &Ask::new(Call::Cancel, Some(task), written), room)
        .await
        .and_then(|found| the_one_asked_for(found, task))
}

/// Somebody else's task is never taken for the one that was asked for.
pub(super) fn the_one_asked_for(found: Task, asked: &str) -> Result<Task, Trouble> {
    if found.id == asked {
        Ok(found)
    } else {
        Err(Trouble::Misbehaved("it answered with another task".into()))
    }
}

/// Asks for what is new of a task to be pushed.
pub(super) async fn set_webhook(
    client: &Client,
    known: &Known,
    (task, hook): (&str, &Hook),
    room: &mut AnswerRoom,
) -> Result<(), Trouble> {
    Box::pin(find_home(client, known, task, room)).await?;
    let webhook = Webhook { id: WEBHOOK, url: &hook.url, token: &hook.token };
    let written = known.interface.set_push(task, &webhook)?;
    let (status, answer) = plain(client, known, &Ask::new(Call::Other, Some(task), written), room).await?;
    known.interface.webhook_is_set(&answer).map_err(|error| by_status(refusal(error), status))
}

/// Asks to listen to a task again; `None` where that is not safe.
pub(super) async fn subscribe(
    client: &Client,
    known: &Known,
    task: &str,
) -> Option<Result<(Form, Reply), Trouble>> {
    let requests = match known.interface.subscribe(task) {
        Ok(requests) => requests,
        Err(error) => return Some(Err(error.into())),
    };
    let mut answer = None;
    for written in requests {
        let found = answer.insert(post(client, known, &Ask::new(Call::Other, Some(task), written)).await);
        if !is_no_route(found) {
            break;
        }
    }
    answer
}

impl From<PathSegmentError> for Trouble {
    fn from(_: PathSegmentError) -> Self {
        Self::UnsafeId
    }
}

/// Whether the agent has nothing at this route for this verb.
pub(super) fn is_no_route(answer: &Result<(Form, Reply), Trouble>) -> bool {
    match answer {
        Ok((_, reply)) => reply.status() == StatusCode::METHOD_NOT_ALLOWED,
        Err(trouble) => *trouble == Trouble::Status(StatusCode::METHOD_NOT_ALLOWED.as_u16()),
    }
}

pub(super) async fn task_of(
    client: &Client,
    known: &Known,
    ask: &Ask,
    room: &mut AnswerRoom,
) -> Result<Task, Trouble> {
    let (status, answer) = plain(client, known, ask, room).await?;
    known.interface.task(&answer).map_err(|error| by_status(refusal(error), status))
}

/// The status and the body of an answer that must not be a stream.
async fn plain(
    client: &Client,
    known: &Known,
    ask: &Ask,
    room: &mut AnswerRoom,
) -> Result<(StatusCode, Bytes), Trouble> {
    let (form, mut reply) = post(client, known, ask).await?;
    if form == Form::Stream {
        return Err(Trouble::Misbehaved("it answered a plain question with a stream".into()));
    }
    Ok((reply.status(), whole(&mut reply, known, room).await?))
}

/// What is neither a success nor an answer in A2A may be of something before the agent: only its status is known.
pub(super) fn by_status(trouble: Trouble, status: StatusCode) -> Trouble {
    match trouble {
        Trouble::Misbehaved(_) if !status.is_success() => Trouble::Status(status.as_u16()),
        trouble => trouble,
    }
}

/// What an agent's own error means.
pub(super) fn refusal(error: AgentError) -> Trouble {
    match error {
        AgentError::Refused { kind: ErrorKind::TaskNotFound, .. } => Trouble::TaskLost,
        AgentError::Refused { kind: ErrorKind::NotAuthorized, .. } => Trouble::NotAuthorized(401),
        AgentError::Refused { message, code, .. } if message.is_empty() => {
            Trouble::Refused(format!("error {code}"))
        }
        AgentError::Refused { message, .. } => Trouble::Refused(message),
        AgentError::NotA2a(what) => Trouble::Misbehaved(what),
    }
}

/// The same for the very first answer to a message: two errors prove that nothing has begun.
pub(super) fn first_refusal(error: AgentError) -> Trouble {
    let nothing_begun = error.proves_not_executed();
    match refusal(error) {
        Trouble::Refused(text) if nothing_begun => Trouble::WrongVersion(text),
        other => other,
    }
}

/// What a failure of the connection means. Addresses and the words of TLS stay in the log.
pub(super) fn trouble(error: &TransportError, known: &Known) -> Trouble {
    known.metrics.transport_error(error.kind());
    tracing::debug!(%error, "exchange with an agent failed");
    if error.sent() == Sent::No {
        return Trouble::Unreachable(match error {
            TransportError::Resolve(_) => "its name does not resolve",
            TransportError::Refused { .. } => "it is at an address that may not be called",
            TransportError::OpenFiles => "the gateway has no room for another connection",
            TransportError::ConnectTimeout => "no connection in time",
            TransportError::Tls(_) => "TLS handshake failed",
            TransportError::BadUri(_) => "its address cannot be used",
            _ => "connection refused",
        });
    }
    match error {
        TransportError::FirstByteTimeout => Trouble::Slow("no answer"),
        TransportError::IdleTimeout => Trouble::Slow("it fell silent"),
        TransportError::TotalTimeout => Trouble::Slow("it took too long altogether"),
        TransportError::TooLarge { limit } => Trouble::TooMuch(*limit, "one answer"),
        TransportError::HeaderTooLarge => Trouble::Misbehaved("its response header is too large".into()),
        TransportError::Encoded => Trouble::Misbehaved("it sent an encoding that nobody asked for".into()),
        TransportError::NoRoom(error) => Trouble::from(*error),
        TransportError::Unasked(what) => Trouble::Misbehaved((*what).to_owned()),
        TransportError::TooManyPieces => {
            Trouble::Misbehaved("its answer comes in too many small pieces".into())
        }
        _ => Trouble::Broken("the answer was cut off"),
    }
}
