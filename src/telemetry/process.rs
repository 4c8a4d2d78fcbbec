//! The metrics of the process, its edges and its configuration: the process itself, HTTP responses, exported spans,
//! generations and reloads; and the end of the series of an agent that has left the configuration.
//! The metrics of load balancing: of each endpoint of an agent, and of the calls that wait for an agent.

use std::array;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::sys::resource::{Resource, UsageWho, getrlimit, getrusage};
use nix::sys::time::TimeValLike as _;
use prometheus::core::{Collector, Desc, MetricVec, MetricVecBuilder};
use prometheus::proto::MetricFamily;
use prometheus::{
    Counter, Gauge, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec,
    Registry,
};

use super::label::{ConfigReload, SourcePoll, SpanOutcome};
use super::metrics::{AgentMetrics, GaugeGuard, Metrics, opts, register};

/// The metrics of both edges: towards clients, and of the identities towards agents.
pub(super) struct EdgeMetrics {
    pub(super) connections: IntGaugeVec,
    pub(super) responses: IntCounterVec,
    pub(super) agent_certificates: IntGaugeVec,
}

impl EdgeMetrics {
    pub(super) fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let gauges = |name, help, label| register(registry, IntGaugeVec::new(opts(name, help), &[label])?);
        let responses =
            opts("http_responses_total", "Responses to requests, by listener and class of the HTTP status.");
        Ok(Self {
            connections: gauges("open_connections", "Connections open now, by listener.", "listener")?,
            responses: register(registry, IntCounterVec::new(responses, &["listener", "status"])?)?,
            agent_certificates: gauges(
                "agent_certificate_expiry_timestamp_seconds",
                "Expiry of the client certificate for an agent, in seconds since 1970.",
                "agent",
            )?,
        })
    }
}

/// The classes of HTTP status, by their first digit; 0 is a request without a response.
const STATUS_CLASSES: [&str; 6] = ["none", "1xx", "2xx", "3xx", "4xx", "5xx"];

/// The responses of one listener, by class of their status.
pub(crate) struct ResponseMetrics {
    all: IntCounterVec,
    listener: String,
    classes: [OnceLock<IntCounter>; STATUS_CLASSES.len()],
}

impl ResponseMetrics {
    /// Creates the counters of a listener, of which none is a series yet.
    pub(super) fn new(all: &IntCounterVec, listener: &str) -> Self {
        let classes = array::from_fn(|_| OnceLock::new());
        Self { all: all.clone(), listener: listener.to_owned(), classes }
    }

    /// Counts a response; the status 0 is none.
    pub(crate) fn count(&self, status: u16) {
        let class = usize::from(status / 100);
        if let (Some(counter), Some(label)) = (self.classes.get(class), STATUS_CLASSES.get(class)) {
            counter.get_or_init(|| self.all.with_label_values(&[self.listener.as_str(), label])).inc();
        }
    }
}

/// The metrics of exported spans. Clones count together.
#[derive(Debug, Clone)]
pub(crate) struct SpanMetrics {
    spans: IntCounterVec,
}

impl SpanMetrics {
    pub(super) fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let opts = opts("trace_spans_total", "Spans of recorded requests, by outcome of their export.");
        Ok(Self { spans: register(registry, IntCounterVec::new(opts, &["outcome"])?)? })
    }

    /// Counts spans that the collector has accepted.
    pub(crate) fn exported(&self, count: u64) {
        self.spans.with_label_values(&[SpanOutcome::Exported.label()]).inc_by(count);
    }

    /// Counts spans that could not be exported.
    pub(crate) fn failed(&self, count: u64) {
        self.spans.with_label_values(&[SpanOutcome::Failed.label()]).inc_by(count);
    }

    /// Returns the counter of spans without room in the queue.
    pub(crate) fn dropped(&self) -> IntCounter {
        self.spans.with_label_values(&[SpanOutcome::Dropped.label()])
    }
}

/// The metrics of the process, under the names that Prometheus's client libraries have for them.
pub(super) struct ProcessMetrics {
    pub(super) gauges: [Gauge; 5],
    pub(super) cpu: Counter,
}

