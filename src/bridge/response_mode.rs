//! In which form a call is answered that takes longer than its client waits.
//!
//! Reads mcp.md §3.1. The best form that this client understands: a task of the extension, a task of the core, a leg that the
//! client follows up by itself, or a handle in words. Not here: writing any of them, waiting.

use std::time::Duration;

use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use crate::a2a::canonical;
use crate::mcp::tools::TaskSupport;
use crate::mcp::{ClientCapabilities, Era, Version};

/// What is known of the client of one call.
#[derive(Debug, Clone, Copy)]
pub struct ClientAbilities {
    /// The revision that it speaks.
    pub version: Version,
    /// What it can do.
    pub capabilities: ClientCapabilities,
    /// Whether this call asks for a task (2025-11-25).
    pub wants_task: bool,
    /// How many legs of this call it has been through.
    pub round: u8,
    /// Whether the answer goes into a batch.
    pub in_batch: bool,
    /// Whether it makes a call again by itself when the result says so. Some SDKs fail at such a
    /// result unless their host declares that it can be asked.
    pub makes_legs: bool,
}

/// How long what may take.
#[derive(Debug, Clone, Copy)]
pub struct CallTimeouts {
    /// Until a client must have something final.
    pub budget: Duration,
    /// Until a client that knows tasks gets one.
    pub task_after: Duration,
    /// One leg.
    pub leg: Duration,
    /// Most legs of one call.
    pub legs: u8,
    /// Whether clients that know no better form are held for as long as the work takes.
    pub hold: bool,
}

/// What a call gets when its patience ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fallback {
    /// A task of the extension (2026-07-28).
    Task,
    /// A task of the core (2025-11-25), whatever has come meanwhile.
    CoreTask,
    /// A `requestState` to come back with.
    Leg,
    /// A handle in words.
    Handle,
}

/// How one call is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResponsePlan {
    /// How long the client waits; `None`: for as long as it takes.
    pub patience: Option<Duration>,
    /// What it gets then.
    pub then: Fallback,
}

/// Why a call cannot be served at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskModeError {
    /// The tool runs as a task only, and this client does not know the extension.
    NeedsExtension,
    /// The tool runs as a task only, and the call does not ask for one.
    NeedsTask,
    /// The tool never runs as a task, and the call asks for one.
    NoTask,
}

/// The rung of a call.
///
/// # Errors
///
/// [`Unserved`] when client and tool do not agree about tasks.
pub fn choose(
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
        _ if times.hold && !(client.wants_task && client.version.has_core_tasks()) => {
            Ok(ResponsePlan { patience: None, then: Fallback::Handle })
        }
        (Era::Modern, _) if client.makes_legs && client.round < times.legs => {
            patience(times.leg.min(times.budget), Fallback::Leg)
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

/// What one call is told from another by: its tool and its arguments, however they are written.
pub fn digest(tool: &str, arguments: Option<&RawValue>) -> [u8; 16] {
    let mut hash = Sha256::new();
    hash.update((tool.len() as u64).to_be_bytes());
    hash.update(tool);
    hash.update(arguments.map_or_else(|| "{}".to_owned(), canonical));
    hash.finalize().first_chunk().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use Version::{V2025_03_26, V2025_06_18, V2025_11_25, V2026_07_28};

    const TIMES: CallTimeouts = CallTimeouts {
        budget: Duration::from_secs(45),
        task_after: Duration::from_secs(2),
        leg: Duration::from_secs(40),
        legs: 7,
        hold: false,
    };

    fn client(version: Version) -> ClientAbilities {
        ClientAbilities {
            version,
            capabilities: ClientCapabilities::default(),
            wants_task: false,
            round: 0,
            in_batch: false,
            makes_legs: true,
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
            (client(V2026_07_28), 40, Fallback::Leg),
            (asking(V2026_07_28), 40, Fallback::Leg),
            (late(6), 40, Fallback::Leg),
            (late(7), 45, Fallback::Handle),
            (ClientAbilities { makes_legs: false, ..client(V2026_07_28) }, 45, Fallback::Handle),
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
    fn who_knows_no_better_form_is_held_if_the_operator_says_so() {
        let times = CallTimeouts { hold: true, ..TIMES };
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
        assert_eq!(never.map(|rung| rung.then), Ok(Fallback::Leg));
        // A revision without tasks cannot be asked to use them.
        assert!(choose(&client(V2025_06_18), &TIMES, TaskSupport::Required).is_ok());
    }
}
