//! Proxied request of an A2A client: authorization, the request to the agent, and its
//! response.
//!
//! See also `request` and `rest` (parsing), `response` (content) and `stream_body` (bytes).

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};

use super::card::{CardReader, CardRewriter};
use super::error::A2aError;
use super::error::{agent_method, label};
use super::ids::ExchangeIds;
use super::list_tasks::{FullResponse, TaskLister};
use super::push::WebhookRewriter;
use super::push::webhook_urls;
use super::request::JsonRpcRequest;
use super::request::OutgoingRequest;
use super::request::ParamMembers;
use super::response::ResponseRewriter;
use super::stream_body::{self, BodyRewriter as _, ForwardContext, unless_client_gone};
use super::translate::RequestIds;
use super::{A2aServer, AgentScope, EXTENSIONS, write};
use crate::a2a::translate::{IdKind, Operation};
use crate::a2a::{Binding, Dialect};
use crate::access::Requester;
use crate::agents::{ForwardRequest, ForwardedResponse, ResolvedAgent, forward, look};
use crate::config::AgentMethod;
use crate::fault::{Abort, AgentFailure, Fault};
use crate::http_edge::{AccessRecord, ClientConnection, ResponseSink};
use crate::limits::{CallPermit, UsePermit};
use crate::quota::AnswerRoom;
use crate::telemetry::label::Method as Label;

/// Most extensions of a request that are read and forwarded to an agent.
const MAX_EXTENSIONS: usize = 32;

/// Request for an agent.
pub(super) struct ProxiedRequest<'a> {
    pub(super) scope: &'a AgentScope<'a>,
    pub(super) resolved: Arc<ResolvedAgent>,
    pub(super) binding: Binding,
    /// True if the response is converted to another form, for which it must be complete.
    pub(super) is_converted: bool,
    /// Dialect of the client.
    pub(super) client: Dialect,
    /// `None` for a method of an extension.
    pub(super) operation: Option<Operation>,
    pub(super) request: &'a JsonRpcRequest<'a>,
    /// Body of the request, if the binding is JSON-RPC.
    pub(super) body: Option<&'a Bytes>,
    /// Facts about the member names in the params; empty for a method of an extension.
    pub(super) members: ParamMembers,
}

/// Permits of a call while it lasts.
struct CallPermits {
    _use: UsePermit,
    _agent: Option<CallPermit>,
}

/// An agent, and the request for it.
struct UpstreamRequest {
    agent: Arc<ResolvedAgent>,
    request: ForwardRequest,
}

/// The rewriter of a response, and the permit for its bytes.
struct ResponsePipeline<'a> {
    rewriter: ResponseRewriter<'a>,
    room: AnswerRoom,
}

impl ProxiedRequest<'_> {
    /// Returns the dialect of the agent.
    pub(super) fn dialect(&self) -> Dialect {
        self.resolved.interface.dialect
    }

    /// Returns true if the gateway must begin the stream with the task, as A2A 1.0 requires,
    /// because the agent does not.
    fn wants_task_first(&self) -> bool {
        let is_older = self.client == Dialect::V1 && self.dialect() != Dialect::V1;
        is_older && self.operation == Some(Operation::Subscribe)
    }

    /// Returns true if the client made the id of the task, and the agent makes its own.
    fn names_tasks(&self) -> bool {
        self.client == Dialect::V0_1 && self.dialect() != Dialect::V0_1
    }

    /// Returns the label of the operation.
    fn label(&self) -> Label {
        self.operation.map_or(Label::A2a, label)
    }

    /// Returns the webhook URLs of a request.
    fn webhook_urls(&self) -> Result<Vec<String>, A2aError> {
        match self.operation.zip(self.request.params).filter(|_| self.members.pushes) {
            Some((operation, params)) if operation.sends_message() || operation == Operation::SetPush => {
                webhook_urls(params.get()).ok_or_else(|| A2aError::BadPush("it cannot be read".to_owned()))
            }
            _ => Ok(Vec::new()),
        }
    }

    /// Returns the agent with the extensions that the client names in addition to those of the
    /// operator.
    fn activated_extensions(&self, headers: &HeaderMap) -> Arc<ResolvedAgent> {
        // The usual case.
        if !headers.keys().any(|name| EXTENSIONS.contains(name)) {
            return self.resolved.clone();
        }
        let named = EXTENSIONS.iter().flat_map(|name| headers.get_all(name));
        let named = named.filter_map(|value| value.to_str().ok()).flat_map(|list| list.split(','));
        let configured = &self.scope.agent.settings.extensions;
        let mut all: Vec<String> = configured.clone();
        for uri in named.map(str::trim).filter(|uri| !uri.is_empty()).take(MAX_EXTENSIONS) {
            if !all.iter().any(|known| known == uri) {
                all.push(uri.to_owned());
            }
        }
        let resolved = self.resolved.clone();
        if all.len() == configured.len() { resolved } else { resolved.naming(&all) }
    }
}

