//! Keys that must have signed a card.
//!
//! See also `agents::card_signature` for verification.

use std::path::PathBuf;

use jsonwebtoken::jwk::JwkSet;

use crate::config::jwks::card_keys;

/// The keys by which cards are signed.
#[derive(Debug, Clone, PartialEq)]
pub struct CardSignature {
    /// Public keys; each has an id and can be used.
    pub keys: JwkSet,
    /// The file that they come from.
    pub file: PathBuf,
    /// True if a card without a valid signature is rejected. Default: true.
    pub required: bool,
}

impl CardSignature {
    /// Reads the keys from the file again. Blocks.
    ///
    /// # Errors
    ///
    /// The defect of the file, with its name.
    pub fn read_again(&self) -> Result<JwkSet, String> {
        card_keys(&self.file)
    }
}
