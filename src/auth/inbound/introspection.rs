//! Introspection: asks an issuer if a token is valid (RFC 7662).
//!
//! See `token_cache` for its results.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{Method, Request};
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tracing::warn;

use super::Denied;
use super::bearer::unix_now;
use super::claims::{ClaimsError, ClaimsMapper, VerifiedToken};
use super::issuer_client::{IssuerClient, IssuerEndpoint, REQUEST_TIMEOUT};
use crate::auth::encoded::encoded;
use crate::config::Secret;

/// The maximum number of concurrent requests to one issuer; others wait, and not for long.
const MAX_CONCURRENT_REQUESTS: usize = 64;

/// An issuer that is asked about each token.
pub(super) struct Introspection {
    pub(super) issuer: String,
    pub(super) web: IssuerClient,
    pub(super) page: IssuerEndpoint,
    pub(super) credentials: Secret,
    pub(super) reader: ClaimsMapper,
    pub(super) cache: Duration,
    turns: Semaphore,
}

impl Introspection {
    pub(super) fn new(
        issuer: String,
        (web, page): (IssuerClient, IssuerEndpoint),
        (client_id, secret): (&str, &Secret),
        (reader, cache): (ClaimsMapper, Duration),
    ) -> Self {
        let pair = format!("{}:{}", encoded(client_id), encoded(secret.expose()));
        let credentials = Secret::new(format!("Basic {}", STANDARD.encode(pair)));
        Self { issuer, web, page, credentials, reader, cache, turns: Semaphore::new(MAX_CONCURRENT_REQUESTS) }
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
        let body = format!("token={}&token_type_hint=access_token", encoded(token));
        let answer = self.web.ask(&self.page, request, Bytes::from(body)).await.map_err(|problem| {
            warn!(issuer = %self.issuer, error = %problem, "failed to introspect token");
            Denied::Unavailable
        })?;
        if answer.get("active") != Some(&Value::Bool(true)) {
            return Err(Denied::Bad);
        }
        // A token of another type, such as DPoP, needs a proof that is not requested here.
        if answer.get("token_type").is_some_and(|kind| !kind.as_str().is_some_and(is_bearer)) {
            return Err(Denied::Bad);
        }
        self.reader.read(&answer, unix_now()).map_err(|ClaimsError| Denied::Bad)
    }
}

fn is_bearer(kind: &str) -> bool {
    kind.eq_ignore_ascii_case("bearer")
}
