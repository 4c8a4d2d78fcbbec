//! The recent past for the page of operators: samples of the metrics, and lines of the audit log.
//!
//! Both are rings of a fixed length in memory, and neither costs anything while there is no page.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Serialize;

use super::log_line::Sanitized;
use super::metrics::{BucketCount, Metrics, MetricsSample};
use crate::sync::lock;

/// Samples that are kept: a quarter of an hour.
const MAX_SAMPLES: usize = 180;
/// Audit lines that are kept.
const MAX_AUDIT_LINES: usize = 500;

/// The interval of samples, in seconds.
pub(crate) const SAMPLE_SECONDS: u64 = 5;

static AUDIT: Mutex<VecDeque<Arc<AuditLine>>> = Mutex::new(VecDeque::new());
static KEEPS_AUDIT: AtomicBool = AtomicBool::new(false);

/// Milliseconds since 1970.
fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// A line of the audit log. Absent fields are empty.
#[derive(Debug, Default, Serialize)]
pub(crate) struct AuditLine {
    at: u64,
    /// `allowed`, `refused`, `not_admitted`, or the outcome of an access to a resource.
    decision: &'static str,
    #[serde(skip_serializing_if = "String::is_empty")]
    caller: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    method: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    agent: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    tool: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    resource: String,
    /// The rule that decided, or the reason of a failed authentication.
    #[serde(skip_serializing_if = "String::is_empty")]
    rule: String,
}

/// The texts of a line of the audit log, as peers wrote them.
#[derive(Debug, Default)]
pub(super) struct AuditFields<'a> {
    pub(super) decision: &'static str,
    pub(super) caller: &'a str,
    pub(super) method: &'a str,
    pub(super) agent: Option<&'a str>,
    pub(super) tool: Option<&'a str>,
    pub(super) resource: Option<&'a str>,
    pub(super) rule: Option<&'a str>,
}

/// Keeps the lines of the audit log from now on.
pub(crate) fn keep_audit() {
    KEEPS_AUDIT.store(true, Ordering::Release);
}

/// Keeps a line, if there is a page to show it.
pub(super) fn record_audit(fields: &AuditFields<'_>) {
    if !KEEPS_AUDIT.load(Ordering::Relaxed) {
        return;
    }
    let text = |text: Option<&str>| text.map(|text| Sanitized(text).to_string()).unwrap_or_default();
    let line = AuditLine {
        at: unix_ms(),
        decision: fields.decision,
        caller: text(Some(fields.caller)),
        method: text(Some(fields.method)),
        agent: text(fields.agent),
        tool: text(fields.tool),
        resource: text(fields.resource),
        rule: text(fields.rule),
    };
    let mut lines = lock(&AUDIT);
    if lines.len() >= MAX_AUDIT_LINES {
        lines.pop_front();
    }
    lines.push_back(Arc::new(line));
}

/// Returns the kept lines of the audit log, the newest first.
pub(crate) fn audit_lines() -> Vec<Arc<AuditLine>> {
    lock(&AUDIT).iter().rev().cloned().collect()
}

/// Samples of the metrics of one gateway.
#[derive(Default)]
pub(crate) struct MetricsHistory {
    samples: Mutex<VecDeque<TimedSample>>,
}

struct TimedSample {
    at: u64,
    sample: MetricsSample,
}

/// The requests between two samples.
#[derive(Debug, Serialize)]
pub(crate) struct IntervalReport {
    /// The end of the interval, in milliseconds since 1970.
    at: u64,
    seconds: f64,
    ok: u64,
    client_fault: u64,
    agent_fault: u64,
    gateway_fault: u64,
    other: u64,
    refused: u64,
    streams: i64,
    /// Seconds of the gateway's own part of requests.
    gateway: QuantileReport,
    /// Seconds of the agents' part.
    agent: QuantileReport,
}

/// Quantiles of the durations of an interval, in seconds; `None` without requests.
#[derive(Debug, Serialize)]
pub(crate) struct QuantileReport {
    p50: Option<f64>,
    p95: Option<f64>,
    p99: Option<f64>,
}

impl MetricsHistory {
    /// Takes a sample. To be called every [`SAMPLE_SECONDS`].
    pub(crate) fn record(&self, metrics: &Metrics) {
        let timed = TimedSample { at: unix_ms(), sample: metrics.sample() };
        let mut samples = lock(&self.samples);
        if samples.len() > MAX_SAMPLES {
            samples.pop_front();
        }
        samples.push_back(timed);
    }

    /// Returns the intervals between samples, the oldest first.
    pub(crate) fn intervals(&self) -> Vec<IntervalReport> {
        let samples = lock(&self.samples);
        samples.iter().zip(samples.iter().skip(1)).map(|(from, to)| interval(from, to)).collect()
    }
}

