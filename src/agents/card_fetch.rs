//! One fetch of an agent's card, over HTTP or from a file; the verification of its signature; the
//! reasons for which an agent has no usable card; and the last good card of each agent, cached in the
//! data directory, so that the tools of an agent that is down are available after a restart.
//!
//! Follows `docs/spec/a2a.md §2.1`: both well-known paths, validators honoured, no redirects. See
//! also `directory` for the times and `a2a::card` for the content.
//!
//! Signatures follow `docs/spec/a2a.md §3.3`. The first that fits in any form is enough. Parts of the
//! card that it does not cover are removed: another party could have inserted them. A file of keys
//! that is missing or broken changes nothing: the previous keys remain.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE, ETAG, IF_NONE_MATCH, LOCATION};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri};
use jsonwebtoken::jwk::JwkSet;
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};
use tokio::io::AsyncReadExt as _;
use tokio::sync::{Semaphore, watch};

use super::agent::Agent;
use super::resolved::UntrustedInterface;
use crate::a2a::{
    AgentCard, CanonicalForm, CardError, CardSignature, Dialect, MAX_CARD_BYTES, SignedCard, SignedContent,
    VerifiedSignature, clean,
};
use crate::auth::{ALGORITHMS, AccessToken, KeySet, SignatureError};
use crate::config;
use crate::config::CardSource;
use crate::file_watcher::FileWatcher;
use crate::telemetry::label::Reload;
use crate::telemetry::metrics::AgentMetrics;
use crate::transport::{HttpClient, Response, TlsFailure, TransportError};

/// Permits to read a file with a card: each read takes a thread.
static CARD_FILES: Semaphore = Semaphore::const_new(8);

/// The maximum size of a card, in bytes.
const MAX_CARD_BODY_BYTES: usize = 1024 * 1024;
/// The maximum size of a response that is no card, in bytes, of which the kind is determined.
const MAX_ERROR_BODY_BYTES: usize = 16 * 1024;
/// The maximum length of a URL of a peer in messages, in bytes.
const MAX_SHOWN_URL: usize = 256;
/// The paths of cards, newest first.
const WELL_KNOWN: [&str; 2] = ["/.well-known/agent-card.json", "/.well-known/agent.json"];

/// A card that was fetched.
#[derive(Debug)]
pub(super) struct FetchedCard {
    /// The card; `None` if it is still the one that the validator belongs to.
    pub card: Option<AgentCard>,
    /// The validator for the next fetch.
    pub etag: Option<String>,
    /// The time for which the card is fresh, as the agent states it.
    pub fresh_for: Option<Duration>,
    /// The URL that it came from; `None` for a file.
    pub from: Option<Uri>,
}

/// A request for a card.
pub(super) struct CardRequest<'a> {
    pub(super) client: &'a HttpClient,
    /// The agent of the card.
    pub(super) agent: &'a Agent,
    pub(super) etag: Option<&'a str>,
}

