//! The carrier of gRPC: a request becomes a message of protobuf in a frame, and the response of the
//! agent the response that it would give by HTTP+JSON.
//!
//! So no reader of responses knows the binding. A status of gRPC becomes a status of HTTP with the error
//! in JSON; the messages of a stream become the events of a stream of SSE. The codec and the readers of
//! frames and statuses are in `a2a::grpc`.

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::rpc::BodyKind;
use crate::a2a::grpc::{FrameError, FrameReader, write_frame};
use crate::a2a::{Dialect, Operation, grpc};
use crate::fault::AgentFailure;
use crate::quota::AnswerRoom;
use crate::sse;
use crate::transport::{BodyPieces, Response, TransportError};

/// The media type of requests.
pub(super) const MEDIA_TYPE: HeaderValue = HeaderValue::from_static("application/grpc");
/// Names the codings that a response may have.
pub(super) const ACCEPT_ENCODING: HeaderName = HeaderName::from_static("grpc-accept-encoding");
/// The time after which the agent may stop.
pub(super) const TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");

const STATUS: &str = "grpc-status";
const MESSAGE: &str = "grpc-message";
const DETAILS: &str = "grpc-status-details-bin";
/// The maximum size of a message of a stream until its reader says another, in bytes: the limit of gRPC.
const DEFAULT_MESSAGE_BYTES: usize = 4 << 20;

/// The failure to read a response.
#[derive(Debug)]
pub(super) enum ReplyError {
    /// The connection or HTTP failed.
    Transport(TransportError),
    /// The agent broke the protocol, or failed.
    Agent(AgentFailure),
}

impl From<TransportError> for ReplyError {
    fn from(error: TransportError) -> Self {
        Self::Transport(error)
    }
}

impl From<AgentFailure> for ReplyError {
    fn from(failure: AgentFailure) -> Self {
        Self::Agent(failure)
    }
}

impl From<FrameError> for ReplyError {
    fn from(error: FrameError) -> Self {
        match error {
            FrameError::TooLong(limit) => AgentFailure::LimitExceeded(limit, "one event").into(),
            FrameError::Compressed => violation("its message is compressed, which was not asked for"),
            FrameError::Trailing | FrameError::Incomplete => violation(error.to_string()),
        }
    }
}

fn violation(what: impl Into<String>) -> ReplyError {
    ReplyError::Agent(AgentFailure::ProtocolViolation(what.into()))
}

/// The method of a call.
#[derive(Debug, Clone, Copy)]
pub(super) struct GrpcMethod {
    pub(super) operation: Operation,
    pub(super) dialect: Dialect,
}

impl GrpcMethod {
    /// Returns the method of this path.
    pub(super) fn of(path: &str) -> Result<Self, AgentFailure> {
        let found = Operation::of_grpc_path(path);
        let (dialect, operation) = found.ok_or(AgentFailure::Internal("gRPC has no such operation"))?;
        Ok(Self { operation, dialect })
    }

    /// Encodes a request, with its frame.
    pub(super) fn encode(self, json: &[u8]) -> Result<Bytes, AgentFailure> {
        let message = grpc::request_to_protobuf(self.operation, self.dialect, json).map_err(|error| {
            tracing::debug!(%error, "failed to encode request as protobuf");
            AgentFailure::Rejected("the request has no form in gRPC".to_owned())
        })?;
        let mut frame = Vec::new();
        match write_frame(&mut frame, &message) {
            true => Ok(frame.into()),
            false => Err(AgentFailure::Internal("the request is too large for gRPC")),
        }
    }

    fn decode(self, message: &[u8], limit: usize, what: &'static str) -> Result<Vec<u8>, ReplyError> {
        let json = grpc::response_to_json(self.operation, self.dialect, message)
            .map_err(|error| violation(format!("its message cannot be read: {error}")))?;
        match json.len() > limit {
            true => Err(AgentFailure::LimitExceeded(limit, what).into()),
            false => Ok(json),
        }
    }
}

