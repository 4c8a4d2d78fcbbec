//! One line of the log, written field by field without an event of `tracing`, in the same form.

use std::borrow::Cow;
use std::cell::Cell;
use std::fmt::{self, Display, Write as _};
use std::net::IpAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use time::OffsetDateTime;

use super::log::{LogFormat, is_hidden};
use crate::hex::HexText;

/// Writes a line of level `info`: `log_line!("target", KIND NAME = VALUE, …)`. The kinds are the
/// methods of [`LogLine`]. With `to OUTPUT, at TIME;` before, the line has this time and goes to an optional
/// [`LineOutput`]; without one it is an event. Fields in `@repeated NAME { … }` are copied from the
/// [`RepeatedFields`] of this name, if it has some; else they are written, and added to it.
macro_rules! log_line {
    ($target:literal, $($fields:tt)*) => {
        match $crate::telemetry::log::output() {
            Some(mut output) => {
                if output.shows($target) {
                    let (output, at) = (&mut output, std::time::SystemTime::now());
                    $crate::telemetry::log_line::log_line!(@form output, at, $target, $($fields)*)
                }
            }
            None => $crate::telemetry::log_line::log_line!(@event_of $target, $($fields)*),
        }
    };
    (to $output:expr, at $at:expr; $target:literal, $($fields:tt)*) => {
        match $output {
            Some(output) => $crate::telemetry::log_line::log_line!(@form output, $at, $target, $($fields)*),
            None => $crate::telemetry::log_line::log_line!(@event_of $target, $($fields)*),
        }
    };
    (@form $output:expr, $at:expr, $target:literal, $($fields:tt)*) => {
        match $crate::telemetry::log_line::LineOutput::form(&*$output) {
            $crate::telemetry::log::LogFormat::Text => {
                $crate::telemetry::log_line::log_line!(@line false $target, $at, $output, $($fields)*)
            }
            $crate::telemetry::log::LogFormat::Json => {
                $crate::telemetry::log_line::log_line!(@line true $target, $at, $output, $($fields)*)
            }
        }
    };
    (
        @event_of $target:literal, $($kind:ident $name:ident = $value:expr,)*
        @repeated $repeated:ident { $($r_kind:ident $r_name:ident = $r_value:expr,)* }
        $($l_kind:ident $l_name:ident = $l_value:expr,)*
    ) => {
        $crate::telemetry::log_line::log_line!(
            @event_of $target,
            $($kind $name = $value,)* $($r_kind $r_name = $r_value,)* $($l_kind $l_name = $l_value,)*
        )
    };
    (@event_of $target:literal, $($kind:ident $name:ident = $value:expr),* $(,)?) => {
        tracing::info!(
            target: $target,
            $($name = $crate::telemetry::log_line::log_line!(@event $kind $value)),*
        )
    };
    (
        @line $is_json:literal $target:literal, $at:expr, $output:expr, $($kind:ident $name:ident = $value:expr,)*
        @repeated $repeated:ident { $($r_kind:ident $r_name:ident = $r_value:expr,)* }
        $($l_kind:ident $l_name:ident = $l_value:expr,)*
    ) => {{
        $crate::telemetry::log_line::LineOutput::write_line($output, |block| {
            let mut line = $crate::telemetry::log_line::LogLine::<$is_json>::new($target, $at, block);
            $(line.$kind($crate::telemetry::log_line::log_line!(@name $name), $value);)*
            if !line.repeat($repeated) {
                let start = line.begin_repeated();
                $(line.$r_kind($crate::telemetry::log_line::log_line!(@name $r_name), $r_value);)*
                line.keep_since(start, $repeated);
            }
            $(line.$l_kind($crate::telemetry::log_line::log_line!(@name $l_name), $l_value);)*
            line.end($target)
        });
    }};
    (@line $is_json:literal $target:literal, $at:expr, $output:expr, $($kind:ident $name:ident = $value:expr),* $(,)?) => {{
        $crate::telemetry::log_line::LineOutput::write_line($output, |block| {
            let mut line = $crate::telemetry::log_line::LogLine::<$is_json>::new($target, $at, block);
            $(line.$kind($crate::telemetry::log_line::log_line!(@name $name), $value);)*
            line.end($target)
        });
    }};
    (@name $name:ident) => {
        const {
            &$crate::telemetry::log_line::FieldName {
                text: $crate::telemetry::log_line::PaddedText::new(concat!(" ", stringify!($name), "=")),
                text_quoted: $crate::telemetry::log_line::PaddedText::new(concat!(" ", stringify!($name), "=\"")),
                json: $crate::telemetry::log_line::PaddedText::new(concat!(",\"", stringify!($name), "\":")),
                json_quoted: $crate::telemetry::log_line::PaddedText::new(concat!(",\"", stringify!($name), "\":\"")),
            }
        }
    };
    (@event plain $value:expr) => {
        $value.map(|text: &str| tracing::field::display($crate::telemetry::log_line::Sanitized(text)))
    };
    (@event quoted $value:expr) => { $value };
    (@event word $value:expr) => { $value };
    (@event id $value:expr) => { $value.map(tracing::field::display) };
    (@event hex $value:expr) => { $value.map(tracing::field::display) };
    (@event address $value:expr) => { $value.map(tracing::field::display) };
    (@event shown $value:expr) => { $value.map(tracing::field::display) };
    (@event number $value:expr) => { $value };
    (@event millis $value:expr) => { $value.map($crate::telemetry::log_line::milliseconds) };
}
pub(super) use log_line;

