//! The credentials that an agent gets: headers, members of the query, API keys, passwords and tokens,
//! as the configuration and its files have them now.
//!
//! One [`Credentials`] per agent, rebuilt when a file or the card changes; a request takes them as
//! they are. See `tokens` for tokens that are fetched. Out of scope: sending (see `agents`), the caller
//! (see [`Caller`](crate::auth::Caller)).

mod files;
mod token_endpoint;
mod tokens;

use std::sync::{Arc, Mutex};
use std::time::UNIX_EPOCH;

use arc_swap::ArcSwap;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::{AUTHORIZATION, COOKIE};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue};
use rustls::ClientConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::auth::percent_encoded;
use crate::config::{
    Agent, AgentAuth, AgentMethod, AgentTls, ApiKey, ApiKeyLocation, ApiKeyPlace, Authorization,
    MethodSettings, Pem, PerMethod, ReloadableSecret, certificate, is_forbidden,
};
use crate::file_watcher::FileWatcher;
use crate::sync::lock;
use crate::telemetry::metrics::AgentMetrics;
use crate::transport::{HttpClient, client_config};

pub use self::tokens::SubjectToken;
pub(crate) use self::tokens::{AccessToken, AgentTokens, TokenUnavailable};

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

/// The credentials of every request to an agent.
pub(crate) struct RequestCredentials {
    all: HeaderMap,
    methods: PerMethod<HeaderMap>,
    /// Members of the query, encoded.
    query: Vec<String>,
    homeless: Vec<String>,
}

impl RequestCredentials {
    fn new(written: &ConfiguredCredentials) -> Result<Self, String> {
        let mut all = HeaderMap::new();
        for (name, secret) in &written.headers {
            all.append(name.clone(), value(&format!("headers.{name}"), secret.expose())?);
        }
        match &written.auth.authorization {
            Some(Authorization::Basic { user, password }) => {
                let basic = STANDARD.encode(format!("{user}:{}", password.expose()));
                all.insert(AUTHORIZATION, value("auth.basic", &format!("Basic {basic}"))?);
            }
            Some(Authorization::Bearer(token)) => {
                all.insert(AUTHORIZATION, value("auth.bearer", &format!("Bearer {}", token.expose()))?);
            }
            Some(Authorization::OAuth2(_)) | None => {}
        }
        let (mut query, mut cookies, mut homeless) = (Vec::new(), Vec::new(), Vec::new());
        for key in &written.auth.api_keys {
            let Some((place, name)) = place(key, &written.card).filter(|(place, name)| fits(*place, name))
            else {
                homeless.push(describe(key));
                continue;
            };
            match place {
                ApiKeyLocation::Header => {
                    // A position on a card never replaces a header of the operator.
                    let is_free = |name: &HeaderName| {
                        matches!(key.place, ApiKeyPlace::Written(..))
                            || !(all.contains_key(name) || *name == COOKIE)
                    };
                    let Some(name) = HeaderName::from_bytes(name.as_bytes()).ok().filter(is_free) else {
                        homeless.push(describe(key));
                        continue;
                    };
                    all.insert(name, value("auth.api_key", key.value.expose())?);
                }
                ApiKeyLocation::Query => {
                    query.push(format!("{}={}", percent_encoded(name), percent_encoded(key.value.expose())))
                }
                ApiKeyLocation::Cookie => cookies.push(format!("{name}={}", key.value.expose())),
            }
        }
        if !cookies.is_empty() {
            let before = all.get(COOKIE).and_then(|cookie| cookie.to_str().ok().map(str::to_owned));
            let cookies: Vec<String> = before.into_iter().chain(cookies).collect();
            all.insert(COOKIE, value("auth.api_key", &cookies.join("; "))?);
        }
        let methods = written.methods.try_map(|method| {
            let mut own = HeaderMap::new();
            for (name, secret) in &method.headers {
                own.append(name.clone(), value(&format!("headers.{name}"), secret.expose())?);
            }
            Ok::<_, String>(own)
        })?;
        Ok(Self { all, methods, query, homeless })
    }

    /// Inserts the headers for this method. They replace existing ones.
    pub(crate) fn apply(&self, method: AgentMethod, headers: &mut HeaderMap) {
        insert(&self.all, headers);
        if let Some(own) = self.methods.of(method) {
            insert(own, headers);
        }
    }

