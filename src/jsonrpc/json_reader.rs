//! Reads JSON as serde_json does, with less work for text that is only passed on.
//!
//! A message is read in layers: its envelope first, then what the method has, then a part; each keeps the values of
//! the next as raw JSON, so that a long text is examined several times before it is copied. Here a string is examined by
//! vector instructions, and a value that is passed on is not taken apart. Strings with escapes, and numbers other than
//! short natural ones, are read by serde_json.

use std::fmt;

use serde::de::value::BorrowedStrDeserializer;
use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, Error as _, Expected, MapAccess, SeqAccess, Unexpected,
    Visitor,
};
use serde::forward_to_deserialize_any;

use super::escape_search::{plain_bytes, plain_in_chunk};
use super::json_writer::RAW_VALUE;

/// Reads a value from JSON, which is all of `json` but white space around it.
///
/// # Errors
///
/// [`ReadError`] if the text is not JSON (RFC 8259), if objects and arrays are nested more than [`MAX_DEPTH`] deep
/// ([`MAX_RAW_DEPTH`] with those of a raw value), or if the value refuses it. Two values that serde_json reads are refused: a map
/// with keys that are no strings (numbers, enums, booleans), and bytes of a string with control characters.
pub(crate) fn read_json<'de, T: Deserialize<'de>>(json: &'de str) -> Result<T, ReadError> {
    read_json_seed(json, std::marker::PhantomData)
}

/// As [`read_json`], with a seed, which may fill a value in its place.
///
/// # Errors
///
/// As [`read_json`].
pub(crate) fn read_json_seed<'de, S: DeserializeSeed<'de>>(
    json: &'de str,
    seed: S,
) -> Result<S::Value, ReadError> {
    let mut reader = JsonReader { json, at: 0, depth: 0 };
    let read = seed.deserialize(&mut reader).and_then(|value| match reader.peek() {
        None => Ok(value),
        Some(_) => Err(reader.unexpected("trailing characters", "")),
    });
    read.map_err(|error| error.at(json, reader.at))
}

/// Most objects and arrays around one value.
const MAX_DEPTH: u32 = 127;
/// Most of them around and within a raw value: 128 bits tell which is which.
const MAX_RAW_DEPTH: u32 = 128;
const TOO_DEEP: &str = "recursion limit exceeded";

/// The reason why a text could not be read, with the line and the column.
#[derive(Debug)]
pub(crate) struct ReadError(Box<ErrorReason>);

#[derive(Debug)]
struct ErrorReason {
    reason: String,
    line: usize,
    column: usize,
}

impl ReadError {
    /// Returns true if the text is nested too deeply.
    pub(crate) fn is_too_deep(&self) -> bool {
        self.0.reason == TOO_DEEP
    }

    /// Adds the place.
    #[cold]
    fn at(mut self, json: &str, at: usize) -> Self {
        let before = json.as_bytes().get(..at).unwrap_or_default();
        self.0.line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        self.0.column = before.iter().rev().take_while(|byte| **byte != b'\n').count();
        self
    }
}

impl fmt::Display for ReadError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ErrorReason { reason, line, column } = &*self.0;
        write!(out, "{reason} at line {line} column {column}")
    }
}

impl std::error::Error for ReadError {}

impl serde::de::Error for ReadError {
    #[cold]
    fn custom<T: fmt::Display>(reason: T) -> Self {
        Self(Box::new(ErrorReason { reason: reason.to_string(), line: 0, column: 0 }))
    }

    #[cold]
    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        match found {
            // As JSON names it.
            Unexpected::Unit => Self::custom(format_args!("invalid type: null, expected {expected}")),
            _ => Self::custom(format_args!("invalid type: {found}, expected {expected}")),
        }
    }
}

impl From<serde_json::Error> for ReadError {
    /// The place in the error is one within the value, so it is left out.
    #[cold]
    fn from(error: serde_json::Error) -> Self {
        let text = error.to_string();
        Self::custom(text.rsplit_once(" at line ").map_or(text.as_str(), |(reason, _)| reason))
    }
}

