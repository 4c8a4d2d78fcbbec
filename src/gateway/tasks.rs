//! `tasks/*`: both task protocols of MCP.
//!
//! Reads docs/spec/mcp.md §2.13 (the core of 2025-11-25: `get`, `result`, `list`, `cancel`) and
//! §2.14 (the extension of 2026-07-28: `get`, `update`, `cancel`). See also `run`, where a call
//! becomes a task.

use std::sync::Arc;
use std::time::Duration;

use super::access_record::AccessRecord;
use super::input_responses::{already_answered, last_question};
use super::lookup::NotFound;
use super::questions::question_of;
use super::responder::{CallResponder, ResponseTarget};
use super::response::ClientGone;
use super::route::Route;
use super::run::{ActiveCall, ResultKind};
use super::source::{EventSource, FollowedTask};
use super::{ClientContext, Inner};
use crate::agents::{Agent, ResolvedAgent};
use crate::bridge::progress::ProgressNotifier;
use crate::bridge::response_mode::{self, Fallback, ResponsePlan};
use crate::bridge::tool_result;
use crate::fault::Fault;
use crate::jsonrpc::Id;
use crate::mcp::tasks::{TaskDetail, TaskStatus};
use crate::mcp::tools::CallToolResult;
use crate::mcp::{ClientCapabilities, ClientParams, Era, Method};
use crate::seal::{ListKind, PageCursor};
use crate::tasks::{AnswerRefusal, ClientOverride, TaskEntry, TaskPhase};

/// Longest wait for an agent to cancel a task.
const STOPPED_WITHIN: Duration = Duration::from_secs(10);

/// Task with its handle, agent and entry.
struct ResolvedTask {
    handle: String,
    agent: Arc<Agent>,
    entry: Arc<TaskEntry>,
    known: Arc<ResolvedAgent>,
}

