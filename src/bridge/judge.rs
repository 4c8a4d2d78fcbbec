//! The errors that a JSON Schema finds in a value, in words for the author of the value.

use jsonschema::Validator;
use serde_json::Value;

/// Maximum number of errors in one message.
const MAX_ERRORS: usize = 5;
/// Maximum length of an error, in characters: it quotes the value.
const MAX_ERROR_CHARS: usize = 300;

/// Returns the errors with their positions; `None` if the value is valid.
pub(super) fn schema_errors(judge: &Validator, value: &Value) -> Option<String> {
    let all: Vec<String> = judge
        .iter_errors(value)
        .take(MAX_ERRORS)
        .map(|error| {
            let what: String = error.to_string().chars().take(MAX_ERROR_CHARS).collect();
            match error.instance_path().as_str() {
                "" => what,
                place => format!("{place}: {what}"),
            }
        })
        .collect();
    (!all.is_empty()).then(|| all.join("; "))
}
