//! The credentials that an agent gets: headers, API keys, passwords and tokens, as the
//! configuration and its files have them now.
//!
//! One [`Credentials`] per agent, rebuilt when a file or the card changes; a request takes them as
//! they are. Out of scope: sending (see `agents`), the caller (see `caller`).

mod files;
mod request_credentials;
mod token_endpoint;
mod tokens;

use std::sync::{Arc, Mutex};
use std::time::UNIX_EPOCH;

use arc_swap::ArcSwap;
use rustls::ClientConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

pub(crate) use self::request_credentials::RequestCredentials;
pub use self::tokens::SubjectToken;
pub(crate) use self::tokens::{AccessToken, AgentTokens, TokenUnavailable};
use crate::config::certificate;
use crate::config::{
    Agent, AgentAuth, AgentTls, ApiKeyLocation, Authorization, MethodSettings, Pem, PerMethod,
    ReloadableSecret,
};
use crate::file_watcher::FileWatcher;
use crate::sync::lock;
use crate::telemetry::metrics::AgentMetrics;
use crate::transport::{HttpClient, client_config};

/// An API key that a card requires.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CardKey {
    /// The name of the scheme on the card.
    pub(crate) scheme: String,
    /// The position of the key.
    pub(crate) place: ApiKeyLocation,
    /// The name of the header, of the member of the query, or of the cookie.
    pub(crate) name: String,
}

/// The credentials of one agent.
pub(crate) struct Credentials {
    agent: String,
    written: Mutex<ConfiguredCredentials>,
    shown: ArcSwap<RequestCredentials>,
    identity: ArcSwap<TlsIdentity>,
    tokens: Option<AgentTokens>,
    metrics: Arc<AgentMetrics>,
}

/// The configuration, with the files as they were last read.
#[derive(Clone)]
struct ConfiguredCredentials {
    headers: Vec<(http::HeaderName, ReloadableSecret)>,
    auth: AgentAuth,
    methods: PerMethod<MethodSettings>,
    tls: AgentTls,
    /// The positions of API keys on the card.
    card: Vec<CardKey>,
    watcher: FileWatcher,
    /// The errors of the last check of the files; they are read again until there are none.
    problems: Vec<String>,
    /// True if the token endpoint still gets the proof from before the last change.
    proof_due: bool,
}

/// The outcome of a check of the files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReloadOutcome {
    /// Nothing that new connections would need.
    Same,
    /// A new identity: connections of the old one must not be used again.
    NewIdentity,
}

impl Credentials {
    /// Creates the credentials of an agent. Nothing is fetched yet.
    ///
    /// # Errors
    ///
    /// The setting that cannot be used, as text with its key; no secret is quoted.
    pub(crate) fn new(agent: &Agent, client: HttpClient, metrics: Arc<AgentMetrics>) -> Result<Self, String> {
        let written = ConfiguredCredentials {
            headers: agent.headers.clone(),
            auth: agent.auth.clone(),
            methods: agent.methods.clone(),
            tls: agent.tls.clone(),
            card: Vec::new(),
            // So the first check reads files that changed while the gateway started.
            watcher: FileWatcher::default(),
            problems: Vec::new(),
            proof_due: false,
        };
        let shown = RequestCredentials::new(&written)?;
        let identity = TlsIdentity::new(&written.tls, is_plain(agent))?;
        let tokens = match &written.auth.authorization {
            Some(Authorization::OAuth2(oauth2)) => {
                let tokens = AgentTokens::new(&agent.name, oauth2, &written.tls, client, metrics.clone())?;
                Some(tokens)
            }
            Some(Authorization::Basic { .. } | Authorization::Bearer(_)) | None => None,
        };
        show_expiry(&agent.tls, &metrics);
        Ok(Self {
            agent: agent.name.clone(),
            written: Mutex::new(written),
            shown: ArcSwap::from_pointee(shown),
            identity: ArcSwap::from_pointee(identity),
            tokens,
            metrics,
        })
    }

    /// Returns the credentials of every request, but for tokens that are fetched.
    pub(crate) fn request_credentials(&self) -> arc_swap::Guard<Arc<RequestCredentials>> {
        self.shown.load()
    }

