//! The A2A face: an agent itself, for A2A clients, behind the gateway's own door.
//!
//! Who may come in is decided as at the MCP face; the agent's credentials, limits and metrics are the same. Between a client and an
//! agent of one version all goes through as it is, but for ids (see `ids`) and cards (see `card`); else it is translated (see
//! `translation`). Not here: the way to the agent (see `agents`).

mod answers;
mod asked;
mod asking;
mod boundary;
mod calling;
mod card;
mod cards;
mod envelope;
mod events;
mod forwarding;
mod handed;
mod hooks;
mod ids;
mod listing;
mod names;
mod operation;
mod passing;
mod places;
mod pushing;
mod refusal;
mod rest;
mod spelling;
mod spoken;
mod translation;
mod words;

use std::future::ready;
use std::sync::Arc;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderName, HeaderValue, Method, StatusCode};
use pingora::http::RequestHeader;
use pingora::proxy::Session;
use serde_json::value::RawValue;

use super::answer::{Gone, Headers, begin, piece};
use super::doors::Answering;
use super::exchange::{Exchange, blamed};
use super::hold::known;
use super::route::Door;
use super::{Inner, intake};
use crate::a2a::Dialect;
use crate::a2a::relay::Operation;
use crate::agents::{Agent, Known};
use crate::config::Require;
use crate::fault::Fault;
use crate::jsonrpc::Id;
use crate::seal::TaskRef;
use crate::telemetry::label::{self, Outcome};

use asked::Asked;
use calling::Call;
use envelope::{Binding, one_event, wants_events};
use refusal::{Refusal, Said, Stop};
use spelling::Spelling;
use spoken::{Hearer, Words, spoken, supposed};
use translation::{Own, is_made};

pub(super) use card::{bindings, served};
pub(super) use forwarding::Forwarding;
pub(super) use handed::{Bounds, Handed};
pub(super) use names::Names;

/// What says the version of a request or an answer.
static VERSION: HeaderName = HeaderName::from_static("a2a-version");
/// What names extensions, in 1.0 and before.
static EXTENSIONS: [HeaderName; 2] =
    [HeaderName::from_static("a2a-extensions"), HeaderName::from_static("x-a2a-extensions")];

/// Where cards are.
const CARDS: [&str; 2] = ["/.well-known/agent-card.json", "/.well-known/agent.json"];

/// Who is told why a JSON-RPC request is refused, and in which words.
struct Addressee {
    id: Option<Id>,
    client: Dialect,
    /// What is asked for, if that is known.
    wanted: Option<Operation>,
}

/// An A2A client before an agent.
struct Visit<'a> {
    door: Door<'a>,
    /// What callers must show here.
    require: &'a Require,
    agent: Arc<Agent>,
}

impl Visit<'_> {
    fn name(&self) -> &str {
        &self.agent.settings.name
    }

    fn said(&self, refusal: &Refusal) -> Said {
        refusal.said(self.name())
    }
}

impl Inner {
    /// Serves an agent to an A2A client.
    pub(super) fn serve_a2a<'a>(
        &'a self,
        http: &'a mut Session,
        exchange: &'a mut Exchange,
        (door, require): (Door<'a>, &'a Require),
        (agent, rest): (&str, &'a str),
    ) -> Answering<'a> {
        let refused = |fault| -> Answering<'a> { Box::pin(ready(Err(Ok(fault)))) };
        let Some(agent) = self.directory.find(agent).cloned() else { return refused(Fault::NoSuchPath) };
        exchange.method = label::Method::A2a;
        exchange.agent = Some(agent.clone());
        let visit = Visit { door, require, agent };
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

    /// Answers a JSON-RPC request.
    async fn serve_rpc(
        &self,
        http: &mut Session,
        exchange: &mut Exchange,
        visit: Visit<'_>,
    ) -> Result<(), Result<Fault, Gone>> {
        let body = match intake::body(http, &self.intake(exchange)).await {
            Ok(body) => body,
            Err(fault) => return Err(Ok(fault)),
        };
        let answered = self.answer_rpc(http, exchange, &visit, &body).await;
        let Err((Stop::Refused(refusal), addressee)) = answered else {
            return answered.map_err(|_| Err(Gone));
        };
        self.note(exchange, &refusal);
        let said = visit.said(&refusal);
        let body = said.rpc(addressee.id.as_ref(), addressee.client);
        let is_event = said.wire.status.is_success() && wants_events(addressee.client, addressee.wanted);
        let body = if is_event { one_event(&body) } else { (JSON, body.into()) };
        // Boxed: what is rare must not make every call larger.
        let told = Box::pin(write(http, said.wire.status, refusal.headers(said.wire.status), body));
        told.await.map_err(Err)
    }

