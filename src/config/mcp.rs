//! `mcp`, `resources`, `cards` and `sessions`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use super::ResourceLinks;
use super::agent::CardSignatureKeys;
use super::auth::Pattern;
use super::forms::{checked_text, choice};
use super::host::{AllowedHost, AllowedOrigin};
use super::http_resources::{ArtifactFiles, HttpResource, HttpResourceKeys};
use super::prompts::{StaticResource, StaticResourceKeys};
use super::resolve::{self, ResolveContext};
use super::section::{KeysOf, section};
use super::settings::JsonPointer;
use super::spanned::{OneOrMany, Spanned};
use super::units::{ByteSize, HumanDuration};

section! {
    /// How the gateway speaks MCP.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Mcp {
        /// Accepted values of `Origin`, besides loopback pages and `public_url`; `*` accepts any.
        allowed_origins: Vec<String> as Vec<Spanned<AllowedOrigin>> = [] [example ["https://app.example.com"]],
        /// Accepted hosts (`name` or `name:port`) in `Host`, besides loopback names, IP addresses
        /// and `public_url`; `*` accepts any.
        allowed_hosts: Vec<String> as Vec<Spanned<AllowedHost>> = [] [example ["gateway.internal:8443"]],
        /// Items on one page of a list.
        page_size: usize = 100 in 1..=1000,
        /// Time for which clients may cache a list (`ttlMs`, 2026-07-28). It is 0 for a list of
        /// tools until the cards of all its agents have been read.
        list_ttl: Duration = 60s in 0s..=1d,
        /// Instructions for the client's model. Without it the gateway sends its own text, which
        /// names `find_agent` if there are several agents.
        instructions: Option<String> [example "Ask weather for forecasts."],
        /// The gateway's name in `serverInfo`.
        server_name: String as ServerName = "mcp-a2a-gateway" [schema { "minLength": 1, "maxLength": 64 }],
        /// True if the tools `subagent_*` are offered, with which any client starts, queries,
        /// answers and cancels tasks.
        subagent_tools: bool = true,
        /// True if the tool `find_agent` is offered on `/mcp`, with which any client finds agents
        /// by their skills.
        find_agent: bool = true,
        /// Results of tools that contain `resource_link` blocks: `none`, `subagent_start` (a link
        /// to the task that was started) or `all` (links to tasks, and to files that agents name by
        /// URL). The text and `structuredContent` name every URL in any case. LangChain with
        /// ChatOpenAI, Gemini or Bedrock, Semantic Kernel and AutoGen's `McpWorkbench` fail on any
        /// link; they need `none`.
        resource_links: ResourceLinks = subagent_start,
    }
}

choice! {
    /// Results of tools that contain links to resources.
    ResourceLinks as "ResourceLinks" {
        "none" => Self::None,
        "subagent_start" => Self::SubagentStart,
        "all" => Self::All,
    }
}

checked_text!(ServerName as "text", |name: &str| {
    let is_name = (1..=64).contains(&name.chars().count());
    if is_name { Ok(()) } else { Err("is not a name (1 to 64 characters)") }
});

section! {
    /// How agent cards are refreshed.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Cards {
        /// Shortest time between two fetches of a good card, and the usual time if the agent sends
        /// no `Cache-Control: max-age`.
        min_refresh: Duration = 30s in 1s..=1d,
        /// Longest time between two fetches of a good card. Between the two bounds the agent's
        /// `Cache-Control: max-age` counts; `ETag` is honoured.
        max_refresh: Duration = 1h in 1s..=7d,
        /// Wait after the first failure; it doubles up to `min_refresh`.
        retry: Duration = 1s in 100ms..=1h,
    }
    keys {
        /// Signature that the card of every agent without a `signature` of its own must have.
        /// Without it none is needed.
        signature: CardSignatureKeys,
    }
    check check_cards
}

fn check_cards(cards: Cards, keys: KeysOf<Cards>, context: &mut ResolveContext<'_>) -> Cards {
    let [min, max, retry] = [cards.min_refresh, cards.max_refresh, cards.retry].map(HumanDuration);
    let shortest = keys.min_refresh.place().or(keys.max_refresh.place());
    if let Some(place) = shortest.filter(|_| cards.min_refresh > cards.max_refresh) {
        context.problem(place, format!("min_refresh ({min}) is longer than max_refresh ({max})"));
    }
    let first = keys.retry.place().or(keys.min_refresh.place());
    if let Some(place) = first.filter(|_| cards.retry > cards.min_refresh) {
        context.problem(place, format!("retry ({retry}) is longer than min_refresh ({min})"));
    }
    cards
}

