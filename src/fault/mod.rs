//! The rejections of a request before an agent is contacted, with the party to blame and the text
//! for the client; the failures at an agent, and the delays of a live task, with their texts for the
//! model; and `Abort`, the end of a request before its result.
//!
//! One table turns a fault into HTTP status, JSON-RPC code and public text, by era
//! (`docs/spec/mcp.md §4`). A failure at an agent is a tool result with `isError`, never an error of
//! JSON-RPC: a model can try again, choose another tool, or notify its user. The agent's own words are
//! quoted if it gave any; hosts, addresses and headers are not revealed. A delay is no failure: the
//! task may still complete.

use std::time::Duration;

use http::StatusCode;
use serde_json::json;
use serde_json::value::RawValue;

use crate::mcp::{ClientCapabilities, Era, Version};

/// Most characters of a client's name that a text repeats.
const MAX_QUOTED_CHARS: usize = 100;
/// Most characters of a client's URI that a text repeats.
const MAX_QUOTED_URI_CHARS: usize = 1024;

/// The party that can correct a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Blame {
    /// The program that sent the request.
    Client,
    /// The agent or its owner.
    Agent,
    /// The gateway or its operator.
    Gateway,
}

/// The reason for which a request is rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The body is not JSON.
    #[error("the body is not JSON: {0}")]
    ParseError(String),
    /// The body is JSON and not a JSON-RPC 2.0 message.
    #[error("the body is not a JSON-RPC 2.0 message: {0}")]
    InvalidRequest(String),
    /// No such method in this era.
    #[error("no such method: {0}")]
    UnknownMethod(String),
    /// The params do not fit the method.
    #[error("bad params: {0}")]
    InvalidParams(String),
    /// A modern request without the members that `_meta` must have.
    #[error("bad _meta: {0}")]
    InvalidRequestMeta(String),
    /// A header contradicts the body, or is missing.
    #[error("header and body disagree: {0}")]
    HeaderMismatch(String),
    /// A revision that the gateway does not support.
    #[error("protocol version {0:?} is not supported")]
    UnsupportedVersion(String),
    /// No such tool, or none that this caller may use: the two read the same.
    #[error("unknown tool: {0}")]
    NoSuchTool(String),
    /// The client does not support a capability that the request needs, or has not declared it.
    #[error("this request needs client capabilities that it does not declare; error.data names them")]
    MissingCapability(ClientCapabilities),
    /// The tool runs as a task only, and the call does not ask for one.
    #[error("tool {0} runs only as a task: call it with task")]
    TaskRequired(String),
    /// The tool never runs as a task, and the call asks for one.
    #[error("tool {0} does not run as a task: call it without task")]
    TaskNotSupported(String),
    /// No such task, or none that this caller may see.
    #[error("unknown task: it does not exist, has expired, is not yours, or its agent was removed")]
    UnknownTask,
    /// The task has ended, so that it cannot be cancelled any more.
    #[error("the task is over: it cannot be cancelled any more")]
    TaskTerminated,
    /// The limit of tasks is reached.
    #[error("too many tasks are under way: try again later")]
    TasksFull,
    /// A `requestState` that is not one, has expired, or belongs to another call or caller.
    #[error("unknown requestState: call again without it")]
    InvalidRequestState,
    /// No such resource, or none that this caller may see.
    #[error("no such resource: {0}")]
    NoSuchResource(String),
    /// The request needs a session and has none.
    #[error("this request needs a session: send initialize first, then its Mcp-Session-Id")]
    SessionRequired,
    /// The session is unknown, expired, ended, or another caller's.
    #[error("session not found: send initialize again")]
    SessionNotFound,
    /// The query of a URL cannot be used.
    #[error("bad query: {0}")]
    BadQuery(String),
    /// No such path, or an agent in it that is invisible to this caller: the two read the same.
    #[error(
        "no such path, or no such agent: MCP is served at /mcp and /mcp/AGENT, A2A at /a2a/AGENT, where the listener has these \
         services; the resource a2a://agents/registry and GET /a2a say which agents there are"
    )]
    NoSuchPath,
    /// The path exists, the method does not.
    #[error("method not allowed here; allowed: {0}")]
    MethodNotAllowed(&'static str),
    /// The body is not declared as JSON.
    #[error("Content-Type must be application/json")]
    UnsupportedMediaType,
    /// The body is encoded.
    #[error("Content-Encoding is not taken; send the body as it is")]
    UnsupportedContentEncoding,
    /// The body is longer than the limit, in bytes.
    #[error("the body is longer than {0} bytes")]
    BodyTooLarge(usize),
    /// The header is longer than the limit, in bytes.
    #[error("the header is longer than {0} bytes")]
    HeaderTooLarge(usize),
    /// The body did not arrive in time.
    #[error("the body did not arrive in time")]
    BodyTimeout,
    /// The client closed the connection before its body was complete.
    #[error("the body was cut off")]
    BodyIncomplete,
    /// The `Host` header is missing, doubled or not one of ours.
    #[error("Host {0:?} is not served here; the operator can list it under mcp.allowed_hosts")]
    HostRefused(String),
    /// The `Origin` is not one that may use the gateway.
    #[error("Origin {0:?} may not use this gateway; the operator can list it under mcp.allowed_origins")]
    OriginRefused(String),
    /// The caller has not authenticated, or not well. Holds the challenge for `WWW-Authenticate`;
    /// empty: none.
    #[error("credentials are missing or not valid")]
    Unauthenticated(String),
    /// Credentials that are present twice, so that it is ambiguous which count.
    #[error("the header {0} is there twice, or is not readable")]
    DuplicateCredentials(String),
    /// The token lacks scopes. Holds the challenge for `WWW-Authenticate`, which names them.
    #[error("the token lacks a scope that this needs")]
    InsufficientScope(String),
    /// The rules do not allow the request, and the existence of its object is no secret.
    #[error("you may not do this here")]
    Forbidden,
    /// The caller cannot be authenticated now.
    #[error("credentials cannot be checked now: try again later")]
    AuthUnavailable,
    /// The client's certificate was valid when it connected; since then it has expired or been
    /// revoked.
    #[error("the client certificate is no longer accepted: connect again with another one")]
    CertificateNoLongerValid,
    /// The connection was made for another host, which has another certificate.
    #[error("this connection was made for another host: make one for this host")]
    Misdirected,
    /// More requests in a second than this caller may send. Holds the seconds until the next one.
    #[error("too many requests: come back in {0} s")]
    RateLimited(u64),
    /// More at once than this caller may have.
    #[error("{0}: wait for one of them to end")]
    QuotaExceeded(&'static str),
    /// The requests and the unread answers of this caller hold as many bytes as they may.
    #[error("your requests and unread answers hold as many bytes as they may: wait for one of them to end")]
    CallerBytes,
    /// The requests and the unread answers of all callers hold as many bytes as they may.
    #[error("the gateway is busy: requests and unread answers hold as many bytes as they may")]
    Bytes,
    /// The body comes in so many small chunks that reading it costs too much.
    #[error("the body comes in too many small pieces")]
    BodyInPieces,
    /// The gateway is at a limit.
    #[error("the gateway is busy: {0}")]
    Busy(&'static str),
    /// The agent does not report the state of a task.
    #[error("the agent cannot be asked about this task now: try again later")]
    AgentUnavailable,
    /// A resource is read from another system, which does not give it.
    #[error("the resource cannot be read now from where it is kept: {0}")]
    ResourceUnavailable(String),
    /// The process ends before there is a response.
    #[error(
        "the gateway ends before the agent has answered; what the agent has begun goes on: ask for the task again in a moment"
    )]
    Ending,
    /// A bug of the gateway.
    #[error("internal error")]
    Internal,
}

