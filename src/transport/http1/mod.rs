//! HTTP/1.1 on one connection to an agent: writes a request, and reads the response.
//!
//! The request that uses the connection polls it: another task for the connection, and channels between both,
//! would be the highest cost of a call. No buffer stays allocated while nothing is read: bytes are read into one
//! buffer of the thread, and copied in the size in which they came, unless they fill it. With hyper a
//! stream that waits for its next event took 20 KiB more, and a call 12,000 instructions more; it
//! serves HTTP/2. An idle connection in the pool is not polled.
//!
//! See `framing` for the grammar, `upstream` for the pool, `response` for the reader of the body.

mod framing;

use std::cell::Cell;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};

use bytes::{Buf as _, Bytes, BytesMut};
use http::{HeaderMap, Method, Response, StatusCode};
use tokio::io::AsyncWrite as _;
use tokio::runtime::{self, Handle};
use tokio::task::coop::has_budget_remaining;
use tokio::time::Instant;

pub(in crate::transport) use framing::Http1Error;
pub(crate) use framing::{BodyDecoder, head_length};
use framing::{keeps_open, parse_head};

use super::ClientLimits;
use super::connect::MaybeTlsStream;
use super::read_buffer::{held_bytes, poll_read};
use super::request::OutboundRequest;
use super::upstream::UpstreamInner;
use crate::timing::ReusableTimer;

/// Bytes of informational responses (1xx) that may come before a response.
const INFORMATIONAL_BYTES: usize = 64 * 1024;
/// Size of a request that is written in one piece, in bytes: one write costs the system less than one with
/// two pieces. To copy much more would cost more than it saves.
const ONE_PIECE_BYTES: usize = 2048;
/// The maximum size of the buffer for requests that a thread keeps, in bytes.
const MAX_KEPT_BUFFER: usize = 2 * ONE_PIECE_BYTES;

/// An open HTTP/1.1 connection.
pub(in crate::transport) struct Http1Connection {
    stream: MaybeTlsStream,
    limits: ClientLimits,
    /// Bytes that were read, and not used yet.
    unread: Bytes,
    /// The size of the buffer that they are in.
    buffer: usize,
    state: ConnectionState,
    /// The trailers of the last response.
    trailers: Option<Box<HeaderMap>>,
    /// The runtime with the I/O driver that wakes this socket: elsewhere it would be slow, and dead
    /// when that runtime ends.
    home: runtime::Id,
    /// For deadlines of the request that uses this connection.
    pub(in crate::transport) alarm: ReusableTimer,
}

enum ConnectionState {
    /// A request can be sent.
    Ready,
    /// The body of a response is to be read.
    Body(Box<ResponseBody>),
    /// No other request can be sent.
    Closed,
}

/// The body of a response that is being read.
struct ResponseBody {
    decoder: BodyDecoder,
    keeps_open: bool,
    /// The rest of the request, if the response began before it was written.
    request: Option<UnsentBytes>,
}

/// An exchange before the head of the response.
struct ExchangeProgress {
    /// The request, until it is written.
    request: Option<UnsentBytes>,
    head: HeadReader,
    /// The error of a peer that closed before the request was written: it may have said why, in a response or
    /// an alert of TLS.
    write_error: Option<io::Error>,
}

/// A request without a response.
#[derive(Debug)]
pub(in crate::transport) struct UnansweredRequest {
    /// The cause.
    pub(in crate::transport) error: Http1Error,
    /// True if nothing of the request was written: it can be sent on another connection.
    pub(in crate::transport) is_unsent: bool,
}

impl From<Http1Error> for UnansweredRequest {
    fn from(error: Http1Error) -> Self {
        Self { error, is_unsent: false }
    }
}

impl Http1Connection {
    /// Starts HTTP/1.1 on a connected stream of the current runtime. Writes nothing yet.
    pub(in crate::transport) fn start(stream: MaybeTlsStream, limits: ClientLimits) -> Box<Self> {
        let (unread, state, home) = (Bytes::new(), ConnectionState::Ready, Handle::current().id());
        let (trailers, alarm) = (None, ReusableTimer::default());
        Box::new(Self { stream, limits, unread, buffer: 0, state, trailers, home, alarm })
    }

    /// Returns the runtime that this connection belongs to.
    pub(in crate::transport) fn home(&self) -> runtime::Id {
        self.home
    }

    /// Returns true if another request can be sent now, as far as is known without reading the
    /// socket.
    pub(in crate::transport) fn is_ready(&self) -> bool {
        matches!(self.state, ConnectionState::Ready)
    }

