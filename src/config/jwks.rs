//! Keys of a JWKS: their file, the usable ones, and their algorithms.
//!
//! See also `auth::jwks` for verification.

use std::path::Path;

use jsonwebtoken::Algorithm;
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, JwkSet, KeyOperations, PublicKeyUse};

use super::resolve;

/// Largest file of keys, in bytes.
const FILE: usize = 1 << 20;

/// Returns the text of a file of keys. Blocks.
///
/// # Errors
///
/// The reason for which it cannot be read, with its name.
pub fn key_file(path: &Path) -> Result<String, String> {
    resolve::text(path, FILE)
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
pub fn key_algorithms(jwk: &Jwk) -> Result<Vec<Algorithm>, &'static str> {
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
