//! Verifies the certificate chain that a client presents.
//!
//! Adds to the verifier of rustls the bounds of `transport`, and checks that webpki leaves out: the
//! key usage of the client's own certificate, and the name constraints of its authorities on its
//! common name.

use std::collections::HashMap;
use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};
use x509_parser::der_parser::asn1_rs::Any;
use x509_parser::oid_registry::OID_X509_EXT_NAME_CONSTRAINTS;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::transport::verify_bounded;

/// The error of a client certificate that cannot be read.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the client certificate cannot be read")]
pub struct UnreadableCertificate;

/// Verifies client certificates. Wraps the verifier of rustls with the checks of this module.
#[derive(Debug)]
pub struct ChainVerifier {
    inner: Arc<dyn ClientCertVerifier>,
    /// The constraints of the trusted authorities that have some, by subject.
    root_constraints: HashMap<Vec<u8>, Vec<DnsConstraints>>,
}

impl ChainVerifier {
    /// Wraps `inner`, which trusts these roots.
    ///
    /// # Errors
    ///
    /// [`UnreadableCertificate`], if a root cannot be read.
    pub fn new(
        inner: Arc<dyn ClientCertVerifier>,
        roots: &[CertificateDer<'_>],
    ) -> Result<Self, UnreadableCertificate> {
        let mut root_constraints: HashMap<_, Vec<_>> = HashMap::new();
        for root in roots {
            let root = parse(root)?;
            if let Some(constraints) = DnsConstraints::of(&root)? {
                let subject = root.subject().as_raw().to_vec();
                root_constraints.entry(subject).or_default().push(constraints);
            }
        }
        Ok(Self { inner, root_constraints })
    }

    /// Returns true if the authorities of a verified chain may name a client by this common name.
    ///
    /// Verification applies name constraints to subject alternative names only. An authority that
    /// is confined to some DNS names names nothing else by a common name. Constraints of every
    /// authority that could be on the path apply.
    pub(super) fn permits_common_name(&self, chain: &[X509Certificate<'_>], name: &str) -> bool {
        let name = name.to_ascii_lowercase();
        chain.iter().enumerate().all(|(at, certificate)| {
            let of_roots = self.root_constraints.get(certificate.issuer().as_raw());
            if !of_roots.into_iter().flatten().all(|constraints| constraints.permit(&name)) {
                return false;
            }
            let own = if at == 0 { Ok(None) } else { DnsConstraints::of(certificate) };
            own.is_ok_and(|own| own.is_none_or(|constraints| constraints.permit(&name)))
        })
    }
}

impl ClientCertVerifier for ChainVerifier {
    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        verify_bounded(end_entity, intermediates, |authorities| {
            if !may_sign_handshakes(end_entity)? {
                return Err(CertificateError::InvalidPurpose.into());
            }
            self.inner.verify_client_cert(end_entity, authorities, now)
        })
    }

    fn offer_client_auth(&self) -> bool {
        self.inner.offer_client_auth()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.inner.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.inner.root_hint_subjects()
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}

/// Returns true if a client may prove by signatures that the key of its certificate is its own (RFC
/// 5280 §4.2.1.3).
fn may_sign_handshakes(certificate: &CertificateDer<'_>) -> Result<bool, Error> {
    let certificate = parse(certificate).map_err(unreadable)?;
    let usage = certificate.key_usage().map_err(unreadable)?;
    Ok(usage.is_none_or(|usage| usage.value.digital_signature()))
}

fn unreadable<T>(_: T) -> Error {
    CertificateError::BadEncoding.into()
}

pub(super) fn parse<'a>(
    certificate: &'a CertificateDer<'_>,
) -> Result<X509Certificate<'a>, UnreadableCertificate> {
    X509Certificate::from_der(certificate).map(|(_, parsed)| parsed).map_err(|_| UnreadableCertificate)
}

/// The DNS names to which an authority is confined (RFC 5280 §4.2.1.10), in lower case.
#[derive(Debug, Default)]
struct DnsConstraints {
    permitted: Vec<String>,
    excluded: Vec<String>,
}