/// The error of serde_json.
const CONTROL_CHARACTER: &str = "control character (\\u0000-\\u001F) found while parsing a string";

/// The text, and the place that is read next.
struct JsonReader<'de> {
    json: &'de str,
    at: usize,
    /// Objects and arrays that are open.
    depth: u32,
}

impl<'de> JsonReader<'de> {
    /// Returns the next byte that is no white space, and stays before it.
    #[inline]
    fn peek(&mut self) -> Option<u8> {
        loop {
            match self.json.as_bytes().get(self.at) {
                Some(b' ' | b'\n' | b'\t' | b'\r') => self.at += 1,
                other => return other.copied(),
            }
        }
    }

    /// Returns the text from `start` to here.
    fn since(&self, start: usize) -> &'de str {
        self.json.get(start..self.at).unwrap_or_default()
    }

    /// Skips one byte, which must be this one.
    #[inline]
    fn expect(&mut self, byte: u8, wrong: &str, context: &str) -> Result<(), ReadError> {
        if self.peek() != Some(byte) {
            return Err(self.unexpected(wrong, context));
        }
        self.at += 1;
        Ok(())
    }

    /// Returns the error for the next byte; at the end of the text that for the end of `context`.
    #[cold]
    fn unexpected(&mut self, wrong: &str, context: &str) -> ReadError {
        match self.peek() {
            Some(_) => {
                // The place of the byte, as columns are counted from 1. No more is read.
                self.at += 1;
                ReadError::custom(wrong)
            }
            None => ReadError::custom(format_args!("EOF while parsing {context}")),
        }
    }

    /// Skips the string that begins here. Returns true if there are escapes in it.
    #[inline]
    fn skip_string(&mut self) -> Result<bool, ReadError> {
        // Most strings that are no text end within a chunk.
        if let Some(chunk) = self.json.as_bytes().get(self.at + 1..).and_then(<[u8]>::first_chunk) {
            let count = plain_in_chunk(*chunk);
            if chunk.get(count) == Some(&b'"') {
                self.at += count + 2;
                return Ok(false);
            }
        }
        self.skip_longer_string()
    }

    fn skip_longer_string(&mut self) -> Result<bool, ReadError> {
        self.at += 1;
        self.skip_plain();
        if self.json.as_bytes().get(self.at) == Some(&b'"') {
            self.at += 1;
            return Ok(false);
        }
        self.skip_escapes().map(|()| true)
    }

    /// Skips the bytes of a string before its end and before an escape.
    fn skip_plain(&mut self) {
        self.at += plain_bytes(self.json.as_bytes().get(self.at..).unwrap_or_default());
    }

    /// Skips a string from its first escape on.
    #[inline(never)]
    fn skip_escapes(&mut self) -> Result<(), ReadError> {
        loop {
            match self.json.as_bytes().get(self.at) {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(());
                }
                Some(b'\\') => self.skip_escape()?,
                Some(_) => return Err(ReadError::custom(CONTROL_CHARACTER)),
                None => return Err(ReadError::custom("EOF while parsing a string")),
            }
            self.skip_plain();
        }
    }

    /// Reads the string that begins here.
    #[inline]
    fn visit_string<V: Visitor<'de>>(&mut self, visitor: V) -> Result<V::Value, ReadError> {
        let start = self.at;
        if self.skip_string()? {
            return Ok(serde_json::Deserializer::from_str(self.since(start)).deserialize_str(visitor)?);
        }
        visitor.visit_borrowed_str(self.json.get(start + 1..self.at - 1).unwrap_or_default())
    }

    /// Skips the escape that begins here. A half of a surrogate pair is one, as for a raw value of serde_json.
    fn skip_escape(&mut self) -> Result<(), ReadError> {
        let rest = self.json.as_bytes().get(self.at + 1..).unwrap_or_default();
        self.at += match rest {
            [b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't', ..] => 2,
            [b'u', digits @ ..]
                if digits.iter().take(4).filter(|byte| byte.is_ascii_hexdigit()).count() == 4 =>
            {
                6
            }
            [] | [b'u'] => return Err(ReadError::custom("EOF while parsing a string")),
            _ => return Err(ReadError::custom("invalid escape")),
        };
        Ok(())
    }

    /// Skips the name of a member, and the colon.
    fn skip_name(&mut self) -> Result<(), ReadError> {
        self.expect_name()?;
        self.skip_string()?;
        self.expect_colon()
    }

    #[inline]
    fn expect_name(&mut self) -> Result<(), ReadError> {
        match self.peek() {
            Some(b'"') => Ok(()),
            _ => Err(self.unexpected("key must be a string", OBJECT)),
        }
    }

    #[inline]
    fn expect_colon(&mut self) -> Result<(), ReadError> {
        self.expect(b':', "expected `:`", OBJECT)
    }

    /// Skips `true`, `false` or `null`.
    fn skip_literal(&mut self, word: &'static str) -> Result<(), ReadError> {
        let rest = self.json.get(self.at..).unwrap_or_default();
        if !rest.starts_with(word) {
            return Err(ReadError::custom("expected ident"));
        }
        self.at += word.len();
        Ok(())
    }

    /// Skips a number. Returns true if it is an integer without a sign.
    #[inline]
    fn skip_number(&mut self) -> Result<bool, ReadError> {
        let text = self.json.as_bytes();
        let start = self.at + usize::from(text.get(self.at) == Some(&b'-'));
        let mut end = after_digits(text, start);
        let mut is_valid = end == start + 1 || (end > start && text.get(start) != Some(&b'0'));
        let mut is_natural = start == self.at;
        if text.get(end) == Some(&b'.') {
            let fraction = end + 1;
            end = after_digits(text, fraction);
            is_valid &= end > fraction;
            is_natural = false;
        }
        if let Some(b'e' | b'E') = text.get(end) {
            let exponent = end + 1 + usize::from(matches!(text.get(end + 1), Some(b'+' | b'-')));
            end = after_digits(text, exponent);
            is_valid &= end > exponent;
            is_natural = false;
        }
        self.at = end;
        match is_valid {
            true => Ok(is_natural),
            false => Err(self.unexpected("invalid number", VALUE)),
        }
    }

    /// Skips a string, a number or a literal.
    #[inline]
    fn skip_leaf(&mut self, first: Option<u8>) -> Result<(), ReadError> {
        match first {
            Some(b'"') => self.skip_string().map(drop),
            Some(b'-' | b'0'..=b'9') => self.skip_number().map(drop),
            Some(b't') => self.skip_literal("true"),
            Some(b'f') => self.skip_literal("false"),
            Some(b'n') => self.skip_literal("null"),
            _ => Err(self.unexpected("expected value", VALUE)),
        }
    }

    /// Skips any value, and returns its text.
    fn skip_value(&mut self) -> Result<&'de str, ReadError> {
        let first = self.peek();
        let start = self.at;
        match first {
            Some(b'{' | b'[') => self.skip_nested()?,
            _ => self.skip_leaf(first)?,
        }
        Ok(self.since(start))
    }

    /// Skips an object or an array, without recursion.
    fn skip_nested(&mut self) -> Result<(), ReadError> {
        // A bit for each that is open, the innermost last: 1 is an object.
        let (mut open, mut depth) = (0_u128, 0_u32);
        loop {
            let first = self.peek();
            match first {
                Some(b'{' | b'[') => {
                    if self.depth.saturating_add(depth) >= MAX_RAW_DEPTH {
                        return Err(ReadError::custom(TOO_DEEP));
                    }
                    let is_object = first == Some(b'{');
                    (open, depth) = (open << 1 | u128::from(is_object), depth + 1);
                    self.at += 1;
                    if self.peek() != Some(if is_object { b'}' } else { b']' }) {
                        if is_object {
                            self.skip_name()?;
                        }
                        continue;
                    }
                }
                _ => self.skip_leaf(first)?,
            }
            // After a value.
            while depth > 0 {
                let is_object = open & 1 == 1;
                match self.peek() {
                    Some(b',') => {
                        self.at += 1;
                        if is_object {
                            self.skip_name()?;
                        }
                        break;
                    }
                    Some(b'}') if is_object => {}
                    Some(b']') if !is_object => {}
                    _ if is_object => return Err(self.unexpected("expected `,` or `}`", OBJECT)),
                    _ => return Err(self.unexpected("expected `,` or `]`", LIST)),
                }
                self.at += 1;
                (open, depth) = (open >> 1, depth - 1);
            }
            if depth == 0 {
                return Ok(());
            }
        }
    }

    /// Reads the members or items with `read`, and passes both ends.
    fn within<V>(
        &mut self,
        end: u8,
        read: impl FnOnce(MemberReader<'_, 'de>) -> Result<V, ReadError>,
    ) -> Result<V, ReadError> {
        if self.depth == MAX_DEPTH {
            return Err(ReadError::custom(TOO_DEEP));
        }
        self.depth += 1;
        self.at += 1;
        let value = read(MemberReader { reader: self, is_first: true, end })?;
        self.depth -= 1;
        self.expect(end, "trailing characters", context_of(end))?;
        Ok(value)
    }

    /// Has serde_json read the next value.
    fn delegate<V>(
        &mut self,
        read: impl FnOnce(&mut serde_json::Deserializer<serde_json::de::StrRead<'de>>) -> serde_json::Result<V>,
    ) -> Result<V, ReadError> {
        let mut json = serde_json::Deserializer::from_str(self.skip_value()?);
        let value = read(&mut json)?;
        json.end()?;
        Ok(value)
    }

    fn visit_number<V: Visitor<'de>>(&mut self, visitor: V) -> Result<V::Value, ReadError> {
        let start = self.at;
        let is_natural = self.skip_number()?;
        let number = self.since(start);
        if is_natural && number.len() <= SHORT_DIGITS {
            let natural = number.bytes().fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0'));
            return visitor.visit_u64(natural);
        }
        Ok(serde_json::Deserializer::from_str(number).deserialize_any(visitor)?)
    }
}

