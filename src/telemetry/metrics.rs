//! The gateway's metrics, in a registry of their own.
//!
//! Every label comes from a closed set: methods, outcomes and reasons are enums here, agents are
//! those of the configuration. So no peer can create series. Counters of the hot path are resolved
//! once per agent, not per request. See also `tasks`.

use std::array;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use prometheus::core::Collector;
use prometheus::proto::{Metric, MetricFamily};
use prometheus::{
    Encoder, GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge,
    IntGaugeVec, Opts, Registry, TextEncoder,
};

use super::label::{Asked, Handshake, Method, Outcome, Push, Refresh, Refusal, Reload, Token};
use super::log_buffer::dropped_lines;
pub(crate) use super::process::ConfigMetrics;
use super::process::EdgeMetrics;
pub(crate) use super::process::EndpointMetrics;
use super::process::LoadBalancerMetrics;
use super::process::ProcessMetrics;
pub(crate) use super::process::QueueMetrics;
pub(crate) use super::process::ResponseMetrics;
pub(crate) use super::process::SpanMetrics;
use super::process::forget_series;
use crate::sync::lock;

/// The agent label of requests that no agent serves, such as `initialize`.
const NO_AGENT: &str = "";

/// Seconds. The gateway's own part is in the first ones, objectives for calls are in the others.
const BUCKETS: [f64; 16] = [
    0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 15.0, 60.0, 120.0,
];

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
            Self::Requests => ("requests_total", "Requests that have ended, by method, agent and outcome."),
            Self::Duration => {
                ("request_duration_seconds", "Time of a request, spent in the gateway or at the agent.")
            }
            Self::OpenStreams => ("open_streams", "Event streams open to clients."),
            Self::Events => (
                "events_translated_total",
                "Responses and stream events of agents, translated for a waiting client.",
            ),
            Self::Background => {
                ("background_exchanges", "Exchanges with agents that continue without their client.")
            }
            Self::AgentUp => ("agent_up", "1 if the last request for the agent's card succeeded."),
            Self::CardRefreshes => ("card_refreshes_total", "Fetches of agents' cards, by outcome."),
            Self::TransportErrors => {
                ("transport_errors_total", "Failed HTTP exchanges with agents, by kind.")
            }
            Self::Refused => (
                "refused_total",
                "Requests refused before an agent was contacted, by reason; caller_bytes and bytes also count responses of agents.",
            ),
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
    credentials: CredentialMetrics,
    /// The metrics of addresses that are not called.
    pub(crate) outbound: OutboundMetrics,
    edge: EdgeMetrics,
    /// The metrics of exported spans.
    pub(crate) spans: SpanMetrics,
    /// The metrics of tasks.
    pub(crate) tasks: TaskMetrics,
    /// State that replicas share.
    pub(crate) state: SharedStateMetrics,
    /// The metrics of TLS towards clients.
    pub(crate) tls: TlsMetrics,
    /// The metrics of the configuration.
    pub(crate) config: ConfigMetrics,
}

