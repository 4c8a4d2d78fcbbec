//! One pass over a body before it is parsed: UTF-8, nesting, surrogates.
//!
//! serde_json skips raw values without a check of their depth or their escapes, so that a body
//! could carry both to the next parser. The JSON grammar is left to the parser.

/// The reason why a body must not be parsed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// The bytes are not UTF-8.
    #[error("not UTF-8 at byte {0}")]
    NotUtf8(usize),
    /// Arrays and objects nest deeper than the limit.
    #[error("nested deeper than {0} levels")]
    TooDeep(usize),
    /// A `\u` escape is half of a surrogate pair.
    #[error("lone surrogate in a string at byte {0}")]
    LoneSurrogate(usize),
}

/// Returns the body as text, if it is UTF-8, nests at most `max_depth` levels and has no lone
/// surrogates.
///
/// # Errors
///
/// [`Malformed`], with the position.
pub fn well_formed(body: &[u8], max_depth: usize) -> Result<&str, Malformed> {
    let text = std::str::from_utf8(body).map_err(|error| Malformed::NotUtf8(error.valid_up_to()))?;
    let mut depth = 0usize;
    let mut at = 0usize;
    while let Some(byte) = body.get(at) {
        at += 1;
        match byte {
            b'{' | b'[' => {
                depth += 1;
                if depth > max_depth {
                    return Err(Malformed::TooDeep(max_depth));
                }
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            b'"' => at = past_string(body, at)?,
            _ => {}
        }
    }
    Ok(text)
}

/// Returns the position after the string that begins at `at`.
pub(super) fn past_string(body: &[u8], mut at: usize) -> Result<usize, Malformed> {
    while let Some(rest) = body.get(at..) {
        let Some(found) = memchr::memchr2(b'"', b'\\', rest) else { break };
        at += found;
        if body.get(at) == Some(&b'"') {
            return Ok(at + 1);
        }
        at = past_escape(body, at)?;
    }
    Ok(body.len())
}

/// Returns the position after the escape with its backslash at `at`.
fn past_escape(body: &[u8], at: usize) -> Result<usize, Malformed> {
    match unit(body, at) {
        None => Ok(at + 2),
        Some(0xD800..=0xDBFF) if matches!(unit(body, at + 6), Some(0xDC00..=0xDFFF)) => Ok(at + 12),
        Some(0xD800..=0xDFFF) => Err(Malformed::LoneSurrogate(at)),
        Some(_) => Ok(at + 6),
    }
}

/// Returns the UTF-16 unit of the `\uXXXX` at `at`, if it is such an escape.
fn unit(body: &[u8], at: usize) -> Option<u16> {
    let digits = body.get(at..at + 6)?.strip_prefix(b"\\u")?;
    u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depth_is_counted_outside_strings_only() {
        assert!(well_formed(br#"{"a":["[[[[[["]}"#, 2).is_ok());
        assert_eq!(well_formed(b"[[[1]]]", 2), Err(Malformed::TooDeep(2)));
        assert!(well_formed("[".repeat(1000).as_bytes(), 64).is_err());
    }

    #[test]
    fn lone_surrogates_are_found_with_their_place() {
        for (text, bad) in [
            (r#""\ud83d\ude00""#, None),
            (r#""\ud800""#, Some(1)),
            (r#""a\udc00""#, Some(2)),
            (r#""\ud800\u0041""#, Some(1)),
            (r#""\\ud800""#, None),
            (r#""\"\ud800""#, Some(3)),
        ] {
            assert_eq!(well_formed(text.as_bytes(), 8).err(), bad.map(Malformed::LoneSurrogate), "{text}");
        }
    }

    #[test]
    fn bytes_that_are_not_utf8_are_refused() {
        assert_eq!(well_formed(b"\"\xff\"", 8), Err(Malformed::NotUtf8(1)));
    }
}
