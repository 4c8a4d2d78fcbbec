//! Requests to the endpoints of an agent: `agents.NAME.binding` and `.timeouts`, and load balancing over them
//! by `.endpoints`, `.breaker`, `.health` and `.queue`.

use std::collections::HashMap;
use std::time::Duration;

use http::Uri;

use super::Agent;
use super::agent::AgentKeys;
use super::forms::{HumanDuration, checked_text, choice};
use super::host::{effective_port, web_url};
use super::resolve::ResolveContext;
use super::section::{KeysOf, section};
use super::yaml::{Location, Spanned};

/// Most endpoints of one agent.
const MAX_ENDPOINTS: usize = 32;

/// The binding of A2A by which an agent is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AgentBinding {
    /// The first of its card that the gateway has.
    #[default]
    Auto,
    /// JSON-RPC.
    JsonRpc,
    /// HTTP+JSON, of A2A 0.3 or 1.0.
    HttpJson,
    /// gRPC, of A2A 0.3 or 1.0.
    Grpc,
}

choice! {
    /// The binding of A2A by which an agent is called.
    AgentBinding as "AgentBinding" {
        "auto" => Self::Auto,
        "jsonrpc" => Self::JsonRpc,
        "http_json" => Self::HttpJson,
        "grpc" => Self::Grpc,
    }
}

section! {
    /// Timeouts of requests to an agent.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct AgentTimeouts {
        /// For a connection: name, TCP and TLS.
        connect: Duration = 5s in 10ms..=1d,
        /// From the request to the first byte of the response.
        first_byte: Duration = 120s in 10ms..=1d,
        /// For the next byte of a response. Bytes of the body count, TCP or HTTP/2 keep-alives do
        /// not.
        idle: Duration = 120s in 10ms..=1d,
        /// For one exchange as a whole.
        total: Duration = 1h in 10ms..=7d,
    }
    check check_timeouts
}

fn check_timeouts(
    timeouts: AgentTimeouts,
    keys: KeysOf<AgentTimeouts>,
    context: &mut ResolveContext<'_>,
) -> AgentTimeouts {
    let whole = keys.total.place().or(keys.first_byte.place());
    if let Some(place) = whole.filter(|_| timeouts.first_byte > timeouts.total) {
        let [first, total] = [timeouts.first_byte, timeouts.total].map(HumanDuration);
        context.problem(place, format!("total ({total}) is shorter than first_byte ({first})"));
    }
    timeouts
}

section! {
    /// Circuit breaker: the failures after which an endpoint gets no requests for a while.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Breaker {
        /// Number of failures in a row after which the breaker opens: no connection, no response in
        /// time, a response that is cut off before it begins, HTTP 502, 503 or 504.
        failures: u32 = 5 in 1..=1000000,
        /// First open time. After it one request probes the endpoint; the time doubles with each
        /// probe that fails.
        base: Duration = 1s in 10ms..=1h,
        /// Longest open time.
        max: Duration = 30s in 10ms..=1h,
    }
    check check_breaker
}

fn check_breaker(breaker: Breaker, keys: KeysOf<Breaker>, context: &mut ResolveContext<'_>) -> Breaker {
    let late = keys.max.place().or(keys.base.place());
    if let Some(place) = late.filter(|_| breaker.base > breaker.max) {
        let [base, max] = [breaker.base, breaker.max].map(HumanDuration);
        context.problem(place, format!("max ({max}) is shorter than base ({base})"));
    }
    breaker
}

section! {
    /// Health checks of endpoints, besides calls.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Health {
        /// Path that is fetched from each endpoint's host. A status below 500 is good.
        path: String as UrlPath = "/.well-known/agent-card.json",
        /// Interval of the checks.
        interval: Duration = 10s in 10ms..=1h,
        /// Timeout of a check.
        timeout: Duration = 2s in 10ms..=1h,
    }
}

checked_text!(UrlPath as "path of a URL", |path: &str| {
    let is_path = path.starts_with('/') && path.parse::<http::uri::PathAndQuery>().is_ok();
    if is_path { Ok(()) } else { Err("is not a path (write /healthz)") }
});

section! {
    /// Queue of the calls beyond the concurrency limit of an agent.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Queue {
        /// Number of waiting calls, which are served in their order; 0: none. More are refused with
        /// 503.
        size: usize = 0 in 0..=100000,
        /// Longest wait of a call; then it is refused with 503.
        wait: Duration = 5s in 10ms..=1h,
    }
}

/// Load balancing and queueing of the calls of an agent.
pub(super) struct LoadBalancing {
    /// The location of the endpoints.
    place: Option<Location>,
    endpoints: Vec<String>,
    breaker: Breaker,
    health: Option<Health>,
    max_calls: usize,
    queue: Queue,
}

impl LoadBalancing {
    /// Takes these settings out of the keys of an agent.
    pub(super) fn read(keys: &mut AgentKeys, context: &mut ResolveContext<'_>) -> Self {
        let max_calls = keys.max_calls(context);
        let queue = keys.queue(context);
        if let Some(place) = keys.queue.place().filter(|_| queue.size > 0 && max_calls == 0) {
            context.problem(place, "is only for an agent with max_calls (nothing waits without it)");
        }
        Self {
            place: keys.endpoints.place().cloned(),
            endpoints: endpoints(std::mem::take(&mut keys.endpoints), context),
            breaker: keys.breaker(context),
            health: keys.health(context),
            max_calls,
            queue,
        }
    }

    /// Adds the settings to an agent, of which the manifest is known by now.
    pub(super) fn complete(self, agent: &mut Agent, context: &mut ResolveContext<'_>) {
        let Self { place, endpoints, breaker, health, max_calls, queue } = self;
        // The endpoint of a task is found by a `GetTask` request to each endpoint.
        let elsewhere = endpoints.len() > 1 && agent.methods.get.endpoint.is_some();
        if let Some(place) = place.filter(|_| elsewhere) {
            context.problem(
                &place,
                "has several endpoints, and the manifest a place of its own for tasks.get: the gateway could not find the endpoint \
                 of a task (write one endpoint, or leave capabilities.tasks.get.endpoint out)",
            );
        }
        (agent.endpoints, agent.breaker, agent.health) = (endpoints, breaker, health);
        (agent.max_calls, agent.queue) = (max_calls, queue);
    }
}

/// Returns the URLs at which an agent is called in place of the one on its card.
fn endpoints(written: Spanned<Vec<Spanned<String>>>, context: &mut ResolveContext<'_>) -> Vec<String> {
    let Some((section, written)) = written.take() else { return Vec::new() };
    if written.len() > MAX_ENDPOINTS {
        context.problem(&section, format!("has more than {MAX_ENDPOINTS} endpoints"));
    }
    let mut seen = HashMap::new();
    let mut endpoints = Vec::new();
    for (place, text) in written.into_iter().filter_map(Spanned::take) {
        match web_url(&text) {
            Ok(uri) => match seen.insert(normalized(&uri), place.line) {
                Some(first) => {
                    let first = context.line_words(first, place.line);
                    context.problem(&place, format!("is written twice (first on {first})"));
                }
                None => endpoints.push(text),
            },
            Err(problem) => context.problem(&place, problem),
        }
    }
    endpoints
}

/// Returns the same text for all spellings of one origin and path.
fn normalized(uri: &Uri) -> String {
    let scheme = uri.scheme_str().unwrap_or_default();
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let (host, port) = (uri.host().unwrap_or_default().to_ascii_lowercase(), effective_port(uri));
    format!("{scheme}://{host}:{port}{path}")
}
