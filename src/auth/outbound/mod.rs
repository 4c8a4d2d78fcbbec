//! What an agent is shown: headers, API keys, passwords and tokens, as the configuration and its files have them now.
//!
//! One [`Credentials`] per agent. What is shown is made anew when a file or the card changes; a request takes it as it is. Not
//! here: sending (see `agents`), who the caller is (see `caller`).

mod client_assertion;
mod files;
mod request_credentials;
mod tls_identity;
mod token_endpoint;
mod token_slot;
mod tokens;

use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;

use crate::config::{
    Agent, AgentAuth, AgentTls, ApiKeyLocation, Authorization, MethodSettings, PerMethod, ReloadableSecret,
};
use crate::telemetry::metrics::AgentMetrics;
use crate::transport::HttpClient;

pub use self::files::FileStamps;
pub use self::request_credentials::RequestCredentials;
pub use self::tls_identity::TlsIdentity;
pub use self::tokens::{AccessToken, AgentTokens, SubjectToken, TokenUnavailable};

/// An API key that a card asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CardKey {
    /// The name of the scheme on the card.
    pub scheme: String,
    /// Where the key goes.
    pub place: ApiKeyLocation,
    /// The name of the header, of the member of the query, or of the cookie.
    pub name: String,
}

/// What one agent is shown.
pub struct Credentials {
    agent: String,
    written: Mutex<ConfiguredCredentials>,
    shown: ArcSwap<RequestCredentials>,
    identity: ArcSwap<TlsIdentity>,
    tokens: Option<AgentTokens>,
    metrics: Arc<AgentMetrics>,
}

/// What the configuration says, with the files as they were last read.
#[derive(Clone)]
struct ConfiguredCredentials {
    headers: Vec<(http::HeaderName, ReloadableSecret)>,
    auth: AgentAuth,
    methods: PerMethod<MethodSettings>,
    tls: AgentTls,
    /// What the card says of API keys.
    card: Vec<CardKey>,
    stamps: FileStamps,
    /// What was wrong with the files at the last look; they are looked at again until nothing is.
    problems: Vec<String>,
    /// Whether the token endpoint is still shown what was before the last change.
    proof_due: bool,
}

/// What came of looking at the files again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReloadOutcome {
    /// Nothing that new connections would need.
    Same,
    /// There is another identity: connections of the old one must not be used again.
    NewIdentity,
}

impl Credentials {
    /// Makes what an agent is shown. Nothing is fetched yet.
    ///
    /// # Errors
    ///
    /// Words for what in the settings cannot be used, with its key; they quote no secret.
    pub fn new(agent: &Agent, client: HttpClient, metrics: Arc<AgentMetrics>) -> Result<Self, String> {
        let written = ConfiguredCredentials {
            headers: agent.headers.clone(),
            auth: agent.auth.clone(),
            methods: agent.methods.clone(),
            tls: agent.tls.clone(),
            card: Vec::new(),
            // So the first look reads what changed while the gateway started.
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

    /// What goes with every request, but for tokens that are fetched.
    pub fn request_credentials(&self) -> arc_swap::Guard<Arc<RequestCredentials>> {
        self.shown.load()
    }

    /// Trust and client certificate for new connections.
    pub fn identity(&self) -> Arc<TlsIdentity> {
        self.identity.load_full()
    }

    /// Where tokens come from, if the agent gets any.
    pub fn tokens(&self) -> Option<&AgentTokens> {
        self.tokens.as_ref()
    }

    /// Takes in where the card says that API keys go. Words for each key that it has no place for.
    pub fn place(&self, card: Vec<CardKey>) -> Vec<String> {
        let mut written = self.written();
        written.card = card;
        self.rebuild(&written);
        self.shown.load().unplaced_keys().to_vec()
    }

    /// Whether there are files that may change.
    pub fn has_files(&self) -> bool {
        self.written().files().next().is_some()
    }

    fn rebuild(&self, written: &ConfiguredCredentials) {
        // Each secret has been looked at before it was taken in.
        match RequestCredentials::new(written) {
            Ok(shown) => self.shown.store(Arc::new(shown)),
            Err(problem) => tracing::warn!(agent = self.agent, problem, "credentials stay as they were"),
        }
    }

    fn written(&self) -> std::sync::MutexGuard<'_, ConfiguredCredentials> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether an agent needs no TLS, as far as its settings tell.
fn is_plain(agent: &Agent) -> bool {
    matches!(&agent.card, crate::config::CardSource::Url(url) if url.starts_with("http:"))
}
