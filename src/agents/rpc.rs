//! One JSON-RPC request to an agent, and what its failures mean.
//!
//! Not here: streams (see `stream`), what is asked (see `call`).

use bytes::Bytes;
use http::header::CONTENT_TYPE;

use super::call::Hook;
use super::known::{Ask, Known};
use crate::a2a::{AgentError, ErrorKind, Task, Webhook};
use crate::config::AgentMethod as Call;
use crate::fault::Trouble;
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

/// Posts one JSON-RPC request and looks at the head of the answer. The answer decides its form, not the question.
pub(super) async fn post(client: &Client, known: &Known, ask: &Ask) -> Result<(Form, Reply), Trouble> {
    let reply = known.send(client, ask).await?;
    let status = reply.status();
    if status == http::StatusCode::UNAUTHORIZED || status == http::StatusCode::FORBIDDEN {
        return Err(Trouble::NotAuthorized(status.as_u16()));
    }
    let form = form(&reply);
    match form {
        Some(form) if status.is_success() => Ok((form, reply)),
        // Some agents answer errors of JSON-RPC with 4xx.
        Some(Form::Json) if status.is_client_error() => Ok((Form::Json, reply)),
        Some(_) => Err(Trouble::Status(status.as_u16())),
        None if status.is_success() => {
            Err(Trouble::Misbehaved("its answer is neither JSON nor an event stream".into()))
        }
        None => Err(Trouble::Status(status.as_u16())),
    }
}

fn form(reply: &Reply) -> Option<Form> {
    let value = reply.headers().get(CONTENT_TYPE)?.to_str().ok()?;
    let name = value.split(';').next().unwrap_or_default().trim();
    let is = |known: &str| name.eq_ignore_ascii_case(known);
    if is("text/event-stream") {
        Some(Form::Stream)
    } else {
        (is("application/json") || is("application/a2a+json")).then_some(Form::Json)
    }
}

/// The body of an answer as one JSON value.
pub(super) async fn whole(reply: Reply, known: &Known, limit: usize) -> Result<Bytes, Trouble> {
    let status = reply.status();
    let body = reply.collect(limit).await.map_err(|error| trouble(&error, known))?;
    if body.is_empty() && !status.is_success() { Err(Trouble::Status(status.as_u16())) } else { Ok(body) }
}

/// Asks for a task as it stands.
pub(super) async fn get_task(
    client: &Client,
    known: &Known,
    task: &str,
    limit: usize,
) -> Result<Task, Trouble> {
    let tenant = known.interface.tenant.as_deref();
    let body = known.interface.dialect.get_task(task, tenant);
    task_of(client, known, &Ask::new(Call::Get, Some(task), body), limit)
        .await
        .and_then(|found| the_one_asked_for(found, task))
}

/// Asks for a task to be stopped.
pub(super) async fn cancel_task(
    client: &Client,
    known: &Known,
    task: &str,
    limit: usize,
) -> Result<Task, Trouble> {
    let tenant = known.interface.tenant.as_deref();
    let body = known.interface.dialect.cancel_task(task, tenant);
    task_of(client, known, &Ask::new(Call::Cancel, Some(task), body), limit)
        .await
        .and_then(|found| the_one_asked_for(found, task))
}

/// Somebody else's task is never taken for the one that was asked for.
fn the_one_asked_for(found: Task, asked: &str) -> Result<Task, Trouble> {
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
    limit: usize,
) -> Result<(), Trouble> {
    let webhook = Webhook { id: WEBHOOK, url: &hook.url, token: &hook.token };
    let body = known.interface.dialect.set_push(task, &webhook, known.interface.tenant.as_deref());
    let answer = plain(client, known, &Ask::new(Call::Other, Some(task), body), limit).await?;
    known.interface.dialect.webhook_id(&answer).map(drop).map_err(refusal)
}

async fn task_of(client: &Client, known: &Known, ask: &Ask, limit: usize) -> Result<Task, Trouble> {
    let answer = plain(client, known, ask, limit).await?;
    known.interface.dialect.task(&answer).map_err(refusal)
}

/// The body of an answer that must not be a stream.
async fn plain(client: &Client, known: &Known, ask: &Ask, limit: usize) -> Result<Bytes, Trouble> {
    let (form, reply) = post(client, known, ask).await?;
    if form == Form::Stream {
        return Err(Trouble::Misbehaved("it answered a plain question with a stream".into()));
    }
    whole(reply, known, limit).await
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
        TransportError::Unasked(what) => Trouble::Misbehaved((*what).to_owned()),
        _ => Trouble::Broken("the answer was cut off"),
    }
}
