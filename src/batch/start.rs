//! The tools `batch_start`, `batch_cancel` and `batch_configure`, and one call of a batch: a call of
//! the engine with a client of its own.
//!
//! A client that waits for a batch gets progress and can cancel, as for a call of an agent. When its
//! budget ends first, the result names the resource of the batch, which goes on.
//!
//! The client of one call is a modern one without capabilities, so that no question is asked on its
//! behalf: an agent that asks ends the call with a handle of its task. The cancellation of the batch
//! looks to the engine like a client that disconnects.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use super::report::{BATCHES, milliseconds, rounded};
use super::sharing::RowKind;
use super::{Batch, BatchService, BatchTicket, CallOutcome, CallStatus, OwnerBatches, QueuedCall, whole};
use crate::agents::ForwardedContext;
use crate::auth::Caller;
use crate::bridge::output::ProgressUpdate;
use crate::bridge::provider_tools::{
    BatchPriority, BatchStrategy, ProviderTool, read_batch_cancel, read_batch_configure, read_batch_start,
};
use crate::bridge::task_status::ProgressNotifier;
use crate::calls::{
    CallEngine, CallEvent, CallEvents, CallRequest, CallResponder, CallTarget, ClientContext, ResponseTarget,
    WaitFor, WaitOutcome,
};
use crate::discovery::view;
use crate::fault::{Abort, ClientGone, Fault};
use crate::http_edge::{AccessRecord, ResponseHead, ResponseSink, Route};
use crate::jsonrpc::{Id, Text};
use crate::limits::UsePermit;
use crate::mcp::tools::{CallToolResult, ContentBlock};
use crate::mcp::{ClientParams, ClientSoftware, Era};
use crate::quota::QuotaOwner;
use crate::resources::owner_of;
use crate::shared_state::SharedRow;
use crate::sync::lock;
use crate::tasks::Timestamp;
use crate::telemetry::label::{Method, Outcome};
use crate::telemetry::trace::RequestScope;

impl BatchService {
    /// Handles a call of a tool for batches, after its authorization.
    ///
    /// # Errors
    ///
    /// [`Abort`] with the reason for which there is no result.
    pub(crate) async fn call<S: ResponseSink>(
        self: &Arc<Self>,
        target: CallTarget<'_, S>,
        request: CallRequest<'_>,
        record: &mut AccessRecord,
        tool: ProviderTool,
    ) -> Result<Option<Vec<u8>>, Abort> {
        let CallRequest { client, id, params, .. } = request;
        record.tool = Some(tool.name().to_owned());
        let done = match tool {
            ProviderTool::BatchStart => match self.begin(client, params.arguments) {
                Ok((ticket, true)) => return self.wait(target, request, record, &ticket).await,
                Ok((ticket, false)) => ticket.report().ok_or_else(evicted),
                Err(problem) => Err(problem),
            },
            ProviderTool::BatchCancel => match read_batch_cancel(params.arguments) {
                Ok(id) => {
                    let canceled = self.cancel_by_id(client, &id).await;
                    canceled.map(|canceled| json!({ "batchId": id, "canceled": canceled }).to_string())
                }
                Err(problem) => Err(problem),
            },
            ProviderTool::BatchConfigure => {
                self.configure(client, params.arguments).await.map(|set| set.to_string())
            }
            ProviderTool::MemoryDelete | ProviderTool::MemoryStore => Err("is no tool for batches".into()),
        };
        let result = match done {
            Ok(json) => tool_result(json),
            Err(problem) => {
                record.outcome = Outcome::ClientFault;
                CallToolResult::failure(problem)
            }
        };
        let body = self.engine.writer(client.era()).uncacheable(id, &result);
        target.to.respond(client, record, &self.engine.limits, body).await
    }

    /// Accepts a batch; returns it, and true if the client waits for its end.
    fn begin(
        self: &Arc<Self>,
        client: &ClientContext<'_>,
        arguments: Option<&RawValue>,
    ) -> Result<(BatchTicket, bool), String> {
        let batch = read_batch_start(arguments)?;
        let waits = batch.wait.unwrap_or(true);
        let ticket = self.accept(client, batch).map_err(|refusal| refusal.to_string())?;
        Ok((ticket, waits))
    }

