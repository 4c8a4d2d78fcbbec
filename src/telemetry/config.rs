//! The metrics of the configuration: its generations and reloads; and the end of the series of an
//! agent that has left it.

use std::collections::HashMap;

use prometheus::core::{Collector, MetricVec, MetricVecBuilder};
use prometheus::{IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Registry};

use super::label::{ConfigReload, SourcePoll};
use super::metrics::{GaugeGuard, opts, register};

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
