//! The authorities that the gateway trusts at an agent and the certificate that it presents, ready
//! for connections.
//!
//! One TLS configuration per identity, so that no session is resumed under another. See `transport`
//! for connections.

use std::sync::Arc;

use rustls::ClientConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::config::{AgentTls, Pem};
use crate::transport::client_config;

/// The TLS configurations for an agent.
pub struct TlsIdentity {
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
    pub(super) fn new(tls: &AgentTls, is_plain: bool) -> Result<Self, String> {
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
    pub fn tls(&self, shows: bool) -> Option<Arc<ClientConfig>> {
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
