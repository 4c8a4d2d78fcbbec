//! Tasks that clients hold: from a handle to the entry in the map and back.
//!
//! A handle says whose task it is; what the map has forgotten is asked of the agent. Not here: the map (see `tasks`), sealing (see
//! `seal`).

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::limits::TaskReservation;
use super::route::Route;
use super::source::EventSource;
use super::{ClientContext, Inner};
use crate::a2a::{PathSegmentError, TaskState};
use crate::agents::{Agent, ForwardedContext, ResolvedAgent};
use crate::bridge::output::AgentOutput;
use crate::bridge::task_status::{self, ClientTaskStatus};
use crate::fault::{AgentFailure, Fault};
use crate::mcp::tasks::{TaskSnapshot, TaskStatus, iso8601};
use crate::seal::{TaskKey, TaskRef};
use crate::tasks::{ClientOverride, EntryKey, TaskEntry, TaskPhase, Timestamp};

/// Longest wait for an agent that is asked how a task stands while a client waits.
const ASKED_WITHIN: Duration = Duration::from_secs(10);

/// Waits until something is known of a task that another request is asking for; says whether it is.
async fn wait_until_delivered(entry: &TaskEntry) -> bool {
    let mut changes = entry.changes();
    let told = async {
        while entry.visible_state(|inside| inside.is_unstarted() && !inside.is_followed()) {
            if entry.is_gone() || changes.changed().await.is_err() {
                return false;
            }
        }
        true
    };
    tokio::time::timeout(ASKED_WITHIN, told).await.unwrap_or(false)
}

/// How an agent is called, with what goes along.
pub(super) fn resolved_agent(
    agent: &Agent,
    along: Option<&Arc<ForwardedContext>>,
) -> Result<Arc<ResolvedAgent>, AgentFailure> {
    let known = agent.known().ok_or_else(|| {
        let why = agent.problem().map_or("its card has not come yet", |_| "its card cannot be had");
        AgentFailure::CardUnavailable(why.to_owned())
    })?;
    match agent.obstacle_of(&known.card) {
        Some(why) => Err(AgentFailure::CardInvalid(why)),
        None => Ok(known.along(along)),
    }
}

/// Why a task is not found.
#[derive(Debug)]
pub(super) enum NotFound {
    /// There is none, or none of this caller's.
    Unknown,
    /// The agent cannot say.
    Trouble(AgentFailure),
    /// It is there, and what was said does not answer its question: how to, for the model.
    Unfit(String),
}

impl NotFound {
    /// The fault of a request about such a task.
    pub(super) fn fault(self) -> Fault {
        match self {
            Self::Unknown => Fault::UnknownTask,
            Self::Unfit(told) => Fault::InvalidParams(told),
            Self::Trouble(AgentFailure::UnsafeId) => Fault::InvalidParams(PathSegmentError::TEXT.to_owned()),
            Self::Trouble(trouble) => {
                tracing::debug!(%trouble, "agent cannot be asked for a task");
                Fault::AgentUnavailable
            }
        }
    }
}

impl Inner {
    /// The agent and the task that a handle of this caller's stands for, if the agent is behind this door.
    pub(super) fn open_handle(
        &self,
        asker: &ClientContext,
        door: Route<'_>,
        handle: &str,
    ) -> Option<(Arc<Agent>, TaskKey)> {
        let (agent, named) = TaskKey::open(&self.sealer, asker.caller.name(), handle)?;
        let agent = self.directory.find(&agent)?.clone();
        self.can_see(&asker.caller, door, &agent).then_some((agent, named))
    }

