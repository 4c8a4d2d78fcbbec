//! `tasks/*`: both task protocols of MCP.
//!
//! Reads docs/spec/mcp.md §2.13 (the core of 2025-11-25: `get`, `result`, `list`, `cancel`) and
//! §2.14 (the extension of 2026-07-28: `get`, `update`, `cancel`). See also `run`, where a call
//! becomes a task.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::McpServer;
use crate::agents::{Agent, ResolvedAgent};
use crate::bridge::response_mode;
use crate::bridge::tool_result;
use crate::calls::{
    ActiveCall, CallRequest, ClientContext, EventSource, FollowedTask, NotFound, OfferedAnswers,
    ResponseTarget, ResultKind, already_answered, cancelled_result, last_question, offered_extensions,
    open_requests, question_of,
};
use crate::fault::{Abort, Fault};
use crate::http_edge::{AccessRecord, ResponseSink};
use crate::mcp::tasks::{TaskDetail, TaskStatus};
use crate::mcp::tools::CallToolResult;
use crate::mcp::{ClientCapabilities, Era, Method};
use crate::seal::ListKind;
use crate::tasks::{AnswerRefusal, ClientOverride, TaskEntry, TaskPhase};

/// Longest wait for an agent to cancel a task.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(10);

/// Task with its handle, agent and entry.
struct ResolvedTask {
    handle: String,
    agent: Arc<Agent>,
    entry: Arc<TaskEntry>,
    known: Arc<ResolvedAgent>,
}

impl McpServer {
    /// Handles a request about tasks.
    ///
    /// # Errors
    ///
    /// [`Abort`] with the reason for which there is no result.
    pub(super) async fn task_method<S: ResponseSink>(
        &self,
        to: ResponseTarget<'_, S>,
        method: Method,
        request: CallRequest<'_>,
        record: &mut AccessRecord,
    ) -> Result<Option<Vec<u8>>, Abort> {
        let client = request.client;
        supports_tasks(client, method)?;
        if method == Method::TasksList {
            self.lookup().learn_tasks_of_caller(request.client).await;
            let body = self.list_tasks(request)?;
            return to.respond(client, record, &self.limits, body).await;
        }
        let held = self.resolve(method, request).await?;
        record.agent = Some(held.agent.clone());
        let body = match method {
            Method::TasksResult => return self.task_result(to, held, request, record).await,
            Method::TasksUpdate => self.update_task(&held, request).await?,
            Method::TasksCancel => self.cancel_task(&held, request).await?,
            _ => self.get_task(&held, request).await,
        };
        to.respond(client, record, &self.limits, body).await
    }

    async fn resolve(&self, method: Method, request: CallRequest<'_>) -> Result<ResolvedTask, Fault> {
        let CallRequest { client, params, .. } = request;
        let handle =
            params.task_id.as_ref().ok_or_else(|| Fault::InvalidParams("taskId is missing".into()))?;
        let opened = self.lookup().open_handle(client, handle.as_str());
        let (agent, named) = opened.ok_or(Fault::UnknownTask)?;
        self.authorizer().authorize_task(client.requester(), method, &agent)?;
        let found = self.lookup().entry(client, &agent, &named).await;
        let (entry, known) = found.map_err(NotFound::fault)?;
        Ok(ResolvedTask { handle: handle.as_str().to_owned(), agent, entry, known })
    }

    /// Handles `tasks/get`.
    async fn get_task(&self, held: &ResolvedTask, request: CallRequest<'_>) -> Vec<u8> {
        let CallRequest { client, id, .. } = request;
        self.lookup().refresh(&held.entry, &held.known).await;
        let writer = self.writer(client.era());
        let snapshot = self.lookup().snapshot(&held.entry, &held.handle, client);
        match client.era() {
            Era::Legacy => writer.core_task(id, &snapshot),
            Era::Modern => self
                .with_task_detail(&held.entry, client, |detail| writer.task_detailed(id, &snapshot, detail)),
        }
    }

