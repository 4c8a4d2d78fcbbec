//! Patterns in rules: `*` stands for any text, everything else for itself.
//!
//! Takes time in proportion to pattern times text at worst, never more: both come from outside.

/// Returns true if a text matches a pattern, from its first to its last byte.
pub(crate) fn matches(pattern: &str, text: &str) -> bool {
    let Some((head, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(mut text) = text.strip_prefix(head) else { return false };
    let mut pieces = rest.split('*').peekable();
    while let Some(piece) = pieces.next() {
        if pieces.peek().is_none() {
            return text.ends_with(piece);
        }
        let Some((_, after)) = text.split_once(piece) else { return false };
        text = after;
    }
    true
}

/// Returns true if a text matches one of these patterns; all do if there are none.
pub(super) fn any_matches(patterns: Option<&[String]>, text: &str) -> bool {
    patterns.is_none_or(|patterns| patterns.iter().any(|pattern| matches(pattern, text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_is_any_text_and_nothing_else_is_special() {
        for (pattern, text, expected) in [
            ("a", "a", true),
            ("a", "ab", false),
            ("A", "a", false),
            ("*", "", true),
            ("*", "anything", true),
            ("a*", "a", true),
            ("a*", "ba", false),
            ("*a", "ba", true),
            ("*a", "ab", false),
            ("a*c", "abc", true),
            ("a*c", "ac", true),
            ("a*c", "acb", false),
            ("ab*ba", "aba", false),
            ("*b*", "abc", true),
            ("*b*d", "abcd", true),
            ("*b*b", "ab", false),
            ("a**b", "ab", true),
            ("a.c", "abc", false),
            ("a?c", "abc", false),
            ("spiffe://corp/*", "spiffe://corp.evil/x", false),
            ("spiffe://corp/*", "spiffe://corp/x/y", true),
        ] {
            assert_eq!(matches(pattern, text), expected, "{pattern} {text}");
        }
    }
}
