//! Keys of a JWKS file: which of them can be used, and by which algorithms.
//!
//! Not here: the file (see `file::signature`), verifying (see `auth::jwks`).

use jsonwebtoken::Algorithm;
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, PublicKeyUse};

/// The algorithms that a key of this kind verifies by.
///
/// # Errors
///
/// Why it cannot be used, as the end of a sentence about it.
pub fn key_algorithms(jwk: &Jwk) -> Result<&'static [Algorithm], &'static str> {
    if jwk.common.key_id.as_deref().unwrap_or_default().is_empty() {
        return Err("has no kid (cards name their key by it)");
    }
    if jwk.common.public_key_use.as_ref().is_some_and(|used| *used != PublicKeyUse::Signature) {
        return Err("is not for signatures (its use is another)");
    }
    match &jwk.algorithm {
        AlgorithmParameters::EllipticCurve(key) => match key.curve {
            EllipticCurve::P256 => Ok(&[Algorithm::ES256]),
            EllipticCurve::P384 => Ok(&[Algorithm::ES384]),
            EllipticCurve::P521 | EllipticCurve::Ed25519 => {
                Err("is on a curve that is not used (P-256 and P-384 are)")
            }
        },
        AlgorithmParameters::OctetKeyPair(key) if key.curve == EllipticCurve::Ed25519 => {
            Ok(&[Algorithm::EdDSA])
        }
        AlgorithmParameters::OctetKeyPair(_) => Err("is on a curve that is not used (Ed25519 is)"),
        AlgorithmParameters::RSA(_) => Ok(&[Algorithm::RS256, Algorithm::PS256]),
        AlgorithmParameters::OctetKey(_) => Err("is a shared secret, not a public key"),
    }
}
