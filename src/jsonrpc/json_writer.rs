//! Writes compact JSON, byte for byte as serde_json does, with about half of the instructions.
//!
//! Messages consist of short strings, most of them names of members, of which serde_json examines and adds each part on its
//! own. Here a string is examined sixteen bytes at a time and added at once, and the names of a struct, which are those of the
//! source and must need no escapes, are not examined. Numbers are written by serde_json.

use std::io::Write as _;

use serde::de::value::MapDeserializer;
use serde::ser::{self, Error as _, Serializer};
use serde::{Deserialize as _, Serialize};
use serde_json::Error;
use serde_json::value::RawValue;

use super::escape_search::{has_escapes, plain_bytes};

/// The name with which a [`RawValue`] is serialized, and read. Its text is written as it is.
pub(super) const RAW_VALUE: &str = "$serde_json::private::RawValue";

/// Adds a value to `out` as compact JSON.
///
/// # Errors
///
/// As those of serde_json: the error of the value's own `Serialize`, and a key of a map that is no string, number or
/// boolean. Then `out` has a part of the JSON.
pub(crate) fn write_json<T: Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) -> Result<(), Error> {
    value.serialize(JsonSerializer { out, role: ValueRole::Value })
}

/// The place of a value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ValueRole {
    /// A value of its own, of a member or of an item.
    Value,
    /// The key of a map.
    Key,
    /// The text of a raw value.
    RawText,
}

/// A JSON object that is written member by member, without a type of serde: the result needs no check that it is UTF-8,
/// which takes longer than to write a small one.
pub(crate) struct ObjectText {
    /// Its members, with the bracket before them.
    json: String,
}

impl ObjectText {
    /// Creates an empty object with room for this many bytes, which grows.
    pub(crate) fn with_capacity(bytes: usize) -> Self {
        Self { json: String::with_capacity(bytes) }
    }

    /// Adds a member that is a string, with a name that needs no escapes.
    pub(crate) fn add_text(&mut self, name: &'static str, text: &str) {
        debug_assert!(!has_escapes(name.as_bytes()), "{name:?} has to be escaped");
        self.json.reserve(name.len() + text.len() + 6);
        self.json.push(self.separator());
        self.json.push('"');
        self.json.push_str(name);
        self.json.push_str("\":");
        self.push_string(text);
    }

    /// Adds a member that is JSON.
    pub(crate) fn add_raw(&mut self, name: &str, value: &RawValue) {
        self.json.push(self.separator());
        self.push_string(name);
        self.json.push(':');
        self.json.push_str(value.get());
    }

    /// Returns the object; `None` if it has no member.
    ///
    /// # Errors
    ///
    /// None that is known: the form of a raw value belongs to serde_json.
    pub(crate) fn finish(mut self) -> Result<Option<Box<RawValue>>, Error> {
        if self.json.is_empty() {
            return Ok(None);
        }
        self.json.push('}');
        // The form in which the deserializer of serde_json hands the text of a raw value over: it is not parsed again, as
        // that of `RawValue::from_string` is.
        Box::deserialize(MapDeserializer::new(std::iter::once((RAW_VALUE, self.json)))).map(Some)
    }

    /// Returns the character before the next member.
    fn separator(&self) -> char {
        if self.json.is_empty() { '{' } else { ',' }
    }

    fn push_string(&mut self, text: &str) {
        if has_escapes(text.as_bytes()) {
            // To display a value never fails.
            self.json.push_str(&serde_json::Value::from(text).to_string());
            return;
        }
        self.json.push('"');
        self.json.push_str(text);
        self.json.push('"');
    }
}

/// Writes one value.
struct JsonSerializer<'w> {
    out: &'w mut Vec<u8>,
    role: ValueRole,
}

/// Writes the members of an object or the items of an array.
struct MemberWriter<'w> {
    out: &'w mut Vec<u8>,
    is_first: bool,
    is_raw: bool,
    /// Ends the object or the array, and the object of its variant.
    end: &'static str,
}

impl<'w> JsonSerializer<'w> {
    fn literal(self, json: &str) {
        self.out.extend_from_slice(json.as_bytes());
    }

    fn members(self, start: &str, end: &'static str) -> MemberWriter<'w> {
        self.out.extend_from_slice(start.as_bytes());
        MemberWriter { out: self.out, is_first: true, is_raw: false, end }
    }

    /// Begins the object with the name of a variant, and the object or array in it.
    fn variant(self, name: &'static str, start: &str, end: &'static str) -> MemberWriter<'w> {
        self.out.push(b'{');
        write_string(self.out, name);
        self.out.push(b':');
        self.members(start, end)
    }
}

