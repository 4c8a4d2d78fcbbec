//! The grammar of a response by HTTP/1.1: its head, and the framing of its body (RFC 9112). Pure.
//!
//! Strict where two readers could disagree on the end of a response: bytes after it would be read as another
//! response. Lines of the head are parsed by httparse, as in hyper.

use std::io;
use std::mem::MaybeUninit;

use bytes::{Buf as _, Bytes};
use http::header::{CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, Version};
use httparse::{Header, ParserConfig, Status};

/// Maximum number of lines of a head.
const MAX_LINES: usize = 100;
/// Maximum bytes of the extensions of one chunk. They mean nothing to the gateway.
const MAX_EXTENSION_BYTES: usize = 16 * 1024;
/// Maximum digits of the size of a chunk, zeros before it included.
const MAX_SIZE_DIGITS: u8 = 16;

/// The failure of an exchange by HTTP/1.1.
#[derive(Debug, thiserror::Error)]
pub enum Http1Error {
    /// The connection ended before the end of the response.
    #[error("connection closed before the end of the response")]
    Incomplete,
    /// The peer sent bytes that belong to no request.
    #[error("bytes without a request")]
    Unrequested,
    /// The connection failed.
    #[error("connection failed: {0}")]
    Connection(#[from] io::Error),
    /// The head is no head of a response.
    #[error("invalid response header: {0}")]
    Head(httparse::Error),
    /// A field of the head cannot be used.
    #[error("invalid response header: {0}")]
    Field(&'static str),
    /// The head, or the trailers, are longer than allowed.
    #[error("response header too large")]
    TooLarge,
    /// More informational responses (1xx) than allowed came before the response.
    #[error("informational responses without end")]
    Informational,
    /// The chunks of a body do not follow the grammar (RFC 9112 §7.1).
    #[error("invalid chunk of the body: {0}")]
    Chunk(&'static str),
}

/// Returns the length of the head at the start of these bytes, if they have all of it; no end was found
/// before `from`.
pub(crate) fn head_length(bytes: &[u8], from: usize) -> Option<usize> {
    let rest = bytes.get(from..)?;
    memchr::memchr_iter(b'\n', rest).map(|at| from + at + 1).find_map(|next| {
        // The line after this one is empty.
        match bytes.get(next..)? {
            [b'\n', ..] => Some(next + 1),
            [b'\r', b'\n', ..] => Some(next + 2),
            _ => None,
        }
    })
}

/// Parses a whole head. Values share its bytes.
pub(super) fn parse_head(head: &Bytes) -> Result<Response<()>, Http1Error> {
    let mut lines = [const { MaybeUninit::uninit() }; MAX_LINES];
    let mut parsed = httparse::Response::new(&mut []);
    let status = ParserConfig::default()
        .parse_response_with_uninit_headers(&mut parsed, head, &mut lines)
        .map_err(invalid_lines)?;
    let (Status::Complete(_), Some(code), Some(minor)) = (status, parsed.code, parsed.version) else {
        return Err(Http1Error::Field("no status line"));
    };
    let mut response = Response::new(());
    *response.status_mut() = StatusCode::from_u16(code).map_err(|_| Http1Error::Field("status"))?;
    *response.version_mut() = if minor == 0 { Version::HTTP_10 } else { Version::HTTP_11 };
    *response.headers_mut() = header_map(parsed.headers, head)?;
    Ok(response)
}

fn invalid_lines(error: httparse::Error) -> Http1Error {
    match error {
        httparse::Error::TooManyHeaders => Http1Error::TooLarge,
        other => Http1Error::Head(other),
    }
}

/// Returns parsed lines of `text` as a map.
fn header_map(lines: &[Header<'_>], text: &Bytes) -> Result<HeaderMap, Http1Error> {
    let mut map = HeaderMap::with_capacity(lines.len());
    for line in lines {
        let name = HeaderName::from_bytes(line.name.as_bytes()).map_err(|_| Http1Error::Field("name"))?;
        let value = HeaderValue::from_maybe_shared(text.slice_ref(line.value))
            .map_err(|_| Http1Error::Field("value"))?;
        map.try_append(name, value).map_err(|_| Http1Error::TooLarge)?;
    }
    Ok(map)
}

/// Returns true if the connection may serve another request after this response (RFC 9112 §9.3), and the head
/// announces no body where there can be none: its bytes could be taken for the next response.
pub(super) fn keeps_open(head: &Response<()>) -> bool {
    let headers = head.headers();
    let is_announced = match head.status() {
        StatusCode::NO_CONTENT => {
            headers.contains_key(TRANSFER_ENCODING)
                || headers.get(CONTENT_LENGTH).is_some_and(|length| length.as_bytes() != b"0")
        }
        StatusCode::NOT_MODIFIED => headers.contains_key(TRANSFER_ENCODING),
        _ => false,
    };
    if is_announced || head.status().is_informational() {
        return false;
    }
    let has = |token: &[u8]| {
        let values = headers.get_all(CONNECTION).iter();
        values
            .flat_map(|value| value.as_bytes().split(|byte| *byte == b','))
            .any(|part| part.trim_ascii().eq_ignore_ascii_case(token))
    };
    !has(b"close") && (head.version() == Version::HTTP_11 || has(b"keep-alive"))
}

/// Reads the body of one response out of the bytes of its connection.
#[derive(Debug)]
pub(crate) struct BodyDecoder {
    part: BodyPart,
    extension_bytes: usize,
    /// The lines of the trailers so far.
    trailer_lines: Vec<u8>,
    max_trailer_bytes: usize,
    trailers: Option<HeaderMap>,
}

/// The part of a body that the next byte belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BodyPart {
    /// The data of a body with a length; so many bytes are left.
    Length(u64),
    /// Data up to the end of the connection.
    UntilClose,
    /// The digits of the size of a chunk.
    ChunkSize { size: u64, digits: u8 },
    /// The rest of the line with the size of a chunk: spaces, or an extension.
    ChunkLine { size: u64, in_extension: bool },
    /// The line feed after the size of a chunk.
    ChunkLineEnd { size: u64 },
    /// The data of a chunk; so many bytes are left.
    ChunkData(u64),
    /// The carriage return after the data of a chunk.
    ChunkEnd,
    /// The line feed after the data of a chunk.
    ChunkEndLine,
    /// A line of the trailers; `length` bytes of it were read.
    Trailer { length: usize },
    /// None: the body is over.
    Over,
}

impl BodyDecoder {
    /// Returns the decoder for the body of the response to a request with this method (RFC 9112 §6.3). Its
    /// trailers may have so many bytes.
    pub(super) fn new(
        method: &Method,
        head: &Response<()>,
        max_trailer_bytes: usize,
    ) -> Result<Self, Http1Error> {
        let mut part = BodyPart::of(method, head)?;
        if part == BodyPart::Length(0) {
            part = BodyPart::Over;
        }
        Ok(Self { part, extension_bytes: 0, trailer_lines: Vec::new(), max_trailer_bytes, trailers: None })
    }

    /// Returns the decoder for the body of a request with this version and these headers (RFC 9112 §6.3). Its trailers may
    /// have so many bytes.
    ///
    /// # Errors
    ///
    /// [`Http1Error::Field`] if the end of the request cannot be known.
    pub(crate) fn of_request(
        version: Version,
        headers: &HeaderMap,
        max_trailer_bytes: usize,
    ) -> Result<Self, Http1Error> {
        let part = match BodyPart::framed(version, headers)? {
            // A request has no end of the connection to end with.
            Some(BodyPart::UntilClose) => return Err(Http1Error::Field("Transfer-Encoding")),
            Some(BodyPart::Length(0)) | None => BodyPart::Over,
            Some(part) => part,
        };
        Ok(Self { part, max_trailer_bytes, ..Self::of_nothing() })
    }

    /// Returns the decoder for no body.
    pub(crate) fn of_nothing() -> Self {
        let (trailer_lines, trailers) = (Vec::new(), None);
        Self { part: BodyPart::Over, extension_bytes: 0, trailer_lines, max_trailer_bytes: 0, trailers }
    }

    /// Returns true if the body is over.
    pub(crate) fn is_over(&self) -> bool {
        self.part == BodyPart::Over
    }

    /// Returns the number of bytes that are still to come for sure.
    pub(super) fn announced(&self) -> u64 {
        match self.part {
            BodyPart::Length(left) | BodyPart::ChunkData(left) => left,
            _ => 0,
        }
    }

    /// Returns the trailers, once the body is over.
    pub(super) fn take_trailers(&mut self) -> Option<HeaderMap> {
        self.trailers.take()
    }

    /// Takes the next data of the body out of bytes that were read; never empty. `None` if the body is over,
    /// or more bytes are needed.
    pub(crate) fn decode(&mut self, unread: &mut Bytes) -> Result<Option<Bytes>, Http1Error> {
        while !self.is_over() && !unread.is_empty() {
            match &mut self.part {
                BodyPart::UntilClose => return Ok(Some(std::mem::take(unread))),
                BodyPart::Length(left) => {
                    let data = take_up_to(unread, left);
                    if *left == 0 {
                        self.part = BodyPart::Over;
                    }
                    return Ok(Some(data));
                }
                BodyPart::ChunkData(left) => {
                    let data = take_up_to(unread, left);
                    if *left == 0 {
                        self.part = BodyPart::ChunkEnd;
                        // With the data: of a stream, nothing is left to look for then.
                        if unread.starts_with(b"\r\n") {
                            unread.advance(2);
                            self.begin_chunk();
                        }
                    }
                    return Ok(Some(data));
                }
                _ => self.skip_framing(unread)?,
            }
        }
        Ok(None)
    }

    /// Reads the line before the data of a chunk if it has nothing but the size, as most have; returns false for others.
    fn skip_plain_size(&mut self, unread: &mut Bytes) -> bool {
        const MOST_DIGITS: usize = 7;
        let mut size = 0;
        for (at, byte) in unread.iter().take(MOST_DIGITS + 1).enumerate() {
            if let Some(digit) = char::from(*byte).to_digit(16) {
                size = size << 4 | u64::from(digit);
            } else if size > 0 && unread.get(at..at + 2) == Some(b"\r\n") {
                self.part = BodyPart::ChunkData(size);
                unread.advance(at + 2);
                return true;
            } else {
                return false;
            }
        }
        false
    }

    /// Records the end of the connection.
    pub(super) fn end(&mut self) -> Result<(), Http1Error> {
        match self.part {
            BodyPart::UntilClose | BodyPart::Over => self.part = BodyPart::Over,
            _ => return Err(Http1Error::Incomplete),
        }
        Ok(())
    }

    /// Reads bytes up to the next data, or to the end of the body.
    fn skip_framing(&mut self, unread: &mut Bytes) -> Result<(), Http1Error> {
        if matches!(self.part, BodyPart::ChunkSize { digits: 0, .. }) && self.skip_plain_size(unread) {
            return Ok(());
        }
        let mut taken = 0;
        for byte in unread.iter() {
            taken += 1;
            self.part = self.after(*byte)?;
            if matches!(self.part, BodyPart::ChunkData(_) | BodyPart::Over) {
                break;
            }
        }
        unread.advance(taken);
        Ok(())
    }

    fn begin_chunk(&mut self) {
        self.extension_bytes = 0;
        self.part = BodyPart::ChunkSize { size: 0, digits: 0 };
    }

    /// Returns the part that follows a byte of the framing (RFC 9112 §7.1).
    fn after(&mut self, byte: u8) -> Result<BodyPart, Http1Error> {
        Ok(match (self.part, byte) {
            (BodyPart::ChunkSize { digits: MAX_SIZE_DIGITS.., .. }, byte) if byte.is_ascii_hexdigit() => {
                return Err(Http1Error::Chunk("size"));
            }
            (BodyPart::ChunkSize { size, digits }, byte) if byte.is_ascii_hexdigit() => {
                let digit = char::from(byte).to_digit(16).map_or(0, u64::from);
                let size = size.checked_mul(16).map(|size| size | digit);
                BodyPart::ChunkSize { size: size.ok_or(Http1Error::Chunk("size"))?, digits: digits + 1 }
            }
            (BodyPart::ChunkSize { digits: 0, .. }, _) => return Err(Http1Error::Chunk("size")),
            (BodyPart::ChunkSize { size, .. } | BodyPart::ChunkLine { size, .. }, b'\r') => {
                BodyPart::ChunkLineEnd { size }
            }
            (BodyPart::ChunkSize { size, .. } | BodyPart::ChunkLine { size, .. }, b';') => {
                self.count_extension()?;
                BodyPart::ChunkLine { size, in_extension: true }
            }
            (BodyPart::ChunkSize { size, .. }, b' ' | b'\t') => {
                self.count_extension()?;
                BodyPart::ChunkLine { size, in_extension: false }
            }
            (part @ BodyPart::ChunkLine { in_extension: false, .. }, b' ' | b'\t') => {
                self.count_extension()?;
                part
            }
            (part @ BodyPart::ChunkLine { in_extension: true, .. }, byte) if byte != b'\n' => {
                self.count_extension()?;
                part
            }
            (BodyPart::ChunkLineEnd { size: 0 }, b'\n') => BodyPart::Trailer { length: 0 },
            (BodyPart::ChunkLineEnd { size }, b'\n') => BodyPart::ChunkData(size),
            (BodyPart::ChunkEnd, b'\r') => BodyPart::ChunkEndLine,
            (BodyPart::ChunkEndLine, b'\n') => {
                self.begin_chunk();
                self.part
            }
            (BodyPart::Trailer { length }, byte) => return self.after_trailer_byte(length, byte),
            _ => return Err(Http1Error::Chunk("line")),
        })
    }

    fn after_trailer_byte(&mut self, length: usize, byte: u8) -> Result<BodyPart, Http1Error> {
        if self.trailer_lines.len() >= self.max_trailer_bytes {
            return Err(Http1Error::TooLarge);
        }
        self.trailer_lines.push(byte);
        match byte {
            // A line feed alone ends a line for some readers and not for others.
            b'\n' if !self.trailer_lines.ends_with(b"\r\n") => Err(Http1Error::Chunk("line")),
            b'\n' if length == 1 => {
                let lines = Bytes::from(std::mem::take(&mut self.trailer_lines));
                self.trailers = parse_trailers(&lines)?;
                Ok(BodyPart::Over)
            }
            b'\n' => Ok(BodyPart::Trailer { length: 0 }),
            _ => Ok(BodyPart::Trailer { length: length + 1 }),
        }
    }

    fn count_extension(&mut self) -> Result<(), Http1Error> {
        self.extension_bytes += 1;
        if self.extension_bytes > MAX_EXTENSION_BYTES { Err(Http1Error::Chunk("extension")) } else { Ok(()) }
    }
}

impl BodyPart {
    /// Returns the first part of the body of a response (RFC 9112 §6.3).
    fn of(method: &Method, head: &Response<()>) -> Result<Self, Http1Error> {
        let (status, headers) = (head.status(), head.headers());
        let has_none = status == StatusCode::NO_CONTENT || status == StatusCode::NOT_MODIFIED;
        if has_none || method == Method::HEAD || status.is_informational() {
            return Ok(Self::Length(0));
        }
        Ok(Self::framed(head.version(), headers)?.unwrap_or(Self::UntilClose))
    }

    /// Returns the first part of a body with these headers; `None` if they announce none.
    fn framed(version: Version, headers: &HeaderMap) -> Result<Option<Self>, Http1Error> {
        if let Some(last) = headers.get_all(TRANSFER_ENCODING).iter().next_back() {
            if version == Version::HTTP_10 {
                return Err(Http1Error::Field("Transfer-Encoding in HTTP/1.0"));
            }
            let coding = last.as_bytes().rsplit(|byte| *byte == b',').next().unwrap_or_default();
            let is_chunked = coding.trim_ascii().eq_ignore_ascii_case(b"chunked");
            return Ok(Some(if is_chunked {
                Self::ChunkSize { size: 0, digits: 0 }
            } else {
                Self::UntilClose
            }));
        }
        let lengths = headers.get_all(CONTENT_LENGTH).iter();
        let mut lengths = lengths.flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
        let Some(first) = lengths.next() else { return Ok(None) };
        let first = length(first)?;
        // Repeated ones must be equal (RFC 9110 §8.6).
        for other in lengths {
            if length(other)? != first {
                return Err(Http1Error::Field("different Content-Length"));
            }
        }
        Ok(Some(Self::Length(first)))
    }
}

/// Parses a value of `Content-Length`: digits and nothing else.
fn length(text: &[u8]) -> Result<u64, Http1Error> {
    let text = text.trim_ascii();
    let digits = std::str::from_utf8(text).ok().filter(|_| text.iter().all(u8::is_ascii_digit));
    digits.and_then(|digits| digits.parse().ok()).ok_or(Http1Error::Field("Content-Length"))
}

/// Takes at most `left` bytes, and counts them there.
fn take_up_to(unread: &mut Bytes, left: &mut u64) -> Bytes {
    let most = usize::try_from(*left).unwrap_or(usize::MAX);
    let data = if unread.len() <= most { std::mem::take(unread) } else { unread.split_to(most) };
    *left = left.saturating_sub(data.len() as u64);
    data
}

/// Parses the lines of trailers, and the empty one after them; `None` if there is no other.
fn parse_trailers(lines: &Bytes) -> Result<Option<HeaderMap>, Http1Error> {
    let mut headers = [httparse::EMPTY_HEADER; MAX_LINES];
    match httparse::parse_headers(lines, &mut headers).map_err(invalid_lines)? {
        Status::Complete((_, [])) => Ok(None),
        Status::Complete((_, headers)) => header_map(headers, lines).map(Some),
        Status::Partial => Err(Http1Error::Field("trailers")),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn head(lines: &str) -> Result<Response<()>, Http1Error> {
        parse_head(&Bytes::from(format!("{lines}\r\n\r\n")))
    }

    fn decoder(lines: &str) -> Result<BodyDecoder, Http1Error> {
        BodyDecoder::new(&Method::POST, &head(lines)?, 1000)
    }

    /// A body that was decoded.
    #[derive(Debug, PartialEq, Eq)]
    struct DecodedBody {
        data: Vec<u8>,
        /// The bytes after it.
        rest: Vec<u8>,
        is_over: bool,
        trailers: Option<HeaderMap>,
    }

    /// Decodes a body that comes in pieces.
    fn decode(lines: &str, pieces: &[&[u8]]) -> Result<DecodedBody, Http1Error> {
        let mut decoder = decoder(lines)?;
        let (mut data, mut rest) = (Vec::new(), Vec::new());
        for piece in pieces {
            let mut unread = Bytes::copy_from_slice(piece);
            while let Some(next) = decoder.decode(&mut unread)? {
                assert!(!next.is_empty());
                data.extend_from_slice(&next);
            }
            assert!(decoder.is_over() || unread.is_empty());
            rest.extend_from_slice(&unread);
        }
        Ok(DecodedBody { data, rest, is_over: decoder.is_over(), trailers: decoder.take_trailers() })
    }

    #[test]
    fn head_ends_with_an_empty_line() {
        for (text, length) in [
            ("HTTP/1.1 200 OK\r\n\r\nbody", Some(19)),
            ("HTTP/1.1 200 OK\n\nbody", Some(17)),
            ("HTTP/1.1 200 OK\r\na: b\r\n\r\n\r\n\r\n", Some(25)),
            ("HTTP/1.1 200 OK\r\n\r", None),
            ("HTTP/1.1 200 OK\r\na: b\r\n", None),
            ("", None),
        ] {
            assert_eq!(head_length(text.as_bytes(), 0), length, "{text:?}");
            // The same when it comes byte by byte.
            let found = (0..=text.len()).find_map(|end| {
                let (bytes, from) = (&text.as_bytes()[..end], end.saturating_sub(4));
                head_length(bytes, from).map(|length| (length, end))
            });
            assert_eq!(found, length.map(|length| (length, length)), "{text:?}");
        }
    }

    #[test]
    fn framing_follows_rfc_9112() {
        let over = BodyPart::Over;
        let chunked = BodyPart::ChunkSize { size: 0, digits: 0 };
        for (lines, part) in [
            ("HTTP/1.1 200 OK\r\nContent-Length: 5", Some(BodyPart::Length(5))),
            ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5", Some(BodyPart::Length(5))),
            ("HTTP/1.1 200 OK\r\nContent-Length: 5, 5", Some(BodyPart::Length(5))),
            ("HTTP/1.1 200 OK\r\nContent-Length: 0", Some(over)),
            ("HTTP/1.1 204 No Content\r\nContent-Length: 5", Some(over)),
            ("HTTP/1.1 304 Not Modified\r\nTransfer-Encoding: chunked", Some(over)),
            ("HTTP/1.1 200 OK", Some(BodyPart::UntilClose)),
            ("HTTP/1.0 200 OK", Some(BodyPart::UntilClose)),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked", Some(chunked)),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 5", Some(chunked)),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked", Some(chunked)),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, gzip", Some(BodyPart::UntilClose)),
            ("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked", None),
            ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6", None),
            ("HTTP/1.1 200 OK\r\nContent-Length: +5", None),
            ("HTTP/1.1 200 OK\r\nContent-Length: 5 5", None),
            ("HTTP/1.1 200 OK\r\nContent-Length:", None),
            ("HTTP/1.1 200 OK\r\nContent-Length: 5,", None),
            ("HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999", None),
        ] {
            assert_eq!(decoder(lines).ok().map(|decoder| decoder.part), part, "{lines}");
        }
        let head = head("HTTP/1.1 200 OK\r\nContent-Length: 5").unwrap();
        assert!(BodyDecoder::new(&Method::HEAD, &head, 0).unwrap().is_over());
    }

    #[test]
    fn connection_stays_open_unless_it_says_otherwise() {
        for (lines, open) in [
            ("HTTP/1.1 200 OK", true),
            ("HTTP/1.1 200 OK\r\nConnection: Keep-Alive", true),
            ("HTTP/1.1 200 OK\r\nConnection: x, Close", false),
            ("HTTP/1.1 200 OK\r\nConnection: x\r\nConnection: close", false),
            ("HTTP/1.0 200 OK", false),
            ("HTTP/1.0 200 OK\r\nConnection: keep-alive", true),
            ("HTTP/1.1 204 No Content\r\nContent-Length: 0", true),
            ("HTTP/1.1 204 No Content\r\nContent-Length: 5", false),
            ("HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked", false),
            ("HTTP/1.1 304 Not Modified\r\nContent-Length: 5", true),
            ("HTTP/1.1 304 Not Modified\r\nTransfer-Encoding: chunked", false),
            ("HTTP/1.1 101 Switching Protocols", false),
        ] {
            assert_eq!(keeps_open(&head(lines).unwrap()), open, "{lines}");
        }
    }

    #[test]
    fn invalid_heads_are_errors() {
        for lines in ["hello", "HTTP/1.1 2000 OK", "HTTP/1.1 200 OK\r\nbad name: x", "HTTP/2 200 OK", ""] {
            assert!(head(lines).is_err(), "{lines}");
        }
        let lines = |count: usize| (0..count).map(|line| format!("\r\nx-{line}: y")).collect::<String>();
        assert_eq!(head(&format!("HTTP/1.1 200 OK{}", lines(MAX_LINES))).unwrap().headers().len(), MAX_LINES);
        let error = head(&format!("HTTP/1.1 200 OK{}", lines(MAX_LINES + 1))).unwrap_err();
        assert!(matches!(error, Http1Error::TooLarge), "{error}");
    }

    const CHUNKED: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked";

    #[test]
    fn chunks_are_read_strictly() {
        for (body, data) in [
            ("5\r\nhello\r\n0\r\n\r\n", Some("hello")),
            ("5;a=\"b\"\r\nhello\r\n0;x\r\n\r\n", Some("hello")),
            ("5 \t\r\nhello\r\n0\r\n\r\n", Some("hello")),
            ("00a\r\n0123456789\r\nA\r\n0123456789\r\n0\r\nx: y\r\n\r\n", Some("01234567890123456789")),
            ("5\nhello\r\n0\r\n\r\n", None),
            ("5\r\nhello0\r\n\r\n", None),
            ("5\r\nhello\n0\r\n\r\n", None),
            ("\r\n5\r\nhello", None),
            ("-5\r\nhello", None),
            ("5 5\r\nhello", None),
            ("5;a\nb\r\nhello", None),
            ("10000000000000000\r\n", None),
            ("0000000000000001\r\nx\r\n0\r\n\r\n", Some("x")),
            ("00000000000000001\r\nx\r\n0\r\n\r\n", None),
            ("0\r\n\n", None),
            ("0\r\na: b\n\r\n", None),
            ("0\r\nno colon\r\n\r\n", None),
        ] {
            let decoded = decode(CHUNKED, &[body.as_bytes()]).ok();
            let read = decoded.map(|decoded| {
                assert!(decoded.is_over && decoded.rest.is_empty(), "{body:?}");
                String::from_utf8(decoded.data).unwrap()
            });
            assert_eq!(read.as_deref(), data, "{body:?}");
        }
    }

    /// A stream would be looked at for more data in vain if the end of a chunk remained unread.
    #[test]
    fn end_of_a_chunk_is_read_with_its_data() {
        let mut decoder = decoder(CHUNKED).unwrap();
        let mut unread = Bytes::from_static(b"5\r\nhello\r\n");
        assert_eq!(decoder.decode(&mut unread).unwrap().unwrap(), "hello");
        assert!(unread.is_empty(), "{unread:?}");
    }

    #[test]
    fn trailers_and_extensions_are_bounded() {
        let decoded = decode(CHUNKED, &[b"0\r\na: b\r\na: c\r\n\r\n"]).unwrap();
        assert_eq!(decoded.trailers.unwrap().get_all("a").iter().collect::<Vec<_>>(), ["b", "c"]);
        let long = |bytes: usize| format!("0\r\na: {}\r\n\r\n", "b".repeat(bytes));
        assert!(decode(CHUNKED, &[long(900).as_bytes()]).is_ok());
        assert!(matches!(decode(CHUNKED, &[long(1000).as_bytes()]), Err(Http1Error::TooLarge)));
        let extended = |bytes: usize| format!("1;{}\r\nx\r\n", "e".repeat(bytes));
        assert!(decode(CHUNKED, &[extended(MAX_EXTENSION_BYTES - 1).as_bytes(); 5]).is_ok(), "of each chunk");
        assert!(decode(CHUNKED, &[extended(MAX_EXTENSION_BYTES).as_bytes()]).is_err());
    }

    #[test]
    fn end_of_the_connection_ends_only_a_body_without_length() {
        for (lines, is_end) in [
            ("HTTP/1.1 200 OK", true),
            ("HTTP/1.1 200 OK\r\nContent-Length: 0", true),
            ("HTTP/1.1 200 OK\r\nContent-Length: 1", false),
            (CHUNKED, false),
        ] {
            assert_eq!(decoder(lines).unwrap().end().is_ok(), is_end, "{lines}");
        }
    }

    proptest! {
        #[test]
        fn pieces_change_nothing(
            chunks in prop::collection::vec((prop::collection::vec(any::<u8>(), 1..40), "(0{0,8})", "(;e)?"), 0..6),
            after in prop::collection::vec(any::<u8>(), 0..5),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
        ) {
            let mut body = Vec::new();
            let mut data = Vec::new();
            for (chunk, zeros, extension) in &chunks {
                body.extend_from_slice(format!("{zeros}{:x}{extension}\r\n", chunk.len()).as_bytes());
                body.extend_from_slice(chunk);
                body.extend_from_slice(b"\r\n");
                data.extend_from_slice(chunk);
            }
            body.extend_from_slice(b"0\r\na: b\r\n\r\n");
            body.extend_from_slice(&after);
            let mut ends: Vec<usize> = cuts.iter().map(|cut| cut.index(body.len())).collect();
            ends.push(body.len());
            ends.sort_unstable();
            let mut from = 0;
            let pieces: Vec<&[u8]> = ends.iter().map(|end| {
                let piece = &body[from..*end];
                from = *end;
                piece
            }).collect();
            let decoded = decode(CHUNKED, &pieces).unwrap();
            prop_assert_eq!((decoded.data, decoded.rest, decoded.is_over), (data, after, true));
            prop_assert!(decoded.trailers.is_some());
        }

        #[test]
        fn any_bytes_are_data_or_an_error(body in prop::collection::vec(any::<u8>(), 0..200)) {
            let bytes: Vec<&[u8]> = body.chunks(1).collect();
            prop_assert_eq!(decode(CHUNKED, &[&body]).ok(), decode(CHUNKED, &bytes).ok());
        }
    }
}
