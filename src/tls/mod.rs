//! TLS towards clients: what a listener shows, whom it trusts, and how both change while it runs.
//!
//! The handshake is ours and not that of Pingora's listener, whose settings fix the versions, keep sessions over a change of
//! authorities, and tell nobody why a handshake failed. The socket stays Pingora's, so that it is handed over in an upgrade
//! like any other. Not here: what PEM texts must hold (`config`), who a client is by its certificate (`auth`), the gateway as
//! a TLS client (`transport`).

mod cause;
mod clients;
mod endpoint;
mod lease;
mod resolver;
mod terminate;
mod watch;

pub use endpoint::{Endpoint, TlsProblem};
pub use terminate::Terminating;
pub use watch::Watch;

use rustls::crypto::CryptoProvider;

/// Makes ring the cryptography of the process, unless there is one. To be called before anything of Pingora.
pub fn install_provider() {
    if CryptoProvider::get_default().is_none() {
        // Fails only if another thread was quicker, which is as good.
        drop(rustls::crypto::ring::default_provider().install_default());
    }
}
