//! POST handler of the MCP server: classifies a message and routes it; batches of 2025-03-26.
//!
//! The requests of a batch run one after the other within one budget. The response is JSON, without
//! notifications. Reads docs/spec/mcp.md §1.5. See also `methods`, `task_tools` and
//! `subscriptions`.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use serde_json::value::RawValue;
use tokio::time::Instant;

use super::{McpServer, MethodReply, MovedStream};
use crate::calls::{CallRequest, CallTarget, ClientContext, ResponseTarget};
use crate::fault::{Abort, ClientGone, Fault};
use crate::http_edge::{
    Accepts, AccessRecord, ClientConnection, ResponseSink, Route, empty, fault, json, refused, reply,
};
use crate::jsonrpc::{
    Id, Message, MessageKind, ParseError, RawParams, SharedBody, Text, elements, is_batch, parse,
    parse_envelope, recover_id, well_formed, write_error,
};
use crate::limits::quota_owner;
use crate::mcp::classify::{
    ClassifyError, McpHeaderValue, McpHeaders, MessageEra, classify, era_of_headers, stateless_version,
};
use crate::mcp::params::claims_modern;
use crate::mcp::version::CANCELLED;
use crate::mcp::{ClientCapabilities, ClientParams, Era, Method, Version};
use crate::sessions::ClientLimits;
use crate::telemetry::label;
use crate::telemetry::trace::TraceContext;

/// Rejection with the data to encode it.
pub(super) struct ErrorReply {
    fault: Fault,
    era: Era,
    id: Option<Id>,
}

/// Kind of a single message.
#[expect(clippy::large_enum_variant, reason = "made and taken apart at once, never stored")]
enum ClassifiedMessage<'a> {
    /// A request of a known method.
    Request(ClientContext<'a>, Method, Id, Option<ClientParams<'a>>),
    /// The client's response to a request of the gateway: its id, and the result.
    Response(ClientContext<'a>, Id, Option<&'a RawValue>),
    /// A message that gets no response.
    Accepted,
}

/// The message of a request body, and the facts of its HTTP request.
#[derive(Clone, Copy)]
struct ReceivedMessage<'a, 'h> {
    route: Route<'a>,
    headers: &'h McpHeaders<'h>,
    text: &'a str,
}

/// One message of a batch, or the fault with which it is rejected.
type BatchItem<'a> = Result<ClassifiedMessage<'a>, RejectedRequest>;

/// A request of a batch that is rejected.
struct RejectedRequest {
    fault: Fault,
    id: Id,
}

/// Encoded responses of a batch so far.
#[derive(Default)]
struct BatchResponses {
    count: usize,
    body: Vec<u8>,
}

impl BatchResponses {
    fn push(&mut self, response: &[u8]) {
        self.body.push(if self.count == 0 { b'[' } else { b',' });
        self.body.extend_from_slice(response);
        self.count += 1;
    }
}

impl McpServer {
    /// Handles a POST.
    ///
    /// # Errors
    ///
    /// [`Abort`] if the client disconnected, or if the body was not read completely.
    pub(super) async fn post(
        &self,
        http: &mut impl ClientConnection,
        record: &mut AccessRecord,
        route: Route<'_>,
        moved: &mut Option<Box<MovedStream>>,
    ) -> Result<(), Abort> {
        let body = self.body.read_json(http, record.quota_owner.as_ref()).await?;
        let shared = SharedBody::new(&body);
        let text = match shared.read(|| well_formed(&body, self.settings.depth)) {
            Ok(text) => text,
            Err(malformed) => {
                let era = era_of_headers(&McpHeaders::read(&http.head().headers));
                let fault = Fault::ParseError(malformed.to_string());
                let reply = ErrorReply { fault, era, id: None };
                return Ok(Box::pin(self.reject(http, record, reply)).await?);
            }
        };
        if is_batch(text) {
            // Boxed, here and below: a call that waits for its agent must not be larger by it.
            return Ok(Box::pin(self.batch(http, record, route, text)).await?);
        }
        let headers = McpHeaders::read(&http.head().headers);
        let mut classified =
            shared.read(|| self.classify(ReceivedMessage { route, headers: &headers, text }, record));
        // Borrowed: a part that is moved out of it would have room of its own for as long as the call waits.
        match &mut classified {
            Ok(ClassifiedMessage::Accepted) => empty(http, StatusCode::ACCEPTED, Vec::new()).await?,
            Ok(ClassifiedMessage::Response(client, id, result)) => {
                Box::pin(self.engine.accept_elicitation_response(client, id, *result)).await;
                empty(http, StatusCode::ACCEPTED, Vec::new()).await?;
            }
            Ok(ClassifiedMessage::Request(client, method, id, params)) => {
                client.limits = match ClientLimits::read(http.head().uri.query()) {
                    Ok(limits) => limits.or(client.limits),
                    Err(fault) => {
                        let reply = ErrorReply { fault, era: client.era(), id: Some(id.clone()) };
                        return Ok(Box::pin(self.reject(http, record, reply)).await?);
                    }
                };
                let params = params.get_or_insert_default();
                let request = CallRequest { client, id, params, body: Some(&shared) };
                if *method == Method::Listen {
                    return Ok(Box::pin(self.listen_or_reject(http, record, request, moved)).await?);
                }
                self.request(http, record, *method, request).await?;
            }
            Err(_) => {}
        }
        if let Err(reply) = classified {
            Box::pin(self.reject(http, record, *reply)).await?;
        }
        Ok(())
    }

