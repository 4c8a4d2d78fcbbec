//! Connections through an egress proxy: tunnels by `CONNECT` (RFC 9110 §9.3.6).
//!
//! Names are resolved and judged here, and the proxy is told the address: it cannot be led elsewhere
//! by another resolution of the name. TLS is spoken through the tunnel, with the name of the origin.
//! With `resolve: proxy` it is told the name. See `address_policy` for the rules on addresses.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::address_policy::AddressPolicy;
use super::connect::{addresses, not_connected, race};
use super::error::{ProxyFailure, TransportError};
use super::upstream::UpstreamInner;
use crate::config::{EgressProxy, Host, ProxyChoice, ProxyResolve, ProxyServer};

/// The maximum size of the head of a response to `CONNECT`, in bytes.
const MAX_HEAD_BYTES: usize = 8 * 1024;
/// The maximum number of addresses of one name that the proxy is asked for.
const MAX_ATTEMPTS: usize = 3;

/// Opens a connection to an upstream: through its proxy, or directly if it has none.
pub(super) async fn open(place: &UpstreamInner, common: &EgressProxy) -> Result<TcpStream, TransportError> {
    let server = match &place.proxy {
        ProxyChoice::Direct => None,
        ProxyChoice::Server(server) => Some(server),
        ProxyChoice::Common => common.url.as_ref().filter(|_| !is_exempt(place, common)),
    };
    if let (Some(server), Host::Name(name), ProxyResolve::Proxy) = (server, &place.host, common.resolve) {
        return tunnel(server, &format!("{name}:{}", place.port)).await;
    }
    // These and no others: another resolution of the name could lead elsewhere.
    let found = addresses(&place.host, place.port, &place.policy).await?;
    let Some(server) = server else { return race(found).await.map_err(not_connected) };
    let exempt = exempt_addresses(place, common, &found);
    match exempt.is_empty() {
        true => tunnel_to_any(server, &found).await,
        false => race(exempt).await.map_err(not_connected),
    }
}

/// Returns true if the host is exempt from the proxy by its name.
fn is_exempt(place: &UpstreamInner, common: &EgressProxy) -> bool {
    let Host::Name(name) = &place.host else { return false };
    common.no_proxy.has_host(name, &format!("{name}:{}", place.port).to_ascii_lowercase())
}

/// Returns the addresses that are exempt from the proxy. The others of the same name are not.
fn exempt_addresses(place: &UpstreamInner, common: &EgressProxy, found: &[SocketAddr]) -> Vec<SocketAddr> {
    let is_exempt = |address: &&SocketAddr| {
        place.proxy == ProxyChoice::Common && common.no_proxy.network_of(address.ip()).is_some()
    };
    found.iter().filter(is_exempt).copied().collect()
}

async fn tunnel_to_any(server: &ProxyServer, found: &[SocketAddr]) -> Result<TcpStream, TransportError> {
    let mut failed = TransportError::BadUri("the name has no address");
    for address in found.iter().take(MAX_ATTEMPTS) {
        match tunnel(server, &address.to_string()).await {
            // Another address may be available.
            Err(error @ TransportError::Proxy(ProxyFailure::Destination(_))) => failed = error,
            other => return other,
        }
    }
    Err(failed)
}

/// Opens a tunnel to `authority`, an address or a name with its port.
async fn tunnel(server: &ProxyServer, authority: &str) -> Result<TcpStream, TransportError> {
    // The operator wrote it.
    let found = addresses(&server.host, server.port, &AddressPolicy::Trusted).await?;
    let mut stream = match race(found).await.map_err(not_connected) {
        Ok(stream) => stream,
        Err(TransportError::Connect(error)) => return Err(ProxyFailure::Unreachable(error).into()),
        Err(error) => return Err(error),
    };
    // RFC 9112 §3.2.3: the target in authority form, and the same as Host.
    let mut head = format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n");
    if let Some(credentials) = &server.credentials {
        head += &format!("Proxy-Authorization: {}\r\n", credentials.expose());
    }
    head += "\r\n";
    stream.write_all(head.as_bytes()).await.map_err(ProxyFailure::Unreachable)?;
    match status(&mut stream).await? {
        200..=299 => Ok(stream),
        // Some proxies answer wrong credentials with 401.
        status @ (401 | 407) => Err(ProxyFailure::Credentials(status).into()),
        403 => Err(ProxyFailure::Forbidden.into()),
        status @ 500..=599 => Err(ProxyFailure::Destination(status).into()),
        status => Err(ProxyFailure::Status(status).into()),
    }
}

/// Reads the head of the response, and nothing after it. The other side of the tunnel says nothing
/// before it is spoken to, so bytes after a successful head are not its own.
async fn status(stream: &mut TcpStream) -> Result<u16, ProxyFailure> {
    let mut head = Vec::with_capacity(512);
    let end = loop {
        if let Some(end) = head.windows(4).position(|end| end == b"\r\n\r\n") {
            break end + 4;
        }
        if head.len() >= MAX_HEAD_BYTES {
            return Err(ProxyFailure::Response("its header is too large"));
        }
        if stream.read_buf(&mut head).await.map_err(ProxyFailure::Unreachable)? == 0 {
            return Err(ProxyFailure::Response("it closed the connection"));
        }
    };
    let status = status_of(&head).ok_or(ProxyFailure::Response("no HTTP response"))?;
    if (200..300).contains(&status) && head.len() > end {
        return Err(ProxyFailure::Response("it sent bytes that were not asked for"));
    }
    Ok(status)
}

/// Returns the status of a response head.
fn status_of(head: &[u8]) -> Option<u16> {
    let line = head.split(|byte| *byte == b'\r').next()?;
    let rest = line.strip_prefix(b"HTTP/1.").and_then(|rest| rest.get(2..))?;
    let (digits, reason) = (rest.get(..3)?, rest.get(3));
    let is_status = digits.iter().all(u8::is_ascii_digit) && matches!(reason, None | Some(b' '));
    std::str::from_utf8(digits).ok()?.parse().ok().filter(|_| is_status)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_line_is_read_strictly() {
        for (head, status) in [
            (&b"HTTP/1.1 200 Connection established\r\n\r\n"[..], Some(200)),
            (b"HTTP/1.0 407 \r\n\r\n", Some(407)),
            (b"HTTP/1.1 200\r\n\r\n", Some(200)),
            (b"HTTP/1.1 2000\r\n\r\n", None),
            (b"HTTP/2 200 OK\r\n\r\n", None),
            (b"SSH-2.0-x\r\n\r\n", None),
            (b"HTTP/1.1 +20 OK\r\n\r\n", None),
            (b"", None),
        ] {
            assert_eq!(status_of(head), status, "{head:?}");
        }
    }
}
