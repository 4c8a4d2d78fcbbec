//! Proxied request of an A2A client: authorization, the request to the agent, and its
//! response.
//!
//! See also `request` and `rest` (parsing), `response` (content) and `stream_body` (bytes).

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use http::{HeaderMap, StatusCode, Uri};
use pingora::proxy::Session;
use tokio::sync::OwnedSemaphorePermit;

use super::error::{A2aError, Stop};
use super::ids::ExchangeIds;
use super::list_tasks::{FullResponse, TaskLister};
use super::member_names::ParamMembers;
use super::operation::{agent_method, label};
use super::outgoing_request::OutgoingRequest;
use super::push::WebhookRewriter;
use super::request::JsonRpcRequest;
use super::response::ResponseRewriter;
use super::stream_body::{self, BodyRewriter as _, ForwardLimits, unless_client_gone};
use super::translate::ClientIds;
use super::webhook_targets::is_allowed;
use super::webhook_urls::webhook_urls;
use super::{AgentScope, EXTENSIONS, write};
use crate::a2a::translate::Operation;
use crate::a2a::{Binding, Dialect};
use crate::agents::{ForwardRequest, ForwardedResponse, ResolvedAgent, forward, look};
use crate::config::AgentMethod;
use crate::fault::{AgentFailure, Fault};
use crate::gateway::Inner;
use crate::gateway::access_record::AccessRecord;
use crate::gateway::limits::{QuotaKind, QuotaPermit};
use crate::gateway::queue::CallPermit;
use crate::gateway::response::wait_for_disconnect;
use crate::quota::AnswerRoom;
use crate::telemetry::label::Method as Label;

/// Most extensions of a request that are read and forwarded to an agent.
const MOST_EXTENSIONS: usize = 32;

/// Request for an agent.
pub(super) struct ProxiedRequest<'a> {
    pub(super) visit: &'a AgentScope<'a>,
    pub(super) known: Arc<ResolvedAgent>,
    pub(super) binding: Binding,
    /// Dialect of the client.
    pub(super) client: Dialect,
    /// `None` for a method of an extension.
    pub(super) operation: Option<Operation>,
    pub(super) asked: &'a JsonRpcRequest<'a>,
    /// Body of the request, if the binding is JSON-RPC.
    pub(super) body: Option<&'a Bytes>,
    /// Facts about the member names in the params; empty for a method of an extension.
    pub(super) spelling: ParamMembers,
}

/// Permits of a call while it lasts.
struct CallPermits {
    _caller: Option<QuotaPermit>,
    _all: OwnedSemaphorePermit,
    _agent: Option<CallPermit>,
}

impl ProxiedRequest<'_> {
    /// Returns the dialect of the agent.
    pub(super) fn dialect(&self) -> Dialect {
        self.known.interface.dialect
    }

    /// Returns true if the gateway must begin the stream with the task, as A2A 1.0 requires,
    /// because the agent does not.
    fn wants_task_first(&self) -> bool {
        let is_older = self.client == Dialect::V1 && self.dialect() != Dialect::V1;
        is_older && self.operation == Some(Operation::Subscribe)
    }
}

/// Returns true if the response to an operation is a card, which the gateway rewrites.
fn shows_card(operation: Option<Operation>) -> bool {
    operation == Some(Operation::ExtendedCard)
}

impl Inner {
    /// Sends a request to the agent, and forwards its response.
    pub(super) async fn proxy(
        &self,
        http: &mut Session,
        exchange: &mut AccessRecord,
        call: ProxiedRequest<'_>,
    ) -> Result<(), Stop> {
        let ProxiedRequest { visit, operation, asked, .. } = call;
        exchange.method = operation.map_or(Label::A2a, label);
        self.permit_call(exchange, &call)?;
        let _room = self.acquire_permits(http, exchange, &call).await?;
        let mut ids = self.ids(exchange, &call);
        let mut pushing = self.webhooks(&call, ids.as_ref())?;
        let names_tasks = call.client == Dialect::V0_1 && call.dialect() != Dialect::V0_1;
        let own = names_tasks.then(|| ClientIds::new(&self.names, exchange.caller.name(), visit.name()));
        let OutgoingRequest { written, task, translation, is_bare, list } =
            call.build(ids.as_mut(), own, pushing.as_mut())?;
        let hooks = check_webhook_targets(&call)?;
        if !hooks.is_empty() {
            unless_client_gone(http, Box::pin(self.check_hooks(visit.name(), hooks)).as_mut()).await??;
        }
        let method = operation.map_or(AgentMethod::Other, agent_method);
        let known = activated_extensions(&call, &http.req_header().headers);
        let mut answers = ResponseRewriter {
            agent: visit.name(),
            client: call.client,
            is_bare,
            id: &asked.id,
            operation,
            binding: call.binding,
            ids,
            translation,
            pushing,
            first: Vec::new(),
            front: shows_card(operation)
                .then(|| self.card_rewriter(http, exchange, visit, (&call.known, vec![call.client]))),
        };
        let mut room = self.shares.answer_room(exchange.whose.as_ref());
        let since = Instant::now();
        let broken = match list {
            Some(params) => {
                let ids = self.ids_of(exchange, &call);
                let lister =
                    TaskLister { client: &self.client, known, call: &call, shows_all: answers.ids.is_none() };
                // Boxed: a rare path must not make every call larger.
                let mut listed = Box::pin(lister.list(&params, &ids, &mut room));
                let whole = unless_client_gone(http, listed.as_mut()).await?;
                drop(listed);
                answers.is_bare = false;
                match whole {
                    Ok(whole) => respond_error(http, (whole, &mut room), &mut answers).await,
                    Err(stop) => Err(stop),
                }
            }
            None => {
                let asking = ForwardRequest { method, task, written, at: None };
                self.send_to_agent(http, &call, (known, asking, &mut room), &mut answers).await
            }
        };
        exchange.agent_took = Some(since.elapsed());
        if let Some(trouble) = broken? {
            self.record_operation(exchange, &A2aError::Trouble(trouble));
        }
        Ok(())
    }

