//! Asking an issuer: small JSON over HTTP, without redirects and within bounds.
//!
//! Not here: what the JSON means.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::ACCEPT;
use http::{Method, Request, StatusCode, Uri};
use rustls::ClientConfig;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde_json::{Map, Value};

use super::AuthProblem;
use crate::config::{AllowList, TokenIssuer};
use crate::transport::{Client, Policy, Target, TargetSettings, Timeouts, client_config};

/// Longest answer that is read, in bytes.
const LONGEST: usize = 512 * 1024;
/// Longest that somebody waits for an issuer.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// Why an issuer could not be asked. Never quotes what it said.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unanswered {
    #[error("the address cannot be used: {0}")]
    Address(String),
    #[error("{0}")]
    Transport(#[from] crate::transport::TransportError),
    #[error("HTTP {0}")]
    Status(StatusCode),
    #[error("the answer is not a JSON object")]
    NotJson,
}

/// How the places of one issuer are reached.
pub(super) struct Web {
    client: Client,
    tls: Arc<ClientConfig>,
    outbound: Arc<AllowList>,
}

/// One place, with its connections.
pub(super) struct Page {
    target: Target,
    path: String,
}

impl Page {
    /// The path, with its query.
    pub(super) fn path(&self) -> &str {
        &self.path
    }
}

impl Web {
    pub(super) fn new(
        issuer: &TokenIssuer,
        client: Client,
        outbound: &Arc<AllowList>,
    ) -> Result<Self, AuthProblem> {
        let authorities: Option<Vec<CertificateDer<'_>>> = issuer.ca.as_ref().map(|pem| {
            CertificateDer::pem_slice_iter(pem.expose().as_bytes()).filter_map(Result::ok).collect()
        });
        let tls = client_config(authorities.as_deref(), None)
            .map_err(|problem| AuthProblem::Trust(issuer.issuer.clone(), problem))?;
        Ok(Self { client, tls: Arc::new(tls), outbound: outbound.clone() })
    }

    /// A place that the operator named.
    pub(super) fn page(&self, url: &str) -> Result<Page, Unanswered> {
        self.page_under(url, Policy::Trusted)
    }

    /// A place that somebody else named: nowhere inside, but where the operator allows it.
    pub(super) fn guarded_page(&self, url: &str) -> Result<Page, Unanswered> {
        self.page_under(url, Policy::Guarded(self.outbound.clone()))
    }

    fn page_under(&self, url: &str, policy: Policy) -> Result<Page, Unanswered> {
        let uri: Uri = url.parse().map_err(|_| Unanswered::Address("it is not a URL".to_owned()))?;
        let path = uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
        let timeouts = Timeouts { connect: PATIENCE, first_byte: PATIENCE, idle: PATIENCE, total: PATIENCE };
        let settings = TargetSettings {
            tls: Some(self.tls.clone()),
            timeouts,
            max_idle: 4,
            ..TargetSettings::new(uri, policy)
        };
        let target = Target::new(settings).map_err(|error| Unanswered::Address(error.to_string()))?;
        Ok(Page { target, path })
    }

    /// What stands at a place.
    pub(super) async fn get(&self, page: &Page) -> Result<Map<String, Value>, Unanswered> {
        let request = Request::builder().method(Method::GET).uri(&page.path);
        self.ask(page, request, Bytes::new()).await
    }

    /// What a place says to something.
    pub(super) async fn ask(
        &self,
        page: &Page,
        request: http::request::Builder,
        body: Bytes,
    ) -> Result<Map<String, Value>, Unanswered> {
        let request = request.header(ACCEPT, "application/json").body(body);
        let request = request.map_err(|error| Unanswered::Address(error.to_string()))?;
        let mut reply = self.client.send(&page.target, request).await?;
        if reply.status() != StatusCode::OK {
            return Err(Unanswered::Status(reply.status()));
        }
        let body = reply.collect(LONGEST).await?;
        serde_json::from_slice(&body).map_err(|_| Unanswered::NotJson)
    }
}