    async fn configure(
        &self,
        client: &ClientContext<'_>,
        arguments: Option<&RawValue>,
    ) -> Result<Value, String> {
        let change = read_batch_configure(arguments)?;
        let owner = self.owner(&owner_of(client)).map_err(|refusal| refusal.to_string())?;
        // A change at another replica of a moment ago.
        let rows = lock(&owner.state).rows.clone();
        if let Some(rows) = &rows
            && let SharedRow::Present(row) = rows.read(RowKind::Settings, "").await
        {
            lock(&owner.state).learn_settings(&row, &self.bounds());
        }
        let settings = {
            let (mut state, now) = (lock(&owner.state), Timestamp::now());
            state.settings = state.settings.changed(change, &self.bounds())?;
            state.settings_version += 1;
            // Later than the change before, also if the clock of its replica is ahead.
            state.settings_ms = now.unix_ms.max(state.settings_ms + 1);
            state.used = now.instant;
            state.share_settings();
            state.settings.json()
        };
        owner.notify();
        Ok(settings)
    }

    /// Returns the batch of this id, if the client has it.
    pub(super) fn ticket(&self, client: &ClientContext<'_>, id: &str) -> Option<BatchTicket> {
        let owner = self.find(&owner_of(client))?;
        let number = lock(&owner.state).number(id)?;
        Some(BatchTicket { owner, number })
    }

    /// Waits for the end of a batch with its client.
    async fn wait<S: ResponseSink>(
        &self,
        target: CallTarget<'_, S>,
        request: CallRequest<'_>,
        record: &mut AccessRecord,
        ticket: &BatchTicket,
    ) -> Result<Option<Vec<u8>>, Abort> {
        let CallRequest { client, id, params, .. } = request;
        let CallTarget { to, budget } = target;
        let engine = &self.engine;
        let running = client.session.as_ref().map(|session| engine.running.register(session.key, id));
        let progress = ProgressNotifier::new(params.meta().progress.clone(), client.level, "batch");
        let metrics = engine.metrics.no_agent();
        let times = engine.wait_budget(Instant::now(), Some(budget));
        let mut responder = CallResponder::new(to, client.accepts, progress, times, &metrics);
        let mut watch = BatchWatch::new(ticket);
        match responder.run(&mut watch, running.as_ref(), WaitFor::Answer).await {
            WaitOutcome::Gone => {
                // A legacy client may come back for the results.
                if client.era() == Era::Modern {
                    self.cancel(ticket);
                }
                record.outcome = Outcome::ClientGone;
                return Err(ClientGone.into());
            }
            WaitOutcome::Cancelled => {
                self.cancel(ticket);
                record.outcome = Outcome::Cancelled;
                return Ok(responder.finish(None).await?);
            }
            WaitOutcome::Settled => {}
            WaitOutcome::OutOfPatience | WaitOutcome::Stalled | WaitOutcome::Failed(_) => {
                record.outcome = Outcome::Continues;
            }
        }
        // The report, the result that has it twice, and the response: counted before they are built.
        record.hold(&engine.limits, None, ticket.bytes().saturating_mul(4)).map_err(Fault::from)?;
        let result = ticket.report().map_or_else(|| CallToolResult::failure(evicted()), tool_result);
        let body = engine.writer(client.era()).uncacheable(id, &result);
        drop(result);
        record.hold(&engine.limits, None, body.len()).map_err(Fault::from)?;
        Ok(responder.finish(Some(body)).await?)
    }
}

/// Returns JSON as the result of a tool, with the same as text.
fn tool_result(json: String) -> CallToolResult {
    let structured_content = RawValue::from_string(json.clone()).ok();
    CallToolResult {
        content: vec![ContentBlock::text(json)],
        structured_content,
        ..CallToolResult::default()
    }
}

