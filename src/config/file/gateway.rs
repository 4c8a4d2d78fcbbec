//! `mcp`, `calls`, `cards`, `sessions` and `followers` as written.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;

use super::url;
use crate::config::place::Written;
use crate::config::reading::Reading;
use crate::config::units::{Size, Wait};
use crate::config::{Calls, Cards, Followers, Mcp, Sessions};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(86_400);

/// How the gateway speaks MCP.
#[derive(Deserialize, JsonSchema, Default)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "Mcp")]
pub(super) struct McpFile {
    /// Values of `Origin` that are let in besides the gateway's own, for example `https://app.example.com`; `*` is any.
    #[schemars(extend("default" = []))]
    allowed_origins: Written<Vec<Written<String>>>,
    /// Hosts (`name` or `name:port`) in `Host` that are let in besides the gateway's own; `*` is any.
    #[schemars(extend("default" = []))]
    allowed_hosts: Written<Vec<Written<String>>>,
    /// Items on one page of a list.
    #[schemars(range(min = 1, max = 1000), extend("default" = 100))]
    page_size: Written<u64>,
    /// How long clients may keep a list; told to those that ask.
    #[schemars(extend("default" = "60s"))]
    list_ttl: Written<Wait>,
    /// What the gateway tells the client's model about itself. Without it: the gateway's own text.
    instructions: Written<String>,
    /// The gateway's name in `serverInfo`.
    #[schemars(length(min = 1, max = 64), extend("default" = "mcp-a2a-gateway"))]
    server_name: Written<String>,
}

impl McpFile {
    pub(super) fn resolve(self, reading: &mut Reading<'_>) -> Mcp {
        let default = Mcp::default();
        let any_or_host = |text: &str| if text == "*" { Ok(()) } else { url::host(text) };
        Mcp {
            allowed_origins: checked(self.allowed_origins, url::origin, reading).unwrap_or_default(),
            allowed_hosts: checked(self.allowed_hosts, any_or_host, reading).unwrap_or_default(),
            page_size: reading.count(self.page_size, 1..=1000, default.page_size),
            list_ttl: reading.wait(self.list_ttl, Duration::ZERO..=DAY, default.list_ttl),
            instructions: self.instructions.value(),
            server_name: match self.server_name.take() {
                Some((place, name)) if name.is_empty() || name.chars().count() > 64 => {
                    reading.problem(&place, "is not a name (1 to 64 characters)");
                    name
                }
                Some((_, name)) => name,
                None => default.server_name,
            },
        }
    }
}

/// A list of texts, each of which passes a check.
pub(super) fn checked(
    written: Written<Vec<Written<String>>>,
    check: impl Fn(&str) -> Result<(), String>,
    reading: &mut Reading<'_>,
) -> Option<Vec<String>> {
    let items = written.value()?.into_iter().filter_map(Written::take);
    let mut texts = Vec::new();
    for (place, text) in items {
        if let Err(problem) = check(&text) {
            reading.problem(&place, problem);
        }
        texts.push(text);
    }
    Some(texts)
}

/// How long calls may take.
#[derive(Deserialize, JsonSchema, Default)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "Calls")]
pub(super) struct CallsFile {
    /// How long a client waits at most before it gets a handle instead of the result. Clients give up after 60s.
    #[schemars(extend("default" = "45s"))]
    budget: Written<Wait>,
    /// When a response that has nothing to say yet becomes an event stream.
    #[schemars(extend("default" = "10s"))]
    stream_after: Written<Wait>,
    /// The longest silence on an event stream; at most 60s, as proxies give up then.
    #[schemars(extend("default" = "15s"))]
    keep_alive: Written<Wait>,
}

impl CallsFile {
    pub(super) fn resolve(self, reading: &mut Reading<'_>) -> Calls {
        let default = Calls::default();
        let late = self.stream_after.place().or(self.budget.place()).cloned();
        let calls = Calls {
            budget: reading.wait(self.budget, SECOND..=HOUR, default.budget),
            stream_after: reading.wait(self.stream_after, Duration::ZERO..=HOUR, default.stream_after),
            keep_alive: reading.wait(self.keep_alive, SECOND..=MINUTE, default.keep_alive),
        };
        if let Some(place) = late.filter(|_| calls.stream_after > calls.budget) {
            let (after, budget) = (Wait(calls.stream_after), Wait(calls.budget));
            reading.problem(&place, format!("stream_after ({after}) is longer than budget ({budget})"));
        }
        calls
    }
}

