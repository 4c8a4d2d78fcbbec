//! The TLS configuration of the gateway as a client: the authorities that it trusts, its own
//! certificate, and a bound on the certificate chain that a peer presents.
//!
//! There is no insecure mode.
//!
//! webpki searches a path to a trusted authority through all certificates that the peer sends. The
//! search takes time that grows with the factorial of their number, and needs no signature of a
//! trusted authority: the peer can be any client of a listener, or any host that a client's webhook
//! names. webpki ignores the key usage of authorities, too. So the chain is checked before.

use std::sync::{Arc, OnceLock};

use rustls::client::danger::{ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, Error, OtherError, RootCertStore};
use x509_parser::prelude::{FromDer as _, X509Certificate};

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

/// The hosts with which sessions are resumed. An agent has one or a few; room for more would be
/// allocated for every agent.
const RESUMED_HOSTS: usize = 4;
/// The tickets that rustls keeps for each of them.
const TICKETS_OF_HOST: usize = 8;

/// Creates the TLS configuration of an upstream.
///
/// Trusts the certificate authorities in `authorities` and no others, or the system's if it is
/// `None` (they are read once per process). With `identity` (chain and key) the gateway
/// authenticates by that certificate. Sessions are resumed, those with [`RESUMED_HOSTS`] hosts; create
/// one configuration per identity, so that none is resumed under another.
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
    let mut config = match identity {
        Some((chain, key)) => {
            builder.with_client_auth_cert(chain, key).map_err(TlsConfigError::BadIdentity)?
        }
        None => builder.with_no_client_auth(),
    };
    config.resumption = Resumption::in_memory_sessions(RESUMED_HOSTS * TICKETS_OF_HOST);
    Ok(config)
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

/// The maximum number of certificates above the peer's own. A public authority has one or two, a
/// bridge between companies three.
const MAX_INTERMEDIATES: usize = 4;
/// The maximum number of intermediates with one subject: an authority that was renewed or
/// cross-signed has two.
const MAX_SAME_SUBJECT: usize = 2;
/// The maximum size of all certificates together. Five with RSA keys of 4096 bits take about 10
/// KiB.
const MAX_CHAIN_BYTES: usize = 16 * 1024;

/// The error of a chain that is beyond one of the bounds.
#[derive(Debug, thiserror::Error)]
#[error("the certificate chain is too large")]
pub(crate) struct ChainTooLarge;

impl ChainTooLarge {
    fn into_error(self) -> Error {
        CertificateError::Other(OtherError(Arc::new(self))).into()
    }
}

/// Verifies a chain by `verify`, which gets the intermediates that a path may lead through: those
/// that are readable and have a key that may sign certificates (RFC 5280 §4.2.1.3).
///
/// # Errors
///
/// That of `verify`, or [`ChainTooLarge`] before it is called.
pub(crate) fn verify_bounded<T>(
    end_entity: &CertificateDer<'_>,
    intermediates: &[CertificateDer<'_>],
    verify: impl FnOnce(&[CertificateDer<'_>]) -> Result<T, Error>,
) -> Result<T, Error> {
    let bytes = intermediates.iter().fold(end_entity.len(), |sum, one| sum.saturating_add(one.len()));
    if intermediates.len() > MAX_INTERMEDIATES || bytes > MAX_CHAIN_BYTES {
        return Err(ChainTooLarge.into_error());
    }
    let mut authorities = Vec::with_capacity(intermediates.len());
    let mut subjects = Vec::with_capacity(intermediates.len());
    for intermediate in intermediates {
        let Ok((_, parsed)) = X509Certificate::from_der(intermediate) else { continue };
        let subject = parsed.tbs_certificate.subject.as_raw();
        if subjects.iter().filter(|other| **other == subject).count() >= MAX_SAME_SUBJECT {
            return Err(ChainTooLarge.into_error());
        }
        subjects.push(subject);
        let usage = parsed.key_usage();
        if usage.is_ok_and(|usage| usage.is_none_or(|usage| usage.value.key_cert_sign())) {
            authorities.push(CertificateDer::from(intermediate.as_ref()));
        }
    }
    verify(&authorities).map_err(|error| match error {
        // A path may exist through one of the certificates that were left out.
        Error::InvalidCertificate(CertificateError::UnknownIssuer)
            if authorities.len() < intermediates.len() =>
        {
            CertificateError::InvalidPurpose.into()
        }
        other => other,
    })
}

/// The methods about signatures of a certificate verifier, by its field `$inner`, which is one too.
macro_rules! forward_signature_methods {
    ($inner:tt) => {
        fn verify_tls12_signature(
            &self,
            message: &[u8],
            certificate: &rustls::pki_types::CertificateDer<'_>,
            signature: &rustls::DigitallySignedStruct,
        ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
            self.$inner.verify_tls12_signature(message, certificate, signature)
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            certificate: &rustls::pki_types::CertificateDer<'_>,
            signature: &rustls::DigitallySignedStruct,
        ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
            self.$inner.verify_tls13_signature(message, certificate, signature)
        }

        fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
            self.$inner.supported_verify_schemes()
        }
    };
}
pub(crate) use forward_signature_methods;

/// Verifies the certificates of servers, within the bounds.
#[derive(Debug)]
struct ServerVerifier(Arc<WebPkiServerVerifier>);

impl ServerCertVerifier for ServerVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        verify_bounded(end_entity, intermediates, |authorities| {
            self.0.verify_server_cert(end_entity, authorities, server_name, ocsp_response, now)
        })
    }

    forward_signature_methods!(0);
}