    async fn request(
        &self,
        http: &mut impl ClientConnection,
        record: &mut AccessRecord,
        method: Method,
        request: CallRequest<'_>,
    ) -> Result<(), ClientGone> {
        let client = request.client;
        let permitted = self.authorizer().authorize_method(client.requester(), method);
        let answered = match method {
            _ if permitted.is_err() => permitted.map_err(Abort::from),
            // Boxed: the large futures live only while they are needed.
            Method::ToolsCall => {
                let budget = client.limits.budget(self.settings.budget);
                let target = CallTarget { to: ResponseTarget::Client(http), budget };
                Box::pin(self.call(target, request, record)).await.map(|_| ())
            }
            Method::TasksGet
            | Method::TasksResult
            | Method::TasksList
            | Method::TasksCancel
            | Method::TasksUpdate => {
                let to = ResponseTarget::Client(http);
                Box::pin(self.task_method(to, method, request, record)).await.map(|_| ())
            }
            _ => Box::pin(self.method(http, record, method, request)).await,
        };
        self.conclude(http, record, request, answered).await
    }

    /// Handles a `subscriptions/listen`.
    async fn listen_or_reject(
        &self,
        http: &mut impl ClientConnection,
        record: &mut AccessRecord,
        request: CallRequest<'_>,
        moved: &mut Option<Box<MovedStream>>,
    ) -> Result<(), ClientGone> {
        let permitted = self.authorizer().authorize_method(request.client.requester(), Method::Listen);
        let answered = match permitted {
            Ok(()) => Box::pin(self.listen(http, request, moved)).await,
            Err(fault) => Err(Abort::from(fault)),
        };
        self.conclude(http, record, request, answered).await
    }

    /// Rejects a request that has no response yet.
    async fn conclude(
        &self,
        http: &mut impl ClientConnection,
        record: &mut AccessRecord,
        request: CallRequest<'_>,
        answered: Result<(), Abort>,
    ) -> Result<(), ClientGone> {
        match answered {
            Ok(()) => Ok(()),
            Err(Abort::ClientGone) => Err(ClientGone),
            Err(Abort::Rejected(fault)) => {
                let reply = ErrorReply { fault, era: request.client.era(), id: Some(request.id.clone()) };
                Box::pin(self.reject(http, record, reply)).await
            }
        }
    }

    /// Handles a request that the gateway answers at once.
    async fn method(
        &self,
        http: &mut impl ClientConnection,
        record: &mut AccessRecord,
        method: Method,
        request: CallRequest<'_>,
    ) -> Result<(), Abort> {
        let MethodReply { body, session } = match method {
            Method::Initialize => {
                let owner = quota_owner(&request.client.caller, http.client_network());
                self.initialize(request, &owner)?
            }
            _ => self.handle(method, request).await?,
        };
        record.hold(&self.limits, None, body.len()).map_err(Fault::from)?;
        Ok(reply(http, request.client.accepts, body, session.as_deref()).await?)
    }

    /// Rejects a request, in the form of its era.
    async fn reject(
        &self,
        http: &mut impl ResponseSink,
        record: &mut AccessRecord,
        reply: ErrorReply,
    ) -> Result<(), ClientGone> {
        record.record_rejection(&reply.fault, &self.metrics);
        fault(http, &reply.fault, reply.era, reply.id.as_ref()).await
    }

