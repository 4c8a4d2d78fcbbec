//! A request of a client over HTTP/2 (RFC 9113), on a stream of its connection.
//!
//! `h2` has the protocol: it refuses heads that are malformed and bodies of another length than announced, and holds back what the
//! client does not read. A request must name one host, too. See `server::http2` for the connection.

use std::future::poll_fn;
use std::mem::replace;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::header::{DATE, HOST};
use http::request::Parts;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use pingora::http::RequestHeader;
use pingora::protocols::Digest;
use pingora::protocols::http::authority::validate_request_authority;
use pingora::protocols::http::date::get_cached_date;

use super::client_address::X_REQUEST_ID;
use super::connection::{ResponseHead, scope, unindexed_id};
use crate::fault::{ClientGone, Fault};
use crate::timing::within;

/// A request, and the response to it.
pub(crate) struct Http2ClientStream {
    digest: Arc<Digest>,
    head: Parts,
    body: RecvStream,
    /// Bytes of the request's body so far.
    received: u64,
    response: ResponseState,
    /// Status of the response; 0 before that.
    status: u16,
    /// Bytes of the response's body so far.
    sent: u64,
    /// The longest time for one piece of a response.
    write_stall: Duration,
}

/// The state of a response.
enum ResponseState {
    /// Its head was not sent.
    None(SendResponse<Bytes>),
    /// Its body is sent.
    Body(SendStream<Bytes>),
    /// It was sent.
    Over(SendStream<Bytes>),
    /// It cannot be continued. The client has a reset in place of its end.
    Aborted,
}

/// The reason for which a request is refused.
#[derive(Debug, thiserror::Error)]
enum HeadError {
    /// Nothing is tunnelled.
    #[error("method CONNECT")]
    Method,
    /// It names no host, or several.
    #[error("host: {0}")]
    Authority(&'static str),
}

impl Http2ClientStream {
    /// Begins the request of a stream. `None`: it is refused, and has its response.
    pub(crate) fn begin(
        request: Request<RecvStream>,
        mut response: SendResponse<Bytes>,
        digest: Arc<Digest>,
    ) -> Option<Self> {
        let (head, body) = request.into_parts();
        match check_head(head) {
            Ok(head) => Some(Self {
                digest,
                head,
                body,
                received: 0,
                response: ResponseState::None(response),
                status: 0,
                sent: 0,
                write_stall: Duration::MAX,
            }),
            Err(error) => {
                tracing::debug!(%error, "refused request of HTTP/2");
                let mut refusal = Response::new(());
                *refusal.status_mut() = match error {
                    HeadError::Method => StatusCode::METHOD_NOT_ALLOWED,
                    HeadError::Authority(_) => StatusCode::BAD_REQUEST,
                };
                if let Err(error) = response.send_response(refusal, true) {
                    tracing::debug!(%error, "client disconnected");
                }
                None
            }
        }
    }

    /// Returns the facts of the connection.
    pub(crate) fn digest(&self) -> &Digest {
        &self.digest
    }

    /// Returns the head of the request.
    pub(crate) fn head(&self) -> &Parts {
        &self.head
    }

    /// Returns the head of the request.
    pub(crate) fn head_mut(&mut self) -> &mut Parts {
        &mut self.head
    }

    /// Returns the status of the response; 0 without one.
    pub(crate) fn status(&self) -> u16 {
        self.status
    }

    /// Returns the bytes of the request's body that were received.
    pub(crate) fn received(&self) -> u64 {
        self.received
    }

    /// Returns the bytes of the response's body that were sent.
    pub(crate) fn sent(&self) -> u64 {
        self.sent
    }

    /// Sets the longest time for one piece of a response.
    pub(crate) fn set_write_stall(&mut self, limit: Duration) {
        self.write_stall = limit;
    }

    /// Reads the next piece of the body; `None` at its end.
    ///
    /// # Errors
    ///
    /// [`Fault::BodyIncomplete`] if the body ends too soon, or is malformed.
    pub(crate) async fn read_body(&mut self) -> Result<Option<Bytes>, Fault> {
        let data = match poll_fn(|cx| self.body.poll_data(cx)).await.transpose() {
            Ok(Some(data)) => data,
            Ok(None) => return Ok(None),
            Err(error) => {
                tracing::debug!(%error, "body of a request ended");
                return Err(Fault::BodyIncomplete);
            }
        };
        self.received += data.len() as u64;
        // The reader of bodies bounds what is held.
        if let Err(error) = self.body.flow_control().release_capacity(data.len()) {
            tracing::debug!(%error, "body of a request ended");
        }
        Ok(Some(data))
    }

