//! What of a client's request goes along to the agents that it causes work at.
//!
//! Only headers that the configuration names, and the caller's token where it is exchanged for another; neither is ever logged. Not
//! here: which names may be configured (see `config`), exchanging (see `auth`).

use http::{HeaderMap, HeaderName};

use crate::auth::SubjectToken;

/// What goes along. Each agent takes out of it what its own settings name.
pub struct ForwardedContext {
    headers: HeaderMap,
    subject: Option<SubjectToken>,
}

impl ForwardedContext {
    /// Takes the headers of these names out of a request.
    pub(super) fn new(names: &[HeaderName], request: &HeaderMap, subject: Option<SubjectToken>) -> Self {
        Self { headers: select(names, request), subject }
    }

    /// Puts the headers of these names into others.
    pub(super) fn insert(&self, names: &[HeaderName], into: &mut HeaderMap) {
        into.extend(select(names, &self.headers));
    }

    /// The token of the caller, for exchanging it.
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