/// The parts of a text in which it may end too soon, as serde_json names them.
const VALUE: &str = "a value";
const OBJECT: &str = "an object";
const LIST: &str = "a list";

/// Returns the part with this last byte.
fn context_of(end: u8) -> &'static str {
    if end == b'}' { OBJECT } else { LIST }
}

/// Digits of a number that is always a `u64`.
const SHORT_DIGITS: usize = 19;

/// Returns the place of the first byte from `start` on that is no digit.
fn after_digits(text: &[u8], start: usize) -> usize {
    let rest = text.get(start..).unwrap_or_default();
    start + rest.iter().take_while(|byte| byte.is_ascii_digit()).count()
}

impl<'de> Deserializer<'de> for &mut JsonReader<'de> {
    type Error = ReadError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        match self.peek() {
            Some(b'"') => self.visit_string(visitor),
            Some(b'{') => self.within(b'}', |members| visitor.visit_map(members)),
            Some(b'[') => self.within(b']', |items| visitor.visit_seq(items)),
            Some(b'-' | b'0'..=b'9') => self.visit_number(visitor),
            Some(b't') => self.skip_literal("true").and_then(|()| visitor.visit_bool(true)),
            Some(b'f') => self.skip_literal("false").and_then(|()| visitor.visit_bool(false)),
            Some(b'n') => self.skip_literal("null").and_then(|()| visitor.visit_unit()),
            _ => Err(self.unexpected("expected value", VALUE)),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        match self.peek() {
            Some(b'n') => self.skip_literal("null").and_then(|()| visitor.visit_none()),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        if name == RAW_VALUE {
            return visitor.visit_map(RawValueReader(self.skip_value()?));
        }
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        self.skip_value()?;
        visitor.visit_unit()
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        self.delegate(|json| json.deserialize_enum(name, variants, visitor))
    }

    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        self.delegate(|json| json.deserialize_bytes(visitor))
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        self.delegate(|json| json.deserialize_byte_buf(visitor))
    }

    fn deserialize_f32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        self.delegate(|json| json.deserialize_f32(visitor))
    }

    fn deserialize_i128<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        self.delegate(|json| json.deserialize_i128(visitor))
    }

    fn deserialize_u128<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        self.delegate(|json| json.deserialize_u128(visitor))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 u32 u64 f64 char str string unit unit_struct seq tuple tuple_struct map struct
        identifier
    }
}

