//! A client's own request to an agent, passed on with the gateway's credentials; and its answer, as it comes.
//!
//! Where an agent has several endpoints, what lives where is read from both (see `ear`). Not here: what else is in either (see
//! `gateway::a2a`), calls of the gateway's own (see `call`).

use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{HeaderMap, StatusCode};

use super::affinity_recorder::AffinityRecorder;
use super::locate::locate_endpoint;
use super::resolved::{AgentRequest, ResolvedAgent, current};
use super::rpc::{BodyKind, is_no_route, post_for_all, to_failure, whole};
use crate::a2a::{BoundRequest, context_of};
use crate::config::AgentMethod;
use crate::fault::AgentFailure;
use crate::quota::AnswerRoom;
use crate::transport::{HttpClient, Response};

/// What is passed on.
pub struct ForwardRequest {
    /// What it is, for what differs by method.
    pub method: AgentMethod,
    /// The task that it is about, by the agent's id of it.
    pub task: Option<String>,
    /// The request in the agent's version and binding: several, if the first that the agent has a route for counts.
    pub written: Vec<BoundRequest>,
    /// The number of the endpoint that is asked, in their order; `None`: the one that this is for.
    pub at: Option<usize>,
}

/// The answer of an agent, whose head has come.
pub struct ForwardedResponse {
    form: BodyKind,
    reply: Response,
    known: Arc<ResolvedAgent>,
    /// `None` where it says nothing that must be remembered.
    ear: Option<AffinityRecorder>,
}

/// Passes a request on and waits for the head of the answer. A task that is looked at, to learn which endpoint knows it, takes of
/// the room.
///
/// # Errors
///
/// [`Trouble`], if no answer came that a client of A2A could read.
pub async fn forward(
    client: &HttpClient,
    known: Arc<ResolvedAgent>,
    asking: ForwardRequest,
    room: &mut AnswerRoom,
) -> Result<ForwardedResponse, AgentFailure> {
    let ForwardRequest { method, task, written, at } = asking;
    if !known.endpoints.are_several() || at.is_some() {
        let asks = written.into_iter().map(|written| {
            let ask = AgentRequest::new(method, task.as_deref(), written);
            if let Some(at) = at { ask.to(at) } else { ask }
        });
        let (answer, _) = first_with_route(client, &known, asks).await;
        return answer.map(|(form, reply)| ForwardedResponse { form, reply, known, ear: None });
    }
    // Boxed: what agents with one endpoint do not need must not make their requests larger.
    Box::pin(forward_to_affine(client, known, ForwardRequest { method, task, written, at }, room)).await
}

/// The same, to the endpoint where its task or its conversation lives.
async fn forward_to_affine(
    client: &HttpClient,
    known: Arc<ResolvedAgent>,
    asking: ForwardRequest,
    room: &mut AnswerRoom,
) -> Result<ForwardedResponse, AgentFailure> {
    let ForwardRequest { method, task, written, .. } = asking;
    let says = matches!(method, AgentMethod::Send | AgentMethod::Stream);
    let said = written.first().filter(|_| says);
    let context = said.and_then(|written| context_of(&written.body));
    // A task that its client names may not be there yet.
    let may_begin = known.interface.dialect.client_generates_task_ids() && says;
    if let Some(task) = &task {
        match locate_endpoint(client, &known, task, room).await {
            // Whoever is asked then says so in its own words.
            Ok(()) | Err(AgentFailure::TaskNotFound) => {}
            Err(_) if may_begin => {}
            Err(trouble) => return Err(trouble),
        }
    }
    let asks = written.into_iter().map(|written| {
        let mut ask = AgentRequest::new(method, task.as_deref(), written);
        ask.context.clone_from(&context);
        ask
    });
    let (answer, at) = first_with_route(client, &known, asks).await;
    let (form, reply) = answer?;
    let at = at.filter(|_| says);
    // Only a stream is there before it says what it is of; a refusal begins nothing.
    let has_begun = may_begin && form == BodyKind::Stream && reply.status().is_success();
    if let Some(at) = at.filter(|_| has_begun) {
        known.endpoints.remember(at, task.as_deref(), context.as_deref());
    }
    let ear = at.map(|at| AffinityRecorder::new(known.clone(), at, form));
    Ok(ForwardedResponse { form, reply, known, ear })
}

