//! Checks of a manifest as raw JSON: violations of the schema, and literal secrets.
//!
//! Every violation is reported with its JSON pointer. Clients can read manifests, so that all
//! literal secrets are rejected; their forms are in `credential`.

use std::sync::LazyLock;

use jsonschema::error::{TypeKind, ValidationErrorKind};
use jsonschema::{PatternOptions, ValidationError, Validator};
use serde_json::{Map, Value};

use super::ManifestReader;
use super::SCHEMA;
use super::credential::{
    has_credential, has_private_key, has_user, is_credential_value, is_numeric_secret, is_secret_member,
    is_wire_credential, is_written_out,
};

static VALIDATOR: LazyLock<Option<Validator>> = LazyLock::new(|| {
    let schema = serde_json::from_str(SCHEMA).ok()?;
    jsonschema::options().with_pattern_options(PatternOptions::regex()).build(&schema).ok()
});

/// Reports every violation; returns true if there was none.
pub(super) fn report_violations(manifest: &Value, reader: &mut ManifestReader<'_>) -> bool {
    let Some(validator) = VALIDATOR.as_ref() else {
        // A test compiles the schema. A check that cannot be made refuses.
        reader.problem("", "cannot be checked");
        return false;
    };
    let mut fits = true;
    for error in validator.iter_errors(manifest) {
        fits = false;
        for (pointer, problem) in words(&error) {
            reader.problem(&pointer, problem);
        }
    }
    fits
}

/// Returns location and description of an error. Never the value itself: it may be a secret.
fn words(error: &ValidationError<'_>) -> Vec<(String, String)> {
    use ValidationErrorKind as Kind;
    let at = error.instance_path().to_string();
    let problem = match error.kind() {
        Kind::Required { property } => {
            let name = property.as_str().unwrap_or_default();
            return vec![(format!("{at}/{name}"), "is missing".to_owned())];
        }
        Kind::AdditionalProperties { unexpected } => {
            let below = |name: &String| (format!("{at}/{}", escaped(name)), "unknown key".to_owned());
            return unexpected.iter().map(below).collect();
        }
        Kind::Type { kind } => format!("is not {}", kind_of(kind)),
        Kind::Constant { expected_value } => format!("is not {expected_value}"),
        Kind::Enum { options } => {
            let options = options.as_array().map(Vec::as_slice).unwrap_or_default();
            let names: Vec<_> = options.iter().filter_map(Value::as_str).collect();
            format!("is not one of: {}", names.join(", "))
        }
        Kind::FalseSchema => "does not go with tokenUrl".to_owned(),
        Kind::MinLength { .. } => "is empty".to_owned(),
        Kind::MaxLength { limit } => format!("has more than {limit} characters"),
        Kind::Pattern { pattern } => format!("does not match {pattern}"),
        Kind::UniqueItems => "has an item twice".to_owned(),
        // The only choice in the schema.
        Kind::OneOfNotValid { .. } | Kind::OneOfMultipleValid { .. } => {
            "needs one of token, value and tokenUrl".to_owned()
        }
        _ => error.masked().to_string(),
    };
    vec![(at, problem)]
}

fn kind_of(kind: &TypeKind) -> &'static str {
    let TypeKind::Single(kind) = kind else { return "of the right kind" };
    match kind.to_string().as_str() {
        "string" => "a text",
        "object" => "an object",
        "array" => "a list",
        "boolean" => "true or false",
        _ => "of the right kind",
    }
}

/// Escapes a key for a JSON pointer; control characters would forge lines of the report.
fn escaped(key: &str) -> String {
    let key = key.replace('~', "~0").replace('/', "~1");
    key.chars().map(|each| if each.is_control() { '\u{fffd}' } else { each }).collect()
}

const SECRET: &str =
    "is a secret that is written out, and clients can read manifests (write ${env:NAME} or ${file:PATH})";
