//! Reading a body: under a limit, within a time, and whole.
//!
//! Its bytes are counted before they are read, and for as long as it is held; bodies that are waited for have a share too. The
//! content is read by `jsonrpc`.

use std::future::poll_fn;
use std::ops::Deref;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::Version;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, EXPECT, TRANSFER_ENCODING};
use pingora::proxy::Session;
use tokio::time::timeout;

use super::limits::{QuotaKind, QuotaOwner, QuotaRegistry};
use crate::fault::Fault;
use crate::quota::{BytePermit, FREE_BYTES};
use crate::transport::BodyPieces;

/// A body, and the bytes that are counted for it while it is held.
pub(super) struct ReceivedBody {
    bytes: Bytes,
    permit: Option<BytePermit>,
}

impl ReceivedBody {
    /// The permit of the body, for values that were made of it.
    pub(super) fn into_permit(self) -> Option<BytePermit> {
        self.permit
    }
}

impl Deref for ReceivedBody {
    type Target = Bytes;

    fn deref(&self) -> &Bytes {
        &self.bytes
    }
}

/// How much of a body is taken in, and of which share.
pub(super) struct BodyLimits<'a> {
    /// Most bytes of the body.
    pub(super) limit: usize,
    /// How long it may take.
    pub(super) within: Duration,
    /// The shares that it takes of.
    pub(super) shares: &'a QuotaRegistry,
    /// The owner of the share; `None`: none.
    pub(super) whose: Option<&'a QuotaOwner>,
}

/// Reads the body of a request that must be JSON.
///
/// # Errors
///
/// A [`Fault`] that says what is wrong with it; the connection must not be used again then.
pub(super) async fn read_json_body(
    http: &mut Session,
    intake: &BodyLimits<'_>,
) -> Result<ReceivedBody, Fault> {
    let length = check_length(http, intake.limit)?;
    check(http)?;
    in_time(http, intake, length).await
}

/// Reads the body of a request, whatever it says that it is.
///
/// # Errors
///
/// A [`Fault`] that says what is wrong with it; the connection must not be used again then.
pub(super) async fn read_body(http: &mut Session, intake: &BodyLimits<'_>) -> Result<ReceivedBody, Fault> {
    let length = check_length(http, intake.limit)?;
    in_time(http, intake, length).await
}

async fn in_time(
    http: &mut Session,
    intake: &BodyLimits<'_>,
    length: Option<usize>,
) -> Result<ReceivedBody, Fault> {
    // Pingora's own limit, one for each piece, is for what is left unread here.
    let of_each = http.downstream_session.get_read_timeout();
    http.downstream_session.set_read_timeout(None);
    let whole = read_to_end(http, intake, length).await;
    http.downstream_session.set_read_timeout(of_each);
    whole
}

async fn read_to_end(
    http: &mut Session,
    intake: &BodyLimits<'_>,
    length: Option<usize>,
) -> Result<ReceivedBody, Fault> {
    let mut reading = pin!(read(http, intake, length));
    // Nearly every body is there already: then no timer is set, and no share is taken.
    match poll_fn(|cx| Poll::Ready(reading.as_mut().poll(cx))).await {
        Poll::Ready(read) => read,
        Poll::Pending => {
            let _part =
                intake.whose.map(|whose| intake.shares.acquire(whose, QuotaKind::Body)).transpose()?;
            timeout(intake.within, reading).await.unwrap_or(Err(Fault::BodyTimeout))
        }
    }
}

/// Reads and throws away what a refused client still sends, for a while: closing on it would lose it the refusal.
pub(super) async fn drain_before_close(http: &mut Session, limit: usize) {
    const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);
    const AT_LEAST: usize = 16 * 1024 * 1024;
    // A client that waits to be told to go on sends nothing.
    if http.req_header().headers.get(EXPECT).is_some() {
        return;
    }
    let most = limit.saturating_mul(2).max(AT_LEAST);
    let reading = async {
        let mut thrown = 0;
        while let Ok(Some(bytes)) = next(http).await {
            thrown += bytes.len();
            if thrown > most {
                return;
            }
        }
    };
    if timeout(DRAIN_TIMEOUT, reading).await.is_err() {
        tracing::debug!("a refused client goes on sending");
    }
}

/// Refuses a header whose path and lines are longer than `longest` bytes together. Pingora takes 1 MiB.
pub(super) fn header_fits(http: &Session, longest: usize) -> Result<(), Fault> {
    let header = http.req_header();
    // As HTTP/1.1 writes a line: with `: ` and its end.
    let lines = header.headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 4);
    let path = header.uri.path_and_query().map_or(0, |path| path.as_str().len());
    if lines.sum::<usize>() + path > longest { Err(Fault::HeaderTooLarge(longest)) } else { Ok(()) }
}

/// Whether everybody agrees where the request ends, so that another one may follow it on its connection.
///
/// Pingora reads the chunks where there is a length as well, or where chunks are named twice; a proxy before the gateway may
/// have read it otherwise (RFC 9112, section 6.1).
pub(super) fn has_unambiguous_length(http: &Session) -> bool {
    let mut codings = http.req_header().headers.get_all(TRANSFER_ENCODING).iter();
    let is_plain = codings.next().is_none_or(|only| only.as_bytes().eq_ignore_ascii_case(b"chunked"));
    // It takes a length beside chunks out of the headers, and remembers it in this alone. HTTP/2 has no such thing.
    let is_alone = http.get_keepalive().is_some() || http.req_header().version != Version::HTTP_11;
    is_plain && codings.next().is_none() && is_alone
}

