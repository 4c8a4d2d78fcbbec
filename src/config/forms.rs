//! Forms of values in the file, such as durations and sizes for people (`30s`, `4MiB`), lists and
//! words, and the settings that they become.
//!
//! [`choice!`] declares a value that is one of several words, [`text_form!`] a text with a syntax.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserialize, DeserializeOwned, Deserializer, Visitor};

use super::resolve::ResolveContext;
use super::section::KeyRow;
use super::yaml::{self, Location, OneOrMany, Spanned};

/// The form of a value in the file.
pub(super) trait KeyForm: DeserializeOwned + JsonSchema {
    /// Returns the form in the words of the key reference.
    fn describe() -> String;

    /// Adds the keys below a key of this form to the key reference.
    fn add_rows(_path: &str, _rows: &mut Vec<KeyRow>) {}

    /// Takes over the keys of `defaults` that this section lacks. Other values stay as they are.
    fn complete(&mut self, _defaults: Self) {}

    /// Adds the locations of the keys of a section that are written; of another value its own.
    fn add_places(&self, own: &Location, places: &mut Vec<Location>) {
        places.push(own.clone());
    }
}

/// A form of which values become settings of type `T`.
pub(super) trait Form<T>: KeyForm {
    /// Converts a value; `None` after a problem.
    fn resolve(self, place: &Location, context: &mut ResolveContext<'_>) -> Option<T>;

    /// Returns the setting of a key that the file leaves out, if it is not its default.
    fn resolve_absent(_place: &Location, _context: &mut ResolveContext<'_>) -> Option<T> {
        None
    }

    /// Reads the value of an environment variable.
    fn from_variable(_text: &str) -> Option<Self> {
        None
    }

    /// Returns the text of a setting, for problems.
    fn text(_value: &T) -> String {
        String::new()
    }
}

/// The usual form of a type of settings.
pub(super) trait Setting: Sized {
    type Form: Form<Self>;
}

/// Returns a documentation comment as one line for each paragraph.
pub(super) fn prose(doc: &str) -> String {
    let paragraphs = doc.split("\n\n").map(|lines| {
        let lines: Vec<_> = lines.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        lines.join(" ")
    });
    paragraphs.collect::<Vec<_>>().join("\n\n")
}

/// Declares the words for the values of an enum.
macro_rules! choice {
    ($(#[doc = $about:literal])+ $type:ty as $schema:literal { $($word:literal => $value:expr,)+ }) => {
        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                const WORDS: &[&str] = &[$($word),+];
                let word = $crate::config::yaml::read_word(deserializer, WORDS)?;
                match word.as_str() {
                    $($word => Ok($value),)+
                    _ => Err(serde::de::Error::unknown_variant("", WORDS)),
                }
            }
        }

        impl schemars::JsonSchema for $type {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                $schema.into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                let about = $crate::config::forms::prose(concat!($($about, "\n"),+));
                schemars::json_schema!({ "description": about, "type": "string", "enum": [$($word),+] })
            }
        }

        impl $crate::config::forms::KeyForm for $type {
            fn describe() -> String {
                [$(concat!("`", $word, "`")),+].join(", ")
            }
        }

        impl $crate::config::forms::Form<Self> for $type {
            fn resolve(
                self,
                _: &$crate::config::yaml::Location,
                _: &mut $crate::config::resolve::ResolveContext<'_>,
            ) -> Option<Self> {
                Some(self)
            }
        }

        impl $crate::config::forms::Setting for $type {
            type Form = Self;
        }
    };
}
pub(super) use choice;

macro_rules! plain_form {
    ($($form:ty: $words:literal),+) => {$(
        impl KeyForm for $form {
            fn describe() -> String {
                $words.to_owned()
            }
        }
    )+};
}
plain_form!(String: "text", bool: "`true` or `false`", u64: "number", f64: "number", HumanDuration: "duration", ByteSize: "size");

impl<F: KeyForm> KeyForm for Vec<Spanned<F>> {
    fn describe() -> String {
        format!("list: {}", F::describe())
    }