/// The time at which the first gateway of the process was created, in seconds since 1970.
static STARTED: LazyLock<f64> = LazyLock::new(|| {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_secs_f64()
});

impl ProcessMetrics {
    const GAUGES: [(&str, &str); 5] = [
        ("process_start_time_seconds", "Start of the process, in seconds since 1970."),
        ("process_resident_memory_bytes", "Memory of the process that is in RAM."),
        ("process_virtual_memory_bytes", "Address space of the process."),
        ("process_open_fds", "Open file descriptors."),
        ("process_max_fds", "Limit of open file descriptors."),
    ];

    pub(super) fn new() -> Result<Self, prometheus::Error> {
        let mut gauges = Vec::new();
        for (name, help) in Self::GAUGES {
            gauges.push(Gauge::new(name, help)?);
        }
        let gauges: [Gauge; 5] =
            gauges.try_into().map_err(|_| prometheus::Error::Msg("process metrics".to_owned()))?;
        let cpu = Counter::new("process_cpu_seconds_total", "Processor time of the process.")?;
        let [start, ..] = &gauges;
        start.set(*STARTED);
        Ok(Self { gauges, cpu })
    }

    /// Reads the present values. Those that the system does not tell stay as they are.
    fn refresh(&self) {
        let [_, resident, address_space, open, limit] = &self.gauges;
        if let Ok(usage) = getrusage(UsageWho::RUSAGE_SELF) {
            let seconds = |time: nix::sys::time::TimeVal| {
                Duration::from_micros(u64::try_from(time.num_microseconds()).unwrap_or_default())
                    .as_secs_f64()
            };
            let used = seconds(usage.user_time()) + seconds(usage.system_time());
            self.cpu.inc_by((used - self.cpu.get()).max(0.0));
        }
        if let Ok(status) = std::fs::read_to_string("/proc/self/status") {
            let bytes = |name: &str| {
                let line = status.lines().find_map(|line| line.strip_prefix(name))?;
                line.split_whitespace().next()?.parse::<f64>().ok().map(|kib| kib * 1024.0)
            };
            for (gauge, name) in [(resident, "VmRSS:"), (address_space, "VmSize:")] {
                if let Some(bytes) = bytes(name) {
                    gauge.set(bytes);
                }
            }
        }
        if let Ok(descriptors) = std::fs::read_dir("/proc/self/fd") {
            // The folder itself is open while it is read.
            let count = u32::try_from(descriptors.count().saturating_sub(1)).unwrap_or(u32::MAX);
            open.set(f64::from(count));
        }
        if let Ok((soft, _)) = getrlimit(Resource::RLIMIT_NOFILE) {
            #[expect(clippy::cast_precision_loss, reason = "a limit beyond 2^53 is none")]
            limit.set(soft as f64);
        }
    }
}

impl Collector for ProcessMetrics {
    fn desc(&self) -> Vec<&Desc> {
        self.gauges.iter().flat_map(Collector::desc).chain(self.cpu.desc()).collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        self.refresh();
        self.gauges.iter().flat_map(Collector::collect).chain(self.cpu.collect()).collect()
    }
}

/// The metrics of the configuration and its reloads.
pub(crate) struct ConfigMetrics {
    generation: IntGauge,
    held: IntGauge,
    reloads: [IntCounter; ConfigReload::ALL.len()],
    last_success: IntGauge,
    source_polls: IntCounterVec,
    source_agents: IntGaugeVec,
}

