//! PEM texts and keys in the configuration: found, read and verified. Keys are the public ones of a
//! JWKS with their algorithms, and private ones that sign JWTs.
//!
//! See also `certificate` for the content.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::Algorithm;
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, JwkSet, KeyOperations, PublicKeyUse};
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair,
    RSA_PKCS1_SHA256, RsaKeyPair,
};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use super::forms::{Form, KeyForm};
use super::reference::{Secret, Template};
use super::resolve;
use super::resolve::ResolveContext;
use super::yaml::Location;

/// Largest PEM file, in bytes. The bundle of all public roots has 0.25 MiB, the revocation list of
/// a large authority some more.
const PEM_FILE: usize = 16 << 20;

/// Certificates or a private key in PEM. Kept like a secret, as it may be one.
#[derive(Debug, Clone, PartialEq)]
pub struct Pem {
    path: Option<PathBuf>,
    text: Secret,
}

impl Pem {
    /// Returns a PEM text that is in no file.
    pub fn inline(text: impl Into<String>) -> Self {
        Self { path: None, text: Secret::new(text) }
    }

    /// Returns the file without its text; the text itself, if it is in no file.
    pub(super) fn source(&self) -> Self {
        let text = if self.path.is_some() { Secret::new("") } else { self.text.clone() };
        Self { path: self.path.clone(), text }
    }

    /// Returns the text of a file; the path is kept so that the file can be read again when it
    /// changes.
    pub fn from_file(path: impl Into<PathBuf>, text: impl Into<String>) -> Self {
        Self { path: Some(path.into()), text: Secret::new(text) }
    }

    /// Returns the file, if the text came from one.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Reads the file again; a text that is in no file stays as it is.
    ///
    /// # Errors
    ///
    /// The defect of the file, with its name.
    pub fn read_again(&self) -> Result<Self, String> {
        let Some(path) = &self.path else { return Ok(self.clone()) };
        Ok(Self::from_file(path, text(path)?))
    }

    /// Returns the PEM text as it was read.
    pub fn expose(&self) -> &str {
        self.text.expose()
    }
}

/// A PEM text with certain content, or the path of a file that holds one.
macro_rules! pem_form {
    ($($name:ident: $kind:expr),+) => {$(
        #[derive(Clone, Deserialize)]
        #[serde(transparent)]
        pub(super) struct $name(Template);

        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self(Template::new(text))
            }
        }

        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                "Pem".into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({
                    "description": "The path of a PEM file, or the PEM text itself (it begins with `-----BEGIN`). \
                        References are accepted.",
                    "type": "string",
                })
            }
        }

        impl KeyForm for $name {
            fn describe() -> String {
                "PEM ●".to_owned()
            }
        }

        impl Form<Pem> for $name {
            fn resolve(self, place: &Location, context: &mut ResolveContext<'_>) -> Option<Pem> {
                read(self.0, place, $kind, context)
            }
        }
    )+};
}
pem_form!(CertificatePem: PemKind::Certificates, KeyPem: PemKind::Key, CrlPem: PemKind::RevocationLists);

/// Required content of a PEM text.
#[derive(Clone, Copy)]
enum PemKind {
    Certificates,
    Key,
    /// The reader of the list reports its defects.
    RevocationLists,
}

/// Returns the text of a PEM file, or its defect.
pub(super) fn text(path: &Path) -> Result<String, String> {
    resolve::text(path, PEM_FILE)
}

/// Returns a certificate and its key, if they belong together. `place` is that of the certificate.
pub(super) fn pair(
    certificate: Option<Pem>,
    key: Option<Pem>,
    place: &Location,
    context: &mut ResolveContext<'_>,
) -> Option<(Pem, Pem)> {
    let (certificate, key) = certificate.zip(key)?;
    match belongs(&certificate, &key) {
        Ok(()) => Some((certificate, key)),
        Err(problem) => context.report_conflict(place, problem),
    }
}

fn belongs(certificate: &Pem, key: &Pem) -> Result<(), String> {
    let chain: Vec<_> = CertificateDer::pem_slice_iter(certificate.expose().as_bytes())
        .collect::<Result<_, _>>()
        .map_err(|error| format!("is not a certificate in PEM: {error}"))?;
    let key = PrivateKeyDer::from_pem_slice(key.expose().as_bytes())
        .map_err(|_| "its key is not a private key in PEM".to_owned())?;
    let provider = rustls::crypto::ring::default_provider();
    match rustls::sign::CertifiedKey::from_der(chain, key, &provider) {
        Ok(_) => Ok(()),
        Err(rustls::Error::InconsistentKeys(_)) => Err("does not belong to the key beside it".to_owned()),
        Err(rustls::Error::InvalidCertificate(error)) => Err(format!("is not a certificate in PEM: {error}")),
        Err(error) => Err(format!("cannot be used with the key beside it: {error}")),
    }
}

