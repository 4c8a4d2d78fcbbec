//! The form of the response to a call that takes longer than its client waits, and the operator's
//! configuration of the tools of agents.
//!
//! Follows `docs/spec/mcp.md` §3.1. The plan is the best form that the client understands: an
//! extension task, a core task, a round that the client follows up by itself, or a handle result.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use crate::a2a::canonical;
use crate::mcp::tools::TaskSupport;
use crate::mcp::{ClientCapabilities, Era, Version};

/// The properties of the client of one call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ClientAbilities {
    /// The client's revision.
    pub(crate) version: Version,
    /// The client's capabilities.
    pub(crate) capabilities: ClientCapabilities,
    /// True if this call requests a task (2025-11-25).
    pub(crate) wants_task: bool,
    /// Number of rounds of this call so far.
    pub(crate) round: u8,
    /// True if the response goes into a batch.
    pub(crate) in_batch: bool,
    /// True if the client repeats a call by itself when the result requires it. Some SDKs fail on
    /// such a result unless their host declares that it can handle elicitations.
    pub(crate) makes_rounds: bool,
}

/// The time limits of a call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CallTimeouts {
    /// Time until a client must have a final response.
    pub(crate) budget: Duration,
    /// Time until a client with task support gets a task.
    pub(crate) task_after: Duration,
    /// Duration of one round.
    pub(crate) round_timeout: Duration,
    /// Maximum number of rounds of one call.
    pub(crate) max_rounds: u8,
    /// True if clients without a better form wait for as long as the call takes.
    pub(crate) holds_stream: bool,
}

/// The response to a call when its waiting time ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fallback {
    /// An extension task (2026-07-28).
    Task,
    /// A core task (2025-11-25), regardless of the output so far.
    CoreTask,
    /// A `requestState` for the next round.
    Round,
    /// A handle result.
    Handle,
}

/// The waiting time and the fallback of one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ResponsePlan {
    /// Time that the client waits; `None` is unlimited.
    pub(crate) patience: Option<Duration>,
    /// The response after that time.
    pub(crate) then: Fallback,
}

/// The reason why a call is rejected for its task mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TaskModeError {
    /// The tool runs only as a task, and this client does not know the extension.
    NeedsExtension,
    /// The tool runs only as a task, and the call does not request one.
    NeedsTask,
    /// The tool never runs as a task, and the call requests one.
    NoTask,
}

/// Chooses the response plan of a call.
///
/// # Errors
///
/// [`TaskModeError`] if client and tool do not agree about tasks.
pub(crate) fn choose(
    client: &ClientAbilities,
    times: &CallTimeouts,
    support: TaskSupport,
) -> Result<ResponsePlan, TaskModeError> {
    let patience = |patience, then| Ok(ResponsePlan { patience: Some(patience), then });
    if client.in_batch {
        return patience(times.budget, Fallback::Handle);
    }
    let knows_tasks = client.capabilities.has(ClientCapabilities::TASKS_EXTENSION);
    match (client.version.era(), support) {
        (Era::Modern, TaskSupport::Required) if !knows_tasks => Err(TaskModeError::NeedsExtension),
        (Era::Modern, TaskSupport::Required | TaskSupport::Optional) if knows_tasks => {
            patience(times.task_after.min(times.budget), Fallback::Task)
        }
        _ if times.holds_stream && !(client.wants_task && client.version.has_core_tasks()) => {
            Ok(ResponsePlan { patience: None, then: Fallback::Handle })
        }
        (Era::Modern, _) if client.makes_rounds && client.round < times.max_rounds => {
            patience(times.round_timeout.min(times.budget), Fallback::Round)
        }
        (Era::Modern, _) => patience(times.budget, Fallback::Handle),
        (Era::Legacy, _) if !client.version.has_core_tasks() => patience(times.budget, Fallback::Handle),
        (Era::Legacy, TaskSupport::Never) if client.wants_task => Err(TaskModeError::NoTask),
        (Era::Legacy, TaskSupport::Required) if !client.wants_task => Err(TaskModeError::NeedsTask),
        (Era::Legacy, _) if client.wants_task => {
            patience(times.task_after.min(times.budget), Fallback::CoreTask)
        }
        (Era::Legacy, _) => patience(times.budget, Fallback::Handle),
    }
}

/// Returns a digest that identifies a call: its tool and its arguments, independent of how they are
/// written.
pub(crate) fn digest(tool: &str, arguments: Option<&RawValue>) -> [u8; 16] {
    let mut hash = Sha256::new();
    hash.update((tool.len() as u64).to_be_bytes());
    hash.update(tool);
    hash.update(arguments.map_or_else(|| "{}".to_owned(), canonical));
    hash.finalize().first_chunk().copied().unwrap_or_default()
}

