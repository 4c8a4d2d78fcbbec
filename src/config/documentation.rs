//! The key reference and the example with every key, both made from the declarations of the
//! sections.

use super::forms::{KeyForm, prose};
use super::section::KeyRow;
use super::settings::ConfigKeys;

/// Longest line of the example.
const LINE_CHARS: usize = 100;
/// Sections of the example that are commented out, since their presence has a meaning.
const OPTIONAL_SECTIONS: [&str; 22] = [
    "sources",
    "state",
    "tracing",
    "listeners[].tls",
    "admin",
    "admin.tls",
    "health",
    "agents.NAME.signature",
    "agents.NAME.auth",
    "agents.NAME.skills",
    "agents.NAME.health",
    "calls.clients",
    "cards.signature",
    "prompts",
    "resources.files",
    "resources.http",
    "resources.static",
    "resources.sparc",
    "auth",
    "resources.memory",
    "resources.batchtools",
    "rules",
];
/// Keys of the example that stand in it although another key could replace them.
const SHOWN_KEYS: [&str; 1] = ["agents.NAME.card"];
/// Names of the example, by the section that they are in.
const NAMES: [(&str, &str); 5] = [
    ("sources", "partners"),
    ("agents", "weather"),
    ("agents.NAME.skills", "forecast"),
    ("calls.clients", "our-host"),
    ("prompts", "review"),
];

const REFERENCE_HEAD: &str = "\
# Configuration keys

Generated from the source by `UPDATE=1 cargo test --test config`; not to be edited.

Durations are a whole number and `ms`, `s`, `m`, `h` or `d`. Sizes are a whole number, alone (bytes)
or with `KiB`, `MiB`, `GiB`, `KB`, `MB` or `GB`. Paths begin at the folder of the configuration file.
Every value accepts references: `${env:NAME}` is an environment variable, `${file:PATH}` the text of
a file, `$${env:` a plain `${env:`. Values marked ● are secrets: they follow their files without a
reload, `${NAME}` is an environment variable there too, and `$${` a plain `${`. A PEM value is a path,
or the PEM text itself. Top-level keys that begin with `x-` are ignored: they hold YAML anchors.

`[]` stands for the items of a list, `NAME` for names of the operator's choice.
";

const EXAMPLE_HEAD: &str = "\
# yaml-language-server: $schema=../schemas/config.schema.json
#
# Every key. Generated from the source by `UPDATE=1 cargo test --test config`; not to be edited.
#
# A key that begins a line has its default here, except for the listener and the agent. A key after
# `#` without a space has no default; its value is an example.
#
# Durations: 250ms, 30s, 5m, 2h, 30d. Sizes: 1024, 64KiB, 4MiB, 10MB. Paths begin at the folder of
# this file. In every value ${env:NAME} is an environment variable and ${file:PATH} the text of a
# file; where `●` stands, ${NAME} is an environment variable too. Between { and } YAML wants quotes
# around references.
";

/// Returns the reference of all keys, as Markdown.
pub fn key_reference() -> String {
    const TABLE: &str = "\n| Key | Value | Default | Meaning |\n|---|---|---|---|\n";
    let rows = rows();
    let mut text = REFERENCE_HEAD.to_owned();
    text += &format!("\n## Single keys\n{TABLE}");
    let is_top = |row: &KeyRow| !row.path.contains(['.', '[']);
    for row in rows.iter().filter(|row| is_top(row) && !row.is_section) {
        text += &reference_line(row);
    }
    for row in rows.iter().filter(|row| !is_top(row) || row.is_section) {
        if is_top(row) {
            text += &format!("\n## `{}`\n\n{}\n{TABLE}", row.path, prose(row.spec.doc));
        } else {
            text += &reference_line(row);
        }
    }
    text
}

fn reference_line(row: &KeyRow) -> String {
    let default = match (row.spec.default, row.spec.required) {
        (Some(default), _) => format!("`{}`", one_line(default).trim_matches('"')),
        (None, Some(_)) => "required".to_owned(),
        (None, None) => "–".to_owned(),
    };
    let mut meaning = prose(row.spec.doc);
    if let Some([variable, unit]) = row.spec.variable {
        meaning += &format!(" Environment variable in place of the default: `{variable}` ({unit}).");
    }
    let cells = [format!("`{}`", row.path), value(row), default, meaning];
    format!("| {} |\n", cells.map(|cell| cell.replace('|', "\\|").replace("\n\n", "<br>")).join(" | "))
}

