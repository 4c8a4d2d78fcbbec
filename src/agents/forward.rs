//! Forwards a client's own request to an agent, with the gateway's credentials; and returns its
//! response as received.
//!
//! If an agent has several endpoints, the recorder of affinity reads from the response which task and
//! conversation the endpoint holds, as far as needed: the events of a stream until both are known, a
//! single response up to a limit. A response that cannot be read is not recorded; its task can be
//! located later (see `locate`). See also `a2a_server` for other rewriting and `call` for calls of
//! the gateway's own.
//!
//! Also reads files that an agent keeps at its own origin, with the credentials of the agent. A URL in an agent's output
//! is a statement of the agent: the credentials are sent only to an origin at which the agent is called anyway;
//! redirects are not followed.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, TRANSFER_ENCODING};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri};

use super::grpc::AgentResponse;
use super::locate::locate_endpoint;
use super::resolved::{ResolvedAgent, current};
use super::rpc::AgentRequest;
use super::rpc::{BodyKind, is_no_route, post_for_all, whole};
use crate::a2a::{BoundRequest, StreamResponse, context_of};
use crate::auth::{AccessToken, TokenUnavailable};
use crate::config::{AgentMethod, effective_port};
use crate::fault::AgentFailure;
use crate::quota::AnswerRoom;
use crate::sse::Decoder;
use crate::transport::{HttpClient, Response};

/// The maximum size of a response, or event, that is read for this, in bytes.
const MAX_OBSERVED_BYTES: usize = 1 << 20;
/// The maximum number of events of a stream that are read for this.
const MOST_EVENTS: usize = 16;

/// A request to forward.
pub struct ForwardRequest {
    /// The method, for the settings that differ by method.
    pub method: AgentMethod,
    /// The task that the request is about, by the agent's id.
    pub task: Option<String>,
    /// The request in the agent's version and binding: several, if the first that the agent has a
    /// route for counts.
    pub written: Vec<BoundRequest>,
    /// The number of the endpoint; `None`: the one that holds the task.
    pub at: Option<usize>,
}

/// The response of an agent after its head was received.
pub struct ForwardedResponse {
    form: BodyKind,
    reply: AgentResponse,
    known: Arc<ResolvedAgent>,
    /// `None` if nothing of it must be recorded.
    ear: Option<AffinityRecorder>,
}

/// Forwards a request and waits for the head of the response. A task that is fetched to learn which
/// endpoint knows it takes of the room.
///
/// # Errors
///
/// [`AgentFailure`] if no response came that a client of A2A could read.
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
    // Boxed: the requests of agents with one endpoint do not need it, and must not grow by it.
    Box::pin(forward_to_affine(client, known, ForwardRequest { method, task, written, at }, room)).await
}

