//! The credentials that an agent gets: headers, API keys, passwords and tokens, as the
//! configuration and its files have them now.
//!
//! One [`Credentials`] per agent, rebuilt when a file or the card changes; a request takes them as
//! they are. Out of scope: sending (see `agents`), the caller (see `caller`).

mod client_assertion;
mod files;
mod request_credentials;
mod tls_identity;
mod token_endpoint;
mod token_slot;
mod tokens;

use std::sync::{Arc, Mutex};

use arc_swap::ArcSwap;

use crate::config::{
    Agent, AgentAuth, AgentTls, ApiKeyLocation, Authorization, MethodSettings, PerMethod, ReloadableSecret,
};
use crate::sync::lock;
use crate::telemetry::metrics::AgentMetrics;
use crate::transport::HttpClient;

pub use self::files::FileStamps;
pub use self::request_credentials::RequestCredentials;
pub use self::tls_identity::TlsIdentity;
pub use self::tokens::{AccessToken, AgentTokens, SubjectToken, TokenUnavailable};

/// An API key that a card requires.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CardKey {
    /// The name of the scheme on the card.
    pub scheme: String,
    /// The position of the key.
    pub place: ApiKeyLocation,
    /// The name of the header, of the member of the query, or of the cookie.
    pub name: String,
}

/// The credentials of one agent.
pub struct Credentials {
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
    stamps: FileStamps,
    /// The errors of the last check of the files; they are read again until there are none.
    problems: Vec<String>,
    /// True if the token endpoint still gets the proof from before the last change.
    proof_due: bool,
}

/// The outcome of a check of the files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReloadOutcome {
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
    pub fn new(agent: &Agent, client: HttpClient, metrics: Arc<AgentMetrics>) -> Result<Self, String> {
        let written = ConfiguredCredentials {
            headers: agent.headers.clone(),
            auth: agent.auth.clone(),
            methods: agent.methods.clone(),
            tls: agent.tls.clone(),
            card: Vec::new(),
            // So the first check reads files that changed while the gateway started.
            stamps: FileStamps::default(),
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
    pub fn request_credentials(&self) -> arc_swap::Guard<Arc<RequestCredentials>> {
        self.shown.load()
    }

    /// Returns trust and client certificate for new connections.
    pub fn identity(&self) -> Arc<TlsIdentity> {
        self.identity.load_full()
    }

    /// Returns the tokens of the agent, if it gets any.
    pub fn tokens(&self) -> Option<&AgentTokens> {
        self.tokens.as_ref()
    }

    /// Applies the positions of API keys on the card. Describes each key without a position.
    pub fn place(&self, card: Vec<CardKey>) -> Vec<String> {
        let mut written = self.written();
        written.card = card;
        self.rebuild(&written);
        self.shown.load().unplaced_keys().to_vec()
    }

    /// Returns true if there are files that may change.
    pub fn has_files(&self) -> bool {
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

/// Returns true if an agent needs no TLS, as far as its settings show.
fn is_plain(agent: &Agent) -> bool {
    matches!(&agent.card, crate::config::CardSource::Url(url) if url.starts_with("http:"))
}
