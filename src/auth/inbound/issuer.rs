//! The requests to an issuer: for its keys, and for introspection of a token (RFC 7662). Small JSON
//! over HTTP, without redirects and within limits.
//!
//! Keys are fetched at intervals, and at once when a token names an unknown one, at most every few
//! seconds. Previous keys stay while the issuer is unavailable. See `bearer` for signatures.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use http::{Method, Request, StatusCode, Uri};
use jsonwebtoken::Algorithm;
use rustls::ClientConfig;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde_json::{Map, Value};
use tokio::sync::{Mutex, Semaphore};
use tokio::time::timeout;
use tracing::{debug, warn};

use super::bearer::unix_now;
use super::claims::{ClaimsError, ClaimsMapper, VerifiedToken};
use super::{AuthProblem, Denied};
use crate::auth::{KeySet, SignedMessage, percent_encoded};
use crate::config::{AllowList, KeySource, Secret, TokenIssuer, key_file, origin_of};
use crate::transport::{
    AddressPolicy, ExchangeTimeouts, HttpClient, TargetSettings, Upstream, client_config,
};

/// The maximum size of a response, in bytes.
const MAX_RESPONSE_BYTES: usize = 512 * 1024;
/// The longest time to wait for an issuer.
pub(super) const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// The failure of a request to an issuer. Never quotes its response.
#[derive(Debug, thiserror::Error)]
pub(super) enum IssuerError {
    #[error("the address cannot be used: {0}")]
    Address(String),
    #[error("{0}")]
    Transport(#[from] crate::transport::TransportError),
    #[error("HTTP {0}")]
    Status(StatusCode),
    #[error("the answer is not a JSON object")]
    NotJson,
}

/// The client for the endpoints of one issuer.
pub(super) struct IssuerClient {
    client: HttpClient,
    tls: Arc<ClientConfig>,
    outbound: Arc<AllowList>,
}

/// One endpoint, with its connections.
pub(super) struct IssuerEndpoint {
    target: Upstream,
    path: String,
}

impl IssuerEndpoint {
    /// Returns the path, with its query.
    pub(super) fn path(&self) -> &str {
        &self.path
    }
}

impl IssuerClient {
    pub(super) fn new(
        issuer: &TokenIssuer,
        client: HttpClient,
        outbound: &Arc<AllowList>,
    ) -> Result<Self, AuthProblem> {
        let authorities: Option<Vec<CertificateDer<'_>>> = issuer.ca.as_ref().map(|pem| {
            CertificateDer::pem_slice_iter(pem.expose().as_bytes()).filter_map(Result::ok).collect()
        });
        let tls = client_config(authorities.as_deref(), None)
            .map_err(|problem| AuthProblem::Trust(issuer.issuer.clone(), problem))?;
        Ok(Self { client, tls: Arc::new(tls), outbound: outbound.clone() })
    }

    /// Returns an endpoint that the operator configured.
    pub(super) fn page(&self, url: &str) -> Result<IssuerEndpoint, IssuerError> {
        self.page_under(url, AddressPolicy::Trusted)
    }

    /// Returns an endpoint that another party named: no internal address, unless the operator
    /// allows it.
    fn guarded_page(&self, url: &str) -> Result<IssuerEndpoint, IssuerError> {
        self.page_under(url, AddressPolicy::Guarded(self.outbound.clone()))
    }

    fn page_under(&self, url: &str, policy: AddressPolicy) -> Result<IssuerEndpoint, IssuerError> {
        let uri: Uri = url.parse().map_err(|_| IssuerError::Address("it is not a URL".to_owned()))?;
        let path = uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
        let timeouts = ExchangeTimeouts {
            connect: REQUEST_TIMEOUT,
            first_byte: REQUEST_TIMEOUT,
            idle: REQUEST_TIMEOUT,
            total: REQUEST_TIMEOUT,
        };
        let settings = TargetSettings {
            tls: Some(self.tls.clone()),
            timeouts,
            max_idle: 4,
            ..TargetSettings::new(uri, policy)
        };
        let target = Upstream::new(settings).map_err(|error| IssuerError::Address(error.to_string()))?;
        Ok(IssuerEndpoint { target, path })
    }

    /// Gets the JSON of an endpoint.
    pub(super) async fn get(&self, page: &IssuerEndpoint) -> Result<Map<String, Value>, IssuerError> {
        let request = Request::builder().method(Method::GET).uri(&page.path);
        self.ask(page, request, Bytes::new()).await
    }

    /// Sends a request to an endpoint and reads its JSON.
    pub(super) async fn ask(
        &self,
        page: &IssuerEndpoint,
        request: http::request::Builder,
        body: Bytes,
    ) -> Result<Map<String, Value>, IssuerError> {
        let request = request.header(ACCEPT, "application/json").body(body);
        let request = request.map_err(|error| IssuerError::Address(error.to_string()))?;
        let mut reply = self.client.send(&page.target, request).await?;
        if reply.status() != StatusCode::OK {
            return Err(IssuerError::Status(reply.status()));
        }
        let body = reply.collect(MAX_RESPONSE_BYTES).await?;
        serde_json::from_slice(&body).map_err(|_| IssuerError::NotJson)
    }
}