impl CardRequest<'_> {
    /// Fetches the card of an agent.
    pub(super) async fn fetch(&self) -> Result<FetchedCard, CardFetchError> {
        let url = match &self.agent.settings.card {
            CardSource::File(path) => return from_file(path).await,
            CardSource::Url(url) => url,
        };
        let uri: Uri =
            url.parse().map_err(|_| CardFetchError::Setting(format!("card: {url:?} is not a URL")))?;
        if is_exact(&uri) {
            return self.get(&uri, uri.path_and_query().map_or("/", |path| path.as_str())).await;
        }
        let base = uri.path().trim_end_matches('/');
        let [newest, older] = WELL_KNOWN.map(|path| format!("{base}{path}"));
        match self.get(&uri, &newest).await {
            Err(CardFetchError::Status(_, 404 | 405 | 410) | CardFetchError::Card(CardError::NotJson(_))) => {
                match self.get(&uri, &older).await {
                    Err(CardFetchError::Status(..)) if !base.is_empty() && self.is_mcp_server(&uri).await => {
                        Err(CardFetchError::McpServer(shown(&uri, uri.path())))
                    }
                    other => other,
                }
            }
            other => other,
        }
    }

    /// Returns true if the base URL answers as an MCP server does.
    async fn is_mcp_server(&self, base: &Uri) -> bool {
        let Ok(mut reply) = self.ask(base, base.path(), self.agent.token().await.as_ref()).await else {
            return false;
        };
        is_event_stream(reply.headers()) || is_mcp_answer(&mut reply).await
    }

    async fn get(&self, origin: &Uri, path: &str) -> Result<FetchedCard, CardFetchError> {
        let mut pass = self.agent.token().await;
        let mut reply = self.ask(origin, path, pass.as_ref()).await?;
        if reply.status() == StatusCode::UNAUTHORIZED
            && let Some(refused) = pass.take()
            && let Some(another) = self.agent.refresh_token(&refused).await
        {
            reply = self.ask(origin, path, Some(&another)).await?;
        }
        let etag = reply.headers().get(ETAG).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let fresh_for = max_age(reply.headers());
        let from = Some(origin.clone());
        match reply.status() {
            // Without a validator in the request this response says nothing: it refers to no card.
            StatusCode::NOT_MODIFIED if self.etag.is_some() => {
                let etag = etag.or_else(|| self.etag.map(str::to_owned));
                Ok(FetchedCard { card: None, etag, fresh_for, from })
            }
            StatusCode::OK if is_event_stream(reply.headers()) => {
                Err(CardFetchError::McpServer(shown(origin, path)))
            }
            StatusCode::OK => {
                let body = reply.collect(MAX_CARD_BODY_BYTES).await;
                let body = body.map_err(|error| self.unreachable(origin, path, error))?;
                Ok(FetchedCard { card: Some(AgentCard::parse(&body)?), etag, fresh_for, from })
            }
            status => {
                let (url, status) = (shown(origin, path), status.as_u16());
                let leads_to = reply.headers().get(LOCATION).filter(|_| (300..400).contains(&status));
                if let Some(to) = leads_to.and_then(|to| to.to_str().ok()) {
                    let to = redirect_target(origin, to);
                    return Err(CardFetchError::Redirect { url, status, to });
                }
                if is_mcp_answer(&mut reply).await {
                    return Err(CardFetchError::McpServer(url));
                }
                Err(CardFetchError::Status(url, status))
            }
        }
    }

    fn unreachable(&self, origin: &Uri, path: &str, error: TransportError) -> CardFetchError {
        CardFetchError::unreachable(&self.agent.settings.name, shown(origin, path), error)
    }
}

/// Returns a URL without its query, which may carry a secret.
fn shown(origin: &Uri, path: &str) -> String {
    let authority = origin.authority().map_or("", |authority| authority.as_str());
    let path = path.split('?').next().unwrap_or_default();
    format!("{}://{authority}{path}", origin.scheme_str().unwrap_or("http"))
}

