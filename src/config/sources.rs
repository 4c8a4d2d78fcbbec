//! Agents besides those of `agents`: `sources.NAME`, a folder of cards, an API catalog or another
//! gateway; URLs on the command line; and `admin.agents_file`, agents that operators write with the
//! admin API.
//!
//! A source is another party: its agents count as named by a card. They are called at the origin of
//! the source, at its `hosts` and where `outbound.allow` permits it, and its credentials go to its
//! `hosts` alone. See also `gateway::sources`, which reads the sources.
//!
//! The file of the operators is a part of the configuration, as an included one: its agents are read
//! and checked with all others. A change is checked as a whole configuration before the file is written.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http::{HeaderName, Uri};
use serde_json::{Map, Value, json};

use super::agent::{AgentTls, HostText, MAX_NAME_BYTES, headers};
use super::forms::{ByteSize, HumanDuration};
use super::host::{effective_port, web_url};
use super::include::{JoinedTree, remove};
use super::reference::{References, ReloadableSecret, Template};
use super::resolve::{Problem, ResolveContext};
use super::section::{KeysOf, section, to_json};
use super::yaml::{self, Spanned, YamlKey, YamlNode, YamlValue};
use super::{Agent, CardSource, FILE, Settings, manifest, text_of};

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

/// The name of the body of a request in problems.
const BODY: &str = "body";
/// The path of the key that names the file.
const KEY: &str = "admin.agents_file";

/// A change of the agents in the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AgentEdit {
    /// Adds or replaces an agent; the text is YAML or JSON, as one entry of `agents`.
    Put {
        /// Its name.
        name: String,
        /// Its keys.
        text: String,
    },
    /// Removes an agent.
    Remove {
        /// Its name.
        name: String,
    },
}

impl AgentEdit {
    /// Returns the name of the agent.
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Put { name, .. } | Self::Remove { name } => name,
        }
    }
}

/// A configuration that was read, and with a change the content of the file of agents.
pub(crate) struct LoadedSettings {
    pub(crate) settings: Settings,
    pub(crate) agents: Option<AgentsFile>,
}

impl From<Settings> for LoadedSettings {
    fn from(settings: Settings) -> Self {
        Self { settings, agents: None }
    }
}

/// The content of the file of agents after a change.
pub(crate) struct AgentsFile {
    path: PathBuf,
    text: String,
}

/// The file beside the one that it replaces. Removed when it is dropped.
pub(crate) struct AgentsDraft {
    draft: PathBuf,
    path: PathBuf,
}

impl AgentsFile {
    /// Writes the content beside the file, for this user alone. Blocks.
    ///
    /// # Errors
    ///
    /// That of the system.
    pub(crate) fn write_draft(&self) -> io::Result<AgentsDraft> {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        let draft = self.path.with_file_name(format!(".{name}.draft"));
        match fs::remove_file(&draft) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        let mut out = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
        let draft = AgentsDraft { draft, path: self.path.clone() };
        out.write_all(self.text.as_bytes())?;
        out.sync_all()?;
        Ok(draft)
    }
}

impl AgentsDraft {
    /// Replaces the file. Blocks.
    ///
    /// # Errors
    ///
    /// That of the system; the file is as before then.
    pub(crate) fn commit(self) -> io::Result<()> {
        fs::rename(&self.draft, &self.path)?;
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty());
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
    }
}

impl Drop for AgentsDraft {
    fn drop(&mut self) {
        // After a commit there is none.
        drop(fs::remove_file(&self.draft));
    }
}

/// Returns the names of the agents in a file, which need not exist.
///
/// # Errors
///
/// The problems of the file.
pub(crate) fn agents_in(file: &Path) -> Result<BTreeSet<String>, Vec<Problem>> {
    let entries = entries(file)?;
    Ok(entries.into_iter().map(|(key, _)| key.name).collect())
}

/// Joins the file of agents, if the configuration names one, with a change. Returns its content after
/// the change.
pub(super) fn join(
    tree: &mut JoinedTree,
    edit: Option<&AgentEdit>,
    references: &References<'_>,
    context: &mut ResolveContext<'_>,
) -> Option<AgentsFile> {
    let written = tree.text_at(KEY)?;
    // A problem of the reference is reported with the key.
    let named = references.replace(&written, KEY).ok()?.unwrap_or(written);
    let path = context.path(&named);
    context.note_file(&path);
    let mut kept = match entries(&path) {
        Ok(entries) => entries,
        Err(problems) => {
            problems.into_iter().for_each(|problem| context.report(problem));
            return None;
        }
    };
    let Some(edit) = edit else {
        tree.add_node(path, section_of("agents", kept));
        return None;
    };
    kept.retain(|(key, _)| key.name != edit.name());
    let mut agents: Map<String, Value> =
        kept.iter().map(|(key, node)| (key.name.clone(), to_json(node.value.clone()))).collect();
    tree.add_node(path.clone(), section_of("agents", kept));
    if let AgentEdit::Put { name, text } = edit {
        let mut problems = Vec::new();
        let body = yaml::parse(text, &mut problems).map_err(|problem| problems.push(problem));
        for problem in problems {
            context.report(Problem { file: Some(BODY.into()), ..problem });
        }
        let body = body.ok()?;
        agents.insert(name.clone(), to_json(body.value.clone()));
        let key = YamlKey { line: 1, name: name.clone() };
        tree.add_node(BODY.into(), section_of("agents", vec![(key, body)]));
    }
    let text = format!("{:#}\n", json!({ "agents": agents }));
    if text.len() > FILE {
        let problem = format!("the file of agents would be larger than {} MiB", FILE >> 20);
        context.report(Problem { file: Some(path), line: None, at: String::new(), problem });
        return None;
    }
    Some(AgentsFile { path, text })
}

/// Returns the agents of a file, which need not exist.
fn entries(file: &Path) -> Result<Vec<(YamlKey, YamlNode)>, Vec<Problem>> {
    if !file.exists() {
        return Ok(Vec::new());
    }
    let of_file = |problem: Problem| Problem { file: Some(file.to_owned()), ..problem };
    let text = text_of(file).map_err(|problem| vec![of_file(problem)])?;
    let mut problems = Vec::new();
    let node = yaml::parse(&text, &mut problems).map_err(|problem| problems.push(problem));
    if let (Ok(mut node), true) = (node, problems.is_empty()) {
        let agents = remove(&mut node, "agents");
        let is_alone = matches!(&node.value, YamlValue::Section(rest) if rest.is_empty());
        if let (Some((_, YamlNode { value: YamlValue::Section(entries), .. })), true) = (agents, is_alone) {
            return Ok(entries);
        }
        let problem = "holds more or less than `agents` (it is written by the admin API)".to_owned();
        problems.push(Problem { file: None, line: Some(1), at: String::new(), problem });
    }
    Err(problems.into_iter().map(of_file).collect())
}

/// Returns a section with one key, which is a section.
fn section_of(name: &str, entries: Vec<(YamlKey, YamlNode)>) -> YamlNode {
    let node = YamlNode { line: 1, value: YamlValue::Section(entries) };
    YamlNode { line: 1, value: YamlValue::Section(vec![(YamlKey { line: 1, name: name.to_owned() }, node)]) }
}
