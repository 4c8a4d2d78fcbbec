//! References in texts: `${env:NAME}`, `${NAME}` and `${file:PATH}`; `$${` is a plain `${`.
//!
//! Keys of secrets ([`Template`]) accept all three, and follow their files. In every other value
//! the reader replaces `${env:NAME}` and `${file:PATH}` before its form is read ([`References`]).
//! See also `auth::outbound`, which reloads files.

use std::borrow::Cow;
use std::cell::RefCell;
use std::fmt;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use super::forms::{Form, KeyForm};
use super::resolve::{self, Problem, ResolveContext};
use super::yaml::{Location, TEMPLATE, TemplateVisitor};

/// Largest file that a reference names, in bytes. Header values and keys are small.
const SECRET_FILE: usize = 64 << 10;
/// Shortest text of a reference that is hidden in problems of other keys, in bytes.
const SHORTEST_HIDDEN: usize = 4;

/// A text that is never printed: `Debug` and `Display` write `***`, and there is no way to serialize it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps a text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Returns the text itself, for the one place that needs it. Never log it, never put it into an
    /// error.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("***")
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("***")
    }
}

/// A secret, and the files to read it from again. Printed as `***`.
#[derive(Clone, PartialEq, Eq)]
pub struct ReloadableSecret {
    text: Secret,
    /// Empty if no file is part of the text.
    pieces: Vec<TextPiece>,
}

/// A part of a text with references.
#[derive(Clone, PartialEq, Eq)]
enum TextPiece {
    /// Fixed text: literal, or from the environment.
    Text(String),
    /// The text of this file, without one newline at its end.
    File(PathBuf),
}

impl ReloadableSecret {
    /// Returns a secret that never changes.
    pub fn fixed(text: impl Into<String>) -> Self {
        Self { text: Secret::new(text), pieces: Vec::new() }
    }

    /// Reads the files of a text for the first time.
    fn read(pieces: Vec<TextPiece>) -> Result<Self, String> {
        let text = join_pieces(&pieces)?;
        let is_live = pieces.iter().any(|piece| matches!(piece, TextPiece::File(_)));
        Ok(Self { text: Secret::new(text), pieces: if is_live { pieces } else { Vec::new() } })
    }

    /// Returns the text as it was read. Never log it, never put it into an error.
    pub fn expose(&self) -> &str {
        self.text.expose()
    }

    /// Returns the secret as it was read; it does not change with the files.
    pub fn secret(&self) -> &Secret {
        &self.text
    }

    /// Returns the files that the secret comes from.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        self.pieces.iter().filter_map(|piece| match piece {
            TextPiece::File(path) => Some(path.as_path()),
            TextPiece::Text(_) => None,
        })
    }

    /// Reads the files again and returns the secret of now. Blocks.
    ///
    /// # Errors
    ///
    /// The defect of a file that cannot be read, is empty or has several lines; never quotes it.
    pub fn read_again(&self) -> Result<Self, String> {
        if self.pieces.is_empty() {
            return Ok(self.clone());
        }
        let text = join_pieces(&self.pieces)?;
        if !is_one_line(&text) {
            return Err("a file has a line break or a NUL in it".to_owned());
        }
        Ok(Self { text: Secret::new(text), pieces: self.pieces.clone() })
    }
}

impl fmt::Debug for ReloadableSecret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("***")
    }
}

/// Returns true if a text can be a header or a member of a form.
fn is_one_line(text: &str) -> bool {
    !text.contains(['\r', '\n', '\0'])
}

fn join_pieces(pieces: &[TextPiece]) -> Result<String, String> {
    let mut text = String::new();
    for piece in pieces {
        match piece {
            TextPiece::Text(piece) => text.push_str(piece),
            TextPiece::File(path) => text.push_str(&file(path)?),
        }
    }
    Ok(text)
}

/// Returns the text of a file without one newline at its end.
fn file(path: &Path) -> Result<String, String> {
    let bytes = resolve::read(path, SECRET_FILE)
        .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    let mut text = String::from_utf8(bytes).map_err(|_| format!("{} is not UTF-8", path.display()))?;
    if text.ends_with('\n') {
        text.pop();
        if text.ends_with('\r') {
            text.pop();
        }
    }
    if text.is_empty() { Err(format!("{} is empty", path.display())) } else { Ok(text) }
}

/// A text that may contain references.
#[derive(Clone)]
pub(super) struct Template(String);

impl<'de> Deserialize<'de> for Template {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_newtype_struct(TEMPLATE, TemplateVisitor(PhantomData)).map(Self)
    }
}

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

    /// Returns the text with every reference resolved; it may have several lines, and knows the
    /// files that it comes from.
    pub(super) fn expand(
        self,
        context: &mut ResolveContext<'_>,
        place: &Location,
    ) -> Option<ReloadableSecret> {
        if has_bare_reference(&self.0) {
            context.warn(place, BARE_REFERENCE);
        }
        match expand(&self.0, context).and_then(ReloadableSecret::read) {
            Ok(secret) => Some(secret),
            Err(problem) => context.report_conflict(place, problem),
        }
    }
}

