//! Errors of an agent, responses that are not A2A, and the form of an error for a client.
//!
//! Codes are decoded and encoded with the dialect, by their meaning: -32006 to -32011 mean different
//! things in different versions. Faults of the gateway are in `fault`, HTTP and connection failures
//! in `transport`.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::dialect::Dialect;
use super::sanitize::{clean, clean_line};
use crate::jsonrpc::{Object, Text};

/// Maximum length of an error message, in bytes.
const MAX_MESSAGE: usize = 2048;
/// Maximum length of the reason why a response is invalid, in bytes.
const MAX_WHAT: usize = 100;

/// The reason why an exchange with an agent returned no event and no task.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AgentError {
    /// The agent responded with an error.
    #[error("agent refused with {code}: {message}")]
    Refused {
        /// The code of the response; for HTTP+JSON the status.
        code: i64,
        /// The meaning of the code in the agent's dialect, or of the reason that the agent adds.
        kind: ErrorKind,
        /// The agent's message, at most 2 KiB, without control characters.
        message: String,
    },
    /// The response is not A2A. Contains the reason, at most 100 bytes.
    #[error("agent did not answer in A2A: {0}")]
    NotA2a(String),
}

/// The meaning of an A2A error code (A2A 1.0 §5.4, 0.3 §8).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// The task does not exist, has expired, or belongs to another client.
    TaskNotFound,
    /// The task has ended; nothing is left to cancel.
    TaskNotCancelable,
    /// The agent sends no push notifications.
    PushNotSupported,
    /// The agent does not support the operation, or not in the current state of the task.
    Unsupported,
    /// The agent does not support this media type.
    ContentType,
    /// The agent's own code returned a response that its server rejected.
    InvalidAgentResponse,
    /// The agent has no extended card.
    ExtendedCard,
    /// The agent requires an extension that was not named.
    Extension,
    /// The agent does not support the requested version.
    Version,
    /// The agent does not know the method.
    MethodNotFound,
    /// The agent does not accept the parameters.
    InvalidParams,
    /// The agent rejects the request as invalid, or as invalid in the current state of the task.
    InvalidRequest,
    /// The agent does not know the client, or does not allow the request (0.1; later versions use
    /// the HTTP status).
    NotAuthorized,
    /// The agent is overloaded, or lacks a resource (0.1).
    Busy,
    /// The agent failed. It is unknown if it did the work.
    Internal,
    /// A code that the dialect does not know.
    Other,
}

impl ErrorKind {
    pub(crate) fn of(code: i64, dialect: Dialect) -> Self {
        match (code, dialect) {
            (-32001, _) => Self::TaskNotFound,
            (-32002, _) => Self::TaskNotCancelable,
            (-32003, _) => Self::PushNotSupported,
            (-32004, _) => Self::Unsupported,
            (-32005, _) => Self::ContentType,
            (-32006, Dialect::V0_3 | Dialect::V1) => Self::InvalidAgentResponse,
            (-32007, Dialect::V0_3 | Dialect::V1) => Self::ExtendedCard,
            // 0.2 and 0.3 have no -32008 and -32009: only a 1.0 server that was called in the old
            // form returns them.
            (-32008, Dialect::V0_3 | Dialect::V1) => Self::Extension,
            (-32009, Dialect::V0_3 | Dialect::V1) => Self::Version,
            (-32006, Dialect::V0_1) => Self::Unsupported,
            (-32007 | -32008, Dialect::V0_1) => Self::NotAuthorized,
            // The task is in the wrong state.
            (-32009, Dialect::V0_1) => Self::InvalidRequest,
            (-32010 | -32011, Dialect::V0_1) => Self::Busy,
            (-32600 | -32700, _) => Self::InvalidRequest,
            (-32601, _) => Self::MethodNotFound,
            (-32602, _) => Self::InvalidParams,
            (-32603, _) => Self::Internal,
            _ => Self::Other,
        }
    }
}

impl ErrorKind {
    /// Returns the meaning of a reason of A2A 1.0; `None` if it is unknown.
    pub(super) fn of_reason(reason: &str) -> Option<Self> {
        Some(match reason {
            "TASK_NOT_FOUND" => Self::TaskNotFound,
            "TASK_NOT_CANCELABLE" => Self::TaskNotCancelable,
            "PUSH_NOTIFICATION_NOT_SUPPORTED" => Self::PushNotSupported,
            "UNSUPPORTED_OPERATION" => Self::Unsupported,
            "CONTENT_TYPE_NOT_SUPPORTED" => Self::ContentType,
            "INVALID_AGENT_RESPONSE" => Self::InvalidAgentResponse,
            "EXTENDED_AGENT_CARD_NOT_CONFIGURED" => Self::ExtendedCard,
            "EXTENSION_SUPPORT_REQUIRED" => Self::Extension,
            "VERSION_NOT_SUPPORTED" => Self::Version,
            _ => return None,
        })
    }
}

impl AgentError {
    /// Returns true if the agent certainly did nothing, so that a repetition in another dialect is
    /// safe.
    ///
    /// True only for an unknown method and for an unsupported version; a send may have run in every
    /// other case.
    pub(crate) fn proves_not_executed(&self) -> bool {
        match self {
            Self::Refused { kind, .. } => matches!(kind, ErrorKind::MethodNotFound | ErrorKind::Version),
            Self::NotA2a(_) => false,
        }
    }

    pub(super) fn from_code(kind: ErrorKind, code: i64, message: &str) -> Self {
        Self::Refused { code, kind, message: clean(message, MAX_MESSAGE) }
    }

    pub(crate) fn invalid_response(what: &str) -> Self {
        Self::NotA2a(clean_line(what, MAX_WHAT))
    }
}

