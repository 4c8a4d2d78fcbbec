//! Receives the body of a request completely, within a size limit and a time limit.
//!
//! The bytes count against the quota before they are read and while the body is held; a request
//! that waits for its body also uses a quota of the caller. `jsonrpc` parses the content.

use std::future::poll_fn;
use std::ops::Deref;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::Version;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, EXPECT, TRANSFER_ENCODING};
use pingora::protocols::http::ServerSession;
use tokio::time::timeout;

use super::connection::ClientConnection;
use crate::fault::Fault;
use crate::limits::{Limits, QuotaKind};
use crate::quota::{BytePermit, FREE_BYTES, QuotaOwner};
use crate::transport::{BodyPieces, without_room};

/// Body of a request, with the permit for its bytes.
pub(crate) struct ReceivedBody {
    bytes: Bytes,
    permit: Option<BytePermit>,
}

impl ReceivedBody {
    /// Returns the permit of the body, for values that were made from it.
    pub(crate) fn into_permit(self) -> Option<BytePermit> {
        self.permit
    }
}

impl Deref for ReceivedBody {
    type Target = Bytes;

    fn deref(&self) -> &Bytes {
        &self.bytes
    }
}

/// Reads the bodies of requests, within the limits of the configuration and the quotas.
pub(crate) struct BodyReader {
    limit: usize,
    timeout: Duration,
    quotas: Arc<Limits>,
}

/// Limits for one body, and the quotas that it uses.
struct BodyLimits<'a> {
    /// Most bytes of the body.
    limit: usize,
    /// Longest time for the whole body.
    timeout: Duration,
    quotas: &'a Limits,
    /// The owner of the quota; `None` if no quota applies.
    owner: Option<&'a QuotaOwner>,
}

impl BodyReader {
    /// Creates a reader for bodies of at most `limit` bytes that arrive within `timeout`.
    pub(crate) fn new(limit: usize, timeout: Duration, quotas: Arc<Limits>) -> Self {
        Self { limit, timeout, quotas }
    }

    fn limits<'a>(&'a self, limit: usize, owner: Option<&'a QuotaOwner>) -> BodyLimits<'a> {
        BodyLimits { limit, timeout: self.timeout, quotas: &self.quotas, owner }
    }

    /// Reads the body of a request that must be JSON. Its bytes count against the quota of `owner`.
    ///
    /// # Errors
    ///
    /// A [`Fault`] with the reason; the connection must not be used again then.
    pub(crate) async fn read_json(
        &self,
        http: &mut impl ClientConnection,
        owner: Option<&QuotaOwner>,
    ) -> Result<ReceivedBody, Fault> {
        let limits = self.limits(self.limit, owner);
        let length = check_length(http, limits.limit)?;
        check_media_type(http)?;
        in_time(http, &limits, length).await
    }

    /// Reads the body of a request with any content type, of at most `limit` bytes in
    /// place of the configured limit.
    ///
    /// # Errors
    ///
    /// A [`Fault`] with the reason; the connection must not be used again then.
    pub(crate) async fn read(
        &self,
        http: &mut impl ClientConnection,
        owner: Option<&QuotaOwner>,
        limit: Option<usize>,
    ) -> Result<ReceivedBody, Fault> {
        let limits = self.limits(limit.unwrap_or(self.limit), owner);
        let length = check_length(http, limits.limit)?;
        in_time(http, &limits, length).await
    }

    /// Reads and discards the rest of a rejected request for a while. Otherwise closing the
    /// connection could lose the response.
    pub(crate) async fn drain_before_close(&self, http: &mut impl ClientConnection) {
        drain_before_close(http, self.limit).await;
    }
}

async fn in_time(
    http: &mut impl ClientConnection,
    limits: &BodyLimits<'_>,
    length: Option<usize>,
) -> Result<ReceivedBody, Fault> {
    // Pingora's read timeout applies to each chunk; it is kept for bodies that are left unread
    // here.
    let of_each = http.set_read_timeout(None);
    let whole = read_to_end(http, limits, length).await;
    http.set_read_timeout(of_each);
    whole
}

async fn read_to_end(
    http: &mut impl ClientConnection,
    limits: &BodyLimits<'_>,
    length: Option<usize>,
) -> Result<ReceivedBody, Fault> {
    let mut reading = pin!(read(http, limits, length));
    // Nearly every body has arrived already: then no timer is set and no quota is used.
    match poll_fn(|cx| Poll::Ready(reading.as_mut().poll(cx))).await {
        Poll::Ready(read) => read,
        Poll::Pending => {
            let _part =
                limits.owner.map(|owner| limits.quotas.acquire(owner, QuotaKind::Body)).transpose()?;
            timeout(limits.timeout, reading).await.unwrap_or(Err(Fault::BodyTimeout))
        }
    }
}

