//! POST handler of the MCP server: classifies a message and routes it.
//!
//! Reads docs/spec/mcp.md §1.5. See also `methods`, `start` and `subscriptions`.

use http::StatusCode;
use pingora::proxy::Session;
use serde_json::value::RawValue;

use super::access_record::AccessRecord;
use super::endpoint_limits::EndpointLimits;
use super::limits::quota_key;
use super::responder::ResponseTarget;
use super::response::{Accepts, ClientGone, empty, fault, reply};
use super::route::Route;
use super::{ClientContext, Inner, body, methods::MethodReply};
use crate::fault::Fault;
use crate::jsonrpc::{
    Id, Message, MessageKind, ParseError, RawParams, is_batch, parse, parse_envelope, recover_id, well_formed,
};
use crate::mcp::classify::{ClassifyError, MessageEra, classify, era_of_headers, stateless_version};
use crate::mcp::headers::{McpHeaderValue, McpHeaders};
use crate::mcp::params::claims_modern;
use crate::mcp::version::CANCELLED;
use crate::mcp::{ClientParams, Era, Method, Version};
use crate::telemetry::label;

/// Rejection with the data to encode it.
pub(super) struct ErrorReply {
    pub(super) fault: Fault,
    pub(super) era: Era,
    pub(super) id: Option<Id>,
}

