//! `tools/call`: the built-in tools of the gateway, and the tools of agents.
//!
//! The built-in tools are the task tools (start, send, get, wait, cancel) and `find_agent`. See also
//! `bridge::task_tools` for arguments and listing, and `bridge::tool_result` for results.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::McpServer;
use crate::a2a::Message;
use crate::access::ToolUse;
use crate::agents::{Agent, ResolvedAgent};
use crate::bridge::agent_action::{AgentAction, build, unknown_task};
use crate::bridge::arguments;
use crate::bridge::catalogue::{Catalogue, ToolRef};
use crate::bridge::provider_tools::ProviderTool;
use crate::bridge::response_mode::{Fallback, ResponsePlan};
use crate::bridge::search::tool as find_agent;
use crate::bridge::task_tools::{self, TaskTool, TaskToolCall};
use crate::bridge::tool_result;
use crate::calls::{
    ANSWER_IN_FLIGHT, ActiveCall, AnswerClass, CallError, CallRequest, CallTarget, ClientContext,
    EventSource, FollowedTask, OpenedAction, ResponseTarget, ResultKind, add_delay, in_form_of_question,
};
use crate::discovery::view;
use crate::fault::{Abort, AgentFailure, Fault};
use crate::follow::TaskMessage as FollowUp;
use crate::http_edge::{AccessRecord, ResponseSink, Route};
use crate::limits::{CallPermit, TaskReservation};
use crate::mcp::tools::CallToolResult;
use crate::mcp::{ClientParams, Method};
use crate::resources::ProviderCall;
use crate::tasks::{TaskEntry, TaskPhase};
use crate::telemetry::label::Outcome;

/// Longest wait of `subagent_start` and `subagent_send` for the first event of the agent; the task
/// continues beyond.
const FIRST_EVENT_TIMEOUT: Duration = Duration::from_secs(10);

/// Task of a handle, with its agent.
struct ToolTask {
    entry: Arc<TaskEntry>,
    known: Arc<ResolvedAgent>,
    agent: Arc<Agent>,
}

/// A task that a built-in tool starts or waits for.
struct RunningTool {
    source: EventSource,
    agent: Arc<Agent>,
    kind: ResultKind,
    reservation: Option<TaskReservation>,
    permit: Option<CallPermit>,
    budget: Duration,
}

/// Outcome of a call of a built-in tool.
enum ToolOutcome {
    /// A call to run.
    Running(Box<RunningTool>),
    /// A result.
    Result(Box<CallToolResult>),
}

impl From<CallToolResult> for ToolOutcome {
    fn from(result: CallToolResult) -> Self {
        Self::Result(Box::new(result))
    }
}

/// Checks that the manifest of an agent names a task tool, if it names any.
fn check_accepted(agent: &Agent, tool: TaskTool) -> Result<(), CallError> {
    if agent.settings.accepts_tool(tool.name()) {
        return Ok(());
    }
    let (agent, tool) = (&agent.settings.name, tool.name());
    Err(CallError::tool_error(format!(
        "Agent {agent:?} does not accept {tool}: its manifest does not name it."
    )))
}

/// Returns true if a call waits for a task that exists: it is answered with the state of the task
/// when responses are due.
fn waits_for_task(builtin: Option<&str>, params: &ClientParams<'_>) -> bool {
    let tool = builtin.and_then(TaskTool::from_name);
    params.request_state.is_some() || matches!(tool, Some(TaskTool::Wait | TaskTool::Get))
}