/// Reads a PEM text and verifies its content. Returns `None` for wrong ones.
fn read(
    template: Template,
    place: &Location,
    holds: PemKind,
    context: &mut ResolveContext<'_>,
) -> Option<Pem> {
    let text = template.expand(context, place)?;
    let text = text.expose();
    let pem = if text.trim_start().starts_with("-----BEGIN") {
        Pem::inline(text)
    } else if text.len() > 4096 || text.contains(['\n', '\0']) {
        return context.report_conflict(place, "is neither a path nor PEM (PEM begins with -----BEGIN)");
    } else {
        let path = context.path(text);
        match self::text(&path) {
            Ok(text) => Pem::from_file(path, text),
            Err(problem) => return context.report_conflict(place, problem),
        }
    };
    match check(&pem, holds) {
        Ok(()) => Some(pem),
        Err(problem) => context.report_conflict(place, problem),
    }
}

fn check(pem: &Pem, holds: PemKind) -> Result<(), String> {
    let bytes = pem.expose().as_bytes();
    match holds {
        PemKind::RevocationLists => Ok(()),
        PemKind::Key => match PrivateKeyDer::from_pem_slice(bytes) {
            Ok(_) => Ok(()),
            // The parser's own message may quote lines of the key.
            Err(_) => {
                Err("holds no private key in PEM (PKCS#8, PKCS#1 or SEC1, without a passphrase)".to_owned())
            }
        },
        PemKind::Certificates => {
            let mut found = 0_usize;
            for certificate in CertificateDer::pem_slice_iter(bytes) {
                let certificate = certificate.map_err(|_| "is not PEM".to_owned())?;
                rustls::server::ParsedCertificate::try_from(&certificate)
                    .map_err(|error| format!("holds a certificate that cannot be read: {error}"))?;
                found += 1;
            }
            if found == 0 { Err("holds no certificate in PEM".to_owned()) } else { Ok(()) }
        }
    }
}

/// Largest file of keys, in bytes.
pub(super) const MAX_KEY_FILE_BYTES: usize = 1 << 20;

/// Returns the text of a file of keys. Blocks.
///
/// # Errors
///
/// The reason for which it cannot be read, with its name.
pub(crate) fn key_file(path: &Path) -> Result<String, String> {
    resolve::text(path, MAX_KEY_FILE_BYTES)
}

/// Returns the keys of a file by which cards are signed, each of which has an id and can be used.
/// Blocks.
///
/// # Errors
///
/// The defect of the file, with its name.
pub(super) fn card_keys(path: &Path) -> Result<JwkSet, String> {
    let (text, shown) = (key_file(path)?, path.display());
    let set: JwkSet = serde_json::from_str(&text).map_err(|error| {
        format!("{shown} is no JWKS that can be used: {error} (write {{\"keys\": [...]}})")
    })?;
    if set.keys.is_empty() {
        return Err(format!("{shown} holds no key"));
    }
    for (at, key) in set.keys.iter().enumerate() {
        if key.common.key_id.as_deref().unwrap_or_default().is_empty() {
            return Err(format!("{shown}: keys[{at}] has no kid (cards name their key by it)"));
        }
        key_algorithms(key).map_err(|problem| format!("{shown}: keys[{at}] {problem}"))?;
    }
    Ok(set)
}

/// Returns the algorithms that a key verifies by: those of its kind, or the one of them that it
/// names.
///
/// # Errors
///
/// The reason for which it cannot be used, as the end of a sentence about it.
pub(crate) fn key_algorithms(jwk: &Jwk) -> Result<Vec<Algorithm>, &'static str> {
    if jwk.common.public_key_use.as_ref().is_some_and(|used| *used != PublicKeyUse::Signature) {
        return Err("is not for signatures (its use is another)");
    }
    // RFC 7517 §4.3: the key is for nothing that is not listed.
    if jwk.common.key_operations.as_ref().is_some_and(|all| !all.contains(&KeyOperations::Verify)) {
        return Err("is not for verifying (its key_ops are others)");
    }
    let all = of_kind(jwk)?;
    let Some(named) = jwk.common.key_algorithm else { return Ok(all.to_vec()) };
    match named.try_into() {
        Ok(only) if all.contains(&only) => Ok(vec![only]),
        _ => Err("is not for a signature of its kind (its alg is another)"),
    }
}

fn of_kind(jwk: &Jwk) -> Result<&'static [Algorithm], &'static str> {
    use Algorithm::{ES256, ES384, EdDSA, PS256, PS384, PS512, RS256, RS384, RS512};
    match &jwk.algorithm {
        AlgorithmParameters::EllipticCurve(key) => match key.curve {
            EllipticCurve::P256 => Ok(&[ES256]),
            EllipticCurve::P384 => Ok(&[ES384]),
            _ => Err("is on a curve that is not used (P-256 and P-384 are)"),
        },
        AlgorithmParameters::OctetKeyPair(key) if key.curve == EllipticCurve::Ed25519 => Ok(&[EdDSA]),
        AlgorithmParameters::OctetKeyPair(_) => Err("is on a curve that is not used (Ed25519 is)"),
        AlgorithmParameters::RSA(_) => Ok(&[RS256, RS384, RS512, PS256, PS384, PS512]),
        AlgorithmParameters::OctetKey(_) => Err("is a shared secret, not a public key"),
        _ => Err("is of a kind that is not used (EC, OKP and RSA are)"),
    }
}