    /// Sends the head of the response; `end` for one without a body.
    ///
    /// # Errors
    ///
    /// [`ClientGone`] if the client disconnected.
    pub(crate) fn send_head(&mut self, head: ResponseHead, end: bool) -> Result<(), ClientGone> {
        let mut writer = match replace(&mut self.response, ResponseState::Aborted) {
            ResponseState::None(writer) => writer,
            ResponseState::Aborted => return Err(ClientGone),
            sent => {
                self.response = sent;
                return Ok(());
            }
        };
        let has_none = matches!(head.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
        let ends = end || has_none || self.head.method == Method::HEAD;
        self.status = head.status.as_u16();
        let sent = writer.send_response(self.message(head), ends).map_err(|error| gone(&error))?;
        self.response = if ends { ResponseState::Over(sent) } else { ResponseState::Body(sent) };
        Ok(())
    }

    /// Returns the head of a response as it is sent.
    fn message(&self, head: ResponseHead) -> Response<()> {
        let mut response = Response::new(());
        (*response.status_mut(), *response.headers_mut()) = (head.status, head.headers);
        let headers = response.headers_mut();
        headers.insert(DATE, get_cached_date());
        if let Some(scope) = scope(&self.head)
            && let Some(id) = unindexed_id(scope)
        {
            headers.insert(X_REQUEST_ID, id);
        }
        response
    }

    /// Sends a piece of the body; `end` for the last one.
    ///
    /// # Errors
    ///
    /// [`ClientGone`] if the client disconnected, or does not read.
    pub(crate) async fn write_body(&mut self, body: Bytes, end: bool) -> Result<(), ClientGone> {
        // A write that is dropped leaves half of a piece.
        let mut writer = match replace(&mut self.response, ResponseState::Aborted) {
            ResponseState::Body(writer) => writer,
            sent @ ResponseState::Over(_) => {
                self.response = sent;
                return Ok(());
            }
            ResponseState::None(_) | ResponseState::Aborted => return Err(ClientGone),
        };
        let (count, mut rest) = (body.len() as u64, body);
        let sending = poll_fn(|cx| poll_send(&mut writer, cx, &mut rest, end));
        match within(self.write_stall, pin!(sending)).await {
            Some(Ok(())) => {
                self.sent += count;
                self.response = if end { ResponseState::Over(writer) } else { ResponseState::Body(writer) };
                Ok(())
            }
            Some(Err(error)) => Err(gone(&error)),
            None => {
                tracing::debug!("client does not read");
                writer.send_reset(Reason::CANCEL);
                Err(ClientGone)
            }
        }
    }

    /// Ends the response with these trailers.
    ///
    /// # Errors
    ///
    /// [`ClientGone`] if the client disconnected.
    pub(crate) fn write_trailers(&mut self, trailers: HeaderMap) -> Result<(), ClientGone> {
        match replace(&mut self.response, ResponseState::Aborted) {
            ResponseState::Body(mut writer) => {
                writer.send_trailers(trailers).map_err(|error| gone(&error))?;
                self.response = ResponseState::Over(writer);
                Ok(())
            }
            sent @ ResponseState::Over(_) => {
                self.response = sent;
                Ok(())
            }
            ResponseState::None(_) | ResponseState::Aborted => Err(ClientGone),
        }
    }

    /// Waits until the client disconnects, or resets the stream. Cancel-safe.
    pub(crate) async fn disconnected(&mut self) {
        let reset = poll_fn(|cx| match &mut self.response {
            ResponseState::None(response) => response.poll_reset(cx),
            ResponseState::Body(writer) | ResponseState::Over(writer) => writer.poll_reset(cx),
            ResponseState::Aborted => Poll::Ready(Ok(Reason::CANCEL)),
        });
        match reset.await {
            Ok(reason) => tracing::trace!(%reason, "client reset the stream"),
            Err(error) => tracing::trace!(%error, "client disconnected"),
        }
    }

    /// Resets the stream, unless its response was sent.
    pub(crate) fn shut_down(&mut self) {
        match replace(&mut self.response, ResponseState::Aborted) {
            ResponseState::None(mut response) => response.send_reset(Reason::INTERNAL_ERROR),
            ResponseState::Body(mut writer) => writer.send_reset(Reason::INTERNAL_ERROR),
            sent @ (ResponseState::Over(_) | ResponseState::Aborted) => self.response = sent,
        }
    }

    /// Ends the response. A request without one is reset.
    pub(crate) fn finish(mut self) {
        if let ResponseState::Body(writer) = &mut self.response
            && let Err(error) = writer.send_data(Bytes::new(), true)
        {
            tracing::debug!(%error, "client disconnected");
        }
    }
}

/// Sends as much as the client has room for, until all is sent.
fn poll_send(
    writer: &mut SendStream<Bytes>,
    cx: &mut Context<'_>,
    rest: &mut Bytes,
    end: bool,
) -> Poll<Result<(), h2::Error>> {
    while !rest.is_empty() {
        writer.reserve_capacity(rest.len());
        let room = match ready!(writer.poll_capacity(cx)) {
            Some(room) => room?,
            None => return Poll::Ready(Err(Reason::CANCEL.into())),
        };
        let piece = rest.split_to(room.min(rest.len()));
        writer.send_data(piece, end && rest.is_empty())?;
        if rest.is_empty() {
            return Poll::Ready(Ok(()));
        }
    }
    // The end alone needs no room.
    Poll::Ready(if end { writer.send_data(Bytes::new(), true) } else { Ok(()) })
}

/// Checks that a request names one host (RFC 9113 §8.3.1), and returns its head.
fn check_head(head: Parts) -> Result<Parts, HeadError> {
    if head.method == Method::CONNECT {
        return Err(HeadError::Method);
    }
    let head = RequestHeader::from(head);
    validate_request_authority(&head).map_err(|_| HeadError::Authority("it is ambiguous"))?;
    if head.uri.authority().is_none() && !head.headers.contains_key(HOST) {
        return Err(HeadError::Authority("there is none"));
    }
    Ok(head.into())
}

fn gone(error: &h2::Error) -> ClientGone {
    tracing::debug!(%error, "client disconnected");
    ClientGone
}
