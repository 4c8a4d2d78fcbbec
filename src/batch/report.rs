//! Settings and measurements of the batches of one caller, and their resources: `batchtools://…`. Each
//! caller sees its own queue, settings, measurements and batches.
//!
//! All figures are measured; one that is not measured is `null`.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike as _;
use serde_json::{Value, json};

use super::{BatchService, CallStatus, OwnerBatches, OwnerState};
use crate::access::Authorizer;
use crate::bridge::provider_tools::{BatchConfigureCall, BatchStrategy, ProviderTool};
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

/// Latencies that the average is made of.
const MAX_LATENCIES: usize = 256;
/// Period of the throughput.
const THROUGHPUT_PERIOD: Duration = Duration::from_secs(60);
/// Shortest time between two measurements of the processor.
const CPU_PERIOD: Duration = Duration::from_millis(500);

/// Settings of the batches of one caller.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct BatchSettings {
    pub(super) enabled: bool,
    /// Most calls at once.
    pub(super) max_concurrency: usize,
    /// True if the thresholds of memory and processor hold calls back.
    pub(super) resource_monitoring: bool,
    /// Part of `limits.bytes` in use above which no further call is started.
    pub(super) memory_usage: f64,
    /// Part of the processor time above which no further call is started.
    pub(super) cpu_usage: f64,
    /// Most calls that wait.
    pub(super) queue_size: usize,
    pub(super) strategies: Vec<BatchStrategy>,
}

impl BatchSettings {
    /// Creates the settings of a caller that has changed nothing: the bounds of the operator.
    pub(super) fn new(max_concurrency: usize, queue_size: usize) -> Self {
        Self {
            enabled: true,
            max_concurrency,
            resource_monitoring: true,
            memory_usage: 0.9,
            cpu_usage: 1.0,
            queue_size,
            strategies: BatchStrategy::ALL.to_vec(),
        }
    }

    /// Returns the settings with these changes.
    ///
    /// # Errors
    ///
    /// The bound of the operator that a change exceeds.
    pub(super) fn changed(&self, change: BatchConfigureCall, bounds: &Self) -> Result<Self, String> {
        let thresholds = change.thresholds.unwrap_or_default();
        let changed = Self {
            enabled: change.enabled.unwrap_or(self.enabled),
            max_concurrency: change.max_concurrency.unwrap_or(self.max_concurrency),
            resource_monitoring: change.resource_monitoring.unwrap_or(self.resource_monitoring),
            memory_usage: thresholds.memory_usage.unwrap_or(self.memory_usage),
            cpu_usage: thresholds.cpu_usage.unwrap_or(self.cpu_usage),
            queue_size: thresholds.queue_size.unwrap_or(self.queue_size),
            strategies: change.optimization_strategies.unwrap_or_else(|| self.strategies.clone()),
        };
        if changed.max_concurrency > bounds.max_concurrency {
            let most = bounds.max_concurrency;
            return Err(format!("maxConcurrency: resources.batchtools.max_concurrency allows {most}"));
        }
        if changed.queue_size > bounds.queue_size {
            let most = bounds.queue_size;
            return Err(format!("thresholds.queueSize: resources.batchtools.queue_size allows {most}"));
        }
        Ok(changed)
    }

    /// Returns true if batches with this strategy may run several calls at once.
    pub(super) fn uses(&self, strategy: BatchStrategy) -> bool {
        self.strategies.contains(&strategy)
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "enabled": self.enabled,
            "maxConcurrency": self.max_concurrency,
            "resourceMonitoring": self.resource_monitoring,
            "thresholds": {
                "memoryUsage": self.memory_usage,
                "cpuUsage": self.cpu_usage,
                "queueSize": self.queue_size,
            },
            "optimizationStrategies": self.strategies,
        })
    }
}

/// Returns the time in milliseconds that `left` calls will need.
pub(super) fn estimate(latency: Duration, left: usize, concurrency: usize) -> u64 {
    let left = u32::try_from(left).unwrap_or(u32::MAX);
    milliseconds(latency * left.div_ceil(u32::try_from(concurrency).unwrap_or(1).max(1)))
}

