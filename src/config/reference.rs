//! References in texts: `${env:NAME}`, `${NAME}` and `${file:PATH}`; `$${` is a plain `${`.
//!
//! Not here: which keys accept them. Those say so in their own documentation.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;

use super::Secret;
use super::place::{Place, Written};
use super::reading::Reading;

/// The most that a file named by a reference may hold. Header values and keys are small.
const SECRET_FILE: usize = 64 << 10;

/// A text that may hold references.
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

    /// The text with every reference resolved. Whether it may have several lines depends on what it is for.
    pub(super) fn resolve(self, reading: &mut Reading<'_>, place: &Place) -> Option<Secret> {
        match expand(&self.0, reading) {
            Ok(text) => Some(Secret::new(text)),
            Err(problem) => reading.refuse(place, problem),
        }
    }
}

/// A secret of one line. Absent and wrong ones give nothing.
pub(super) fn one_line(written: Written<Template>, reading: &mut Reading<'_>) -> Option<(Place, Secret)> {
    let (place, template) = written.take()?;
    let secret = template.resolve(reading, &place)?;
    if secret.expose().contains(['\r', '\n', '\0']) {
        return reading
            .refuse(&place, "has a line break or a NUL in it (only one newline at its end is removed)");
    }
    Some((place, secret))
}

fn expand(text: &str, reading: &Reading<'_>) -> Result<String, String> {
    let mut expanded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        if let Some(plain) = before.strip_suffix('$') {
            expanded.push_str(plain);
            expanded.push_str("${");
            rest = after;
            continue;
        }
        let (name, tail) = after
            .split_once('}')
            .ok_or_else(|| "a reference has no } at its end ($${ is a plain ${)".to_owned())?;
        expanded.push_str(before);
        expanded.push_str(&look_up(name, reading)?);
        rest = tail;
    }
    expanded.push_str(rest);
    Ok(expanded)
}

/// What stands outside the references of a text; `None` if it has none, or a broken one.
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

fn look_up(reference: &str, reading: &Reading<'_>) -> Result<String, String> {
    match reference.split_once(':') {
        None => reading.variable(reference),
        Some(("env", name)) => reading.variable(name),
        Some(("file", path)) => {
            let path = reading.path(path);
            let mut text = reading.file(&path, SECRET_FILE)?;
            if text.ends_with('\n') {
                text.pop();
                if text.ends_with('\r') {
                    text.pop();
                }
            }
            if text.is_empty() { Err(format!("{} is empty", path.display())) } else { Ok(text) }
        }
        Some(_) => {
            Err("an unknown kind of reference (write ${env:NAME} or ${file:PATH}; $${ is a plain ${)"
                .to_owned())
        }
    }
}
