//! Why a live task does not go on at present, and what the model is told about it.
//!
//! No failure: the task may go on. Not here: what went wrong for good (see `trouble`).

use std::time::Duration;

/// Why a live task does not go on at present, so far as is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskDelay {
    /// The agent ended its stream without ending the task, and the task has not changed for so long.
    Stalled(Duration),
    /// The agent cannot be asked how the task stands.
    Unreached,
}

impl TaskDelay {
    /// What the model is told.
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
