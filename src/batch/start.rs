//! The tools `batch_start`, `batch_cancel` and `batch_configure`.
//!
//! A client that waits gets progress and can cancel, as for a call of an agent. When its budget ends
//! first, the result names the resource of the batch, which goes on.

use std::sync::Arc;

use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::report::{milliseconds, rounded};
use super::{
    Batch, BatchService, BatchTicket, CallStatus, OwnerBatches, QueuedCall, batch_id, batch_number, whole,
};
use crate::bridge::output::ProgressUpdate;
use crate::bridge::provider_tools::{
    BatchPriority, BatchStrategy, ProviderTool, read_batch_cancel, read_batch_configure, read_batch_start,
};
use crate::bridge::task_status::ProgressNotifier;
use crate::calls::{
    CallEvent, CallEvents, CallRequest, CallResponder, CallTarget, ClientContext, WaitFor, WaitOutcome,
};
use crate::fault::{Abort, ClientGone, Fault};
use crate::http_edge::{AccessRecord, ResponseSink};
use crate::mcp::Era;
use crate::mcp::tools::{CallToolResult, ContentBlock};
use crate::resources::owner_of;
use crate::sync::lock;
use crate::telemetry::label::Outcome;

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
        let CallRequest { client, id, params } = request;
        record.tool = Some(tool.name().to_owned());
        let done = match tool {
            ProviderTool::BatchStart => match self.begin(client, params.arguments) {
                Ok((ticket, true)) => return self.wait(target, request, record, &ticket).await,
                Ok((ticket, false)) => ticket.report().ok_or_else(evicted),
                Err(problem) => Err(problem),
            },
            ProviderTool::BatchCancel => read_batch_cancel(params.arguments).and_then(|id| {
                let ticket = self.ticket(client, &id).ok_or_else(|| format!("there is no batch {id:?}"))?;
                Ok(json!({ "batchId": id, "canceled": self.cancel(&ticket) }).to_string())
            }),
            ProviderTool::BatchConfigure => {
                self.configure(client, params.arguments).map(|set| set.to_string())
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

    fn configure(&self, client: &ClientContext<'_>, arguments: Option<&RawValue>) -> Result<Value, String> {
        let change = read_batch_configure(arguments)?;
        let owner = self.owner(&owner_of(client)).map_err(|refusal| refusal.to_string())?;
        let settings = {
            let mut state = lock(&owner.state);
            state.settings = state.settings.changed(change, &self.bounds())?;
            state.settings_version += 1;
            state.used = std::time::Instant::now();
            state.settings.json()
        };
        owner.notify();
        Ok(settings)
    }

    /// Returns the batch of this id, if the client has it.
    pub(super) fn ticket(&self, client: &ClientContext<'_>, id: &str) -> Option<BatchTicket> {
        let owner = self.find(&owner_of(client))?;
        let number = batch_number(id)?;
        let is_known = lock(&owner.state).batches.contains_key(&number);
        is_known.then_some(BatchTicket { owner, number })
    }

    /// Waits for the end of a batch with its client.
    async fn wait<S: ResponseSink>(
        &self,
        target: CallTarget<'_, S>,
        request: CallRequest<'_>,
        record: &mut AccessRecord,
        ticket: &BatchTicket,
    ) -> Result<Option<Vec<u8>>, Abort> {
        let CallRequest { client, id, params } = request;
        let CallTarget { to, budget } = target;
        let engine = &self.engine;
        let running = client.session.as_ref().map(|session| engine.running.register(session.key, id));
        let progress = ProgressNotifier::new(params.meta().progress.clone(), client.level, "batch");
        let metrics = engine.metrics.no_agent();
        let times = engine.wait_budget(Some(budget));
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
                text: Some(format!("{ended} of {all} calls have ended, {failed} of them failed")),
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
}

/// The resource of a batch.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct BatchReport<'a> {
    resource: String,
    batch_id: String,
    status: &'static str,
    r#type: BatchStrategy,
    priority: BatchPriority,
    max_concurrency: usize,
    peak_concurrency: usize,
    total: usize,
    completed: usize,
    failed: usize,
    cancelled: usize,
    pending: usize,
    duration_ms: Option<u64>,
    serial_duration_ms: u64,
    speedup: Option<f64>,
    success_rate: Option<f64>,
    results: Vec<CallReport<'a>>,
}

/// One call in the resource of a batch.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct CallReport<'a> {
    index: usize,
    tool: &'a str,
    priority: BatchPriority,
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    duration_ms: Option<u64>,
    /// The result of the tool as it came.
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
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
        serde_json::to_string(&batch.report(batch_id(self.number))).ok()
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
        let measured = self.measurement();
        let success_rate = (self.ended.is_some() && measured.started > 0)
            .then(|| rounded(whole(measured.succeeded) / whole(measured.started)));
        BatchReport {
            resource: format!("batchtools://batches/{id}"),
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
            success_rate,
            results: self.calls.iter().enumerate().map(|(index, call)| call.report(index)).collect(),
        }
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
