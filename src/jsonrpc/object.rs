//! JSON objects with unique member names: [`RawObject`] keeps each value byte for byte, and in a
//! [`UniqueObject`] names are unique at every depth.
//!
//! The checked object must be the object that is sent: with two members of one name, a schema could
//! see the one and an agent the other.

use std::collections::HashSet;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::value::{RawValue, to_raw_value};

use super::Text;

/// Most members of one object; a lookup compares all of them.
const MAX_MEMBERS: usize = 1024;

/// JSON object with raw values.
#[derive(Debug, Default)]
pub(crate) struct RawObject(Vec<(String, Box<RawValue>)>);

impl RawObject {
    /// Parses an object; `None` if the text is not an object, or has a duplicate member or too
    /// many.
    pub(crate) fn read(json: &str) -> Option<Self> {
        serde_json::from_str(json).ok()
    }

    /// Returns the value of a member.
    pub(crate) fn find(&self, name: &str) -> Option<&RawValue> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| &**value)
    }

    /// Returns the value of a member that is a string.
    pub(crate) fn text(&self, name: &str) -> Option<String> {
        serde_json::from_str(self.find(name)?.get()).ok()
    }

    /// Removes a member.
    pub(crate) fn remove(&mut self, name: &str) {
        self.0.retain(|(known, _)| known != name);
    }

    /// Removes all members with a matching name.
    pub(crate) fn remove_all(&mut self, is_one: impl Fn(&str) -> bool) {
        self.0.retain(|(known, _)| !is_one(known));
    }

    /// Replaces the value of a member, or appends the member.
    pub(crate) fn set(&mut self, name: &str, value: Box<RawValue>) {
        match self.0.iter_mut().find(|(known, _)| known == name) {
            Some((_, old)) => *old = value,
            None => self.0.push((name.to_owned(), value)),
        }
    }

    /// Serializes a value, and replaces or appends the member.
    pub(crate) fn insert_or_replace(&mut self, name: &str, value: &impl Serialize) {
        if let Ok(value) = to_raw_value(value) {
            self.set(name, value);
        }
    }

    /// Returns each member, in order.
    pub(crate) fn into_each(self) -> impl Iterator<Item = (String, Box<RawValue>)> {
        self.0.into_iter()
    }

    /// Encodes the object as JSON.
    pub(crate) fn written(&self) -> Box<RawValue> {
        to_raw_value(self).unwrap_or_default()
    }
}

/// Returns the text before and after a value inside the text that it was read from.
pub(crate) fn wrap<'t>(text: &'t str, value: &RawValue) -> Option<(&'t str, &'t str)> {
    let start = value.get().as_ptr().addr().wrapping_sub(text.as_ptr().addr());
    text.get(..start).zip(text.get(start + value.get().len()..))
}

impl Serialize for RawObject {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, value) in &self.0 {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for RawObject {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct RawMembers;
        impl<'de> Visitor<'de> for RawMembers {
            type Value = RawObject;
            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RawObject, A::Error> {
                let mut members: Vec<(String, Box<RawValue>)> = Vec::new();
                while let Some((Text(name), value)) = map.next_entry::<Text<'de>, Box<RawValue>>()? {
                    if members.len() >= MAX_MEMBERS || members.iter().any(|(known, _)| *known == name) {
                        return Err(A::Error::custom("a member is there twice, or there are too many"));
                    }
                    members.push((name.into_owned(), value));
                }
                Ok(RawObject(members))
            }
        }
        deserializer.deserialize_map(RawMembers)
    }
}

/// An object with unique names at every depth.
#[derive(Debug)]
pub(crate) struct UniqueObject<'a>(Vec<(String, &'a RawValue)>);

impl UniqueObject<'_> {
    /// Returns a member that is a non-empty string.
    pub(crate) fn handle(&self, name: &str) -> Option<String> {
        let (_, value) = self.0.iter().find(|(known, _)| known == name)?;
        serde_json::from_str(value.get()).ok().filter(|text: &String| !text.is_empty())
    }

    /// Returns the object as JSON text without one member.
    pub(crate) fn without(&self, name: &str) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn untouched_members_stay_verbatim() {
        let mut members =
            RawObject::read(r#"{ "a": 1.0, "b" : [ 1e2 ],"c":null, "\u0064":{"x":  9007199254740993}}"#)
                .unwrap();
        members.remove("c");
        members.insert_or_replace("b", &"new");
        members.insert_or_replace("e", &true);
        assert_eq!(members.written().get(), r#"{"a":1.0,"b":"new","d":{"x":  9007199254740993},"e":true}"#);
        assert_eq!(members.text("b").as_deref(), Some("new"));
    }

    #[test]
    fn a_member_twice_is_no_object() {
        for json in [r#"{"a":1,"a":2}"#, r#"{"a":1,"\u0061":2}"#, "[]", "7", "{"] {
            assert!(RawObject::read(json).is_none(), "{json}");
        }
    }
}
