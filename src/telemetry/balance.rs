//! The metrics of load balancing: of each endpoint of an agent, and of the calls that wait for an agent.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Registry,
};

use super::metrics::{AgentMetrics, Metrics, opts, register};

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
