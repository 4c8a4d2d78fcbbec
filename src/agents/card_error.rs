//! The reasons for which an agent has no usable card.

use super::interface::UntrustedInterface;
use crate::a2a::CardError;
use crate::auth::ALGORITHMS;
use crate::transport::TransportError;

/// A failure to fetch a card.
#[derive(Debug, thiserror::Error)]
pub enum CardFetchError {
    /// The agent does not respond.
    #[error("cannot be reached: {0}")]
    Transport(#[from] TransportError),
    /// The response is not a card.
    #[error("GET {0} answered with HTTP {1}")]
    Status(String, u16),
    /// The card cannot be used.
    #[error("{0}")]
    Card(#[from] CardError),
    /// The card names an address to which the gateway must not connect.
    #[error("{0}")]
    Distrusted(#[from] UntrustedInterface),
    /// The card is not signed by the required key.
    #[error("{0}; the operator demands a signature (signature.required)")]
    Unsigned(#[from] CardSignatureError),
    /// The file cannot be read.
    #[error("cannot read {0}: {1}")]
    File(String, std::io::Error),
    /// A setting of this agent cannot be used.
    #[error("{0}")]
    Setting(String),
}

/// The reason for which a card is not trusted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CardSignatureError {
    /// It has no signature.
    #[error("the card is not signed")]
    None,
    /// A signature is not one that is read.
    #[error("the card's signature cannot be read: {0}")]
    Unreadable(&'static str),
    /// Its algorithm is not accepted.
    #[error("the card is signed by {0:?}; only {ALGORITHMS} count, each for its own kind of key")]
    Algorithm(String),
    /// None of the configured keys has that id.
    #[error("the card is signed by the key {0:?}, which is not in signature.keys")]
    UnknownKey(String),
    /// The key's signature is for other bytes.
    #[error("the signature by the key {0:?} does not fit the card: one of them was changed")]
    Wrong(String),
}