/// Returns the URL that a redirect leads to, without its query.
fn redirect_target(origin: &Uri, location: &str) -> String {
    let location = clean(location.split(['?', '#']).next().unwrap_or_default(), MAX_SHOWN_URL);
    if location.starts_with('/') && !location.starts_with("//") {
        return shown(origin, &location);
    }
    // Credentials in a URL are not shown.
    let Some((scheme, rest)) = location.split_once("://") else { return location };
    let (authority, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    format!("{scheme}://{host}{path}")
}

fn is_event_stream(headers: &HeaderMap) -> bool {
    let content = headers.get(CONTENT_TYPE).and_then(|content| content.to_str().ok());
    content.is_some_and(|content| content.starts_with("text/event-stream"))
}

/// Returns true if a response to GET is that of an MCP server: it names a session or a version of
/// MCP, or is an error of JSON-RPC. Servers of MCP answer so to a request that accepts no events; an
/// agent has no reason to.
async fn is_mcp_answer(reply: &mut Response) -> bool {
    #[derive(Deserialize)]
    struct RpcError {
        jsonrpc: String,
        #[serde(rename = "error")]
        _error: IgnoredAny,
    }
    if ["mcp-session-id", "mcp-protocol-version"].iter().any(|name| reply.headers().contains_key(*name)) {
        return true;
    }
    let Ok(body) = reply.collect(MAX_ERROR_BODY_BYTES).await else { return false };
    serde_json::from_slice::<RpcError>(&body).is_ok_and(|error| error.jsonrpc == "2.0")
}

impl CardRequest<'_> {
    async fn ask(
        &self,
        origin: &Uri,
        path: &str,
        pass: Option<&AccessToken>,
    ) -> Result<Response, CardFetchError> {
        let place = path;
        let setting = |what: &str| CardFetchError::Setting(format!("card: {what}"));
        let Some(target) = self.agent.card_target.load_full() else {
            if let CardSource::Url(url) = &self.agent.settings.card {
                self.agent.card_address(url)?;
            }
            return Err(setting("no such place"));
        };
        let path = path.parse().map_err(|_| setting("its path cannot be called"))?;
        let mut request = Request::new(Bytes::new());
        *request.method_mut() = Method::GET;
        let headers = request.headers_mut();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        // A compatibility server chooses the shape of its card by this header.
        headers.insert("a2a-version", HeaderValue::from_static("1.0"));
        if let Some(etag) = self.etag.and_then(|etag| HeaderValue::from_str(etag).ok()) {
            headers.insert(IF_NONE_MATCH, etag);
        }
        self.agent.apply_credentials(&mut request, &path, pass).map_err(setting)?;
        let reply = self.client.send(&target, request).await;
        reply.map_err(|error| self.unreachable(origin, place, error))
    }
}

/// Returns true if a URL names the card itself and not the agent's base.
fn is_exact(uri: &Uri) -> bool {
    uri.query().is_some() || uri.path().ends_with(".json") || uri.path().contains("/.well-known/")
}

async fn from_file(path: &Path) -> Result<FetchedCard, CardFetchError> {
    let shown = || path.display().to_string();
    let unread = |error| CardFetchError::File(shown(), error);
    // Never closed.
    let _permit = CARD_FILES.acquire().await.ok();
    let file = tokio::fs::File::open(path).await.map_err(unread)?;
    let mut body = Vec::new();
    file.take(MAX_CARD_BODY_BYTES as u64 + 1).read_to_end(&mut body).await.map_err(unread)?;
    if body.len() > MAX_CARD_BODY_BYTES {
        return Err(CardFetchError::Card(CardError::TooLarge { bytes: body.len() }));
    }
    Ok(FetchedCard { card: Some(AgentCard::parse(&body)?), etag: None, fresh_for: None, from: None })
}

fn max_age(headers: &HeaderMap) -> Option<Duration> {
    let directives = headers.get_all(CACHE_CONTROL).iter().filter_map(|value| value.to_str().ok());
    let mut age = None;
    for directive in directives.flat_map(|text| text.split(',')).map(str::trim) {
        if directive.eq_ignore_ascii_case("no-cache") || directive.eq_ignore_ascii_case("no-store") {
            return Some(Duration::ZERO);
        }
        let seconds = directive.to_ascii_lowercase();
        age = seconds.strip_prefix("max-age=").and_then(|seconds| seconds.parse().ok()).or(age);
    }
    age.map(Duration::from_secs)
}

