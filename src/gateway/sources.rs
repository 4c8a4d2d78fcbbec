//! Sources of agents: reads the URLs and folders of `sources` at their intervals, and applies the
//! agents that they name.
//!
//! A source that fails keeps its last agents; it is read again after pauses that double. Everything
//! that it sends is bounded: bytes, agents and time. Redirects are not followed. See
//! `config::sources` for the settings of these agents.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, ETAG, IF_NONE_MATCH};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri};
use serde::Deserialize;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};
use tracing::{info, warn};

use super::reload::{ReloadError, ReloadReport, Reloader};
use crate::auth::TlsIdentity;
use crate::config::{
    AgentsDraft, CardSource, FoundAgent, Settings, Source, SourcePlace, agents_of_cards, found_agent,
};
use crate::sync::lock;
use crate::telemetry::label::SourcePoll;
use crate::timing::{Backoff, with_jitter};
use crate::transport::{
    AddressPolicy, ExchangeTimeouts, HttpClient, TargetSettings, TransportError, Upstream,
};

/// Reason for which a source was not read within its timeout.
const TOO_SLOW: &str = "did not respond in time";
/// Shortest time between the starts of two rounds of readings, unless a configuration is applied.
const MIN_PAUSE: Duration = Duration::from_millis(200);
/// First pause after a failure.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// Longest pause after failures, in intervals of the source.
const MAX_PAUSE_INTERVALS: u32 = 4;
/// Part of a pause by which it varies.
const JITTER: f64 = 0.1;
/// Longest cursor of a list of agents, in bytes.
const MAX_CURSOR_BYTES: usize = 4096;
/// The ends of the paths of cards.
const CARD_PATHS: [&str; 2] = ["/agent-card.json", "/agent.json"];

/// The states of the sources, for reports.
#[derive(Default)]
pub(super) struct SourceStates(Mutex<BTreeMap<String, SourceState>>);

/// The state of a source.
#[derive(Debug, Clone, Default)]
struct SourceState {
    /// True if it has been read at least once, with success or not.
    is_initialized: bool,
    /// The error of the last attempt, if that failed.
    problem: Option<String>,
}

impl SourceStates {
    /// Returns true if every one of these sources has been read at least once, with success or not.
    pub(super) fn are_initialized(&self, sources: &[Source]) -> bool {
        let states = lock(&self.0);
        sources.iter().all(|source| states.get(&source.name).is_some_and(|state| state.is_initialized))
    }

    /// Returns the configuration keys of the sources of which the last reading failed.
    pub(super) fn failing(&self) -> Vec<String> {
        let states = lock(&self.0);
        let failing = states.iter().filter(|(_, state)| state.problem.is_some());
        failing.map(|(name, _)| format!("sources.{name}")).collect()
    }

    fn set(&self, name: &str, problem: Option<String>) {
        lock(&self.0).insert(name.to_owned(), SourceState { is_initialized: true, problem });
    }

    fn remove(&self, name: &str) {
        lock(&self.0).remove(name);
    }
}

