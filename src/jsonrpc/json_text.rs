//! A text that passes through the gateway: as the JSON string in which it came, or as characters.
//!
//! Most texts go from one body into the next unchanged. Their JSON is copied then: to decode the escapes of
//! a long text and to make them again costs more than everything else that a call does with it.

use std::borrow::Cow;
use std::{fmt, mem};

use memchr::memmem;
use serde::de::{Deserialize, Deserializer, Error};
use serde::ser::{Serialize, Serializer};
use serde_json::value::RawValue;

/// A text of a peer or of the gateway, written as a JSON string.
///
/// Two texts are equal if their characters are, with whatever escapes they came.
#[derive(Clone)]
pub struct JsonText(Form);

#[derive(Clone)]
enum Form {
    /// A JSON string without `\u` escapes, so that decoding it never fails.
    Json(Box<RawValue>),
    Characters(String),
}

impl JsonText {
    /// Reads a JSON string. `None` for any other value, and for text with half of a surrogate pair.
    pub(crate) fn read(json: &RawValue) -> Option<Self> {
        let text = json.get();
        if !text.starts_with('"') {
            return None;
        }
        let may_be_half = memmem::find(text.as_bytes(), br"\u").is_some();
        match may_be_half {
            true => serde_json::from_str(text).ok().map(|text| Self(Form::Characters(text))),
            false => Some(Self(Form::Json(json.to_owned()))),
        }
    }

    /// Returns the characters; decodes them if there are escapes.
    pub fn as_str(&self) -> Cow<'_, str> {
        match &self.0 {
            Form::Characters(text) => Cow::Borrowed(text),
            Form::Json(json) => match unescaped(json) {
                Some(text) => Cow::Borrowed(text),
                None => Cow::Owned(serde_json::from_str(json.get()).unwrap_or_default()),
            },
        }
    }

    /// Returns true if the text has no characters.
    pub fn is_empty(&self) -> bool {
        self.bytes() == 0
    }

    /// Returns the bytes that it takes in memory, without quotation marks.
    pub fn bytes(&self) -> usize {
        match &self.0 {
            Form::Characters(text) => text.len(),
            Form::Json(json) => json.get().len().saturating_sub(2),
        }
    }

    /// Returns the approximate bytes of its JSON.
    pub(crate) fn json_bytes(&self) -> usize {
        match &self.0 {
            Form::Characters(text) => 2 + text.len() + text.len() / 8,
            Form::Json(json) => json.get().len(),
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
            Form::Characters(text) => text,
            Form::Json(_) => self.as_str().into_owned(),
        }
    }
}

/// Returns the characters of a JSON string without escapes.
fn unescaped(json: &RawValue) -> Option<&str> {
    let inner = json.get().strip_prefix('"')?.strip_suffix('"')?;
    memchr::memchr(b'\\', inner.as_bytes()).is_none().then_some(inner)
}

impl From<String> for JsonText {
    fn from(text: String) -> Self {
        Self(Form::Characters(text))
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
        self.as_str() == other.as_str()
    }
}
impl Eq for JsonText {}

impl fmt::Debug for JsonText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(f)
    }
}

impl Serialize for JsonText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.0 {
            Form::Json(json) => json.serialize(serializer),
            Form::Characters(text) => serializer.serialize_str(text),
        }
    }
}

impl<'de> Deserialize<'de> for JsonText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let json = <&RawValue>::deserialize(deserializer)?;
        Self::read(json).ok_or_else(|| D::Error::custom("a string is expected"))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(json: &str) -> Option<JsonText> {
        JsonText::read(serde_json::from_str::<&RawValue>(json).unwrap())
    }

    #[test]
    fn a_text_keeps_its_json_and_has_its_characters() {
        for (json, characters) in [
            (r#""""#, ""),
            (r#""São Pedro""#, "São Pedro"),
            (r#""a\"b\\c\/d\n\t\r\b\f""#, "a\"b\\c/d\n\t\r\u{8}\u{c}"),
        ] {
            let text = read(json).unwrap();
            assert_eq!(text.as_str(), characters);
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
    fn a_changed_text_is_characters() {
        let mut text = read(r#""a\n""#).unwrap();
        text.push_str("\"b");
        assert_eq!(text.as_str(), "a\n\"b");
        assert_eq!(serde_json::to_string(&text).unwrap(), r#""a\n\"b""#);
    }

    proptest! {
        #[test]
        fn characters_survive_both_forms(characters in any::<String>()) {
            let json = serde_json::to_string(&characters).unwrap();
            let text = read(&json).unwrap();
            prop_assert_eq!(text.as_str(), characters.as_str());
            prop_assert_eq!(serde_json::from_str::<String>(&serde_json::to_string(&text).unwrap()).unwrap(), characters.as_str());
            prop_assert_eq!(&text, &JsonText::from(characters));
        }
    }
}