fn no_key() -> Error {
    Error::custom("key must be a string")
}

/// Adds a string to `out` in quotation marks, with escapes.
fn write_string(out: &mut Vec<u8>, text: &str) {
    out.reserve(text.len() + 2);
    out.push(b'"');
    if has_escapes(text.as_bytes()) {
        write_escaped(out, text.as_bytes());
    } else {
        out.extend_from_slice(text.as_bytes());
    }
    out.push(b'"');
}

/// Adds the characters of a string, with escapes.
fn write_escaped(out: &mut Vec<u8>, mut text: &[u8]) {
    while let Some((plain, rest)) = text.split_at_checked(plain_bytes(text)) {
        out.extend_from_slice(plain);
        let Some((special, after)) = rest.split_first() else { return };
        match special {
            b'"' => out.extend_from_slice(br#"\""#),
            b'\\' => out.extend_from_slice(br"\\"),
            b'\n' => out.extend_from_slice(br"\n"),
            b'\r' => out.extend_from_slice(br"\r"),
            b'\t' => out.extend_from_slice(br"\t"),
            0x08 => out.extend_from_slice(br"\b"),
            0x0c => out.extend_from_slice(br"\f"),
            // To write to a vector never fails.
            control => _ = write!(out, "\\u{control:04x}"),
        }
        text = after;
    }
}

/// Writes numbers with serde_json.
macro_rules! numbers {
    ($($method:ident: $type:ty),* $(,)?) => {
        $(fn $method(self, value: $type) -> Result<(), Error> {
            serde_json::to_writer(self.out, &value)
        })*
    };
}

impl<'w> Serializer for JsonSerializer<'w> {
    type Ok = ();
    type Error = Error;
    type SerializeSeq = MemberWriter<'w>;
    type SerializeTuple = MemberWriter<'w>;
    type SerializeTupleStruct = MemberWriter<'w>;
    type SerializeTupleVariant = MemberWriter<'w>;
    type SerializeMap = MemberWriter<'w>;
    type SerializeStruct = MemberWriter<'w>;
    type SerializeStructVariant = MemberWriter<'w>;

    numbers! {
        serialize_i8: i8, serialize_i16: i16, serialize_i32: i32, serialize_i64: i64, serialize_i128: i128,
        serialize_u8: u8, serialize_u16: u16, serialize_u32: u32, serialize_u64: u64, serialize_u128: u128,
        serialize_f32: f32, serialize_f64: f64, serialize_bytes: &[u8],
    }

    fn serialize_bool(self, value: bool) -> Result<(), Error> {
        self.literal(if value { "true" } else { "false" });
        Ok(())
    }

    fn serialize_char(self, value: char) -> Result<(), Error> {
        write_string(self.out, value.encode_utf8(&mut [0; 4]));
        Ok(())
    }

    fn serialize_str(self, value: &str) -> Result<(), Error> {
        if self.role == ValueRole::RawText {
            self.literal(value);
        } else {
            write_string(self.out, value);
        }
        Ok(())
    }

    fn serialize_none(self) -> Result<(), Error> {
        self.serialize_unit()
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), Error> {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<(), Error> {
        self.literal("null");
        Ok(())
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<(), Error> {
        self.serialize_unit()
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, variant: &'static str) -> Result<(), Error> {
        write_string(self.out, variant);
        Ok(())
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<(), Error> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<(), Error> {
        let members = self.variant(variant, "", "}");
        write_json(members.out, value)?;
        members.finish()
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<MemberWriter<'w>, Error> {
        Ok(self.members("[", "]"))
    }

    fn serialize_tuple(self, _: usize) -> Result<MemberWriter<'w>, Error> {
        Ok(self.members("[", "]"))
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<MemberWriter<'w>, Error> {
        Ok(self.members("[", "]"))
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<MemberWriter<'w>, Error> {
        Ok(self.variant(variant, "[", "]}"))
    }

    fn serialize_map(self, _: Option<usize>) -> Result<MemberWriter<'w>, Error> {
        Ok(self.members("{", "}"))
    }

    fn serialize_struct(self, name: &'static str, _: usize) -> Result<MemberWriter<'w>, Error> {
        if name == RAW_VALUE {
            if self.role == ValueRole::Key {
                return Err(no_key());
            }
            return Ok(MemberWriter { out: self.out, is_first: true, is_raw: true, end: "" });
        }
        Ok(self.members("{", "}"))
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<MemberWriter<'w>, Error> {
        Ok(self.variant(variant, "{", "}}"))
    }
}

impl MemberWriter<'_> {
    fn separate(&mut self) {
        if !std::mem::take(&mut self.is_first) {
            self.out.push(b',');
        }
    }

    fn item<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
        self.separate();
        write_json(self.out, value)
    }

    fn field<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> Result<(), Error> {
        if self.is_raw {
            // Another name is the tag that serde adds to a variant: a raw value has no place for it.
            return match name {
                RAW_VALUE => value.serialize(JsonSerializer { out: self.out, role: ValueRole::RawText }),
                _ => Err(Error::custom("expected a raw value")),
            };
        }
        debug_assert!(!has_escapes(name.as_bytes()), "{name:?} has to be escaped");
        self.out.reserve(name.len() + 4);
        self.separate();
        self.out.push(b'"');
        self.out.extend_from_slice(name.as_bytes());
        self.out.extend_from_slice(b"\":");
        write_json(self.out, value)
    }

    fn finish(self) -> Result<(), Error> {
        self.out.extend_from_slice(self.end.as_bytes());
        Ok(())
    }
}

impl ser::SerializeMap for MemberWriter<'_> {
    type Ok = ();
    type Error = Error;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), Error> {
        self.separate();
        let start = self.out.len();
        key.serialize(JsonSerializer { out: self.out, role: ValueRole::Key })?;
        match self.out.get(start) {
            Some(b'"') => {}
            Some(b'-' | b'0'..=b'9' | b't' | b'f') => {
                self.out.insert(start, b'"');
                self.out.push(b'"');
            }
            _ => return Err(no_key()),
        }
        self.out.push(b':');
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
        write_json(self.out, value)
    }

    fn end(self) -> Result<(), Error> {
        self.finish()
    }
}

