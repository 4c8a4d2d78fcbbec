//! Task tools, the built-in tools of the gateway: start, send, get, wait, cancel.
//!
//! See also `bridge::task_tools` for arguments and listing, and `bridge::tool_result` for results.

use std::sync::Arc;
use std::time::Duration;

use super::abort::Abort;
use super::access_record::AccessRecord;
use super::input_responses::in_form_of_question;
use super::limits::TaskReservation;
use super::lookup::NotFound;
use super::queue::CallPermit;
use super::responder::ResponseTarget;
use super::response::ClientGone;
use super::route::Route;
use super::run::{ActiveCall, ResultKind, tell_delay};
use super::source::EventSource;
use super::start::{AnswerClass, ON_ITS_WAY};
use super::{ClientContext, Inner};
use crate::a2a::Message;
use crate::agents::{Agent, ResolvedAgent};
use crate::bridge::agent_action::{AgentAction, build, unknown_task};
use crate::bridge::arguments;
use crate::bridge::response_mode::{Fallback, ResponsePlan};
use crate::bridge::task_tools::{self, TaskTool, TaskToolCall};
use crate::bridge::tool_result;
use crate::fault::{AgentFailure, Fault};
use crate::follow::TaskMessage;
use crate::jsonrpc::Id;
use crate::mcp::tools::CallToolResult;
use crate::mcp::{ClientParams, Method};
use crate::tasks::{TaskEntry, TaskPhase};

/// Longest wait of `subagent_start` and `subagent_send` for the first event of the agent; the task
/// continues beyond.
const FIRST_WORD: Duration = Duration::from_secs(10);

