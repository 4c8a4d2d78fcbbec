//! References in texts: `${env:NAME}`, `${NAME}` and `${file:PATH}`; `$${` is a plain `${`.
//!
//! The form of a key tells if it accepts references. See also `auth::outbound`, which reloads files.

use std::borrow::Cow;
use std::fmt;
use std::path::{Path, PathBuf};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;

use super::forms::{Form, KeyForm};
use super::resolve::{self, ResolveContext};
use super::spanned::Location;

/// Largest file that a reference names, in bytes. Header values and keys are small.
const SECRET_FILE: usize = 64 << 10;

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

    /// Returns the text with every reference resolved; it may have several lines, and knows the
    /// files that it comes from.
    pub(super) fn expand(
        self,
        context: &mut ResolveContext<'_>,
        place: &Location,
    ) -> Option<ReloadableSecret> {
        match expand(&self.0, context).and_then(ReloadableSecret::read) {
            Ok(secret) => Some(secret),
            Err(problem) => context.report_conflict(place, problem),
        }
    }
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
        Some(("file", path)) => Ok(TextPiece::File(context.path(path))),
        Some(_) => {
            Err("an unknown kind of reference (write ${env:NAME} or ${file:PATH}; $${ is a plain ${)"
                .to_owned())
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