    /// The entry of a task; what is not in the map is asked of the agent.
    pub(super) async fn entry(
        &self,
        asker: &ClientContext,
        agent: &Arc<Agent>,
        named: &TaskKey,
    ) -> Result<(Arc<TaskEntry>, Arc<ResolvedAgent>), NotFound> {
        let known = self.resolved_agent(asker, agent).map_err(NotFound::Trouble)?;
        let name: Arc<str> = agent.settings.name.as_str().into();
        let now = Timestamp::now();
        let (key, task) = match named {
            TaskKey::Local(number) => {
                let entry = self.tasks.find(&EntryKey::Local(*number), now.instant);
                return entry.map(|entry| (entry, known)).ok_or(NotFound::Unknown);
            }
            TaskKey::Task(id, _) => (EntryKey::Task { agent: name.clone(), id: id.clone() }, id.as_str()),
        };
        let skill = || named.skill().map(Arc::from);
        let make = || {
            let mut work = AgentOutput::new(self.settings.limits.artifacts);
            work.task_id = Some(task.to_owned());
            work.skill = skill();
            TaskEntry::new(name.clone(), rand::random(), work, now)
        };
        // Where there is no room to remember it, it is known for this request.
        let (entry, is_new) =
            self.tasks.admit(key, make, now.instant).unwrap_or_else(|_| (Arc::new(make()), true));
        if is_new || !wait_until_delivered(&entry).await {
            self.ask(&entry, &known).await.map_err(|trouble| {
                self.tasks.forget(&entry);
                match trouble {
                    AgentFailure::TaskNotFound => NotFound::Unknown,
                    trouble => NotFound::Trouble(trouble),
                }
            })?;
        }
        if named.skill().is_some() && entry.visible_state(|inside| inside.work.skill.is_none()) {
            entry.update(|work| work.skill = skill());
        }
        Ok((entry, known))
    }

    /// The skill whose tool began a task of an agent, if that is known.
    pub(super) fn skill_of(&self, agent: &str, named: &TaskKey) -> Option<Arc<str>> {
        let key = match named {
            TaskKey::Task(_, Some(skill)) => return Some(skill.as_str().into()),
            TaskKey::Task(id, None) => EntryKey::Task { agent: agent.into(), id: id.clone() },
            TaskKey::Local(number) => EntryKey::Local(*number),
        };
        self.tasks.get_untouched(&key, Instant::now())?.visible_state(|inside| inside.work.skill.clone())
    }

    /// How an agent is called for this request.
    pub(super) fn resolved_agent(
        &self,
        asker: &ClientContext,
        agent: &Agent,
    ) -> Result<Arc<ResolvedAgent>, AgentFailure> {
        resolved_agent(agent, asker.along.as_ref())
    }

    /// Asks the agent how a task stands, for no longer than a client waits.
    async fn ask(&self, entry: &Arc<TaskEntry>, known: &Arc<ResolvedAgent>) -> Result<(), AgentFailure> {
        let asked = tokio::time::timeout(ASKED_WITHIN, self.followers.refresh(entry, known)).await;
        asked.unwrap_or(Err(AgentFailure::Timeout("it does not say how the task stands")))
    }

    /// Brings a task up to date that nobody follows.
    pub(super) async fn refresh(&self, entry: &Arc<TaskEntry>, known: &Arc<ResolvedAgent>) {
        let (phase, is_followed) = entry.visible_state(|inside| (inside.phase(), inside.is_followed()));
        if is_followed || matches!(phase, TaskPhase::Finished | TaskPhase::Failed(_)) {
            let refilled = tokio::time::timeout(ASKED_WITHIN, self.followers.refetch(entry, known)).await;
            if let Err(trouble) =
                refilled.unwrap_or(Err(AgentFailure::Timeout("it does not give its artifacts again")))
            {
                tracing::warn!(agent = %entry.agent(), %trouble, "artifacts that were left to the agent are not to be had");
            }
            // The follower continues with these credentials when its own are refused.
            if is_followed {
                self.followers.ensure_followed(entry, known);
            }
            return;
        }
        if let Err(trouble) = self.ask(entry, known).await {
            tracing::debug!(agent = %entry.agent(), %trouble, "agent does not say how a task stands");
            // Anything else may pass; whoever follows it finds out.
            if trouble == AgentFailure::TaskNotFound {
                self.followers.mark_failed(entry, trouble);
            }
        }
        // An authorization is given elsewhere: the agent goes on without a word from here.
        if matches!(
            entry.visible_state(|inside| inside.phase()),
            TaskPhase::Running | TaskPhase::Asking(_, TaskState::AuthRequired)
        ) {
            self.followers.ensure_followed(entry, known);
        }
    }