fn interval(from: &TimedSample, to: &TimedSample) -> IntervalReport {
    let of = |outcome: &str| {
        let count = |sample: &MetricsSample| sample.outcomes.get(outcome).copied().unwrap_or_default();
        count(&to.sample).saturating_sub(count(&from.sample))
    };
    let sum = |sample: &MetricsSample| sample.outcomes.values().sum::<u64>();
    let all = sum(&to.sample).saturating_sub(sum(&from.sample));
    let [ok, client_fault, agent_fault, gateway_fault] =
        ["ok", "client_fault", "agent_fault", "gateway_fault"].map(of);
    let known = ok + client_fault + agent_fault + gateway_fault;
    let (gateway, agent) = (
        quantiles(&from.sample.gateway_buckets, &to.sample.gateway_buckets),
        quantiles(&from.sample.agent_buckets, &to.sample.agent_buckets),
    );
    IntervalReport {
        at: to.at,
        seconds: Duration::from_millis(to.at.saturating_sub(from.at)).as_secs_f64(),
        ok,
        client_fault,
        agent_fault,
        gateway_fault,
        other: all.saturating_sub(known),
        refused: to.sample.refused.saturating_sub(from.sample.refused),
        streams: to.sample.streams,
        gateway,
        agent,
    }
}

/// Returns the quantiles of the durations that were added between two samples of a histogram.
fn quantiles(from: &[BucketCount], to: &[BucketCount]) -> QuantileReport {
    let before = |at: usize| from.get(at).map_or(0, |bucket| bucket.count);
    let added: Vec<BucketCount> = to
        .iter()
        .enumerate()
        .map(|(at, bucket)| BucketCount { count: bucket.count.saturating_sub(before(at)), ..*bucket })
        .collect();
    let [p50, p95, p99] = [0.5, 0.95, 0.99].map(|part| quantile(&added, part));
    QuantileReport { p50, p95, p99 }
}

/// Returns a quantile of cumulative counts, between the bounds of its bucket in proportion.
#[expect(clippy::cast_precision_loss, reason = "for a plot")]
fn quantile(buckets: &[BucketCount], part: f64) -> Option<f64> {
    let all = buckets.last().map(|bucket| bucket.count).filter(|count| *count > 0)?;
    let wanted = part * all as f64;
    let (mut bound, mut count) = (0.0, 0);
    for bucket in buckets {
        if bucket.count as f64 >= wanted {
            // Beyond the last bound nothing is known.
            if bucket.upper_bound.is_infinite() {
                return Some(bound);
            }
            let within = (wanted - count as f64) / (bucket.count.saturating_sub(count).max(1)) as f64;
            return Some(bound + (bucket.upper_bound - bound) * within);
        }
        (bound, count) = (bucket.upper_bound, bucket.count);
    }
    Some(bound)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buckets(counts: [u64; 3]) -> Vec<BucketCount> {
        let bounds = [0.1, 1.0, f64::INFINITY];
        bounds
            .into_iter()
            .zip(counts)
            .map(|(upper_bound, count)| BucketCount { upper_bound, count })
            .collect()
    }

    #[test]
    fn quantiles_are_those_of_the_interval() {
        for (from, to, median) in [
            ([0, 0, 0], [0, 0, 0], None),
            ([0, 0, 0], [10, 10, 10], Some(0.05)),
            ([10, 10, 10], [10, 20, 20], Some(0.55)),
            ([0, 0, 0], [0, 0, 4], Some(1.0)),
        ] {
            let found = quantiles(&buckets(from), &buckets(to)).p50;
            assert!(
                found.zip(median).is_none_or(|(one, other)| (one - other).abs() < 1e-9)
                    && found.is_some() == median.is_some(),
                "{from:?} {to:?}: {found:?}"
            );
        }
    }

    #[test]
    fn samples_are_bounded() {
        let (history, metrics) = (MetricsHistory::default(), Metrics::new().unwrap());
        metrics
            .no_agent()
            .request(crate::telemetry::label::Method::Ping, crate::telemetry::label::Outcome::Ok);
        for _ in 0..MAX_SAMPLES * 2 {
            history.record(&metrics);
        }
        let intervals = history.intervals();
        assert_eq!(intervals.len(), MAX_SAMPLES);
        assert!(intervals.iter().all(|interval| interval.ok == 0 && interval.other == 0));
        metrics
            .no_agent()
            .request(crate::telemetry::label::Method::Ping, crate::telemetry::label::Outcome::Ok);
        history.record(&metrics);
        assert_eq!(history.intervals().last().unwrap().ok, 1);
    }

    #[test]
    fn audit_lines_are_bounded_and_safe() {
        keep_audit();
        for _ in 0..=MAX_AUDIT_LINES {
            let fields = AuditFields { decision: "allowed", caller: "a\u{202e}b", ..AuditFields::default() };
            record_audit(&fields);
        }
        let lines = audit_lines();
        assert_eq!(lines.len(), MAX_AUDIT_LINES);
        assert!(lines.iter().any(|line| line.caller == "a\\u{202e}b"));
    }
}
