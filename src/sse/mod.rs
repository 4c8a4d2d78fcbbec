//! The grammar of `text/event-stream` (W3C server-sent events): decoding of chunks of any size, and
//! encoding.
//!
//! The decoder follows the W3C rules: lines end in CR, LF or CRLF, a byte order mark may open the
//! stream, several `data` lines are joined by LF, comments and unknown fields are skipped, an event
//! without its closing empty line is discarded. `id` and `retry` are ignored (A2A has no resumption by
//! event id).
//!
//! Pure. Out of scope: the meaning of the events, the end of a stream, keep-alive.

use std::borrow::Cow;
use std::mem;

use memchr::{memchr, memchr2};

/// Writes an event with the JSON text `json` as its data, on one line.
pub fn write_event(out: &mut Vec<u8>, json: &[u8]) {
    out.reserve(json.len() + 8);
    write_event_with(out, |out| out.extend_from_slice(json));
}

/// Writes an event with the JSON text that `write` adds as its data, on one line.
pub(crate) fn write_event_with(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    out.extend_from_slice(b"data: ");
    let start = out.len();
    write(out);
    join_lines(out, start);
    out.extend_from_slice(b"\n\n");
}

/// Writes a comment, which readers skip: a keep-alive.
pub fn write_comment(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(b": ");
    let start = out.len();
    out.extend_from_slice(text.as_bytes());
    join_lines(out, start);
    out.extend_from_slice(b"\n\n");
}

/// Writes the time in milliseconds that the reader should wait before it reconnects.
pub fn write_retry(out: &mut Vec<u8>, milliseconds: u64) {
    out.extend_from_slice(b"retry: ");
    out.extend_from_slice(milliseconds.to_string().as_bytes());
    out.extend_from_slice(b"\n\n");
}

/// Replaces the line ends from `start` on by spaces.
///
/// In JSON an unescaped line end occurs only between tokens, so the value stays the same: raw
/// members (`data`, `metadata`) may contain the line breaks of their agent.
fn join_lines(out: &mut [u8], start: usize) {
    let mut rest = out.get_mut(start..).unwrap_or_default();
    while let Some((end, after)) =
        memchr2(b'\r', b'\n', rest).and_then(|at| rest.get_mut(at..)?.split_first_mut())
    {
        *end = b' ';
        rest = after;
    }
}

/// Size of a line beyond its data: the name of the field, a byte order mark.
const FIELD_ROOM: usize = 64;
/// Maximum capacity of the buffer that is kept between lines: a large event must not hold its
/// memory for the whole stream.
const KEPT_LINE_BYTES: usize = 16 * 1024;

/// One event of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event<'a> {
    /// The `event` field, if it is present and not empty.
    pub name: Option<String>,
    /// The `data` lines, joined by line feeds. Borrowed if there is one, and all of it was in the last bytes.
    pub data: Cow<'a, [u8]>,
}

/// The error for an event, or a line, beyond the decoder's limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("event of the stream exceeds {limit} bytes")]
pub struct EventTooLarge {
    /// The limit in bytes.
    pub limit: usize,
}

/// Splits a stream into events.
#[derive(Debug)]
pub struct Decoder {
    max_event: usize,
    /// The beginning of a line without its end yet.
    line: Vec<u8>,
    name: Option<String>,
    data: Option<Vec<u8>>,
    first_line: bool,
    /// True if the last byte was CR: a following LF belongs to the same line end.
    after_return: bool,
    failed: bool,
}

impl Decoder {
    /// Creates a decoder at the beginning of a stream. The data of an event may have up to
    /// `max_event` bytes.
    pub fn new(max_event: usize) -> Self {
        Self {
            max_event,
            line: Vec::new(),
            name: None,
            data: None,
            first_line: true,
            after_return: false,
            failed: false,
        }
    }