impl Metrics {
    /// Creates and registers them all.
    ///
    /// # Errors
    ///
    /// Prometheus's, which only a mistake in this module can cause.
    pub fn new() -> Result<Arc<Self>, prometheus::Error> {
        let registry = Registry::new();
        let build = GaugeVec::new(opts("build_info", "Always 1; the version of the gateway."), &["version"])?;
        register(&registry, build)?.with_label_values(&[env!("CARGO_PKG_VERSION")]).set(1.0);
        registry.register(Box::new(ProcessMetrics::new()?))?;
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
                IntGauge::with_opts(opts(
                    "held_bytes",
                    "Bytes that requests and responses hold; at most limits.bytes.",
                ))?,
            )?,
            refused: Refusal::ALL.map(|reason| refused.with_label_values(&[reason.label()])),
            pushes: Push::ALL.map(|outcome| pushes.with_label_values(&[outcome.label()])),
            panics: register(&registry, IntCounter::with_opts(MetricName::Panics.opts())?)?,
            balance: LoadBalancerMetrics::new(&registry)?,
            credentials: CredentialMetrics::new(&registry)?,
            outbound: OutboundMetrics::new(&registry)?,
            edge: EdgeMetrics::new(&registry)?,
            spans: SpanMetrics::new(&registry)?,
            tasks: TaskMetrics::new(&registry)?,
            state: SharedStateMetrics::new(&registry)?,
            tls: TlsMetrics::new(&registry)?,
            config: ConfigMetrics::new(&registry)?,
            registry,
        }))
    }

    /// Returns the metrics of one configured agent, resolved. Keep it as long as the agent.
    #[must_use]
    pub(crate) fn agent(self: &Arc<Self>, name: &str) -> Arc<AgentMetrics> {
        Arc::new(AgentMetrics {
            durations: array::from_fn(|_| OnceLock::new()),
            open_streams: OnceLock::new(),
            events: OnceLock::new(),
            requests: array::from_fn(|_| OnceLock::new()),
            all: Arc::clone(self),
            name: name.to_owned(),
            is_forgotten: AtomicBool::new(false),
        })
    }

    /// Returns the metrics of requests that no agent serves.
    #[must_use]
    pub(crate) fn no_agent(self: &Arc<Self>) -> Arc<AgentMetrics> {
        self.agent(NO_AGENT)
    }

    /// Removes the series of an agent that has left the configuration. Calls of it that still run
    /// are counted no more.
    pub fn forget_agent(&self, name: &str) {
        let balance = &self.balance;
        let counters = [
            &self.requests,
            &self.events,
            &self.card_refreshes,
            &self.transport_errors,
            &balance.requests,
            &balance.failures,
            &balance.ejections,
            &balance.probes,
            &self.credentials.tokens,
            &self.credentials.reloads,
        ];
        counters.into_iter().for_each(|series| forget_series(series, name));
        let gauges =
            [&self.open_streams, &self.agent_up, &self.edge.agent_certificates, &balance.up, &balance.queued];
        gauges.into_iter().for_each(|series| forget_series(series, name));
        [&self.duration, &balance.waits].into_iter().for_each(|series| forget_series(series, name));
    }

    /// Returns the gauge of the open connections of a listener.
    pub(crate) fn connections(&self, listener: &str) -> IntGauge {
        self.edge.connections.with_label_values(&[listener])
    }

    /// Returns the counters of the responses of a listener, resolved.
    pub(crate) fn responses(&self, listener: &str) -> ResponseMetrics {
        ResponseMetrics::new(&self.edge.responses, listener)
    }

    /// Counts a request that was rejected before any agent was contacted.
    pub(crate) fn refused(&self, reason: Refusal) {
        if let Some(counter) = self.refused.get(reason as usize) {
            counter.inc();
        }
    }

    /// Sets the number of bytes that requests and responses hold now.
    pub fn holds(&self, bytes: usize) {
        self.held_bytes.set(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    /// Counts a push notification.
    pub(crate) fn record_push(&self, outcome: Push) {
        if let Some(counter) = self.pushes.get(outcome as usize) {
            counter.inc();
        }
    }

    /// Counts a panic.
    pub fn panicked(&self) {
        self.panics.inc();
    }

    /// Counts an exchange as running in the background until the guard is dropped.
    pub(crate) fn in_background(&self) -> GaugeGuard {
        GaugeGuard::new([Some(&self.background), None])
    }

    /// Returns the number of event streams open now, over all agents.
    #[must_use]
    pub fn open_streams(&self) -> i64 {
        self.all_streams.get()
    }

    /// Returns the number of open event streams by agent, where there are any.
    pub(crate) fn streams_by_agent(&self) -> BTreeMap<String, i64> {
        let mut streams = BTreeMap::new();
        for metric in self.open_streams.collect().iter().flat_map(MetricFamily::get_metric) {
            // A count is a whole number.
            let count = metric.get_gauge().get_value() as i64;
            let agent = metric.get_label().iter().map(|label| label.value().to_owned()).next();
            if count != 0 {
                streams.insert(agent.unwrap_or_default(), count);
            }
        }
        streams
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

/// The sums of metrics over all agents at one moment.
#[derive(Debug, Default)]
pub(crate) struct MetricsSample {
    /// Requests that have ended, by outcome.
    pub(crate) outcomes: BTreeMap<String, u64>,
    /// Requests that were refused.
    pub(crate) refused: u64,
    /// Open streams.
    pub(crate) streams: i64,
    /// Durations of the gateway's own part.
    pub(crate) gateway_buckets: Vec<BucketCount>,
    /// Durations of the agents' part.
    pub(crate) agent_buckets: Vec<BucketCount>,
}

/// A bucket of a histogram: the number of values up to its bound.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct BucketCount {
    /// The bound, in seconds.
    pub(crate) upper_bound: f64,
    /// The number of values.
    pub(crate) count: u64,
}

impl Metrics {
    /// Returns the sums over all agents.
    pub(crate) fn sample(&self) -> MetricsSample {
        let label = |metric: &Metric, name: &str| {
            let found = metric.get_label().iter().find(|label| label.name() == name);
            found.map(|label| label.value().to_owned()).unwrap_or_default()
        };
        let mut sample = MetricsSample { streams: self.open_streams(), ..MetricsSample::default() };
        for metric in self.requests.collect().iter().flat_map(MetricFamily::get_metric) {
            // A count is a whole number.
            let count = metric.get_counter().get_value() as u64;
            *sample.outcomes.entry(label(metric, "outcome")).or_default() += count;
        }
        for metric in self.duration.collect().iter().flat_map(MetricFamily::get_metric) {
            let histogram = metric.get_histogram();
            let sums = match label(metric, "part").as_str() {
                "gateway" => &mut sample.gateway_buckets,
                "agent" => &mut sample.agent_buckets,
                // The sum of both.
                _ => continue,
            };
            let last = BucketCount { upper_bound: f64::INFINITY, count: histogram.get_sample_count() };
            let buckets = histogram.get_bucket().iter().map(|bucket| BucketCount {
                upper_bound: bucket.upper_bound(),
                count: bucket.cumulative_count(),
            });
            for (at, bucket) in buckets.chain([last]).enumerate() {
                match sums.get_mut(at) {
                    Some(sum) => sum.count += bucket.count,
                    None => sums.push(bucket),
                }
            }
        }
        sample.refused = self.refused.iter().map(IntCounter::get).sum();
        sample
    }
}

const SERIES: usize = Method::ALL.len() * Outcome::ALL.len();

/// The metrics of one agent.
pub(crate) struct AgentMetrics {
    pub(super) all: Arc<Metrics>,
    pub(super) name: String,
    /// By method, then outcome; created when first counted, so that unused labels take no series.
    requests: [OnceLock<IntCounter>; SERIES],
    /// By part; the series of an idle agent do not exist.
    durations: [OnceLock<Histogram>; DURATION_PARTS.len()],
    open_streams: OnceLock<IntGauge>,
    events: OnceLock<IntCounter>,
    /// True once the agent has left the configuration: no series of it begins any more.
    is_forgotten: AtomicBool,
}

/// The parts of the time of a request: in the gateway, at the agent, and both.
const DURATION_PARTS: [&str; 3] = ["gateway", "agent", "total"];

impl AgentMetrics {
    /// Removes the series of the agent: it is not in the configuration any more.
    pub(crate) fn forget(&self) {
        self.is_forgotten.store(true, Ordering::Release);
        self.all.forget_agent(&self.name);
    }

    pub(super) fn is_forgotten(&self) -> bool {
        self.is_forgotten.load(Ordering::Acquire)
    }

    /// Counts a completed request.
    pub(crate) fn request(&self, method: Method, outcome: Outcome) {
        if self.is_forgotten() {
            return;
        }
        if let Some(counter) = self.requests.get(method as usize * Outcome::ALL.len() + outcome as usize) {
            counter
                .get_or_init(|| {
                    self.all.requests.with_label_values(&[method.label(), &self.name, outcome.label()])
                })
                .inc();
        }
    }

    /// Records the latency of a request: all of it, and the part spent waiting for the agent.
    pub(crate) fn observe_latency(&self, whole: Duration, agent: Option<Duration>) {
        if self.is_forgotten() {
            return;
        }
        let gateway = whole.saturating_sub(agent.unwrap_or_default());
        let times = [Some(gateway), agent, Some(whole)];
        for ((time, histogram), part) in times.into_iter().zip(&self.durations).zip(DURATION_PARTS) {
            if let Some(time) = time {
                let series = || self.all.duration.with_label_values(&[self.name.as_str(), part]);
                histogram.get_or_init(series).observe(time.as_secs_f64());
            }
        }
    }

    /// Returns the name of the agent.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Sets the expiry of the client certificate for the agent, in seconds since 1970.
    pub(crate) fn set_certificate_expiry(&self, seconds: i64) {
        self.all.edge.agent_certificates.with_label_values(&[&self.name]).set(seconds);
    }

    /// Counts an event stream as open until the guard is dropped.
    pub(crate) fn stream(&self) -> GaugeGuard {
        let series = || self.all.open_streams.with_label_values(&[&self.name]);
        let own = (!self.is_forgotten()).then(|| self.open_streams.get_or_init(series));
        GaugeGuard::new([own, Some(&self.all.all_streams)])
    }

    /// Counts translated events.
    pub(crate) fn events(&self, count: u64) {
        if count > 0 && !self.is_forgotten() {
            self.events.get_or_init(|| self.all.events.with_label_values(&[&self.name])).inc_by(count);
        }
    }

    /// Sets the `up` gauge: true if the agent can be used.
    pub(crate) fn up(&self, up: bool) {
        if !self.is_forgotten() {
            self.all.agent_up.with_label_values(&[&self.name]).set(i64::from(up));
        }
    }

    /// Counts a fetch of the agent's card.
    pub(crate) fn card_refresh(&self, outcome: Refresh) {
        self.all.card_refreshes.with_label_values(&[self.name.as_str(), outcome.label()]).inc();
    }

    /// Counts a failed HTTP exchange, by the transport's label for the kind (a closed set, never a
    /// peer's text).
    pub(crate) fn transport_error(&self, kind: &'static str) {
        if !self.is_forgotten() {
            self.all.transport_errors.with_label_values(&[self.name.as_str(), kind]).inc();
        }
    }

    /// Counts a task that must be polled, because its stream broke off.
    pub(crate) fn reattached(&self) {
        self.all.tasks.reattached(&self.name);
    }

    /// Counts a task that does not change any more although it has not ended.
    pub(crate) fn stalled(&self) {
        self.all.tasks.stalled(&self.name);
    }
}

/// A gauge that is raised until this is dropped.
#[must_use = "it is counted until this is dropped"]
pub(crate) struct GaugeGuard([Option<IntGauge>; 2]);

impl GaugeGuard {
    pub(super) fn new(gauges: [Option<&IntGauge>; 2]) -> Self {
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
    #[cfg(test)]
    tests::record(&metric);
    Ok(metric)
}

/// The numbers of tasks at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TaskCounts {
    /// Tasks in the map.
    pub(crate) tasks: usize,
    /// The approximate number of bytes that they take there.
    pub(crate) bytes: usize,
    /// Tasks that are kept compressed.
    pub(crate) compressed: usize,
    /// Tasks that are polled in turn.
    pub(crate) polled: usize,
    /// Tasks with a stream that is read without a client.
    pub(crate) followed: usize,
    /// Evicted for others since the previous counts.
    pub(crate) evicted: u64,
    /// Transactions of the store that failed, since the start.
    pub(crate) store_failures: u64,
    /// True if the store's disk accepts no writes now.
    pub(crate) is_store_failing: bool,
}

/// The metrics of state that replicas share; all 0 without an engine.
#[derive(Debug)]
pub(crate) struct SharedStateMetrics {
    available: IntGauge,
    failures: IntCounter,
    waiting: IntGauge,
    leases: IntGauge,
}

impl SharedStateMetrics {
    fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let gauge = |name, help| register(registry, IntGauge::with_opts(opts(name, help))?);
        Ok(Self {
            available: gauge("state_available", "1 while the engine of shared state answers.")?,
            failures: register(
                registry,
                IntCounter::with_opts(opts(
                    "state_failures_total",
                    "Operations on shared state without a result; this replica decides alone then.",
                ))?,
            )?,
            waiting: gauge("state_waiting_rows", "Rows that wait for the engine of shared state.")?,
            leases: gauge("state_leases", "Tasks that this replica follows for all replicas.")?,
        })
    }

    /// Sets the numbers: rows that wait, and leases.
    pub(crate) fn set(&self, is_available: bool, failures: u64, [waiting, leases]: [usize; 2]) {
        let shown = |count| i64::try_from(count).unwrap_or(i64::MAX);
        self.available.set(i64::from(is_available));
        self.failures.inc_by(failures.saturating_sub(self.failures.get()));
        self.waiting.set(shown(waiting));
        self.leases.set(shown(leases));
    }
}

/// The metrics of tasks.
#[derive(Debug)]
pub(crate) struct TaskMetrics {
    tasks: IntGauge,
    bytes: IntGauge,
    compressed: IntGauge,
    polled: IntGauge,
    followed: IntGauge,
    evicted: IntCounter,
    store_failures: IntCounter,
    store_failing: IntGauge,
    asked: [IntCounter; Asked::ALL.len()],
    answers: IntCounter,
    reattachments: IntCounterVec,
    stalled: IntCounterVec,
}

impl TaskMetrics {
    fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let gauge = |name, help| register(registry, IntGauge::with_opts(opts(name, help))?);
        let counter = |name, help| register(registry, IntCounter::with_opts(opts(name, help))?);
        let counters =
            |name, help, label| register(registry, IntCounterVec::new(opts(name, help), &[label])?);
        let asked = counters(
            "questions_total",
            "Questions of agents sent to clients, by form, except those that clients read with tasks/get.",
            "form",
        )?;
        Ok(Self {
            tasks: gauge("tasks", "Tasks in the map; at most tasks.max.")?,
            bytes: gauge("task_bytes", "Approximate size of the tasks in the map; at most tasks.max_bytes.")?,
            compressed: gauge(
                "compressed_tasks",
                "Finished tasks in the map that are compressed, as they were not used for tasks.compress_after.",
            )?,
            polled: gauge(
                "polled_tasks",
                "Tasks that are polled in turn, because streams are at background.max or because the agent pushes.",
            )?,
            followed: gauge(
                "followers",
                "Streams of tasks that are read without a client; at most background.max.",
            )?,
            evicted: counter(
                "tasks_evicted_total",
                "Tasks evicted from the map before their time; their handles work while the agent knows them.",
            )?,
            store_failures: counter(
                "task_store_failures_total",
                "Failed writes of tasks to tasks.data_dir; they are repeated every 5 s.",
            )?,
            store_failing: gauge("task_store_failing", "1 while tasks cannot be written to tasks.data_dir.")?,
            asked: Asked::ALL.map(|form| asked.with_label_values(&[form.label()])),
            answers: counter("answers_total", "Answers of users forwarded to agents.")?,
            reattachments: counters(
                "reattachments_total",
                "Streams of tasks that broke, so that the agent was asked for the state of the task.",
                "agent",
            )?,
            stalled: counters(
                "tasks_stalled_total",
                "Tasks that did not change for streams.stalled_after after their agent ended the stream and not the task.",
                "agent",
            )?,
        })
    }

    /// Sets the gauges of tasks.
    pub(crate) fn set(&self, census: TaskCounts) {
        let shown = |count| i64::try_from(count).unwrap_or(i64::MAX);
        self.tasks.set(shown(census.tasks));
        self.bytes.set(shown(census.bytes));
        self.compressed.set(shown(census.compressed));
        self.polled.set(shown(census.polled));
        self.followed.set(shown(census.followed));
        self.evicted.inc_by(census.evicted);
        self.store_failures.inc_by(census.store_failures.saturating_sub(self.store_failures.get()));
        self.store_failing.set(i64::from(census.is_store_failing));
    }

    /// Counts a question that was sent to a client.
    pub(crate) fn asked(&self, form: Asked) {
        if let Some(counter) = self.asked.get(form as usize) {
            counter.inc();
        }
    }

    /// Counts an answer that is sent to the agent.
    pub(crate) fn answered(&self) {
        self.answers.inc();
    }

    fn reattached(&self, agent: &str) {
        self.reattachments.with_label_values(&[agent]).inc();
    }

    fn stalled(&self, agent: &str) {
        self.stalled.with_label_values(&[agent]).inc();
    }
}

