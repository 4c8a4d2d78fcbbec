//! The client for issuers: small JSON over HTTP, without redirects and within limits.

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
    pub(super) fn guarded_page(&self, url: &str) -> Result<IssuerEndpoint, IssuerError> {
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