/// The warning for a text that [`has_bare_reference`]. Does not quote it: it may be a secret.
const BARE_REFERENCE: &str = "has $ before a name without braces, which is plain text (write ${env:NAME} for a \
                              variable; take a text that is meant so from a variable or a file)";

/// Returns true if a text is `$name`, or has `$NAME` as one of its words, as shells write references.
fn has_bare_reference(text: &str) -> bool {
    let is_name = |name: &str| {
        name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
            && name.chars().all(|each| each.is_ascii_alphanumeric() || each == '_')
    };
    let is_loud = |name: &str| !name.contains(|each: char| each.is_ascii_lowercase());
    text.strip_prefix('$').is_some_and(is_name)
        || text.split_whitespace().any(|word| {
            word.strip_prefix('$').is_some_and(|name| name.len() > 1 && is_name(name) && is_loud(name))
        })
}

impl KeyForm for Template {
    fn describe() -> String {
        "text ●".to_owned()
    }
}

/// A secret of one line that follows its files.
impl Form<ReloadableSecret> for Template {
    fn resolve(self, place: &Location, context: &mut ResolveContext<'_>) -> Option<ReloadableSecret> {
        let secret = self.expand(context, place)?;
        if is_one_line(secret.expose()) {
            return Some(secret);
        }
        let problem = "has a line break or a NUL in it (only one newline at its end is removed)";
        context.report_conflict(place, problem)
    }
}

impl Form<Secret> for Template {
    fn resolve(self, place: &Location, context: &mut ResolveContext<'_>) -> Option<Secret> {
        Form::<ReloadableSecret>::resolve(self, place, context).map(|secret| secret.text)
    }
}

/// Returns a text of the command line with every reference resolved. Paths are relative to the
/// working directory.
///
/// # Errors
///
/// The reference that cannot be resolved, or the reason for which the text cannot be a header.
pub(crate) fn expand_argument(text: &str) -> Result<ReloadableSecret, String> {
    let environment = |name: &str| std::env::var_os(name);
    let context = ResolveContext::new(Path::new(""), &environment, Vec::new());
    let secret = expand(text, &context).and_then(ReloadableSecret::read)?;
    if is_one_line(secret.expose()) { Ok(secret) } else { Err("has a line break or a NUL in it".to_owned()) }
}

fn expand(text: &str, context: &ResolveContext<'_>) -> Result<Vec<TextPiece>, String> {
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
        match look_up(name, context)? {
            TextPiece::Text(text) => plain.push_str(&text),
            file => pieces.extend([TextPiece::Text(std::mem::take(&mut plain)), file]),
        }
        rest = tail;
    }
    plain.push_str(rest);
    pieces.push(TextPiece::Text(plain));
    Ok(pieces)
}

/// The references in values that are no secrets by their key.
pub(super) struct References<'a> {
    context: ResolveContext<'a>,
    /// The path of each key with references, and its text: no problem may quote that.
    texts: RefCell<Vec<ReferencedText>>,
}

struct ReferencedText {
    at: String,
    text: String,
}

impl<'a> References<'a> {
    pub(super) fn new(context: ResolveContext<'a>) -> Self {
        Self { context, texts: RefCell::new(Vec::new()) }
    }

    /// Returns a text with each `${env:NAME}` and `${file:PATH}` replaced; `None` if it has none.
    pub(super) fn replace(&self, text: &str, at: &str) -> Result<Option<String>, String> {
        let is_named = |after: &str| after.starts_with("env:") || after.starts_with("file:");
        if !text.contains("${env:") && !text.contains("${file:") {
            return Ok(None);
        }
        let (mut plain, mut rest, mut found) = (String::with_capacity(text.len()), text, false);
        while let Some((before, after)) = rest.split_once("${") {
            if !is_named(after) {
                plain.push_str(before);
                plain.push_str("${");
                rest = after;
                continue;
            }
            if let Some(escaped) = before.strip_suffix('$') {
                plain.push_str(escaped);
                plain.push_str("${");
                rest = after;
                continue;
            }
            let (name, tail) = after
                .split_once('}')
                .ok_or_else(|| "a reference has no } at its end ($${ is a plain ${)".to_owned())?;
            let value = join_pieces(&[look_up(name, &self.context)?])?;
            plain.push_str(before);
            plain.push_str(&value);
            found = true;
            let texts = &mut self.texts.borrow_mut();
            texts.push(ReferencedText { at: at.to_owned(), text: value });
            rest = tail;
        }
        plain.push_str(rest);
        if found {
            self.texts.borrow_mut().push(ReferencedText { at: at.to_owned(), text: plain.clone() });
        }
        Ok(Some(plain))
    }

