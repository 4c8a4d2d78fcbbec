//! `signature`, of an agent and of all cards, as in the file.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::config::CardSignature;
use crate::config::jwks::card_keys;
use crate::config::resolve::ResolveContext;
use crate::config::spanned::{Location, Spanned};

/// Whose signature a card must bear.
#[derive(Deserialize, JsonSchema, Default)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "CardSignature", extend("required" = ["keys"]))]
pub(super) struct SignatureFile {
    /// The path of a JWKS file with the public keys that sign cards, each with its `kid`: EC (P-256, P-384), OKP (Ed25519) or RSA. Read again when it changes.
    keys: Spanned<String>,
    /// Whether a card without a good signature is refused; otherwise it is used and the operator is told.
    #[schemars(extend("default" = true))]
    required: Spanned<bool>,
}

impl SignatureFile {
    pub(super) fn resolve(
        self,
        section: &Location,
        reading: &mut ResolveContext<'_>,
    ) -> Option<CardSignature> {
        let hint = "write the path of a JWKS file with the public keys that sign the card";
        let (place, written) = reading.required(self.keys, section, "keys", hint)?;
        let file = reading.path(&written);
        match card_keys(&file) {
            Ok(keys) => Some(CardSignature { keys, file, required: self.required.value().unwrap_or(true) }),
            Err(problem) => reading.report_conflict(&place, problem),
        }
    }
}