/// A failure to fetch a card.
#[derive(Debug, thiserror::Error)]
pub enum CardFetchError {
    /// The agent does not respond at this URL.
    #[error("cannot be reached at {url}: {error}{remedy}")]
    Unreachable {
        /// The URL without its query.
        url: String,
        /// The error of the exchange.
        #[source]
        error: TransportError,
        /// The remedy for the operator; empty if none is known.
        remedy: String,
    },
    /// An address of the agent cannot be used.
    #[error("cannot be reached: {0}")]
    Transport(#[from] TransportError),
    /// The response is not a card.
    #[error("GET {0} answered with HTTP {1}{remedy}", remedy = status_remedy(*.1))]
    Status(String, u16),
    /// The response leads to another URL, which the gateway does not follow.
    #[error(
        "GET {url} answered with HTTP {status}, a redirect to {to}, which is not followed: if that is the agent, write this URL under \
         card"
    )]
    Redirect {
        /// The URL that was asked.
        url: String,
        /// The status of the response.
        status: u16,
        /// The URL that it leads to, without its query.
        to: String,
    },
    /// The URL is that of an MCP server.
    #[error(
        "{0} answers as an MCP server does, not as an A2A agent: MCP clients connect to it directly; card must lead to an A2A agent"
    )]
    McpServer(String),
    /// The card cannot be used.
    #[error("{0}")]
    Card(#[from] CardError),
    /// The card names an address to which the gateway must not connect.
    #[error("{0}")]
    Distrusted(#[from] UntrustedInterface),
    /// The card is not signed by the required key.
    #[error("{0}; the operator demands a signature (signature.required)")]
    Unsigned(#[from] CardSignatureError),
    /// The file cannot be read.
    #[error("cannot read {0}: {1}")]
    File(String, std::io::Error),
    /// A setting of this agent cannot be used.
    #[error("{0}")]
    Setting(String),
}

impl CardFetchError {
    /// Creates the error of an exchange with an agent, with its remedy.
    pub(super) fn unreachable(agent: &str, url: String, error: TransportError) -> Self {
        let remedy = match &error {
            TransportError::Tls(error) => TlsFailure::of(error).remedy(),
            _ => None,
        };
        let remedy = remedy.map(|remedy| format!("; {remedy} (agents.{agent})")).unwrap_or_default();
        Self::Unreachable { url, error, remedy }
    }
}

/// Returns the remedy for a status, to be appended.
fn status_remedy(status: u16) -> &'static str {
    match status {
        401 | 403 => ": it requires credentials (headers or auth of the agent)",
        404 | 410 => ": no card is there, check the URL",
        _ => "",
    }
}

/// The reason for which a card is not trusted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CardSignatureError {
    /// It has no signature.
    #[error("the card is not signed")]
    None,
    /// A signature is not one that is read.
    #[error("the card's signature cannot be read: {0}")]
    Unreadable(&'static str),
    /// Its algorithm is not accepted.
    #[error("the card is signed by {0:?}; only {ALGORITHMS} count, each for its own kind of key")]
    Algorithm(String),
    /// None of the configured keys has that id.
    #[error("the card is signed by the key {0:?}, which is not in signature.keys")]
    UnknownKey(String),
    /// The key's signature is for other bytes.
    #[error("the signature by the key {0:?} does not fit the card: one of them was changed")]
    Wrong(String),
}

/// The maximum length of a peer's name in messages to the operator, in bytes.
const SHOWN: usize = 64;

/// The keys of one agent's card.
pub(super) struct CardKeys {
    signature: config::CardSignature,
    current: ArcSwap<KeySet>,
    /// The number of key sets since the start.
    sets: watch::Sender<u64>,
}

/// The state between two checks of the file.
#[derive(Clone, Default)]
pub(super) struct Seen {
    watcher: FileWatcher,
    set: Option<JwkSet>,
    /// The error of the last check; the file is read again until there is none.
    problem: Option<String>,
}

impl CardKeys {
    pub(super) fn new(signature: &config::CardSignature) -> Result<Self, CardFetchError> {
        let keys = KeySet::new(&signature.keys)
            .map_err(|problem| CardFetchError::Setting(format!("signature.keys: {problem}")))?;
        let (current, sets) = (ArcSwap::from_pointee(keys), watch::Sender::new(0));
        Ok(Self { signature: signature.clone(), current, sets })
    }

    /// Returns the current keys.
    pub(super) fn keys(&self) -> Arc<KeySet> {
        self.current.load_full()
    }

    /// Returns true if a card without a good signature is rejected.
    pub(super) fn required(&self) -> bool {
        self.signature.required
    }

    /// Subscribes to changes of the keys.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.sets.subscribe()
    }

    /// Checks the file, and uses its keys from now on if they are others. Blocks.
    pub(super) fn look_again(&self, mut seen: Seen, agent: &str, metrics: &AgentMetrics) -> Seen {
        let has_changed = seen.watcher.has_changed([self.signature.file.as_path()].into_iter());
        if !has_changed && seen.problem.is_none() {
            return seen;
        }
        let read = self.signature.read_again().and_then(|set| Ok((KeySet::new(&set)?, set)));
        match read {
            Ok((keys, set)) => {
                if *seen.set.as_ref().unwrap_or(&self.signature.keys) != set {
                    self.current.store(Arc::new(keys));
                    self.sets.send_modify(|count| *count += 1);
                    tracing::info!(agent, "card keys reloaded");
                    metrics.reload(Reload::Used);
                }
                Seen { set: Some(set), problem: None, ..seen }
            }
            Err(problem) => {
                // Logged once, though the file is read again and again.
                if has_changed || seen.problem.as_ref() != Some(&problem) {
                    tracing::warn!(agent, error = problem, "failed to reload card keys");
                    metrics.reload(Reload::Refused);
                }
                Seen { problem: Some(problem), ..seen }
            }
        }
    }
}

