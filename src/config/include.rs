//! `include`: the files of one configuration, joined to one tree; and the keys of the tree as they were written, each
//! with a digest, so that two configurations can be compared without their values.
//!
//! The lines of all files are counted on, as if the files stood one below the other: [`LineMap`]
//! finds the file of a line. Keys join at every depth: lists are appended in the order of the files,
//! sections get the keys of both, and another key that two files have is a problem. An entry of
//! `agents`, `prompts` or `sources` is in one file as a whole. An included file includes no others.
//!
//! Digests that leave the process are keyed and short: enough to tell a change, too few bits to
//! find the text, not even one of a list of likely ones.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use data_encoding::HEXLOWER;
use sha2::{Digest as _, Sha256};

use super::resolve::{self, Problem, ResolveContext};
use super::yaml::{self, Location, YamlKey, YamlNode, YamlValue, join};
use super::{CONFIG_EXTENSIONS, matches_pattern, text_of};

/// The key of the list.
const INCLUDE: &str = "include";
/// Most files that a configuration includes.
const MAX_FILES: usize = 1000;
/// Most bytes of all these files.
const MAX_BYTES: usize = 16 << 20;
/// Most entries of a folder that a glob is compared with.
const MAX_ENTRIES: usize = 10_000;
/// Sections of which an entry is in one file as a whole.
const NAMED_SECTIONS: [&str; 3] = ["agents", "prompts", "sources"];

/// The files of a configuration by the lines of their joined text.
#[derive(Debug, Clone, Default)]
pub(super) struct LineMap {
    /// Further files, and the number of lines before each.
    files: Vec<MappedFile>,
}

#[derive(Debug, Clone)]
struct MappedFile {
    before: u64,
    path: PathBuf,
}

/// A line of a file; `None` is the file of the configuration itself.
pub(super) struct MappedLine {
    pub(super) file: Option<PathBuf>,
    pub(super) line: u64,
}

impl LineMap {
    /// Returns the file of a line of the joined text, and the line in it.
    pub(super) fn locate(&self, line: u64) -> MappedLine {
        match self.files.iter().rfind(|file| file.before < line) {
            Some(file) => MappedLine { file: Some(file.path.clone()), line: line - file.before },
            None => MappedLine { file: None, line },
        }
    }

    /// Returns a line of the joined text in words: with its file, unless it is in the file of
    /// `other`.
    pub(super) fn words(&self, line: u64, other: u64) -> String {
        let [found, other] = [line, other].map(|line| self.locate(line));
        match found.file {
            _ if found.file == other.file => format!("line {}", found.line),
            Some(file) => format!("line {} of {}", found.line, file.display()),
            None => format!("line {} of the including file", found.line),
        }
    }
}

/// A tree that is joined from several files.
pub(super) struct JoinedTree {
    root: YamlNode,
    map: LineMap,
    /// Lines of the joined text so far.
    lines: u64,
    bytes: usize,
    problems: Vec<Problem>,
}

impl JoinedTree {
    /// Begins with the tree of the configuration file.
    pub(super) fn new(root: YamlNode) -> Self {
        let lines = last_line(&root) + 1;
        Self { root, map: LineMap::default(), lines, bytes: 0, problems: Vec::new() }
    }

    /// Adds the files of `include`, of which the key is removed.
    pub(super) fn include(&mut self, main: &Path, context: &mut ResolveContext<'_>) {
        let Some((key, list)) = remove(&mut self.root, INCLUDE) else { return };
        let place = Location { line: key.line, at: INCLUDE.to_owned() };
        let YamlValue::List(globs) = list.value else {
            return context.problem(&place, "expected a list of files (begin each with `- `)");
        };
        let main = main.canonicalize().ok();
        let mut known = BTreeSet::new();
        for (index, glob) in globs.iter().enumerate() {
            let place = Location { line: glob.line, at: format!("{INCLUDE}[{index}]") };
            let YamlValue::Text(glob) = &glob.value else {
                context.problem(&place, "expected a text (the path of a file, in which * is any text)");
                continue;
            };
            let files = match expand(glob, context) {
                Ok(files) => files,
                Err(problem) => {
                    context.problem(&place, problem);
                    continue;
                }
            };
            for file in files.into_iter().filter(|file| file.canonicalize().ok() != main) {
                if known.len() >= MAX_FILES {
                    return context.problem(&place, format!("there are more than {MAX_FILES} files"));
                }
                if known.insert(file.clone()) {
                    self.add_file(file, &place, context);
                }
            }
        }
    }

