//! Escapes characters that a reader does not see, or that change how the text around them is
//! displayed: for the log and for terminals, where text of peers is beside the gateway's own.
//!
//! Text that models read is cleaned, not escaped (see `a2a::sanitize`).

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{self, Write};

use tracing_subscriber::fmt::MakeWriter;

/// The form of an escape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EscapeStyle {
    /// `\u{202e}`, as in Rust. For readers.
    Text,
    /// `\u202e`, as in JSON (RFC 8259 §7): the value stays the same.
    Json,
}

/// Returns true if a reader does not see this character, or sees others differently because of it:
/// controls, line separators, format characters (bidirectional, zero-width, tags), fillers,
/// variation selectors but those of emoji.
#[must_use]
pub(crate) fn is_hidden(character: char) -> bool {
    if character.is_ascii() {
        return character.is_ascii_control();
    }
    matches!(character,
        '\u{80}'..='\u{9f}' | '\u{ad}' | '\u{34f}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}'
        | '\u{70f}' | '\u{890}' | '\u{891}' | '\u{8e2}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
        | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0d}' | '\u{feff}' | '\u{ffa0}'
        | '\u{fff0}'..='\u{fffb}' | '\u{110bd}' | '\u{110cd}' | '\u{13430}'..='\u{1343f}'
        | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

/// Returns `text` with every hidden character escaped, but for line feeds and tabs.
#[must_use]
pub(crate) fn visible(text: &str, escape: EscapeStyle) -> Cow<'_, str> {
    escaped(text, escape, |character| matches!(character, '\n' | '\t'))
}

fn escaped(text: &str, escape: EscapeStyle, stays: impl Fn(char) -> bool) -> Cow<'_, str> {
    let is_escaped = |character: char| is_hidden(character) && !stays(character);
    if !text.chars().any(is_escaped) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 64);
    for character in text.chars() {
        match escape {
            _ if !is_escaped(character) => out.push(character),
            EscapeStyle::Text => out.extend(character.escape_unicode()),
            EscapeStyle::Json => {
                for unit in character.encode_utf16(&mut [0; 2]) {
                    // Writing to a string does not fail.
                    write!(out, "\\u{unit:04x}").unwrap_or_default();
                }
            }
        }
    }
    Cow::Owned(out)
}

/// The writers of a log without hidden characters: one event is one line.
pub(super) struct VisibleLines<M> {
    /// Creates the underlying writers.
    pub(super) make: M,
    /// The form of the lines.
    pub(super) escape: EscapeStyle,
}

/// Writes one event, which comes in one piece.
pub(super) struct VisibleLine<W> {
    /// The underlying writer.
    pub(super) inner: W,
    /// The form of the line.
    pub(super) escape: EscapeStyle,
}

impl<'a, M: MakeWriter<'a>> MakeWriter<'a> for VisibleLines<M> {
    type Writer = VisibleLine<M::Writer>;

    fn make_writer(&'a self) -> Self::Writer {
        VisibleLine { inner: self.make.make_writer(), escape: self.escape }
    }
}

impl<W: Write> Write for VisibleLine<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let (line, end) = match bytes.split_last() {
            Some((b'\n', line)) => (line, true),
            _ => (bytes, false),
        };
        // Almost every line is of printable ASCII, and written as it is. Without an early end, which
        // would compare byte by byte.
        if line.iter().fold(true, |is_plain, byte| is_plain & matches!(byte, b' '..=b'~')) {
            self.inner.write_all(bytes)?;
            return Ok(bytes.len());
        }
        let text = String::from_utf8_lossy(line);
        // The colours of a terminal are the log's own: those of values have been escaped before.
        let shown = escaped(&text, self.escape, |character| matches!(character, '\t' | '\u{1b}'));
        let mut shown = shown.into_owned();
        if end {
            shown.push('\n');
        }
        // In one piece, as it came: the underlying writer takes or drops it whole.
        self.inner.write_all(shown.as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_characters_are_escaped() {
        for (given, text, json) in [
            ("plain é 天 ☀️", "plain é 天 ☀️", "plain é 天 ☀️"),
            ("a\u{202e}b", "a\\u{202e}b", "a\\u202eb"),
            ("\u{e0041}", "\\u{e0041}", "\\udb40\\udc41"),
            ("\u{9b}2J\u{7f}", "\\u{9b}2J\\u{7f}", "\\u009b2J\\u007f"),
            ("two\nlines\t", "two\nlines\t", "two\nlines\t"),
        ] {
            assert_eq!(visible(given, EscapeStyle::Text), text);
            assert_eq!(visible(given, EscapeStyle::Json), json);
        }
    }

    #[test]
    fn an_event_is_one_line() {
        let written = |event: &str, escape| {
            let mut line = VisibleLine { inner: Vec::new(), escape };
            line.write_all(event.as_bytes()).unwrap();
            String::from_utf8(line.inner).unwrap()
        };
        assert_eq!(written("plain\n", EscapeStyle::Text), "plain\n");
        assert_eq!(written("a\nERROR b\r\n", EscapeStyle::Text), "a\\u{a}ERROR b\\u{d}\n");
        assert_eq!(written("{\"a\":\"\u{feff}\"}\n", EscapeStyle::Json), "{\"a\":\"\\ufeff\"}\n");
    }
}
