//! `elicitation/create`: questions to the client's user, their answers, and the forms for them in the
//! dialect of each revision.
//!
//! Follows `docs/spec/mcp.md` §2.10, §2.12, §2.13. One question travels as a request of the gateway
//! (legacy) or as an entry of `inputRequests` (modern). A form is a flat object of primitives.
//! Keywords that a form cannot express are left out of it (the answer is validated against the whole
//! schema); fields keep their order. A form must not ask for secrets. The content of a question comes
//! from `bridge::elicitation`.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserializer, Error, MapAccess, Visitor};
use serde::ser::Serializer;
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value, json};

use super::version::Version;
use crate::jsonrpc::{Object, write_notification, write_request};

const CREATE: &str = "elicitation/create";

/// One question to the user.
#[derive(Debug, Clone)]
pub enum ElicitRequest {
    /// A question that is answered in a form.
    Form {
        /// The question in words.
        message: String,
        /// The form, as `elicitation_schema::adapt` writes it for the revision.
        schema: Box<RawValue>,
    },
    /// A question that is settled at a web page; the answer only says if the user went there.
    Url {
        /// The subject in words.
        message: String,
        /// The page.
        url: String,
    },
}

/// Encodes the request that the gateway sends on a legacy stream, as JSON text. `id` also names the
/// elicitation, if it is one by URL; `related_task` is the core task that it belongs to.
pub fn create(id: &str, version: Version, ask: &ElicitRequest, related_task: Option<&str>) -> Vec<u8> {
    let params = ElicitParams { version, ask, id: Some(id), related_task };
    write_request(id, CREATE, &params)
}

/// Encodes questions as the value of `inputRequests`, each under its key; for modern clients only.
pub fn input_requests(asks: &[(String, ElicitRequest)]) -> Option<Box<RawValue>> {
    to_raw_value(&InputEntries(asks)).ok()
}

/// Encodes `notifications/elicitation/complete` as JSON text: the elicitation by URL is settled.
pub fn complete(elicitation_id: &str) -> Vec<u8> {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Complete<'a> {
        elicitation_id: &'a str,
    }
    write_notification("notifications/elicitation/complete", Some(&Complete { elicitation_id }))
}

struct InputEntries<'a>(&'a [(String, ElicitRequest)]);

impl Serialize for InputEntries<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Entry<'a> {
            method: &'static str,
            params: ElicitParams<'a>,
        }
        serializer.collect_map(self.0.iter().map(|(key, ask)| {
            let params = ElicitParams { version: Version::V2026_07_28, ask, id: None, related_task: None };
            (key, Entry { method: CREATE, params })
        }))
    }
}

struct ElicitParams<'a> {
    version: Version,
    ask: &'a ElicitRequest,
    /// Id of an elicitation by URL, in the one revision that requires it.
    id: Option<&'a str>,
    related_task: Option<&'a str>,
}

impl Serialize for ElicitParams<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Members<'a> {
            #[serde(skip_serializing_if = "Option::is_none")]
            mode: Option<&'static str>,
            message: &'a str,
            #[serde(skip_serializing_if = "Option::is_none")]
            requested_schema: Option<&'a RawValue>,
            #[serde(skip_serializing_if = "Option::is_none")]
            url: Option<&'a str>,
            #[serde(skip_serializing_if = "Option::is_none")]
            elicitation_id: Option<&'a str>,
            #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
            meta: Option<ElicitMeta<'a>>,
        }
        let meta = self.related_task.map(|task_id| ElicitMeta { related: RelatedTask { task_id } });
        let modes = self.version >= Version::V2025_11_25;
        match self.ask {
            ElicitRequest::Form { message, schema } => Members {
                mode: modes.then_some("form"),
                message,
                requested_schema: Some(schema),
                url: None,
                elicitation_id: None,
                meta,
            },
            ElicitRequest::Url { message, url } => Members {
                mode: Some("url"),
                message,
                requested_schema: None,
                url: Some(url),
                elicitation_id: self.id,
                meta,
            },
        }
        .serialize(serializer)
    }
}

#[derive(Serialize)]
struct ElicitMeta<'a> {
    #[serde(rename = "io.modelcontextprotocol/related-task")]
    related: RelatedTask<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RelatedTask<'a> {
    task_id: &'a str,
}

