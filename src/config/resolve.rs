//! Context in which sections become settings: the list of problems, the environment, and files that
//! the configuration names.

use std::ffi::OsString;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::problem::Problem;
use super::spanned::{Location, Spanned};
use super::units::ByteSize;

/// An environment variable that overrides the default of a key which the file leaves out. The file
/// wins: the variable of a written key is ignored, and an empty one counts as unset.
pub(super) struct EnvOverride {
    pub(super) key: String,
    pub(super) variable: &'static str,
    pub(super) unit: &'static str,
}

/// One pass over a configuration.
pub(super) struct ResolveContext<'a> {
    /// The folder of the configuration file: relative paths begin here.
    folder: &'a Path,
    environment: &'a dyn Fn(&str) -> Option<OsString>,
    problems: Vec<Problem>,
}

impl<'a> ResolveContext<'a> {
    pub(super) fn new(
        folder: &'a Path,
        environment: &'a dyn Fn(&str) -> Option<OsString>,
        problems: Vec<Problem>,
    ) -> Self {
        Self { folder, environment, problems }
    }

    /// Returns the context for another folder, with problems of its own.
    pub(super) fn inside<'b>(&self, folder: &'b Path) -> ResolveContext<'b>
    where
        'a: 'b,
    {
        ResolveContext { folder, environment: self.environment, problems: Vec::new() }
    }

    pub(super) fn into_problems(self) -> Vec<Problem> {
        self.problems
    }

    pub(super) fn problem(&mut self, place: &Location, problem: impl Into<String>) {
        let at = place.at.clone();
        self.problems.push(Problem { line: Some(place.line), at, problem: problem.into() });
    }

    pub(super) fn report(&mut self, problem: Problem) {
        self.problems.push(problem);
    }

    /// Reports a problem and returns `None`: for the error arm of a check.
    pub(super) fn report_conflict<T>(&mut self, place: &Location, problem: impl Into<String>) -> Option<T> {
        self.problem(place, problem);
        None
    }

    /// Returns the value of a required key.
    pub(super) fn required<T>(
        &mut self,
        written: Spanned<T>,
        section: &Location,
        key: &str,
        hint: &str,
    ) -> Option<(Location, T)> {
        if written.place().is_none() {
            self.problem(&section.child(key), format!("is missing ({hint})"));
        }
        written.take()
    }

    /// Returns a variable of the environment. An error names the variable, never its value.
    pub(super) fn variable(&self, name: &str) -> Result<String, String> {
        let head = name.bytes().next().is_some_and(|first| first.is_ascii_alphabetic() || first == b'_');
        if !head || !name.bytes().all(|each| each.is_ascii_alphanumeric() || each == b'_') {
            return Err(
                "a reference names no environment variable (write ${env:NAME}; $${ is a plain ${)".to_owned()
            );
        }
        let Some(value) = (self.environment)(name) else {
            return Err(format!("environment variable {name} is not set"));
        };
        let value = value.into_string().map_err(|_| format!("environment variable {name} is not UTF-8"))?;
        if value.is_empty() {
            return Err(format!("environment variable {name} is empty"));
        }
        Ok(value)
    }

    /// Returns a variable as it is; an empty one counts as unset.
    pub(super) fn env_var(&self, name: &str) -> Option<OsString> {
        (self.environment)(name).filter(|value| !value.is_empty())
    }

    /// Returns the text of the variable that overrides a default, if it is set.
    pub(super) fn override_text(&mut self, variable: &EnvOverride) -> Option<String> {
        match self.env_var(variable.variable)?.into_string() {
            Ok(text) => Some(text),
            Err(_) => {
                self.report_override(variable, "is not UTF-8");
                None
            }
        }
    }

    /// Reports a problem with an environment variable.
    pub(super) fn report_override(&mut self, variable: &EnvOverride, problem: &str) {
        let problem = format!("environment variable {}: {problem}", variable.variable);
        self.report(Problem { line: None, at: variable.key.clone(), problem });
    }

    /// Resolves a path relative to the folder of the configuration file.
    pub(super) fn path(&self, written: &str) -> PathBuf {
        self.folder.join(written)
    }

    /// Returns the text of a file that the configuration names.
    pub(super) fn file(&self, path: &Path, limit: usize) -> Result<String, String> {
        text(path, limit)
    }
}

/// Returns the text of a file that may not be larger than `limit` bytes. An error names the file.
pub(super) fn text(path: &Path, limit: usize) -> Result<String, String> {
    let bytes = read(path, limit).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    String::from_utf8(bytes).map_err(|_| format!("{} is not UTF-8", path.display()))
}

/// Reads a file that may not be larger than `limit` bytes.
pub(super) fn read(path: &Path, limit: usize) -> io::Result<Vec<u8>> {
    let file = std::fs::File::open(path)?;
    if file.metadata()?.is_dir() {
        return Err(io::Error::other("it is a folder"));
    }
    let mut bytes = Vec::new();
    file.take((limit as u64).saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() > limit {
        return Err(io::Error::other(format!("it is larger than {}", ByteSize(limit))));
    }
    Ok(bytes)
}
