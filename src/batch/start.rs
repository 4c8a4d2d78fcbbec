//! The tools `batch_start`, `batch_cancel` and `batch_configure`.
//!
//! A client that waits gets progress and can cancel, as for a call of an agent. When its budget ends
//! first, the result names the resource of the batch, which goes on.

use std::sync::Arc;

use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value, json};
use tokio::sync::watch;

use super::report::{milliseconds, rounded};
use super::{
    Batch, BatchService, BatchTicket, CallStatus, OwnerBatches, QueuedCall, batch_id, batch_number, whole,
};
use crate::bridge::output::ProgressUpdate;
use crate::bridge::provider_tools::{
    BatchPriority, ProviderTool, read_batch_cancel, read_batch_configure, read_batch_start,
};
use crate::bridge::task_status::ProgressNotifier;
use crate::calls::{
    CallEvent, CallEvents, CallRequest, CallResponder, CallTarget, ClientContext, WaitFor, WaitOutcome,
};
use crate::fault::{Abort, ClientGone, Fault};
use crate::http_edge::{AccessRecord, ResponseSink};
use crate::mcp::Era;
use crate::mcp::content::ContentBlock;
use crate::mcp::tools::CallToolResult;
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
                Ok((ticket, false)) => Ok(ticket.report()),
                Err(problem) => Err(problem),
            },
            ProviderTool::BatchCancel => read_batch_cancel(params.arguments).and_then(|id| {
                let ticket = self.ticket(client, &id).ok_or_else(|| format!("there is no batch {id:?}"))?;
                Ok(json!({ "batchId": id, "canceled": self.cancel(&ticket) }))
            }),
            ProviderTool::BatchConfigure => self.configure(client, params.arguments),
            ProviderTool::MemoryDelete | ProviderTool::MemoryStore => Err("is no tool for batches".into()),
        };
        let result = match done {
            Ok(value) => tool_result(&value),
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
        let body = engine.writer(client.era()).uncacheable(id, &tool_result(&ticket.report()));
        record.hold(&engine.limits, None, body.len()).map_err(Fault::from)?;
        Ok(responder.finish(Some(body)).await?)
    }
}

/// Returns a value as the result of a tool, with the same as text.
fn tool_result(value: &Value) -> CallToolResult {
    CallToolResult {
        content: vec![ContentBlock::text(value.to_string())],
        structured_content: to_raw_value(value).ok(),
        ..CallToolResult::default()
    }
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

impl BatchTicket {
    /// Returns the state of the batch and the results so far; `null` if it was evicted.
    pub(super) fn report(&self) -> Value {
        let state = lock(&self.owner.state);
        let Some(batch) = state.batches.get(&self.number) else { return Value::Null };
        let count = |status| batch.count(status);
        let status = match batch.ended {
            None => "running",
            Some(_) if batch.is_cancelled() => "cancelled",
            Some(_) => "completed",
        };
        let id = batch_id(self.number);
        let measured = batch.measurement();
        let rate = (batch.ended.is_some() && measured.started > 0)
            .then(|| rounded(whole(measured.succeeded) / whole(measured.started)));
        let results = batch.calls.iter().enumerate().map(|(index, call)| call.report(index));
        json!({
            "resource": format!("batchtools://batches/{id}"),
            "batchId": id,
            "status": status,
            "type": batch.strategy,
            "priority": batch.priority(),
            "maxConcurrency": batch.concurrency,
            "peakConcurrency": batch.peak,
            "total": batch.calls.len(),
            "completed": count(CallStatus::Completed),
            "failed": count(CallStatus::Failed),
            "cancelled": count(CallStatus::Cancelled),
            "pending": count(CallStatus::Queued) + count(CallStatus::Running),
            "durationMs": batch.took().map(milliseconds),
            "serialDurationMs": milliseconds(batch.serial()),
            "speedup": batch.speedup().map(rounded),
            "successRate": rate,
            "results": results.collect::<Vec<_>>(),
        })
    }
}

impl Batch {
    /// Returns the highest priority of the calls.
    pub(super) fn priority(&self) -> BatchPriority {
        self.calls.iter().map(|call| call.priority).min().unwrap_or_default()
    }
}

impl QueuedCall {
    fn report(&self, index: usize) -> Value {
        let mut members = Map::new();
        members.insert("index".into(), json!(index));
        members.insert("tool".into(), json!(*self.tool));
        members.insert("priority".into(), json!(self.priority));
        members.insert("status".into(), json!(self.status.name()));
        if let Some(outcome) = &self.outcome {
            members.insert("durationMs".into(), json!(milliseconds(outcome.took)));
            if let Some(result) = &outcome.result {
                let result = serde_json::from_str(result.get()).unwrap_or(Value::Null);
                members.insert("result".into(), result);
            }
            if let Some(error) = &outcome.error {
                members.insert("error".into(), json!(error));
            }
        }
        Value::Object(members)
    }
}
