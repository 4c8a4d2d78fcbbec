//! A2A error: the reason for which a client gets no response of its agent, in the form of the client's
//! binding and version; and A2A operations as metrics labels and as settings of an agent.
//!
//! Reads docs/spec/a2a.md §1.9. An agent failure becomes error -32603 with the text that MCP clients
//! get; the agent's own HTTP errors and challenges are not forwarded. JSON-RPC errors of agents are
//! forwarded elsewhere. See also `a2a::translate` for the names of operations in each version.

use http::StatusCode;
use serde::Serialize;
use serde_json::json;
use serde_json::value::RawValue;

use crate::a2a::Dialect;
use crate::a2a::translate::Operation;
use crate::config::AgentMethod;
use crate::fault::{Abort, AgentFailure, Fault, OnWire};
use crate::http_edge::{Headers, fault_headers};
use crate::jsonrpc::{Id, write_error};
use crate::telemetry::label::Method as Label;

/// Reason for which there is no response of the agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum A2aError {
    /// The request is rejected.
    Fault(Fault),
    /// The agent failed.
    Agent(AgentFailure),
    /// The client's version has no such method, or is not served here.
    Version,
    /// Pushes to this caller are not possible.
    NoPush,
    /// A webhook URL that is not allowed.
    BadPush(String),
    /// The agent's version has no such operation.
    NoCounterpart(Operation, Dialect),
    /// The agent's binding has no methods of extensions.
    NoMethods,
}

impl From<Fault> for A2aError {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl From<AgentFailure> for A2aError {
    fn from(failure: AgentFailure) -> Self {
        Self::Agent(failure)
    }
}

impl From<A2aError> for Abort<A2aError> {
    fn from(error: A2aError) -> Self {
        Self::Rejected(error)
    }
}

impl From<AgentFailure> for Abort<A2aError> {
    fn from(failure: AgentFailure) -> Self {
        Self::Rejected(failure.into())
    }
}

/// Error in the form for an A2A client.
#[derive(Debug)]
pub(super) struct ErrorBody {
    pub(super) wire: OnWire,
    message: String,
    /// Name of the error in A2A 1.0, if A2A defines it.
    reason: Option<&'static str>,
}

impl A2aError {
    /// Returns the error for the client.
    pub(super) fn to_json(&self, agent: &str) -> ErrorBody {
        const ERROR: OnWire = OnWire { status: StatusCode::OK, code: -32603 };
        match self {
            Self::Fault(fault @ Fault::UnknownTask) => {
                let message = "Task not found".to_owned();
                ErrorBody { wire: fault.on_a2a_wire(), message, reason: Some("TASK_NOT_FOUND") }
            }
            Self::Fault(fault) => {
                ErrorBody { wire: fault.on_a2a_wire(), message: fault.to_string(), reason: None }
            }
            Self::Agent(failure) => {
                ErrorBody { wire: ERROR, message: failure.public_message(agent), reason: None }
            }
            Self::Version => ErrorBody {
                wire: OnWire { code: -32009, ..ERROR },
                message: "A2A-Version does not go with this method at this agent; see its card".to_owned(),
                reason: Some("VERSION_NOT_SUPPORTED"),
            },
            Self::NoPush => ErrorBody {
                wire: OnWire { code: -32003, ..ERROR },
                message: "Push Notification is not supported".to_owned(),
                reason: Some("PUSH_NOTIFICATION_NOT_SUPPORTED"),
            },
            Self::NoCounterpart(Operation::ExtendedCard, _) => ErrorBody {
                wire: OnWire { code: -32007, ..ERROR },
                message: "the agent has no extended card".to_owned(),
                reason: Some("EXTENDED_AGENT_CARD_NOT_CONFIGURED"),
            },
            Self::NoCounterpart(operation, dialect) => {
                let (word, version) = (operation.as_str(), dialect.version());
                unsupported(format!("the agent speaks A2A {version}, which has nothing like {word}"))
            }
            Self::NoMethods => unsupported(
                "the agent speaks HTTP+JSON or gRPC, which have no methods of extensions".to_owned(),
            ),
            Self::BadPush(why) => {
                let message = format!("the address for push notifications cannot be used: {why}");
                ErrorBody { wire: OnWire { code: -32602, ..ERROR }, message, reason: None }
            }
        }
    }
}

impl A2aError {
    /// Returns the headers of the error response.
    pub(super) fn headers(&self, status: StatusCode) -> Headers {
        match self {
            Self::Fault(fault) => fault_headers(fault, status),
            _ => Vec::new(),
        }
    }
}

impl ErrorBody {
    /// Encodes the error as a JSON-RPC response.
    pub(super) fn rpc(&self, id: Option<&Id>, dialect: Dialect) -> Vec<u8> {
        let data = self.reason.filter(|_| dialect == Dialect::V1).and_then(details);
        write_error(id, self.wire.code, &self.message, data.as_deref())
    }