/// The reason for which a change of the agents of the admin API has changed nothing.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AgentEditError {
    /// The configuration names no file for them.
    #[error("agents cannot be changed here: admin.agents_file is not set")]
    Off,
    /// The agent is one of the configuration.
    #[error("the configuration has an agent of this name: change it there")]
    Configured,
    /// There is no agent of this name in the file.
    #[error("there is no agent of this name")]
    Unknown,
    /// The file cannot be written.
    #[error("cannot write admin.agents_file: {0}")]
    Write(#[from] std::io::Error),
    /// The configuration with the change is not accepted.
    #[error(transparent)]
    Reload(#[from] ReloadError),
}

/// The outcome of a change of the agents of the admin API.
pub(crate) struct EditedAgents {
    /// True if the file had no agent of this name.
    pub(crate) is_new: bool,
    pub(crate) report: ReloadReport,
}

/// A change of the agents of the admin API that was checked.
pub(super) struct PreparedEdit {
    pub(super) is_new: bool,
    pub(super) settings: Settings,
    pub(super) draft: AgentsDraft,
}

/// Reads the sources of the configuration in use, and applies their agents.
pub(crate) struct SourcePoller {
    reloader: Arc<Reloader>,
}

/// A source between two readings.
struct PolledSource {
    source: Source,
    due: Instant,
    failures: u32,
    /// The validator of its last response.
    etag: Option<String>,
    /// Its agents, once it has been read.
    found: Option<Vec<FoundAgent>>,
}

/// The result of reading a source.
struct SourceContent {
    /// `None`: as before.
    found: Option<Vec<FoundAgent>>,
    etag: Option<String>,
}

impl SourcePoller {
    pub(crate) fn new(reloader: Arc<Reloader>) -> Self {
        Self { reloader }
    }

    /// Reads the sources until it is dropped.
    pub(crate) async fn run(&self) {
        let mut polled: BTreeMap<String, PolledSource> = BTreeMap::new();
        loop {
            self.adopt(&mut polled).await;
            let now = Instant::now();
            let mut readings = JoinSet::new();
            for known in polled.values().filter(|known| known.due <= now) {
                let (client, source) = (self.reloader.lasting().http_client.clone(), known.source.clone());
                let etag = known.etag.clone().filter(|_| known.found.is_some());
                readings.spawn(async move {
                    let reading = timeout(source.timeout, read(&client, &source, etag)).await;
                    (source, reading.unwrap_or_else(|_| Err(TOO_SLOW.to_owned())))
                });
            }
            while let Some(read) = readings.join_next().await {
                let Ok((source, content)) = read else { continue };
                if let Some(known) = polled.get_mut(&source.name) {
                    self.conclude(known, content).await;
                }
            }
            let next = polled.values().map(|known| known.due).min();
            let is_due = async {
                match next {
                    Some(due) => sleep_until(due.max(now + MIN_PAUSE)).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = self.reloader.applied.notified() => {}
                () = is_due => {}
            }
        }
    }

    /// Takes the sources of the configuration in use over. One with other settings is read at once.
    async fn adopt(&self, polled: &mut BTreeMap<String, PolledSource>) {
        let sources = self.reloader.sources().await;
        let (metrics, states) = (&self.reloader.lasting().metrics.config, &self.reloader.lasting().sources);
        polled.retain(|name, _| {
            let is_there = sources.iter().any(|source| source.name == *name);
            if !is_there {
                metrics.forget_source(name);
                states.remove(name);
            }
            is_there
        });
        for source in sources {
            if polled.get(&source.name).is_some_and(|known| known.source == source) {
                continue;
            }
            let (name, due) = (source.name.clone(), Instant::now());
            // The agents of another place are not those of this one.
            let found = polled.remove(&name).filter(|known| known.source.place == source.place);
            let found = found.and_then(|known| known.found);
            polled.insert(name, PolledSource { source, due, failures: 0, etag: None, found });
        }
    }

    /// Applies the result of reading a source.
    async fn conclude(&self, known: &mut PolledSource, content: Result<SourceContent, String>) {
        let name = known.source.name.as_str();
        let outcome = match content {
            Ok(SourceContent { found: Some(found), etag }) if known.found.as_ref() != Some(&found) => {
                let applied = self.reloader.set_agents(name, found.clone()).await;
                applied
                    .map(|_| (known.found, known.etag) = (Some(found), etag))
                    .map_err(|error| error.to_string())
            }
            Ok(SourceContent { found: _, etag }) => {
                known.etag = etag;
                Ok(())
            }
            Err(problem) => Err(problem),
        };
        let metrics = &self.reloader.lasting().metrics.config;
        let interval = known.source.interval;
        let pause = match &outcome {
            Ok(()) => {
                if known.failures > 0 {
                    info!(source = name, "source of agents is read again");
                }
                known.failures = 0;
                interval
            }
            Err(error) => {
                if known.failures == 0 {
                    warn!(source = name, %error, "failed to read source of agents, keeping its last agents");
                }
                let backoff =
                    Backoff { base: FIRST_PAUSE, max: interval.saturating_mul(MAX_PAUSE_INTERVALS) };
                let pause = backoff.pause(known.failures);
                known.failures = known.failures.saturating_add(1);
                pause
            }
        };
        let label = if outcome.is_ok() { SourcePoll::Ok } else { SourcePoll::Failed };
        metrics.record_source(name, label, known.found.as_ref().map_or(0, Vec::len));
        self.reloader.lasting().sources.set(name, outcome.err());
        known.due = Instant::now() + with_jitter(pause, JITTER, rand::random());
    }
}

/// Reads a source once.
async fn read(client: &HttpClient, source: &Source, etag: Option<String>) -> Result<SourceContent, String> {
    match &source.place {
        SourcePlace::Url(url) => SourceRequest::new(client, source, url).await?.read(etag).await,
        SourcePlace::Folder(folder) => {
            let (folder, most) = (folder.clone(), source.max_agents);
            let read = tokio::task::spawn_blocking(move || read_folder(&folder, most)).await;
            let found = read.map_err(|error| error.to_string())??;
            Ok(SourceContent { found: Some(found), etag: None })
        }
    }
}

/// Returns the agents of the cards in a folder, in the order of their names. Blocks.
fn read_folder(folder: &Path, most: usize) -> Result<Vec<FoundAgent>, String> {
    let unreadable = |error| format!("cannot read {}: {error}", folder.display());
    let mut cards = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if !name.starts_with('.') && name.ends_with(".json") && path.is_file() {
            cards.push(path);
        }
        if cards.len() > most {
            return Err(too_many(most));
        }
    }
    cards.sort();
    let mut found: Vec<FoundAgent> = Vec::new();
    for path in cards {
        let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if let Some(agent) = found_agent(&stem, CardSource::File(path)) {
            add(&mut found, agent);
        }
    }
    Ok(found)
}

/// Adds an agent. The first one keeps a name that two have.
fn add(found: &mut Vec<FoundAgent>, agent: FoundAgent) {
    if found.iter().all(|other| other.name != agent.name) {
        found.push(agent);
    }
}

fn too_many(most: usize) -> String {
    format!("names more than {most} agents (max_agents)")
}

/// Requests to the URL of a source.
struct SourceRequest<'a> {
    client: &'a HttpClient,
    source: &'a Source,
    upstream: Upstream,
    uri: Uri,
    headers: HeaderMap,
}