/// The protected header of a JWS, as far as it counts.
#[derive(Deserialize)]
struct ProtectedHeader {
    alg: String,
    #[serde(default)]
    kid: String,
    /// True if there are extensions that must be understood; none is, and a `crit` without any is
    /// wrong too (RFC 7515 §4.1.11).
    #[serde(default, rename = "crit", deserialize_with = "present")]
    has_crit: bool,
}

/// Returns true if a member exists, with any value: `null` is a value.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    IgnoredAny::deserialize(deserializer).map(|_| true)
}

/// Returns the card that a good signature covers.
///
/// # Errors
///
/// The reason for which there is none: of several signatures the error of the first with a known
/// key, or else of the first.
pub(super) fn verify(json: &str, keys: &KeySet) -> Result<AgentCard, CardFetchError> {
    let card = SignedCard::read(json).ok_or(CardSignatureError::None)?;
    let forms: Vec<(CanonicalForm, SignedContent)> =
        CanonicalForm::ALL.into_iter().filter_map(|form| Some((form, card.covered(form)?))).collect();
    let mut why = None;
    for signature in &card.signatures {
        match verify_one(signature, &forms, keys) {
            Ok((covered, proof)) => {
                let mut card = AgentCard::parse(&covered.card)?;
                card.proof = Some(proof);
                return Ok(card);
            }
            Err(wrong @ CardSignatureError::Wrong(_))
                if !matches!(why, Some(CardSignatureError::Wrong(_))) =>
            {
                why = Some(wrong)
            }
            Err(other) => why = why.or(Some(other)),
        }
    }
    Err(why.unwrap_or(CardSignatureError::None).into())
}

fn verify_one<'a>(
    signature: &CardSignature,
    forms: &'a [(CanonicalForm, SignedContent)],
    keys: &KeySet,
) -> Result<(&'a SignedContent, VerifiedSignature), CardSignatureError> {
    let header = URL_SAFE_NO_PAD.decode(&signature.protected);
    let header = header.map_err(|_| CardSignatureError::Unreadable("its header is not base64url"))?;
    let header: ProtectedHeader = serde_json::from_slice(&header)
        .map_err(|_| CardSignatureError::Unreadable("its header is no JSON with an algorithm"))?;
    if header.has_crit {
        return Err(CardSignatureError::Unreadable("its header demands extensions (crit)"));
    }
    for (form, covered) in forms {
        let signed = format!("{}.{}", signature.protected, URL_SAFE_NO_PAD.encode(&covered.payload));
        match keys.verify(&header.kid, &header.alg, signed.as_bytes(), &signature.signature) {
            Ok(()) => return Ok((covered, VerifiedSignature { key: header.kid, form: *form })),
            Err(SignatureError::Wrong) => {}
            Err(SignatureError::Algorithm | SignatureError::OtherAlgorithm) => {
                return Err(CardSignatureError::Algorithm(clean(&header.alg, SHOWN)));
            }
            Err(SignatureError::UnknownKey) => {
                return Err(CardSignatureError::UnknownKey(clean(&header.kid, SHOWN)));
            }
        }
    }
    Err(CardSignatureError::Wrong(clean(&header.kid, SHOWN)))
}

/// The folder in the data directory.
const FOLDER: &str = "cards";
/// The maximum size of a file, in bytes.
const MAX_FILE_BYTES: u64 = MAX_CARD_BYTES as u64 + 4096;

