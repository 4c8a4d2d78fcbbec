//! HTTP/2 connections to agents, by hyper: shared by many requests, and driven by a task in the background.
//!
//! See also `upstream` for the pool that chooses one, and `response` for the body.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http2};
use hyper::rt::Executor;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::runtime::Handle;
use tokio::time::Instant;

use super::ClientLimits;
use super::connect::{MaybeTlsStream, ReadBudget};
use super::upstream::OutboundBody;
use crate::timing::ReusableTimer;

const STREAM_WINDOW: u32 = 256 * 1024;
const CONNECTION_WINDOW: u32 = 1024 * 1024;
const PONG_WITHIN: Duration = Duration::from_secs(10);
/// The number of streams above which another connection is opened, even if the agent allows more.
const STREAMS: usize = 200;
/// Bytes that are read while no request receives any; several times the window of the connection,
/// which bounds the data among them. The rest are informational responses and frames that no
/// request asked for.
const UNHEARD_BYTES: usize = 4 * 1024 * 1024;

/// The pings that keep a connection open.
#[derive(Debug, Clone, Copy)]
pub(super) struct Http2KeepAlive {
    interval: Duration,
    while_idle: bool,
}

impl Http2KeepAlive {
    pub(super) const COMMON: Self = Self { interval: Duration::from_secs(20), while_idle: true };
    /// Servers of gRPC close a connection with pings at less than 5 minutes, or without a request
    /// (`too_many_pings`).
    pub(super) const GRPC: Self = Self { interval: Duration::from_secs(330), while_idle: false };
}

/// An open HTTP/2 connection. Clones share it.
#[derive(Clone)]
pub(super) struct Http2Connection {
    sender: http2::SendRequest<OutboundBody>,
    count: Arc<StreamCount>,
    budget: Arc<ReadBudget>,
}

struct StreamCount {
    /// Streams under way.
    open: AtomicUsize,
    /// Streams that the agent allows now.
    most: AtomicUsize,
}

/// The permit for one stream of a connection, released when it is dropped.
pub(super) struct StreamPermit {
    connection: Http2Connection,
    /// For deadlines of the request on this stream.
    pub(super) alarm: ReusableTimer,
}

impl Http2Connection {
    /// Starts HTTP/2 on a connected stream. Must run on the runtime of `background`, which drives
    /// it.
    pub(super) async fn start(
        stream: MaybeTlsStream,
        limits: ClientLimits,
        keep_alive: Http2KeepAlive,
        background: &Handle,
    ) -> Result<Self, hyper::Error> {
        let budget = stream.budget();
        budget.set(UNHEARD_BYTES);
        let (sender, connection) = http2::Builder::new(RuntimeExecutor(background.clone()))
            .timer(TokioTimer::new())
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_header_list_size(u32::try_from(limits.header_bytes).unwrap_or(u32::MAX))
            .keep_alive_interval(keep_alive.interval)
            .keep_alive_timeout(PONG_WITHIN)
            .keep_alive_while_idle(keep_alive.while_idle)
            .handshake(TokioIo::new(stream))
            .await?;
        let most = AtomicUsize::new(connection.current_max_send_streams());
        let count = Arc::new(StreamCount { open: AtomicUsize::new(0), most });
        drop(background.spawn(run_to_end(connection, Arc::clone(&count))));
        Ok(Self { sender, count, budget })
    }

    /// Acquires a stream permit, unless the connection has ended or is full.
    pub(super) fn join(&self) -> Option<StreamPermit> {
        if !self.is_alive() {
            return None;
        }
        let most = self.count.most.load(Ordering::Relaxed).min(STREAMS);
        self.count
            .open
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |open| (open < most).then_some(open + 1))
            .ok()
            .map(|_| StreamPermit { connection: self.clone(), alarm: ReusableTimer::default() })
    }

    /// Returns true if requests can still be sent.
    pub(super) fn is_alive(&self) -> bool {
        !self.sender.is_closed()
    }

    /// Returns the number of requests under way.
    pub(super) fn streams(&self) -> usize {
        self.count.open.load(Ordering::Acquire)
    }

    /// Returns true if both are the same connection.
    pub(super) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.count, &other.count)
    }
}

impl StreamPermit {
    /// Returns the connection of this stream.
    pub(super) fn connection(&self) -> &Http2Connection {
        &self.connection
    }

    /// Records that bytes of the response have reached the request.
    pub(super) fn heard(&self) {
        self.connection.budget.set(UNHEARD_BYTES);
    }

    /// Sends the request and waits for the response header; `None` if that has not come at the
    /// deadline. If this is dropped midway or too late, the stream is reset.
    ///
    /// # Errors
    ///
    /// hyper's error, with the request inside if and only if nothing of it was written.
    pub(super) async fn exchange(
        &mut self,
        request: Request<OutboundBody>,
        deadline: Instant,
    ) -> Option<Result<Response<Incoming>, TrySendError<Request<OutboundBody>>>> {
        let mut response = pin!(self.connection.sender.try_send_request(request));
        let answered = std::future::poll_fn(|cx| {
            let answered = response.as_mut().poll(cx);
            self.alarm.limit(cx, deadline, answered)
        })
        .await;
        if let Some(Ok(_)) = &answered {
            self.connection.budget.set(UNHEARD_BYTES);
        }
        answered
    }
}

impl Drop for StreamPermit {
    fn drop(&mut self) {
        self.connection.count.open.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Runs the connection to its end and updates the number of streams, which the agent may change.
async fn run_to_end(
    mut connection: http2::Connection<TokioIo<MaybeTlsStream>, OutboundBody, RuntimeExecutor>,
    count: Arc<StreamCount>,
) {
    std::future::poll_fn(|cx| {
        let polled = Pin::new(&mut connection).poll(cx);
        count.most.store(connection.current_max_send_streams(), Ordering::Relaxed);
        // Errors have reached the requests.
        polled.map(drop)
    })
    .await;
}

/// Runs hyper's tasks on a fixed runtime, not on that of the caller.
#[derive(Clone)]
struct RuntimeExecutor(Handle);

impl<F> Executor<F> for RuntimeExecutor
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, task: F) {
        // Boxed: the memory of a task stays until all its wakers are gone, and that of a request's body with a
        // stream; that of a box goes with the end of the future.
        drop(self.0.spawn(Box::pin(task)));
    }
}
