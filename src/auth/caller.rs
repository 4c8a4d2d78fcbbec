//! Who a client proved to be.
//!
//! Not here: how it proved it.

use std::sync::Arc;

/// A client, by a name that stays the same when its keys change: everything that it holds hangs on it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Caller(Arc<str>);

impl Caller {
    /// A client that proved nothing. All of them share one name, so that what they hold are bearer secrets.
    pub fn anonymous() -> Self {
        Self("anonymous".into())
    }

    /// Whether the client proved nothing.
    pub fn is_anonymous(&self) -> bool {
        *self.0 == *"anonymous"
    }

    /// The stable name.
    pub fn name(&self) -> &str {
        &self.0
    }
}
