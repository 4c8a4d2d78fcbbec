//! Why a call ends before an agent is asked.
//!
//! Not here: what goes wrong at the agent (see `serve`).

use super::access_record::outcome_of;
use super::response::ClientGone;
use crate::bridge::agent_action::unknown_task;
use crate::fault::{AgentFailure, Fault};
use crate::mcp::tools::CallToolResult;
use crate::telemetry::label::Outcome;

/// Why a call ends before an agent is asked.
pub(super) enum Abort {
    /// The request is wrong.
    Fault(Fault),
    /// The call is wrong in a way that a model can put right, or the agent is not there.
    Told(CallToolResult, Outcome),
    /// Its client left while it waited for its turn.
    Gone,
}

impl Abort {
    pub(super) fn tool_error(text: String) -> Self {
        Self::Told(CallToolResult::failure(text), Outcome::ClientFault)
    }

    /// The refusal of what was to be done with a task: one that may not be used reads like one that is not there.
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
