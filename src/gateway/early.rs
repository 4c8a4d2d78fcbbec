//! Why a call ends before an agent is asked.
//!
//! Not here: what goes wrong at the agent (see `serve`).

use super::answer::Gone;
use super::exchange::blamed;
use crate::bridge::order::unknown_task;
use crate::fault::{Fault, Trouble};
use crate::mcp::tools::CallResult;
use crate::telemetry::label::Outcome;

/// Why a call ends before an agent is asked.
pub(super) enum Early {
    /// The request is wrong.
    Fault(Fault),
    /// The call is wrong in a way that a model can put right, or the agent is not there.
    Told(CallResult, Outcome),
    /// Its client left while it waited for its turn.
    Gone,
}

impl Early {
    pub(super) fn told(text: String) -> Self {
        Self::Told(CallResult::failure(text), Outcome::ClientFault)
    }

    /// The refusal of what was to be done with a task: one that may not be used reads like one that is not there.
    pub(super) fn of_task(fault: Fault) -> Self {
        match fault {
            Fault::UnknownTask | Fault::NoSuchTool(_) => Self::told(unknown_task()),
            fault => Self::Fault(fault),
        }
    }

    pub(super) fn trouble(trouble: &Trouble, agent: &str) -> Self {
        Self::Told(CallResult::failure(trouble.told(agent)), blamed(trouble))
    }
}

impl From<Result<Fault, Gone>> for Early {
    fn from(refusal: Result<Fault, Gone>) -> Self {
        match refusal {
            Ok(fault) => Self::Fault(fault),
            Err(Gone) => Self::Gone,
        }
    }
}
