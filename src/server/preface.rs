//! The first bytes of a connection: the header of the PROXY protocol (versions 1 and 2), and the
//! preface of HTTP/2 with prior knowledge (RFC 9113 §3.3) beside HTTP/1.1 on a listener without TLS.
//!
//! A PROXY header tells the address of the client of a proxy. Only a trusted proxy may send one: the
//! connections of others are closed. It is read before TLS and before any limit by address, exactly,
//! within a time and a size.
//!
//! Pingora's own detection waits for 24 bytes, which a short request of HTTP/1.1 does not have, and
//! waits without a limit. The one here ends at the first byte that differs from the preface of
//! HTTP/2. Behind TLS the handshake agrees on the version (see `tls`). `Upgrade: h2c` is ignored, as
//! RFC 9113 §3.1 asks.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use pingora::apps::ServerApp;
use pingora::protocols::l4::socket::SocketAddr as PeerAddress;
use pingora::protocols::l4::stream::Stream as Socket;
use pingora::protocols::{SocketDigest, Stream};
use pingora::server::ShutdownWatch;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::time::{Instant, timeout};

use super::app::HttpApp;
use super::http1::serve_http1;
use super::http2::serve_http2;
use super::shutdown::ListenerShutdown;
use crate::config::TrustedProxies;

/// The first bytes of every connection of HTTP/2.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Serves each connection of a plain listener in the version of HTTP that its client speaks.
pub(super) struct HttpVersionDetector<A> {
    /// The application.
    pub(super) app: Arc<A>,
    /// The end of the listeners, which waits for first requests.
    pub(super) listeners: ListenerShutdown,
}

#[async_trait]
impl<A: HttpApp> ServerApp for HttpVersionDetector<A> {
    async fn process_new(self: &Arc<Self>, stream: Stream, shutdown: &ShutdownWatch) -> Option<Stream> {
        let (fresh, since) = (self.app.limits().fresh(&self.listeners), Instant::now());
        let mut socket = stream.into_any().downcast::<Socket>().ok()?;
        let is_http2 = match timeout(self.app.limits().head_read, is_http2(&mut socket)).await {
            Ok(Ok(is_http2)) => is_http2,
            Ok(Err(_)) | Err(_) => {
                tracing::debug!("connection closed before its first bytes came");
                return None;
            }
        };
        if !is_http2 {
            serve_http1(&self.app, socket, fresh, since, shutdown).await;
            return None;
        }
        let served = serve_http2(&self.app, socket, shutdown);
        tokio::pin!(served);
        tokio::select! {
            () = &mut served => {}
            () = ListenerShutdown::linger(fresh) => served.await,
        }
        None
    }

    async fn cleanup(&self) {
        self.app.limits().end_connections(&self.listeners).await;
    }
}

/// Returns true if a connection begins with the preface of HTTP/2. All bytes stay to be read.
async fn is_http2(socket: &mut Socket) -> io::Result<bool> {
    let mut first = Vec::with_capacity(PREFACE.len());
    let is_http2 = read_preface(socket, &mut first).await?;
    socket.rewind(&first);
    Ok(is_http2)
}

/// Reads up to the end of the preface or the first byte that differs from it.
async fn read_preface(stream: &mut (impl AsyncRead + Unpin), first: &mut Vec<u8>) -> io::Result<bool> {
    while PREFACE.starts_with(first) {
        let rest = PREFACE.len().saturating_sub(first.len());
        if rest == 0 {
            return Ok(true);
        }
        let count = (&mut *stream).take(rest as u64).read_buf(first).await?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(false)
}

/// The first bytes of version 2.
const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";
/// The maximum size of a header of version 1, with its line end.
const MAX_LINE_BYTES: usize = 107;
/// The maximum size of the rest of a header of version 2: addresses and extensions, which hold the
/// names and the certificate of a TLS client at most.
const MAX_REST_BYTES: usize = 4096;

/// The reason for which a connection is refused.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ProxyHeaderError {
    /// The peer is not a trusted proxy.
    #[error("the peer is not one of trusted_proxies")]
    Untrusted,
    /// The connection does not begin with a header of the protocol.
    #[error("it does not begin with a header of the PROXY protocol: {0}")]
    Malformed(&'static str),
    /// The header did not come in time, or the peer closed the connection.
    #[error("the header of the PROXY protocol did not come")]
    Missing,
}

/// Reads the header of a connection, and replaces the address of its peer by that of the client.
///
/// # Errors
///
/// [`ProxyHeaderError`]; the connection cannot be used then.
pub(super) async fn accept(
    stream: &mut Stream,
    proxies: &TrustedProxies,
    within: Duration,
) -> Result<(), ProxyHeaderError> {
    let peer = stream.get_socket_digest().and_then(|digest| digest.peer_addr()?.as_inet().copied());
    if !peer.is_some_and(|peer| proxies.contains(peer.ip())) {
        return Err(ProxyHeaderError::Untrusted);
    }
    let header = timeout(within, read(stream)).await.map_err(|_| ProxyHeaderError::Missing)?;
    if let Some(client) = header? {
        let digest = SocketDigest::from_raw_fd(stream.id());
        // The digest is new, so that its address is not set yet.
        if digest.peer_addr.set(Some(PeerAddress::Inet(client))).is_ok() {
            stream.set_socket_digest(digest);
        }
    }
    Ok(())
}

/// Reads a header. `None`: the connection is the proxy's own, such as a health check.
async fn read(stream: &mut (impl AsyncRead + Unpin)) -> Result<Option<SocketAddr>, ProxyHeaderError> {
    let missing = |_| ProxyHeaderError::Missing;
    // The shortest header has 15 bytes.
    let mut first = [0; SIGNATURE.len()];
    stream.read_exact(&mut first).await.map_err(missing)?;
    if first == SIGNATURE {
        let mut head = [0; 4];
        stream.read_exact(&mut head).await.map_err(missing)?;
        let [version, family, length @ ..] = head;
        let length = usize::from(u16::from_be_bytes(length));
        if length > MAX_REST_BYTES {
            return Err(ProxyHeaderError::Malformed("it is too large"));
        }
        let mut rest = vec![0; length];
        stream.read_exact(&mut rest).await.map_err(missing)?;
        return binary(version, family, &rest);
    }
    if !first.starts_with(b"PROXY ") {
        return Err(ProxyHeaderError::Malformed("there is none"));
    }
    let mut line = first.to_vec();
    while !line.ends_with(b"\r\n") {
        if line.len() >= MAX_LINE_BYTES {
            return Err(ProxyHeaderError::Malformed("its line is too long"));
        }
        line.push(stream.read_u8().await.map_err(missing)?);
    }
    text(&line)
}

/// The address of a client that the proxy cannot tell. It is no proxy, so that no header with which
/// the client names another address counts.
const UNKNOWN_CLIENT: SocketAddr = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), 0);

