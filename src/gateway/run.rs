//! State machine of a call: the response to the client, and its form, when the agent answers, asks,
//! fails or takes too long.
//!
//! Reads docs/spec/mcp.md §3.1. See also `responder` (waiting and progress) and `questions`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::access_record::{AccessRecord, outcome_of};
use super::cancelled_calls::{CancelledCall, EarlierCalls};
use super::in_flight_calls::InFlightCall as Running;
use super::limits::TaskReservation;
use super::responder::{CallResponder, WaitFor, WaitOutcome};
use super::response::ClientGone;
use super::source::{EventSource, FollowedTask};
use super::tasks::was_cancelled;
use super::{ClientContext, Inner};
use crate::agents::Agent;
use crate::bridge::output::OutputState;
use crate::bridge::response_mode::{Fallback, ResponsePlan};
use crate::bridge::task_tools::TaskTool;
use crate::bridge::tool_result::{self, EarlierCall, ResultContext, TaskTools};
use crate::fault::{AgentFailure, Fault, TaskDelay};
use crate::follow::DetachMode;
use crate::jsonrpc::{Id, write_error};
use crate::mcp::Era;
use crate::mcp::content::ContentBlock;
use crate::mcp::tasks::{TaskSnapshot, TaskStatus};
use crate::mcp::tools::CallToolResult;
use crate::quota::BytePermit;
use crate::telemetry::label::Outcome;
use serde_json::value::{RawValue, to_raw_value};

/// Kind of response that a call produces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ResultKind {
    /// The result of the tool.
    Tool,
    /// The result of a core task with this handle.
    CoreResult(String),
    /// `subagent_start`: as soon as the agent has named the task.
    Start,
    /// `subagent_wait`.
    Wait,
}

/// One call with its client and its response plan.
pub(super) struct ActiveCall<'a> {
    pub(super) asker: &'a ClientContext,
    pub(super) id: &'a Id,
    pub(super) agent: Arc<Agent>,
    pub(super) rung: ResponsePlan,
    pub(super) form: ResultKind,
    /// Number of rounds of this call so far.
    pub(super) round: u8,
    /// Tool and arguments, which distinguish this call from others. The digest is computed only for
    /// a call that is to be repeated.
    pub(super) call: (&'a str, Option<&'a RawValue>),
    /// Answers that came with the call, before a question was asked.
    pub(super) along: Option<&'a RawValue>,
    /// Elicitation that is open on the stream to the client.
    pub(super) elicitation: Option<super::questions::PendingElicitation>,
    /// Number of questions that were asked on the stream.
    pub(super) asked: u8,
    /// Event that the call waits for at present.
    pub(super) wait_for: WaitFor,
    /// True if this call began the work, and no client holds a handle of it.
    pub(super) began_here: bool,
    /// Time at which the client began to wait.
    pub(super) since: Instant,
    /// Calls of the same tool that the client cancelled: the result names their tasks.
    pub(super) earlier: Option<EarlierCalls>,
    /// Reservation for the task that the call begins, until the task is tracked.
    pub(super) _promise: Option<TaskReservation>,
}

/// Next step of a call.
pub(super) enum CallStep {
    /// The call continues.
    Go(EventSource),
    /// The client gets this body; `None` if it wants no response any more.
    Say(Option<Vec<u8>>),
    /// The client gets this body, and the exchange with the agent is read to its end.
    Finish(EventSource, Vec<u8>),
}

/// Longest wait for the task id of an agent, beyond the budget of the client.
const NAMED_WITHIN: Duration = Duration::from_secs(10);

