//! A response whose header has come and whose body is still being read.
//!
//! Read to its end, its connection goes back to the pool; dropped before, the connection is closed (HTTP/2: the stream
//! is reset). Not here: what the body means.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_ENCODING, TRANSFER_ENCODING};
use http::response::Parts;
use http::{HeaderMap, Response, StatusCode, Version};
use hyper::body::{Body as _, Frame, Incoming};
use tokio::time::Instant;

use super::error::TransportError;
use super::line::Line;
use super::target::Target;
use super::trunk::Stream;
use crate::alarm::after;

/// A response of an agent. Small: it is handed on from layer to layer.
pub struct Reply {
    inside: Box<Inside>,
}

struct Inside {
    head: Parts,
    body: Incoming,
    way: Way,
    target: Target,
    /// Since when there has been nothing to read. The clock is not asked about what is there already.
    silent_since: Option<Instant>,
    give_up: Instant,
    /// Only kept, while the body is read.
    held: Option<Box<dyn Send + Sync>>,
}

/// What carries the body.
pub(super) enum Way {
    /// An HTTP/1.1 connection of our own.
    Line(Box<Line>),
    /// A stream of a shared HTTP/2 connection.
    Stream(Stream),
    /// Nothing any more: the body has been read to its end.
    Ended,
    /// Nothing any more: the body failed.
    Failed,
}

impl Reply {
    /// Checks the header of a response and takes over its body. `give_up` ends the exchange.
    pub(super) fn new(
        response: Response<Incoming>,
        way: Way,
        target: Target,
        give_up: Instant,
        header_lines: usize,
    ) -> Result<Self, TransportError> {
        let (head, body) = response.into_parts();
        check(&head, header_lines)?;
        let inside = Inside { head, body, way, target, silent_since: None, give_up, held: None };
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
        matches!(self.inside.way, Way::Ended)
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
            Way::Ended => return Ok(None),
            Way::Failed => return Err(TransportError::Truncated),
            Way::Line(_) | Way::Stream(_) => {}
        }
        let polled = std::future::poll_fn(|cx| match self.poll_data(cx) {
            Poll::Ready(data) => Poll::Ready(Some(data)),
            Poll::Pending => self.poll_deadline(cx).map(|()| None),
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
            Ok(Some(_)) => self.inside.silent_since = None,
            Ok(None) => self.finish(),
            Err(_) => self.fail(),
        }
        outcome
    }

    /// Reads the whole body.
    ///
    /// # Errors
    ///
    /// [`TransportError::TooLarge`] as soon as the body is, or says that it will be, over `limit` bytes; otherwise as
    /// [`Reply::chunk`]. The connection is closed then.
    pub async fn collect(&mut self, limit: usize) -> Result<Bytes, TransportError> {
        if self.inside.body.size_hint().lower() > limit as u64 {
            self.fail();
            return Err(TransportError::TooLarge { limit });
        }
        // Nearly every body comes in one piece, which is handed on without a copy.
        let Some(first) = self.piece(limit).await? else { return Ok(Bytes::new()) };
        let Some(second) =
            self.piece(limit.saturating_sub(first.len())).await.map_err(|e| e.with_limit(limit))?
        else {
            return Ok(first);
        };
        let mut whole = BytesMut::with_capacity(first.len() + second.len());
        whole.extend_from_slice(&first);
        whole.extend_from_slice(&second);
        while let Some(piece) =
            self.piece(limit.saturating_sub(whole.len())).await.map_err(|e| e.with_limit(limit))?
        {
            whole.extend_from_slice(&piece);
        }
        Ok(whole.freeze())
    }

    async fn piece(&mut self, limit: usize) -> Result<Option<Bytes>, TransportError> {
        match self.chunk().await? {
            Some(data) if data.len() > limit => {
                self.fail();
                Err(TransportError::TooLarge { limit })
            }
            other => Ok(other),
        }
    }

    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, hyper::Error>>> {
        loop {
            match ready!(self.poll_frame(cx)) {
                // Trailers carry nothing that A2A knows.
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) if !data.is_empty() => return Poll::Ready(Some(Ok(data))),
                    Ok(_) | Err(_) => {}
                },
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => return Poll::Ready(None),
            }
        }
    }

    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let mut body = Pin::new(&mut self.inside.body);
        match &mut self.inside.way {
            Way::Line(line) => line.poll(cx, |cx| body.as_mut().poll_frame(cx)),
            Way::Stream(_) | Way::Ended | Way::Failed => body.poll_frame(cx),
        }
    }

    /// Ready once the next piece is too late.
    fn poll_deadline(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.inside.silent_since.get_or_insert_with(Instant::now);
        let deadline = self.deadline();
        match &mut self.inside.way {
            Way::Line(line) => line.alarm.poll(cx, deadline),
            Way::Stream(stream) => stream.alarm.poll(cx, deadline),
            Way::Ended | Way::Failed => Poll::Ready(()),
        }
    }

    /// Until when the next piece is waited for.
    fn deadline(&self) -> Instant {
        let Inside { silent_since, target, give_up, .. } = &*self.inside;
        silent_since.map_or(*give_up, |since| after(since, target.timeouts.idle).min(*give_up))
    }

    /// Whether a body that says it is over was in fact cut: an HTTP/2 stream can be reset "without error".
    fn is_cut(&self) -> bool {
        matches!(self.inside.way, Way::Stream(_)) && !self.inside.body.is_end_stream()
    }

    /// Closes the connection.
    fn fail(&mut self) {
        (self.inside.way, self.inside.held) = (Way::Failed, None);
    }

    /// Gives the connection back.
    fn finish(&mut self) {
        self.inside.held = None;
        if let Way::Line(mut line) = std::mem::replace(&mut self.inside.way, Way::Ended)
            && (line.is_ready() || line.is_alive())
        {
            self.inside.target.place.pool.rest(line);
        }
    }
}

impl TransportError {
    fn with_limit(self, limit: usize) -> Self {
        if matches!(self, Self::TooLarge { .. }) { Self::TooLarge { limit } } else { self }
    }
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
