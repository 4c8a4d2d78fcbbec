//! State machine of a call: the response to the client, and its form, when the agent answers, asks,
//! fails or takes too long.
//!
//! Reads docs/spec/mcp.md §3.1. See also `responder` (waiting and progress) and `questions`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::value::{RawValue, to_raw_value};
use tokio::time::Instant;

use super::cancelled_calls::InFlightCall;
use super::cancelled_calls::{CancelledCall, EarlierCalls, LiveCall};
use super::questions::PendingElicitation;
use super::responder::{CallResponder, WaitFor, WaitOutcome};
use super::source::{CallEvents, EventSource, FollowedTask};
use super::{CallEngine, ClientContext};
use crate::agents::Agent;
use crate::bridge::output::OutputState;
use crate::bridge::response_mode::{Fallback, ResponsePlan};
use crate::bridge::tool_result::{self, EarlierCall};
use crate::fault::{AgentFailure, ClientGone, Fault, TaskDelay};
use crate::follow::DetachMode;
use crate::http_edge::{AccessRecord, ResponseSink, outcome_of};
use crate::jsonrpc::{Id, write_error};
use crate::limits::TaskReservation;
use crate::mcp::Era;
use crate::mcp::tasks::{TaskSnapshot, TaskStatus};
use crate::mcp::tools::{CallToolResult, ContentBlock};
use crate::quota::BytePermit;
use crate::seal::IdDigest;
use crate::telemetry::label::Outcome;
use crate::telemetry::trace::SpanEvent;

/// Kind of response that a call produces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ResultKind {
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
pub(crate) struct ActiveCall<'a> {
    pub(crate) client: &'a ClientContext<'a>,
    pub(crate) id: &'a Id,
    pub(crate) agent: Arc<Agent>,
    pub(crate) plan: ResponsePlan,
    pub(crate) kind: ResultKind,
    /// Number of rounds of this call so far.
    pub(crate) round: u8,
    /// Name of the tool in the client's call.
    pub(crate) tool: &'a str,
    /// Arguments of the client. Tool and arguments distinguish a call that is repeated from others.
    pub(crate) arguments: Option<&'a RawValue>,
    /// Answers that came with the call, before a question was asked.
    pub(crate) early_responses: Option<&'a RawValue>,
    /// Elicitation that is open on the stream to the client.
    pub(crate) elicitation: Option<PendingElicitation>,
    /// Number of questions that were asked on the stream.
    pub(crate) asked: u8,
    /// Event that the call waits for at present.
    pub(crate) wait_for: WaitFor,
    /// True if this call began the work, and no client holds a handle of it.
    pub(crate) began_here: bool,
    /// Time at which the client began to wait.
    pub(crate) since: Instant,
    /// Calls of the same tool that the client cancelled: the result names their tasks.
    pub(crate) earlier: Option<EarlierCalls>,
    /// Reservation for the task that the call begins, until the task is tracked.
    pub(crate) _reservation: Option<TaskReservation>,
}

/// A call that runs: its responder, its events, and its entry among the calls that its client can
/// cancel.
pub(crate) struct RunningCall<'s, S> {
    pub(super) responder: CallResponder<'s, S>,
    pub(super) source: EventSource,
    pub(super) running: Option<InFlightCall>,
}

/// Next step of a call.
pub(super) enum CallStep {
    /// The call continues.
    Continue(EventSource),
    /// The client gets this body; `None` if it wants no response any more.
    Respond(Option<Vec<u8>>),
    /// The client gets this body, and the exchange with the agent is read to its end.
    Finish(EventSource, Vec<u8>),
}

/// Longest wait for the task id of an agent, beyond the budget of the client.
const TASK_ID_TIMEOUT: Duration = Duration::from_secs(10);