/// The metrics of agents' credentials.
#[derive(Debug)]
struct CredentialMetrics {
    tokens: IntCounterVec,
    reloads: IntCounterVec,
}

impl CredentialMetrics {
    fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let counters =
            |name, help| register(registry, IntCounterVec::new(opts(name, help), &["agent", "outcome"])?);
        Ok(Self {
            tokens: counters("tokens_total", "Tokens for agents, by outcome.")?,
            reloads: counters(
                "credential_reloads_total",
                "Changes of files with credentials of agents, and with keys that sign cards, by outcome.",
            )?,
        })
    }
}

impl AgentMetrics {
    /// Counts the outcome of a token.
    pub(crate) fn token(&self, outcome: Token) {
        self.all.credentials.tokens.with_label_values(&[self.name.as_str(), outcome.label()]).inc();
    }

    /// Counts a change of a file that holds credentials.
    pub(crate) fn reload(&self, outcome: Reload) {
        self.all.credentials.reloads.with_label_values(&[self.name.as_str(), outcome.label()]).inc();
    }
}

/// The metrics of refused addresses. Clones count together.
#[derive(Debug, Clone)]
pub(crate) struct OutboundMetrics {
    refused: IntCounterVec,
}

impl OutboundMetrics {
    fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let opts = opts("outbound_refused_total", "Destinations that the address policy refused, by reason.");
        Ok(Self { refused: register(registry, IntCounterVec::new(opts, &["reason"])?)? })
    }

    /// Counts a refused address. The reason is a label of the gateway's own, never a peer's text.
    pub(crate) fn refused(&self, reason: &'static str) {
        self.refused.with_label_values(&[reason]).inc();
    }
}

