//! The resources of batches: `batchtools://…`.
//!
//! Each caller sees its own queue, settings, measurements and batches.

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::{Value, json};

use super::report::milliseconds;
use super::{BatchService, OwnerBatches, OwnerState, batch_id};
use crate::access::Authorizer;
use crate::bridge::provider_tools::ProviderTool;
use crate::calls::ClientContext;
use crate::fault::Fault;
use crate::mcp::resources::{CachePolicy, ResourceTemplate};
use crate::mcp::tasks::iso8601;
use crate::resources::{
    ChangeSource, JSON, ListRequest, ListedResource, ProvidedContent, ResourceFacts, ResourcePermissions,
    ResourceProvider, ResourceRequest, owner_of, unix_ms,
};
use crate::sync::lock;
use crate::tasks::Timestamp;

const PERFORMANCE: &str = "batchtools://metrics/performance";
const QUEUE: &str = "batchtools://queue/status";
const SETTINGS: &str = "batchtools://config/settings";
const BATCHES: &str = "batchtools://batches/";

/// Provider of the resources of batches.
pub(crate) struct BatchResources {
    pub(crate) service: Arc<BatchService>,
    pub(crate) authorizer: Arc<Authorizer>,
    /// Time at which the process began: the time of the last change if there was none.
    pub(crate) started: Timestamp,
}

#[async_trait]
impl ResourceProvider for BatchResources {
    fn family(&self) -> &'static str {
        "batchtools"
    }

    fn templates(&self) -> Vec<ResourceTemplate> {
        let about = "A batch of yours: the state and the result of each of its calls";
        vec![ResourceTemplate::fixed("batchtools://batches/{batchId}", "batch", about, JSON)]
    }

    fn list(&self, request: ListRequest<'_>) -> Vec<ListedResource> {
        let client = request.client;
        let row = |uri: String, name: &str, description: &str| {
            let facts = self.facts(client, &uri);
            let media_type = JSON.to_owned();
            ListedResource {
                uri,
                name: name.to_owned(),
                title: None,
                description: description.to_owned(),
                media_type,
                facts,
            }
        };
        let mut rows = vec![
            row(PERFORMANCE.to_owned(), "batch performance", "Measured speed-up and success of your batches"),
            row(QUEUE.to_owned(), "batch queue", "Your batches that wait or run"),
            row(
                SETTINGS.to_owned(),
                "batch settings",
                "Your settings of batches; batch_configure changes them",
            ),
        ];
        if let Some(owner) = self.service.find(&owner_of(client)) {
            let numbers: Vec<u64> = lock(&owner.state).batches.keys().copied().collect();
            let batches = numbers.into_iter().map(batch_id);
            rows.extend(batches.map(|id| row(format!("{BATCHES}{id}"), &id, "A batch of yours")));
        }
        rows.retain(|row| {
            request.after.is_none_or(|after| row.uri.as_str() > after)
                && self.authorizer.may_read(&client.caller, None, &row.uri)
        });
        rows.sort_by(|one, other| one.uri.cmp(&other.uri));
        rows.truncate(request.limit + 1);
        rows
    }

    async fn read(&self, request: ResourceRequest<'_>) -> Result<Option<ProvidedContent>, Fault> {
        let ResourceRequest { client, uri } = request;
        let json = match uri.strip_prefix(BATCHES) {
            Some(id) => match self.service.ticket(client, id) {
                Some(ticket) => {
                    // The report is counted before it is built; the response counts its own bytes.
                    let mut permit = self.service.engine.limits.permit(client.quota_owner.as_ref());
                    permit.set(ticket.bytes().saturating_mul(2)).map_err(Fault::from)?;
                    ticket.report()
                }
                None => None,
            },
            None => self.overview(client, uri).map(|value| value.to_string()),
        };
        Ok(json.map(|json| ProvidedContent::json(uri, json, self.facts(client, uri))))
    }

    async fn subscribe<'a>(
        &'a self,
        client: &'a ClientContext<'a>,
        uri: &str,
    ) -> Result<Option<ChangeSource<'a>>, Fault> {
        let is_known = match uri.strip_prefix(BATCHES) {
            Some(id) => self.service.ticket(client, id).is_some(),
            None => [PERFORMANCE, QUEUE, SETTINGS].contains(&uri),
        };
        if !is_known {
            return Ok(None);
        }
        let Ok(owner) = self.service.owner(&owner_of(client)) else { return Ok(None) };
        let (changes, uri) = (owner.changes.subscribe(), uri.to_owned());
        let mark = move || mark_of(&owner, &uri);
        Ok(Some(ChangeSource { changes, mark: Box::new(mark) }))
    }

    fn sweep(&self) {
        self.service.sweep();
    }
}

