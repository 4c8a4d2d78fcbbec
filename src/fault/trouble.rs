//! The failures at an agent, and the delays of a live task, with their texts for the model.
//!
//! Each failure is a tool result with `isError`, never an error of JSON-RPC: a model can try again,
//! choose another tool, or notify its user. The agent's own words are quoted if it gave any; hosts,
//! addresses and headers are not revealed. A delay is no failure: the task may still complete.

use std::time::Duration;

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
