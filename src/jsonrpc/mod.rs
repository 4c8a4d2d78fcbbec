//! JSON-RPC 2.0: parsing and encoding of messages; texts that pass through unchanged; and the two
//! passes over the bytes of a body: the check before it is parsed (UTF-8, nesting, surrogates), and the
//! names of all members.
//!
//! `json_reader`, the parser of messages, bounds their nesting as serde_json does, and skips raw values without
//! a check of their escapes, so that a body could carry halves of surrogate pairs to the next parser. The JSON
//! grammar is left to the parser. Names are for text that a parser has read before, or will read: for any other
//! text the result has no meaning, but the scan never reads past the end.
//!
//! Pure. Out of scope: MCP and A2A; the layers above define methods and their params.

mod escape_search;
mod json_reader;
mod json_text;
mod json_writer;
mod message;
pub(crate) mod object;
mod shared_body;

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::str::Utf8Error;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};
use serde::ser::{Serialize, Serializer};
use serde_json::value::RawValue;

use escape_search::plain_bytes;
pub(crate) use json_reader::{ReadError, read_json, read_json_seed};
pub use json_text::JsonText;
pub(crate) use json_writer::{ObjectText, write_json};
pub use message::{
    Message, MessageKind, ParseError, RawParams, elements, is_batch, parse, parse_envelope, recover_id,
    write_error, write_result,
};
pub(crate) use message::{
    add_notification, parse_raw, recover_id_of_cut, write_long_result, write_notification, write_request,
};
pub(crate) use shared_body::SharedBody;
use shared_body::is_shared;

/// A JSON-RPC request id: a string or a number, unchanged byte for byte, so that the responses to
/// `1`, `"1"`, `1.0` and `9007199254740993` have the same ids.
#[derive(Debug, Clone)]
pub struct Id(Box<RawValue>);

/// Maximum length of an accepted id in bytes, quotes included.
const MAX_ID_BYTES: usize = 1024;

impl Id {
    /// Returns `null`, the id of a response to a request without one.
    #[must_use]
    pub fn null() -> Self {
        Self(Box::default())
    }

    /// Returns the id as JSON text.
    pub fn as_json(&self) -> &str {
        self.0.get()
    }

    /// Returns the characters of an id that is a string; `None` for a number.
    pub fn text(&self) -> Option<Cow<'_, str>> {
        serde_json::from_str::<Text<'_>>(self.as_json()).ok().map(|Text(text)| text)
    }
}

impl PartialEq for Id {
    fn eq(&self, other: &Self) -> bool {
        self.as_json() == other.as_json()
    }
}
impl Eq for Id {}

impl Serialize for Id {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Id {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = <&RawValue>::deserialize(deserializer)?;
        let text = raw.get();
        if text.len() > MAX_ID_BYTES {
            return Err(D::Error::custom("id is longer than 1024 bytes"));
        }
        match text.as_bytes().first() {
            Some(b'"' | b'-' | b'0'..=b'9') => Ok(Self(raw.to_owned())),
            _ => Err(D::Error::custom("id must be a string or a number")),
        }
    }
}

/// A JSON string, borrowed from the input unless it holds escapes.
///
/// `Option<Cow<str>>` would always copy: serde borrows a `Cow` only at the top of a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Text<'a>(pub Cow<'a, str>);

impl Text<'_> {
    /// Returns the characters.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AnyText<'a>(PhantomData<&'a ()>);
        impl<'de: 'a, 'a> Visitor<'de> for AnyText<'a> {
            type Value = Text<'a>;
            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("a string")
            }
            fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Borrowed(text)))
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }
        }
        deserializer.deserialize_str(AnyText(PhantomData))
    }
}

/// A value that must be a JSON object: derived types alone would accept an array too.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Object<T>(pub T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OnlyMap<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for OnlyMap<T> {
            type Value = Object<T>;
            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(Object)
            }
        }
        deserializer.deserialize_map(OnlyMap(PhantomData))
    }
}

/// The reason why a body must not be parsed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// The bytes are not UTF-8.
    #[error("not UTF-8 at byte {0}")]
    NotUtf8(usize),
    /// Arrays and objects nest deeper than the limit.
    #[error("nested deeper than {0} levels")]
    TooDeep(usize),
    /// A `\u` escape is half of a surrogate pair.
    #[error("lone surrogate in a string at byte {0}")]
    LoneSurrogate(usize),
}

