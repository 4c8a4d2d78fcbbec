//! How deeply a JSON text from an agent may be nested.
//!
//! Raw leaves (`data`, `metadata`) are copied without being looked into, so the parser's own recursion limit does not
//! see them; this one does. Not here: whether the text is JSON at all.

use memchr::{memchr2, memchr2_iter};

/// Deepest nesting that is read, in objects and arrays around one value. The same as the parser's own limit.
pub const MAX_DEPTH: usize = 128;

/// Whether no value of `json` lies within more than `limit` objects and arrays. One linear scan, no recursion.
pub fn depth_within(json: &[u8], limit: usize) -> bool {
    // Few brackets, wherever they are, cannot nest deeply: nearly every answer ends here.
    memchr2_iter(b'{', b'[', json).nth(limit).is_none() || scan(json, limit)
}

fn scan(json: &[u8], limit: usize) -> bool {
    let mut depth = 0_usize;
    let mut rest = json;
    while let Some((byte, tail)) = rest.split_first() {
        rest = tail;
        match byte {
            b'"' => rest = after_string(tail),
            b'{' | b'[' if depth == limit => return false,
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    true
}

/// What follows the string whose opening quote lies just before `text`.
fn after_string(text: &[u8]) -> &[u8] {
    let mut rest = text;
    while let Some(at) = memchr2(b'"', b'\\', rest) {
        let escaped = rest.get(at) == Some(&b'\\');
        rest = rest.get(at + 1 + usize::from(escaped)..).unwrap_or_default();
        if !escaped {
            return rest;
        }
    }
    &[]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depth_counts_brackets_outside_strings_only() {
        let brackets = format!(r#"{{"a":"{}","b":"\"{}"}}"#, "[".repeat(300), "{".repeat(300));
        for (json, within) in [
            (String::new(), true),
            ("[".repeat(128), true),
            ("[".repeat(129), false),
            ("{\"a\":".repeat(100_000), false),
            ("[[],".repeat(129), false),
            (format!("[{}]", "[],".repeat(1000)), true),
            (brackets, true),
            (format!("{}\"", "[".repeat(127)), true),
        ] {
            assert_eq!(depth_within(json.as_bytes(), 128), within, "{}", json.len());
        }
    }
}
