//! The connections of the client: HTTP/1.1, polled by the request that uses it, and HTTP/2, shared
//! by many requests and driven by a task in the background.
//!
//! A connection of HTTP/1.1 has no task of its own: a wake-up of another task per call is the highest
//! cost on the hot path. So the holder of the connection polls both halves; an idle one in the pool
//! is not polled. It and the body that is read from it wake each other whenever one of them moves.
//! Polled by one task, each such wake-up would run the whole task once more for nothing: twice for
//! every event of a stream. So a wake-up during the poll only makes the holder poll the connection
//! once more.
//!
//! See also `upstream` for the pool that chooses one, and `response` for the body.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http1, http2};
use hyper::rt::Executor;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::runtime::{self, Handle};
use tokio::time::Instant;

use super::ClientLimits;
use super::connect::{MaybeTlsStream, ReadBudget};
use super::upstream::OutboundBody;
use crate::sync::lock;
use crate::timing::ReusableTimer;

/// Bytes of informational responses (1xx) that may come before a response.
const INFORMATIONAL_BYTES: usize = 64 * 1024;

/// An open HTTP/1.1 connection.
pub(super) struct Http1Connection {
    sender: http1::SendRequest<OutboundBody>,
    /// `None` once the connection has ended.
    connection: Option<http1::Connection<TokioIo<MaybeTlsStream>, OutboundBody>>,
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
        let (connection, home) = (Some(connection), Handle::current().id());
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
fn drive(
    connection: &mut Option<http1::Connection<TokioIo<MaybeTlsStream>, OutboundBody>>,
    cx: &mut Context<'_>,
) {
    if let Some(there) = connection
        && Pin::new(there).poll(cx).is_ready()
    {
        // Errors reach the response or the body, depending on which is awaited: a drop resolves
        // both.
        *connection = None;
    }
}

/// No poll is running: a wake-up goes to the last task that polled.
const ATTENDED: u8 = 0;
/// A poll is running.
const DRIVEN: u8 = 1;
/// A poll is running, and a wake-up came since.
const RUNG: u8 = 2;

/// The maximum number of polls in a row before other tasks get their turn.
const MAX_REPOLLS: usize = 4;

struct WakerState {
    state: AtomicU8,
    driver: Mutex<Waker>,
}

/// The waker of one connection.
struct CoalescingWaker {
    inside: Arc<WakerState>,
    waker: Waker,
}

impl CoalescingWaker {
    fn new() -> Self {
        let inside = Arc::new(WakerState {
            state: AtomicU8::new(ATTENDED),
            driver: Mutex::new(Waker::noop().clone()),
        });
        Self { waker: Waker::from(Arc::clone(&inside)), inside }
    }

    /// Polls with a waker that wakes the task of `cx` only after this has returned. Polls again if
    /// a wake-up came meanwhile.
    fn poll_with<T>(
        &self,
        cx: &mut Context<'_>,
        mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        self.inside.woken_by(cx.waker());
        for _ in 0..MAX_REPOLLS {
            self.inside.state.store(DRIVEN, Ordering::SeqCst);
            let polled = poll(&mut Context::from_waker(&self.waker));
            let has_rung = self.inside.state.swap(ATTENDED, Ordering::SeqCst) == RUNG;
            if polled.is_ready() || !has_rung {
                return polled;
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

impl WakerState {
    fn woken_by(&self, task: &Waker) {
        let mut driver = lock(&self.driver);
        driver.clone_from(task);
    }
}

impl Wake for WakerState {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let rung = self.state.compare_exchange(DRIVEN, RUNG, Ordering::SeqCst, Ordering::SeqCst);
        if rung == Err(ATTENDED) {
            lock(&self.driver).wake_by_ref();
        }
    }
}

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
    trunk: Http2Connection,
    /// For deadlines of the request on this stream.
    pub(super) alarm: ReusableTimer,
}

impl Http2Connection {
    /// Starts HTTP/2 on a connected stream. Must run on the runtime of `background`, which drives
    /// it.
    pub(super) async fn start(
        wire: MaybeTlsStream,
        limits: ClientLimits,
        keep_alive: Http2KeepAlive,
        background: &Handle,
    ) -> Result<Self, hyper::Error> {
        let budget = wire.budget();
        budget.set(UNHEARD_BYTES);
        let (sender, connection) = http2::Builder::new(RuntimeExecutor(background.clone()))
            .timer(TokioTimer::new())
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_header_list_size(u32::try_from(limits.header_bytes).unwrap_or(u32::MAX))
            .keep_alive_interval(keep_alive.interval)
            .keep_alive_timeout(PONG_WITHIN)
            .keep_alive_while_idle(keep_alive.while_idle)
            .handshake(TokioIo::new(wire))
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
            .map(|_| StreamPermit { trunk: self.clone(), alarm: ReusableTimer::default() })
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
    pub(super) fn trunk(&self) -> &Http2Connection {
        &self.trunk
    }

    /// Records that bytes of the response have reached the request.
    pub(super) fn heard(&self) {
        self.trunk.budget.set(UNHEARD_BYTES);
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
        let mut response = pin!(self.trunk.sender.try_send_request(request));
        let answered = std::future::poll_fn(|cx| {
            let answered = response.as_mut().poll(cx);
            self.alarm.limit(cx, deadline, answered)
        })
        .await;
        if let Some(Ok(_)) = &answered {
            self.trunk.budget.set(UNHEARD_BYTES);
        }
        answered
    }
}

impl Drop for StreamPermit {
    fn drop(&mut self) {
        self.trunk.count.open.fetch_sub(1, Ordering::AcqRel);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Task(AtomicUsize);

    impl Wake for Task {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Wakes as often as given, each time it is polled, and keeps the waker.
    fn poll(bell: &CoalescingWaker, task: &Arc<Task>, rings: usize) -> (Poll<()>, usize, Waker) {
        let (mut polls, mut kept) = (0, None);
        let polled = bell.poll_with(&mut Context::from_waker(&Waker::from(task.clone())), |cx| {
            polls += 1;
            if polls <= rings {
                cx.waker().wake_by_ref();
            }
            kept = Some(cx.waker().clone());
            Poll::Pending
        });
        (polled, polls, kept.unwrap())
    }

    #[test]
    fn wake_during_a_poll_is_not_lost() {
        let (bell, task) = (CoalescingWaker::new(), Arc::new(Task::default()));
        for rings in 0..MAX_REPOLLS {
            let (polled, polls, _) = poll(&bell, &task, rings);
            assert_eq!((polled, polls), (Poll::Pending, rings + 1));
        }
        assert_eq!(task.0.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn busy_connection_yields() {
        let (bell, task) = (CoalescingWaker::new(), Arc::new(Task::default()));
        let (polled, polls, _) = poll(&bell, &task, usize::MAX);
        assert_eq!((polled, polls, task.0.load(Ordering::SeqCst)), (Poll::Pending, MAX_REPOLLS, 1));
    }

    #[test]
    fn later_wakes_reach_the_last_poller() {
        let (bell, first, second) =
            (CoalescingWaker::new(), Arc::new(Task::default()), Arc::new(Task::default()));
        let (.., kept) = poll(&bell, &first, 0);
        kept.wake_by_ref();
        let (.., same) = poll(&bell, &second, 0);
        kept.wake();
        same.wake();
        assert_eq!((first.0.load(Ordering::SeqCst), second.0.load(Ordering::SeqCst)), (1, 2));
    }
}