    /// Answers a JSON-RPC request, or says who is to be told why not.
    async fn answer_rpc(
        &self,
        http: &mut Session,
        exchange: &mut Exchange,
        visit: &Visit<'_>,
        body: &Bytes,
    ) -> Result<(), (Stop, Addressee)> {
        let known = known(&visit.agent, exchange.along.as_ref()).map(Known::in_effect);
        let agent = known.as_ref().map_or(Dialect::V1, |known| known.interface.dialect);
        let version = version(http.req_header());
        let asked = asked::read(body, self.settings.limits.depth).map_err(|(fault, id)| {
            (Stop::from(fault), Addressee { id, client: supposed(None, version, agent), wanted: None })
        })?;
        let of_method = || supposed(Some(asked.method.as_str()), version, agent);
        let addressee = |client, wanted| Addressee { id: Some(asked.id.clone()), client, wanted };
        let known = known.map_err(|trouble| (Stop::from(trouble), addressee(of_method(), None)))?;
        let who = (visit, exchange.caller.name());
        let spoken = self
            .spoken(version, who, (&asked, agent))
            .map_err(|refusal| (Stop::from(refusal), addressee(of_method(), None)))?;
        let client = spoken.map_or_else(of_method, |(client, _)| client);
        let operation = spoken.map(|(_, operation)| operation);
        let spelling = Spelling::of(operation.and(asked.params).map(RawValue::get));
        let (binding, body) = (Binding::Rpc, Some(body));
        let call = Call { visit, known, binding, client, operation, asked: &asked, body, spelling };
        let called = self.call_agent(http, exchange, call).await;
        called.map_err(|stop| (stop, addressee(client, operation)))
    }

    /// What a client speaks and what it asks for; `None`: a method of an extension.
    fn spoken(
        &self,
        version: Option<&str>,
        (visit, caller): (&Visit<'_>, &str),
        (asked, agent): (&Asked<'_>, Dialect),
    ) -> Result<Option<(Dialect, Operation)>, Refusal> {
        let params = asked.params.map(RawValue::get);
        let words = Words { method: asked.method.as_str(), version, params };
        let hearer = Hearer { dialect: agent, translates: visit.agent.settings.translate };
        spoken(&words, hearer, |task| match agent {
            Dialect::V0_1 => !self.is_made(caller, task),
            Dialect::V0_3 | Dialect::V1 => Own::new(&self.names, caller, visit.name()).has(task),
        })
    }

    /// Whether a task of an agent of A2A 0.1 has its name from the gateway.
    fn is_made(&self, caller: &str, task: &str) -> bool {
        if self.require.of.is_empty() {
            return is_made(task);
        }
        TaskRef::open(&self.sealer, caller, task).is_some_and(|of| is_made(of.task.as_str()))
    }

    /// Notes how an exchange ends that its agent does not end well.
    fn note(&self, exchange: &mut Exchange, refusal: &Refusal) {
        match refusal {
            Refusal::Fault(fault) => exchange.refused(fault, &self.metrics),
            Refusal::Trouble(trouble) => {
                (exchange.outcome, exchange.fault) = (blamed(trouble), Some(trouble.word()));
            }
            Refusal::Version | Refusal::NoCounterpart(..) | Refusal::NoMethods => {
                (exchange.outcome, exchange.fault) = (Outcome::ClientFault, Some("wrong_version"));
            }
            Refusal::NoPush | Refusal::BadPush(_) => {
                (exchange.outcome, exchange.fault) = (Outcome::ClientFault, Some("push_refused"));
            }
        }
    }
}

/// What a client says of its version.
fn version(request: &RequestHeader) -> Option<&str> {
    request.headers.get(&VERSION)?.to_str().ok()
}

const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// Answers with what is known already.
async fn write(
    http: &mut Session,
    status: StatusCode,
    mut headers: Headers,
    (media_type, body): (HeaderValue, impl Into<Bytes>),
) -> Result<(), Gone> {
    let body = body.into();
    headers.push((CONTENT_TYPE, media_type));
    begin(http, status, headers, Some(body.len())).await?;
    piece(http, body, true).await
}
