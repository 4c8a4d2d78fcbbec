//! JSON-RPC 2.0: parsing and encoding of messages.
//!
//! Pure. Out of scope: MCP and A2A; the layers above define methods and their params.

mod message;
#[cfg(feature = "gateway")]
pub(crate) mod raw_object;
mod scan;

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};
use serde::ser::{Serialize, Serializer};
use serde_json::value::RawValue;

pub use message::{
    Message, MessageKind, elements, is_batch, parse, parse_envelope, recover_id, write_error, write_result,
};
pub use message::{ParseError, RawParams};
pub(crate) use message::{parse_raw, recover_id_of_cut, write_notification, write_request};
pub use scan::{Malformed, Scan, each_name, well_formed};

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