impl Inner {
    /// Handles a call of a built-in tool.
    pub(super) async fn call_builtin(
        &self,
        (mut to, budget): (ResponseTarget<'_>, Duration),
        door: Route<'_>,
        (asker, exchange): (&ClientContext, &mut AccessRecord),
        (id, params, tool): (&Id, &ClientParams<'_>, TaskTool),
    ) -> Result<Option<Vec<u8>>, Result<Fault, ClientGone>> {
        exchange.tool = Some(tool.name().to_owned());
        let asked = task_tools::read(tool, params.arguments).map_err(Abort::tool_error);
        let done = match asked {
            Ok(TaskToolCall::Start { agent, text }) => {
                self.start((door, &mut to), asker, params, (agent, text)).await
            }
            Ok(TaskToolCall::Wait { task, seconds }) => self.wait(door, asker, &task, seconds, budget).await,
            Ok(TaskToolCall::Get { task }) => self.get_task(door, asker, &task).await.map(ToolOutcome::Told),
            Ok(TaskToolCall::Send { task, said }) => {
                self.send((door, &mut to), asker, params, (&task, *said)).await.map(ToolOutcome::Told)
            }
            Ok(TaskToolCall::Cancel { task }) => {
                self.cancel_one(door, asker, &task).await.map(ToolOutcome::Told)
            }
            Err(early) => Err(early),
        };
        let result = match done {
            Ok(ToolOutcome::Goes(source, agent, (form, _promise, _place), patience)) => {
                exchange.agent = Some(agent.clone());
                let rung = ResponsePlan { patience: Some(patience), then: Fallback::Handle };
                let began_here = form == ResultKind::Start;
                let call = (tool.name(), params.arguments);
                let serving = ActiveCall {
                    rung,
                    form,
                    began_here,
                    call,
                    _promise,
                    ..ActiveCall::without_client(asker, id, agent)
                };
                let going =
                    self.run_call((to, Some(patience.min(budget))), (source, serving), exchange, params);
                return going.await.map_err(Err);
            }
            Ok(ToolOutcome::Told(result)) => result,
            Err(Abort::Fault(fault)) => return Err(Ok(fault)),
            Err(Abort::Gone) => return Err(Err(ClientGone)),
            Err(Abort::Told(result, outcome)) => {
                exchange.outcome = outcome;
                result
            }
        };
        let body = self.writer(asker.version.era()).uncacheable(id, &result);
        self.answer_with(to, (asker, exchange), body).await
    }

    async fn start(
        &self,
        (door, to): (Route<'_>, &mut ResponseTarget<'_>),
        asker: &ClientContext,
        params: &ClientParams<'_>,
        (name, text): (String, String),
    ) -> Result<ToolOutcome, Abort> {
        let agent = self.directory.find(&name).filter(|agent| self.can_see(&asker.caller, door, agent));
        let agent = agent.ok_or_else(|| Abort::tool_error(self.no_such_agent(asker, door, &name)))?.clone();
        self.permit_start((asker, door), &agent).map_err(|fault| match fault {
            // The existence of the agent is not secret.
            Fault::NoSuchTool(_) => Abort::tool_error(format!(
                "You may not begin a task of agent {name:?} without naming a skill: call the tool of a skill instead."
            )),
            fault => Abort::Fault(fault),
        })?;
        let place = self.shares.acquire_agent_call(&name, to.client_disconnected()).await?;
        let asked = arguments::ToolArguments { text: Some(text), ..arguments::ToolArguments::default() };
        let said = build(asked, &self.sender(asker, params, &name, None)).map_err(Abort::tool_error)?;
        let source = self
            .open_source(asker, (said, None), &agent)
            .await
            .map_err(|not_found| abort(not_found, &name))?;
        let promise = self.reserve_task(asker, &source).map_err(Abort::Fault)?;
        Ok(ToolOutcome::Goes(source, agent, (ResultKind::Start, promise, place), FIRST_WORD))
    }

    fn no_such_agent(&self, asker: &ClientContext, door: Route<'_>, name: &str) -> String {
        let shown: String = name.chars().take(64).collect();
        let behind = self.directory.agents().iter().filter(|agent| {
            let name = &agent.settings.name;
            self.can_see(&asker.caller, door, agent) && self.may_use(&asker.caller, name, TaskTool::Start)
        });
        let uris: Vec<String> = behind
            .take(20)
            .map(|agent| crate::bridge::resource_uri::agent_uri(&agent.settings.name))
            .collect();
        let others = if uris.is_empty() { "none".to_owned() } else { uris.join(", ") };
        format!("Unknown subagentUri: there is no agent {shown:?} here. There are: {others}.")
    }

    async fn wait(
        &self,
        door: Route<'_>,
        asker: &ClientContext,
        handle: &str,
        seconds: Option<u64>,
        budget: Duration,
    ) -> Result<ToolOutcome, Abort> {
        let (entry, known, agent) = self.resolve_task(TaskTool::Wait, (door, asker), handle).await?;
        let patience = seconds.map_or(budget, Duration::from_secs).min(budget);
        self.refresh(&entry, &known).await;
        let source = EventSource::Watched(Box::new(super::source::FollowedTask::new(entry, known, true)));
        Ok(ToolOutcome::Goes(source, agent, (ResultKind::Wait, None, None), patience))
    }

    async fn get_task(
        &self,
        door: Route<'_>,
        asker: &ClientContext,
        handle: &str,
    ) -> Result<CallToolResult, Abort> {
        let (entry, known, agent) = self.resolve_task(TaskTool::Get, (door, asker), handle).await?;
        self.refresh(&entry, &known).await;
        let name = &agent.settings.name;
        let audience = self.audience(asker, name);
        if let TaskPhase::Failed(trouble) = entry.visible_state(|inside| inside.phase()) {
            return Err(Abort::trouble(&trouble, name));
        }
        let mut told = entry.show_work(|work| tool_result::snapshot(work, &audience, entry.local()));
        let delay =
            entry.visible_state(|inside| inside.delay.filter(|_| inside.phase() == TaskPhase::Running));
        tell_delay(&mut told, delay, name);
        Ok(told)
    }

    /// Sends a message in a task. After a finished task, the message begins a new task in the same
    /// conversation.
    async fn send(
        &self,
        (door, to): (Route<'_>, &mut ResponseTarget<'_>),
        asker: &ClientContext,
        params: &ClientParams<'_>,
        (handle, said): (&str, arguments::ToolArguments),
    ) -> Result<CallToolResult, Abort> {
        let (entry, known, agent) = self.resolve_task(TaskTool::Send, (door, asker), handle).await?;
        let name = &agent.settings.name;
        let skill = entry.visible_state(|inside| inside.work.skill.clone());
        self.permit_words((asker, door), &agent, (Method::ToolsCall, skill.as_deref()))
            .map_err(Abort::of_task)?;
        self.refresh(&entry, &known).await;
        match entry.visible_state(|inside| inside.phase()) {
            TaskPhase::Finished => return Err(Abort::tool_error(self.has_ended((door, asker), name))),
            TaskPhase::Failed(trouble) => return Err(Abort::trouble(&trouble, name)),
            TaskPhase::Running | TaskPhase::Asking(..) => {}
        }
        let sender = self.sender(asker, params, name, None);
        let AgentAction::Say(message) = build(said, &sender).map_err(Abort::tool_error)? else {
            return Err(Abort::Fault(Fault::Internal));
        };
        let unnamed = || {
            Abort::tool_error("The agent has not accepted the first message yet: wait for it first.".into())
        };
        let task = entry.task_id().ok_or_else(unnamed)?;
        let parts = in_form_of_question(&entry, message.parts).map_err(Abort::tool_error)?;
        entry.begin_turn();
        let context_id = entry.visible_state(|inside| inside.work.context_id.clone());
        let mut message = Message { context_id, parts, ..message };
        let turn = match self.classify_text_answer(&entry, &task, &mut message) {
            AnswerClass::Answer(turn) => Some(Some(turn)),
            AnswerClass::Free => Some(None),
            AnswerClass::Again(_) => None,
            AnswerClass::Other => return Err(Abort::trouble(&AgentFailure::Internal(ON_ITS_WAY), name)),
        };
        if let Some(turn) = turn {
            let _place = self.shares.acquire_agent_call(name, to.client_disconnected()).await?;
            let said = self.followers.send_message(&entry, &known, TaskMessage { task, message, turn });
            // Longer silence is no failure: the agent works on the task.
            let said = tokio::select! {
                said = tokio::time::timeout(FIRST_WORD, said) => said,
                () = self.closing.answers_due() => Ok(Ok(Ok(()))),
            };
            if let Ok(Ok(Err(trouble))) = said {
                return Err(Abort::trouble(&trouble, name));
            }
        }
        let audience = self.audience(asker, name);
        Ok(entry.show_work(|work| tool_result::sent(work, &audience, entry.local())))
    }

    /// Returns the text for a model that sent a message in a task which has ended.
    fn has_ended(&self, (door, asker): (Route<'_>, &ClientContext), agent: &str) -> String {
        let starts = door == Route::AllAgents && self.may_use(&asker.caller, agent, TaskTool::Start);
        let begin = if starts { "Begin a new one with subagent_start, or call" } else { "Call" };
        format!(
            "The task has ended and takes no more messages. {begin} the agent's own tool with the contextId to go on with the \
             conversation."
        )
    }

    async fn cancel_one(
        &self,
        door: Route<'_>,
        asker: &ClientContext,
        handle: &str,
    ) -> Result<CallToolResult, Abort> {
        let (entry, known, agent) = self.resolve_task(TaskTool::Cancel, (door, asker), handle).await?;
        self.refresh(&entry, &known).await;
        if let TaskPhase::Failed(trouble) = entry.visible_state(|inside| inside.phase()) {
            return Err(Abort::trouble(&trouble, &agent.settings.name));
        }
        let was_over = entry.visible_state(|inside| inside.is_finished());
        if !was_over {
            let stopping = self.followers.cancel_and_wait(&entry, &known);
            if tokio::time::timeout(FIRST_WORD, stopping).await.is_err() {
                tracing::debug!(agent = %entry.agent(), "timed out waiting for agent to cancel task");
            }
        }
        let audience = self.audience(asker, &agent.settings.name);
        let canceled =
            entry.visible_state(|inside| inside.work.state == Some(crate::a2a::TaskState::Canceled));
        let is_remembered = !was_over && !entry.is_named();
        Ok(entry.visible_state(|inside| {
            tool_result::cancelled(&inside.work, &audience, entry.local(), canceled || is_remembered)
        }))
    }

    async fn resolve_task(
        &self,
        tool: TaskTool,
        (door, asker): (Route<'_>, &ClientContext),
        handle: &str,
    ) -> Result<(Arc<TaskEntry>, Arc<ResolvedAgent>, Arc<Agent>), Abort> {
        let (agent, named) =
            self.open_handle(asker, door, handle).ok_or_else(|| Abort::tool_error(unknown_task()))?;
        // Authorized for the agent of the task, which was not known when the tool was authorized.
        let own = ((tool.name(), tool.name()), None);
        self.authorize_tool((asker, door), Some(&agent), own).map_err(Abort::of_task)?;
        let found = self.entry(asker, &agent, &named).await;
        let (entry, known) = found.map_err(|not_found| abort(not_found, &agent.settings.name))?;
        Ok((entry, known, agent))
    }
}

/// Outcome of a call of a built-in tool.
enum ToolOutcome {
    /// A call to run: its event source and agent, the kind of result with the task reservation and
    /// the call permit, and its budget.
    Goes(EventSource, Arc<Agent>, (ResultKind, Option<TaskReservation>, Option<CallPermit>), Duration),
    /// A result.
    Told(CallToolResult),
}

fn abort(not_found: NotFound, agent: &str) -> Abort {
    match not_found {
        NotFound::Unknown => Abort::tool_error(unknown_task()),
        NotFound::Trouble(trouble) => Abort::trouble(&trouble, agent),
        NotFound::Unfit(told) => Abort::tool_error(told),
    }
}