    /// Reads a file and joins its tree.
    fn add_file(&mut self, file: PathBuf, place: &Location, context: &mut ResolveContext<'_>) {
        context.note_file(&file);
        let text = match text_of(&file) {
            Ok(text) => text,
            Err(mut problem) => {
                problem.problem.push_str(&format!(" (include on line {})", place.line));
                return self.problems.push(Problem { file: Some(file), ..problem });
            }
        };
        self.bytes += text.len();
        if self.bytes > MAX_BYTES {
            return context
                .problem(place, format!("the files have more than {} MiB in all", MAX_BYTES >> 20));
        }
        if !text.trim().is_empty() {
            self.add_text(file, &text);
        }
    }

    /// Joins the text of a file.
    pub(super) fn add_text(&mut self, file: PathBuf, text: &str) {
        let mut problems = Vec::new();
        let parsed = yaml::parse(text, &mut problems);
        let node = parsed.map_err(|problem| problems.push(problem)).ok();
        let of_file = problems.into_iter().map(|problem| Problem { file: Some(file.clone()), ..problem });
        self.problems.extend(of_file);
        if let Some(node) = node {
            self.add_node(file, super::without_extensions(node));
        }
    }

    /// Joins the tree of a file.
    pub(super) fn add_node(&mut self, file: PathBuf, mut node: YamlNode) {
        let before = self.lines;
        self.lines += last_line(&node) + 1;
        self.map.files.push(MappedFile { before, path: file });
        shift(&mut node, before);
        if let Some((key, _)) = remove(&mut node, INCLUDE) {
            self.report(
                key.line,
                INCLUDE,
                "an included file cannot include others (write it in the including file)",
            );
        }
        let mut root = std::mem::replace(&mut self.root, YamlNode { line: 1, value: YamlValue::Null });
        self.join(&mut root, node, "");
        self.root = root;
    }

    /// Returns the text at the path of a key, if there is one.
    pub(super) fn text_at(&self, path: &str) -> Option<String> {
        let mut node = &self.root;
        for name in path.split('.') {
            let YamlValue::Section(entries) = &node.value else { return None };
            node = &entries.iter().find(|(key, _)| key.name == name)?.1;
        }
        match &node.value {
            YamlValue::Text(text) => Some(text.clone()),
            _ => None,
        }
    }

    /// Joins the keys of a section with those of another.
    fn join(&mut self, to: &mut YamlNode, from: YamlNode, at: &str) {
        let line = from.line;
        match (&mut to.value, from.value) {
            (_, YamlValue::Null) => {}
            (null @ YamlValue::Null, value) => *null = value,
            (YamlValue::List(items), YamlValue::List(more)) => items.extend(more),
            (YamlValue::Section(entries), YamlValue::Section(more)) => {
                for (key, value) in more {
                    let below = yaml::join(at, &key.name);
                    match entries.iter_mut().find(|(known, _)| known.name == key.name) {
                        None => entries.push((key, value)),
                        Some((known, present)) if is_joined(at, present, &value) => {
                            known.line = known.line.min(key.line);
                            self.join(present, value, &below);
                        }
                        Some((known, _)) => {
                            let first = self.map.words(known.line, key.line);
                            self.report(key.line, &below, format!("is written twice (first on {first})"));
                        }
                    }
                }
            }
            _ => self.report(line, at, "expected a section (keys, each with a value)"),
        }
    }

    fn report(&mut self, line: u64, at: &str, problem: impl Into<String>) {
        let problem = problem.into();
        self.problems.push(Problem { file: None, line: Some(line), at: at.to_owned(), problem });
    }

    /// Returns the tree; its lines are found by the map.
    pub(super) fn finish(self, context: &mut ResolveContext<'_>) -> YamlNode {
        context.set_lines(self.map);
        self.problems.into_iter().for_each(|problem| context.report(problem));
        self.root
    }
}

/// Returns true if the values of a key below `at` are joined.
fn is_joined(at: &str, one: &YamlNode, other: &YamlNode) -> bool {
    let has_parts =
        |node: &YamlNode| matches!(node.value, YamlValue::Section(_) | YamlValue::List(_) | YamlValue::Null);
    !NAMED_SECTIONS.contains(&at) && has_parts(one) && has_parts(other)
}

