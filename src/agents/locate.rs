//! One task at an agent: gets it, cancels it, registers for its pushes; at the endpoint that holds
//! it, if the agent has several, and through the interface of the newest card that leads to it.
//!
//! After a restart, or if another gateway began the task, the endpoint is not known: `GetTask`
//! changes nothing, so every endpoint may be asked in turn until one knows the task. No other
//! request is used to find the right endpoint. See `AffinityMap` in `endpoints`.
//!
//! All interfaces of a card are of the same agent (A2A 1.0 §8.3.1); the first is preferred.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use super::resolved::ResolvedAgent;
use super::rpc::{AgentRequest, WebhookTarget};
use super::rpc::{by_status, plain, refusal, task_of};
use crate::a2a::{PushNotificationConfig, Task};
use crate::config::AgentMethod as Call;
use crate::fault::AgentFailure;
use crate::quota::AnswerRoom;
use crate::transport::HttpClient;

/// The name of the gateway's registration for pushes; one per task, so that a repeated request
/// replaces it.
const WEBHOOK: &str = "mcp-a2a-gateway";

/// Gets the current task from an agent, by the agent's own id.
///
/// # Errors
///
/// [`AgentFailure`] if the agent does not send it, sends another task, or exceeds the room.
pub async fn get_task(
    client: &HttpClient,
    known: &ResolvedAgent,
    task: &str,
    room: &mut AnswerRoom,
) -> Result<Task, AgentFailure> {
    if known.endpoints.are_several() && known.endpoints.of(Call::Get).is_none() {
        return Box::pin(locate(client, known, task, room)).await;
    }
    let written = known.interface.get_task(task)?;
    task_of(client, known, &AgentRequest::new(Call::Get, Some(task), written), room)
        .await
        .and_then(|found| ensure_task_id(found, task))
}

/// Cancels a task.
pub(super) async fn cancel_task(
    client: &HttpClient,
    known: &ResolvedAgent,
    task: &str,
    room: &mut AnswerRoom,
) -> Result<Task, AgentFailure> {
    Box::pin(locate_endpoint(client, known, task, room)).await?;
    let written = known.interface.cancel_task(task)?;
    task_of(client, known, &AgentRequest::new(Call::Cancel, Some(task), written), room)
        .await
        .and_then(|found| ensure_task_id(found, task))
}

/// Rejects a task of another id than the requested one.
fn ensure_task_id(found: Task, asked: &str) -> Result<Task, AgentFailure> {
    if found.id == asked {
        Ok(found)
    } else {
        Err(AgentFailure::ProtocolViolation("it answered with another task".into()))
    }
}

/// Registers for pushes of the changes of a task.
pub(super) async fn set_webhook(
    client: &HttpClient,
    known: &ResolvedAgent,
    task: &str,
    hook: &WebhookTarget,
    room: &mut AnswerRoom,
) -> Result<(), AgentFailure> {
    Box::pin(locate_endpoint(client, known, task, room)).await?;
    let webhook = PushNotificationConfig { id: WEBHOOK, url: &hook.url, token: &hook.token };
    let written = known.interface.set_push(task, &webhook)?;
    let (status, answer) =
        plain(client, known, &AgentRequest::new(Call::Other, Some(task), written), room).await?;
    known.interface.webhook_is_set(&answer).map_err(|error| by_status(refusal(error), status))
}

/// Gets a task at the endpoint that holds it; elsewhere while that is unknown or unavailable, in
/// case the endpoints share their tasks or their agent has moved to another of them. An endpoint
/// that does not know the task is asked again once some endpoint has failed or returned.
pub(super) async fn locate(
    client: &HttpClient,
    known: &ResolvedAgent,
    task: &str,
    room: &mut AnswerRoom,
) -> Result<Task, AgentFailure> {
    let endpoints = &known.endpoints;
    if endpoints.may_learn(Some(task), None) {
        endpoints.learn(Some(task), None).await;
    }
    let home = endpoints.home(task);
    let mut trouble = None;
    if let Some(home) = home {
        match probe_endpoint(home, client, known, task, room).await {
            Err(passing) if passing.is_transient() => trouble = Some(passing),
            result => return result,
        }
    }
    let is_to_be_asked =
        |at: &usize| home.is_none_or(|home| home != *at && endpoints.is_to_be_asked(task, *at));
    for at in endpoints.numbers(1) {
        if !is_to_be_asked(&at) {
            continue;
        }
        match probe_endpoint(at, client, known, task, room).await {
            Ok(found) => return Ok(found),
            Err(AgentFailure::TaskNotFound) => endpoints.note_asked(task, at),
            // It may be the one that knows the task.
            Err(other) => trouble = trouble.or(Some(other)),
        }
    }
    Err(trouble.unwrap_or(AgentFailure::TaskNotFound))
}

