//! `agents.NAME.endpoints`, `.breaker`, `.health` and `.queue` as in the file.

use std::collections::HashMap;
use std::time::Duration;

use http::Uri;
use schemars::JsonSchema;
use serde::Deserialize;

use super::url;
use crate::config::resolve::ResolveContext;
use crate::config::spanned::{Location, Spanned};
use crate::config::units::HumanDuration;
use crate::config::{Agent, Breaker, Health, Queue};

/// Most endpoints of one agent.
const MAX_ENDPOINTS: usize = 32;
const MOMENT: Duration = Duration::from_millis(10);
const HOUR: Duration = Duration::from_secs(3600);

/// When an endpoint that fails is left alone.
#[derive(Deserialize, JsonSchema, Default)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "Breaker")]
pub(super) struct BreakerFile {
    /// Failures in a row after which an endpoint is left alone: no connection, none of an answer in time, cut off before one,
    /// HTTP 502, 503 or 504.
    #[schemars(range(min = 1, max = 1_000_000), extend("default" = 5))]
    failures: Spanned<u64>,
    /// How long it is left alone the first time. Then one request probes it, and if that fails too, twice as long, and so on.
    #[schemars(extend("default" = "1s"))]
    base: Spanned<HumanDuration>,
    /// The longest that it is left alone.
    #[schemars(extend("default" = "30s"))]
    max: Spanned<HumanDuration>,
}

/// How endpoints are asked whether they are there. Without it only calls show that.
#[derive(Deserialize, JsonSchema, Default)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "Health")]
pub(super) struct HealthFile {
    /// Path that is fetched from the host of each endpoint. Any answer below 500 is good.
    #[schemars(extend("default" = "/.well-known/agent-card.json"))]
    path: Spanned<String>,
    /// How often.
    #[schemars(extend("default" = "10s"))]
    interval: Spanned<HumanDuration>,
    /// How long an endpoint may take to answer.
    #[schemars(extend("default" = "2s"))]
    timeout: Spanned<HumanDuration>,
}

/// Where calls wait that are more than `max_calls`.
#[derive(Deserialize, JsonSchema, Default)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "Queue")]
pub(super) struct QueueFile {
    /// How many calls wait, in their order; 0: none does. More are refused with 503.
    #[schemars(range(max = 100_000), extend("default" = 0))]
    size: Spanned<u64>,
    /// How long a call waits at most; then it is refused with 503.
    #[schemars(extend("default" = "5s"))]
    wait: Spanned<HumanDuration>,
}

/// Load balancing and queueing of the calls of an agent.
pub(super) struct LoadBalancing {
    /// The location of the endpoints.
    pub(super) at: Option<Location>,
    pub(super) endpoints: Vec<String>,
    pub(super) breaker: Breaker,
    pub(super) health: Option<Health>,
    pub(super) max_calls: usize,
    pub(super) queue: Queue,
}

impl LoadBalancing {
    /// Adds the settings to an agent that has all others.
    pub(super) fn complete(self, agent: &mut Agent, reading: &mut ResolveContext<'_>) {
        let Self { at, endpoints, breaker, health, max_calls, queue } = self;
        // The endpoint of a task is found by a `GetTask` request to each endpoint.
        let elsewhere = endpoints.len() > 1 && agent.methods.get.endpoint.is_some();
        if let Some(place) = at.filter(|_| elsewhere) {
            reading.problem(
                &place,
                "has several endpoints, and the manifest a place of its own for tasks.get: nobody could say at which of them a \
                 task lives (write one endpoint, or leave capabilities.tasks.get.endpoint out)",
            );
        }
        (agent.endpoints, agent.breaker, agent.health) = (endpoints, breaker, health);
        (agent.max_calls, agent.queue) = (max_calls, queue);
    }
}

/// Returns the URLs at which an agent is called in place of the one on its card.
pub(super) fn endpoints(
    written: Spanned<Vec<Spanned<String>>>,
    reading: &mut ResolveContext<'_>,
) -> Vec<String> {
    let Some((section, written)) = written.take() else { return Vec::new() };
    if written.len() > MAX_ENDPOINTS {
        reading.problem(&section, format!("has more than {MAX_ENDPOINTS} endpoints"));
    }
    let mut seen = HashMap::new();
    let mut endpoints = Vec::new();
    for (place, text) in written.into_iter().filter_map(Spanned::take) {
        match url::web(&text) {
            Ok(uri) => match seen.insert(one_spelling(&uri), place.line) {
                Some(first) => reading.problem(&place, format!("is written twice (first on line {first})")),
                None => endpoints.push(text),
            },
            Err(problem) => reading.problem(&place, problem),
        }
    }
    endpoints
}

/// Returns the same text for all spellings of one origin and path.
fn one_spelling(uri: &Uri) -> String {
    let scheme = uri.scheme_str().unwrap_or_default();
    let port = uri.port_u16().unwrap_or(if scheme == "https" { 443 } else { 80 });
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    format!("{scheme}://{}:{port}{path}", uri.host().unwrap_or_default().to_ascii_lowercase())
}

impl BreakerFile {
    pub(super) fn resolve(self, reading: &mut ResolveContext<'_>) -> Breaker {
        let default = Breaker::default();
        let late = self.max.place().or(self.base.place()).cloned();
        let failures = reading.count(self.failures, 1..=1_000_000, 5);
        let breaker = Breaker {
            failures: u32::try_from(failures).unwrap_or(default.failures),
            base: reading.wait(self.base, MOMENT..=HOUR, default.base),
            max: reading.wait(self.max, MOMENT..=HOUR, default.max),
        };
        if let Some(place) = late.filter(|_| breaker.base > breaker.max) {
            let (base, max) = (HumanDuration(breaker.base), HumanDuration(breaker.max));
            reading.problem(&place, format!("max ({max}) is shorter than base ({base})"));
        }
        breaker
    }
}

impl HealthFile {
    pub(super) fn resolve(self, reading: &mut ResolveContext<'_>) -> Health {
        let default = Health::default();
        let path = self.path.take().and_then(|(place, path)| {
            let is_path = path.starts_with('/') && path.parse::<http::uri::PathAndQuery>().is_ok();
            if is_path {
                Some(path)
            } else {
                reading.report_conflict(&place, "is not a path (write /healthz)")
            }
        });
        Health {
            path: path.unwrap_or(default.path),
            interval: reading.wait(self.interval, MOMENT..=HOUR, default.interval),
            timeout: reading.wait(self.timeout, MOMENT..=HOUR, default.timeout),
        }
    }
}

impl QueueFile {
    /// Resolves the queue; `max_calls` is the concurrency limit of the agent.
    pub(super) fn resolve(
        self,
        section: &Location,
        max_calls: usize,
        reading: &mut ResolveContext<'_>,
    ) -> Queue {
        let default = Queue::default();
        let queue = Queue {
            size: reading.count(self.size, 0..=100_000, default.size),
            wait: reading.wait(self.wait, MOMENT..=HOUR, default.wait),
        };
        if queue.size > 0 && max_calls == 0 {
            reading.problem(section, "is only for an agent with max_calls (nothing waits without it)");
        }
        queue
    }
}