/// The length of the body, as far as it is announced.
fn check_length(http: &Session, limit: usize) -> Result<Option<usize>, Fault> {
    let header = http.req_header();
    let length =
        header.headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
    if length.is_some_and(|length| length > limit) {
        return Err(Fault::BodyTooLarge(limit));
    }
    Ok(length)
}

fn check(http: &Session) -> Result<(), Fault> {
    let header = http.req_header();
    let mut types = header.headers.get_all(CONTENT_TYPE).iter();
    let (first, second) = (types.next(), types.next());
    let first = first.and_then(|value| value.to_str().ok()).unwrap_or_default();
    if second.is_some() || !is_json(first) {
        return Err(Fault::UnsupportedMediaType);
    }
    let mut encodings = header.headers.get_all(CONTENT_ENCODING).iter();
    if encodings.any(|value| !value.as_bytes().eq_ignore_ascii_case(b"identity")) {
        return Err(Fault::UnsupportedContentEncoding);
    }
    Ok(())
}

fn is_json(value: &str) -> bool {
    // As nearly everybody writes it.
    if value == "application/json" {
        return true;
    }
    let mut pieces = value.split(';').map(str::trim);
    // The second one is what the binding HTTP+JSON of A2A calls it.
    let is_json = pieces.next().is_some_and(|name| {
        ["application/json", "application/a2a+json"].iter().any(|known| name.eq_ignore_ascii_case(known))
    });
    let mut parameters = pieces.filter(|piece| !piece.is_empty());
    is_json
        && parameters.all(|piece| match piece.split_once('=') {
            Some((name, value)) if name.eq_ignore_ascii_case("charset") => {
                value.trim_matches('"').eq_ignore_ascii_case("utf-8")
            }
            _ => true,
        })
}

async fn read(
    http: &mut Session,
    intake: &BodyLimits<'_>,
    length: Option<usize>,
) -> Result<ReceivedBody, Fault> {
    let mut room = BodyReservation { intake, permit: None, pieces: BodyPieces::default() };
    // A body that says how long it is takes its room before any of it is read.
    room.reserve(length.unwrap_or(0))?;
    if http.req_header().headers.get(EXPECT).is_some() {
        http.write_continue_response().await.map_err(|_| Fault::BodyIncomplete)?;
    }
    let Some(first) = next(http).await? else { return Ok(room.hold(Bytes::new())) };
    room.add(first.len())?;
    let Some(second) = next(http).await? else { return Ok(room.hold(first)) };
    let expected = length.unwrap_or((first.len() + second.len()).max(16 * 1024));
    let mut whole = BytesMut::with_capacity(expected.min(intake.limit.max(1)));
    whole.extend_from_slice(&first);
    drop(first);
    let mut piece = Some(second);
    while let Some(bytes) = piece {
        room.add(bytes.len())?;
        whole.extend_from_slice(&bytes);
        piece = next(http).await?;
    }
    Ok(room.hold(whole.freeze()))
}

/// The room of a body that is being read.
struct BodyReservation<'a> {
    intake: &'a BodyLimits<'a>,
    /// There once the body is one that is counted.
    permit: Option<BytePermit>,
    pieces: BodyPieces,
}

impl BodyReservation<'_> {
    /// Takes room for so many bytes altogether, unless it has been taken.
    fn reserve(&mut self, bytes: usize) -> Result<(), Fault> {
        if bytes <= FREE_BYTES.max(self.permit.as_ref().map_or(0, BytePermit::counted)) {
            return Ok(());
        }
        let BodyLimits { shares, whose, .. } = self.intake;
        let permit = self.permit.get_or_insert_with(|| shares.permit(*whose));
        Ok(permit.set(bytes)?)
    }

    /// Takes room for the next piece.
    fn add(&mut self, bytes: usize) -> Result<(), Fault> {
        let is_whole = self.pieces.add(bytes);
        if self.pieces.bytes() > self.intake.limit {
            return Err(Fault::BodyTooLarge(self.intake.limit));
        }
        self.reserve(self.pieces.bytes())?;
        if is_whole { Ok(()) } else { Err(Fault::BodyInPieces) }
    }

    fn hold(self, bytes: Bytes) -> ReceivedBody {
        ReceivedBody { bytes, permit: self.permit }
    }
}

async fn next(http: &mut Session) -> Result<Option<Bytes>, Fault> {
    http.downstream_session.read_request_body().await.map_err(|_| Fault::BodyIncomplete)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_json_is_json() {
        for (value, json) in [
            ("application/json", true),
            ("Application/JSON; charset=UTF-8", true),
            ("application/json;charset=\"utf-8\"", true),
            ("application/a2a+json", true),
            ("application/json; charset=latin1", false),
            ("text/plain", false),
            ("application/jsonx", false),
            ("", false),
        ] {
            assert_eq!(is_json(value), json, "{value}");
        }
    }
}
