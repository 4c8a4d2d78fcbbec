//! Whose signature a card must bear.
//!
//! Not here: verifying it (see `agents::signature`).

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
    /// Whether a card without a good signature is refused. Default: yes.
    pub required: bool,
}

impl CardSignature {
    /// The keys as the file has them now. Blocks.
    ///
    /// # Errors
    ///
    /// What is wrong with the file, with its name.
    pub fn read_again(&self) -> Result<JwkSet, String> {
        card_keys(&self.file)
    }
}
