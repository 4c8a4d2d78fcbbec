//! gRPC binding of A2A: a request in protobuf becomes that of HTTP+JSON, and the response becomes
//! protobuf again (A2A 1.0 §10, 0.3 §3.2.2).
//!
//! Paths of gRPC are fixed, so the agent is named by the authority of the request
//! (`agents.NAME.a2a.host`), in 1.0 by the `tenant` of the message, or it is the only one that the
//! caller sees. A [`GrpcConnection`] stands between the HTTP edge and the face: every response that is
//! written to it, of the face or of a check before it, leaves as messages and a status. See
//! `http_edge::grpc` for heads and trailers, `a2a::grpc` for frames and protobuf.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, StatusCode};
use serde_json::value::RawValue;
use tokio::time::{Instant, sleep_until};

use super::error::{A2aError, grpc_name};
use super::proxy::ProxiedRequest;
use super::request::{JsonRpcRequest, ParamMembers};
use super::{A2aServer, AgentScope, EXTENSIONS, TypedBody, VERSION, version, write};
use crate::a2a::grpc::{
    FrameError, GrpcStatus, UnaryReader, request_to_json, response_to_protobuf, write_frame,
};
use crate::a2a::translate::{Operation, from_proto_json, to_proto_json};
use crate::a2a::{Binding, Dialect};
use crate::agents::{Agent, ResolvedAgent};
use crate::auth::ClientTlsInfo;
use crate::calls::resolved_agent;
use crate::config::Require;
use crate::fault::{Abort, ClientGone, Fault};
use crate::http_edge::{
    AccessRecord, ClientConnection, GRPC, GRPC_ACCEPT_ENCODING, ResponseHead, ResponseSink, Route,
    TrailerSink, message_encoding, request_timeout, trailers,
};
use crate::jsonrpc::object::RawObject;
use crate::jsonrpc::{Id, Text, well_formed};
use crate::sse::Decoder;
use crate::telemetry::label;

/// Method of a request.
#[derive(Debug, Clone, Copy)]
struct GrpcMethod {
    dialect: Dialect,
    operation: Operation,
}

/// Connection of one request of gRPC, on which JSON is read and written.
///
/// The body of the request is the message without its frame. A response in JSON becomes one
/// message, each event of a stream becomes one, and an error becomes the status.
pub(crate) struct GrpcConnection<'a, C> {
    http: &'a mut C,
    /// `None` if no version has the method.
    method: Option<GrpcMethod>,
    message: UnaryReader,
    deadline: Option<Instant>,
    /// True once the client takes no response any more.
    is_late: bool,
    /// Status in place of that of the next response.
    refusal: Option<GrpcStatus>,
    response: GrpcResponse,
    /// Most bytes of one event.
    event_bytes: usize,
}

/// Response as far as it was written.
enum GrpcResponse {
    /// Nothing.
    None,
    /// The head of one JSON value, and the value so far.
    Json { status: StatusCode, headers: HeaderMap, body: Vec<u8> },
    /// Events, of which the head was sent.
    Events(Decoder),
    /// All of it.
    Ended,
}

/// Limits of messages.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MessageLimits {
    /// Most bytes of a request.
    pub(crate) request: usize,
    /// Most bytes of an event of a stream.
    pub(crate) event: usize,
}

impl<'a, C: TrailerSink> GrpcConnection<'a, C> {
    /// Creates the connection of a request of gRPC.
    pub(crate) fn new(http: &'a mut C, limits: MessageLimits) -> Self {
        let head = http.head();
        let method = Operation::of_grpc_path(head.uri.path())
            .map(|(dialect, operation)| GrpcMethod { dialect, operation });
        let timeout = request_timeout(&head.headers);
        let refusal = if method.is_none() {
            Some(status("UNIMPLEMENTED", "no such method: the gateway serves A2A 1.0 and 0.3 over gRPC"))
        } else if message_encoding(&head.headers).is_some() {
            Some(status("UNIMPLEMENTED", "grpc-encoding is not taken; send messages as they are"))
        } else if timeout.is_err() {
            Some(status("INTERNAL", "grpc-timeout is not readable"))
        } else {
            None
        };
        let deadline = timeout.ok().flatten().and_then(|timeout| Instant::now().checked_add(timeout));
        let MessageLimits { request, event } = limits;
        Self {
            method,
            message: UnaryReader::new(request),
            deadline,
            is_late: false,
            refusal,
            response: GrpcResponse::None,
            event_bytes: event,
            http,
        }
    }