/// Reads the members of an object, or the items of an array.
struct MemberReader<'r, 'de> {
    reader: &'r mut JsonReader<'de>,
    is_first: bool,
    end: u8,
}

impl MemberReader<'_, '_> {
    /// Returns true if there is another, and passes the comma before it.
    #[inline]
    fn has_next(&mut self) -> Result<bool, ReadError> {
        let next = self.reader.peek();
        if next == Some(self.end) {
            return Ok(false);
        }
        if !std::mem::take(&mut self.is_first) {
            let wrong = if self.end == b'}' { "expected `,` or `}`" } else { "expected `,` or `]`" };
            self.reader.expect(b',', wrong, context_of(self.end))?;
        }
        Ok(true)
    }
}

impl<'de> MapAccess<'de> for MemberReader<'_, 'de> {
    type Error = ReadError;

    #[inline]
    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, ReadError> {
        if !self.has_next()? {
            return Ok(None);
        }
        self.reader.expect_name()?;
        seed.deserialize(NameReader(self.reader)).map(Some)
    }

    #[inline]
    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, ReadError> {
        self.reader.expect_colon()?;
        seed.deserialize(&mut *self.reader)
    }
}

impl<'de> SeqAccess<'de> for MemberReader<'_, 'de> {
    type Error = ReadError;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, ReadError> {
        if !self.has_next()? {
            return Ok(None);
        }
        seed.deserialize(&mut *self.reader).map(Some)
    }
}