/// The answer to the first request that the agent has a route for, and the endpoint that gave it.
async fn first_with_route(
    client: &HttpClient,
    known: &ResolvedAgent,
    asks: impl Iterator<Item = AgentRequest>,
) -> (Result<(BodyKind, Response), AgentFailure>, Option<usize>) {
    let mut last = (Err(AgentFailure::Internal("there is no way to ask this")), None);
    for ask in asks {
        let answer = post_for_all(client, known, &ask).await;
        last = (answer, ask.place());
        if !is_no_route(&last.0) {
            break;
        }
    }
    last
}

impl ResolvedAgent {
    /// How many endpoints it has.
    #[must_use]
    pub fn endpoints(&self) -> usize {
        self.endpoints.count()
    }

    /// The same agent as it is really called, by all that is known now: by another interface of its card while the first is left
    /// alone.
    #[must_use]
    pub fn in_effect(self: Arc<Self>) -> Arc<Self> {
        let known = current(self);
        if known.standbys.is_empty() || !known.endpoints.all_rest() {
            return known;
        }
        let standby = known.interfaces().find(|standby| !standby.endpoints.all_rest());
        standby.unwrap_or(known)
    }

    /// The same agent for one request, that names these extensions of A2A.
    #[must_use]
    pub fn naming(self: Arc<Self>, extensions: &[String]) -> Arc<Self> {
        let mut headers = self.headers.clone();
        for (name, value) in self.interface.dialect.headers(extensions) {
            headers.insert(name, value);
        }
        Arc::new(Self { headers, ..Self::clone(&self) })
    }
}

impl ForwardedResponse {
    /// Whether the answer is a stream of events; else it is one JSON value.
    #[must_use]
    pub fn is_stream(&self) -> bool {
        self.form == BodyKind::Stream
    }

    /// The status as the agent sent it: that of a success, or of an error whose body may say more.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        self.reply.status()
    }

    /// The header of the answer. Nothing of it may reach a client unless it is on a list.
    #[must_use]
    pub fn headers(&self) -> &HeaderMap {
        self.reply.headers()
    }

    /// The length of the whole body, where the agent says it and nothing else says where the body ends.
    #[must_use]
    pub fn length(&self) -> Option<usize> {
        let headers = self.reply.headers();
        if headers.contains_key(TRANSFER_ENCODING) {
            return None;
        }
        headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
    }

    /// Whether the body has been read to its end.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.reply.is_over()
    }

    /// Waits for the next piece of the body; `None` after the last. May be dropped and called again.
    ///
    /// # Errors
    ///
    /// [`Trouble`], when it broke off, or nothing came in time.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, AgentFailure> {
        let chunk = self.reply.chunk().await.map_err(|error| to_failure(&error, &self.known))?;
        if let Some(ear) = &mut self.ear {
            // Before anybody hears of the task, and asks for it.
            ear.observe(chunk.as_deref().unwrap_or_default());
            if self.reply.is_over() || chunk.is_none() {
                ear.end();
            }
        }
        Ok(chunk)
    }

    /// The whole body.
    ///
    /// # Errors
    ///
    /// [`Trouble`], also if there is no room for it.
    pub async fn whole(&mut self, room: &mut AnswerRoom) -> Result<Bytes, AgentFailure> {
        let body = whole(&mut self.reply, &self.known, room).await?;
        if let Some(ear) = &mut self.ear {
            ear.observe(&body);
            ear.end();
        }
        Ok(body)
    }
}
