//! Measures the language of the source: names of types, constants, parameters, and the prose of comments.
//!
//! The thresholds are of the whole tree; a name or a comment of its own is judged in review.

use std::collections::{BTreeMap, BTreeSet};

use super::source::{blank, tokens};

/// Everyday words that say nothing as the whole name of a constant.
const BARE_CONSTANTS: &[&str] = &[
    "MOST", "LONGEST", "LEAST", "ENOUGH", "SHORTLY", "LOOK", "PACE", "SOON", "ROOM", "AT_ONCE", "PATIENCE",
    "WAITS",
];
/// Subjects that name no component and no role.
const INDEFINITE: &[&str] = &[
    "somebody",
    "someone",
    "nobody",
    "whoever",
    "anybody",
    "anyone",
    "everybody",
    "everyone",
    "whose",
    "whom",
    "whatever",
    "wherever",
    "whichever",
];
/// Nested results, which say nothing of the two ways to end; a type with a name does.
const NESTED_RESULTS: &[&str] = &["Err(Ok(", "Err(Err(", "map_err(Ok)", "map_err(Err)"];

/// The figures of a tree of source files.
#[derive(Debug, Default)]
pub(super) struct Language {
    /// The files in which each name of a type is declared.
    types: BTreeMap<String, BTreeSet<String>>,
    pub(super) bare_constants: Vec<String>,
    pub(super) tuple_parameters: Vec<String>,
    pub(super) nested_results: usize,
    words: usize,
    indefinite: usize,
    headless: usize,
}

impl Language {
    /// Adds the file of this name.
    pub(super) fn add(&mut self, name: &str, text: &str) {
        self.add_prose(text);
        let product = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        let code = blank(product);
        let tokens = tokens(&code);
        for pair in tokens.windows(2) {
            let (keyword, named) = (pair[0].text, pair[1].text);
            let is_type = named.starts_with(char::is_uppercase);
            if is_type && matches!(keyword, "struct" | "enum" | "trait" | "type") {
                self.types.entry(named.to_owned()).or_default().insert(name.to_owned());
            }
            if keyword == "const" && BARE_CONSTANTS.contains(&named) {
                self.bare_constants.push(format!("{name}:{}: {named}", pair[1].line));
            }
        }
        for (function, parameters) in functions(&code) {
            if parameters.iter().any(|parameter| is_tuple(parameter)) {
                self.tuple_parameters.push(format!("{name}: {function}"));
            }
        }
        self.nested_results +=
            NESTED_RESULTS.iter().map(|nested| code.matches(nested).count()).sum::<usize>();
    }

    fn add_prose(&mut self, text: &str) {
        let mut block = String::new();
        for line in text.lines().chain([""]) {
            match line.trim_start().strip_prefix("//") {
                Some(comment) => {
                    block.push(' ');
                    block.push_str(comment.trim_start_matches(['/', '!']).trim());
                }
                None if block.is_empty() => {}
                None => {
                    self.words += block.split_whitespace().count();
                    let (indefinite, headless) = offences(&block);
                    self.indefinite += indefinite;
                    self.headless += headless;
                    block.clear();
                }
            }
        }
    }

    /// Percent of the names of types that are a single word.
    pub(super) fn one_word_types(&self) -> f64 {
        let is_one_word = |name: &&String| name.chars().filter(char::is_ascii_uppercase).count() == 1;
        percent(self.types.keys().filter(is_one_word).count(), self.types.len())
    }

    /// Percent of the names of types that are declared in three files or more.
    pub(super) fn repeated_types(&self) -> f64 {
        percent(self.types.values().filter(|files| files.len() > 2).count(), self.types.len())
    }

    /// Indefinite subjects per 1,000 words of comments.
    pub(super) fn indefinite_per_1000(&self) -> f64 {
        percent(self.indefinite, self.words) * 10.0
    }

    /// Clauses that begin with "who" or "what", per 1,000 words of comments.
    pub(super) fn headless_per_1000(&self) -> f64 {
        percent(self.headless, self.words) * 10.0
    }
}

