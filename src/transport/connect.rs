//! Opens a connection: resolve, check, connect, TLS.
//!
//! No proxy settings are read from the environment. The caller adds the connect timeout.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd as _, RawFd};
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use http::Uri;
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio_rustls::TlsConnector;

use super::ClientLimits;
use super::address_policy::AddressPolicy;
use super::error::TransportError;
use super::http1::Http1Connection;
use super::http2::Http2Connection;
use super::io::MaybeTlsStream;
use super::upstream::UpstreamInner;
use crate::config::Host;

/// The head start of each address before the next is tried as well.
const STAGGER: Duration = Duration::from_millis(250);
/// The maximum number of addresses of a name that are tried.
const ADDRESSES: usize = 8;

/// A new connection, by the negotiated protocol.
pub(super) enum NewConnection {
    /// HTTP/1.1, for one request at a time.
    Line(Box<Http1Connection>),
    /// HTTP/2, to be shared.
    Trunk(Http2Connection),
}

/// Opens an HTTP/1.1 connection on the current runtime.
pub(super) async fn line(
    place: &UpstreamInner,
    limits: ClientLimits,
) -> Result<Box<Http1Connection>, TransportError> {
    let tcp = connect(place, limits.descriptors).await?;
    let wire = match &place.tls {
        None => MaybeTlsStream::plain(tcp),
        Some(tls) => {
            let stream = TlsConnector::from(tls.http1.clone()).connect(tls.name.clone(), tcp).await;
            MaybeTlsStream::tls(stream.map_err(TransportError::Tls)?)
        }
    };
    Http1Connection::start(wire, limits).await.map_err(TransportError::Unsent)
}

/// Opens a connection by the protocol that the agent prefers. Must run on the runtime of
/// `background`, because a shared connection is driven there.
pub(super) async fn either(
    place: &UpstreamInner,
    limits: ClientLimits,
    background: &Handle,
) -> Result<NewConnection, TransportError> {
    let tcp = connect(place, limits.descriptors).await?;
    let Some(tls) = &place.tls else {
        return Http1Connection::start(MaybeTlsStream::plain(tcp), limits)
            .await
            .map(NewConnection::Line)
            .map_err(TransportError::Unsent);
    };
    let stream = TlsConnector::from(tls.either.clone())
        .connect(tls.name.clone(), tcp)
        .await
        .map_err(TransportError::Tls)?;
    let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    let wire = MaybeTlsStream::tls(stream);
    if http2 {
        Http2Connection::start(wire, limits, background)
            .await
            .map(NewConnection::Trunk)
            .map_err(TransportError::Unsent)
    } else {
        Http1Connection::start(wire, limits).await.map(NewConnection::Line).map_err(TransportError::Unsent)
    }
}

async fn connect(place: &UpstreamInner, descriptors: RawFd) -> Result<TcpStream, TransportError> {
    // These and no others: another resolution of the name could lead elsewhere.
    let addresses = addresses((&place.host, place.port), &place.policy).await?;
    let stream = race(addresses).await.map_err(not_connected)?;
    if stream.as_raw_fd() >= descriptors {
        return Err(TransportError::OpenFiles);
    }
    // Requests are written whole; waiting for more to send would only delay them.
    stream.set_nodelay(true).map_err(TransportError::Connect)?;
    Ok(stream)
}

fn not_connected(error: io::Error) -> TransportError {
    /// `EMFILE` and `ENFILE`, on every Unix.
    const FULL: [i32; 2] = [24, 23];
    match error.raw_os_error() {
        Some(code) if FULL.contains(&code) => TransportError::OpenFiles,
        _ => TransportError::Connect(error),
    }
}

/// Checks that a URL of another party may be called under a policy, by all addresses that its name
/// resolves to now. Connects to nothing.
///
/// # Errors
///
/// [`TransportError::Refused`] if it may not, [`TransportError::BadUri`] or
/// [`TransportError::Resolve`] if that is unknown.
pub async fn filter_addresses(uri: &Uri, policy: &AddressPolicy) -> Result<(), TransportError> {
    let (host, port) = host_of(uri)?;
    let found = addresses((&host, port), policy).await?;
    if found.is_empty() { Err(TransportError::BadUri("the name has no address")) } else { Ok(()) }
}

