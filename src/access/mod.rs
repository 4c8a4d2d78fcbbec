//! Access: authenticates the caller of a request, and authorizes what the request does.
//!
//! Authentication collects the credentials and rejects those that are not valid, before the body is
//! read, and for every request anew; `authorize` applies the rules. The verification of credentials and
//! the rules themselves are in `auth`, which knows no HTTP request of the gateway.
//!
//! A challenge names the OAuth metadata (RFC 9728, `docs/spec/mcp.md` §5): the resource for which
//! tokens are issued, the issuers, and missing scopes. The gateway is a resource server only; it issues
//! no tokens.

mod authorize;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use http::header::{AUTHORIZATION, HeaderName};
use http::{HeaderMap, HeaderValue, Uri};
use serde::Serialize;

use crate::auth::{
    Authenticator, Caller, CertificateFacts, Denied, Endpoint, FailureLimiter, PresentedCredentials, Rules,
    ServedProtocol, SubjectToken,
};
use crate::config::{Require, Secret, Settings};
use crate::fault::Fault;
use crate::http_edge::{ClientConnection, METADATA, Route, scope};
use crate::telemetry::access_log;

pub(crate) use authorize::{Authorizer, Requester, TaskMessage, ToolUse};

/// Authenticates the callers of requests, within a limit on failures.
pub(crate) struct RequestAuthenticator {
    authenticator: Authenticator,
    failures: Arc<FailureLimiter>,
    metadata: Arc<OAuthMetadata>,
}

impl RequestAuthenticator {
    pub(crate) fn new(
        authenticator: Authenticator,
        failures: Arc<FailureLimiter>,
        metadata: Arc<OAuthMetadata>,
    ) -> Self {
        Self { authenticator, failures, metadata }
    }

    /// Returns the verification of credentials.
    pub(crate) fn authenticator(&self) -> &Authenticator {
        &self.authenticator
    }

    /// Returns the failures of each address.
    pub(crate) fn failures(&self) -> &Arc<FailureLimiter> {
        &self.failures
    }

    /// Returns the header with the API key, if there are keys.
    pub(crate) fn key_header(&self) -> Option<&HeaderName> {
        self.authenticator.key_header()
    }

    /// Removes the failures that are long ago.
    pub(crate) fn sweep(&self, now: Instant) {
        self.failures.sweep(now);
    }

    /// Authenticates the caller of a request, by the mechanisms in `require`.
    ///
    /// # Errors
    ///
    /// The [`Fault`] with which the request is rejected.
    pub(crate) async fn authenticate(
        &self,
        http: &impl ClientConnection,
        require: &Require,
        route: Route<'_>,
    ) -> Result<Caller, Fault> {
        let network = http.client_network();
        let may_cost = self.failures.check(network, Instant::now());
        let headers = &http.head().headers;
        let bearer = single_header(headers, &AUTHORIZATION)?.and_then(bearer);
        let api_key = match self.authenticator.key_header() {
            // A value with another scheme is not a key.
            Some(name) if *name == AUTHORIZATION => bearer.map(str::as_bytes),
            Some(name) => single_header(headers, name)?.map(HeaderValue::as_bytes),
            None => None,
        };
        let endpoint = route.endpoint();
        let certificate = http.tls().and_then(|tls| tls.certificate.clone());
        let certificate = certificate.as_deref().map(|certificate| CertificateFacts {
            uris: certificate.uris(),
            dns_names: certificate.dns_names(),
            common_name: certificate.common_name(),
            thumbprint: certificate.thumbprint(),
        });
        let presented =
            PresentedCredentials { certificate, api_key, bearer, endpoint, may_cost: may_cost.is_ok() };
        let denied = match self.authenticator.authenticate(require, &presented).await {
            Ok(caller) => return Ok(caller),
            Err(denied) => denied,
        };
        access_log::not_admitted(scope(http.head()).map(|scope| &**scope), denial_reason(denied));
        if denied == Denied::Bad {
            // Only failures are limited: credentials already known to be valid pass from any
            // address.
            if let Err(wait) = may_cost {
                return Err(Fault::RateLimited(wait.as_secs() + 1));
            }
            self.failures.record(network, Instant::now());
        }
        Err(match denied {
            Denied::Missing => Fault::Unauthenticated(self.metadata.challenge(endpoint, None, &[])),
            Denied::Bad => {
                let error = bearer.is_some().then_some("invalid_token");
                Fault::Unauthenticated(self.metadata.challenge(endpoint, error, &[]))
            }
            Denied::ScopesNeeded => {
                let challenge = self.metadata.challenge(endpoint, Some("insufficient_scope"), &[]);
                Fault::InsufficientScope(challenge)
            }
            Denied::Unavailable => Fault::AuthUnavailable,
        })
    }
}