/// The cache of the cards of all agents.
pub(super) struct KeptCards {
    folder: PathBuf,
    /// True if this process owns the folder. The folder of another process is only read.
    is_own: AtomicBool,
}

/// A card as it is cached.
#[derive(Serialize, Deserialize)]
struct CachedCardRecord {
    /// The hash of the URL that it came from.
    from: String,
    /// The version that a probe found, for a card that names none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    probed: Option<String>,
    card: Box<RawValue>,
}

/// A card from the cache.
pub(super) struct KeptCard {
    pub(super) card: AgentCard,
    /// The version that a probe found.
    pub(super) probed: Option<Dialect>,
}

impl KeptCards {
    pub(super) fn new(data_dir: &Path) -> Self {
        Self { folder: data_dir.join(FOLDER), is_own: AtomicBool::new(false) }
    }

    /// Begins or ends writing to the folder.
    pub(super) fn own(&self, is_own: bool) {
        self.is_own.store(is_own, Ordering::Release);
    }

    /// Returns true if this process writes to the folder.
    pub(super) fn is_own(&self) -> bool {
        self.is_own.load(Ordering::Acquire)
    }

    /// Returns the card of an agent that came from this URL, if it is cached. Blocks on the disk.
    pub(super) fn read(&self, agent: &str, url: &str) -> Option<KeptCard> {
        let mut json = Vec::new();
        let file = OpenOptions::new().read(true).open(self.file(agent)).ok()?;
        file.take(MAX_FILE_BYTES).read_to_end(&mut json).ok()?;
        let record: CachedCardRecord = serde_json::from_slice(&json).ok()?;
        if record.from != hash(url) {
            return None;
        }
        let card = AgentCard::parse(record.card.get().as_bytes()).ok()?;
        let all = [Dialect::V0_1, Dialect::V0_3, Dialect::V1];
        let probed =
            record.probed.and_then(|probed| all.into_iter().find(|dialect| dialect.version() == probed));
        Some(KeptCard { card, probed })
    }

    /// Replaces the cached card. Blocks on the disk.
    ///
    /// # Errors
    ///
    /// The error of the system.
    pub(super) fn write(
        &self,
        agent: &str,
        url: &str,
        card: &str,
        probed: Option<Dialect>,
    ) -> io::Result<()> {
        let probed = probed.map(|dialect| dialect.version().to_owned());
        let record =
            CachedCardRecord { from: hash(url), probed, card: RawValue::from_string(card.to_owned())? };
        DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
        let draft = self.folder.join(format!("{agent}.json.new"));
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
        file.write_all(&serde_json::to_vec(&record)?)?;
        file.sync_all()?;
        fs::rename(&draft, self.file(agent))
    }

    /// Drops the cards of agents that the configuration does not have. Blocks on the disk.
    ///
    /// # Errors
    ///
    /// The error of the system.
    pub(super) fn retain(&self, is_known: impl Fn(&str) -> bool) -> io::Result<()> {
        let files = match fs::read_dir(&self.folder) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            files => files?,
        };
        for file in files {
            let file = file?;
            let name = file.file_name();
            let agent =
                name.to_str().and_then(|name| name.strip_suffix(".json").or(name.strip_suffix(".json.new")));
            if agent.is_some_and(|agent| !is_known(agent)) {
                fs::remove_file(file.path())?;
            }
        }
        Ok(())
    }

    fn file(&self, agent: &str) -> PathBuf {
        self.folder.join(format!("{agent}.json"))
    }
}

fn hash(url: &str) -> String {
    Sha256::digest(url).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_the_card_or_the_agents_base() {
        for (url, exact) in [
            ("http://a/", false),
            ("http://a/agents/x", false),
            ("http://a/card.json", true),
            ("http://a/.well-known/agent-card.json", true),
            ("http://a/card?id=7", true),
        ] {
            assert_eq!(is_exact(&url.parse().unwrap()), exact, "{url}");
        }
    }

    #[test]
    fn the_agents_word_on_freshness_is_read() {
        let mut headers = HeaderMap::new();
        assert_eq!(max_age(&headers), None);
        headers.insert(CACHE_CONTROL, "public, Max-Age=60".parse().unwrap());
        assert_eq!(max_age(&headers), Some(Duration::from_secs(60)));
        headers.append(CACHE_CONTROL, "no-store".parse().unwrap());
        assert_eq!(max_age(&headers), Some(Duration::ZERO));
    }
}