impl ConfigMetrics {
    pub(super) fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let gauge = |name, help| register(registry, IntGauge::with_opts(opts(name, help))?);
        let reloads = IntCounterVec::new(
            opts("config_reloads_total", "Reloads of the configuration, by outcome."),
            &["outcome"],
        )?;
        let reloads = register(registry, reloads)?;
        let source_polls = IntCounterVec::new(
            opts("source_polls_total", "Readings of a source of agents, by outcome."),
            &["source", "outcome"],
        )?;
        let source_agents = opts("source_agents", "Agents that a source of agents names, used or not.");
        Ok(Self {
            source_polls: register(registry, source_polls)?,
            source_agents: register(registry, IntGaugeVec::new(source_agents, &["source"])?)?,
            generation: gauge(
                "config_generation",
                "Number of the configuration in use: 1 at the start, one more with each applied reload.",
            )?,
            held: gauge(
                "config_generations_held",
                "Configurations in memory: the one in use, and those with requests that began under them.",
            )?,
            reloads: ConfigReload::ALL.map(|outcome| reloads.with_label_values(&[outcome.label()])),
            last_success: gauge(
                "config_last_success_timestamp_seconds",
                "Time of the start or of the last reload that was not rejected, in seconds since 1970.",
            )?,
        })
    }

    /// Counts a configuration in memory until the guard is dropped.
    pub(crate) fn hold(&self) -> GaugeGuard {
        GaugeGuard::new([Some(&self.held), None])
    }

    /// Records that a configuration is used from now on.
    pub(crate) fn set_generation(&self, generation: u64) {
        self.generation.set(i64::try_from(generation).unwrap_or(i64::MAX));
    }

    /// Counts a reload.
    pub(crate) fn record_reload(&self, outcome: ConfigReload) {
        if let Some(counter) = self.reloads.get(outcome as usize) {
            counter.inc();
        }
    }

    /// Counts a reading of a source of agents, and records the number of its agents.
    pub(crate) fn record_source(&self, source: &str, outcome: SourcePoll, agents: usize) {
        self.source_polls.with_label_values(&[source, outcome.label()]).inc();
        self.source_agents.with_label_values(&[source]).set(i64::try_from(agents).unwrap_or(i64::MAX));
    }

    /// Removes the series of a source that has left the configuration.
    pub(crate) fn forget_source(&self, source: &str) {
        for outcome in SourcePoll::ALL {
            // Fails only if there is no such series.
            drop(self.source_polls.remove_label_values(&[source, outcome.label()]));
        }
        drop(self.source_agents.remove_label_values(&[source]));
    }

    /// Records the time of the start, or of a reload that was not rejected.
    pub(crate) fn set_last_success(&self, unix_ms: u64) {
        self.last_success.set(i64::try_from(unix_ms / 1000).unwrap_or(i64::MAX));
    }
}

/// Removes the series with this value of the label `agent`.
pub(super) fn forget_series<T: MetricVecBuilder>(series: &MetricVec<T>, agent: &str) {
    for family in series.collect() {
        for metric in family.get_metric() {
            let labels: HashMap<&str, &str> =
                metric.get_label().iter().map(|label| (label.name(), label.value())).collect();
            if labels.get("agent") == Some(&agent) {
                // Fails only if another thread was quicker, which is as good.
                drop(series.remove(&labels));
            }
        }
    }
}

/// Seconds that a call waited.
const QUEUE_WAIT_BUCKETS: [f64; 8] = [0.001, 0.01, 0.05, 0.25, 1.0, 5.0, 15.0, 60.0];

/// The metrics of all endpoints.
pub(super) struct LoadBalancerMetrics {
    pub(super) up: IntGaugeVec,
    pub(super) requests: IntCounterVec,
    pub(super) failures: IntCounterVec,
    pub(super) ejections: IntCounterVec,
    pub(super) probes: IntCounterVec,
    pub(super) queued: IntGaugeVec,
    pub(super) waits: HistogramVec,
}

/// The metrics of one endpoint.
pub(crate) struct EndpointMetrics {
    /// 1; 0 while its breaker is open.
    pub(crate) up: IntGauge,
    /// Requests sent to it.
    pub(crate) requests: LazyCounter,
    /// Requests that failed in a way that counts against it.
    pub(crate) failures: LazyCounter,
    /// The number of times its breaker opened.
    pub(crate) ejections: LazyCounter,
    /// Requests that probe if it is back.
    pub(crate) probes: LazyCounter,
}

