//! The MCP face: what a POST is, whose it is, and who answers it.
//!
//! Reads mcp.md §1.5. Not here: the answers of single methods (see `methods`, `call`, `listen`).

use http::StatusCode;
use pingora::proxy::Session;
use serde_json::value::RawValue;

use super::answer::{Gone, Takes, empty, fault, reply};
use super::endpoint_limits::EndpointLimits;
use super::exchange::Exchange;
use super::pump::To;
use super::route::Door;
use super::shares::whose;
use super::{Asker, Inner, intake, methods::Reply};
use crate::fault::Fault;
use crate::jsonrpc::{
    Grammar, Id, Kind, Loose, Message, is_batch, parse, parse_envelope, salvage_id, well_formed,
};
use crate::mcp::classify::{Misfit, Place, era_of_headers, place, stateless_version};
use crate::mcp::headers::{Header, Headers};
use crate::mcp::method::CANCELLED;
use crate::mcp::params::claims_modern;
use crate::mcp::{Era, Method, Params, Version};
use crate::telemetry::label;

/// A refusal with what is needed to write it.
pub(super) struct Refused {
    pub(super) fault: Fault,
    pub(super) era: Era,
    pub(super) id: Option<Id>,
}

/// What a single message turned out to be.
#[expect(clippy::large_enum_variant, reason = "made and taken apart at once, never stored")]
pub(super) enum Placed<'a> {
    /// A request of a known method.
    Request(Asker, Method, Id, Option<Params<'a>>),
    /// What a client says to a request of the gateway: the id of that, and the result.
    Response(Asker, Id, Option<&'a RawValue>),
    /// Nothing that wants an answer.
    Accepted,
}

impl Inner {
    /// Answers a POST.
    pub(super) async fn post(
        &self,
        http: &mut Session,
        exchange: &mut Exchange,
        door: Door<'_>,
    ) -> Result<(), Gone> {
        let limits = &self.settings.limits;
        let body = match intake::body(http, &self.intake(exchange)).await {
            Ok(body) => body,
            Err(fault) => return self.refuse_unread(http, exchange, fault).await,
        };
        let text = match well_formed(&body, limits.depth) {
            Ok(text) => text,
            Err(malformed) => {
                let era = era_of_headers(&Headers::read(&http.req_header().headers));
                let fault = Fault::NotJson(malformed.to_string());
                return self.refuse(http, exchange, Refused { fault, era, id: None }).await;
            }
        };
        if is_batch(text) {
            return self.batch(http, exchange, door, text).await;
        }
        let placed = self.place(&Headers::read(&http.req_header().headers), text, exchange);
        match placed {
            Ok(Placed::Accepted) => empty(http, StatusCode::ACCEPTED, Vec::new()).await,
            Ok(Placed::Response(asker, id, result)) => {
                Box::pin(self.take_response(&asker, &id, result)).await;
                empty(http, StatusCode::ACCEPTED, Vec::new()).await
            }
            Ok(Placed::Request(mut asker, method, id, params)) => {
                asker.limits = match EndpointLimits::read(http.req_header().uri.query()) {
                    Ok(limits) => limits.or(asker.limits),
                    Err(fault) => {
                        let refused = Refused { fault, era: asker.version.era(), id: Some(id) };
                        return self.refuse(http, exchange, refused).await;
                    }
                };
                let request = (method, &id, &params.unwrap_or_default());
                self.request(http, exchange, door, &asker, request).await
            }
            Err(refused) => self.refuse(http, exchange, *refused).await,
        }
    }

    async fn request(
        &self,
        http: &mut Session,
        exchange: &mut Exchange,
        door: Door<'_>,
        asker: &Asker,
        (method, id, params): (Method, &Id, &Params<'_>),
    ) -> Result<(), Gone> {
        let permitted = self.permit(asker, door, method);
        let answered = match method {
            _ if permitted.is_err() => permitted.map_err(Ok),
            // Boxed: the big futures live only while they are needed.
            Method::ToolsCall => {
                let to = (To::Client(http), asker.limits.budget(self.settings.calls.budget));
                Box::pin(self.call(to, door, (asker, exchange), (id, params))).await.map(|_| ())
            }
            Method::TasksGet
            | Method::TasksResult
            | Method::TasksList
            | Method::TasksCancel
            | Method::TasksUpdate => {
                let asking = (asker, &mut *exchange);
                Box::pin(self.task_method(To::Client(http), door, asking, (method, id, params)))
                    .await
                    .map(|_| ())
            }
            Method::Listen => Box::pin(self.listen(http, door, asker, id, params)).await,
            _ => {
                let answered = match method {
                    Method::Initialize => {
                        self.initialize(door, (asker, &whose(&asker.caller, http)), id, params)
                    }
                    _ => self.answer(door, asker, method, id, params).await,
                };
                match answered {
                    Ok(Reply { body, session }) => match exchange.hold(&self.shares, None, body.len()) {
                        Ok(()) => reply(http, asker.takes, body, session.as_deref()).await.map_err(Err),
                        Err(no_room) => Err(Ok(no_room.into())),
                    },
                    Err(fault) => Err(Ok(fault)),
                }
            }
        };
        match answered {
            Ok(()) => Ok(()),
            Err(Err(gone)) => Err(gone),
            Err(Ok(fault)) => {
                let refused = Refused { fault, era: asker.version.era(), id: Some(id.clone()) };
                self.refuse(http, exchange, refused).await
            }
        }
    }

    /// Answers a request with this body, or gives it back for the batch. Its bytes are counted while the client reads them.
    pub(super) async fn answer_with(
        &self,
        to: To<'_>,
        (asker, exchange): (&Asker, &mut Exchange),
        body: Vec<u8>,
    ) -> Result<Option<Vec<u8>>, Result<Fault, Gone>> {
        exchange.hold(&self.shares, None, body.len()).map_err(|no_room| Ok(no_room.into()))?;
        let To::Client(http) = to else { return Ok(Some(body)) };
        reply(http, asker.takes, body, None).await.map_err(Err)?;
        Ok(None)
    }

    /// Refuses a request, in the form of its era.
    pub(super) async fn refuse(
        &self,
        http: &mut Session,
        exchange: &mut Exchange,
        refused: Refused,
    ) -> Result<(), Gone> {
        exchange.refused(&refused.fault, &self.metrics);
        fault(http, &refused.fault, refused.era, refused.id.as_ref()).await
    }

    /// Says what a message is and whose.
    pub(super) fn place<'a>(
        &self,
        headers: &Headers<'_>,
        text: &'a str,
        exchange: &mut Exchange,
    ) -> Result<Placed<'a>, Box<Refused>> {
        let message = match parse::<Params<'a>>(text) {
            Ok(message) => message,
            // Nobody reads the answer to a notification, whatever is wrong with it.
            Err(Grammar::BadParams(_)) if is_notification(text) => return Ok(Placed::Accepted),
            Err(grammar) => return Err(Box::new(misparsed(text, headers, grammar))),
        };
        exchange.method = match message.kind {
            Kind::Response => label::Method::Response,
            Kind::Request | Kind::Notification => label::Method::of(message.method.as_str()),
        };
        let refused = |fault, era| Box::new(Refused { fault, era, id: message.id.clone() });
        let placed = place(&message, headers).map_err(|misfit| refused(unfit(misfit), Era::Modern))?;
        exchange.era = Some(placed.era());
        let asker = match placed {
            Place::Modern(version, capabilities) => {
                let level = message.params.as_ref().and_then(|params| params.meta().level);
                let caller = exchange.caller.clone();
                let (takes, along, whose) = (takes(headers), exchange.along.clone(), exchange.whose.clone());
                let name = message.params.as_ref().and_then(Params::client_name);
                let client = name.and_then(|name| self.clients.mark_of(name));
                let limits = self.clients.limits(client, headers.user_agent.value());
                Asker { caller, version, capabilities, session: None, level, takes, along, limits, whose }
            }
            Place::Legacy => {
                self.legacy(headers, &message, exchange).map_err(|fault| refused(fault, Era::Legacy))?
            }
        };
        exchange.session = asker.session.is_some();
        self.sort(asker, message)
    }

    fn sort<'a>(&self, asker: Asker, message: Message<'a, Params<'a>>) -> Result<Placed<'a>, Box<Refused>> {
        let era = asker.version.era();
        let id = match (message.kind, message.id) {
            (Kind::Request, Some(id)) => id,
            (Kind::Response, _) if asker.session.is_none() => {
                let fault = if era == Era::Legacy { Fault::NoSession } else { unasked() };
                return Err(Box::new(Refused { fault, era, id: None }));
            }
            (Kind::Response, Some(id)) => return Ok(Placed::Response(asker, id, message.result)),
            _ => {
                let session = asker.session.as_ref();
                let cancelled = message.params.filter(|_| message.method.as_str() == CANCELLED);
                if let (Some(session), Some(id)) = (session, cancelled.and_then(|params| params.request_id)) {
                    self.running.cancel(session.key, &id);
                }
                return Ok(Placed::Accepted);
            }
        };
        match Method::named(message.method.as_str(), era) {
            Some(method) => Ok(Placed::Request(asker, method, id, message.params)),
            None => {
                let fault = Fault::UnknownMethod(capped(&message.method.0));
                Err(Box::new(Refused { fault, era, id: Some(id) }))
            }
        }
    }

    /// The client of a legacy message: its session says who it is; without one it is served statelessly.
    fn legacy(
        &self,
        headers: &Headers<'_>,
        message: &Message<'_, Params<'_>>,
        exchange: &Exchange,
    ) -> Result<Asker, Fault> {
        let caller = exchange.caller.clone();
        let (takes, along, whose) = (takes(headers), exchange.along.clone(), exchange.whose.clone());
        let begins = message.kind == Kind::Request && message.method.as_str() == Method::Initialize.as_str();
        let stateless = |version| Asker {
            caller: caller.clone(),
            version,
            capabilities: crate::mcp::Capabilities::default(),
            session: None,
            level: None,
            takes,
            along: along.clone(),
            limits: self.clients.limits(None, headers.user_agent.value()),
            whose: whose.clone(),
        };
        match headers.session {
            // A client that begins anew may still send the session that it lost.
            _ if begins => Ok(stateless(Version::STATELESS)),
            Header::Absent => stateless_version(headers).map(stateless).map_err(unfit),
            Header::Unusable => Err(Fault::SessionNotFound),
            Header::Is(id) => {
                let found = self.sessions.find(&self.sealer, caller.name(), id, super::now());
                let (session, level) = found.ok_or(Fault::SessionNotFound)?;
                let (version, capabilities) = (session.version, session.capabilities);
                let limits = self.clients.limits(session.client, headers.user_agent.value());
                let session = Some(session);
                Ok(Asker { caller, version, capabilities, session, level, takes, along, limits, whose })
            }
        }
    }
}

