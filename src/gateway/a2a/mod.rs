//! The A2A server: each agent for A2A clients, under its own route of the gateway.
//!
//! Authentication is the same as for MCP; so are the agent's credentials, limits and metrics.
//! Between a client and an agent of one version requests and responses stay as they are, except for
//! ids (see `ids`) and cards (see `card`); otherwise they are translated (see `translate`). Out of
//! scope: the calls to the agent (see `agents`).

mod boundary;
mod card;
mod cards;
mod client_ids;
mod detect_version;
mod envelope;
mod error;
mod events;
mod id_substitutions;
mod ids;
mod list_tasks;
mod member_names;
mod operation;
mod outgoing_request;
mod proxy;
mod push;
mod push_forward;
mod request;
mod response;
mod rest;
mod shown_tasks;
mod stream_body;
mod translate;
mod webhook_targets;
mod webhook_urls;

use std::future::ready;
use std::sync::Arc;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderName, HeaderValue, Method, StatusCode};
use pingora::http::RequestHeader;
use pingora::proxy::Session;
use serde_json::value::RawValue;

use super::access_record::{AccessRecord, outcome_of};
use super::dispatch::BoxResponse;
use super::lookup::resolved_agent;
use super::response::{ClientGone, Headers, begin, write_chunk};
use super::route::Route;
use super::{Inner, body};
use crate::a2a::translate::Operation;
use crate::a2a::{Binding, Dialect};
use crate::agents::{Agent, ResolvedAgent};
use crate::config::Require;
use crate::fault::Fault;
use crate::jsonrpc::Id;
use crate::seal::TaskRef;
use crate::telemetry::label::{self, Outcome};

use detect_version::{AgentDialect, VersionHints, default_version, detect};
use envelope::{one_event, wants_events};
use error::{A2aError, ErrorBody, Stop};
use member_names::ParamMembers;
use proxy::ProxiedRequest;
use request::JsonRpcRequest;
use translate::{ClientIds, is_made};

pub(super) use card::{bindings, served};
pub(super) use client_ids::ClientIdMap;
pub(super) use push_forward::WebhookForwarder;
pub(super) use shown_tasks::{ShownTasks, ShownTasksLimits};

/// Header with the version of a request or a response.
static VERSION: HeaderName = HeaderName::from_static("a2a-version");
/// Headers that name extensions, in 1.0 and before.
static EXTENSIONS: [HeaderName; 2] =
    [HeaderName::from_static("a2a-extensions"), HeaderName::from_static("x-a2a-extensions")];

/// Paths of cards.
const CARDS: [&str; 2] = ["/.well-known/agent-card.json", "/.well-known/agent.json"];

/// Id, dialect and operation for the error response to a JSON-RPC request.
struct ErrorTarget {
    id: Option<Id>,
    client: Dialect,
    /// Operation of the request, if it is known.
    wanted: Option<Operation>,
}

/// Scope of a request to one agent: its route, its authentication and the agent.
struct AgentScope<'a> {
    door: Route<'a>,
    /// Authentication that callers need here.
    require: &'a Require,
    agent: Arc<Agent>,
}

impl AgentScope<'_> {
    fn name(&self) -> &str {
        &self.agent.settings.name
    }

    fn error_reply(&self, refusal: &A2aError) -> ErrorBody {
        refusal.to_json(self.name())
    }
}

