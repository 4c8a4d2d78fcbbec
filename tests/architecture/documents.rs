//! The documents: links lead to something, the README is short, and the prose keeps the language.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Component, Path, PathBuf};

use super::language::offences;

/// Lines of the README. The book has the rest.
const MAX_README_LINES: usize = 150;
/// Documents that quote the words which the others avoid, or hold the texts of the program.
const QUOTING: [&str; 2] = ["CONTRIBUTING.md", "docs/reference/errors.md"];

/// Every document of the repository by its path, from the root.
fn documents() -> BTreeMap<PathBuf, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = BTreeMap::new();
    let mut folders = vec![PathBuf::from("docs"), PathBuf::from("examples")];
    let mut add = |path: &Path| {
        if path.extension().is_some_and(|extension| extension == "md") {
            found.insert(path.to_owned(), fs::read_to_string(root.join(path)).unwrap());
        }
    };
    for entry in fs::read_dir(root).unwrap().map(Result::unwrap) {
        add(Path::new(&entry.file_name()));
    }
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root.join(&folder)).unwrap().map(Result::unwrap) {
            let path = folder.join(entry.file_name());
            if entry.path().is_dir() {
                folders.push(path);
            } else {
                add(&path);
            }
        }
    }
    found
}

/// The lines of a document without those of its code blocks.
fn prose(text: &str) -> String {
    let mut is_code = false;
    let outside = |line: &&str| {
        let fence = line.starts_with("```");
        is_code ^= fence;
        !is_code && !fence
    };
    text.lines().filter(outside).collect::<Vec<_>>().join("\n")
}

/// The anchors of the headings, as the book and code hosts make them.
fn anchors(text: &str) -> Vec<String> {
    let headings = text.lines().filter(|line| line.starts_with('#'));
    let slug = |heading: &str| {
        let kept = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
        let words = heading.trim_start_matches('#').trim().to_lowercase();
        words.chars().filter(kept).collect::<String>().replace(' ', "-")
    };
    headings.map(slug).collect()
}

/// The targets of the links of a text, `[words](target)`.
fn links(text: &str) -> Vec<&str> {
    let ends = text.match_indices("](").map(|(at, _)| &text[at + 2..]);
    ends.filter_map(|rest| rest.split([')', ' ', '\n']).next())
        .filter(|target| !target.contains('`'))
        .collect()
}

/// The path without `..`.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        if part == Component::ParentDir {
            plain.pop();
        } else {
            plain.push(part);
        }
    }
    plain
}

#[test]
fn links_of_documents_lead_somewhere() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let documents = documents();
    assert!(documents.len() > 30, "only {} documents were found", documents.len());
    let mut problems = String::new();
    for (path, text) in &documents {
        for target in links(&prose(text)).into_iter().filter(|target| !target.contains("://")) {
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            let leads_to =
                if file.is_empty() { path.clone() } else { plain(&path.parent().unwrap().join(file)) };
            let has_anchor = |text: &String| anchors(&prose(text)).iter().any(|known| known == anchor);
            let is_good = match documents.get(&leads_to) {
                Some(text) => anchor.is_empty() || has_anchor(text),
                None => anchor.is_empty() && root.join(&leads_to).exists(),
            };
            if !is_good {
                writeln!(problems, "{}: {target}", path.display()).unwrap();
            }
        }
    }
    assert!(problems.is_empty(), "links to nothing:\n{problems}");
}

/// A row of the glossary names a type that exists, and a module that does.
#[test]
fn names_of_glossary_are_in_source() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let files = super::rust_files(&root.join("src"));
    let source: String = files.iter().map(|file| fs::read_to_string(file).unwrap()).collect();
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let known: BTreeSet<&str> = source.split(|c| !is_word(c)).collect();
    let modules: BTreeSet<&str> = files
        .iter()
        .flat_map(|file| file.iter())
        .filter_map(|part| Path::new(part).file_stem()?.to_str())
        .collect();
    let documents = documents();
    let terms = documents[Path::new("docs/contributing/glossary.md")].split_once("## Terms").unwrap().1;
    let rows = terms.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| Term "));
    let cells: Vec<&str> = rows.filter_map(|row| row.split('|').nth(3)).collect();
    let names = cells.iter().flat_map(|cell| cell.split('`').skip(1).step_by(2));
    let types = names
        .flat_map(|name| name.split(|c| !is_word(c)))
        .filter(|name| name.starts_with(char::is_uppercase) && !known.contains(name));
    let homes =
        cells.iter().flat_map(|cell| cell.split("(`").skip(1)).filter_map(|rest| rest.split("`)").next());
    let missing: Vec<&str> =
        types.chain(homes.flat_map(|home| home.split("::")).filter(|part| !modules.contains(part))).collect();
    assert!(missing.is_empty(), "the source has none of {missing:?}");
}