    fn add_rows(path: &str, rows: &mut Vec<KeyRow>) {
        F::add_rows(&format!("{path}[]"), rows);
    }
}

impl<F: KeyForm> KeyForm for OneOrMany<Spanned<F>> {
    fn describe() -> String {
        format!("{}, or a list", F::describe())
    }

    fn add_rows(path: &str, rows: &mut Vec<KeyRow>) {
        F::add_rows(path, rows);
    }
}

impl<F: KeyForm> KeyForm for BTreeMap<String, Spanned<F>> {
    fn describe() -> String {
        format!("by name: {}", F::describe())
    }

    fn add_rows(path: &str, rows: &mut Vec<KeyRow>) {
        F::add_rows(&yaml::join(path, "NAME"), rows);
    }
}

impl Setting for Duration {
    type Form = HumanDuration;
}

impl Form<Duration> for HumanDuration {
    fn resolve(self, _: &Location, _: &mut ResolveContext<'_>) -> Option<Duration> {
        Some(self.0)
    }

    fn from_variable(text: &str) -> Option<Self> {
        Some(Self(Duration::from_millis(text.trim().parse().ok()?)))
    }

    fn text(value: &Duration) -> String {
        Self(*value).to_string()
    }
}

impl Form<usize> for ByteSize {
    fn resolve(self, _: &Location, _: &mut ResolveContext<'_>) -> Option<usize> {
        Some(self.0)
    }

    fn text(value: &usize) -> String {
        Self(*value).to_string()
    }
}

macro_rules! count_form {
    ($($type:ty),+) => {$(
        impl Setting for $type {
            type Form = u64;
        }

        impl Form<$type> for u64 {
            fn resolve(self, _: &Location, _: &mut ResolveContext<'_>) -> Option<$type> {
                // The bounds of the key are below.
                Some(self.try_into().unwrap_or(<$type>::MAX))
            }

            fn from_variable(text: &str) -> Option<Self> {
                text.trim().parse().ok()
            }

            fn text(value: &$type) -> String {
                value.to_string()
            }
        }
    )+};
}
count_form!(usize, u32);

macro_rules! same_form {
    ($($type:ty),+) => {$(
        impl Setting for $type {
            type Form = Self;
        }

        impl Form<Self> for $type {
            fn resolve(self, _: &Location, _: &mut ResolveContext<'_>) -> Option<Self> {
                Some(self)
            }
        }
    )+};
}
same_form!(bool, String);

impl Setting for f64 {
    type Form = Self;
}

impl Form<Self> for f64 {
    fn resolve(self, _: &Location, _: &mut ResolveContext<'_>) -> Option<Self> {
        Some(self)
    }

    fn text(value: &Self) -> String {
        value.to_string()
    }
}

impl Setting for PathBuf {
    type Form = String;
}

impl Form<PathBuf> for String {
    fn resolve(self, _: &Location, context: &mut ResolveContext<'_>) -> Option<PathBuf> {
        Some(context.path(&self))
    }

    fn from_variable(text: &str) -> Option<Self> {
        Some(text.to_owned())
    }
}

impl<T: Setting> Setting for Option<T> {
    type Form = T::Form;
}

impl<T, F: Form<T>> Form<Option<T>> for F {
    fn resolve(self, place: &Location, context: &mut ResolveContext<'_>) -> Option<Option<T>> {
        <F as Form<T>>::resolve(self, place, context).map(Some)
    }

    fn from_variable(text: &str) -> Option<Self> {
        <F as Form<T>>::from_variable(text)
    }

    fn text(value: &Option<T>) -> String {
        value.as_ref().map(<F as Form<T>>::text).unwrap_or_default()
    }
}