impl CallEngine {
    /// Runs a call to its end, or until its client has a handle or a `requestState`. Writes the
    /// response to the client, or returns its body for the batch.
    pub(super) async fn run_active<S: ResponseSink>(
        &self,
        run: RunningCall<'_, S>,
        mut call: Box<ActiveCall<'_>>,
        record: &mut AccessRecord,
    ) -> Result<Option<Vec<u8>>, ClientGone> {
        let RunningCall { mut responder, mut source, running } = run;
        let metrics = call.agent.metrics.clone();
        let _live = self.live.register(|| LiveCall {
            agent: call.agent.clone(),
            tool: call.tool.into(),
            caller: record.caller.clone(),
            since: call.since,
        });
        if call.kind == ResultKind::Start || call.plan.then == Fallback::CoreTask {
            call.wait_for = WaitFor::Name;
        }
        loop {
            let ending = responder.run(&mut source, running.as_ref(), call.wait_for).await;
            metrics.events(source.take_new_events());
            record.agent_took = source.agent_took().or(record.agent_took);
            record.outcome = outcome(&ending, &source);
            if let WaitOutcome::Failed(trouble) = &ending {
                record.fault = Some(trouble.label());
            }
            if record.needs_facts() {
                self.record_ids(record, &source, &call.agent);
            }
            let entry = source.entry();
            let next = self.decide(&mut responder, source, ending, &mut call).await?;
            if !matches!(next, CallStep::Continue(_)) {
                self.close_elicitation(&mut responder, entry, &mut call).await?;
            }
            match next {
                CallStep::Continue(next) => source = next,
                CallStep::Respond(body) => {
                    let body = body.map(|body| self.counted(record, None, &call, body));
                    return responder.finish(body).await;
                }
                CallStep::Finish(mut source, body) => {
                    let body = self.counted(record, source.take_permit(), &call, body);
                    // The output is dropped while a slow client reads the result.
                    // The stream first: the client's next request may come before its endpoint is free again.
                    let ((), answered) = tokio::join!(source.finish_stream(), responder.finish(Some(body)));
                    return answered;
                }
            }
        }
    }

    /// Records digests of the task and the conversation of a call, for the access log.
    fn record_ids(&self, record: &mut AccessRecord, source: &EventSource, agent: &Agent) {
        if record.task.is_some() && record.context.is_some() {
            return;
        }
        let digests = agent.id_digests(&self.sealer);
        (record.task, record.context) = source.with_work(|work, _| {
            let digest = |digest: IdDigest, id: Option<&String>| id.map(|id| digest.of(id.as_bytes()));
            (digest(digests.task, work.task_id.as_ref()), digest(digests.context, work.context_id.as_ref()))
        });
    }

    /// Counts the bytes of a response while its client reads it, and releases those of the output.
    /// If the quota is exhausted, the response becomes an error.
    fn counted(
        &self,
        record: &mut AccessRecord,
        work: Option<BytePermit>,
        call: &ActiveCall<'_>,
        body: Vec<u8>,
    ) -> Vec<u8> {
        let Err(no_room) = record.hold(&self.limits, work, body.len()) else { return body };
        let trouble = AgentFailure::from(no_room);
        (record.outcome, record.fault) = (outcome_of(&trouble), Some(trouble.label()));
        self.encode_result(call, &CallToolResult::failure(trouble.public_message(&call.agent.settings.name)))
    }

    /// Returns the next step after a wait.
    async fn decide<S: ResponseSink>(
        &self,
        responder: &mut CallResponder<'_, S>,
        source: EventSource,
        ending: WaitOutcome,
        call: &mut ActiveCall<'_>,
    ) -> Result<CallStep, ClientGone> {
        Ok(match ending {
            WaitOutcome::Gone => {
                self.abandon_call(source, call, call.client.era() == Era::Modern);
                return Err(ClientGone);
            }
            WaitOutcome::Cancelled => {
                call.record_event(SpanEvent::Cancelled);
                self.cancel_call(source, call);
                CallStep::Respond(None)
            }
            WaitOutcome::Settled if source.is_cancelled() => {
                CallStep::Respond(Some(self.encode_result(call, &cancelled_result())))
            }
            WaitOutcome::Settled if source.state() == OutputState::Finished && !call.is_task() => {
                if let Some(kept) = self.lookup.keep_finished(&source, call) {
                    Box::pin(self.lookup.issue_handle(&kept, call.client)).await;
                }
                let body = self.encode_result(call, &self.result(&source, call));
                CallStep::Finish(source, body)
            }
            WaitOutcome::Failed(trouble) => {
                CallStep::Respond(Some(self.failed(source, call, &trouble).await))
            }
            WaitOutcome::Settled | WaitOutcome::OutOfPatience | WaitOutcome::Stalled if call.is_task() => {
                CallStep::Respond(Some(self.respond_with_task(source, call).await))
            }
            WaitOutcome::Settled => {
                self.close_elicitation(responder, source.entry(), call).await?;
                Box::pin(self.ask_client(source, call, responder)).await?
            }
            WaitOutcome::OutOfPatience if call.awaits_task_id(&source) => {
                call.wait_for = WaitFor::Name;
                responder.wait_until(Instant::now() + TASK_ID_TIMEOUT.min(self.settings.calls.budget));
                CallStep::Continue(source)
            }
            WaitOutcome::OutOfPatience => {
                CallStep::Respond(Some(self.respond_with_task_or_handle(source, call, false).await))
            }
            WaitOutcome::Stalled => {
                CallStep::Respond(Some(self.respond_with_task_or_handle(source, call, true).await))
            }
        })
    }

