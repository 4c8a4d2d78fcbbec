//! The id of a request, exactly as the client wrote it.

use std::borrow::Cow;

use serde::de::{Deserialize, Deserializer, Error};
use serde::ser::{Serialize, Serializer};
use serde_json::value::RawValue;

use super::text::Text;

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

#[cfg(test)]
mod tests {
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
    fn who_has_no_id_is_answered_under_null() {
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
}
