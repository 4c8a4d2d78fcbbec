//! The handshake before a listener's application: in time, counted, and with a reason when it fails.
//!
//! Not here: what the handshake is made with (see `endpoint`).

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use pingora::apps::{HttpServerApp, ServerApp};
use pingora::protocols::l4::stream::Stream as Socket;
use pingora::protocols::tls::server::handshake_with_callback;
use pingora::protocols::{GetSocketDigest as _, Stream};
use pingora::server::ShutdownWatch;
use pingora::time::timeout;
use tracing::{debug, info};

use super::cause::cause;
use super::endpoint::Endpoint;
use super::lease::Leased;
use crate::auth;
use crate::telemetry::label::Handshake;

/// An application behind TLS. Belongs on a listener that Pingora takes for plain TCP.
pub struct Terminating<A> {
    /// The application.
    pub app: Arc<A>,
    /// The TLS before it.
    pub endpoint: Arc<Endpoint>,
    /// How long a handshake may take.
    pub within: Duration,
}

#[async_trait]
impl<A: HttpServerApp + Send + Sync + 'static> ServerApp for Terminating<A> {
    async fn process_new(self: &Arc<Self>, stream: Stream, shutdown: &ShutdownWatch) -> Option<Stream> {
        let socket = stream.into_any().downcast::<Socket>().ok()?;
        let stream = self.terminate(*socket).await?;
        // Serves the connection to its end.
        self.app.process_new(stream, shutdown).await
    }

    async fn cleanup(&self) {
        self.app.http_cleanup().await;
    }
}

impl<A> Terminating<A> {
    async fn terminate(&self, socket: Socket) -> Option<Stream> {
        let peer = socket.get_socket_digest().and_then(|digest| digest.peer_addr().map(ToString::to_string));
        let peer = peer.unwrap_or_default();
        let setup = self.endpoint.current();
        let handshake = handshake_with_callback(&setup.acceptor, socket, &setup.witness);
        let stream = match timeout(self.within, handshake).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => {
                let text = error.to_string();
                return self.failed(cause(&text), &peer, &text);
            }
            Err(_) => return self.failed(Handshake::Timeout, &peer, "it took too long"),
        };
        let digest = stream.ssl_digest();
        let Some(witnessed) = digest.as_ref().and_then(|tls| tls.extension.get::<auth::Handshake>()) else {
            return self.failed(Handshake::BadCertificate, &peer, "the certificate cannot be read");
        };
        self.endpoint.metrics.handshake(Handshake::Ok);
        Some(match &witnessed.certificate {
            Some(certificate) => Box::new(Leased::new(stream, Arc::clone(certificate))),
            None => Box::new(stream),
        })
    }

    /// Any client can cause this at will, so it is never an error. What says something about a certificate may concern the
    /// operator; the rest is what every open port gets.
    fn failed(&self, cause: Handshake, peer: &str, detail: &str) -> Option<Stream> {
        self.endpoint.metrics.handshake(cause);
        let (listener, cause_word) = (self.endpoint.address(), cause.label());
        match cause {
            Handshake::NoCertificate
            | Handshake::UnknownIssuer
            | Handshake::Expired
            | Handshake::NotYetValid
            | Handshake::Revoked
            | Handshake::RevocationUnknown
            | Handshake::WrongUsage
            | Handshake::BadCertificate => {
                info!(%listener, peer, cause = cause_word, "TLS handshake refused");
            }
            _ => debug!(%listener, peer, cause = cause_word, detail, "TLS handshake failed"),
        }
        None
    }
}
