//! Text of an agent that people or models will read: what is taken out of it, and where it is cut.
//!
//! Not here: the content that a task made, which passes untouched.

/// Returns `text` without characters that hide or steer (controls, bidirectional overrides, zero-width and tag
/// characters), with white space around it removed, cut to at most `max_bytes` bytes of UTF-8.
///
/// Line feeds and tabs stay; carriage returns and line separators become line feeds.
pub fn clean(text: &str, max_bytes: usize) -> String {
    let text = text.trim();
    if text.len() <= max_bytes && !text.chars().any(|c| hides(c) || ends_line(c)) {
        return text.to_owned();
    }
    let mut out = String::with_capacity(text.len().min(max_bytes));
    let mut after_return = false;
    for c in text.chars() {
        let pair = after_return && c == '\n';
        after_return = c == '\r';
        let c = if ends_line(c) { '\n' } else { c };
        if pair || hides(c) {
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

/// Like [`clean`], on one line: line ends and tabs become spaces.
pub(crate) fn clean_line(text: &str, max_bytes: usize) -> String {
    let mut out = clean(text, max_bytes);
    if out.contains(['\n', '\t']) {
        out = out.replace(['\n', '\t'], " ");
    }
    out
}

fn ends_line(c: char) -> bool {
    matches!(c, '\r' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

/// Characters that a reader does not see, or that change how others are seen.
fn hides(c: char) -> bool {
    if c.is_ascii() {
        return c.is_ascii_control() && !matches!(c, '\n' | '\t' | '\r');
    }
    matches!(c,
        '\u{80}'..='\u{84}' | '\u{86}'..='\u{9F}' // C1 controls but the line end among them
        | '\u{AD}' | '\u{34F}' | '\u{61C}' | '\u{180E}'
        | '\u{115F}' | '\u{1160}' | '\u{3164}' | '\u{FFA0}' // fillers: blank, yet letters
        | '\u{200B}'..='\u{200F}' | '\u{202A}'..='\u{202E}' | '\u{2060}'..='\u{206F}'
        | '\u{FEFF}' | '\u{FFF9}'..='\u{FFFB}'
        | '\u{1D173}'..='\u{1D17A}'
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
            ("a\r\nb\rc\u{2028}d", "a\nb\nc\nd"),
            ("tab\tstays", "tab\tstays"),
            ("nul\0 bell\x07 esc\x1b[31m", "nul bell esc[31m"),
            ("rtl\u{202E}evil\u{2066}", "rtlevil"),
            ("zero\u{200B}width\u{FEFF}", "zerowidth"),
            ("tag\u{E0041}\u{E0042}", "tag"),
            ("Grüße 天気 ☀️", "Grüße 天気 ☀️"),
        ] {
            assert_eq!(clean(given, 100), expected, "{given:?}");
        }
    }

    #[test]
    fn text_is_cut_between_characters() {
        assert_eq!(clean("äää", 5), "ää");
        assert_eq!(clean("abc def", 4), "abc");
        assert_eq!(clean("abc", 0), "");
        assert_eq!(clean_line("a\nb\tc", 10), "a b c");
    }
}
