//! Keys of signatures: public ones of a JWKS with their algorithms, and private ones that sign JWTs.
//!
//! Private keys are used by ring, which rustls uses as well. See also `auth::jwks` for verification,
//! and `auth::outbound` for the claims.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::Algorithm;
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, JwkSet, KeyOperations, PublicKeyUse};
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair,
    RSA_PKCS1_SHA256, RsaKeyPair,
};
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject as _;
use serde::Serialize;

use super::{Pem, resolve};

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