/// Parses the line of version 1.
fn text(line: &[u8]) -> Result<Option<SocketAddr>, ProxyHeaderError> {
    let malformed = ProxyHeaderError::Malformed;
    let line = std::str::from_utf8(line).ok().and_then(|line| line.strip_suffix("\r\n"));
    let mut words = line.ok_or(malformed("its line is not text"))?.split(' ').skip(1);
    let family = words.next();
    if family == Some("UNKNOWN") {
        return Ok(Some(UNKNOWN_CLIENT));
    }
    let [Some(source), Some(target), Some(source_port), Some(target_port), None] =
        std::array::from_fn(|_| words.next())
    else {
        return Err(malformed("its line does not have six words"));
    };
    let address = |text: &str| text.parse::<IpAddr>().map_err(|_| malformed("it has no address"));
    let port = |text: &str| match text.parse::<u16>() {
        Ok(port) if text.bytes().all(|byte| byte.is_ascii_digit()) => Ok(port),
        Ok(_) | Err(_) => Err(malformed("it has no port")),
    };
    let (source, target) = (address(source)?, address(target)?);
    port(target_port)?;
    let is_family = match family {
        Some("TCP4") => source.is_ipv4() && target.is_ipv4(),
        Some("TCP6") => source.is_ipv6() && target.is_ipv6(),
        Some(_) | None => false,
    };
    if !is_family {
        return Err(malformed("its family does not fit its addresses"));
    }
    Ok(Some(SocketAddr::new(source, port(source_port)?)))
}

