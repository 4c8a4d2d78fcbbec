//! Where each method of an agent is called: at the URL on its card, or where a manifest says.
//!
//! Not here: whether the agent may be called there (see `interface`).

use http::uri::PathAndQuery;

use super::directory::Known;
use crate::transport::Target;

/// Where single methods are called, if not at the URL on the card.
#[derive(Default)]
pub(super) struct Ways {
    pub(super) send: Option<(Target, PathAndQuery)>,
    pub(super) stream: Option<(Target, PathAndQuery)>,
    pub(super) get: Option<(Target, PathAndQuery)>,
    pub(super) cancel: Option<(Target, PathAndQuery)>,
}

/// What is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Call {
    /// A message, answered whole.
    Send,
    /// A message, answered by a stream.
    Stream,
    /// A task as it stands.
    Get,
    /// A cancellation.
    Cancel,
    /// Anything else.
    Other,
}

impl Known {
    /// Where this is called.
    pub(super) fn way(&self, call: Call) -> (&Target, &PathAndQuery) {
        let own = match call {
            Call::Send => &self.ways.send,
            Call::Stream => &self.ways.stream,
            Call::Get => &self.ways.get,
            Call::Cancel => &self.ways.cancel,
            Call::Other => &None,
        };
        own.as_ref().map_or((&self.target, &self.path), |(target, path)| (target, path))
    }
}