/// A key, and the algorithm that it signs with.
pub(crate) struct SigningKey {
    /// RS256, ES256, ES384 or EdDSA.
    algorithm: Algorithm,
    key: KeyPair,
}

enum KeyPair {
    Ecdsa(EcdsaKeyPair),
    Ed25519(Ed25519KeyPair),
    Rsa(RsaKeyPair),
}

/// The header of a JWT (RFC 7519 §5).
#[derive(Serialize)]
struct AssertionHeader<'a> {
    typ: &'static str,
    alg: Algorithm,
    #[serde(skip_serializing_if = "Option::is_none")]
    kid: Option<&'a str>,
}

/// Parses a key; `None` if it is none of RSA, P-256, P-384 and Ed25519.
pub(crate) fn signing_key(pem: &Pem) -> Option<SigningKey> {
    let key = PrivateKeyDer::from_pem_slice(pem.expose().as_bytes()).ok()?;
    let (algorithm, key) = match &key {
        PrivateKeyDer::Pkcs1(key) => {
            (Algorithm::RS256, KeyPair::Rsa(RsaKeyPair::from_der(key.secret_pkcs1_der()).ok()?))
        }
        PrivateKeyDer::Pkcs8(key) => pkcs8(key.secret_pkcs8_der())?,
        _ => return None,
    };
    Some(SigningKey { algorithm, key })
}

/// Parses a key with the parser of each kind in turn: only the right one succeeds.
fn pkcs8(der: &[u8]) -> Option<(Algorithm, KeyPair)> {
    let random = SystemRandom::new();
    let ecdsa = |algorithm, curve| {
        EcdsaKeyPair::from_pkcs8(curve, der, &random).ok().map(|key| (algorithm, KeyPair::Ecdsa(key)))
    };
    ecdsa(Algorithm::ES256, &ECDSA_P256_SHA256_FIXED_SIGNING)
        .or_else(|| ecdsa(Algorithm::ES384, &ECDSA_P384_SHA384_FIXED_SIGNING))
        .or_else(|| {
            // OpenSSL writes these keys without their public half.
            let key = Ed25519KeyPair::from_pkcs8_maybe_unchecked(der).ok()?;
            Some((Algorithm::EdDSA, KeyPair::Ed25519(key)))
        })
        .or_else(|| RsaKeyPair::from_pkcs8(der).ok().map(|key| (Algorithm::RS256, KeyPair::Rsa(key))))
}

impl SigningKey {
    /// Returns a JWT with these claims; `None` if they cannot be written or the key cannot sign.
    pub(crate) fn jwt(&self, key_id: Option<&str>, claims: &impl Serialize) -> Option<String> {
        let header = AssertionHeader { typ: "JWT", alg: self.algorithm, kid: key_id };
        let header = URL_SAFE_NO_PAD.encode(serde_json::to_vec(&header).ok()?);
        let claims = URL_SAFE_NO_PAD.encode(serde_json::to_vec(claims).ok()?);
        let message = format!("{header}.{claims}");
        let signature = URL_SAFE_NO_PAD.encode(self.sign(message.as_bytes())?);
        Some(format!("{message}.{signature}"))
    }

    fn sign(&self, message: &[u8]) -> Option<Vec<u8>> {
        let random = SystemRandom::new();
        match &self.key {
            KeyPair::Ecdsa(key) => Some(key.sign(&random, message).ok()?.as_ref().to_vec()),
            KeyPair::Ed25519(key) => Some(key.sign(message).as_ref().to_vec()),
            KeyPair::Rsa(key) => {
                let mut signature = vec![0; key.public().modulus_len()];
                key.sign(&RSA_PKCS1_SHA256, &random, message, &mut signature).ok()?;
                Some(signature)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_knows_its_algorithm() {
        let new = |curve| rcgen::KeyPair::generate_for(curve).unwrap().serialize_pem();
        for (pem, algorithm) in [
            (new(&rcgen::PKCS_ECDSA_P256_SHA256), Algorithm::ES256),
            (new(&rcgen::PKCS_ECDSA_P384_SHA384), Algorithm::ES384),
            (new(&rcgen::PKCS_ED25519), Algorithm::EdDSA),
            (include_str!("../../tests/support/rsa.key.pem").to_owned(), Algorithm::RS256),
        ] {
            assert_eq!(signing_key(&Pem::inline(pem)).unwrap().algorithm, algorithm);
        }
        for junk in ["-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", "junk"] {
            assert!(signing_key(&Pem::inline(junk)).is_none());
        }
    }
}