impl<'a> SourceRequest<'a> {
    async fn new(client: &'a HttpClient, source: &'a Source, url: &str) -> Result<Self, String> {
        let uri: Uri = url.parse().map_err(|_| "its URL cannot be called".to_owned())?;
        // The operator wrote the URL.
        let mut target = TargetSettings::new(uri.clone(), AddressPolicy::Trusted);
        let is_plain = uri.scheme_str() == Some("http");
        target.tls = TlsIdentity::new(&source.tls, is_plain)?.tls(true);
        target.server_name.clone_from(&source.tls.server_name);
        target.timeouts = ExchangeTimeouts {
            connect: source.timeout.min(target.timeouts.connect),
            first_byte: source.timeout,
            idle: source.timeout,
            total: source.timeout,
        };
        let upstream = Upstream::new(target).map_err(|error| error.to_string())?;
        let configured = source.headers.clone();
        let read = tokio::task::spawn_blocking(move || {
            let mut headers = HeaderMap::new();
            for (name, secret) in configured {
                let mut value = HeaderValue::from_str(secret.read_again()?.expose())
                    .map_err(|_| format!("header {name} cannot be sent"))?;
                value.set_sensitive(true);
                headers.insert(name, value);
            }
            Ok::<_, String>(headers)
        });
        let mut headers = read.await.map_err(|error| error.to_string())??;
        let accepted = HeaderValue::from_static("application/linkset+json, application/json");
        headers.entry(ACCEPT).or_insert(accepted);
        Ok(Self { client, source, upstream, uri, headers })
    }