/// Forwards a request to the endpoint that holds its task or its conversation.
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
    // A task that its client names may not exist yet.
    let may_begin = known.interface.dialect.client_generates_task_ids() && says;
    if let Some(task) = &task {
        match locate_endpoint(client, &known, task, room).await {
            // The agent that is asked then answers so itself.
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
    // Only a stream begins before it names its task; a rejection begins nothing.
    let has_begun = may_begin && form == BodyKind::Stream && reply.status().is_success();
    if let Some(at) = at.filter(|_| has_begun) {
        known.endpoints.remember(at, task.as_deref(), context.as_deref());
    }
    let ear = at.map(|at| AffinityRecorder::new(known.clone(), at, form));
    Ok(ForwardedResponse { form, reply, known, ear })
}

/// Returns the response to the first request that the agent has a route for, and the endpoint that
/// gave it.
async fn first_with_route(
    client: &HttpClient,
    known: &ResolvedAgent,
    asks: impl Iterator<Item = AgentRequest>,
) -> (Result<(BodyKind, AgentResponse), AgentFailure>, Option<usize>) {
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
    /// Returns the number of its endpoints.
    #[must_use]
    pub fn endpoints(&self) -> usize {
        self.endpoints.count()
    }

    /// Returns the agent in effect: in the version that it accepts, and through another interface
    /// of its card while the breakers of the first are open.
    #[must_use]
    pub fn in_effect(self: Arc<Self>) -> Arc<Self> {
        let known = current(self);
        if known.standbys.is_empty() || !known.endpoints.all_rest() {
            return known;
        }
        let standby = known.interfaces().find(|standby| !standby.endpoints.all_rest());
        standby.unwrap_or(known)
    }

    /// Returns the agent for one request that names these extensions of A2A.
    #[must_use]
    pub fn naming(self: Arc<Self>, extensions: &[String]) -> Arc<Self> {
        let mut headers = HeaderMap::clone(self.named.as_deref().unwrap_or(&self.headers));
        for (name, value) in self.interface.dialect.headers(extensions) {
            headers.insert(name, value);
        }
        let named = Some(Arc::new(headers));
        Arc::new(Self { facts: self.facts.clone(), along: self.along.clone(), named })
    }
}

impl ForwardedResponse {
    /// Returns true if the response is a stream of events; else it is one JSON value.
    #[must_use]
    pub fn is_stream(&self) -> bool {
        self.form == BodyKind::Stream
    }

    /// Returns the status as the agent sent it: that of a success, or of an error with a body that
    /// may say more.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        self.reply.status()
    }

    /// Returns the header of the response. Nothing of it may reach a client unless it is on a list.
    #[must_use]
    pub fn headers(&self) -> &HeaderMap {
        self.reply.headers()
    }

    /// Returns the length of the whole body, if the agent states it and nothing else determines the
    /// end of the body.
    #[must_use]
    pub fn length(&self) -> Option<usize> {
        let headers = self.reply.headers();
        if self.is_converted() || headers.contains_key(TRANSFER_ENCODING) {
            return None;
        }
        headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
    }

    /// Returns true if the body has been read to its end.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.reply.is_over()
    }

    /// Returns true if the body is made of messages of gRPC: it is JSON as a whole only.
    #[must_use]
    pub fn is_converted(&self) -> bool {
        self.reply.is_converted()
    }

    /// Sets the maximum size of one event, in bytes, before it is held.
    pub fn limit_events(&mut self, bytes: usize) {
        self.reply.limit_events(bytes);
    }

    /// Returns the number of bytes that are held for an event that is not complete.
    #[must_use]
    pub fn held(&self) -> usize {
        self.reply.held()
    }

    /// Waits for the next chunk of the body, which may be empty; `None` after the last. Cancel-safe.
    ///
    /// # Errors
    ///
    /// [`AgentFailure`] if the body broke off, or nothing came in time.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, AgentFailure> {
        let chunk = self.reply.chunk().await.map_err(|error| self.known.reply_failure(error))?;
        if let Some(ear) = &mut self.ear {
            // Before a client learns of the task, and asks for it.
            ear.observe(chunk.as_deref().unwrap_or_default());
            if self.reply.is_over() || chunk.is_none() {
                ear.end();
            }
        }
        Ok(chunk)
    }

    /// Reads the whole body.
    ///
    /// # Errors
    ///
    /// [`AgentFailure`], also if the body exceeds the room.
    pub async fn whole(&mut self, room: &mut AnswerRoom) -> Result<Bytes, AgentFailure> {
        let body = whole(&mut self.reply, &self.known, room).await?;
        if let Some(ear) = &mut self.ear {
            ear.observe(&body);
            ear.end();
        }
        Ok(body)
    }
}

/// Observes the response of one endpoint.
pub(super) struct AffinityRecorder {
    known: Arc<ResolvedAgent>,
    at: usize,
    heard: Observed,
}

/// The part of the response that was observed.
enum Observed {
    Value(Vec<u8>),
    Events(Decoder, usize),
    /// All that is needed, or more than is read.
    Enough,
}

impl AffinityRecorder {
    /// Observes a response of this form, from the beginning.
    pub(super) fn new(known: Arc<ResolvedAgent>, at: usize, form: BodyKind) -> Self {
        let heard = match form {
            BodyKind::Json => Observed::Value(Vec::new()),
            BodyKind::Stream => Observed::Events(Decoder::new(MAX_OBSERVED_BYTES), MOST_EVENTS),
        };
        Self { known, at, heard }
    }

    /// Observes the next bytes.
    fn observe(&mut self, bytes: &[u8]) {
        let is_enough = match &mut self.heard {
            Observed::Value(body) if body.len().saturating_add(bytes.len()) <= MAX_OBSERVED_BYTES => {
                body.extend_from_slice(bytes);
                false
            }
            Observed::Value(_) | Observed::Enough => true,
            Observed::Events(decoder, left) => {
                let Ok(events) = decoder.push(bytes) else {
                    self.heard = Observed::Enough;
                    return;
                };
                *left = left.saturating_sub(events.len());
                let is_last = *left == 0;
                let told = events.iter().filter(|event| self.known.is_done(self.at, &event.data)).count();
                is_last || told > 0
            }
        };
        if is_enough {
            self.heard = Observed::Enough;
        }
    }

    /// Observes the end of the response.
    pub(super) fn end(&mut self) {
        if let Observed::Value(body) = std::mem::replace(&mut self.heard, Observed::Enough) {
            self.known.is_done(self.at, &body);
        }
    }
}

impl ResolvedAgent {
    /// Records the endpoint of the task and conversation of a response. Returns true if the
    /// response names both, or can name no more.
    fn is_done(&self, at: usize, json: &[u8]) -> bool {
        let Ok(event) = self.interface.event(json) else { return false };
        self.endpoints.hear(at, &event);
        match &event {
            StreamResponse::Task(task) => task.context_id.is_some(),
            StreamResponse::Message(_) => true,
            StreamResponse::Status { task_id, context_id, .. }
            | StreamResponse::Artifact { task_id, context_id, .. } => {
                task_id.is_some() && context_id.is_some()
            }
            StreamResponse::Unknown => false,
        }
    }
}