const KEY: &str = "is a private key that is written out, and clients can read manifests (write the path of its file, ${env:NAME} or \
     ${file:PATH})";

/// A secret, although its name does not show that.
const VALUE: &str = "/security/auth/value";
/// The path of a key, although its name is that of a key.
const KEY_PATH: &str = "/security/mtls/clientKey";
/// URLs to which requests are sent.
const CALLED: [&str; 2] = ["/a2a/agentCardUri", "/security/auth/tokenUrl"];
/// Names of tools by ids of skills: neither describes a value.
const SKILLS: &str = "/a2a/skills";
/// Members that name the member `value` beside them.
const LABELS: [&str; 4] = ["name", "key", "header", "field"];
/// Members of a private JWK (RFC 7518 §6), besides those of a public one.
const PRIVATE: [&str; 7] = ["d", "p", "q", "dp", "dq", "qi", "k"];

/// Expectation about a value, from the names of the members that contain it.
#[derive(Clone, Copy, PartialEq)]
enum SecretContext {
    /// None.
    Plain,
    /// It is the value of a header.
    Header,
    /// It is a secret.
    Secret,
}

/// Reports every literal secret; returns true if there was none.
pub(super) fn report_secrets(manifest: &Value, reader: &mut ManifestReader<'_>) -> bool {
    let mut found = Vec::new();
    walk(manifest, String::new(), SecretContext::Plain, &mut found);
    found.iter().for_each(|(at, problem)| reader.problem(at, *problem));
    found.is_empty()
}

fn walk(value: &Value, at: String, inside: SecretContext, found: &mut Vec<(String, &'static str)>) {
    match value {
        Value::String(text) => {
            if let Some(problem) = problem_of(text, &at, inside) {
                found.push((at, problem));
            }
        }
        Value::Object(members) => {
            for (name, member) in members {
                if has_credential(name) {
                    // A problem with a nested value would repeat it.
                    found.push((at.clone(), SECRET));
                    continue;
                }
                let below = format!("{at}/{}", name.replace('~', "~0").replace('/', "~1"));
                if member.is_number() && is_numeric_secret(name) {
                    found.push((below.clone(), SECRET));
                }
                let inside = within(name, members, &at, &below, inside);
                walk(member, below, inside, found);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                walk(item, format!("{at}/{index}"), inside, found);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Returns the context of a member by its name and by the members around it.
fn within(
    name: &str,
    members: &Map<String, Value>,
    at: &str,
    below: &str,
    inside: SecretContext,
) -> SecretContext {
    let is_labelled = || {
        let mut labels = LABELS.iter().filter_map(|label| members.get(*label)?.as_str());
        name.eq_ignore_ascii_case("value") && labels.any(is_wire_credential)
    };
    if inside == SecretContext::Secret || below == VALUE {
        SecretContext::Secret
    } else if below == KEY_PATH || at == SKILLS {
        SecretContext::Plain
    } else if is_secret_member(name)
        || (inside == SecretContext::Header && is_wire_credential(name))
        || (members.contains_key("kty") && PRIVATE.contains(&name))
        || is_labelled()
    {
        SecretContext::Secret
    } else if inside == SecretContext::Header || name.eq_ignore_ascii_case("headers") {
        SecretContext::Header
    } else {
        SecretContext::Plain
    }
}

fn problem_of(text: &str, at: &str, inside: SecretContext) -> Option<&'static str> {
    if has_private_key(text) {
        return Some(KEY);
    }
    let is_secret = match inside {
        SecretContext::Secret => is_written_out(text),
        SecretContext::Header => is_credential_value(text),
        SecretContext::Plain => false,
    };
    // The reader of such a URL rejects a user name in it with a remedy of its own.
    let is_read = CALLED.contains(&at) || (at.starts_with("/capabilities/") && at.ends_with("/endpoint"));
    (is_secret || has_credential(text) || (!is_read && has_user(text))).then_some(SECRET)
}