/// The output of a line that is written without an event of `tracing`.
pub(super) trait LineOutput {
    /// Returns the form of the lines.
    fn form(&self) -> LogFormat;

    /// Has a line written into a block that the output provides, and takes it. Hidden characters in it are escaped, if it may have some.
    fn write_line(&mut self, write: impl FnOnce(&mut LineBlock) -> WrittenLine);
}

/// A line that was written into a block.
pub(super) struct WrittenLine {
    /// The whole line, if it is longer than the block. Else the block has it.
    full: Vec<u8>,
    /// The bytes of the block that are used.
    used: usize,
    /// True if it has text that was not checked for hidden characters.
    may_hide: bool,
}

impl WrittenLine {
    /// Returns the length of the line in the block, in bytes; `None` if the line is longer, or may have hidden characters.
    pub(super) fn length_in_block(&self) -> Option<usize> {
        (self.full.is_empty() && !self.may_hide).then_some(self.used)
    }

    /// Returns the line, and true if it may have hidden characters.
    pub(super) fn read<'l>(&'l self, block: &'l LineBlock) -> (&'l [u8], bool) {
        let in_block = block.get(..self.used).unwrap_or_default();
        (if self.full.is_empty() { in_block } else { &self.full }, self.may_hide)
    }
}

/// Fields of the line before, as they were written; none if it had none that can be copied.
///
/// The owner has to remove them before a line with other values.
#[derive(Default)]
pub(super) struct RepeatedFields(Vec<u8>);

/// The start of fields that the next line may repeat.
pub(super) struct RepeatedStart {
    /// The bytes of the block before them.
    used: usize,
    /// True if the line had text before them that was not checked for hidden characters.
    may_hide: bool,
}

impl RepeatedFields {
    /// Returns true if there are none.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Removes the fields: the next line has other values.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

/// The maximum number of characters of a peer's text that are logged.
pub(super) const MAX_LOGGED_CHARS: usize = 200;

/// Text of a peer, made safe for a log: cut, and without anything that moves a cursor or hides
/// text.
///
/// Use it for every log field that a peer can choose.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sanitized<'a>(pub(crate) &'a str);

impl<'a> Sanitized<'a> {
    /// Returns the text, which is that of the peer if it needs no change.
    pub(super) fn text(self) -> Cow<'a, str> {
        if self.is_safe() { Cow::Borrowed(self.0) } else { Cow::Owned(self.to_string()) }
    }

    fn is_safe(self) -> bool {
        self.0.len() <= MAX_LOGGED_CHARS && self.0.bytes().all(|byte| matches!(byte, b' '..=b'~'))
    }
}