    /// A place for the task that a call is about to begin, if it begins one. Its agent has heard nothing yet.
    ///
    /// # Errors
    ///
    /// [`Fault::TooMuch`] if the caller has as many as may be.
    pub(super) fn reserve_task(
        &self,
        asker: &ClientContext,
        source: &EventSource,
    ) -> Result<Option<TaskReservation>, Fault> {
        match source {
            EventSource::Own(own) => self.shares.reserve_task(&asker.caller, own.local).map(Some),
            EventSource::Watched(_) => Ok(None),
        }
    }

    /// The client will hold a handle of the task: it is remembered, and kept where tasks are kept. Returns a warning for
    /// the client, if the disk does not take it.
    pub(super) async fn issue_handle(
        &self,
        entry: &Arc<TaskEntry>,
        asker: &ClientContext,
    ) -> Option<&'static str> {
        entry.own(asker.caller.name());
        self.shares.track_task(&asker.caller, entry);
        if self.ledger.acknowledge(entry).await {
            return None;
        }
        Some(
            "The gateway cannot keep this task on disk now. If the gateway restarts, the task is found only while its \
             agent remembers it, or not at all.",
        )
    }

    /// The handle of a task for this caller.
    pub(super) fn handle_of(&self, entry: &TaskEntry, asker: &ClientContext) -> String {
        self.task_key(entry).seal(&self.sealer, asker.caller.name(), entry.agent()).into_string()
    }

    /// How a task is named in what is sealed: by the agent's id where that fits.
    pub(super) fn task_key(&self, entry: &TaskEntry) -> TaskKey {
        let agent = entry.agent().to_string();
        let known = entry.visible_state(|inside| {
            let skill = inside.work.skill.as_deref().map(str::to_owned);
            inside.work.task_id.as_deref().map(|task| TaskRef { agent, task: task.into(), skill })
        });
        let known = known.and_then(TaskRef::fitting);
        known.map_or(TaskKey::Local(entry.local()), |known| TaskKey::Task(known.task, known.skill))
    }

    /// How a task stands for this client.
    pub(super) fn client_status(&self, entry: &TaskEntry, asker: &ClientContext) -> ClientTaskStatus {
        let askable = self.can_be_asked(entry, asker);
        entry.visible_state(|inside| {
            let cancelled = inside.verdict == Some(ClientOverride::Cancelled);
            let standpoint = ClientTaskStatus::of(&inside.work, cancelled, askable);
            match inside.phase() {
                TaskPhase::Failed(_) => ClientTaskStatus { state: TaskState::Failed, ..standpoint },
                // The agent repeats a question that has been answered, or has not been told yet that it was.
                TaskPhase::Running if standpoint.state.is_interrupted() => {
                    ClientTaskStatus { state: TaskState::Working, ..standpoint }
                }
                TaskPhase::Running | TaskPhase::Asking(..) | TaskPhase::Finished => standpoint,
            }
        })
    }

    /// A task in numbers, with the status that core clients get.
    pub(super) fn snapshot<'h>(
        &self,
        entry: &TaskEntry,
        handle: &'h str,
        asker: &ClientContext,
    ) -> TaskSnapshot<'h> {
        let standpoint = self.client_status(entry, asker);
        let status = standpoint.core();
        let said = entry.show_work(|work| task_status::message(work, task_status == TaskStatus::Cancelled));
        let millis = |wait: Duration| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        entry.visible_state(|inside| {
            let message = match inside.phase() {
                TaskPhase::Failed(trouble) => Some(trouble.public_message(entry.agent())),
                TaskPhase::Running | TaskPhase::Asking(..) | TaskPhase::Finished => {
                    let delay = inside.delay.filter(|_| inside.phase() == TaskPhase::Running);
                    match (said, delay.map(|delay| delay.told(entry.agent()))) {
                        (Some(said), Some(delay)) => Some(format!("{delay} The agent last said: {said}")),
                        (said, delay) => delay.or(said),
                    }
                }
            };
            TaskSnapshot {
                task_id: handle,
                task_status,
                status_message: message,
                created_at: iso8601(inside.created.unix_ms),
                last_updated_at: iso8601(inside.changed.unix_ms),
                ttl_ms: Some(millis(self.settings.tasks.ttl)),
                poll_interval_ms: millis(self.settings.tasks.poll_interval),
            }
        })
    }
}
