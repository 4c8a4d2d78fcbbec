//! JSON Schemas as forms, in the dialect of each revision.
//!
//! Follows `docs/spec/mcp.md` §2.10: a form is a flat object of primitives. Keywords that a form
//! cannot express are left out of it (the answer is validated against the whole schema); fields
//! keep their order. A form must not ask for secrets.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};
use serde::ser::{Serialize, Serializer};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value, json};

use super::version::Version;

/// Maximum number of fields in a form.
const MOST_FIELDS: usize = 64;

/// Returns true if the schema is a form in some revision.
pub fn is_form(schema: &RawValue) -> bool {
    adapt(schema, Version::V2026_07_28).is_some()
}

/// Returns the schema as a form of this revision; `None` if it cannot be one, or if it asks for
/// secrets.
pub fn adapt(schema: &RawValue, version: Version) -> Option<Box<RawValue>> {
    if version < Version::V2025_06_18 || requests_secret(schema) {
        return None;
    }
    let whole: FormFields<&RawValue> = serde_json::from_str(schema.get()).ok()?;
    let text = |name: &str| serde_json::from_str::<String>(whole.find(name)?.get()).ok();
    if text("type").as_deref() != Some("object") {
        return None;
    }
    let given: FormFields<Value> = serde_json::from_str(whole.find("properties")?.get()).ok()?;
    if given.0.len() > MOST_FIELDS {
        return None;
    }
    let fields = given.0.into_iter().map(|(name, given)| field(&given, version).map(|field| (name, field)));
    let properties = FormFields(fields.collect::<Option<Vec<_>>>()?);
    let required: Vec<String> = match whole.find("required") {
        Some(names) => serde_json::from_str(names.get()).ok()?,
        None => Vec::new(),
    };
    // A form that requires a field without defining it could never be sent.
    if required.iter().any(|name| properties.find(name).is_none()) {
        return None;
    }
    let form = ElicitationSchema {
        kind: "object",
        title: text("title"),
        description: text("description"),
        properties,
        required,
    };
    to_raw_value(&form).ok()
}

#[derive(serde::Serialize)]
struct ElicitationSchema {
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<String>,
    properties: FormFields<Value>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    required: Vec<String>,
}

/// Returns true if a field asks for a secret, which does not belong in a form: a password, a token,
/// a key.
pub fn requests_secret(schema: &RawValue) -> bool {
    const WORDS: &[&str] = &[
        "password",
        "passwd",
        "passphrase",
        "secret",
        "token",
        "apikey",
        "privatekey",
        "accesskey",
        "credential",
    ];
    let sounds_secret = |name: &str| {
        let letters = name.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase);
        let letters: String = letters.collect();
        WORDS.iter().any(|word| letters.contains(word))
    };
    let Ok(whole) = serde_json::from_str::<Value>(schema.get()) else { return false };
    let properties = whole.get("properties").and_then(Value::as_object);
    properties.into_iter().flatten().any(|(name, field)| {
        let text = |member: &str| field.get(member).and_then(Value::as_str).unwrap_or_default();
        let hidden = text("format") == "password" || field.get("writeOnly") == Some(&Value::Bool(true));
        hidden || sounds_secret(name) || sounds_secret(text("title"))
    })
}

/// Returns one field in the form of the revision.
fn field(given: &Value, version: Version) -> Option<Value> {
    let given = given.as_object()?;
    let kind = match given.get("type") {
        Some(kind) => kind.as_str()?,
        None if given.contains_key("enum") || given.contains_key("oneOf") => "string",
        None => return None,
    };
    let mut out = Map::new();
    out.insert("type".into(), json!(kind));
    copy_keyword(given, &["title", "description"], text, &mut out);
    match kind {
        "string" => text_field(given, version, &mut out)?,
        "number" => copy_keyword(given, &["minimum", "maximum"], number, &mut out),
        "integer" => copy_keyword(given, &["minimum", "maximum"], whole, &mut out),
        "boolean" => copy_keyword(given, &["default"], flag, &mut out),
        "array" if version >= Version::V2025_11_25 => choices(given, &mut out)?,
        _ => return None,
    }
    if version >= Version::V2025_11_25 {
        let fitting: fn(&Value) -> Option<Value> = match kind {
            "boolean" => flag,
            "string" => text,
            "array" => texts,
            "integer" => whole,
            _ => number,
        };
        copy_keyword(given, &["default"], fitting, &mut out);
    }
    Some(Value::Object(out))
}

