//! Finding the endpoint at which a task lives, where an agent has several.
//!
//! After a restart, or if another gateway began the task, that is not known: asking how it stands changes nothing, so every endpoint
//! may be asked in turn until one knows it. Nothing else is tried at an endpoint to see whether it is the right one.
//! Not here: what is remembered (see `homes`).

use super::judge::is_passing;
use super::known::{Ask, Known};
use super::rpc::{task_of, the_one_asked_for};
use crate::a2a::Task;
use crate::config::AgentMethod as Call;
use crate::fault::Trouble;
use crate::quota::AnswerRoom;
use crate::transport::Client;

/// Asks for a task where it lives; elsewhere while that is not known or cannot be asked, in case the endpoints share their tasks or
/// their agent has moved to another of them. One that does not know the task is asked again when some endpoint has gone or come back.
pub(super) async fn seek(
    client: &Client,
    known: &Known,
    task: &str,
    room: &mut AnswerRoom,
) -> Result<Task, Trouble> {
    let endpoints = &known.endpoints;
    let home = endpoints.home(task);
    let mut trouble = None;
    if let Some(home) = home {
        match ask_at(home, client, known, task, room).await {
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
        match ask_at(at, client, known, task, room).await {
            Ok(found) => return Ok(found),
            Err(Trouble::TaskLost) => endpoints.note_asked(task, at),
            // It may be the one that knows the task.
            Err(other) => trouble = trouble.or(Some(other)),
        }
    }
    Err(trouble.unwrap_or(Trouble::TaskLost))
}

async fn ask_at(
    at: usize,
    client: &Client,
    known: &Known,
    task: &str,
    room: &mut AnswerRoom,
) -> Result<Task, Trouble> {
    let ask = Ask::new(Call::Get, Some(task), known.interface.get_task(task)?).to(at);
    let found = task_of(client, known, &ask, room).await.and_then(|found| the_one_asked_for(found, task))?;
    known.endpoints.remember(at, Some(&found.id), found.context_id.as_deref());
    Ok(found)
}

/// Sees to it that the home of a task is known, and is not left alone, before anything is asked of it that may change it.
pub(super) async fn find_home(
    client: &Client,
    known: &Known,
    task: &str,
    room: &mut AnswerRoom,
) -> Result<(), Trouble> {
    let endpoints = &known.endpoints;
    let is_known = endpoints.of(Call::Get).is_some()
        || endpoints.home(task).is_some_and(|home| !endpoints.are_several() || endpoints.is_up(home));
    if is_known { Ok(()) } else { seek(client, known, task, room).await.map(drop) }
}