/// Returns the token that authenticated the caller, to be exchanged for tokens on its behalf. A
/// token that was not verified is never returned.
pub(crate) fn subject_token(caller: &Caller, headers: &HeaderMap) -> Option<SubjectToken> {
    let token = single_header(headers, &AUTHORIZATION).ok()??;
    let token = bearer(token).filter(|_| caller.has_token())?;
    Some(SubjectToken::new(Secret::new(token)))
}

fn denial_reason(denied: Denied) -> &'static str {
    match denied {
        Denied::Missing => "missing",
        Denied::Bad => "bad",
        Denied::ScopesNeeded => "insufficient_scope",
        Denied::Unavailable => "unavailable",
    }
}

/// Returns the value of a header. Two values could be two callers.
fn single_header<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Result<Option<&'h HeaderValue>, Fault> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (value, None) => Ok(value),
        (_, Some(_)) => Err(Fault::DuplicateCredentials(name.as_str().to_owned())),
    }
}

/// Returns the token after `Bearer` (RFC 6750 §2.1); the scheme in any case. An unreadable token
/// counts as presented and invalid: the result is empty.
fn bearer(value: &HeaderValue) -> Option<&str> {
    let value = value.as_bytes();
    let end = value.iter().position(|byte| matches!(byte, b' ' | b'\t')).unwrap_or(value.len());
    let (scheme, token) = value.split_at_checked(end)?;
    let token = std::str::from_utf8(token).unwrap_or_default();
    scheme.eq_ignore_ascii_case(b"bearer").then(|| token.trim())
}

/// Metadata of a protected resource (RFC 9728 §2).
#[derive(Serialize)]
struct ProtectedResource<'a> {
    resource: String,
    authorization_servers: Vec<&'a str>,
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    scopes_supported: BTreeSet<&'a str>,
    bearer_methods_supported: [&'static str; 1],
    resource_name: &'a str,
}

/// The gateway as an OAuth resource: its metadata document, and its challenges.
pub(crate) struct OAuthMetadata {
    public_url: Option<String>,
    issuers: Vec<String>,
    /// Scopes that every token needs.
    scopes: Vec<String>,
    /// Scopes that rules ask for besides.
    rule_scopes: Vec<String>,
    api_key_header: Option<String>,
    server_name: String,
}

impl OAuthMetadata {
    pub(crate) fn new(settings: &Settings, rules: &Rules) -> Self {
        let auth = &settings.auth;
        Self {
            public_url: settings.public_url.clone(),
            issuers: auth.tokens.iter().map(|issuer| issuer.issuer.clone()).collect(),
            scopes: auth.scopes.clone(),
            rule_scopes: rules.scopes().map(str::to_owned).collect(),
            api_key_header: auth.api_keys.as_ref().map(|keys| keys.header.to_string()),
            server_name: settings.mcp.server_name.clone(),
        }
    }

    /// Returns the metadata of the resource at the path after the well-known prefix, as JSON. It is
    /// the same for known and unknown agents.
    ///
    /// # Errors
    ///
    /// [`Fault::NoSuchPath`] if the path is no resource, or callers use no tokens.
    pub(crate) fn document(&self, path: &str) -> Result<Vec<u8>, Fault> {
        let public = self.public_url.as_deref().ok_or(Fault::NoSuchPath)?;
        if self.issuers.is_empty() {
            return Err(Fault::NoSuchPath);
        }
        let endpoint = endpoint_of(path, public_base_path(public)).ok_or(Fault::NoSuchPath)?;
        let protected = ProtectedResource {
            resource: resource(public, endpoint),
            authorization_servers: self.issuers.iter().map(String::as_str).collect(),
            scopes_supported: self.scopes.iter().chain(&self.rule_scopes).map(String::as_str).collect(),
            bearer_methods_supported: ["header"],
            resource_name: &self.server_name,
        };
        serde_json::to_vec(&protected).map_err(|_| Fault::Internal)
    }

    /// Returns the URL of the metadata for an endpoint, if callers authenticate with tokens
    /// (RFC 9728 §3.1).
    pub(crate) fn url(&self, endpoint: Endpoint<'_>) -> Option<String> {
        let public = self.public_url.as_deref().filter(|_| !self.issuers.is_empty())?;
        Some(metadata_url(public, endpoint))
    }

