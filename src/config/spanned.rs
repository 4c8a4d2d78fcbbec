//! Location of a value in the file, and a value with its location.
//!
//! Reading a [`Spanned`] never fails: when its value is wrong, the deserializer has reported that
//! already and the value is absent. That is how one run finds every problem.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::{Deserialize, Deserializer, EnumAccess, SeqAccess, Visitor};

use super::yaml::join;

/// The name under which a [`Spanned`] requests its location from the deserializer.
pub(super) const WRITTEN: &str = "__written";
/// The name under which a [`OneOrMany`] requests its items from the deserializer.
pub(super) const ONE_OR_MANY: &str = "__one_or_many";

/// The name under which a text with references of its own requests that they stay in it.
pub(super) const TEMPLATE: &str = "__template";

/// The line and the path of a key.
#[derive(Debug, Clone, Default)]
pub(super) struct Location {
    pub(super) line: u64,
    pub(super) at: String,
}

impl Location {
    /// Returns the location of a key that is missing below this one.
    pub(super) fn child(&self, key: &str) -> Self {
        Self { line: self.line, at: join(&self.at, key) }
    }
}

/// A value of the file: present, absent, or wrong (and then reported).
#[derive(Debug, Clone)]
pub(super) struct Spanned<T> {
    place: Option<Location>,
    value: Option<T>,
}

impl<T> Default for Spanned<T> {
    fn default() -> Self {
        Self { place: None, value: None }
    }
}

impl<T> Spanned<T> {
    /// Wraps a value that was read in another way.
    pub(super) fn of(place: Location, value: T) -> Self {
        Self { place: Some(place), value: Some(value) }
    }

    /// Returns the location of the key, if it is present.
    pub(super) fn place(&self) -> Option<&Location> {
        self.place.as_ref()
    }

    /// Returns the value and its location, if both are present.
    pub(super) fn take(self) -> Option<(Location, T)> {
        self.place.zip(self.value)
    }

    /// Returns the value, if it is present.
    pub(super) fn get(&self) -> Option<&T> {
        self.value.as_ref()
    }

    /// Returns the value, if it is present.
    pub(super) fn get_mut(&mut self) -> Option<&mut T> {
        self.value.as_mut()
    }

    /// Takes the value out, if it is present; its location stays.
    pub(super) fn take_value(&mut self) -> Option<T> {
        self.value.take()
    }

    /// Returns the value without its location, if it is present.
    pub(super) fn value(self) -> Option<T> {
        self.value
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Spanned<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // The only failure is serde's way to report a missing key; the section that needs the key
        // reports it later.
        Ok(deserializer.deserialize_newtype_struct(WRITTEN, SpannedVisitor(PhantomData)).unwrap_or_default())
    }
}

struct SpannedVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for SpannedVisitor<T> {
    type Value = Spanned<T>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a value")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Self::Value, A::Error> {
        let line = access.next_element()?.unwrap_or_default();
        let at = access.next_element()?.unwrap_or_default();
        Ok(Spanned { place: Some(Location { line, at }), value: access.next_element().unwrap_or_default() })
    }
}

impl<T: JsonSchema> JsonSchema for Spanned<T> {
    fn inline_schema() -> bool {
        T::inline_schema()
    }

    fn schema_name() -> Cow<'static, str> {
        T::schema_name()
    }

    fn schema_id() -> Cow<'static, str> {
        T::schema_id()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        T::json_schema(generator)
    }
}

/// One value, or a list of them.
#[derive(Debug, Clone)]
pub(super) struct OneOrMany<T>(pub(super) Vec<T>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for OneOrMany<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_newtype_struct(ONE_OR_MANY, SpannedItems(PhantomData))
    }
}

struct SpannedItems<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for SpannedItems<T> {
    type Value = OneOrMany<T>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("one value or a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Self::Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = access.next_element()? {
            items.push(item);
        }
        Ok(OneOrMany(items))
    }
}

impl<T: JsonSchema> JsonSchema for OneOrMany<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("OneOrMany{}", T::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let item = generator.subschema_for::<T>();
        schemars::json_schema!({ "anyOf": [item, { "type": "array", "items": item, "minItems": 1 }] })
    }
}

/// Reads a text that must be one of these words.
pub(super) fn read_word<'de, D: Deserializer<'de>>(
    deserializer: D,
    words: &'static [&'static str],
) -> Result<String, D::Error> {
    deserializer.deserialize_enum("", words, WordVisitor)
}

/// Reads a value as it is written: a text keeps its references.
pub(super) struct TemplateVisitor<T>(pub(super) PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for TemplateVisitor<T> {
    type Value = T;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a text")
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<T, D::Error> {
        T::deserialize(deserializer)
    }
}

struct WordVisitor;

impl<'de> Visitor<'de> for WordVisitor {
    type Value = String;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a word")
    }

    fn visit_enum<A: EnumAccess<'de>>(self, access: A) -> Result<String, A::Error> {
        access.variant().map(|(word, _)| word)
    }
}
