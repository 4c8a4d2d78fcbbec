//! Tasks that clients hold: from a handle to the entry in the map and back.
//!
//! A handle says whose task it is; what the map has forgotten is asked of the agent. Not here: the map (see `tasks`), sealing (see
//! `seal`).

use std::sync::Arc;

use super::route::Door;
use super::{Asker, Inner};
use crate::agents::{Agent, Known};
use crate::bridge::status::{self, Viewed};
use crate::bridge::work::Work;
use crate::fault::Trouble;
use crate::mcp::tasks::{TaskSnapshot, iso8601};
use crate::seal::{LocalRef, Named, TaskRef};
use crate::tasks::{Entry, Key, Phase, Times, Verdict};

/// Why a task is not found.
#[derive(Debug)]
pub(super) enum NotFound {
    /// There is none, or none of this caller's.
    Unknown,
    /// The agent cannot say.
    Trouble(Trouble),
}

impl Inner {
    /// The agent and the task that a handle of this caller's stands for, if the agent is behind this door.
    pub(super) fn opened(&self, asker: &Asker, door: Door<'_>, handle: &str) -> Option<(Arc<Agent>, Named)> {
        let caller = asker.caller.name();
        let (agent, named) = match TaskRef::open(&self.sealer, caller, handle) {
            Some(TaskRef { agent, task }) => (agent, Named::Task(task)),
            None => {
                let LocalRef { agent, number } = LocalRef::open(&self.sealer, caller, handle)?;
                (agent, Named::Local(number))
            }
        };
        let agent = self.directory.find(&agent)?.clone();
        self.is_behind_door(door, &agent).then_some((agent, named))
    }

    pub(super) fn is_behind_door(&self, door: Door<'_>, agent: &Agent) -> bool {
        match door {
            Door::OneAgent(name) => agent.settings.name == name,
            Door::AllAgents | Door::Health => true,
        }
    }

    /// The entry of a task; what is not in the map is asked of the agent.
    pub(super) async fn entry(
        &self,
        agent: &Arc<Agent>,
        named: &Named,
    ) -> Result<(Arc<Entry>, Arc<Known>), NotFound> {
        let known = self.known(agent).map_err(NotFound::Trouble)?;
        let name: Arc<str> = agent.settings.name.as_str().into();
        let now = Times::now();
        let (key, task) = match named {
            Named::Local(number) => {
                let entry = self.tasks.find(&Key::Local(*number), now.instant);
                return entry.map(|entry| (entry, known)).ok_or(NotFound::Unknown);
            }
            Named::Task(id) => (Key::Task { agent: name.clone(), id: id.clone() }, id.as_str()),
        };
        if let Some(entry) = self.tasks.find(&key, now.instant) {
            return Ok((entry, known));
        }
        let mut work = Work::new(self.settings.limits.artifacts);
        work.task_id = Some(task.to_owned());
        let entry = Entry::new(name, rand::random(), work, now);
        let entry = Arc::new(entry);
        self.followers.look(&entry, &known).await.map_err(|trouble| match trouble {
            Trouble::TaskLost => NotFound::Unknown,
            trouble => NotFound::Trouble(trouble),
        })?;
        // Where there is no room to remember it, it is known for this request.
        let (entry, _) = self.tasks.admit_entry(key, entry.clone(), now.instant).unwrap_or((entry, true));
        Ok((entry, known))
    }

    pub(super) fn known(&self, agent: &Agent) -> Result<Arc<Known>, Trouble> {
        agent.known().ok_or_else(|| {
            let why = agent.problem().map_or("its card has not come yet", |_| "its card cannot be had");
            Trouble::NotSeen(why.to_owned())
        })
    }

    /// Brings a task up to date that nobody follows.
    pub(super) async fn freshen(&self, entry: &Arc<Entry>, known: &Arc<Known>) {
        let (phase, is_followed) = entry.look(|inside| (inside.phase(), inside.is_followed()));
        if is_followed || matches!(phase, Phase::Finished | Phase::Failed(_)) {
            return;
        }
        if let Err(trouble) = self.followers.look(entry, known).await {
            tracing::debug!(agent = %entry.agent(), %trouble, "agent does not say how a task stands");
            self.followers.note_end(entry, trouble);
        }
        if entry.look(|inside| inside.phase()) == Phase::Running {
            self.followers.attend(entry, known);
        }
    }

    /// The client will hold a handle of the task: it is remembered, and kept where tasks are kept.
    pub(super) async fn hand_out(&self, entry: &Arc<Entry>, asker: &Asker) {
        entry.own(asker.caller.name());
        self.ledger.acknowledge(entry).await;
    }

    /// The handle of a task for this caller.
    pub(super) fn handle_of(&self, entry: &Entry, asker: &Asker) -> String {
        let (agent, caller) = (entry.agent().to_string(), asker.caller.name());
        let known = entry.task_id().map(|task| TaskRef { agent: agent.clone(), task: task.into() });
        match known.filter(TaskRef::fits) {
            Some(known) => known.seal(&self.sealer, caller).into_string(),
            None => LocalRef { agent, number: entry.local() }.seal(&self.sealer, caller).into_string(),
        }
    }

    /// How a task looks from outside the map.
    pub(super) fn viewed(&self, entry: &Entry, can_be_asked: bool) -> Viewed {
        entry.look(|inside| {
            let phase = inside.phase();
            let turn = match &phase {
                Phase::Asking(turn, _) => Some(*turn),
                Phase::Running | Phase::Finished | Phase::Failed(_) => None,
            };
            Viewed {
                is_cancelled: inside.verdict == Some(Verdict::Cancelled),
                is_asking: turn.is_some(),
                can_be_asked,
                is_refused: turn.is_some_and(|turn| inside.refusal(turn).is_some()),
                has_failed: matches!(phase, Phase::Failed(_)),
            }
        })
    }

    /// A task in numbers, with the status that core clients get.
    pub(super) fn snapshot<'h>(&self, entry: &Entry, handle: &'h str, asker: &Asker) -> TaskSnapshot<'h> {
        let viewed = self.viewed(entry, self.can_be_asked(entry, asker));
        let millis = |wait: std::time::Duration| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        entry.look(|inside| {
            let message = match inside.phase() {
                Phase::Failed(trouble) => Some(trouble.told(entry.agent())),
                Phase::Running | Phase::Asking(..) | Phase::Finished => status::message(&inside.work),
            };
            TaskSnapshot {
                task_id: handle,
                status: status::core(&inside.work, &viewed),
                status_message: message,
                created_at: iso8601(inside.created.unix_ms),
                last_updated_at: iso8601(inside.changed.unix_ms),
                ttl_ms: Some(millis(self.settings.tasks.ttl)),
                poll_interval_ms: millis(self.settings.tasks.poll_interval),
            }
        })
    }
}
