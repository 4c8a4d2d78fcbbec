//! Problems of a configuration, each with its line and path.
//!
//! A problem never quotes a value that could be a secret.

use std::fmt;
use std::path::{Path, PathBuf};

/// One problem of a configuration file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The line in the file, counted from 1; `None` when the problem is about the file as a whole, or in the environment.
    pub line: Option<u64>,
    /// The path of the key, for example `agents.weather.card`; empty when the problem is about the file as a whole.
    pub at: String,
    /// The defect, and in brackets the remedy.
    pub problem: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.at.is_empty() {
            write!(out, "{}: ", self.at)?;
        }
        out.write_str(&self.problem)
    }
}

/// All problems of a configuration file, in the order of its lines. Never empty.
///
/// Displays as one `FILE:LINE: path.to.key: problem (hint)` per line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problems {
    file: PathBuf,
    list: Vec<Problem>,
}

impl Problems {
    pub(super) fn new(file: &Path, mut list: Vec<Problem>) -> Self {
        list.sort_by_key(|problem| problem.line);
        list.dedup();
        Self { file: file.to_path_buf(), list }
    }

    /// Returns a problem with the file as a whole.
    pub(super) fn whole(file: &Path, problem: impl Into<String>) -> Self {
        Self::new(file, vec![Problem { line: None, at: String::new(), problem: problem.into() }])
    }

    /// Returns the problems, in the order of their lines.
    pub fn list(&self) -> &[Problem] {
        &self.list
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.list.iter().enumerate() {
            if index > 0 {
                out.write_str("\n")?;
            }
            write!(out, "{}:", self.file.display())?;
            if let Some(line) = problem.line {
                write!(out, "{line}:")?;
            }
            write!(out, " {problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}

/// Returns ` (did you mean X?)` when a known name is similar enough, otherwise an empty text.
pub(super) fn did_you_mean<'a>(written: &str, known: impl Iterator<Item = &'a str>) -> String {
    // Upper case, `-` and `_` do not count. A name is similar when at most a third of it differs.
    let plain = |text: &str| -> String {
        text.chars().take(64).filter(|each| !matches!(each, '-' | '_')).flat_map(char::to_lowercase).collect()
    };
    let most = (written.chars().count() / 3).max(1);
    let written = plain(written);
    known
        .map(|name| (strsim::levenshtein(&written, &plain(name)), name))
        .filter(|(distance, _)| *distance <= most)
        .min()
        .map(|(_, name)| format!(" (did you mean {name}?)"))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_are_suggested_and_far_ones_are_not() {
        for (written, expected) in [
            ("listener", " (did you mean listeners?)"),
            ("publicUrl", " (did you mean public_url?)"),
            ("seal-key", " (did you mean seal_key?)"),
            ("agnets", " (did you mean agents?)"),
            ("zebra", ""),
            ("", ""),
        ] {
            let known = ["listeners", "public_url", "seal_key", "agents"];
            assert_eq!(did_you_mean(written, known.into_iter()), expected, "{written}");
        }
    }
}