    /// Reads the catalog or every page of the list.
    async fn read(&self, etag: Option<String>) -> Result<SourceContent, String> {
        let most = self.source.max_agents;
        let Some(first) = self.get(None, etag.as_deref()).await? else {
            return Ok(SourceContent { found: None, etag });
        };
        let SourceResponse { document, etag } = first;
        if let Some(linkset) = document.linkset {
            let cards = cards_of(linkset, &self.uri);
            if cards.len() > most {
                return Err(too_many(most));
            }
            return Ok(SourceContent { found: Some(agents_of_cards(cards)), etag });
        }
        let Some(agents) = document.agents else {
            return Err(
                "is neither an API catalog (`linkset`) nor the list of a gateway (`agents`)".to_owned()
            );
        };
        let mut found = Vec::new();
        let (mut page, mut cursor) = (agents, document.next_cursor);
        // A validator is one of the first page alone.
        let etag = etag.filter(|_| cursor.is_none());
        loop {
            if page.is_empty() && cursor.is_some() {
                return Err("has an empty page that is not the last".to_owned());
            }
            for ListedAgent { name, card } in page {
                let card = absolute(&card, &self.uri);
                if let Some(agent) = found_agent(&name, CardSource::Url(card)) {
                    add(&mut found, agent);
                }
            }
            if found.len() > most {
                return Err(too_many(most));
            }
            let Some(next) = cursor.take() else { break };
            let next = self.get(Some(&next), None).await?;
            let document = next.ok_or("has no next page")?.document;
            (page, cursor) = (document.agents.unwrap_or_default(), document.next_cursor);
        }
        found.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(SourceContent { found: Some(found), etag })
    }

    /// Gets one page; `None` if it is the one that the validator belongs to.
    async fn get(&self, cursor: Option<&str>, etag: Option<&str>) -> Result<Option<SourceResponse>, String> {
        let mut path = self.uri.path_and_query().map_or("/", PathAndQuery::as_str).to_owned();
        if let Some(cursor) = cursor {
            if cursor.len() > MAX_CURSOR_BYTES {
                return Err("its cursor is too long".to_owned());
            }
            path.push(if path.contains('?') { '&' } else { '?' });
            path.push_str("cursor=");
            path.extend(percent_encoding::utf8_percent_encode(cursor, percent_encoding::NON_ALPHANUMERIC));
        }
        let mut request = Request::new(Bytes::new());
        *request.method_mut() = Method::GET;
        *request.uri_mut() = path.parse().map_err(|_| "its URL cannot be called".to_owned())?;
        request.headers_mut().clone_from(&self.headers);
        if let Some(etag) = etag.and_then(|etag| HeaderValue::from_str(etag).ok()) {
            request.headers_mut().insert(IF_NONE_MATCH, etag);
        }
        let response = self.client.send(&self.upstream, request).await;
        let mut response = response.map_err(|error| failure_text(&error))?;
        match response.status() {
            StatusCode::OK => {}
            StatusCode::NOT_MODIFIED if etag.is_some() => return Ok(None),
            status => return Err(format!("answered with HTTP {}", status.as_u16())),
        }
        let etag = response.headers().get(ETAG).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let body = response.collect(self.source.max_bytes).await;
        let body = body.map_err(|error| failure_text(&error))?;
        // The error of serde could quote the body.
        let document = serde_json::from_slice(&body);
        let document =
            document.map_err(|error| format!("is not JSON of a source (line {})", error.line()))?;
        Ok(Some(SourceResponse { document, etag }))
    }
}

/// Returns the reason for which a page was not read. One exchange may take as long as all pages, so
/// that either limit can be reached first: the text is the same.
fn failure_text(error: &TransportError) -> String {
    match error {
        TransportError::FirstByteTimeout | TransportError::IdleTimeout | TransportError::TotalTimeout => {
            TOO_SLOW.to_owned()
        }
        error => error.to_string(),
    }
}

