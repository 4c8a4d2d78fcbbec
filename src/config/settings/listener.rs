//! The settings of the listeners.

use std::net::{Ipv4Addr, SocketAddr};

use super::{Pem, Require};

/// One address on which the gateway listens for clients.
#[derive(Debug, Clone)]
pub struct Listener {
    /// The address; port 0 lets the system choose.
    pub address: SocketAddr,
    /// The certificate to show; `None`: plain HTTP.
    pub tls: Option<ListenerTls>,
    /// What is served here.
    pub faces: Faces,
    /// What clients must show here.
    pub require: Require,
}

impl Listener {
    /// A plain HTTP listener with the default faces.
    pub fn new(address: SocketAddr) -> Self {
        Self { address, tls: None, faces: Faces::default(), require: Require::default() }
    }
}

/// The certificate of a listener.
#[derive(Debug, Clone)]
pub struct ListenerTls {
    /// The certificate, followed by those that lead to its root.
    pub certificate: Pem,
    /// Its private key.
    pub key: Pem,
}

/// What a listener serves. Default: all but `push`, which agents reach without proving who they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Faces {
    /// `/mcp` and `/mcp/{agent}`.
    pub mcp: bool,
    /// `/healthz`.
    pub health: bool,
    /// `/push/{token}`, for agents.
    pub push: bool,
}

impl Default for Faces {
    fn default() -> Self {
        Self { mcp: true, health: true, push: false }
    }
}

/// The operator's own listener: health, readiness, metrics, state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Admin {
    /// The address. Default: `127.0.0.1:9090`.
    pub address: SocketAddr,
}

impl Default for Admin {
    fn default() -> Self {
        Self { address: SocketAddr::from((Ipv4Addr::LOCALHOST, 9090)) }
    }
}