impl Inner {
    /// Serves an agent to an A2A client.
    pub(super) fn serve_a2a<'a>(
        &'a self,
        http: &'a mut Session,
        exchange: &'a mut AccessRecord,
        (door, require): (Route<'a>, &'a Require),
        (agent, rest): (&str, &'a str),
    ) -> BoxResponse<'a> {
        let refused = |fault| -> BoxResponse<'a> { Box::pin(ready(Err(Ok(fault)))) };
        let Some(agent) = self.directory.find(agent).cloned() else { return refused(Fault::NoSuchPath) };
        exchange.method = label::Method::A2a;
        exchange.agent = Some(agent.clone());
        let visit = AgentScope { door, require, agent };
        match (rest, &http.req_header().method) {
            ("" | "/", &Method::POST) => Box::pin(self.serve_rpc(http, exchange, visit)),
            ("" | "/", _) => refused(Fault::MethodNotAllowed("POST, OPTIONS")),
            (path, &Method::GET) if CARDS.contains(&path) => {
                Box::pin(async move { self.serve_card(http, exchange, &visit).await.map_err(Err) })
            }
            (path, _) if CARDS.contains(&path) => refused(Fault::MethodNotAllowed("GET, OPTIONS")),
            (path, _) => {
                Box::pin(async move { self.serve_rest(http, exchange, &visit, path).await.map_err(Err) })
            }
        }
    }

    /// Handles a JSON-RPC request.
    async fn serve_rpc(
        &self,
        http: &mut Session,
        exchange: &mut AccessRecord,
        visit: AgentScope<'_>,
    ) -> Result<(), Result<Fault, ClientGone>> {
        let body = match body::read_json_body(http, &self.intake(exchange)).await {
            Ok(body) => body,
            Err(fault) => return Err(Ok(fault)),
        };
        let answered = self.answer_rpc(http, exchange, &visit, &body).await;
        let Err((Stop::Refused(refusal), addressee)) = answered else {
            return answered.map_err(|_| Err(ClientGone));
        };
        self.record_operation(exchange, &refusal);
        let said = visit.error_reply(&refusal);
        let body = said.rpc(addressee.id.as_ref(), addressee.client);
        let is_event = said.wire.status.is_success() && wants_events(addressee.client, addressee.wanted);
        let body = if is_event { one_event(&body) } else { (JSON, body.into()) };
        // Boxed: a rare case must not make every call larger.
        let told = Box::pin(write(http, said.wire.status, refusal.headers(said.wire.status), body));
        told.await.map_err(Err)
    }

    /// Handles a JSON-RPC request, or returns the error and its target.
    async fn answer_rpc(
        &self,
        http: &mut Session,
        exchange: &mut AccessRecord,
        visit: &AgentScope<'_>,
        body: &Bytes,
    ) -> Result<(), (Stop, ErrorTarget)> {
        let known = resolved_agent(&visit.agent, exchange.along.as_ref()).map(ResolvedAgent::in_effect);
        let agent = known.as_ref().map_or(Dialect::V1, |known| known.interface.dialect);
        let version = version(http.req_header());
        let asked = request::read(body, self.settings.limits.depth).map_err(|(fault, id)| {
            (
                Stop::from(fault),
                ErrorTarget { id, client: default_version(None, version, agent), wanted: None },
            )
        })?;
        let of_method = || default_version(Some(asked.method.as_str()), version, agent);
        let addressee = |client, wanted| ErrorTarget { id: Some(asked.id.clone()), client, wanted };
        let known = known.map_err(|trouble| (Stop::from(trouble), addressee(of_method(), None)))?;
        let who = (visit, exchange.caller.name());
        let spoken = self
            .detect_version(version, who, (&asked, agent))
            .map_err(|refusal| (Stop::from(refusal), addressee(of_method(), None)))?;
        let client = spoken.map_or_else(of_method, |(client, _)| client);
        let operation = spoken.map(|(_, operation)| operation);
        let spelling = ParamMembers::of(operation.and(asked.params).map(RawValue::get));
        let (binding, body) = (Binding::JsonRpc, Some(body));
        let call = ProxiedRequest { visit, known, binding, client, operation, asked: &asked, body, spelling };
        let called = self.proxy(http, exchange, call).await;
        called.map_err(|stop| (stop, addressee(client, operation)))
    }

    /// Returns the client's dialect and the operation; `None` for a method of an extension.
    fn detect_version(
        &self,
        version: Option<&str>,
        (visit, caller): (&AgentScope<'_>, &str),
        (asked, agent): (&JsonRpcRequest<'_>, Dialect),
    ) -> Result<Option<(Dialect, Operation)>, A2aError> {
        let params = asked.params.map(RawValue::get);
        let words = VersionHints { method: asked.method.as_str(), version, params };
        let hearer = AgentDialect { dialect: agent, translates: visit.agent.settings.translate };
        detect(&words, hearer, |task| match agent {
            Dialect::V0_1 => !self.is_generated_here(caller, task),
            Dialect::V0_3 | Dialect::V1 => ClientIds::new(&self.names, caller, visit.name()).has(task),
        })
    }

    /// Returns true if the gateway made the id of a task, at an agent of A2A 0.1, for a client of a
    /// newer version.
    fn is_generated_here(&self, caller: &str, task: &str) -> bool {
        if self.require.of.is_empty() {
            return is_made(task);
        }
        TaskRef::open(&self.sealer, caller, task).is_some_and(|of| is_made(of.task.as_str()))
    }

    /// Records the outcome of an exchange that ends with an error.
    fn record_operation(&self, exchange: &mut AccessRecord, refusal: &A2aError) {
        match refusal {
            A2aError::Fault(fault) => exchange.record_rejection(fault, &self.metrics),
            A2aError::Trouble(trouble) => {
                (exchange.outcome, exchange.fault) = (outcome_of(trouble), Some(trouble.label()));
            }
            A2aError::Version | A2aError::NoCounterpart(..) | A2aError::NoMethods => {
                (exchange.outcome, exchange.fault) = (Outcome::ClientFault, Some("version_not_supported"));
            }
            A2aError::NoPush | A2aError::BadPush(_) => {
                (exchange.outcome, exchange.fault) = (Outcome::ClientFault, Some("push_refused"));
            }
        }
    }
}

/// Returns the version that a client names.
fn version(request: &RequestHeader) -> Option<&str> {
    request.headers.get(&VERSION)?.to_str().ok()
}

const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// Sends a complete response.
async fn write(
    http: &mut Session,
    status: StatusCode,
    mut headers: Headers,
    (media_type, body): (HeaderValue, impl Into<Bytes>),
) -> Result<(), ClientGone> {
    let body = body.into();
    headers.push((CONTENT_TYPE, media_type));
    begin(http, status, headers, Some(body.len())).await?;
    write_chunk(http, body, true).await
}
