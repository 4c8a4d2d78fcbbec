//! A text that passes through the gateway: as the JSON string in which it came, or as characters.
//!
//! Most texts go from one body into the next unchanged. Their JSON is copied then, or kept within its body: to decode
//! the escapes of a long text and to make them again costs more than everything else that a call does with it.

use std::borrow::Cow;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::{fmt, iter, mem};

use bytes::Bytes;
use memchr::memmem;
use serde::de::{Deserialize, Deserializer, Error};
use serde::ser::{Serialize, SerializeStruct as _, Serializer};
use serde_json::value::RawValue;

use super::json_writer::RAW_VALUE;
use super::shared_body::{shared_part, without_plain_end};
use super::utf8;

/// A text of a peer or of the gateway, written as a JSON string.
///
/// Two texts are equal if their characters are, with whatever escapes they came; so are their hashes and
/// their sizes.
#[derive(Clone)]
pub struct JsonText(Form);

#[derive(Clone)]
enum Form {
    /// A JSON string with so many escapes, each of one character and two bytes: none by number.
    /// Shared, since a result has the text of an event that is kept.
    Json {
        json: Arc<str>,
        escapes: usize,
    },
    /// The same within the body in which it came, for a long one: UTF-8, which is checked again where it is used,
    /// since that takes a tenth of the time of a copy.
    InBody {
        json: Box<Bytes>,
        escapes: usize,
    },
    Characters(Cow<'static, str>),
}

/// Bytes of a text for each escape: with more escapes it is held as characters, so that its size is about
/// that of its memory.
const BYTES_PER_ESCAPE: usize = 8;

/// Bytes that are hashed at once.
const HASH_BLOCK_BYTES: usize = 64;

impl JsonText {
    /// Reads a JSON string. `None` for any other value, and for text with half of a surrogate pair.
    pub(crate) fn read(json: &RawValue) -> Option<Self> {
        let inner = inner(json.get())?;
        match simple_escapes(inner) {
            Some(escapes) if escapes.saturating_mul(BYTES_PER_ESCAPE) <= inner.len() => {
                Some(Self(match shared_part(json.get()) {
                    Some(json) => Form::InBody { json: Box::new(json), escapes },
                    None => Form::Json { json: json.get().into(), escapes },
                }))
            }
            Some(_) | None => serde_json::from_str(json.get()).ok().map(|text: String| text.into()),
        }
    }

    /// Returns a text of the gateway, without a copy.
    pub(crate) const fn fixed(text: &'static str) -> Self {
        Self(Form::Characters(Cow::Borrowed(text)))
    }

    /// Returns the characters; decodes them if there are escapes.
    pub fn to_str(&self) -> Cow<'_, str> {
        match &self.0 {
            Form::Characters(text) => Cow::Borrowed(text),
            Form::Json { json, escapes: 0 } => Cow::Borrowed(inner(json).unwrap_or_default()),
            Form::InBody { json, escapes: 0 } => Cow::Borrowed(inner(text_of(json)).unwrap_or_default()),
            Form::Json { .. } | Form::InBody { .. } => {
                let mut text = String::with_capacity(self.bytes());
                self.runs().for_each(|run| text.push_str(run));
                Cow::Owned(text)
            }
        }
    }

    /// Returns the characters in pieces, without copying any.
    fn runs(&self) -> impl Iterator<Item = &str> {
        let (mut rest, mut is_escaped) = match &self.0 {
            Form::Characters(text) => (text.as_ref(), false),
            Form::Json { json, escapes } => (inner(json).unwrap_or_default(), *escapes > 0),
            Form::InBody { json, escapes } => (inner(text_of(json)).unwrap_or_default(), *escapes > 0),
        };
        iter::from_fn(move || {
            if rest.is_empty() {
                return None;
            }
            let end = if is_escaped { memchr::memchr(b'\\', rest.as_bytes()) } else { None };
            is_escaped = end.is_some();
            match end {
                None => Some(mem::take(&mut rest)),
                Some(0) => {
                    let (escape, after) = rest.split_at_checked(2)?;
                    rest = after;
                    Some(unescaped(escape))
                }
                Some(end) => {
                    let (run, after) = rest.split_at_checked(end)?;
                    rest = after;
                    Some(run)
                }
            }
        })
    }

    /// Returns true if the text has no characters.
    pub fn is_empty(&self) -> bool {
        self.bytes() == 0
    }

    /// Returns the bytes of its characters. It takes at most an eighth more in memory, and one of more than 16 KiB at
    /// most twice as much: it may keep the body in which it came, and the buffer of that.
    pub fn bytes(&self) -> usize {
        let (json, escapes) = match &self.0 {
            Form::Characters(text) => return text.len(),
            Form::Json { json, escapes } => (json.len(), escapes),
            Form::InBody { json, escapes } => (json.len(), escapes),
        };
        json.saturating_sub(2).saturating_sub(*escapes)
    }