    /// Handles the cancellation of the request by its client. The work of a session continues for a
    /// while: many clients cancel on their own timeout, and still want the result.
    fn cancel_call(&self, source: EventSource, call: &ActiveCall<'_>) {
        let is_begun_here = call.began_here || matches!(source, EventSource::Own(_));
        let lives_on = is_begun_here && self.cancelled_calls.is_on() && !self.drain.is_due();
        let Some(session) = call.client.session.as_ref().filter(|_| lives_on) else {
            return self.abandon_call(source, call, true);
        };
        let Some(task) = source.keep_cancelled(&self.lookup.followers, &call.agent.settings.name) else {
            return;
        };
        let (tool, waited) = (call.tool.to_owned(), call.since.elapsed());
        self.cancelled_calls.insert(CancelledCall { session: session.key, tool, task, waited });
    }

    /// Takes the calls of the same tool that the client of a session cancelled. The result will
    /// hold handles of their tasks.
    pub(super) async fn earlier_calls(&self, call: &ActiveCall<'_>) -> Option<EarlierCalls> {
        let session = call.client.session.as_ref().filter(|_| call.plan.then != Fallback::CoreTask)?;
        let mut earlier = self.cancelled_calls.take(session.key, call.tool)?;
        let mut warning = None;
        for task in earlier.tasks() {
            warning = self.lookup.issue_handle(&task.entry, call.client).await.or(warning);
        }
        earlier.warning = warning;
        Some(earlier)
    }

    /// Returns the result with the tasks of earlier calls that the client cancelled.
    fn with_earlier(
        &self,
        call: &ActiveCall<'_>,
        mut result: CallToolResult,
        calls: &EarlierCalls,
    ) -> CallToolResult {
        for task in calls.tasks() {
            let context = self.lookup.result_context_by_name(call.client, task.entry.agent());
            let local = task.entry.local();
            let is_own_tool = call.kind != ResultKind::Tool;
            let told = task.entry.show_work(|work| EarlierCall { work, local, is_own_tool }.told(&context));
            tool_result::add_text(&mut result, &told);
        }
        if let Some(warning) = calls.warning {
            tool_result::add_text(&mut result, warning);
        }
        calls.set_told();
        result
    }

    /// Detaches or cancels the work of a call that no longer needs a response.
    fn abandon_call(&self, source: EventSource, call: &ActiveCall<'_>, stops: bool) {
        match source {
            EventSource::Watched(watched) if stops && call.began_here => {
                self.lookup.followers.cancel(&watched.entry, &watched.known);
            }
            source => {
                let leaving = if stops { DetachMode::Stop } else { DetachMode::Drain };
                source.detach(&self.lookup.followers, &call.agent.settings.name, leaving);
            }
        }
    }

    /// Returns the present output as the kind of result that this call wants.
    pub(super) fn result(&self, source: &EventSource, call: &ActiveCall<'_>) -> CallToolResult {
        let context = self.lookup.result_context(call.client, &call.agent);
        let mut told = match &call.kind {
            ResultKind::Tool | ResultKind::CoreResult(_) => {
                source.with_work(|work, local| tool_result::result(work, &context, local))
            }
            ResultKind::Start => source.with_work(|work, local| tool_result::started(work, &context, local)),
            ResultKind::Wait => source.with_work(|work, local| tool_result::snapshot(work, &context, local)),
        };
        let delay = source.delay().filter(|_| source.state() == OutputState::Running);
        add_delay(&mut told, delay, &call.agent.settings.name);
        told
    }

