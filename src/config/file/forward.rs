//! `agents.NAME.forward_headers` as in the file: the headers of a client's request that are
//! forwarded.
//!
//! See also `agents`, which copies them.

use http::HeaderName;

use crate::config::reloadable_secret::ReloadableSecret;
use crate::config::reserved_headers::is_forbidden;
use crate::config::resolve::ResolveContext;
use crate::config::spanned::Spanned;

/// Most names in one list.
const MAX_FORWARDED_NAMES: usize = 32;

/// Returns the headers that may be forwarded; problems of the others are reported.
pub(super) fn resolve(
    written: Spanned<Vec<Spanned<String>>>,
    shown: &[(HeaderName, ReloadableSecret)],
    reading: &mut ResolveContext<'_>,
) -> Vec<HeaderName> {
    let Some((place, names)) = written.take() else { return Vec::new() };
    if names.len() > MAX_FORWARDED_NAMES {
        reading.problem(&place, format!("has more than {MAX_FORWARDED_NAMES} names"));
    }
    let mut forwarded: Vec<HeaderName> = Vec::new();
    for (place, name) in names.into_iter().filter_map(Spanned::take) {
        match name.parse::<HeaderName>() {
            Err(_) => reading.problem(&place, "is not the name of a header"),
            Ok(name) => match problem(&name, shown) {
                Some(problem) => reading.problem(&place, problem),
                None if forwarded.contains(&name) => reading.problem(&place, "is there twice"),
                None => forwarded.push(name),
            },
        }
    }
    forwarded
}

fn problem(name: &HeaderName, shown: &[(HeaderName, ReloadableSecret)]) -> Option<&'static str> {
    let text = name.as_str();
    if text == "authorization" {
        return Some(
            "cannot be forwarded: a client's token is for the gateway alone, and MCP forbids passing it on (use auth.oauth2 with \
             grant: token_exchange)",
        );
    }
    if text.starts_with("proxy-") {
        return Some("cannot be forwarded: it is for the next hop alone");
    }
    if is_forbidden(name) {
        return Some("cannot be forwarded: the gateway writes the agent's request itself");
    }
    shown.iter().any(|(other, _)| other == name).then_some("is under headers too (remove one of them)")
}
