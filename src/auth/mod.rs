//! Authentication and authorization of callers, and credentials for agents.
//!
//! Inbound: certificates, bearer tokens and API keys become a [`Caller`], and [`Rules`] authorize
//! it. Outbound: credentials that agents get. Out of scope: HTTP (see `gateway`), TLS (see `tls`,
//! `transport`).

mod caller;
mod certificate;
mod failures;
mod inbound;
mod jwks;
mod outbound;
mod rules;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, PercentEncode, utf8_percent_encode};

pub(crate) use caller::Caller;
pub use certificate::ClientCertificate;
pub(crate) use certificate::{ChainVerifier, ClientTlsInfo, TrustAnchors, TrustHandle};
pub(crate) use failures::{FailureLimiter, network};
pub use inbound::AuthProblem;
pub(crate) use inbound::{
    Authenticator, CertificateFacts, Denied, Endpoint, PresentedCredentials, ServedProtocol,
};
use jwks::SignedMessage;
pub(crate) use jwks::{ALGORITHMS, KeySet, SignatureError};
pub use outbound::SubjectToken;
pub(crate) use outbound::{AccessToken, AgentTokens, CardKey, Credentials, ReloadOutcome, TokenUnavailable};
pub(crate) use rules::matches as fits_pattern;
pub(crate) use rules::{Action, PolicyDecision, Rules};

/// The characters of a member of a query or a form that are encoded (RFC 3986 §2.3).
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Encodes text for a member of a query or a form.
fn percent_encoded(text: &str) -> PercentEncode<'_> {
    utf8_percent_encode(text, RESERVED)
}