/// Measurements of the finished batches of one caller.
#[derive(Debug, Default)]
pub(super) struct BatchMetrics {
    by_strategy: HashMap<BatchStrategy, StrategyMetrics>,
    /// Batches that ran several calls at once, or were held back.
    optimized: u64,
    latencies: VecDeque<Duration>,
    /// Ends of calls within the period of the throughput.
    ends: VecDeque<Instant>,
}

#[derive(Debug, Default)]
struct StrategyMetrics {
    batches: u64,
    /// Batches with a measured speed-up.
    measured: u64,
    speedups: f64,
    started: u64,
    succeeded: u64,
}

/// Measurements of one finished batch.
#[derive(Debug, Clone, Copy)]
pub(super) struct BatchMeasurement {
    pub(super) strategy: BatchStrategy,
    /// The durations of its calls together, over its own.
    pub(super) speedup: Option<f64>,
    /// Calls that were started.
    pub(super) started: u64,
    /// Calls that ended well.
    pub(super) succeeded: u64,
    /// Most calls that ran at once.
    pub(super) peak: usize,
    /// True if calls were held back by a threshold.
    pub(super) was_held: bool,
}

impl BatchMetrics {
    pub(super) fn record_call(&mut self, took: Duration, now: Instant) {
        if self.latencies.len() >= MAX_LATENCIES {
            self.latencies.pop_front();
        }
        self.latencies.push_back(took);
        self.forget_ends(now);
        // Bounded: more calls than this in a minute count as this many.
        if self.ends.len() < MAX_LATENCIES * MAX_LATENCIES {
            self.ends.push_back(now);
        }
    }

    fn forget_ends(&mut self, now: Instant) {
        while self.ends.front().is_some_and(|end| now.duration_since(*end) > THROUGHPUT_PERIOD) {
            self.ends.pop_front();
        }
    }

    pub(super) fn record_batch(&mut self, batch: BatchMeasurement) {
        self.optimized += u64::from(batch.peak > 1 || batch.was_held);
        let held = batch.was_held.then_some(BatchStrategy::ResourceOptimization);
        for strategy in [Some(batch.strategy), held].into_iter().flatten() {
            let of = self.by_strategy.entry(strategy).or_default();
            of.batches += 1;
            of.measured += u64::from(batch.speedup.is_some());
            of.speedups += batch.speedup.unwrap_or(0.0);
            of.started += batch.started;
            of.succeeded += batch.succeeded;
        }
    }

    /// Returns the number of finished batches.
    pub(super) fn batches(&self) -> u64 {
        self.by_strategy.values().map(|of| of.batches).sum()
    }

    /// Returns the average duration of the last calls.
    pub(super) fn average_latency(&self) -> Option<Duration> {
        let count = u32::try_from(self.latencies.len()).ok().filter(|count| *count > 0)?;
        Some(self.latencies.iter().sum::<Duration>() / count)
    }

    pub(super) fn throughput(&mut self, now: Instant) -> Value {
        self.forget_ends(now);
        let period = self.ends.front().map(|first| now.duration_since(*first).max(Duration::from_secs(1)));
        let rate = period.map_or(0.0, |period| count(self.ends.len()) / period.as_secs_f64());
        json!({
            "operationsPerSecond": rounded(rate),
            "averageLatency": self.average_latency().map(milliseconds),
        })
    }

    /// Returns the resource of the measurements.
    pub(super) fn json(&self, settings: &BatchSettings, now_ms: u64) -> Value {
        let none = StrategyMetrics::default();
        let of = |strategy| self.by_strategy.get(&strategy).unwrap_or(&none);
        let concurrent = of(BatchStrategy::ConcurrentProcessing);
        let parallel = of(BatchStrategy::ParallelContentProcessing);
        let held = of(BatchStrategy::ResourceOptimization);
        let measured = concurrent.measured + parallel.measured;
        let speedups = concurrent.speedups + parallel.speedups;
        json!({
            "overall": {
                "enabled": settings.enabled,
                "optimizationsApplied": self.optimized,
                "averageSpeedup": average(speedups, measured),
                // The memory that the calls would need one after the other is not measured.
                "memoryReduction": null,
            },
            "byType": {
                "concurrent_processing": concurrent.json(),
                "parallel_content_processing": parallel.json(),
                "resource_optimization": {
                    "count": held.batches,
                    "memoryReduction": null,
                    "successRate": average(whole(held.succeeded), held.started),
                },
            },
            "timestamp": iso8601(now_ms),
        })
    }
}

