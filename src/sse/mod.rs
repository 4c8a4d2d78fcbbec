//! The grammar of `text/event-stream` (W3C server-sent events): decoding of chunks of any size, and
//! encoding.
//!
//! Pure. Out of scope: the meaning of the events, the end of a stream, keep-alive.

mod decoder;

use memchr::memchr2_iter;

pub use decoder::EventTooLarge;
pub use decoder::{Decoder, Event};

/// Writes an event with the JSON text `json` as its data, on one line.
pub fn write_event(out: &mut Vec<u8>, json: &[u8]) {
    out.reserve(json.len() + 8);
    out.extend_from_slice(b"data: ");
    one_line(out, json);
    out.extend_from_slice(b"\n\n");
}

/// Writes a comment, which readers skip: a keep-alive.
pub fn write_comment(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(b": ");
    one_line(out, text.as_bytes());
    out.extend_from_slice(b"\n\n");
}

/// Writes the time in milliseconds that the reader should wait before it reconnects.
pub fn write_retry(out: &mut Vec<u8>, milliseconds: u64) {
    out.extend_from_slice(b"retry: ");
    out.extend_from_slice(milliseconds.to_string().as_bytes());
    out.extend_from_slice(b"\n\n");
}

/// Appends `text` with spaces for line ends.
///
/// In JSON an unescaped line end occurs only between tokens, so the value stays the same: raw
/// members (`data`, `metadata`) may contain the line breaks of their agent.
fn one_line(out: &mut Vec<u8>, text: &[u8]) {
    let mut done = 0;
    for at in memchr2_iter(b'\r', b'\n', text) {
        out.extend_from_slice(text.get(done..at).unwrap_or_default());
        out.push(b' ');
        done = at + 1;
    }
    out.extend_from_slice(text.get(done..).unwrap_or_default());
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