/// The metrics of TLS of one gateway.
pub(crate) struct TlsMetrics {
    handshakes: IntCounterVec,
    reloads: IntCounterVec,
    ends: IntGaugeVec,
}

/// An expiry: its kind, its name, and its time in seconds since 1970.
pub(crate) type Expiry = (&'static str, String, i64);

/// The metrics of one listener, resolved.
pub(crate) struct ListenerMetrics {
    listener: String,
    handshakes: [IntCounter; Handshake::ALL.len()],
    reloads: [IntCounter; Reload::ALL.len()],
    ends: IntGaugeVec,
    shown: Mutex<Vec<Expiry>>,
}

impl TlsMetrics {
    fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let handshakes = opts("tls_handshakes_total", "TLS handshakes with clients, by outcome.");
        let reloads = opts("tls_reloads_total", "Reloads of certificates and revocation lists, by outcome.");
        let ends = opts(
            "tls_expiry_timestamp_seconds",
            "Expiry of certificates (the first of a chain), authorities and revocation lists, in seconds since 1970.",
        );
        Ok(Self {
            handshakes: register(registry, IntCounterVec::new(handshakes, &["listener", "outcome"])?)?,
            reloads: register(registry, IntCounterVec::new(reloads, &["listener", "outcome"])?)?,
            ends: register(registry, IntGaugeVec::new(ends, &["listener", "kind", "name"])?)?,
        })
    }

    /// Returns the metrics of the listener at this address. Keep it as long as the listener.
    #[must_use]
    pub(crate) fn listener(&self, address: &str) -> Arc<ListenerMetrics> {
        Arc::new(ListenerMetrics {
            listener: address.to_owned(),
            handshakes: Handshake::ALL
                .map(|outcome| self.handshakes.with_label_values(&[address, outcome.label()])),
            reloads: Reload::ALL.map(|outcome| self.reloads.with_label_values(&[address, outcome.label()])),
            ends: self.ends.clone(),
            shown: Mutex::default(),
        })
    }
}