impl StrategyMetrics {
    fn json(&self) -> Value {
        json!({
            "count": self.batches,
            "averageSpeedup": average(self.speedups, self.measured),
            "successRate": average(whole(self.succeeded), self.started),
        })
    }
}

/// The processor time of this process, as a part of the time of all processors.
pub(super) struct CpuMeter(Mutex<CpuSample>);

struct CpuSample {
    at: Instant,
    used: Duration,
    part: f64,
}

impl CpuMeter {
    pub(super) fn new() -> Self {
        Self(Mutex::new(CpuSample { at: Instant::now(), used: processor_time(), part: 0.0 }))
    }

    /// Returns the part that was used since the last measurement.
    pub(super) fn usage(&self) -> f64 {
        let mut sample = lock(&self.0);
        let passed = sample.at.elapsed();
        if passed >= CPU_PERIOD {
            let cores = std::thread::available_parallelism().map_or(1, usize::from);
            let used = processor_time();
            let part = used.saturating_sub(sample.used).as_secs_f64() / passed.as_secs_f64();
            *sample = CpuSample { at: Instant::now(), used, part: part / count(cores) };
        }
        sample.part
    }
}

/// Returns the processor time of this process so far; zero if the system does not tell it.
fn processor_time() -> Duration {
    let Ok(usage) = getrusage(UsageWho::RUSAGE_SELF) else { return Duration::ZERO };
    let micros = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    Duration::from_micros(u64::try_from(micros).unwrap_or(0))
}

/// Returns a duration in whole milliseconds.
pub(super) fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Returns a figure with three digits after the point.
pub(super) fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

/// Returns the average, rounded; `None` if nothing was counted.
pub(super) fn average(sum: f64, over: u64) -> Option<f64> {
    (over > 0).then(|| rounded(sum / whole(over)))
}

#[expect(clippy::cast_precision_loss, reason = "counts are far below the exact integers of f64")]
pub(super) fn whole(number: u64) -> f64 {
    number as f64
}

fn count(number: usize) -> f64 {
    whole(number as u64)
}

const PERFORMANCE: &str = "batchtools://metrics/performance";
const QUEUE: &str = "batchtools://queue/status";
const SETTINGS: &str = "batchtools://config/settings";
pub(super) const BATCHES: &str = "batchtools://batches/";

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
            let batches = lock(&owner.state).ids();
            rows.extend(batches.into_iter().map(|id| row(format!("{BATCHES}{id}"), &id, "A batch of yours")));
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
                None => self.service.foreign_report(client, id).await?,
            },
            None => {
                if uri == QUEUE
                    && let Some(owner) = self.service.find(&owner_of(client))
                {
                    self.service.refresh(&owner, None).await;
                }
                self.overview(client, uri).map(|value| value.to_string())
            }
        };
        Ok(json.map(|json| ProvidedContent::json(uri, json, self.facts(client, uri))))
    }

    async fn subscribe<'a>(
        &'a self,
        client: &'a ClientContext<'a>,
        uri: &str,
    ) -> Result<Option<ChangeSource<'a>>, Fault> {
        let is_known = match uri.strip_prefix(BATCHES) {
            Some(id) => self.service.has_batch(client, id),
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
        let id = uri.strip_prefix(BATCHES)?;
        if let Some(foreign) = state.foreign.get(id) {
            return Some(foreign.mark());
        }
        Some(state.batches.get(&state.number(id)?)?.version())
    };
    match uri {
        PERFORMANCE => state.metrics.batches(),
        SETTINGS => state.settings_version,
        QUEUE => *owner.changes.borrow(),
        _ => of_batch().unwrap_or(u64::MAX),
    }
}

impl OwnerState {
    /// Returns the ids of all batches.
    fn ids(&self) -> Vec<String> {
        let foreign = self.foreign.keys().map(|id| String::from(&**id));
        self.batches.keys().map(|number| self.id(*number)).chain(foreign).collect()
    }

