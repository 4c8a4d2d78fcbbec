//! Bounds the certificate chain that a peer presents, before a path through it is searched.
//!
//! webpki searches a path to a trusted authority through all certificates that the peer sends. The
//! search takes time that grows with the factorial of their number, and needs no signature of a
//! trusted authority: the peer can be any client of a listener, or any host that a client's webhook
//! names. webpki ignores the key usage of authorities, too.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, DigitallySignedStruct, Error, OtherError, SignatureScheme};
use x509_parser::prelude::{FromDer as _, X509Certificate};

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
pub struct ChainTooLarge;

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
pub fn verify_bounded<T>(
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

/// Verifies the certificates of servers, within the bounds.
#[derive(Debug)]
pub(super) struct ServerVerifier(pub(super) Arc<WebPkiServerVerifier>);

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

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}
