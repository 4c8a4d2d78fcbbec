//! Public keys of a JWKS, and verification by them: of cards, with keys from the configuration, and
//! of tokens.
//!
//! Each key verifies by its own algorithms only, so that no header can choose another one for it;
//! `none` and shared secrets are no algorithms here. By ring, which rustls uses as well. See
//! `config` and `inbound::issuer` for the origin of a set.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::jwk::{Jwk, JwkSet};
use jsonwebtoken::{Algorithm, DecodingKey, DecodingKeyKind};
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256,
    RSA_PKCS1_2048_8192_SHA384, RSA_PKCS1_2048_8192_SHA512, RSA_PSS_2048_8192_SHA256,
    RSA_PSS_2048_8192_SHA384, RSA_PSS_2048_8192_SHA512, RsaParameters, RsaPublicKeyComponents,
    UnparsedPublicKey, VerificationAlgorithm,
};
use serde_json::{Map, Value};

use crate::config::key_algorithms;

/// The algorithms for cards, as text for messages.
pub(crate) const ALGORITHMS: &str = "ES256, ES384, EdDSA, RS256 or PS256";
/// The maximum number of keys that are read of an issuer's set.
const MAX_KEYS: usize = 64;

/// Public keys by their ids.
#[derive(Clone, Default)]
pub(crate) struct KeySet(Vec<VerificationKey>);

#[derive(Clone)]
struct VerificationKey {
    id: Option<String>,
    algorithms: Vec<Algorithm>,
    key: DecodingKey,
}

/// The reason for which a signature is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SignatureError {
    /// Its algorithm is not accepted at all.
    Algorithm,
    /// No key has its id.
    UnknownKey,
    /// The key of its id verifies by other algorithms.
    OtherAlgorithm,
    /// It does not fit the bytes.
    Wrong,
}

/// Bytes and the claimed signature of them.
#[derive(Clone, Copy)]
pub(super) struct SignedMessage<'a> {
    pub(super) message: &'a [u8],
    pub(super) signature: &'a [u8],
}

impl KeySet {
    /// Creates a key set from a configured JWKS.
    ///
    /// # Errors
    ///
    /// The first key that cannot be used, and the reason.
    pub(crate) fn new(set: &JwkSet) -> Result<Self, String> {
        let keys = set.keys.iter().enumerate();
        let key = |(at, jwk)| VerificationKey::new(jwk).map_err(|problem| format!("keys[{at}] {problem}"));
        keys.map(key).collect::<Result<_, _>>().map(Self)
    }

    /// Creates a key set from the usable keys of a JWKS; others, and those of unknown kinds, are
    /// skipped (RFC 7517 §5).
    pub(super) fn usable(set: &Map<String, Value>) -> Self {
        let all = set.get("keys").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let key = |value: &Value| VerificationKey::new(&serde_json::from_value(value.clone()).ok()?).ok();
        Self(all.iter().take(MAX_KEYS).filter_map(key).collect())
    }

    /// Returns the number of keys.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns true if one of the matching keys made this signature: those of this id, or all if
    /// none is named. `None`: no key matches.
    pub(super) fn have_signed(
        &self,
        id: Option<&str>,
        algorithm: Algorithm,
        signed: SignedMessage<'_>,
    ) -> Option<bool> {
        let mut fitting = self.matching(id, algorithm).peekable();
        fitting.peek()?;
        Some(fitting.any(|key| has_signed(key, algorithm, signed)))
    }

    fn matching(&self, id: Option<&str>, algorithm: Algorithm) -> impl Iterator<Item = &DecodingKey> {
        let named = self.0.iter().filter(move |key| id.is_none_or(|id| key.id.as_deref() == Some(id)));
        named.filter(move |key| key.algorithms.contains(&algorithm)).map(|key| &key.key)
    }

    /// Verifies a signature (base64url) of these bytes.
    ///
    /// # Errors
    ///
    /// [`SignatureError`] names the reason.
    pub(crate) fn verify(
        &self,
        id: &str,
        algorithm: &str,
        message: &[u8],
        signature: &str,
    ) -> Result<(), SignatureError> {
        let algorithm = allowed_algorithms(algorithm).ok_or(SignatureError::Algorithm)?;
        if !self.0.iter().any(|key| key.id.as_deref() == Some(id)) {
            return Err(SignatureError::UnknownKey);
        }
        // A signature that cannot be decoded is that of no key.
        let signature = URL_SAFE_NO_PAD.decode(signature).unwrap_or_default();
        match self.have_signed(Some(id), algorithm, SignedMessage { message, signature: &signature }) {
            None => Err(SignatureError::OtherAlgorithm),
            Some(false) => Err(SignatureError::Wrong),
            Some(true) => Ok(()),
        }
    }
}

impl fmt::Debug for KeySet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|key| &key.id)).finish()
    }
}

impl VerificationKey {
    fn new(jwk: &Jwk) -> Result<Self, &'static str> {
        let algorithms = key_algorithms(jwk)?;
        let key = DecodingKey::from_jwk(jwk).map_err(|_| "is no key (its numbers cannot be read)")?;
        Ok(Self { id: jwk.common.key_id.clone(), algorithms, key })
    }
}