fn evicted() -> String {
    "the batch has ended, and its results were evicted for newer batches".to_owned()
}

/// The calls of a batch as events for the client that waits.
struct BatchWatch<'t> {
    owner: &'t OwnerBatches,
    number: u64,
    changes: watch::Receiver<u64>,
    /// Calls that had ended at the last event.
    told: usize,
}

impl<'t> BatchWatch<'t> {
    fn new(ticket: &'t BatchTicket) -> Self {
        let changes = ticket.owner.changes.subscribe();
        Self { owner: &ticket.owner, number: ticket.number, changes, told: 0 }
    }

    /// Returns the next event, if there is one.
    fn event(&mut self) -> Option<CallEvent> {
        let state = lock(&self.owner.state);
        // A finished batch that was evicted is over too.
        let Some(batch) = state.batches.get(&self.number) else { return Some(CallEvent::Settled) };
        if batch.ended_calls > self.told {
            self.told = batch.ended_calls;
            let (ended, all) = (batch.ended_calls, batch.calls.len());
            let failed = batch.count(CallStatus::Failed);
            let number = |count: usize| whole(count as u64);
            return Some(CallEvent::News(Some(ProgressUpdate {
                text: Some(format!("{ended} of {all} calls have ended, {failed} of them failed").into()),
                progress: Some(number(ended)),
                total: Some(number(all)),
            })));
        }
        batch.ended.map(|_| CallEvent::Settled)
    }
}

impl CallEvents for BatchWatch<'_> {
    async fn next(&mut self) -> CallEvent {
        loop {
            self.changes.mark_unchanged();
            if let Some(event) = self.event() {
                return event;
            }
            if self.changes.changed().await.is_err() {
                return CallEvent::Settled;
            }
        }
    }

    fn is_named(&self) -> bool {
        false
    }

    fn has_more(&self) -> bool {
        false
    }

    fn take_end_of_wait(&mut self) -> Option<Instant> {
        None
    }
}

/// The resource of a batch.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct BatchReport<'a> {
    pub(super) resource: String,
    pub(super) batch_id: String,
    pub(super) status: &'static str,
    pub(super) r#type: BatchStrategy,
    pub(super) priority: BatchPriority,
    pub(super) max_concurrency: usize,
    pub(super) peak_concurrency: usize,
    pub(super) total: usize,
    pub(super) completed: usize,
    pub(super) failed: usize,
    pub(super) cancelled: usize,
    pub(super) pending: usize,
    pub(super) duration_ms: Option<u64>,
    pub(super) serial_duration_ms: u64,
    pub(super) speedup: Option<f64>,
    pub(super) success_rate: Option<f64>,
    pub(super) results: Vec<CallReport<'a>>,
}

/// One call in the resource of a batch.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CallReport<'a> {
    pub(super) index: usize,
    pub(super) tool: &'a str,
    pub(super) priority: BatchPriority,
    pub(super) status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) duration_ms: Option<u64>,
    /// The result of the tool as it came.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) result: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<&'a str>,
}

impl BatchTicket {
    /// Returns the bytes of arguments and results; 0 if the batch was evicted.
    pub(super) fn bytes(&self) -> usize {
        lock(&self.owner.state).batches.get(&self.number).map_or(0, |batch| batch.bytes)
    }

    /// Returns the state of the batch and the results so far as JSON; `None` if it was evicted.
    pub(super) fn report(&self) -> Option<String> {
        let state = lock(&self.owner.state);
        let batch = state.batches.get(&self.number)?;
        serde_json::to_string(&batch.report(state.id(self.number))).ok()
    }
}

impl Batch {
    /// Returns the highest priority of the calls.
    pub(super) fn priority(&self) -> BatchPriority {
        self.calls.iter().map(|call| call.priority).min().unwrap_or_default()
    }