/// Removes a key of a section.
pub(super) fn remove(node: &mut YamlNode, name: &str) -> Option<(YamlKey, YamlNode)> {
    let YamlValue::Section(entries) = &mut node.value else { return None };
    let at = entries.iter().position(|(key, _)| key.name == name)?;
    Some(entries.remove(at))
}

/// Returns the last line of a tree.
fn last_line(node: &YamlNode) -> u64 {
    let below = match &node.value {
        YamlValue::List(items) => items.iter().map(last_line).max(),
        YamlValue::Section(entries) => {
            entries.iter().map(|(key, value)| key.line.max(last_line(value))).max()
        }
        _ => None,
    };
    node.line.max(below.unwrap_or_default())
}

/// Adds the number of lines before its file to every line of a tree.
fn shift(node: &mut YamlNode, before: u64) {
    node.line += before;
    match &mut node.value {
        YamlValue::List(items) => items.iter_mut().for_each(|item| shift(item, before)),
        YamlValue::Section(entries) => {
            for (key, value) in entries {
                key.line += before;
                shift(value, before);
            }
        }
        _ => {}
    }
}

/// Returns the files that a glob fits, in the order of their names. The folders that it is compared
/// with are noted, since further files may come.
fn expand(glob: &str, context: &ResolveContext<'_>) -> Result<Vec<PathBuf>, String> {
    if glob.contains("**") {
        return Err("** is no glob here (write one * for each folder)".to_owned());
    }
    let (mut found, mut is_exact) = (vec![PathBuf::new()], true);
    for component in context.path(glob).components() {
        let pattern = match component {
            Component::Normal(name) => name.to_str().filter(|name| name.contains('*')),
            _ => None,
        };
        let Some(pattern) = pattern else {
            found.iter_mut().for_each(|path| path.push(component));
            continue;
        };
        let mut below = Vec::new();
        // A folder that is written out must be there.
        for folder in found.into_iter().filter(|path| is_exact || path.is_dir()) {
            // The folder of a configuration without one is the working directory.
            let read = if folder.as_os_str().is_empty() { Path::new(".") } else { &folder };
            context.note_file(read);
            below.extend(entries(read, pattern)?.into_iter().map(|name| folder.join(name)));
            if below.len() > MAX_FILES {
                return Err(format!("fits more than {MAX_FILES} files"));
            }
        }
        (found, is_exact) = (below, false);
    }
    if !glob.contains('*') {
        return Ok(found);
    }
    found.retain(|path| path.is_file());
    let is_config = |path: &PathBuf| {
        let extension = path.extension().map(|extension| extension.to_string_lossy().to_lowercase());
        extension.is_some_and(|extension| CONFIG_EXTENSIONS.contains(&extension.as_str()))
    };
    match found.iter().find(|path| !is_config(path)) {
        Some(other) => Err(format!("fits {}, which is not a .yaml, .yml or .json file", other.display())),
        None => Ok(found),
    }
}

/// Returns the names in a folder that a pattern fits, without hidden ones.
fn entries(folder: &Path, pattern: &str) -> Result<Vec<OsString>, String> {
    let unreadable = |error| format!("cannot read {}: {error}", folder.display());
    let mut found = Vec::new();
    for (number, entry) in std::fs::read_dir(folder).map_err(unreadable)?.enumerate() {
        if number >= MAX_ENTRIES {
            return Err(format!("{} holds more than {MAX_ENTRIES} files", folder.display()));
        }
        let entry = entry.map_err(unreadable)?;
        let name = entry.file_name();
        let name = name.to_str().filter(|name| !name.starts_with('.'));
        if name.is_some_and(|name| matches_pattern(pattern, name)) {
            found.push(entry.file_name());
        }
    }
    found.sort();
    Ok(found)
}

/// Largest file of which the content is compared, in bytes.
const MAX_FILE_BYTES: usize = 16 << 20;
/// Bytes of a digest that leaves the process. One change of 65,536 is missed.
const SHOWN_BYTES: usize = 2;

/// Keys of a configuration and files that it names, with digests of their values.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ConfigDocument(Arc<BTreeMap<String, [u8; 32]>>);