impl Display for Sanitized<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_safe() {
            return f.write_str(self.0);
        }
        let mut characters = self.0.chars();
        for character in characters.by_ref().take(MAX_LOGGED_CHARS) {
            if is_hidden(character) {
                write!(f, "{}", character.escape_unicode())?;
            } else {
                f.write_char(character)?;
            }
        }
        if characters.next().is_some() { f.write_str("…") } else { Ok(()) }
    }
}

/// The bytes of a line that needs no vector. Most lines of the access log are shorter.
const BLOCK_BYTES: usize = 768;

/// The room for a line. Its bytes may be anything before.
pub(super) type LineBlock = [u8; BLOCK_BYTES];

/// A block without text.
pub(super) const EMPTY_BLOCK: LineBlock = [0; BLOCK_BYTES];

/// The name of a field with the characters around it, before a value as it is and before a quoted one, in
/// each form: put together at compile time.
pub(super) struct FieldName {
    pub(super) text: PaddedText,
    pub(super) text_quoted: PaddedText,
    pub(super) json: PaddedText,
    pub(super) json_quoted: PaddedText,
}

/// A short text in an array of one size: a copy of it is one move, where a copy of a string is a call.
pub(super) struct PaddedText {
    bytes: [u8; 16],
    length: usize,
}

impl PaddedText {
    /// Returns the text; does not compile if it is longer than 16 bytes.
    pub(super) const fn new(text: &str) -> Self {
        let mut bytes = [b' '; 16];
        bytes.split_at_mut(text.len()).0.copy_from_slice(text.as_bytes());
        Self { bytes, length: text.len() }
    }
}

/// A line that is being written, as JSON or as text.
///
/// Most of its pieces have a few bytes. A copy of a fixed size is a few moves, where a copy of a variable size
/// calls `memcpy`, which takes twice as long; so a piece is copied with a fixed size, of which a part counts.
pub(super) struct LogLine<'b, const JSON: bool> {
    /// The start of a line that is longer than the block.
    full: Vec<u8>,
    /// The rest of the line. Borrowed, so that it is not moved.
    block: &'b mut LineBlock,
    /// The bytes of the block that are used.
    used: usize,
    /// True if it has text that was not checked for hidden characters.
    may_hide: bool,
}

impl<'b, const JSON: bool> LogLine<'b, JSON> {
    /// Begins a line of level `info` with this target and time.
    pub(super) fn new(target: &str, at: SystemTime, block: &'b mut LineBlock) -> Self {
        let mut line = Self::empty(block);
        if JSON {
            line.put(b"{\"timestamp\":\"", 14);
            line.put(&utc_text(at), 27);
            line.put(b"\",\"level\":\"INFO\"", 16);
        } else {
            line.put(&utc_text(at), 27);
            line.put(b"  INFO ", 7);
            line.push(target);
            line.put(b":", 1);
        }
        line
    }

    fn empty(block: &'b mut LineBlock) -> Self {
        Self { full: Vec::new(), block, used: 0, may_hide: false }
    }

    /// Adds the fields of the line before. Returns false if there are none.
    pub(super) fn repeat(&mut self, RepeatedFields(fields): &RepeatedFields) -> bool {
        self.push_bytes(fields);
        !fields.is_empty()
    }

    /// Begins fields that the next line may repeat.
    pub(super) fn begin_repeated(&mut self) -> RepeatedStart {
        RepeatedStart { used: self.used, may_hide: std::mem::take(&mut self.may_hide) }
    }

    /// Keeps the fields that were added since this start for the next line, unless they have text that was not checked or
    /// the block had no room for them.
    pub(super) fn keep_since(&mut self, start: RepeatedStart, RepeatedFields(fields): &mut RepeatedFields) {
        if self.full.is_empty() && !self.may_hide {
            fields.extend_from_slice(self.block.get(start.used..self.used).unwrap_or_default());
        }
        self.may_hide |= start.may_hide;
    }