/// Writes a text field, or a single choice.
fn text_field(given: &Map<String, Value>, version: Version, out: &mut Map<String, Value>) -> Option<()> {
    if let Some(options) = given.get("oneOf") {
        let options = titled(options)?;
        if version >= Version::V2025_11_25 {
            out.insert("oneOf".into(), written(&options));
        } else {
            let (values, titles): (Vec<&str>, Vec<&str>) = options.into_iter().unzip();
            out.insert("enum".into(), json!(values));
            out.insert("enumNames".into(), json!(titles));
        }
    } else if let Some(values) = given.get("enum") {
        let values = texts(values)?;
        let many = |list: &Value| list.as_array().map(Vec::len);
        let names = given.get("enumNames").and_then(texts).filter(|names| many(names) == many(&values));
        out.extend(names.map(|names| ("enumNames".to_owned(), names)));
        out.insert("enum".into(), values);
    } else {
        let known = |format: &Value| {
            matches!(format.as_str(), Some("email" | "uri" | "date" | "date-time")).then(|| format.clone())
        };
        copy_keyword(given, &["minLength", "maxLength"], whole, out);
        copy_keyword(given, &["format"], known, out);
    }
    Some(())
}

/// Writes a multiple choice.
fn choices(given: &Map<String, Value>, out: &mut Map<String, Value>) -> Option<()> {
    let items = given.get("items")?.as_object()?;
    let items = match items.get("anyOf").or_else(|| items.get("oneOf")) {
        Some(options) => json!({"anyOf": written(&titled(options)?)}),
        None => json!({"type": "string", "enum": texts(items.get("enum")?)?}),
    };
    out.insert("items".into(), items);
    copy_keyword(given, &["minItems", "maxItems"], whole, out);
    Some(())
}

/// Returns choices and their titles; a choice without a title is its own title.
fn titled(options: &Value) -> Option<Vec<(&str, &str)>> {
    let options = options.as_array().filter(|options| !options.is_empty())?;
    let pairs = options.iter().map(|option| {
        let value = option.get("const")?.as_str()?;
        Some((value, option.get("title").and_then(Value::as_str).unwrap_or(value)))
    });
    pairs.collect()
}

fn written(options: &[(&str, &str)]) -> Value {
    options.iter().map(|(value, title)| json!({"const": value, "title": title})).collect()
}

/// Copies the members that have the expected type.
fn copy_keyword(
    from: &Map<String, Value>,
    names: &[&str],
    fitting: impl Fn(&Value) -> Option<Value>,
    to: &mut Map<String, Value>,
) {
    for name in names {
        to.extend(from.get(*name).and_then(&fitting).map(|value| ((*name).to_owned(), value)));
    }
}

fn text(value: &Value) -> Option<Value> {
    value.is_string().then(|| value.clone())
}

fn flag(value: &Value) -> Option<Value> {
    value.is_boolean().then(|| value.clone())
}

fn number(value: &Value) -> Option<Value> {
    value.is_number().then(|| value.clone())
}

/// Returns an integer; agents that use protobuf write it as a float.
fn whole(value: &Value) -> Option<Value> {
    if value.is_i64() || value.is_u64() {
        return Some(value.clone());
    }
    let number = value.as_f64().filter(|number| number.fract() == 0.0 && number.abs() < 9e15)?;
    #[expect(clippy::cast_possible_truncation, reason = "whole and within the exact integers of f64")]
    Some(json!(number as i64))
}

fn texts(value: &Value) -> Option<Value> {
    value.as_array()?.iter().all(Value::is_string).then(|| value.clone())
}

/// An object in its original order, each name once: clients show the fields of a form in this
/// order.
struct FormFields<V>(Vec<(String, V)>);

impl<V> FormFields<V> {
    fn find(&self, name: &str) -> Option<&V> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value)
    }
}

impl<'de, V: Deserialize<'de>> Deserialize<'de> for FormFields<V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader<V>(PhantomData<V>);
        impl<'de, V: Deserialize<'de>> Visitor<'de> for Reader<V> {
            type Value = FormFields<V>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<FormFields<V>, A::Error> {
                let mut fields = FormFields(Vec::new());
                while let Some((name, value)) = object.next_entry::<String, V>()? {
                    if fields.find(&name).is_some() {
                        return Err(A::Error::custom("a member is there twice"));
                    }
                    fields.0.push((name, value));
                }
                Ok(fields)
            }
        }
        deserializer.deserialize_map(Reader(PhantomData))
    }
}

