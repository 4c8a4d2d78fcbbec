//! Reads the file types from the tree, and continues after every problem.
//!
//! A serde deserializer that knows its location: each problem is reported once, with line and path,
//! at the innermost value that has it. Unknown keys are reported (with a suggestion) and skipped.

use std::cell::RefCell;
use std::fmt;

use serde::de::value::{StrDeserializer, StringDeserializer, U64Deserializer};
use serde::de::{self, Deserializer, IntoDeserializer, MapAccess, SeqAccess, Unexpected, Visitor};

use super::reference::References;
use super::resolve::{Problem, did_you_mean};
use super::yaml::{Location, ONE_OR_MANY, TEMPLATE, WRITTEN, YamlKey, YamlNode, YamlValue, join};

/// One value of the tree, its path, and the list of problems.
#[derive(Clone)]
pub(super) struct ValueDeserializer<'a> {
    node: &'a YamlNode,
    place: Location,
    problems: &'a RefCell<Vec<Problem>>,
    references: &'a References<'a>,
    /// True if references stay in the text.
    is_template: bool,
}

impl<'a> ValueDeserializer<'a> {
    pub(super) fn new(
        node: &'a YamlNode,
        problems: &'a RefCell<Vec<Problem>>,
        references: &'a References<'a>,
    ) -> Self {
        let place = Location { line: node.line, at: String::new() };
        Self { node, place, problems, references, is_template: false }
    }

    /// Returns this text with its references replaced; `None` if it has none.
    fn referenced(&self) -> Result<Option<String>, DeError> {
        let YamlValue::Text(text) = &self.node.value else { return Ok(None) };
        if self.is_template {
            return Ok(None);
        }
        let replaced = self.references.replace(text, &self.place.at);
        replaced.map_err(|message| self.report(DeError { message, reported: false }))
    }

    /// Reports a text of references that is not of the kind.
    fn expected_of_reference<T>(&self, kind: &str) -> Result<T, DeError> {
        let message = format!("expected {kind}, but its reference holds something else");
        Err(self.report(DeError { message, reported: false }))
    }

    /// Returns the value of a key. Its location is the line of the key: a section's own first line
    /// is the one below.
    fn child(&self, key: &'a YamlKey, node: &'a YamlNode) -> Self {
        let place = Location { line: key.line, at: join(&self.place.at, &key.name) };
        Self { node, place, is_template: false, ..self.clone() }
    }

    fn item(&self, index: usize, node: &'a YamlNode) -> Self {
        let place = Location { line: node.line, at: format!("{}[{index}]", self.place.at) };
        Self { node, place, is_template: false, ..self.clone() }
    }

    fn report(&self, error: DeError) -> DeError {
        if !error.reported {
            let at = self.place.at.clone();
            let problem =
                Problem { file: None, line: Some(self.place.line), at, problem: error.message.clone() };
            self.problems.borrow_mut().push(problem);
        }
        DeError { reported: true, ..error }
    }

    fn expected<T>(&self, what: &str) -> Result<T, DeError> {
        let hint = match (&self.node.value, what) {
            (YamlValue::Null, _) => " (write a value, or remove the key)",
            (
                YamlValue::Bool(_) | YamlValue::Whole(_) | YamlValue::Negative(_) | YamlValue::Float(_),
                "a text",
            ) => " (put it in quotes)",
            (YamlValue::Text(_), "true or false") => " (yes, no, on and off are texts)",
            (YamlValue::Text(_), "a list") => " (begin each item with `- `)",
            _ => "",
        };
        let message = format!("expected {what}, found {}{hint}", self.node.value.kind());
        Err(self.report(DeError { message, reported: false }))
    }

