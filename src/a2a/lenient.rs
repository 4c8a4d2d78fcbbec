//! Lenient and bounded reading of an agent's JSON: a member of the wrong type reads as absent, and
//! deep nesting is refused.
//!
//! Each type here reads any JSON value in one pass and keeps it only if it has the expected type,
//! so that one invalid member never loses the rest of a response. Raw leaves (`data`, `metadata`)
//! are copied without recursion; [`MAX_DEPTH`] bounds them with the rest.

use std::fmt;
use std::marker::PhantomData;

use memchr::memchr2;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::ser::{Serialize, Serializer};
use serde_json::value::{RawValue, to_raw_value};

use crate::jsonrpc::has_few_brackets;

/// Defines the visitor methods of the JSON types that read as absent.
macro_rules! absent {
    (bool) => { fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> { Ok(Self::Value::default()) } };
    (text) => { fn visit_str<E>(self, _: &str) -> Result<Self::Value, E> { Ok(Self::Value::default()) } };
    (number) => {
        fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> { Ok(Self::Value::default()) }
        fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> { Ok(Self::Value::default()) }
        fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> { Ok(Self::Value::default()) }
    };
    (list) => {
        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
            while list.next_element::<IgnoredAny>()?.is_some() {}
            Ok(Self::Value::default())
        }
    };
    (object) => {
        fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Self::Value, A::Error> {
            while object.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
            Ok(Self::Value::default())
        }
    };
    ($($kind:ident),+) => {
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { f.write_str("any JSON value") }
        fn visit_unit<E>(self) -> Result<Self::Value, E> { Ok(Self::Value::default()) }
        $(absent!($kind);)+
    };
}

pub(crate) use absent;

/// A value that JSON is read into where it is: nothing is moved. JSON of another type reads as absent.
pub(crate) trait ReadInPlace<'de> {
    /// Reads the next value.
    fn read_in_place<D: Deserializer<'de>>(&mut self, deserializer: D) -> Result<(), D::Error>;
}

/// A type with fields that are read from the members of an object.
pub(crate) trait ReadMembers<'de>: Default {
    /// Reads the members; others are ignored, and a duplicate is an error.
    fn read_members<A: MapAccess<'de>>(&mut self, object: A) -> Result<(), A::Error>;
}

/// A seed that reads into the value behind it.
pub(crate) struct InPlaceSeed<'a, T>(pub(crate) &'a mut T);

impl<'de, T: ReadInPlace<'de>> DeserializeSeed<'de> for InPlaceSeed<'_, T> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        self.0.read_in_place(deserializer)
    }
}

/// Implements [`ReadMembers`] for a type: each of these fields is read from the member with the name. A list
/// may be read from another member, if its own is not there.
macro_rules! read_into_fields {
    ($type:ident { $($field:ident = $name:literal),+ $(; $list:ident or $other:ident = $other_name:literal)? $(,)? }) => {
        impl<'de> ReadMembers<'de> for $type {
            fn read_members<A: MapAccess<'de>>(&mut self, mut object: A) -> Result<(), A::Error> {
                #[derive(Clone, Copy, Deserialize)]
                #[serde(field_identifier)]
                #[expect(non_camel_case_types, reason = "named as their fields")]
                enum Member {
                    $(#[serde(rename = $name)] $field,)+
                    $(#[serde(rename = $other_name)] $other,)?
                    #[serde(other)]
                    Other,
                }
                const { assert!((Member::Other as u32) < u32::BITS) };
                let mut seen = 0_u32;
                while let Some(member) = object.next_key::<Member>()? {
                    let bit = 1 << member as u32;
                    match member {
                        $(Member::$field if seen & bit != 0 => return Err(A::Error::duplicate_field($name)),)+
                        $(Member::$field => object.next_value_seed(InPlaceSeed(&mut self.$field))?,)+
                        $(Member::$other if seen & bit != 0 => return Err(A::Error::duplicate_field($other_name)),
                        Member::$other if seen & 1 << Member::$list as u32 == 0 => {
                            object.next_value_seed(InPlaceSeed(&mut self.$list))?
                        }
                        Member::$other => drop(object.next_value::<IgnoredAny>()?),)?
                        Member::Other => {
                            object.next_value::<IgnoredAny>()?;
                            continue;
                        }
                    }
                    seen |= bit;
                }
                Ok(())
            }
        }
    };
}

pub(crate) use read_into_fields;

/// A string that is not empty: agents write `""` for "absent".
impl<'de> ReadInPlace<'de> for Option<String> {
    fn read_in_place<D: Deserializer<'de>>(&mut self, deserializer: D) -> Result<(), D::Error> {
        struct Reader<'a>(&'a mut Option<String>);
        impl<'de> Visitor<'de> for Reader<'_> {
            type Value = ();
            absent!(bool, number, list, object);
            fn visit_str<E>(self, text: &str) -> Result<(), E> {
                *self.0 = if text.is_empty() { None } else { Some(text.to_owned()) };
                Ok(())
            }
        }
        *self = None;
        deserializer.deserialize_any(Reader(self))
    }
}

