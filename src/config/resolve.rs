//! Context in which sections become settings: the list of problems, the environment, files that the
//! configuration names, and bounds for numbers.

use std::ffi::OsString;
use std::fmt::Display;
use std::io::{self, Read};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::problem::Problem;
use super::spanned::{Location, Spanned};
use super::units::{ByteSize, HumanDuration};

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

    /// Returns a duration within bounds.
    pub(super) fn wait(
        &mut self,
        written: Spanned<HumanDuration>,
        bounds: RangeInclusive<Duration>,
        default: Duration,
    ) -> Duration {
        let (least, most) = (HumanDuration(*bounds.start()), HumanDuration(*bounds.end()));
        self.within(written, |wait| bounds.contains(&wait.0), (least, most)).map_or(default, |wait| wait.0)
    }

    /// Returns a number of bytes within bounds.
    pub(super) fn size(
        &mut self,
        written: Spanned<ByteSize>,
        bounds: RangeInclusive<usize>,
        default: usize,
    ) -> usize {
        let (least, most) = (ByteSize(*bounds.start()), ByteSize(*bounds.end()));
        self.within(written, |size| bounds.contains(&size.0), (least, most)).map_or(default, |size| size.0)
    }

    /// Returns a count within bounds.
    pub(super) fn count(
        &mut self,
        written: Spanned<u64>,
        bounds: RangeInclusive<usize>,
        default: usize,
    ) -> usize {
        let fits = |count: &u64| usize::try_from(*count).is_ok_and(|count| bounds.contains(&count));
        let count = self.within(written, fits, (*bounds.start() as u64, *bounds.end() as u64));
        count.and_then(|count| usize::try_from(count).ok()).unwrap_or(default)
    }

    fn within<T: Display>(
        &mut self,
        written: Spanned<T>,
        fits: impl Fn(&T) -> bool,
        (least, most): (T, T),
    ) -> Option<T> {
        let (place, value) = written.take()?;
        if fits(&value) {
            return Some(value);
        }
        self.report_conflict(&place, format!("{value} is out of bounds (from {least} to {most})"))
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