    /// Returns true if the request is refused for its head alone.
    pub(crate) fn is_refused(&self) -> bool {
        self.refusal.is_some()
    }

    /// Returns true if the client's deadline has passed before the end of the response.
    pub(crate) fn is_late(&self) -> bool {
        self.is_late && !matches!(self.response, GrpcResponse::Ended)
    }

    /// Ends the response with the status of a deadline that has passed.
    ///
    /// # Errors
    ///
    /// [`ClientGone`] if the client disconnected.
    pub(crate) async fn end_late(&mut self) -> Result<(), ClientGone> {
        self.finish(&status("DEADLINE_EXCEEDED", "the deadline of the request has passed")).await
    }

    /// Sends the head of the response.
    async fn begin(&mut self, headers: &HeaderMap) -> Result<(), ClientGone> {
        let mut head = ResponseHead::new(StatusCode::OK);
        head.insert(CONTENT_TYPE, GRPC);
        head.insert(GRPC_ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        let kept = |name: &&http::HeaderName| {
            EXTENSIONS.contains(name) || [&VERSION, &WWW_AUTHENTICATE, &RETRY_AFTER].contains(name)
        };
        for name in headers.keys().filter(kept) {
            for value in headers.get_all(name) {
                head.headers.append(name.clone(), value.clone());
            }
        }
        self.http.write_head(head, false).await
    }

    /// Ends the response with a status.
    async fn finish(&mut self, status: &GrpcStatus) -> Result<(), ClientGone> {
        match std::mem::replace(&mut self.response, GrpcResponse::Ended) {
            GrpcResponse::None => self.begin(&HeaderMap::new()).await?,
            GrpcResponse::Json { headers, .. } => self.begin(&headers).await?,
            GrpcResponse::Events(_) => {}
            GrpcResponse::Ended => return Ok(()),
        }
        self.http.write_trailers(trailers_of(status)).await
    }

    /// Sends a complete JSON response.
    async fn finish_json(&mut self) -> Result<(), ClientGone> {
        let GrpcResponse::Json { status: http_status, body, .. } = &mut self.response else {
            return Ok(());
        };
        let (http_status, body) = (*http_status, std::mem::take(body));
        if let Some(refusal) = self.refusal.take() {
            return self.finish(&refusal).await;
        }
        if !http_status.is_success() {
            let failed = self.error_status(http_status, &body);
            return self.finish(&failed).await;
        }
        let mut frame = Vec::new();
        if let Err(violation) = self.add_message(&mut frame, &body) {
            return self.finish(&violation).await;
        }
        drop(body);
        let GrpcResponse::Json { headers, .. } = &mut self.response else { return Ok(()) };
        let headers = std::mem::take(headers);
        self.begin(&headers).await?;
        self.response = GrpcResponse::Ended;
        self.http.write_body(frame.into(), false).await?;
        self.http.write_trailers(trailers_of(&GrpcStatus::default())).await
    }

    /// Appends the frame of a message in JSON, or returns the status for JSON that is no message.
    fn add_message(&self, frames: &mut Vec<u8>, json: &[u8]) -> Result<(), GrpcStatus> {
        let violation = |why: &str| status("INTERNAL", &format!("the agent's answer is no message: {why}"));
        let method = self.method.ok_or_else(|| violation("no method"))?;
        let json = match method.dialect {
            Dialect::V1 => Cow::Borrowed(json),
            Dialect::V0_1 | Dialect::V0_3 => {
                let text = str::from_utf8(json).map_err(|_| violation("not UTF-8"))?;
                let proto = to_proto_json(method.operation, text);
                proto.map_err(|error| violation(&error.to_string()))?.into()
            }
        };
        let message = response_to_protobuf(method.operation, method.dialect, &json);
        let message = message.map_err(|error| violation(&error.to_string()))?;
        // An event of a kind that the version does not have.
        let is_nothing = message.is_empty() && method.operation.is_stream();
        if is_nothing || write_frame(frames, &message) { Ok(()) } else { Err(violation("too long")) }
    }

    /// Returns the status of an error body with this HTTP status.
    fn error_status(&self, http: StatusCode, body: &[u8]) -> GrpcStatus {
        let mut found = GrpcStatus::from_error_json(body).unwrap_or_default();
        let is_named = !matches!(found.name(), "OK" | "UNKNOWN");
        if http == StatusCode::PAYLOAD_TOO_LARGE || !is_named {
            found.code = code(match http {
                StatusCode::PAYLOAD_TOO_LARGE => "RESOURCE_EXHAUSTED",
                _ => grpc_name(http),
            });
        }
        match self.method {
            Some(method) if method.dialect == Dialect::V0_3 => as_of_0_3(found, method.operation),
            Some(_) | None => found,
        }
    }

    /// Sends the events that are complete with these bytes.
    async fn write_events(&mut self, bytes: &[u8], end: bool) -> Result<(), ClientGone> {
        let GrpcResponse::Events(decoder) = &mut self.response else { return Ok(()) };
        let (mut frames, mut last) = (Vec::new(), None);
        match decoder.push(bytes) {
            Ok(events) => {
                for event in
                    events.into_iter().filter(|event| event.data.trim_ascii_start().starts_with(b"{"))
                {
                    let added = match event.name.as_deref() == Some("error") {
                        true => Err(self.error_status(StatusCode::INTERNAL_SERVER_ERROR, &event.data)),
                        false => self.add_message(&mut frames, &event.data),
                    };
                    if let Err(failed) = added {
                        last = Some(failed);
                        break;
                    }
                }
            }
            Err(_) => last = Some(status("INTERNAL", "an event of the agent is too long")),
        }
        if !frames.is_empty() {
            self.http.write_body(frames.into(), false).await?;
        }
        match last.or(end.then(GrpcStatus::default)) {
            Some(last) => self.finish(&last).await,
            None => Ok(()),
        }
    }
}

/// Returns the status as servers of 0.3 have it: one code for all that they cannot do, and the name of
/// the error before the text.
fn as_of_0_3(status: GrpcStatus, operation: Operation) -> GrpcStatus {
    let reason = status.info.as_ref().map(|info| info.reason.as_str());
    let is_unsupported = match (reason, status.name()) {
        (Some("CONTENT_TYPE_NOT_SUPPORTED"), _) => true,
        // The JavaScript client knows these two by this code alone.
        (Some("TASK_NOT_CANCELABLE" | "EXTENDED_AGENT_CARD_NOT_CONFIGURED"), _) => false,
        (None, "FAILED_PRECONDITION") => !matches!(operation, Operation::Cancel | Operation::ExtendedCard),
        (_, name) => name == "FAILED_PRECONDITION",
    };
    let code = if is_unsupported { code("UNIMPLEMENTED") } else { status.code };
    let message = match reason {
        Some(reason) => format!("{}: {}", error_class(reason), status.message),
        None => status.message,
    };
    GrpcStatus { code, message, info: status.info }
}

/// Returns the name of the class of an error: `TaskNotFoundError` for `TASK_NOT_FOUND`.
fn error_class(reason: &str) -> String {
    let word = |word: &str| {
        let mut letters = word.chars();
        let first = letters.next().into_iter().flat_map(char::to_uppercase);
        first.chain(letters.flat_map(char::to_lowercase)).collect::<String>()
    };
    reason.split('_').map(word).chain(["Error".to_owned()]).collect()
}

/// Returns the trailers of a status.
fn trailers_of(status: &GrpcStatus) -> HeaderMap {
    trailers(status.code, &status.encoded_message(), status.details().as_deref())
}

/// Returns the code of this name.
fn code(name: &str) -> i32 {
    // Every name here is one of gRPC; 2 is `UNKNOWN`.
    GrpcStatus::code_of(name).unwrap_or(2)
}

fn status(name: &str, message: &str) -> GrpcStatus {
    GrpcStatus { code: code(name), message: message.to_owned(), info: None }
}

impl<C: TrailerSink> ResponseSink for GrpcConnection<'_, C> {
    fn head(&self) -> &Parts {
        self.http.head()
    }

