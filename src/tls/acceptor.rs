//! The TLS handshake before a listener's application: on threads of its own, with a timeout,
//! counted, and with a cause if it fails.
//!
//! Any client can cause a handshake, and the CPU time of its signatures, before it is
//! authenticated. On threads of their own, handshakes do not delay the requests that the threads of
//! a listener serve, and no more of them compute at a time than there are threads; the others wait
//! for their turn, within `limits.header_read`.
//!
//! The cause is one of a closed set, and is found in the text of the error; the tests compare the texts here with the errors
//! themselves.
//!
//! A connection lasts no longer than its client's certificate: an open event stream makes no requests
//! that could be rejected. The HTTP layer sees the expiry as a client disconnect.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, LazyLock, Mutex};
use std::task::{Context, Poll};
use std::time::{Duration, Instant, SystemTime};

use async_trait::async_trait;
use pingora::apps::ServerApp;
use pingora::protocols::l4::stream::Stream as Socket;
use pingora::protocols::raw_connect::ProxyDigest;
use pingora::protocols::tls::SslDigest;
use pingora::protocols::{
    ALPN, GetProxyDigest, GetSocketDigest, GetTimingDigest, Peek, Shutdown, SocketDigest, Ssl, Stream,
    TimingDigest, UniqueID, UniqueIDType,
};
use pingora::server::ShutdownWatch;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tracing::{debug, info};

use super::listener::{ListenerSession, TlsListener};
use crate::auth::{ClientCertificate, ClientTlsInfo, network};
use crate::http_edge::attach_client_tls;
use crate::server::{HttpApp, ListenerShutdown, serve_http1, serve_http2};
use crate::sync::recover;
use crate::telemetry::label::Handshake;
use crate::tls_stream::{TlsSession as _, TlsStream};

/// An application behind TLS. Belongs on a listener that Pingora takes for plain TCP.
pub(crate) struct TlsAcceptor<A> {
    /// The application.
    pub(crate) app: Arc<A>,
    /// The TLS before it.
    pub(crate) endpoint: Arc<TlsListener>,
    /// The threads on which handshakes run.
    pub(crate) threads: Arc<HandshakeThreads>,
    /// The time limit of a handshake.
    pub(crate) within: Duration,
    /// The end of the listeners, which waits for handshakes under way.
    pub(crate) listeners: ListenerShutdown,
}