impl Inner {
    /// Handles a request about tasks.
    pub(super) async fn task_method(
        &self,
        to: ResponseTarget<'_>,
        door: Route<'_>,
        (asker, exchange): (&ClientContext, &mut AccessRecord),
        (method, id, params): (Method, &Id, &ClientParams<'_>),
    ) -> Result<Option<Vec<u8>>, Result<Fault, ClientGone>> {
        self.supports_tasks(asker, method).map_err(Ok)?;
        if method == Method::TasksList {
            let body = self.list_tasks(door, asker, id, params).map_err(Ok)?;
            return self.answer_with(to, (asker, exchange), body).await;
        }
        let held = self.resolve((door, asker), method, params).await.map_err(Ok)?;
        exchange.agent = Some(held.agent.clone());
        if method == Method::TasksResult {
            return self.task_result(to, held, (asker, exchange), (id, params)).await;
        }
        let body = match method {
            Method::TasksUpdate => self.update(&held, (door, asker), id, params).await,
            Method::TasksCancel => self.cancel(&held, asker, id).await,
            _ => Ok(self.task(&held, asker, id).await),
        };
        self.answer_with(to, (asker, exchange), body.map_err(Ok)?).await
    }

    fn supports_tasks(&self, asker: &ClientContext, method: Method) -> Result<(), Fault> {
        match asker.version.era() {
            Era::Modern if !asker.capabilities.has(ClientCapabilities::TASKS_EXTENSION) => {
                Err(Fault::MissingCapability(ClientCapabilities::TASKS_EXTENSION))
            }
            // Tasks are listed only for named callers: anonymous callers share one name.
            Era::Legacy if method == Method::TasksList && asker.caller.is_anonymous() => {
                Err(Fault::UnknownMethod(method.as_str().to_owned()))
            }
            Era::Legacy if !asker.version.has_core_tasks() => {
                Err(Fault::UnknownMethod(method.as_str().to_owned()))
            }
            Era::Modern | Era::Legacy => Ok(()),
        }
    }

    async fn resolve(
        &self,
        (door, asker): (Route<'_>, &ClientContext),
        method: Method,
        params: &ClientParams<'_>,
    ) -> Result<ResolvedTask, Fault> {
        let handle =
            params.task_id.as_ref().ok_or_else(|| Fault::InvalidParams("taskId is missing".into()))?;
        let (agent, named) = self.open_handle(asker, door, handle.as_str()).ok_or(Fault::UnknownTask)?;
        self.authorize_task((asker, door), method, &agent, || Fault::UnknownTask)?;
        let (entry, known) = self.entry(asker, &agent, &named).await.map_err(NotFound::fault)?;
        Ok(ResolvedTask { handle: handle.as_str().to_owned(), agent, entry, known })
    }

    /// Handles `tasks/get`.
    async fn task(&self, held: &ResolvedTask, asker: &ClientContext, id: &Id) -> Vec<u8> {
        self.refresh(&held.entry, &held.known).await;
        let writer = self.writer(asker.version.era());
        let snapshot = self.snapshot(&held.entry, &held.handle, asker);
        match asker.version.era() {
            Era::Legacy => writer.core_task(id, &snapshot),
            Era::Modern => self
                .to_detailed_task(&held.entry, asker, |detail| writer.task_detailed(id, &snapshot, detail)),
        }
    }

    /// Adds the detail of a task of the extension, by its status for this client.
    pub(super) fn to_detailed_task<R>(
        &self,
        entry: &Arc<TaskEntry>,
        asker: &ClientContext,
        write: impl FnOnce(&TaskDetail<'_>) -> R,
    ) -> R {
        let agent = entry.agent().to_string();
        let audience = self.audience(asker, &agent);
        let result =
            || entry.visible_state(|inside| tool_result::result(&inside.work, &audience, entry.local()));
        if let TaskPhase::Failed(trouble) = entry.visible_state(|inside| inside.phase()) {
            let message = trouble.public_message(&agent);
            return write(&TaskDetail::Failed { code: -32603, message: &message });
        }
        match self.client_status(entry, asker).extension() {
            TaskStatus::Working => write(&TaskDetail::Working),
            TaskStatus::Cancelled => write(&TaskDetail::Cancelled),
            TaskStatus::InputRequired => match self.requests(entry, asker) {
                Some(requests) => write(&TaskDetail::InputRequired(&requests)),
                None => write(&TaskDetail::Completed(&result())),
            },
            TaskStatus::Completed | TaskStatus::Failed => {
                write(&TaskDetail::Completed(&self.final_result(entry, asker)))
            }
        }
    }

    /// Returns the final result of a task for a client that gets no later updates.
    pub(super) fn final_result(&self, entry: &Arc<TaskEntry>, asker: &ClientContext) -> CallToolResult {
        let agent = entry.agent().to_string();
        let audience = self.audience(asker, &agent);
        let local = entry.local();
        entry.visible_state(|inside| {
            let declined =
                inside.open_turn().and_then(|turn| inside.refusal(turn)) == Some(AnswerRefusal::Declined);
            match inside.phase() {
                TaskPhase::Failed(trouble) => CallToolResult::failure(trouble.public_message(&agent)),
                TaskPhase::Asking(..) if declined => tool_result::declined(&inside.work, &audience, local),
                TaskPhase::Asking(..) | TaskPhase::Running | TaskPhase::Finished => {
                    tool_result::result(&inside.work, &audience, local)
                }
            }
        })
    }

    fn requests(&self, entry: &TaskEntry, asker: &ClientContext) -> Option<Box<serde_json::value::RawValue>> {
        let (question, turn) = question_of(entry)?;
        self.open_asks(entry, &question, turn, asker)?.input_requests()
    }

    /// Returns true if this client can be asked the open question of the task.
    pub(super) fn can_be_asked(&self, entry: &TaskEntry, asker: &ClientContext) -> bool {
        let Some((question, turn)) = question_of(entry) else { return false };
        let is_refused = entry.visible_state(|inside| inside.refusal(turn).is_some());
        !is_refused && question.asks(asker.version, asker.capabilities).is_some()
    }

    /// Handles `tasks/update`: answers are acknowledged before the agent has them.
    async fn update(
        &self,
        held: &ResolvedTask,
        (door, asker): (Route<'_>, &ClientContext),
        id: &Id,
        params: &ClientParams<'_>,
    ) -> Result<Vec<u8>, Fault> {
        let skill = held.entry.visible_state(|inside| inside.work.skill.clone());
        self.permit_words((asker, door), &held.agent, (Method::TasksUpdate, skill.as_deref()))?;
        let responses =
            params.input_responses.ok_or_else(|| Fault::InvalidParams("inputResponses is missing".into()))?;
        self.refresh(&held.entry, &held.known).await;
        let response = response_mode::digest("", Some(responses));
        match last_question(&held.entry) {
            Some(question) => {
                let asked = (&question, self.offered_extensions(params, held.entry.agent()));
                self.accept_input_responses(&held.entry, &held.known, asked, Some(responses)).await?;
                // The parts of one answer differ from each other.
                if question.inputs.len() == 1 {
                    held.entry.is_same_response(question.turn.to_bytes(), response);
                }
            }
            // The question is no longer open: nothing is sent to the agent, and a different answer
            // is rejected.
            None => {
                let answered = held
                    .entry
                    .visible_state(|inside| inside.last_answered().filter(|_| !inside.is_finished()));
                if answered.is_some_and(|turn| !held.entry.is_same_response(turn, response)) {
                    return Err(already_answered());
                }
            }
        }
        Ok(self.writer(asker.version.era()).acknowledged_empty(id))
    }

    /// Handles `tasks/cancel`: cooperative in the extension; in the core the task is cancelled,
    /// even if its agent continues.
    async fn cancel(&self, held: &ResolvedTask, asker: &ClientContext, id: &Id) -> Result<Vec<u8>, Fault> {
        let entry = &held.entry;
        let writer = self.writer(asker.version.era());
        if asker.version.era() == Era::Modern {
            self.followers.cancel(entry, &held.known);
            return Ok(writer.acknowledged_empty(id));
        }
        self.refresh(entry, &held.known).await;
        let before = self.snapshot(entry, &held.handle, asker).status;
        if before.is_terminal() {
            return Err(Fault::TaskTerminated);
        }
        let stopping = self.followers.cancel_and_wait(entry, &held.known);
        if tokio::time::timeout(STOPPED_WITHIN, stopping).await.is_err() {
            tracing::debug!(agent = %entry.agent(), "timed out waiting for agent to cancel task");
        }
        if self.snapshot(entry, &held.handle, asker).status != TaskStatus::Cancelled {
            entry.set_verdict(ClientOverride::Cancelled);
        }
        self.ledger.acknowledge(entry).await;
        Ok(writer.core_task(id, &self.snapshot(entry, &held.handle, asker)))
    }

    /// Handles `tasks/result` of the core: waits for the end, and asks the user in between.
    async fn task_result(
        &self,
        to: ResponseTarget<'_>,
        held: ResolvedTask,
        (asker, exchange): (&ClientContext, &mut AccessRecord),
        (id, params): (&Id, &ClientParams<'_>),
    ) -> Result<Option<Vec<u8>>, Result<Fault, ClientGone>> {
        self.refresh(&held.entry, &held.known).await;
        let ResolvedTask { handle, agent, entry, known } = held;
        let writer = self.writer(Era::Legacy);
        let snapshot = self.snapshot(&entry, &handle, asker);
        if snapshot.status.is_terminal() {
            let result = match snapshot.status {
                TaskStatus::Cancelled => was_cancelled(),
                _ => self.final_result(&entry, asker),
            };
            let body = writer.core_task_result(id, &result, &handle);
            drop(result);
            return self.answer_with(to, (asker, exchange), body).await;
        }
        let meta = params.meta();
        let teller = ProgressNotifier::new(meta.progress.clone(), asker.level, &agent.settings.name);
        let patience = self.patience(None);
        let metrics = agent.metrics.clone();
        let pump = CallResponder::new(to, asker.takes, teller, patience, &metrics);
        let running = asker.session.as_ref().map(|session| self.running.register(session.key, id));
        let serving = ActiveCall {
            rung: ResponsePlan { patience: None, then: Fallback::Handle },
            form: ResultKind::CoreResult(handle),
            ..ActiveCall::without_client(asker, id, agent)
        };
        let mut watched = FollowedTask::new(entry, known, false);
        watched.heeds_verdict = true;
        let source = EventSource::Watched(Box::new(watched));
        self.run_active((pump, source, running), serving, exchange).await.map_err(Err)
    }

    /// Handles `tasks/list` of the core: the remembered tasks of this caller, by handle.
    fn list_tasks(
        &self,
        door: Route<'_>,
        asker: &ClientContext,
        id: &Id,
        params: &ClientParams<'_>,
    ) -> Result<Vec<u8>, Fault> {
        let after = self.cursor(asker, ListKind::Tasks, params)?;
        let mut owned = self.tasks_of_caller(door, asker);
        owned.retain(|(handle, _)| after.as_ref().is_none_or(|after| handle > after));
        let most = self.settings.mcp.page_size;
        let has_more = owned.len() > most;
        owned.truncate(most);
        let next = owned.last().filter(|_| has_more).map(|(last, _)| {
            PageCursor { listing: ListKind::Tasks, after: last.clone() }
                .seal(&self.sealer, asker.caller.name())
        });
        let tasks: Vec<_> = owned.iter().map(|(handle, entry)| self.snapshot(entry, handle, asker)).collect();
        Ok(self.writer(asker.version.era()).core_task_list(id, &tasks, next.as_deref()))
    }
}

/// Returns the result of a core task that its client cancelled.
pub(super) fn was_cancelled() -> CallToolResult {
    CallToolResult::failure("The task was cancelled.")
}