/// Returns the value of `grpc-timeout` for this time, if it can be said.
pub(super) fn timeout(time: std::time::Duration) -> Option<HeaderValue> {
    /// The highest number that has the 8 digits that are allowed.
    const MAX_TIMEOUT: u128 = 99_999_999;
    let (number, unit) = match (time.as_millis(), u128::from(time.as_secs())) {
        (millis, _) if millis <= MAX_TIMEOUT => (millis, 'm'),
        (_, seconds) if seconds <= MAX_TIMEOUT => (seconds, 'S'),
        _ => return None,
    };
    HeaderValue::from_str(&format!("{number}{unit}")).ok()
}

/// The method of the health service of gRPC, which agents need not have.
pub(super) const HEALTH_CHECK: &str = "/grpc.health.v1.Health/Check";

/// Returns the request for the health of a server, without its path.
pub(super) fn health_check() -> Request<Bytes> {
    // A message without members: the whole server.
    let mut request = Request::new(Bytes::from_static(&[0; 5]));
    *request.method_mut() = Method::POST;
    request.headers_mut().insert(CONTENT_TYPE, MEDIA_TYPE);
    request
}

/// Returns true unless a server answers that it does not serve. One without the service is there.
pub(super) fn is_serving(body: &[u8], trailers: &HeaderMap) -> bool {
    /// The states of `HealthCheckResponse` that are not `SERVING`: `UNKNOWN` is an empty message.
    const NOT_SERVING: [&[u8]; 3] = [&[0, 0, 0, 0, 0], &[0, 0, 0, 0, 2, 8, 2], &[0, 0, 0, 0, 2, 8, 3]];
    let is_unavailable = trailers.get(STATUS).is_some_and(|status| status.as_bytes() == b"14");
    !is_unavailable && !NOT_SERVING.contains(&body)
}

/// The response of an agent after its head was received, in any binding.
pub(super) enum AgentResponse {
    /// By HTTP, as received.
    Http(Response),
    /// By gRPC, as if by HTTP+JSON.
    Grpc(Box<GrpcResponse>),
}

impl AgentResponse {
    /// Returns the status of HTTP.
    pub(super) fn status(&self) -> StatusCode {
        match self {
            Self::Http(reply) => reply.status(),
            Self::Grpc(reply) => reply.http_status(),
        }
    }

    /// Returns the header as the agent sent it.
    pub(super) fn headers(&self) -> &HeaderMap {
        match self {
            Self::Http(reply) => reply.headers(),
            Self::Grpc(reply) => reply.reply.headers(),
        }
    }

    /// Forgets the header of a response by HTTP. That by gRPC may still end the response.
    pub(super) fn forget_headers(&mut self) {
        if let Self::Http(reply) = self {
            reply.forget_headers();
        }
    }

    /// Returns true if the body has been read to its end.
    pub(super) fn is_over(&self) -> bool {
        match self {
            Self::Http(reply) => reply.is_over(),
            Self::Grpc(reply) => reply.is_over,
        }
    }

    /// Returns true if the body is made of messages of protobuf, so that it has another length.
    pub(super) fn is_converted(&self) -> bool {
        matches!(self, Self::Grpc(_))
    }

    /// Returns the response, with `what` attached until it has been read, or is dropped.
    pub(super) fn holding(self, what: impl Send + Sync + 'static) -> Self {
        match self {
            Self::Http(reply) => Self::Http(reply.holding(what)),
            Self::Grpc(mut reply) => {
                if !reply.is_over {
                    reply.held = Some(Box::new(what));
                }
                Self::Grpc(reply)
            }
        }
    }

    /// Sets the maximum size of a message of a stream of gRPC; readers of others have it.
    pub(super) fn limit_events(&mut self, bytes: usize) {
        if let Self::Grpc(reply) = self {
            reply.limit = bytes;
        }
    }

    /// Returns the number of bytes that are held for a message that is not complete.
    pub(super) fn held(&self) -> usize {
        match self {
            Self::Http(_) => 0,
            Self::Grpc(reply) => reply.frames.held(),
        }
    }

