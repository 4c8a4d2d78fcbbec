//! The TLS configuration of the gateway as a client: the authorities that it trusts, and its own
//! certificate.
//!
//! There is no insecure mode.

use std::sync::{Arc, OnceLock};

use rustls::client::WebPkiServerVerifier;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

use super::chain::ServerVerifier;

/// The reason for which no TLS client configuration could be made.
#[derive(Debug, thiserror::Error)]
pub enum TlsConfigError {
    /// The system has no certificate authorities, or they cannot be read.
    #[error("no certificate authority found on this system: {0}")]
    NoSystemRoots(String),
    /// A configured certificate authority is not one.
    #[error("unusable certificate authority: {0}")]
    BadAuthority(#[source] rustls::Error),
    /// No certificate authority was given at all, so no agent could be trusted.
    #[error("the list of certificate authorities is empty")]
    NoAuthority,
    /// The client certificate and its key do not fit together or cannot be used.
    #[error("unusable client certificate or key: {0}")]
    BadIdentity(#[source] rustls::Error),
    /// The cryptography cannot do TLS 1.2 and 1.3.
    #[error("unusable TLS provider: {0}")]
    Provider(#[source] rustls::Error),
}

/// Creates the TLS configuration of an upstream.
///
/// Trusts the certificate authorities in `authorities` and no others, or the system's if it is
/// `None` (they are read once per process). With `identity` (chain and key) the gateway
/// authenticates by that certificate. Sessions are resumed; create one configuration per identity,
/// so that none is resumed under another.
///
/// # Errors
///
/// [`TlsConfigError`] names the unusable part.
pub fn client_config(
    authorities: Option<&[CertificateDer<'_>]>,
    identity: Option<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)>,
) -> Result<ClientConfig, TlsConfigError> {
    let roots = match authorities {
        Some(authorities) => Arc::new(configured(authorities)?),
        None => system()?,
    };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(&provider)).build();
    // Only roots can be missing.
    let verifier = ServerVerifier(verifier.map_err(|_| TlsConfigError::NoAuthority)?);
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
        .map_err(TlsConfigError::Provider)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier));
    match identity {
        Some((chain, key)) => builder.with_client_auth_cert(chain, key).map_err(TlsConfigError::BadIdentity),
        None => Ok(builder.with_no_client_auth()),
    }
}

fn configured(authorities: &[CertificateDer<'_>]) -> Result<RootCertStore, TlsConfigError> {
    let mut roots = RootCertStore::empty();
    for authority in authorities {
        roots.add(authority.clone().into_owned()).map_err(TlsConfigError::BadAuthority)?;
    }
    if roots.is_empty() { Err(TlsConfigError::NoAuthority) } else { Ok(roots) }
}

fn system() -> Result<Arc<RootCertStore>, TlsConfigError> {
    static SYSTEM: OnceLock<Result<Arc<RootCertStore>, String>> = OnceLock::new();
    SYSTEM.get_or_init(load_system).clone().map_err(TlsConfigError::NoSystemRoots)
}

fn load_system() -> Result<Arc<RootCertStore>, String> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    // Systems ship odd certificates; those that cannot be parsed are skipped, as every TLS library
    // does.
    let (usable, _) = roots.add_parsable_certificates(found.certs);
    if usable > 0 {
        return Ok(Arc::new(roots));
    }
    Err(found.errors.first().map_or_else(|| "none installed".to_owned(), ToString::to_string))
}
