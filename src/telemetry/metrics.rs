//! The gateway's metrics, in a registry of their own.
//!
//! Every label comes from a closed set: methods, outcomes and reasons are enums here, agents are
//! those of the configuration. So no peer can create series. Counters of the hot path are resolved
//! once per agent, not per request. See also `tasks`.

use std::array;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use prometheus::core::Collector;
use prometheus::{
    Encoder, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts,
    Registry, TextEncoder,
};

use super::buffer::dropped_lines;
use super::credentials::CredentialMetrics;
use super::endpoints::LoadBalancerMetrics;
use super::label::{Method, Outcome, Push, Refresh, Refusal};
use super::outbound::OutboundMetrics;
use super::tasks::TaskMetrics;
use super::tls::TlsMetrics;

/// The agent label of requests that no agent serves, such as `initialize`.
const NO_AGENT: &str = "";

/// Seconds. The gateway's own part is in the first ones, agents are in the others.
const BUCKETS: [f64; 14] =
    [0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.05, 0.25, 1.0, 5.0, 15.0, 60.0, 300.0];

/// Every metric, by its name on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MetricName {
    Requests,
    Duration,
    OpenStreams,
    Events,
    Background,
    AgentUp,
    CardRefreshes,
    TransportErrors,
    Refused,
    Pushes,
    Panics,
}

impl MetricName {
    fn opts(self) -> Opts {
        let (name, help) = match self {
            Self::Requests => ("requests_total", "Requests that are over, by method, agent and outcome."),
            Self::Duration => {
                ("request_duration_seconds", "Time of a request, spent in the gateway or at the agent.")
            }
            Self::OpenStreams => ("open_streams", "Event streams open to clients."),
            Self::Events => ("events_translated_total", "Events of agents' streams that were translated."),
            Self::Background => ("background_exchanges", "Exchanges with agents whose client has left."),
            Self::AgentUp => {
                ("agent_up", "Whether the agent's card could be had when it was last looked for.")
            }
            Self::CardRefreshes => ("card_refreshes_total", "Fetches of agents' cards, by outcome."),
            Self::TransportErrors => {
                ("transport_errors_total", "Failed HTTP exchanges with agents, by kind.")
            }
            Self::Refused => ("refused_total", "Requests refused before any agent was asked, by reason."),
            Self::Pushes => ("pushes_total", "Push notifications of agents, by outcome."),
            Self::Panics => ("panics_total", "Panics caught. Each is a bug of the gateway."),
        };
        opts(name, help)
    }
}

pub(super) fn opts(name: &str, help: &str) -> Opts {
    Opts::new(format!("mcp_a2a_gateway_{name}"), help)
}

/// The metrics of one gateway.
pub struct Metrics {
    registry: Registry,
    requests: IntCounterVec,
    duration: HistogramVec,
    open_streams: IntGaugeVec,
    /// Over all agents; not registered, because it is their sum.
    all_streams: IntGauge,
    events: IntCounterVec,
    background: IntGauge,
    agent_up: IntGaugeVec,
    card_refreshes: IntCounterVec,
    transport_errors: IntCounterVec,
    refused: [IntCounter; Refusal::ALL.len()],
    held_bytes: IntGauge,
    pushes: [IntCounter; Push::ALL.len()],
    panics: IntCounter,
    pub(super) balance: LoadBalancerMetrics,
    pub(super) credentials: CredentialMetrics,
    /// The metrics of addresses that are not called.
    pub outbound: OutboundMetrics,
    /// The metrics of tasks.
    pub tasks: TaskMetrics,
    /// The metrics of TLS towards clients.
    pub tls: TlsMetrics,
}