    /// Returns the approximate bytes of its JSON.
    pub(crate) fn json_bytes(&self) -> usize {
        match &self.0 {
            Form::Characters(text) => 2 + text.len() + text.len() / 8,
            Form::Json { json, .. } => json.len(),
            Form::InBody { json, .. } => json.len(),
        }
    }

    /// Adds characters at the end.
    pub(crate) fn push_str(&mut self, more: &str) {
        self.edit(|text| text.push_str(more));
    }

    /// Changes the characters.
    pub(crate) fn edit(&mut self, change: impl FnOnce(&mut String)) {
        let mut text = mem::take(self).into_string();
        change(&mut text);
        *self = Self::from(text);
    }

    /// Returns the characters; copies them unless they are held as such.
    pub fn into_string(self) -> String {
        match self.0 {
            Form::Characters(text) => text.into_owned(),
            Form::Json { .. } | Form::InBody { .. } => self.to_str().into_owned(),
        }
    }
}

/// Returns the text of bytes that were text when they were read.
fn text_of(json: &[u8]) -> &str {
    utf8(json).unwrap_or_default()
}

/// Returns the JSON between the quotation marks; `None` for any value but a string.
fn inner(json: &str) -> Option<&str> {
    json.strip_prefix('"')?.strip_suffix('"')
}

/// Returns the number of escapes in a string; `None` if there may be one by number (`\u`).
fn simple_escapes(inner: &str) -> Option<usize> {
    let mut rest = inner.as_bytes();
    let Some(first) = memchr::memchr(b'\\', without_plain_end(inner).as_bytes()) else { return Some(0) };
    // Three searches by vector instructions, where a step from escape to escape takes a call for each.
    let backslashes = memchr::memchr_iter(b'\\', rest.get(first..).unwrap_or_default()).count();
    if memmem::find(rest, br"\u").is_some() {
        return None;
    }
    if memmem::find(rest, br"\\").is_none() {
        return Some(backslashes);
    }
    // Of an escaped backslash both bytes are one.
    let mut count = 0;
    while let Some(at) = memchr::memchr(b'\\', rest) {
        (rest, count) = (rest.get(at + 2..)?, count + 1);
    }
    Some(count)
}

/// Returns the character of an escape.
fn unescaped(escape: &str) -> &str {
    match escape {
        r"\n" => "\n",
        r"\r" => "\r",
        r"\t" => "\t",
        r"\b" => "\u{8}",
        r"\f" => "\u{c}",
        // The others stand for themselves.
        other => other.strip_prefix('\\').unwrap_or(other),
    }
}

impl From<String> for JsonText {
    fn from(text: String) -> Self {
        Self(Form::Characters(text.into()))
    }
}

impl From<&str> for JsonText {
    fn from(text: &str) -> Self {
        Self::from(text.to_owned())
    }
}

impl Default for JsonText {
    fn default() -> Self {
        Self::from(String::new())
    }
}

impl PartialEq for JsonText {
    fn eq(&self, other: &Self) -> bool {
        self.bytes() == other.bytes() && self.to_str() == other.to_str()
    }
}
impl Eq for JsonText {}

impl Hash for JsonText {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // In blocks of one size, whatever the pieces are: to a hasher one write may differ from two.
        let (mut block, mut length) = ([0; HASH_BLOCK_BYTES], 0);
        for run in self.runs() {
            let mut rest = run.as_bytes();
            while !rest.is_empty() {
                let room = block.get_mut(length..).unwrap_or_default();
                let (head, after) = rest.split_at(room.len().min(rest.len()));
                room.iter_mut().zip(head).for_each(|(place, byte)| *place = *byte);
                (rest, length) = (after, length + head.len());
                if length == HASH_BLOCK_BYTES {
                    state.write(&block);
                    length = 0;
                }
            }
        }
        state.write(block.get(..length).unwrap_or_default());
        state.write_usize(self.bytes());
    }
}

impl fmt::Debug for JsonText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to_str().fmt(f)
    }
}

impl Serialize for JsonText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let json = match &self.0 {
            Form::Json { json, .. } => json,
            Form::InBody { json, .. } => text_of(json),
            Form::Characters(text) => return serializer.serialize_str(text),
        };
        // As a raw value does.
        let mut raw = serializer.serialize_struct(RAW_VALUE, 1)?;
        raw.serialize_field(RAW_VALUE, json)?;
        raw.end()
    }
}

impl<'de> Deserialize<'de> for JsonText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let json = <&RawValue>::deserialize(deserializer)?;
        Self::read(json)
            .ok_or_else(|| D::Error::custom("a string without half of a surrogate pair is expected"))
    }
}