    /// Returns the webhook rewriter of the caller, if the request is about webhooks and ids are
    /// sealed.
    fn webhooks<'a>(
        &'a self,
        call: &ProxiedRequest<'a>,
        ids: Option<&ExchangeIds<'_>>,
    ) -> Result<Option<WebhookRewriter<'a>>, A2aError> {
        let Some(ids) = ids.filter(|_| call.has_push()) else { return Ok(None) };
        let webhooks = self.pushing(ids.caller(), &call.visit.agent, call.client);
        webhooks.map(Some).ok_or(A2aError::NoPush)
    }

    /// Sends the request, and forwards the response. Returns a failure that interrupted the
    /// response after it had begun.
    async fn send_to_agent(
        &self,
        http: &mut Session,
        call: &ProxiedRequest<'_>,
        (known, asking, room): (Arc<ResolvedAgent>, ForwardRequest, &mut AnswerRoom),
        answers: &mut ResponseRewriter<'_>,
    ) -> Result<Option<AgentFailure>, Stop> {
        if let Some(task) = asking.task.as_deref().filter(|_| call.wants_task_first()) {
            let mut looked = Box::pin(look(&self.client, &known, task, room));
            // If the task cannot be fetched, the response to the request itself has the reason.
            if let Ok(task) = unless_client_gone(http, looked.as_mut()).await? {
                answers.begin(task, call.dialect());
            }
        }
        let passed = self.before_the_end(http, pin!(forward(&self.client, known, asking, room))).await??;
        self.forward_response(http, call.visit, (passed, room), answers).await
    }

    /// Waits for a future of the agent while the client is connected and the process does not end.
    async fn before_the_end<T>(
        &self,
        http: &mut Session,
        waited_for: Pin<&mut impl Future<Output = T>>,
    ) -> Result<T, Stop> {
        tokio::select! {
            biased;
            found = unless_client_gone(http, waited_for) => Ok(found?),
            () = self.closing.answers_due() => Err(Fault::Ending.into()),
        }
    }

    /// Forwards a response. Returns a failure that interrupted it after it had begun.
    async fn forward_response(
        &self,
        http: &mut Session,
        visit: &AgentScope<'_>,
        (mut passed, room): (ForwardedResponse, &mut AnswerRoom),
        answers: &mut ResponseRewriter<'_>,
    ) -> Result<Option<AgentFailure>, Stop> {
        let limits = &self.settings.limits;
        let keep_alive = self.settings.calls.keep_alive;
        let closing = &self.closing;
        let bounds = ForwardLimits { response: limits.response, event: limits.event, keep_alive, closing };
        if passed.is_stream() {
            let metrics = &visit.agent.metrics;
            return Ok(stream_body::stream(http, &mut passed, (bounds, room), answers, metrics).await?);
        }
        let status = passed.status();
        if status.is_success() && status != StatusCode::NO_CONTENT && !answers.rewrites_body() {
            let id = Some(answers.id).filter(|_| answers.binding == Binding::JsonRpc);
            return stream_body::value(http, &mut passed, (bounds, id), answers.media_type(status)).await;
        }
        let headers = answers.headers(passed.headers());
        let body = self.before_the_end(http, pin!(passed.whole(room))).await??;
        respond_error(http, (FullResponse { status, headers, body }, room), answers).await
    }

    /// Rejects a webhook URL that only hosts inside the operator's network can reach, unless
    /// `outbound.webhooks` allows it.
    async fn check_hooks(&self, agent: &str, all: Vec<String>) -> Result<(), A2aError> {
        for url in all {
            let uri: Uri = url.parse().map_err(|_| A2aError::BadPush("it is no URL".to_owned()))?;
            let Err(why) = is_allowed(&uri, &self.settings.outbound.webhooks).await else { continue };
            tracing::info!(agent, error = why, "rejected webhook url");
            let https = if self.settings.outbound.webhooks.http { "" } else { "https " };
            return Err(A2aError::BadPush(format!("it is no {https}address that agents may push to")));
        }
        Ok(())
    }

    /// Returns the ids of the caller; `None` without authentication, where ids are not sealed.
    fn ids<'a>(&'a self, exchange: &AccessRecord, call: &ProxiedRequest<'a>) -> Option<ExchangeIds<'a>> {
        (!self.require.of.is_empty()).then(|| self.ids_of(exchange, call))
    }

    fn ids_of<'a>(&'a self, exchange: &AccessRecord, call: &ProxiedRequest<'a>) -> ExchangeIds<'a> {
        let agent = (call.visit.name(), call.dialect());
        ExchangeIds::new(&self.sealer, &self.handed, exchange.caller.clone(), agent)
    }

    /// Authorizes an operation, or a method of an extension.
    fn permit_call(&self, exchange: &AccessRecord, call: &ProxiedRequest<'_>) -> Result<(), Fault> {
        let (visit, method) = (call.visit, call.asked.method.as_str());
        let who = (&exchange.caller, visit.door);
        match call.operation {
            Some(operation) if !operation.sends_message() => {
                self.authorize_builtin_tool(who, (operation.as_str(), visit.name()))
            }
            Some(operation) => self.authorize_agent(who, (operation.as_str(), visit.name())),
            None if !self.require.of.is_empty() => self.authorize_unknown(who, (method, visit.name())),
            None => self.authorize_agent(who, (method, visit.name())),
        }
    }

    /// Acquires the permits for one more call, or for one more stream without an end.
    async fn acquire_permits(
        &self,
        http: &mut Session,
        exchange: &AccessRecord,
        call: &ProxiedRequest<'_>,
    ) -> Result<CallPermits, Stop> {
        if self.closing.is_due() {
            return Err(Fault::Ending.into());
        }
        let (what, all, busy) = match call.operation {
            Some(Operation::Subscribe) => (QuotaKind::Stream, &self.streams, "too many open streams"),
            _ => (QuotaKind::Call, &self.calls, "too many calls are under way"),
        };
        let caller = exchange.whose.as_ref().map(|whose| self.shares.acquire(whose, what)).transpose()?;
        let all = all.clone().try_acquire_owned().map_err(|_| Fault::Busy(busy))?;
        let agent = self.shares.acquire_agent_call(call.visit.name(), wait_for_disconnect(http)).await;
        let agent = agent.map_err(|why| why.map_or_else(Stop::from, Stop::from))?;
        Ok(CallPermits { _caller: caller, _all: all, _agent: agent })
    }
}