impl ListenerMetrics {
    /// Counts a handshake.
    pub(crate) fn handshake(&self, outcome: Handshake) {
        if let Some(counter) = self.handshakes.get(outcome as usize) {
            counter.inc();
        }
    }

    /// Counts a reload of the files.
    pub(crate) fn reload(&self, outcome: Reload) {
        if let Some(counter) = self.reloads.get(outcome as usize) {
            counter.inc();
        }
    }

    /// Sets the expiries of all that the listener uses, and removes those of the past.
    pub(crate) fn set_expiries(&self, ends: Vec<Expiry>) {
        let mut shown = lock(&self.shown);
        for (kind, name, _) in shown.iter() {
            // Fails only for a name that existed twice.
            drop(self.ends.remove_label_values(&[&self.listener, *kind, name]));
        }
        for (kind, name, seconds) in &ends {
            let gauge = self.ends.with_label_values(&[&self.listener, *kind, name]);
            // Of two with one name the first to expire is set.
            let first = if gauge.get() == 0 { *seconds } else { gauge.get().min(*seconds) };
            gauge.set(first);
        }
        *shown = ends;
    }
}

#[cfg(test)]
mod tests {
    use super::super::label::{Asked, SpanOutcome};
    use super::super::metrics::Metrics;
    use super::*;

