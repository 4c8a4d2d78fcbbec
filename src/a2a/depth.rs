//! The nesting depth of a JSON text from an agent.
//!
//! Raw leaves (`data`, `metadata`) are copied without parsing, so that the parser's own recursion
//! limit does not apply to them; this limit does.

use memchr::{memchr2, memchr2_iter};

/// Maximum nesting of objects and arrays around one value. Equal to the parser's own limit.
pub const MAX_DEPTH: usize = 128;

/// Returns true if no value of `json` is within more than `limit` objects and arrays. One linear
/// scan, no recursion.
pub fn depth_within(json: &[u8], limit: usize) -> bool {
    // Few brackets, in any position, cannot nest deeply: nearly every response ends here.
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

/// Returns the text after the string with its opening quote just before `text`.
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
