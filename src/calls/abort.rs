//! Error of a call that ends before the agent is contacted.

use super::NotFound;
use crate::bridge::agent_action::unknown_task;
use crate::fault::{Abort, AgentFailure, Fault};
use crate::http_edge::outcome_of;
use crate::mcp::tools::CallToolResult;
use crate::telemetry::label::Outcome;

/// Error of a call that ends before the agent is contacted.
pub(crate) enum CallError {
    /// The request is invalid.
    Fault(Fault),
    /// The call has an error that a model can correct, or the agent is not available.
    ToolError(Box<CallToolResult>, Outcome),
}

impl From<Fault> for CallError {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl From<CallError> for Abort<CallError> {
    fn from(error: CallError) -> Self {
        Self::Rejected(error)
    }
}

impl From<Abort> for Abort<CallError> {
    fn from(abort: Abort) -> Self {
        abort.map(CallError::Fault)
    }
}

impl CallError {
    /// Returns an error that a model can correct.
    pub(crate) fn tool_error(text: String) -> Self {
        Self::ToolError(Box::new(CallToolResult::failure(text)), Outcome::ClientFault)
    }

    /// Returns the error of a rejected action on a task: a forbidden task reads like an unknown
    /// one.
    pub(crate) fn of_task(fault: Fault) -> Self {
        match fault {
            Fault::UnknownTask | Fault::NoSuchTool(_) => Self::tool_error(unknown_task()),
            fault => Self::Fault(fault),
        }
    }

    /// Returns the error of a failed agent.
    pub(crate) fn agent_failure(failure: &AgentFailure, agent: &str) -> Self {
        let result = CallToolResult::failure(failure.public_message(agent));
        Self::ToolError(Box::new(result), outcome_of(failure))
    }

    /// Returns the error for a task that is not found at this agent.
    pub(crate) fn not_found(not_found: NotFound, agent: &str) -> Self {
        match not_found {
            NotFound::Unknown => Self::tool_error(unknown_task()),
            NotFound::Trouble(failure) => Self::agent_failure(&failure, agent),
            NotFound::Unfit(text) => Self::tool_error(text),
        }
    }
}