    fn text(metrics: &Metrics) -> String {
        String::from_utf8(metrics.render()).unwrap()
    }

    thread_local! {
        /// The rows of the reference for the metrics that this thread registered.
        static ROWS: std::cell::RefCell<Vec<String>> = const { std::cell::RefCell::new(Vec::new()) };
    }

    /// Adds the row of a metric that is registered.
    pub(super) fn record(metric: &impl Collector) {
        let family = metric.collect().pop().unwrap();
        let kind = format!("{:?}", family.get_field_type()).to_lowercase();
        for described in metric.desc() {
            let labels: Vec<String> =
                described.variable_labels.iter().map(|label| format!("`{label}`")).collect();
            let labels = if labels.is_empty() { "–".to_owned() } else { labels.join(", ") };
            let row = format!("| `{}` | {kind} | {labels} | {} |\n", described.fq_name, described.help);
            ROWS.with_borrow_mut(|rows| rows.push(row));
        }
    }

    /// The section of one closed set of labels.
    fn values<const N: usize>(heading: &str, labels: [&str; N], comments: [&str; N]) -> String {
        let mut section = format!("\n## {heading}\n\n| Value | Meaning |\n|---|---|\n");
        for (label, comment) in labels.into_iter().zip(comments) {
            let comment = comment.replace("doc = r\"", "").replace("doc = \"", "").replace('"', "");
            section += &format!("| `{label}` | {} |\n", comment.trim());
        }
        section
    }