/// Returns the body as text, if it is UTF-8, nests at most `max_depth` levels and has no lone
/// surrogates.
///
/// # Errors
///
/// [`Malformed`], with the position.
pub fn well_formed(body: &[u8], max_depth: usize) -> Result<&str, Malformed> {
    let text = utf8(body).map_err(|error| Malformed::NotUtf8(error.valid_up_to()))?;
    match is_shared() {
        true => check(body, max_depth, past_shared_string)?,
        // Nearly every small body has few brackets, and no escape by number.
        false if has_few_brackets(body, max_depth) && !has_numbered_escape(body) => {}
        false => check(body, max_depth, past_string)?,
    }
    Ok(text)
}

/// Returns true if there may be an escape by number: without one there is no surrogate.
fn has_numbered_escape(body: &[u8]) -> bool {
    memchr::memchr(b'\\', body)
        .is_some_and(|at| memchr::memmem::find(body.get(at..).unwrap_or_default(), br"\u").is_some())
}

/// Bytes of a piece with a count that fits into one byte, so that a vector of bytes is counted at
/// once; whole vectors of any width.
const COUNTED_BYTES: usize = 192;

/// Returns true if there are at most `limit` opening brackets, in any position: then nothing nests deeper.
pub(crate) fn has_few_brackets(json: &[u8], limit: usize) -> bool {
    let mut found = 0_usize;
    json.chunks(COUNTED_BYTES).all(|piece| {
        let brackets = piece.iter().map(|byte| u8::from(matches!(byte, b'{' | b'['))).sum::<u8>();
        found += usize::from(brackets);
        found <= limit
    })
}

/// Checks nesting and surrogates, with a function that returns the position after a string.
fn check(
    body: &[u8],
    max_depth: usize,
    past_string: impl Fn(&[u8], usize) -> Result<usize, Malformed>,
) -> Result<(), Malformed> {
    let mut depth = 0usize;
    let mut at = 0usize;
    while let Some(byte) = body.get(at) {
        at += 1;
        match byte {
            b'{' | b'[' => {
                depth += 1;
                if depth > max_depth {
                    return Err(Malformed::TooDeep(max_depth));
                }
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            b'"' => at = past_string(body, at)?,
            _ => {}
        }
    }
    Ok(())
}

/// Returns bytes as text.
///
/// # Errors
///
/// [`Utf8Error`], with the position, unless they are UTF-8.
pub(crate) fn utf8(bytes: &[u8]) -> Result<&str, Utf8Error> {
    // By vector instructions, several times as fast; it does not say where the error is.
    simdutf8::basic::from_utf8(bytes).or_else(|_| std::str::from_utf8(bytes))
}

/// Returns the position after the string that begins at `at`.
fn past_string(body: &[u8], mut at: usize) -> Result<usize, Malformed> {
    while let Some(rest) = body.get(at..) {
        let Some(found) = memchr::memchr2(b'"', b'\\', rest) else { break };
        at += found;
        if body.get(at) == Some(&b'"') {
            return Ok(at + 1);
        }
        at = past_escape(body, at)?;
    }
    Ok(body.len())
}

/// The same in the runs that the parser examines, which it does not examine again then. For strings that are not parsed, or
/// are short, the other search is faster.
fn past_shared_string(body: &[u8], mut at: usize) -> Result<usize, Malformed> {
    loop {
        at += plain_bytes(body.get(at..).unwrap_or_default());
        match body.get(at) {
            Some(b'"') => return Ok(at + 1),
            Some(b'\\') => at = past_escape(body, at)?,
            Some(_) => at += 1,
            None => return Ok(body.len()),
        }
    }
}

/// Returns the position after the escape with its backslash at `at`.
fn past_escape(body: &[u8], at: usize) -> Result<usize, Malformed> {
    match unit(body, at) {
        None => Ok(at + 2),
        Some(0xD800..=0xDBFF) if matches!(unit(body, at + 6), Some(0xDC00..=0xDFFF)) => Ok(at + 12),
        Some(0xD800..=0xDFFF) => Err(Malformed::LoneSurrogate(at)),
        Some(_) => Ok(at + 6),
    }
}

/// Returns the UTF-16 unit of the `\uXXXX` at `at`, if it is such an escape.
fn unit(body: &[u8], at: usize) -> Option<u16> {
    let digits = body.get(at..at + 6)?.strip_prefix(b"\\u")?;
    u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

/// The way to continue after a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scan {
    /// Report the names within its value.
    Within,
    /// Skip its value.
    Beyond,
    /// Stop.
    NoMore,
}

/// Calls `tell` with the name of every member, in their order, at any depth.
pub fn each_name<'a>(json: &'a str, mut tell: impl FnMut(Text<'a>) -> Scan) {
    let bytes = json.as_bytes();
    let mut at = 0;
    while let Some(found) = bytes.get(at..).and_then(|rest| memchr::memchr(b'"', rest)) {
        let begin = at + found;
        let end = after_string(bytes, begin);
        at = past_space(bytes, end);
        if bytes.get(at) != Some(&b':') {
            continue;
        }
        at += 1;
        match json.get(begin..end).map(read) {
            Some(name) => match tell(name) {
                Scan::Within => {}
                Scan::Beyond => at = past_value(bytes, at),
                Scan::NoMore => return,
            },
            None => return,
        }
    }
}

/// Returns the characters of a string with its quotation marks; an invalid one is returned
/// unchanged.
fn read(quoted: &str) -> Text<'_> {
    let plain = quoted.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(quoted);
    if plain.contains('\\') {
        serde_json::from_str(quoted).unwrap_or(Text(Cow::Borrowed(plain)))
    } else {
        Text(Cow::Borrowed(plain))
    }
}

