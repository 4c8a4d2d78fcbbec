//! A response whose header has come and whose body is still being read.
//!
//! Read to its end, its connection goes back to the pool; dropped before, the connection is closed (HTTP/2: the stream
//! is reset). Not here: what the body means.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, TRANSFER_ENCODING};
use http::response::Parts;
use http::{HeaderMap, StatusCode, Version};
use hyper::body::{Body as _, Frame, Incoming};
use tokio::time::Instant;

use super::error::TransportError;
use super::http1::Http1Connection;
use super::http2::StreamPermit;
use super::pieces::BodyPieces;
use super::upstream::Upstream;
use crate::alarm::after;
use crate::quota::{AnswerRoom, NoRoomError};

/// A response of an agent. Small: it is handed on from layer to layer.
pub struct Response {
    inside: Box<BodyState>,
}

struct BodyState {
    head: Parts,
    body: Incoming,
    way: ConnectionHandle,
    target: Upstream,
    /// Since when there has been nothing to read. The clock is not asked about what is there already.
    silent_since: Option<Instant>,
    give_up: Instant,
    /// Polls so far, for the deadline: a peer that always has more to read ends there too.
    polls: u32,
    /// Only kept, while the body is read.
    held: Option<Box<dyn Send + Sync>>,
}

/// After so many polls the clock is read although there is something to read.
const POLLS_PER_LOOK: u32 = 64;

/// What carries the body.
pub(super) enum ConnectionHandle {
    /// An HTTP/1.1 connection of our own.
    Line(Box<Http1Connection>),
    /// A stream of a shared HTTP/2 connection.
    Stream(StreamPermit),
    /// Nothing any more: the body has been read to its end.
    Ended,
    /// Nothing any more: the body failed.
    Failed,
}

impl Response {
    /// Checks the header of a response and takes over its body. `give_up` ends the exchange.
    pub(super) fn new(
        response: http::Response<Incoming>,
        way: ConnectionHandle,
        target: Upstream,
        give_up: Instant,
        header_lines: usize,
    ) -> Result<Self, TransportError> {
        let (head, body) = response.into_parts();
        check(&head, header_lines)?;
        let (silent_since, polls, held) = (None, 0, None);
        let inside = BodyState { head, body, way, target, silent_since, give_up, polls, held };
        let mut reply = Self { inside: Box::new(inside) };
        if reply.inside.body.is_end_stream() {
            reply.finish();
        }
        Ok(reply)
    }

    /// The same, and `what` lives until the body has been read, or this is dropped.
    #[must_use]
    pub fn holding(mut self, what: impl Send + Sync + 'static) -> Self {
        if !self.is_over() {
            self.inside.held = Some(Box::new(what));
        }
        self
    }