impl ConfigDocument {
    /// Takes the keys of a configuration with the references in them unresolved, and the content of
    /// the files that it names.
    pub(super) fn new(root: &YamlNode, folder: &Path, files: &[PathBuf]) -> Self {
        let mut digests = BTreeMap::new();
        add(root, "", &mut digests);
        for path in files {
            let name = path.strip_prefix(folder).unwrap_or(path).display();
            let content = resolve::read(path, MAX_FILE_BYTES).unwrap_or_default();
            digests.insert(format!("file {name}"), Sha256::digest(&content).into());
        }
        Self(Arc::new(digests))
    }

    /// Returns the digests under a key, by the paths of the keys and by the names of files.
    pub(crate) fn digests(&self, key: &[u8]) -> BTreeMap<String, String> {
        let keyed = |(path, digest): (&String, &[u8; 32])| {
            let mut hasher = Sha256::new();
            [key, path.as_bytes(), &[0], digest].into_iter().for_each(|part| hasher.update(part));
            let shown = hasher.finalize();
            (path.clone(), HEXLOWER.encode(shown.get(..SHOWN_BYTES).unwrap_or_default()))
        };
        self.0.iter().map(keyed).collect()
    }
}

fn add(node: &YamlNode, path: &str, digests: &mut BTreeMap<String, [u8; 32]>) {
    let text = match &node.value {
        YamlValue::Section(entries) if !entries.is_empty() => {
            return entries.iter().for_each(|(key, value)| add(value, &join(path, &key.name), digests));
        }
        YamlValue::List(items) if !items.is_empty() => {
            let items = items.iter().enumerate();
            return items.for_each(|(at, item)| add(item, &format!("{path}[{at}]"), digests));
        }
        YamlValue::Section(_) | YamlValue::List(_) | YamlValue::Null => String::new(),
        YamlValue::Bool(value) => value.to_string(),
        YamlValue::Whole(value) => value.to_string(),
        YamlValue::Negative(value) => value.to_string(),
        YamlValue::Float(value) => value.to_string(),
        YamlValue::Text(text) => text.clone(),
    };
    let kind = node.value.kind();
    digests.insert(path.to_owned(), Sha256::digest(format!("{kind}\0{text}")).into());
}

/// Differences between two configurations, by the paths of keys and the names of files.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct DocumentChanges {
    /// Only in the new one.
    pub(crate) added: Vec<String>,
    /// Only in the old one.
    pub(crate) removed: Vec<String>,
    /// In both, with other values.
    pub(crate) changed: Vec<String>,
}

impl DocumentChanges {
    /// Compares digests under the same key.
    pub(crate) fn between(old: &BTreeMap<String, String>, new: &BTreeMap<String, String>) -> Self {
        let only = |one: &BTreeMap<String, String>, other: &BTreeMap<String, String>| {
            one.keys().filter(|path| !other.contains_key(*path)).cloned().collect()
        };
        let is_other = |(path, digest): &(&String, &String)| old.get(*path).is_some_and(|old| old != *digest);
        Self {
            added: only(new, old),
            removed: only(old, new),
            changed: new.iter().filter(is_other).map(|(path, _)| path.clone()).collect(),
        }
    }

    /// Returns true if there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.added.is_empty() && self.removed.is_empty() && self.changed.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::yaml;

    fn document(text: &str) -> ConfigDocument {
        ConfigDocument::new(&yaml::parse(text, &mut Vec::new()).unwrap(), Path::new(""), &[])
    }

    #[test]
    fn changes_are_named_by_path() {
        let old = document("a: {b: 1, c: [x, {d: secret}], e: []}\ng: ${env:G}").digests(b"k");
        let new = document("a: {b: '1', c: [x, {d: other}, y], f: {}}\ng: ${env:G}").digests(b"k");
        let changes = DocumentChanges::between(&old, &new);
        assert_eq!(changes.added, ["a.c[2]", "a.f"]);
        assert_eq!(changes.removed, ["a.e"]);
        assert_eq!(changes.changed, ["a.b", "a.c[1].d"]);
        assert!(DocumentChanges::between(&new, &new).is_empty());
    }

    /// Equal values have other digests under another path and another key.
    #[test]
    fn digests_are_short_and_keyed() {
        let document = document("a: [secret, secret, secret, secret]");
        let (one, other) = (document.digests(b"1"), document.digests(b"2"));
        assert!(one.values().all(|digest| digest.len() == 2 * SHOWN_BYTES));
        assert!(one != other && one.values().collect::<std::collections::BTreeSet<_>>().len() > 1);
    }
}
