//! Maps an agent's error to the client's version by its meaning, since the same code means
//! different things.

use serde_json::value::RawValue;

use super::super::dialect::Dialect;
use super::super::error::{AgentError, ErrorKind};

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