    /// Encodes the result as the response of this call.
    pub(super) fn encode_result(&self, call: &ActiveCall<'_>, result: &CallToolResult) -> Vec<u8> {
        let with_earlier = call.earlier.as_ref().map(|calls| self.with_earlier(call, result.clone(), calls));
        let result = with_earlier.as_ref().unwrap_or(result);
        let writer = self.writer(call.client.era());
        match &call.kind {
            ResultKind::CoreResult(task) => writer.core_task_result(call.id, result, task),
            ResultKind::Tool | ResultKind::Start | ResultKind::Wait => writer.uncacheable(call.id, result),
        }
    }

    /// Responds when the budget of the client ends before the work. A client of a stalled task is
    /// not asked to wait in another round.
    async fn respond_with_task_or_handle(
        &self,
        source: EventSource,
        call: &ActiveCall<'_>,
        is_stalled: bool,
    ) -> Vec<u8> {
        if let ResultKind::CoreResult(_) = call.kind {
            // This wait has no budget, but ends with the process: the task continues.
            let fault = Fault::Ending;
            let code = fault.on_wire(call.client.era()).code;
            return write_error(Some(call.id), code, &fault.to_string(), None);
        }
        let named = source.is_named();
        let mut handle = self.result(&source, call);
        call.record_event(SpanEvent::Handover);
        let watched = match source.hand_to_background(&self.lookup.followers, &call.agent.settings.name) {
            Ok(watched) => watched,
            // A task that the agent has named is found again at the agent.
            Err(_) if named => return self.encode_result(call, &handle),
            Err(trouble) => {
                let text = trouble.public_message(&call.agent.settings.name);
                return self.encode_result(call, &CallToolResult::failure(text));
            }
        };
        if self.drain.is_due() && !watched.entry.is_named() {
            // A handle of the call would end with the process.
            let trouble =
                AgentFailure::Internal("it ends before the agent has named a task; the agent may go on");
            return self.encode_result(
                call,
                &CallToolResult::failure(trouble.public_message(&call.agent.settings.name)),
            );
        }
        let warning = self.lookup.issue_handle(&watched.entry, call.client).await;
        handle.content.extend(warning.map(ContentBlock::text));
        match call.plan.then {
            Fallback::Task => self.respond_with_handle(&watched, call, warning).await,
            Fallback::Round if !is_stalled => {
                watched.entry.set_push_expected(std::time::Instant::now() + self.settings.calls.round_grace);
                self.respond_input_required(&watched, call, None)
            }
            Fallback::CoreTask | Fallback::Handle | Fallback::Round => self.encode_result(call, &handle),
        }
    }

    /// Responds with a core task, independently of the events so far.
    async fn respond_with_task(&self, source: EventSource, call: &ActiveCall<'_>) -> Vec<u8> {
        call.record_event(SpanEvent::Handover);
        match source.hand_to_background(&self.lookup.followers, &call.agent.settings.name) {
            Ok(watched) => {
                let warning = self.lookup.issue_handle(&watched.entry, call.client).await;
                self.respond_with_handle(&watched, call, warning).await
            }
            Err(trouble) => {
                let text = trouble.public_message(&call.agent.settings.name);
                self.writer(call.client.era()).uncacheable(call.id, &CallToolResult::failure(text))
            }
        }
    }

    /// Responds with the task in the form of the client's protocol.
    async fn respond_with_handle(
        &self,
        watched: &FollowedTask,
        call: &ActiveCall<'_>,
        warning: Option<&'static str>,
    ) -> Vec<u8> {
        let handle = self.lookup.handle_of(&watched.entry, call.client);
        let mut task = self.lookup.snapshot(&watched.entry, &handle, call.client);
        if let Some(warning) = warning {
            let said = task.status_message.map(|said| format!("{said} ")).unwrap_or_default();
            task.status_message = Some(said + warning);
        }
        let writer = self.writer(call.client.era());
        watched.entry.set_push_expected(std::time::Instant::now() + self.settings.calls.round_grace);
        match call.client.era() {
            Era::Modern => writer.task_created(call.id, &task),
            Era::Legacy => {
                if let Some(session) = &call.client.session {
                    self.sessions.add_task(session, &handle);
                }
                let told =
                    format!("The agent {:?} works on it; the task is {handle}.", call.agent.settings.name);
                writer.core_task_created(
                    call.id,
                    &TaskSnapshot { status: TaskStatus::Working, ..task },
                    &told,
                )
            }
        }
    }