impl Metrics {
    /// Creates and registers them all.
    ///
    /// # Errors
    ///
    /// Prometheus's, which only a mistake in this module can cause.
    pub fn new() -> Result<Arc<Self>, prometheus::Error> {
        let registry = Registry::new();
        if let Some(counter) = dropped_lines() {
            registry.register(Box::new(counter.clone()))?;
        }
        let refused = register(&registry, IntCounterVec::new(MetricName::Refused.opts(), &["reason"])?)?;
        let pushes = register(&registry, IntCounterVec::new(MetricName::Pushes.opts(), &["outcome"])?)?;
        Ok(Arc::new(Self {
            requests: register(
                &registry,
                IntCounterVec::new(MetricName::Requests.opts(), &["method", "agent", "outcome"])?,
            )?,
            duration: register(
                &registry,
                HistogramVec::new(
                    HistogramOpts { common_opts: MetricName::Duration.opts(), buckets: BUCKETS.to_vec() },
                    &["agent", "part"],
                )?,
            )?,
            open_streams: register(&registry, IntGaugeVec::new(MetricName::OpenStreams.opts(), &["agent"])?)?,
            all_streams: IntGauge::with_opts(MetricName::OpenStreams.opts())?,
            events: register(&registry, IntCounterVec::new(MetricName::Events.opts(), &["agent"])?)?,
            background: register(&registry, IntGauge::with_opts(MetricName::Background.opts())?)?,
            agent_up: register(&registry, IntGaugeVec::new(MetricName::AgentUp.opts(), &["agent"])?)?,
            card_refreshes: register(
                &registry,
                IntCounterVec::new(MetricName::CardRefreshes.opts(), &["agent", "outcome"])?,
            )?,
            transport_errors: register(
                &registry,
                IntCounterVec::new(MetricName::TransportErrors.opts(), &["agent", "kind"])?,
            )?,
            held_bytes: register(
                &registry,
                IntGauge::with_opts(opts("held_bytes", "Bytes that requests and answers hold."))?,
            )?,
            refused: Refusal::ALL.map(|reason| refused.with_label_values(&[reason.label()])),
            pushes: Push::ALL.map(|outcome| pushes.with_label_values(&[outcome.label()])),
            panics: register(&registry, IntCounter::with_opts(MetricName::Panics.opts())?)?,
            balance: LoadBalancerMetrics::new(&registry)?,
            credentials: CredentialMetrics::new(&registry)?,
            outbound: OutboundMetrics::new(&registry)?,
            tasks: TaskMetrics::new(&registry)?,
            tls: TlsMetrics::new(&registry)?,
            registry,
        }))
    }

    /// Returns the metrics of one configured agent, resolved. Keep it as long as the agent.
    #[must_use]
    pub fn agent(self: &Arc<Self>, name: &str) -> Arc<AgentMetrics> {
        Arc::new(AgentMetrics {
            gateway_time: self.duration.with_label_values(&[name, "gateway"]),
            agent_time: self.duration.with_label_values(&[name, "agent"]),
            open_streams: self.open_streams.with_label_values(&[name]),
            events: self.events.with_label_values(&[name]),
            requests: array::from_fn(|_| OnceLock::new()),
            all: Arc::clone(self),
            name: name.to_owned(),
        })
    }

    /// Returns the metrics of requests that no agent serves.
    #[must_use]
    pub fn no_agent(self: &Arc<Self>) -> Arc<AgentMetrics> {
        self.agent(NO_AGENT)
    }

    /// Removes the `up` series of an agent that has left the configuration.
    pub fn forget_agent(&self, name: &str) {
        // Fails only if the agent was never up or down.
        drop(self.agent_up.remove_label_values(&[name]));
    }

    /// Counts a request that was rejected before any agent was contacted.
    pub fn refused(&self, reason: Refusal) {
        if let Some(counter) = self.refused.get(reason as usize) {
            counter.inc();
        }
    }