/// Reads the name of a member.
struct NameReader<'r, 'de>(&'r mut JsonReader<'de>);

impl<'de> Deserializer<'de> for NameReader<'_, 'de> {
    type Error = ReadError;

    #[inline]
    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        self.0.visit_string(visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        visitor.visit_newtype_struct(self)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct seq
        tuple tuple_struct map struct enum identifier ignored_any
    }
}

/// Reads a raw value from its text, in the form in which serde_json hands it over.
struct RawValueReader<'de>(&'de str);

impl<'de> MapAccess<'de> for RawValueReader<'de> {
    type Error = ReadError;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, ReadError> {
        seed.deserialize(BorrowedStrDeserializer::new(RAW_VALUE)).map(Some)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, ReadError> {
        seed.deserialize(BorrowedStrDeserializer::new(self.0))
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use serde::Deserialize;
    use serde::de::IgnoredAny;
    use serde_json::Value;
    use serde_json::value::RawValue;

    use super::super::json_writer::tests::any_json;
    use super::*;

    /// Reads the text as each type by both, and compares.
    fn assert_same(json: &str) {
        fn each<'de, T: Deserialize<'de> + fmt::Debug>(json: &'de str) {
            let (ours, theirs) = (read_json::<T>(json), serde_json::from_str::<T>(json));
            match (ours, theirs) {
                (Ok(ours), Ok(theirs)) => assert_eq!(format!("{ours:?}"), format!("{theirs:?}"), "{json}"),
                (Err(_), Err(_)) => {}
                (ours, theirs) => panic!("{json}: {ours:?}, and by serde_json {theirs:?}"),
            }
        }
        each::<Value>(json);
        each::<IgnoredAny>(json);
        each::<&RawValue>(json);
        each::<Box<RawValue>>(json);
        each::<Option<Box<RawValue>>>(json);
        each::<String>(json);
        each::<Cow<'_, str>>(json);
        each::<Option<&str>>(json);
        each::<Vec<&RawValue>>(json);
        each::<BTreeMap<String, &RawValue>>(json);
        each::<BTreeMap<String, IgnoredAny>>(json);
        each::<Members<'_>>(json);
        each::<Vec<Members<'_>>>(json);
        each::<Variants>(json);
        each::<(u64, i8)>(json);
        each::<f32>(json);
        each::<f64>(json);
        each::<i128>(json);
        each::<u128>(json);
        each::<i64>(json);
        each::<u16>(json);
        each::<char>(json);
        each::<bool>(json);
        each::<()>(json);
    }

    #[allow(dead_code, reason = "they are compared as they are shown")]
    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Members<'a> {
        #[serde(borrow, default)]
        text: Option<Cow<'a, str>>,
        #[serde(borrow, default)]
        raw: Option<&'a RawValue>,
        #[serde(default)]
        natural: Newtype,
        variant: Option<Variants>,
        #[serde(borrow, default)]
        inner: Option<Box<Members<'a>>>,
        list_of_any: Option<Vec<Value>>,
        #[serde(flatten)]
        more: BTreeMap<String, Value>,
    }

    #[allow(dead_code, reason = "as above")]
    #[derive(Debug, Default, Deserialize)]
    struct Newtype(u32);

    #[allow(dead_code, reason = "as above")]
    #[derive(Debug, Deserialize)]
    enum Variants {
        One,
        Newtype(Option<bool>),
        Members { a: u64 },
    }

    /// JSON, and texts that are nearly JSON.
    const CASES: &str = r#"
        null
        true
        false
        { }
        nul
        truth
        True
        0
        -0
        00
        01
        1.
        1.0
        .5
        -
        -1
        +1
        1e5
        1E+05
        1e-
        1e
        1.5e300
        1e999
        18446744073709551615
        18446744073709551616
        9999999999999999999
        -9223372036854775808
        340282366920938463463374607431768211455
        0x1
        1 2
        NaN
        Infinity
        [1,2]
        [1,2,3]
        [1,]
        [,1]
        [1 2]
        [
        ]
        [1
        [[]
        [}
        [1}
        {]
        ""
        "a"
        "a
        "a"b
        "\"
        "\""
        "\u00e9"
        "\u00e"
        "\ud83d\ude00"
        "\ud83d"
        "\uZZZZ"
        "\x"
        "\u"
        "\u12"
        'a'
        "One"
        "Two"
        {"Newtype":true}
        {"Members":{"a":1}}
        {"Members":{"a":1},"b":2}
        {"a":1}
        {"a":1,}
        {,"a":1}
        {"a" 1}
        {"a":}
        {"a"}
        {a:1}
        {1:1}
        {null:1}
        {"a":1 "b":2}
        {"a":1]
        {"a":1,"a":2}
        {"\u0061":1,"\ud800":2}
        {"raw":"\ud800"}
        {"text":"\ud800"}
        {"text":"x\ny","raw": [ 1.0, {"b" : [] } ] ,"natural":4294967295,"variant":"One"}
        {"natural":4294967296}
        {"natural":-1}
        {"natural":1.0}
        {"text":null,"raw":null,"variant":null,"inner":null}
        {"inner":{"inner":{"listOfAny":[1,"a",null,{"b":[]}],"other":{"c":1e3}}}}
        [{"text":"a"},{"raw":{}}]
        [null,[],{}]
        [[[[1],[2]],{"a":[{}]}]]
        [{"a":[}]
        [{"a":{"b":1]}
        ["a","b]
    "#;

    #[test]
    fn values_are_those_of_serde_json() {
        let odd = [
            "\r\n\t[ ]",
            "",
            " ",
            " 1 ",
            "\u{feff}1",
            "\"\n\"",
            "\"\u{0}\"",
            "\"\u{7f}\"",
            "\"é\u{10ffff}\"",
        ];
        for json in CASES.lines().map(str::trim_start).chain(odd) {
            assert_same(json);
        }
    }

    #[test]
    fn each_byte_ends_a_string_in_each_place() {
        let characters = (0..=0x100).filter_map(char::from_u32).chain(['\u{2028}', '\u{10ffff}']);
        for character in characters {
            for length in [0, 1, 7, 8, 9, 127, 128, 129, 191, 192, 193, 300] {
                for place in [0, length / 2, length] {
                    let text = format!("{}{character}{}", "a".repeat(place), "é".repeat(length - place));
                    let json = format!("\"{text}\"");
                    let ours = read_json::<&RawValue>(&json).map(RawValue::get).ok();
                    assert_eq!(
                        ours,
                        serde_json::from_str::<&RawValue>(&json).map(RawValue::get).ok(),
                        "{json:?}"
                    );
                    let ours = read_json::<String>(&json).ok();
                    assert_eq!(ours, serde_json::from_str::<String>(&json).ok(), "{json:?}");
                }
            }
        }
    }

    #[test]
    fn nesting_is_bounded() {
        let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        for (depth, is_read, is_skipped) in
            [(127, true, true), (128, false, true), (129, false, false), (100_000, false, false)]
        {
            let json = nested(depth);
            assert_eq!(read_json::<Value>(&json).is_ok(), is_read, "{depth}");
            assert_eq!(serde_json::from_str::<Value>(&json).is_ok(), is_read, "{depth}");
            assert_eq!(read_json::<&RawValue>(&json).is_ok(), is_skipped, "{depth}");
            assert_eq!(read_json::<[&RawValue; 1]>(&json).is_ok(), is_skipped, "around and within: {depth}");
            let objects = "{\"a\":".repeat(depth) + "1" + &"}".repeat(depth);
            assert_eq!(read_json::<IgnoredAny>(&objects).is_ok(), is_skipped, "{depth}");
            let refused = read_json::<IgnoredAny>(&objects).is_err_and(|error| error.is_too_deep());
            assert_eq!(refused, !is_skipped, "{depth}");
        }
        // Those side by side do not count.
        assert!(read_json::<Value>(&format!("[{}1]", "[],{},".repeat(1000))).is_ok());
    }

    #[test]
    fn errors_name_the_place() {
        for (json, error) in [
            ("{\n  \"a\": 1,\n  \"b\" 2}", "expected `:` at line 3 column 7"),
            ("[1", "EOF while parsing a list at line 1 column 2"),
            ("[1] 2", "trailing characters at line 1 column 5"),
            ("[01]", "invalid number at line 1 column 4"),
            ("\"\\ud800\"", "unexpected end of hex escape at line 1 column 8"),
        ] {
            assert_eq!(read_json::<Value>(json).unwrap_err().to_string(), error, "{json}");
        }
        let error = read_json::<Vec<u8>>("[1,\n\"a\"]").unwrap_err().to_string();
        assert_eq!(error, "invalid type: string \"a\", expected u8 at line 2 column 3");
    }

    /// Pieces of JSON, of which some order may be JSON.
    fn any_text() -> impl Strategy<Value = String> {
        let piece = prop::sample::select(vec![
            "{",
            "}",
            "[",
            "]",
            ",",
            ":",
            "\"a\"",
            "\"text\":",
            "\"raw\":",
            "\"inner\":{",
            "1",
            "-1.5e3",
            "null",
            "true",
            " ",
            "\\",
            "\"",
            "\"\\u00e9\"",
            "\n",
        ]);
        prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #[test]
        fn any_value_is_read_as_by_serde_json(value in any_json(), cut in any::<prop::sample::Index>()) {
            for json in [value.to_string(), serde_json::to_string_pretty(&value).unwrap()] {
                assert_same(&json);
                let cut = cut.index(json.len() + 1);
                assert_same(json.get(..cut).unwrap_or_default());
            }
        }

        #[test]
        fn any_text_is_read_as_by_serde_json(json in any_text()) {
            assert_same(&json);
        }
    }
}