/// The maximum number of concurrent requests to one issuer; others wait, and not for long.
const MAX_CONCURRENT_REQUESTS: usize = 64;

/// An issuer that is asked about each token.
pub(super) struct Introspection {
    issuer: String,
    web: IssuerClient,
    page: IssuerEndpoint,
    credentials: Secret,
    reader: ClaimsMapper,
    pub(super) cache: Duration,
    turns: Semaphore,
    has_failed: AtomicBool,
}

/// The settings of introspection by one issuer.
pub(super) struct IntrospectionSettings<'a> {
    pub(super) issuer: String,
    pub(super) client_id: &'a str,
    pub(super) client_secret: &'a Secret,
    /// The longest time for which a result is cached.
    pub(super) cache: Duration,
}

impl Introspection {
    pub(super) fn new(
        settings: IntrospectionSettings<'_>,
        web: IssuerClient,
        page: IssuerEndpoint,
        reader: ClaimsMapper,
    ) -> Self {
        let IntrospectionSettings { issuer, client_id, client_secret, cache } = settings;
        let pair = format!("{}:{}", percent_encoded(client_id), percent_encoded(client_secret.expose()));
        let credentials = Secret::new(format!("Basic {}", STANDARD.encode(pair)));
        let turns = Semaphore::new(MAX_CONCURRENT_REQUESTS);
        Self { issuer, web, page, credentials, reader, cache, turns, has_failed: AtomicBool::new(false) }
    }

    /// Returns the facts of a token.
    pub(super) async fn ask(&self, token: &str) -> Result<VerifiedToken, Denied> {
        let Ok(Ok(_turn)) = timeout(REQUEST_TIMEOUT, self.turns.acquire()).await else {
            return Err(Denied::Unavailable);
        };
        let request = Request::builder()
            .method(Method::POST)
            .uri(self.page.path())
            .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
            .header(AUTHORIZATION, self.credentials.expose());
        let body = format!("token={}&token_type_hint=access_token", percent_encoded(token));
        let answer = self.web.ask(&self.page, request, Bytes::from(body)).await;
        let answer = answer.map_err(|problem| self.unanswered(&problem))?;
        self.has_failed.store(false, Ordering::Relaxed);
        if answer.get("active") != Some(&Value::Bool(true)) {
            return Err(Denied::Bad);
        }
        // A token of another type, such as DPoP, needs a proof that is not requested here.
        if answer.get("token_type").is_some_and(|kind| !kind.as_str().is_some_and(is_bearer)) {
            return Err(Denied::Bad);
        }
        self.reader.read(&answer, unix_now()).map_err(|ClaimsError| Denied::Bad)
    }

    /// Logs the first failure in a row: any client can cause more. A rejected request may be due to
    /// the token itself.
    fn unanswered(&self, problem: &IssuerError) -> Denied {
        let is_rejected = matches!(problem, IssuerError::Status(status) if status.is_client_error());
        if is_rejected || self.has_failed.swap(true, Ordering::Relaxed) {
            debug!(issuer = %self.issuer, error = %problem, "failed to introspect token");
        } else {
            warn!(issuer = %self.issuer, error = %problem, "failed to introspect token");
        }
        Denied::Unavailable
    }
}

fn is_bearer(kind: &str) -> bool {
    kind.eq_ignore_ascii_case("bearer")
}

/// The shortest time between two refreshes because of unknown keys.
const PAUSE: Duration = Duration::from_secs(10);

/// The keys of one issuer.
pub(super) struct IssuerKeys {
    issuer: String,
    source: KeySource,
    web: IssuerClient,
    current: ArcSwap<KeySet>,
    /// The time and result of the last refresh. Held during a refresh, so that only one runs.
    looked: Mutex<RefreshState>,
}

#[derive(Default)]
struct RefreshState {
    at: Option<Instant>,
    has_failed: bool,
    set: Option<Value>,
}

/// The outcome of a refresh.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyRefreshOutcome {
    /// There are other keys now.
    Changed,
    /// The keys are the same, or a recent refresh is reused.
    Same,
    /// The issuer is unavailable.
    Failed,
}

#[derive(Debug, thiserror::Error)]
enum KeysUnavailable {
    #[error("{0}")]
    Unanswered(#[from] IssuerError),
    #[error("{0}")]
    File(String),
    #[error("no metadata of the issuer, or it names another issuer or no jwks_uri")]
    NoMetadata,
    #[error("it takes too long")]
    TooSlow,
    #[error("it is no JWKS with a key that can be used")]
    Empty,
}

impl IssuerKeys {
    pub(super) fn new(issuer: &str, source: KeySource, web: IssuerClient) -> Self {
        Self { issuer: issuer.to_owned(), source, web, current: ArcSwap::default(), looked: Mutex::default() }
    }

    /// Returns true if one of the matching keys made this signature (see [`KeySet::have_signed`]).
    /// `None`: no key matches.
    pub(super) fn have_signed(
        &self,
        id: Option<&str>,
        algorithm: Algorithm,
        signed: SignedMessage<'_>,
    ) -> Option<bool> {
        self.current.load().have_signed(id, algorithm, signed)
    }

