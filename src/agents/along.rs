//! The parts of a client's request that are forwarded to agents.
//!
//! Only headers that the configuration names, and the caller's token where it is exchanged for
//! another; neither is ever logged.

use http::{HeaderMap, HeaderName};

use crate::auth::SubjectToken;

/// The forwarded parts. Each agent selects those that its own settings name.
pub struct ForwardedContext {
    headers: HeaderMap,
    subject: Option<SubjectToken>,
}

impl ForwardedContext {
    /// Copies the headers of these names from a request.
    pub(super) fn new(names: &[HeaderName], request: &HeaderMap, subject: Option<SubjectToken>) -> Self {
        Self { headers: select(names, request), subject }
    }

    /// Inserts the headers of these names into others.
    pub(super) fn insert(&self, names: &[HeaderName], into: &mut HeaderMap) {
        into.extend(select(names, &self.headers));
    }

    /// Returns the token of the caller, for its exchange.
    pub(super) fn subject(&self) -> Option<&SubjectToken> {
        self.subject.as_ref()
    }
}

fn select(names: &[HeaderName], from: &HeaderMap) -> HeaderMap {
    let mut chosen = HeaderMap::new();
    for name in names {
        for value in from.get_all(name) {
            let mut value = value.clone();
            value.set_sensitive(true);
            chosen.append(name.clone(), value);
        }
    }
    chosen
}
