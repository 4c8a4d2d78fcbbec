//! `tools/call`: from the request to the call of the agent.
//!
//! See also `run` (the call until its response) and `task_tools` (the built-in tools).

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::abort::Abort;
use super::access_record::AccessRecord;
use super::endpoint_limits::EndpointLimits;
use super::input_responses::{already_answered, in_form_of_question, last_question};
use super::limits::QuotaKind;
use super::lookup::NotFound;
use super::queue::CallPermit;
use super::responder::{CallResponder, ResponseTarget, WaitBudget};
use super::response::ClientGone;
use super::route::Route;
use super::run::ActiveCall;
use super::source::{DirectCall, EventSource, FollowedTask};
use super::{ClientContext, Inner, now};
use crate::a2a::{Fingerprint, Message};
use crate::agents::{Agent, AgentOperation, start};
use crate::bridge::agent_action::{AgentAction, CallOrigin, TraceContext, build, unknown_task};
use crate::bridge::arguments;
use crate::bridge::catalogue::{self, CatalogueView, ToolEntry};
use crate::bridge::extension::ClientExtensions;
use crate::bridge::output::AgentOutput;
use crate::bridge::progress::ProgressNotifier;
use crate::bridge::response_mode::{
    self, CallTimeouts, ClientAbilities, Fallback, ResponsePlan, TaskModeError, choose,
};
use crate::bridge::task_tools::TaskTool;
use crate::bridge::user_response;
use crate::config::StreamTimeout;
use crate::fault::{AgentFailure, Fault};
use crate::follow::TaskMessage;
use crate::jsonrpc::Id;
use crate::mcp::{ClientCapabilities, ClientParams, Method};
use crate::seal::{RequestState, TaskKey};
use crate::tasks::{AnswerClaim, EntryState, TaskEntry, TaskPhase};

/// Call with validated arguments.
struct PreparedCall<'a> {
    source: EventSource,
    serving: ActiveCall<'a>,
    /// Call permit of the agent.
    place: Option<CallPermit>,
}