    /// Classifies a message and determines its client context.
    fn classify<'a>(
        &self,
        received: ReceivedMessage<'a, '_>,
        record: &mut AccessRecord,
    ) -> Result<ClassifiedMessage<'a>, Box<ErrorReply>> {
        let ReceivedMessage { route, headers, text } = received;
        let message = match parse::<ClientParams<'a>>(text) {
            Ok(message) => message,
            // A notification gets no response, even if its params are invalid.
            Err(ParseError::BadParams(_)) if is_notification(text) => return Ok(ClassifiedMessage::Accepted),
            Err(grammar) => return Err(Box::new(parse_error_reply(text, headers, grammar))),
        };
        record.method = match message.kind {
            MessageKind::Response => label::Method::Response,
            MessageKind::Request | MessageKind::Notification => label::Method::of(message.method.as_str()),
        };
        let rejected = |fault, era| Box::new(ErrorReply { fault, era, id: message.id.clone() });
        let era =
            classify(&message, headers).map_err(|misfit| rejected(classify_fault(misfit), Era::Modern))?;
        record.era = Some(era.era());
        let meta = message.params.as_ref().map(ClientParams::meta);
        let parent = meta.and_then(|meta| meta.traceparent.as_ref());
        let state = meta.and_then(|meta| meta.tracestate.as_ref()).map(Text::as_str);
        record.scope.begin_trace(parent.and_then(|parent| TraceContext::parse(parent.as_str(), state)));
        let client = match era {
            MessageEra::Modern(version, capabilities) => {
                let params = message.params.as_ref();
                let name = params.and_then(ClientParams::client_name);
                let mark = name.and_then(|name| self.clients.mark_of(name));
                ClientContext {
                    version,
                    capabilities,
                    level: params.and_then(|params| params.meta().level),
                    limits: self.clients.limits(mark, headers.user_agent.value()),
                    software: params.and_then(ClientParams::client_software).map(Arc::new),
                    ..stateless_client(route, headers, record, Version::STATELESS)
                }
            }
            MessageEra::Legacy => {
                let client = self.legacy_client(route, headers, &message, record);
                client.map_err(|fault| rejected(fault, Era::Legacy))?
            }
        };
        record.version = Some(client.version.as_str());
        record.session = client.session.as_ref().map(|session| session.digest);
        self.route_message(client, message)
    }

    fn route_message<'a>(
        &self,
        client: ClientContext<'a>,
        message: Message<'a, ClientParams<'a>>,
    ) -> Result<ClassifiedMessage<'a>, Box<ErrorReply>> {
        let era = client.era();
        let id = match (message.kind, message.id) {
            (MessageKind::Request, Some(id)) => id,
            (MessageKind::Response, _) if client.session.is_none() => {
                let fault = if era == Era::Legacy { Fault::SessionRequired } else { unexpected_response() };
                return Err(Box::new(ErrorReply { fault, era, id: None }));
            }
            (MessageKind::Response, Some(id)) => {
                return Ok(ClassifiedMessage::Response(client, id, message.result));
            }
            _ => {
                let session = client.session.as_ref();
                let cancelled = message.params.filter(|_| message.method.as_str() == CANCELLED);
                if let (Some(session), Some(id)) = (session, cancelled.and_then(|params| params.request_id)) {
                    self.engine.cancel_request(session.key, &id);
                }
                return Ok(ClassifiedMessage::Accepted);
            }
        };
        match Method::named(message.method.as_str(), era) {
            Some(method) => Ok(ClassifiedMessage::Request(client, method, id, message.params)),
            None => {
                let fault = Fault::unknown_method(&message.method.0);
                Err(Box::new(ErrorReply { fault, era, id: Some(id) }))
            }
        }
    }

    /// Returns the client context of a legacy message, from its session; without a session it is
    /// served statelessly.
    fn legacy_client<'a>(
        &self,
        route: Route<'a>,
        headers: &McpHeaders<'_>,
        message: &Message<'_, ClientParams<'_>>,
        record: &AccessRecord,
    ) -> Result<ClientContext<'a>, Fault> {
        let begins =
            message.kind == MessageKind::Request && message.method.as_str() == Method::Initialize.as_str();
        let user_agent = headers.user_agent.value();
        let stateless = |version| ClientContext {
            limits: self.clients.limits(None, user_agent),
            ..stateless_client(route, headers, record, version)
        };
        match headers.session {
            // A client that begins anew may still send its lost session.
            _ if begins => Ok(stateless(Version::STATELESS)),
            McpHeaderValue::Absent => stateless_version(headers).map(stateless).map_err(classify_fault),
            McpHeaderValue::Unusable => Err(Fault::SessionNotFound),
            McpHeaderValue::Is(id) => {
                let found = self.sessions.find(record.caller.name(), id);
                let (session, level) = found.ok_or(Fault::SessionNotFound)?;
                Ok(ClientContext {
                    capabilities: session.capabilities,
                    level,
                    limits: self.clients.limits(session.client, user_agent),
                    software: session.software.clone(),
                    ..stateless_client(route, headers, record, session.version)
                }
                .with_session(session))
            }
        }
    }

    /// Answers a batch.
    async fn batch(
        &self,
        http: &mut impl ClientConnection,
        record: &mut AccessRecord,
        route: Route<'_>,
        text: &str,
    ) -> Result<(), ClientGone> {
        let headers = McpHeaders::read(&http.head().headers);
        let era = era_of_headers(&headers);
        let items = self.classify_batch(ReceivedMessage { route, headers: &headers, text }, record);
        let items = items.and_then(|items| Ok((self.batch_budget(http.head().uri.query(), &items)?, items)));
        let (budget, items) = match items {
            Ok(items) => items,
            Err(fault) => return self.reject(http, record, ErrorReply { fault, era, id: None }).await,
        };
        let mut responses = BatchResponses::default();
        let mut missing_scopes: Vec<Fault> = Vec::new();
        // One budget for the batch: the client waits for all responses.
        let until = Instant::now() + budget;
        for message in items {
            let (client, method, id, params) = match message {
                Ok(ClassifiedMessage::Request(client, method, id, params)) => (client, method, id, params),
                Ok(ClassifiedMessage::Accepted) => continue,
                Ok(ClassifiedMessage::Response(client, id, result)) => {
                    Box::pin(self.engine.accept_elicitation_response(&client, &id, result)).await;
                    continue;
                }
                Err(RejectedRequest { fault, id }) => {
                    responses.push(&error_response(&fault, &id));
                    continue;
                }
            };
            let params = params.unwrap_or_default();
            let request = CallRequest { client: &client, id: &id, params: &params, body: None };
            match self.batch_request(http, until, method, request, record).await {
                Ok(Some(body)) => {
                    record.keep(body.len());
                    responses.push(&body);
                }
                Ok(None) => {}
                Err(Abort::Rejected(fault)) => {
                    responses.push(&error_response(&fault, &id));
                    missing_scopes
                        .extend(Some(fault).filter(|fault| matches!(fault, Fault::InsufficientScope(_))));
                }
                Err(Abort::ClientGone) => return Err(ClientGone),
            }
        }
        if responses.count == 0 {
            return empty(http, StatusCode::ACCEPTED, Vec::new()).await;
        }
        let BatchResponses { count, mut body } = responses;
        body.push(b']');
        match missing_scopes.first() {
            // No request is served: the HTTP response can say what is missing, and clients look
            // only there.
            Some(missing) if missing_scopes.len() == count => {
                record.record_rejection(missing, &self.metrics);
                refused(http, missing, Era::Legacy, body).await
            }
            _ => json(http, StatusCode::OK, body, None).await,
        }
    }

    /// Returns the budget of the client of a batch; all requests of a batch have one client.
    fn batch_budget(&self, query: Option<&str>, items: &[BatchItem<'_>]) -> Result<Duration, Fault> {
        let mut of_client = items.iter().filter_map(|item| match item {
            Ok(ClassifiedMessage::Request(client, ..)) => Some(client.limits),
            Ok(ClassifiedMessage::Response(..) | ClassifiedMessage::Accepted) | Err(_) => None,
        });
        let limits = ClientLimits::read(query)?;
        Ok(limits.or(of_client.next().unwrap_or_default()).budget(self.settings.budget))
    }

    /// Handles one request of a batch within the rest of the budget.
    async fn batch_request(
        &self,
        http: &mut impl ClientConnection,
        until: Instant,
        method: Method,
        request: CallRequest<'_>,
        record: &mut AccessRecord,
    ) -> Result<Option<Vec<u8>>, Abort> {
        self.authorizer().authorize_method(request.client.requester(), method)?;
        let to = ResponseTarget::Batch(http);
        if method == Method::ToolsCall {
            let budget = until.saturating_duration_since(Instant::now());
            return Box::pin(self.call(CallTarget { to, budget }, request, record)).await;
        }
        let body = self.handle(method, request).await?.body;
        to.respond(request.client, record, &self.limits, body).await
    }

    fn classify_batch<'a>(
        &self,
        received: ReceivedMessage<'a, '_>,
        record: &mut AccessRecord,
    ) -> Result<Vec<BatchItem<'a>>, Fault> {
        let all = elements(received.text, self.settings.batch).map_err(|error| match error {
            ParseError::NotJson(what) => Fault::ParseError(what),
            other => Fault::InvalidRequest(other.to_string()),
        })?;
        let mut items = Vec::with_capacity(all.len());
        for element in all {
            let message = ReceivedMessage { text: element.get(), ..received };
            let item = match self.classify(message, record).map_err(|reply| *reply) {
                Ok(message) => Ok(message),
                Err(ErrorReply { fault: Fault::SessionNotFound, .. }) => return Err(Fault::SessionNotFound),
                Err(ErrorReply { fault, id: Some(id), era: Era::Legacy }) if is_request_fault(&fault) => {
                    Err(RejectedRequest { fault, id })
                }
                Err(ErrorReply { fault: Fault::InvalidRequest(what), .. }) => {
                    return Err(Fault::InvalidRequest(format!("in a batch: {what}")));
                }
                Err(ErrorReply { fault, .. }) => {
                    return Err(Fault::InvalidRequest(format!("in a batch: {fault}")));
                }
            };
            if let Ok(ClassifiedMessage::Request(client, method, ..)) = &item {
                check_batch(client.version, *method).map_err(|what| Fault::InvalidRequest(what.into()))?;
            }
            items.push(item);
        }
        Ok(items)
    }
}