    /// Adds text of a peer or an identifier, as [`Sanitized`] shows it.
    pub(super) fn plain(&mut self, name: &FieldName, value: Option<&str>) {
        let Some(value) = value else { return };
        self.open(name);
        if self.push_simple(value) {
            self.close();
        } else {
            self.push_sanitized(value);
        }
    }

    /// Adds text after [`Self::open`], and what ends it.
    #[cold]
    fn push_sanitized(&mut self, value: &str) {
        self.may_hide = true;
        let text = Sanitized(value).to_string();
        if JSON {
            let quoted = serde_json::to_string(&text).unwrap_or_default();
            self.push(quoted.strip_prefix('"').unwrap_or_default());
        } else {
            self.push(&text);
        }
    }

    /// Adds text that is quoted in either form.
    pub(super) fn quoted(&mut self, name: &FieldName, value: Option<&str>) {
        let Some(value) = value else { return };
        if is_simple_text(value) {
            self.quote(name, value);
            return;
        }
        self.name(name);
        if JSON {
            self.json(value);
        } else {
            self.may_hide = true;
            self.push(&format!("{value:?}"));
        }
    }

    /// Adds an id or another text in which no character has to be escaped.
    pub(super) fn id(&mut self, name: &FieldName, value: Option<&str>) {
        let Some(value) = value else { return };
        debug_assert!(is_simple_text(value), "{value:?} has to be escaped");
        self.simple(name, value);
    }

    /// Adds a word of the gateway, quoted in either form: no text of a peer.
    pub(super) fn word(&mut self, name: &FieldName, value: Option<&'static str>) {
        let Some(value) = value else { return };
        debug_assert!(is_simple_text(value), "{value:?} has to be escaped");
        self.quote(name, value);
    }

    /// Adds hexadecimal digits.
    pub(super) fn hex<const M: usize>(&mut self, name: &FieldName, value: Option<HexText<M>>) {
        let Some(HexText(digits)) = value else { return };
        self.open(name);
        self.put(&digits, M);
        self.close();
    }

    /// Adds the address of a peer.
    pub(super) fn address(&mut self, name: &FieldName, value: Option<IpAddr>) {
        let address = match value {
            None => return,
            // Digits, letters, colons and points.
            Some(IpAddr::V6(address)) => return self.simple(name, &address.to_string()),
            Some(IpAddr::V4(address)) => address,
        };
        self.open(name);
        // The formatter of the standard library takes five times as long.
        let (mut text, mut length) = ([0; 16], 0);
        for octet in address.octets() {
            let (digits, count) = short_number(octet.into());
            let with_point = digits | u32::from(b'.') << (8 * count);
            if let Some(place) = text.get_mut(length..).and_then(<[u8]>::first_chunk_mut) {
                *place = with_point.to_le_bytes();
            }
            length += count + 1;
        }
        self.put(&text, length - 1);
        self.close();
    }

    /// Adds a value as it is displayed.
    pub(super) fn shown(&mut self, name: &FieldName, value: Option<impl Display>) {
        let Some(value) = value else { return };
        self.name(name);
        self.shown_text(&value.to_string());
    }

    /// Adds a number.
    pub(super) fn number(&mut self, name: &FieldName, value: u64) {
        self.name(name);
        match u32::try_from(value) {
            Ok(short @ ..10_000) => {
                let (digits, count) = short_number(short);
                self.put(&digits.to_le_bytes(), count);
            }
            _ => self.push(itoa::Buffer::new().format(value)),
        }
    }

    /// Adds milliseconds with up to three decimals.
    pub(super) fn millis(&mut self, name: &FieldName, value: Option<Duration>) {
        let Some(value) = value else { return };
        let micros = rounded_micros(value);
        self.number(name, micros / 1000);
        let digits = four_digits(u32::try_from(micros % 1000).unwrap_or_default());
        // The first of four digits is always 0: the point takes its place. One decimal is always shown.
        let zeros = (digits | 1 << 8).leading_zeros() / 8;
        let [_, decimals @ ..] = (digits | FOUR_ZEROS).to_le_bytes();
        let [a, b, c] = decimals;
        self.put(&[b'.', a, b, c], 4 - zeros as usize);
    }