/// An object of a known shape.
impl<'de, T: ReadMembers<'de>> ReadInPlace<'de> for Option<T> {
    fn read_in_place<D: Deserializer<'de>>(&mut self, deserializer: D) -> Result<(), D::Error> {
        *self = None;
        deserializer.deserialize_any(ObjectReader(self))
    }
}

/// Reads an object into a value that is made for it.
struct ObjectReader<'a, T>(&'a mut Option<T>);

impl<'de, T: ReadMembers<'de>> Visitor<'de> for ObjectReader<'_, T> {
    type Value = ();
    absent!(bool, text, number, list);
    fn visit_map<A: MapAccess<'de>>(self, object: A) -> Result<(), A::Error> {
        self.0.insert(T::default()).read_members(object)
    }
}

impl<'de, T: ReadMembers<'de>> ReadMembers<'de> for Box<T> {
    fn read_members<A: MapAccess<'de>>(&mut self, object: A) -> Result<(), A::Error> {
        (**self).read_members(object)
    }
}

/// An object, byte for byte.
impl<'de> ReadInPlace<'de> for Option<Box<RawValue>> {
    fn read_in_place<D: Deserializer<'de>>(&mut self, deserializer: D) -> Result<(), D::Error> {
        *self = object(Deserialize::deserialize(deserializer)?);
        Ok(())
    }
}

/// A list, of which each item is read by its own rule.
pub(crate) trait ReadItem<'de>: Sized {
    /// Reads the next item, and adds what there is of it.
    fn read_item<D: Deserializer<'de>>(deserializer: D, items: &mut Vec<Self>) -> Result<(), D::Error>;
}

/// A seed that reads an item into a list.
struct NextItem<'a, T>(&'a mut Vec<T>);

impl<'de, T: ReadItem<'de>> DeserializeSeed<'de> for NextItem<'_, T> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        T::read_item(deserializer, self.0)
    }
}

impl<'de, T: ReadItem<'de>> ReadInPlace<'de> for Vec<T> {
    fn read_in_place<D: Deserializer<'de>>(&mut self, deserializer: D) -> Result<(), D::Error> {
        *self = Self::new();
        deserializer.deserialize_any(ListReader(self)).map(drop)
    }
}

impl<'de, T: ReadItem<'de>> ReadInPlace<'de> for Option<Vec<T>> {
    fn read_in_place<D: Deserializer<'de>>(&mut self, deserializer: D) -> Result<(), D::Error> {
        let mut items = Vec::new();
        let is_list = deserializer.deserialize_any(ListReader(&mut items))?;
        *self = is_list.then_some(items);
        Ok(())
    }
}

/// Reads a list; it yields true if the JSON was one.
struct ListReader<'a, T>(&'a mut Vec<T>);

impl<'de, T: ReadItem<'de>> Visitor<'de> for ListReader<'_, T> {
    type Value = bool;
    absent!(bool, text, number, object);
    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<bool, A::Error> {
        while list.next_element_seed(NextItem(self.0))?.is_some() {}
        Ok(true)
    }
}

