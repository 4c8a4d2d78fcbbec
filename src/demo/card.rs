//! The Agent Card of the demonstration agent (A2A 1.0 §4.4), made once.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use bytes::Bytes;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// The card as it is served.
pub(super) struct DemoCard {
    pub(super) body: Bytes,
    /// Quoted, as the header has it.
    pub(super) etag: String,
}

impl DemoCard {
    pub(super) fn new(address: SocketAddr) -> Self {
        let body = Bytes::from(card(&base_url(address)).to_string());
        let digest = Sha256::digest(&body);
        let mut etag = String::from("\"");
        for byte in digest.iter().take(8) {
            // Writing into a String cannot fail.
            write!(etag, "{byte:02x}").unwrap_or_default();
        }
        etag.push('"');
        Self { body, etag }
    }
}

/// Returns a URL that reaches `address` from this machine, ending in `/`.
pub(super) fn base_url(address: SocketAddr) -> String {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    format!("http://{}/", SocketAddr::new(ip, address.port()))
}

fn card(url: &str) -> Value {
    json!({
        "name": "Demo Agent",
        "description": "A small A2A agent to try the gateway with: it echoes, counts down and asks a question.",
        "version": env!("CARGO_PKG_VERSION"),
        "supportedInterfaces": [{ "url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0" }],
        "provider": { "organization": "mcp-a2a-gateway", "url": "https://a2a-protocol.org" },
        "capabilities": { "streaming": true, "pushNotifications": false, "extendedAgentCard": false },
        "defaultInputModes": ["text/plain", "application/json"],
        "defaultOutputModes": ["text/plain"],
        "skills": [
            {
                "id": "echo",
                "name": "Echo",
                "description": "Sends back what it was sent, at once.",
                "tags": ["demo", "fast"],
                "examples": ["echo hello"],
            },
            {
                "id": "countdown",
                "name": "Countdown",
                "description": "Counts down the given number of seconds (default 3, at most 60), reporting each one.",
                "tags": ["demo", "slow", "streaming"],
                "examples": ["countdown 5"],
            },
            {
                "id": "ask",
                "name": "Ask",
                "description": "Asks a question before it answers, to show a task that needs input.",
                "tags": ["demo", "interactive"],
                "examples": ["ask me something"],
            },
        ],
    })
}