    async fn write_head(&mut self, head: ResponseHead, end: bool) -> Result<(), ClientGone> {
        let ResponseHead { status, headers } = head;
        let media_type = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
        let is_stream = status.is_success() && media_type == Some(b"text/event-stream");
        if is_stream && self.refusal.is_none() {
            self.begin(&headers).await?;
            self.response = GrpcResponse::Events(Decoder::new(self.event_bytes));
        } else {
            self.response = GrpcResponse::Json { status, headers, body: Vec::new() };
        }
        if end { self.write_body(Bytes::new(), true).await } else { Ok(()) }
    }

    async fn write_body(&mut self, bytes: Bytes, end: bool) -> Result<(), ClientGone> {
        match &mut self.response {
            GrpcResponse::Events(_) => self.write_events(&bytes, end).await,
            GrpcResponse::Json { body, .. } => {
                if body.is_empty() {
                    *body = bytes.into();
                } else {
                    body.extend_from_slice(&bytes);
                }
                if end { self.finish_json().await } else { Ok(()) }
            }
            GrpcResponse::None | GrpcResponse::Ended => Ok(()),
        }
    }

    fn close_after_response(&mut self) {
        // One stream of many: the connection stays.
    }

    async fn shut_down(&mut self) {
        self.http.shut_down().await;
    }

