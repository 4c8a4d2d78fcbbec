//! `mcp`, `cards` and `sessions` as in the file.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;

use super::signature::SignatureFile;
use super::url;
use crate::config::resolve::ResolveContext;
use crate::config::spanned::Spanned;
use crate::config::units::HumanDuration;
use crate::config::{CardSignature, Cards, Mcp, ResourceLinks, Sessions};

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
    allowed_origins: Spanned<Vec<Spanned<String>>>,
    /// Hosts (`name` or `name:port`) in `Host` that are let in besides the gateway's own; `*` is any.
    #[schemars(extend("default" = []))]
    allowed_hosts: Spanned<Vec<Spanned<String>>>,
    /// Items on one page of a list.
    #[schemars(range(min = 1, max = 1000), extend("default" = 100))]
    page_size: Spanned<u64>,
    /// How long clients may keep a list; told to those that ask.
    #[schemars(extend("default" = "60s"))]
    list_ttl: Spanned<HumanDuration>,
    /// Instructions for the client's model. Without it: the gateway's own text.
    instructions: Spanned<String>,
    /// The gateway's name in `serverInfo`.
    #[schemars(length(min = 1, max = 64), extend("default" = "mcp-a2a-gateway"))]
    server_name: Spanned<String>,
    /// Whether the `subagent_*` tools are there, with which any client starts, asks, answers and cancels tasks.
    #[schemars(extend("default" = true))]
    subagent_tools: Spanned<bool>,
    /// Whether the tool `find_agent` is there, with which any client finds agents by what they can do.
    #[schemars(extend("default" = true))]
    find_agent: Spanned<bool>,
    /// Which results of tools hold links to resources: `none`, `subagent_start` (a link to the task that was started) or `all`. The text names every URL all the same.
    #[schemars(extend("default" = "subagent_start"))]
    resource_links: Spanned<ResourceLinksFile>,
}

/// Which results of tools hold links to resources.
#[derive(Deserialize, JsonSchema, Clone, Copy)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "ResourceLinks")]
enum ResourceLinksFile {
    None,
    SubagentStart,
    All,
}

impl McpFile {
    pub(super) fn resolve(self, reading: &mut ResolveContext<'_>) -> Mcp {
        let default = Mcp::default();
        Mcp {
            allowed_origins: checked(self.allowed_origins, url::origin, reading).unwrap_or_default(),
            allowed_hosts: checked(self.allowed_hosts, url::any_or_host, reading).unwrap_or_default(),
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
            subagent_tools: self.subagent_tools.value().unwrap_or(default.subagent_tools),
            find_agent: self.find_agent.value().unwrap_or(default.find_agent),
            resource_links: match self.resource_links.value() {
                Some(ResourceLinksFile::None) => ResourceLinks::None,
                Some(ResourceLinksFile::SubagentStart) => ResourceLinks::SubagentStart,
                Some(ResourceLinksFile::All) => ResourceLinks::All,
                None => default.resource_links,
            },
        }
    }
}

/// Reads a list of texts, each of which passes a check.
pub(super) fn checked(
    written: Spanned<Vec<Spanned<String>>>,
    check: impl Fn(&str) -> Result<(), String>,
    reading: &mut ResolveContext<'_>,
) -> Option<Vec<String>> {
    let items = written.value()?.into_iter().filter_map(Spanned::take);
    let mut texts = Vec::new();
    for (place, text) in items {
        if let Err(problem) = check(&text) {
            reading.problem(&place, problem);
        }
        texts.push(text);
    }
    Some(texts)
}

/// How agent cards are kept fresh.
#[derive(Deserialize, JsonSchema, Default)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "Cards")]
pub(super) struct CardsFile {
    /// The shortest time between two fetches of a good card.
    #[schemars(extend("default" = "30s"))]
    min_refresh: Spanned<HumanDuration>,
    /// The longest time between two fetches of a good card.
    #[schemars(extend("default" = "1h"))]
    max_refresh: Spanned<HumanDuration>,
    /// The wait after the first failure; it doubles up to `min_refresh`.
    #[schemars(extend("default" = "1s"))]
    retry: Spanned<HumanDuration>,
    /// Whose signature every agent's card must bear, unless the agent says otherwise. Without it: nobody's.
    signature: Spanned<SignatureFile>,
}

impl CardsFile {
    pub(super) fn resolve(self, reading: &mut ResolveContext<'_>) -> (Cards, Option<CardSignature>) {
        let signature = self.signature.take().and_then(|(place, file)| file.resolve(&place, reading));
        let default = Cards::default();
        let shortest = self.min_refresh.place().or(self.max_refresh.place()).cloned();
        let first = self.retry.place().or(self.min_refresh.place()).cloned();
        let cards = Cards {
            min_refresh: reading.wait(self.min_refresh, SECOND..=DAY, default.min_refresh),
            max_refresh: reading.wait(self.max_refresh, SECOND..=7 * DAY, default.max_refresh),
            retry: reading.wait(self.retry, Duration::from_millis(100)..=HOUR, default.retry),
        };
        let [min, max, retry] = [cards.min_refresh, cards.max_refresh, cards.retry].map(HumanDuration);
        if let Some(place) = shortest.filter(|_| cards.min_refresh > cards.max_refresh) {
            reading.problem(&place, format!("min_refresh ({min}) is longer than max_refresh ({max})"));
        }
        if let Some(place) = first.filter(|_| cards.retry > cards.min_refresh) {
            reading.problem(&place, format!("retry ({retry}) is longer than min_refresh ({min})"));
        }
        (cards, signature)
    }
}

/// MCP sessions.
#[derive(Deserialize, JsonSchema, Default)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "Sessions")]
pub(super) struct SessionsFile {
    /// How long a session id is good.
    #[schemars(extend("default" = "30d"))]
    ttl: Spanned<HumanDuration>,
    /// How many sessions the gateway remembers more about than their id holds.
    #[schemars(range(min = 1, max = 10_000_000), extend("default" = 10_000))]
    max_cached: Spanned<u64>,
}

impl SessionsFile {
    pub(super) fn resolve(self, reading: &mut ResolveContext<'_>) -> Sessions {
        let default = Sessions::default();
        Sessions {
            ttl: reading.wait(self.ttl, MINUTE..=366 * DAY, default.ttl),
            max_cached: reading.count(self.max_cached, 1..=10_000_000, default.max_cached),
        }
    }
}
