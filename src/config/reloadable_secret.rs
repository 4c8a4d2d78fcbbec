//! A secret that may change while the gateway runs, because a file contains it.
//!
//! See also `auth::outbound`, which reloads files, and `reference` for the syntax of references.

use std::fmt;
use std::path::{Path, PathBuf};

use super::Secret;
use super::resolve;

/// Largest file that a reference names, in bytes. Header values and keys are small.
const SECRET_FILE: usize = 64 << 10;

/// A secret, and the files to read it from again. Printed as `***`.
#[derive(Clone, PartialEq, Eq)]
pub struct ReloadableSecret {
    text: Secret,
    /// Empty if no file is part of the text.
    pieces: Vec<TextPiece>,
}

/// A part of a text with references.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum TextPiece {
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
    pub(super) fn read(pieces: Vec<TextPiece>) -> Result<Self, String> {
        let text = join(&pieces)?;
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
        let text = join(&self.pieces)?;
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
pub(super) fn is_one_line(text: &str) -> bool {
    !text.contains(['\r', '\n', '\0'])
}

fn join(pieces: &[TextPiece]) -> Result<String, String> {
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