    /// Returns a path of the agent with the keys of its query. Never logged.
    ///
    /// # Errors
    ///
    /// The reason for which the path cannot be called.
    pub(crate) fn keyed(&self, path: &PathAndQuery) -> Result<PathAndQuery, &'static str> {
        if self.query.is_empty() {
            return Ok(path.clone());
        }
        let mark = if path.query().is_some() { '&' } else { '?' };
        let whole = format!("{path}{mark}{}", self.query.join("&"));
        whole.parse().map_err(|_| "its path cannot be called")
    }

    /// Returns a description of each key without a position.
    fn unplaced_keys(&self) -> &[String] {
        &self.homeless
    }
}

/// Returns the position of a key: the configured one, or that of the card.
fn place<'a>(key: &'a ApiKey, card: &'a [CardKey]) -> Option<(ApiKeyLocation, &'a str)> {
    match &key.place {
        ApiKeyPlace::Written(place, name) => Some((*place, name)),
        ApiKeyPlace::Card(Some(scheme)) => {
            card.iter().find(|asked| asked.scheme == *scheme).map(|asked| (asked.place, asked.name.as_str()))
        }
        ApiKeyPlace::Card(None) => match card {
            [only] => Some((only.place, &only.name)),
            [] | [_, ..] => None,
        },
    }
}

/// Returns true if a key may have this position: a card must not break a request, nor insert more
/// than a key.
fn fits(place: ApiKeyLocation, name: &str) -> bool {
    let header = HeaderName::from_bytes(name.as_bytes());
    match (place, header) {
        (ApiKeyLocation::Query, _) => !name.is_empty(),
        // A cookie's name is a token too.
        (ApiKeyLocation::Cookie, header) => header.is_ok(),
        (ApiKeyLocation::Header, Err(_)) => false,
        (ApiKeyLocation::Header, Ok(header)) => !is_forbidden(&header),
    }
}

fn describe(key: &ApiKey) -> String {
    match &key.place {
        ApiKeyPlace::Card(Some(scheme)) => {
            format!("auth.api_key is not sent: the card has no API key scheme {scheme:?} that says where it goes")
        }
        ApiKeyPlace::Card(None) | ApiKeyPlace::Written(..) => {
            "auth.api_key is not sent: the card does not say where one API key goes (write in and name, or scheme)".to_owned()
        }
    }
}

/// Inserts headers into others, and removes those of the same name.
fn insert(from: &HeaderMap, into: &mut HeaderMap) {
    for name in from.keys() {
        into.remove(name);
    }
    for (name, value) in from {
        into.append(name, value.clone());
    }
}

/// Returns a header value that no log shows.
fn value(at: &str, text: &str) -> Result<HeaderValue, String> {
    let mut value =
        HeaderValue::from_str(text).map_err(|_| format!("{at}: the value cannot be sent as a header"))?;
    value.set_sensitive(true);
    Ok(value)
}