/// How agent cards are kept fresh.
#[derive(Deserialize, JsonSchema, Default)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "Cards")]
pub(super) struct CardsFile {
    /// The shortest time between two fetches of a good card.
    #[schemars(extend("default" = "30s"))]
    min_refresh: Written<Wait>,
    /// The longest time between two fetches of a good card.
    #[schemars(extend("default" = "1h"))]
    max_refresh: Written<Wait>,
    /// The wait after the first failure; it doubles up to `min_refresh`.
    #[schemars(extend("default" = "1s"))]
    retry: Written<Wait>,
}

impl CardsFile {
    pub(super) fn resolve(self, reading: &mut Reading<'_>) -> Cards {
        let default = Cards::default();
        let shortest = self.min_refresh.place().or(self.max_refresh.place()).cloned();
        let first = self.retry.place().or(self.min_refresh.place()).cloned();
        let cards = Cards {
            min_refresh: reading.wait(self.min_refresh, SECOND..=DAY, default.min_refresh),
            max_refresh: reading.wait(self.max_refresh, SECOND..=7 * DAY, default.max_refresh),
            retry: reading.wait(self.retry, Duration::from_millis(100)..=HOUR, default.retry),
        };
        let [min, max, retry] = [cards.min_refresh, cards.max_refresh, cards.retry].map(Wait);
        if let Some(place) = shortest.filter(|_| cards.min_refresh > cards.max_refresh) {
            reading.problem(&place, format!("min_refresh ({min}) is longer than max_refresh ({max})"));
        }
        if let Some(place) = first.filter(|_| cards.retry > cards.min_refresh) {
            reading.problem(&place, format!("retry ({retry}) is longer than min_refresh ({min})"));
        }
        cards
    }
}

/// MCP sessions.
#[derive(Deserialize, JsonSchema, Default)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "Sessions")]
pub(super) struct SessionsFile {
    /// How long a session id is good.
    #[schemars(extend("default" = "30d"))]
    ttl: Written<Wait>,
    /// How many sessions the gateway remembers more about than their id holds.
    #[schemars(range(min = 1, max = 10_000_000), extend("default" = 10_000))]
    remembered: Written<u64>,
}

impl SessionsFile {
    pub(super) fn resolve(self, reading: &mut Reading<'_>) -> Sessions {
        let default = Sessions::default();
        Sessions {
            ttl: reading.wait(self.ttl, MINUTE..=366 * DAY, default.ttl),
            remembered: reading.count(self.remembered, 1..=10_000_000, default.remembered),
        }
    }
}

/// Work that goes on after its client has left.
#[derive(Deserialize, JsonSchema, Default)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "Followers")]
pub(super) struct FollowersFile {
    /// Exchanges with agents in the background.
    #[schemars(range(min = 1, max = 1_000_000), extend("default" = 1000))]
    max: Written<u64>,
    /// How long a call is followed without its client. Its task can be asked for as long as the agent knows it.
    #[schemars(extend("default" = "1h"))]
    lifetime: Written<Wait>,
    /// How long the result of a background call is kept.
    #[schemars(extend("default" = "10m"))]
    keep: Written<Wait>,
    /// Size of all results that are kept; the oldest go first.
    #[schemars(extend("default" = "256MiB"))]
    keep_bytes: Written<Size>,
}

impl FollowersFile {
    pub(super) fn resolve(self, reading: &mut Reading<'_>) -> Followers {
        let default = Followers::default();
        Followers {
            max: reading.count(self.max, 1..=1_000_000, default.max),
            lifetime: reading.wait(self.lifetime, SECOND..=30 * DAY, default.lifetime),
            keep: reading.wait(self.keep, SECOND..=7 * DAY, default.keep),
            keep_bytes: reading.size(self.keep_bytes, 0..=1 << 40, default.keep_bytes),
        }
    }
}
