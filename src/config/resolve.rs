//! Context in which sections become settings: the list of problems, the environment, and files that
//! the configuration names. Problems have a line and a path, and never quote a value that could be a
//! secret.

use std::cell::RefCell;
use std::ffi::OsString;
use std::fmt;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::agent_defaults::is_agent_default;
use super::forms::ByteSize;
use super::include::{LineMap, MappedLine};
use super::yaml::{Location, Spanned};

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
    /// The files that were read so far; shared by all contexts of one configuration.
    files: Rc<RefCell<Vec<PathBuf>>>,
    /// The files of the lines of the configuration.
    lines: LineMap,
    /// Values that are accepted and probably wrong.
    warnings: RefCell<Vec<Problem>>,
}

impl<'a> ResolveContext<'a> {
    pub(super) fn new(
        folder: &'a Path,
        environment: &'a dyn Fn(&str) -> Option<OsString>,
        problems: Vec<Problem>,
    ) -> Self {
        let lines = LineMap::default();
        Self { folder, environment, problems, files: Rc::default(), lines, warnings: RefCell::default() }
    }

    /// Returns the context for another folder, with problems of its own.
    pub(super) fn inside<'b>(&self, folder: &'b Path) -> ResolveContext<'b>
    where
        'a: 'b,
    {
        let (files, warnings) = (self.files.clone(), RefCell::default());
        let (environment, problems, lines) = (self.environment, Vec::new(), LineMap::default());
        ResolveContext { folder, environment, problems, files, lines, warnings }
    }

    /// Warns of a value that is accepted and probably wrong.
    pub(super) fn warn(&self, place: &Location, problem: impl Into<String>) {
        let MappedLine { file, line } = self.lines.locate(place.line);
        let warning = Problem { file, line: Some(line), at: place.at.clone(), problem: problem.into() };
        let mut warnings = self.warnings.borrow_mut();
        if !warnings.contains(&warning) {
            warnings.push(warning);
        }
    }

    /// Returns the warnings so far.
    pub(super) fn warnings(&self) -> Vec<Problem> {
        self.warnings.borrow().clone()
    }

    /// Adds a file to those that the configuration is read from.
    pub(super) fn note_file(&self, path: &Path) {
        let mut files = self.files.borrow_mut();
        if !files.iter().any(|known| known == path) {
            files.push(path.to_path_buf());
        }
    }

    /// Returns the files that were read so far.
    pub(super) fn files(&self) -> Vec<PathBuf> {
        self.files.borrow().clone()
    }

    pub(super) fn into_problems(self) -> Vec<Problem> {
        self.problems
    }

    pub(super) fn problem(&mut self, place: &Location, problem: impl Into<String>) {
        let at = place.at.clone();
        self.report(Problem { file: None, line: Some(place.line), at, problem: problem.into() });
    }

    /// Sets the files of the lines of the configuration.
    pub(super) fn set_lines(&mut self, lines: LineMap) {
        self.lines = lines;
    }

    /// Returns a line in words, for a problem on the line `other`.
    pub(super) fn line_words(&self, line: u64, other: u64) -> String {
        self.lines.words(line, other)
    }

    /// Returns the number of problems so far.
    pub(super) fn problem_count(&self) -> usize {
        self.problems.len()
    }

    /// Returns true if there is a problem at such a path.
    pub(super) fn has_problem(&self, is_meant: impl Fn(&str) -> bool) -> bool {
        self.problems.iter().any(|problem| is_meant(&problem.at))
    }

    /// Names the agent in the problems from the one at `first` on that are at a default of all
    /// agents.
    pub(super) fn name_agent(&mut self, first: usize, agent: &str) {
        for Problem { at, problem, .. } in self.problems.iter_mut().skip(first) {
            if is_agent_default(at) {
                problem.push_str(&format!(" (for agents.{agent})"));
            }
        }
    }

    /// Adds a problem. Its line is one of the joined text, unless it names a file.
    pub(super) fn report(&mut self, problem: Problem) {
        let found = problem.line.filter(|_| problem.file.is_none()).map(|line| self.lines.locate(line));
        self.problems.push(match found {
            Some(MappedLine { file, line }) => Problem { file, line: Some(line), ..problem },
            None => problem,
        });
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
        self.report(Problem { file: None, line: None, at: variable.key.clone(), problem });
    }

    /// Resolves a path relative to the folder of the configuration file.
    pub(super) fn path(&self, written: &str) -> PathBuf {
        self.folder.join(written)
    }

    /// Returns the text of a file that the configuration names.
    pub(super) fn file(&self, path: &Path, limit: usize) -> Result<String, String> {
        self.note_file(path);
        text(path, limit)
    }
}

/// Returns the text of a file that may not be larger than `limit` bytes. An error names the file.
pub(super) fn text(path: &Path, limit: usize) -> Result<String, String> {
    let bytes = read(path, limit).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    String::from_utf8(bytes).map_err(|_| format!("{} is not UTF-8", path.display()))
}

/// Reads a file that may not be larger than `limit` bytes.
pub(crate) fn read(path: &Path, limit: usize) -> io::Result<Vec<u8>> {
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

/// One problem of a configuration file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The included file that has it; `None` when it is in the configuration file.
    pub file: Option<PathBuf>,
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

/// All problems of a configuration, in the order of the lines of each file. Never empty.
///
/// Displays as one `FILE:LINE: path.to.key: problem (hint)` per line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problems {
    file: PathBuf,
    list: Vec<Problem>,
}

impl Problems {
    pub(super) fn new(file: &Path, mut list: Vec<Problem>) -> Self {
        list.sort_by(|one, other| (&one.file, one.line).cmp(&(&other.file, other.line)));
        list.dedup();
        Self { file: file.to_path_buf(), list }
    }

    /// Returns a problem with the file as a whole.
    pub(super) fn whole(file: &Path, problem: impl Into<String>) -> Self {
        Self::new(file, vec![Problem { file: None, line: None, at: String::new(), problem: problem.into() }])
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
            write!(out, "{}:", problem.file.as_ref().unwrap_or(&self.file).display())?;
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