    /// Ends the line.
    pub(super) fn end(mut self, target: &str) -> WrittenLine {
        if JSON {
            self.put(b",\"target\":\"", 11);
            self.push(target);
            self.put(b"\"}\n", 3);
        } else {
            self.put(b"\n", 1);
        }
        self.written()
    }

    /// Returns the line so far.
    fn written(mut self) -> WrittenLine {
        if !self.full.is_empty() {
            self.flush_block();
        }
        WrittenLine { full: self.full, used: self.used, may_hide: self.may_hide }
    }

    fn name(&mut self, name: &FieldName) {
        let PaddedText { bytes, length } = if JSON { &name.json } else { &name.text };
        self.put(bytes, *length);
    }

    /// Begins a field that JSON has in quotation marks.
    fn open(&mut self, name: &FieldName) {
        let PaddedText { bytes, length } = if JSON { &name.json_quoted } else { &name.text };
        self.put(bytes, *length);
    }

    /// Ends a field that [`Self::open`] began.
    fn close(&mut self) {
        if JSON {
            self.put(b"\"", 1);
        }
    }

    fn simple(&mut self, name: &FieldName, text: &str) {
        self.open(name);
        self.push(text);
        self.close();
    }

    fn quote(&mut self, name: &FieldName, text: &str) {
        let PaddedText { bytes, length } = if JSON { &name.json_quoted } else { &name.text_quoted };
        self.put(bytes, *length);
        self.push(text);
        self.put(b"\"", 1);
    }

    fn shown_text(&mut self, text: &str) {
        self.may_hide = true;
        if JSON {
            self.json(text);
        } else {
            self.push(text);
        }
    }

    fn json(&mut self, text: &str) {
        self.may_hide = true;
        // A text can always be written.
        self.push(&serde_json::to_string(text).unwrap_or_default());
    }

    fn push(&mut self, text: &str) {
        match self.copy_short(text, |_| ()) {
            Some(()) => self.used += text.len(),
            None => self.push_bytes(text.as_bytes()),
        }
    }

    /// Adds a text if it is not too long, and the same in quotation marks as without. Returns false for another one.
    fn push_simple(&mut self, text: &str) -> bool {
        let mut is_simple = true;
        match self.copy_short(text, |chunk| is_simple &= !has_special(chunk)) {
            Some(()) if is_simple => self.used += text.len(),
            None if text.len() <= MAX_LOGGED_CHARS && is_simple_text(text) => {
                self.push_bytes(text.as_bytes())
            }
            _ => return false,
        }
        true
    }

    /// Copies a text of at most 32 bytes behind the line, by moves of eight bytes. Passes each to `see`; digits fill up one of
    /// fewer bytes. `None` for a longer text, and if the block has no room.
    #[inline(always)]
    fn copy_short(&mut self, text: &str, mut see: impl FnMut(u64)) -> Option<()> {
        let room = self.block.get_mut(self.used..)?.first_chunk_mut::<32>()?;
        let (text, length) = (text.as_bytes(), text.len());
        // Chunks overlap, so that two sizes suffice for all lengths.
        if let Some((first, last)) = ends::<8>(text) {
            let mut copy = |place: usize, chunk: &[u8; 8]| {
                see(u64::from_le_bytes(*chunk));
                *room.get_mut(place..)?.first_chunk_mut()? = *chunk;
                Some(())
            };
            copy(0, first)?;
            if length > 16 {
                copy(8, text.get(8..)?.first_chunk()?)?;
                if length > 24 {
                    copy(16, text.get(16..)?.first_chunk()?)?;
                }
            }
            copy(length - 8, last)?;
        } else if let Some((first, last)) = ends::<4>(text) {
            let shift = 8 * (length - 4);
            let chunk = u64::from(u32::from_le_bytes(*first)) | u64::from(u32::from_le_bytes(*last)) << shift;
            see(chunk | EIGHT_ZEROS << (8 * length));
            *room.first_chunk_mut()? = chunk.to_le_bytes();
        } else {
            let chunk = text.iter().rev().fold(0, |chunk, byte| chunk << 8 | u64::from(*byte));
            see(chunk | EIGHT_ZEROS << (8 * length));
            *room.first_chunk_mut()? = chunk.to_le_bytes();
        }
        Some(())
    }