    /// Responds to the failure of an agent: the reason, and how to look again if there is a task.
    async fn failed(&self, source: EventSource, call: &ActiveCall<'_>, trouble: &AgentFailure) -> Vec<u8> {
        if call.is_task() {
            return self.respond_with_task(source, call).await;
        }
        let agent = &call.agent.settings.name;
        let mut told = CallToolResult::failure(trouble.public_message(agent));
        if source.is_named()
            && source.state() != OutputState::Finished
            && *trouble != AgentFailure::TaskNotFound
        {
            let is_refused =
                matches!(trouble, AgentFailure::Rejected(_)) && source.state() == OutputState::Asking;
            let handle = if is_refused {
                let context = self.lookup.result_context(call.client, &call.agent);
                source.with_work(|work, local| tool_result::refused(work, &context, local))
            } else {
                let text = "The task may still be running at the agent; its last known state:";
                told.content.push(ContentBlock::text(text));
                self.result(&source, call)
            };
            told.content.extend(handle.content);
            told.structured_content = handle.structured_content;
        }
        self.encode_result(call, &told)
    }
}

impl<'a> ActiveCall<'a> {
    /// Records an event of the request in its trace.
    fn record_event(&self, event: SpanEvent) {
        if let Some(forwarded) = &self.client.forwarded {
            forwarded.scope().event(event);
        }
    }

    /// Creates a call with the default response plan, for which the client has waited since this time.
    pub(crate) fn new(client: &'a ClientContext<'a>, id: &'a Id, agent: Arc<Agent>, since: Instant) -> Self {
        Self {
            client,
            id,
            agent,
            plan: ResponsePlan { patience: None, then: Fallback::Handle },
            kind: ResultKind::Tool,
            round: 0,
            tool: "",
            arguments: None,
            early_responses: None,
            elicitation: None,
            asked: 0,
            wait_for: WaitFor::Answer,
            began_here: false,
            since,
            earlier: None,
            _reservation: None,
        }
    }

    /// Returns true if the client gets a core task in any case.
    fn is_task(&self) -> bool {
        self.plan.then == Fallback::CoreTask && self.kind == ResultKind::Tool
    }

    /// Returns true if the client will get a task, and the agent has not named it yet: the call
    /// then waits a little longer.
    fn awaits_task_id(&self, source: &EventSource) -> bool {
        self.plan.then == Fallback::Task && self.wait_for == WaitFor::Answer && !source.is_named()
    }
}

/// Adds the reason for which a live task makes no progress at present.
pub(crate) fn add_delay(result: &mut CallToolResult, delay: Option<TaskDelay>, agent: &str) {
    let Some(said) = delay.map(|delay| delay.told(agent)) else { return };
    // Some clients pass only the structured content to their model.
    let members = result.structured_content.as_deref().map(RawValue::get);
    let members: Option<BTreeMap<String, Box<RawValue>>> =
        members.and_then(|json| serde_json::from_str(json).ok());
    if let Some(mut members) = members
        && let Some(text) = members.get_mut("text")
        && let Ok(before) = serde_json::from_str::<String>(text.get())
        && let Ok(both) = to_raw_value(&format!("{before}\n{said}"))
    {
        *text = both;
        result.structured_content = to_raw_value(&members).ok();
    }
    result.content.push(ContentBlock::text(said));
}

/// Returns the result of a core task that its client cancelled.
pub(crate) fn cancelled_result() -> CallToolResult {
    CallToolResult::failure("The task was cancelled.")
}

fn outcome(ending: &WaitOutcome, source: &EventSource) -> Outcome {
    match ending {
        WaitOutcome::Settled => match source.state() {
            OutputState::Asking => Outcome::InputRequired,
            OutputState::Finished | OutputState::Running => Outcome::Ok,
        },
        WaitOutcome::OutOfPatience | WaitOutcome::Stalled => Outcome::Continues,
        WaitOutcome::Failed(trouble) => outcome_of(trouble),
        WaitOutcome::Cancelled => Outcome::Cancelled,
        WaitOutcome::Gone => Outcome::ClientGone,
    }
}
