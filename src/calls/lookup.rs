//! Task lookup: from a sealed handle to the entry in the map and back.
//!
//! A handle is bound to its caller. A task that the map has forgotten is fetched from the agent.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::ClientContext;
use super::questions::question_of;
use super::run::ActiveCall;
use super::source::EventSource;
use crate::a2a::{PathSegmentError, TaskState};
use crate::access::Authorizer;
use crate::agents::{Agent, Directory, ForwardedContext, ResolvedAgent};
use crate::auth::fits_pattern;
use crate::bridge::output::AgentOutput;
use crate::bridge::task_status::{self, ClientTaskStatus};
use crate::bridge::task_tools::TaskTool;
use crate::bridge::tool_result::{ResultContext, TaskTools};
use crate::fault::{AgentFailure, Fault};
use crate::follow::TaskFollower;
use crate::limits::{Limits, TaskReservation};
use crate::mcp::Method;
use crate::mcp::tasks::{TaskSnapshot, TaskStatus, iso8601};
use crate::mcp::tools::ResourceLinks;
use crate::seal::{Sealer, TaskKey, TaskRef};
use crate::shared_state::SharedState;
use crate::tasks::{ClientOverride, EntryKey, TaskEntry, TaskJournal, TaskPhase, Tasks, Timestamp, row_key};

/// Longest wait for an agent that is asked for the state of a task while a client waits.
const STATE_TIMEOUT: Duration = Duration::from_secs(10);

/// Waits until another request has fetched the state of a task. Returns true if the state is known.
async fn wait_until_delivered(entry: &Arc<TaskEntry>) -> bool {
    let mut changes = entry.changes();
    let delivered = async {
        while entry.visible_state(|inside| inside.is_unstarted() && !inside.is_followed()) {
            if entry.is_gone() {
                return false;
            }
            changes.changed().await;
        }
        true
    };
    tokio::time::timeout(STATE_TIMEOUT, delivered).await.unwrap_or(false)
}

