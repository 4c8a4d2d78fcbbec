//! Sections of the configuration: each key is declared once, with its documentation, form, default
//! and bounds.
//!
//! [`section!`] makes from one declaration the settings with their `Default`, the reader of the
//! keys (a `Deserialize` that keeps line and path of every value), the JSON Schema and the rows of
//! the key reference. See also `forms` for the types of keys.
//!
//! ```text
//! section! {
//!     /// Limits on how long a call may take.
//!     #[derive(Debug, Clone)]
//!     pub struct Calls {
//!         /// Longest wait of a call before the client receives a handle.
//!         budget: Duration = 45s in 1s..=1h,
//!         /// Largest request.
//!         body: usize as ByteSize = 4MiB in 1KiB..=1GiB,
//!     }
//!     keys { /* keys that have no field: `check` reads them */ }
//!     fields { /* fields that have no key */ }
//!     check check_calls
//! }
//! ```
//!
//! Defaults and bounds are YAML: the reader of the file reads them too. A key may have options in
//! brackets, in this order: `or("VARIABLE", "unit")`, an environment variable that replaces the
//! default; `required "remedy"`; `example value`; `schema { … }`, members of its JSON Schema.
//!
//! A section of which the settings differ from the keys declares the keys alone, and converts them
//! by hand: `keys AgentKeys("Agent") { rate: u64 => usize = 0 in 0..=10, card: String, }`. A key
//! with a type (`=>`) gets a method of its name, which returns the checked value or the default. The
//! default `none` is that of the type.

use std::cell::RefCell;
use std::path::Path;

use schemars::Schema;
use serde_json::{Map, Value, json};

use super::deserializer::ValueDeserializer;
use super::forms::{Form, KeyForm, Setting, prose};
use super::reference::References;
use super::resolve::{EnvOverride, ResolveContext};
use super::yaml::{self, Location, Spanned, YamlNode, YamlValue};

/// The keys of a section of settings, as in the file.
pub(super) type KeysOf<T> = <T as Setting>::Form;

/// Keys of a section as in the file.
pub(super) trait SectionKeys: Sized {
    /// The declarations, in their order.
    fn specs() -> Vec<KeySpec>;

    /// The location of the section.
    fn section(&mut self) -> &mut Location;

    /// Reports a problem at the value of a key: in the file, or else in its environment variable.
    fn report(
        &mut self,
        key: &str,
        place: Option<Location>,
        problem: &str,
        context: &mut ResolveContext<'_>,
    ) {
        let spec = Self::specs().into_iter().find(|spec| spec.key == key);
        let variable = spec.and_then(|spec| spec.env_override(self.section()));
        match (place, variable) {
            (None, Some(variable)) => context.report_override(&variable, problem),
            (place, _) => context.problem(&place.unwrap_or_default(), problem),
        }
    }
}

impl<K: SectionKeys> Spanned<K> {
    /// Returns the keys of the section, if it is present. They know its location.
    pub(super) fn open(self) -> Option<K> {
        let (place, mut keys) = self.take()?;
        *keys.section() = place;
        Some(keys)
    }
}

impl<F: KeyForm> Spanned<F> {
    /// Takes `default` over if the value is absent; a section takes over the keys that it lacks.
    pub(super) fn complete(&mut self, default: Self) {
        if self.place().is_none() {
            *self = default;
        } else if let (Some(value), Some(default)) = (self.get_mut(), default.value()) {
            value.complete(default);
        }
    }

    /// Adds the location of the value, or those of the keys of a section.
    pub(super) fn add_places(&self, places: &mut Vec<Location>) {
        match (self.place(), self.get()) {
            (Some(place), Some(value)) => value.add_places(place, places),
            (place, _) => places.extend(place.cloned()),
        }
    }
}

