//! A connection of a client that speaks HTTP/1.1 (RFC 9112): one request and its response after the other.
//!
//! Bytes are read into one buffer of the thread, and copied in the size in which they came, so that no buffer stays allocated
//! while nothing is read. A response is written as one piece with its head, and an event as one chunk. A request that follows
//! before its turn is not served: its connection ends with the response before it. No end of a request is guessed: one that two
//! readers could find at different places is refused, or is the last of its connection.
//!
//! See `transport::http1` for the other side, of which the framing of bodies is shared, `server::http1` for the loop.

use std::future::{Future, poll_fn};
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf as _, Bytes, BytesMut};
use http::header::{CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING};
use http::request::Parts;
use http::{HeaderName, HeaderValue, Method, StatusCode, Version};
use httparse::{ParserConfig, Status};
use pingora::http::RequestHeader;
use pingora::protocols::http::authority::validate_request_authority;
use pingora::protocols::http::date::get_cached_date;
use pingora::protocols::{Digest, Stream};
use tokio::io::{AsyncReadExt as _, AsyncWrite as _, AsyncWriteExt as _};
use tokio::time::{Instant, timeout};

use super::connection::{ResponseHead, scope};
use crate::fault::{ClientGone, Fault};
use crate::timing::{ReusableTimer, within};
use crate::transport::{BodyDecoder, READ_BYTES, head_length, held_bytes, is_sparse, poll_read};

/// Maximum number of lines of a head.
const MAX_LINES: usize = 256;
/// Maximum bytes of the trailers of a request, which are not used.
const MAX_TRAILER_BYTES: usize = 8 * 1024;
/// Size of a body that is copied behind its head, in bytes: one write costs the system less than one with several pieces.
const COPIED_BYTES: usize = 4 * 1024;
/// The maximum number of bytes that are discarded of a refused client, so that it can read the refusal.
const MAX_DRAINED_BYTES: usize = 16 * 1024 * 1024;
/// The maximum time for that.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);
/// Size of a body that may be kept in memory by the head before it, in bytes.
const SHARED_BYTES: usize = 1024;
/// The end of a chunked body.
const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// The reason why the next request of a connection is not served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeadError {
    /// The client has disconnected, or its head did not come in time.
    Ended,
    /// The head is longer than allowed.
    TooLarge,
    /// The head is none of a request, or the end of the request is ambiguous.
    Malformed(&'static str),
    /// Its method is one that no resource has.
    Method,
}

/// A connection, and the request that is served on it.
pub(crate) struct Http1ClientConnection {
    stream: Stream,
    digest: Box<Digest>,
    /// Bytes that were read, and not used yet.
    unread: Bytes,
    /// The size of the buffer that they are in.
    buffer: usize,
    /// For the deadline of a head.
    alarm: ReusableTimer,
    /// The head of the request.
    head: Parts,
    body: BodyDecoder,
    /// Bytes of the request's body so far.
    received: u64,
    response: ResponseState,
    /// Status of the response; 0 before that.
    status: u16,
    /// Bytes of the response's body so far.
    sent: u64,
    /// True if another request may follow.
    keeps_open: bool,
    /// True if the client has disconnected, or sent bytes that belong to no request.
    is_gone: bool,
    /// The longest time for one piece of a response.
    write_stall: Duration,
}

/// The state of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ResponseState {
    /// Its head was not written.
    None,
    /// Its body has a length, of which this many bytes are left.
    Length(u64),
    /// Its body is chunked.
    Chunked,
    /// Its body ends with the connection.
    UntilClose,
    /// It was written.
    Over,
    /// It was aborted.
    Aborted,
}

impl Http1ClientConnection {
    /// Begins with a connection of a client, of which nothing was read.
    pub(crate) fn new(stream: Stream) -> Self {
        let digest = Box::new(Digest {
            ssl_digest: stream.get_ssl_digest(),
            timing_digest: Vec::new(),
            proxy_digest: stream.get_proxy_digest(),
            socket_digest: stream.get_socket_digest(),
        });
        Self {
            stream,
            digest,
            unread: Bytes::new(),
            buffer: 0,
            alarm: ReusableTimer::default(),
            head: no_head(),
            body: BodyDecoder::of_nothing(),
            received: 0,
            response: ResponseState::None,
            status: 0,
            sent: 0,
            keeps_open: false,
            is_gone: false,
            write_stall: Duration::MAX,
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

    /// Closes the connection after this response.
    pub(crate) fn close_after_response(&mut self) {
        self.keeps_open = false;
    }

    /// Reads the head of the next request, of at most so many bytes, until the deadline. A head that has come is served, also if
    /// `ends` is ready.
    ///
    /// # Errors
    ///
    /// [`HeadError`]: the connection can only be ended.
    pub(crate) async fn read_head(
        &mut self,
        max_bytes: usize,
        deadline: Instant,
        ends: impl Future<Output = ()>,
    ) -> Result<(), HeadError> {
        let (mut read, mut ends) = (HeadReader::default(), pin!(ends));
        poll_fn(|cx| {
            if let Poll::Ready(read) = self.poll_head(cx, &mut read, max_bytes) {
                return Poll::Ready(read);
            }
            if ends.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Err(HeadError::Ended));
            }
            self.alarm.poll(cx, deadline).map(|()| Err(HeadError::Ended))
        })
        .await
    }

    fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        read: &mut HeadReader,
        max_bytes: usize,
    ) -> Poll<Result<(), HeadError>> {
        loop {
            let bytes = match poll_read(&mut self.stream, cx, READ_BYTES) {
                Poll::Ready(Ok(bytes)) if !bytes.is_empty() => bytes,
                Poll::Ready(Ok(_) | Err(_)) => return Poll::Ready(Err(HeadError::Ended)),
                Poll::Pending => return Poll::Pending,
            };
            if let Some(whole) = read.add(bytes, max_bytes)? {
                return Poll::Ready(self.begin(whole));
            }
        }
    }

    /// Begins the request with this head, behind which other bytes were read.
    fn begin(&mut self, read: WholeHead) -> Result<(), HeadError> {
        let head = parse_head(&read.head)?;
        let framing = RequestFraming::of(head)?;
        self.keeps_open = framing.is_unambiguous && wants_reuse(&framing.head);
        (self.head, self.body) = (framing.head, framing.body);
        (self.unread, self.buffer) = (read.rest, read.buffer);
        (self.received, self.sent, self.status) = (0, 0, 0);
        self.response = ResponseState::None;
        self.end_body_if_over();
        Ok(())
    }

    /// Forgets the bytes after a request: they could be taken for another one that was not meant, and would hold their buffer.
    fn end_body_if_over(&mut self) {
        if self.body.is_over() && !self.unread.is_empty() {
            (self.unread, self.keeps_open) = (Bytes::new(), false);
        }
    }

    /// Reads the next piece of the body, never empty; `None` at its end.
    ///
    /// # Errors
    ///
    /// [`Fault::BodyIncomplete`] if the body ends too soon, or is malformed.
    pub(crate) async fn read_body(&mut self) -> Result<Option<Bytes>, Fault> {
        poll_fn(|cx| self.poll_body(cx)).await
    }

    fn poll_body(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, Fault>> {
        loop {
            match self.body.decode(&mut self.unread) {
                Ok(Some(data)) => {
                    self.received += data.len() as u64;
                    self.end_body_if_over();
                    let is_sparse = is_sparse(data.len(), self.buffer);
                    return Poll::Ready(Ok(Some(if is_sparse {
                        Bytes::copy_from_slice(&data)
                    } else {
                        data
                    })));
                }
                Ok(None) if self.body.is_over() => {
                    self.end_body_if_over();
                    return Poll::Ready(Ok(None));
                }
                Ok(None) => {}
                Err(error) => {
                    tracing::debug!(%error, "invalid body of a request");
                    self.keeps_open = false;
                    return Poll::Ready(Err(Fault::BodyIncomplete));
                }
            }
            match ready!(poll_read(&mut self.stream, cx, READ_BYTES)) {
                Ok(bytes) if !bytes.is_empty() => {
                    self.buffer = held_bytes(&bytes);
                    self.unread = bytes;
                }
                Ok(_) | Err(_) => {
                    (self.keeps_open, self.is_gone) = (false, true);
                    return Poll::Ready(Err(Fault::BodyIncomplete));
                }
            }
        }
    }

    /// Tells a client that waits for it to send the body.
    ///
    /// # Errors
    ///
    /// [`ClientGone`] if the client disconnected.
    pub(crate) async fn continue_body(&mut self) -> Result<(), ClientGone> {
        if self.response != ResponseState::None || self.head.version != Version::HTTP_11 {
            return Ok(());
        }
        write_pieces(&mut self.stream, [b"HTTP/1.1 100 Continue\r\n\r\n", b"", b""]).await.map_err(gone)
    }

    /// Writes the head of the response with a piece of the body, which may be empty; `end` for the last piece.
    ///
    /// # Errors
    ///
    /// [`ClientGone`] if the client disconnected, or does not read.
    pub(crate) async fn write_response(
        &mut self,
        head: ResponseHead,
        body: Bytes,
        end: bool,
    ) -> Result<(), ClientGone> {
        match self.response {
            ResponseState::None => {}
            ResponseState::Aborted => return Err(ClientGone),
            _ => return Ok(()),
        }
        if !self.body.is_over() {
            // The rest of the request would be read as the next one.
            self.keeps_open = false;
        }
        self.status = head.status.as_u16();
        self.response = self.framing_of(&head);
        self.keeps_open &= self.response != ResponseState::UntilClose;
        let mut bytes =
            Vec::with_capacity(HEAD_BYTES + if body.len() <= COPIED_BYTES { body.len() } else { 0 });
        self.encode_head(&head, &mut bytes);
        self.write(bytes, body, end).await
    }

    /// Writes a piece of the body; `end` for the last one.
    ///
    /// # Errors
    ///
    /// [`ClientGone`] if the client disconnected, or does not read.
    pub(crate) async fn write_body(&mut self, body: Bytes, end: bool) -> Result<(), ClientGone> {
        let bytes = Vec::with_capacity(if body.len() <= COPIED_BYTES { body.len() + CHUNK_BYTES } else { 0 });
        self.write(bytes, body, end).await
    }

    /// Writes `bytes`, and a piece of the body with its framing behind them.
    async fn write(&mut self, mut bytes: Vec<u8>, mut body: Bytes, end: bool) -> Result<(), ClientGone> {
        let mut tail: &[u8] = b"";
        match &mut self.response {
            ResponseState::Chunked => {
                if !body.is_empty() {
                    begin_chunk(&mut bytes, body.len());
                    tail = b"\r\n";
                }
                if end {
                    tail = if body.is_empty() { LAST_CHUNK } else { b"\r\n0\r\n\r\n" };
                }
            }
            ResponseState::Length(left) => {
                body.truncate(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= body.len() as u64;
                if *left > 0 && end {
                    // The client must not take what follows for the rest.
                    self.keeps_open = false;
                }
            }
            ResponseState::UntilClose => {}
            ResponseState::None | ResponseState::Over => body = Bytes::new(),
            ResponseState::Aborted => return Err(ClientGone),
        }
        let next =
            if end && self.response != ResponseState::None { ResponseState::Over } else { self.response };
        if bytes.is_empty() && body.is_empty() && tail.is_empty() {
            self.response = next;
            return Ok(());
        }
        // A write that is dropped leaves half of a piece.
        self.response = ResponseState::Aborted;
        let count = body.len() as u64;
        let stall = self.write_stall;
        let written = if body.len() <= COPIED_BYTES {
            bytes.extend_from_slice(&body);
            bytes.extend_from_slice(tail);
            within(stall, pin!(write_pieces(&mut self.stream, [&bytes, b"", b""]))).await
        } else {
            within(stall, pin!(write_pieces(&mut self.stream, [&bytes, &body, tail]))).await
        };
        match written.unwrap_or_else(|| Err(io::ErrorKind::TimedOut.into())) {
            Ok(()) => {
                self.response = next;
                self.sent += count;
                Ok(())
            }
            Err(error) => {
                self.keeps_open = false;
                Err(gone(error))
            }
        }
    }

    /// Returns the framing of the body of a response with this head (RFC 9112 §6.3).
    fn framing_of(&self, head: &ResponseHead) -> ResponseState {
        let has_none = matches!(head.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
        if has_none || self.head.method == Method::HEAD {
            return ResponseState::Over;
        }
        if head.headers.contains_key(TRANSFER_ENCODING) {
            return ResponseState::Chunked;
        }
        let length = head.headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
        length.map_or(ResponseState::UntilClose, ResponseState::Length)
    }

    fn encode_head(&self, head: &ResponseHead, bytes: &mut Vec<u8>) {
        begin_head(bytes, head.status);
        for (name, value) in &head.headers {
            add_line(bytes, name.as_str(), value.as_bytes());
        }
        if let Some(scope) = scope(&self.head) {
            add_line(bytes, "x-request-id", scope.id().as_bytes());
        }
        add_line(bytes, "date", get_cached_date().as_bytes());
        if !self.keeps_open {
            add_line(bytes, "connection", b"close");
        } else if self.head.version == Version::HTTP_10 {
            add_line(bytes, "connection", b"keep-alive");
        }
        bytes.extend_from_slice(b"\r\n");
    }

    /// Waits until the client disconnects. Any byte after its request counts as that: it is answered in no order. Cancel-safe.
    pub(crate) async fn disconnected(&mut self) {
        if self.is_gone {
            return;
        }
        let read = poll_fn(|cx| {
            let mut probe = [0; 1];
            pin!(self.stream.read(&mut probe)).poll(cx)
        });
        match read.await {
            Ok(0) => tracing::trace!("client disconnected"),
            Ok(_) => tracing::trace!("client sent bytes after its request"),
            Err(error) => tracing::trace!(%error, "client disconnected"),
        }
        (self.is_gone, self.keeps_open) = (true, false);
    }

    /// Ends the connection now.
    pub(crate) fn shut_down(&mut self) {
        (self.response, self.keeps_open) = (ResponseState::Aborted, false);
        self.end();
    }

    /// Ends the response. Returns true if another request may follow; else the connection has ended.
    pub(crate) async fn finish(&mut self) -> bool {
        match self.response {
            ResponseState::Chunked => _ = self.write_body(Bytes::new(), true).await,
            ResponseState::Length(1..) | ResponseState::None => self.keeps_open = false,
            ResponseState::Length(0) | ResponseState::Over => {}
            ResponseState::UntilClose | ResponseState::Aborted => self.keeps_open = false,
        }
        if !self.keeps_open || self.is_gone || !self.body.is_over() {
            self.end();
            return false;
        }
        // Its values keep the bytes that they were read in.
        self.head = no_head();
        true
    }

    /// Refuses a request of which the head was not read whole, with this status and an error as JSON, and ends the connection. Reads
    /// on for a while, so that the client can read it.
    pub(crate) async fn refuse(&mut self, status: StatusCode, error: &[u8]) {
        let mut response = Vec::with_capacity(HEAD_BYTES + error.len());
        begin_head(&mut response, status);
        if !error.is_empty() {
            add_line(&mut response, "content-type", b"application/json");
        }
        add_line(&mut response, "content-length", error.len().to_string().as_bytes());
        add_line(&mut response, "date", get_cached_date().as_bytes());
        add_line(&mut response, "connection", b"close");
        response.extend_from_slice(b"\r\n");
        response.extend_from_slice(error);
        let refused = async {
            write_pieces(&mut self.stream, [&response, b"", b""]).await?;
            // The client reads the end at once, and need not wait for the rest.
            self.end();
            let mut drained = 0;
            while drained <= MAX_DRAINED_BYTES {
                match poll_fn(|cx| poll_read(&mut self.stream, cx, READ_BYTES)).await?.len() {
                    0 => break,
                    count => drained += count,
                }
            }
            io::Result::Ok(())
        };
        if !matches!(timeout(DRAIN_TIMEOUT, refused).await, Ok(Ok(()))) {
            tracing::debug!("closing connection of refused client that still sends");
        }
    }

    /// Ends the connection. A client that does not read is not waited for.
    fn end(&mut self) {
        let cx = &mut Context::from_waker(std::task::Waker::noop());
        // Fails for a client that has gone.
        _ = pin!(self.stream.shutdown()).poll(cx);
    }
}

/// Size of most heads of responses, in bytes.
const HEAD_BYTES: usize = 512;
/// Size of the framing of a chunk, in bytes.
const CHUNK_BYTES: usize = 24;

/// Writes the status line of a response.
fn begin_head(bytes: &mut Vec<u8>, status: StatusCode) {
    bytes.extend_from_slice(b"HTTP/1.1 ");
    bytes.extend_from_slice(status.as_str().as_bytes());
    bytes.push(b' ');
    bytes.extend_from_slice(status.canonical_reason().unwrap_or_default().as_bytes());
    bytes.extend_from_slice(b"\r\n");
}

fn add_line(bytes: &mut Vec<u8>, name: &str, value: &[u8]) {
    bytes.extend_from_slice(name.as_bytes());
    bytes.extend_from_slice(b": ");
    bytes.extend_from_slice(value);
    bytes.extend_from_slice(b"\r\n");
}

/// Writes the line before the data of a chunk.
fn begin_chunk(bytes: &mut Vec<u8>, length: usize) {
    let digits = (usize::BITS - length.leading_zeros()).div_ceil(4).max(1);
    for place in (0..digits).rev() {
        let digit = u32::try_from(length >> (4 * place) & 0xf).unwrap_or_default();
        bytes.extend(char::from_digit(digit, 16).map(|digit| digit as u8));
    }
    bytes.extend_from_slice(b"\r\n");
}

fn gone(error: io::Error) -> ClientGone {
    tracing::debug!(%error, "client disconnected");
    ClientGone
}

/// Writes all of these bytes, and sends them.
async fn write_pieces(stream: &mut Stream, pieces: [&[u8]; 3]) -> io::Result<()> {
    let mut rest = pieces;
    poll_fn(|cx| {
        loop {
            let mut count = match &rest {
                [b"", b"", b""] => return Pin::new(&mut *stream).poll_flush(cx),
                [only, b"", b""] => ready!(Pin::new(&mut *stream).poll_write(cx, only))?,
                all => ready!(Pin::new(&mut *stream).poll_write_vectored(cx, &all.map(IoSlice::new)))?,
            };
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            for piece in &mut rest {
                let taken = count.min(piece.len());
                *piece = piece.get(taken..).unwrap_or_default();
                count -= taken;
            }
            // The first piece that is left comes first.
            while rest[0].is_empty() && (!rest[1].is_empty() || !rest[2].is_empty()) {
                rest.rotate_left(1);
            }
        }
    })
    .await
}

/// The bytes of a head so far.
#[derive(Default)]
struct HeadReader {
    bytes: BytesMut,
    /// Empty lines before it (RFC 9112 §2.2), in bytes.
    blank: usize,
    /// Bytes in which no end was found.
    searched: usize,
}

/// A whole head, and the bytes after it.
struct WholeHead {
    head: Bytes,
    rest: Bytes,
    /// The size of the buffer that they are in.
    buffer: usize,
}

impl HeadReader {
    /// Adds bytes. Returns the head and the bytes after it, once it is whole.
    fn add(&mut self, mut bytes: Bytes, max_bytes: usize) -> Result<Option<WholeHead>, HeadError> {
        let buffer = held_bytes(&bytes);
        match self.bytes.is_empty() {
            true => {
                let length = bytes.len();
                while let Some(line) = [2, 1].into_iter().find(|line| is_blank(bytes.get(..*line))) {
                    bytes.advance(line);
                }
                self.blank += length - bytes.len();
                self.bytes = bytes.into();
            }
            false => self.bytes.extend_from_slice(&bytes),
        }
        let most = max_bytes.saturating_sub(self.blank);
        match head_length(&self.bytes, self.searched) {
            Some(end) if end <= most => {
                let mut rest = std::mem::take(&mut self.bytes).freeze();
                let head = rest.split_to(end);
                // The values of a head live as long as its request, a body does not.
                let is_apart = rest.len() > SHARED_BYTES;
                let head = if is_apart { Bytes::copy_from_slice(&head) } else { head };
                let buffer = buffer.max(head.len() + rest.len());
                Ok(Some(WholeHead { head, rest, buffer }))
            }
            None if self.bytes.len() <= most && self.blank <= max_bytes => {
                // The end may be half here: a line feed and two bytes.
                self.searched = self.bytes.len().saturating_sub(3);
                Ok(None)
            }
            Some(_) | None => Err(HeadError::TooLarge),
        }
    }
}

/// Returns true for the end of a line and nothing else.
fn is_blank(bytes: Option<&[u8]>) -> bool {
    matches!(bytes, Some(b"\r\n" | b"\n"))
}

/// Parses a whole head. Values share its bytes.
fn parse_head(head: &Bytes) -> Result<Parts, HeadError> {
    let mut lines = [const { MaybeUninit::uninit() }; MAX_LINES];
    let mut parsed = httparse::Request::new(&mut []);
    let status = ParserConfig::default().parse_request_with_uninit_headers(&mut parsed, head, &mut lines);
    let (Ok(Status::Complete(_)), Some(method), Some(target), Some(minor)) =
        (status, parsed.method, parsed.path, parsed.version)
    else {
        return Err(HeadError::Malformed("no head of a request"));
    };
    let mut request = RequestHeader::build_no_case(method, target.as_bytes(), Some(parsed.headers.len()))
        .map_err(|_| HeadError::Malformed("request target"))?;
    request.set_version(if minor == 0 { Version::HTTP_10 } else { Version::HTTP_11 });
    for line in parsed.headers.iter() {
        let name = HeaderName::from_bytes(line.name.as_bytes())
            .map_err(|_| HeadError::Malformed("name of a header"))?;
        let value = HeaderValue::from_maybe_shared(head.slice_ref(line.value))
            .map_err(|_| HeadError::Malformed("value of a header"))?;
        request.append_header(name, value).map_err(|_| HeadError::Malformed("headers"))?;
    }
    validate_request_authority(&request).map_err(|_| HeadError::Malformed("authority"))?;
    Ok(request.into())
}

/// A request, and its end.
struct RequestFraming {
    head: Parts,
    body: BodyDecoder,
    /// True if every reader finds the same end, so that another request may follow on the connection.
    is_unambiguous: bool,
}

impl RequestFraming {
    /// Finds the end of a request (RFC 9112 §6.3).
    ///
    /// A proxy before the gateway may have read a request differently that has a length beside chunks, or names chunks twice (§6.1).
    fn of(mut head: Parts) -> Result<Self, HeadError> {
        let malformed = |_| HeadError::Malformed("framing of the body");
        let body =
            BodyDecoder::of_request(head.version, &head.headers, MAX_TRAILER_BYTES).map_err(malformed)?;
        let mut codings = head.headers.get_all(TRANSFER_ENCODING).iter();
        let Some(only) = codings.next() else { return Ok(Self { head, body, is_unambiguous: true }) };
        let is_chunked = only.as_bytes().eq_ignore_ascii_case(b"chunked") && codings.next().is_none();
        // A length beside chunks means nothing.
        let has_length = head.headers.remove(CONTENT_LENGTH).is_some();
        Ok(Self { head, body, is_unambiguous: is_chunked && !has_length })
    }
}

/// Returns true if the client wants to send another request on the connection (RFC 9112 §9.3).
fn wants_reuse(head: &Parts) -> bool {
    let has = |token: &[u8]| {
        let values = head.headers.get_all(CONNECTION).iter();
        values
            .flat_map(|value| value.as_bytes().split(|byte| *byte == b','))
            .any(|part| part.trim_ascii().eq_ignore_ascii_case(token))
    };
    !has(b"close") && (head.version == Version::HTTP_11 || has(b"keep-alive"))
}

/// Returns the head of a connection without a request.
fn no_head() -> Parts {
    http::Request::new(()).into_parts().0
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;
    use http::header::CONTENT_TYPE;
    use proptest::prelude::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};

    use super::*;

    const MAX_HEAD: usize = 1024;

    fn pair(buffer: usize) -> (Http1ClientConnection, DuplexStream) {
        let (client, server) = duplex(buffer);
        (Http1ClientConnection::new(Box::new(server)), client)
    }

    async fn read_head(http: &mut Http1ClientConnection) -> Result<(), HeadError> {
        http.read_head(MAX_HEAD, Instant::now() + Duration::from_secs(1), std::future::pending()).await
    }

    /// Begins the request that is all of these bytes.
    async fn begin(request: &str) -> (Result<Http1ClientConnection, HeadError>, DuplexStream) {
        let (mut http, mut client) = pair(64 * 1024);
        client.write_all(request.as_bytes()).await.unwrap();
        (read_head(&mut http).await.map(|()| http), client)
    }

    async fn body(http: &mut Http1ClientConnection) -> Result<Vec<u8>, Fault> {
        let mut whole = Vec::new();
        while let Some(piece) = http.read_body().await? {
            assert!(!piece.is_empty());
            whole.extend_from_slice(&piece);
        }
        Ok(whole)
    }

    fn response(status: StatusCode, lines: &[(HeaderName, &str)]) -> ResponseHead {
        let mut head = ResponseHead::new(status);
        for (name, value) in lines {
            head.insert(name, HeaderValue::from_str(value).unwrap());
        }
        head
    }

    /// All that the client receives, without the date.
    async fn received(mut client: DuplexStream) -> String {
        let mut bytes = Vec::new();
        client.read_to_end(&mut bytes).await.unwrap();
        let text = String::from_utf8(bytes).unwrap();
        text.split_inclusive("\r\n").filter(|line| !line.starts_with("date: ")).collect()
    }

    #[tokio::test]
    async fn request_is_read_in_any_pieces() {
        let chunked = "transfer-encoding: chunked\r\n\r\n3\r\nhel\r\n2;x=y\r\nlo\r\n0\r\na: b\r\n\r\n";
        for rest in ["content-length: 5\r\n\r\nhello", chunked] {
            let request = format!("\r\nPOST /mcp?a=b HTTP/1.1\r\nHost: here\r\n{rest}");
            for cut in 0..request.len() {
                let (mut http, mut client) = pair(64 * 1024);
                let (first, second) = request.split_at(cut);
                client.write_all(first.as_bytes()).await.unwrap();
                let send = async {
                    tokio::task::yield_now().await;
                    client.write_all(second.as_bytes()).await.unwrap();
                };
                let read = async {
                    read_head(&mut http).await.unwrap();
                    body(&mut http).await.unwrap()
                };
                let (body, ()) = tokio::join!(read, send);
                assert_eq!(body, b"hello", "cut at {cut}");
                assert_eq!((http.head().method.as_str(), http.head().uri.path()), ("POST", "/mcp"));
                assert_eq!(http.head().headers["host"], "here");
                assert!(http.keeps_open && http.received() == 5);
            }
        }
    }

    #[tokio::test]
    async fn end_of_request_is_never_guessed() {
        const LAST: Option<bool> = Some(false);
        const REUSED: Option<bool> = Some(true);
        const REFUSED: Option<bool> = None;
        for (version, lines, expected) in [
            ("1.1", "", REUSED),
            ("1.1", "connection: close\r\n", LAST),
            ("1.1", "connection: a, Close\r\n", LAST),
            ("1.0", "", LAST),
            ("1.0", "connection: keep-alive\r\n", REUSED),
            ("1.1", "content-length: 0\r\n", REUSED),
            ("1.1", "content-length: 3\r\ncontent-length: 3\r\n", REUSED),
            ("1.1", "content-length: 3, 4\r\n", REFUSED),
            ("1.1", "content-length: 3\r\ncontent-length: 4\r\n", REFUSED),
            ("1.1", "content-length: +3\r\n", REFUSED),
            ("1.1", "content-length: \r\n", REFUSED),
            ("1.1", "transfer-encoding: chunked\r\n", REUSED),
            ("1.1", "transfer-encoding: Chunked\r\n", REUSED),
            ("1.1", "transfer-encoding: chunked\r\ncontent-length: 3\r\n", LAST),
            ("1.1", "transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n", LAST),
            ("1.1", "transfer-encoding: gzip, chunked\r\n", LAST),
            ("1.1", "transfer-encoding: chunked, gzip\r\n", REFUSED),
            ("1.1", "transfer-encoding: identity\r\n", REFUSED),
            ("1.0", "transfer-encoding: chunked\r\n", REFUSED),
            ("1.1", "host: there\r\n", REFUSED),
            ("1.1", "transfer-encoding : chunked\r\n", REFUSED),
            ("1.1", "a: b\r\n c: d\r\n", REFUSED),
            ("2.0", "", REFUSED),
        ] {
            let (begun, _client) =
                begin(&format!("POST / HTTP/{version}\r\nhost: here\r\n{lines}\r\n")).await;
            let found = begun.as_ref().ok().map(|http| http.keeps_open);
            assert_eq!(found, expected, "{version} {lines:?}");
        }
    }

    #[tokio::test]
    async fn length_beside_chunks_means_nothing() {
        let lines = "transfer-encoding: chunked\r\ncontent-length: 99999999\r\n\r\n2\r\nhi\r\n0\r\n\r\n";
        let (begun, _client) = begin(&format!("POST / HTTP/1.1\r\n{lines}")).await;
        let mut http = begun.unwrap();
        assert!(!http.head().headers.contains_key(CONTENT_LENGTH));
        assert_eq!(body(&mut http).await.unwrap(), b"hi");
    }

    #[tokio::test]
    async fn small_body_keeps_no_large_buffer() {
        let junk = "x".repeat(60_000);
        let (begun, _client) = begin(&format!(
            "POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n{junk}"
        ))
        .await;
        let mut http = begun.unwrap();
        assert!(http.buffer > 60_000);
        let piece = http.read_body().await.unwrap().unwrap();
        assert_eq!(piece.try_into_mut().map(|piece| piece.capacity()), Ok(2), "not a copy");
        assert_eq!(http.read_body().await.unwrap(), None);
        assert!(http.unread.is_empty() && !http.keeps_open);
    }

    #[tokio::test]
    async fn malformed_heads_are_refused() {
        for head in [
            "GET\r\n\r\n",
            "GET / HTTP/1.1\r\nhost: a@b\r\n\r\n",
            "GET http://there/ HTTP/1.1\r\nhost: here\r\n\r\n",
            "GET /\u{1} HTTP/1.1\r\nhost: here\r\n\r\n",
            "GET / HTTP/1.1\r\na b: c\r\n\r\n",
            "GET / HTTP/1.1\r\na: b\rc\r\n\r\n",
            "\rGET / HTTP/1.1\r\n\r\n",
        ] {
            let refused = begin(head).await.0.err();
            assert!(matches!(refused, Some(HeadError::Malformed(_))), "{head:?}: {refused:?}");
        }
        let long = format!("GET / HTTP/1.1\r\na: {}", "b".repeat(MAX_HEAD));
        for end in ["", "\r\n\r\n"] {
            assert_eq!(begin(&format!("{long}{end}")).await.0.err(), Some(HeadError::TooLarge));
        }
        assert_eq!(begin(&"\r\n".repeat(MAX_HEAD)).await.0.err(), Some(HeadError::TooLarge));
        // A body is no part of it.
        let (begun, _client) =
            begin(&format!("POST / HTTP/1.1\r\ncontent-length: {MAX_HEAD}\r\n\r\n{}", "b".repeat(MAX_HEAD)))
                .await;
        assert_eq!(body(&mut begun.unwrap()).await.unwrap().len(), MAX_HEAD);
    }

    #[tokio::test(start_paused = true)]
    async fn head_is_awaited_until_the_deadline_or_the_end() {
        let (mut http, mut client) = pair(1024);
        client.write_all(b"GET / HTTP/1.1\r\n").await.unwrap();
        assert_eq!(read_head(&mut http).await, Err(HeadError::Ended));
        let (mut http, _client) = pair(1024);
        let far = Instant::now() + Duration::from_secs(1000);
        assert_eq!(http.read_head(MAX_HEAD, far, std::future::ready(())).await, Err(HeadError::Ended));
        let (mut http, mut client) = pair(1024);
        client.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
        // A head that has come is served.
        assert_eq!(http.read_head(MAX_HEAD, far, std::future::ready(())).await, Ok(()));
    }

    #[tokio::test]
    async fn body_that_breaks_off_is_incomplete() {
        for rest in [
            "content-length: 5\r\n\r\nhel",
            "transfer-encoding: chunked\r\n\r\n5\r\nhel",
            "transfer-encoding: chunked\r\n\r\nx",
        ] {
            let (begun, client) = begin(&format!("POST / HTTP/1.1\r\n{rest}")).await;
            drop(client);
            let mut http = begun.unwrap();
            assert!(body(&mut http).await.is_err(), "{rest:?}");
            assert!(!http.keeps_open);
        }
    }

    #[tokio::test]
    async fn responses_are_framed() {
        let json = (CONTENT_TYPE, "application/json");
        let length = |length| (CONTENT_LENGTH, length);
        let chunked = (TRANSFER_ENCODING, "chunked");
        for (request, lines, pieces, expected, is_reused) in [
            (
                "GET / HTTP/1.1",
                vec![json.clone(), length("5")],
                vec!["hello"],
                "content-type: application/json\r\ncontent-length: 5\r\n\r\nhello",
                true,
            ),
            ("GET / HTTP/1.1", vec![length("5")], vec!["hel", "lo"], "content-length: 5\r\n\r\nhello", true),
            (
                "GET / HTTP/1.1",
                vec![length("5")],
                vec!["hello", " you"],
                "content-length: 5\r\n\r\nhello",
                true,
            ),
            ("GET / HTTP/1.1", vec![length("5")], vec!["hel"], "content-length: 5\r\n\r\nhel", false),
            ("HEAD / HTTP/1.1", vec![length("5")], vec![""], "content-length: 5\r\n\r\n", true),
            (
                "GET / HTTP/1.1",
                vec![chunked.clone()],
                vec!["hello", "you"],
                "transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n3\r\nyou\r\n0\r\n\r\n",
                true,
            ),
            (
                "GET / HTTP/1.1",
                vec![chunked.clone()],
                vec!["hello", ""],
                "transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
                true,
            ),
            ("GET / HTTP/1.0", vec![], vec!["hello"], "connection: close\r\n\r\nhello", false),
            (
                "GET / HTTP/1.1\r\nconnection: close",
                vec![length("5")],
                vec!["hello"],
                "content-length: 5\r\nconnection: close\r\n\r\nhello",
                false,
            ),
            (
                "POST / HTTP/1.1\r\ncontent-length: 9",
                vec![length("5")],
                vec!["hello"],
                "content-length: 5\r\nconnection: close\r\n\r\nhello",
                false,
            ),
        ] {
            let (text, reused) = respond(request, &lines, &pieces).await;
            assert_eq!(text, format!("HTTP/1.1 200 OK\r\n{expected}"), "{request}");
            assert_eq!(reused, is_reused, "{request} {expected:?}");
        }
    }

    /// Returns what the client of this request receives, and true if another may follow.
    async fn respond(request: &str, lines: &[(HeaderName, &str)], pieces: &[&'static str]) -> (String, bool) {
        let (begun, client) = begin(&format!("{request}\r\n\r\n")).await;
        let mut http = begun.unwrap();
        let (first, rest) = pieces.split_first().unwrap();
        let head = response(StatusCode::OK, lines);
        http.write_response(head, Bytes::from(*first), rest.is_empty()).await.unwrap();
        for (place, piece) in rest.iter().enumerate() {
            http.write_body(Bytes::from(*piece), place + 1 == rest.len()).await.unwrap();
        }
        let is_reused = http.finish().await;
        drop(http);
        (received(client).await, is_reused)
    }

    #[tokio::test]
    async fn bytes_after_request_are_never_next_one() {
        let next = "GET /secret HTTP/1.1\r\n\r\n";
        let (begun, client) = begin(&format!("POST / HTTP/1.1\r\ncontent-length: 2\r\n\r\nhi{next}")).await;
        let mut http = begun.unwrap();
        assert_eq!(body(&mut http).await.unwrap(), b"hi");
        assert!(http.unread.is_empty(), "they would keep their buffer");
        http.write_response(response(StatusCode::OK, &[(CONTENT_LENGTH, "0")]), Bytes::new(), true)
            .await
            .unwrap();
        assert!(!http.finish().await);
        drop(http);
        assert_eq!(
            received(client).await,
            "HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
        );
        let (begun, mut client) = begin("GET / HTTP/1.1\r\n\r\n").await;
        let mut http = begun.unwrap();
        client.write_all(next.as_bytes()).await.unwrap();
        http.disconnected().await;
        assert!(!http.keeps_open);
        // Known from now on.
        http.disconnected().await;
    }

    #[tokio::test(start_paused = true)]
    async fn client_that_does_not_read_is_given_up() {
        let (mut http, mut client) = pair(64);
        client.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
        read_head(&mut http).await.unwrap();
        http.set_write_stall(Duration::from_secs(3));
        let begun = Instant::now();
        let head = response(StatusCode::OK, &[(TRANSFER_ENCODING, "chunked")]);
        let large = Bytes::from(vec![b'x'; 100_000]);
        assert_eq!(http.write_response(head, large, false).await, Err(ClientGone));
        assert_eq!(begun.elapsed(), Duration::from_secs(3));
        assert_eq!(http.write_body(Bytes::from("more"), true).await, Err(ClientGone));
        let another = response(StatusCode::OK, &[(CONTENT_LENGTH, "0")]);
        assert_eq!(http.write_response(another, Bytes::new(), true).await, Err(ClientGone));
        assert_eq!((http.status(), http.sent()), (200, 0));
        assert!(!http.finish().await);
    }

    /// The first request in these bytes, which come in pieces of this size: its head, the data of its body, and its end.
    async fn first_request(bytes: &[u8], piece: usize) -> String {
        let (mut http, mut client) = pair(piece);
        let sending = async {
            // Fails if the connection ends before.
            _ = client.write_all(bytes).await;
            drop(client);
        };
        let reading = async move {
            let deadline = Instant::now() + Duration::from_secs(60);
            if let Err(error) = http.read_head(MAX_HEAD, deadline, std::future::pending()).await {
                return format!("{error:?}");
            }
            let mut data = Vec::new();
            let end = loop {
                match http.read_body().await {
                    Ok(Some(piece)) => data.extend_from_slice(&piece),
                    Ok(None) => break "whole",
                    Err(_) => break "incomplete",
                }
            };
            let Parts { method, uri, version, headers, .. } = http.head();
            format!("{method} {uri} {version:?} {headers:?} {data:?} {end}")
        };
        tokio::join!(sending, reading).1
    }

    /// Requests, of which the next test changes bytes.
    const REQUESTS: [&str; 4] = [
        "\r\nPOST /mcp HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nabcdeGET / HTTP/1.1\r\n\r\n",
        "POST /mcp?x=1 HTTP/1.1\r\nhost:a\r\nTransfer-Encoding: chunked\r\n\r\n3;x=\"1\"\r\nabc\r\n0\r\nA: b\r\n\r\n",
        "GET http://a/ HTTP/1.0\nHost: a\nConnection: keep-alive, close\n\n",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: gzip, chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
    ];
    /// Bytes of the grammar, and others.
    const BYTES: [&[u8]; 16] = [
        b"", b" ", b"\r", b"\n", b"\r\n", b":", b",", b"0", b"9", b"f", b"\t", b"\0", b"\xff", b"\\", b"@",
        b"//",
    ];

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1000))]

        /// Two readers of one connection could see different requests otherwise.
        #[test]
        fn request_is_the_same_in_pieces_of_any_size(
            request in 0_usize..4,
            changes in prop::collection::vec((any::<prop::sample::Index>(), 0_usize..3, 0_usize..16), 0..4),
            piece in 1_usize..40,
        ) {
            let mut bytes = REQUESTS[request].as_bytes().to_vec();
            for (place, removed, inserted) in changes {
                let at = place.index(bytes.len());
                bytes.splice(at..bytes.len().min(at + removed), BYTES[inserted].iter().copied());
            }
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
            let (whole, in_pieces) = runtime.block_on(async {
                (first_request(&bytes, 8192).await, first_request(&bytes, piece).await)
            });
            prop_assert_eq!(whole, in_pieces, "{:?}", String::from_utf8_lossy(&bytes));
        }
    }

    proptest! {
        #[test]
        fn size_of_chunk_is_written_in_hex(length in 1_usize..1 << 40) {
            let mut bytes = Vec::new();
            begin_chunk(&mut bytes, length);
            prop_assert_eq!(String::from_utf8(bytes).unwrap(), format!("{length:x}\r\n"));
        }

        #[test]
        fn chunked_body_is_read_as_it_was_written(pieces in prop::collection::vec("[a-z]{1,9000}", 1..5)) {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(async {
                let (begun, mut client) = begin("GET / HTTP/1.1\r\n\r\n").await;
                let mut http = begun.unwrap();
                let head = response(StatusCode::OK, &[(TRANSFER_ENCODING, "chunked")]);
                http.write_response(head, Bytes::new(), false).await.unwrap();
                for piece in &pieces {
                    http.write_body(Bytes::from(piece.clone()), false).await.unwrap();
                }
                assert!(http.finish().await);
                drop(http);
                let mut bytes = Vec::new();
                client.read_to_end(&mut bytes).await.unwrap();
                let (head, mut rest) = bytes.split_at(memchr::memmem::find(&bytes, b"\r\n\r\n").unwrap() + 4);
                assert!(head.starts_with(b"HTTP/1.1 200"));
                let mut lines = HeaderMap::new();
                lines.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
                let mut decoder = BodyDecoder::of_request(Version::HTTP_11, &lines, 100).unwrap();
                let (mut unread, mut read) = (Bytes::copy_from_slice(rest), Vec::new());
                while let Some(data) = decoder.decode(&mut unread).unwrap() {
                    read.extend_from_slice(&data);
                }
                rest = &unread;
                assert!(decoder.is_over() && rest.is_empty());
                assert_eq!(read, pieces.concat().into_bytes());
            });
        }
    }
}
