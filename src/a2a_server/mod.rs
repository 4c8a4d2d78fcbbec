//! The A2A server: each agent for A2A clients, under its own route of the gateway.
//!
//! Authentication is the same as for MCP; so are the agent's credentials, limits and metrics.
//! Between a client and an agent of one version requests and responses stay as they are, except for
//! ids (see `ids`) and cards (see `card`); otherwise they are translated (see `translate`). Out of
//! scope: the calls to the agent (see `agents`).

mod card;
mod error;
mod grpc;
mod ids;
mod list_tasks;
mod proxy;
mod push;
mod push_forward;
mod request;
mod response;
mod rest;
mod stream_body;
mod translate;

use std::future::ready;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use serde_json::value::RawValue;

use crate::a2a::translate::Operation;
use crate::a2a::{Binding, Dialect};
use crate::access::Authorizer;
use crate::agents::{Agent, Directory, ResolvedAgent};
use crate::calls::resolved_agent;
use crate::config::{Require, Settings};
use crate::discovery::Discovery;
use crate::fault::{Abort, ClientGone, Fault};
use crate::http_edge::{
    AccessRecord, BodyReader, ClientConnection, DrainState, Headers, PublicUrl, ResponseSink, Route,
    outcome_of, whole,
};
use crate::jsonrpc::Id;
use crate::limits::Limits;
use crate::seal::{Sealer, TaskRef};
use crate::shared_state::SharedState;
use crate::telemetry::label::{self, Outcome};
use crate::telemetry::metrics::Metrics;
use crate::transport::HttpClient;

use card::SecuritySchemes;
use error::{A2aError, ErrorBody};
use ids::IdRegistry;
use proxy::ProxiedRequest;
use push::Webhooks;
use push_forward::WebhookForwarder;
use request::JsonRpcRequest;
use request::ParamMembers;
use response::{one_event, wants_events};
use translate::is_generated;
use translate::{AgentDialect, VersionHints, default_version, detect};

pub(crate) use grpc::{GrpcConnection, MessageLimits};
pub(crate) use push_forward::WebhookPush;

/// Header with the version of a request or a response.
static VERSION: HeaderName = HeaderName::from_static("a2a-version");
/// Headers that name extensions, in 1.0 and before.
static EXTENSIONS: [HeaderName; 2] =
    [HeaderName::from_static("a2a-extensions"), HeaderName::from_static("x-a2a-extensions")];

/// Paths of cards.
const CARDS: [&str; 2] = ["/.well-known/agent-card.json", "/.well-known/agent.json"];

const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// Future that answers a request, or returns the fault if the body was not read completely. Boxed,
/// so that no request carries the size of others, and few layers are polled.
type BoxResponse<'a> = Pin<Box<dyn Future<Output = Result<(), Abort>> + Send + 'a>>;

/// The parts of the gateway that the A2A server uses.
pub(crate) struct A2aDependencies {
    pub(crate) authorizer: Arc<Authorizer>,
    pub(crate) limits: Arc<Limits>,
    pub(crate) directory: Arc<Directory>,
    pub(crate) discovery: Arc<Discovery>,
    pub(crate) http_client: HttpClient,
    pub(crate) sealer: Sealer,
    pub(crate) body: Arc<BodyReader>,
    pub(crate) drain: Arc<DrainState>,
    pub(crate) metrics: Arc<Metrics>,
    /// Claims pushes among replicas.
    pub(crate) shared: Option<Arc<SharedState>>,
}

/// Settings of the A2A server.
struct A2aSettings {
    /// True if callers authenticate: their ids are sealed then.
    seals_ids: bool,
    public_url: PublicUrl,
    /// Header with the API key, on which cards depend.
    key_header: Option<HeaderName>,
    /// Authentication that cards describe.
    security: SecuritySchemes,
    /// Most bytes of one response of an agent.
    response_bytes: usize,
    /// Most bytes of one event of an agent.
    event_bytes: usize,
    /// Most levels of nested JSON in a request.
    json_depth: usize,
    /// Interval of keep-alive comments on a stream.
    keep_alive: Duration,
}

/// Serves agents to A2A clients.
pub(crate) struct A2aServer {
    authorizer: Arc<Authorizer>,
    limits: Arc<Limits>,
    directory: Arc<Directory>,
    discovery: Arc<Discovery>,
    http_client: HttpClient,
    body: Arc<BodyReader>,
    drain: Arc<DrainState>,
    metrics: Arc<Metrics>,
    ids: Arc<IdRegistry>,
    webhooks: Webhooks,
    forwarder: WebhookForwarder,
    settings: A2aSettings,
}

/// Request of an authenticated caller to an agent.
#[derive(Clone, Copy)]
pub(crate) struct A2aRequest<'a> {
    pub(crate) route: Route<'a>,
    /// Authentication that callers need here.
    pub(crate) require: &'a Require,
    /// Name of the agent.
    pub(crate) agent: &'a str,
    /// Path below that of the agent.
    pub(crate) path: &'a str,
}