    /// Adds the detail of a task of the extension, by its status for this client.
    pub(super) fn with_task_detail<R>(
        &self,
        entry: &Arc<TaskEntry>,
        client: &ClientContext<'_>,
        write: impl FnOnce(&TaskDetail<'_>) -> R,
    ) -> R {
        let agent = entry.agent().to_string();
        let context = self.lookup().result_context_by_name(client, &agent);
        let result =
            || entry.visible_state(|inside| tool_result::result(&inside.work, &context, entry.local()));
        // Before the phase: a task that fails in between must not read as one with a result.
        let status = self.lookup().client_status(entry, client).extension();
        if let TaskPhase::Failed(trouble) = entry.visible_state(|inside| inside.phase()) {
            let message = trouble.public_message(&agent);
            return write(&TaskDetail::Failed { code: -32603, message: &message });
        }
        match status {
            TaskStatus::Working => write(&TaskDetail::Working),
            TaskStatus::Cancelled => write(&TaskDetail::Cancelled),
            TaskStatus::InputRequired => match input_requests(entry, client) {
                Some(requests) => write(&TaskDetail::InputRequired(&requests)),
                None => write(&TaskDetail::Completed(&result())),
            },
            TaskStatus::Completed | TaskStatus::Failed => {
                write(&TaskDetail::Completed(&self.final_result(entry, client)))
            }
        }
    }

    /// Returns the final result of a task for a client that gets no later updates.
    fn final_result(&self, entry: &Arc<TaskEntry>, client: &ClientContext<'_>) -> CallToolResult {
        let agent = entry.agent().to_string();
        let context = self.lookup().result_context_by_name(client, &agent);
        let local = entry.local();
        entry.visible_state(|inside| {
            let declined =
                inside.open_turn().and_then(|turn| inside.refusal(turn)) == Some(AnswerRefusal::Declined);
            match inside.phase() {
                TaskPhase::Failed(trouble) => CallToolResult::failure(trouble.public_message(&agent)),
                TaskPhase::Asking(..) if declined => tool_result::declined(&inside.work, &context, local),
                TaskPhase::Asking(..) | TaskPhase::Running | TaskPhase::Finished => {
                    tool_result::result(&inside.work, &context, local)
                }
            }
        })
    }

    /// Handles `tasks/update`: answers are acknowledged before the agent has them.
    async fn update_task(&self, held: &ResolvedTask, request: CallRequest<'_>) -> Result<Vec<u8>, Fault> {
        let CallRequest { client, id, params, .. } = request;
        let skill = held.entry.visible_state(|inside| inside.work.skill.clone());
        self.engine.authorize_message(client, &held.agent, Method::TasksUpdate, skill.as_deref())?;
        let responses =
            params.input_responses.ok_or_else(|| Fault::InvalidParams("inputResponses is missing".into()))?;
        self.lookup().refresh(&held.entry, &held.known).await;
        let response = response_mode::digest("", Some(responses));
        match last_question(&held.entry) {
            Some(question) => {
                let offered = OfferedAnswers {
                    responses: Some(responses),
                    extensions: offered_extensions(params, &held.agent),
                };
                self.engine.accept_input_responses(&held.entry, &held.known, &question, offered).await?;
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
        Ok(self.writer(client.era()).acknowledged_empty(id))
    }

    /// Handles `tasks/cancel`: cooperative in the extension; in the core the task is cancelled,
    /// even if its agent continues.
    async fn cancel_task(&self, held: &ResolvedTask, request: CallRequest<'_>) -> Result<Vec<u8>, Fault> {
        let CallRequest { client, id, .. } = request;
        let (entry, lookup) = (&held.entry, self.lookup());
        let writer = self.writer(client.era());
        if client.era() == Era::Modern {
            lookup.followers.cancel(entry, &held.known);
            return Ok(writer.acknowledged_empty(id));
        }
        lookup.refresh(entry, &held.known).await;
        let before = lookup.snapshot(entry, &held.handle, client).status;
        if before.is_terminal() {
            return Err(Fault::TaskTerminated);
        }
        let stopping = lookup.followers.cancel_and_wait(entry, &held.known);
        if tokio::time::timeout(CANCEL_TIMEOUT, stopping).await.is_err() {
            tracing::debug!(agent = %entry.agent(), "timed out waiting for agent to cancel task");
        }
        if lookup.snapshot(entry, &held.handle, client).status != TaskStatus::Cancelled {
            entry.set_verdict(ClientOverride::Cancelled);
        }
        lookup.journal.acknowledge(entry).await;
        Ok(writer.core_task(id, &lookup.snapshot(entry, &held.handle, client)))
    }

    /// Handles `tasks/result` of the core: waits for the end, and asks the user in between.
    async fn task_result<S: ResponseSink>(
        &self,
        to: ResponseTarget<'_, S>,
        held: ResolvedTask,
        request: CallRequest<'_>,
        record: &mut AccessRecord,
    ) -> Result<Option<Vec<u8>>, Abort> {
        let CallRequest { client, id, params, .. } = request;
        self.lookup().refresh(&held.entry, &held.known).await;
        let ResolvedTask { handle, agent, entry, known } = held;
        let snapshot = self.lookup().snapshot(&entry, &handle, client);
        if snapshot.status.is_terminal() {
            let result = match snapshot.status {
                TaskStatus::Cancelled => cancelled_result(),
                _ => self.final_result(&entry, client),
            };
            let body = self.writer(Era::Legacy).core_task_result(id, &result, &handle);
            drop(result);
            return to.respond(client, record, &self.limits, body).await;
        }
        let kind = ResultKind::CoreResult(handle);
        let call = ActiveCall { kind, ..ActiveCall::new(client, id, agent, Instant::now()) };
        let mut followed = FollowedTask::new(entry, known, false);
        followed.heeds_verdict = true;
        let source = EventSource::Watched(Box::new(followed));
        Ok(self.engine.await_result(to, source, Box::new(call), params, record).await?)
    }

    /// Handles `tasks/list` of the core: the remembered tasks of this caller, by handle.
    fn list_tasks(&self, request: CallRequest<'_>) -> Result<Vec<u8>, Fault> {
        let CallRequest { client, id, params, .. } = request;
        let owned = self.lookup().tasks_of_caller(client);
        let (page, next) = self.page(client, ListKind::Tasks, params, &owned, |(handle, _)| handle)?;
        let tasks: Vec<_> =
            page.iter().map(|(handle, entry)| self.lookup().snapshot(entry, handle, client)).collect();
        Ok(self.writer(client.era()).core_task_list(id, &tasks, next.as_deref()))
    }
}

/// Returns the requests for the open parts of a task's question.
fn input_requests(entry: &TaskEntry, client: &ClientContext<'_>) -> Option<Box<serde_json::value::RawValue>> {
    let (question, turn) = question_of(entry)?;
    open_requests(entry, &question, turn, client)?.input_requests()
}

/// Checks that the client's protocol has this method.
fn supports_tasks(client: &ClientContext<'_>, method: Method) -> Result<(), Fault> {
    let unknown = || Err(Fault::UnknownMethod(method.as_str().to_owned()));
    match client.era() {
        Era::Modern if !client.capabilities.has(ClientCapabilities::TASKS_EXTENSION) => {
            Err(Fault::MissingCapability(ClientCapabilities::TASKS_EXTENSION))
        }
        // Tasks are listed only for named callers: anonymous callers share one name.
        Era::Legacy if method == Method::TasksList && client.caller.is_anonymous() => unknown(),
        Era::Legacy if !client.version.has_core_tasks() => unknown(),
        Era::Modern | Era::Legacy => Ok(()),
    }
}