impl McpServer {
    /// Handles a call of a built-in tool or of an agent's tool.
    ///
    /// # Errors
    ///
    /// [`Abort`] with the reason for which there is no result.
    pub(super) async fn call<S: ResponseSink>(
        &self,
        target: CallTarget<'_, S>,
        request: CallRequest<'_>,
        record: &mut AccessRecord,
    ) -> Result<Option<Vec<u8>>, Abort> {
        let CallRequest { client, params, .. } = request;
        let _permit = self.limits.acquire_call(record.quota_owner.as_ref()).await?;
        let catalogue = self.discovery.catalogue.load_full();
        let view = view(&catalogue, client.route);
        // A built-in tool that is switched off is not in the view; its name may belong to another
        // tool.
        let tool = params.name.as_ref().and_then(|name| view.find(name.as_str()));
        let builtin = tool.and_then(ToolRef::own);
        if self.drain.is_due() && !waits_for_task(builtin, params) {
            // Rejected before the agent is contacted.
            return Err(Fault::Ending.into());
        }
        let Some(builtin) = builtin else {
            return self.engine.call_tool(target, request, record, tool).await;
        };
        let used = ToolUse::builtin(builtin, params.arguments);
        self.authorizer().authorize_tool(client.requester(), None, used)?;
        match TaskTool::from_name(builtin) {
            Some(tool) => Box::pin(self.call_builtin(target, request, record, tool)).await,
            None if builtin == find_agent::NAME => {
                self.find_agent(target.to, request, record, &catalogue).await
            }
            None => match (ProviderTool::from_name(builtin), &self.batches) {
                (Some(tool), Some(batches)) if ProviderTool::BATCH.contains(&tool) => {
                    Box::pin(batches.call(target, request, record, tool)).await
                }
                _ => Box::pin(self.call_provider(target.to, request, record, builtin)).await,
            },
        }
    }

    /// Handles a call of a tool of a resource provider.
    async fn call_provider<S: ResponseSink>(
        &self,
        to: ResponseTarget<'_, S>,
        request: CallRequest<'_>,
        record: &mut AccessRecord,
        tool: &str,
    ) -> Result<Option<Vec<u8>>, Abort> {
        let CallRequest { client, id, params, .. } = request;
        record.tool = Some(tool.to_owned());
        let called = self.resources.call(ProviderCall { client, tool, arguments: params.arguments }).await?;
        let result = called.ok_or_else(|| Fault::NoSuchTool(tool.to_owned()))?;
        if result.is_error {
            record.outcome = Outcome::ClientFault;
        }
        let body = self.writer(client.era()).uncacheable(id, &result);
        to.respond(client, record, &self.limits, body).await
    }

    /// Handles a call of `find_agent`.
    async fn find_agent<S: ResponseSink>(
        &self,
        to: ResponseTarget<'_, S>,
        request: CallRequest<'_>,
        record: &mut AccessRecord,
        catalogue: &Catalogue,
    ) -> Result<Option<Vec<u8>>, Abort> {
        let CallRequest { client, id, params, .. } = request;
        record.tool = Some(find_agent::NAME.to_owned());
        let result = match find_agent::read(params.arguments) {
            Ok(query) => {
                let found = self.discovery.search(catalogue, client.requester(), &query);
                let found: Vec<_> =
                    found.into_iter().map(|found| self.discovery.with_reachability(found)).collect();
                find_agent::result(&found, client.version)
            }
            Err(problem) => {
                record.outcome = Outcome::ClientFault;
                CallToolResult::failure(problem)
            }
        };
        let body = self.writer(client.era()).uncacheable(id, &result);
        to.respond(client, record, &self.limits, body).await
    }

