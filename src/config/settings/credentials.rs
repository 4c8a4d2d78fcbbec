//! Credentials for an agent, and the URLs of its single methods.
//!
//! See also `agent` for client certificates, and `auth::outbound` for fetching tokens.

use http::HeaderName;

use super::Pem;
use crate::a2a::ApiKeyLocation;
use crate::config::ReloadableSecret;

/// Credentials of the gateway at one agent, besides headers and a client certificate.
#[derive(Debug, Clone, Default)]
pub struct AgentAuth {
    /// API keys.
    pub api_keys: Vec<ApiKey>,
    /// The value of `Authorization`. Default: none.
    pub authorization: Option<Authorization>,
}

/// One API key.
#[derive(Debug, Clone)]
pub struct ApiKey {
    /// The key.
    pub value: ReloadableSecret,
    /// Its position in a request.
    pub place: ApiKeyPlace,
}

/// Position of an API key in a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApiKeyPlace {
    /// This position, under this name.
    Written(ApiKeyLocation, String),
    /// The position that the card names: its scheme of this name, or the only one of the kind
    /// `apiKey`.
    Card(Option<String>),
}

/// The value of `Authorization`.
#[derive(Debug, Clone)]
pub enum Authorization {
    /// HTTP Basic (RFC 7617).
    Basic {
        /// The user; it has no colon.
        user: String,
        /// The password.
        password: ReloadableSecret,
    },
    /// A token that another program renews (RFC 6750).
    Bearer(ReloadableSecret),
    /// A token that the gateway fetches.
    OAuth2(Box<OAuth2>),
}

/// Token requests of the gateway for an agent (RFC 6749).
#[derive(Debug, Clone)]
pub struct OAuth2 {
    /// The token endpoint: `https`, or `http` on loopback.
    pub token_url: String,
    /// The gateway's client id there.
    pub client_id: String,
    /// Authentication of the gateway as that client.
    pub proof: ClientAuthMethod,
    /// The kind of token to ask for.
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

/// Authentication of the gateway at a token endpoint.
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

/// The subject of the token that an agent gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Grant {
    /// The gateway itself.
    #[default]
    ClientCredentials,
    /// The caller: its token is exchanged for another one (RFC 8693).
    TokenExchange,
}

/// Method of an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AgentMethod {
    /// A message with a single response.
    Send,
    /// A message with a stream as response.
    Stream,
    /// The state of a task.
    Get,
    /// A cancellation.
    Cancel,
    /// All others: its card, a new subscription to a task, push configurations.
    Other,
}

/// One value for each method that can have its own.
#[derive(Debug, Clone, Default)]
pub struct PerMethod<T> {
    /// For a message with a single response.
    pub send: T,
    /// For a message with a stream as response.
    pub stream: T,
    /// For queries of the state of a task.
    pub get: T,
    /// For cancellations.
    pub cancel: T,
}

impl<T> PerMethod<T> {
    /// Returns the value of this method, if it can have its own.
    pub fn of(&self, method: AgentMethod) -> Option<&T> {
        match method {
            AgentMethod::Send => Some(&self.send),
            AgentMethod::Stream => Some(&self.stream),
            AgentMethod::Get => Some(&self.get),
            AgentMethod::Cancel => Some(&self.cancel),
            AgentMethod::Other => None,
        }
    }

    /// Converts each value.
    ///
    /// # Errors
    ///
    /// The first error that `make` returns.
    pub fn try_map<U, E>(&self, mut make: impl FnMut(&T) -> Result<U, E>) -> Result<PerMethod<U>, E> {
        let Self { send, stream, get, cancel } = self;
        Ok(PerMethod { send: make(send)?, stream: make(stream)?, get: make(get)?, cancel: make(cancel)? })
    }

    /// Returns all four.
    pub fn all(&self) -> [&T; 4] {
        [&self.send, &self.stream, &self.get, &self.cancel]
    }

    /// Returns all four.
    pub fn all_mut(&mut self) -> [&mut T; 4] {
        [&mut self.send, &mut self.stream, &mut self.get, &mut self.cancel]
    }
}

/// Overrides for one method of an agent. Like the URL on a card, its own URL gets the agent's
/// credentials only on the card's host, or on one that is allowed.
#[derive(Debug, Clone, Default)]
pub struct MethodSettings {
    /// Its URL; `None`: the one on the card.
    pub endpoint: Option<String>,
    /// Headers for this method alone; they win over the agent's.
    pub headers: Vec<(HeaderName, ReloadableSecret)>,
    /// True if the agent's client certificate is presented; `None`: true if there is one.
    pub mtls: Option<bool>,
}