impl Inner {
    /// Handles a call of a built-in tool or of an agent's tool.
    pub(super) async fn call(
        &self,
        to: (ResponseTarget<'_>, Duration),
        door: Route<'_>,
        asking: (&ClientContext, &mut AccessRecord),
        (id, params): (&Id, &ClientParams<'_>),
    ) -> Result<Option<Vec<u8>>, Result<Fault, ClientGone>> {
        let _part = match &asking.1.whose {
            Some(whose) => Some(self.shares.acquire(whose, QuotaKind::Call).map_err(Ok)?),
            None => None,
        };
        if self.closing.is_due() {
            // Rejected before the agent is contacted.
            return Err(Ok(Fault::Ending));
        }
        let busy = |_| Ok(Fault::Busy("too many calls are under way"));
        let _turn = self.calls.clone().try_acquire_owned().map_err(busy)?;
        let catalogue = self.catalogue.load_full();
        let view = self.catalogue_view(&catalogue, door);
        // A built-in tool that is switched off is not in the view; its name may belong to another
        // tool.
        let own = params.name.as_ref().and_then(|name| view.find(name.as_str())?.own());
        let Some(own) = own else { return self.call_tool(to, asking, (id, params), (view, door)).await };
        self.authorize_tool((asking.0, door), None, ((own, own), params.arguments)).map_err(Ok)?;
        match TaskTool::from_name(own) {
            Some(tool) => Box::pin(self.call_builtin(to, door, asking, (id, params, tool))).await,
            None => self.find_agent(to.0, door, asking, (id, params, &catalogue)).await,
        }
    }

    /// Runs a call of an agent's tool within a budget. Writes the response to the client, or
    /// returns its body for the batch.
    async fn call_tool(
        &self,
        (mut to, budget): (ResponseTarget<'_>, Duration),
        (asker, exchange): (&ClientContext, &mut AccessRecord),
        (id, params): (&Id, &ClientParams<'_>),
        through: (&CatalogueView, Route<'_>),
    ) -> Result<Option<Vec<u8>>, Result<Fault, ClientGone>> {
        let in_batch = matches!(to, ResponseTarget::Batch(_));
        let since = Instant::now();
        let begun = match self.begin(asker, exchange, (id, params), through, &mut to).await {
            Ok(begun) => begun,
            Err(Abort::Fault(fault)) => return Err(Ok(fault)),
            Err(Abort::Gone) => return Err(Err(ClientGone)),
            Err(Abort::Told(result, outcome)) => {
                exchange.outcome = outcome;
                let body = self.writer(asker.version.era()).uncacheable(id, &result);
                return self.answer_with(to, (asker, exchange), body).await;
            }
        };
        let PreparedCall { source, serving, place: _place } = begun;
        let budget = if in_batch { Some(budget) } else { serving.rung.patience };
        // The client has already waited while the call was prepared.
        let budget = budget.map(|budget| budget.saturating_sub(since.elapsed()));
        self.run_call((to, budget), (source, serving), exchange, params).await.map_err(Err)
    }

    /// Returns the times that a client waits.
    pub(super) fn patience(&self, budget: Option<Duration>) -> WaitBudget<'_> {
        let calls = &self.settings.calls;
        let (stream_after, keep_alive) = (calls.stream_after, calls.keep_alive);
        WaitBudget { budget, stream_after, keep_alive, closing: &self.closing }
    }

    /// Runs a call that has begun, with the cancellation and the stream of its client.
    pub(super) async fn run_call(
        &self,
        (to, budget): (ResponseTarget<'_>, Option<Duration>),
        (source, serving): (EventSource, ActiveCall<'_>),
        exchange: &mut AccessRecord,
        params: &ClientParams<'_>,
    ) -> Result<Option<Vec<u8>>, ClientGone> {
        let asker = serving.asker;
        let earlier = self.earlier_calls(&serving).await;
        let budget = budget.map(|budget| earlier.as_ref().map_or(budget, |calls| calls.budget().min(budget)));
        let serving = ActiveCall { earlier, ..serving };
        let running = asker.session.as_ref().map(|session| self.running.register(session.key, serving.id));
        let teller =
            ProgressNotifier::new(params.meta().progress.clone(), asker.level, &serving.agent.settings.name);
        let patience = self.patience(budget);
        let metrics = serving.agent.metrics.clone();
        let pump = CallResponder::new(to, asker.takes, teller, patience, &metrics);
        self.run_active((pump, source, running), serving, exchange).await
    }

    /// Finds the tool, parses the arguments, and decides on the agent action.
    async fn begin<'a>(
        &self,
        asker: &'a ClientContext,
        exchange: &mut AccessRecord,
        (id, params): (&'a Id, &'a ClientParams<'a>),
        (view, door): (&CatalogueView, Route<'_>),
        to: &mut ResponseTarget<'_>,
    ) -> Result<PreparedCall<'a>, Abort> {
        let name = params
            .name
            .as_ref()
            .ok_or_else(|| Abort::Fault(Fault::InvalidParams("name is missing: the tool to call".into())))?;
        let unknown = || Abort::Fault(Fault::NoSuchTool(name.as_str().chars().take(100).collect()));
        let tool = view.find(name.as_str()).and_then(catalogue::ToolRef::of_agent).ok_or_else(unknown)?;
        let agent = self.directory.find(&tool.agent).cloned().ok_or_else(unknown)?;
        let skill = tool.skill.as_deref().unwrap_or_default();
        let named = ((skill, tool.name.as_str()), params.arguments);
        self.authorize_tool((asker, door), Some(&agent), named).map_err(Abort::Fault)?;
        let in_batch = matches!(to, ResponseTarget::Batch(_));
        let place = self.shares.acquire_agent_call(&agent.settings.name, to.client_disconnected()).await?;
        exchange.tool = Some(tool.name.clone());
        exchange.agent = Some(agent.clone());
        let mut client = ClientAbilities {
            version: asker.version,
            capabilities: asker.capabilities,
            wants_task: params.task.is_some(),
            round: 0,
            in_batch,
            makes_rounds: asker.limits.rounds.unwrap_or_else(|| asker.capabilities.can_be_asked()),
        };
        let is_late = params.request_state.is_some();
        let resumed = match params.request_state.as_ref().filter(|_| is_late) {
            None => None,
            Some(state) => Some(self.resume(asker, params, (tool, &agent), state.as_str()).await?),
        };
        client.round = resumed.as_ref().map_or(0, |(_, round)| *round);
        let rung = self.response_mode(&client, asker.limits, tool)?;
        let serving = ActiveCall {
            rung,
            round: client.round,
            call: (name.as_str(), params.arguments),
            along: params.input_responses.filter(|_| resumed.is_none()),
            ..ActiveCall::without_client(asker, id, agent.clone())
        };
        if let Some((source, _)) = resumed {
            return Ok(PreparedCall { source, serving, place });
        }
        if rung.then == Fallback::CoreTask && !self.tasks.has_room(Instant::now()) {
            // Rejected before the agent is contacted.
            return Err(Abort::Fault(Fault::TasksFull));
        }
        let order = self.order(asker, params, tool).map_err(Abort::tool_error)?;
        let began_here = matches!(order, AgentAction::Say(_));
        if let AgentAction::Continue(named, _) = &order {
            self.permit_continuing((asker, door), (tool, &agent), named)?;
        }
        let ordered = (order, tool.skill.clone());
        let source = self.open_source(asker, ordered, &agent).await.map_err(|refusal| match refusal {
            NotFound::Unknown => Abort::tool_error(unknown_task()),
            NotFound::Trouble(trouble) => Abort::trouble(&trouble, &agent.settings.name),
            NotFound::Unfit(told) => Abort::tool_error(told),
        })?;
        let is_task = rung.then == Fallback::CoreTask;
        let _promise = if is_task { self.reserve_task(asker, &source).map_err(Abort::Fault)? } else { None };
        Ok(PreparedCall { source, serving: ActiveCall { began_here, _promise, ..serving }, place })
    }

    /// Authorizes a message in an existing task: the task may be of another skill than this tool.
    fn permit_continuing(
        &self,
        asking: (&ClientContext, Route<'_>),
        (tool, agent): (&ToolEntry, &Agent),
        named: &TaskKey,
    ) -> Result<(), Abort> {
        let skill = self.skill_of(&agent.settings.name, named);
        if skill == tool.skill {
            return Ok(());
        }
        self.permit_words(asking, agent, (Method::ToolsCall, skill.as_deref())).map_err(Abort::of_task)
    }

    fn response_mode(
        &self,
        client: &ClientAbilities,
        limits: EndpointLimits,
        tool: &ToolEntry,
    ) -> Result<ResponsePlan, Abort> {
        let calls = &self.settings.calls;
        let times = CallTimeouts {
            budget: limits.budget(calls.budget),
            task_after: calls.task_after,
            round_timeout: calls.round_timeout,
            max_rounds: u8::try_from(calls.max_rounds).unwrap_or(u8::MAX),
            holds_stream: calls.stream_timeout == StreamTimeout::Forever,
        };
        choose(client, &times, tool.task).map_err(|unserved| {
            Abort::Fault(match unserved {
                TaskModeError::NeedsExtension => {
                    Fault::MissingCapability(ClientCapabilities::TASKS_EXTENSION)
                }
                TaskModeError::NeedsTask => Fault::TaskRequired(tool.name.clone()),
                TaskModeError::NoTask => Fault::TaskNotSupported(tool.name.clone()),
            })
        })
    }

    /// Continues a call in the next round, with the `requestState` of the client.
    async fn resume(
        &self,
        asker: &ClientContext,
        params: &ClientParams<'_>,
        (tool, agent): (&ToolEntry, &Arc<Agent>),
        state: &str,
    ) -> Result<(EventSource, u8), Abort> {
        let caller = asker.caller.name();
        let state = RequestState::open(&self.sealer, caller, state)
            .filter(|state| state.is_live(now()) && state.agent == agent.settings.name)
            .filter(|state| state.digest == response_mode::digest(&tool.name, params.arguments))
            .ok_or(Abort::Fault(Fault::InvalidRequestState))?;
        let found = self.entry(asker, agent, &state.task).await;
        let (entry, known) = found.map_err(|not_found| match not_found {
            NotFound::Unknown => Abort::Fault(Fault::InvalidRequestState),
            NotFound::Trouble(trouble) => Abort::trouble(&trouble, &agent.settings.name),
            NotFound::Unfit(told) => Abort::tool_error(told),
        })?;
        self.refresh(&entry, &known).await;
        let mut answered = None;
        if let (Some(responses), Some(turn)) = (params.input_responses, state.turn) {
            // A question that is no longer open has been answered: this is the same answer again.
            answered = Some(turn);
            entry.adopt_round(Fingerprint::from_bytes(turn));
            let question = last_question(&entry).filter(|question| question.turn.to_bytes() == turn);
            if let Some(question) = &question {
                let offered = self.offered_extensions(params, &agent.settings.name);
                let taken =
                    self.accept_input_responses(&entry, &known, (question, offered), Some(responses)).await;
                taken.map_err(Abort::Fault)?;
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
                return Err(Abort::Fault(already_answered()));
            }
        }
        let mut watched = FollowedTask::new(entry, known, false);
        watched.asked = answered;
        Ok((EventSource::Watched(Box::new(watched)), state.round))
    }

    fn order(
        &self,
        asker: &ClientContext,
        params: &ClientParams<'_>,
        tool: &ToolEntry,
    ) -> Result<AgentAction, String> {
        let asked = arguments::read(&tool.input, params.arguments)?;
        build(asked, &self.sender(asker, params, &tool.agent, tool.skill.as_deref()))
    }

    /// Returns the sender of a message to an agent, with its extension values.
    pub(super) fn sender<'a>(
        &'a self,
        asker: &'a ClientContext,
        params: &'a ClientParams<'_>,
        agent: &'a str,
        skill: Option<&'a str>,
    ) -> CallOrigin<'a> {
        let meta = params.meta();
        CallOrigin {
            caller: asker.caller.name(),
            sealer: &self.sealer,
            agent,
            skill,
            trace: TraceContext {
                parent: meta.traceparent.as_ref().map(|text| text.as_str()),
                state: meta.tracestate.as_ref().map(|text| text.as_str()),
            },
            message_id: rand::random(),
            extensions: self.offered_extensions(params, agent),
        }
    }

    /// Returns the values that the client gave for the agent's extensions.
    pub(super) fn offered_extensions<'a>(
        &'a self,
        params: &'a ClientParams<'_>,
        agent: &str,
    ) -> ClientExtensions<'a> {
        ClientExtensions { given: Some(&params.meta().extensions), active: self.active(agent) }
    }

    /// Opens the event source of an agent action; a task that starts gets this skill.
    pub(super) async fn open_source(
        &self,
        asker: &ClientContext,
        (order, skill): (AgentAction, Option<Arc<str>>),
        agent: &Arc<Agent>,
    ) -> Result<EventSource, NotFound> {
        match order {
            AgentAction::Say(message) => self.resume_from_map(asker, agent, (message, skill)),
            AgentAction::Await(named) => self.wait_budget(asker, agent, &named).await,
            AgentAction::Continue(named, message) => {
                self.continue_task(asker, agent, &named, (message, skill)).await
            }
        }
    }

    pub(super) async fn wait_budget(
        &self,
        asker: &ClientContext,
        agent: &Arc<Agent>,
        named: &TaskKey,
    ) -> Result<EventSource, NotFound> {
        let (entry, known) = self.entry(asker, agent, named).await?;
        self.refresh(&entry, &known).await;
        Ok(EventSource::Watched(Box::new(FollowedTask::new(entry, known, true))))
    }

    /// Sends a message in a task; if the task is over, begins a new one in its conversation.
    async fn continue_task(
        &self,
        asker: &ClientContext,
        agent: &Arc<Agent>,
        named: &TaskKey,
        (message, skill): (Message, Option<Arc<str>>),
    ) -> Result<EventSource, NotFound> {
        let (entry, known) = self.entry(asker, agent, named).await?;
        entry.begin_turn();
        self.refresh(&entry, &known).await;
        let (phase, task, context) = entry.visible_state(|inside| {
            (inside.phase(), inside.work.task_id.clone(), inside.work.context_id.clone())
        });
        let mut message = Message { context_id: context.or(message.context_id), ..message };
        if let TaskPhase::Failed(trouble) = phase {
            return Err(NotFound::Trouble(trouble));
        }
        if phase == TaskPhase::Finished {
            message.reference_task_ids.extend(task);
            return self.resume_from_map(asker, agent, (message, skill));
        }
        let Some(task) = task else {
            return Err(NotFound::Trouble(AgentFailure::Rejected(
                "it has not accepted the first message yet; wait for it with taskId alone".into(),
            )));
        };
        message.parts = in_form_of_question(&entry, message.parts).map_err(NotFound::Unfit)?;
        let answers = self.classify_text_answer(&entry, &task, &mut message);
        let mut watched = FollowedTask::new(entry.clone(), known.clone(), false);
        match answers {
            // The message has been sent; this is a retry by the client.
            AnswerClass::Again(turn) => watched.asked = Some(turn),
            AnswerClass::Answer(turn) => {
                watched.asked = Some(turn.to_bytes());
                watched.said = Some(self.followers.send_message(
                    &entry,
                    &known,
                    TaskMessage { task, message, turn: Some(turn) },
                ));
            }
            AnswerClass::Other => return Err(NotFound::Trouble(AgentFailure::Internal(ON_ITS_WAY))),
            AnswerClass::Free => {
                watched.said = Some(self.followers.send_message(
                    &entry,
                    &known,
                    TaskMessage { task, message, turn: None },
                ))
            }
        }
        Ok(EventSource::Watched(Box::new(watched)))
    }

    fn resume_from_map(
        &self,
        asker: &ClientContext,
        agent: &Arc<Agent>,
        (message, skill): (Message, Option<Arc<str>>),
    ) -> Result<EventSource, NotFound> {
        let known = self.resolved_agent(asker, agent).map_err(NotFound::Trouble)?;
        let room = self.shares.answer_room(asker.whose.as_ref());
        let permit = room.permit.clone();
        let drive =
            start(self.client.clone(), known.clone(), self.call_limits(), room, AgentOperation::Say(message));
        let mut work = AgentOutput::new(self.settings.limits.artifacts);
        work.skill = skill;
        Ok(EventSource::Own(Box::new(DirectCall::new((drive, permit), work, known))))
    }

    /// Classifies a message of a model in its task. A repeated answer to the open question counts
    /// once.
    pub(super) fn classify_text_answer(
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

/// Meaning of a model's message in a task.
pub(super) enum AnswerClass {
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
pub(super) const ON_ITS_WAY: &str =
    "an answer to the question of this task is on its way already, and nothing was sent; wait for the task";
