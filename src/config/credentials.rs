//! `agents.NAME.auth`: credentials for an agent, the URLs of its single methods, and the headers
//! that neither operators nor cards nor clients may set.
//!
//! See also `agent` for headers and client certificates, and `auth::outbound` for fetching tokens.

use http::header::{ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONTENT_TYPE, COOKIE};
use http::{HeaderName, HeaderValue, Uri};

use super::agent::CardSource;
use super::forms::{checked_text, choice};
use super::host::{is_loopback_host, web_url};
use super::outbound::Tracing;
use super::pem::signing_key;
use super::pem::{CertificatePem, KeyPem, Pem};
use super::reference::{ReloadableSecret, Template};
use super::resolve::{Problem, ResolveContext};
use super::section::section;
use super::settings::Settings;
use super::yaml::{Location, OneOrMany, Spanned};
use crate::a2a::ApiKeyLocation;

section! {
    /// Credentials of the gateway at an agent: API keys, and one of `basic`, `bearer` and `oauth2`.
    keys AgentAuthKeys("AgentAuth") {
        /// An API key, or a list of them.
        api_key: OneOrMany<Spanned<ApiKeyKeys>>,
        /// HTTP Basic: a user and a password.
        basic: BasicKeys,
        /// A bearer token, without the word `Bearer`.
        bearer: Template [example "${file:/run/secrets/agent-token}"],
        /// Bearer tokens that the gateway fetches and renews.
        oauth2: OAuth2Keys,
    }
}

section! {
    /// An API key, at the position that the card's security schemes name, or `in` and `name`.
    keys ApiKeyKeys("AgentApiKey") {
        /// The key.
        value: Template => Option<ReloadableSecret>
            [required "write ${env:NAME} or ${file:PATH}" example "${env:AGENT_KEY}"],
        /// Position in a request: `header`, `query` or `cookie`. Without it: as on the card.
        r#in: ApiKeyLocation [example header],
        /// The name of the header, of the member of the query, or of the cookie.
        name: String [example "X-Tenant-Key"],
        /// The card's security scheme that names the position. Needed if the card has several API
        /// keys.
        scheme: String [example main],
    }
}

choice! {
    /// Position of an API key in a request.
    ApiKeyLocation as "ApiKeyIn" {
        "header" => Self::Header,
        "query" => Self::Query,
        "cookie" => Self::Cookie,
    }
}

section! {
    /// HTTP Basic.
    keys BasicKeys("AgentBasic") {
        /// The user: no colon in it.
        user: String => Option<String> [required "write the user's name" example gateway],
        /// The password.
        password: Template => Option<ReloadableSecret>
            [required "write ${env:NAME} or ${file:PATH}" example "${env:AGENT_PASSWORD}"],
    }
}

section! {
    /// Bearer tokens that the gateway fetches from a token endpoint (RFC 6749).
    keys OAuth2Keys("AgentOAuth2") {
        /// The token endpoint: `https`, or `http` on loopback.
        token_url: TokenUrl => Option<String>
            [required "write the URL of the token endpoint" example "https://idp.example.com/oauth2/token"],
        /// The gateway's client id there.
        client_id: ClientId => Option<String> [required "write the gateway's name there" example gateway],
        /// The gateway's secret there.
        client_secret: Template [example "${env:AGENT_CLIENT_SECRET}"],
        /// Authentication of the gateway there: `client_secret_basic`, `client_secret_post`,
        /// `private_key_jwt` or `tls_client_auth` (the agent's client certificate). Without it:
        /// `client_secret_basic` with a `client_secret`, `private_key_jwt` with a `private_key`.
        auth_method: TokenAuthMethod [example client_secret_basic],
        /// The key that signs for `private_key_jwt`: RSA, P-256, P-384 or Ed25519.
        private_key: KeyPem [example "client.key"],
        /// The id (`kid`) of `private_key` there.
        key_id: String [example "key-1"],
        /// Kind of token to ask for: the gateway's own (`client_credentials`), or one in exchange
        /// for the caller's bearer token (`token_exchange`, RFC 8693).
        grant: Grant => Grant = client_credentials,
        /// Scopes to ask for.
        scopes: Vec<Spanned<ScopeText>> => Vec<String> = [] [example [tickets.read]],
        /// Audience to ask for.
        audience: String => Option<String> [example helpdesk],
        /// Resource to ask for (RFC 8707), or a list of them: URLs.
        resource: OneOrMany<Spanned<ResourceUrl>> => Vec<String> [example "https://helpdesk.example.com/"],
        /// The only roots to trust at the token endpoint. Without it: the system's.
        ca: CertificatePem => Option<Pem> [example "idp-ca.pem"],
    }
}

