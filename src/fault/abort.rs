//! The end of a request before its result: an error for the client, or a client that is gone.

use super::Fault;

/// The client disconnected; no response can be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ClientGone;

/// The reason for which a request ends before its result.
#[derive(Debug)]
pub(crate) enum Abort<E = Fault> {
    /// The client gets this error.
    Rejected(E),
    /// The client disconnected.
    ClientGone,
}

impl<E> Abort<E> {
    /// Returns the same reason, with another kind of error.
    pub(crate) fn map<F>(self, change: impl FnOnce(E) -> F) -> Abort<F> {
        match self {
            Self::Rejected(error) => Abort::Rejected(change(error)),
            Self::ClientGone => Abort::ClientGone,
        }
    }
}

impl<E> From<ClientGone> for Abort<E> {
    fn from(_: ClientGone) -> Self {
        Self::ClientGone
    }
}

impl<E: From<Fault>> From<Fault> for Abort<E> {
    fn from(fault: Fault) -> Self {
        Self::Rejected(fault.into())
    }
}