    /// Adds bytes and returns the events they complete, in order.
    ///
    /// The events do not depend on how the stream was split into chunks. Those before one that is
    /// too large are still returned; the next call then fails, and so does every later one.
    ///
    /// # Errors
    ///
    /// [`EventTooLarge`] once an event or a line passes the limit.
    pub fn push<'a>(&mut self, bytes: &'a [u8]) -> Result<Vec<Event<'a>>, EventTooLarge> {
        let mut events = Vec::new();
        if !self.failed && self.take(bytes, &mut events).is_none() {
            self.failed = true;
            self.line = Vec::new();
            self.data = None;
        }
        if self.failed && events.is_empty() {
            return Err(EventTooLarge { limit: self.max_event });
        }
        Ok(events)
    }

    /// Returns the number of buffered bytes of an incomplete event.
    pub fn held(&self) -> usize {
        let name = self.name.as_ref().map_or(0, String::len);
        self.line.len() + name + self.data.as_ref().map_or(0, Vec::len)
    }

    /// Processes bytes. Returns `None` once the limit is exceeded.
    fn take<'a>(&mut self, bytes: &'a [u8], events: &mut Vec<Event<'a>>) -> Option<()> {
        let mut rest = bytes;
        if mem::take(&mut self.after_return) {
            match rest.split_first() {
                Some((b'\n', tail)) => rest = tail,
                Some(_) => {}
                None => self.after_return = true,
            }
        }
        // The data of the event so far, if it is one line of these bytes.
        let mut only = None;
        while let Some(at) = memchr2(b'\r', b'\n', rest) {
            let (line, tail) = rest.split_at_checked(at)?;
            let (end, tail) = tail.split_first()?;
            rest = match (end, tail.split_first()) {
                (b'\r', Some((b'\n', after))) => after,
                (b'\r', None) => {
                    self.after_return = true;
                    tail
                }
                _ => tail,
            };
            self.end_line(line, &mut only, events)?;
        }
        self.keep(&mut only);
        self.fits_in_line(rest)?;
        self.line.extend_from_slice(rest);
        Some(())
    }

    fn end_line<'a>(
        &mut self,
        end: &'a [u8],
        only: &mut Option<&'a [u8]>,
        events: &mut Vec<Event<'a>>,
    ) -> Option<()> {
        self.fits_in_line(end)?;
        if self.line.is_empty() {
            match self.read_line(end) {
                Line::Empty => {
                    let kept = self.data.take().map(Cow::Owned);
                    let (name, data) = (self.name.take(), only.take().map(Cow::Borrowed).or(kept));
                    events.extend(data.map(|data| Event { name, data }));
                }
                Line::Data(value) if self.data.is_none() && only.is_none() => {
                    *only = Some(without_controls(value)).filter(|_| value.len() <= self.max_event);
                    only.as_ref()?;
                }
                Line::Data(value) => {
                    self.keep(only);
                    self.add_data(value)?;
                }
                Line::Name(value) => self.set_name(value),
                Line::Other => {}
            }
            return Some(());
        }
        let mut line = mem::take(&mut self.line);
        line.extend_from_slice(end);
        // Its start came before these bytes. It is empty only after a byte order mark, which ends nothing.
        match self.read_line(&line) {
            Line::Data(value) => self.add_data(value)?,
            Line::Name(value) => self.set_name(value),
            Line::Empty | Line::Other => {}
        }
        if line.capacity() <= KEPT_LINE_BYTES {
            line.clear();
            self.line = line;
        }
        Some(())
    }

    fn fits_in_line(&self, more: &[u8]) -> Option<()> {
        let limit = self.max_event.saturating_add(FIELD_ROOM);
        (self.line.len().saturating_add(more.len()) <= limit).then_some(())
    }

    fn read_line<'a>(&mut self, line: &'a [u8]) -> Line<'a> {
        let line = match mem::take(&mut self.first_line) {
            true => line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line),
            false => line,
        };
        // Some agents write record separators (RFC 7464) into the stream.
        let whole = line.len();
        let line = without_controls(line);
        if line.is_empty() {
            return if whole > 0 { Line::Other } else { Line::Empty };
        }
        let (field, value) = match memchr(b':', line).and_then(|at| line.split_at_checked(at)) {
            Some((field, value)) => {
                let value = value.strip_prefix(b":").unwrap_or(value);
                (field, value.strip_prefix(b" ").unwrap_or(value))
            }
            None => (line, &[][..]),
        };
        match field {
            b"data" => Line::Data(value),
            b"event" => Line::Name(value),
            _ => Line::Other,
        }
    }

    fn set_name(&mut self, value: &[u8]) {
        self.name = Some(String::from_utf8_lossy(value).into_owned()).filter(|name| !name.is_empty());
    }

    /// Copies the data of an event that is not complete yet.
    fn keep(&mut self, only: &mut Option<&[u8]>) {
        if let Some(data) = only.take() {
            self.data = Some(data.to_vec());
        }
    }

    fn add_data(&mut self, value: &[u8]) -> Option<()> {
        let so_far = self.data.as_ref().map_or(0, |data| data.len() + 1);
        if so_far.saturating_add(value.len()) > self.max_event {
            return None;
        }
        match &mut self.data {
            Some(data) => {
                data.push(b'\n');
                data.extend_from_slice(value);
            }
            None => self.data = Some(without_controls(value).to_vec()),
        }
        Some(())
    }
}

