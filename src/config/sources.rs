//! `sources.NAME`: agents that a folder of cards, an API catalog or another gateway names; and agents
//! of URLs on the command line.
//!
//! A source is another party: its agents count as named by a card. They are called at the origin of
//! the source, at its `hosts` and where `outbound.allow` permits it, and its credentials go to its
//! `hosts` alone. See also `gateway::sources`, which reads the sources.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use http::{HeaderName, Uri};

use super::agent::{AgentTls, HostText, MAX_NAME_BYTES, headers};
use super::host::{effective_port, web_url};
use super::manifest;
use super::reference::{ReloadableSecret, Template};
use super::resolve::ResolveContext;
use super::section::{KeysOf, section};
use super::spanned::Spanned;
use super::units::{ByteSize, HumanDuration};
use super::{Agent, CardSource};

/// Most sources; each has metrics of its own.
const MAX_SOURCES: usize = 32;

section! {
    /// A source of agents besides `agents`: a folder of cards, or a URL that lists agents.
    keys SourceKeys("Source") with { "oneOf": [{ "required": ["url"] }, { "required": ["folder"] }] } {
        /// URL of an API catalog (RFC 9727) or of the list of another gateway (`GET /a2a`). The
        /// agents are those of the cards that it names.
        url: String [example "https://agents.example.com/.well-known/api-catalog"],
        /// Path of a folder in which every `*.json` is the card of one agent, named by its file: in
        /// lower case, other characters as `-`, cut to 32. In place of `url`.
        folder: String [example cards],
        /// Hosts (`name` or `name:port`) at which agents of this source may be called, besides the
        /// origin of `url` and `outbound.allow`. They alone receive `headers` and the certificate of
        /// `tls`.
        hosts: Vec<Spanned<HostText>> => Vec<String> = [] [example ["agents.example.com"]],
        /// Headers for requests to `url`, and to agents of which the card is at one of `hosts`, such
        /// as credentials.
        headers: BTreeMap<String, Spanned<Template>> [example { Authorization: "Bearer ${env:AGENTS_TOKEN}" }],
        /// Trust in the source and in its agents, and the gateway's certificate for `url` and
        /// `hosts`.
        tls: KeysOf<AgentTls> => AgentTls,
        /// Interval at which it is read. After a failure the pauses begin at 1 s and double, up to
        /// four times this interval.
        interval: HumanDuration => Duration = 1m in 1s..=1d,
        /// Longest time for reading it once.
        timeout: HumanDuration => Duration = 10s in 10ms..=1h,
        /// Largest response; a list of another gateway may have several pages of this size.
        max_bytes: ByteSize => usize = 1MiB in 1KiB..=16MiB,
        /// Most agents. A source with more fails.
        max_agents: u64 => usize = 100 in 1..=1000,
    }
}

/// A source of agents besides the configured ones.
#[derive(Debug, Clone, PartialEq)]
pub struct Source {
    /// Its name.
    pub name: String,
    /// The URL or the folder.
    pub place: SourcePlace,
    /// Hosts (`name` or `name:port`) of agents that may be called and receive credentials.
    pub hosts: Vec<String>,
    /// Headers for the source and its listed agents.
    pub headers: Vec<(HeaderName, ReloadableSecret)>,
    /// Trust, and the gateway's certificate.
    pub tls: AgentTls,
    /// The interval at which it is read.
    pub interval: Duration,
    /// Longest time for reading it once.
    pub timeout: Duration,
    /// Largest response, in bytes.
    pub max_bytes: usize,
    /// Most agents.
    pub max_agents: usize,
}

/// Place of a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SourcePlace {
    /// A URL that lists agents.
    Url(String),
    /// A folder of cards.
    Folder(PathBuf),
}

/// The source that named an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentSource {
    /// The name of the source.
    pub name: String,
    /// Its URL; `None` for a folder.
    pub url: Option<String>,
    /// True if the agent receives the credentials of the source, so that only listed hosts may be
    /// called.
    pub has_credentials: bool,
}

/// An agent as a source names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FoundAgent {
    pub(crate) name: String,
    pub(crate) card: CardSource,
}

impl Source {
    /// Returns the settings of an agent that the source has named; `defaults` are those of all
    /// agents.
    pub(crate) fn agent(&self, found: &FoundAgent, defaults: &Agent) -> Agent {
        let is_listed = match &found.card {
            CardSource::Url(url) => self.lists(url),
            CardSource::File(_) => !self.hosts.is_empty(),
        };
        let has_credentials = is_listed && (!self.headers.is_empty() || self.tls.certificate.is_some());
        let url = match &self.place {
            SourcePlace::Url(url) => Some(url.clone()),
            SourcePlace::Folder(_) => None,
        };
        let ca = self.tls.ca.clone().or_else(|| defaults.tls.ca.clone());
        let own = if has_credentials { self.tls.clone() } else { AgentTls::default() };
        Agent {
            name: found.name.clone(),
            card: found.card.clone(),
            source: Some(AgentSource { name: self.name.clone(), url, has_credentials }),
            headers: if has_credentials { self.headers.clone() } else { Vec::new() },
            tls: AgentTls { ca, server_name: None, ..own },
            allow_hosts: self.hosts.clone(),
            ..defaults.clone()
        }
    }