impl DnsConstraints {
    /// Reads those of an authority. Not with x509-parser's own type, which ignores subtrees that it
    /// cannot read.
    fn of(authority: &X509Certificate<'_>) -> Result<Option<Self>, UnreadableCertificate> {
        let extension = authority.get_extension_unique(&OID_X509_EXT_NAME_CONSTRAINTS);
        let Some(extension) = extension.map_err(|_| UnreadableCertificate)? else { return Ok(None) };
        let mut constraints = Self::default();
        let [both] = elements(extension.value)?[..] else { return Err(UnreadableCertificate) };
        for (number, subtrees) in elements(both.1)? {
            let names = match number {
                0 => &mut constraints.permitted,
                1 => &mut constraints.excluded,
                _ => return Err(UnreadableCertificate),
            };
            for (_, subtree) in elements(subtrees)? {
                if let Some((2, name)) = elements(subtree)?.first() {
                    let name = std::str::from_utf8(name).map_err(|_| UnreadableCertificate)?;
                    names.push(name.to_ascii_lowercase());
                }
            }
        }
        Ok(Some(constraints))
    }

    /// Returns true if a name in lower case is permitted.
    fn permit(&self, name: &str) -> bool {
        let is_within = |base: &String| is_within(name.trim_end_matches('.'), base);
        let is_permitted = || is_host(name) && self.permitted.iter().any(is_within);
        !self.excluded.iter().any(is_within) && (self.permitted.is_empty() || is_permitted())
    }
}

/// Splits DER into its elements: the number of the tag and the content of each.
fn elements(mut der: &[u8]) -> Result<Vec<(u32, &[u8])>, UnreadableCertificate> {
    let mut elements = Vec::new();
    while !der.is_empty() {
        let (rest, element) = Any::from_der(der).map_err(|_| UnreadableCertificate)?;
        elements.push((element.tag().0, element.data));
        der = rest;
    }
    Ok(elements)
}

/// Returns true if a name is a constraint's own or below it; a leading dot permits only names
/// below.
fn is_within(name: &str, base: &str) -> bool {
    match name.strip_suffix(base) {
        Some(rest) => rest.is_empty() || rest.ends_with('.') || base.is_empty() || base.starts_with('.'),
        None => false,
    }
}

/// Returns true if a name can be that of a host.
fn is_host(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    name.len() <= 253 && name.split('.').all(|label| !label.is_empty() && label.bytes().all(fits))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constraints_permit_names_within() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        for (permitted, excluded, name, expected) in [
            (&[][..], &[][..], "any name", true),
            (&["a.example"], &[], "a.example", true),
            (&["a.example"], &[], "b.a.example", true),
            (&["a.example"], &[], "ba.example", false),
            (&["a.example"], &[], "example", false),
            (&["a.example", "b.example"], &[], "x.b.example", true),
            (&[".a.example"], &[], "b.a.example", true),
            (&[".a.example"], &[], "a.example", false),
            (&[""], &[], "b.example", true),
            (&[""], &[], "no host", false),
            (&["a.example"], &[], "x/a.example", false),
            (&["a.example"], &[], "*.a.example", false),
            (&["a.example"], &[], "b..a.example", false),
            (&["a.example"], &["b.a.example"], "c.b.a.example", false),
            (&["a.example"], &["b.a.example"], "c.a.example", true),
            (&[], &["a.example"], "x/b.a.example", false),
            (&[], &["a.example"], "a.example.", false),
            (&[], &[""], "b.example", false),
        ] {
            let constraints = DnsConstraints { permitted: names(permitted), excluded: names(excluded) };
            assert_eq!(constraints.permit(name), expected, "{permitted:?} {excluded:?} {name}");
        }
    }

    #[test]
    fn cut_der_is_unreadable() {
        assert_eq!(elements(&[0x30, 2, 0x82, 0]).unwrap().len(), 1);
        for junk in [&[0x30][..], &[0x30, 5, 0], &[0x30, 0, 0x30]] {
            assert!(elements(junk).is_err(), "{junk:?}");
        }
    }
}
