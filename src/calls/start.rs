//! `tools/call`: from the request to the call of the agent.
//!
//! See also `run` (the call until its response) and `mcp_server::task_tools` (the built-in tools).

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::questions::{OfferedAnswers, already_answered, in_form_of_question, last_question};
use super::responder::{CallResponder, ResponseTarget, WaitBudget};
use super::run::{ActiveCall, RunningCall};
use super::source::{DirectCall, EventSource, FollowedTask};
use super::{CallEngine, CallError, CallRequest, CallTarget, ClientContext, NotFound};
use crate::a2a::{Fingerprint, Message};
use crate::access::{TaskMessage, ToolUse};
use crate::agents::{Agent, AgentOperation, start};
use crate::bridge::agent_action::{AgentAction, CallOrigin, TraceContext, build};
use crate::bridge::arguments;
use crate::bridge::catalogue::{ToolEntry, ToolRef};
use crate::bridge::extension::ClientExtensions;
use crate::bridge::output::AgentOutput;
use crate::bridge::response_mode::{
    self, CallTimeouts, ClientAbilities, Fallback, ResponsePlan, TaskModeError, choose,
};
use crate::bridge::task_status::ProgressNotifier;
use crate::bridge::user_response;
use crate::config::StreamTimeout;
use crate::fault::{Abort, AgentFailure, ClientGone, Fault};
use crate::follow::TaskMessage as FollowUp;
use crate::http_edge::{AccessRecord, ResponseSink};
use crate::limits::CallPermit;
use crate::mcp::{ClientCapabilities, ClientParams, Method};
use crate::seal::{RequestState, TaskKey};
use crate::sessions::{ClientLimits, unix_seconds};
use crate::tasks::{AnswerClaim, EntryState, TaskEntry, TaskPhase};
use crate::telemetry::trace::RequestTrace;

/// Call with validated arguments.
struct PreparedCall<'a> {
    source: EventSource,
    /// Boxed: it goes through many hands while the call waits, and each would hold it.
    call: Box<ActiveCall<'a>>,
    /// Call permit of the agent.
    permit: Option<CallPermit>,
}

/// Action at an agent that a call begins with.
pub(crate) struct OpenedAction {
    pub(crate) action: AgentAction,
    /// Skill of a task that starts.
    pub(crate) skill: Option<Arc<str>>,
}

/// Message to an agent, and the skill of a task that it starts.
struct NewMessage {
    message: Message,
    skill: Option<Arc<str>>,
}

/// A call in a further round: its task, and the number of the round.
struct ResumedCall {
    source: EventSource,
    round: u8,
}

impl CallEngine {
    /// Runs a call of an agent's tool within a budget. `tool` is the one of the called name, if there is one. Writes the
    /// response to the client, or returns its body for the batch.
    ///
    /// # Errors
    ///
    /// [`Abort`] with the reason for which there is no result.
    pub(crate) async fn call_tool<S: ResponseSink>(
        &self,
        target: CallTarget<'_, S>,
        request: CallRequest<'_>,
        record: &mut AccessRecord,
        tool: Option<&ToolRef>,
    ) -> Result<Option<Vec<u8>>, Abort> {
        let CallTarget { mut to, budget } = target;
        let in_batch = matches!(to, ResponseTarget::Batch(_));
        let prepared = match self.prepare(request, record, tool, &mut to).await {
            Ok(prepared) => prepared,
            Err(Abort::ClientGone) => return Err(Abort::ClientGone),
            Err(Abort::Rejected(CallError::Fault(fault))) => return Err(fault.into()),
            Err(Abort::Rejected(CallError::ToolError(result, outcome))) => {
                record.outcome = outcome;
                let body = self.writer(request.client.era()).uncacheable(request.id, &*result);
                return to.respond(request.client, record, &self.limits, body).await;
            }
        };
        let PreparedCall { source, call, permit: _permit } = prepared;
        let budget = if in_batch { Some(budget) } else { call.plan.patience };
        Ok(self.run_call(to, budget, source, call, request.params, record).await?)
    }