pub(super) async fn drain_before_close(http: &mut impl ClientConnection, limit: usize) {
    const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);
    const AT_LEAST: usize = 16 * 1024 * 1024;
    // A client that waits for `100 Continue` sends nothing.
    if http.head().headers.get(EXPECT).is_some() {
        return;
    }
    let most = limit.saturating_mul(2).max(AT_LEAST);
    let reading = async {
        let mut thrown = 0;
        while let Ok(Some(bytes)) = http.read_body().await {
            thrown += bytes.len();
            if thrown > most {
                return;
            }
        }
    };
    if timeout(DRAIN_TIMEOUT, reading).await.is_err() {
        tracing::debug!("rejected client still sends, closing connection");
    }
}

/// Rejects a header if its path and lines exceed `longest` bytes together. Pingora accepts 1 MiB.
pub(crate) fn header_fits(http: &impl ClientConnection, longest: usize) -> Result<(), Fault> {
    let header = http.head();
    // As HTTP/1.1 writes a line: with `: ` and its end.
    let lines = header.headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 4);
    let path = header.uri.path_and_query().map_or(0, |path| path.as_str().len());
    if lines.sum::<usize>() + path > longest { Err(Fault::HeaderTooLarge(longest)) } else { Ok(()) }
}

/// Returns true if the end of a request that Pingora has read is unambiguous, so that another request may follow on its
/// connection.
///
/// Pingora reads chunks even if a length is present as well, or if chunked coding is named twice; a
/// proxy before the gateway may have read the request differently (RFC 9112, section 6.1).
pub(super) fn has_unambiguous_length(http: &ServerSession) -> bool {
    let mut codings = http.req_header().headers.get_all(TRANSFER_ENCODING).iter();
    let is_plain = codings.next().is_none_or(|only| only.as_bytes().eq_ignore_ascii_case(b"chunked"));
    // Pingora removes a length beside chunks from the headers, and records it only here. HTTP/2 is
    // not affected.
    let is_alone = http.get_keepalive().is_some() || http.req_header().version != Version::HTTP_11;
    is_plain && codings.next().is_none() && is_alone
}

/// Returns the announced length of the body, if there is one.
fn check_length(http: &impl ClientConnection, limit: usize) -> Result<Option<usize>, Fault> {
    let header = http.head();
    let length =
        header.headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
    if length.is_some_and(|length| length > limit) {
        return Err(Fault::BodyTooLarge(limit));
    }
    Ok(length)
}

fn check_media_type(http: &impl ClientConnection) -> Result<(), Fault> {
    let header = http.head();
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
    // The usual spelling.
    if value == "application/json" {
        return true;
    }
    let mut pieces = value.split(';').map(str::trim);
    // The second one is the media type of A2A's HTTP+JSON binding.
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
    http: &mut impl ClientConnection,
    limits: &BodyLimits<'_>,
    length: Option<usize>,
) -> Result<ReceivedBody, Fault> {
    let mut room = BodyReservation { limits, permit: None, pieces: BodyPieces::default() };
    // The announced length is reserved before the first byte is read.
    room.reserve(length.unwrap_or(0))?;
    if http.head().headers.get(EXPECT).is_some() {
        http.continue_body().await?;
    }
    let Some(first) = http.read_body().await? else { return Ok(room.hold(Bytes::new())) };
    room.add(first.len())?;
    let Some(second) = http.read_body().await? else { return Ok(room.hold(first)) };
    let expected = length.unwrap_or((first.len() + second.len()).max(16 * 1024));
    let mut whole = BytesMut::with_capacity(expected.min(limits.limit.max(1)));
    whole.extend_from_slice(&first);
    drop(first);
    let mut piece = Some(second);
    while let Some(bytes) = piece {
        room.add(bytes.len())?;
        whole.extend_from_slice(&bytes);
        piece = http.read_body().await?;
    }
    Ok(room.hold(without_room(whole)))
}

/// Quota of a body that is being read.
struct BodyReservation<'a> {
    limits: &'a BodyLimits<'a>,
    /// Present once the body is large enough to be counted.
    permit: Option<BytePermit>,
    pieces: BodyPieces,
}

impl BodyReservation<'_> {
    /// Reserves this many bytes in total, unless they are reserved already.
    fn reserve(&mut self, bytes: usize) -> Result<(), Fault> {
        if bytes <= FREE_BYTES.max(self.permit.as_ref().map_or(0, BytePermit::counted)) {
            return Ok(());
        }
        let BodyLimits { quotas, owner, .. } = self.limits;
        let permit = self.permit.get_or_insert_with(|| quotas.permit(*owner));
        Ok(permit.set(bytes)?)
    }

    /// Reserves bytes for the next piece.
    fn add(&mut self, bytes: usize) -> Result<(), Fault> {
        let is_whole = self.pieces.add(bytes);
        if self.pieces.bytes() > self.limits.limit {
            return Err(Fault::BodyTooLarge(self.limits.limit));
        }
        self.reserve(self.pieces.bytes())?;
        if is_whole { Ok(()) } else { Err(Fault::BodyInPieces) }
    }

    fn hold(self, bytes: Bytes) -> ReceivedBody {
        ReceivedBody { bytes, permit: self.permit }
    }
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
