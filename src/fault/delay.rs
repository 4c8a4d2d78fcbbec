//! The reason for which a live task makes no progress at present, and its text for the model.
//!
//! This is no failure: the task may still complete. See `AgentFailure` for failures.

use std::time::Duration;

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