/// Returns the agent with the forwarded context, ready to be called.
pub(crate) fn resolved_agent(
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

/// Reason for which a task is not found.
#[derive(Debug)]
pub(crate) enum NotFound {
    /// The task does not exist, or belongs to another caller.
    Unknown,
    /// The agent cannot answer.
    Trouble(AgentFailure),
    /// The task exists, but the message does not answer its question; a text for the model on how
    /// to answer.
    Unfit(String),
}

impl NotFound {
    /// Returns the fault of a request about such a task.
    pub(crate) fn fault(self) -> Fault {
        match self {
            Self::Unknown => Fault::UnknownTask,
            Self::Unfit(told) => Fault::InvalidParams(told),
            Self::Trouble(AgentFailure::UnsafeId) => Fault::InvalidParams(PathSegmentError::TEXT.to_owned()),
            Self::Trouble(trouble) => {
                tracing::debug!(error = %trouble, "failed to fetch task from agent");
                Fault::AgentUnavailable
            }
        }
    }
}

/// Settings of tasks, as clients see them.
pub(crate) struct TaskSettings {
    /// Most bytes of the artifacts of one task.
    pub(crate) artifact_bytes: usize,
    pub(crate) ttl: Duration,
    pub(crate) poll_interval: Duration,
    /// True if results name the built-in task tools.
    pub(crate) subagent_tools: bool,
    /// Where results hold links to resources.
    pub(crate) resource_links: ResourceLinks,
    /// Patterns for skills by phase; `None`: workflows are not offered.
    pub(crate) phases: Option<BTreeMap<String, Vec<String>>>,
    /// True if every finished task is recorded (`resources.memory.task_results`).
    pub(crate) records_results: bool,
}

impl TaskSettings {
    /// Returns the phase of a task of this skill, by the rules of the configuration.
    pub(crate) fn phase_of(&self, skill: Option<&str>) -> Option<&str> {
        let skill = skill?;
        let fits = |patterns: &[String]| patterns.iter().any(|pattern| fits_pattern(pattern, skill));
        self.phases.iter().flatten().find(|(_, patterns)| fits(patterns)).map(|(phase, _)| phase.as_str())
    }
}

/// Finds the tasks of handles, and describes tasks to clients.
pub(crate) struct TaskLookup {
    pub(crate) directory: Arc<Directory>,
    pub(crate) authorizer: Arc<Authorizer>,
    pub(crate) limits: Arc<Limits>,
    pub(crate) tasks: Tasks,
    pub(crate) followers: Arc<TaskFollower>,
    pub(crate) journal: Arc<TaskJournal>,
    /// Knows the tasks of other replicas.
    pub(crate) shared: Option<Arc<SharedState>>,
    pub(crate) sealer: Sealer,
    pub(crate) settings: TaskSettings,
}

impl TaskLookup {
    /// Opens a handle of this caller, and returns its agent and task if the agent is on this route.
    pub(crate) fn open_handle(
        &self,
        client: &ClientContext<'_>,
        handle: &str,
    ) -> Option<(Arc<Agent>, TaskKey)> {
        let (agent, named) = TaskKey::open(&self.sealer, client.caller.name(), handle)?;
        let agent = self.directory.find(&agent)?.clone();
        self.authorizer.can_see(client.requester(), &agent).then_some((agent, named))
    }

    /// Returns the entry of a task; a task that is not in the map is fetched from the agent.
    pub(crate) async fn entry(
        &self,
        client: &ClientContext<'_>,
        agent: &Arc<Agent>,
        named: &TaskKey,
    ) -> Result<(Arc<TaskEntry>, Arc<ResolvedAgent>), NotFound> {
        let known = self.resolved_agent(client, agent).map_err(NotFound::Trouble)?;
        let name: Arc<str> = agent.settings.name.as_str().into();
        if let Some(shared) = &self.shared {
            // Boxed: a rare case must not make every request larger.
            Box::pin(self.learn_task(shared, &name, named)).await;
        }
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
            let mut work = AgentOutput::new(self.settings.artifact_bytes);
            work.task_id = Some(task.to_owned());
            work.skill = skill();
            TaskEntry::new(name.clone(), rand::random(), work, now)
        };
        // If the map is full, the entry lives for this request only.
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

    /// Learns a task that another replica knows, unless it is known here.
    async fn learn_task(&self, shared: &SharedState, agent: &str, named: &TaskKey) {
        let (key, row_key) = match named {
            TaskKey::Local(number) => (EntryKey::Local(*number), row_key(agent, None, *number)),
            TaskKey::Task(id, _) => (
                EntryKey::Task { agent: agent.into(), id: id.clone() },
                row_key(agent, Some(id.as_str()), Default::default()),
            ),
        };
        let known = self.tasks.get_untouched(&key, Instant::now());
        // The replica with the call learns the name of a task that has none.
        let is_known =
            |entry: Arc<TaskEntry>| entry.is_named() || entry.visible_state(|inside| inside.is_followed());
        if known.is_some_and(is_known) {
            return;
        }
        if let Some(row) = shared.task_row(&row_key).await {
            let learned =
                self.journal.learn(&self.tasks, &row, self.settings.artifact_bytes, Timestamp::now());
            tracing::debug!(agent, is_learned = learned.is_some(), "task of another replica");
        }
    }

    /// Learns the tasks of a caller that other replicas know, so that lists have them.
    pub(crate) async fn learn_tasks_of_caller(&self, client: &ClientContext<'_>) {
        let Some(shared) = &self.shared else { return };
        if client.caller.is_anonymous() {
            return;
        }
        let (name, now) = (client.caller.name(), Timestamp::now());
        let owned = self.tasks.owned_by(name, now.instant);
        let known: HashSet<_> = owned.iter().map(|entry| SharedState::task_hash(&entry.row_key())).collect();
        // Boxed: a rare case must not make every request larger.
        let learn = |row: &[u8]| {
            if let Some(entry) = self.journal.learn(&self.tasks, row, self.settings.artifact_bytes, now) {
                // The row may be of a replica that does not know this caller.
                entry.own(name);
            }
        };
        Box::pin(shared.rows_of_owner(name, |hash| known.contains(hash), learn)).await;
    }

    /// Returns the skill of the tool that started a task, if it is known.
    pub(crate) fn skill_of(&self, agent: &str, named: &TaskKey) -> Option<Arc<str>> {
        let key = match named {
            TaskKey::Task(_, Some(skill)) => return Some(skill.as_str().into()),
            TaskKey::Task(id, None) => EntryKey::Task { agent: agent.into(), id: id.clone() },
            TaskKey::Local(number) => EntryKey::Local(*number),
        };
        self.tasks.get_untouched(&key, Instant::now())?.visible_state(|inside| inside.work.skill.clone())
    }

    /// Returns the agent with the context of this request, ready to be called.
    pub(crate) fn resolved_agent(
        &self,
        client: &ClientContext<'_>,
        agent: &Agent,
    ) -> Result<Arc<ResolvedAgent>, AgentFailure> {
        resolved_agent(agent, client.forwarded.as_ref())
    }

    /// Asks the agent for the state of a task, for no longer than a client waits.
    async fn ask(&self, entry: &Arc<TaskEntry>, known: &Arc<ResolvedAgent>) -> Result<(), AgentFailure> {
        let asked = tokio::time::timeout(STATE_TIMEOUT, self.followers.refresh(entry, known)).await;
        asked.unwrap_or(Err(AgentFailure::Timeout("it does not say how the task stands")))
    }

    /// Refreshes a task that has no follower.
    pub(crate) async fn refresh(&self, entry: &Arc<TaskEntry>, known: &Arc<ResolvedAgent>) {
        let (phase, is_followed) = entry.visible_state(|inside| (inside.phase(), inside.is_followed()));
        if is_followed || matches!(phase, TaskPhase::Finished | TaskPhase::Failed(_)) {
            let refilled = tokio::time::timeout(STATE_TIMEOUT, self.followers.refetch(entry, known)).await;
            if let Err(trouble) =
                refilled.unwrap_or(Err(AgentFailure::Timeout("it does not give its artifacts again")))
            {
                tracing::info!(agent = %entry.agent(), error = %trouble, "failed to refetch evicted artifacts");
            }
            // The follower continues with these credentials when its own are refused.
            if is_followed {
                self.followers.ensure_followed(entry, known);
            }
            return;
        }
        if let Err(trouble) = self.ask(entry, known).await {
            tracing::debug!(agent = %entry.agent(), error = %trouble, "failed to refresh task");
            // Other failures may be temporary; the follower will notice if not.
            if trouble == AgentFailure::TaskNotFound {
                self.followers.mark_failed(entry, trouble);
            }
        }
        // An authorization happens elsewhere: the agent continues without a message.
        if matches!(
            entry.visible_state(|inside| inside.phase()),
            TaskPhase::Running | TaskPhase::Asking(_, TaskState::AuthRequired)
        ) {
            self.followers.ensure_followed(entry, known);
        }
    }

    /// Reserves a task slot for a call that is about to start a task, by the local number of the call
    /// (see [`EventSource::own_number`]). The agent has not been contacted yet.
    ///
    /// # Errors
    ///
    /// [`Fault::QuotaExceeded`] if the caller has reached its limit.
    pub(crate) async fn reserve_task(
        &self,
        client: &ClientContext<'_>,
        number: Option<[u8; 16]>,
    ) -> Result<Option<TaskReservation>, Fault> {
        match number {
            Some(number) => self.limits.reserve_task(&client.caller, number).await.map(Some),
            None => Ok(None),
        }
    }

    /// Records that the client will hold a handle of the task, and its software if it is the first,
    /// and persists the task. Returns a warning for the client if the disk does not accept it.
    pub(crate) async fn issue_handle(
        &self,
        entry: &Arc<TaskEntry>,
        client: &ClientContext<'_>,
    ) -> Option<&'static str> {
        entry.own(client.caller.name());
        entry.record_client(client.software.as_ref());
        self.limits.track_task(&client.caller, entry);
        if self.journal.acknowledge(entry).await {
            return None;
        }
        Some(
            "The gateway cannot keep this task on disk now. If the gateway restarts, the task is found only while its \
             agent remembers it, or not at all.",
        )
    }

    /// Moves a copy of the finished task of a workflow, or of a task that is recorded, to the task
    /// map. `None` for other tasks, which are left to their agents, and if the map is full.
    pub(crate) fn keep_finished(
        &self,
        source: &EventSource,
        call: &ActiveCall<'_>,
    ) -> Option<Arc<TaskEntry>> {
        let EventSource::Own(own) = source else { return None };
        let work = &own.work;
        let task = work.task_id.as_ref()?;
        let has_phase = || !work.phases.is_empty() || self.settings.phase_of(work.skill.as_deref()).is_some();
        let is_of_workflow = self.settings.phases.is_some() && work.context_id.is_some() && has_phase();
        let is_recorded = self.settings.records_results && !call.client.caller.is_anonymous();
        if !is_of_workflow && !is_recorded {
            return None;
        }
        let mut kept = AgentOutput::from_task(work.to_task()?, self.settings.artifact_bytes).ok()?;
        kept.skill.clone_from(&work.skill);
        kept.phases.clone_from(&work.phases);
        let (agent, now): (Arc<str>, _) = (call.agent.settings.name.as_str().into(), Timestamp::now());
        let waited = call.since.elapsed();
        let key = EntryKey::Task { agent: agent.clone(), id: task.as_str().into() };
        let make = || TaskEntry::new(agent, own.local, kept, now).created_before(waited);
        self.tasks.admit(key, make, now.instant).ok().map(|(entry, _)| entry)
    }

    /// Returns the facts about a client that results of an agent depend on.
    pub(crate) fn result_context<'a>(
        &'a self,
        client: &'a ClientContext<'_>,
        agent: &'a Agent,
    ) -> ResultContext<'a> {
        self.context_of(client, &agent.settings.name, Some(agent))
    }

    /// Returns the facts about a client that results of an agent with this name depend on, also if the agent is no longer
    /// configured.
    pub(crate) fn result_context_by_name<'a>(
        &'a self,
        client: &'a ClientContext<'_>,
        agent: &'a str,
    ) -> ResultContext<'a> {
        self.context_of(client, agent, self.directory.find(agent).map(|found| &**found))
    }

    fn context_of<'a>(
        &'a self,
        client: &'a ClientContext<'_>,
        agent: &'a str,
        found: Option<&'a Agent>,
    ) -> ResultContext<'a> {
        let has = |tool| {
            self.settings.subagent_tools && self.authorizer.may_use_on(&client.caller, agent, found, tool)
        };
        ResultContext {
            version: client.version,
            caller: client.caller.name(),
            sealer: &self.sealer,
            agent,
            task_tools: TaskTools { wait: has(TaskTool::Wait), send: has(TaskTool::Send) },
            extensions: found.map_or(&[], |found| &found.settings.extensions),
            links: self.settings.resource_links,
        }
    }

    /// Returns the remembered tasks of the caller, by handle. Anonymous callers share one name and
    /// own no tasks.
    pub(crate) fn tasks_of_caller(&self, client: &ClientContext<'_>) -> Vec<(String, Arc<TaskEntry>)> {
        let mut owned = Vec::new();
        if client.caller.is_anonymous() {
            return owned;
        }
        for entry in self.tasks.owned_by(client.caller.name(), Instant::now()) {
            let agent = self.directory.find(entry.agent());
            if agent.is_some_and(|agent| self.authorizer.can_see(client.requester(), agent)) {
                owned.push((self.handle_of(&entry, client), entry));
            }
        }
        owned.sort_by(|one, other| one.0.cmp(&other.0));
        owned
    }

    /// Returns the task of a handle, if this caller may read it here.
    ///
    /// # Errors
    ///
    /// The [`Fault`] with which the request is rejected.
    pub(crate) async fn readable(
        &self,
        client: &ClientContext<'_>,
        handle: &str,
    ) -> Result<Option<(Arc<TaskEntry>, Arc<ResolvedAgent>)>, Fault> {
        let Some((agent, named)) = self.open_handle(client, handle) else { return Ok(None) };
        match self.authorizer.authorize_task(client.requester(), Method::ResourcesRead, &agent) {
            Err(Fault::UnknownTask) => return Ok(None),
            permitted => permitted?,
        }
        match self.entry(client, &agent, &named).await {
            Ok((entry, known)) => {
                entry.own(client.caller.name());
                Ok(Some((entry, known)))
            }
            Err(NotFound::Unknown) => Ok(None),
            Err(not_found) => Err(not_found.fault()),
        }
    }

    /// Returns the handle of a task for this caller.
    pub(crate) fn handle_of(&self, entry: &TaskEntry, client: &ClientContext<'_>) -> String {
        self.task_key(entry).seal(&self.sealer, client.caller.name(), entry.agent()).into_string()
    }

    /// Returns the key of a task inside sealed tokens: the agent's id where that fits.
    pub(crate) fn task_key(&self, entry: &TaskEntry) -> TaskKey {
        let agent = entry.agent().to_string();
        let known = entry.visible_state(|inside| {
            let skill = inside.work.skill.as_deref().map(str::to_owned);
            inside.work.task_id.as_deref().map(|task| TaskRef { agent, task: task.into(), skill })
        });
        let known = known.and_then(TaskRef::fitting);
        known.map_or(TaskKey::Local(entry.local()), |known| TaskKey::Task(known.task, known.skill))
    }

    /// Returns the status of a task as this client must see it.
    pub(crate) fn client_status(&self, entry: &TaskEntry, client: &ClientContext<'_>) -> ClientTaskStatus {
        let can_be_asked = can_be_asked(entry, client);
        entry.visible_state(|inside| {
            let cancelled = inside.verdict == Some(ClientOverride::Cancelled);
            let standpoint = ClientTaskStatus::of(&inside.work, cancelled, can_be_asked);
            match inside.phase() {
                TaskPhase::Failed(_) => ClientTaskStatus { state: TaskState::Failed, ..standpoint },
                // The agent repeats an answered question, or the answer has not been delivered yet.
                TaskPhase::Running if standpoint.state.is_interrupted() => {
                    ClientTaskStatus { state: TaskState::Working, ..standpoint }
                }
                TaskPhase::Running | TaskPhase::Asking(..) | TaskPhase::Finished => standpoint,
            }
        })
    }

    /// Returns a snapshot of a task, with the status for core clients.
    pub(crate) fn snapshot<'h>(
        &self,
        entry: &TaskEntry,
        handle: &'h str,
        client: &ClientContext<'_>,
    ) -> TaskSnapshot<'h> {
        let standpoint = self.client_status(entry, client);
        let status = standpoint.core();
        let said = entry.show_work(|work| task_status::message(work, status == TaskStatus::Cancelled));
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
                status,
                status_message: message,
                created_at: iso8601(inside.created_ms),
                last_updated_at: iso8601(inside.changed.unix_ms),
                ttl_ms: Some(millis(self.settings.ttl)),
                poll_interval_ms: millis(self.settings.poll_interval),
            }
        })
    }
}

/// Returns true if this client can be asked the open question of the task.
fn can_be_asked(entry: &TaskEntry, client: &ClientContext<'_>) -> bool {
    let Some((question, turn)) = question_of(entry) else { return false };
    let is_refused = entry.visible_state(|inside| inside.refusal(turn).is_some());
    !is_refused && question.asks(client.version, client.capabilities).is_some()
}
