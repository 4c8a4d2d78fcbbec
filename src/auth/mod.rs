//! Who the caller is, and what an agent needs to be shown.
//!
//! Inbound, every caller is anonymous until a mechanism is configured; outbound, agents get static headers. Client
//! certificates, keys and tokens will live here. Not here: what the caller may see (see `gateway`).

mod caller;
mod certificate;
mod outbound;
mod subject;

pub use caller::Caller;
pub use certificate::{ClientCertificate, Handshake, Trust, Trusted, UnreadableCertificate};
pub use outbound::{keyed, static_headers};