#[cfg(test)]
mod card_signature_tests {
    use super::*;

    fn golden(name: &str) -> String {
        let path = format!("{}/tests/golden/signatures/{name}", env!("CARGO_MANIFEST_DIR"));
        std::fs::read_to_string(path).unwrap()
    }

    fn keys() -> KeySet {
        KeySet::new(&serde_json::from_str(&golden("keys.jwks")).unwrap()).unwrap()
    }

    fn refusal(json: &str) -> String {
        verify(json, &keys()).unwrap_err().to_string()
    }

    #[test]
    fn cards_that_others_signed_verify_in_the_form_of_their_signer() {
        for (file, key, form) in [
            ("python-1.3-ES256.json", "key-ES256", CanonicalForm::Sdk),
            ("python-1.3-ES384.json", "key-ES384", CanonicalForm::Sdk),
            ("python-1.3-EdDSA.json", "key-EdDSA", CanonicalForm::Sdk),
            ("python-1.3-RS256.json", "key-RS256", CanonicalForm::Sdk),
            ("python-1.3-PS256.json", "key-PS256", CanonicalForm::Sdk),
            ("python-1.3-compat.json", "key-ES256", CanonicalForm::Sdk),
            ("specification.json", "key-ES256", CanonicalForm::Specification),
            ("python-0.3.json", "key-ES256", CanonicalForm::V0_3),
            ("raw.json", "key-ES256", CanonicalForm::Raw),
        ] {
            let card = verify(&golden(file), &keys()).unwrap_or_else(|why| panic!("{file}: {why}"));
            let proof = card.proof.as_ref().unwrap();
            assert_eq!((proof.key.as_str(), proof.form), (key, form), "{file}");
            assert!(card.interface(crate::a2a::InterfacePin::default()).is_ok(), "{file}");
        }
    }

    #[test]
    fn any_change_to_what_was_signed_is_seen() {
        for (file, from, to) in [
            ("python-1.3-ES256.json", "http://agent.example:8080/", "http://thief.example/"),
            ("python-1.3-ES256.json", "\"Paints \u{2028} anything\"", "\"Paints anything\""),
            ("python-1.3-ES256.json", "\"streaming\": false", "\"streaming\": true"),
            ("python-1.3-ES256.json", "\"ratio\": 0.1", "\"ratio\": 0.10000000000000001e1"),
            ("python-1.3-RS256.json", "\"id\": \"paint\"", "\"id\": \"rob\""),
            ("specification.json", "\"description\": \"\"", "\"description\": \"x\""),
            ("python-0.3.json", "\"type\": \"mutualTLS\"", "\"type\": \"http\""),
            ("python-0.3.json", "\"protocolVersion\": \"0.3.0\"", "\"protocolVersion\": \"0.2.5\""),
            ("raw.json", "1.5", "1.6"),
        ] {
            let json = golden(file);
            assert!(json.contains(from), "{file} {from}");
            let told = refusal(&json.replacen(from, to, 1));
            assert!(told.contains("does not fit the card"), "{file} {to}: {told}");
        }
    }

    #[test]
    fn unsigned_cards_are_not_used() {
        let json = golden("python-1.3-ES256.json");
        let more = json.replacen(
            '{',
            "{ \"url\": \"http://thief.example/\", \"preferredTransport\": \"JSONRPC\",",
            1,
        );
        let card = verify(&more, &keys()).unwrap();
        assert!(!card.raw.get().contains("thief"), "{}", card.raw);
        // A second member of the same name cannot replace the first.
        let twice =
            json.replacen('{', "{ \"supportedInterfaces\": [{ \"url\": \"http://thief.example/\" }],", 1);
        let card = verify(&twice, &keys()).unwrap();
        assert!(!card.raw.get().contains("thief"), "{}", card.raw);
        let card = verify(&golden("specification.json"), &keys()).unwrap();
        assert!(!card.raw.get().contains("vendor"));
    }

