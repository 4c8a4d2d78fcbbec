//! Reports for operators: the agents, the readiness, and all that runs at present.
//!
//! Reads the state of the services and changes nothing. Each list has a bound. Out of scope: the
//! listener that serves the reports (see `admin`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use serde::Serialize;

use super::Gateway;
use super::dispatch::Dispatcher;
use crate::a2a::TaskState;
use crate::discovery::Discovery;
use crate::telemetry::recent::{IntervalReport, MetricsHistory};

/// The agents of a gateway, for its operator.
#[derive(Debug)]
pub(crate) struct AgentSummary {
    /// The number of agents with a usable card.
    pub(crate) agents_ready: usize,
    /// The number of tools of these agents.
    pub(crate) tools: usize,
    /// The agents without a usable card.
    pub(crate) awaited: Vec<AwaitedAgent>,
}

/// An agent without a usable card.
#[derive(Debug)]
pub(crate) struct AwaitedAgent {
    /// The name of the agent.
    name: String,
    /// The location of its card.
    card: String,
    /// The error of the last fetch, if there was one.
    problem: Option<String>,
}

/// Most agents that a report of the readiness names.
const MAX_NAMED_AGENTS: usize = 50;

/// The readiness of a gateway.
pub(crate) struct ReadyReport {
    /// The reason for which it is not ready, if it is not: `draining`, `sources`, `agents` or `tools`.
    pub(crate) reason: Option<&'static str>,
    /// The agents that have not answered since the start.
    pub(crate) waiting: Vec<WaitedAgent>,
    /// The number of further ones.
    pub(crate) waiting_more: usize,
    /// The configuration keys of all that does not work at present.
    pub(crate) degraded: Vec<String>,
}

/// An agent that has not answered since the start.
#[derive(Debug, Serialize)]
pub(crate) struct WaitedAgent {
    agent: String,
    url: String,
    why: String,
}

impl AwaitedAgent {
    /// Returns the name and the location of the card.
    pub(crate) fn place(&self) -> String {
        format!("{} {}", self.name, self.card)
    }

    /// Returns the same with the reason for which there is no card.
    pub(crate) fn with_problem(&self) -> String {
        let problem = self.problem.as_deref().unwrap_or("no answer yet");
        format!("{}: {problem}", self.place())
    }
}

/// Most live calls and tasks in a report.
const MAX_LISTED: usize = 200;

impl Gateway {
    /// Returns the readiness with all that is known about it.
    pub(crate) fn ready_report(&self) -> ReadyReport {
        let dispatcher = self.current();
        let agents = dispatcher.discovery.directory.agents();
        let mut waiting = agents.iter().filter(|agent| !agent.is_initialized());
        let named = waiting.by_ref().take(MAX_NAMED_AGENTS).map(|agent| WaitedAgent {
            agent: agent.settings.name.clone(),
            url: agent.settings.card.without_secrets(),
            why: agent.problem().unwrap_or_else(|| "no answer yet".to_owned()),
        });
        let named = named.collect();
        let down = agents.iter().filter(|agent| agent.is_initialized() && agent.known().is_none());
        let down = down.take(MAX_NAMED_AGENTS).map(|agent| format!("agents.{}", agent.settings.name));
        let failing = self.state.lasting.sources.failing();
        ReadyReport {
            reason: self.unready_reason(),
            waiting: named,
            waiting_more: waiting.count(),
            degraded: self.degraded().into_iter().map(str::to_owned).chain(down).chain(failing).collect(),
        }
    }

    /// Returns the number of usable agents and tools, and the agents that are awaited.
    pub(crate) fn agent_summary(&self) -> AgentSummary {
        let dispatcher = self.current();
        let Discovery { directory, catalogue, .. } = &*dispatcher.discovery;
        let awaited = directory.agents().iter().filter(|agent| agent.known().is_none());
        let awaited: Vec<AwaitedAgent> = awaited
            .map(|agent| AwaitedAgent {
                name: agent.settings.name.clone(),
                card: agent.settings.card.without_secrets(),
                problem: agent.problem(),
            })
            .collect();
        AgentSummary {
            agents_ready: directory.agents().len().saturating_sub(awaited.len()),
            tools: catalogue.load().all().of_agents().count(),
            awaited,
        }
    }

    /// Returns the view of operators on all that runs.
    pub(crate) fn operator_view(&self) -> OperatorView<'_> {
        OperatorView { gateway: self, dispatcher: self.current() }
    }
}

/// The view of operators on the services of a gateway.
pub(crate) struct OperatorView<'a> {
    gateway: &'a Gateway,
    dispatcher: Arc<Dispatcher>,
}

/// The numbers of all that runs.
#[derive(Serialize)]
pub(crate) struct OverviewReport {
    version: &'static str,
    /// Milliseconds since 1970.
    started: u64,
    uptime_seconds: u64,
    agents: usize,
    agents_ready: usize,
    tools: usize,
    requests: usize,
    live_calls: usize,
    background: usize,
    tasks: usize,
    streams: i64,
}