#[cfg(test)]
mod tests {
    use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};

    use proptest::prelude::*;

    use super::super::shared_body::{MIN_SHARED_BYTES, SharedBody};
    use super::*;

    fn hash(text: &JsonText) -> u64 {
        BuildHasherDefault::<DefaultHasher>::default().hash_one(text)
    }

    fn read(json: &str) -> Option<JsonText> {
        JsonText::read(serde_json::from_str::<&RawValue>(json).unwrap())
    }

    #[test]
    fn a_text_keeps_its_json_and_has_its_characters() {
        for (json, characters) in [
            (r#""""#, ""),
            (r#""São Pedro""#, "São Pedro"),
            (
                r#""They said \"rain\".\nTake \\ or \/ with you, for the sea is cold\t\r\b\f on the way to the beach of today""#,
                "They said \"rain\".\nTake \\ or / with you, for the sea is cold\t\r\u{8}\u{c} on the way to the beach of today",
            ),
        ] {
            let text = read(json).unwrap();
            assert_eq!(text.to_str(), characters);
            assert_eq!(serde_json::to_string(&text).unwrap(), json);
            assert_eq!(text, JsonText::from(characters));
            assert_eq!(text.is_empty(), characters.is_empty());
            assert_eq!(text.into_string(), characters);
        }
    }

    #[test]
    fn escapes_by_number_become_characters() {
        let text = read(r#""\u00e9\ud83d\ude00""#).unwrap();
        assert_eq!(text, JsonText::from("é😀"));
        assert_eq!(serde_json::to_string(&text).unwrap(), r#""é😀""#);
    }

    #[test]
    fn other_values_and_halves_of_pairs_are_refused() {
        for json in ["7", "null", r#"["a"]"#, r#"{"a":"b"}"#, r#""a\ud83d""#] {
            assert!(read(json).is_none(), "{json}");
            assert!(serde_json::from_str::<JsonText>(json).is_err(), "{json}");
        }
    }

    #[test]
    fn a_text_of_many_escapes_is_held_as_characters() {
        let text = read(r#""{\"a\":[\/]}""#).unwrap();
        assert_eq!(text, JsonText::from(r#"{"a":[/]}"#));
        assert_eq!(serde_json::to_string(&text).unwrap(), r#""{\"a\":[/]}""#);
    }

    #[test]
    fn a_long_text_keeps_the_body_that_it_is_most_of() {
        let quoted = |length: usize| format!("\"{}\\né\"", "a".repeat(length - 6));
        for (length, beside, is_kept) in [
            (MIN_SHARED_BYTES, 0, true),
            (MIN_SHARED_BYTES - 1, 0, false),
            (MIN_SHARED_BYTES, MIN_SHARED_BYTES / 4, true),
            (MIN_SHARED_BYTES, MIN_SHARED_BYTES, false),
        ] {
            let json = quoted(length);
            let body = Bytes::from(format!("[{json},\"{}\"]", "b".repeat(beside)));
            let parse = || {
                let items: Vec<&RawValue> = serde_json::from_slice(&body).unwrap();
                JsonText::read(items[0]).unwrap()
            };
            let text = SharedBody::new(&body).read(parse);
            assert_eq!(matches!(text.0, Form::InBody { .. }), is_kept, "{length}, {beside}");
            assert!(matches!(parse().0, Form::Json { .. }), "no body is read any more");
            let copy = read(&json).unwrap();
            assert!(text == copy && hash(&text) == hash(&copy));
            assert_eq!((text.bytes(), text.json_bytes()), (copy.bytes(), copy.json_bytes()));
            drop(body);
            assert!(serde_json::to_string(&text).unwrap() == json);
            assert!(text.into_string() == copy.into_string());
        }
    }

    #[test]
    fn a_text_of_another_body_is_copied() {
        let (json, body) = (format!("\"{}\"", "a".repeat(MIN_SHARED_BYTES)), vec![b' '; MIN_SHARED_BYTES]);
        let text = SharedBody::new(&body.into()).read(|| read(&json).unwrap());
        assert!(matches!(text.0, Form::Json { .. }));
    }

    #[test]
    fn a_changed_text_is_characters() {
        let mut text = read(r#""a\n""#).unwrap();
        text.push_str("\"b");
        assert_eq!(text.to_str(), "a\n\"b");
        assert_eq!(serde_json::to_string(&text).unwrap(), r#""a\n\"b""#);
    }

    proptest! {
        #[test]
        fn characters_survive_both_forms(characters in prop_oneof![any::<String>(), "([a-zé ]{8,20}[\"\\\\\n\t/]){0,12}"]) {
            let json = serde_json::to_string(&characters).unwrap();
            let text = read(&json).unwrap();
            prop_assert_eq!(text.to_str(), characters.as_str());
            prop_assert_eq!(serde_json::from_str::<String>(&serde_json::to_string(&text).unwrap()).unwrap(), characters.as_str());
            let plain = JsonText::from(characters);
            prop_assert_eq!(&text, &plain);
            prop_assert_eq!((text.bytes(), hash(&text)), (plain.bytes(), hash(&plain)));
        }
    }
}