/// Declares a text that `$parse` converts to a setting or refuses.
macro_rules! text_form {
    ($name:ident as $words:literal, $type:ty, $parse:expr) => {
        #[derive(Clone, serde::Deserialize)]
        #[serde(transparent)]
        pub(in crate::config) struct $name(String);

        impl schemars::JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
                String::json_schema(generator)
            }
        }

        impl $crate::config::forms::KeyForm for $name {
            fn describe() -> String {
                $words.to_owned()
            }
        }

        impl $crate::config::forms::Form<$type> for $name {
            fn resolve(
                self,
                place: &$crate::config::yaml::Location,
                context: &mut $crate::config::resolve::ResolveContext<'_>,
            ) -> Option<$type> {
                match $parse(self.0) {
                    Ok(value) => Some(value),
                    Err(problem) => context.report_conflict(place, problem),
                }
            }
        }
    };
}
pub(super) use text_form;

/// Declares a text that passes a check.
macro_rules! checked_text {
    ($name:ident as $words:literal, $check:expr) => {
        $crate::config::forms::text_form!($name as $words, String, |text: String| {
            let check: fn(&str) -> Result<(), _> = $check;
            check(&text).map(|()| text)
        });
    };
}
pub(super) use checked_text;

impl<T: Setting> Setting for Vec<T> {
    type Form = Vec<Spanned<T::Form>>;
}

impl<T, F: Form<T>> Form<Vec<T>> for Vec<Spanned<F>> {
    fn resolve(self, _: &Location, context: &mut ResolveContext<'_>) -> Option<Vec<T>> {
        let items = self.into_iter().filter_map(Spanned::take);
        Some(items.filter_map(|(place, item)| item.resolve(&place, context)).collect())
    }
}

impl<T, F: Form<T>> Form<Vec<T>> for OneOrMany<Spanned<F>> {
    fn resolve(self, _: &Location, context: &mut ResolveContext<'_>) -> Option<Vec<T>> {
        let items = self.0.into_iter().filter_map(Spanned::take);
        Some(items.filter_map(|(place, item)| item.resolve(&place, context)).collect())
    }
}

impl<T, F: Form<T>> Form<BTreeMap<String, T>> for BTreeMap<String, Spanned<F>> {
    fn resolve(self, _: &Location, context: &mut ResolveContext<'_>) -> Option<BTreeMap<String, T>> {
        let entries = self.into_iter().filter_map(|(name, item)| Some((name, item.take()?)));
        Some(
            entries
                .filter_map(|(name, (place, item))| Some((name, item.resolve(&place, context)?)))
                .collect(),
        )
    }
}

/// A duration of the file: a whole number and one of the units `ms`, `s`, `m`, `h`, `d`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct HumanDuration(pub(super) Duration);

/// A number of bytes of the file: a whole number, alone or with one of the units `KiB`, `MiB`,
/// `GiB`, `KB`, `MB`, `GB`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ByteSize(pub(super) usize);

const WAIT_HINT: &str = "a duration: a whole number and a unit, such as 250ms, 30s, 5m, 2h or 30d";
const SIZE_HINT: &str =
    "a size: a whole number, alone (bytes) or with a unit, such as 1024, 64KiB, 4MiB or 10MB";

/// Parses a duration of the configuration, such as `250ms` or `4s`.
pub(crate) fn parse_duration(text: &str) -> Option<Duration> {
    HumanDuration::parse(text).map(|HumanDuration(duration)| duration)
}

impl HumanDuration {
    fn parse(text: &str) -> Option<Self> {
        let (number, unit) = split(text)?;
        let milliseconds: u64 = match unit {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return None,
        };
        number.checked_mul(milliseconds).map(|total| Self(Duration::from_millis(total)))
    }
}

impl ByteSize {
    fn parse(text: &str) -> Option<Self> {
        let (number, unit) = split(text)?;
        let bytes: u64 = match unit {
            "" | "B" => 1,
            "KiB" => 1 << 10,
            "MiB" => 1 << 20,
            "GiB" => 1 << 30,
            "KB" | "kB" => 1_000,
            "MB" => 1_000_000,
            "GB" => 1_000_000_000,
            _ => return None,
        };
        usize::try_from(number.checked_mul(bytes)?).ok().map(Self)
    }
}

