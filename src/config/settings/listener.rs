//! The settings of the listeners.

use std::net::{Ipv4Addr, SocketAddr};

use super::{Pem, Require};

/// One address on which the gateway listens for clients.
#[derive(Debug, Clone)]
pub struct Listener {
    /// The address; port 0 lets the system choose.
    pub address: SocketAddr,
    /// How TLS is spoken; `None`: plain HTTP.
    pub tls: Option<ListenerTls>,
    /// What is served here.
    pub faces: Services,
    /// What clients must show here.
    pub require: Require,
}

impl Listener {
    /// A plain HTTP listener with the default faces.
    pub fn new(address: SocketAddr) -> Self {
        Self { address, tls: None, faces: Services::default(), require: Require::default() }
    }
}

/// How a listener speaks TLS.
#[derive(Debug, Clone)]
pub struct ListenerTls {
    /// The certificates to show, chosen by the name that a client asks for. The first is for everybody else. Not empty.
    pub certificates: Vec<ListenerCertificate>,
    /// The versions of TLS.
    pub profile: TlsProfile,
    /// How clients show certificates; `None`: they are not asked for one.
    pub client_auth: Option<ClientAuth>,
}

/// A certificate of a listener.
#[derive(Debug, Clone)]
pub struct ListenerCertificate {
    /// The certificate, followed by those that lead to its root. Its names are its subject alternative names.
    pub certificate: Pem,
    /// Its private key.
    pub key: Pem,
}

/// Which versions of TLS a listener speaks, after Mozilla's recommendations of these names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TlsProfile {
    /// TLS 1.3 only.
    Modern,
    /// TLS 1.2, with ephemeral keys and authenticated encryption only, and 1.3.
    #[default]
    Intermediate,
}

/// How clients show certificates.
#[derive(Debug, Clone)]
pub struct ClientAuth {
    /// Whether a client without a certificate is refused. One with a bad certificate always is.
    pub required: bool,
    /// The authorities whose certificates are good. Not empty.
    pub ca: Vec<Pem>,
    /// The revocation lists. Empty: revocation is not checked. Else a certificate is refused unless each of the authorities
    /// above it, up to the root, has a list here that does not name it.
    pub crl: Vec<Pem>,
    /// Whether a revocation list is still believed after the time for its next update. Else all that it covers is refused.
    pub accept_expired_crl: bool,
}

/// What a listener serves. Default: `mcp` and `health`; agents reach `push` without proving who they are, and A2A clients are a
/// choice of the operator's.
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
    /// Values of `Host` that are let in besides loopback names and IP addresses. Default: none.
    pub allowed_hosts: Vec<String>,
}

impl Admin {
    /// The listener at an address, with defaults for the rest.
    pub fn new(address: SocketAddr) -> Self {
        Self { address, allowed_hosts: Vec::new() }
    }
}

impl Default for Admin {
    fn default() -> Self {
        Self::new(SocketAddr::from((Ipv4Addr::LOCALHOST, 9090)))
    }
}
