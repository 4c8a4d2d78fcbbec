//! One HTTP/1.1 connection, polled by the request that uses it.
//!
//! The connection has no task of its own: a wake-up of another task per call is the highest cost on
//! the hot path. So the holder of the connection polls both halves; an idle one in the pool is not
//! polled. See also `pool` for its choice and `response` for the body.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use hyper::client::conn::http1::{self, Connection, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::runtime;
use tokio::time::Instant;

use super::ClientLimits;
use super::coalescing_waker::CoalescingWaker;
use super::io::{MaybeTlsStream, ReadBudget};
use super::upstream::OutboundBody;
use crate::alarm::ReusableTimer;

/// Bytes of informational responses (1xx) that may come before a response.
const INFORMATIONAL_BYTES: usize = 64 * 1024;

/// An open HTTP/1.1 connection.
pub(super) struct Http1Connection {
    sender: SendRequest<OutboundBody>,
    /// `None` once the connection has ended.
    connection: Option<Connection<TokioIo<MaybeTlsStream>, OutboundBody>>,
    budget: Arc<ReadBudget>,
    /// Bytes that may be read before a response is known: all of its header, and the bytes after it
    /// in the same reads.
    head_bytes: usize,
    /// The runtime with the I/O driver that wakes this socket: elsewhere it would be slow, and dead
    /// when that runtime ends.
    home: runtime::Id,
    /// For deadlines of the request that uses this connection.
    pub(super) alarm: ReusableTimer,
    bell: CoalescingWaker,
}

impl Http1Connection {
    /// Starts HTTP/1.1 on a connected stream. Writes nothing yet.
    pub(super) async fn start(wire: MaybeTlsStream, limits: ClientLimits) -> Result<Box<Self>, hyper::Error> {
        let read_buffer = limits.read_buffer.max(8 * 1024);
        let head_bytes = limits.header_bytes.saturating_add(read_buffer).saturating_add(INFORMATIONAL_BYTES);
        let budget = wire.budget();
        let (sender, connection) = http1::Builder::new()
            .max_buf_size(read_buffer)
            .max_header_size(limits.header_bytes)
            .handshake(TokioIo::new(wire))
            .await?;
        let (connection, home) = (Some(connection), runtime::Handle::current().id());
        let (alarm, bell) = (ReusableTimer::default(), CoalescingWaker::new());
        Ok(Box::new(Self { sender, connection, budget, head_bytes, home, alarm, bell }))
    }

    /// Returns the runtime that this connection belongs to.
    pub(super) fn return_to_pool(&self) -> runtime::Id {
        self.home
    }

    /// Returns true if another request can be sent now, as far as is known without reading the
    /// socket.
    pub(super) fn is_ready(&self) -> bool {
        self.connection.is_some() && self.sender.is_ready()
    }

    /// Polls the socket once: returns false if the agent has closed it, or sent unrequested bytes.
    pub(super) fn is_alive(&mut self) -> bool {
        // The next user registers its own waker.
        drive(&mut self.connection, &mut Context::from_waker(Waker::noop()));
        self.is_ready()
    }

    /// Polls for an event of this connection, and moves bytes both ways as far as possible.
    pub(super) fn poll<T>(
        &mut self,
        cx: &mut Context<'_>,
        mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        let connection = &mut self.connection;
        self.bell.poll_with(cx, |cx| match poll(cx) {
            Poll::Pending => {
                drive(connection, cx);
                poll(cx)
            }
            ready => ready,
        })
    }

    /// Sends the request and waits for the response header; `None` if that has not come at the
    /// deadline. If this is dropped midway or too late, the connection must be dropped too.
    ///
    /// # Errors
    ///
    /// hyper's error, with the request inside if and only if nothing of it was written.
    pub(super) async fn exchange(
        &mut self,
        request: Request<OutboundBody>,
        deadline: Instant,
    ) -> Option<Result<Response<Incoming>, TrySendError<Request<OutboundBody>>>> {
        self.budget.set(self.head_bytes);
        let mut response = pin!(self.sender.try_send_request(request));
        let answered = std::future::poll_fn(|cx| {
            let answered = self.bell.poll_with(cx, |cx| {
                drive(&mut self.connection, cx);
                response.as_mut().poll(cx)
            });
            self.alarm.limit(cx, deadline, answered)
        })
        .await;
        self.budget.lift();
        answered
    }
}

/// Moves bytes both ways as far as possible.
fn drive(connection: &mut Option<Connection<TokioIo<MaybeTlsStream>, OutboundBody>>, cx: &mut Context<'_>) {
    if let Some(there) = connection
        && Pin::new(there).poll(cx).is_ready()
    {
        // Errors reach the response or the body, depending on which is awaited: a drop resolves
        // both.
        *connection = None;
    }
}