/// Adds an item to a list. Most lists of agents have one item, and a task keeps them; a push alone would reserve room for four.
pub(super) fn add_item<T>(items: &mut Vec<T>, item: T) {
    reserve_first(items);
    items.push(item);
}

/// Adds an object that is read from JSON; any other value adds nothing.
pub(super) fn read_object_item<'de, T: ReadMembers<'de>, D: Deserializer<'de>>(
    deserializer: D,
    items: &mut Vec<T>,
) -> Result<(), D::Error> {
    let mut item: Option<T> = None;
    item.read_in_place(deserializer)?;
    if let Some(item) = item {
        add_item(items, item);
    }
    Ok(())
}

/// An item that is only counted.
impl<'de> ReadItem<'de> for () {
    fn read_item<D: Deserializer<'de>>(deserializer: D, items: &mut Vec<Self>) -> Result<(), D::Error> {
        IgnoredAny::deserialize(deserializer)?;
        items.push(());
        Ok(())
    }
}

/// A string that is not empty.
impl<'de> ReadItem<'de> for String {
    fn read_item<D: Deserializer<'de>>(deserializer: D, items: &mut Vec<Self>) -> Result<(), D::Error> {
        let mut item: Option<Self> = None;
        item.read_in_place(deserializer)?;
        items.extend(item);
        Ok(())
    }
}

/// A string; anything else reads as absent.
#[derive(Debug, Default)]
pub(crate) struct LenientString(pub(crate) Option<String>);

impl LenientString {
    /// Returns the string, unless it is empty: agents write `""` for "absent".
    pub(crate) fn filled(self) -> Option<String> {
        self.0.filter(|text| !text.is_empty())
    }

    /// Returns true if there is a non-empty string.
    pub(crate) fn is_filled(&self) -> bool {
        self.0.as_ref().is_some_and(|text| !text.is_empty())
    }
}

impl<'de> Deserialize<'de> for LenientString {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = LenientString;
            absent!(bool, number, list, object);
            fn visit_str<E>(self, text: &str) -> Result<LenientString, E> {
                Ok(LenientString(Some(text.to_owned())))
            }
        }
        deserializer.deserialize_any(Reader)
    }
}

/// A type that is written as a word.
pub(crate) trait FromWord: Sized {
    /// Returns the value that a word means; `None` if it means as much as no word.
    fn from_word(word: &str) -> Option<Self>;
}

/// A word, read without a copy; anything but a string reads as absent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LenientWord<T>(pub(crate) Option<T>);

impl<T> Default for LenientWord<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<'de, T: FromWord> Deserialize<'de> for LenientWord<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader<T>(PhantomData<T>);
        impl<'de, T: FromWord> Visitor<'de> for Reader<T> {
            type Value = LenientWord<T>;
            absent!(bool, number, list, object);
            fn visit_str<E>(self, word: &str) -> Result<LenientWord<T>, E> {
                Ok(LenientWord(T::from_word(word)))
            }
        }
        deserializer.deserialize_any(Reader(PhantomData))
    }
}

impl<'de, T: FromWord> ReadInPlace<'de> for LenientWord<T> {
    fn read_in_place<D: Deserializer<'de>>(&mut self, deserializer: D) -> Result<(), D::Error> {
        *self = Deserialize::deserialize(deserializer)?;
        Ok(())
    }
}

/// A version: a string, or the number that some agents write (`0.3`).
#[derive(Debug, Default)]
pub(crate) struct VersionText(pub(crate) Option<String>);

impl<'de> Deserialize<'de> for VersionText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = VersionText;
            absent!(bool, list, object);
            fn visit_str<E>(self, text: &str) -> Result<VersionText, E> {
                Ok(VersionText(Some(text.trim().to_owned()).filter(|text| !text.is_empty())))
            }
            fn visit_u64<E>(self, number: u64) -> Result<VersionText, E> {
                Ok(VersionText(Some(number.to_string())))
            }
            fn visit_i64<E>(self, number: i64) -> Result<VersionText, E> {
                Ok(VersionText(Some(number.to_string())))
            }
            fn visit_f64<E>(self, number: f64) -> Result<VersionText, E> {
                Ok(VersionText(Some(number.to_string())))
            }
        }
        deserializer.deserialize_any(Reader)
    }
}