    fn report(&self, id: String) -> BatchReport<'_> {
        let status = match self.ended {
            None => "running",
            Some(_) if self.is_cancelled() => "cancelled",
            Some(_) => "completed",
        };
        BatchReport {
            resource: format!("{BATCHES}{id}"),
            batch_id: id,
            status,
            r#type: self.strategy,
            priority: self.priority(),
            max_concurrency: self.concurrency,
            peak_concurrency: self.peak,
            total: self.calls.len(),
            completed: self.count(CallStatus::Completed),
            failed: self.count(CallStatus::Failed),
            cancelled: self.count(CallStatus::Cancelled),
            pending: self.count(CallStatus::Queued) + self.count(CallStatus::Running),
            duration_ms: self.took().map(milliseconds),
            serial_duration_ms: milliseconds(self.serial()),
            speedup: self.speedup().map(rounded),
            success_rate: self.success_rate(),
            results: self.calls.iter().enumerate().map(|(index, call)| call.report(index)).collect(),
        }
    }

    /// Returns the part of the started calls that the agent completed, once the batch has ended.
    pub(super) fn success_rate(&self) -> Option<f64> {
        let measured = self.measurement();
        (self.ended.is_some() && measured.started > 0)
            .then(|| rounded(whole(measured.succeeded) / whole(measured.started)))
    }
}

impl QueuedCall {
    fn report(&self, index: usize) -> CallReport<'_> {
        let outcome = self.outcome.as_ref();
        CallReport {
            index,
            tool: &self.tool,
            priority: self.priority,
            status: self.status.name(),
            duration_ms: outcome.map(|outcome| milliseconds(outcome.took)),
            result: outcome.and_then(|outcome| outcome.result.as_deref()),
            error: outcome.and_then(|outcome| outcome.error.as_deref()),
        }
    }
}

/// Longest wait for a permit of the caller's quota of calls.
const PERMIT_TIMEOUT: Duration = Duration::from_secs(30);
/// Interval of the attempts to get one.
const PERMIT_INTERVAL: Duration = Duration::from_millis(50);

/// The client of a batch, without its connection.
pub(super) struct BatchClient {
    caller: Caller,
    /// The agent of the route, if the route is for one agent.
    agent: Option<String>,
    forwarded: Option<Arc<ForwardedContext>>,
    quota_owner: Option<QuotaOwner>,
    software: Option<Arc<ClientSoftware>>,
}

impl BatchClient {
    pub(super) fn new(client: &ClientContext<'_>) -> Self {
        Self {
            caller: client.caller.clone(),
            agent: client.route.agent().map(str::to_owned),
            forwarded: client.forwarded.clone(),
            quota_owner: client.quota_owner.clone(),
            software: client.software.clone(),
        }
    }

    fn context(&self) -> ClientContext<'_> {
        let route = self.agent.as_deref().map_or(Route::AllAgents, Route::OneAgent);
        let detached = ClientContext::detached(self.caller.clone(), route, self.quota_owner.clone());
        ClientContext { forwarded: self.forwarded.clone(), software: self.software.clone(), ..detached }
    }
}

/// A call that may run.
pub(super) struct CallRun {
    pub(super) client: Arc<BatchClient>,
    pub(super) tool: Arc<str>,
    pub(super) arguments: Option<Arc<RawValue>>,
    pub(super) cancelled: watch::Receiver<bool>,
}