section! {
    /// MCP sessions.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Sessions {
        /// Time for which a session id is valid.
        ttl: Duration = 30d in 1m..=366d,
        /// Sessions for which the gateway stores more than their id contains (subscriptions, log
        /// level); the same number again for ended sessions. At the limit, the caller with the most
        /// sessions loses its oldest one (anonymous callers count by their address): a subscription
        /// is lost, and an ended session stays ended together with all older sessions of that
        /// caller.
        max_cached: usize = 10000 in 1..=10000000,
    }
}

section! {
    /// Resources that clients read and subscribe to. The family `a2a` is always served. Each other
    /// family is served once its section is there, even if the section is empty (`{}`).
    #[derive(Debug, Clone, PartialEq)]
    pub struct Resources {
        /// Agents, tasks and streams: `a2a-agent://…` and `a2a://…`.
        a2a: FamilyPolicy,
        /// Workflows in phases: `sparc://…`.
        sparc: Option<Sparc>,
        /// The types of agents by their names in the configuration, such as `researcher`, `coder`,
        /// `analyst` or `coordinator`. The type of another agent is its name.
        agent_types: BTreeMap<String, String> as BTreeMap<String, Spanned<String>>
            [example { weather: analyst }],
        /// Values that callers store: `memory://…`, and the tools `memory_store` and
        /// `memory_delete`.
        memory: Option<MemoryFamily>,
        /// Batches of calls: `batchtools://…`, and the tools `batch_start`, `batch_cancel` and
        /// `batch_configure`.
        batchtools: Option<BatchFamily>,
        /// Files at the agents' own origins, read with the agents' credentials.
        files: Option<ArtifactFiles>,
        /// JSON endpoints of existing systems under URIs of the operator's choice, on `/mcp`, such
        /// as a memory bank or a batch system.
        http: Vec<HttpResource> as Vec<Spanned<HttpResourceKeys>> = [],
        /// Limits and filters of `http`, for each of its schemes.
        http_policy: FamilyPolicy,
        /// Texts and files under URIs of the operator's choice, on `/mcp`. They do not change while
        /// the gateway runs.
        r#static: Vec<StaticResource> as Vec<Spanned<StaticResourceKeys>> = [],
    }
    check check_resources
}

/// Checks that no URI is there twice.
fn check_resources(
    resources: Resources,
    keys: KeysOf<Resources>,
    context: &mut ResolveContext<'_>,
) -> Resources {
    let http = keys.http.place().unwrap_or(&keys.section);
    for (index, one) in resources.http.iter().enumerate() {
        if resources.http.iter().take(index).any(|other| other.uri == one.uri) {
            context.problem(http, format!("has the URI {:?} twice", one.uri));
        }
        let scheme = one.uri.split_once(':').map(|(scheme, _)| scheme).unwrap_or_default();
        let is_served = match scheme {
            "memory" => resources.memory.is_some(),
            "batchtools" => resources.batchtools.is_some(),
            "sparc" => resources.sparc.is_some(),
            _ => false,
        };
        if is_served {
            let problem = format!("has {:?}, which resources.{scheme} serves (remove one of them)", one.uri);
            context.problem(http, problem);
        }
    }
    let place = keys.r#static.place().unwrap_or(&keys.section);
    for (index, one) in resources.r#static.iter().enumerate() {
        if resources.r#static.iter().take(index).any(|other| other.uri == one.uri) {
            context.problem(place, format!("has the URI {:?} twice", one.uri));
        }
    }
    resources
}

/// The phases of a workflow, in their order.
pub const PHASES: [&str; 5] = ["specification", "pseudocode", "architecture", "refinement", "completion"];

/// Largest template of a phase, in bytes.
pub(crate) const MAX_TEMPLATE_BYTES: usize = 256 * 1024;

section! {
    /// Workflows in the phases `specification`, `pseudocode`, `architecture`, `refinement` and
    /// `completion`. A workflow is the tasks of one A2A context.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Sparc {
        /// Limits and filters of the family.
        policy: FamilyPolicy,
        /// Patterns for the ids of skills, by phase: a task of such a skill belongs to the phase,
        /// unless the metadata of the task names one (`sparcPhase`).
        phases: BTreeMap<String, Vec<String>>
            as BTreeMap<String, Spanned<OneOrMany<Spanned<Pattern>>>>
            [example { specification: "specify*" }],
        /// The template of each phase: path of a JSON file with the members `template`,
        /// `guidelines`, `examples` and `validation`. It is read again when it changes.
        templates: BTreeMap<String, PathBuf> as BTreeMap<String, Spanned<String>>
            [example { specification: "templates/specification.json" }],
    }
    check check_sparc
}