    async fn disconnected(&mut self) {
        let Some(deadline) = self.deadline else { return self.http.disconnected().await };
        tokio::select! {
            () = self.http.disconnected() => {}
            () = sleep_until(deadline) => self.is_late = true,
        }
    }

    fn is_shutting_down(&self) -> bool {
        self.http.is_shutting_down()
    }
}

impl<C: TrailerSink> ClientConnection for GrpcConnection<'_, C> {
    fn client_network(&self) -> Option<IpAddr> {
        self.http.client_network()
    }

    fn tls(&self) -> Option<&ClientTlsInfo> {
        self.http.tls()
    }

    fn is_tls(&self) -> bool {
        self.http.is_tls()
    }

    async fn continue_body(&mut self) -> Result<(), Fault> {
        self.http.continue_body().await
    }

    async fn read_body(&mut self) -> Result<Option<Bytes>, Fault> {
        let read = async {
            match self.deadline {
                None => Some(self.http.read_body().await),
                Some(deadline) => tokio::select! {
                    read = self.http.read_body() => Some(read),
                    () = sleep_until(deadline) => None,
                },
            }
        };
        let bytes = read.await.unwrap_or(Err(Fault::BodyTimeout))?;
        let message = match bytes {
            Some(bytes) => self.message.push(bytes).map(Some),
            None => self.message.finish().map(|()| None),
        };
        message.map_err(|error| {
            self.refusal = Some(status(error.code_name(), &error.to_string()));
            match error {
                FrameError::TooLong(limit) => Fault::BodyTooLarge(limit),
                FrameError::Compressed | FrameError::Trailing | FrameError::Incomplete => {
                    Fault::BodyIncomplete
                }
            }
        })
    }

    fn set_read_timeout(&mut self, timeout: Option<Duration>) -> Option<Duration> {
        self.http.set_read_timeout(timeout)
    }
}

/// Request with the params of JSON-RPC, for an agent.
struct NamedRequest {
    agent: Arc<Agent>,
    params: Box<RawValue>,
}

impl A2aServer {
    /// Returns the agent of an authority (`name` or `name:port`), if one has it.
    pub(crate) fn agent_of_host(&self, authority: &str) -> Option<&str> {
        let host = authority.rsplit_once(':').map_or(authority, |(host, _)| host);
        let is_meant =
            |known: &str| known.eq_ignore_ascii_case(authority) || known.eq_ignore_ascii_case(host);
        let mut agents = self.directory.agents().iter();
        let found = agents.find(|agent| agent.settings.a2a_host.as_deref().is_some_and(is_meant));
        found.map(|agent| agent.settings.name.as_str())
    }

    /// Serves a request of gRPC. `named` is the agent of its authority.
    ///
    /// # Errors
    ///
    /// [`Abort`] with the reason for which there is no response; the body of the request was not
    /// read completely then.
    pub(crate) async fn serve_grpc<C: TrailerSink>(
        &self,
        http: &mut GrpcConnection<'_, C>,
        record: &mut AccessRecord,
        require: &Require,
        named: Option<&str>,
    ) -> Result<(), Abort> {
        let Some(method) = http.method else { return Err(Fault::NoSuchPath.into()) };
        record.method = label::Method::A2a;
        record.version = Some(method.dialect.version());
        record.scope.begin_trace(None);
        let body = self.body.read(http, record.quota_owner.as_ref(), None).await?;
        let request = match request_to_json(method.operation, method.dialect, &body) {
            Ok(json) => self.named_request(record, method, json, named)?,
            Err(error) => {
                http.refusal = Some(status("INTERNAL", &format!("the message is not readable: {error}")));
                return Err(Fault::ParseError(error.to_string()).into());
            }
        };
        // The message is not needed any more, its bytes are those of the params now.
        let _permit = body.into_permit();
        let NamedRequest { agent, params } = request;
        record.agent = Some(agent.clone());
        let name = agent.settings.name.clone();
        let scope = AgentScope { route: Route::A2a(&name, ""), require, agent };
        let error = match self.handle_grpc(http, record, &scope, method, &params).await {
            Ok(()) => return Ok(()),
            Err(Abort::ClientGone) => return Err(Abort::ClientGone),
            Err(Abort::Rejected(error)) => error,
        };
        self.record_error(record, &error);
        let written = scope.error_body(&error);
        let headers = error.headers(written.rest_status());
        Ok(write(http, written.rest_status(), headers, TypedBody::json(written.rest())).await?)
    }