impl A2aServer {
    /// Sends a request to the agent, and forwards its response.
    pub(super) async fn proxy(
        &self,
        http: &mut impl ClientConnection,
        record: &mut AccessRecord,
        call: ProxiedRequest<'_>,
    ) -> Result<(), Abort<A2aError>> {
        let ProxiedRequest { scope, operation, request, .. } = call;
        (record.method, record.version) = (call.label(), Some(call.client.version()));
        self.authorize_call(record, &call)?;
        let _permits = self.acquire_permits(http, record, &call).await?;
        let mut sealed = self.settings.seals_ids.then(|| self.exchange_ids(record, &call));
        let mut webhooks = self.webhook_rewriter(&call, sealed.as_ref())?;
        let client = call.names_tasks().then(|| self.ids.client_ids(record.caller.name(), scope.name()));
        let OutgoingRequest { written, task, translation, bare, list } =
            call.build(RequestIds { sealed: sealed.as_mut(), client }, webhooks.as_mut())?;
        self.record_id(record, scope, IdKind::Task, task.as_deref());
        let urls = call.webhook_urls()?;
        if !urls.is_empty() {
            let mut checked = Box::pin(self.webhooks.check_urls(scope.name(), urls));
            unless_client_gone(http, checked.as_mut()).await??;
        }
        let room = self.limits.answer_room(record.quota_owner.as_ref());
        let agent = call.activated_extensions(&http.head().headers);
        let rewriter = ResponseRewriter {
            agent: scope.name(),
            client: call.client,
            bare,
            id: &request.id,
            operation,
            binding: call.binding,
            is_converted: call.is_converted,
            ids: sealed,
            translation,
            webhooks,
            first: Vec::new(),
            card: self.extended_card_rewriter(http, record, &call),
        };
        let (mut pipeline, since) = (ResponsePipeline { rewriter, room }, Instant::now());
        let sent = match list {
            Some(params) => {
                let ids = self.exchange_ids(record, &call);
                let shows_all = pipeline.rewriter.ids.is_none();
                let lister = TaskLister { http_client: &self.http_client, agent, call: &call, shows_all };
                // Boxed: a rare path must not make every call larger.
                let mut listed = Box::pin(lister.list(&params, &ids, &mut pipeline.room));
                let found = unless_client_gone(http, listed.as_mut()).await?;
                drop(listed);
                pipeline.rewriter.bare = None;
                match found {
                    Ok(response) => respond_whole(http, response, &mut pipeline).await.map(|()| None),
                    Err(abort) => Err(abort),
                }
            }
            None => {
                let method = operation.map_or(AgentMethod::Other, agent_method);
                let request = ForwardRequest { method, task, written, at: None };
                self.send_to_agent(http, &call, UpstreamRequest { agent, request }, &mut pipeline).await
            }
        };
        record.agent_took = Some(since.elapsed());
        self.record_sealed_ids(record, scope, &pipeline.rewriter);
        if let Some(failure) = sent? {
            self.record_error(record, &A2aError::Agent(failure));
        }
        Ok(())
    }