impl Inner {
    /// Runs a call to its end, or until its client has a handle or a `requestState`. Writes the
    /// response to the client, or returns its body for the batch.
    pub(super) async fn run_active(
        &self,
        (mut pump, mut source, running): (CallResponder<'_>, EventSource, Option<Running>),
        mut serving: ActiveCall<'_>,
        exchange: &mut AccessRecord,
    ) -> Result<Option<Vec<u8>>, ClientGone> {
        let metrics = serving.agent.metrics.clone();
        if serving.form == ResultKind::Start || serving.rung.then == Fallback::CoreTask {
            serving.wait_for = WaitFor::Name;
        }
        loop {
            let ending = pump.run(&mut source, running.as_ref(), serving.wait_for).await;
            metrics.events(source.take_new_events());
            exchange.agent_took = source.agent_took().or(exchange.agent_took);
            exchange.outcome = outcome(&ending, &source);
            if let WaitOutcome::Failed(trouble) = &ending {
                exchange.fault = Some(trouble.label());
            }
            let entry = source.entry();
            let next = self.decide(&mut pump, source, ending, &mut serving).await?;
            if !matches!(next, CallStep::Go(_)) {
                self.close_elicitation(&mut pump, entry, &mut serving).await?;
            }
            match next {
                CallStep::Go(next) => source = next,
                CallStep::Say(body) => {
                    let body = body.map(|body| self.counted(exchange, None, (&serving, body)));
                    return pump.finish(body).await;
                }
                CallStep::Finish(mut source, body) => {
                    let body = self.counted(exchange, source.take_permit(), (&serving, body));
                    // The output is dropped while a slow client reads the result.
                    let (answered, ()) = tokio::join!(pump.finish(Some(body)), source.finish_stream());
                    return answered;
                }
            }
        }
    }

    /// Counts the bytes of a response while its client reads it, and releases those of the output.
    /// If the quota is exhausted, the response becomes an error.
    fn counted(
        &self,
        exchange: &mut AccessRecord,
        work: Option<BytePermit>,
        (serving, body): (&ActiveCall<'_>, Vec<u8>),
    ) -> Vec<u8> {
        let Err(no_room) = exchange.hold(&self.shares, work, body.len()) else { return body };
        let trouble = AgentFailure::from(no_room);
        (exchange.outcome, exchange.fault) = (outcome_of(&trouble), Some(trouble.label()));
        self.encode_result(
            serving,
            &CallToolResult::failure(trouble.public_message(&serving.agent.settings.name)),
        )
    }

    /// Returns the next step after a wait.
    async fn decide(
        &self,
        pump: &mut CallResponder<'_>,
        source: EventSource,
        ending: WaitOutcome,
        serving: &mut ActiveCall<'_>,
    ) -> Result<CallStep, ClientGone> {
        Ok(match ending {
            WaitOutcome::Gone => {
                self.abandon_call(source, serving, serving.asker.version.era() == Era::Modern);
                return Err(ClientGone);
            }
            WaitOutcome::Cancelled => {
                self.cancel_call(source, serving);
                CallStep::Say(None)
            }
            WaitOutcome::Settled if source.is_cancelled() => {
                CallStep::Say(Some(self.encode_result(serving, &was_cancelled())))
            }
            WaitOutcome::Settled if source.standing() == OutputState::Finished && !serving.is_task() => {
                let body = self.encode_result(serving, &self.result(&source, serving));
                CallStep::Finish(source, body)
            }
            WaitOutcome::Failed(trouble) => CallStep::Say(Some(self.failed(source, serving, &trouble).await)),
            WaitOutcome::Settled | WaitOutcome::OutOfPatience | WaitOutcome::Stalled if serving.is_task() => {
                CallStep::Say(Some(self.respond_with_task(source, serving).await))
            }
            WaitOutcome::Settled => {
                self.close_elicitation(pump, source.entry(), serving).await?;
                Box::pin(self.ask_client(source, serving, pump)).await?
            }
            WaitOutcome::OutOfPatience if serving.awaits_task_id(&source) => {
                serving.wait_for = WaitFor::Name;
                pump.wait_until(Instant::now() + NAMED_WITHIN.min(self.settings.calls.budget));
                CallStep::Go(source)
            }
            WaitOutcome::OutOfPatience => {
                CallStep::Say(Some(self.respond_with_task_or_handle(source, serving, false).await))
            }
            WaitOutcome::Stalled => {
                CallStep::Say(Some(self.respond_with_task_or_handle(source, serving, true).await))
            }
        })
    }

    /// Handles the cancellation of the request by its client. The work of a session continues for a
    /// while: many clients cancel on their own timeout, and still want the result.
    fn cancel_call(&self, source: EventSource, serving: &ActiveCall<'_>) {
        let is_begun_here = serving.began_here || matches!(source, EventSource::Own(_));
        let lives_on = is_begun_here && self.cancelled_calls.is_on() && !self.closing.is_due();
        let Some(session) = serving.asker.session.as_ref().filter(|_| lives_on) else {
            return self.abandon_call(source, serving, true);
        };
        let Some(task) = source.keep_cancelled(&self.followers, &serving.agent.settings.name) else { return };
        let (tool, waited) = (serving.call.0.to_owned(), serving.since.elapsed());
        self.cancelled_calls.insert(CancelledCall { session: session.key, tool, task, waited });
    }

    /// Takes the calls of the same tool that the client of a session cancelled. The result will
    /// hold handles of their tasks.
    pub(super) async fn earlier_calls(&self, serving: &ActiveCall<'_>) -> Option<EarlierCalls> {
        let session = serving.asker.session.as_ref().filter(|_| serving.rung.then != Fallback::CoreTask)?;
        let mut earlier = self.cancelled_calls.take(session.key, serving.call.0)?;
        let mut warning = None;
        for task in earlier.tasks() {
            warning = self.issue_handle(&task.entry, serving.asker).await.or(warning);
        }
        earlier.warning = warning;
        Some(earlier)
    }

    /// Returns the result with the tasks of earlier calls that the client cancelled.
    fn with_earlier(
        &self,
        serving: &ActiveCall<'_>,
        mut result: CallToolResult,
        calls: &EarlierCalls,
    ) -> CallToolResult {
        for task in calls.tasks() {
            let audience = self.audience(serving.asker, task.entry.agent());
            let local = task.entry.local();
            let is_own_tool = serving.form != ResultKind::Tool;
            let told = task.entry.show_work(|work| EarlierCall { work, local, is_own_tool }.told(&audience));
            tool_result::add_text(&mut result, &told);
        }
        if let Some(warning) = calls.warning {
            tool_result::add_text(&mut result, warning);
        }
        calls.set_told();
        result
    }

    /// Detaches or cancels the work of a call that no longer needs a response.
    fn abandon_call(&self, source: EventSource, serving: &ActiveCall<'_>, stops: bool) {
        match source {
            EventSource::Watched(watched) if stops && serving.began_here => {
                self.followers.cancel(&watched.entry, &watched.known);
            }
            source => {
                let leaving = if stops { DetachMode::Stop } else { DetachMode::Drain };
                source.detach(&self.followers, &serving.agent.settings.name, leaving);
            }
        }
    }

    /// Returns the present output as the kind of result that this call wants.
    pub(super) fn result(&self, source: &EventSource, serving: &ActiveCall<'_>) -> CallToolResult {
        let agent = &serving.agent.settings.name;
        let audience = self.audience(serving.asker, agent);
        let mut told = match &serving.form {
            ResultKind::Tool | ResultKind::CoreResult(_) => {
                source.with_work(|work, local| tool_result::result(work, &audience, local))
            }
            ResultKind::Start => source.with_work(|work, local| tool_result::started(work, &audience, local)),
            ResultKind::Wait => source.with_work(|work, local| tool_result::snapshot(work, &audience, local)),
        };
        tell_delay(&mut told, source.delay().filter(|_| source.standing() == OutputState::Running), agent);
        told
    }

    pub(super) fn audience<'a>(&'a self, asker: &'a ClientContext, agent: &'a str) -> ResultContext<'a> {
        let has = |tool| self.settings.mcp.subagent_tools && self.may_use(&asker.caller, agent, tool);
        ResultContext {
            version: asker.version,
            caller: asker.caller.name(),
            sealer: &self.sealer,
            agent,
            task_tools: TaskTools { wait: has(TaskTool::Wait), send: has(TaskTool::Send) },
            extensions: self.active(agent),
            links: self.settings.mcp.resource_links,
        }
    }