#[async_trait]
impl<A: HttpApp> ServerApp for TlsAcceptor<A> {
    async fn process_new(self: &Arc<Self>, stream: Stream, shutdown: &ShutdownWatch) -> Option<Stream> {
        let socket = stream.into_any().downcast::<Socket>().ok()?;
        let fresh = self.app.limits().fresh(&self.listeners);
        // Boxed: the room of a handshake is free when it has ended.
        let stream = Box::pin(self.terminate(*socket)).await?;
        if !matches!(stream.selected_alpn_proto(), Some(ALPN::H2)) {
            serve_http1(&self.app, stream, fresh, tokio::time::Instant::now(), shutdown).await;
            return None;
        }
        // Serves the connection to its end.
        let served = serve_http2(&self.app, stream, shutdown);
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
            let first = read_first(&mut socket)
                .await
                .map_err(|error| HandshakeError::new(Handshake::ClientGone, error))?;
            has_spoken = true;
            let handshake = self.threads.run(handshake(Arc::clone(&self.endpoint), address, socket, first));
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

/// The maximum size of bytes that are read of a socket before its handshake: a usual hello is one packet.
const FIRST_BYTES: usize = 4096;

/// Waits for the first bytes of a client.
async fn read_first(socket: &mut Socket) -> io::Result<Vec<u8>> {
    let mut first = Vec::with_capacity(FIRST_BYTES);
    if socket.read_buf(&mut first).await? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(first)
}

/// Refuses the handshakes of an address of which too many failed.
fn check(endpoint: &TlsListener, address: Option<IpAddr>) -> Result<(), HandshakeError> {
    let refused =
        |_| HandshakeError::new(Handshake::RateLimited, "too many handshakes of its address failed");
    endpoint.failures.check(address, Instant::now()).map_err(refused)
}

/// Performs the handshake, of which the client has sent `first`, and records the certificate that the client presented.
async fn handshake(
    endpoint: Arc<TlsListener>,
    address: Option<IpAddr>,
    socket: Socket,
    first: Vec<u8>,
) -> Result<Stream, HandshakeError> {
    // Others of the address may have failed while this one waited for its turn.
    check(&endpoint, address)?;
    let setup = endpoint.current();
    let failed = |detail: String| HandshakeError { cause: cause(&detail), detail };
    let session = setup.session().map_err(|error| failed(error.to_string()))?;
    let stream = TlsStream::handshake(socket, session, &first).await;
    let stream = stream.map_err(|error| failed(error.to_string()))?;
    let Some(info) = setup.witness.record(stream.session()) else {
        return Err(HandshakeError::new(Handshake::BadCertificate, "the certificate cannot be read"));
    };
    Ok(Box::new(ClientStream::new(stream, info)))
}

/// Runs handshakes. One for all listeners.
pub(crate) struct HandshakeThreads {
    /// Always there until this is dropped.
    runtime: Option<Runtime>,
}

impl HandshakeThreads {
    /// Starts this many threads.
    ///
    /// # Errors
    ///
    /// The error of the operating system.
    pub(crate) fn start(threads: usize) -> io::Result<Self> {
        // Sockets and timers stay with the drivers of the threads that accepted them.
        let mut builder = Builder::new_multi_thread();
        let runtime = builder.worker_threads(threads.max(1)).thread_name("handshakes").build()?;
        Ok(Self { runtime: Some(runtime) })
    }

    /// Runs one handshake to its end, or until the returned future is dropped. `None`: it panicked.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        handshake: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        let mut running = JoinSet::new();
        running.spawn_on(handshake, self.runtime.as_ref()?.handle());
        running.join_next().await.and_then(Result::ok)
    }
}

impl Drop for HandshakeThreads {
    fn drop(&mut self) {
        // Dropping a runtime waits for its threads, which panics on a thread of another one.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Returns the cause in the text of a handshake's error.
pub(super) fn cause(text: &str) -> Handshake {
    // In the order of search: texts about certificates before general ones.
    const WORDS: [(&str, Handshake); 21] = [
        ("peer sent no certificates", Handshake::NoCertificate),
        ("revocation list expired", Handshake::RevocationUnknown),
        ("ExpiredRevocationList", Handshake::RevocationUnknown),
        ("UnknownRevocationStatus", Handshake::RevocationUnknown),
        ("certificate: UnknownIssuer", Handshake::UnknownIssuer),
        ("certificate: BadSignature", Handshake::UnknownIssuer),
        ("certificate: certificate expired", Handshake::Expired),
        ("certificate: Expired", Handshake::Expired),
        ("certificate not valid yet", Handshake::NotYetValid),
        ("certificate: NotValidYet", Handshake::NotYetValid),
        ("certificate: Revoked", Handshake::Revoked),
        ("certificate: InvalidPurpose", Handshake::WrongUsage),
        ("does not allow extended key usage", Handshake::WrongUsage),
        ("ChainTooLarge", Handshake::ChainTooLarge),
        ("invalid peer certificate", Handshake::BadCertificate),
        ("invalid certificate revocation list", Handshake::RevocationUnknown),
        ("peer is incompatible", Handshake::NothingInCommon),
        ("peer doesn't support any known protocol", Handshake::NothingInCommon),
        ("received fatal alert", Handshake::RefusedByClient),
        ("corrupt message", Handshake::Malformed),
        ("misbehaved", Handshake::Malformed),
    ];
    let found = WORDS.iter().find(|(words, _)| text.contains(words));
    let malformed = ["unexpected", "oversized", "excess record", "cannot decrypt"];
    match found {
        Some((_, cause)) => *cause,
        None if malformed.iter().any(|words| text.contains(words)) && !text.contains("eof") => {
            Handshake::Malformed
        }
        None => Handshake::ClientGone,
    }
}

/// The time between the end of a certificate and that of the connection: a request on its way gets
/// the reason of its rejection.
const GRACE: Duration = Duration::from_secs(5);

/// A TLS connection of a client.
pub(super) struct ClientStream {
    stream: TlsStream<Socket, ListenerSession>,
    /// The facts of the handshake.
    digest: Arc<ProxyDigest>,
    /// The end of the client's certificate, if it has one. Never locked, only reached through `&mut`: a future alone cannot be
    /// shared.
    over: Option<Mutex<Pin<Box<dyn Future<Output = ()> + Send>>>>,
}

/// Pingora takes a connection with a digest for one of TLS. Its contents are of no use here.
static DIGEST: LazyLock<Arc<SslDigest>> =
    LazyLock::new(|| Arc::new(SslDigest::new("", "", None, None, Vec::new())));

impl ClientStream {
    pub(super) fn new(stream: TlsStream<Socket, ListenerSession>, info: ClientTlsInfo) -> Self {
        let over =
            info.certificate.clone().map(|certificate| Mutex::new(Box::pin(is_expired(certificate)) as _));
        Self { stream, digest: attach_client_tls(info), over }
    }
}

/// Waits until the certificate is no longer valid, and for the grace after that.
async fn is_expired(certificate: Arc<ClientCertificate>) {
    loop {
        certificate.may_have_ended().await;
        if certificate.is_valid(SystemTime::now()) {
            continue;
        }
        tokio::time::sleep(GRACE).await;
        if !certificate.is_valid(SystemTime::now()) {
            return;
        }
    }
}

impl AsyncRead for ClientStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        // Received bytes belong to the request; only a waiting read is ended.
        if let Poll::Ready(read) = Pin::new(&mut this.stream).poll_read(context, buffer) {
            return Poll::Ready(read);
        }
        let Some(over) = &mut this.over else { return Poll::Pending };
        let over = recover(over.get_mut());
        match over.as_mut().poll(context) {
            Poll::Ready(()) => {
                // It must not be polled again.
                *over = Box::pin(std::future::ready(()));
                Poll::Ready(Err(io::Error::new(io::ErrorKind::ConnectionAborted, "the certificate is over")))
            }
            Poll::Pending => Poll::Pending,
        }
    }
}

impl AsyncWrite for ClientStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, buffers)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[async_trait]
impl Shutdown for ClientStream {
    async fn shutdown(&mut self) {
        if let Err(error) = AsyncWriteExt::shutdown(&mut self.stream).await {
            debug!(%error, "a TLS connection was not shut down");
        }
    }
}