    /// Returns the HTTP status in the HTTP+JSON binding.
    pub(super) fn rest_status(&self) -> StatusCode {
        self.statuses().http
    }

    /// Returns the status in the HTTP+JSON binding. If the rejection is not one of A2A, its HTTP
    /// status is kept.
    fn statuses(&self) -> RestStatus {
        match self.wire.status {
            StatusCode::OK => RestStatus::of_code(self.wire.code),
            status => RestStatus::of_http(status),
        }
    }

    /// Encodes the error as the body of a response without a card.
    pub(super) fn unavailable(&self) -> Vec<u8> {
        rest_error(RestStatus::of_http(StatusCode::SERVICE_UNAVAILABLE), &self.message, None)
    }

    /// Encodes the error as a body in the HTTP+JSON binding.
    pub(super) fn rest(&self) -> Vec<u8> {
        let details = self.reason.and_then(details);
        rest_error(self.statuses(), &self.message, details.as_deref())
    }
}

fn unsupported(message: String) -> ErrorBody {
    let wire = OnWire { status: StatusCode::OK, code: -32004 };
    ErrorBody { wire, message, reason: Some("UNSUPPORTED_OPERATION") }
}

/// Error in the HTTP+JSON binding.
pub(super) struct RestError {
    pub(super) status: StatusCode,
    pub(super) body: Vec<u8>,
}

/// Returns a JSON-RPC error in the HTTP+JSON binding.
pub(super) fn rest_failure(code: i32, message: &str, details: Option<&RawValue>) -> RestError {
    let status = RestStatus::of_code(code);
    RestError { status: status.http, body: rest_error(status, message, details) }
}

fn rest_error(status: RestStatus, message: &str, details: Option<&RawValue>) -> Vec<u8> {
    #[derive(Serialize)]
    struct A2aErrorBody<'a> {
        error: WrittenError<'a>,
    }
    #[derive(Serialize)]
    struct WrittenError<'a> {
        code: u16,
        status: &'static str,
        message: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        details: Option<&'a RawValue>,
    }
    let error = WrittenError { code: status.http.as_u16(), status: status.grpc, message, details };
    serde_json::to_vec(&A2aErrorBody { error }).unwrap_or_default()
}

/// Status of an error in the HTTP+JSON binding: that of HTTP, and the name of that of gRPC.
#[derive(Debug, Clone, Copy)]
struct RestStatus {
    http: StatusCode,
    grpc: &'static str,
}

impl RestStatus {
    /// Returns the status that servers of A2A 1.0 use for a JSON-RPC error.
    fn of_code(code: i32) -> Self {
        let (http, grpc) = match code {
            -32001 | -32601 => (StatusCode::NOT_FOUND, "NOT_FOUND"),
            -32700 | -32600 | -32602 | -32005 => (StatusCode::BAD_REQUEST, "INVALID_ARGUMENT"),
            -32009..=-32007 | -32004..=-32002 => (StatusCode::BAD_REQUEST, "FAILED_PRECONDITION"),
            _ => (StatusCode::INTERNAL_SERVER_ERROR, "INTERNAL"),
        };
        Self { http, grpc }
    }

    /// Returns the status with the gRPC name of an HTTP status.
    fn of_http(http: StatusCode) -> Self {
        let grpc = match http.as_u16() {
            400 | 405 | 406 | 411..=417 | 421 | 431 => "INVALID_ARGUMENT",
            401 => "UNAUTHENTICATED",
            403 => "PERMISSION_DENIED",
            404 => "NOT_FOUND",
            408 | 504 => "DEADLINE_EXCEEDED",
            429 => "RESOURCE_EXHAUSTED",
            502 | 503 => "UNAVAILABLE",
            _ => "INTERNAL",
        };
        Self { http, grpc }
    }
}

/// Returns the name of the gRPC status that says the same as an HTTP status.
pub(super) fn grpc_name(http: StatusCode) -> &'static str {
    RestStatus::of_http(http).grpc
}