    /// Returns false if the next chunk is not there before more of the connection is read.
    pub(super) fn may_have_chunk(&self) -> bool {
        match self {
            Self::Http(reply) => reply.may_have_chunk(),
            Self::Grpc(_) => true,
        }
    }

    /// Returns the time since which the next chunk is waited for; `None` while none is.
    pub(super) fn silent_since(&self) -> Option<Instant> {
        match self {
            Self::Http(reply) => reply.silent_since(),
            Self::Grpc(reply) => reply.reply.silent_since(),
        }
    }

    /// Waits for the next chunk of the body; `None` after the last. It is empty if only a part of a
    /// message of gRPC came. Cancel-safe.
    pub(super) async fn chunk(&mut self) -> Result<Option<Bytes>, ReplyError> {
        match self {
            Self::Http(reply) => Ok(reply.chunk().await?),
            Self::Grpc(reply) => reply.events().await,
        }
    }

    /// Reads the whole body, of at most `limit` bytes.
    pub(super) async fn collect(&mut self, limit: usize) -> Result<Bytes, ReplyError> {
        match self {
            Self::Http(reply) => Ok(reply.collect(limit).await?),
            Self::Grpc(reply) => reply.value(limit, |_| Ok(())).await,
        }
    }

    /// Reads the whole body into the room of a response.
    pub(super) async fn collect_in(&mut self, room: &mut AnswerRoom) -> Result<Bytes, ReplyError> {
        match self {
            Self::Http(reply) => Ok(reply.collect_in(room).await?),
            Self::Grpc(reply) => {
                let AnswerRoom { limit, permit } = room;
                reply.value(*limit, |bytes| permit.set(bytes).map_err(AgentFailure::from)).await
            }
        }
    }

    /// Returns the form of the body; `None` if it is no form of A2A.
    pub(super) fn form(&self) -> Option<BodyKind> {
        match self {
            Self::Http(reply) => super::rpc::form(reply),
            Self::Grpc(reply) => reply.form(),
        }
    }
}

/// A response by gRPC.
pub(super) struct GrpcResponse {
    reply: Response,
    method: GrpcMethod,
    frames: FrameReader,
    /// The pieces of the message that is not complete.
    pieces: BodyPieces,
    /// The maximum size of a message of a stream, in bytes.
    limit: usize,
    /// The status that ended the call before a message of it was read.
    failed: Option<CallStatus>,
    /// True if nothing is left to read.
    is_over: bool,
    /// Only held, while the body is read.
    held: Option<Box<dyn Send + Sync>>,
}

impl GrpcResponse {
    /// Checks the head of a response. Of a call with one message the beginning is read: it shows if the
    /// call has failed.
    ///
    /// # Errors
    ///
    /// [`ReplyError`] if it is no response of gRPC, or breaks off.
    pub(super) async fn open(reply: Response, method: GrpcMethod) -> Result<Self, ReplyError> {
        let mut opened = Self {
            reply,
            method,
            frames: FrameReader::default(),
            pieces: BodyPieces::default(),
            limit: DEFAULT_MESSAGE_BYTES,
            failed: None,
            is_over: false,
            held: None,
        };
        let head = opened.reply.headers();
        if opened.reply.status() != StatusCode::OK {
            return Ok(opened);
        }
        if !is_grpc(head) {
            return Err(violation("its answer is not gRPC"));
        }
        if head.contains_key(STATUS) {
            // Headers and trailers in one.
            opened.failed = CallStatus::read(head)?.filter(|status| !status.is_ok());
        } else if !method.operation.is_stream() && !opened.read_on(usize::MAX).await? {
            opened.failed = opened.end()?.filter(|status| !status.is_ok());
        }
        Ok(opened)
    }

    /// Returns the status of HTTP that means the same.
    fn http_status(&self) -> StatusCode {
        match &self.failed {
            Some(status) => status.http(),
            None => self.reply.status(),
        }
    }

    fn form(&self) -> Option<BodyKind> {
        match self.reply.status() {
            StatusCode::OK if self.failed.is_some() || !self.method.operation.is_stream() => {
                Some(BodyKind::Json)
            }
            StatusCode::OK => Some(BodyKind::Stream),
            // A page of a proxy.
            _ => None,
        }
    }