impl<V: Serialize> Serialize for FormFields<V> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(json: &str) -> Box<RawValue> {
        RawValue::from_string(json.into()).unwrap()
    }

    fn one(field: &str) -> Box<RawValue> {
        raw(&format!(r#"{{"type":"object","properties":{{"a":{field}}},"required":["a"]}}"#))
    }

    #[test]
    fn each_revision_gets_the_fields_that_it_knows() {
        for (given, oldest, newer) in [
            (r#"{"type":"string"}"#, Some(json!({"type":"string"})), Some(json!({"type":"string"}))),
            (
                r#"{"type":"string","minLength":1.0,"format":"date","pattern":"x","default":"y"}"#,
                Some(json!({"type":"string","minLength":1,"format":"date"})),
                Some(json!({"type":"string","minLength":1,"format":"date","default":"y"})),
            ),
            (
                r#"{"type":"integer","minimum":1.0,"default":5.0}"#,
                Some(json!({"type":"integer","minimum":1})),
                Some(json!({"type":"integer","minimum":1,"default":5})),
            ),
            (
                r#"{"type":"boolean","default":true}"#,
                Some(json!({"type":"boolean","default":true})),
                Some(json!({"type":"boolean","default":true})),
            ),
            (
                r#"{"type":"string","oneOf":[{"const":"a","title":"A"},{"const":"b"}]}"#,
                Some(json!({"type":"string","enum":["a","b"],"enumNames":["A","b"]})),
                Some(json!({"type":"string","oneOf":[{"const":"a","title":"A"},{"const":"b","title":"b"}]})),
            ),
            (
                r#"{"enum":["a"],"enumNames":["A","B"]}"#,
                Some(json!({"type":"string","enum":["a"]})),
                Some(json!({"type":"string","enum":["a"]})),
            ),
            (
                r#"{"type":"array","items":{"type":"string","enum":["x"]},"minItems":1,"default":["x"]}"#,
                None,
                Some(
                    json!({"type":"array","items":{"type":"string","enum":["x"]},"minItems":1,"default":["x"]}),
                ),
            ),
            (
                r#"{"type":"array","items":{"anyOf":[{"const":"x","title":"X"}]}}"#,
                None,
                Some(json!({"type":"array","items":{"anyOf":[{"const":"x","title":"X"}]}})),
            ),
            (r#"{"type":"array","items":{"type":"string"}}"#, None, None),
            (r#"{"type":"object","properties":{}}"#, None, None),
            (r#"{"type":["string","null"]}"#, None, None),
            (r##"{"$ref":"#/x"}"##, None, None),
            ("true", None, None),
        ] {
            for (version, expected) in [
                (Version::V2025_03_26, None),
                (Version::V2025_06_18, oldest.clone()),
                (Version::V2025_11_25, newer.clone()),
                (Version::V2026_07_28, newer.clone()),
            ] {
                let form = adapt(&one(given), version);
                let form = form.map(|form| serde_json::from_str::<Value>(form.get()).unwrap());
                let expected =
                    expected.map(|a| json!({"type":"object","properties":{"a":a},"required":["a"]}));
                assert_eq!(form, expected, "{given} {version:?}");
            }
        }
    }

    #[test]
    fn fields_stay_in_their_order() {
        let given =
            raw(r#"{"type":"object","properties":{"z":{"type":"string"},"a":{"type":"boolean"}},"x":1}"#);
        let form = adapt(&given, Version::V2025_11_25).unwrap();
        assert_eq!(
            form.get(),
            r#"{"type":"object","properties":{"z":{"type":"string"},"a":{"type":"boolean"}}}"#
        );
    }

    #[test]
    fn what_is_no_flat_object_is_no_form() {
        for schema in [
            r#"{"properties":{}}"#,
            r#"{"type":"object"}"#,
            r#"{"type":"array","properties":{}}"#,
            r#"{"type":"object","properties":{},"required":["a"]}"#,
            r#"{"type":"object","properties":{},"required":"a"}"#,
            r#"{"type":"object","properties":{"a":{"type":"string"},"a":{"type":"string"}}}"#,
            "[]",
            "7",
        ] {
            assert!(!is_form(&raw(schema)), "{schema}");
        }
        assert!(is_form(&raw(r#"{"type":"object","properties":{}}"#)));
        let many: Vec<String> = (0..=MOST_FIELDS).map(|n| format!(r#""f{n}":{{"type":"string"}}"#)).collect();
        assert!(!is_form(&raw(&format!(r#"{{"type":"object","properties":{{{}}}}}"#, many.join(",")))));
    }

    #[test]
    fn a_form_never_asks_for_secrets() {
        for (field, secret) in [
            (r#""api_key":{"type":"string"}"#, true),
            (r#""dbPassword":{"type":"string"}"#, true),
            (r#""access-token":{"type":"string"}"#, true),
            (r#""x":{"type":"string","title":"Your secret"}"#, true),
            (r#""x":{"type":"string","format":"password"}"#, true),
            (r#""x":{"type":"string","writeOnly":true}"#, true),
            (r#""name":{"type":"string","description":"no password please"}"#, false),
            (r#""key":{"type":"string"}"#, false),
        ] {
            let schema = raw(&format!(r#"{{"type":"object","properties":{{{field}}}}}"#));
            assert_eq!(requests_secret(&schema), secret, "{field}");
            assert_eq!(is_form(&schema), !secret, "{field}");
        }
    }
}