/// Kind of a single message.
#[expect(clippy::large_enum_variant, reason = "made and taken apart at once, never stored")]
pub(super) enum ClassifiedMessage<'a> {
    /// A request of a known method.
    Request(ClientContext, Method, Id, Option<ClientParams<'a>>),
    /// The client's response to a request of the gateway: its id, and the result.
    Response(ClientContext, Id, Option<&'a RawValue>),
    /// A message that gets no response.
    Accepted,
}

impl Inner {
    /// Handles a POST.
    pub(super) async fn post(
        &self,
        http: &mut Session,
        exchange: &mut AccessRecord,
        door: Route<'_>,
    ) -> Result<(), ClientGone> {
        let limits = &self.settings.limits;
        let body = match body::read_json_body(http, &self.intake(exchange)).await {
            Ok(body) => body,
            Err(fault) => return self.reject_without_reading_body(http, exchange, fault).await,
        };
        let text = match well_formed(&body, limits.depth) {
            Ok(text) => text,
            Err(malformed) => {
                let era = era_of_headers(&McpHeaders::read(&http.req_header().headers));
                let fault = Fault::ParseError(malformed.to_string());
                return self.refuse(http, exchange, ErrorReply { fault, era, id: None }).await;
            }
        };
        if is_batch(text) {
            return self.batch(http, exchange, door, text).await;
        }
        let placed = self.classify(&McpHeaders::read(&http.req_header().headers), text, exchange);
        match placed {
            Ok(ClassifiedMessage::Accepted) => empty(http, StatusCode::ACCEPTED, Vec::new()).await,
            Ok(ClassifiedMessage::Response(asker, id, result)) => {
                Box::pin(self.accept_elicitation_response(&asker, &id, result)).await;
                empty(http, StatusCode::ACCEPTED, Vec::new()).await
            }
            Ok(ClassifiedMessage::Request(mut asker, method, id, params)) => {
                asker.limits = match EndpointLimits::read(http.req_header().uri.query()) {
                    Ok(limits) => limits.or(asker.limits),
                    Err(fault) => {
                        let refused = ErrorReply { fault, era: asker.version.era(), id: Some(id) };
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
        exchange: &mut AccessRecord,
        door: Route<'_>,
        asker: &ClientContext,
        (method, id, params): (Method, &Id, &ClientParams<'_>),
    ) -> Result<(), ClientGone> {
        let permitted = self.authorize_method(asker, door, method);
        let answered = match method {
            _ if permitted.is_err() => permitted.map_err(Ok),
            // Boxed: the large futures live only while they are needed.
            Method::ToolsCall => {
                let to = (ResponseTarget::Client(http), asker.limits.budget(self.settings.calls.budget));
                Box::pin(self.call(to, door, (asker, exchange), (id, params))).await.map(|_| ())
            }
            Method::TasksGet
            | Method::TasksResult
            | Method::TasksList
            | Method::TasksCancel
            | Method::TasksUpdate => {
                let asking = (asker, &mut *exchange);
                Box::pin(self.task_method(ResponseTarget::Client(http), door, asking, (method, id, params)))
                    .await
                    .map(|_| ())
            }
            Method::Listen => Box::pin(self.listen(http, door, asker, id, params)).await,
            _ => {
                let answered = match method {
                    Method::Initialize => {
                        self.initialize(door, (asker, &quota_key(&asker.caller, http)), id, params)
                    }
                    _ => self.handle(door, asker, method, id, params).await,
                };
                match answered {
                    Ok(MethodReply { body, session }) => {
                        match exchange.hold(&self.shares, None, body.len()) {
                            Ok(()) => reply(http, asker.takes, body, session.as_deref()).await.map_err(Err),
                            Err(no_room) => Err(Ok(no_room.into())),
                        }
                    }
                    Err(fault) => Err(Ok(fault)),
                }
            }
        };
        match answered {
            Ok(()) => Ok(()),
            Err(Err(gone)) => Err(gone),
            Err(Ok(fault)) => {
                let refused = ErrorReply { fault, era: asker.version.era(), id: Some(id.clone()) };
                self.refuse(http, exchange, refused).await
            }
        }
    }

    /// Responds with this body, or returns the body for the batch. Its bytes are counted while the
    /// client reads them.
    pub(super) async fn answer_with(
        &self,
        to: ResponseTarget<'_>,
        (asker, exchange): (&ClientContext, &mut AccessRecord),
        body: Vec<u8>,
    ) -> Result<Option<Vec<u8>>, Result<Fault, ClientGone>> {
        exchange.hold(&self.shares, None, body.len()).map_err(|no_room| Ok(no_room.into()))?;
        let ResponseTarget::Client(http) = to else { return Ok(Some(body)) };
        reply(http, asker.takes, body, None).await.map_err(Err)?;
        Ok(None)
    }

    /// Rejects a request, in the form of its era.
    pub(super) async fn refuse(
        &self,
        http: &mut Session,
        exchange: &mut AccessRecord,
        refused: ErrorReply,
    ) -> Result<(), ClientGone> {
        exchange.record_rejection(&refused.fault, &self.metrics);
        fault(http, &refused.fault, refused.era, refused.id.as_ref()).await
    }

    /// Classifies a message and determines its client context.
    pub(super) fn classify<'a>(
        &self,
        headers: &McpHeaders<'_>,
        text: &'a str,
        exchange: &mut AccessRecord,
    ) -> Result<ClassifiedMessage<'a>, Box<ErrorReply>> {
        let message = match parse::<ClientParams<'a>>(text) {
            Ok(message) => message,
            // A notification gets no response, even if its params are invalid.
            Err(ParseError::BadParams(_)) if is_notification(text) => return Ok(ClassifiedMessage::Accepted),
            Err(grammar) => return Err(Box::new(parse_error_reply(text, headers, grammar))),
        };
        exchange.method = match message.kind {
            MessageKind::Response => label::Method::Response,
            MessageKind::Request | MessageKind::Notification => label::Method::of(message.method.as_str()),
        };
        let refused = |fault, era| Box::new(ErrorReply { fault, era, id: message.id.clone() });
        let placed =
            classify(&message, headers).map_err(|misfit| refused(classify_fault(misfit), Era::Modern))?;
        exchange.era = Some(placed.era());
        let asker = match placed {
            MessageEra::Modern(version, capabilities) => {
                let level = message.params.as_ref().and_then(|params| params.meta().level);
                let caller = exchange.caller.clone();
                let (takes, along, whose) =
                    (accepts(headers), exchange.along.clone(), exchange.whose.clone());
                let name = message.params.as_ref().and_then(ClientParams::client_name);
                let client = name.and_then(|name| self.clients.mark_of(name));
                let limits = self.clients.limits(client, headers.user_agent.value());
                ClientContext {
                    caller,
                    version,
                    capabilities,
                    session: None,
                    level,
                    takes,
                    along,
                    limits,
                    whose,
                }
            }
            MessageEra::Legacy => {
                self.legacy(headers, &message, exchange).map_err(|fault| refused(fault, Era::Legacy))?
            }
        };
        exchange.session = asker.session.is_some();
        self.route_message(asker, message)
    }

    fn route_message<'a>(
        &self,
        asker: ClientContext,
        message: Message<'a, ClientParams<'a>>,
    ) -> Result<ClassifiedMessage<'a>, Box<ErrorReply>> {
        let era = asker.version.era();
        let id = match (message.kind, message.id) {
            (MessageKind::Request, Some(id)) => id,
            (MessageKind::Response, _) if asker.session.is_none() => {
                let fault = if era == Era::Legacy { Fault::SessionRequired } else { unexpected_response() };
                return Err(Box::new(ErrorReply { fault, era, id: None }));
            }
            (MessageKind::Response, Some(id)) => {
                return Ok(ClassifiedMessage::Response(asker, id, message.result));
            }
            _ => {
                let session = asker.session.as_ref();
                let cancelled = message.params.filter(|_| message.method.as_str() == CANCELLED);
                if let (Some(session), Some(id)) = (session, cancelled.and_then(|params| params.request_id)) {
                    self.running.cancel(session.key, &id);
                }
                return Ok(ClassifiedMessage::Accepted);
            }
        };
        match Method::named(message.method.as_str(), era) {
            Some(method) => Ok(ClassifiedMessage::Request(asker, method, id, message.params)),
            None => {
                let fault = Fault::UnknownMethod(capped(&message.method.0));
                Err(Box::new(ErrorReply { fault, era, id: Some(id) }))
            }
        }
    }

    /// Returns the client context of a legacy message, from its session; without a session it is
    /// served statelessly.
    fn legacy(
        &self,
        headers: &McpHeaders<'_>,
        message: &Message<'_, ClientParams<'_>>,
        exchange: &AccessRecord,
    ) -> Result<ClientContext, Fault> {
        let caller = exchange.caller.clone();
        let (takes, along, whose) = (accepts(headers), exchange.along.clone(), exchange.whose.clone());
        let begins =
            message.kind == MessageKind::Request && message.method.as_str() == Method::Initialize.as_str();
        let stateless = |version| ClientContext {
            caller: caller.clone(),
            version,
            capabilities: crate::mcp::ClientCapabilities::default(),
            session: None,
            level: None,
            takes,
            along: along.clone(),
            limits: self.clients.limits(None, headers.user_agent.value()),
            whose: whose.clone(),
        };
        match headers.session {
            // A client that begins anew may still send its lost session.
            _ if begins => Ok(stateless(Version::STATELESS)),
            McpHeaderValue::Absent => stateless_version(headers).map(stateless).map_err(classify_fault),
            McpHeaderValue::Unusable => Err(Fault::SessionNotFound),
            McpHeaderValue::Is(id) => {
                let found = self.sessions.find(&self.sealer, caller.name(), id, super::now());
                let (session, level) = found.ok_or(Fault::SessionNotFound)?;
                let (version, capabilities) = (session.version, session.capabilities);
                let limits = self.clients.limits(session.client, headers.user_agent.value());
                let session = Some(session);
                Ok(ClientContext {
                    caller,
                    version,
                    capabilities,
                    session,
                    level,
                    takes,
                    along,
                    limits,
                    whose,
                })
            }
        }
    }
}

pub(super) fn accepts(headers: &McpHeaders<'_>) -> Accepts {
    Accepts { json: headers.takes_json, stream: headers.takes_stream }
}

fn unexpected_response() -> Fault {
    Fault::InvalidRequest("a modern client answers by calling again, not by posting a response".into())
}

fn classify_fault(misfit: ClassifyError) -> Fault {
    match misfit {
        ClassifyError::Envelope(what) => Fault::InvalidRequestMeta(what),
        ClassifyError::Mismatch(what) => Fault::HeaderMismatch(what),
        ClassifyError::Unsupported(version) => Fault::UnsupportedVersion(version),
    }
}

fn is_notification(text: &str) -> bool {
    parse_envelope(text).is_ok_and(|message| message.kind == MessageKind::Notification)
}

/// Returns the reply to a body that is not a message, or has params of the wrong shape.
fn parse_error_reply(text: &str, headers: &McpHeaders<'_>, grammar: ParseError) -> ErrorReply {
    let era = era_of_headers(headers);
    let what = match grammar {
        ParseError::NotJson(what) => return ErrorReply { fault: Fault::ParseError(what), era, id: None },
        ParseError::NotMessage(what) => {
            return ErrorReply { fault: Fault::InvalidRequest(what), era, id: recover_id(text) };
        }
        ParseError::BadParams(what) => what,
    };
    let Ok(message) = parse_envelope(text) else {
        return ErrorReply { fault: Fault::InvalidParams(what), era, id: recover_id(text) };
    };
    let meta = message.params.as_ref().and_then(|RawParams { meta }| *meta);
    let claims = meta.is_some_and(claims_modern);
    let era = if claims { Era::Modern } else { era };
    let id = message.id;
    if era == Era::Modern
        && meta.is_none_or(|meta| {
            serde_json::from_str::<crate::mcp::params::RequestMeta<'_>>(meta.get()).is_err()
        })
    {
        return ErrorReply { fault: Fault::InvalidRequestMeta(what), era, id };
    }
    let fault = match Method::named(message.method.as_str(), era) {
        Some(_) => Fault::InvalidParams(what),
        None => Fault::UnknownMethod(capped(&message.method.0)),
    };
    ErrorReply { fault, era, id }
}

fn capped(text: &str) -> String {
    text.chars().take(100).collect()
}
