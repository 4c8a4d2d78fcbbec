//! The A2A face: an agent itself, for A2A clients, behind the gateway's own door.
//!
//! Who may come in is decided as at the MCP face; the agent's credentials, limits and metrics are the same. What a client says goes on
//! to the agent in the agent's own version, and what the agent says comes back as it is, but for ids (see `ids`) and cards (see
//! `card`). Not here: the way to the agent (see `agents`).

mod answers;
mod asked;
mod boundary;
mod calling;
mod card;
mod cards;
mod events;
mod forwarding;
mod handed;
mod hooks;
mod ids;
mod members;
mod operation;
mod passing;
mod places;
mod pushing;
mod refusal;
mod rest;
mod spelling;

use std::sync::Arc;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method, StatusCode};
use pingora::proxy::Session;

use super::answer::{Gone, Headers, begin, piece};
use super::exchange::{Exchange, blamed};
use super::hold::known;
use super::route::Door;
use super::{Inner, intake};
use crate::a2a::Dialect;
use crate::a2a::relay::{Mismatch, Operation};
use crate::agents::{Agent, Known};
use crate::config::Require;
use crate::fault::Fault;
use crate::telemetry::label::{self, Outcome};

use answers::Binding;
use calling::Call;
use refusal::{Refusal, Said, Stop};

pub(super) use forwarding::Forwarding;
pub(super) use handed::{Bounds, Handed};

/// Where cards are.
const CARDS: [&str; 2] = ["/.well-known/agent-card.json", "/.well-known/agent.json"];

/// An A2A client before an agent.
struct Visit<'a> {
    door: Door<'a>,
    /// What callers must show here.
    require: &'a Require,
    agent: &'a Arc<Agent>,
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
    pub(super) async fn serve_a2a(
        &self,
        http: &mut Session,
        exchange: &mut Exchange,
        (door, require): (Door<'_>, &Require),
        (agent, rest): (&str, &str),
    ) -> Result<(), Result<Fault, Gone>> {
        let agent = self.directory.find(agent).cloned().ok_or(Ok(Fault::NoSuchPath))?;
        exchange.method = label::Method::A2a;
        exchange.agent = Some(agent.clone());
        let visit = Visit { door, require, agent: &agent };
        match (rest, &http.req_header().method) {
            ("" | "/", &Method::POST) => self.serve_rpc(http, exchange, &visit).await.map_err(Err),
            ("" | "/", _) => Err(Ok(Fault::MethodNotAllowed("POST, OPTIONS"))),
            (path, &Method::GET) if CARDS.contains(&path) => {
                self.serve_card(http, exchange, &visit).await.map_err(Err)
            }
            (path, _) if CARDS.contains(&path) => Err(Ok(Fault::MethodNotAllowed("GET, OPTIONS"))),
            (path, _) => self.serve_rest(http, exchange, &visit, path).await.map_err(Err),
        }
    }

    /// Answers a JSON-RPC request.
    async fn serve_rpc(
        &self,
        http: &mut Session,
        exchange: &mut Exchange,
        visit: &Visit<'_>,
    ) -> Result<(), Gone> {
        let limits = &self.settings.limits;
        let body = match intake::body(http, limits.body, limits.body_read).await {
            Ok(body) => body,
            Err(fault) => return self.refuse_unread(http, exchange, fault).await,
        };
        let known = known(visit.agent, exchange.along.as_ref()).map(Known::in_effect);
        let dialect = known.as_ref().map_or(Dialect::V1, |known| known.interface.dialect);
        let (stop, id) = match asked::read(&body, limits.depth) {
            Err((fault, id)) => (Stop::from(fault), id),
            Ok(asked) => {
                let answered = match known {
                    Err(trouble) => Err(trouble.into()),
                    Ok(known) => {
                        let operation = operation_of(http, asked.method.as_str(), dialect);
                        let call = |operation| Call {
                            visit,
                            known,
                            binding: Binding::Rpc,
                            operation,
                            asked: &asked,
                            body: Some(&body),
                        };
                        match operation {
                            Ok(operation) => Box::pin(self.call_agent(http, exchange, call(operation))).await,
                            Err(refusal) => Err(refusal.into()),
                        }
                    }
                };
                match answered {
                    Ok(()) => return Ok(()),
                    Err(stop) => (stop, Some(asked.id)),
                }
            }
        };
        let Stop::Refused(refusal) = stop else { return Err(Gone) };
        self.note(exchange, &refusal);
        let said = visit.said(&refusal);
        let body = said.rpc(id.as_ref(), dialect);
        write(http, said.wire.status, refusal.headers(said.wire.status), (JSON, body)).await
    }

    /// Notes how an exchange ends that its agent does not end well.
    fn note(&self, exchange: &mut Exchange, refusal: &Refusal) {
        match refusal {
            Refusal::Fault(fault) => exchange.refused(fault, &self.metrics),
            Refusal::Trouble(trouble) => {
                (exchange.outcome, exchange.fault) = (blamed(trouble), Some(trouble.word()));
            }
            Refusal::Version => {
                (exchange.outcome, exchange.fault) = (Outcome::ClientFault, Some("wrong_version"));
            }
            Refusal::NoPush | Refusal::BadPush(_) => {
                (exchange.outcome, exchange.fault) = (Outcome::ClientFault, Some("push_refused"));
            }
        }
    }
}

/// What a method asks for in the version of its client, which must be the agent's; `None`: a method of an extension.
fn operation_of(http: &Session, method: &str, dialect: Dialect) -> Result<Option<Operation>, Refusal> {
    let unknown = || Refusal::Fault(Fault::UnknownMethod(method.chars().take(100).collect()));
    let version = http.req_header().headers.get("a2a-version").and_then(|version| version.to_str().ok());
    match Operation::of(method, version) {
        // Some methods are called the same in 0.1 and 0.3.
        Ok(Some((of, operation))) if of == dialect || operation.name(dialect) == Some(method) => {
            Ok(Some(operation))
        }
        Ok(None) => Ok(None),
        Ok(Some(_)) | Err(Mismatch::Method) => Err(unknown()),
        Err(Mismatch::Version) => Err(Refusal::Version),
    }
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