    /// Returns the entries of a section with known keys; the others are reported.
    fn known(&self, fields: &'static [&'static str]) -> Result<Vec<(&'a YamlKey, &'a YamlNode)>, DeError> {
        let mut known = Vec::new();
        for (key, node) in self.section()? {
            if fields.contains(&key.name.as_str()) {
                known.push((key, node));
                continue;
            }
            let hint = did_you_mean(&key.name, fields.iter().copied());
            let hint = if hint.is_empty() { format!(" (known: {})", fields.join(", ")) } else { hint };
            let message = format!("unknown key{hint}");
            self.child(key, node).report(DeError { message, reported: false });
        }
        Ok(known)
    }

    fn section(&self) -> Result<Vec<(&'a YamlKey, &'a YamlNode)>, DeError> {
        match &self.node.value {
            YamlValue::Section(entries) => Ok(entries.iter().map(|(key, node)| (key, node)).collect()),
            YamlValue::Null => Ok(Vec::new()),
            _ => self.expected("a section (keys, each with a value)"),
        }
    }

    fn list(&self) -> Result<&'a [YamlNode], DeError> {
        match &self.node.value {
            YamlValue::List(items) => Ok(items),
            _ => self.expected("a list"),
        }
    }

    fn entries(self, entries: Vec<(&'a YamlKey, &'a YamlNode)>) -> EntriesAccess<'a> {
        EntriesAccess { reader: self, left: entries.into_iter(), value: None }
    }
}