    /// Rejects a request for which there is no agent.
    ///
    /// # Errors
    ///
    /// [`ClientGone`] if the client disconnected.
    pub(crate) async fn reject_grpc<C: TrailerSink>(
        &self,
        http: &mut GrpcConnection<'_, C>,
        record: &mut AccessRecord,
        fault: Fault,
    ) -> Result<(), ClientGone> {
        let error = A2aError::Fault(fault);
        self.record_error(record, &error);
        let written = error.to_json("");
        let headers = error.headers(written.rest_status());
        write(http, written.rest_status(), headers, TypedBody::json(written.rest())).await
    }

    /// Returns the agent and the params of a request in JSON.
    fn named_request(
        &self,
        record: &AccessRecord,
        method: GrpcMethod,
        json: Vec<u8>,
        named: Option<&str>,
    ) -> Result<NamedRequest, Fault> {
        let json = well_formed(&json, self.settings.json_depth)
            .map_err(|malformed| Fault::ParseError(malformed.to_string()))?;
        let mut tenant = None;
        let params = match method.dialect {
            Dialect::V1 => {
                let unreadable = || Fault::ParseError("a member is there twice".to_owned());
                let mut members = RawObject::read(json).ok_or_else(unreadable)?;
                tenant = members.text("tenant").filter(|tenant| !tenant.is_empty());
                members.remove("tenant");
                members.written()
            }
            Dialect::V0_1 | Dialect::V0_3 => {
                let params = from_proto_json(method.operation, json);
                let params = params.map_err(|why| Fault::InvalidParams(why.0.to_owned()))?;
                RawValue::from_string(params).map_err(|_| Fault::Internal)?
            }
        };
        let is_visible =
            |agent: &&Arc<Agent>| self.authorizer.is_visible(&record.caller, &agent.settings.name);
        let agent = match (named, tenant.as_deref()) {
            (Some(named), Some(tenant)) if named != tenant => None,
            (Some(name), _) | (None, Some(name)) => self.directory.find(name).filter(is_visible),
            (None, None) => Some(self.discovery.only_agent(&record.caller).ok_or_else(|| {
                Fault::InvalidParams(
                    "the agent is not named: use the tenant on its card (A2A 1.0), or its own host (0.3)"
                        .into(),
                )
            })?),
        };
        let agent = agent.ok_or(Fault::NoSuchPath)?.clone();
        Ok(NamedRequest { agent, params })
    }

    async fn handle_grpc<C: TrailerSink>(
        &self,
        http: &mut GrpcConnection<'_, C>,
        record: &mut AccessRecord,
        scope: &AgentScope<'_>,
        GrpcMethod { dialect, operation }: GrpcMethod,
        params: &RawValue,
    ) -> Result<(), Abort<A2aError>> {
        let resolved =
            resolved_agent(&scope.agent, record.forwarded.as_ref()).map(ResolvedAgent::in_effect)?;
        let name = operation.name(dialect).ok_or(A2aError::Version)?;
        if let Some(version) = version(&http.head().headers) {
            Operation::of(name, Some(version)).map_err(|_| A2aError::Version)?;
        }
        let is_own = resolved.interface.dialect == dialect;
        if !is_own && !scope.agent.settings.translate {
            return Err(A2aError::Version.into());
        }
        let id: Id = serde_json::from_str("1").map_err(|_| Fault::Internal)?;
        let request = JsonRpcRequest { id, has_id: true, method: Text(name.into()), params: Some(params) };
        let call = ProxiedRequest {
            scope,
            resolved,
            binding: Binding::HttpJson,
            is_converted: true,
            client: dialect,
            operation: Some(operation),
            request: &request,
            body: None,
            members: ParamMembers::of(Some(params.get())),
        };
        self.proxy(http, record, call).await
    }
}