impl Ssl for ClientStream {
    fn get_ssl_digest(&self) -> Option<Arc<SslDigest>> {
        Some(Arc::clone(&DIGEST))
    }

    fn selected_alpn_proto(&self) -> Option<ALPN> {
        let selected = self.stream.session().common().alpn_protocol()?;
        Some(if selected == b"h2" { ALPN::H2 } else { ALPN::H1 })
    }
}

impl UniqueID for ClientStream {
    fn id(&self) -> UniqueIDType {
        self.stream.socket().id()
    }
}

impl GetTimingDigest for ClientStream {
    fn get_timing_digest(&self) -> Vec<Option<TimingDigest>> {
        self.stream.socket().get_timing_digest()
    }
}

impl GetProxyDigest for ClientStream {
    fn get_proxy_digest(&self) -> Option<Arc<ProxyDigest>> {
        Some(Arc::clone(&self.digest))
    }
}

impl GetSocketDigest for ClientStream {
    fn get_socket_digest(&self) -> Option<Arc<SocketDigest>> {
        self.stream.socket().get_socket_digest()
    }

    fn set_socket_digest(&mut self, digest: SocketDigest) {
        self.stream.socket_mut().set_socket_digest(digest);
    }
}

impl Peek for ClientStream {}

impl fmt::Debug for ClientStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientStream").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use rustls::pki_types::UnixTime;
    use rustls::{
        AlertDescription, CertificateError, Error, InvalidMessage, OtherError, PeerIncompatible,
        PeerMisbehaved,
    };

    use super::*;
    use crate::transport::ChainTooLarge;

    #[test]
    fn the_words_are_those_of_the_errors() {
        let time = UnixTime::since_unix_epoch(Duration::from_secs(9));
        let (not_after, not_before, next_update) = (time, time, time);
        let of = Error::InvalidCertificate;
        let too_large = OtherError(Arc::new(ChainTooLarge));
        for (error, expected) in [
            (Error::NoCertificatesPresented, Handshake::NoCertificate),
            (of(CertificateError::UnknownIssuer), Handshake::UnknownIssuer),
            (of(CertificateError::BadSignature), Handshake::UnknownIssuer),
            (of(CertificateError::Expired), Handshake::Expired),
            (of(CertificateError::ExpiredContext { time, not_after }), Handshake::Expired),
            (of(CertificateError::NotValidYet), Handshake::NotYetValid),
            (of(CertificateError::NotValidYetContext { time, not_before }), Handshake::NotYetValid),
            (of(CertificateError::Revoked), Handshake::Revoked),
            (of(CertificateError::UnknownRevocationStatus), Handshake::RevocationUnknown),
            (of(CertificateError::ExpiredRevocationList), Handshake::RevocationUnknown),
            (
                of(CertificateError::ExpiredRevocationListContext { time, next_update }),
                Handshake::RevocationUnknown,
            ),
            (of(CertificateError::InvalidPurpose), Handshake::WrongUsage),
            (of(CertificateError::BadEncoding), Handshake::BadCertificate),
            (of(CertificateError::Other(too_large)), Handshake::ChainTooLarge),
            (Error::PeerIncompatible(PeerIncompatible::NoCipherSuitesInCommon), Handshake::NothingInCommon),
            (Error::NoApplicationProtocol, Handshake::NothingInCommon),
            (Error::AlertReceived(AlertDescription::UnknownCA), Handshake::RefusedByClient),
            (Error::InvalidMessage(InvalidMessage::InvalidContentType), Handshake::Malformed),
            (Error::PeerMisbehaved(PeerMisbehaved::InvalidKeyShare), Handshake::Malformed),
            (Error::PeerSentOversizedRecord, Handshake::Malformed),
            (Error::DecryptError, Handshake::Malformed),
        ] {
            let text = format!("TLS accept() failed: tls connect error: {error}");
            assert_eq!(cause(&text), expected, "{text}");
        }
        for text in ["tls handshake eof", "unexpected eof", "Connection reset by peer (os error 104)"] {
            assert_eq!(cause(text), Handshake::ClientGone, "{text}");
        }
    }
}