    /// Handles a call of a task tool.
    async fn call_builtin<S: ResponseSink>(
        &self,
        target: CallTarget<'_, S>,
        request: CallRequest<'_>,
        record: &mut AccessRecord,
        tool: TaskTool,
    ) -> Result<Option<Vec<u8>>, Abort> {
        let CallTarget { mut to, budget } = target;
        let CallRequest { client, id, params, .. } = request;
        record.tool = Some(tool.name().to_owned());
        let arguments = task_tools::read(tool, params.arguments).map_err(CallError::tool_error);
        let outcome = match arguments.map_err(Abort::from) {
            Ok(TaskToolCall::Start { agent, text }) => self.start_task(&mut to, request, &agent, text).await,
            Ok(TaskToolCall::Wait { task, seconds }) => {
                self.wait_for_task(client, &task, seconds, budget).await
            }
            Ok(TaskToolCall::Get { task }) => self.show_task(client, &task).await.map(ToolOutcome::from),
            Ok(TaskToolCall::Send { task, said }) => {
                self.send_in_task(&mut to, request, &task, *said).await.map(ToolOutcome::from)
            }
            Ok(TaskToolCall::Cancel { task }) => self.stop_task(client, &task).await.map(ToolOutcome::from),
            Err(abort) => Err(abort),
        };
        let result = match outcome {
            Ok(ToolOutcome::Running(running)) => {
                let RunningTool { source, agent, kind, reservation, permit: _permit, budget: wait } =
                    *running;
                record.agent = Some(agent.clone());
                let call = ActiveCall {
                    plan: ResponsePlan { patience: Some(wait), then: Fallback::Handle },
                    began_here: kind == ResultKind::Start,
                    kind,
                    tool: tool.name(),
                    arguments: params.arguments,
                    _reservation: reservation,
                    ..ActiveCall::new(client, id, agent, Instant::now())
                };
                let wait = Some(wait.min(budget));
                let call = Box::new(call);
                return Ok(self.engine.run_call(to, wait, source, call, params, record).await?);
            }
            Ok(ToolOutcome::Result(result)) => result,
            Err(Abort::ClientGone) => return Err(Abort::ClientGone),
            Err(Abort::Rejected(CallError::Fault(fault))) => return Err(fault.into()),
            Err(Abort::Rejected(CallError::ToolError(result, outcome))) => {
                record.outcome = outcome;
                result
            }
        };
        let body = self.writer(client.era()).uncacheable(id, &*result);
        to.respond(client, record, &self.limits, body).await
    }

    async fn start_task<S: ResponseSink>(
        &self,
        to: &mut ResponseTarget<'_, S>,
        request: CallRequest<'_>,
        name: &str,
        text: String,
    ) -> Result<ToolOutcome, Abort<CallError>> {
        let client = request.client;
        let agent = self.lookup().directory.find(name);
        let agent = agent.filter(|agent| self.authorizer().can_see(client.requester(), agent));
        let agent = agent.ok_or_else(|| CallError::tool_error(self.no_such_agent(client, name)))?.clone();
        check_accepted(&agent, TaskTool::Start)?;
        self.authorizer().authorize_start(client.requester(), &agent).map_err(|fault| match fault {
            // The existence of the agent is not secret.
            Fault::NoSuchTool(_) => CallError::tool_error(format!(
                "You may not begin a task of agent {name:?} without naming a skill: call the tool of a skill instead."
            )),
            fault => CallError::Fault(fault),
        })?;
        let permit = self.limits.acquire_agent_call(name, to.client_disconnected()).await?;
        let arguments =
            arguments::ToolArguments { text: Some(text.into()), ..arguments::ToolArguments::default() };
        let action =
            build(arguments, &self.engine.origin(request, &agent, None)).map_err(CallError::tool_error)?;
        let opened = OpenedAction { action, skill: None };
        let source = self.engine.open_source(client, opened, &agent).await;
        let source = source.map_err(|not_found| CallError::not_found(not_found, name))?;
        let reservation = self.lookup().reserve_task(client, source.own_number()).await?;
        Ok(ToolOutcome::Running(Box::new(RunningTool {
            source,
            agent,
            kind: ResultKind::Start,
            reservation,
            permit,
            budget: FIRST_EVENT_TIMEOUT,
        })))
    }