/// Authentication of the gateway at a token endpoint, as in the file.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum TokenAuthMethod {
    ClientSecretBasic,
    ClientSecretPost,
    PrivateKeyJwt,
    TlsClientAuth,
}

choice! {
    /// Authentication of the gateway at a token endpoint.
    TokenAuthMethod as "ClientAuthMethod" {
        "client_secret_basic" => Self::ClientSecretBasic,
        "client_secret_post" => Self::ClientSecretPost,
        "private_key_jwt" => Self::PrivateKeyJwt,
        "tls_client_auth" => Self::TlsClientAuth,
    }
}

choice! {
    /// Subject of the token that an agent gets.
    Grant as "OAuth2Grant" {
        "client_credentials" => Self::ClientCredentials,
        "token_exchange" => Self::TokenExchange,
    }
}

/// Returns a warning for each URL without TLS beyond this machine that gets credentials of the
/// gateway.
pub(super) fn unencrypted_credentials(settings: &Settings) -> Vec<Problem> {
    let mut warnings = Vec::new();
    for agent in &settings.agents {
        let at = |key: &str| format!("agents.{}.{key}", agent.name);
        let has_auth = !agent.auth.api_keys.is_empty() || agent.auth.authorization.is_some();
        let gets = has_auth || agent.headers.iter().any(is_credential);
        let card = match &agent.card {
            CardSource::Url(url) if agent.endpoints.is_empty() => Some(url),
            CardSource::Url(_) | CardSource::File(_) => None,
        };
        if gets {
            let endpoints = agent.endpoints.iter().enumerate();
            let endpoints = endpoints.map(|(number, url)| (at(&format!("endpoints[{number}]")), url));
            let named = card.map(|url| (at("card"), url)).into_iter().chain(endpoints);
            warnings.extend(named.filter_map(|(at, url)| unencrypted(at, url)));
        }
        for method in agent.methods.all() {
            let gets = gets || method.headers.iter().any(is_credential);
            let endpoint = method.endpoint.as_ref().filter(|_| gets);
            warnings.extend(endpoint.and_then(|url| unencrypted(at("manifest"), url)));
        }
    }
    let credentials = |headers: &[AgentHeader]| headers.iter().any(is_credential);
    for (number, endpoint) in settings.resources.http.iter().enumerate() {
        let at = format!("resources.http[{number}].url");
        let url = Some(&endpoint.url).filter(|_| credentials(&endpoint.headers));
        warnings.extend(url.and_then(|url| unencrypted(at, url)));
    }
    let collector = settings.tracing.iter().filter(|tracing| credentials(&tracing.headers));
    let endpoint =
        |tracing: &Tracing| unencrypted("tracing.endpoint".to_owned(), &tracing.endpoint.to_string());
    warnings.extend(collector.filter_map(endpoint));
    warnings
}

/// A header with its value.
type AgentHeader = (HeaderName, ReloadableSecret);

/// Returns true if a header holds a credential, by its name.
fn is_credential((name, _): &AgentHeader) -> bool {
    const WORDS: [&str; 6] = ["auth", "cookie", "key", "password", "secret", "token"];
    WORDS.iter().any(|word| name.as_str().contains(word))
}

/// Returns the warning for a URL with credentials, if it is one without TLS beyond this machine. The
/// URL is not quoted: it may hold one.
fn unencrypted(at: String, url: &str) -> Option<Problem> {
    let origin = url.split(['{', '?', '#']).next().unwrap_or_default();
    let uri: Uri = origin.parse().ok()?;
    let host = uri.host().filter(|host| uri.scheme_str() == Some("http") && !is_loopback_host(host))?;
    let problem = format!("sends credentials to {host} without encryption (use https)");
    Some(Problem { file: None, line: None, at, problem })
}

/// Credentials of the gateway at one agent, besides headers and a client certificate.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct AgentAuth {
    /// API keys.
    pub api_keys: Vec<ApiKey>,
    /// The value of `Authorization`. Default: none.
    pub authorization: Option<Authorization>,
}

