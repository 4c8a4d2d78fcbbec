//! `mcp`, `resources`, `cards` and `sessions`.
//!
//! `resources.http` and `resources.files` name JSON endpoints of existing systems under URIs of
//! resources, and files that agents keep at their own origin. See also `resources::configured` and
//! `agents::files`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use http::HeaderName;

use super::ResourceLinks;
use super::agent::{AgentTls, CardSignatureKeys, headers};
use super::auth::Pattern;
use super::forms::{ByteSize, Form, HumanDuration, checked_text, choice};
use super::host::{AllowedHost, AllowedOrigin, web_url};
use super::prompts::{StaticResource, StaticResourceKeys, uri_variables};
use super::reference::{ReloadableSecret, Template};
use super::resolve::{self, ResolveContext};
use super::section::{KeysOf, section};
use super::settings::JsonPointer;
use super::yaml::{Location, OneOrMany, Spanned};

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

/// Schemes that no endpoint can serve.
const OTHER_SCHEMES: [&str; 3] = ["a2a", "a2a-agent", "mcp"];
/// Variable of a URL that stands for the name of the caller.
const CALLER: &str = "caller";

section! {
    /// Files that agents name by URL at an origin where they are called anyway: reading the artifact
    /// reads them too, with the credentials of the agent.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct ArtifactFiles {
        /// Largest file.
        max_bytes: usize as ByteSize = 8MiB in 1KiB..=256MiB,
        /// Most files of one artifact that are read; the others stay URLs.
        max_files: usize = 16 in 1..=100,
        /// Longest time for the files of one artifact.
        timeout: Duration = 30s in 10ms..=1h,
    }
}

section! {
    /// A JSON endpoint of an existing system, read under URIs of resources.
    keys HttpResourceKeys("HttpResource") {
        /// The URI, of any scheme but `a2a`, `a2a-agent` and `mcp`; of `memory`, `batchtools` and
        /// `sparc` only where that family is not configured. With `{NAME}` in it, it is a template:
        /// each stands for one segment of the path, or a part of one.
        uri: String => Option<String>
            [required "write the URI of the resource" example "memory://data/{namespace}/{key}"],
        /// The URL that is read (GET). `{NAME}` stands for the value of a variable of the URI,
        /// `{caller}` for the name of the caller; both percent-encoded. They may be in the path and
        /// the query.
        url: String => Option<String>
            [required "write the URL of the endpoint" example "https://bank.internal/{caller}/{namespace}/{key}"],
        /// Its name. Without it: its URI.
        name: String => Option<String> [example "memory value"],
        /// Its content, in words.
        description: String => Option<String> [example "A value of the memory bank."],
        /// Headers for every request, such as credentials.
        headers: BTreeMap<String, Spanned<Template>> [example { Authorization: "Bearer ${env:BANK_TOKEN}" }],
        /// Trust in the server, and the gateway's certificate for it.
        tls: KeysOf<AgentTls> => AgentTls,
        /// Largest response.
        max_bytes: ByteSize => usize = 1MiB in 1KiB..=256MiB,
        /// Longest time for a response.
        timeout: HumanDuration => Duration = 10s in 10ms..=1h,
    }
}

/// A JSON endpoint of an existing system.
#[derive(Debug, Clone, PartialEq)]
pub struct HttpResource {
    /// Its URI, or the template of its URIs.
    pub uri: String,
    /// The URL that is read, with variables in path and query.
    pub url: String,
    /// Its name.
    pub name: String,
    /// Its content, in words.
    pub description: Option<String>,
    /// Headers for every request.
    pub headers: Vec<(HeaderName, ReloadableSecret)>,
    /// Trust in the server, and the gateway's certificate for it.
    pub tls: AgentTls,
    /// Most bytes of a response.
    pub max_bytes: usize,
    /// Longest time for a response.
    pub timeout: Duration,
}

impl HttpResource {
    /// Returns true if its URI is a template.
    pub(crate) fn is_template(&self) -> bool {
        self.uri.contains('{')
    }
}

/// Returns the defect of a URL with variables.
fn url_problem(url: &str, variables: &[&str]) -> Option<String> {
    let origin_end = url.find("://").and_then(|at| Some(at + 3 + url.get(at + 3..)?.find('/')?));
    if url.find('{').is_some_and(|first| origin_end.is_none_or(|end| first < end)) {
        return Some("has a variable in its host (variables may be in the path and the query)".to_owned());
    }
    let mut pieces = url.split('{');
    let mut plain = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let Some((name, rest)) = piece.split_once('}') else {
            return Some("has a { without its }".to_owned());
        };
        if name != CALLER && !variables.contains(&name) {
            return Some(format!("names a variable {name:?} that the URI does not have"));
        }
        plain.push('x');
        plain.push_str(rest);
    }
    web_url(&plain).err()
}

impl Form<HttpResource> for HttpResourceKeys {
    fn resolve(mut self, place: &Location, context: &mut ResolveContext<'_>) -> Option<HttpResource> {
        self.section = place.clone();
        let (uri, url) = (self.uri(context), self.url(context));
        let (name, description) = (self.name(context), self.description(context));
        let (tls, max_bytes, timeout) = (self.tls(context), self.max_bytes(context), self.timeout(context));
        let headers = headers(std::mem::take(&mut self.headers), context);
        let uri_place = self.uri.place().unwrap_or(place).clone();
        let url_place = self.url.place().unwrap_or(place).clone();
        let (uri, url) = (uri?, url?);
        let variables = match uri_variables(&uri, &OTHER_SCHEMES) {
            Ok(variables) => variables,
            Err(problem) => return context.report_conflict(&uri_place, problem),
        };
        if let Some(problem) = url_problem(&url, &variables) {
            return context.report_conflict(&url_place, problem);
        }
        let name = name.unwrap_or_else(|| uri.clone());
        Some(HttpResource { uri, url, name, description, headers, tls, max_bytes, timeout })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_have_variables_after_the_host() {
        for (url, problem) in [
            ("https://bank.example/{caller}/{key}?n={namespace}", None),
            ("https://{key}.example/", Some("in its host")),
            ("https://bank.example{key}/", Some("in its host")),
            ("https://bank.example/{other}", Some("\"other\"")),
            ("https://bank.example/{key", Some("without its }")),
            ("ftp://bank.example/{key}", Some("scheme ftp")),
            ("https://user:password@bank.example/{key}", Some("password")),
        ] {
            let found = url_problem(url, &["namespace", "key"]);
            match problem {
                None => assert_eq!(found, None, "{url}"),
                Some(part) => {
                    assert!(found.as_ref().is_some_and(|text| text.contains(part)), "{url}: {found:?}")
                }
            }
        }
    }
}