    fn no_such_agent(&self, client: &ClientContext<'_>, name: &str) -> String {
        let quoted: String = name.chars().take(64).collect();
        let visible = self.authorizer().visible_agents(client.requester());
        let startable = visible
            .filter(|agent| self.authorizer().may_use(&client.caller, &agent.settings.name, TaskTool::Start));
        let uris: Vec<String> = startable
            .take(20)
            .map(|agent| crate::bridge::resource_uri::agent_uri(&agent.settings.name))
            .collect();
        let others = if uris.is_empty() { "none".to_owned() } else { uris.join(", ") };
        format!("Unknown subagentUri: there is no agent {quoted:?} here. There are: {others}.")
    }

    async fn wait_for_task(
        &self,
        client: &ClientContext<'_>,
        handle: &str,
        seconds: Option<u64>,
        budget: Duration,
    ) -> Result<ToolOutcome, Abort<CallError>> {
        let ToolTask { entry, known, agent } = self.resolve_task(TaskTool::Wait, client, handle).await?;
        let budget = seconds.map_or(budget, Duration::from_secs).min(budget);
        self.lookup().refresh(&entry, &known).await;
        Ok(ToolOutcome::Running(Box::new(RunningTool {
            source: EventSource::Watched(Box::new(FollowedTask::new(entry, known, true))),
            agent,
            kind: ResultKind::Wait,
            reservation: None,
            permit: None,
            budget,
        })))
    }

    async fn show_task(
        &self,
        client: &ClientContext<'_>,
        handle: &str,
    ) -> Result<CallToolResult, Abort<CallError>> {
        let ToolTask { entry, known, agent } = self.resolve_task(TaskTool::Get, client, handle).await?;
        self.lookup().refresh(&entry, &known).await;
        let name = &agent.settings.name;
        let context = self.lookup().result_context(client, &agent);
        if let TaskPhase::Failed(failure) = entry.visible_state(|inside| inside.phase()) {
            return Err(CallError::agent_failure(&failure, name).into());
        }
        let mut result = entry.show_work(|work| tool_result::snapshot(work, &context, entry.local()));
        let delay =
            entry.visible_state(|inside| inside.delay.filter(|_| inside.phase() == TaskPhase::Running));
        add_delay(&mut result, delay, name);
        Ok(result)
    }

    /// Sends a message in a task. After a finished task, the message begins a new task in the same
    /// conversation.
    async fn send_in_task<S: ResponseSink>(
        &self,
        to: &mut ResponseTarget<'_, S>,
        request: CallRequest<'_>,
        handle: &str,
        arguments: arguments::ToolArguments,
    ) -> Result<CallToolResult, Abort<CallError>> {
        let client = request.client;
        let ToolTask { entry, known, agent } = self.resolve_task(TaskTool::Send, client, handle).await?;
        let name = &agent.settings.name;
        let skill = entry.visible_state(|inside| inside.work.skill.clone());
        self.engine
            .authorize_message(client, &agent, Method::ToolsCall, skill.as_deref())
            .map_err(CallError::of_task)?;
        self.lookup().refresh(&entry, &known).await;
        match entry.visible_state(|inside| inside.phase()) {
            TaskPhase::Finished => return Err(CallError::tool_error(self.has_ended(client, name)).into()),
            TaskPhase::Failed(failure) => return Err(CallError::agent_failure(&failure, name).into()),
            TaskPhase::Running | TaskPhase::Asking(..) => {}
        }
        let origin = self.engine.origin(request, &agent, None);
        let AgentAction::Say(message) = build(arguments, &origin).map_err(CallError::tool_error)? else {
            return Err(Fault::Internal.into());
        };
        let unnamed = || {
            CallError::tool_error(
                "The agent has not accepted the first message yet: wait for it first.".into(),
            )
        };
        let task = entry.task_id().ok_or_else(unnamed)?;
        let parts = in_form_of_question(&entry, message.parts).map_err(CallError::tool_error)?;
        entry.begin_turn();
        let context_id = entry.visible_state(|inside| inside.work.context_id.clone());
        let mut message = Message { context_id, parts, ..message };
        let turn = match self.engine.classify_text_answer(&entry, &task, &mut message) {
            AnswerClass::Answer(turn) => Some(Some(turn)),
            AnswerClass::Free => Some(None),
            AnswerClass::Again(_) => None,
            AnswerClass::Other => {
                let failure = AgentFailure::Internal(ANSWER_IN_FLIGHT);
                return Err(CallError::agent_failure(&failure, name).into());
            }
        };
        if let Some(turn) = turn {
            let _permit = self.limits.acquire_agent_call(name, to.client_disconnected()).await?;
            let delivery =
                self.lookup().followers.send_message(&entry, &known, FollowUp { task, message, turn });
            // Longer silence is no failure: the agent works on the task.
            let delivered = tokio::select! {
                delivered = tokio::time::timeout(FIRST_EVENT_TIMEOUT, delivery) => delivered,
                () = self.drain.answers_due() => Ok(Ok(Ok(()))),
            };
            if let Ok(Ok(Err(failure))) = delivered {
                return Err(CallError::agent_failure(&failure, name).into());
            }
        }
        let context = self.lookup().result_context(client, &agent);
        Ok(entry.show_work(|work| tool_result::sent(work, &context, entry.local())))
    }

