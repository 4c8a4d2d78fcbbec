//! A connection that lasts no longer than its client's certificate.
//!
//! Requests are rejected one by one (see `gateway`), but an open event stream makes none. The HTTP
//! layer sees the expiry as a client disconnect. See `auth` for the validity of a certificate.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use pingora::protocols::Shutdown;
use pingora::protocols::l4::stream::Stream as Socket;
use pingora::protocols::tls::TlsStream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::auth::ClientCertificate;
use crate::server::forward_stream_traits;
use crate::sync::recover;

/// The time between the end of a certificate and that of the connection: a request on its way gets
/// the reason of its rejection.
const GRACE: Duration = Duration::from_secs(5);

/// A TLS connection of a client with a certificate.
pub(super) struct ExpiringStream {
    stream: TlsStream<Socket>,
    /// Never locked, only reached through `&mut`: a future alone cannot be shared.
    over: Mutex<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl ExpiringStream {
    pub(super) fn new(stream: TlsStream<Socket>, certificate: Arc<ClientCertificate>) -> Self {
        Self { stream, over: Mutex::new(Box::pin(is_expired(certificate))) }
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

impl AsyncRead for ExpiringStream {
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
        let over = recover(this.over.get_mut());
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

impl AsyncWrite for ExpiringStream {
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
impl Shutdown for ExpiringStream {
    async fn shutdown(&mut self) {
        Shutdown::shutdown(&mut self.stream).await;
    }
}

forward_stream_traits!(ExpiringStream, stream);