fn percent(part: usize, whole: usize) -> f64 {
    let number = |count: usize| f64::from(u32::try_from(count).unwrap());
    100.0 * number(part) / number(whole.max(1))
}

/// Counts the indefinite subjects and the headless clauses of one comment.
pub(super) fn offences(comment: &str) -> (usize, usize) {
    let (mut indefinite, mut headless, mut rest) = (0, 0, comment);
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut is_first = true;
    while let Some(start) = rest.find(is_word) {
        let (between, after) = rest.split_at(start);
        let end = after.find(|c| !is_word(c)).unwrap_or(after.len());
        let word = after[..end].to_lowercase();
        let opens =
            is_first || (between.ends_with(' ') && between.trim_end().ends_with(['.', ':', ';', ',']));
        indefinite += usize::from(INDEFINITE.contains(&word.as_str()));
        headless += usize::from(opens && matches!(word.as_str(), "who" | "what"));
        (is_first, rest) = (false, &after[end..]);
    }
    (indefinite, headless)
}

/// The functions of a file, each with its parameters as written.
fn functions(code: &str) -> Vec<(&str, Vec<&str>)> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices("fn ") {
        if code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_') {
            continue;
        }
        let rest = &code[at + 3..];
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        let Some(open) = rest.find('(') else { continue };
        // The generics of a function may hold parentheses of their own; they end before its parameters.
        let open = if rest[end..].starts_with('<') { end + generics(&rest[end..]) } else { open };
        if end > 0 && rest[open..].starts_with('(') {
            found.push((&rest[..end], parameters(&rest[open + 1..])));
        }
    }
    found
}

/// The length of `<…>` at the start of a text.
fn generics(text: &str) -> usize {
    let mut depth = 0_usize;
    for (at, c) in text.char_indices() {
        match c {
            '<' => depth += 1,
            '>' if !text[..at].ends_with('-') => {
                depth -= 1;
                if depth == 0 {
                    return at + 1;
                }
            }
            _ => {}
        }
    }
    text.len()
}

/// The parts between the commas of a list, up to the parenthesis that closes it.
fn parameters(text: &str) -> Vec<&str> {
    let (mut depth, mut start, mut found) = (0_usize, 0, Vec::new());
    for (at, c) in text.char_indices() {
        match c {
            '(' | '[' | '{' | '<' => depth += 1,
            ')' if depth == 0 => {
                found.push(text[start..at].trim());
                return found;
            }
            '>' if text[..at].ends_with(['-', '=']) => {}
            ')' | ']' | '}' | '>' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                found.push(text[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    found
}

/// Whether a parameter is a tuple of two or more, by its pattern or by its type.
fn is_tuple(parameter: &str) -> bool {
    let typed = parameter.split_once(": ").map_or("", |(_, typed)| typed);
    let of_two = |text: &str| text.strip_prefix('(').is_some_and(|inner| parameters(inner).len() > 1);
    of_two(parameter) || of_two(typed.trim_start_matches('&'))
}

#[test]
fn each_figure_is_counted() {
    let mut language = Language::default();
    language.add(
        "a.rs",
        "//! What is it. Who: nobody, what else.\n\nconst MOST: u8 = 1;\nstruct Place;\nstruct CallPlace;",
    );
    language.add(
        "b.rs",
        "fn f(a: u8, (b, c): (u8, u8)) {}\nfn g<F: Fn(u8, u8)>(f: F, v: Vec<(u8, u8)>) {}\nstruct Place;",
    );
    language.add("c.rs", "fn h(pair: (u8, &str)) -> (u8, u8) { Err(Ok(1)) }\nenum Place { A }\n#[cfg(test)]\nmod tests { const LOOK: u8 = 1; }");
    assert_eq!(language.bare_constants, ["a.rs:3: MOST"]);
    assert_eq!(language.tuple_parameters, ["b.rs: f", "c.rs: h"]);
    assert_eq!(
        (language.nested_results, language.words, language.indefinite, language.headless),
        (1, 7, 1, 3)
    );
    assert!((language.one_word_types() - 50.0).abs() < 0.1 && (language.repeated_types() - 50.0).abs() < 0.1);
}