    /// Adds the first `length` of these bytes, by one move of all.
    #[inline]
    fn put<const N: usize>(&mut self, bytes: &[u8; N], length: usize) {
        match self.block.get_mut(self.used..).and_then(|rest| rest.first_chunk_mut()) {
            Some(place) => {
                *place = *bytes;
                self.used += length;
            }
            None => self.push_bytes(bytes.get(..length).unwrap_or_default()),
        }
    }

    fn push_bytes(&mut self, bytes: &[u8]) {
        let end = self.used + bytes.len();
        match self.block.get_mut(self.used..end) {
            Some(room) => {
                room.copy_from_slice(bytes);
                self.used = end;
            }
            None => self.push_beyond(bytes),
        }
    }

    /// Adds bytes for which the block has no room.
    #[cold]
    fn push_beyond(&mut self, bytes: &[u8]) {
        self.flush_block();
        self.full.extend_from_slice(bytes);
    }

    fn flush_block(&mut self) {
        self.full.extend_from_slice(self.block.get(..self.used).unwrap_or_default());
        self.used = 0;
    }
}

/// Returns the first and the last `N` bytes, which overlap in a text of less than twice as many.
#[inline]
fn ends<const N: usize>(text: &[u8]) -> Option<(&[u8; N], &[u8; N])> {
    Some((text.first_chunk()?, text.last_chunk()?))
}

/// Digits to fill up a chunk that has too few bytes.
const EIGHT_ZEROS: u64 = u64::from_le_bytes(*b"00000000");

/// Returns true if one of eight bytes is not the same in quotation marks as without, in one of the forms: a control
/// character, a quotation mark, a backslash, or not ASCII.
#[inline]
fn has_special(chunk: u64) -> bool {
    const EACH: u64 = u64::from_le_bytes([1; 8]);
    // The highest bit of each byte that is below a limit. Above the lowest such byte it may be set for others too.
    let below = |chunk: u64, limit: u8| chunk.wrapping_sub(EACH * u64::from(limit)) & !chunk;
    let equal = |byte: u8| below(chunk ^ (EACH * u64::from(byte)), 1);
    let special = chunk | below(chunk, b' ') | equal(b'"') | equal(b'\\') | equal(0x7f);
    special & EACH << 7 != 0
}

/// Returns true if a text is the same in quotation marks as without, in both forms.
fn is_simple_text(text: &str) -> bool {
    let (chunks, rest) = text.as_bytes().as_chunks();
    let rest = rest.iter().fold(EIGHT_ZEROS, |chunk, byte| chunk << 8 | u64::from(*byte));
    chunks.iter().all(|chunk| !has_special(u64::from_le_bytes(*chunk))) && !has_special(rest)
}

/// Returns microseconds, rounded as they are for the events of `tracing`.
pub(super) fn rounded_micros(duration: Duration) -> u64 {
    duration
        .as_secs()
        .saturating_mul(1_000_000)
        .saturating_add(u64::from((duration.subsec_nanos() + 500) / 1000))
}

/// Returns a time in UTC with microseconds (RFC 3339).
fn utc_text(at: SystemTime) -> [u8; 27] {
    thread_local! {
        // All lines of a second have all but the last digits in common.
        static SECOND: Cell<(u64, [u8; 27])> = const { Cell::new((u64::MAX, [0; 27])) };
    }
    // A clock that was never set may be before 1970.
    let Ok(since) = at.duration_since(UNIX_EPOCH) else { return time_text(at.into()) };
    let (second, mut text) = SECOND.get();
    if second == since.as_secs() {
        set_micros(&mut text, since.subsec_micros());
    } else {
        text = time_text(at.into());
        SECOND.set((since.as_secs(), text));
    }
    text
}

