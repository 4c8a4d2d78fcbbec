//! The route to an agent: by its newest card, and by another interface of that card if the first is
//! unreachable.
//!
//! All interfaces of a card are of the same agent (A2A 1.0 §8.3.1); the first is preferred. See
//! `endpoints` and `locate` for several endpoints of one interface.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use super::call::is_passing;
use super::resolved::{ResolvedAgent, current};
use super::rpc::get_task;
use crate::a2a::Task;
use crate::fault::AgentFailure;
use crate::quota::AnswerRoom;
use crate::transport::HttpClient;

/// A task, and its agent as called where the task was found.
pub(super) struct LocatedTask {
    pub(super) known: Arc<ResolvedAgent>,
    pub(super) task: Task,
}

impl ResolvedAgent {
    /// Returns the agent by its newest card, with the forwarded context of this call.
    pub(super) fn newest(self: Arc<Self>) -> Arc<Self> {
        let Some(newest) = self.latest.upgrade().and_then(|latest| latest.known.load_full()) else {
            return self;
        };
        if Arc::ptr_eq(&newest.card, &self.card) && !self.is_standby {
            return self;
        }
        newest.along(self.along.as_ref())
    }

    /// Returns the interface in effect, then the others of the card.
    pub(super) fn interfaces(self: &Arc<Self>) -> impl Iterator<Item = Arc<Self>> {
        let others = self.standbys.iter().map(|standby| standby.clone().along(self.along.as_ref()));
        std::iter::once(current(self.clone())).chain(others)
    }

    /// Returns the endpoints of all interfaces.
    pub(super) fn all_endpoints(&self) -> impl Iterator<Item = &super::endpoints::Endpoints> {
        let others = self.other.iter().chain(self.standbys.iter()).map(|known| &*known.endpoints);
        std::iter::once(&*self.endpoints).chain(others)
    }
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
            Err(why) if why == AgentFailure::TaskNotFound || is_passing(&why) => {
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