    /// Returns the times of a client that has waited since then.
    pub(crate) fn wait_budget(&self, since: Instant, budget: Option<Duration>) -> WaitBudget<'_> {
        let calls = &self.settings.calls;
        let (stream_after, keep_alive) = (calls.stream_after, calls.keep_alive);
        WaitBudget { since, budget, stream_after, keep_alive, drain: &self.drain }
    }

    /// Runs a call that has begun, with the cancellation and the stream of its client. The budget begins with the call.
    ///
    /// # Errors
    ///
    /// [`ClientGone`] if the client disconnected.
    pub(crate) async fn run_call<S: ResponseSink>(
        &self,
        to: ResponseTarget<'_, S>,
        budget: Option<Duration>,
        source: EventSource,
        mut call: Box<ActiveCall<'_>>,
        params: &ClientParams<'_>,
        record: &mut AccessRecord,
    ) -> Result<Option<Vec<u8>>, ClientGone> {
        let client = call.client;
        let earlier = self.earlier_calls(&call).await;
        // A budget that is inferred from earlier calls begins now: it is short, and the call may have waited for a permit.
        let budget = budget.map(|budget| {
            earlier
                .as_ref()
                .map_or(budget, |calls| call.since.elapsed().saturating_add(calls.budget()).min(budget))
        });
        call.earlier = earlier;
        let running = client.session.as_ref().map(|session| self.running.register(session.key, call.id));
        let progress =
            ProgressNotifier::new(params.meta().progress.clone(), client.level, &call.agent.settings.name);
        let metrics = call.agent.metrics.clone();
        let budget = self.wait_budget(call.since, budget);
        let responder = CallResponder::new(to, client.accepts, progress, budget, &metrics);
        self.run_active(RunningCall { responder, source, running }, call, record).await
    }

    /// Waits for the result of a task in the map, without a limit, and asks the user in between.
    ///
    /// # Errors
    ///
    /// [`ClientGone`] if the client disconnected.
    pub(crate) async fn await_result<S: ResponseSink>(
        &self,
        to: ResponseTarget<'_, S>,
        source: EventSource,
        call: Box<ActiveCall<'_>>,
        params: &ClientParams<'_>,
        record: &mut AccessRecord,
    ) -> Result<Option<Vec<u8>>, ClientGone> {
        let client = call.client;
        let progress =
            ProgressNotifier::new(params.meta().progress.clone(), client.level, &call.agent.settings.name);
        let metrics = call.agent.metrics.clone();
        let budget = self.wait_budget(call.since, None);
        let responder = CallResponder::new(to, client.accepts, progress, budget, &metrics);
        let running = client.session.as_ref().map(|session| self.running.register(session.key, call.id));
        self.run_active(RunningCall { responder, source, running }, call, record).await
    }

    /// Finds the tool, parses the arguments, and decides on the agent action.
    async fn prepare<'a, S: ResponseSink>(
        &self,
        request: CallRequest<'a>,
        record: &mut AccessRecord,
        tool: Option<&ToolRef>,
        to: &mut ResponseTarget<'_, S>,
    ) -> Result<PreparedCall<'a>, Abort<CallError>> {
        // Once per call: a look at the clock costs as much as some hundred instructions.
        let since = Instant::now();
        let CallRequest { client, id, params, .. } = request;
        let name = params
            .name
            .as_ref()
            .ok_or_else(|| Fault::InvalidParams("name is missing: the tool to call".into()))?;
        let unknown = || Fault::no_such_tool(name.as_str());
        let tool = tool.and_then(ToolRef::of_agent).ok_or_else(unknown)?;
        let agent = self.lookup.directory.find(&tool.agent).cloned().ok_or_else(unknown)?;
        let skill = tool.skill.as_deref().unwrap_or_default();
        let used = ToolUse { skill, name: &tool.name, arguments: params.arguments };
        self.authorizer.authorize_tool(client.requester(), Some(&agent), used)?;
        let in_batch = matches!(to, ResponseTarget::Batch(_));
        let permit = self.limits.acquire_agent_call(&agent.settings.name, to.client_disconnected()).await?;
        record.tool = Some(tool.name.clone());
        record.agent = Some(agent.clone());
        let mut abilities = ClientAbilities {
            version: client.version,
            capabilities: client.capabilities,
            wants_task: params.task.is_some(),
            round: 0,
            in_batch,
            makes_rounds: client.limits.rounds.unwrap_or_else(|| client.capabilities.can_be_asked()),
        };
        let resumed = match params.request_state.as_ref() {
            None => None,
            Some(state) => Some(self.resume(request, tool, &agent, state.as_str()).await?),
        };
        abilities.round = resumed.as_ref().map_or(0, |resumed| resumed.round);
        let plan = self.response_plan(&abilities, client.limits, tool)?;
        let call = ActiveCall {
            plan,
            round: abilities.round,
            tool: name.as_str(),
            arguments: params.arguments,
            early_responses: params.input_responses.filter(|_| resumed.is_none()),
            ..ActiveCall::new(client, id, agent.clone(), since)
        };
        let mut call = Box::new(call);
        if let Some(ResumedCall { source, .. }) = resumed {
            return Ok(PreparedCall { source, call, permit });
        }
        if plan.then == Fallback::CoreTask && !self.lookup.tasks.has_room(std::time::Instant::now()) {
            // Rejected before the agent is contacted.
            return Err(Fault::TasksFull.into());
        }
        let action = self.action(request, tool, &agent).map_err(CallError::tool_error)?;
        let began_here = matches!(action, AgentAction::Say(_));
        if let AgentAction::Continue(named, _) = &action {
            self.authorize_continuation(client, tool, &agent, named)?;
        }
        let opened = OpenedAction { action, skill: tool.skill.clone() };
        let source = self.open_source(client, opened, &agent).await;
        let source = source.map_err(|not_found| CallError::not_found(not_found, &agent.settings.name))?;
        let is_task = plan.then == Fallback::CoreTask;
        let _reservation =
            if is_task { self.lookup.reserve_task(client, source.own_number()).await? } else { None };
        (call.began_here, call._reservation) = (began_here, _reservation);
        Ok(PreparedCall { source, call, permit })
    }

    /// Authorizes a message in an existing task: the task may be of another skill than this tool.
    fn authorize_continuation(
        &self,
        client: &ClientContext<'_>,
        tool: &ToolEntry,
        agent: &Agent,
        named: &TaskKey,
    ) -> Result<(), CallError> {
        let skill = self.lookup.skill_of(&agent.settings.name, named);
        if skill == tool.skill {
            return Ok(());
        }
        self.authorize_message(client, agent, Method::ToolsCall, skill.as_deref()).map_err(CallError::of_task)
    }

    /// Authorizes a message in a task of an agent, by the skill of the task.
    ///
    /// # Errors
    ///
    /// The [`Fault`] with which the message is rejected, as if the task did not exist.
    pub(crate) fn authorize_message(
        &self,
        client: &ClientContext<'_>,
        agent: &Agent,
        method: Method,
        skill: Option<&str>,
    ) -> Result<(), Fault> {
        let tool = self.catalogue.tool_of(client.route, &agent.settings.name, skill);
        let message = TaskMessage { method, skill, tool: tool.as_deref() };
        self.authorizer.authorize_message(client.requester(), agent, message)
    }

    fn response_plan(
        &self,
        abilities: &ClientAbilities,
        limits: ClientLimits,
        tool: &ToolEntry,
    ) -> Result<ResponsePlan, Fault> {
        let calls = &self.settings.calls;
        let times = CallTimeouts {
            budget: limits.budget(calls.budget),
            task_after: calls.task_after,
            round_timeout: calls.round_timeout,
            max_rounds: u8::try_from(calls.max_rounds).unwrap_or(u8::MAX),
            holds_stream: calls.stream_timeout == StreamTimeout::Forever,
        };
        choose(abilities, &times, tool.task).map_err(|error| match error {
            TaskModeError::NeedsExtension => Fault::MissingCapability(ClientCapabilities::TASKS_EXTENSION),
            TaskModeError::NeedsTask => Fault::TaskRequired(tool.name.clone()),
            TaskModeError::NoTask => Fault::TaskNotSupported(tool.name.clone()),
        })
    }

    /// Continues a call in the next round, with the `requestState` of the client.
    async fn resume(
        &self,
        request: CallRequest<'_>,
        tool: &ToolEntry,
        agent: &Arc<Agent>,
        state: &str,
    ) -> Result<ResumedCall, CallError> {
        let CallRequest { client, params, .. } = request;
        let name = &agent.settings.name;
        let state = RequestState::open(&self.sealer, client.caller.name(), state)
            .filter(|state| state.is_live(unix_seconds()) && state.agent == *name)
            .filter(|state| state.digest == response_mode::digest(&tool.name, params.arguments))
            .ok_or(Fault::InvalidRequestState)?;
        let found = self.lookup.entry(client, agent, &state.task).await;
        let (entry, known) = found.map_err(|not_found| match not_found {
            NotFound::Unknown => CallError::Fault(Fault::InvalidRequestState),
            not_found => CallError::not_found(not_found, name),
        })?;
        self.lookup.refresh(&entry, &known).await;
        let mut answered = None;
        if let (Some(responses), Some(turn)) = (params.input_responses, state.turn) {
            // A question that is no longer open has been answered: this is the same answer again.
            answered = Some(turn);
            entry.adopt_round(Fingerprint::from_bytes(turn));
            let question = last_question(&entry).filter(|question| question.turn.to_bytes() == turn);
            if let Some(question) = &question {
                let offered = OfferedAnswers {
                    responses: Some(responses),
                    extensions: offered_extensions(params, agent),
                };
                self.accept_input_responses(&entry, &known, question, offered).await?;
                // If the question has several parts, some may still be open.
                let is_over = |inside: &EntryState| {
                    inside.is_taken(turn) || inside.refusal(turn).is_some() || inside.failure(turn).is_some()
                };
                answered = answered.filter(|_| entry.visible_state(is_over));
            }
            // Parts of an answer differ from each other; complete answers must not.
            let is_whole = question.as_ref().is_none_or(|question| question.inputs.len() == 1);
            let response = response_mode::digest("", Some(responses));
            if answered.is_some() && is_whole && !entry.is_same_response(turn, response) {
                return Err(already_answered().into());
            }
        }
        let mut task = FollowedTask::new(entry, known, false);
        task.asked = answered;
        Ok(ResumedCall { source: EventSource::Watched(Box::new(task)), round: state.round })
    }

    fn action(
        &self,
        request: CallRequest<'_>,
        tool: &ToolEntry,
        agent: &Agent,
    ) -> Result<AgentAction, String> {
        let read = || arguments::read(&tool.input, request.params.arguments);
        let arguments = match request.body {
            Some(body) => body.read(read)?,
            None => read()?,
        };
        build(arguments, &self.origin(request, agent, tool.skill.as_deref()))
    }

    /// Returns the origin of a message to an agent, with its extension values.
    pub(crate) fn origin<'a>(
        &'a self,
        request: CallRequest<'a>,
        agent: &'a Agent,
        skill: Option<&'a str>,
    ) -> CallOrigin<'a> {
        let trace = request.client.forwarded.as_deref().and_then(|forwarded| forwarded.scope().trace());
        CallOrigin {
            caller: request.client.caller.name(),
            sealer: &self.sealer,
            agent: &agent.settings.name,
            skill,
            trace: TraceContext {
                parent: trace.map(RequestTrace::parent),
                state: trace.and_then(|trace| trace.context().state()),
            },
            message_id: rand::random(),
            extensions: offered_extensions(request.params, agent),
        }
    }

    /// Opens the event source of an agent action.
    ///
    /// # Errors
    ///
    /// [`NotFound`] if the task of the action is not found, or the agent is not available.
    pub(crate) async fn open_source(
        &self,
        client: &ClientContext<'_>,
        opened: OpenedAction,
        agent: &Arc<Agent>,
    ) -> Result<EventSource, NotFound> {
        let OpenedAction { action, skill } = opened;
        match action {
            AgentAction::Say(message) => self.begin_task(client, agent, NewMessage { message, skill }),
            AgentAction::Await(named) => self.await_task(client, agent, &named).await,
            AgentAction::Continue(named, message) => {
                self.continue_task(client, agent, &named, NewMessage { message, skill }).await
            }
        }
    }

    async fn await_task(
        &self,
        client: &ClientContext<'_>,
        agent: &Arc<Agent>,
        named: &TaskKey,
    ) -> Result<EventSource, NotFound> {
        let (entry, known) = self.lookup.entry(client, agent, named).await?;
        self.lookup.refresh(&entry, &known).await;
        Ok(EventSource::Watched(Box::new(FollowedTask::new(entry, known, true))))
    }

    /// Sends a message in a task; if the task is over, begins a new one in its conversation.
    async fn continue_task(
        &self,
        client: &ClientContext<'_>,
        agent: &Arc<Agent>,
        named: &TaskKey,
        new: NewMessage,
    ) -> Result<EventSource, NotFound> {
        let NewMessage { message, skill } = new;
        let (entry, known) = self.lookup.entry(client, agent, named).await?;
        entry.begin_turn();
        self.lookup.refresh(&entry, &known).await;
        let (phase, task, context) = entry.visible_state(|inside| {
            (inside.phase(), inside.work.task_id.clone(), inside.work.context_id.clone())
        });
        let mut message = Message { context_id: context.or(message.context_id), ..message };
        if let TaskPhase::Failed(failure) = phase {
            return Err(NotFound::Trouble(failure));
        }
        if phase == TaskPhase::Finished {
            message.reference_task_ids.extend(task);
            return self.begin_task(client, agent, NewMessage { message, skill });
        }
        let Some(task) = task else {
            return Err(NotFound::Trouble(AgentFailure::Rejected(
                "it has not accepted the first message yet; wait for it with taskId alone".into(),
            )));
        };
        message.parts = in_form_of_question(&entry, message.parts).map_err(NotFound::Unfit)?;
        let class = self.classify_text_answer(&entry, &task, &mut message);
        let mut followed = FollowedTask::new(entry.clone(), known.clone(), false);
        match class {
            // The message has been sent; this is a retry by the client.
            AnswerClass::Again(turn) => followed.asked = Some(turn),
            AnswerClass::Answer(turn) => {
                followed.asked = Some(turn.to_bytes());
                let message = FollowUp { task, message, turn: Some(turn) };
                let sent = self.lookup.followers.send_message(&entry, &known, message);
                followed.delivery = Some(sent);
            }
            AnswerClass::Other => return Err(NotFound::Trouble(AgentFailure::Internal(ANSWER_IN_FLIGHT))),
            AnswerClass::Free => {
                let message = FollowUp { task, message, turn: None };
                let sent = self.lookup.followers.send_message(&entry, &known, message);
                followed.delivery = Some(sent);
            }
        }
        Ok(EventSource::Watched(Box::new(followed)))
    }

    fn begin_task(
        &self,
        client: &ClientContext<'_>,
        agent: &Arc<Agent>,
        new: NewMessage,
    ) -> Result<EventSource, NotFound> {
        let known = self.lookup.resolved_agent(client, agent).map_err(NotFound::Trouble)?;
        let room = self.limits.answer_room(client.quota_owner.as_ref());
        let permit = room.permit.clone();
        let operation = AgentOperation::Say(new.message);
        let drive = start(self.http_client.clone(), known.clone(), self.settings.exchange, room, operation);
        let mut work = AgentOutput::new(self.settings.artifact_bytes);
        work.skill = new.skill;
        Ok(EventSource::Own(Box::new(DirectCall::new(drive, permit, work, known))))
    }

    /// Classifies a message of a model in its task. A repeated answer to the open question counts
    /// once.
    pub(crate) fn classify_text_answer(
        &self,
        entry: &TaskEntry,
        task: &str,
        message: &mut Message,
    ) -> AnswerClass {
        let digest = user_response::digest_of_parts(&message.parts);
        let (open, last, is_repeated) = entry.visible_state(|inside| {
            (inside.open_turn(), inside.last_answered(), inside.is_answered_by(digest))
        });
        let Some(turn) = open else {
            // Until the agent sends a new message, the same text is the same answer.
            let (is_shown, is_under_way) = entry.visible_state(|inside| {
                let is_under_way = inside.answer_in_flight().is_some() || inside.has_unconfirmed_answer();
                (inside.work.question_turn().is_some(), is_under_way)
            });
            return match last {
                Some(turn) if is_repeated && is_shown => AnswerClass::Again(turn),
                // Another answer, while the first one has not reached the agent yet.
                _ if is_shown && is_under_way => AnswerClass::Other,
                _ => AnswerClass::Free,
            };
        };
        match entry.claim_answer(turn, digest) {
            AnswerClaim::Ours => {
                let turn = Fingerprint::from_bytes(turn);
                message.message_id = Some(user_response::message_id(task, turn, digest));
                self.metrics.tasks.answered();
                AnswerClass::Answer(turn)
            }
            AnswerClaim::Same => AnswerClass::Again(turn),
            AnswerClaim::Other => AnswerClass::Other,
        }
    }
}

/// Returns the values that the client gave for the agent's extensions.
pub(crate) fn offered_extensions<'a>(params: &'a ClientParams<'_>, agent: &'a Agent) -> ClientExtensions<'a> {
    ClientExtensions { given: Some(&params.meta().extensions), active: &agent.settings.extensions }
}

/// Meaning of a model's message in a task.
pub(crate) enum AnswerClass {
    /// The answer to this question.
    Answer(Fingerprint),
    /// The answer to this question, repeated.
    Again([u8; 16]),
    /// Another answer to a question with an answer in flight: not sent.
    Other,
    /// A message that answers no question.
    Free,
}

/// Reason for which another answer is not sent.
pub(crate) const ANSWER_IN_FLIGHT: &str =
    "an answer to the question of this task is on its way already, and nothing was sent; wait for the task";