/// A fault as numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OnWire {
    /// HTTP status.
    pub status: StatusCode,
    /// JSON-RPC code.
    pub code: i32,
}

impl Fault {
    /// Returns the fault for an unknown method, with the beginning of its name.
    #[must_use]
    pub fn unknown_method(name: &str) -> Self {
        Self::UnknownMethod(name.chars().take(MAX_QUOTED_CHARS).collect())
    }

    /// Returns the fault for an unknown tool, with the beginning of its name.
    #[must_use]
    pub fn no_such_tool(name: &str) -> Self {
        Self::NoSuchTool(name.chars().take(MAX_QUOTED_CHARS).collect())
    }

    /// Returns the fault for an unknown resource, with the beginning of its URI.
    #[must_use]
    pub fn no_such_resource(uri: &str) -> Self {
        Self::NoSuchResource(uri.chars().take(MAX_QUOTED_URI_CHARS).collect())
    }

    /// Returns HTTP status and JSON-RPC code. The only place where a fault becomes numbers.
    ///
    /// Legacy clients lose the error of any response that is not 2xx, so an error of JSON-RPC only
    /// is 200 there.
    pub(crate) fn on_wire(&self, era: Era) -> OnWire {
        let modern = era == Era::Modern;
        let (status, code) = match self {
            Self::ParseError(_) => (StatusCode::BAD_REQUEST, -32700),
            Self::InvalidRequest(_) => (StatusCode::BAD_REQUEST, -32600),
            Self::UnknownMethod(_) if modern => (StatusCode::NOT_FOUND, -32601),
            Self::UnknownMethod(_) => (StatusCode::OK, -32601),
            Self::TaskRequired(_) | Self::TaskNotSupported(_) => (StatusCode::OK, -32601),
            Self::InvalidParams(_) | Self::NoSuchTool(_) => (StatusCode::OK, -32602),
            Self::UnknownTask | Self::TaskTerminated | Self::InvalidRequestState => (StatusCode::OK, -32602),
            Self::MissingCapability(_) if modern => (StatusCode::BAD_REQUEST, -32021),
            Self::MissingCapability(_) => (StatusCode::OK, -32602),
            Self::TasksFull if modern => (StatusCode::SERVICE_UNAVAILABLE, -32603),
            Self::Ending if modern => (StatusCode::SERVICE_UNAVAILABLE, -32603),
            Self::TasksFull | Self::Ending => (StatusCode::OK, -32603),
            Self::InvalidRequestMeta(_) | Self::BadQuery(_) => (StatusCode::BAD_REQUEST, -32602),
            Self::HeaderMismatch(_) => (StatusCode::BAD_REQUEST, -32020),
            Self::UnsupportedVersion(_) => (StatusCode::BAD_REQUEST, -32022),
            Self::NoSuchResource(_) => (StatusCode::OK, if modern { -32602 } else { -32002 }),
            Self::SessionRequired => (StatusCode::BAD_REQUEST, -32600),
            Self::SessionNotFound => (StatusCode::NOT_FOUND, -32001),
            Self::NoSuchPath => (StatusCode::NOT_FOUND, -32600),
            Self::MethodNotAllowed(_) => (StatusCode::METHOD_NOT_ALLOWED, -32600),
            Self::UnsupportedMediaType | Self::UnsupportedContentEncoding => {
                (StatusCode::UNSUPPORTED_MEDIA_TYPE, -32600)
            }
            Self::BodyTooLarge(_) => (StatusCode::PAYLOAD_TOO_LARGE, -32600),
            Self::HeaderTooLarge(_) => (StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, -32600),
            Self::BodyTimeout => (StatusCode::REQUEST_TIMEOUT, -32600),
            Self::BodyIncomplete | Self::BodyInPieces => (StatusCode::BAD_REQUEST, -32600),
            Self::HostRefused(_) | Self::OriginRefused(_) | Self::CertificateNoLongerValid => {
                (StatusCode::FORBIDDEN, -32600)
            }
            Self::Misdirected => (StatusCode::MISDIRECTED_REQUEST, -32600),
            Self::RateLimited(_) | Self::QuotaExceeded(_) | Self::CallerBytes => {
                (StatusCode::TOO_MANY_REQUESTS, -32603)
            }
            Self::Unauthenticated(_) => (StatusCode::UNAUTHORIZED, -32600),
            Self::DuplicateCredentials(_) => (StatusCode::BAD_REQUEST, -32600),
            Self::InsufficientScope(_) | Self::Forbidden => (StatusCode::FORBIDDEN, -32600),
            Self::Busy(_) | Self::Bytes | Self::AuthUnavailable => (StatusCode::SERVICE_UNAVAILABLE, -32603),
            Self::AgentUnavailable | Self::ResourceUnavailable(_) | Self::Internal => {
                (StatusCode::OK, -32603)
            }
        };
        OnWire { status, code }
    }