/// Returns the context of a client without a session and without limits of its own.
fn stateless_client<'a>(
    route: Route<'a>,
    headers: &McpHeaders<'_>,
    record: &AccessRecord,
    version: Version,
) -> ClientContext<'a> {
    ClientContext {
        caller: record.caller.clone(),
        route,
        version,
        capabilities: ClientCapabilities::default(),
        session: None,
        level: None,
        accepts: accepts(headers),
        forwarded: record.forwarded.clone(),
        limits: ClientLimits::default(),
        quota_owner: record.quota_owner.clone(),
        software: None,
    }
}

pub(super) fn accepts(headers: &McpHeaders<'_>) -> Accepts {
    Accepts { json: headers.takes_json, stream: headers.takes_stream }
}

/// Returns true if a fault rejects one request and leaves the rest of the batch alone.
fn is_request_fault(fault: &Fault) -> bool {
    matches!(fault, Fault::UnknownMethod(_) | Fault::InvalidParams(_))
}

fn check_batch(version: Version, method: Method) -> Result<(), &'static str> {
    match () {
        () if version.era() == Era::Modern => Err("a modern client sends no batches"),
        () if !version.has_batches() => Err("this session's protocol version has no batches"),
        () if method == Method::Initialize => Err("initialize must not be in a batch"),
        () => Ok(()),
    }
}

fn error_response(fault: &Fault, id: &Id) -> Vec<u8> {
    let data = fault.data();
    write_error(Some(id), fault.on_wire(Era::Legacy).code, &fault.to_string(), data.as_deref())
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
        None => Fault::unknown_method(&message.method.0),
    };
    ErrorReply { fault, era, id }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http_edge::HttpConnection;

    fn size_of_result<F: Future>(_: impl FnOnce() -> F) -> usize {
        size_of::<F>()
    }

    /// Each waiting call holds both, and each one more kilobyte is memory of every open stream.
    #[test]
    #[expect(unreachable_code, clippy::diverging_sub_expression, reason = "only the types are of interest")]
    fn a_waiting_call_is_small() {
        let post = size_of_result(|| {
            let (server, http): (&McpServer, &mut HttpConnection<'_>) = unreachable!();
            let (record, route, moved) = unreachable!();
            server.post(http, record, route, moved)
        });
        let call = size_of_result(|| {
            let (server, target): (&McpServer, CallTarget<'_, HttpConnection<'_>>) = unreachable!();
            let (request, record) = unreachable!();
            server.call(target, request, record)
        });
        assert!(post <= 1_928 && call <= 3_504, "{post} and {call} bytes");
    }
}
