//! One fetch of an agent's card: over HTTP or from a file.
//!
//! Follows `docs/spec/a2a.md §2.1`: both well-known paths, validators honoured, no redirects. See
//! also `directory` for the times and `a2a::card` for the content.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CACHE_CONTROL, ETAG, IF_NONE_MATCH};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri};
use tokio::io::AsyncReadExt as _;

use super::agent::Agent;
use super::card_error::CardFetchError;
use crate::a2a::{AgentCard, CardError};
use crate::auth::AccessToken;
use crate::config::CardSource;
use crate::transport::{HttpClient, Response};

/// The maximum size of a card, in bytes.
const MAX_CARD_BODY_BYTES: usize = 1024 * 1024;
/// The paths of cards, newest first.
const WELL_KNOWN: [&str; 2] = ["/.well-known/agent-card.json", "/.well-known/agent.json"];

/// A card that was fetched.
#[derive(Debug)]
pub struct FetchedCard {
    /// The card; `None` if it is still the one that the validator belongs to.
    pub card: Option<AgentCard>,
    /// The validator for the next fetch.
    pub etag: Option<String>,
    /// The time for which the card is fresh, as the agent states it.
    pub fresh_for: Option<Duration>,
    /// The URL that it came from; `None` for a file.
    pub from: Option<Uri>,
}

/// A request for a card.
pub(super) struct CardRequest<'a> {
    pub(super) client: &'a HttpClient,
    /// The agent of the card.
    pub(super) agent: &'a Agent,
    pub(super) etag: Option<&'a str>,
}

impl CardRequest<'_> {
    /// Fetches the card of an agent.
    pub(super) async fn fetch(&self) -> Result<FetchedCard, CardFetchError> {
        let url = match &self.agent.settings.card {
            CardSource::File(path) => return from_file(path).await,
            CardSource::Url(url) => url,
        };
        let uri: Uri =
            url.parse().map_err(|_| CardFetchError::Setting(format!("card: {url:?} is not a URL")))?;
        if is_exact(&uri) {
            return self.get(&uri, uri.path_and_query().map_or("/", |path| path.as_str())).await;
        }
        let base = uri.path().trim_end_matches('/');
        let [newest, older] = WELL_KNOWN.map(|path| format!("{base}{path}"));
        match self.get(&uri, &newest).await {
            Err(CardFetchError::Status(_, 404 | 405 | 410) | CardFetchError::Card(CardError::NotJson(_))) => {
                self.get(&uri, &older).await
            }
            other => other,
        }
    }

    async fn get(&self, origin: &Uri, path: &str) -> Result<FetchedCard, CardFetchError> {
        let mut pass = self.agent.token().await;
        let mut reply = self.ask(path, pass.as_ref()).await?;
        if reply.status() == StatusCode::UNAUTHORIZED
            && let Some(refused) = pass.take()
            && let Some(another) = self.agent.refresh_token(&refused).await
        {
            reply = self.ask(path, Some(&another)).await?;
        }
        let etag = reply.headers().get(ETAG).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let fresh_for = max_age(reply.headers());
        let from = Some(origin.clone());
        match reply.status() {
            // Without a validator in the request this response says nothing: it refers to no card.
            StatusCode::NOT_MODIFIED if self.etag.is_some() => {
                let etag = etag.or_else(|| self.etag.map(str::to_owned));
                Ok(FetchedCard { card: None, etag, fresh_for, from })
            }
            StatusCode::OK => {
                let body = reply.collect(MAX_CARD_BODY_BYTES).await?;
                Ok(FetchedCard { card: Some(AgentCard::parse(&body)?), etag, fresh_for, from })
            }
            status => {
                // Without the query: it may carry a secret.
                let path = path.split('?').next().unwrap_or_default().to_owned();
                Err(CardFetchError::Status(path, status.as_u16()))
            }
        }
    }
}

impl CardRequest<'_> {
    async fn ask(&self, path: &str, pass: Option<&AccessToken>) -> Result<Response, CardFetchError> {
        let setting = |what: &str| CardFetchError::Setting(format!("card: {what}"));
        let target = self.agent.card_target.load_full().ok_or_else(|| setting("no such place"))?;
        let path = path.parse().map_err(|_| setting("its path cannot be called"))?;
        let mut request = Request::new(Bytes::new());
        *request.method_mut() = Method::GET;
        let headers = request.headers_mut();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        // A compatibility server chooses the shape of its card by this header.
        headers.insert("a2a-version", HeaderValue::from_static("1.0"));
        if let Some(etag) = self.etag.and_then(|etag| HeaderValue::from_str(etag).ok()) {
            headers.insert(IF_NONE_MATCH, etag);
        }
        self.agent.apply_credentials(&mut request, &path, pass).map_err(setting)?;
        Ok(self.client.send(&target, request).await?)
    }
}

/// Returns true if a URL names the card itself and not the agent's base.
fn is_exact(uri: &Uri) -> bool {
    uri.query().is_some() || uri.path().ends_with(".json") || uri.path().contains("/.well-known/")
}

async fn from_file(path: &Path) -> Result<FetchedCard, CardFetchError> {
    let shown = || path.display().to_string();
    let unread = |error| CardFetchError::File(shown(), error);
    let file = tokio::fs::File::open(path).await.map_err(unread)?;
    let mut body = Vec::new();
    file.take(MAX_CARD_BODY_BYTES as u64 + 1).read_to_end(&mut body).await.map_err(unread)?;
    if body.len() > MAX_CARD_BODY_BYTES {
        return Err(CardFetchError::Card(CardError::TooLarge { bytes: body.len() }));
    }
    Ok(FetchedCard { card: Some(AgentCard::parse(&body)?), etag: None, fresh_for: None, from: None })
}

fn max_age(headers: &HeaderMap) -> Option<Duration> {
    let directives = headers.get_all(CACHE_CONTROL).iter().filter_map(|value| value.to_str().ok());
    let mut age = None;
    for directive in directives.flat_map(|text| text.split(',')).map(str::trim) {
        if directive.eq_ignore_ascii_case("no-cache") || directive.eq_ignore_ascii_case("no-store") {
            return Some(Duration::ZERO);
        }
        let seconds = directive.to_ascii_lowercase();
        age = seconds.strip_prefix("max-age=").and_then(|seconds| seconds.parse().ok()).or(age);
    }
    age.map(Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_the_card_or_the_agents_base() {
        for (url, exact) in [
            ("http://a/", false),
            ("http://a/agents/x", false),
            ("http://a/card.json", true),
            ("http://a/.well-known/agent-card.json", true),
            ("http://a/card?id=7", true),
        ] {
            assert_eq!(is_exact(&url.parse().unwrap()), exact, "{url}");
        }
    }

    #[test]
    fn the_agents_word_on_freshness_is_read() {
        let mut headers = HeaderMap::new();
        assert_eq!(max_age(&headers), None);
        headers.insert(CACHE_CONTROL, "public, Max-Age=60".parse().unwrap());
        assert_eq!(max_age(&headers), Some(Duration::from_secs(60)));
        headers.append(CACHE_CONTROL, "no-store".parse().unwrap());
        assert_eq!(max_age(&headers), Some(Duration::ZERO));
    }
}