/// The content of an error of HTTP+JSON (AIP-193).
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct RestError<'a> {
    /// The name of a code of gRPC.
    #[serde(borrow)]
    pub(super) status: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) message: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) details: Option<&'a RawValue>,
}

impl<'a> RestError<'a> {
    /// Reads the member `error` of a body. One of another form says nothing.
    pub(super) fn read(error: &'a RawValue) -> Self {
        serde_json::from_str::<Object<Self>>(error.get()).map(|Object(read)| read).unwrap_or_default()
    }
}

/// A JSON-RPC error in the client's version.
#[derive(Debug)]
pub struct RpcError {
    /// The code.
    pub code: i64,
    /// The agent's message.
    pub message: String,
    /// The additional `ErrorInfo` of A2A 1.0.
    pub data: Option<Box<RawValue>>,
}

/// The domain of the reasons.
const DOMAIN: &str = "a2a-protocol.org";

impl RpcError {
    /// Maps an agent's error for a client with the dialect `to`.
    pub fn of(error: &AgentError, to: Dialect) -> Self {
        match error {
            AgentError::Refused { code, kind, message } => Self::new(*kind, *code, message, to),
            AgentError::NotA2a(_) => {
                Self::new(ErrorKind::InvalidAgentResponse, -32603, &error.to_string(), to)
            }
        }
    }

    /// Creates an error of this kind. `code` is used if the version has none of its own for it.
    pub fn new(kind: ErrorKind, code: i64, message: &str, to: Dialect) -> Self {
        let data = reason(kind).filter(|_| to == Dialect::V1).and_then(|reason| {
            let info = format!(
                r#"[{{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"{reason}","domain":"{DOMAIN}","metadata":{{}}}}]"#
            );
            RawValue::from_string(info).ok()
        });
        Self { code: code_of(kind, to).unwrap_or_else(|| plain(code)), message: message.to_owned(), data }
    }
}

/// Returns a code without another meaning in the version: a foreign code would be misread.
fn plain(code: i64) -> i64 {
    if (-32011..=-32001).contains(&code) { -32603 } else { code }
}

fn code_of(kind: ErrorKind, to: Dialect) -> Option<i64> {
    let later = |code: i64| (to != Dialect::V0_1).then_some(code);
    match kind {
        ErrorKind::TaskNotFound => Some(-32001),
        ErrorKind::TaskNotCancelable => Some(-32002),
        ErrorKind::PushNotSupported => Some(-32003),
        ErrorKind::Unsupported => Some(-32004),
        ErrorKind::ContentType => Some(-32005),
        ErrorKind::InvalidAgentResponse => later(-32006),
        ErrorKind::ExtendedCard => later(-32007),
        // Not defined in 0.3, but without another meaning there.
        ErrorKind::Extension => later(-32008),
        ErrorKind::Version => later(-32009),
        ErrorKind::MethodNotFound => Some(-32601),
        ErrorKind::InvalidParams => Some(-32602),
        ErrorKind::InvalidRequest => Some(-32600),
        ErrorKind::Internal => Some(-32603),
        ErrorKind::NotAuthorized => (to == Dialect::V0_1).then_some(-32007),
        ErrorKind::Busy => (to == Dialect::V0_1).then_some(-32010),
        ErrorKind::Other => None,
    }
}

fn reason(kind: ErrorKind) -> Option<&'static str> {
    match kind {
        ErrorKind::TaskNotFound => Some("TASK_NOT_FOUND"),
        ErrorKind::TaskNotCancelable => Some("TASK_NOT_CANCELABLE"),
        ErrorKind::PushNotSupported => Some("PUSH_NOTIFICATION_NOT_SUPPORTED"),
        ErrorKind::Unsupported => Some("UNSUPPORTED_OPERATION"),
        ErrorKind::ContentType => Some("CONTENT_TYPE_NOT_SUPPORTED"),
        ErrorKind::InvalidAgentResponse => Some("INVALID_AGENT_RESPONSE"),
        ErrorKind::ExtendedCard => Some("EXTENDED_AGENT_CARD_NOT_CONFIGURED"),
        ErrorKind::Extension => Some("EXTENSION_SUPPORT_REQUIRED"),
        ErrorKind::Version => Some("VERSION_NOT_SUPPORTED"),
        ErrorKind::MethodNotFound
        | ErrorKind::InvalidParams
        | ErrorKind::InvalidRequest
        | ErrorKind::Internal
        | ErrorKind::NotAuthorized
        | ErrorKind::Busy
        | ErrorKind::Other => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_unknown_method_or_version_proves_that_nothing_ran() {
        for dialect in [Dialect::V0_1, Dialect::V0_3, Dialect::V1] {
            for (code, proves) in [
                (-32601, true),
                (-32009, dialect != Dialect::V0_1),
                (-32600, false),
                (-32602, false),
                (-32603, false),
                (-32001, false),
                (-32004, false),
                (404, false),
                (i64::MIN, false),
            ] {
                let error = AgentError::from_code(ErrorKind::of(code, dialect), code, "");
                assert_eq!(error.proves_not_executed(), proves, "{code} {dialect:?}");
            }
        }
        assert!(!AgentError::invalid_response("x").proves_not_executed());
    }

    #[test]
    fn words_of_an_agent_are_capped_and_cleaned() {
        let AgentError::Refused { message, .. } =
            AgentError::from_code(ErrorKind::Other, 1, &"\u{1b}é".repeat(5000))
        else {
            panic!("not refused");
        };
        assert_eq!(message, "é".repeat(1024));
        assert_eq!(
            AgentError::invalid_response(&"x\n".repeat(100)),
            AgentError::NotA2a("x ".repeat(50).trim_end().to_owned())
        );
    }
}