    /// Reads the next bytes; returns false at the end of the body.
    async fn read_on(&mut self, limit: usize) -> Result<bool, ReplyError> {
        let Some(bytes) = self.reply.chunk().await? else { return Ok(false) };
        if !self.pieces.add(bytes.len()) {
            return Err(violation("a message of its stream comes in too many small pieces"));
        }
        self.frames.push(&bytes, limit)?;
        Ok(true)
    }

    /// Returns the status after the end of the body.
    fn end(&mut self) -> Result<Option<CallStatus>, ReplyError> {
        (self.is_over, self.held) = (true, None);
        if self.frames.held() > 0 {
            return Err(violation("its answer ends within a message"));
        }
        let trailers = self.reply.trailers().unwrap_or_else(|| self.reply.headers());
        match CallStatus::read(trailers)? {
            Some(status) => Ok(Some(status)),
            None => Err(violation("its answer has no gRPC status")),
        }
    }

    /// Returns the next messages of a stream as events of SSE.
    async fn events(&mut self) -> Result<Option<Bytes>, ReplyError> {
        if self.is_over {
            return Ok(None);
        }
        if self.reply.status() != StatusCode::OK {
            return Err(AgentFailure::HttpStatus(self.reply.status().as_u16()).into());
        }
        let mut out = Vec::new();
        if !self.read_on(self.limit).await? {
            let Some(status) = self.end()?.filter(|status| !status.is_ok()) else { return Ok(None) };
            let error = status.event(self.method)?;
            sse::write_event(&mut out, &error);
            return Ok(Some(out.into()));
        }
        while let Some(message) = self.frames.next(self.limit)? {
            self.pieces = BodyPieces::default();
            let json = self.method.decode(&message, self.limit, "one event")?;
            sse::write_event(&mut out, &json);
        }
        Ok(Some(out.into()))
    }

    /// Returns the one message of a response, or its error.
    async fn value(
        &mut self,
        limit: usize,
        mut count: impl FnMut(usize) -> Result<(), AgentFailure>,
    ) -> Result<Bytes, ReplyError> {
        if self.failed.is_none() {
            if self.reply.status() != StatusCode::OK {
                self.is_over = true;
                return Ok(self.reply.collect(limit).await?);
            }
            if let Some(json) = self.message(limit, &mut count).await? {
                return Ok(json);
            }
        }
        self.is_over = true;
        let error = self.failed.as_ref().map(|status| status.error(self.method)).unwrap_or_default();
        count(error.len())?;
        Ok(error.into())
    }

    /// Returns the one message of a response; `None` if the call has failed.
    async fn message(
        &mut self,
        limit: usize,
        count: &mut impl FnMut(usize) -> Result<(), AgentFailure>,
    ) -> Result<Option<Bytes>, ReplyError> {
        let too_large = |failure| match failure {
            ReplyError::Agent(AgentFailure::LimitExceeded(limit, _)) => {
                AgentFailure::LimitExceeded(limit, "one answer").into()
            }
            other => other,
        };
        let mut message = None;
        loop {
            let next = self.frames.next(limit).map_err(|error| too_large(error.into()))?;
            if let Some(next) = next {
                if message.replace(next).is_some() {
                    return Err(violation("it answers a call of one message with several"));
                }
                continue;
            }
            count(self.frames.expected().min(limit) + message.as_ref().map_or(0, Bytes::len))?;
            if !self.read_on(limit).await.map_err(too_large)? {
                break;
            }
        }
        if let Some(status) = self.end()?.filter(|status| !status.is_ok()) {
            self.failed = Some(status);
            return Ok(None);
        }
        let message = message.ok_or_else(|| violation("its answer has no message"))?;
        let json = self.method.decode(&message, limit, "one answer")?;
        drop(message);
        count(json.len())?;
        Ok(Some(json.into()))
    }
}