    /// Returns the A2A extensions that the operator activated for an agent.
    pub(super) fn active(&self, agent: &str) -> &[String] {
        self.directory.find(agent).map_or(&[], |agent| &agent.settings.extensions)
    }

    /// Encodes the result as the response of this call.
    pub(super) fn encode_result(&self, serving: &ActiveCall<'_>, result: &CallToolResult) -> Vec<u8> {
        let with_earlier =
            serving.earlier.as_ref().map(|calls| self.with_earlier(serving, result.clone(), calls));
        let result = with_earlier.as_ref().unwrap_or(result);
        let writer = self.writer(serving.asker.version.era());
        match &serving.form {
            ResultKind::CoreResult(task) => writer.core_task_result(serving.id, result, task),
            ResultKind::Tool | ResultKind::Start | ResultKind::Wait => writer.uncacheable(serving.id, result),
        }
    }

    /// Responds when the budget of the client ends before the work. A client of a stalled task is
    /// not asked to wait in another round.
    async fn respond_with_task_or_handle(
        &self,
        source: EventSource,
        serving: &ActiveCall<'_>,
        is_stalled: bool,
    ) -> Vec<u8> {
        if let ResultKind::CoreResult(_) = serving.form {
            // This wait has no budget, but ends with the process: the task continues.
            let fault = Fault::Ending;
            let code = fault.on_wire(serving.asker.version.era()).code;
            return write_error(Some(serving.id), code, &fault.to_string(), None);
        }
        let named = source.is_named();
        let mut handle = self.result(&source, serving);
        let watched = match source.hand_to_background(&self.followers, &serving.agent.settings.name) {
            Ok(watched) => watched,
            // A task that the agent has named is found again at the agent.
            Err(_) if named => return self.encode_result(serving, &handle),
            Err(trouble) => {
                let text = trouble.public_message(&serving.agent.settings.name);
                return self.encode_result(serving, &CallToolResult::failure(text));
            }
        };
        if self.closing.is_due() && !watched.entry.is_named() {
            // A handle of the call would end with the process.
            let trouble =
                AgentFailure::Internal("it ends before the agent has named a task; the agent may go on");
            return self.encode_result(
                serving,
                &CallToolResult::failure(trouble.public_message(&serving.agent.settings.name)),
            );
        }
        let warning = self.issue_handle(&watched.entry, serving.asker).await;
        handle.content.extend(warning.map(ContentBlock::text));
        match serving.rung.then {
            Fallback::Task => self.respond_with_handle(&watched, serving, warning).await,
            Fallback::Round if !is_stalled => {
                watched.entry.set_push_expected(Instant::now() + self.settings.calls.round_grace);
                self.respond_input_required(&watched, serving, None)
            }
            Fallback::CoreTask | Fallback::Handle | Fallback::Round => self.encode_result(serving, &handle),
        }
    }