/// Returns the form and the bounds of a key.
fn value(row: &KeyRow) -> String {
    match row.spec.bounds {
        Some([least, most]) => format!("{}, {least} to {most}", row.form),
        None => row.form.clone(),
    }
}

/// Returns a configuration with every key, its documentation and its default, as YAML.
pub fn example() -> String {
    let mut writer = ExampleWriter { text: EXAMPLE_HEAD.to_owned() };
    writer.write(&rows(), "", Margin::default());
    writer.text
}

/// Returns a literal of the source without its line breaks.
fn one_line(literal: &str) -> String {
    literal.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn rows() -> Vec<KeyRow> {
    let mut rows = Vec::new();
    ConfigKeys::add_rows("", &mut rows);
    rows
}

/// Returns true if a key stands in the example, outside sections that are commented out.
fn is_shown(row: &KeyRow) -> bool {
    row.spec.default.or(row.spec.required).is_some() || SHOWN_KEYS.contains(&&*row.path)
}

/// The beginning of a line of the example.
#[derive(Debug, Clone, Copy, Default)]
struct Margin {
    indent: usize,
    is_commented: bool,
}

struct ExampleWriter {
    text: String,
}

impl ExampleWriter {
    /// Writes the rows, all of which are directly or indirectly below `parent`.
    fn write(&mut self, rows: &[KeyRow], parent: &str, margin: Margin) {
        let mut rest = rows;
        while let Some((row, after)) = rest.split_first() {
            let is_below = |other: &KeyRow| {
                other.path.strip_prefix(row.path.as_str()).is_some_and(|tail| tail.starts_with(['.', '[']))
            };
            let end = after.iter().position(|other| !is_below(other)).unwrap_or(after.len());
            let (below, next) = after.split_at_checked(end).unwrap_or((after, &[]));
            if parent.is_empty() {
                self.text.push('\n');
            }
            self.write_comment(row, margin);
            if row.is_section {
                self.write_section(row, below, margin);
            } else {
                self.write_key(row, margin);
            }
            rest = next;
        }
    }

    fn write_section(&mut self, row: &KeyRow, below: &[KeyRow], margin: Margin) {
        // An empty section is not one.
        let is_optional = OPTIONAL_SECTIONS.contains(&&*row.path) || !below.iter().any(is_shown);
        let is_commented = margin.is_commented || is_optional;
        let mut margin = Margin { is_commented, ..margin };
        self.write_line(margin, &format!("{}:", row.spec.name()));
        margin.indent += 2;
        let first = below.first().map_or("", |first| first.path.as_str());
        let tail = first.strip_prefix(row.path.as_str()).unwrap_or_default();
        if tail.starts_with("[]") {
            self.write_line(margin, "-");
            margin.indent += 2;
        } else if tail.starts_with(".NAME.") {
            let name = NAMES.iter().find(|(section, _)| *section == row.path);
            self.write_line(margin, &format!("{}:", name.map_or("name", |(_, name)| name)));
            margin.indent += 2;
        }
        self.write(below, &row.path, margin);
    }

    fn write_key(&mut self, row: &KeyRow, margin: Margin) {
        let value = one_line(row.spec.default.or(row.spec.example).unwrap_or_default());
        let margin = Margin { is_commented: margin.is_commented || !is_shown(row), ..margin };
        self.write_line(margin, &format!("{}: {value}", row.spec.name()));
    }

    fn write_line(&mut self, margin: Margin, line: &str) {
        let mark = if margin.is_commented { "#" } else { "" };
        self.text += &format!("{:indent$}{mark}{line}\n", "", indent = margin.indent);
    }

    /// Writes the documentation of a key, its form and its bounds.
    fn write_comment(&mut self, row: &KeyRow, margin: Margin) {
        let mut text = prose(row.spec.doc);
        if !row.is_section {
            text += &format!(" ({})", value(row));
        }
        if let Some([variable, unit]) = row.spec.variable {
            text += &format!(" Environment variable in place of the default: {variable} ({unit}).");
        }
        let mut line = String::new();
        for word in text.split_whitespace() {
            let is_full = margin.indent + line.chars().count() + word.chars().count() + 3 > LINE_CHARS;
            if is_full && !line.is_empty() {
                self.text += &format!("{:indent$}#{line}\n", "", indent = margin.indent);
                line.clear();
            }
            line.push(' ');
            line += word;
        }
        self.text += &format!("{:indent$}#{line}\n", "", indent = margin.indent);
    }
}
