//! The YAML text as a tree in which every node knows its line, and a value with its location in the
//! file.
//!
//! Reads YAML 1.2 (so also JSON) under a budget: `yes`, `no`, `on` and `off` are texts, `true` and
//! `false` are not; alias bombs and deep nesting are refused.
//!
//! Reading a [`Spanned`] never fails: when its value is wrong, the deserializer has reported that
//! already and the value is absent. That is how one run finds every problem.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::{self, Deserialize, Deserializer, EnumAccess, MapAccess, SeqAccess, Visitor};
use serde_saphyr::budget::BudgetBreach;
use serde_saphyr::options::DuplicateKeyPolicy;
use serde_saphyr::{DefaultMessageFormatter, Error, MessageFormatter, Options};

use super::resolve::Problem;

/// The deepest nesting of a file.
const DEPTH: usize = 48;
/// Most nodes of a file, replayed aliases included.
const NODES: usize = 100_000;

/// One value and the line on which it begins. Without `Debug`: it may be a secret.
#[derive(Clone)]
pub(super) struct YamlNode {
    pub(super) line: u64,
    pub(super) value: YamlValue,
}

/// A value of YAML.
#[derive(Clone)]
pub(super) enum YamlValue {
    Null,
    Bool(bool),
    Whole(u64),
    Negative(i64),
    Float(f64),
    Text(String),
    List(Vec<YamlNode>),
    /// In the order of the file. A key may occur twice: the tree shows that.
    Section(Vec<(YamlKey, YamlNode)>),
}

/// A key of a section and its line.
#[derive(Clone)]
pub(super) struct YamlKey {
    pub(super) line: u64,
    pub(super) name: String,
}

impl YamlValue {
    /// Returns the kind of the value, in plain words.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Null => "nothing",
            Self::Bool(_) => "true or false",
            Self::Whole(_) | Self::Negative(_) | Self::Float(_) => "a number",
            Self::Text(_) => "a text",
            Self::List(_) => "a list",
            Self::Section(_) => "a section",
        }
    }
}

/// Parses a file. Duplicate keys become problems, and the last one counts.
///
/// # Errors
///
/// The one problem that keeps the text from being YAML; further problems of the file stay unknown.
pub(super) fn parse(text: &str, problems: &mut Vec<Problem>) -> Result<YamlNode, Problem> {
    let mut root: YamlNode = serde_saphyr::from_str_with_options(text, options(DuplicateKeyPolicy::LastWins))
        .map_err(|error| not_yaml(&error))?;
    let before = problems.len();
    drop_doubles(&mut root, "", problems);
    if problems.len() == before {
        // Keys that look like numbers are merged by the parser before the tree sees them, so the
        // parser must check them.
        serde_saphyr::from_str_with_options::<YamlNode>(text, options(DuplicateKeyPolicy::Error))
            .map_err(|error| not_yaml(&error))?;
    }
    Ok(root)
}

fn options(duplicate_keys: DuplicateKeyPolicy) -> Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: DEPTH,
            flow_nesting_limit: DEPTH,
            max_documents: 1,
            max_nodes: NODES,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: NODES,
            max_replay_stack_depth: 16,
        },
        duplicate_keys: duplicate_keys,
        // The parser would refuse a file with a hundred lines of comments in a row.
        emit_comments: false,
        strict_booleans: true,
        with_snippet: false,
    }
}

fn not_yaml(error: &Error) -> Problem {
    let line = error.location().map(|location| location.line()).filter(|line| *line > 0);
    let reason = match error.without_snippet() {
        Error::Budget { breach: BudgetBreach::Documents { .. }, .. } => {
            "a second document begins (after ---)".into()
        }
        Error::Budget { .. } => "too many or too deeply nested values".into(),
        Error::NonFiniteFloat { .. } => "a number that is none (put it in quotes)".into(),
        other => DefaultMessageFormatter.format_message(other),
    };
    Problem { file: None, line, at: String::new(), problem: format!("cannot be read as YAML: {reason}") }
}

/// Removes all but the last entry of each key, and reports the others.
fn drop_doubles(node: &mut YamlNode, at: &str, problems: &mut Vec<Problem>) {
    match &mut node.value {
        YamlValue::List(items) => {
            for (index, item) in items.iter_mut().enumerate() {
                drop_doubles(item, &format!("{at}[{index}]"), problems);
            }
        }
        YamlValue::Section(entries) => {
            let mut kept: Vec<(YamlKey, YamlNode)> = Vec::with_capacity(entries.len());
            let mut places = std::collections::HashMap::with_capacity(entries.len());
            for (key, mut value) in entries.drain(..) {
                let below = join(at, &key.name);
                if let Some(first) = places.insert(key.name.clone(), key.line) {
                    let problem = format!("is written twice (first on line {first})");
                    problems.push(Problem { file: None, line: Some(key.line), at: below.clone(), problem });
                    kept.retain(|(other, _)| other.name != key.name);
                }
                drop_doubles(&mut value, &below, problems);
                kept.push((key, value));
            }
            *entries = kept;
        }
        YamlValue::Null
        | YamlValue::Bool(_)
        | YamlValue::Whole(_)
        | YamlValue::Negative(_)
        | YamlValue::Float(_)
        | YamlValue::Text(_) => {}
    }
}

/// Returns the path of a key below another.
pub(super) fn join(at: &str, key: &str) -> String {
    // Control characters in a key would forge lines of the report.
    let key: String = key.chars().map(|each| if each.is_control() { '\u{fffd}' } else { each }).collect();
    if at.is_empty() { key } else { format!("{at}.{key}") }
}

impl<'de> Deserialize<'de> for YamlNode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = serde_saphyr::Spanned::<YamlValue>::deserialize(deserializer)?;
        Ok(Self { line: spanned.referenced.line(), value: spanned.value })
    }
}

impl<'de> Deserialize<'de> for YamlValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TreeBuilder)
    }
}

struct TreeBuilder;

impl<'de> Visitor<'de> for TreeBuilder {
    type Value = YamlValue;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a value")
    }

    fn visit_unit<E: de::Error>(self) -> Result<YamlValue, E> {
        Ok(YamlValue::Null)
    }

    fn visit_none<E: de::Error>(self) -> Result<YamlValue, E> {
        Ok(YamlValue::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<YamlValue, D::Error> {
        YamlValue::deserialize(deserializer)
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<YamlValue, E> {
        Ok(YamlValue::Bool(value))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<YamlValue, E> {
        Ok(YamlValue::Whole(value))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<YamlValue, E> {
        Ok(u64::try_from(value).map_or(YamlValue::Negative(value), YamlValue::Whole))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<YamlValue, E> {
        Ok(YamlValue::Float(value))
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<YamlValue, E> {
        Ok(YamlValue::Text(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<YamlValue, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = access.next_element()? {
            items.push(item);
        }
        Ok(YamlValue::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<YamlValue, A::Error> {
        let mut entries = Vec::new();
        while let Some((key, value)) = access.next_entry::<serde_saphyr::Spanned<String>, YamlNode>()? {
            entries.push((YamlKey { line: key.referenced.line(), name: key.value }, value));
        }
        Ok(YamlValue::Section(entries))
    }
}

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
