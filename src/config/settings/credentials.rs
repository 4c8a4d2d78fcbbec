//! What an agent is shown, and where its single methods are called.
//!
//! Not here: client certificates (see `agent`), fetching tokens (see `auth::outbound`).

use http::HeaderName;

use super::Pem;
use crate::a2a::ApiKeyLocation;
use crate::config::ReloadableSecret;

/// Credentials of the gateway at one agent, besides headers and a client certificate.
#[derive(Debug, Clone, Default)]
pub struct AgentAuth {
    /// API keys.
    pub api_keys: Vec<ApiKey>,
    /// What stands in `Authorization`. Default: nothing.
    pub authorization: Option<Authorization>,
}

/// One API key.
#[derive(Debug, Clone)]
pub struct ApiKey {
    /// The key.
    pub value: ReloadableSecret,
    /// Where it goes.
    pub place: ApiKeyPlace,
}

/// Where an API key goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApiKeyPlace {
    /// There, under this name.
    Written(ApiKeyLocation, String),
    /// Where the card says: its scheme of this name, or the only one of the kind `apiKey`.
    Card(Option<String>),
}

/// What stands in `Authorization`.
#[derive(Debug, Clone)]
pub enum Authorization {
    /// HTTP Basic (RFC 7617).
    Basic {
        /// The user; it has no colon.
        user: String,
        /// The password.
        password: ReloadableSecret,
    },
    /// A token that somebody else sees to (RFC 6750).
    Bearer(ReloadableSecret),
    /// A token that the gateway fetches.
    OAuth2(Box<OAuth2>),
}

/// How the gateway fetches tokens for an agent (RFC 6749).
#[derive(Debug, Clone)]
pub struct OAuth2 {
    /// The token endpoint: `https`, or `http` on loopback.
    pub token_url: String,
    /// The gateway's name there.
    pub client_id: String,
    /// How the gateway proves that it is that client.
    pub proof: ClientAuthMethod,
    /// What is asked for.
    pub grant: Grant,
    /// Scopes to ask for.
    pub scopes: Vec<String>,
    /// Audience to ask for.
    pub audience: Option<String>,
    /// Resources to ask for (RFC 8707).
    pub resources: Vec<String>,
    /// The only roots to trust at the token endpoint; `None`: the system's.
    pub ca: Option<Pem>,
}

/// How the gateway proves itself to a token endpoint.
#[derive(Debug, Clone)]
pub enum ClientAuthMethod {
    /// The secret in `Authorization: Basic`.
    SecretBasic(ReloadableSecret),
    /// The secret in the form.
    SecretPost(ReloadableSecret),
    /// A signed assertion (RFC 7523).
    PrivateKeyJwt {
        /// The key that signs.
        key: Pem,
        /// Its id at the token endpoint.
        key_id: Option<String>,
    },
    /// The agent's client certificate (RFC 8705).
    TlsClientAuth,
}

/// Whose token an agent gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Grant {
    /// The gateway's own.
    #[default]
    ClientCredentials,
    /// One that the token of the caller is exchanged for (RFC 8693).
    TokenExchange,
}

/// What is called at an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AgentMethod {
    /// A message, answered whole.
    Send,
    /// A message, answered by a stream.
    Stream,
    /// A task as it stands.
    Get,
    /// A cancellation.
    Cancel,
    /// Anything else: its card, a task that is listened to again, push configurations.
    Other,
}

/// One thing for each method that can have its own.
#[derive(Debug, Clone, Default)]
pub struct PerMethod<T> {
    /// Of a message that is answered whole.
    pub send: T,
    /// Of a message that is answered by a stream.
    pub stream: T,
    /// Of questions how a task stands.
    pub get: T,
    /// Of cancellations.
    pub cancel: T,
}

impl<T> PerMethod<T> {
    /// What this method has, if it can have its own.
    pub fn of(&self, method: AgentMethod) -> Option<&T> {
        match method {
            AgentMethod::Send => Some(&self.send),
            AgentMethod::Stream => Some(&self.stream),
            AgentMethod::Get => Some(&self.get),
            AgentMethod::Cancel => Some(&self.cancel),
            AgentMethod::Other => None,
        }
    }

    /// Makes another thing of each.
    ///
    /// # Errors
    ///
    /// The first that `make` gives.
    pub fn try_map<U, E>(&self, mut make: impl FnMut(&T) -> Result<U, E>) -> Result<PerMethod<U>, E> {
        let Self { send, stream, get, cancel } = self;
        Ok(PerMethod { send: make(send)?, stream: make(stream)?, get: make(get)?, cancel: make(cancel)? })
    }

    /// All four.
    pub fn all(&self) -> [&T; 4] {
        [&self.send, &self.stream, &self.get, &self.cancel]
    }

    /// All four.
    pub fn all_mut(&mut self) -> [&mut T; 4] {
        [&mut self.send, &mut self.stream, &mut self.get, &mut self.cancel]
    }
}

/// What is different for one method of an agent. Like the URL on a card, its own URL gets the agent's credentials only on the card's
/// host, or on one that is allowed.
#[derive(Debug, Clone, Default)]
pub struct MethodSettings {
    /// Its URL; `None`: the one on the card.
    pub endpoint: Option<String>,
    /// Headers for this method alone; they win over the agent's.
    pub headers: Vec<(HeaderName, ReloadableSecret)>,
    /// Whether the agent's client certificate is shown; `None`: yes, if there is one.
    pub mtls: Option<bool>,
}
