//! The names of all members in a JSON text, found in one pass over its bytes: values are not read.
//!
//! For text that a parser has read before, or will read: for any other text the result has no
//! meaning, but the scan never reads past the end.

use std::borrow::Cow;

use super::precheck::past_string;
use super::text::Text;

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
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Map, Value};

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
