//! Forms of values in the file, such as durations, lists and words, and the settings that they
//! become.
//!
//! [`choice!`] declares a value that is one of several words, [`text_form!`] a text with a syntax.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;

use super::resolve::ResolveContext;
use super::section::KeyRow;
use super::spanned::{Location, OneOrMany, Spanned};
use super::units::{ByteSize, HumanDuration};
use super::yaml;

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
                let word = $crate::config::spanned::read_word(deserializer, WORDS)?;
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
                _: &$crate::config::spanned::Location,
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
                place: &$crate::config::spanned::Location,
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