/// One API key.
#[derive(Debug, Clone, PartialEq)]
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
#[derive(Debug, Clone, PartialEq)]
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
#[derive(Debug, Clone, PartialEq)]
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
#[derive(Debug, Clone, PartialEq)]
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
#[derive(Debug, Clone, Default, PartialEq)]
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
#[derive(Debug, Clone, Default, PartialEq)]
pub struct MethodSettings {
    /// Its URL; `None`: the one on the card.
    pub endpoint: Option<String>,
    /// Headers for this method alone; they win over the agent's.
    pub headers: Vec<(HeaderName, ReloadableSecret)>,
    /// True if the agent's client certificate is presented; `None`: true if there is one.
    pub mtls: Option<bool>,
}

impl AgentAuthKeys {
    /// Converts the section to its settings. `shown` are the static headers of the agent; with an
    /// identity the gateway presents a client certificate to the agent.
    pub(super) fn resolve(
        self,
        shown: &[(HeaderName, ReloadableSecret)],
        has_identity: bool,
        context: &mut ResolveContext<'_>,
    ) -> AgentAuth {
        let mut auth = AgentAuth::default();
        if let Some((_, OneOrMany(keys))) = self.api_key.take() {
            for key in keys.into_iter().filter_map(Spanned::open) {
                auth.api_keys.extend(key.resolve(shown, context));
            }
        }
        let written = [self.basic.place(), self.bearer.place(), self.oauth2.place()];
        if let Some(second) = written.into_iter().flatten().nth(1) {
            context.problem(second, "is one credential too many (write one of basic, bearer and oauth2)");
        }
        let basic = self.basic.open().and_then(|basic| basic.resolve(context));
        let bearer = self.bearer.resolve::<ReloadableSecret>(context);
        let bearer = bearer
            .filter(|(place, token)| sendable(place, token, context))
            .map(|(_, token)| Authorization::Bearer(token));
        let oauth2 = self.oauth2.open().and_then(|oauth2| oauth2.resolve(has_identity, context));
        let oauth2 = oauth2.map(|oauth2| Authorization::OAuth2(Box::new(oauth2)));
        auth.authorization = basic.or(bearer).or(oauth2);
        if auth.authorization.is_some() && shown.iter().any(|(name, _)| *name == AUTHORIZATION) {
            context
                .problem(&self.section, "gives Authorization, which headers give too (remove one of them)");
        }
        auth
    }
}

/// Returns true if a secret can be sent in a header; if not, that is a problem.
fn sendable(place: &Location, secret: &ReloadableSecret, context: &mut ResolveContext<'_>) -> bool {
    let fits = HeaderValue::from_str(secret.expose()).is_ok();
    if !fits {
        context.problem(place, "has a character that no header may have");
    }
    fits
}

impl BasicKeys {
    fn resolve(mut self, context: &mut ResolveContext<'_>) -> Option<Authorization> {
        let (user, password) = (self.user(context), self.password(context));
        let user = user?;
        if user.is_empty() || user.contains([':', '\r', '\n', '\0']) {
            return context.report_conflict(self.user.place()?, "is not a user's name (no colon, one line)");
        }
        Some(Authorization::Basic { user, password: password? })
    }
}

impl ApiKeyKeys {
    fn resolve(
        mut self,
        shown: &[(HeaderName, ReloadableSecret)],
        context: &mut ResolveContext<'_>,
    ) -> Option<ApiKey> {
        let value = self.value(context);
        let place = match (self.r#in.take(), self.name.take(), self.scheme.take()) {
            (None, None, scheme) => ApiKeyPlace::Card(scheme.map(|(_, scheme)| scheme)),
            (Some((_, location)), Some((at, name)), scheme) => {
                if let Some((scheme, _)) = scheme {
                    context.problem(&scheme, "says where the key goes, and so do in and name (remove one)");
                }
                match check_key_name(location, &name, shown) {
                    Ok(()) => ApiKeyPlace::Written(location, name),
                    Err(problem) => return context.report_conflict(&at, problem),
                }
            }
            (Some((place, _)), None, _) => {
                let problem = "needs a name beside it (or remove it: then the card says where)";
                return context.report_conflict(&place, problem);
            }
            (None, Some((place, _)), _) => {
                let problem = "needs `in` beside it (or remove it: then the card says where)";
                return context.report_conflict(&place, problem);
            }
        };
        let value = value?;
        sendable(self.value.place()?, &value, context).then_some(ApiKey { value, place })
    }
}