/// `true` or `false`; anything else reads as absent.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct LenientBool(pub(crate) Option<bool>);

impl LenientBool {
    /// Returns true if the value is `true`.
    pub(crate) fn is_set(self) -> bool {
        self.0 == Some(true)
    }
}

impl<'de> ReadInPlace<'de> for LenientBool {
    fn read_in_place<D: Deserializer<'de>>(&mut self, deserializer: D) -> Result<(), D::Error> {
        *self = Deserialize::deserialize(deserializer)?;
        Ok(())
    }
}

impl<'de> Deserialize<'de> for LenientBool {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = LenientBool;
            absent!(text, number, list, object);
            fn visit_bool<E>(self, flag: bool) -> Result<LenientBool, E> {
                Ok(LenientBool(Some(flag)))
            }
        }
        deserializer.deserialize_any(Reader)
    }
}

/// An integer, also if it is written as a float; anything else reads as absent.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct LenientInteger(pub(crate) Option<i64>);

impl<'de> ReadInPlace<'de> for LenientInteger {
    fn read_in_place<D: Deserializer<'de>>(&mut self, deserializer: D) -> Result<(), D::Error> {
        *self = Deserialize::deserialize(deserializer)?;
        Ok(())
    }
}

impl<'de> Deserialize<'de> for LenientInteger {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = LenientInteger;
            absent!(bool, text, list, object);
            fn visit_i64<E>(self, number: i64) -> Result<LenientInteger, E> {
                Ok(LenientInteger(Some(number)))
            }
            fn visit_u64<E>(self, number: u64) -> Result<LenientInteger, E> {
                Ok(LenientInteger(i64::try_from(number).ok()))
            }
            fn visit_f64<E>(self, number: f64) -> Result<LenientInteger, E> {
                // Beyond 2^53 a float is no exact integer.
                let meant = number.fract() == 0.0 && number.abs() <= 9_007_199_254_740_992.0;
                Ok(LenientInteger(meant.then_some(number as i64)))
            }
        }
        deserializer.deserialize_any(Reader)
    }
}

/// An object of a known shape; anything else reads as absent.
#[derive(Debug)]
pub(crate) struct LenientObject<T>(pub(crate) Option<T>);

impl<T> Default for LenientObject<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for LenientObject<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Reader<T> {
            type Value = LenientObject<T>;
            absent!(bool, text, number, list);
            fn visit_map<A: MapAccess<'de>>(self, object: A) -> Result<LenientObject<T>, A::Error> {
                T::deserialize(MapAccessDeserializer::new(object)).map(|value| LenientObject(Some(value)))
            }
        }
        deserializer.deserialize_any(Reader(PhantomData))
    }
}

/// A list; anything else reads as absent.
#[derive(Debug)]
pub(crate) struct LenientList<T>(pub(crate) Option<Vec<T>>);

impl<T> LenientList<T> {
    /// Returns the items of the list; none if there is no list.
    pub(crate) fn items(self) -> impl Iterator<Item = T> {
        self.0.unwrap_or_default().into_iter()
    }

    /// Returns true if there is a non-empty list.
    pub(crate) fn is_filled(&self) -> bool {
        self.0.as_ref().is_some_and(|list| !list.is_empty())
    }
}

impl<T> Default for LenientList<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for LenientList<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Reader<T> {
            type Value = LenientList<T>;
            absent!(bool, text, number, object);
            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<LenientList<T>, A::Error> {
                let mut items = Vec::new();
                while let Some(item) = list.next_element()? {
                    add_item(&mut items, item);
                }
                Ok(LenientList(Some(items)))
            }
        }
        deserializer.deserialize_any(Reader(PhantomData))
    }
}

/// Reserves room for one item in an empty list. Most lists of agents have one item, and a task keeps
/// them; a push alone would reserve room for four.
pub(super) fn reserve_first<T>(items: &mut Vec<T>) {
    if items.is_empty() {
        items.reserve_exact(1);
    }
}

/// The members of an object with unknown names, in their order; anything else reads as absent.
#[derive(Debug)]
pub(crate) struct LenientMap<T>(pub(crate) Option<Vec<(String, T)>>);