/// Parses a header of version 2: `rest` is all after the length.
fn binary(version: u8, family: u8, rest: &[u8]) -> Result<Option<SocketAddr>, ProxyHeaderError> {
    let too_short = || ProxyHeaderError::Malformed("its addresses are incomplete");
    match version {
        // LOCAL: the proxy's own connection.
        0x20 => return Ok(None),
        0x21 => {}
        _ => return Err(ProxyHeaderError::Malformed("its version or command is unknown")),
    }
    let port = |at: usize| {
        let bytes = rest.get(at..).and_then(|rest| rest.first_chunk::<2>());
        bytes.map(|bytes| u16::from_be_bytes(*bytes)).ok_or_else(too_short)
    };
    match family {
        // TCP over IPv4: two addresses of 4 bytes, two ports.
        0x11 => {
            let source: [u8; 4] = *rest.first_chunk().ok_or_else(too_short)?;
            port(10)?;
            Ok(Some(SocketAddr::new(Ipv4Addr::from(source).into(), port(8)?)))
        }
        // TCP over IPv6: two addresses of 16 bytes, two ports.
        0x21 => {
            let source: [u8; 16] = *rest.first_chunk().ok_or_else(too_short)?;
            port(34)?;
            Ok(Some(SocketAddr::new(Ipv6Addr::from(source).into(), port(32)?)))
        }
        // Unspecified, or a socket of the system of the proxy.
        0x00 | 0x31 => Ok(Some(UNKNOWN_CLIENT)),
        _ => Err(ProxyHeaderError::Malformed("its family is unknown")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the result, and the bytes that it was read from.
    async fn read(pieces: &[&[u8]]) -> (io::Result<bool>, Vec<u8>) {
        let (mut client, mut server) = tokio::io::duplex(1);
        let pieces: Vec<u8> = pieces.concat();
        let send = async move {
            // The reader may stop before the last byte.
            drop(tokio::io::AsyncWriteExt::write_all(&mut client, &pieces).await);
        };
        let mut first = Vec::new();
        let receive = async {
            let result = read_preface(&mut server, &mut first).await;
            drop(server);
            result
        };
        let (result, ()) = tokio::join!(receive, send);
        (result, first)
    }

    #[tokio::test]
    async fn version_is_known_at_first_difference() {
        for (bytes, is_http2, read_bytes) in [
            (PREFACE, true, PREFACE.len()),
            (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nmore", true, PREFACE.len()),
            (b"GET / HTTP/1.0\r\n\r\n", false, 1),
            (b"POST / HTTP/1.1\r\n\r\n", false, 2),
            (b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n", false, 19),
        ] {
            let (result, first) = read(&[bytes]).await;
            assert_eq!(result.unwrap(), is_http2, "{bytes:?}");
            assert_eq!(first, bytes[..read_bytes], "{bytes:?}");
        }
        for cut in [&b""[..], b"PRI", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r"] {
            assert!(read(&[cut]).await.0.is_err(), "{cut:?}");
        }
    }
}

#[cfg(test)]
mod proxy_protocol_tests {
    use super::*;

    /// Returns the client and the bytes after the header.
    async fn parsed(bytes: &[u8]) -> (Result<Option<SocketAddr>, ProxyHeaderError>, Vec<u8>) {
        let mut stream = bytes;
        let read = read(&mut stream).await;
        (read, stream.to_vec())
    }

    fn v2(version: u8, family: u8, rest: &[u8]) -> Vec<u8> {
        let length = u16::try_from(rest.len()).unwrap().to_be_bytes();
        [&SIGNATURE[..], &[version, family], &length, rest].concat()
    }

    #[tokio::test]
    async fn proxy_header_gives_client() {
        let v4 = [192, 0, 2, 1, 10, 0, 0, 1, 0x12, 0x67, 0, 80];
        let mut v6 = [0; 36];
        v6[..2].copy_from_slice(&[0x20, 1]);
        v6[15] = 9;
        v6[32..34].copy_from_slice(&[0x12, 0x67]);
        for (bytes, client) in [
            (b"PROXY TCP4 192.0.2.1 10.0.0.1 4711 80\r\n".to_vec(), Some("192.0.2.1:4711")),
            (b"PROXY TCP6 2001::9 ::1 4711 80\r\n".to_vec(), Some("[2001::9]:4711")),
            (b"PROXY UNKNOWN\r\n".to_vec(), Some("[::]:0")),
            (b"PROXY UNKNOWN any thing\r\n".to_vec(), Some("[::]:0")),
            (v2(0x21, 0x11, &v4), Some("192.0.2.1:4711")),
            (v2(0x21, 0x11, &[&v4[..], &[4, 0, 1, 0]].concat()), Some("192.0.2.1:4711")),
            (v2(0x21, 0x21, &v6), Some("[2001::9]:4711")),
            (v2(0x20, 0x00, &[]), None),
            (v2(0x21, 0x00, &[]), Some("[::]:0")),
        ] {
            let (read, rest) = parsed(&[&bytes[..], b"GET / HTTP/1.1\r\n"].concat()).await;
            assert_eq!(read, Ok(client.map(|client| client.parse().unwrap())), "{bytes:?}");
            assert_eq!(rest, b"GET / HTTP/1.1\r\n", "{bytes:?}");
        }
    }

    #[tokio::test]
    async fn malformed_proxy_header_is_refused() {
        for bytes in [
            b"GET / HTTP/1.1\r\n\r\n".to_vec(),
            b"PROXY TCP4 192.0.2.1 10.0.0.1 4711\r\n    ".to_vec(),
            b"PROXY TCP4 ::1 ::1 4711 80\r\n".to_vec(),
            b"PROXY TCP4 192.0.2.1 10.0.0.1 +471 80\r\n".to_vec(),
            b"PROXY TCP4 192.0.2.1 10.0.0.1 99999 80\r\n".to_vec(),
            b"PROXY UDP4 192.0.2.1 10.0.0.1 1 80\r\n".to_vec(),
            [&b"PROXY UNKNOWN "[..], &[b'x'; 200]].concat(),
            v2(0x21, 0x11, &[1, 2, 3]),
            v2(0x22, 0x11, &[0; 12]),
            v2(0x21, 0x55, &[0; 12]),
            v2(0x21, 0x11, &[0; MAX_REST_BYTES + 1]),
        ] {
            let (read, _) = parsed(&bytes).await;
            assert!(matches!(read, Err(ProxyHeaderError::Malformed(_))), "{bytes:?} {read:?}");
        }
        assert_eq!(parsed(b"PROXY TCP4 192").await.0, Err(ProxyHeaderError::Missing));
        assert_eq!(parsed(&v2(0x21, 0x11, &[0; 12])[..20]).await.0, Err(ProxyHeaderError::Missing));
    }
}