    /// The page of the metrics, from their declarations.
    fn metrics_reference() -> String {
        ROWS.with_borrow_mut(Vec::clear);
        let metrics = Metrics::new().unwrap();
        drop(metrics);
        let mut rows = ROWS.with_borrow_mut(std::mem::take);
        let lines = dropped_lines().unwrap();
        record(lines);
        let process = ProcessMetrics::new().unwrap();
        process.gauges.iter().for_each(record);
        record(&process.cpu);
        rows.extend(ROWS.with_borrow_mut(std::mem::take));
        rows.sort();
        let mut page = HEAD.to_owned() + &rows.concat();
        page += &values("`outcome` of requests", Outcome::ALL.map(Outcome::label), Outcome::COMMENTS);
        page += &values("`reason` of refused requests", Refusal::ALL.map(Refusal::label), Refusal::COMMENTS);
        page += &values("`outcome` of pushes", Push::ALL.map(Push::label), Push::COMMENTS);
        page += &values("`form` of questions", Asked::ALL.map(Asked::label), Asked::COMMENTS);
        page += &values("`outcome` of card refreshes", Refresh::ALL.map(Refresh::label), Refresh::COMMENTS);
        page += &values("`outcome` of tokens", Token::ALL.map(Token::label), Token::COMMENTS);
        page +=
            &values("`outcome` of spans", SpanOutcome::ALL.map(SpanOutcome::label), SpanOutcome::COMMENTS);
        page += &values("`outcome` of reloads", Reload::ALL.map(Reload::label), Reload::COMMENTS);
        page += &values(
            "`outcome` of reloads of the configuration",
            crate::telemetry::label::ConfigReload::ALL.map(crate::telemetry::label::ConfigReload::label),
            crate::telemetry::label::ConfigReload::COMMENTS,
        );
        page += &values(
            "`outcome` of readings of a source of agents",
            crate::telemetry::label::SourcePoll::ALL.map(crate::telemetry::label::SourcePoll::label),
            crate::telemetry::label::SourcePoll::COMMENTS,
        );
        page +=
            &values("`outcome` of TLS handshakes", Handshake::ALL.map(Handshake::label), Handshake::COMMENTS);
        page + &values("`method` of requests", Method::ALL.map(Method::label), Method::COMMENTS)
    }