    #[test]
    fn a_header_gets_no_other_algorithm_key_or_rule() {
        let json = golden("python-1.3-RS256.json");
        let card: serde_json::Value = serde_json::from_str(&json).unwrap();
        for (header, told) in [
            (r#"{"alg":"none","kid":"key-RS256"}"#, "only ES256"),
            (r#"{"alg":"HS256","kid":"key-RS256"}"#, "\"HS256\""),
            (r#"{"alg":"ES256","kid":"key-RS256"}"#, "only ES256"),
            (r#"{"alg":"RS256","kid":"key-ES256"}"#, "only ES256"),
            (r#"{"alg":"RS256"}"#, "not in signature.keys"),
            (r#"{"alg":"RS256","kid":"\u001b[31mother"}"#, "other"),
            (r#"{"alg":"RS256","kid":"key-RS256","crit":["b64"],"b64":false}"#, "crit"),
            (r#"{"alg":"RS256","kid":"key-RS256","crit":null}"#, "crit"),
            (r#"{"alg":"RS256","kid":"key-RS256"}"#, "does not fit"),
            (r#"{"kid":"key-RS256"}"#, "no JSON with an algorithm"),
            ("{", "no JSON with an algorithm"),
        ] {
            let mut card = card.clone();
            card["signatures"][0]["protected"] = URL_SAFE_NO_PAD.encode(header).into();
            let told_really = refusal(&card.to_string());
            assert!(told_really.contains(told) && !told_really.contains('\u{1b}'), "{header}: {told_really}");
        }
        let mut unsigned = card.clone();
        unsigned["signatures"] = serde_json::json!([]);
        assert!(refusal(&unsigned.to_string()).starts_with("the card is not signed"));
        // An unknown key beside a good one.
        let mut both = card;
        let other = serde_json::json!({ "protected": URL_SAFE_NO_PAD.encode(r#"{"alg":"ES256","kid":"x"}"#), "signature": "AA" });
        both["signatures"].as_array_mut().unwrap().insert(0, other);
        assert!(verify(&both.to_string(), &keys()).is_ok());
    }
}

#[cfg(test)]
mod kept_tests {
    use super::*;

    const CARD: &str = r#"{"name":"Bard","url":"http://h/"}"#;

    #[test]
    fn card_is_read_for_its_own_url_only() {
        let home = tempfile::tempdir().unwrap();
        let kept = KeptCards::new(home.path());
        assert!(kept.read("bard", "http://h/?key=secret").is_none());
        kept.write("bard", "http://h/?key=secret", CARD, Some(Dialect::V0_3)).unwrap();
        let card = kept.read("bard", "http://h/?key=secret").unwrap();
        assert_eq!((card.card.raw.get(), card.probed), (CARD, Some(Dialect::V0_3)));
        assert!(kept.read("bard", "http://other/").is_none());
        assert!(!fs::read_to_string(home.path().join("cards/bard.json")).unwrap().contains("secret"));
    }

    #[test]
    fn cards_of_unknown_agents_are_dropped() {
        let home = tempfile::tempdir().unwrap();
        let kept = KeptCards::new(home.path());
        kept.retain(|_| false).unwrap();
        kept.write("bard", "u", CARD, None).unwrap();
        kept.write("clerk", "u", CARD, None).unwrap();
        kept.retain(|agent| agent == "bard").unwrap();
        assert!(kept.read("bard", "u").is_some() && kept.read("clerk", "u").is_none());
    }

    #[test]
    fn damaged_file_is_no_card() {
        let home = tempfile::tempdir().unwrap();
        let kept = KeptCards::new(home.path());
        fs::create_dir(home.path().join(FOLDER)).unwrap();
        for json in ["", "{}", "[1]", r#"{"from":"x","card":7}"#] {
            fs::write(kept.file("bard"), json).unwrap();
            assert!(kept.read("bard", "u").is_none(), "{json}");
        }
    }
}
