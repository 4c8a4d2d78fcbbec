//! Public keys from a JWKS that the operator configured, and whether a signature is by one of them.
//!
//! Each key verifies by its own algorithms only, so that no header can choose another one for it; `none` and shared secrets are no
//! algorithms here. Not here: reading the file (see `config`), fetching keys (nothing of the kind), what was signed.

use std::fmt;

use jsonwebtoken::jwk::{Jwk, JwkSet, KeyAlgorithm};
use jsonwebtoken::{Algorithm, DecodingKey};

use crate::config::key_algorithms;

/// What a signature may be made with, for people.
pub const ALGORITHMS: &str = "ES256, ES384, EdDSA, RS256 or PS256";

/// Public keys by their ids.
#[derive(Clone)]
pub struct Keys(Vec<Key>);

#[derive(Clone)]
struct Key {
    id: String,
    algorithms: &'static [Algorithm],
    /// The one that the key itself insists on.
    only: Option<KeyAlgorithm>,
    key: DecodingKey,
}

/// Why a signature is not believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unproven {
    /// Its algorithm is not accepted at all.
    Algorithm,
    /// No key has its id.
    UnknownKey,
    /// The key of its id verifies by other algorithms.
    OtherAlgorithm,
    /// It does not fit the bytes.
    Wrong,
}

impl Keys {
    /// Takes the keys of a set.
    ///
    /// # Errors
    ///
    /// The first key that cannot be used, and why.
    pub fn new(set: &JwkSet) -> Result<Self, String> {
        let keys = set.keys.iter().enumerate();
        let key = |(at, jwk)| Key::new(jwk).map_err(|problem| format!("keys[{at}] {problem}"));
        keys.map(key).collect::<Result<_, _>>().map(Self)
    }

    /// Verifies a signature (base64url) of these bytes.
    ///
    /// # Errors
    ///
    /// [`Unproven`] says why it is not believed.
    pub fn verify(&self, id: &str, algorithm: &str, signed: &[u8], signature: &str) -> Result<(), Unproven> {
        let algorithm = accepted(algorithm).ok_or(Unproven::Algorithm)?;
        let mut named = self.0.iter().filter(|key| key.id == id).peekable();
        if named.peek().is_none() {
            return Err(Unproven::UnknownKey);
        }
        let mut fitting = named.filter(|key| key.verifies_by(algorithm)).peekable();
        if fitting.peek().is_none() {
            return Err(Unproven::OtherAlgorithm);
        }
        let is_by = |key: &Key| jsonwebtoken::crypto::verify(signature, signed, &key.key, algorithm);
        if fitting.any(|key| is_by(key).unwrap_or(false)) { Ok(()) } else { Err(Unproven::Wrong) }
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|key| &key.id)).finish()
    }
}

impl Key {
    fn new(jwk: &Jwk) -> Result<Self, &'static str> {
        let algorithms = key_algorithms(jwk)?;
        let key = DecodingKey::from_jwk(jwk).map_err(|_| "is no key (its numbers cannot be read)")?;
        let id = jwk.common.key_id.clone().unwrap_or_default();
        Ok(Self { id, algorithms, only: jwk.common.key_algorithm, key })
    }

    fn verifies_by(&self, algorithm: Algorithm) -> bool {
        self.algorithms.contains(&algorithm)
            && self.only.is_none_or(|only| accepted(&only.to_string()) == Some(algorithm))
    }
}

fn accepted(algorithm: &str) -> Option<Algorithm> {
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

    fn keys() -> Keys {
        Keys::new(&serde_json::from_str(KEYS).unwrap()).unwrap()
    }

    #[test]
    fn an_algorithm_belongs_to_its_kind_of_key() {
        let keys = keys();
        for (id, algorithm, expected) in [
            ("key-ES256", "none", Unproven::Algorithm),
            ("key-ES256", "", Unproven::Algorithm),
            ("key-RS256", "HS256", Unproven::Algorithm),
            ("key-RS256", "RS512", Unproven::Algorithm),
            ("key-ES256", "es256", Unproven::Algorithm),
            ("key-ES256", "RS256", Unproven::OtherAlgorithm),
            ("key-ES256", "ES384", Unproven::OtherAlgorithm),
            ("key-EdDSA", "ES256", Unproven::OtherAlgorithm),
            ("key-none", "ES256", Unproven::UnknownKey),
            ("", "ES256", Unproven::UnknownKey),
            ("key-ES256", "ES256", Unproven::Wrong),
            ("key-RS256", "PS256", Unproven::Wrong),
        ] {
            for signature in ["", "AAAA", "not base64!"] {
                assert_eq!(keys.verify(id, algorithm, b"x", signature), Err(expected), "{id} {algorithm}");
            }
        }
    }

    #[test]
    fn a_key_that_names_its_algorithm_verifies_by_no_other() {
        let set = KEYS.replace("\"kid\": \"key-RS256\"", "\"alg\": \"RS256\", \"kid\": \"key-RS256\"");
        let keys = Keys::new(&serde_json::from_str(&set).unwrap()).unwrap();
        assert_eq!(keys.verify("key-RS256", "PS256", b"x", "AAAA"), Err(Unproven::OtherAlgorithm));
        assert_eq!(keys.verify("key-RS256", "RS256", b"x", "AAAA"), Err(Unproven::Wrong));
    }
}
