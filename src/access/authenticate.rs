//! Authentication of requests: collects the credentials and rejects those that are not valid.
//!
//! Runs before the body is read, and for every request anew. `auth` verifies the credentials,
//! `authorize` applies the rules.

use std::sync::Arc;
use std::time::Instant;

use http::header::{AUTHORIZATION, HeaderName};
use http::{HeaderMap, HeaderValue};

use super::oauth_metadata::OAuthMetadata;
use crate::auth::{
    Authenticator, Caller, CertificateFacts, Denied, FailureLimiter, PresentedCredentials, SubjectToken,
};
use crate::config::{Require, Secret};
use crate::fault::Fault;
use crate::http_edge::{ClientConnection, Route, scope};
use crate::telemetry::access_log;

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
}
