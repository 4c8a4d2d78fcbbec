//! `signature`, of an agent and of all cards, as written.

use jsonwebtoken::jwk::JwkSet;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::config::place::{Place, Written};
use crate::config::reading::Reading;
use crate::config::{CardSignature, key_algorithms};

/// The most that a file of keys may hold.
const KEYS_FILE: usize = 1 << 20;

/// Whose signature a card must bear.
#[derive(Deserialize, JsonSchema, Default)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "CardSignature", extend("required" = ["keys"]))]
pub(super) struct SignatureFile {
    /// The path of a JWKS file with the public keys that sign cards, each with its `kid`: EC (P-256, P-384), OKP (Ed25519) or RSA.
    keys: Written<String>,
    /// Whether a card without a good signature is refused; otherwise it is used and the operator is told.
    #[schemars(extend("default" = true))]
    required: Written<bool>,
}

impl SignatureFile {
    pub(super) fn resolve(self, section: &Place, reading: &mut Reading<'_>) -> Option<CardSignature> {
        let hint = "write the path of a JWKS file with the public keys that sign the card";
        let (place, written) = reading.required(self.keys, section, "keys", hint)?;
        match keys(&written, reading) {
            Ok(keys) => Some(CardSignature { keys, required: self.required.value().unwrap_or(true) }),
            Err(problem) => reading.refuse(&place, problem),
        }
    }
}

fn keys(written: &str, reading: &Reading<'_>) -> Result<JwkSet, String> {
    let path = reading.path(written);
    let text = reading.file(&path, KEYS_FILE)?;
    let shown = path.display();
    let set: JwkSet = serde_json::from_str(&text).map_err(|error| {
        format!("{shown} is no JWKS that can be used: {error} (write {{\"keys\": [...]}})")
    })?;
    if set.keys.is_empty() {
        return Err(format!("{shown} holds no key"));
    }
    for (at, key) in set.keys.iter().enumerate() {
        key_algorithms(key).map_err(|problem| format!("{shown}: keys[{at}] {problem}"))?;
    }
    Ok(set)
}