/// Returns the details of an A2A 1.0 error: a list with its `ErrorInfo`.
fn details(reason: &'static str) -> Option<Box<RawValue>> {
    let info = json!([{
        "@type": "type.googleapis.com/google.rpc.ErrorInfo",
        "reason": reason,
        "domain": "a2a-protocol.org",
        "metadata": {},
    }]);
    serde_json::value::to_raw_value(&info).ok()
}

/// Returns the metrics label of an operation; rules use the same name, that of 1.0.
pub(super) fn label(operation: Operation) -> Label {
    match operation {
        Operation::Send => Label::SendMessage,
        Operation::Stream => Label::SendStreamingMessage,
        Operation::Get => Label::GetTask,
        Operation::List => Label::ListTasks,
        Operation::Cancel => Label::CancelTask,
        Operation::Subscribe => Label::SubscribeToTask,
        Operation::SetPush => Label::CreatePushConfig,
        Operation::GetPush => Label::GetPushConfig,
        Operation::ListPush => Label::ListPushConfigs,
        Operation::DeletePush => Label::DeletePushConfig,
        Operation::ExtendedCard => Label::GetExtendedAgentCard,
    }
}

/// Returns the method of an operation in the settings of an agent.
pub(super) fn agent_method(operation: Operation) -> AgentMethod {
    match operation {
        Operation::Send => AgentMethod::Send,
        Operation::Stream => AgentMethod::Stream,
        Operation::Get => AgentMethod::Get,
        Operation::Cancel => AgentMethod::Cancel,
        Operation::List
        | Operation::Subscribe
        | Operation::SetPush
        | Operation::GetPush
        | Operation::ListPush
        | Operation::DeletePush
        | Operation::ExtendedCard => AgentMethod::Other,
    }
}

/// Returns true if an operation is about webhooks.
pub(super) fn is_push(operation: Operation) -> bool {
    matches!(operation, Operation::SetPush | Operation::GetPush | Operation::ListPush | Operation::DeletePush)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rpc(error: &A2aError, dialect: Dialect) -> String {
        String::from_utf8(error.to_json("bard").rpc(None, dialect)).unwrap()
    }

    #[test]
    fn a_task_that_is_not_there_reads_as_an_agent_says_it() {
        let unknown = A2aError::Fault(Fault::UnknownTask);
        assert_eq!(
            rpc(&unknown, Dialect::V0_3),
            r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"Task not found"}}"#
        );
        assert!(rpc(&unknown, Dialect::V1).contains(r#""reason":"TASK_NOT_FOUND""#));
        let rest = String::from_utf8(unknown.to_json("bard").rest()).unwrap();
        assert!(rest.contains(r#""code":404"#) && rest.contains("TASK_NOT_FOUND"), "{rest}");
    }

    #[test]
    fn client_faults_are_no_http_errors() {
        for error in [
            A2aError::Fault(Fault::ParseError("x".into())),
            A2aError::Fault(Fault::InvalidRequest("x".into())),
            A2aError::Fault(Fault::UnknownTask),
            A2aError::Agent(AgentFailure::Unauthorized(401)),
            A2aError::NoPush,
        ] {
            assert_eq!(error.to_json("bard").wire.status, StatusCode::OK, "{error:?}");
        }
        let failure = A2aError::Agent(AgentFailure::Unauthorized(401)).to_json("bard");
        assert_eq!((failure.wire.code, failure.rest_status().as_u16()), (-32603, 500));
        assert_eq!(A2aError::Fault(Fault::Forbidden).to_json("bard").rest_status(), StatusCode::FORBIDDEN);
    }

    #[test]
    fn every_code_of_a2a_has_its_status() {
        for (code, status, word) in [
            (-32001, 404, "NOT_FOUND"),
            (-32002, 400, "FAILED_PRECONDITION"),
            (-32005, 400, "INVALID_ARGUMENT"),
            (-32006, 500, "INTERNAL"),
            (-32009, 400, "FAILED_PRECONDITION"),
            (-32601, 404, "NOT_FOUND"),
            (-32602, 400, "INVALID_ARGUMENT"),
            (-32000, 500, "INTERNAL"),
        ] {
            let found = RestStatus::of_code(code);
            assert_eq!((found.http.as_u16(), found.grpc), (status, word), "{code}");
        }
    }

    #[test]
    fn metrics_use_the_names_of_1_0() {
        for operation in Operation::ALL {
            assert_eq!(label(operation).label(), operation.as_str());
        }
    }
}