    /// Responds with a core task, independently of the events so far.
    async fn respond_with_task(&self, source: EventSource, serving: &ActiveCall<'_>) -> Vec<u8> {
        match source.hand_to_background(&self.followers, &serving.agent.settings.name) {
            Ok(watched) => {
                let warning = self.issue_handle(&watched.entry, serving.asker).await;
                self.respond_with_handle(&watched, serving, warning).await
            }
            Err(trouble) => {
                let text = trouble.public_message(&serving.agent.settings.name);
                self.writer(serving.asker.version.era())
                    .uncacheable(serving.id, &CallToolResult::failure(text))
            }
        }
    }

    /// Responds with the task in the form of the client's protocol.
    async fn respond_with_handle(
        &self,
        watched: &FollowedTask,
        serving: &ActiveCall<'_>,
        warning: Option<&'static str>,
    ) -> Vec<u8> {
        let handle = self.handle_of(&watched.entry, serving.asker);
        let mut task = self.snapshot(&watched.entry, &handle, serving.asker);
        if let Some(warning) = warning {
            let said = task.status_message.map(|said| format!("{said} ")).unwrap_or_default();
            task.status_message = Some(said + warning);
        }
        let writer = self.writer(serving.asker.version.era());
        watched.entry.set_push_expected(Instant::now() + self.settings.calls.round_grace);
        match serving.asker.version.era() {
            Era::Modern => writer.task_created(serving.id, &task),
            Era::Legacy => {
                if let Some(session) = &serving.asker.session {
                    self.sessions.add_task(session, &handle);
                    self.note_session(session);
                }
                let told =
                    format!("The agent {:?} works on it; the task is {handle}.", serving.agent.settings.name);
                writer.core_task_created(
                    serving.id,
                    &TaskSnapshot { status: TaskStatus::Working, ..task },
                    &told,
                )
            }
        }
    }