/// Writes the microseconds of a time.
fn set_micros(text: &mut [u8; 27], micros: u32) {
    let digits = |number| (four_digits(number) | FOUR_ZEROS).to_le_bytes();
    let [.., a, b, c, d, e, f, _] = text;
    ([_, *a, *b, *c], [_, *d, *e, *f]) = (digits(micros / 1000), digits(micros % 1000));
}

/// Four zeros as text.
const FOUR_ZEROS: u32 = u32::from_le_bytes(*b"0000");

/// Returns the digits of a number below 10,000, the first one in the lowest byte: one number in place of four.
#[inline]
fn four_digits(number: u32) -> u32 {
    let hundreds = number / 100;
    let pairs = hundreds | (number - 100 * hundreds) << 16;
    // A tenth of each pair: exact below 179.
    let tens = ((pairs * 103) >> 10) & 0x000f_000f;
    tens | (pairs - 10 * tens) << 8
}

/// Returns the text of a number below 10,000 with its first character in the lowest byte, and its length.
#[inline]
fn short_number(number: u32) -> (u32, usize) {
    let digits = four_digits(number);
    let zeros = ((digits | 1 << 24).trailing_zeros() / 8) as usize;
    ((digits | FOUR_ZEROS) >> (8 * zeros), 4 - zeros)
}

/// Returns a time in UTC with microseconds (RFC 3339).
fn time_text(time: OffsetDateTime) -> [u8; 27] {
    let mut text = *b"0000-00-00T00:00:00.000000Z";
    let [month, day, hour, minute, second] =
        [u8::from(time.month()), time.day(), time.hour(), time.minute(), time.second()].map(u32::from);
    set_digits(&mut text, 3, time.year().unsigned_abs());
    set_digits(&mut text, 6, month);
    set_digits(&mut text, 9, day);
    set_digits(&mut text, 12, hour);
    set_digits(&mut text, 15, minute);
    set_digits(&mut text, 18, second);
    set_micros(&mut text, time.microsecond());
    text
}

/// Writes a number over the digits that end at `last`.
fn set_digits(text: &mut [u8], last: usize, mut number: u32) {
    let places = text.iter_mut().take(last + 1).rev();
    for place in places.take_while(|place| place.is_ascii_digit()) {
        *place = b'0' + u8::try_from(number % 10).unwrap_or_default();
        number /= 10;
    }
}

/// Returns milliseconds with three decimals: a gateway's own part is well under one.
#[expect(clippy::cast_precision_loss, reason = "exact for 285 years")]
pub(super) fn milliseconds(duration: Duration) -> f64 {
    rounded_micros(duration) as f64 / 1e3
}

#[cfg(test)]
mod tests {
    use super::super::log::LogOutput;
    use super::super::log::tests::written;
    use super::*;

    /// Writes an event and a line with the same fields.
    macro_rules! both {
        ($form:expr, $($kind:ident $name:ident = $value:expr),* $(,)?) => {{
            let event = written($form == LogFormat::Json, "info", || {
                tracing::info!(target: "access", $($name = log_line!(@event $kind $value)),*);
            });
            let (output, kept) = LogOutput::kept($form);
            let at = SystemTime::now();
            log_line!(to Some(&mut &output), at at; "access", $($kind $name = $value,)*);
            (event, kept())
        }};
    }

