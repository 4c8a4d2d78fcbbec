//! Metrics of tasks: how many are kept, polled and lost.
//!
//! See `metrics` for requests and agents, and `label` for the labels.

use prometheus::{IntCounter, IntCounterVec, IntGauge, Registry};

use super::label::Asked;
use super::metrics::{opts, register};

/// The numbers of tasks at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TaskCounts {
    /// Tasks in the map.
    pub tasks: usize,
    /// The approximate number of bytes that they take there.
    pub bytes: usize,
    /// Tasks that are polled in turn.
    pub polled: usize,
    /// Evicted for others since the previous counts.
    pub evicted: u64,
    /// Transactions of the store that failed, since the start.
    pub store_failures: u64,
    /// True if the store's disk accepts no writes now.
    pub is_store_failing: bool,
}

/// The metrics of tasks.
#[derive(Debug)]
pub struct TaskMetrics {
    tasks: IntGauge,
    bytes: IntGauge,
    polled: IntGauge,
    evicted: IntCounter,
    store_failures: IntCounter,
    store_failing: IntGauge,
    asked: [IntCounter; Asked::ALL.len()],
    answers: IntCounter,
    reattachments: IntCounterVec,
    stalled: IntCounterVec,
}

impl TaskMetrics {
    pub(super) fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let gauge = |name, help| register(registry, IntGauge::with_opts(opts(name, help))?);
        let counter = |name, help| register(registry, IntCounter::with_opts(opts(name, help))?);
        let counters =
            |name, help, label| register(registry, IntCounterVec::new(opts(name, help), &[label])?);
        let asked = counters("questions_total", "Questions of agents, put to clients, by form.", "form")?;
        Ok(Self {
            tasks: gauge("tasks", "Tasks in the map.")?,
            bytes: gauge("task_bytes", "About how many bytes the tasks in the map take.")?,
            polled: gauge("polled_tasks", "Tasks that are polled in turn.")?,
            evicted: counter(
                "tasks_evicted_total",
                "Tasks that left the map before their time, to make room.",
            )?,
            store_failures: counter(
                "task_store_failures_total",
                "Times that tasks could not be written to tasks.data_dir.",
            )?,
            store_failing: gauge("task_store_failing", "1 while tasks cannot be written to tasks.data_dir.")?,
            asked: Asked::ALL.map(|form| asked.with_label_values(&[form.label()])),
            answers: counter("answers_total", "Answers of users, passed on to agents.")?,
            reattachments: counters(
                "reattachments_total",
                "Streams of tasks that broke off, so that the agent was asked how the task stands.",
                "agent",
            )?,
            stalled: counters(
                "tasks_stalled_total",
                "Tasks whose agent ended the stream and not the task, and that did not change for streams.stalled_after.",
                "agent",
            )?,
        })
    }

    /// Sets the gauges of tasks.
    pub fn set(&self, census: TaskCounts) {
        let shown = |count| i64::try_from(count).unwrap_or(i64::MAX);
        self.tasks.set(shown(census.tasks));
        self.bytes.set(shown(census.bytes));
        self.polled.set(shown(census.polled));
        self.evicted.inc_by(census.evicted);
        self.store_failures.inc_by(census.store_failures.saturating_sub(self.store_failures.get()));
        self.store_failing.set(i64::from(census.is_store_failing));
    }

    /// Counts a question that was sent to a client.
    pub fn asked(&self, form: Asked) {
        if let Some(counter) = self.asked.get(form as usize) {
            counter.inc();
        }
    }

    /// Counts an answer that is sent to the agent.
    pub fn answered(&self) {
        self.answers.inc();
    }

    pub(super) fn reattached(&self, agent: &str) {
        self.reattachments.with_label_values(&[agent]).inc();
    }

    pub(super) fn stalled(&self, agent: &str) {
        self.stalled.with_label_values(&[agent]).inc();
    }
}