    /// Sets the number of bytes that requests and responses hold now.
    pub fn holds(&self, bytes: usize) {
        self.held_bytes.set(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    /// Counts a push notification.
    pub fn record_push(&self, outcome: Push) {
        if let Some(counter) = self.pushes.get(outcome as usize) {
            counter.inc();
        }
    }

    /// Counts a panic.
    pub fn panicked(&self) {
        self.panics.inc();
    }

    /// Counts an exchange as running in the background until the guard is dropped.
    pub fn in_background(&self) -> GaugeGuard {
        GaugeGuard::new([Some(&self.background), None])
    }

    /// Returns the number of event streams open now, over all agents.
    #[must_use]
    pub fn open_streams(&self) -> i64 {
        self.all_streams.get()
    }

    /// Returns all metrics in Prometheus's text format ([`prometheus::TEXT_FORMAT`]).
    #[must_use]
    pub fn render(&self) -> Vec<u8> {
        let mut text = Vec::new();
        if let Err(error) = TextEncoder::new().encode(&self.registry.gather(), &mut text) {
            tracing::error!(%error, "failed to render metrics");
        }
        text
    }
}

const SERIES: usize = Method::ALL.len() * Outcome::ALL.len();

/// The metrics of one agent.
pub struct AgentMetrics {
    pub(super) all: Arc<Metrics>,
    pub(super) name: String,
    /// By method, then outcome; created when first counted, so that unused labels take no series.
    requests: [OnceLock<IntCounter>; SERIES],
    gateway_time: Histogram,
    agent_time: Histogram,
    open_streams: IntGauge,
    events: IntCounter,
}

impl AgentMetrics {
    /// Counts a completed request.
    pub fn request(&self, method: Method, outcome: Outcome) {
        if let Some(counter) = self.requests.get(method as usize * Outcome::ALL.len() + outcome as usize) {
            counter
                .get_or_init(|| {
                    self.all.requests.with_label_values(&[method.label(), &self.name, outcome.label()])
                })
                .inc();
        }
    }

    /// Records the latency of a request: all of it, and the part spent waiting for the agent.
    pub fn observe_latency(&self, whole: Duration, agent: Option<Duration>) {
        self.gateway_time.observe(whole.saturating_sub(agent.unwrap_or_default()).as_secs_f64());
        if let Some(agent) = agent {
            self.agent_time.observe(agent.as_secs_f64());
        }
    }

    /// Counts an event stream as open until the guard is dropped.
    pub fn stream(&self) -> GaugeGuard {
        GaugeGuard::new([Some(&self.open_streams), Some(&self.all.all_streams)])
    }

    /// Counts translated events.
    pub fn events(&self, count: u64) {
        self.events.inc_by(count);
    }

    /// Sets the `up` gauge: true if the agent can be used.
    pub fn up(&self, up: bool) {
        self.all.agent_up.with_label_values(&[&self.name]).set(i64::from(up));
    }

    /// Counts a fetch of the agent's card.
    pub fn card_refresh(&self, outcome: Refresh) {
        self.all.card_refreshes.with_label_values(&[self.name.as_str(), outcome.label()]).inc();
    }

    /// Counts a failed HTTP exchange, by the transport's label for the kind (a closed set, never a
    /// peer's text).
    pub fn transport_error(&self, kind: &'static str) {
        self.all.transport_errors.with_label_values(&[self.name.as_str(), kind]).inc();
    }

    /// Counts a task that must be polled, because its stream broke off.
    pub fn reattached(&self) {
        self.all.tasks.reattached(&self.name);
    }

    /// Counts a task that does not change any more although it has not ended.
    pub fn stalled(&self) {
        self.all.tasks.stalled(&self.name);
    }
}

/// A gauge that is raised until this is dropped.
#[must_use = "it is counted until this is dropped"]
pub struct GaugeGuard([Option<IntGauge>; 2]);

impl GaugeGuard {
    fn new(gauges: [Option<&IntGauge>; 2]) -> Self {
        gauges.iter().flatten().for_each(|gauge| gauge.inc());
        Self(gauges.map(Option::<&IntGauge>::cloned))
    }
}

impl Drop for GaugeGuard {
    fn drop(&mut self) {
        self.0.iter().flatten().for_each(IntGauge::dec);
    }
}

pub(super) fn register<C: Collector + Clone + 'static>(
    registry: &Registry,
    metric: C,
) -> Result<C, prometheus::Error> {
    registry.register(Box::new(metric.clone()))?;
    Ok(metric)
}

#[cfg(test)]
mod tests {
    use super::super::label::Asked;
    use super::super::tasks::TaskCounts;
    use super::*;

    fn text(metrics: &Metrics) -> String {
        String::from_utf8(metrics.render()).unwrap()
    }