fn check_sparc(sparc: Sparc, keys: KeysOf<Sparc>, context: &mut ResolveContext<'_>) -> Sparc {
    let named = [
        (keys.phases.place(), sparc.phases.keys().collect::<Vec<_>>()),
        (keys.templates.place(), sparc.templates.keys().collect()),
    ];
    for (place, names) in named {
        for name in names.into_iter().filter(|name| !PHASES.contains(&name.as_str())) {
            let problem = format!("{name:?} is not a phase (phases: {})", PHASES.join(", "));
            context.problem(&place.cloned().unwrap_or_default(), problem);
        }
    }
    for path in sparc.templates.values() {
        let json =
            resolve::read(path, MAX_TEMPLATE_BYTES).map_err(|error| error.to_string()).and_then(|text| {
                serde_json::from_slice::<serde_json::Map<_, _>>(&text).map_err(|error| error.to_string())
            });
        if let Err(error) = json {
            let problem = format!("{} is not the JSON object of a template: {error}", path.display());
            context.problem(&keys.templates.place().cloned().unwrap_or_default(), problem);
        }
    }
    sparc
}

section! {
    /// Limits and filters of one family of resources. `rules` decide who reads a resource
    /// (`resources`, by its URI in the scheme of the family) and who changes it (`tools`, by the
    /// tools that write it).
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct FamilyPolicy {
        /// Reads and subscriptions per second of each caller, and the same number at once; 0: no
        /// limit besides `limits.caller_rate`.
        rate: usize = 0 in 0..=1000000,
        /// JSON pointers (RFC 6901) into the content; clients read `***` in place of the values
        /// that they point to. A step `*` stands for every member or element.
        redact: Vec<String> as Vec<Spanned<JsonPointer>> = [] [example ["/metadata/clientInfo"]],
        /// Age since its last change at which a resource expires for readers. Without it resources
        /// are readable as long as they exist.
        max_age: Option<Duration> [example 24h],
    }
}

section! {
    /// The memory bank: JSON values of each caller under namespaces and keys. With
    /// `tasks.data_dir` they survive a restart. Bytes count keys, values and the index.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct MemoryFamily {
        /// Limits and filters of the family.
        policy: FamilyPolicy,
        /// Largest value.
        value_bytes: usize as ByteSize = 64KiB in 1KiB..=16MiB,
        /// Most keys of one caller.
        caller_keys: usize = 10000 in 1..=100000000,
        /// Most bytes of one caller.
        caller_bytes: usize as ByteSize = 16MiB in 1KiB..=1024GiB,
        /// Most keys of all callers.
        max_keys: usize = 100000 in 1..=100000000,
        /// Most bytes of all callers.
        max_bytes: usize as ByteSize = 256MiB in 1KiB..=1024GiB,
        /// Longest time for which a value is kept after it was stored. Without it values that name
        /// no `ttl` are kept until they are deleted.
        ttl: Option<Duration> [example 30d],
        /// True if each finished task of a named caller is stored as well: under
        /// `task:{taskId}:{phase}` in the namespace of its `contextId`. A task without a phase has
        /// `result` there.
        task_results: bool = false,
    }
}

section! {
    /// Batches of calls. Each caller has its own queue, settings and measurements; the bounds are
    /// the most that a caller may set. Batches end with the process.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct BatchFamily {
        /// Limits and filters of the family.
        policy: FamilyPolicy,
        /// Most calls of one caller at once.
        max_concurrency: usize = 8 in 1..=10000,
        /// Most calls of one batch.
        max_calls: usize = 100 in 1..=1000,
        /// Most calls of one caller that wait.
        queue_size: usize = 1000 in 1..=100000,
        /// Most batches of one caller, with the finished ones that are kept.
        caller_batches: usize = 32 in 1..=10000,
        /// Most bytes of arguments and results of one caller.
        caller_bytes: usize as ByteSize = 16MiB in 1KiB..=1024GiB,
        /// Most bytes of arguments and results of all callers.
        max_bytes: usize as ByteSize = 128MiB in 1KiB..=1024GiB,
        /// Time after which a call is no longer waited for: its result then names the task.
        call_timeout: Duration = 10m in 1s..=1d,
        /// Time for which a finished batch can be read.
        keep: Duration = 1h in 1s..=30d,
    }
}