/// Implements the traits of which a method adds one item or one member.
macro_rules! members {
    ($($trait:ident: $method:ident),* $(,)?) => {
        $(impl ser::$trait for MemberWriter<'_> {
            type Ok = ();
            type Error = Error;

            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
                self.item(value)
            }

            fn end(self) -> Result<(), Error> {
                self.finish()
            }
        })*
    };
    ($($trait:ident),* $(,)?) => {
        $(impl ser::$trait for MemberWriter<'_> {
            type Ok = ();
            type Error = Error;

            fn serialize_field<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> Result<(), Error> {
                self.field(name, value)
            }

            fn end(self) -> Result<(), Error> {
                self.finish()
            }
        })*
    };
}

members! {
    SerializeSeq: serialize_element, SerializeTuple: serialize_element,
    SerializeTupleStruct: serialize_field, SerializeTupleVariant: serialize_field,
}
members! { SerializeStruct, SerializeStructVariant }

#[cfg(test)]
pub(super) mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use serde_json::{Map, Value, json};

    use super::*;

    fn written<T: Serialize + ?Sized>(value: &T) -> String {
        let mut out = b"before".to_vec();
        write_json(&mut out, value).unwrap();
        String::from_utf8(out.split_off(6)).unwrap()
    }

    fn assert_same<T: Serialize + ?Sized>(value: &T) {
        assert_eq!(written(value), serde_json::to_string(value).unwrap());
    }

    #[derive(Serialize)]
    struct Unit;

    #[derive(Serialize)]
    struct Newtype(i8);

    #[derive(Serialize)]
    struct Pair(char, f32);

    #[derive(Serialize)]
    enum Variants {
        One,
        Newtype(Option<u8>),
        Tuple(bool, i64),
        Members { a: u64, b: () },
        Raw(Box<RawValue>),
        NoItems(),
        NoMembers {},
    }

    #[derive(Serialize)]
    struct Empty {}

    #[derive(Serialize, PartialEq, Eq, PartialOrd, Ord)]
    enum Key {
        Unit,
        Newtype(Option<Box<str>>),
    }

    #[derive(Serialize, PartialEq, Eq, PartialOrd, Ord)]
    struct NewtypeKey(Option<i8>);

    #[derive(Serialize)]
    #[serde(tag = "kind")]
    enum Tagged {
        Members { a: u8 },
        Raw(Box<RawValue>),
    }

    struct FloatKeys(f64);

    impl Serialize for FloatKeys {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.collect_map([(self.0, 1)])
        }
    }

    struct RawKey(Box<RawValue>);

    impl Serialize for RawKey {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.collect_map([(&self.0, 1)])
        }
    }

    struct Shown;

    impl Serialize for Shown {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.collect_str("a \"text\"")
        }
    }

    #[derive(Serialize)]
    struct Members<'a> {
        #[serde(skip_serializing_if = "Option::is_none")]
        absent: Option<u8>,
        unit: Unit,
        newtype: Newtype,
        pair: Pair,
        variants: Vec<Variants>,
        raw: &'a RawValue,
        #[serde(flatten)]
        more: BTreeMap<&'a str, Box<RawValue>>,
    }

    #[test]
    fn json_is_that_of_serde_json() {
        let raw = |json: &str| RawValue::from_string(json.to_owned()).unwrap();
        let variants = || {
            vec![
                Variants::One,
                Variants::Newtype(None),
                Variants::Tuple(true, -1),
                Variants::Members { a: u64::MAX, b: () },
                Variants::Raw(raw("[ 1 ]")),
                Variants::NoItems(),
                Variants::NoMembers {},
            ]
        };
        let first = raw("{ \"a\\u00e9\": [1.0,  \"\\\\\"] }");
        let members = Members {
            absent: None,
            unit: Unit,
            newtype: Newtype(-8),
            pair: Pair('"', 0.1),
            variants: variants(),
            raw: &first,
            more: BTreeMap::from([("x\n", raw("[]")), ("y", raw("\"\u{2028}\""))]),
        };
        assert_same(&members);
        assert_same(&[Some(&members), None]);
        for number in [0.0, -0.0, 1e300, 5e-324, f64::NAN, f64::INFINITY] {
            assert_same(&(number, number as f32, i128::MIN, u128::MAX));
        }
        assert_same(&BTreeMap::from([(1, 'a'), (-2, '\u{7f}')]));
        assert_same(&BTreeMap::from([(true, Vec::<u8>::new())]));
        assert_same(&BTreeMap::from([('k', Map::new())]));
        assert_same(&BTreeMap::from([(Key::Unit, Empty {})]));
        assert_same(&BTreeMap::from([(NewtypeKey(Some(1)), ())]));
        assert_same(&FloatKeys(1.5));
        assert_same(&Tagged::Members { a: 1 });
        assert_same(&Shown);
        assert_same(b"bytes".as_slice());
    }

    #[test]
    fn object_has_its_members_in_their_order() {
        for text in ["", "a", "\"\n\u{1}\\", "é…", &"long ".repeat(50)] {
            let mut object = ObjectText::with_capacity(4);
            object.add_text("first", text);
            let list = RawValue::from_string("[1, null]".to_owned()).unwrap();
            object.add_raw(text, &list);
            let json = object.finish().unwrap().unwrap();
            let name = serde_json::to_string(text).unwrap();
            assert_eq!(json.get(), format!(r#"{{"first":{name},{name}:[1, null]}}"#));
            let read: Value = serde_json::from_str(json.get()).unwrap();
            assert_eq!((&read["first"], &read[text]), (&json!(text), &json!([1, null])));
        }
    }

    #[test]
    fn object_without_members_is_none() {
        assert!(ObjectText::with_capacity(0).finish().unwrap().is_none());
    }

    #[test]
    fn errors_are_those_of_serde_json() {
        fn assert_fails<T: Serialize>(value: &T) {
            assert!(write_json(&mut Vec::new(), value).is_err() && serde_json::to_vec(value).is_err());
        }
        assert_fails(&BTreeMap::from([(vec![1], 1)]));
        assert_fails(&BTreeMap::from([(NewtypeKey(None), 1)]));
        assert_fails(&BTreeMap::from([(Key::Newtype(Some("a".into())), 1)]));
        assert_fails(&FloatKeys(f64::NAN));
        let raw = || RawValue::from_string("\"a\"".to_owned()).unwrap();
        assert_fails(&Tagged::Raw(raw()));
        assert_fails(&RawKey(raw()));
    }

    #[test]
    fn each_character_is_escaped_in_each_place() {
        let characters = (0..=0x100).filter_map(char::from_u32).chain(['\u{2028}', '\u{10ffff}']);
        for character in characters {
            for length in 0..=33 {
                for place in [0, length / 2, length] {
                    let text = format!("{}{character}{}", "a".repeat(place), "é".repeat(length - place));
                    assert_same(&text);
                }
            }
        }
        assert_same(&"long ".repeat(1000));
        assert_same(&("long ".repeat(1000) + "\n"));
    }

    /// Any value; some names of its members are those of types in tests.
    pub(in crate::jsonrpc) fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            any::<String>().prop_map(Value::from),
            "[ -~]{0,150}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 64, 8, |inner| {
            let known = prop::sample::select(vec!["text", "raw", "inner", "listOfAny"]);
            let name = prop_oneof![any::<String>(), known.prop_map(str::to_owned)];
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..8).prop_map(Value::from),
                prop::collection::btree_map(name, inner, 0..8).prop_map(|members| json!(members)),
            ]
        })
    }

    proptest! {
        #[test]
        fn any_value_is_written_as_by_serde_json(value in any_json()) {
            prop_assert_eq!(written(&value), serde_json::to_string(&value).unwrap());
        }
    }
}