/// The user's reaction to a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ElicitAction {
    /// The user answered, or agreed to go to the page.
    Accept,
    /// The user declined.
    Decline,
    /// The user closed the question without an answer.
    Cancel,
}

/// The client's response to one question.
#[derive(Debug, Clone)]
pub struct ElicitResult {
    /// The user's reaction.
    pub action: ElicitAction,
    /// The filled-in form: an object, not validated yet.
    pub content: Option<Box<RawValue>>,
}

impl ElicitResult {
    /// Reads the result of a client's response, or a value of `inputResponses`; `None` if it has
    /// another shape.
    pub fn read(json: &RawValue) -> Option<Self> {
        #[derive(Deserialize)]
        struct Wire {
            action: ElicitAction,
            #[serde(default)]
            content: Option<Box<RawValue>>,
        }
        let Object(Wire { action, content }) = serde_json::from_str(json.get()).ok()?;
        match &content {
            Some(content) if !content.get().starts_with('{') => None,
            Some(_) | None => Some(Self { action, content }),
        }
    }
}

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

    fn form() -> ElicitRequest {
        ElicitRequest::Form {
            message: "Which \"date\"?".into(),
            schema: raw(r#"{"type":"object","properties":{}}"#),
        }
    }

    fn url() -> ElicitRequest {
        ElicitRequest::Url { message: "Connect".into(), url: "https://a.test/".into() }
    }

    #[test]
    fn each_revision_gets_its_shape() {
        let schema = r#""message":"Which \"date\"?","requestedSchema":{"type":"object","properties":{}}"#;
        let page = r#""mode":"url","message":"Connect","url":"https://a.test/","elicitationId":"i""#;
        let task = r#","_meta":{"io.modelcontextprotocol/related-task":{"taskId":"tk"}}"#;
        for (version, ask, related, params) in [
            (Version::V2025_06_18, form(), None, schema.to_owned()),
            (Version::V2025_11_25, form(), None, format!(r#""mode":"form",{schema}"#)),
            (Version::V2025_11_25, form(), Some("tk"), format!(r#""mode":"form",{schema}{task}"#)),
            (Version::V2025_11_25, url(), None, page.to_owned()),
        ] {
            let written = String::from_utf8(create("i", version, &ask, related)).unwrap();
            let expected = format!(
                r#"{{"jsonrpc":"2.0","id":"i","method":"elicitation/create","params":{{{params}}}}}"#
            );
            assert_eq!(written, expected);
        }
    }

    #[test]
    fn modern_questions_are_entries_without_an_id() {
        let written = input_requests(&[("a".into(), form()), ("b".into(), url())]).unwrap();
        assert_eq!(
            written.get(),
            concat!(
                r#"{"a":{"method":"elicitation/create","params":{"mode":"form","message":"Which \"date\"?","#,
                r#""requestedSchema":{"type":"object","properties":{}}}},"#,
                r#""b":{"method":"elicitation/create","params":{"mode":"url","message":"Connect","url":"https://a.test/"}}}"#
            )
        );
    }

    #[test]
    fn a_settled_page_is_told() {
        assert_eq!(
            String::from_utf8(complete("e")).unwrap(),
            r#"{"jsonrpc":"2.0","method":"notifications/elicitation/complete","params":{"elicitationId":"e"}}"#
        );
    }

    #[test]
    fn answers_are_read_and_nothing_else_is() {
        for (json, action, content) in [
            (r#"{"action":"accept","content":{"a":1}}"#, Some(ElicitAction::Accept), Some(r#"{"a":1}"#)),
            (r#"{"action":"accept","content":null,"_meta":{}}"#, Some(ElicitAction::Accept), None),
            (r#"{"action":"decline"}"#, Some(ElicitAction::Decline), None),
            (r#"{"action":"cancel"}"#, Some(ElicitAction::Cancel), None),
            (r#"{"action":"accept","content":[1]}"#, None, None),
            (r#"{"action":"maybe"}"#, None, None),
            (r#"{"content":{}}"#, None, None),
            ("null", None, None),
            (r#"["accept"]"#, None, None),
        ] {
            let answer = ElicitResult::read(&raw(json));
            assert_eq!(answer.as_ref().map(|answer| answer.action), action, "{json}");
            let found = answer.and_then(|answer| answer.content);
            assert_eq!(found.as_ref().map(|content| content.get()), content, "{json}");
        }
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
    fn nested_schemas_are_no_forms() {
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