impl BatchResources {
    fn overview(&self, client: &ClientContext<'_>, uri: &str) -> Option<Value> {
        let owner = self.service.find(&owner_of(client));
        let mut none = OwnerState::new(self.service.bounds());
        let mut state = owner.as_deref().map(|owner| lock(&owner.state));
        let state: &mut OwnerState = state.as_deref_mut().unwrap_or(&mut none);
        match uri {
            PERFORMANCE => Some(state.metrics.json(&state.settings, unix_ms())),
            QUEUE => Some(state.queue_json()),
            SETTINGS => Some(state.settings.json()),
            _ => None,
        }
    }

    fn facts(&self, client: &ClientContext<'_>, uri: &str) -> ResourceFacts {
        let may = |tool: ProviderTool| self.authorizer.may_call_builtin(&client.caller, tool.name());
        let (write, execute, schema) = match uri {
            PERFORMANCE => (false, false, "batchPerformance"),
            QUEUE => (false, may(ProviderTool::BatchStart), "batchQueue"),
            SETTINGS => {
                (may(ProviderTool::BatchConfigure), may(ProviderTool::BatchConfigure), "batchSettings")
            }
            _ => (false, may(ProviderTool::BatchCancel), "batch"),
        };
        let owner = self.service.find(&owner_of(client));
        let changed = owner.map(|owner| lock(&owner.state).changed_ms);
        ResourceFacts {
            modified_ms: changed.unwrap_or(self.started.unix_ms),
            policy: CachePolicy::Realtime,
            permissions: ResourcePermissions { write, execute },
            schema,
        }
    }
}

/// Returns a number that changes with the content of a resource.
fn mark_of(owner: &OwnerBatches, uri: &str) -> u64 {
    let state = lock(&owner.state);
    let of_batch = || {
        let number = super::batch_number(uri.strip_prefix(BATCHES)?)?;
        let batch = state.batches.get(&number)?;
        let states = batch.ended_calls * 4 + batch.running.min(1) + usize::from(batch.ended.is_some()) * 2;
        Some(states as u64)
    };
    match uri {
        PERFORMANCE => state.metrics.batches(),
        SETTINGS => state.settings_version,
        QUEUE => *owner.changes.borrow(),
        _ => of_batch().unwrap_or(u64::MAX),
    }
}

impl OwnerState {
    /// Returns the resource of the queue.
    fn queue_json(&mut self) -> Value {
        let latency = self.metrics.average_latency();
        let unfinished = self.batches.iter().filter(|(_, batch)| batch.ended.is_none());
        let operations = unfinished.map(|(number, batch)| {
            let left = u32::try_from(batch.calls.len() - batch.ended_calls).unwrap_or(u32::MAX);
            let rounds = left.div_ceil(u32::try_from(batch.concurrency).unwrap_or(1).max(1));
            json!({
                "id": batch_id(*number),
                "type": batch.strategy,
                "priority": batch.priority(),
                "estimatedDuration": latency.map(|latency| milliseconds(latency * rounds)),
                "startTime": batch.started.map(|started| iso8601(started.unix_ms)),
                "acceptedTime": iso8601(batch.accepted_ms),
                "calls": batch.calls.len(),
                "ended": batch.ended_calls,
                "running": batch.running,
            })
        });
        let operations: Vec<Value> = operations.collect();
        json!({
            "queueSize": self.waiting.len(),
            "activeBatches": operations.len(),
            "maxConcurrency": self.settings.max_concurrency,
            "operations": operations,
            "throughput": self.metrics.throughput(std::time::Instant::now()),
        })
    }
}
