//! The members of an object, with unique names.
//!
//! The validated content must be the sent content: with two members of one name, a schema could see
//! the one and an agent the other.

use std::collections::HashSet;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde::ser::{SerializeMap, Serializer};
use serde_json::value::RawValue;

/// An object with unique names at every depth.
#[derive(Debug)]
pub(super) struct UniqueObject<'a>(Vec<(String, &'a RawValue)>);

impl UniqueObject<'_> {
    /// Returns a member that is a non-empty string.
    pub(super) fn handle(&self, name: &str) -> Option<String> {
        let (_, value) = self.0.iter().find(|(known, _)| known == name)?;
        serde_json::from_str(value.get()).ok().filter(|text: &String| !text.is_empty())
    }

    /// Returns the object as JSON text without one member.
    pub(super) fn without(&self, name: &str) -> String {
        let mut out = Vec::new();
        let mut writer = serde_json::Serializer::new(&mut out);
        let written = writer.serialize_map(None).and_then(|mut map| {
            for (known, value) in self.0.iter().filter(|(known, _)| known != name) {
                map.serialize_entry(known, value)?;
            }
            map.end()
        });
        written.ok().and_then(|()| String::from_utf8(out).ok()).unwrap_or_else(|| "{}".to_owned())
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for UniqueObject<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct All;
        impl<'de> Visitor<'de> for All {
            type Value = Vec<(String, &'de RawValue)>;
            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members: Self::Value = Vec::new();
                let mut names = HashSet::new();
                while let Some((name, value)) = map.next_entry::<String, &'de RawValue>()? {
                    if !names.insert(name.clone()) {
                        return Err(duplicate_key(&name));
                    }
                    serde_json::from_str::<UniqueValue>(value.get()).map_err(A::Error::custom)?;
                    members.push((name, value));
                }
                Ok(members)
            }
        }
        deserializer.deserialize_map(All).map(UniqueObject)
    }
}

fn duplicate_key<E: Error>(name: &str) -> E {
    let shown: String = name.chars().take(50).collect();
    E::custom(format!("member {shown:?} is there twice"))
}

/// Any value with unique names in its objects; the value itself is not kept.
struct UniqueValue;

impl<'de> Deserialize<'de> for UniqueValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;
        impl<'de> Visitor<'de> for Any {
            type Value = UniqueValue;
            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("any value")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<UniqueValue, A::Error> {
                let mut names = HashSet::new();
                while let Some((name, UniqueValue)) = map.next_entry::<String, UniqueValue>()? {
                    if let Some(name) = names.replace(name) {
                        return Err(duplicate_key(&name));
                    }
                }
                Ok(UniqueValue)
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<UniqueValue, A::Error> {
                while let Some(UniqueValue) = all.next_element()? {}
                Ok(UniqueValue)
            }
            fn visit_bool<E: Error>(self, _: bool) -> Result<UniqueValue, E> {
                Ok(UniqueValue)
            }
            fn visit_i64<E: Error>(self, _: i64) -> Result<UniqueValue, E> {
                Ok(UniqueValue)
            }
            fn visit_u64<E: Error>(self, _: u64) -> Result<UniqueValue, E> {
                Ok(UniqueValue)
            }
            fn visit_f64<E: Error>(self, _: f64) -> Result<UniqueValue, E> {
                Ok(UniqueValue)
            }
            fn visit_str<E: Error>(self, _: &str) -> Result<UniqueValue, E> {
                Ok(UniqueValue)
            }
            fn visit_unit<E: Error>(self) -> Result<UniqueValue, E> {
                Ok(UniqueValue)
            }
        }
        deserializer.deserialize_any(Any)
    }
}