impl CallRun {
    /// Runs the call, for at most `timeout`.
    pub(super) async fn run(self, engine: &CallEngine, timeout: Duration) -> CallOutcome {
        let mut sink = DetachedSink::new(self.cancelled.clone());
        let permit = tokio::select! {
            permit = self.permit(engine) => permit,
            () = sink.disconnected() => return cancelled(Duration::ZERO),
        };
        let began = Instant::now();
        let _permit = match permit {
            Ok(permit) => permit,
            Err(fault) => return failed(&fault, Duration::ZERO),
        };
        if engine.drain.is_due() {
            return failed(&Fault::Ending, Duration::ZERO);
        }
        let client = self.client.context();
        let params = ClientParams {
            name: Some(Text(Cow::Borrowed(&self.tool))),
            arguments: self.arguments.as_deref(),
            ..ClientParams::default()
        };
        let scope = client.forwarded.as_deref().map(ForwardedContext::shared_scope);
        let scope = scope.unwrap_or_else(|| Arc::new(RequestScope::bare()));
        let mut record = AccessRecord::new(client.caller.clone(), scope);
        record.forwarded.clone_from(&client.forwarded);
        record.quota_owner.clone_from(&client.quota_owner);
        let id = Id::null();
        let request = CallRequest { client: &client, id: &id, params: &params, body: None };
        let target = CallTarget { to: ResponseTarget::Batch(&mut sink), budget: timeout };
        let catalogue = engine.catalogue.load_full();
        let tool = view(&catalogue, client.route).find(&self.tool);
        let called = Box::pin(engine.call_tool(target, request, &mut record, tool)).await;
        let took = began.elapsed();
        if let Some(agent) = &record.agent {
            agent.metrics.request(Method::ToolsCall, record.outcome);
        }
        match called {
            Ok(Some(body)) => outcome(&body, record.outcome, took),
            Ok(None) | Err(Abort::ClientGone) => cancelled(took),
            Err(Abort::Rejected(fault)) => failed(&fault, took),
        }
    }

    /// Waits for a permit of the caller's quota of calls: other calls of the caller may use all.
    async fn permit(&self, engine: &CallEngine) -> Result<UsePermit, Fault> {
        let until = Instant::now() + PERMIT_TIMEOUT;
        loop {
            match engine.limits.acquire_call(self.client.quota_owner.as_ref()).await {
                Err(Fault::QuotaExceeded(_) | Fault::Busy(_)) if Instant::now() < until => {
                    sleep(PERMIT_INTERVAL).await;
                }
                permit => return permit,
            }
        }
    }
}

fn cancelled(took: Duration) -> CallOutcome {
    CallOutcome::without_result(CallStatus::Cancelled, took, "the batch was cancelled")
}

fn failed(fault: &Fault, took: Duration) -> CallOutcome {
    CallOutcome::without_result(CallStatus::Failed, took, fault.to_string())
}

/// Reads the outcome of a call from its JSON-RPC response.
fn outcome(body: &[u8], outcome: Outcome, took: Duration) -> CallOutcome {
    #[derive(Deserialize)]
    struct CallResponse {
        result: Box<RawValue>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct ResultFlags {
        #[serde(default)]
        is_error: bool,
    }
    let Ok(CallResponse { result }) = serde_json::from_slice(body) else {
        return CallOutcome::without_result(CallStatus::Failed, took, "the call has no result");
    };
    let is_error = serde_json::from_str(result.get()).is_ok_and(|flags: ResultFlags| flags.is_error);
    let status = match outcome {
        _ if is_error => CallStatus::Failed,
        Outcome::InputRequired => CallStatus::InputRequired,
        Outcome::Continues => CallStatus::Continues,
        _ => CallStatus::Completed,
    };
    CallOutcome { status, took, result: Some(result), error: None }
}

/// The connection of a call that no client reads. It disconnects when the batch is cancelled.
struct DetachedSink {
    head: Parts,
    cancelled: watch::Receiver<bool>,
}

impl DetachedSink {
    fn new(cancelled: watch::Receiver<bool>) -> Self {
        Self { head: http::Request::new(()).into_parts().0, cancelled }
    }
}

impl ResponseSink for DetachedSink {
    fn head(&self) -> &Parts {
        &self.head
    }

    async fn write_head(&mut self, _head: ResponseHead, _end: bool) -> Result<(), ClientGone> {
        Ok(())
    }

    async fn write_body(&mut self, _bytes: Bytes, _end: bool) -> Result<(), ClientGone> {
        Ok(())
    }

    fn close_after_response(&mut self) {}

    async fn shut_down(&mut self) {}

    async fn disconnected(&mut self) {
        if self.cancelled.wait_for(|is_cancelled| *is_cancelled).await.is_err() {
            // The batch is gone, and with it every reader of the result.
        }
    }

    fn is_shutting_down(&self) -> bool {
        false
    }
}