/// Words with a dot that begin like a key and are none: metadata of A2A messages, and a member of manifests.
const NO_KEYS: [&str; 5] =
    ["mcp.resourceUri", "mcp.requestedSchema", "mcp.inputKey", "mcp.inputRequests", "tasks.get"];

/// Keys of the configuration and metrics that a page names are those of the generated reference.
#[test]
fn named_keys_and_metrics_exist() {
    let documents = documents();
    let reference = |name: &str| &documents[Path::new("docs/reference").join(name).as_path()];
    let quoted = |text: &str| -> Vec<String> {
        prose(text).split('`').skip(1).step_by(2).map(str::to_owned).collect()
    };
    let rows =
        reference("configuration.md").lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    let (mut keys, mut at_top) = (BTreeSet::new(), BTreeSet::new());
    for key in rows.map(|key| key.replace("[]", "")) {
        // A section is named by its path, and keys of an agent may be named without theirs.
        let ends = key.match_indices('.').map(|(at, _)| at).chain([key.len()]);
        let sections: Vec<String> = ends.map(|end| key.chars().take(end).collect()).collect();
        keys.extend(sections.iter().filter_map(|name| name.strip_prefix("agents.NAME.")).map(str::to_owned));
        at_top.extend(sections.first().cloned());
        keys.extend(sections);
    }
    let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.');
    let mut problems = String::new();
    for (path, text) in &documents {
        // The digests and the changelog name keys of others, and old ones.
        if path.starts_with("docs/spec") || path == Path::new("CHANGELOG.md") {
            continue;
        }
        for name in quoted(text) {
            let key = name.split(':').next().unwrap_or_default().replace("[]", "");
            let begins_like_key = key.split_once('.').is_some_and(|(first, _)| at_top.contains(first));
            let is_key = keys.contains(&key) || NO_KEYS.contains(&key.as_str());
            let metric = name.split('{').next().unwrap_or_default();
            let is_metric = reference("metrics.md").contains(&format!("| `{metric}` |"));
            let unknown_metric = name.starts_with("mcp_a2a_gateway_") && !is_metric;
            if (begins_like_key && key.chars().all(is_word) && !is_key) || unknown_metric {
                writeln!(problems, "{}: {name}", path.display()).unwrap();
            }
        }
    }
    assert!(problems.is_empty(), "neither keys nor metrics of the reference:\n{problems}");
}

#[test]
fn readme_is_short() {
    let lines = documents()[Path::new("README.md")].lines().count();
    assert!(lines <= MAX_README_LINES, "{lines} lines are more than {MAX_README_LINES}");
}

#[test]
fn documents_keep_the_language() {
    let mut problems = String::new();
    let documents = documents();
    let quotes =
        |path: &Path| path.starts_with("docs/spec") || QUOTING.iter().any(|other| path == Path::new(other));
    for (path, text) in documents.iter().filter(|(path, _)| !quotes(path)) {
        let prose = prose(text);
        for paragraph in prose.split("\n\n") {
            let (indefinite, headless) = offences(paragraph);
            if indefinite + headless > 0 {
                let begin: String = paragraph.trim().chars().take(60).collect();
                writeln!(
                    problems,
                    "{}: {begin} …: {indefinite} indefinite subjects (nobody, whoever …), {headless} clauses that begin with who or what",
                    path.display()
                )
                .unwrap();
            }
        }
    }
    assert!(problems.is_empty(), "{problems}");
}
