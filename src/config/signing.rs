//! Private keys that sign JWTs: the algorithm of each, and the signature itself.
//!
//! By ring, which rustls uses as well. See also `auth::outbound` for the claims.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::Algorithm;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair,
    RSA_PKCS1_SHA256, RsaKeyPair,
};
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject as _;
use serde::Serialize;

use super::Pem;

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