    /// Polls the socket once: returns false if the agent has closed it, or sent unrequested bytes.
    pub(in crate::transport) fn is_alive(&mut self) -> bool {
        // The next user registers its own waker.
        let mut cx = Context::from_waker(Waker::noop());
        if self.is_ready() && read(&mut self.stream, &mut cx, 1).is_ready() {
            self.state = ConnectionState::Closed;
        }
        self.is_ready()
    }

    /// Returns true if no data of a body is to be read.
    pub(in crate::transport) fn is_body_over(&self) -> bool {
        !matches!(self.state, ConnectionState::Body(_))
    }

    /// Returns the number of bytes of the body that are still to come for sure.
    pub(in crate::transport) fn announced(&self) -> u64 {
        match &self.state {
            ConnectionState::Body(body) => body.decoder.announced(),
            ConnectionState::Ready | ConnectionState::Closed => 0,
        }
    }

    /// Sends the request to this upstream, and waits for the response header; `None`
    /// if that has not come at the deadline. If this is dropped midway, too late, or fails, the connection can only be dropped.
    ///
    /// # Errors
    ///
    /// [`UnansweredRequest`], which tells if anything was written.
    pub(in crate::transport) async fn exchange(
        &mut self,
        request: &OutboundRequest<'_>,
        upstream: &UpstreamInner,
        deadline: Instant,
    ) -> Option<Result<Response<()>, UnansweredRequest>> {
        if !self.is_ready() {
            return Some(Err(UnansweredRequest { error: Http1Error::Incomplete, is_unsent: true }));
        }
        self.state = ConnectionState::Closed;
        let mut progress = ExchangeProgress {
            request: Some(UnsentBytes::new(request, upstream)),
            head: HeadReader::default(),
            write_error: None,
        };
        std::future::poll_fn(|cx| {
            let polled = self.poll_exchange(cx, request.method(), &mut progress);
            self.alarm.limit(cx, deadline, polled)
        })
        .await
    }

    fn poll_exchange(
        &mut self,
        cx: &mut Context<'_>,
        method: &Method,
        progress: &mut ExchangeProgress,
    ) -> Poll<Result<Response<()>, UnansweredRequest>> {
        if progress.write_error.is_none() {
            ready!(self.poll_request(cx, progress))?;
        }
        match (ready!(self.poll_head(cx, &mut progress.head)), progress.write_error.take()) {
            (Ok(response), write_error) => {
                // It is of no use to write the rest of a request after an error.
                let rest = progress.request.take().filter(|_| write_error.is_none());
                let begun = self.begin_body(method, &response, rest, write_error.is_none());
                Poll::Ready(begun.map(|()| response).map_err(Into::into))
            }
            (Err(Http1Error::Incomplete), Some(error)) => Poll::Ready(Err(Http1Error::from(error).into())),
            (Err(error), _) => Poll::Ready(Err(error.into())),
        }
    }

    /// Writes of the request as much as the connection takes. Pending only if it has taken nothing.
    fn poll_request(
        &mut self,
        cx: &mut Context<'_>,
        progress: &mut ExchangeProgress,
    ) -> Poll<Result<(), UnansweredRequest>> {
        let Some(request) = &mut progress.request else { return Poll::Ready(Ok(())) };
        if request.written == 0 {
            // Without a budget of tokio nothing is read, and the peer could have closed.
            if !has_budget_remaining() {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            // Before anything was written, the peer can only close, or break the protocol.
            let error = match read(&mut self.stream, cx, 1) {
                Poll::Pending => None,
                Poll::Ready(Ok(bytes)) if bytes.is_empty() => Some(Http1Error::Incomplete),
                Poll::Ready(Ok(_)) => Some(Http1Error::Unrequested),
                Poll::Ready(Err(error)) => Some(error.into()),
            };
            if let Some(error) = error {
                return Poll::Ready(Err(UnansweredRequest { error, is_unsent: true }));
            }
        }
        match request.poll_write(&mut self.stream, cx) {
            Poll::Ready(Ok(())) => progress.request = None,
            Poll::Ready(Err(error)) if request.written == 0 && self.stream.is_plain() => {
                return Poll::Ready(Err(UnansweredRequest { error: error.into(), is_unsent: true }));
            }
            Poll::Ready(Err(error)) if has_closed(&error) => progress.write_error = Some(error),
            Poll::Ready(Err(error)) => return Poll::Ready(Err(Http1Error::from(error).into())),
            Poll::Pending if request.written == 0 => return Poll::Pending,
            Poll::Pending => {}
        }
        Poll::Ready(Ok(()))
    }

    /// Reads the head of the final response.
    fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        head: &mut HeadReader,
    ) -> Poll<Result<Response<()>, Http1Error>> {
        loop {
            let buffer = head.bytes.capacity();
            if let Some((response, rest)) = head.take(self.limits.header_bytes)? {
                (self.unread, self.buffer) = (rest, buffer);
                return Poll::Ready(Ok(response));
            }
            let bytes = ready!(read(&mut self.stream, cx, self.limits.read_buffer))?;
            if bytes.is_empty() {
                return Poll::Ready(Err(Http1Error::Incomplete));
            }
            head.add(bytes);
        }
    }

