//! A response after its header was received, while its body is still being read.
//!
//! Once the body is read to its end, its connection goes back to the pool; dropped before, the
//! connection is closed (HTTP/2: the stream is reset).

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, TRANSFER_ENCODING};
use http::response::Parts;
use http::{HeaderMap, StatusCode, Version};
use hyper::body::{Body as _, Incoming};
use tokio::time::Instant;

use super::error::{ExchangeError, TransportError};
use super::http1::Http1Connection;
use super::http2::StreamPermit;
use super::upstream::Upstream;
use crate::quota::{AnswerRoom, NoRoomError};
use crate::timing::after;

/// A response of an agent. Small: it is moved from layer to layer.
pub struct Response {
    inside: Box<BodyState>,
}

struct BodyState {
    head: Parts,
    /// The body on a stream of HTTP/2.
    body: Option<Incoming>,
    handle: ConnectionHandle,
    target: Upstream,
    /// The time since which there has been nothing to read. The clock is not read while bytes are
    /// available.
    silent_since: Option<Instant>,
    give_up: Instant,
    header_lines: usize,
    trailers: Option<HeaderMap>,
    /// The size of the buffer that the last chunk is in, as far as it is known.
    buffer: usize,
    /// Polls so far, for the deadline: a peer that always has more to read ends there too.
    polls: u32,
    /// Only held, while the body is read.
    held: Option<Box<dyn Send + Sync>>,
}

/// The number of polls after which the clock is read although there are bytes to read.
const POLLS_PER_LOOK: u32 = 64;

/// The connection of the body.
pub(super) enum ConnectionHandle {
    /// An HTTP/1.1 connection of our own.
    Http1(Box<Http1Connection>),
    /// A stream of a shared HTTP/2 connection.
    Http2(StreamPermit),
    /// None any more: the body has been read to its end.
    Ended,
    /// None any more: the body failed.
    Failed,
}

impl Response {
    /// Checks the header of a response and takes over its body. `give_up` ends the exchange.
    pub(super) fn new(
        response: http::Response<()>,
        body: Option<Incoming>,
        handle: ConnectionHandle,
        target: Upstream,
        give_up: Instant,
        header_lines: usize,
    ) -> Result<Self, TransportError> {
        let (head, ()) = response.into_parts();
        check(&head, header_lines)?;
        let (silent_since, trailers, polls, held) = (None, None, 0, None);
        let inside = BodyState {
            head,
            body,
            handle,
            target,
            silent_since,
            give_up,
            header_lines,
            trailers,
            buffer: 0,
            polls,
            held,
        };
        let mut reply = Self { inside: Box::new(inside) };
        if reply.has_no_more() {
            reply.finish();
        }
        Ok(reply)
    }

    /// Returns the response, with `what` attached until the body has been read, or the response is
    /// dropped.
    #[must_use]
    pub fn holding(mut self, what: impl Send + Sync + 'static) -> Self {
        if !self.is_over() {
            self.inside.held = Some(Box::new(what));
        }
        self
    }