    /// Returns the text for a model that sent a message in a task which has ended.
    fn has_ended(&self, client: &ClientContext<'_>, agent: &str) -> String {
        let starts = client.route == Route::AllAgents
            && self.authorizer().may_use(&client.caller, agent, TaskTool::Start);
        let begin = if starts { "Begin a new one with subagent_start, or call" } else { "Call" };
        format!(
            "The task has ended and takes no more messages. {begin} the agent's own tool with the contextId to go on with the \
             conversation."
        )
    }

    async fn stop_task(
        &self,
        client: &ClientContext<'_>,
        handle: &str,
    ) -> Result<CallToolResult, Abort<CallError>> {
        let ToolTask { entry, known, agent } = self.resolve_task(TaskTool::Cancel, client, handle).await?;
        self.lookup().refresh(&entry, &known).await;
        if let TaskPhase::Failed(failure) = entry.visible_state(|inside| inside.phase()) {
            return Err(CallError::agent_failure(&failure, &agent.settings.name).into());
        }
        let was_over = entry.is_finished();
        if !was_over {
            let stopping = self.lookup().followers.cancel_and_wait(&entry, &known);
            if tokio::time::timeout(FIRST_EVENT_TIMEOUT, stopping).await.is_err() {
                tracing::debug!(agent = %entry.agent(), "timed out waiting for agent to cancel task");
            }
        }
        let context = self.lookup().result_context(client, &agent);
        let canceled =
            entry.visible_state(|inside| inside.work.state == Some(crate::a2a::TaskState::Canceled));
        let is_remembered = !was_over && !entry.is_named();
        Ok(entry.visible_state(|inside| {
            tool_result::cancelled(&inside.work, &context, entry.local(), canceled || is_remembered)
        }))
    }

    async fn resolve_task(
        &self,
        tool: TaskTool,
        client: &ClientContext<'_>,
        handle: &str,
    ) -> Result<ToolTask, CallError> {
        let opened = self.lookup().open_handle(client, handle);
        let (agent, named) = opened.ok_or_else(|| CallError::tool_error(unknown_task()))?;
        // Authorized for the agent of the task, which was not known when the tool was authorized.
        let used = ToolUse::builtin(tool.name(), None);
        self.authorizer()
            .authorize_tool(client.requester(), Some(&agent), used)
            .map_err(CallError::of_task)?;
        check_accepted(&agent, tool)?;
        let found = self.lookup().entry(client, &agent, &named).await;
        let (entry, known) =
            found.map_err(|not_found| CallError::not_found(not_found, &agent.settings.name))?;
        Ok(ToolTask { entry, known, agent })
    }
}