    /// Returns the value of `WWW-Authenticate`, with the scopes that are needed beyond those of
    /// every token. Empty if only a client certificate helps.
    pub(crate) fn challenge(&self, endpoint: Endpoint<'_>, error: Option<&str>, needed: &[String]) -> String {
        if self.issuers.is_empty() {
            let header = self.api_key_header.as_ref();
            return header.map_or_else(String::new, |header| format!("ApiKey header=\"{header}\""));
        }
        let mut parts = Vec::new();
        if let Some(error) = error {
            parts.push(format!("error=\"{error}\""));
        }
        if let Some(public) = &self.public_url {
            parts.push(format!("resource_metadata=\"{}\"", metadata_url(public, endpoint)));
        }
        let scopes: BTreeSet<&str> = self.scopes.iter().chain(needed).map(String::as_str).collect();
        if !scopes.is_empty() {
            parts.push(format!("scope=\"{}\"", scopes.into_iter().collect::<Vec<_>>().join(" ")));
        }
        if parts.is_empty() { "Bearer".to_owned() } else { format!("Bearer {}", parts.join(", ")) }
    }
}

fn resource(public: &str, Endpoint { service, agent }: Endpoint<'_>) -> String {
    let service = service.path();
    agent.map_or_else(|| format!("{public}{service}"), |agent| format!("{public}{service}/{agent}"))
}

/// Returns the path of a URL, without a slash at its end.
fn public_base_path(public: &str) -> String {
    public.parse::<Uri>().map(|uri| uri.path().trim_end_matches('/').to_owned()).unwrap_or_default()
}

/// The well-known path comes between host and path (RFC 9728 §3.1).
fn metadata_url(public: &str, endpoint: Endpoint<'_>) -> String {
    let base = public_base_path(public);
    let origin = public.strip_suffix(&*base).unwrap_or(public);
    format!("{origin}{METADATA}{}", resource(&base, endpoint))
}

/// Returns the endpoint for a path after the well-known prefix. A proxy before the gateway may have
/// removed the base path.
fn endpoint_of(path: &str, base: String) -> Option<Endpoint<'_>> {
    let path = path.strip_prefix(&*base).unwrap_or(path);
    if matches!(path, "" | "/") {
        return Some(Endpoint::default());
    }
    let at = |service: ServedProtocol| path.strip_prefix(service.path()).map(|rest| (service, rest));
    let (service, rest) = at(ServedProtocol::Mcp).or_else(|| at(ServedProtocol::A2a))?;
    if matches!(rest, "" | "/") {
        return Some(Endpoint { service, agent: None });
    }
    let agent = rest.strip_prefix('/')?;
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_".contains(&byte);
    (agent.len() <= 32 && agent.bytes().all(fits)).then_some(Endpoint { service, agent: Some(agent) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_bearer_has_a_token() {
        for (value, token) in [
            ("Bearer abc", Some("abc")),
            ("bearer  abc ", Some("abc")),
            ("BEARER abc", Some("abc")),
            ("Bearer\tabc", Some("abc")),
            ("Bearer", Some("")),
            ("bearer ", Some("")),
            ("Bearer \u{fc}", Some("\u{fc}")),
            ("Basic abc", None),
            ("abc", None),
            ("Bearerabc", None),
            ("", None),
        ] {
            assert_eq!(bearer(&HeaderValue::from_str(value).unwrap()), token, "{value}");
        }
        assert_eq!(bearer(&HeaderValue::from_bytes(b"Bearer \xff").unwrap()), Some(""), "not UTF-8");
    }

    #[test]
    fn each_endpoint_has_its_document() {
        for (path, base, expected) in [
            ("", "", Some((ServedProtocol::Mcp, None))),
            ("/mcp", "", Some((ServedProtocol::Mcp, None))),
            ("/a2a", "", Some((ServedProtocol::A2a, None))),
            ("/mcp/weather", "", Some((ServedProtocol::Mcp, Some("weather")))),
            ("/gw/mcp/weather", "/gw", Some((ServedProtocol::Mcp, Some("weather")))),
            ("/mcp/weather", "/gw", Some((ServedProtocol::Mcp, Some("weather")))),
            ("/gw/a2a/weather", "/gw", Some((ServedProtocol::A2a, Some("weather")))),
            ("/gw/mcp", "", None),
            ("/mcp/a/b", "", None),
            ("/mcp/A\"", "", None),
            ("/mcpx", "", None),
            ("x", "", None),
        ] {
            let found = endpoint_of(path, base.to_owned()).map(|found| (found.service, found.agent));
            assert_eq!(found, expected, "{path} {base}");
        }
    }

    #[test]
    fn the_well_known_place_stands_between_host_and_path() {
        let weather = Endpoint { service: ServedProtocol::Mcp, agent: Some("weather") };
        let url = metadata_url("https://gw.example.com/base", weather);
        assert_eq!(url, "https://gw.example.com/.well-known/oauth-protected-resource/base/mcp/weather");
        let url = metadata_url("https://gw.example.com", Endpoint::default());
        assert_eq!(url, "https://gw.example.com/.well-known/oauth-protected-resource/mcp");
    }
}