    #[test]
    fn what_is_counted_is_rendered() {
        let metrics = Metrics::new().unwrap();
        let agent = metrics.agent("weather");
        agent.request(Method::of("tools/call"), Outcome::Ok);
        agent.request(Method::of("tools/call"), Outcome::Ok);
        agent.request(Method::of("tools/call"), Outcome::AgentFault);
        metrics.no_agent().request(Method::of("made/up\n\"by\" a peer"), Outcome::ClientFault);
        agent.observe_latency(Duration::from_millis(300), Some(Duration::from_millis(299)));
        agent.events(3);
        agent.up(true);
        agent.card_refresh(Refresh::Failed);
        agent.transport_error("idle_timeout");
        metrics.refused(Refusal::Unauthenticated);
        metrics.record_push(Push::OtherTask);
        metrics.panicked();
        metrics.tasks.asked(Asked::Mrtr);
        metrics.tasks.answered();
        const NO_TASKS: TaskCounts = TaskCounts {
            tasks: 0,
            bytes: 0,
            polled: 0,
            evicted: 0,
            store_failures: 0,
            is_store_failing: false,
        };
        metrics.tasks.set(TaskCounts { tasks: 9, bytes: 9999, polled: 9, evicted: 2, ..NO_TASKS });
        metrics.tasks.set(TaskCounts { tasks: 7, bytes: 7777, polled: 5, evicted: 3, ..NO_TASKS });
        agent.reattached();
        let text = text(&metrics);
        for line in [
            r#"mcp_a2a_gateway_requests_total{agent="weather",method="tools/call",outcome="ok"} 2"#,
            r#"mcp_a2a_gateway_requests_total{agent="weather",method="tools/call",outcome="agent_fault"} 1"#,
            r#"mcp_a2a_gateway_requests_total{agent="",method="other",outcome="client_fault"} 1"#,
            r#"mcp_a2a_gateway_request_duration_seconds_bucket{agent="weather",part="gateway",le="0.0025"} 1"#,
            r#"mcp_a2a_gateway_request_duration_seconds_bucket{agent="weather",part="agent",le="0.25"} 0"#,
            r#"mcp_a2a_gateway_events_translated_total{agent="weather"} 3"#,
            r#"mcp_a2a_gateway_agent_up{agent="weather"} 1"#,
            r#"mcp_a2a_gateway_card_refreshes_total{agent="weather",outcome="failed"} 1"#,
            r#"mcp_a2a_gateway_transport_errors_total{agent="weather",kind="idle_timeout"} 1"#,
            r#"mcp_a2a_gateway_refused_total{reason="unauthenticated"} 1"#,
            r#"mcp_a2a_gateway_refused_total{reason="rate_limited"} 0"#,
            r#"mcp_a2a_gateway_pushes_total{outcome="other_task"} 1"#,
            "mcp_a2a_gateway_panics_total 1",
            r#"mcp_a2a_gateway_questions_total{form="mrtr"} 1"#,
            r#"mcp_a2a_gateway_questions_total{form="handle"} 0"#,
            "mcp_a2a_gateway_answers_total 1",
            "mcp_a2a_gateway_tasks 7",
            "mcp_a2a_gateway_task_bytes 7777",
            "mcp_a2a_gateway_polled_tasks 5",
            "mcp_a2a_gateway_tasks_evicted_total 5",
            r#"mcp_a2a_gateway_reattachments_total{agent="weather"} 1"#,
        ] {
            assert!(text.lines().any(|shown| shown == line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn guards_count_while_they_live() {
        let metrics = Metrics::new().unwrap();
        let (weather, news) = (metrics.agent("weather"), metrics.agent("news"));
        let (first, second) = (weather.stream(), news.stream());
        let background = metrics.in_background();
        assert_eq!(metrics.open_streams(), 2);
        assert!(text(&metrics).contains("mcp_a2a_gateway_background_exchanges 1"));
        drop((first, background));
        assert_eq!(metrics.open_streams(), 1);
        assert!(text(&metrics).contains("mcp_a2a_gateway_background_exchanges 0"));
        drop(second);
    }

    #[test]
    fn two_gateways_in_one_process_do_not_mix() {
        let (one, two) = (Metrics::new().unwrap(), Metrics::new().unwrap());
        one.panicked();
        assert!(text(&two).contains("panics_total 0"));
    }

    #[test]
    fn two_handles_of_an_agent_count_together() {
        let metrics = Metrics::new().unwrap();
        (0..2).for_each(|_| metrics.agent("weather").request(Method::of("ping"), Outcome::Ok));
        assert!(text(&metrics).contains(r#"method="ping",outcome="ok"} 2"#));
    }

    #[test]
    fn a_forgotten_agent_is_neither_up_nor_down() {
        let metrics = Metrics::new().unwrap();
        metrics.agent("weather").up(false);
        ["weather", "never there"].iter().for_each(|name| metrics.forget_agent(name));
        assert!(!text(&metrics).contains("agent_up{"));
    }
}