/// Returns the position after the string with its first quotation mark at `begin`.
fn after_string(bytes: &[u8], begin: usize) -> usize {
    past_string(bytes, begin + 1).unwrap_or(bytes.len()).min(bytes.len())
}

fn past_space(bytes: &[u8], at: usize) -> usize {
    let rest = bytes.get(at..).unwrap_or_default();
    at + rest.iter().take_while(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r')).count()
}

/// Returns the position after the value that begins at `at`, or before the next token.
fn past_value(bytes: &[u8], mut at: usize) -> usize {
    let mut depth = 0usize;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => at = after_string(bytes, at),
            b'{' | b'[' => (depth, at) = (depth + 1, at + 1),
            b'}' | b']' if depth > 1 => (depth, at) = (depth - 1, at + 1),
            b'}' | b']' => return at + depth,
            b',' if depth == 0 => return at,
            _ => at += 1,
        }
    }
    at
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Map, Value};

    use super::*;

    #[test]
    fn ids_come_back_byte_equal() {
        for text in ["0", "\"\"", "1", "\"1\"", "1.0", "9007199254740993", "\"\\u00e9\"", "-7", "1e3"] {
            let id: Id = serde_json::from_str(text).unwrap();
            assert_eq!(serde_json::to_string(&id).unwrap(), text);
        }
    }

    #[test]
    fn only_a_string_has_characters() {
        for (id, text) in [(r#""a\u0062""#, Some("ab")), ("\"\"", Some("")), ("7", None)] {
            let id: Id = serde_json::from_str(id).unwrap();
            assert_eq!(id.text().as_deref(), text, "{id:?}");
        }
    }

    #[test]
    fn missing_id_is_answered_with_null() {
        assert_eq!(serde_json::to_string(&Id::null()).unwrap(), "null");
    }

    #[test]
    fn other_types_are_refused() {
        for text in ["null", "true", "{}", "[]"] {
            assert!(serde_json::from_str::<Id>(text).is_err(), "{text}");
        }
        let long = format!("\"{}\"", "x".repeat(2000));
        assert!(serde_json::from_str::<Id>(&long).is_err());
    }

    #[test]
    fn depth_is_counted_outside_strings_only() {
        assert!(well_formed(br#"{"a":["[[[[[["]}"#, 2).is_ok());
        assert_eq!(well_formed(b"[[[1]]]", 2), Err(Malformed::TooDeep(2)));
        assert!(well_formed("[".repeat(1000).as_bytes(), 64).is_err());
    }

    #[test]
    fn lone_surrogates_are_found_with_their_place() {
        for (text, bad) in [
            (r#""\ud83d\ude00""#, None),
            (r#""\ud800""#, Some(1)),
            (r#""a\udc00""#, Some(2)),
            (r#""\ud800\u0041""#, Some(1)),
            (r#""\\ud800""#, None),
            (r#""\"\ud800""#, Some(3)),
        ] {
            assert_eq!(well_formed(text.as_bytes(), 8).err(), bad.map(Malformed::LoneSurrogate), "{text}");
        }
    }

    #[test]
    fn bytes_that_are_not_utf8_are_refused() {
        assert_eq!(well_formed(b"\"\xff\"", 8), Err(Malformed::NotUtf8(1)));
    }

    fn names(json: &str, beyond: &str) -> Vec<String> {
        let mut all = Vec::new();
        each_name(json, |name| {
            all.push(name.as_str().to_owned());
            match name.as_str() {
                "stop" => Scan::NoMore,
                name if name == beyond => Scan::Beyond,
                _ => Scan::Within,
            }
        });
        all
    }

    #[test]
    fn names_are_told_apart_from_other_strings() {
        for (json, expected) in [
            (r#"{"a":"b","c":["d",{"e":1}],"f":{}}"#, &["a", "c", "e", "f"][..]),
            (r#"{ "a" : "x\":\"y" ,"b\u0063":"" , "q\"" : {"\\":null}}"#, &["a", "bc", "q\"", "\\"]),
            (r#"["a:","b"]"#, &[]),
            (r#""a""#, &[]),
            (r#"{"stop":{"a":1},"b":2}"#, &["stop"]),
        ] {
            assert_eq!(names(json, ""), expected, "{json}");
        }
    }

    #[test]
    fn a_value_is_passed_over_whatever_it_is() {
        for value in [
            "1",
            "-1.5e3",
            "null",
            r#""x,\"}""#,
            "[]",
            "{}",
            r#"[{"n":[1,{"n":"]"}]},"}"]"#,
            r#"{"n":{"n":[]}}"#,
        ] {
            for json in [
                format!(r#"{{"data":{value},"after":1}}"#),
                format!(r#"{{ "data" : {value} , "after" : 1 }}"#),
                format!(r#"[{{"data":{value}}},{{"after":1}}]"#),
            ] {
                assert_eq!(names(&json, "data"), ["data", "after"], "{json}");
            }
        }
    }

    /// Collects the names with a parser: the reference.
    fn parsed(value: &Value, beyond: &str, all: &mut Vec<String>) {
        match value {
            Value::Object(members) => members.iter().for_each(|(name, value)| {
                all.push(name.clone());
                if name != beyond {
                    parsed(value, beyond, all);
                }
            }),
            Value::Array(items) => items.iter().for_each(|item| parsed(item, beyond, all)),
            _ => {}
        }
    }

    fn json() -> impl Strategy<Value = Value> {
        let text = r#"[a-c"\\\n:,{}\[\]é ]{0,4}"#;
        let leaf =
            prop_oneof![Just(Value::Null), any::<i32>().prop_map(Value::from), text.prop_map(Value::from),];
        leaf.prop_recursive(4, 32, 4, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::vec((text, inner), 0..4)
                    .prop_map(|members| Value::Object(members.into_iter().collect::<Map<_, _>>())),
            ]
        })
    }

    proptest! {
        #[test]
        fn the_names_are_those_that_a_parser_finds(value in json(), pretty: bool) {
            let written = if pretty { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) };
            let mut expected = Vec::new();
            parsed(&value, "a", &mut expected);
            prop_assert_eq!(names(&written.unwrap(), "a"), expected);
        }

        #[test]
        fn any_text_is_looked_through(text in r#"[a"\\:,{}\[\]é u0d8]{0,40}"#) {
            names(&text, "a");
        }
    }
}

#[cfg(test)]
mod text_tests {
    use super::*;

    #[test]
    fn a_string_borrows_unless_it_holds_escapes() {
        let plain: Text<'_> = serde_json::from_str(r#""plain""#).unwrap();
        assert!(matches!(plain.0, Cow::Borrowed("plain")));
        let escaped: Text<'_> = serde_json::from_str(r#""a\nb""#).unwrap();
        assert_eq!(escaped.as_str(), "a\nb");
        assert!(serde_json::from_str::<Text<'_>>("1").is_err());
    }

    #[test]
    fn an_array_is_no_object() {
        #[derive(serde::Deserialize, Debug)]
        struct One {
            #[serde(default)]
            _a: u8,
        }
        assert!(serde_json::from_str::<Object<One>>("{}").is_ok());
        assert!(serde_json::from_str::<Object<One>>("[]").is_err());
    }
}
