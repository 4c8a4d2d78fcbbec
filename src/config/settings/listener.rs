//! The settings of the listeners.

use std::net::{Ipv4Addr, SocketAddr};

use super::{Pem, Require};

/// One address on which the gateway listens for clients.
#[derive(Debug, Clone)]
pub struct Listener {
    /// The address; port 0 lets the system choose.
    pub address: SocketAddr,
    /// TLS of the listener; `None`: plain HTTP.
    pub tls: Option<ListenerTls>,
    /// The services of the listener.
    pub serve: Services,
    /// Credentials that clients must present here.
    pub require: Require,
}

impl Listener {
    /// Returns a plain HTTP listener with the default services.
    pub fn new(address: SocketAddr) -> Self {
        Self { address, tls: None, serve: Services::default(), require: Require::default() }
    }
}

/// TLS of a listener.
#[derive(Debug, Clone)]
pub struct ListenerTls {
    /// The certificates to present, chosen by the name that a client asks for. The first is for all
    /// other names. Not empty.
    pub certificates: Vec<ListenerCertificate>,
    /// The versions of TLS.
    pub profile: TlsProfile,
    /// Verification of client certificates; `None`: clients are not asked for one.
    pub client_auth: Option<ClientAuth>,
}

/// A certificate of a listener.
#[derive(Debug, Clone)]
pub struct ListenerCertificate {
    /// The certificate, followed by those that lead to its root. Its names are its subject
    /// alternative names.
    pub certificate: Pem,
    /// Its private key.
    pub key: Pem,
}

/// The versions of TLS that a listener speaks, after Mozilla's recommendations of these names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TlsProfile {
    /// TLS 1.3 only.
    Modern,
    /// TLS 1.2, with ephemeral keys and authenticated encryption only, and 1.3.
    #[default]
    Intermediate,
}

/// Verification of client certificates.
#[derive(Debug, Clone)]
pub struct ClientAuth {
    /// True if a client without a certificate is rejected. One with a bad certificate always is.
    pub required: bool,
    /// The authorities that sign valid certificates. Not empty.
    pub ca: Vec<Pem>,
    /// The revocation lists. Empty: revocation is not checked. Else a certificate is rejected
    /// unless each of the authorities above it, up to the root, has a list here that does not name
    /// it.
    pub crl: Vec<Pem>,
    /// True if a revocation list is still accepted after the time for its next update. Else all
    /// certificates that it covers are rejected.
    pub accept_expired_crl: bool,
}

/// The services of a listener. Default: `mcp` and `health`; agents reach `push` without
/// authentication, and A2A clients are a choice of the operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Services {
    /// `/mcp` and `/mcp/{agent}`.
    pub mcp: bool,
    /// `/a2a/{agent}`.
    pub a2a: bool,
    /// `/healthz`.
    pub health: bool,
    /// `/push/{token}`, for agents.
    pub push: bool,
}

impl Default for Services {
    fn default() -> Self {
        Self { mcp: true, a2a: false, health: true, push: false }
    }
}

/// The operator's own listener: health, readiness, metrics, state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admin {
    /// The address. Default: `127.0.0.1:9090`.
    pub address: SocketAddr,
    /// Accepted values of `Host` besides loopback names and IP addresses. Default: none.
    pub allowed_hosts: Vec<String>,
}

impl Admin {
    /// Returns the listener at an address, with defaults for the rest.
    pub fn new(address: SocketAddr) -> Self {
        Self { address, allowed_hosts: Vec::new() }
    }
}

impl Default for Admin {
    fn default() -> Self {
        Self::new(SocketAddr::from((Ipv4Addr::LOCALHOST, 9090)))
    }
}