/// Returns true if a secret can be sent as a header.
fn is_sendable(secret: &ReloadableSecret) -> bool {
    HeaderValue::from_str(secret.expose()).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Agent;
    use crate::file_watcher::FileWatcher;

    fn shown(agent: Agent, card: Vec<CardKey>) -> RequestCredentials {
        let Agent { headers, auth, methods, tls, .. } = agent;
        RequestCredentials::new(&ConfiguredCredentials {
            headers,
            auth,
            methods,
            tls,
            card,
            watcher: FileWatcher::default(),
            problems: Vec::new(),
            proof_due: false,
        })
        .unwrap()
    }

    fn key(value: &str, place: ApiKeyPlace) -> ApiKey {
        ApiKey { value: ReloadableSecret::fixed(value), place }
    }

    #[test]
    fn a_key_goes_into_the_query_and_stays_one_member_of_it() {
        let mut agent = Agent::new("bard", "http://bard.example/");
        let path =
            |shown: &RequestCredentials, path: &str| shown.keyed(&path.parse().unwrap()).unwrap().to_string();
        assert_eq!(path(&shown(agent.clone(), Vec::new()), "/a?b=c"), "/a?b=c");
        let place = ApiKeyPlace::Written(ApiKeyLocation::Query, "k".to_owned());
        agent.auth.api_keys.push(key("a&b=\u{fc} c", place));
        assert!(!format!("{agent:?}").contains("a&b"), "never printed");
        let shown = shown(agent, Vec::new());
        assert_eq!(path(&shown, "/"), "/?k=a%26b%3D%C3%BC%20c");
        assert_eq!(path(&shown, "/a?b=c"), "/a?b=c&k=a%26b%3D%C3%BC%20c");
    }

    #[test]
    fn keys_go_where_the_card_says_and_nowhere_else() {
        let asked =
            |scheme: &str, place, name: &str| CardKey { scheme: scheme.into(), place, name: name.into() };
        let card = vec![
            asked("one", ApiKeyLocation::Cookie, "first"),
            asked("two", ApiKeyLocation::Header, "X-Second"),
        ];
        let mut agent = Agent::new("bard", "http://bard.example/");
        agent.auth.api_keys = ["two", "one", "three"]
            .map(|scheme| key(scheme, ApiKeyPlace::Card(Some(scheme.into()))))
            .to_vec();
        agent.headers.push((COOKIE, ReloadableSecret::fixed("own=1")));
        let shown = shown(agent, card);
        let mut headers = HeaderMap::new();
        shown.apply(AgentMethod::Send, &mut headers);
        assert_eq!(
            (headers["cookie"].as_bytes(), headers["x-second"].as_bytes()),
            (&b"own=1; first=one"[..], &b"two"[..])
        );
        assert_eq!((headers.len(), shown.unplaced_keys().len()), (2, 1));
        assert!(headers.values().all(HeaderValue::is_sensitive));
    }

    #[test]
    fn a_card_cannot_break_a_request_by_the_place_of_a_key() {
        for (place, name) in [
            (ApiKeyLocation::Header, "Host"),
            (ApiKeyLocation::Header, "Content-Length"),
            (ApiKeyLocation::Header, "A2A-Version"),
            (ApiKeyLocation::Header, "a: b\r\nc"),
            (ApiKeyLocation::Cookie, "a=b; c"),
            (ApiKeyLocation::Cookie, "a\r\nb"),
            (ApiKeyLocation::Query, ""),
        ] {
            let mut agent = Agent::new("bard", "http://bard.example/");
            agent.auth.api_keys.push(key("k", ApiKeyPlace::Card(None)));
            let shown = shown(agent, vec![CardKey { scheme: "s".into(), place, name: name.into() }]);
            let mut headers = HeaderMap::new();
            shown.apply(AgentMethod::Send, &mut headers);
            let path = shown.keyed(&PathAndQuery::from_static("/")).unwrap();
            assert_eq!((headers.len(), path.as_str(), shown.unplaced_keys().len()), (0, "/", 1), "{name}");
        }
    }

    #[test]
    fn a_card_puts_nothing_in_the_place_of_what_the_operator_wrote() {
        let mut agent = Agent::new("bard", "http://bard.example/");
        agent.headers.push((HeaderName::from_static("x-tenant"), ReloadableSecret::fixed("acme")));
        agent.auth.api_keys.push(key("k", ApiKeyPlace::Card(None)));
        for name in ["X-Tenant", "Cookie"] {
            let asked = CardKey { scheme: "s".into(), place: ApiKeyLocation::Header, name: name.into() };
            let shown = shown(agent.clone(), vec![asked]);
            let mut headers = HeaderMap::new();
            shown.apply(AgentMethod::Send, &mut headers);
            assert_eq!((headers["x-tenant"].as_bytes(), headers.len()), (&b"acme"[..], 1), "{name}");
            assert_eq!(shown.unplaced_keys().len(), 1);
        }
    }

    #[test]
    fn headers_of_a_method_win_and_stay_with_it() {
        let mut agent = Agent::new("bard", "http://bard.example/");
        let header = |value: &str| (HeaderName::from_static("x-who"), ReloadableSecret::fixed(value));
        agent.headers.push(header("all"));
        agent.methods.cancel.headers.push(header("cancel"));
        let shown = shown(agent, Vec::new());
        for (method, expected) in
            [(AgentMethod::Cancel, "cancel"), (AgentMethod::Send, "all"), (AgentMethod::Other, "all")]
        {
            let mut headers = HeaderMap::new();
            headers.append("x-who", HeaderValue::from_static("a client"));
            shown.apply(method, &mut headers);
            assert_eq!(headers.get_all("x-who").iter().collect::<Vec<_>>(), [expected], "{method:?}");
        }
    }
}
