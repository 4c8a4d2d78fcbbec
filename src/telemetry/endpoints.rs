//! Metrics of the endpoints of agents, and of the calls that wait for an agent.
//!
//! The label of an endpoint is its number in the configuration, never its address.

use std::time::Duration;

use prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Registry,
};

use super::metrics::{AgentMetrics, opts, register};

/// Seconds that a call waited.
const QUEUE_WAIT_BUCKETS: [f64; 8] = [0.001, 0.01, 0.05, 0.25, 1.0, 5.0, 15.0, 60.0];

/// The metrics of all endpoints.
pub(super) struct LoadBalancerMetrics {
    up: IntGaugeVec,
    requests: IntCounterVec,
    failures: IntCounterVec,
    ejections: IntCounterVec,
    probes: IntCounterVec,
    queued: IntGaugeVec,
    waits: HistogramVec,
}

/// The metrics of one endpoint.
pub struct EndpointMetrics {
    /// 1; 0 while its breaker is open.
    pub up: IntGauge,
    /// Requests sent to it.
    pub requests: IntCounter,
    /// Requests that failed in a way that counts against it.
    pub failures: IntCounter,
    /// The number of times its breaker opened.
    pub ejections: IntCounter,
    /// Requests that probe if it is back.
    pub probes: IntCounter,
}

/// The metrics of the calls that wait for one agent.
pub struct QueueMetrics {
    queued: IntGauge,
    waits: Histogram,
}

impl LoadBalancerMetrics {
    pub(super) fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let labels = &["agent", "endpoint"];
        let counters = |name, help| register(registry, IntCounterVec::new(opts(name, help), labels)?);
        let waits = opts("queue_wait_seconds", "Time that a call waited for its agent, whatever came of it.");
        Ok(Self {
            up: register(
                registry,
                IntGaugeVec::new(opts("endpoint_up", "0 while an endpoint is left alone."), labels)?,
            )?,
            requests: counters("endpoint_requests_total", "Requests to an endpoint.")?,
            failures: counters("endpoint_failures_total", "Requests that count against an endpoint.")?,
            ejections: counters(
                "endpoint_ejections_total",
                "Times that an endpoint began to be left alone.",
            )?,
            probes: counters("endpoint_probes_total", "Requests that showed whether an endpoint is back.")?,
            queued: register(
                registry,
                IntGaugeVec::new(opts("queued_calls", "Calls that wait for an agent."), &["agent"])?,
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
    pub fn endpoint(&self, endpoint: &str) -> EndpointMetrics {
        let (all, labels) = (&self.all.balance, [self.name.as_str(), endpoint]);
        let up = all.up.with_label_values(&labels);
        up.set(1);
        EndpointMetrics {
            up,
            requests: all.requests.with_label_values(&labels),
            failures: all.failures.with_label_values(&labels),
            ejections: all.ejections.with_label_values(&labels),
            probes: all.probes.with_label_values(&labels),
        }
    }

    /// Returns the metrics of the calls that wait for it, resolved.
    #[must_use]
    pub fn queue(&self) -> QueueMetrics {
        let (all, labels) = (&self.all.balance, [self.name.as_str()]);
        QueueMetrics {
            queued: all.queued.with_label_values(&labels),
            waits: all.waits.with_label_values(&labels),
        }
    }
}

impl QueueMetrics {
    /// Counts a call that waits.
    pub fn enter(&self) {
        self.queued.inc();
    }

    /// Counts that it waits no longer.
    pub fn leave(&self, waited: Duration) {
        self.queued.dec();
        self.waits.observe(waited.as_secs_f64());
    }
}