    #[test]
    fn log_line_has_form_of_event() {
        for form in [LogFormat::Text, LogFormat::Json] {
            let lengths = [1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 100, MAX_LOGGED_CHARS, 600, 2000];
            let long = lengths.map(|length| ('a'..='z').cycle().take(length).collect::<String>());
            let strange = ["", "say \"hi\"\\\n", "\u{202e}é\u{7f}", "two words"].map(str::to_owned);
            for text in long.iter().chain(&strange).map(String::as_str) {
                let (event, line) = both!(
                    form,
                    plain caller = Some(text),
                    plain tool = None::<&str>,
                    quoted session = Some(text),
                    quoted task = None::<&str>,
                    shown resource = Some(Sanitized(text)),
                    id request = Some("0123456789abcdef"),
                    hex trace = Some(HexText::<4>::new([0x0a, 0xf1])),
                    hex span = None::<HexText<4>>,
                    word era = Some("modern"),
                    word version = None::<&str>,
                    address client = Some(IpAddr::from([192, 0, 2, 10])),
                    address peer = Some(IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1])),
                    address other = None::<IpAddr>,
                    number status = 200_u64,
                    millis ms = Some(Duration::from_nanos(1_234_567_890)),
                    millis agent_ms = Some(Duration::from_millis(3)),
                    millis other_ms = None::<Duration>,
                );
                let without_time = |line: &str| {
                    let (start, rest) = line.split_at(line.find("20").unwrap());
                    (start.to_owned(), rest.split_at(27).1.to_owned())
                };
                assert_eq!(without_time(&event), without_time(&line), "{event}{line}");
            }
        }
    }

    #[test]
    fn text_with_one_unsafe_byte_is_not_simple() {
        for length in 1..=50 {
            let text = "a".repeat(length);
            assert!(is_simple_text(&text));
            for place in 0..length {
                for unsafe_byte in ['"', '\\', '\n', '\u{1b}', '\u{7f}', 'é'] {
                    let other =
                        format!("{}{unsafe_byte}{}", "a".repeat(place), "a".repeat(length - place - 1));
                    assert!(!is_simple_text(&other), "{other:?}");
                }
            }
        }
    }

    #[test]
    fn log_line_has_all_bytes_at_the_end_of_the_block() {
        for before in BLOCK_BYTES - 70..=BLOCK_BYTES {
            for length in 0..=40 {
                let (mut block, text) = (EMPTY_BLOCK, "0123456789".repeat(4));
                let (start, text) = ("x".repeat(before), text.get(..length).unwrap());
                let mut line = LogLine::<true>::empty(&mut block);
                line.push(&start);
                line.plain(log_line!(@name tool), Some(text));
                line.plain(log_line!(@name agent), Some("a\"b"));
                line.hex(log_line!(@name trace), Some(HexText::<4>::new([0x0a, 0xf1])));
                line.millis(log_line!(@name ms), Some(Duration::from_micros(1_250)));
                line.address(log_line!(@name client), Some(IpAddr::from([10, 0, 200, 1])));
                let whole = format!(
                    "{start},\"tool\":\"{text}\",\"agent\":\"a\\\"b\",\"trace\":\"0af1\",\"ms\":1.25,\"client\":\"10.0.200.1\""
                );
                let written = line.written();
                assert_eq!(written.read(&block).0, whole.as_bytes());
            }
        }
    }

    #[test]
    fn log_line_has_form_of_numbers() {
        for (micros, shown) in [(0, "0.0"), (1, "0.001"), (120, "0.12"), (1500, "1.5"), (100_010, "100.01")] {
            let mut block = EMPTY_BLOCK;
            let mut line = LogLine::<false>::empty(&mut block);
            line.millis(log_line!(@name ms), Some(Duration::from_micros(micros)));
            let written = line.written();
            assert_eq!(written.read(&block).0, format!(" ms={shown}").as_bytes());
        }
    }

    #[test]
    fn log_time_has_all_digits() {
        let time = OffsetDateTime::from_unix_timestamp(951_782_405).unwrap() + Duration::from_micros(70_009);
        assert_eq!(time_text(time), *b"2000-02-29T00:00:05.070009Z");
    }

    #[test]
    fn long_text_is_cut() {
        let shown = Sanitized(&"ü".repeat(5000)).to_string();
        assert_eq!(shown.chars().count(), MAX_LOGGED_CHARS + 1);
        assert_eq!(Sanitized("plain \"text\" ✓").to_string(), "plain \"text\" ✓");
        assert_eq!(Sanitized("\x1b[31m\r\0").to_string(), "\\u{1b}[31m\\u{d}\\u{0}");
    }
}