fn split(text: &str) -> Option<(u64, &str)> {
    let digits = text.find(|each: char| !each.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at_checked(digits)?;
    // One space is a common form: `4 MiB`.
    Some((number.parse().ok()?, unit.strip_prefix(' ').unwrap_or(unit)))
}

impl fmt::Display for HumanDuration {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total = self.0.as_millis();
        let units = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s")];
        let fits = units.into_iter().find(|(unit, _)| total > 0 && total.is_multiple_of(*unit));
        let (unit, name) = fits.unwrap_or((1, "ms"));
        write!(out, "{}{name}", total / unit)
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
        let fits = units.into_iter().find(|(unit, _)| self.0 > 0 && self.0.is_multiple_of(*unit));
        let (unit, name) = fits.unwrap_or((1, ""));
        write!(out, "{}{name}", self.0 / unit)
    }
}

/// Reads a text with `parse`; a bare number only where a unit is not needed.
struct UnitVisitor<T> {
    hint: &'static str,
    parse: fn(&str) -> Option<T>,
    bare: fn(u64) -> Option<T>,
}

impl<T> Visitor<'_> for UnitVisitor<T> {
    type Value = T;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.hint)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        (self.parse)(text).ok_or_else(|| E::custom(format_args!("expected {}", self.hint)))
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<T, E> {
        (self.bare)(number).ok_or_else(|| E::custom(format_args!("has no unit; expected {}", self.hint)))
    }
}

impl<'de> Deserialize<'de> for HumanDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(UnitVisitor { hint: WAIT_HINT, parse: Self::parse, bare: |_| None })
    }
}

impl<'de> Deserialize<'de> for ByteSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let bare = |number| usize::try_from(number).ok().map(Self);
        deserializer.deserialize_any(UnitVisitor { hint: SIZE_HINT, parse: Self::parse, bare })
    }
}

impl JsonSchema for HumanDuration {
    fn schema_name() -> Cow<'static, str> {
        "Duration".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A duration: a whole number and a unit, such as 250ms, 30s, 5m, 2h or 30d.",
            "type": "string",
            "pattern": "^[0-9]+ ?(ms|s|m|h|d)$",
        })
    }
}

impl JsonSchema for ByteSize {
    fn schema_name() -> Cow<'static, str> {
        "Size".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A number of bytes: a whole number, alone or with a unit, such as 64KiB, 4MiB or 10MB.",
            "type": ["string", "integer"],
            "pattern": "^[0-9]+ ?(B|KiB|MiB|GiB|KB|kB|MB|GB)?$",
            "minimum": 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_and_written() {
        for (text, milliseconds) in
            [("250ms", 250), ("30s", 30_000), ("5m", 300_000), ("2h", 7_200_000), ("30d", 2_592_000_000)]
        {
            let wait = HumanDuration::parse(text).unwrap();
            assert_eq!(wait.0, Duration::from_millis(milliseconds), "{text}");
            assert_eq!(wait.to_string(), text);
        }
        for text in ["", "s", "30", "1.5s", "-1s", "30 seconds", "1h30m", "999999999999999999d", "३s", "+3s"]
        {
            assert_eq!(HumanDuration::parse(text), None, "{text}");
        }
    }

    #[test]
    fn sizes_are_read_and_written() {
        for (text, bytes, shown) in [
            ("4MiB", 4_194_304, "4MiB"),
            ("64 KiB", 65_536, "64KiB"),
            ("10MB", 10_000_000, "10000000"),
            ("1024", 1024, "1KiB"),
            ("2GiB", 2_147_483_648, "2GiB"),
            ("7B", 7, "7"),
        ] {
            let size = ByteSize::parse(text).unwrap();
            assert_eq!((size.0, size.to_string().as_str()), (bytes, shown), "{text}");
        }
        for text in ["", "MiB", "4mib", "4M", "1.5MiB", "-1", "99999999999GiB"] {
            assert_eq!(ByteSize::parse(text), None, "{text}");
        }
    }
}
