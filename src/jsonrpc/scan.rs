//! Two passes over the bytes of a body: the check before it is parsed (UTF-8, nesting, surrogates),
//! and the names of all members.
//!
//! serde_json skips raw values without a check of their depth or their escapes, so that a body
//! could carry both to the next parser. The JSON grammar is left to the parser. Names are for text
//! that a parser has read before, or will read: for any other text the result has no meaning, but
//! the scan never reads past the end.

use std::borrow::Cow;

use super::Text;

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

/// The way to continue after a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scan {
    /// Report the names within its value.
    Within,
    /// Skip its value.
    Beyond,
    /// Stop.
    NoMore,
}

/// Calls `tell` with the name of every member, in their order, at any depth.
pub fn each_name<'a>(json: &'a str, mut tell: impl FnMut(Text<'a>) -> Scan) {
    let bytes = json.as_bytes();
    let mut at = 0;
    while let Some(found) = bytes.get(at..).and_then(|rest| memchr::memchr(b'"', rest)) {
        let begin = at + found;
        let end = after_string(bytes, begin);
        at = past_space(bytes, end);
        if bytes.get(at) != Some(&b':') {
            continue;
        }
        at += 1;
        match json.get(begin..end).map(read) {
            Some(name) => match tell(name) {
                Scan::Within => {}
                Scan::Beyond => at = past_value(bytes, at),
                Scan::NoMore => return,
            },
            None => return,
        }
    }
}

/// Returns the characters of a string with its quotation marks; an invalid one is returned
/// unchanged.
fn read(quoted: &str) -> Text<'_> {
    let plain = quoted.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(quoted);
    if plain.contains('\\') {
        serde_json::from_str(quoted).unwrap_or(Text(Cow::Borrowed(plain)))
    } else {
        Text(Cow::Borrowed(plain))
    }
}

/// Returns the position after the string with its first quotation mark at `begin`.
fn after_string(bytes: &[u8], begin: usize) -> usize {
    past_string(bytes, begin + 1).unwrap_or(bytes.len()).min(bytes.len())
}

fn past_space(bytes: &[u8], at: usize) -> usize {
    let rest = bytes.get(at..).unwrap_or_default();
    at + rest.iter().take_while(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r')).count()
}

/// Returns the position after the value that begins at `at`, or before the next token.
fn past_value(bytes: &[u8], mut at: usize) -> usize {
    let mut depth = 0usize;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => at = after_string(bytes, at),
            b'{' | b'[' => (depth, at) = (depth + 1, at + 1),
            b'}' | b']' if depth > 1 => (depth, at) = (depth - 1, at + 1),
            b'}' | b']' => return at + depth,
            b',' if depth == 0 => return at,
            _ => at += 1,
        }
    }
    at
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Map, Value};

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

    fn names(json: &str, beyond: &str) -> Vec<String> {
        let mut all = Vec::new();
        each_name(json, |name| {
            all.push(name.as_str().to_owned());
            match name.as_str() {
                "stop" => Scan::NoMore,
                name if name == beyond => Scan::Beyond,
                _ => Scan::Within,
            }
        });
        all
    }

    #[test]
    fn names_are_told_apart_from_other_strings() {
        for (json, expected) in [
            (r#"{"a":"b","c":["d",{"e":1}],"f":{}}"#, &["a", "c", "e", "f"][..]),
            (r#"{ "a" : "x\":\"y" ,"b\u0063":"" , "q\"" : {"\\":null}}"#, &["a", "bc", "q\"", "\\"]),
            (r#"["a:","b"]"#, &[]),
            (r#""a""#, &[]),
            (r#"{"stop":{"a":1},"b":2}"#, &["stop"]),
        ] {
            assert_eq!(names(json, ""), expected, "{json}");
        }
    }

    #[test]
    fn a_value_is_passed_over_whatever_it_is() {
        for value in [
            "1",
            "-1.5e3",
            "null",
            r#""x,\"}""#,
            "[]",
            "{}",
            r#"[{"n":[1,{"n":"]"}]},"}"]"#,
            r#"{"n":{"n":[]}}"#,
        ] {
            for json in [
                format!(r#"{{"data":{value},"after":1}}"#),
                format!(r#"{{ "data" : {value} , "after" : 1 }}"#),
                format!(r#"[{{"data":{value}}},{{"after":1}}]"#),
            ] {
                assert_eq!(names(&json, "data"), ["data", "after"], "{json}");
            }
        }
    }

    /// Collects the names with a parser: the reference.
    fn parsed(value: &Value, beyond: &str, all: &mut Vec<String>) {
        match value {
            Value::Object(members) => members.iter().for_each(|(name, value)| {
                all.push(name.clone());
                if name != beyond {
                    parsed(value, beyond, all);
                }
            }),
            Value::Array(items) => items.iter().for_each(|item| parsed(item, beyond, all)),
            _ => {}
        }
    }

    fn json() -> impl Strategy<Value = Value> {
        let text = r#"[a-c"\\\n:,{}\[\]é ]{0,4}"#;
        let leaf =
            prop_oneof![Just(Value::Null), any::<i32>().prop_map(Value::from), text.prop_map(Value::from),];
        leaf.prop_recursive(4, 32, 4, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::vec((text, inner), 0..4)
                    .prop_map(|members| Value::Object(members.into_iter().collect::<Map<_, _>>())),
            ]
        })
    }

    proptest! {
        #[test]
        fn the_names_are_those_that_a_parser_finds(value in json(), pretty: bool) {
            let written = if pretty { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) };
            let mut expected = Vec::new();
            parsed(&value, "a", &mut expected);
            prop_assert_eq!(names(&written.unwrap(), "a"), expected);
        }

        #[test]
        fn any_text_is_looked_through(text in r#"[a"\\:,{}\[\]é u0d8]{0,40}"#) {
            names(&text, "a");
        }
    }
}
