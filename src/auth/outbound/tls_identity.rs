//! Whom the gateway trusts at an agent and which certificate it shows, ready for connections.
//!
//! One TLS configuration per identity, so that no session is resumed under another. Not here: connecting (see `transport`).

use std::sync::Arc;

use rustls::ClientConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::config::{AgentTls, Pem};
use crate::transport::client_config;

/// The TLS side of an agent.
pub struct TlsIdentity {
    shows: Option<Arc<ClientConfig>>,
    hides: Option<Arc<ClientConfig>>,
}

impl TlsIdentity {
    /// Makes both configurations. A plain agent needs none, so that a system without roots can serve it.
    ///
    /// # Errors
    ///
    /// Words for what cannot be used, with its key.
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

    /// For connections on which the client certificate is shown, if there is one.
    pub fn tls(&self, shows: bool) -> Option<Arc<ClientConfig>> {
        if shows { self.shows.clone() } else { self.hides.clone() }
    }
}

/// The chain and the key of a client certificate.
pub(super) type CertifiedKey = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

/// The agent's client certificate with its key.
pub(super) fn pair(tls: &AgentTls) -> Result<Option<CertifiedKey>, String> {
    let (Some(certificate), Some(key)) = (&tls.certificate, &tls.key) else { return Ok(None) };
    let chain = certificates("tls.certificate", certificate)?;
    // The reader's own message may quote lines of the key.
    let key = PrivateKeyDer::from_pem_slice(key.expose().as_bytes())
        .map_err(|_| "tls.key: holds no private key in PEM".to_owned())?;
    Ok(Some((chain, key)))
}

pub(super) fn certificates(at: &str, pem: &Pem) -> Result<Vec<CertificateDer<'static>>, String> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.expose().as_bytes()).collect();
    all.map_err(|error| format!("{at}: {error}"))
}