    #[test]
    fn reference_of_metrics_is_current() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/reference/metrics.md");
        let generated = metrics_reference();
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(path, &generated).unwrap();
        }
        let written = std::fs::read_to_string(path).unwrap_or_default();
        assert!(written == generated, "regenerate it: UPDATE=1 cargo test --lib reference");
    }

    /// The page of the metrics before its tables.
    const HEAD: &str = "# Metrics\n\nGenerated from the source by `UPDATE=1 cargo test --lib reference`; not to be edited.\n\n\
        The admin listener serves them at `/metrics`, in the text format of Prometheus. `agent` is a name of the configuration; \
        `agent=\"\"` is a request\nthat no agent serves. `part` is `gateway` (time spent here), `agent` (time spent waiting for the agent) or `total`. \
        `listener` is the\nconfigured address of a listener. `status` is the class of an HTTP status, such as `2xx`; `none` is a request without a response. \
        `endpoint` is the number of an endpoint\nfrom 0, or the method that has a URL of its own. `kind` of an expiry is `certificate`, \
        `ca` or `crl`. All labels are from closed sets, so that no peer\ncan create a series. Series of an agent begin when there is something to count: an idle agent has \
        `agent_up`, `card_refreshes_total`\nand one `endpoint_up` for each endpoint, about 300 bytes of a scrape. A busy one adds at most one `requests_total` for each method and \
        outcome\nthat occurred, and 3 durations of 18 lines each.\n\n\
        | Name | Type | Labels | Meaning |\n|---|---|---|---|\n";

    #[test]
    fn counters_are_rendered() {
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
            compressed: 0,
            polled: 0,
            followed: 0,
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
    fn idle_agents_take_few_series() {
        let metrics = Metrics::new().unwrap();
        let agents: Vec<_> = (0..500).map(|number| metrics.agent(&format!("{number:032}"))).collect();
        let held: Vec<_> = agents
            .iter()
            .map(|agent| {
                agent.up(true);
                agent.card_refresh(Refresh::ALL[0]);
                (agent.endpoint("0"), agent.queue())
            })
            .collect();
        let text = text(&metrics);
        assert_eq!(text.matches("agent_up{").count(), held.len());
        assert!(text.len() <= 300_000, "{} bytes", text.len());
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

    #[test]
    fn unused_series_are_removed() {
        let metrics = Metrics::new().unwrap();
        let listener = metrics.tls.listener("127.0.0.1:8443");
        listener.handshake(Handshake::Revoked);
        listener.reload(Reload::Refused);
        listener.set_expiries(vec![("certificate", "old".into(), 5), ("ca", "CN=a".into(), 9)]);
        listener.set_expiries(vec![("certificate", "new".into(), 8), ("certificate", "new".into(), 7)]);
        let text = String::from_utf8(metrics.render()).unwrap();
        for line in [
            r#"mcp_a2a_gateway_tls_handshakes_total{listener="127.0.0.1:8443",outcome="revoked"} 1"#,
            r#"mcp_a2a_gateway_tls_handshakes_total{listener="127.0.0.1:8443",outcome="ok"} 0"#,
            r#"mcp_a2a_gateway_tls_reloads_total{listener="127.0.0.1:8443",outcome="refused"} 1"#,
            r#"mcp_a2a_gateway_tls_expiry_timestamp_seconds{kind="certificate",listener="127.0.0.1:8443",name="new"} 7"#,
        ] {
            assert!(text.lines().any(|shown| shown == line), "{line} is not in\n{text}");
        }
        assert!(!text.contains(r#"name="old""#) && !text.contains("CN=a"), "{text}");
    }
}