/// A counter with a series that begins with its first count.
pub(crate) struct LazyCounter {
    all: IntCounterVec,
    labels: [String; 2],
    counter: OnceLock<IntCounter>,
    /// Counters that begin at 0 with it, so that their first increase is seen.
    besides: Vec<IntCounterVec>,
}

impl LazyCounter {
    fn new(all: &IntCounterVec, labels: [&str; 2]) -> Self {
        let (labels, counter) = (labels.map(str::to_owned), OnceLock::new());
        Self { all: all.clone(), labels, counter, besides: Vec::new() }
    }

    fn with(self, besides: &[&IntCounterVec]) -> Self {
        Self { besides: besides.iter().copied().cloned().collect(), ..self }
    }

    /// Counts one more.
    pub(crate) fn inc(&self) {
        let create = || {
            for other in &self.besides {
                other.with_label_values(&self.labels);
            }
            self.all.with_label_values(&self.labels)
        };
        self.counter.get_or_init(create).inc();
    }
}

/// The metrics of the calls that wait for one agent.
pub(crate) struct QueueMetrics {
    all: Arc<Metrics>,
    agent: String,
    /// Created when a call waits.
    series: OnceLock<(IntGauge, Histogram)>,
}

impl LoadBalancerMetrics {
    pub(super) fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let labels = &["agent", "endpoint"];
        let counters = |name, help| register(registry, IntCounterVec::new(opts(name, help), labels)?);
        let waits = opts("queue_wait_seconds", "Time that a call waited in the queue of its agent.");
        Ok(Self {
            up: register(
                registry,
                IntGaugeVec::new(opts("endpoint_up", "0 while the breaker of an endpoint is open."), labels)?,
            )?,
            requests: counters("endpoint_requests_total", "Requests to an endpoint.")?,
            failures: counters(
                "endpoint_failures_total",
                "Requests that count as a failure of an endpoint.",
            )?,
            ejections: counters("endpoint_ejections_total", "Times that the breaker of an endpoint opened.")?,
            probes: counters(
                "endpoint_probes_total",
                "Requests that probed an endpoint with an open breaker.",
            )?,
            queued: register(
                registry,
                IntGaugeVec::new(opts("queued_calls", "Calls in the queue of an agent."), &["agent"])?,
            )?,
            waits: register(
                registry,
                HistogramVec::new(
                    HistogramOpts { common_opts: waits, buckets: QUEUE_WAIT_BUCKETS.to_vec() },
                    &["agent"],
                )?,
            )?,
        })
    }
}

impl AgentMetrics {
    /// Returns the metrics of one of its endpoints, resolved.
    #[must_use]
    pub(crate) fn endpoint(&self, endpoint: &str) -> EndpointMetrics {
        let (all, labels) = (&self.all.balance, [self.name.as_str(), endpoint]);
        let up = all.up.with_label_values(&labels);
        up.set(1);
        EndpointMetrics {
            up,
            requests: LazyCounter::new(&all.requests, labels).with(&[&all.failures, &all.ejections]),
            failures: LazyCounter::new(&all.failures, labels),
            ejections: LazyCounter::new(&all.ejections, labels),
            probes: LazyCounter::new(&all.probes, labels),
        }
    }

    /// Returns the metrics of the calls that wait for it, resolved.
    #[must_use]
    pub(crate) fn queue(&self) -> QueueMetrics {
        QueueMetrics { all: Arc::clone(&self.all), agent: self.name.clone(), series: OnceLock::new() }
    }
}

impl QueueMetrics {
    /// Counts a call that waits.
    pub(crate) fn enter(&self) {
        self.series().0.inc();
    }

    fn series(&self) -> &(IntGauge, Histogram) {
        self.series.get_or_init(|| {
            let (all, labels) = (&self.all.balance, [self.agent.as_str()]);
            (all.queued.with_label_values(&labels), all.waits.with_label_values(&labels))
        })
    }

    /// Counts that it waits no longer.
    pub(crate) fn leave(&self, waited: Duration) {
        let (queued, waits) = self.series();
        queued.dec();
        waits.observe(waited.as_secs_f64());
    }
}
