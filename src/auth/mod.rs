//! Who the caller is, and what an agent needs to be shown.
//!
//! Inbound, every caller is anonymous until a mechanism is configured; outbound, each agent gets what the configuration gives it.
//! Not here: what the caller may see (see `gateway`).

mod caller;
mod outbound;

pub use caller::Caller;
pub use outbound::{CardKey, Credentials, Identity, Looked, NoToken, Pass, Shown, Subject, Tokens};