/// Scope of a request to one agent: its route, its authentication and the agent.
struct AgentScope<'a> {
    route: Route<'a>,
    /// Authentication that callers need here.
    require: &'a Require,
    agent: Arc<Agent>,
}

impl AgentScope<'_> {
    fn name(&self) -> &str {
        &self.agent.settings.name
    }

    fn error_body(&self, error: &A2aError) -> ErrorBody {
        error.to_json(self.name())
    }
}

/// Id, dialect and operation for the error response to a JSON-RPC request.
struct ErrorTarget {
    id: Option<Id>,
    client: Dialect,
    /// Operation of the request, if it is known.
    operation: Option<Operation>,
}

/// The reason for which a JSON-RPC request has no response, and the target of the error.
struct RpcAbort {
    reason: Abort<A2aError>,
    target: ErrorTarget,
}

/// Body of a response, with its media type.
struct TypedBody {
    media_type: HeaderValue,
    bytes: Bytes,
}

impl TypedBody {
    fn json(bytes: impl Into<Bytes>) -> Self {
        Self { media_type: JSON, bytes: bytes.into() }
    }
}

impl A2aServer {
    /// Creates the server, with the ids that the server `before` knows.
    pub(crate) fn new(settings: &Settings, parts: A2aDependencies, before: Option<&Self>) -> Self {
        let new = || Arc::new(IdRegistry::new(settings, parts.sealer.clone()));
        let ids = before.map_or_else(new, |before| before.ids.clone());
        let forwards = before.map(|before| &before.forwarder);
        Self {
            forwarder: WebhookForwarder::new(settings, ids.clone(), &parts, forwards),
            webhooks: Webhooks::new(settings, parts.sealer),
            settings: A2aSettings::new(settings),
            ids,
            authorizer: parts.authorizer,
            limits: parts.limits,
            directory: parts.directory,
            discovery: parts.discovery,
            http_client: parts.http_client,
            body: parts.body,
            drain: parts.drain,
            metrics: parts.metrics,
        }
    }

