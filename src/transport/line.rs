//! One HTTP/1.1 connection, driven by the request that uses it.
//!
//! No task of its own: a wake-up of another task per call is the dearest thing on the hot path. So whoever holds the
//! line polls both halves; at rest in the pool nobody does. Not here: which line is used (`pool`), the body (`reply`).

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use hyper::client::conn::http1::{self, Connection, SendRequest};
use tokio::runtime;

use super::ClientLimits;
use super::target::Body;
use super::wire::Wire;

/// An open HTTP/1.1 connection.
pub(super) struct Line {
    sender: SendRequest<Body>,
    /// Gone once the connection has ended.
    connection: Option<Connection<Wire, Body>>,
    /// The runtime whose I/O driver wakes this socket: elsewhere it would be slow, and dead when that runtime ends.
    home: runtime::Id,
}

impl Line {
    /// Starts HTTP/1.1 on a connected stream. Writes nothing yet.
    pub(super) async fn start(wire: Wire, limits: ClientLimits) -> Result<Box<Self>, hyper::Error> {
        let (sender, connection) = http1::Builder::new()
            .max_buf_size(limits.read_buffer.max(8 * 1024))
            .max_header_size(limits.header_bytes)
            .handshake(wire)
            .await?;
        Ok(Box::new(Self { sender, connection: Some(connection), home: runtime::Handle::current().id() }))
    }

    /// The runtime that this line belongs to.
    pub(super) fn home(&self) -> runtime::Id {
        self.home
    }

    /// Whether another request can be sent now, as far as is known without looking at the socket.
    pub(super) fn is_ready(&self) -> bool {
        self.connection.is_some() && self.sender.is_ready()
    }

    /// Looks at the socket once: has the agent closed it, or sent what nobody asked for?
    pub(super) fn is_alive(&mut self) -> bool {
        // The next user registers its own waker.
        self.drive(&mut Context::from_waker(Waker::noop()));
        self.is_ready()
    }

    /// Moves bytes both ways as far as they go.
    pub(super) fn drive(&mut self, cx: &mut Context<'_>) {
        if let Some(connection) = &mut self.connection
            && Pin::new(connection).poll(cx).is_ready()
        {
            // Errors reach the response or the body, whichever is waited for.
            self.connection = None;
        }
    }

    /// Sends the request and waits for the response header. Dropped midway, the line must be dropped too.
    ///
    /// # Errors
    ///
    /// hyper's, with the request inside if and only if nothing of it was written.
    pub(super) async fn exchange(
        &mut self,
        request: Request<Body>,
    ) -> Result<Response<Incoming>, TrySendError<Request<Body>>> {
        let mut response = pin!(self.sender.try_send_request(request));
        std::future::poll_fn(|cx| {
            if let Some(connection) = &mut self.connection
                && Pin::new(connection).poll(cx).is_ready()
            {
                // Dropped, the connection answers the response: nobody waits for ever.
                self.connection = None;
            }
            match response.as_mut().poll(cx) {
                Poll::Ready(answer) => Poll::Ready(answer),
                Poll::Pending => Poll::Pending,
            }
        })
        .await
    }
}