async fn probe_endpoint(
    at: usize,
    client: &HttpClient,
    known: &ResolvedAgent,
    task: &str,
    room: &mut AnswerRoom,
) -> Result<Task, AgentFailure> {
    let ask = AgentRequest::new(Call::Get, Some(task), known.interface.get_task(task)?).to(at);
    let found = task_of(client, known, &ask, room).await.and_then(|found| ensure_task_id(found, task))?;
    known.endpoints.remember(at, Some(&found.id), found.context_id.as_deref());
    Ok(found)
}

/// Ensures that the endpoint of a task is known and available before a request that may change the
/// task.
pub(super) async fn locate_endpoint(
    client: &HttpClient,
    known: &ResolvedAgent,
    task: &str,
    room: &mut AnswerRoom,
) -> Result<(), AgentFailure> {
    let endpoints = &known.endpoints;
    let is_known = endpoints.of(Call::Get).is_some()
        || endpoints.home(task).is_some_and(|home| !endpoints.are_several() || endpoints.is_up(home));
    if is_known { Ok(()) } else { locate(client, known, task, room).await.map(drop) }
}

/// A task, and its agent as called where the task was found.
pub(super) struct LocatedTask {
    pub(super) known: Arc<ResolvedAgent>,
    pub(super) task: Task,
}

/// Gets a task through each interface of the newest card, until one knows it.
///
/// # Errors
///
/// [`AgentFailure::TaskNotFound`] only if all say so; else the failure of the first that may know
/// the task.
pub(super) async fn find_task(
    client: &HttpClient,
    known: &Arc<ResolvedAgent>,
    task: &str,
    room: &mut AnswerRoom,
) -> Result<LocatedTask, AgentFailure> {
    let newest = known.clone().newest();
    let mut trouble: Option<AgentFailure> = None;
    for known in newest.interfaces() {
        match get_task(client, &known, task, room).await {
            Ok(task) => return Ok(LocatedTask { known, task }),
            Err(why) if why == AgentFailure::TaskNotFound || why.is_transient() => {
                let is_first = trouble.as_ref().is_none_or(|trouble| *trouble == AgentFailure::TaskNotFound);
                trouble = if is_first { Some(why) } else { trouble };
            }
            Err(why) => return Err(trouble.unwrap_or(why)),
        }
    }
    Err(trouble.unwrap_or(AgentFailure::TaskNotFound))
}

/// Waits until a task may be asked for again after all its breakers were open: at one of its
/// endpoints, at an endpoint with a closed breaker that did not respond (`pause`), or at the
/// endpoints of another card.
pub(super) async fn wait_for(known: &Arc<ResolvedAgent>, task: &str, pause: Duration) {
    let latest = known.latest.upgrade();
    let mut changes = latest.as_ref().map(|latest| latest.changed.subscribe());
    let interfaces: Vec<Arc<ResolvedAgent>> = known.clone().newest().interfaces().collect();
    let mut waits: Vec<Pin<Box<dyn Future<Output = ()> + Send + '_>>> = Vec::new();
    let mut is_polled = false;
    for breaker in interfaces.iter().flat_map(|known| known.endpoints.breakers_of(task)) {
        if breaker.is_closed() {
            is_polled = true;
        } else {
            waits.push(Box::pin(breaker.wait()));
        }
    }
    if is_polled || waits.is_empty() {
        waits.push(Box::pin(tokio::time::sleep(pause)));
    }
    if let Some(changes) = &mut changes {
        waits.push(Box::pin(async { drop(changes.changed().await) }));
    }
    poll_fn(|context| match waits.iter_mut().any(|wait| wait.as_mut().poll(context).is_ready()) {
        true => Poll::Ready(()),
        false => Poll::Pending,
    })
    .await;
}
