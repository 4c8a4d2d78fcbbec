//! The errors of an HTTP exchange with an agent, with the delivery state of the request.
//!
//! See `fault` for the texts for clients. No message is ever resent by the gateway.

use std::error::Error as _;
use std::io;

use super::address_policy::AddressClass;
use super::connect::BudgetSpentError;
use crate::quota::NoRoomError;

/// The delivery state of a request.
///
/// Only after [`DeliveryState::No`] may a caller send the same message again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeliveryState {
    /// Proven: the agent received nothing of the request.
    No,
    /// The agent may have seen the request, and may have acted on it.
    Maybe,
}

/// The failure of an exchange with an agent.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    /// The request cannot be sent to this target. The gateway's configuration or code is at fault.
    #[error("unusable request or target: {0}")]
    BadUri(&'static str),
    /// The agent's host name has no address.
    #[error("host name does not resolve: {0}")]
    Resolve(#[source] io::Error),
    /// The host has addresses, and none that may be called, because of the party that named it (see
    /// [`AddressPolicy`](super::AddressPolicy)).
    #[error("{host} is {class}, where that name may not lead; if it is right, {remedy}")]
    Refused {
        /// The host, as written.
        host: String,
        /// The class of the first such address.
        class: AddressClass,
        /// The remedy for the operator.
        remedy: &'static str,
    },
    /// No address of the agent accepted a connection.
    #[error("connection refused or unreachable: {0}")]
    Connect(#[source] io::Error),
    /// The process may not open another connection: the limit of open files is reached.
    #[error("no room for another connection (limit of open files)")]
    OpenFiles,
    /// Resolving, connecting and the TLS handshake together took too long.
    #[error("no connection in time")]
    ConnectTimeout,
    /// The TLS handshake failed: certificate, host name, protocol.
    #[error("TLS handshake failed: {0}")]
    Tls(#[source] io::Error),
    /// The request was written and no response header came in time.
    #[error("no response in time")]
    FirstByteTimeout,
    /// No byte of the body came for too long.
    #[error("response fell silent")]
    IdleTimeout,
    /// The whole exchange took too long.
    #[error("exchange took too long")]
    TotalTimeout,
    /// Every connection tried was closed before the request was written to it.
    #[error("connection closed before the request was written: {0}")]
    Unsent(#[source] hyper::Error),
    /// The connection or the HTTP grammar broke after the request was (perhaps partly) written.
    #[error("exchange broke: {0}")]
    Broken(#[source] hyper::Error),
    /// The body ended before its announced end, or is read again after it failed.
    #[error("response ended early")]
    Truncated,
    /// The response is HTTP that the gateway never requested.
    #[error("unasked response: {0}")]
    Unasked(&'static str),
    /// The body is compressed or otherwise encoded, which the request forbade.
    #[error("response has a content or transfer encoding that was not asked for")]
    Encoded,
    /// The response header is longer, or has more lines, than the gateway reads.
    #[error("response header too large")]
    HeaderTooLarge,
    /// The body is longer than the limit of the caller.
    #[error("response body over {limit} bytes")]
    TooLarge {
        /// The limit in bytes.
        limit: usize,
    },
    /// The body comes in so many small chunks that reading it costs too much.
    #[error("response body in too many pieces")]
    TooManyPieces,
    /// There is no room to hold the body.
    #[error("no room for the response body: {0}")]
    NoRoom(#[source] NoRoomError),
}

impl TransportError {
    /// Returns the delivery state of the request.
    #[must_use]
    pub fn sent(&self) -> DeliveryState {
        match self {
            Self::BadUri(_)
            | Self::Resolve(_)
            | Self::Refused { .. }
            | Self::Connect(_)
            | Self::OpenFiles
            | Self::ConnectTimeout
            | Self::Tls(_)
            | Self::Unsent(_) => DeliveryState::No,
            Self::FirstByteTimeout
            | Self::IdleTimeout
            | Self::TotalTimeout
            | Self::Broken(_)
            | Self::Truncated
            | Self::Unasked(_)
            | Self::Encoded
            | Self::HeaderTooLarge
            | Self::TooLarge { .. }
            | Self::TooManyPieces
            | Self::NoRoom(_) => DeliveryState::Maybe,
        }
    }

    /// Returns the label for metrics and logs; one of a closed set.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::BadUri(_) => "bad_uri",
            Self::Resolve(_) => "resolve",
            Self::Refused { .. } => "refused",
            Self::Connect(_) => "connect",
            Self::OpenFiles => "open_files",
            Self::ConnectTimeout => "connect_timeout",
            Self::Tls(_) => "tls",
            Self::FirstByteTimeout => "first_byte_timeout",
            Self::IdleTimeout => "idle_timeout",
            Self::TotalTimeout => "total_timeout",
            Self::Unsent(_) => "unsent",
            Self::Broken(_) => "broken",
            Self::Truncated => "truncated",
            Self::Unasked(_) => "unasked",
            Self::Encoded => "encoded",
            Self::HeaderTooLarge => "header_too_large",
            Self::TooLarge { .. } => "too_large",
            Self::TooManyPieces => "too_many_pieces",
            Self::NoRoom(_) => "no_room",
        }
    }

    /// Converts an error of hyper, once the request may have been written.
    pub(super) fn after_sending(error: hyper::Error) -> Self {
        let of_stream = error.source().and_then(|source| source.downcast_ref::<io::Error>());
        if of_stream.and_then(io::Error::get_ref).is_some_and(|inner| inner.is::<BudgetSpentError>()) {
            return Self::Unasked("informational responses without end");
        }
        if error.is_parse_too_large() { Self::HeaderTooLarge } else { Self::Broken(error) }
    }
}