    /// Returns trust and client certificate for new connections.
    pub(crate) fn identity(&self) -> Arc<TlsIdentity> {
        self.identity.load_full()
    }

    /// Returns the tokens of the agent, if it gets any.
    pub(crate) fn tokens(&self) -> Option<&AgentTokens> {
        self.tokens.as_ref()
    }

    /// Applies the positions of API keys on the card. Describes each key without a position.
    pub(crate) fn place(&self, card: Vec<CardKey>) -> Vec<String> {
        let mut written = self.written();
        written.card = card;
        self.rebuild(&written);
        self.shown.load().unplaced_keys().to_vec()
    }

    /// Returns true if there are files that may change.
    pub(crate) fn has_files(&self) -> bool {
        self.written().files().next().is_some()
    }

    fn rebuild(&self, written: &ConfiguredCredentials) {
        // Each secret was checked before it was applied.
        match RequestCredentials::new(written) {
            Ok(shown) => self.shown.store(Arc::new(shown)),
            Err(problem) => {
                tracing::warn!(agent = self.agent, error = problem, "failed to rebuild credentials")
            }
        }
    }

    fn written(&self) -> std::sync::MutexGuard<'_, ConfiguredCredentials> {
        lock(&self.written)
    }
}

/// Shows the expiry of the client certificate for an agent in the metrics.
fn show_expiry(tls: &AgentTls, metrics: &AgentMetrics) {
    let Some(Ok(summary)) = tls.certificate.as_ref().map(certificate::summary) else { return };
    let since = summary.not_after.duration_since(UNIX_EPOCH).unwrap_or_default();
    metrics.set_certificate_expiry(i64::try_from(since.as_secs()).unwrap_or(i64::MAX));
}

/// Returns true if an agent needs no TLS, as far as its settings show.
fn is_plain(agent: &Agent) -> bool {
    matches!(&agent.card, crate::config::CardSource::Url(url) if url.starts_with("http:"))
}

/// The TLS configurations for an agent.
pub(crate) struct TlsIdentity {
    shows: Option<Arc<ClientConfig>>,
    hides: Option<Arc<ClientConfig>>,
}

impl TlsIdentity {
    /// Creates both configurations. A plain agent needs none, so that a system without roots can
    /// serve it.
    ///
    /// # Errors
    ///
    /// The setting that cannot be used, as text with its key.
    pub(crate) fn new(tls: &AgentTls, is_plain: bool) -> Result<Self, String> {
        let authorities = tls.ca.as_ref().map(|pem| certificates("tls.ca", pem)).transpose()?;
        let make = |identity| {
            client_config(authorities.as_deref(), identity)
                .map(Arc::new)
                .map_err(|problem| format!("tls: {problem}"))
        };
        let Some(pair) = pair(tls)? else {
            let hides = match make(None) {
                Err(_) if is_plain && authorities.is_none() => None,
                made => Some(made?),
            };
            return Ok(Self { shows: hides.clone(), hides });
        };
        Ok(Self { shows: Some(make(Some(pair))?), hides: Some(make(None)?) })
    }

    /// Returns the configuration for connections with the client certificate, or without.
    pub(crate) fn tls(&self, shows: bool) -> Option<Arc<ClientConfig>> {
        if shows { self.shows.clone() } else { self.hides.clone() }
    }
}

/// The chain and the key of a client certificate.
pub(super) type CertifiedKey = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

/// Returns the agent's client certificate with its key.
pub(super) fn pair(tls: &AgentTls) -> Result<Option<CertifiedKey>, String> {
    let (Some(certificate), Some(key)) = (&tls.certificate, &tls.key) else { return Ok(None) };
    let chain = certificates("tls.certificate", certificate)?;
    // The error of the parser may quote lines of the key.
    let key = PrivateKeyDer::from_pem_slice(key.expose().as_bytes())
        .map_err(|_| "tls.key: holds no private key in PEM".to_owned())?;
    Ok(Some((chain, key)))
}

pub(super) fn certificates(at: &str, pem: &Pem) -> Result<Vec<CertificateDer<'static>>, String> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.expose().as_bytes()).collect();
    all.map_err(|error| format!("{at}: {error}"))
}
