//! What of a client's request goes along to the agents that it causes work at.
//!
//! Only headers that the configuration names, and the caller's token where it is exchanged for another; neither is ever logged. Not
//! here: which names may be configured (see `config`), exchanging (see `auth`).

use http::{HeaderMap, HeaderName};

use crate::auth::Subject;

/// What goes along. Each agent takes out of it what its own settings name.
pub struct Along {
    headers: HeaderMap,
    subject: Option<Subject>,
}

impl Along {
    /// Takes the headers of these names out of a request.
    pub(super) fn new(names: &[HeaderName], request: &HeaderMap, subject: Option<Subject>) -> Self {
        Self { headers: chosen(names, request), subject }
    }

    /// Puts the headers of these names into others.
    pub(super) fn put(&self, names: &[HeaderName], into: &mut HeaderMap) {
        into.extend(chosen(names, &self.headers));
    }

    /// The token of the caller, for exchanging it.
    pub(super) fn subject(&self) -> Option<&Subject> {
        self.subject.as_ref()
    }
}

fn chosen(names: &[HeaderName], from: &HeaderMap) -> HeaderMap {
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
