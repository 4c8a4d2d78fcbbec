//! One HTTP/1.1 connection, driven by the request that uses it.
//!
//! No task of its own: a wake-up of another task per call is the dearest thing on the hot path. So whoever holds the
//! line polls both halves; at rest in the pool nobody does. Not here: which line is used (`pool`), the body (`reply`).

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
    /// Gone once the connection has ended.
    connection: Option<Connection<TokioIo<MaybeTlsStream>, OutboundBody>>,
    budget: Arc<ReadBudget>,
    /// Bytes that may be read before a response is known: all of its header, and what follows that in the same reads.
    head_bytes: usize,
    /// The runtime whose I/O driver wakes this socket: elsewhere it would be slow, and dead when that runtime ends.
    home: runtime::Id,
    /// For whoever waits for something from this connection.
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

    /// The runtime that this line belongs to.
    pub(super) fn return_to_pool(&self) -> runtime::Id {
        self.home
    }

    /// Whether another request can be sent now, as far as is known without looking at the socket.
    pub(super) fn is_ready(&self) -> bool {
        self.connection.is_some() && self.sender.is_ready()
    }

    /// Looks at the socket once: has the agent closed it, or sent what nobody asked for?
    pub(super) fn is_alive(&mut self) -> bool {
        // The next user registers its own waker.
        drive(&mut self.connection, &mut Context::from_waker(Waker::noop()));
        self.is_ready()
    }

    /// Polls for something that comes by this connection, and moves bytes both ways as far as they go.
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

    /// Sends the request and waits for the response header; `None` if that has not come at the deadline. Dropped midway or too late,
    /// the line must be dropped too.
    ///
    /// # Errors
    ///
    /// hyper's, with the request inside if and only if nothing of it was written.
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

/// Moves bytes both ways as far as they go.
fn drive(connection: &mut Option<Connection<TokioIo<MaybeTlsStream>, OutboundBody>>, cx: &mut Context<'_>) {
    if let Some(there) = connection
        && Pin::new(there).poll(cx).is_ready()
    {
        // Errors reach the response or the body, whichever is waited for: dropped, it answers both.
        *connection = None;
    }
}
