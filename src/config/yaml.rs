//! The YAML text as a tree in which every node knows its line.
//!
//! Reads YAML 1.2 (so also JSON) under a budget: `yes`, `no`, `on` and `off` are texts, `true` and
//! `false` are not; alias bombs and deep nesting are refused.

use std::fmt;

use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::budget::BudgetBreach;
use serde_saphyr::options::DuplicateKeyPolicy;
use serde_saphyr::{DefaultMessageFormatter, Error, MessageFormatter, Options, Spanned};

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
        let spanned = Spanned::<YamlValue>::deserialize(deserializer)?;
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
        while let Some((key, value)) = access.next_entry::<Spanned<String>, YamlNode>()? {
            entries.push((YamlKey { line: key.referenced.line(), name: key.value }, value));
        }
        Ok(YamlValue::Section(entries))
    }
}