    /// Responds to the failure of an agent: the reason, and how to look again if there is a task.
    async fn failed(&self, source: EventSource, serving: &ActiveCall<'_>, trouble: &AgentFailure) -> Vec<u8> {
        if serving.is_task() {
            return self.respond_with_task(source, serving).await;
        }
        let agent = &serving.agent.settings.name;
        let mut told = CallToolResult::failure(trouble.public_message(agent));
        if source.is_named()
            && source.standing() != OutputState::Finished
            && *trouble != AgentFailure::TaskNotFound
        {
            let is_refused =
                matches!(trouble, AgentFailure::Rejected(_)) && source.standing() == OutputState::Asking;
            let handle = if is_refused {
                let audience = self.audience(serving.asker, agent);
                source.with_work(|work, local| tool_result::refused(work, &audience, local))
            } else {
                let text = "The task may still be running at the agent; its last known state:";
                told.content.push(ContentBlock::text(text));
                self.result(&source, serving)
            };
            told.content.extend(handle.content);
            told.structured_content = handle.structured_content;
        }
        self.encode_result(serving, &told)
    }
}

impl<'a> ActiveCall<'a> {
    /// Creates a call with the default response plan.
    pub(super) fn without_client(asker: &'a ClientContext, id: &'a Id, agent: Arc<Agent>) -> Self {
        Self {
            asker,
            id,
            agent,
            rung: ResponsePlan { patience: None, then: Fallback::Handle },
            form: ResultKind::Tool,
            round: 0,
            call: ("", None),
            along: None,
            elicitation: None,
            asked: 0,
            wait_for: WaitFor::Answer,
            began_here: false,
            since: Instant::now(),
            earlier: None,
            _promise: None,
        }
    }

    /// Returns true if the client gets a core task in any case.
    fn is_task(&self) -> bool {
        self.rung.then == Fallback::CoreTask && self.form == ResultKind::Tool
    }

    /// Returns true if the client will get a task, and the agent has not named it yet: the call
    /// then waits a little longer.
    fn awaits_task_id(&self, source: &EventSource) -> bool {
        self.rung.then == Fallback::Task && self.wait_for == WaitFor::Answer && !source.is_named()
    }
}

/// Adds the reason for which a live task makes no progress at present.
pub(super) fn tell_delay(told: &mut CallToolResult, delay: Option<TaskDelay>, agent: &str) {
    let Some(said) = delay.map(|delay| delay.told(agent)) else { return };
    // Some clients pass only the structured content to their model.
    let members = told.structured_content.as_deref().map(RawValue::get);
    let members: Option<BTreeMap<String, Box<RawValue>>> =
        members.and_then(|json| serde_json::from_str(json).ok());
    if let Some(mut members) = members
        && let Some(text) = members.get_mut("text")
        && let Ok(before) = serde_json::from_str::<String>(text.get())
        && let Ok(both) = to_raw_value(&format!("{before}\n{said}"))
    {
        *text = both;
        told.structured_content = to_raw_value(&members).ok();
    }
    told.content.push(ContentBlock::text(said));
}

fn outcome(ending: &WaitOutcome, source: &EventSource) -> Outcome {
    match ending {
        WaitOutcome::Settled => match source.standing() {
            OutputState::Asking => Outcome::InputRequired,
            OutputState::Finished | OutputState::Running => Outcome::Ok,
        },
        WaitOutcome::OutOfPatience | WaitOutcome::Stalled => Outcome::Continues,
        WaitOutcome::Failed(trouble) => outcome_of(trouble),
        WaitOutcome::Cancelled => Outcome::Cancelled,
        WaitOutcome::Gone => Outcome::ClientGone,
    }
}