    /// Returns the same for clients of A2A: their SDKs lose the error of any response that is not
    /// 2xx.
    pub(crate) fn on_a2a_wire(&self) -> OnWire {
        let wire = self.on_wire(Era::Legacy);
        match self {
            Self::ParseError(_) | Self::InvalidRequest(_) => OnWire { status: StatusCode::OK, ..wire },
            Self::UnknownTask => OnWire { code: -32001, ..wire },
            Self::TasksFull => self.on_wire(Era::Modern),
            _ => wire,
        }
    }

    /// Returns the `data` member of the error, where the specification defines one.
    pub fn data(&self) -> Option<Box<RawValue>> {
        let data = match self {
            Self::UnsupportedVersion(requested) => {
                json!({ "supported": Version::MODERN.map(Version::as_str), "requested": requested })
            }
            Self::NoSuchResource(uri) => json!({ "uri": uri }),
            Self::MissingCapability(needed) => json!({ "requiredCapabilities": needed }),
            _ => return None,
        };
        serde_json::value::to_raw_value(&data).ok()
    }

    /// Returns the party that can correct the fault.
    pub(crate) fn culprit(&self) -> Blame {
        match self {
            Self::Internal
            | Self::Busy(_)
            | Self::Bytes
            | Self::Ending
            | Self::TasksFull
            | Self::AuthUnavailable => Blame::Gateway,
            Self::AgentUnavailable | Self::ResourceUnavailable(_) => Blame::Agent,
            _ => Blame::Client,
        }
    }