/// A line of a stream.
enum Line<'a> {
    /// The end of an event.
    Empty,
    /// A line of its data.
    Data(&'a [u8]),
    /// Its name.
    Name(&'a [u8]),
    /// A comment, or an unknown field.
    Other,
}

/// Returns `bytes` without control characters at the beginning, tabs excepted.
fn without_controls(mut bytes: &[u8]) -> &[u8] {
    while let Some((0..=8 | 11..=31, rest)) = bytes.split_first() {
        bytes = rest;
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_block_is_one_line_and_an_empty_one() {
        let mut out = Vec::new();
        write_retry(&mut out, 1500);
        write_comment(&mut out, "two\nlines");
        write_event(&mut out, b"{\"a\":\r\n [1,\n2]}");
        assert_eq!(out, b"retry: 1500\n\n: two lines\n\ndata: {\"a\":   [1, 2]}\n\n");
    }
}

#[cfg(test)]
mod decoder_tests {
    #[test]
    fn record_separators_are_skipped() {
        let stream = b"\x1edata: {\"a\":1}\n\n\x1e\n\x1e\r\ndata: \x1e{\"b\":2}\n\x1e\n\n";
        let events = Decoder::new(100).push(stream).unwrap();
        let data: Vec<_> = events.iter().map(|event| &*event.data).collect();
        assert_eq!(data, [b"{\"a\":1}", b"{\"b\":2}"]);
    }

    use super::*;

    fn events(stream: &[u8]) -> Vec<(Option<String>, String)> {
        let events = Decoder::new(1000).push(stream).unwrap();
        events
            .into_iter()
            .map(|event| (event.name, String::from_utf8(event.data.into_owned()).unwrap()))
            .collect()
    }

    #[test]
    fn the_grammar_is_that_of_the_w3c() {
        for (stream, expected) in [
            ("data: a\n\n", &[(None, "a")][..]),
            ("data: a\r\n\r\ndata: b\r\rdata: c\n\n", &[(None, "a"), (None, "b"), (None, "c")]),
            ("\u{FEFF}data: a\n\n", &[(None, "a")]),
            (": ping - 2026\n\n:\n\ndata:a\n\n", &[(None, "a")]),
            ("data: a\ndata:  b\ndata\ndata:\n\n", &[(None, "a\n b\n\n")]),
            ("event: error\ndata: {}\n\n", &[(Some("error"), "{}")]),
            ("event: lost\n\ndata: a\n\n", &[(None, "a")]),
            ("event:\ndata: a\n\n", &[(None, "a")]),
            ("id: 7\nretry: 10\nfoo: bar\nDATA: x\ndata: a\n\n", &[(None, "a")]),
            ("data\n\n", &[(None, "")]),
            ("data: unfinished\n", &[]),
            ("data: unfinished", &[]),
            ("\n\n\r\n\r", &[]),
        ] {
            let expected: Vec<_> =
                expected.iter().map(|(name, data)| (name.map(str::to_owned), (*data).to_owned())).collect();
            assert_eq!(events(stream.as_bytes()), expected, "{stream:?}");
        }
    }

    #[test]
    fn an_event_in_one_piece_is_not_copied() {
        let mut decoder = Decoder::new(1000);
        let is_borrowed: Vec<_> =
            ["data: a\n", "\ndata: b\n\n", "event: c\ndata: d\r\n\r\ndata: e\ndata: f\n\n"]
                .into_iter()
                .flat_map(|piece| decoder.push(piece.as_bytes()).unwrap())
                .map(|event| matches!(event.data, Cow::Borrowed(_)))
                .collect();
        assert_eq!(is_borrowed, [false, true, true, false]);
    }

    #[test]
    fn only_incomplete_events_are_buffered() {
        let mut decoder = Decoder::new(1 << 20);
        for (piece, held) in
            [("event: e\n", 1), ("data: ab\n", 3), ("data: c", 10), ("\n", 5), ("\n", 0), (": x\n", 0)]
        {
            decoder.push(piece.as_bytes()).unwrap();
            assert_eq!(decoder.held(), held, "{piece:?}");
        }
        decoder.push(format!("data: {}", "x".repeat(1 << 19)).as_bytes()).unwrap();
        assert!(decoder.line.capacity() > KEPT_LINE_BYTES);
        decoder.push(b"\n\n").unwrap();
        assert!(decoder.line.capacity() <= KEPT_LINE_BYTES, "it is given back");
    }

    #[test]
    fn every_way_to_grow_without_end_is_bounded() {
        let endless: [&[u8]; 4] = [b"data: aaaaaaaa", b"data:\n", b": comment", b"aaaaaaaaaaaaaaaaaaaa"];
        for piece in endless {
            let mut decoder = Decoder::new(1000);
            let failed = (0..2000).find(|_| decoder.push(piece).is_err());
            assert!(failed.is_some(), "{piece:?}");
            assert!(decoder.line.len() + decoder.data.as_ref().map_or(0, Vec::len) <= 2064);
            assert!(decoder.push(b"\n\ndata: late\n\n").is_err(), "a stream stays broken");
        }
    }

    #[test]
    fn the_limit_is_exact_and_spares_the_events_before_it() {
        let fitting = format!("data: {}\n\n", "x".repeat(1000));
        assert_eq!(events(fitting.as_bytes()).len(), 1);
        let stream = format!("data: a\n\ndata: {}\n\n", "x".repeat(1001));
        let mut decoder = Decoder::new(1000);
        assert_eq!(decoder.push(stream.as_bytes()).map(|events| events.len()), Ok(1));
        assert_eq!(decoder.push(b""), Err(EventTooLarge { limit: 1000 }));
    }
}