/// The configuration of one agent's tools.
#[derive(Debug, Default, Clone)]
pub struct ToolPlan {
    /// The agent's name.
    pub agent: String,
    /// True for one tool for the whole agent, false for one per skill.
    pub per_agent: bool,
    /// Name of the one tool.
    pub tool_name: Option<String>,
    /// Description of the agent; replaces that of the card.
    pub description: Option<String>,
    /// The support of its calls for core tasks.
    pub task: TaskSupport,
    /// Exceptions for single skills, by the skill's id.
    pub skills: BTreeMap<String, SkillPlan>,
}

/// The configuration of one skill.
#[derive(Debug, Default, Clone)]
pub struct SkillPlan {
    /// Name of its tool.
    pub tool_name: Option<String>,
    /// Description; replaces that of the card.
    pub description: Option<String>,
    /// JSON Schema of its arguments.
    pub input_schema: Option<serde_json::Value>,
    /// The support of its calls for core tasks; replaces that of the agent.
    pub task: Option<TaskSupport>,
    /// True if the skill has no tool.
    pub hidden: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use Version::{V2025_03_26, V2025_06_18, V2025_11_25, V2026_07_28};

    const TIMES: CallTimeouts = CallTimeouts {
        budget: Duration::from_secs(45),
        task_after: Duration::from_secs(2),
        round_timeout: Duration::from_secs(40),
        max_rounds: 7,
        holds_stream: false,
    };

    fn client(version: Version) -> ClientAbilities {
        ClientAbilities {
            version,
            capabilities: ClientCapabilities::default(),
            wants_task: false,
            round: 0,
            in_batch: false,
            makes_rounds: true,
        }
    }

    fn knowing_tasks() -> ClientAbilities {
        ClientAbilities { capabilities: ClientCapabilities::TASKS_EXTENSION, ..client(V2026_07_28) }
    }

    #[test]
    fn every_client_gets_the_best_form_that_it_understands() {
        let asking = |version| ClientAbilities { wants_task: true, ..client(version) };
        let late = |round| ClientAbilities { round, ..client(V2026_07_28) };
        for (client, seconds, then) in [
            (client(V2025_03_26), 45, Fallback::Handle),
            (client(V2025_06_18), 45, Fallback::Handle),
            (client(V2025_11_25), 45, Fallback::Handle),
            (asking(V2025_06_18), 45, Fallback::Handle),
            (asking(V2025_11_25), 2, Fallback::CoreTask),
            (client(V2026_07_28), 40, Fallback::Round),
            (asking(V2026_07_28), 40, Fallback::Round),
            (late(6), 40, Fallback::Round),
            (late(7), 45, Fallback::Handle),
            (ClientAbilities { makes_rounds: false, ..client(V2026_07_28) }, 45, Fallback::Handle),
            (knowing_tasks(), 2, Fallback::Task),
            (ClientAbilities { in_batch: true, ..asking(V2025_11_25) }, 45, Fallback::Handle),
        ] {
            let wanted = ResponsePlan { patience: Some(Duration::from_secs(seconds)), then };
            assert_eq!(choose(&client, &TIMES, TaskSupport::Optional), Ok(wanted), "{client:?}");
        }
    }

    #[test]
    fn a_task_comes_never_later_than_the_budget_ends() {
        let times = CallTimeouts { task_after: Duration::from_secs(90), ..TIMES };
        let asking = ClientAbilities { wants_task: true, ..client(V2025_11_25) };
        for client in [knowing_tasks(), asking] {
            let patience = choose(&client, &times, TaskSupport::Optional).map(|rung| rung.patience);
            assert_eq!(patience, Ok(Some(times.budget)), "{client:?}");
        }
    }

    #[test]
    fn plain_clients_are_held_where_configured() {
        let times = CallTimeouts { holds_stream: true, ..TIMES };
        let held = Ok(ResponsePlan { patience: None, then: Fallback::Handle });
        for version in [V2025_03_26, V2025_11_25, V2026_07_28] {
            assert_eq!(choose(&client(version), &times, TaskSupport::Optional), held);
        }
        let asking = ClientAbilities { wants_task: true, ..client(V2025_11_25) };
        for (client, then) in [(asking, Fallback::CoreTask), (knowing_tasks(), Fallback::Task)] {
            assert_eq!(choose(&client, &times, TaskSupport::Optional).map(|rung| rung.then), Ok(then));
        }
    }

    #[test]
    fn tool_and_client_must_agree_about_tasks() {
        let asking = ClientAbilities { wants_task: true, ..client(V2025_11_25) };
        for (client, support, unserved) in [
            (client(V2026_07_28), TaskSupport::Required, TaskModeError::NeedsExtension),
            (client(V2025_11_25), TaskSupport::Required, TaskModeError::NeedsTask),
            (asking, TaskSupport::Never, TaskModeError::NoTask),
        ] {
            assert_eq!(choose(&client, &TIMES, support), Err(unserved));
        }
        let never = choose(&knowing_tasks(), &TIMES, TaskSupport::Never);
        assert_eq!(never.map(|rung| rung.then), Ok(Fallback::Round));
        // A revision without tasks cannot be required to use them.
        assert!(choose(&client(V2025_06_18), &TIMES, TaskSupport::Required).is_ok());
    }
}