    fn begin_body(
        &mut self,
        method: &Method,
        head: &Response<()>,
        request: Option<UnsentBytes>,
        is_intact: bool,
    ) -> Result<(), Http1Error> {
        let decoder = BodyDecoder::new(method, head, self.limits.header_bytes)?;
        let keeps_open = is_intact && keeps_open(head);
        self.state = ConnectionState::Body(Box::new(ResponseBody { decoder, keeps_open, request }));
        self.end_body_if_over();
        Ok(())
    }

    /// Returns true if bytes are received that were not read.
    pub(in crate::transport) fn has_unread(&self) -> bool {
        !self.unread.is_empty()
    }

    /// Returns the size of the buffer that the last data of the body is in.
    pub(in crate::transport) fn buffer_bytes(&self) -> usize {
        self.buffer
    }

    /// Returns the next data of the body, never empty; `None` after the last. The connection is closed after an
    /// error.
    pub(in crate::transport) fn poll_data(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Http1Error>>> {
        let polled = ready!(self.poll_body(cx));
        match &polled {
            Ok(_) => self.end_body_if_over(),
            Err(_) => self.state = ConnectionState::Closed,
        }
        Poll::Ready(polled.transpose())
    }

    fn poll_body(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, Http1Error>> {
        let most = self.limits.read_buffer;
        let ConnectionState::Body(body) = &mut self.state else { return Poll::Ready(Ok(None)) };
        body.poll_request(&mut self.stream, cx);
        loop {
            if let Some(data) = body.decoder.decode(&mut self.unread)? {
                return Poll::Ready(Ok(Some(data)));
            }
            if body.decoder.is_over() {
                return Poll::Ready(Ok(None));
            }
            self.unread = ready!(read(&mut self.stream, cx, most))?;
            self.buffer = held_bytes(&self.unread);
            if self.unread.is_empty() {
                body.keeps_open = false;
                body.decoder.end()?;
            }
        }
    }

    /// Returns the trailers of the response, once its body is over.
    pub(in crate::transport) fn take_trailers(&mut self) -> Option<HeaderMap> {
        self.trailers.take().map(|trailers| *trailers)
    }

    /// Makes the connection ready for the next request if the body is over.
    fn end_body_if_over(&mut self) {
        let ConnectionState::Body(body) = &mut self.state else { return };
        if !body.decoder.is_over() {
            return;
        }
        // Bytes after a response belong to no request, and could be taken for the next response.
        let is_usable = body.keeps_open && body.request.is_none() && self.unread.is_empty();
        self.trailers = body.decoder.take_trailers().map(Box::new);
        self.state = if is_usable { ConnectionState::Ready } else { ConnectionState::Closed };
        self.unread = Bytes::new();
    }
}

impl ResponseBody {
    /// Writes more of a request that is not written yet. A peer that has answered need not read it.
    fn poll_request(&mut self, stream: &mut MaybeTlsStream, cx: &mut Context<'_>) {
        let Some(request) = &mut self.request else { return };
        match request.poll_write(stream, cx) {
            Poll::Ready(Ok(())) => self.request = None,
            Poll::Ready(Err(_)) => (self.request, self.keeps_open) = (None, false),
            Poll::Pending => {}
        }
    }
}

/// The bytes of a head so far, and those after it.
#[derive(Default)]
struct HeadReader {
    bytes: BytesMut,
    /// Bytes before the head: informational responses, and empty lines.
    start: usize,
    /// Bytes in which no end was found.
    searched: usize,
}

/// The first bytes of each head.
const VERSION_START: &[u8] = b"HTTP/1.";

impl HeadReader {
    /// Adds bytes that were read.
    fn add(&mut self, bytes: Bytes) {
        match self.bytes.is_empty() {
            true => self.bytes = bytes.into(),
            false => self.bytes.extend_from_slice(&bytes),
        }
    }

    /// Takes the head of the final response, and returns it with the bytes after it; `None` if it is not whole
    /// yet.
    fn take(&mut self, most: usize) -> Result<Option<(Response<()>, Bytes)>, Http1Error> {
        loop {
            let rest = self.bytes.get(self.start..).unwrap_or_default();
            self.start += rest.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
            if self.start > INFORMATIONAL_BYTES {
                return Err(Http1Error::Informational);
            }
            let rest = self.bytes.get(self.start..).unwrap_or_default();
            // A server of another protocol may say no more.
            if rest.iter().zip(VERSION_START).any(|(byte, expected)| byte != expected) {
                return Err(Http1Error::Head(httparse::Error::Version));
            }
            let Some(end) = head_length(&self.bytes, self.searched.max(self.start)) else {
                // The end may be half here: a line feed and two bytes.
                self.searched = self.bytes.len().saturating_sub(3);
                return if rest.len() > most { Err(Http1Error::TooLarge) } else { Ok(None) };
            };
            let length = end - self.start;
            if length > most {
                return Err(Http1Error::TooLarge);
            }
            // `HTTP/1.1 1`
            if rest.get(9) == Some(&b'1') {
                let head = parse_head(&Bytes::copy_from_slice(rest.get(..length).unwrap_or_default()))?;
                if head.status() == StatusCode::SWITCHING_PROTOCOLS {
                    return Ok(Some((head, Bytes::new())));
                }
                self.start = end;
                continue;
            }
            let mut rest = std::mem::take(&mut self.bytes).freeze();
            rest.advance(self.start);
            let head = parse_head(&rest.split_to(length))?;
            return Ok(Some((head, rest)));
        }
    }
}

/// A request on its way to the agent.
struct UnsentBytes {
    /// The head; with a small body all of the request.
    head: Vec<u8>,
    body: Bytes,
    /// Bytes that the stream has taken.
    written: usize,
}

thread_local! {
    /// The buffer of the last request of this thread: most are written at once, and need none of their own.
    static HEAD_BUFFER: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

impl UnsentBytes {
    fn new(request: &OutboundRequest<'_>, upstream: &UpstreamInner) -> Self {
        let (mut head, mut body) = (HEAD_BUFFER.take(), request.body.clone());
        request.to_http1(upstream, &mut head);
        if head.len() + body.len() <= ONE_PIECE_BYTES {
            head.extend_from_slice(&std::mem::take(&mut body));
        }
        Self { head, body, written: 0 }
    }

    /// Writes all of it.
    fn poll_write(&mut self, stream: &mut MaybeTlsStream, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut stream = Pin::new(stream);
        loop {
            let head = self.head.get(self.written..).unwrap_or_default();
            let body = self.body.get(self.written.saturating_sub(self.head.len())..).unwrap_or_default();
            let count = match (head, body) {
                ([], []) => return stream.poll_flush(cx),
                (only, []) | ([], only) => ready!(stream.as_mut().poll_write(cx, only))?,
                _ => {
                    let pieces = [IoSlice::new(head), IoSlice::new(body)];
                    ready!(stream.as_mut().poll_write_vectored(cx, &pieces))?
                }
            };
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.written = self.written.saturating_add(count);
        }
    }
}

impl Drop for UnsentBytes {
    fn drop(&mut self) {
        let mut head = std::mem::take(&mut self.head);
        if head.capacity() <= MAX_KEPT_BUFFER {
            head.clear();
            // The thread may be ending.
            _ = HEAD_BUFFER.try_with(|buffer| buffer.set(head));
        }
    }
}

/// Reads at most so many bytes: none at the end of the stream.
fn read(stream: &mut MaybeTlsStream, cx: &mut Context<'_>, most: usize) -> Poll<io::Result<Bytes>> {
    let read = poll_read(stream, cx, most);
    or_flush(stream, cx, read)
}

/// Returns the result of a read. If it waits, TLS may have something to say that the peer waits for.
fn or_flush<T>(stream: &mut MaybeTlsStream, cx: &mut Context<'_>, read: Poll<T>) -> Poll<T> {
    if read.is_pending() && !stream.is_plain() {
        // An error is found by the next read too.
        _ = Pin::new(stream).poll_flush(cx);
    }
    read
}

/// Returns true for the error of a peer that has closed the connection.
fn has_closed(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
}