impl<F> Spanned<F> {
    /// Returns the setting and its location; `None` if the key is absent or wrong.
    pub(super) fn resolve<T>(self, context: &mut ResolveContext<'_>) -> Option<(Location, T)>
    where
        F: Form<T>,
    {
        let (place, form) = self.take()?;
        let value = form.resolve(&place, context)?;
        Some((place, value))
    }
}

/// The declaration of one key.
#[derive(Debug, Clone, Copy)]
pub(super) struct KeySpec {
    pub(super) key: &'static str,
    pub(super) doc: &'static str,
    pub(super) default: Option<&'static str>,
    pub(super) bounds: Option<[&'static str; 2]>,
    /// An environment variable that replaces the default, and its unit.
    pub(super) variable: Option<[&'static str; 2]>,
    /// The remedy for a missing key that is required.
    pub(super) required: Option<&'static str>,
    pub(super) example: Option<&'static str>,
    /// Further members of its JSON Schema.
    pub(super) schema: Option<&'static str>,
}

impl KeySpec {
    /// Returns the key as in the file.
    pub(super) fn name(&self) -> &'static str {
        self.key.trim_start_matches("r#")
    }

    /// Returns the variable that replaces the default, if there is one.
    pub(super) fn env_override(&self, section: &Location) -> Option<EnvOverride> {
        let [variable, unit] = self.variable?;
        Some(EnvOverride { key: section.child(self.name()).at, variable, unit })
    }
}

/// One line of the key reference.
#[derive(Debug)]
pub(super) struct KeyRow {
    /// Path of the key, such as `listeners[].tls.key` or `agents.NAME.card`.
    pub(super) path: String,
    pub(super) form: String,
    pub(super) spec: KeySpec,
    /// True if further rows are below it.
    pub(super) is_section: bool,
}

/// Reads one key; `None` if it is absent or wrong. The location of the key stays.
pub(super) fn read_key<F: Form<T>, T>(
    written: &mut Spanned<F>,
    section: &Location,
    spec: &KeySpec,
    context: &mut ResolveContext<'_>,
) -> Option<T> {
    if let Some(place) = written.place().cloned() {
        return written.take_value()?.resolve(&place, context);
    }
    let place = section.child(spec.name());
    if let Some(hint) = spec.required {
        return context.report_conflict(&place, format!("is missing ({hint})"));
    }
    let Some(variable) = spec.env_override(section) else { return F::resolve_absent(&place, context) };
    let text = context.override_text(&variable)?;
    match F::from_variable(&text) {
        Some(form) => form.resolve(&place, context),
        None => {
            let problem = format!("is not a whole number of {}", variable.unit);
            context.report_override(&variable, &problem);
            None
        }
    }
}

/// Returns a value that is within the bounds of its key; `None` after a problem.
pub(super) fn within_bounds<F: Form<T>, T: PartialOrd>(
    value: Option<T>,
    bounds: [&str; 2],
    written: &Spanned<F>,
    variable: Option<EnvOverride>,
    context: &mut ResolveContext<'_>,
) -> Option<T> {
    let value = value?;
    let [least, most] = bounds.map(literal::<F, T>);
    if (&least..=&most).contains(&&value) {
        return Some(value);
    }
    let [value, least, most] = [&value, &least, &most].map(F::text);
    let problem = format!("{value} is out of bounds (from {least} to {most})");
    match (written.place(), variable) {
        (None, Some(variable)) => context.report_override(&variable, &problem),
        (place, _) => context.problem(place?, problem),
    }
    None
}

/// Returns the value of a default or a bound.
#[expect(clippy::expect_used, reason = "a literal of the source, which every test of the section reads")]
pub(super) fn literal<F: Form<T>, T>(text: &str) -> T {
    let node = literal_node(text);
    let problems = RefCell::new(Vec::new());
    let mut context = ResolveContext::new(Path::new(""), &|_| None, Vec::new());
    let references = References::new(context.inside(Path::new("")));
    let form = F::deserialize(ValueDeserializer::new(&node, &problems, &references)).ok();
    form.and_then(|form| form.resolve(&Location::default(), &mut context)).expect(text)
}

/// Returns a default as JSON.
pub(super) fn literal_json(text: &str) -> Value {
    to_json(literal_node(text).value)
}

#[expect(clippy::expect_used, reason = "a literal of the source, which every test of the section reads")]
fn literal_node(text: &str) -> YamlNode {
    yaml::parse(text, &mut Vec::new()).expect(text)
}

pub(super) fn to_json(value: YamlValue) -> Value {
    match value {
        YamlValue::Null => Value::Null,
        YamlValue::Bool(value) => value.into(),
        YamlValue::Whole(value) => value.into(),
        YamlValue::Negative(value) => value.into(),
        YamlValue::Float(value) => value.into(),
        YamlValue::Text(value) => value.into(),
        YamlValue::List(items) => items.into_iter().map(|item| to_json(item.value)).collect(),
        YamlValue::Section(entries) => {
            entries.into_iter().map(|(key, node)| (key.name, to_json(node.value))).collect()
        }
    }
}

/// Builds the JSON Schema of a section.
pub(super) struct SectionSchema {
    schema: Map<String, Value>,
    properties: Map<String, Value>,
    required: Vec<&'static str>,
}

impl SectionSchema {
    /// Begins with the documentation and further members, as JSON.
    pub(super) fn new(about: &str, more: Option<&str>) -> Self {
        let mut schema = Map::new();
        schema.insert("type".to_owned(), "object".into());
        schema.insert("description".to_owned(), prose(about).into());
        schema.insert("additionalProperties".to_owned(), false.into());
        add_members(&mut schema, more);
        Self { schema, properties: Map::new(), required: Vec::new() }
    }