    /// Returns the label for metrics and the access log.
    pub fn word(&self) -> &'static str {
        match self {
            Self::ParseError(_) => "parse_error",
            Self::InvalidRequest(_) => "invalid_request",
            Self::UnknownMethod(_) => "unknown_method",
            Self::InvalidParams(_) => "invalid_params",
            Self::InvalidRequestMeta(_) => "invalid_request_meta",
            Self::HeaderMismatch(_) => "header_mismatch",
            Self::UnsupportedVersion(_) => "unsupported_version",
            Self::NoSuchTool(_) => "no_such_tool",
            Self::MissingCapability(_) => "missing_capability",
            Self::TaskRequired(_) => "task_required",
            Self::TaskNotSupported(_) => "task_not_supported",
            Self::UnknownTask => "unknown_task",
            Self::TaskTerminated => "task_terminated",
            Self::TasksFull => "tasks_full",
            Self::InvalidRequestState => "invalid_request_state",
            Self::NoSuchResource(_) => "no_such_resource",
            Self::SessionRequired => "session_required",
            Self::SessionNotFound => "session_not_found",
            Self::BadQuery(_) => "bad_query",
            Self::NoSuchPath => "no_such_path",
            Self::MethodNotAllowed(_) => "method_not_allowed",
            Self::UnsupportedMediaType => "unsupported_media_type",
            Self::UnsupportedContentEncoding => "unsupported_content_encoding",
            Self::BodyTooLarge(_) => "body_too_large",
            Self::HeaderTooLarge(_) => "header_too_large",
            Self::BodyTimeout => "body_timeout",
            Self::BodyIncomplete => "body_incomplete",
            Self::HostRefused(_) => "host_refused",
            Self::OriginRefused(_) => "origin_refused",
            Self::Unauthenticated(_) => "unauthenticated",
            Self::DuplicateCredentials(_) => "duplicate_credentials",
            Self::InsufficientScope(_) => "insufficient_scope",
            Self::Forbidden => "forbidden",
            Self::AuthUnavailable => "auth_unavailable",
            Self::CertificateNoLongerValid => "certificate_no_longer_valid",
            Self::Misdirected => "misdirected",
            Self::RateLimited(_) => "rate_limited",
            Self::QuotaExceeded(_) => "quota_exceeded",
            Self::CallerBytes => "caller_bytes",
            Self::Bytes => "bytes",
            Self::BodyInPieces => "body_in_pieces",
            Self::Busy(_) => "busy",
            Self::AgentUnavailable => "agent_unavailable",
            Self::ResourceUnavailable(_) => "resource_unavailable",
            Self::Ending => "ending",
            Self::Internal => "internal",
        }
    }
}

