//! Errors of deserialization, in words that never quote the value.

use std::fmt;

use serde::de::{self, Unexpected};

/// Reason for which a value could not be read.
#[derive(Debug)]
pub(super) struct DeError {
    pub(super) message: String,
    /// True if it is among the problems already.
    pub(super) reported: bool,
}

impl fmt::Display for DeError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.message)
    }
}

impl std::error::Error for DeError {}

impl de::Error for DeError {
    fn custom<M: fmt::Display>(message: M) -> Self {
        Self { message: message.to_string(), reported: false }
    }

    /// Serde's own text quotes the value, and the value may be a secret.
    fn invalid_type(found: Unexpected<'_>, expected: &dyn de::Expected) -> Self {
        let found = match found {
            Unexpected::Bool(_) => "true or false",
            Unexpected::Unsigned(_) | Unexpected::Signed(_) | Unexpected::Float(_) => "a number",
            Unexpected::Str(_) | Unexpected::Char(_) => "a text",
            Unexpected::Seq => "a list",
            Unexpected::Map => "a section",
            Unexpected::Unit | Unexpected::Option => "nothing",
            _ => "something else",
        };
        Self::custom(format_args!("expected {expected}, found {found}"))
    }

    fn invalid_value(_found: Unexpected<'_>, expected: &dyn de::Expected) -> Self {
        Self::custom(format_args!("expected {expected}"))
    }
}