    /// Returns the resource of the queue.
    pub(super) fn queue_json(&mut self) -> Value {
        let latency = self.metrics.average_latency();
        let unfinished = self.batches.iter().filter(|(_, batch)| batch.ended.is_none());
        let operations = unfinished.map(|(number, batch)| {
            let left = batch.calls.len() - batch.ended_calls;
            json!({
                "id": self.id(*number),
                "type": batch.strategy,
                "priority": batch.priority(),
                "estimatedDuration": latency.map(|latency| estimate(latency, left, batch.concurrency)),
                "startTime": batch.started.map(|started| iso8601(started.unix_ms)),
                "acceptedTime": iso8601(batch.accepted_ms),
                "calls": batch.calls.len(),
                "ended": batch.ended_calls,
                "running": batch.running,
            })
        });
        let foreign = || self.foreign.iter().filter(|(_, batch)| batch.is_running());
        let waiting: usize = foreign().map(|(_, batch)| batch.snapshot.count(CallStatus::Queued)).sum();
        let operations = operations.chain(foreign().map(|(id, batch)| batch.queue_json(id, latency)));
        let operations: Vec<Value> = operations.collect();
        json!({
            "queueSize": self.waiting.len() + waiting,
            "activeBatches": operations.len(),
            "maxConcurrency": self.settings.max_concurrency,
            "operations": operations,
            "throughput": self.metrics.throughput(Instant::now()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bridge::provider_tools::ThresholdChange;

    const BATCH: BatchMeasurement = BatchMeasurement {
        strategy: BatchStrategy::ConcurrentProcessing,
        speedup: Some(3.0),
        started: 4,
        succeeded: 3,
        peak: 2,
        was_held: false,
    };

    #[test]
    fn unmeasured_figures_are_null() {
        let (metrics, settings) = (BatchMetrics::default(), BatchSettings::new(4, 10));
        let json = metrics.json(&settings, 0);
        assert_eq!(json["overall"]["averageSpeedup"], Value::Null);
        assert_eq!(json["byType"]["concurrent_processing"]["successRate"], Value::Null);
        assert_eq!(json["timestamp"], "1970-01-01T00:00:00.000Z");
    }

    #[test]
    fn speedups_are_averaged_by_type() {
        let mut metrics = BatchMetrics::default();
        metrics.record_batch(BATCH);
        metrics.record_batch(BatchMeasurement { speedup: Some(2.0), was_held: true, ..BATCH });
        let parallel = BatchStrategy::ParallelContentProcessing;
        metrics.record_batch(BatchMeasurement { strategy: parallel, speedup: None, peak: 1, ..BATCH });
        let json = metrics.json(&BatchSettings::new(4, 10), 0);
        assert_eq!(json["overall"]["averageSpeedup"], 2.5);
        assert_eq!(json["overall"]["optimizationsApplied"], 2);
        assert_eq!(json["byType"]["concurrent_processing"]["count"], 2);
        assert_eq!(json["byType"]["concurrent_processing"]["successRate"], 0.75);
        assert_eq!(json["byType"]["parallel_content_processing"]["averageSpeedup"], Value::Null);
        assert_eq!(json["byType"]["resource_optimization"]["count"], 1);
        assert_eq!(json["byType"]["resource_optimization"]["memoryReduction"], Value::Null);
    }

    #[test]
    fn changes_stay_within_the_operators_bounds() {
        let bounds = BatchSettings::new(4, 10);
        let change = |most| BatchConfigureCall { max_concurrency: Some(most), ..Default::default() };
        assert_eq!(bounds.changed(change(2), &bounds).unwrap().max_concurrency, 2);
        assert!(bounds.changed(change(5), &bounds).unwrap_err().contains("max_concurrency allows 4"));
        let thresholds = Some(ThresholdChange { queue_size: Some(11), ..ThresholdChange::default() });
        let change = BatchConfigureCall { thresholds, ..BatchConfigureCall::default() };
        assert!(bounds.changed(change, &bounds).unwrap_err().contains("queue_size allows 10"));
    }

    #[test]
    fn throughput_counts_the_last_minute() {
        let (mut metrics, began) = (BatchMetrics::default(), Instant::now());
        for second in 0..20 {
            metrics.record_call(Duration::from_millis(100), began + Duration::from_secs(second));
        }
        let told = metrics.throughput(began + Duration::from_secs(20));
        assert_eq!(told, json!({"operationsPerSecond": 1.0, "averageLatency": 100}));
        let told = metrics.throughput(began + Duration::from_secs(200));
        assert_eq!(told["operationsPerSecond"], 0.0);
    }
}