    /// Returns true if the host of a URL is listed.
    fn lists(&self, url: &str) -> bool {
        let Ok(uri) = url.parse::<Uri>() else { return false };
        let host = uri.host().unwrap_or_default();
        let place = format!("{host}:{}", effective_port(&uri));
        let is_same =
            |listed: &String| listed.eq_ignore_ascii_case(host) || listed.eq_ignore_ascii_case(&place);
        self.hosts.iter().any(is_same)
    }
}

/// Returns the sources, sorted by name.
pub(super) fn sources(
    written: Spanned<BTreeMap<String, Spanned<SourceKeys>>>,
    context: &mut ResolveContext<'_>,
) -> Vec<Source> {
    let Some((place, written)) = written.take() else { return Vec::new() };
    if written.len() > MAX_SOURCES {
        context.problem(&place, format!("has more than {MAX_SOURCES} sources"));
    }
    let mut sources = Vec::new();
    for (name, keys) in written {
        let Some(keys) = keys.open() else { continue };
        if manifest::name(&name) != name || name.is_empty() {
            let problem = "is not the name of a source (a lower-case letter or digit, then up to 31 lower-case letters, digits, - \
                           and _)";
            context.problem(&keys.section, problem);
        }
        sources.extend(keys.resolve(name, context));
    }
    sources
}

impl SourceKeys {
    fn resolve(mut self, name: String, context: &mut ResolveContext<'_>) -> Option<Source> {
        let section = self.section.clone();
        let place = match (std::mem::take(&mut self.url).take(), std::mem::take(&mut self.folder).take()) {
            (Some((place, url)), None) => match web_url(&url) {
                Ok(_) => Some(SourcePlace::Url(url)),
                Err(problem) => context.report_conflict(&place, problem),
            },
            (None, Some((_, folder))) => Some(SourcePlace::Folder(context.path(&folder))),
            (None, None) => context.report_conflict(&section, "names no agents (write `url` or `folder`)"),
            (Some(_), Some((place, _))) => {
                context.report_conflict(&place, "is there beside url (write two sources)")
            }
        };
        let settings = Source {
            name,
            place: SourcePlace::Folder(PathBuf::new()),
            hosts: self.hosts(context),
            headers: headers(std::mem::take(&mut self.headers), context),
            tls: self.tls(context),
            interval: self.interval(context),
            timeout: self.timeout(context),
            max_bytes: self.max_bytes(context),
            max_agents: self.max_agents(context),
        };
        Some(Source { place: place?, ..settings })
    }
}

/// Returns the agents of these cards, each under a name of its own.
pub(crate) fn agents_of_cards(mut cards: Vec<String>) -> Vec<FoundAgent> {
    // In an order that does not depend on that of the source.
    cards.sort();
    cards.dedup();
    let mut found: Vec<FoundAgent> = Vec::new();
    for url in cards {
        let Ok(uri) = web_url(&url) else { continue };
        let name = free_name(&uri, |name| found.iter().all(|agent| agent.name != name));
        found.push(FoundAgent { name, card: CardSource::Url(url) });
    }
    found
}

/// Returns the agent of a card at a URL or in a file under a name that another party chose; `None`
/// if that is not usable.
pub(crate) fn found_agent(name: &str, card: CardSource) -> Option<FoundAgent> {
    let name = manifest::name(name);
    let is_usable = match &card {
        CardSource::Url(url) => web_url(url).is_ok(),
        CardSource::File(_) => true,
    };
    (is_usable && !name.is_empty()).then_some(FoundAgent { name, card })
}

/// Returns the agents at these URLs, of the agents or of their cards, each under a name of its own:
/// the last segment of the path, else the first label of the host, else `agent`.
///
/// # Errors
///
/// The first URL that is not usable, with the reason.
pub(crate) fn agents_at(urls: &[String]) -> Result<Vec<Agent>, String> {
    let mut agents: Vec<Agent> = Vec::new();
    for url in urls {
        let uri = web_url(url).map_err(|problem| format!("{url}: {problem}"))?;
        let name = free_name(&uri, |name| agents.iter().all(|agent| agent.name != name));
        agents.push(Agent::new(name, url));
    }
    Ok(agents)
}

/// Returns a name for the agent at a URL that is still free.
fn free_name(uri: &Uri, is_free: impl Fn(&str) -> bool) -> String {
    let base = manifest::name(&name_in_url(uri));
    let base = if base.is_empty() { "agent".to_owned() } else { base };
    let numbered = (2..).map(|number| {
        let end = format!("-{number}");
        base.chars().take(MAX_NAME_BYTES - end.len()).chain(end.chars()).collect()
    });
    std::iter::once(base.clone()).chain(numbered).find(|name: &String| is_free(name)).unwrap_or_default()
}

/// Returns the part of the URL that names the agent; empty if there is none.
fn name_in_url(url: &Uri) -> String {
    let path = url.path().split("/.well-known/").next().unwrap_or_default();
    let path = path.strip_suffix(".json").unwrap_or(path);
    let segment = path.rsplit('/').find(|segment| !segment.is_empty());
    let host = url.host().unwrap_or_default();
    let is_address = host.starts_with('[') || host.parse::<IpAddr>().is_ok();
    let label = host.split_once('.').filter(|_| !is_address).map(|(label, _)| label);
    segment.or(label).unwrap_or_default().to_owned()
}