    /// Returns the status as the agent sent it: redirects are not followed.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        self.inside.head.status
    }

    /// Returns the header of the response. Nothing of it may reach a client unless it is on a list.
    #[must_use]
    pub fn headers(&self) -> &HeaderMap {
        &self.inside.head.headers
    }

    /// Forgets the header: its values would keep the buffer in which it was read as long as the response
    /// lasts.
    pub fn forget_headers(&mut self) {
        self.inside.head.headers = HeaderMap::new();
    }

    /// Returns the trailers of the response, once its body has been read to its end. They are part of
    /// the header for [`ClientLimits`](super::ClientLimits).
    #[must_use]
    pub fn trailers(&self) -> Option<&HeaderMap> {
        self.inside.trailers.as_ref()
    }

    /// Returns the protocol version of the response.
    #[must_use]
    pub fn version(&self) -> Version {
        self.inside.head.version
    }

    /// Returns false if the next chunk is not there before more of the connection is read.
    #[must_use]
    pub(crate) fn may_have_chunk(&self) -> bool {
        match &self.inside.handle {
            ConnectionHandle::Http1(connection) => connection.has_unread(),
            _ => true,
        }
    }

    /// Returns the time since which the next chunk is waited for; `None` while none is.
    #[must_use]
    pub(crate) fn silent_since(&self) -> Option<Instant> {
        self.inside.silent_since
    }

    /// Returns true if the body has been read to its end.
    #[must_use]
    pub fn is_over(&self) -> bool {
        matches!(self.inside.handle, ConnectionHandle::Ended)
    }

    /// Waits for the next chunk of the body; `None` after the last.
    ///
    /// Cancel-safe: a dropped future loses no byte, and the silence is measured from the moment
    /// when all received bytes were read, not from the call. An end that the agent did not announce
    /// is an error, never `None` (except for a plain-text HTTP/1.0 style body without any length,
    /// which is indistinguishable).
    ///
    /// # Errors
    ///
    /// [`TransportError::IdleTimeout`], [`TransportError::TotalTimeout`],
    /// [`TransportError::Broken`] or [`TransportError::Truncated`]. The connection is closed then,
    /// and later calls fail too.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, TransportError> {
        match self.inside.handle {
            ConnectionHandle::Ended => return Ok(None),
            ConnectionHandle::Failed => return Err(TransportError::Truncated),
            ConnectionHandle::Http1(_) | ConnectionHandle::Http2(_) => {}
        }
        let polled = std::future::poll_fn(|cx| {
            if self.is_overdue() {
                return Poll::Ready(None);
            }
            match self.poll_data(cx) {
                Poll::Ready(data) => Poll::Ready(Some(data)),
                Poll::Pending => self.poll_deadline(cx).map(|()| None),
            }
        });
        let outcome = match polled.await {
            Some(Some(Ok(data))) => Ok(Some(data)),
            Some(None) if self.is_cut() => Err(TransportError::Truncated),
            Some(None) if self.trailers().is_some_and(|all| all.len() > self.inside.header_lines) => {
                Err(TransportError::HeaderTooLarge)
            }
            Some(None) => Ok(None),
            Some(Some(Err(error))) => Err(TransportError::after_sending(error, false)),
            None if self.deadline() == self.inside.give_up => Err(TransportError::TotalTimeout),
            None => Err(TransportError::IdleTimeout),
        };
        match &outcome {
            Ok(Some(_)) if self.has_no_more() => self.finish(),
            Ok(Some(_)) => self.heard(),
            Ok(None) => self.finish(),
            Err(error) => {
                if matches!(error, TransportError::IdleTimeout | TransportError::TotalTimeout) {
                    self.retire();
                }
                self.fail();
            }
        }
        outcome
    }

    /// Reads the whole body.
    ///
    /// # Errors
    ///
    /// [`TransportError::TooLarge`] as soon as the body is, or is announced as, over `limit` bytes;
    /// [`TransportError::TooManyPieces`]; otherwise as [`Response::chunk`]. The connection is
    /// closed then.
    pub async fn collect(&mut self, limit: usize) -> Result<Bytes, TransportError> {
        self.gather(limit, |_| Ok(())).await
    }

    /// Reads the whole body into the room of a response: its bytes are counted before they are
    /// held, announced ones at once.
    ///
    /// # Errors
    ///
    /// As [`Response::collect`], and [`TransportError::NoRoom`].
    pub async fn collect_in(&mut self, room: &mut AnswerRoom) -> Result<Bytes, TransportError> {
        self.gather(room.limit, |bytes| room.permit.set(bytes)).await
    }

    async fn gather(
        &mut self,
        limit: usize,
        mut count: impl FnMut(usize) -> Result<(), NoRoomError>,
    ) -> Result<Bytes, TransportError> {
        let announced = self.announced();
        if announced > limit as u64 {
            self.fail();
            return Err(TransportError::TooLarge { limit });
        }
        let announced = usize::try_from(announced).unwrap_or(limit);
        self.counted(count(announced))?;
        // Nearly every body comes in one chunk, which is returned without a copy.
        let mut pieces = BodyPieces::default();
        let Some(first) = self.next_chunk(&mut pieces, limit).await? else { return Ok(Bytes::new()) };
        let buffer = self.inside.buffer;
        let Some(second) = self.next_chunk(&mut pieces, limit).await? else {
            return Ok(if is_sparse(first.len(), buffer) { Bytes::copy_from_slice(&first) } else { first });
        };
        let mut whole = BytesMut::with_capacity(announced.max(first.len() + second.len()));
        whole.extend_from_slice(&first);
        drop(first);
        let mut next = Some(second);
        while let Some(piece) = next {
            self.counted(count(announced.max(whole.len() + piece.len())))?;
            whole.extend_from_slice(&piece);
            next = self.next_chunk(&mut pieces, limit).await?;
        }
        Ok(without_room(whole))
    }

    /// Closes the connection if there is no room for its bytes.
    fn counted(&mut self, counted: Result<(), NoRoomError>) -> Result<(), TransportError> {
        counted.map_err(|error| {
            self.fail();
            TransportError::NoRoom(error)
        })
    }

    /// Returns the next chunk of a body of at most `limit` bytes.
    async fn next_chunk(
        &mut self,
        pieces: &mut BodyPieces,
        limit: usize,
    ) -> Result<Option<Bytes>, TransportError> {
        let Some(data) = self.chunk().await? else { return Ok(None) };
        let fits = pieces.add(data.len());
        let refused = if pieces.bytes() > limit { Some(TransportError::TooLarge { limit }) } else { None };
        match refused.or_else(|| (!fits).then_some(TransportError::TooManyPieces)) {
            None => Ok(Some(data)),
            Some(error) => {
                self.fail();
                Err(error)
            }
        }
    }

    /// Returns true if no data is left to read.
    fn has_no_more(&self) -> bool {
        match &self.inside.handle {
            ConnectionHandle::Http1(connection) => connection.is_body_over(),
            _ => self.inside.body.as_ref().is_none_or(Incoming::is_end_stream),
        }
    }

    /// Returns the number of bytes that are still to come for sure.
    fn announced(&self) -> u64 {
        match &self.inside.handle {
            ConnectionHandle::Http1(connection) => connection.announced(),
            _ => self.inside.body.as_ref().map_or(0, |body| body.size_hint().lower()),
        }
    }

    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, ExchangeError>>> {
        let BodyState { handle, body, trailers, buffer, .. } = &mut *self.inside;
        let frame = match (handle, body) {
            (ConnectionHandle::Http1(connection), _) => {
                let polled = ready!(connection.poll_data(cx));
                *buffer = connection.buffer_bytes();
                if polled.is_none() {
                    *trailers = connection.take_trailers();
                }
                return Poll::Ready(polled.map(|data| data.map_err(ExchangeError::Http1)));
            }
            (_, None) => return Poll::Ready(None),
            (_, Some(body)) => match ready!(Pin::new(body).poll_frame(cx)) {
                Some(Ok(frame)) => frame,
                Some(Err(error)) => return Poll::Ready(Some(Err(error.into()))),
                None => return Poll::Ready(None),
            },
        };
        match frame.into_data() {
            Ok(data) if !data.is_empty() => return Poll::Ready(Some(Ok(data))),
            Ok(_) => {}
            Err(other) => *trailers = other.into_trailers().ok().or(trailers.take()),
        }
        // The deadlines are checked before the next frame.
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Returns true if the exchange has taken too long, checked every few polls.
    fn is_overdue(&mut self) -> bool {
        let BodyState { polls, give_up, .. } = &mut *self.inside;
        *polls = polls.wrapping_add(1);
        polls.is_multiple_of(POLLS_PER_LOOK) && Instant::now() >= *give_up
    }

    /// Records that a chunk has been read.
    fn heard(&mut self) {
        self.inside.silent_since = None;
        if let ConnectionHandle::Http2(stream) = &self.inside.handle {
            stream.heard();
        }
    }

    /// Removes a shared connection on which a response did not come in time from the pool.
    fn retire(&self) {
        if let ConnectionHandle::Http2(stream) = &self.inside.handle {
            self.inside.target.origin.pool.forget(stream.connection());
        }
    }

    /// Returns ready once the next chunk is too late.
    fn poll_deadline(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.inside.silent_since.get_or_insert_with(Instant::now);
        let deadline = self.deadline();
        match &mut self.inside.handle {
            ConnectionHandle::Http1(connection) => connection.alarm.poll(cx, deadline),
            ConnectionHandle::Http2(stream) => stream.alarm.poll(cx, deadline),
            ConnectionHandle::Ended | ConnectionHandle::Failed => Poll::Ready(()),
        }
    }

    /// Returns the deadline of the next chunk.
    fn deadline(&self) -> Instant {
        let BodyState { silent_since, target, give_up, .. } = &*self.inside;
        silent_since.map_or(*give_up, |since| after(since, target.timeouts.idle).min(*give_up))
    }

    /// Returns true if a body that seems complete was in fact cut: an HTTP/2 stream can be reset
    /// "without error".
    fn is_cut(&self) -> bool {
        matches!(self.inside.handle, ConnectionHandle::Http2(_)) && !self.has_no_more()
    }

    /// Closes the connection.
    fn fail(&mut self) {
        (self.inside.handle, self.inside.held) = (ConnectionHandle::Failed, None);
    }

    /// Returns the connection to the pool.
    fn finish(&mut self) {
        self.inside.held = None;
        let is_certain = has_one_end(&self.inside.head.headers);
        if let ConnectionHandle::Http1(connection) =
            std::mem::replace(&mut self.inside.handle, ConnectionHandle::Ended)
            && is_certain
            && connection.is_ready()
        {
            self.inside.target.origin.pool.put_idle(connection);
        }
    }
}