/// A file of an agent.
pub(crate) struct AgentFile {
    /// The media type that the agent states.
    pub(crate) media_type: Option<String>,
    pub(crate) bytes: Bytes,
}

impl ResolvedAgent {
    /// Returns the URL of a file at the origin of one of the agent's endpoints; `None` for a URL
    /// elsewhere.
    pub(crate) fn own_file(&self, url: &str) -> Option<Uri> {
        let uri: Uri = url.parse().ok()?;
        let is_own = self.ways.load().own.iter().any(|way| is_same_origin(&way.address.uri, &uri));
        is_own.then_some(uri)
    }

    /// Reads a file of which [`ResolvedAgent::own_file`] returned the URL, within `timeout`. The
    /// bytes are counted in `room` before they are held.
    ///
    /// # Errors
    ///
    /// The [`AgentFailure`], also if the response is not 200.
    pub(crate) async fn fetch_file(
        &self,
        client: &HttpClient,
        uri: &Uri,
        room: &mut AnswerRoom,
        timeout: Duration,
    ) -> Result<AgentFile, AgentFailure> {
        let fetched = async {
            let mut reply = self.request_file(client, uri).await?;
            match reply.status() {
                StatusCode::OK => {}
                StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                    return Err(AgentFailure::Unauthorized(reply.status().as_u16()));
                }
                status => return Err(AgentFailure::HttpStatus(status.as_u16())),
            }
            let media_type = reply.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
            let media_type = media_type.map(str::to_owned);
            let bytes = reply.collect_in(room).await.map_err(|error| self.to_failure(&error))?;
            Ok(AgentFile { media_type, bytes })
        };
        let late = Err(AgentFailure::Timeout("it does not send the file"));
        tokio::time::timeout(timeout, fetched).await.unwrap_or(late)
    }

    /// Sends the request; once more with another token, if the first is rejected.
    async fn request_file(&self, client: &HttpClient, uri: &Uri) -> Result<Response, AgentFailure> {
        let Some(tokens) = self.credentials.tokens() else {
            return self.request_file_once(client, uri, None).await;
        };
        let subject = self.along.as_ref().and_then(|along| along.subject());
        let no_token = |no_token| match no_token {
            TokenUnavailable::Now(why) => AgentFailure::TokenUnavailable(why),
            TokenUnavailable::OfCaller(why) => AgentFailure::TokenExchangeFailed(why),
        };
        let pass = tokens.pass(subject).await.map_err(no_token)?;
        let reply = self.request_file_once(client, uri, Some(&pass)).await?;
        if reply.status() != StatusCode::UNAUTHORIZED {
            return Ok(reply);
        }
        match tokens.replace_rejected(&pass, subject).await.map_err(no_token)? {
            Some(another) => self.request_file_once(client, uri, Some(&another)).await,
            None => Ok(reply),
        }
    }

    async fn request_file_once(
        &self,
        client: &HttpClient,
        uri: &Uri,
        pass: Option<&AccessToken>,
    ) -> Result<Response, AgentFailure> {
        let ways = self.ways.load();
        let way = ways.own.iter().find(|way| is_same_origin(&way.address.uri, uri));
        let way = way.ok_or(AgentFailure::Internal("the file is not at an origin of the agent"))?;
        let shown = self.credentials.request_credentials();
        let path = uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
        let mut headers = HeaderMap::new();
        if let Some(along) = &self.along {
            along.insert(&self.forwards, &mut headers);
        }
        headers.insert(ACCEPT, HeaderValue::from_static("*/*"));
        shown.apply(AgentMethod::Other, &mut headers);
        if let Some(pass) = pass {
            headers.insert(AUTHORIZATION, pass.value().clone());
        }
        let mut request = Request::new(Bytes::new());
        *request.method_mut() = Method::GET;
        *request.uri_mut() = shown.keyed(&path).map_err(AgentFailure::Internal)?.into();
        *request.headers_mut() = headers;
        client.send(&way.target, request).await.map_err(|error| self.to_failure(&error))
    }
}

/// Returns true if both URLs have one scheme, host and port.
fn is_same_origin(one: &Uri, other: &Uri) -> bool {
    let hosts = one.host().zip(other.host());
    one.scheme() == other.scheme()
        && hosts.is_some_and(|(one, other)| one.eq_ignore_ascii_case(other))
        && effective_port(one) == effective_port(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origin_is_scheme_host_and_port() {
        let agent: Uri = "https://agent.example/a2a".parse().unwrap();
        for (url, expected) in [
            ("https://agent.example/files/1", true),
            ("https://AGENT.example:443/files/1?x=y", true),
            ("http://agent.example/files/1", false),
            ("https://agent.example:8443/files/1", false),
            ("https://files.agent.example/1", false),
            ("https://agent.example@other.example/1", false),
            ("/files/1", false),
        ] {
            assert_eq!(is_same_origin(&agent, &url.parse().unwrap()), expected, "{url}");
        }
    }
}
