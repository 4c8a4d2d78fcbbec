//! Reason for which a call ends before the agent is contacted.

use super::access_record::outcome_of;
use super::response::ClientGone;
use crate::bridge::agent_action::unknown_task;
use crate::fault::{AgentFailure, Fault};
use crate::mcp::tools::CallToolResult;
use crate::telemetry::label::Outcome;

/// Reason for which a call ends before the agent is contacted.
pub(super) enum Abort {
    /// The request is invalid.
    Fault(Fault),
    /// The call has an error that a model can correct, or the agent is not available.
    Told(CallToolResult, Outcome),
    /// The client disconnected while it waited for a permit.
    Gone,
}

impl Abort {
    pub(super) fn tool_error(text: String) -> Self {
        Self::Told(CallToolResult::failure(text), Outcome::ClientFault)
    }

    /// Returns the abort for a rejected action on a task: a forbidden task reads like an unknown
    /// one.
    pub(super) fn of_task(fault: Fault) -> Self {
        match fault {
            Fault::UnknownTask | Fault::NoSuchTool(_) => Self::tool_error(unknown_task()),
            fault => Self::Fault(fault),
        }
    }

    pub(super) fn trouble(trouble: &AgentFailure, agent: &str) -> Self {
        Self::Told(CallToolResult::failure(trouble.public_message(agent)), outcome_of(trouble))
    }
}

impl From<Result<Fault, ClientGone>> for Abort {
    fn from(refusal: Result<Fault, ClientGone>) -> Self {
        match refusal {
            Ok(fault) => Self::Fault(fault),
            Err(ClientGone) => Self::Gone,
        }
    }
}