/// Returns true unless the response states its end in two ways: bytes after it might be read as
/// another response (RFC 9112 §6.3).
fn has_one_end(headers: &HeaderMap) -> bool {
    !(headers.contains_key(TRANSFER_ENCODING) && headers.contains_key(CONTENT_LENGTH))
}

fn check(head: &Parts, header_lines: usize) -> Result<(), TransportError> {
    if head.status == StatusCode::SWITCHING_PROTOCOLS {
        return Err(TransportError::Unasked("another protocol"));
    }
    if head.headers.len() > header_lines {
        return Err(TransportError::HeaderTooLarge);
    }
    let plain = head.headers.get_all(CONTENT_ENCODING).iter().all(|value| value.as_bytes() == b"identity");
    let framed = head
        .headers
        .get_all(TRANSFER_ENCODING)
        .iter()
        .all(|value| value.as_bytes().eq_ignore_ascii_case(b"chunked"));
    if plain && framed { Ok(()) } else { Err(TransportError::Encoded) }
}

/// The size of a buffer of which a body may be any part: a text of a larger one may be kept within it (`jsonrpc::shared_body`).
const FREE_BUFFER: usize = 16 * 1024;

/// Returns true if so many bytes would hold a large buffer that is larger by more than a third.
pub(crate) fn is_sparse(bytes: usize, buffer: usize) -> bool {
    buffer > FREE_BUFFER && bytes < buffer / 4 * 3
}

