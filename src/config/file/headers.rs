//! `agents.NAME.headers` as in the file.

use std::collections::BTreeMap;

use http::{HeaderName, HeaderValue};

use crate::config::ReloadableSecret;
use crate::config::reference::{self, Template};
use crate::config::reserved_headers::is_reserved;
use crate::config::resolve::ResolveContext;
use crate::config::spanned::Spanned;

/// Returns the headers that can be sent; problems of the others are reported.
pub(super) fn resolve(
    written: Spanned<BTreeMap<String, Spanned<Template>>>,
    reading: &mut ResolveContext<'_>,
) -> Vec<(HeaderName, ReloadableSecret)> {
    let mut headers = Vec::new();
    for (name, value) in written.value().unwrap_or_default() {
        take(&name, value, &mut headers, reading);
    }
    headers
}

/// Adds a header to the others, or reports its defect.
pub(super) fn take(
    written_name: &str,
    value: Spanned<Template>,
    headers: &mut Vec<(HeaderName, ReloadableSecret)>,
    reading: &mut ResolveContext<'_>,
) {
    let Some(place) = value.place().cloned() else { return };
    let name = HeaderName::from_bytes(written_name.as_bytes());
    match &name {
        Err(_) => reading.problem(&place, "is not the name of a header"),
        Ok(name) if is_reserved(name) => {
            reading.problem(&place, "is a header that the gateway writes itself (remove it)");
        }
        Ok(name) if headers.iter().any(|(other, _)| other == name) => {
            reading.problem(&place, "is there twice (upper and lower case are the same)");
        }
        Ok(_) => {}
    }
    let Some((place, value)) = reference::live(value, reading) else { return };
    if HeaderValue::from_str(value.expose()).is_err() {
        reading.problem(&place, "has a character that no header may have");
    } else if let Ok(name) = name {
        headers.push((name, value));
    }
}