    /// Refreshes the keys. Concurrent callers share one request; a recent refresh is reused. Waits
    /// no longer than [`REQUEST_TIMEOUT`].
    pub(super) async fn refresh(&self) -> KeyRefreshOutcome {
        let looking = async {
            let mut looked = self.looked.lock().await;
            match looked.at.filter(|at| at.elapsed() < PAUSE) {
                Some(_) if looked.has_failed => KeyRefreshOutcome::Failed,
                Some(_) => KeyRefreshOutcome::Same,
                None => self.renew(&mut looked).await,
            }
        };
        timeout(REQUEST_TIMEOUT, looking).await.unwrap_or(KeyRefreshOutcome::Failed)
    }

    /// Refreshes the keys now.
    pub(super) async fn refresh_now(&self) -> KeyRefreshOutcome {
        let mut looked = self.looked.lock().await;
        self.renew(&mut looked).await
    }

    async fn renew(&self, looked: &mut RefreshState) -> KeyRefreshOutcome {
        looked.at = Some(Instant::now());
        // If the caller stops waiting, the refresh counts as failed.
        looked.has_failed = true;
        let read = match timeout(REQUEST_TIMEOUT, self.read()).await {
            Ok(read) => read,
            Err(_) => Err(KeysUnavailable::TooSlow),
        };
        looked.has_failed = read.is_err();
        match read {
            Ok((set, _)) if looked.set.as_ref() == Some(&set) => KeyRefreshOutcome::Same,
            Ok((set, keys)) => {
                debug!(issuer = %self.issuer, keys = keys.len(), "fetched issuer keys");
                self.current.store(Arc::new(keys));
                looked.set = Some(set);
                KeyRefreshOutcome::Changed
            }
            Err(problem) => {
                warn!(issuer = %self.issuer, error = %problem, "failed to fetch issuer keys");
                KeyRefreshOutcome::Failed
            }
        }
    }

    async fn read(&self) -> Result<(Value, KeySet), KeysUnavailable> {
        let set = match &self.source {
            KeySource::File(path) => {
                let text = key_file(path).map_err(KeysUnavailable::File)?;
                serde_json::from_str(&text).map_err(|_| KeysUnavailable::Empty)?
            }
            KeySource::Url(url) => self.web.get(&self.web.page(url)?).await?,
            KeySource::Discovery => {
                let url = self.discover().await?;
                let origin = parsed_origin(&url);
                let is_at_home = origin.is_some() && origin == parsed_origin(&self.issuer);
                let page = if is_at_home { self.web.page(&url) } else { self.web.guarded_page(&url) };
                self.web.get(&page?).await?
            }
        };
        let keys = KeySet::usable(&set);
        if keys.len() == 0 { Err(KeysUnavailable::Empty) } else { Ok((Value::Object(set), keys)) }
    }

    /// Returns the URL of the keys from the metadata of the issuer (OpenID Connect Discovery §4,
    /// RFC 8414 §3).
    async fn discover(&self) -> Result<String, KeysUnavailable> {
        let mut found = None;
        for url in metadata_urls(&self.issuer) {
            match self.web.get(&self.web.page(&url)?).await {
                Ok(metadata) => {
                    found = Some(metadata);
                    break;
                }
                Err(IssuerError::Status(_) | IssuerError::NotJson) => {}
                Err(other) => return Err(other.into()),
            }
        }
        let metadata = found.ok_or(KeysUnavailable::NoMetadata)?;
        let text = |name| metadata.get(name).and_then(Value::as_str);
        // Metadata of another issuer would make its keys ours.
        if text("issuer") != Some(&self.issuer) {
            return Err(KeysUnavailable::NoMetadata);
        }
        let url = text("jwks_uri").ok_or(KeysUnavailable::NoMetadata)?;
        // Never from TLS down to plain text.
        if self.issuer.starts_with("https://") && !url.starts_with("https://") {
            return Err(KeysUnavailable::NoMetadata);
        }
        Ok(url.to_owned())
    }
}

fn metadata_urls(issuer: &str) -> Vec<String> {
    let base = issuer.trim_end_matches('/');
    let mut urls = vec![format!("{base}/.well-known/openid-configuration")];
    if let Some((scheme, rest)) = base.split_once("://") {
        let (host, path) =
            rest.split_once('/').map_or((rest, String::new()), |(host, path)| (host, format!("/{path}")));
        urls.push(format!("{scheme}://{host}/.well-known/oauth-authorization-server{path}"));
        urls.push(format!("{scheme}://{host}/.well-known/openid-configuration{path}"));
    }
    urls
}

fn parsed_origin(url: &str) -> Option<String> {
    origin_of(&url.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_is_looked_for_in_each_place_that_a_standard_names() {
        assert_eq!(
            metadata_urls("https://idp.example/t1"),
            [
                "https://idp.example/t1/.well-known/openid-configuration",
                "https://idp.example/.well-known/oauth-authorization-server/t1",
                "https://idp.example/.well-known/openid-configuration/t1",
            ]
        );
    }
}