impl<T> Default for LenientMap<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for LenientMap<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Reader<T> {
            type Value = LenientMap<T>;
            absent!(bool, text, number, list);
            fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<LenientMap<T>, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = object.next_entry()? {
                    members.push(member);
                }
                Ok(LenientMap(Some(members)))
            }
        }
        deserializer.deserialize_any(Reader(PhantomData))
    }
}

/// The members of a JSON object in their order, unparsed; anything else reads as an empty object.
#[derive(Debug, Default)]
pub(crate) struct RawObject<'a>(Vec<(String, &'a RawValue)>);

impl<'a> RawObject<'a> {
    /// Reads an object.
    pub(crate) fn read(json: &'a RawValue) -> Self {
        let LenientMap(members) = serde_json::from_str(json.get()).unwrap_or_default();
        Self(members.unwrap_or_default())
    }

    /// Returns the value of a member.
    pub(crate) fn get(&self, name: &str) -> Option<&'a RawValue> {
        self.iter().find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    /// Returns each member.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &'a RawValue)> {
        self.0.iter().map(|(name, value)| (name.as_str(), *value))
    }

    /// Returns the value of the member with this name, if the object has no other.
    pub(crate) fn only(&self, name: &str) -> Option<&'a RawValue> {
        match self.0.as_slice() {
            [(known, value)] if known == name => Some(value),
            _ => None,
        }
    }

    /// Removes the first matching member. Returns true if there was one.
    pub(crate) fn remove(&mut self, is_one: impl Fn(&str, &RawValue) -> bool) -> bool {
        let found = self.0.iter().position(|(name, value)| is_one(name, value));
        found.map(|at| self.0.remove(at)).is_some()
    }

    /// Encodes the object; `None` if it is empty.
    pub(crate) fn written(&self) -> Option<Box<RawValue>> {
        if self.0.is_empty() { None } else { to_raw_value(self).ok() }
    }
}

impl Serialize for RawObject<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

/// Returns `raw` if it is an object.
pub(crate) fn object(raw: Option<Box<RawValue>>) -> Option<Box<RawValue>> {
    raw.filter(|raw| raw.get().starts_with('{'))
}

/// Maximum nesting of objects and arrays around one value. That of the parser is one less within a raw value, which is
/// in the object of a response.
pub(crate) const MAX_DEPTH: usize = 128;

/// Returns true if no value of `json` is within more than `limit` objects and arrays. One linear
/// scan, no recursion.
pub fn depth_within(json: &[u8], limit: usize) -> bool {
    // Few brackets, in any position, cannot nest deeply: nearly every response ends here.
    has_few_brackets(json, limit) || scan(json, limit)
}

fn scan(json: &[u8], limit: usize) -> bool {
    let mut depth = 0_usize;
    let mut rest = json;
    while let Some((byte, tail)) = rest.split_first() {
        rest = tail;
        match byte {
            b'"' => rest = after_string(tail),
            b'{' | b'[' if depth == limit => return false,
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    true
}

/// Returns the text after the string with its opening quote just before `text`.
fn after_string(text: &[u8]) -> &[u8] {
    let mut rest = text;
    while let Some(at) = memchr2(b'"', b'\\', rest) {
        let escaped = rest.get(at) == Some(&b'\\');
        rest = rest.get(at + 1 + usize::from(escaped)..).unwrap_or_default();
        if !escaped {
            return rest;
        }
    }
    &[]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depth_counts_brackets_outside_strings_only() {
        let brackets = format!(r#"{{"a":"{}","b":"\"{}"}}"#, "[".repeat(300), "{".repeat(300));
        for (json, within) in [
            (String::new(), true),
            ("[".repeat(128), true),
            ("[".repeat(129), false),
            ("{\"a\":".repeat(100_000), false),
            ("[[],".repeat(129), false),
            (format!("[{}]", "[],".repeat(1000)), true),
            (brackets, true),
            (format!("{}\"", "[".repeat(127)), true),
        ] {
            assert_eq!(depth_within(json.as_bytes(), 128), within, "{}", json.len());
        }
    }
}
