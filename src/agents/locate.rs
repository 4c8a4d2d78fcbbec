//! Locates the endpoint that holds a task, if an agent has several.
//!
//! After a restart, or if another gateway began the task, the endpoint is not known: `GetTask`
//! changes nothing, so every endpoint may be asked in turn until one knows the task. No other
//! request is used to find the right endpoint. See `affinity` for the map.

use super::call::is_passing;
use super::resolved::{AgentRequest, ResolvedAgent};
use super::rpc::{ensure_task_id, task_of};
use crate::a2a::Task;
use crate::config::AgentMethod as Call;
use crate::fault::AgentFailure;
use crate::quota::AnswerRoom;
use crate::transport::HttpClient;

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
    let home = endpoints.home(task);
    let mut trouble = None;
    if let Some(home) = home {
        match probe_endpoint(home, client, known, task, room).await {
            Err(passing) if is_passing(&passing) => trouble = Some(passing),
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