    /// Serves an agent to an A2A client.
    ///
    /// # Errors
    ///
    /// [`Abort`] with the reason for which there is no response; the body of the request was not
    /// read completely then.
    pub(crate) fn serve<'a>(
        &'a self,
        http: &'a mut impl ClientConnection,
        record: &'a mut AccessRecord,
        request: A2aRequest<'a>,
    ) -> BoxResponse<'a> {
        let A2aRequest { route, require, agent, path } = request;
        let rejected = |fault: Fault| -> BoxResponse<'a> { Box::pin(ready(Err(fault.into()))) };
        let Some(agent) = self.directory.find(agent).cloned() else { return rejected(Fault::NoSuchPath) };
        record.method = label::Method::A2a;
        record.agent = Some(agent.clone());
        record.scope.begin_trace(None);
        let scope = AgentScope { route, require, agent };
        match (path, &http.head().method) {
            ("" | "/", &Method::POST) => Box::pin(self.serve_rpc(http, record, scope)),
            ("" | "/", _) => rejected(Fault::MethodNotAllowed("POST, OPTIONS")),
            (path, &Method::GET) if CARDS.contains(&path) => {
                Box::pin(async move { Ok(self.serve_card(http, record, &scope).await?) })
            }
            (path, _) if CARDS.contains(&path) => rejected(Fault::MethodNotAllowed("GET, OPTIONS")),
            (path, _) => Box::pin(async move { Ok(self.serve_rest(http, record, &scope, path).await?) }),
        }
    }

    /// Accepts a push of an agent that is meant for a client, and forwards it.
    ///
    /// # Errors
    ///
    /// [`Abort`] with the reason for which the push is rejected; its body was not read then.
    pub(crate) fn forward_push<'a>(
        &'a self,
        http: &'a mut impl ClientConnection,
        record: &'a mut AccessRecord,
        push: WebhookPush<'a>,
    ) -> impl Future<Output = Result<(), Abort>> + Send + 'a {
        self.forwarder.forward_push(http, record, push)
    }

    /// Removes ids that have not been used for too long.
    pub(crate) fn sweep(&self, now: Instant) {
        self.ids.sweep(now);
    }

    /// Handles a JSON-RPC request.
    async fn serve_rpc(
        &self,
        http: &mut impl ClientConnection,
        record: &mut AccessRecord,
        scope: AgentScope<'_>,
    ) -> Result<(), Abort> {
        let body = self.body.read_json(http, record.quota_owner.as_ref()).await?;
        let handled = self.handle_rpc(http, record, &scope, &body).await;
        let Err(RpcAbort { reason, target }) = handled else { return Ok(()) };
        let Abort::Rejected(error) = reason else { return Err(Abort::ClientGone) };
        self.record_error(record, &error);
        let written = scope.error_body(&error);
        let status = written.wire.status;
        let body = written.rpc(target.id.as_ref(), target.client);
        let is_event = status.is_success() && wants_events(target.client, target.operation);
        let body = if is_event { one_event(&body) } else { TypedBody::json(body) };
        // Boxed: a rare case must not make every call larger.
        Ok(Box::pin(write(http, status, error.headers(status), body)).await?)
    }

    /// Handles a JSON-RPC request, or returns the error and its target.
    async fn handle_rpc(
        &self,
        http: &mut impl ClientConnection,
        record: &mut AccessRecord,
        scope: &AgentScope<'_>,
        body: &Bytes,
    ) -> Result<(), RpcAbort> {
        let resolved = resolved_agent(&scope.agent, record.forwarded.as_ref()).map(ResolvedAgent::in_effect);
        let agent = resolved.as_ref().map_or(Dialect::V1, |resolved| resolved.interface.dialect);
        let version = version(&http.head().headers);
        let request = request::read(body, self.settings.json_depth).map_err(|unreadable| RpcAbort {
            reason: unreadable.fault.into(),
            target: ErrorTarget {
                id: unreadable.id,
                client: default_version(None, version, agent),
                operation: None,
            },
        })?;
        let by_method = || default_version(Some(request.method.as_str()), version, agent);
        let target = |client, operation| ErrorTarget { id: Some(request.id.clone()), client, operation };
        let resolved = resolved
            .map_err(|failure| RpcAbort { reason: failure.into(), target: target(by_method(), None) })?;
        let detected = self
            .detect_version(scope, record.caller.name(), agent, &hints(&request, version))
            .map_err(|error| RpcAbort { reason: error.into(), target: target(by_method(), None) })?;
        let client = detected.map_or_else(by_method, |(client, _)| client);
        let operation = detected.map(|(_, operation)| operation);
        let members = ParamMembers::of(operation.and(request.params).map(RawValue::get));
        let call = ProxiedRequest {
            scope,
            resolved,
            binding: Binding::JsonRpc,
            is_converted: false,
            client,
            operation,
            request: &request,
            body: Some(body),
            members,
        };
        let called = self.proxy(http, record, call).await;
        called.map_err(|reason| RpcAbort { reason, target: target(client, operation) })
    }

    /// Returns the client's dialect and the operation; `None` for a method of an extension.
    fn detect_version(
        &self,
        scope: &AgentScope<'_>,
        caller: &str,
        agent: Dialect,
        hints: &VersionHints<'_>,
    ) -> Result<Option<(Dialect, Operation)>, A2aError> {
        let agent_dialect = AgentDialect { dialect: agent, translates: scope.agent.settings.translate };
        detect(hints, agent_dialect, |task| match agent {
            Dialect::V0_1 => !self.is_generated_here(caller, task),
            Dialect::V0_3 | Dialect::V1 => self.ids.client_ids(caller, scope.name()).has(task),
        })
    }

    /// Returns true if the gateway made the id of a task, at an agent of A2A 0.1, for a client of a
    /// newer version.
    fn is_generated_here(&self, caller: &str, task: &str) -> bool {
        if !self.settings.seals_ids {
            return is_generated(task);
        }
        TaskRef::open(self.ids.sealer(), caller, task).is_some_and(|of| is_generated(of.task.as_str()))
    }

    /// Records the outcome of a request that ends with an error.
    fn record_error(&self, record: &mut AccessRecord, error: &A2aError) {
        match error {
            A2aError::Fault(fault) => record.record_rejection(fault, &self.metrics),
            A2aError::Agent(failure) => {
                (record.outcome, record.fault) = (outcome_of(failure), Some(failure.label()));
            }
            A2aError::Version | A2aError::NoCounterpart(..) | A2aError::NoMethods => {
                (record.outcome, record.fault) = (Outcome::ClientFault, Some("version_not_supported"));
            }
            A2aError::NoPush | A2aError::BadPush(_) => {
                (record.outcome, record.fault) = (Outcome::ClientFault, Some("push_refused"));
            }
        }
    }
}

impl A2aSettings {
    fn new(settings: &Settings) -> Self {
        Self {
            seals_ids: !settings.auth.mechanisms().is_empty(),
            public_url: PublicUrl::new(settings),
            key_header: settings.auth.api_keys.as_ref().map(|keys| keys.header.clone()),
            security: SecuritySchemes::new(&settings.auth),
            response_bytes: settings.limits.response,
            event_bytes: settings.limits.event,
            json_depth: settings.limits.depth,
            keep_alive: settings.calls.keep_alive,
        }
    }
}

/// Returns the version that a client names.
fn version(headers: &HeaderMap) -> Option<&str> {
    headers.get(&VERSION)?.to_str().ok()
}

/// Returns the parts of a request that show its version.
fn hints<'a>(request: &'a JsonRpcRequest<'_>, version: Option<&'a str>) -> VersionHints<'a> {
    let params = request.params.map(RawValue::get);
    VersionHints { method: request.method.as_str(), version, params }
}

/// Sends a complete response.
async fn write(
    http: &mut impl ResponseSink,
    status: StatusCode,
    mut headers: Headers,
    body: TypedBody,
) -> Result<(), ClientGone> {
    headers.push((CONTENT_TYPE, body.media_type));
    whole(http, status, headers, body.bytes).await
}
