//! Just enough of Rust's grammar to see what a file imports: words, paths and import trees.
//!
//! Out of scope: the allowed imports (see `main`).

/// The names that the file uses from the crate root, with lines: through `crate::` or enough
/// `super::`.
pub(super) fn imports(tokens: &[Token<'_>], file: &[String]) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut depth = 0;
    // Depths of braces at which an inline module was opened.
    let mut inline: Vec<usize> = Vec::new();
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        match token.text {
            "{" => {
                depth += 1;
                if at >= 2 && tokens[at - 2].text == "mod" {
                    inline.push(depth);
                }
            }
            "}" => {
                inline.pop_if(|opened| *opened == depth);
                depth = depth.saturating_sub(1);
            }
            "crate" | "super" if at == 0 || tokens[at - 1].text != "::" => {
                let level = file.len() + inline.len();
                at = follow(tokens, at, level, &mut found);
                continue;
            }
            _ => {}
        }
        at += 1;
    }
    found
}

/// Reads one path or import tree from `at`, standing `level` modules under the root; returns where
/// it ends.
fn follow(tokens: &[Token<'_>], at: usize, level: usize, found: &mut Vec<(usize, String)>) -> usize {
    let text = |at: usize| tokens.get(at).map_or("", |token| token.text);
    let level = match text(at) {
        "crate" => 0,
        "super" => level.saturating_sub(1),
        "{" => {
            let mut at = at + 1;
            while !matches!(text(at), "}" | "") {
                at = if text(at) == "," { at + 1 } else { follow(tokens, at, level, found) };
            }
            return at + 1;
        }
        name => {
            if level == 0 {
                found.push((tokens.get(at).map_or(0, |token| token.line), name.to_owned()));
            }
            // Below a name nothing leads back to the root.
            usize::MAX
        }
    };
    let is_leaf = text(at + 1) != "::";
    let ends_renamed = text(at + 1) == "as";
    match (is_leaf, ends_renamed) {
        (true, true) => at + 3,
        (true, false) => at + 1,
        (false, _) => follow(tokens, at + 2, level, found),
    }
}

/// A word or a sign, and the line it stands on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Token<'a> {
    pub(super) line: usize,
    pub(super) text: &'a str,
}

/// Words, `::`, and other characters one by one.
pub(super) fn tokens(code: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    for (number, text) in code.lines().enumerate() {
        let mut rest = text.trim_start();
        while let Some(first) = rest.chars().next() {
            let is_word = |c: char| c.is_alphanumeric() || c == '_';
            let length = match first {
                _ if is_word(first) => rest.find(|c| !is_word(c)).unwrap_or(rest.len()),
                ':' if rest.starts_with("::") => 2,
                _ => first.len_utf8(),
            };
            let (token, after) = rest.split_at(length);
            tokens.push(Token { line: number + 1, text: token });
            rest = after.trim_start();
        }
    }
    tokens
}

/// The code with comments, strings and character literals blanked; lines stay where they are.
pub(super) fn blank(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let length = match literal(rest) {
            0 => {
                let word = rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len());
                let plain = word.max(first.len_utf8());
                code.push_str(&rest[..plain]);
                plain
            }
            length => {
                code.extend(rest[..length].chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
                length
            }
        };
        rest = &rest[length..];
    }
    code
}

/// How many bytes of comment, string or character begin here; 0 if none does.
fn literal(rest: &str) -> usize {
    let until =
        |end: &str, from: usize| rest[from..].find(end).map_or(rest.len(), |at| from + at + end.len());
    if rest.starts_with("//") {
        return rest.find('\n').unwrap_or(rest.len());
    }
    if rest.starts_with("/*") {
        return until("*/", 2);
    }
    let bare = rest.trim_start_matches(['b', 'c']);
    let prefix = rest.len() - bare.len();
    let hashes = bare.strip_prefix('r').map_or(0, |raw| raw.len() - raw.trim_start_matches('#').len());
    if prefix <= 1 && bare.starts_with('r') && bare[1 + hashes..].starts_with('"') {
        return until(&format!("\"{}", "#".repeat(hashes)), prefix + 2 + hashes);
    }
    if prefix <= 1 && bare.starts_with('"') {
        return closed(rest, prefix + 1, '"');
    }
    // A character, not a lifetime: it is closed after one character or an escape.
    let mut inner = bare.chars().skip(1);
    match (bare.starts_with('\'') && prefix <= 1, inner.next(), inner.next()) {
        (true, Some('\\'), _) | (true, Some(_), Some('\'')) => closed(rest, prefix + 1, '\''),
        _ => 0,
    }
}

/// Where the quote is closed, minding escapes.
fn closed(rest: &str, from: usize, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in rest[from..].char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if c == quote => return from + at + 1,
            _ => {}
        }
    }
    rest.len()
}