struct SourceResponse {
    document: SourceDocument,
    etag: Option<String>,
}

/// An API catalog, or a page of the list of a gateway.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SourceDocument {
    linkset: Option<Vec<LinkContext>>,
    agents: Option<Vec<ListedAgent>>,
    next_cursor: Option<String>,
}

#[derive(Deserialize)]
struct ListedAgent {
    name: String,
    card: String,
}

/// The links of one context (RFC 9264 §4.2). Other relations have no meaning here.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct LinkContext {
    #[serde(default)]
    service_desc: Vec<CatalogLink>,
    #[serde(default)]
    describedby: Vec<CatalogLink>,
    #[serde(default)]
    item: Vec<CatalogLink>,
}

#[derive(Deserialize)]
struct CatalogLink {
    href: String,
}

/// Returns the URLs of the cards in a catalog: of each context the first description that is a card,
/// and its items that are cards. Other APIs are left out.
fn cards_of(linkset: Vec<LinkContext>, base: &Uri) -> Vec<String> {
    let is_card = |link: &CatalogLink| {
        let path = link.href.split(['?', '#']).next().unwrap_or_default();
        CARD_PATHS.iter().any(|end| path.ends_with(end))
    };
    let mut cards = Vec::new();
    for LinkContext { service_desc, describedby, item } in linkset {
        cards.extend(service_desc.into_iter().chain(describedby).find(is_card));
        cards.extend(item.into_iter().filter(is_card));
    }
    let mut cards: Vec<String> = cards.into_iter().map(|link| absolute(&link.href, base)).collect();
    cards.sort();
    cards.dedup();
    cards
}

/// Returns the URL of a reference; one without a host begins at the origin of the source.
fn absolute(reference: &str, base: &Uri) -> String {
    match (reference.starts_with('/') && !reference.starts_with("//"), base.scheme_str(), base.authority()) {
        (true, Some(scheme), Some(authority)) => format!("{scheme}://{authority}{reference}"),
        _ => reference.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn catalog_names_cards_alone() {
        let links = |hrefs: &[&str]| hrefs.iter().map(|href| json!({ "href": href })).collect::<Vec<_>>();
        let document: SourceDocument = serde_json::from_value(json!({ "linkset": [
            { "anchor": "https://a/", "item": links(&["https://a/x", "/b/.well-known/agent-card.json"]) },
            { "service-desc": links(&["https://a/openapi.json"]), "service-meta": links(&["https://a/agent.json"]) },
            {
                "service-desc": links(&["https://a/spec", "https://a/c/agent.json?v=1"]),
                "describedby": links(&["https://a/d/agent-card.json"]),
            },
            { "describedby": links(&["https://a/b/.well-known/agent-card.json"]) },
        ] })).unwrap();
        let base = "https://a/catalog".parse().unwrap();
        let cards = cards_of(document.linkset.unwrap(), &base);
        assert_eq!(cards, ["https://a/b/.well-known/agent-card.json", "https://a/c/agent.json?v=1"]);
        let names: Vec<_> = agents_of_cards(cards).into_iter().map(|agent| agent.name).collect();
        assert_eq!(names, ["b", "agent"]);
    }

    #[test]
    fn folder_is_bounded_and_sorted() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["Weather 1.json", "b.json", ".c.json", "d.txt", "….json"] {
            std::fs::write(folder.path().join(name), "{}").unwrap();
        }
        let found = read_folder(folder.path(), 3).unwrap();
        assert_eq!(found.iter().map(|agent| &*agent.name).collect::<Vec<_>>(), ["weather-1", "b"]);
        assert_eq!(read_folder(folder.path(), 2), Err(too_many(2)));
        assert!(read_folder(&folder.path().join("gone"), 2).unwrap_err().contains("gone"));
    }
}