    /// Adds a key and the schema of its form.
    pub(super) fn add(&mut self, spec: Option<KeySpec>, form: Schema) {
        let (Some(spec), Value::Object(mut schema)) = (spec, form.to_value()) else { return };
        schema.insert("description".to_owned(), prose(spec.doc).into());
        if let Some(default) = spec.default {
            schema.insert("default".to_owned(), literal_json(default));
        }
        if let Some(example) = spec.example {
            schema.insert("examples".to_owned(), json!([literal_json(example)]));
        }
        for (name, bound) in ["minimum", "maximum"].iter().zip(spec.bounds.into_iter().flatten()) {
            if let bound @ Value::Number(_) = literal_json(bound) {
                schema.insert((*name).to_owned(), bound);
            }
        }
        add_members(&mut schema, spec.schema);
        if spec.required.is_some() {
            self.required.push(spec.name());
        }
        self.properties.insert(spec.name().to_owned(), Value::Object(schema));
    }

    pub(super) fn finish(mut self) -> Schema {
        self.schema.insert("properties".to_owned(), Value::Object(self.properties));
        if !self.required.is_empty() {
            self.schema.insert("required".to_owned(), json!(self.required));
        }
        self.schema.into()
    }
}

fn add_members(schema: &mut Map<String, Value>, more: Option<&str>) {
    let more = more.and_then(|more| serde_json::from_str::<Map<_, _>>(more).ok());
    schema.extend(more.into_iter().flatten());
}

/// Adds the row of a key and those below it.
pub(super) fn add_row<F: KeyForm>(path: &str, spec: Option<KeySpec>, rows: &mut Vec<KeyRow>) {
    let Some(spec) = spec else { return };
    let path = yaml::join(path, spec.name());
    let at = rows.len();
    F::add_rows(&path, rows);
    let is_section = rows.len() > at;
    rows.insert(at, KeyRow { path, form: F::describe(), spec, is_section });
}

/// Declares a section, as the documentation of the module shows.
macro_rules! section {
    (
        $(#[doc = $about:literal])+
        $(#[derive($($derive:ident),+)])?
        pub struct $name:ident {
            $(
                $(#[doc = $doc:literal])+
                $key:ident: $type:ty $(as $form:ty)? $(= $default:tt $(in $least:tt..=$most:tt)?)?
                    $([$($option:tt)*])?,
            )*
        }
        $(keys {
            $(
                $(#[doc = $raw_doc:literal])+
                $raw_key:ident: $raw_form:ty $(=> $raw_type:ty)?
                    $(= $raw_default:tt $(in $raw_least:tt..=$raw_most:tt)?)? $([$($raw_option:tt)*])?,
            )*
        })?
        $(fields {
            $($(#[doc = $field_doc:literal])+ $field:ident: $field_type:ty = $value:expr,)*
        })?
        $(check $check:path)?
    ) => {
        $(#[doc = $about])+
        $(#[derive($($derive),+)])?
        pub struct $name {
            $(
                $(#[doc = $doc])+
                $(#[doc = concat!("\n\nDefault: `", stringify!($default), "`.")])?
                pub $key: $type,
            )*
            $($($(#[doc = $field_doc])+ pub $field: $field_type,)*)?
        }

        impl Default for $name {
            fn default() -> Self {
                Self {
                    $($key: section!(@default (section!(@form $type $(, $form)?)) ($type) $($default)?),)*
                    $($($field: $value,)*)?
                }
            }
        }

        const _: () = {
            section! {
                @keys Source (stringify!($name)) [$($about)+] []
                $(
                    $key (section!(@form $type $(, $form)?)) ($type) [$($doc)+] [$($default)?]
                    [$($($least, $most)?)?] [$($($option)*)?];
                )*
                $($(
                    $raw_key ($raw_form) ($($raw_type)?) [$($raw_doc)+] [$($raw_default)?]
                    [$($($raw_least, $raw_most)?)?] [$($($raw_option)*)?];
                )*)?
            }

            impl $crate::config::forms::Setting for $name {
                type Form = Source;
            }

            impl $crate::config::forms::Form<$name> for Source {
                fn resolve(
                    mut self,
                    place: &$crate::config::yaml::Location,
                    context: &mut $crate::config::resolve::ResolveContext<'_>,
                ) -> Option<$name> {
                    self.section = place.clone();
                    let settings =
                        $name { $($key: self.$key(context),)* $($($field: $value,)*)? };
                    $(let settings = $check(settings, self, context);)?
                    Some(settings)
                }

                fn resolve_absent(
                    place: &$crate::config::yaml::Location,
                    context: &mut $crate::config::resolve::ResolveContext<'_>,
                ) -> Option<$name> {
                    $crate::config::forms::Form::<$name>::resolve(Self::default(), place, context)
                }
            }
        };
    };
    (
        $(#[doc = $about:literal])+
        keys $name:ident($schema:literal) $(with $more:tt)? {
            $(
                $(#[doc = $doc:literal])+
                $key:ident: $form:ty $(=> $type:ty)? $(= $default:tt $(in $least:tt..=$most:tt)?)?
                    $([$($option:tt)*])?,
            )*
        }
    ) => {
        section! {
            @keys $name ($schema) [$($about)+] [$($more)?]
            $(
                $key ($form) ($($type)?) [$($doc)+] [$($default)?] [$($($least, $most)?)?]
                [$($($option)*)?];
            )*
        }
    };
    (
        @keys $name:ident ($schema:expr) [$($about:literal)+] [$($more:tt)?]
        $(
            $key:ident ($form:ty) ($($type:ty)?) [$($doc:literal)+] [$($default:tt)?]
            [$($least:tt, $most:tt)?] [$($option:tt)*];
        )*
    ) => {
        $(#[doc = $about])+
        #[derive(Default, Clone, serde::Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub(in crate::config) struct $name {
            /// The location of the section.
            #[serde(skip)]
            pub(in crate::config) section: $crate::config::yaml::Location,
            $(pub(in crate::config) $key: $crate::config::yaml::Spanned<$form>,)*
        }

        impl $name {
            $(section! {
                @method $key ($form) ($($type)?) [$($default)?] [$($least, $most)?]
                (section!(@spec $key [$($doc)+] [$($default)?] [$($least, $most)?] [$($option)*]))
            })*
        }

        impl $crate::config::section::SectionKeys for $name {
            fn specs() -> Vec<$crate::config::section::KeySpec> {
                vec![$(
                    section!(@spec $key [$($doc)+] [$($default)?] [$($least, $most)?] [$($option)*])
                ),*]
            }

            fn section(&mut self) -> &mut $crate::config::yaml::Location {
                &mut self.section
            }
        }

        impl $crate::config::forms::KeyForm for $name {
            fn describe() -> String {
                "section".to_owned()
            }

            fn add_rows(path: &str, rows: &mut Vec<$crate::config::section::KeyRow>) {
                let mut specs = <Self as $crate::config::section::SectionKeys>::specs().into_iter();
                $($crate::config::section::add_row::<$form>(path, specs.next(), rows);)*
            }

            fn complete(&mut self, defaults: Self) {
                $(self.$key.complete(defaults.$key);)*
            }

            fn add_places(&self, _: &$crate::config::yaml::Location, places: &mut Vec<$crate::config::yaml::Location>) {
                $(self.$key.add_places(places);)*
            }
        }

        impl schemars::JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                $schema.into()
            }

            fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
                let mut schema = $crate::config::section::SectionSchema::new(
                    concat!($($about, "\n"),+),
                    section!(@text $($more)?),
                );
                let mut specs = <Self as $crate::config::section::SectionKeys>::specs().into_iter();
                $(schema.add(specs.next(), generator.subschema_for::<$form>());)*
                schema.finish()
            }
        }
    };
    (@method $key:ident ($form:ty) () $($rest:tt)*) => {};
    (
        @method $key:ident ($form:ty) ($type:ty) [$($default:tt)?] [$($least:tt, $most:tt)?] ($spec:expr)
    ) => {
        /// Returns the checked value of the key, or its default.
        pub(in crate::config) fn $key(
            &mut self,
            context: &mut $crate::config::resolve::ResolveContext<'_>,
        ) -> $type {
            let spec = $spec;
            let value = $crate::config::section::read_key::<$form, $type>(
                &mut self.$key,
                &self.section,
                &spec,
                context,
            );
            $(let value = $crate::config::section::within_bounds::<$form, $type>(
                value,
                [stringify!($least), stringify!($most)],
                &self.$key,
                spec.env_override(&self.section),
                context,
            );)?
            value.unwrap_or_else(|| section!(@default ($form) ($type) $($default)?))
        }
    };
    (
        @spec $key:ident [$($doc:literal)+] [$($default:tt)?] [$($least:tt, $most:tt)?]
        [
            $(or($variable:literal, $unit:literal))?
            $(required $hint:literal)?
            $(example $example:tt)?
            $(schema $more:tt)?
        ]
    ) => {
        $crate::config::section::KeySpec {
            key: stringify!($key),
            doc: concat!($($doc, "\n"),+),
            default: section!(@text $($default)?),
            bounds: section!(@option $([stringify!($least), stringify!($most)])?),
            variable: section!(@option $([$variable, $unit])?),
            required: section!(@option $($hint)?),
            example: section!(@text $($example)?),
            schema: section!(@text $($more)?),
        }
    };
    (@form $type:ty) => { <$type as $crate::config::forms::Setting>::Form };
    (@form $type:ty, $form:ty) => { $form };
    (@default ($form:ty) ($type:ty)) => { <$type>::default() };
    (@default ($form:ty) ($type:ty) none) => { <$type>::default() };
    (@default ($form:ty) ($type:ty) $default:tt) => {
        $crate::config::section::literal::<$form, $type>(stringify!($default))
    };
    (@text) => { None };
    (@text none) => { None };
    (@text $text:tt) => { Some(stringify!($text)) };
    (@option) => { None };
    (@option $value:expr) => { Some($value) };
}
pub(super) use section;