    /// Records the digests of the last ids that the client received.
    fn record_sealed_ids(
        &self,
        record: &mut AccessRecord,
        scope: &AgentScope<'_>,
        rewriter: &ResponseRewriter<'_>,
    ) {
        let Some(ids) = &rewriter.ids else { return };
        for kind in [IdKind::Task, IdKind::Context] {
            self.record_id(record, scope, kind, ids.last_sealed(kind));
        }
    }

    /// Returns the rewriter of the card in the response, if the request is for the extended card.
    fn extended_card_rewriter<'a>(
        &'a self,
        http: &impl ClientConnection,
        record: &AccessRecord,
        call: &'a ProxiedRequest<'_>,
    ) -> Option<CardRewriter<'a>> {
        (call.operation == Some(Operation::ExtendedCard)).then(|| {
            let (caller, url) = (&record.caller, self.settings.public_url.for_client(http));
            let reader = CardReader { caller, url, clients: vec![call.client], has_grpc: record.has_grpc };
            self.card_rewriter(call.scope, &call.resolved, reader)
        })
    }

    /// Returns the webhook rewriter of the caller, if the request is about webhooks and ids are
    /// sealed.
    fn webhook_rewriter<'a>(
        &'a self,
        call: &ProxiedRequest<'a>,
        ids: Option<&ExchangeIds<'_>>,
    ) -> Result<Option<WebhookRewriter<'a>>, A2aError> {
        let Some(ids) = ids.filter(|_| call.has_push()) else { return Ok(None) };
        let webhooks = self.webhooks.rewriter(ids.caller(), &call.scope.agent, call.client);
        webhooks.map(Some).ok_or(A2aError::NoPush)
    }

    /// Sends the request, and forwards the response. Returns a failure that interrupted the
    /// response after it had begun.
    async fn send_to_agent(
        &self,
        http: &mut impl ClientConnection,
        call: &ProxiedRequest<'_>,
        UpstreamRequest { agent, request }: UpstreamRequest,
        pipeline: &mut ResponsePipeline<'_>,
    ) -> Result<Option<AgentFailure>, Abort<A2aError>> {
        if let Some(task) = request.task.as_deref().filter(|_| call.wants_task_first()) {
            let mut looked = Box::pin(look(&self.http_client, &agent, task, &mut pipeline.room));
            // If the task cannot be fetched, the response to the request itself has the reason.
            if let Ok(task) = unless_client_gone(http, looked.as_mut()).await? {
                pipeline.rewriter.begin(task, call.dialect());
            }
        }
        let room = &mut pipeline.room;
        let response =
            self.before_the_end(http, pin!(forward(&self.http_client, agent, request, room))).await??;
        self.forward_response(http, call.scope, response, pipeline).await
    }

    /// Waits for a future of the agent while the client is connected and the process does not end.
    async fn before_the_end<T>(
        &self,
        http: &mut impl ClientConnection,
        waited_for: Pin<&mut impl Future<Output = T>>,
    ) -> Result<T, Abort<A2aError>> {
        tokio::select! {
            biased;
            found = unless_client_gone(http, waited_for) => Ok(found?),
            () = self.drain.answers_due() => Err(Fault::Ending.into()),
        }
    }

    /// Forwards a response. Returns a failure that interrupted it after it had begun.
    async fn forward_response(
        &self,
        http: &mut impl ClientConnection,
        scope: &AgentScope<'_>,
        mut response: ForwardedResponse,
        pipeline: &mut ResponsePipeline<'_>,
    ) -> Result<Option<AgentFailure>, Abort<A2aError>> {
        let context = ForwardContext {
            response_bytes: self.settings.response_bytes,
            event_bytes: self.settings.event_bytes,
            keep_alive: self.settings.keep_alive,
            drain: &self.drain,
            metrics: &scope.agent.metrics,
        };
        let ResponsePipeline { rewriter, room } = pipeline;
        if response.is_stream() {
            return Ok(stream_body::stream(http, &mut response, rewriter, room, context).await?);
        }
        let status = response.status();
        let is_as_received = !rewriter.rewrites_body() && !response.is_converted();
        if status.is_success() && status != StatusCode::NO_CONTENT && is_as_received {
            let id = Some(rewriter.id).filter(|_| rewriter.binding == Binding::JsonRpc);
            return stream_body::value(http, &mut response, id, rewriter.media_type(status), context).await;
        }
        let headers = rewriter.headers(response.headers());
        let body = self.before_the_end(http, pin!(response.whole(room))).await??;
        let status = response.status();
        respond_whole(http, FullResponse { status, headers, body }, pipeline).await.map(|()| None)
    }

    /// Records a digest of the task or the context of a request, for the access log. The first one
    /// counts.
    fn record_id(&self, record: &mut AccessRecord, scope: &AgentScope<'_>, kind: IdKind, id: Option<&str>) {
        let Some(id) = id.filter(|_| record.needs_facts()) else { return };
        let digests = scope.agent.id_digests(self.ids.sealer());
        let (place, digest) = match kind {
            IdKind::Context => (&mut record.context, digests.context),
            IdKind::Task | IdKind::Reference => (&mut record.task, digests.task),
        };
        place.get_or_insert_with(|| digest.of(id.as_bytes()));
    }

    /// Returns the sealed ids of the caller at the agent.
    fn exchange_ids<'a>(&'a self, record: &AccessRecord, call: &ProxiedRequest<'a>) -> ExchangeIds<'a> {
        self.ids.exchange_ids(record.caller.clone(), call.scope.name(), call.dialect())
    }

    /// Authorizes an operation, or a method of an extension.
    fn authorize_call(&self, record: &AccessRecord, call: &ProxiedRequest<'_>) -> Result<(), Fault> {
        let (agent, method) = (call.scope.name(), call.request.method.as_str());
        let scope = Some(&*record.scope);
        let by = Requester { caller: &record.caller, route: call.scope.route, scope };
        match call.operation {
            Some(operation) if !operation.sends_message() => {
                self.authorizer.authorize_own_tasks(by, operation.as_str(), agent)
            }
            Some(operation) => self.authorizer.authorize_agent(by, operation.as_str(), agent),
            None if self.settings.seals_ids => self.authorizer.authorize_unknown_method(by, method, agent),
            None => self.authorizer.authorize_agent(by, method, agent),
        }
    }

    /// Acquires the permits for one more call, or for one more stream without an end.
    async fn acquire_permits(
        &self,
        http: &mut impl ClientConnection,
        record: &AccessRecord,
        call: &ProxiedRequest<'_>,
    ) -> Result<CallPermits, Abort<A2aError>> {
        if self.drain.is_due() {
            return Err(Fault::Ending.into());
        }
        let owner = record.quota_owner.as_ref();
        let used = match call.operation {
            Some(Operation::Subscribe) => self.limits.acquire_stream(owner).await,
            _ => self.limits.acquire_call(owner).await,
        }?;
        let agent = self.limits.acquire_agent_call(call.scope.name(), http.disconnected()).await;
        let agent = agent.map_err(|abort| abort.map(A2aError::Fault))?;
        Ok(CallPermits { _use: used, _agent: agent })
    }
}

/// Responds with a complete response of the agent.
async fn respond_whole(
    http: &mut impl ResponseSink,
    response: FullResponse,
    ResponsePipeline { rewriter, room }: &mut ResponsePipeline<'_>,
) -> Result<(), Abort<A2aError>> {
    let FullResponse { status, headers, body } = response;
    let text = str::from_utf8(&body)
        .map_err(|_| AgentFailure::ProtocolViolation("its answer is not UTF-8".into()))?;
    let (status, text) = rewriter.answer(text, status)?;
    // Dropped, so that the body is in memory once while the client reads it.
    drop(body);
    room.permit.set(text.len()).map_err(AgentFailure::from)?;
    Ok(write(http, status, headers, rewriter.body(status, text)).await?)
}