impl<'de> Deserializer<'de> for ValueDeserializer<'_> {
    type Error = DeError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DeError> {
        if let Some(text) = self.referenced()? {
            return visitor.visit_string(text).map_err(|error| self.report(error));
        }
        let value = match &self.node.value {
            YamlValue::Null => visitor.visit_unit(),
            YamlValue::Bool(value) => visitor.visit_bool(*value),
            YamlValue::Whole(value) => visitor.visit_u64(*value),
            YamlValue::Negative(value) => visitor.visit_i64(*value),
            YamlValue::Float(value) => visitor.visit_f64(*value),
            YamlValue::Text(value) => visitor.visit_str(value),
            YamlValue::List(items) => {
                visitor.visit_seq(ListAccess { reader: self.clone(), items, next: 0, own: true })
            }
            YamlValue::Section(_) => {
                let entries = self.section()?;
                visitor.visit_map(self.clone().entries(entries))
            }
        };
        value.map_err(|error| self.report(error))
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DeError> {
        if let Some(text) = self.referenced()? {
            return match text.trim().parse() {
                Ok(value) => visitor.visit_bool(value),
                Err(_) => self.expected_of_reference("true or false"),
            };
        }
        match self.node.value {
            YamlValue::Bool(_) => self.deserialize_any(visitor),
            _ => self.expected("true or false"),
        }
    }

    fn deserialize_u64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DeError> {
        if let Some(text) = self.referenced()? {
            return match text.trim().parse() {
                Ok(value) => visitor.visit_u64(value),
                Err(_) => self.expected_of_reference("a whole number"),
            };
        }
        match self.node.value {
            YamlValue::Whole(_) => self.deserialize_any(visitor),
            _ => self.expected("a whole number"),
        }
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DeError> {
        match self.node.value {
            YamlValue::Text(_) => self.deserialize_any(visitor),
            _ => self.expected("a text"),
        }
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DeError> {
        self.deserialize_str(visitor)
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DeError> {
        self.deserialize_str(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DeError> {
        match self.node.value {
            YamlValue::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DeError> {
        let items = self.list()?;
        let list = ListAccess { reader: self.clone(), items, next: 0, own: true };
        visitor.visit_seq(list).map_err(|error| self.report(error))
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DeError> {
        let entries = self.section()?;
        visitor.visit_map(self.clone().entries(entries)).map_err(|error| self.report(error))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DeError> {
        let entries = self.known(fields)?;
        visitor.visit_map(self.clone().entries(entries)).map_err(|error| self.report(error))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DeError> {
        if let Some(text) = self.referenced()? {
            if variants.contains(&text.as_str()) {
                let variant: StringDeserializer<DeError> = text.into_deserializer();
                return visitor.visit_enum(variant).map_err(|error| self.report(error));
            }
            return self.expected_of_reference(&format!("one of: {}", variants.join(", ")));
        }
        let YamlValue::Text(text) = &self.node.value else { return self.expected("a text") };
        if variants.contains(&text.as_str()) {
            let variant: StrDeserializer<'_, DeError> = text.as_str().into_deserializer();
            return visitor.visit_enum(variant).map_err(|error| self.report(error));
        }
        let hint = did_you_mean(text, variants.iter().copied());
        let message = format!("is not one of: {}{hint}", variants.join(", "));
        Err(self.report(DeError { message, reported: false }))
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, DeError> {
        match (name, &self.node.value) {
            (TEMPLATE, _) => visitor.visit_newtype_struct(Self { is_template: true, ..self }),
            (WRITTEN, _) => visitor.visit_seq(SpannedAccess { reader: self, next: 0 }),
            (ONE_OR_MANY, YamlValue::List(_)) => self.deserialize_seq(visitor),
            (ONE_OR_MANY, _) => {
                let items = std::slice::from_ref(self.node);
                visitor.visit_seq(ListAccess { reader: self, items, next: 0, own: false })
            }
            _ => visitor.visit_newtype_struct(self),
        }
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DeError> {
        visitor.visit_unit()
    }

    serde::forward_to_deserialize_any! {
        i8 i16 i32 i64 i128 u8 u16 u32 u128 f32 f64 char bytes byte_buf unit unit_struct tuple tuple_struct
    }
}

/// The three things that a `Spanned` requests: line, path, value.
struct SpannedAccess<'a> {
    reader: ValueDeserializer<'a>,
    next: u8,
}

impl<'de> SeqAccess<'de> for SpannedAccess<'_> {
    type Error = DeError;

    fn next_element_seed<S: de::DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, DeError> {
        self.next = self.next.saturating_add(1);
        match self.next {
            1 => seed.deserialize(U64Deserializer::new(self.reader.place.line)).map(Some),
            2 => seed.deserialize(StringDeserializer::new(self.reader.place.at.clone())).map(Some),
            3 => seed.deserialize(self.reader.clone()).map(Some),
            _ => Ok(None),
        }
    }
}

struct ListAccess<'a> {
    reader: ValueDeserializer<'a>,
    items: &'a [YamlNode],
    next: usize,
    /// True if the items have locations of their own. A single value that stands for a list keeps
    /// its key's.
    own: bool,
}

impl<'de> SeqAccess<'de> for ListAccess<'_> {
    type Error = DeError;

    fn next_element_seed<S: de::DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, DeError> {
        let Some(node) = self.items.get(self.next) else { return Ok(None) };
        let reader = if self.own { self.reader.item(self.next, node) } else { self.reader.clone() };
        self.next += 1;
        seed.deserialize(reader).map(Some)
    }
}

struct EntriesAccess<'a> {
    reader: ValueDeserializer<'a>,
    left: std::vec::IntoIter<(&'a YamlKey, &'a YamlNode)>,
    value: Option<ValueDeserializer<'a>>,
}

impl<'de> MapAccess<'de> for EntriesAccess<'_> {
    type Error = DeError;

    fn next_key_seed<S: de::DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, DeError> {
        let Some((key, node)) = self.left.next() else { return Ok(None) };
        self.value = Some(self.reader.child(key, node));
        let key: StrDeserializer<'_, DeError> = key.name.as_str().into_deserializer();
        seed.deserialize(key).map(Some)
    }

    fn next_value_seed<S: de::DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, DeError> {
        let value = self.value.take().ok_or_else(|| de::Error::custom("a value without its key"))?;
        seed.deserialize(value)
    }
}

/// Reason for which a value could not be read, in words that never quote the value.
#[derive(Debug)]
pub(super) struct DeError {
    pub(super) message: String,
    /// True if it is among the problems already.
    pub(super) reported: bool,
}

impl fmt::Display for DeError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.message)
    }
}

impl std::error::Error for DeError {}

impl de::Error for DeError {
    fn custom<M: fmt::Display>(message: M) -> Self {
        Self { message: message.to_string(), reported: false }
    }

    /// Serde's own text quotes the value, and the value may be a secret.
    fn invalid_type(found: Unexpected<'_>, expected: &dyn de::Expected) -> Self {
        let found = match found {
            Unexpected::Bool(_) => "true or false",
            Unexpected::Unsigned(_) | Unexpected::Signed(_) | Unexpected::Float(_) => "a number",
            Unexpected::Str(_) | Unexpected::Char(_) => "a text",
            Unexpected::Seq => "a list",
            Unexpected::Map => "a section",
            Unexpected::Unit | Unexpected::Option => "nothing",
            _ => "something else",
        };
        Self::custom(format_args!("expected {expected}, found {found}"))
    }

    fn invalid_value(_found: Unexpected<'_>, expected: &dyn de::Expected) -> Self {
        Self::custom(format_args!("expected {expected}"))
    }
}
