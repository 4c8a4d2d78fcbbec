//! The names of all members in a JSON text, by one look over its bytes: values are not read.
//!
//! For text that a parser has read before, or will: of anything else it says nothing that can be relied upon, and never goes beyond
//! its end. Not here: JSON grammar, which parsers judge.

use std::borrow::Cow;

use super::precheck::past_string;
use super::text::Text;

/// How to go on after a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scan {
    /// The names within its value come next.
    Within,
    /// Its value is passed over.
    Beyond,
    /// No more names are wanted.
    NoMore,
}

/// Tells of the name of every member, in their order, at whatever depth.
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

/// The characters of a string with its quotation marks. One that cannot be read is what stands there.
fn read(quoted: &str) -> Text<'_> {
    let plain = quoted.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(quoted);
    if plain.contains('\\') {
        serde_json::from_str(quoted).unwrap_or(Text(Cow::Borrowed(plain)))
    } else {
        Text(Cow::Borrowed(plain))
    }
}

/// The place after the string whose first quotation mark is at `begin`.
fn after_string(bytes: &[u8], begin: usize) -> usize {
    past_string(bytes, begin + 1).unwrap_or(bytes.len()).min(bytes.len())
}

fn past_space(bytes: &[u8], at: usize) -> usize {
    let rest = bytes.get(at..).unwrap_or_default();
    at + rest.iter().take_while(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r')).count()
}

/// The place after the value that begins at `at`, or before what follows it.
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

    /// By a parser: the reference.
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