    /// Removes the texts that references stood for from the problems.
    pub(super) fn hide(&self, problems: &mut [Problem]) {
        let mut texts = self.texts.borrow_mut();
        // The whole first, then its parts.
        texts.sort_by_key(|referenced| std::cmp::Reverse(referenced.text.len()));
        for problem in problems {
            for ReferencedText { at, text } in texts.iter() {
                let is_own = problem.at.starts_with(at.as_str());
                // A short text occurs in the words of other problems by chance.
                if (is_own || text.len() >= SHORTEST_HIDDEN) && problem.problem.contains(text.as_str()) {
                    problem.problem = problem.problem.replace(text.as_str(), "***");
                }
            }
        }
    }
}

/// Adapts a JSON Schema to references: each value that is no text of any form may be a text with a
/// reference instead, and the top-level keys `x-…` may hold anything.
pub(super) fn accept_in(schema: &mut Schema) {
    let Some(root) = schema.as_object_mut() else { return };
    accept_below(root);
    let definition = serde_json::json!({
        "description": "A text with a reference: `${env:NAME}` is an environment variable, `${file:PATH}` the text \
            of a file (without one newline at its end).",
        "type": "string",
        "pattern": r"\$\{(env|file):[^}]+\}",
    });
    if let Some(definitions) = root.get_mut("$defs").and_then(Value::as_object_mut) {
        definitions.insert("Reference".to_owned(), definition);
    }
    root.insert("patternProperties".to_owned(), serde_json::json!({ "^x-": true }));
}

fn accept_below(schema: &mut Map<String, Value>) {
    for (keyword, value) in schema.iter_mut() {
        match (keyword.as_str(), value) {
            ("properties" | "patternProperties" | "$defs", Value::Object(schemas)) => {
                schemas.values_mut().for_each(accept_at);
            }
            ("items" | "additionalProperties", schema) => accept_at(schema),
            ("anyOf" | "allOf" | "oneOf", Value::Array(schemas)) => {
                schemas.iter_mut().for_each(accept_at);
            }
            _ => {}
        }
    }
}

fn accept_at(schema: &mut Value) {
    let Value::Object(keywords) = schema else { return };
    accept_below(keywords);
    let is_text = |kind: &str| keywords.get("type").is_some_and(|found| found == kind);
    let is_bound = ["pattern", "enum", "format", "minLength"].iter().any(|key| keywords.contains_key(*key));
    if !(["integer", "number", "boolean"].into_iter().any(is_text) || is_text("string") && is_bound) {
        return;
    }
    let mut outer = Map::new();
    for annotation in ["description", "default", "examples", "title"] {
        if let Some(value) = keywords.remove(annotation) {
            outer.insert(annotation.to_owned(), value);
        }
    }
    let own = Value::Object(std::mem::take(keywords));
    outer.insert("anyOf".to_owned(), serde_json::json!([own, { "$ref": "#/$defs/Reference" }]));
    *keywords = outer;
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

fn look_up(reference: &str, context: &ResolveContext<'_>) -> Result<TextPiece, String> {
    match reference.split_once(':') {
        None => context.variable(reference).map(TextPiece::Text),
        Some(("env", name)) => context.variable(name).map(TextPiece::Text),
        Some(("file", path)) => {
            let path = context.path(path);
            context.note_file(&path);
            Ok(TextPiece::File(path))
        }
        Some(_) => {
            Err("an unknown kind of reference (write ${env:NAME} or ${file:PATH}; $${ is a plain ${)"
                .to_owned())
        }
    }
}

#[cfg(test)]
mod bare_reference_tests {
    use super::has_bare_reference;

    #[test]
    fn shell_references_are_found() {
        for text in ["$TOKEN", "$token", "$_t1", "Bearer $AGENT_TOKEN", "Basic  $A1 x"] {
            assert!(has_bare_reference(text), "{text}");
        }
        for text in [
            "${TOKEN}",
            "${env:TOKEN}",
            "pa$$word",
            "a$TOKEN",
            "$2b$10$abc",
            "$5",
            "$",
            "cost $x y",
            "$A-B",
            "",
        ] {
            assert!(!has_bare_reference(text), "{text}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_follows_its_file_and_shows_nothing_of_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        std::fs::write(&path, "canary-1\n").unwrap();
        let pieces = vec![TextPiece::Text("Bearer ".into()), TextPiece::File(path.clone())];
        let secret = ReloadableSecret::read(pieces).unwrap();
        assert_eq!(secret.expose(), "Bearer canary-1");
        std::fs::write(&path, "canary-2").unwrap();
        assert_eq!(secret.read_again().unwrap().expose(), "Bearer canary-2");
        for broken in ["", "\n", "canary\ncanary"] {
            std::fs::write(&path, broken).unwrap();
            let problem = secret.read_again().unwrap_err();
            assert!(!problem.contains("canary"), "{problem}");
        }
        assert_eq!(format!("{secret:?}"), "***");
        assert_eq!(secret.files().collect::<Vec<_>>(), [path.as_path()]);
    }
}