/// Returns the defect of the name of a key, if any.
pub(super) fn check_key_name(
    place: ApiKeyLocation,
    name: &str,
    shown: &[(HeaderName, ReloadableSecret)],
) -> Result<(), &'static str> {
    match place {
        ApiKeyLocation::Header => {
            let header =
                HeaderName::from_bytes(name.as_bytes()).map_err(|_| "names no header that could be sent")?;
            if is_reserved(&header) || header == COOKIE {
                return Err("names a header that cannot carry a key");
            }
            match shown.iter().any(|(other, _)| *other == header) {
                true => Err("names a header that is under headers too (remove one of them)"),
                false => Ok(()),
            }
        }
        // A token, as in cookies and headers.
        ApiKeyLocation::Cookie if HeaderName::from_bytes(name.as_bytes()).is_err() => {
            Err("names no cookie that could be sent")
        }
        ApiKeyLocation::Query if name.is_empty() => Err("names no member of a query"),
        ApiKeyLocation::Cookie | ApiKeyLocation::Query => Ok(()),
    }
}

impl OAuth2Keys {
    fn resolve(mut self, has_identity: bool, context: &mut ResolveContext<'_>) -> Option<OAuth2> {
        let (token_url, client_id) = (self.token_url(context), self.client_id(context));
        let secret_place = self.client_secret.place().cloned();
        let key_place = self.private_key.place().cloned();
        let secret = std::mem::take(&mut self.client_secret).resolve(context).map(|(_, secret)| secret);
        let key = std::mem::take(&mut self.private_key).resolve(context);
        let key = key.and_then(|(place, key)| check_signing_key(&place, key, context));
        let proof = ClientProofKeys {
            section: self.section.clone(),
            method: std::mem::take(&mut self.auth_method).take(),
            secret: secret_place.map(|place| (place, secret)),
            key: key_place.map(|place| (place, key)),
            key_id: std::mem::take(&mut self.key_id).take(),
        };
        let proof = proof.resolve(has_identity, context);
        let (resources, scopes) = (self.resource(context), self.scopes(context));
        Some(OAuth2 {
            ca: self.ca(context),
            token_url: token_url?,
            client_id: client_id?,
            proof: proof?,
            grant: self.grant(context),
            scopes,
            audience: self.audience(context),
            resources,
        })
    }
}

fn check_signing_key(place: &Location, key: Pem, context: &mut ResolveContext<'_>) -> Option<Pem> {
    match signing_key(&key) {
        Some(_) => Some(key),
        None => {
            let problem = "is no key that can sign (RSA, P-256, P-384 or Ed25519; EC keys in PKCS#8)";
            context.report_conflict(place, problem)
        }
    }
}

checked_text!(TokenUrl as "URL", check_token_url);
checked_text!(ScopeText as "text", check_scope);
checked_text!(ClientId as "text", |id: &str| {
    let is_id = !id.is_empty() && !id.contains(['\r', '\n', '\0']);
    if is_id { Ok(()) } else { Err("is not a name of a client") }
});
checked_text!(ResourceUrl as "URL", |text: &str| {
    let is_url = text.parse::<Uri>().is_ok_and(|uri| uri.scheme().is_some()) && !text.contains('#');
    if is_url { Ok(()) } else { Err("is not a URL without a fragment") }
});

/// The keys of client authentication, each with its location; a wrong value is absent.
struct ClientProofKeys {
    section: Location,
    method: Option<(Location, TokenAuthMethod)>,
    secret: Option<(Location, Option<ReloadableSecret>)>,
    key: Option<(Location, Option<Pem>)>,
    key_id: Option<(Location, String)>,
}