pub(super) fn takes(headers: &Headers<'_>) -> Takes {
    Takes { json: headers.takes_json, stream: headers.takes_stream }
}

fn unasked() -> Fault {
    Fault::NotJsonRpc("a modern client answers by calling again, not by posting a response".into())
}

fn unfit(misfit: Misfit) -> Fault {
    match misfit {
        Misfit::Envelope(what) => Fault::BadEnvelope(what),
        Misfit::Mismatch(what) => Fault::HeaderMismatch(what),
        Misfit::Unsupported(version) => Fault::UnsupportedVersion(version),
    }
}

fn is_notification(text: &str) -> bool {
    parse_envelope(text).is_ok_and(|message| message.kind == Kind::Notification)
}

/// What is wrong with a body that is no message, or whose params have the wrong shape.
fn misparsed(text: &str, headers: &Headers<'_>, grammar: Grammar) -> Refused {
    let era = era_of_headers(headers);
    let what = match grammar {
        Grammar::NotJson(what) => return Refused { fault: Fault::NotJson(what), era, id: None },
        Grammar::NotMessage(what) => {
            return Refused { fault: Fault::NotJsonRpc(what), era, id: salvage_id(text) };
        }
        Grammar::BadParams(what) => what,
    };
    let Ok(message) = parse_envelope(text) else {
        return Refused { fault: Fault::BadParams(what), era, id: salvage_id(text) };
    };
    let meta = message.params.as_ref().and_then(|Loose { meta }| *meta);
    let claims = meta.is_some_and(claims_modern);
    let era = if claims { Era::Modern } else { era };
    let id = message.id;
    if era == Era::Modern
        && meta.is_none_or(|meta| serde_json::from_str::<crate::mcp::params::Meta<'_>>(meta.get()).is_err())
    {
        return Refused { fault: Fault::BadEnvelope(what), era, id };
    }
    let fault = match Method::named(message.method.as_str(), era) {
        Some(_) => Fault::BadParams(what),
        None => Fault::UnknownMethod(capped(&message.method.0)),
    };
    Refused { fault, era, id }
}

fn capped(text: &str) -> String {
    text.chars().take(100).collect()
}