    /// The status as the agent sent it: redirects are not followed.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        self.inside.head.status
    }

    /// The header of the response. Nothing of it may reach a client unless it is on a list.
    #[must_use]
    pub fn headers(&self) -> &HeaderMap {
        &self.inside.head.headers
    }

    /// The protocol that carried the response.
    #[must_use]
    pub fn version(&self) -> Version {
        self.inside.head.version
    }

    /// Whether the body has been read to its end.
    #[must_use]
    pub fn is_over(&self) -> bool {
        matches!(self.inside.way, ConnectionHandle::Ended)
    }

    /// Waits for the next piece of the body; `None` after the last.
    ///
    /// Cancel-safe: a dropped wait loses no byte, and the silence is measured from when all that had come was read, not from the
    /// call.
    /// An end that the agent did not announce is an error, never `None` (except for a plain-text HTTP/1.0 style body
    /// without any length, which cannot be told apart).
    ///
    /// # Errors
    ///
    /// [`TransportError::IdleTimeout`], [`TransportError::TotalTimeout`], [`TransportError::Broken`] or
    /// [`TransportError::Truncated`]. The connection is closed then, and later calls fail too.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, TransportError> {
        match self.inside.way {
            ConnectionHandle::Ended => return Ok(None),
            ConnectionHandle::Failed => return Err(TransportError::Truncated),
            ConnectionHandle::Line(_) | ConnectionHandle::Stream(_) => {}
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
            Some(None) => Ok(None),
            Some(Some(Err(error))) => Err(TransportError::after_sending(error)),
            None if self.deadline() == self.inside.give_up => Err(TransportError::TotalTimeout),
            None => Err(TransportError::IdleTimeout),
        };
        match &outcome {
            Ok(Some(_)) if self.inside.body.is_end_stream() => self.finish(),
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
    /// [`TransportError::TooLarge`] as soon as the body is, or says that it will be, over `limit` bytes;
    /// [`TransportError::TooManyPieces`]; otherwise as [`Reply::chunk`]. The connection is closed then.
    pub async fn collect(&mut self, limit: usize) -> Result<Bytes, TransportError> {
        self.gather(limit, |_| Ok(())).await
    }

    /// The same for the room of an answer: its bytes are counted before they are held, those that are announced at once.
    ///
    /// # Errors
    ///
    /// As [`Reply::collect`], and [`TransportError::NoRoom`].
    pub async fn collect_in(&mut self, room: &mut AnswerRoom) -> Result<Bytes, TransportError> {
        self.gather(room.limit, |bytes| room.permit.set(bytes)).await
    }

    async fn gather(
        &mut self,
        limit: usize,
        mut count: impl FnMut(usize) -> Result<(), NoRoomError>,
    ) -> Result<Bytes, TransportError> {
        let announced = self.inside.body.size_hint().lower();
        if announced > limit as u64 {
            self.fail();
            return Err(TransportError::TooLarge { limit });
        }
        let announced = usize::try_from(announced).unwrap_or(limit);
        self.counted(count(announced))?;
        // Nearly every body comes in one piece, which is handed on without a copy.
        let mut pieces = BodyPieces::default();
        let Some(first) = self.next_chunk(&mut pieces, limit).await? else { return Ok(Bytes::new()) };
        let Some(second) = self.next_chunk(&mut pieces, limit).await? else { return Ok(first) };
        let mut whole = BytesMut::with_capacity(announced.max(first.len() + second.len()));
        whole.extend_from_slice(&first);
        drop(first);
        let mut next = Some(second);
        while let Some(piece) = next {
            self.counted(count(announced.max(whole.len() + piece.len())))?;
            whole.extend_from_slice(&piece);
            next = self.next_chunk(&mut pieces, limit).await?;
        }
        Ok(whole.freeze())
    }

    /// Closes the connection if there is no room for what it brings.
    fn counted(&mut self, counted: Result<(), NoRoomError>) -> Result<(), TransportError> {
        counted.map_err(|error| {
            self.fail();
            TransportError::NoRoom(error)
        })
    }

    /// The next piece of a body of at most `limit` bytes.
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

    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, hyper::Error>>> {
        let frame = match ready!(self.poll_frame(cx)) {
            Some(Ok(frame)) => frame,
            Some(Err(error)) => return Poll::Ready(Some(Err(error))),
            None => return Poll::Ready(None),
        };
        match frame.into_data() {
            Ok(data) if !data.is_empty() => Poll::Ready(Some(Ok(data))),
            // Trailers carry nothing that A2A knows. The deadlines are looked at before the next frame.
            Ok(_) | Err(_) => {
                cx.waker().wake_by_ref();
                Poll::Pending
            }
        }
    }

    /// Whether the exchange has taken too long, looked at now and then.
    fn is_overdue(&mut self) -> bool {
        let BodyState { polls, give_up, .. } = &mut *self.inside;
        *polls = polls.wrapping_add(1);
        polls.is_multiple_of(POLLS_PER_LOOK) && Instant::now() >= *give_up
    }

    /// Notes that a piece has been read.
    fn heard(&mut self) {
        self.inside.silent_since = None;
        if let ConnectionHandle::Stream(stream) = &self.inside.way {
            stream.heard();
        }
    }

    /// No longer offers a shared connection on which an answer did not come in time.
    fn retire(&self) {
        if let ConnectionHandle::Stream(stream) = &self.inside.way {
            self.inside.target.place.pool.forget(stream.trunk());
        }
    }

    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let mut body = Pin::new(&mut self.inside.body);
        match &mut self.inside.way {
            ConnectionHandle::Line(line) => line.poll(cx, |cx| body.as_mut().poll_frame(cx)),
            ConnectionHandle::Stream(_) | ConnectionHandle::Ended | ConnectionHandle::Failed => {
                body.poll_frame(cx)
            }
        }
    }

    /// Ready once the next piece is too late.
    fn poll_deadline(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.inside.silent_since.get_or_insert_with(Instant::now);
        let deadline = self.deadline();
        match &mut self.inside.way {
            ConnectionHandle::Line(line) => line.alarm.poll(cx, deadline),
            ConnectionHandle::Stream(stream) => stream.alarm.poll(cx, deadline),
            ConnectionHandle::Ended | ConnectionHandle::Failed => Poll::Ready(()),
        }
    }

    /// Until when the next piece is waited for.
    fn deadline(&self) -> Instant {
        let BodyState { silent_since, target, give_up, .. } = &*self.inside;
        silent_since.map_or(*give_up, |since| after(since, target.timeouts.idle).min(*give_up))
    }

    /// Whether a body that says it is over was in fact cut: an HTTP/2 stream can be reset "without error".
    fn is_cut(&self) -> bool {
        matches!(self.inside.way, ConnectionHandle::Stream(_)) && !self.inside.body.is_end_stream()
    }

    /// Closes the connection.
    fn fail(&mut self) {
        (self.inside.way, self.inside.held) = (ConnectionHandle::Failed, None);
    }

    /// Gives the connection back.
    fn finish(&mut self) {
        self.inside.held = None;
        let is_certain = has_one_end(&self.inside.head.headers);
        if let ConnectionHandle::Line(mut line) =
            std::mem::replace(&mut self.inside.way, ConnectionHandle::Ended)
            && is_certain
            && (line.is_ready() || line.is_alive())
        {
            self.inside.target.place.pool.put_idle(line);
        }
    }
}

/// Returns true unless the response says in two ways where it ends: what follows it might be read as another one (RFC 9112 §6.3).
fn has_one_end(headers: &HeaderMap) -> bool {
    !(headers.contains_key(CONTENT_LENGTH) && headers.contains_key(TRANSFER_ENCODING))
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
