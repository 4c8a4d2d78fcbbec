//! Violations of the schema in a manifest: all of them, each with its JSON pointer.

use std::sync::LazyLock;

use jsonschema::error::{TypeKind, ValidationErrorKind};
use jsonschema::{PatternOptions, ValidationError, Validator};
use serde_json::Value;

use super::SCHEMA;
use super::sheet::ManifestReader;

static VALIDATOR: LazyLock<Option<Validator>> = LazyLock::new(|| {
    let schema = serde_json::from_str(SCHEMA).ok()?;
    jsonschema::options().with_pattern_options(PatternOptions::regex()).build(&schema).ok()
});

/// Reports every violation; returns true if there was none.
pub(super) fn report(manifest: &Value, sheet: &mut ManifestReader<'_>) -> bool {
    let Some(validator) = VALIDATOR.as_ref() else {
        // A test compiles the schema. A check that cannot be made refuses.
        sheet.problem("", "cannot be checked");
        return false;
    };
    let mut fits = true;
    for error in validator.iter_errors(manifest) {
        fits = false;
        for (pointer, problem) in words(&error) {
            sheet.problem(&pointer, problem);
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