/// The client disconnected; no response can be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ClientGone;

/// The reason for which a request ends before its result.
#[derive(Debug)]
pub(crate) enum Abort<E = Fault> {
    /// The client gets this error.
    Rejected(E),
    /// The client disconnected.
    ClientGone,
}

impl<E> Abort<E> {
    /// Returns the same reason, with another kind of error.
    pub(crate) fn map<F>(self, change: impl FnOnce(E) -> F) -> Abort<F> {
        match self {
            Self::Rejected(error) => Abort::Rejected(change(error)),
            Self::ClientGone => Abort::ClientGone,
        }
    }
}

impl<E> From<ClientGone> for Abort<E> {
    fn from(_: ClientGone) -> Self {
        Self::ClientGone
    }
}

impl<E: From<Fault>> From<Fault> for Abort<E> {
    fn from(fault: Fault) -> Self {
        Self::Rejected(fault.into())
    }
}

/// The reason for which an agent did not do its work.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AgentFailure {
    /// No connection; nothing was sent.
    #[error("it cannot be reached ({0}); nothing was sent, so that trying again later is safe")]
    Unreachable(&'static str),
    /// Its breaker is open for this many seconds after failures in a row; nothing was sent.
    #[error(
        "it failed again and again, and is not asked for the next {0} s; nothing was sent, so that trying again later is safe"
    )]
    BreakerOpen(u64),
    /// Its card is not available yet.
    #[error("it has not been seen since the gateway started ({0}); try again later")]
    CardUnavailable(String),
    /// Its card requires more than the operator configured.
    #[error("it cannot be used: {0}")]
    CardInvalid(String),
    /// It did not respond in time.
    #[error("it did not answer in time ({0}); whether it did the work is not known")]
    Timeout(&'static str),
    /// The connection broke, and the outcome of the work is unknown.
    #[error("the connection to it broke ({0}); whether it did the work is not known")]
    ConnectionLost(&'static str),
    /// It does not accept the gateway's credentials.
    #[error("it does not accept the gateway's credentials (HTTP {0}); its operator has to be told")]
    Unauthorized(u16),
    /// The gateway has no token for it; nothing was sent.
    #[error(
        "the gateway could not get a token for it ({0}); nothing was sent, and the gateway's operator has to be told"
    )]
    TokenUnavailable(&'static str),
    /// The caller's token cannot be exchanged for one; nothing was sent.
    #[error(
        "the gateway could not get a token for it on the caller's behalf ({0}); nothing was sent: call again with a fresh token of \
         your own"
    )]
    TokenExchangeFailed(&'static str),
    /// It responded with an HTTP status that is not a JSON-RPC response.
    #[error("it answered with HTTP {0}")]
    HttpStatus(u16),
    /// It rejected the request, in its own words.
    #[error("it refused: {0}")]
    Rejected(String),
    /// It does not support the version of A2A of the request; it has not begun anything.
    #[error("it does not speak the A2A version that its card promises: {0}")]
    VersionNotSupported(String),
    /// It does not know the task.
    #[error("it does not know this task any more; the task has expired or was lost")]
    TaskNotFound,
    /// Its id of the task cannot be part of a path, and it is called by paths; nothing was sent.
    #[error(
        "it is called by paths (HTTP+JSON), and the id that it gave the task is no segment of a path; nothing was sent"
    )]
    UnsafeId,
    /// It violated the protocol.
    #[error("it broke the A2A protocol: {0}")]
    ProtocolViolation(String),
    /// It sent more than the limit.
    #[error("it sent more than {0} bytes in {1}")]
    LimitExceeded(usize, &'static str),
    /// The requests and the unread answers of the caller hold as many bytes as they may.
    #[error(
        "the gateway has no room for its answer: requests and unread answers of yours hold as many bytes as they may; read those, then \
         ask again"
    )]
    CallerBytes,
    /// The requests and the unread answers of all callers hold as many bytes as they may.
    #[error(
        "the gateway has no room for its answer: requests and unread answers hold as many bytes as they may; ask again later"
    )]
    Bytes,
    /// The gateway shuts down or has no room.
    #[error("the gateway could not follow the work: {0}")]
    Internal(&'static str),
}

