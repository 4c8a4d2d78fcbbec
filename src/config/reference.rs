//! References in texts: `${env:NAME}`, `${NAME}` and `${file:PATH}`; `$${` is a plain `${`.
//!
//! The keys that accept references state so in their own documentation.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;

use super::Secret;
use super::reloadable_secret::{ReloadableSecret, TextPiece, is_one_line};
use super::resolve::ResolveContext;
use super::spanned::{Location, Spanned};

/// A text that may contain references.
#[derive(Deserialize)]
#[serde(transparent)]
pub(super) struct Template(String);

impl JsonSchema for Template {
    fn schema_name() -> Cow<'static, str> {
        "Secret".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A text that may hold references: `${env:NAME}` or `${NAME}` is an environment variable, \
                `${file:PATH}` the text of a file (without one newline at its end). `$${` is a plain `${`.",
            "type": "string",
        })
    }
}

impl Template {
    pub(super) fn new(text: String) -> Self {
        Self(text)
    }

    /// Returns the text with every reference resolved. The key decides if it may have several
    /// lines.
    pub(super) fn resolve(self, reading: &mut ResolveContext<'_>, place: &Location) -> Option<Secret> {
        self.resolve_live(reading, place).map(|live| live.secret().clone())
    }

    /// Resolves the references; the result knows the files that it comes from.
    fn resolve_live(self, reading: &mut ResolveContext<'_>, place: &Location) -> Option<ReloadableSecret> {
        match expand(&self.0, reading).and_then(ReloadableSecret::read) {
            Ok(secret) => Some(secret),
            Err(problem) => reading.report_conflict(place, problem),
        }
    }
}

/// Returns a secret of one line; `None` for absent and wrong ones.
pub(super) fn one_line(
    written: Spanned<Template>,
    reading: &mut ResolveContext<'_>,
) -> Option<(Location, Secret)> {
    live(written, reading).map(|(place, secret)| (place, secret.secret().clone()))
}

/// Returns a secret of one line that follows its files; `None` for absent and wrong ones.
pub(super) fn live(
    written: Spanned<Template>,
    reading: &mut ResolveContext<'_>,
) -> Option<(Location, ReloadableSecret)> {
    let (place, template) = written.take()?;
    let secret = template.resolve_live(reading, &place)?;
    if !is_one_line(secret.expose()) {
        return reading.report_conflict(
            &place,
            "has a line break or a NUL in it (only one newline at its end is removed)",
        );
    }
    Some((place, secret))
}

fn expand(text: &str, reading: &ResolveContext<'_>) -> Result<Vec<TextPiece>, String> {
    let mut pieces = Vec::new();
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        if let Some(escaped) = before.strip_suffix('$') {
            plain.push_str(escaped);
            plain.push_str("${");
            rest = after;
            continue;
        }
        let (name, tail) = after
            .split_once('}')
            .ok_or_else(|| "a reference has no } at its end ($${ is a plain ${)".to_owned())?;
        plain.push_str(before);
        match look_up(name, reading)? {
            TextPiece::Text(text) => plain.push_str(&text),
            file => pieces.extend([TextPiece::Text(std::mem::take(&mut plain)), file]),
        }
        rest = tail;
    }
    plain.push_str(rest);
    pieces.push(TextPiece::Text(plain));
    Ok(pieces)
}

/// Returns the text outside the references; `None` if there are none, or a broken one.
pub(super) fn outside(text: &str) -> Option<String> {
    let (mut plain, mut rest, mut found) = (String::new(), text, false);
    while let Some((before, after)) = rest.split_once("${") {
        plain.push_str(before);
        if before.ends_with('$') {
            plain.push_str("${");
            rest = after;
            continue;
        }
        (_, rest) = after.split_once('}')?;
        found = true;
    }
    plain.push_str(rest);
    found.then_some(plain)
}

fn look_up(reference: &str, reading: &ResolveContext<'_>) -> Result<TextPiece, String> {
    match reference.split_once(':') {
        None => reading.variable(reference).map(TextPiece::Text),
        Some(("env", name)) => reading.variable(name).map(TextPiece::Text),
        Some(("file", path)) => Ok(TextPiece::File(reading.path(path))),
        Some(_) => {
            Err("an unknown kind of reference (write ${env:NAME} or ${file:PATH}; $${ is a plain ${)"
                .to_owned())
        }
    }
}