fn is_grpc(head: &HeaderMap) -> bool {
    let value = head.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let name = value.split(';').next().unwrap_or_default().trim();
    ["application/grpc", "application/grpc+proto"].iter().any(|known| name.eq_ignore_ascii_case(known))
}

/// The status at the end of a call, as a response of HTTP+JSON.
#[derive(Debug, Clone, PartialEq)]
struct CallStatus(grpc::GrpcStatus);

impl CallStatus {
    /// Reads the status of trailers; `None` if they have none.
    fn read(trailers: &HeaderMap) -> Result<Option<Self>, ReplyError> {
        let Some(code) = trailers.get(STATUS) else { return Ok(None) };
        let message = trailers.get(MESSAGE).map(HeaderValue::as_bytes).unwrap_or_default();
        let details = trailers.get(DETAILS).and_then(|value| value.to_str().ok());
        let status = code.to_str().ok().and_then(|code| grpc::GrpcStatus::read(code, message, details));
        status.map(|status| Some(Self(status))).ok_or_else(|| violation("its gRPC status is no number"))
    }

    fn is_ok(&self) -> bool {
        self.0.code == 0
    }

    fn http(&self) -> StatusCode {
        match self.0.name() {
            // By the server, which stops.
            "CANCELLED" => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::from_u16(self.0.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
        }
    }

    /// Returns the code of JSON-RPC that means the same; `None` if the status says nothing about the
    /// request: it fails as its status of HTTP does.
    fn rpc_code(&self, operation: Operation) -> Option<i32> {
        match (self.0.name(), operation) {
            ("NOT_FOUND" | "FAILED_PRECONDITION", Operation::ExtendedCard) => Some(-32007),
            ("FAILED_PRECONDITION", Operation::Cancel) => Some(-32002),
            ("NOT_FOUND", _) => Some(-32001),
            ("INVALID_ARGUMENT" | "OUT_OF_RANGE", _) => Some(-32602),
            ("ALREADY_EXISTS" | "FAILED_PRECONDITION", _) => Some(-32600),
            ("UNIMPLEMENTED", _) => Some(-32601),
            ("UNKNOWN" | "ABORTED" | "INTERNAL" | "DATA_LOSS", _) => Some(-32603),
            _ => None,
        }
    }

    /// Returns the error as HTTP+JSON has it, of the same version.
    fn error(&self, method: GrpcMethod) -> Vec<u8> {
        let (http, rpc) = (self.http().as_u16(), self.rpc_code(method.operation));
        let Self(grpc::GrpcStatus { message, info, .. }) = self;
        let error = match (method.dialect, self.class()) {
            (Dialect::V1, _) => {
                let details: Vec<Value> = info.iter().map(error_info).collect();
                let name = self.0.name();
                json!({ "error": {
                    "code": http, "rpcCode": rpc, "status": name, "message": message, "details": details,
                }})
            }
            // As the official SDKs write it: `TaskNotFoundError: Task not found`.
            (Dialect::V0_1 | Dialect::V0_3, Some((class, message))) => {
                json!({ "error": class, "message": message })
            }
            (Dialect::V0_1 | Dialect::V0_3, None) => {
                json!({ "code": rpc.unwrap_or(http.into()), "message": message })
            }
        };
        error.to_string().into_bytes()
    }

    /// Returns the error of a stream as the data of an event.
    ///
    /// # Errors
    ///
    /// The failure of the stream, if the status says nothing about the request.
    fn event(&self, method: GrpcMethod) -> Result<Vec<u8>, ReplyError> {
        if self.rpc_code(method.operation).is_some() || self.0.info.is_some() {
            return Ok(self.error(method));
        }
        Err(ReplyError::Agent(match self.http().as_u16() {
            status @ (401 | 403) => AgentFailure::Unauthorized(status),
            504 => AgentFailure::Timeout("it took too long altogether"),
            status => AgentFailure::HttpStatus(status),
        }))
    }

    /// Returns the class of an error and its words, as servers of 0.3 write them.
    fn class(&self) -> Option<(&str, &str)> {
        let (class, message) = self.0.message.split_once(':')?;
        let is_class = class.ends_with("Error") && class.bytes().all(|byte| byte.is_ascii_alphanumeric());
        is_class.then(|| (class, message.trim_start()))
    }
}

fn error_info(info: &grpc::ErrorInfo) -> Value {
    let grpc::ErrorInfo { reason, domain } = info;
    json!({ "@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": reason, "domain": domain })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeout_has_at_most_eight_digits() {
        use std::time::Duration;
        for (time, said) in [
            (Duration::from_millis(1500), Some("1500m")),
            (Duration::from_millis(99_999_999), Some("99999999m")),
            (Duration::from_secs(604_800), Some("604800S")),
            (Duration::MAX, None),
        ] {
            let found = timeout(time);
            assert_eq!(found.as_ref().map(|value| value.to_str().unwrap()), said, "{time:?}");
        }
    }

    fn status(code: &str, message: &str) -> CallStatus {
        let mut trailers = HeaderMap::new();
        trailers.insert(STATUS, code.parse().unwrap());
        trailers.insert(MESSAGE, message.parse().unwrap());
        CallStatus::read(&trailers).unwrap().unwrap()
    }

    #[test]
    fn status_means_what_its_error_means_by_http() {
        use crate::a2a::{AgentError, AgentInterface, Binding, ErrorKind};
        for (dialect, operation, code, message, kind) in [
            (Dialect::V1, Operation::Get, "5", "no%20such%20task", Some(ErrorKind::TaskNotFound)),
            (Dialect::V0_3, Operation::Get, "5", "gone", Some(ErrorKind::TaskNotFound)),
            (Dialect::V0_3, Operation::Get, "5", "TaskNotFoundError: gone", Some(ErrorKind::TaskNotFound)),
            (
                Dialect::V0_3,
                Operation::Cancel,
                "12",
                "TaskNotCancelableError: over",
                Some(ErrorKind::TaskNotCancelable),
            ),
            (Dialect::V1, Operation::Cancel, "9", "over", Some(ErrorKind::TaskNotCancelable)),
            (Dialect::V1, Operation::ExtendedCard, "9", "none", Some(ErrorKind::ExtendedCard)),
            (Dialect::V1, Operation::Send, "3", "no", Some(ErrorKind::InvalidParams)),
            (Dialect::V0_3, Operation::Send, "3", "no", Some(ErrorKind::InvalidParams)),
            (Dialect::V1, Operation::Send, "12", "", Some(ErrorKind::MethodNotFound)),
            (Dialect::V0_3, Operation::Send, "12", "", Some(ErrorKind::MethodNotFound)),
            (Dialect::V1, Operation::Send, "13", "broken", Some(ErrorKind::Internal)),
            (Dialect::V1, Operation::Send, "99", "odd", Some(ErrorKind::Internal)),
            (Dialect::V1, Operation::Send, "14", "soon", None),
            (Dialect::V0_3, Operation::Send, "14", "soon", None),
            (Dialect::V1, Operation::Send, "8", "too much", None),
        ] {
            let interface = AgentInterface {
                url: "http://h/".to_owned(),
                dialect,
                binding: Binding::Grpc,
                tenant: None,
                version: None,
            };
            let status = status(code, message);
            let error = status.error(GrpcMethod { operation, dialect });
            let found = interface.refusal(status.http().as_u16(), &error).map(|error| match error {
                AgentError::Refused { kind, .. } => kind,
                AgentError::NotA2a(what) => panic!("{what}"),
            });
            assert_eq!(found, kind, "{dialect:?} {code} {message}");
            if kind.is_some() {
                let event = status.event(GrpcMethod { operation, dialect }).unwrap();
                assert!(matches!(interface.event(&event), Err(AgentError::Refused { .. })), "{code}");
            }
        }
    }

    #[test]
    fn status_that_is_no_number_is_a_violation() {
        let mut trailers = HeaderMap::new();
        assert!(CallStatus::read(&trailers).unwrap().is_none());
        trailers.insert(STATUS, "five".parse().unwrap());
        assert!(CallStatus::read(&trailers).is_err());
    }
}