/// Returns true if this key made this signature, by this algorithm, which is one of its own.
fn has_signed(key: &DecodingKey, algorithm: Algorithm, signed: SignedMessage<'_>) -> bool {
    let SignedMessage { message, signature } = signed;
    match key.kind() {
        DecodingKeyKind::RsaModulusExponent { n, e } => rsa(algorithm)
            .is_some_and(|how| RsaPublicKeyComponents { n, e }.verify(how, message, signature).is_ok()),
        DecodingKeyKind::SecretOrDer(point) => curve(algorithm)
            .is_some_and(|how| UnparsedPublicKey::new(how, point).verify(message, signature).is_ok()),
    }
}

fn curve(algorithm: Algorithm) -> Option<&'static dyn VerificationAlgorithm> {
    match algorithm {
        Algorithm::ES256 => Some(&ECDSA_P256_SHA256_FIXED),
        Algorithm::ES384 => Some(&ECDSA_P384_SHA384_FIXED),
        Algorithm::EdDSA => Some(&ED25519),
        _ => None,
    }
}

fn rsa(algorithm: Algorithm) -> Option<&'static RsaParameters> {
    match algorithm {
        Algorithm::RS256 => Some(&RSA_PKCS1_2048_8192_SHA256),
        Algorithm::RS384 => Some(&RSA_PKCS1_2048_8192_SHA384),
        Algorithm::RS512 => Some(&RSA_PKCS1_2048_8192_SHA512),
        Algorithm::PS256 => Some(&RSA_PSS_2048_8192_SHA256),
        Algorithm::PS384 => Some(&RSA_PSS_2048_8192_SHA384),
        Algorithm::PS512 => Some(&RSA_PSS_2048_8192_SHA512),
        _ => None,
    }
}

/// Returns the algorithm of a card's signature, if it is allowed.
fn allowed_algorithms(algorithm: &str) -> Option<Algorithm> {
    match algorithm {
        "ES256" => Some(Algorithm::ES256),
        "ES384" => Some(Algorithm::ES384),
        "EdDSA" => Some(Algorithm::EdDSA),
        "RS256" => Some(Algorithm::RS256),
        "PS256" => Some(Algorithm::PS256),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: &str = include_str!("../../tests/golden/signatures/keys.jwks");

    fn keys() -> KeySet {
        KeySet::new(&serde_json::from_str(KEYS).unwrap()).unwrap()
    }

    #[test]
    fn an_algorithm_belongs_to_its_kind_of_key() {
        let keys = keys();
        for (id, algorithm, expected) in [
            ("key-ES256", "none", SignatureError::Algorithm),
            ("key-ES256", "", SignatureError::Algorithm),
            ("key-RS256", "HS256", SignatureError::Algorithm),
            ("key-RS256", "RS512", SignatureError::Algorithm),
            ("key-ES256", "es256", SignatureError::Algorithm),
            ("key-ES256", "RS256", SignatureError::OtherAlgorithm),
            ("key-ES256", "ES384", SignatureError::OtherAlgorithm),
            ("key-EdDSA", "ES256", SignatureError::OtherAlgorithm),
            ("key-none", "ES256", SignatureError::UnknownKey),
            ("", "ES256", SignatureError::UnknownKey),
            ("key-ES256", "ES256", SignatureError::Wrong),
            ("key-RS256", "PS256", SignatureError::Wrong),
        ] {
            for signature in ["", "AAAA", "not base64!"] {
                assert_eq!(keys.verify(id, algorithm, b"x", signature), Err(expected), "{id} {algorithm}");
            }
        }
    }

    #[test]
    fn a_key_that_names_its_algorithm_verifies_by_no_other() {
        let set = KEYS.replace("\"kid\": \"key-RS256\"", "\"alg\": \"RS256\", \"kid\": \"key-RS256\"");
        let keys = KeySet::new(&serde_json::from_str(&set).unwrap()).unwrap();
        assert_eq!(keys.verify("key-RS256", "PS256", b"x", "AAAA"), Err(SignatureError::OtherAlgorithm));
        assert_eq!(keys.verify("key-RS256", "RS256", b"x", "AAAA"), Err(SignatureError::Wrong));
    }

    #[test]
    fn of_others_sets_what_cannot_be_used_is_passed_over() {
        use serde_json::json;
        let rsa = json!({ "kty": "RSA", "n": "AQAB", "e": "AQAB", "kid": "a" });
        let with = |name: &str, value: &str| {
            let mut key = rsa.clone();
            key[name] = json!(value);
            key
        };
        let set = json!({ "keys": [
            rsa, with("use", "enc"), with("alg", "RS256"), with("alg", "RSA-OAEP"), with("alg", "ES256"), with("kty", "AKP"),
            { "kty": "oct", "k": "c2VjcmV0" }, 7,
        ]});
        let keys = KeySet::usable(set.as_object().unwrap());
        let count = |id, algorithm| keys.matching(id, algorithm).count();
        assert_eq!((count(None, Algorithm::RS256), count(None, Algorithm::PS512)), (2, 1));
        assert_eq!((count(Some("a"), Algorithm::RS256), count(Some("b"), Algorithm::RS256)), (2, 0));
        assert_eq!((keys.len(), count(None, Algorithm::ES256), count(None, Algorithm::HS256)), (2, 0, 0));
    }
}