/// Returns a body that was put together; a copy of it, if its buffer grew much larger.
pub(crate) fn without_room(whole: BytesMut) -> Bytes {
    if is_sparse(whole.len(), whole.capacity()) { Bytes::copy_from_slice(&whole) } else { whole.freeze() }
}

/// The number of chunks that any body may have.
const FREE_PIECES: usize = 16 * 1024;
/// Bytes that permit one chunk more.
const BYTES_PER_PIECE: usize = 64;

/// The chunks of one body so far.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct BodyPieces {
    count: usize,
    bytes: usize,
}

impl BodyPieces {
    /// Counts a chunk of this many bytes. Returns false once there are too many.
    #[must_use]
    pub(crate) fn add(&mut self, bytes: usize) -> bool {
        self.count = self.count.saturating_add(1);
        self.bytes = self.bytes.saturating_add(bytes);
        self.count <= FREE_PIECES.saturating_add(self.bytes / BYTES_PER_PIECE)
    }

    /// Returns the bytes of all chunks.
    #[must_use]
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_pieces_are_bounded_and_others_are_not() {
        for (bytes, fits) in [(0, false), (1, false), (BYTES_PER_PIECE, true), (4096, true)] {
            let mut pieces = BodyPieces::default();
            assert_eq!((0..1_000_000).all(|_| pieces.add(bytes)), fits, "{bytes}");
        }
        let mut few = BodyPieces::default();
        assert!((0..FREE_PIECES).all(|_| few.add(1)));
    }
}
