//! TLS towards clients: the certificates of a listener, the authorities it trusts, and how both
//! change while it runs.
//!
//! The handshake is not that of Pingora's listener, which would fix the versions, keep sessions
//! over a change of authorities, and hide the cause of a failed handshake. The socket stays
//! Pingora's, so that it is handed over in an upgrade like any other. Out of scope: the contents of
//! PEM texts (see `config`), the name of a client in its certificate (see `auth`), the gateway as a
//! TLS client (see `transport`).

mod acceptor;
mod listener;

pub(crate) use acceptor::HandshakeThreads;
pub(crate) use acceptor::TlsAcceptor;
pub(crate) use listener::{CertificateReloader, EXPIRY_WARNING_SECONDS, hangups};
pub(crate) use listener::{TlsListener, TlsProblem};

use rustls::crypto::CryptoProvider;

/// Makes ring the cryptography of the process, unless there is one. To be called before anything of
/// Pingora.
pub fn install_provider() {
    if CryptoProvider::get_default().is_none() {
        // Fails only if another thread was quicker, which is as good.
        drop(rustls::crypto::ring::default_provider().install_default());
    }
}