/// Returns the host and the port of a URL of another party, without resolving the name.
///
/// # Errors
///
/// [`TransportError::BadUri`] if it is none that would be called.
pub fn host_of(uri: &Uri) -> Result<(Host, u16), TransportError> {
    let port = match uri.scheme_str() {
        Some("https") => 443,
        Some("http") => 80,
        Some(_) | None => return Err(TransportError::BadUri("scheme is neither http nor https")),
    };
    let authority = uri.authority().ok_or(TransportError::BadUri("no host"))?;
    if authority.as_str().contains('@') {
        return Err(TransportError::BadUri("user information in the URI"));
    }
    let host =
        Host::read(authority.host()).map_err(|_| TransportError::BadUri("no name or plain address"))?;
    Ok((host, authority.port_u16().unwrap_or(port)))
}

/// Returns the addresses of a host that may be connected to, as its name resolves now.
async fn addresses(
    (host, port): (&Host, u16),
    policy: &AddressPolicy,
) -> Result<Vec<SocketAddr>, TransportError> {
    let addresses = match host {
        Host::Address(address) => vec![SocketAddr::new(*address, port)],
        Host::Name(name) => tokio::net::lookup_host((name.as_str(), port))
            .await
            .map_err(TransportError::Resolve)?
            .take(ADDRESSES)
            .collect(),
    };
    policy.check(host, addresses)
}

/// Returns the first connection to any of the addresses; each has a head start before the next.
async fn race(addresses: Vec<SocketAddr>) -> io::Result<TcpStream> {
    let mut waiting = addresses.into_iter();
    let mut attempts = Vec::new();
    let mut last = None;
    loop {
        if let Some(address) = waiting.next() {
            attempts.push(Box::pin(TcpStream::connect(address)));
        } else if attempts.is_empty() {
            return Err(
                last.unwrap_or_else(|| io::Error::new(io::ErrorKind::NotFound, "the name has no address"))
            );
        }
        let outcome = if waiting.len() == 0 {
            Some(first(&mut attempts).await)
        } else {
            tokio::time::timeout(STAGGER, first(&mut attempts)).await.ok()
        };
        match outcome {
            Some(Ok(stream)) => return Ok(stream),
            Some(Err(error)) => last = Some(error),
            None => {}
        }
    }
}

/// Waits for one of the attempts and removes it.
async fn first<A, T>(attempts: &mut Vec<Pin<Box<A>>>) -> T
where
    A: Future<Output = T>,
{
    std::future::poll_fn(|cx| {
        for at in 0..attempts.len() {
            let Some(attempt) = attempts.get_mut(at) else { break };
            if let Poll::Ready(outcome) = attempt.as_mut().poll(cx) {
                drop(attempts.swap_remove(at));
                return Poll::Ready(outcome);
            }
        }
        Poll::Pending
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_dead_address_does_not_hide_a_live_one() {
        let dead = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let live = listener.local_addr().unwrap();
        let stream = race(vec![dead, live]).await.unwrap();
        assert_eq!(stream.peer_addr().unwrap(), live);
    }

    #[tokio::test]
    async fn a_silent_address_only_delays_the_next() {
        // A full backlog: the kernel completes no more handshakes.
        let silent = tokio::net::TcpSocket::new_v4().unwrap();
        silent.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let silent = silent.listen(1).unwrap();
        let full = silent.local_addr().unwrap();
        let mut held = Vec::new();
        while let Ok(Ok(stream)) =
            tokio::time::timeout(Duration::from_millis(50), TcpStream::connect(full)).await
        {
            held.push(stream);
        }
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let live = listener.local_addr().unwrap();
        let stream = race(vec![full, live]).await.unwrap();
        assert_eq!(stream.peer_addr().unwrap(), live);
    }

    #[tokio::test]
    async fn a_place_is_judged_without_a_connection() {
        let guarded = AddressPolicy::Guarded(std::sync::Arc::default());
        for (uri, fits) in [
            ("https://203.0.114.9/x", true),
            ("http://93.184.216.34:8080/", true),
            ("http://127.0.0.1/", false),
            ("https://localhost/", false),
            ("http://169.254.169.254/", false),
            ("http://user@93.184.216.34/", false),
            ("ftp://93.184.216.34/", false),
            ("/x", false),
        ] {
            assert_eq!(filter_addresses(&uri.parse().unwrap(), &guarded).await.is_ok(), fits, "{uri}");
        }
    }

    #[tokio::test]
    async fn no_address_is_an_error() {
        assert_eq!(race(Vec::new()).await.unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
