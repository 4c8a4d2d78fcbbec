//! How an agent says no, and how it can fail to speak A2A at all.
//!
//! Codes are decoded with the dialect: -32006 to -32011 mean different things in different versions. Not here: what a
//! client is told (see `fault`), HTTP and connection failures (see `transport`).

use super::dialect::Dialect;
use super::sanitize::{clean, clean_line};

/// Longest error message that is kept, in bytes.
const MAX_MESSAGE: usize = 2048;
/// Longest explanation of what is wrong with an answer, in bytes.
const MAX_WHAT: usize = 100;

/// Why an exchange with an agent gave no event and no task.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AgentError {
    /// The agent answered with an error.
    #[error("agent refused with {code}: {message}")]
    Refused {
        /// The code as it came; of HTTP+JSON the status.
        code: i64,
        /// What that means in the agent's dialect, or what the agent says beside it.
        kind: ErrorKind,
        /// The agent's words, at most 2 KiB, without control characters.
        message: String,
    },
    /// The answer is not A2A. Says what is wrong in at most 100 bytes.
    #[error("agent did not answer in A2A: {0}")]
    NotA2a(String),
}

/// What an A2A error code means (A2A 1.0 §5.4, 0.3 §8).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// No such task, or it has expired, or it belongs to somebody else.
    TaskNotFound,
    /// The task has ended; nothing is left to cancel.
    TaskNotCancelable,
    /// The agent sends no push notifications.
    PushNotSupported,
    /// The agent does not do this, or not in the state that the task is in.
    Unsupported,
    /// The agent does not take, or make, this media type.
    ContentType,
    /// The agent's own code gave an answer that its server refused.
    InvalidAgentResponse,
    /// The agent has no extended card.
    ExtendedCard,
    /// The agent insists on an extension that was not named.
    Extension,
    /// The agent does not speak the version that was asked for.
    Version,
    /// The agent does not know the method.
    MethodNotFound,
    /// The agent does not accept the parameters.
    InvalidParams,
    /// The agent does not see a valid request, or not one for the state that the task is in.
    InvalidRequest,
    /// The agent does not know who asks, or does not let it (0.1; later versions say so with the HTTP status).
    NotAuthorized,
    /// The agent has too much to do, or lacks what it needs for it (0.1).
    Busy,
    /// The agent broke. Whether it did the work is not known.
    Internal,
    /// A code that the dialect does not know.
    Other,
}

impl ErrorKind {
    pub(super) fn of(code: i64, dialect: Dialect) -> Self {
        match (code, dialect) {
            (-32001, _) => Self::TaskNotFound,
            (-32002, _) => Self::TaskNotCancelable,
            (-32003, _) => Self::PushNotSupported,
            (-32004, _) => Self::Unsupported,
            (-32005, _) => Self::ContentType,
            (-32006, Dialect::V0_3 | Dialect::V1) => Self::InvalidAgentResponse,
            (-32007, Dialect::V0_3 | Dialect::V1) => Self::ExtendedCard,
            // 0.2 and 0.3 have no -32008 and -32009: only a 1.0 server that was called the old way says them.
            (-32008, Dialect::V0_3 | Dialect::V1) => Self::Extension,
            (-32009, Dialect::V0_3 | Dialect::V1) => Self::Version,
            (-32006, Dialect::V0_1) => Self::Unsupported,
            (-32007 | -32008, Dialect::V0_1) => Self::NotAuthorized,
            // The task is not in a state for this.
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
    /// What a reason of A2A 1.0 means, where it is one.
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
    /// Whether the agent surely did nothing, so that asking again in another dialect is safe.
    ///
    /// True only of an unknown method and of a version that is not spoken; a send may have run in every other case.
    pub fn proves_not_executed(&self) -> bool {
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