impl ClientProofKeys {
    fn resolve(self, has_identity: bool, context: &mut ResolveContext<'_>) -> Option<ClientAuthMethod> {
        let (place, method) = match (&self.method, &self.secret, &self.key) {
            (Some((place, method)), ..) => (place.clone(), *method),
            (None, Some((place, _)), _) => (place.clone(), TokenAuthMethod::ClientSecretBasic),
            (None, None, Some((place, _))) => (place.clone(), TokenAuthMethod::PrivateKeyJwt),
            (None, None, None) => {
                let hint = "is missing (or write private_key, or auth_method: tls_client_auth)";
                return context.report_conflict(&self.section.child("client_secret"), hint);
            }
        };
        let needs_secret =
            matches!(method, TokenAuthMethod::ClientSecretBasic | TokenAuthMethod::ClientSecretPost);
        let needs_key = method == TokenAuthMethod::PrivateKeyJwt;
        let surplus = [
            self.secret.as_ref().map(|(place, _)| place).filter(|_| !needs_secret),
            self.key.as_ref().map(|(place, _)| place).filter(|_| !needs_key),
            self.key_id.as_ref().map(|(place, _)| place).filter(|_| !needs_key),
        ];
        for place in surplus.into_iter().flatten() {
            context.problem(place, "is not for this auth_method (remove it)");
        }
        let missing = |at: &str, context: &mut ResolveContext<'_>| {
            context.report_conflict(&self.section.child(at), "is missing (the auth_method needs it)")
        };
        match method {
            TokenAuthMethod::ClientSecretBasic | TokenAuthMethod::ClientSecretPost => {
                let Some((_, secret)) = self.secret else { return missing("client_secret", context) };
                let secret = secret?;
                Some(match method {
                    TokenAuthMethod::ClientSecretPost => ClientAuthMethod::SecretPost(secret),
                    _ => ClientAuthMethod::SecretBasic(secret),
                })
            }
            TokenAuthMethod::PrivateKeyJwt => {
                let Some((_, key)) = self.key else { return missing("private_key", context) };
                Some(ClientAuthMethod::PrivateKeyJwt { key: key?, key_id: self.key_id.map(|(_, id)| id) })
            }
            TokenAuthMethod::TlsClientAuth if !has_identity => {
                context.report_conflict(&place, "needs the agent's tls.certificate and tls.key")
            }
            TokenAuthMethod::TlsClientAuth => Some(ClientAuthMethod::TlsClientAuth),
        }
    }
}

/// Checks the URL of a token endpoint, which gets secrets: no plain HTTP, except to this machine.
pub(super) fn check_token_url(text: &str) -> Result<(), String> {
    let uri = web_url(text)?;
    let host = uri.host().unwrap_or_default();
    let is_here = matches!(host, "localhost" | "[::1]")
        || host.parse::<std::net::Ipv4Addr>().is_ok_and(|address| address.is_loopback());
    if uri.scheme_str() == Some("https") || is_here {
        Ok(())
    } else {
        Err("is http, and secrets would travel in the open (write https)".to_owned())
    }
}

pub(super) fn check_scope(text: &str) -> Result<(), String> {
    let fits = |each: u8| each.is_ascii_graphic() && !matches!(each, b'"' | b'\\');
    match !text.is_empty() && text.bytes().all(fits) {
        true => Ok(()),
        false => Err("is not a scope (one word, without quotes and backslashes)".to_owned()),
    }
}

/// Returns true for headers that frame the message or control the connection: only `transport` writes them.
pub(crate) fn is_framing(name: &HeaderName) -> bool {
    matches!(
        name.as_str(),
        "host"
            | "content-length"
            | "transfer-encoding"
            | "connection"
            | "expect"
            | "upgrade"
            | "te"
            | "trailer"
            | "keep-alive"
            | "proxy-connection"
    )
}

/// Headers that describe the sent and the accepted content.
const MEANING: [HeaderName; 4] =
    [ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE, HeaderName::from_static("a2a-version")];

/// Families of which the gateway or the next hop writes some: the operator alone may write the
/// others.
const FAMILIES: [&str; 6] = ["content-", "accept", "a2a-", "mcp-", "proxy-", "last-event-id"];

/// Returns true if the gateway writes this header itself, so that the operator must not.
pub(super) fn is_reserved(name: &HeaderName) -> bool {
    is_framing(name) || MEANING.contains(name)
}

/// Returns true if only the operator may write this header, or not even the operator: it is
/// forbidden to a card that positions a key, and to a client with forwarded headers.
pub(crate) fn is_forbidden(name: &HeaderName) -> bool {
    is_reserved(name) || FAMILIES.iter().any(|head| name.as_str().starts_with(head))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_operator_may_write_what_a_card_may_not() {
        for (name, own, out_of_reach) in [
            ("host", true, true),
            ("keep-alive", true, true),
            ("trailer", true, true),
            ("a2a-version", true, true),
            ("a2a-extensions", false, true),
            ("accept-language", false, true),
            ("content-language", false, true),
            ("proxy-authorization", false, true),
            ("mcp-session-id", false, true),
            ("authorization", false, false),
            ("cookie", false, false),
            ("x-tenant", false, false),
        ] {
            let name = HeaderName::from_static(name);
            assert_eq!((is_reserved(&name), is_forbidden(&name)), (own, out_of_reach), "{name}");
        }
    }
}
