//! The keys of one issuer: their URL, and their refresh.
//!
//! They are fetched at intervals, and at once when a token names an unknown one, at most every few
//! seconds. Previous keys stay while the issuer is unavailable. See `bearer` for signatures.

use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use jsonwebtoken::Algorithm;
use serde_json::Value;
use tokio::sync::Mutex;
use tokio::time::timeout;
use tracing::{debug, warn};

use super::issuer_client::{IssuerClient, IssuerError, REQUEST_TIMEOUT};
use crate::auth::KeySet;
use crate::config::{KeySource, key_file, origin_of};

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
        (id, algorithm): (Option<&str>, Algorithm),
        signed: (&[u8], &[u8]),
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
