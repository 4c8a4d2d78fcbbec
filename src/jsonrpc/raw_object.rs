//! Members of a JSON object in their order, with values that stay byte for byte the same.
//!
//! The checked object must be the object that is sent: an object with a duplicate member is not
//! accepted.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};
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
