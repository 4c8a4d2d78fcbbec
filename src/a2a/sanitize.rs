//! Cleaning and truncation of agent text for people or models.
//!
//! The content of artifacts is not changed.

use std::borrow::Cow;
use std::str::Chars;

/// Returns `text` without characters that hide or steer (controls, escape sequences of terminals,
/// bidirectional overrides, zero-width and tag characters), with white space around it removed, cut
/// to at most `max_bytes` bytes of UTF-8.
///
/// Line feeds and tabs stay; carriage returns and line separators become line feeds.
pub fn clean(text: &str, max_bytes: usize) -> String {
    let text = text.trim();
    if text.len() <= max_bytes && !text.chars().any(|c| is_invisible(c) || ends_line(c)) {
        return text.to_owned();
    }
    let mut out = String::with_capacity(text.len().min(max_bytes));
    let mut after_return = false;
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        if matches!(c, '\u{1B}' | '\u{9B}') {
            skip_escape(c, &mut rest);
        }
        let pair = after_return && c == '\n';
        after_return = c == '\r';
        let c = if ends_line(c) { '\n' } else { c };
        // White space behind a character that is taken out is around the text too.
        if pair || is_invisible(c) || (out.is_empty() && c.is_whitespace()) {
            continue;
        }
        if out.len() + c.len_utf8() > max_bytes {
            break;
        }
        out.push(c);
    }
    out.truncate(out.trim_end().len());
    out
}

/// Cleans text like [`clean`], on one line: line ends and tabs become spaces.
pub(crate) fn clean_line(text: &str, max_bytes: usize) -> String {
    let mut out = clean(text, max_bytes);
    if out.contains(['\n', '\t']) {
        out = out.replace(['\n', '\t'], " ");
    }
    out
}

/// Returns the same JSON, with invisible characters written as escapes: its meaning stays the same.
pub(crate) fn visible_json(json: &str) -> Cow<'_, str> {
    let is_hidden = |c: char| is_invisible(c) || (ends_line(c) && !c.is_ascii());
    if !json.chars().any(is_hidden) {
        return Cow::Borrowed(json);
    }
    let mut out = String::with_capacity(json.len() + 64);
    let mut units = [0; 2];
    for c in json.chars() {
        if is_hidden(c) {
            c.encode_utf16(&mut units).iter().for_each(|unit| out.push_str(&format!("\\u{unit:04x}")));
        } else {
            out.push(c);
        }
    }
    Cow::Owned(out)
}

/// Skips the rest of an escape sequence, if it is one; otherwise nothing, so that no text is lost.
fn skip_escape(begin: char, rest: &mut Chars<'_>) {
    let mut ahead = rest.clone();
    let kind = if begin == '\u{9B}' { Some('[') } else { ahead.next() };
    match kind {
        // Colours and cursors: parameters, then one letter.
        Some('[') => {
            if let Some('@'..='~') = ahead.find(|c| !matches!(c, ' '..='?')) {
                *rest = ahead;
            }
        }
        // Titles, links and others: up to a terminator.
        Some(']' | 'P' | 'X' | '^' | '_') => {
            match ahead.find(|c| matches!(c, '\u{7}' | '\u{9C}' | '\u{1B}' | '\n')) {
                Some('\u{7}' | '\u{9C}') => *rest = ahead,
                Some('\u{1B}') if ahead.next() == Some('\\') => *rest = ahead,
                _ => {}
            }
        }
        _ => {}
    }
}

fn ends_line(c: char) -> bool {
    matches!(c, '\r' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

/// Returns true for characters that are invisible, or that change the display of others.
fn is_invisible(c: char) -> bool {
    if c.is_ascii() {
        return c.is_ascii_control() && !matches!(c, '\n' | '\t' | '\r');
    }
    matches!(c,
        '\u{80}'..='\u{84}' | '\u{86}'..='\u{9F}' // C1 controls but the line end among them
        | '\u{AD}' | '\u{34F}' | '\u{61C}' | '\u{17B4}' | '\u{17B5}' | '\u{180B}'..='\u{180F}'
        | '\u{115F}' | '\u{1160}' | '\u{3164}' | '\u{FFA0}' // fillers: blank, yet letters
        | '\u{200B}'..='\u{200F}' | '\u{202A}'..='\u{202E}' | '\u{2060}'..='\u{206F}'
        | '\u{FE00}'..='\u{FE0D}' // of the first variation selectors only those of emoji stay
        | '\u{FEFF}' | '\u{FFF0}'..='\u{FFFB}'
        | '\u{1BCA0}'..='\u{1BCA3}' | '\u{1D173}'..='\u{1D17A}'
        | '\u{E0000}'..='\u{E0FFF}' // tags and the variation selectors that can carry hidden text
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_that_hides_or_steers_is_taken_out() {
        for (given, expected) in [
            ("plain", "plain"),
            ("  around \n", "around"),
            ("\0 \u{200B}\n behind", "behind"),
            ("a\r\nb\rc\u{2028}d", "a\nb\nc\nd"),
            ("tab\tstays", "tab\tstays"),
            ("nul\0 bell\x07 esc\x1b[31m", "nul bell esc"),
            ("\x1b[1;31mred\x1b[0m \u{9B}2Jclear", "red clear"),
            ("a\x1b]0;title\x07b\x1b]8;;http://x\x1b\\c\x1bPq\u{9C}d", "abcd"),
            ("\x1b[31é no end", "[31é no end"),
            ("\x1b]no end\nnext\x1b", "]no end\nnext"),
            ("\x1bHello", "Hello"),
            ("data\u{FE01}\u{FE0A}\u{E0101}", "data"),
            ("rtl\u{202E}evil\u{2066}", "rtlevil"),
            ("zero\u{200B}width\u{FEFF}", "zerowidth"),
            ("tag\u{E0041}\u{E0042}", "tag"),
            ("Grüße 天気 ☀️", "Grüße 天気 ☀️"),
        ] {
            assert_eq!(clean(given, 100), expected, "{given:?}");
        }
    }

    #[test]
    fn hidden_characters_in_json_become_escapes_and_it_says_the_same() {
        let json = "{\"a\u{202E}\": \"x\u{E0041}\u{200B}\u{2028}\u{7F} ☀️ é\"}";
        let shown = visible_json(json);
        assert_eq!(shown, r#"{"a\u202e": "x\udb40\udc41\u200b\u2028\u007f ☀️ é"}"#);
        let [one, other]: [serde_json::Value; 2] =
            [json, &shown].map(|json| serde_json::from_str(json).unwrap());
        assert_eq!(one, other);
        let plain = "{\"a\":\r\n\t1}";
        assert!(matches!(visible_json(plain), Cow::Borrowed(_)));
    }

    #[test]
    fn text_is_cut_between_characters() {
        assert_eq!(clean("äää", 5), "ää");
        assert_eq!(clean("abc def", 4), "abc");
        assert_eq!(clean("abc", 0), "");
        assert_eq!(clean_line("a\nb\tc", 10), "a b c");
    }
}