impl AgentFailure {
    /// Returns true if the failure says nothing about a task: the agent may be back soon.
    pub fn is_transient(&self) -> bool {
        matches!(
            self,
            Self::Unreachable(_)
                | Self::BreakerOpen(_)
                | Self::TokenUnavailable(_)
                | Self::Timeout(_)
                | Self::ConnectionLost(_)
                | Self::HttpStatus(408 | 429 | 500..)
                | Self::CallerBytes
                | Self::Bytes
        )
    }

    /// Returns true if the failure means that the agent cannot be reached at present.
    pub fn is_unavailable(&self) -> bool {
        matches!(
            self,
            Self::Unreachable(_)
                | Self::BreakerOpen(_)
                | Self::Timeout(_)
                | Self::ConnectionLost(_)
                | Self::HttpStatus(500..)
        )
    }
}

impl AgentFailure {
    /// Returns the text for the model.
    pub(crate) fn public_message(&self, agent: &str) -> String {
        format!("Agent {agent:?} did not complete the call: {self}.")
    }

    /// Returns the label for metrics and the access log.
    pub(crate) fn label(&self) -> &'static str {
        match self {
            Self::Unreachable(_) => "unreachable",
            Self::BreakerOpen(_) => "breaker_open",
            Self::CardUnavailable(_) => "card_unavailable",
            Self::CardInvalid(_) => "card_invalid",
            Self::Timeout(_) => "timeout",
            Self::ConnectionLost(_) => "connection_lost",
            Self::Unauthorized(_) => "unauthorized",
            Self::TokenUnavailable(_) => "token_unavailable",
            Self::TokenExchangeFailed(_) => "token_exchange_failed",
            Self::HttpStatus(_) => "http_status",
            Self::Rejected(_) => "rejected",
            Self::VersionNotSupported(_) => "version_not_supported",
            Self::TaskNotFound => "task_not_found",
            Self::UnsafeId => "unsafe_id",
            Self::ProtocolViolation(_) => "protocol_violation",
            Self::LimitExceeded(..) => "limit_exceeded",
            Self::CallerBytes => "caller_bytes",
            Self::Bytes => "bytes",
            Self::Internal(_) => "internal",
        }
    }
}

/// The reason for which a live task makes no progress at present, as far as it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskDelay {
    /// The agent ended its stream without ending the task, and the task has not changed for this
    /// time.
    Stalled(Duration),
    /// The agent cannot be asked for the state of the task.
    Unreached,
}