/// All that runs, the longest first.
#[derive(Serialize)]
pub(crate) struct ActivityReport {
    calls: Vec<CallReport>,
    tasks: Vec<TaskReport>,
    /// The number of all tasks in the map.
    tasks_total: usize,
    /// Tasks in the map, by state.
    states: BTreeMap<&'static str, usize>,
    /// Open event streams, by agent; those without an agent under the empty name.
    streams: BTreeMap<String, i64>,
    /// Exchanges with agents that continue without their client.
    background: usize,
    /// Requests without a response yet.
    requests: usize,
}

/// A call that runs.
#[derive(Serialize)]
pub(crate) struct CallReport {
    agent: String,
    tool: String,
    caller: String,
    seconds: f64,
}

/// A task in the map.
#[derive(Serialize)]
pub(crate) struct TaskReport {
    agent: String,
    state: &'static str,
    owners: Vec<String>,
    /// Milliseconds since 1970.
    created: u64,
    changed: u64,
    /// The reason for which the task makes no progress at present.
    #[serde(skip_serializing_if = "Option::is_none")]
    delay: Option<String>,
}

impl OperatorView<'_> {
    /// Returns the state of one agent as JSON.
    pub(crate) fn agent_state(&self, name: &str) -> Option<String> {
        self.dispatcher.discovery.agent_state(name)
    }

    /// Returns a page of the states of agents as JSON, from this number on.
    pub(crate) fn agent_page(&self, offset: usize) -> String {
        self.dispatcher.discovery.agent_page(offset)
    }

    /// Returns the numbers of all that runs.
    pub(crate) fn overview(&self) -> OverviewReport {
        let Discovery { directory, catalogue, .. } = &*self.dispatcher.discovery;
        let engine = &self.dispatcher.mcp_server.engine;
        let started = self.dispatcher.settings.started;
        OverviewReport {
            version: env!("CARGO_PKG_VERSION"),
            started: started.unix_ms,
            uptime_seconds: started.instant.elapsed().as_secs(),
            agents: directory.agents().len(),
            agents_ready: directory.agents().iter().filter(|agent| agent.known().is_some()).count(),
            tools: catalogue.load().all().of_agents().count(),
            requests: self.open_requests(),
            live_calls: engine.live.len(),
            background: engine.lookup.followers.running(),
            tasks: engine.lookup.tasks.len(),
            streams: self.dispatcher.metrics.open_streams(),
        }
    }

    fn open_requests(&self) -> usize {
        self.gateway.requests()
    }

    /// Returns the calls, tasks and streams of now.
    pub(crate) fn activity(&self) -> ActivityReport {
        let engine = &self.dispatcher.mcp_server.engine;
        let calls = engine.live.snapshot(MAX_LISTED).into_iter().map(|call| CallReport {
            agent: call.agent.settings.name.clone(),
            tool: call.tool.into(),
            caller: call.caller.name().to_owned(),
            seconds: call.since.elapsed().as_secs_f64(),
        });
        let mut states: BTreeMap<&'static str, usize> = BTreeMap::new();
        let mut entries = Vec::new();
        engine.lookup.tasks.for_each(Instant::now(), |entry| {
            let (state, changed) = entry.state_and_change();
            *states.entry(task_state(state)).or_default() += 1;
            entries.push((changed, entry.clone()));
        });
        let tasks_total = entries.len();
        // The last that changed.
        entries.sort_by_key(|(changed, _)| std::cmp::Reverse(*changed));
        entries.truncate(MAX_LISTED);
        let tasks = entries.iter().map(|(_, entry)| {
            entry.visible_state(|inside| TaskReport {
                agent: entry.agent().to_string(),
                state: task_state(inside.work.state),
                owners: inside.owners().take(4).map(str::to_owned).collect(),
                created: inside.created_ms,
                changed: inside.changed.unix_ms,
                delay: inside.delay.map(|delay| delay.told(entry.agent())),
            })
        });
        ActivityReport {
            calls: calls.collect(),
            tasks: tasks.collect(),
            tasks_total,
            states,
            streams: self.dispatcher.metrics.streams_by_agent(),
            background: engine.lookup.followers.running(),
            requests: self.open_requests(),
        }
    }

    /// Returns the requests of the last minutes, in intervals.
    pub(crate) fn history(&self) -> Vec<IntervalReport> {
        self.gateway.state.lasting.history.as_ref().map(MetricsHistory::intervals).unwrap_or_default()
    }

    /// Returns the header that carries API keys of callers, if there are any.
    pub(crate) fn key_header(&self) -> Option<&http::HeaderName> {
        self.dispatcher.authenticator.key_header()
    }
}

/// Returns the word for a state.
fn task_state(state: Option<TaskState>) -> &'static str {
    match state {
        None => "unnamed",
        Some(TaskState::Submitted) => "submitted",
        Some(TaskState::Working) => "working",
        Some(TaskState::InputRequired) => "input-required",
        Some(TaskState::AuthRequired) => "auth-required",
        Some(TaskState::Completed) => "completed",
        Some(TaskState::Failed) => "failed",
        Some(TaskState::Canceled) => "canceled",
        Some(TaskState::Rejected) => "rejected",
        Some(TaskState::Unknown) => "unknown",
    }
}
