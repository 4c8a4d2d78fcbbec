//! What a JSON Schema finds wrong with a value, in words for whoever wrote it.
//!
//! Not here: compiling schemas (see `arguments`).

use jsonschema::Validator;
use serde_json::Value;

/// Most complaints that are told at once.
const MAX_ERRORS: usize = 5;
/// Longest complaint, in characters: it quotes what was written.
const MAX_ERROR_CHARS: usize = 300;

/// What is wrong and where; `None` if nothing is.
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