impl TaskDelay {
    /// Returns the text for the model.
    pub fn told(self, agent: &str) -> String {
        match self {
            Self::Stalled(after) => format!(
                "Agent {agent:?} ended its stream without ending the task, and the task has not changed for {} s: the work may have \
                 stopped. Look again later, or cancel the task.",
                after.as_secs_f64().ceil()
            ),
            Self::Unreached => {
                format!(
                    "Agent {agent:?} cannot be reached at present: this is the last that is known of the task."
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_method_is_404_for_modern_clients_only() {
        let fault = Fault::UnknownMethod("x".into());
        assert_eq!(fault.on_wire(Era::Modern), OnWire { status: StatusCode::NOT_FOUND, code: -32601 });
        assert_eq!(fault.on_wire(Era::Legacy), OnWire { status: StatusCode::OK, code: -32601 });
    }

    #[test]
    fn codes_that_the_modern_era_forbids_are_never_used_there() {
        let fault = Fault::NoSuchResource("a://b".into());
        assert_eq!(fault.on_wire(Era::Modern).code, -32602);
        assert_eq!(fault.on_wire(Era::Legacy).code, -32002);
        assert_eq!(fault.data().unwrap().get(), r#"{"uri":"a://b"}"#);
    }

    #[test]
    fn a_missing_capability_is_named() {
        let fault = Fault::MissingCapability(ClientCapabilities::TASKS_EXTENSION);
        assert_eq!(fault.on_wire(Era::Modern), OnWire { status: StatusCode::BAD_REQUEST, code: -32021 });
        let data = fault.data().unwrap();
        let needed = r#"{"requiredCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}}"#;
        assert_eq!(data.get(), needed);
    }

    #[test]
    fn legacy_faults_are_no_http_errors() {
        for fault in [
            Fault::MissingCapability(ClientCapabilities::FORM),
            Fault::TaskRequired("t".into()),
            Fault::TaskNotSupported("t".into()),
            Fault::UnknownTask,
            Fault::TaskTerminated,
            Fault::TasksFull,
            Fault::InvalidRequestState,
        ] {
            assert_eq!(fault.on_wire(Era::Legacy).status, StatusCode::OK, "{fault:?}");
        }
        assert_eq!(Fault::TasksFull.on_wire(Era::Modern).status, StatusCode::SERVICE_UNAVAILABLE);
    }

    /// The page before the table of rejected requests.
    const ERRORS_HEAD: &str = r#"# Errors

Generated from the source by `UPDATE=1 cargo test --lib reference`; not to be edited.

## Rejected requests

The body is a JSON-RPC error. Legacy clients lose errors that are not HTTP 2xx, so theirs are 200 where the request itself was
sound. A status and a code before "modern" are those of legacy clients. A 401 and a 403 for scopes carry `WWW-Authenticate`, a 429
and a 503 `Retry-After`. Clients of A2A get -32001 for `unknown_task`, HTTP 200 for errors of the body, and the rest as legacy
clients.

Wrong arguments of a tool, and handles that are unknown or altered, are tool results with `isError: true` (HTTP 200), so that a model
can correct itself: `Invalid arguments: /days: 99 is greater than the maximum of 14; "city" is a required property.`

| `fault` in the access log | HTTP | Code | Meaning | Text |
|---|---|---|---|---|
"#;

    /// The page before the table of failures.
    const FAILURES_HEAD: &str = r#"
## Failures at an agent

Always a tool result with `isError: true`, so that a model can act on it: `Agent "weather" did not complete the call: … .` If the agent
had named a task, the result adds its last known state and the handle.

| `fault` in the access log | Meaning | Text |
|---|---|---|
"#;

    /// A value of every variant, in the order of their declaration.
    fn every_fault() -> Vec<Fault> {
        let text = || "…".to_owned();
        vec![
            Fault::ParseError(text()),
            Fault::InvalidRequest(text()),
            Fault::UnknownMethod(text()),
            Fault::InvalidParams(text()),
            Fault::InvalidRequestMeta(text()),
            Fault::HeaderMismatch(text()),
            Fault::UnsupportedVersion(text()),
            Fault::NoSuchTool(text()),
            Fault::MissingCapability(ClientCapabilities::FORM),
            Fault::TaskRequired(text()),
            Fault::TaskNotSupported(text()),
            Fault::UnknownTask,
            Fault::TaskTerminated,
            Fault::TasksFull,
            Fault::InvalidRequestState,
            Fault::NoSuchResource(text()),
            Fault::SessionRequired,
            Fault::SessionNotFound,
            Fault::BadQuery(text()),
            Fault::NoSuchPath,
            Fault::MethodNotAllowed("…"),
            Fault::UnsupportedMediaType,
            Fault::UnsupportedContentEncoding,
            Fault::BodyTooLarge(1),
            Fault::HeaderTooLarge(1),
            Fault::BodyTimeout,
            Fault::BodyIncomplete,
            Fault::HostRefused(text()),
            Fault::OriginRefused(text()),
            Fault::Unauthenticated(text()),
            Fault::DuplicateCredentials(text()),
            Fault::InsufficientScope(text()),
            Fault::Forbidden,
            Fault::AuthUnavailable,
            Fault::CertificateNoLongerValid,
            Fault::Misdirected,
            Fault::RateLimited(1),
            Fault::QuotaExceeded("…"),
            Fault::CallerBytes,
            Fault::Bytes,
            Fault::BodyInPieces,
            Fault::Busy("…"),
            Fault::AgentUnavailable,
            Fault::ResourceUnavailable(text()),
            Fault::Ending,
            Fault::Internal,
        ]
    }

    fn every_failure() -> Vec<AgentFailure> {
        let text = || "…".to_owned();
        vec![
            AgentFailure::Unreachable("…"),
            AgentFailure::BreakerOpen(1),
            AgentFailure::CardUnavailable(text()),
            AgentFailure::CardInvalid(text()),
            AgentFailure::Timeout("…"),
            AgentFailure::ConnectionLost("…"),
            AgentFailure::Unauthorized(401),
            AgentFailure::TokenUnavailable("…"),
            AgentFailure::TokenExchangeFailed("…"),
            AgentFailure::HttpStatus(500),
            AgentFailure::Rejected(text()),
            AgentFailure::VersionNotSupported(text()),
            AgentFailure::TaskNotFound,
            AgentFailure::UnsafeId,
            AgentFailure::ProtocolViolation(text()),
            AgentFailure::LimitExceeded(1, "…"),
            AgentFailure::CallerBytes,
            AgentFailure::Bytes,
            AgentFailure::Internal("…"),
        ]
    }

    /// The variants of an enum in a source file, each with its comment and its text.
    fn variants(source: &str, name: &str) -> Vec<(String, String, String)> {
        let (_, body) = source.split_once(&format!("pub enum {name} {{\n")).unwrap();
        let (body, _) = body.split_once("\n}\n").unwrap();
        let (mut found, mut comment, mut text) = (Vec::new(), String::new(), String::new());
        for line in body.lines().map(str::trim) {
            if let Some(more) = line.strip_prefix("///") {
                comment += more;
            } else if let Some(variant) =
                line.strip_suffix(',').filter(|line| line.starts_with(char::is_uppercase))
            {
                let variant = variant.split('(').next().unwrap().to_owned();
                let text = std::mem::take(&mut text).replace("\\ ", "").replace(" )]", "");
                let text =
                    text.trim_start_matches("#[error(").trim_end_matches(")]").trim().trim_matches('"');
                let text =
                    text.replace("{0}", "…").replace("{0:?}", "…").replace("{1}", "…").replace('|', "\\|");
                let comment = std::mem::take(&mut comment);
                // The content of a variant is of no use to a reader of the page.
                let meaning = comment.split(" Holds ").next().unwrap_or_default().trim().to_owned();
                found.push((variant, meaning, text));
            } else {
                text = format!("{text} {line}").trim().to_owned();
            }
        }
        found
    }

    /// The page of the errors, from the declarations and what each becomes on the wire.
    fn errors_reference() -> String {
        let mut page = ERRORS_HEAD.to_owned();
        let declared = variants(include_str!("mod.rs"), "Fault");
        let faults = every_fault();
        assert_eq!(declared.len(), faults.len(), "the list of faults is not complete");
        for (fault, (variant, meaning, text)) in faults.iter().zip(declared) {
            assert!(
                format!("{fault:?}").starts_with(&variant),
                "{fault:?} stands where {variant} is declared"
            );
            let (legacy, modern) = (fault.on_wire(Era::Legacy), fault.on_wire(Era::Modern));
            let both = |legacy: String, modern: String| {
                if legacy == modern { legacy } else { format!("{legacy}; modern {modern}") }
            };
            let status = both(legacy.status.as_u16().to_string(), modern.status.as_u16().to_string());
            let code = both(legacy.code.to_string(), modern.code.to_string());
            page += &format!("| `{}` | {status} | {code} | {meaning} | {text} |\n", fault.word());
        }
        page += FAILURES_HEAD;
        let declared = variants(include_str!("mod.rs"), "AgentFailure");
        let failures = every_failure();
        assert_eq!(declared.len(), failures.len(), "the list of failures is not complete");
        for (failure, (variant, meaning, text)) in failures.iter().zip(declared) {
            assert!(
                format!("{failure:?}").starts_with(&variant),
                "{failure:?} stands where {variant} is declared"
            );
            page += &format!("| `{}` | {meaning} | … {text}. |\n", failure.label());
        }
        page
    }

    #[test]
    fn reference_of_errors_is_current() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/reference/errors.md");
        let generated = errors_reference();
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(path, &generated).unwrap();
        }
        let written = std::fs::read_to_string(path).unwrap_or_default();
        assert!(written == generated, "regenerate it: UPDATE=1 cargo test --lib reference");
    }

    #[test]
    fn an_unsupported_version_says_which_are() {
        let data = Fault::UnsupportedVersion("v9".into()).data().unwrap();
        assert_eq!(data.get(), r#"{"requested":"v9","supported":["2026-07-28"]}"#);
    }
}
