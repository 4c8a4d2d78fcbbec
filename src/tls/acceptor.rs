//! The TLS handshake before a listener's application: with a timeout, counted, and with a cause if
//! it fails.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use pingora::apps::{HttpServerApp, ServerApp};
use pingora::protocols::l4::stream::Stream as Socket;
use pingora::protocols::tls::server::handshake_with_callback;
use pingora::protocols::{ALPN, GetSocketDigest as _, Peek as _, Stream};
use pingora::server::ShutdownWatch;
use pingora::time::timeout;
use tracing::{debug, info};

use super::expiring_stream::ExpiringStream;
use super::handshake_error::cause;
use super::listener::TlsListener;
use super::threads::HandshakeThreads;
use crate::auth::{self, network};
use crate::server::ending::ListenerShutdown;
use crate::telemetry::label::Handshake;

/// An application behind TLS. Belongs on a listener that Pingora takes for plain TCP.
pub struct TlsAcceptor<A> {
    /// The application.
    pub app: Arc<A>,
    /// The TLS before it.
    pub endpoint: Arc<TlsListener>,
    /// The threads on which handshakes run.
    pub threads: Arc<HandshakeThreads>,
    /// The time limit of a handshake.
    pub within: Duration,
    /// The end of the listeners, which waits for handshakes under way.
    pub(crate) listeners: ListenerShutdown,
}

#[async_trait]
impl<A: HttpServerApp + Send + Sync + 'static> ServerApp for TlsAcceptor<A> {
    async fn process_new(self: &Arc<Self>, stream: Stream, shutdown: &ShutdownWatch) -> Option<Stream> {
        let socket = stream.into_any().downcast::<Socket>().ok()?;
        let fresh = self.listeners.fresh();
        let stream = self.terminate(*socket).await?;
        let has_streams = matches!(stream.selected_alpn_proto(), Some(ALPN::H2));
        // Serves the connection to its end.
        let served = self.app.process_new(stream, shutdown);
        if !has_streams {
            // The application counts it from here on.
            drop(fresh);
            return served.await;
        }
        tokio::pin!(served);
        tokio::select! {
            left = &mut served => left,
            () = ListenerShutdown::linger(fresh) => served.await,
        }
    }

    async fn cleanup(&self) {
        self.app.http_cleanup().await;
    }
}

/// The failure of a handshake.
struct HandshakeError {
    cause: Handshake,
    detail: String,
}

impl HandshakeError {
    fn new(cause: Handshake, detail: impl ToString) -> Self {
        Self { cause, detail: detail.to_string() }
    }
}

impl<A> TlsAcceptor<A> {
    async fn terminate(&self, mut socket: Socket) -> Option<Stream> {
        let peer = socket.get_socket_digest().and_then(|digest| digest.peer_addr().cloned());
        let address = peer.as_ref().and_then(|peer| peer.as_inet()).map(|peer| network(peer.ip()));
        let peer = peer.as_ref().map(ToString::to_string).unwrap_or_default();
        let mut has_spoken = false;
        let handshake = async {
            check(&self.endpoint, address)?;
            // A client that sends nothing, such as a load balancer's check of the port, takes no
            // turn.
            let first = socket.try_peek(&mut [0; 1]).await;
            first.map_err(|error| HandshakeError::new(Handshake::ClientGone, error))?;
            has_spoken = true;
            let handshake = self.threads.run(handshake(Arc::clone(&self.endpoint), address, socket));
            let panicked = || HandshakeError::new(Handshake::BadCertificate, "the handshake panicked");
            handshake.await.ok_or_else(panicked)?
        };
        let ended = timeout(self.within, handshake).await;
        let too_long = |_| Err(HandshakeError::new(Handshake::Timeout, "it took too long"));
        match ended.unwrap_or_else(too_long) {
            Ok(stream) => {
                self.endpoint.metrics.handshake(Handshake::Ok);
                Some(stream)
            }
            Err(error) => {
                if has_spoken && error.cause != Handshake::RateLimited {
                    self.endpoint.failures.record(address, Instant::now());
                }
                self.failed(&error, &peer)
            }
        }
    }

    /// Counts and logs a failed handshake. Any client can cause one at will, so it is never an
    /// error. A cause that lies in a certificate may concern the operator; the others happen on
    /// every open port.
    fn failed(&self, HandshakeError { cause, detail }: &HandshakeError, peer: &str) -> Option<Stream> {
        self.endpoint.metrics.handshake(*cause);
        let (listener, cause_word) = (self.endpoint.address(), cause.label());
        match cause {
            Handshake::NoCertificate
            | Handshake::UnknownIssuer
            | Handshake::Expired
            | Handshake::NotYetValid
            | Handshake::Revoked
            | Handshake::RevocationUnknown
            | Handshake::WrongUsage
            | Handshake::ChainTooLarge
            | Handshake::BadCertificate => {
                info!(%listener, peer, cause = cause_word, "TLS handshake refused");
            }
            _ => debug!(%listener, peer, cause = cause_word, detail, "TLS handshake failed"),
        }
        None
    }
}

/// Refuses the handshakes of an address of which too many failed.
fn check(endpoint: &TlsListener, address: Option<IpAddr>) -> Result<(), HandshakeError> {
    let refused =
        |_| HandshakeError::new(Handshake::RateLimited, "too many handshakes of its address failed");
    endpoint.failures.check(address, Instant::now()).map_err(refused)
}

/// Performs the handshake, and records the certificate that the client presented.
async fn handshake(
    endpoint: Arc<TlsListener>,
    address: Option<IpAddr>,
    socket: Socket,
) -> Result<Stream, HandshakeError> {
    // Others of the address may have failed while this one waited for its turn.
    check(&endpoint, address)?;
    let setup = endpoint.current();
    let stream = handshake_with_callback(&setup.acceptor, socket, &setup.witness).await;
    let stream = stream.map_err(|error| {
        let detail = error.to_string();
        HandshakeError { cause: cause(&detail), detail }
    })?;
    let digest = stream.ssl_digest();
    let Some(witnessed) = digest.as_ref().and_then(|tls| tls.extension.get::<auth::ClientTlsInfo>()) else {
        return Err(HandshakeError::new(Handshake::BadCertificate, "the certificate cannot be read"));
    };
    Ok(match &witnessed.certificate {
        Some(certificate) => Box::new(ExpiringStream::new(stream, Arc::clone(certificate))),
        None => Box::new(stream),
    })
}
