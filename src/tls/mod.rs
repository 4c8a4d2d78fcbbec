//! TLS towards clients: the certificates of a listener, the authorities it trusts, and how both
//! change while it runs.
//!
//! The handshake is not that of Pingora's listener, whose settings fix the versions, keep sessions
//! over a change of authorities, and do not tell why a handshake failed. The socket stays
//! Pingora's, so that it is handed over in an upgrade like any other. The contents of PEM texts are
//! checked in `config`, the name of a client is read from its certificate in `auth`, and the
//! gateway as a TLS client is in `transport`.

mod cause;
mod clients;
mod endpoint;
mod lease;
mod resolver;
mod terminate;
mod threads;
mod watch;

pub use endpoint::{TlsListener, TlsProblem};
pub use terminate::TlsAcceptor;
pub use threads::HandshakeThreads;
pub use watch::{CertificateReloader, EXPIRY_WARNING_SECONDS, hangups};

use rustls::crypto::CryptoProvider;

/// Makes ring the cryptography of the process, unless there is one. To be called before anything of Pingora.
pub fn install_provider() {
    if CryptoProvider::get_default().is_none() {
        // Fails only if another thread was quicker, which is as good.
        drop(rustls::crypto::ring::default_provider().install_default());
    }
}
