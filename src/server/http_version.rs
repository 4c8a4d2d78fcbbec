//! HTTP/2 with prior knowledge (RFC 9113 §3.3) beside HTTP/1.1 on a listener without TLS: the first
//! bytes of a connection tell its version.
//!
//! Pingora's own detection waits for 24 bytes, which a short request of HTTP/1.1 does not have, and
//! waits without a limit. The one here ends at the first byte that differs from the preface of
//! HTTP/2. Behind TLS the handshake agrees on the version (see `tls`). `Upgrade: h2c` is ignored, as
//! RFC 9113 §3.1 asks.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use pingora::apps::{HttpServerApp, ServerApp};
use pingora::protocols::Stream;
use pingora::protocols::l4::stream::Stream as Socket;
use pingora::server::ShutdownWatch;
use pingora::time::timeout;
use tokio::io::{AsyncRead, AsyncReadExt as _};

use super::shutdown::ListenerShutdown;

/// The first bytes of every connection of HTTP/2.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Serves each connection of a plain listener in the version of HTTP that its client speaks.
pub(super) struct HttpVersionDetector<A> {
    /// Serves connections of HTTP/1.1.
    pub(super) http1: Arc<A>,
    /// Serves connections of HTTP/2; its options have `h2c`.
    pub(super) http2: Arc<A>,
    /// The time limit of the first bytes.
    pub(super) within: Duration,
    /// The end of the listeners, which waits for first requests.
    pub(super) listeners: ListenerShutdown,
}

#[async_trait]
impl<A: HttpServerApp + Send + Sync + 'static> ServerApp for HttpVersionDetector<A> {
    async fn process_new(self: &Arc<Self>, stream: Stream, shutdown: &ShutdownWatch) -> Option<Stream> {
        let fresh = self.listeners.fresh();
        let mut socket = stream.into_any().downcast::<Socket>().ok()?;
        let is_http2 = match timeout(self.within, is_http2(&mut socket)).await {
            Ok(Ok(is_http2)) => is_http2,
            Ok(Err(_)) | Err(_) => {
                tracing::debug!("connection closed before its first bytes came");
                return None;
            }
        };
        if !is_http2 {
            let served = self.http1.process_new(socket, shutdown);
            // The application counts it from here on.
            drop(fresh);
            return served.await;
        }
        let served = self.http2.process_new(socket, shutdown);
        tokio::pin!(served);
        tokio::select! {
            left = &mut served => left,
            () = ListenerShutdown::linger(fresh) => served.await,
        }
    }

    async fn cleanup(&self) {
        // Both applications share their listeners and their proxy.
        self.http1.http_cleanup().await;
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
