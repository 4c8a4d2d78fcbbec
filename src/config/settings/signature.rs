//! Whose signature a card must bear.
//!
//! Not here: verifying it (see `agents::signature`).

use jsonwebtoken::jwk::JwkSet;

/// The keys by which cards are signed.
#[derive(Debug, Clone, PartialEq)]
pub struct CardSignature {
    /// Public keys; each has an id and can be used.
    pub keys: JwkSet,
    /// Whether a card without a good signature is refused. Default: yes.
    pub required: bool,
}