/// Returns the webhook URLs of a request.
fn check_webhook_targets(call: &ProxiedRequest<'_>) -> Result<Vec<String>, A2aError> {
    match call.operation.zip(call.asked.params).filter(|_| call.spelling.pushes) {
        Some((operation, params)) if operation.sends_message() || operation == Operation::SetPush => {
            webhook_urls(params.get()).ok_or_else(|| A2aError::BadPush("it cannot be read".to_owned()))
        }
        _ => Ok(Vec::new()),
    }
}

/// Returns the agent with the extensions that the client names in addition to those of the
/// operator.
fn activated_extensions(call: &ProxiedRequest<'_>, headers: &HeaderMap) -> Arc<ResolvedAgent> {
    // The usual case.
    if !headers.keys().any(|name| EXTENSIONS.contains(name)) {
        return call.known.clone();
    }
    let named = EXTENSIONS.iter().flat_map(|name| headers.get_all(name));
    let named = named.filter_map(|value| value.to_str().ok()).flat_map(|list| list.split(','));
    let own = &call.visit.agent.settings.extensions;
    let mut all: Vec<String> = own.clone();
    for uri in named.map(str::trim).filter(|uri| !uri.is_empty()).take(MOST_EXTENSIONS) {
        if !all.iter().any(|known| known == uri) {
            all.push(uri.to_owned());
        }
    }
    if all.len() == own.len() { call.known.clone() } else { call.known.clone().naming(&all) }
}

/// Responds with a complete response of the agent.
async fn respond_error(
    http: &mut Session,
    (whole, room): (FullResponse, &mut AnswerRoom),
    answers: &mut ResponseRewriter<'_>,
) -> Result<Option<AgentFailure>, Stop> {
    let FullResponse { status, headers, body } = whole;
    let text = str::from_utf8(&body)
        .map_err(|_| AgentFailure::ProtocolViolation("its answer is not UTF-8".into()))?;
    let (status, text) = answers.answer(text, status)?;
    // Dropped, so that the body is in memory once while the client reads it.
    drop(body);
    room.permit.set(text.len()).map_err(AgentFailure::from)?;
    write(http, status, headers, answers.body(status, text)).await?;
    Ok(None)
}
